"""The gradient flow of any linear network, integrated numerically: the oracle and fallback of every closed form."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from scipy.integrate import DOP853, LSODA, OdeSolver
from scipy.optimize import brentq

from learncast.assumptions import Assumption
from learncast.dynamics.learning_problem import LearningProblem, Weights
from learncast.dynamics.solution import LearningTime, Solution, checked_time, checked_times
from learncast.errors import NotLearned
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.tasks.task import Task
from learncast.trajectory import STEPS, Provenance, Status, Trajectory, described, spec_hash
from learncast.validation import FloatArray, between, positive

#: Weights up to which the solver that switches to stiff steps (and then solves dense systems of this size) is used.
STIFF_SIZE = 400
#: A weight beyond this has run away.
LARGEST = 1e8
#: Solver steps before a flow is given up.
MOST_STEPS = 4_000
#: Slope, relative to the largest met, at which a flow may have arrived.
AT_REST = 1e-9
#: Times longer than until then that it must stay so: a weak mode may still be growing out of a small start. The
#: explicit method pays for every moment at rest and waits less.
PATIENCE = {"LSODA": 10.0, "DOP853": 1.5}


@dataclass
class _Course:
    """The flow as far as it has been integrated: pieces of dense output, and how it stands."""

    solver: OdeSolver
    ends: list[float] = field(default_factory=lambda: [0.0])
    pieces: list[Any] = field(default_factory=list)
    steepest: float = 0.0
    state: str = "going"  # going, rest, diverged, unfinished
    quiet_since: float = math.inf
    patience: float = 10.0

    def advance(self, until: float) -> None:
        """Integrate up to a flow time, or to where the flow rests, runs away or is given up."""
        while self.state == "going" and self.ends[-1] < until:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a failing solver says so by its status
                self.solver.step()
            if self.solver.status == "failed" or not np.abs(self.solver.y).max() < LARGEST:
                self.state = "diverged"
                return
            self.pieces.append(self.solver.dense_output())
            self.ends.append(float(self.solver.t))
            slope = float(np.abs(self.solver.fun(self.solver.t, self.solver.y)).max())
            self.steepest = max(self.steepest, slope)
            self.quiet_since = min(self.quiet_since, self.ends[-1]) if slope <= AT_REST * self.steepest else math.inf
            if self.ends[-1] >= self.patience * self.quiet_since:
                self.state = "rest"
            elif len(self.pieces) >= MOST_STEPS:
                self.state = "unfinished"


@dataclass(frozen=True, eq=False, repr=False)
class FlowSolution(Solution):
    """Gradient flow of a linear network, integrated adaptively as far as it is asked for.

    Attributes
    ----------
    problem : LearningProblem
    tolerance : float
        Error allowed per step of the integration, relative and absolute.
    """

    problem: LearningProblem
    learning_rate: float
    tolerance: float
    _course: _Course = field(repr=False)

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
        dimensions = {"input": ("unit", "column"), "recurrent": ("unit", "unit_other"), "output": ("row", "unit")}
        dimensions |= {"first": dimensions["input"], "second": dimensions["output"]}
        variables: dict[str, Any] = {
            "strength": (("time", "mode"), strength, described("strength of each mode", "1")),
            "loss": ("time", loss, described("half mean squared error", "target^2")),
            "excess_loss": (
                "time",
                loss - self.problem.least_loss,
                described("loss above the best linear map's", "target^2"),
            ),
        }
        for name in self.problem.learn:
            stack = np.stack([row[name] for row in known])
            variables[f"{name}_weights"] = (("time", *dimensions[name]), stack, described(f"{name} weights", "1"))
        dataset = xr.Dataset(
            variables,
            coords={
                "time": ("time", steps, described("training time", STEPS)),
                "mode": ("mode", np.arange(strength.shape[1])),
                "status": ("time", np.array([self._status(row).name for row in rows], dtype=str)),
            },
            attrs={"task": self.problem.task.name, "learning_rate": self.learning_rate},
        )
        return Trajectory(dataset, self.provenance)

    def _weights(self, time: float) -> Weights | None:
        """Weights at a flow time; None where there are none."""
        course = self._course
        if time == 0:
            return self.problem.start
        course.advance(time)
        if time <= course.ends[-1]:
            k = int(np.searchsorted(course.ends, time, side="left"))
            return self._unpacked(course.pieces[k - 1](time))
        return self._unpacked(course.solver.y) if course.state == "rest" else None

    def _unpacked(self, flat: FloatArray) -> Weights:
        weights, offset = dict(self.problem.start), 0
        for name in self.problem.learn:
            shape = weights[name].shape
            weights[name] = flat[offset : offset + math.prod(shape)].reshape(shape)
            offset += math.prod(shape)
        return weights

    def _status(self, row: Weights | None) -> Status:
        if row is not None:
            return Status.ok
        return Status.diverged if self._course.state == "diverged" else Status.not_learned

    def network_at(self, time: float) -> LinearRNN | TwoLayer:
        """The network after `time` gradient steps of the flow."""
        step = checked_time(time)
        weights = self._weights(step * self.learning_rate)
        if weights is None:
            raise NotLearned(
                required=f"the flow must reach step {step:g}",
                got=f"one that is {self._course.state} from step {self._course.ends[-1] / self.learning_rate:.4g} on",
                why="it has no weights there",
                remedy="ask for an earlier time, or change the start",
            )
        return self.problem.built(weights)

    def time_to(self, accuracy: float) -> LearningTime:
        """First time at which the learned map is within 1 - accuracy of the best it comes to, by its excess loss.

        Measured against the loss at which this flow rests, or the least of any linear map if it was given up before.
        Descent steps are unknown (nan); see `descend`.
        """
        accuracy = between("accuracy", accuracy, 0.0, 1.0, why="it is one minus the tolerance")
        course = self._course
        course.advance(math.inf)
        # A flow given up before it rests is measured against the best any linear map does, which is stricter.
        rest = self._loss(course.ends[-1]) if course.state == "rest" else self.problem.least_loss
        goal = rest + (1 - accuracy) ** 2 * (self.problem.statistics.constant - rest)
        losses = np.array([self._loss(t) for t in course.ends])
        if losses[0] <= goal:
            return LearningTime(accuracy, np.array([0.0]), np.array([math.nan]), (Status.ok,))
        below = np.flatnonzero(losses <= goal)
        if not len(below):
            status = Status.diverged if course.state == "diverged" else Status.not_learned
            return LearningTime(accuracy, np.array([math.inf]), np.array([math.nan]), (status,))
        k = int(below[0])  # the loss never rises, so it crosses once, inside this piece
        time = brentq(lambda t: self._loss(t) - goal, course.ends[k - 1], course.ends[k], xtol=1e-300, rtol=1e-14)
        return LearningTime(accuracy, np.array([time / self.learning_rate]), np.array([math.nan]), (Status.ok,))

    def time_to_loss(self, tolerance: float) -> float:
        """First time, in gradient steps, at which the loss is at most `tolerance` above the best linear map's.

        The flow is integrated no further than that; infinite if it rests, runs away or is given up before.
        """
        goal = self.problem.least_loss + positive("tolerance", tolerance, why="the optimum itself is never reached")
        course, k = self._course, 0
        if self._loss(0.0) <= goal:
            return 0.0
        while True:
            if k + 1 == len(course.ends):
                course.advance(math.nextafter(course.ends[-1], math.inf))
                if k + 1 == len(course.ends):
                    return math.inf
            k += 1
            if self._loss(course.ends[k]) <= goal:  # the loss never rises, so it crosses once, inside this piece
                span = course.ends[k - 1], course.ends[k]
                return float(brentq(lambda t: self._loss(t) - goal, *span, xtol=1e-300, rtol=1e-14)) / (
                    self.learning_rate
                )

    def _loss(self, time: float) -> float:
        weights = self._weights(time)
        return math.nan if weights is None else self.problem.loss_and_slopes(weights)[0]

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """The flow assumes nothing of the task or the network."""
        return ()

    @property
    def provenance(self) -> Provenance:
        """Where the numbers come from."""
        digest = spec_hash(self.problem.task.hash, self.problem.network.hash, self.learning_rate, self.tolerance)
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
    """
    rate = positive("learning_rate", learning_rate, why="training moves against the gradient")
    allowed = between("tolerance", tolerance, 1e-13, 1e-3, why="it is the integration's relative error per step")
    problem = LearningProblem.of(task, network, learn)
    start = np.concatenate([problem.start[name].ravel() for name in problem.learn])
    solution = FlowSolution(problem, rate, allowed, None)  # type: ignore[arg-type]

    def slope(_: float, flat: FloatArray) -> FloatArray:
        _, slopes = problem.loss_and_slopes(solution._unpacked(flat))
        return -np.concatenate([slopes[name].ravel() for name in problem.learn])

    method = LSODA if len(start) <= STIFF_SIZE else DOP853
    # Absolute errors are measured against the start: weights of 1e-6 must keep their digits too.
    scale = float(np.abs(start).max(initial=0.0)) or 1.0
    solver = method(slope, 0.0, start, np.inf, rtol=allowed, atol=allowed * min(scale, 1.0))
    course = _Course(solver, patience=PATIENCE["DOP853" if issubclass(method, DOP853) else "LSODA"])
    course.steepest = float(np.abs(slope(0.0, start)).max(initial=0.0))
    if course.steepest == 0.0:
        course.state = "rest"  # nothing will ever move
    object.__setattr__(solution, "_course", course)
    return solution
