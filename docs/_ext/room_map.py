"""The map of the rooms, drawn from the list of layers that a test enforces."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = ROOT / "tests" / "architecture" / "test_layers.py"
SOURCE = ROOT / "src" / "learncast"

ROW, ROOM, GAP, WIDTH = 40, 30, 10, 760
#: What a level is about, by a room of it.
ABOUT = {
    "_core": "errors, validation, files, progress", "results": "results with units", "tasks": "what is learned",
    "networks": "what learns", "theory": "learning dynamics", "procedure": "training, goals, stages", "planning": "methods, forecasts, plans",
    "training": "torch training, windows", "advice": "what to train first", "card": "HTML repr of results", "figures": "matplotlib figures",
    "study": "study files", "answers": "reports of commands", "sweep": "many forecasts; web app", "sweep_cli": "sweep commands",
    "cli": "the command line", "__main__": "entry point",
}  # fmt: skip


def layers() -> list[list[str]]:
    """Rooms by level, lowest first, as the test has them."""
    for node in ast.parse(LIST.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LAYERS":
            return [sorted(rooms) for rooms in ast.literal_eval(node.value)]
    raise LookupError(f"{LIST} has no list of LAYERS")


def lines(room: str) -> int:
    """Lines of code of a room."""
    place = SOURCE / room
    files = list(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def svg() -> str:
    """The map, highest level first."""
    levels = layers()[::-1]
    height = len(levels) * ROW + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="room-map" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="Rooms of learncast by level, the lowest below">'
    ]
    for k, rooms in enumerate(levels):
        y = 10 + k * ROW
        widths = [max(96, 8.4 * len(room) + 24) for room in rooms]
        x = 20.0
        for room, width in zip(rooms, widths, strict=True):
            parts.append(
                f'<g><title>{room}: {lines(room)} lines</title><rect class="room" x="{x}" y="{y}" width="{width}" height="{ROOM}" rx="6"/>'
            )
            parts.append(
                f'<text class="name" x="{x + width / 2}" y="{y + ROOM / 2 + 5}" text-anchor="middle">{room}</text></g>'
            )
            x += width + GAP
        told = next((ABOUT[room] for room in rooms if ABOUT.get(room)), "")
        parts.append(f'<text class="about" x="{x + 4}" y="{y + ROOM / 2 + 5}">{told}</text>')
    parts.append(f'<path class="arrow" d="M8 14 V{height - 12} m-4 -7 l4 7 l4 -7"/></svg>')
    return "".join(parts)


if importlib.util.find_spec("sphinx"):
    from docutils import nodes
    from sphinx.application import Sphinx
    from sphinx.util.docutils import SphinxDirective

    class RoomMap(SphinxDirective):
        """The directive `room-map`."""

        def run(self) -> list[nodes.Node]:
            """The map within the page, in the page's colours."""
            self.env.note_dependency(str(LIST))
            return [nodes.raw("", svg(), format="html")]

    def setup(app: Sphinx) -> dict[str, bool]:
        """Register the directive."""
        app.add_directive("room-map", RoomMap)
        return {"parallel_read_safe": True, "parallel_write_safe": True}
