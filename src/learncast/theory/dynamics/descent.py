"""Gradient descent of a linear network on the exact statistics of a task."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec
from learncast._core.progress import Progress, check_time, noticed, silent
from learncast._core.validation import FloatArray, between, count
from learncast.display import Plot, plural
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.procedure.goals import Goal, goal_of
from learncast.procedure.training import Training
from learncast.results import Provenance, Status, Trajectory, spec_hash
from learncast.tasks.covariance import check_memory
from learncast.tasks.task import Task
from learncast.theory.assumptions import Assumption
from learncast.theory.dynamics.learning_problem import LearningProblem, Weights
from learncast.theory.dynamics.solution import POINTS, LearningTime, Solution, checked_time, checked_times
from learncast.theory.dynamics.statistics import LagStatistics
from learncast.theory.dynamics.steps.optimizer import Optimizer

__all__ = ["Descent", "descend"]

#: Flow steps up to which the steps of descent are counted one by one.
MOST_COUNTED = 50_000
#: Number of snapshots of the weights along a descent; steps between them are recomputed.
SNAPSHOTS = 64


@dataclass(eq=False)
class _Snapshot:
    """State of a descent at one step, from which it can continue."""

    problem: LearningProblem
    batches: BatchStatistics | None
    weights: Weights
    optimizer: Optimizer
    rng: np.random.Generator | None
    step: int = 0

    def advance(self, slopes: Weights | None = None) -> None:
        """Take one step; the gradient on the task itself may be given."""
        if self.batches is not None:
            assert self.rng is not None
            _, slopes = self.problem.loss_and_slopes(self.weights, self.batches.draw(self.rng))
        elif slopes is None:
            _, slopes = self.problem.loss_and_slopes(self.weights)
        with np.errstate(over="ignore", invalid="ignore"):
            self.weights = {**self.weights, **self.optimizer.update(self.weights, slopes)}
        self.step += 1

    def copy(self) -> _Snapshot:
        """Return an independent copy."""
        return replace(self, optimizer=self.optimizer.copy(), rng=copy.deepcopy(self.rng))


@dataclass(frozen=True, eq=False, repr=False)
class Descent(Solution):
    """Finished gradient descent: strengths and loss at each step, and the weights at any step.

    Attributes
    ----------
    problem : LearningProblem
    strength : (steps + 1, modes)
    loss : (steps + 1,)
        Loss on the exact statistics, also for descent in batches.
    status : Status
        ``diverged`` if the weights became infinite, ``not_within`` if the goal was not reached in all these steps.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> run = lc.descend(task, network, learning_rate=1e-3, steps=400)
    >>> run.steps, run.status.name
    (400, 'ok')
    >>> run.loss[[0, 200, 400]].round(2)
    array([25.  , 16.99,  6.13])
    """

    promise = "integrated"
    problem: LearningProblem
    learning_rate: float
    strength: FloatArray
    loss: FloatArray
    status: Status
    optimizer: str
    _snapshots: tuple[_Snapshot, ...] = field(default=(), repr=False)

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.loss) - 1

    def at(self, times: ArrayLike) -> Trajectory:
        """Return strengths and loss after whole numbers of steps; nan beyond the last step.

        Infinity means the last step.
        """
        steps = checked_times(times)
        finite = np.where(np.isinf(steps), self.steps, steps)
        if (finite != np.floor(finite)).any():
            fraction = float(finite[finite != np.floor(finite)][0])
            raise InvalidSpec(f"times of a descent must be whole numbers of steps, got {fraction:g}.", field="times")
        index = np.minimum(finite.astype(int), self.steps)
        known = finite <= self.steps
        loss = np.where(known, self.loss[index], np.nan)
        strength = np.where(known[:, None], self.strength[index], np.nan)
        values = {"strength": strength, "loss": loss, "excess_loss": loss - self.problem.least_loss}
        return self._trajectory(steps, values, self.problem.task, optimizer=self.optimizer)

    def network_at(self, time: float) -> LinearRNN | TwoLayer:
        """Return the network after a whole number of steps; infinity means the last step."""
        return self.networks_at([time])[0]

    def networks_at(self, times: Iterable[float]) -> list[LinearRNN | TwoLayer]:
        """Return the networks after whole numbers of steps; increasing numbers are fastest."""
        networks, last = [], self._snapshots[0]
        for step in map(self._checked_step, times):
            near = max((s for s in self._snapshots if s.step <= step), key=lambda s: s.step)
            last = (last if near.step <= last.step <= step else near).copy()
            while last.step < step:
                last.advance()
            networks.append(self.problem.built(last.weights))
        return networks

    def _checked_step(self, time: float) -> int:
        step = checked_time(time)
        step = self.steps if math.isinf(step) else step
        if step != int(step) or step > self.steps:
            raise InvalidSpec(f"time must be a whole number of at most {self.steps} steps, got {step:g}.", field="time")
        return int(step)

    def time_to(self, accuracy: float) -> LearningTime:
        """Return the first step at which the excess loss is at most (1 - accuracy)^2 of the baseline loss."""
        accuracy = between("accuracy", accuracy, 0.0, 1.0)
        with np.errstate(invalid="ignore"):
            inside = self.loss - self.problem.least_loss <= (1 - accuracy) ** 2 * self.problem.baseline_loss
        if inside.any():
            return LearningTime(accuracy, np.array([math.nan]), np.array([float(np.argmax(inside))]), (Status.ok,))
        diverged = self.status is Status.diverged
        steps, status = (math.inf, Status.diverged) if diverged else (math.nan, Status.not_within)
        tried = math.nan if diverged else float(self.steps)
        last = float(self.loss[-1])
        return LearningTime(accuracy, np.array([math.nan]), np.array([steps]), (status,), tried=tried, loss=last)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Empty: gradient descent has no conditions."""
        return ()

    @property
    def provenance(self) -> Provenance:
        """Origin of the numbers."""
        p, batches = self.problem, self._snapshots[0].batches
        batch = None if batches is None else batches.batch
        digest = spec_hash("descent", p.task.hash, p.network.hash, p.learn, self.learning_rate, self.optimizer, batch)
        return Provenance("descent", (), digest)

    def _plot(self) -> Plot:
        steps = np.unique(np.linspace(0, self.steps, POINTS).round())
        return Plot.of("mode_strengths", self.at(steps).dataset, title="Strength of every mode")

    def __repr__(self) -> str:
        return (
            f"<Descent of {self.problem.task.name!r} by {self.optimizer}, learning {', '.join(self.problem.learn)}: "
            f"{plural(self.steps, 'step')}, loss {self.loss[0]:.6g} to {self.loss[-1]:.6g}, {self.status.name}>"
        )


@noticed("descending")
def descend(
    task: Task,
    network: LinearRNN | TwoLayer,
    training: Training | None = None,
    *,
    learning_rate: float | None = None,
    goal: Goal | float | None = None,
    steps: int | None = None,
    rng: np.random.Generator | None = None,
    progress: Progress = silent,
) -> Descent:
    """Train a linear network by gradient descent on the exact statistics of a task.

    On a task made by `Task.from_samples` this is full-batch training on those samples, step by step.

    Parameters
    ----------
    task : Task
    network : LinearRNN or TwoLayer
    training : Training
        Optimiser, batch and weights that learn. With a batch, each step draws the statistics of that many Gaussian
        trials instead of using the task's own; this needs `rng`.
    learning_rate : float, optional
        Short for ``training=Training(learning_rate)``.
    goal : Goal or float, optional
        Stop at the first step at which the task is learned. A number means `Accuracy` for task families and
        `Explained` for recordings.
    steps : int, optional
        Or stop after this number of steps.
    rng : numpy Generator, optional
        Source of the batches.
    progress : callable
        Called with the fraction of steps done.

    Returns
    -------
    Descent
        Strengths and loss at every step, the weights at any step, and the status: a `Solution`.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> lc.descend(task, network, learning_rate=1e-3, goal=0.99)
    <Descent of 'integration' by gd, learning input, output: 331 steps, loss 24.9978 to 6.13453, ok>
    """
    training = Training.of(training, learning_rate)
    problem = LearningProblem.of(task, network, training.learn)
    if training.learn is None:
        problem = replace(problem, learn=problem.map_names)
    limit, target = _end(problem, goal, steps, training)
    state = _Snapshot(problem, _batches(problem, training.batch, rng), problem.start, Optimizer(training), rng)
    strengths, losses, snapshots = [], [], [state.copy()]
    every = 1
    status = Status.ok if target is None else Status.not_within
    for n in range(limit + 1):
        with np.errstate(over="ignore", invalid="ignore"):
            loss, slopes = problem.loss_and_slopes(state.weights)
            strengths.append(problem.strengths(state.weights))
        losses.append(loss)
        if not all(np.isfinite(slope).all() for slope in slopes.values()):
            status = Status.diverged
            break
        if target is not None and loss <= target:
            status = Status.ok
            break
        if n == limit:
            break
        state.advance(slopes)
        if state.step % every == 0:
            snapshots.append(state.copy())
            if len(snapshots) > SNAPSHOTS:  # thin out: keep every second one, and take half as many from now on
                snapshots, every = snapshots[::2], 2 * every
        if n % 256 == 0:
            check_time()
            progress(n / limit)
    known = np.array(strengths), np.array(losses)
    return Descent(problem, training.learning_rate, *known, status, str(training.optimizer), tuple(snapshots))


def count_steps(problem: LearningProblem, learning_rate: float, goal: float, expected: float) -> float:
    """Count the gradient-descent steps to a loss.

    The count is infinite if descent diverges, and nan if `expected`, the flow time, is too long to count single steps.
    """
    if math.isinf(expected):
        return expected
    if problem.two_layers is not None:
        return problem.two_layers.steps_to(goal - problem.least_loss, learning_rate)
    if expected > MOST_COUNTED:
        return math.nan
    most = MOST_COUNTED if math.isnan(expected) else int(2 * expected + 1000)
    descent = problem.by_lag
    return float(descent.steps_to(descent.start[None], np.array([goal]), learning_rate, most)[0][0])


def _end(
    problem: LearningProblem, goal: Goal | float | None, steps: int | None, training: Training
) -> tuple[int, float | None]:
    """Return the largest number of steps, and the loss at which to stop (None if there is none)."""
    if training.loss != "half_mse" or training.clip is not None or training.schedule is not None:
        raise InvalidSpec("descend needs loss='half_mse', without clip and schedule.", field="training")
    if (steps is None) == (goal is None):
        raise InvalidSpec(f"Give either goal or steps, got goal={goal} and steps={steps}.", field="goal")
    if goal is None:
        return count("steps", steps, least=0), None
    least = problem.least_loss
    meant = goal_of(goal, recorded=problem.task.recording is not None)
    target = meant.target_loss(problem.baseline_loss, least)
    if problem.nothing_to_learn and target <= least:
        return 0, None
    if math.isnan(target):
        _require_target_covariance(problem.task)
    return training.most_steps, target


def _batches(problem: LearningProblem, batch: int | None, rng: np.random.Generator | None) -> BatchStatistics | None:
    if batch is None:
        return None
    if rng is None:
        raise InvalidSpec("batch needs an rng, e.g. rng=np.random.default_rng(0).", field="rng")
    return BatchStatistics.of(problem, batch)


def _require_target_covariance(task: Task) -> None:
    if task.target_covariance is None:
        raise InvalidSpec(f"Task {task.name!r} must have a target_covariance, got none.", field="target_covariance")


@dataclass(frozen=True, eq=False)
class BatchStatistics:
    """Random second moments of Gaussian batches.

    The second moment of `batch` Gaussian trials with covariance L L^T is L W L^T / batch with a standard Wishart matrix
    W. Its triangular (Bartlett) factor is drawn directly, at a cost that does not depend on the batch size.

    Attributes
    ----------
    root : (variables, rank)
        L, inputs above targets.
    inputs, targets : tuple of int
        Shapes of the variables, (steps, inputs) and (readouts, outputs).
    """

    root: FloatArray
    inputs: tuple[int, int]
    targets: tuple[int, int]
    batch: int

    @classmethod
    def of(cls, problem: LearningProblem, batch: int) -> BatchStatistics:
        """Prepare batches of a task, or of its pooled input if the recurrence is a fixed scalar."""
        size = count("batch", batch)
        task = problem.task
        _require_target_covariance(task)
        assert task.target_covariance is not None
        if problem.pooled is not None and task.targets == "end":
            p = problem.pooled
            target = task.target_covariance.dense()[0, :, 0, :]
            joint = np.block([[p.power, p.cross.T], [p.cross, target]])
            return cls(_root(joint), (1, task.inputs), (1, task.outputs), size)
        n, m = task.steps * task.inputs, task.cross_covariance.shape[2] * task.outputs
        check_memory((n + m) ** 2, f"the joint covariance of the {n + m} variables of a trial")
        cross = task.cross_covariance.dense().reshape(n, m)
        inputs, targets = (c.dense() for c in (task.input_covariance, task.target_covariance))
        joint = np.block([[inputs.reshape(n, n), cross], [cross.T, targets.reshape(m, m)]])
        return cls(_root(joint), (task.steps, task.inputs), (task.cross_covariance.shape[2], task.outputs), size)

    def draw(self, rng: np.random.Generator) -> LagStatistics:
        """Return the statistics of a new batch."""
        half = self.root @ wishart_roots(self.root.shape[1], self.batch, 1, rng)[0]
        moment = half @ half.T / self.batch
        n = self.inputs[0] * self.inputs[1]
        cross = moment[:n, n:].reshape(*self.inputs, *self.targets)
        power = np.diagonal(moment)[n:].reshape(self.targets).sum(axis=1)
        end = self.targets[0] == 1
        return LagStatistics.from_covariances(
            moment[:n, :n].reshape(self.inputs * 2),
            cross[:, :, 0, :] if end else cross,
            target_power=float(power[0]) if end else power,
        )


def _root(joint: FloatArray) -> FloatArray:
    """Return L with L L^T the covariance, one column per direction with variance."""
    values, vectors = np.linalg.eigh(joint)
    live = values > 1e-13 * values.max(initial=0.0)
    return np.asarray(vectors[:, live] * np.sqrt(values[live]))


def wishart_roots(size: int, freedom: int, number: int, rng: np.random.Generator) -> FloatArray:
    """Draw matrices A with A A^T Wishart distributed: Bartlett factors or, if freedom < size, Gaussian matrices."""
    if freedom < size:
        return rng.standard_normal((number, size, freedom))
    factors = np.tril(rng.standard_normal((number, size, size)), -1)
    place = np.arange(size)
    factors[:, place, place] = np.sqrt(rng.chisquare(freedom - place, size=(number, size)))
    return factors
