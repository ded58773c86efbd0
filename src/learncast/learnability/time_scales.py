"""The time scale of each hidden unit, from the decay of its share of the envelope with the lag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learncast.errors import InvalidSpec
from learncast.trajectory import Status
from learncast.validation import FloatArray, real_array

#: Fewer lags leave nothing by which to judge a straight line.
MINIMUM_LAGS = 3


@dataclass(frozen=True, eq=False)
class TimeScales:
    """Exponential time scale of every unit.

    Attributes
    ----------
    time_scale : (units,)
        In steps: -1 / slope of log |rate| against the lag; inf for a unit that does not decay, nan if unknown.
    rate, rate_error : (units,)
        Decay per step, minus the slope, and its standard error.
    r_squared : (units,)
        Of the straight lines; nan for a unit that never changes.
    status : (units,) of Status
        ``not_learned`` for a unit that does not decay, ``too_few_samples`` for one with too few nonzero lags.
    """

    time_scale: FloatArray
    rate: FloatArray
    rate_error: FloatArray
    r_squared: FloatArray
    status: NDArray[np.object_]

    @property
    def spectrum(self) -> FloatArray:
        """Known time scales, longest first."""
        return np.sort(self.time_scale[~np.isnan(self.time_scale)])[::-1]

    def survival(self, times: Any = None) -> tuple[FloatArray, FloatArray]:
        """Share of units with a time scale of at least each time (units that do not decay count as longer than any).

        Parameters
        ----------
        times : array, optional
            The distinct finite time scales by default.

        Returns
        -------
        times, share
        """
        known = self.spectrum[::-1]
        at = np.unique(known[np.isfinite(known)]) if times is None else real_array("times", times)
        if not known.size:
            return at, np.full(at.shape, np.nan)
        return at, 1.0 - np.searchsorted(known, at, side="left") / known.size


def unit_time_scales(lags: Any, magnitudes: Any) -> TimeScales:
    """Fit a straight line to the logarithm of each unit's mean |rate| against the lag.

    Parameters
    ----------
    lags : (lags,)
    magnitudes : (lags, units)
        Mean |mu_q(lag)| over sequences and steps; zeros are left out.
    """
    lag, size = real_array("lags", lags, ndim=1), real_array("magnitudes", magnitudes, ndim=2)
    if len(lag) != len(size) or (size < 0).any() or len(np.unique(lag)) != len(lag):
        raise InvalidSpec(
            required="magnitudes must hold one row of non-negative numbers for each distinct lag",
            got=f"{len(lag)} lags and shape {size.shape}",
            why="the logarithm of each column is fitted against the lag",
            remedy="put lags first and units second, and pass means of absolute values",
        )
    used = size > 0
    points = used.sum(axis=0)
    known = points >= MINIMUM_LAGS
    share = used / np.maximum(points, 1)
    y = np.log(np.where(used, size, 1.0))
    x = np.where(used, lag[:, None] - (share * lag[:, None]).sum(axis=0), 0.0)
    y = np.where(used, y - (share * y).sum(axis=0), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(known, (x * y).sum(axis=0) / (x**2).sum(axis=0), np.nan)
        left = ((y - slope * x) ** 2).sum(axis=0)
        error = np.sqrt(left / (points - 2) / (x**2).sum(axis=0))
        r_squared = 1 - left / (y**2).sum(axis=0)
        time_scale = np.where(slope >= 0, np.inf, -1 / slope)
    status = np.full(slope.shape, Status.ok, dtype=object)
    status[slope >= 0] = Status.not_learned
    status[~known] = Status.too_few_samples
    return TimeScales(time_scale, 0.0 - slope, np.where(known, error, np.nan), r_squared, status)
