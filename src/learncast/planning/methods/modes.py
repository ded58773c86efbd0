"""The method of modes: tasks and a network that decompose into independent modes, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from learncast._core.validation import FloatArray
from learncast.networks import Network
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.planning.methods.method import Learned, Method
from learncast.procedure.goals import Accuracy, Goal
from learncast.procedure.training import Training
from learncast.tasks.task import Task
from learncast.theory.dynamics.mode_equation import resolved_start
from learncast.theory.dynamics.modes import Modes, ModeSolution, can_be_resampled, modes_of, with_resamples
from learncast.theory.dynamics.solution import LearningTime, Solution
from learncast.theory.dynamics.steps.mode_descent import MOST_STEPS, Problem, Reached

if TYPE_CHECKING:
    from learncast.training.measured_accuracy import LossRange


class ModeMethod(Method):
    """Common modes and a fixed recurrence. A state is the input and output weight of each mode, (2, modes).

    Attributes
    ----------
    modes : tuple of Modes
        Each task in one frame, the target's.
    """

    name = "modes"
    promise = "exact"
    kind = "theory"
    citations = ("curriculum2025", "proca2025", "saxe2014")
    learn = ("input", "output")

    def __init__(self, modes: Sequence[Modes], network: Network, training: Training, seed: int = 0) -> None:
        super().__init__([m.task for m in modes], network, training)
        self.modes, self._resampling_seed = tuple(modes), seed
        self.recorded = any(m.resamples is not None or can_be_resampled(m.task) for m in self.modes)

    @classmethod
    def of(cls, tasks: Sequence[Task], network: LinearRNN, training: Training, seed: int) -> ModeMethod:
        """Decompose the tasks in the frame of the target."""
        target, *rest = modes_of([tasks[-1], *tasks[:-1]], network)
        return cls((*rest, target), network, training, seed)

    def solve(self, modes: Modes) -> ModeSolution:
        """Closed form of modes."""
        return ModeSolution(modes, cast(LinearRNN, self.network), self.learning_rate)

    @cached_property
    def from_start(self) -> tuple[ModeSolution, ...]:
        """Each task's solution from the start."""
        return tuple(self.solve(modes) for modes in self.modes)

    @cached_property
    def problems(self) -> tuple[Problem, ...]:
        """Each task's weighted strengths."""
        return tuple(m.problem for m in self.modes)

    @cached_property
    def start(self) -> FloatArray:
        alignment = self.modes[-1].alignment
        return np.stack([alignment.input_weight, alignment.output_weight])

    def network_of(self, state: FloatArray) -> Network:
        return cast(LinearRNN | Activated, self.flow(self.target, state).network_at(0.0))

    def excess_loss(self, task: int, states: FloatArray) -> FloatArray:
        return self.modes[task].excess_loss(self.strengths(states))

    def least_loss(self, task: int) -> float:
        m = self.modes[task]
        return float(m.loss(np.where(m.held, np.nan_to_num(m.optimum, nan=0.0), 0.0)))

    def baseline_loss(self, task: int) -> float:
        return float(self.modes[task].excess_loss(np.zeros(len(self.modes[task]))))

    def strengths(self, states: FloatArray) -> FloatArray:
        return np.asarray(states[:, 0] * states[:, 1])

    def accuracy(self, task: int, states: FloatArray) -> FloatArray:
        """Accuracy of the worst mode, (rows,)."""
        return self.modes[task].accuracy(self.strengths(states)).min(axis=-1)

    def _flow(self, task: int, state: FloatArray) -> ModeSolution:
        if state is self.start:
            return self.from_start[task]
        return self.solve(self.modes[task].with_weights(state[0], state[1]))

    def flow_states(self, flow: Solution, times: FloatArray) -> FloatArray:
        return np.stack(cast(ModeSolution, flow).weights_at(times), axis=1)

    def _flow_steps_to(self, task: int, state: FloatArray, goal: Goal, flow: Solution) -> float:
        if not self.per_mode(goal):
            return super()._flow_steps_to(task, state, goal, flow)
        p = self.problems[task]
        start, earlier = resolved_start(state[0], state[1], p.cross)
        if earlier.any():
            return cast(ModeSolution, flow).time_to(goal.value).flow_steps
        here = Problem(p.cross, p.power, self._imbalance(state))
        return float(here.arrival(start, 1.0 - goal.value)[0]) / self.learning_rate

    def _imbalance(self, state: FloatArray) -> FloatArray:
        """Imbalance of a state; the start's where they agree, since the flow conserves it."""
        own = self.modes[-1].imbalance
        imbalance = (state[0] - state[1]) * (state[0] + state[1])
        return np.where(np.abs(imbalance - own) <= 1e-12 * (state**2).sum(axis=0), own, imbalance)

    def per_mode(self, goal: Goal) -> bool:
        return isinstance(goal, Accuracy)

    def _arrived(self, problem: Problem, task: int, goal: Goal) -> Reached:
        """Return the test whether weights of a problem of a task have reached the goal."""
        if isinstance(goal, Accuracy):
            return problem.within(1.0 - goal.value)
        baseline = (problem.power * problem.optimum**2).sum(axis=-1) / 2
        return problem.below(goal.excess(baseline, self.least_loss(task)))

    def _steps_to(self, task: int, states: FloatArray, goal: Goal) -> tuple[FloatArray, FloatArray]:
        p = self.problems[task]
        return p.steps_to(states, self._arrived(p, task, goal), self.learning_rate)

    def proved_never(self, task: int, state: FloatArray, goal: Goal) -> bool:
        """Always: modes learn independently, and both of the weights of a mode at a saddle keep opposite signs."""
        return True

    def why_never(self, task: int, goal: Goal) -> str:
        """Initial weights of the opposite sign, if there are any: both shrink to 0 together."""
        sizes, signs = np.abs(self.start), self.start.prod(axis=0) * self.problems[task].optimum
        opposed = np.flatnonzero((signs < 0) & np.isclose(sizes[0], sizes[1], rtol=1e-12, atol=0))
        if not opposed.size:
            return super().why_never(task, goal)
        modes = f"mode {', '.join(map(str, opposed + 1))}"
        return f"the initial weights of {modes} have the wrong sign, and only rounding or noise can turn it"

    def most_counted(self, task: int, state: FloatArray) -> float:
        return float(MOST_STEPS)

    def advance(self, task: int, states: FloatArray, stops: Sequence[int]) -> FloatArray:
        return np.stack(self.problems[task].advance(states, stops, self.learning_rate))

    def learned(self, task: int, goal: Goal) -> Learned:
        frame, arrived = self.modes[task].frame, self._arrived(self.problems[task], task, goal)

        def test(maps: FloatArray) -> NDArray[np.bool_]:
            last = maps[..., : len(frame.mode_inputs)]  # of the last input, if the maps are by lag
            strengths = np.einsum("mk,rmn,nk->rk", frame.mode_outputs, last, frame.mode_inputs)
            return arrived(np.stack([strengths, np.ones_like(strengths)], axis=1), np.arange(len(maps)))

        return test

    def goal_text(self, task: int, goal: Goal) -> str:
        if not isinstance(goal, Accuracy):
            return super().goal_text(task, goal)
        return f"{goal.text}: every mode is within {100 * (1.0 - goal.value):.3g}% of its optimum"

    def learning_time(self, task: int, goal: Goal) -> LearningTime:
        if not isinstance(goal, Accuracy) or self.nothing_to_learn(task, goal):
            return super().learning_time(task, goal)
        return self.from_start[task].time_to(goal.value)

    @cached_property
    def resampled_modes(self) -> tuple[Modes, ...]:
        """The modes with resamples of their strengths, where they were estimated from trials."""
        # One generator per task: tasks of the same trials are resampled identically.
        return tuple(with_resamples(m, np.random.default_rng(self._resampling_seed)) for m in self.modes)

    @cached_property
    def _resampled_problems(self) -> list[Problem]:
        """Each task in every resample, (resamples, modes); a known task is the same in all of them."""
        problems = []
        for m in self.resampled_modes:
            cross, power = (m.weighted_cross[None], m.weighted_input[None]) if m.resamples is None else m.resamples
            shape = (self.resamples, len(m))
            problems.append(Problem(np.broadcast_to(np.where(m.held, cross, 0.0), shape),
                                    np.broadcast_to(np.where(m.held, power, 0.0), shape), m.imbalance))  # fmt: skip
        return problems

    @property
    def resamples(self) -> int:  # type: ignore[override]
        """Number of resamples."""
        return max((len(m.resamples[0]) for m in self.resampled_modes if m.resamples is not None), default=0)

    def _advance_resampled(self, task: int, states: FloatArray, stop: int) -> FloatArray:
        return self._resampled_problems[task].advance(states, [stop], self.learning_rate, precise=False)[0]

    def _count_resampled(self, task: int, states: FloatArray, goal: Goal) -> tuple[FloatArray, FloatArray]:
        p = self._resampled_problems[task]
        return p.steps_to(states, self._arrived(p, task, goal), self.learning_rate, precise=False)

    @property
    def _settings(self) -> tuple[Any, ...]:
        return (self._resampling_seed,) if self.recorded else ()

    def readable_modes(self, task: int) -> Modes | None:
        return self.modes[task] if self.promise == "exact" else None

    def loss_range(self, task: int, end: FloatArray) -> LossRange:
        from learncast.training.measured_accuracy import LossRange

        return LossRange.of_modes(self.modes[task])

    def mode_rows(self, task: int, goal: Goal) -> list[dict[str, Any]]:
        m, learned = self.modes[task], self.learning_time(task, goal)
        if len(learned.mode_flow_steps) != len(m):
            return super().mode_rows(task, goal)
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
