"""Subsets of recorded trials, each prepared by its own means and scales, and what is learned from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.validation import FloatArray
from learncast.planning.batches import MOST_SIMULATED
from learncast.planning.generalise.folds import Labels
from learncast.planning.generalise.learners import MapLearner, in_parts, recorded_trials, within_reach
from learncast.procedure.training import Training
from learncast.tasks.recorded.masked import MaskedTrials
from learncast.tasks.recorded.recording import Recording
from learncast.tasks.task import Task
from learncast.theory.dynamics.batch_draws import TrialDraws

#: Bytes of the statistics of rows that descend together.
ROW_MEMORY = 2**28
#: Share of a channel's mean square below which its variance over some folds is round-off of a constant channel.
CONSTANT = 1e-12
#: Difference below which two trials are the same, relative to the largest value.
SAME = 1e-9
#: Runs of training in batches, whose losses are averaged.
RUNS = 4

Kept = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Sample:
    """Windows w and targets y of some trials, compressed to rows with the same second moments.

    Attributes
    ----------
    windows : (rows, values)
    targets : (rows, outputs)
    trials : int
    """

    windows: FloatArray
    targets: FloatArray
    trials: int

    @classmethod
    def of(cls, windows: FloatArray, targets: FloatArray) -> Sample:
        """Compress windows (trials, readouts, values) and targets (trials, readouts, outputs)."""
        trials, values = len(windows), windows.shape[2]
        both = np.concatenate([windows, targets], axis=2).reshape(-1, values + targets.shape[2])
        if len(both) > both.shape[1]:
            both = np.asarray(np.linalg.qr(both, mode="r"))
        return cls(both[:, :values], both[:, values:], trials)

    @classmethod
    def of_moments(cls, power: FloatArray, cross: FloatArray, target: FloatArray) -> Sample:
        """Rows with given second moments E[w w^T], E[y w^T] and E[y y^T]."""
        joint = np.block([[power, cross.T], [cross, target]])
        size, vectors = np.linalg.eigh(joint)
        rows = (vectors * np.sqrt(np.maximum(size, 0.0))).T
        return cls(rows[:, : len(power)], rows[:, len(power) :], 1)

    def losses(self, maps: FloatArray) -> FloatArray:
        """Half the mean squared error of maps (..., outputs, values); infinite if a map is not finite.

        Implements: generalise Eq. (1), against training in torch on raw trials
        """
        flat = maps.reshape(-1, *maps.shape[-2:])
        with np.errstate(over="ignore", invalid="ignore"):
            gaps = flat @ self.windows.T - self.targets.T
            loss = np.einsum("gor,gor->g", gaps, gaps) / (2 * self.trials)
        return np.where(np.isfinite(loss), loss, np.inf).reshape(maps.shape[:-2])


def moments_of(samples: Sequence[Sample], kept: Kept) -> tuple[FloatArray, FloatArray]:
    """E[w w^T] and E[y w^T] over the folds kept, whose samples these are."""
    each = [sample for sample, inside in zip(samples, kept, strict=True) if inside]
    number = sum(sample.trials for sample in each)
    power = sum(s.windows.T @ s.windows for s in each) / number
    return np.asarray(power), np.asarray(sum(s.targets.T @ s.windows for s in each) / number)


class Samples(ABC):
    """Trials or statistics, divided into folds, as a learner reads them."""

    learner: MapLearner
    training: Training
    folds: Labels
    #: Whether the loss of each trial is known.
    has_trials: bool = False

    @abstractmethod
    def samples(self, kept: Kept) -> list[Sample]:
        """Trials of each fold, prepared by the means and scales of the folds kept."""

    def read_by(self, learner: MapLearner) -> Samples:
        """Return these trials as another learner reads them; statistics have a single learner."""
        return self

    @property
    def number(self) -> int:
        """Number of folds."""
        return int(self.folds.max()) + 1

    @cached_property
    def weights(self) -> FloatArray:
        """Share of the trials in each fold."""
        return np.bincount(self.folds, minlength=self.number) / len(self.folds)

    def moments(self, kept: Kept) -> tuple[FloatArray, FloatArray]:
        """E[w w^T] and E[y w^T] over the folds kept, prepared by their means and scales."""
        return moments_of(self.samples(kept), kept)

    def trial_losses(self, fold: int, maps: FloatArray) -> FloatArray:
        """Loss of each trial of a fold, (trials, stops), of maps (stops, runs, ...) that were learned without it."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class GivenSamples(Samples):
    """Training and test statistics, of which the trials are not all stored.

    Attributes
    ----------
    given : list of Sample
    """

    given: list[Sample]
    learner: MapLearner
    training: Training

    @property
    def folds(self) -> Labels:  # type: ignore[override]
        return np.arange(len(self.given))

    def samples(self, kept: Kept) -> list[Sample]:
        return self.given


@dataclass(frozen=True, eq=False)
class Trials(Samples):
    """Recorded trials as a learner reads them, divided into folds.

    Attributes
    ----------
    recorded : MaskedTrials
        Prepared by the means and scales of all trials.
    learner : MapLearner
    folds : (trials,)
    powers, unscaled : (inputs,)
        Mean squares of the channels' means, which tell round-off of a constant channel, and the scale of a channel in
        recorded units, both in the units of `recorded`.
    training : Training
        Batches are simulated in several runs.
    """

    recorded: MaskedTrials
    learner: MapLearner
    folds: Labels
    powers: FloatArray
    unscaled: FloatArray
    training: Training
    has_trials = True

    @classmethod
    def of(
        cls,
        task: Task,
        learner: MapLearner,
        training: Training,
        folds: Labels | None = None,
        test: MaskedTrials | None = None,
    ) -> Trials:
        """Take the trials of a task, in folds, or as one fold with test trials in the same units as another."""
        recorded, rule = recorded_trials(task), task.recording
        if folds is None:
            folds = np.zeros(len(recorded), dtype=np.intp)
        if test is not None:
            folds = np.concatenate([folds, np.full(len(test), folds.max() + 1)])
            recorded = recorded.joined(test)
        units = np.ones(recorded.inputs.shape[2]) if rule is None else rule.scales
        mean = 0.0 * units if rule is None else ((rule.input_mean / units) ** 2).mean(axis=0)
        return cls(recorded, learner, folds, mean, 1 / units, training)

    def read_by(self, learner: MapLearner) -> Trials:
        return self if learner is self.learner else replace(self, learner=learner)

    @property
    def prepared(self) -> bool:
        """Whether trials are centred or scaled."""
        return self.recorded.centred or self.recorded.scaled

    @cached_property
    def windows(self) -> FloatArray:
        """Windows of all trials, prepared by the means and scales of all."""
        return self.learner.windows(self.recorded)

    @cached_property
    def _sums(self) -> tuple[FloatArray, ...]:
        """Over each fold: inputs and targets, trials that have each step and readout, squares of each channel."""
        r = self.recorded
        each = r.inputs, r.targets, r.present, r.counted, np.einsum("ptc,ptc->pc", r.inputs, r.inputs)
        return tuple(_fold_sums(values, self.folds, self.number) for values in each)

    def preparation(self, kept: Kept) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean input (steps, inputs), mean target (readouts, outputs) and scales (inputs,) of the folds kept."""
        x, y, present, counted, squares = (part[kept].sum(axis=0) for part in self._sums)
        means = x / np.maximum(present, 1)[:, None], y / np.maximum(counted, 1)[:, None]
        if not self.recorded.centred:
            means = 0 * means[0], 0 * means[1]
        scales = np.ones(x.shape[1])
        if self.recorded.scaled:
            power = np.maximum(squares - (present[:, None] * means[0] ** 2).sum(axis=0), 0.0) / max(present.sum(), 1)
            size = self.powers + squares / max(present.sum(), 1)
            scales = np.where(power > CONSTANT * size, np.sqrt(power), self.unscaled)
        return *means, scales

    def under(self, kept: Kept) -> tuple[FloatArray, FloatArray]:
        """Windows and targets of all trials, prepared by the means and scales of the folds kept."""
        trials, windows = self.recorded, self.windows
        if not self.prepared:
            return windows, trials.targets
        x_mean, y_mean, scales = self.preparation(kept)
        targets = np.where(trials.counted[:, :, None], trials.targets - y_mean, 0.0)
        if not (self.learner.linear and trials.present.all() and trials.counted.all()):
            inputs = np.where(trials.present[:, :, None], (trials.inputs - x_mean) / scales, 0.0)
            return self.learner.windows(replace(trials, inputs=inputs)), targets
        mean = MaskedTrials.complete(x_mean[None], y_mean[None], centred=False, scaled=False)
        units = np.tile(scales, windows.shape[2] // len(scales))
        return (windows - self.learner.windows(mean)) / units, targets

    def samples(self, kept: Kept) -> list[Sample]:
        """Trials of each fold, prepared by the means and scales of the folds kept."""
        if not self.prepared:
            return self._samples
        return self._by_fold(*self.under(kept))

    @cached_property
    def _samples(self) -> list[Sample]:
        return self._by_fold(*self.under(np.ones(self.number, dtype=bool)))

    def _by_fold(self, windows: FloatArray, targets: FloatArray) -> list[Sample]:
        return [Sample.of(windows[self.folds == f], targets[self.folds == f]) for f in range(self.number)]

    def trial_losses(self, fold: int, maps: FloatArray) -> FloatArray:
        """Loss of each trial of a fold, (trials, stops), of maps (stops, runs, ...) that were learned without it."""
        inside, kept = self.folds == fold, np.arange(self.number) != fold
        windows, targets = (part[inside] for part in self.under(kept))
        result = np.zeros((len(windows), len(maps)))
        with np.errstate(over="ignore", invalid="ignore"):
            for k, runs in enumerate(maps):
                for one in runs:
                    gaps = windows @ one.T - targets
                    result[:, k] += np.einsum("pro,pro->p", gaps, gaps) / (2 * len(runs))
        return np.where(np.isfinite(result), result, np.inf)


@dataclass(frozen=True, eq=False)
class FoldLosses:
    """Losses along training, of rows that each learn from some of the folds.

    Attributes
    ----------
    rows : list of (folds,)
        Folds that each row learns from.
    losses : (rows, folds, stops)
        On each fold, prepared as the row is.
    zero : (rows, folds)
        Loss of the answer 0.
    by_trial : (trials, stops)
        Loss of each trial under the row that lacks only its fold; empty if not asked for.
    first : (stops, ...)
        States of the first row.
    least, before : int and (rows, ...)
        Place of the stop of the least loss that was watched, and the states of all rows at the stop before it.
    """

    rows: list[Kept]
    losses: FloatArray
    zero: FloatArray
    by_trial: FloatArray
    first: FloatArray
    least: int
    before: FloatArray

    def inserted(self, place: int, more: FoldLosses) -> FoldLosses:
        """Return the losses with those at one more stop."""
        losses, by_trial, first = (
            np.insert(own, place, new.take(0, axis), axis=axis)
            for own, new, axis in (
                (self.losses, more.losses, 2), (self.by_trial, more.by_trial, 1), (self.first, more.first, 0)
            )
        )  # fmt: skip
        return replace(self, losses=losses, by_trial=by_trial, first=first)


def learn(
    trials: Samples,
    rows: Sequence[Kept],
    stops: Sequence[int],
    *,
    by_trial: bool = False,
    starts: Sequence[FloatArray] | None = None,
    watched: Callable[[FloatArray], FloatArray] | None = None,
) -> FoldLosses:
    """Descend on every row, from the start of the learner or from one start for each row, in one batch.

    Rows descend in several batches if their statistics would take too much memory. `watched` is a loss, (stops,), that
    follows from the losses (rows, folds, stops) of the first rows.
    """
    return within_reach(trials.learner, lambda own: _learn(trials.read_by(own), rows, stops, by_trial, starts, watched))


def _learn(
    trials: Samples,
    rows: Sequence[Kept],
    stops: Sequence[int],
    by_trial: bool,
    starts: Sequence[FloatArray] | None,
    watched: Callable[[FloatArray], FloatArray] | None,
) -> FoldLosses:
    learner, k = trials.learner, trials.number
    nothing = 0.0 * learner.maps(learner.start[None])[0]
    values = nothing.shape[-1]
    losses, zero = np.empty((len(rows), k, len(stops))), np.empty((len(rows), k))
    each = np.empty((len(trials.folds) if by_trial else 0, len(stops)))
    size = max(k + 1, ROW_MEMORY // (8 * values**2))
    first: list[FloatArray] = []
    before: list[FloatArray] = []
    least, best = 0, np.inf
    for begin in range(0, len(rows), size):
        group = range(begin, min(begin + size, len(rows)))
        samples = [trials.samples(rows[r]) for r in group]
        states = np.stack([learner.start if starts is None else starts[r] for r in group])
        zero[group.start : group.stop] = [[s.losses(nothing) for s in own] for own in samples]
        before.append(states)
        for part, after in _paths(trials, [rows[r] for r in group], samples, states, stops, begin):
            with np.errstate(over="ignore", invalid="ignore"):
                maps = learner.maps(after)  # (stops, rows, runs, outputs, values)
            if begin == 0:
                first.append(after[:, 0, 0])
            for place, r in enumerate(group):
                losses[r, :, part] = [sample.losses(maps[:, place]).mean(axis=1) for sample in samples[place]]
                if by_trial and np.count_nonzero(~rows[r]) == 1:
                    fold = int(np.flatnonzero(~rows[r])[0])
                    each[trials.folds == fold, part] = trials.trial_losses(fold, maps[:, place])
            if watched is not None:
                if begin == 0 and (curve := watched(losses[:, :, part])).min() < best:
                    best, least = curve.min(), part.start + int(np.argmin(curve))
                if part.start <= least < part.stop:
                    before[-1] = np.array(after[least - part.start - 1, :, 0] if least > part.start else states)
                states = after[-1, :, 0]
    return FoldLosses(list(rows), losses, zero, each, np.concatenate(first), least, np.concatenate(before))


def _paths(
    trials: Samples,
    rows: list[Kept],
    samples: list[list[Sample]],
    states: FloatArray,
    stops: Sequence[int],
    begin: int,
) -> Iterator[tuple[slice, FloatArray]]:
    """Yield states (stops, rows, runs, ...), some stops at a time; `samples` are those of each row."""
    training = trials.training
    if training.batch is None or training.batch >= len(trials.folds):
        power, cross = (np.stack(part) for part in zip(*map(moments_of, samples, rows), strict=True))
        for part, after in in_parts(trials.learner.advancing((power, cross)), states, stops):
            yield part, after[:, :, None]
        return
    if not isinstance(trials, Trials):
        raise InvalidSpec("Batches are simulated on recorded trials, which this task does not store.", field="batch")
    if stops[-1] > MOST_SIMULATED:
        raise InvalidSpec(
            f"Batches are simulated for up to {MOST_SIMULATED:,} steps, got {stops[-1]:,}.", field="most_steps"
        )
    batches, states = _batch_moments(trials, rows, begin), np.repeat(states, RUNS, axis=0)
    for part, after in in_parts(partial(trials.learner.follow, batches), states, stops):
        yield part, after.reshape(len(after), len(rows), RUNS, *states.shape[1:])


def _batch_moments(trials: Trials, rows: list[Kept], begin: int) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield E[w w^T] and E[y w^T] of batches of the trials that each row learns from, (rows x runs, ...)."""
    training, members, draws = trials.training, [], []
    assert training.batch is not None
    each = [trials.under(row) for row in rows] if trials.prepared else [trials.under(rows[0])]
    # The last window is 0: it fills batches at the end of an epoch.
    windows, targets = (
        np.concatenate([*parts, np.zeros((1, *parts[0].shape[1:]))]) for parts in zip(*each, strict=True)
    )
    for r, row in enumerate(rows):
        own = np.flatnonzero(row[trials.folds])
        members.append(own + r * len(trials.folds) if trials.prepared else own)
        rng = np.random.default_rng((training.seed, begin + r))  # the first is that of the seed alone
        draws.append(TrialDraws(len(own), training.batch, RUNS, rng, training.shuffle))
    while True:
        chosen = [own[draw.next(np.arange(RUNS))] for own, draw in zip(members, draws, strict=True)]
        counts = [part.shape[1] for part in chosen]
        index = np.full((len(chosen), RUNS, max(counts)), len(windows) - 1)
        for k, part in enumerate(chosen):
            index[k, :, : counts[k]] = part
        sizes = np.repeat(counts, RUNS)[:, None, None]
        w, y = (part[index].reshape(len(sizes), -1, part.shape[2]) for part in (windows, targets))
        yield np.swapaxes(w, 1, 2) @ w / sizes, np.swapaxes(y, 1, 2) @ w / sizes


def same_trials(own: FloatArray, known: FloatArray) -> Labels:
    """Return which of the known trials each own trial is, -1 if none."""
    own, known = (values.reshape(len(values), -1) for values in (own, known))
    weights = np.random.default_rng(0).standard_normal(known.shape[1])
    allowed, marks = SAME * float(np.abs(known).max(initial=0.0)), known @ weights
    order = np.argsort(marks)
    at = np.searchsorted(marks[order], own @ weights - allowed * np.abs(weights).sum())
    near = order[np.minimum(at, len(known) - 1)]
    return np.where((np.abs(known[near] - own) <= allowed).all(axis=1), near, -1)


def raw_trials(task: Task) -> MaskedTrials | None:
    """Return the trials of a task in recorded units; None if they are not stored."""
    trials, rule = task.recorded_trials, task.recording
    if trials is None or rule is None or not (trials.centred or trials.scaled):
        return trials
    inputs = trials.inputs * rule.scales + (rule.input_mean if trials.centred else 0.0)
    return _with_values(trials, inputs, trials.targets + (rule.target_mean if trials.centred else 0.0))


def in_units_of(trials: MaskedTrials, rule: Recording | None) -> MaskedTrials:
    """Prepare trials in recorded units by the means and scales of a recording."""
    if rule is None or not (rule.centred or rule.scaled):
        return trials
    inputs = (trials.inputs - (rule.input_mean if rule.centred else 0.0)) / rule.scales
    return _with_values(trials, inputs, trials.targets - (rule.target_mean if rule.centred else 0.0))


def _with_values(trials: MaskedTrials, inputs: FloatArray, targets: FloatArray) -> MaskedTrials:
    live = trials.present[:, :, None], trials.counted[:, :, None]
    return replace(trials, inputs=np.where(live[0], inputs, 0.0), targets=np.where(live[1], targets, 0.0))


def sample_of(task: Task, learner: MapLearner, trials: MaskedTrials | None) -> Sample:
    """Return windows and targets of trials or, if there are none, rows with the second moments of a task."""
    if trials is not None:
        return Sample.of(learner.windows(trials), trials.targets)
    if task.target_covariance is None:
        raise InvalidSpec(f"Task {task.name!r} must have a target_covariance, got none.", field="target_covariance")
    moments = learner.moments(task)
    if moments is None:
        raise UnsupportedModel(f"Nonlinear units need the trials of {task.name!r}.", field="task")
    target = task.target_covariance.contracted(np.eye(task.target_covariance.shape[0]))
    return Sample.of_moments(*moments, target)


def check_alike(task: Task, other: Task, field: str, sizes: Sequence[str] = ("inputs", "outputs")) -> None:
    """Raise unless another task has the sizes of a task."""
    for name in sizes:
        own, given = getattr(task, name), getattr(other, name)
        if own != given:
            raise InvalidSpec(f"{field} must have the {own} {name} of the task, got {given}.", field=field)


def _fold_sums(values: FloatArray | NDArray[np.bool_], folds: Labels, number: int) -> FloatArray:
    return np.stack([values[folds == f].sum(axis=0) for f in range(number)]).astype(float)
