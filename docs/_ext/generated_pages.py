"""Pages that are generated from the code before Sphinx collects pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import command_page
import error_page
import key_page
import name_pages
import result_page
import skill_page
from sphinx.application import Sphinx

#: File names of pages that differ from the name of the package.
PAGE_NAMES = {"results": "result-types"}

Pages = dict[str, Callable[[], str]]


def pages() -> Pages:
    """All pages by path below `docs/generated`."""
    return {
        "reference/commands.md": command_page.page,
        "reference/study-files.md": key_page.page,
        "reference/results.md": result_page.page,
        "reference/errors.md": error_page.page,
        "project/skill.md": skill_page.page,
        **{f"reference/{PAGE_NAMES.get(name, name)}.md": make for name, make in name_pages.pages().items()},
        **{f"extra/schema/{name}": make for name, make in key_page.schemas().items()},
    }


def write(folder: Path, made: Pages) -> None:
    """Write pages that have changed; the others keep their time, so that Sphinx does not build them again."""
    for name, make in made.items():
        path, text = folder / name, make()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages when the configuration is read."""
    app.connect("config-inited", lambda app, _: write(Path(app.srcdir) / "generated", pages()))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
