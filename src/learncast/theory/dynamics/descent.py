"""Gradient descent of a linear network on the exact statistics of a task."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec, hinted
from learncast._core.progress import Progress, check_time, noticed, silent
from learncast._core.validation import FloatArray, between, count
from learncast.display import Plot, plural
from learncast.networks.deep import Linear
from learncast.networks.linear_rnn import check_fit
from learncast.procedure.goals import Goal, Loss, forecast_goal_of
from learncast.procedure.training import Training
from learncast.results import Provenance, Status, Trajectory, spec_hash
from learncast.tasks.task import Task
from learncast.theory.assumptions import Assumption
from learncast.theory.dynamics.batch_draws import Batches
from learncast.theory.dynamics.learning_problem import (
    NOTHING,
    LearningProblem,
    Weights,
    learned_weights,
    loss_scale,
)
from learncast.theory.dynamics.solution import POINTS, LearningTime, Solution, checked_time, checked_times

__all__ = ["Descent", "Optimizer", "descend"]

#: Flow steps up to which the steps of descent are counted one by one.
MOST_COUNTED = 50_000
#: Number of snapshots of the weights along a descent; steps between them are recomputed.
SNAPSHOTS = 64
#: Decay of the second moment of "rmsprop".
RMSPROP_DECAY = 0.99


@dataclass
class Optimizer:
    """An update rule with its state.

    Parameters
    ----------
    training : Training
        Names one of the optimisers "gd", "momentum", "adam", "adamw" and "rmsprop".
    steps, first, second
        The state: steps taken, and first and second moments of the gradient of each weight.

    Examples
    --------
    The length of Adam's first step is the learning rate, whatever the gradient:

    >>> import learncast as lc
    >>> import numpy as np
    >>> from learncast.theory.dynamics.descent import Optimizer
    >>> rule = Optimizer(lc.Training(1e-3, optimizer="adam"))
    >>> rule.update({"weights": np.zeros(2)}, {"weights": np.array([5.0, -0.01])})["weights"].round(6)
    array([-0.001,  0.001])
    """

    training: Training
    steps: int = 0
    first: dict[str, FloatArray] = field(default_factory=dict)
    second: dict[str, FloatArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.training.optimizer, str):
            raise InvalidSpec("optimizer must be a name; only learncast.training takes functions.", field="optimizer")

    def update(self, weights: dict[str, FloatArray], slopes: dict[str, FloatArray]) -> dict[str, FloatArray]:
        """Return the weights after one step, and advance the state."""
        self.steps += 1
        return {key: self._moved(key, weights[key], slope) for key, slope in slopes.items()}

    def _moved(self, key: str, w: FloatArray, slope: FloatArray) -> FloatArray:
        training, name = self.training, self.training.optimizer
        rate, decay = training.learning_rate, training.weight_decay
        if name == "adamw":
            w = w * (1 - rate * (0.01 if decay is None else decay))
        elif decay:
            slope = slope + decay * w
        if name == "gd":
            return w - rate * slope
        if name == "momentum":
            kept = self.first.get(key)
            self.first[key] = slope if kept is None else training.momentum * kept + slope
            return w - rate * self.first[key]
        one, two = (0.0, RMSPROP_DECAY) if name == "rmsprop" else training.betas
        zero = np.zeros_like(w)
        self.second[key] = two * self.second.get(key, zero) + (1 - two) * slope**2
        if name == "rmsprop":
            return w - rate * slope / (np.sqrt(self.second[key]) + training.eps)
        self.first[key] = one * self.first.get(key, zero) + (1 - one) * slope
        # Bias correction: the moments start at zero.
        root = np.sqrt(self.second[key]) / np.sqrt(1 - two**self.steps) + training.eps
        return w - rate / (1 - one**self.steps) * self.first[key] / root

    def copy(self) -> Optimizer:
        """Return the optimiser in the same state; updates replace arrays, so they can be shared."""
        return replace(self, first=dict(self.first), second=dict(self.second))


@dataclass(eq=False)
class _Snapshot:
    """State of a descent at one step, from which it can continue."""

    problem: LearningProblem
    batches: Batches | None
    weights: Weights
    optimizer: Optimizer
    step: int = 0
    scale: float = 1.0

    def advance(self, slopes: Weights | None = None) -> None:
        """Take one step; the gradient on the task itself may be given."""
        if self.batches is not None:
            _, slopes = self.problem.loss_and_slopes(self.weights, self.batches.moments(np.zeros(1, dtype=np.intp)))
        elif slopes is None:
            _, slopes = self.problem.loss_and_slopes(self.weights)
        with np.errstate(over="ignore", invalid="ignore"):
            slopes = slopes if self.scale == 1 else {key: self.scale * slope for key, slope in slopes.items()}
            self.weights = {**self.weights, **self.optimizer.update(self.weights, slopes)}
        self.step += 1

    def copy(self) -> _Snapshot:
        """Return an independent copy."""
        return replace(self, optimizer=self.optimizer.copy(), batches=self.batches and self.batches.copy())


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

    def network_at(self, time: float) -> Linear:
        """Return the network after a whole number of steps; infinity means the last step."""
        return self.networks_at([time])[0]

    def networks_at(self, times: Iterable[float]) -> list[Linear]:
        """Return the networks after whole numbers of steps; increasing numbers are fastest."""
        networks, last = [], self._snapshots[0]
        for step in map(self._checked_step, times):
            near = max((s for s in self._snapshots if s.step <= step), key=lambda s: s.step)
            last = (last if near.step <= last.step <= step else near).copy()
            while last.step < step:
                last.advance()
            networks.append(self.problem.network.with_weights(last.weights))
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
    def optimum(self) -> FloatArray:
        """Strength of each mode at the least loss."""
        return self.problem.best_strengths

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Empty: gradient descent has no conditions."""
        return ()

    @property
    def provenance(self) -> Provenance:
        """Origin of the numbers."""
        p, first = self.problem, self._snapshots[0]
        drawn = None if first.batches is None else repr(first.batches.rng.bit_generator.state)
        digest = spec_hash("descent", p.task.hash, p.network.hash, p.learn, first.optimizer.training.hash, drawn)
        return Provenance("descent", (), digest)

    def _plot(self) -> Plot:
        steps = np.unique(np.linspace(0, self.steps, POINTS).round())
        return Plot.of("mode_strengths", self.at(steps).dataset, title="Strength of every mode")

    def __repr__(self) -> str:
        return (
            f"<Descent of {self.problem.task.name!r} by {self.optimizer}, learning {', '.join(self.problem.learn)}: "
            f"{plural(self.steps, 'step')}, loss {self.loss[0]:.6g} to {self.loss[-1]:.6g}, {self.status.name}>"
        )


@hinted
@noticed("descending")
def descend(
    task: Task,
    network: Linear,
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
    network : LinearRNN, TwoLayer or Deep
    training : Training
        Optimiser, batch and weights that learn. With a batch, each step sees that many recorded trials or, if only the
        statistics of the task are known, Gaussian trials; this needs `rng`.
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
    check_fit(task, network)
    problem = LearningProblem.of(task, network, learned_weights(network, training.learn))
    limit, target = _end(problem, goal, steps, training)
    state = _Snapshot(problem, _batches(problem, training, rng), problem.start, Optimizer(training))
    state.scale = loss_scale(task, training)
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


def count_steps(
    problem: LearningProblem, learning_rate: float, goal: float, expected: float, sharpest: Callable[[], float]
) -> float:
    """Count the gradient-descent steps to a loss.

    The count is infinite if descent diverges or cannot arrive. Descents that take long by `expected`, the flow time,
    are counted in strides, whose length `sharpest` limits, the largest curvature on the way. The count is nan if even
    the strides are too many. Descent may arrive although the flow rests at a saddle.
    """
    if problem.map_problem is not None:
        return problem.map_problem.count(goal - problem.least_loss, learning_rate)[0]
    if goal <= problem.least_loss:
        return math.inf
    most = int(2 * expected + 1000) if math.isfinite(expected) else MOST_COUNTED
    descent = problem.by_lag
    if MOST_COUNTED < expected < math.inf:
        return descent.strides_to(descent.start, goal, learning_rate, most, sharpest())[0]
    return float(descent.steps_to(descent.start[None], np.array([goal]), learning_rate, most)[0][0])


def _end(
    problem: LearningProblem, goal: Goal | float | None, steps: int | None, training: Training
) -> tuple[int, float | None]:
    """Return the largest number of steps, and the loss at which to stop (None if there is none)."""
    if training.loss not in ("half_mse", "mse") or training.clip is not None or training.schedule is not None:
        raise InvalidSpec("descend needs loss='half_mse' or 'mse', without clip and schedule.", field="training")
    if training.loss == "mse" and isinstance(goal, Loss):
        raise InvalidSpec("A goal of Loss needs loss='half_mse'. Give R2 or Explained.", field="goal")
    if (steps is None) == (goal is None):
        raise InvalidSpec(f"Give either goal or steps, got goal={goal} and steps={steps}.", field="goal")
    if goal is None:
        return count("steps", steps, least=0), None
    least = problem.least_loss
    meant = forecast_goal_of(goal, recorded=problem.task.recording is not None)
    target = meant.target_loss(problem.baseline_loss, least)
    if problem.nothing_to_learn and abs(target - least) <= NOTHING * problem.statistics.constant:
        return 0, None
    if math.isnan(target) and problem.task.target_covariance is None:
        name = problem.task.name
        raise InvalidSpec(f"Task {name!r} must have a target_covariance, got none.", field="target_covariance")
    return training.most_steps, target


def _batches(problem: LearningProblem, training: Training, rng: np.random.Generator | None) -> Batches | None:
    if training.batch is None:
        return None
    if rng is None:
        raise InvalidSpec("batch needs an rng, e.g. rng=np.random.default_rng(0).", field="rng")
    return Batches.of(problem, training.batch, rng, shuffle=training.shuffle)
