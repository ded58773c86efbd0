"""Where in parameter space does pretraining pay?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from learncast.answers.answer import Answer, shown
from learncast.assumptions import ASSUMPTIONS, Assumption, exact
from learncast.planning.phase import phase_portrait
from learncast.planning.solving import solve
from learncast.progress import Progress, silent
from learncast.report import Table
from learncast.study import Study
from learncast.validation import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def portrayed(
    study: Study, *, vary: str, values: FloatArray, accuracies: FloatArray, progress: Progress = silent
) -> Answer:
    """Time curricula over a keyword of the target's family and the first task's stop."""
    dataset = phase_portrait(
        study.target,
        study.recurrent_network,
        vary=vary,
        values=values,
        accuracies=accuracies,
        learning_rate=study.learning_rate,
        accuracy=study.accuracy,
        strict=False,
        progress=progress,
    )
    solution = solve(study.target, study.recurrent_network, learning_rate=study.learning_rate, strict=False)
    # The portrait measured each condition over the target and every first task.
    assumptions = [Assumption(name, float(value)) for name, value in dataset.attrs.items() if name in ASSUMPTIONS]
    speedup = dataset["speedup_steps"].values
    where = np.unravel_index(int(np.nanargmax(np.where(np.isnan(speedup), -np.inf, speedup))), speedup.shape)
    best = float(speedup[where])
    own = study.target.recipe.parameters[vary] if study.target.recipe else None
    value, stop = float(values[where[0]]), float(accuracies[where[1]])
    direct = shown(float(dataset["direct_steps"]))
    lead = (
        f"Pretraining pays most at {vary.replace('_', ' ')} {value:.4g} stopped at {stop:.4g}: it saves {shown(best)} "
        f"of {direct} flow steps. It pays at {np.mean(speedup > 0):.0%} of this grid."
        if best > 0
        else f"Nowhere on this grid does pretraining pay; direct training takes {direct} flow steps."
    )

    def draw() -> Figure:
        from learncast.figures import page, portrait

        figure, (ax,) = page(width=6.0, height=4.4)
        portrait(dataset, ax, target_value=float(own) if isinstance(own, int | float) else None, title=study.name)
        return figure

    return Answer(
        kind="phase",
        title=f"{study.name}: where pretraining pays",
        lead=lead,
        forecast_class=solution.forecast_class if exact(assumptions) else "outside",
        values={
            "target": study.target.name,
            "vary": vary,
            "values": values,
            "accuracies": accuracies,
            "direct_steps": float(dataset["direct_steps"]),
            "speedup_steps": speedup,
            "total_steps": dataset["total_steps"].values,
            "singular_accuracy": dataset["singular_accuracy"].values,
        },
        tables=[_best_stops(vary, values, accuracies, speedup, dataset["total_steps"].values)],
        assumptions=assumptions,
        dataset=dataset,
        draw=draw,
        provenance=solution.provenance,
        study=study.resolved(),
    )


def _best_stops(vary: str, values: FloatArray, accuracies: FloatArray, speedup: FloatArray, total: FloatArray) -> Table:
    rows = []
    picks = np.unique(np.linspace(0, len(values) - 1, min(len(values), 15)).round().astype(int))
    for i in picks:
        k = int(np.nanargmax(np.where(np.isnan(speedup[i]), -np.inf, speedup[i])))
        rows.append((f"{values[i]:.4g}", f"{accuracies[k]:.4g}", shown(total[i, k]), shown(speedup[i, k])))
    notes = () if len(picks) == len(values) else (f"{len(picks)} of {len(values)} values shown; all are in the files.",)
    columns = (vary.replace("_", " "), "best stop on this grid", "total flow steps", "saves")
    return Table("Best stop for each first task", columns, rows, notes)
