"""Pictures of learning tasks in sequence."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from learncast.figures.page import COLOURS, label


def loss_matrix(loss: xr.DataArray, ax: Axes, *, title: str = "") -> Axes:
    """Loss of every task after every stage, as a heat map with its numbers.

    Parameters
    ----------
    loss : DataArray over (stage, task)
    ax : Axes
    title : str
    """
    values = loss.values
    mesh = ax.imshow(values, cmap="Blues", vmin=0.0, aspect="auto")
    if values.size <= 100:
        middle = float(np.nanmax(values)) / 2
        for i, j in np.ndindex(values.shape):
            colour = "white" if values[i, j] > middle else "black"
            ax.text(j, i, f"{max(values[i, j], 0.0):.3g}", ha="center", va="center", fontsize=8, color=colour)
    ax.set_xticks(range(loss.sizes["task"]), [_short(n) for n in loss["task"].values], rotation=20, ha="right")
    stages = [_short(n) if k == 0 else f"after {_short(n)}" for k, n in enumerate(loss["stage"].values)]
    ax.set_yticks(range(len(stages)), stages)
    bar = ax.figure.colorbar(mesh, ax=ax)
    bar.set_label(str(loss.attrs.get("long_name", "loss")), fontsize=9)
    return label(ax, x="task", y="", title=title)


def forgetting_curves(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Loss of every task over training: solid while it is trained, dotted while another is.

    Parameters
    ----------
    dataset : Dataset
        ``loss`` over (time, task) with ``stage``, as `ContinualLearning.curves` gives.
    ax : Axes
    title : str
    """
    times, stage = dataset["time"].values, dataset["stage"].values
    for k, name in enumerate(dataset["task"].values):
        colour = COLOURS[k % len(COLOURS)]
        losses = dataset["loss"].values[:, k]
        ax.plot(times, losses, color=colour, linewidth=1.4, linestyle=":")
        ax.plot(times, np.where(stage == k, losses, np.nan), color=colour, linewidth=2.4, label=_short(str(name)))
    for k in range(1, int(stage.max()) + 1):
        ax.axvline(times[np.argmax(stage == k)], color="grey", linewidth=0.8)
    ax.legend(frameon=False, fontsize=8)
    return label(ax, x="training time (gradient steps)", y="loss (solid: in training)", title=title)


def _short(name: object) -> str:
    text = str(name)
    return text if len(text) <= 20 else text[:18] + "…"
