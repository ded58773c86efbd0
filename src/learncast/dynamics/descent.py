"""Gradient descent of a linear network on a task's statistics: what training on endless data would do."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from learncast.assumptions import Assumption
from learncast.dynamics.batches import BatchStatistics
from learncast.dynamics.learning_problem import LearningProblem, Weights
from learncast.dynamics.optimisers import Optimiser
from learncast.dynamics.solution import LearningTime, Solution, checked_time, checked_times
from learncast.errors import InvalidSpec
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.progress import Progress, silent
from learncast.tasks.task import Task
from learncast.trajectory import STEPS, Provenance, Status, Trajectory, described, spec_hash
from learncast.validation import FloatArray, between, count, positive

#: Steps after which a descent that should end by itself is given up.
MOST_STEPS = 1_000_000
#: Snapshots of weights kept along a descent; any step is found again from the one before it.
SNAPSHOTS = 64


@dataclass(frozen=True, eq=False)
class _Snapshot:
    step: int
    weights: Weights
    optimiser: Optimiser
    rng_state: Any


@dataclass(frozen=True, eq=False, repr=False)
class Descent(Solution):
    """A finished descent: every step's strengths and loss, and the weights at any step.

    Attributes
    ----------
    problem : LearningProblem
    strength : (steps + 1, modes)
    loss : (steps + 1,)
        On the task itself, also when batches drive the descent.
    status : Status
        ``diverged`` when weights stopped being finite, ``not_learned`` when the accuracy asked for was not reached.
    """

    problem: LearningProblem
    learning_rate: float
    strength: FloatArray
    loss: FloatArray
    status: Status
    optimiser: str
    batches: BatchStatistics | None = None
    seed: int | None = None
    _snapshots: tuple[_Snapshot, ...] = field(default=(), repr=False)

    @property
    def steps(self) -> int:
        """Steps taken."""
        return len(self.loss) - 1

    def at(self, times: Any) -> Trajectory:
        """Strengths and loss after whole numbers of steps; nan beyond the last step taken.

        Infinity is the last step of a descent that reached its accuracy or its number of steps.
        """
        steps = checked_times(times)
        finite = np.where(np.isinf(steps), self.steps, steps)
        if (finite != np.floor(finite)).any():
            raise InvalidSpec(
                required="a descent is defined at whole steps",
                got=f"{float(finite[finite != np.floor(finite)][0]):g}",
                why="nothing happens between two updates",
                remedy="ask for whole numbers, or use gradient_flow",
            )
        index = np.minimum(finite.astype(int), self.steps)
        known = finite <= self.steps
        loss = np.where(known, self.loss[index], np.nan)
        strength = np.where(known[:, None], self.strength[index], np.nan)
        dataset = xr.Dataset(
            {
                "strength": (("time", "mode"), strength, described("strength of each mode", "1")),
                "loss": ("time", loss, described("half mean squared error", "target^2")),
                "excess_loss": (
                    "time",
                    loss - self.problem.least_loss,
                    described("loss above the best linear map's", "target^2"),
                ),
            },
            coords={
                "time": ("time", steps, described("training time", STEPS)),
                "mode": ("mode", np.arange(self.strength.shape[1])),
            },
            attrs={"task": self.problem.task.name, "learning_rate": self.learning_rate, "optimiser": self.optimiser},
        )
        return Trajectory(dataset, self.provenance)

    def network_at(self, time: float) -> LinearRNN | TwoLayer:
        """The network after a whole number of steps (infinity: the last)."""
        step = checked_time(time)
        step = self.steps if np.isinf(step) else step
        if step != int(step) or step > self.steps:
            raise InvalidSpec(
                required=f"the step must be a whole number of at most {self.steps}",
                got=f"{step:g}",
                why="the descent has no other states",
                remedy="descend further, or ask for a whole step",
            )
        near = max((s for s in self._snapshots if s.step <= step), key=lambda s: s.step)
        walk = _Walk(self.problem, near.optimiser.copy(), self.batches, _generator(near.rng_state))
        weights = near.weights
        for _ in range(int(step) - near.step):
            weights = walk.next(weights)
        return self.problem.built(weights)

    def time_to(self, accuracy: float) -> LearningTime:
        """First step at which the learned map is within 1 - accuracy of the best, by its excess loss."""
        accuracy = between("accuracy", accuracy, 0.0, 1.0, why="it is one minus the tolerance")
        with np.errstate(invalid="ignore"):
            inside = self.loss - self.problem.least_loss <= self.problem.target_excess(accuracy)
        step = float(np.argmax(inside)) if inside.any() else math.inf
        status = (
            Status.ok if inside.any() else Status.diverged if self.status is Status.diverged else Status.not_learned
        )
        return LearningTime(accuracy, np.array([math.nan]), np.array([step]), (status,))

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """A descent assumes nothing."""
        return ()

    @property
    def provenance(self) -> Provenance:
        """Where the numbers come from."""
        digest = spec_hash(self.problem.task.hash, self.problem.network.hash, self.learning_rate, self.optimiser)
        return Provenance("descent", (), digest, self.seed)

    @property
    def forecast_class(self) -> str:
        """A descent is computed step by step."""
        return "integrated"

    def __repr__(self) -> str:
        return (
            f"<Descent of {self.problem.task.name!r} by {self.optimiser}, learning {', '.join(self.problem.learn)}: "
            f"{self.steps} steps, loss {self.loss[0]:.6g} to {self.loss[-1]:.6g}, {self.status.name}>"
        )


@dataclass
class _Walk:
    problem: LearningProblem
    optimiser: Optimiser
    batches: BatchStatistics | None
    rng: np.random.Generator | None

    def next(self, weights: Weights, slopes: Weights | None = None) -> Weights:
        """Weights one step on; slopes on the task itself may be given when they are known."""
        if self.batches is not None:
            assert self.rng is not None
            _, slopes = self.problem.loss_and_slopes(weights, self.batches.draw(self.rng))
        elif slopes is None:
            _, slopes = self.problem.loss_and_slopes(weights)
        with np.errstate(over="ignore", invalid="ignore"):
            return {**weights, **self.optimiser.update(weights, slopes)}


def descend(
    task: Task,
    network: LinearRNN | TwoLayer,
    *,
    learning_rate: float,
    steps: int | None = None,
    until: float | None = None,
    excess_loss: float | None = None,
    learn: tuple[str, ...] | None = None,
    optimiser: str = "gd",
    momentum: float = 0.9,
    betas: tuple[float, float] = (0.9, 0.999),
    weight_decay: float | None = None,
    batch: int | None = None,
    rng: np.random.Generator | None = None,
    most_steps: int = MOST_STEPS,
    progress: Progress = silent,
) -> Descent:
    """Train a linear network by descent on the task's exact statistics.

    On a task made by `Task.from_samples` this is full-batch training on those data, step for step.

    Parameters
    ----------
    task : Task
    network : LinearRNN or TwoLayer
    learning_rate : float
    steps : int, optional
        Number of steps.
    until : float, optional
        Or an accuracy: stop at the first step whose map is within 1 - until of the best linear one.
    excess_loss : float, optional
        Or a loss above the best linear map's: stop at the first step that has come so near.
    learn : tuple of str, optional
        Weights that learn; all by default.
    optimiser : {"gd", "momentum", "adam", "adamw"}
        Update rule, as in `torch.optim`.
    momentum, betas, weight_decay
        Its settings.
    batch : int, optional
        Draw the statistics of this many fresh Gaussian trials at each step instead of the task's own; needs `rng`.
    rng : numpy Generator, optional
        Source of the batches.
    most_steps : int
        Where a descent that should stop `until` an accuracy is given up.
    progress : callable
        Called with the share of steps done.
    """
    problem = LearningProblem.of(task, network, learn)
    rule = Optimiser(optimiser, learning_rate, momentum, betas, weight_decay=weight_decay)
    limit = _limit(steps, until, excess_loss, most_steps)
    goal = None if steps is not None else _goal(problem, until, excess_loss)
    batches = _batches(problem, batch, rng)
    walk = _Walk(problem, rule, batches, rng)
    weights = problem.start
    strengths, losses, snapshots = [], [], [_snapshot(0, weights, rule, rng)]
    every = 1
    status = Status.ok if goal is None else Status.not_learned
    for n in range(limit + 1):
        with np.errstate(over="ignore", invalid="ignore"):
            loss, slopes = problem.loss_and_slopes(weights)
            strengths.append(problem.strengths(weights))
        losses.append(loss)
        if not all(np.isfinite(slope).all() for slope in slopes.values()):
            status = Status.diverged
            break
        if goal is not None and loss <= goal:
            status = Status.ok
            break
        if n == limit:
            break
        weights = walk.next(weights, slopes)
        if (n + 1) % every == 0:
            snapshots.append(_snapshot(n + 1, weights, rule, rng))
            if len(snapshots) > SNAPSHOTS:  # thin out: every second one, from now on half as often
                snapshots, every = snapshots[::2], 2 * every
        if n % 256 == 0:
            progress(n / limit)
    return Descent(
        problem,
        rule.learning_rate,
        np.array(strengths),
        np.array(losses),
        status,
        optimiser,
        batches,
        None,
        tuple(snapshots),
    )


def _snapshot(step: int, weights: Weights, rule: Optimiser, rng: np.random.Generator | None) -> _Snapshot:
    return _Snapshot(
        step, weights, rule.copy(), None if rng is None else (type(rng.bit_generator), rng.bit_generator.state)
    )


def _generator(state: Any) -> np.random.Generator | None:
    if state is None:
        return None
    kind, values = state
    generator = np.random.Generator(kind())
    generator.bit_generator.state = values
    return generator


def _limit(steps: int | None, until: float | None, excess_loss: float | None, most_steps: int) -> int:
    if sum(rule is not None for rule in (steps, until, excess_loss)) != 1:
        raise InvalidSpec(
            required="either steps, until or excess_loss must be given",
            got=f"steps={steps}, until={until}, excess_loss={excess_loss}",
            why="a descent needs exactly one rule to stop",
            remedy="give a number of steps, an accuracy to reach, or a loss to come down to",
        )
    if steps is not None:
        return count("steps", steps, least=0, why="it counts updates")
    if until is not None:
        between("until", until, 0.0, 1.0, why="it is an accuracy, one minus the tolerance")
    else:
        positive("excess_loss", excess_loss, why="the optimum itself is never reached")
    return count("most_steps", most_steps, why="it bounds the descent")


def _goal(problem: LearningProblem, until: float | None, excess_loss: float | None) -> float:
    left = problem.target_excess(until) if until is not None else excess_loss
    assert left is not None
    goal = problem.least_loss + left
    if math.isnan(goal):
        raise InvalidSpec(
            required="the task must know its target covariance to descend until an accuracy or a loss",
            got=f"task {problem.task.name!r} without one",
            why="the distance from the best loss is unknown",
            remedy="give target_covariance, or a number of steps",
        )
    return goal


def _batches(problem: LearningProblem, batch: int | None, rng: np.random.Generator | None) -> BatchStatistics | None:
    if batch is None:
        return None
    if rng is None:
        raise InvalidSpec(
            required="batches need an rng",
            got="none",
            why="randomness is an argument here, never hidden",
            remedy="pass rng=np.random.default_rng(seed)",
        )
    return BatchStatistics.of(problem, batch)
