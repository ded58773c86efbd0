"""Order, stability, trade-off and feature learning against golden numbers, published tables and brute force."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from functools import cache
from pathlib import Path

import mpmath
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import brentq, minimize_scalar

from learncast import InvalidSpec, LinearRNN, Status, Task, Training
from learncast.tasks import sensory
from learncast.theory import (
    best_mode,
    best_recurrence,
    change_of_kind,
    descend,
    extrapolation,
    family_extrapolation,
    feature_learning,
    feedforward_control,
    gradient_flow,
    half_loss_time,
    half_strength_time,
    kernel_change,
    largest_stable_rate,
    late_pulse_transition,
    least_hidden_size,
    loss_terms,
    order_reversal,
    transition,
    two_pulse_transition,
    unrolled,
    zero_recurrence_warning,
)
from learncast.theory.dynamics.recurrent_mode import mode_flow, mode_trajectory, polynomial_values, polynomials_of

ALL = ("input", "recurrent", "output")
HERE = Path(__file__).parent
GOLDEN = {e["id"]: e for e in json.loads((HERE / "golden" / "recurrent.json").read_text())["entries"]}

#: Test modules that check each golden entry.
COVERED = {
    "energy_white": ("test_recurrent_mode",),
    "energy_terms_white": ("test_recurrent_mode", "test_recurrent_questions"),
    "flow_white": ("test_recurrent_mode",),
    "traj_leaky": ("test_recurrent_mode", "test_recurrent_questions"),
    "traj_integrate": ("test_recurrent_mode", "test_recurrent_questions"),
    "half_time_fixed_b": ("test_recurrent_questions",),
    "half_loss_order_b0_0.5": ("test_recurrent_mode", "test_recurrent_questions"),
    "half_loss_order_b0_1.0": ("test_recurrent_mode", "test_recurrent_questions"),
    "best_fit_lin_increasing": ("test_recurrent_mode", "test_recurrent_questions"),
    "best_fit_delay3": ("test_recurrent_mode", "test_recurrent_questions"),
    "best_fit_impulse_lag4": ("test_recurrent_mode", "test_recurrent_questions"),
    "impulse_earliest_runaway": ("test_recurrent_mode", "test_recurrent_questions"),
    "extrap_geometric_end": ("test_recurrent_mode", "test_recurrent_questions"),
    "extrap_integrator_leak": ("test_recurrent_mode", "test_recurrent_questions"),
    "hidden_variance": ("test_tangent_kernel",),
    "late_pulse_inf": ("test_recurrent_mode", "test_recurrent_questions"),
    "two_pulse_inf": ("test_recurrent_mode", "test_recurrent_questions"),
    "two_pulse_m2_continuous": ("test_recurrent_mode", "test_recurrent_questions"),
    "ntk_change_mode": ("test_tangent_kernel", "test_recurrent_questions"),
    "sharpness": ("test_tangent_kernel", "test_recurrent_questions"),
    "mean_target": ("test_recurrent_mode", "test_recurrent_questions"),
    "full_loss_grad": ("test_statistics",),
    "conserved_matrix": ("test_recurrent_questions",),
}

ALL = ("input", "recurrent", "output")


def golden(name):
    entry = GOLDEN[name]
    return entry["inputs"], entry["expected"], {"rtol": entry["rtol"], "atol": entry["atol"]}


def mode(a, b, c):
    return LinearRNN(np.full((1, 1), a), np.full((1, 1), b), np.full((1, 1), c))


def profile(task):
    return task.cross_covariance.dense()[::-1, 0, 0, 0]


def pulses(steps, lag, strength):
    return profile(sensory.two_pulse(steps, lag, strength))


def random_network(inputs, hidden, outputs, seed, scale=1.0, recurrence=0.8):
    rng = np.random.default_rng(seed)
    return LinearRNN(
        scale * rng.normal(size=(hidden, inputs)),
        recurrence * rng.normal(size=(hidden, hidden)) / np.sqrt(hidden),
        scale * rng.normal(size=(outputs, hidden)),
    )


def test_every_golden_entry_is_checked_somewhere():
    assert set(COVERED) == set(GOLDEN)
    for name, places in COVERED.items():
        for place in places:
            text = (HERE / f"{place}.py").read_text(encoding="utf-8")
            uses = text.count(f'"{name}"')
            # The list above mentions every entry once in this module.
            assert uses > (1 if place == Path(__file__).stem else 0), f"{place} does not check {name}"


# Order


def test_golden_half_time_with_frozen_recurrence():
    given, expected, close = golden("half_time_fixed_b")
    a = math.sqrt(given["u0"])
    found = half_strength_time(
        np.array([given["late"], given["early"]]), recurrence=np.array(given["b"])[:, None], input_weight=a
    )
    np.testing.assert_allclose(found.steps, expected, **close)
    assert set(found.status.ravel()) == {Status.ok}


@pytest.mark.parametrize("name", ["half_loss_order_b0_0.5", "half_loss_order_b0_1.0"])
def test_golden_half_loss_times(name):
    given, expected, close = golden(name)
    modes = [scale * np.array(given[order]) for scale in given["scales"] for order in ("late", "early")]
    found = half_loss_time(modes, recurrence=given["b0"], input_weight=given["a0"], output_weight=given["c0"])
    np.testing.assert_allclose(found.steps, expected, **close)


def independent_half_loss(start, sig, S, frozen=False):
    """Flow in (a, b, c) as the theory writes it, with an event where the loss has fallen far enough."""
    k = np.arange(len(sig))
    constant = 0.5 * sig @ np.linalg.solve(S, sig)

    def loss(y):
        v = y[1] ** k
        u = y[0] * y[2]
        return constant - u * (sig @ v) + 0.5 * u * u * (v @ S @ v)

    def flow(_, y):
        a, b, c = y
        v = b**k
        w = np.concatenate([[0.0], k[1:] * v[:-1]])
        error = sig @ v - a * c * (v @ S @ v)
        return [c * error, 0.0 if frozen else a * c * (sig @ w) - (a * c) ** 2 * (v @ S @ w), a * error]

    level = 0.5 * loss(start)

    def reached(_, y):
        return loss(y) - level

    reached.terminal = True
    found = solve_ivp(flow, (0, 1e4), start, method="DOP853", rtol=1e-12, atol=1e-14, events=reached)
    return found.t_events[0][0] if len(found.t_events[0]) else math.inf


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_half_loss_time_equals_independent_integration(seed, frozen):
    rng = np.random.default_rng(seed)
    lags = int(rng.integers(2, 9))
    root = rng.normal(size=(lags, lags + 3)) / np.sqrt(lags)
    S = root @ root.T
    sig = S @ rng.uniform(0.2, 1.0, lags)
    start = (0.2, rng.uniform(-0.2, 0.9), 0.1)
    found = half_loss_time(
        sig,
        S,
        input_weight=start[0],
        recurrence=start[1],
        output_weight=start[2],
        learn_recurrence=not frozen,
    )
    # The oracle's error of 1e-12 per step is amplified while the mode grows from a small start.
    assert float(found.steps) == pytest.approx(independent_half_loss(start, sig, S, frozen), rel=1e-8)
    assert found.status.item() is (Status.ok if np.isfinite(found.steps) else Status.not_learned)


def test_small_starts_are_learned_in_the_order_of_their_pull():
    """tau_half -> ln(1/u_0) / 2P(b_0) as u_0 -> 0."""
    late = 0.7 ** np.arange(10)
    for b0 in (0.3, 0.6):
        ratios = []
        for a in (1e-4, 1e-8):
            found = half_loss_time([late, late[::-1]], recurrence=b0, input_weight=a).steps
            pull = np.array([late @ b0 ** np.arange(10), late[::-1] @ b0 ** np.arange(10)])
            ratios.append(found * 2 * pull / np.log(1 / a**2))
        # The remaining time does not depend on u_0, so the gap halves as the logarithm doubles.
        np.testing.assert_allclose((1 - ratios[1]) / (1 - ratios[0]), 0.5, rtol=0.02)


@pytest.mark.parametrize(("u0", "expected"), [(1e-2, 0.828), (1e-4, 0.917), (1e-8, 0.961)])
def test_order_reverses_below_one(u0, expected):
    late = 0.7 ** np.arange(10)
    found = order_reversal(late, late[::-1], initial=math.sqrt(u0), low=0.7, high=1.1, points=5)
    assert found.recurrence == pytest.approx(expected, abs=6e-4)  # three published digits
    both = half_loss_time([late, late[::-1]], recurrence=found.recurrence, input_weight=math.sqrt(u0)).steps
    assert both[0] == pytest.approx(both[1], rel=1e-8)


def test_frozen_order_reverses_at_one():
    late = 0.7 ** np.arange(10)
    found = order_reversal(late, late[::-1], initial=1e-3, learn_recurrence=False, low=0.1, high=1.2)
    assert found.recurrence == pytest.approx(1.0, abs=1e-9)  # all lags have the same weight
    assert math.isnan(order_reversal(late, 2 * late, initial=1e-3, learn_recurrence=False).recurrence)


def test_the_later_task_is_learned_first_from_a_contracting_start():
    late, early = sensory.leaky(), sensory.primacy()
    both = [profile(late), profile(early)]
    contracting, constant = (half_loss_time(both, recurrence=b, input_weight=0.1).steps for b in (0.5, 1.0))
    assert contracting[1] / contracting[0] > 3
    assert constant[1] < constant[0]
    from_zero = half_loss_time(both, recurrence=0.0, input_weight=0.05).steps
    assert from_zero[1] / from_zero[0] == pytest.approx(8, rel=0.1)  # published as about 8


# Stability and extrapolation

BEST = ("best_fit_lin_increasing", "best_fit_delay3", "best_fit_impulse_lag4")


@pytest.mark.parametrize("name", BEST)
def test_golden_best_recurrence(name):
    given, expected, close = golden(name)
    best = best_recurrence(given["sig"]).best
    found = {"b": best.recurrence, "u": best.strength, "E": best.loss, "rel": best.unexplained}
    for key, value in found.items():
        np.testing.assert_allclose(value, expected[key], **close)
    assert least_hidden_size(given["sig"]) == expected["min_hidden"]


def test_golden_runaway_has_no_best_recurrence():
    given, expected, close = golden("impulse_earliest_runaway")
    found = best_recurrence(given["sig"])
    assert math.isinf(found.best.recurrence)
    assert found.best.stability == "runaway"
    assert found.best.loss == 0
    assert found.status is Status.not_learned
    path = mode_trajectory(given["tau"], given["a0"], given["b0"], given["c0"], given["sig"])
    np.testing.assert_allclose([path.recurrence[0], path.loss[0]], [expected["b"], expected["E"]], **close)
    np.testing.assert_allclose(
        [(4 * given["tau"]) ** 0.25, 0.25 / given["tau"] ** 0.5], [expected["b_asym"], expected["E_asym"]]
    )


TABLE = [  # task, b*, u*, unexplained share, least hidden size
    (sensory.linear_ramp(), 0.842, 1.071, 0.010, 2, "stable"),
    (sensory.linear_ramp(rising=False), 1.188, 0.228, 0.010, 2, "unstable"),
    (sensory.cosine(period=20), 0.626, 1.235, 0.499, 2, "stable"),
    (sensory.evidence_delay(10, 3), 1.150, 0.353, 0.151, 4, "unstable"),
    (sensory.impulse(10, 4), 0.970, None, 0.898, 5, "stable"),
    (sensory.impulse(10, 5), 1.031, None, 0.898, 6, "unstable"),
    (sensory.integrate(), 1.0, 1.0, 0.0, 1, "marginal"),
    (sensory.mean_target(), 1.0, 0.1, 0.0, 1, "marginal"),
    (sensory.leaky(), 0.8, 1.0, 0.0, 1, "stable"),
    (sensory.primacy(), 1.25, 0.134, 0.0, 1, "unstable"),
    (sensory.leaky(decay=-0.8), -0.8, 1.0, 0.0, 1, "stable"),
    (sensory.impulse(10, 0), 0.0, 1.0, 0.0, 1, "stable"),
]


@pytest.mark.parametrize(("task", "b", "u", "unexplained", "units", "verdict"), TABLE)
def test_best_recurrences_are_the_published_ones(task, b, u, unexplained, units, verdict):
    best = best_recurrence(profile(task)).best
    assert best.recurrence == pytest.approx(b, abs=6e-4)  # three published digits
    assert u is None or best.strength == pytest.approx(u, abs=6e-4)
    assert best.unexplained == pytest.approx(unexplained, abs=6e-4)
    assert best.stability == verdict
    assert least_hidden_size(profile(task)) == units


def test_the_best_recurrence_of_a_noisy_constant_is_1():
    task = sensory.noisy_constant(10)
    best = best_mode(task)
    assert best.recurrence == pytest.approx(1.0, abs=1e-12)
    assert best.strength == pytest.approx(1 / 12, rel=1e-12)
    assert best.loss == pytest.approx(1 / 12, rel=1e-12)
    overshoot = family_extrapolation(mode(1.0, best.recurrence, best.strength), task, [10, 20, 40])
    np.testing.assert_allclose(overshoot.loss, [1 / 12, 0.5 - 20 / 12 + 440 / 288, 3.0], rtol=1e-12)


def gain(b, sig, S):
    """Return P²/Q, by powers of 1/b for |b| > 1, so that nothing overflows."""
    k = np.arange(len(sig))
    v = b**k if abs(b) <= 1 else (1 / b) ** k[::-1]
    return (sig @ v) ** 2 / (v @ S @ v)


def polished(sig, S, low, high, inside):
    """Return the maximum of `gain` between two values of b, or of 1/b outside [-1, 1]."""
    found = minimize_scalar(
        lambda z: -gain(z if inside else 1 / z, sig, S),
        bounds=(low, high),
        method="bounded",
        options={"xatol": 1e-12},
    )
    return found.x


def random_profile(n):
    rng = np.random.default_rng(1000 + n)
    lags = int(rng.integers(2, 13))
    sig = rng.normal(size=lags) * rng.uniform(0.5, 1.5) ** np.arange(lags)
    S = None
    if n % 3 == 1:
        sig = np.abs(sig)
    if n % 3 == 2:
        root = rng.normal(size=(lags, lags + 2))
        S = root @ root.T
    return sig, S


@pytest.mark.parametrize("block", [*range(3), *(pytest.param(k, marks=pytest.mark.slow) for k in range(3, 10))])
def test_best_recurrence_equals_a_grid_search(block):
    """All maxima on a fine grid are optima, and all optima are maxima, for 300 profiles with white and other inputs."""
    inner = np.linspace(-1, 1, 1601)
    outer = np.linspace(-1, 1, 1601)[1:-1]
    outer = outer[np.abs(outer) > 1e-6]
    grid = np.unique(np.concatenate([inner, 1 / outer]))
    for n in range(30 * block, 30 * block + 30):
        sig, S = random_profile(n)
        known = np.eye(len(sig)) if S is None else S
        found = best_recurrence(sig, S)
        finite = np.array([o.recurrence for o in found.optima if math.isfinite(o.recurrence)])
        heights = np.array([gain(b, sig, known) for b in grid])
        peaks = np.flatnonzero((heights[1:-1] > heights[:-2]) & (heights[1:-1] > heights[2:])) + 1
        for i in peaks:
            # The peak lies within one grid step, and polishing locates it to sqrt(eps).
            inside = abs(grid[i]) <= 1
            low, high = sorted((grid[i - 1], grid[i + 1]) if inside else (1 / grid[i - 1], 1 / grid[i + 1]))
            best = polished(sig, known, low, high, inside)
            mine = finite if inside else 1 / np.where(finite == 0, np.inf, finite)
            assert np.abs(mine - best).min() < 1e-6, n
        for optimum in found.optima:
            b = optimum.recurrence
            if math.isfinite(b):
                height = gain(b, sig, known)
                step = 1e-5 * max(1.0, abs(b))
                assert height > max(gain(b - step, sig, known), gain(b + step, sig, known)), n
                assert optimum.loss == pytest.approx(
                    0.5 * sig @ np.linalg.solve(known, sig) - height / 2,
                    abs=1e-10 * (sig @ np.linalg.solve(known, sig)),
                )
                flow = mode_flow(1.0, b, optimum.strength, sig, S)
                # Forces are differences of P and uQ: rounding times the conditioning of b.
                size = abs(sig) @ abs(b) ** np.arange(len(sig)) * max(1.0, abs(optimum.strength)) * len(sig)
                assert np.abs(flow).max() < 1e-9 * size, n
        top = max(heights.max(), sig[-1] ** 2 / known[-1, -1])
        assert found.best.loss <= 0.5 * (sig @ np.linalg.solve(known, sig) - top) + 1e-12 * (sig @ sig)
        for sign in (1, -1):  # whether G still rises towards b = ±inf
            rises = gain(sign * 1e7, sig, known) > gain(sign * 1e5, sig, known)
            assert rises == (sign * math.inf in [o.recurrence for o in found.optima]), n


def high_precision_optima(sig, S):
    """Return all maxima of P²/Q from the roots of 2P'Q - PQ' with 50 digits."""
    with mpmath.workdps(50):
        p = [mpmath.mpf(float(s)) for s in sig]
        q = [mpmath.mpf(0)] * (2 * len(p) - 1)
        for (j, k), value in np.ndenumerate(S):
            q[j + k] += mpmath.mpf(float(value))

        def product(x, y):
            z = [mpmath.mpf(0)] * (len(x) + len(y) - 1)
            for i, s in enumerate(x):
                for j, t in enumerate(y):
                    z[i + j] += s * t
            return z

        def derived(x):
            return [k * c for k, c in enumerate(x)][1:]

        slope = [2 * x - y for x, y in zip(product(derived(p), q), product(p, derived(q)), strict=True)][:-1]

        def height(b):
            return mpmath.polyval(p[::-1], b) ** 2 / mpmath.polyval(q[::-1], b)

        roots = mpmath.polyroots(slope[::-1], maxsteps=500, extraprec=200)
        real = [mpmath.re(r) for r in roots if abs(mpmath.im(r)) < mpmath.mpf(10) ** -25]
        step = mpmath.mpf(10) ** -12
        return sorted(float(b) for b in real if height(b) > max(height(b - step), height(b + step)))


def assert_equals_high_precision(numbers):
    for n in numbers:
        sig, S = random_profile(n)
        expected = high_precision_optima(sig, np.eye(len(sig)) if S is None else S)
        found = [o.recurrence for o in best_recurrence(sig, S).optima if math.isfinite(o.recurrence)]
        # A root loses some digits to its conditioning; the worst of 300 profiles lost three.
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_best_recurrence_equals_high_precision_roots():
    assert_equals_high_precision(range(12))


@pytest.mark.slow
def test_best_recurrence_equals_high_precision_roots_on_many_profiles():
    assert_equals_high_precision(range(12, 200))


def test_task_and_time_reversal_have_the_same_best_loss():
    for n in range(0, 60, 3):
        sig, _ = random_profile(n)
        one, two = best_recurrence(sig), best_recurrence(sig[::-1])
        assert one.best.loss == pytest.approx(two.best.loss, rel=1e-12, abs=1e-13)
        # Optima at 0 and infinity are excluded: infinity can be an optimum where b = 0 is not.
        bs, xs = (
            [o.recurrence for o in fit.optima if o.recurrence and math.isfinite(o.recurrence)] for fit in (one, two)
        )
        np.testing.assert_allclose(sorted(1 / b for b in bs), xs, rtol=1e-10)


def test_the_mean_lag_predicts_stability_of_almost_all_positive_tasks():
    rng = np.random.default_rng(5)
    right = 0
    for sig in rng.uniform(size=(100, 10)):
        late = sig @ np.arange(10) / sig.sum() < 4.5
        right += (best_recurrence(sig).best.stability == "stable") == late
    assert right >= 97  # a rule of thumb; 399 of 400 in the published count


@pytest.mark.parametrize("steps", [50, 300])
def test_long_trials_have_full_precision(steps):
    for rho in (0.97, 1 / 0.97, -0.9):
        best = best_recurrence(rho ** np.arange(steps) * (1.0 if abs(rho) < 1 else 0.97**steps)).best
        assert best.recurrence == pytest.approx(rho, rel=1e-12)
        assert best.unexplained < 1e-14
    slow = best_recurrence(np.arange(steps, 0, -1) / steps).best
    k = np.arange(steps)

    def loss(b):
        v = b**k
        return -((v @ (steps - k) / steps) ** 2) / (v @ v)

    assert slow.recurrence == pytest.approx(minimize_scalar(loss, bounds=(0.5, 1), method="bounded").x, abs=1e-5)


def linear_complexity(sequence):
    """Return the length of the shortest linear recurrence by Berlekamp and Massey, in exact fractions."""
    s = [Fraction(int(x)) for x in sequence]
    connection, previous = [Fraction(1)], [Fraction(1)]
    length, shift, last = 0, 1, Fraction(1)
    for n in range(len(s)):
        gap = s[n] + sum(connection[i] * s[n - i] for i in range(1, length + 1) if i < len(connection))
        if gap == 0:
            shift += 1
            continue
        copy = list(connection)
        connection += [Fraction(0)] * (len(previous) + shift - len(connection))
        for i, c in enumerate(previous):
            connection[i + shift] -= gap / last * c
        if 2 * length <= n:
            length, previous, last, shift = n + 1 - length, copy, gap, 1
        else:
            shift += 1
    return length


def test_least_hidden_size_equals_the_linear_complexity():
    rng = np.random.default_rng(7)
    sizes = set()
    for _ in range(300):
        sig = rng.integers(-1, 2, int(rng.integers(1, 11)))
        sizes.add(linear_complexity(sig))
        assert least_hidden_size(sig) == linear_complexity(sig), sig
    assert len(sizes) > 7


@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (2, 1), (2, 3)])
@pytest.mark.parametrize("hidden", [1, 2, 4])
def test_a_network_needs_no_more_units_than_it_has(inputs, outputs, hidden):
    network = random_network(inputs, hidden, outputs, seed=hidden)
    response = [np.linalg.matrix_power(network.recurrent_weights, k) for k in range(10)]
    B = np.stack([network.output_weights @ power @ network.input_weights for power in response])
    assert least_hidden_size(B) == hidden
    assert least_hidden_size(B[: min(10, 2 * hidden)]) == hidden


def test_golden_extrapolation_from_the_end():
    given, expected, close = golden("extrap_geometric_end")
    found = extrapolation(
        mode(1.0, given["b"], given["u"]), lambda k: given["s0"] * given["rho"] ** k, given["T2"], anchor="end"
    )
    np.testing.assert_allclose(found.loss, expected, **close)
    given, expected, close = golden("extrap_integrator_leak")
    losses = [
        extrapolation(mode(1.0, b, given["u"]), np.ones(60), [given["T2"]], anchor="end").loss[0] for b in given["b"]
    ]
    np.testing.assert_allclose(losses, expected, **close)


def test_golden_extrapolation_of_a_mean():
    given, expected, close = golden("mean_target")
    best = best_recurrence(profile(sensory.mean_target(given["T"]))).best
    found = family_extrapolation(mode(1.0, best.recurrence, best.strength), sensory.mean_target, given["T2"])
    np.testing.assert_allclose(found.loss, expected, **close)


@pytest.mark.parametrize(("rho", "expected"), [(0.9, 9.05), (1.0, 0.0), (1.1, 39.8)])
def test_extrapolation_from_the_start(rho, expected):
    T, T2 = 10, 20
    best = best_recurrence(rho ** np.arange(T)).best
    found = extrapolation(best, lambda t: rho ** (T - t), [T, T2], anchor="start")
    Q = np.sum(rho ** (2 * np.arange(T2)))
    np.testing.assert_allclose(found.loss, [0, 0.5 * (rho ** (T - T2) - 1) ** 2 * Q], rtol=1e-9, atol=1e-12)
    assert found.loss[1] == pytest.approx(expected, rel=1e-3, abs=1e-12)
    steps = np.arange(1, T2 + 1)
    again = extrapolation(best, rho ** (T - steps.astype(float)), [T, T2], anchor="start")
    np.testing.assert_allclose(again.loss, found.loss, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("anchor", ["end", "start"])
def test_extrapolation_of_a_network_is_the_loss_on_white_trials(anchor):
    network = random_network(2, 5, 3, seed=3, recurrence=1.0)
    rng = np.random.default_rng(4)
    strengths = rng.normal(size=(12, 3, 2))
    found = extrapolation(network, strengths, [4, 12], anchor=anchor)
    for T2, loss, share in zip((4, 12), found.loss, found.unexplained, strict=True):
        # The sum over unit trials, one per step and channel, is the expectation for white inputs.
        x = np.eye(2 * T2).reshape(-1, T2, 2)
        by_step = strengths[:T2][::-1] if anchor == "end" else strengths[:T2]
        y = np.einsum("toi,pti->po", by_step, x)
        assert loss == pytest.approx(0.5 * np.sum((network.respond(x) - y) ** 2), rel=1e-12)
        assert share == pytest.approx(loss / (0.5 * np.sum(y**2)), rel=1e-12)


def test_golden_largest_stable_rate():
    given, expected, close = golden("sharpness")
    for rho, sharpness, rate in zip(given["rho"], expected["lambda_max"], expected["lr_max"], strict=True):
        for found in (
            largest_stable_rate(mode(given["u"], rho, 1.0), steps=given["T"]),
            largest_stable_rate(mode(given["u"], rho, 1.0), sensory.leaky(given["T"], decay=rho)),
        ):
            np.testing.assert_allclose([found.sharpness, found.learning_rate], [sharpness, rate], **close)
            assert found.status is Status.ok


@pytest.mark.parametrize("every_step", [False, True])
@pytest.mark.parametrize("learn", [ALL, ("input", "output"), ("recurrent",)])
def test_sharpness_is_the_largest_eigenvalue_of_the_hessian(every_step, learn):
    """On trials without error, by automatic differentiation."""
    torch = pytest.importorskip("torch")
    network = random_network(2, 4, 2, seed=11)
    rng = np.random.default_rng(12)
    x = np.cumsum(rng.normal(size=(30, 5, 2)), axis=1)
    y = network.respond(x, every_step=every_step)
    names = ("input", "recurrent", "output")
    weights = {n: torch.tensor(getattr(network, f"{n}_weights").copy()) for n in names}
    sizes = [weights[n].numel() for n in learn]

    def loss(flat):
        parts = dict(zip(learn, torch.split(flat, sizes), strict=True))
        W = {n: parts[n].reshape(weights[n].shape) if n in parts else weights[n] for n in names}
        h, total = torch.zeros(len(x), 4, dtype=torch.float64), 0.0
        for t in range(x.shape[1]):
            h = h @ W["recurrent"].T + torch.tensor(x[:, t]) @ W["input"].T
            if every_step or t == x.shape[1] - 1:
                target = torch.tensor(y[:, t] if every_step else y)
                total = total + 0.5 * ((h @ W["output"].T - target) ** 2).sum(dim=1).mean()
        return total

    hessian = torch.func.hessian(loss)(torch.cat([weights[n].ravel() for n in learn])).numpy()
    found = largest_stable_rate(network, Task.from_samples(x, y), learn=learn)
    assert found.sharpness == pytest.approx(np.linalg.eigvalsh(hessian)[-1], rel=1e-10)
    assert found.learning_rate == pytest.approx(2 / found.sharpness, rel=1e-15)
    assert found.status is Status.ok


@pytest.mark.parametrize("decay", [0.8, 1.0])
def test_descent_leaves_a_solution_above_the_largest_stable_rate(decay):
    task = sensory.leaky(decay=decay)
    rate = largest_stable_rate(mode(1.0, decay, 1.0), task).learning_rate
    nearby = mode(1 + 1e-4, decay, 1.0)
    below = descend(task, nearby, Training(0.97 * rate, learn=ALL), steps=400)
    above = descend(task, nearby, Training(1.03 * rate, learn=ALL), steps=400)
    assert below.loss[-1] < 1e-3 * below.loss[0]
    assert above.loss.max() > 1e3 * above.loss[0]


# Trade-off


def test_golden_terms_of_the_loss():
    given, expected, close = golden("energy_terms_white")
    found = loss_terms(given["a"], given["b"], given["c"], given["sig"])
    np.testing.assert_allclose([found.constant, found.data, found.regulariser], expected, **close)


@pytest.mark.parametrize("name", ["traj_leaky", "traj_integrate"])
def test_golden_trajectories_have_terms_that_add_up(name):
    given, expected, close = golden(name)
    path = mode_trajectory(given["taus"], given["a0"], given["b0"], given["c0"], given["sig"])
    found = loss_terms(path.input, path.recurrence, path.output, given["sig"])
    a, b, c = np.array(expected).T
    np.testing.assert_allclose(
        found.regulariser,
        0.5 * (a * c) ** 2 * np.sum(b[:, None] ** (2 * np.arange(10)), axis=1),
        rtol=10 * close["rtol"],
    )
    np.testing.assert_allclose(found.loss, path.loss, rtol=1e-12, atol=1e-14)
    assert (np.diff(found.regulariser) > 0).all()
    # At the best u the data term is minus twice the regulariser.
    assert found.data[-1] == pytest.approx(-2 * found.regulariser[-1], rel=1e-9)


def test_terms_of_several_modes_and_correlated_inputs():
    rng = np.random.default_rng(3)
    root = rng.normal(size=(4, 4, 6))
    S = root @ root.swapaxes(1, 2) / 6
    sig = np.einsum("mjk,mk->mj", S, rng.normal(size=(4, 4)))
    path = mode_trajectory([0.0, 0.1, 0.3], 0.3, 0.4, 0.2, sig, S)
    weights, strengths = (path.input, path.recurrence, path.output), (sig[:, None], S[:, None])
    found = loss_terms(*weights, *strengths)
    assert found.data.shape == (4, 3)
    np.testing.assert_allclose(found.loss, path.loss, rtol=1e-10)
    shifted = loss_terms(*weights, *strengths, constant=np.arange(4.0)[:, None])
    np.testing.assert_array_equal(shifted.constant, np.repeat(np.arange(4.0)[:, None], 3, axis=1))


def test_golden_limits_of_infinite_trials():
    given, expected, close = golden("late_pulse_inf")
    lags = np.arange(400)  # truncation error 0.78^400 = 7e-44

    def late(eps):
        return np.where(lags == 0, 1.0, eps)

    def slope(b, eps):
        P, dP, _, Q, dQ, _ = polynomial_values(polynomials_of(late(eps), None), np.float64(b))
        return float(2 * dP * Q - P * dQ)

    barrier = brentq(slope, 0.5, 0.95, (given["eps"],), xtol=1e-15)
    b, end = expected["spinodal_b"], expected["spinodal_eps"]
    feedforward = best_recurrence(late(given["eps"])).optima[1]
    np.testing.assert_allclose(feedforward.recurrence, expected["b_ff"], **close)
    np.testing.assert_allclose(barrier, expected["b_barrier"], **close)
    assert abs(slope(b, end)) < 1e-14  # the two meet: the slope touches 0 there and crosses it nowhere near
    assert slope(b - 0.01, end) * slope(b + 0.01, end) > 0
    given, expected, close = golden("two_pulse_inf")
    for m, wanted in zip(given["m"], expected, strict=True):
        found = change_of_kind(cache(lambda r, m=m: best_recurrence(pulses(120, m, r))), [0.5, 1.3, 1.8, 2.5])
        np.testing.assert_allclose((found.parameter, found.above), wanted, **close)
    given, expected, close = golden("two_pulse_m2_continuous")
    r = np.array(given["r"])
    np.testing.assert_allclose(np.sqrt((2 * r - 1) / (3 * r)), expected, **close)  # of an infinite trial
    long = [best_recurrence(pulses(60, 2, r)).best.recurrence for r in given["r"]]
    np.testing.assert_allclose(long, expected, rtol=1e-12)  # 0.58^120 = 3e-29 is what the end of the trial adds


def branch(sig, low, high):
    """The best recurrence within bounds and its share of the loss, by search."""
    found = minimize_scalar(
        lambda b: -gain(b, sig, np.eye(len(sig))), bounds=(low, high), method="bounded", options={"xatol": 1e-12}
    )
    return found.x, -found.fun


@pytest.mark.parametrize(
    ("steps", "expected", "from_b", "to_b"),
    [
        (15, 0.1867, 0.357, 0.842),
        pytest.param(20, 0.1710, 0.291, 0.907, marks=pytest.mark.slow),
        pytest.param(50, 0.1210, 0.165, 0.980, marks=pytest.mark.slow),
    ],
)
def test_the_late_pulse_has_a_first_order_transition_in_long_trials(steps, expected, from_b, to_b):
    found = late_pulse_transition(steps)
    assert found.kind == "first order"
    assert found.parameter == pytest.approx(expected, abs=6e-5)
    assert found.below == pytest.approx(from_b, abs=6e-4)
    assert found.above == pytest.approx(to_b, abs=6e-4)

    def lead(eps):
        sig = np.where(np.arange(steps) == 0, 1.0, eps)
        return branch(sig, 0, from_b + 0.1)[1] - branch(sig, to_b - 0.1, 1)[1]

    tie = brentq(lead, 0.98 * found.parameter, 1.02 * found.parameter, xtol=1e-13)
    assert found.parameter == pytest.approx(tie, rel=1e-11)


@pytest.mark.slow_cases("11-0.20043-0.20181")
@pytest.mark.parametrize(
    ("steps", "low", "high"), [(11, 0.20043, 0.20181), pytest.param(50, 0.0750, 0.2000, marks=pytest.mark.slow)]
)
def test_the_bistable_range_of_the_late_pulse_ends_at_extrema_of_the_stationary_background(steps, low, high):
    """The stationary background is eps(b) = Q' / (2p'Q - pQ') with p = sum_{k>=1} b^k."""
    found = late_pulse_transition(steps)
    k = np.arange(steps)
    b = np.linspace(0.05, 0.999, 200_001)[:, None]
    Q, dQ = np.sum(b ** (2 * k), axis=1), np.sum(2 * k * b ** (2 * k - 1.0), axis=1)
    p, dp = np.sum(b ** k[1:], axis=1), np.sum(k[1:] * b ** (k[1:] - 1), axis=1)
    eps = dQ / (2 * dp * Q - p * dQ)
    turns = np.flatnonzero(np.diff(np.sign(np.diff(eps)))) + 1
    edges = sorted(eps[turns])
    assert len(edges) == 2
    np.testing.assert_allclose([found.bistable_from, found.bistable_to], edges, rtol=1e-8)
    np.testing.assert_allclose(edges, [low, high], atol=6e-6 if steps == 11 else 6e-5)


def test_short_late_pulses_and_neighbouring_pulses_have_no_transition():
    for found in (late_pulse_transition(10), late_pulse_transition(2), two_pulse_transition(10, 1)):
        assert found.kind == "none"
        assert math.isnan(found.parameter)


@pytest.mark.slow
def test_the_lag_decides_the_transition_of_two_pulses():
    found = two_pulse_transition(10, 2)
    assert found.kind == "continuous"
    assert found.parameter == pytest.approx(0.5, rel=1e-12)
    found = two_pulse_transition(10, 3)
    assert found.kind == "first order"
    assert found.parameter == pytest.approx(1.1496, abs=6e-5)
    assert found.below == 0
    assert found.bistable_to == math.inf
    tie = brentq(lambda r: branch(pulses(10, 3, r), 0.3, 1)[1] - 1, 1, 1.3, xtol=1e-13)
    assert found.parameter == pytest.approx(tie, rel=1e-11)
    found = two_pulse_transition(60, 4)
    assert (found.parameter, found.above) == pytest.approx(GOLDEN["two_pulse_inf"]["expected"][1], rel=1e-8)
    with pytest.raises(InvalidSpec) as caught:
        two_pulse_transition(4, 4)
    assert caught.value.field == "lag"


def test_two_pulses_at_the_longest_lag_run_away():
    """With the earlier pulse on the first step, the task is its own time reversal."""
    found = two_pulse_transition(4, 3)
    assert found.kind == "first order"
    assert found.parameter == pytest.approx(1.0, rel=1e-11)
    assert (found.below, found.above) == (0.0, math.inf)
    assert math.isnan(found.bistable_from)


def test_a_mixture_of_two_modes_has_a_first_order_transition():
    """The best recurrence jumps between -0.5 and 0.9 where the larger share changes."""
    k = np.arange(12)
    found = transition(lambda x: (1 - x) * (-0.5) ** k + x * 0.9**k, 0.0, 1.0)
    assert found.kind == "first order"
    assert found.below < 0 < found.above
    one, two = (
        branch((1 - found.parameter) * (-0.5) ** k + found.parameter * 0.9**k, *span)[1] for span in ((-1, 0), (0, 1))
    )
    assert one == pytest.approx(two, rel=1e-9)


@pytest.mark.parametrize(("seed", "expected"), [(4, 0.50036297), (0, None), (7, None)])
def test_two_optima_tie_at_a_jump(seed, expected):
    """Mixtures of two random profiles; with seed 4 an optimum comes from infinity within one grid step."""
    rng = np.random.default_rng(1)
    one, two = [rng.normal(size=(2, 9)) for _ in range(seed + 1)][-1]
    found = transition(lambda x: (1 - x) * one + x * two, 0.0, 1.0)
    assert found.kind == "first order"
    if expected is not None:
        assert found.parameter == pytest.approx(expected, abs=1e-8)  # by bisection to machine precision
    k = np.arange(9)

    def explained(x, b):  # in powers of 1/b for |b| > 1, against overflow
        sig = (1 - x) * one + x * two
        powers = b**k if abs(b) <= 1 else (1 / b) ** k[::-1]
        return (sig @ powers) ** 2 / (powers @ powers)

    grid = np.tan(np.linspace(-np.pi / 2 + 1e-4, np.pi / 2 - 1e-4, 20_001))
    for side, b in ((-1e-6, found.below), (1e-6, found.above)):
        # The grid's error is of second order in its spacing; an offset of 1e-6 changes both optima alike.
        most = max(explained(found.parameter + side, x) for x in grid)
        assert explained(found.parameter + side, b) >= most * (1 - 1e-5)
    assert explained(found.parameter, found.below) == pytest.approx(explained(found.parameter, found.above), rel=1e-9)


def test_the_recurrence_stays_at_0_if_there_is_a_warning():
    for sig in (pulses(10, 3, 1.5), pulses(10, 2, 2.0), profile(sensory.evidence_delay(10, 3))):
        assert zero_recurrence_warning(sig) is not None
        path = mode_trajectory([1.0, 1000.0], 0.1, 0.0, 0.1, sig)
        np.testing.assert_array_equal(path.recurrence, 0.0)
    for sig in (0.8 ** np.arange(10), profile(sensory.impulse(10, 0)), profile(sensory.late_pulse(10, 0.1))):
        assert zero_recurrence_warning(sig) is None
    S = np.eye(10) + 0.3 * (np.eye(10, k=1) + np.eye(10, k=-1))
    assert zero_recurrence_warning(pulses(10, 3, 1.5), S) is None
    assert abs(mode_flow(0.1, 0.0, 0.1, pulses(10, 3, 1.5), S)[1]) > 0


def test_a_recurrent_matrix_of_zeros_stays_zero():
    task = sensory.evidence_delay(8, 2)
    network = LinearRNN(np.full((3, 1), 0.4), np.zeros((3, 3)), np.array([[0.3, -0.2, 0.5]]))
    end = descend(task, network, Training(0.05, learn=ALL), steps=200).network_at(200)
    np.testing.assert_array_equal(end.recurrent_weights, 0.0)


# Feature learning


def test_golden_change_of_the_kernel_in_one_mode():
    given, expected, close = golden("ntk_change_mode")
    lags = np.arange(given["T"])
    for (u0, b0, s0, rho), wanted in zip(given["cases"], expected, strict=True):
        start, end = mode(np.sqrt(u0), b0, np.sqrt(u0)), mode(np.sqrt(s0), rho, np.sqrt(s0))
        found = kernel_change(start, end, steps=given["T"])
        np.testing.assert_allclose([found.total.movement, found.total.misalignment], wanted["lrnn"], **close)
        np.testing.assert_allclose(found.blocks["output"].misalignment, wanted["feature_gram_both"], **close)
        control = feedforward_control(start, steps=given["T"])
        # The control's solution with conserved |first|² - second².
        imbalance = float(np.sum(control.first**2) - np.sum(control.second**2))
        target = s0 * rho**lags
        second = np.sqrt((np.sqrt(imbalance**2 + 4 * target @ target) - imbalance) / 2)
        solved = type(control)(target[None] / second, np.full((1, 1), second))
        change = kernel_change(control, solved)
        np.testing.assert_allclose([change.total.movement, change.total.misalignment], wanted["ff"], **close)
        np.testing.assert_allclose(change.blocks["output"].misalignment, wanted["feature_gram_both"], **close)


@pytest.mark.slow
def test_training_ends_at_the_golden_change_of_the_kernel():
    given, expected, _ = golden("ntk_change_mode")
    u0, b0, s0, rho = given["cases"][1]
    task, start = sensory.leaky(given["T"], decay=rho, scale=s0), mode(np.sqrt(u0), b0, np.sqrt(u0))
    found = feature_learning(task, start, learning_rate=1e-3, relative_loss=1e-10)
    assert found.status is Status.ok
    # Descent at 1e-3 changes the conserved quantities by that order.
    assert found.recurrent.total.misalignment == pytest.approx(expected[1]["lrnn"][1], rel=2e-3)
    assert found.feedforward.total.misalignment == pytest.approx(expected[1]["ff"][1], rel=2e-3)
    assert found.feedforward.blocks["output"].misalignment == pytest.approx(expected[1]["feature_gram_both"], rel=2e-3)


def test_golden_conserved_matrix():
    _, expected, close = golden("conserved_matrix")

    def numbers(rows, columns):
        return np.arange(rows * columns, dtype=float).reshape(rows, columns)

    network = LinearRNN(np.sin(1 + numbers(5, 2)), 0.4 * np.sin(2 + 1.3 * numbers(5, 5)), np.cos(0.7 * numbers(2, 5)))
    B = np.sin(0.3 + 0.9 * numbers(2, 12)).reshape(2, 6, 2).transpose(1, 2, 0)[::-1]
    A = (0.6 ** np.abs(np.subtract.outer(np.arange(12), np.arange(12)))).reshape(6, 2, 6, 2)[::-1, :, ::-1, :]
    task = Task(A, B)

    def conserved(net):
        W_x, W_h, W_y = net.input_weights, net.recurrent_weights, net.output_weights
        return W_x @ W_x.T - W_y.T @ W_y + W_h @ W_h.T - W_h.T @ W_h

    matrix = conserved(network)
    np.testing.assert_allclose(
        [np.linalg.norm(matrix), matrix[0, 1], np.trace(matrix)],
        [expected[key] for key in ("fro", "Q01", "trace")],
        **close,
    )
    later = gradient_flow(task, network, learning_rate=1.0).network_at(2.0)
    assert np.abs(later.recurrent_weights - network.recurrent_weights).max() > 0.1
    # The integration error is 1e-11 per step.
    np.testing.assert_allclose(conserved(later), matrix, atol=1e-8)


@pytest.mark.parametrize("targets", ["end", "every step"])
def test_the_control_computes_the_same_function_and_loss(targets):
    network = random_network(2, 6, 2, seed=21)
    rng = np.random.default_rng(22)
    x = np.cumsum(rng.normal(size=(50, 4, 2)), axis=1)
    y = rng.normal(size=(50, 2)) if targets == "end" else rng.normal(size=(50, 4, 2))
    task = Task.from_samples(x, y)
    control = feedforward_control(network, steps=4)
    np.testing.assert_allclose(
        x[:, ::-1].reshape(50, 8) @ control.function.T, network.respond(x), rtol=1e-10, atol=1e-12
    )
    recurrent = descend(task, network, Training(1e-4, learn=ALL), steps=0)
    flat = descend(unrolled(task), control, learning_rate=1e-4, steps=0)
    assert flat.loss[0] == pytest.approx(recurrent.loss[0], rel=1e-12)
    one, two = (kernel_change(n, n, steps=s).blocks["output"] for n, s in ((network, 4), (control, 1)))
    assert (one.movement, one.misalignment, two.movement, two.misalignment) == (0, 0, 0, 0)


def test_kernel_change_is_that_of_jacobians():
    torch = pytest.importorskip("torch")
    before, after = (random_network(2, 3, 2, seed=s) for s in (31, 32))
    names = ("input", "recurrent", "output")
    units = torch.eye(8, dtype=torch.float64).reshape(8, 4, 2)  # unit trials stand for white inputs

    def jacobian(network):
        def output(W_x, W_h, W_y):
            h = torch.zeros(8, 3, dtype=torch.float64)
            for t in range(4):
                h = h @ W_h.T + units[:, t] @ W_x.T
            return h @ W_y.T

        weights = [torch.tensor(getattr(network, f"{n}_weights").copy()) for n in names]
        slopes = torch.func.jacrev(output, argnums=(0, 1, 2))(*weights)
        return {n: s.reshape(16, -1).numpy() for n, s in zip(names, slopes, strict=True)}

    kernels = [{n: J @ J.T for n, J in jacobian(network).items()} for network in (before, after)]
    found = kernel_change(before, after, steps=4)
    for name, block in {**found.blocks, "total": found.total}.items():
        one, two = (sum(k.values()) if name == "total" else k[name] for k in kernels)
        assert block.movement == pytest.approx(np.linalg.norm(two - one) / np.linalg.norm(one), rel=1e-11)
        cosine = np.sum(one * two) / np.linalg.norm(one) / np.linalg.norm(two)
        assert block.misalignment == pytest.approx(1 - cosine, rel=1e-11)


#: By gain of input and output weights: learning rate, published misalignments (total and output block, recurrent then
#: feedforward) and their relative spread over random starts. The test takes means of four starts.
NETWORKS = {
    0.1: (0.02, (0.917, 0.600, 0.046, 0.577), 0.15),
    1.0: (0.02, (0.827, 0.447, 0.017, 0.231), 0.3),
    3.0: (0.005, (0.124, 0.022, 7e-5, 7e-4), 1.0),
}


def trained(gain, rate, seeds):
    rows = []
    for seed in seeds:
        network = random_network(1, 64, 1, seed, scale=gain / 8, recurrence=0.6)
        found = feature_learning(sensory.leaky(), network, learning_rate=rate)
        assert found.status is Status.ok
        assert (found.losses <= 1e-4).all()
        assert (found.losses > 0.9e-4).all()
        changes = found.recurrent, found.feedforward
        rows.append([value for c in changes for value in (c.total.misalignment, c.blocks["output"].misalignment)])
    return np.mean(rows, axis=0)


@pytest.mark.parametrize("gain", [0.1, 1.0, 3.0])
def test_recurrence_adds_feature_learning_at_intermediate_starts(gain):
    rate, expected, spread = NETWORKS[gain]
    found = trained(gain, rate, range(4))
    np.testing.assert_allclose(found[:2], expected[:2], rtol=min(spread, 0.3))
    np.testing.assert_allclose(found[2:], expected[2:], rtol=spread)
    # The output block: equal for small starts, more with recurrence for larger ones.
    assert (found[1] / found[3] < 1.15) == (gain == 0.1)


@pytest.mark.slow
def test_lazy_networks_keep_their_kernel():
    found = trained(10.0, 1e-4, range(4))
    assert found[0] == pytest.approx(0.0014, rel=0.5)
    assert found[2] < 1e-4
