"""The map of the packages, from the list of layers that a test enforces."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = ROOT / "tests" / "architecture" / "test_layers.py"
SOURCE = ROOT / "src" / "learncast"

#: Subject of a level, by one of its packages.
SUBJECT = {
    "_core": "errors, validation, files, progress", "display": "HTML repr and tables", "results": "results with units",
    "tasks": "tasks and recorded trials", "networks": "networks before training", "procedure": "training settings, goals, stages",
    "theory": "learning dynamics", "planning": "forecasts and plans", "training": "torch training, windows",
    "advice": "advice for torch models", "figures": "matplotlib figures", "study": "study files",
    "papers": "reproductions; reports of commands", "sweep": "sweeps; web app", "sweep_cli": "sweep commands", "cli_values": "values of options", "reproduce_cli": "paper figures",
    "cli": "command line", "cli_delivery": "answers as text, JSON or files", "__main__": "entry point",
}  # fmt: skip


def layers() -> list[list[str]]:
    """Packages by level, lowest first, as the test has them."""
    for node in ast.parse(LIST.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LAYERS":
            return [sorted(packages) for packages in ast.literal_eval(node.value)]
    raise LookupError(f"{LIST} has no list of LAYERS")


def lines(package: str) -> int:
    """Number of lines of a package or module."""
    folder = SOURCE / package
    files = list(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def html() -> str:
    """The map as a list, highest level first."""
    rows = []
    for packages in layers()[::-1]:
        names = " ".join(f'<code title="{lines(package)} lines">{package}</code>' for package in packages)
        subject = next((SUBJECT[package] for package in packages if package in SUBJECT), "")
        rows.append(f"<li><span>{names}</span> <span>{subject}</span></li>")
    return f'<ol class="package-map">{"".join(rows)}</ol>'


if importlib.util.find_spec("sphinx"):
    from docutils import nodes
    from sphinx.application import Sphinx
    from sphinx.util.docutils import SphinxDirective

    class PackageMap(SphinxDirective):
        """The directive `package-map`."""

        def run(self) -> list[nodes.Node]:
            """Insert the map, in the colours of the page."""
            self.env.note_dependency(str(LIST))
            return [nodes.raw("", html(), format="html")]

    def setup(app: Sphinx) -> dict[str, bool]:
        """Register the directive."""
        app.add_directive("package-map", PackageMap)
        return {"parallel_read_safe": True, "parallel_write_safe": True}
