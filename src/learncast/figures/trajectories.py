"""Pictures of learning over time."""

from __future__ import annotations

import xarray as xr
from matplotlib.axes import Axes

from learncast.figures.page import COLOURS, THEORY, label


def mode_strengths(
    dataset: xr.Dataset,
    ax: Axes,
    *,
    optimum: xr.DataArray | None = None,
    simulated: xr.Dataset | None = None,
    title: str = "",
) -> Axes:
    """Strength of each mode over training, theory dotted black over coloured simulation.

    Parameters
    ----------
    dataset : Dataset
        With ``strength`` over (time, mode), as `Trajectory.dataset` has.
    ax : Axes
    optimum : DataArray over mode, optional
        Drawn as thin lines.
    simulated : Dataset, optional
        The same from training.
    title : str
    """
    several = dataset.sizes["mode"] > 1
    for k in range(dataset.sizes["mode"]):
        colour = COLOURS[k % len(COLOURS)]
        if simulated is not None:
            series = simulated["strength"].isel(mode=k)
            ax.plot(
                series["time"],
                series,
                color=colour,
                linewidth=3,
                alpha=0.7,
                label=f"mode {k}" if several else "descent",
            )
        series = dataset["strength"].isel(mode=k)
        if simulated is None:
            ax.plot(series["time"], series, color=colour, linewidth=2, label=f"mode {k}" if several else None)
        else:
            ax.plot(series["time"], series, **THEORY, label="theory" if k == 0 else None)
        if optimum is not None:
            ax.axhline(float(optimum[k]), color=colour, linewidth=0.8, linestyle="--", alpha=0.7)
    if several or simulated is not None:
        ax.legend(frameon=False, fontsize=8)
    return label(ax, x="training time (gradient steps)", y="strength u", title=title)
