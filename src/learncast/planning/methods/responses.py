"""Methods for nonlinear units with fixed recurrence, through their measured responses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from learncast._core.validation import FloatArray
from learncast.networks.activated import Activated
from learncast.planning.methods.method import Method, ResampledSteps, Rule
from learncast.planning.methods.modes import ModeMethod
from learncast.procedure.goals import Goal
from learncast.procedure.training import Training
from learncast.results import Status
from learncast.tasks.task import Task
from learncast.theory.assumptions import Assumption
from learncast.theory.dynamics.modes import Modes, ModeSolution
from learncast.theory.dynamics.solution import LearningTime, Solution
from learncast.theory.responses.modes import ResponseModes, ResponseModeSolution, modes_of_responses
from learncast.theory.responses.problem import ReducedProblem, descend_to, descent_states, network_of, reduced_problem
from learncast.theory.responses.response import Response, linear_weights, response
from learncast.theory.responses.solution import MOST_STEPS, ResponseFlowSolution


class ResponseModeMethod(ModeMethod):
    """ReLU units that share one response: one mode of measured strengths, in closed form."""

    promise = "response"

    @classmethod
    def of_responses(
        cls, tasks: Sequence[Task], network: Activated, training: Training, seed: int, trials: int | None
    ) -> ResponseModeMethod:
        """Measure the response to every task on the same noise."""
        return cls(modes_of_responses(network, tasks, seed, trials), network, training, seed)

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


class ResponseMethod(Method):
    """Several responses: their flow is integrated, with intervals. A state is the weights of the active units."""

    name = "responses"
    promise = "response"
    recorded = True
    network: Activated

    def __init__(
        self, tasks: Sequence[Task], network: Activated, training: Training, seed: int, trials: int | None = None
    ) -> None:
        super().__init__(tasks, network, training)
        self.seed: int = seed
        self.responses: list[Response] = [response(task, network, rng=seed, trials=trials) for task in tasks]

    @property
    def _settings(self) -> tuple[Any, ...]:
        return tuple(one.hash for one in self.responses)

    @cached_property
    def start(self) -> FloatArray:
        return reduced_problem(self.responses[-1])[1][0]

    def network_of(self, state: FloatArray) -> Activated:
        return self.network if state is self.start else network_of(self.network, state)

    def _problem(self, task: int, state: FloatArray) -> ReducedProblem:
        """The learning problem of a task; the features that count are those that the units hold in this state."""
        return reduced_problem(self._response(task, state))[0]

    def _response(self, task: int, state: FloatArray) -> Response:
        return self.responses[task].moved(self.network_of(state))

    def flow(self, task: int, state: FloatArray) -> ResponseFlowSolution:
        return ResponseFlowSolution.of(self._response(task, state), self.learning_rate)

    def flow_states(self, flow: Solution, times: FloatArray) -> FloatArray:
        networks = [cast(ResponseFlowSolution, flow).network_at(float(t)) for t in times]
        return np.stack([reduced_problem(self.responses[-1].moved(network))[1][0] for network in networks])

    def _goals(self, flow: ResponseFlowSolution, goal: Goal) -> FloatArray:
        """Loss at which the goal is reached, for the estimate and its resamples."""
        least = flow.problem.least_loss()
        return np.asarray(least + goal.excess(flow.problem.constant - least, float(least[0])))

    def flow_steps_to(self, task: int, state: FloatArray, goal: Goal, flow: Solution | None = None) -> float:
        solution = cast(ResponseFlowSolution, self.flow(task, state) if flow is None else flow)
        return solution.flow_steps_to(self._goals(solution, goal))

    def steps_to(self, task: int, states: FloatArray, goal: Goal) -> tuple[FloatArray, FloatArray]:
        rows = [self._count(task, state, goal) for state in states]
        return np.array([steps for steps, _ in rows]), np.stack([state for _, state in rows])

    def _count(self, task: int, state: FloatArray, goal: Goal) -> tuple[float, FloatArray]:
        flow = self.flow(task, state)
        goals = self._goals(flow, goal)
        expected = flow.flow_steps_to(goals)
        if not math.isfinite(expected):
            return expected, state
        most = int(2 * expected + 1000) if expected <= MOST_STEPS else 0
        end = descend_to(flow.problem, state[None], self.learning_rate, goals[:1], most)
        steps = float(end.steps[0])
        return steps, end.state[0] if math.isfinite(steps) else state

    def advance(self, task: int, states: FloatArray, stops: Sequence[int]) -> FloatArray:
        rows = []
        for state in states:
            path = descent_states(self._problem(task, state), state[None], self.learning_rate, max(stops, default=0))
            rows.append(path[list(stops), 0])
        return np.stack(rows, axis=1)

    def excess_loss(self, task: int, states: FloatArray) -> FloatArray:
        rows = []
        for state in states:
            problem = self._problem(task, state)
            rows.append(float(problem.loss_and_slopes(state[None])[0][0] - problem.least_loss()[0]))
        return np.array(rows)

    def least_loss(self, task: int) -> float:
        return float(reduced_problem(self.responses[task])[0].least_loss()[0])

    def baseline_loss(self, task: int) -> float:
        problem, _ = reduced_problem(self.responses[task])
        return float(problem.constant[0] - problem.least_loss()[0])

    def strengths(self, states: FloatArray) -> FloatArray:
        """Weight of each response feature in each output, (rows, outputs x features)."""
        return np.stack([np.ravel(self._problem(self.target, s).strengths(s[None])) for s in states])

    def learning_time(self, task: int, goal: Goal) -> LearningTime:
        baseline = self.baseline_loss(task)
        share = max(self.goal_excess(task, goal), 0.0) / baseline if baseline > 0 else 0.0
        return self.flow(task, self.start).time_to(1.0 - math.sqrt(share))

    def measure_conditions(self, task: int) -> tuple[Assumption, ...]:
        return self.flow(task, self.start).assumptions

    def resample(self, places: Sequence[int], rules: Sequence[Rule]) -> ResampledSteps | None:
        passages = self._pass_through(places, rules)
        direct, last = np.full(len(passages[0].spread) - 1, np.nan), rules[-1][0]
        if last is not None:
            alone = passages[0] if len(rules) == 1 else self._pass_through([self.target], [(last, None)])[0]
            direct = alone.resampled
        return ResampledSteps(np.stack([p.resampled for p in passages]), direct)

    def _pass_through(self, places: Sequence[int], rules: Sequence[Rule]) -> list[Passage]:
        """Train on one task after another; the flow, descent and the resamples each continue from their own ends."""
        state = self.start
        single, many = state[None], np.repeat(state[None], self.responses[0].resamples + 1, axis=0)
        passages = []
        for place, (goal, steps) in zip(places, rules, strict=True):
            problem, flow = reduced_problem(self.responses[place])[0], self.flow(place, state)
            if goal is not None:
                passage, state, single, many = self._to_goal(flow, problem, goal, state, single, many)
            else:
                assert steps is not None
                state = self.flow_states(flow, np.array([steps]))[0]
                passage, single, many = _for_steps(flow, problem, steps, single, many)
            passages.append(passage)
        return passages

    def _to_goal(
        self, flow: ResponseFlowSolution, problem: ReducedProblem, goal: Goal, state: FloatArray, single: FloatArray,
        many: FloatArray,
    ) -> tuple[Passage, FloatArray, FloatArray, FloatArray]:  # fmt: skip
        goals = self._goals(flow, goal)
        steps = flow.flow_steps_to(goals)
        if not math.isnan(steps):
            state = self.flow_states(flow, np.array([steps]))[0]
        if not math.isfinite(steps):
            return Passage(steps, flow.failure(steps), np.full(len(many), np.nan)), state, single, many
        one = flow.descent_to(problem, single, goals, steps)
        spread, many = flow.spread(problem, many, goals, steps)
        counted = float(one.steps[0])
        status = Status.diverged if math.isinf(counted) else Status.ok
        return Passage(counted, status, spread), state, one.state, many


@dataclass(frozen=True, eq=False)
class Passage:
    """Training on one task of a sequence.

    Attributes
    ----------
    descent_steps : float
    spread : (1 + resamples,)
        Steps of the estimate and of its resamples, as real numbers.
    """

    descent_steps: float
    status: Status
    spread: FloatArray

    @property
    def resampled(self) -> FloatArray:
        """Whole steps of every resample: those of the estimate plus the difference of their spread."""
        if not (np.isfinite(self.descent_steps) and np.isfinite(self.spread[0])):
            return np.full(len(self.spread) - 1, np.nan)
        others = np.where(np.isnan(self.spread[1:]), np.inf, self.spread[1:])  # not finished: far too slow
        return np.ceil(np.maximum(self.descent_steps + others - self.spread[0], 0.0))


def _for_steps(
    flow: ResponseFlowSolution, problem: ReducedProblem, steps: float, single: FloatArray, many: FloatArray
) -> tuple[Passage, FloatArray, FloatArray]:
    rate, whole = flow.learning_rate, math.ceil(steps)
    after = descent_states(problem, single, rate, whole)[-1] if whole <= MOST_STEPS else np.full_like(single, np.nan)
    coarse = max(1, math.ceil(steps / flow.stride(steps))) if steps > 0 else 0
    for _ in range(coarse):
        many = many - steps * rate / coarse * problem.loss_and_slopes(many)[1]
    status = Status.ok if np.isfinite(after).all() else Status.diverged
    return Passage(float(whole), status, np.full(len(many), float(steps))), after, many
