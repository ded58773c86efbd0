"""The fastest path of one mode through a pool of tasks, switching freely or under limits."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, between, count, positive, real_array
from learncast.planning.schedules.switches import SwitchProblem, SwitchTrace, best_trace
from learncast.planning.terms import checked_costs, checked_switch_cost, stop_band
from learncast.results import Status
from learncast.theory.dynamics import mode_equation

#: Tasks that may compete under limits, without those that another task beats everywhere: memory grows as the square.
MOST_RIVALS = 2000


@dataclass(frozen=True)
class Leg:
    """Training on one task of a path from one strength to another."""

    task: int
    start: float
    end: float
    flow_steps: float


@dataclass(frozen=True)
class Path:
    """An order of tasks and switching points for one mode.

    Attributes
    ----------
    legs : tuple of Leg
        Empty if no path exists or the mode is already there. The last is infinite if no task leads further.
    costs : tuple of float
        Cost of each leg: its flow steps times its task's cost per step.
    switch_cost : float
        Cost of each change of task.
    status : Status
        not_learned if no path meets the limits.

    Examples
    --------
    The second task is faster while the mode is weak; changing from it is worth 80 steps, not 200:

    >>> import learncast as lc
    >>> rules = {"start": 0.01, "end": 0.99, "learning_rate": 1e-2}
    >>> for cost in (0.0, 200.0):
    ...     path = lc.planning.cheapest_path([1.0, 2.0], [1.0, 4.0], switch_cost=cost, **rules)
    ...     print([leg.task for leg in path.legs], round(path.total, 1))
    [1, 0] 379.0
    [0] 459.5
    """

    legs: tuple[Leg, ...]
    costs: tuple[float, ...]
    switch_cost: float = 0.0
    status: Status = Status.ok

    @property
    def flow_steps(self) -> float:
        """Total flow steps; infinite if no path exists."""
        return float(sum(leg.flow_steps for leg in self.legs)) if self.status is Status.ok else float("inf")

    @property
    def total(self) -> float:
        """Total cost including switches; infinite if no path exists."""
        if self.status is not Status.ok:
            return float("inf")
        return float(sum(self.costs)) + self.switch_cost * max(0, len(self.legs) - 1)


def fastest_path(
    cross: ArrayLike, power: ArrayLike, *, start: float, end: float, learning_rate: float, imbalance: float = 0.0
) -> Path:
    """Train on whichever task of a pool moves the mode fastest, at every strength on the way.

    The speed du/dtau = S(u) (beta_k - u B_k) differs between tasks only by a straight line in u, so the fastest task is
    the upper envelope of these lines on the way up and the lower envelope on the way down: at most one leg per task,
    found by sorting the slopes (O(n log n)).

    Parameters
    ----------
    cross, power : (tasks,)
        Recurrence-weighted strengths beta_yx and beta_xx of each task on the mode.
    start, end : float
        Strengths to travel between.
    learning_rate : float
    imbalance : float
        a^2 - c^2.

    Returns
    -------
    Path
        With an infinite last leg if no task leads further.

    Examples
    --------
    >>> import learncast as lc
    >>> found = lc.planning.fastest_path([1.0, 2.0], [1.0, 1.0], start=0.01, end=0.99, learning_rate=1e-2)
    >>> [leg.task for leg in found.legs]
    [1]
    """
    beta, B = _tasks(cross, power)
    rate = positive("learning_rate", learning_rate)
    if start == end:
        return Path((), ())
    up = 1.0 if end > start else -1.0
    # On the way down the fastest task has the lowest line; mirroring u makes it the highest.
    tasks, switches = upper_envelope(up * beta, -B)
    low, high = sorted((up * start, up * end))
    stops = np.minimum([*switches, high], high)
    used = stops > np.maximum.accumulate([low, *stops[:-1]])
    chosen, ends = np.array(tasks)[used], stops[used]
    legs = _legs(up * low, chosen, up * ends, imbalance, beta, B, rate)
    return Path(legs, tuple(leg.flow_steps for leg in legs))


def _legs(
    start: float,
    tasks: NDArray[np.intp],
    stops: FloatArray,
    imbalance: float,
    cross: FloatArray,
    power: FloatArray,
    rate: float,
) -> tuple[Leg, ...]:
    """Time every leg between consecutive stops."""
    begins = np.concatenate([[start], stops[:-1]])
    times = mode_equation.time_between(begins, stops, imbalance, cross[tasks], power[tasks]) / rate
    rows = zip(tasks.tolist(), begins.tolist(), stops.tolist(), times.tolist(), strict=True)
    return tuple(Leg(*row) for row in rows)


def cheapest_path(
    cross: ArrayLike,
    power: ArrayLike,
    *,
    start: float,
    end: ArrayLike,
    learning_rate: float,
    imbalance: float = 0.0,
    costs: ArrayLike = 1.0,
    switch_cost: float = 0.0,
    max_stages: int | None = None,
    last: int | None = None,
    least_accuracy: ArrayLike | None = None,
    most_accuracy: ArrayLike | None = None,
) -> Path:
    """Find the cheapest path of one mode through a pool of tasks, under limits, exactly.

    Without limits this is the envelope of the lines (beta_k - u B_k) / cost_k, in O(n log n). With a limited number of
    stages, a cost of switching or limits on stops it is dynamic programming over the points where a best path can
    switch. A path overshoots its end only if a limit makes that best.

    Parameters
    ----------
    cross, power : (tasks,)
        Recurrence-weighted strengths beta_yx and beta_xx of each task on the mode.
    start : float
        Strength at the start.
    end : float or (low, high)
        Strength to reach, or the band to end in.
    learning_rate : float
    imbalance : float
        a^2 - c^2.
    costs : float or (tasks,)
        Cost of one step on each task, such as the length of its trials.
    switch_cost : float
        Cost of each change of task, in the same unit.
    max_stages : int, optional
        Stages at most; any number by default.
    last : int, optional
        Task that must be the last stage. It may need no training.
    least_accuracy, most_accuracy : float or (tasks,), optional
        Accuracy on its own task, 1 - abs(u - u*) / abs(u*), at which a stage may stop at the earliest and the latest;
        nan for no limit.

    Returns
    -------
    Path
        With status not_learned and an infinite total if no path meets the limits.

    Examples
    --------
    >>> import learncast as lc
    >>> found = lc.planning.cheapest_path([1.0, 2.0], [1.0, 1.0], start=0.01, end=0.99, learning_rate=1e-2)
    >>> [leg.task for leg in found.legs]
    [1]
    """
    beta, B = _tasks(cross, power, moving=True)
    if last is not None:
        place = count("last", last, least=0)
        last = int(between("last", place, 0, len(beta) - 1))
    if max_stages is not None:
        max_stages = count("max_stages", max_stages)
    rate = positive("learning_rate", learning_rate)
    problem = SwitchProblem(
        beta,
        B,
        checked_costs(costs, len(beta)),
        float(real_array("imbalance", imbalance, ndim=0)),
        float(real_array("start", start, ndim=0)),
        _band(end),
        *stop_band(beta, B, least_accuracy, most_accuracy),
        last,
        checked_switch_cost(switch_cost) * rate,
    )
    banded = (problem.nearest > 0).any() or np.isfinite(problem.farthest).any()
    limited = max_stages is not None or problem.switch_cost > 0 or banded
    trace = _limited_trace(problem, max_stages) if limited else _free_trace(problem)
    if not np.isfinite(trace.total):
        return Path((), (), float(switch_cost), Status.not_learned)
    tasks, stops = np.array(trace.tasks, dtype=np.intp), np.array(trace.stops)
    legs = _legs(problem.start, tasks, stops, problem.imbalance, beta, B, rate) if len(tasks) else ()
    paid = tuple(float(leg.flow_steps * problem.cost[leg.task]) for leg in legs)
    return Path(legs, paid, float(switch_cost), Status.ok)


def _free_trace(problem: SwitchProblem) -> SwitchTrace:
    """Follow the envelope to the near edge of the end."""
    end = float(np.clip(problem.start, *problem.end))
    path = fastest_path(
        problem.cross / problem.cost,
        problem.power / problem.cost,
        start=problem.start,
        end=end,
        learning_rate=1.0,
        imbalance=problem.imbalance,
    )
    tasks, stops = [leg.task for leg in path.legs], [leg.end for leg in path.legs]
    if problem.last is not None and (not tasks or tasks[-1] != problem.last):
        tasks, stops = [*tasks, problem.last], [*stops, end]
    return SwitchTrace(tuple(tasks), tuple(stops), path.flow_steps)


def _limited_trace(problem: SwitchProblem, max_stages: int | None) -> SwitchTrace:
    """Search among the tasks that no other task dominates."""
    keep = _rivals(problem)
    if len(keep) > MOST_RIVALS:
        raise InvalidSpec(f"At most {MOST_RIVALS} tasks may compete under limits, got {len(keep)}.", field="cross")
    last = None if problem.last is None else int(np.searchsorted(keep, problem.last))
    fewer = replace(
        problem,
        last=last,
        **{name: getattr(problem, name)[keep] for name in ("cross", "power", "cost", "nearest", "farthest")},
    )
    trace = best_trace(fewer, max_stages)
    return replace(trace, tasks=tuple(int(keep[k]) for k in trace.tasks))


def _rivals(problem: SwitchProblem) -> NDArray[np.intp]:
    """Tasks worth considering: those with limits of their own, and those that no unlimited one beats."""
    tasks = np.arange(len(problem.cross))
    free = tasks[(problem.nearest == 0) & np.isinf(problem.farthest)]
    bound = np.setdiff1d(tasks, free)
    ends = problem.end if len(bound) else (np.clip(problem.start, *problem.end),)
    points = np.concatenate([[problem.start, *ends], *(problem.edges(int(k)) for k in bound)])
    low, high = float(points.min()), float(points.max())
    at_low, at_high = ((problem.cross - u * problem.power)[free] / problem.cost[free] for u in (low, high))
    keep = [bound, free[undominated(at_low, at_high)], free[undominated(-at_low, -at_high)]]
    if not len(bound):  # no limit can make overshoot best: only the way ahead counts
        keep = keep[:2] if problem.start < problem.end[0] else [bound, keep[2]]
    return np.unique(np.concatenate([*keep, [] if problem.last is None else [problem.last]]).astype(np.intp))


def _tasks(cross: ArrayLike, power: ArrayLike, *, moving: bool = False) -> tuple[FloatArray, FloatArray]:
    beta, B = real_array("cross", cross, ndim=1), real_array("power", power, ndim=1)
    if beta.shape != B.shape or not len(beta):
        raise InvalidSpec(
            f"cross and power must have the same length, at least 1, got {len(beta)} and {len(B)}.", field="cross"
        )
    bad = B[(B < 0) | ((B == 0) & (beta != 0))]
    if moving and len(bad):
        raise InvalidSpec(f"power must be positive, or 0 where cross is 0, got {float(bad[0]):g}.", field="power")
    return beta, B


def _band(end: ArrayLike) -> tuple[float, float]:
    ends = real_array("end", end, ndim=(0, 1)).ravel()
    if len(ends) not in (1, 2) or ends[0] > ends[-1]:
        raise InvalidSpec(f"end must be one strength, or a low and a high one, got {ends.tolist()!r:.60}.", field="end")
    return float(ends[0]), float(ends[-1])


def upper_envelope(height: FloatArray, slope: FloatArray) -> tuple[list[int], list[float]]:
    """Lines height + slope x that are highest somewhere, from left to right, and where they cross."""
    order = np.lexsort((height, slope))
    heights, slopes = height[order].tolist(), slope[order].tolist()  # plain floats: a loop over numpy scalars is slow
    hull: list[int] = []
    cuts: list[float] = []
    for k, (rise, tilt) in enumerate(zip(heights, slopes, strict=True)):
        if hull and slopes[hull[-1]] == tilt:  # parallel: the higher comes later in the order
            hull.pop()
            if cuts:
                cuts.pop()
        while hull:
            cut = (heights[hull[-1]] - rise) / (tilt - slopes[hull[-1]])
            if not cuts or cut > cuts[-1]:
                cuts.append(cut)
                break
            hull.pop()
            cuts.pop()
        hull.append(k)
    return [int(order[k]) for k in hull], cuts


def undominated(left: FloatArray, right: FloatArray) -> NDArray[np.intp]:
    """Lines that no other line beats at both ends of an interval, given their heights there; one of equal lines.

    A line below another at both ends is below it in between, so it is never used.
    """
    order = np.lexsort((-right, -left))
    best = np.maximum.accumulate(right[order])
    first = np.ones(len(order), dtype=bool)
    first[1:] = best[1:] > best[:-1]
    return np.sort(order[first])
