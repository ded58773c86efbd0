"""Figures of networks compared with predictions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from learncast.figures.look import COLOURS, THEORY, Look
from learncast.figures.page import axis_label, key, label, lettered, name_line, with_key

#: Colour and marker by kind of hidden units; the colours are close to those of the paper.
KINDS = {"linear": (COLOURS[1], "o"), "tanh": (COLOURS[0], "s"), "relu": (COLOURS[2], "^")}


#: Displayed names of the kinds.
NAMES = {"relu": "ReLU"}


def agreement_by_kind(
    predicted: xr.DataArray, measured: xr.DataArray, ax: Axes, *, legend: bool = True, title: str = ""
) -> Axes:
    """Draw measured over predicted values for each kind of network, with the line of equality.

    Parameters
    ----------
    predicted : DataArray over network
    measured : DataArray over (kind, network)
    ax : Axes
    legend : bool
        Draw a legend beside the axes.
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
    >>> predicted = xr.DataArray([1.0, 2.0], dims="network", name="richness")
    >>> measured = xr.DataArray(
    ...     [[1.0, 2.0], [0.9, 1.7]],
    ...     dims=("kind", "network"),
    ...     coords={"kind": ["linear", "tanh"]},
    ...     name="measured_richness",
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.agreement_by_kind(predicted, measured, ax).get_ylabel()
    'measured richness'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['equal', 'linear', 'tanh']
    >>> plt.close(figure)
    """
    # Linear networks lie on the line and are drawn last to stay visible.
    for kind in reversed(measured["kind"].values.tolist()):
        colour, marker = KINDS[kind]
        spots: Look = {"color": colour, "markersize": 3, "alpha": 0.7, "label": NAMES.get(kind, kind)}
        ax.plot(predicted, measured.sel(kind=kind), marker, **spots)
    ends = [0.0, 1.05 * float(predicted.max())]
    ax.plot(ends, ends, **THEORY, label="equal")
    ax.set_ylim(bottom=0.0)
    if legend:
        handles, names = ax.get_legend_handles_labels()
        places: Look = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
        key(ax, handles[::-1], names[::-1], **places)
    return label(ax, x=axis_label(predicted), y=axis_label(measured), title=title)


def spread_by_kind(
    values: xr.DataArray, ax: Axes, *, ceiling: float | None = None, legend: bool = True, title: str = ""
) -> Axes:
    """Draw the value of every network at a few times on a logarithmic axis, by kind, with medians as bars.

    Parameters
    ----------
    values : DataArray over (when, kind, network)
    ax : Axes
    ceiling : float, optional
        Largest possible value, drawn as a thin line.
    legend : bool
        Draw a legend beside the axes.
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
    >>> values = xr.DataArray(
    ...     [[[1.0, 2.0], [1.5, 2.5]], [[0.1, 0.2], [0.3, 0.4]]],
    ...     dims=("when", "kind", "network"),
    ...     coords={"when": ["before", "after"], "kind": ["linear", "relu"]},
    ...     name="change",
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.spread_by_kind(values, ax).get_ylabel()
    'change'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['linear', 'ReLU', 'median']
    >>> plt.close(figure)
    """
    places, kinds = np.arange(values.sizes["when"]), values["kind"].values.tolist()
    for k, kind in enumerate(kinds):
        colour, marker = KINDS[kind]
        aside = places + 0.26 * (k - (len(kinds) - 1) / 2)
        by_time = values.sel(kind=kind).transpose("when", "network").values
        for i, row in enumerate(by_time):
            named = None if i else NAMES.get(kind, kind)
            ax.semilogy(np.full(len(row), aside[i]), row, marker, color=colour, markersize=2.5, alpha=0.4, label=named)
        ax.semilogy(aside, np.median(by_time, axis=1), "_", color="black", markersize=11, markeredgewidth=1.3)
    ax.set_xticks(places, [str(name) for name in values["when"].values])
    ax.set_xlim(-0.5, len(places) - 0.5)
    if ceiling is not None:
        ax.axhline(ceiling, color="grey", linewidth=0.8)
        name_line(ax, ceiling, "largest possible", x=0.02, up=-8)
    if legend:
        ax.plot([], [], "_", color="black", markersize=8, markeredgewidth=1.3, label="median")
        key(ax, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return label(ax, x="", y=axis_label(values), title=title)


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
    """Draw each series of the theory as a line, and trained networks as dots of the same colour.

    Parameters
    ----------
    lines : DataArray over (series, x), optional
        The theory; nan interrupts a line.
    ax : Axes
    networks : DataArray over (series, x, ...), optional
        Some of the series at fewer values; all further dimensions are dots.
    colours, styles : sequence of str
        Colours and line styles of the series in turn.
    named : bool
        Name the series in a legend.
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
    >>> lines = xr.DataArray(
    ...     [[0.0, 0.5, 0.9], [0.0, 0.2, 0.4]],
    ...     dims=("series", "strength"),
    ...     coords={"series": ["long trials", "short trials"], "strength": [0.5, 1.0, 1.5]},
    ...     name="recurrence",
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.networks_on_lines(lines, ax, networks=lines[:, 1:]).get_ylabel()
    'recurrence'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['long trials', 'short trials', 'trained networks']
    >>> plt.close(figure)
    """
    either = lines if lines is not None else networks
    assert either is not None
    names = [str(name) for name in either["series"].values]
    x = str(either.dims[1])
    if lines is not None:
        for k, name in enumerate(names):
            look: Look = {"color": colours[k % len(colours)], "linestyle": styles[k % len(styles)]}
            ax.plot(lines[x], lines.isel(series=k), **look, label=lettered(str(name)))
    if networks is not None:
        across = str(networks.dims[1])
        for name in networks["series"].values:
            k, one = names.index(str(name)), networks.sel(series=name)
            heights = one.values.reshape(one.sizes[across], -1)
            places = np.repeat(one[across].values, heights.shape[1])
            colour = colours[k % len(colours)]
            face = colour if styles[k % len(styles)] == "-" else "white"
            dots: Look = {"color": colour, "markerfacecolor": face, "markersize": 3.5, "alpha": 0.8}
            ax.plot(places, heights.ravel(), "o", **dots, linestyle="none", label=name if lines is None else None)
    if lines is not None and networks is not None:
        ax.plot([], [], "o", color="grey", markersize=3.5, label="trained networks")
    if named:
        key(ax)
    return label(ax, x=axis_label(either[x]), y=axis_label(either), title=title)


def networks_per_case(predicted: xr.DataArray, networks: xr.DataArray, ax: Axes, *, title: str = "") -> Axes:
    """Draw the predicted value of each case as a black bar and the value of every network as a dot.

    Parameters
    ----------
    predicted : DataArray over case
    networks : DataArray over (case, seed)
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
    >>> predicted = xr.DataArray([0.8, 0.4], dims="case", coords={"case": ["white", "correlated"]}, name="recurrence")
    >>> networks = xr.DataArray([[0.79, 0.82], [0.38, 0.41]], dims=("case", "seed"))
    >>> figure, ax = plt.subplots()
    >>> lc.figures.networks_per_case(predicted, networks, ax).get_ylabel()
    'recurrence'
    >>> [text.get_text() for text in ax.get_xticklabels()]
    ['white', 'correlated']
    >>> plt.close(figure)
    """
    places = np.arange(predicted.sizes["case"], dtype=float)
    ax.hlines(predicted, places - 0.32, places + 0.32, color="black", linestyle=(0, (1, 0.8)), label="one mode, theory")
    count = networks.sizes["seed"]
    for k in range(count):
        shift = 0.4 * ((k + 0.5) / count - 0.5)
        look: Look = {"color": COLOURS[0], "markersize": 3.5, "alpha": 0.8}
        ax.plot(places + shift, networks.isel(seed=k), "o", **look, label=None if k else "64-unit networks")
    ax.set_xticks(places, [str(name) for name in predicted["case"].values], rotation=30, ha="right")
    return with_key(ax, "", axis_label(predicted), title)
