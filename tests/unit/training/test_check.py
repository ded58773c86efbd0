"""Checks of forecasts for recorded tasks train on the recorded trials."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import learncast as lc
from learncast.training.check import CheckedCurriculum


def test_the_mean_of_measured_steps_has_the_interval_of_student():
    task = lc.tasks.integration(steps=20)
    start = lc.LinearRNN.aligned(recurrence=0.9, initial=0.02, hidden_size=4)
    forecast = lc.forecast(task, start, learning_rate=1e-3)
    runs = [SimpleNamespace(steps=n, status=lc.Status.ok) for n in (100, 110, 120)]
    found = CheckedCurriculum("", forecast, runs, None).statistics
    # mean of three numbers 10 apart: 4.303 (t, 2 degrees of freedom, 97.5%) times 10 / sqrt(3)
    half = 4.302652729911275 * 10 / np.sqrt(3)
    assert found["measured_low"] == pytest.approx(110 - half)
    assert found["measured_high"] == pytest.approx(110 + half)
    assert found["steps_deviation"] == pytest.approx(110 / forecast.steps.descent - 1)
    assert np.isnan(CheckedCurriculum("", forecast, runs[:1], None).statistics["measured_low"])


def recording(channels=1):
    rng = np.random.default_rng(0)
    inputs = rng.exponential(size=(120, 6, channels))
    return lc.Task.from_samples(inputs, inputs.sum(axis=1) + rng.standard_normal((120, channels)))


def network(activation, channels=1):
    linear = lc.LinearRNN.aligned(recurrence=0.8, initial=0.1, hidden_size=3, task=recording(channels))
    return linear if activation == "linear" else lc.Activated(linear, activation)


def checked(task, start, rate=2e-3, **options):
    forecast = lc.forecast(task, start, learning_rate=rate, goal=lc.Accuracy(0.9), strict=False)
    return forecast, lc.check(forecast, processes=1, **options)


@pytest.mark.parametrize(("activation", "channels"), [("linear", 1), ("linear", 3), ("relu", 1)])
def test_training_on_all_recorded_trials_takes_the_forecast_steps(activation, channels):
    forecast, check = checked(recording(channels), network(activation, channels), seeds=3)
    assert check.batch is None
    (curriculum,) = check.curricula
    np.testing.assert_array_equal(curriculum.measured, np.full(3, forecast.steps.descent))
    assert check.verdicts == {"direct training": "agrees"}


def test_a_batch_of_all_trials_is_the_full_batch():
    _, check = checked(recording(), network("relu"), seeds=2, batch=500)
    assert check.batch is None


def test_batches_of_recorded_trials_are_trained_on():
    forecast, check = checked(recording(), network("relu"), seeds=4, batch=40)
    (curriculum,) = check.curricula
    assert check.batch == 40
    assert len(set(curriculum.measured)) > 1  # every seed draws its own batches
    assert curriculum.measured.mean() == pytest.approx(forecast.steps.descent, rel=0.2)


def test_the_check_on_all_trials_detects_an_error_of_five_per_cent():
    forecast, check = checked(recording(), network("relu"), rate=2e-4, seeds=2)
    wrong = lc.forecast(recording(), network("relu"), learning_rate=2.1e-4, goal=lc.Accuracy(0.9))
    runs = check.curricula[0].runs
    verdicts = [CheckedCurriculum("one", f, runs, None, full_batch=True).verdict(None, 0.01) for f in (forecast, wrong)]
    assert verdicts == ["agrees", "differs"]


SCRIPT = """
print("begins")
import learncast as lc
task = lc.tasks.integration(steps=10)
network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
print(len(lc.check(lc.forecast(task, network, learning_rate=0.01), seeds=2, processes=2).curricula))
"""


@pytest.mark.slow
def test_a_script_without_a_guard_runs_once(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["begins", "1"])
