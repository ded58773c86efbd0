"""The fastest path of one mode through a pool of tasks, switching freely or under rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, between, count, positive, real_array
from learncast.planning.schedules.switches import Pool, Route, best_route
from learncast.planning.terms import checked_costs, checked_switch_cost, stop_band
from learncast.results import Status
from learncast.theory.dynamics import mode_equation

#: Tasks that may compete under rules, once those that another beats everywhere are set aside: memory grows as the
#: square.
MOST_RIVALS = 2000


@dataclass(frozen=True)
class Leg:
    """Training on one task of the pool from one strength to another."""

    task: int
    start: float
    end: float
    flow_steps: float


@dataclass(frozen=True)
class CheapestPath:
    """The cheapest order of tasks and switching points for one mode, under the rules it was asked for.

    Attributes
    ----------
    legs : tuple of Leg
        None where no path exists, or where there is nowhere to go.
    costs : tuple of float
        Cost of each leg: its flow steps times its task's cost per step.
    switch_cost : float
        Cost of each change of task.
    status : Status
        not_learned where no path meets the rules.

    Examples
    --------
    The second task is quicker while the mode is weak; to change from it is worth 80 steps, not 200:

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
    switch_cost: float
    status: Status

    @property
    def flow_steps(self) -> float:
        """Total flow steps; infinite where no path exists."""
        return float(sum(leg.flow_steps for leg in self.legs)) if self.status is Status.ok else float("inf")

    @property
    def total(self) -> float:
        """Total cost, switches included; infinite where no path exists."""
        if self.status is not Status.ok:
            return float("inf")
        return float(sum(self.costs)) + self.switch_cost * max(0, len(self.legs) - 1)


@dataclass(frozen=True)
class FastestPath:
    """The quickest order of tasks and switching points for one mode.

    Attributes
    ----------
    legs : tuple of Leg
        In order: the task trained, the strengths between which it is, and its flow steps. None where there is nowhere
        to go; the last is infinite where no task leads on.

    Examples
    --------
    Change over where both tasks are equally quick, 1 - u = 2 - 4u:

    >>> import learncast as lc
    >>> path = lc.planning.fastest_path([1.0, 2.0], [1.0, 4.0], start=0.01, end=0.99, learning_rate=1e-2)
    >>> [(leg.task, round(leg.end, 3), round(leg.flow_steps, 1)) for leg in path.legs]
    [(1, 0.333, 114.6), (0, 0.99, 264.4)]
    >>> round(path.flow_steps, 1)
    379.0
    """

    legs: tuple[Leg, ...]

    @property
    def flow_steps(self) -> float:
        """Total flow steps."""
        return float(sum(leg.flow_steps for leg in self.legs))


def fastest_path(
    cross: Any, power: Any, *, start: float, end: float, learning_rate: float, imbalance: float = 0.0
) -> FastestPath:
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
    FastestPath
        With an infinite last leg where no task leads on.

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
        return FastestPath(())
    up = 1.0 if end > start else -1.0
    # On the way down the quickest task has the lowest line; mirroring u makes it the highest.
    tasks, switches = upper_envelope(up * beta, -B)
    low, high = sorted((up * start, up * end))
    stops = np.minimum([*switches, high], high)
    used = stops > np.maximum.accumulate([low, *stops[:-1]])
    chosen, ends = np.array(tasks)[used], stops[used]
    return FastestPath(_legs(up * low, chosen, up * ends, imbalance, beta, B, rate))


def _legs(
    start: float,
    tasks: NDArray[np.intp],
    stops: FloatArray,
    imbalance: float,
    cross: FloatArray,
    power: FloatArray,
    rate: float,
) -> tuple[Leg, ...]:
    """Time the way from stop to stop, all legs at once."""
    begins = np.concatenate([[start], stops[:-1]])
    times = mode_equation.time_between(begins, stops, imbalance, cross[tasks], power[tasks]) / rate
    rows = zip(tasks.tolist(), begins.tolist(), stops.tolist(), times.tolist(), strict=True)
    return tuple(Leg(*row) for row in rows)


def cheapest_path(
    cross: Any,
    power: Any,
    *,
    start: float,
    end: Any,
    learning_rate: float,
    imbalance: float = 0.0,
    costs: Any = 1.0,
    switch_cost: float = 0.0,
    max_stages: int | None = None,
    last: int | None = None,
    least_accuracy: Any = None,
    most_accuracy: Any = None,
) -> CheapestPath:
    """Find the cheapest way of one mode through a pool of tasks, under rules, exactly.

    Without rules this is the envelope of the lines (beta_k - u B_k) / cost_k, in O(n log n). With a limited number of
    stages, a cost of switching or limits on where stages stop it is dynamic programming over the points where a best
    path can switch. A path overshoots its end only where a rule makes that best.

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
        nan where a task has no such limit.

    Returns
    -------
    CheapestPath
        With status not_learned and an infinite total where no path meets the rules.

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
    pool = Pool(
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
    banded = (pool.nearest > 0).any() or np.isfinite(pool.farthest).any()
    ruled = max_stages is not None or pool.switch_cost > 0 or banded
    route = _rivals_route(pool, max_stages) if ruled else _free_route(pool)
    if not np.isfinite(route.total):
        return CheapestPath((), (), float(switch_cost), Status.not_learned)
    tasks, stops = np.array(route.tasks, dtype=np.intp), np.array(route.stops)
    legs = _legs(pool.start, tasks, stops, pool.imbalance, beta, B, rate) if len(tasks) else ()
    paid = tuple(float(leg.flow_steps * pool.cost[leg.task]) for leg in legs)
    return CheapestPath(legs, paid, float(switch_cost), Status.ok)


def _free_route(pool: Pool) -> Route:
    """Follow the envelope to the near edge of the end."""
    end = float(np.clip(pool.start, *pool.end))
    path = fastest_path(
        pool.cross / pool.cost,
        pool.power / pool.cost,
        start=pool.start,
        end=end,
        learning_rate=1.0,
        imbalance=pool.imbalance,
    )
    tasks, stops = [leg.task for leg in path.legs], [leg.end for leg in path.legs]
    if pool.last is not None and (not tasks or tasks[-1] != pool.last):
        tasks, stops = [*tasks, pool.last], [*stops, end]
    return Route(tuple(tasks), tuple(stops), path.flow_steps)


def _rivals_route(pool: Pool, max_stages: int | None) -> Route:
    """Let the tasks compete that are not beaten by another everywhere, and name them as in the whole pool."""
    keep = _rivals(pool)
    if len(keep) > MOST_RIVALS:
        raise InvalidSpec(
            f"at most {MOST_RIVALS} tasks may compete under rules, got {len(keep)}, none of them slower than "
            "another everywhere. Offer fewer tasks, or drop the rules: switching freely takes any number."
        )
    last = None if pool.last is None else int(np.searchsorted(keep, pool.last))
    fewer = replace(
        pool,
        last=last,
        **{name: getattr(pool, name)[keep] for name in ("cross", "power", "cost", "nearest", "farthest")},
    )
    route = best_route(fewer, max_stages)
    return replace(route, tasks=tuple(int(keep[k]) for k in route.tasks))


def _rivals(pool: Pool) -> NDArray[np.intp]:
    """Tasks worth considering: those with rules of their own, and those no free one beats in a way it may be used."""
    tasks = np.arange(len(pool.cross))
    free = tasks[(pool.nearest == 0) & np.isinf(pool.farthest)]
    bound = np.setdiff1d(tasks, free)
    ends = pool.end if len(bound) else (np.clip(pool.start, *pool.end),)
    points = np.concatenate([[pool.start, *ends], *(pool.edges(int(k)) for k in bound)])
    low, high = float(points.min()), float(points.max())
    at_low, at_high = ((pool.cross - u * pool.power)[free] / pool.cost[free] for u in (low, high))
    keep = [bound, free[undominated(at_low, at_high)], free[undominated(-at_low, -at_high)]]
    if not len(bound):  # no rule can make overshoot best: only the way ahead counts
        keep = keep[:2] if pool.start < pool.end[0] else [bound, keep[2]]
    return np.unique(np.concatenate([*keep, [] if pool.last is None else [pool.last]]).astype(np.intp))


def _tasks(cross: Any, power: Any, *, moving: bool = False) -> tuple[FloatArray, FloatArray]:
    beta, B = real_array("cross", cross, ndim=1), real_array("power", power, ndim=1)
    if beta.shape != B.shape or not len(beta):
        raise InvalidSpec(f"cross and power must list the same tasks, at least one, got {len(beta)} and {len(B)}.")
    if moving and ((B < 0) | ((B == 0) & (beta != 0))).any():
        raise InvalidSpec(
            "power must be positive, or 0 where cross is 0 too, got "
            f"{float(B[(B < 0) | (B == 0) & (beta != 0)][0]):g}. Pass beta_xx as Modes.weighted_input gives "
            "it.",
            field="power",
        )
    return beta, B


def _band(end: Any) -> tuple[float, float]:
    ends = real_array("end", end, ndim=(0, 1)).ravel()
    if len(ends) not in (1, 2) or ends[0] > ends[-1]:
        raise InvalidSpec(
            required="end must be a strength, or the low and the high edge of a band",
            got=f"{ends.tolist()}"[:60],
            why="the path must know where it may end",
            remedy="give one number, or two in rising order",
        )
    return float(ends[0]), float(ends[-1])


def upper_envelope(height: FloatArray, slope: FloatArray) -> tuple[list[int], list[float]]:
    """Lines height + slope x that are highest somewhere, from left to right, and where they change over."""
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
    """Lines that no other line beats at both ends of an interval, given their heights there; one of equals.

    A line below another at both ends is below it in between, so nothing is gained by ever using it.
    """
    order = np.lexsort((-right, -left))
    best = np.maximum.accumulate(right[order])
    first = np.ones(len(order), dtype=bool)
    first[1:] = best[1:] > best[:-1]
    return np.sort(order[first])
