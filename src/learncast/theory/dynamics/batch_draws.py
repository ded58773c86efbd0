"""Second moments of batches: of recorded trials or, where only moments are known, of Gaussian trials."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, count
from learncast.tasks.covariance import check_memory
from learncast.tasks.geometry import recurrence_kernel
from learncast.tasks.recorded.masked import MaskedTrials
from learncast.tasks.task import Task
from learncast.theory.dynamics.learning_problem import LearningProblem
from learncast.theory.dynamics.statistics import LagStatistics

#: Share of the variance of unit variables below which a direction is round-off.
ROUND_OFF = 1e-13


@dataclass(eq=False)
class Batches(ABC):
    """A source of batches for one or more runs of a stage of training.

    Attributes
    ----------
    batch : int
        Trials per step.
    runs : int
        Number of runs, each with its own batches.
    rng : numpy.random.Generator
    """

    batch: int
    runs: int
    rng: np.random.Generator
    #: Whether the trials are drawn from a normal distribution.
    gaussian = False

    @staticmethod
    def of(
        problem: LearningProblem, batch: int, rng: np.random.Generator, *, runs: int = 1, shuffle: bool = False
    ) -> Batches:
        """Batches of a task's own trials if they are stored, else of Gaussian trials with its second moments."""
        size, trials = count("batch", batch), problem.task.recorded_trials
        if trials is not None:
            return TrialBatches(size, runs, rng, trials, problem.pooled_recurrence, shuffle)
        return GaussianBatches.of_moments(problem, size, runs, rng)

    @abstractmethod
    def moments(self, rows: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """E[z z^T] and E[y z^T] of the next batch of some runs, summed over readouts.

        z is the pooled input if the recurrence is a fixed scalar, otherwise the inputs by lag behind the readout.
        """

    @abstractmethod
    def gradient_variance(self, problem: LearningProblem, first: FloatArray, second: FloatArray) -> float:
        """Variance of the gradient of a batch, summed over both maps; nan if batches are not independent."""

    def copy(self) -> Batches:
        """A source that continues with the same batches."""
        other = copy.copy(self)
        other.rng = copy.deepcopy(self.rng)
        return other


class TrialDraws:
    """Draws the trials of batches for one or more runs.

    Trials are drawn independently of each other, with replacement. With `shuffle` every epoch is a new random order of
    all trials, cut into batches; the last batch of an epoch may be smaller. A batch of at least as many trials as there
    are is the full batch.
    """

    def __init__(self, number: int, batch: int, runs: int, rng: np.random.Generator, shuffle: bool) -> None:
        self.number, self.batch, self.runs, self.rng, self.shuffle = number, batch, runs, rng, shuffle
        self._epoch = np.empty((runs, 0), dtype=np.intp)

    def next(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Trials of the next batch of some runs, (runs, batch)."""
        if self.batch >= self.number:
            return np.broadcast_to(np.arange(self.number), (len(rows), self.number))
        if not self.shuffle:
            return self.rng.integers(self.number, size=(len(rows), self.batch))
        if not self._epoch.shape[1]:
            self._epoch = self.rng.permuted(np.tile(np.arange(self.number), (self.runs, 1)), axis=1)
        chosen, self._epoch = self._epoch[rows, : self.batch], self._epoch[:, self.batch :]
        return chosen


class TrialBatches(Batches):
    """Batches of recorded trials, drawn as by `TrialDraws`."""

    def __init__(
        self,
        batch: int,
        runs: int,
        rng: np.random.Generator,
        trials: MaskedTrials,
        recurrence: float | None,
        shuffle: bool,
    ) -> None:
        super().__init__(batch, runs, rng)
        self.trials, self.shuffle = trials, shuffle
        self.pooled = None
        if recurrence is not None:
            steps, readouts = trials.inputs.shape[1], trials.targets.shape[1]
            self.pooled = trials.pooled(recurrence_kernel(recurrence, steps, readouts))
        self._draws = TrialDraws(len(trials), batch, runs, rng, shuffle)

    def copy(self) -> Batches:
        other = super().copy()
        assert isinstance(other, TrialBatches)
        other._draws = copy.copy(self._draws)
        other._draws.rng = other.rng
        return other

    def moments(self, rows: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        chosen = self._draws.next(rows)
        if self.pooled is None:
            each = (self.trials.chosen(one).moments() for one in chosen)
            return _stacked(LagStatistics.from_covariances(x.values, y.values[:, :, 0, :]) for x, y, _ in each)
        z, y = (part[chosen].reshape(len(rows), -1, part.shape[2]) for part in self.pooled)
        number = chosen.shape[1]
        return np.swapaxes(z, 1, 2) @ z / number, np.swapaxes(y, 1, 2) @ z / number

    def gradient_variance(self, problem: LearningProblem, first: FloatArray, second: FloatArray) -> float:
        if self.batch >= len(self.trials):
            return 0.0
        if self.shuffle:
            return np.nan
        assert self.pooled is not None
        z, y = self.pooled
        each = np.einsum("pro,prc->poc", z @ (second @ first).T - y, z, optimize=True)
        each -= each.mean(axis=0)
        variance = ((second.T @ each) ** 2).sum() + ((each @ first.T) ** 2).sum()
        return float(variance) / len(z) / self.batch


@dataclass(eq=False)
class GaussianBatches(Batches):
    """Batches of Gaussian trials.

    The second moment of `batch` Gaussian trials with covariance L L^T is L W L^T / batch with a standard Wishart matrix
    W. Its triangular (Bartlett) factor is drawn directly, at a cost that does not depend on the batch size.

    Attributes
    ----------
    inputs : (steps, inputs, rank)
        Rows of L for the inputs.
    targets : (readouts, outputs, rank)
        Rows of L for the targets.
    recurrence : float, optional
        Fixed scalar recurrence by which inputs are pooled.
    """

    inputs: FloatArray
    targets: FloatArray
    recurrence: float | None
    gaussian = True

    @classmethod
    def of_moments(cls, problem: LearningProblem, batch: int, runs: int, rng: np.random.Generator) -> GaussianBatches:
        """Prepare batches of a task, or of its pooled input if the recurrence is a fixed scalar."""
        task, p = problem.task, problem.pooled
        if task.target_covariance is None:
            raise InvalidSpec(f"Task {task.name!r} must have a target_covariance, got none.", field="target_covariance")
        if p is not None and task.targets == "end":
            target = task.target_covariance.dense()[0, :, 0, :]
            root, steps = _root(np.block([[p.power, p.cross.T], [p.cross, target]])), 1
        else:
            root, steps = _root(_joint_covariance(task)), task.steps
        x, y = np.split(root, [steps * task.inputs])
        shapes = (steps, task.inputs, -1), (task.cross_covariance.shape[2], task.outputs, -1)
        return cls(batch, runs, rng, x.reshape(shapes[0]), y.reshape(shapes[1]), problem.pooled_recurrence)

    @cached_property
    def _pooled(self) -> tuple[FloatArray, FloatArray]:
        """Rows of L for the pooled input and the target at each readout, (channels, readouts, rank) each."""
        kernel = recurrence_kernel(self.recurrence or 0.0, len(self.inputs), len(self.targets))
        return np.einsum("tr,tck->crk", kernel, self.inputs), self.targets.transpose(1, 0, 2)

    def moments(self, rows: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        half = wishart_roots(self.inputs.shape[2], self.batch, len(rows), self.rng)
        if self.recurrence is None:
            return _stacked(map(self._by_lag, half))
        seen, asked = ((part @ half[:, None]).reshape(len(rows), len(part), -1) for part in self._pooled)
        back = np.swapaxes(seen, 1, 2) / self.batch
        return seen @ back, asked @ back

    def _by_lag(self, half: FloatArray) -> LagStatistics:
        x, y = self.inputs @ half, self.targets @ half
        moment = np.einsum("tik,sjk->tisj", x, x, optimize=True) / self.batch
        cross = np.einsum("tik,rok->tiro", x, y, optimize=True) / self.batch
        return LagStatistics.from_covariances(moment, cross[:, :, 0, :] if len(y) == 1 else cross)

    def gradient_variance(self, problem: LearningProblem, first: FloatArray, second: FloatArray) -> float:
        """At the optimum, (E|C^T e|^2 E|z|^2 + E|e|^2 E|A z|^2) / batch with errors e that are alike in all outputs."""
        error, power = 2 * problem.least_loss, problem.statistics.input[0, :, 0, :]  # pooled to one lag
        out = (second**2).sum() / len(second) * np.trace(power)
        return float(error * (out + np.vdot(first @ power, first))) / self.batch


def _stacked(statistics: Iterable[LagStatistics]) -> tuple[FloatArray, FloatArray]:
    power, cross = (np.stack(part) for part in zip(*(s.moments for s in statistics), strict=True))
    return power, cross


def _joint_covariance(task: Task) -> FloatArray:
    """Covariance of all inputs and targets of a trial."""
    assert task.target_covariance is not None
    n, m = task.steps * task.inputs, task.cross_covariance.shape[2] * task.outputs
    check_memory((n + m) ** 2, f"the joint covariance of the {n + m} variables of a trial")
    cross = task.cross_covariance.dense().reshape(n, m)
    inputs, targets = (c.dense() for c in (task.input_covariance, task.target_covariance))
    return np.block([[inputs.reshape(n, n), cross], [cross.T, targets.reshape(m, m)]])


def _root(joint: FloatArray) -> FloatArray:
    """Return L with L L^T the covariance, one column per direction with variance, in any units of the variables.

    L is lower triangular (trapezoidal if directions have no variance) with a positive diagonal, as by Cholesky:
    eigenvectors of equal eigenvalues would differ between machines, and so would seeded draws.
    """
    scale = np.sqrt(np.clip(np.diagonal(joint), 0.0, None))
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(joint / scale[:, None] / scale)
    live = values > ROUND_OFF * values.max(initial=0.0)
    triangle = np.asarray(np.linalg.qr((vectors[:, live] * np.sqrt(values[live])).T, mode="r"))
    return np.asarray(scale[:, None] * (triangle * np.where(np.diagonal(triangle) < 0, -1.0, 1.0)[:, None]).T)


def wishart_roots(size: int, freedom: int, number: int, rng: np.random.Generator) -> FloatArray:
    """Draw matrices A with A A^T Wishart distributed: Bartlett factors or, if freedom < size, Gaussian matrices."""
    if freedom < size:
        return rng.standard_normal((number, size, freedom))
    factors = np.tril(rng.standard_normal((number, size, size)), -1)
    place = np.arange(size)
    factors[:, place, place] = np.sqrt(rng.chisquare(freedom - place, size=(number, size)))
    return factors
