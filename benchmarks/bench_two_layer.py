"""Exact learning of two-layer linear networks.

The products of all weights with each other, at many times: by the closed form, and by an ODE solver (DOP853, relative
tolerance 1e-9) on the weights. The theoretical limit is the number of operations of the closed form at the pace of a
large matrix product, and one write of the result.

The solver takes a few dozen steps and interpolates between them, and its Q Q^T is one product a time. The closed form
needs at every time it is evaluated at: a product of 2d x d with itself for the factor (2d^3 operations, one half being
symmetric), its Cholesky factor (d^3/3) and the inverse of that (d^3/3), a triangular product (2d^3), the way back from
singular coordinates (4d^3) and Q Q^T (4d^3), 12.7 d^3 in all. Where many times lie close, it is evaluated at 33
Chebyshev points of a piece of time, and a polynomial through them gives the other times, to round-off. Small
matrices do not reach that pace, least of all where a triangle is factorised and inverted. At d = 5 what solve(...).at
adds is a Dataset of six arrays, whose labels alone are timed as well, and the conditions that come with every answer.
Where the answer is large, memory counts, which other work on the machine shares: these rows, of few runs each, move
most from one report to the next.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.integrate import solve_ivp

import learncast as lc
from benchmarks.timing import fastest, interleaved
from learncast.theory import BalancedFlow

SIZES = (5, 50, 200)
HORIZON = 10.0


def problem(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A task of singular values 0.5 to 2 and a small balanced start, all layers of one size."""
    rng = np.random.default_rng(size)
    left, right = (np.linalg.qr(rng.standard_normal((size, size)))[0] for _ in range(2))
    start = lc.TwoLayer.balanced(size, size, size, scale=0.3 / np.sqrt(size), rng=rng)
    return (left * np.linspace(2.0, 0.5, size)) @ right.T, start.first, start.second


def integrated(S: np.ndarray, first: np.ndarray, second: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Q Q^T by DOP853 on the weights."""
    n, cut = len(S), first.size

    def velocity(_: float, y: np.ndarray) -> np.ndarray:
        W1, W2 = y[:cut].reshape(n, n), y[cut:].reshape(n, n)
        error = S - W2 @ W1
        return np.concatenate([(W2.T @ error).ravel(), (error @ W1.T).ravel()])

    y0 = np.concatenate([first.ravel(), second.ravel()])
    y = solve_ivp(velocity, (0, times[-1]), y0, method="DOP853", rtol=1e-9, atol=1e-12, t_eval=times).y.T
    Q = np.concatenate([y[:, :cut].reshape(-1, n, n).transpose(0, 2, 1), y[:, cut:].reshape(-1, n, n)], axis=1)
    return Q @ Q.transpose(0, 2, 1)


def rows() -> Iterator[tuple[str, str, str]]:
    square = np.random.default_rng(0).standard_normal((500, 500))

    def large():
        return square @ square.swapaxes(0, 1).copy()

    for count in (100, 1000):
        times = np.linspace(0.0, HORIZON, count)
        for size in SIZES:
            goal = "goal >= 5x" if count == 100 or size > 5 else "goal >= 1x"
            given = problem(size)
            task, network = lc.tasks.static(given[0]), lc.TwoLayer(*given[1:])

            def integrate(given=given, times=times):
                return integrated(*given, times)

            def closed(given=given, times=times):
                return BalancedFlow(*given).grams(times)

            def answered(task=task, network=network, times=times):
                return lc.forecast(task, network, learning_rate=0.01).solution.at(times / 0.01)

            if size < 200:  # the solver's error of 1e-9 a step, and the same numbers on both sides
                assert np.abs(integrate() - closed()).max() < 1e-6

            course = answered()
            values = {name: course.dataset[name].values for name in course.dataset.data_vars}

            def labels(values=values, times=times, origin=course.provenance):
                return lc.Trajectory.of(times, values, origin)

            def written(given=given, count=count):
                np.empty((count, 2 * len(given[0]), 2 * len(given[0]))).fill(1.0)

            repeats = 5 if size < 200 else 1 if count > 100 else 2
            ode, exact, whole, named, product, write = interleaved(
                integrate, closed, answered, labels, large, written, repeats=repeats
            )
            least = count * 12.7 * size**3 * product / (2 * len(square) ** 3) + write
            label = f"{count} times, {size} x {size}: ODE solver over closed form"
            yield label, f"{ode / exact:.1f}x", goal
            yield "  ODE solver over the labelled result with losses", f"{ode / whole:.1f}x", ""
            yield "  ODE solver over the theoretical limit", f"{ode / least:.1f}x", ""
            yield "  ODE solver over writing the numbers once", f"{ode / write:.0f}x", ""
            yield "  labelled result with losses over closed form", f"{whole / exact:.1f}x", "goal <= 1.5x"
            if size == 5:  # of larger results they are nothing
                yield "  labels over closed form", f"{named / exact:.1f}x", ""
            if count > 100:
                flow = BalancedFlow(*given)
                some = times[:: count // 20]
                alone = np.array([flow.grams(time) for time in some])
                error = np.abs(flow.grams(times)[:: count // 20] - alone).max(axis=(1, 2))
                worst = (error / np.abs(alone).max(axis=(1, 2))).max()
                yield "  largest relative difference from one time at a time", f"{worst:.0e}", "goal <= 1e-12"
    S, first, second = problem(500)
    made, once = interleaved(
        lambda: BalancedFlow(S, first, second),
        lambda: BalancedFlow(S, first, second).grams(np.array([3.0])),
        repeats=3,
    )
    yield "set-up of one solution, 500 x 500", f"{made:.2f} s", ""
    yield "set-up and one time, 500 x 500", f"{once:.2f} s", ""
    given = problem(200)
    flow, at = BalancedFlow(*given), np.linspace(0.0, HORIZON, 100)
    grams, losses = interleaved(lambda: flow.grams(at), lambda: flow.losses(at), repeats=3)
    yield "100 times, 200 x 200: products of weights over losses only", f"{grams / losses:.1f}x", ""
    tree = lc.tasks.hierarchy(3)
    sequence = [tree, tree.shuffled([0, 2, 4, 6, 1, 3, 5, 7]), tree.shuffled([0, 4, 1, 5, 2, 6, 3, 7])]
    start = lc.TwoLayer.balanced(8, 16, 8, scale=0.01, rng=np.random.default_rng(0))
    chained = fastest(lambda: lc.forget(sequence, start, learning_rate=0.05).losses())
    yield "forgetting over three hierarchies of eight items, exact", f"{chained * 1e3:.1f} ms", ""
