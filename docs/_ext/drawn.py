"""The directive `drawn`: a small figure, drawn when the site is built, in a light and a dark version.

`{drawn} name` calls the function of that name in `drawings.py` or `pictures.py` with axes. Its docstring is the caption, and its source is shown
below.
"""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path
from typing import Any, ClassVar

import drawings
import pictures
from docutils import nodes
from docutils.parsers.rst import directives
from gallery_figures import COLUMN, for_phone, page_size, save_versions, versions
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from learncast.figures.look import TOKEN_FILE

FOLDER = Path("generated/drawn")
#: Folders of stored numbers that figures show.
STORED = [Path(__file__).parents[2] / folder for folder in ("docs/results", "benchmarks/results")]


class Drawn(SphinxDirective):
    """Draws a figure, unless its code and all stored numbers are unchanged."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {"width": directives.positive_int}

    def run(self) -> list[nodes.Node]:
        """Return the figure in both versions, its caption and its code."""
        module = drawings if hasattr(drawings, self.arguments[0]) else pictures
        draw = getattr(module, self.arguments[0])
        source = inspect.getsource(draw)
        code = source + inspect.getsource(drawings._sized) + inspect.getsource(for_phone)
        files = [TOKEN_FILE, *(one for folder in STORED for one in sorted(folder.glob("*.json")))]
        stamp = hashlib.sha256(b"".join([code.encode(), *(file.read_bytes() for file in files)])).hexdigest()[:12]
        figure = nodes.figure(classes=["drawn"])
        wide = FOLDER / f"{self.arguments[0]}-{stamp}.svg"
        screens = {"wide": (wide, self.options.get("width", 460)), "phone": (_phone(wide), COLUMN)}
        if not all((Path(self.env.srcdir) / file).exists() for file in versions(_phone(wide)).values()):
            save(draw, Path(self.env.srcdir) / wide)
        for screen, (path, across) in screens.items():
            for look, file in versions(path).items():
                classes = [f"only-{look}", "example", screen]
                uri, alt = f"/{file.as_posix()}", _caption(draw)
                options = page_size(Path(self.env.srcdir) / file, across)
                figure += nodes.image(uri=uri, alt=alt, classes=classes, **options)
        caption = nodes.caption()
        text, _ = (
            self.state.inline_text(_caption(draw), self.lineno) if hasattr(self.state, "inline_text") else ([], [])
        )
        caption += text or [nodes.Text(_caption(draw))]
        figure += caption
        for file in (module.__file__, *files):
            self.env.note_dependency(str(file))
        return [figure, _code(source)]


def _phone(path: Path) -> Path:
    return path.with_name(f"{path.stem}_phone.svg")


def _caption(draw: Any) -> str:
    return inspect.getdoc(draw).replace("\n", " ")


def _code(source: str) -> nodes.Node:
    opened = nodes.container(classes=["drawn-code"])
    opened += nodes.raw("", "<details><summary>source code</summary>", format="html")
    opened += nodes.literal_block(source, source, language="python")
    opened += nodes.raw("", "</details>", format="html")
    return opened


def save(draw: Any, path: Path) -> None:
    """Save a figure in both versions."""
    import matplotlib as mpl

    from learncast.figures import style

    with style(), mpl.rc_context({"font.size": 10}):
        figure, axes = drawings.empty(draw)
        draw(axes)
        for ax in figure.axes:
            if (legend := ax.get_legend()) is not None:
                legend.get_frame().set_alpha(0)
        save_versions(figure, path)
        save_versions(for_phone(figure), _phone(path))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("drawn", Drawn)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
