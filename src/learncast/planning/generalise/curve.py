"""What is asked about a held-out loss, and its curve from folds: Burman's correction, the best stop, intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations

import numpy as np
import scipy
from numpy.typing import ArrayLike

from learncast._core.validation import FloatArray
from learncast.networks import Network
from learncast.planning.generalise.folds import Folds, Labels, mean_error
from learncast.planning.generalise.learners import MapLearner, PooledLearner
from learncast.planning.generalise.subsets import FoldLosses, Kept, Samples, learn
from learncast.procedure.training import Training
from learncast.tasks.best_map import Correlations, best_map
from learncast.tasks.task import Task
from learncast.theory.dynamics.steps.pooled_descent import PooledDescent

#: Stops per decade of the grid.
PER_DECADE = 24
#: Bracket of stops that is searched step by step; wider ones are narrowed first by this many points.
SINGLE, POINTS = 2000, 33
#: Half width of a 95% interval, in standard errors.
NORMAL = 1.96
#: Ratio of rows to directions from which on the noise of the targets is known.
ENOUGH = 1.5


@dataclass(frozen=True, eq=False)
class HeldOutProblem:
    """What was asked: task, network, training, and the trials in folds or with test trials."""

    task: Task
    network: Network
    training: Training
    learner: MapLearner
    samples: Samples
    units: Labels
    folds: Folds
    most: int
    test: Task | None

    @property
    def trials(self) -> int:
        """Number of training trials."""
        return int(self.task.trials or 0) if self.test is not None else len(self.samples.folds)

    @cached_property
    def kept(self) -> Kept:
        """Folds that training on everything sees."""
        return np.arange(self.samples.number) < self.samples.number - (self.test is not None)

    @cached_property
    def fit(self) -> tuple[float, int]:
        """Mean squared residual of the best map times the readouts, per degree of freedom, and the rank of inputs."""
        each = [s for s, inside in zip(self.samples.samples(self.kept), self.kept, strict=True) if inside]
        windows, targets = (np.concatenate([getattr(s, part) for s in each]) for part in ("windows", "targets"))
        power, cross = self.samples.moments(self.kept)
        rank = Correlations.of(power).rank
        missed = float(((windows @ best_map(power, cross).T - targets) ** 2).sum())
        readouts = self.task.cross_covariance.shape[2]
        rows = self.trials * readouts
        used = rank + readouts * (self.task.recording is not None and self.task.recording.centred)
        return (readouts * missed / (rows - used) if rows > ENOUGH * used else math.nan), rank

    @cached_property
    def noise_loss(self) -> float:
        """Loss that unlimited trials would leave, from the residuals; nan with too few trials or other weights."""
        if not isinstance(self.learner, PooledLearner):
            return math.nan
        power, cross = self.samples.moments(self.kept)
        return self.fit[0] / 2 + float(PooledDescent(power, cross, self.learner.units).bottleneck_loss)

    def least_loss(self) -> float:
        """Least held-out loss of any map that the network can have; nan if it is unknown."""
        if self.test is None or not isinstance(self.learner, PooledLearner):
            return self.noise_loss
        sample = self.samples.samples(self.kept)[-1]
        power, cross = sample.windows.T @ sample.windows / sample.trials, sample.targets.T @ sample.windows
        descent = PooledDescent(power, cross / sample.trials, self.learner.units)
        return float((sample.targets**2).sum() / (2 * sample.trials) - descent.baseline_loss)


def stop_grid(most: int) -> list[int]:
    """Return 0, steps on a logarithmic grid and the last step."""
    number = math.ceil(PER_DECADE * math.log10(max(most, 1)))
    return sorted({0, most, *(round(10 ** (k / PER_DECADE)) for k in range(number))} - {most + 1})


def corrected(full: FloatArray, without: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the cross-validated loss with Burman's correction, (stops,).

    Implements: generalise Eq. (2), against training in torch on raw trials, fold by fold

    Parameters
    ----------
    full : (folds, stops)
        Loss on each fold after learning from all.
    without : (folds, folds, stops)
        Loss on each fold (second axis) after learning from all but one (first axis).
    weights : (folds,)
        Share of the trials in each fold.
    """
    own = np.einsum("f,ffs->s", weights, without)
    with np.errstate(invalid="ignore"):
        curve = own + np.einsum("f,fs->s", weights, full) - np.einsum("f,g,fgs->s", weights, weights, without)
    return np.where(np.isfinite(curve), curve, np.inf)


def best_stop(stops: Sequence[int], curve: FloatArray, between: Callable[[Sequence[int]], FloatArray]) -> int:
    """Return the step of the least loss: the best of the grid, then of all steps between its neighbours."""
    while True:
        k = int(np.argmin(curve))
        low, high = stops[max(k - 1, 0)], stops[min(k + 1, len(stops) - 1)]
        if high - low <= 2:
            return stops[k]
        if high - low <= SINGLE:
            inner = range(low, high + 1)
            return int(inner[int(np.argmin(between(inner)))])
        stops = np.unique(np.linspace(low, high, POINTS).round().astype(int)).tolist()
        curve = between(stops)


def rows_of(folds: int) -> list[Kept]:
    """Return the folds to learn from: all, all but one, all but two."""
    out = [(), *((f,) for f in range(folds)), *combinations(range(folds), 2)]
    return [~np.isin(np.arange(folds), left) for left in out]


@dataclass(frozen=True, eq=False)
class GivenCurve:
    """Loss on given test trials along training; exact if only their statistics are given.

    Attributes
    ----------
    stops : tuple of int
    curve, train : (stops,)
        Held-out loss and training loss.
    zero : float
        Held-out loss of the answer 0.
    states : (stops, ...)
        States of training on all trials.
    by_trial : (trials, stops) or None
        Loss of each test trial; None if only statistics are known.
    """

    stops: tuple[int, ...]
    curve: FloatArray
    train: FloatArray
    zero: float
    states: FloatArray
    by_trial: FloatArray | None

    @property
    def units(self) -> Labels:
        """Unit of each trial for standard errors: itself."""
        return np.arange(0 if self.by_trial is None else len(self.by_trial))

    @property
    def band(self) -> FloatArray:
        """Standard error of each loss as the loss of any test trials."""
        return np.zeros(len(self.stops)) if self.by_trial is None else mean_error(self.by_trial, self.units)

    def loss_error(self, place: int) -> float:
        """Standard error of the loss at a stop."""
        return float(self.band[place])

    def rise_interval(self, place: int) -> tuple[float, float]:
        """95% interval of the loss at the end over the loss at a stop."""
        if self.by_trial is None:
            return (float(self.curve[-1] / self.curve[place]),) * 2
        return _rise_interval(self, place, mean_error(_gaps(self.by_trial, self.curve), self.units))


@dataclass(frozen=True, eq=False)
class FoldCurve:
    """Held-out loss along training, estimated from folds.

    Attributes
    ----------
    weights : (folds,)
    units : (trials,)
        Unit of each trial for standard errors.
    folds : (trials,)
    stops : (stops,)
    found : FoldLosses
        Rows as in `rows_of`.
    """

    weights: FloatArray
    units: Labels
    folds: Labels
    stops: tuple[int, ...]
    found: FoldLosses

    @property
    def number(self) -> int:
        """Number of folds."""
        return len(self.weights)

    def _row(self, *left: int) -> FloatArray:
        """Losses (folds, stops) of the row without some folds."""
        return self.found.losses[self._places[frozenset(left)]]

    @cached_property
    def _places(self) -> dict[frozenset[int], int]:
        """Place of each row, by the folds that it leaves out."""
        return {frozenset(np.flatnonzero(~row).tolist()): r for r, row in enumerate(self.found.rows)}

    @cached_property
    def curve(self) -> FloatArray:
        """Held-out loss at each stop."""
        k = self.number
        return corrected(self.found.losses[0], self.found.losses[1 : k + 1], self.weights)

    @cached_property
    def train(self) -> FloatArray:
        """Training loss on all trials."""
        return np.asarray(self.weights @ self.found.losses[0])

    @cached_property
    def zero(self) -> float:
        """Held-out loss of the answer 0."""
        zero = self.found.zero[:, :, None]
        return float(corrected(zero[0], zero[1 : self.number + 1], self.weights)[0])

    @cached_property
    def without(self) -> FloatArray:
        """The curve estimated without each fold, (folds, stops)."""
        curves = []
        for j in range(self.number):
            others = [g for g in range(self.number) if g != j]
            weights = self.weights[others] / self.weights[others].sum()
            pairs = np.stack([self._row(j, g)[others] for g in others])
            curves.append(corrected(self._row(j)[others], pairs, weights))
        return np.stack(curves)

    @cached_property
    def nested_error(self) -> FloatArray:
        """Standard error of the curve by nested cross-validation, (stops,)."""
        return self._nested(lambda losses: losses)

    def _nested(self, number: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Standard error of the mean of numbers that are linear in the losses (..., stops) of trials.

        It is that of nested cross-validation (Bates, Hastie and Tibshirani), between 1 and √k plain ones. It includes
        how far the number of this training differs from the mean over trainings.

        Implements: generalise Eq. (4), against the formula on plain training
        """
        k, gaps, noise = self.number, [], []
        with np.errstate(invalid="ignore"):
            by_trial = number(self.by_trial)
            plain = mean_error(by_trial, self.units)
            for j in range(k):
                others = [g for g in range(k) if g != j]
                weights = self.weights[others] / self.weights[others].sum()
                inner = sum(w * number(self._row(j, g)[g]) for w, g in zip(weights, others, strict=True))
                gaps.append((inner - number(self._row(j)[j])) ** 2)
                inside = self.folds == j
                alone = len(np.unique(self.units[inside])) < 2  # the error is then known from all folds only
                noise.append(k * plain**2 if alone else mean_error(by_trial[inside], self.units[inside]) ** 2)
            nested = (k - 1) / k * (np.mean(gaps, axis=0) - np.mean(noise, axis=0))
        nested = np.where(np.isnan(nested), np.inf, np.maximum(nested, 0.0))
        return np.clip(np.sqrt(nested), plain, math.sqrt(k) * plain)

    def loss_error(self, place: int) -> float:
        """Standard error of the loss at the chosen stop, the choice included.

        Implements: generalise Eq. (5), against the formula on plain training; coverage in `benchmarks`
        """
        best = self.without.min(axis=1)
        return float(max(self.nested_error[place], jackknife(best)))

    @cached_property
    def band(self) -> FloatArray:
        """Standard error of the curve at each stop."""
        return np.maximum(self.nested_error, jackknife(self.without))

    def rise_interval(self, place: int) -> tuple[float, float]:
        """95% interval of the loss at the end over the loss at the chosen stop, the choice included."""
        with np.errstate(invalid="ignore", divide="ignore"):
            rises = np.log(self.without[:, -1] / self.without.min(axis=1))
        # The error from few folds is itself uncertain: Student's distribution.
        least = float(jackknife(rises)) * float(scipy.special.stdtrit(self.number - 1, 0.975)) / NORMAL
        return _rise_interval(self, place, np.maximum(self._nested(lambda losses: _gaps(losses, self.curve)), least))

    @property
    def states(self) -> FloatArray:
        """States of training on all trials."""
        return self.found.first

    @property
    def by_trial(self) -> FloatArray:
        """Loss of each trial under training without its fold, (trials, stops)."""
        return self.found.by_trial


def _gaps(losses: FloatArray, curve: FloatArray) -> FloatArray:
    """Change of the logarithm of the rise from each stop with the losses (..., stops) of trials."""
    return losses[..., -1:] / curve[-1] - losses / curve


def _rise_interval(found: HeldOutCurve, place: int, errors: FloatArray) -> tuple[float, float]:
    """Interval of the rise on the logarithmic scale, up to that from any stop as good within the noise."""
    curve = found.curve
    if not np.isfinite(curve[-1]):
        return 1.0, math.inf
    first, last = (found.stops.index(n) for n in alike(found, place))
    with np.errstate(over="ignore"):
        low = curve[-1] / curve[place] * np.exp(-NORMAL * errors[place])
        high = max(curve[-1] / curve[t] * np.exp(NORMAL * errors[t]) for t in range(first, last + 1))
    return float(low), float(high)


def loss_factor(relative_error: ArrayLike) -> FloatArray:
    """Factor between a loss and the upper end of its 95% interval, from its standard error relative to it.

    The logarithm of the loss has this error while it is below 1. Beyond that, the interval grows as a power of it.
    """
    error = np.asarray(relative_error, dtype=float)
    with np.errstate(divide="ignore"):
        return np.exp(NORMAL * np.where(error > 1.0, 1.0 + np.log(error), error))


def alike(found: HeldOutCurve, place: int) -> tuple[int, int]:
    """First and last stop as good as the one at a place within the noise, widened by one stop of the grid.

    The untrained network belongs to the set only if its own loss does.

    Implements: generalise Eq. (3), against the formula on plain training; coverage in `benchmarks`
    """
    stops, losses = found.stops, found.by_trial
    if losses is None:
        return stops[place], stops[place]
    with np.errstate(invalid="ignore"):
        error = mean_error(losses - losses[:, place : place + 1], found.units)
        inside = np.flatnonzero(found.curve - found.curve[place] <= NORMAL * error)
    low, high = min(inside.min(initial=place), place), max(inside.max(initial=place), place)
    return stops[max(low - 1, min(low, 1))], stops[min(high + 1, len(stops) - 1)]


HeldOutCurve = FoldCurve | GivenCurve
Starts = Sequence[FloatArray] | None


def outer_rows(samples: Samples, test: bool) -> list[Kept]:
    """Rows that a held-out curve needs without its intervals."""
    return [np.array([True, False])] if test else rows_of(samples.number)[: samples.number + 1]


def held_out_losses(samples: Samples, losses: FloatArray, test: bool) -> FloatArray:
    """Held-out loss, (stops,), from the losses (rows, folds, stops) of the outer rows."""
    return losses[0, 1] if test else corrected(losses[0], losses[1:], samples.weights)


def held_out_curve(
    samples: Samples, units: Labels, most: int, test: bool, starts: Starts = None
) -> tuple[HeldOutCurve, int]:
    """Held-out curve on a grid that contains the best stop, and the best stop.

    With `test`, the last of two folds is held out, otherwise every fold in turn.
    """
    grid, outer = stop_grid(most), outer_rows(samples, test)
    rows = outer if test else rows_of(samples.number)
    learned = partial(learn, samples, by_trial=samples.has_trials)

    def curve(losses: FloatArray) -> FloatArray:
        return held_out_losses(samples, losses[: len(outer)], test)

    if samples.training.batch is not None:  # batches cannot be drawn again from the middle of training

        def between(stops: Sequence[int]) -> FloatArray:
            return curve(learn(samples, outer, stops, starts=starts).losses)

        stop = best_stop(grid, between(grid), between)
        stops = tuple(sorted({*grid, stop}))
        found = learned(rows, stops, starts=starts)
    else:
        found = learned(rows, grid, starts=starts, watched=curve)
        low, own = grid[max(found.least - 1, 0)], list(found.before)

        def onwards(stops: Sequence[int]) -> FloatArray:
            return curve(learn(samples, outer, [n - low for n in stops], starts=own[: len(outer)]).losses)

        stop = best_stop(grid, curve(found.losses), onwards)
        stops = tuple(sorted({*grid, stop}))
        if len(stops) > len(grid):
            found = found.inserted(stops.index(stop), learned(rows, [stop - low], starts=own))
    if not test:
        return FoldCurve(samples.weights, units, samples.folds, stops, found), stop
    by_trial = found.by_trial[samples.folds == 1] if samples.has_trials else None
    (train, loss), (_, zero) = found.losses[0], found.zero[0]
    return GivenCurve(stops, loss, train, float(zero), found.first, by_trial), stop


def jackknife(values: FloatArray) -> FloatArray:
    """Return the standard error of an estimate from its values without each fold, over the first axis."""
    k = len(values)
    with np.errstate(invalid="ignore"):
        error = np.sqrt((k - 1) / k * ((values - values.mean(axis=0)) ** 2).sum(axis=0))
    return np.where(np.isnan(error), np.inf, error)
