"""The ground of modes: tasks and a network that fall apart into independent problems, in closed form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from learncast._core.validation import FloatArray
from learncast.networks.linear_rnn import LinearRNN
from learncast.planning.methods.ground import Ground, Learned, ReplicaSteps, State
from learncast.planning.schedules.course import Course
from learncast.tasks.task import Task
from learncast.theory.assumptions import Assumption
from learncast.theory.dynamics.mode_equation import Problem
from learncast.theory.dynamics.modes import Modes, ModeSolution, can_be_resampled, modes_of, with_replicas
from learncast.theory.dynamics.solution import LearningTime, Solution

if TYPE_CHECKING:
    from learncast.training.measured_accuracy import LossRange


class ModeGround(Ground):
    """Common modes and a fixed recurrence. States are the input and output weight of each mode, (2, modes).

    Attributes
    ----------
    modes : tuple of Modes
        Each task in one frame, the target's.
    """

    by = "modes"
    promise = "exact"
    kind = "theory"
    citations = ("curriculum2025", "proca2025", "saxe2014")
    batched = False
    learn = ("input", "output")

    def __init__(
        self, modes: Sequence[Modes], network: Any, learning_rate: float, goal: str = "modes", seed: int = 0
    ) -> None:
        super().__init__([m.task for m in modes], network, learning_rate)
        self.modes, self.goal, self._resampling = tuple(modes), goal, seed

    @classmethod
    def of(cls, tasks: Sequence[Task], network: LinearRNN, learning_rate: float, goal: str, seed: int) -> ModeGround:
        """Take the tasks apart, the target's frame deciding."""
        target, *rest = modes_of([tasks[-1], *tasks[:-1]], network)
        return cls((*rest, target), network, learning_rate, goal, seed)

    def solved(self, modes: Modes) -> ModeSolution:
        """The closed form of modes."""
        return ModeSolution(modes, self.network, self.learning_rate)

    @cached_property
    def from_start(self) -> tuple[ModeSolution, ...]:
        """Each task's solution from the start, whose curvatures every question shares."""
        return tuple(self.solved(modes) for modes in self.modes)

    @property
    def optimum(self) -> FloatArray:
        return self.modes[-1].optimum

    @property
    def start(self) -> State:
        alignment = self.modes[-1].alignment
        return np.stack([alignment.input_weight, alignment.output_weight])

    @cached_property
    def problems(self) -> tuple[Problem, ...]:
        """Each task's modes."""
        return tuple(Problem(m.weighted_cross, m.weighted_input, m.imbalance) for m in self.modes)

    @cached_property
    def _replicas(self) -> tuple[Modes, ...]:
        """The modes with replicas of their strengths, where they were measured on trials."""
        # A stream for each task: those of the same trials are drawn alike.
        return tuple(with_replicas(m, np.random.default_rng(self._resampling)) for m in self.modes)

    def course(self, task: int, state: State) -> Solution:
        return self.solved(self.modes[task].moved(state[0], state[1]))

    def state_at(self, course: Solution, steps: float) -> State:
        return self.along(course, np.array([steps]))[0]

    def along(self, course: Solution, times: FloatArray) -> list[State]:
        return list(np.stack(cast(ModeSolution, course).weights_at(times), axis=1))

    def steps_to(self, task: int, state: State, accuracy: float, course: Solution | None = None) -> float:
        strength, imbalance = state[0] * state[1], (state[0] - state[1]) * (state[0] + state[1])
        if task == self.target and self.goal == "loss":
            return float(self._rest(accuracy, strength[None])[0]) / self.learning_rate
        p = self.problems[task]
        here = Problem(p.cross, p.power, self._imbalance(state, imbalance))
        return float(here.arrival(strength, 1.0 - accuracy)[0]) / self.learning_rate

    def _imbalance(self, state: State, imbalance: FloatArray) -> FloatArray:
        """Conserved by the flow: round-off must not let a balanced start off its separatrix."""
        own = self.modes[-1].imbalance
        same = np.abs(imbalance - own) <= 1e-12 * (state**2).sum(axis=0)
        return np.where(same, own, imbalance)

    def _rest(self, accuracy: float, strengths: FloatArray) -> FloatArray:
        """Flow time on the target until its loss as a whole is low enough, from strengths (rows, modes)."""
        own = self.modes[-1]
        whole = np.array([[m.weighted_cross, m.weighted_input] for m in self.modes[-1:]])
        course = Course(
            cross=whole[:, 0], power=whole[:, 1], cost=np.ones(1), imbalance=own.imbalance, start=own.start,
            tolerance=1.0 - accuracy, by_loss=True, switch_cost=0.0, least=np.full(1, -np.inf), most=np.ones(1),
            most_loss=np.full(1, np.inf),
        )  # fmt: skip
        return course.rest(strengths)

    def counted(self, task: int, states: Sequence[State], accuracy: float) -> tuple[FloatArray, list[State]]:
        p = self.problems[task]
        by_loss = task == self.target and self.goal == "loss"
        arrived = p.below((1 - accuracy) ** 2 * self.whole(task)) if by_loss else p.within(1.0 - accuracy)
        steps, ends = p.counted(np.stack(states), arrived, self.learning_rate)
        return steps, list(ends)

    def learned(self, task: int, accuracy: float) -> Learned:
        p, frame = self.problems[task], self.modes[task].frame
        by_loss = task == self.target and self.goal == "loss"
        arrived = p.below((1 - accuracy) ** 2 * self.whole(task)) if by_loss else p.within(1.0 - accuracy)

        def there(maps: FloatArray) -> NDArray[np.bool_]:
            strengths = np.einsum("mk,rmn,nk->rk", frame.mode_outputs, maps, frame.mode_inputs)
            return arrived(np.stack([strengths, np.ones_like(strengths)], axis=1), np.arange(len(maps)))

        return there

    def descended(self, task: int, states: Sequence[State], stops: Sequence[int]) -> list[list[State]]:
        return [list(at) for at in self.problems[task].descended(np.stack(states), stops, self.learning_rate)]

    def excess(self, task: int, state: State) -> float:
        return float(self.modes[task].excess_loss(state[0] * state[1]))

    def least(self, task: int) -> float:
        best = np.nan_to_num(self.modes[task].optimum, nan=0.0)
        return float(self.modes[task].loss(best))

    def whole(self, task: int) -> float:
        return float(self.modes[task].excess_loss(np.zeros(len(self.modes[task]))))

    def strength(self, state: State) -> FloatArray:
        return np.asarray(state[0] * state[1])

    def accuracy(self, task: int, state: State) -> float:
        """That of the worst mode."""
        return float(self.modes[task].accuracy(state[0] * state[1]).min())

    def meaning(self, task: int, accuracy: float) -> str:
        if task == self.target and self.goal == "loss":
            return super().meaning(task, accuracy)
        return f"learned to {accuracy:.4g}: every mode is within {1.0 - accuracy:.3g} of its optimum"

    def learning_time(self, task: int, accuracy: float) -> LearningTime:
        if task == self.target and self.goal == "loss":
            return super().learning_time(task, accuracy)
        return self.from_start[task].time_to(accuracy)

    def conditions(self, task: int) -> tuple[Assumption, ...]:
        return self.from_start[task].assumptions

    @property
    def recorded(self) -> bool:
        return any(m.replicas is not None or can_be_resampled(m.task) for m in self.modes)

    def replica_problems(self, places: Sequence[int]) -> list[Problem] | None:
        """Each task in every replica, (replicas, modes); a task that is known exactly is the same in all of them."""
        if not self.recorded:
            return None
        modes = [self._replicas[k] for k in places]
        measured = [m.replicas for m in modes]
        number = max((len(m.replicas[0]) for m in self._replicas if m.replicas is not None), default=0)
        if number == 0:
            return None
        found = []
        for m, replicas in zip(modes, measured, strict=True):
            cross, power = (m.weighted_cross[None], m.weighted_input[None]) if replicas is None else replicas
            shape = (number, len(m))
            found.append(Problem(np.broadcast_to(cross, shape), np.broadcast_to(power, shape), m.imbalance))
        return found

    def replicated(
        self, places: Sequence[int], rules: Sequence[tuple[float | None, float | None]]
    ) -> ReplicaSteps | None:
        problems = self.replica_problems(places)
        if problems is None:
            return None
        rate, number = self.learning_rate, len(problems[0].cross)
        flow = np.broadcast_to(self.strength(self.start), problems[0].cross.shape)
        descent = np.broadcast_to(self.start, (number, *self.start.shape))
        begin, flows, counts = descent, [], []
        for (accuracy, given), p in zip(rules, problems, strict=True):
            if accuracy is not None:
                time, after = p.arrival(flow, 1.0 - accuracy)
                flow = np.where(np.isfinite(time)[:, None], after, p.strength(np.full(time.shape, np.inf), flow))
                steps, descent = p.counted(descent, p.within(1.0 - accuracy), rate, precise=False)
            else:
                assert given is not None
                time, steps = np.full(number, given * rate), np.full(number, math.ceil(given))
                flow = p.strength(time, flow)
                descent = p.descended(descent, [math.ceil(given)], rate, precise=False)[0]
            flows.append(time / rate)
            counts.append(steps)
        direct = direct_descent = np.full(number, np.nan)
        last = rules[-1][0]
        if last is not None:
            direct = problems[-1].arrival(self.strength(self.start), 1.0 - last)[0] / rate
            learned = problems[-1].within(1.0 - last)
            direct_descent = problems[-1].counted(begin, learned, rate, precise=False)[0]
        return ReplicaSteps(np.stack(flows), np.stack(counts), direct, direct_descent)

    @property
    def _settings(self) -> tuple[Any, ...]:
        return (self._resampling,) if self.recorded else ()

    def readable_modes(self, task: int) -> Modes | None:
        return self.modes[task] if self.promise == "exact" else None

    def loss_range(self, task: int, end: State) -> LossRange:
        from learncast.training.measured_accuracy import LossRange

        return LossRange.of_modes(self.modes[task])

    def mode_rows(self, task: int, accuracy: float) -> list[dict[str, Any]]:
        m, learned = self.modes[task], self.learning_time(task, accuracy)
        if len(learned.mode_flow_steps) != len(m):
            return super().mode_rows(task, accuracy)
        return [
            {
                "mode": k,
                "recurrence": m.recurrence[k],
                "weighted_cross": m.weighted_cross[k],
                "weighted_input": m.weighted_input[k],
                "optimum": m.optimum[k],
                "initial": m.start[k],
                "flow_steps": learned.mode_flow_steps[k],
                "descent_steps": learned.mode_descent_steps[k],
                "status": learned.mode_status[k].name,
            }
            for k in range(len(m))
        ]
