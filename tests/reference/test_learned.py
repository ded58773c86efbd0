"""When a task counts as learned, and when it never is: compared with plain gradient descent on the trials."""

import numpy as np
import pytest

import learncast as lc
from learncast.theory import LearningProblem

RATE = 1e-2


def hidden_states(weights, inputs):
    A, W, _ = weights
    state, states = np.zeros((len(inputs), len(W))), []
    for t in range(inputs.shape[1]):
        state = state @ W.T + inputs[:, t] @ A.T
        states.append(state)
    return states


def gradient(weights, inputs, targets):
    """Half the mean squared error and its gradient, by backpropagation through time."""
    A, W, C = weights
    states = hidden_states(weights, inputs)
    error = states[-1] @ C.T - targets
    back, dA, dW = error @ C, np.zeros_like(A), np.zeros_like(W)
    for t in reversed(range(len(states))):
        dA += back.T @ inputs[:, t]
        dW += back.T @ states[t - 1] if t else 0.0
        back = back @ W
    n = len(inputs)
    return (error**2).sum() / (2 * n), (dA / n, dW / n, error.T @ states[-1] / n)


def plain_steps(weights, trials, goal, rate, learn=("input", "output"), limit=20_000):
    """Steps of plain descent until the loss is at most the goal; None if it is not within the limit."""
    names = ("input", "recurrent", "output")
    for step in range(limit):
        loss, slopes = gradient(weights, *trials)
        if loss <= goal:
            return step
        weights = [w - rate * d if name in learn else w for w, d, name in zip(weights, slopes, names, strict=True)]
    return None


def reduced_rank_loss(z, y, units):
    """Least loss of a linear map of this rank, by reduced-rank regression."""
    fitted = z @ np.linalg.lstsq(z, y, rcond=None)[0]
    parts = np.linalg.svd(fitted, compute_uv=False)
    return (((fitted - y) ** 2).sum() + (parts[units:] ** 2).sum()) / (2 * len(z))


def recorded(seed=0, trials=60, steps=3, inputs=4, outputs=3):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((trials, steps, inputs))
    y = x.sum(axis=1) @ rng.standard_normal((inputs, outputs)) + 0.3 * rng.standard_normal((trials, outputs))
    return x, y


def random_weights(seed, inputs, hidden, outputs, scale=0.3):
    rng = np.random.default_rng(seed)
    return scale * rng.standard_normal((hidden, inputs)), scale * rng.standard_normal((outputs, hidden))


# --- The least loss that the network can reach --------------------------------------------------------------------


@pytest.mark.parametrize("units", [1, 2, 3, 5])
def test_every_interface_measures_against_the_rank_that_the_units_allow(units):
    x, y = recorded()
    task, (A, C) = lc.Task.from_samples(x, y, name="narrow"), random_weights(1, 4, units, 3)
    network = lc.LinearRNN(A, 0.5 * np.eye(units), C)
    z = np.einsum("t,pti->pi", 0.5 ** np.arange(2, -1, -1), x)
    least, zero = reduced_rank_loss(z, y, units), (y**2).sum() / (2 * len(y))
    goal = lc.Accuracy(0.9)
    true = plain_steps((A, 0.5 * np.eye(units), C), (x, y), least + 0.01 * (zero - least), RATE)
    found = lc.forecast(task, network, learning_rate=RATE, goal=goal)
    assert found.method.least_loss(0) == pytest.approx(least, rel=1e-9)
    assert found.steps.descent == true
    assert found.steps.status is lc.Status.ok
    assert found.solution.time_to(0.9).descent_steps == true
    assert lc.descend(task, network, learning_rate=RATE, goal=goal).steps == true
    assert lc.follow([lc.Stage(task, goal)], network, learning_rate=RATE).steps.descent == true
    assert lc.forecast(task, network, learning_rate=RATE, goal=goal, method="flow").steps.descent == true
    assert bool(found.solution.remarks) == (units < 3)


@pytest.mark.parametrize("units", [1, 2])
def test_a_balanced_narrow_network_learns_the_modes_that_it_can_hold(units):
    task = lc.tasks.static(np.diag([3.0, 2.0, 1.0]))
    network = lc.TwoLayer.balanced(3, units, 3, scale=0.1, rng=np.random.default_rng(0))
    found = lc.forecast(task, network, learning_rate=RATE, goal=lc.Accuracy(0.9))
    assert found.method.name == "two-layer"
    lost = sum(s**2 for s in (3.0, 2.0, 1.0)[units:]) / 2
    assert found.method.least_loss(0) == pytest.approx(lost, rel=1e-12)
    first, second, steps = network.first, network.second, 0
    kept = 7.0 - lost
    while ((second @ first - np.diag([3.0, 2.0, 1.0])) ** 2).sum() / 2 > lost + 0.01 * kept:
        G = second @ first - np.diag([3.0, 2.0, 1.0])
        first, second, steps = first - RATE * second.T @ G, second - RATE * G @ first.T, steps + 1
    assert found.steps.descent == steps
    assert float(found.solution.limit()["excess_loss"][0]) == pytest.approx(0.0, abs=1e-12)


def test_modes_that_the_units_cannot_hold_do_not_count():
    task = lc.tasks.static(np.diag([3.0, 1.0]))
    network = lc.LinearRNN([[0.1, 0.0]], [[0.0]], [[0.1], [0.0]])
    found = lc.forecast(task, network, learning_rate=RATE, goal=lc.Accuracy(0.9))
    a, steps = 0.1, 0
    while a * a < 2.7:
        a, steps = a + RATE * a * (3.0 - a * a), steps + 1
    assert (found.method.name, found.steps.descent, found.steps.status) == ("modes", steps, lc.Status.ok)
    assert found.method.least_loss(0) == pytest.approx(0.5)
    time = found.solution.time_to(0.9)
    assert (time.descent_steps, time.held.tolist()) == (steps, [True, False])
    # The unit may hold the weaker mode instead: then the stronger one is never learned.
    turned = lc.LinearRNN([[0.0, 0.1]], [[0.0]], [[0.0], [0.1]])
    assert lc.forecast(task, turned, learning_rate=RATE).steps.status is lc.Status.not_learned


@pytest.mark.parametrize("learn", [("input",), ("output",)])
def test_weights_that_do_not_learn_limit_the_least_loss(learn):
    x, y = recorded(seed=3)
    A, C = random_weights(4, 4, 3, 3, scale=0.6)
    network, task = lc.LinearRNN(A, 0.5 * np.eye(3), C), lc.Task.from_samples(x, y)
    z = np.einsum("t,pti->pi", 0.5 ** np.arange(2, -1, -1), x)
    if learn == ("output",):
        least = reduced_rank_loss(z @ A.T, y, 3)
    else:
        columns = np.linalg.qr(C)[0]
        fitted = z @ np.linalg.lstsq(z, y @ columns, rcond=None)[0] @ columns.T
        least = ((fitted - y) ** 2).sum() / (2 * len(y))
    assert LearningProblem.of(task, network, learn).least_loss == pytest.approx(least, rel=1e-9)
    goal = least + 0.04 * ((y**2).sum() / (2 * len(y)) - least)
    true = plain_steps((A, 0.5 * np.eye(3), C), (x, y), goal, RATE, learn)
    found = lc.forecast(task, network, lc.Training(RATE, learn=learn), goal=lc.Accuracy(0.8))
    assert found.steps.descent == true


@pytest.mark.parametrize("learn", [("input", "output"), ("input", "recurrent", "output")])
def test_a_recurrence_matrix_is_measured_against_where_training_rests(learn):
    x, y = recorded(seed=5, steps=4, inputs=2, outputs=1)
    A, C = random_weights(6, 2, 3, 1)
    W = np.array([[0.5, 0.4, 0.0], [0.0, 0.3, 0.2], [0.1, 0.0, -0.4]])
    rate, weights, names = 0.05, [A, W, C], ("input", "recurrent", "output")
    for _ in range(15_000):
        loss, slopes = gradient(weights, x, y)
        weights = [w - rate * d if name in learn else w for w, d, name in zip(weights, slopes, names, strict=True)]
    problem = LearningProblem.of(lc.Task.from_samples(x, y), lc.LinearRNN(A, W, C), learn)
    assert problem.least_loss == pytest.approx(loss, rel=1e-2)  # descent is not quite at rest
    assert problem.least_loss <= loss * (1 + 1e-12)
    goal = problem.least_loss + 0.01 * ((y**2).sum() / (2 * len(y)) - problem.least_loss)
    found = lc.forecast(problem.task, problem.network, lc.Training(rate, learn=learn), goal=lc.Accuracy(0.9))
    assert found.steps.descent == plain_steps((A, W, C), (x, y), goal, rate, learn)
    assert lc.descend(problem.task, problem.network, lc.Training(rate, learn=learn), goal=lc.Accuracy(0.9)).steps == (
        found.steps.descent
    )


def test_channels_of_unequal_scale_have_the_least_loss_of_equal_ones():
    rng = np.random.default_rng(7)
    x, sizes = rng.standard_normal((80, 3, 3)), np.array([1e-5, 1.0, 1e5])
    y = x[:, 0] @ rng.standard_normal((3, 1)) + x[:, 2] @ rng.standard_normal((3, 1))  # a linear map of all lags
    task = lc.Task.from_samples(x * sizes, y)
    A, C = random_weights(8, 3, 9, 1)
    W = np.diag(np.linspace(-0.9, 0.9, 9))
    for k in range(5):  # the answer must not depend on the last digit of the weights
        start = lc.LinearRNN(A / sizes * (1 + k * 1e-15), W, C)
        assert LearningProblem.of(task, start, ("input", "output")).least_loss < 1e-6 * (y**2).mean()


# --- Never, and not within ----------------------------------------------------------------------------------------


def test_a_start_whose_square_underflows_is_learned():
    task = lc.tasks.integration(steps=10)
    for initial in (1e-100, 1e-200):
        network = lc.LinearRNN.aligned(recurrence=0.9, initial=initial, hidden_size=2)
        found = lc.forecast(task, network, learning_rate=RATE, goal=lc.Accuracy(0.9))
        [mode] = found.method.modes
        beta, power = float(mode.weighted_cross[0]), float(mode.weighted_input[0])
        a, steps = initial, 0
        while a * a < 0.9 * beta / power:
            a, steps = a + RATE * a * (beta - power * (a * a)), steps + 1
        assert (found.steps.descent, found.steps.status) == (steps, lc.Status.ok)
        assert found.steps.flow == pytest.approx(steps, rel=0.05)


def test_slow_directions_are_not_called_never():
    rng = np.random.default_rng(9)
    z = rng.standard_normal((60, 4)) * np.array([1.0, 0.5, 0.1, 0.02])
    y = z @ np.array([[1.0], [1.0], [3.0], [30.0]])
    task = lc.Task.from_samples(z[:, None], y)
    A, C = random_weights(10, 4, 3, 1, scale=0.05)
    network, rate = lc.TwoLayer(A, C), 0.02
    found = lc.forecast(task, network, learning_rate=rate, goal=lc.Accuracy(0.99))
    first, second, S, R, steps = A, C, z.T @ z / 60, y.T @ z / 60, 0
    goal = 1e-4 * (y**2).mean() / 2
    while ((z @ (second @ first).T - y) ** 2).mean() / 2 > goal:
        G = second @ first @ S - R
        first, second, steps = first - rate * second.T @ G, second - rate * G @ first.T, steps + 1
    assert steps > 10_000
    assert (found.steps.descent, found.steps.status) == (steps, lc.Status.ok)


def test_descent_that_does_not_arrive_says_how_far_it_got():
    task = lc.tasks.integration(steps=10)
    network = lc.LinearRNN.random(1, 2, 1, scale=0.1, recurrence=0.9)
    run = lc.descend(task, network, lc.Training(1e-6, most_steps=20), goal=0.99)
    time = run.time_to(0.99)
    assert (run.status, time.status, time.tried) == (lc.Status.not_within, lc.Status.not_within, 20)
    assert time.loss == run.loss[-1]


def test_a_goal_below_the_least_loss_is_never_reached():
    x, y = recorded()
    network = lc.LinearRNN.random(4, 3, 3, scale=0.1, recurrence=0.5)
    found = lc.forecast(lc.Task.from_samples(x, y), network, learning_rate=RATE, goal=lc.Loss(1e-3))
    assert (found.steps.descent, found.steps.flow, found.steps.status) == (np.inf, np.inf, lc.Status.not_learned)


@pytest.mark.parametrize("W", [0.5 * np.eye(2), np.array([[0.5, 0.2], [0.0, 0.3]])], ids=["scalar", "matrix"])
def test_targets_of_zero_leave_nothing_to_learn(W):
    x, _ = recorded(inputs=2)
    task, network = lc.Task.from_samples(x, np.zeros((60, 1))), lc.LinearRNN(np.ones((2, 2)), W, np.ones((1, 2)))
    found = lc.forecast(task, network, learning_rate=1e-3)
    assert (found.steps.descent, found.steps.flow, found.steps.status) == (0, 0, lc.Status.ok)
    assert found.solution.time_to(0.9).descent_steps == 0
    assert lc.descend(task, network, learning_rate=1e-3, goal=0.9).steps == 0
    family = lc.tasks.integration(steps=5, target_strength=0.0)
    found = lc.forecast(family, lc.LinearRNN.aligned(hidden_size=2), learning_rate=1e-3)
    assert (found.steps.descent, found.steps.status) == (0, lc.Status.ok)


def unexplained(kind):
    """Trials of which no linear map explains anything."""
    x, y = recorded()
    return {
        "inputs of zero": (np.zeros_like(x), y),
        "uncorrelated": (np.concatenate([x, x]), np.concatenate([y, -y])),
    }[kind]


@pytest.mark.parametrize("kind", ["inputs of zero", "uncorrelated"])
@pytest.mark.parametrize("batch", [None, 5])
def test_trials_that_explain_nothing_have_an_r2_that_is_never_reached_and_a_share_that_is_reached_at_once(kind, batch):
    x, y = unexplained(kind)
    network = lc.LinearRNN.random(4, 3, 3, scale=0.1, recurrence=0.5)
    training = lc.Training(RATE, batch=batch)
    task = lc.Task.from_samples(x, y)
    for goal in (lc.R2(0.8), lc.R2(1e-6), lc.Loss(1e-3)):
        found = lc.forecast(task, network, training, goal)
        assert (found.steps.descent, found.steps.status) == (np.inf, lc.Status.not_learned)
    run = lc.descend(task, network, lc.Training(RATE, most_steps=50), goal=lc.R2(0.8))
    assert (run.steps, run.status) == (50, lc.Status.not_within)
    for goal in (lc.Explained(0.9), lc.Accuracy(0.9), lc.Loss(1e6)):
        found = lc.forecast(task, network, training, goal)
        assert (found.steps.descent, found.steps.status) == (0, lc.Status.ok)


@pytest.mark.parametrize("size", [0.0, 1.0])
def test_why_a_goal_is_never_reached_names_what_is_in_the_way(size):
    x, y = recorded()
    network = lc.LinearRNN.random(4, 3, 3, scale=0.1, recurrence=0.5)
    network = network.with_layers(*(size * w for w in network.maps))
    goal = lc.Loss(1e-3) if size else lc.R2(1e-3)
    made = lc.forecast(lc.Task.from_samples(x, y), network, lc.Training(RATE), goal)
    assert made.steps.status is lc.Status.not_learned
    reason = made.method.why_never(0, goal)
    assert (f"{made.method.least_loss(0):.3g}" in reason) == bool(size)
    assert reason


@pytest.mark.parametrize("kind", ["modes", "pooled", "matrix"])
def test_the_smallest_learning_rate_is_answered(kind):
    network = {
        "modes": lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4),
        "pooled": lc.LinearRNN.random(1, 4, 1, scale=0.1, recurrence=0.5),
        "matrix": lc.LinearRNN(np.ones((2, 1)), [[0.5, 0.2], [0.0, 0.3]], np.ones((1, 2))),
    }[kind]
    task = lc.tasks.integration(steps=5)
    small, usual = (lc.forecast(task, network, learning_rate=rate).steps for rate in (1e-300, 1e-3))
    assert np.isnan(small.descent)
    assert small.flow == pytest.approx(1e297 * usual.flow, rel=1e-6)


def test_weights_that_cannot_reach_the_zero_map_are_forecast_to_a_loss():
    """Only the recurrence learns, and the fixed output has the wrong sign: every loss exceeds that of the zero map."""
    x = np.random.default_rng(3).standard_normal((60, 3, 1))
    y = -x[:, -1]
    weights = (np.eye(1), 0.8 * np.eye(1), 0.5 * np.eye(1))
    training, goal = lc.Training(0.02, learn="recurrent"), lc.Loss(1.25 * 1.125 * (y**2).mean())
    found = lc.forecast(lc.Task.from_samples(x, y), lc.LinearRNN(*weights), training, goal)
    assert found.steps.descent == plain_steps(weights, (x, y), goal.value, 0.02, ("recurrent",))
    assert found.method.baseline_loss(0) < 0
    assert found.report().values["descent_steps"] == found.steps.descent


# --- Stability up to the stop -------------------------------------------------------------------------------------


def test_curvature_counts_only_up_to_the_stop():
    """The sharpness doubles while this task is learned: a rate between both limits is stable at an early stop."""
    task = lc.tasks.integration(steps=50)
    network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    early = lc.forecast(task, network, learning_rate=0.05, goal=lc.Accuracy(0.5))
    assert (early.steps.status, early.trust.holds) == (lc.Status.ok, True)
    with pytest.raises(lc.AssumptionViolated) as error:
        lc.forecast(task, network, learning_rate=0.05, goal=lc.Accuracy(0.99))
    assert error.value.assumption == "stable_learning_rate"


def test_a_short_stage_of_a_task_that_later_becomes_unstable_is_followed():
    task = lc.tasks.leaky_integration(steps=10, timescale=8.0)
    strong = task.varied(gain=6.0).renamed("strong")
    network = lc.LinearRNN.aligned(recurrence=0.5, initial=0.1, hidden_size=3)
    training = lc.Training(2e-2, learn=("input", "recurrent", "output"))
    with pytest.raises(lc.AssumptionViolated):
        lc.forecast(strong, network, training)
    found = lc.follow([lc.Stage(strong, steps=5), lc.Stage(task, lc.Accuracy(0.9))], network, training)
    assert found.trust.holds
    assert found.steps.descent < found.direct.descent


def sharp_pool():
    """A target that is learned in a few steps at large rates, a candidate, and plain descent on the target."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((60, 3, 2))
    y = x.sum(axis=1) @ rng.standard_normal((2, 1))
    weights = (0.05 * rng.standard_normal((4, 2)), 0.8 * np.eye(4), 0.05 * rng.standard_normal((1, 4)))
    fitted = hidden_states((np.eye(2), 0.8 * np.eye(2), None), x)[-1]
    least = (np.linalg.lstsq(fitted, y, rcond=None)[1] / (2 * len(x))).item()
    baseline = (y**2).sum() / (2 * len(x)) - least

    def truth(rate, accuracy):
        goal = least + (1 - accuracy) ** 2 * baseline
        return plain_steps(weights, (x, y), goal, rate, limit=2000)

    tasks = [lc.Task.from_samples(x, gain * y, name=name) for gain, name in ((1, "target"), (0.5, "half"))]
    return tasks, lc.LinearRNN(*weights), truth


@pytest.mark.parametrize(("rate", "accuracy"), [(0.6, 0.5), (0.6, 0.8), (0.7, 0.5), (1.0, 0.5)])
def test_a_plan_answers_where_only_later_steps_than_the_goal_are_unstable(rate, accuracy):
    (target, half), network, truth = sharp_pool()
    goal = lc.Accuracy(accuracy)
    plan = lc.plan(target, [half], network, learning_rate=rate, terms=lc.Terms(goal))
    told = lc.forecast(target, network, learning_rate=rate, goal=goal)
    assert plan.direct.descent == told.steps.descent == truth(rate, accuracy)
    assert plan.trust.holds
    assert "diverges" not in plan.summary


def test_descent_that_never_settles_near_the_goal_is_outside_the_theory():
    """The flow reaches the goal in four steps; descent is tried for far longer and oscillates above it."""
    (target, half), network, truth = sharp_pool()
    assert truth(0.6, 0.95) is None
    terms = lc.Terms(lc.Accuracy(0.95))
    found = lc.forecast(target, network, learning_rate=0.6, goal=terms.goal, strict=False)
    plan = lc.plan(target, [half], network, learning_rate=0.6, terms=terms, strict=False)
    assert (found.steps.status, found.forecast_class) == (lc.Status.not_within, "outside")
    assert found.steps.tried > 2000
    assert plan.forecast_class == "outside"
    for question in (
        lc.forecast,
        lambda task, *others, goal, **how: lc.plan(task, [half], *others, terms=terms, **how),
    ):
        with pytest.raises(lc.AssumptionViolated) as error:
            question(target, network, learning_rate=0.6, goal=terms.goal)
        assert error.value.assumption == "stable_learning_rate"


# --- Units --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("inputs", "targets"), [(1e-7, 1e-7), (1e-7, 1e7), (1e7, 1e-7), (1e7, 1e7)])
@pytest.mark.parametrize("kind", ["narrow", "wide", "matrix", "family", "balanced"])
def test_units_of_inputs_and_targets_do_not_change_the_answer(kind, inputs, targets):
    """With x -> a x and y -> b y, weights x sqrt(b / a) and rate / (a b) take the same steps."""

    def steps(a, b):
        grown, rate, x, y = np.sqrt(b / a), RATE / (a * b), *recorded(seed=11)
        if kind in ("narrow", "wide", "matrix"):
            hidden = 2 if kind == "narrow" else 4
            A, C = random_weights(12, 4, hidden, 3)
            W = 0.5 * np.eye(hidden) + (np.eye(hidden, k=1) * 0.3 if kind == "matrix" else 0.0)
            task, network = lc.Task.from_samples(a * x, b * y), lc.LinearRNN(grown * A, W, grown * C)
        elif kind == "family":
            task = lc.tasks.integration(steps=10, input_strength=a**2, target_strength=a * b)
            network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1 * grown, hidden_size=3)
        else:
            task = lc.tasks.from_pairs(a * np.eye(2), b * np.diag([3.0, 1.0]))
            balanced = lc.TwoLayer.balanced(2, 3, 2, scale=0.1, rng=np.random.default_rng(0))
            network = lc.TwoLayer(grown * balanced.first, grown * balanced.second)
        found = lc.forecast(task, network, learning_rate=rate, goal=lc.Accuracy(0.6))
        return found.method.name, found.steps.descent, found.steps.status, found.forecast_class

    assert steps(inputs, targets) == steps(1.0, 1.0)
