"""Maps: figures of a quantity over two others."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.contour import QuadContourSet
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.patheffects import withStroke
from matplotlib.ticker import StrMethodFormatter

from learncast._core.validation import FloatArray
from learncast.figures.look import COLOURS, DIRECT, ON_LIGHT, SAVED, Look
from learncast.figures.page import colour_bar, key, label, wrapped

#: Marker of a plan.
STAR: Look = {
    "marker": "*", "markersize": 10, "color": COLOURS[7], "markeredgecolor": ON_LIGHT, "clip_on": False
}  # fmt: skip
#: Line on which a curriculum takes as long as direct training, in the legend.
EVEN = Line2D([], [], color="black", linewidth=0.8, label="breaks even")
#: Colour of the parameter of the target on a map, which is the same on a dark page; the legend follows the page.
OWN = "0.35"
#: Dark edges of a yellow line, without which it could not be seen on white.
EDGED: Look = {"path_effects": [withStroke(linewidth=2.6, foreground=ON_LIGHT)]}


def portrait(
    dataset: xr.Dataset, ax: Axes, *, target_value: float | None = None, y: str | None = None, title: str = ""
) -> Axes:
    """Draw the steps saved over a task parameter and the stopping accuracy of the first task.

    Blue saves and red costs, each on its own scale; white breaks even (black contour). The colours of costs saturate at
    the 99th percentile of |speedup|, as an arrow at the end of the scale shows. The dotted grey line is the parameter
    of the target. On the yellow line the first task ends at the optimum of the target. A star marks the point that
    saves most steps of descent. Values that are spaced evenly in their logarithm are drawn so.

    Parameters
    ----------
    dataset : Dataset
        Result of `learncast.phase`.
    ax : Axes
    target_value : float, optional
        Value of the varied parameter for the target.
    y : str, optional
        Name of the varied parameter with its unit.
    title : str

    Returns
    -------
    Axes
        `ax`.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> grid = {"values": [0.5, 1.5, 2.0], "accuracies": [0.3, 0.6, 0.9]}
    >>> portrait = lc.phase(task, network, vary="target_strength", **grid, learning_rate=1e-3)
    >>> figure, ax = plt.subplots()
    >>> lc.figures.portrait(portrait, ax, target_value=1.0).get_ylabel()
    "first task's target strength"
    >>> plt.close(figure)
    """
    vary = str(dataset.attrs["vary"])
    dataset = dataset.sortby([vary, "accuracy"])
    stops, values = dataset["accuracy"].values, dataset[vary].values
    speedup = dataset["speedup_steps"].values
    finite = np.abs(speedup[np.isfinite(speedup)])
    gains = np.clip(speedup, 0, None)[np.isfinite(speedup)]
    top = max(float(gains.max(initial=0.0)), 1e-9)  # what the best curriculum saves is on the scale
    bottom = max(float(np.percentile(finite, 99.0)) if finite.size else 0.0, top)
    norm = TwoSlopeNorm(0.0, -bottom, top)
    geometric = len(values) > 2 and values.min() > 0 and np.ptp(np.diff(np.log(values))) < 1e-6
    rows = np.exp(_edges(np.log(values))) if geometric else _edges(values)
    mesh = ax.pcolormesh(_edges(stops), rows, speedup, cmap=SAVED, norm=norm, rasterized=True)
    known = speedup[np.isfinite(speedup)]
    lines: list[Line2D] = []
    if min(speedup.shape) > 1 and known.size and known.min() < 0 < known.max():
        without_infinite = np.where(np.isfinite(speedup), speedup, np.nan)
        _without_specks(ax.contour(stops, values, without_infinite, levels=[0.0], colors=ON_LIGHT, linewidths=0.8))
        lines.append(EVEN)
    singular = dataset["singular_accuracy"].values
    inside = np.isfinite(singular) & (singular <= stops.max()) & (singular >= stops.min())
    if inside.any():
        name = "target's optimum"
        look: Look = {"color": COLOURS[7], "linewidth": 1.4, **EDGED}
        lines += ax.plot(np.where(inside, singular, np.nan), values, **look, label=name)
    if target_value is not None:
        own: Look = {"linewidth": 1.4, "linestyle": ":"}
        ax.axhline(target_value, color=OWN, **own)
        lines.append(Line2D([], [], color=DIRECT, **own, label="target's own value"))
    best = dataset.get("saved_descent_steps")
    if best is not None and np.nanmax(best.values, initial=0.0) > 0:
        row, column = np.unravel_index(int(np.nanargmax(best.values)), best.shape)
        lines += ax.plot(stops[column], values[row], **STAR, linestyle="none", label="saves most")
    if geometric:
        ax.set_yscale("log", base=2)
        ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.set_ylim(rows[0], rows[-1])
    if lines:
        key(ax, handles=lines, below=True, ncols=2)
    below, above = bool(known.size and known.min() < -bottom), bool(known.size and known.max() > top)
    extend = "both" if below and above else "min" if below else "max" if above else "neither"
    bar = colour_bar(ax, mesh, f"steps saved{' (two scales)' if bottom > 1.01 * top else ''}", extend=extend)
    bar.set_ticks([_round(v) for v in (-bottom, -bottom / 2, 0.0, top / 2, top)])
    y = y or f"first task's {vary.replace('_', ' ')}"
    return label(ax, x="accuracy at which it stops", y=y, title=title)


def _without_specks(contour: QuadContourSet) -> None:
    """Remove the pieces of a contour that are shorter than a tenth of the axes, which would look like stray marks."""
    size = np.array(contour.axes.viewLim.size)
    paths = contour.get_paths()
    for path in paths:
        path.should_simplify = False  # it would simplify to a ninth of a data unit
    pieces = [Path(one) for path in paths for one in path.to_polygons(closed_only=False)]
    kept = [one for one in pieces if (np.array(one.get_extents().size) > size / 10).any()]
    contour.set_paths([Path.make_compound_path(*kept)])


def _edges(values: FloatArray) -> FloatArray:
    """Return the edges of cells around values; the cell of a single value has a tenth of its size."""
    if len(values) == 1:
        half = 0.05 * float(abs(values[0])) or 0.05
        return np.array([values[0] - half, values[0] + half])
    between = (values[1:] + values[:-1]) / 2
    return np.concatenate([[2 * values[0] - between[0]], between, [2 * values[-1] - between[-1]]])


def _round(value: float) -> float:
    """Round to two digits towards zero, which stays inside the scale."""
    if value == 0:
        return 0.0
    unit = 10 ** (np.floor(np.log10(abs(value))) - 1)
    return float(np.trunc(value / unit) * unit)


def starred(dataset: xr.Dataset) -> str:
    """Return what the star in a `Plan.stop_portrait` marks: the plan, or the best stop if the plan is another one."""
    return "this plan" if dataset.attrs.get("plan", 1) else "best stop of this candidate"


def stop_map(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Draw the steps saved over the stop of the first task and the accuracy of the target; a star marks the plan.

    Parameters
    ----------
    dataset : Dataset
        Result of `Plan.stop_portrait`.
    ax : Axes
    title : str

    Returns
    -------
    Axes
        `ax`.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> pool = [task.varied(target_strength=1.5).renamed("stronger")]
    >>> portrait = lc.plan(task, pool, network, learning_rate=1e-3).stop_portrait()
    >>> figure, ax = plt.subplots()
    >>> lc.figures.stop_map(portrait, ax).get_xlabel()
    'steps on stronger'
    >>> plt.close(figure)
    """
    what = "cost" if "saving_cost" in dataset else "steps"
    saving = dataset[f"saving_{what}"].values
    finite = np.abs(saving[np.isfinite(saving)])
    # What the star saves is on the scale.
    top = max(float(np.percentile(finite, 97)) if finite.size else 0.0, float(np.nanmax(saving, initial=1e-9)))
    x, y = dataset["stop"].values, 1.0 - dataset["accuracy"].values
    mesh = ax.pcolormesh(_edges(x), _edges(y), saving, cmap=SAVED, vmin=-top, vmax=top, rasterized=True)
    place = float(dataset.attrs["stop_steps"]), 1.0 - float(dataset.attrs["accuracy"])
    marks = ax.plot(*place, **STAR, linestyle="none", label=starred(dataset))
    if finite.size and np.nanmin(saving) < 0 < np.nanmax(saving):
        # Without the first column: not to train the first task neither saves nor costs.
        ax.contour(x[1:], y, saving[:, 1:], levels=[0.0], colors=ON_LIGHT, linewidths=1)
        marks.append(EVEN)
    ax.set_yscale("log")
    clipped = finite.size and float(finite.max()) > top
    colour_bar(ax, mesh, f"{what} saved", extend="both" if clipped else "neither")
    label(ax, x=wrapped(f"steps on {dataset.attrs['candidate']}", 34), y="tolerance (1 − accuracy)", title=title)
    key(ax, handles=marks, below=True, ncols=2)  # below the label
    return ax
