"""The truth: one gradient step after another on raw trials, in plain numpy."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.integrate import solve_ivp

from .problems import Problem, Stop, Trials

Parameters = tuple[np.ndarray, ...]
SLOPES: dict[str, tuple[Callable[..., np.ndarray], Callable[..., np.ndarray]]] = {
    "linear": (lambda a: a, np.ones_like),
    "relu": (lambda a: np.maximum(a, 0.0), lambda h: (h > 0).astype(float)),
    "tanh": (np.tanh, lambda h: 1.0 - h * h),
}


@dataclass(frozen=True)
class Rows:
    """Trials for plain training: inputs (steps, rows, channels), targets of the last readouts, mean over `trials`."""

    inputs: np.ndarray
    targets: np.ndarray
    trials: int

    @classmethod
    def of(cls, task: Trials, scalar: float | None) -> Rows:
        """Arrange raw trials; a linear network with scalar recurrence sees each readout as one pooled input."""
        x, y = task.padded(), task.answers()
        if scalar is None:
            return cls(x.swapaxes(0, 1), y.swapaxes(0, 1), len(x))
        pooled = [x[:, 0]]
        for step in range(1, x.shape[1]):
            pooled.append(scalar * pooled[-1] + x[:, step])
        z = np.stack(pooled[-y.shape[1] :], axis=1).reshape(-1, x.shape[2])
        return cls(z[None], y.reshape(1, -1, y.shape[2]), len(x))

    def rotated(self) -> Rows:
        """Return fewer rows with the same second moments, by an orthogonal map; a linear network learns alike."""
        steps, rows, channels = self.inputs.shape
        flat = np.concatenate([*self.inputs, *self.targets], axis=1)
        if rows <= flat.shape[1]:
            return self
        few = np.linalg.qr(flat, mode="r")
        cut = steps * channels
        inputs = few[:, :cut].reshape(-1, steps, channels).swapaxes(0, 1)
        return Rows(inputs, few[:, cut:].reshape(len(few), len(self.targets), -1).swapaxes(0, 1), self.trials)

    def batch(self, chosen: np.ndarray) -> Rows:
        """Return some of the trials (targets at the end only)."""
        return Rows(self.inputs[:, chosen], self.targets[:, chosen], len(chosen))


def gradient(w: Parameters, rows: Rows, activation: str, learn_recurrence: bool) -> tuple[np.ndarray, Parameters]:
    """Loss and gradient by backpropagation through time; leading axes of the weights are separate networks."""
    first, recurrent, second, *between = w
    if between:
        return deep_gradient([first, *between, second], rows)
    f, slope = SLOPES[activation]
    hidden = [f(rows.inputs[0] @ first.mT)]
    for x in rows.inputs[1:]:
        hidden.append(f(x @ first.mT + hidden[-1] @ recurrent.mT))
    readouts = len(rows.targets)
    errors = [h @ second.mT - y for h, y in zip(hidden[-readouts:], rows.targets, strict=True)]
    loss = sum((e * e).sum(axis=(-2, -1)) for e in errors) / (2 * rows.trials)
    delta, d_first, d_second = np.zeros(()), np.zeros(()), np.zeros(())
    d_recurrent = np.zeros(recurrent.shape)
    for t in reversed(range(len(hidden))):
        late = t - len(hidden) + readouts
        back = delta @ recurrent if delta.ndim else 0.0
        if late >= 0:
            back = back + errors[late] @ second
            d_second = d_second + errors[late].mT @ hidden[t]
        delta = back if activation == "linear" else back * slope(hidden[t])
        d_first = d_first + delta.mT @ rows.inputs[t]
        if learn_recurrence and t:
            d_recurrent = d_recurrent + delta.mT @ hidden[t - 1]
    return loss, (d_first / rows.trials, d_recurrent / rows.trials, d_second / rows.trials)


def deep_gradient(layers: list[np.ndarray], rows: Rows) -> tuple[np.ndarray, Parameters]:
    """Loss and gradient of linear layers on pooled inputs, by backpropagation."""
    states = [rows.inputs[0]]
    for w in layers:
        states.append(states[-1] @ w.mT)
    back = states.pop() - rows.targets[0]
    loss, slopes = (back * back).sum(axis=(-2, -1)) / (2 * rows.trials), []
    for w in reversed(layers):
        slopes.append(back.mT @ states.pop() / rows.trials)
        back = back @ w
    return loss, (slopes[-1], np.zeros(()), slopes[0], *slopes[-2:0:-1])


@dataclass
class Plain:
    """Plain training of the problem's network, task by task."""

    problem: Problem

    def __post_init__(self) -> None:
        w = self.problem.weights
        self.scalar = None if self.problem.learn_recurrence else w.scalar
        recurrent = np.zeros((len(w.first),) * 2) if w.recurrent is None else w.recurrent
        self.start: Parameters = tuple(part.astype(float) for part in (w.first, recurrent, w.second, *w.between))
        self.raw = [Rows.of(task, self.scalar) for task in self.problem.tasks]
        self.rows = [rows.rotated() if w.activation == "linear" else rows for rows in self.raw]

    def gradient(self, w: Parameters, rows: Rows) -> tuple[np.ndarray, Parameters]:
        """Loss and gradient on these rows."""
        return gradient(w, rows, self.problem.weights.activation, self.problem.learn_recurrence)

    def step(self, w: Parameters, slopes: Parameters) -> Parameters:
        """One step of gradient descent."""
        return tuple(a - self.problem.learning_rate * g for a, g in zip(w, slopes, strict=True))

    def loss(self, w: Parameters, task: int) -> np.ndarray:
        """Half the squared error, summed over outputs, averaged over trials."""
        return self.gradient(w, self.rows[task])[0]

    def zero_loss(self, task: int) -> float:
        """Loss of the zero map."""
        return float((self.rows[task].targets ** 2).sum() / (2 * self.rows[task].trials))

    def least_loss(self, task: int) -> float:
        """Least loss of the network: known, by reduced-rank regression, or where training from the start rests."""
        if self.problem.least is not None:
            return self.problem.least
        if self.scalar is None:
            return self.rest_loss(task)
        z, y = self.rows[task].inputs[0], self.rows[task].targets[0]
        size = np.sqrt((z**2).sum(axis=0))
        z = z / np.where(size > 0, size, 1.0)
        fitted = z @ np.linalg.lstsq(z, y, rcond=None)[0]
        lost = np.linalg.svd(fitted, compute_uv=False)[min(map(len, (self.start[0], *self.start[3:]))) :]
        return float((((y - fitted) ** 2).sum() + (lost**2).sum()) / (2 * self.rows[task].trials))

    def rest_loss(self, task: int) -> float:
        """Loss at which gradient flow from the start rests, which may be a local minimum."""
        cuts = np.cumsum([w.size for w in self.start])[:-1]

        def unpacked(flat: np.ndarray) -> Parameters:
            return tuple(part.reshape(w.shape) for part, w in zip(np.split(flat, cuts), self.start, strict=True))

        def velocity(_: float, flat: np.ndarray) -> np.ndarray:
            return -np.concatenate([slope.ravel() for slope in self.gradient(unpacked(flat), self.rows[task])[1]])

        start = np.concatenate([w.ravel() for w in self.start])
        flow = solve_ivp(velocity, (0, 1e8), start, method="LSODA", rtol=1e-8, atol=1e-11)
        return float(self.gradient(unpacked(flow.y[:, -1]), self.rows[task])[0])

    def threshold(self, task: int, stop: Stop) -> float:
        """Loss at which the goal is reached."""
        if stop.rule == "loss":
            return stop.value
        zero = self.zero_loss(task)
        if stop.rule == "r2":
            return (1 - stop.value) * zero if zero else np.inf  # nothing to learn
        least = self.least_loss(task)
        if zero - least <= 1e-12 * zero:  # nothing to learn
            return np.inf
        share = (1 - stop.value) ** 2 if stop.rule == "accuracy" else 1 - stop.value
        return least + share * (zero - least)

    def train(self, w: Parameters, task: int, stop: Stop, limit: int) -> tuple[float, Parameters]:
        """Steps until the stop (infinity beyond the limit, nan if training diverges) and the weights there."""
        rows = self.rows[task]
        threshold = -np.inf if stop.rule == "steps" else self.threshold(task, stop)
        most = int(stop.value) if stop.rule == "steps" else limit
        for count in range(most + 1):
            loss, slopes = self.gradient(w, rows)
            if loss <= threshold or (stop.rule == "steps" and count == most):
                return float(count), w
            if not loss < 1e200:
                return np.nan, w
            w = self.step(w, slopes)
        return np.inf, w

    def seconds_of(self, steps: float) -> float:
        """CPU seconds that this many steps take on the raw trials."""
        begin, w = time.process_time(), self.start
        for _ in range(20):
            w = self.step(w, self.gradient(w, self.raw[-1])[1])
        return (time.process_time() - begin) / 20 * min(steps, self.problem.limit)


def mode_steps(plain: Plain, accuracy: float) -> float:
    """Steps until every mode of the target has been within 1 - accuracy of its optimum."""
    rows = plain.rows[-1]
    z, y = rows.inputs[0], rows.targets[0]
    left, cross, right = np.linalg.svd(y.T @ z / rows.trials, full_matrices=False)
    keep = cross > 1e-9 * cross.max(initial=0.0)
    left, cross, right = left[:, keep], cross[keep], right[keep]
    power = ((z @ right.T) ** 2).sum(axis=0) / rows.trials
    optimum, w, entered = cross / power, plain.start, np.zeros(len(cross), bool)
    for count in range(plain.problem.limit + 1):
        strength = np.einsum("ok,oh,hc,kc->k", left, w[2], w[0], right)
        entered |= np.abs(strength - optimum) <= (1 - accuracy) * optimum
        if entered.all():
            return float(count)
        w = plain.step(w, plain.gradient(w, rows)[1])
    return np.inf


def batch_steps(plain: Plain, runs: int, seed: int) -> np.ndarray:
    """Steps of several runs whose batches are drawn with replacement, or from shuffled epochs."""
    problem, rows = plain.problem, plain.raw[-1]
    assert problem.batch is not None
    threshold, count = plain.threshold(-1, problem.stops[-1]), np.full(runs, np.inf)
    for run in range(runs):
        rng, w, order = np.random.default_rng([seed, run]), plain.start, np.zeros(0, int)
        for step in range(problem.limit + 1):
            if plain.loss(w, -1) <= threshold:
                count[run] = step
                break
            if problem.shuffled:
                if len(order) < min(problem.batch, rows.trials):
                    order = rng.permutation(rows.trials)
                chosen, order = order[: problem.batch], order[problem.batch :]
            else:
                chosen = rng.integers(rows.trials, size=problem.batch)
            w = plain.step(w, plain.gradient(w, rows.batch(chosen))[1])
    return count


def best_two_stages(plain: Plain) -> tuple[float, float]:
    """Cost of direct training, and least cost over every candidate and every stop before the target."""
    problem = plain.problem
    *costs, last = problem.costs or (1.0,) * len(problem.tasks)
    stop, rows = problem.stops[-1], plain.rows[-1]
    direct = plain.train(plain.start, -1, stop, problem.limit)[0] * last
    best, threshold = direct, plain.threshold(-1, stop)
    for task, cost in enumerate(costs):
        w, path = plain.start, []
        while len(path) * cost + problem.switch_cost < min(direct, problem.limit) and len(path) < 3000:
            w = plain.step(w, plain.gradient(w, plain.rows[task])[1])
            path.append(w)
        if not path:
            continue
        spent = cost * np.arange(1, len(path) + 1) + problem.switch_cost
        states = tuple(np.stack(part) for part in zip(*path, strict=True))
        for count in range(problem.limit):
            loss, slopes = plain.gradient(states, rows)
            reached = loss <= threshold
            best = min(best, (spent[reached] + last * count).min(initial=np.inf))
            keep = ~reached & (spent + last * (count + 1) < best)
            if not keep.any():
                break
            spent = spent[keep]
            states = tuple(part[keep] for part in plain.step(states, slopes))
    return direct, float(best)
