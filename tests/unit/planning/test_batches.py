"""Steps in batches, against plain stochastic descent on trials."""

import math

import numpy as np
import pytest

import learncast as lc
from learncast import tasks
from learncast.tasks import Task

RATE = 1e-3


def trained(stages, network, batch, seed, learned, every=False):
    """Plain stochastic descent on fresh trials; steps of each stage."""
    rng = np.random.default_rng(seed)
    A, C, b = network.input_weights.copy(), network.output_weights.copy(), network.recurrent_weights[0, 0]
    counts = []
    for stage, done in zip(stages, learned, strict=True):
        age = np.arange(stage.task.steps)
        kernel = np.where(age[:, None] >= age, b ** np.maximum(age[:, None] - age, 0.0), 0.0)
        kernel = kernel if every else kernel[-1:]
        for n in range(100_000):
            if done(C @ A, n):
                break
            x, y = stage.task.sample(batch, rng)
            z = np.einsum("rt,btc->brc", kernel, x).reshape(-1, A.shape[1])
            y = y.reshape(len(z), -1)
            G = (z @ (C @ A).T - y).T @ z / batch
            A, C = A - RATE * C.T @ G, C - RATE * G @ A.T
        counts.append(n)
    return counts


def within(modes, accuracy):
    frame, best = modes.frame, modes.optimum

    def done(function, _):
        u = np.einsum("mk,mn,nk->k", frame.mode_outputs, function, frame.mode_inputs)
        return (np.abs(u - best) <= (1 - accuracy) * np.abs(best)).all()

    return done


def agree(simulated, measured):
    """Means and spreads of two samples of one distribution."""
    measured = np.asarray(measured, dtype=float)
    error = np.hypot(simulated.std(ddof=1) / math.sqrt(len(simulated)), measured.std(ddof=1) / math.sqrt(len(measured)))
    assert abs(simulated.mean() - measured.mean()) < 4 * error + 1
    assert 0.5 < (simulated.std(ddof=1) + 0.5) / (measured.std(ddof=1) + 0.5) < 2.0


@pytest.mark.slow_cases("64", "512")
@pytest.mark.parametrize("batch", [8, 64, 512])
def test_two_stages_of_modes(batch):
    target = tasks.integration(12, [1.0, 0.8], [1.0, 0.7])
    first = tasks.integration(12, [1.0, 0.8], [1.4, 0.9], name="stronger")
    network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=6, task=target)
    stages = [lc.Stage(first, goal=0.5), lc.Stage(target, goal=0.9)]
    forecast = lc.follow(stages, network, learning_rate=RATE)
    found = forecast.in_batches(batch)
    rules = [within(m, s.goal.value) for m, s in zip(forecast.modes, stages, strict=True)]
    each = np.array([trained(stages, network, batch, seed, rules) for seed in range(24)])
    agree(found.totals, each.sum(axis=1))
    agree(found.steps[0], each[:, 0])
    assert str(batch) in found.sentence.split(":")[0].replace(",", "")


def test_targets_at_every_step():
    task = tasks.integration(4, targets="every_step")
    network = lc.LinearRNN.aligned(recurrence=0.8, initial=0.3, hidden_size=3, task=task)
    stages = [lc.Stage(task, goal=0.8)]
    forecast = lc.follow(stages, network, learning_rate=RATE)
    rules = [within(forecast.modes[0], 0.8)]
    agree(
        forecast.in_batches(16).totals,
        [sum(trained(stages, network, 16, seed, rules, every=True)) for seed in range(24)],
    )


def test_recorded_trials_without_modes():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 5, 3)) @ np.array([[1.0, 0.6, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 0.5]])
    y = x.sum(axis=1) @ rng.normal(size=(3, 2)) + 0.3 * rng.normal(size=(400, 2))
    task = Task.from_samples(x, y)
    network = lc.LinearRNN.random(3, 4, 2, scale=0.4, recurrence=0.7, rng=1)
    forecast = lc.follow([lc.Stage(task, lc.Accuracy(0.7))], network, learning_rate=RATE)
    assert forecast.method.name == "pooled"
    z = np.einsum("t,btc->bc", 0.7 ** np.arange(4, -1, -1.0), x)
    S, R = z.T @ z / 400, y.T @ z / 400
    best = R @ np.linalg.inv(S)
    baseline = np.trace(best @ S @ best.T)

    def done(function, _):
        gap = function - best
        return np.trace(gap @ S @ gap.T) <= 0.3**2 * baseline

    found = forecast.in_batches(16, seed=3)
    agree(found.totals, [sum(trained([lc.Stage(task, lc.Accuracy(0.7))], network, 16, s, [done])) for s in range(12)])
    again = forecast.in_batches(16, seed=3)
    np.testing.assert_array_equal(found.steps, again.steps)


def test_runs_with_a_learned_recurrence_descend_one_by_one():
    task = tasks.integration(3)
    network = lc.LinearRNN([[0.4]], [[0.4]], [[0.4]])
    stages = [lc.Stage(task, steps=7), lc.Stage(task, goal=0.6)]
    forecast = lc.follow(stages, network, training=lc.Training(0.01, learn=("input", "recurrent", "output")))
    found = forecast.in_batches(2000)
    assert found.runs == 6
    assert (found.steps[0] == 7).all()
    assert found.mean == pytest.approx(forecast.steps.descent, rel=0.05)
    assert math.isnan(found.floor)


def test_every_method_for_linear_networks_simulates_the_same_batches():
    task = tasks.integration(4)
    network = lc.LinearRNN.aligned(recurrence=0.8, initial=0.3, hidden_size=2, task=task)
    forecasts = [
        lc.follow([lc.Stage(task, goal=0.8)], network, learning_rate=5e-3, method=by)
        for by in ("modes", "two-layer", "pooled", "flow")
    ]
    counts = [forecast.in_batches(50, seed=1).steps for forecast in forecasts]
    for forecast, steps in zip(forecasts, counts, strict=True):
        assert abs(steps.mean() - forecast.steps.descent) < 0.1 * forecast.steps.descent
        np.testing.assert_array_equal(steps, counts[0])


def test_noise_as_wide_as_the_tolerance_is_reported():
    task = tasks.leaky_integration(10, 4.0, 1.0)
    network = lc.LinearRNN.aligned(recurrence=0.8, initial=0.3, hidden_size=2, task=task)
    forecast = lc.follow([lc.Stage(task, goal=0.999)], network, learning_rate=2e-3)
    found = forecast.in_batches(2)
    assert found.by_chance
    assert not forecast.in_batches(100_000).by_chance


def test_batches_that_cannot_be_simulated_are_refused():
    task = tasks.integration(10)
    network = lc.LinearRNN.aligned(recurrence=0.8, hidden_size=2, task=task)
    forecast = lc.follow([lc.Stage(task, goal=0.9)], lc.Activated(network, "relu"), learning_rate=1e-3)
    with pytest.raises(lc.UnsupportedModel) as caught:
        forecast.in_batches(8)
    assert caught.value.field == "batch"
    slow = lc.follow([lc.Stage(task, goal=0.9)], network, learning_rate=1e-9)
    with pytest.raises(lc.InvalidSpec) as caught:
        slow.in_batches(8)
    assert caught.value.field == "batch"
