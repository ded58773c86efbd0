"""The window panel shows a saved window, and what it would be for other numbers of sequences."""

from __future__ import annotations

import re

import numpy as np
import pytest

import learncast.web.panels.window as module
from learncast.report.window import window_report
from learncast.results import FORECAST_CLASSES
from learncast.study import WindowStudy
from learncast.web import to_csv, window_panel, windows_at
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
    answer = window_report(WindowStudy.load(folder / "study.toml"))
    return Window.load(Window(answer.dataset, answer.provenance).save(folder / "window.nc"))


@pytest.fixture(scope="module")
def panel(window):
    return window_panel(window)


def reading(view, label):
    (found,) = (r for r in view.readings if r.label == label)
    return found.value


def chart(view, key):
    (found,) = (c for c in view.charts if c.key == key)
    return found


@pytest.mark.parametrize("noise", ["per_lag", "total"])
def test_windows_at_the_saved_threshold_are_the_saved_ones(window, noise):
    layer = window.dataset.sel(layer=0)
    sizes = layer["sample_size"].values
    found = windows_at(layer, sizes, float(layer["threshold"]), noise=noise)
    assert dict(zip(sizes.tolist(), found.any_lag.tolist(), strict=True)) == window.windows(noise=noise)
    gapless = dict(zip(sizes.tolist(), found.contiguous.tolist(), strict=True))
    assert gapless == window.windows(noise=noise, contiguous=True)
    assert len(set(window.windows(noise=noise).values())) > 1  # otherwise any rule would pass


def test_readings_are_for_the_chosen_number_of_sequences(window, panel):
    state = panel.state(sample_size=64.0)
    view = panel.parts["window"](state)
    assert reading(view, "longest lag") == window.windows()[64]
    assert reading(view, "without gaps") == window.windows(contiguous=True)[64]
    assert reading(view, "against the noise of the whole gradient") == window.windows(noise="total")[64]
    assert reading(view, "sequences diagnosed") == 160
    assert view.text in window.summary
    assert "sequences" not in view.text.partition(".")[0]  # the answer is for the chosen number


def test_controls_start_at_the_diagnosis(window, panel):
    own = panel.state()
    assert own.sample_size == window.sequences == 160
    assert own.threshold == float(window["threshold"][0])
    assert {c.key: c.kind for c in panel.controls} == {
        "sample_size": "range",
        "threshold": "range",
        "layer": "hidden",
        "data": "hidden",
    }


def test_the_window_grows_with_sequences_and_shrinks_with_the_threshold(window):
    layer = window.dataset.sel(layer=0)
    sizes = np.geomspace(1, 1e9, 50)
    low, high = (windows_at(layer, sizes, threshold).any_lag for threshold in (1.0, 10.0))
    assert (np.diff(low) >= 0).all()
    assert (high <= low).all()
    assert high.min() < low.max()


def test_a_lag_is_learnable_if_its_envelope_exceeds_the_needed_one(window, panel):
    state = panel.state(sample_size=64.0)
    envelope = chart(panel.parts["window"](state), "envelope")
    needed = next(t for t in envelope.traces if t.role == "threshold")
    detected = next(t for t in envelope.traces if t.kind == "points")
    learnable = np.asarray(detected.x)[np.asarray(detected.y) >= np.asarray(needed.y)]
    assert learnable.max(initial=0.0) == window.windows()[64]


def test_charts_have_units_and_the_null_band(window, panel):
    view = panel.parts["window"](panel.state())
    curve = chart(view, "window")
    band = next(t for t in curve.traces if t.role == "null")
    assert np.array_equal(band.z, window["null_window"].sel(layer=0).max("noise").values)
    assert (curve.x.unit, curve.y.unit, curve.x.scale) == ("sequences", "steps", "log")
    scales = chart(view, "time_scales").traces[0]
    known = window["time_scale"].sel(layer=0).values
    assert sorted(scales.x) == sorted(known[np.isfinite(known)])
    assert np.asarray(scales.y)[0] == 1.0
    assert view.trust.forecast_class == "measured"
    assert view.trust.standing[1] == FORECAST_CLASSES["measured"]
    assert len(view.trust.assumptions) == len(window.validity())
    assert to_csv({"window": view}).count("\n") > 240


def test_settings_beyond_the_diagnosis_give_notes(panel):
    def tones(**changes):
        return [note.tone for note in panel.parts["window"](panel.state(**changes)).every_note]

    own = tones()
    assert sorted(tones(sample_size=1e6)) == sorted([*own, "plain"])
    assert sorted(tones(threshold=0.1)) == sorted([*own, "warning"])


def test_the_study_lists_the_origin_of_the_file(window, panel):
    text = panel.study(panel.state())
    assert text.startswith("# learncast window STUDY.toml --out DIR\n")
    assert all(line.startswith("# ") for line in text.splitlines())
    assert window.provenance.spec_hash in text
    assert "sample_sizes: [4, 64, 160, 4096, 65536]" in text


def test_without_a_file_the_panel_shows_a_sample():
    panel = window_panel(None)
    state = panel.state()
    view = panel.parts["window"](state)
    assert "learncast explore --window" in panel.introduction
    assert panel.study(state).startswith("# learncast window")
    found = module.sample()
    assert (state.sample_size, state.threshold) == (found.sequences, float(found.dataset["threshold"].isel(layer=0)))
    own = windows_at(found.dataset.sel(layer=0), state.sequences, state.threshold)
    assert view.readings[0].value == own.any_lag
    total = windows_at(found.dataset.sel(layer=0), state.sequences, state.threshold, noise="total")
    assert re.findall(r"\d+", view.answer) == ["512", f"{own.any_lag:.0f}", f"{total.any_lag:.0f}"]


@pytest.mark.slow
def test_the_study_in_its_folder_makes_the_sample():
    made = window_report(WindowStudy.load(module.SAMPLE.parent / "study.toml"))
    kept = module.sample()
    # The last bits depend on the machine that trains it.
    np.testing.assert_allclose(made.dataset["envelope"], kept.dataset["envelope"], rtol=1e-3)
    np.testing.assert_array_equal(made.dataset["reach"], kept.dataset["reach"])
    for name, found in kept.dataset.coords.items():
        np.testing.assert_array_equal(made.dataset[name], found)
