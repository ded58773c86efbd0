"""Files: trials and windows dropped on the page, a copy without a server, and slow settings that are cancelled."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import learncast
from learncast import LinearRNN, Task
from learncast.web.app import rooms


@pytest.fixture
def trials(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 12, 1))
    y = (x[..., 0] * 0.9 ** np.arange(12)[::-1]).sum(axis=1, keepdims=True)
    np.savez(tmp_path / "my trials.npz", inputs=x, targets=y)
    return tmp_path / "my trials.npz", x, y


def drop(visit, path: Path):
    """Drop a file on the page, as a hand would."""
    content = list(path.read_bytes())
    visit.page.evaluate(
        """([name, content]) => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([new Uint8Array(content)], name));
            const there = document.querySelector('#picture');
            for (const kind of ['dragover', 'drop']) {
                there.dispatchEvent(new DragEvent(kind, { dataTransfer: transfer, bubbles: true, cancelable: true }));
            }
        }""",
        [path.name, content],
    )


def test_dropped_trials_are_forecast_and_planned(visit, trials):
    path, x, y = trials
    visit.open("#curriculum")
    drop(visit, path)
    visit.page.wait_for_selector('[data-panel="firsts"]', timeout=60_000)
    visit.settled()
    own = Task.from_samples(x, y, name="my trials")
    network = LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=128, task=own)
    firsts = [Task.from_samples(x, s * y, name=f"targets × {s:g}") for s in (0.5, 1.5, 2.0, 3.0)]
    told = learncast.plan(own, firsts, network, learning_rate=1e-3)
    assert visit.reading("direct training") == told.direct_steps
    assert visit.reading("with the plan") == told.total
    assert visit.page.locator("#answer").inner_text() == f"{told.summary.partition('. ')[0]}."
    assert visit.page.locator(".examples a[aria-current]").inner_text() == "Your trials"
    assert "recurrence" in visit.page.locator("#form").inner_text()
    assert not visit.page.locator('[data-key="target_strength"]').is_visible()
    visit.picture("curriculum-own-trials")
    # The examples are still there, and lead back to tasks that are made.
    visit.page.click(".examples a >> text=It hurts")
    visit.settled()
    assert visit.page.locator("#answer").inner_text().startswith("Do not pretrain on weaker targets")
    assert visit.complaints == []


def test_a_file_that_is_none_is_a_sentence(visit, tmp_path):
    (tmp_path / "broken.npz").write_bytes(b"nothing of the kind")
    visit.open("#curriculum")
    visit.page.set_input_files("#file", tmp_path / "broken.npz")
    visit.page.wait_for_function("() => document.querySelector('#said').textContent.includes('broken.npz must be')")
    assert "/" not in visit.page.locator("#said").inner_text()
    assert visit.page.locator("#answer").inner_text().startswith("Pretrain on stronger targets")


def test_a_dropped_window_is_shown(visit, saved_window):
    visit.open("#window")
    drop(visit, saved_window)
    visit.page.wait_for_function("() => document.querySelector('#said').textContent.includes('stays in memory')")
    visit.settled()
    assert visit.page.locator("#control-sample_size").input_value() == "160"
    assert visit.page.locator("#answer").inner_text().startswith("From 160 sequences")
    assert "data=" not in visit.page.url
    visit.page.fill("#control-sample_size", "4000")
    visit.settled()
    assert visit.page.locator("#answer").inner_text().startswith("From 4,000 sequences")
    assert visit.complaints == []


def test_a_copy_shows_the_examples_without_a_server(visit, copy):
    visit.page.goto(copy)
    visit.settled()
    assert visit.page.locator("#answer").inner_text().startswith("Pretrain on stronger targets (1.5 beside 1)")
    for room in rooms():
        visit.page.click(f'nav a[data-room="{room.name}"]')
        visit.settled()
        for example in room.examples:
            visit.page.click(f".examples a >> text={example.name}")
            visit.settled()
            assert visit.page.locator(".note.error >> text=copy").count() == 0
            answers = [part(room.shown(example)).answer for part in room.parts.values()]
            assert visit.page.locator("#answer").inner_text() == [text for text in answers if text][-1]
    visit.page.click('nav a[data-room="prior-knowledge"]')
    visit.settled()
    visit.page.click("#player .play")
    visit.page.wait_for_function("() => Number(document.querySelector('#player input').value) > 0.1")
    assert visit.page.locator("#control-size").is_disabled()
    assert {url for _, url in visit.requests if not url.startswith((copy, "data:", "blob:"))} == set()
    assert {method for method, _ in visit.requests} == {"GET"}
    assert visit.complaints == []


def test_a_slow_setting_says_what_it_does_and_is_cancelled(visit):
    visit.open("#curriculum?pin_value=none")
    visit.page.route("**/api/curriculum/portrait", lambda route: None)  # a computation without an end
    visit.page.locator("#control-activation").select_option("relu")
    waiting = visit.page.locator('[data-part="portrait"] .waiting')
    waiting.wait_for(state="visible")
    assert "responses of rectified units" in waiting.inner_text()
    assert visit.page.locator('[data-part="portrait"]').get_attribute("aria-busy") == "true"
    waiting.locator("text=Cancel").click()
    visit.settled()
    assert "Cancelled" in visit.page.locator('[data-part="portrait"] .note.error').inner_text()
    visit.page.unroute("**/api/curriculum/portrait")
    visit.page.click('[data-part="portrait"] >> text=Compute it after all')
    visit.settled()
    assert visit.page.locator(".badge:visible").first.inner_text() == "response"


def test_states_in_links_are_json_s(visit):
    """What the address holds is what the server is asked."""
    sent = []
    visit.page.on("request", lambda one: sent.append(one.post_data) if one.url.endswith("/portrait") else None)
    visit.open("#curriculum?recurrence=0.5&pin_value=none")
    state = json.loads(sent[-1])
    assert (state["recurrence"], state["pin_value"], state["data"]) == (0.5, None, None)
