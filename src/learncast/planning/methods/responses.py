"""Methods for nonlinear units with fixed recurrence, through their measured responses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from learncast._core.validation import FloatArray
from learncast.networks.activated import Activated
from learncast.planning.methods.method import Method, ResampledSteps, Rule
from learncast.planning.methods.modes import ModeMethod
from learncast.procedure.goals import Goal
from learncast.procedure.training import Training
from learncast.results import Status, Steps
from learncast.tasks.task import Task
from learncast.theory.dynamics.modes import Modes, ModeSolution
from learncast.theory.dynamics.solution import LearningTime, Solution
from learncast.theory.responses.bootstrap import interval
from learncast.theory.responses.modes import ResponseModes, ResponseModeSolution
from learncast.theory.responses.problem import Arrival, descent_states, network_of, reduced_problem
from learncast.theory.responses.response import linear_weights, response
from learncast.theory.responses.solution import TRIED, ResponseFlow, ResponseFlowSolution


class ResponseModeMethod(ModeMethod):
    """ReLU units that share one response: one mode of measured strengths, in closed form."""

    promise = "response"

    @property
    def seed(self) -> int | None:  # type: ignore[override]
        """Seed of the trials on which responses were measured."""
        return self.from_start[-1].provenance.seed

    @property
    def _settings(self) -> tuple[Any, ...]:
        return tuple(cast(ResponseModes, modes).response.hash for modes in self.modes)

    def solve(self, modes: Modes) -> ModeSolution:
        own = cast(ResponseModes, modes)
        return ResponseModeSolution(own, linear_weights(own.response.network), self.learning_rate)

    def assumes_gaussian(self, task: int) -> bool:
        return cast(ResponseModes, self.modes[task]).response.assumes_gaussian


class ResponseMethod(Method):
    """Several responses: their flow is integrated, with intervals. A state is the weights of the active units.

    The least loss of a task is that of the best readout of the responses that the units have before training. It is
    the same from every state, so that direct training and curricula have the same goal.
    """

    name = "responses"
    promise = "response"
    recorded = True
    network: Activated

    def __init__(
        self, tasks: Sequence[Task], network: Activated, training: Training, seed: int, trials: int | None = None
    ) -> None:
        super().__init__(tasks, network, training)
        self.seed: int = seed
        self.responses = [response(task, network, rng=seed, trials=trials) for task in tasks]
        self.problems = [reduced_problem(r)[0] for r in self.responses]
        self._seen: dict[tuple[int, bytes], ResponseFlowSolution] = {}
        self._counts: dict[tuple[int, Goal, bytes], Arrival] = {}
        self._resampled: dict[tuple[tuple[int, Rule], ...], FloatArray] = {}

    @property
    def _settings(self) -> tuple[Any, ...]:
        return tuple(one.hash for one in self.responses)

    @cached_property
    def start(self) -> FloatArray:
        return reduced_problem(self.responses[-1])[1][0]

    def network_of(self, state: FloatArray) -> Activated:
        return self.network if state is self.start else network_of(self.network, state)

    def _flow(self, task: int, state: FloatArray) -> ResponseFlowSolution:
        key = task, state.tobytes()  # a forecast, its resamples and its report ask for the same flow
        if key not in self._seen:
            problem = self.problems[task]
            flow = ResponseFlow(problem.row(0), state)
            self._seen[key] = ResponseFlowSolution(self.responses[task], self.learning_rate, problem, flow)
        return self._seen[key]

    def flow_states(self, flow: Solution, times: FloatArray) -> FloatArray:
        return cast(ResponseFlowSolution, flow).states_at(times)

    def goals(self, task: int, goal: Goal) -> FloatArray:
        """Loss at which the goal is reached, for the estimate and its resamples."""
        problem = self.problems[task]
        least = problem.least_loss
        return np.asarray(least + goal.excess(problem.constant - least, float(least[0])))

    def _flow_steps_to(self, task: int, state: FloatArray, goal: Goal, flow: Solution) -> float:
        return cast(ResponseFlowSolution, flow).flow_steps_to(float(self.goals(task, goal)[0]))

    def _steps_to(self, task: int, states: FloatArray, goal: Goal) -> tuple[FloatArray, FloatArray]:
        rows = [self._count(task, state, goal) for state in states]
        return np.array([row.steps[0] for row in rows]), np.stack([row.state[0] for row in rows])

    def _count(self, task: int, state: FloatArray, goal: Goal) -> Arrival:
        key = task, goal, state.tobytes()
        if key not in self._counts:
            self._counts[key] = self._flow(task, state).descent_to(self.goals(task, goal))
        return self._counts[key]

    def advance(self, task: int, states: FloatArray, stops: Sequence[int]) -> FloatArray:
        path = descent_states(self.problems[task].row(0), states, self.learning_rate, max(stops, default=0))
        return path[list(stops)]

    def excess_loss(self, task: int, states: FloatArray) -> FloatArray:
        problem = self.problems[task].row(0)
        return np.array([problem.loss_and_slopes(state[None])[0][0] for state in states]) - problem.least_loss[0]

    def unreachable(self, task: int, goal: Goal) -> bool:
        return bool(self.goals(task, goal)[0] < self.problems[task].loss_bound[0])

    def least_loss(self, task: int) -> float:
        return float(self.problems[task].least_loss[0])

    def baseline_loss(self, task: int) -> float:
        problem = self.problems[task]
        return float(problem.constant[0] - problem.least_loss[0])

    def strengths(self, states: FloatArray) -> FloatArray:
        """Weight of each response feature in each output, (rows, outputs x features)."""
        return self.problems[self.target].strengths(states).reshape(len(states), -1)

    def _start_and_best(self, task: int) -> tuple[FloatArray, FloatArray]:
        problem = self.problems[task]
        return problem.strengths(self.start[None]).ravel(), problem.optimum.ravel()

    def train(
        self, task: int, flow_state: FloatArray, state: FloatArray, goal: Goal, flow: Solution | None = None
    ) -> tuple[Steps, FloatArray]:
        steps, end = super().train(task, flow_state, state, goal, flow)
        return (replace(steps, tried=float(TRIED)) if steps.status is Status.not_within else steps), end

    def learning_time(self, task: int, goal: Goal) -> LearningTime:
        time = super().learning_time(task, goal)
        counts = self._pass_through([task], [(goal, None)])[0]
        return replace(time, descent_interval=interval(time.descent_steps, counts)[:, None])

    def assumes_gaussian(self, task: int) -> bool:
        return self.responses[task].assumes_gaussian

    def resample(self, places: Sequence[int], rules: Sequence[Rule]) -> ResampledSteps | None:
        stages, last = self._pass_through(places, rules), rules[-1][0]
        direct = np.full(stages.shape[1], np.nan)
        if last is not None:
            direct = stages[0] if len(rules) == 1 else self._pass_through([self.target], [(last, None)])[0]
        return ResampledSteps(stages, direct)

    def _pass_through(self, places: Sequence[int], rules: Sequence[Rule]) -> FloatArray:
        """Steps of stages in every resample, (stages, resamples); each resample continues from its own end."""
        key = tuple(zip(places, rules, strict=True))
        if key in self._resampled:
            return self._resampled[key]
        single, many = self.start, np.repeat(self.start[None], self.responses[0].resamples + 1, axis=0)
        stages = []
        for place, (goal, steps) in zip(places, rules, strict=True):
            flow = self._flow(place, single)
            if goal is None:
                assert steps is not None
                counts, many = np.full(len(many) - 1, float(math.ceil(steps))), flow.advance_all(many, steps)
                single = self.advance(place, single[None], [math.ceil(steps)])[0, 0]
            else:
                arrival = self._count(place, single, goal)
                counts, many = flow.resampled_steps(many, self.goals(place, goal), float(arrival.steps[0]))
                single = arrival.state[0]
            stages.append(counts)
        self._resampled[key] = np.stack(stages)
        return self._resampled[key]
