"""The cheapest path of one mode through a pool of tasks, by dynamic programming over the points of a best path.

Training task k moves the strength u at S(u) v_k(u) per unit of cost, with the straight line v_k = (beta_k - u B_k) /
cost_k. Moving one switch from task i to task j by du changes the total cost by (1/v_i - 1/v_j) du / S(u), which is zero
only where the lines cross. So a best path switches only where lines cross, at an edge of the allowed stops, or at an
edge of the target's band; between these points costs are closed forms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray
from learncast.planning.schedules.problem import TIE, Flags, Indices, ScheduleProblem
from learncast.planning.search import Route
from learncast.theory.dynamics import mode_equation

#: Relative rounding of a strength that was computed to lie on an edge.
ROUNDING = 8 * np.finfo(float).eps
#: Tasks that may compete, without those that another task beats everywhere: memory grows as the square.
MOST_RIVALS = 2000
#: Index of the start among the points, and number of points before the edges of stops: start and band.
START, EDGES = 0, 3

#: Task and last point of each stage.
Legs = list[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class ModePath:
    """Tasks that one mode may be trained on, the target last, and where its stages may stop.

    Attributes
    ----------
    tasks : (tasks,)
        Their numbers in the pool.
    cross, power, cost : (tasks,)
    near, far : (tasks,)
        Least and greatest distance from its optimum at which a stage of each task may stop.
    start, imbalance, switch_cost : float
    band : (low, high)
        Where the target counts as learned.
    """

    tasks: Indices
    cross: FloatArray
    power: FloatArray
    cost: FloatArray
    near: FloatArray
    far: FloatArray
    start: float
    imbalance: float
    switch_cost: float
    band: tuple[float, float]

    @classmethod
    def of(
        cls, problem: ScheduleProblem, mode: int, tasks: Sequence[int], half_width: float, *, limited: bool
    ) -> ModePath:
        """Set up the path of one mode to within `half_width` of the target's optimum, with or without stop limits."""
        pool, start = np.asarray(tasks, dtype=np.intp), float(problem.start[mode])
        target = float(problem.optimum[-1, mode])
        band, size = (target - half_width, target + half_width), np.abs(problem.optimum[pool, mode])
        near, far = np.zeros(len(pool)), np.full(len(pool), np.inf)
        if limited:
            near, least = (1 - problem.most[pool]) * size, problem.least[pool]
            far[np.isfinite(least)] = ((1 - least) * size)[np.isfinite(least)]
        path = cls(
            pool, problem.cross[pool, mode], problem.power[pool, mode], problem.cost[pool], near, far, start,
            float(problem.imbalance[mode]), problem.switch_cost, band,
        )  # fmt: skip
        return path if near.any() or np.isfinite(far).any() else path._without_slow_tasks()

    def _without_slow_tasks(self) -> ModePath:
        """Leave out tasks that another one beats all the way to the band, except the target; needs no stop limits."""
        end = min(max(self.start, self.band[0]), self.band[1])
        sign = 1.0 if end > self.start else -1.0
        ends = (sign * (self.cross - u * self.power) / self.cost for u in sorted((self.start, end)))
        keep = np.union1d(undominated(*ends), len(self.tasks) - 1)
        rows = {name: getattr(self, name)[keep] for name in ("tasks", "cross", "power", "cost", "near", "far")}
        return replace(self, **rows)

    @cached_property
    def best(self) -> FloatArray:
        """Strength each task leads to; the start if it never moves the mode."""
        start = np.full_like(self.cross, self.start)
        return np.divide(self.cross, self.power, out=start, where=self.power > 0)

    def may_stop(self, task: int, at: FloatArray) -> Flags:
        """Whether a stage of the task may stop at strengths."""
        off, slack = np.abs(at - self.best[task]), ROUNDING * np.maximum(np.abs(self.best[task]), np.abs(at))
        return np.asarray((off >= self.near[task] - slack) & (off <= self.far[task] + slack))

    def learned(self, at: FloatArray) -> Flags:
        """Whether strengths lie in the target's band."""
        slack = ROUNDING * np.abs(at)
        return np.asarray((at >= self.band[0] - slack) & (at <= self.band[1] + slack))

    @cached_property
    def stop_edges(self) -> FloatArray:
        """Edges of the strengths at which stages may stop."""
        edges = np.concatenate([self.best + sign * side for side in (self.near, self.far) for sign in (-1, 1)])
        sides = np.concatenate([self.near, self.near, self.far, self.far])
        return np.asarray(edges[(sides > 0) & np.isfinite(sides)])

    @cached_property
    def points(self) -> FloatArray:
        """Strengths at which a path may start, switch or end; the crossings of tasks i and j last, (tasks, tasks)."""
        height, slope = self.cross / self.cost, self.power / self.cost
        with np.errstate(divide="ignore", invalid="ignore"):
            cuts = (height[:, None] - height) / (slope[:, None] - slope)
        return np.concatenate([[self.start, *self.band], self.stop_edges, cuts.ravel()])

    def points_of(self, task: int) -> Indices:
        """Points at which a stage of the task may begin or end."""
        common, others = EDGES + len(self.stop_edges), np.arange(len(self.cross))
        cuts = common + np.minimum(task, others) * len(others) + np.maximum(task, others)
        return np.concatenate([np.arange(common), cuts[np.isfinite(self.points[cuts])]])

    def passages(self, task: int) -> list[tuple[Indices, FloatArray]]:
        """Points in the order in which training the task passes them, and their times, from each side of its optimum.

        The sides of 0 are separate too if the mode is balanced.
        """
        places = self.points_of(task)
        at, best = self.points[places], float(self.best[task])
        side = np.sign(at - best) + (0 if self.imbalance else 3 * np.sign(at))
        found = []
        for code in np.unique(side):
            here = places[side == code]
            strengths = self.points[here]
            first = strengths[np.argmax(np.abs(strengths - best))]
            clock = mode_equation.time_between(first, strengths, self.imbalance, self.cross[task], self.power[task])
            order = np.argsort(clock, kind="stable")
            order = order[np.isfinite(clock[order])]
            found.append((here[order], clock[order]))
        return found

    def cheapest(self, max_stages: int) -> Route:
        """Cheapest path of at most `max_stages` stages; an infinite total if there is none."""
        if len(self.cross) > MOST_RIVALS:
            raise InvalidSpec(
                f"At most {MOST_RIVALS} tasks may compete for one mode, got {len(self.cross)}.", field="candidates"
            )
        at, target = self.points, len(self.cross) - 1
        learned = self.learned(at)
        if learned[START]:
            return Route((), (), 0.0, 0.0)
        passages = [self.passages(k) for k in range(len(self.cross))]
        known = np.full(len(at), np.inf)
        spent, total, path = np.where(np.arange(len(at)) == START, 0.0, np.inf), math.inf, Legs()
        levels: list[tuple[Indices, Indices]] = []
        for stage in range(1, max_stages + 1):
            after, task_of, origin = np.full(len(at), np.inf), *np.zeros((2, len(at)), dtype=np.intp)
            for k, (places, clock) in ((k, passage) for k, sides in enumerate(passages) for passage in sides):
                cost, source = _cheapest_before(spent[places], places, clock * self.cost[k])
                cost[~self.may_stop(k, at[places])] = np.inf
                end = int(np.argmin(np.where(learned[places], cost, np.inf)))
                # The target follows, even if it needs no training.
                paid = float(cost[end]) + (self.switch_cost if k != target else 0.0)
                if learned[places[end]] and paid < total * (1 - TIE) and (k == target or stage < max_stages):
                    total, path = paid, _trace(levels, [(k, int(places[end]))], int(source[end]))
                better = cost < after[places]
                here = places[better]
                after[here], task_of[here], origin[here] = cost[better], k, source[better]
            levels.append((task_of, origin))
            spent = np.where((after < known * (1 - TIE)) & (after < total), after + self.switch_cost, np.inf)
            known = np.minimum(known, after)
        return self._route(path, total)

    def _route(self, path: Legs, total: float) -> Route:
        """Route of the stages of a path; direct training of infinite cost if there is none."""
        if not path:
            return Route((), (), math.inf, math.inf)
        ends = [START, *(place for _, place in path)]
        order = [k for k, _ in path]
        times = mode_equation.time_between(
            self.points[ends[:-1]], self.points[ends[1:]], self.imbalance, self.cross[order], self.power[order]
        ).tolist()
        rest = times.pop() if order[-1] == len(self.cross) - 1 else 0.0
        before = tuple(self.tasks[order[: len(times)]].tolist())
        return Route(before, tuple(times), rest, total)


def _cheapest_before(spent: FloatArray, places: Indices, clock: FloatArray) -> tuple[FloatArray, Indices]:
    """Least cost of reaching points in the order in which they are passed, and from which of them."""
    value = spent - clock
    least = np.minimum.accumulate(value)
    holder = np.maximum.accumulate(np.where(value <= least, np.arange(len(value)), 0))
    return least + clock, places[holder]


def _trace(levels: list[tuple[Indices, Indices]], path: Legs, place: int) -> Legs:
    """Tasks and last points of all stages of a path, given its last stage and the point where that begins."""
    for task_of, origin in reversed(levels):
        path = [(int(task_of[place]), place), *path]
        place = int(origin[place])
    return path


def undominated(left: FloatArray, right: FloatArray) -> Indices:
    """Lines that are not below another line at both ends of an interval, by their heights there; one of equal lines.

    A line below another at both ends is below it in between, so it is never used.
    """
    order = np.lexsort((-right, -left))
    best = np.maximum.accumulate(right[order])
    first = np.ones(len(order), dtype=bool)
    first[1:] = best[1:] > best[:-1]
    return np.sort(order[first])
