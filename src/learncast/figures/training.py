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


def stop_curves(dataset: xr.Dataset, ax: Axes, *, name: str = "value", title: str = "") -> Axes:
    """Total steps against the first task's stop: training as points, theory dotted, direct training as a band.

    Parameters
    ----------
    dataset : Dataset
        ``measured`` over (value, stop, seed), ``curve`` over (value, fine_stop), and ``direct_measured`` over seed.
    ax : Axes
    name : str
        What the values are, for the legend.
    title : str
    """
    direct = float(dataset["direct_measured"].mean("seed"))
    ax.axhline(direct, color=COLOURS[1], linewidth=2, label="direct training")
    for k, value in enumerate(dataset["value"].values):
        one, colour = dataset.sel(value=value), COLOURS[(5, 0)[k % 2]]
        mean, spread = one["measured"].mean("seed"), one["measured"].std("seed")
        ax.errorbar(
            one["stop"], mean, spread, fmt="o", color=colour, markersize=5, capsize=2, label=f"first {name} {value:g}"
        )
        ax.plot(one["fine_stop"], one["curve"], **{**THEORY, "label": "theory" if k == 0 else None})
    ax.axhline(float(dataset["direct_predicted"]), **THEORY)
    ax.set_ylim(0, None)
    ax.legend(frameon=False, fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    return label(ax, x="accuracy at which the first task stops", y="total gradient steps", title=title)


def predictions(dataset: xr.Dataset, ax: Axes, *, theory: str, title: str = "") -> Axes:
    """Predicted against measured steps of many curricula, coloured by pool.

    Parameters
    ----------
    dataset : Dataset
        The theory's steps and ``measured`` over curriculum, with ``pool``.
    ax : Axes
    theory : str
        Variable of the prediction.
    title : str
    """
    ends = [float(f(dataset[key])) for f in (np.min, np.max) for key in ("measured", theory)]
    span = np.array([0.85 * min(ends), 1.15 * max(ends)])
    ax.plot(span, span, **{**THEORY, "linewidth": 1.2})
    for k, pool in enumerate(dict.fromkeys(dataset["pool"].values.tolist())):
        one = dataset.isel(curriculum=np.flatnonzero(dataset["pool"].values == pool))
        ax.plot(one[theory], one["measured"], "o", color=COLOURS[k], markersize=4, alpha=0.75, label=str(pool))
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.legend(frameon=False, fontsize=7.5, title="first task varies as in", title_fontsize=7.5)
    return label(ax, x="predicted steps", y="measured steps", title=title)
