"""An exploration: orders and stops tried out on a terrain, where no closed form tells the best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from learncast.planning.curricula.terrain import Terrain
from learncast.planning.terms import Terms
from learncast.progress import Progress, silent
from learncast.validation import FloatArray

#: Stops tried on an even grid before the best are refined.
STOPS = 25
#: Relative precision of a refined stop.
PRECISION = 1e-6
#: Sequences that are grown by one more stage.
BEAM = 4
#: Evaluations of one refinement, for each stop in it.
TRIED = 60
#: Lengths of a stage that is tried in addition, as shares of the longest that could pay.
LENGTHS = (0.05, 0.1, 0.2, 0.35, 0.5)
#: Accuracy to which a candidate is trained at most where direct training never ends.
FAR = 0.999


@dataclass(frozen=True, eq=False)
class Route:
    """A sequence of tasks with their durations, and what it costs.

    Attributes
    ----------
    order : tuple of int
        Tasks before the target.
    durations : tuple of float
        Flow steps on each.
    rest : float
        Flow steps on the target.
    total : float
        Cost of everything; infinite where the target is never learned or a rule is broken.
    """

    order: tuple[int, ...]
    durations: tuple[float, ...]
    rest: float
    total: float

    @property
    def steps(self) -> float:
        """Flow steps of all stages."""
        return float(sum(self.durations) + self.rest)


@dataclass
class Exploration:
    """The search itself; it remembers what it has looked at.

    Attributes
    ----------
    evaluations : int
        Plans that were priced.
    """

    terrain: Terrain
    terms: Terms
    evaluations: int = 0
    _first: dict[int, Any] = field(default_factory=dict)

    def priced(self, order: Sequence[int], durations: Sequence[float]) -> Route:
        """Walk a sequence and price it."""
        self.evaluations += 1
        network, cost, terms = self.terrain.start, 0.0, self.terms
        kept = [(task, float(t)) for task, t in zip(order, durations, strict=True) if t > 0]
        names, spent = tuple(task for task, _ in kept), tuple(t for _, t in kept)
        for place, (task, time) in enumerate(kept):
            course = self._course(task) if place == 0 else self.terrain.course(task, network)
            network = course.network_at(time)
            cost += time * float(terms.cost[task]) + terms.switch_cost
            if not self._may_stop(task, network):
                return Route(names, spent, math.nan, math.inf)
        rest = self.terrain.steps_to(
            self.terrain.target, network, terms.accuracy, None if kept else self._course(self.terrain.target)
        )
        if not math.isfinite(rest) or not self._remembers(network, rest):
            return Route(names, spent, rest, math.inf)
        return Route(names, spent, rest, cost + rest * float(terms.cost[-1]))

    def _bounded(self, order: Sequence[int], durations: Sequence[float]) -> float:
        """The total, or a finite number beyond any: what breaks a rule must not spoil a search's arithmetic."""
        return min(self.priced(order, durations).total, 1e30)

    def _course(self, task: int) -> Any:
        """Training from the very start, integrated once."""
        if task not in self._first:
            self._first[task] = self.terrain.course(task, self.terrain.start)
        return self._first[task]

    def _may_stop(self, task: int, network: Any) -> bool:
        low, high = self.terms.least[task], self.terms.most[task]
        if not np.isfinite(low) and high >= 1:
            return True
        # A limit that a stage meets on its very edge is met: stops are found to a relative 1e-6.
        return bool(low - PRECISION <= self.terrain.accuracy(task, network) <= high + PRECISION)

    def _remembers(self, network: Any, rest: float) -> bool:
        limited = np.flatnonzero(np.isfinite(self.terms.most_loss))
        if not len(limited):
            return True
        end = self.terrain.course(self.terrain.target, network).network_at(rest) if rest > 0 else network
        return all(self.terrain.excess(int(k), end) <= self.terms.most_loss[k] * (1 + PRECISION) for k in limited)

    def span(self, task: int, direct: Route) -> float:
        """Longest time on a candidate that could pay: as long as direct training costs."""
        if math.isfinite(direct.total):
            return direct.total / float(self.terms.cost[task])
        far = self.terrain.steps_to(task, self.terrain.start, FAR, self._course(task))
        return far if math.isfinite(far) else 0.0

    def edges(self, task: int, span: float) -> list[float]:
        """Stops at which a limit on the candidate's own accuracy is just met."""
        wanted = [float(v) for v in (self.terms.least[task], self.terms.most[task]) if 0 <= v < 1]
        found = [self.terrain.steps_to(task, self.terrain.start, v, self._course(task)) for v in wanted]
        return [t for t in found if 0 < t <= span]

    def alone(self, task: int, direct: Route) -> Route:
        """The best stop of one candidate before the target; direct training where no stop is better."""
        span = self.span(task, direct)
        if span <= 0:
            return direct
        grid = np.union1d(np.linspace(0.0, span, STOPS)[1:], self.edges(task, span))
        tried = [self.priced((task,), (t,)) for t in grid]
        costs = np.array([route.total for route in tried])
        best = min([direct, *tried], key=lambda r: r.total)
        for k in np.argsort(costs, kind="stable")[:2]:
            if not math.isfinite(costs[k]):
                continue
            ends = (grid[k - 1] if k else 0.0, grid[min(k + 1, len(grid) - 1)])
            found = minimize_scalar(
                lambda t: self._bounded((task,), (t,)),
                bounds=ends,
                method="bounded",
                options={"xatol": PRECISION * span, "maxiter": 40},
            )
            best = min([best, self.priced((task,), (float(found.x),))], key=lambda r: r.total)
        return best if best.total < direct.total * (1 - PRECISION) else direct

    def grown(self, route: Route, task: int, place: int, direct: Route) -> Route:
        """A sequence with one more task at a place: the best of a few lengths, the stage after it shortened or not."""
        order = (*route.order[:place], task, *route.order[place:])
        span = self.span(task, direct)
        tried = [route]
        for share in LENGTHS if span > 0 else ():
            for kept in (1.0, 1.0 - share) if place < len(route.order) else (1.0,):
                after = [t * (kept if k == 0 else 1.0) for k, t in enumerate(route.durations[place:])]
                tried.append(self.priced(order, [*route.durations[:place], share * span, *after]))
        return min(tried[1:] or tried, key=lambda r: r.total)

    def refined(self, route: Route, direct: Route) -> Route:
        """The same sequence with all its stops moved to where the total is least nearby."""
        if not route.order or not math.isfinite(route.total):
            return route
        span = np.array([self.span(k, direct) for k in route.order])
        begin = np.array(route.durations) / span

        def cost(scaled: FloatArray) -> float:
            return self._bounded(route.order, np.clip(scaled, 0.0, 2.0) * span)

        simplex = np.vstack([begin, *(begin + 0.08 * row for row in np.eye(len(begin)))])
        options = {"maxfev": TRIED * len(begin), "xatol": PRECISION, "fatol": 0.0, "initial_simplex": simplex}
        found = minimize(cost, begin, method="Nelder-Mead", options=options)
        better = self.priced(route.order, np.clip(found.x, 0.0, 2.0) * span)
        return better if better.total < route.total else route


def explore(
    terrain: Terrain, terms: Terms, max_stages: int, *, progress: Progress = silent
) -> tuple[Route, list[Route], Route, Exploration]:
    """Direct training, every candidate alone with its best stop, and the best sequence found.

    Candidates alone are searched on a grid and refined; longer sequences are grown from the best shorter ones by one
    more task at every place. Nothing is proved: a better sequence may exist.
    """
    search = Exploration(terrain, terms)
    direct = search.priced((), ())
    pool = range(terrain.target) if max_stages > 1 else range(0)
    singles = []
    share = 1.0 if max_stages == 2 else 0.5
    for k in pool:
        singles.append(search.alone(k, direct))
        progress(share * (k + 1) / terrain.target)
    # The rules of candidates alone may forbid direct training's rival, never direct training itself.
    beam = sorted([direct, *singles], key=lambda r: r.total)[:BEAM]
    best = beam[0]
    for stage in range(3, max_stages + 1):
        useful = sorted(pool, key=lambda k: singles[k].total)[: 2 * BEAM]
        tried = []
        for n, route in enumerate(beam):
            tried += [
                search.grown(route, task, place, direct)
                for task in useful
                for place in range(len(route.order) + 1)
                if len(route.order) == stage - 2 and _new_neighbours(route.order, task, place)
            ]
            progress(min(1.0, share + share * (stage - 3 + (n + 1) / len(beam)) / (max_stages - 2)))
        if not tried:
            break
        promising = sorted(tried, key=lambda r: r.total)[:BEAM]
        beam = sorted([*beam, *(search.refined(r, direct) for r in promising)], key=lambda r: r.total)[:BEAM]
        best = beam[0] if beam[0].total < best.total * (1 - PRECISION) else best
    progress(1.0)
    return direct, singles, best, search


def _new_neighbours(order: tuple[int, ...], task: int, place: int) -> bool:
    """Whether the task would not merely lengthen a stage beside it."""
    beside = (order[place - 1 : place] if place else ()) + order[place : place + 1]
    return task not in beside
