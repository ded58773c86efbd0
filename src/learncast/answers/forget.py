"""What will be forgotten when I train on the next task?"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from learncast.answers.answer import Answer, shown
from learncast.errors import InvalidSpec
from learncast.planning.forgetting import ContinualLearning, IrregularSwitch, learn_in_sequence
from learncast.report import Table
from learncast.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def forgotten(study: Study) -> Answer:
    """Learn the study's sequence and tell every task's loss after every stage."""
    if not study.sequence:
        raise InvalidSpec(
            required=f"{study.source} must have a [[sequence]] of tasks",
            got="none",
            why="forgetting is about tasks learned one after another",
            remedy="add a [[sequence]] table for each task, in order",
        )
    tasks, steps = zip(*study.sequence, strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IrregularSwitch)  # the answer says it in its own words
        found = learn_in_sequence(
            tasks, study.linear_network, learning_rate=study.learning_rate, steps=steps, strict=False
        )
    loss, change = found.loss, found.forgetting
    names = [task.name for task in tasks]
    values: dict[str, Any] = {
        "tasks": names,
        "learning_rate": study.learning_rate,
        "stages": [{"task": name, "steps": s} for name, s in zip(names, steps, strict=True)],
        "loss": loss.values,
        "forgetting": change.values,
        "loss_rows": ["start", *names],
        "loss_is": loss.attrs["long_name"],
        "remarks": list(found.remarks),
    }
    curves = found.curves()
    return Answer(
        kind="forget",
        title=f"{study.name}: what is forgotten",
        lead=_lead(found),
        forecast_class=found.forecast_class,
        values=values,
        tables=[_table("Loss of each task", loss, found.remarks), _table("Change over each stage", change, ())],
        assumptions=found.assumptions,
        dataset=xr.Dataset({"loss_after": loss.drop_vars("steps"), "forgetting": change.drop_vars("steps")}),
        draw=lambda: _drawn(loss, curves),
        provenance=found.provenance,
        study=study.resolved(),
    )


def _lead(found: ContinualLearning) -> str:
    change = found.forgetting.values
    tasks = [t.name for t in found.tasks]
    later = [(change[k, j], j, k) for k in range(1, len(tasks)) for j in range(k)]
    if not later:
        return f"{tasks[0]} is learned alone; nothing can be forgotten."
    worst, task, stage = max(later)
    if worst <= 0:
        return "Nothing is forgotten: no earlier task's loss rises in any later stage."
    return (
        f"Training {tasks[stage]} raises the loss of {tasks[task]} by {worst:.4g}, the most that any stage does to an "
        "earlier task." + (f" Note: {found.remarks[0]}." if found.remarks else "")
    )


def _table(title: str, values: xr.DataArray, notes: tuple[str, ...]) -> Table:
    rows = [
        (str(stage) if stage == "start" else f"after {stage}", *(_loss(v) for v in row))
        for stage, row in zip(values["stage"].values, values.values, strict=True)
    ]
    return Table(title, ("stage", *(str(t) for t in values["task"].values)), rows, [f"{n}." for n in notes])


def _loss(value: float) -> str:
    return shown(value, 6) if not np.isfinite(value) else f"{0.0 if abs(value) < 1e-12 else value:.6g}"


def _drawn(loss: xr.DataArray, curves: xr.Dataset) -> Figure:
    from learncast.figures import forgetting_curves, loss_matrix, page

    figure, axes = page(1, 2, width=5.4, height=3.8)
    forgetting_curves(curves, axes[0], title="Loss over training")
    loss_matrix(loss, axes[1], title="Loss after each stage")
    return figure
