"""The best moment to stop an intermediate task."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from learncast._core.validation import FloatArray
from learncast.theory.dynamics import mode_equation
from learncast.theory.dynamics.steps.mode_descent import Problem

#: Relative gain of a curriculum that is rounding.
TIE = 1e-12


def best_stop(start: FloatArray, first: Problem, second: Problem, tolerance: float) -> tuple[FloatArray, FloatArray]:
    """Flow time on the first task that minimises the total until the second is learned, and that total.

    Of one first task (modes,), or of each of many (tasks, modes). A stop of 0 means that no pretraining is best.

    While a mode of strength u is below its target band, a moment spent on the first task replaces
    (beta_1 - u B_1) / (beta_2 - u B_2) moments on the second, whatever its imbalance. So each mode's total falls or
    rises monotonically between three strengths: where these rates are equal, and the two edges of the band.
    """
    if start.shape[-1] == 1:
        return _one_mode(start, first, second, tolerance)
    many = Problem(np.atleast_2d(first.cross), np.atleast_2d(first.power), first.imbalance)
    stops, totals = _several_modes(start, many, second, tolerance)
    shape = first.cross.shape[:-1]
    return stops.reshape(shape), totals.reshape(shape)


def turning_strengths(first: Problem, second: Problem, tolerance: float) -> FloatArray:
    """Strengths at which a mode's total time can turn: equal rates, and both edges of the band, (3, ..., modes)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        equal = (first.cross - second.cross) / (first.power - second.power)
        best = second.cross / second.power
        half_width = tolerance * mode_equation.band_scale(best)
    return np.stack(np.broadcast_arrays(equal, best - half_width, best + half_width))


def _one_mode(start: FloatArray, first: Problem, second: Problem, tolerance: float) -> tuple[FloatArray, FloatArray]:
    """Exact: the best stop is none, at equal rates, or at an edge of the target's band."""
    stops = turning_strengths(first, second, tolerance)
    spent = mode_equation.time_between(start, stops, first.imbalance, first.cross, first.power)
    reachable = np.isfinite(spent)
    after = np.where(reachable, stops, start)
    rest, _ = mode_equation.time_to_band(after, second.imbalance, second.cross, second.power, tolerance)
    # Stopping on the band's edge is stopping inside it; rounding must not leave a sliver of the second task.
    rest[1:] = np.where(reachable[1:], 0.0, rest[1:])
    total = np.where(reachable, spent + rest, np.inf)
    none, _ = mode_equation.time_to_band(start, second.imbalance, second.cross, second.power, tolerance)
    total = np.concatenate([np.broadcast_to(none, total.shape[1:])[None], total])
    spent = np.concatenate([np.zeros_like(spent[:1]), spent])
    # No pretraining wins ties, also those that rounding breaks.
    total[0] *= 1 - TIE
    choice = np.argmin(total, axis=0)[None]
    total[0] /= 1 - TIE
    stop, best = (np.take_along_axis(values, choice, axis=0)[0, ..., 0] for values in (spent, total))
    return stop, best


#: Halvings that pin a crossing of two times down to the last digit.
_HALVINGS = 54


def _several_modes(
    start: FloatArray, first: Problem, second: Problem, tolerance: float
) -> tuple[FloatArray, FloatArray]:
    """Exact too: between turning times every mode's total is monotone, so the slowest mode's has one minimum there.

    It is found by halving; all intervals of all tasks that may hold the best are halved together.
    """
    direct = float(second.arrival(start, tolerance)[0])
    number = len(first.cross)
    if not np.isfinite(direct):
        # A mode that direct training never learns is not learned after any detour either.
        return np.zeros(number), np.full(number, np.inf)
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
    return stop, best


def _totals(
    start: FloatArray, first: Problem, second: Problem, tolerance: float, tasks: NDArray[np.intp], times: FloatArray
) -> FloatArray:
    """Total of every mode when a row's task is stopped at a row's time, (rows, modes)."""
    rows = Problem(first.cross[tasks], first.power[tasks], first.imbalance)
    after = rows.strength(times, np.broadcast_to(start, rows.cross.shape))
    rest, _ = mode_equation.time_to_band(after, second.imbalance, second.cross, second.power, tolerance)
    return np.asarray(times[:, None] + rest)
