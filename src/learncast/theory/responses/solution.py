"""The learning of a nonlinear network with fixed recurrence, computed from its measured responses."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

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
    ReducedProblem,
    descend_to,
    descent_states,
    full_weights,
    network_of,
    reduced_problem,
    sharpness,
)
from learncast.theory.responses.response import Response

__all__ = ["ResponseFlowSolution", "ResponseSolution"]

#: Largest number of descent steps that are taken one by one.
MOST_STEPS = 50_000

#: Learning rate times curvature up to which resamples may take longer steps than the estimate.
_STRIDE = 0.05

#: Largest number of steps of all resamples together. Beyond it, the flow of some of them is integrated instead.
MOST_RESAMPLE_STEPS = 10_000
_INTEGRATED_RESAMPLES = 20

#: Resamples that take this many times longer than the estimate count as never learned.
_LATE = 4.0

#: Shares of the learning time at which the curvature along the flow is measured.
_SHARES = np.array([0.0, 0.25, 0.5, 0.75, 0.9, 1.0])

#: Error allowed per step of the integration; a table is not smooth beyond its own accuracy.
_FEATURE_TOLERANCE, _TABLE_TOLERANCE, _RESAMPLE_TOLERANCE = 1e-11, 1e-9, 1e-6


class ResponseSolution(Solution):
    """A solution computed from measured responses, so that its numbers have confidence intervals.

    Attributes
    ----------
    response : Response
        Statistics, trials and the network before training.

    Examples
    --------
    Descent on the measured statistics equals full-batch training on all trials, and the flow is close to it:

    >>> import learncast as lc
    >>> from learncast.theory import response, solve_response
    >>> task = lc.tasks.integration(steps=20)
    >>> network = lc.Activated(lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=1), "relu")
    >>> solution = solve_response(response(task, network, trials=2000), learning_rate=1e-3)
    >>> solution.remarks
    ("responses measured on 2000 Gaussian trials with the task's second moments",)
    >>> [float(path["loss"].values[-1].round(3)) for path in (solution.descend(1000), solution.at([1000]))]
    [8.307, 8.307]
    """

    response: Response
    _origin: ClassVar[tuple[str, tuple[str, ...]]] = ("flow", ())

    @property
    def forecast_class(self) -> str:
        """Exact for the measured statistics, which have an interval."""
        return "response" if self.holds else "outside"

    @property
    def remarks(self) -> tuple[str, ...]:
        """Trials on which the responses were measured."""
        trials = self.response.trials
        kind = "trials" if trials.task is None else "Gaussian trials with the task's second moments"
        return (f"responses measured on {trials.number} {kind}",)

    @property
    def provenance(self) -> Provenance:
        """Where the numbers come from."""
        digest = spec_hash(self.response.hash, self.learning_rate)
        return Provenance(*self._origin, digest, self.response.provenance.seed)

    def descend(self, steps: int) -> Trajectory:
        """Follow gradient descent on the measured statistics, which equals full-batch training on the trials.

        Returns
        -------
        Trajectory
            Variables of the flow, at steps 0 to `steps`.
        """
        number = count("steps", steps, least=0)
        problem, start = reduced_problem(self.response)
        states = descent_states(problem, start, self.learning_rate, number)[:, 0]
        return _trajectory(self, problem, np.arange(number + 1.0), states, np.ones(len(states), dtype=bool), "descent")


@dataclass(frozen=True, eq=False, repr=False)
class ResponseFlowSolution(ResponseSolution):
    """Gradient flow of units with several response features, or of one tabulated unit, integrated numerically.

    A task is learned if the excess over the least loss of any weights on the same responses is at most
    (1 - accuracy)^2 of the excess of a silent network. For one feature this is |u - u*| <= (1 - accuracy) |u*|.

    Attributes
    ----------
    response : Response
        Statistics, trials and the network before training.
    learning_rate : float
        Times are in steps of this size.

    Examples
    --------
    Units of both signs have two responses, for which there is no closed form. Their least loss is lower:

    >>> import learncast as lc
    >>> import numpy as np
    >>> task = lc.tasks.integration(steps=20)
    >>> both = lc.LinearRNN([[0.1], [-0.1]], 0.9 * np.eye(2), [[0.1, -0.1]])
    >>> one = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=1)
    >>> measured = [lc.theory.response(task, lc.Activated(n, "relu"), trials=2000) for n in (both, one)]
    >>> solutions = [lc.theory.solve_response(each, learning_rate=1e-3) for each in measured]
    >>> solutions[0].time_to(0.9).descent_steps
    902.0
    >>> [float(solution.limit()["loss"].values[0].round(2)) for solution in solutions]
    [5.74, 8.27]
    """

    response: Response
    learning_rate: float
    _flow: ResponseFlow = field(repr=False)

    @classmethod
    def of(cls, response: Response, learning_rate: float) -> ResponseFlowSolution:
        """Prepare the flow from the network of a response."""
        problem, start = reduced_problem(response)
        return cls(response, learning_rate, ResponseFlow(problem, start[0]))

    @property
    def problem(self) -> ReducedProblem:
        """The reduced learning problem."""
        return self._flow.problem

    def at(self, times: ArrayLike) -> Trajectory:
        """Return strengths, weights and loss at times in gradient steps; infinity is where the flow comes to rest.

        ``strength`` has one mode for each pair of ``output`` and response ``feature``; for a tabulated unit it is the
        gain of a small input. Values are nan from where the flow diverges or its integration stops (see ``status``).
        """
        steps = checked_times(times)
        rows = [self._flow.weights(float(step) * self.learning_rate) for step in steps]
        nowhere = np.full(len(self._flow.start), np.nan)
        states = np.stack([nowhere if row is None else row for row in rows])
        return _trajectory(self, self.problem, steps, states, np.array([row is not None for row in rows]), "flow")

    def network_at(self, time: float) -> Activated:  # type: ignore[override]
        """Return the network after `time` gradient steps of the flow."""
        weights = self._flow.weights_after(checked_time(time), self.learning_rate)
        return network_of(self.response.network, weights)

    def goals(self, accuracy: float) -> FloatArray:
        """Return the loss at which the task counts as learned, of the estimate and of each resample."""
        least = self.problem.least_loss()
        return np.asarray(least + (1 - accuracy) ** 2 * (self.problem.constant - least))

    def accuracy_at(self, state: FloatArray) -> float:
        """Return 1 - sqrt(excess loss / baseline loss)."""
        least = float(self.problem.least_loss()[0])
        excess = float(self.problem.loss_and_slopes(state[None])[0][0]) - least
        baseline = float(self.problem.constant[0]) - least
        return 1 - math.sqrt(max(excess, 0.0) / baseline) if baseline > 0 else 1.0

    def time_to(self, accuracy: float) -> LearningTime:
        """Return the first time at which the loss reaches the goal, by the flow and by descent, with intervals.

        Descent is followed step by step; it is unknown beyond 50 000 steps.
        """
        accuracy = between("accuracy", accuracy, 0.0, 1.0)
        goals = self.goals(accuracy)
        flow = self.flow_steps_to(goals)
        if not math.isfinite(flow):
            return LearningTime(accuracy, np.array([flow]), np.array([flow]), (self.failure(flow),))
        start = self._flow.start[None]
        descent = float(self.descent_to(self.problem, start, goals, flow).steps[0])
        status = Status.diverged if math.isinf(descent) else Status.ok
        spread, _ = self.spread(self.problem, np.repeat(start, len(goals), axis=0), goals, flow)
        flow_ends = interval_about(flow, spread)[:, None]
        descent_ends = np.ceil(interval_about(descent, spread) - 1e-9)[:, None]
        return LearningTime(accuracy, np.array([flow]), np.array([descent]), (status,), flow_ends, descent_ends)

    def failure(self, flow_steps: float) -> Status:
        """Return why the flow does not reach a goal: it rests before, diverges, or its integration stops."""
        if math.isinf(flow_steps):
            return Status.not_learned
        return Status.diverged if self._flow.state == "diverged" else Status.outside_theory

    def flow_steps_to(self, goals: FloatArray) -> float:
        """Return the flow steps to the goal of the estimate; infinite if it rests above, nan if integration stops."""
        return self._flow.time_to(float(goals[0])) / self.learning_rate

    def descent_to(self, problem: ReducedProblem, start: FloatArray, goals: FloatArray, flow_steps: float) -> Arrival:
        """Follow descent of the estimate (1, weights) to its goal; nan if there are too many steps."""
        most = int(2 * flow_steps + 1000) if flow_steps <= MOST_STEPS else 0
        return descend_to(problem, start, self.learning_rate, goals[:1], most)

    def spread(
        self, problem: ReducedProblem, start: FloatArray, goals: FloatArray, flow_steps: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return real numbers of steps of the estimate and its resamples to their goals, and their weights then."""
        stride = self.stride(flow_steps)
        if flow_steps / stride > MOST_RESAMPLE_STEPS:
            return self._integrated(problem, start, goals)
        most = int(_LATE * flow_steps / stride + 1000)
        arrival = descend_to(problem, start, stride * self.learning_rate, goals, most, late=_LATE)
        return arrival.crossing * stride, arrival.crossing_state

    def _integrated(
        self, problem: ReducedProblem, start: FloatArray, goals: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Compute `spread` by integrating the first resamples, which stand for the others in turn."""
        used = min(len(start), 1 + _INTEGRATED_RESAMPLES)
        steps, states = np.full(used, np.nan), start[:used].copy()
        for k in range(used):
            flow = ResponseFlow(problem.row(k), start[k], tolerance=_RESAMPLE_TOLERANCE)
            time = flow.time_to(float(goals[k]))
            steps[k] = time / self.learning_rate
            weights = flow.weights(time) if math.isfinite(time) else None
            states[k] = states[k] if weights is None else weights
        order = np.concatenate([[0], 1 + np.arange(len(start) - 1) % (used - 1)])
        return steps[order], states[order]

    def stride(self, flow_steps: float) -> float:
        """Return how many steps resamples may take in one: only their spread matters, which depends little on it."""
        places = [self._flow.weights(float(share) * flow_steps * self.learning_rate) for share in _SHARES]
        sharp = sharpness(self.problem, np.stack([p for p in places if p is not None]))
        return max(1.0, _STRIDE / (sharp * self.learning_rate)) if sharp > 0 else 1.0

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """None: a flow on measured statistics makes no assumption about the task or the network."""
        return ()

    def __repr__(self) -> str:
        reached = self._flow.ends[-1] / self.learning_rate
        return (
            f"<ResponseFlowSolution of {self.response.name!r} at learning rate {self.learning_rate:g}: "
            f"{self.response.statistics.summary}; {self._flow.state}, known to step {reached:.4g}>"
        )


def interval_about(estimate: float, steps: FloatArray) -> FloatArray:
    """Return the interval of an estimate, shifted from that of row 0 of `steps`; nan resamples count as never."""
    if not math.isfinite(estimate) or not math.isfinite(steps[0]):
        return np.full(2, math.nan)
    resamples = np.where(np.isnan(steps[1:]), np.inf, steps[1:])
    return np.maximum(estimate + interval(float(steps[0]), resamples) - steps[0], 0.0)


def _trajectory(
    solution: ResponseSolution,
    problem: ReducedProblem,
    steps: FloatArray,
    states: FloatArray,
    reached: NDArray[np.bool_],
    kind: str,
) -> Trajectory:
    response = solution.response
    loss = np.array([problem.loss_and_slopes(state[None])[0][0] for state in states])
    strength = np.stack([problem.strengths(state[None])[0] for state in states])
    inputs, outputs = full_weights(response.network, states)
    _, output_count, features = strength.shape
    origin = solution.provenance
    return Trajectory.of(
        steps,
        {
            "strength": strength.reshape(len(states), -1),
            "loss": loss,
            "excess_loss": loss - float(problem.least_loss()[0]),
            "input_weights": inputs,
            "output_weights": outputs,
        },
        Provenance(kind, origin.citations, origin.spec_hash, origin.seed),
        coords={
            "status": ("time", np.where(reached, "ok", "diverged")),
            "output": ("mode", np.repeat(np.arange(output_count), features)),
            "feature": ("mode", np.tile(np.arange(features), output_count)),
        },
        task=response.name,
        learning_rate=solution.learning_rate,
    )


class ResponseFlow(FlowCourse):
    """The gradient flow of a reduced problem.

    On each piece every ReLU unit keeps the sign of its input weight, so the flow is smooth. A piece ends where an input
    weight reaches 0. The unit then continues with the response of the other sign if that pulls it on, and otherwise
    rests at 0 until either side pulls it away.

    Parameters
    ----------
    problem : ReducedProblem
    start : (weights,)
    tolerance : float, optional
        Error allowed per step, with a solver that is fast at low accuracy; by default as accurate as the statistics.
    """

    def __init__(self, problem: ReducedProblem, start: FloatArray, *, tolerance: float | None = None) -> None:
        self.problem, self.signs = problem, np.sign(start[: problem.units])
        solver = "LSODA" if len(start) <= STIFF_SIZE else "DOP853"
        if tolerance is not None:
            solver = "Radau"
        else:
            tolerance = _FEATURE_TOLERANCE if isinstance(problem, FeatureProblem) else _TABLE_TOLERANCE
        method = getattr(scipy.integrate, solver)
        super().__init__(start, self._slope, lambda w: float(problem.loss_and_slopes(w[None])[0][0]), tolerance, method)

    def _slope(self, _: float, flat: FloatArray) -> FloatArray:
        return -self.problem.loss_and_slopes(flat[None], self.signs)[1][0]

    def turn(self) -> None:
        """End the piece at the first time at which an input weight reaches 0, or a resting unit is pulled away."""
        problem = self.problem
        if not isinstance(problem, FeatureProblem):
            return
        piece, begin, end = self.pieces[-1], self.ends[-2], self.ends[-1]
        after = piece(end)
        rounding = 1e-12 * self.steepest  # a weaker pull does not move a weight away from 0

        def signed_weight(time: float, unit: int) -> float:
            return float(piece(time)[unit] * self.signs[unit])

        def missing_pull(time: float, unit: int) -> float:
            return rounding - float(problem.pull(piece(time)[None])[:, unit].max())

        crossing = np.flatnonzero(self.signs * after[: problem.units] < 0)
        leaving = np.flatnonzero((self.signs == 0) & (problem.pull(after[None]) > rounding).any(axis=0))[:1]
        events: list[tuple[float, int]] = []
        for change, units in ((signed_weight, crossing), (missing_pull, leaving)):
            for unit in units.tolist():
                # A unit that has just left 0 may start on the wrong side by rounding.
                past = change(begin, unit) <= 0
                time = begin if past else scipy.optimize.brentq(change, begin, end, (unit,), rtol=1e-14)
                events.append((float(time), unit))
        if not events:
            return
        self.ends[-1], unit = min(events)
        self.now = np.array(piece(self.ends[-1]))
        self.now[unit] = 0.0
        up, down = problem.pull(self.now[None])[:, unit]
        sides = [side for side, pull in ((1.0, up), (-1.0, down)) if pull > rounding and side != self.signs[unit]]
        self.signs = np.array(self.signs)
        self.signs[unit] = sides[0] if sides else 0.0
        self.solver = self.new_solver()
