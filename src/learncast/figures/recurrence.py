"""Pictures of networks that learn their recurrence: trained networks as dots on the theory's lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from learncast.figures.page import COLOURS, axis_label, label

#: Line styles of every second series, so that colour is never alone.
STYLES = ("-", "--")


def networks_on_lines(
    lines: xr.DataArray | None,
    ax: Axes,
    *,
    networks: xr.DataArray | None = None,
    colours: Sequence[str] = COLOURS,
    styles: Sequence[str] = ("-",),
    named: bool = True,
    title: str = "",
) -> Axes:
    """Each series of the theory as a line over one quantity, with trained networks as dots of its colour.

    Parameters
    ----------
    lines : DataArray over (series, x), optional
        The theory; `nan` breaks a line.
    ax : Axes
    networks : DataArray over (series, x, ...), optional
        The same series, or some of them, at fewer values; all further dimensions are dots.
    colours, styles : sequence of str
        Of the series, in turn.
    named : bool
        Name the series in a legend.
    title : str
    """
    some = lines if lines is not None else networks
    assert some is not None
    names = [str(name) for name in some["series"].values]
    x = str(some.dims[1])
    if lines is not None:
        for k, name in enumerate(names):
            ax.plot(
                lines[x],
                lines.isel(series=k),
                color=colours[k % len(colours)],
                linestyle=styles[k % len(styles)],
                linewidth=1.8,
                label=name,
            )
    if networks is not None:
        across = str(networks.dims[1])
        for name in networks["series"].values:
            k, one = names.index(str(name)), networks.sel(series=name)
            heights = one.values.reshape(one.sizes[across], -1)
            places = np.repeat(one[across].values, heights.shape[1])
            face = colours[k % len(colours)] if styles[k % len(styles)] == "-" else "white"
            ax.plot(
                places,
                heights.ravel(),
                "o",
                color=colours[k % len(colours)],
                markerfacecolor=face,
                markersize=5,
                alpha=0.8,
                linestyle="none",
                label=name if lines is None else None,
            )
    if named:
        ax.legend(frameon=False, fontsize=8)
    return label(ax, x=axis_label(some[x]), y=axis_label(some), title=title)


def networks_per_case(predicted: xr.DataArray, networks: xr.DataArray, ax: Axes, *, title: str = "") -> Axes:
    """A predicted value of each case as a black bar, and every network's as a dot.

    Parameters
    ----------
    predicted : DataArray over case
    networks : DataArray over (case, seed)
    ax : Axes
    title : str
    """
    places = np.arange(predicted.sizes["case"], dtype=float)
    ax.hlines(predicted, places - 0.32, places + 0.32, color="black", linestyle=(0, (1, 0.8)), label="one mode, theory")
    count = networks.sizes["seed"]
    for k in range(count):
        shift = 0.4 * ((k + 0.5) / count - 0.5)
        ax.plot(
            places + shift,
            networks.isel(seed=k),
            "o",
            color=COLOURS[0],
            markersize=5,
            alpha=0.8,
            label=None if k else "64-unit networks",
        )
    ax.set_xticks(places, [str(name) for name in predicted["case"].values], rotation=30, ha="right")
    ax.legend(frameon=False, fontsize=8)
    return label(ax, x="", y=axis_label(predicted), title=title)


def basin_map(dataset: xr.Dataset, ax: Axes, *, better_beyond: float | None = None, title: str = "") -> Axes:
    """Where training ends over its start and the task: shaded where history is used, networks as dots.

    Parameters
    ----------
    dataset : Dataset
        ``boundary`` over ``strength``, above which a start ends recurrent (`nan`: none does); and ``network_end`` over
        (network_start, network_strength), the recurrence networks ended with.
    ax : Axes
    better_beyond : float, optional
        The strength beyond which the recurrent end has the lower loss, a dashed line.
    title : str
    """
    r, boundary = dataset["strength"].values, dataset["boundary"].values
    ax.fill_between(r, boundary, 1.0, color=COLOURS[5], alpha=0.35, linewidth=0, label="ends recurrent, theory")
    ax.plot(r, boundary, color="black", linestyle=(0, (1, 1.2)), linewidth=1.8, label="separatrix, theory")
    ends = dataset["network_end"]
    starts, strengths = np.meshgrid(ends["network_start"], ends["network_strength"], indexing="ij")
    used = np.abs(ends.values) > 0.1
    style: dict[str, Any] = {"s": 30, "edgecolors": COLOURS[0], "linewidths": 1.2, "zorder": 3}
    for chosen, face, name in ((used, COLOURS[0], "recurrent"), (~used, "white", "feedforward")):
        ax.scatter(strengths[chosen], starts[chosen], color=face, label=f"network ended {name}", **style)
    if better_beyond is not None:
        ax.axvline(better_beyond, color="grey", linestyle="--", linewidth=1)
        ax.annotate("recurrent is better beyond", (better_beyond, 1.0), fontsize=8, color="dimgrey", va="bottom")
    ax.set(xlim=(float(r.min()), float(r.max())), ylim=(0.0, 1.0))
    ax.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    return label(ax, x=axis_label(dataset["strength"]), y=axis_label(ends["network_start"]), title=title)
