"""The bootstrap over groups of trials: resampled means and confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learncast._core.progress import check_time
from learncast._core.validation import FloatArray
from learncast.tasks.recorded.masked import Mask
from learncast.theory.responses.trials import TrialStream, columns

__all__ = ["bounds", "interval"]

#: Width in steps up to which rounding to whole steps matters to an interval, and the rounding error of its ends.
FEW_STEPS, NEARLY = 20.0, 0.05
#: Coverage probability of an interval.
LEVEL = 0.95

#: Added to the seed of the trials, so that resampling is independent of the trials.
_RESAMPLING = 977

#: Sums of some quantities over inputs (steps, trials), targets (readouts, trials, outputs) and readouts that count.
Measure = Callable[[FloatArray, FloatArray, Mask | None], FloatArray]


@dataclass(frozen=True, eq=False)
class Resampling:
    """Number of times each group of trials enters each resample; the first row is the estimate, every group once.

    Attributes
    ----------
    counts : (groups,)
        Trials of each group.
    times : (1 + resamples, groups)
    """

    counts: FloatArray
    times: FloatArray

    @classmethod
    def of(cls, trials: TrialStream, number: int) -> Resampling:
        """Draw resamples; sources with the same number of groups and the same seed get the same ones."""
        counts = np.diff(trials.edges).astype(float)
        groups = len(counts)
        rng = np.random.default_rng([trials.seed, _RESAMPLING])
        times = rng.multinomial(groups, np.full(groups, 1.0 / groups), size=number).astype(float)
        return cls(counts, np.concatenate([np.ones((1, groups)), times]))

    def means(self, sums: FloatArray) -> FloatArray:
        """Return the means over trials, (1 + resamples, ...), of sums (groups, ...)."""
        weights = self.times / (self.times @ self.counts)[:, None]
        return np.tensordot(weights, sums, axes=1)

    def corrected(self, sums: FloatArray, controls: FloatArray, known: FloatArray) -> FloatArray:
        """Return the means of sums (groups, ...), corrected by control variates (groups, controls) of known means.

        Each sum is regressed on the controls over groups, and the part that the controls' errors explain is removed.
        """
        flat = sums.reshape(len(sums), -1)
        error = controls - self.counts[:, None] * known
        size = np.sqrt((error**2).mean(axis=0))
        error = error[:, size > 0] / size[size > 0]
        centred = error - error.mean(axis=0)
        slopes = np.linalg.lstsq(centred, flat - flat.mean(axis=0), rcond=1e-10)[0]
        return self.means((flat - error @ slopes).reshape(sums.shape))


def group_sums(trials: TrialStream, measure: Measure) -> FloatArray:
    """Add up what `measure` returns for the blocks of each group: (groups, numbers)."""
    sums: dict[int, FloatArray] = {}
    for group, inputs, targets, counted in trials.blocks():
        check_time()  # measuring many long trials takes minutes
        part = measure(inputs, targets, counted)
        sums[group] = sums[group] + part if group in sums else part
    return np.stack(list(sums.values()))


def sample_means(trials: TrialStream, measure: Measure, resampling: Resampling) -> FloatArray:
    """Return the means over trials, (1 + resamples, numbers), of what `measure` sums.

    Recorded trials that were centred or scaled are centred and scaled again by the means and scales of each resample.
    """
    recorded = trials.recorded
    if recorded is None or not (recorded.centred or recorded.scaled):
        return resampling.means(group_sums(trials, measure))
    groups, rows = np.split(np.arange(trials.number), trials.edges[1:-1]), []
    for times in resampling.times.astype(int):
        check_time()
        chosen = np.concatenate([group for group, n in zip(groups, times, strict=True) for _ in range(n)])
        rows.append(measure(*columns(recorded.prepared(chosen)[0])) / len(chosen))
    return np.stack(rows)


def readouts(
    inputs: FloatArray, targets: FloatArray, counted: Mask | None
) -> Iterator[tuple[FloatArray, FloatArray | None, FloatArray | float]]:
    """Yield the input of each step of a block, its target, or None at steps without a readout, and 1 if it counts."""
    first = len(inputs) - len(targets)
    for t, x in enumerate(inputs):
        y = targets[t - first] if t >= first else None
        yield x, y, 1.0 if counted is None or y is None else counted[t - first].astype(float)


def interval(
    estimate: FloatArray | float, resamples: FloatArray, *, signed: bool = False, given: FloatArray | None = None
) -> FloatArray:
    """Return the ends (2, ...) of the confidence interval of an estimate, from resamples over the first axis.

    The interval is symmetric about the estimate, on a logarithmic scale for counts and on a linear one for quantities
    of either sign (`signed`). Its half width is the larger of the distances from the median to the 2.5% and the 97.5%
    quantile, because few trials estimate the shorter tail too short. The bias that the median shows is not subtracted:
    with few trials it is mostly noise, and intervals that follow it cover too little. Counts that differ by a few steps
    are dominated by rounding, so their ends are rounded outwards. The quantiles of the resamples themselves are
    returned if the estimate is 0 or infinite, or if half of the resamples are infinite. ``python -m benchmarks
    coverage`` measures how often the intervals cover.

    The stops of a curriculum suit the trials that they were chosen for, so that the same numbers of steps cost more on
    other trials. That difference is no bias. The ends therefore include the quantiles of the resamples `given`.

    Parameters
    ----------
    estimate : (...)
    resamples : (resamples, ...)
    signed : bool
        Whether the quantity can have either sign.
    given : (resamples, ...), optional
        The quantity in resamples in which stages end after the steps of the estimate.

    Returns
    -------
    (2, ...) array

    Examples
    --------
    >>> import numpy as np
    >>> from learncast.theory import interval
    >>> interval(110.0, np.linspace(100.0, 140.0, 99)).round(1)
    array([ 92.2, 131.2])
    """
    values, centre = np.asarray(resamples, dtype=float), np.asarray(estimate, dtype=float)
    plain = bounds(values)
    scale = np.asarray if signed else np.log
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        middle = scale(np.median(values, axis=0))
        tails = np.abs(scale(plain) - middle)
        half = np.where(np.isfinite(tails), tails, 0.0).max(axis=0)
        few = _few_steps_apart(centre, values, plain)
        moved = np.stack([-half, half])
        ends = centre + moved if signed else centre * np.exp(moved)
        outwards = np.stack([np.floor(ends[0] + NEARLY), np.ceil(ends[1] - NEARLY)])
        ends = np.where(few, outwards, ends)
    known = np.isfinite(middle) & np.isfinite(ends).all(axis=0) & np.isfinite(plain)
    ends = np.where(known, ends, plain)
    if given is None:
        return ends
    low, high = bounds(given)
    return np.stack([np.fmin(ends[0], low), np.fmax(ends[1], high)])


def _few_steps_apart(centre: FloatArray, values: FloatArray, plain: FloatArray) -> NDArray[np.bool_]:
    """Whether estimate and resamples are whole numbers within a few steps of each other."""
    whole = (values == np.rint(values)).all(axis=0) & (centre == np.rint(centre))
    return np.asarray(whole & (plain[1] - plain[0] <= FEW_STEPS))


def bounds(resamples: FloatArray) -> FloatArray:
    """Return the ends of the central 95% interval over the first axis; nan if any resample is nan.

    Parameters
    ----------
    resamples : (resamples, ...)

    Returns
    -------
    (2, ...) array

    Examples
    --------
    >>> import numpy as np
    >>> from learncast.theory import bounds
    >>> bounds(np.arange(1.0, 40.0))
    array([ 1., 39.])
    """
    tail = (1 - LEVEL) / 2
    ordered = np.sort(np.asarray(resamples, dtype=float), axis=0)  # nan last
    unknown = np.isnan(ordered).any(axis=0)
    return np.stack([np.where(unknown, np.nan, _quantile(ordered, share)) for share in (tail, 1 - tail)])


def _quantile(ordered: FloatArray, share: float) -> FloatArray:
    """Return the Weibull quantile of ordered values, of which neighbours may both be infinite."""
    place = min(max(share * (len(ordered) + 1) - 1, 0.0), len(ordered) - 1.0)
    below, above = ordered[int(np.floor(place))], ordered[int(np.ceil(place))]
    with np.errstate(invalid="ignore"):
        step = np.where((below == above) | np.isneginf(below), 0.0, (above - below) * (place - np.floor(place)))
    return below + step
