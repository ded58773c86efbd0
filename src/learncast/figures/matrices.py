"""Pictures of matrices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize

from learncast.figures.page import label

#: White at 0, told apart by every kind of colour vision.
DIVERGING = "RdBu_r"


def matrix(
    values: xr.DataArray,
    ax: Axes,
    *,
    limit: float | None = None,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    borders: Sequence[int] = (),
    bar: bool = True,
    title: str = "",
) -> Axes:
    """One matrix as a heat map, red above 0 and blue below.

    Parameters
    ----------
    values : DataArray, two-dimensional
        Rows are drawn from the top.
    ax : Axes
    limit : float, optional
        Size at which the colours saturate; the largest entry's by default.
    rows, columns : sequence of str, optional
        Names instead of no ticks.
    borders : sequence of int
        Lines before these rows and columns, to mark blocks.
    bar : bool
        Draw the colour scale.
    title : str
    """
    top = float(np.abs(values).max()) if limit is None else limit
    image = ax.imshow(values, cmap=DIVERGING, vmin=-(top or 1.0), vmax=top or 1.0, interpolation="nearest")
    for place in borders:
        ax.axhline(place - 0.5, color="black", linewidth=0.8)
        ax.axvline(place - 0.5, color="black", linewidth=0.8)
    _frame(ax, rows, columns)
    if bar:
        ax.figure.colorbar(image, ax=ax, shrink=0.8).ax.tick_params(labelsize=8)
    return label(ax, x="", y="", title=title)


def split_matrix(
    upper: xr.DataArray,
    lower: xr.DataArray,
    ax: Axes,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    scale: str = "",
    title: str = "",
) -> Axes:
    """Two matrices in one: each square holds an entry of the first above its diagonal and of the second below.

    Parameters
    ----------
    upper, lower : DataArray, two-dimensional
        Predicted and measured, say. Equal entries make squares of one colour. The number is that of `upper`.
    ax : Axes
    rows, columns : sequence of str
    scale : str
        What the colours mean.
    title : str
    """
    top = max(float(np.abs(upper).max()), float(np.abs(lower).max())) or 1.0
    signed = min(float(upper.min()), float(lower.min())) < -1e-9 * top
    norm, colours = (Normalize(-top, top), DIVERGING) if signed else (Normalize(0.0, top), "Reds")
    for values, corners in ((upper, ((0, 0), (1, 0), (0, 1))), (lower, ((1, 1), (1, 0), (0, 1)))):
        corner = np.array(corners) - 0.5
        places = [corner + np.array([j, i]) for i in range(len(rows)) for j in range(len(columns))]
        half = PolyCollection(places, cmap=colours, norm=norm, linewidths=0.3, edgecolors="face")
        half.set_array(values.values.ravel())
        ax.add_collection(half)
    for i, row in enumerate(upper.values):
        for j, value in enumerate(row):
            dark = abs(value) > 0.6 * top
            ax.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=7.5, color="white" if dark else "black")
    ax.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5), aspect="equal")
    _frame(ax, rows, columns)
    bar = ax.figure.colorbar(half, ax=ax, shrink=0.75)
    bar.set_label(scale, fontsize=9)
    bar.ax.tick_params(labelsize=8)
    return label(ax, x="", y="", title=title)


def _frame(ax: Axes, rows: Sequence[str] | None, columns: Sequence[str] | None) -> None:
    ax.spines[:].set_visible(True)
    ax.tick_params(length=0)
    ax.set_yticks(range(len(rows or ())), rows or ())
    ax.set_xticks(
        range(len(columns or ())),
        columns or (),
        rotation=60 if columns else 0,
        ha="right" if columns else "center",
        rotation_mode="anchor",
    )
