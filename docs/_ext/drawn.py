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
from gallery_figures import save_versions, versions
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from learncast.figures.look import TOKEN_FILE

FOLDER = Path("generated/drawn")


class Drawn(SphinxDirective):
    """Draws a figure, unless its code is unchanged."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {"width": directives.positive_int}

    def run(self) -> list[nodes.Node]:
        """Return the figure in both versions, its caption and its code."""
        module = drawings if hasattr(drawings, self.arguments[0]) else pictures
        draw = getattr(module, self.arguments[0])
        source = inspect.getsource(draw)
        stamp = hashlib.sha256(
            (source + inspect.getsource(drawings._sized) + TOKEN_FILE.read_text(encoding="utf-8")).encode()
        ).hexdigest()[:12]
        figure = nodes.figure(classes=["drawn"])
        for look, path in versions(FOLDER / f"{self.arguments[0]}-{stamp}.svg").items():
            if not (Path(self.env.srcdir) / path).exists():
                save(draw, Path(self.env.srcdir) / FOLDER / f"{self.arguments[0]}-{stamp}.svg")
            figure += nodes.image(
                uri=f"/{path.as_posix()}",
                alt=_caption(draw),
                classes=[f"only-{look}"],
                width=f"{self.options.get('width', 460)}px",
            )
        caption = nodes.caption()
        text, _ = (
            self.state.inline_text(_caption(draw), self.lineno) if hasattr(self.state, "inline_text") else ([], [])
        )
        caption += text or [nodes.Text(_caption(draw))]
        figure += caption
        self.env.note_dependency(str(Path(module.__file__)))
        return [figure, _code(source)]


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


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("drawn", Drawn)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
