"""Class labels: base rate, balanced accuracy and the gain over a constant answer, held to plain numpy."""

import json

import numpy as np
import pytest

import learncast as lc
from learncast.cli import app


@pytest.mark.parametrize("every_step", [False, True])
@pytest.mark.parametrize("centre", [False, True])
def test_decoding_at_the_goal_is_that_of_the_trained_network_on_the_trials(every_step, centre):
    rng = np.random.default_rng(1)
    labels = rng.choice(3, size=(200, 5) if every_step else 200, p=[0.85, 0.12, 0.03])
    signal = np.eye(3)[labels] if every_step else np.repeat(np.eye(3)[labels][:, None], 5, axis=1)
    x = signal @ rng.normal(size=(3, 6)) + rng.normal(size=(200, 5, 6))
    found = lc.forecast(x, labels, centre=centre)
    trained = lc.descend(found.target, found.method.network, found.training, steps=int(found.steps.descent))
    inputs = x - x.mean(axis=0) if centre else x
    answers = trained.network_at(np.inf).respond(inputs, every_step=every_step)
    hot = np.eye(3)[labels]
    mean = hot.mean(axis=0)
    targets = hot - mean if centre else hot
    chosen = (answers + (mean if centre else 0.0)).argmax(axis=-1)
    own = found.classes
    assert own.base_rate == pytest.approx(max(np.bincount(labels.ravel())) / labels.size)
    assert own.accuracy == pytest.approx((chosen == labels).mean())
    assert own.balanced_accuracy == pytest.approx(np.mean([(chosen[labels == k] == k).mean() for k in range(3)]))
    constant = ((hot - mean) ** 2).sum()
    assert own.constant_r2 == pytest.approx(1 - constant / (targets**2).sum())
    assert own.explained_above_constant == pytest.approx(1 - ((answers - targets) ** 2).sum() / constant)


def test_the_command_reports_classes(tmp_path, capsys):
    rng = np.random.default_rng(0)
    labels = rng.choice(2, size=100, p=[0.8, 0.2])
    x = rng.normal(size=(100, 4)) + labels[:, None]
    np.savez(tmp_path / "choices.npz", inputs=x, labels=labels)
    app(["forecast", str(tmp_path / "choices.npz"), "--json"], standalone_mode=False)
    answer = json.loads(capsys.readouterr().out)["classes"]
    assert answer == {key: pytest.approx(value) for key, value in vars(lc.forecast(x, labels).classes).items()}


def test_numbers_have_no_classes():
    x = np.random.default_rng(0).normal(size=(40, 3))
    assert lc.forecast(x, x[:, :1]).classes is None
