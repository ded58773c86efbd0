"""Report of `learncast forget`: what will be forgotten when I train on the next task?"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import xarray as xr

from learncast import Forecast, InvalidSpec, follow
from learncast.display import Table, format_loss
from learncast.planning.forget import stages_of
from learncast.report.report import Report, method_note
from learncast.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def forget_report(study: Study, *, method: str = "auto") -> Report:
    """Forecast every task's loss after every stage of the study's sequence."""
    if not study.sequence:
        raise InvalidSpec(f"{study.source} needs a [[sequence]] table for each task, got none.", field="sequence")
    stages = stages_of(*zip(*study.sequence, strict=True))
    forecast = follow(stages, study.network, study.training, method=method, strict=False)
    return of_sequence(forecast, name=study.name, study=study.resolved())


def of_sequence(forecast: Forecast, *, name: str = "", study: str = "") -> Report:
    """Report what a network forgets of earlier tasks while it learns several in sequence.

    Parameters
    ----------
    forecast : Forecast
    name, study : str
        Name and content of the study; by default the target's name and nothing.
    """
    loss, change = forecast.losses(), forecast.forgetting
    names = [task.name for task in forecast.tasks]
    values: dict[str, object] = {
        "tasks": names,
        "learning_rate": forecast.learning_rate,
        "method": forecast.method.name,
        "stages": [
            {"task": stage.task.name, "steps": stage.steps if stage.goal is None else made.steps.value}
            for stage, made in zip(forecast.requested, forecast.stages, strict=True)
        ],
        "loss": loss.values,
        "forgetting": change.values,
        "loss_rows": ["start", *names],
        "loss_is": loss.attrs["long_name"],
        "remarks": list(forecast.remarks),
    }
    return Report(
        kind="forget",
        title=f"{name or forecast.target.name}: what is forgotten",
        lead=_lead(forecast, change),
        trust=forecast.trust,
        values=values,
        tables=[
            _table("Loss of each task", loss, format_loss, (f"Loss: {loss.attrs['long_name']}",)),
            _table(
                "Change over each stage",
                change,
                _signed,
                ("A positive change is forgetting", "Changes are differences of losses before rounding"),
            ),
        ],
        dataset=xr.Dataset(
            {
                "loss_after": loss.drop_vars("steps"),
                "forgetting": change.drop_vars("steps").pad(stage=(1, 0)).assign_coords(stage=loss["stage"]),
            }
        ),
        draw=lambda: _draw(loss, forecast),
        provenance=forecast.provenance,
        study=study,
    )


def _lead(forecast: Forecast, change: xr.DataArray) -> str:
    """The worst forgetting, or the condition that fails."""
    if not forecast.trust.holds:
        return method_note(forecast.method, forecast.trust)
    tasks = [f'"{task.name}"' for task in forecast.tasks]
    later = [(float(change.values[k, j]), j, k) for k in range(1, len(tasks)) for j in range(k)]
    note = "".join(f" Note: {remark}." for remark in forecast.remarks)
    if not later:
        return f"{tasks[0]} is the only task; nothing can be forgotten.{note}"
    worst, task, stage = max(later)
    if math.isnan(worst):
        return f"The loss of {tasks[task]} could not be computed to the end.{note}"
    sentence = (
        "Nothing is forgotten: no earlier task's loss rises in any later stage."
        if worst <= 0
        else f"Training {tasks[stage]} raises the loss of {tasks[task]} by {format_loss(worst)}, the most that any "
        "stage does to an earlier task."
    )
    return sentence + method_note(forecast.method, forecast.trust) + note


def _signed(change: float) -> str:
    return f"+{format_loss(change)}" if change > 0 else format_loss(change)


def _table(title: str, values: xr.DataArray, text: Callable[[float], str], notes: tuple[str, ...]) -> Table:
    rows = [
        (str(stage) if stage == "start" else f"after {stage}", *map(text, row))
        for stage, row in zip(values["stage"].values, values.values, strict=True)
    ]
    return Table(title, ("stage", *(str(t) for t in values["task"].values)), rows, [f"{n}." for n in notes])


def _draw(loss: xr.DataArray, forecast: Forecast) -> Figure:
    from learncast.figures import loss_matrix, page

    figure, axes = page(1, 2, width=4.2, height=3.2)
    forecast.plot(axes[0])
    loss_matrix(loss, axes[1], title="Loss after each stage")
    return figure
