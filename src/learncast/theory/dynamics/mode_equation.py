r"""Equation of one learning mode: its strength in closed form, and the time to any strength.

A mode connects one input direction to one output direction through an input weight a and an output weight c. With the
recurrence-weighted statistics beta (cross) and B (input) the weights follow, in time tau = steps x learning rate,

    da/dtau = c (beta - u B),   dc/dtau = a (beta - u B),   u = a c,

so lambda = a^2 - c^2 is conserved and the strength u obeys  du/dtau = S (beta - u B)  with
S = a^2 + c^2 = sqrt(lambda^2 + 4 u^2). In W = 2u + S = (a + c)^2 this is a Riccati equation with the fixed points
W+ = 2u* + S* and -W- = 2u* - S*, where u* = beta/B. All functions below evaluate its solution without subtracting
nearly equal numbers; lambda = 0 needs no special case.

All functions broadcast elementwise. The exception is `band_scale`: the tolerance of a mode with nothing to learn
depends on the other modes on the last axis. An imbalance below 1e-150 counts as 0, because its square underflows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from learncast._core.validation import FloatArray

__all__ = [
    "accuracy", "band_scale", "sharpness", "strength", "time_between",
    "time_to_band", "weights",
]  # fmt: skip

#: Relative rounding of a strength that was computed to lie on an edge of the band.
_ROUNDING = 8 * np.finfo(float).eps
#: Argument above which log is as accurate as log1p.
_FAR = 2.0
#: Smallest imbalance whose square does not underflow.
_LEAST_IMBALANCE = 1e-150
#: Weights below this size grow exponentially; their products may underflow.
_LEAST_WEIGHT = 1e-75
#: Relative imbalance below which the weights count as balanced: rounding of a change of frame.
_BALANCED = 1e-13


def strength(time: ArrayLike, start: ArrayLike, imbalance: ArrayLike, cross: ArrayLike, power: ArrayLike) -> FloatArray:
    """Return the strength u of a mode at flow time `time` (steps x learning rate; may be infinite).

    Implements: curriculum2025 Eq. (9), also for unbalanced starts, beta_yx = 0 and either sign of u_0
    Implements: curriculum2025 Eq. (42), which repeats Eq. (9)

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
        u, of the broadcast shape.

    Examples
    --------
    >>> from learncast.theory import strength
    >>> strength([0.0, 2.0, 4.0, float("inf")], start=0.01, imbalance=0.0, cross=1.0, power=1.0).round(3)
    array([0.01 , 0.355, 0.968, 1.   ])
    """
    t, u0, lam, beta, B = np.broadcast_arrays(*(np.asarray(v, float) for v in (time, start, imbalance, cross, power)))
    # (u, beta) -> (-u, -beta) is a symmetry (change the sign of c). Use u0 >= 0, so that W0 = 2u0 + S0 is a sum of
    # positive numbers.
    sign = np.where((u0 < 0) | ((u0 == 0) & (beta < 0)), -1.0, 1.0)
    u0, beta, ell = sign * u0, sign * beta, _magnitude(lam)
    S0 = np.hypot(ell, 2 * u0)
    W0 = 2 * u0 + S0
    R = np.hypot(2 * beta, ell * B)
    live = R > 0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        S1 = np.where(live & (B > 0), R / np.where(B > 0, B, 1.0), 0.0)
        u1 = np.where(B > 0, beta / np.where(B > 0, B, 1.0), 0.0)
        plus, minus = _root_sum(u1, S1, ell), _root_sum(-u1, S1, ell)
        E = np.where(live, np.exp(-R * t), 1.0)
        # D = (1 - E) / S* is B tau at R = 0, where the exponential form is 0/0.
        D = np.where(live, -np.expm1(-R * t) * B / np.where(live, R, 1.0), np.where(B > 0, B * t, 0.0))
        p, m = _shares(beta, R, ell * B)
        above = _excess(u0, S0, ell) * 2 * E + D * _excess(u1, S1, ell) * (W0 + minus)
        below = (W0 + ell) * 2 * E + D * (plus + ell) * (W0 + minus)
        N = W0 * (p + m * E) + ell**2 * D
        M = W0 * D + p * E + m
        u = (above / N) * (below / M) / 4  # ratios first: u0 = 1e-200 must not underflow
    # For u0 = 0 = lambda, where nothing moves, the formula is 0/0; at R = 0 and t = inf it is 1/inf.
    u = np.where(N == 0, 0.0, np.where(np.isinf(D), 0.0, u))
    return sign * u


def _shares(beta: FloatArray, R: FloatArray, ell_B: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return W+ / S* = 1 + q and W- / S* = 1 - q with q = 2 beta / R, without cancellation."""
    safe = np.where(R > 0, R, 1.0)
    larger = np.where(R > 0, 1 + 2 * np.abs(beta) / safe, 2.0)
    smaller = np.where(R > 0, (ell_B / safe) ** 2 / larger, 0.0)
    return np.where(beta >= 0, larger, smaller), np.where(beta >= 0, smaller, larger)


def _excess(u: FloatArray, S: FloatArray, ell: FloatArray) -> FloatArray:
    """Return W - |lambda| = 2u + S - |lambda| to full relative accuracy for both signs of u."""
    total = S + ell
    rise = 2 * np.abs(u) + np.divide(4 * u**2, total, out=np.zeros_like(total), where=total > 0)
    larger = S + 2 * np.abs(u)
    fall = np.divide(ell * rise, larger, out=np.zeros_like(larger), where=larger > 0)
    return np.where(u >= 0, rise, -fall)


def resolved_start(
    input_weight: ArrayLike, output_weight: ArrayLike, cross: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Return the strength a c of a mode and 0, or, if it underflows, a tiny strength and the time until it is reached.

    Weights that are so small grow exponentially: (a + c) at the rate beta, while (a - c) decays.

    Parameters
    ----------
    input_weight, output_weight : array_like
        a and c before training.
    cross : array_like
        beta, the recurrence-weighted cross strength.

    Returns
    -------
    strength : array
    time : array
        Flow time.

    Examples
    --------
    >>> from learncast.theory.dynamics.mode_equation import resolved_start
    >>> [float(v) for v in resolved_start(0.1, 0.2, 1.0)]
    [0.020000000000000004, 0.0]
    >>> [round(float(v), 1) for v in resolved_start(1e-200, 1e-200, 1.0)]
    [0.0, 287.8]
    """
    a, c, beta = np.broadcast_arrays(*(np.asarray(v, float) for v in (input_weight, output_weight, cross)))
    sign = np.where(beta < 0, -1.0, 1.0)
    growing = np.abs(a + sign * c) / 2
    tiny = (np.maximum(np.abs(a), np.abs(c)) < _LEAST_WEIGHT) & (growing > 0) & (beta != 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        time = np.where(tiny, (np.log(_LEAST_WEIGHT) - np.log(growing)) / np.abs(beta), 0.0)
    return np.where(tiny, sign * _LEAST_WEIGHT**2, a * c), time


def band_scale(optimum: ArrayLike) -> FloatArray:
    """Return the strength to which the tolerance of each mode is relative.

    This is |u*|, except for modes with nothing to learn (u* = 0): their strength decays like 1/t at best and would
    never enter a band of width 0. For them it is |u*| of the strongest mode. It is 0 for all modes of a task with
    nothing to learn.

    Parameters
    ----------
    optimum : array_like
        u* of each mode, on the last axis.

    Returns
    -------
    array

    Examples
    --------
    >>> from learncast.theory import band_scale
    >>> band_scale([2.0, -0.5, 0.0])
    array([2. , 0.5, 2. ])
    """
    size = np.abs(np.asarray(optimum, dtype=float))
    idle = size == 0
    if not idle.any():
        return size
    known = np.where(np.isfinite(size), size, 0.0)
    return np.where(idle, known.max(axis=-1, keepdims=True) if size.ndim else size, size)


def accuracy(strengths: ArrayLike, cross: ArrayLike, power: ArrayLike) -> FloatArray:
    """Return 1 - |u - u*| / `band_scale` of each mode; 1 at the optimum and for modes without input variance.

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
    >>> from learncast.theory import accuracy
    >>> accuracy(np.array([0.5, 1.98]), cross=np.array([1.0, 2.0]), power=np.array([1.0, 1.0])).round(3)
    array([0.5 , 0.99])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        best = np.asarray(cross, dtype=float) / np.asarray(power)
        off = np.abs(strengths - best)
        return np.where(np.isnan(best) | (off == 0), 1.0, 1 - off / band_scale(best))


def time_to_band(
    start: ArrayLike, imbalance: ArrayLike, cross: ArrayLike, power: ArrayLike, tolerance: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Return the flow time of first entry into |u - u*| <= tolerance x `band_scale`, and the strength then.

    The time is 0 inside the band and for modes without input variance. It is infinite if the band is never reached:
    without imbalance from u_0 = 0 or from the wrong sign, for a task with nothing to learn, or for tolerance 0. The
    strength is the edge of the band, or the start if that is inside.

    Implements: curriculum2025 Eq. (12), as the first entry from below or above; the paper uses (1 - eps)u* for both
    Implements: curriculum2025 Eq. (41), solved for the time to a given strength
    Implements: curriculum2025 Eq. (11), u* = beta_yx / beta_xx

    Parameters
    ----------
    start, imbalance, cross, power : array_like
        As for `strength`.
    tolerance : array_like
        eps, relative to the optimum.

    Returns
    -------
    time : array
        Flow time, steps x learning rate.
    strength : array

    Examples
    --------
    >>> from learncast.theory import time_to_band
    >>> time, edge = time_to_band(0.01, 0.0, cross=1.0, power=1.0, tolerance=0.01)
    >>> print(round(float(time), 3), round(float(edge), 3))
    4.595 0.99
    """
    time, u0, best, eps, sign = band_entry(start, imbalance, cross, power, tolerance)
    with np.errstate(invalid="ignore", over="ignore"):
        if (u0 <= best).all() and (best > 0).all():
            end = best * (1 - eps)
        else:
            end = best - np.copysign(eps * band_scale(best), best - u0)
        if not (time > 0).all() or time.shape != end.shape:
            end = np.where(_inside(u0, best, eps), u0, end)
    return time, end if sign is None else sign * end


def band_entry(
    start: ArrayLike, imbalance: ArrayLike, cross: ArrayLike, power: ArrayLike, tolerance: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray | None]:
    """Return time to the band, u_0, u*, tolerance, and the signs that make beta >= 0 (None if it is)."""
    u0, lam, beta, B, eps = (np.asarray(v, dtype=float) for v in (start, imbalance, cross, power, tolerance))
    sign = None
    if (beta < 0).any():
        sign = np.where(beta < 0, -1.0, 1.0)
        u0, beta = sign * u0, np.abs(beta)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        best = beta / B
        plain = not _magnitude(lam).any() and ((best > 0) & (best < np.inf)).all() and (u0 >= 0).all()
        time = (_balanced_entry if plain else _any_entry)(u0, lam, beta, B, best, eps)
    return time, u0, best, eps, sign


def _any_entry(
    u0: FloatArray, lam: FloatArray, beta: FloatArray, B: FloatArray, best: FloatArray, eps: FloatArray
) -> FloatArray:
    """Return the time to the band for beta >= 0."""
    gap, scale = best - u0, band_scale(best)
    rest = np.copysign(eps * scale, gap)  # signed distance from the edge to the optimum
    time = _passage(u0, best - rest, best, rest, gap - rest, lam, beta, B)
    return np.where(_inside(u0, best, eps), 0.0, time)


def _inside(u0: FloatArray, best: FloatArray, eps: FloatArray) -> NDArray[np.bool_]:
    """Return whether strengths are within the band."""
    scale = band_scale(best)
    # A start computed to be on the edge counts as inside. So does beta = 0 = B: the mode has no influence on the loss.
    return np.asarray((np.abs(best - u0) <= eps * scale + _ROUNDING * scale) | np.isnan(best))


def _balanced_entry(
    u0: FloatArray, lam: FloatArray, beta: FloatArray, B: FloatArray, best: FloatArray, eps: FloatArray
) -> FloatArray:
    """Return the time to the band at lambda = 0, u0 >= 0, u* > 0: ln(|u* - u0| / u0 x (1 -+ eps) / eps) / 2 beta.

    Start and tolerance are separate factors, so that a grid of both takes one product and one logarithm. Starts near or
    inside the band, and those that never reach it, use the form without cancellation.
    """
    relative = np.asarray(best - u0)
    relative /= u0
    above = not relative.min(initial=0.0) >= 0
    ratio = np.asarray(relative * ((1 - eps) / eps))
    if above:  # from above, the edge lies beyond the optimum
        other = np.multiply(relative, (-1 - eps) / eps, out=relative if relative.shape == ratio.shape else None)
        np.maximum(ratio, other, out=ratio)
    special = np.flatnonzero(~((ratio >= _FAR) & (ratio < np.inf)))
    time = np.log(ratio, out=ratio)
    time *= 0.5 / beta
    if len(special):
        values = (np.broadcast_to(v, time.shape).flat[special] for v in (u0, lam, beta, B, best, eps))
        time.flat[special] = _any_entry(*values)
    return time


def time_between(
    start: ArrayLike, end: ArrayLike, imbalance: ArrayLike, cross: ArrayLike, power: ArrayLike
) -> FloatArray:
    """Return the flow time from one strength to another; infinite if the flow does not lead there.

    Implements: curriculum2025 Eq. (41), also for unbalanced starts and either direction

    Parameters
    ----------
    start, end : array_like
        Strengths u at the start and at the end.
    imbalance, cross, power : array_like
        As for `strength`.

    Returns
    -------
    array
        Flow time, steps x learning rate.

    Examples
    --------
    >>> from learncast.theory import time_between
    >>> time_between(0.01, [0.5, 0.99, 1.5], imbalance=0.0, cross=1.0, power=1.0).round(3)
    array([2.298, 4.595,   inf])
    """
    u0, u, lam, beta, B = (np.asarray(v, dtype=float) for v in (start, end, imbalance, cross, power))
    sign = np.where(beta < 0, -1.0, 1.0)
    u0, u, beta = sign * u0, sign * u, np.abs(beta)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        best = beta / B
        rest, path = best - u, u - u0
        time = _passage(u0, u, best, rest, path, lam, beta, B)
    return np.where(path == 0, 0.0, np.where(rest * path > 0, time, np.inf))


def _passage(
    u0: FloatArray, u: FloatArray, best: FloatArray, rest: FloatArray, path: FloatArray, lam: FloatArray,
    beta: FloatArray, B: FloatArray,
) -> FloatArray:  # fmt: skip
    """Return the time ln(1 + R y) / R from u0 to u for beta >= 0, given rest = u* - u and path = u - u0 exactly.

    y = 2 (path/rest) (W0 + W)/(W + W+) (S + S*)/(S0 + S) / ((W0 + W-) B); each factor is a sum of positive numbers.
    """
    ell = _magnitude(lam)
    if ell.any():
        S0, S, S1 = np.hypot(ell, 2 * u0), np.hypot(ell, 2 * u), np.hypot(ell, 2 * best)
        W0, W = _root_sum(u0, S0, ell), _root_sum(u, S, ell)
        plus = 2 * best + S1
        minus = ell * (ell / plus)
        y = 2 * (path / rest) * ((W0 + W) / (W + plus)) * ((S + S1) / (S0 + S)) / ((W0 + minus) * B)
        rate = np.hypot(2 * beta, ell * B)
        time = np.log1p(rate * y) / rate
        balanced = ell == 0
        if balanced.any():
            time = np.where(balanced, _balanced_passage(u0, best, rest, path, beta), time)
    else:
        time = _balanced_passage(u0, best, rest, path, beta)
    if np.isfinite(time).all():
        return time
    rate = np.hypot(2 * beta, lam * B)
    # At rate 0 (beta = 0 = lambda) u decays as 1/u = 1/u0 + 2 B tau.
    time = np.where((rate == 0) & (u0 * (best - rest) > 0), np.abs(path / (2 * B * u0 * (best - rest))), time)
    # For a start so small that the quotient overflows, split its logarithm.
    tiny = np.isinf(time) & (u0 > 0) & (rest != 0) & (rate > 0)
    time = np.where(tiny, (np.log(best) + np.log(path / rest) - np.log(u0)) / rate, time)
    return np.where(np.isnan(time), np.inf, time)


def _balanced_passage(
    u0: FloatArray, best: FloatArray, rest: FloatArray, path: FloatArray, beta: FloatArray
) -> FloatArray:
    """Return the time of `_passage` at lambda = 0, where common factors cancel; nan for a passage through 0.

    Negative strengths rise towards 0: the logarithm is then negative, and the time is its absolute value.
    """
    time = np.log1p(best * path / (u0 * rest))
    return (time if (time >= 0).all() else np.abs(time)) / (2 * beta)


def _magnitude(imbalance: FloatArray) -> FloatArray:
    """Return |lambda|, or 0 if its square would underflow."""
    ell = np.abs(imbalance)
    return np.where(ell < _LEAST_IMBALANCE, 0.0, ell) if ell.any() else ell


def _root_sum(u: FloatArray, S: FloatArray, ell: FloatArray) -> FloatArray:
    """Return W = 2u + S = (a + c)^2, without cancellation for negative u."""
    larger = S + 2 * np.abs(u)
    return np.where(u >= 0, larger, np.divide(ell**2, larger, out=np.zeros_like(larger), where=larger > 0))


def weights(start_input: ArrayLike, start_output: ArrayLike, strengths: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the input and output weight (a, c) of a mode at given strengths along its flow.

    lambda = a^2 - c^2 is conserved, and the larger of |a|, |c| never changes sign.

    Parameters
    ----------
    start_input, start_output : array_like
        a and c before training.
    strengths : array_like
        u = a c along the flow.

    Returns
    -------
    input_weight : array
    output_weight : array

    Examples
    --------
    >>> from learncast.theory import weights
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


def imbalance_of(input_weight: FloatArray, output_weight: FloatArray) -> FloatArray:
    """Return lambda = a^2 - c^2, or 0 if it is rounding, which must not move a balanced start off its separatrix."""
    a, c = input_weight, output_weight
    difference = (a - c) * (a + c)
    return np.where(np.abs(difference) <= _BALANCED * (a**2 + c**2), 0.0, difference)


def sharpness(start: ArrayLike, imbalance: ArrayLike, cross: ArrayLike, power: ArrayLike) -> FloatArray:
    """Return the largest curvature along a mode: at the optimum, or at a start beyond it.

    At the optimum it is S* B = 2 sqrt(beta^2 + (lambda B / 2)^2). At the start a step multiplies a - c or a + c
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
    >>> from learncast.theory import sharpness
    >>> print(sharpness(start=0.01, imbalance=0.0, cross=1.0, power=1.0))
    2.0
    """
    u0, lam, beta, B = (np.asarray(v, dtype=float) for v in (start, imbalance, cross, power))
    return np.maximum(np.hypot(2 * beta, lam * B), np.abs(u0) * B - np.copysign(beta, beta * u0))


def printed_time(start: ArrayLike, cross: ArrayLike, power: ArrayLike, tolerance: ArrayLike) -> FloatArray:
    """Return the time of the paper's formula, for comparison only.

    It assumes that (1 - eps) u* is approached from below: from above it is too short, inside the band negative.

    Implements: curriculum2025 Eq. (12), as printed
    Implements: curriculum2025 Eq. (14), its second term if started from the end of task 1
    """
    u0, beta, B, eps = (np.asarray(v, dtype=float) for v in (start, cross, power, tolerance))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((np.log(np.abs(beta / B / u0 - 1)) - np.log(np.abs(eps / (1 - eps)))) / (2 * beta))
