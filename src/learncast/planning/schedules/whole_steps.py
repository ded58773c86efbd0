"""The cheapest schedule of one balanced mode in whole steps of gradient descent, by sets of intervals.

A step on a task maps the strength of a balanced mode u = a^2 to u (1 + eta (beta - u B))^2. So the strengths from
which the target's band can be reached at some cost are a set of intervals, and the preimages of its intervals under
the step of each task are the strengths from which one more step reaches it. The intervals are propagated backwards in
the order of their cost (Dijkstra's algorithm) until one holds the start: no schedule in whole steps costs less.
"""

from __future__ import annotations

import heapq
import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from learncast._core.progress import check_time
from learncast._core.validation import FloatArray
from learncast.planning.methods.modes import ModeMethod
from learncast.planning.search import PRECISION, Route
from learncast.planning.terms import PoolTerms
from learncast.theory.dynamics.steps.mode_descent import EDGE

#: Intervals that are propagated at most, and steps of one stage up to which all stops are compared: a few seconds.
MOST_PIECES, MOST_STEPS = 100_000, 10_000
#: Strengths that are followed together.
MOST_STATES = 500_000
#: Relative difference of squared weights up to which a mode is balanced: rounding of a change of frame.
BALANCED = 1e-12
#: Newton steps to the inverse of a step, which is nearly the identity.
NEWTON_STEPS = 60
ROUNDING = 1e-15
#: Relative distance from a threshold up to which rounding may decide on a step.
NEAR = 1e-9
#: Growth of a step above which its powers are no numbers.
HUGE = 1e50

Span = tuple[float, float]
#: Changes of task that follow, and the task of the next step.
Key = tuple[int, int]


@dataclass(frozen=True)
class StrengthStep:
    """One step on a task as a map of the strength, on [0, most].

    Attributes
    ----------
    growth : float
        1 + eta beta.
    damping : float
        eta B.
    most : float
        Largest strength.
    """

    growth: float
    damping: float
    most: float

    @cached_property
    def turns(self) -> list[float]:
        """Strengths at which the map turns from rising to falling and back."""
        ends = [self.growth / (3 * self.damping), self.growth / self.damping] if self.damping > 0 else []
        return [u for u in ends if u < self.most]

    @property
    def bounded(self) -> bool:
        """Whether every step leads to a strength of the interval."""
        return self.growth > 0 and self.range(0.0, self.most)[1] <= self.most * (1 + EDGE)

    def range(self, low: float, high: float) -> Span:
        """Least and greatest strength after one step from an interval."""
        points = [low, high, *(u for u in self.turns if low < u < high)]
        after = [u * (self.growth - self.damping * u) ** 2 for u in points]
        return min(after), max(after)

    @cached_property
    def branches(self) -> list[tuple[float, float, float, float]]:
        """Intervals on which the map is monotone, each with the least and the greatest strength after the step."""
        return [(*ends, *self.range(*ends)) for ends in itertools.pairwise([0.0, *self.turns, self.most])]

    def preimages(self, low: float, high: float) -> list[Span]:
        """Intervals that one step maps into an interval."""
        spans = []
        for left, right, least, most in self.branches:
            if high >= least and low <= most:
                ends = (self.inverse(min(max(end, least), most), left, right) for end in (low, high))
                first, last = sorted(ends)
                spans.append((first, last))
        return spans

    def inverse(self, value: float, left: float, right: float) -> float:
        """Strength of a monotone branch that a step maps to a value: Newton's method, safeguarded by bisection."""
        growth, damping = self.growth, self.damping
        rising = left == 0 or left > self.turns[0]
        strength = min(max(value / growth**2, left), right)
        for _ in range(NEWTON_STEPS):
            pull = growth - damping * strength
            over = strength * pull * pull - value
            if (over > 0) == rising:
                right = strength
            else:
                left = strength
            slope = pull * (pull - 2 * damping * strength)
            moved = strength - over / slope if slope else left
            if not left <= moved <= right:
                moved = (left + right) / 2
            if abs(moved - strength) <= ROUNDING * strength:
                return moved
            strength = moved
        return strength


@dataclass
class IntervalSet:
    """A set of disjoint intervals in increasing order."""

    lows: list[float] = field(default_factory=list)
    highs: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, spans: Iterable[Span]) -> IntervalSet:
        """Return the union of intervals."""
        union = cls()
        for low, high in spans:
            union.add(low, high)
        return union

    @property
    def spans(self) -> list[Span]:
        """The intervals."""
        return list(zip(self.lows, self.highs, strict=True))

    def distance(self, value: float) -> float:
        """Distance of a value from the set."""
        k = bisect_right(self.lows, value)
        below = value - self.highs[k - 1] if k else math.inf
        above = self.lows[k] - value if k < len(self.lows) else math.inf
        return max(min(below, above), 0.0)

    def missing(self, low: float, high: float) -> list[Span]:
        """Parts of [low, high] that the set does not cover."""
        k = max(bisect_right(self.lows, low) - 1, 0)
        parts = []
        while k < len(self.lows) and self.lows[k] < high:
            if self.lows[k] > low:
                parts.append((low, self.lows[k]))
            low = max(low, self.highs[k])
            k += 1
        return [*parts, (low, high)] if low < high else parts

    def add(self, low: float, high: float) -> None:
        """Add an interval and join those that it touches."""
        first, last = bisect_left(self.highs, low), bisect_right(self.lows, high)
        if first < last:
            low, high = min(low, self.lows[first]), max(high, self.highs[last - 1])
        self.lows[first:last], self.highs[first:last] = [low], [high]


#: Strengths from which the band is reached at one cost and no less, by switches that follow and task.
Level = dict[Key, IntervalSet]


@dataclass(frozen=True, eq=False)
class WholeStepProblem:
    """One balanced mode, the tasks it may be trained on (the target last) and their costs.

    Attributes
    ----------
    maps : list of StrengthStep
    start : float
    band : (low, high)
        Where the target counts as learned.
    costs, switch_cost : int
        Cost of one step on each task, and of a change of task, in units of `unit`: whole numbers add up without
        rounding.
    stops, steps_from : list of lists of intervals
        Strengths at which a stage may end, and from which its last step may be taken.
    """

    maps: list[StrengthStep]
    start: float
    band: Span
    costs: list[int]
    switch_cost: int
    unit: float
    stops: list[list[Span]]
    steps_from: list[list[Span]]

    @classmethod
    def of(cls, method: ModeMethod, terms: PoolTerms, candidates: Sequence[int]) -> WholeStepProblem | None:
        """Set up the search over some candidates; None if the mode is not single and balanced, or may diverge.

        A limit on forgetting is not supported either.
        """
        a, c = method.start
        single = len(a) == 1 and abs(a[0] ** 2 - c[0] ** 2) <= BALANCED * (a[0] ** 2 + c[0] ** 2)
        if not single or np.isfinite(terms.most_loss).any():
            return None
        rows, rate = [*candidates, method.target], method.learning_rate
        # A mode of opposite weights is the mirror image of one of equal weights.
        start, sign = float(abs(a[0] * c[0])), math.copysign(1.0, a[0] * c[0])
        problems = [method.problems[k] for k in rows]
        steps = [(1 + rate * sign * float(p.cross[0]), rate * float(p.power[0])) for p in problems]
        if max(growth for growth, _ in steps) > HUGE:
            return None
        optima = [(growth - 1) / damping if damping > 0 else 0.0 for growth, damping in steps]
        # Long steps overshoot, at most to the peak of their map.
        most = max(start, *optima, *(4 / 27 * growth**3 / damping for growth, damping in steps if growth > 1.5))
        maps = [StrengthStep(growth, damping, most) for growth, damping in steps]
        if not (start > 0 and optima[-1] > 0 and all(m.bounded for m in maps)):
            return None
        half_width = optima[-1] * (1 - method.goal_accuracy(method.target, terms.goal)) * (1 + EDGE)
        prices = [*map(Fraction, terms.cost[rows].tolist()), Fraction(terms.switch_cost)]
        parts = math.lcm(*(price.denominator for price in prices))
        *costs, switch_cost = (int(price * parts) for price in prices)
        limits = [
            _limits(best, float(terms.least[k]), float(terms.most[k]), most)
            for k, best in zip(rows[:-1], optima, strict=False)
        ]
        stops, before = ([*(pair[side] for pair in limits), [(0.0, most)]] for side in (0, 1))
        band = optima[-1] - half_width, optima[-1] + half_width
        return cls(maps, start, band, costs, switch_cost, 1 / parts, stops, before)

    def pairs(self) -> list[Route] | None:
        """Best stop of each task before the target, of all whole numbers of steps; None if that takes too long.

        Direct training if no stop costs less.
        """
        most = self._rests(np.array([self.start]), np.array([math.inf]))[0] * self.costs[-1]
        if most > MOST_STEPS * min(self.costs):
            return None
        routes: list[Route] = []
        together = max(1, int(MOST_STATES * min(self.costs) // max(most, 1)))
        for first in range(0, len(self.maps) - 1, together):
            routes += self._pairs(range(first, min(first + together, len(self.maps) - 1)), most)
        return routes

    def _pairs(self, tasks: Sequence[int], most: float) -> list[Route]:
        """Best stop of some tasks, whose strengths are followed together."""
        growth, damping = np.array([(self.maps[k].growth, self.maps[k].damping) for k in tasks]).T
        costs = np.array([self.costs[k] for k in tasks], dtype=float)
        rows = [np.full(len(tasks), self.start)]
        for _ in range(int(most // min(costs))):
            rows.append(rows[-1] * (growth - damping * rows[-1]) ** 2)
        paths = np.array(rows).T
        before = self.switch_cost + costs[:, None] * np.arange(len(rows))
        # A schedule that costs more than direct training is not followed to its end.
        limits = np.floor((most - before) / self.costs[-1]).ravel()
        rests = self._rests(paths.ravel(), limits).reshape(paths.shape)
        totals, routes = before + self.costs[-1] * rests, []
        totals[:, 0], rests[:, 0] = most, most / self.costs[-1]
        for place, k in enumerate(tasks):
            after, total = paths[place], totals[place]
            total[1:][~(_inside(self.stops[k], after[1:]) & _inside(self.steps_from[k], after[:-1]))] = np.inf
            n = int(np.argmin(total))
            order, durations = ((k,), (float(n),)) if n else ((), ())
            routes.append(Route(order, durations, float(rests[place, n]), float(total[n]) * self.unit))
        return routes

    @cached_property
    def _thresholds(self) -> FloatArray:
        """Least strengths, in increasing order, from which the target's band is n, ..., 1, 0 steps away.

        They go down to the start; empty if a step on the target may overshoot the band.
        """
        target, (low, high) = self.maps[-1], self.band
        rising = target.branches[0][1]
        if min(high, target.most) > rising:
            return np.array([])
        found = [low]
        while found[-1] > self.start and len(found) < MOST_STEPS:
            found.append(target.inverse(found[-1], 0.0, rising))
        return np.array(found[::-1])

    def _rests(self, strengths: FloatArray, limits: FloatArray) -> FloatArray:
        """Steps on the target from each strength until the band is reached; infinite if they exceed its limit."""
        edges = self._thresholds
        if not len(edges):
            return self._counted_rests(strengths, limits)
        place = np.searchsorted(edges, strengths, side="right")
        rests = np.where(len(edges) - place <= limits, float(len(edges)) - place, np.inf)
        # Rounding decides next to a threshold, so the steps from there are counted.
        near = np.minimum(np.abs(strengths - edges[np.maximum(place - 1, 0)]),
                          np.abs(strengths - edges[np.minimum(place, len(edges) - 1)])) <= NEAR * strengths  # fmt: skip
        count = near | (place == 0) | (strengths > self.band[1])
        rests[count] = self._counted_rests(strengths[count], limits[count])
        return rests

    def _counted_rests(self, strengths: FloatArray, limits: FloatArray) -> FloatArray:
        """Steps on the target until its band, counted one after another."""
        target, (low, high) = self.maps[-1], self.band
        rests, rows = np.full(len(strengths), np.inf), np.arange(len(strengths))
        for n in range(MOST_STEPS):
            check_time()
            inside = (low <= strengths) & (strengths <= high)
            rests[rows[inside]] = n
            left = ~inside & (limits > n)
            strengths, rows, limits = strengths[left], rows[left], limits[left]
            if not len(rows):
                break
            strengths = strengths * (target.growth - target.damping * strengths) ** 2
        return rests

    def cheapest(self, max_stages: int, known: float = math.inf) -> Route | None:
        """Cheapest schedule of at most `max_stages` stages, with tasks numbered as those of this problem.

        None if no schedule costs at most `known`, or if the search takes too long.
        """
        best = None
        # A schedule of few stages is found soon, and rules out most strengths of longer ones.
        for stages in sorted({min(3, max_stages), max_stages}):
            levels = self._levels(stages, known / self.unit * (1 + EDGE))
            if levels is None:
                return None
            best = self._route(levels)
            known = best.total
        return best

    def _levels(self, max_stages: int, known: float) -> dict[int, Level] | None:
        """Sets of strengths in the order of their cost, until one holds the start."""
        covered = [[IntervalSet() for _ in range(max_stages)] for _ in self.maps]
        waiting: dict[int, dict[Key, list[Span]]] = {0: {(0, len(self.maps) - 1): [self.band]}}
        costs, windows, pieces = [0], self._windows(known), 0
        levels: dict[int, Level] = {}
        while costs and pieces < MOST_PIECES:
            check_time()
            cost, level = heapq.heappop(costs), {}
            for (switches, task), spans in sorted(waiting.pop(cost).items()):
                new = IntervalSet.of(part for span in spans for part in covered[task][switches].missing(*span))
                for more in range(switches, max_stages):  # with more switches the same is possible
                    for span in new.spans:
                        covered[task][more].add(*span)
                level[switches, task] = new
                pieces += len(new.lows)
            levels[cost] = level
            if any(new.distance(self.start) == 0 for new in level.values()):
                return levels
            for price, key, (low, high) in self._steps_before(cost, level, max_stages):
                left = known - price
                least, most = windows[int(min(left / min(self.costs), len(windows) - 1))] if left >= 0 else (1.0, 0.0)
                if max(low, least) <= min(high, most):
                    if price not in waiting:
                        waiting[price] = {}
                        heapq.heappush(costs, price)
                    waiting[price].setdefault(key, []).append((low, high))
        return None

    def _windows(self, known: float) -> list[Span]:
        """Least and greatest strength after each number of steps that `known` can pay, on any tasks."""
        if math.isinf(known):
            return [(0.0, self.maps[0].most)]
        windows = [(self.start, self.start)]
        for _ in range(int(known / min(self.costs))):
            low, high = windows[-1]
            ranges = [m.range(low, high) for m in self.maps]
            windows.append((min(low, *(r[0] for r in ranges)), max(high, *(r[1] for r in ranges))))
            if windows[-1] == (low, high):
                break
        # Rounding must not exclude the ends.
        return [(low * (1 - EDGE), high * (1 + EDGE)) for low, high in windows]

    def _steps_before(self, cost: int, level: Level, max_stages: int) -> Iterator[tuple[int, Key, Span]]:
        """Intervals from which one step leads into the sets of a level, with their cost."""
        for (switches, task), new in level.items():
            for k, step in enumerate(self.maps):
                if k == task:  # the stage goes on
                    for span in new.spans:
                        for before in step.preimages(*span):
                            yield cost + self.costs[k], (switches, k), before
                elif switches + 1 < max_stages:  # the step is the last of its stage
                    price = cost + self.costs[k] + self.switch_cost
                    for end in (part for span in new.spans for part in _common(self.stops[k], span)):
                        for before in step.preimages(*end):
                            for part in _common(self.steps_from[k], before):
                                yield price, (switches + 1, k), part

    def _route(self, levels: dict[int, Level]) -> Route:
        """Follow the start through the levels down to the band."""
        cost, strength = max(levels), self.start
        switches, task = min(key for key, new in levels[cost].items() if new.distance(strength) == 0)
        tasks, total = [], cost * self.unit
        while cost > 0:
            tasks.append(task)
            strength = self.maps[task].range(strength, strength)[0]
            onward = [
                (new.distance(strength), k != task, key[0], k, price)
                for k in range(len(self.maps))
                for price in [cost - self.costs[task] - self.switch_cost * (k != task)]
                for key, new in levels.get(price, {}).items()
                if key[1] == k and key[0] + (k != task) <= switches
            ]
            _, _, switches, task, cost = min(onward)
        stages = [(k, float(len(list(group)))) for k, group in itertools.groupby(tasks)]
        rest = stages.pop()[1] if stages and stages[-1][0] == len(self.maps) - 1 else 0.0
        return Route(tuple(k for k, _ in stages), tuple(n for _, n in stages), rest, total)


def _limits(best: float, least: float, most: float, top: float) -> tuple[list[Span], list[Span]]:
    """Strengths at which a stage may end, and from which its last step may be taken."""
    far, near = (1 - least + PRECISION) * abs(best), (1 - most - PRECISION) * abs(best)
    stops = [(best - far, best + far)] if math.isfinite(least) else [(0.0, top)]
    return stops, [(0.0, best - near), (best + near, top)] if most < 1 else [(0.0, top)]


def _inside(spans: list[Span], values: FloatArray) -> NDArray[np.bool_]:
    """Whether values lie in one of some intervals."""
    return np.any([(low <= values) & (values <= high) for low, high in spans], axis=0)


def _common(some: list[Span], span: Span) -> list[Span]:
    """Parts of an interval that lie in others."""
    parts = [(max(low, span[0]), min(high, span[1])) for low, high in some]
    return [(low, high) for low, high in parts if low <= high]
