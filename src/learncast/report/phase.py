"""Report of `learncast phase`: where in parameter space does pretraining pay?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from learncast._core.progress import Progress, check_time, silent
from learncast._core.validation import FloatArray
from learncast.display import Table, format_count, format_number
from learncast.planning.phase import phase
from learncast.report.report import Report, spread_rows
from learncast.results import Provenance
from learncast.study import Study
from learncast.theory.assumptions import ASSUMPTIONS, Assumption, Trust

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    dataset = phase(
        study.target,
        study.network,
        study.training,
        vary=vary,
        values=values,
        accuracies=accuracies,
        goal=study.goal,
        method=method,
        strict=False,
        progress=progress,
    )
    # The portrait measured each condition over the target and every first task.
    measured = tuple(Assumption(name, float(value)) for name, value in dataset.attrs.items() if name in ASSUMPTIONS)
    held = dataset.attrs["forecast_class"]
    trust = Trust(measured, "exact" if held == "outside" else held)
    saved, direct = dataset["saved_descent_steps"].values, float(dataset["direct_descent_steps"])
    if np.isnan(saved).all():
        check_time()  # out of time before the first value
    where = np.unravel_index(int(np.nanargmax(np.where(np.isnan(saved), -np.inf, saved))), saved.shape)
    best = float(saved[where])
    own = study.target.recipe.parameters[vary] if study.target.recipe else None
    value, stop = float(values[where[0]]), float(accuracies[where[1]])
    # In large grids descent is counted at the best points only; elsewhere the flow decides whether pretraining pays.
    known = ~np.isnan(dataset["total_steps"].values)
    share = np.mean(np.where(np.isnan(saved), dataset["speedup_steps"].values, saved)[known] > 0)
    direct_text = f"{format_count(direct)} gradient steps (flow: {format_number(float(dataset['direct_steps']))})"
    lead = (
        f"Pretraining pays most at {vary.replace('_', ' ')} {value:.4g} stopped at {stop:.4g}: it saves "
        f"{format_count(best)} of {direct_text}. It pays at {share:.0%} of this grid."
        if best > 0
        else f"Pretraining pays nowhere on this grid; direct training takes {direct_text}."
    )
    if "incomplete" in dataset.attrs:
        lead = f"Out of time: {dataset.attrs['incomplete']}. {lead}"
    if not trust.holds:
        lead = f"The theory does not hold on all of this grid ({trust.names}); read it as an approximation. {lead}"

    def draw() -> Figure:
        from learncast.figures import page, portrait

        figure, (ax,) = page(width=6.0, height=4.4)
        portrait(
            dataset, ax, target_value=float(own) if own is not None and np.ndim(own) == 0 else None, title=study.name
        )
        return figure

    return Report(
        kind="phase",
        title=f"{study.name}: where pretraining pays",
        lead=lead,
        trust=trust,
        values={
            "target": study.target.name,
            "method": dataset.attrs["method"],
            "vary": vary,
            "values": values,
            "accuracies": accuracies,
            "direct_steps": float(dataset["direct_steps"]),
            "direct_descent_steps": direct,
            "best": {"value": value, "accuracy": stop, "saved_descent_steps": best},
            "speedup_steps": dataset["speedup_steps"].values,
            "total_steps": dataset["total_steps"].values,
            "total_descent_steps": dataset["total_descent_steps"].values,
            **({"singular_accuracy": dataset["singular_accuracy"].values} if "singular_accuracy" in dataset else {}),
        },
        tables=[_best_stops(vary, values, accuracies, saved, dataset["total_descent_steps"].values)],
        dataset=dataset,
        draw=draw,
        provenance=Provenance.from_attributes(dataset.attrs),
        study=study.resolved(),
    )


def _best_stops(vary: str, values: FloatArray, accuracies: FloatArray, saved: FloatArray, total: FloatArray) -> Table:
    """The stop that saves most for each first task, in steps of descent."""
    rows = []
    picks, notes = spread_rows(len(values), 15)
    for i in picks:
        k = int(np.nanargmax(np.where(np.isnan(saved[i]), -np.inf, saved[i])))
        rows.append((f"{values[i]:.4g}", f"{accuracies[k]:.4g}", format_count(total[i, k]), format_count(saved[i, k])))
    columns = (vary.replace("_", " "), "best stop on this grid", "total steps", "saves")
    return Table("Best stop for each first task", columns, rows, notes)
