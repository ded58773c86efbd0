"""Report of `learncast phase`: where in parameter space does pretraining pay?"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from learncast._core.progress import Progress, check_time, silent
from learncast._core.validation import FloatArray
from learncast.display import Columns, Plot, Table, format_count
from learncast.planning.phase import phase
from learncast.report.report import Report, picture, spread_rows
from learncast.results import Provenance, Steps
from learncast.study import Study
from learncast.theory.assumptions import ASSUMPTIONS, Assumption, Trust
from learncast.theory.dynamics.solution import status_of

if TYPE_CHECKING:
    import xarray as xr


def phase_report(
    study: Study,
    *,
    vary: str | None = None,
    values: FloatArray | None = None,
    accuracies: FloatArray,
    method: str = "auto",
    progress: Progress = silent,
) -> Report:
    """Time curricula over a keyword of the target's family and the first task's stop.

    By default the target strength or timescale is varied, from a quarter of the target's own value to four times it.
    """
    parameters = study.target.recipe.parameters if study.target.recipe else {}
    if vary is None:
        vary = next((key for key in ("target_strength", "timescale") if key in parameters), "target_strength")
    if values is None:
        own_value = np.asarray(parameters.get(vary, 1.0), dtype=float)
        values = np.geomspace(0.25, 4.0, 49) * (float(own_value.flat[0]) or 1.0)
    over: dict[str, Any] = {"vary": vary, "values": values, "accuracies": accuracies}
    time = partial(phase, study.target, study.network, study.training, goal=study.goal, method=method, strict=False)
    dataset = time(**over, progress=progress)
    # The portrait measured each condition over the target and every first task.
    measured = tuple(Assumption(name, float(value)) for name, value in dataset.attrs.items() if name in ASSUMPTIONS)
    held = dataset.attrs["forecast_class"]
    trust = Trust(measured, "exact" if held == "outside" else held)
    saved = dataset["saved_descent_steps"].values
    if np.isnan(saved).all():
        check_time()  # out of time before the first value
    row, column = np.unravel_index(int(np.nanargmax(np.where(np.isnan(saved), -np.inf, saved))), saved.shape)
    best = {"value": float(values[row]), "accuracy": float(accuracies[column])}
    best["saved_descent_steps"] = float(saved[row, column])
    own = parameters.get(vary)
    value = float(own) if isinstance(own, int | float | np.number) else None
    drawn: dict[str, object] = {"target_value": value, "title": "Steps saved by a first task"}
    tables = ("speedup_steps", "total_steps", "total_descent_steps", "singular_accuracy")
    return Report(
        kind="phase",
        title=f"{study.name}: where pretraining pays",
        lead=_lead(dataset, trust, best),
        trust=trust,
        values={
            "target": study.target.name,
            "method": dataset.attrs["method"],
            **over,
            **{key: float(dataset[key]) for key in ("direct_steps", "direct_descent_steps")},
            "best": best,
            **{key: dataset[key].values for key in tables if key in dataset},
        },
        tables=[_best_stops(vary, values, accuracies, saved, dataset["total_descent_steps"].values)],
        dataset=dataset,
        draw=partial(picture, Plot.of("portrait", dataset, **drawn).on, width=7.0, height=4.0),
        provenance=Provenance.from_attributes(dataset.attrs),
        study=study.resolved(),
    )


def _lead(dataset: xr.Dataset, trust: Trust, best: dict[str, float]) -> str:
    # In large grids descent is counted at the best points only; elsewhere the flow decides whether pretraining pays.
    gain = dataset["saved_descent_steps"].fillna(dataset["speedup_steps"]).values
    share = np.mean(gain[~np.isnan(dataset["total_steps"].values)] > 0)
    flow, descent = (float(dataset[key]) for key in ("direct_steps", "direct_descent_steps"))
    direct, vary = f"{format_count(descent)} gradient steps", dataset.attrs["vary"]
    edge = ", an edge of this grid" if best["value"] in (dataset[vary].min(), dataset[vary].max()) else ""
    lead = (
        f"On this grid, pretraining pays most on a first task of {vary.replace('_', ' ')} {best['value']:.4g}{edge}, "
        f"stopped at accuracy {best['accuracy']:.3g}: it saves {format_count(best['saved_descent_steps'])} of "
        f"{direct}. It pays at {share:.0%} of the grid."
        if best["saved_descent_steps"] > 0
        else f"Pretraining pays nowhere on this grid; direct training takes {direct}."
    )
    if math.isinf(descent):
        alone = Steps(descent, flow, status=status_of(flow, descent, ()))
        lead = f"Directly, the target {alone.outcome}."
    if "incomplete" in dataset.attrs:
        lead = f"Out of time: {dataset.attrs['incomplete']}. {lead}"
    if not trust.holds:
        lead = f"The theory does not hold on all of this grid ({trust.names}); read it as an approximation. {lead}"
    return lead


def _best_stops(vary: str, values: FloatArray, accuracies: FloatArray, saved: FloatArray, total: FloatArray) -> Table:
    """The stop of the grid that saves most for each first task, in steps of descent."""
    best = np.where(np.isnan(saved), -np.inf, saved).argmax(axis=1)
    gains = saved[np.arange(len(values)), best]
    paying = np.flatnonzero(gains > 0)
    picks, notes = spread_rows(len(paying), 15)
    rows = paying[picks]
    columns: Columns = {
        vary.replace("_", " "): (values[rows], "{:.4g}".format),
        "stop (accuracy)": (accuracies[best[rows]], "{:.4g}".format),
        "total steps": (total[rows, best[rows]], format_count),
        "saves": (gains[rows], format_count),
    }
    if len(paying) < len(values):
        notes = (*notes, f"No stop pays at the other {len(values) - len(paying)} of {len(values)} values.")
    return Table.of("Best stop on this grid for each first task (a plan finds stops between)", columns, notes)
