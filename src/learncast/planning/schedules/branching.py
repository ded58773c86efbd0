"""Branch and bound over orders of stages and boxes of durations: the cheapest schedule, and how good it is."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from learncast.dynamics import mode_equation
from learncast.planning.schedules.course import Course, Flags, Indices
from learncast.planning.schedules.enclosure import lower_bounds
from learncast.planning.schedules.optimal import cheapest_path
from learncast.planning.schedules.stopping import TIE
from learncast.progress import Progress, silent
from learncast.trajectory import Status
from learncast.validation import FloatArray

#: Boxes bounded at a time: enough to fill arrays, few enough that the best are opened first.
_BATCH = 512

#: Orders whose best samples are refined before boxes are opened.
_SEEDS = 24

#: Rounds that pin the best schedule down to the last digits.
_FINEST = 36

#: Refinements that better samples may ask for while boxes are opened.
_REFINEMENTS = 12


@dataclass(frozen=True)
class Found:
    """The cheapest schedule found: tasks and durations before the target, the time on it, cost and proof.

    Attributes
    ----------
    lower : float
        No schedule costs less, to round-off.
    boxes : int
        Boxes of durations that were bounded.
    """

    order: tuple[int, ...]
    durations: tuple[float, ...]
    rest: float
    total: float
    lower: float
    boxes: int


def orders_of(tasks: int, stages: int, *, shorter: bool) -> Indices:
    """All orders of up to `stages` stages before the target (the last task), padded with -1 in front.

    Without a cost or a rule that tells them apart, a shorter order is a longer one with a duration of 0.
    """
    lengths = range(stages + 1) if shorter else (stages,)
    found = []
    for length in lengths:
        for order in itertools.product(range(tasks), repeat=length):
            path = (*order, tasks - 1)
            if all(a != b for a, b in itertools.pairwise(path)):
                found.append([-1] * (stages - length) + list(order))
    return np.array(found, dtype=np.intp).reshape(len(found), stages)


def lattice_of(axis: FloatArray, stages: int) -> FloatArray:
    """Every combination of the axis's values over the stages, (points, stages); one empty point for none."""
    return np.array(list(itertools.product(axis.tolist(), repeat=stages))).reshape(len(axis) ** stages, stages)


def explored(course: Course, stages: int, *, gap: float, max_boxes: int, progress: Progress = silent) -> Found:
    """Search all orders of up to `stages` stages before the target to a relative gap, or until boxes run out."""
    ruled = course.switch_cost > 0 or np.isfinite(course.least).any() or (course.most < 1).any()
    orders = orders_of(len(course.cost), stages, shorter=bool(ruled) or len(course.cost) == 1)
    search = _Search(course, orders, gap, max_boxes)
    search.seed()
    search.run(progress)
    search.refine(*search.at, rounds=_FINEST)
    return search.found()


class _Search:
    """The state of one search: open boxes, the best schedule and what has been ruled out."""

    def __init__(self, course: Course, orders: Indices, gap: float, max_boxes: int) -> None:
        self.course, self.orders, self.gap, self.max_boxes = course, orders, gap, max_boxes
        self.best, self.at = np.inf, (0, np.zeros(orders.shape[1]))
        self.closed = np.inf
        self.boxes = self.refined = 0
        self.floor = _floors(course, orders)
        self.row: Indices = np.zeros(0, dtype=np.intp)
        self.low: FloatArray = np.zeros((0, orders.shape[1]))
        self.high: FloatArray = self.low
        self.bound: FloatArray = np.zeros(0)

    def seed(self) -> None:
        """Sample every order, refine the best samples, and open one box for each order."""
        horizon = _horizon(self.course, self.orders)
        stages = self.orders.shape[1]
        share = np.concatenate([[0.0], np.geomspace(0.003, 1.0, {0: 1, 1: 64, 2: 14}.get(stages, 5))])
        grid = lattice_of(share, stages)
        totals = []
        # The target alone comes first and so wins ties: its order is the first, all of whose durations are 0.
        nothing = np.zeros((1, stages))
        self.offer(np.zeros(1, dtype=np.intp), nothing, self.course.priced(self.orders[:1], nothing)[0])
        for k, order in enumerate(self.orders):
            points = grid * horizon[k]
            cost = self.course.priced(np.tile(order, (len(points), 1)), points)[0]
            self.offer(np.full(len(points), k), points, cost)
            totals.append((float(cost.min()), k, points[int(np.argmin(cost))]))
        for least, k, point in sorted(totals, key=lambda t: t[0])[:_SEEDS]:
            if np.isfinite(least):
                self.refine(k, point)
        if np.isfinite(self.best):  # what costs more than the best is not worth a look
            horizon = np.minimum(horizon, self.best / self.course.cost[self.orders] * (self.orders >= 0))
        self.open(np.arange(len(self.orders)), np.zeros_like(horizon), horizon, self.floor)

    def offer(self, rows: Indices, points: FloatArray, costs: FloatArray) -> bool:
        """Remember the cheapest schedule seen."""
        k = int(np.argmin(costs)) if len(costs) else 0
        if len(costs) and costs[k] < self.best * (1 - TIE):  # the first, which is the shortest, wins ties
            self.best, self.at = float(costs[k]), (int(rows[k]), points[k].copy())
            return True
        return False

    def refine(self, row: int, point: FloatArray, rounds: int = 12) -> None:
        """Zoom in on a sample: a lattice around the best point, finer every round unless that lies on its rim.

        A lattice finds its way along the creases where two modes are equally late, where a simplex gets stuck.
        """
        live = self.orders[row] >= 0
        if not live.any():
            return
        order, stages = self.orders[row], int(live.sum())
        axis = np.linspace(-1.0, 1.0, {1: 33, 2: 9, 3: 5}.get(stages, 3))
        lattice = lattice_of(axis, stages)
        radius = np.maximum(0.4 * point[live], 0.02 * max(float(point.max()), 1e-12))
        for _ in range(rounds):
            points = np.tile(point, (len(lattice), 1))
            points[:, live] = np.maximum(points[:, live] + lattice * radius, 0.0)
            costs = self.course.priced(np.tile(order, (len(points), 1)), points)[0]
            k = int(np.argmin(costs))
            # Durations stop at 0: what counts is how far the point moved, not where on the lattice it was.
            far = (np.abs(points[k] - point)[live] > 0.99 * radius).any()
            if costs[k] < np.inf:
                self.offer(np.full(len(points), row), points, costs)
                point = points[k]
            if not far:
                radius = radius * 0.35

    def open(self, row: Indices, low: FloatArray, high: FloatArray, parent: FloatArray) -> None:
        """Bound boxes, sample their centres, and keep those that may hold something better."""
        orders = self.orders[row]
        bound = np.maximum(lower_bounds(self.course, orders, low, high), parent)
        centre = (low + high) / 2
        before = self.best
        better = self.offer(row, centre, self.course.priced(orders, centre)[0]) and self.best < before * (1 - self.gap)
        if better and self.refined < _REFINEMENTS:
            self.refined += 1
            self.refine(*self.at)
        self.boxes += len(row)
        self.row, self.bound = np.concatenate([self.row, row]), np.concatenate([self.bound, bound])
        self.low, self.high = np.concatenate([self.low, low]), np.concatenate([self.high, high])
        worth = self.bound < self.best * (1 - self.gap) if np.isfinite(self.best) else np.isfinite(self.bound)
        self.closed = min(self.closed, float(self.bound[~worth].min(initial=np.inf)))
        self.keep(worth)

    def keep(self, which: Flags) -> None:
        self.row, self.bound = self.row[which], self.bound[which]
        self.low, self.high = self.low[which], self.high[which]

    def run(self, progress: Progress) -> None:
        """Halve the most promising boxes until none is left that may hold something better."""
        while len(self.row) and self.orders.shape[1] and self.boxes < self.max_boxes:
            some = np.argsort(self.bound, kind="stable")[:_BATCH]
            row, low, high, bound = self.row[some], self.low[some], self.high[some], self.bound[some]
            rest = np.ones(len(self.row), dtype=bool)
            rest[some] = False
            self.keep(rest)
            width = (high - low) * self.course.cost[self.orders[row]]
            rows, side = np.arange(len(row)), np.argmax(width, axis=1)
            middle = (low[rows, side] + high[rows, side]) / 2
            upper_low, lower_high = low.copy(), high.copy()
            upper_low[rows, side], lower_high[rows, side] = middle, middle
            solid = (middle > low[rows, side]) & (middle < high[rows, side])
            # A box too thin to halve holds nothing that its bound does not already say.
            self.closed = min(self.closed, float(bound[~solid].min(initial=np.inf)))
            row, low, high, bound, upper_low, lower_high = (
                values[solid] for values in (row, low, high, bound, upper_low, lower_high)
            )
            self.open(
                np.concatenate([row, row]),
                np.concatenate([low, upper_low]),
                np.concatenate([lower_high, high]),
                np.concatenate([bound, bound]),
            )
            progress(min(1.0, self.boxes / self.max_boxes))

    def found(self) -> Found:
        row, durations = self.at
        order = self.orders[row]
        if np.isfinite(self.best):
            # A stage so short that leaving it out changes nothing is left out.
            shorter = np.where(durations * self.course.cost[order] < 1e-8 * self.best, 0.0, durations)
            cost = float(self.course.priced(order[None], shorter[None])[0][0])
            if cost <= self.best * (1 + TIE):
                durations, self.best = shorter, cost
        lower = min(self.closed, float(self.bound.min(initial=np.inf)), self.best)
        if not np.isfinite(self.best):
            return Found((), (), np.inf, np.inf, lower, self.boxes)
        rest = float(self.course.priced(order[None], durations[None])[1][0])
        used = order >= 0
        return Found(tuple(order[used].tolist()), tuple(durations[used].tolist()), rest, self.best, lower, self.boxes)


def _horizon(course: Course, orders: Indices) -> FloatArray:
    """Time after which a stage changes nothing any more: every mode has settled to the last digit."""
    rate = np.hypot(2 * course.cross, course.imbalance * course.power)
    scale = np.maximum(np.abs(course.optimum), 1e-300) / np.maximum(np.abs(course.start), 1e-300)
    settle = np.where(rate > 0, (40 + np.abs(np.log(scale))) / np.where(rate > 0, rate, 1.0), 0.0).max(axis=1)
    direct = float(course.rest(course.start[None])[0]) * course.cost[-1]
    if np.isfinite(direct) and not _has_rules(course):
        settle = np.minimum(settle, direct / course.cost)
    return np.where(orders >= 0, settle[orders], 0.0)


def _has_rules(course: Course) -> bool:
    limits = (course.least > -np.inf, course.most < 1, np.isfinite(course.most_loss))
    return bool(any(limit.any() for limit in limits))


def _floors(course: Course, orders: Indices) -> FloatArray:
    """What each order costs at least: its dearest mode alone, allowed to switch among the order's tasks at will."""
    if course.by_loss:
        weight = (course.power[-1] * course.optimum[-1] ** 2).sum()
        room = course.tolerance * np.sqrt(weight / np.where(course.power[-1] > 0, course.power[-1], np.inf))
    else:
        room = course.tolerance * np.abs(course.optimum[-1])
    known: dict[frozenset[int], float] = {}
    for order in orders:
        key = frozenset(k for k in order.tolist() if k >= 0)
        if key not in known:
            modes = range(len(course.start))
            known[key] = max(_alone(course, sorted(key), m, float(room[m]), orders.shape[1] + 1) for m in modes)
    return np.array([known[frozenset(k for k in order.tolist() if k >= 0)] for order in orders])


def _alone(course: Course, tasks: list[int], mode: int, room: float, stages: int) -> float:
    """Least cost of one mode alone."""
    pool = [k for k in tasks if k != course.target] + [course.target]
    best = float(course.optimum[-1, mode])
    if course.power[-1, mode] <= 0:
        return 0.0
    path = cheapest_path(
        course.cross[pool, mode],
        course.power[pool, mode],
        start=float(course.start[mode]),
        end=(best - room, best + room),
        learning_rate=1.0,
        imbalance=float(course.imbalance[mode]),
        costs=course.cost[pool],
        switch_cost=course.switch_cost,
        max_stages=stages,
        last=len(pool) - 1,
    )
    return path.total if path.status is Status.ok else np.inf


def settled(course: Course, order: tuple[int, ...], durations: tuple[float, ...]) -> FloatArray:
    """Strengths after each stage before the target, (stages, modes)."""
    at, found = course.start, []
    for task, time in zip(order, durations, strict=True):
        at = mode_equation.strength(time, at, course.imbalance, course.cross[task], course.power[task])
        found.append(at)
    return np.array(found).reshape(len(found), len(course.start))
