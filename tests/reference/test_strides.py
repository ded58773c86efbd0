"""Steps counted in strides against plain gradient descent, implemented here from the equations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import learncast as lc
from learncast.theory import PooledDescent, Problem
from learncast.theory.dynamics.descent import MOST_COUNTED
from learncast.theory.dynamics.steps import strides

Array = np.ndarray


# ---- plain descent -------------------------------------------------------------------------------------------------


def mode_step(weights: Array, cross: Array, power: Array, rate: Any) -> Array:
    """a <- a + eta c (beta - a c B), c <- c + eta a (beta - a c B); weights (rows, 2, modes)."""
    pull = rate * (cross - weights[:, 0] * weights[:, 1] * power)
    return weights + weights[:, ::-1] * pull[:, None]


def mode_learned(weights: Array, cross: Array, power: Array, tolerance: Array) -> Array:
    gap = np.abs(weights[:, 0] * weights[:, 1] - cross / power)
    return np.asarray((gap <= tolerance[:, None] * np.abs(cross / power) * (1 + 1e-12)).all(axis=1))


def pooled_step(states: Array, power: Array, cross: Array, rate: Any) -> Array:
    """A <- A + eta C^T (R - C A S), C <- C + eta (R - C A S) A^T."""
    A, C = two_layers(states, cross)
    G = cross - C @ A @ power
    moves = C.swapaxes(-1, -2) @ G, G @ A.swapaxes(-1, -2)
    return states + rate * np.concatenate([move.reshape(len(states), -1) for move in moves], axis=-1)


def two_layers(states: Array, cross: Array) -> tuple[Array, Array]:
    """A (hidden, inputs) and C (outputs, hidden) of states (rows, weights), one after the other."""
    outputs, inputs = cross.shape[-2:]
    hidden = states.shape[-1] // (inputs + outputs)
    A, C = np.split(states, [hidden * inputs], axis=-1)
    return A.reshape(len(states), hidden, inputs), C.reshape(len(states), outputs, hidden)


def plain_modes(weights: Array, cross: Array, power: Array, tolerance: Array, rate: Array, most: int) -> Any:
    """Steps of every row, its state then and the last step it took; rows still going after `most` have nan."""
    weights, counts, left = weights.copy(), np.full(len(weights), np.nan), np.arange(len(weights))
    moves = np.zeros_like(weights)
    for n in range(most + 1):
        learned = mode_learned(weights[left], cross[left], power[left], tolerance[left])
        counts[left[learned]] = n
        left = left[~learned]
        if not len(left):
            break
        after = mode_step(weights[left], cross[left], power[left], rate[left][:, None])
        moves[left], weights[left] = after - weights[left], after
    return counts, weights, moves


def plain_pooled(states: Array, power: Array, cross: Array, goal: Array, rate: Array, most: int) -> Any:
    states, counts, left = states.copy(), np.full(len(states), np.nan), np.arange(len(states))
    moves = np.zeros_like(states)
    best = np.stack([r @ np.linalg.inv(s) for r, s in zip(cross, power, strict=True)])
    for n in range(most + 1):
        A, C = two_layers(states[left], cross)
        gap = C @ A - best[left]
        learned = (gap @ power[left] * gap).sum(axis=(-2, -1)) / 2 <= goal[left]
        counts[left[learned]] = n
        left = left[~learned]
        if not len(left):
            break
        after = pooled_step(states[left], power[left], cross[left], rate[left][:, None])
        moves[left], states[left] = after - states[left], after
    return counts, states, moves


# ---- random problems -----------------------------------------------------------------------------------------------


def random_modes(seed: int, number: int, modes: int, longest: float) -> Any:
    """Modes of any strength and start, with learning rates under which they take up to `longest` steps or so."""
    rng = np.random.default_rng([seed, modes])
    cross, power = np.exp(rng.uniform(np.log(0.3), np.log(4), (2, number, modes)))
    signs = rng.choice([-1.0, 1.0], (number, modes))
    weights = np.exp(rng.uniform(np.log(0.02), np.log(1.5), (number, 2, modes)))
    weights[:, 1] *= signs  # unbalanced, and on the optimum's side
    tolerance = rng.choice([0.01, 0.05, 0.3], number)
    rate = 10.0 ** rng.uniform(np.log10(8 / longest / 0.3), -1.5, number)
    return weights, signs * cross, power, tolerance, rate


def random_pooled(seed: int, number: int, longest: float, stiff: float) -> Any:
    """Pooled problems of condition numbers up to `stiff`, from random starts; the goal is an excess loss."""
    rng = np.random.default_rng([seed, 77])
    inputs, outputs, hidden = 3, 2, 3
    power, cross = np.empty((number, inputs, inputs)), np.empty((number, outputs, inputs))
    for k in range(number):
        turn = np.linalg.qr(rng.normal(size=(inputs, inputs)))[0]
        power[k] = (turn * np.exp(rng.uniform(-np.log(stiff), 0.0, inputs))) @ turn.T
        cross[k] = rng.normal(size=(outputs, inputs)) @ power[k]
    starts = rng.uniform(0.05, 0.5, number)[:, None, None] * rng.normal(size=(number, inputs + outputs, hidden))
    layers = starts[:, :inputs].swapaxes(1, 2), starts[:, inputs:]
    states = np.concatenate([w.reshape(number, -1) for w in layers], axis=1)
    best = np.stack([r @ np.linalg.inv(s) for r, s in zip(cross, power, strict=True)])
    goal = rng.choice([0.01, 0.1], number) * (best * cross).sum(axis=(1, 2)) / 2
    rate = 10.0 ** rng.uniform(np.log10(20 / longest), -1.3, number)
    return states, power, cross, goal, rate


def assert_counted(found: Any, ends: Array, plain: Any, *, known: Array | None = None) -> None:
    """To the step of plain descent; states then as near as a fraction of that step."""
    counts, states, moves = plain
    known = np.ones(len(counts), dtype=bool) if known is None else known
    assert (found == counts)[known].all(), np.flatnonzero(known & (found != counts))
    gap = np.abs(ends - states).reshape(len(counts), -1).max(axis=1)
    step = np.abs(moves).reshape(len(counts), -1).max(axis=1)
    size = np.abs(states).reshape(len(counts), -1).max(axis=1)
    assert (gap <= 0.3 * step + 1e-10 * size)[known].all()


def one_by_one(
    weights: Array, cross: Array, power: Array, tolerance: Array, rate: Array, most: int
) -> tuple[Array, Array]:
    """Count each row separately, with its own learning rate and strides."""
    counts, ends = np.empty(len(weights)), np.empty_like(weights)
    for k in range(len(weights)):
        problem = Problem(cross[k], power[k], np.zeros(cross.shape[1]))
        counts[k : k + 1], ends[k : k + 1] = problem.steps_to(
            weights[k : k + 1], problem.within(tolerance[k]), float(rate[k]), most
        )
    return counts, ends


# ---- counting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("modes", [1, 2, 3])
def test_step_counts_of_modes_equal_plain_descent(modes: int) -> None:
    given = random_modes(1, 30, modes, 2e4)
    assert_counted(*one_by_one(*given, 10**7), plain_modes(*given, 200_000))


@pytest.mark.parametrize("modes", [1, 3])
def test_parallel_step_counts_of_modes_equal_plain_descent(modes: int) -> None:
    """Rows with different strengths, starts and tolerances: strides must suit the fastest and locate the slowest."""
    weights, cross, power, tolerance, _ = given = random_modes(2, 200, modes, 2e4)
    rate = np.full(200, 1e-3)
    problem = Problem(cross, power, np.zeros(modes))
    found, ends = problem.steps_to(weights, problem.within(tolerance), 1e-3)
    assert_counted(found, ends, plain_modes(*given[:4], rate, 100_000))


@pytest.mark.parametrize("stiff", [1.0, 30.0])
def test_step_counts_of_pooled_problems_equal_plain_descent(stiff: float) -> None:
    states, power, cross, goal, rate = given = random_pooled(3, 40, 2e3, stiff)
    plain = plain_pooled(*given, 30_000)
    known = np.isfinite(plain[0])
    assert known.mean() > 0.6
    found, ends = np.empty(40), np.empty_like(states)
    for k in range(40):
        found[k : k + 1], ends[k : k + 1] = PooledDescent(power[k], cross[k]).steps_to(
            states[k : k + 1], goal[k], float(rate[k]), 30_000
        )
    assert_counted(found, ends, plain, known=known)
    # Goals that plain descent has not reached are nan, or reached within the last stride.
    assert (np.isnan(found) | (found > 29_000))[~known].all()


def test_parallel_step_counts_of_pooled_problems_equal_plain_descent() -> None:
    states, power, cross, goal, _ = given = random_pooled(4, 100, 2e4, 5.0)
    rate = np.full(100, 5e-3)
    plain = plain_pooled(*given[:4], rate, 30_000)
    known = np.isfinite(plain[0])
    assert known.mean() > 0.9
    found, ends = PooledDescent(power, cross).steps_to(states, goal, 5e-3)
    assert_counted(found, ends, plain, known=known)
    # A count that is not precise may be off by one step.
    about, _ = PooledDescent(power, cross).steps_to(states, goal, 5e-3, precise=False)
    assert (np.abs(about - plain[0]) <= 1)[known].all()


@pytest.mark.slow_cases("0.01")
@pytest.mark.parametrize("share", [1e-2, 1e-4])
def test_step_counts_of_unlearning_equal_plain_descent(share: float) -> None:
    """Targets far below the initial strength: descent only decays."""
    weights, cross, power, tolerance, _ = random_modes(7, 10, 2, 2e4)
    weights, cross, rate = np.full_like(weights, 0.7), cross * share, np.full(10, 5e-3)
    plain = plain_modes(weights, cross, power, tolerance, rate, 30_000)
    assert_counted(*one_by_one(weights, cross, power, tolerance, rate, 30_000), plain, known=np.isfinite(plain[0]))
    states, power, cross, goal, _ = random_pooled(8, 10, 2e3, 5.0)
    cross, goal, rate = cross * share, goal * share**2, np.full(10, 2e-2)
    plain = plain_pooled(states, power, cross, goal, rate, 15_000)
    known = np.isfinite(plain[0])
    assert known.sum() >= 4
    found, ends = PooledDescent(power, cross).steps_to(states, goal, 2e-2, 15_000)
    assert_counted(found, ends, plain, known=known)


@pytest.mark.slow
@pytest.mark.parametrize("modes", [1, 2, 3])
def test_step_counts_of_modes_are_exact_at_a_hundred_thousand_steps(modes: int) -> None:
    given = random_modes(5, 120, modes, 2e5)
    assert_counted(*one_by_one(*given, 10**7), plain_modes(*given, 2_000_000))


@pytest.mark.slow
@pytest.mark.parametrize("stiff", [1.0, 30.0, 300.0])
def test_step_counts_of_pooled_problems_are_exact_at_a_hundred_thousand_steps(stiff: float) -> None:
    states, power, cross, goal, rate = given = random_pooled(6, 80, 2e4, stiff)
    plain = plain_pooled(*given, 300_000)
    known = np.isfinite(plain[0])
    found, ends = np.empty(80), np.empty_like(states)
    for k in np.flatnonzero(known):
        found[k : k + 1], ends[k : k + 1] = PooledDescent(power[k], cross[k]).steps_to(
            states[k : k + 1], goal[k], float(rate[k])
        )
    assert_counted(found, ends, plain, known=known)


# ---- states after given numbers of steps ---------------------------------------------------------------------------

STOPS = (0, 1, 7, 255, 256, 257, 1000, 4097, 9999)


@pytest.mark.parametrize("rate", [1e-2, 1e-3, 1e-4])
def test_weights_of_modes_after_any_number_of_steps(rate: float) -> None:
    weights, cross, power, _, _ = random_modes(7, 70, 2, 2e4)
    found = Problem(cross, power, np.zeros(2)).advance(weights, STOPS, rate)
    at, done = weights, 0
    for stop, states in zip(STOPS, found, strict=True):
        for _ in range(stop - done):
            at = mode_step(at, cross, power, rate)
        done = stop
        np.testing.assert_allclose(states, at, rtol=0, atol=1e-8 * np.abs(at).max())


@pytest.mark.parametrize("rate", [1e-2, 1e-3, 1e-4])
def test_weights_of_pooled_problems_after_any_number_of_steps(rate: float) -> None:
    states, power, cross, _, _ = random_pooled(8, 40, 2e4, 30.0)
    found = PooledDescent(power, cross).advance(states, STOPS, rate)
    at, done = states, 0
    for stop, here in zip(STOPS, found, strict=True):
        for _ in range(stop - done):
            at = pooled_step(at, power, cross, rate)
        done = stop
        np.testing.assert_allclose(here, at, rtol=0, atol=1e-8 * np.abs(at).max())


# ---- goals that are not reached ---------------------------------------------------------------------------------


def test_diverging_descent_has_an_infinite_count() -> None:
    weights, cross, power, _, _ = random_modes(9, 20, 1, 1e3)
    for k in range(20):
        problem = Problem(cross[k], power[k], np.zeros(1))
        rate = 2.5 / (2 * abs(cross[k, 0]))  # beyond 2 over the curvature at the optimum
        assert problem.steps_to(weights[k : k + 1], problem.within(0.001), rate)[0] == np.inf
    states, power, cross, goal, _ = random_pooled(9, 20, 1e3, 2.0)
    for k in range(20):
        pooled = PooledDescent(power[k], cross[k])
        assert pooled.steps_to(50 * states[k : k + 1], goal[k], 20.0 / pooled.curvature)[0] == np.inf


def test_descent_to_a_saddle_has_an_infinite_count() -> None:
    """A balanced mode of the wrong sign ends on the saddle at 0, and so does its pooled problem."""
    problem = Problem(np.array([1.0]), np.array([1.0]), np.zeros(1))
    assert problem.steps_to(np.array([[[0.1], [-0.1]]]), problem.within(0.01), 1e-2)[0] == np.inf
    pooled = PooledDescent(np.eye(2), np.eye(2))
    states = np.concatenate([0.1 * np.eye(2).ravel(), 0.1 * np.diag([1.0, -1.0]).ravel()])[None]
    assert pooled.steps_to(states, 1e-3, 1e-2)[0] == np.inf
    # An optimum at 0 is approached like 1 / t, and a band of width 0 is never entered.
    idle = Problem(np.array([0.0]), np.array([1.0]), np.zeros(1))
    assert idle.steps_to(np.array([[[0.1], [0.1]]]), idle.within(0.01), 1e-2)[0] == np.inf
    assert problem.steps_to(np.array([[[0.1], [0.1]]]), problem.within(0.0), 1e-2)[0] == np.inf


@pytest.mark.parametrize("most", [5, 300, 6000])
def test_count_is_nan_beyond_the_largest_number_of_steps(most: int) -> None:
    weights, cross, power, tolerance, _ = given = random_modes(10, 60, 1, 1e4)
    counts = plain_modes(*given[:4], np.full(60, 1e-3), 20_000)[0]
    problem = Problem(cross, power, np.zeros(1))
    found = problem.steps_to(weights, problem.within(tolerance), 1e-3, most)[0]
    soon = counts <= most
    assert (found[soon] == counts[soon]).all()
    assert np.isnan(found[~soon]).all()
    assert soon.any() or most < 300


@pytest.mark.parametrize(("rate", "limits"), [(0.03, (10, 20, 30, 50)), (0.005, (70, 100, 150, 200))])
def test_no_step_is_taken_beyond_the_largest_number(rate: float, limits: tuple[int, ...]) -> None:
    """Also within a block of single steps; blocks end at 8, 24, 56, 120 and 184."""
    weights, cross, power, tolerance, _ = given = random_modes(11, 200, 1, 1e4)
    counts = plain_modes(*given[:4], np.full(200, rate), 5000)[0]
    problem = Problem(cross, power, np.zeros(1))
    for most in limits:
        found = problem.steps_to(weights, problem.within(tolerance), rate, most)[0]
        np.testing.assert_array_equal(found, np.where(counts <= most, counts, np.nan))
        assert ((counts > most) & (counts < most + 20)).any()


def test_a_start_at_the_goal_takes_no_steps_at_any_learning_rate() -> None:
    problem = Problem(np.array([1.0]), np.array([1.0]), np.zeros(1))
    steps, ends = problem.steps_to(np.array([[[1.0], [1.0]]]), problem.within(0.01), 100.0)
    assert steps == 0
    np.testing.assert_array_equal(ends, [[[1.0], [1.0]]])


@pytest.mark.parametrize("steps", [8, 9, 50, 1000, 10**5])
def test_a_stride_is_of_fourth_order(steps: int) -> None:
    """Halving the learning rate divides the error of one stride of a quadratic-in-weights slope by 2^5."""

    class Growing:
        curvature = growth = 1.0

        def slope(self, states: Array, rows: Any) -> Array:
            return states * (1 - states**2)

    def error(reach: float) -> float:
        rate = reach / steps
        at = plain = np.array([[0.3]])
        for _ in range(steps):
            plain = plain + rate * plain * (1 - plain**2)
        return abs(float((strides.stride_of(steps).apply(Growing().slope, at, np.arange(1), rate) - plain)[0, 0]))

    reaches = np.array([0.4, 0.2, 0.1])
    order = np.polyfit(np.log(reaches), np.log([error(r) for r in reaches]), 1)[0]
    assert 4.5 < order < 6.5


@pytest.mark.parametrize("rate", [1e-3, 0.05, 0.9])
@pytest.mark.parametrize(("rows", "modes"), [(1, 1), (3, 2), (4, 4), (5, 6)])
def test_steps_in_floats_equal_steps_in_arrays_bit_for_bit(monkeypatch, rows, modes, rate):
    rng = np.random.default_rng(rows)
    problem = Problem(rng.uniform(0.5, 2.0, (rows, modes)), rng.uniform(0.5, 1.5, (rows, modes)), np.zeros(modes))
    weights, learned = rng.uniform(0.01, 0.1, (rows, 2, modes)), problem.within(np.full(rows, 0.01))

    def taken():
        steps, ends = problem.steps_to(weights, learned, rate)
        return [steps, ends, *problem.advance(weights, [0, 1, 2, 3, 70, 500, 501, 3000], rate)]

    found = taken()
    step, used = strides.Descents._step, []

    def in_the_other_way(self: Any, *given: Any) -> Any:
        small, used[:] = strides.SMALL, [True]
        monkeypatch.setattr(strides, "SMALL", 0 if 2 * rows * modes <= small else 1000)
        result = step(self, *given)
        monkeypatch.setattr(strides, "SMALL", small)
        return result

    monkeypatch.setattr(strides.Descents, "_step", in_the_other_way)
    others = taken()
    assert used
    assert (found[0] > 2).all()
    for one, other in zip(found, others, strict=True):
        np.testing.assert_array_equal(one, other)  # the same operations in the same order


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("plain", [0, 5, 256])
@pytest.mark.parametrize("most", [1, 8, 17, 100, 640])
def test_steps_are_split_into_single_steps_and_strides(most, plain, begun):
    """First single steps, then growing strides between the shortest and the longest length."""
    for steps in (0, 1, 7, 8, 255, 256, 300, 1000, 5003):
        found = strides._split(steps, most, plain, begun=begun)
        assert sum(found) == steps
        assert found[:plain] == [1] * min(steps, plain)
        assert all(one == 1 or strides.LEAST <= one <= most for one in found)
        if steps >= plain + 4 * most and most >= strides.LEAST:
            assert found.count(most) >= (steps - plain) // most - 2  # few are shorter
        if begun and not plain:
            assert [one for one in found if one > 1][: steps // most] == [most] * (steps // most if most > 1 else 0)
        elif most >= 8 * strides.LEAST and steps >= plain + 2 * most:
            assert found[plain] == most // 8


@pytest.mark.parametrize("rows", [5, 50])
def test_stops_at_the_end_of_the_single_steps_do_not_change_later_states(rows):
    rng = np.random.default_rng(rows)
    problem = Problem(rng.uniform(0.5, 2.0, (rows, 4)), rng.uniform(0.5, 1.5, (rows, 4)), np.zeros(4))
    weights, plain = rng.uniform(0.01, 0.1, (rows, 2, 4)), strides.FIRST_STEPS["many"]
    expected = problem.advance(weights, [3000], 1e-4)
    for stops in ([plain, 3000], [7, plain, 3000], [plain - 1, 3000]):
        np.testing.assert_array_equal(problem.advance(weights, stops, 1e-4)[-1], expected[0])


def test_the_remainder_is_one_stride_or_single_steps():
    assert strides._split(108, 100, 0, begun=True) == [100, 8]
    assert strides._split(107, 100, 0, begun=True) == [100, *[1] * 7]
    assert strides._split(1000, 160, 0, begun=False) == [20, 20, 40, 40, 80, 80, 160, 160, 160, 160, 80]


def test_longest_stride():
    """With growth g and curvature k times the learning rate: at most 1.8 / k, and (0.05 g)^(1/4) / g or 0.01 / g."""

    def longest(curvature: float, growth: float, rate: float, *, precise: bool | None = None) -> int:
        one = strides.Descents(None, None, curvature, growth, rate)  # type: ignore[arg-type]
        return one.longest() if precise is None else one.longest(precise=precise)

    assert longest(0.0, 2.0, 1e-3) == longest(0.0, 2.0, 1e-3, precise=False) == 50  # (1e-4)^(1/4) / 0.002
    assert longest(0.0, 0.5, 1e-3, precise=True) == 20
    assert longest(45.0, 2.0, 1e-3) == 40
    assert longest(45.0, 0.0, 1e-3) == 40
    assert longest(0.0, 0.0, 1e-3) == 10**6
    assert longest(0.0, 1e-9, 1e-3) == 10**6
    assert longest(300.0, 0.0, 1e-3) == 1  # six steps do not pay


def test_counts_end_at_a_thousand_million_steps() -> None:
    """From 0.01 to 0.99 a mode of strength 1 takes 1/2 ln(99^2) of flow time."""
    problem = Problem(np.ones(1), np.ones(1), np.zeros(1))
    begin, time = np.full((1, 2, 1), 0.1), np.log(99.0)
    counts = [problem.steps_to(begin, problem.within(0.01), time / steps)[0][0] for steps in (0.9e9, 1.1e9)]
    assert counts[0] == pytest.approx(0.9e9, rel=1e-6)
    assert np.isnan(counts[1])


def test_growth_is_the_first_singular_value_of_any_row() -> None:
    cross = np.array([[[0.3, 0.0], [0.0, 0.4]], [[0.0, 0.2], [0.1, 0.0]]])
    assert PooledDescent(np.eye(2), cross).growth == pytest.approx(0.4, rel=1e-15)
    assert PooledDescent(np.eye(2), cross[1]).growth == pytest.approx(0.2, rel=1e-15)


@pytest.mark.parametrize("lam", [0.0, 0.6, -0.6])
def test_curvature_at_the_optimum(lam: float) -> None:
    """There the Hessian of B (a c - u*)^2 / 2 is B (c, a)(c, a)^T, of length B (a^2 + c^2)."""
    beta, B, u = 0.8, 2.0, 0.02
    S, best = np.hypot(lam, 2 * u), beta / B
    a, c = np.sqrt((S + lam) / 2), np.sqrt((S - lam) / 2)
    problem = Problem(np.array([beta]), np.array([B]), np.array([lam]))
    found = problem._descents(np.array([[[a], [c]]]), problem.within(0.1), 1e-3)
    assert found.curvature == pytest.approx(B * np.hypot(lam, 2 * best), rel=1e-12)
    assert found.growth == beta


def test_curvature_of_the_flattest_optimum() -> None:
    """Of white input of variance v it is balanced: g^2 v + g^-2 v s^2 is least at g^2 = s, the first strength."""
    best = np.array([[0.0, 3.0, 0.0], [0.5, 0.0, 0.0]])
    one = PooledDescent(0.7 * np.eye(3), 0.7 * best)
    assert one.flattest == pytest.approx(2 * 0.7 * 3.0, rel=1e-9)
    twice = PooledDescent(np.stack([0.7 * np.eye(3)] * 2), np.stack([0.7 * best] * 2))
    assert twice.flattest == pytest.approx(one.flattest, rel=1e-9)
    for variance, strength in ((1e-8, 3.0), (1.0, 1e6), (1e8, 1e-5)):  # in any units
        scaled = PooledDescent(variance * np.eye(3), variance * strength * best / 3)
        assert scaled.flattest == pytest.approx(2 * variance * strength, rel=1e-5)
    # Another channel of variance 4 makes a smaller first layer flatter: 4 g^2 = 0.2 g^2 + g^-2 1.8.
    power = np.diag([1.0, 0.2, 4.0])
    assert PooledDescent(power, best @ power).flattest == pytest.approx(4 * np.sqrt(1.8 / 3.8), rel=1e-5)


# ---- cost of a count --------------------------------------------------------------------------------------------


def test_only_goals_close_to_a_step_are_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goals within a twentieth of a step on either side are about a tenth of all."""
    passes: list[int] = []
    count = strides.Descents._count

    def counted(self: Any, begun: Array, rows: Array, *rest: Any) -> Array:
        passes.append(len(rows))
        return count(self, begun, rows, *rest)

    monkeypatch.setattr(strides.Descents, "_count", counted)
    states, power, cross, goal, _ = random_pooled(4, 100, 2e4, 5.0)
    descents = PooledDescent(power, cross)
    descents.steps_to(states, goal, 5e-3)
    assert passes[0] == 100
    assert 0 < passes[1] < 30
    passes.clear()
    descents.steps_to(states, goal, 5e-3, precise=False)
    assert passes == [100]


def test_number_of_single_steps_before_the_first_stride(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    step, move = strides.Descents._step, strides.Descents._move

    def stepping(self: Any, states: Array, rows: Array, steps: Sequence[int]) -> Any:
        taken.append(steps[-1])
        return step(self, states, rows, steps)

    def striding(self: Any, states: Array, rows: Array, steps: int) -> Array:
        if steps > 1:
            taken.append(-steps)
        return move(self, states, rows, steps)

    monkeypatch.setattr(strides.Descents, "_step", stepping)
    monkeypatch.setattr(strides.Descents, "_move", striding)
    states, power, cross, goal, _ = random_pooled(4, 1, 2e4, 5.0)
    count = PooledDescent(power, cross).steps_to(states, goal, 2e-4)[0][0]
    before = taken[: next(k for k, steps in enumerate(taken) if steps < 0)]
    assert sum(before) == strides.FIRST_STEPS["few"] < count


@pytest.mark.parametrize("rate", [5e-2, 2e-2], ids=["step by step", "where strides may follow"])
def test_a_pooled_count_ends_at_the_largest_number_of_steps(rate: float) -> None:
    states, power, cross, goal, _ = given = random_pooled(6, 1, 2e4, 5.0)
    count = int(plain_pooled(*given[:4], np.array([rate]), 2000)[0][0])
    descents = PooledDescent(power, cross)
    for most in (count - 5, count - 1):
        assert np.isnan(descents.steps_to(states, goal, rate, most)[0][0])
    assert descents.steps_to(states, goal, rate, count)[0][0] == count


@pytest.mark.parametrize("rate", [1e-3, 1e-5, 1e-7])
def test_long_descent_of_readout_weights_counts_the_steps_of_the_closed_form(rate: float) -> None:
    """Descent of the readout alone is linear: each eigenvalue s of the state covariance decays by 1 - rate s a step."""
    rng = np.random.default_rng(5)
    x = rng.poisson(2.0, (60, 8, 5)).astype(float)
    y = x.mean(axis=1) @ rng.normal(size=(5, 2)) + 0.3 * rng.normal(size=(60, 2)) + 1.5
    network = lc.LinearRNN.random(5, 6, 2, rng=3)
    h = np.zeros((60, 6))
    for t in range(8):
        h = h @ network.recurrent_weights.T + x[:, t] @ network.input_weights.T
    s, vectors = np.linalg.eigh(h.T @ h / 60)
    start, cross = network.output_weights @ vectors, y.T @ h @ vectors / 60
    best = np.where(s > 1e-13, cross / s, start)

    def loss(C: np.ndarray) -> float:
        return float(((h @ vectors @ C.T - y) ** 2).sum() / 120)

    goal = loss(best) + 0.05 * (float((y**2).sum() / 120) - loss(best))

    def arrived(k: int) -> bool:
        return loss(best + (start - best) * (1 - rate * s) ** k) <= goal

    low, high = 0, 10**12
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if arrived(middle) else (middle, high)
    training = lc.Training(rate, learn=("output",))
    steps = lc.forecast(x, network, training, lc.Explained(0.95), targets=y).steps
    assert steps.descent == pytest.approx(high, rel=1e-7, abs=0)  # exact below five million steps
    assert steps.low < high < steps.high


@pytest.mark.slow
def test_long_descent_with_learned_recurrence_counts_the_steps_of_single_steps() -> None:
    task = lc.tasks.integration(steps=4)
    network = lc.LinearRNN.aligned(recurrence=0.8, initial=0.05, hidden_size=2)
    training = lc.Training(1e-5, learn=("input", "recurrent", "output"))
    steps = lc.forecast(task, network, training, lc.Accuracy(0.9)).steps.descent
    assert steps > MOST_COUNTED
    run = lc.descend(task, network, training, steps=int(steps))
    inside = run.loss - run.problem.least_loss <= 0.01 * run.problem.baseline_loss
    assert inside[-1]
    assert not inside[:-1].any()


def test_rows_whose_loss_may_rise_are_counted_as_by_themselves() -> None:
    """Beside calm rows, steep rows that pass their goals and leave them again have arrived at their first visit."""
    rng, passed = np.random.default_rng(3), 0
    for _ in range(12):
        scales = np.array([0.2, 0.4, 1.0])
        Z = rng.normal(size=(3, 40, 3)) * np.sqrt(scales)[:, None, None] / np.array([1, 2, 3])
        power = Z.swapaxes(1, 2) @ Z / 40
        cross = rng.normal(size=(3, 2, 3)) @ power
        states = np.repeat(0.3 * rng.normal(size=(1, 10)), 3, axis=0)
        descent = PooledDescent(power, cross, 2)
        rate, goals = 2.4 / descent.curvature, 0.1 * descent.baseline_loss
        counts, ends = descent.steps_to(states, goals, rate, 400)
        path = [states]
        for _ in range(400):
            path.append(pooled_step(path[-1], power, cross, rate))
        inside = np.stack([descent.excess(at, np.arange(3)) for at in path]) <= goals
        first = inside.argmax(axis=0)
        passed += sum(not inside[n : n + 30, k].all() for k, n in enumerate(first) if inside[n, k])
        for row, n in enumerate(first):
            if inside[n, row]:
                assert counts[row] == n
                np.testing.assert_allclose(ends[row], path[n][row], rtol=1e-9, atol=1e-12)
    assert passed  # some row left its goal again
