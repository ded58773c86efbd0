"""Own data: how long a network takes to learn dropped trials, and whether scaled targets should come first."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from learncast import Accuracy, InvalidSpec, LinearRNN, Plan, Task, Terms, plan
from learncast.study.study_file import to_toml
from learncast.tasks.recorded.files import from_file
from learncast.web.chart import Chart, ChartAxis, Series, Trace
from learncast.web.uploads import UPLOADS
from learncast.web.view import Clock, Note, Reading, View, condition_warnings, validity_report

#: Suffixes of files that can be dropped.
SUFFIXES = (".npz", ".csv")
#: Factors by which the targets of the first tasks are scaled.
STRENGTHS = (0.5, 1.5, 2.0, 3.0)
#: Points of a curve, and seconds that a plan may take.
_POINTS, _SECONDS = 200, 15.0


class OwnDataSettings(NamedTuple):
    """The dropped file's token, and the settings of the network and its training."""

    data: str
    recurrence: float
    initial: float
    hidden_size: int
    learning_rate: float
    accuracy: float

    def network(self, target: Task) -> dict[str, Any]:
        """Return the network's settings; it has at least as many units as the task has modes."""
        units = max(self.hidden_size, min(target.inputs, target.outputs))
        return {"hidden_size": units, "recurrence": self.recurrence, "initial": self.initial}


def tasks_of(token: str) -> tuple[Task, ...]:
    """Return the dropped trials as a task, then with scaled targets unless these are classes."""
    name = UPLOADS.file(token)[0]
    if Path(name).suffix.lower() not in SUFFIXES:
        remedy = "Save them with numpy.savez(file, inputs=..., targets=...)."
        raise InvalidSpec(f"Trials must be in a {' or '.join(SUFFIXES)} file, got {name!r}. {remedy}", field="data")
    return UPLOADS.read(token, "tasks", lambda path: _read(path, Path(name).stem))


def _read(path: Path, name: str) -> tuple[Task, ...]:
    own = from_file(path, name=name)
    if own.recording is not None and own.recording.classes is not None:
        return (own,)
    return (own, *(_scaled(own, strength) for strength in STRENGTHS))


def _scaled(task: Task, strength: float) -> Task:
    """Return the task with every target multiplied by a factor."""
    stretch = strength * np.eye(task.outputs)
    return task.replaced(
        cross_covariance=task.cross_covariance.rotated(np.eye(task.inputs), stretch),
        target_covariance=task.target_covariance and task.target_covariance.rotated(stretch, stretch),
        name=f"targets × {strength:g}",
        recording=task.recording and task.recording.with_targets_times(strength),
    )


@lru_cache(maxsize=32)
def planned(settings: OwnDataSettings) -> Plan:
    """Return the plan of `learncast.plan` for the trials, with the scaled targets as candidates."""
    own, *firsts = tasks_of(settings.data)
    terms = Terms(Accuracy(settings.accuracy), max_stages=2 if firsts else 1)
    network = LinearRNN.aligned(task=own, **settings.network(own))
    return plan(own, firsts, network, learning_rate=settings.learning_rate, terms=terms, strict=False, seconds=_SECONDS)


def comparison(settings: OwnDataSettings) -> View:
    """Show the total steps of direct training and after each first task."""
    best = planned(settings)
    totals = {"train directly": best.direct_steps}
    for candidate in best.candidates:
        totals[candidate.task.name] = candidate.forecast.steps.descent
    steps = np.array(list(totals.values()), dtype=float)
    bars = Trace("bars", "data", "total steps", tuple(totals), np.where(np.isfinite(steps), steps, np.nan))
    title = f"Steps to learn {best.target.name}, by first task"
    chart = Chart("firsts", title, ChartAxis("first task"), ChartAxis("total steps", "steps"), (bars,), side=True)
    answer, _, rest = best.summary.partition(". ")
    notes = condition_warnings(best.trust.assumptions)
    if len(best.pool) == 0:
        notes = (*notes, Note("Targets that are classes cannot be scaled, so no first task is compared."))
    validity = validity_report(best.forecast_class, best.trust.assumptions)
    return View((chart,), validity, _readings(best), notes, rest, answer=f"{answer}.")


def _readings(best: Plan) -> tuple[Reading, ...]:
    target = best.target
    trials = f"{target.trials:,}" if target.trials else "unknown"
    direct = Reading.counted("direct training", replace(best.direct, low=math.nan, high=math.nan))
    return (
        direct if best.counted else Reading.steps("direct training", best.direct_steps),
        Reading.steps("with the plan", best.total, best.interval),
        Reading.steps("saved", best.saving, best.saving_interval),
        Reading.flow("direct training", best.direct.flow),
        Reading("trials", float(target.trials or math.nan), "trials", trials),
        Reading("steps in a trial", float(target.steps), "steps", f"{target.steps}"),
    )


def loss_curves(settings: OwnDataSettings) -> View:
    """Show the loss of the trials over training, with the plan and directly."""
    best = planned(settings)
    direct = best.follow([best.stages[-1]])
    curves = [(Series.CURRICULUM, best.best, "curriculum"), (Series.DIRECT, direct, "direct training")]
    ends = [curve.steps.flow for _, curve, _ in curves if math.isfinite(curve.steps.flow)]
    last = 1.1 * max(ends, default=0.0) or 1.0
    times = np.linspace(0.0, last, _POINTS)
    traces = tuple(
        Trace("line", "data", name, times, curve.at(times).dataset["target_loss"].values, series=series)
        for series, curve, name in (curves if best.pretrains else curves[1:])
    )
    axis = ChartAxis("training time", "steps", span=(0.0, last), clock=True)
    chart = Chart("loss", f"Loss of {best.target.name}", axis, ChartAxis("loss", "target^2"), traces, main=True)
    return View((chart,), clock=Clock.until(last))


def study_of(settings: OwnDataSettings) -> str:
    """Return a study that forecasts direct training on the dropped file, which must lie in the same folder."""
    name, (target, *_) = UPLOADS.file(settings.data)[0], tasks_of(settings.data)
    tables = {
        "name": Path(name).stem,
        "network": {"kind": "linear-rnn", **settings.network(target)},
        "training": {"learning_rate": settings.learning_rate, "accuracy": settings.accuracy},
        "target": {"data": name},
    }
    return (
        "# learncast forecast this-file.toml\n"
        f"# Save this file next to {name!r}. For a plan, add first tasks as [[candidates]].\n{to_toml(tables)}"
    )
