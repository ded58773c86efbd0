"""The loop of a plan: stages end by the accuracy that is measured on the batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from learncast._core.errors import InvalidSpec
from learncast._core.validation import count, one_of, positive, real_array
from learncast.planning.forecast import Forecast
from learncast.tasks.recorded.streams import pair_of, repeated_batches
from learncast.tasks.task import Task
from learncast.training.learner import HeldOutView
from learncast.training.loop import Loop
from learncast.training.measured_accuracy import LossMeasure, Measure, StrengthMeasure
from learncast.training.rules import StageRun, Watch

CRITERIA = ("strength", "loss", "steps")
#: Steps that a stage may take in any case before it is given up: even a forecast of 0 steps allows for noise.
LEAST_LIMIT = 100


@dataclass(eq=False)
class BatchWatch(Watch):
    """Ends a stage when the accuracy measured on the batches is reached, or after a number of steps.

    Parameters
    ----------
    steps : float
        Steps that the plan forecasts.
    measure : StrengthMeasure, LossMeasure or None
    goal : float or None
        Accuracy to reach; None if the stage ends by steps.
    every : int
        Steps between measurements.
    """

    kept = ("latest", "measure")

    steps: float
    measure: Measure | None
    goal: float | None
    every: int
    latest: float = math.nan
    warnings: list[str] = field(default_factory=list)

    def begin(self, previous: Watch | None) -> Watch:
        """Take over the strengths at the end of the stage before, so that a goal already met needs no step."""
        before = previous.measure if isinstance(previous, BatchWatch) else None
        if self.goal is not None and isinstance(self.measure, StrengthMeasure) and isinstance(before, StrengthMeasure):
            self.measure.strength = before.strength
            self.latest = self.measure.accuracy_of(before.strength)
        return self

    def take(self, step: int, batch: tuple[object, ...], output: Any) -> None:
        if self.measure is None or step % self.every or (output is None and self.goal is None):
            return
        inputs, targets = batch
        y = real_array("targets", targets, ndim=(2, 3))
        if output is None or tuple(output.shape) != y.shape:
            got = "none" if output is None else f"shape {tuple(output.shape)}"
            raise InvalidSpec(f"update needs the output, of the targets' shape {y.shape}, got {got}.", field="output")
        self.latest = self.measure.take(real_array("inputs", inputs, ndim=(2, 3)), y, real_array("output", output))
        self.warnings[:] = [self.measure.warning] if self.measure.warning else []

    def over(self, step: int, view: HeldOutView | None) -> bool:
        return step >= self.steps if self.goal is None else self.latest >= self.goal


def plan_loop(
    forecast: Forecast,
    loaders: Mapping[str, object],
    *,
    criterion: str | None = None,
    most: float = 3.0,
    window: int | None = None,
    every: int = 1,
) -> Loop:
    """Make the loop of a plan.

    Parameters
    ----------
    forecast : Forecast
        Of the plan's stages.
    loaders : mapping of task name to batches
        For each task a DataLoader, a Dataset, an iterable of (inputs, targets), or a function that returns one.
    criterion : {"strength", "loss", "steps"}, optional
        What ends a stage with an accuracy as goal: the strength of every mode, the excess loss, or the number of steps
        that the plan forecasts. By default strength for a linear network on which the theory is exact, and loss for
        any other.
    most : float
        A stage is given up after this multiple of the expected steps (at least 100), and the next one begins.
    window : int, optional
        Batches over which the loss is averaged; by default a twentieth of the expected steps, from 1 to 50.
    every : int
        Steps between measurements.

    Returns
    -------
    Loop

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=10)
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> plan = lc.plan(task, [task.varied(target_strength=1.5, name="stronger")], network, learning_rate=0.002)
    >>> plan.loop({"stronger": [], task.name: []})  # calls plan_loop
    <Loop: stronger (0 of 155) -> integration (0 of 0)>
    """
    positive("most", most)
    count("every", every)
    _check_names(forecast.tasks, loaders)
    method = forecast.method.precise
    if criterion is None:
        linear = method.readable_modes(method.target) is not None
        per_mode = all(stage.goal is None or method.per_mode(stage.goal) for stage in forecast.requested)
        criterion = "strength" if linear and per_mode and forecast.trust.holds else "loss"
    one_of("criterion", criterion, CRITERIA)
    runs = []
    for k, (place, one) in enumerate(zip(forecast.places, forecast.stages, strict=True)):
        expected, name, rule = one.steps.value, one.stage.task.name, one.stage.goal
        if not math.isfinite(expected):
            got = one.steps.status.value
            raise InvalidSpec(f"The plan must forecast when every stage ends, got {got} for {name!r}.")
        goal = None if criterion == "steps" or rule is None else method.goal_accuracy(place, rule)
        limit = math.inf if goal is None else max(math.ceil(most * expected), LEAST_LIMIT)
        text = f"for {expected:g} steps" if goal is None else f"until {rule.text}"
        watch = BatchWatch(expected, _measure(forecast, k, criterion, goal, window), goal, every)
        feed = _feed(loaders[name], name)
        runs.append(StageRun(name, text, limit, watch.begin, feed, expected_steps=expected, warnings=watch.warnings))
    return Loop(runs, spec=f"{forecast.provenance.spec_hash} {criterion}", strict=False).start()


def _feed(source: object, name: str) -> Callable[[int], tuple[object, object]]:
    """Return a function that gives the batches of a loader one after the other, however they are numbered."""
    batches = repeated_batches(source)
    return lambda number: pair_of(next(batches), f"a batch of {name!r}")


def _measure(forecast: Forecast, k: int, criterion: str, goal: float | None, window: int | None) -> Measure | None:
    """Return what measures the accuracy of a stage."""
    method, place, one = forecast.method.precise, forecast.places[k], forecast.stages[k]
    name, modes = one.stage.task.name, method.readable_modes(place)
    if modes is not None and (criterion == "strength" or goal is None):
        return StrengthMeasure(modes)
    if criterion == "strength":
        raise InvalidSpec(f"criterion 'strength' needs modes on {name!r}. Use 'loss' or 'steps'.", field="criterion")
    if goal is None:
        return None
    losses = method.loss_range(place, forecast.run.states[k + 1])
    if not losses.baseline > 0:
        raise InvalidSpec(f"criterion 'loss' needs something to learn in {name!r}. Use 'steps'.", field="criterion")
    usual = min(max(round(one.steps.value / 20), 1), 50)
    return LossMeasure(losses, usual if window is None else count("window", window))


def _check_names(tasks: Sequence[Task], loaders: Mapping[str, object]) -> None:
    """Refuse different tasks with one name, and tasks without a loader."""
    names = [task.name for task in {id(task): task for task in tasks}.values()]
    for name in names:
        if names.count(name) > 1:
            raise InvalidSpec(f"Two tasks are called {name!r}. Rename one with task.renamed(...).", field="stages")
        if name not in loaders:
            given = ", ".join(map(repr, loaders)) or "none"
            raise InvalidSpec(f"loaders must map {name!r} to its batches, got {given}.", field="loaders")
