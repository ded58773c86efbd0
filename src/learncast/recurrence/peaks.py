"""Peaks of P²/Q, a squared polynomial over another: where a recurrence is locally best."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev
from numpy.polynomial.polynomial import polyder
from scipy.optimize import brentq

from learncast.validation import FloatArray

#: Degree of the Chebyshev pieces in which roots are isolated; longer profiles are cut into more pieces.
PIECE = 24
_EPS = float(np.finfo(float).eps)


def peaks(p: FloatArray, q: FloatArray) -> tuple[list[float], bool]:
    """Recurrences at which G = P²/Q has a local maximum, infinite ones included, and whether G is constant."""
    slope = _slope(p, q)
    if not slope.any() or not p.any():
        return [0.0], True
    sides = [_half_line(p, slope)]
    turned = (-1.0) ** np.arange(len(q))
    mirrored = p * turned[: len(p)], q * turned
    sides.append(_half_line(mirrored[0], _slope(*mirrored)))
    (right, right_ends), (left, left_ends) = sides
    found = [*right, *(-b for b in left)]
    if right_ends[0] < 0 and left_ends[0] < 0:  # G falls from b = 0 on either side
        found.append(0.0)
    if right_ends[1] > 0:
        found.append(math.inf)
    if left_ends[1] > 0:
        found.append(-math.inf)
    return found, False


def _slope(p: FloatArray, q: FloatArray) -> FloatArray:
    """Coefficients of 2P'Q - PQ', with what is rounding set to 0."""
    dp, dq = polyder(p), polyder(q)
    if len(p) == 1:
        return np.zeros(1)
    one, two = 2 * np.convolve(dp, q), np.convolve(p, dq)
    size = 2 * np.convolve(np.abs(dp), np.abs(q)) + np.convolve(np.abs(p), np.abs(dq))
    n = one - two
    n[np.abs(n) <= 2 * len(p) * _EPS * size] = 0.0
    return n[:-1]  # the leading terms cancel


def polynomial_at(z: Any, coefficients: FloatArray) -> Any:
    """Value of a polynomial; by powers, since a loop over a few hundred coefficients would take most of the time."""
    return np.asarray(z)[..., None] ** np.arange(len(coefficients)) @ coefficients


def _half_line(p: FloatArray, slope: FloatArray) -> tuple[list[float], tuple[float, float]]:
    """Maxima of G at 0 < b < inf, and the sign of dG/db next to 0 and to infinity (0 where P vanishes there)."""
    live = np.flatnonzero(slope)
    inner = slope[live[0] : live[-1] + 1]  # powers of b say nothing about 0 < b < inf
    outer = inner[::-1]

    def value(t: Any, one: FloatArray = inner, two: FloatArray = outer) -> Any:
        # The half line as 0 <= t <= 2: b = t inside, 1/b = 2 - t outside.
        return polynomial_at(t, one) if t <= 1 else polynomial_at(2 - t, two)

    inside, outside = np.array(_breakpoints(inner)), np.array(_breakpoints(outer))
    cuts = np.unique(np.concatenate([[0.0, 2.0], inside, 2 - outside]))
    samples = [0.0, *((cuts[1:] + cuts[:-1]) / 2).tolist(), 2.0]
    heights = [float(value(t)) for t in samples]
    noise = [4 * _EPS * float(value(t, np.abs(inner), np.abs(outer))) for t in samples]
    known = [(t, y) for t, y, e in zip(samples, heights, noise, strict=True) if abs(y) > e]
    found = []
    for (left, before), (right, after) in pairwise(known):
        if before * after < 0:
            b = _polished(brentq(value, left, right, xtol=1e-300, rtol=4 * _EPS), inner, outer)
            P = polynomial_at(b, p) if b <= 1 else polynomial_at(1 / b, p[::-1])
            if before * P > 0:
                found.append(b)
    return found, (float(np.sign(inner[0] * p[0])), float(np.sign(inner[-1] * p[-1])))


def _breakpoints(coefficients: FloatArray, low: float = 0.0, high: float = 1.0) -> list[float]:
    """Real parts of the roots of a polynomial with low <= real part <= high, by Chebyshev pieces within [0, 1]."""
    degree = min(len(coefficients) - 1, PIECE)
    if degree == 0:
        return []
    centre, half = (low + high) / 2, (high - low) / 2
    points, to_series = _chebyshev(degree)
    series = to_series @ polynomial_at(centre + half * points, coefficients)
    size = np.abs(series).max()
    rounding = 8 * _EPS * float(polynomial_at(high, np.abs(coefficients)))
    if size <= rounding:
        return []
    resolved = np.abs(series[-3:]).max() <= max(1e-13 * size, rounding)
    if degree < len(coefficients) - 1 and not resolved and half > 1e-9:
        return [*_breakpoints(coefficients, low, centre), centre, *_breakpoints(coefficients, centre, high)]
    if abs(series[0]) > np.abs(series[1:]).sum():  # no Chebyshev polynomial exceeds 1
        return []
    kept = chebyshev.chebtrim(series, tol=1e-15 * size)
    roots = chebyshev.chebroots(kept).real if len(kept) > 1 else np.zeros(0)
    return (centre + half * roots[np.abs(roots) <= 1]).tolist()


@cache
def _chebyshev(degree: int) -> tuple[FloatArray, FloatArray]:
    """Interpolation points in [-1, 1], and the matrix from values there to Chebyshev coefficients."""
    points = chebyshev.chebpts1(degree + 1)
    weight = np.where(np.arange(degree + 1) == 0, 1.0, 2.0)[:, None] / (degree + 1)
    return points, weight * chebyshev.chebvander(points, degree).T


def _polished(t: float, inner: FloatArray, outer: FloatArray) -> float:
    """The recurrence at a bracketed root; Newton steps in 1/b restore the digits that 2 - t lost."""
    z, polynomial = (t, inner) if t <= 1 else (2 - t, outer)
    slope = np.asarray(polyder(polynomial), dtype=np.float64)
    for _ in range(2):
        step = polynomial_at(z, polynomial) / (polynomial_at(z, slope) or math.inf)
        if abs(step) < 1e-6 * z:
            z -= step
    return float(z if t <= 1 else 1 / z)
