"""The generalise panel shows the numbers of `learncast.generalise`."""

from __future__ import annotations

import tomllib

import numpy as np
import pytest

import learncast as lc
from learncast.study import Study
from learncast.web import GeneraliseState, all_panels, held_out
from learncast.web.uploads import UPLOADS

PANEL = next(panel for panel in all_panels() if panel.name == "generalise")
QUICK = {"most_steps": 200.0}


def test_readings_and_curves_are_those_of_the_library():
    state = GeneraliseState(**QUICK)
    found, truth = held_out(state)
    view = PANEL.parts["held_out"](state)
    readings = {reading.label: reading.value for reading in view.readings}
    assert readings["best stop"] == found.stop
    assert readings["held-out loss"] == found.loss
    assert readings["least loss, population"] == truth.loss
    trace = next(trace for trace in view.charts[0].traces if trace.name == "held out")
    np.testing.assert_array_equal(trace.y, found.curve["held_out"].values[1:])
    assert view.charts[0].shades[0][:2] == tuple(max(n, 1) for n in found.stop_set)


def test_the_population_is_that_of_the_drawn_trials():
    few, many = (held_out(GeneraliseState(trials=n, noise=0.5, **QUICK)) for n in (40.0, 2000.0))
    assert many[0].loss == pytest.approx(many[1].loss, rel=0.1)
    assert few[1].loss > many[1].loss


@pytest.mark.parametrize("example", PANEL.examples, ids=lambda example: example.name)
def test_examples_can_be_shown(example):
    state = PANEL.state_of(example).model_copy(update=QUICK)
    view, (found, _) = PANEL.parts["held_out"](state), held_out(state)
    assert f"{view.answer} {view.text}".strip() == found.sentence
    assert view.text


def test_examples_show_what_their_captions_say():
    few, many, none, as_many = (held_out(PANEL.state_of(example))[0] for example in PANEL.examples)
    assert few.overfits == "yes"
    assert 0 < few.stop_set[0] <= few.stop <= few.stop_set[1] < 3000
    assert many.rise < 1.1 < few.rise
    assert none.stop == 0
    width = {id(g): np.log(g.rise_interval[1] / g.rise_interval[0]) for g in (few, many, none, as_many)}
    assert max(width, key=width.get) == id(as_many)


def test_the_study_of_dropped_trials_gives_the_same_numbers(tmp_path):
    x = np.random.default_rng(0).standard_normal((40, 4, 3))
    y = x.sum(axis=1)[:, :1] + np.random.default_rng(1).standard_normal((40, 1))
    np.savez(tmp_path / "mine.npz", inputs=x, targets=y)
    UPLOADS.store("a" * 32, "mine.npz", (tmp_path / "mine.npz").read_bytes())
    state = GeneraliseState(data="a" * 32, **QUICK)
    text = PANEL.study(state)
    assert tomllib.loads(text)["target"]["data"] == "mine.npz"
    (tmp_path / "study.toml").write_text(text)
    study = Study.load(tmp_path / "study.toml")
    how = study.held_out
    asked = lc.generalise(study.target, study.network, study.training, **how)
    assert asked.loss == held_out(state)[0].loss
    assert PANEL.open_file("a" * 32).opening["data"] == "a" * 32
