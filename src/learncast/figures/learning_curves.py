"""Pictures of training beside theory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import NDArray

from learncast.figures.page import COLOURS, THEORY, axis_label, label


def learning_curves(
    curves: xr.DataArray,
    ax: Axes,
    *,
    names: Sequence[str] = (),
    colours: Sequence[str] = COLOURS[:6],
    legend: bool = True,
    switches: Sequence[float] = (),
    title: str = "",
) -> Axes:
    """Every entry of a quantity over training, theory dotted black over coloured descent.

    Parameters
    ----------
    curves : DataArray over (source, time, ...)
        ``source`` holds "descent", "theory" or both; each entry of the other dimensions is a line.
    ax : Axes
    names : sequence of str, optional
        Of the entries, for the legend; without them the legend names the sources alone.
    colours : sequence of str
        Of the entries, in turn.
    legend : bool
        Draw one.
    switches : sequence of float
        Times at which the task changes, as thin lines.
    title : str
    """
    time = curves["time"].values
    for source in curves["source"].values:
        lines = curves.sel(source=source).transpose("time", ...).values.reshape(len(time), -1)
        for k, line in enumerate(lines.T):
            if source == "theory":
                ax.plot(time, _apart(line, lines[:, :k]), **THEORY, label=None if k else "theory")
                continue
            name = names[k] if names else None if k else "descent"
            ax.plot(time, line, color=colours[k % len(colours)], linewidth=2.8, alpha=0.75, label=name)
    for moment in switches:
        ax.axvline(moment, color="grey", linewidth=0.8)
    if legend and not names:
        # Beside the title, where no curve can be.
        ax.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1.02, 0.97), ncols=2, borderpad=0.2)
    elif legend:
        ax.legend(frameon=False, fontsize=8)
    return label(ax, x=axis_label(curves["time"]), y=axis_label(curves), title=title)


def _apart(line: NDArray[Any], before: NDArray[Any]) -> NDArray[Any]:
    """The line without what lies on lines drawn before: dots over dots would look solid."""
    if before.shape[1] == 0:
        return line
    height = np.nanmax(np.abs(np.column_stack([before, line]))) if np.isfinite(line).any() else 1.0
    covered = (np.abs(before - line[:, None]) < 0.005 * height).any(axis=1)
    return np.where(covered, np.nan, line)


def decoupling(dataset: xr.Dataset, ax: Axes, *, legend: bool = True, title: str = "") -> Axes:
    """Strength within two modes and between them over training, with the predicted peak of the latter.

    Parameters
    ----------
    dataset : Dataset
        ``diagonal`` over (source, time, mode), ``coupling`` over (source, time), and ``peak_step``, nan for none.
    ax : Axes
    legend : bool
        Draw one.
    title : str
    """
    between, within = dataset["coupling"], dataset["diagonal"]
    learning_curves(within, ax, names=["within modes", "_"], colours=COLOURS[:1], legend=False)
    learning_curves(between, ax, names=["between modes"], colours=COLOURS[1:2], legend=False)
    if np.isfinite(dataset["peak_step"]):
        peak = float(dataset["peak_step"])
        place: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        ax.axvline(peak, color=COLOURS[2], linestyle="--", linewidth=1.6)
        ax.annotate("predicted peak", (peak, 0.28), xytext=(6, 0), fontsize=8, color=COLOURS[2], **place)
    if legend:
        handles = dict(zip(*ax.get_legend_handles_labels()[::-1], strict=True))
        ax.legend(list(handles.values()), list(handles), frameon=False, fontsize=8, loc=(0.45, 0.54))
    return label(ax, x=axis_label(within["time"]), y="entries of A^T A", title=title)


def deviations(dataset: xr.Dataset, ax: Axes, *, marked: int = 5, title: str = "") -> Axes:
    """Deviation of theory from descent against the learning rate, a line per network on logarithmic axes.

    Parameters
    ----------
    dataset : Dataset
        ``deviation`` over (network, learning_rate).
    ax : Axes
    marked : int
        The first networks get crosses in their colours.
    title : str
    """
    rates, gaps = dataset["learning_rate"], dataset["deviation"]
    for k, gap in enumerate(gaps.values):
        shown = k < marked
        ax.loglog(
            rates,
            gap,
            color=COLOURS[k % len(COLOURS)] if shown else "#AAAAAA",
            marker="x" if shown else None,
            linewidth=1.4 if shown else 0.8,
            zorder=3 if shown else 2,
        )
    middle = float(np.median(gaps.isel(learning_rate=0)))
    ax.loglog(rates, 4 * middle * rates / float(rates[0]), **THEORY, label="slope 1")
    ax.legend(frameon=False, fontsize=8)
    return label(ax, x=axis_label(rates), y=axis_label(gaps), title=title)


def agreement(predicted: xr.DataArray, measured: xr.DataArray, ax: Axes, *, title: str = "") -> Axes:
    """Measured against predicted, with the line on which they are equal.

    Parameters
    ----------
    predicted, measured : DataArray
        Of one shape.
    ax : Axes
    title : str
    """
    low, high = float(min(predicted.min(), measured.min())), float(max(predicted.max(), measured.max()))
    margin = 0.05 * (high - low)
    ends = [low - margin, high + margin]
    ax.plot(predicted.values.ravel(), measured.values.ravel(), "o", color=COLOURS[1], markersize=5, alpha=0.7)
    ax.plot(ends, ends, **THEORY, label="equal")
    ax.legend(frameon=False, fontsize=8, loc="upper left")
    return label(ax, x=axis_label(predicted), y=axis_label(measured), title=title)


def spread(values: xr.DataArray, ax: Axes, *, ceiling: float | None = None, title: str = "") -> Axes:
    """Every network's value at a few moments, on a logarithmic axis, joined by lines.

    Parameters
    ----------
    values : DataArray over (when, network)
    ax : Axes
    ceiling : float, optional
        The largest value there can be, a thin line.
    title : str
    """
    places = np.arange(values.sizes["when"])
    ax.semilogy(places, values.values, "o-", color=COLOURS[1], markersize=4, linewidth=0.6, alpha=0.5)
    ax.set_xticks(places, [str(name) for name in values["when"].values])
    ax.margins(x=0.15)
    if ceiling is not None:
        ax.axhline(ceiling, color="grey", linewidth=0.8)
        place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        ax.annotate("largest possible", (0.02, ceiling), xytext=(0, -11), fontsize=8, color="dimgrey", **place)
    return label(ax, x="", y=axis_label(values), title=title)


def item_paths(points: xr.DataArray, ax: Axes, *, names: Sequence[str], title: str = "") -> Axes:
    """Paths of items in a plane over training: open at the start, filled at the end, theory dotted.

    Names stand at the end, or at the start where that is spread much wider. A cross marks a theory that ends elsewhere.

    Parameters
    ----------
    points : DataArray over (source, time, item, axis)
        Two axes.
    ax : Axes
    names : sequence of str
        Of the items; neighbours share a colour, and the second of them is paler.
    title : str
    """
    starts, ends = (points.sel(source="descent").isel(time=t).values for t in (0, -1))
    named = ends if 1.2 * np.ptp(ends) >= np.ptp(starts) else starts
    for k, name in enumerate(names):
        descent, theory = (points.sel(source=s).isel(item=k).values.T for s in ("descent", "theory"))
        colour, alpha = COLOURS[(k // 2) % len(COLOURS)], 0.9 if k % 2 == 0 else 0.45
        ax.plot(*descent, color=colour, linewidth=2.6, alpha=alpha, label=None if k else "descent")
        ax.plot(*theory, **THEORY | {"linewidth": 1.3}, label=None if k else "theory")
        ax.plot(*descent[:, 0], "o", color=colour, markersize=10, markerfacecolor="none", zorder=3)
        ax.plot(*descent[:, -1], "o", color=colour, markersize=5.5, zorder=3)
        if np.abs(theory[:, -1] - descent[:, -1]).max() > 0.02 * np.ptp(ends):
            ax.plot(*theory[:, -1], "x", color="black", markersize=8, markeredgewidth=2, zorder=4)
        right = named[k, 0] >= named[:, 0].mean()
        ax.annotate(
            name,
            (named[k, 0], named[k, 1]),
            xytext=(7 if right else -7, 3),
            textcoords="offset points",
            ha="left" if right else "right",
            fontsize=8,
            color=colour,
        )
    ax.margins(0.22, 0.08)
    ax.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1.02, 0.98), ncols=2, borderpad=0.2)
    first, second = (f"scaled {points.attrs['long_name']}, axis {k} ({points.attrs['units']})" for k in (1, 2))
    return label(ax, x=first, y=second, title=title)
