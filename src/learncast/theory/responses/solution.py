"""The learning of a nonlinear network with fixed recurrence, computed from its measured responses."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import ArrayLike

from learncast._core.progress import check_time
from learncast._core.validation import FloatArray, between
from learncast.networks.activated import Activated
from learncast.results import Provenance, Trajectory, spec_hash
from learncast.theory.assumptions import Assumption, stable_learning_rate
from learncast.theory.dynamics.gradient_flow import STIFF_SIZE, FlowCourse
from learncast.theory.dynamics.solution import LearningTime, Solution, checked_time, checked_times, settles, status_of
from learncast.theory.responses.bootstrap import interval
from learncast.theory.responses.problem import (
    Arrival,
    FeatureProblem,
    ReducedProblem,
    TableProblem,
    descend_to,
    full_weights,
    network_of,
    reduced_problem,
    sharpness,
)
from learncast.theory.responses.response import Response

__all__ = ["ResponseFlowSolution", "ResponseSolution"]

#: Descent steps that are taken one by one before descent counts as not within them.
TRIED = 20_000

#: Learning rate times curvature up to which resamples may take longer steps than the estimate.
_STRIDE = 0.05

#: Largest number of steps of all resamples together. Beyond it, the flow of some of them is integrated instead.
MOST_RESAMPLE_STEPS = 2_000
_INTEGRATED_RESAMPLES = 20

#: Places between two solver steps at which a crossing is looked for.
_FINE = np.linspace(0.0, 1.0, 257)

#: Resamples that take this many times longer than the estimate count as never learned: by descent, and by one flow.
_LATE, _MUCH_LATER = 4.0, 100.0

#: Shares of the learning time at which the curvature along the flow is measured.
_SHARES = np.array([0.0, 0.25, 0.5, 0.75, 0.9, 1.0])

#: Error allowed per step of the integration; a table is not smooth beyond its own accuracy.
_FEATURE_TOLERANCE, _TABLE_TOLERANCE, _RESAMPLE_TOLERANCE = 1e-11, 1e-8, 1e-5


class ResponseSolution(Solution):
    """A solution computed from measured responses, so that its numbers have confidence intervals.

    Attributes
    ----------
    response : Response
        Statistics, trials and the network before training.

    Examples
    --------
    The remarks name the trials, and steps have intervals:

    >>> import learncast as lc
    >>> from learncast.theory import response, solve_response
    >>> task = lc.tasks.integration(steps=20)
    >>> network = lc.Activated(lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=1), "relu")
    >>> solution = solve_response(response(task, network, trials=2000), learning_rate=1e-3)
    >>> solution.remarks
    ("responses measured on 2000 Gaussian trials with the task's second moments",)
    >>> solution.time_to(0.9).interval
    (1040.0, 1074.0)
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
        kind = "Gaussian trials with the task's second moments" if trials.gaussian else "trials"
        return (f"responses measured on {trials.number} {kind}",)

    @property
    def provenance(self) -> Provenance:
        """Where the numbers come from."""
        digest = spec_hash(self.response.hash, self.learning_rate)
        return Provenance(*self._origin, digest, self.response.provenance.seed)


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
    problem : FeatureProblem or TableProblem
        The reduced learning problem of the estimate and its resamples.

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
    problem: ReducedProblem
    _flow: ResponseFlow = field(repr=False)
    _curvatures: dict[float, FloatArray] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, response: Response, learning_rate: float) -> ResponseFlowSolution:
        """Prepare the flow from the network of a response."""
        problem, start = reduced_problem(response)
        return cls(response, learning_rate, problem, ResponseFlow(problem.row(0), start[0]))

    def at(self, times: ArrayLike) -> Trajectory:
        """Return strengths, weights and loss at times in gradient steps; infinity is where the flow comes to rest.

        ``strength`` has one mode for each pair of ``output`` and response ``feature``; for a tabulated unit it is the
        gain of a small input. Values are nan from where the flow diverges or its integration stops (see ``status``).
        """
        steps = checked_times(times)
        rows = [self._flow.weights(float(step) * self.learning_rate) for step in steps]
        nowhere = np.full(len(self._flow.start), np.nan)
        states = np.stack([nowhere if row is None else row for row in rows])
        strength, loss = self.problem.strengths(states), self._flow.problem.loss_and_slopes(states)[0]
        inputs, outputs = full_weights(self.response.network, states)
        _, output_count, features = strength.shape
        values = {
            "strength": strength.reshape(len(states), -1),
            "loss": loss,
            "excess_loss": loss - float(self.problem.least_loss[0]),
            "input_weights": inputs,
            "output_weights": outputs,
        }
        coords = {
            "status": ("time", np.array(["diverged" if row is None else "ok" for row in rows], dtype=str)),
            "output": ("mode", np.repeat(np.arange(output_count), features)),
            "feature": ("mode", np.tile(np.arange(features), output_count)),
        }
        return self._trajectory(steps, values, self.response.trials.task, coords=coords)

    def network_at(self, time: float) -> Activated:  # type: ignore[override]
        """Return the network after `time` gradient steps of the flow."""
        return network_of(self.response.network, self.states_at(np.array([checked_time(time)]))[0])

    def states_at(self, times: FloatArray) -> FloatArray:
        """Return the weights of the active units at times in gradient steps, (times, weights)."""
        return np.stack([self._flow.weights_after(float(time), self.learning_rate) for time in times])

    def time_to(self, accuracy: float) -> LearningTime:
        """Return the first time at which the loss reaches the goal, by the flow and by descent, with intervals."""
        accuracy, least = between("accuracy", accuracy, 0.0, 1.0), self.problem.least_loss
        goals = least + (1 - accuracy) ** 2 * (self.problem.constant - least)
        flow = self.flow_steps_to(float(goals[0]))
        descent = flow if math.isinf(flow) else float(self.descent_to(goals).steps[0])
        status = status_of(flow, descent, self.conditions_until(flow))
        counts, _ = self.resampled_steps(np.repeat(self._flow.start[None], len(goals), axis=0), goals, descent)
        ends = interval(descent, counts)[:, None]
        return LearningTime(accuracy, np.array([flow]), np.array([descent]), (status,), descent_interval=ends)

    def flow_steps_to(self, goal: float) -> float:
        """Return the flow steps to a loss; infinite if the flow rests above it, nan if its integration stops."""
        return self._flow.time_to(goal) / self.learning_rate

    def descent_to(self, goals: FloatArray) -> Arrival:
        """Count the steps of descent to the goal of the estimate, the first of `goals`.

        Many steps are counted by the flow of the modified equation, which descent follows to second order in its step
        if the learning rate is stable. Otherwise steps are taken one by one; more than `TRIED` are unknown (nan).
        """
        rate, flow = self.learning_rate, self.flow_steps_to(float(goals[0]))
        stable = settles(self.conditions_until(flow))
        if not flow > TRIED / 2 or not stable:
            return descend_to(self._flow.problem, self._flow.start[None], rate, goals[:1], TRIED)
        modified = ResponseFlow(self._flow.problem, self._flow.start, step=rate)
        steps = modified.time_to(float(goals[0])) / rate
        whole = float(math.ceil(steps)) if math.isfinite(steps) else steps
        state = modified.weights(whole * rate)
        ends = self._flow.start[None] if state is None else state[None]
        return Arrival(np.array([whole]), np.array([steps]), ends, ends)

    def resampled_steps(self, start: FloatArray, goals: FloatArray, counted: float) -> tuple[FloatArray, FloatArray]:
        """Return the steps of each resample to its goal, (resamples,), and the weights of all rows then.

        `start` and `goals` are the weights and goals of the estimate and its resamples, `counted` the steps of the
        estimate. Resamples may take longer steps than the estimate, because only differences from it are used.
        """
        unknown = np.full(len(start) - 1, np.nan)
        flow = self.flow_steps_to(float(goals[0]))
        if not (math.isfinite(flow) and math.isfinite(counted)):
            return unknown, start
        stride = self.stride(flow)
        if isinstance(self.problem, TableProblem):
            steps, states = self._integrated_together(start, goals, _MUCH_LATER * flow)
        elif flow / stride > MOST_RESAMPLE_STEPS:
            steps, states = self._integrated(start, goals)
        else:
            most = int(_LATE * flow / stride + 1000)
            arrival = descend_to(self.problem, start, stride * self.learning_rate, goals, most, late=_LATE)
            steps, states = arrival.crossing * stride, arrival.crossing_state
        if not math.isfinite(steps[0]):
            return unknown, states
        late = np.where(np.isnan(steps[1:]), np.inf, steps[1:])  # not finished: far too slow
        return np.ceil(np.maximum(counted + late - steps[0], 0.0)), states

    def advance_all(self, states: FloatArray, steps: float) -> FloatArray:
        """Return the weights of the estimate and its resamples after a number of steps, (rows, weights)."""
        coarse = max(1, math.ceil(steps / self.stride(steps))) if steps > 0 else 0
        for _ in range(coarse):
            states = states - steps * self.learning_rate / coarse * self.problem.loss_and_slopes(states)[1]
        return states

    def _integrated_together(self, start: FloatArray, goals: FloatArray, most: float) -> tuple[FloatArray, FloatArray]:
        """Return steps and weights of smooth flows, integrated as one system; nan if not within `most` steps.

        Loss and weights between two solver steps are cubic Hermite interpolants.
        """
        problem, rate, (rows, weights) = self.problem, self.learning_rate, start.shape

        def slope(_: float, flat: FloatArray) -> FloatArray:
            return -problem.loss_and_slopes(flat.reshape(rows, weights))[1].ravel()

        solver = scipy.integrate.LSODA(
            slope, 0.0, start.ravel(), most * rate, rtol=_RESAMPLE_TOLERANCE,
            atol=_RESAMPLE_TOLERANCE * float(np.abs(start).max()), lband=weights - 1, uband=weights - 1,
        )  # fmt: skip
        steps, ends, state = np.full(rows, np.nan), start.copy(), start
        loss, slopes = problem.loss_and_slopes(start)
        steps[loss <= goals] = 0.0
        while np.isnan(steps).any() and solver.status == "running":
            check_time()
            solver.step()
            before = state, loss, slopes
            state = solver.y.reshape(rows, weights)
            loss, slopes = problem.loss_and_slopes(state)
            new = np.isnan(steps) & (loss <= goals)
            if new.any():
                span = solver.t - solver.t_old
                old_state, old_loss, old_slopes = (part[new] for part in before)
                falls = -span * (old_slopes**2).sum(axis=1), -span * (slopes[new] ** 2).sum(axis=1)
                course = _hermite(_FINE[:, None], old_loss, falls[0], loss[new], falls[1])
                share = _FINE[(course <= goals[new]).argmax(axis=0)]
                steps[new] = (solver.t_old + share * span) / rate
                ends[new] = _hermite(share[:, None], old_state, -span * old_slopes, state[new], -span * slopes[new])
        return steps, ends

    def _integrated(self, start: FloatArray, goals: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return steps and weights by integrating the first resamples, which stand for the others in turn."""
        used = min(len(start), 1 + _INTEGRATED_RESAMPLES)
        steps, states = np.full(used, np.nan), start[:used].copy()
        for k in range(used):
            flow = ResponseFlow(self.problem.row(k), start[k], tolerance=_RESAMPLE_TOLERANCE)
            time = flow.time_to(float(goals[k]))
            steps[k] = time / self.learning_rate
            weights = flow.weights(time) if math.isfinite(time) else None
            states[k] = states[k] if weights is None else weights
        order = np.concatenate([[0], 1 + np.arange(len(start) - 1) % (used - 1)])
        return steps[order], states[order]

    def stride(self, flow_steps: float) -> float:
        """Return how many steps resamples may take in one: only their spread matters, which depends little on it."""
        sharp = float(self.curvatures_until(flow_steps).max())
        return max(1.0, _STRIDE / (sharp * self.learning_rate)) if sharp > 0 else 1.0

    def curvatures_until(self, steps: float) -> FloatArray:
        """Return the largest curvature of the loss along the flow up to a number of gradient steps, (1,)."""
        if steps not in self._curvatures:
            places = [self._flow.weights(float(time)) for time in np.unique(_SHARES * steps * self.learning_rate)]
            known = np.stack([p for p in places if p is not None])
            self._curvatures[steps] = np.array([sharpness(self._flow.problem, known)])
        return self._curvatures[steps]

    def conditions_until(self, steps: float) -> tuple[Assumption, ...]:
        """Return the conditions, with the curvature along the flow up to a number of gradient steps."""
        rate = stable_learning_rate(self.learning_rate, self.curvatures_until(steps if math.isfinite(steps) else 0.0))
        if isinstance(self.problem, TableProblem):
            return rate, Assumption("bounded_optimum", self.problem.table.saturation)
        return (rate,)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Learning rate times the curvature at the start, and for a tanh unit whether its best weight is finite."""
        return self.conditions_until(0.0)

    def __repr__(self) -> str:
        reached = self._flow.ends[-1] / self.learning_rate
        return (
            f"<ResponseFlowSolution of {self.response.name!r} at learning rate {self.learning_rate:g}: "
            f"{self._flow.state}, known to step {reached:.4g}>"
        )


def _hermite(
    x: FloatArray, begin: FloatArray, begin_slope: FloatArray, end: FloatArray, end_slope: FloatArray
) -> FloatArray:
    """Return the cubic with these values and slopes at 0 and 1."""
    rest = 1 - x
    inside = begin_slope * rest - end_slope * x + (begin - end) * (rest - x)
    return np.asarray(begin * rest + end * x + x * rest * inside)


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
    step : float
        Step size of descent, for the modified equation x' = -g(x + step / 2 g(x)); 0 for the flow itself.
    """

    def __init__(
        self, problem: ReducedProblem, start: FloatArray, *, tolerance: float | None = None, step: float = 0.0
    ) -> None:
        self.problem, self.step = problem, step
        self.signs = np.sign(start[: problem.units])
        solver = "LSODA" if len(start) <= STIFF_SIZE else "DOP853"
        if tolerance is not None:
            solver = "Radau"
        else:
            tolerance = _FEATURE_TOLERANCE if isinstance(problem, FeatureProblem) else _TABLE_TOLERANCE
        method = getattr(scipy.integrate, solver)
        super().__init__(start, self._slope, self._loss, tolerance, method)

    def _loss(self, flat: FloatArray) -> float:
        return float(self.problem.loss_and_slopes(flat[None])[0][0])

    def _slope(self, _: float, flat: FloatArray) -> FloatArray:
        slope = self.problem.loss_and_slopes(flat[None], self.signs)[1][0]
        if self.step:  # half a step back along the path of descent
            slope = self.problem.loss_and_slopes((flat + self.step / 2 * slope)[None], self.signs)[1][0]
        return -slope

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
