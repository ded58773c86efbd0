"""Laws by which an envelope falls with the lag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from scipy.special import wrightomega

from learncast.validation import FloatArray


class Law(Protocol):
    """An envelope as a function of the lag."""

    growth: ClassVar[str]

    def at(self, lags: Any) -> FloatArray:
        """Envelope at each lag."""
        ...

    def lag_at(self, level: Any) -> FloatArray:
        """Longest real-valued lag at which the envelope reaches the level: 0 if none does, inf if all do."""
        ...


@dataclass(frozen=True)
class Exponential:
    """f = amplitude exp(-rate lag)."""

    amplitude: float
    rate: float
    growth: ClassVar[str] = "the window grows with the logarithm of N: more data helps only logarithmically"

    def at(self, lags: Any) -> FloatArray:
        return self.amplitude * np.exp(-self.rate * np.asarray(lags, dtype=np.float64))

    def lag_at(self, level: Any) -> FloatArray:
        excess = _log_excess(self.amplitude, level)
        if self.rate <= 0:
            return np.where((excess >= 0) | (self.rate < 0), np.inf, 0.0)
        return np.maximum(excess / self.rate, 0.0)


@dataclass(frozen=True)
class PowerLaw:
    """f = amplitude lag^-exponent."""

    amplitude: float
    exponent: float
    growth: ClassVar[str] = "the window grows as a power of N: N^(1 / (kappa exponent))"

    def at(self, lags: Any) -> FloatArray:
        return self.amplitude * np.asarray(lags, dtype=np.float64) ** -self.exponent

    def lag_at(self, level: Any) -> FloatArray:
        excess = _log_excess(self.amplitude, level)
        if self.exponent <= 0:
            return np.where((excess >= 0) | (self.exponent < 0), np.inf, 0.0)
        with np.errstate(over="ignore"):
            return np.exp(excess / self.exponent)


@dataclass(frozen=True)
class TemperedPowerLaw:
    """f = amplitude lag^-exponent exp(-rate lag)."""

    amplitude: float
    exponent: float
    rate: float
    growth: ClassVar[str] = (
        "the window grows as a power of N up to lags of about 1 / rate, then only with the logarithm of N"
    )

    def at(self, lags: Any) -> FloatArray:
        lag = np.asarray(lags, dtype=np.float64)
        return self.amplitude * lag**-self.exponent * np.exp(-self.rate * lag)

    def lag_at(self, level: Any) -> FloatArray:
        beta, lam = self.exponent, self.rate
        if lam == 0:
            return PowerLaw(self.amplitude, beta).lag_at(level)
        if beta == 0:
            return Exponential(self.amplitude, lam).lag_at(level)
        excess = _log_excess(self.amplitude, level)
        if lam < 0:
            return np.full(excess.shape, np.inf)
        if beta > 0:
            # beta log l + lam l = excess is solved by Lambert's W of exp(z); its logarithmic form cannot overflow.
            return np.asarray(beta / lam * wrightomega(excess / beta + np.log(lam / beta)))
        return -beta / lam * _upper_root(-excess / beta - np.log(lam / -beta))


@dataclass(frozen=True)
class Logarithmic:
    """f = amplitude / log(1 + lag)."""

    amplitude: float
    growth: ClassVar[str] = "the window grows exponentially with N^(1 / kappa)"

    def at(self, lags: Any) -> FloatArray:
        return self.amplitude / np.log1p(np.asarray(lags, dtype=np.float64))

    def lag_at(self, level: Any) -> FloatArray:
        with np.errstate(over="ignore", divide="ignore"):
            return np.expm1(self.amplitude / np.asarray(level, dtype=np.float64))


def _log_excess(amplitude: float, level: Any) -> FloatArray:
    """Logarithm of amplitude / level."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(amplitude) - np.log(np.asarray(level, dtype=np.float64)))


def _upper_root(y: FloatArray) -> FloatArray:
    """Larger root w of w - log w = y, and 0 where there is none (y < 1)."""
    some = y >= 1
    level = np.where(some, y, 1.0)
    w = 2 * level  # right of the root, from where Newton's steps never overshoot
    for _ in range(60):
        w = np.maximum(w - (w - np.log(w) - level) / np.where(w > 1, 1 - 1 / w, np.inf), 1.0)
    return np.where(some, w, 0.0)
