"""Estimates of the tail index and scale of symmetric stable samples.

A symmetric stable variable has the characteristic function exp(i location t - |scale t|^index). Index 2 is a normal
variable of variance 2 scale^2; below 2 the variance is infinite. An index below 2 fitted to a sample is not evidence of
infinite variance (a product of two normal variables gives about 1.3): see `detection.aggregated`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import BSpline, make_interp_spline

from learncast._core.validation import FloatArray, real_array
from learncast.results import Status

#: Fewer samples give no estimate. With this many, the index is known to about +-0.3 (95%).
MINIMUM_SAMPLES = 100
#: Normal quantile of a two-sided 95% interval.
TWO_SIDED = 1.959963984540054
#: Complex numbers held at a time: half a megabyte, which stays in a core's cache.
BLOCK = 2**15

#: Points t = 0.1, 0.2, ..., 1.2 of the characteristic function.
_SPACING = 0.1
_T = _SPACING * np.arange(1.0, 13)
#: Regressors of log(-log |phi(t)|^2).
_DESIGN = np.stack([np.ones(12), np.log(_T)], axis=-1)
#: Share of each variance added to the weights' covariance, which is nearly singular at index 2.
_RIDGE = 1e-8
#: Smallest index for which weights are computed.
_LEAST_INDEX = 0.3
#: Largest index at which weights are evaluated, per iteration. The start is too inaccurate for the weights of index 2,
#: which cancel all smooth noise and magnify a misfit.
_WEIGHT_CAPS = (1.9, 2.0)
#: Errors shrink faster than any power of the sample size as the index reaches 2, where the leading order is 0.
#: Intervals use the error at this index from there on, and cover more than 95%.
_ERROR_CAP = 1.99

# The 0.75 and 0.95 quantiles at scale 1 for each index, by numerical inversion of exp(-|t|^index). Beyond 2 the inverse
# is not a density, but its quantiles continue smoothly, so that an estimate need not be clipped at 2.
_TABLE = files("learncast.windows.detection").joinpath("stable_quantiles.csv").read_text(encoding="utf-8")
_INDEX, _Q75, _Q95 = np.loadtxt(_TABLE.splitlines(), delimiter=",", skiprows=1, unpack=True)


@dataclass(frozen=True, eq=False)
class TailIndex:
    """Index and scale of each sample; every array has the shape of the leading axes.

    Attributes
    ----------
    index, scale : array
        Estimates, never clipped; nan if `status` says that there is none.
    index_error : array
        Standard error of the index.
    index_interval, scale_interval : (..., 2)
        95% intervals. The interval of the index holds every value from which the estimate is within 1.96 of *that
        value's* standard error, so that it stays valid where the error shrinks towards index 2.
    status : array of Status
        ``outside_theory`` for an index above 2 or at most 1 (no mean), and for samples without an estimate.
    samples : int
        Samples behind each estimate.
    """

    index: FloatArray
    scale: FloatArray
    index_error: FloatArray
    index_interval: FloatArray
    scale_interval: FloatArray
    status: NDArray[np.object_]
    samples: int


def fit_tail_index(values: ArrayLike) -> TailIndex:
    """Estimate index and scale of symmetric stable samples along the last axis.

    Generalised least squares on the empirical characteristic function at t = 0.1 ... 1.2, in two iterations that start
    from a quantile estimate.

    Parameters
    ----------
    values : (..., samples)
        Independent samples. Memory beyond the input stays bounded.

    Notes
    -----
    Below `MINIMUM_SAMPLES` every number is nan with status ``too_few_samples``.
    """
    x = real_array("values", values)
    lead, n = x.shape[:-1], x.shape[-1]
    rows = x.reshape(-1, n) if n else np.empty((int(np.prod(lead)), 0))
    estimates = np.full((2, len(rows)), np.nan)
    if n >= MINIMUM_SAMPLES:
        step = max(1, BLOCK // n)
        with np.errstate(all="ignore"):  # a sample without an estimate gives nan, which the status explains
            for first in range(0, len(rows), step):
                estimates[:, first : first + step] = _estimates(rows[first : first + step])
    index, scale = (part.reshape(lead) for part in estimates)
    grid, *errors = _error_profile()
    root = np.sqrt(max(n, 1))
    index_error, log_scale_error = (np.interp(index, grid, error) / root for error in errors)
    factor = np.exp(TWO_SIDED * log_scale_error)
    status = np.full(index.shape, Status.ok, dtype=object)
    with np.errstate(invalid="ignore"):
        status[np.isnan(index) | (index > 2) | (index <= 1)] = Status.outside_theory
    if n < MINIMUM_SAMPLES:
        status[...] = Status.too_few_samples
    interval = _index_interval(index, grid, errors[0] / root)
    return TailIndex(
        index, scale, index_error, interval, np.stack([scale / factor, scale * factor], axis=-1), status, n
    )


def _estimates(x: FloatArray) -> FloatArray:
    """Index and scale of each row, (2, rows); nan in both where the location or one of them is not finite."""
    index, scale, location = quantile_fit(x)
    for cap in _WEIGHT_CAPS:
        # On the grid of the current scale: the grid is best at scale 1, and the weights are computed for it.
        phi = empirical_characteristic((x - location[:, None]) / scale[:, None])
        weights, _ = _efficient_weights(_capped(index, cap))
        level, index = np.einsum("kp,kpj->jk", _log_log(phi, x.shape[-1]), weights)
        location = location + scale * np.einsum("kp,kp->k", np.angle(phi), _phase_weights(_capped(index, cap)))
        scale = scale * np.exp((level - np.log(2)) / index)
    known = np.isfinite(index) & np.isfinite(scale) & np.isfinite(location)
    return np.where(known, [index, scale], np.nan)


def _capped(index: FloatArray, cap: float) -> FloatArray:
    return np.clip(np.nan_to_num(index, nan=cap), _LEAST_INDEX, cap)


@cache
def _error_profile() -> FloatArray:
    """Rows: index, then sqrt(n) times the standard errors of index and log scale."""
    index = np.linspace(_LEAST_INDEX, _ERROR_CAP, 340)
    _, covariance = _efficient_weights(index)
    return np.stack([index, np.sqrt(covariance[..., 1, 1]), np.sqrt(covariance[..., 0, 0] / index**2)])


def _index_interval(index: FloatArray, grid: FloatArray, error: FloatArray) -> FloatArray:
    """Every value whose own error would allow the estimate; beyond the grid the error is that of its end."""
    reach = TWO_SIDED * error
    flat = index.reshape(-1, 1)
    allowed = np.abs(flat - grid) <= reach
    low = np.where(allowed, grid, np.inf).min(axis=1)
    high = np.where(allowed, grid, -np.inf).max(axis=1)
    at_end = flat[:, 0] + reach[-1]
    high = np.where((at_end >= grid[-1]), np.maximum(high, at_end), high)
    low = np.where(flat[:, 0] - reach[-1] >= grid[-1], flat[:, 0] - reach[-1], low)
    low = np.where(flat[:, 0] - reach[0] <= grid[0], flat[:, 0] - reach[0], low)
    high = np.where(np.isfinite(high), high, flat[:, 0] + reach[0])
    interval = np.stack([low, high], axis=-1)
    interval[~np.isfinite(flat[:, 0])] = np.nan
    return interval.reshape(*index.shape, 2)


def empirical_characteristic(y: FloatArray) -> NDArray[np.complex128]:
    """Mean of exp(i t y) at t = 0.1 ... 1.2, (rows, 12), as powers of one exponential."""
    total = np.zeros((len(y), len(_T)), dtype=np.complex128)
    for first in range(0, y.shape[1], BLOCK):
        angle = _SPACING * y[:, first : first + BLOCK]
        base = np.empty(angle.shape, dtype=np.complex128)
        np.cos(angle, out=base.real)
        np.sin(angle, out=base.imag)
        power = base.copy()
        for k in range(len(_T)):
            total[:, k] += power.sum(axis=1)
            power *= base
    return total / y.shape[1]


def _log_log(phi: NDArray[np.complex128], n: int) -> FloatArray:
    """log(-log |phi|^2) = log 2 scale^index + index log t, from the unbiased |phi|^2."""
    return np.asarray(np.log(-np.log((n * np.abs(phi) ** 2 - 1) / (n - 1))), dtype=np.float64)


def _covariances(index: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Covariance, times n, of log(-log |phi|^2) and of the phase at scale 1, (..., points, points)."""
    alpha = np.asarray(index)[..., None, None]
    sums, gaps = np.exp(-((_T[:, None] + _T) ** alpha)), np.exp(-(np.abs(_T[:, None] - _T) ** alpha))
    phi = np.exp(-(_T**alpha))
    slope = phi * _T**alpha  # d phi / d log(-log phi), up to sign
    both = np.swapaxes(phi, -1, -2) * phi
    log_log = ((sums + gaps) / 2 - both) / (np.swapaxes(slope, -1, -2) * slope)
    phase = (gaps - sums) / (2 * both)
    ridge = 1 + _RIDGE * np.eye(len(_T))
    return log_log * ridge, phase * ridge


def _efficient_weights(index: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Best linear weights of the log-log values, (..., points, 2), and n times the covariance of the estimates."""
    design = np.broadcast_to(_DESIGN, (*index.shape, *_DESIGN.shape))
    whitened = np.linalg.solve(_covariances(index)[0], design)
    covariance = np.linalg.inv(_DESIGN.T @ whitened)
    return whitened @ covariance, covariance


def _phase_weights(index: FloatArray) -> FloatArray:
    """Best linear weights of the phases, (..., points), for the slope of a line through the origin."""
    whitened = np.linalg.solve(_covariances(index)[1], _T[:, None])[..., 0]
    return whitened / (whitened @ _T)[..., None]


def stable_quantiles(index: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """The 0.75 and 0.95 quantiles at scale 1, for an index from 0.7 to 2.5; nan outside."""
    q75, q95 = np.moveaxis(_splines()[0](np.asarray(index, dtype=np.float64), extrapolate=False), -1, 0)
    return q75, q95


@cache
def _splines() -> tuple[BSpline, BSpline]:
    """Quantiles by index, and index by the logarithm of (q95 - q05) / (q75 - q25)."""
    forward = make_interp_spline(_INDEX, np.stack([_Q75, _Q95], axis=-1), k=5)
    ratio = np.log(_Q95 / _Q75)
    return forward, make_interp_spline(ratio[::-1], _INDEX[::-1], k=5)  # the ratio falls as the index grows


def quantile_fit(x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Index from the ratio of two quantile ranges (clipped to the table), scale from one of them, and the median."""
    q05, q25, q50, q75, q95 = np.quantile(x, (0.05, 0.25, 0.5, 0.75, 0.95), axis=-1)
    ratio = np.log((q95 - q05) / (q75 - q25))
    ends = [np.log(_Q95[row] / _Q75[row]) for row in (-1, 0)]
    index = np.asarray(_splines()[1](np.clip(ratio, *ends), extrapolate=False))
    return index, (q75 - q25) / (2 * stable_quantiles(index)[0]), q50
