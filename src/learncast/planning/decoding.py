"""Decoding of recorded trials: goals such as the share of correct decisions, and what is learned of class labels."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from learncast._core.errors import InvalidSpec, NotLearned, UnsupportedModel
from learncast._core.validation import FloatArray
from learncast.display import Table
from learncast.networks import Network
from learncast.networks.linear_rnn import LinearRNN
from learncast.planning.methods.method import CONVERGED, Method
from learncast.procedure.goals import Goal, Number
from learncast.tasks.geometry import recurrence_kernel
from learncast.tasks.recorded.masked import MaskedTrials
from learncast.tasks.task import Task

if TYPE_CHECKING:
    from learncast.training.goals import TrialGoal

#: Evaluations after which the goal counts as not reached, and those of the first call of descent.
MOST_EVALUATIONS, FIRST = 20_000, 50


@dataclass(frozen=True)
class Decoded(Goal):
    """A goal on trials, as the excess loss that full-batch descent reaches when it first meets the goal.

    Attributes
    ----------
    value : float
        Level of the goal.
    kind : str
        What is measured: ``"decisions"`` or ``"measured"``.
    steps : int
        Step of descent at which the goal is first met.
    limit : float
        Excess loss between those of this step and the step before.
    words : str
        The goal in words.
    """

    value: float
    kind: str
    steps: int
    limit: float
    words: str

    def excess(self, baseline: Number, least: float) -> Number:
        return self.limit + 0.0 * baseline

    @property
    def text(self) -> str:
        return self.words


def decoded(method: Method, task: int, goal: TrialGoal) -> Decoded:
    """Find the first evaluation, every ``goal.every`` steps of descent from the start, that meets a goal on trials.

    Raises
    ------
    NotLearned
        If descent converges, or `MOST_EVALUATIONS` are made, before the goal is met.
    """
    if method.promise == "response":
        raise UnsupportedModel(f"{goal.text} can be forecast for linear networks only.", field="goal")
    recent: deque[float] = deque(maxlen=goal.looks)
    best, step = -np.inf if goal.met(np.inf) else np.inf, 0
    for step, value in _evaluations(method, task, goal):
        recent.append(value)
        mean = float(np.mean(recent))
        best = max(best, mean) if goal.met(np.inf) else min(best, mean)
        if len(recent) == goal.looks and goal.met(mean):
            return _at(method, task, goal, step)
    raise NotLearned(f"{goal.text} is not reached within {step:,} steps; the best value is {best:.3g}.", field="goal")


def _evaluations(method: Method, task: int, goal: TrialGoal) -> Iterator[tuple[int, float]]:
    """Steps and measured values along descent from the start, until it has converged."""
    trials, recording = method.tasks[task].recorded_trials, method.tasks[task].recording
    if trials is None or recording is None:
        raise InvalidSpec(f"{goal.text} needs recorded trials. Give inputs and targets, or another goal.", field="goal")
    mean = recording.target_mean if trials.centred else 0.0
    answers, targets, counted = _answers(method, trials), trials.targets + mean, trials.counted

    def value(state: FloatArray) -> float:
        return goal.measure_arrays(answers(method.network_of(state)).reshape(targets.shape) + mean, targets, counted)

    converged = float(method.steps_to(task, method.start[None], CONVERGED)[0][0])
    last = int(min(MOST_EVALUATIONS * goal.every, converged if np.isfinite(converged) else np.inf))
    yield 0, value(method.start)
    done, until = 0, FIRST * goal.every
    while done < last:  # from the start each time: optimisers have a state of their own
        stops = list(range(done + goal.every, until + 1, goal.every))
        states = method.advance(task, method.start[None], stops)[:, 0]
        yield from ((n, value(state)) for n, state in zip(stops, states, strict=True))
        done, until = until, 2 * until


def _answers(method: Method, trials: MaskedTrials) -> Callable[[Network], FloatArray]:
    """Return the answers to the trials as a function of the network; inputs are pooled once if recurrence is fixed."""
    network, readouts = method.network, trials.targets.shape[1]
    recurrence = network.scalar_recurrence if isinstance(network, LinearRNN) else None
    if recurrence is None or "recurrent" in (method.learn or ()):
        return lambda now: np.asarray(now.respond(trials.inputs, every_step=readouts > 1))
    pooled, _ = trials.pooled(recurrence_kernel(recurrence, trials.inputs.shape[1], readouts))

    def answers(now: Network) -> FloatArray:
        assert isinstance(now, LinearRNN)
        return pooled @ now.input_weights.T @ now.output_weights.T

    return answers


def _at(method: Method, task: int, goal: TrialGoal, step: int) -> Decoded:
    """Return the goal as an excess loss that descent reaches at a step and not before."""
    around = [method.advance(task, method.start[None], [n])[0, 0] if n > 0 else method.start for n in (step - 1, step)]
    limit = float(method.excess_loss(task, np.stack(around)).mean())
    found = Decoded(goal.level, str(goal.quantity[0]), step, max(limit, 0.0), goal.text)
    if method.learning_time(task, found).descent_steps != step:
        raise InvalidSpec(
            "The loss does not fall at every step, so the goal has no loss. Give a smaller learning_rate.",
            field="learning_rate",
        )
    return found


@dataclass(frozen=True)
class ClassSummary:
    """Decoding of class labels on the recorded trials; the largest output is the answer.

    Attributes
    ----------
    base_rate : float
        Share of the most frequent class: the accuracy of answering it always.
    accuracy : float
        Share of correct answers.
    balanced_accuracy : float
        Share of correct answers of each class, averaged over classes; chance is one over the number of classes.
    constant_r2 : float
        R² of the best constant answer, the mean target.
    explained_above_constant : float
        Share of the loss of the best constant answer that is removed.
    """

    base_rate: float
    accuracy: float
    balanced_accuracy: float
    constant_r2: float
    explained_above_constant: float

    @classmethod
    def of(cls, task: Task, network: Network) -> ClassSummary | None:
        """Decode the recorded trials of a task by a network; None if it has no labels or no trials are stored."""
        trials, recording = task.recorded_trials, task.recording
        if trials is None or recording is None or recording.classes is None:
            return None
        every = trials.targets.shape[1] > 1
        answers = network.respond(trials.inputs, every_step=every).reshape(trials.targets.shape)
        live, targets = trials.counted, trials.targets
        mean = recording.target_mean if trials.centred else 0.0
        true, chosen = (targets + mean)[live].argmax(axis=1), (answers + mean)[live].argmax(axis=1)
        shares = np.bincount(true, minlength=len(recording.classes)) / len(true)
        recalls = [float((chosen[true == k] == k).mean()) for k in np.flatnonzero(shares)]
        power, error = np.sum(targets[live] ** 2), np.sum((answers - targets)[live] ** 2)
        spread = np.sum((targets - targets.sum(axis=0) / np.maximum(live.sum(axis=0), 1)[:, None])[live] ** 2)
        return cls(
            base_rate=float(shares.max()),
            accuracy=float((true == chosen).mean()),
            balanced_accuracy=float(np.mean(recalls)),
            constant_r2=float(1 - spread / power),
            explained_above_constant=float(1 - error / spread) if spread > 0 else 0.0,
        )

    @property
    def table(self) -> Table:
        """The numbers, as a table."""
        names = {
            "accuracy": self.accuracy,
            "base rate (always the most frequent class)": self.base_rate,
            "balanced accuracy": self.balanced_accuracy,
            "R² of the best constant answer": self.constant_r2,
            "explained above the constant answer": self.explained_above_constant,
        }
        return Table("Classes at the goal", ("measure", "value"), [(k, f"{v:.3g}") for k, v in names.items()])
