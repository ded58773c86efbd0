"""Report of `learncast forget`: what will be forgotten when I train on the next task?"""

from __future__ import annotations

import math
from functools import partial

import xarray as xr

from learncast import Forecast, InvalidSpec, follow
from learncast.display import Plot, Table, format_count, format_loss
from learncast.planning.forget import stages_of
from learncast.report.report import Report, method_note, picture
from learncast.study import Study

#: Explanation of the steps of a stage that is trained to convergence.
SETTLED = "Stages that converge have no last step; named is the step of the stage from which losses stay within 1%."


#: Rise of a loss, as a share of the largest loss before training, from which it is marked as forgetting.
FORGOTTEN = 1e-9


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
    counted = any(stage.goal is not None for stage in forecast.requested)
    names, after = [task.name for task in forecast.tasks], "Loss after each stage"
    padded = change.drop_vars("steps").pad(stage=(1, 0)).assign_coords(stage=loss["stage"])
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
        lead=(_steps_sentence(forecast) if counted and forecast.trust.holds else "") + _lead(forecast, loss, change),
        trust=forecast.trust,
        values=values,
        tables=[
            *([forecast.table] if counted else []),
            _losses_table(forecast, loss, change),
        ],
        dataset=xr.Dataset({"loss_after": loss.drop_vars("steps"), "forgetting": padded}),
        draw=partial(picture, forecast.plot, Plot.of("loss_matrix", loss, title=after).on, width=4.2, height=3.2),
        provenance=forecast.provenance,
        study=study,
    )


def _steps_sentence(forecast: Forecast) -> str:
    """Steps of all stages, and of direct training."""
    direct = "" if forecast.direct is None else f" Training {forecast.target.name!r} directly takes {forecast.direct}."
    return f"All stages take {forecast.steps}.{direct} "


def _lead(forecast: Forecast, loss: xr.DataArray, change: xr.DataArray) -> str:
    """The worst forgetting, or the condition that fails."""
    if not forecast.trust.holds:
        return method_note(forecast.method, forecast.trust)
    tasks = [f'"{task.name}"' for task in forecast.tasks]
    later = [(float(change.values[k, j]), j, k) for k in range(1, len(tasks)) for j in range(k)]
    note = "".join(f"\n\nNote: {remark}." for remark in forecast.remarks)
    if not later:
        return f"{tasks[0]} is the only task; nothing can be forgotten.{note}"
    worst, task, stage = max(later)
    if math.isnan(worst):
        return f"The loss of {tasks[task]} could not be computed to the end.{note}"
    before, after = (format_loss(float(loss.values[k, task])) for k in (stage, stage + 1))
    sentence = (
        "Nothing is forgotten: no earlier task's loss rises in any later stage."
        if worst <= 0
        else f"Training {tasks[stage]} raises the loss of {tasks[task]} from {before} to {after}, the most that any "
        "stage does to an earlier task."
    )
    return sentence + method_note(forecast.method, forecast.trust) + note


def _losses_table(forecast: Forecast, loss: xr.DataArray, change: xr.DataArray) -> Table:
    """Loss of every task after every stage; an arrow marks what is forgotten."""
    curves, rows = forecast.curves(points=2), [("start", "", *map(format_loss, loss.values[0].tolist()))]
    lengths = curves["time"].values[1::2] - curves["time"].values[::2]
    converging = False
    for made, length, losses, rises in zip(forecast.stages, lengths, loss.values[1:], change.values, strict=True):
        steps = made.steps.count
        if made.stage.goal is None and math.isinf(float(made.stage.steps or 0.0)):
            steps, converging = f"settled after {format_count(length)}", True
        marks = ["↑ " if rise > FORGOTTEN * float(loss.values[0].max()) else "" for rise in rises]
        cells = [mark + format_loss(float(value)) for mark, value in zip(marks, losses, strict=True)]
        rows.append((f"after {made.task.name}", steps, *cells))
    notes = [f"Loss: {loss.attrs['long_name']}. ↑: it rose in this stage, which is forgetting."]
    columns = ("stage", "steps", *(str(name) for name in loss["task"].values))
    return Table("Loss of each task", columns, rows, [*notes, SETTLED] if converging else notes)
