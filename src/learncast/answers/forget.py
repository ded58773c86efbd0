"""What will be forgotten when I train on the next task?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import xarray as xr

from learncast._core.errors import InvalidSpec
from learncast.answers.answer import Answer, way_taken
from learncast.display import Table, format_number
from learncast.planning.curriculum import Curriculum
from learncast.planning.forgetting import in_sequence
from learncast.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def forgotten(study: Study, *, by: str = "auto") -> Answer:
    """Learn the study's sequence and tell every task's loss after every stage."""
    if not study.sequence:
        raise InvalidSpec(
            f"{study.source} must have a [[sequence]] of tasks, got none. Add a [[sequence]] table for each "
            "task, in order, or ask `learncast plan` about the target."
        )
    tasks, steps = zip(*study.sequence, strict=True)
    found = in_sequence(
        tasks,
        study.network,
        learning_rate=study.learning_rate,
        steps=steps,
        learn=study.named_learn,
        by=by,
        strict=False,
    )
    loss, change = found.losses(), found.forgetting
    names = [task.name for task in tasks]
    values: dict[str, Any] = {
        "tasks": names,
        "learning_rate": study.learning_rate,
        "by": found.ground.by,
        "stages": [{"task": name, "steps": s} for name, s in zip(names, steps, strict=True)],
        "loss": loss.values,
        "forgetting": change.values,
        "loss_rows": ["start", *names],
        "loss_is": loss.attrs["long_name"],
        "remarks": list(found.remarks),
    }
    return Answer(
        kind="forget",
        title=f"{study.name}: what is forgotten",
        lead=_lead(found, change),
        trust=found.trust,
        values=values,
        tables=[_table("Loss of each task", loss, found.remarks), _table("Change over each stage", change, ())],
        dataset=xr.Dataset({"loss_after": loss.drop_vars("steps"), "forgetting": change.drop_vars("steps")}),
        draw=lambda: _drawn(loss, found),
        provenance=found.provenance,
        study=study.resolved(),
    )


def _lead(found: Curriculum, change: xr.DataArray) -> str:
    """The worst that is forgotten; numbers whose ground does not hold do not stand first."""
    if not found.trust.holds:
        return way_taken(found.ground, found.trust)
    tasks = [o.stage.task.name for o in found.outcomes]
    later = [(float(change.values[k, j]), j, k) for k in range(1, len(tasks)) for j in range(k)]
    note = f" Note: {found.remarks[0]}." if found.remarks else ""
    if not later:
        return f"{tasks[0]} is learned alone; nothing can be forgotten.{note}"
    worst, task, stage = max(later)
    if math.isnan(worst):
        return f"What becomes of {tasks[task]} could not be followed to the end.{note}"
    said = (
        "Nothing is forgotten: no earlier task's loss rises in any later stage."
        if worst <= 0
        else f"Training {tasks[stage]} raises the loss of {tasks[task]} by {worst:.4g}, the most that any stage does "
        "to an earlier task."
    )
    return said + way_taken(found.ground, found.trust) + note


def _table(title: str, values: xr.DataArray, notes: tuple[str, ...]) -> Table:
    rows = [
        (str(stage) if stage == "start" else f"after {stage}", *(_loss(v) for v in row))
        for stage, row in zip(values["stage"].values, values.values, strict=True)
    ]
    return Table(title, ("stage", *(str(t) for t in values["task"].values)), rows, [f"{n}." for n in notes])


def _loss(value: float) -> str:
    return format_number(value, 6) if not math.isfinite(value) else f"{0.0 if abs(value) < 1e-12 else value:.6g}"


def _drawn(loss: xr.DataArray, found: Curriculum) -> Figure:
    from learncast.figures import loss_matrix, page

    figure, axes = page(1, 2, width=5.4, height=3.8)
    found.plot(axes[0])
    loss_matrix(loss, axes[1], title="Loss after each stage")
    return figure
