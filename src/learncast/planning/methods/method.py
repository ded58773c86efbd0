"""The interface of every method: how a pool of tasks is learned by one network."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from learncast._core.errors import InvalidSpec, NotLearned
from learncast._core.validation import FloatArray
from learncast.networks import Network
from learncast.procedure.goals import Accuracy, Goal, Loss
from learncast.procedure.training import Training
from learncast.results import Provenance, Status, Steps, spec_hash
from learncast.tasks.task import Task
from learncast.theory.assumptions import Assumption, Trust, worst
from learncast.theory.dynamics.learning_problem import NOTHING, loss_scale
from learncast.theory.dynamics.modes import Modes
from learncast.theory.dynamics.solution import LearningTime, Solution, settles, status_of
from learncast.theory.responses.bootstrap import interval

if TYPE_CHECKING:
    from learncast.training.measured_accuracy import LossRange

#: Whether each of some maps of the pooled input, or of the inputs by lag, (rows, outputs, values), has learned a task.
Learned = Callable[[FloatArray], NDArray[np.bool_]]

#: Name of the condition that limits the learning rate.
LIMIT = "stable_learning_rate"
#: Goal at which descent has converged.
CONVERGED = Accuracy(1 - 1e-6)

#: When a stage of a curriculum ends: a goal, or a number of steps.
Rule = tuple[Goal | None, float | None]


def _total(stages: FloatArray) -> FloatArray:
    """Steps of all stages together."""
    return np.asarray(stages.sum(axis=0))


@dataclass(frozen=True, eq=False)
class ResampledSteps:
    """Steps of descent of a curriculum under resampled statistics.

    All tasks are resampled together, so that what two curricula share cancels in their difference.

    Attributes
    ----------
    stages : (stages, resamples)
        Infinite where a resample never learns.
    direct : (resamples,)
        Direct training; nan if the last stage is given by steps.
    given : (stages, resamples), optional
        Steps if all stages but the last end after the steps of the estimate; None for one stage.
    """

    stages: FloatArray
    direct: FloatArray
    given: FloatArray | None = None

    def interval_of(
        self, steps: Steps, number: Callable[[FloatArray], FloatArray] = _total, *, signed: bool = False
    ) -> Steps:
        """Return steps with the interval of a number of the stages' resampled steps, by default their total."""
        given = None if self.given is None else number(self.given)
        low, high = interval(steps.descent, number(self.stages), signed=signed, given=given)
        return replace(steps, low=float(low), high=float(high))

    def direct_interval_of(self, steps: Steps) -> Steps:
        """Return steps of direct training with their interval."""
        low, high = interval(steps.descent, self.direct)
        return replace(steps, low=float(low), high=float(high))


def _scale(tasks: Sequence[Task], training: Training) -> float:
    """Training loss over half the squared error, which must be the same for all tasks."""
    scales = {loss_scale(task, training) for task in tasks}
    if len(scales) != 1:
        raise InvalidSpec("loss='mse' needs tasks with the same number of targets. Use half_mse.", field="loss")
    return scales.pop()


class Method(ABC):
    """How each task of a pool is learned by one network, from any state of the network.

    A state is an array, such as the weights of the network. Functions that take `states` take a leading batch axis.
    Only the method that made a state knows its layout.

    Attributes
    ----------
    tasks : tuple of Task
        The pool; the target is the last.
    network : LinearRNN, TwoLayer, Deep or Activated
        Before training.
    training : Training
    """

    #: Name of the method, as in ``method="pooled"``.
    name: str
    #: Forecast class if every condition holds.
    promise: str
    #: Keys of the papers the solutions rest on.
    citations: tuple[str, ...] = ()
    #: Kind of provenance.
    kind: str = "flow"
    #: Whether there is a gradient flow; otherwise descent is all that is known.
    has_flow: bool = True
    #: Whether plans are searched by counting descent, many stops together, instead of by the flow.
    counts_many: bool = False
    #: Each task's modes in one frame; empty if the tasks have no common modes.
    modes: tuple[Modes, ...] = ()
    #: Seed of measured responses.
    seed: int | None = None
    #: Weights that learn.
    learn: tuple[str, ...] | None = None
    #: Whether some task was estimated from trials that can be resampled.
    recorded: bool = False

    def __init__(self, tasks: Sequence[Task], network: Network, training: Training) -> None:
        self.tasks, self.network, self.training = tuple(tasks), network, training
        #: Of plain descent on half the squared error.
        self.learning_rate = training.learning_rate * _scale(tasks, training)
        self._conditions: dict[int, tuple[Assumption, ...]] = {}
        self._flows: dict[int, Solution] = {}
        self._direct: dict[tuple[int, Goal], tuple[Steps, FloatArray]] = {}
        self._direct_resamples: dict[Goal, FloatArray] = {}

    @property
    def target(self) -> int:
        """Index of the target."""
        return len(self.tasks) - 1

    # States

    @property
    @abstractmethod
    def start(self) -> FloatArray:
        """State before training."""

    @abstractmethod
    def network_of(self, state: FloatArray) -> Network:
        """The network in a state."""

    @abstractmethod
    def excess_loss(self, task: int, states: FloatArray) -> FloatArray:
        """Loss on a task above the least that the network can reach, (rows,)."""

    @abstractmethod
    def least_loss(self, task: int) -> float:
        """Least loss that the network can reach on a task; nan if the variance of the targets is unknown."""

    @abstractmethod
    def baseline_loss(self, task: int) -> float:
        """Excess loss of the zero map."""

    @abstractmethod
    def strengths(self, states: FloatArray) -> FloatArray:
        """Strength of each mode of the target, (rows, modes)."""

    def accuracy(self, task: int, states: FloatArray) -> FloatArray:
        """1 - sqrt(excess loss / baseline loss), (rows,)."""
        baseline = self.baseline_loss(task)
        if not baseline > 0:
            return np.ones(len(states))
        return 1.0 - np.sqrt(np.maximum(self.excess_loss(task, states), 0.0) / baseline)

    def loss(self, task: int, states: FloatArray) -> FloatArray:
        """Half the mean squared error, (rows,); the excess loss if the least loss is unknown."""
        least = self.least_loss(task)
        return self.excess_loss(task, states) + (0.0 if math.isnan(least) else least)

    # Gradient flow

    def flow(self, task: int, state: FloatArray) -> Solution:
        """Gradient flow of training on a task from a state; those from the start are computed once."""
        if state is not self.start:
            return self._flow(task, state)
        if task not in self._flows:
            self._flows[task] = self._flow(task, state)
        return self._flows[task]

    @abstractmethod
    def _flow(self, task: int, state: FloatArray) -> Solution:
        """Compute the gradient flow of training on a task from a state."""

    @abstractmethod
    def flow_states(self, flow: Solution, times: FloatArray) -> FloatArray:
        """States of a flow of this method at times in gradient steps; infinity is where the flow rests."""

    def flow_steps_to(self, task: int, state: FloatArray, goal: Goal, flow: Solution | None = None) -> float:
        """Flow steps on a task until the goal is reached; infinite if provably never, nan if unknown."""
        if self.nothing_to_learn(task, goal):
            return 0.0
        if self.unreachable(task, goal):
            return math.inf
        return self._flow_steps_to(task, state, goal, self.flow(task, state) if flow is None else flow)

    def _flow_steps_to(self, task: int, state: FloatArray, goal: Goal, flow: Solution) -> float:
        return flow.time_to_loss(self.goal_excess(task, goal))

    def after_flow(self, task: int, state: FloatArray, steps: float, flow: Solution | None = None) -> FloatArray:
        """State after flow steps; the state itself if the flow does not get that far."""
        try:
            return self.flow_states(self.flow(task, state) if flow is None else flow, np.array([steps]))[0]
        except NotLearned:
            return state

    # Gradient descent

    def rests_at_saddle(self, task: int, state: FloatArray, flow: Solution) -> bool:
        """Whether the flow of training on a task from a state rests above the least loss."""
        rest = self.after_flow(task, state, math.inf, flow)
        return bool(self.excess_loss(task, rest[None])[0] > self.goal_excess(task, CONVERGED))

    def converged(self, task: int, state: FloatArray, rest: FloatArray) -> FloatArray:
        """State at which descent rests, if the flow rests at `rest`."""
        return rest

    def steps_to(self, task: int, states: FloatArray, goal: Goal) -> tuple[FloatArray, FloatArray]:
        """Steps of gradient descent until each state reaches the goal, (rows,), and the states then.

        Steps are infinite if descent diverges or is proved never to arrive, and nan if it does not arrive within
        `most_counted` steps.
        """
        if self.nothing_to_learn(task, goal):
            return np.zeros(len(states)), states
        if self.unreachable(task, goal):
            return np.full(len(states), np.inf), states
        return self._steps_to(task, states, goal)

    def _steps_to(self, task: int, states: FloatArray, goal: Goal) -> tuple[FloatArray, FloatArray]:
        """Count steps to a goal that the network can reach."""
        raise NotImplementedError

    def proved_never(self, task: int, state: FloatArray, goal: Goal) -> bool:
        """Whether descent from a state, from which the flow never reaches the goal, is proved never to reach it.

        Finite steps can leave a saddle at which the flow rests.
        """
        return self.unreachable(task, goal) or self.rests(task, state)

    def why_never(self, task: int, goal: Goal) -> str:
        """Why the flow from the start never reaches a goal on a task."""
        if self.unreachable(task, goal):
            loss, least = self.goal_loss(task, goal), self.least_loss(task)
            return f"that is a loss of {loss:.3g}, and the least that this network can reach is {least:.3g}"
        if self.rests(task, self.start):
            return "the gradient is zero at the initial weights"
        return next(iter(self.flow(task, self.start).remarks), "")

    def rests(self, task: int, state: FloatArray) -> bool:
        """Whether a step of descent does not change a state."""
        return bool(np.array_equal(self.advance(task, state[None], [1])[0, 0], state))

    def most_counted(self, task: int, state: FloatArray) -> float:
        """Descent steps after which a count ends."""
        return math.inf

    @abstractmethod
    def advance(self, task: int, states: FloatArray, stops: Sequence[int]) -> FloatArray:
        """States after each of these increasing numbers of descent steps, (stops, rows, ...)."""

    # Goals

    def goal_excess(self, task: int, goal: Goal) -> float:
        """Excess loss at which the goal is reached."""
        if isinstance(goal, Loss) and self.training.loss != "half_mse":
            raise InvalidSpec("A goal of Loss needs loss='half_mse'. Give R2 or Explained.", field="goal")
        return goal.excess(self.baseline_loss(task), self.least_loss(task))

    def nothing_to_learn(self, task: int, goal: Goal) -> bool:
        """Whether no map is better than the zero map, so that a goal relative to the baseline loss is met at once."""
        baseline = self.baseline_loss(task)
        least = self.least_loss(task)
        whole = baseline + (0.0 if math.isnan(least) else max(least, 0.0))
        return baseline <= NOTHING * whole and (
            self.per_mode(goal) or abs(self.goal_excess(task, goal)) <= NOTHING * whole
        )

    def unreachable(self, task: int, goal: Goal) -> bool:
        """Whether the goal is a loss below the least that the network can reach."""
        return not self.per_mode(goal) and self.goal_excess(task, goal) < 0

    def goal_accuracy(self, task: int, goal: Goal) -> float:
        """Accuracy at which the goal is reached: of every mode, or 1 - sqrt(excess loss / baseline loss).

        It is unknown if the weights that learn reach no loss below that of the zero map.
        """
        if self.per_mode(goal):
            return goal.value
        excess, baseline = max(self.goal_excess(task, goal), 0.0), self.baseline_loss(task)
        return math.nan if excess > 0 > baseline else 1.0 - math.sqrt(excess / (baseline or 1.0))

    def goal_loss(self, task: int, goal: Goal) -> float:
        """Loss at which the goal is reached."""
        return self.least_loss(task) + self.goal_excess(task, goal)

    def per_mode(self, goal: Goal) -> bool:
        """Whether the goal asks for the accuracy of every mode instead of a loss."""
        return False

    def learned(self, task: int, goal: Goal) -> Learned:
        """Return the test whether maps of the pooled input have learned a task."""
        raise NotImplementedError

    def learning_time(self, task: int, goal: Goal) -> LearningTime:
        """Steps of training on one task from the start, mode by mode where there are modes."""
        steps = self.train(task, self.start, self.start, goal)[0]
        return LearningTime(
            self.goal_accuracy(task, goal), np.array([steps.flow]), np.array([steps.descent]), (steps.status,),
            tried=steps.tried, loss=steps.loss,
        )  # fmt: skip

    def train(
        self, task: int, flow_state: FloatArray, state: FloatArray, goal: Goal, flow: Solution | None = None
    ) -> tuple[Steps, FloatArray]:
        """Steps of the flow and of descent to a goal, each from its own state, and the state of descent then."""
        if flow_state is self.start and state is self.start:
            if (task, goal) not in self._direct:
                self._direct[task, goal] = self._train(task, flow_state, state, goal, flow)
            return self._direct[task, goal]
        return self._train(task, flow_state, state, goal, flow)

    def _train(
        self, task: int, flow_state: FloatArray, state: FloatArray, goal: Goal, flow: Solution | None
    ) -> tuple[Steps, FloatArray]:
        flow = self.flow(task, flow_state) if flow is None else flow
        time = self.flow_steps_to(task, flow_state, goal, flow)
        if math.isinf(time) and self.proved_never(task, state, goal):
            return Steps(time, time, status=Status.not_learned), state
        counted, tried, loss = math.nan, math.nan, math.nan
        most, known = self.most_counted(task, state), flow.conditions_until(time)
        if math.isinf(time) or not time > most or not settles(known):  # descent does not follow a flow too sharp for it
            counts, ends = self.steps_to(task, state[None], goal)
            counted, state = float(counts[0]), ends[0]
            if math.isnan(counted):
                tried, loss = most, float(self.loss(task, ends)[0])
        status = status_of(time, counted, known)
        if status is Status.not_learned and not (state.any() and self.rests(task, state)):  # 0 after an overflow
            status = Status.diverged
        if not math.isnan(tried):
            status = Status.not_within
        return Steps(counted, time, status=status, tried=tried, loss=loss), state

    def goal_text(self, task: int, goal: Goal) -> str:
        """What the goal means for a task, in words."""
        baseline = self.baseline_loss(task)
        share = self.goal_excess(task, goal) / baseline if baseline > 0 else 0.0
        return f"{goal.text}: {100 * share:.3g}% of the loss that this network can remove is left"

    # Conditions

    def measure_conditions(self, task: int) -> tuple[Assumption, ...]:
        """Measure the conditions of the theory for one task."""
        return self.flow(task, self.start).assumptions

    def conditions(self, task: int) -> tuple[Assumption, ...]:
        """Conditions of the theory for one task, measured once."""
        if task not in self._conditions:
            self._conditions[task] = self.measure_conditions(task)
        return self._conditions[task]

    def steady(self, task: int, state: FloatArray) -> bool:
        """Whether it is sure that no count of descent from a state depends on rounding, so that `unsteady` is empty."""
        return True

    def unsteady(self, task: int, state: FloatArray, goal: Goal) -> tuple[Assumption, ...]:
        """Conditions along descent from a state to a goal, measured if the count depends on rounding; else none."""
        return ()

    @cached_property
    def assumptions(self) -> tuple[Assumption, ...]:
        """For each condition the worst value over the tasks."""
        return worst(map(self.conditions, range(len(self.tasks))))

    def trust(self, places: Sequence[int]) -> Trust:
        """How far numbers about some of the tasks can be trusted."""
        return Trust(worst(map(self.conditions, sorted(set(places)))), self.promise)

    def largest_rate(self, task: int) -> float:
        """Learning rate below which descent is sure to settle on a task; nan if not measured."""
        return self.settling_rate(self.conditions(task))

    def settling_rate(self, assumptions: Iterable[Assumption]) -> float:
        """Learning rate below which measured conditions allow descent to settle; nan if none limits it."""
        limits = (a for a in assumptions if a.name == LIMIT and a.measured > 0)
        return min((self.learning_rate * a.allowed / a.measured for a in limits), default=math.nan)

    def assumes_gaussian(self, task: int) -> bool:
        """Whether numbers about a task assume Gaussian trials, because only its second moments are known."""
        return False

    def trial_values(self, places: Iterable[int]) -> dict[str, bool]:
        """JSON value that says whether Gaussian trials are assumed; none for linear networks, which need no trials."""
        if self.promise != "response":
            return {}
        return {"gaussian_trials_assumed": any(map(self.assumes_gaussian, places))}

    @property
    def applies(self) -> bool:
        """Whether all assumptions except the learning-rate limit hold."""
        return all(a.holds for a in self.assumptions if a.condition.binding and a.name != LIMIT)

    # Resampling

    def resample(self, places: Sequence[int], rules: Sequence[Rule]) -> ResampledSteps | None:
        """Steps of stages under resampled statistics; None if no task can be resampled."""
        if not self.recorded:
            return None
        states, counts, last = self._resampled_start, [], rules[-1][0]
        direct = np.full(len(states), np.nan) if last is None else self._resampled_direct(last)
        if last is not None and list(places) == [self.target]:
            return ResampledSteps(direct[None], direct)
        for place, (goal, given) in zip(places, rules, strict=True):
            if goal is not None:
                steps, states = self._count_resampled(place, states, goal)
            else:
                stop = math.ceil(given or 0.0)
                steps, states = np.full(len(states), float(stop)), self._advance_resampled(place, states, stop)
            counts.append(steps)
        return ResampledSteps(np.stack(counts), direct)

    def _resampled_direct(self, goal: Goal) -> FloatArray:
        """Steps of direct training in every resample, counted once."""
        if goal not in self._direct_resamples:
            self._direct_resamples[goal] = self._count_resampled(self.target, self._resampled_start, goal)[0]
        return self._direct_resamples[goal]

    #: Number of resamples.
    resamples: int

    @property
    def _resampled_start(self) -> FloatArray:
        """State before training in every resample."""
        return np.repeat(self.start[None], self.resamples, axis=0)

    def _advance_resampled(self, task: int, states: FloatArray, stop: int) -> FloatArray:
        """States of every resample after some steps."""
        raise NotImplementedError

    def _count_resampled(self, task: int, states: FloatArray, goal: Goal) -> tuple[FloatArray, FloatArray]:
        """Steps of every resample to the goal and the states then; late ones never arrive."""
        raise NotImplementedError

    def resample_stops(self, order: Sequence[int], lengths: Sequence[Sequence[int]], goal: Goal) -> FloatArray:
        """Resampled steps for several lengths of the stages before the target, (lengths, stages, resamples)."""
        rows = []
        for steps in lengths:
            rules: list[Rule] = [*((None, float(n)) for n in steps), (goal, None)]
            resampled = self.resample([*order, self.target], rules)
            assert resampled is not None
            rows.append(resampled.stages)
        return np.stack(rows)

    # Reports

    @property
    def for_plans(self) -> Method:
        """The method by which plans are searched, if the flow of this one cannot compare them."""
        return self

    @property
    def precise(self) -> Method:
        """The method at the precision of a report, if it searches with less."""
        return self

    @property
    def remarks(self) -> tuple[str, ...]:
        """Notes on direct training."""
        return self.flow(self.target, self.start).remarks

    def mode_rows(self, task: int, goal: Goal) -> list[dict[str, Any]]:
        """One row of a table per mode of training on a task from the start."""
        status, (first, best) = self.learning_time(task, goal).status.name, self._start_and_best(task)
        each = enumerate(zip(first.tolist(), best.tolist(), strict=True))
        return [{"mode": k, "optimum": u, "initial": v, "status": status} for k, (v, u) in each]

    def _start_and_best(self, task: int) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Strength of each mode of a task before training and at its end."""
        return np.asarray(self.flow(task, self.start).at([0.0, math.inf])["strength"].values)

    def solution(self) -> Solution:
        """Gradient flow of direct training, integrated precisely where it has no closed form."""
        return self.flow(self.target, self.start)

    def readable_modes(self, task: int) -> Modes | None:
        """Modes whose strengths can be read from the outputs of a network in training; None if there are none."""
        return None

    def loss_range(self, task: int, end: FloatArray) -> LossRange:
        """Losses between which real training on a task is judged, given its forecast end state."""
        from learncast.training.measured_accuracy import LossRange, answers_of

        excess = float(self.excess_loss(task, end[None])[0])
        return LossRange(self.baseline_loss(task), answers_of(self.network_of(end)), excess)

    def provenance(self, *parts: Any) -> Provenance:
        """Origin of numbers; the hash covers everything that could change one."""
        own = (
            *(t.hash for t in self.tasks), self.network.hash, self.training.hash, self.name, self.seed, *self._settings,
        )  # fmt: skip
        return Provenance(self.kind, self.citations, spec_hash(*own, *parts), self.seed)

    @property
    def _settings(self) -> tuple[Any, ...]:
        """Further settings of this method that decide numbers."""
        return ()

    def place(self, task: Task) -> int:
        """Index of a task of the pool."""
        index = next((k for k, other in enumerate(self.tasks) if other is task or other.hash == task.hash), None)
        if index is None:
            raise InvalidSpec(
                f"{task.name!r} is not one of the tasks of this method: {', '.join(t.name for t in self.tasks)}.",
                field="task",
            )
        return index
