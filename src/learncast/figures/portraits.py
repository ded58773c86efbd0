"""Pictures of phase portraits."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm

from learncast.figures.page import label


def portrait(
    dataset: xr.Dataset,
    ax: Axes,
    *,
    target_value: float | None = None,
    clip: float = 99.0,
    title: str = "",
) -> Axes:
    """Steps saved over a task parameter and the first task's stopping accuracy.

    Blue saves, red costs, white breaks even (with its contour in black). The dotted red line is the target's own value;
    the cyan line is where the first task ends on the target's optimum.

    Parameters
    ----------
    dataset : Dataset
        What `learncast.phase_portrait` returned.
    ax : Axes
    target_value : float, optional
        The target's value of the varied parameter.
    clip : float
        Percentile of |speedup| at which the colours saturate.
    title : str
    """
    vary = str(dataset.attrs["vary"])
    dataset = dataset.sortby([vary, "accuracy"])
    x, y = dataset["accuracy"].values, dataset[vary].values
    speedup = dataset["speedup_steps"].values
    finite = np.abs(speedup[np.isfinite(speedup)])
    gains = np.clip(speedup, 0, None)[np.isfinite(speedup)]
    top = max(float(np.percentile(gains, clip)) if gains.size else 0.0, 1e-9)
    bottom = max(float(np.percentile(finite, clip)) if finite.size else 0.0, top)
    mesh = ax.pcolormesh(
        x, y, speedup, cmap="RdBu", norm=TwoSlopeNorm(0.0, -bottom, top), shading="nearest", rasterized=True
    )
    known = speedup[np.isfinite(speedup)]
    if min(speedup.shape) > 1 and known.size and known.min() < 0 < known.max():
        ax.contour(x, y, np.where(np.isfinite(speedup), speedup, np.nan), levels=[0.0], colors="black", linewidths=1)
    singular = dataset["singular_accuracy"].values
    inside = np.isfinite(singular) & (singular <= x.max()) & (singular >= x.min())
    if inside.any():
        ax.plot(np.where(inside, singular, np.nan), y, color="cyan", linewidth=1.8)
    if target_value is not None:
        ax.axhline(target_value, color="red", linewidth=1.5, linestyle=":")
    bar = ax.figure.colorbar(mesh, ax=ax)
    bar.set_label("steps saved", fontsize=9)
    bar.set_ticks([_round(v) for v in (-bottom, -bottom / 2, 0.0, top / 2, top)])
    bar.ax.tick_params(labelsize=8)
    return label(
        ax, x="accuracy at which the first task stops", y=f"first task's {vary.replace('_', ' ')}", title=title
    )


def _round(value: float) -> float:
    """Nearest number of two digits towards zero, so that it stays inside the scale."""
    if value == 0:
        return 0.0
    unit = 10 ** (np.floor(np.log10(abs(value))) - 1)
    return float(np.trunc(value / unit) * unit)
