"""Measured responses: statistics, intervals, solutions, and rejected arguments."""

from __future__ import annotations

import numpy as np
import pytest

import learncast as lc
from learncast._core.progress import until
from learncast.results import FORECAST_CLASSES
from learncast.theory import (
    Response,
    ResponseFlowSolution,
    ResponseModeSolution,
    bounds,
    interval,
    modes_of_responses,
    response,
    solve_response,
)

TASK = lc.tasks.integration(steps=10)
FEW = 2048


def relu(**changes):
    keywords = {"recurrence": 0.9, "initial": 0.1, "hidden_size": 3} | changes
    return lc.Activated(lc.LinearRNN.aligned(**keywords), "relu")


def many(activation="relu", units=4, outputs=1, recurrence=0.9):
    rng = np.random.default_rng(0)
    weights = (
        0.3 * rng.normal(size=(units, 1)),
        np.diag(np.full(units, recurrence)),
        0.3 * rng.normal(size=(outputs, units)),
    )
    return lc.Activated(lc.LinearRNN(*weights), activation)


def tanh(a=0.1):
    return lc.Activated(lc.LinearRNN([[a]], [[0.8]], [[0.1]]), "tanh")


def solved(start, *, task=TASK, rate=1e-3, trials=FEW):
    return solve_response(response(task, start, trials=trials), learning_rate=rate)


def rejected(field, call, error=lc.InvalidSpec):
    """Check that a call raises an error about this argument."""
    with pytest.raises(error) as caught:
        call()
    assert caught.value.field == field


# --- statistics -----------------------------------------------------------------------------------------------------


def test_measuring_stops_at_the_time_limit():
    with until(-np.inf), pytest.raises(lc.OutOfTime):
        response(TASK, relu(), trials=FEW)


def test_recorded_trials_are_averaged():
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(777, 5, 1)), rng.normal(size=(777, 2))
    found = response(lc.Task.from_samples(inputs, targets), many(outputs=2)).features
    for f, sign in enumerate((1.0, -1.0)):
        z = np.zeros(777)
        for t in range(5):
            z = np.maximum(0.9 * z + sign * inputs[:, t, 0], 0.0)
        np.testing.assert_allclose(found.cross[0, :, f], (targets * z[:, None]).mean(axis=0), rtol=1e-12)
        assert found.power[0, f, f] == pytest.approx((z**2).mean(), rel=1e-12)
    assert found.target_power[0] == pytest.approx((targets**2).sum(axis=1).mean(), rel=1e-12)


def test_groups_of_several_blocks_are_averaged(monkeypatch):
    monkeypatch.setattr("learncast.theory.responses.trials._BLOCK", 16)
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(3001, 3, 1))
    targets = inputs[:, -1]
    found = response(lc.Task.from_samples(inputs, targets), relu(recurrence=0.0)).features
    # without memory z = relu(x): E[y z] = E[x relu(x)]
    assert found.cross[0, 0, 0] == pytest.approx((targets * np.maximum(targets, 0)).mean(), rel=1e-12)


def test_statistics_have_resamples():
    found = response(TASK, relu(), trials=FEW, bootstrap=20)
    assert len(found.features.cross) == found.resamples + 1 == 21
    assert found.provenance.kind == "measured"


def test_equal_seeds_give_equal_noise_also_to_other_tasks():
    one, again, other = (response(TASK, relu(), trials=FEW, rng=seed).features for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.cross, again.cross)
    assert one.cross[0, 0, 0] != other.cross[0, 0, 0]
    # a target twice as large on the same inputs: the same noise to the last digits
    twice = response(lc.tasks.integration(steps=10, target_strength=2.0), relu(), trials=FEW).features
    np.testing.assert_allclose(twice.cross, 2 * one.cross, rtol=1e-9)
    generated = response(TASK, relu(), trials=FEW, rng=np.random.default_rng(3)).features
    assert generated.cross[0, 0, 0] != one.cross[0, 0, 0]


def test_control_variates_narrow_intervals():
    recorded = lc.Task.from_samples(*TASK.sample(2**14, np.random.default_rng(0)))
    plain = response(recorded, relu()).features
    sharp = response(TASK, relu(), trials=2**14).features
    assert np.ptp(bounds(sharp.cross[1:, 0, 0])) < 0.4 * np.ptp(bounds(plain.cross[1:, 0, 0]))
    np.testing.assert_allclose(sharp.target_power, TASK.target_power, rtol=1e-9)  # known exactly


def test_default_trials_give_intervals_below_one_per_cent():
    start = lc.Activated(lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4), "relu")
    times = solved(start, task=lc.tasks.integration(steps=50), trials=None).time_to(0.99)
    low, high = times.interval
    assert low < times.flow_steps < high
    assert high - low < 0.01 * times.flow_steps
    assert times.descent_interval.shape == (2, 1)
    assert f"({low:.6g} to {high:.6g})" in repr(times)


def test_bounds_of_infinite_and_nan_resamples():
    values = np.arange(200.0)
    np.testing.assert_allclose(bounds(values), np.quantile(values, [0.025, 0.975], method="weibull"))
    np.testing.assert_array_equal(bounds(np.full(20, np.inf)), [np.inf, np.inf])
    assert bounds(np.where(values > 150, np.inf, values))[1] == np.inf
    assert np.isnan(bounds(np.array([1.0, np.nan, 2.0]))).all()


def test_interval_is_symmetric_about_the_estimate():
    resamples = np.linspace(100, 140, 99)  # quantiles 101 and 139, median 120
    centre, width = 110, 120 / 101  # the longer tail is the lower
    np.testing.assert_allclose(interval(110.0, resamples), [centre / width, centre * width], rtol=0.01)
    np.testing.assert_allclose(interval(110.0, resamples, signed=True), [110 - 19, 110 + 19], rtol=0.01)
    np.testing.assert_allclose(interval(120.0, resamples, signed=True), bounds(resamples))  # neither bias nor skew
    late = np.where(np.arange(99) > 90, np.inf, resamples)  # some resamples never learn
    low, high = interval(110.0, late)
    assert np.isinf(high)
    assert low == pytest.approx(centre / width, rel=0.01)
    for estimate in (np.inf, np.nan):
        np.testing.assert_array_equal(interval(estimate, resamples), bounds(resamples))
    half = np.where(np.arange(99) < 60, np.inf, resamples)  # an infinite median
    np.testing.assert_array_equal(interval(110.0, half), bounds(half))
    np.testing.assert_array_equal(interval(0.0, np.zeros(99)), [0, 0])
    assert np.isnan(interval(1.0, np.full(9, np.nan))).all()
    both = interval(np.array([110.0, 120.0]), np.stack([resamples, resamples], axis=1))
    np.testing.assert_array_equal(both, np.stack([interval(110.0, resamples), interval(120.0, resamples)], axis=1))


@pytest.mark.parametrize("weight", [0.0, 1e-9, 0.1, -0.3, 2.0, -5.0])
def test_the_moments_of_one_weight_are_those_among_several(weight):
    table = response(TASK, tanh(), trials=FEW, bootstrap=5).statistics
    one, several = (table.moments(np.full(n, weight), 0) for n in (1, 2))
    for alone, among in zip(one, several, strict=True):
        assert alone.shape == (1, *among.shape[1:])
        assert alone[0] == pytest.approx(among[0], rel=1e-12)


# --- solutions -------------------------------------------------------------------------------------------------------


def test_one_response_has_a_closed_form():
    solution = solved(relu())
    assert isinstance(solution, ResponseModeSolution)
    assert solution.forecast_class == "response"
    assert "response" in FORECAST_CLASSES
    assert "Gaussian" in solution.remarks[0]
    assert solution.provenance.seed == 0
    assert isinstance(solution.network_at(10), lc.Activated)


def test_several_responses_and_tanh_units_are_integrated():
    for start in (many(), many(outputs=1, units=2), tanh()):
        solution = solved(start, trials=256)
        assert isinstance(solution, ResponseFlowSolution)
        assert solution.forecast_class == "response"


def test_a_unit_that_changes_its_response_is_integrated():
    # |c| > |a| with the wrong sign: the input weight passes through 0
    crossing = lc.Activated(lc.LinearRNN([[0.1]], [[0.9]], [[-0.5]]), "relu")
    solution = solved(crossing)
    assert isinstance(solution, ResponseFlowSolution)
    assert solution.network_at(np.inf).network.input_weights[0, 0] < 0
    with pytest.raises(lc.AssumptionViolated) as caught:
        lc.plan(TASK, [], crossing, learning_rate=1e-3, terms=lc.Terms(max_stages=1), method="modes")
    assert caught.value.assumption == "one_response"
    # |a| > |c|: the output weight passes through 0, and the response stays
    kept = lc.Activated(lc.LinearRNN([[0.5]], [[0.9]], [[-0.1]]), "relu")
    assert isinstance(solved(kept), ResponseModeSolution)


@pytest.mark.slow_cases("tanh")
@pytest.mark.parametrize("start", [many(), tanh()], ids=["both signs", "tanh"])
def test_integrated_resamples_have_the_same_spread(start, monkeypatch):
    task = lc.tasks.leaky_integration(steps=4, timescale=2.0, gain=0.8)
    solution = solve_response(response(task, start, trials=FEW, bootstrap=20), learning_rate=2e-2)
    together = solution.time_to(0.6)
    monkeypatch.setattr("learncast.theory.responses.solution.MOST_RESAMPLE_STEPS", 0)
    integrated = solution.time_to(0.6)
    assert integrated.flow_steps == together.flow_steps
    # descent in steps of 0.05 / curvature against a flow integrated to 1e-6: their shifts cancel but for a few per cent
    np.testing.assert_allclose(integrated.interval, together.interval, rtol=0, atol=0.1 * np.ptp(together.interval))


def test_a_task_that_is_never_learned_has_infinite_times():
    against = lc.Activated(lc.LinearRNN([[0.1]], [[0.9]], [[-0.1]]), "relu")  # balanced: decays to 0
    times = solved(against).time_to(0.9)
    assert (times.flow_steps, times.status) == (np.inf, lc.Status.not_learned)
    assert times.interval == (np.inf, np.inf)


def test_divergent_descent_has_infinite_steps():
    with pytest.raises(lc.AssumptionViolated) as caught:
        lc.forecast(TASK, relu(), learning_rate=1.0)
    assert caught.value.assumption == "stable_learning_rate"
    times = solved(many(), rate=1.0).time_to(0.9)
    assert times.status is lc.Status.diverged
    assert times.descent_steps == np.inf


def test_linear_networks_have_no_intervals():
    network = lc.LinearRNN.aligned(recurrence=0.9, hidden_size=3)
    forecast = lc.forecast(TASK, network, goal=0.9, learning_rate=1e-3)
    assert forecast.solution.time_to(0.9).interval is None
    assert forecast.steps.interval is forecast.direct.interval is forecast.stages[0].steps.interval is None
    assert not [name for name in forecast.dataset if name.endswith(("_low", "_high"))]


# --- curricula, plans, portraits ------------------------------------------------------------------------------------

STRONG = lc.tasks.integration(steps=10, target_strength=2.0, name="strong")
LEAKY = lc.tasks.leaky_integration(steps=10, timescale=6.0, gain=2.0, name="leaky")


def test_curriculum_has_intervals():
    found = lc.follow([lc.Stage(LEAKY, 0.3), lc.Stage(TASK, 0.99)], relu(), learning_rate=1e-3)
    assert found.forecast_class == "response"
    for steps in (found.steps, found.saving, found.direct):
        low, high = steps.interval
        assert low <= steps.descent <= high
        assert high - low < 0.05 * abs(steps.descent)
    data = found.dataset
    assert float(data["total_low"]) == found.steps.low
    assert data["steps_high"].shape == (2,)
    first = found.stages[0].steps
    assert first.low <= first.descent <= first.high
    assert found.explanation is not None


def test_shared_noise_narrows_the_interval_of_a_saving():
    found = lc.follow([lc.Stage(STRONG, 0.3), lc.Stage(TASK, 0.99)], relu(), learning_rate=1e-3)
    apart = np.ptp(found.steps.interval) + np.ptp(found.direct.interval)
    assert np.ptp(found.saving.interval) < 0.5 * apart


def test_intervals_are_wide_if_the_first_task_ends_on_the_target_s_optimum():
    start = relu()
    first, target = modes_of_responses(start, [LEAKY, TASK])
    singular = float(target.optimum[0] / first.optimum[0])
    assert 0 < singular < 0.9
    widths = []
    for away in (0.1, 0.0):
        stages = [lc.Stage(LEAKY, singular + away), lc.Stage(TASK, 0.9999)]
        widths.append(np.ptp(lc.follow(stages, start, learning_rate=1e-3).steps.interval))
    assert widths[1] > 10 * widths[0]


def test_plan_has_intervals_and_is_reproducible():
    found = lc.plan(TASK, [STRONG, LEAKY], relu(), learning_rate=1e-3)
    assert found.forecast_class == "response"
    assert found.interval[0] <= found.total <= found.interval[1]
    data = found.dataset
    assert bool((data["steps_low"] <= data["descent_steps"]).all())
    assert bool((data["descent_steps"] <= data["steps_high"]).all())
    assert {"saving_low", "direct_steps_high"} <= set(data.data_vars)
    again = lc.plan(TASK, [STRONG, LEAKY], relu(), learning_rate=1e-3)
    assert again.dataset.identical(data)


def test_portrait_has_the_steps_of_followed_stages():
    keywords = {"vary": "target_strength", "values": [0.5, 2.0], "accuracies": [0.3, 0.9], "learning_rate": 1e-3}
    found = lc.phase(TASK, relu(), **keywords)
    stages = [lc.Stage(TASK.varied(target_strength=2.0), 0.3), lc.Stage(TASK, 0.99)]
    followed = lc.follow(stages, relu(), learning_rate=1e-3)
    assert float(found["total_steps"][1, 0]) == pytest.approx(followed.steps.flow, rel=1e-12)


SHORT = lc.tasks.leaky_integration(steps=4, timescale=2.0, gain=0.8, name="short")
LONGER = lc.tasks.leaky_integration(steps=4, timescale=3.0, gain=0.5, name="longer")
BOTH_KINDS = pytest.mark.parametrize(
    "start", [many(), pytest.param(tanh(), marks=pytest.mark.slow)], ids=["both signs", "tanh"]
)


@BOTH_KINDS
def test_an_integrated_curriculum_agrees_with_its_parts(start):
    direct = lc.forecast(LONGER, start, goal=0.7, learning_rate=2e-2)
    assert direct.method.name == "responses"
    time = direct.solution.time_to(0.7)
    assert (direct.steps.flow, direct.steps.descent) == (time.flow_steps, time.descent_steps)
    assert direct.saving.descent == 0
    found = lc.follow([lc.Stage(SHORT, 0.5), lc.Stage(LONGER, 0.7)], start, learning_rate=2e-2)
    assert found.forecast_class == "response"
    assert found.steps.status is lc.Status.ok
    assert found.steps.low <= found.steps.descent <= found.steps.high
    assert abs(found.steps.flow - found.steps.descent) < 0.05 * found.steps.flow
    trajectory = found.at([0.0, found.stages[0].steps.flow, found.steps.flow])
    assert list(trajectory["stage"].values) == [0, 0, 1]
    assert found.stages[0].accuracy == pytest.approx(0.5, abs=1e-6)
    by_steps = lc.follow([lc.Stage(SHORT, steps=20), lc.Stage(LONGER, 0.7)], start, learning_rate=2e-2)
    assert by_steps.stages[0].steps.flow == by_steps.stages[0].steps.descent == 20
    assert by_steps.steps.low <= by_steps.steps.descent <= by_steps.steps.high


# --- rejected arguments -----------------------------------------------------------------------------------------------


@BOTH_KINDS
def test_portraits_by_modes_need_one_response_and_others_follow_stages(start):
    grid = {"vary": "gain", "values": [0.8], "accuracies": [0.5], "learning_rate": 2e-2, "goal": 0.7}
    with pytest.raises(lc.UnsupportedModel):
        lc.phase(LONGER, start, **grid, method="modes")
    found = lc.phase(LONGER, start, **grid)
    assert found.attrs["method"] == "responses"
    assert found.attrs["forecast_class"] == "response"
    stages = [lc.Stage(LONGER.varied(gain=0.8, name="first"), 0.5), lc.Stage(LONGER, 0.7)]
    followed = lc.follow(stages, start, learning_rate=2e-2)
    assert found["total_steps"].item() == pytest.approx(followed.steps.flow, rel=1e-6)
    assert found["total_descent_steps"].item() == followed.steps.descent
    assert found["direct_descent_steps"].item() == followed.direct.descent


def test_networks_without_fixed_responses_are_rejected():
    wide = lc.Activated(lc.LinearRNN.aligned(inputs=2, outputs=2, hidden_size=3), "relu")
    coupled = lc.Activated(lc.LinearRNN([[1.0], [1.0]], [[0.5, 0.1], [0.0, 0.5]], [[1.0, 1.0]]), "relu")
    layered = lc.Activated(lc.TwoLayer([[1.0]], [[1.0]]), "relu")
    silent = lc.Activated(lc.LinearRNN([[0.0]], [[0.5]], [[1.0]]), "relu")
    for network in (many("tanh", units=2), wide, coupled, layered, lc.LinearRNN.aligned(hidden_size=3)):
        rejected("network", lambda n=network: response(TASK, n), lc.UnsupportedModel)
    rejected("network", lambda: response(TASK, silent))
    for network in (many("tanh", units=2), coupled, layered):
        rejected("network", lambda n=network: lc.forecast(TASK, n, learning_rate=1e-3), lc.UnsupportedModel)
    two_channels = lc.tasks.integration(steps=4, input_strength=[1.0, 2.0])
    rejected("network", lambda: lc.forecast(two_channels, wide, learning_rate=1e-3), lc.UnsupportedModel)
    rejected("task", lambda: response(two_channels, relu()), lc.UnsupportedModel)


@pytest.mark.parametrize(
    ("task", "keywords", "field"),
    [
        (lc.Task.from_samples(np.ones((3, 4, 1)), np.ones((3, 1))), {"trials": 5}, "trials"),
        (lc.Task.from_samples(np.ones((3, 4, 1)), np.ones((3, 2))), {}, "task"),
        (TASK, {"trials": 1}, "trials"),
        (TASK, {"bootstrap": 1}, "bootstrap"),
        (TASK, {"rng": -1}, "rng"),
    ],
)
def test_arguments_of_a_measurement_are_checked(task, keywords, field):
    rejected(field, lambda: response(task, relu(), **keywords), lc.LearncastError)


def test_a_recurrence_that_overflows_is_rejected():
    rejected("recurrence", lambda: response(lc.tasks.integration(steps=400), relu(recurrence=10.0), trials=FEW))


def test_responses_serve_networks_with_other_weights():
    with pytest.raises(lc.InvalidSpec):
        lc.forecast(TASK, relu(), lc.Training(1e-3, learn=("recurrent",)))
    found = response(TASK, relu(), trials=FEW)
    later = solve_response(found, learning_rate=1e-3).network_at(50)
    moved = found.moved(later)
    assert isinstance(moved, Response)
    assert moved.features is found.features
    rejected("learning_rate", lambda: solve_response(found, learning_rate=0.0))


@pytest.mark.slow_cases("tanh")
@pytest.mark.parametrize(("network", "rate"), [(many(), 2e-2), (tanh(), 3e-3)], ids=["relu", "tanh"])
def test_long_descent_is_counted_by_the_modified_equation(network, rate, monkeypatch):
    found = response(TASK, network, trials=FEW, bootstrap=2)
    one_by_one = solve_response(found, learning_rate=rate).time_to(0.6)
    monkeypatch.setattr("learncast.theory.responses.solution.TRIED", 20)
    integrated = solve_response(found, learning_rate=rate).time_to(0.6)
    assert one_by_one.descent_steps > 10
    assert abs(integrated.descent_steps - one_by_one.descent_steps) <= 1
