"""Links of the pages lead to files of the repository, so that they work on a code host; the site has pages for them."""

from __future__ import annotations

import re
from pathlib import Path

import code_host_links
import pytest
import source_pages

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(page for page in sorted(DOCS.rglob("*.md")) if not {"generated", "_build"} & set(page.relative_to(DOCS).parts)),
]


def links(page: Path) -> list[str]:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.findall(r"\]\((?!https?:|#)([^)\s#]+)", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page):
    assert [link for link in links(page) if not (page.parent / link).exists() or link.startswith("/")] == []


def test_scripts_and_sources_become_pages_of_the_site():
    text = "[a](../tutorials/plot_1_recordings.py) [b](../../src/learncast/_core/errors.py#x) [c](trust.md)"
    assert code_host_links.rewritten("start/index", text) == (
        "[a](/generated/tutorials/plot_1_recordings) [b](/generated/reference/errors#x) [c](trust.md)"
    )


def test_files_that_have_a_page_exist():
    assert all((ROOT / path).exists() for path in code_host_links.PAGES)


def test_pages_of_source_code_link_back_to_pages():
    body = '<a class="viewcode-back" href="../names/learncast.plan.html#learncast.plan">[docs]</a>'
    assert source_pages.without_anchors(body) == body.replace("#learncast.plan", "")


def test_every_lesson_opens_an_example_of_the_explorer():
    pytest.importorskip("starlette")
    pytest.importorskip("docutils")  # comes with the documentation
    import lesson

    names = re.findall(
        r"^```{lesson} (.+) / (.+)$", (DOCS / "start" / "lessons.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(names) == 4
    assert all(lesson.address(panel, example).startswith(f"#{panel}") for panel, example in names)
