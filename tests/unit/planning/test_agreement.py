"""Agreement of theory and training, and rehearsals of curricula."""

from __future__ import annotations

import numpy as np
import pytest

import learncast as lc
from learncast.planning.agreement import agreement, convergence_order, rehearse
from learncast.results import Provenance, Trajectory

RATE = 1e-3


@pytest.fixture(scope="module")
def task():
    return lc.tasks.integration(steps=20, name="target")


@pytest.fixture(scope="module")
def network():
    return lc.LinearRNN.aligned(recurrence=0.9, initial=0.02, hidden_size=4)


def shifted(trajectory: Trajectory, by: float) -> Trajectory:
    dataset = trajectory.dataset.copy(deep=True)
    dataset["strength"] = dataset["strength"] + by
    return Trajectory(dataset, Provenance("training"))


def test_a_known_deviation_is_found_with_its_interval(task, network):
    solution = lc.forecast(task, network, learning_rate=RATE).solution
    exact = solution.at(np.arange(50.0))
    runs = [shifted(exact, by) for by in (0.1, 0.2, 0.3)]
    found = agreement(solution, runs)
    np.testing.assert_allclose(found["strength_deviation"], 0.2, atol=1e-12)
    # mean of three numbers 0.1 apart: 4.303 (t, 2 degrees of freedom, 97.5%) times 0.1 / sqrt(3)
    half = 4.302652729911275 * 0.1 / np.sqrt(3)
    np.testing.assert_allclose(found["strength_deviation_high"] - found["strength_deviation"], half, rtol=1e-9)
    largest = 0.2 / float(np.abs(exact["strength"]).max())
    assert float(found["strength_largest"]) == pytest.approx(largest)
    assert found["strength_deviation"].attrs["units"] == "1"
    assert float(found["loss_largest"]) == 0.0


def test_one_run_has_no_interval_and_shorter_runs_count_while_they_last(task, network):
    solution = lc.forecast(task, network, learning_rate=RATE).solution
    long, short = solution.at(np.arange(30.0)), solution.at(np.arange(10.0))
    alone = agreement(solution, long)
    assert np.isnan(alone["strength_deviation_low"]).all()
    both = agreement(solution, [shifted(long, 0.1), shifted(short, 0.3)])
    np.testing.assert_allclose(both["strength_deviation"].values[:10], 0.2, atol=1e-12)
    np.testing.assert_allclose(both["strength_deviation"].values[10:], 0.1, atol=1e-12)


def test_steps_to_an_accuracy_are_compared(task, network):
    solution = lc.forecast(task, network, learning_rate=RATE).solution
    when = solution.time_to(0.95)
    run = solution.at(np.arange(np.ceil(when.flow_steps) + 20))
    found = agreement(solution, [run, run], accuracy=0.95)
    # the first whole step inside the band
    assert float(found["measured_mean"]) == np.ceil(when.flow_steps)
    assert float(found["measured_sd"]) == 0.0
    assert float(found["predicted_steps"]) == pytest.approx(when.flow_steps)
    expected = np.ceil(when.flow_steps) / when.descent_steps - 1
    assert float(found["steps_deviation"]) == pytest.approx(expected)
    never = agreement(solution, solution.at(np.arange(3.0)), accuracy=0.95)
    assert np.isinf(float(never["measured_mean"]))
    assert np.isnan(float(never["steps_deviation"]))


def test_agreement_refuses_what_cannot_be_compared(task, network):
    solution = lc.forecast(task, network, learning_rate=RATE).solution
    with pytest.raises(lc.InvalidSpec, match="Trajectory"):
        agreement(solution, [])
    with pytest.raises(lc.InvalidSpec, match="Trajectory"):
        agreement(solution, [3])
    # a run of which nothing was recorded
    alien = Trajectory(solution.at([0.0]).dataset[["strength", "loss", "excess_loss"]] * np.nan, Provenance("training"))
    with pytest.raises(lc.SchemaMismatch, match="share a quantity"):
        agreement(solution, alien)
    with pytest.raises(lc.InvalidSpec, match="Solution or a Curriculum"):
        agreement(solution.at([0.0]), solution.at([0.0]), accuracy=0.9)


def test_the_order_of_convergence_is_the_slope():
    found = convergence_order(lambda rate: 3 * rate**1.5, [1e-3, 2e-3, 4e-3])
    assert found.order == pytest.approx(1.5)
    assert found.standard_error == pytest.approx(0.0, abs=1e-9)
    assert np.isnan(convergence_order(lambda rate: 0.0, [1e-3, 2e-3, 4e-3]).order)
    for rates in ([1e-3, 2e-3], [1e-3, 1e-3, 2e-3], [1e-3, -1e-3, 2e-3]):
        with pytest.raises(lc.InvalidSpec, match="three different"):
            convergence_order(lambda rate: rate, rates)


def test_descent_closes_on_the_flow_with_order_one(task, network):
    def gap(rate: float) -> float:
        steps = round(0.05 / rate)
        run = lc.descend(task, network, learning_rate=rate, steps=steps)
        end = lc.solve(task, network, learning_rate=rate).at([steps])
        return float(np.abs(run.strength[-1] - end["strength"].values[0]).max())

    # Euler's method; the second-order term is the rate times the sharpness, 3% here at most.
    assert convergence_order(gap, [1e-3, 5e-4, 2.5e-4]).order == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("stages", [("target",), ("first", "target"), ("steps", "target")])
def test_a_rehearsal_finds_what_the_closed_form_says(task, network, stages):
    first = task.varied(target_strength=1.6, name="first")
    known = {
        "first": lc.Stage(first, goal=0.6),
        "steps": lc.Stage(first, steps=70),
        "target": lc.Stage(task, goal=0.98),
    }
    curriculum = [known[name] for name in stages]
    theory = lc.follow(curriculum, network, learning_rate=RATE)
    flowed = rehearse(curriculum, network, learning_rate=RATE, by="flow")
    # the flow is integrated to 1e-11 or so; a step is 1e-3 of a time that strengths change over in hundreds
    np.testing.assert_allclose(flowed.stage_steps, [o.steps.flow for o in theory.stages], rtol=1e-6)
    descended = rehearse(curriculum, network, learning_rate=RATE, by="descent")
    # the first-order count of descent steps is right to one step
    np.testing.assert_allclose(descended.stage_steps, [o.steps.descent for o in theory.stages], atol=1.0)
    assert flowed.status is descended.status is lc.Status.ok


def test_a_rehearsal_that_never_ends_says_so(task):
    silent = lc.LinearRNN.aligned(recurrence=0.9, initial=0.0, hidden_size=4)
    stages = [lc.Stage(task, goal=0.9), lc.Stage(task, goal=0.99)]
    for by in ("flow", "descent"):
        found = rehearse(stages, silent, learning_rate=RATE, by=by, most_steps=1000)
        assert found.steps == np.inf
        assert np.isnan(found.stage_steps[1])
        assert found.status is lc.Status.not_learned
    started = lc.LinearRNN.aligned(recurrence=0.9, initial=0.02, hidden_size=4)
    diverged = rehearse([lc.Stage(task, goal=0.99)], started, learning_rate=10.0, by="descent")
    assert diverged.status is lc.Status.diverged
    with pytest.raises(lc.InvalidSpec, match="by must be one of"):
        rehearse(stages, silent, learning_rate=RATE, by="guess")
