"""The planner: the ground whose conditions hold, the best route by its flow, and its stops in steps of descent."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
import scipy

from learncast._core.errors import InvalidSpec, OutOfTime
from learncast._core.progress import Progress, deadline, noticed, now, silent, time_is_up, time_limit, until
from learncast._core.validation import FloatArray
from learncast.networks import Network
from learncast.planning.curriculum import Curriculum, followed
from learncast.planning.methods.choice import ground_for
from learncast.planning.methods.ground import Ground, State
from learncast.planning.plans.recommendation import Plan
from learncast.planning.plans.route import PRECISION, UNTRIED, Candidate, Route, Walker, last_if_unknown
from learncast.planning.schedules.certified import Searched, certified
from learncast.planning.terms import PoolTerms, Terms, check_terms, checked_pool
from learncast.practice.stage import Stage
from learncast.tasks.task import Task
from learncast.theory.assumptions import require
from learncast.theory.dynamics.solution import LearningTime
from learncast.theory.responses.trials import seed_of

#: Candidates whose stops are refined in whole steps; of larger pools the best by the flow.
REFINED = 24
#: What the stops of a plan from recorded data are multiplied by, to see which is best on average; coarse, then fine.
SCALES = (0.0, 0.6, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5)
FINE = (-0.06, -0.03, -0.015, 0.015, 0.03, 0.06)


@noticed("weighing candidates")
def plan(
    target: Task,
    candidates: Sequence[Task],
    network: Network,
    *,
    learning_rate: float,
    terms: Terms = Terms(),  # noqa: B008  frozen
    learn: tuple[str, ...] | None = None,
    by: str = "auto",
    strict: bool = True,
    progress: Progress = silent,
    seconds: float | None = None,
    seed: int = 0,
    **moved: Any,
) -> Plan:
    """Find the intermediate tasks and the stops that reach the target in the fewest steps, or at the least cost.

    Where every task and the network fall apart into common modes the flow's best stops are exact, and longer schedules
    exact (one mode) or certified (several). Tasks of any geometry on a two-layer network, or on a linear RNN that is
    one, go through its exact flow; any start on a recurrence that is a number through descent of the pooled problem;
    any other linear network or choice of learned weights through the integrated flow; nonlinear units of fixed
    recurrence through their measured responses. These are searched, and the result says so. The stops that are
    recommended are then those that take the fewest whole steps of gradient descent.

    Recorded tasks are resampled, and what is saved carries an interval. Stops are then those that are best on average
    over resampled statistics.

    Parameters
    ----------
    target : Task
        What must be learned in the end.
    candidates : sequence of Task
        Tasks that may be trained first.
    network : LinearRNN, TwoLayer or Activated
        The network before training.
    learning_rate : float
    terms : Terms
        Accuracy asked for, number of stages, costs and limits.
    learn : tuple of str, optional
        Weights that learn; input and output weights (both layers) by default.
    by : {"auto", "modes", "two-layer", "pooled", "flow", "responses"}
        How to find it: the first of these whose conditions hold, or the one named.
    strict : bool
        Raise when a condition of the theory fails, and recommend only candidates that meet all. Otherwise, with
        ``by="modes"``, candidates within a residual of 0.1 compete too, and the plan says which condition is not exact.
    progress : callable
        Called with the share of the work done.
    seconds : float, optional
        The search is given up after so long; the plan is then the best found so far, and says so.
    seed : int
        Of resampled statistics and of the trials on which responses are measured.

    Returns
    -------
    Plan
        The recommended stages, what they save, every candidate, alternatives and how much a stop matters.

    Raises
    ------
    AssumptionViolated
        If a condition of the theory fails and `strict` is set.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> stronger = task.varied(target_strength=1.5).renamed("stronger targets")
    >>> lc.plan(task, [stronger], network, learning_rate=1e-3)
    <Plan for 'integration': stronger targets to 0.6621 (168 steps) -> integration to 0.9932 (0 steps); saves 163 of
    331 steps; exact>
    """
    check_terms(terms, moved)
    pool = checked_pool(target, candidates) if terms.max_stages > 1 else []
    bound = terms.over(len(pool)) if pool else terms.direct.over(0)
    seed = seed_of(seed)
    with time_limit(seconds):
        ground = ground_for(
            [*pool, target], network, learning_rate=learning_rate, learn=learn, by=by, goal=terms.goal, seed=seed
        )
        return plan_on(ground, bound, strict=strict, progress=progress)


def plan_on(ground: Ground, terms: PoolTerms, *, strict: bool = True, progress: Progress = silent) -> Plan:
    """The plan on a ground that was chosen already."""
    if strict:
        require(ground.measured(ground.target))
    planner = _Planner(ground, terms, strict, deadline())
    direct = planner.learning_time
    with until(math.inf):  # from here on there is an answer; only searching is given up
        return planner.plan(direct, progress)


def _in_time(search: Callable[[], Route], known: Route) -> Route:
    """What a search finds, or what is known where its time is up."""
    try:
        return search()
    except OutOfTime:
        return known


@dataclass(frozen=True, eq=False)
class _Planner:
    ground: Ground
    terms: PoolTerms
    strict: bool
    end: float

    def plan(self, direct: LearningTime, progress: Progress) -> Plan:
        ground, terms = self.ground, self.terms
        walker = Walker(ground, terms)
        with until(self.end):
            found = self._searched(walker, lambda done: progress(0.8 * done))
        counted = not math.isnan(direct.descent_steps)
        if counted and math.isfinite(direct.flow_steps):
            alone = walker.walked((), ())
        else:  # as precise as it is told
            alone = Route((), (), direct.flow_steps, direct.flow_steps * float(terms.cost[-1]))
        self._check_limits(found)
        candidates = self._candidates(found, walker if counted else None, alone, direct)
        good = [c for c in candidates if c.helps and (c.holds if self.strict else c.usable)]
        best = self._best(found, walker if counted else None, alone, good)
        proof = found.proof
        if ground.recorded and ground.promise != "response" and best.order:
            with until(self.end):
                best = _in_time(partial(self._robust, best, walker, alone), best)
            proof = "robust" if proof == "exact" else proof
        if now() > self.end:
            proof = "given up"
        known = next((c for c in candidates if c.route is best), None)
        way = known.curriculum if known else self._followed(best)
        progress(1.0)
        return Plan(ground, terms, direct, candidates, way, best, alone, found, proof, counted)

    @cached_property
    def learning_time(self) -> LearningTime:
        """Training on the target alone."""
        return self.ground.precise.learning_time(self.ground.target, self.terms.accuracy)

    def _searched(self, walker: Walker, progress: Progress) -> Searched:
        """The best routes: proved by modes, tried out by the flow, or counted by descent where that is quicker."""
        ground, terms = self.ground, self.terms
        if ground.by == "modes":
            return certified(ground, terms, self.strict, progress)  # type: ignore[arg-type]
        chosen = walker if ground.batched else FlowWalker(ground, terms)
        direct, singles, best = explore(chosen, ground.target, terms.max_stages, progress=progress)
        return Searched(direct, singles, best, math.nan, "best found")

    def _check_limits(self, found: Searched) -> None:
        if not math.isfinite(found.best.total) and math.isfinite(found.direct.rest):
            raise InvalidSpec("some schedule must meet the limits on accuracy and forgetting, got none that was tried.")

    def _candidates(
        self, found: Searched, walker: Walker | None, alone: Route, direct: LearningTime
    ) -> tuple[Candidate, ...]:
        order = sorted(range(len(found.singles)), key=lambda k: last_if_unknown(found.singles[k].total))
        near = set(order[:REFINED])
        every = []
        for k, flow in enumerate(found.singles):
            route = self._counted(flow, walker, alone) if k in near else flow
            every.append(
                Candidate(
                    task=self.ground.tasks[k],
                    target=self.ground.tasks[-1],
                    route=route,
                    flow=flow,
                    direct_total=alone.total,
                    direct_flow_total=found.direct.total,
                    direct=direct,
                    assumptions=self.ground.measured(k),
                    followed=partial(self._followed, route),
                )
            )
        far = {id(self.ground.tasks[k]) for k in order[REFINED:]}
        return tuple(
            sorted(
                every,
                key=lambda c: (
                    not c.usable,
                    id(c.task) in far,
                    last_if_unknown(c.total),
                    last_if_unknown(c.flow.total),
                ),
            )
        )

    def _counted(self, flow: Route, walker: Walker | None, alone: Route) -> Route:
        """A route of the flow in whole steps of descent; the target alone where that is better."""
        if flow is UNTRIED:
            return flow
        if walker is None or self.ground.batched:
            return flow if flow.order else alone
        if not flow.order or not math.isfinite(flow.total):
            return alone
        whole = walker.walked(flow.order, flow.durations)
        with until(self.end):
            found = _in_time(partial(walker.refined, flow), whole)
        return found if found.total < alone.total else alone

    def _best(self, found: Searched, walker: Walker | None, alone: Route, good: list[Candidate]) -> Route:
        routes = [alone, *(c.route for c in good)]
        if (found.best.order and len(found.best.order) > 1) or not self._free:
            routes.append(self._counted(found.best, walker, alone) if found.best.order else alone)
        return min(routes, key=lambda r: last_if_unknown(r.total))

    @property
    def _free(self) -> bool:
        return self.terms.plain

    def _stages(self, route: Route) -> tuple[list[Stage], list[int]]:
        """Stages of a route: by the accuracy at which each stops, which training can watch, else by steps."""
        ground, state, stages = self.ground, self.ground.start, []
        whole = all(float(t).is_integer() for t in route.durations)
        for task, steps in zip(route.order, route.durations, strict=True):
            begun = state
            if whole:  # a hundredth of its last step below what it reaches: that step, and no other, is the first there
                before, [state] = ground.descended(task, [begun], [max(int(steps) - 1, 0), int(steps)])
                reached = ground.accuracy(task, state)
                reached -= 0.01 * abs(reached - ground.accuracy(task, before[0]))
            else:
                state = ground.after(task, begun, steps)
                reached = ground.accuracy(task, state) - 1e-12
            stage = Stage(ground.tasks[task], steps=steps)
            if 0.0 < reached < 1.0:
                again = float(ground.counted(task, [begun], reached)[0][0]) if whole else steps
                stage = Stage(ground.tasks[task], accuracy=reached) if again == steps else stage
            stages.append(stage)
        stages.append(Stage(ground.tasks[-1], accuracy=self.terms.accuracy))
        return stages, [*route.order, ground.target]

    def _followed(self, route: Route) -> Curriculum:
        stages, places = self._stages(route)
        return followed(stages, places, self.ground, direct=self.learning_time)

    def _robust(self, best: Route, walker: Walker, alone: Route) -> Route:
        """Scale all stops alike to where the mean over resampled pools is least; to nothing where that is best."""
        price = np.array([self.terms.cost[k] for k in (*best.order, self.ground.target)])

        def scaled(scale: float) -> list[int]:
            return [max(round(scale * t), 1) if scale > 0 else 0 for t in best.durations]

        def means(scales: Sequence[float]) -> dict[float, tuple[float, float]]:
            """Share of resamplings that never arrive, and mean cost of the others."""
            steps = self.ground.replica_steps(best.order, [scaled(s) for s in scales], self.terms.accuracy)
            found = {}
            for scale, rows in zip(scales, steps, strict=True):
                totals = (rows * price[:, None]).sum(axis=0) + self.terms.switch_cost * len(best.order) * (scale > 0)
                fine = totals[np.isfinite(totals)]
                found[scale] = (1.0 - len(fine) / len(totals), float(fine.mean()) if len(fine) else math.inf)
            return found

        tried = means(SCALES)
        middle = min(tried, key=lambda s: tried[s])
        if middle > 0:
            tried |= means([middle + step for step in FINE])
        scale = min(tried, key=lambda s: tried[s])
        if scale == 0:
            return alone
        return best if scale == 1.0 else walker.walked(best.order, scaled(scale))


#: Stops tried on an even grid before the best are refined.
STOPS = 25
#: Sequences that are grown by one more stage.
BEAM = 4
#: Evaluations of one refinement, for each stop in it.
TRIED = 60
#: Lengths of a stage that is tried in addition, as shares of the longest that could pay.
LENGTHS = (0.05, 0.1, 0.2, 0.35, 0.5)
#: Accuracy to which a candidate is trained at most where direct training never ends.
FAR = 0.999


class Pricing(Protocol):
    """What an exploration asks of whoever walks routes: in whole steps of descent, or by the flow."""

    def walked(self, order: Sequence[int], durations: Sequence[float]) -> Route:
        """Price one route."""
        ...

    def alone(self, task: int, direct: Route) -> Route:
        """The best stop of one candidate before the target; direct training where no stop is better."""
        ...

    def span(self, task: int, direct: Route) -> float:
        """Longest time on a candidate that could pay."""
        ...

    def refined(self, route: Route, direct: Route) -> Route:
        """The same sequence with all its stops moved to where the total is least nearby."""
        ...


@dataclass
class FlowWalker:
    """Walks routes by the flow of a ground; it remembers the first stages."""

    ground: Ground
    terms: PoolTerms
    _first: dict[int, Any] = field(default_factory=dict)

    def walked(self, order: Sequence[int], durations: Sequence[float]) -> Route:
        """Walk a sequence and price it."""
        ground, terms, state, cost = self.ground, self.terms, self.ground.start, 0.0
        kept = [(task, float(t)) for task, t in zip(order, durations, strict=True) if t > 0]
        names, spent = tuple(task for task, _ in kept), tuple(t for _, t in kept)
        for place, (task, length) in enumerate(kept):
            course = self._course(task) if place == 0 else ground.course(task, state)
            state = ground.state_at(course, length)
            cost += length * float(terms.cost[task]) + terms.switch_cost
            if not self._may_stop(task, state):
                return Route(names, spent, math.nan, math.inf)
        rest = ground.steps_to(ground.target, state, terms.accuracy, None if kept else self._course(ground.target))
        if not math.isfinite(rest) or not self._remembers(state, rest):
            return Route(names, spent, rest, math.inf)
        return Route(names, spent, rest, cost + rest * float(terms.cost[-1]))

    def _bounded(self, order: Sequence[int], durations: Sequence[float]) -> float:
        """The total, or a finite number beyond any: what breaks a rule must not spoil a search's arithmetic."""
        return min(self.walked(order, durations).total, 1e30)

    def _course(self, task: int) -> Any:
        """Training from the very start, integrated once."""
        if task not in self._first:
            self._first[task] = self.ground.course(task, self.ground.start)
        return self._first[task]

    def _may_stop(self, task: int, state: State) -> bool:
        low, high = self.terms.least[task], self.terms.most[task]
        if not np.isfinite(low) and high >= 1:
            return True
        # A limit that a stage meets on its very edge is met: stops are found to a relative 1e-6.
        return bool(low - PRECISION <= self.ground.accuracy(task, state) <= high + PRECISION)

    def _remembers(self, state: State, rest: float) -> bool:
        limited = np.flatnonzero(np.isfinite(self.terms.most_loss))
        if not len(limited):
            return True
        end = self.ground.after(self.ground.target, state, rest) if rest > 0 else state
        return all(self.ground.excess(int(k), end) <= self.terms.most_loss[k] * (1 + PRECISION) for k in limited)

    def span(self, task: int, direct: Route) -> float:
        """Longest time on a candidate that could pay: as long as direct training costs."""
        if math.isfinite(direct.total):
            return direct.total / float(self.terms.cost[task])
        far = self.ground.steps_to(task, self.ground.start, FAR, self._course(task))
        return far if math.isfinite(far) else 0.0

    def _edges(self, task: int, span: float) -> list[float]:
        """Stops at which a limit on the candidate's own accuracy is just met."""
        wanted = [float(v) for v in (self.terms.least[task], self.terms.most[task]) if 0 <= v < 1]
        found = [self.ground.steps_to(task, self.ground.start, v, self._course(task)) for v in wanted]
        return [t for t in found if 0 < t <= span]

    def alone(self, task: int, direct: Route) -> Route:
        """The best stop of one candidate before the target; direct training where no stop is better."""
        span = self.span(task, direct)
        if span <= 0:
            return direct
        grid = np.union1d(np.linspace(0.0, span, STOPS)[1:], self._edges(task, span))
        tried: list[Route] = []
        for t in grid:
            if time_is_up() and tried:  # what was tried is better than nothing
                return min([direct, *tried], key=_cheapest)
            tried.append(self.walked((task,), (t,)))
        costs = np.array([route.total for route in tried])
        best = min([direct, *tried], key=lambda r: r.total)
        for k in np.argsort(costs, kind="stable")[:2]:
            if not math.isfinite(costs[k]):
                continue
            ends = (grid[k - 1] if k else 0.0, grid[min(k + 1, len(grid) - 1)])
            found = scipy.optimize.minimize_scalar(
                lambda t: self._bounded((task,), (t,)),
                bounds=ends,
                method="bounded",
                options={"xatol": PRECISION * span, "maxiter": 40},
            )
            best = min([best, self.walked((task,), (float(found.x),))], key=lambda r: r.total)
        return best if best.total < direct.total * (1 - PRECISION) else direct

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
        found = scipy.optimize.minimize(cost, begin, method="Nelder-Mead", options=options)
        better = self.walked(route.order, np.clip(found.x, 0.0, 2.0) * span)
        return better if better.total < route.total else route


def explore(
    walker: Pricing, candidates: int, max_stages: int, *, progress: Progress = silent
) -> tuple[Route, list[Route], Route]:
    """Direct training, every candidate alone with its best stop, and the best sequence found.

    Candidates alone are searched on a grid and refined; longer sequences are grown from the best shorter ones by one
    more task at every place. Nothing is proved: a better sequence may exist.
    """
    direct = walker.walked((), ())
    pool = range(candidates) if max_stages > 1 else range(0)
    singles = []
    share = 1.0 if max_stages == 2 else 0.5
    for k in pool:
        singles.append(_in_time(partial(walker.alone, k, direct), UNTRIED))
        progress(share * (k + 1) / candidates)
    # The rules of candidates alone may forbid direct training's rival, never direct training itself.
    beam = sorted([direct, *singles], key=_cheapest)[:BEAM]
    best = beam[0]
    for stage in range(3, max_stages + 1):
        if time_is_up():
            break
        useful = sorted(pool, key=lambda k: _cheapest(singles[k]))[: 2 * BEAM]
        tried = []
        for n, route in enumerate(beam):
            tried += [
                _in_time(partial(_grown, walker, route, task, place, direct), route)
                for task in useful
                for place in range(len(route.order) + 1)
                if len(route.order) == stage - 2 and _new_neighbours(route.order, task, place)
            ]
            progress(min(1.0, share + share * (stage - 3 + (n + 1) / len(beam)) / (max_stages - 2)))
        if not tried:
            break
        promising = sorted(tried, key=_cheapest)[:BEAM]
        better = (_in_time(partial(walker.refined, r, direct), r) for r in promising)
        beam = sorted([*beam, *better], key=_cheapest)[:BEAM]
        best = beam[0] if beam[0].total < best.total * (1 - PRECISION) else best
    progress(1.0)
    return direct, singles, best


def _cheapest(route: Route) -> float:
    return last_if_unknown(route.total)


def _grown(walker: Pricing, route: Route, task: int, place: int, direct: Route) -> Route:
    """A sequence with one more task at a place: the best of a few lengths, the stage after it shortened or not."""
    order = (*route.order[:place], task, *route.order[place:])
    span = walker.span(task, direct)
    tried = [route]
    for share in LENGTHS if span > 0 else ():
        for kept in (1.0, 1.0 - share) if place < len(route.order) else (1.0,):
            after = [t * (kept if k == 0 else 1.0) for k, t in enumerate(route.durations[place:])]
            tried.append(walker.walked(order, [*route.durations[:place], share * span, *after]))
    return min(tried[1:] or tried, key=lambda r: r.total)


def _new_neighbours(order: tuple[int, ...], task: int, place: int) -> bool:
    """Whether the task would not merely lengthen a stage beside it."""
    beside = (order[place - 1 : place] if place else ()) + order[place : place + 1]
    return task not in beside
