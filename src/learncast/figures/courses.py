"""Pictures of courses: quantities over training, or over a trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import NDArray

from learncast.figures.page import COLOURS, THEORY, axis_label, label, shortened


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
        colour, name = COLOURS[k % len(COLOURS)], f"mode {k}" if several else None
        look: dict[str, Any] = {"color": colour, "linewidth": 2, "label": name}
        if simulated is not None:
            series = simulated["strength"].isel(mode=k)
            ax.plot(series["time"], series, color=colour, linewidth=3, alpha=0.7, label=name or "descent")
            look = THEORY | {"label": None if k else "theory"}
        series = dataset["strength"].isel(mode=k)
        ax.plot(series["time"], series, **look)
        if optimum is not None:
            ax.axhline(float(optimum[k]), color=colour, linewidth=0.8, linestyle="--", alpha=0.7)
    if several or simulated is not None:
        ax.legend(frameon=False, fontsize=8)
    return label(ax, x="training time (gradient steps)", y="strength u", title=title)


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
        ax.plot(times, np.where(stage == k, losses, np.nan), color=colour, linewidth=2.4, label=shortened(name, 20))
    for k in range(1, int(stage.max()) + 1):
        ax.axvline(times[np.argmax(stage == k)], color="grey", linewidth=0.8)
    ax.legend(frameon=False, fontsize=8)
    return label(ax, x="training time (gradient steps)", y="loss (solid: in training)", title=title)


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
        plain: dict[str, Any] = {"color": "#AAAAAA", "linewidth": 0.8, "zorder": 2}
        seen: dict[str, Any] = {"color": COLOURS[k % len(COLOURS)], "marker": "x", "linewidth": 1.4, "zorder": 3}
        ax.loglog(rates, gap, **(seen if k < marked else plain))
    middle = float(np.median(gaps.isel(learning_rate=0)))
    ax.loglog(rates, 4 * middle * rates / float(rates[0]), **THEORY, label="slope 1")
    ax.legend(frameon=False, fontsize=8)
    return label(ax, x=axis_label(rates), y=axis_label(gaps), title=title)


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
        place: dict[str, Any] = {"xytext": (7 if right else -7, 3), "textcoords": "offset points"}
        ax.annotate(name, named[k], ha="left" if right else "right", fontsize=8, color=colour, **place)
    ax.margins(0.22, 0.08)
    ax.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1.02, 0.98), ncols=2, borderpad=0.2)
    first, second = (f"scaled {points.attrs['long_name']}, axis {k} ({points.attrs['units']})" for k in (1, 2))
    return label(ax, x=first, y=second, title=title)


def lag_covariances(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Input covariance against lag, one line per correlation.

    Parameters
    ----------
    dataset : Dataset
        ``covariance`` over (correlation, lag).
    ax : Axes
    title : str
    """
    _one_line_each(dataset["covariance"], ax, "K = {:g}")
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
    _one_line_each(dataset["weight"], ax, "{:g} steps")
    ax.legend(frameon=False, fontsize=8, title="timescale", title_fontsize=8)
    return label(ax, x="step of the trial", y="weight in the target", title=title)


def _one_line_each(lines: xr.DataArray, ax: Axes, name: str) -> None:
    each, along = lines.dims
    for k, value in enumerate(lines[each].values):
        ax.plot(lines[along], lines[k], color=COLOURS[k % len(COLOURS)], linewidth=2, label=name.format(value))
