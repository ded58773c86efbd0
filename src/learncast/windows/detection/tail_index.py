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
from scipy.interpolate import make_interp_spline
from scipy.special import gamma

from learncast._core.validation import FloatArray, one_of, real_array
from learncast.results import Status

GLS_POINTS, KOGON_WILLIAMS_POINTS = 12, 10
#: Smallest index for which weights are made.
LEAST_INDEX = 0.3
#: Complex numbers held at a time: half a megabyte, which stays in a core's cache.
BLOCK = 2**15
_SPACING = 0.1
#: Share of each variance added to the weights' covariance, which is nearly singular at index 2.
_RIDGE = 1e-8
# Index, the 0.75 and 0.95 quantiles at scale 1 and the densities there, by inverting exp(-|t|^index) numerically.
# Beyond 2 the inverse is no density, but its quantiles continue smoothly: an estimate need not be clipped at 2.
_QUANTILES = (
    (0.70, 1.09006422004, 16.2351624618, 0.106388205265, 0.00205521451204),
    (0.75, 1.06520050781, 13.1632390697, 0.116146935554, 0.00272382693408),
    (0.80, 1.04553473533, 10.9562456606, 0.125600196684, 0.00350345944596),
    (0.85, 1.02994624516, 9.31794028866, 0.134687576868, 0.00439673082908),
    (0.90, 1.01758340756, 8.06790236476, 0.1433474695, 0.00540639996341),
    (0.95, 1.00777952635, 7.09160937002, 0.151520463208, 0.0065358553692),
    (1.00, 1.0, 6.31375151468, 0.159154943092, 0.00778959736376),
    (1.05, 0.993809579855, 5.68327470766, 0.166213555395, 0.00917374022126),
    (1.10, 0.988852331566, 5.16464608437, 0.172678370229, 0.01069656377),
    (1.15, 0.984838895545, 4.73256771884, 0.178552784094, 0.0123691404896),
    (1.20, 0.981537200396, 4.36867543084, 0.183859582192, 0.0142060474427),
    (1.25, 0.978764368319, 4.05941924525, 0.188636192377, 0.0162261222846),
    (1.30, 0.976378940326, 3.79466740803, 0.192928926452, 0.0184530966515),
    (1.35, 0.974273414787, 3.56676242326, 0.196787732674, 0.0209156684793),
    (1.40, 0.97236740321, 3.36986050644, 0.200262237873, 0.0236461128273),
    (1.45, 0.970601671526, 3.19944461273, 0.203399202174, 0.0266760918595),
    (1.50, 0.968933181714, 3.05194097324, 0.206241152721, 0.0300287425522),
    (1.55, 0.967331109167, 2.92440683771, 0.208825857493, 0.0337084195752),
    (1.60, 0.965773727223, 2.81429280615, 0.211186330114, 0.0376926960925),
    (1.65, 0.964246016719, 2.71929672958, 0.213351132614, 0.041931666104),
    (1.70, 0.962737857524, 2.63730698101, 0.215344819482, 0.0463554900324),
    (1.75, 0.961242674466, 2.56640414963, 0.217188426387, 0.0508862683069),
    (1.80, 0.959756431402, 2.50488148079, 0.218899948784, 0.0554491000796),
    (1.85, 0.958276888607, 2.45125748651, 0.220494782552, 0.0599793403761),
    (1.90, 0.956803057547, 2.40427221861, 0.221986115081, 0.0644257310211),
    (1.95, 0.955334802695, 2.36286993313, 0.223385264475, 0.0687505185904),
    (2.00, 0.953872552409, 2.32617430735, 0.224701969447, 0.0729279106914),
    (2.05, 0.952417090418, 2.29346156388, 0.225944634719, 0.0769418952914),
    (2.10, 0.950969406738, 2.26413487417, 0.227120537516, 0.080784030028),
    (2.15, 0.949530592259, 2.23770168351, 0.228236000729, 0.0844514900861),
    (2.20, 0.948101765365, 2.21375446977, 0.229296537861, 0.0879454700435),
    (2.25, 0.946684021934, 2.19195483548, 0.230306974311, 0.091269935877),
    (2.30, 0.945278402349, 2.17202055715, 0.231271548895, 0.0944306813906),
    (2.35, 0.943885870812, 2.15371513318, 0.23219399893, 0.0974346318417),
    (2.40, 0.942507303466, 2.13683938311, 0.233077631664, 0.100289340236),
    (2.45, 0.94114348279, 2.12122470327, 0.233925384358, 0.103002629837),
    (2.50, 0.939795096357, 2.10672764751, 0.234739874948, 0.105582345588),
)
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
    one_of("method", method, METHODS)
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


def stable_quantiles(index: Any) -> tuple[FloatArray, FloatArray]:
    """The 0.75 and 0.95 quantiles at scale 1, for an index from 0.7 to 2.5; nan outside."""
    rows = _quantiles(np.asarray(index, dtype=np.float64))
    return rows[..., 0], rows[..., 1]


def _quantiles(index: FloatArray) -> FloatArray:
    """Quantiles and densities by splines through the table; nan outside it."""
    return np.asarray(_splines()[0](index, extrapolate=False))


def _index_at(ratio: FloatArray) -> FloatArray:
    """Index at which log of (q95 - q05) / (q75 - q25) is `ratio`; nan outside the table."""
    return np.asarray(_splines()[1](ratio, extrapolate=False))


@cache
def _splines() -> tuple[Any, Any]:
    table = np.array(_QUANTILES)
    ratio = np.log(table[:, 2] / table[:, 1])
    forward = make_interp_spline(table[:, 0], table[:, 1:], k=5)
    return forward, make_interp_spline(ratio[::-1], table[::-1, 0], k=5)  # the ratio falls as the index grows


def quantile_fit(x: FloatArray, *, within: bool = False) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Index from the ratio of two quantile ranges, scale from one; `within` moves the index into the table."""
    q05, q25, q50, q75, q95 = np.quantile(x, (0.05, 0.25, 0.5, 0.75, 0.95), axis=-1)
    ratio = np.log((q95 - q05) / (q75 - q25))
    ends = [np.log(_QUANTILES[row][2] / _QUANTILES[row][1]) for row in (-1, 0)]
    index = _index_at(np.clip(ratio, *ends) if within else ratio)
    return index, (q75 - q25) / (2 * _quantiles(index)[..., 0]), q50


def quantile_errors(index: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Errors of the quantile estimates to first order, from the covariance of five sample quantiles."""
    q75, q95, f75, f95 = np.moveaxis(_quantiles(index), -1, 0)
    p = np.array([0.05, 0.25, 0.75, 0.95])
    f = np.stack([f95, f75, f75, f95], axis=-1)
    joint = (np.minimum(p[:, None], p) - np.outer(p, p)) / (f[:, :, None] * f[:, None, :])
    step = 1e-4
    ratio = np.log(q95 / q75)
    slope = (_index_at(ratio + step) - _index_at(ratio - step)) / (2 * step)
    outer, inner = np.array([-1.0, 0, 0, 1]), np.array([0.0, -1, 1, 0])
    to_index = slope[:, None] * (outer / (2 * q95)[:, None] - inner / (2 * q75)[:, None])
    bend = (_quantiles(index + step) - _quantiles(index - step))[:, 0] / (2 * step * q75)
    to_scale = inner / (2 * q75)[:, None] - bend[:, None] * to_index
    index_error, scale_error = (np.sqrt(np.einsum("ki,kij,kj->k", g, joint, g)) for g in (to_index, to_scale))
    return index_error, scale_error, np.pi / (2 * gamma(1 + 1 / index))  # the median: 1 / (2 density at 0)


_ESTIMATORS = {"gls": _gls, "kogon_williams": _kogon_williams, "mcculloch": quantile_fit}
