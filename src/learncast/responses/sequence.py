"""A sequence of tasks learned by one nonlinear network, where no closed form holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from learncast.dynamics.solution import LearningTime
from learncast.networks.activated import Activated
from learncast.responses.problem import SmallProblem, descended, small_problem
from learncast.responses.response import Response
from learncast.responses.solution import MOST_STEPS, ResponseFlowSolution, interval_about
from learncast.trajectory import Status
from learncast.validation import FloatArray


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
    _, start = small_problem(responses[0])
    single, many = start, np.repeat(start, responses[0].replicas + 1, axis=0)
    found = []
    for measured, (accuracy, steps) in zip(responses, rules, strict=True):
        problem, _ = small_problem(measured)
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
    solution: ResponseFlowSolution, problem: SmallProblem, accuracy: float, single: FloatArray, many: FloatArray
) -> tuple[Passage, FloatArray, FloatArray]:
    goals = solution.goals(accuracy)
    flow = solution.flow_steps_to(goals)
    end = solution.network_at(flow) if not math.isnan(flow) else solution.response.network
    reached = solution.accuracy_at(small_problem(solution.response.moved(end))[1][0])
    if not math.isfinite(flow):
        status = solution.failure(flow)
        return Passage(solution, flow, flow, end, reached, status, np.full(len(many), np.nan)), single, many
    one = solution.counted(problem, single, goals, flow)
    spread, after = solution.spread(problem, many, goals, flow)
    steps = float(one.steps[0])
    status = Status.diverged if math.isinf(steps) else Status.ok
    return Passage(solution, flow, steps, end, reached, status, spread), one.state, after


def _for_steps(
    solution: ResponseFlowSolution, problem: SmallProblem, steps: float, single: FloatArray, many: FloatArray
) -> tuple[Passage, FloatArray, FloatArray]:
    rate, whole = solution.learning_rate, math.ceil(steps)
    end = solution.network_at(steps)
    reached = solution.accuracy_at(small_problem(solution.response.moved(end))[1][0])
    known = whole <= MOST_STEPS
    after = descended(problem, single, rate, whole)[-1] if known else np.full_like(single, np.nan)
    coarse = max(1, math.ceil(steps / solution.stride(steps))) if steps > 0 else 0
    for _ in range(coarse):
        many = many - steps * rate / coarse * problem.loss_and_slopes(many)[1]
    status = Status.ok if np.isfinite(after).all() else Status.diverged
    spread = np.full(len(many), float(steps))
    return Passage(solution, float(steps), float(whole), end, reached, status, spread), after, many
