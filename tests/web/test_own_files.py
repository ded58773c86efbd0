"""Dropped trials and windows, a static copy of the page, and the cancelling of slow settings."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

import learncast
from learncast import Task
from learncast.planning.summary import recommendation
from learncast.web import all_panels


@pytest.fixture
def trials(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 12, 1))
    y = (x[..., 0] * 0.9 ** np.arange(12)[::-1]).sum(axis=1, keepdims=True)
    np.savez(tmp_path / "my trials (1).npz", inputs=x, targets=y)
    return tmp_path / "my trials (1).npz", x, y


def drop(visit, path: Path, name: str = ""):
    """Drop a file on the page, under another name if one is given."""
    content = list(path.read_bytes())
    visit.page.evaluate(
        """([name, content]) => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([new Uint8Array(content)], name));
            const there = document.querySelector('#main-chart');
            for (const kind of ['dragover', 'drop']) {
                there.dispatchEvent(new DragEvent(kind, { dataTransfer: transfer, bubbles: true, cancelable: true }));
            }
        }""",
        [name or path.name, content],
    )


@pytest.mark.parametrize("panel", ["curriculum", "window"])
def test_names_from_files_never_become_markup(visit, tmp_path, saved_window, panel):
    bad = '<img src=x onerror="window.hacked=1"><svg onload="window.hacked=1">&"\''
    if panel == "window":
        from learncast.windows import Window

        own = Window.load(saved_window)
        dataset = own.dataset.assign_attrs({key: bad for key, v in own.dataset.attrs.items() if isinstance(v, str)})
        dataset["decay_kind"] = dataset["decay_kind"].astype(object).where(False, bad).astype(str)
        dataset["envelope"].attrs["units"] = bad
        path = Window(dataset, own.provenance).save(tmp_path / "window.nc")
    else:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(60, 6, 1))
        path = tmp_path / "trials.npz"
        np.savez(path, inputs=x, targets=x.sum(axis=1))
    visit.open(f"#{panel}")
    drop(visit, path, f"{bad}{path.suffix}")
    if panel == "curriculum":
        visit.page.wait_for_selector('[data-chart="firsts"]', timeout=60_000)
    else:
        visit.page.wait_for_function("() => document.body.textContent.includes('onerror')", timeout=60_000)
    visit.settled()
    assert "onerror" in visit.page.locator("body").inner_text()
    assert visit.page.evaluate("window.hacked") is None
    assert visit.page.locator("[onerror], [onload], img[src=x]").count() == 0


def test_dropped_trials_are_forecast_and_planned(visit, trials):
    path, x, y = trials
    visit.open("#curriculum")
    drop(visit, path)
    visit.page.wait_for_selector('[data-chart="firsts"]', timeout=60_000)
    visit.settled()
    own = Task.from_samples(x, y, name="my trials (1)")
    direct = learncast.forecast(x, y)
    firsts = [Task.from_samples(x, s * y, name=f"targets × {s:g}") for s in (0.5, 1.5, 2.0, 3.0)]
    plan = learncast.plan(own, firsts, direct.method.network, learning_rate=direct.learning_rate)
    assert visit.reading("direct training") == plan.direct_steps
    assert visit.reading("with the plan") == plan.total
    assert visit.page.locator("#answer").inner_text() == recommendation(plan)
    assert visit.page.locator(".examples a[aria-current]").inner_text() == "Your trials"
    assert "recurrence" in visit.page.locator("#form").inner_text()
    assert not visit.page.locator('[data-key="target_strength"]').is_visible()
    visit.screenshot("curriculum-own-trials")
    with visit.page.expect_download() as download:
        visit.page.click("#study")
    study = tomllib.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    assert study["target"]["data"] == "my trials (1).npz"
    # The other examples lead back to generated tasks.
    visit.follow(".examples a >> text=It hurts")
    assert "628" in visit.page.locator("#answer").inner_text()
    assert visit.errors == []


def test_a_name_with_markup_stays_text(visit, trials, tmp_path):
    path = tmp_path / "<b id=planted>&name.npz"
    path.write_bytes(trials[0].read_bytes())
    visit.open("#curriculum")
    drop(visit, path)
    visit.page.wait_for_selector('[data-chart="firsts"]', timeout=60_000)
    visit.settled()
    assert visit.page.locator("#planted").count() == 0
    assert visit.errors == []


def test_a_file_shows_its_progress_at_once(visit, trials):
    visit.open("#curriculum")
    visit.page.route("**/api/curriculum/file", lambda route: None)  # never answered
    visit.page.set_input_files("#file", trials[0])
    visit.page.wait_for_selector("#busy:visible")
    assert trials[0].name in visit.page.locator("#busy").inner_text()
    assert visit.page.locator(".spinner:visible").count() == 1


def test_an_unreadable_file_gives_an_error_with_its_name(visit, tmp_path):
    (tmp_path / "broken.npz").write_bytes(b"nothing of the kind")
    visit.open("#curriculum")
    visit.page.set_input_files("#file", tmp_path / "broken.npz")
    # The error stands in the place of the answer, and the old picture fades: it is not the file's.
    visit.page.wait_for_function("() => document.querySelector('#answer').textContent.includes('broken.npz must')")
    assert "/" not in visit.page.locator("#answer").inner_text()
    assert visit.page.locator("#main-chart figure.rejected").count() == 1
    visit.page.fill("#control-recurrence", "0.95")
    visit.settled()
    assert visit.page.locator(".rejected").count() == 0


def test_a_rate_that_diverges_is_refused_in_the_place_of_the_answer_and_the_file_is_kept(visit, trials):
    visit.open("#generalise")
    drop(visit, trials[0])
    visit.page.wait_for_function("() => document.querySelector('#status').textContent.startsWith('Opened')")
    visit.settled()
    best = visit.reading("best stop")
    rate = float(visit.page.locator("#control-learning_rate").input_value())
    visit.page.fill("#control-learning_rate", str(1e4 * rate))
    visit.page.press("#control-learning_rate", "Tab")
    visit.page.wait_for_selector("#main-chart figure.rejected")
    assert visit.page.locator("#answer").inner_text() == visit.page.locator(".part .note.error").text_content()
    visit.page.fill("#control-learning_rate", str(rate))
    visit.page.press("#control-learning_rate", "Tab")
    visit.settled()
    assert visit.page.locator(".rejected").count() == 0
    # The field holds six digits of the rate.
    assert visit.reading("best stop") == pytest.approx(best, rel=0.1)


def test_another_example_does_not_keep_the_curves_of_the_earlier_one(visit):
    visit.open("#curriculum")
    visit.page.fill("#control-learning_rate", "0.0011")
    visit.settled()
    previous = "plot => plot.data.filter(trace => trace.meta === 'previous').length"
    assert visit.plot("race").evaluate(previous) == 2
    ends = "plot => plot._fullLayout.yaxis.range[1]"
    alone = visit.plot("race").evaluate(ends)
    assert alone < 120  # the earlier curves do not widen the axes
    visit.follow(".examples a >> text=Stop early")
    assert visit.plot("race").evaluate(previous) == 0


def test_the_first_picture_of_a_sum_of_parts_is_its_loss(visit):
    visit.open("#curriculum")
    visit.follow(".examples a >> text=A sum of parts")
    assert visit.page.locator('#main-chart [data-chart="loss"] .plot .trace').count() > 0
    visit.follow(".examples a >> text=It hurts")
    assert visit.page.locator('#main-chart [data-chart="race"]').count() == 1
    assert visit.page.locator('.part [data-chart="loss"]').count() == 1


def test_a_dropped_window_is_shown(visit, saved_window):
    visit.open("#window")
    drop(visit, saved_window)
    visit.page.wait_for_function("() => document.querySelector('#status').textContent.startsWith('Opened')")
    visit.settled()
    assert visit.page.locator("#control-sample_size").input_value() == "160"
    assert "160 sequences" in visit.page.locator("#answer").inner_text()
    assert "data=" not in visit.page.url
    visit.page.fill("#control-sample_size", "4000")
    visit.settled()
    assert "4,000 sequences" in visit.page.locator("#answer").inner_text()
    assert visit.errors == []


def test_a_static_copy_shows_the_examples(visit, copy):
    visit.page.goto(copy)
    visit.settled()
    assert "168" in visit.page.locator("#answer").inner_text()
    assert visit.page.locator("#static").is_visible()
    for panel in all_panels():
        visit.follow(f'nav a[data-panel="{panel.name}"]')
        for example in panel.examples:
            visit.follow(f'.examples a >> text="{example.name}"')
            assert visit.page.locator(".part.rejected").count() == 0
            answers = [part(panel.state_of(example)).answer for part in panel.parts.values()]
            assert visit.page.locator("#answer").inner_text() == [text for text in answers if text][-1]
    visit.follow('nav a[data-panel="prior-knowledge"]')
    visit.page.click("#player .play")
    visit.page.wait_for_function("() => Number(document.querySelector('#player input').value) > 0.1")
    assert visit.page.locator("#control-size").is_disabled()
    assert {url for _, url in visit.requests if not url.startswith((copy, "data:", "blob:"))} == set()
    assert {method for method, _ in visit.requests} == {"GET"}
    assert visit.errors == []


def test_a_slow_setting_shows_its_progress_and_can_be_cancelled(visit):
    visit.open("#curriculum?pin_value=none")
    visit.page.route("**/api/curriculum/portrait", lambda route: None)  # never answered
    visit.page.locator("#control-activation").select_option("relu")
    waiting = visit.page.locator("#busy")
    waiting.locator("text=Cancel").wait_for(state="visible")
    assert "rectified" in waiting.inner_text()
    assert visit.page.locator('[data-part="portrait"]').get_attribute("aria-busy") == "true"
    waiting.locator("text=Cancel").click()
    visit.settled()
    assert "Cancelled" in visit.page.locator('[data-part="portrait"] .note.error').inner_text()
    visit.page.unroute("**/api/curriculum/portrait")
    visit.page.click('[data-part="portrait"] >> text=Compute anyway')
    visit.settled()
    assert visit.page.locator(".badge:visible").first.inner_text() == "response"


def test_the_request_holds_the_settings_of_the_address(visit):
    sent = []
    visit.page.on("request", lambda one: sent.append(one.post_data) if one.url.endswith("/portrait") else None)
    visit.open("#curriculum?recurrence=0.5&pin_value=none")
    state = json.loads(sent[-1])
    assert (state["recurrence"], state["pin_value"], state["data"]) == (0.5, None, None)


def test_a_saved_study_reopens_its_settings(visit):
    visit.open("#curriculum?family=composed&angle=60&learning_rate=0.01&accuracy=0.95")
    steps = visit.reading("with the plan")
    with visit.page.expect_download() as download:
        visit.page.click("#study")
    visit.open("#curriculum")
    assert visit.page.locator('[data-reading="with the plan"]').count() == 0
    drop(visit, Path(download.value.path()), "mine.toml")
    visit.page.wait_for_selector('[data-reading="with the plan"]', timeout=60_000)
    visit.settled()
    assert "angle=60" in visit.page.url
    assert visit.reading("with the plan") == steps
    assert visit.errors == []
