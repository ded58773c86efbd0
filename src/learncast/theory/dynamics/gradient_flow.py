"""The gradient flow of any linear network, integrated numerically: the oracle and fallback of every closed form."""

from __future__ import annotations

import bisect
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import scipy

from learncast._core.errors import NotLearned
from learncast._core.progress import check_time
from learncast._core.validation import FloatArray, between, positive
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.results import Provenance, Status, Trajectory, spec_hash
from learncast.tasks.geometry import pooled_statistics
from learncast.tasks.task import Task
from learncast.theory.assumptions import Assumption, stable_learning_rate
from learncast.theory.dynamics.balanced.imbalance import Imbalance
from learncast.theory.dynamics.descent import counted_steps
from learncast.theory.dynamics.learning_problem import AS_RECURRENT, LearningProblem, Weights, curvature
from learncast.theory.dynamics.pooled import PooledProblem
from learncast.theory.dynamics.solution import LearningTime, Solution, checked_time, checked_times, status_of
from learncast.theory.dynamics.steps.pooled_descent import hidden_basis

__all__ = ["FlowSolution", "gradient_flow"]

#: Weights up to which the solver that switches to stiff steps (and then solves dense systems of this size) is used.
STIFF_SIZE = 500
#: A weight beyond this has run away.
LARGEST = 1e8
#: Solver steps before a flow is given up.
MOST_STEPS = 4_000
#: Slope, relative to the largest met, at which a flow may have arrived.
AT_REST = 1e-9
#: Times longer than until then that it must stay so: a weak mode may still be growing out of a small start. The
#: explicit method pays for every moment at rest and waits less.
PATIENCE = {"LSODA": 10.0, "DOP853": 1.5}


#: Moments of a flow at which its curvature is measured.
CURVED = 7
#: Error allowed per step where the curvature along a flow is all that is asked of it.
LOOSE = 1e-7

#: Of time and weights: how they move, or how that changes with the weights.
Velocity = Callable[[float, FloatArray], FloatArray]


@dataclass(eq=False)
class FlowCourse:
    """A flow as far as it has been integrated: pieces of dense output, and how it stands.

    Attributes
    ----------
    start : (weights,)
    slope, loss_of : callable
        Of time and weights, their velocity; of weights, the loss.
    tolerance : float
        Error allowed per step of the integration; the absolute one is measured against the weights, of which those of
        1e-6 must keep their digits too.
    """

    start: FloatArray
    slope: Velocity
    loss_of: Callable[[FloatArray], float]
    tolerance: float
    method: type[scipy.integrate.OdeSolver]
    patience: float = PATIENCE["LSODA"]
    jacobian: Velocity | None = None
    ends: list[float] = field(default_factory=lambda: [0.0])
    pieces: list[Any] = field(default_factory=list)
    state: str = "going"  # going, rest, diverged, unfinished
    quiet_since: float = math.inf

    def __post_init__(self) -> None:
        self.now = self.start
        self.steepest = float(np.abs(self.slope(0.0, self.now)).max(initial=0.0))
        if self.steepest == 0.0:
            self.state = "rest"  # nothing will ever move
        self.solver = self.begun()

    def begun(self, *, carefully: bool = False) -> scipy.integrate.OdeSolver:
        """A solver that goes on from here, carefully with a step that moves weights a hundredth off by so much."""
        scale = float(np.abs(self.now).max(initial=0.0)) or 1.0
        absolute = self.tolerance * min(scale, 1.0)
        options: dict[str, Any] = {} if self.jacobian is None else {"jac": self.jacobian}
        if carefully:
            steep = float(np.abs(self.slope(0.0, self.now + 0.01 * scale)).max())
            options["first_step"] = 0.01 * scale / steep if 0.0 < steep < np.inf else None
        return self.method(self.slope, self.ends[-1], self.now, np.inf, rtol=self.tolerance, atol=absolute, **options)

    def advance(self, until: float) -> None:
        """Integrate up to a flow time, or to where the flow rests, runs away or is given up."""
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a failing solver says so by its status
            while self.state == "going" and self.ends[-1] < until:
                check_time()
                self._step()

    def _step(self) -> None:
        self.solver.step()
        if self.solver.status == "failed" and self.solver.t_old is None:
            # Where hardly anything moves, the first step that a solver takes by itself is so long that it gives up.
            self.solver = self.begun(carefully=True)
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

    def turn(self) -> None:
        """What happens after a step of the solver; nothing where the flow is smooth throughout."""

    def weights(self, time: float) -> FloatArray | None:
        """Weights at a flow time; None where there are none."""
        if time == 0:
            return self.start
        self.advance(time)
        if time <= self.ends[-1]:
            return np.asarray(self.pieces[int(np.searchsorted(self.ends, time, side="left")) - 1](time))
        return self.now if self.state == "rest" else None

    def weights_after(self, step: float, learning_rate: float) -> FloatArray:
        """Weights after so many gradient steps; refused where there are none."""
        found = self.weights(step * learning_rate)
        if found is None:
            raise NotLearned(
                f"the flow must reach step {step:g}, got one that is {self.state} from step "
                f"{self.ends[-1] / learning_rate:.4g} on."
            )
        return found

    def loss(self, time: float) -> float:
        """Loss at a flow time; nan where there is none."""
        weights = self.weights(time)
        return math.nan if weights is None else self.loss_of(weights)

    def time_to(self, goal: float) -> float:
        """First flow time at which the loss is at most the goal; infinite when it rests above, nan when unknown.

        The flow is integrated no further than that.
        """
        while not self.loss(self.ends[-1]) <= goal:
            known = len(self.ends)
            self.advance(math.nextafter(self.ends[-1], math.inf))
            if known == len(self.ends):
                return math.inf if self.state == "rest" else math.nan
        # The loss never rises, so it crosses once, inside one piece, which halving finds.
        k = bisect.bisect_left(self.ends, True, key=lambda t: self.loss(t) <= goal)
        if k == 0:
            return 0.0
        span = self.ends[k - 1], self.ends[k]
        return float(scipy.optimize.brentq(lambda t: self.loss(t) - goal, *span, xtol=1e-300, rtol=1e-14))


@dataclass(frozen=True, eq=False, repr=False)
class FlowSolution(Solution):
    """Gradient flow of a linear network, integrated adaptively as far as it is asked for.

    Attributes
    ----------
    problem : LearningProblem
    tolerance : float
        Error allowed per step of the integration, relative and absolute.
    conditions : tuple of Assumption, optional
        Of descent, where they were measured on it.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> flow = lc.solve(task, network, learning_rate=1e-3, by="flow")
    >>> flow.at([0, 200, 400])["strength"].values.ravel().round(3)
    array([0.   , 0.446, 1.734])
    """

    problem: LearningProblem
    learning_rate: float
    tolerance: float
    _course: FlowCourse = field(repr=False)
    _basis: FloatArray | None = field(default=None, repr=False)
    conditions: tuple[Assumption, ...] | None = None

    def at(self, times: Any) -> Trajectory:
        """Strengths, weights and loss at times in gradient steps; infinity is where the flow comes to rest.

        Values are nan from where the flow runs away or is given up; ``status`` says so for each time.
        """
        steps = checked_times(times)
        rows = [self._weights(float(step) * self.learning_rate) for step in steps]
        nowhere = {name: np.full(w.shape, np.nan) for name, w in self.problem.start.items()}
        known = [row if row is not None else nowhere for row in rows]
        loss = np.array([math.nan if row is None else self.problem.loss_and_slopes(row)[0] for row in rows])
        strength = np.stack([self.problem.strengths(row) for row in known])
        values = {"strength": strength, "loss": loss, "excess_loss": loss - self.problem.least_loss}
        values |= {
            f"{AS_RECURRENT[name]}_weights": np.stack([row[name] for row in known]) for name in self.problem.learn
        }
        if self.problem.pooled_recurrence is not None:  # the two maps are all there is to the network
            first, second = (np.stack([row[name] for row in known]) for name in self.problem.map_names)
            values |= {
                "network_function": second @ first,
                "input_gram": np.swapaxes(first, 1, 2) @ first,
                "output_gram": second @ np.swapaxes(second, 1, 2),
            }
        lost = "diverged" if self._course.state == "diverged" else "not_learned"
        return Trajectory.of(
            steps,
            values,
            self.provenance,
            coords={"status": ("time", np.array([lost if row is None else "ok" for row in rows], dtype=str))},
            task=self.problem.task.name,
            learning_rate=self.learning_rate,
        )

    def _weights(self, time: float) -> Weights | None:
        """Weights at a flow time; None where there are none."""
        flat = self._course.weights(time)
        return None if flat is None else self._unpacked(flat)

    def _unpacked(self, flat: FloatArray) -> Weights:
        start = self.problem.start
        if flat is self._course.start:  # to the last bit
            return start
        if self._basis is None:
            return _cut(flat, start, self.problem.learn)
        first, second = self.problem.learn
        like = {first: self._basis.T @ start[first], second: start[second] @ self._basis}
        small = _cut(flat, like, self.problem.learn)
        return {**start, first: self._basis @ small[first], second: small[second] @ self._basis.T}

    def network_at(self, time: float) -> LinearRNN | TwoLayer:
        """The network after `time` gradient steps of the flow."""
        flat = self._course.weights_after(checked_time(time), self.learning_rate)
        return self.problem.built(self._unpacked(flat))

    def time_to(self, accuracy: float) -> LearningTime:
        """First time at which the excess loss is down to (1 - accuracy)^2 of that of a network without an answer.

        Measured against the loss at which this flow rests, or the least of any linear map if it was given up before.
        Descent steps are counted too; unknown (nan) where there are too many to take one by one.
        """
        accuracy = between("accuracy", accuracy, 0.0, 1.0)
        course = self._course
        course.advance(math.inf)
        # A flow given up before it rests is measured against the best any linear map does, which is stricter.
        rest = course.loss(course.ends[-1]) if course.state == "rest" else self.problem.least_loss
        goal = rest + (1 - accuracy) ** 2 * (self.problem.statistics.constant - rest)
        steps = self._steps_to(goal)
        counted = counted_steps(self.problem, self.learning_rate, goal - self.problem.least_loss, steps)
        lost = math.isinf(steps) and course.state == "diverged"
        status = Status.diverged if lost else status_of(steps, counted, self.assumptions)
        return LearningTime(accuracy, np.array([steps]), np.array([counted]), (status,))

    def time_to_loss(self, tolerance: float) -> float:
        """First time, in gradient steps, at which the loss is at most `tolerance` above the best linear map's.

        The flow is integrated no further than that; infinite if it rests, runs away or is given up before.
        """
        goal = self.problem.least_loss + positive("tolerance", tolerance)
        return self._steps_to(goal)

    def _steps_to(self, goal: float) -> float:
        time = self._course.time_to(goal)
        return time / self.learning_rate if math.isfinite(time) else math.inf

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """The flow assumes nothing of the task or the network; descent follows it if the learning rate is stable.

        Where descent itself was looked at, what that told.
        """
        if self.conditions is not None:
            return self.conditions
        return (stable_learning_rate(self.learning_rate, self.curvatures),)

    @cached_property
    def imbalance(self) -> Imbalance | None:
        """What the difference of the layers, which this flow conserves, bounds; None where other weights learn too."""
        p = self.problem
        if p.pooled_recurrence is None or len(p.learn) != 2:
            return None
        return Imbalance(PooledProblem.of(p.task, p.network), self.learning_rate)

    def bounds(self, accuracy: float) -> tuple[str, ...]:
        """What an unbalanced start bounds."""
        return () if self.imbalance is None else self.imbalance.told(accuracy)

    @cached_property
    def curvatures(self) -> FloatArray:
        """Curvature of the loss at moments from the start to where the flow rests, runs away or is given up."""
        # Followed on its own, loosely: a curvature is wanted to a few per cent, whatever else was asked of the flow.
        course = replace(self._course, tolerance=max(self.tolerance, LOOSE), ends=[0.0], pieces=[], state="going")
        course.advance(math.inf)
        moments = np.unique(np.linspace(0, len(course.ends) - 1, CURVED).astype(int))
        flats = (course.weights(course.ends[k]) for k in moments)
        found = [self._unpacked(flat) for flat in flats if flat is not None]
        return np.array([curvature(self.problem, weights) for weights in found])

    @property
    def provenance(self) -> Provenance:
        """Where the numbers come from."""
        p = self.problem
        digest = spec_hash("flow", p.task.hash, p.network.hash, p.learn, self.learning_rate, self.tolerance)
        return Provenance("flow", (), digest)

    @property
    def forecast_class(self) -> str:
        """A flow is integrated, to the solver's tolerance."""
        return "integrated"

    def __repr__(self) -> str:
        reached = self._course.ends[-1] / self.learning_rate
        return (
            f"<FlowSolution of {self.problem.task.name!r} at learning rate {self.learning_rate:g}, learning "
            f"{', '.join(self.problem.learn)}: {self._course.state}, known to step {reached:.4g}>"
        )


def _cut(flat: FloatArray, like: Weights, learn: tuple[str, ...]) -> Weights:
    """Weights of these shapes from one long row."""
    weights, offset = dict(like), 0
    for name in learn:
        shape = weights[name].shape
        weights[name] = flat[offset : offset + math.prod(shape)].reshape(shape)
        offset += math.prod(shape)
    return weights


def _reduced(problem: LearningProblem) -> tuple[LearningProblem, FloatArray | None]:
    """The problem on the hidden directions that the start uses, which pooled learning never leaves, and these."""
    if problem.pooled_recurrence is None or len(problem.learn) != 2:
        return problem, None
    start, (first, second) = problem.start, problem.learn
    basis = hidden_basis(start[first], start[second])
    if basis.shape[1] == len(basis):
        return problem, None
    small = {**start, first: basis.T @ start[first], second: start[second] @ basis}
    if "recurrent" in small:
        small["recurrent"] = problem.pooled_recurrence * np.eye(basis.shape[1])
    return LearningProblem(problem.task, problem.built(small), problem.learn), basis


def _pooled_slopes(problem: LearningProblem) -> tuple[Velocity, Velocity]:
    """The slope of two maps, A (hidden, inputs) and C (outputs, hidden): C^T G and G A^T, G = R - C A S; and its own.

    The second tells a stiff solver how the slope changes with the weights.
    """
    cross, S = pooled_statistics(problem.task, cast(float, problem.pooled_recurrence))
    R, first = np.ascontiguousarray(cross.T), problem.start[problem.learn[0]]
    hidden, size = len(first), first.size

    def parts(flat: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        A, C = flat[:size].reshape(hidden, -1), flat[size:].reshape(-1, hidden)
        return A, C, R - (C @ A) @ S

    def slope(_: float, flat: FloatArray) -> FloatArray:
        A, C, G = parts(flat)
        return np.concatenate([(C.T @ G).ravel(), (G @ A.T).ravel()])

    def jacobian(_: float, flat: FloatArray) -> FloatArray:
        A, C, G = parts(flat)
        AS, unit, output = A @ S, np.arange(hidden), np.arange(len(C))
        found = np.zeros((len(flat), len(flat)))
        # Kronecker products, each written where it belongs, and the blocks of a unit or an output with itself.
        np.multiply(-(C.T @ C)[:, None, :, None], S[:, None], out=found[:size, :size].reshape(hidden, -1, *A.shape))
        mixed = found[:size, size:].reshape(hidden, -1, *C.shape)
        np.multiply(-C.T[:, None, :, None], AS.T[:, None], out=mixed)
        mixed[unit, :, :, unit] += G.T
        found[size:, :size] = found[:size, size:].T
        found[size:, size:].reshape(*C.shape, *C.shape)[output, :, output] = -(AS @ A.T)
        return found

    return slope, jacobian


def gradient_flow(
    task: Task,
    network: LinearRNN | TwoLayer,
    *,
    learning_rate: float,
    learn: tuple[str, ...] | None = None,
    tolerance: float = 1e-11,
) -> FlowSolution:
    """Integrate the gradient flow of any linear network on any task.

    Small problems use a solver that turns to stiff steps when the flow does; large ones an explicit method of order
    eight.

    Parameters
    ----------
    task : Task
    network : LinearRNN or TwoLayer
    learning_rate : float
        Times are counted in its steps.
    learn : tuple of str, optional
        Weights that learn, of "input", "recurrent", "output" (or "first", "second"); all by default.
    tolerance : float
        Error allowed per step of the integration.

    Returns
    -------
    FlowSolution

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.dynamics.gradient_flow import gradient_flow
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> flow = gradient_flow(task, network, learning_rate=1e-3, learn=("input", "output"))
    >>> flow.time_to(0.99)
    <LearningTime to 0.99: 329.985 flow steps, 331 descent steps, ok>
    """
    rate = positive("learning_rate", learning_rate)
    allowed = between("tolerance", tolerance, 1e-13, 1e-3)
    problem = LearningProblem.of(task, network, learn)
    small, basis = _reduced(problem)
    start = np.concatenate([small.start[name].ravel() for name in small.learn])

    def slope(_: float, flat: FloatArray) -> FloatArray:
        _, slopes = small.loss_and_slopes(_cut(flat, small.start, small.learn))
        return -np.concatenate([slopes[name].ravel() for name in small.learn])

    def loss(flat: FloatArray) -> float:
        return small.loss_and_slopes(_cut(flat, small.start, small.learn))[0]

    name = "LSODA" if len(start) <= STIFF_SIZE else "DOP853"
    course = FlowCourse(start, slope, loss, allowed, getattr(scipy.integrate, name), PATIENCE[name])
    if small.pooled_recurrence is not None and len(small.learn) == 2:
        pooled, bent = _pooled_slopes(small)
        course = replace(course, slope=pooled, jacobian=bent if name == "LSODA" else None)
    return FlowSolution(problem, rate, allowed, course, basis)
