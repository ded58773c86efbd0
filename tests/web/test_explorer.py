"""The explorer in a real browser: the page shows the numbers of the library."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import learncast as lc
from learncast import LinearRNN, tasks

PANELS = ("curriculum", "prior-knowledge", "recurrence", "window")
LEARNCAST = Path(sys.executable).with_name("learncast")


def portrait(target_strength: float = 1.0, **changes: float):
    """The library's numbers for the chart of the curriculum panel."""
    target = tasks.integration(steps=50, target_strength=target_strength)
    network = LinearRNN.aligned(recurrence=changes.get("recurrence", 0.96), initial=0.01, hidden_size=128, task=target)
    return lc.phase(
        target,
        network,
        learning_rate=1e-3,
        vary="target_strength",
        values=np.linspace(0.2 * target_strength, 3.0 * target_strength, 120),
        accuracies=np.linspace(0.01, 0.99, 120),
    )


def portrait_to(accuracy: float):
    target = tasks.integration(steps=50)
    network = LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=128, task=target)
    options = {"vary": "target_strength", "values": [1.0], "accuracies": [0.5], "learning_rate": 1e-3}
    return lc.phase(target, network, goal=accuracy, **options)


@pytest.mark.parametrize(
    "visit",
    [{"width": w, "colours": c} for w in (1280, 800, 400) for c in ("light", "dark")],
    indirect=True,
    ids=lambda options: f"{options['width']}-{options['colours']}",
)
@pytest.mark.parametrize("panel", PANELS)
def test_panels_load_without_errors(visit, panel, request):
    visit.open(f"#{panel}")
    assert visit.page.locator(".chart .plot .main-svg").count() > 0
    assert visit.page.locator(".validity .badge").first.is_visible()
    assert visit.page.locator(".note.error").count() == 0
    wide = visit.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, "the page is wider than its window"
    assert visit.page.locator("#answer").inner_text()
    for plot in visit.page.locator(".chart:not(.matrix) .plot").all():
        if plot.is_visible():
            titles = plot.locator(".xtitle, .ytitle").all_text_contents()
            assert len(titles) == 2, f"an axis of {plot.get_attribute('aria-label')} has no label"
    clipped = """() => [...document.querySelectorAll('.legend li, .readings dl > div, #answer, .look p')].filter(e => {
        const box = e.getBoundingClientRect();
        return box.width && (box.right > innerWidth + 1 || e.clientWidth && e.scrollWidth > e.clientWidth + 1);
    }).map(e => e.textContent)"""
    assert visit.page.evaluate(clipped) == []
    visit.screenshot(f"{panel}-{request.node.callspec.id}")
    assert visit.errors == []
    assert all(url.startswith((visit.server.address, "data:", "blob:")) for _, url in visit.requests)


def test_the_portrait_is_that_of_the_library(visit):
    visit.open("#curriculum")
    expected = portrait()
    np.testing.assert_array_equal(np.array(visit.numbers("portrait")), expected["speedup_steps"].values)
    assert visit.reading("direct training") == float(expected["direct_descent_steps"])


def test_a_dragged_slider_changes_the_chart_and_the_last_position_wins(visit):
    visit.open("#curriculum")
    before = np.array(visit.numbers("portrait"))
    before_drag = visit.part_requests
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
    np.testing.assert_array_equal(after, portrait(recurrence=recurrence)["speedup_steps"].values)
    # Three parts and forty positions: positions passed while a request runs are not requested.
    assert visit.part_requests - before_drag <= 3 * 41
    assert visit.errors == []


def address(visit):
    """The settings in the address."""
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
    expected = lc.phase(target, network, learning_rate=1e-3, vary="target_strength", values=[value], accuracies=[stop])
    assert visit.reading("both stages") == expected["total_descent_steps"].item()
    assert visit.plot("terms").count() == 1
    visit.screenshot("curriculum-pinned")
    visit.page.keyboard.press("Escape")
    assert visit.errors == []


def test_a_copied_link_reopens_the_same_view(visit, browser):
    pinned(visit)
    visit.page.fill("#control-target_strength", "1.4")
    visit.page.keyboard.press("Enter")
    visit.settled()
    visit.page.click("#link")
    link = visit.page.evaluate("navigator.clipboard.readText()")
    other = browser.new_page()
    other.goto(link)
    other.wait_for_selector('[data-reading="both stages"]')
    other.wait_for_function("() => ![...document.querySelectorAll('.part')].some(p => p.ariaBusy === 'true')")
    texts = "() => [...document.querySelectorAll('dd, .summary, .badge')].map(e => e.textContent)"
    assert other.evaluate(texts) == visit.page.evaluate(texts)
    assert other.locator("#control-target_strength").input_value() == "1.4"
    other.close()


def saved(visit, button: str) -> tuple[str, bytes]:
    with visit.page.expect_download() as download:
        visit.page.click(button)
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def test_the_study_gives_the_steps_on_the_page(visit, tmp_path):
    pinned(visit)
    name, content = saved(visit, "#study")
    assert name == "curriculum.toml"
    (tmp_path / "study.toml").write_bytes(content)
    made = subprocess.run([LEARNCAST, "plan", tmp_path / "study.toml", "--json"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    (candidate,) = json.loads(made.stdout)["candidates"]
    assert visit.reading("both stages") == candidate["descent_steps"]


@pytest.mark.parametrize("panel", PANELS)
def test_tables_studies_and_pictures_are_downloaded(visit, panel):
    visit.open(f"#{panel}")
    name, content = saved(visit, "#table")
    rows = list(csv.reader(io.StringIO(content.decode())))
    assert name == f"{panel}.csv"
    assert len(rows) > 10
    name, content = saved(visit, "#study")
    assert name == f"{panel}.toml"
    assert content.decode().startswith("# learncast ")
    name, content = saved(visit, ".chart .save button >> nth=0")
    assert name.endswith(".png")
    assert content.startswith(b"\x89PNG")
    name, content = saved(visit, ".chart .save button >> nth=1")
    assert name.endswith(".svg")
    assert b"<svg" in content[:200]
    # The picture explains itself: title, settings and legend.
    chart = visit.page.locator(".chart").first
    texts = " ".join(re.findall(r">([^<]+)<", content.decode()))
    assert chart.locator("h2").inner_text() in texts
    first = visit.page.locator("#form .control:visible label").first.inner_text().partition(" (")[0]
    assert first in texts
    for name in chart.locator(".legend li").all_inner_texts():
        assert name.strip() in texts
    assert visit.errors == []


def test_everything_works_by_keyboard(visit):
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
    # The tab key reaches every control and button.
    hidden = """() => [...document.querySelectorAll('button, input, select, a:not(nav a, .examples a), .plot')]
        .filter(e => e.tabIndex < 0).length"""
    assert visit.page.evaluate(hidden) == 0


def test_points_are_dragged_by_the_mouse(visit):
    visit.open("#recurrence")
    plot = visit.page.locator("figure:has(.draggable) .plot").first
    before = visit.page.locator("#control-series").input_value()
    box = plot.locator(".nsewdrag").first.bounding_box()
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
    plot.focus()
    visit.page.keyboard.press("ArrowUp")
    visit.settled()
    assert visit.page.locator("#control-series").input_value() != dragged
    assert visit.errors == []


def series(visit):
    return [float(word) for word in visit.page.locator("#control-series").input_value().split(",")]


def test_a_drag_keeps_the_axis_of_its_start(visit):
    visit.open("#recurrence")
    plot = visit.page.locator("figure:has(.draggable) .plot").first
    box = plot.locator(".nsewdrag").first.bounding_box()
    x, y = box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.05
    visit.page.mouse.move(x, y)
    visit.page.mouse.down()
    visit.settled()
    dragged = max(series(visit))
    for k in range(6):
        visit.page.mouse.move(x + k % 2, y)
        visit.settled()
    visit.page.mouse.up()
    assert max(series(visit)) == dragged
    # A press outside the plot, or with another button, moves no point.
    before = series(visit)
    outer = plot.bounding_box()
    visit.page.mouse.click(outer["x"] + 80, outer["y"] + 8)
    visit.page.mouse.click(x, box["y"] + box["height"] * 0.9, button="right")
    visit.settled()
    assert series(visit) == before


def test_presets_start_from_the_current_series(visit):
    visit.open("#recurrence")
    visit.page.fill("#control-series", "1, -1, 1, -1")
    visit.page.keyboard.press("Enter")
    visit.settled()
    visit.page.click("text=this, one lag longer")
    visit.settled()
    assert series(visit) == [1, -1, 1, -1, 0]


def test_panels_keep_their_settings(visit):
    visit.open("#curriculum?recurrence=0.5")
    visit.page.fill("#control-accuracy", "0.9")
    visit.settled()
    for panel in (*PANELS[1:], *PANELS[::-1]):
        visit.follow(f'nav a[data-panel="{panel}"]')
    assert visit.page.locator("#control-recurrence").input_value() == "0.5"
    assert visit.page.locator("#control-accuracy").input_value() == "0.9"
    visit.page.wait_for_timeout(300)
    assert visit.errors == []


def test_a_pin_is_cleared_if_its_quantity_changes(visit):
    pinned(visit)
    visit.page.select_option("#control-vary", "input_strength")
    visit.settled()
    assert address(visit)["pin_value"] == "none"
    assert visit.page.locator('[data-reading="both stages"]').count() == 0


def test_an_invalid_address_opens_the_first_panel(visit):
    visit.open("#%")
    assert visit.page.locator(".chart").count() > 0
    assert visit.page.locator("#status").inner_text()
    assert visit.errors == []


def test_an_invalid_setting_marks_its_control_and_shows_no_validity(visit):
    visit.open("#curriculum")
    visit.page.fill("#control-recurrence", "9")
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_selector(".part.rejected")
    visit.settled()
    assert visit.page.locator(".note.error:visible").count() == 0
    assert "recurrence" in visit.page.locator("#answer").inner_text()
    assert visit.page.locator(".badge:visible").count() == 0
    # The control is marked with its range.
    invalid = visit.page.locator(".control.invalid")
    assert invalid.get_attribute("data-key") == "recurrence"
    assert "0 to 1.05" in invalid.locator(".why").inner_text()
    assert visit.page.locator("#control-recurrence").get_attribute("aria-invalid") == "true"
    visit.page.fill("#control-recurrence", "0.9")
    visit.settled()
    visit.page.wait_for_function("() => !document.querySelector('.control.invalid')")
    assert visit.page.locator(".badge:visible").count() >= 1


def test_numbers_outside_the_theory_are_grey(visit):
    visit.open("#curriculum?learning_rate=0.05")
    colour = "selector => getComputedStyle(document.querySelector(selector)).color"
    faint = visit.page.evaluate(colour, "#introduction")
    assert visit.page.evaluate(colour, ".part.outside .readings dd") == faint
    text = visit.page.locator("body").inner_text()
    for internal in ("strict", "NaN", "undefined"):
        assert internal not in text


def test_a_start_at_a_saddle_of_the_flow_gives_a_warning_and_is_learned_by_descent(visit):
    visit.open("#prior-knowledge?input_angle=0&output_angle=180")
    assert visit.page.locator(".note.warning").count() > 0
    assert visit.page.locator(".note.error").count() == 0
    assert "183 steps" in visit.page.locator("#answer").inner_text()
    visit.screenshot("prior-knowledge-never")


def test_a_value_out_of_bounds_names_its_setting(visit):
    visit.open("#curriculum?accuracy=2")
    assert "accuracy" in visit.page.locator("#answer").inner_text()
    visit.page.fill("#control-accuracy", "0.9")
    visit.settled()
    visit.page.wait_for_function("() => !document.querySelector('.note.error')")
    visit.open("#curriculum?steps=lots")
    visit.page.reload()
    visit.settled()
    assert "steps" in visit.page.locator("#answer").inner_text()


def test_the_page_has_light_and_dark_colours(visit):
    visit.open("#curriculum")
    background = "() => getComputedStyle(document.body).backgroundColor"
    light = visit.page.evaluate(background)
    assert visit.page.locator("#theme").get_attribute("aria-label")
    visit.page.click("#theme")
    assert visit.page.evaluate(background) != light
    assert visit.page.locator("#theme").get_attribute("aria-pressed") == "true"
    visit.page.reload()
    visit.settled()
    assert visit.page.evaluate(background) != light


def test_the_page_waits_for_a_lost_server(visit):
    visit.open("#curriculum")
    visit.page.route("**/api/curriculum/*", lambda route: route.abort())
    visit.page.fill("#control-accuracy", "0.9")
    visit.page.wait_for_selector(".note.error")
    assert "learncast explore" in visit.page.locator(".note.error").first.inner_text()
    assert visit.page.locator(".part[aria-busy=true]").count() > 0
    # It repeats the request and shows the current setting.
    visit.page.unroute("**/api/curriculum/*")
    visit.settled()
    visit.page.wait_for_function("() => !document.querySelector('.note.error')")
    assert visit.reading("direct training") == float(portrait_to(0.9)["direct_descent_steps"])
