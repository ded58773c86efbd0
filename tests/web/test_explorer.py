"""The explorer in a real browser: what is on the screen is what the library says."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from learncast import LinearRNN, phase_portrait, tasks

ROOMS = ("curriculum", "prior-knowledge", "recurrence", "window")
LEARNCAST = Path(sys.executable).with_name("learncast")


def portrait(target_strength: float = 1.0, **changes: float):
    """What the library says of the curriculum room's picture."""
    target = tasks.integration(steps=50, target_strength=target_strength)
    network = LinearRNN.aligned(recurrence=changes.get("recurrence", 0.96), initial=0.01, hidden_size=128, task=target)
    return phase_portrait(
        target,
        network,
        vary="target_strength",
        values=np.linspace(0.2 * target_strength, 3.0 * target_strength, 120),
        accuracies=np.linspace(0.01, 0.99, 120),
        learning_rate=1e-3,
    )


def portrait_to(accuracy: float):
    target = tasks.integration(steps=50)
    network = LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=128, task=target)
    options = {"vary": "target_strength", "values": [1.0], "accuracies": [0.5], "learning_rate": 1e-3}
    return phase_portrait(target, network, accuracy=accuracy, **options)


@pytest.mark.parametrize(
    "visit",
    [{"width": w, "colours": c} for w in (1280, 800, 400) for c in ("light", "dark")],
    indirect=True,
    ids=lambda asked: f"{asked['width']}-{asked['colours']}",
)
@pytest.mark.parametrize("room", ROOMS)
def test_rooms_load_without_complaint(visit, room, request):
    visit.open(f"#{room}")
    assert visit.page.locator(".panel .plot .main-svg").count() > 0
    assert visit.page.locator(".validity .badge").first.is_visible()
    assert visit.page.locator(".note.error").count() == 0
    wide = visit.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, "the page is wider than its window"
    assert visit.page.locator("#answer").inner_text().endswith(".")
    for plot in visit.page.locator(".panel:not(.matrix) .plot").all():
        if plot.is_visible():
            titles = plot.locator(".xtitle, .ytitle").all_text_contents()
            assert len(titles) == 2, f"an axis of {plot.get_attribute('aria-label')} has no label"
    clipped = """() => [...document.querySelectorAll('.legend li, .readings div, #answer, .look p')].filter(e => {
        const box = e.getBoundingClientRect();
        return box.width && (box.right > innerWidth + 1 || e.clientWidth && e.scrollWidth > e.clientWidth + 1);
    }).map(e => e.textContent)"""
    assert visit.page.evaluate(clipped) == []
    visit.picture(f"{room}-{request.node.callspec.id}")
    assert visit.complaints == []
    assert all(url.startswith((visit.server.address, "data:", "blob:")) for _, url in visit.requests)


def test_the_portrait_is_the_library_s(visit):
    visit.open("#curriculum")
    expected = portrait()
    np.testing.assert_array_equal(np.array(visit.numbers("portrait")), expected["speedup_steps"].values.T)
    assert visit.reading("direct training") == float(expected["direct_descent_steps"])


def test_dragging_a_slider_moves_the_picture_and_the_last_position_wins(visit):
    visit.open("#curriculum")
    before = np.array(visit.numbers("portrait"))
    asked = visit.questions
    slider = visit.page.locator('[data-key="recurrence"] input[type=range]')
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    y = box["y"] + box["height"] / 2
    visit.page.mouse.move(box["x"] + box["width"] * 0.92, y)
    visit.page.mouse.down()
    for share in np.linspace(0.92, 0.8, 40):
        visit.page.mouse.move(box["x"] + box["width"] * share, y)
    visit.page.mouse.up()
    visit.settled()
    recurrence = float(visit.page.locator("#control-recurrence").input_value())
    assert recurrence < 0.96
    after = np.array(visit.numbers("portrait"))
    assert not np.array_equal(before, after)
    np.testing.assert_array_equal(after, portrait(recurrence=recurrence)["speedup_steps"].values.T)
    # Three parts, forty positions: what a hand passes by while an answer is on its way is not asked for.
    assert visit.questions - asked <= 3 * 41
    assert visit.complaints == []


def address(visit):
    """What differs from how the room opens."""
    return dict(pair.split("=") for pair in visit.page.url.partition("?")[2].split("&") if pair)


def pinned(visit):
    visit.open("#curriculum?pin_value=none")
    box = visit.plot("portrait").locator(".nsewdrag").first.bounding_box()
    visit.page.mouse.click(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.45)
    visit.page.wait_for_selector('[data-reading="both stages"]')
    return visit.settled()


def test_a_click_pins_a_curriculum(visit):
    pinned(visit)
    state = address(visit)
    value, stop = float(state["pin_value"]), float(state["pin_accuracy"])
    target = tasks.integration(steps=50)
    network = LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=128, task=target)
    told = phase_portrait(
        target, network, vary="target_strength", values=[value], accuracies=[stop], learning_rate=1e-3
    )
    # The same closed form, once over a grid and once as a curriculum of its own.
    assert visit.reading("both stages") == told["total_descent_steps"].item()
    assert visit.plot("terms").count() == 1
    visit.picture("curriculum-pinned")
    visit.page.keyboard.press("Escape")
    assert visit.complaints == []


def test_a_copied_link_reopens_the_same_view(visit, browser):
    pinned(visit)
    visit.page.fill("#control-target_strength", "1.4")
    visit.page.keyboard.press("Enter")
    visit.settled()
    visit.page.click("#link")
    link = visit.page.evaluate("navigator.clipboard.readText()")
    assert visit.page.locator("#said").inner_text() == "Copied."
    other = browser.new_page()
    other.goto(link)
    other.wait_for_selector('[data-reading="both stages"]')
    other.wait_for_function("() => ![...document.querySelectorAll('.part')].some(p => p.ariaBusy === 'true')")
    words = "() => [...document.querySelectorAll('dd, .words, .badge')].map(e => e.textContent)"
    assert other.evaluate(words) == visit.page.evaluate(words)
    assert other.locator("#control-target_strength").input_value() == "1.4"
    other.close()


def saved(visit, button: str) -> tuple[str, bytes]:
    with visit.page.expect_download() as download:
        visit.page.click(button)
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def test_the_study_gives_the_number_on_the_screen(visit, tmp_path):
    pinned(visit)
    name, content = saved(visit, "#study")
    assert name == "curriculum.toml"
    (tmp_path / "study.toml").write_bytes(content)
    made = subprocess.run([LEARNCAST, "plan", tmp_path / "study.toml", "--json"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    (candidate,) = json.loads(made.stdout)["candidates"]
    # The same closed form at a stop that was written in decimal digits, all of them.
    assert visit.reading("both stages") == candidate["descent_steps"]


@pytest.mark.parametrize("room", ROOMS)
def test_what_can_be_taken_away(visit, room):
    visit.open(f"#{room}")
    name, content = saved(visit, "#table")
    rows = list(csv.reader(io.StringIO(content.decode())))
    assert name == f"{room}.csv"
    assert len(rows) > 10
    name, content = saved(visit, "#study")
    assert name == f"{room}.toml"
    assert content.decode().startswith("# learncast ")
    name, content = saved(visit, ".panel figcaption button >> nth=0")
    assert name.endswith(".png")
    assert content.startswith(b"\x89PNG")
    name, content = saved(visit, ".panel figcaption button >> nth=1")
    assert name.endswith(".svg")
    assert b"<svg" in content[:200]
    assert visit.complaints == []


def test_the_keyboard_is_enough(visit):
    visit.open("#curriculum")
    slider = visit.page.locator('[data-key="steps"] input[type=range]')
    slider.focus()
    visit.page.keyboard.press("ArrowRight")
    visit.settled()
    assert visit.page.locator("#control-steps").input_value() == "51"
    visit.plot("portrait").focus()
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_selector('[data-reading="both stages"]')
    visit.settled()
    first = visit.page.url
    visit.page.keyboard.press("ArrowLeft")
    visit.settled()
    assert visit.page.url != first
    visit.page.keyboard.press("Escape")
    visit.page.wait_for_function("() => !document.querySelector('[data-reading=\"both stages\"]')")
    # Every control and button can be reached by tab.
    hidden = (
        "() => [...document.querySelectorAll('button, input, select, a, .plot')].filter(e => e.tabIndex < 0).length"
    )
    assert visit.page.evaluate(hidden) == 0


def test_points_follow_the_hand(visit):
    visit.open("#recurrence")
    panel = visit.page.locator("figure:has(.gripped) .plot").first
    before = visit.page.locator("#control-series").input_value()
    box = panel.locator(".nsewdrag").first.bounding_box()
    x, y = box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5
    visit.page.mouse.move(x, y)
    visit.page.mouse.down()
    visit.page.mouse.move(x, y - 20)
    visit.page.mouse.move(x, y - 60)
    visit.page.mouse.up()
    visit.settled()
    dragged = visit.page.locator("#control-series").input_value()
    assert dragged != before
    assert "series=" in visit.page.url
    panel.focus()
    visit.page.keyboard.press("ArrowUp")
    visit.settled()
    assert visit.page.locator("#control-series").input_value() != dragged
    assert visit.complaints == []


def series(visit):
    return [float(word) for word in visit.page.locator("#control-series").input_value().split(",")]


def test_the_hand_does_not_run_after_a_growing_axis(visit):
    visit.open("#recurrence")
    panel = visit.page.locator("figure:has(.gripped) .plot").first
    box = panel.locator(".nsewdrag").first.bounding_box()
    x, y = box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.05
    visit.page.mouse.move(x, y)
    visit.page.mouse.down()
    visit.settled()
    taken = max(series(visit))
    for k in range(6):
        visit.page.mouse.move(x + k % 2, y)
        visit.settled()
    visit.page.mouse.up()
    assert max(series(visit)) == taken
    # A press beside the plot, or with another button, takes no point.
    before = series(visit)
    outer = panel.bounding_box()
    visit.page.mouse.click(outer["x"] + 80, outer["y"] + 8)
    visit.page.mouse.click(x, box["y"] + box["height"] * 0.9, button="right")
    visit.settled()
    assert series(visit) == before


def test_presets_begin_from_the_present_series(visit):
    visit.open("#recurrence")
    visit.page.fill("#control-series", "1, -1, 1, -1")
    visit.page.keyboard.press("Enter")
    visit.settled()
    visit.page.click("text=this, one lag longer")
    visit.settled()
    assert series(visit) == [1, -1, 1, -1, 0]


def test_rooms_change_without_complaint_and_are_found_as_they_were_left(visit):
    visit.open("#curriculum?recurrence=0.5")
    visit.page.fill("#control-accuracy", "0.9")
    visit.settled()
    for room in (*ROOMS[1:], *ROOMS[::-1]):
        visit.page.click(f'nav a[data-room="{room}"]')
        visit.settled()
    assert visit.page.locator("#control-recurrence").input_value() == "0.5"
    assert visit.page.locator("#control-accuracy").input_value() == "0.9"
    visit.page.wait_for_timeout(300)
    assert visit.complaints == []


def test_a_pin_does_not_become_another_quantity(visit):
    pinned(visit)
    visit.page.select_option("#control-vary", "input_strength")
    visit.settled()
    assert address(visit)["pin_value"] == "none"
    assert visit.page.locator('[data-reading="both stages"]').count() == 0


def test_an_address_that_is_none_opens_the_first_room(visit):
    visit.open("#%")
    assert visit.page.locator(".panel").count() > 0
    assert "names no room" in visit.page.locator("#said").inner_text()
    assert visit.complaints == []


def test_a_refused_setting_shows_no_numbers_as_its_own(visit):
    visit.open("#curriculum")
    visit.page.fill("#control-recurrence", "9")
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_selector(".part.refused")
    visit.settled()
    assert visit.page.locator(".note.error:visible").count() == 1
    assert visit.page.locator(".badge:visible").count() == 0
    # The control itself is marked, with its range and one clause.
    wrong = visit.page.locator(".control.wrong")
    assert wrong.get_attribute("data-key") == "recurrence"
    assert wrong.locator(".why").inner_text() == "recurrence must be a number from 0 to 1.05."
    assert visit.page.locator("#control-recurrence").get_attribute("aria-invalid") == "true"
    visit.page.fill("#control-recurrence", "0.9")
    visit.settled()
    visit.page.wait_for_function("() => !document.querySelector('.control.wrong')")
    assert visit.page.locator(".badge:visible").count() >= 1


def test_numbers_outside_the_theory_are_grey_and_said_in_plain_words(visit):
    visit.open("#curriculum?learning_rate=0.05")
    colour = "selector => getComputedStyle(document.querySelector(selector)).color"
    faint = visit.page.evaluate(colour, "#introduction")
    assert visit.page.evaluate(colour, ".part.outside .readings dd") == faint
    text = visit.page.locator("body").inner_text()
    assert "never learned" in text
    assert "lower the learning rate" in text
    for words in ("strict", "never steps", "of the 0 steps", "NaN", "undefined"):
        assert words not in text


def test_a_start_that_never_learns_is_said_in_red(visit):
    visit.open("#prior-knowledge?input_angle=0&output_angle=180")
    found = visit.page.locator(".note.error").all_text_contents()
    assert any("never" in text for text in found), found
    visit.picture("prior-knowledge-never")


def test_out_of_bounds_is_a_sentence(visit):
    visit.open("#curriculum?accuracy=2")
    assert "accuracy" in visit.page.locator(".note.error").first.inner_text()
    visit.page.fill("#control-accuracy", "0.9")
    visit.settled()
    visit.page.wait_for_function("() => !document.querySelector('.note.error')")
    visit.open("#curriculum?steps=lots")
    visit.page.reload()
    visit.settled()
    assert "steps" in visit.page.locator(".note.error").first.inner_text()


def test_light_and_dark(visit):
    visit.open("#curriculum")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    light = visit.page.evaluate(ground)
    assert visit.page.locator("#theme").get_attribute("aria-label")
    visit.page.click("#theme")
    assert visit.page.evaluate(ground) != light
    assert visit.page.locator("#theme").get_attribute("aria-pressed") == "true"
    visit.page.reload()
    visit.settled()
    assert visit.page.evaluate(ground) != light


def test_when_the_server_is_gone_the_page_says_so(visit):
    visit.open("#curriculum")
    visit.page.route("**/api/curriculum/*", lambda route: route.abort())
    visit.page.fill("#control-accuracy", "0.9")
    visit.page.wait_for_selector(".note.error")
    assert "learncast explore" in visit.page.locator(".note.error").first.inner_text()
    assert visit.page.locator(".part[aria-busy=true]").count() > 0
    # It asks again by itself, and shows the setting that was asked for.
    visit.page.unroute("**/api/curriculum/*")
    visit.settled()
    visit.page.wait_for_function("() => !document.querySelector('.note.error')")
    assert visit.reading("direct training") == float(portrait_to(0.9)["direct_descent_steps"])
