"""The ground of responses: nonlinear units of fixed recurrence, through what they answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from learncast._core.validation import FloatArray
from learncast.networks.activated import Activated
from learncast.planning.methods.ground import Ground, ReplicaSteps, State
from learncast.planning.methods.modal import ModeGround
from learncast.results import Status
from learncast.tasks.task import Task
from learncast.theory.dynamics.modes import Modes, ModeSolution
from learncast.theory.dynamics.solution import LearningTime, Solution
from learncast.theory.responses.modes import ResponseModes, ResponseModeSolution, modes_of_responses
from learncast.theory.responses.problem import ReducedProblem, descend_to, descent_states, network_of, reduced_problem
from learncast.theory.responses.response import Response, linear_weights, response
from learncast.theory.responses.solution import MOST_STEPS, ResponseFlowSolution, interval_about


class ResponseModeGround(ModeGround):
    """ReLU units that share one response: a mode, in closed form, of measured strengths."""

    promise = "response"

    @classmethod
    def of_responses(
        cls, tasks: Sequence[Task], network: Activated, learning_rate: float, goal: str, seed: int, trials: int | None
    ) -> ResponseModeGround:
        """Measure the response to every task on the same noise."""
        return cls(modes_of_responses(network, tasks, seed, trials), network, learning_rate, goal, seed)

    @property
    def seed(self) -> int | None:  # type: ignore[override]
        """Seed of the trials on which responses were measured."""
        return self.from_start[-1].provenance.seed

    def solved(self, modes: Modes) -> ModeSolution:
        """The closed form of measured modes, with intervals."""
        own = cast(ResponseModes, modes)
        return ResponseModeSolution(own, linear_weights(own.response.network), self.learning_rate)


class ResponseGround(Ground):
    """Responses that are no single mode: their flow is integrated, with intervals. States are networks."""

    by = "responses"
    promise = "response"

    def __init__(
        self, tasks: Sequence[Task], network: Activated, learning_rate: float, seed: int, trials: int | None = None
    ) -> None:
        super().__init__(tasks, network, learning_rate)
        self.seed: int = seed
        self.responses: list[Response] = [response(task, network, rng=seed, trials=trials) for task in tasks]

    @property
    def start(self) -> State:
        return self.network

    def course(self, task: int, state: State) -> ResponseFlowSolution:
        return ResponseFlowSolution.of(self.responses[task].moved(state), self.learning_rate)

    def state_at(self, course: Solution, steps: float) -> State:
        return course.network_at(steps)

    def steps_to(self, task: int, state: State, accuracy: float, course: Solution | None = None) -> float:
        """Integrated as far as needed; nan when given up."""
        flow = self.course(task, state) if course is None else course
        goals = cast(ResponseFlowSolution, flow).goals(accuracy)
        return cast(ResponseFlowSolution, flow).flow_steps_to(goals)

    def counted(self, task: int, states: Sequence[State], accuracy: float) -> tuple[FloatArray, list[State]]:
        found = [self._one_counted(task, state, accuracy) for state in states]
        return np.array([steps for steps, _ in found]), [state for _, state in found]

    def _one_counted(self, task: int, state: State, accuracy: float) -> tuple[float, State]:
        course = self.course(task, state)
        goals = course.goals(accuracy)
        flow = course.flow_steps_to(goals)
        if not math.isfinite(flow):
            return flow, state
        problem, at = reduced_problem(self.responses[task].moved(state))
        most = int(2 * flow + 1000) if flow <= MOST_STEPS else 0
        found = descend_to(problem, at, self.learning_rate, goals[:1], most)
        steps = float(found.steps[0])
        return steps, network_of(state, found.state[0]) if math.isfinite(steps) else state

    def descended(self, task: int, states: Sequence[State], stops: Sequence[int]) -> list[list[State]]:
        each = []
        for state in states:
            problem, at = reduced_problem(self.responses[task].moved(state))
            path = descent_states(problem, at, self.learning_rate, max(stops, default=0))
            each.append([network_of(state, path[stop][0]) for stop in stops])
        return [[row[k] for row in each] for k in range(len(stops))]

    def excess(self, task: int, state: State) -> float:
        """Loss above the least on the same responses."""
        problem, at = reduced_problem(self.responses[task].moved(state))
        return float(problem.loss_and_slopes(at)[0][0] - problem.least_loss()[0])

    def least(self, task: int) -> float:
        return float(reduced_problem(self.responses[task])[0].least_loss()[0])

    def whole(self, task: int) -> float:
        """Excess loss of a silent network."""
        problem, _ = reduced_problem(self.responses[task])
        return float(problem.constant[0] - problem.least_loss()[0])

    def strength(self, state: State) -> FloatArray:
        """What the output makes of each response feature."""
        problem, at = reduced_problem(self.responses[self.target].moved(state))
        return np.ravel(problem.strengths(at))

    def learning_time(self, task: int, accuracy: float) -> LearningTime:
        return self.course(task, self.start).time_to(accuracy)

    @property
    def recorded(self) -> bool:
        return True

    def replicated(
        self, places: Sequence[int], rules: Sequence[tuple[float | None, float | None]]
    ) -> ReplicaSteps | None:
        passages = pass_through([self.responses[k] for k in places], list(rules), self.learning_rate)
        number = len(passages[0].spread) - 1
        direct = direct_descent = np.full(number, np.nan)
        last = rules[-1][0]
        if last is not None:
            alone = passages[0] if len(rules) == 1 else self._alone(last)
            direct, direct_descent = _moved(alone, alone.flow_steps), np.ceil(_moved(alone, alone.descent_steps))
        return ReplicaSteps(
            np.stack([_moved(p, p.flow_steps) for p in passages]),
            np.stack([np.ceil(_moved(p, p.descent_steps)) for p in passages]),
            direct,
            direct_descent,
        )

    def _alone(self, accuracy: float) -> Passage:
        return pass_through(self.responses[-1:], [(accuracy, None)], self.learning_rate)[0]


def _moved(passage: Passage, steps: float) -> FloatArray:
    """Steps of every replica: the estimate's, moved by what the replica takes longer."""
    if not (np.isfinite(steps) and np.isfinite(passage.spread[0])):
        return np.full(len(passage.spread) - 1, np.nan)
    others = np.where(np.isnan(passage.spread[1:]), np.inf, passage.spread[1:])  # given up: far too slow
    return np.maximum(steps + others - passage.spread[0], 0.0)


@dataclass(frozen=True, eq=False)
class Passage:
    """Training on one task of a sequence.

    Attributes
    ----------
    solution : ResponseFlowSolution
        The flow from this stage's start.
    flow_steps, descent_steps : float
    end : Activated
        The network afterwards, by the flow.
    accuracy : float
        Accuracy on this task then.
    spread : (1 + replicas,)
        Steps of the estimate and of its replicas, as real numbers: intervals come from their differences.
    """

    solution: ResponseFlowSolution
    flow_steps: float
    descent_steps: float
    end: Activated
    accuracy: float
    status: Status
    spread: FloatArray

    @property
    def interval(self) -> FloatArray:
        """Ends of the interval of the flow steps."""
        return interval_about(self.flow_steps, self.spread)

    def learning_time(self, accuracy: float) -> LearningTime:
        """The same as the time to an accuracy."""
        whole = np.ceil(interval_about(self.descent_steps, self.spread) - 1e-9)
        times = np.array([self.flow_steps]), np.array([self.descent_steps])
        if not math.isfinite(self.flow_steps):
            return LearningTime(accuracy, *times, (self.status,))
        return LearningTime(accuracy, *times, (self.status,), self.interval[:, None], whole[:, None])


def pass_through(
    responses: Sequence[Response], rules: Sequence[tuple[float | None, float | None]], learning_rate: float
) -> list[Passage]:
    """Train on one response after another, each to an accuracy or for a number of steps.

    Flow, exact descent of the estimate and descent of the replicas each go on from where they themselves ended.
    """
    network = responses[0].network
    _, start = reduced_problem(responses[0])
    single, many = start, np.repeat(start, responses[0].resamples + 1, axis=0)
    found = []
    for measured, (accuracy, steps) in zip(responses, rules, strict=True):
        problem, _ = reduced_problem(measured)
        solution = ResponseFlowSolution.of(measured.moved(network), learning_rate)
        if accuracy is not None:
            passage, single, many = _to_accuracy(solution, problem, accuracy, single, many)
        else:
            assert steps is not None
            passage, single, many = _for_steps(solution, problem, steps, single, many)
        found.append(passage)
        network = passage.end
    return found


def _to_accuracy(
    solution: ResponseFlowSolution, problem: ReducedProblem, accuracy: float, single: FloatArray, many: FloatArray
) -> tuple[Passage, FloatArray, FloatArray]:
    goals = solution.goals(accuracy)
    flow = solution.flow_steps_to(goals)
    end = solution.network_at(flow) if not math.isnan(flow) else solution.response.network
    reached = solution.accuracy_at(reduced_problem(solution.response.moved(end))[1][0])
    if not math.isfinite(flow):
        status = solution.failure(flow)
        return Passage(solution, flow, flow, end, reached, status, np.full(len(many), np.nan)), single, many
    one = solution.descent_to(problem, single, goals, flow)
    spread, after = solution.spread(problem, many, goals, flow)
    steps = float(one.steps[0])
    status = Status.diverged if math.isinf(steps) else Status.ok
    return Passage(solution, flow, steps, end, reached, status, spread), one.state, after


def _for_steps(
    solution: ResponseFlowSolution, problem: ReducedProblem, steps: float, single: FloatArray, many: FloatArray
) -> tuple[Passage, FloatArray, FloatArray]:
    rate, whole = solution.learning_rate, math.ceil(steps)
    end = solution.network_at(steps)
    reached = solution.accuracy_at(reduced_problem(solution.response.moved(end))[1][0])
    known = whole <= MOST_STEPS
    after = descent_states(problem, single, rate, whole)[-1] if known else np.full_like(single, np.nan)
    coarse = max(1, math.ceil(steps / solution.stride(steps))) if steps > 0 else 0
    for _ in range(coarse):
        many = many - steps * rate / coarse * problem.loss_and_slopes(many)[1]
    status = Status.ok if np.isfinite(after).all() else Status.diverged
    spread = np.full(len(many), float(steps))
    return Passage(solution, float(steps), float(whole), end, reached, status, spread), after, many
