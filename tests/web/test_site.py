"""The documentation in a real browser: it asks no other host, draws formulas, finds words and stays in its window."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs" / "_build" / "html"
#: One page of each kind.
PAGES = [
    "index", "start/index", "start/recordings", "start/trust", "start/learning-dynamics", "start/faq",
    "start/comparison", "start/installation", "project/help", "project/citing", "performance", "tutorials/index",
    "how-to/recordings", "reference/index", "generated/reference/commands", "generated/reference/study-files",
    "generated/reference/errors", "generated/reference/names/learncast.plan", "theory/curriculum2025",
    "theory/misprints", "theory/glossary", "generated/gallery/index", "generated/project/skill",
    "project/contributing", "project/index", "project/security",
]  # fmt: skip

pytestmark = pytest.mark.skipif(
    not (SITE / "index.html").exists(), reason="the site is not built: run `make docs` first"
)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *words: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def opened(browser: Any, address: str) -> Iterator[Any]:
    """Opens pages with every other host shut off; what was asked of one, or complained about, is a fault."""
    contexts, told = [], []

    def route(one: Any) -> None:
        if one.request.url.startswith(address):
            one.continue_()
        else:
            told.append(f"asked {one.request.url}")
            one.abort()

    def open_page(page: str, width: int = 1280, look: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=look)
        contexts.append(context)
        context.route("**/*", route)
        shown = context.new_page()
        shown.on("pageerror", lambda error: told.append(f"{page}: {error}"))
        shown.on("response", lambda got: told.append(f"{got.url} is {got.status}") if got.status >= 400 else None)
        shown.goto(f"{address}/{page}.html")
        return shown

    yield open_page
    for context in contexts:
        context.close()
    assert not told


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("look", ["light", "dark"])
def test_pages_ask_nobody_else_and_stay_within_the_window(opened, width, look):
    for name in PAGES:
        page = opened(name, width, look)
        assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0, name
        assert page.evaluate("document.documentElement.dataset.theme") == look
        for picture in page.locator("main img:visible").all():
            picture.scroll_into_view_if_needed()  # pictures below the window are loaded when they come near
            assert picture.evaluate("async one => { await one.decode(); return one.naturalWidth > 0 }"), name


#: Pages with long names, wide tables or formulas.
WIDE = ("claims", "equations", "genindex", "how-to/save-load", "project/contributing", "theory/index",
        "theory/livi2025", "theory/misprints", "theory/surrogates",
        "generated/gallery/3_recurrence/plot_18_learned_recurrence",
        "generated/reference/commands", "generated/reference/errors", "generated/reference/networks",
        "generated/reference/procedure", "generated/reference/results", "generated/reference/study-files",
        "generated/reference/names/learncast.theory.representation_distance", "generated/tutorials/plot_1_recordings",
        "generated/tutorials/plot_7_equation")  # fmt: skip


def test_nothing_is_cut_at_the_right_of_a_phone(opened):
    """Neither the article nor its footer scrolls sideways, and rows of many columns are blocks."""
    wide = """() => [...document.querySelectorAll('.bd-article-container, .prev-next-area a, table.stacked')]
        .filter(one => one.checkVisibility() && (one.scrollWidth > one.clientWidth + 1
        || one.getBoundingClientRect().right > window.innerWidth)).map(one => one.outerHTML.slice(0, 80))"""
    for name in WIDE:
        assert opened(name, 390).evaluate(wide) == [], name


@pytest.mark.parametrize(("width", "blocks"), [(1280, "main pre"), (390, "main div:not([class*=ython]) > * > pre")])
def test_no_block_on_the_first_screen_scrolls_sideways(opened, width, blocks):
    """On a phone Python scrolls, because its indentation has a meaning; commands and their output wrap."""
    wide = f"""[...document.querySelectorAll('{blocks}, main .race')].filter(one =>
        one.checkVisibility() && one.getBoundingClientRect().top < window.innerHeight
        && one.scrollWidth > one.clientWidth + 1).length"""
    for name in ("index", "start/index", "start/recordings", "start/trust", "start/installation", "project/citing"):
        assert opened(name, width).evaluate(wide) == 0, name


def test_the_picture_of_the_front_page_answers_to_the_keyboard(opened):
    page = opened("index")
    slider, answer = page.get_by_role("slider"), page.locator("#race-answer")
    best = answer.inner_text()
    assert {"168", "331"} <= set(re.findall(r"\d+", best))
    slider.focus()
    slider.press("ArrowRight")
    assert slider.input_value() == "67"
    assert answer.inner_text() != best
    assert page.locator("#race-picture path").count() >= 3
    slider.press("Home")
    assert slider.input_value() == "1"


def test_everything_that_the_front_page_draws_is_in_its_key(opened):
    page = opened("index")
    keys = page.locator(".race-keys .key").evaluate_all("all => all.map(one => one.className.replace('key ', ''))")
    lines = page.locator("#race-picture path:not(.rest)").evaluate_all("all => all.map(one => one.className.baseVal)")
    assert {*lines, "first"} == set(keys)


def test_a_phone_shows_the_python_name_of_every_question(opened):
    page = opened("index", 390)
    names = page.locator(".questions td:nth-child(3) a")
    assert names.count() >= 10
    assert all(one.is_visible() for one in names.all())


def test_search_shows_pages_to_begin_with_before_records_of_decisions(opened):
    page = opened("search")
    page.goto(f"{page.url}?q=forecast")
    page.wait_for_selector("ul.search li a[href*='decisions/']")
    found = page.locator("ul.search li > a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    first = {part: next(k for k, link in enumerate(found) if part in link) for part in ("start/", "decisions/")}
    assert first["start/"] < first["decisions/"]


def test_formulas_are_drawn_in_the_font_of_the_site(opened):
    page = opened("theory/curriculum2025")
    page.wait_for_function("() => document.fonts.status === 'loaded'")
    assert page.evaluate("document.fonts.check('16px \"STIX Two Math\"')")
    assert page.evaluate("[...document.fonts].some(one => one.family.includes('STIX') && one.status === 'loaded')")
    fraction = page.locator("math mfrac").first.bounding_box()
    assert fraction["height"] > 25  # a numerator above a denominator
    assert not re.search(r"\$[^$]*\\|\\frac|\\beta", page.locator("main").inner_text())


def test_search_finds_a_function_and_a_word_of_the_theory(opened):
    for word, expected in (("follow", "learncast.follow"), ("saddle", "braun2022")):
        page = opened("search")
        page.goto(f"{page.url}?q={word}")
        page.wait_for_selector(f"ul.search li a[href*='{expected}']")  # one result appears after another
        page.wait_for_load_state("networkidle")  # with a line of each page


def test_every_question_is_two_clicks_away(opened):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\|[^|]+\| `learncast (\w+)`", readme, flags=re.M)
    assert len(commands) == 11
    for command in commands:
        page = opened("index")
        page.locator(".questions").get_by_role("link", name=f"learncast {command}", exact=True).first.click()
        page.wait_for_load_state()
        assert page.url.endswith(f"#command-{command}")
        assert page.locator(f"#command-{command}").count()
        assert f"learncast {command}" in page.locator("main").inner_text()


def test_the_page_of_a_function_shows_its_parameters(opened):
    text = opened("generated/reference/names/learncast.plan").locator("main").inner_text()
    for word in ("Parameters", "target", "candidates", "learning_rate"):
        assert word in text


def test_a_picture_shows_its_version_for_light_and_dark(opened):
    for look, other in (("light", "dark"), ("dark", "light")):
        page = opened("theory/curriculum2025", look=look)
        assert page.locator(f"figure.drawn img.only-{look}").first.is_visible()
        assert not page.locator(f"figure.drawn img.only-{other}").first.is_visible()
        assert page.locator("figure.drawn figcaption").first.is_visible()


@pytest.mark.parametrize(("width", "screen"), [(390, "phone"), (1440, "wide")])
def test_a_figure_has_a_version_for_phones_that_fits_its_column(opened, width, screen):
    for name in ("generated/tutorials/plot_3_forgetting", "theory/curriculum2025"):
        page = opened(name, width)
        shown = page.locator("img.example:visible")
        assert shown.count() == page.locator(f"img.{screen}.only-light").count() >= 1
        assert max(shown.evaluate_all("all => all.map(one => one.getBoundingClientRect().right)")) <= width


@pytest.mark.parametrize("look", ["light", "dark"])
@pytest.mark.parametrize(
    ("name", "cards"), [("generated/gallery/index", ".sphx-glr-thumbcontainer"), ("tutorials/index", ".cards .sd-card")]
)
def test_every_card_shows_its_picture_in_the_colours_of_the_page(opened, name, cards, look):
    page = opened(name, 1440, look)
    pictures = page.locator(f"{cards} img:visible")
    assert pictures.count() == page.locator(cards).count() >= 8
    addresses = pictures.evaluate_all("all => all.map(one => one.src)")
    assert {address.endswith("_dark.svg") for address in addresses} == {look == "dark"}
    assert min(pictures.evaluate_all("all => all.map(one => one.clientWidth)")) >= 160  # they hold no words


def test_code_of_tutorials_and_examples_does_not_scroll_sideways(opened):
    wide = """[...document.querySelectorAll('main .highlight pre')].filter(one =>
        one.scrollWidth > one.clientWidth + 1).length"""
    for folder in ("tutorials", "gallery/1_curricula", "gallery/5_data_and_practice"):
        for path in sorted((SITE / "generated" / folder).glob("plot_*.html")):
            assert opened(f"generated/{folder}/{path.stem}", 1440).evaluate(wide) == 0, path.stem


def test_a_wide_table_fades_until_its_end_is_in_view(opened):
    page = opened("theory/surrogates", 390)
    table = page.locator(".pst-scrollable-table-container").first
    page.wait_for_selector(".pst-scrollable-table-container.more")
    table.evaluate("one => { one.scrollLeft = one.scrollWidth }")
    page.wait_for_function("() => !document.querySelector('.pst-scrollable-table-container').matches('.more')")


def test_a_lesson_is_the_explorer_on_a_server_and_a_picture_in_a_file(opened, browser):
    page = opened("start/lessons")
    assert page.locator(".lesson iframe").count() == 4
    assert page.locator(".lesson img").count() == 0
    for look in ("light", "dark"):
        context = browser.new_context(color_scheme=look)
        page = context.new_page()
        page.goto((SITE / "start" / "lessons.html").as_uri())
        assert page.locator(".lesson iframe").count() == 0
        shown = page.locator(f".lesson img.only-{look}:visible")
        assert shown.count() == page.locator(".lesson img:visible").count() == 4
        assert all(shown.evaluate_all("all => all.map(one => one.naturalWidth > 0)"))
        context.close()
