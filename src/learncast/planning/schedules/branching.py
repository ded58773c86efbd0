"""Branch and bound over orders of stages and boxes of durations: the cheapest schedule and a lower bound."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np

from learncast._core.progress import Progress, silent, time_is_up
from learncast._core.validation import FloatArray
from learncast.planning.schedules.path import ModePath
from learncast.planning.schedules.problem import TIE, Flags, Indices, ScheduleProblem
from learncast.planning.search import Route
from learncast.theory.dynamics import mode_equation
from learncast.theory.dynamics.mode_equation import band_scale

#: Boxes bounded together: enough to fill arrays, few enough that the best are opened first.
_BATCH = 512

#: Orders whose best samples are refined before boxes are opened.
_SEEDS = 24

#: Refinement rounds of the final schedule.
_FINEST = 36

#: Refinements while boxes are opened.
_REFINEMENTS = 12


def orders_of(tasks: int, stages: int, *, shorter: bool) -> Indices:
    """All orders of up to `stages` stages before the target (the last task), padded with -1 in front.

    Without switch costs or limits, a shorter order is a longer one with a duration of 0.
    """
    lengths = range(stages + 1) if shorter else (stages,)
    rows = []
    for length in lengths:
        for order in itertools.product(range(tasks), repeat=length):
            path = (*order, tasks - 1)
            if all(a != b for a, b in itertools.pairwise(path)):
                rows.append([-1] * (stages - length) + list(order))
    return np.array(rows, dtype=np.intp).reshape(len(rows), stages)


def lattice_of(axis: FloatArray, stages: int) -> FloatArray:
    """All combinations of the axis values over the stages, (points, stages)."""
    return np.array(list(itertools.product(axis.tolist(), repeat=stages))).reshape(len(axis) ** stages, stages)


def branch_and_bound(
    problem: ScheduleProblem, stages: int, *, gap: float, max_boxes: int, progress: Progress = silent
) -> tuple[Route, float]:
    """Search all orders of up to `stages` stages before the target; return the cheapest route and a lower bound.

    The search ends at a relative gap, or after `max_boxes` boxes of durations.
    """
    ruled = problem.switch_cost > 0 or np.isfinite(problem.least).any() or (problem.most < 1).any()
    orders = orders_of(len(problem.cost), stages, shorter=bool(ruled) or len(problem.cost) == 1)
    search = _Search(problem, orders, gap, max_boxes)
    search.seed()
    search.run(progress)
    search.refine(*search.at, rounds=_FINEST)
    return search.result()


class _Search:
    """State of one search: open boxes, the best schedule, and the bound of closed boxes."""

    def __init__(self, problem: ScheduleProblem, orders: Indices, gap: float, max_boxes: int) -> None:
        self.problem, self.orders, self.gap, self.max_boxes = problem, orders, gap, max_boxes
        self.best, self.at = np.inf, (0, np.zeros(orders.shape[1]))
        self.closed = np.inf
        self.boxes = self.refined = 0
        self.row: Indices = np.zeros(0, dtype=np.intp)
        self.low: FloatArray = np.zeros((0, orders.shape[1]))
        self.high: FloatArray = self.low
        self.bound: FloatArray = np.zeros(0)

    def seed(self) -> None:
        """Sample every order, refine the best samples, and open one box for each order."""
        horizon = _horizon(self.problem, self.orders)
        stages = self.orders.shape[1]
        share = np.concatenate([[0.0], np.geomspace(0.003, 1.0, {0: 1, 1: 64, 2: 14}.get(stages, 5))])
        grid = lattice_of(share, stages)
        totals = []
        # Direct training comes first and so wins ties.
        nothing = np.zeros((1, stages))
        self.offer(np.zeros(1, dtype=np.intp), nothing, self.problem.priced(self.orders[:1], nothing)[0])
        for k, order in enumerate(self.orders):
            points = grid * horizon[k]
            cost = self.problem.priced(np.tile(order, (len(points), 1)), points)[0]
            self.offer(np.full(len(points), k), points, cost)
            totals.append((float(cost.min()), k, points[int(np.argmin(cost))]))
        for least, k, point in sorted(totals, key=lambda t: t[0])[:_SEEDS]:
            if np.isfinite(least):
                self.refine(k, point)
        if np.isfinite(self.best):  # stages that cost more than the best schedule cannot help
            horizon = np.minimum(horizon, self.best / self.problem.cost[self.orders] * (self.orders >= 0))
        self.open(np.arange(len(self.orders)), np.zeros_like(horizon), horizon, _floors(self.problem, self.orders))

    def offer(self, rows: Indices, points: FloatArray, costs: FloatArray) -> bool:
        """Keep the cheapest schedule."""
        k = int(np.argmin(costs)) if len(costs) else 0
        if len(costs) and costs[k] < self.best * (1 - TIE):  # the first, which is the shortest, wins ties
            self.best, self.at = float(costs[k]), (int(rows[k]), points[k].copy())
            return True
        return False

    def refine(self, row: int, point: FloatArray, rounds: int = 12) -> None:
        """Refine a sample on a lattice around the best point, finer every round unless the best lies on its rim.

        A lattice can follow the creases where two modes are equally late; a simplex gets stuck there.
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
            costs = self.problem.priced(np.tile(order, (len(points), 1)), points)[0]
            k = int(np.argmin(costs))
            # Durations stop at 0, so the distance moved counts, not the position on the lattice.
            far = (np.abs(points[k] - point)[live] > 0.99 * radius).any()
            if costs[k] < np.inf:
                self.offer(np.full(len(points), row), points, costs)
                point = points[k]
            if not far:
                radius = radius * 0.35

    def open(self, row: Indices, low: FloatArray, high: FloatArray, parent: FloatArray) -> None:
        """Bound boxes, sample their centres, and keep those that may contain a cheaper schedule."""
        orders = self.orders[row]
        bound = np.maximum(lower_bounds(self.problem, orders, low, high), parent)
        centre = (low + high) / 2
        before = self.best
        better = self.offer(row, centre, self.problem.priced(orders, centre)[0]) and self.best < before * (1 - self.gap)
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
        """Halve the most promising boxes until none is left that may contain a cheaper schedule."""
        while len(self.row) and self.orders.shape[1] and self.boxes < self.max_boxes and not time_is_up():
            some = np.argsort(self.bound, kind="stable")[:_BATCH]
            row, low, high, bound = self.row[some], self.low[some], self.high[some], self.bound[some]
            rest = np.ones(len(self.row), dtype=bool)
            rest[some] = False
            self.keep(rest)
            width = (high - low) * self.problem.cost[self.orders[row]]
            rows, side = np.arange(len(row)), np.argmax(width, axis=1)
            middle = (low[rows, side] + high[rows, side]) / 2
            upper_low, lower_high = low.copy(), high.copy()
            upper_low[rows, side], lower_high[rows, side] = middle, middle
            solid = (middle > low[rows, side]) & (middle < high[rows, side])
            # A box too thin to halve keeps its bound.
            self.closed = min(self.closed, float(bound[~solid].min(initial=np.inf)))
            row, low, high, bound, upper_low, lower_high = (
                values[solid] for values in (row, low, high, bound, upper_low, lower_high)
            )
            halves = (row, row), (low, upper_low), (lower_high, high), (bound, bound)
            self.open(*map(np.concatenate, halves))
            progress(min(1.0, self.boxes / self.max_boxes))

    def result(self) -> tuple[Route, float]:
        row, durations = self.at
        order = self.orders[row]
        if np.isfinite(self.best):
            # Leave out stages that are too short to matter.
            shorter = np.where(durations * self.problem.cost[order] < 1e-8 * self.best, 0.0, durations)
            cost = float(self.problem.priced(order[None], shorter[None])[0][0])
            if cost <= self.best * (1 + TIE):
                durations, self.best = shorter, cost
        lower = min(self.closed, float(self.bound.min(initial=np.inf)), self.best)
        if not np.isfinite(self.best):
            return Route((), (), np.inf, np.inf), lower
        rest = float(self.problem.priced(order[None], durations[None])[1][0])
        used = order >= 0
        return Route(tuple(order[used].tolist()), tuple(durations[used].tolist()), rest, self.best), lower


def _horizon(problem: ScheduleProblem, orders: Indices) -> FloatArray:
    """Time after which every mode has converged to the last digit."""
    settle = problem.settling(slice(None), problem.start)
    # Without a rate a mode decays like 1 / (2 B t): it has converged when the remainder is negligible.
    idle = (settle == 0) & (problem.power > 0) & (problem.start != 0)
    left = 1e-3 * problem.tolerance * mode_equation.band_scale(problem.optimum)
    settle = np.where(idle & (left > 0), 1 / np.where(idle & (left > 0), 2 * problem.power * left, 1.0), settle)
    settle = settle.max(axis=1)
    direct = float(problem.rest(problem.start[None])[0]) * problem.cost[-1]
    limits = (problem.least > -np.inf, problem.most < 1, np.isfinite(problem.most_loss))
    if np.isfinite(direct) and not any(limit.any() for limit in limits):
        settle = np.minimum(settle, direct / problem.cost)
    return np.where(orders >= 0, settle[orders], 0.0)


def _floors(problem: ScheduleProblem, orders: Indices) -> FloatArray:
    """Lower bound of each order: its most expensive mode by itself, free to switch among the order's tasks."""
    if problem.by_loss:
        weight = (problem.power[-1] * problem.optimum[-1] ** 2).sum()
        half_width = problem.tolerance * np.sqrt(weight / np.where(problem.power[-1] > 0, problem.power[-1], np.inf))
    else:
        half_width = problem.tolerance * mode_equation.band_scale(problem.optimum[-1])

    @cache
    def floor(tasks: frozenset[int]) -> float:
        pool = [*sorted(tasks - {problem.target}), problem.target]
        modes = np.flatnonzero(problem.power[-1] > 0).tolist()
        paths = (ModePath.of(problem, m, pool, float(half_width[m]), limited=False) for m in modes)
        return max((path.cheapest(orders.shape[1] + 1).total for path in paths), default=0.0)

    return np.array([floor(frozenset(order[order >= 0].tolist())) for order in orders])


Interval = tuple[FloatArray, FloatArray]


def lower_bounds(problem: ScheduleProblem, orders: Indices, low: FloatArray, high: FloatArray) -> FloatArray:
    """Lower bound of each row's order over its box of durations; infinite if no schedule in it meets the limits."""
    ranges = _ranges(problem, orders, low, high)
    lowest, highest = ranges[-1]
    nearest = np.clip(problem.optimum[-1], lowest, highest)
    rest = problem.rest(nearest)
    spent = problem.fixed(orders) + (low * problem.cost[orders] * (orders >= 0)).sum(axis=1)
    bound = spent + rest * problem.cost[-1]
    if orders.shape[1]:
        rates = _rates(problem, orders, low, high, ranges, rest)
        bound = np.maximum(bound, _sloped(problem, orders, low, high, rates).max(axis=1))
    return np.where(_impossible(problem, orders, ranges, rest), np.inf, bound)


def _ranges(problem: ScheduleProblem, orders: Indices, low: FloatArray, high: FloatArray) -> list[Interval]:
    """Strengths at the start and after each stage."""
    start = np.broadcast_to(problem.start, (len(orders), len(problem.start)))
    ranges = [(start, start)]
    for stage in range(orders.shape[1]):
        below, above = ranges[-1]
        tasks, ends = orders[:, stage], (low[:, stage], high[:, stage])
        lowest = np.minimum(*(problem.moved(tasks, end, below) for end in ends))
        highest = np.maximum(*(problem.moved(tasks, end, above) for end in ends))
        ranges.append((lowest, highest))
    return ranges


def _impossible(problem: ScheduleProblem, orders: Indices, ranges: list[Interval], rest: FloatArray) -> Flags:
    """Whether no schedule in the box can meet the limits."""
    broken = np.zeros(len(orders), dtype=bool)
    for stage in range(orders.shape[1]):
        tasks, (below, above) = orders[:, stage], ranges[stage + 1]
        best = np.clip(problem.optimum[tasks], below, above)
        most = problem.accuracy(tasks, best).min(axis=1)
        ends = [problem.accuracy(tasks, end) for end in (below, above)]
        least = np.minimum(*ends).min(axis=1)
        slack = 1e-12
        broken |= (tasks >= 0) & ((most < problem.least[tasks] - slack) | (least > problem.most[tasks] + slack))
    if np.isfinite(problem.most_loss).any():
        below, above = _ends(problem, ranges[-1], rest, problem.latest(*ranges[-1]))
        closest = np.clip(problem.optimum, below[:, None, :], above[:, None, :])
        least_loss = (problem.power * (closest - problem.optimum) ** 2).sum(axis=-1) / 2
        broken |= (least_loss > problem.most_loss).any(axis=1)
    return broken


def _ends(problem: ScheduleProblem, last: Interval, soonest: FloatArray, latest: FloatArray) -> Interval:
    """Strengths when the target is learned."""
    times = (np.where(np.isfinite(soonest), soonest, 0.0), latest)
    below = np.minimum(*(problem.last.strength(time, last[0]) for time in times))
    above = np.maximum(*(problem.last.strength(time, last[1]) for time in times))
    return below, above


def _sloped(
    problem: ScheduleProblem, orders: Indices, low: FloatArray, high: FloatArray, rates: list[Interval]
) -> FloatArray:
    """Lower bound of the total from a corner of the box and the slopes over it; -inf if unknown.

    Shape (rows, modes) if rates are per mode, (rows, 1) if they are of the loss.
    """
    rows = len(orders)
    at = np.broadcast_to(problem.start, (rows, len(problem.start)))
    total = np.repeat(problem.fixed(orders)[:, None], rates[0][0].shape[1], axis=1)
    with np.errstate(invalid="ignore"):
        for stage, (least, most) in enumerate(rates):
            rising = least + most > 0
            near, far = low[:, stage, None], high[:, stage, None]
            corner = np.where(rising, near, far)
            slack = np.where(rising, np.minimum(least, 0.0), -np.maximum(most, 0.0))
            at = problem.moved(orders[:, stage], np.broadcast_to(corner, at.shape), at)
            width = far - near
            total = total + problem.cost[orders[:, stage], None] * corner + np.where(width > 0, slack * width, 0.0)
        rest = problem.rest(at)[:, None] if problem.by_loss else problem.mode_rest(at)
        total = total + rest * problem.cost[-1]
    return np.where(np.isnan(total), -np.inf, total)


def _rates(
    problem: ScheduleProblem,
    orders: Indices,
    low: FloatArray,
    high: FloatArray,
    ranges: list[Interval],
    rest: FloatArray,
) -> list[Interval]:
    """Bounds on the change of the total with the duration of each stage: (rows, modes), or (rows, 1) of the loss."""
    ratio, known = _saved_by_loss(problem, ranges[-1], rest) if problem.by_loss else _saved_by_mode(problem, ranges[-1])
    rates: list[Interval] = []
    for stage in range(orders.shape[1] - 1, -1, -1):
        tasks = orders[:, stage]
        after, before = (_pull(problem, tasks, ranges[k]) for k in (stage + 1, stage))
        gain = _product(after, ratio)
        if problem.by_loss:
            gain = (gain[0].sum(axis=1, keepdims=True), gain[1].sum(axis=1, keepdims=True))
        price, used = problem.cost[tasks, None], (tasks >= 0)[:, None]
        least = np.where(known, price - problem.cost[-1] * gain[1], -np.inf)
        most = np.where(known, price - problem.cost[-1] * gain[0], np.inf)
        rates.insert(0, (np.where(used, least, price), np.where(used, most, price)))
        shrink = _contraction(problem, tasks, ranges[stage], ranges[stage + 1], low[:, stage], high[:, stage])
        carried = _product(_met(_quotient(after, before), shrink), ratio)
        ratio = (np.where(used, carried[0], ratio[0]), np.where(used, carried[1], ratio[1]))
    return rates


def _saved_by_mode(problem: ScheduleProblem, last: Interval) -> tuple[Interval, Flags]:
    """1 / v_target, and whether every schedule of the box leaves the mode on one side of its band."""
    below, above = last
    best = problem.optimum[-1]
    band = problem.tolerance * band_scale(best)
    ones = np.ones_like(below)
    return _quotient((ones, ones), _pull(problem, None, last)), (above < best - band) | (below > best + band)


def _saved_by_loss(problem: ScheduleProblem, last: Interval, soonest: FloatArray) -> tuple[Interval, Flags]:
    """As `_saved_by_mode`, for the loss: dT = -sum over modes of p_m du_m / (S v)(u_m).

    p_m = S v^2 / sum S v^2 at the end.

    With r = v(end) / v(u) this is S(end) v(end) r / sum S v^2 for each mode, which does not diverge at an optimum.
    """
    latest = problem.latest(*last)
    ends = _ends(problem, last, soonest, latest)
    pull, speed = _pull(problem, None, ends), _speed(problem, ends)
    squares = _product(speed, _square(pull))
    total = tuple(side.sum(axis=1, keepdims=True) for side in squares)
    tasks = np.full(len(soonest), problem.target)
    shrink = _contraction(problem, tasks, last, ends, soonest, latest)
    saved = _quotient(_product(_product(speed, pull), shrink), (total[0], total[1]))
    return saved, ((soonest > 0) & np.isfinite(latest))[:, None]


def _pull(problem: ScheduleProblem, tasks: Indices | None, at: Interval) -> Interval:
    """Bounds of v = beta - u B over strengths."""
    beta, B = (problem.cross[-1], problem.power[-1]) if tasks is None else (problem.cross[tasks], problem.power[tasks])
    return beta - at[1] * B, beta - at[0] * B


def _speed(problem: ScheduleProblem, at: Interval) -> Interval:
    """Bounds of S = sqrt(lambda^2 + 4 u^2) over strengths."""
    low, high = at
    least = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    most = np.maximum(np.abs(low), np.abs(high))
    return np.hypot(problem.imbalance, 2 * least), np.hypot(problem.imbalance, 2 * most)


def _contraction(
    problem: ScheduleProblem, tasks: Indices, before: Interval, after: Interval, low: FloatArray, high: FloatArray
) -> Interval:
    """Bounds of v(after) / v(before) = exp(-B int S dt), which also holds at the optimum, where both are 0."""
    slowest, fastest = _speed(problem, (np.minimum(before[0], after[0]), np.maximum(before[1], after[1])))
    B = problem.power[tasks]
    with np.errstate(invalid="ignore"):  # forever at no speed
        ends = np.exp(-B * fastest * high[:, None]), np.exp(-B * slowest * low[:, None])
    return np.where(np.isnan(ends[0]), 0.0, ends[0]), np.where(np.isnan(ends[1]), 1.0, ends[1])


def _met(one: Interval, two: Interval) -> Interval:
    """Intersection of two intervals of one number."""
    return np.maximum(one[0], two[0]), np.minimum(one[1], two[1])


def _square(of: Interval) -> Interval:
    ends = of[0] ** 2, of[1] ** 2
    return np.where((of[0] <= 0) & (of[1] >= 0), 0.0, np.minimum(*ends)), np.maximum(*ends)


def _product(one: Interval, two: Interval) -> Interval:
    with np.errstate(invalid="ignore"):
        corners = [a * b for a in one for b in two]
    unknown = np.isnan(corners).any(axis=0)
    return np.where(unknown, -np.inf, np.min(corners, axis=0)), np.where(unknown, np.inf, np.max(corners, axis=0))


def _quotient(one: Interval, two: Interval) -> Interval:
    """Bounds of a quotient; unbounded if the divisor may be 0."""
    low, high = two
    safe = (low > 0) | (high < 0)
    with np.errstate(divide="ignore"):
        inverse = (np.where(safe, 1 / high, -np.inf), np.where(safe, 1 / low, np.inf))
    return _product(one, inverse)
