"""Gradient flow of any linear network, integrated numerically."""

from __future__ import annotations

import bisect
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from learncast._core.errors import NotLearned
from learncast._core.progress import check_time
from learncast._core.validation import FloatArray, between, positive
from learncast.networks.deep import Deep, Linear
from learncast.networks.two_layer import product
from learncast.results import Provenance, Status, Trajectory, spec_hash
from learncast.tasks.recorded.span import in_span
from learncast.tasks.task import Task
from learncast.theory.assumptions import Assumption, stable_learning_rate
from learncast.theory.dynamics.deep import PLACES, DeepModes, closed_form
from learncast.theory.dynamics.descent import count_steps
from learncast.theory.dynamics.learning_problem import AS_RECURRENT, LearningProblem, Weights, curvature
from learncast.theory.dynamics.solution import LearningTime, Solution, checked_time, checked_times, status_of
from learncast.theory.dynamics.steps.lag_descent import DENSE, LagDescent
from learncast.theory.dynamics.steps.pooled_descent import in_bases, out_of_bases

__all__ = ["FlowSolution", "gradient_flow"]

#: Largest number of weights for LSODA, which solves dense systems of this size when the flow is stiff.
STIFF_SIZE = 500
#: Weights beyond this size have diverged: their products overflow.
LARGEST = 1e100
#: Largest number of solver steps.
MOST_STEPS = 4_000
#: Gradient, relative to the largest so far, at which a flow may be at rest.
AT_REST = 1e-9
#: Factor on the time at which the gradient became small until the flow counts as at rest: a weak mode may still grow
#: from a small start. The explicit method is slow at rest, so its factor is smaller.
PATIENCE = {"LSODA": 10.0, "DOP853": 1.5}

#: Function of time and weights: velocity of the weights, or its Jacobian.
Velocity = Callable[[float, FloatArray], FloatArray]


@dataclass(eq=False)
class FlowCourse:
    """Flow that is integrated as far as requested, with its dense output so far.

    Attributes
    ----------
    start : (weights,)
    slope : callable
        Velocity, given time and weights.
    loss_of : callable
        Loss, given weights.
    tolerance : float
        Error per solver step, relative, and absolute in units of the largest weight at the start.
    end : callable, optional
        Weights at infinite time, None if unknown; by default the flow is integrated until it rests.
    saddle : float
        Loss that the flow never falls below, at which it rests although integration would leave it by round-off.
    state : {"going", "rest", "diverged", "unfinished"}
    """

    start: FloatArray
    slope: Velocity
    loss_of: Callable[[FloatArray], float]
    tolerance: float
    method: type[scipy.integrate.OdeSolver]
    patience: float = PATIENCE["LSODA"]
    jacobian: Velocity | None = None
    end: Callable[[], FloatArray | None] | None = None
    saddle: float = -math.inf
    ends: list[float] = field(default_factory=lambda: [0.0])
    pieces: list[Any] = field(default_factory=list)
    state: str = "going"
    quiet_since: float = math.inf

    def __post_init__(self) -> None:
        self.now = self.start
        self.steepest = float(np.abs(self.slope(0.0, self.now)).max(initial=0.0))
        if self.steepest == 0.0:
            self.state = "rest"
        self.solver = self.new_solver()

    def new_solver(self, *, short_step: bool = False) -> scipy.integrate.OdeSolver:
        """Return a solver that continues from here; its first step may be limited by the slope nearby."""
        scale = float(np.abs(self.now).max(initial=0.0)) or 1.0
        absolute = self.tolerance * scale
        options: dict[str, Any] = {} if self.jacobian is None else {"jac": self.jacobian}
        if short_step:
            steep = float(np.abs(self.slope(0.0, self.now + 0.01 * scale)).max())
            options["first_step"] = 0.01 * scale / steep if 0.0 < steep < np.inf else None
        return self.method(self.slope, self.ends[-1], self.now, np.inf, rtol=self.tolerance, atol=absolute, **options)

    def advance(self, until: float) -> None:
        """Integrate up to a flow time, or until the flow rests, diverges or takes too many solver steps."""
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # failures are read from the status
            while self.state == "going" and self.ends[-1] < until:
                check_time()
                self._step()

    def _step(self) -> None:
        self.solver.step()
        if self.solver.status == "failed" and self.solver.t_old is None:
            # If the slope is almost 0, the solver's default first step may be too long and fail.
            self.solver = self.new_solver(short_step=True)
            self.solver.step()
        if self.solver.status == "failed" or not np.abs(self.solver.y).max() < LARGEST:
            self.state = "diverged"
            return
        self.pieces.append(self.solver.dense_output())
        self.ends.append(float(self.solver.t))
        self.now = self.solver.y
        self.turn()
        slope = float(np.abs(self.slope(0.0, self.now)).max())
        self.steepest = max(self.steepest, slope)
        self.quiet_since = min(self.quiet_since, self.ends[-1]) if slope <= AT_REST * self.steepest else math.inf
        if slope == 0.0 or self.ends[-1] >= self.patience * self.quiet_since:
            self.state = "rest"
        elif len(self.pieces) >= MOST_STEPS:
            self.state = "unfinished"

    @property
    def still_moves(self) -> bool:
        """Whether the gradient is not 0 and the solver may continue."""
        moving = self.solver.status == "running" and np.abs(self.slope(0.0, self.now)).any()
        return bool(moving) and self.patience < math.inf and len(self.pieces) < MOST_STEPS

    def turn(self) -> None:
        """Modify the state after a solver step; a hook for flows that are not smooth."""

    def weights(self, time: float) -> FloatArray | None:
        """Return the weights at a flow time; None if the flow does not reach it."""
        if time == 0:
            return self.start
        if time == math.inf and self.end is not None and self.state != "rest" and (end := self.end()) is not None:
            return end
        if self.saddle > -math.inf:
            time = min(time, self._time_to(self.saddle))
        return self._weights(time)

    def _weights(self, time: float) -> FloatArray | None:
        self.advance(time)
        if time <= self.ends[-1]:
            return np.asarray(self.pieces[int(np.searchsorted(self.ends, time, side="left")) - 1](time))
        return self.now if self.state == "rest" else None

    def weights_after(self, step: float, learning_rate: float) -> FloatArray:
        """Return the weights after a number of gradient steps; raise if the flow does not reach it."""
        weights = self.weights(step * learning_rate)
        if weights is None:
            last = self.ends[-1] / learning_rate
            raise NotLearned(f"The flow is {self.state} at step {last:.4g} and does not reach {step:g}.", field="time")
        return weights

    def times_until(self, time: float) -> list[float]:
        """Return ends of solver steps up to a flow time, as far as it is known, to look at the flow."""
        self.advance(time)
        last = min(time, self.ends[-1])
        times = [*(t for t in self.ends if t < last), last]
        return [times[k] for k in np.unique(np.linspace(0, len(times) - 1, PLACES).astype(int))]

    def loss(self, time: float) -> float:
        """Return the loss at a flow time; nan if integration does not reach it."""
        weights = self.start if time == 0 else self._weights(time)
        return math.nan if weights is None else self.loss_of(weights)

    def time_to(self, goal: float) -> float:
        """Return the first flow time with a loss of at most `goal`; infinite if it rests above, nan if unknown."""
        return math.inf if goal < self.saddle else self._time_to(goal)

    def _time_to(self, goal: float) -> float:
        while not self.loss(self.ends[-1]) <= goal:
            if self.state == "rest" and self.still_moves:
                self.state, self.patience = "going", math.inf  # a small gradient alone does not prove a rest
            known = len(self.ends)
            self.advance(math.nextafter(self.ends[-1], math.inf))
            if known == len(self.ends):
                return math.inf if self.state == "rest" else math.nan
        # The loss never rises, so it crosses the goal in one piece, which bisection finds.
        k = bisect.bisect_left(self.ends, True, key=lambda t: self.loss(t) <= goal)
        if k == 0:
            return 0.0
        span = self.ends[k - 1], self.ends[k]
        return float(scipy.optimize.brentq(lambda t: self.loss(t) - goal, *span, xtol=1e-300, rtol=1e-14))


@dataclass(frozen=True, eq=False, repr=False)
class FlowSolution(Solution):
    """Gradient flow of a linear network, integrated adaptively as far as requested, or in closed form if it has one.

    Attributes
    ----------
    problem : LearningProblem
    tolerance : float
        Error per solver step, relative and absolute.
    conditions : tuple of Assumption, optional
        Conditions that were measured by gradient descent.
    known_least : float, optional
        Least loss of the network, if it is not that of `problem`: a later stage is measured against the first start.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> flow = lc.forecast(task, network, learning_rate=1e-3, method="flow").solution
    >>> flow.at([0, 200, 400])["strength"].values.ravel().round(3)
    array([0.   , 0.446, 1.734])
    """

    problem: LearningProblem
    learning_rate: float
    tolerance: float
    _course: FlowCourse | DeepModes = field(repr=False)
    _bases: Sequence[FloatArray] | None = field(default=None, repr=False)
    conditions: tuple[Assumption, ...] | None = None
    known_least: float | None = None

    @property
    def closed(self) -> bool:
        """Whether the flow has a closed form."""
        return isinstance(self._course, DeepModes)

    @property
    def forecast_class(self) -> str:
        """Forecast class, a key of `learncast.results.FORECAST_CLASSES`."""
        return super().forecast_class if self.closed else "integrated"

    @property
    def least_loss(self) -> float:
        """Least loss that the network can reach."""
        return self.problem.least_loss if self.known_least is None else self.known_least

    def at(self, times: ArrayLike) -> Trajectory:
        """Return strengths, weights and loss at times in gradient steps; at infinity the flow is at rest.

        Values are nan at times that the flow does not reach; ``status`` says why.
        """
        steps = checked_times(times)
        rows = [self._weights(float(step) * self.learning_rate) for step in steps]
        unknown = {name: np.full(w.shape, np.nan) for name, w in self.problem.start.items()}
        known = [row if row is not None else unknown for row in rows]
        loss = np.array([math.nan if row is None else self.problem.loss_and_slopes(row)[0] for row in rows])
        strength = np.stack([self.problem.strengths(row) for row in known])
        values = {"strength": strength, "loss": loss, "excess_loss": loss - self.least_loss}
        weights = {name: np.stack([row[name] for row in known]) for name in self.problem.start}
        layers = [weights[name] for name in self.problem.layers]
        named = (name for name in self.problem.learn if name in AS_RECURRENT)
        values |= {f"{AS_RECURRENT[name]}_weights": weights[name] for name in named}
        if self.problem.pooled is not None:
            values |= {
                "network_function": product(layers),
                "input_gram": layers[0].mT @ layers[0],
                "output_gram": layers[-1] @ layers[-1].mT,
            }
        lost = "diverged" if self._course.state == "diverged" else "not_within"
        status = np.array([lost if row is None else "ok" for row in rows], dtype=str)
        return self._trajectory(steps, values, self.problem.task, coords={"status": ("time", status)})

    def _weights(self, time: float) -> Weights | None:
        flat = self._course.weights(time)
        return None if flat is None else self._unpack(flat)

    def _unpack(self, flat: FloatArray) -> Weights:
        start = self.problem.start
        if flat is self._course.start:  # without rounding
            return start
        if self._bases is None:
            return self.problem.unflatten(flat, start)
        layers = self.problem.layers
        like = dict(zip(layers, in_bases([start[name] for name in layers], self._bases), strict=True))
        small = self.problem.unflatten(flat, like)
        full = out_of_bases([small[name] for name in layers], self._bases, start[layers[0]])
        return {**start, **dict(zip(layers, full, strict=True))}

    def network_at(self, time: float) -> Linear:
        """Return the network after `time` gradient steps of the flow."""
        flat = self._course.weights_after(checked_time(time), self.learning_rate)
        return self.problem.network.with_weights(self._unpack(flat))

    def time_to(self, accuracy: float) -> LearningTime:
        """Return the first time at which the excess loss is at most (1 - accuracy)^2 of the baseline loss.

        Descent steps are nan if they are too many to count.
        """
        accuracy = between("accuracy", accuracy, 0.0, 1.0)
        goal = self.least_loss + (1 - accuracy) ** 2 * (self.problem.statistics.constant - self.least_loss)
        if self.problem.nothing_to_learn:
            return LearningTime(accuracy, np.zeros(1), np.zeros(1), (Status.ok,))
        flow = self._steps_to(goal)
        descent = count_steps(
            self.problem, self.learning_rate, goal, flow, lambda: float(self.curvatures_until(flow).max())
        )
        status = status_of(flow, descent, self.conditions_until(flow))
        if status is Status.diverged and math.isnan(flow):
            flow = math.inf
        return LearningTime(accuracy, np.array([flow]), np.array([descent]), (status,))

    def _time_to_loss(self, excess: float) -> float:
        return self._steps_to(self.least_loss + excess)

    def _steps_to(self, goal: float) -> float:
        return self._course.time_to(goal) / self.learning_rate

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Measured conditions: a stable learning rate at the start, or those that gradient descent itself showed."""
        if self.conditions is not None:
            return self.conditions
        return (stable_learning_rate(self.learning_rate, np.array(curvature(self.problem))),)

    def conditions_until(self, steps: float) -> tuple[Assumption, ...]:
        """Return the conditions of training up to a number of gradient steps."""
        if self.conditions is not None or not math.isfinite(steps):
            return super().conditions_until(steps)
        return (stable_learning_rate(self.learning_rate, self.curvatures_until(steps)),)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Notes on the loss that too few hidden units leave, and on a saddle at which the flow rests."""
        if isinstance(self._course, DeepModes) or self._course.saddle == -math.inf:
            return self.problem.remarks
        left = self._course.saddle - self.problem.least_loss
        note = f"the flow rests at a saddle with an excess loss of {left:.3g}, which finite steps may leave"
        return (*self.problem.remarks, note)

    @property
    def bottleneck_loss(self) -> float:
        """Loss that is left because there are fewer hidden units than modes."""
        return 0.0 if self.problem.map_problem is None else self.problem.map_problem.bottleneck_loss

    def curvatures_until(self, steps: float) -> FloatArray:
        """Return the curvature of the loss at several times up to a number of gradient steps, as far as it is known."""
        flats = map(self._course.weights, self._course.times_until(steps * self.learning_rate))
        return np.array([curvature(self.problem, self._unpack(flat)) for flat in flats if flat is not None])

    @property
    def provenance(self) -> Provenance:
        """Origin of the numbers."""
        p = self.problem
        digest = spec_hash("flow", p.task.hash, p.network.hash, p.learn, self.learning_rate, self.tolerance)
        return Provenance("theory" if self.closed else "flow", (), digest)

    def __repr__(self) -> str:
        course = self._course
        known = "" if isinstance(course, DeepModes) else f", known to step {course.ends[-1] / self.learning_rate:.4g}"
        return (
            f"<FlowSolution of {self.problem.task.name!r} at learning rate {self.learning_rate:g}, learning "
            f"{', '.join(self.problem.learn)}: {course.state}{known}>"
        )


def _reduced(problem: LearningProblem) -> tuple[LearningProblem, list[FloatArray] | None]:
    """Return the problem restricted to the directions in which weights move, if pooled, and their bases."""
    if problem.map_problem is None:
        return problem, None
    task, network, bases = problem.task, problem.network, problem.map_problem.bases
    b, span = problem.map_problem.recurrence, problem.map_problem.span
    if tuple(basis.shape[1] for basis in bases) == network.widths:
        return problem, None
    small = dict(zip(problem.layers, in_bases(network.layer_weights, bases), strict=True))
    if "recurrent" in problem.start:
        small["recurrent"] = b * np.eye(bases[1].shape[1])
    own = task if span is None else in_span(task, b, span)
    return LearningProblem(own, network.with_weights(small), problem.learn), bases


def _saddle(problem: LearningProblem) -> float:
    """Loss that the flow of balanced layers never falls below; minus infinity if it may reach the optimum.

    For as many outputs as inputs, balanced layers keep the sign of the determinant of the network function. If the
    optimum has the other sign, the flow rests at a saddle.
    """
    pooled, network = problem.map_problem, problem.network
    if pooled is None or not isinstance(network, Deep) or min(network.widths) < max(pooled.cross.shape):
        return -math.inf
    if not Assumption("balanced_weights", network.imbalance_share).holds:
        return -math.inf
    unlike = np.linalg.slogdet(network.function)[0] * np.linalg.slogdet(pooled.reachable)[0] < 0
    return problem.least_loss + pooled.descent.loss_without(len(pooled.cross) - 1) if unlike else -math.inf


def gradient_flow(
    task: Task,
    network: Linear,
    *,
    learning_rate: float,
    learn: tuple[str, ...] | None = None,
    tolerance: float = 1e-11,
) -> FlowSolution:
    """Integrate the gradient flow of any linear network on any task.

    Small problems use LSODA, which switches to a stiff method if necessary; large ones use DOP853.

    Parameters
    ----------
    task : Task
    network : LinearRNN, TwoLayer or Deep
    learning_rate : float
        Times are counted in its steps.
    learn : tuple of str, optional
        Weights that learn: some of "input", "recurrent", "output" (or "first", "second", or "layer1", "layer2", ...);
        all by default.
    tolerance : float
        Error per solver step.

    Returns
    -------
    FlowSolution

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory import gradient_flow
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> flow = gradient_flow(task, network, learning_rate=1e-3, learn=("input", "output"))
    >>> flow.time_to(0.99)
    <LearningTime to 0.99: 329.985 flow steps, 331 descent steps, ok>
    """
    rate = positive("learning_rate", learning_rate)
    allowed = between("tolerance", tolerance, 1e-13, 1e-3)
    return flow_of(LearningProblem.of(task, network, learn), rate, allowed)


def flow_of(problem: LearningProblem, learning_rate: float, tolerance: float) -> FlowSolution:
    """`gradient_flow` of a problem that has been checked; it shares what the problem knows of its rest."""
    if (modes := closed_form(problem)) is not None:
        return FlowSolution(problem, learning_rate, tolerance, modes)
    small, bases = _reduced(problem)
    start = small.flatten(small.start)

    by_lag = small.by_lag

    def slope(_: float, flat: FloatArray) -> FloatArray:
        return -by_lag.loss_and_slopes(flat[None])[1][0]

    def loss(flat: FloatArray) -> float:
        return float(by_lag.loss_and_slopes(flat[None])[0][0])

    name = "LSODA" if len(start) <= STIFF_SIZE else "DOP853"
    solver, saddle = getattr(scipy.integrate, name), _saddle(problem)
    course = FlowCourse(start, slope, loss, tolerance, solver, PATIENCE[name], saddle=saddle)
    if name == "LSODA" and len(start) <= (DENSE if small.map_problem is None else STIFF_SIZE):
        course = replace(course, jacobian=lambda _, flat: -by_lag.hessian(flat))
    if small.map_problem is None and len(start) <= DENSE:
        course = replace(course, end=lambda: _rest(by_lag))
    return FlowSolution(problem, learning_rate, tolerance, course, bases)


#: Share of the loss of a network that answers 0 by which the loss may still fall at an end of training.
AT_END = 1e-6


def _rest(by_lag: LagDescent) -> FloatArray | None:
    """Weights at which training ends; None if the loss still falls there, as where weights grow for ever."""
    weights, loss = by_lag.rest
    return weights if math.isfinite(loss) and by_lag.fall_left(weights) <= AT_END * by_lag.constant else None
