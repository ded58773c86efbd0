"""Goals in forecasts and plans, against plain descent on the statistics of a task."""

import numpy as np
import pytest

import learncast as lc
from learncast import tasks

RATE, DECAY = 5e-3, 0.8
TARGET = tasks.integration(steps=6, target_strength=[1.0, 0.7], name="target")
STRONGER = tasks.integration(steps=6, target_strength=[1.6, 1.0], name="stronger")
ALIGNED = lc.LinearRNN.aligned(recurrence=DECAY, initial=0.3, hidden_size=3, task=TARGET)
RANDOM = lc.LinearRNN.random(2, 3, 2, scale=0.4, recurrence=DECAY, rng=1)
#: Goals, and the loss at which each is met, from the least loss and the loss of the zero map.
GOALS = {
    "explained": (lc.Explained(0.95), lambda least, zero: least + 0.05 * (zero - least)),
    "loss": (lc.Loss(0.9), lambda least, zero: 0.9),
    "r2": (lc.R2(0.7), lambda least, zero: 0.3 * zero),
}


class PlainDescent:
    """Gradient descent of the readout of z = sum_t b^(T-t) x_t, from the covariances of a task."""

    def __init__(self, task):
        weights = DECAY ** np.arange(task.steps)[::-1]
        self.power = np.einsum("s,siuj,u->ij", weights, task.input_covariance.dense(), weights)
        self.cross = np.einsum("s,sio->oi", weights, task.cross_covariance.dense()[:, :, 0, :])
        self.zero = np.trace(task.target_covariance.dense()[0, :, 0, :]) / 2
        self.least = self.loss(np.linalg.solve(self.power, self.cross.T).T)

    def loss(self, function):
        return self.zero - np.sum(function * self.cross) + np.trace(function @ self.power @ function.T) / 2

    def step(self, first, second):
        error = second @ first @ self.power - self.cross
        return first - RATE * second.T @ error, second - RATE * error @ first.T

    def steps_to(self, limit, first, second):
        steps = 0
        while self.loss(second @ first) > limit:
            first, second = self.step(first, second)
            steps += 1
        return steps


def maps_of(network):
    return np.array(network.input_weights), np.array(network.output_weights)


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize(
    ("network", "method"), [(ALIGNED, "modes"), (ALIGNED, "two-layer"), (RANDOM, "pooled"), (RANDOM, "flow")]
)
def test_a_forecast_counts_the_steps_of_plain_descent_to_its_goal(network, method, goal):
    asked, limit = GOALS[goal]
    plain = PlainDescent(TARGET)
    steps = plain.steps_to(limit(plain.least, plain.zero), *maps_of(network))
    found = lc.forecast(TARGET, network, learning_rate=RATE, goal=asked, method=method)
    assert found.steps.descent == steps > 20
    # At this learning rate the flow and descent differ by a few steps.
    assert found.steps.flow == pytest.approx(steps, rel=0.05, abs=2)
    end = found.at([found.steps.flow])["loss"].item()
    assert end == pytest.approx(limit(plain.least, plain.zero), rel=1e-6)
    assert found.steps.status is lc.Status.ok
    assert found.goal == asked


@pytest.mark.parametrize("method", ["modes", "two-layer", "pooled", "flow"])
@pytest.mark.parametrize("share", [0.5, 0.999])
def test_a_goal_below_the_least_loss_is_never_reached(method, share):
    goal = lc.Loss(share * PlainDescent(TARGET).least)
    found = lc.forecast(TARGET, ALIGNED, learning_rate=RATE, goal=goal, method=method)
    assert found.steps.descent == found.steps.flow == np.inf
    assert found.steps.status is lc.Status.not_learned
    planned = lc.plan(TARGET, [STRONGER], ALIGNED, learning_rate=RATE, terms=lc.Terms(goal), method=method)
    assert planned.total == planned.direct_total == np.inf
    assert planned.direct.status is lc.Status.not_learned


@pytest.mark.slow_cases("tanh")
@pytest.mark.parametrize(
    ("network", "method"),
    [
        (ALIGNED, "modes"),
        (RANDOM, "pooled"),
        (RANDOM, "flow"),
        (lc.Activated(lc.LinearRNN.aligned(recurrence=DECAY, initial=0.3, hidden_size=4), "relu"), "modes"),
        (lc.Activated(lc.LinearRNN.aligned(recurrence=DECAY, initial=0.3, hidden_size=4), "tanh"), "responses"),
    ],
    ids=["modes", "pooled", "flow", "relu", "tanh"],
)
def test_goals_of_equal_loss_take_equal_steps(network, method):
    task = TARGET if network in (ALIGNED, RANDOM) else tasks.integration(steps=6)
    solver = lc.planning.method_for([task], network, RATE, method=method)
    least, baseline = solver.least_loss(0), solver.baseline_loss(0)
    loss = least + 0.1 * baseline
    goals = [lc.Explained(0.9), lc.Loss(loss), lc.R2(1 - loss / (least + baseline))]
    found = [lc.forecast(task, network, learning_rate=RATE, goal=goal, method=method).steps for goal in goals]
    # The losses agree to round-off; the flow is integrated to 1e-6.
    np.testing.assert_allclose([steps.flow for steps in found], found[0].flow, rtol=1e-6)
    assert len({steps.descent for steps in found}) == 1
    assert found[0].descent > 10


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize(("network", "method"), [(ALIGNED, "modes"), (RANDOM, "pooled")])
def test_no_other_stop_of_a_plan_reaches_the_goal_in_fewer_steps_of_plain_descent(network, method, goal):
    asked, limit = GOALS[goal]
    first, plain = PlainDescent(STRONGER), PlainDescent(TARGET)
    found = lc.plan(TARGET, [STRONGER], network, learning_rate=RATE, terms=lc.Terms(asked), method=method)
    maps, totals = maps_of(network), []
    for stop in range(int(found.direct_total)):
        totals.append(stop + plain.steps_to(limit(plain.least, plain.zero), *maps))
        maps = first.step(*maps)
    [stop] = found.route.durations
    assert found.total == totals[int(stop)] == min(totals)
    assert found.direct_total == found.direct.descent == totals[0]
    assert found.saving > 0
    assert found.goal == found.terms.goal == asked
    assert found.best.steps.descent == found.total


def test_a_number_means_explained_variance_for_recorded_tasks_and_accuracy_for_families():
    rng = np.random.default_rng(0)
    recorded = [lc.Task.from_samples(*t.sample(400, rng), name=t.name) for t in (STRONGER, TARGET)]
    settings = {"learning_rate": RATE}
    assert lc.forecast(TARGET, ALIGNED, goal=0.9, **settings).goal == lc.Accuracy(0.9)
    assert lc.forecast(recorded[1], RANDOM, goal=0.9, **settings).goal == lc.Explained(0.9)
    assert lc.plan(TARGET, [STRONGER], ALIGNED, terms=lc.Terms(0.9), **settings).goal == lc.Accuracy(0.9)
    found = lc.plan(recorded[1], recorded[:1], RANDOM, terms=lc.Terms(0.9), **settings)
    assert found.goal == lc.Explained(0.9)
    assert found.direct.descent == lc.forecast(recorded[1], RANDOM, goal=lc.Explained(0.9), **settings).steps.descent


@pytest.mark.parametrize("goal", [lc.Loss(0.9), lc.R2(0.7)], ids=["loss", "r2"])
@pytest.mark.parametrize("method", ["modes", "pooled"])
def test_a_loss_on_the_scale_of_the_targets_needs_their_variance(goal, method):
    bare = lc.Task(TARGET.input_covariance.dense(), TARGET.cross_covariance.dense()[:, :, 0, :], name="bare")
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.forecast(bare, ALIGNED, learning_rate=RATE, goal=goal, method=method).steps  # noqa: B018  computed lazily
    assert caught.value.field == "goal"
    known, unknown = (
        lc.forecast(task, ALIGNED, learning_rate=RATE, goal=lc.Explained(0.9), method=method).steps.descent
        for task in (TARGET, bare)
    )
    assert known == unknown


#: Goals with settings that only training follows.
TRAINED = {
    "another loss": lc.Loss(0.9, function="mse"),
    "an optimum": lc.Accuracy(0.9, optimum=[1.0, 0.7]),
}


@pytest.mark.parametrize("goal", TRAINED.values(), ids=TRAINED)
def test_a_goal_that_only_training_can_measure_is_refused_instead_of_read_as_another(goal):
    training, stage = lc.Training(RATE), lc.Stage(STRONGER, goal)
    asked = (
        lambda: lc.forecast(TARGET, ALIGNED, training, goal),
        lambda: lc.follow([stage, lc.Stage(TARGET, 0.9)], ALIGNED, training),
        lambda: lc.plan(TARGET, [STRONGER], ALIGNED, training, terms=lc.Terms(goal)),
        lambda: lc.descend(TARGET, ALIGNED, training, goal=goal),
    )
    for ask in asked:
        with pytest.raises(lc.InvalidSpec) as caught:
            ask()
        assert caught.value.field == "goal"


def test_the_loss_that_is_trained_may_be_named_in_a_goal():
    named, plain = (
        lc.forecast(TARGET, ALIGNED, lc.Training(RATE), goal)
        for goal in (lc.Loss(0.9, function="half_mse"), lc.Loss(0.9))
    )
    assert named.steps == plain.steps
