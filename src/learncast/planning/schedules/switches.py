"""The best switching points of one mode among tasks, by dynamic programming over the finitely many candidates.

Training task k moves the strength u at S(u) v_k(u) per unit of cost, with the straight line v_k = (beta_k - u B_k) /
cost_k. Moving one switch from task i to task j by du changes the total cost by (1/v_i - 1/v_j) du / S(u), which is zero
only where the lines cross. So every switch of a best path is at a crossing, at an edge of the allowed stops, or at an
edge of the allowed end; between these points costs are closed forms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learncast._core.validation import FloatArray
from learncast.theory.dynamics import mode_equation

#: Relative rounding of a strength that was computed to lie on an edge.
_ROUNDING = 8 * np.finfo(float).eps

Indices = NDArray[np.intp]


@dataclass(frozen=True)
class SwitchProblem:
    """Tasks one mode may be trained on, and the limits of the path; times are flow times, costs are per flow time.

    Attributes
    ----------
    cross, power, cost : (tasks,)
    nearest, farthest : (tasks,)
        A stage may stop where |u - u*| is between these.
    end : (low, high)
        Where the path must end.
    last : int or None
        Task that must be the last stage.
    """

    cross: FloatArray
    power: FloatArray
    cost: FloatArray
    imbalance: float
    start: float
    end: tuple[float, float]
    nearest: FloatArray
    farthest: FloatArray
    last: int | None
    switch_cost: float

    def best(self, task: int) -> float:
        """Strength the task leads to; the start if it never moves the mode."""
        return float(self.cross[task] / self.power[task]) if self.power[task] > 0 else self.start

    def may_stop(self, task: int, at: FloatArray) -> NDArray[np.bool_]:
        """Whether a stage of the task may stop at strengths."""
        best = self.best(task)
        slack = _ROUNDING * np.maximum(np.abs(best), np.abs(at))
        off = np.abs(at - best)
        return np.asarray((off >= self.nearest[task] - slack) & (off <= self.farthest[task] + slack))

    def may_end(self, task: int, at: FloatArray) -> NDArray[np.bool_]:
        """Whether the path may end there on the task."""
        low, high = self.end
        slack = _ROUNDING * np.abs(at)
        return self.may_stop(task, at) & (at >= low - slack) & (at <= high + slack)

    def edges(self, task: int) -> FloatArray:
        """Edges of where a stage of the task may stop."""
        best, sides = self.best(task), (self.nearest[task], self.farthest[task])
        found = np.array([best + sign * side for side in sides for sign in (-1, 1) if 0 < side < np.inf])
        return found[self.may_stop(task, found)]


@dataclass(frozen=True)
class Nodes:
    """Points where a stage may end: its task, the strength, and the only task worth going on with (-1: any)."""

    task: Indices
    strength: FloatArray
    onward: Indices
    ends: NDArray[np.bool_]


@dataclass(frozen=True)
class SwitchTrace:
    """Tasks and the strengths at which each stops; the total is infinite if no path exists."""

    tasks: tuple[int, ...]
    stops: tuple[float, ...]
    total: float


def nodes_of(problem: SwitchProblem) -> Nodes:
    """List every point at which a best path can switch or end."""
    tasks = len(problem.cross)
    low, high = problem.end
    hull = np.concatenate([[problem.start, low, high], *(problem.edges(k) for k in range(tasks))])
    height, slope = problem.cross / problem.cost, problem.power / problem.cost
    onward = -1 if problem.last is None else problem.last
    parts = []
    for k in range(tasks):
        with np.errstate(divide="ignore", invalid="ignore"):
            cuts = (height[k] - height) / (slope[k] - slope)
        useful = np.isfinite(cuts) & (cuts >= hull.min()) & (cuts <= hull.max())
        useful[useful] = problem.may_stop(k, cuts[useful])
        edges = problem.edges(k)
        ends = np.unique(np.concatenate([edges, [low, high]]))
        ends = ends[problem.may_end(k, ends)]
        kinds = ((cuts[useful], np.flatnonzero(useful), False), (edges, -1, False), (ends, onward, True))
        for at, then, last in kinds:
            parts.append((np.full(len(at), k), at, np.broadcast_to(then, len(at)), np.full(len(at), last)))
    return Nodes(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@dataclass(frozen=True)
class _Reach:
    """Nodes one task may start from and stop at, with their times on the task, branch by branch."""

    sources: Indices
    sinks: Indices
    branches: tuple[tuple[Indices, FloatArray, Indices, FloatArray], ...]

    def relax(self, before: FloatArray, cost: float) -> tuple[FloatArray, Indices]:
        """Cheapest path to each sink, given the cost of each source, and its source."""
        best = np.full(len(self.sinks), np.inf)
        origin = np.full(len(self.sinks), -1)
        for sources, begins, sinks, ends in self.branches:
            value = before[sources] - cost * begins
            running = np.minimum.accumulate(value)
            holder = np.maximum.accumulate(np.where(value <= running, np.arange(len(value)), 0))
            at = np.searchsorted(begins, ends, side="right") - 1
            known = at >= 0
            best[sinks[known]] = running[at[known]] + cost * ends[known]
            origin[sinks[known]] = sources[holder[at[known]]]
        return best, origin


def _reach(
    problem: SwitchProblem, task: int, sources: Indices, at: FloatArray, sinks: Indices, to: FloatArray
) -> _Reach:
    """Time all points on the task, for each side of its optimum (and of 0, if balanced)."""
    best = problem.best(task)

    def branch(u: FloatArray) -> FloatArray:
        side = np.sign(u - best)
        return side if problem.imbalance else 3 * np.sign(u) + side

    found = []
    here, there = branch(at), branch(to)
    for code in np.unique(here):
        begins, ends = np.flatnonzero(here == code), np.flatnonzero(there == code)
        points = np.concatenate([at[begins], to[ends]])
        farthest = points[np.argmax(np.abs(points - best))]
        clock = mode_equation.time_between(
            farthest, points, problem.imbalance, problem.cross[task], problem.power[task]
        )
        early, late = clock[: len(begins)], clock[len(begins) :]
        begins, early = begins[np.isfinite(early)], early[np.isfinite(early)]
        order = np.argsort(early, kind="stable")
        live = np.isfinite(late)
        if len(order) and live.any():
            found.append((begins[order], early[order], ends[live], late[live]))
    return _Reach(sources, sinks, tuple(found))


def best_trace(problem: SwitchProblem, max_stages: int | None) -> SwitchTrace:
    """Cheapest path of at most `max_stages` stages, exact."""
    nodes = nodes_of(problem)
    tasks = len(problem.cross)
    start = np.array([problem.start])
    if problem.last is None and problem.end[0] <= problem.start <= problem.end[1]:
        return SwitchTrace((), (), 0.0)
    if problem.last is not None and problem.may_end(problem.last, start)[0]:
        return SwitchTrace((problem.last,), (problem.start,), 0.0)
    # Nodes that end the path, and those from which the last task needs no training at all.
    ending, resting = nodes.ends, np.zeros(len(nodes.task), dtype=bool)
    if problem.last is not None:
        ending = ending & (nodes.task == problem.last)
        resting = (nodes.task != problem.last) & problem.may_end(problem.last, nodes.strength)
    size = len(nodes.task)
    firsts = np.searchsorted(nodes.task, np.arange(tasks + 1))  # nodes are listed task by task
    sinks = [np.arange(firsts[k], firsts[k + 1]) for k in range(tasks)]
    after, best_known = np.full(size, np.inf), np.full(size, np.inf)
    for k in range(tasks):
        to = nodes.strength[sinks[k]]
        after[sinks[k]] = problem.cost[k] * mode_equation.time_between(
            start, to, problem.imbalance, problem.cross[k], problem.power[k]
        )
    origins: list[Indices] = [np.full(size, -1)]
    best, final = np.inf, (-1, 0, -1)
    reaches: list[_Reach] | None = None
    while True:
        cost, node = _cheapest(after, ending)
        if cost < best:
            best, final = cost, (node, len(origins), -1)
        more = max_stages is None or len(origins) < max_stages
        if more and problem.last is not None:
            rested, node = _cheapest(after, resting)
            if rested + problem.switch_cost < best:
                best, final = rested + problem.switch_cost, (node, len(origins), problem.last)
        after = np.where((after < best_known) & (after < best), after, np.inf)
        best_known = np.minimum(best_known, after)
        if not more or not np.isfinite(after).any():
            break
        reaches = reaches or _reaches(problem, nodes, sinks)
        before, after, origin = after + problem.switch_cost, np.full(size, np.inf), np.full(size, -1)
        for k, reach in enumerate(reaches):  # one more stage on every task
            after[reach.sinks], source = reach.relax(before[reach.sources], float(problem.cost[k]))
            origin[reach.sinks] = np.where(source >= 0, reach.sources[source] if len(reach.sources) else -1, -1)
        origins.append(origin)
    return _trace(nodes, origins, best, final)


def _reaches(problem: SwitchProblem, nodes: Nodes, sinks: list[Indices]) -> list[_Reach]:
    """Reach of every task."""
    order = np.argsort(nodes.onward, kind="stable")
    firsts = np.searchsorted(nodes.onward[order], np.arange(-1, len(sinks) + 1))
    found = []
    for task, to in enumerate(sinks):
        sources = np.concatenate([order[: firsts[1]], order[firsts[task + 1] : firsts[task + 2]]])
        sources = sources[nodes.task[sources] != task]
        found.append(_reach(problem, task, sources, nodes.strength[sources], to, nodes.strength[to]))
    return found


def _cheapest(after: FloatArray, among: NDArray[np.bool_]) -> tuple[float, int]:
    """Cheapest of some nodes; infinite if there is none."""
    nodes = np.flatnonzero(among)
    if not len(nodes):
        return np.inf, -1
    node = int(nodes[np.argmin(after[nodes])])
    return float(after[node]), node


def _trace(nodes: Nodes, origins: list[Indices], total: float, final: tuple[int, int, int]) -> SwitchTrace:
    node, stages, extra = final
    if not np.isfinite(total):
        return SwitchTrace((), (), np.inf)
    tasks = [extra] if extra >= 0 else []
    stops = [float(nodes.strength[node])] if extra >= 0 else []
    for stage in range(stages - 1, -1, -1):
        tasks.insert(0, int(nodes.task[node]))
        stops.insert(0, float(nodes.strength[node]))
        node = int(origins[stage][node])
    return SwitchTrace(tuple(tasks), tuple(stops), total)
