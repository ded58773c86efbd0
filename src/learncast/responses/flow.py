"""The gradient flow of a small learning problem, integrated as far as it is asked for."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from scipy.integrate import DOP853, LSODA, OdeSolver, Radau
from scipy.optimize import brentq

from learncast.responses.problem import FeatureProblem, SmallProblem
from learncast.validation import FloatArray

#: Error allowed per step of the integration; a table is not smooth beyond its own accuracy.
TOLERANCE = {"features": 1e-11, "table": 1e-9, "spread": 1e-6}
#: Weights up to which the solver that turns to stiff steps is used.
_STIFF_SIZE = 400
#: A weight beyond this has run away.
_LARGEST = 1e8
#: Solver steps before a flow is given up.
_MOST_STEPS = 4_000
#: Slope, relative to the largest met, at which a flow may have arrived, and times longer that it must stay so.
_AT_REST, _PATIENCE = 1e-9, 10.0


@dataclass(eq=False)
class Course:
    """A flow as far as it has been integrated: pieces of dense output, and how it stands.

    On one piece every ReLU unit keeps the sign of its input weight, so that the flow is smooth. Where an input weight
    reaches 0 the piece ends: the unit goes on with the other sign's response if that pulls it on, and otherwise rests
    at 0 until either side pulls it away.
    """

    problem: SmallProblem
    start: FloatArray
    #: for the spread of replicas alone, which needs few digits and should be had quickly
    quick: bool = False
    ends: list[float] = field(default_factory=lambda: [0.0])
    pieces: list[Any] = field(default_factory=list)
    state: str = "going"  # going, rest, diverged, unfinished
    quiet_since: float = math.inf

    def __post_init__(self) -> None:
        self.now = self.start.copy()
        self.signs = np.sign(self.start[: self.problem.units])
        self.steepest = float(np.abs(self._slope(0.0, self.now)).max(initial=0.0))
        if self.steepest == 0.0:
            self.state = "rest"
        self.solver = self._solver(0.0)

    def _slope(self, _: float, flat: FloatArray) -> FloatArray:
        return -self.problem.loss_and_slopes(flat[None], self.signs)[1][0]

    def _solver(self, begin: float) -> OdeSolver:
        method = Radau if self.quick else LSODA if len(self.now) <= _STIFF_SIZE else DOP853
        scale = float(np.abs(self.now).max(initial=0.0)) or 1.0
        exact = "features" if isinstance(self.problem, FeatureProblem) else "table"
        allowed = TOLERANCE["spread" if self.quick else exact]
        return method(self._slope, begin, self.now, np.inf, rtol=allowed, atol=allowed * min(scale, 1.0))

    def advance(self, until: float) -> None:
        """Integrate up to a flow time, or to where the flow rests, runs away or is given up."""
        while self.state == "going" and self.ends[-1] < until:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a failing solver says so by its status
                self.solver.step()
            if self.solver.status == "failed" or not np.abs(self.solver.y).max() < _LARGEST:
                self.state = "diverged"
                return
            piece, end = self.solver.dense_output(), float(self.solver.t)
            self.pieces.append(piece)
            turn = self._turn(piece, self.ends[-1], end)
            self.ends.append(end if turn is None else turn[0])
            self.now = self.solver.y if turn is None else piece(turn[0])
            if turn is not None:
                self._cross(turn[1])
            self._settle()

    def _turn(self, piece: Any, begin: float, end: float) -> tuple[float, int] | None:
        """The first moment of a step at which an input weight reaches 0, or a resting one is pulled away."""
        if not isinstance(self.problem, FeatureProblem):
            return None
        after = piece(end)
        found: list[tuple[float, int]] = []
        for unit in np.flatnonzero(self.signs * after[: self.problem.units] < 0):
            place = partial(_component, piece, int(unit), float(self.signs[unit]))
            # A unit that has just left 0 may start on the wrong side by rounding.
            found.append((begin if place(begin) <= 0 else float(brentq(place, begin, end, rtol=1e-14)), int(unit)))
        still = np.flatnonzero(self.signs == 0)
        if len(still) and (self.problem.pull(after[None])[:, still] > self._slight).any():
            free = int(still[int((self.problem.pull(after[None])[:, still] > self._slight).any(axis=0).argmax())])
            pulled = partial(self._pulled, piece, free)
            found.append((begin if pulled(begin) >= 0 else float(brentq(pulled, begin, end, rtol=1e-14)), free))
        return min(found, default=None)

    @property
    def _slight(self) -> float:
        """A pull that is rounding: it moves no weight away from 0."""
        return 1e-12 * self.steepest

    def _pulled(self, piece: Any, unit: int, time: float) -> float:
        assert isinstance(self.problem, FeatureProblem)
        return float(self.problem.pull(piece(time)[None])[:, unit].max()) - self._slight

    def _cross(self, unit: int) -> None:
        """Put a unit at 0 and choose the side on which it goes on."""
        assert isinstance(self.problem, FeatureProblem)
        self.now = np.array(self.now)
        self.now[unit] = 0.0
        up, down = self.problem.pull(self.now[None])[:, unit]
        came = self.signs[unit]
        sides = [side for side, pull in ((1.0, up), (-1.0, down)) if pull > self._slight and side != came]
        self.signs = np.array(self.signs)
        self.signs[unit] = sides[0] if sides else 0.0
        self.solver = self._solver(self.ends[-1])

    def _settle(self) -> None:
        slope = float(np.abs(self._slope(0.0, self.now)).max())
        self.steepest = max(self.steepest, slope)
        end = self.ends[-1]
        self.quiet_since = min(self.quiet_since, end) if slope <= _AT_REST * self.steepest else math.inf
        if slope == 0.0 or end >= _PATIENCE * self.quiet_since:  # where nothing moves at all, nothing ever will
            self.state = "rest"
        elif len(self.pieces) >= _MOST_STEPS:
            self.state = "unfinished"

    def weights(self, time: float) -> FloatArray | None:
        """Weights at a flow time; None where there are none."""
        if time == 0:
            return self.start
        self.advance(time)
        if time <= self.ends[-1]:
            return np.asarray(self.pieces[int(np.searchsorted(self.ends, time, side="left")) - 1](time))
        return self.now if self.state == "rest" else None

    def loss(self, time: float) -> float:
        """Loss at a flow time; nan where there is none."""
        weights = self.weights(time)
        return math.nan if weights is None else float(self.problem.loss_and_slopes(weights[None])[0][0])

    def time_to(self, goal: float) -> float:
        """First flow time at which the loss is at most the goal; infinite when it rests above, nan when unknown."""
        known = 0
        while True:
            for k in range(known, len(self.ends)):
                if self.loss(self.ends[k]) <= goal:
                    return 0.0 if k == 0 else self._located(goal, k)
            known = len(self.ends)
            if self.state != "going":
                return math.inf if self.state == "rest" else math.nan
            self.advance(math.nextafter(self.ends[-1], math.inf))

    def _located(self, goal: float, k: int) -> float:
        low, high = self.ends[k - 1], self.ends[k]
        if self.loss(low) <= goal:
            return low
        return float(brentq(lambda t: self.loss(t) - goal, low, high, xtol=1e-300, rtol=1e-14))


def _component(piece: Any, unit: int, sign: float, time: float) -> float:
    return float(piece(time)[unit]) * sign
