"""The best moment to stop an intermediate task."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from learncast.dynamics import mode_equation
from learncast.planning.curricula.passage import Problem
from learncast.progress import Progress, silent
from learncast.validation import FloatArray

#: Relative gain of a curriculum that is rounding.
TIE = 1e-12

#: Bisections that pin a crossing of two times down to the last digit.
_BISECTIONS = 80


def best_stop(
    start: FloatArray,
    first: Problem,
    second: Problem,
    tolerance: float,
    *,
    progress: Progress = silent,
) -> tuple[FloatArray, FloatArray]:
    """Flow time on the first task that minimises the total until the second is learned, and that total.

    Leading axes are separate candidates. A stop of 0 means that no pretraining is best.

    While a mode of strength u is below its target band, a moment spent on the first task replaces
    (beta_1 - u B_1) / (beta_2 - u B_2) moments on the second, whatever its imbalance. So each mode's total falls or
    rises monotonically between three strengths: where these rates are equal, and the two edges of the band.
    """
    if start.shape[-1] == 1:
        return _one_mode(start, first, second, tolerance)
    problems = np.broadcast_arrays(start, first.cross, first.power, second.cross, second.power)
    shape = problems[0].shape[:-1]
    rows = list(zip(*(p.reshape(-1, p.shape[-1]) for p in problems), strict=True))
    found = []
    for k, (u0, b1, B1, b2, B2) in enumerate(rows):
        one, two = Problem(b1, B1, first.imbalance), Problem(b2, B2, second.imbalance)
        found.append(_several_modes(u0, one, two, tolerance))
        progress((k + 1) / len(rows))
    stops, totals = (np.array(values).reshape(shape) for values in zip(*found, strict=True))
    return stops, totals


def turning_strengths(first: Problem, second: Problem, tolerance: float) -> FloatArray:
    """Strengths at which a mode's total time can turn: equal rates, and both edges of the band, (3, ..., modes)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        equal = (first.cross - second.cross) / (first.power - second.power)
        best = second.cross / second.power
    both = np.broadcast_arrays(equal, (1 - tolerance) * best, (1 + tolerance) * best)
    return np.stack(both)


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
    pick = (np.take_along_axis(values, choice, axis=0)[0, ..., 0] for values in (spent, total))
    stop, best = pick
    return stop, best


def _several_modes(start: FloatArray, first: Problem, second: Problem, tolerance: float) -> tuple[float, float]:
    """Exact too: between turning times every mode's total is monotone, so their maximum has one minimum."""

    def totals(times: FloatArray) -> FloatArray:
        after = first.strength(times, start)
        rest, _ = mode_equation.time_to_band(after, second.imbalance, second.cross, second.power, tolerance)
        return times[:, None] + rest

    direct = float(totals(np.zeros(1)).max())
    if not np.isfinite(direct):
        return 0.0, direct  # a mode that direct training never learns is not learned after any detour either
    turns = mode_equation.time_between(
        start, turning_strengths(first, second, tolerance), first.imbalance, first.cross, first.power
    )
    # No plan that spends longer than direct training on the first task can win.
    knots = np.unique(np.concatenate([[0.0, direct], turns[np.isfinite(turns) & (turns < direct)]]))
    at_knots = totals(knots)
    best_index = int(np.argmin(at_knots.max(axis=1)))
    stop, best = float(knots[best_index]), float(at_knots[best_index].max())
    if best > direct * (1 - TIE):
        stop, best = 0.0, direct
    low = np.minimum(at_knots[:-1], at_knots[1:]).max(axis=1)  # no mode is quicker inside than at its better end
    for k in np.flatnonzero(low < best):
        stop_here, best_here = _inside(float(knots[k]), float(knots[k + 1]), totals, at_knots[k], at_knots[k + 1])
        if best_here < best * (1 - TIE):
            stop, best = stop_here, best_here
    return stop, best


def _inside(
    left: float,
    right: float,
    totals: Callable[[FloatArray], FloatArray],
    at_left: FloatArray,
    at_right: FloatArray,
) -> tuple[float, float]:
    """Minimum of the slowest mode's total on an interval where each mode rises or falls throughout."""
    rising = at_right > at_left
    for _ in range(_BISECTIONS):
        middle = (left + right) / 2
        values = totals(np.array([middle]))[0]
        if rising[int(np.argmax(values))]:
            right = middle
        else:
            left = middle
    ends = np.array([left, right])
    worst = totals(ends).max(axis=1)
    k = int(np.argmin(worst))
    return float(ends[k]), float(worst[k])
