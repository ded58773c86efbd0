"""Coverage of the 95% intervals of recorded forecasts: how often they hold the steps of the population's statistics."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest

import learncast as lc

Array = np.ndarray[Any, Any]
NOMINAL, SLACK = 0.95, 0.02
REPEATS = 60  # `python -m benchmarks coverage` takes 300


@dataclass
class Coverage:
    """Intervals and true values of each quantity."""

    rows: dict[str, list[tuple[float, float, float]]] = field(default_factory=dict)

    def add(self, name: str, interval: tuple[float, float], truth: float) -> None:
        self.rows.setdefault(name, []).append((*interval, truth))

    def shares(self) -> Iterator[tuple[str, int, float, float, float]]:
        """Yield name, number, share covered, and shares of true values below and above."""
        for name, found in self.rows.items():
            low, high, truth = np.array(found).T
            # Step counts are integers: an end that equals the truth covers it.
            below, above = truth < low - 1e-9, truth > high + 1e-9
            yield name, len(found), 1 - float((below | above).mean()), float(below.mean()), float(above.mean())


# --- recorded plans ---------------------------------------------------------------------------------------------------


def descent(M: Array, S: Array, A: Array, C: Array, rate: float, accuracy: float) -> tuple[int, Array, Array]:
    """Return the steps until the excess loss is (1 - accuracy)^2 of the baseline loss, and the weights then."""
    R, n = M @ S, 0
    baseline = np.vdot(M, R)
    while True:
        D = C @ A - M
        G = D @ S
        if np.vdot(D, G) <= (1 - accuracy) ** 2 * baseline:
            return n, A, C
        A, C, n = A - rate * C.T @ G, C - rate * G @ A.T, n + 1


@dataclass(frozen=True)
class Recorded:
    """A target and a candidate of one step with known population statistics; one or both are estimated from trials."""

    channels: int
    outputs: int
    both: bool
    trials: int = 120
    noise: float = 1.0
    rate: float = 0.02
    accuracy: float = 0.9

    def population(self) -> tuple[Array, Array, Array]:
        rng = np.random.default_rng([self.channels, 7])
        M = rng.normal(size=(self.outputs, self.channels))
        M *= 1.5 / np.linalg.norm(M, 2)
        other = 1.6 * (M + 0.1 * rng.normal(size=M.shape))
        return M, other, np.diag(np.linspace(1.2, 0.7, self.channels) ** 2)

    def repeat(self, seed: int, table: Coverage) -> None:
        M, other, S = self.population()
        rng = np.random.default_rng([self.channels, self.both, seed])

        def task(truth: Array, name: str, recorded: bool) -> lc.Task:
            if not recorded:
                return lc.tasks.static(truth @ S, S, name=name)
            x = rng.normal(size=(self.trials, self.channels)) * np.sqrt(np.diag(S))
            y = x @ truth.T + self.noise * rng.normal(size=(self.trials, self.outputs))
            return lc.Task.from_samples(x[:, None], y, name=name)

        target, candidate = task(M, "target", self.both), task(other, "candidate", True)
        network = lc.LinearRNN.random(self.channels, 8, self.outputs, recurrence=0.9, scale=0.1, rng=1)
        terms = lc.Terms(lc.Accuracy(self.accuracy))
        plan = lc.plan(target, [candidate], network, learning_rate=self.rate, terms=terms)
        start = network.input_weights, network.output_weights
        direct = descent(M, S, *start, self.rate, self.accuracy)[0]
        if self.both:  # otherwise known exactly
            table.add("direct", plan.direct.interval, direct)
        for stop in ("steps", "accuracy"):
            (A, C), total = start, 0
            for stage, planned in zip(plan.stages, (*plan.route.durations, None), strict=True):
                truth = M if stage.task is target else other
                if planned is None or stop == "accuracy":
                    steps, A, C = descent(truth, S, A, C, self.rate, stage.goal.value)
                else:
                    steps = int(planned)
                    for _ in range(steps):
                        G = (C @ A - truth) @ S
                        A, C = A - self.rate * C.T @ G, C - self.rate * G @ A.T
                total += steps
            table.add(f"total, stops by {stop}", plan.interval, total)
            if plan.pretrains:
                table.add(f"saving, stops by {stop}", plan.saving_interval, direct - total)


@dataclass(frozen=True)
class Direct:
    """Direct training on trials of a family with known population statistics."""

    family: str
    trials: int
    accuracy: float = 0.9

    def population(self) -> tuple[Array, Array]:
        """Best map and input power: M and S."""
        if self.family == "labels":
            return SHARES[:, None] * MEANS @ np.linalg.inv(S := np.eye(3) + (SHARES * MEANS.T) @ MEANS), S
        powers = np.ones(4) if self.family == "noisy" else RATES
        M = np.random.default_rng(7).normal(size=(2, len(powers)))
        M *= 1.5 / np.linalg.norm(M, 2)
        return M, np.diag(powers) + np.outer(powers, powers) if self.family == "counts" else np.diag(powers)

    def draw(self, rng: np.random.Generator) -> tuple[Array, Array]:
        M, S = self.population()
        if self.family == "labels":  # classes of unequal shares, inputs with an offset
            classes = rng.choice(3, p=SHARES, size=self.trials)
            return rng.normal(size=(self.trials, 3)) + MEANS[classes], np.eye(3)[classes]
        counts, size = self.family == "counts", (self.trials, len(S))
        x = rng.poisson(RATES, size).astype(float) if counts else rng.normal(size=size) * np.sqrt(np.diag(S))
        return x, x @ M.T + (1.5 if self.family == "noisy" else 1.0) * rng.normal(size=(self.trials, 2))

    def repeat(self, seed: int, table: Coverage) -> None:
        M, S = self.population()
        x, y = self.draw(np.random.default_rng([seed, self.trials, *self.family.encode()]))
        network = lc.LinearRNN.random(len(S), 8, y.shape[1], recurrence=0.9, scale=0.1, rng=1)
        rate = (0.05 if self.family == "noisy" else 0.1) / float(np.linalg.eigvalsh(S)[-1])
        task = lc.Task.from_samples(x[:, None], y)
        found = lc.forecast(task, network, learning_rate=rate, goal=lc.Accuracy(self.accuracy), strict=False)
        truth = descent(M, S, network.input_weights, network.output_weights, rate, self.accuracy)[0]
        assert found.steps.interval is not None
        table.add("steps", found.steps.interval, truth)


#: Classes of `Direct`: their shares and the mean inputs, which have an offset; and the mean counts of its channels.
SHARES, MEANS = np.array([0.5, 0.3, 0.2]), 1.5 * np.eye(3) + 0.5
RATES = np.array([1.0, 2.0, 0.5])


# --- ReLU curricula ---------------------------------------------------------------------------------------------------


@cache
def relu_population(b: float, steps: int, trials: int = 3_000_000) -> tuple[float, float]:
    """E[f^2] and E[yf] of a ReLU unit f with input weight 1 on perfect integration, y the sum of its inputs.

    Sampled with a linear unit z on the same trials as control variate, whose moments are known. The error of a count is
    then a tenth of that from the 65,536 trials of a forecast.
    """
    rng, moments = np.random.default_rng(12345), []
    powers = b ** np.arange(steps)
    known = np.array([(powers**2).sum(), powers.sum(), float(steps)])
    for _ in range(trials // 50_000):
        x = rng.normal(size=(steps, 50_000))
        f, g, z, y = np.zeros(50_000), np.zeros(50_000), np.zeros(50_000), x.sum(axis=0)
        for t in range(steps):  # g: the inputs with the other sign
            f, g, z = np.maximum(b * f + x[t], 0), np.maximum(b * g - x[t], 0), b * z + x[t]
        both = [np.mean(f * f + g * g) / 2, np.mean(y * (f - g)) / 2]
        moments.append([*both, np.mean(z * z), np.mean(y * z), np.mean(y * y)])
    found = np.array(moments)
    controls = found[:, 2:] - known
    slopes = np.linalg.lstsq(controls - controls.mean(axis=0), found[:, :2] - found[:, :2].mean(axis=0), rcond=None)[0]
    power, cross = (found[:, :2] - controls @ slopes).mean(axis=0)
    return float(power), float(cross)


def unit_descent(
    cross: float, power: float, w: float, rate: float, accuracy: float, steps: int | None = None
) -> tuple[int, float]:
    """Return the descent steps of a unit with two equal weights w up to its accuracy or given steps, and w then."""
    n, goal = 0, accuracy * cross / power
    while w * w < goal if steps is None else n < steps:
        w, n = w + rate * w * (cross - power * w * w), n + 1
    return n, w


@dataclass(frozen=True)
class Relu:
    """Perfect integration after a task with stronger targets, forecast from measured responses."""

    planned: bool
    steps: int = 20
    recurrence: float = 0.9
    rate: float = 1e-3
    accuracy: float = 0.95
    gain: float = 1.5

    def repeat(self, seed: int, table: Coverage) -> None:
        power, cross = relu_population(self.recurrence, self.steps)
        target = lc.tasks.integration(steps=self.steps)
        stronger = lc.tasks.integration(steps=self.steps, target_strength=self.gain, name="stronger")
        network = lc.Activated(lc.LinearRNN.aligned(recurrence=self.recurrence, initial=0.05, hidden_size=4), "relu")
        stages: tuple[lc.Stage, ...] = (lc.Stage(stronger, 0.5), lc.Stage(target, self.accuracy))
        if self.planned:
            terms = lc.Terms(self.accuracy)
            plan = lc.plan(target, [stronger], network, learning_rate=self.rate, terms=terms, seed=seed)
            stages, stops = plan.stages, plan.route.durations
            intervals = plan.interval, plan.saving_interval, plan.direct.interval
        else:
            made = lc.follow(stages, network, learning_rate=self.rate, seed=seed)
            stops = tuple(stage.steps.descent for stage in made.stages[:-1])
            intervals = made.steps.interval, made.saving.interval, made.direct.interval
        direct = unit_descent(cross, power, 0.05, self.rate, self.accuracy)[0]
        table.add("direct", intervals[2], direct)
        for stop in ("steps", "accuracy"):
            w, total = 0.05, 0
            for stage, planned in zip(stages, (*stops, None), strict=True):
                given = None if planned is None or stop == "accuracy" else int(planned)
                gain = 1.0 if stage.task is target else self.gain
                steps, w = unit_descent(gain * cross, power, w, self.rate, stage.goal.value, given)
                total += steps
            table.add(f"total, stops by {stop}", intervals[0], total)
            table.add(f"saving, stops by {stop}", intervals[1], direct - total)


CASES: dict[str, Any] = {
    "recorded, one channel, one task recorded": Recorded(1, 1, both=False),
    "recorded, one channel, both recorded": Recorded(1, 1, both=True),
    "recorded, four channels, one task recorded": Recorded(4, 2, both=False),
    "recorded, four channels, both recorded": Recorded(4, 2, both=True),
    "ReLU curriculum, stops given": Relu(planned=False),
    "ReLU curriculum, stops planned": Relu(planned=True),
    "ReLU curriculum, ten times the steps": Relu(planned=False, rate=1e-4),
} | {
    f"{family}, {trials} trials": Direct(family, trials)
    for family in ("Gaussian", "counts", "labels", "noisy")
    for trials in (20, 50, 120, 400)
}


def tabulated(name: str, repeats: int) -> Coverage:
    """Repeat one case and collect its intervals and true values."""
    table = Coverage()
    for seed in range(repeats):
        CASES[name].repeat(seed, table)
    return table


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_intervals_have_their_nominal_coverage(name: str) -> None:
    """Within 2% plus two standard errors of 95%, with fixed seeds."""
    wrong = []
    for what, number, covered, below, above in tabulated(name, REPEATS).shares():
        print(f"{name}: {what}: {covered:.1%} of {number} (truth below {below:.1%}, above {above:.1%})")
        allowed = SLACK + 2 * math.sqrt(NOMINAL * (1 - NOMINAL) / number)
        if abs(covered - NOMINAL) > allowed:
            wrong.append((what, covered))
    assert not wrong
