"""Slow, obvious forecasts of curricula that share no code with the package."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import minimize, minimize_scalar

Array = np.ndarray


class Pool(NamedTuple):
    """Strengths of the candidates and, last, of the target: (tasks, modes)."""

    cross: Array
    power: Array


class Rules(NamedTuple):
    """Costs and limits of a schedule; one entry per candidate, `cost` one per candidate and the target."""

    cost: Array
    switch: float = 0.0
    least: Array | None = None
    most: Array | None = None
    most_loss: Array | None = None


# ---- one mode, closed form: du/dt = 2 u (beta - u B), t = learning rate x steps ----


def strength_after(u: Any, cross: Any, power: Any, time: Any) -> Array:
    u, cross, power, time = np.broadcast_arrays(*(np.asarray(v, float) for v in (u, cross, power, time)))
    zero = cross == 0
    safe = np.where(zero, 1.0, cross)
    decay = np.exp(-2 * cross * time)
    grown = np.where(zero, 2 * time, -np.expm1(-2 * cross * time) / safe)
    return u / (decay + u * power * grown)


def travel_time(start: Any, stop: Any, cross: float, power: float) -> Array:
    """Time from one positive strength to another on one task; infinite if the flow never gets there."""
    start, stop = np.broadcast_arrays(np.asarray(start, float), np.asarray(stop, float))
    with np.errstate(divide="ignore", invalid="ignore"):
        if cross == 0:
            time = (1 / stop - 1 / start) / (2 * power)
        else:
            time = np.log(stop * (cross - start * power) / (start * (cross - stop * power))) / (2 * cross)
    ahead = (stop - start) * (cross - start * power) > 0
    short = (cross - stop * power) * (cross - start * power) > 0
    return np.where(stop == start, 0.0, np.where(ahead & short & (stop > 0), time, np.inf))


def time_to_band(start: Any, cross: Any, power: Any, tolerance: float) -> Array:
    """First time within the tolerance band of the optimum, from below or above."""
    start, cross, power = np.broadcast_arrays(*(np.asarray(v, float) for v in (start, cross, power)))
    optimum = cross / power
    edge = np.where(start < optimum, (1 - tolerance) * optimum, (1 + tolerance) * optimum)
    with np.errstate(divide="ignore", invalid="ignore"):
        time = np.log(edge * (optimum - start) / (start * (optimum - edge))) / (2 * cross)
    # With slack for rounding, so that a stop on the edge counts as inside.
    inside = np.abs(start - optimum) <= tolerance * optimum * (1 + 1e-13)
    return np.where(inside, 0.0, np.where((start > 0) & (cross > 0), time, np.inf))


def band_edge(start: Any, cross: float, power: float, tolerance: float) -> Array:
    return np.clip(np.asarray(start, float), (1 - tolerance) * cross / power, (1 + tolerance) * cross / power)


def accuracy_of(u: Any, cross: Any, power: Any) -> Array:
    return 1 - np.abs(u * power / cross - 1)


def special_strengths(pool: Pool, start: float, tolerance: float, rules: Rules) -> Array:
    """Likely switching points: equal speeds, edges of bands, limits of stops, and limits of excess losses."""
    cross, power = pool.cross[:, 0], pool.power[:, 0]
    optimum, cost = cross / power, rules.cost
    points = [start, (1 - tolerance) * optimum[-1], (1 + tolerance) * optimum[-1]]
    for i, j in itertools.combinations(range(len(cross)), 2):
        slope = power[i] / cost[i] - power[j] / cost[j]
        if slope:
            points.append((cross[i] / cost[i] - cross[j] / cost[j]) / slope)
    for limits in (rules.least, rules.most):
        if limits is not None:
            points.extend(np.concatenate([limits * optimum[:-1], (2 - limits) * optimum[:-1]]))
    if rules.most_loss is not None:
        reach = np.sqrt(2 * rules.most_loss / power[:-1])
        points.extend(np.concatenate([optimum[:-1] - reach, optimum[:-1] + reach]))
    found = np.array(points)
    return found[np.isfinite(found) & (found > 0)]


def brute_force_one_mode(
    pool: Pool, start: float, tolerance: float, max_stages: int, rules: Rules, points: int = 300
) -> float:
    """Least cost (learning rate 1) over all orders, every stop on a fine grid of strengths: dynamic programming."""
    cross, power = pool.cross[:, 0], pool.power[:, 0]
    special = special_strengths(pool, start, tolerance, rules)
    low, high = min(special.min(), start), max(special.max(), (cross / power).max()) * 1.1
    grid = np.unique(np.concatenate([np.geomspace(low, high, points), special]))
    here = int(np.searchsorted(grid, start))
    last = len(cross) - 1
    finish = rules.cost[last] * time_to_band(grid, cross[last], power[last], tolerance)
    finish[~_remembers(band_edge(grid, cross[last], power[last], tolerance), cross, power, rules)] = np.inf
    moves = [_moves(grid, k, cross[k], power[k], rules, last) for k in range(last + 1)]
    best = float(finish[here])
    tails = [np.min(move + finish[None, :], axis=1) + rules.switch * (k != last) for k, move in enumerate(moves)]
    if max_stages >= 2:
        best = min(best, *(float(tail[here]) for tail in tails))
    if max_stages >= 3:
        for j, k in itertools.product(range(last + 1), repeat=2):
            best = min(best, float(np.min(moves[j][here] + rules.switch * (j != k) + tails[k])))
    return best


def _moves(grid: Array, k: int, cross: float, power: float, rules: Rules, last: int) -> Array:
    cost = rules.cost[k] * travel_time(grid[:, None], grid[None, :], cross, power)
    if k != last:
        reached = accuracy_of(grid, cross, power)
        # Limits are grid points, up to rounding.
        if rules.least is not None:
            cost[:, reached < rules.least[k] - 1e-12] = np.inf
        if rules.most is not None:
            cost[:, reached > rules.most[k] + 1e-12] = np.inf
    return cost


def _remembers(end: Array, cross: Array, power: Array, rules: Rules) -> Array:
    if rules.most_loss is None:
        return np.ones(end.shape, bool)
    excess = 0.5 * power[:-1] * (end[:, None] - cross[:-1] / power[:-1]) ** 2
    return np.all(excess <= rules.most_loss * (1 + 1e-12), axis=1)


# ---- several modes, one schedule ----


def excess_loss(u: Array, cross: Array, power: Array) -> Array:
    return np.sum(0.5 * power * (u - cross / power) ** 2, axis=-1)


def time_to_goal(u: Array, cross: Array, power: Array, tolerance: float, goal: str) -> Array:
    """Time on the target until every mode, or the loss, is accurate; `u` is (..., modes)."""
    if goal == "modes":
        return np.max(time_to_band(u, cross, power, tolerance), axis=-1)
    level = tolerance**2 * np.sum(cross**2 / (2 * power))
    done = excess_loss(u, cross, power) <= level * (1 + 1e-13)
    low, high = np.zeros(u.shape[:-1]), np.max(time_to_band(u, cross, power, tolerance), axis=-1)
    for _ in range(60):  # the loss falls along the flow, so bisection finds the only crossing, to round-off
        middle = (low + high) / 2
        learned = excess_loss(strength_after(u, cross, power, middle[..., None]), cross, power) <= level
        low, high = np.where(learned, low, middle), np.where(learned, middle, high)
    return np.where(done, 0.0, high)


def brute_force_modes(
    pool: Pool, start: Array, tolerance: float, max_stages: int, goal: str, rules: Rules, horizon: float, points: int
) -> float:
    """Least cost (learning rate 1) over all orders: durations on a grid up to `horizon`, then downhill from there."""
    last = len(pool.cross) - 1
    best = float(rules.cost[last] * time_to_goal(start, pool.cross[last], pool.power[last], tolerance, goal))

    def total(order: Sequence[int], durations: Sequence[Any]) -> Array:
        u, cost = start, np.zeros(())
        for k, duration in zip(order, durations, strict=True):
            u = strength_after(u, pool.cross[k], pool.power[k], np.asarray(duration)[..., None])
            cost = cost + rules.cost[k] * np.asarray(duration)
        changes = sum(a != b for a, b in itertools.pairwise([*order, last]))
        rest = time_to_goal(u, pool.cross[last], pool.power[last], tolerance, goal)
        return cost + rules.cost[last] * rest + rules.switch * changes

    for k in range(last):
        grid = np.linspace(0, horizon / rules.cost[k], points**2)
        values = total([k], [grid])
        for at in np.argsort(values)[:2]:
            around = (grid[max(at - 1, 0)], grid[min(at + 1, grid.size - 1)])
            polished = minimize_scalar(
                lambda d, k=k: float(total([k], [np.float64(d)])), bounds=around, method="bounded", options={"xatol": 0}
            )
            best = min(best, float(values[at]), float(polished.fun))
    if max_stages >= 3:
        for j, k in itertools.product(range(last + 1), repeat=2):
            if j != k and k != last:
                best = min(best, _two_stops(total, (j, k), horizon, rules, points))
    return best


def _two_stops(total: Any, order: tuple[int, int], horizon: float, rules: Rules, points: int) -> float:
    first = np.linspace(0, horizon / rules.cost[order[0]], points)
    second = np.linspace(0, horizon / rules.cost[order[1]], points)
    values = total(order, np.meshgrid(first, second, indexing="ij"))
    row, column = np.unravel_index(int(np.argmin(values)), values.shape)
    polished = minimize(
        lambda d: float(total(order, np.abs(d))),
        [first[row], second[column]],
        method="Nelder-Mead",
        options={"xatol": 1e-12, "fatol": 1e-12, "maxiter": 400},
    )
    return min(float(values[row, column]), float(polished.fun))


# ---- whole steps of plain gradient descent: a <- a + eta c (beta - a c B), c <- c + eta a (beta - a c B) ----


def descent_rest(weights: Array, cross: Array, power: Array, tolerance: float, goal: str, rate: float) -> Array:
    """Steps on a task until it is learned, from weights (starts, 2, modes), all starts side by side."""
    steps, taken, left = np.zeros(len(weights)), 0, np.arange(len(weights))
    optimum, level = cross / power, tolerance**2 * np.sum(cross**2 / (2 * power))
    while len(left):
        u = weights[:, 0] * weights[:, 1]
        if goal == "modes":
            learned = (np.abs(u - optimum) <= tolerance * optimum * (1 + 1e-12)).all(axis=-1)
        else:
            learned = excess_loss(u, cross, power) <= level * (1 + 1e-12)
        if learned.any():
            steps[left[learned]] = taken
            weights, left = weights[~learned], left[~learned]
        weights, taken = descent_step(weights, cross, power, rate), taken + 1
    return steps


def descent_step(weights: Array, cross: Array, power: Array, rate: float) -> Array:
    """One step of descent of weights (..., 2, modes)."""
    pull = rate * (cross - weights[..., 0, :] * weights[..., 1, :] * power)
    return weights + weights[..., ::-1, :] * pull[..., None, :]


def descent_path(weights: Array, cross: Array, power: Array, rate: float, steps: int) -> Array:
    """Weights (2, modes) after 0, 1, ..., steps of descent."""
    path = [weights]
    for _ in range(steps):
        path.append(descent_step(path[-1], cross, power, rate))
    return np.array(path)


# ---- any linear network: h_t = W_h h_{t-1} + W_x x_t, y = W_y h_T ----


class Statistics(NamedTuple):
    """E[x_t x_s^T] as (steps, inputs, steps, inputs), E[x_t y^T] as (steps, inputs, outputs), E[y y^T]."""

    inputs: Array
    cross: Array
    target: Array


class Weights(NamedTuple):
    first: Array
    recurrent: Array
    second: Array


def autoregressive(steps: int, timescale: float, correlation: float, mixing: Array) -> Statistics:
    """Leaky integration of AR(1) channels of unit noise, started at 0, mixed into the outputs."""
    impulse = np.array([[correlation ** (t - s) if t >= s else 0.0 for s in range(steps)] for t in range(steps)])
    variance = impulse @ impulse.T
    window = np.exp(-np.arange(steps)[::-1] / timescale)
    channels = mixing.shape[1]
    inputs = np.einsum("ts,ij->tisj", variance, np.eye(channels))
    cross = np.einsum("t,oi->tio", variance @ window, mixing)
    return Statistics(inputs, cross, (window @ variance @ window) * mixing @ mixing.T)


def powers(matrix: Array, count: int) -> Array:
    found = [np.eye(len(matrix))]
    for _ in range(count - 1):
        found.append(found[-1] @ matrix)
    return np.array(found)


def response(weights: Weights, steps: int) -> Array:
    """Map from x_t to y, (steps, outputs, inputs)."""
    return weights.second @ powers(weights.recurrent, steps)[::-1] @ weights.first


def slope(task: Statistics, weights: Weights) -> Weights:
    """Gradient of half the mean squared error, by the chain rule through time."""
    steps, inputs, outputs = task.cross.shape
    maps = response(weights, steps)
    flat = maps.transpose(1, 0, 2).reshape(outputs, -1) @ task.inputs.reshape(steps * inputs, -1)
    error = flat.reshape(outputs, steps, inputs).transpose(1, 0, 2) - task.cross.transpose(0, 2, 1)
    history = powers(weights.recurrent, steps)
    forward = history @ weights.first  # hidden response to an input, by its age
    backward = (weights.second @ history).transpose(0, 2, 1)  # output response to a hidden unit, by its age
    by_age = error[::-1]
    first = np.sum(backward @ by_age, axis=0)
    second = np.sum(by_age @ forward.transpose(0, 2, 1), axis=0)
    recurrent = np.zeros_like(weights.recurrent)
    for n in range(steps - 1):
        # W_h is used n times after this place, and the remaining times before it.
        recurrent += backward[n] @ np.sum(by_age[n + 1 :] @ forward[: steps - 1 - n].transpose(0, 2, 1), axis=0)
    return Weights(first, recurrent, second)


def loss(task: Statistics, weights: Weights) -> float:
    steps, inputs, outputs = task.cross.shape
    flat = response(weights, steps).transpose(1, 0, 2).reshape(outputs, -1)
    fit = np.sum((flat @ task.inputs.reshape(steps * inputs, -1)) * flat)
    return float(0.5 * (fit - 2 * np.sum(flat.T * task.cross.reshape(-1, outputs)) + np.trace(task.target)))


def flow(
    task: Statistics,
    weights: Weights,
    duration: float,
    learn: Sequence[str] = ("input", "output"),
    *,
    level: float | None = None,
    times: Array | None = None,
    rtol: float = 1e-11,
) -> tuple[float, list[Weights]]:
    """Integrate the gradient flow; with `level`, until the loss has fallen to it. Returns the time and the weights."""
    shapes = [w.shape for w in weights]
    cuts = np.cumsum([w.size for w in weights])[:-1]
    mask = [name in learn for name in ("input", "recurrent", "output")]

    def unpack(flat: Array) -> Weights:
        return Weights(*(part.reshape(shape) for part, shape in zip(np.split(flat, cuts), shapes, strict=True)))

    def velocity(_: float, flat: Array) -> Array:
        parts = slope(task, unpack(flat))
        return -np.concatenate([part.ravel() * on for part, on in zip(parts, mask, strict=True)])

    flat = np.concatenate([w.ravel() for w in weights])
    events = None
    if level is not None:
        if loss(task, weights) <= level:
            return 0.0, [weights]
        events = lambda _, y: loss(task, unpack(y)) - level  # noqa: E731
        events.terminal = True  # type: ignore[attr-defined]
    found = solve_ivp(
        velocity, (0, duration), flat, method="DOP853", rtol=rtol, atol=1e-12, events=events, t_eval=times
    )
    if level is not None and not found.t_events[0].size:
        return float("inf"), [unpack(found.y[:, -1])]
    return float(found.t[-1]), [unpack(column) for column in found.y.T]


def pooled(task: Statistics, recurrence: float) -> Statistics:
    """The static task on z = sum_t b^(T-t) x_t, the only input of a network with scalar recurrence."""
    weight = recurrence ** np.arange(task.cross.shape[0])[::-1]
    inputs = np.einsum("t,s,tisj->ij", weight, weight, task.inputs)
    cross = np.einsum("t,tio->io", weight, task.cross)
    return Statistics(inputs[None, :, None, :], cross[None], task.target)


def least_loss(task: Statistics) -> float:
    """Loss of the best linear map of the trial."""
    steps, inputs, outputs = task.cross.shape
    power = task.inputs.reshape(steps * inputs, -1)
    cross = task.cross.reshape(steps * inputs, outputs)
    return float(0.5 * (np.trace(task.target) - np.sum(cross * np.linalg.solve(power, cross))))
