"""The decay of an envelope with the lag: which law describes it, and the time scale of each hidden unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import wrightomega

from learncast._core.validation import FloatArray, real_array
from learncast.results import Status


@dataclass(frozen=True)
class TemperedPowerLaw:
    """f = amplitude lag^-exponent exp(-rate lag)."""

    amplitude: float
    exponent: float
    rate: float
    growth: ClassVar[str] = (
        "the window grows as a power of N up to lags of about 1 / rate, then only with the logarithm of N"
    )

    def at(self, lags: ArrayLike) -> FloatArray:
        """Envelope at each lag."""
        lag = np.asarray(lags, dtype=np.float64)
        return self.amplitude * lag**-self.exponent * np.exp(-self.rate * lag)

    def lag_at(self, level: ArrayLike) -> FloatArray:
        """Longest real-valued lag at which the envelope reaches the level: 0 if none does, inf if all do."""
        beta, lam = self.exponent, self.rate
        with np.errstate(divide="ignore", over="ignore"):
            excess = np.asarray(np.log(self.amplitude) - np.log(np.asarray(level, dtype=np.float64)))
            if lam < 0 or (lam == 0 and beta < 0):
                return np.full(excess.shape, np.inf)
            if lam == 0:
                return np.exp(excess / beta) if beta else np.where(excess >= 0, np.inf, 0.0)
        if beta == 0:
            return np.maximum(excess / lam, 0.0)
        if beta > 0:
            # beta log l + lam l = excess is solved by Lambert's W of exp(z); its logarithmic form cannot overflow.
            return np.asarray(beta / lam * wrightomega(excess / beta + np.log(lam / beta)))
        return -beta / lam * _upper_root(-excess / beta - np.log(lam / -beta))


class Exponential(TemperedPowerLaw):
    """f = amplitude exp(-rate lag)."""

    growth = "the window grows with the logarithm of N: more data helps only logarithmically"

    def __init__(self, amplitude: float, rate: float) -> None:
        super().__init__(amplitude, 0.0, rate)


class PowerLaw(TemperedPowerLaw):
    """f = amplitude lag^-exponent."""

    growth = "the window grows as a power of N: N^(1 / (kappa exponent))"

    def __init__(self, amplitude: float, exponent: float) -> None:
        super().__init__(amplitude, exponent, 0.0)


@dataclass(frozen=True)
class Logarithmic:
    """f = amplitude / log(1 + lag)."""

    amplitude: float
    growth: ClassVar[str] = "the window grows exponentially with N^(1 / kappa)"

    def at(self, lags: ArrayLike) -> FloatArray:
        return self.amplitude / np.log1p(np.asarray(lags, dtype=np.float64))

    def lag_at(self, level: ArrayLike) -> FloatArray:
        with np.errstate(over="ignore", divide="ignore"):
            return np.expm1(self.amplitude / np.asarray(level, dtype=np.float64))


Law = TemperedPowerLaw | Logarithmic


def _upper_root(y: FloatArray) -> FloatArray:
    """Larger root w of w - log w = y; 0 for y < 1, which has no root."""
    # -W_-1(-exp(-y)), without overflow; which side of the branch cut has it depends on y.
    above, below = (-wrightomega(-y + side * 1j * np.pi).real for side in (1, -1))
    return np.where(y >= 1, np.maximum(above, below), 0.0)


@dataclass(frozen=True)
class DecayFit:
    """One law fitted to an envelope by least squares on its logarithm.

    Attributes
    ----------
    kind : str
        A key of `KINDS`.
    law : Law
        The fitted envelope.
    r_squared, bic : float
        Of log f; the criterion is comparable between laws fitted to the same points.
    """

    kind: str
    law: Law
    r_squared: float
    bic: float


@dataclass(frozen=True)
class Decay:
    """All fitted laws and the one with the least BIC.

    Attributes
    ----------
    fits : dict
        One `DecayFit` per kind that has enough points.
    best : DecayFit or None
        The fit with the least BIC; None if there are too few points for any.
    status : Status
        ``too_few_samples`` if nothing could be fitted, ``outside_theory`` if the best law does not fall.
    """

    fits: dict[str, DecayFit]
    best: DecayFit | None
    status: Status

    @property
    def implication(self) -> str:
        """What the best law means for the learnable window."""
        if self.best is None:
            return "the envelope has too few positive values to fit a decay"
        if self.status is Status.outside_theory:
            return "the envelope does not fall over these lags: they set no limit to the window"
        return self.best.law.growth


#: Laws by name, with the parameters that are fitted besides the amplitude.
KINDS: dict[str, tuple[Callable[..., Law], tuple[str, ...]]] = {
    "exponential": (Exponential, ("rate",)),
    "power": (PowerLaw, ("exponent",)),
    "tempered": (TemperedPowerLaw, ("exponent", "rate")),
    "logarithmic": (Logarithmic, ()),
}


def fit_decay(lags: ArrayLike, envelope: ArrayLike) -> Decay:
    """Fit every law of decay to an envelope; the best has the least BIC.

    Parameters
    ----------
    lags, envelope : (lags,)
        Positive lags; zeros of the envelope are ignored.
    """
    lag, f = real_array("lags", lags, ndim=1), real_array("envelope", envelope, ndim=1)
    lag, f = lag[f > 0], f[f > 0]
    fits = {kind: _fitted(kind, lag, np.log(f)) for kind, (_, names) in KINDS.items() if len(f) > len(names) + 1}
    if not fits:
        return Decay(fits, None, Status.too_few_samples)
    best = min(fits.values(), key=lambda fit: fit.bic)
    first, last = best.law.at(lag[[0, -1]])
    return Decay(fits, best, Status.ok if last < first else Status.outside_theory)


def power_of_lag(lags: ArrayLike, envelope: ArrayLike) -> float:
    """Minus the slope of log f on the logarithm of the lag, even if another law describes f better; nan if unknown."""
    power = fit_decay(lags, envelope).fits.get("power")
    return power.law.exponent if power and isinstance(power.law, PowerLaw) else np.nan


def _fitted(kind: str, lag: FloatArray, log_f: FloatArray) -> DecayFit:
    law, names = KINDS[kind]
    # log f = log amplitude - sum of parameters x columns + log of the law with all parameters 0.
    columns = {"rate": lag, "exponent": np.log(lag)}
    X = np.stack([np.ones_like(lag), *(-columns[name] for name in names)], axis=1)
    y = log_f - np.log(law(1.0, *np.zeros(len(names))).at(lag))
    solution = np.linalg.lstsq(X, y, rcond=None)[0]
    residual = y - X @ solution
    n, k = X.shape
    # A perfect fit leaves round-off (up to a hundred roundings), whose logarithm would choose a law at random.
    floor = n * (100 * np.finfo(float).eps * max(1.0, float(np.abs(y).max()))) ** 2
    rss = max(float(residual @ residual), floor)
    centred = log_f - log_f.mean()
    spread = float(centred @ centred)
    return DecayFit(
        kind,
        law(float(np.exp(solution[0])), *(float(value) for value in solution[1:])),
        1 - rss / spread if spread else np.nan,
        n * np.log(rss / n) + np.log(n) * (k + 1),
    )


#: Fewest lags to which a line with a measurable residual can be fitted.
MINIMUM_LAGS = 3


def unit_time_scales(lags: ArrayLike, magnitudes: ArrayLike) -> tuple[FloatArray, NDArray[np.object_]]:
    """Fit a straight line to the logarithm of each unit's mean |rate| against the lag.

    Parameters
    ----------
    lags : (lags,)
    magnitudes : (lags, units)
        Mean |mu_q(lag)| over sequences and steps; zeros are ignored.

    Returns
    -------
    time_scale : (units,)
        In steps: -1 / slope of log |rate| against the lag; inf for a unit that does not decay, nan if unknown.
    status : (units,) of Status
        ``not_learned`` for a unit that does not decay, ``too_few_samples`` for one with too few nonzero lags.
    """
    lag, size = real_array("lags", lags, ndim=1), real_array("magnitudes", magnitudes, ndim=2)
    used = size > 0
    points = used.sum(axis=0)
    known = points >= MINIMUM_LAGS
    share = used / np.maximum(points, 1)
    y = np.log(np.where(used, size, 1.0))
    x = np.where(used, lag[:, None] - (share * lag[:, None]).sum(axis=0), 0.0)
    y = np.where(used, y - (share * y).sum(axis=0), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(known, (x * y).sum(axis=0) / (x**2).sum(axis=0), np.nan)
        time_scale = np.where(slope >= 0, np.inf, -1 / slope)
    status = np.full(slope.shape, Status.ok, dtype=object)
    status[slope >= 0] = Status.not_learned
    status[~known] = Status.too_few_samples
    return time_scale, status
