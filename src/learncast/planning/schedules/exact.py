"""Plans by modes: exact stops by the flow, and exact or certified schedules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.progress import Progress, silent
from learncast.planning.methods.modes import ModeMethod
from learncast.planning.schedules.branching import branch_and_bound
from learncast.planning.schedules.path import ModePath
from learncast.planning.schedules.problem import ScheduleProblem, best_stop
from learncast.planning.search import Route, SearchResult, usable_candidates
from learncast.planning.terms import PoolTerms
from learncast.procedure.goals import Accuracy
from learncast.theory.dynamics.steps.mode_descent import Problem

#: Relative gap between a schedule and its lower bound at which a search ends, and boxes after which it ends anyway.
GAP = 1e-6
MOST_BOXES = 100_000


def schedule_problem(method: ModeMethod, terms: PoolTerms, candidates: Sequence[int]) -> ScheduleProblem:
    """Modes and terms of some of the candidates, the target last."""
    rows, target, goal = list(candidates), method.modes[-1], terms.goal
    every = [*(method.modes[k] for k in rows), target]
    share = method.goal_excess(method.target, goal) / (method.baseline_loss(method.target) or 1.0)
    return ScheduleProblem(
        cross=np.stack([m.weighted_cross for m in every]),
        power=np.stack([m.weighted_input for m in every]),
        cost=terms.cost[[*rows, method.target]],
        imbalance=target.imbalance,
        start=target.start,
        tolerance=1.0 - goal.value if isinstance(goal, Accuracy) else math.sqrt(max(share, 0.0)),
        by_loss=not isinstance(goal, Accuracy),
        switch_cost=terms.switch_cost * method.learning_rate,
        least=np.append(terms.least[rows], -np.inf),
        most=np.append(terms.most[rows], 1.0),
        most_loss=np.append(terms.most_loss[rows], np.inf),
    )


def cheapest_schedule(
    method: ModeMethod,
    terms: PoolTerms,
    candidates: Sequence[int],
    *,
    gap: float = GAP,
    max_boxes: int = MOST_BOXES,
    progress: Progress = silent,
) -> SearchResult:
    """Find the cheapest schedule of some candidates: one mode exactly, several by branch and bound."""
    p, rate = schedule_problem(method, terms, candidates), method.learning_rate
    if len(p.start) == 1 and not np.isfinite(p.most_loss).any():
        half_width = p.tolerance * abs(float(p.optimum[-1, 0]))
        route = ModePath.of(p, 0, range(len(p.cost)), half_width, limited=True).cheapest(terms.max_stages)
        lower, met = route.total, True
    else:
        route, lower = branch_and_bound(p, terms.max_stages - 1, gap=gap, max_boxes=max_boxes, progress=progress)
        # An infinite lower bound proves that there is no schedule.
        met = lower >= route.total * (1 - gap) if math.isfinite(route.total) else math.isinf(lower)
    places = (*candidates, method.target)
    kept = [(places[k], t / rate) for k, t in zip(route.order, route.durations, strict=True) if t > 0]
    order, steps = tuple(k for k, _ in kept), tuple(t for _, t in kept)
    found = Route(order, steps, route.rest / rate, route.total / rate)
    return SearchResult(found, lower / rate, "certified" if met else "best found")


def search_modes(method: ModeMethod, terms: PoolTerms, strict: bool, progress: Progress = silent) -> SearchResult:
    """Find the best stop of every candidate, and the best schedule of them together."""
    rest = method.flow_steps_to(method.target, method.start, terms.goal)
    direct = Route((), (), rest, rest * float(terms.cost[-1]))
    if not method.target or terms.max_stages < 2:
        return SearchResult(direct, direct.total, "exact", direct)
    closed_form = terms.unrestricted and isinstance(terms.goal, Accuracy)
    searches = not closed_form or terms.max_stages > 2
    share = 0.5 if searches else 1.0
    single = _stops if closed_form else _pairs
    singles = single(method, terms, direct, lambda done: progress(share * done))
    usable = usable_candidates(method, strict)
    if not searches:
        best = min([direct, *(singles[k] for k in usable)], key=lambda r: r.total)
        return SearchResult(best, best.total, "certified", direct, singles)
    schedule = cheapest_schedule(method, terms, usable, progress=lambda done: progress(share + share * done))
    if not math.isfinite(schedule.route.total) and math.isfinite(rest) and np.isfinite(terms.most_loss).any():
        raise InvalidSpec(
            "No schedule meets the limits on forgetting. Plan.front shows what they cost.", field="most_excess_loss"
        )
    return replace(schedule, direct=direct, singles=singles)


def _pairs(method: ModeMethod, terms: PoolTerms, direct: Route, progress: Progress) -> list[Route]:
    """Each candidate by itself under limits or prices, by schedules of two stages."""
    routes, pair = [], replace(terms, terms=terms.terms.with_(max_stages=2))
    for k in range(method.target):
        route = cheapest_schedule(method, pair, [k]).route
        routes.append(route if route.order else direct)
        progress((k + 1) / method.target)
    return routes


def _stops(method: ModeMethod, terms: PoolTerms, direct: Route, progress: Progress) -> list[Route]:
    """Each candidate by itself, all of them together in closed form."""
    pool, target, rate = method.modes[:-1], method.modes[-1], method.learning_rate
    first = Problem(
        np.stack([m.weighted_cross for m in pool]), np.stack([m.weighted_input for m in pool]), target.imbalance
    )
    assert isinstance(terms.goal, Accuracy)
    stops, totals = best_stop(target.start, first, method.problems[-1], 1.0 - terms.goal.value)
    progress(1.0)
    price = float(terms.cost[-1])
    return [
        Route((k,), (stop / rate,), (total - stop) / rate, total / rate * price) if stop > 0 else direct
        for k, (stop, total) in enumerate(zip(stops.tolist(), totals.tolist(), strict=True))
    ]
