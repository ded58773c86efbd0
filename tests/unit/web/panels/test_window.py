"""The window room shows a saved window, and what it would be for other numbers of sequences."""

from __future__ import annotations

import numpy as np
import pytest
from learncast.answers.window import rehearsed_window

from learncast.results import FORECAST_CLASSES
from learncast.study import WindowStudy
from learncast.web.panel import csv_of
from learncast.web.panels import window as window_module
from learncast.web.panels.window import window_room, windows_at
from learncast.windows import Window

STUDY = """
name = "small"
[model]
kind = "diag-gate"
hidden_size = 6
[training]
steps = 10
batch = 16
learning_rate = 0.01
[task]
steps = 16
inputs = 2
lags = [2, 5]
coefficients = [1.0, 0.8]
sequences = 64
[window]
lags = [1, 2, 3, 4, 5, 6]
sequences = 160
sample_sizes = [4, 64, 160, 4096, 65536]
nulls = 19
"""


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    """A window as it comes from a file."""
    folder = tmp_path_factory.mktemp("window")
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    answer = rehearsed_window(WindowStudy.load(folder / "study.toml"))
    return Window.load(Window(answer.dataset, answer.provenance).save(folder / "window.nc"))


@pytest.fixture(scope="module")
def room(window):
    return window_room(window)


def reading(view, label):
    (found,) = (r for r in view.readings if r.label == label)
    return found.value


def panel(view, key):
    (found,) = (p for p in view.panels if p.key == key)
    return found


@pytest.mark.parametrize("noise", ["per_lag", "total"])
def test_at_the_file_s_threshold_windows_are_the_file_s(window, noise):
    layer = window.dataset.sel(layer=0)
    sizes = layer["sample_size"].values
    found = windows_at(layer, sizes, float(layer["threshold"]), noise=noise)
    assert dict(zip(sizes.tolist(), found.any_lag.tolist(), strict=True)) == window.windows(noise=noise)
    gapless = dict(zip(sizes.tolist(), found.contiguous.tolist(), strict=True))
    assert gapless == window.windows(noise=noise, contiguous=True)
    assert len(set(window.windows(noise=noise).values())) > 1  # a rule that tells nothing apart would pass


def test_readings_are_those_of_the_chosen_number(window, room):
    state = room.state(sample_size=64.0)
    view = room.parts["window"](state)
    assert reading(view, "longest lag") == window.windows()[64]
    assert reading(view, "without gaps") == window.windows(contiguous=True)[64]
    assert reading(view, "against all gradient noise") == window.windows(noise="total")[64]
    assert reading(view, "sequences diagnosed") == 160
    assert view.words == f"As it was diagnosed: {window.summary}"


def test_sliders_begin_at_what_was_diagnosed(window, room):
    own = room.state()
    assert own.sample_size == window.sequences == 160
    assert own.threshold == float(window["threshold"][0])
    assert {c.key: c.kind for c in room.controls} == {
        "sample_size": "range",
        "threshold": "range",
        "layer": "hidden",
        "data": "hidden",
    }


def test_more_sequences_reach_as_far_and_higher_thresholds_no_further(window):
    layer = window.dataset.sel(layer=0)
    sizes = np.geomspace(1, 1e9, 50)
    low, high = (windows_at(layer, sizes, threshold).any_lag for threshold in (1.0, 10.0))
    assert (np.diff(low) >= 0).all()
    assert (high <= low).all()
    assert high.min() < low.max()


def test_a_lag_counts_when_its_envelope_is_above_what_is_needed(window, room):
    state = room.state(sample_size=64.0)
    shown = panel(room.parts["window"](state), "envelope")
    needed = next(t for t in shown.traces if t.role == "threshold")
    told = next(t for t in shown.traces if t.kind == "points")
    counted = np.asarray(told.x)[np.asarray(told.y) >= np.asarray(needed.y)]
    assert counted.max(initial=0.0) == window.windows()[64]


def test_pictures_have_units_and_the_null_band(window, room):
    view = room.parts["window"](room.state())
    curve = panel(view, "window")
    band = next(t for t in curve.traces if t.role == "null")
    assert np.array_equal(band.z, window["null_window"].sel(layer=0).max("noise").values)
    assert (curve.x.unit, curve.y.unit, curve.x.scale) == ("sequences", "steps", "log")
    scales = panel(view, "time_scales").traces[0]
    known = window["time_scale"].sel(layer=0).values
    assert sorted(scales.x) == sorted(known[np.isfinite(known)])
    assert np.asarray(scales.y)[0] == 1.0
    assert view.validity.kind == "measured"
    assert view.validity.sentence == FORECAST_CLASSES["measured"]
    assert len(view.validity.rows) == len(window.validity())
    assert csv_of({"window": view}).count("\n") > 240


def test_what_the_file_does_not_tell_is_said(room):
    notes = room.parts["window"](room.state(sample_size=1e6, threshold=0.1)).notes
    assert any("More than the 160 sequences diagnosed" in note.text for note in notes)
    assert any("noise reaches further" in note.text and note.tone == "warning" for note in notes)
    assert not [n for n in room.parts["window"](room.state()).notes if "diagnosed" in n.text]


def test_study_is_what_is_known_of_the_file(window, room):
    text = room.study(room.state())
    assert text.startswith("# learncast window STUDY.toml --out DIR\n")
    assert all(line.startswith("# ") for line in text.splitlines())
    assert window.provenance.spec_hash in text
    assert "sample_sizes: [4, 64, 160, 4096, 65536]" in text


def test_without_a_file_the_room_shows_a_sample():
    room = window_room(None)
    state = room.state()
    view = room.parts["window"](state)
    assert "learncast explore --window" in room.introduction
    assert room.study(state).startswith("# learncast window")
    found = window_module.sample()
    assert (state.sample_size, state.threshold) == (found.sequences, float(found.dataset["threshold"].isel(layer=0)))
    own = windows_at(found.dataset.sel(layer=0), state.number, state.threshold)
    assert view.readings[0].value == own.any_lag
    assert view.answer == f"From 512 sequences this model can learn {own.any_lag:.0f} steps back."


@pytest.mark.slow
def test_the_sample_is_made_by_the_study_beside_it():
    made = rehearsed_window(WindowStudy.load(window_module.SAMPLE.parent / "study.toml"))
    kept = window_module.sample()
    # To the bit it depends on the machine that trains it, and so does the hash, into which weights go.
    np.testing.assert_allclose(made.dataset["envelope"], kept.dataset["envelope"], rtol=1e-3)
    np.testing.assert_array_equal(made.dataset["reach"], kept.dataset["reach"])
    for name, found in kept.dataset.coords.items():
        np.testing.assert_array_equal(made.dataset[name], found)
