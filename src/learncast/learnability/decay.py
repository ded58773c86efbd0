"""The decay of an envelope with the lag: fitted laws, what they say about the data a lag needs, and bounds.

An envelope f(lag) falling by one of the laws below makes the required number of sequences grow as f^-kappa, so that the
learnable window after N sequences is where f falls below a level that shrinks as N^(-1/kappa).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from scipy.special import wrightomega

from learncast.errors import InvalidSpec
from learncast.learnability.detection import THRESHOLD, sample_exponent
from learncast.trajectory import Status
from learncast.validation import FloatArray, one_of, positive, real_array

CRITERIA = ("bic", "aic")


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


@dataclass(frozen=True)
class DecayFit:
    """One law fitted to an envelope by least squares on its logarithm.

    Attributes
    ----------
    kind : str
        A key of `KINDS`.
    law : Law
        The fitted envelope.
    errors : dict
        Standard error of each parameter of the law (of the amplitude: its relative error times the amplitude).
    r_squared, aic, bic : float
        Of log f; the criteria are comparable between laws fitted to the same points.
    """

    kind: str
    law: Law
    errors: dict[str, float]
    r_squared: float
    aic: float
    bic: float


@dataclass(frozen=True)
class Decay:
    """All fitted laws and the one the criterion prefers.

    Attributes
    ----------
    fits : dict
        One `DecayFit` per kind that has enough points.
    best : DecayFit or None
        The preferred one; None when there are too few points for any.
    points : int
        Lags used: those at which the envelope is positive.
    status : Status
        ``too_few_samples`` when nothing could be fitted, ``outside_theory`` when the best law does not fall.
    """

    fits: dict[str, DecayFit]
    best: DecayFit | None
    points: int
    status: Status

    @property
    def implication(self) -> str:
        """What the best law means for the learnable window."""
        if self.best is None:
            return "too few positive values of the envelope to tell how it decays"
        if self.status is Status.outside_theory:
            return "the envelope does not fall over these lags: they set no limit to the window"
        return self.best.law.growth


class _Kind(NamedTuple):
    columns: Callable[[FloatArray], list[FloatArray]]  # of log f = log amplitude - sum of parameters x columns
    offset: Callable[[FloatArray], FloatArray]  # known part of -log f
    law: Callable[..., Law]
    names: tuple[str, ...]


KINDS: dict[str, _Kind] = {
    "exponential": _Kind(lambda lag: [lag], np.zeros_like, Exponential, ("amplitude", "rate")),
    "power": _Kind(lambda lag: [np.log(lag)], np.zeros_like, PowerLaw, ("amplitude", "exponent")),
    "tempered": _Kind(
        lambda lag: [np.log(lag), lag], np.zeros_like, TemperedPowerLaw, ("amplitude", "exponent", "rate")
    ),
    "logarithmic": _Kind(lambda lag: [], lambda lag: np.log(np.log1p(lag)), Logarithmic, ("amplitude",)),
}


def fit_decay(
    lags: Any,
    envelope: Any,
    *,
    weights: Any = None,
    kinds: tuple[str, ...] = ("exponential", "power", "tempered", "logarithmic"),
    criterion: str = "bic",
) -> Decay:
    """Fit laws of decay to an envelope.

    Parameters
    ----------
    lags, envelope : (lags,)
        Positive lags; the envelope may have zeros, which are left out.
    weights : (lags,), optional
        Weight of each squared residual of log f, such as (f / standard error)^2; equal by default.
    kinds : tuple of str
        Laws to fit.
    criterion : {"bic", "aic"}
        What names the best one.
    """
    lag, f = real_array("lags", lags, ndim=1), real_array("envelope", envelope, ndim=1)
    w = np.ones_like(f) if weights is None else real_array("weights", weights, ndim=1)
    one_of("criterion", criterion, CRITERIA, why="it names the best law")
    for kind in kinds:
        one_of("kind", kind, tuple(KINDS), why="it names a law of decay")
    if not lag.shape == f.shape == w.shape or (lag <= 0).any() or (f < 0).any() or (w < 0).any():
        raise InvalidSpec(
            required="lags must be positive, envelope and weights not negative, and all of one length",
            got=f"{len(lag)}, {len(f)} and {len(w)} numbers, the least {_least(lag)}, {_least(f)} and {_least(w)}",
            why="the fits are to the logarithm of a norm",
            remedy="pass one envelope value (and weight) per positive lag",
        )
    used = (f > 0) & (w > 0)
    fits = {
        kind: _fitted(kind, lag[used], np.log(f[used]), w[used])
        for kind in kinds
        if used.sum() > len(KINDS[kind].names)
    }
    best = min(fits.values(), key=lambda fit: getattr(fit, criterion), default=None)
    if best is None:
        status = Status.too_few_samples
    else:
        ends = best.law.at(lag[used][[0, -1]])
        status = Status.ok if ends[1] < ends[0] else Status.outside_theory
    return Decay(fits, best, int(used.sum()), status)


def required_by_envelope(envelope: Any, *, index: Any, constant: Any) -> FloatArray:
    """Sequences that an envelope value needs when noise and alignment do not depend on the lag.

    (constant / envelope)^kappa, where constant = threshold x scale / alignment.

    Implements: livi2025 Eq. (26)
    """
    with np.errstate(divide="ignore", over="ignore"):
        f = np.asarray(envelope, dtype=np.float64)
        return np.asarray((np.asarray(constant) / f) ** sample_exponent(index))  # Eq. (26)


def predicted_window(law: Law, sequences: Any, *, index: Any, constant: Any = 1.0) -> FloatArray:
    """Real-valued window after N sequences: where the law falls to constant N^(-1/kappa).

    For f ~ c / log(1 + lag) it grows as exp(N^(1/kappa)), for lag^-beta as N^(1/(kappa beta)), for exp(-rate lag) as
    log N / (kappa rate).
    """
    N = np.asarray(sequences, dtype=np.float64)
    return law.lag_at(np.asarray(constant) * N ** (-1 / sample_exponent(index)))


class Bounds(NamedTuple):
    """Least and greatest value."""

    low: FloatArray
    high: FloatArray


def requirement_bounds(
    envelope: Any, *, index: Any, scales: tuple[float, float], alignments: tuple[float, float], threshold: float
) -> Bounds:
    """Sequences needed when scale and alignment stay within ranges over all lags (Lemma 5.2).

    Parameters
    ----------
    envelope : array
    index : float
        Tail index.
    scales, alignments : (least, greatest)
        Positive. A noise that shrinks with the envelope has no positive least scale, and then the envelope says
        nothing about the requirement.
    threshold : float
        Signal-to-noise ratio asked for.
    """
    least, most = _constants(scales, alignments, threshold)
    return Bounds(*(required_by_envelope(envelope, index=index, constant=constant) for constant in (least, most)))


def window_bounds(
    law: Law,
    sequences: Any,
    *,
    index: Any,
    scales: tuple[float, float],
    alignments: tuple[float, float],
    threshold: float = THRESHOLD,
) -> Bounds:
    """Window after N sequences under the ranges of `requirement_bounds` (Lemma 5.2)."""
    least, most = _constants(scales, alignments, threshold)
    return Bounds(*(predicted_window(law, sequences, index=index, constant=constant) for constant in (most, least)))


def _constants(scales: tuple[float, float], alignments: tuple[float, float], threshold: float) -> tuple[float, float]:
    why = "bounds hold when it stays within positive limits"
    low_scale, high_scale = (positive("scales", value, why=why) for value in scales)
    low_align, high_align = (positive("alignments", value, why=why) for value in alignments)
    least = positive("threshold", threshold, why="a ratio of 0 asks for nothing")
    if low_scale > high_scale or low_align > high_align:
        raise InvalidSpec(
            required="scales and alignments must be (least, greatest)",
            got=f"{scales} and {alignments}",
            why="they are the ends of ranges",
            remedy="swap the two numbers",
        )
    return least * low_scale / high_align, least * high_scale / low_align


def _fitted(kind: str, lag: FloatArray, log_f: FloatArray, weights: FloatArray) -> DecayFit:
    family = KINDS[kind]
    X = np.stack([np.ones_like(lag), *(-column for column in family.columns(lag))], axis=1)
    y = log_f + family.offset(lag)
    root = np.sqrt(weights / weights.mean())[:, None]
    solution = np.linalg.lstsq(root * X, root[:, 0] * y, rcond=None)[0]
    residual = root[:, 0] * (y - X @ solution)
    n, k = X.shape
    # A perfect fit leaves round-off (up to a hundred roundings), whose logarithm would choose a law at random.
    floor = n * (100 * np.finfo(float).eps * max(1.0, float(np.abs(y).max()))) ** 2
    rss = max(float(residual @ residual), floor)
    centred = root[:, 0] * (log_f - np.average(log_f, weights=weights))
    errors = np.sqrt(np.diag(np.linalg.pinv((root * X).T @ (root * X))) * rss / (n - k))
    amplitude = float(np.exp(solution[0]))
    spread = float(centred @ centred)
    return DecayFit(
        kind,
        family.law(amplitude, *(float(value) for value in solution[1:])),
        dict(zip(family.names, [amplitude * errors[0], *errors[1:]], strict=True)),
        1 - rss / spread if spread else np.nan,
        n * np.log(rss / n) + 2 * (k + 1),
        n * np.log(rss / n) + np.log(n) * (k + 1),
    )


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


def _least(values: FloatArray) -> str:
    return f"{values.min():g}" if values.size else "none"
