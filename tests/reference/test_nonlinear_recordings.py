"""ReLU and tanh units on recorded trials, against plain gradient descent on these trials."""

from __future__ import annotations

import numpy as np
import pytest

import learncast as lc

RATES = {"exponential": 2e-3, "gaussian": 2e-2, "sparse": 5e-2}


def plain_steps(inputs, targets, weights, activation, rate, accuracy, *, counted=None, most=5_000):
    """Steps of full-batch descent, through time, until the excess loss is (1 - accuracy)^2 of that of no answer.

    Inputs (trials, steps, 1), targets (trials, readouts, outputs) at the last steps.
    """
    a, b, c = (np.array(w, dtype=float) for w in weights)
    first = inputs.shape[1] - targets.shape[1]
    counted = np.ones(targets.shape[:2]) if counted is None else counted
    function, slope = {
        "relu": (lambda v: np.maximum(v, 0.0), lambda h: h > 0),
        "tanh": (np.tanh, lambda h: 1 - h**2),
    }[activation]

    def states(a, b):
        h, every = np.zeros((len(inputs), len(a))), []
        for x in inputs.transpose(1, 0, 2):
            h = function(h * b + x @ a.T)
            every.append(h)
        return every

    def least_squares(hidden):
        """Least loss of a readout of hidden states (trials, readouts, units)."""
        rows, wanted = hidden[counted > 0], targets[counted > 0]
        best = np.linalg.lstsq(rows, wanted, rcond=1e-10)[0]
        return ((rows @ best - wanted) ** 2).sum() / 2 / len(inputs)

    def visible(a, b):
        return np.stack(states(a, b)[first:], axis=1)

    if activation == "relu":  # each sign shows one response
        signs = np.unique(np.sign(a))[:, None]
        least = least_squares(visible(signs, b[: len(signs)]))
    else:
        least = min(least_squares(visible(np.array([[size]]), b)) for size in np.geomspace(1e-2, 10, 400))
    nothing = ((targets * counted[:, :, None]) ** 2).sum() / 2 / len(inputs)
    goal = least + (1 - accuracy) ** 2 * (nothing - least)
    for step in range(most):
        every = states(a, b)
        error = (np.stack(every[first:], axis=1) @ c.T - targets) * counted[:, :, None]
        if (error**2).sum() / 2 / len(inputs) <= goal:
            return step
        back, da = np.zeros((len(inputs), len(a))), np.zeros_like(a)
        for t in reversed(range(inputs.shape[1])):
            back = back * b + (error[:, t - first] @ c if t >= first else 0.0)
            back = back * slope(every[t])
            da += back.T @ inputs[:, t]
        dc = sum(error[:, t - first].T @ every[t] for t in range(first, inputs.shape[1]))
        a, c = a - rate * da / len(inputs), c - rate * dc / len(inputs)
    return None


def recording(seed, kind="exponential", trials=400, steps=10):
    rng = np.random.default_rng(seed)
    inputs = {
        "exponential": lambda: rng.exponential(size=(trials, steps, 1)),
        "gaussian": lambda: rng.standard_normal((trials, steps, 1)),
        "sparse": lambda: rng.standard_normal((trials, steps, 1)) * (rng.random((trials, steps, 1)) < 0.1),
    }[kind]()
    # A saturating target, which a single tanh unit can learn.
    return inputs, 2.0 * np.tanh(0.3 * inputs[:, -5:].sum(axis=1)) + 0.3 * rng.standard_normal((trials, 1))


def network(activation, units=1, seed=0, b=0.8):
    rng = np.random.default_rng(seed)
    a = 0.2 * rng.standard_normal((units, 1))
    weights = a, np.full(units, b), np.sign(a.T) * rng.uniform(0.1, 0.3, (1, units))
    return lc.Activated(lc.LinearRNN(weights[0], np.diag(weights[1]), weights[2]), activation), weights


@pytest.mark.parametrize(
    ("kind", "trials", "activation", "units"),
    [
        *((kind, trials, "relu", units) for kind in RATES for trials in (20, 400) for units in (1, 4)),
        ("exponential", 400, "tanh", 1),
        ("gaussian", 400, "tanh", 1),
        ("sparse", 20, "tanh", 1),
    ],
)
def test_forecast_is_the_count_of_descent_on_the_trials(kind, trials, activation, units):
    inputs, targets = recording(1, kind, trials)
    start, weights = network(activation, units)
    rate = RATES[kind]
    true = plain_steps(inputs, targets[:, None], weights, activation, rate, 0.9)
    steps = lc.forecast(lc.Task.from_samples(inputs, targets), start, goal=lc.Accuracy(0.9), learning_rate=rate).steps
    # The oracle finds the best tanh unit on a grid, which moves its goal a little.
    assert steps.descent == pytest.approx(true, abs=0 if activation == "relu" else 1)
    assert steps.low <= true <= steps.high
    assert steps.status is lc.Status.ok


@pytest.mark.parametrize(("activation", "units"), [("relu", 3), ("tanh", 1)])
def test_masked_readouts_do_not_count(activation, units):
    inputs, _ = recording(2, trials=120, steps=6)
    targets = np.tanh(0.3 * inputs.cumsum(axis=1))
    mask = np.random.default_rng(3).random((120, 6)) < 0.5
    mask[0, -1] = True
    start, weights = network(activation, units, seed=2)
    true = plain_steps(inputs, targets, weights, activation, 1e-2, 0.8, counted=mask.astype(float))
    task = lc.Task.from_samples(inputs, targets, mask=mask)
    assert lc.forecast(task, start, goal=lc.Accuracy(0.8), learning_rate=1e-2).steps.descent == true


@pytest.mark.parametrize(("activation", "units"), [("relu", 3), ("tanh", 1)])
def test_centred_and_scaled_trials_are_followed(activation, units):
    inputs, targets = recording(4, trials=90)
    start, weights = network(activation, units, seed=4)
    x, y = inputs - inputs.mean(axis=0), targets - targets.mean(axis=0)
    x = x / np.sqrt((x**2).mean())
    true = plain_steps(x, y[:, None], weights, activation, 5e-2, 0.8)
    task = lc.Task.from_samples(inputs, targets, centre=True, scale="channel")
    steps = lc.forecast(task, start, goal=lc.Accuracy(0.8), learning_rate=5e-2).steps
    assert steps.descent == true
    assert steps.low <= true <= steps.high


@pytest.mark.parametrize("seed", range(6))
def test_the_best_input_weight_of_a_tanh_unit_is_the_best_of_all(seed):
    """Targets without a relation to the inputs have several best weights."""
    rng = np.random.default_rng(seed)
    inputs, targets = rng.standard_normal((80, 4, 1)), rng.standard_normal((80, 1))
    table = lc.theory.response(lc.Task.from_samples(inputs, targets), network("tanh")[0], bootstrap=2).statistics
    (best, *_), (explained, *_) = table.best
    largest = best / table.saturation
    shares = []
    for a in np.geomspace(1e-4 * largest, largest, 300):
        h = np.zeros((80, 1))
        for x in inputs.transpose(1, 0, 2):
            h = np.tanh(0.8 * h + a * x)
        shares.append((h * targets).mean() ** 2 / (h**2).mean())
    assert explained >= (1 - 1e-6) * max(shares)


def test_a_relu_unit_whose_input_weight_reaches_zero_is_no_sign_of_divergence():
    """There the slope jumps, which is no curvature that limits the learning rate."""
    inputs = np.random.default_rng(3).normal(size=(30, 2, 1))
    a, b, c = np.array([[-0.07], [0.0126], [-0.08]]), 0.65 * np.ones(3), np.array([[-0.1, -0.15, 0.002]])
    hidden = np.zeros((30, 1))
    for x in inputs.transpose(1, 0, 2):
        hidden = np.maximum(0.65 * hidden - x, 0.0)
    task = lc.Task.from_samples(inputs, 0.05 * hidden)
    network = lc.Activated(lc.LinearRNN(a, np.diag(b), c), "relu")
    found = lc.forecast(task, network, learning_rate=0.2, goal=lc.Accuracy(0.5))
    true = plain_steps(inputs, 0.05 * hidden[:, None], (a, b, c), "relu", 0.2, 0.5)
    assert (found.steps.descent, found.steps.status, found.forecast_class) == (true, lc.Status.ok, "response")
    stable = next(x for x in found.trust.assumptions if x.name == "stable_learning_rate")
    assert stable.measured < 0.1


def test_units_that_change_their_signs_reach_goals_below_the_least_loss_of_their_first_signs():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 1))
    y = np.maximum(x, 0.0)  # all units answer to negative inputs at the start
    first, second = np.array([[-0.02], [-0.03]]), np.array([[0.3, 0.2]])
    network = lc.Activated(lc.LinearRNN(first, 0.5 * np.eye(2), second), "relu")
    found = lc.forecast((x[:, None], y), network, learning_rate=0.05, goal=lc.R2(0.5))
    steps, wanted = 0, 0.25 * (y**2).sum() / len(x)
    while 0.5 * ((np.maximum(x @ first.T, 0.0) @ second.T - y) ** 2).sum() / len(x) > wanted:
        seen = np.maximum(x @ first.T, 0.0)
        error = seen @ second.T - y
        first, second = (
            first - 0.05 * ((error @ second) * (seen > 0)).T @ x / len(x),
            second - 0.05 * error.T @ seen / len(x),
        )
        steps += 1
        assert steps < 20_000
    assert found.method.goal_excess(0, lc.R2(0.5)) < 0
    assert found.steps.descent == steps
    assert found.report().values["descent_steps"] == steps
