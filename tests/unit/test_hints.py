"""Errors name what was probably meant: names, keywords, options and files of other libraries and commands."""

import numpy as np
import pytest

import learncast as lc
from learncast._core.errors import suggestion
from learncast.cli import app
from learncast.study import AdviceStudy, new_study

TASK = lc.tasks.integration(steps=5)
NETWORK = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)


@pytest.mark.parametrize(("name", "meant"), [("fit", "forecast"), ("forcast", "forecast"), ("Trainin", "Training")])
def test_a_missing_name_suggests_the_one_that_exists(name, meant):
    with pytest.raises(AttributeError) as caught:
        getattr(lc, name)
    assert repr(meant) in str(caught.value)


@pytest.mark.parametrize(
    ("call", "keyword", "meant"),
    [
        (lambda **k: lc.Training(0.1, **k), "batch_size", "batch"),
        (lambda **k: lc.Training(**k), "lr", "learning_rate"),
        (lambda **k: lc.plan(TASK, [], NETWORK, **k), "lr", "learning_rate"),
        (lambda **k: lc.descend(TASK, NETWORK, **k), "epochs", "steps"),
        (lambda **k: lc.forget([TASK], NETWORK, **k), "learning_rat", "learning_rate"),
        (lambda **k: lc.window(None, None, None, **k), "lr", "optimizer"),
        (lambda **k: lc.window(None, None, None, **k), "loss_fn", "measurement"),
        (lambda **k: lc.window(None, None, **k), "y", "targets"),
        (lambda **k: lc.advise(None, None, **k), "lr", "training"),
        (lambda **k: lc.advise(None, None, **k), "epochs", "terms"),
        (lambda **k: lc.advise(None, **k), "X", "target"),
        (lambda **k: lc.Terms(0.9, **k), "max_stage", "max_stages"),
        (lambda **k: lc.Stage(TASK, **k), "gaol", "goal"),
        (lambda **k: lc.Task.from_samples(None, None, **k), "centr", "centre"),
        (lambda **k: lc.tasks.integration(**k), "step", "steps"),
        (lambda **k: lc.LinearRNN.aligned(**k), "hidden_units", "hidden_size"),
        (lambda **k: lc.TwoLayer.random(1, 2, 1, **k), "scal", "scale"),
        (lambda **k: lc.Deep.random(1, (2,), 1, **k), "scal", "scale"),
    ],
)
def test_a_keyword_by_another_name_is_explained(call, keyword, meant):
    with pytest.raises(TypeError) as caught:
        call(**{keyword: 1})
    assert caught.value.field == keyword
    assert repr(meant) in str(caught.value)


def test_suggestions_compare_words_too():
    assert "stronger targets" in suggestion("strnger", ("target", "stronger targets"))
    assert suggestion("qqq", ("target", "stronger targets")) == ""


def test_missing_targets_point_to_the_mask():
    x = np.random.default_rng(0).normal(size=(10, 4, 2))
    y = x.sum(axis=1)
    y[2, 1] = np.nan
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.forecast(x, y)
    assert caught.value.field == "targets"
    assert "mask" in str(caught.value)


def test_an_unstable_recurrence_is_named_as_the_cause():
    x = np.random.default_rng(0).normal(size=(20, 20, 2))
    network = lc.LinearRNN.random(2, 8, 2, recurrence=1.3)
    with pytest.raises(lc.AssumptionViolated) as caught:
        lc.forecast((x, x.sum(axis=1)), network, learning_rate=0.1)
    assert "1.3" in str(caught.value)
    assert lc.forecast((x, x.sum(axis=1)), network).unstable


def test_a_data_file_given_as_a_study_is_recognised(tmp_path, capsys):
    np.savez(tmp_path / "mine.npz", inputs=np.zeros((3, 2)))
    with pytest.raises(SystemExit) as caught:
        app(["plan", str(tmp_path / "mine.npz")])
    assert caught.value.code == 2
    assert "learncast forecast" in capsys.readouterr().err


def test_a_template_of_advice_is_a_study_of_advice(tmp_path):
    path, _ = new_study("advise", tmp_path / "mine.toml")
    assert AdviceStudy.load(path).name == "slow and quick evidence"
