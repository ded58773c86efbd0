"""A saddle at which the flow rests does not stop descent: counts against plain descent on matrices."""

import math

import numpy as np
import pytest

import learncast as lc

TARGET = np.array([[1.1129, -0.5581], [0.7482, 1.0299]])


def steps_of(target, first, second, rate, share, most=200_000):
    """Steps of plain descent on white inputs until the excess loss is a share of the baseline; and the weights."""
    goal = share * (target**2).sum()
    for n in range(most):
        gap = target - second @ first
        if (gap**2).sum() <= goal:
            return n, first, second
        first, second = first + rate * second.T @ gap, second + rate * gap @ first.T
    return math.inf, first, second


def saddled(size=2, hidden=2, scale=0.3990145091862194, seed=69):
    return lc.TwoLayer.balanced(size, hidden, size, scale=scale, rng=seed)


@pytest.mark.parametrize("method", ["auto", "two-layer", "pooled"])
@pytest.mark.parametrize("rate", [0.0812, 0.01, 1e-3])
def test_finite_steps_leave_a_saddle_of_the_flow(method, rate):
    network = saddled()
    found = lc.forecast(lc.tasks.static(TARGET), network, learning_rate=rate, goal=lc.Accuracy(0.9), method=method)
    true = steps_of(TARGET, network.first, network.second, rate, 0.1**2)[0]
    assert (found.steps.descent, found.steps.status) == (true, lc.Status.ok)
    if method == "auto":
        assert found.method.name == "two-layer"
        assert found.steps.flow == found.solution.time_to(0.9).flow_steps == math.inf
        assert found.solution.time_to(0.9).descent_steps == true


@pytest.mark.parametrize("seed", range(8))
def test_balanced_starts_are_counted_whether_or_not_the_flow_rests_at_a_saddle(seed):
    rng = np.random.default_rng(seed)
    target, network = rng.normal(size=(3, 3)), lc.TwoLayer.balanced(3, 3, 3, scale=0.3, rng=seed)
    found = lc.forecast(lc.tasks.static(target), network, learning_rate=0.02, goal=lc.Accuracy(0.95))
    assert found.steps.descent == steps_of(target, network.first, network.second, 0.02, 0.05**2)[0]


def test_never_is_said_where_it_is_proved_for_descent():
    task = lc.tasks.static(np.diag([1.0, 0.5]))
    opposed = lc.TwoLayer(0.3 * np.eye(2), np.diag([0.3, -0.3]))
    silent = lc.TwoLayer(np.array([[0.3, 0.0], [0.1, 0.0]]), np.array([[0.3, 0.1], [0.0, 0.0]]))
    narrow = lc.TwoLayer(np.array([[0.3, 0.2], [0.0, 0.0]]), np.array([[0.2, 0.0], [0.3, 0.0]]))
    for network in (opposed, silent, narrow):
        for method in ("auto", "pooled"):
            steps = lc.forecast(task, network, learning_rate=0.05, goal=lc.Accuracy(0.9), method=method).steps
            assert (steps.descent, steps.status) == (math.inf, lc.Status.not_learned)
        assert steps_of(np.diag([1.0, 0.5]), network.first, network.second, 0.05, 0.1**2, 400)[0] == math.inf


def test_descent_that_does_not_leave_a_saddle_in_time_is_not_called_never():
    task = lc.tasks.static(TARGET)
    found = lc.forecast(task, saddled(), learning_rate=1e-7, goal=lc.Accuracy(0.9), method="two-layer")
    steps = found.steps
    assert (steps.status, math.isnan(steps.descent), math.isnan(steps.value)) == (lc.Status.not_within, True, True)
    assert steps.loss == pytest.approx(found.solution.at([steps.tried])["loss"].values[0], rel=1e-5)


def test_descent_that_diverges_from_a_saddle_is_not_called_never():
    steps = lc.forecast(
        lc.tasks.static(TARGET), saddled(), learning_rate=3.0, goal=lc.Accuracy(0.9), strict=False
    ).steps
    assert (steps.descent, steps.status) == (math.inf, lc.Status.diverged)


@pytest.mark.parametrize("seed", [0, 69])
def test_a_stage_to_convergence_ends_where_descent_rests(seed):
    network, second = saddled(seed=seed), np.array([[0.3, 1.1], [0.9, -0.2]])
    stages = [lc.Stage(lc.tasks.static(TARGET), steps=math.inf), lc.Stage(lc.tasks.static(second), lc.Accuracy(0.9))]
    found = lc.follow(stages, network, learning_rate=0.05)
    _, *weights = steps_of(TARGET, network.first, network.second, 0.05, 1e-24)
    assert found.stages[1].steps.descent == steps_of(second, *weights, 0.05, 0.1**2)[0]


def test_a_plan_from_a_saddle_counts_descent():
    network, rate = saddled(), 0.0812
    pool = [lc.tasks.static(1.5 * TARGET, name="strong"), lc.tasks.static(TARGET * [1.0, 0.2], name="weak")]
    terms = lc.Terms(goal=lc.Accuracy(0.9))
    plan = lc.plan(lc.tasks.static(TARGET), pool, network, learning_rate=rate, terms=terms)
    first, last = (stage.steps.descent for stage in plan.best.stages)
    assert plan.direct.descent == steps_of(TARGET, network.first, network.second, rate, 0.1**2)[0]
    assert plan.best.stages[0].task.name == "strong"
    _, *weights = steps_of(1.5 * TARGET, network.first, network.second, rate, 0.0, most=int(first))
    assert last == steps_of(TARGET, *weights, rate, 0.1**2)[0]
    assert plan.saving == plan.direct.descent - first - last > 0
