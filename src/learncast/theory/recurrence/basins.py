"""The end of training of one mode, and the basins of attraction of its initial recurrence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.validation import FloatArray, evenly, positive, real_array
from learncast.results import Status
from learncast.theory.dynamics.recurrent_mode import (
    ModeStart,
    checked_strengths,
    long_run,
    mode_loss,
    weights_at,
)
from learncast.theory.recurrence.optimum import best_recurrence
from learncast.theory.recurrence.tradeoff import bisected


@dataclass(frozen=True)
class TrainingEnd:
    """State of a mode at the end of training.

    Attributes
    ----------
    recurrence, strength, loss : float
        For a runaway the recurrence is infinite and the others are nan.
    status : Status
        Not learned if the flow rests at a saddle instead of a local optimum; diverged for a runaway; outside the theory
        if the integration stopped.

    Examples
    --------
    >>> from learncast.theory import end_of_training
    >>> end = end_of_training([1.0, 0.5, 0.25], recurrence=0.2, input_weight=0.1)
    >>> round(end.recurrence, 6), round(end.strength, 6), end.status.name
    (0.5, 1.0, 'ok')
    """

    recurrence: float
    strength: float
    loss: float
    status: Status


@dataclass(frozen=True, eq=False)
class Basins:
    """Basins of attraction over the initial recurrence.

    Attributes
    ----------
    boundaries : (boundaries,)
        Initial recurrences that separate the basins, in ascending order.
    ends : tuple of TrainingEnd
        End of training from each basin, one more than boundaries.

    Examples
    --------
    >>> from learncast.theory import basins
    >>> result = basins([1.0, 0.0, 0.0, 1.2, 0.0, 0.0], input_weight=0.3, points=3, tolerance=1e-3)
    >>> len(result.boundaries), [round(end.recurrence, 2) for end in result.ends]
    (1, [0.0, 0.7])
    """

    boundaries: FloatArray
    ends: tuple[TrainingEnd, ...]


def end_of_training(
    cross_strengths: ArrayLike,
    input_strengths: ArrayLike | None = None,
    *,
    recurrence: float,
    input_weight: float,
    output_weight: float | None = None,
) -> TrainingEnd:
    """Follow the flow of one mode to its end.

    Parameters
    ----------
    cross_strengths : (lags,)
        sig_k, lag 0 first.
    input_strengths : (lags, lags), optional
        White inputs of variance 1 by default.
    recurrence : float
        b_0.
    input_weight, output_weight : float
        a_0 and c_0; c_0 = a_0 by default.

    Returns
    -------
    TrainingEnd

    Examples
    --------
    >>> from learncast.theory import end_of_training
    >>> strengths = [1.0, 0.0, 0.0, 1.2, 0.0, 0.0]
    >>> ends = [end_of_training(strengths, recurrence=b, input_weight=0.3) for b in (0.1, 0.9)]
    >>> [round(end.recurrence, 3) for end in ends]
    [0.0, 0.699]
    """
    sig, S = checked_strengths(cross_strengths, input_strengths, ndim=1)
    output = input_weight if output_weight is None else output_weight
    now = ModeStart(*real_array("input_weight", [input_weight, recurrence, output]).tolist())
    fit, loss = best_recurrence(sig, S), math.nan
    runs_away = not math.isfinite(mode_loss(*now, sig, S))
    for _, path, _ in () if runs_away else long_run(now, sig, S):
        if path.status != "ok":
            if runs_away:
                break
            return TrainingEnd(math.nan, math.nan, math.nan, Status.outside_theory)
        before, now, loss = now.recurrence, weights_at(path, -1), float(path.loss[-1])
        optimum = fit.near(now.recurrence, now.strength)
        if optimum is not None:
            return TrainingEnd(optimum.recurrence, optimum.strength, optimum.loss, Status.ok)
        runs_away = abs(now.recurrence) > max(1.0, 1.5 * abs(before))  # like the fourth root of time, or faster
    if runs_away:
        return TrainingEnd(math.copysign(math.inf, now.recurrence), math.nan, math.nan, Status.diverged)
    return TrainingEnd(now.recurrence, now.strength, loss, Status.not_learned)


def basins(
    cross_strengths: ArrayLike,
    input_strengths: ArrayLike | None = None,
    *,
    input_weight: float,
    output_weight: float | None = None,
    low: float = 0.0,
    high: float = 1.0,
    points: int = 9,
    tolerance: float = 1e-8,
) -> Basins:
    """Divide the initial recurrences into basins of attraction.

    Parameters
    ----------
    cross_strengths, input_strengths, input_weight, output_weight
        As in `end_of_training`.
    low, high : float
        Range of b_0.
    points : int
        Grid points; a basin between two neighbouring points is missed.
    tolerance : float
        Precision of the boundaries, which are located by bisection.

    Returns
    -------
    Basins

    Examples
    --------
    >>> from learncast.theory import basins
    >>> result = basins([1.0, 0.0, 0.0, 1.2, 0.0, 0.0], input_weight=0.3, points=3, tolerance=1e-3)
    >>> result.boundaries.round(2)
    array([0.23])
    """
    width = positive("tolerance", tolerance)
    grid = evenly(low, high, points)

    @cache
    def end(b: float) -> TrainingEnd:
        return end_of_training(
            cross_strengths, input_strengths, recurrence=b, input_weight=input_weight, output_weight=output_weight
        )

    boundaries, ends = [], [end(grid[0])]
    for before, after in pairwise(grid):
        if not _same(end(before), end(after)):
            here = end(before)
            boundaries.append(bisected(lambda b: _same(end(b), here), before, after, width))  # noqa: B023
            ends.append(end(after))
    return Basins(np.array(boundaries), tuple(ends))


def _same(one: TrainingEnd, other: TrainingEnd) -> bool:
    """Return whether two ends are the same optimum, or both are saddles."""
    if one.status is not other.status:
        return False
    return one.status is Status.not_learned or one.recurrence == other.recurrence
