"""The cost of thousands of schedules, and the best stop of a single intermediate task."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from learncast._core.validation import FloatArray
from learncast.theory.dynamics import mode_equation
from learncast.theory.dynamics.steps.mode_descent import Problem

#: Iterations towards the time at which the loss meets its goal; ten reach the last digit.
MOST_ITERATIONS = 60

#: Halvings that pin a crossing of two times down to the last digit.
_HALVINGS = 54

#: Relative gain of a curriculum that is rounding.
TIE = 1e-12

Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ScheduleProblem(Problem):
    """Modes that share every stage, the tasks they may be trained on, and the goal of the target.

    The target is the last task. Times are flow times, costs are per flow time. Weighted strengths are (tasks, modes).

    Attributes
    ----------
    cost : (tasks,)
    least, most : (tasks,)
        Accuracy, that of the worst mode, at which a stage before the last may stop.
    most_loss : (tasks,)
        Excess loss of each task allowed at the end; infinite for no limit.
    by_loss : bool
        Whether the goal is an excess loss of tolerance^2 of the baseline loss, instead of every mode within tolerance
        of its optimum.
    """

    cost: FloatArray
    start: FloatArray
    tolerance: float
    by_loss: bool
    switch_cost: float
    least: FloatArray
    most: FloatArray
    most_loss: FloatArray

    @property
    def target(self) -> int:
        """Index of the target."""
        return len(self.cost) - 1

    @cached_property
    def last(self) -> Problem:
        """The target's modes."""
        return Problem(self.cross[-1], self.power[-1], self.imbalance)

    def moved(self, tasks: Indices, time: FloatArray, start: FloatArray) -> FloatArray:
        """Strengths after a stage; time is one per row, or one per row and mode. Task -1 is no stage."""
        clock = time if time.ndim == start.ndim else time[:, None]
        after = mode_equation.strength(clock, start, self.imbalance, self.cross[tasks], self.power[tasks])
        return np.where((tasks < 0)[:, None], start, after)

    def accuracy(self, tasks: Indices, at: FloatArray) -> FloatArray:
        """Accuracy of every mode on one task per row; 1 for a mode with nothing to learn."""
        return mode_equation.accuracy(at, self.cross[tasks], self.power[tasks])

    def excess(self, at: FloatArray) -> FloatArray:
        """Excess loss of every task at strengths (..., modes): (..., tasks)."""
        return np.asarray((self.power * (at[..., None, :] - self.optimum) ** 2).sum(axis=-1) / 2)

    @cached_property
    def goal(self) -> float:
        """Excess loss of the target at the goal, if the goal is a loss."""
        return float(self.tolerance**2 * (self.power[-1] * self.optimum[-1] ** 2).sum() / 2)

    def mode_rest(self, at: FloatArray) -> FloatArray:
        """Time each mode needs on the target to come within the tolerance."""
        p = self.last
        return mode_equation.time_to_band(at, self.imbalance, p.cross, p.power, self.tolerance)[0]

    def rest(self, at: FloatArray) -> FloatArray:
        """Time on the target until it is learned, from strengths (rows, modes)."""
        return self._rest_by_loss(at[None]) if self.by_loss else self.mode_rest(at).max(axis=-1)

    def latest(self, below: FloatArray, above: FloatArray) -> FloatArray:
        """Time on the target by which it is learned from any strengths between two bounds (rows, modes)."""
        ends = np.stack([below, above])
        return self._rest_by_loss(ends) if self.by_loss else self.mode_rest(ends).max(axis=(0, 2))

    def _rest_by_loss(self, at: FloatArray) -> FloatArray:
        """Time until the loss meets its goal, from the worst of several starts (starts, rows, modes) in each mode.

        Bounded from below by the time at which no mode exceeds the goal by itself, and from above by the time at which
        every mode has at most an even share of it.
        """
        p, weight = self.last, 2 * self.goal
        size = p.power * mode_equation.band_scale(self.optimum[-1]) ** 2
        size = np.where(size > 0, size, np.inf)
        single, even = (
            mode_equation.time_to_band(at, self.imbalance, p.cross, p.power, np.sqrt(part / size))[0].max(axis=(0, 2))
            for part in (weight, weight / len(self.start))
        )
        # By then a loss that can be met has been met, even if a mode never arrives.
        high = np.where(np.isfinite(even), even, self.settling(-1, at).max(axis=(0, 2)))
        time = self._crossing(at, np.minimum(single, high), high)
        return np.where(np.isinf(single) | (self._remaining(time, at) > self.goal * (1 + 1e-9)), np.inf, time)

    def settling(self, tasks: int | slice, at: FloatArray) -> FloatArray:
        """Time by which each mode has converged on tasks to the last digit; 0 for a mode without a rate."""
        rate = np.hypot(2 * self.cross[tasks], self.imbalance * self.power[tasks])
        scale = np.log(np.maximum(np.abs(self.optimum[tasks]), 1e-300)) - np.log(np.maximum(np.abs(at), 1e-300))
        return np.where(rate > 0, (40 + np.abs(scale)) / np.where(rate > 0, rate, 1.0), 0.0)

    def _crossing(self, at: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
        """Time between two bounds at which the loss meets its goal, by the root of its logarithm."""
        from scipy.optimize.elementwise import find_root

        def above(time: FloatArray, rows: Indices) -> FloatArray:
            return np.log(np.maximum(self._remaining(time, at[:, rows]) / max(self.goal, 1e-300), 1e-300))

        rows, last_digit = np.arange(len(low)), {"xatol": 0.0, "xrtol": 1e-15, "fatol": 1e-13, "frtol": 0.0}
        root = find_root(above, (low, high), args=(rows,), tolerances=last_digit, maxiter=MOST_ITERATIONS)
        return np.where(above(low, rows) <= 0, low, np.where(np.isfinite(root.x), root.x, high))

    def _remaining(self, time: FloatArray, at: FloatArray) -> FloatArray:
        """Excess loss of the target after a time on it, each mode from its worst start."""
        share = self.power[-1] * (self.last.strength(time, at) - self.optimum[-1]) ** 2
        return np.asarray(share.max(axis=0).sum(axis=-1) / 2)

    def fixed(self, orders: Indices) -> FloatArray:
        """Cost of the switches of each order."""
        return self.switch_cost * np.count_nonzero(orders >= 0, axis=1)

    def priced(self, orders: Indices, durations: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Total cost of orders (rows, stages before the target) with durations, and the time on the target.

        A schedule that breaks a limit costs infinity.
        """
        at = np.broadcast_to(self.start, (len(orders), len(self.start)))
        broken = np.zeros(len(orders), dtype=bool)
        for stage in range(orders.shape[1]):
            tasks = orders[:, stage]
            at = self.moved(tasks, durations[:, stage], at)
            accuracy = self.accuracy(tasks, at).min(axis=1)
            slack = 1e-12  # a stop computed to be on the limit is on it
            broken |= (tasks >= 0) & ((accuracy < self.least[tasks] - slack) | (accuracy > self.most[tasks] + slack))
        rest = self.rest(at)
        total = self.fixed(orders) + (durations * self.cost[orders]).sum(axis=1) + rest * self.cost[-1]
        if np.isfinite(self.most_loss).any():
            end = self.last.strength(np.where(np.isfinite(rest), rest, 0.0), at)
            broken |= (self.excess(end) > self.most_loss).any(axis=1)
        return np.where(broken, np.inf, total), rest


def best_stop(start: FloatArray, first: Problem, second: Problem, tolerance: float) -> tuple[FloatArray, FloatArray]:
    """Flow time on the first task that minimises the total until the second is learned, and that total.

    Of one first task (modes,), or of each of many (tasks, modes). A stop of 0 means that no pretraining is best.

    While a mode of strength u is below its target band, a moment spent on the first task replaces
    (beta_1 - u B_1) / (beta_2 - u B_2) moments on the second, whatever its imbalance. So each mode's total falls or
    rises monotonically between three strengths: where these rates are equal, and the two edges of the band. Between
    them the slowest mode's total has one minimum. It is found by halving; all intervals of all tasks that may hold the
    best are halved together.
    """
    shape = first.cross.shape[:-1]
    first = Problem(np.atleast_2d(first.cross), np.atleast_2d(first.power), first.imbalance)
    direct = float(second.arrival(start, tolerance)[0])
    if not np.isfinite(direct):
        # A mode that direct training never learns is not learned after any detour either.
        return np.zeros(shape), np.full(shape, np.inf)
    number = len(first.cross)
    turns = mode_equation.time_between(
        start, turning_strengths(first, second, tolerance), first.imbalance, first.cross, first.power
    )
    turns = np.moveaxis(turns, 1, 0).reshape(number, -1)
    # No plan that spends longer than direct training on the first task can win.
    turns = np.where(np.isfinite(turns) & (turns < direct), turns, direct)
    knots = np.sort(np.concatenate([np.zeros((number, 1)), turns, np.full((number, 1), direct)], axis=1), axis=1)
    tasks = np.arange(number)
    at = _totals(start, first, second, tolerance, np.repeat(tasks, knots.shape[1]), knots.ravel())
    at = at.reshape(*knots.shape, -1)
    slowest = at.max(axis=2)
    slowest[:, 0] *= 1 - TIE  # no pretraining wins ties
    pick = np.argmin(slowest, axis=1)
    stop, best = knots[tasks, pick], at.max(axis=2)[tasks, pick]
    # No mode is quicker inside an interval than at its better end.
    hopeful = np.minimum(at[:, :-1], at[:, 1:]).max(axis=2) < best[:, None] * (1 - TIE)
    task, k = np.nonzero(hopeful & (knots[:, 1:] > knots[:, :-1]))
    left, right, rising = knots[task, k], knots[task, k + 1], at[task, k + 1] > at[task, k]
    for _ in range(_HALVINGS if len(task) else 0):
        middle = (left + right) / 2
        now = _totals(start, first, second, tolerance, task, middle)
        up = rising[np.arange(len(task)), np.argmax(now, axis=1)]
        left, right = np.where(up, left, middle), np.where(up, middle, right)
    found = _totals(start, first, second, tolerance, task, right).max(axis=1)
    for row in np.argsort(-found, kind="stable"):  # the best of a task comes last and stays
        if found[row] < best[task[row]] * (1 - TIE):
            stop[task[row]], best[task[row]] = right[row], found[row]
    # Stopping on the band's edge is stopping inside it; rounding must not leave a sliver of the second task.
    best = np.where(best - stop < TIE * best, stop, best)
    return stop.reshape(shape), best.reshape(shape)


def turning_strengths(first: Problem, second: Problem, tolerance: float) -> FloatArray:
    """Strengths at which a mode's total time can turn: equal rates, and both edges of the band, (3, ..., modes)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        equal = (first.cross - second.cross) / (first.power - second.power)
        best = second.cross / second.power
        half_width = tolerance * mode_equation.band_scale(best)
    return np.stack(np.broadcast_arrays(equal, best - half_width, best + half_width))


def _totals(
    start: FloatArray, first: Problem, second: Problem, tolerance: float, tasks: NDArray[np.intp], times: FloatArray
) -> FloatArray:
    """Total of every mode when a row's task is stopped at a row's time, (rows, modes)."""
    rows = Problem(first.cross[tasks], first.power[tasks], first.imbalance)
    after = rows.strength(times, np.broadcast_to(start, rows.cross.shape))
    rest, _ = mode_equation.time_to_band(after, second.imbalance, second.cross, second.power, tolerance)
    return np.asarray(times[:, None] + rest)
