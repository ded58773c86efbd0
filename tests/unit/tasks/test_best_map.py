"""The best linear map for channels with different units, against least squares on the trials."""

import numpy as np
import pytest

import learncast as lc
from learncast.tasks.best_map import Correlations, best_map
from learncast.theory import PooledDescent, PooledProblem


def trials(unit, *, seed=0):
    """Trials with two outputs; the second depends on the last channel only, which has its own unit."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((80, 6, 3))
    y = np.stack([x[:, :, 0].sum(axis=1), x[:, :, 2].sum(axis=1)], axis=1)
    return x * [1.0, 1.0, unit], y


@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e-6, 1e-8])
def test_a_channel_in_a_small_unit_is_not_left_out(unit):
    x, y = trials(unit)
    task = lc.Task.from_samples(x, y)
    problem = PooledProblem.of(task, lc.LinearRNN.random(3, 8, 2, recurrence=0.8, scale=0.1, rng=1))
    z = np.einsum("ptc,t->pc", x, 0.8 ** np.arange(5, -1, -1))
    map_, missed, *_ = np.linalg.lstsq(z / [1, 1, unit], y, rcond=None)  # scaled: rcond removes no direction
    descent = PooledDescent(problem.power, problem.cross)
    assert descent.best * [1, 1, unit] == pytest.approx(map_.T, rel=1e-9, abs=1e-9)
    assert problem.least_loss == pytest.approx(missed.sum() / 160, rel=1e-9)
    assert descent.baseline_loss == pytest.approx((y**2).sum() / 160 - missed.sum() / 160, rel=1e-9)
    summary = lc.tasks.summary(task, recurrence=0.8)
    assert summary.explained == pytest.approx(1 - missed.sum() / (y**2).sum(), rel=1e-9)
    assert summary.condition > 0.5 / unit**2
    assert summary.rank == 3
    sizes = np.sqrt((x**2).mean(axis=(0, 1)))
    assert summary.unevenness == pytest.approx(sizes.max() / sizes.min(), rel=1e-12)
    assert ('"channel"' in repr(summary)) == (unit < 1)  # advice to scale the channels


def test_descent_is_not_finished_before_the_small_channel_is_learned():
    x, y = trials(1e-6)
    network = lc.LinearRNN.random(3, 8, 2, recurrence=0.8, scale=0.1, rng=1)
    p = PooledProblem.of(lc.Task.from_samples(x, y), network)
    state = np.concatenate([w.ravel() for w in network.maps])[None]
    descent = PooledDescent(p.power, p.cross)
    steps, _ = descent.steps_to(state, 1e-4 * descent.baseline_loss, 0.003, most_steps=4000)
    # Plain numpy: at 4000 steps nearly all of the second output is still missing.
    z, (A, C) = np.einsum("ptc,t->pc", x, 0.8 ** np.arange(5, -1, -1)), network.maps
    for _ in range(4000):
        G = (z @ (C @ A).T - y).T @ z / len(z)
        A, C = A - 0.003 * C.T @ G, C - 0.003 * G @ A.T
    assert ((z @ (C @ A).T - y) ** 2)[:, 1].mean() > 0.8 * (y[:, 1] ** 2).mean()
    assert np.isnan(steps[0])


def test_the_map_has_least_norm_with_silent_and_duplicate_channels():
    rng = np.random.default_rng(3)
    z = rng.standard_normal((50, 5))
    z[:, 1], z[:, 3] = 3 * z[:, 0], 0.0
    y = z[:, [0, 2]] + rng.standard_normal((50, 2))
    power, cross = z.T @ z / 50, y.T @ z / 50
    assert best_map(power, cross) == pytest.approx(np.linalg.lstsq(z, y, rcond=None)[0].T, abs=1e-12)
    rows = best_map(np.stack([power, np.eye(5)]), np.stack([cross, cross]))
    assert rows == pytest.approx(np.stack([best_map(power, cross), cross]), abs=1e-12)
    assert Correlations.of(power).rank == 3


def test_round_off_of_a_centred_constant_channel_is_not_an_input():
    x, y = trials(1.0)
    x[:, :, 1] = 1234.567  # the mean of this constant is not exact
    summary = lc.tasks.summary(lc.Task.from_samples(x, y, centre=True), recurrence=0.8)
    assert summary.rank == 2


@pytest.mark.parametrize("seed", range(20))
def test_a_silent_channel_changes_neither_the_best_map_nor_the_forecast(seed):
    """Round-off in the eigenvector of a silent channel removed another direction, and descent seemed to diverge."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((40, 5, 4))
    x[:, :, 3] = x[:, :, 0] if seed % 2 else 0.0  # a duplicate, or a second silent channel
    x[:, :, 1] = 0.0
    y = x.sum(axis=1)[:, [0, 2]] + 0.5 * rng.standard_normal((40, 2))
    z = np.einsum("ptc,t->pc", x, 0.5 ** np.arange(4, -1, -1))
    map_ = np.linalg.lstsq(z, y, rcond=None)[0]
    assert best_map(z.T @ z / 40, y.T @ z / 40) == pytest.approx(map_.T, abs=1e-9)
    rows = best_map(np.stack([z.T @ z, np.eye(4)]) / 40, np.stack([y.T @ z] * 2) / 40)
    assert rows[0] == pytest.approx(map_.T, abs=1e-9)
    assert rows[1] == pytest.approx(y.T @ z, abs=1e-9)
    if seed < 3:
        network = lc.LinearRNN.random(4, 4, 2, scale=0.3, recurrence=0.5, rng=1)
        task, goal = lc.Task.from_samples(x, y), lc.Explained(0.95)
        steps = lc.forecast(task, network, goal=goal, learning_rate=0.01).steps.descent
        A, C = network.input_weights, network.output_weights
        least, zero = ((z @ map_ - y) ** 2).sum() / 80, (y**2).sum() / 80
        taken = 0
        while ((z @ (C @ A).T - y) ** 2).sum() / 80 - least > 0.05 * (zero - least):
            G = (z @ (C @ A).T - y).T @ z / len(z)
            A, C, taken = A - 0.01 * C.T @ G, C - 0.01 * G @ A.T, taken + 1
        assert steps == taken


@pytest.mark.parametrize("rows", [3, 7, 30])
def test_the_map_of_few_trials_of_many_channels_is_that_of_least_norm(rows):
    rng = np.random.default_rng(rows)
    x = rng.standard_normal((rows, 40)) * np.geomspace(1e-3, 10.0, 40)
    x[:, 5], x[:, 6] = 0.0, x[:, 7]
    y = rng.standard_normal((rows, 2))
    found = best_map(x.T @ x / rows, y.T @ x / rows)
    np.testing.assert_allclose(found, (np.linalg.pinv(x) @ y).T, rtol=1e-6, atol=1e-8)
