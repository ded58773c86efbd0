"""Figures of quantities over training or over a trial, and of forecasts and rankings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from learncast._core.validation import FloatArray
from learncast.figures.maps import STAR
from learncast.figures.page import (
    COLOURS,
    DIRECT,
    GREY,
    LARGER,
    SMALLER,
    STAGED,
    THEORY,
    TRAINED,
    Look,
    axis_label,
    key,
    label,
    logarithmic,
    name_line,
    name_time,
    shortened,
)
from learncast.results import Trajectory

BAND = "#BBBBBB"
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
    'strength $u$'
    >>> plt.close(figure)
    """
    several = dataset.sizes["mode"] > 1
    for k in range(dataset.sizes["mode"]):
        colour, name = COLOURS[k % len(COLOURS)], f"mode {k + 1}" if several else None
        look: Look = {"color": colour, "label": name}
        if simulated is not None:
            series = simulated["strength"].isel(mode=k)
            ax.plot(series["time"], series, color=colour, **TRAINED, label=name or "descent")
            look = THEORY | {"label": None if k else "theory"}
        series = dataset["strength"].isel(mode=k)
        ax.plot(series["time"], series, **look)
        if optimum is not None:
            ax.axhline(float(optimum[k]), color=colour, linewidth=0.8, linestyle="--", alpha=0.7)
    if (several and dataset.sizes["mode"] <= len(COLOURS)) or simulated is not None:
        key(ax)
    return label(ax, x="training time (gradient steps)", y="strength $u$", title=title)


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


def step_profile(values: xr.DataArray, ax: Axes, *, title: str = "") -> Axes:
    """Draw a quantity over the steps of a trial.

    Parameters
    ----------
    values : DataArray over step
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
    >>> weights = xr.DataArray([0.0, 0.5, 1.0], dims="step", coords={"step": [1, 2, 3]}, attrs={"long_name": "weight"})
    >>> figure, ax = plt.subplots()
    >>> lc.figures.step_profile(weights, ax).get_ylabel()
    'weight'
    >>> plt.close(figure)
    """
    ax.axhline(0.0, color="grey", linewidth=0.7)
    ax.plot(values["step"], values, color=COLOURS[0], marker="o", markersize=2.5)
    ax.margins(y=0.15)
    return label(ax, x="step of the trial", y=axis_label(values), title=title)


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
        ax.plot(times, np.where(stage == k, losses, np.nan), color=colour, linewidth=1.8, label=shortened(name, 20))
    for k in range(1, int(stage.max()) + 1):
        ax.axvline(times[np.argmax(stage == k)], color="grey", linewidth=0.8)
    key(ax)
    return label(ax, x="training time (gradient steps)", y="loss (solid: in training)", title=title)


def held_out_curve(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Draw training and held-out loss over training, with the stops that cannot be told apart from the best.

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
    ax.axvspan(low, high, color=BAND, alpha=0.35, linewidth=0, label="cannot be told apart")
    ax.fill_between(steps, live["low"], live["high"], color=STAGED, alpha=0.18, linewidth=0)
    ax.plot(steps, live["train"], color=GREY, label="training")
    ax.plot(steps, live["held_out"], color=STAGED, linewidth=1.8, label="held out")
    ax.axvline(stop, color=DIRECT, linewidth=0.9)
    ax.plot([stop], [float(dataset["loss"])], color=DIRECT, marker="o", markersize=4, label="best stop")
    top = np.nanmax(np.where(np.isfinite(live["held_out"]), live["held_out"], np.nan))
    ax.set_ylim(0.0, 1.15 * max(top, float(dataset["loss_high"])))
    logarithmic(ax)
    key(ax, below=True, ncols=2)
    return label(ax, x="training time (gradient steps)", y="loss", title=title)


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


def deviations(dataset: xr.Dataset, ax: Axes, *, marked: int = 5, title: str = "") -> Axes:
    """Draw the deviation of theory from descent over the learning rate, one line per network.

    Parameters
    ----------
    dataset : Dataset
        ``deviation`` over (network, learning_rate).
    ax : Axes
    marked : int
        Number of networks with coloured crosses.
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
    >>> dataset = xr.Dataset(
    ...     {"deviation": (("network", "learning_rate"), [[1e-4, 1e-3], [3e-4, 3e-3]])},
    ...     coords={"learning_rate": [0.001, 0.01], "network": ["small", "large"]},
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.deviations(dataset, ax).get_xlabel()
    'learning rate'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['small', 'large', 'slope 1']
    >>> plt.close(figure)
    """
    rates, gaps = dataset["learning_rate"], dataset["deviation"]
    for k, gap in enumerate(gaps.values):
        name = str(gaps["network"].values[k]) if k < marked and "network" in gaps.coords else None
        plain: Look = {"color": "#AAAAAA", "linewidth": 0.6, "zorder": 2}
        plain["label"] = f"the other {len(gaps) - marked}" if k == marked else None
        bold: Look = {"color": COLOURS[k % len(COLOURS)], "marker": "x", "zorder": 3, "label": name}
        ax.loglog(rates, gap, **(bold if k < marked else plain))
    middle = float(np.median(gaps.isel(learning_rate=0)))
    ax.loglog(rates, 4 * middle * rates / float(rates[0]), **THEORY, label="slope 1")
    key(ax, below=True, ncols=4)
    return label(ax, x=axis_label(rates), y=axis_label(gaps), title=title)


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
        look: Look = {"xytext": (5 if right else -5, 2), "textcoords": "offset points", "fontsize": 6.5}
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


def lag_covariances(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Draw the input covariance over the lag, one line per correlation.

    Parameters
    ----------
    dataset : Dataset
        ``covariance`` over (correlation, lag).
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
    >>> dataset = xr.Dataset(
    ...     {"covariance": (("correlation", "lag"), [[1.0, 0.0, 0.0], [1.3, 0.6, 0.3]])},
    ...     coords={"correlation": [0.0, 0.5], "lag": [0, 1, 2]},
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.lag_covariances(dataset, ax).get_xlabel()
    'lag (steps)'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['$K$ = 0', '$K$ = 0.5']
    >>> plt.close(figure)
    """
    _one_line_each(dataset["covariance"], ax, "$K$ = {:g}")
    key(ax)
    return label(ax, x="lag (steps)", y="covariance with the last input (input$^2$)", title=title)


def integration_profiles(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Draw the weight of each input step in the target, one line per timescale.

    Parameters
    ----------
    dataset : Dataset
        ``weight`` over (timescale, step).
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
    >>> dataset = xr.Dataset(
    ...     {"weight": (("timescale", "step"), [[0.37, 0.61, 1.0], [0.67, 0.82, 1.0]])},
    ...     coords={"timescale": [2.0, 5.0], "step": [1, 2, 3]},
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.integration_profiles(dataset, ax).get_xlabel()
    'step of the trial (steps)'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['2 steps', '5 steps']
    >>> plt.close(figure)
    """
    _one_line_each(dataset["weight"], ax, "{:g} steps")
    key(ax, title="timescale")
    return label(ax, x="step of the trial (steps)", y="weight in the target (target / input)", title=title)


def _one_line_each(lines: xr.DataArray, ax: Axes, name: str) -> None:
    each, along = lines.dims
    for k, value in enumerate(lines[each].values):
        ax.plot(lines[along], lines[k], color=COLOURS[k % len(COLOURS)], label=name.format(value))


def curriculum_paths(
    staged: xr.Dataset,
    direct: xr.Dataset,
    ax: Axes,
    *,
    optimum: float,
    tolerance: float,
    first_optimum: float | None = None,
    switch: float | Sequence[float] | None = None,
    mode: int = 0,
    simulated: dict[str, xr.Dataset] | None = None,
    simulated_by: str = "descent",
    legend: bool = True,
    title: str = "",
) -> Axes:
    """Draw the strength of a mode under a curriculum and under direct training, with the target's tolerance band.

    Parameters
    ----------
    staged, direct : Dataset
        ``strength`` over (time, mode).
    ax : Axes
    optimum, tolerance : float
        Optimum of the target and the tolerance within which it counts as learned.
    first_optimum : float, optional
        Optimum of the first task, drawn as a thin line.
    switch : float or sequence, optional
        Times at which the task changes.
    mode : int
    simulated : mapping, optional
        ``"staged"`` and ``"direct"`` from training, drawn in colour under the theory.
    simulated_by : str
        Kind of training, for the legend.
    legend : bool
        Draw a legend and label the lines; without it the panel is one of many.
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
    >>> first = task.varied(target_strength=1.5).renamed("stronger")
    >>> stages = [lc.Stage(first, goal=0.5), lc.Stage(task, goal=0.99)]
    >>> times = [0, 100, 200, 300]
    >>> curriculum = lc.follow(stages, network, learning_rate=1e-3)
    >>> staged = curriculum.at(times).dataset
    >>> direct = lc.follow(stages[1:], network, learning_rate=1e-3).at(times).dataset
    >>> optimum = float(curriculum.modes[-1].optimum[0])
    >>> figure, ax = plt.subplots()
    >>> lc.figures.curriculum_paths(staged, direct, ax, optimum=optimum, tolerance=0.01).get_ylabel()
    'strength $u$'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['direct', 'curriculum']
    >>> plt.close(figure)
    """
    ax.axhspan((1 - tolerance) * optimum, (1 + tolerance) * optimum, color=BAND, alpha=0.6, linewidth=0)
    ax.axhline(optimum, color="grey", linewidth=0.7, label=None if legend else "target's optimum")
    if legend:
        name_line(ax, optimum, "target's optimum")
    if first_optimum is not None and np.isfinite(first_optimum):
        name = None if legend else "first task's optimum"
        ax.axhline(first_optimum, color=STAGED, linewidth=0.7, linestyle="--", label=name)
        if legend and abs(first_optimum - optimum) > 0.1 * max(abs(first_optimum), abs(optimum)):
            # Below the highest line, since the title is above it.
            name_line(ax, first_optimum, "first task's optimum", up=-8 if first_optimum > optimum else 2)
    for name, dataset, colour in (("direct", direct, DIRECT), ("curriculum", staged, STAGED)):
        which = "direct" if name == "direct" else "staged"
        if simulated is not None:
            series = simulated[which]["strength"].isel(mode=mode)
            ax.plot(series["time"], series, color=colour, **TRAINED, label=f"{name}, {simulated_by}")
            style: Look = {**THEORY, "label": "theory" if name == "direct" else None}
        else:
            style = {"color": colour, "label": name}
        series = dataset["strength"].isel(mode=mode)
        ax.plot(series["time"], series, **style)
    for k, time in enumerate([] if switch is None else np.atleast_1d(switch).tolist()):
        ax.axvline(time, color=STAGED, linewidth=0.9, linestyle=":", label=None if k else "switch")
    if legend:
        key(ax, loc="lower right")
    return label(ax, x="training time (gradient steps)", y="strength $u$", title=title)


def loss_paths(
    staged: xr.Dataset, direct: xr.Dataset, ax: Axes, *, goal: float, switches: Sequence[float] = (), title: str = ""
) -> Axes:
    """Draw the excess loss of the target under a curriculum and under direct training.

    Parameters
    ----------
    staged, direct : Dataset
        ``target_excess_loss`` over time.
    ax : Axes
    goal : float
        Excess loss at which the target counts as learned.
    switches : sequence of float
        Times at which the task changes.
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
    >>> staged = xr.Dataset({"target_excess_loss": ("time", [9.0, 1.0, 0.01])}, coords={"time": [0, 50, 100]})
    >>> direct = xr.Dataset({"target_excess_loss": ("time", [9.0, 4.0, 0.5])}, coords={"time": [0, 50, 100]})
    >>> figure, ax = plt.subplots()
    >>> lc.figures.loss_paths(staged, direct, ax, goal=0.1, switches=[30.0]).get_ylabel()
    'excess loss on the target'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['direct', 'curriculum']
    >>> plt.close(figure)
    """
    for name, dataset, colour in (("direct", direct, DIRECT), ("curriculum", staged, STAGED)):
        series = dataset["target_excess_loss"]
        ax.plot(series["time"], np.maximum(series, 1e-3 * goal), color=colour, label=name)
    ax.axhline(goal, color="grey", linewidth=0.7)
    name_line(ax, goal, "learned")
    for switch in switches:
        ax.axvline(switch, color=STAGED, linewidth=0.9, linestyle=":")
        name_time(ax, switch, "switch", colour=STAGED)
    ax.set_yscale("log")
    key(ax, loc="upper right")
    return label(ax, x="training time (gradient steps)", y="excess loss on the target", title=title)


def stop_curve(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Draw the total steps over the stop of the first task, at the accuracy of the plan, which a star marks.

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
    >>> lc.figures.stop_curve(portrait, ax).get_xlabel()
    'steps on stronger'
    >>> plt.close(figure)
    """
    planned = dataset.sel(accuracy=float(dataset.attrs["accuracy"]), method="nearest")
    direct = float(planned["direct_steps"])
    total = direct - planned["saving_steps"].values
    ax.plot(dataset["stop"], total, color=STAGED, label="both stages")
    if np.isfinite(direct):
        ax.axhline(direct, color="black", linewidth=1, linestyle="--", label="direct training")
    stop = float(dataset.attrs["stop_steps"])
    if np.isfinite(total).any():
        height = float(np.interp(stop, dataset["stop"].values, total))
        ax.plot(stop, height, **STAR)
    ax.set_ylim(bottom=0)
    key(ax, loc="lower right")
    return label(ax, x=f"steps on {dataset.attrs['candidate']}", y="total steps", title=title)


def ranking(dataset: xr.Dataset, ax: Axes, *, most: int = 12, priced: bool = False, title: str = "") -> Axes:
    """Draw the total steps or cost of each candidate's best curriculum and of direct training.

    Parameters
    ----------
    dataset : Dataset
        `Plan.dataset`: ``stop_steps``, ``descent_steps``, ``total`` and ``saving`` over candidate, ``direct_steps`` and
        ``direct_total``.
    ax : Axes
    most : int
        Largest number of candidates to draw.
    priced : bool
        Draw costs instead of steps; the cost of a candidate includes the switch.
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
    >>> plan = lc.plan(task, pool, network, learning_rate=1e-3)
    >>> figure, ax = plt.subplots()
    >>> _ = lc.figures.ranking(plan.dataset, ax)
    >>> [text.get_text() for text in ax.texts]
    ['saves 163']
    >>> plt.close(figure)
    """
    best = dataset.isel(candidate=slice(0, most))
    direct_name, total_name = ("direct_steps", "descent_steps") if not priced else ("direct_total", "total")
    direct = float(dataset[direct_name])
    total = np.where(np.isfinite(best[total_name]), best[total_name], direct if np.isfinite(direct) else 0.0)
    first = np.where(np.isfinite(best["stop_steps"]), best["stop_steps"], 0.0)
    if priced:
        each = direct / float(dataset["direct_steps"])
        first = np.where(first > 0, total - each * (best["descent_steps"] - first), 0.0)
    rows = np.arange(best.sizes["candidate"])
    ax.barh(rows, first, color=STAGED, label="on the candidate")
    ax.barh(rows, total - first, left=first, color=DIRECT, label="on the target")
    if np.isfinite(direct):
        ax.axvline(direct, color="black", linewidth=0.8, linestyle="--", label="direct training")
    ax.set_yticks(rows, [shortened(name, 24) for name in best["candidate"].values])
    ax.invert_yaxis()
    ax.set_xlim(0, 1.32 * max(direct if np.isfinite(direct) else 0.0, float(total.max(initial=0.0))) or 1.0)
    key(ax, below=True, ncols=3)
    for row, value in zip(rows, best["saving"].values, strict=True):
        text = "not learned" if not np.isfinite(direct) else "no gain" if not value > 0 else f"saves {value:.0f}"
        # Right of the line of direct training, which the text would otherwise cross.
        beyond = max(total[row], direct) if np.isfinite(direct) else total[row]
        ax.annotate(text, (beyond, row), xytext=(4, 0), textcoords="offset points", va="center", fontsize=6.5)
    if len(rows) < (number := dataset.sizes["candidate"]):
        title = f"{title} ({len(rows)} of {number})"
    return label(ax, x=f"{'cost' if priced else 'steps'} to the target's accuracy", y="", title=title)


def plan_scores(dataset: xr.Dataset, ax: Axes, *, most: int = 12, title: str = "") -> Axes:
    """Draw the score of each plan relative to direct training, best first; plans beyond the cap are grey.

    Parameters
    ----------
    dataset : Dataset
        `Advice.dataset`: ``score`` and ``within_cap`` over plan.
    ax : Axes
    most : int
        Largest number of plans to draw.
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
    >>> advice = xr.Dataset(
    ...     {
    ...         "score": ("plan", [0.7, 1.0], {"long_name": "steps relative to direct training"}),
    ...         "within_cap": ("plan", [True, True]),
    ...     },
    ...     coords={"plan": ["easy first", "direct"]},
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.plan_scores(advice, ax).get_xlabel()
    'steps relative to direct training'
    >>> plt.close(figure)
    """
    few = dataset.isel(plan=slice(0, most))
    rows, allowed = np.arange(few.sizes["plan"]), few["within_cap"].values.astype(bool)
    ax.barh(rows, few["score"], color=[STAGED if one else "lightgrey" for one in allowed])
    ax.axvline(1.0, color="black", linewidth=1, linestyle="--")
    above: Look = {"xycoords": ("data", "axes fraction"), "fontsize": 8, "ha": "center", "va": "bottom"}
    ax.annotate("direct training", (1.0, 1.0), **above)
    ax.set_yticks(rows, [shortened(str(name), 44) for name in few["plan"].values])
    ax.invert_yaxis()
    text: Look = {"textcoords": "offset points", "va": "center", "fontsize": 8}
    text["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
    for row, value in zip(rows, few["score"].values, strict=True):
        ax.annotate(f"{value:.2f}", (value, row), xytext=(4, 0), **text)
    ax.set_xlim(right=1.15 * max(1.0, float(few["score"].max())))  # space for the label of the longest bar
    if not allowed.all():
        bars = [Patch(color="lightgrey", label="stops beyond the cap: not recommended")]
        key(ax, handles=bars, below=True)
    return label(ax, x=str(dataset["score"].attrs["long_name"]), y="", title=title)


def goal_curves(
    runs: Mapping[str, Trajectory | xr.Dataset],
    ax: Axes,
    *,
    level: float | None = None,
    chance: float = np.nan,
    title: str = "",
) -> Axes:
    """Draw the measure of the goal of each training run over its steps, dashed before the last stage.

    Parameters
    ----------
    runs : mapping from names to TrainingRun or Dataset
        ``goal`` over time, and ``stage``.
    ax : Axes
    level : float, optional
        The goal.
    chance : float
        Measure of an output that ignores the inputs.
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
    >>> run = xr.Dataset(
    ...     {"goal": ("time", [0.5, 0.8, 0.9]), "stage": ("time", [0, 0, 1])}, coords={"time": [0, 50, 100]}
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.goal_curves({"easy first": run}, ax, level=0.85).get_ylabel()
    'measure of the goal'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['easy first']
    >>> plt.close(figure)
    """
    for k, (name, run) in enumerate(runs.items()):
        last = int(run["stage"].max())
        for stage in np.unique(run["stage"].values):
            # A stage starts where the previous one ended.
            part = run["goal"].where((run["stage"] == stage) | (run["stage"].shift(time=-1) == stage), drop=True)
            style: Look = {"linestyle": "-" if stage == last else "--", "linewidth": 1.6}
            ax.plot(part["time"], part, color=COLOURS[k], label=name if stage == last else None, **style)
    for height, text in ((level, "goal"), (chance, "chance")):
        if height is not None and np.isfinite(height):
            ax.axhline(height, color="grey", linewidth=0.8, linestyle=":")
            name_line(ax, height, text)
    ax.legend(frameon=False, fontsize=8)
    return label(ax, x="gradient steps", y="measure of the goal", title=title)


def training_over_theory(
    theory: xr.Dataset,
    runs: Sequence[xr.Dataset],
    ax: Axes,
    *,
    name: str = "training",
    colour: int = 0,
    title: str = "",
) -> Axes:
    """Draw runs of several seeds in colour and theory dotted: strengths if both have them, losses otherwise.

    Parameters
    ----------
    theory : Dataset
        ``strength`` over (time, mode) or ``loss`` over time.
    runs : sequence of Dataset
        The quantity from training, one dataset per seed.
    ax : Axes
    name : str
        Name of the runs in the legend.
    colour : int
        Index of the colour.
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
    >>> theory = xr.Dataset(
    ...     {"strength": (("time", "mode"), [[0.0], [0.6], [1.0]])}, coords={"time": [0, 50, 100]}
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.training_over_theory(theory, [0.98 * theory, 1.01 * theory], ax).get_ylabel()
    'strength $u$'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['training', 'theory']
    >>> plt.close(figure)
    """
    quantity = "strength" if all(bool(one["strength"].notnull().any()) for one in (theory, *runs)) else "loss"
    for k, run in enumerate(runs):
        values = np.atleast_2d(run[quantity].transpose(..., "time").values)
        for j, row in enumerate(values):
            named = name if k == 0 and j == 0 else None
            ax.plot(run["time"], row, color=COLOURS[colour], linewidth=1.1, alpha=0.5, label=named)
    first = "theory" not in [text.get_label() for text in ax.lines]
    for j, row in enumerate(np.atleast_2d(theory[quantity].transpose(..., "time").values)):
        ax.plot(theory["time"], row, **{**THEORY, "label": "theory" if first and j == 0 else None})
    key(ax, loc="lower right" if quantity == "strength" else "upper right")
    y = "strength $u$" if quantity == "strength" else "loss (target$^2$)"
    return label(ax, x="training time (gradient steps)", y=y, title=title)


def predicted_and_measured(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Draw the measured steps of every seed, their mean and the prediction for each plan.

    Parameters
    ----------
    dataset : Dataset
        ``measured_steps`` over (plan, seed), ``measured_mean`` and ``predicted_descent_steps`` over plan.
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
    >>> dataset = xr.Dataset(
    ...     {
    ...         "measured_steps": (("plan", "seed"), [[90.0, 110.0], [190.0, 210.0]]),
    ...         "measured_mean": ("plan", [100.0, 200.0]),
    ...         "predicted_descent_steps": ("plan", [101.0, 195.0]),
    ...     },
    ...     coords={"plan": ["easy first", "direct"]},
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.predicted_and_measured(dataset, ax).get_xlabel()
    "gradient steps to the target's accuracy"
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['one run', 'mean', 'predicted']
    >>> plt.close(figure)
    """
    rows = np.arange(dataset.sizes["plan"])
    measured = dataset["measured_steps"].values
    for row, values in zip(rows, measured, strict=True):
        spots = np.full(np.isfinite(values).sum(), row)
        named = "one run" if row == 0 else None
        ax.plot(values[np.isfinite(values)], spots, "o", color=COLOURS[0], alpha=0.35, markersize=5, label=named)
    ax.plot(dataset["measured_mean"], rows, "|", color=COLOURS[0], markersize=12, markeredgewidth=1.5, label="mean")
    hollow: Look = {"markerfacecolor": "none", "markeredgecolor": "black", "markersize": 4.5}
    ax.plot(dataset["predicted_descent_steps"], rows, "D", **hollow, label="predicted")
    ax.set_yticks(rows, [shortened(name, 26) for name in dataset["plan"].values])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ends = [dataset[name].values for name in ("measured_steps", "predicted_descent_steps")]
    last = max(float(np.nanmax(np.where(np.isfinite(values), values, 0.0))) for values in ends)
    ax.set_xlim(0.0, 1.08 * last or 1.0)  # from 0, so that small differences look small
    key(ax, below=True, ncols=3)
    return label(ax, x="gradient steps to the target's accuracy", y="", title=title)


def stop_curves(dataset: xr.Dataset, ax: Axes, *, name: str = "value", legend: bool = True, title: str = "") -> Axes:
    """Draw the total steps over the stop of the first task, training as points and theory dotted.

    Parameters
    ----------
    dataset : Dataset
        ``measured`` over (value, stop, seed), ``curve`` over (value, fine_stop), and ``direct_measured`` over seed.
    ax : Axes
    name : str
        Name of the values in the legend.
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
    >>> dataset = xr.Dataset(
    ...     {
    ...         "measured": (("value", "stop", "seed"), [[[80.0, 90.0], [60.0, 64.0]]]),
    ...         "curve": (("value", "fine_stop"), [[84.0, 70.0, 61.0]]),
    ...         "direct_measured": ("seed", [99.0, 101.0]),
    ...         "direct_predicted": 100.0,
    ...     },
    ...     coords={"value": [1.5], "stop": [0.5, 0.9], "fine_stop": [0.5, 0.7, 0.9]},
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.stop_curves(dataset, ax, name="strength").get_ylabel()
    'total gradient steps'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['direct training', 'theory, in the same colour', 'first strength 1.5']
    >>> plt.close(figure)
    """
    direct = float(dataset["direct_measured"].mean("seed"))
    dotted: Look = {"linestyle": THEORY["linestyle"], "linewidth": 1.2}
    ax.axhline(direct, color=DIRECT, linewidth=1.4, label="direct training")
    ax.axhline(float(dataset["direct_predicted"]), color=DIRECT, **dotted)
    for k, value in enumerate(dataset["value"].values):
        one, colour = dataset.sel(value=value), (SMALLER, LARGER)[k % 2]
        mean, spread = one["measured"].mean("seed"), one["measured"].std("seed")
        bars: Look = {"fmt": "o", "color": colour, "markersize": 3.5, "capsize": 2, "elinewidth": 0.8}
        ax.errorbar(one["stop"], mean, spread, **bars, label=f"first {name} {value:g}")
        ax.plot(one["fine_stop"], one["curve"], color=colour, **dotted)
    ax.plot([], [], color="black", **dotted, label="theory, in the same colour")
    ax.set_ylim(0, None)
    if legend:
        key(ax, below=True, ncols=2)
    return label(ax, x="accuracy at which the first task stops", y="total gradient steps", title=title)


def predictions(dataset: xr.Dataset, ax: Axes, *, theory: str, title: str = "") -> Axes:
    """Draw measured over predicted steps of many curricula, coloured by pool.

    Parameters
    ----------
    dataset : Dataset
        Predicted steps and ``measured`` over curriculum, with ``pool``.
    ax : Axes
    theory : str
        Variable of the prediction.
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
    >>> dataset = xr.Dataset(
    ...     {"flow": ("curriculum", [60.0, 100.0, 180.0]), "measured": ("curriculum", [62.0, 101.0, 185.0])},
    ...     coords={"pool": ("curriculum", ["4A", "4A", "4B"])},
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.predictions(dataset, ax, theory="flow").get_ylabel()
    'measured gradient steps'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['equal', '4A', '4B']
    >>> plt.close(figure)
    """
    ends = [float(f(dataset[key])) for f in (np.min, np.max) for key in ("measured", theory)]
    span = np.array([0.85 * min(ends), 1.15 * max(ends)])
    ax.plot(span, span, **{**THEORY, "linewidth": 1.2}, label="equal")
    for k, pool in enumerate(dict.fromkeys(dataset["pool"].values.tolist())):
        one = dataset.isel(curriculum=np.flatnonzero(dataset["pool"].values == pool))
        ax.plot(one[theory], one["measured"], "o", color=COLOURS[k], markersize=3, alpha=0.75, label=str(pool))
    for along in "xy":
        logarithmic(ax, along)
    key(ax, title="first task varies as in")
    return label(ax, x="predicted gradient steps", y="measured gradient steps", title=title)
