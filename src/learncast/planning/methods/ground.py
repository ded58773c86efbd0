"""The ground: how a pool of tasks is learned by one network, whatever is asked of it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from learncast._core.errors import InvalidSpec, NotLearned
from learncast._core.validation import FloatArray
from learncast.results import Provenance, Status, spec_hash
from learncast.tasks.task import Task
from learncast.theory.assumptions import Assumption, Trust, worst
from learncast.theory.dynamics.solution import LearningTime, Solution, status_of

if TYPE_CHECKING:
    import xarray as xr

    from learncast.training.measured_accuracy import LossRange

#: What accuracy may be asked of: every mode, or the loss as a whole.
GOALS = ("modes", "loss")

#: Where the network is: strengths of modes, or weights. Only the ground that made a state looks into it.
State = Any

#: Whether each of some maps of the (pooled) input, (rows, outputs, inputs), has learned a task.
Learned = Callable[[FloatArray], NDArray[np.bool_]]


@dataclass(frozen=True, eq=False)
class ReplicaSteps:
    """Steps of stages and of direct training in every resampling of measured statistics.

    Every task is resampled alike, so that what curricula share cancels in their differences.

    Attributes
    ----------
    flow, descent : (stages, replicas)
        nan where not told.
    direct, direct_descent : (replicas,)
        nan when the last stage is given by steps.
    """

    flow: FloatArray
    descent: FloatArray
    direct: FloatArray
    direct_descent: FloatArray


class Ground(ABC):
    """Training on each of several tasks, the target last, from wherever the network is.

    Attributes
    ----------
    tasks : tuple of Task
        The pool; the target is the last.
    network : LinearRNN, TwoLayer or Activated
        Before training.
    learning_rate : float
    goal : str
        What must be accurate at the end of the target: every mode, or the loss as a whole.
    """

    #: How it is named where one is asked for by name.
    by: str
    #: What may be promised where every condition holds.
    promise: str
    #: Papers the solutions rest on, and what finds them.
    citations: tuple[str, ...] = ()
    kind: str = "flow"
    goal: str = "loss"
    #: Whether stops of many plans are best counted by descent at once, instead of searched by the flow.
    batched: bool = False
    #: Each task's modes in one frame; none where tasks have no common modes.
    modes: tuple[Any, ...] = ()
    #: Flow steps beyond which descent is not counted at all, since the count would be given up.
    countable: float = math.inf
    #: Seed of measured responses.
    seed: int | None = None

    def __init__(self, tasks: Sequence[Task], network: Any, learning_rate: float) -> None:
        self.tasks, self.network, self.learning_rate = tuple(tasks), network, learning_rate

    @property
    def target(self) -> int:
        """Place of the target."""
        return len(self.tasks) - 1

    @property
    @abstractmethod
    def start(self) -> State:
        """Where training begins."""

    @abstractmethod
    def course(self, task: int, state: State) -> Solution:
        """Gradient flow of training on a task from a state."""

    @abstractmethod
    def state_at(self, course: Solution, steps: float) -> State:
        """Where a course of this ground leads after so many steps of the flow; infinity is where it rests."""

    @abstractmethod
    def steps_to(self, task: int, state: State, accuracy: float, course: Solution | None = None) -> float:
        """Flow steps on a task until it is learned; infinite when never."""

    @abstractmethod
    def counted(self, task: int, states: Sequence[State], accuracy: float) -> tuple[FloatArray, list[State]]:
        """Steps of gradient descent until a task is learned from each state, and where they lead.

        Infinite where descent runs away, unknown (nan) where the count was given up.
        """

    @abstractmethod
    def descended(self, task: int, states: Sequence[State], stops: Sequence[int]) -> list[list[State]]:
        """Where each of these rising numbers of descent steps leads: by stop, then by state."""

    @abstractmethod
    def excess(self, task: int, state: State) -> float:
        """Loss on a task above the least."""

    @abstractmethod
    def least(self, task: int) -> float:
        """The least loss itself; nan where the power of the targets is unknown."""

    @abstractmethod
    def whole(self, task: int) -> float:
        """Excess loss of a network that answers nothing."""

    @abstractmethod
    def strength(self, state: State) -> FloatArray:
        """What the network does along the target's modes."""

    def accuracy(self, task: int, state: State) -> float:
        """1 - sqrt(excess loss / that of a network that answers nothing)."""
        whole = self.whole(task)
        return 1.0 - math.sqrt(max(self.excess(task, state), 0.0) / whole) if whole > 0 else 1.0

    def loss(self, task: int, state: State) -> float:
        """Half the mean squared error; above the best linear map's where that is unknown."""
        least = self.least(task)
        return self.excess(task, state) + (0.0 if math.isnan(least) else least)

    def after(self, task: int, state: State, steps: float, course: Solution | None = None) -> State:
        """Where so many steps of the flow lead; the state itself where the flow does not lead on."""
        try:
            return self.state_at(self.course(task, state) if course is None else course, steps)
        except NotLearned:
            return state

    def along(self, course: Solution, times: FloatArray) -> list[State]:
        """States of a course at many times."""
        return [self.state_at(course, float(time)) for time in times]

    def learning_time(self, task: int, accuracy: float) -> LearningTime:
        """Training on one task alone: flow and descent, mode by mode where there are modes."""
        steps = self.steps_to(task, self.start, accuracy)
        counted = steps if math.isinf(steps) else math.nan
        if steps <= self.countable and math.isfinite(steps):
            counted = float(self.counted(task, [self.start], accuracy)[0][0])
        return LearningTime(accuracy, np.array([steps]), np.array([counted]), (self.status(task, steps, counted),))

    def status(self, task: int, steps: float, counted: float) -> Status:
        """What a number of flow steps and of descent steps on a task mean together."""
        return status_of(steps, counted, self.measured(task))

    @cached_property
    def trust(self) -> Trust:
        """How far the numbers can be trusted: the one statement that everything else repeats."""
        return Trust(self.assumptions, self.promise)

    def trust_of(self, places: Sequence[int]) -> Trust:
        """The same for some of the tasks, such as those that a plan uses."""
        return Trust(worst(map(self.measured, sorted(set(places)))), self.promise)

    @cached_property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Conditions at the start, the worst of each over the tasks."""
        return worst(map(self.measured, range(len(self.tasks))))

    def conditions(self, task: int) -> tuple[Assumption, ...]:
        """Conditions of one task, as measured."""
        return self.course(task, self.start).assumptions

    def measured(self, task: int) -> tuple[Assumption, ...]:
        """The same, measured once."""
        if task not in self._measured:
            self._measured[task] = self.conditions(task)
        return self._measured[task]

    @cached_property
    def _measured(self) -> dict[int, tuple[Assumption, ...]]:
        return {}

    def largest_rate(self, task: int) -> float:
        """Learning rate below which descent is sure to settle on a task; nan where that was not measured."""
        measured = [a for a in self.measured(task) if a.name == "stable_learning_rate" and a.measured > 0]
        return min((self.learning_rate * a.allowed / a.measured for a in measured), default=math.nan)

    def stable_on(self, task: int) -> bool:
        """Whether gradient descent settles on one task."""
        return all(a.holds for a in self.measured(task) if a.name == "stable_learning_rate")

    @property
    def fits(self) -> bool:
        """Whether the ground speaks of this problem, whatever becomes of descent on it."""
        return all(a.holds for a in self.assumptions if a.condition.binding and a.name != "stable_learning_rate")

    @property
    def precise(self) -> Ground:
        """The same to the precision of a report, where searching is less precise."""
        return self

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader should know of training on the target alone, beyond its numbers."""
        return self.course(self.target, self.start).remarks

    def replicated(
        self, places: Sequence[int], rules: Sequence[tuple[float | None, float | None]]
    ) -> ReplicaSteps | None:
        """Stages, each to an accuracy or for steps, in every resampling of measured statistics; None without such."""
        return None

    def replica_steps(self, order: Sequence[int], lengths: Sequence[Sequence[int]], accuracy: float) -> FloatArray:
        """The same for several lengths of the stages before the target, (lengths, stages, replicas)."""
        found = []
        for steps in lengths:
            rules = [(None, float(n)) for n in steps if n > 0]
            kept = [k for k, n in zip(order, steps, strict=True) if n > 0]
            replicas = self.replicated([*kept, self.target], [*rules, (accuracy, None)])
            assert replicas is not None
            known = replicas.flow if np.isnan(replicas.descent).all() else replicas.descent
            row = np.zeros((len(order) + 1, known.shape[1]))
            row[[*(k for k, n in enumerate(steps) if n > 0), len(order)]] = known
            found.append(row)
        return np.stack(found)

    #: Weights that learn; the usual ones where None.
    learn: tuple[str, ...] | None = None

    def learned(self, task: int, accuracy: float) -> Learned:
        """What tells a map that has learned a task; where the map is all there is to the network."""
        raise NotImplementedError

    def has_learned(self, task: int, accuracy: float, network: Any) -> bool:
        """Whether a network has learned a task."""
        return bool(self.learned(task, accuracy)((network.maps[1] @ network.maps[0])[None])[0])

    @property
    def recorded(self) -> bool:
        """Whether some task was estimated from trials that can be drawn again."""
        return False

    def mode_rows(self, task: int, accuracy: float) -> list[dict[str, Any]]:
        """What there is to say of each mode of training on a task alone, for a table."""
        course, learned = self.course(task, self.start), self.learning_time(task, accuracy)
        first, last = by_mode(course.at([0.0, math.inf]).dataset)["strength"].values
        return [
            {"mode": k, "optimum": float(last[k]), "initial": float(first[k]), "status": learned.status.name}
            for k in range(len(first))
        ]

    @property
    def optimum(self) -> FloatArray:
        """Strength each mode of the target comes to."""
        return self.course(self.target, self.start).optimum

    def solution(self, *, tolerance: float, separatrix_tolerance: float | None) -> Solution:
        """Training on the target, for its own sake: as precise as it is asked to be."""
        return self.course(self.target, self.start)

    def meaning(self, task: int, accuracy: float) -> str:
        """What it means that a task is learned, in words."""
        left = (1.0 - accuracy) ** 2
        return (
            f"learned to {accuracy:.4g}: its excess loss is down to {left:.3g} of that of a network without an answer"
        )

    def goal_loss(self, task: int, accuracy: float) -> float:
        """Loss at which training on a task counts as learned."""
        return self.least(task) + (1.0 - accuracy) ** 2 * self.whole(task)

    def readable_modes(self, task: int) -> Any:
        """Modes whose strengths can be read from the outputs of a network in training; None where there are none."""
        return None

    def loss_range(self, task: int, end: State) -> LossRange:
        """What the loss of real training on a task is judged by, where the forecast of it ends in a state."""
        from learncast.training.measured_accuracy import LossRange, answers_of

        return LossRange(self.whole(task), answers_of(end), self.excess(task, end))

    def provenance(self, *parts: Any) -> Provenance:
        """Where numbers come from; everything that could change one is in the hash."""
        own = (
            *(t.hash for t in self.tasks),
            self.network.hash,
            self.learning_rate,
            self.by,
            self.goal,
            self.seed,
            *self._settings,
        )
        return Provenance(self.kind, self.citations, spec_hash(*own, *parts), self.seed)

    @property
    def _settings(self) -> tuple[Any, ...]:
        """What else decides the numbers of this ground."""
        return ()

    def place(self, task: Task) -> int:
        """Place of a task of the pool."""
        found = next((k for k, other in enumerate(self.tasks) if other is task), None)
        if found is None:
            found = next((k for k, other in enumerate(self.tasks) if other.hash == task.hash), None)
        if found is None:
            raise InvalidSpec(
                f"stages must be of tasks that the ground was made for, got task {task.name!r}. Use one of "
                f"{', '.join(t.name for t in self.tasks)}."
            )
        return found


def by_mode(dataset: xr.Dataset) -> xr.Dataset:
    """Strengths over (time, mode), also where each output answers several responses."""
    import xarray as xr

    strength = dataset["strength"]
    if "mode" in strength.dims:
        return dataset
    flat = strength.values.reshape(dataset.sizes["time"], -1)
    return xr.Dataset(
        {"strength": (("time", "mode"), flat, strength.attrs), "loss": dataset["loss"]},
        coords={"mode": ("mode", np.arange(flat.shape[1]))},
        attrs=dataset.attrs,
    )
