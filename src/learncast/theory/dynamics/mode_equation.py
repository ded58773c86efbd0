r"""The equation of one learning mode: its strength in closed form, and the time to any strength.

A mode joins one input direction to one output direction through input weight a and output weight c. With the
recurrence-weighted statistics beta (cross) and B (input) its weights follow, in time tau = steps x learning rate,

    da/dtau = c (beta - u B),   dc/dtau = a (beta - u B),   u = a c,

so lambda = a^2 - c^2 is conserved and the strength u obeys  du/dtau = S (beta - u B)  with
S = a^2 + c^2 = sqrt(lambda^2 + 4 u^2). In W = 2u + S = (a + c)^2 this is a Riccati equation with the fixed points
W+ = 2u* + S* and -W- = 2u* - S*, where u* = beta/B. Everything below is its solution, arranged so that no two
nearly equal numbers are ever subtracted; lambda = 0 is an ordinary value of it.

All functions broadcast elementwise, but for the band of a mode with nothing to learn (`band_scale`), which the other
modes of its problem, on the last axis, give a size. An imbalance below 1e-150 is taken as 0: its square is beyond
floating point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learncast._core.validation import FloatArray
from learncast.theory.dynamics.steps.strides import UNLEARNED, Descents
from learncast.theory.dynamics.steps.walks import ModeWalk

__all__ = [
    "accuracy",
    "band_scale",
    "descent_correction",
    "descent_steps",
    "sharpness",
    "strength",
    "time_between",
    "time_to_band",
    "weights",
]

#: Relative rounding of a strength that was computed to lie on an edge of the band.
_ROUNDING = 8 * np.finfo(float).eps

#: Share of the way to the band's edge, as e to the power of time, from which a logarithm is as exact as log1p.
_FAR = 2.0

#: Smallest imbalance whose square, over a strength, is still a number.
_LEAST_IMBALANCE = 1e-150

#: Gauss-Legendre nodes for the drift of an unbalanced descent; the integrand is smooth in time.
_DRIFT_NODES = 96


def strength(time: Any, start: Any, imbalance: Any, cross: Any, power: Any) -> FloatArray:
    """Strength u of a mode at flow time `time` (steps x learning rate; may be infinite).

    Implements: curriculum2025 Eq. (9), also for unbalanced starts, beta_yx = 0 and either sign of u_0
    Implements: curriculum2025 Eq. (42), the same printed again

    Parameters
    ----------
    time : array_like
        Flow time, not negative.
    start, imbalance : array_like
        u_0 = a c and lambda = a^2 - c^2 at time 0.
    cross, power : array_like
        beta_yx and beta_xx, the recurrence-weighted cross and input strengths.

    Returns
    -------
    array
        u, of the shape that the arguments broadcast to.

    Examples
    --------
    >>> from learncast.theory.dynamics.mode_equation import strength
    >>> strength([0.0, 2.0, 4.0, float("inf")], start=0.01, imbalance=0.0, cross=1.0, power=1.0).round(3)
    array([0.01 , 0.355, 0.968, 1.   ])
    """
    t, u0, lam, beta, B = np.broadcast_arrays(*(np.asarray(v, float) for v in (time, start, imbalance, cross, power)))
    # u -> -u with beta -> -beta is a symmetry (flip the sign of c): work with u0 >= 0, where W0 = 2u0 + S0
    # is a sum of positive numbers.
    sign = np.where((u0 < 0) | ((u0 == 0) & (beta < 0)), -1.0, 1.0)
    u0, beta, ell = sign * u0, sign * beta, _size(lam)
    S0 = np.hypot(ell, 2 * u0)
    W0 = 2 * u0 + S0
    R = np.hypot(2 * beta, ell * B)
    live = R > 0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        S1 = np.where(live & (B > 0), R / np.where(B > 0, B, 1.0), 0.0)
        u1 = np.where(B > 0, beta / np.where(B > 0, B, 1.0), 0.0)
        plus, minus = _root_sum(u1, S1, ell), _root_sum(-u1, S1, ell)
        E = np.where(live, np.exp(-R * t), 1.0)
        # D = (1 - E) / S*, which is B tau at R = 0: exact where the exponential form is 0/0.
        D = np.where(live, -np.expm1(-R * t) * B / np.where(live, R, 1.0), np.where(B > 0, B * t, 0.0))
        p, m = _shares(beta, R, ell * B)
        above = _excess(u0, S0, ell) * 2 * E + D * _excess(u1, S1, ell) * (W0 + minus)
        below = (W0 + ell) * 2 * E + D * (plus + ell) * (W0 + minus)
        N = W0 * (p + m * E) + ell**2 * D
        M = W0 * D + p * E + m
        u = (above / N) * (below / M) / 4  # ratios first: u0 = 1e-200 must not underflow
    # Off the flow (u0 = 0 = lambda) the formula is 0/0; at R = 0 and t = inf it is 1/inf.
    u = np.where(N == 0, 0.0, np.where(np.isinf(D), 0.0, u))
    return sign * u


def _shares(beta: FloatArray, R: FloatArray, ell_B: FloatArray) -> tuple[FloatArray, FloatArray]:
    """W+ / S* and W- / S*: 1 + q and 1 - q with q = 2 beta / R, without cancellation."""
    safe = np.where(R > 0, R, 1.0)
    larger = np.where(R > 0, 1 + 2 * np.abs(beta) / safe, 2.0)
    smaller = np.where(R > 0, (ell_B / safe) ** 2 / larger, 0.0)
    return np.where(beta >= 0, larger, smaller), np.where(beta >= 0, smaller, larger)


def _excess(u: FloatArray, S: FloatArray, ell: FloatArray) -> FloatArray:
    """W - |lambda| = 2u + S - |lambda|, relatively exact for u of either sign."""
    total = S + ell
    rise = 2 * np.abs(u) + np.divide(4 * u**2, total, out=np.zeros_like(total), where=total > 0)
    larger = S + 2 * np.abs(u)
    fall = np.divide(ell * rise, larger, out=np.zeros_like(larger), where=larger > 0)
    return np.where(u >= 0, rise, -fall)


def band_scale(optimum: Any) -> FloatArray:
    """Strength that the tolerance of each mode is a share of, modes on the last axis.

    That is |u*|. Of a mode with nothing to learn, u* = 0, whose own band could never be entered (u decays like 1/t at
    best), it is that of the strongest mode: what is left of it then counts as little as what the strongest lacks.
    It is 0 for every mode of a task that has nothing to learn at all.

    Parameters
    ----------
    optimum : array_like
        u* of each mode, on the last axis.

    Returns
    -------
    array

    Examples
    --------
    >>> from learncast.theory.dynamics.mode_equation import band_scale
    >>> band_scale([2.0, -0.5, 0.0])
    array([2. , 0.5, 2. ])
    """
    size = np.abs(np.asarray(optimum, dtype=float))
    idle = size == 0
    if not idle.any():
        return size
    known = np.where(np.isfinite(size), size, 0.0)
    return np.where(idle, known.max(axis=-1, keepdims=True) if size.ndim else size, size)


def accuracy(strengths: Any, cross: Any, power: Any) -> FloatArray:
    """1 - |u - u*| / `band_scale` of each mode; 1 for a mode that is where it should be or whose input never varies.

    Parameters
    ----------
    strengths : array_like
        u of each mode.
    cross, power : array_like
        As for `strength`.

    Returns
    -------
    array

    Examples
    --------
    >>> import numpy as np
    >>> from learncast.theory.dynamics.mode_equation import accuracy
    >>> accuracy(np.array([0.5, 1.98]), cross=np.array([1.0, 2.0]), power=np.array([1.0, 1.0])).round(3)
    array([0.5 , 0.99])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        best = np.asarray(cross, dtype=float) / power
        off = np.abs(strengths - best)
        return np.where(np.isnan(best) | (off == 0), 1.0, 1 - off / band_scale(best))


def time_to_band(start: Any, imbalance: Any, cross: Any, power: Any, tolerance: Any) -> tuple[FloatArray, FloatArray]:
    """Flow time of first entry into |u - u*| <= tolerance x `band_scale`, and the strength there.

    The time is 0 inside the band and infinite when the band is never reached: from u_0 = 0 or the wrong sign
    without imbalance, for a task with nothing to learn, or for tolerance 0. It is 0, too, for a mode whose input never
    varies. The strength is the band's edge, or the start inside.

    Implements: curriculum2025 Eq. (12), as the first entry from below or above; the print stops at (1 - eps)u* always
    Implements: curriculum2025 Eq. (41), solved for the time to a given strength
    Implements: curriculum2025 Eq. (11), u* = beta_yx / beta_xx

    Parameters
    ----------
    start, imbalance, cross, power : array_like
        As for `strength`.
    tolerance : array_like
        eps, a share of the optimum.

    Returns
    -------
    time : array
        Flow time, steps x learning rate.
    strength : array
        There.

    Examples
    --------
    >>> from learncast.theory.dynamics.mode_equation import time_to_band
    >>> time, there = time_to_band(0.01, 0.0, cross=1.0, power=1.0, tolerance=0.01)
    >>> print(round(float(time), 3), round(float(there), 3))
    4.595 0.99
    """
    time, u0, best, eps, sign = _entry(start, imbalance, cross, power, tolerance)
    with np.errstate(invalid="ignore", over="ignore"):
        if (u0 <= best).all() and (best > 0).all():
            end = best * (1 - eps)
        else:
            end = best - np.copysign(eps * band_scale(best), best - u0)
        if not (time > 0).all() or time.shape != end.shape:
            end = np.where(_inside(u0, best, eps), u0, end)
    return time, end if sign is None else sign * end


def _entry(start: Any, imbalance: Any, cross: Any, power: Any, tolerance: Any) -> tuple[Any, ...]:
    """Time to the band; start, optimum, tolerance, and the sign that mirrors the first two where some are below 0."""
    u0, lam, beta, B, eps = (np.asarray(v, dtype=float) for v in (start, imbalance, cross, power, tolerance))
    sign = None
    if (beta < 0).any():
        sign = np.where(beta < 0, -1.0, 1.0)
        u0, beta = sign * u0, np.abs(beta)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        best = beta / B
        plain = not _size(lam).any() and ((best > 0) & (best < np.inf)).all() and (u0 >= 0).all()
        time = (_balanced_entry if plain else _any_entry)(u0, lam, beta, B, best, eps)
    return time, u0, best, eps, sign


def _any_entry(
    u0: FloatArray, lam: FloatArray, beta: FloatArray, B: FloatArray, best: FloatArray, eps: FloatArray
) -> FloatArray:
    """Time to the band for beta >= 0."""
    gap, scale = best - u0, band_scale(best)
    room = np.copysign(eps * scale, gap)  # signed distance from the edge to the optimum
    time = _passage(u0, best - room, best, room, gap - room, lam, beta, B)
    return np.where(_inside(u0, best, eps), 0.0, time)


def _inside(u0: FloatArray, best: FloatArray, eps: FloatArray) -> NDArray[np.bool_]:
    """Whether strengths are within the band."""
    scale = band_scale(best)
    # A start computed to be on the edge is on it; and at beta = 0 = B there is nothing to wait for, as the mode cannot
    # influence the loss.
    return np.asarray((np.abs(best - u0) <= eps * scale + _ROUNDING * scale) | np.isnan(best))


def _balanced_entry(
    u0: FloatArray, lam: FloatArray, beta: FloatArray, B: FloatArray, best: FloatArray, eps: FloatArray
) -> FloatArray:
    """The same at lambda = 0, u0 >= 0 and u* > 0: ln(|u* - u0| / u0 x (1 -+ eps) / eps) / 2 beta.

    Start and tolerance stand in factors of their own, so that a grid of both takes one product and one logarithm. What
    is near its band, inside it, or never gets there, is left to the form that cancels nothing.
    """
    way = np.asarray(best - u0)
    way /= u0
    above = not way.min(initial=0.0) >= 0
    ratio = np.asarray(way * ((1 - eps) / eps))
    if above:  # from above the edge lies beyond the optimum
        other = np.multiply(way, (-1 - eps) / eps, out=way if way.shape == ratio.shape else None)
        np.maximum(ratio, other, out=ratio)
    odd: Any = ()
    if not (ratio.min(initial=np.inf) >= _FAR and ratio.max(initial=_FAR) < np.inf):
        odd = np.flatnonzero(~((ratio >= _FAR) & (ratio < np.inf)))
    time = np.log(ratio, out=ratio)
    time *= 0.5 / beta
    if len(odd):
        time.flat[odd] = _any_entry(*(_picked(v, time.shape, odd) for v in (u0, lam, beta, B, best, eps)))
    return time


def _picked(values: FloatArray, shape: tuple[int, ...], flat: NDArray[np.intp]) -> FloatArray:
    """Values at some places of the shape to which they broadcast; one value stands for all."""
    if values.size == 1:
        return values.reshape(())
    if values.shape == shape:
        return values.ravel()[flat]
    return np.asarray(np.broadcast_to(values, shape)[np.unravel_index(flat, shape)])


def time_between(start: Any, end: Any, imbalance: Any, cross: Any, power: Any) -> FloatArray:
    """Flow time from one strength to another; infinite when the flow does not lead there.

    Implements: curriculum2025 Eq. (41), also for unbalanced starts and either direction

    Parameters
    ----------
    start, end : array_like
        u at the beginning and at the end.
    imbalance, cross, power : array_like
        As for `strength`.

    Returns
    -------
    array
        Flow time, steps x learning rate.

    Examples
    --------
    >>> from learncast.theory.dynamics.mode_equation import time_between
    >>> time_between(0.01, [0.5, 0.99, 1.5], imbalance=0.0, cross=1.0, power=1.0).round(3)
    array([2.298, 4.595,   inf])
    """
    u0, u, lam, beta, B = (np.asarray(v, dtype=float) for v in (start, end, imbalance, cross, power))
    sign = np.where(beta < 0, -1.0, 1.0)
    u0, u, beta = sign * u0, sign * u, np.abs(beta)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        best = beta / B
        room, path = best - u, u - u0
        time = _passage(u0, u, best, room, path, lam, beta, B)
    return np.where(path == 0, 0.0, np.where(room * path > 0, time, np.inf))


def _passage(
    u0: FloatArray,
    u: FloatArray,
    best: FloatArray,
    room: FloatArray,
    path: FloatArray,
    lam: FloatArray,
    beta: FloatArray,
    B: FloatArray,
) -> FloatArray:
    """Time ln(1 + R y) / R from u0 to u, for beta >= 0, with best - u = room and u - u0 = path given exactly.

    y = 2 (path/room) (W0 + W)/(W + W+) (S + S*)/(S0 + S) / ((W0 + W-) B); every factor is a sum of positive numbers.
    """
    ell = _size(lam)
    if ell.any():
        S0, S, S1 = np.hypot(ell, 2 * u0), np.hypot(ell, 2 * u), np.hypot(ell, 2 * best)
        W0, W = _root_sum(u0, S0, ell), _root_sum(u, S, ell)
        plus = 2 * best + S1
        minus = ell * (ell / plus)
        y = 2 * (path / room) * ((W0 + W) / (W + plus)) * ((S + S1) / (S0 + S)) / ((W0 + minus) * B)
        rate = np.hypot(2 * beta, ell * B)
        time = np.log1p(rate * y) / rate
        balanced = ell == 0
        if balanced.any():
            time = np.where(balanced, _balanced_passage(u0, best, room, path, beta, B), time)
    else:
        time = _balanced_passage(u0, best, room, path, beta, B)
    if np.isfinite(time).all():
        return time
    rate = np.hypot(2 * beta, lam * B)
    # No rate (beta = 0 = lambda): u decays as 1/u = 1/u0 + 2 B tau.
    time = np.where((rate == 0) & (u0 * (best - room) > 0), np.abs(path / (2 * B * u0 * (best - room))), time)
    # A start so small that the quotient overflows: its logarithm by differences.
    tiny = np.isinf(time) & (u0 > 0) & (room != 0) & (rate > 0)
    time = np.where(tiny, (np.log(best) + np.log(path / room) - np.log(u0)) / rate, time)
    return np.where(np.isnan(time), np.inf, time)


def _balanced_passage(
    u0: FloatArray, best: FloatArray, room: FloatArray, path: FloatArray, beta: FloatArray, B: FloatArray
) -> FloatArray:
    """The same at lambda = 0, where common factors cancel; nan for a passage through 0, which never happens.

    Strengths below 0 rise to 0 from below: there the logarithm is negative and time its size.
    """
    time = np.log1p(best * path / (u0 * room))
    return (time if (time >= 0).all() else np.abs(time)) / (2 * beta)


def _size(imbalance: FloatArray) -> FloatArray:
    """|lambda|, or 0 where its square would underflow."""
    ell = np.abs(imbalance)
    return np.where(ell < _LEAST_IMBALANCE, 0.0, ell) if ell.any() else ell


def _root_sum(u: FloatArray, S: FloatArray, ell: FloatArray) -> FloatArray:
    """W = 2u + S = (a + c)^2, without cancellation for negative u."""
    larger = S + 2 * np.abs(u)
    return np.where(u >= 0, larger, np.divide(ell**2, larger, out=np.zeros_like(larger), where=larger > 0))


def descent_correction(start: Any, end: Any, imbalance: Any, cross: Any, power: Any, time: Any) -> FloatArray:
    """Steps that gradient descent needs beyond the flow's between two strengths, to first order.

    Gradient descent follows the flow of a slightly different equation (backward error analysis). With
    delta = beta - u B its count exceeds tau / learning_rate by

        1/2 ln(delta_1 / delta_0) + 1/4 ln(S_1 / S_0) + lambda^2 int_0^tau I / S^2 dtau,
        I = int_u0^u delta / S du = beta/2 (theta - theta_0) - B/4 (S - S_0),   sinh theta = 2u / |lambda|,

    where the last term is the drift of lambda, which descent does not conserve. It is free of the learning
    rate; for a balanced start it is 1/4 ln(u_1/u_0) + 1/2 ln((u*-u_1)/(u*-u_0)).

    Parameters
    ----------
    start, end : array_like
        Strengths u_0 and u_1 between which the flow passes.
    imbalance : array_like
        lambda = a^2 - c^2.
    cross, power : array_like
        Recurrence-weighted strengths beta and B.
    time : array_like
        Flow time tau from start to end, as `time_to_band` or `time_between` tell it.

    Returns
    -------
    array
        Steps; 0 where there is nowhere to go or no way.

    Examples
    --------
    At a learning rate of 0.1 the flow needs 45.95 steps and descent about one less. Step by step:

    >>> from learncast.theory.dynamics.mode_equation import descent_correction, time_to_band
    >>> time, edge = time_to_band(0.01, 0.0, 1.0, 1.0, 0.01)
    >>> correction = descent_correction(0.01, edge, 0.0, 1.0, 1.0, time)
    >>> float((time / 0.1).round(2)), float(correction.round(2))
    (45.95, -1.15)
    >>> weight, steps = 0.1, 0
    >>> while weight**2 < 0.99:
    ...     weight, steps = weight + 0.1 * weight * (1.0 - weight**2), steps + 1
    >>> steps
    45
    """
    u0, u1, lam, beta, B, tau = np.broadcast_arrays(
        *(np.asarray(v, float) for v in (start, end, imbalance, cross, power, time))
    )
    ell = np.abs(lam)
    moving = (tau > 0) & np.isfinite(tau)
    with np.errstate(divide="ignore", invalid="ignore"):
        best = beta / B
        slowing = 0.5 * np.log((best - u1) / (best - u0))
        growth = 0.25 * np.log(np.hypot(ell, 2 * u1) / np.hypot(ell, 2 * u0))
    correction = np.where(moving, slowing + growth, 0.0)
    drifting = moving & (ell > 0)
    if np.any(drifting):
        correction[drifting] += _drift(*(v[drifting] for v in (u0, ell, beta, B, tau)))
    return correction


def _drift(u0: FloatArray, ell: FloatArray, beta: FloatArray, B: FloatArray, tau: FloatArray) -> FloatArray:
    nodes, weights = np.polynomial.legendre.leggauss(_DRIFT_NODES)
    at = 0.5 * (nodes[:, None] + 1) * tau
    u = strength(at, u0, ell, beta, B)
    S0, S = np.hypot(ell, 2 * u0), np.hypot(ell, 2 * u)
    theta0, theta = np.arcsinh(2 * u0 / ell), np.arcsinh(2 * u / ell)
    integral = beta / 2 * (theta - theta0) - B / 4 * (S - S0)
    return ell**2 * tau / 2 * np.einsum("q,qn->n", weights, integral / S**2)


def weights(start_input: Any, start_output: Any, strengths: Any) -> tuple[FloatArray, FloatArray]:
    """Input and output weight (a, c) of a mode at given strengths along its flow.

    lambda = a^2 - c^2 is conserved, and the larger of |a|, |c| never changes sign.

    Parameters
    ----------
    start_input, start_output : array_like
        a and c before training.
    strengths : array_like
        u = a c, at any time.

    Returns
    -------
    input_weight : array
    output_weight : array

    Examples
    --------
    >>> from learncast.theory.dynamics.mode_equation import weights
    >>> a, c = weights(0.3, 0.1, [0.03, 1.0])
    >>> a.round(4), c.round(4)
    (array([0.3   , 1.0202]), array([0.1   , 0.9802]))
    >>> (a**2 - c**2).round(6)
    array([0.08, 0.08])
    """
    a0, c0, u = np.broadcast_arrays(*(np.asarray(v, float) for v in (start_input, start_output, strengths)))
    lam = (a0 - c0) * (a0 + c0)
    S = np.hypot(lam, 2 * u)
    leads = np.abs(a0) >= np.abs(c0)
    larger = np.sqrt((S + np.abs(lam)) / 2) * np.sign(np.where(leads, a0, c0))
    smaller = np.divide(u, larger, out=np.zeros_like(larger), where=larger != 0)
    return np.where(leads, larger, smaller), np.where(leads, smaller, larger)


def sharpness(start: Any, imbalance: Any, cross: Any, power: Any) -> FloatArray:
    """Largest curvature descent meets along a mode: at the optimum, or at a start beyond it.

    At the optimum it is S* B = 2 sqrt(beta^2 + (lambda B / 2)^2). At the start the step multiplies a - c or a + c
    by 1 -+ learning_rate (u_0 B - beta), so |u_0 B - beta| counts too.

    Parameters
    ----------
    start, imbalance, cross, power : array_like
        As for `strength`.

    Returns
    -------
    array

    Examples
    --------
    >>> from learncast.theory.dynamics.mode_equation import sharpness
    >>> print(sharpness(start=0.01, imbalance=0.0, cross=1.0, power=1.0))
    2.0
    """
    u0, lam, beta, B = (np.asarray(v, dtype=float) for v in (start, imbalance, cross, power))
    return np.maximum(np.hypot(2 * beta, lam * B), np.abs(u0) * B - np.copysign(beta, beta * u0))


def printed_time(start: Any, cross: Any, power: Any, tolerance: Any) -> FloatArray:
    """Time of the paper's formula, for comparison only.

    It assumes (1 - eps) u* is approached from below: from above it is too short, inside the band negative.

    Implements: curriculum2025 Eq. (12), to the letter
    Implements: curriculum2025 Eq. (14), its second summand when started from task 1's end
    """
    u0, beta, B, eps = (np.asarray(v, dtype=float) for v in (start, cross, power, tolerance))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((np.log(np.abs(beta / B / u0 - 1)) - np.log(np.abs(eps / (1 - eps)))) / (2 * beta))


def descent_steps(
    start: FloatArray,
    end: FloatArray,
    imbalance: FloatArray,
    cross: FloatArray,
    power: FloatArray,
    flow_time: FloatArray,
    learning_rate: float,
) -> FloatArray:
    """Predicted gradient-descent steps for a passage of the flow; infinite where descent diverges.

    Flow time / learning rate plus the first-order correction, rounded up to the first whole step inside the band.

    Parameters
    ----------
    start, end, imbalance, cross, power : array
        As for `descent_correction`.
    flow_time : array
        Flow time from start to end.
    learning_rate : float

    Returns
    -------
    array
        Whole numbers; infinite where the curvature is above 2 over the learning rate, nan where the flow time is.

    Examples
    --------
    Ten times the learning rate takes a tenth of the steps, until descent diverges:

    >>> import numpy as np
    >>> from learncast.theory.dynamics.mode_equation import descent_steps, time_to_band
    >>> start, imbalance, cross, power = (np.array(one) for one in (0.01, 0.0, 1.0, 1.0))
    >>> time, edge = time_to_band(start, imbalance, cross, power, 0.01)
    >>> [float(descent_steps(start, edge, imbalance, cross, power, time, rate)) for rate in (0.01, 0.1, 1.5)]
    [459.0, 45.0, inf]
    """
    correction = descent_correction(start, end, imbalance, cross, power, flow_time)
    steps = flow_time / learning_rate + correction
    # Rounding in the band's edge must not turn an exact 331.0 into 332; and any passage takes a step.
    counted = np.where(flow_time > 0, np.maximum(np.ceil(steps - 1e-9), 1.0), 0.0)
    unstable = learning_rate * sharpness(start, imbalance, cross, power) > 2.0
    counted = np.where(unstable & (flow_time > 0), np.inf, counted)
    return np.where(np.isnan(flow_time), np.nan, counted)


#: Descent steps after which a count is given up.
MOST_STEPS = 10**9
#: Relative imbalance that is round-off of a change of frame.
BALANCED = 1e-13

#: Weights beyond this are those of a descent that has run away.
LOST = 1e50
#: Rounding with which an edge counts as met: flow and descent end stages on it.
EDGE = 1e-12

#: Whether weights (rows, 2, modes) of these of the rows have arrived, with so much rounding forgiven; below 0 only well
#: inside.
Arrived = Callable[..., NDArray[np.bool_]]


@dataclass(frozen=True)
class Problem:
    """Modes under one task: their recurrence-weighted strengths and conserved imbalance."""

    cross: FloatArray
    power: FloatArray
    imbalance: FloatArray

    def strength(self, time: Any, start: FloatArray) -> FloatArray:
        """Strengths after a flow time shared by the modes."""
        return strength(np.asarray(time)[..., None], start, self.imbalance, self.cross, self.power)

    def duration(self, start: FloatArray, tolerance: Any) -> FloatArray:
        """Flow time until all modes are within the tolerance."""
        times, *_ = _entry(start, self.imbalance, self.cross, self.power, np.asarray(tolerance)[..., None])
        return np.asarray(times[..., 0] if times.shape[-1] == 1 else times.max(axis=-1))

    def arrival(self, start: FloatArray, tolerance: Any) -> tuple[FloatArray, FloatArray]:
        """Flow time until all modes are within the tolerance, and the strengths then."""
        times, edges = time_to_band(start, self.imbalance, self.cross, self.power, np.asarray(tolerance)[..., None])
        if times.shape[-1] == 1:  # one mode ends on the edge itself, no exponential needed
            return times[..., 0], edges
        last = times.max(axis=-1)
        return last, np.where(times == last[..., None], edges, self.strength(last, start))

    @property
    def optimum(self) -> FloatArray:
        """Strength that is best for each mode; 0 where the mode does not matter."""
        return np.divide(self.cross, self.power, out=np.zeros_like(self.cross), where=self.power > 0)

    def within(self, tolerance: Any) -> Arrived:
        """Whether all modes are within the tolerance, one for all rows or one a row."""
        return self.near(np.asarray(tolerance)[..., None] * band_scale(self.optimum))

    def near(self, room: FloatArray) -> Arrived:
        """Whether every mode is so near its optimum."""
        best, silent = self.optimum, self.power == 0

        def arrived(weights: FloatArray, rows: NDArray[np.intp], edge: float = EDGE) -> NDArray[np.bool_]:
            gap = np.abs(weights[:, 0] * weights[:, 1] - _rows(best, rows))
            near = _below(gap, _rows(room, rows), edge)
            return np.asarray((near | _rows(silent, rows)).all(axis=-1))

        return arrived

    def below(self, excess: Any) -> Arrived:
        """Whether the excess loss is at most so much."""
        best = self.optimum

        def arrived(weights: FloatArray, rows: NDArray[np.intp], edge: float = EDGE) -> NDArray[np.bool_]:
            gap = weights[:, 0] * weights[:, 1] - _rows(best, rows)
            limit = np.asarray(excess)
            return _below((_rows(self.power, rows) * gap**2).sum(axis=-1) / 2, limit[rows] if limit.ndim else limit, edge)

        return arrived

    def counted(
        self,
        start: FloatArray,
        arrived: Arrived,
        learning_rate: float,
        most_steps: int = MOST_STEPS,
        *,
        precise: bool = True,
    ) -> tuple[FloatArray, FloatArray]:
        """Steps of gradient descent until weights `start` (rows, 2, modes) have arrived, and the weights then.

        Infinite where descent runs away or the flow never arrives, which is not waited for; unknown (nan) where it does
        not arrive in time. To a step or so where not precise, which is enough for resamplings.
        """
        every = np.arange(len(start))
        lost = ~(np.abs(start).reshape(len(start), -1).max(axis=1, initial=0.0) < LOST)
        start = np.where(lost[:, None, None], 0.0, start)
        a, c = start[:, 0], start[:, 1]
        u, imbalance = a * c, (a - c) * (a + c)
        imbalance = np.where(np.abs(imbalance) <= BALANCED * (a**2 + c**2), 0.0, imbalance)
        sharp = (sharpness(u, imbalance, self.cross, self.power) * learning_rate > 2.0).any(axis=-1)
        end = strength(np.inf, u, imbalance, self.cross, self.power)
        rest = np.stack(weights(a, c, end), axis=1)
        # What rests on the very edge, or at an optimum of no width, is reached at infinite time only.
        hopeless = lost | ((sharp | ~arrived(rest, every, -EDGE)) & ~arrived(start, every))
        steps, ends = np.where(hopeless, np.inf, np.nan), start.copy()
        going = every[~hopeless]
        if len(going):
            part = Problem(_rows(self.cross, going), _rows(self.power, going), self.imbalance)
            descents = part._descents(start[going], lambda w, rows: arrived(w, going[rows]), learning_rate)
            steps[going], ends[going] = descents.counted(start[going], most_steps, precise=precise)
        return steps, ends

    def descended(
        self, weights: FloatArray, stops: Sequence[int], learning_rate: float, *, precise: bool = True
    ) -> list[FloatArray]:
        """Weights (rows, 2, modes) after each of these rising numbers of steps; to a step's worth where not precise."""
        never = self._descents(weights, lambda w, rows: np.zeros(len(w), dtype=bool), learning_rate)
        return never.descended(weights, stops, precise=precise)

    def _descents(self, weights: FloatArray, arrived: Arrived, learning_rate: float) -> Descents:
        """Modes that descend side by side: a <- a + eta c (beta - u B), c <- c + eta a (beta - u B)."""
        seen: list[Any] = [None]

        def slope(states: FloatArray, rows: NDArray[np.intp]) -> FloatArray:
            if rows is not seen[0]:  # thousands of steps are taken by the same rows
                seen[:] = rows, _rows(self.cross, rows), _rows(self.power, rows)
            _, cross, power = seen
            # The pull on a mode is that on both its weights.
            pull = cross - power * (states[:, 0] * states[:, 1])
            return np.asarray(states[:, ::-1] * pull[:, None])

        a, c = weights[:, 0], weights[:, 1]
        sharp = sharpness(a * c, (a - c) * (a + c), self.cross, self.power)
        growth = float(np.abs(self.cross).max(initial=0.0))
        # Where most of what a mode does must be unlearned, that takes the time, and no growth.
        if (self.power**2 * (a * c) ** 2 > UNLEARNED * self.cross**2).any():
            growth = max(growth, float((self.power * (a**2 + c**2)).max(initial=0.0)))
        curvature = float(sharp[np.isfinite(sharp)].max(initial=0.0))
        cross, power = (np.broadcast_to(part, a.shape) for part in (self.cross, self.power))
        walk = ModeWalk(cross, power, float(learning_rate))
        return Descents(slope, arrived, curvature, growth, learning_rate, walk)


def _below(values: FloatArray, most: FloatArray, edge: float) -> NDArray[np.bool_]:
    return np.asarray(values <= most * (1 + edge) if edge > 0 else values < most * (1 + edge))


def _rows(values: Any, rows: NDArray[np.intp]) -> Any:
    """Values of some rows; one row of them stands for all."""
    return values[rows] if values.ndim > 1 else values
