"""Pictures of training beside its forecast."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from learncast.figures.page import COLOURS, THEORY, label


def training_over_theory(
    theory: xr.Dataset,
    runs: Sequence[xr.Dataset],
    ax: Axes,
    *,
    name: str = "training",
    colour: int = 0,
    title: str = "",
) -> Axes:
    """Runs of several seeds in colour, theory dotted over them: strengths where both have them, losses otherwise.

    Parameters
    ----------
    theory : Dataset
        ``strength`` over (time, mode) or ``loss`` over time.
    runs : sequence of Dataset
        The same from training, one for each seed.
    ax : Axes
    name : str
        What the runs are, for the legend.
    colour : int
        Which of the house colours.
    title : str
    """
    quantity = "strength" if "strength" in theory and all("strength" in run for run in runs) else "loss"
    for k, run in enumerate(runs):
        values = np.atleast_2d(run[quantity].transpose(..., "time").values)
        for j, row in enumerate(values):
            named = name if k == 0 and j == 0 else None
            ax.plot(run["time"], row, color=COLOURS[colour], linewidth=1.4, alpha=0.5, label=named)
    first = "theory" not in [text.get_label() for text in ax.lines]
    for j, row in enumerate(np.atleast_2d(theory[quantity].transpose(..., "time").values)):
        ax.plot(theory["time"], row, **{**THEORY, "label": "theory" if first and j == 0 else None})
    ax.legend(frameon=False, fontsize=8, loc="lower right" if quantity == "strength" else "upper right")
    y = "strength u" if quantity == "strength" else "loss (target^2)"
    return label(ax, x="training time (gradient steps)", y=y, title=title)


def predicted_and_measured(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Measured steps of every seed and their mean beside the prediction, plan by plan.

    Parameters
    ----------
    dataset : Dataset
        ``measured_steps`` over (plan, seed), ``measured_mean`` and ``predicted_descent_steps`` over plan.
    ax : Axes
    title : str
    """
    rows = np.arange(dataset.sizes["plan"])
    measured = dataset["measured_steps"].values
    for row, values in zip(rows, measured, strict=True):
        spots = np.full(np.isfinite(values).sum(), row)
        named = "one run" if row == 0 else None
        ax.plot(values[np.isfinite(values)], spots, "o", color=COLOURS[0], alpha=0.35, markersize=5, label=named)
    ax.plot(dataset["measured_mean"], rows, "|", color=COLOURS[0], markersize=16, markeredgewidth=2, label="mean")
    ax.plot(
        dataset["predicted_descent_steps"],
        rows,
        "D",
        markerfacecolor="none",
        markeredgecolor="black",
        markersize=6,
        label="predicted",
    )
    names = [str(name) for name in dataset["plan"].values]
    ax.set_yticks(rows, [name if len(name) <= 26 else name[:24] + "…" for name in names])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=3)
    return label(ax, x="gradient steps to the target's accuracy", y="", title=title)
