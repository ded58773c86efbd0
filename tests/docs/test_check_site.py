"""The check of the built site finds each kind of fault."""

from __future__ import annotations

import check_site
import pytest

GOOD = '<html><body><a href="other.html#place">on</a><img src="picture.png"></body></html>'


@pytest.fixture
def site(tmp_path):
    (tmp_path / "index.html").write_text(GOOD)
    (tmp_path / "other.html").write_text(
        '<h1 id="place">here</h1><a href="#place">up</a><a href="https://elsewhere.org">out</a>'
    )
    (tmp_path / "picture.png").write_bytes(b"")
    (tmp_path / "sheet.css").write_text("@font-face { src: url('fonts/one.ttf') }")
    (tmp_path / "searchindex.js").write_text("")
    return tmp_path


def test_a_complete_site_has_no_fault(site):
    assert list(check_site.faults(site)) == []


def test_a_block_with_code_is_no_fault(site):
    (site / "code.html").write_text("<pre><span></span>x = 1</pre><pre>y</pre>")
    assert list(check_site.faults(site)) == []


def test_a_dash_between_words_or_numbers_is_no_option(site):
    (site / "dashes.html").write_text("<p>input–output, 1–2 — and so on</p><code>--set</code>")
    assert list(check_site.faults(site)) == []


def test_a_state_of_the_explorer_is_no_anchor(site):
    (site / "lesson.html").write_text('<iframe src="other.html#a?b=0"></iframe><a href="other.html#a?b=1">x</a>')
    assert list(check_site.faults(site)) == []


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ('<script src="https://cdn.org/a.js"></script>', "fetches https://cdn.org/a.js from another host"),
        ('<link rel="stylesheet" href="//cdn.org/a.css">', "fetches //cdn.org/a.css from another host"),
        ('<img src="gone.png">', "fetches gone.png, which does not exist"),
        ('<img srcset="https://cdn.org/a.png 2x">', "fetches https://cdn.org/a.png from another host"),
        ('<a href="gone.html">x</a>', "links to gone.html, which does not exist"),
        ('<a href="other.html#nowhere">x</a>', "links to other.html#nowhere, which has no such anchor"),
        ('<div class="highlight"><pre><span></span>\n</pre></div>', "has 1 empty block(s) of code"),
        ("<td>Short for –set</td>", "shows –set, an option whose hyphens have become a dash"),
        ('<a href="#nowhere">x</a>', "links to #nowhere, which has no such anchor"),
    ],
)
def test_each_fault_is_found(site, page, fault):
    (site / "faulty.html").write_text(page)
    assert list(check_site.faults(site)) == [f"faulty.html {fault}"]


def test_style_sheets_and_search_index_are_checked(site):
    (site / "sheet.css").write_text("@import 'https://cdn.org/a.css'; p { background: url(//cdn.org/b.png) }")
    (site / "searchindex.js").unlink()
    assert list(check_site.faults(site)) == [
        "sheet.css fetches https://cdn.org/a.css from another host",
        "sheet.css fetches //cdn.org/b.png from another host",
        "there is no search index",
    ]
