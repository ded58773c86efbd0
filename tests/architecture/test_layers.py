"""Layers: no module imports from a layer above its own."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

import learncast

SOURCE = Path(__file__).parents[2] / "src" / "learncast"

#: Lowest first. Packages of one level must not import each other.
LAYERS = [
    {"_core"},
    {"display"},
    {"results"},
    {"tasks"},
    {"networks"},
    {"procedure"},
    {"theory"},
    {"planning"},
    {"training", "windows"},
    {"advice"},
    {"figures"},
    {"study"},
    {"papers", "report"},
    {"sweep", "web"},
    {"cli_values"},
    {"sweep_cli"},
    {"reproduce_cli"},
    {"cli_delivery"},
    {"cli"},
    {"__main__"},
]
#: The only imports upwards, inside functions: a result that plots or reports itself imports `figures` or `report`, and
#: a plan that makes a training loop imports `training`.
LATE = {("display", "figures"), ("display", "report"), ("planning", "training")}
LEVEL = {package: level for level, packages in enumerate(LAYERS) for package in packages}
MODULES = sorted(SOURCE.rglob("*.py"))


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@functools.cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """Imported module names, and whether the import runs when the module loads."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {child for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for child in ast.walk(node)}
    guarded = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        runs = node not in inside and node not in guarded
        if isinstance(node, ast.Import):
            found += [(alias.name, runs) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [(node.module, runs)]
            if node.module == "learncast":
                found += [(f"learncast.{alias.name}", runs) for alias in node.names]
    return found


def test_every_package_has_a_level():
    packages = {package_of(path) for path in MODULES} - {"__init__"}
    assert packages == set(LEVEL)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_down(path):
    here = package_of(path)
    if here == "__init__":
        return
    for name, runs in imports(path):
        parts = name.split(".")
        if parts[0] != "learncast" or len(parts) < 2 or parts[1] == "__version__":
            continue
        there = learncast._HOME.get(parts[1], parts[1]).split(".")[0]
        if (here, there) in LATE and not runs:
            continue
        assert there == here or LEVEL[there] < LEVEL[here], f"{here} imports {name} from a layer above"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_heavy_packages_stay_in_their_packages(path):
    here = package_of(path)
    for name, runs in imports(path):
        package = name.split(".")[0]
        if package == "torch":
            assert here in {"training", "advice", "windows"}, f"{here} imports torch"
        if package == "matplotlib":
            assert here in {"figures"} or not runs, f"{here} loads matplotlib"
        if package in {"typer", "rich"}:
            assert here in {"cli", "cli_delivery", "sweep_cli", "reproduce_cli"} or (here == "_core" and not runs)
        if package in {"starlette", "anyio", "uvicorn", "plotly"}:
            assert here == "web", f"{here} loads {package}"
        if package in {"dask", "distributed"}:
            assert here == "sweep"
            assert not runs, f"{here} loads {package}"


def test_no_module_is_named_utils():
    assert not {path.stem for path in MODULES} & {"utils", "helpers", "common", "misc"}
