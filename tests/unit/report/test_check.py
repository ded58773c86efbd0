"""Checks of forecasts by training: `learncast.check` and the command."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import learncast as lc
from learncast.cli import app
from learncast.study import Study

pytest.importorskip("torch")

from learncast.training import check as check_module

STUDY = """
name = "small"
[network]
hidden_size = 3
recurrence = 0.9
initial = 0.05
[training]
learning_rate = 0.004
batch = 300
accuracy = 0.95
[target]
family = "integration"
steps = 10
[[candidates]]
name = "stronger"
family = "integration"
steps = 10
target_strength = 1.6
"""


def run(*words: object) -> object:
    return CliRunner().invoke(app, ["check", *map(str, words)])


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> object:
        path = tmp_path / "study.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


DIRECT = STUDY.split("[[candidates]]")[0]


# --- learncast.check -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    target = lc.tasks.integration(steps=10, name="target")
    network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=3)
    return target, target.varied(target_strength=1.6, name="stronger"), network


def test_a_forecast_is_checked_by_training(small):
    target, _, network = small
    forecast = lc.forecast(target, network, learning_rate=0.01, goal=0.95)
    found = lc.check(forecast, seeds=3, processes=1)
    assert found.verdicts == {"direct training": "agrees"}
    assert (found.passed, found.seeds, found.batch, found.splits) == (True, 3, 1000, ())
    [curriculum] = found.curricula
    # Batches of 1,000 trials add noise of a few per cent to a count of full-batch steps.
    np.testing.assert_allclose(curriculum.measured, forecast.steps.descent, rtol=0.1)
    assert curriculum.batched.mean == pytest.approx(curriculum.measured.mean(), rel=0.05)
    assert found.dataset["measured_steps"].dims == ("plan", "seed")
    np.testing.assert_array_equal(found.dataset["measured_steps"].values[0], curriculum.measured)
    report = found.report()
    assert (report.kind, report.passed, report.values["accuracy"]) == ("check", True, 0.95)
    assert report.values["rows"][0]["measured_steps"] == curriculum.measured.tolist()


def test_a_plan_is_checked_directly_and_through_its_candidates(small):
    target, stronger, network = small
    plan = lc.plan(target, [stronger], network, lc.Training(0.01, batch=500), terms=lc.Terms(0.95))
    found = lc.check(plan, seeds=2, processes=1, tolerance=0.2)
    direct, curriculum = found.curricula
    assert list(found.verdicts) == [direct.name, curriculum.name]
    assert [c.forecast.tasks for c in found.curricula] == [(target,), (stronger, target)]
    assert curriculum.forecast.steps.descent == plan.total
    assert found.passed
    assert (found.batch, found.tolerance) == (500, 0.2)
    for c in found.curricula:
        np.testing.assert_allclose(c.measured, c.forecast.steps.descent, rtol=0.2)


@pytest.mark.parametrize("goal", [lc.Explained(0.95), lc.Loss(0.5), lc.R2(0.8)], ids=["explained", "loss", "r2"])
def test_a_forecast_of_a_loss_is_checked_by_that_loss(small, goal):
    target, _, network = small
    found = lc.check(lc.forecast(target, network, learning_rate=0.01, goal=goal), seeds=2, processes=1, tolerance=0.1)
    assert found.verdicts == {"direct training": "agrees"}


def test_only_forecasts_and_plans_are_checked(small):
    target, _, network = small
    forecast = lc.forecast(target, network, learning_rate=0.01)
    for call, field in (
        (lambda: lc.check("forecast"), "subject"),
        (lambda: lc.check(forecast, seeds=1), "seeds"),
        (lambda: lc.check(forecast, tolerance=-1.0), "tolerance"),
    ):
        with pytest.raises(lc.InvalidSpec) as caught:
            call()
        assert caught.value.field == field


@pytest.mark.slow_cases("1.0-many", "1.05-many", "0.95-many")
@pytest.mark.parametrize("repeats", [1, 20], ids=["once", "many"])
@pytest.mark.parametrize("off", [1.0, 1.05, 0.95])
def test_the_check_detects_a_5_percent_error_in_the_learning_rate(write, monkeypatch, off, repeats):
    """Of right forecasts 99% pass; training with another learning rate than forecast must fail."""
    study, job, passed = Study.load(write(DIRECT)), check_module._job, []
    forecast = lc.forecast(study.target, study.network, study.training, study.goal)
    for k in range(repeats):

        def changed(forecast, batch, seed, k=k):
            made = job(forecast, batch, seed + 10 * k)
            rate = made.training.learning_rate * off
            return replace(made, training=made.training.with_(learning_rate=rate))

        monkeypatch.setattr(check_module, "_job", changed)
        passed.append(lc.check(forecast, batch=study.batch, processes=1).passed)
    assert sum(one is (off == 1.0) for one in passed) >= 0.95 * repeats


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_candidate_is_trained_and_compared(write, tmp_path):
    result = run(write(STUDY), "--seeds", 3, "--processes", 1, "--tolerance", 0.2, "--json", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["agrees"] is True
    assert [row["plan"].split(" to ")[0] for row in found["rows"]] == ["direct training", '"stronger"']
    for row in found["rows"]:
        assert row["verdict"] in ("agrees", "cannot tell")
        assert len(row["measured_steps"]) == 3
        assert row["measured_mean"] == pytest.approx(np.mean(row["measured_steps"]))
        assert row["deviation"] == pytest.approx(row["measured_mean"] / row["predicted_descent_steps"] - 1)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"check.json", "check.nc", "check.png", "report.html", "study.toml"}


def test_the_table_has_a_row_for_each_curriculum(write):
    result = run(write(STUDY), "--seeds", 2, "--processes", 1, "--tolerance", 0.3)
    assert result.exit_code == 0, result.output
    for word in ("forecast", "trained", "deviation", "verdict", "direct training", "stronger", "exact"):
        assert word in result.stdout


def test_a_wrong_forecast_fails_the_check(write, monkeypatch):
    """Trained with two thirds of the learning rate of the forecast."""
    job = check_module._job

    def slower(forecast, batch, seed):
        made = job(forecast, batch, seed)
        return replace(made, training=made.training.with_(learning_rate=0.004))

    monkeypatch.setattr(check_module, "_job", slower)
    text = DIRECT.replace("learning_rate = 0.004", "learning_rate = 0.006")
    result = run(write(text), "--seeds", 2, "--processes", 1, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["agrees"] is False
    assert found["rows"][0]["deviation"] == pytest.approx(0.5, abs=0.1)


def test_a_plan_is_followed_on_trials_it_was_not_made_from(write, tmp_path):
    rng = np.random.default_rng(0)
    for name, slope in (("one", 1.0), ("two", 1.6)):
        x = rng.normal(size=(300, 4, 2))
        np.savez(tmp_path / f"{name}.npz", inputs=x, targets=slope * x.sum(axis=1) + 0.2 * rng.normal(size=(300, 2)))
    head = DIRECT.split("[target]")[0].replace("accuracy = 0.95", "explained = 0.96")
    text = head + '[target]\ndata = "one.npz"\n[[candidates]]\nname = "two"\ndata = "two.npz"\n'
    found = json.loads(run(write(text), "--seeds", 2, "--processes", 1, "--json").stdout)
    assert len(found["unseen"]) == 2
    for row in found["unseen"]:
        assert 0 < row["promised"] < 1
        assert 0 < row["plan_steps"] < row["direct_steps"]
    assert f"{found['unseen'][0]['plan_steps']:,.0f}" in found["summary"]


def test_a_check_without_enough_time_exits_with_2(write):
    result = run(write(DIRECT), "--processes", 1, "--seconds", 1e-3)
    assert result.exit_code == 2
    assert "seconds" in result.output


def test_a_start_without_modes_is_forecast_by_the_next_method_and_agrees(write, tmp_path):
    rng = np.random.default_rng(0)
    weights = {
        "input_weights": 0.4 * rng.standard_normal((2, 2)),
        "recurrent_weights": np.array([[0.2, 0.6], [-0.6, 0.2]]),
        "output_weights": 0.4 * rng.standard_normal((2, 2)),
    }
    np.savez(tmp_path / "net.npz", **weights)
    text = STUDY.split("[[candidates]]")[0].replace("learning_rate = 0.004", "learning_rate = 0.02")
    text = text.replace("hidden_size = 3\nrecurrence = 0.9\ninitial = 0.05", 'weights = "net.npz"')
    text = text.replace("steps = 10", "steps = 10\ntarget_strength = [1.0, 1.5]")
    found = json.loads(run(write(text), "--seeds", 2, "--processes", 1, "--json").stdout)
    assert found["agrees"] is True
    assert found["class"] == "integrated"


@pytest.mark.slow_cases("two-layer")
@pytest.mark.parametrize("kind", ["two-layer", "learned recurrence"])
def test_other_linear_networks_are_checked_by_their_loss(write, kind):
    if kind == "two-layer":
        text = (
            '[network]\nkind = "two-layer"\nhidden_size = 4\nscale = 0.2\n[training]\nlearning_rate = 0.02\n'
            'batch = 400\naccuracy = 0.8\n[target]\nfamily = "static"\ncross_correlation = [[1.5, 0.0], [0.0, 1.0]]\n'
        )
    else:
        text = STUDY.split("[[candidates]]")[0].replace(
            "accuracy = 0.95", 'accuracy = 0.6\nlearn = ["input", "recurrent", "output"]'
        )
    result = run(write(text), "--seeds", 3, "--processes", 1, "--tolerance", 0.2, "--json")
    assert result.exit_code == 0, result.output
    [row] = json.loads(result.stdout)["rows"]
    assert row["verdict"] in ("agrees", "cannot tell")


@pytest.mark.slow_cases("saddle")
@pytest.mark.parametrize(("kind", "seed"), [("saddle", 0), ("regular", 2)], ids=["saddle", "regular"])
def test_a_start_that_ends_on_a_saddle_is_not_called_a_difference(write, kind, seed):
    text = (
        f'[network]\nkind = "two-layer"\nhidden_size = 4\nscale = 0.2\nseed = {seed}\n[training]\n'
        'learning_rate = 0.02\nbatch = 400\naccuracy = 0.8\n[target]\nfamily = "static"\n'
        "cross_correlation = [[1.5, 0.0], [0.0, 1.0]]\n"
    )
    found = json.loads(run(write(text), "--seeds", 3, "--processes", 1, "--json").stdout)
    row = found["rows"][0]
    assert row["verdict"] == "agrees", found
    assert (row["predicted_flow_steps"] == "inf") is (kind == "saddle")


def test_bad_options_exit_with_2(write):
    for words in (("--network", "gelu"), ("--seeds", 1), ("--tolerance", -1)):
        result = run(write(STUDY), *words)
        assert result.exit_code == 2
        assert words[0].lstrip("-") in result.output
        assert "Traceback" not in result.output


def test_tasks_that_share_no_modes_are_trained_to_their_loss(write):
    study = """
    [network]
    hidden_size = 4
    recurrence = 0.8
    initial = 0.2
    [training]
    learning_rate = 0.01
    batch = 2000
    accuracy = 0.9
    [target]
    name = "goal"
    family = "integration"
    steps = 4
    mixing = [[1.0, 0.0], [0.0, 0.5]]
    [[candidates]]
    name = "turned"
    family = "integration"
    steps = 4
    mixing = [[1.842, -0.389], [0.779, 0.921]]
    """
    result = run(write(study), "--seeds", 2, "--processes", 1, "--tolerance", 0.1, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["class"] == "exact"
    assert found["agrees"] is True
    for row in found["rows"]:
        # At this learning rate descent and flow differ by a few steps.
        assert row["predicted_descent_steps"] == pytest.approx(row["predicted_flow_steps"], rel=0.03, abs=2)


def test_training_and_forecast_number_modes_alike():
    # The first task's strongest mode is the target's weakest.
    target = lc.tasks.integration(steps=4, target_strength=[3.0, 1.0], name="target")
    first = lc.tasks.integration(steps=4, target_strength=[1.0, 5.0], name="first")
    network = lc.LinearRNN.aligned(recurrence=0.8, initial=[0.1, 0.3], hidden_size=3, task=target)
    stages = [lc.Stage(first, steps=3), lc.Stage(target, steps=3)]
    forecast = lc.follow(stages, network, learning_rate=1e-3)
    run = lc.training.train(stages, network, lc.Training(1e-3, batch=5))
    assert run["strength"].values[0] == pytest.approx(forecast.modes[-1].start, rel=1e-12)
