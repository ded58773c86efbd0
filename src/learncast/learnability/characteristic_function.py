"""The empirical characteristic function of stable samples, with the weights that read parameters off its logarithm."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from learncast.validation import FloatArray

GLS_POINTS, KOGON_WILLIAMS_POINTS = 12, 10
#: Smallest index for which weights are made.
LEAST_INDEX = 0.3
#: Complex numbers held at a time: half a megabyte, which stays in a core's cache.
BLOCK = 2**15
_SPACING = 0.1
#: Share of each variance added to the weights' covariance, which is nearly singular at index 2.
_RIDGE = 1e-8


def empirical_characteristic(y: FloatArray, points: int) -> NDArray[np.complex128]:
    """Mean of exp(i k t y) at t = 0.1 and k = 1 ... points, (rows, points): powers of one exponential."""
    total = np.zeros((len(y), points), dtype=np.complex128)
    for first in range(0, y.shape[1], BLOCK):
        angle = _SPACING * y[:, first : first + BLOCK]
        base = np.empty(angle.shape, dtype=np.complex128)
        np.cos(angle, out=base.real)
        np.sin(angle, out=base.imag)
        power = base.copy()
        for k in range(points):
            total[:, k] += power.sum(axis=1)
            power *= base
    return total / y.shape[1]


def log_log(phi: NDArray[np.complex128], n: int) -> FloatArray:
    """log(-log |phi|^2) = log 2 scale^index + index log t, from the unbiased |phi|^2."""
    return np.asarray(np.log(-np.log((n * np.abs(phi) ** 2 - 1) / (n - 1))), dtype=np.float64)


def _grid(points: int) -> FloatArray:
    return _SPACING * np.arange(1.0, points + 1)


def _design(points: int) -> FloatArray:
    return np.stack([np.ones(points), np.log(_grid(points))], axis=-1)


def covariances(index: FloatArray, points: int) -> tuple[FloatArray, FloatArray]:
    """Covariance, times n, of log(-log |phi|^2) and of the phase at scale 1, (..., points, points)."""
    t = _grid(points)
    alpha = np.asarray(index)[..., None, None]
    sums, gaps = np.exp(-((t[:, None] + t) ** alpha)), np.exp(-(np.abs(t[:, None] - t) ** alpha))
    phi = np.exp(-(t**alpha))
    slope = phi * t**alpha  # d phi / d log(-log phi), up to sign
    both = np.swapaxes(phi, -1, -2) * phi
    log_log = ((sums + gaps) / 2 - both) / (np.swapaxes(slope, -1, -2) * slope)
    phase = (gaps - sums) / (2 * both)
    eye = _RIDGE * np.eye(points)
    return log_log * (1 + eye), phase * (1 + eye)


def efficient_weights(index: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Best linear weights of the log-log values, (..., points, 2), and n times the covariance they reach."""
    X = _design(GLS_POINTS)
    whitened = np.linalg.solve(covariances(index, GLS_POINTS)[0], np.broadcast_to(X, (*index.shape, *X.shape)))
    covariance = np.linalg.inv(X.T @ whitened)
    return whitened @ covariance, covariance


def phase_weights(index: FloatArray, cap: float) -> FloatArray:
    """Best linear weights of the phases, (..., points), for the slope of a line through the origin."""
    t = _grid(GLS_POINTS)
    capped = np.clip(np.nan_to_num(index, nan=cap), LEAST_INDEX, cap)
    whitened = np.linalg.solve(covariances(capped, GLS_POINTS)[1], t[:, None])[..., 0]
    return whitened / (whitened @ t)[..., None]


@cache
def ordinary_weights() -> tuple[FloatArray, FloatArray]:
    """Equal-variance weights of the log-log values, (points, 2), and of the phases, (points,)."""
    t = _grid(KOGON_WILLIAMS_POINTS)
    return np.asarray(np.linalg.pinv(_design(len(t))).T, dtype=np.float64), t / (t @ t)
