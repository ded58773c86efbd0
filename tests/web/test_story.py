"""The explorer as a new user sees it: examples, animation, comparison, undo, glossary, and touch."""

from __future__ import annotations

import re

import numpy as np
import pytest

from learncast.web import all_panels

PHONE = pytest.mark.parametrize("visit", [{"width": 400}], indirect=True, ids=["phone"])


def current_map(visit):
    """The network's map at the current time."""
    return np.array(visit.numbers("network_function"))


def test_the_answer_comes_first(visit):
    visit.open("")
    answer = visit.page.locator("#answer").inner_text()
    assert re.findall(r"\d+(?:\.\d+)?", answer) == ["1.5", "1", "168", "331"]
    assert visit.reading("both stages") == 168
    assert visit.reading("direct training") == 331
    assert visit.page.locator(".note.warning, .note.error").count() == 0
    # The race, the portrait and the time slider are on the first screen, the race first.
    race, portrait = (visit.plot(key).bounding_box() for key in ("race", "portrait"))
    assert race["x"] + race["width"] < portrait["x"]
    assert race["width"] > portrait["width"]
    assert max(race["y"], portrait["y"]) < 400
    assert visit.page.locator("#player").bounding_box()["y"] < 900


def test_playing_shows_the_race_up_to_the_present(visit):
    visit.open("")
    assert visit.plot("race").locator(".later").count() == 0
    visit.page.click("#player .play")
    visit.page.wait_for_function("() => Number(document.querySelector('#player input').value) > 0.1")
    visit.page.click("#player .play")
    plot = visit.plot("race")
    assert float(plot.locator(".later").get_attribute("width")) > 50
    marked = float(plot.locator(".time-mark line").get_attribute("x1"))
    assert float(plot.locator(".later").get_attribute("x")) == marked
    # A point on each of the two curves.
    assert plot.locator(".time-mark .dot").count() == 2


def test_the_old_answer_is_dimmed_behind_one_spinner(visit):
    visit.open("")
    held, holding = [], True
    visit.page.route("**/api/curriculum/*", lambda route: held.append(route) if holding else route.continue_())
    visit.page.fill("#control-recurrence", "0.9")
    visit.page.wait_for_selector("#busy:visible")
    assert visit.page.locator(".spinner:visible").count() == 1
    visit.page.wait_for_function("() => getComputedStyle(document.querySelector('#race')).opacity < 0.6")
    assert "168" in visit.page.locator("#answer").inner_text()
    holding = False
    for route in held:
        route.continue_()
    visit.settled()
    assert visit.page.locator(".spinner:visible").count() == 0
    assert "168" not in visit.page.locator("#answer").inner_text()
    visit.page.wait_for_function("() => getComputedStyle(document.querySelector('#race')).opacity === '1'")


def test_the_pin_is_named_only_if_there_is_one(visit):
    visit.open("#curriculum")
    hint = visit.page.locator('[data-chart="portrait"] .hint')
    assert "pin." in hint.inner_text()
    visit.open("#curriculum?pin_value=none")
    assert "pin." not in hint.inner_text()
    assert visit.page.locator('[data-chart="race"] .hint:visible').count() == 0


def test_the_tour_leads_through_every_example(visit):
    visit.open("")
    places = [f"{k + 1} of {len(one.examples)}" for one in all_panels() for k in range(len(one.examples))]
    total, seen = len(places), []
    for k, place in enumerate(places):
        visit.settled()
        visit.page.wait_for_function("text => document.querySelector('.look .count').textContent === text", arg=place)
        seen.append(visit.page.locator(".examples a[aria-current]").inner_text())
        assert visit.page.locator(".look p").inner_text()
        if k < total - 1:
            visit.page.click(".look .step[data-step=Next]")
    assert seen == [example.name for panel in all_panels() for example in panel.examples]
    visit.follow(".look .step[data-step=Back]")
    assert visit.page.locator(".examples a[aria-current]").inner_text() == seen[-2]
    assert visit.errors == []


def test_an_example_is_a_link(visit):
    visit.open("#curriculum")
    link = visit.page.locator(".examples a", has_text="It hurts").get_attribute("href")
    visit.open("#window")
    visit.open(link)
    assert "628" in visit.page.locator("#answer").inner_text()
    assert visit.page.locator(".examples a[aria-current]").inner_text() == "It hurts"
    visit.page.fill("#control-recurrence", "0.9")
    visit.settled()
    assert visit.page.locator(".examples a[aria-current]").count() == 0


def test_the_animation_moves_charts_and_diagram_together(visit):
    visit.open("#prior-knowledge")
    before, weights = current_map(visit), visit.page.locator("#diagram svg").inner_html()
    requests = visit.part_requests
    visit.page.click("#player .play")
    visit.page.wait_for_function("() => Number(document.querySelector('#player input').value) > 0.2")
    visit.page.click("#player .play")
    share = float(visit.page.locator("#player input").input_value())
    assert 0.2 < share < 1
    assert not np.array_equal(current_map(visit), before)
    assert visit.page.locator("#diagram svg").inner_html() != weights
    line = visit.plot("losses").locator(".time-mark line")
    assert float(line.get_attribute("x1")) > 100
    # The page animates by itself, without requests, and the address holds the time.
    assert visit.part_requests == requests
    assert f"time={round(share * 200) / 200:g}"[:8] in visit.page.url
    still = float(visit.page.locator("#player input").input_value())
    visit.page.wait_for_timeout(200)
    assert float(visit.page.locator("#player input").input_value()) == still
    assert visit.errors == []


def test_a_frame_shows_the_numbers_of_the_library(visit):
    visit.open("#prior-knowledge?time=0.35")
    panel = next(panel for panel in all_panels() if panel.name == "prior-knowledge")
    view = panel.parts["grams"](panel.state(**{**panel.opening, "time": 0.35}))
    expected = next(chart for chart in view.charts if chart.key == "network_function").traces[0]
    np.testing.assert_array_equal(current_map(visit), expected.frames[70])
    np.testing.assert_array_equal(current_map(visit), expected.z)
    shown = visit.plot("network_function").locator(".heatmap-label").all_text_contents()
    assert len(shown) == 9
    assert float(shown[0].replace("−", "-")) == pytest.approx(expected.z[0, 0], abs=0.005)


def test_the_time_is_dragged_in_a_chart(visit):
    visit.open("#curriculum")
    plot = visit.plot("loss")
    plot.scroll_into_view_if_needed()
    box = plot.locator(".nsewdrag").first.bounding_box()
    y = box["y"] + box["height"] / 2
    visit.page.mouse.move(box["x"] + box["width"] * 0.2, y)
    visit.page.mouse.down()
    visit.page.mouse.move(box["x"] + box["width"] * 0.5, y, steps=5)
    visit.page.mouse.up()
    assert float(visit.page.locator("#player input").input_value()) == pytest.approx(0.5, abs=0.02)
    assert visit.plot("race").locator(".time-mark .dot").count() == 2
    plot.focus()
    visit.page.keyboard.press("ArrowRight")
    assert float(visit.page.locator("#player input").input_value()) == pytest.approx(0.51, abs=0.02)


def test_back_undoes_one_slider_drag(visit):
    visit.open("#curriculum")
    slider = visit.page.locator('[data-key="recurrence"] input[type=range]')
    slider.scroll_into_view_if_needed()
    entries = visit.page.evaluate("history.length")
    for shares in ((0.9, 0.8), (0.8, 0.6)):
        box = slider.bounding_box()
        y = box["y"] + box["height"] / 2
        visit.page.mouse.move(box["x"] + box["width"] * shares[0], y)
        visit.page.mouse.down()
        for share in np.linspace(*shares, 12):
            visit.page.mouse.move(box["x"] + box["width"] * share, y)
        visit.page.mouse.up()
        visit.settled()
    assert visit.page.evaluate("history.length") == entries + 2
    second = float(visit.page.locator("#control-recurrence").input_value())
    visit.page.go_back()
    visit.settled()
    first = float(visit.page.locator("#control-recurrence").input_value())
    assert second < first < 0.96
    visit.page.go_back()
    visit.settled()
    assert visit.page.locator("#control-recurrence").input_value() == "0.96"
    visit.page.go_forward()
    visit.settled()
    assert float(visit.page.locator("#control-recurrence").input_value()) == first


def test_settings_are_kept_and_compared(visit):
    visit.open("#curriculum")
    visit.page.click("#keep")
    visit.page.fill("#control-recurrence", "0.9")
    visit.settled()
    visit.page.click("#keep")
    visit.page.fill("#control-recurrence", "0.8")
    visit.settled()
    table = visit.page.locator("#kept table")
    rows = [row.split("\t") for row in table.inner_text().splitlines()]
    assert [cell.strip(" ×") for cell in rows[0][-3:]] == ["A", "B", "now"]
    assert next(row for row in rows if row[0] == "recurrence")[1:] == ["0.96", "0.9", "0.8"]
    direct = next(row for row in rows if row[0] == "direct training")
    now = visit.reading("direct training")
    assert direct[3] == f"{now:,.0f}"
    assert direct[1] == f"331 (now +{float(f'{now - 331:.3g}'):,.0f})"
    # The previous setting is drawn faintly, and kept pins are marked in the chart.
    assert visit.plot("race").evaluate("plot => plot.data.filter(t => t.meta === 'previous').length") > 0
    assert visit.plot("portrait").evaluate("plot => plot.data.find(t => t.name === 'kept').text") == ["A", "B"]
    visit.page.click("#kept th a >> nth=0")
    visit.page.wait_for_function("document.querySelector('#control-recurrence').value === '0.96'")
    visit.settled()
    visit.page.click("#kept [aria-label='Forget A']")
    visit.page.click("#kept [aria-label='Forget B']")
    assert table.count() == 0
    assert visit.errors == []


def test_a_glossary_term_highlights_its_controls_and_curves(visit):
    visit.open("#prior-knowledge")
    term = visit.page.locator("#introduction .term", has_text="task B").first
    term.hover()
    tip = visit.page.locator("#meaning")
    assert tip.inner_text()
    highlighted = visit.page.locator(".control.highlighted").evaluate_all("found => found.map(e => e.dataset.key)")
    assert {"second_strength", "input_angle", "output_angle"} <= set(highlighted)
    levels = visit.plot("losses").evaluate("plot => Object.fromEntries(plot.data.map(t => [t.name, t.opacity]))")
    assert levels["loss of task A"] < levels["loss of task B"]
    visit.page.mouse.move(0, 0)
    assert not tip.is_visible()
    term.focus()
    assert tip.is_visible()
    visit.page.keyboard.press("Escape")
    assert not tip.is_visible()
    assert visit.page.locator("[title]").count() == 0


def test_help_opens_by_keyboard(visit):
    visit.open("#curriculum")
    button = visit.page.locator('[data-key="target_strength"] .help')
    button.focus()
    visit.page.keyboard.press("Enter")
    assert visit.page.locator("#help-target_strength").is_visible()
    assert button.get_attribute("aria-expanded") == "true"


def test_topics_show_one_part_at_a_time(visit):
    visit.open("#recurrence")
    assert visit.page.locator(".chart:visible").count() <= 5
    visit.page.click("#topics >> text=Longer trials")
    visit.settled()
    assert visit.page.locator('[data-chart="extrapolation"]').is_visible()
    assert not visit.page.locator('[data-chart="learning"]').is_visible()
    assert "topic=stability" in visit.page.url
    assert visit.page.locator("#control-series").input_value().startswith("1, 0.5, 0.5")


def test_numbers_in_fields_are_rounded(visit):
    visit.open("#recurrence")
    visit.page.click("text=decay")
    visit.settled()
    assert visit.page.locator("#control-series").input_value().startswith("1, 0.8, 0.64, 0.512, 0.4096")


@PHONE
def test_on_a_phone_the_chart_stays_visible(visit):
    visit.open("#curriculum")
    visit.page.locator("#form details").evaluate_all("all => all.forEach(e => { e.open = true; })")  # closed at first
    for key in ("recurrence", "accuracy"):
        slider = visit.page.locator(f'[data-key="{key}"] input[type=range]')
        slider.evaluate("e => e.scrollIntoView({ block: 'end' })")
        chart, control = visit.plot("race").bounding_box(), slider.bounding_box()
        assert chart["y"] >= 0
        assert chart["height"] >= 140
        assert control["y"] > chart["y"] + chart["height"], "the slider is behind the chart"
        assert control["y"] + control["height"] <= 781


@PHONE
def test_the_page_works_by_touch(visit):
    visit.open("#curriculum")
    visit.plot("portrait").evaluate("e => e.scrollIntoView({ block: 'end' })")
    box = visit.plot("portrait").locator(".nsewdrag").first.bounding_box()
    visit.page.touchscreen.tap(box["x"] + box["width"] * 0.7, box["y"] + box["height"] * 0.2)
    visit.settled()
    assert float(address(visit)["pin_value"]) == pytest.approx(0.2 + 0.8 * 2.8, abs=0.1)
    visit.page.locator("#form details").evaluate_all("all => all.forEach(e => { e.open = true; })")  # closed at first
    visit.page.locator('[data-key="target_strength"] .help').tap()
    assert visit.page.locator("#help-target_strength").is_visible()
    term = visit.page.locator("#introduction .term").first
    term.tap()
    assert visit.page.locator("#meaning").is_visible()
    visit.page.locator("#player .play").tap()
    visit.page.wait_for_function("() => Number(document.querySelector('#player input').value) > 0.05")
    visit.page.locator("#player .play").tap()
    assert visit.errors == []


@PHONE
def test_points_are_dragged_by_touch(visit):
    visit.open("#recurrence")
    box = visit.plot("series").locator(".nsewdrag").first.bounding_box()
    x, y = box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.4
    before = visit.page.locator("#control-series").input_value()
    session = visit.page.context.new_cdp_session(visit.page)
    for kind, dy in (("touchStart", 0), ("touchMove", -10), ("touchMove", -30), ("touchEnd", None)):
        points = [] if dy is None else [{"x": x, "y": y + dy}]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    visit.settled()
    assert visit.page.locator("#control-series").input_value() != before


def address(visit):
    return dict(pair.split("=") for pair in visit.page.url.partition("?")[2].split("&") if pair)


def test_the_race_makes_room_for_a_portrait_that_comes_later(visit):
    held = []
    visit.page.route("**/api/curriculum/portrait", lambda route: held.append(route))
    visit.page.goto(visit.server.address + "#curriculum")
    race = visit.plot("race")
    race.locator(".trace").first.wait_for(state="visible")
    alone = race.evaluate("plot => plot._fullLayout.width")
    held[0].continue_()
    visit.settled()
    fits = "plot => Math.abs(plot._fullLayout.width - plot.clientWidth) < 1"
    visit.page.wait_for_function(fits, arg=race.element_handle())
    assert race.evaluate("plot => plot._fullLayout.width") < 0.7 * alone
