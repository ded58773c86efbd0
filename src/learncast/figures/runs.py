"""Figures of training runs beside their forecasts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from learncast.figures.look import COLOURS, DIRECT, LARGER, PALE, SMALLER, THEORY, Look
from learncast.figures.page import axis_label, key, label, name_line, shortened, with_key
from learncast.results import Trajectory


def deviations(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Draw the deviation of theory from descent over the learning rate, one line per network.

    Parameters
    ----------
    dataset : Dataset
        ``deviation`` over (network, learning_rate).
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
    marked, rates, gaps = 5, dataset["learning_rate"], dataset["deviation"]
    for k, gap in enumerate(gaps.values):
        name = str(gaps["network"].values[k]) if k < marked and "network" in gaps.coords else None
        plain: Look = {"color": PALE, "linewidth": 0.6, "zorder": 2}
        plain["label"] = f"{len(gaps) - marked} other networks" if k == marked else None
        bold: Look = {"color": COLOURS[k % len(COLOURS)], "marker": "x", "zorder": 3, "label": name}
        ax.loglog(rates, gap, **(bold if k < marked else plain))
    middle = float(np.median(gaps.isel(learning_rate=0)))
    ax.loglog(rates, 4 * middle * rates / float(rates[0]), **THEORY, label="slope 1")
    return with_key(ax, axis_label(rates), axis_label(gaps), title, below=True, ncols=4)


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
    colour: str = COLOURS[0],
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
    colour : str
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
            ax.plot(run["time"], row, color=colour, linewidth=1.1, alpha=0.5, label=named)
    first = "theory" not in [text.get_label() for text in ax.lines]
    for j, row in enumerate(np.atleast_2d(theory[quantity].transpose(..., "time").values)):
        ax.plot(theory["time"], row, **{**THEORY, "label": "theory" if first and j == 0 else None})
    key(ax, below=True, ncols=2)
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
    return with_key(ax, "gradient steps to the target's accuracy", "", title, below=True, ncols=3)


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
        several = one["measured"].notnull().sum("seed").max() > 1
        ax.errorbar(one["stop"], mean, spread if several else None, **bars, label=f"first {name} {value:g}")
        ax.plot(one["fine_stop"], one["curve"], color=colour, **dotted)
    ax.plot([], [], color="black", **dotted, label="theory, in the same colour")
    ax.set_ylim(0, None)
    if legend:
        key(ax, below=True, ncols=2)
    return label(ax, x="accuracy at which the first task stops", y="total gradient steps", title=title)
