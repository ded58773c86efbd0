"""The Pareto front of cost against forgetting."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from learncast._core.progress import Progress, silent
from learncast._core.validation import FloatArray, count, one_of
from learncast.planning.methods.modes import ModeMethod
from learncast.planning.schedules.branching import lattice_of, orders_of
from learncast.planning.schedules.exact import cheapest_schedule, schedule_problem
from learncast.planning.schedules.problem import ScheduleProblem
from learncast.planning.search import DescentSearch, FlowSearch, Route, SearchResult, usable_candidates
from learncast.results import described
from learncast.tasks.task import Task
from learncast.theory.assumptions import require

if TYPE_CHECKING:
    import xarray as xr

    from learncast.planning.plan import Plan

#: Relative gap between a schedule and its lower bound at which a search ends.
GAP = 1e-3
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
    schedules : tuple of SearchResult
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
    schedules: tuple[SearchResult, ...]
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

        with np.errstate(invalid="ignore"):
            gaps = (self.total - self.lower_bound) / np.where(self.total > 0, self.total, 1.0)
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

    def _order(self, schedule: SearchResult) -> str:
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


def front_of(
    plan: Plan,
    task: Task | str,
    *,
    points: int = 8,
    strict: bool = True,
    progress: Progress = silent,
) -> Front:
    """Trade the cost of a plan against what it forgets of one candidate.

    Parameters
    ----------
    plan : Plan
    task : Task or str
        The candidate whose excess loss at the end is limited, or its name.
    points : int
        Limits, from what the cheapest schedule leaves down to the least that was found.
    strict : bool
        Whether the conditions of the theory must hold.
    progress : callable

    Returns
    -------
    Front
    """
    method, number = plan.method, count("points", points, least=2)
    usable = usable_candidates(method, strict)
    if strict:
        require(method.conditions(method.target))
    names = tuple(method.tasks[k].name for k in usable)
    remember = usable[names.index(one_of("task", str(getattr(task, "name", task)), names))]
    free = np.full(method.target, np.inf)
    stages = plan.terms.terms.with_(max_stages=max(2, plan.terms.max_stages))
    terms = replace(plan.terms, terms=stages, most_loss=free)
    search = (DescentSearch if method.counts_many else FlowSearch)(method, terms)

    def cheapest(limit: float) -> SearchResult:
        limited = replace(terms, most_loss=np.where(np.arange(method.target) == remember, limit, free))
        if isinstance(method, ModeMethod):
            return cheapest_schedule(method, limited, usable, gap=GAP)
        return type(search)(method, limited).explore(usable)

    def left(route: Route) -> float:
        """Excess loss of the task at the end of a route."""
        if not math.isfinite(route.total):
            return math.nan
        return float(method.excess_loss(remember, search.end(route)[None])[0])

    if isinstance(method, ModeMethod):
        least = _least_left(schedule_problem(method, terms, usable), terms.max_stages - 1, usable.index(remember))
    else:
        span = search.span(remember, search.price((), ()))
        routes = [search.price((remember,), (share * span,)) for share in np.geomspace(0.03, 3.0, _TRIED // 2)]
        least = float(np.nanmin([left(route) for route in routes], initial=math.inf))
    schedules = [cheapest(math.inf)]
    high = left(schedules[0].route)
    limits = np.linspace(high, min(high, least), number)
    # A tried schedule met the last limit; rounding must not put it out of reach.
    limits[-1] *= 1 + 1e-9
    for k, limit in enumerate(limits[1:]):
        schedules.append(cheapest(float(limit)))
        progress((k + 2) / number)
    remembered = np.array([left(s.route) for s in schedules])
    return Front(method.tasks[remember], limits, tuple(schedules), remembered, method.tasks, not method.counts_many)


def _least_left(problem: ScheduleProblem, stages: int, task: int) -> float:
    """Least excess loss of a task among a sample of schedules of common modes."""
    direct = float(problem.rest(problem.start[None])[0]) * float(problem.cost[-1])
    if not np.isfinite(direct):
        return np.inf
    share = np.concatenate([[0.0], np.geomspace(0.01, 3.0, _TRIED if stages < 3 else 6)])
    grid, least = lattice_of(share, stages), np.inf
    for order in orders_of(len(problem.cost), stages, shorter=True):
        durations = np.where(order >= 0, grid * direct / problem.cost[order], 0.0)
        cost, rest = problem.priced(np.tile(order, (len(grid), 1)), durations)
        good = np.isfinite(cost)
        at = np.broadcast_to(problem.start, (len(grid), len(problem.start)))
        for stage in range(stages):
            at = problem.moved(np.full(len(grid), order[stage]), durations[:, stage], at)
        left = problem.excess(problem.last.strength(np.where(good, rest, 0.0), at))[:, task]
        least = min(least, float(left[good].min(initial=np.inf)))
    return least
