"""Pictures of a task's time course."""

from __future__ import annotations

import xarray as xr
from matplotlib.axes import Axes

from learncast.figures.page import COLOURS, label


def lag_covariances(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Input covariance against lag, one line per correlation.

    Parameters
    ----------
    dataset : Dataset
        ``covariance`` over (correlation, lag).
    ax : Axes
    title : str
    """
    for k, value in enumerate(dataset["correlation"].values):
        ax.plot(
            dataset["lag"],
            dataset["covariance"].isel(correlation=k),
            color=COLOURS[k % len(COLOURS)],
            linewidth=2,
            label=f"K = {value:g}",
        )
    ax.legend(frameon=False, fontsize=8)
    return label(ax, x="lag (steps)", y="input covariance with the last step", title=title)


def integration_profiles(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Weight of each input step in the target, one line per timescale.

    Parameters
    ----------
    dataset : Dataset
        ``weight`` over (timescale, step).
    ax : Axes
    title : str
    """
    for k, value in enumerate(dataset["timescale"].values):
        ax.plot(
            dataset["step"],
            dataset["weight"].isel(timescale=k),
            color=COLOURS[k % len(COLOURS)],
            linewidth=2,
            label=f"{value:g} steps",
        )
    ax.legend(frameon=False, fontsize=8, title="timescale", title_fontsize=8)
    return label(ax, x="step of the trial", y="weight in the target", title=title)
