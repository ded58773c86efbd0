"""Links that work on a code host and on the site.

Pages are read in two places. A code host has the files of the repository; the site has the pages made of them. The sources
link to files, and this extension turns these links into links to pages before a page is parsed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

#: Pages that are generated from a file or folder of the repository.
PAGES = {
    "docs/gallery": "/generated/gallery/index",
    "src/learncast/cli.py": "/generated/reference/commands",
    "src/learncast/_core/errors.py": "/generated/reference/errors",
    "src/learncast/study/sections.py": "/generated/reference/study-files",
    "src/learncast/results": "/generated/reference/results",
    "benchmarks/bench_skill.py": "/generated/project/skill",
    "README.md": "/index",
    "CONTRIBUTING.md": "/project/contributing",
    "SECURITY.md": "/project/security",
    "CHANGELOG.md": "/project/changes",
}
LINK = re.compile(r"\]\((?!https?:|#)([^)\s#]+)(#[^)\s]*)?\)")


def page_of(path: str) -> str | None:
    """Page of the site that shows a file, given relative to the repository; None if it is a page itself."""
    if path in PAGES:
        return PAGES[path]
    script = re.fullmatch(r"docs/((?:tutorials|gallery/[\w-]+)/plot_\w+)\.py", path)
    return f"/generated/{script[1]}" if script else None


def resolved(page: str, link: str) -> str:
    """Path of a link relative to the repository, for a page given by its name below `docs`."""
    parts = ["docs", *page.split("/")[:-1]]
    for part in link.rstrip("/").split("/"):
        parts = parts[:-1] if part == ".." else parts if part == "." else [*parts, part]
    return "/".join(parts)


def rewritten(page: str, text: str) -> str:
    """Source of a page with links to the pages of the site."""

    def link(found: re.Match[str]) -> str:
        target = page_of(resolved(page, found[1]))
        return found[0] if target is None else f"]({target}{found[2] or ''})"

    return LINK.sub(link, text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Rewrite every page when it is read."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    if not page.startswith("generated/"):
        source[0] = rewritten(page, source[0])
