"""A route: an order of tasks with a stop on each, what it costs, and the best one of each candidate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from learncast.planning.curriculum import Curriculum, Interval, difference, ratio
from learncast.planning.methods.ground import Ground, State
from learncast.planning.terms import PoolTerms
from learncast.procedure.stage import Stage
from learncast.results import Status
from learncast.tasks.task import Task
from learncast.theory.assumptions import Assumption, exact
from learncast.theory.dynamics.solution import LearningTime, status_of

#: Relative precision with which a limit must be met.
PRECISION = 1e-6
#: Stops tried around one that is refined, as multiples of its length, and the fewest steps they reach.
AROUND = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35)
NEAR = (1, 2, 3, 5, 8, 12, 18)
#: Share of a stop to which it is found where resampling will move it further.
FINE = 0.03
#: Rounds in which every stop of a route is tried anew.
ROUNDS = 8


@dataclass(frozen=True, eq=False)
class Route:
    """A sequence of tasks with their durations, and what it costs.

    Attributes
    ----------
    order : tuple of int
        Tasks before the target.
    durations : tuple of float
        Steps on each: real numbers of the flow, or whole ones of descent.
    rest : float
        Steps on the target.
    total : float
        Cost of everything; infinite where the target is never learned or a rule is broken.
    """

    order: tuple[int, ...]
    durations: tuple[float, ...]
    rest: float
    total: float

    @property
    def steps(self) -> float:
        """Steps of all stages."""
        return float(sum(self.durations) + self.rest)


#: Of a candidate for which there was no time.
UNTRIED = Route((), (), math.nan, math.nan)


@dataclass(frozen=True, eq=False)
class Walker:
    """Walks routes on a ground in whole steps of gradient descent, many stops at once."""

    ground: Ground
    terms: PoolTerms

    def walked(self, order: Sequence[int], durations: Sequence[float]) -> Route:
        """Price one route."""
        kept = [(task, round(t)) for task, t in zip(order, durations, strict=True) if round(t) > 0]
        return self._varied(tuple(k for k, _ in kept), tuple(n for _, n in kept), len(kept) - 1, None)[0]

    def tried(
        self, order: tuple[int, ...], durations: tuple[int, ...], place: int, stops: Sequence[int]
    ) -> list[Route]:
        """The same route with each of these stops in one place of it."""
        return self._varied(order, durations, place, sorted(set(stops)))

    def _varied(
        self, order: tuple[int, ...], durations: tuple[int, ...], place: int, stops: Sequence[int] | None
    ) -> list[Route]:
        ground, terms = self.ground, self.terms
        states, fine = [ground.start], np.ones(1, dtype=bool)
        lengths = [list(durations)]
        for k, task in enumerate(order):
            if k == place and stops is not None:
                state = states[0]
                every = sorted({*stops, *(max(n - 1, 0) for n in stops)})
                found = dict(zip(every, ground.descended(task, [state], every), strict=True))
                states = [found[n][0] for n in stops]
                lengths = [[*durations[:k], n, *durations[k + 1 :]] for n in stops]
                fine = np.array(
                    [bool(fine[0]) and self._may_stop(task, found[n][0], found[max(n - 1, 0)][0]) for n in stops]
                )
            else:
                before, now = ground.descended(task, states, [max(durations[k] - 1, 0), durations[k]])
                fine = fine & np.array([self._may_stop(task, at, last) for at, last in zip(now, before, strict=True)])
                states = now
        rest, ends = ground.counted(ground.target, states, terms.accuracy)
        found_routes = []
        for row, own, end, good in zip(lengths, rest, ends, fine, strict=True):
            kept = [(task, n) for task, n in zip(order, row, strict=True) if n > 0]
            total = math.inf
            if good and math.isfinite(own) and self._remembers(end):
                total = sum(n * float(terms.cost[task]) + terms.switch_cost for task, n in kept)
                total += float(own) * float(terms.cost[-1])
            found_routes.append(
                Route(tuple(k for k, _ in kept), tuple(float(n) for _, n in kept), float(own), float(total))
            )
        return found_routes

    def _may_stop(self, task: int, state: State, before: State) -> bool:
        """Whether a stage may end here: not before its least, and with a step that began no later than its most."""
        if task == self.ground.target:
            return True
        ground, least, most = self.ground, self.terms.least[task], self.terms.most[task]
        late = most < 1 and ground.accuracy(task, before) > most + PRECISION
        return not late and (not np.isfinite(least) or ground.accuracy(task, state) >= least - PRECISION)

    def _remembers(self, end: State) -> bool:
        limits = self.terms.most_loss
        return all(
            self.ground.excess(int(k), end) <= limits[k] * (1 + PRECISION) for k in np.flatnonzero(np.isfinite(limits))
        )

    def refined(self, route: Route, direct: Route | None = None) -> Route:
        """The route in whole steps, every stop moved to where the total is least nearby."""
        best = self.walked(route.order, route.durations)
        for _ in range(ROUNDS):
            moved = best
            for place in range(len(moved.order)):
                whole = tuple(int(n) for n in moved.durations)
                if len(whole) != len(moved.order) or place >= len(whole):
                    break
                n = whole[place]
                near = {n + sign * step for step in NEAR for sign in (-1, 1)}
                far = {round(n * (1 + sign * share)) for share in AROUND for sign in (-1, 1)}
                tried = self.tried(moved.order, whole, place, [k for k in near | far if k > 0])
                found = min(tried, key=lambda r: r.total)
                if found.total < moved.total or (math.isinf(moved.total) and math.isfinite(found.total)):
                    moved = found
            if not moved.total < best.total:
                break
            best = moved
        return best

    def alone(self, task: int, direct: Route, number: int = 25) -> Route:
        """The best stop of one candidate before the target, from a grid that is refined; direct training where best."""
        span = self.span(task, direct)
        if span < 1:
            return direct
        stops = {max(1, round(n)) for n in np.linspace(0.0, span, number)[1:]} | set(self._edges(task, span))
        tried = self.tried((task,), (0,), 0, sorted(stops))
        best = min(tried, key=lambda r: r.total)
        if not math.isfinite(best.total):
            return direct
        near = sorted({1, *stops})
        for _ in range(6):  # between the best stop's neighbours, ever closer
            n = int(best.durations[0])
            low = max((k for k in near if k < n), default=0)
            high = min((k for k in near if k > n), default=n)
            if self.ground.recorded and high - low <= FINE * n:
                break  # stops of recorded tasks are chosen anew, by their mean over resamplings
            between = sorted({round(k) for k in np.linspace(low, high, 14)} - set(near) - {0})
            if not between:
                break
            near = sorted({*near, *between})
            best = min([best, *self.tried((task,), (0,), 0, between)], key=lambda r: r.total)
        return best if best.total < direct.total else direct

    def span(self, task: int, direct: Route) -> float:
        """Longest time on a candidate that could pay: as long as direct training costs."""
        if math.isfinite(direct.total):
            return direct.total / float(self.terms.cost[task])
        steps = float(self.ground.counted(task, [self.ground.start], 0.999)[0][0])
        return steps if math.isfinite(steps) else 0.0

    def _edges(self, task: int, span: float) -> list[int]:
        """Stops at which a limit on the candidate's own accuracy is just met."""
        wanted = [float(v) for v in (self.terms.least[task], self.terms.most[task]) if 0 <= v < 1]
        found = [float(self.ground.counted(task, [self.ground.start], v)[0][0]) for v in wanted]
        return [int(n) for n in found if 0 < n <= span]


#: Residual up to which a plan that is not strict still uses a candidate; 10% anisotropy costs 2-8% of the time.
USABLE = 0.1


@dataclass(frozen=True, eq=False)
class Candidate:
    """One intermediate task with its best stop.

    Attributes
    ----------
    route : Route
        What is recommended: the candidate for so many whole steps of descent, then the target.
    flow : Route
        What is best by the flow.
    direct_total, direct_flow_total : float
        Cost of the target alone, in the same two counts.
    direct : LearningTime
        Training on the target alone.
    followed : callable
        Follows its stages.
    """

    task: Task
    target: Task
    route: Route
    flow: Route
    direct_total: float
    direct_flow_total: float
    direct: LearningTime
    assumptions: tuple[Assumption, ...]
    followed: Callable[[], Curriculum]

    @cached_property
    def curriculum(self) -> Curriculum:
        """The candidate to its best stop, then the target; the target alone when no stop of it pays."""
        return self.followed()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that carry it out."""
        return tuple(o.stage for o in self.curriculum.outcomes)

    @property
    def stop_steps(self) -> float:
        """Steps to spend on it; 0 when direct training is at least as good."""
        return self.route.durations[0] if self.route.order else 0.0

    @property
    def total(self) -> float:
        """Cost of both stages; steps where nothing else is priced."""
        return self.route.total

    @property
    def accuracy(self) -> float:
        """Accuracy on the candidate at its stop: of the worst mode, or of the loss where there are no modes."""
        way = self.curriculum
        return (
            way.outcomes[0].accuracy
            if self.route.order
            else way.ground.accuracy(way.ground.place(self.task), way.ground.start)
        )

    @property
    def descent_steps(self) -> float:
        """Descent steps of candidate and target together."""
        return self.route.steps

    @property
    def flow_steps(self) -> float:
        """Flow steps of both, at the stop that is best by the flow; at this stop where the search counted descent."""
        if not self.tried:
            return math.nan
        return self.curriculum.flow_steps if self.route is self.flow or not self.flow.order else self.flow.steps

    @property
    def interval(self) -> Interval | None:
        """95% confidence interval of the steps at this stop; None where nothing was measured."""
        way = self.curriculum
        known = way.descent_interval is not None and not any(map(math.isnan, way.descent_interval))
        return way.descent_interval if known else way.interval

    @property
    def helps(self) -> bool:
        """Whether some stop of this task pays."""
        return self.stop_steps > 0 and self.total < self.direct_total

    @property
    def tried(self) -> bool:
        """Whether there was time for it."""
        return self.route is not UNTRIED

    @property
    def usable(self) -> bool:
        """Whether the theory speaks about this task well enough to recommend it."""
        return all(a.measured <= max(a.allowed, USABLE) for a in self.assumptions)

    @property
    def holds(self) -> bool:
        """Whether every condition of the theory is met."""
        return exact(self.assumptions)

    @property
    def status(self) -> Status:
        """How the forecast came out."""
        return status_of(self.flow_steps, self.descent_steps, self.assumptions)

    @property
    def saving(self) -> float:
        """Cost saved against direct training."""
        return difference(self.direct_total, self.total)

    @property
    def saving_ratio(self) -> float:
        """Cost of direct training over this curriculum's."""
        return ratio(self.direct_total, self.total)

    @property
    def failure(self) -> str | None:
        """Which condition keeps it from being recommended; None where none does."""
        failed = next((a for a in self.assumptions if a.measured > max(a.allowed, USABLE)), None)
        return None if failed is None else f"{failed.name} fails ({failed.measured:.2g}): {failed.condition.otherwise}"

    @cached_property
    def why(self) -> dict[str, Any]:
        """What makes it help or not, with a sentence; for one common frame of modes the terms of eq. (16)."""
        if self.failure:
            return {"sentence": self.failure}
        if not self.tried:
            return {"sentence": f"there was no time to try {self.task.name}"}
        explained = self.curriculum.why
        found = {} if explained is None else explained.as_dict()
        if not self.helps:
            never = math.isinf(self.direct_total)
            return {
                **found,
                "sentence": f"no stop of {self.task.name} "
                + (
                    f"makes {self.target.name} learnable" if never else f"saves time: train {self.target.name} directly"
                ),
            }
        rest = self.descent_steps - self.stop_steps
        told = (
            f"{self.stop_steps:,.0f} steps of {self.task.name} leave {rest:,.0f} of the "
            f"{self.direct.descent_steps:,.0f} that {self.target.name} takes alone"
        )
        return {"sentence": told, **found}


def last_if_unknown(steps: float) -> float:
    """A number to sort by: what is unknown comes last."""
    return math.inf if math.isnan(steps) else steps
