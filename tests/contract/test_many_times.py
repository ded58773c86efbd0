"""Balanced flows at many times equal those at single times."""

from __future__ import annotations

import numpy as np
import pytest

from learncast import TwoLayer
from learncast.theory import BalancedFlow

EPS = float(np.finfo(float).eps)


def orthonormal(rng, size, columns):
    return np.linalg.qr(rng.standard_normal((size, columns)))[0]


def drawn(seed, inputs, hidden, outputs, values, scale, imbalance=0.0):
    """Return a task of the given singular values and a balanced start."""
    rng = np.random.default_rng(seed)
    left, right = orthonormal(rng, outputs, len(values)), orthonormal(rng, inputs, len(values))
    start = TwoLayer.balanced(inputs, hidden, outputs, scale=scale, imbalance=imbalance, rng=rng)
    return (left * np.array(values)) @ right.T, start.first, start.second


def from_another_task(seed, angle):
    """A start that has learned another task, opposed in two modes: at angle 0 it ends on a saddle."""
    rng = np.random.default_rng(seed)
    U, V = orthonormal(rng, 4, 4), orthonormal(rng, 4, 4)
    turn = np.eye(4)
    turn[:2, :2] = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
    root = np.sqrt([1.5, 1.1, 0.7, 0.4])
    signs = np.array([1.0, -1.0, 1.0, 1.0])
    return (U * np.array([2.0, 1.2, 0.9, 0.3])) @ V.T, (root * signs)[:, None] * (V @ turn).T, U * root


CASES = {
    "one unit": drawn(0, 1, 1, 1, [1.3], 0.1),
    "small": drawn(1, 3, 5, 2, [1.5, 0.4], 0.2),
    "bottleneck": drawn(2, 6, 2, 6, [2.0, 1.5, 1.0, 0.5, 0.3, 0.1], 0.1),
    "rank-deficient task": drawn(3, 5, 6, 7, [1.0, 0.2], 0.3),
    "rank-deficient start": drawn(4, 6, 8, 6, [2.0, 1.0, 0.5, 0.3, 0.2, 0.1], 0.01),
    "no task": (np.zeros((3, 4)), *drawn(5, 4, 3, 3, [1.0], 0.7)[1:]),
    "no start": (drawn(6, 4, 3, 3, [1.0, 0.5], 0.7)[0], np.zeros((3, 4)), np.zeros((3, 3))),
    "tied modes": drawn(7, 6, 6, 6, [1.0, 1.0, 1.0, 0.5, 0.5, 0.5], 0.05),
    "tiny start": drawn(8, 5, 5, 5, [2.0, 1.6, 1.0, 0.6, 0.2], 1e-6),
    "large start": drawn(9, 5, 5, 5, [2.0, 1.6, 1.0, 0.6, 0.2], 20.0),
    "rates far apart": drawn(10, 4, 4, 4, [300.0, 3.0, 0.03, 3e-4], 0.1),
    "second layer larger": drawn(11, 5, 4, 6, [1.8, 0.9, 0.3], 0.2, 0.8),
    "first layer larger": drawn(12, 6, 4, 5, [1.8, 0.9, 0.3], 0.2, -0.8),
    "saddle": from_another_task(13, 0.0),
    "near a saddle": from_another_task(14, 1e-5),
    "far from a saddle": from_another_task(15, 0.4),
    "hidden units to spare": drawn(16, 20, 40, 20, np.linspace(2.0, 0.5, 20), 0.05),
}
RNG = np.random.default_rng(99)
TIMES = {
    "evenly": np.linspace(0.0, 12.0, 500),
    "until long after": np.linspace(0.0, 400.0, 500),
    "over decades": 10.0 ** RNG.uniform(-4, 5, 500),
    "at random, some twice, with the end": np.concatenate([RNG.choice(RNG.uniform(0, 25, 300), 500), [np.inf, 0.0]]),
    "late": RNG.uniform(3.0, 4.0, 200),
}


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])
@pytest.mark.parametrize("spread", TIMES)
@pytest.mark.parametrize("case", CASES)
def test_many_times_equal_single_times(case, spread, every):
    flow, times = BalancedFlow(*CASES[case]), TIMES[spread]
    course = flow.course(times)
    grams, strengths, losses = (one[::every] for one in course)
    single = [flow.course(time) for time in times[::every]]
    gram, strength, loss = (np.array(one) for one in zip(*single, strict=True))
    size = np.abs(gram).max(axis=(1, 2))
    assert (np.abs(grams - gram).max(axis=(1, 2)) <= 1e-12 * size).all()
    assert (np.abs(strengths - strength).max(axis=1) <= 1e-12 * size).all()
    # Both round W2 W1 before subtracting the task.
    rounding = 64 * EPS * max(size.max(), flow.singular_values.max())
    assert (np.abs(losses - loss) <= 1e-11 * loss + rounding * np.sqrt(loss) + rounding**2).all()
    np.testing.assert_array_equal(flow.grams(times), course[0])


def test_the_shape_of_times_is_kept():
    flow = BalancedFlow(*CASES["small"])
    times = TIMES["evenly"].reshape(5, 100)
    np.testing.assert_array_equal(flow.grams(times).reshape(500, 5, 5), flow.grams(times.ravel()))
    assert [one.shape for one in flow.course(times)] == [(5, 100, 5, 5), (5, 100, 2), (5, 100)]
    assert flow.grams([]).shape == (0, 5, 5)
