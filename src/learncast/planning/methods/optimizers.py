"""Linear networks trained by momentum, Adam, AdamW or RMSprop: steps counted by descent on the statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from learncast._core.errors import UnsupportedModel
from learncast._core.validation import FloatArray
from learncast.networks.deep import Linear
from learncast.planning.methods.linear import LinearMethod
from learncast.procedure.goals import Goal
from learncast.procedure.training import Training
from learncast.results import Status, Steps
from learncast.tasks.task import Task
from learncast.theory.assumptions import Assumption
from learncast.theory.dynamics.descent import Descent, descend
from learncast.theory.dynamics.solution import Solution


class OptimizerMethod(LinearMethod):
    """Descent by an optimiser other than plain gradient descent, with its state fresh at the start of every stage.

    There is no gradient flow, so flow times are unknown; and no interval, because resamples are not counted.
    """

    name = "descent"
    kind = "descent"
    has_flow = False

    def __init__(self, tasks: Sequence[Task], network: Linear, training: Training, seed: int = 0) -> None:
        super().__init__(tasks, network, training, seed)
        self.recorded = False
        self._runs: dict[tuple[int, Goal, bytes], Descent] = {}

    def _descend(self, task: int, state: FloatArray, goal: Goal) -> Descent:
        key = task, goal, state.tobytes()
        if key not in self._runs:
            self._runs[key] = descend(self.problems[task].task, self.network_of(state), self.training, goal=goal)
        return self._runs[key]

    def _steps_to(self, task: int, states: FloatArray, goal: Goal) -> tuple[FloatArray, FloatArray]:
        runs = [self._descend(task, state, goal) for state in states]
        diverged = math.inf, math.nan
        counts = [float(r.steps) if r.status is Status.ok else diverged[r.status is not Status.diverged] for r in runs]
        ends = [
            self._state_of(r.network_at(math.inf)) if math.isfinite(n) else s
            for r, n, s in zip(runs, counts, states, strict=True)
        ]
        return np.array(counts), np.stack(ends)

    def _train(
        self, task: int, flow_state: FloatArray, state: FloatArray, goal: Goal, flow: Solution | None
    ) -> tuple[Steps, FloatArray]:
        if self.unreachable(task, goal):
            return Steps(math.inf, math.inf, status=Status.not_learned), state
        counts, ends = self.steps_to(task, state[None], goal)
        if math.isfinite(counts[0]):
            return Steps(float(counts[0]), math.nan), ends[0]
        if math.isinf(counts[0]):
            return Steps(math.inf, math.nan, status=Status.diverged), state
        run = self._descend(task, state, goal)
        late = {"tried": float(run.steps), "loss": float(run.loss[-1])}
        return Steps(math.nan, math.nan, status=Status.not_within, **late), state

    def advance(self, task: int, states: FloatArray, stops: Sequence[int]) -> FloatArray:
        runs = [descend(self.problems[task].task, self.network_of(s), self.training, steps=stops[-1]) for s in states]
        return np.stack([[self._state_of(network) for network in run.networks_at(stops)] for run in runs], axis=1)

    def _flow(self, task: int, state: FloatArray) -> Solution:
        """Descent of no steps: it stands for the flow, which this training does not have."""
        return descend(self.problems[task].task, self.network_of(state), self.training, steps=0)

    def flow_states(self, flow: Solution, times: FloatArray) -> FloatArray:
        raise UnsupportedModel(
            f"{self.training.optimizer} has no gradient flow. Use learning_curve.", field="optimizer"
        )

    def solution(self) -> Solution:
        return self.flow(self.target, self.start)

    def measure_conditions(self, task: int) -> tuple[Assumption, ...]:
        return ()
