"""Steps of stochastic gradient descent: every step sees one batch of trials."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.progress import check_time
from learncast._core.validation import FloatArray, count
from learncast.networks.activated import Activated
from learncast.planning.generalise.learners import LagLearner, PooledLearner
from learncast.planning.methods.method import Method
from learncast.procedure.goals import Goal
from learncast.results import Status, Steps
from learncast.theory.dynamics.batch_draws import Batches
from learncast.theory.dynamics.learning_problem import LearningProblem
from learncast.theory.responses.bootstrap import bounds

if TYPE_CHECKING:
    from learncast.planning.forecast import Forecast

#: Runs that are counted with a fixed scalar recurrence and maps that learn, and otherwise, where they take longer.
RUNS = {True: 24, False: 6}
#: Steps of a stage beyond which batches are not simulated.
MOST_SIMULATED = 40_000
#: Multiple of the full-batch steps after which a run ends that has not reached the goal.
LATE = 4
#: Share of the goal's excess loss from which on the noise of batches decides when a run arrives.
CHANCE = 0.5


@dataclass(frozen=True, eq=False)
class BatchSteps:
    """Steps of stochastic gradient descent, over runs with different batches.

    Attributes
    ----------
    batch : int
        Trials per step.
    steps : (stages, runs)
        Infinite where a run does not arrive.
    floor : float
        Loss that the noise of batches leaves at the end of the target, as a share of the goal's excess loss; nan if
        unknown.
    shuffle : bool
        Whether recorded trials are drawn in shuffled epochs, not independently of each other.
    gaussian : bool
        Whether some task's trials are not stored, so that Gaussian trials with its second moments are drawn.
    """

    batch: int
    steps: FloatArray
    floor: float
    shuffle: bool = False
    gaussian: bool = False

    @property
    def totals(self) -> FloatArray:
        """Steps of all stages of each run."""
        return np.asarray(self.steps.sum(axis=0))

    @property
    def runs(self) -> int:
        """Number of runs."""
        return self.steps.shape[1]

    @property
    def mean(self) -> float:
        """Mean steps of all stages; infinite if a run does not arrive."""
        return float(self.totals.mean())

    @property
    def spread(self) -> float:
        """Standard deviation over runs; nan if a run does not arrive."""
        return float(self.totals.std(ddof=1)) if np.isfinite(self.totals).all() else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """2.5% and 97.5% quantiles of the total steps."""
        low, high = bounds(self.totals)
        return float(low), float(high)

    @property
    def by_chance(self) -> bool:
        """Whether the noise of batches decides when a run arrives."""
        return self.floor > CHANCE or bool(np.isinf(self.totals).any())

    @property
    def drawn(self) -> str:
        """The batches in words."""
        trials = "Gaussian trials" if self.gaussian else "trials in shuffled epochs" if self.shuffle else "trials"
        return f"batches of {self.batch:,} {trials}"

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        of = f"In {self.drawn}"
        if np.isinf(self.totals).any():
            never = int(np.isinf(self.totals).sum())
            return f"{of}, {never} of {self.runs} runs do not arrive in {LATE} times the steps. Use larger batches."
        if self.by_chance:
            span = f"{self.totals.min():,.0f} to {self.totals.max():,.0f} steps in {self.runs} runs"
            return (
                f"{of}, noise keeps the excess loss at {self.floor:,.2g} times the goal: arrival is by chance ({span})."
            )
        count = f"{self.mean:,.0f} ± {self.spread:,.0f} steps"
        return f"{of}, it takes {count} (mean and standard deviation of {self.runs} runs)."


def most_steps(full_batch: float) -> int:
    """Return the steps after which a run ends that has not reached the goal."""
    return int(LATE * full_batch) + 1000


def steps_in_batches(full: Steps, mean: float, runs: FloatArray) -> Steps:
    """Mean and spread of steps over runs, with the sampling interval of the full-batch steps in proportion."""
    if not math.isfinite(mean):
        return Steps(math.inf, full.flow, status=Status.not_within, tried=most_steps(full.descent))
    share = mean / full.descent if full.descent else 1.0
    spread = float(runs.std(ddof=1)) if np.isfinite(runs).all() else math.nan
    return replace(full, descent=float(mean), low=share * full.low, high=share * full.high, spread=spread)


def in_batches(forecast: Forecast, batch: int, *, shuffle: bool, runs: int | None, seed: int) -> BatchSteps:
    """Count the steps of stages by descents that see one batch of a task's trials at every step.

    Recorded trials are drawn themselves. For a task of which only the statistics are known, fresh Gaussian trials with
    its second moments are drawn. All runs descend side by side.
    """
    size, method, places = count("batch", batch), forecast.method.precise, forecast.places
    if method.promise == "response":
        raise UnsupportedModel(
            "Batches are simulated for linear networks only. Train instead: learncast check.", field="batch"
        )
    expected = [s.steps.descent for s in forecast.run.stages]
    longest = max((n for n in expected if math.isfinite(n)), default=0.0)
    if not all(map(math.isfinite, expected)) or longest > MOST_SIMULATED:
        counts = ", ".join(f"{n:,.0f}" for n in expected)
        raise InvalidSpec(
            f"Batches are simulated for stages of up to {MOST_SIMULATED:,} steps, got {counts}.", field="batch"
        )
    network = method.network
    assert not isinstance(network, Activated)
    problems = [LearningProblem.of(method.tasks[k], network, method.learn) for k in places]
    pooled = all(p.map_problem is not None for p in problems)
    number = RUNS[pooled] if runs is None else count("runs", runs, least=2)
    rng, stages, gaussian = np.random.default_rng(seed), [], False
    simulation = _Runs(method, problems[0], number, pooled=pooled)
    for place, stage, problem, steps in zip(places, forecast.requested, problems, expected, strict=True):
        draws = Batches.of(problem, size, rng, runs=number, shuffle=shuffle)
        goal, most = stage.goal, math.ceil(stage.steps or 0.0) if stage.goal is None else most_steps(steps)
        if goal is not None and method.nothing_to_learn(place, goal):
            goal, most = None, 0
        with np.errstate(over="ignore", invalid="ignore"):  # a run may diverge
            stages.append(simulation.advance(place, goal, problem, draws, most))
        gaussian |= draws.gaussian
    floor = simulation.floor(problems[-1], draws)
    excess = math.nan if forecast.goal is None else method.goal_excess(places[-1], forecast.goal)
    return BatchSteps(size, np.stack(stages), floor / excess if excess > 0 else math.nan, shuffle, gaussian)


class _Runs:
    """Runs side by side. States are those of a learner."""

    def __init__(self, method: Method, problem: LearningProblem, runs: int, *, pooled: bool) -> None:
        self.method, self.pooled = method, pooled
        self.learner = self._learner(problem)
        self.states = np.repeat(self.learner.start[None], runs, axis=0)
        self.going = np.ones(runs, dtype=bool)

    def _learner(self, problem: LearningProblem) -> PooledLearner | LagLearner:
        network, rate = problem.network, self.method.learning_rate
        return PooledLearner(network, rate) if self.pooled else LagLearner(problem.task, network, problem.learn, rate)

    def advance(self, task: int, goal: Goal | None, problem: LearningProblem, draws: Batches, most: int) -> FloatArray:
        """Steps of each run until it reaches the goal, or `most`; the runs continue from there."""
        learned, self.learner = None if goal is None else self.method.learned(task, goal), self._learner(problem)
        steps = np.where(self.going, np.nan, np.inf)
        rows = np.flatnonzero(self.going)
        for n in range(most):
            check_time()
            if learned is not None:
                there = learned(self.learner.maps(self.states[rows]))
                steps[rows[there]] = n
                rows = rows[~there]
            if not len(rows):
                break
            self.states[rows] = self.learner.step(*draws.moments(rows), self.states[rows])
        steps[rows] = most if learned is None else np.inf
        self.going &= np.isfinite(steps) & np.isfinite(self.states).all(axis=1)
        return np.where(self.going, steps, np.inf)

    def floor(self, problem: LearningProblem, draws: Batches) -> float:
        """Loss that the noise of independent batches leaves at the end: rate / 4 of the variance of the gradient."""
        layers = self.learner.layers(self.states[self.going]) if isinstance(self.learner, PooledLearner) else ()
        if len(layers) != 2:  # not known for more layers, nor for other weights
            return math.nan
        noise = [draws.gradient_variance(problem, *weights) for weights in zip(*layers, strict=True)]
        return self.method.learning_rate / 4 * float(np.mean(noise)) if noise else math.inf
