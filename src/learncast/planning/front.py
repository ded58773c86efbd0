"""The Pareto front of cost against forgetting."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.progress import Progress, silent
from learncast._core.validation import FloatArray, count, positive
from learncast.planning.methods.method import Method
from learncast.planning.methods.modes import ModeMethod
from learncast.planning.schedules.branching import lattice_of, orders_of
from learncast.planning.schedules.exact import FlowSchedule, ScheduleSearch
from learncast.planning.search import DescentSearch, FlowSearch, Route, usable_candidates
from learncast.planning.terms import PoolTerms, Terms
from learncast.procedure.goals import goal_of
from learncast.results import described
from learncast.tasks.task import Task
from learncast.theory.assumptions import require

if TYPE_CHECKING:
    import xarray as xr

#: Durations tried for each stage to find how little may be forgotten.
_TRIED = 24


@dataclass(frozen=True, eq=False, repr=False)
class Front:
    """The cheapest schedules for decreasing limits on what is forgotten of one task.

    Attributes
    ----------
    task : Task
        The task whose excess loss at the end is limited.
    limits : (points,)
        The limits, decreasing; the first is what the cheapest schedule of all leaves.
    schedules : tuple of FlowSchedule
        The cheapest under each limit; of infinite cost if none meets it.
    excess_loss : (points,)
        Excess loss of the task at the end of each.
    tasks : tuple of Task
        The pool.
    by_flow : bool
        Whether costs are those of the gradient flow; otherwise of whole steps.

    Examples
    --------
    The cost of remembering the stronger targets better than the cheapest schedule does:

    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> stronger = task.varied(target_strength=1.5).renamed("stronger")
    >>> plan = lc.plan(task, [stronger], network, learning_rate=1e-3)
    >>> front = plan.front("stronger", points=2)
    >>> front.total.round(1), front.excess_loss.round(2)
    (array([166. , 166.9]), array([4.91, 4.53]))
    """

    task: Task
    limits: FloatArray
    schedules: tuple[FlowSchedule, ...]
    excess_loss: FloatArray
    tasks: tuple[Task, ...]
    by_flow: bool = True

    @property
    def total(self) -> FloatArray:
        """Cost of each schedule."""
        return np.array([s.route.total for s in self.schedules])

    @property
    def lower_bound(self) -> FloatArray:
        """Lower bound of the cost under each limit."""
        return np.array([s.lower_bound for s in self.schedules])

    @cached_property
    def dataset(self) -> xr.Dataset:
        """The front, labelled."""
        import xarray as xr

        gaps = np.array([s.gap for s in self.schedules])
        return xr.Dataset(
            {
                "total": ("limit", self.total, described("cost of the cheapest schedule", "cost")),
                "lower_bound": ("limit", self.lower_bound, described("least cost of any schedule", "cost")),
                "gap": ("limit", gaps, described("relative gap between both", "1")),
                "excess_loss": ("limit", self.excess_loss, described("excess loss at the end", "target^2")),
            },
            coords={
                "limit": ("limit", self.limits, described("limit on the excess loss", "target^2")),
                "proof": ("limit", [s.proof for s in self.schedules]),
                "status": ("limit", ["ok" if np.isfinite(s.route.total) else "not_learned" for s in self.schedules]),
                "order": ("limit", [self._order(s) for s in self.schedules]),
            },
            attrs={"task": self.task.name},
        )

    def _order(self, schedule: FlowSchedule) -> str:
        if not np.isfinite(schedule.route.total):
            return ""
        return " -> ".join(self.tasks[k].name for k in (*schedule.route.order, -1))

    def __repr__(self) -> str:
        met = np.isfinite(self.total)
        if not met.any():
            return f"<Front of {self.task.name!r}: no schedule>"
        costs, left = self.total[met], self.excess_loss[met]
        return (
            f"<Front of {self.task.name!r}: cost {costs.min():.6g} to {costs.max():.6g} for an excess loss of "
            f"{left.max():.4g} to {left.min():.4g}>"
        )


def front_with(
    method: Method,
    terms: Terms,
    *,
    remember: int = 0,
    points: int = 8,
    strict: bool = True,
    gap: float = 1e-3,
    progress: Progress = silent,
) -> Front:
    """Trade the cost of a schedule against what it forgets of one candidate.

    Parameters
    ----------
    method : Method
        How the pool is learned, the target last.
    terms : Terms
        Goal, costs and limits.
    remember : int
        Index of the candidate whose excess loss at the end is limited.
    points : int
        Limits, from what the cheapest schedule leaves down to the least that was found.
    strict : bool
        Whether the conditions of the theory must hold.
    gap : float
        Relative gap between a schedule and its lower bound at which a search ends.
    progress : callable

    Returns
    -------
    Front
    """
    number, usable = count("points", points, least=2), usable_candidates(method, strict)
    if strict:
        require(method.conditions(method.target))
    if count("remember", remember, least=0) not in usable:
        raise InvalidSpec(f"remember must be one of {usable}, got {remember}.", field="remember")
    goal = goal_of(terms.goal, recorded=method.tasks[-1].recording is not None)
    pool = terms.over(method.target, goal)
    search: _ModeFront | _SearchedFront
    if isinstance(method, ModeMethod):
        exact = replace(ScheduleSearch.of(method, pool, usable), gap=positive("gap", gap))
        search = _ModeFront(exact, usable.index(remember))
    else:
        search = _SearchedFront(method, pool, usable, remember)
    cheapest = search.run(math.inf)
    high = float(cheapest.excess_loss[search.task])
    low = min(high, search.least_left())
    limits = np.linspace(high, low, number)
    # A tried schedule met the last limit; rounding must not put it out of reach.
    limits[-1] *= 1 + 1e-9
    schedules = [cheapest]
    for k, limit in enumerate(limits[1:]):
        schedules.append(search.run(float(limit)))
        progress((k + 2) / number)
    left = np.array([s.excess_loss[search.task] for s in schedules])
    by_flow = isinstance(method, ModeMethod) or not method.counts_many
    return Front(method.tasks[remember], limits, tuple(schedules), left, method.tasks, by_flow)


@dataclass(frozen=True, eq=False)
class _ModeFront:
    """Schedules of common modes, by closed forms with a proof; `task` is the position among those that take part."""

    search: ScheduleSearch
    task: int

    def run(self, limit: float) -> FlowSchedule:
        """Cheapest schedule under a limit on the excess loss."""
        return self.search.limited(self.task, limit).run()

    def least_left(self) -> float:
        """Least excess loss of the task among a sample of schedules that meet the limits."""
        problem, stages = self.search.problem, self.search.max_stages - 1
        direct = float(problem.rest(problem.start[None])[0]) * float(problem.cost[-1])
        if not np.isfinite(direct):
            return np.inf
        share = np.concatenate([[0.0], np.geomspace(0.01, 3.0, _TRIED if stages < 3 else 6)])
        grid = lattice_of(share, stages)
        least = np.inf
        for order in orders_of(len(problem.cost), stages, shorter=True):
            durations = np.where(order >= 0, grid * direct / problem.cost[order], 0.0)
            cost, rest = problem.priced(np.tile(order, (len(grid), 1)), durations)
            good = np.isfinite(cost)
            at = np.broadcast_to(problem.start, (len(grid), len(problem.start)))
            for stage in range(stages):
                at = problem.moved(np.full(len(grid), order[stage]), durations[:, stage], at)
            left = problem.excess(problem.last.strength(np.where(good, rest, 0.0), at))[:, self.task]
            least = min(least, float(left[good].min(initial=np.inf)))
        return least


@dataclass(frozen=True, eq=False)
class _SearchedFront:
    """Schedules of any other method, searched without proof; `task` is the candidate to remember."""

    method: Method
    terms: PoolTerms
    usable: list[int]
    task: int

    def _search(self, limit: float) -> DescentSearch | FlowSearch:
        limits = self.terms.most_loss.copy()
        limits[self.task] = min(limits[self.task], limit)
        kind = DescentSearch if self.method.counts_many else FlowSearch
        return kind(self.method, replace(self.terms, most_loss=limits))

    def run(self, limit: float) -> FlowSchedule:
        """Best schedule found under a limit on the excess loss."""
        search = self._search(limit)
        return self._schedule(search, search.explore(self.usable).best)

    def _schedule(self, search: DescentSearch | FlowSearch, route: Route) -> FlowSchedule:
        left = np.full(self.method.target, np.nan)
        if math.isfinite(route.total):
            end = search.end(route)[None]
            left = np.array([float(self.method.excess_loss(k, end)[0]) for k in range(self.method.target)])
        return FlowSchedule(route, math.nan, "best found", left)

    def least_left(self) -> float:
        """Least excess loss of the task after a sample of its stops."""
        search = self._search(math.inf)
        span = search.span(self.task, search.price((), ()))
        routes = [search.price((self.task,), (share * span,)) for share in np.geomspace(0.03, 3.0, _TRIED // 2)]
        left = [self._schedule(search, route).excess_loss[self.task] for route in routes]
        return float(np.nanmin(left, initial=math.inf))
