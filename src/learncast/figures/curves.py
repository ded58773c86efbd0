"""Figures of quantities over training, and of forecasts and rankings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from learncast._core.validation import FloatArray
from learncast.figures.look import COLOURS, FIRST, GREY, STAGED, THEORY, TRAINED, Look
from learncast.figures.page import axis_label, key, label, logarithmic, name_step, name_time, with_key, wrapped
from learncast.results import Steps

#: Shades of one colour for two modes of one network.
WITHIN = (COLOURS[0], COLOURS[5])


def mode_strengths(
    dataset: xr.Dataset,
    ax: Axes,
    *,
    optimum: Sequence[float] | None = None,
    simulated: xr.Dataset | None = None,
    title: str = "",
) -> Axes:
    """Draw the strength of each mode over training, theory dotted black over coloured simulation.

    Parameters
    ----------
    dataset : Dataset
        ``strength`` over (time, mode), as in `Trajectory.dataset`.
    ax : Axes
    optimum : sequence of float, optional
        Optimum of each mode, drawn as thin lines.
    simulated : Dataset, optional
        ``strength`` from training.
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
    >>> solution = lc.forecast(task, network, learning_rate=1e-3).solution
    >>> trajectory = solution.at([0, 100, 200, 300, 400]).dataset
    >>> figure, ax = plt.subplots()
    >>> lc.figures.mode_strengths(trajectory, ax, optimum=solution.modes.optimum).get_ylabel()
    'strength $u$ (dashed: optimum)'
    >>> plt.close(figure)
    """
    several = dataset.sizes["mode"] > 1
    for k in range(dataset.sizes["mode"]):
        colour, name = COLOURS[k % len(COLOURS)], f"mode {k + 1}" if several else None
        look: Look = {"color": colour, "label": name}
        if simulated is not None:
            series = simulated["strength"].isel(mode=k)
            ax.plot(series["time"], series, color=colour, **TRAINED, label=name or "descent")
            look = THEORY | {"label": "theory" if k + 1 == dataset.sizes["mode"] else None}
        series = dataset["strength"].isel(mode=k)
        ax.plot(series["time"], series, **look)
        if optimum is not None:
            ax.axhline(float(optimum[k]), color=colour, linewidth=0.8, linestyle="--", alpha=0.7)
    if (several and dataset.sizes["mode"] <= len(COLOURS)) or simulated is not None:
        key(ax)
    y = "strength $u$" if optimum is None else "strength $u$ (dashed: optimum)"
    return label(ax, x="training time (gradient steps)", y=y, title=title)


def loss_curve(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Draw the loss over training, on a logarithmic scale if it is positive.

    Parameters
    ----------
    dataset : Dataset
        ``loss`` over time.
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
    >>> trajectory = lc.forecast(task, network, learning_rate=1e-3).solution.at([0, 200, 400]).dataset
    >>> figure, ax = plt.subplots()
    >>> lc.figures.loss_curve(trajectory, ax).get_xlabel()
    'training time (gradient steps)'
    >>> ax.get_yscale()
    'log'
    >>> plt.close(figure)
    """
    ax.plot(dataset["time"], dataset["loss"], color=COLOURS[0])
    if float(dataset["loss"].min()) > 0:
        ax.set_yscale("log")
    return label(ax, x="training time (gradient steps)", y=axis_label(dataset["loss"]), title=title)


def learning_curve(dataset: xr.Dataset, ax: Axes, *, steps: Steps | None = None, title: str = "") -> Axes:
    """Draw the loss over training and the loss at the goal, with R² on the right.

    Parameters
    ----------
    dataset : Dataset
        Result of `Forecast.learning_curve`.
    ax : Axes
    steps : Steps, optional
        Steps to the goal, drawn as a dot with their number, and their 95% interval as a band.
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
    >>> forecast = lc.forecast(task, network, learning_rate=1e-3)
    >>> figure, ax = plt.subplots()
    >>> ax = lc.figures.learning_curve(forecast.learning_curve(points=5), ax, steps=forecast.steps)
    >>> [text.get_text() for text in (*ax.get_legend().get_texts(), *ax.texts)]
    ['loss', 'goal', '331']
    >>> plt.close(figure)
    """
    ax.plot(dataset["time"], dataset["loss"], color=COLOURS[0], label="loss")
    goal, zero = dataset.attrs["goal_loss"], dataset.attrs["zero_loss"]
    if np.isfinite(goal):
        ax.axhline(goal, color="grey", linewidth=0.9, linestyle="--", label="goal")
    if steps is not None:
        if steps.interval is not None and np.isfinite(steps.interval).all() and steps.low < steps.high:
            ax.axvspan(steps.low, steps.high, color=COLOURS[0], alpha=0.15, linewidth=0, label="95% interval")
        name_step(ax, steps.value, goal, colour=COLOURS[0])
    if np.isfinite(goal):
        key(ax)
    ax.set_ylim(bottom=min(0.0, float(dataset["loss"].min())))
    if "r2" in dataset:
        ax.spines["right"].set_visible(True)
        right = ax.secondary_yaxis("right", functions=(partial(_share_of, zero), partial(_loss_of, zero)))
        right.set_ylabel("R²")
    return label(ax, x="training time (gradient steps)", y="loss", title=title)


def _share_of(zero: float, loss: ArrayLike) -> FloatArray:
    return 1.0 - np.asarray(loss, dtype=float) / zero


def _loss_of(zero: float, share: ArrayLike) -> FloatArray:
    return zero * (1.0 - np.asarray(share, dtype=float))


def step_count(steps: Steps, ax: Axes, *, title: str = "Steps to the goal") -> Axes:
    """Draw a number of steps with its 95% interval; without a finite number, what becomes of the task.

    Parameters
    ----------
    steps : Steps
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
    >>> figure, ax = plt.subplots()
    >>> lc.figures.step_count(lc.Steps(331.0, 330.0, low=320.0, high=345.0), ax).get_xlabel()
    'gradient steps'
    >>> plt.close(figure)
    """
    ends = np.array([end for end in steps.interval or () if np.isfinite(end)])
    if len(ends):
        ax.plot(ends, np.zeros(len(ends)), color=COLOURS[0], linewidth=4, alpha=0.3, solid_capstyle="butt")
    if np.isfinite(steps.value):
        ax.plot([steps.value], [0.0], "o", color=COLOURS[0])
        ax.set_xlim(0.0, 1.15 * max(steps.value, *ends, 1.0))
    ax.text(0.5, 0.75, str(steps), transform=ax.transAxes, ha="center")
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    return label(ax, x="gradient steps", y="", title=title)


def forgetting_curves(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Draw the loss of every task over training, solid while the task is trained and dotted otherwise.

    Parameters
    ----------
    dataset : Dataset
        ``loss`` over (time, task) with ``stage``, as returned by `Forecast.curves`.
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
    >>> later = task.varied(target_strength=0.5).renamed("weaker")
    >>> learned = lc.forget([task, later], network, learning_rate=1e-3, steps=[400, 50])
    >>> figure, ax = plt.subplots()
    >>> lc.figures.forgetting_curves(learned.curves(points=5), ax).get_ylabel()
    'loss (solid: in training)'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['integration', 'weaker']
    >>> plt.close(figure)
    """
    times, stage = dataset["time"].values, dataset["stage"].values
    for k, name in enumerate(dataset["task"].values):
        colour = COLOURS[k % len(COLOURS)]
        losses = dataset["loss"].values[:, k]
        ax.plot(times, losses, color=colour, linewidth=1.0, linestyle=":")
        ax.plot(times, np.where(stage == k, losses, np.nan), color=colour, linewidth=1.8, label=wrapped(name, 20))
    for k in range(1, int(stage.max()) + 1):
        ax.axvline(times[np.argmax(stage == k)], color="grey", linewidth=0.8)
    return with_key(ax, "training time (gradient steps)", "loss (solid: in training)", title)


def held_out_curve(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Draw training and held-out loss over training, with the stops that are as good as the best within the noise.

    Parameters
    ----------
    dataset : Dataset
        As in `Generalisation.dataset`.
    ax : Axes
    title : str

    Returns
    -------
    Axes
        `ax`.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import numpy as np
    >>> import learncast as lc
    >>> inputs = np.random.default_rng(0).standard_normal((40, 3, 2))
    >>> task, network = lc.Task.from_samples(inputs, inputs.sum(axis=1)), lc.LinearRNN.aligned(recurrence=0.9)
    >>> network = lc.LinearRNN.random(2, 3, 2, recurrence=0.9, scale=0.3, rng=0)
    >>> held_out = lc.generalise(task, network, learning_rate=0.05, most_steps=100)
    >>> figure, ax = plt.subplots()
    >>> lc.figures.held_out_curve(held_out.dataset, ax).get_xlabel()
    'training time (gradient steps)'
    >>> plt.close(figure)
    """
    live = dataset.isel(steps=dataset["steps"].values > 0)
    steps, stop = live["steps"].values, max(float(dataset["stop"]), 1.0)
    low, high = (max(float(dataset[f"stop_{end}"]), 1.0) for end in ("low", "high"))
    ax.axvspan(low, high, color=GREY, alpha=0.15, linewidth=0, label="as good within the noise")
    ax.fill_between(steps, live["low"], live["high"], color=STAGED, alpha=0.18, linewidth=0)
    ax.plot(steps, live["held_out"], color=STAGED, linewidth=1.8, label="held out")
    ax.plot(steps, live["train"], color=GREY, linestyle="--", label="training")
    ax.axvline(stop, color=FIRST, linewidth=0.9)
    ax.plot([stop], [float(dataset["loss"])], color=FIRST, marker="o", markersize=4, label="best stop")
    top = np.nanmax(np.where(np.isfinite(live["held_out"]), live["held_out"], np.nan))
    ax.set_ylim(0.0, 1.15 * max(top, float(dataset["loss_high"])))
    logarithmic(ax)
    return with_key(ax, "training time (gradient steps)", "loss", title, below=True, ncols=2)


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
    """Draw every entry of a quantity over training, theory dotted black over coloured descent.

    Parameters
    ----------
    curves : DataArray over (source, time, ...)
        ``source`` holds "descent", "theory" or both; each entry of the other dimensions is a line.
    ax : Axes
    names : sequence of str, optional
        Names of the entries for the legend; by default the legend names only the sources.
    colours : sequence of str
        Colours of the entries in turn.
    legend : bool
        Draw a legend.
    switches : sequence of float
        Times at which the task changes, as thin lines.
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
    >>> curves = xr.DataArray(
    ...     [[0.0, 0.5, 1.0], [0.0, 0.6, 1.0]],
    ...     dims=("source", "time"),
    ...     coords={"source": ["descent", "theory"], "time": [0, 50, 100]},
    ...     attrs={"long_name": "strength", "units": "1"},
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.learning_curves(curves, ax).get_ylabel()
    'strength'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['descent', 'theory']
    >>> plt.close(figure)
    """
    time = curves["time"].values
    for source in curves["source"].values:
        lines = curves.sel(source=source).transpose("time", ...).values.reshape(len(time), -1)
        for k, line in enumerate(lines.T):
            if source == "theory":
                ax.plot(time, _apart(line, lines[:, :k]), **THEORY, label=None if k else "theory")
                continue
            name = names[k] if names else None if k else "descent"
            ax.plot(time, line, color=colours[k % len(colours)], **TRAINED, label=name)
    for switch in switches:
        ax.axvline(switch, color="grey", linewidth=0.7)
        name_time(ax, switch, "switch")
    if switches:  # space for the word above the curves
        low, high = ax.get_ylim()
        ax.set_ylim(low, high + 0.1 * (high - low))
    if legend and not names:
        # Below the axes, where it covers neither curves nor the title.
        key(ax, below=True, ncols=2)
    elif legend:
        key(ax)
    return label(ax, x=axis_label(curves["time"]), y=axis_label(curves), title=title)


def _apart(line: FloatArray, before: FloatArray) -> FloatArray:
    """Return a line without the parts that coincide with earlier lines, since dots over dots would look solid."""
    if before.shape[1] == 0:
        return line
    height = np.nanmax(np.abs(np.column_stack([before, line]))) if np.isfinite(line).any() else 1.0
    covered = (np.abs(before - line[:, None]) < 0.005 * height).any(axis=1)
    return np.where(covered, np.nan, line)


def decoupling(dataset: xr.Dataset, ax: Axes, *, legend: bool = True, title: str = "") -> Axes:
    """Draw the strength within and between two modes over training, with the predicted peak of the coupling.

    Parameters
    ----------
    dataset : Dataset
        ``diagonal`` over (source, time, mode), ``coupling`` over (source, time), and ``peak_step``, which may be nan.
    ax : Axes
    legend : bool
        Draw a legend.
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
    >>> both = {"source": ["descent", "theory"], "time": [0, 50, 100]}
    >>> dataset = xr.Dataset(
    ...     {
    ...         "diagonal": (("source", "time", "mode"), [[[0.1, 0.1], [2.0, 0.6], [3.0, 1.0]]] * 2),
    ...         "coupling": (("source", "time"), [[0.1, 0.5, 0.0]] * 2),
    ...         "peak_step": 50.0,
    ...     },
    ...     coords=both,
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.decoupling(dataset, ax).get_xlabel()
    'time'
    >>> ax.texts[0].get_text()
    'predicted peak'
    >>> plt.close(figure)
    """
    between, within = dataset["coupling"], dataset["diagonal"]
    learning_curves(within, ax, names=["$a_1$, within mode 1", "$a_2$, within mode 2"], colours=WITHIN, legend=False)
    learning_curves(between, ax, names=["$b$, between modes"], colours=COLOURS[1:2], legend=False)
    if np.isfinite(dataset["peak_step"]):
        peak = float(dataset["peak_step"])
        ax.axvline(peak, color=COLOURS[2], linestyle="--", linewidth=1.1)
        name_time(ax, peak, "predicted peak", colour=COLOURS[2], high=0.3)
    if legend:
        handles = dict(zip(*ax.get_legend_handles_labels()[::-1], strict=True))
        key(ax, list(handles.values()), list(handles), below=True, ncols=2)
    return label(ax, x=axis_label(within["time"]), y=r"entries of $A^\top A$", title=title)


def item_paths(points: xr.DataArray, ax: Axes, *, names: Sequence[str], legend: bool = True, title: str = "") -> Axes:
    """Draw the paths of items in a plane over training: start open, end filled, theory dotted.

    Names are at the end, or at the start if that is spread much wider. Items at one place share a label. A cross marks
    a theory that ends elsewhere.

    Parameters
    ----------
    points : DataArray over (source, time, item, axis)
        Two axes.
    ax : Axes
    names : sequence of str
        Names of the items; neighbours share a colour, and the second of them is paler.
    legend : bool
        Draw a legend.
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
    >>> path = [[[0.1, 0.0], [0.0, 0.1]], [[1.0, 0.2], [0.2, 1.0]]]
    >>> points = xr.DataArray(
    ...     [path, path],
    ...     dims=("source", "time", "item", "axis"),
    ...     coords={"source": ["descent", "theory"]},
    ...     attrs={"long_name": "similarity", "units": "1"},
    ... )
    >>> figure, ax = plt.subplots()
    >>> _ = lc.figures.item_paths(points, ax, names=["canary", "rose"])
    >>> [text.get_text() for text in ax.texts]
    ['canary', 'rose']
    >>> plt.close(figure)
    """
    starts, ends = (points.sel(source="descent").isel(time=t).values for t in (0, -1))
    named = ends if 1.2 * np.ptp(ends) >= np.ptp(starts) else starts
    ring: Look = {"markerfacecolor": "none", "markersize": 6, "markeredgewidth": 0.9, "zorder": 3}
    for k in range(len(names)):
        descent, theory = (points.sel(source=s).isel(item=k).values.T for s in ("descent", "theory"))
        colour, alpha = COLOURS[(k // 2) % len(COLOURS)], 0.9 if k % 2 == 0 else 0.45
        ax.plot(*descent, color=colour, linewidth=1.9, alpha=alpha, label=None if k else "descent")
        ax.plot(*theory, **THEORY | {"linewidth": 0.9}, label=None if k else "theory")
        ax.plot(*descent[:, 0], "o", color=colour, **ring, label=None if k else "start")
        ax.plot(*descent[:, -1], "o", color=colour, markersize=3.2, zorder=3, label=None if k else "end")
        if np.abs(theory[:, -1] - descent[:, -1]).max() > 0.02 * np.ptp(ends):
            stuck = "theory is stuck" not in [line.get_label() for line in ax.lines]
            cross: Look = {"color": "black", "markersize": 5, "markeredgewidth": 1.3, "zorder": 4}
            ax.plot(*theory[:, -1], "x", **cross, linestyle="none", label="theory is stuck" if stuck else None)
    for group in _coinciding(named):
        spot, right = named[group[0]], named[group[0], 0] >= named[:, 0].mean()
        across, up = (named - spot).T / np.ptp(named)
        below = bool(((up > 0) & (up < 0.08) & (np.abs(across) < 0.25)).any())
        aside = (5 if right else -5, -8 if below else 2)  # below its point if another name is close above
        look: Look = {"xytext": aside, "textcoords": "offset points", "fontsize": 6.5}
        look |= {"ha": "left" if right else "right", "color": COLOURS[(group[0] // 2) % len(COLOURS)]}
        ax.annotate(", ".join(names[k] for k in group), spot, **look)
    ax.margins(0.3, 0.1)
    if legend:
        key(ax, below=True, ncols=3)
    first, second = (f"scaled {points.attrs['long_name']}, axis {k} ({points.attrs['units']})" for k in (1, 2))
    return label(ax, x=first, y=second, title=title)


def _coinciding(spots: FloatArray) -> list[list[int]]:
    """Group the points that coincide."""
    groups: dict[int, list[int]] = {}
    for k, spot in enumerate(spots):
        near = (first for first in groups if np.abs(spots[first] - spot).max() < 0.03 * np.ptp(spots))
        groups.setdefault(next(near, k), []).append(k)
    return list(groups.values())
