"""The best stops of many intermediate tasks at once, for modes that share them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from learncast.dynamics import mode_equation
from learncast.planning.curricula.passage import Problem
from learncast.planning.schedules.stopping import TIE, turning_strengths
from learncast.validation import FloatArray

#: Halvings that pin a crossing of two times down to the last digit.
_HALVINGS = 54


def best_stops(start: FloatArray, first: Problem, second: Problem, tolerance: float) -> tuple[FloatArray, FloatArray]:
    """Flow time on each first task (tasks, modes) that minimises the total until the second is learned; and that total.

    The same as `best_stop` task by task: each mode's total is monotone between turning times, so the slowest mode's
    has one minimum there, found by halving; here all intervals of all tasks that may hold the best are halved together.
    A stop of 0 means that no pretraining is best.
    """
    direct = float(second.arrival(start, tolerance)[0])
    number = len(first.cross)
    if not np.isfinite(direct):
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
