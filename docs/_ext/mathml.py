"""Mathematics as MathML, which browsers draw themselves: LaTeX is translated when the site is built.

A page then needs no script for its formulas. The font with their shapes, STIX Two Math, comes with the package ziamath
and is copied into the site.
"""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import Any

from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.fileutil import copy_asset

FONT = "STIXTwoMath-Regular.ttf"


def mathml(latex: str, display: str) -> str:
    """One formula; a fault in it is a fault of the build."""
    try:
        return convert(latex, display=display)
    except Exception as error:
        raise ExtensionError(
            f"formula that cannot be translated: {latex!r} ({type(error).__name__}: {error})"
        ) from error


def inline(writer: Any, node: Any) -> None:
    """A formula within a line."""
    writer.body.append(mathml(node.astext(), "inline"))
    raise _skip()


def block(writer: Any, node: Any) -> None:
    """A formula on lines of its own, with its number if it has one."""
    writer.body.append(writer.starttag(node, "div", CLASS="math-block"))
    for part in filter(str.strip, node.astext().split("\n\n")):
        writer.body.append(mathml(part, "block"))
    if node.get("number"):
        writer.body.append(f'<span class="eqno">({node["number"]})</span>')
    writer.body.append("</div>")
    raise _skip()


def _skip() -> Exception:
    from docutils.nodes import SkipNode

    return SkipNode()


def copy_font(app: Sphinx, error: Exception | None) -> None:
    """The font beside the style sheets."""
    if error is None and app.builder.format == "html":
        with as_file(files("ziamath") / "fonts" / FONT) as font:
            copy_asset(font, app.outdir / "_static" / "fonts")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer under the name `mathml`."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.connect("build-finished", copy_font)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
