"""The learning of a nonlinear network with a fixed recurrence, seen through its measured responses."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy

from learncast._core.validation import FloatArray, between, count
from learncast.networks.activated import Activated
from learncast.results import Provenance, Status, Trajectory, spec_hash
from learncast.theory.assumptions import Assumption
from learncast.theory.dynamics.gradient_flow import STIFF_SIZE, FlowCourse
from learncast.theory.dynamics.solution import LearningTime, Solution, checked_time, checked_times
from learncast.theory.responses.bootstrap import interval
from learncast.theory.responses.problem import (
    Arrival,
    FeatureProblem,
    SmallProblem,
    arrival,
    descended,
    network_of,
    sharpness,
    small_problem,
)
from learncast.theory.responses.response import Response, active_units, linear_weights

__all__ = ["ResponseFlowSolution", "ResponseSolution"]

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
    """A solution that rests on measured responses: its numbers carry confidence intervals.

    Attributes
    ----------
    response : Response
        What was measured, on how many trials, and the network before training.

    Examples
    --------
    Descent on the measured statistics is what training on all the trials at once does; the flow lies close to it:

    >>> from learncast.theory.responses.modes import solve_response
    >>> import learncast as lc
    >>> from learncast.theory.responses.response import response
    >>> task = lc.tasks.integration(steps=20)
    >>> network = lc.Activated(lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=1), "relu")
    >>> solution = solve_response(response(task, network, trials=2000), learning_rate=1e-3)
    >>> solution.remarks
    ("responses measured on 2000 Gaussian trials with the task's second moments",)
    >>> [float(way["loss"].values[-1].round(3)) for way in (solution.descend(1000), solution.at([1000]))]
    [8.307, 8.307]
    """

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
        number = count("steps", steps, least=0)
        problem, start = small_problem(self.response)
        states = descended(problem, start, self.learning_rate, number)[:, 0]
        return _trajectory(self, problem, np.arange(number + 1.0), list(states), "descent")


@dataclass(frozen=True, eq=False, repr=False)
class ResponseFlowSolution(ResponseSolution):
    """Gradient flow of the weights of several response features, or of one tabulated unit, integrated numerically.

    Learned is measured by the loss: the excess over the least loss of any weights on the same responses is at most
    (1 - accuracy)^2 of what a silent network exceeds it by. For one feature that is |u - u*| <= (1 - accuracy) |u*|.

    Attributes
    ----------
    response : Response
        What was measured.
    learning_rate : float
        Times are counted in its steps.

    Examples
    --------
    Units of both signs have two responses, which no closed form follows; together they leave less than one alone:

    >>> import learncast as lc
    >>> import numpy as np
    >>> task = lc.tasks.integration(steps=20)
    >>> both = lc.LinearRNN([[0.1], [-0.1]], 0.9 * np.eye(2), [[0.1, -0.1]])
    >>> one = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=1)
    >>> ways = [lc.solve(task, lc.Activated(n, "relu"), learning_rate=1e-3, trials=2000) for n in (both, one)]
    >>> ways[0].time_to(0.9).descent_steps
    902.0
    >>> [float(way.limit()["loss"].values[0].round(2)) for way in ways]
    [5.74, 8.27]
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

        ``strength`` is what each ``output`` makes of each response ``feature`` (of a small input, for a tabulated
        unit), one mode for each pair. Values are nan from where the flow runs away or is given up; ``status`` says so
        for each time.
        """
        steps = checked_times(times)
        rows = [self._course.weights(float(step) * self.learning_rate) for step in steps]
        return _trajectory(self, self.problem, steps, rows, "flow")

    def network_at(self, time: float) -> Activated:  # type: ignore[override]
        """The network after `time` gradient steps of the flow."""
        weights = self._course.weights_after(checked_time(time), self.learning_rate)
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
        accuracy = between("accuracy", accuracy, 0.0, 1.0)
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
    drawn = np.where(np.isnan(steps[1:]), np.inf, steps[1:])
    return np.maximum(estimate + interval(float(steps[0]), drawn) - steps[0], 0.0)


def _trajectory(
    solution: ResponseSolution, problem: SmallProblem, steps: FloatArray, rows: list[FloatArray | None], kind: str
) -> Trajectory:
    response = solution.response
    _, start = small_problem(response)
    known = np.stack([np.full(start.shape[1], np.nan) if row is None else row for row in rows])
    reached = np.array([row is not None for row in rows])
    loss = np.full(len(known), np.nan)
    strength = np.full((len(known), *problem.strengths(start).shape[1:]), np.nan)
    for k in np.flatnonzero(reached):
        loss[k], strength[k] = problem.loss_and_slopes(known[k : k + 1])[0][0], problem.strengths(known[k : k + 1])[0]
    w, active = linear_weights(response.network), active_units(response.network)
    inputs = np.repeat(w.input_weights[None], len(known), axis=0)
    outputs = np.repeat(w.output_weights[None], len(known), axis=0)
    inputs[:, active, 0] = known[:, : len(active)]
    outputs[:, :, active] = known[:, len(active) :].reshape(len(known), w.outputs, len(active))
    count_outputs, features = strength.shape[1:]
    values = {
        "strength": strength.reshape(len(known), -1),
        "loss": loss,
        "excess_loss": loss - float(problem.least_loss()[0]),
        "input_weights": inputs,
        "output_weights": outputs,
    }
    origin = solution.provenance
    return Trajectory.of(
        steps,
        values,
        Provenance(kind, origin.citations, origin.spec_hash, origin.seed),
        coords={
            "status": ("time", np.where(reached, "ok", "diverged")),
            "output": ("mode", np.repeat(np.arange(count_outputs), features)),
            "feature": ("mode", np.tile(np.arange(features), count_outputs)),
        },
        task=response.name,
        learning_rate=solution.learning_rate,
    )


#: Error allowed per step of the integration; a table is not smooth beyond its own accuracy.
TOLERANCE = {"features": 1e-11, "table": 1e-9, "spread": 1e-6}


class Course(FlowCourse):
    """The flow of a small problem.

    On one piece every ReLU unit keeps the sign of its input weight, so that the flow is smooth. Where an input weight
    reaches 0 the piece ends: the unit goes on with the other sign's response if that pulls it on, and otherwise rests
    at 0 until either side pulls it away.

    Parameters
    ----------
    problem : SmallProblem
    start : (weights,)
    quick : bool
        For the spread of replicas alone, which needs few digits and should be had quickly.
    """

    def __init__(self, problem: SmallProblem, start: FloatArray, *, quick: bool = False) -> None:
        self.problem, self.signs = problem, np.sign(start[: problem.units])
        exact = "features" if isinstance(problem, FeatureProblem) else "table"
        allowed = TOLERANCE["spread" if quick else exact]
        name = "Radau" if quick else "LSODA" if len(start) <= STIFF_SIZE else "DOP853"
        method = getattr(scipy.integrate, name)
        super().__init__(start, self._slope, lambda w: float(problem.loss_and_slopes(w[None])[0][0]), allowed, method)

    def _slope(self, _: float, flat: FloatArray) -> FloatArray:
        return -self.problem.loss_and_slopes(flat[None], self.signs)[1][0]

    def turn(self) -> None:
        """End the piece at the first moment at which an input weight reaches 0, or a resting one is pulled away.

        The unit is put at 0, and goes on with the side that pulls it.
        """
        problem = self.problem
        if not isinstance(problem, FeatureProblem):
            return
        piece, begin, end = self.pieces[-1], self.ends[-2], self.ends[-1]
        after = piece(end)
        slight = 1e-12 * self.steepest  # a pull that is rounding: it moves no weight away from 0

        def place(time: float, unit: int) -> float:
            return float(piece(time)[unit] * self.signs[unit])

        def held(time: float, unit: int) -> float:
            return slight - float(problem.pull(piece(time)[None])[:, unit].max())

        found: list[tuple[float, int]] = []
        free = (self.signs == 0) & (problem.pull(after[None]) > slight).any(axis=0)
        for change, units in (
            (place, np.flatnonzero(self.signs * after[: problem.units] < 0)),
            (held, np.flatnonzero(free)[:1]),
        ):
            for unit in units.tolist():
                # A unit that has just left 0 may start on the wrong side by rounding.
                past = change(begin, unit) <= 0
                turned = begin if past else scipy.optimize.brentq(change, begin, end, (unit,), rtol=1e-14)
                found.append((float(turned), unit))
        if not found:
            return
        self.ends[-1], unit = min(found)
        self.now = np.array(piece(self.ends[-1]))
        self.now[unit] = 0.0
        up, down = problem.pull(self.now[None])[:, unit]
        sides = [side for side, pull in ((1.0, up), (-1.0, down)) if pull > slight and side != self.signs[unit]]
        self.signs = np.array(self.signs)
        self.signs[unit] = sides[0] if sides else 0.0
        self.solver = self.new_solver()
