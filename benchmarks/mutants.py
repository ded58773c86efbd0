"""Mutants of the core numerics, and whether fast tests notice: python -m benchmarks.mutants [--number 300] [--seed 0].

One operator, comparison, constant or word of a module is changed at a time, in a copy of the sources, and the tests
that cover the module are run on it until one fails. What survives is printed with its line.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: What is changed, and the fast tests that cover it, the quickest first.
MODULES = {
    "dynamics/balanced": [
        "unit/dynamics/test_two_layer.py", "reference/test_balanced_flow.py", "reference/test_two_layer.py",
    ],
    "dynamics/steps": ["reference/test_strides.py", "reference/test_descent.py"],
    "dynamics/descent.py": ["reference/test_descent.py", "reference/test_statistics.py"],
    "dynamics/gradient_flow.py": ["reference/test_descent.py", "reference/test_one_ground.py"],
    "dynamics/learning_problem.py": ["reference/test_curvature.py", "reference/test_descent.py"],
    "dynamics/mode_equation.py": ["reference/test_mode_equation.py", "reference/test_curriculum_golden.py"],
    "dynamics/modes.py": [
        "reference/test_aligned_start.py", "contract/test_solution.py", "reference/test_curriculum_golden.py",
    ],
    "dynamics/pooled.py": ["contract/test_solution.py", "reference/test_descent.py", "reference/test_two_layer.py"],
    "dynamics/recurrent_mode.py": ["reference/test_recurrent_mode.py"],
    "dynamics/solution.py": ["contract/test_solution.py", "contract/test_many_times.py", "contract/test_trajectory.py"],
    "dynamics/statistics.py": ["reference/test_statistics.py"],
    "planning/grounds": ["unit/planning", "reference/test_one_ground.py", "reference/test_plan.py"],
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult, ast.FloorDiv: ast.Div,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Lt: ast.GtE, ast.LtE: ast.Lt, ast.Gt: ast.LtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.And: ast.Or, ast.Or: ast.And, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    path: Path
    line: int
    change: str
    text: str


def of_node(node: ast.AST) -> Iterator[tuple[str, str, object]]:
    """What can be changed here: a name in words, a field of the node, and its new value."""
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in OPERATORS:
        new = OPERATORS[type(node.op)]
        yield f"{type(node.op).__name__} to {new.__name__}", "op", new()
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
        new = OPERATORS[type(node.ops[0])]
        yield f"{type(node.ops[0]).__name__} to {new.__name__}", "ops", [new(), *node.ops[1:]]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "minus to plus", "op", ast.UAdd()
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield f"{node.value} to {node.value + 1}", "value", node.value + 1
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield f"{node.value} to {not node.value}", "value", not node.value


def _running(tree: ast.Module) -> Iterator[ast.AST]:
    """Nodes that are computed when the module is used: no types, no words of errors."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params", "exc") or isinstance(
                node, ast.JoinedStr
            ):
                continue
            waiting += [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ast.AST)]


def mutants(path: Path) -> list[Mutant]:
    """Every change of one file."""
    text = path.read_text(encoding="utf-8")
    tree, found = ast.parse(text), []
    for node in _running(tree):
        for words, field, new in of_node(node):
            old = getattr(node, field)
            setattr(node, field, new)
            found.append(Mutant(path, getattr(node, "lineno", 0), words, ast.unparse(tree)))
            setattr(node, field, old)
    return found


def drawn(number: int, seed: int) -> list[Mutant]:
    """So many changes, over all files alike."""
    rooms = [ROOT / "src" / "learncast" / name for name in MODULES]
    paths = sorted({path for room in rooms for path in (room.rglob("*.py") if room.is_dir() else [room])})
    every = [one for path in paths for one in mutants(path)]
    return random.Random(seed).sample(every, min(number, len(every)))


def killed(mutant: Mutant, sources: Path, seconds: float) -> str:
    """The first test that fails on it, or nothing; one that never ends is noticed too."""
    place = mutant.path.relative_to(ROOT / "src" / "learncast").as_posix()
    tests = next(given for name, given in MODULES.items() if place == name or place.startswith(f"{name}/"))
    target = sources / mutant.path.relative_to(ROOT / "src")
    kept = target.read_text(encoding="utf-8")
    target.write_text(mutant.text, encoding="utf-8")
    try:
        return failing(tests, sources, seconds)
    finally:
        target.write_text(kept, encoding="utf-8")


def failing(tests: list[str], sources: Path, seconds: float) -> str:
    """The first test that fails on these sources, or nothing."""
    environment = {**os.environ, "PYTHONPATH": str(sources), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    options = ["-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no", "-W", "default"]
    try:
        for test in tests:
            command = [sys.executable, "-m", "pytest", *options, str(ROOT / "tests" / test)]
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment, timeout=seconds
            )
            if done.returncode:
                said = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
                return said[0].partition(" ")[2].partition(" - ")[0] if said else test
        return ""
    except subprocess.TimeoutExpired:
        return f"no end within {seconds:.0f} s"


def main() -> None:
    """Draw mutants, try each, and print the share that was noticed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description="Try mutants on the fast tests.")
    parser.add_argument("--number", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="leave out so many of those that are drawn")
    parser.add_argument("--seconds", type=float, default=600.0, help="for one file of tests")
    parser.add_argument("--no-baseline", dest="baseline", action="store_false", help="trust that all tests pass now")
    asked = parser.parse_args()
    noticed = tried = 0
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder) / "src"
        shutil.copytree(ROOT / "src", sources, ignore=shutil.ignore_patterns("__pycache__"))
        every = sorted({test for tests in MODULES.values() for test in tests})
        if asked.baseline and (found := failing(every, sources, asked.seconds)):
            raise SystemExit(f"{found} fails on the sources as they are: mutants would be killed by that")
        for mutant in drawn(asked.number, asked.seed)[asked.first :]:
            by = killed(mutant, sources, asked.seconds)
            tried, noticed = tried + 1, noticed + bool(by)
            place = f"{mutant.path.relative_to(ROOT / 'src' / 'learncast')}:{mutant.line}"
            print(f"{'killed' if by else 'SURVIVED':<9} {place:<44} {mutant.change:<20} {by}", flush=True)
    print(f"{noticed} of {tried} mutants killed ({noticed / max(tried, 1):.0%})")


if __name__ == "__main__":
    main()
