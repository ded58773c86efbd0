"""Solutions: the time range of plots, valid times and optimal strengths."""

from __future__ import annotations

import numpy as np
import pytest

import learncast as lc
from learncast import InvalidSpec, Status
from learncast.theory import LearningTime, checked_times


@pytest.mark.parametrize(
    ("steps", "horizon"), [([8.0, 4.0], 10.0), ([0.4, np.inf], 0.5), ([np.inf, np.nan], 1000.0), ([0.0, 0.0], 1000.0)]
)
def test_plots_extend_beyond_the_slowest_learned_mode(steps, horizon):
    times = np.array(steps)
    assert LearningTime(0.9, times, times, (Status.ok, Status.ok)).horizon == pytest.approx(horizon, rel=1e-15)


@pytest.mark.parametrize(
    ("times", "value"),
    [([[0.0, 1.0]], "(1, 2)"), ([2.0, -3.0, -4.0], "-3"), ([1.0, np.nan], "nan"), ("soon", "'soon'")],
)
def test_invalid_times_raise_and_name_the_value(times, value):
    with pytest.raises(InvalidSpec) as error:
        checked_times(times)
    assert error.value.field == "times"
    assert value in str(error.value)


def test_a_flow_ends_at_the_optimum():
    task = lc.tasks.static(np.diag([2.0, 1.0]))
    network = lc.TwoLayer.balanced(2, 2, 2, scale=0.3, rng=np.random.default_rng(0))
    flow = lc.forecast(task, network, learning_rate=0.01, method="flow").solution
    np.testing.assert_allclose(np.sort(flow.optimum), [1.0, 2.0], rtol=1e-6)


@pytest.mark.parametrize(("strengths", "number"), [(1.0, "1 mode,"), ([2.0, 1.0], "2 modes,")])
def test_repr_counts_the_modes(strengths, number):
    task = lc.tasks.integration(3, target_strength=strengths)
    network = lc.LinearRNN.aligned(recurrence=0.5, initial=0.1, hidden_size=2, task=task)
    assert number in repr(lc.forecast(task, network, learning_rate=0.01).solution.modes)


@pytest.mark.parametrize(("by", "forecast_class"), [("modes", "outside"), ("flow", "integrated")])
def test_forecast_class_with_an_unstable_learning_rate(by, forecast_class):
    network = lc.LinearRNN.aligned(recurrence=0.5, initial=0.1, hidden_size=2)
    solution = lc.forecast(lc.tasks.integration(3), network, learning_rate=10.0, method=by, strict=False).solution
    assert not solution.holds
    assert solution.forecast_class == forecast_class


@pytest.mark.parametrize("by", ["modes", "flow", "pooled"])
def test_time_to_loss_needs_a_positive_tolerance(by):
    network = lc.LinearRNN.aligned(recurrence=0.5, initial=0.1, hidden_size=2)
    with pytest.raises(InvalidSpec) as error:
        lc.forecast(lc.tasks.integration(3), network, learning_rate=0.01, method=by).solution.time_to_loss(0.0)
    assert error.value.field == "tolerance"


def test_the_optimum_of_a_short_descent_is_that_of_the_task():
    task = lc.tasks.integration(steps=50)
    network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    run = lc.descend(task, network, learning_rate=1e-3, steps=3)
    known = lc.forecast(task, network, learning_rate=1e-3).solution.optimum
    np.testing.assert_allclose(run.optimum, known, rtol=1e-9)  # least squares against a quotient of sums
