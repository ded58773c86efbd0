"""Figures of the claims about learnability windows."""

from __future__ import annotations

import xarray as xr
from matplotlib.axes import Axes

from learncast.figures.look import COLOURS, Look
from learncast.figures.page import logarithmic
from learncast.figures.windows import with_key


def dial(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Draw the weight of the longest lag that networks with constant gates have learned, over the drop of the envelope.

    Parameters
    ----------
    dataset : Dataset
        ``dial_drop`` and ``dial_recovered`` over (gate, seed).
    ax : Axes
    title : str

    Returns
    -------
    Axes
        `ax`.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import xarray as xr
    >>> import learncast as lc
    >>> dims = ("gate", "seed")
    >>> dataset = xr.Dataset(
    ...     {"dial_drop": (dims, [[2.0], [9.0]]), "dial_recovered": (dims, [[0.1], [0.4]])}, {"gate": [0.05, 0.5]}
    ... )
    >>> figure, ax = plt.subplots()
    >>> _ = lc.figures.dial(dataset, ax)
    >>> len(ax.lines)
    2
    >>> plt.close(figure)
    """
    for k, gate in enumerate(dataset["gate"].values):
        one = dataset.sel(gate=gate)
        look: Look = {"color": COLOURS[k % len(COLOURS)], "markersize": 3.2, "linestyle": "none"}
        ax.plot(one["dial_drop"], one["dial_recovered"], "o", **look, label=f"s = {gate:g}")
    logarithmic(ax)
    return with_key(ax, "drop of the envelope", "weight of the longest lag", title, fontsize=5.5, loc="best")


def verdicts(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Write the verdict of every claim.

    Parameters
    ----------
    dataset : Dataset
        ``verdict`` over claim.
    ax : Axes
    title : str

    Returns
    -------
    Axes
        `ax`.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import xarray as xr
    >>> import learncast as lc
    >>> dataset = xr.Dataset({"verdict": ("claim", ["holds", "fails"])}, {"claim": ["C1", "C5"]})
    >>> figure, ax = plt.subplots()
    >>> len(lc.figures.verdicts(dataset, ax).texts)
    4
    >>> plt.close(figure)
    """
    colours, rows = {"holds": COLOURS[2], "fails": COLOURS[1], "undecided": "0.5"}, dataset.sizes["claim"]
    for k, (name, verdict) in enumerate(zip(dataset["claim"].values, dataset["verdict"].values, strict=True)):
        height = 1 - (k + 0.5) / rows
        ax.text(0.0, height, str(name), transform=ax.transAxes, va="center", fontsize=6.5)
        ax.text(1.0, height, str(verdict), transform=ax.transAxes, va="center", ha="right", fontsize=6.5).set_color(
            colours[str(verdict)]
        )
    ax.set_axis_off()
    ax.set_title(title, loc="left")
    return ax
