"""The transition of a drawn series: how much its past must count for training to be better off remembering it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from learncast.recurrence.stability import Optimum, RecurrenceFit
from learncast.recurrence.tradeoff import JUMP
from learncast.validation import FloatArray
from learncast.web.rooms.recurrence_setting import SMALLEST, fit_of

#: Weights of the past at which the best recurrence is looked for; 1 is the series as it is drawn.
WEIGHTS = np.array([0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0, 1.25, 1.5, 1.75, 2.0])
#: Halvings of an interval in search of a weight at which two optima compete: ranges below a 64th of it are missed.
SEARCHES = 6
#: Halvings of the interval in which the best recurrence leaves 0, which is then known to a 4096th of it.
HALVINGS = 12
#: Steps of the secant that finds where two optima tie, and the size of the last.
SECANTS, CLOSE = 8, 1e-9


@dataclass(frozen=True, eq=False)
class Turn:
    """Where the best recurrence changes its kind as the past counts more.

    Attributes
    ----------
    fits : tuple of RecurrenceFit
        At every one of `WEIGHTS`.
    weight : float
        Of the past, at the transition; `nan` if there is none.
    kind : str
        "first order", "continuous" or "none", as `learncast.recurrence.tradeoff.transition` tells them.
    below, above : float
        Best recurrence on either side.
    """

    fits: tuple[RecurrenceFit, ...]
    weight: float
    kind: str
    below: float
    above: float

    @property
    def best(self) -> FloatArray:
        """Best recurrence at every weight."""
        return np.array([fit.best.recurrence for fit in self.fits])


def weighed(series: tuple[float, ...], weight: float) -> tuple[float, ...]:
    """The series with everything before the last input counted so many times."""
    past = (weight * s for s in series[1:])
    return (series[0], *(s if abs(s) >= SMALLEST else 0.0 for s in past))


@lru_cache(maxsize=64)
def turn_of(series: tuple[float, ...]) -> Turn:
    """Follow the best recurrence over the weights of the past, and locate its largest jump.

    The whole search of `learncast.recurrence.tradeoff.transition`, to the last digit and with the bistable
    range, takes seconds; a picture that follows the hand has room for one interval of it.
    """
    fits = tuple(fit_of(weighed(series, w)) for w in WEIGHTS.tolist())
    best = [fit.best.recurrence for fit in fits]
    sizes = [_size(after - before) for before, after in pairwise(best)]
    n = int(np.argmax(sizes))
    found = _located(series, n, fits) if sizes[n] > JUMP else None
    if found is not None:
        return Turn(fits, *found)
    for n, (before, after) in enumerate(pairwise(best)):
        if (before == 0) != (after == 0):
            return Turn(fits, _leaves_zero(series, n, before == 0), "continuous", 0.0, 0.0)
    return Turn(fits, math.nan, "none", best[0], best[-1])


def _located(
    series: tuple[float, ...], n: int, fits: tuple[RecurrenceFit, ...]
) -> tuple[float, str, float, float] | None:
    """Weight of a jump between two neighbours and the recurrences it joins; None if the change is smooth."""
    low, high, left, right = float(WEIGHTS[n]), float(WEIGHTS[n + 1]), fits[n], fits[n + 1]
    for _ in range(SEARCHES):
        below, above = left.best.recurrence, right.best.recurrence
        if _size(above - below) <= JUMP:
            return None
        # Where the best recurrence jumps, both sides are optima on either side of the jump.
        gaps = _gap(left, below, above), _gap(right, below, above)
        if not (math.isnan(gaps[0]) or math.isnan(gaps[1])):
            return _tied(series, (low, high), gaps, (below, above))
        middle = (low + high) / 2
        fit = fit_of(weighed(series, middle))
        if _size(fit.best.recurrence - below) > _size(above - fit.best.recurrence):
            high, right = middle, fit
        else:
            low, left = middle, fit
    return None


def _tied(
    series: tuple[float, ...], span: tuple[float, float], gaps: tuple[float, float], sides: tuple[float, float]
) -> tuple[float, str, float, float]:
    """Follow two optima to the weight at which they do equally well, by the secant of the gap between their losses."""
    (last, weight), (before, gap), (below, above) = span, gaps, sides
    for _ in range(SECANTS):
        if gap == before or abs(weight - last) <= CLOSE:
            break
        # The gap is nearly straight, so that its secant stays in the span but for rounding.
        after = min(max(weight - gap * (weight - last) / (gap - before), span[0]), span[1])
        last, before, weight = weight, gap, after
        fit = fit_of(weighed(series, weight))
        one, two = _nearest(fit, below), _nearest(fit, above)
        below, above, gap = one.recurrence, two.recurrence, one.loss - two.loss
    return weight, "first order", below, above


def _gap(fit: RecurrenceFit, below: float, above: float) -> float:
    """Loss of the optimum near one recurrence less that of the one near another; `nan` if they are one."""
    one, two = _nearest(fit, below), _nearest(fit, above)
    return math.nan if one is two else one.loss - two.loss


def _nearest(fit: RecurrenceFit, recurrence: float) -> Optimum:
    return min(fit.optima, key=lambda o: _size(o.recurrence - recurrence))


def _leaves_zero(series: tuple[float, ...], n: int, zero_below: bool) -> float:
    low, high = float(WEIGHTS[n]), float(WEIGHTS[n + 1])
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        still = (fit_of(weighed(series, middle)).best.recurrence == 0) == zero_below
        low, high = (middle, high) if still else (low, middle)
    return (low + high) / 2


def _size(change: float) -> float:
    """Size of a change of recurrence, a finite number also to or from a runaway."""
    return 0.0 if math.isnan(change) else min(abs(change), 1e6)
