"""Pages of source code link back to the page of each name.

Every name has a page of its own, and names of one module may belong to several packages: the anchors that Sphinx writes into
these links do not always exist, and are not needed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def without_anchors(body: str) -> str:
    """A page of source code whose links back name pages only."""
    return re.sub(r'(class="viewcode-back" href="[^"#]+)#[^"]*', r"\1", body)


def setup(app: Sphinx) -> dict[str, bool]:
    """Change the pages of source code when they are written."""
    app.connect("html-page-context", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _write(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: object) -> None:
    if page.startswith("_modules/") and "body" in context:
        context["body"] = without_anchors(context["body"])
