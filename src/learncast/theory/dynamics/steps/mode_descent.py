"""Gradient descent and gradient flow of learning modes, many starts in parallel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from learncast._core.validation import FloatArray
from learncast.theory.dynamics import mode_equation
from learncast.theory.dynamics.mode_equation import band_scale, imbalance_of, resolved_start, sharpness
from learncast.theory.dynamics.steps.strides import UNLEARNED, Descents, Rows

__all__ = ["Problem"]

#: Largest number of descent steps that are counted.
MOST_STEPS = 10**9
#: Steps that are counted at a learning rate that is unstable at the optimum.
MOST_UNSTABLE = 5_000
#: Weights beyond this size belong to a descent that has diverged.
DIVERGED = 1e50
#: Relative rounding within which the edge of a goal counts as reached: flow and descent end stages on it.
EDGE = 1e-12


Number = TypeVar("Number", np.float64, np.bool_)


class Reached(Protocol):
    """Condition on weights (rows, 2, modes) of the given rows."""

    def __call__(self, states: FloatArray, rows: Rows, edge: float = EDGE) -> NDArray[np.bool_]:
        """Return whether each row has reached the goal, within the relative rounding `edge`; if negative, surely."""
        ...


@dataclass(frozen=True)
class Problem:
    """Modes of one task: recurrence-weighted strengths and conserved imbalance, for all rows or one per row."""

    cross: FloatArray
    power: FloatArray
    imbalance: FloatArray

    def strength(self, time: ArrayLike, start: FloatArray) -> FloatArray:
        """Return the strengths after a flow time that all modes share."""
        return mode_equation.strength(np.asarray(time)[..., None], start, self.imbalance, self.cross, self.power)

    def duration(self, start: FloatArray, tolerance: ArrayLike) -> FloatArray:
        """Return the flow time until all modes are within the tolerance."""
        times, *_ = mode_equation.band_entry(
            start, self.imbalance, self.cross, self.power, np.asarray(tolerance)[..., None]
        )
        return np.asarray(times[..., 0] if times.shape[-1] == 1 else times.max(axis=-1))

    def arrival(self, start: FloatArray, tolerance: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the flow time until all modes are within the tolerance, and the strengths then."""
        eps = np.asarray(tolerance)[..., None]
        times, edges = mode_equation.time_to_band(start, self.imbalance, self.cross, self.power, eps)
        if times.shape[-1] == 1:  # one mode ends on the edge
            return times[..., 0], edges
        last = times.max(axis=-1)
        return last, np.where(times == last[..., None], edges, self.strength(last, start))

    @cached_property
    def optimum(self) -> FloatArray:
        """Optimal strength of each mode; 0 for modes without influence on the loss."""
        return np.divide(self.cross, self.power, out=np.zeros_like(self.cross), where=self.power > 0)

    def within(self, tolerance: ArrayLike) -> Reached:
        """Return the goal that all modes are within a relative tolerance, one for all rows or one per row."""
        return self.near(np.asarray(tolerance)[..., None] * band_scale(self.optimum))

    def near(self, distance: FloatArray) -> Reached:
        """Return the goal that each mode is within the given distance of its optimum."""
        best, silent = self.optimum, np.asarray(self.power == 0)

        def reached(states: FloatArray, rows: Rows, edge: float = EDGE) -> NDArray[np.bool_]:
            gap = np.abs(states[:, 0] * states[:, 1] - _rows(best, rows))
            return np.asarray((_at_most(gap, _rows(distance, rows), edge) | _rows(silent, rows)).all(axis=-1))

        return reached

    def below(self, excess: ArrayLike) -> Reached:
        """Return the goal that the excess loss is at most `excess`."""
        best, limit = self.optimum, np.asarray(excess, dtype=float)

        def reached(states: FloatArray, rows: Rows, edge: float = EDGE) -> NDArray[np.bool_]:
            gap = states[:, 0] * states[:, 1] - _rows(best, rows)
            loss = (_rows(self.power, rows) * gap**2).sum(axis=-1) / 2
            return _at_most(loss, limit[rows] if limit.ndim else limit, edge)

        return reached

    def steps_to(
        self,
        start: FloatArray,
        goal: Reached,
        learning_rate: float,
        most_steps: int = MOST_STEPS,
        *,
        precise: bool = True,
    ) -> tuple[FloatArray, FloatArray]:
        """Count the descent steps from weights `start` (rows, 2, modes) to the goal; return steps and final weights.

        Steps are infinite if descent diverges or the flow never reaches the goal, and nan if `most_steps`, or fewer
        single ones, are not enough. Counts that are not precise may be off by about one step.
        """
        every = np.arange(len(start))
        diverged = ~(np.abs(start).reshape(len(start), -1).max(axis=1, initial=0.0) < DIVERGED)
        start = np.where(diverged[:, None, None], 0.0, start)
        a, c = start[:, 0], start[:, 1]
        (u, _), imbalance = resolved_start(a, c, self.cross), imbalance_of(a, c)
        unstable = (sharpness(u, imbalance, self.cross, self.power) * learning_rate > 2.0).any(axis=-1)
        limit = mode_equation.strength(np.inf, u, imbalance, self.cross, self.power)
        rest = np.stack(mode_equation.weights(a, c, limit), axis=1)
        # A goal whose edge is the final state itself is reached at infinite time only. Descent at a rate that is
        # unstable at the end may pass the goal before, so it is counted.
        never = diverged | (~unstable & ~goal(rest, every, -EDGE) & ~goal(start, every))
        steps, ends = np.where(never, np.inf, np.nan), start.copy()
        for settles, most in ((True, most_steps), (False, min(most_steps, MOST_UNSTABLE))):
            going = every[~never & (unstable != settles)]
            if not len(going):
                continue
            part = Problem(_rows(self.cross, going), _rows(self.power, going), self.imbalance)
            descents = part._descents(start[going], _of_rows(goal, going), learning_rate)
            steps[going], ends[going] = descents.steps_to_goal(start[going], most, precise=precise)
        # At an unstable rate descent passes the goal early or not at all.
        steps[unstable & np.isnan(steps)] = np.inf
        return steps, ends

    def advance(
        self, states: FloatArray, stops: Sequence[int], learning_rate: float, *, precise: bool = True
    ) -> list[FloatArray]:
        """Return weights (rows, 2, modes) after each of the increasing numbers of steps; inexact if not precise."""
        descents = self._descents(states, lambda w, rows, edge=EDGE: np.zeros(len(w), dtype=bool), learning_rate)
        return descents.states_after(states, stops, precise=precise)

    def _descents(self, states: FloatArray, goal: Reached, learning_rate: float) -> Descents:
        a, c = states[:, 0], states[:, 1]
        cross, power = (np.broadcast_to(part, a.shape) for part in (self.cross, self.power))
        sharp = sharpness(a * c, (a - c) * (a + c), self.cross, self.power)
        growth = float(np.abs(self.cross).max(initial=0.0))
        # If the initial strength far exceeds the optimum, unlearning sets the pace instead of growth.
        if (self.power**2 * (a * c) ** 2 > UNLEARNED * self.cross**2).any():
            growth = max(growth, float((self.power * (a**2 + c**2)).max(initial=0.0)))
        curvature = float(sharp[np.isfinite(sharp)].max(initial=0.0))
        steps = ModeSteps(cross, power, float(learning_rate))
        size = float(np.sqrt(np.abs(self.optimum).max(initial=0.0)))
        return Descents(steps.slope, goal, curvature, growth, learning_rate, steps, size)


@dataclass(eq=False)
class ModeSteps:
    """Single steps of modes, a <- a + eta c (beta - a c B), c <- c + eta a (beta - a c B).

    Attributes
    ----------
    cross, power : (rows, modes)
    learning_rate : float
    """

    cross: FloatArray
    power: FloatArray
    learning_rate: float

    def __post_init__(self) -> None:
        self._last: tuple[Rows, FloatArray, FloatArray] | None = None

    def slope(self, states: FloatArray, rows: Rows) -> FloatArray:
        """Return minus the gradient."""
        if self._last is None or self._last[0] is not rows:  # thousands of steps use the same rows
            self._last = rows, self.cross[rows], self.power[rows]
        _, cross, power = self._last
        pull = cross - power * (states[:, 0] * states[:, 1])
        return np.asarray(states[:, ::-1] * pull[:, None])

    def __call__(self, states: FloatArray, rows: Rows, steps: Sequence[int]) -> list[FloatArray]:
        """Return states (rows, 2, modes) after each of several increasing numbers of steps, in Python floats."""
        cross, power = self._lists
        results = np.array(
            [
                [self._mode(*mode, steps) for mode in zip(a, c, cross[row], power[row], strict=True)]
                for (a, c), row in zip(states.tolist(), rows.tolist(), strict=True)
            ]
        )
        return list(results.transpose(2, 0, 3, 1))

    @cached_property
    def _lists(self) -> tuple[list[list[float]], list[list[float]]]:
        return self.cross.tolist(), self.power.tolist()

    def _mode(self, a: float, c: float, beta: float, power: float, steps: Sequence[int]) -> list[tuple[float, float]]:
        rate, results = self.learning_rate, []
        for before, after in pairwise((0, *steps)):
            for _ in range(after - before):
                pull = beta - power * (a * c)
                a, c = c * pull * rate + a, a * pull * rate + c
            results.append((a, c))
        return results


def _at_most(values: FloatArray, limit: FloatArray, edge: float) -> NDArray[np.bool_]:
    return np.asarray(values <= limit * (1 + edge) if edge > 0 else values < limit * (1 + edge))


def _rows(values: NDArray[Number], rows: Rows) -> NDArray[Number]:
    """Return the values of some rows; without a row axis they are common to all."""
    return values[rows] if values.ndim > 1 else values


def _of_rows(goal: Reached, chosen: Rows) -> Reached:
    """Return the goal of some rows."""

    def reached(states: FloatArray, rows: Rows, edge: float = EDGE) -> NDArray[np.bool_]:
        return goal(states, chosen[rows], edge)

    return reached
