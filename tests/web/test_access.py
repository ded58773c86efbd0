"""Accessibility: contrast, labels and the order of focus, by axe-core and the tab key."""

from __future__ import annotations

from pathlib import Path

import pytest

AXE = Path(__file__).parents[2] / ".axe" / "node_modules" / "axe-core" / "axe.min.js"
PANELS = ("curriculum", "prior-knowledge", "recurrence", "window")


@pytest.mark.skipif(
    not AXE.exists(), reason="axe-core is not installed; `make test-web` installs it if npm is available"
)
@pytest.mark.parametrize(
    "visit",
    [{"width": 1280, "colours": "light"}, {"width": 1280, "colours": "dark"}, {"width": 400, "colours": "dark"}],
    indirect=True,
    ids=["wide-light", "wide-dark", "phone-dark"],
)
def test_axe_finds_no_violation(visit):
    for panel in PANELS:
        visit.open(f"#{panel}")
        visit.page.locator("#form details").evaluate_all("groups => groups.forEach(one => { one.open = true; })")
        visit.page.wait_for_timeout(700)  # until transitions have ended
        visit.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = visit.page.evaluate("""async () => (await axe.run(document, {
            runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'],
        })).violations.map(one => [one.id, one.nodes.slice(0, 3).map(node => node.html.slice(0, 160))])""")
        assert found == [], panel


@pytest.mark.parametrize("panel", PANELS)
def test_the_picture_is_at_most_eight_tab_stops_away(visit, panel):
    visit.open(f"#{panel}")
    visit.page.keyboard.press("Tab")
    assert visit.page.evaluate("document.activeElement.id") == "skip"
    stops, focused = 1, "document.activeElement.closest('#main-chart .plot') !== null"
    while not visit.page.evaluate(focused):
        visit.page.keyboard.press("Tab")
        stops += 1
        assert stops <= 8
    visit.page.focus("#skip")
    visit.page.keyboard.press("Enter")
    assert visit.page.evaluate(focused)
    # Arrow keys move between the panels, which are one stop.
    visit.page.focus("#panels a[aria-current]")
    visit.page.keyboard.press("ArrowRight")
    assert visit.page.evaluate("document.activeElement.dataset.panel") != panel


def test_the_tab_key_follows_the_order_of_the_page(visit):
    visit.open("#curriculum")
    where = """() => {
        const one = document.activeElement;
        const place = one.closest('header, #examples, #stage, #side-chart, #controls, #views');
        return [place ? place.id || place.tagName.toLowerCase() : 'none', one.className, one.id];
    }"""
    seen = []
    for _ in range(140):
        visit.page.keyboard.press("Tab")
        place = visit.page.evaluate(where)[0]
        if not seen or seen[-1] != place:
            seen.append(place)
        if place == "views":
            break
    assert seen == ["header", "examples", "stage", "side-chart", "controls", "views"]
