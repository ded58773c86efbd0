"""Forecasts: how one task, or several in sequence, are learned by a network."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import AssumptionViolated, InvalidSpec, UnsupportedModel, hinted
from learncast.display import Columns, Displayable, Plot, Reported, Table, bracketed_interval, format_number
from learncast.networks import Network
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.planning.batches import BatchSteps, in_batches, steps_in_batches
from learncast.planning.decoding import ClassSummary, Decoded, decoded
from learncast.planning.defaults import Choice, chosen_network, chosen_rate, task_and_network
from learncast.planning.explanation import Explanation, explain
from learncast.planning.forecast_numbers import difference, forecast_dataset, learning_curve, ratio
from learncast.planning.learning_rate import SuggestedRate, suggest_rate
from learncast.planning.methods.choice import method_for
from learncast.planning.methods.method import LIMIT, ResampledSteps, Rule
from learncast.planning.run import StageForecast, StageSequence, format_accuracy
from learncast.procedure.goals import DATA_GOAL, Accuracy, Goal, goal_of
from learncast.procedure.stage import Stage
from learncast.procedure.training import Training
from learncast.results import Steps, load_dataset, save_dataset
from learncast.tasks.task import Task
from learncast.theory.assumptions import require
from learncast.theory.dynamics.solution import LearningTime
from learncast.theory.responses.trials import seed_of

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True, eq=False, repr=False)
class Forecast(StageSequence, Reported, Displayable):
    """A forecast of training on one task, or on several in sequence; the last one is the target.

    Numbers are computed when they are first asked for.

    Attributes
    ----------
    method, requested, places, batch
        As in `StageSequence`.
    known_direct : LearningTime or None
        Direct training on the target, if it is known already.
    resample : bool
        Whether steps have intervals, if tasks were estimated from trials.
    chosen : tuple of Choice
        Settings that were not given, with their values and how to change them.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> first = task.varied(target_strength=1.5).renamed("stronger targets")
    >>> forecast = lc.follow([lc.Stage(first, 0.5), lc.Stage(task, 0.99)], network, learning_rate=1e-3)
    >>> forecast.steps.descent, forecast.direct.descent, forecast.forecast_class
    (237.0, 331.0, 'exact')
    """

    known_direct: LearningTime | None = None
    resample: bool = True
    chosen: tuple[Choice, ...] = ()

    @cached_property
    def stages(self) -> tuple[StageForecast, ...]:
        """Forecast of each stage."""
        stages = self.run.stages
        if self.resampled is not None:
            steps = [self.resampled.interval_of(s.steps, itemgetter(k)) for k, s in enumerate(stages)]
            stages = tuple(replace(s, steps=own) for s, own in zip(stages, steps, strict=True))
        if self.batches is None:
            return stages
        # Rounded so that the steps of the stages add up to those of all of them.
        ends = np.concatenate([[0.0], self.batches.steps.cumsum(axis=0).mean(axis=1).round()])
        means = zip(stages, np.diff(ends), self.batches.steps, strict=True)
        return tuple(replace(s, steps=steps_in_batches(s.steps, mean, runs)) for s, mean, runs in means)

    @cached_property
    def full_batch(self) -> Forecast:
        """The forecast for full batches."""
        other = replace(self, batch=None)
        other.__dict__["run"] = self.run
        return other

    @cached_property
    def batches(self) -> BatchSteps | None:
        """Simulated steps in batches; None for full batches, for given steps, and if full batches never arrive."""
        given = all(stage.goal is None for stage in self.requested)
        if self.batch is None or given or not math.isfinite(self.full_batch.steps.descent):
            return None
        return self.in_batches(self.batch, shuffle=self.training.shuffle, seed=self.training.seed)

    @cached_property
    def steps(self) -> Steps:
        """Steps of all stages together."""
        if self.batches is not None:
            mean = float(sum(s.steps.descent for s in self.stages))
            return steps_in_batches(self.full_batch.steps, mean, self.batches.totals)
        resampled = self.resampled
        return self.total if resampled is None else resampled.interval_of(self.total)

    @property
    def drawn_steps(self) -> Steps:
        """Steps that pictures mark: of full batches, if batches reach the goal by chance."""
        return self.full_batch.steps if self.batches is not None and self.batches.by_chance else self.steps

    @cached_property
    def direct_time(self) -> LearningTime | None:
        """Direct training on the target, mode by mode; None if the last stage is given by steps."""
        if self.known_direct is not None or self.goal is None:
            return self.known_direct
        return self.method.precise.learning_time(self.places[-1], self.goal)

    @cached_property
    def direct(self) -> Steps | None:
        """Steps of direct training on the target; None if the last stage is given by steps."""
        time = self.direct_time
        if time is None:
            return None
        if self.batch is not None:
            if len(self.requested) == 1:
                return self.steps
            return replace(self, requested=self.requested[-1:], places=self.places[-1:]).steps
        return time.steps if self.resampled is None else self.resampled.direct_interval_of(time.steps)

    @cached_property
    def saving(self) -> Steps:
        """Steps saved against direct training; negative if the curriculum takes longer."""
        direct = self.direct or Steps(math.nan, math.nan)
        saved = Steps(difference(direct.descent, self.steps.descent), difference(direct.flow, self.steps.flow))
        if self.resampled is None or self.batch is not None:
            return saved
        known = self.resampled.direct
        with np.errstate(invalid="ignore"):
            return self.resampled.interval_of(saved, lambda stages: known - stages.sum(axis=0), signed=True)

    @property
    def speedup_ratio(self) -> float:
        """Flow steps of direct training over those of this curriculum."""
        return math.nan if self.direct is None else ratio(self.direct.flow, self.steps.flow)

    @cached_property
    def resampled(self) -> ResampledSteps | None:
        """Steps under resampled statistics; None if nothing was estimated from trials."""
        if self.batch is not None:
            return self.full_batch.resampled
        m = self.method.precise
        # Neither a stage to convergence nor a task with nothing to learn has steps that resampling could change.
        converges = any(s.steps is not None and math.isinf(s.steps) for s in self.requested)
        each = zip(self.places, self.requested, strict=True)
        idle = all(s.goal is not None and m.nothing_to_learn(k, s.goal) for k, s in each)
        if not self.resample or converges or idle:
            return None
        rules: list[Rule] = [(s.goal, s.steps) for s in self.requested]
        found = m.resample(self.places, rules)
        stops = [s.steps.descent for s in self.run.stages[:-1]]
        if found is None or not stops or not np.isfinite(stops).all():
            return found
        if any(s.goal is not None for s in self.requested[:-1]):
            given = m.resample(self.places, [*((None, n) for n in stops), rules[-1]])
            assert given is not None
            return replace(found, given=given.stages)
        return replace(found, given=found.stages)

    @cached_property
    def explanation(self) -> Explanation | None:
        """The three terms of eq. (16), for a curriculum of two tasks with common modes."""
        if len(self.requested) != 2 or not isinstance(self.goal, Accuracy) or not self.modes:
            return None
        assert self.direct_time is not None
        (first, second), times = self.modes, self.direct_time.mode_flow_steps
        mode = int(np.argmax(times)) if len(times) == len(second) else 0
        return explain(first, second, mode, self.stages[0].end, self.goal.value, self.learning_rate)

    def in_batches(self, batch: int, *, shuffle: bool = False, runs: int | None = None, seed: int = 0) -> BatchSteps:
        """Steps of these stages if every step of descent sees only `batch` trials, over several runs.

        Parameters
        ----------
        batch : int
            Trials per step.
        shuffle : bool
            Whether recorded trials are drawn in shuffled epochs, not independently of each other.
        runs, seed : int
            Number of runs, and seed of the batches.
        """
        if isinstance(self.goal, Decoded):
            raise InvalidSpec(f"{self.goal.text} is forecast for full batches only.", field="batch")
        return in_batches(self, batch, shuffle=shuffle, runs=runs, seed=seed)

    @property
    def unstable(self) -> str:
        """A sentence if the recurrence makes activity grow over a trial, which limits the learning rate; else empty."""
        network, steps = self.method.network, self.target.steps
        radius = network.spectral_radius if isinstance(network, LinearRNN) else 0.0
        if radius <= 1 or steps == 1:
            return ""
        return f"The recurrence is unstable: its spectral radius is {radius:.4g}, so activity grows over a trial. "

    @cached_property
    def classes(self) -> ClassSummary | None:
        """What is decoded of class labels at the end of training; None without labels, trials or a finite count."""
        if not math.isfinite(self.total.descent):
            return None
        return ClassSummary.of(self.target, self.method.precise.network_of(self.run.descent_states[-1]))

    @property
    def best_r2(self) -> float:
        """Largest R² on the target that the network can reach; nan if the variance of the targets is unknown."""
        least = self.method.least_loss(self.places[-1])
        power = least + self.method.baseline_loss(self.places[-1])
        return 1.0 - least / power if power > 0 else math.nan

    @cached_property
    def without_bias(self) -> Forecast | None:
        """The forecast without the constant input that ``bias=True`` adds, of the same network otherwise.

        None without biases, for several stages, for nonlinear networks, and for goals on trials.
        """
        task, network, goal = self.target.without_bias, self.method.network, self.goal
        if task is None or len(self.requested) > 1 or goal is None or isinstance(goal, Decoded):
            return None
        if not isinstance(network, LinearRNN | TwoLayer):
            return None
        first, second = network.maps
        small, training = network.with_layers(first[:, :-1], second), self.training.with_(batch=None)
        return follow([Stage(task, goal)], small, training, strict=False, seed=self.method.seed or 0)

    @cached_property
    def safe_rate(self) -> SuggestedRate | None:
        """A learning rate at which training settles; None if none can be suggested."""
        try:
            name, seed = self.method.name, self.method.seed or 0
            return suggest_rate(self.requested, self.method.network, self.training, method=name, seed=seed)
        except InvalidSpec:
            return None

    def learning_curve(self, *, points: int = 60) -> xr.Dataset:
        """Loss and R² on the target after whole steps of descent, through all stages and a fifth beyond the last.

        R² is one minus the loss over that of the zero map. The attributes ``goal_loss`` and ``goal_r2`` are the values
        at the goal. If descent has no finite number of steps, the curve is that of the gradient flow.

        Parameters
        ----------
        points : int
            Per stage.
        """
        return learning_curve(self, points)

    @cached_property
    def dataset(self) -> xr.Dataset:
        """Numbers of every stage, labelled."""
        return forecast_dataset(self)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the numbers of every stage to NetCDF."""
        return save_dataset(self.dataset, path, kind="forecast", provenance=self.provenance)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> xr.Dataset:
        """Read the numbers that `save` wrote."""
        return load_dataset(path, kind="forecast")[0]

    @property
    def table(self) -> Table:
        """Steps of every stage and of all stages together."""
        steps = [*(s.steps for s in self.stages), self.steps]
        columns: Columns = {
            "stage": ([*(s.task.name for s in self.stages), "total"], str),
            "stop at accuracy": ([*(format_accuracy(s.accuracy) for s in self.stages), ""], str),
            "steps": (steps, lambda one: count_text(one) + bracketed_interval(one.interval)),
            "flow": ([one.flow for one in steps], format_number),
        }
        if any(one.status.name != "ok" for one in steps):
            columns = {**columns, "status": ([one.status.name for one in steps], str)}
        return Table.of("Stages", columns, ["Steps of gradient descent. Flow: the same for infinitely small steps."])

    def _plot(self) -> Plot:
        if len(self.requested) == 1 or not self.method.has_flow:
            curve, title = self.learning_curve(), f"How {self.target.name} is learned"
            return Plot.of("learning_curve", curve, steps=self.drawn_steps, title=title)
        return Plot.of("forgetting_curves", self.curves(points=80), title="Loss over training")

    def __repr__(self) -> str:
        never = [math.isinf(s.steps.value) and s.steps.status.name != "ok" for s in self.stages]
        counts = [s.steps.count if no else f"{s.steps.value:.6g}" for s, no in zip(self.stages, never, strict=True)]
        parts = " -> ".join(f"{s.task.name} ({count})" for s, count in zip(self.stages, counts, strict=True))
        within = bracketed_interval(self.steps.interval)
        saved = math.nan if len(self.requested) == 1 else self.saving.value
        saving = "" if math.isnan(saved) else f", saves {saved:.6g}"
        spread = "" if self.batches is None else f" ± {self.steps.spread:.3g}"
        batches = "" if self.batches is None else f" in batches of {self.batch}"
        flow = f"{self.steps.flow:.6g} flow steps" if self.method.has_flow else f"by {self.training.optimizer}"
        unit = "descent step" if self.steps.descent == 1 else "descent steps"
        counted = "not counted" if math.isnan(self.steps.descent) else f"{self.steps.descent:.6g}{spread} {unit}"
        taken = f"{counted}{batches}{within}, {flow}"
        if math.isinf(self.steps.value):
            taken = "to convergence" if all(stage.goal is None for stage in self.requested) else str(self.steps)
        elif isinstance(self.goal, Goal) and self.method.nothing_to_learn(self.places[-1], self.goal):
            taken = "nothing to learn"
        return f"<Forecast {parts}: {taken}{saving}, {self.forecast_class}>" + "".join(
            f"\n{c.line}" for c in self.chosen
        )


@hinted
def forecast(
    task: Task | ArrayLike | str | os.PathLike[str],
    network: Network | ArrayLike | None = None,
    training: Training | None = None,
    goal: Goal | float | None = None,
    *,
    learning_rate: float | None = None,
    method: str = "auto",
    strict: bool = True,
    seed: int = 0,
    **data: object,
) -> Forecast:
    """Forecast how many steps a network needs to learn a task, and the whole course of learning.

    Parameters
    ----------
    task : Task, or recorded trials
        Trials may be inputs (with targets as the second argument), a pair (inputs, targets), a data frame or a file,
        see `learncast.tasks.from_data`.
    network : LinearRNN, TwoLayer, Deep or Activated, optional
        The network before training. By default a linear RNN (two layers if trials have one step) of 64 hidden units, or
        as many as the smaller of inputs and outputs, with weights as torch draws them and a fixed recurrence of
        1 - 1/steps. The targets, if the first argument is an array of inputs.
    training : Training, optional
        Learning rate, weights that learn and other settings, such as ``Training(1e-3, batch=64)``.
    goal : Goal or float, optional
        When the task counts as learned; ``Accuracy(0.99)`` for a task family and ``Explained(0.95)`` for recordings by
        default. A number means `Accuracy` for task families and `Explained` for recordings. A goal on trials, such as
        ``learncast.training.DecisionAccuracy(0.85, every=1)``, is measured on the recorded trials after every `every`
        steps.
    learning_rate : float, optional
        Shorthand for ``training=Training(learning_rate)``; half the largest safe rate by default.
    method : {"auto", "modes", "two-layer", "pooled", "deep", "flow", "responses"}
        How the numbers are computed: by the first method whose conditions hold, or by the one named.
    strict : bool
        Raise if a condition of the theory fails. Otherwise the forecast says which one.
    seed : int
        Seed of measured responses and of resampled statistics.
    **data
        Options of recorded trials, for example ``centre=True``; see `learncast.tasks.from_data`.

    Returns
    -------
    Forecast
        ``forecast.steps`` are the steps, ``forecast.solution`` is learning as a function of time, and
        ``forecast.chosen`` are the settings that were not given.

    Raises
    ------
    AssumptionViolated
        If a condition of the theory fails and `strict` is set. If it is the learning rate, the error has
        `learning_rate`, a safe one, and `steps` at that rate.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> forecast = lc.forecast(task, network, learning_rate=1e-3)
    >>> forecast
    <Forecast integration (331): 331 descent steps, 329.985 flow steps, exact>
    >>> forecast.solution.at([0, 200, 400])["loss"].values.round(2)
    array([25.  , 16.54,  6.13])

    Data alone:

    >>> import numpy as np
    >>> rates = np.random.default_rng(0).standard_normal((200, 10, 3))
    >>> lc.forecast(rates, rates.sum(axis=1)).steps.descent
    4.0
    """
    chosen: list[Choice] = []
    own, known = task_and_network(task, network, data, tuple(inspect.signature(forecast).parameters)[:-1])
    recorded = own.recording is not None
    meant = goal_of(goal, recorded=recorded)
    if goal is None and recorded:
        chosen.append(Choice("goal", meant.text, "default", "goal=lc.R2(0.8) or another goal"))
    if known is None:
        known, choice = chosen_network(own, "forecast")
        chosen.append(choice)
    stage = Stage(own, meant)
    if learning_rate is None and training is None:
        learning_rate, choice = chosen_rate(stage, known, method, seed_of(seed))
        chosen.append(choice)
    made = follow([stage], known, training, learning_rate=learning_rate, method=method, strict=strict, seed=seed)
    return replace(made, chosen=tuple(chosen)) if chosen else made


@hinted
def follow(
    stages: Sequence[Stage],
    network: Network,
    training: Training | None = None,
    *,
    learning_rate: float | None = None,
    method: str = "auto",
    strict: bool = True,
    seed: int = 0,
) -> Forecast:
    """Forecast training on several tasks in sequence.

    Parameters
    ----------
    stages : sequence of Stage
        In order; the last is the target, against whose direct training the saving is measured.
    network, training, learning_rate, method, strict, seed
        As for `forecast`.

    Implements: curriculum2025 Eq. (13), for any number of stages
    Implements: curriculum2025 Eq. (15), the speedup as a difference

    Returns
    -------
    Forecast
        Steps, accuracy and state of every stage, and direct training for comparison.

    Raises
    ------
    AssumptionViolated
        If a condition of the theory fails and `strict` is set.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> first = task.varied(target_strength=1.5).renamed("stronger targets")
    >>> lc.follow([lc.Stage(first, 0.5), lc.Stage(task, 0.99)], network, learning_rate=1e-3)
    <Forecast stronger targets (158) -> integration (79): 237 descent steps, 236.158 flow steps, saves 94, exact>
    """
    if not stages:
        raise InvalidSpec("A curriculum needs at least one stage, got none.", field="stages")
    others = [type(stage).__name__ for stage in stages if not isinstance(stage, Stage)]
    if others:
        raise InvalidSpec(f"stages must be lc.Stage(task, goal) each, got {others[0]}.", field="stages")
    if len(stages) == 1 and isinstance(stages[0].goal, Goal) and stages[0].goal.needs_training:
        first = [Stage(stages[0].task, DATA_GOAL, rate=stages[0].rate)]
        made = follow(first, network, training, learning_rate=learning_rate, method=method, strict=strict, seed=seed)
        return on_trials(made, stages[0])
    for stage in stages:
        stage.check_forecast()
    settings, tasks = Training.of(training, learning_rate), [stage.task for stage in stages]
    if settings.batch is not None:
        sizes = [math.inf if task.recorded_trials is None else len(task.recorded_trials) for task in tasks]
        settings = settings.with_(batch=settings.batch if settings.batch < max(sizes) else None)
    chosen = method_for(tasks, network, settings, method=method, strict=strict, seed=seed_of(seed), optimizers=True)
    if settings.batch is not None and chosen.promise == "response":
        raise UnsupportedModel(
            "Batches are forecast for linear networks only. Use batch=None, or train: learncast check.", field="batch"
        )
    found = Forecast(chosen, tuple(stages), tuple(range(len(stages))), batch=settings.batch)
    if strict:
        require_conditions(found)
    return found


def require_conditions(found: Forecast) -> None:
    """Raise if a condition of the theory fails both without limit and up to the stops, or a count is not steady."""
    m = found.method
    if m.name == "flow" or not (m.trust(found.places).holds and all(m.steady(k, m.start) for k in found.places)):
        _require(found)


def _require(found: Forecast) -> None:
    """Raise if a condition of the theory fails; suggest a learning rate if it is too large."""
    try:
        require(found.trust.assumptions)
    except AssumptionViolated as error:
        safe = found.safe_rate if error.assumption == LIMIT else None
        if safe is None:
            raise
        raise error.with_rate(safe.learning_rate, safe.steps.value, found.unstable + safe.sentence) from None


def on_trials(made: Forecast, stage: Stage) -> Forecast:
    """Return a forecast of one stage with a goal on trials instead of its own; it has no interval.

    Raises
    ------
    AssumptionViolated
        If a condition of the theory fails.
    """
    if made.batch is not None:
        raise InvalidSpec(f"{stage.goal.text} is forecast for full batches only. Use batch=None.", field="batch")
    _require(made)
    found = decoded(made.method.precise, made.places[0], stage.goal)
    return replace(made, requested=(Stage(stage.task, found),), resample=False)


def count_text(steps: Steps) -> str:
    """Descent steps, with their spread over batches."""
    return steps.count + ("" if math.isnan(steps.spread) else f" ± {format_number(steps.spread, 0)}")
