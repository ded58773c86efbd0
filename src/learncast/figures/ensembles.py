"""Pictures of many networks of several kinds, trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize

from learncast.figures.page import COLOURS, THEORY, axis_label, label

#: Colour and marker by kind of hidden units, the colours as near to the paper's red, blue and green as is safe.
KINDS = {"linear": (COLOURS[1], "o"), "tanh": (COLOURS[0], "s"), "relu": (COLOURS[2], "^")}
#: How the kinds are written.
NAMES = {"relu": "ReLU"}


def agreement_by_kind(
    predicted: xr.DataArray, measured: xr.DataArray, ax: Axes, *, legend: bool = True, title: str = ""
) -> Axes:
    """Measured against predicted for each kind of network, with the line on which they are equal.

    Parameters
    ----------
    predicted : DataArray over network
    measured : DataArray over (kind, network)
    ax : Axes
    legend : bool
        Draw one, beside the axes.
    title : str
    """
    # Linear networks lie on the line; drawn last they stay visible.
    for kind in reversed(measured["kind"].values.tolist()):
        colour, marker = KINDS[kind]
        spots: dict[str, Any] = {"color": colour, "markersize": 4.5, "alpha": 0.7, "label": NAMES.get(kind, kind)}
        ax.plot(predicted, measured.sel(kind=kind), marker, **spots)
    ends = [0.0, 1.05 * float(predicted.max())]
    ax.plot(ends, ends, **THEORY, label="as told")
    ax.set_ylim(bottom=0.0)
    if legend:
        handles, names = ax.get_legend_handles_labels()
        places: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
        ax.legend(handles[::-1], names[::-1], frameon=False, fontsize=8, **places)
    return label(ax, x=axis_label(predicted), y=axis_label(measured), title=title)


def spread_by_kind(
    values: xr.DataArray, ax: Axes, *, ceiling: float | None = None, legend: bool = True, title: str = ""
) -> Axes:
    """Every network's value at a few moments on a logarithmic axis, kinds side by side, medians as bars.

    Parameters
    ----------
    values : DataArray over (when, kind, network)
    ax : Axes
    ceiling : float, optional
        The largest value there can be, a thin line.
    legend : bool
        Draw one, beside the axes.
    title : str
    """
    places, kinds = np.arange(values.sizes["when"]), values["kind"].values.tolist()
    for k, kind in enumerate(kinds):
        colour, marker = KINDS[kind]
        aside = places + 0.26 * (k - (len(kinds) - 1) / 2)
        shown = values.sel(kind=kind).transpose("when", "network").values
        for i, row in enumerate(shown):
            named = None if i else NAMES.get(kind, kind)
            ax.semilogy(np.full(len(row), aside[i]), row, marker, color=colour, markersize=3.5, alpha=0.4, label=named)
        ax.semilogy(aside, np.median(shown, axis=1), "_", color="black", markersize=16, markeredgewidth=1.6)
    ax.set_xticks(places, [str(name) for name in values["when"].values])
    ax.set_xlim(-0.5, len(places) - 0.5)
    if ceiling is not None:
        ax.axhline(ceiling, color="grey", linewidth=0.8)
        where: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        ax.annotate("largest possible", (0.02, ceiling), xytext=(0, -11), fontsize=8, color="dimgrey", **where)
    if legend:
        ax.plot([], [], "_", color="black", markersize=10, markeredgewidth=1.6, label="median")
        ax.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return label(ax, x="", y=axis_label(values), title=title)


def told_and_trained(
    told: xr.DataArray,
    trained: xr.DataArray,
    ax: Axes,
    *,
    rows: Sequence[str],
    limit: float,
    bar: bool = True,
    title: str = "",
) -> Axes:
    """Two tables in one: each square holds what was told above its diagonal and what was trained below, as numbers too.

    Parameters
    ----------
    told, trained : DataArray, two-dimensional, the second dimension ``task``
    ax : Axes
    rows : sequence of str
        Names of the rows.
    limit : float
        Size at which the colours saturate, so that tables side by side can be compared.
    bar : bool
        Draw the colour scale.
    title : str
    """
    signed = min(float(told.min()), float(trained.min())) < -1e-9 * limit
    norm, colours = (Normalize(-limit, limit), "RdBu_r") if signed else (Normalize(0.0, limit), "Reds")
    for values, corners in ((told, ((0, 0), (1, 0), (0, 1))), (trained, ((1, 1), (1, 0), (0, 1)))):
        corner, shape = np.array(corners) - 0.5, values.shape
        places = [corner + np.array([j, i]) for i, j in np.ndindex(shape)]
        half = PolyCollection(places, cmap=colours, norm=norm, linewidths=0.3, edgecolors="face")
        half.set_array(values.values.ravel())
        ax.add_collection(half)
        for (i, j), middle in zip(np.ndindex(shape), places, strict=True):
            value, (x, y) = float(values[i, j]), 0.85 * middle.mean(axis=0) + 0.15 * middle[0]
            ink = "white" if abs(value) > 0.6 * limit else "black"
            ax.text(x, y, f"{value:.1f}", ha="center", va="center", fontsize=6.5, color=ink)
    ax.set(xlim=(-0.5, told.shape[1] - 0.5), ylim=(told.shape[0] - 0.5, -0.5), aspect="equal")
    ax.spines[:].set_visible(True)
    ax.tick_params(length=0)
    ax.set_yticks(range(len(rows)), rows)
    ax.set_xticks(
        range(told.shape[1]),
        [str(task) for task in told["task"].values],
        rotation=60,
        ha="right",
        rotation_mode="anchor",
    )
    if bar:
        scale = ax.figure.colorbar(half, ax=ax, shrink=0.75)
        scale.set_label(axis_label(told), fontsize=9)
        scale.ax.tick_params(labelsize=8)
    return label(ax, x="", y="", title=title)


def escapes(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Time that training and theory spend on a saddle against the noise that pushes them off.

    Parameters
    ----------
    dataset : Dataset
        ``measured_escape`` and ``integrated_escape`` over (draw, noise); ``unkicked_escape`` and ``one_layer_step``.
    ax : Axes
    title : str
    """
    noise, measured = dataset["noise"], dataset["measured_escape"]
    for k, (spots, line) in enumerate(zip(measured.values, dataset["integrated_escape"].values, strict=True)):
        ax.semilogx(noise, spots, "o", color=COLOURS[0], markersize=5, alpha=0.7, label=None if k else "training")
        ax.semilogx(noise, line, **THEORY | {"linewidth": 1.2}, label=None if k else "flow")
    for name, text, colour in (
        ("unkicked_escape", "training without noise: round-off alone", COLOURS[3]),
        ("one_layer_step", "one layer", COLOURS[2]),
    ):
        height = float(dataset[name])
        if np.isfinite(height):
            place: dict[str, Any] = {"xytext": (0, 3), "textcoords": "offset points", "fontsize": 8}
            ax.axhline(height, color=colour, linewidth=1.4, linestyle="--")
            ax.annotate(text, (float(noise.min()), height), color=colour, **place)
    ax.set_ylim(bottom=0.0)
    ax.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0.0, 0.12))
    return label(ax, x=axis_label(noise), y="steps until half the saddle's loss is left", title=title)
