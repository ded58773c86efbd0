"""Methods: losses, accuracies, modes and step counts, against plain numpy and numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

import learncast as lc
from learncast import tasks
from learncast.planning.methods import linear
from learncast.theory import PooledDescent, modes

RATE = 0.01


def static(cross, variance=2.0, name="task"):
    """A task of white input of some variance."""
    cross = np.asarray(cross, dtype=float)
    return lc.tasks.static(cross, variance * np.eye(cross.shape[1]), name=name)


def method_of(pool, network, name):
    return lc.planning.method_for(pool, network, RATE, method=name)


@pytest.mark.parametrize("name", ["pooled", "two-layer", "flow"])
def test_accuracy_is_one_minus_the_root_of_the_share_of_the_excess_loss(name):
    rng = np.random.default_rng(0)
    cross, network = rng.normal(size=(2, 3)), lc.TwoLayer.balanced(3, 2, 2, scale=0.5, rng=rng)
    method = method_of([static(cross, name="goal")], network, name)
    best, map_ = cross / 2.0, network.second @ network.first
    excess, baseline = (2.0 * np.sum(gap**2) / 2 for gap in (map_ - best, best))
    start = method.start[None]
    assert method.excess_loss(0, start) == pytest.approx([excess], rel=1e-12)
    assert method.baseline_loss(0) == pytest.approx(baseline, rel=1e-12)
    assert method.accuracy(0, start) == pytest.approx([1 - np.sqrt(excess / baseline)], rel=1e-12)
    goals = {
        lc.Accuracy(0.9): 0.01 * baseline,
        lc.Explained(0.9): 0.1 * baseline,
        lc.Loss(9.0): 9.0 - method.least_loss(0),
    }
    for goal, limit in goals.items():
        assert method.goal_excess(0, goal) == pytest.approx(limit, rel=1e-9)
        assert method.goal_loss(0, goal) - method.least_loss(0) == pytest.approx(limit, rel=1e-9)
        assert goal.text in method.goal_text(0, goal)
    np.testing.assert_allclose(method.network_of(method.start).second, network.second, atol=1e-14)


@pytest.mark.parametrize("name", ["pooled", "two-layer", "flow"])
def test_a_network_at_the_optimum_has_accuracy_one(name):
    cross = np.random.default_rng(0).normal(size=(2, 3))
    left, strengths, right = np.linalg.svd(cross / 2.0, full_matrices=False)
    there = lc.TwoLayer(np.sqrt(strengths)[:, None] * right, left * np.sqrt(strengths))
    method = method_of([static(cross, name="goal")], there, name)
    assert method.accuracy(0, method.start[None]) == pytest.approx([1.0], abs=1e-7)
    learned = method.learned(0, lc.Accuracy(0.999))(np.stack([there.function, 0.9 * there.function]))
    assert learned.tolist() == [True, False]


@pytest.mark.parametrize("name", ["pooled", "flow"])
def test_a_task_without_targets_is_always_learned(name):
    network = lc.TwoLayer.random(2, 2, 2, scale=0.5, rng=np.random.default_rng(0))
    method = method_of([static(np.zeros((2, 2)), name="nothing"), static(np.eye(2), name="goal")], network, name)
    assert method.accuracy(0, method.start[None]) == [1.0]


@pytest.mark.parametrize(
    ("network", "names"),
    [
        (
            lc.TwoLayer.balanced(2, 2, 2, scale=0.1, rng=np.random.default_rng(0)),
            ("modes", "deep", "responses", "descent"),
        ),
        (
            lc.Deep.random(2, [2, 2], 2, scale=0.1, rng=0),
            ("modes", "two-layer", "pooled", "flow", "responses", "descent"),
        ),
        (
            lc.Activated(lc.LinearRNN([[0.1]], [[0.5]], [[0.1]]), "relu"),
            ("two-layer", "pooled", "deep", "flow", "descent"),
        ),
    ],
)
def test_a_method_that_does_not_fit_the_network_is_refused(network, names):
    task = static(np.eye(2)) if network.inputs == 2 else lc.tasks.integration(steps=5)
    for name in names:
        with pytest.raises(lc.InvalidSpec) as caught:
            method_of([task], network, name)
        assert caught.value.field == "method"


def test_a_task_is_found_in_the_pool_by_its_statistics():
    one, other = static(np.eye(2), name="one"), static(2 * np.eye(2), name="other")
    network = lc.TwoLayer.balanced(2, 2, 2, scale=0.1, rng=np.random.default_rng(0))
    method = method_of([one, other], network, "two-layer")
    assert [method.place(task) for task in (one, other)] == [0, 1]
    assert method.place(static(2 * np.eye(2), name="other")) == 1
    with pytest.raises(lc.InvalidSpec) as caught:
        method.place(static(3 * np.eye(2), name="third"))
    assert caught.value.field == "task"


def test_modes_of_two_layers_are_in_the_units_of_the_task():
    rng = np.random.default_rng(1)
    cross = np.linalg.qr(rng.normal(size=(3, 3)))[0] @ np.diag([3.0, 1.0, 0.5])
    network = lc.TwoLayer.balanced(3, 3, 3, scale=0.1, rng=rng)
    rows = method_of([static(cross, variance=0.5)], network, "two-layer").mode_rows(0, lc.Accuracy(0.9))
    np.testing.assert_allclose([row["weighted_cross"] for row in rows], [3.0, 1.0, 0.5], rtol=1e-12)
    np.testing.assert_allclose([row["weighted_input"] for row in rows], 0.5, rtol=1e-12)
    np.testing.assert_allclose([row["optimum"] for row in rows], [6.0, 2.0, 1.0], rtol=1e-12)


def test_pooled_states_are_the_hidden_directions_that_the_start_uses():
    rng = np.random.default_rng(2)
    turn = np.linalg.qr(rng.normal(size=(20, 2)))[0]
    network = lc.TwoLayer(turn @ rng.normal(size=(2, 3)), rng.normal(size=(2, 2)) @ turn.T)
    task = static(rng.normal(size=(2, 3)))
    method = method_of([task], network, "pooled")
    assert method.start.shape == (10,)
    first, second, rate = np.array(network.first), np.array(network.second), RATE
    [after] = method.advance(0, method.start[None], [7])
    for _ in range(7):
        error = 2.0 * second @ first - task.cross_covariance.dense()[0, :, 0, :].T
        first, second = first - rate * second.T @ error, second - rate * error @ first.T
    found = method.network_of(after[0])
    np.testing.assert_allclose(found.first, first, atol=1e-13)
    np.testing.assert_allclose(found.second, second, atol=1e-13)


def test_resamples_are_counted_in_strides_only(monkeypatch):
    """An error of one step does not matter to an interval, and single steps take longer than all strides."""
    rng, asked = np.random.default_rng(4), []
    inputs = rng.normal(size=(40, 5, 2))
    task = lc.Task.from_samples(inputs, inputs.sum(axis=1) + rng.normal(size=(40, 2)))
    network = lc.LinearRNN.random(2, 6, 2, recurrence=0.5, scale=0.2, rng=0)
    method = method_of([task], network, "pooled")
    steps_to, goal = PooledDescent.steps_to, lc.Accuracy(0.9)

    def counted(self, states, *rest, precise=True):
        asked.append((len(states), precise))
        return steps_to(self, states, *rest, precise=precise)

    monkeypatch.setattr(PooledDescent, "steps_to", counted)
    assert method.resample([0], [(goal, None)]) is not None
    method.resample_stops([0], [[3], [5]], goal)
    assert {precise for rows, precise in asked if rows > 1} == {False}
    assert {rows for rows, precise in asked if precise} == {1}  # the estimate itself
    assert len([rows for rows, _ in asked if rows > 1]) == 2  # direct training, once, and the means


def test_late_resamples_do_not_cost_the_interval(monkeypatch):
    """The few resamples that are left after most moves are counted alone; more of them are later than all others."""
    rng = np.random.default_rng(4)
    inputs = rng.normal(size=(12, 5, 2))
    task = lc.Task.from_samples(inputs, inputs.sum(axis=1) + rng.normal(size=(12, 2)))
    network = lc.LinearRNN.random(2, 6, 2, recurrence=0.5, scale=0.2, rng=0)
    everything = np.sort(method_of([task], network, "pooled").resample([0], [(lc.Accuracy(0.9), None)]).direct)
    for left in (5, 30):
        moves = int(everything[-left]) - 1
        monkeypatch.setattr(linear, "MOST_RESAMPLE_MOVES", 1)
        monkeypatch.setattr(PooledDescent, "most_counted", lambda *_, moves=moves: moves if len(_) > 3 else 10**6)
        found = np.sort(method_of([task], network, "pooled").resample([0], [(lc.Accuracy(0.9), None)]).direct)
        known = len(found) if left == 5 else int((found <= moves).sum())
        np.testing.assert_allclose(found[:known], everything[:known], atol=2)
        assert np.isinf(found[known:]).all()
        assert not np.isnan(lc.theory.bounds(found)).any()


def test_a_sharp_start_is_unstable_if_descent_from_it_diverges():
    """Weights 10 and 0.01 have sharpness 100: at rates above 0.02 descent moves to flatter weights, or diverges."""
    network, outcomes = lc.TwoLayer(np.array([[10.0]]), np.array([[0.01]])), []
    for rate in (0.019, 0.021, 0.03, 0.035, 0.045, 0.06):
        method = lc.planning.method_for([static([[1.0]], variance=1.0)], network, rate, method="pooled")
        stable = next(a for a in method.conditions(0) if a.name == "stable_learning_rate")
        a, c = 10.0, 0.01
        for _ in range(500):
            if abs(a) + abs(c) > 1e20:
                break
            pull = rate * (1 - a * c)
            a, c = a + c * pull, c + a * pull
        exploded = abs(a) + abs(c) > 1e9
        assert stable.holds != exploded
        assert stable.measured == pytest.approx(rate * (100.0001 if exploded else 2.0), rel=1e-6)
        outcomes.append(exploded)
    assert not any(outcomes[:2])
    assert outcomes[-1]


@pytest.mark.parametrize(("seed", "level", "steady"), [(48, 0.999, False), (48, 0.9, True), (10, 0.999, True)])
def test_a_count_that_rounding_changes_is_outside_and_one_at_a_large_rate_that_it_does_not_change_is_ok(
    seed, level, steady
):
    """Plain descent of three layers from the same weights, and from weights changed by 1e-12 of themselves."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(5, 6)) * [1, 1, 0.3, 0.1, 0.1, 3]
    y, layers = x @ rng.normal(size=(6, 2)), [0.5 * rng.normal(size=shape) for shape in ((6, 6), (6, 6), (2, 6))]
    task, network = lc.Task.from_samples(x[:, None], y), lc.Deep(tuple(layers))
    rate = 1.0 / lc.planning.method_for([task], network, RATE).descents[0].flattest
    found = lc.forecast(task, network, lc.Training(rate), lc.R2(level), strict=False)

    def plain(one, two, three):
        for step in range(2000):
            errors = (three @ two @ one @ x.T - y.T) / len(x)
            if (errors**2).sum() * len(x) ** 2 <= (1 - level) * (y**2).sum():
                return step
            below, above = x @ one.T, three.T @ errors
            moves = two.T @ above @ x, above @ below, errors @ (below @ two.T)
            one, two, three = (w - rate * move for w, move in zip((one, two, three), moves, strict=True))
        raise AssertionError

    counts = [plain(*(w * (1 + 1e-12 * rng.normal(size=w.shape)) for w in layers)) for _ in range(4)]
    limit = next(a for a in found.trust.assumptions if a.name == "stable_learning_rate")
    assert (max(counts) - min(counts) <= 1) == steady
    assert (found.forecast_class, found.steps.status.name) == (
        ("integrated", "ok") if steady else ("outside", "outside_theory")
    )
    assert limit.holds == steady
    if steady:
        assert found.steps.descent == plain(*layers)
        return
    with pytest.raises(lc.AssumptionViolated) as caught:
        lc.forecast(task, network, lc.Training(rate), lc.R2(level))
    assert caught.value.learning_rate < rate


def test_modes_near_a_saddle_leave_it_along_all_of_their_weights():
    """The input weights oppose the output weights, but for 1e-9 across their direction, which then grows first."""
    rng = np.random.default_rng(0)
    first = np.array([[0.5], [0.0], [0.0]]) + 1e-9 * rng.normal(size=(3, 1))
    network, task = lc.LinearRNN(first, np.zeros((3, 3)), [[-0.5, 0.0, 0.0]]), static([[2.0]])
    found = lc.forecast(task, network, lc.Training(0.1), lc.Accuracy(0.9))
    one, two, steps = network.input_weights, network.output_weights, 0
    while abs((two @ one).item() - 1.0) > 0.1:
        error = (two @ one).item() * 2.0 - 2.0
        one, two, steps = one - 0.1 * error * two.T, two - 0.1 * error * one.T, steps + 1
    assert found.method.name != "modes"
    assert found.steps.descent == steps
    exact = lc.LinearRNN([[0.5], [0.0], [0.0]], np.zeros((3, 3)), [[-0.5, 0.0, 0.0]])
    opposed = lc.forecast(task, exact, lc.Training(0.1), lc.Accuracy(0.9))
    assert (opposed.method.name, opposed.steps.status.name) == ("modes", "not_learned")


@pytest.mark.parametrize("share", [0.01, 0.5, 3.0])
def test_the_largest_rate_does_not_depend_on_the_one_in_use(share):
    """Twice the inverse of the curvature at the balanced optimum, which is 2 beta."""
    task = tasks.integration(steps=6)
    network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=3)
    curvature = 2 * float(modes(task, network).weighted_cross[0])
    method = lc.planning.method_for([task], network, share / curvature, method="modes")
    assert method.largest_rate(0) == pytest.approx(2.0 / curvature, rel=1e-9)


@pytest.mark.parametrize("weight", [3.0, 4.8, 6.0, 7.0, 12.0])
def test_a_start_that_is_too_sharp_fails_only_if_descent_diverges(weight):
    """Above 2 / curvature of the start, plain descent may still move to flatter weights and settle there."""
    rate, first, second = 0.1, weight, 0.3
    start = lc.TwoLayer([[first]], [[second]])
    for _ in range(100):
        error = rate * (first * second - 1.0)
        first, second = first - second * error, second - first * error
        if abs(first) > 1e12:
            break
    settles = abs(first * second - 1.0) < 1e-6
    method = lc.planning.method_for([tasks.static([[1.0]], [[1.0]])], start, rate, method="pooled")
    assert all(condition.holds for condition in method.conditions(0)) is settles


def test_modes_are_counted_to_a_loss():
    goal, rate = tasks.integration(steps=5, target_strength=[1.0, 0.6]), 0.02
    network = lc.LinearRNN.aligned(task=goal, recurrence=[0.7, 0.5], initial=[0.2, 0.3], hidden_size=2)
    method = lc.planning.method_for([goal], network, rate, method="modes")
    own = modes(goal, network)
    beta, power, weights = own.weighted_cross, own.weighted_input, np.array([[0.2, 0.3]] * 2)

    def excess(strength):
        return 0.5 * float(power @ (strength - beta / power) ** 2)

    steps, baseline = 0, excess(np.zeros(2))
    while excess(weights[0] * weights[1]) > 0.15**2 * baseline:
        weights, steps = weights + rate * weights[::-1] * (beta - power * weights[0] * weights[1]), steps + 1
    assert method.steps_to(0, method.start[None], lc.Explained(1 - 0.15**2))[0].tolist() == [steps]


@pytest.mark.parametrize("units", [1, 2])
def test_gaussian_trials_are_assumed_only_if_no_others_are_known(units):
    inputs = np.random.default_rng(0).exponential(size=(60, 4, 1))
    recorded = lc.Task.from_samples(inputs, inputs.sum(axis=1))
    moments = lc.Task(recorded.input_covariance, recorded.cross_covariance, recorded.target_covariance)
    signs = np.array([[0.1], [-0.1]])[:units]
    network = lc.Activated(lc.LinearRNN(signs, 0.5 * np.eye(units), signs.T), "relu")
    for task, assumed in ((recorded, False), (moments, True), (lc.tasks.integration(steps=4), False)):
        method = lc.planning.method_for([task], network, 1e-3, trials=None if task is recorded else 500)
        assert method.trial_values([0]) == {"gaussian_trials_assumed": assumed}


@pytest.mark.parametrize(("output", "steps"), [(-0.05, math.inf), (-0.06, 2000)])
def test_balanced_weights_of_the_wrong_sign_never_learn_and_are_named(output, steps):
    network = lc.LinearRNN(np.array([[0.05], [0.0]]), 0.9 * np.eye(2), np.array([[output, 0.0]]))
    made = lc.forecast(lc.tasks.integration(steps=10), network, learning_rate=1e-3, strict=False)
    assert (made.steps.descent == math.inf) == (steps == math.inf)
    assert made.steps.descent == math.inf or made.steps.descent < steps
    assert ("mode 1" in made.method.why_never(0, made.requested[0].goal)) == (steps == math.inf)
