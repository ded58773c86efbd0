"""Stops chosen for statistics that are estimates: the best on average over resampled data."""

from __future__ import annotations

import numpy as np

from learncast.planning.curricula.passage import Problem
from learncast.validation import FloatArray

#: Stops tried, as shares of the mean time of direct training; a refinement around the best follows.
_COARSE = np.linspace(0.0, 1.0, 161)
_FINE = np.linspace(-1.0, 1.0, 41)


def robust_stop(start: FloatArray, first: Problem, second: Problem, tolerance: float) -> tuple[float, float, float]:
    """Flow time on the first task whose total, averaged over replicas, is least; that mean, and that of no stop.

    Replicas are rows (replicas, modes) of both problems. A replica in which the target is never learned makes a mean
    infinite; then the share of such replicas decides first, and the mean over the others second.
    """
    alone = second.arrival(np.broadcast_to(start, second.cross.shape), tolerance)[0]
    usual = float(np.mean(alone[np.isfinite(alone)])) if np.isfinite(alone).any() else 0.0
    if usual == 0.0:
        return 0.0, float(np.mean(alone)), float(np.mean(alone))
    times = _COARSE * usual
    scores = _scores(times, start, first, second, tolerance)
    k = _least(scores)
    fine = np.clip(times[k] + _FINE * (times[1] - times[0]), 0.0, None)
    times = np.concatenate([[0.0], fine])
    scores = _scores(times, start, first, second, tolerance)
    k = _least(scores)
    return float(times[k]), float(scores[1, k]), float(scores[1, 0])


def _scores(
    times: FloatArray,
    start: FloatArray,
    first: Problem,
    second: Problem,
    tolerance: float,
) -> FloatArray:
    """Share of replicas that never learn the target, and the mean total of the others, (2, times)."""
    replicas = len(first.cross)
    clock = np.broadcast_to(times[:, None], (len(times), replicas))
    after = first.strength(clock, np.broadcast_to(start, (len(times), *first.cross.shape)))
    rest = second.arrival(after, tolerance)[0]
    total = clock + rest
    never = ~np.isfinite(total)
    count = np.maximum((~never).sum(axis=1), 1)
    means = np.where(never.all(axis=1), np.inf, np.where(never, 0.0, total).sum(axis=1) / count)
    return np.stack([never.mean(axis=1), means])


def _least(scores: FloatArray) -> int:
    """The first time with the fewest failures and, among those, the least mean."""
    return int(np.lexsort((np.arange(scores.shape[1]), scores[1], scores[0]))[0])
