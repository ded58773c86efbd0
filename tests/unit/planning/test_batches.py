"""Steps in batches, against plain stochastic descent on trials."""

import math

import numpy as np
import pytest

import learncast as lc
from learncast import tasks
from learncast._core.errors import InvalidSpec, UnsupportedModel
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


def agree(told, measured):
    """Means and spreads of two samples of one distribution."""
    measured = np.asarray(measured, dtype=float)
    error = np.hypot(told.std(ddof=1) / math.sqrt(len(told)), measured.std(ddof=1) / math.sqrt(len(measured)))
    assert abs(told.mean() - measured.mean()) < 4 * error + 1
    assert 0.5 < (told.std(ddof=1) + 0.5) / (measured.std(ddof=1) + 0.5) < 2.0


@pytest.mark.slow_cases("64", "512")
@pytest.mark.parametrize("batch", [8, 64, 512])
def test_two_stages_of_modes(batch):
    target = tasks.integration(12, [1.0, 0.8], [1.0, 0.7])
    first = tasks.integration(12, [1.0, 0.8], [1.4, 0.9], name="stronger")
    network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=6, task=target)
    stages = [lc.Stage(first, goal=0.5), lc.Stage(target, goal=0.9)]
    way = lc.follow(stages, network, learning_rate=RATE)
    found = way.in_batches(batch)
    rules = [within(m, s.accuracy) for m, s in zip(way.modes, stages, strict=True)]
    each = np.array([trained(stages, network, batch, seed, rules) for seed in range(24)])
    agree(found.totals, each.sum(axis=1))
    agree(found.steps[0], each[:, 0])
    assert f"In batches of {batch}" in found.sentence


def test_targets_at_every_step():
    task = tasks.integration(4, targets="every_step")
    network = lc.LinearRNN.aligned(recurrence=0.8, initial=0.3, hidden_size=3, task=task)
    stages = [lc.Stage(task, goal=0.8)]
    way = lc.follow(stages, network, learning_rate=RATE)
    rules = [within(way.modes[0], 0.8)]
    agree(
        way.in_batches(16).totals,
        [sum(trained(stages, network, 16, seed, rules, every=True)) for seed in range(24)],
    )


def test_recorded_trials_of_no_modes():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 5, 3)) @ np.array([[1.0, 0.6, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 0.5]])
    y = x.sum(axis=1) @ rng.normal(size=(3, 2)) + 0.3 * rng.normal(size=(400, 2))
    task = Task.from_samples(x, y)
    network = lc.LinearRNN.random(3, 4, 2, scale=0.4, recurrence=0.7, rng=1)
    way = lc.follow([lc.Stage(task, goal=0.7)], network, learning_rate=RATE)
    assert way.method.name == "pooled"
    z = np.einsum("t,btc->bc", 0.7 ** np.arange(4, -1, -1.0), x)
    S, R = z.T @ z / 400, y.T @ z / 400
    best = R @ np.linalg.inv(S)
    whole = np.trace(best @ S @ best.T)

    def done(function, _):
        gap = function - best
        return np.trace(gap @ S @ gap.T) <= 0.3**2 * whole

    found = way.in_batches(16, seed=3)
    agree(found.totals, [sum(trained([lc.Stage(task, goal=0.7)], network, 16, s, [done])) for s in range(12)])
    again = way.in_batches(16, seed=3)
    np.testing.assert_array_equal(found.steps, again.steps)


def test_a_learned_recurrence_is_descended_run_by_run():
    task = tasks.integration(3)
    network = lc.LinearRNN([[0.4]], [[0.4]], [[0.4]])
    stages = [lc.Stage(task, steps=7), lc.Stage(task, goal=0.6)]
    way = lc.follow(stages, network, training=lc.Training(0.01, learn=("input", "recurrent", "output")))
    found = way.in_batches(2000)
    assert found.runs == 6
    assert (found.steps[0] == 7).all()
    assert found.mean == pytest.approx(way.steps.descent, rel=0.05)
    assert math.isnan(found.floor)


def test_every_ground_of_a_linear_network_counts_them():
    task = tasks.integration(4)
    network = lc.LinearRNN.aligned(recurrence=0.8, initial=0.3, hidden_size=2, task=task)
    ways = [
        lc.follow([lc.Stage(task, goal=0.8)], network, learning_rate=5e-3, method=by)
        for by in ("modes", "two-layer", "pooled", "flow")
    ]
    counts = [way.in_batches(50, seed=1).steps for way in ways]
    for way, steps in zip(ways, counts, strict=True):
        assert abs(steps.mean() - way.descent_steps) < 0.1 * way.descent_steps
        np.testing.assert_array_equal(steps, counts[0])


def test_noise_as_wide_as_the_band_is_said():
    task = tasks.leaky_integration(10, 4.0, 1.0)
    network = lc.LinearRNN.aligned(recurrence=0.8, initial=0.3, hidden_size=2, task=task)
    way = lc.follow([lc.Stage(task, goal=0.999)], network, learning_rate=2e-3)
    found = way.in_batches(2)
    assert found.by_chance
    assert "chance" in found.sentence or "do not arrive" in found.sentence
    assert not way.in_batches(100_000).by_chance


def test_what_is_not_counted_says_why():
    task = tasks.integration(10)
    network = lc.LinearRNN.aligned(recurrence=0.8, hidden_size=2, task=task)
    way = lc.follow([lc.Stage(task, goal=0.9)], lc.Activated(network, "relu"), learning_rate=1e-3)
    with pytest.raises(UnsupportedModel, match="linear networks"):
        way.in_batches(8)
    slow = lc.follow([lc.Stage(task, goal=0.9)], network, learning_rate=1e-9)
    with pytest.raises(InvalidSpec, match="to be counted in batches"):
        slow.in_batches(8)
