"""A goal that is not reached within the steps tried, and a loss that a bottleneck leaves, in every report."""

from __future__ import annotations

import json
import math
import time

import numpy as np
import pytest
from typer.testing import CliRunner

import learncast as lc
from learncast.cli import app
from learncast.planning.methods import linear
from learncast.report import check_report, forecast_report, plan_report
from learncast.results import Status, Steps
from learncast.study import Study
from learncast.theory.dynamics import gradient_flow
from learncast.web.view import Reading

TRIED = 40
STUDY = """
[network]
hidden_size = 4
recurrence = 0.5
initial = 0.1
[training]
learning_rate = 1e-2
accuracy = 0.95
learn = ["input", "recurrent", "output"]
[target]
name = "slow"
family = "leaky_integration"
steps = 10
timescale = 5.0
"""
CANDIDATE = '[[candidates]]\nname = "quick"\nfamily = "leaky_integration"\nsteps = 10\ntimescale = 2.0\n'
NARROW = """
[network]
kind = "two-layer"
hidden_size = 2
scale = 0.05
[training]
learning_rate = 1e-2
explained = 0.9
[target]
name = "three modes"
family = "static"
cross_correlation = [[1.0, 0.0, 0.0], [0.0, 0.7, 0.0], [0.0, 0.0, 0.4]]
"""


@pytest.fixture
def study(tmp_path):
    def read(text):
        path = tmp_path / "study.toml"
        path.write_text(text, encoding="utf-8")
        return Study.load(path)

    return read


@pytest.fixture
def short(monkeypatch):
    """Give up after few steps of descent and of the integrated flow."""
    monkeypatch.setattr(gradient_flow, "MOST_STEPS", 5)
    monkeypatch.setattr(linear, "MOST_COUNTED", TRIED)


def loss_after(study, steps):
    """Loss after plain descent."""
    return lc.descend(study.target, study.network, study.training, steps=steps).loss[-1]


def test_a_forecast_gives_the_steps_tried_and_the_loss_reached(study, short):
    slow = study(STUDY)
    found = forecast_report(slow).values
    assert (found["status"], found["tried"]) == ("not_within", TRIED)
    assert found["loss_reached"] == pytest.approx(loss_after(slow, TRIED), rel=1e-9)


def test_plan_gives_the_steps_tried_and_the_loss_reached(study, short):
    found = plan_report(study(STUDY + CANDIDATE)).values
    parts = [found["direct"], *found["best"]["stages"], *found["candidates"]]
    assert {part["status"] for part in parts} == {"not_within"}
    assert all(part["tried"] == TRIED and math.isfinite(part["loss_reached"]) for part in parts)
    assert math.isnan(found["best"]["saving_ratio"])


def test_a_check_agrees_if_training_does_not_arrive_within_the_steps_tried(study, short):
    row = check_report(study(STUDY), seeds=2, processes=1).values["rows"][0]
    assert (row["status"], row["tried"]) == ("not_within", TRIED)
    assert row["verdict"] == ("agrees" if min(row["measured_steps"]) >= TRIED else "differs")


def test_a_reached_goal_has_no_steps_tried(study):
    found = forecast_report(study(STUDY)).values
    assert found["status"] == "ok"
    assert not {"tried", "loss_reached"} & set(found)


def test_the_total_of_stages_counts_the_steps_before_the_stage_that_is_not_learned(study, short):
    slow = study(STUDY)
    stages = [lc.Stage(slow.target, steps=7), lc.Stage(slow.target, slow.goal)]
    found = lc.follow(stages, slow.network, training=slow.training).steps
    assert (found.status, found.tried) == (lc.Status.not_within, 7 + TRIED)


@pytest.mark.filterwarnings("error")
def test_batches_that_do_not_arrive_are_not_called_never():
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((200, 5, 2))
    task = lc.Task.from_samples(inputs, inputs.sum(axis=1) + 3 * rng.standard_normal((200, 2)))
    network = lc.LinearRNN.random(2, 4, 2, recurrence=0.9, scale=0.1, rng=0)
    found = lc.forecast(task, network, lc.Training(3e-2, batch=1), goal=lc.Explained(0.9999))
    assert (found.steps.status, found.steps.interval) == (lc.Status.not_within, None)
    assert math.isinf(found.steps.descent)
    assert found.steps.tried > found.full_batch.steps.descent


@pytest.mark.parametrize(
    ("status", "tried", "count"),
    [
        (lc.Status.not_learned, math.nan, "never"),
        (lc.Status.diverged, math.nan, "diverges"),
        (lc.Status.not_within, 1500, "not within 1,500"),
    ],
)
def test_never_is_said_only_where_it_is_proved(status, tried, count):
    steps = Steps(math.inf, math.inf, status=status, tried=tried)
    assert (steps.count, Reading.counted("direct training", steps).text) == (count, count)


@pytest.mark.parametrize("method", ["auto", "pooled", "flow"])
def test_forecast_gives_the_loss_that_a_bottleneck_leaves(study, method):
    found = forecast_report(study(NARROW), method=method).values
    assert found["bottleneck_loss"] == pytest.approx(0.4**2 / 2)
    assert found["status"] == "ok"
    assert len(found["remarks"]) >= 1


def test_forecast_without_a_bottleneck_loses_nothing(study, tmp_path):
    assert forecast_report(study(NARROW.replace("hidden_size = 2", "hidden_size = 3"))).values["bottleneck_loss"] == 0
    written = CliRunner().invoke(app, ["forecast", str(tmp_path / "study.toml"), "--json"])
    assert json.loads(written.stdout)["bottleneck_loss"] == 0


def test_training_to_convergence_is_not_called_never():
    task = lc.tasks.integration(steps=5)
    network = lc.LinearRNN.aligned(recurrence=0.5, initial=0.1, hidden_size=4)
    steps = lc.forget([task, task.varied(target_strength=2.0)], network, learning_rate=1e-2).steps
    assert steps.status is Status.ok
    assert str(steps) == "infinitely many steps"
    assert str(Steps(math.inf, math.inf, status=Status.not_learned)) == "never"


TRIALS = np.random.default_rng(0).standard_normal((40, 5, 3))


def recorded_study(tmp_path):
    targets = TRIALS.sum(axis=1) + np.random.default_rng(1).standard_normal((40, 3))
    np.savez(tmp_path / "a.npz", inputs=TRIALS, targets=targets)
    text = (
        '[network]\nhidden_size = 4\nrecurrence = 0.9\ninitial = "random"\nscale = 0.2\n'
        '[training]\nlearning_rate = 0.01\nexplained = 0.9\n[target]\nname = "a"\ndata = "a.npz"\n'
    )
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    return Study.load(tmp_path / "study.toml")


def out_of_time(*args, **options):
    raise lc.OutOfTime("late")


def test_the_count_is_reported_if_the_time_ends_during_the_resamples(tmp_path, monkeypatch):
    study = recorded_study(tmp_path)
    whole = forecast_report(study).values
    monkeypatch.setattr(linear.PooledMethod, "_count_resampled", out_of_time)
    found = forecast_report(recorded_study(tmp_path))
    assert found.values["descent_steps"] == whole["descent_steps"]
    assert ("interval" in whole, "interval" in found.values) == (True, False)
    assert len(found.values["remarks"]) == len(whole["remarks"]) + 1
    assert "held_out" not in found.values


def test_the_count_is_reported_if_the_time_ends_during_the_folds(tmp_path, monkeypatch):
    monkeypatch.setattr("learncast.report.forecast.generalise", out_of_time)
    found = forecast_report(recorded_study(tmp_path)).values
    assert len(found["interval"]) == 2
    assert "held_out" not in found


@pytest.mark.parametrize("steps", [["ten", 5], [-1, 5], [1, 2, 3], [math.nan, 5]])
def test_stages_take_numbers_of_steps(steps):
    task = lc.tasks.integration(steps=5)
    network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    with pytest.raises(lc.InvalidSpec) as error:
        lc.forget([task, task.varied(target_strength=2.0)], network, steps=steps, learning_rate=1e-3)
    assert error.value.field == "steps"


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("recurrence", [1e10, 1e15, 1e40])
def test_a_recurrence_that_overflows_is_refused_at_once(recurrence):
    network = lc.LinearRNN.random(3, 8, 3, scale="torch", recurrence=recurrence, rng=0)
    begun = time.process_time()
    with pytest.raises(lc.InvalidSpec) as error:
        lc.forecast(lc.Task.from_samples(TRIALS, TRIALS.sum(axis=1)), network)
    assert error.value.field == "recurrence"
    assert time.process_time() - begun < 5
