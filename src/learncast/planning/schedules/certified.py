"""Planning by modes: exact stops by the flow, and exact or certified schedules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.progress import Progress, silent
from learncast.planning.methods.modal import ModeGround
from learncast.planning.plans.route import Route
from learncast.planning.schedules.schedule import Schedule
from learncast.planning.schedules.search import Setting, solved, taking_part
from learncast.planning.schedules.stopping import best_stop
from learncast.planning.terms import PoolTerms
from learncast.theory.dynamics.steps.mode_descent import Problem


@dataclass(frozen=True, eq=False)
class Searched:
    """What a search by the flow finds out.

    Attributes
    ----------
    direct : Route
        The target alone.
    singles : list of Route
        Every candidate alone with its best stop.
    best : Route
        The best sequence.
    lower_bound : float
        What any plan that meets the terms costs at least; nan where no bound is known.
    proof : str
        How good the best is: a key of `learncast.planning.schedules.schedule.PROOFS`.
    """

    direct: Route
    singles: list[Route]
    best: Route
    lower_bound: float
    proof: str


def certified(ground: ModeGround, terms: PoolTerms, strict: bool, progress: Progress = silent) -> Searched:
    """Give every candidate its best stop, and find the best schedule of them together."""
    rest = ground.steps_to(ground.target, ground.start, terms.accuracy)
    direct = Route((), (), rest, rest * float(terms.cost[-1]))
    if not ground.target or terms.max_stages < 2:
        return Searched(direct, [], direct, direct.total, "exact")
    plain = terms.plain and ground.goal == "modes"
    searched = not plain or terms.max_stages > 2
    share = 0.5 if searched else 1.0
    singles = (_stops if plain else _paired)(ground, terms, direct, lambda done: progress(share * done))
    if not searched:
        best = min([direct, *singles], key=lambda r: r.total)
        return Searched(direct, singles, best, best.total, "exact")
    setting = Setting.of(ground, terms, taking_part(ground, strict))
    schedule = solved(setting, lambda done: progress(share + share * done))
    if not schedule.stages and np.isfinite(schedule.direct) and np.isfinite(terms.most_loss).any():
        raise InvalidSpec(
            "some schedule must meet the limits on forgetting, got none that does. Raise the limits; "
            "planning.forgetting_front shows what they cost."
        )
    return Searched(direct, singles, _route(schedule), schedule.lower_bound, schedule.proof)


def _route(schedule: Schedule) -> Route:
    if not schedule.stages:
        return Route((), (), np.inf, schedule.total)
    before = schedule.stages[:-1]
    steps = tuple(s.steps for s in before)
    return Route(tuple(s.place for s in before), steps, schedule.stages[-1].steps, schedule.total)


def _paired(ground: ModeGround, terms: PoolTerms, direct: Route, progress: Progress) -> list[Route]:
    """Each candidate alone under rules or prices, by the search of schedules of two stages."""
    found = []
    for k in range(ground.target):
        route = _route(solved(Setting.of(ground, terms, [k]), max_stages=2))
        found.append(route if route.order else direct)
        progress((k + 1) / ground.target)
    return found


def _stops(ground: ModeGround, terms: PoolTerms, direct: Route, progress: Progress) -> list[Route]:
    """Each candidate alone, all of them at once in closed form."""
    pool, target, rate = ground.modes[:-1], ground.modes[-1], ground.learning_rate
    first = Problem(
        np.stack([m.weighted_cross for m in pool]), np.stack([m.weighted_input for m in pool]), target.imbalance
    )
    stops, totals = best_stop(target.start, first, ground.problems[-1], 1.0 - terms.accuracy)
    progress(1.0)
    price = float(terms.cost[-1])
    return [
        Route((k,), (stop / rate,), (total - stop) / rate, total / rate * price) if stop > 0 else direct
        for k, (stop, total) in enumerate(zip(stops.tolist(), totals.tolist(), strict=True))
    ]
