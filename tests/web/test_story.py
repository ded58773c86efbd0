"""The explorer as a newcomer uses it: examples, time that moves, comparing, undoing, words; by hand and by touch."""

from __future__ import annotations

import numpy as np
import pytest

from learncast.web.app import rooms

PHONE = pytest.mark.parametrize("visit", [{"width": 400}], indirect=True, ids=["phone"])


def mode_now(visit):
    """What the matrices show: the map at this moment."""
    return np.array(visit.numbers("network_function"))


def test_the_first_sentence_is_the_answer(visit):
    visit.open("")
    said = visit.page.locator("#answer").inner_text()
    assert said.startswith("Pretrain on stronger targets (1.5 beside 1) for 168 steps: 168 instead of 331 in all")
    assert visit.reading("both stages") == 168
    assert visit.reading("direct training") == 331
    # The picture, its answer and the scrub bar are on the first screen.
    assert visit.plot("portrait").bounding_box()["y"] < 400
    assert visit.page.locator("#player").bounding_box()["y"] < 900


def test_the_tour_leads_through_every_example(visit):
    visit.open("")
    total = sum(len(room.examples) for room in rooms())
    seen = []
    for k in range(total):
        visit.settled()
        count = visit.page.locator(".look .count").inner_text()
        assert count == f"{k + 1} of {total}"
        seen.append(visit.page.locator(".examples a[aria-current]").inner_text())
        assert visit.page.locator(".look p").inner_text()
        if k < total - 1:
            visit.page.click(".look .step[data-step=Next]")
            visit.page.wait_for_function(
                "words => document.querySelector('.look .count').textContent === words", arg=f"{k + 2} of {total}"
            )
    assert seen == [example.name for room in rooms() for example in room.examples]
    visit.page.click(".look .step[data-step=Back]")
    visit.settled()
    assert visit.page.locator(".examples a[aria-current]").inner_text() == seen[-2]
    assert visit.complaints == []


def test_an_example_is_a_link(visit):
    visit.open("#curriculum")
    link = visit.page.locator(".examples a", has_text="It hurts").get_attribute("href")
    visit.open("#window")
    visit.open(link)
    assert visit.page.locator("#answer").inner_text().startswith("Do not pretrain on weaker targets")
    assert visit.page.locator(".examples a[aria-current]").inner_text() == "It hurts"
    visit.page.fill("#control-recurrence", "0.9")
    visit.settled()
    assert visit.page.locator(".examples a[aria-current]").count() == 0


def test_time_plays_and_everything_moves_together(visit):
    visit.open("#prior-knowledge")
    before, weights = mode_now(visit), visit.page.locator("#drawing svg").inner_html()
    asked = visit.questions
    visit.page.click("#player .play")
    visit.page.wait_for_function("() => Number(document.querySelector('#player input').value) > 0.2")
    visit.page.click("#player .play")
    share = float(visit.page.locator("#player input").input_value())
    assert 0.2 < share < 1
    assert not np.array_equal(mode_now(visit), before)
    assert visit.page.locator("#drawing svg").inner_html() != weights
    line = visit.plot("losses").locator(".moment line")
    assert float(line.get_attribute("x1")) > 100
    # Time is in the page: no question is asked for it, and the address keeps it.
    assert visit.questions == asked
    assert f"time={round(share * 200) / 200:g}"[:8] in visit.page.url
    still = float(visit.page.locator("#player input").input_value())
    visit.page.wait_for_timeout(200)
    assert float(visit.page.locator("#player input").input_value()) == still
    assert visit.complaints == []


def test_what_a_moment_shows_is_the_library_s(visit):
    visit.open("#prior-knowledge?time=0.35")
    room = next(room for room in rooms() if room.name == "prior-knowledge")
    view = room.parts["grams"](room.state(**{**room.opening, "time": 0.35}))
    expected = next(panel for panel in view.panels if panel.key == "network_function").traces[0]
    np.testing.assert_array_equal(mode_now(visit), expected.film[70])
    np.testing.assert_array_equal(mode_now(visit), expected.z)
    shown = visit.plot("network_function").locator(".heatmap-label").all_text_contents()
    assert len(shown) == 9
    assert float(shown[0].replace("−", "-")) == pytest.approx(expected.z[0, 0], abs=0.005)


def test_the_time_line_is_dragged_in_a_plot(visit):
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
    assert visit.plot("strength").locator(".moment .dot").count() == 4
    plot.focus()
    visit.page.keyboard.press("ArrowRight")
    assert float(visit.page.locator("#player input").input_value()) == pytest.approx(0.51, abs=0.02)


def test_back_undoes_one_released_slider(visit):
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
    # The setting before stands faint behind this one, and kept pins in the picture.
    assert visit.plot("strength").evaluate("plot => plot.data.filter(t => t.meta === 'ghost').length") > 0
    assert visit.plot("portrait").evaluate("plot => plot.data.find(t => t.name === 'kept').text") == ["A", "B"]
    visit.page.click("#kept th a >> nth=0")
    visit.settled()
    assert visit.page.locator("#control-recurrence").input_value() == "0.96"
    visit.page.click("#kept [aria-label='Forget A']")
    visit.page.click("#kept [aria-label='Forget B']")
    assert table.count() == 0
    assert visit.complaints == []


def test_a_word_lights_what_it_speaks_of(visit):
    visit.open("#prior-knowledge")
    word = visit.page.locator("#introduction .term", has_text="task B").first
    word.hover()
    tip = visit.page.locator("#meaning")
    assert "turned directions" in tip.inner_text()
    lit = visit.page.locator(".control.lit").evaluate_all("found => found.map(e => e.dataset.key)")
    assert {"second_strength", "input_angle", "output_angle"} <= set(lit)
    levels = visit.plot("losses").evaluate("plot => Object.fromEntries(plot.data.map(t => [t.name, t.opacity]))")
    assert levels["loss of task A"] < levels["loss of task B"]
    visit.page.mouse.move(0, 0)
    assert not tip.is_visible()
    word.focus()
    assert tip.is_visible()
    visit.page.keyboard.press("Escape")
    assert not tip.is_visible()
    assert visit.page.locator("[title]").count() == 0


def test_help_opens_by_keyboard(visit):
    visit.open("#curriculum")
    button = visit.page.locator('[data-key="target_strength"] .help')
    button.focus()
    visit.page.keyboard.press("Enter")
    assert visit.page.locator("#help-target_strength").inner_text() == "Covariance with each input."
    assert button.get_attribute("aria-expanded") == "true"


def test_topics_show_one_part_at_a_time(visit):
    visit.open("#recurrence")
    assert visit.page.locator(".panel:visible").count() <= 5
    visit.page.click("#topics >> text=Longer trials")
    visit.settled()
    assert visit.page.locator('[data-panel="extrapolation"]').is_visible()
    assert not visit.page.locator('[data-panel="learning"]').is_visible()
    assert "topic=stability" in visit.page.url
    assert visit.page.locator("#control-series").input_value().startswith("1, 0.5, 0.5")


def test_numbers_in_fields_are_rounded_for_people(visit):
    visit.open("#recurrence")
    visit.page.click("text=decay")
    visit.settled()
    assert visit.page.locator("#control-series").input_value().startswith("1, 0.8, 0.64, 0.512, 0.4096")


@PHONE
def test_on_a_phone_the_picture_stays_in_sight(visit):
    visit.open("#curriculum")
    for key in ("recurrence", "accuracy"):
        slider = visit.page.locator(f'[data-key="{key}"] input[type=range]')
        slider.evaluate("e => e.scrollIntoView({ block: 'end' })")
        picture, control = visit.plot("portrait").bounding_box(), slider.bounding_box()
        assert picture["y"] >= 0
        assert picture["height"] >= 140
        assert control["y"] > picture["y"] + picture["height"], "the slider lies under the picture"
        assert control["y"] + control["height"] <= 781


@PHONE
def test_a_phone_is_used_by_touch(visit):
    visit.open("#curriculum")
    box = visit.plot("portrait").locator(".nsewdrag").first.bounding_box()
    visit.page.touchscreen.tap(box["x"] + box["width"] * 0.8, box["y"] + box["height"] * 0.7)
    visit.settled()
    assert float(address(visit)["pin_value"]) == pytest.approx(0.2 + 0.8 * 2.8, abs=0.1)
    visit.page.locator('[data-key="target_strength"] .help').tap()
    assert visit.page.locator("#help-target_strength").is_visible()
    word = visit.page.locator("#introduction .term").first
    word.tap()
    assert visit.page.locator("#meaning").is_visible()
    visit.page.locator("#player .play").tap()
    visit.page.wait_for_function("() => Number(document.querySelector('#player input').value) > 0.05")
    visit.page.locator("#player .play").tap()
    assert visit.complaints == []


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
