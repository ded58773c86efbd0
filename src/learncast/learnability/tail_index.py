"""The tail index of symmetric stable samples, with its scale, its location and their uncertainty.

A symmetric stable variable has the characteristic function exp(i location t - |scale t|^index): index 2 is a normal
variable of variance 2 scale^2, and below 2 the variance is infinite. An index below 2 fitted to a sample is not
evidence of infinite variance (a product of two normal variables gives about 1.3): see `aggregation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learncast.errors import InvalidSpec
from learncast.learnability.characteristic_function import (
    BLOCK,
    GLS_POINTS,
    KOGON_WILLIAMS_POINTS,
    LEAST_INDEX,
    covariances,
    efficient_weights,
    empirical_characteristic,
    log_log,
    ordinary_weights,
    phase_weights,
)
from learncast.learnability.stable_quantile import quantile_errors, quantile_fit
from learncast.trajectory import Status
from learncast.validation import FloatArray, one_of, real_array

#: Fewer samples give no answer: at this number the index is known to about +-0.3 (95%).
MINIMUM_SAMPLES = 100
METHODS = ("gls", "kogon_williams", "mcculloch")
#: Normal quantile of a two-sided 95% interval.
TWO_SIDED = 1.959963984540054

#: Largest index at which weights are evaluated, per iteration: the start is too rough to trust weights made for
#: 2, which annihilate all smooth noise and magnify a misfit.
_WEIGHT_CAPS = (1.9, 2.0)
#: Errors shrink faster than any power of the sample size as the index reaches 2, where the leading order says
#: nothing; intervals use the error at this index from there on, and cover more than they promise.
_ERROR_CAP = 1.99


@dataclass(frozen=True, eq=False)
class TailIndex:
    """Index, scale and location of each sample; every array has the shape of the leading axes.

    Attributes
    ----------
    index, scale, location : array
        Estimates, never clipped; nan where `status` says why there is none.
    index_error, scale_error, location_error : array
        Standard errors.
    index_interval, scale_interval, location_interval : (..., 2)
        95% intervals. That of the index holds every value from which the estimate is within 1.96 of *that value's*
        standard error, so that it stays honest where the error shrinks towards index 2.
    status : array of Status
        ``outside_theory`` for an index above 2 or at most 1 (no mean), and for samples without an estimate.
    samples : int
        Samples behind each estimate.
    method : str
        One of `METHODS`.
    """

    index: FloatArray
    scale: FloatArray
    location: FloatArray
    index_error: FloatArray
    scale_error: FloatArray
    location_error: FloatArray
    index_interval: FloatArray
    scale_interval: FloatArray
    location_interval: FloatArray
    status: NDArray[np.object_]
    samples: int
    method: str


def fit_tail_index(values: Any, *, method: str = "gls") -> TailIndex:
    """Estimate index, scale and location of symmetric stable samples along the last axis.

    Parameters
    ----------
    values : (..., samples)
        Independent samples, many sets at once. Memory beyond the input stays bounded.
    method : {"gls", "kogon_williams", "mcculloch"}
        Generalised least squares on the empirical characteristic function at t = 0.1 ... 1.2, two iterations from
        the quantile estimate (the most accurate); ordinary least squares at t = 0.1 ... 1.0; quantiles alone.

    Notes
    -----
    Below `MINIMUM_SAMPLES` every number is nan with status ``too_few_samples``.
    """
    x = real_array("values", values)
    if x.ndim == 0:
        raise InvalidSpec(
            required="values must have at least one axis",
            got="a single number",
            why="an index describes a set of samples",
            remedy="pass samples along the last axis",
        )
    one_of("method", method, METHODS, why="it names the estimator")
    lead, n = x.shape[:-1], x.shape[-1]
    rows = x.reshape(-1, n) if n else np.empty((int(np.prod(lead)), 0))
    found = np.full((3, len(rows)), np.nan)
    if n >= MINIMUM_SAMPLES:
        step = max(1, BLOCK // n)
        with np.errstate(all="ignore"):  # a sample without an estimate comes out as nan, which the status explains
            for first in range(0, len(rows), step):
                found[:, first : first + step] = _ESTIMATORS[method](rows[first : first + step])
    index, scale, location = (part.reshape(lead) for part in found)
    return _packaged(index, scale, location, n, method)


def _kogon_williams(x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    _, scale, location = quantile_fit(x, within=True)
    phi = empirical_characteristic((x - location[:, None]) / scale[:, None], KOGON_WILLIAMS_POINTS)
    weights, phase_weights = ordinary_weights()
    level, index = (log_log(phi, x.shape[-1]) @ weights).T
    return index, scale * np.exp((level - np.log(2)) / index), location + scale * (np.angle(phi) @ phase_weights)


def _gls(x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    index, scale, location = quantile_fit(x, within=True)
    for cap in _WEIGHT_CAPS:
        # On the grid of the current scale: the grid is best at scale 1, and the weights are made for it.
        phi = empirical_characteristic((x - location[:, None]) / scale[:, None], GLS_POINTS)
        weights, _ = efficient_weights(np.clip(np.nan_to_num(index, nan=cap), LEAST_INDEX, cap))
        level, index = np.einsum("kp,kpj->jk", log_log(phi, x.shape[-1]), weights)
        location = location + scale * np.einsum("kp,kp->k", np.angle(phi), phase_weights(index, cap))
        scale = scale * np.exp((level - np.log(2)) / index)
    return index, scale, location


_ESTIMATORS = {"gls": _gls, "kogon_williams": _kogon_williams, "mcculloch": quantile_fit}


@cache
def _error_profile(method: str) -> FloatArray:
    """Rows: index, then sqrt(n) times the standard errors of index, log scale and location / scale."""
    index = np.linspace(0.71 if method == "mcculloch" else LEAST_INDEX, _ERROR_CAP, 340)  # inside the table
    if method == "mcculloch":
        return np.stack([index, *quantile_errors(index)])
    if method == "gls":
        weights, covariance = efficient_weights(index)
        lines = phase_weights(index, _ERROR_CAP)
        phase = covariances(index, GLS_POINTS)[1]
    else:
        weights, lines = ordinary_weights()
        log_log, phase = covariances(index, KOGON_WILLIAMS_POINTS)
        covariance = weights.T @ log_log @ weights
    location = np.einsum("...p,...pq,...q->...", lines, phase, lines)
    variances = covariance[..., 1, 1], covariance[..., 0, 0] / index**2, location
    return np.stack([index, *np.sqrt(variances)])


def _packaged(index: FloatArray, scale: FloatArray, location: FloatArray, n: int, method: str) -> TailIndex:
    known = np.isfinite(index) & np.isfinite(scale) & np.isfinite(location)
    index, scale, location = (np.where(known, part, np.nan) for part in (index, scale, location))
    grid, *errors = _error_profile(method)
    root = np.sqrt(max(n, 1))
    index_error, log_scale_error, location_error = (np.interp(index, grid, error) / root for error in errors)
    spread = np.exp(TWO_SIDED * log_scale_error)
    reach = TWO_SIDED * location_error * scale
    status = np.full(index.shape, Status.ok, dtype=object)
    with np.errstate(invalid="ignore"):
        status[~known | (index > 2) | (index <= 1)] = Status.outside_theory
    if n < MINIMUM_SAMPLES:
        status[...] = Status.too_few_samples
    return TailIndex(
        index,
        scale,
        location,
        index_error,
        log_scale_error * scale,
        location_error * scale,
        _index_interval(index, grid, errors[0] / root),
        np.stack([scale / spread, scale * spread], axis=-1),
        np.stack([location - reach, location + reach], axis=-1),
        status,
        n,
        method,
    )


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
