"""The search for a plan: routes through the candidates to the target, priced by descent or by the flow."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from learncast._core.errors import OutOfTime
from learncast._core.progress import Progress, silent, time_is_up
from learncast._core.validation import FloatArray
from learncast.planning.methods.method import Method
from learncast.planning.terms import PoolTerms
from learncast.procedure.goals import Accuracy, Goal
from learncast.theory.assumptions import Assumption, Trust

Found = TypeVar("Found")

#: Relative precision with which a limit must be met.
PRECISION = 1e-6
#: Accuracy to which a candidate is trained at most if direct training never ends.
FAR = Accuracy(0.999)
#: Largest residual at which a plan that is not strict still uses a candidate; 10% anisotropy costs 2-8% of the time.
USABLE = 0.1
#: Sequences that are extended by one more stage.
BEAM = 4
#: Lengths of an additional stage, as shares of the longest that could pay.
LENGTHS = (0.05, 0.1, 0.2, 0.35, 0.5)


@dataclass(frozen=True, eq=False)
class Route:
    """A sequence of tasks before the target, with their durations and cost.

    Attributes
    ----------
    order : tuple of int
        Tasks before the target.
    durations : tuple of float
        Steps on each: real numbers for the flow, whole numbers for descent.
    rest : float
        Steps on the target.
    total : float
        Cost; infinite if the target is never learned or a limit is broken, nan if the route was not tried.
    """

    order: tuple[int, ...]
    durations: tuple[float, ...]
    rest: float
    total: float

    @property
    def steps(self) -> float:
        """Steps of all stages."""
        return float(sum(self.durations) + self.rest)


#: A candidate that was not tried for lack of time.
UNTRIED = Route((), (), math.nan, math.nan)


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Outcome of a search.

    Attributes
    ----------
    route : Route
        The cheapest route, of infinite cost if none meets the terms. Tasks are numbered as in the method's pool.
    lower_bound : float
        No route that meets the terms costs less by the flow; nan if no bound is known.
    proof : str
        A key of `learncast.results.PROOFS`: how good the route is by the flow.
    direct : Route
        Direct training.
    singles : list of Route
        Each candidate by itself before the target, with its best stop; empty if only the cheapest route was asked for.
    """

    route: Route
    lower_bound: float = math.nan
    proof: str = "best found"
    direct: Route = UNTRIED
    singles: Sequence[Route] = ()


def failures(method: Method, task: int, strict: bool) -> tuple[Assumption, ...]:
    """Conditions because of which a plan must not use a task."""
    allowed = 0.0 if strict else USABLE
    return tuple(a for a in Trust(method.conditions(task), method.promise).failed if not a.measured <= allowed)


def usable_candidates(method: Method, strict: bool) -> list[int]:
    """Candidates that a plan may use."""
    return [k for k in range(method.target) if not failures(method, k, strict)]


def cost_of(route: Route) -> float:
    """Cost to sort by: an unknown cost comes last."""
    return math.inf if math.isnan(route.total) else route.total


def in_time(search: Callable[[], Found], known: Found) -> Found:
    """Return what a search finds, or what is known if it runs out of time."""
    try:
        return search()
    except OutOfTime:
        return known


class Search(ABC):
    """Prices routes of a method under terms, and finds the best stops of a given order."""

    def __init__(self, method: Method, terms: PoolTerms) -> None:
        self.method, self.terms = method, terms

    @abstractmethod
    def price(self, order: Sequence[int], durations: Sequence[float]) -> Route:
        """Price one route; stages of no duration are left out."""

    @abstractmethod
    def best_stop(self, task: int, direct: Route) -> Route:
        """Best stop of one candidate before the target; direct training if no stop is better."""

    @abstractmethod
    def refine(self, route: Route, direct: Route) -> Route:
        """Move all stops of a route to where the total is least nearby."""

    @abstractmethod
    def end(self, route: Route) -> FloatArray:
        """State at the end of a route."""

    @abstractmethod
    def steps_from_start(self, task: int, goal: Goal) -> float:
        """Steps on a task from the start until a goal."""

    def span(self, task: int, direct: Route) -> float:
        """Longest time on a candidate that could pay: as long as direct training costs."""
        if math.isfinite(direct.total):
            return direct.total / float(self.terms.cost[task])
        steps = self.steps_from_start(task, FAR)
        return steps if math.isfinite(steps) else 0.0

    def edges(self, task: int, span: float) -> list[float]:
        """Stops at which a limit on the candidate's own accuracy is just met."""
        limits = [float(v) for v in (self.terms.least[task], self.terms.most[task]) if 0 <= v < 1]
        stops = [self.steps_from_start(task, Accuracy(v)) for v in limits]
        return [t for t in stops if 0 < t <= span]

    def may_stop(self, task: int, states: FloatArray, before: FloatArray) -> NDArray[np.bool_]:
        """Whether a stage may end in states: not before its least accuracy, and not a step after its most."""
        allowed = np.ones(len(states), dtype=bool)
        if task == self.method.target:
            return allowed
        least, most = self.terms.least[task], self.terms.most[task]
        if most < 1:
            allowed &= self.method.accuracy(task, before) <= most + PRECISION
        if np.isfinite(least):
            allowed &= self.method.accuracy(task, states) >= least - PRECISION
        return allowed

    def remembers(self, ends: FloatArray) -> NDArray[np.bool_]:
        """Whether end states (rows, ...) meet the limits on forgetting."""
        met = np.ones(len(ends), dtype=bool)
        for k in np.flatnonzero(np.isfinite(self.terms.most_loss)):
            met &= self.method.excess_loss(int(k), ends) <= self.terms.most_loss[k] * (1 + PRECISION)
        return met

    def explore(self, usable: Sequence[int], *, progress: Progress = silent) -> SearchResult:
        """Find the best stop of every candidate, and the best sequence of usable ones.

        Longer sequences are grown from the best shorter ones by one more task at every place. Nothing is proved.
        """
        direct, max_stages = self.price((), ()), self.terms.max_stages
        singles, share = [], 1.0 if max_stages == 2 else 0.5
        for k in range(self.method.target if max_stages > 1 else 0):
            singles.append(in_time(partial(self.best_stop, k, direct), UNTRIED))
            progress(share * (k + 1) / self.method.target)
        pool = usable if singles else []
        beam = sorted([direct, *(singles[k] for k in pool)], key=cost_of)[:BEAM]
        best = beam[0]
        for stage in range(3, max_stages + 1):
            if time_is_up():
                break
            useful = sorted(pool, key=lambda k: cost_of(singles[k]))[: 2 * BEAM]
            tried = []
            for n, route in enumerate(beam):
                tried += [
                    in_time(partial(self._grow, route, task, place, direct), route)
                    for task in useful
                    for place in range(len(route.order) + 1)
                    if len(route.order) == stage - 2 and task not in _neighbours(route.order, place)
                ]
                progress(min(1.0, share + share * (stage - 3 + (n + 1) / len(beam)) / (max_stages - 2)))
            if not tried:
                break
            promising = sorted(tried, key=cost_of)[:BEAM]
            better = (in_time(partial(self.refine, r, direct), r) for r in promising)
            beam = sorted([*beam, *better], key=cost_of)[:BEAM]
            best = beam[0] if beam[0].total < best.total * (1 - PRECISION) else best
        progress(1.0)
        return SearchResult(best, direct=direct, singles=singles)

    def _grow(self, route: Route, task: int, place: int, direct: Route) -> Route:
        """Insert one more task at a place: the best of a few lengths, the next stage shortened or not."""
        order, span = (*route.order[:place], task, *route.order[place:]), self.span(task, direct)
        tried = []
        for share in LENGTHS if span > 0 else ():
            for kept in (1.0, 1.0 - share) if place < len(route.order) else (1.0,):
                after = [t * (kept if k == 0 else 1.0) for k, t in enumerate(route.durations[place:])]
                tried.append(self.price(order, [*route.durations[:place], share * span, *after]))
        return min(tried, key=lambda r: r.total) if tried else route


def _neighbours(order: tuple[int, ...], place: int) -> tuple[int, ...]:
    """Tasks on both sides of a place: inserting one of them would only lengthen a stage."""
    return (order[place - 1 : place] if place else ()) + order[place : place + 1]


class DescentSearch(Search):
    """Search in whole steps of gradient descent, many stops together."""

    #: Stops of a first grid, and of each finer one.
    GRID, FINER = 25, 14
    #: Stops tried around one that is refined: multiples of its length, and steps.
    SHARES: ClassVar = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35)
    NEAR: ClassVar = (1, 2, 3, 5, 8, 12, 18)
    #: Rounds in which every stop of a route is tried again.
    ROUNDS = 8
    #: Precision of stops of recorded tasks, which are chosen again by their mean over resamples.
    COARSE = 0.03

    def price(self, order: Sequence[int], durations: Sequence[float]) -> Route:
        kept = [(task, round(t)) for task, t in zip(order, durations, strict=True) if round(t) > 0]
        return self._vary(tuple(k for k, _ in kept), tuple(n for _, n in kept), -1, [])[0]

    def _vary(self, order: tuple[int, ...], durations: tuple[int, ...], place: int, stops: list[int]) -> list[Route]:
        """Price a route with each of these stops at one place of it; place -1 prices the route itself."""
        method, states = self.method, self.method.start[None]
        allowed, lengths = np.ones(1, dtype=bool), [list(durations)]
        for k, task in enumerate(order):
            if k == place:
                every = sorted({*stops, *(max(n - 1, 0) for n in stops)})
                path = method.advance(task, states[:1], every)[:, 0]
                before, states = (path[[every.index(max(n - d, 0)) for n in stops]] for d in (1, 0))
                allowed = allowed[0] & self.may_stop(task, states, before)
                lengths = [[*durations[:k], n, *durations[k + 1 :]] for n in stops]
            else:
                before, states = method.advance(task, states, [max(durations[k] - 1, 0), durations[k]])
                allowed = allowed & self.may_stop(task, states, before)
        return self._finished([order] * len(lengths), lengths, states, allowed)

    def price_singles(self, tasks: Sequence[int], stops: Sequence[int]) -> list[Route]:
        """Price each of several tasks before the target, with its own stop."""
        start = self.method.start[None]
        paths = [self.method.advance(k, start, [max(n - 1, 0), n]) for k, n in zip(tasks, stops, strict=True)]
        allowed = [self.may_stop(k, after, before) for k, (before, after) in zip(tasks, paths, strict=True)]
        states = np.concatenate([after for _, after in paths])
        return self._finished([(k,) for k in tasks], [[n] for n in stops], states, np.concatenate(allowed))

    def _finished(
        self,
        orders: Sequence[tuple[int, ...]],
        lengths: list[list[int]],
        states: FloatArray,
        allowed: NDArray[np.bool_],
    ) -> list[Route]:
        """Routes that end with the target, trained from each of several states."""
        target = self.method.target
        rest, ends = self.method.steps_to(target, states, self.terms.goal)
        allowed = allowed & np.isfinite(rest) & self.remembers(ends)
        routes = []
        for order, row, own, good in zip(orders, lengths, rest.tolist(), allowed.tolist(), strict=True):
            kept = [(task, float(n)) for task, n in zip(order, row, strict=True) if n > 0]
            total = float(self.terms.price((*order, target), (*row, own))) if good else math.inf
            routes.append(Route(tuple(k for k, _ in kept), tuple(n for _, n in kept), own, total))
        return routes

    def end(self, route: Route) -> FloatArray:
        states = self.method.start[None]
        for task, steps in zip(route.order, route.durations, strict=True):
            states = self.method.advance(task, states, [int(steps)])[0]
        return self.method.steps_to(self.method.target, states, self.terms.goal)[1][0]

    def steps_from_start(self, task: int, goal: Goal) -> float:
        return float(self.method.steps_to(task, self.method.start[None], goal)[0][0])

    def best_stop(self, task: int, direct: Route) -> Route:
        """A grid of stops, refined between the neighbours of the best."""
        span = self.span(task, direct)
        if span < 1:
            return direct
        stops = {max(1, round(n)) for n in np.linspace(0.0, span, self.GRID)[1:]} | {
            int(n) for n in self.edges(task, span)
        }
        best = min(self._vary((task,), (0,), 0, sorted(stops)), key=lambda r: r.total)
        if not math.isfinite(best.total):
            return direct
        tried = sorted({1, *stops})
        for _ in range(6):
            n = int(best.durations[0])
            low = max((k for k in tried if k < n), default=0)
            high = min((k for k in tried if k > n), default=n)
            if self.method.recorded and high - low <= self.COARSE * n:
                break
            between = sorted({round(k) for k in np.linspace(low, high, self.FINER)} - set(tried) - {0})
            if not between:
                break
            tried = sorted({*tried, *between})
            best = min([best, *self._vary((task,), (0,), 0, between)], key=lambda r: r.total)
        return best if best.total < direct.total else direct

    def refine(self, route: Route, direct: Route) -> Route:
        """Move one stop after the other, until no move helps."""
        best = self.price(route.order, route.durations)
        for _ in range(self.ROUNDS):
            moved = best
            for place in range(len(best.order)):
                if place >= len(moved.order):
                    break
                n = int(moved.durations[place])
                near = {n + sign * step for step in self.NEAR for sign in (-1, 1)}
                far = {round(n * (1 + sign * share)) for share in self.SHARES for sign in (-1, 1)}
                stops = sorted(k for k in near | far if k > 0)
                tried = self._vary(moved.order, tuple(int(t) for t in moved.durations), place, stops)
                found = min(tried, key=lambda r: r.total)
                if found.total < moved.total:
                    moved = found
            if not moved.total < best.total:
                break
            best = moved
        return best


class FlowSearch(Search):
    """Search by the flow of a method, one route at a time."""

    #: Stops on an even grid before the best are refined.
    GRID = 25
    #: Evaluations of one refinement, for each stop in it.
    EVALUATIONS = 60

    def price(self, order: Sequence[int], durations: Sequence[float]) -> Route:
        method, terms, state = self.method, self.terms, self.method.start
        kept = [(task, float(t)) for task, t in zip(order, durations, strict=True) if t > 0]
        names, spent = tuple(task for task, _ in kept), tuple(t for _, t in kept)
        for task, length in kept:
            state = method.flow_states(method.flow(task, state), np.array([length]))[0]
            if not self.may_stop(task, state[None], state[None])[0]:
                return Route(names, spent, math.nan, math.inf)
        rest = method.flow_steps_to(method.target, state, terms.goal)
        if not math.isfinite(rest) or not self._remembers(state, rest):
            return Route(names, spent, rest, math.inf)
        return Route(names, spent, rest, float(terms.price((*names, method.target), (*spent, rest))))

    def _remembers(self, state: FloatArray, rest: float) -> bool:
        if not np.isfinite(self.terms.most_loss).any():
            return True
        end = self.method.after_flow(self.method.target, state, rest) if rest > 0 else state
        return bool(self.remembers(end[None])[0])

    def _finite_total(self, order: Sequence[int], durations: Sequence[float]) -> float:
        """The total, or a large finite number: a broken limit must not spoil the optimiser's arithmetic."""
        return min(self.price(order, durations).total, 1e30)

    def end(self, route: Route) -> FloatArray:
        state = self.method.start
        for task, steps in zip((*route.order, self.method.target), (*route.durations, route.rest), strict=True):
            state = self.method.after_flow(task, state, steps)
        return state

    def steps_from_start(self, task: int, goal: Goal) -> float:
        return self.method.flow_steps_to(task, self.method.start, goal)

    def best_stop(self, task: int, direct: Route) -> Route:
        """A grid of stops; the two best are refined by bounded minimisation."""
        span = self.span(task, direct)
        if span <= 0:
            return direct
        grid = np.union1d(np.linspace(0.0, span, self.GRID)[1:], self.edges(task, span))
        tried: list[Route] = []
        for t in grid:
            if time_is_up() and tried:
                return min([direct, *tried], key=cost_of)
            tried.append(self.price((task,), (t,)))
        costs = np.array([route.total for route in tried])
        best = min([direct, *tried], key=lambda r: r.total)
        for k in np.argsort(costs, kind="stable")[:2]:
            if math.isfinite(costs[k]):
                ends = (grid[k - 1] if k else 0.0, grid[min(k + 1, len(grid) - 1)])
                found = scipy.optimize.minimize_scalar(
                    lambda t: self._finite_total((task,), (t,)),
                    bounds=ends,
                    method="bounded",
                    options={"xatol": PRECISION * span, "maxiter": 40},
                )
                best = min([best, self.price((task,), (float(found.x),))], key=lambda r: r.total)
        return best if best.total < direct.total * (1 - PRECISION) else direct

    def refine(self, route: Route, direct: Route) -> Route:
        """Move all stops together by the Nelder-Mead simplex."""
        if not route.order or not math.isfinite(route.total):
            return route
        span = np.array([self.span(k, direct) for k in route.order])
        begin = np.array(route.durations) / span

        def total(scaled: FloatArray) -> float:
            return self._finite_total(route.order, (np.clip(scaled, 0.0, 2.0) * span).tolist())

        simplex = np.vstack([begin, *(begin + 0.08 * row for row in np.eye(len(begin)))])
        evaluations = self.EVALUATIONS * len(begin)
        options = {"maxfev": evaluations, "xatol": PRECISION, "fatol": 0.0, "initial_simplex": simplex}
        found = scipy.optimize.minimize(total, begin, method="Nelder-Mead", options=options)
        better = self.price(route.order, (np.clip(found.x, 0.0, 2.0) * span).tolist())
        return better if better.total < route.total else route
