"""Batches: the steps that stages take where every step of descent sees some trials only."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.progress import check_time
from learncast._core.validation import FloatArray, count
from learncast.planning.methods.ground import Ground, State
from learncast.theory.dynamics.descent import BatchStatistics, wishart_roots
from learncast.theory.dynamics.learning_problem import LearningProblem
from learncast.theory.dynamics.steps.pooled_descent import hidden_basis, pull
from learncast.theory.responses.bootstrap import bounds

#: Runs whose steps are counted: side by side where the recurrence is a number, and one by one.
RUNS = {True: 24, False: 6}
#: Steps of a stage beyond which batches are not drawn: the count would take longer than it is worth.
MOST_DRAWN = 40_000
#: Times its steps with all trials after which a run that has not arrived is given up.
LATE = 4
#: Loss that batches leave, as a share of the loss that counts as learned, from which on arriving is a matter of chance.
CHANCE = 0.5
#: What a stage ends by: an accuracy, or a number of steps.
StageRule = tuple[float | None, float | None]


@dataclass(frozen=True, eq=False)
class BatchSteps:
    """Steps of descent in batches, over runs that differ in the trials they draw.

    Attributes
    ----------
    batch : int
        Trials of a step.
    steps : (stages, runs)
        Infinite where a run does not arrive.
    floor : float
        Loss that batches leave at the end of the target, as a share of the loss at which it counts as learned. Where
        it is not small, when a run arrives is a matter of chance.
    """

    batch: int
    steps: FloatArray
    floor: float

    @property
    def totals(self) -> FloatArray:
        """Steps of all stages of each run."""
        return np.asarray(self.steps.sum(axis=0))

    @property
    def runs(self) -> int:
        """How many runs were drawn."""
        return self.steps.shape[1]

    @property
    def mean(self) -> float:
        """Mean steps of all stages; infinite where a run does not arrive."""
        return float(self.totals.mean())

    @property
    def spread(self) -> float:
        """Standard deviation from run to run; unknown where one does not arrive."""
        return float(self.totals.std(ddof=1)) if np.isfinite(self.totals).all() else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Where 95% of runs end, as far as these tell."""
        low, high = bounds(self.totals)
        return float(low), float(high)

    @property
    def by_chance(self) -> bool:
        """Whether the noise of batches is as wide as what counts as learned."""
        return self.floor > CHANCE or bool(np.isinf(self.totals).any())

    @property
    def sentence(self) -> str:
        """The count, or why there is none."""
        of = f"In batches of {self.batch:,}"
        if np.isinf(self.totals).any():
            never = int(np.isinf(self.totals).sum())
            return f"{of} {never} of {self.runs} runs do not arrive in {LATE} times the steps: use larger batches."
        if self.by_chance:
            level = f"{self.floor:,.2g} times what counts as learned"
            span = f"{self.totals.min():,.0f} to {self.totals.max():,.0f} steps in {self.runs} runs"
            return f"{of} noise keeps the loss at {level}: when a run arrives is chance ({span})."
        count = f"{self.mean:,.0f} ± {self.spread:,.0f} steps"
        return f"{of} it takes {count} (mean and standard deviation of {self.runs} runs)."


def in_batches(
    ground: Ground,
    places: Sequence[int],
    rules: Sequence[StageRule],
    expected: Sequence[float],
    *,
    batch: int,
    runs: int | None = None,
    seed: int = 0,
) -> BatchSteps:
    """Count the steps of stages by descents that draw fresh trials of the tasks' statistics at every step.

    Trials are Gaussian of the tasks' own moments. Where the recurrence is a number all runs descend side by side on the
    second moments of their batches, which are drawn without drawing trials; elsewhere each by itself.

    Parameters
    ----------
    ground : Ground
        Of a linear network.
    places : sequence of int
        Each stage's task.
    rules : sequence of (accuracy, steps)
        What each stage ends by; the other is None.
    expected : sequence of float
        Steps of each stage with all trials.
    batch : int
    runs : int, optional
    seed : int
    """
    size = count("batch", batch)
    if ground.promise == "response":
        raise UnsupportedModel(
            "batches are drawn for linear networks, got units seen through their responses. Leave batch out, "
            "or train: learncast check."
        )
    longest = max((n for n in expected if math.isfinite(n)), default=0.0)
    if not all(map(math.isfinite, expected)) or longest > MOST_DRAWN:
        raise InvalidSpec(
            f"stages must end within {MOST_DRAWN:,} steps to be counted in batches, got "
            f"{', '.join(f'{n:,.0f}' for n in expected)}. Ask for a lower accuracy, or leave batch out."
        )
    problems = [LearningProblem.of(ground.tasks[k], ground.network, ground.learn) for k in places]
    pooled = all(p.pooled_recurrence is not None and len(p.learn) == 2 for p in problems)
    number = RUNS[pooled] if runs is None else count("runs", runs, least=2)
    rng = np.random.default_rng(seed)
    stages = []
    walk = (_Pooled if pooled else _Single)(ground, number, rng)
    for place, (accuracy, given), problem, steps in zip(places, rules, problems, expected, strict=True):
        draws = BatchStatistics.of(problem, size)
        most = math.ceil(given or 0.0) if accuracy is None else int(LATE * steps) + 1000
        stages.append(walk.advanced(place, accuracy, problem, draws, most))
    end = rules[-1][0]
    goal = math.nan if end is None else (1.0 - end) ** 2 * ground.whole(places[-1])
    return BatchSteps(size, np.stack(stages), walk.floor(problems[-1], size) / goal)


class _Pooled:
    """Runs side by side on the hidden directions of the start. States are (runs, inputs + outputs, hidden)."""

    def __init__(self, ground: Ground, runs: int, rng: np.random.Generator) -> None:
        self.ground, self.rate, self.rng = ground, ground.learning_rate, rng
        first, second = ground.network.maps
        basis = hidden_basis(first, second)
        start = np.concatenate([first.T, second]) @ basis
        self.inputs, self.states = first.shape[1], np.repeat(start[None], runs, axis=0)
        self.going = np.ones(runs, dtype=bool)

    def advanced(
        self, task: int, accuracy: float | None, problem: LearningProblem, draws: BatchStatistics, most: int
    ) -> FloatArray:
        """Steps of each run until it has learned, or so many; the runs go on from there."""
        learned = None if accuracy is None else self.ground.learned(task, accuracy)
        steps = np.where(self.going, np.nan, np.inf)
        moments = _moments(draws, problem.pooled_recurrence or 0.0)
        rows = np.flatnonzero(self.going)
        for n in range(most + 1):
            check_time()
            if n == most or not len(rows):
                break
            if learned is not None:
                there = learned(self._maps(rows))
                steps[rows[there]] = n
                rows = rows[~there]
                if not len(rows):
                    break
            states = self.states[rows]
            power, cross = moments(len(rows), self.rng)
            with np.errstate(over="ignore", invalid="ignore"):
                self.states[rows] = states + self.rate * pull(states, power, cross, self.inputs)
        steps[rows] = most if learned is None else np.inf
        self.going &= np.isfinite(steps) & np.isfinite(self.states).all(axis=(1, 2))
        return np.where(self.going, steps, np.inf)

    def _maps(self, rows: NDArray[np.intp]) -> FloatArray:
        first, second = np.split(self.states[rows], [self.inputs], axis=1)
        return np.asarray(second @ np.swapaxes(first, 1, 2))

    def floor(self, problem: LearningProblem, batch: int) -> float:
        """Loss that the noise of batches leaves, eta / (4 batch) (E|C^T e|^2 E|z|^2 + E|e|^2 E|A z|^2) at the end."""
        if not self.going.any():
            return math.inf
        s, left = problem.statistics, 2 * problem.least_loss
        z = s.input[0, :, 0, :]  # pooled to one lag
        first, second = np.split(self.states[self.going], [self.inputs], axis=1)
        out = np.linalg.norm(second, axis=(1, 2)) ** 2 / s.outputs * left * float(np.trace(z))
        back = left * np.einsum("kah,ab,kbh->k", first, z, first)
        return float(self.rate / (4 * batch) * (out + back).mean())


def _moments(draws: BatchStatistics, recurrence: float) -> Callable[[int, np.random.Generator], tuple[FloatArray, ...]]:
    """E[z z^T] and E[y z^T] of fresh batches, many at once; of targets at every step their sums over readouts."""
    (length, inputs), (readouts, outputs) = draws.inputs, draws.targets
    rank = draws.root.shape[1]
    x, y = draws.root[: length * inputs].reshape(length, inputs, rank), draws.root[length * inputs :]
    age = np.arange(length)[-readouts:, None] - np.arange(length)
    kernel = np.where(age >= 0, recurrence ** np.maximum(age, 0), 0.0)
    # Rows are the pooled input and the target at one readout, columns what varies.
    z = np.einsum("rt,tci->cri", kernel, x)
    answers = y.reshape(readouts, outputs, rank).transpose(1, 0, 2)

    def drawn(number: int, rng: np.random.Generator) -> tuple[FloatArray, ...]:
        half = wishart_roots(rank, draws.batch, number, rng)
        seen = (z @ half[:, None]).reshape(number, inputs, -1)
        asked = (answers @ half[:, None]).reshape(number, outputs, -1)
        back = np.swapaxes(seen, 1, 2) / draws.batch
        return seen @ back, asked @ back

    return drawn


class _Single:
    """Runs one by one, whatever learns. States are networks."""

    def __init__(self, ground: Ground, runs: int, rng: np.random.Generator) -> None:
        self.ground, self.rate, self.rng = ground, ground.learning_rate, rng
        self.states: list[State] = [ground.network] * runs
        self.going = np.ones(runs, dtype=bool)

    def advanced(
        self, task: int, accuracy: float | None, problem: LearningProblem, draws: BatchStatistics, most: int
    ) -> FloatArray:
        """Steps of each run until it has learned, or so many; the runs go on from there."""
        steps = np.full(len(self.states), np.inf)
        for k in np.flatnonzero(self.going):
            weights = LearningProblem(problem.task, self.states[k], problem.learn).start
            for n in range(most + 1):
                check_time()
                if accuracy is not None and self.ground.has_learned(task, accuracy, problem.built(weights)):
                    steps[k] = n
                    break
                if n == most:
                    steps[k] = n if accuracy is None else np.inf
                    break
                with np.errstate(over="ignore", invalid="ignore"):
                    _, slopes = problem.loss_and_slopes(weights, draws.draw(self.rng))
                    weights = {**weights, **{name: weights[name] - self.rate * s for name, s in slopes.items()}}
                if not all(np.isfinite(weights[name]).all() for name in slopes):
                    break
            self.states[k] = problem.built(weights) if np.isfinite(steps[k]) else self.states[k]
        self.going &= np.isfinite(steps)
        return steps

    def floor(self, problem: LearningProblem, batch: int) -> float:
        """Not known where the recurrence learns too."""
        return math.nan
