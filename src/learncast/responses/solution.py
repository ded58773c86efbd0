"""The learning of a nonlinear network with a fixed recurrence, seen through its measured responses."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from learncast.assumptions import Assumption
from learncast.dynamics.solution import LearningTime, Solution, checked_time, checked_times
from learncast.errors import NotLearned
from learncast.networks.activated import Activated
from learncast.responses.bootstrap import bounds
from learncast.responses.flow import Course
from learncast.responses.problem import (
    Arrival,
    SmallProblem,
    arrival,
    descended,
    network_of,
    sharpness,
    small_problem,
)
from learncast.responses.response import Response, active_units, linear_weights
from learncast.trajectory import STEPS, Provenance, Status, Trajectory, described, spec_hash
from learncast.validation import FloatArray, between, count

#: Descent steps counted one by one before a count is given up.
MOST_STEPS = 50_000

#: Learning rate times curvature up to which replicas may take longer steps than the estimate.
_STRIDE = 0.05

#: Steps that all replicas may take together; for longer ways the flow of some of them is integrated one by one.
MOST_REPLICA_STEPS = 10_000
_INTEGRATED_REPLICAS = 20

#: Replicas that take this many times longer than the estimate count as never.
_LATE = 4.0

#: Places along the flow at which its curvature is measured.
_PLACES = np.array([0.0, 0.25, 0.5, 0.75, 0.9, 1.0])


class ResponseSolution(Solution):
    """A solution that rests on measured responses: its numbers carry confidence intervals."""

    response: Response

    @property
    def forecast_class(self) -> str:
        """Exact on the measured statistics, which have an interval."""
        return "response" if self.holds else "outside"

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the responses were measured on."""
        if self.response.trials.task is None:
            return (f"responses measured on {self.response.trials.number} trials",)
        return (f"responses measured on {self.response.trials.number} Gaussian trials with the task's second moments",)

    def descend(self, steps: int) -> Trajectory:
        """Follow gradient descent step by step on the measured statistics: what full-batch training on the trials does.

        Returns
        -------
        Trajectory
            As of the flow, at steps 0 to `steps`.
        """
        number = count("steps", steps, least=0, why="descent takes whole steps")
        problem, start = small_problem(self.response)
        states = descended(problem, start, self.learning_rate, number)[:, 0]
        return _trajectory(self, problem, np.arange(number + 1.0), list(states), "descent")


@dataclass(frozen=True, eq=False, repr=False)
class ResponseFlowSolution(ResponseSolution):
    """Gradient flow of the weights of several response features, or of one tabulated unit, integrated numerically.

    Learned is measured by the loss: the excess over the least loss of any weights on the same responses is at most
    (1 - accuracy)^2 of what a silent network exceeds it by. For one feature that is |u - u*| <= (1 - accuracy) |u*|.
    """

    response: Response
    learning_rate: float
    _course: Course = field(repr=False)

    @classmethod
    def of(cls, response: Response, learning_rate: float) -> ResponseFlowSolution:
        """Prepare the flow from the response's network."""
        problem, start = small_problem(response)
        return cls(response, learning_rate, Course(problem, start[0]))

    @property
    def problem(self) -> SmallProblem:
        """The small learning problem."""
        return self._course.problem

    def at(self, times: Any) -> Trajectory:
        """Strengths, weights and loss at times in gradient steps; infinity is where the flow comes to rest.

        ``strength`` is what the output makes of each response feature (of a small input, for a tabulated unit). Values
        are nan from where the flow runs away or is given up; ``status`` says so for each time.
        """
        steps = checked_times(times)
        rows = [self._course.weights(float(step) * self.learning_rate) for step in steps]
        return _trajectory(self, self.problem, steps, rows, "flow")

    def network_at(self, time: float) -> Activated:  # type: ignore[override]
        """The network after `time` gradient steps of the flow."""
        step = checked_time(time)
        weights = self._course.weights(step * self.learning_rate)
        if weights is None:
            raise NotLearned(
                required=f"the flow must reach step {step:g}",
                got=f"one that is {self._course.state} from step {self._course.ends[-1] / self.learning_rate:.4g} on",
                why="it has no weights there",
                remedy="ask for an earlier time, or change the start",
            )
        return network_of(self.response.network, weights)

    def goals(self, accuracy: float) -> FloatArray:
        """Loss at which the target counts as learned: of the estimate, then of its replicas."""
        least = self.problem.least_loss()
        return np.asarray(least + (1 - accuracy) ** 2 * (self.problem.constant - least))

    def accuracy_at(self, state: FloatArray) -> float:
        """1 - sqrt(excess loss / that of a silent network)."""
        least = float(self.problem.least_loss()[0])
        excess = float(self.problem.loss_and_slopes(state[None])[0][0]) - least
        whole = float(self.problem.constant[0]) - least
        return 1 - math.sqrt(max(excess, 0.0) / whole) if whole > 0 else 1.0

    def time_to(self, accuracy: float) -> LearningTime:
        """First time at which the loss is within the band, by the flow and by exact descent, with intervals.

        Descent is counted step by step (unknown beyond 50 000 steps).
        """
        accuracy = between("accuracy", accuracy, 0.0, 1.0, why="it is one minus the tolerance")
        goals = self.goals(accuracy)
        flow = self.flow_steps_to(goals)
        if not math.isfinite(flow):
            status = self.failure(flow)
            return LearningTime(accuracy, np.array([flow]), np.array([flow]), (status,))
        start = self._course.start[None]
        counted = float(self.counted(self.problem, start, goals, flow).steps[0])
        status = Status.diverged if math.isinf(counted) else Status.ok
        spread, _ = self.spread(self.problem, np.repeat(start, len(goals), axis=0), goals, flow)
        low_high = interval_about(flow, spread)
        whole = np.ceil(interval_about(counted, spread) - 1e-9)
        return LearningTime(
            accuracy, np.array([flow]), np.array([counted]), (status,), low_high[:, None], whole[:, None]
        )

    def failure(self, flow_steps: float) -> Status:
        """Why a flow does not arrive: it rests before, runs away, or is still creeping when it is given up."""
        if math.isinf(flow_steps):
            return Status.not_learned
        return Status.diverged if self._course.state == "diverged" else Status.outside_theory

    def flow_steps_to(self, goals: FloatArray) -> float:
        """Steps of the flow to the estimate's goal; infinite when it rests above, nan when it was given up."""
        return self._course.time_to(float(goals[0])) / self.learning_rate

    def counted(self, problem: SmallProblem, start: FloatArray, goals: FloatArray, flow_steps: float) -> Arrival:
        """Exact descent of the estimate (1, weights) to its goal; unknown where there are too many steps to count."""
        most = int(2 * flow_steps + 1000) if flow_steps <= MOST_STEPS else 0
        return arrival(problem, start, self.learning_rate, goals[:1], most)

    def spread(
        self, problem: SmallProblem, start: FloatArray, goals: FloatArray, flow_steps: float
    ) -> tuple[FloatArray, FloatArray]:
        """Steps of the estimate and its replicas to their goals, as real numbers, and their weights then."""
        stride = self.stride(flow_steps)
        if flow_steps / stride > MOST_REPLICA_STEPS:
            return self._integrated(problem, start, goals)
        most = int(_LATE * flow_steps / stride + 1000)
        found = arrival(problem, start, stride * self.learning_rate, goals, most, late=_LATE)
        return found.between * stride, found.state_between

    def _integrated(self, problem: SmallProblem, start: FloatArray, goals: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The same by integrating the first replicas, for which the others then stand in turn."""
        used = min(len(start), 1 + _INTEGRATED_REPLICAS)
        steps, states = np.full(used, np.nan), start[:used].copy()
        for k in range(used):
            course = Course(problem.row(k), start[k], quick=True)
            time = course.time_to(float(goals[k]))
            steps[k] = time / self.learning_rate
            found = course.weights(time) if math.isfinite(time) else None
            states[k] = states[k] if found is None else found
        turn = np.concatenate([[0], 1 + np.arange(len(start) - 1) % (used - 1)])
        return steps[turn], states[turn]

    def stride(self, flow_steps: float) -> float:
        """Steps that replicas may take at once: their spread matters, which the step size hardly changes."""
        places = [self._course.weights(float(p) * flow_steps * self.learning_rate) for p in _PLACES]
        sharp = sharpness(self.problem, np.stack([p for p in places if p is not None]))
        return max(1.0, _STRIDE / (sharp * self.learning_rate)) if sharp > 0 else 1.0

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """A flow on measured statistics assumes nothing more of the task or the network."""
        return ()

    @property
    def provenance(self) -> Provenance:
        """Where the numbers come from."""
        digest = spec_hash(self.response.hash, self.learning_rate)
        return Provenance("flow", (), digest, self.response.provenance.seed)

    def __repr__(self) -> str:
        reached = self._course.ends[-1] / self.learning_rate
        return (
            f"<ResponseFlowSolution of {self.response.name!r} at learning rate {self.learning_rate:g}: "
            f"{self.response.statistics.summary}; {self._course.state}, known to step {reached:.4g}>"
        )


def interval_about(estimate: float, steps: FloatArray) -> FloatArray:
    """The interval of an estimate from the spread of its replicas' steps about row 0's; unfinished ones are never."""
    if not math.isfinite(estimate) or not math.isfinite(steps[0]):
        return np.full(2, math.nan)
    return np.maximum(estimate + bounds(np.where(np.isnan(steps[1:]), np.inf, steps[1:])) - steps[0], 0.0)


def _trajectory(
    solution: ResponseSolution, problem: SmallProblem, steps: FloatArray, rows: list[FloatArray | None], kind: str
) -> Trajectory:
    response = solution.response
    _, start = small_problem(response)
    known = np.stack([np.full(start.shape[1], np.nan) if row is None else row for row in rows])
    reached = np.array([row is not None for row in rows])
    loss, strength = np.full(len(known), np.nan), None
    for k, row in enumerate(known):
        each = problem.strengths(row[None])[0]
        strength = np.full((len(known), *each.shape), np.nan) if strength is None else strength
        if reached[k]:
            loss[k], strength[k] = problem.loss_and_slopes(row[None])[0][0], each
    w, active = linear_weights(response.network), active_units(response.network)
    inputs = np.repeat(w.input_weights[None], len(known), axis=0)
    outputs = np.repeat(w.output_weights[None], len(known), axis=0)
    inputs[:, active, 0] = known[:, : len(active)]
    outputs[:, :, active] = known[:, len(active) :].reshape(len(known), w.outputs, len(active))
    least = float(problem.least_loss()[0])
    dataset = xr.Dataset(
        {
            "strength": (("time", "row", "feature"), strength, described("strength of each response feature", "1")),
            "loss": ("time", loss, described("half mean squared error", "target^2")),
            "excess_loss": ("time", loss - least, described("loss above the least on these responses", "target^2")),
            "input_weights": (("time", "unit", "column"), inputs, described("input weights", "1")),
            "output_weights": (("time", "row", "unit"), outputs, described("output weights", "1")),
        },
        coords={
            "time": ("time", steps, described("training time", STEPS)),
            "status": ("time", np.where(reached, "ok", "diverged")),
        },
        attrs={"task": response.name, "learning_rate": solution.learning_rate},
    )
    origin = solution.provenance
    return Trajectory(dataset, Provenance(kind, origin.citations, origin.spec_hash, origin.seed))
