"""The map of the packages, from the list of layers that a test enforces."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = ROOT / "tests" / "architecture" / "test_layers.py"
SOURCE = ROOT / "src" / "learncast"

ROW, BOX, GAP, WIDTH = 40, 30, 10, 760
#: Subject of a level, by one of its packages.
SUBJECT = {
    "_core": "errors, validation, files, progress", "display": "HTML repr and tables", "results": "results with units",
    "tasks": "tasks and recorded trials", "networks": "networks before training", "procedure": "training settings, goals, stages",
    "theory": "learning dynamics", "planning": "forecasts and plans", "training": "torch training, windows",
    "advice": "advice for torch models", "figures": "matplotlib figures", "study": "study files",
    "papers": "reproductions; reports of commands", "sweep": "sweeps; web app", "sweep_cli": "sweep commands", "cli_values": "values of options", "reproduce_cli": "paper figures",
    "cli": "command line", "__main__": "entry point",
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


def svg() -> str:
    """The map, highest level first."""
    levels = layers()[::-1]
    height = len(levels) * ROW + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="package-map" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="Packages of learncast by level, the lowest at the bottom">'
    ]
    for k, packages in enumerate(levels):
        x, y = 20.0, 10 + k * ROW
        for package in packages:
            width = max(96, 8.4 * len(package) + 24)
            middle = f'x="{x + width / 2}" y="{y + BOX / 2 + 5}" text-anchor="middle"'
            parts.append(
                f"<g><title>{package}: {lines(package)} lines</title>"
                f'<rect class="package" x="{x}" y="{y}" width="{width}" height="{BOX}" rx="6"/>'
                f'<text class="name" {middle}>{package}</text></g>'
            )
            x += width + GAP
        subject = next((SUBJECT[package] for package in packages if package in SUBJECT), "")
        parts.append(f'<text class="subject" x="{x + 4}" y="{y + BOX / 2 + 5}">{subject}</text>')
    parts.append(f'<path class="arrow" d="M8 14 V{height - 12} m-4 -7 l4 7 l4 -7"/></svg>')
    return "".join(parts)


if importlib.util.find_spec("sphinx"):
    from docutils import nodes
    from sphinx.application import Sphinx
    from sphinx.util.docutils import SphinxDirective

    class PackageMap(SphinxDirective):
        """The directive `package-map`."""

        def run(self) -> list[nodes.Node]:
            """Insert the map, in the colours of the page."""
            self.env.note_dependency(str(LIST))
            return [nodes.raw("", svg(), format="html")]

    def setup(app: Sphinx) -> dict[str, bool]:
        """Register the directive."""
        app.add_directive("package-map", PackageMap)
        return {"parallel_read_safe": True, "parallel_write_safe": True}
