"""The enclosure: the least that any schedule can cost whose durations lie within a box.

A mode's flow keeps the order of strengths and moves each one way, so the strengths after a stage lie between those at
the corners of a box. The cost until one mode is learned changes with the duration of stage s at the rate

    cost_s - cost_target v_s(u_s) / v_target(u_d) prod_{r>s} v_r(u_r) / v_r(u_{r-1}),   v_r(u) = beta_r - u B_r,

whatever the imbalance; where its sign is known over the box the least cost is at a known corner. The whole costs at
least as much as its dearest mode; where the loss is asked for, the rates of the modes are averaged.
"""

from __future__ import annotations

import numpy as np

from learncast.planning.schedules.course import Course, Flags, Indices
from learncast.validation import FloatArray

Interval = tuple[FloatArray, FloatArray]


def lower_bounds(course: Course, orders: Indices, low: FloatArray, high: FloatArray) -> FloatArray:
    """Least cost of each row's order over its box of durations; infinite where no schedule in it meets the rules."""
    ranges = _ranges(course, orders, low, high)
    lowest, highest = ranges[-1]
    nearest = np.clip(course.optimum[-1], lowest, highest)
    rest = course.rest(nearest)
    spent = course.fixed(orders) + (low * course.cost[orders] * (orders >= 0)).sum(axis=1)
    bound = spent + rest * course.cost[-1]
    if orders.shape[1]:
        rates = _rates(course, orders, low, high, ranges, rest)
        bound = np.maximum(bound, _sloped(course, orders, low, high, rates).max(axis=1))
    return np.where(_impossible(course, orders, ranges, rest), np.inf, bound)


def _ranges(course: Course, orders: Indices, low: FloatArray, high: FloatArray) -> list[Interval]:
    """Strengths at the start and after each stage."""
    start = np.broadcast_to(course.start, (len(orders), len(course.start)))
    found = [(start, start)]
    for stage in range(orders.shape[1]):
        below, above = found[-1]
        tasks, ends = orders[:, stage], (low[:, stage], high[:, stage])
        lowest = np.minimum(*(course.moved(tasks, end, below) for end in ends))
        highest = np.maximum(*(course.moved(tasks, end, above) for end in ends))
        found.append((lowest, highest))
    return found


def _impossible(course: Course, orders: Indices, ranges: list[Interval], rest: FloatArray) -> Flags:
    """Whether no schedule in the box can meet the rules."""
    broken = np.zeros(len(orders), dtype=bool)
    for stage in range(orders.shape[1]):
        tasks, (below, above) = orders[:, stage], ranges[stage + 1]
        best = np.clip(course.optimum[tasks], below, above)
        most = course.accuracy(tasks, best).min(axis=1)
        ends = [course.accuracy(tasks, end) for end in (below, above)]
        least = np.minimum(*ends).min(axis=1)
        slack = 1e-12
        broken |= (tasks >= 0) & ((most < course.least[tasks] - slack) | (least > course.most[tasks] + slack))
    if np.isfinite(course.most_loss).any():
        below, above = _ends(course, ranges[-1], rest, course.latest(*ranges[-1]))
        closest = np.clip(course.optimum, below[:, None, :], above[:, None, :])
        least_loss = (course.power * (closest - course.optimum) ** 2).sum(axis=-1) / 2
        broken |= (least_loss > course.most_loss).any(axis=1)
    return broken


def _ends(course: Course, last: Interval, soonest: FloatArray, latest: FloatArray) -> Interval:
    """Strengths when the target is learned."""
    times = (np.where(np.isfinite(soonest), soonest, 0.0), latest)
    below = np.minimum(*(course.last.strength(time, last[0]) for time in times))
    above = np.maximum(*(course.last.strength(time, last[1]) for time in times))
    return below, above


def _sloped(course: Course, orders: Indices, low: FloatArray, high: FloatArray, rates: list[Interval]) -> FloatArray:
    """Least total from a corner of the box and the slopes over it, -inf where unknown.

    By mode, (rows, modes), where rates are; of the whole, (rows, 1), where rates are of the loss.
    """
    rows = len(orders)
    at = np.broadcast_to(course.start, (rows, len(course.start)))
    total = np.repeat(course.fixed(orders)[:, None], rates[0][0].shape[1], axis=1)
    with np.errstate(invalid="ignore"):
        for stage, (least, most) in enumerate(rates):
            rising = least + most > 0
            near, far = low[:, stage, None], high[:, stage, None]
            corner = np.where(rising, near, far)
            slack = np.where(rising, np.minimum(least, 0.0), -np.maximum(most, 0.0))
            at = course.moved(orders[:, stage], np.broadcast_to(corner, at.shape), at)
            width = far - near
            total = total + course.cost[orders[:, stage], None] * corner + np.where(width > 0, slack * width, 0.0)
        rest = course.rest(at)[:, None] if course.by_loss else course.mode_rest(at)
        total = total + rest * course.cost[-1]
    return np.where(np.isnan(total), -np.inf, total)


def _rates(
    course: Course, orders: Indices, low: FloatArray, high: FloatArray, ranges: list[Interval], rest: FloatArray
) -> list[Interval]:
    """Bounds on the change of the total with the duration of each stage: (rows, modes), or (rows, 1) of the loss."""
    ratio, known = _saved_by_loss(course, ranges[-1], rest) if course.by_loss else _saved_by_mode(course, ranges[-1])
    rates: list[Interval] = []
    for stage in range(orders.shape[1] - 1, -1, -1):
        tasks = orders[:, stage]
        after, before = (_pull(course, tasks, ranges[k]) for k in (stage + 1, stage))
        gain = _product(after, ratio)
        if course.by_loss:
            gain = (gain[0].sum(axis=1, keepdims=True), gain[1].sum(axis=1, keepdims=True))
        price, used = course.cost[tasks, None], (tasks >= 0)[:, None]
        least = np.where(known, price - course.cost[-1] * gain[1], -np.inf)
        most = np.where(known, price - course.cost[-1] * gain[0], np.inf)
        rates.insert(0, (np.where(used, least, price), np.where(used, most, price)))
        shrink = _contraction(course, tasks, ranges[stage], ranges[stage + 1], low[:, stage], high[:, stage])
        carried = _product(_met(_quotient(after, before), shrink), ratio)
        ratio = (np.where(used, carried[0], ratio[0]), np.where(used, carried[1], ratio[1]))
    return rates


def _saved_by_mode(course: Course, last: Interval) -> tuple[Interval, Flags]:
    """1 / v_target, and where every schedule of the box leaves the mode on one side of its band."""
    below, above = last
    best = course.optimum[-1]
    band = course.tolerance * np.abs(best)
    ones = np.ones_like(below)
    return _quotient((ones, ones), _pull(course, None, last)), (above < best - band) | (below > best + band)


def _saved_by_loss(course: Course, last: Interval, soonest: FloatArray) -> tuple[Interval, Flags]:
    """The same for the loss: dT = -sum over modes of p_m du_m / (S v)(u_m), p_m = S v^2 / sum S v^2 at the end.

    With r = v(end) / v(u) this is S(end) v(end) r / sum S v^2 for each mode, where nothing diverges at an optimum.
    """
    latest = course.latest(*last)
    ends = _ends(course, last, soonest, latest)
    pull, speed = _pull(course, None, ends), _speed(course, ends)
    squares = _product(speed, _square(pull))
    total = tuple(side.sum(axis=1, keepdims=True) for side in squares)
    tasks = np.full(len(soonest), course.target)
    shrink = _contraction(course, tasks, last, ends, soonest, latest)
    saved = _quotient(_product(_product(speed, pull), shrink), (total[0], total[1]))
    return saved, ((soonest > 0) & np.isfinite(latest))[:, None]


def _pull(course: Course, tasks: Indices | None, at: Interval) -> Interval:
    """Bounds of v = beta - u B over strengths."""
    beta, B = (course.cross[-1], course.power[-1]) if tasks is None else (course.cross[tasks], course.power[tasks])
    return beta - at[1] * B, beta - at[0] * B


def _speed(course: Course, at: Interval) -> Interval:
    """Bounds of S = sqrt(lambda^2 + 4 u^2) over strengths."""
    low, high = at
    least = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    most = np.maximum(np.abs(low), np.abs(high))
    return np.hypot(course.imbalance, 2 * least), np.hypot(course.imbalance, 2 * most)


def _contraction(
    course: Course, tasks: Indices, before: Interval, after: Interval, low: FloatArray, high: FloatArray
) -> Interval:
    """Bounds of v(after) / v(before) = exp(-B int S dt), which also holds at the optimum, where both are 0."""
    slowest, fastest = _speed(course, (np.minimum(before[0], after[0]), np.maximum(before[1], after[1])))
    B = course.power[tasks]
    with np.errstate(invalid="ignore"):  # forever at no speed
        ends = np.exp(-B * fastest * high[:, None]), np.exp(-B * slowest * low[:, None])
    return np.where(np.isnan(ends[0]), 0.0, ends[0]), np.where(np.isnan(ends[1]), 1.0, ends[1])


def _met(one: Interval, two: Interval) -> Interval:
    """What two bounds of one number leave."""
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
    """Bounds of a quotient; unknown where the divisor may be 0."""
    low, high = two
    safe = (low > 0) | (high < 0)
    with np.errstate(divide="ignore"):
        inverse = (np.where(safe, 1 / high, -np.inf), np.where(safe, 1 / low, np.inf))
    return _product(one, inverse)
