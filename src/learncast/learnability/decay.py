"""The decay of an envelope with the lag: which law describes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from learncast.errors import InvalidSpec
from learncast.learnability.decay_law import Exponential, Law, Logarithmic, PowerLaw, TemperedPowerLaw
from learncast.trajectory import Status
from learncast.validation import FloatArray, one_of, real_array

CRITERIA = ("bic", "aic")


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


def _least(values: FloatArray) -> str:
    return f"{values.min():g}" if values.size else "none"
