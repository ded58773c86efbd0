"""The bootstrap over groups of trials: replicas of means, from the groups' means alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learncast._core.progress import check_time
from learncast._core.validation import FloatArray
from learncast.theory.responses.trials import Trials

__all__: list[str] = []  # serves the modules around it

#: Probability with which an interval should cover.
LEVEL = 0.95

#: Added to the trials' seed, so that resampling is independent of the trials.
_RESAMPLING = 977


@dataclass(frozen=True, eq=False)
class Resampling:
    """How often each group of trials enters each replica; the first row is the estimate itself, every group once.

    Attributes
    ----------
    counts : (groups,)
        Trials of each group.
    times : (1 + replicas, groups)
    """

    counts: FloatArray
    times: FloatArray

    @classmethod
    def of(cls, trials: Trials, replicas: int) -> Resampling:
        """Draw the replicas: the same for every source with as many groups and the same seed."""
        groups = trials.groups
        rng = np.random.default_rng([trials.seed, _RESAMPLING])
        times = rng.multinomial(groups, np.full(groups, 1.0 / groups), size=replicas).astype(float)
        counts = np.diff(np.linspace(0, trials.number, groups + 1).astype(int)).astype(float)
        return cls(counts, np.concatenate([np.ones((1, groups)), times]))

    def means(self, sums: FloatArray) -> FloatArray:
        """Means over trials of (groups, ...) sums: (1 + replicas, ...)."""
        weights = self.times / (self.times @ self.counts)[:, None]
        return np.tensordot(weights, sums, axes=1)

    def corrected(self, sums: FloatArray, controls: FloatArray, known: FloatArray) -> FloatArray:
        """The same, corrected by controls (groups, controls) whose means are known.

        Each sum is regressed on the controls over the groups, and what the controls' known error explains is removed.
        """
        flat = sums.reshape(len(sums), -1)
        error = controls - self.counts[:, None] * known
        size = np.sqrt((error**2).mean(axis=0))
        error = error[:, size > 0] / size[size > 0]
        centred = error - error.mean(axis=0)
        slopes = np.linalg.lstsq(centred, flat - flat.mean(axis=0), rcond=1e-10)[0]
        return self.means((flat - error @ slopes).reshape(sums.shape))


def group_sums(trials: Trials, measure: Callable[[FloatArray, FloatArray], FloatArray]) -> FloatArray:
    """Sums over each group's trials of what `measure` sums over a block, (groups, numbers)."""
    total: FloatArray | None = None
    for group, inputs, targets in trials.blocks():
        check_time()  # long trials of many steps take minutes to measure
        found = measure(inputs, targets)
        if total is None:
            total = np.zeros((trials.groups, len(found)))
        total[group] += found
    assert total is not None  # there is at least one trial
    return total


def interval(estimate: FloatArray | float, replicas: FloatArray, *, signed: bool = False) -> FloatArray:
    """Ends of the confidence interval about an estimate, from replicas over the first axis: (2, ...).

    What noise did to an estimate, drawing trials again does once more: weak modes that are noise want to be learned,
    slow directions get slower. Replicas then lie off the estimate by what it lies off the truth, and belong moved back
    by twice that. Where a plan was made for the estimate, replicas lie off it because the plan is not theirs, and stand
    as they are. An interval holds both. Counts are moved by a factor, what has either sign (`signed`) by a difference;
    where half of the replicas never arrive, or the estimate does not, only their own interval is known. How often
    intervals cover: ``python -m benchmarks coverage``.
    """
    drawn, found = np.asarray(replicas, dtype=float), np.asarray(estimate, dtype=float)
    own = bounds(drawn)
    with np.errstate(divide="ignore", invalid="ignore"):
        if signed:
            moved = own - 2 * (np.median(drawn, axis=0) - found)
        else:
            moved = own * (found / np.median(drawn, axis=0)) ** 2
    known = np.isfinite(found) & ~np.isnan(moved).any(axis=0)
    moved = np.where(known, moved, own)
    return np.stack([np.minimum(own[0], moved[0]), np.maximum(own[1], moved[1])])


def bounds(replicas: FloatArray) -> FloatArray:
    """Ends of the central interval over the first axis, (2, ...); infinities count, unknowns make it unknown."""
    tail = (1 - LEVEL) / 2
    ordered = np.sort(np.asarray(replicas, dtype=float), axis=0)  # nan last
    low, high = (_ranked(ordered, share) for share in (tail, 1 - tail))
    unknown: NDArray[np.bool_] = np.isnan(ordered).any(axis=0)
    return np.stack([np.where(unknown, np.nan, low), np.where(unknown, np.nan, high)])


def _ranked(ordered: FloatArray, share: float) -> FloatArray:
    """Quantile by interpolation between ranks, below which a new draw falls with that share on average.

    Exact where both ranks are infinite (inf - inf is no step).
    """
    place = min(max(share * (len(ordered) + 1) - 1, 0.0), len(ordered) - 1.0)
    below, above = ordered[int(np.floor(place))], ordered[int(np.ceil(place))]
    with np.errstate(invalid="ignore"):
        step = np.where(below == above, 0.0, (above - below) * (place - np.floor(place)))
    return below + step
