"""Figures of plans, curricula and advice: their paths, totals, rankings, stops and training."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from learncast.figures.look import COLOURS, DIRECT, FIRST, GREY, PALE, STAGED, TARGET, THEORY, TRAINED, Look
from learncast.figures.maps import STAR, starred
from learncast.figures.page import key, label, name_line, name_step, shortened, with_key, wrapped

BAND = PALE


def curriculum_paths(
    staged: xr.Dataset,
    direct: xr.Dataset,
    ax: Axes,
    *,
    optimum: float,
    tolerance: float,
    first_optimum: float | None = None,
    switch: float | Sequence[float] | None = None,
    learned: Sequence[float] = (),
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
    learned : sequence of float
        Steps after which direct training and the curriculum have learned the target, drawn as dots with their numbers.
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
        ax.axhline(first_optimum, color=FIRST, linewidth=0.7, linestyle="--", label=name)
        if legend and abs(first_optimum - optimum) > 0.1 * max(abs(first_optimum), abs(optimum)):
            # Below the highest line, since the title is above it.
            name_line(ax, first_optimum, "first task's optimum", up=-8 if first_optimum > optimum else 2)
    for k, (name, which, dataset, colour) in enumerate(
        (("direct", "direct", direct, DIRECT), ("curriculum", "staged", staged, STAGED))
    ):
        look: Look = {"color": colour, "label": name}
        if simulated is not None:
            series = simulated[which]["strength"].isel(mode=mode)
            ax.plot(series["time"], series, color=colour, **TRAINED, label=f"{name}, {simulated_by}")
            look = THEORY | {"label": "theory" if name == "direct" else None}
        series = dataset["strength"].isel(mode=mode)
        ax.plot(series["time"], series, **look)
        for step in learned[k : k + 1]:
            name_step(ax, step, float(np.interp(step, series["time"], series)), colour=colour, offset=(4, -9))
    _switches(ax, [] if switch is None else np.atleast_1d(switch).tolist())
    if legend:
        key(ax, below=True, ncols=2)
    return label(ax, x="training time (gradient steps)", y="strength $u$", title=title)


def loss_paths(
    staged: xr.Dataset,
    direct: xr.Dataset,
    ax: Axes,
    *,
    goal: float,
    switches: Sequence[float] = (),
    learned: Sequence[float] = (),
    title: str = "",
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
    learned : sequence of float
        Steps after which direct training and the curriculum have learned the target, drawn as dots with their numbers.
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
    ['direct', 'curriculum', 'switch']
    >>> plt.close(figure)
    """
    for k, (name, dataset, colour) in enumerate((("direct", direct, DIRECT), ("curriculum", staged, STAGED))):
        series = dataset["target_excess_loss"]
        ax.plot(series["time"], series.where(series > 1e-3 * goal), color=colour, label=name)
        for step in learned[k : k + 1]:
            name_step(ax, step, goal, colour=colour, offset=(-5, -9) if k else (5, 4))
    ax.axhline(goal, color="grey", linewidth=0.7)
    name_line(ax, goal, "learned")
    _switches(ax, switches)
    ax.set_yscale("log")
    return with_key(ax, "training time (gradient steps)", "excess loss on the target", title, loc="upper right")


def _switches(ax: Axes, times: Sequence[float]) -> None:
    for k, time in enumerate(times):
        ax.axvline(time, color=STAGED, linewidth=0.9, linestyle=":", label=None if k else "switch")


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
    what = "cost" if "saving_cost" in dataset else "steps"
    direct = float(planned[f"direct_{what}"])
    total = direct - planned[f"saving_{what}"].values
    ax.plot(dataset["stop"], total, color=STAGED, label="both stages")
    if np.isfinite(direct):
        ax.axhline(direct, color=DIRECT, linewidth=1, linestyle="--", label="direct training")
    stop = float(dataset.attrs["stop_steps"])
    if np.isfinite(total).any():
        height = float(np.interp(stop, dataset["stop"].values, total))
        ax.plot(stop, height, **STAR, linestyle="none", label=starred(dataset))
    ax.set_ylim(bottom=0)
    label(ax, x=wrapped(f"steps on {dataset.attrs['candidate']}", 34), y=f"total {what}", title=title)
    key(ax, below=True, ncols=2)  # below the label
    return ax


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
    ax.barh(rows, first, color=FIRST, label="on the candidate")
    ax.barh(rows, total - first, left=first, color=TARGET, label="on the target")
    if np.isfinite(direct):
        ax.axvline(direct, color=DIRECT, linewidth=1.2, linestyle="--", label="direct training")
    fit = partial(wrapped, most=22) if len(rows) <= 6 else partial(shortened, most=24)
    ax.set_yticks(rows, [fit(name) for name in best["candidate"].values])
    ax.invert_yaxis()
    ax.set_xlim(0, 1.32 * max(direct if np.isfinite(direct) else 0.0, float(total.max(initial=0.0))) or 1.0)
    key(ax, below=True, ncols=3)
    for row, value in zip(rows, best["saving"].values, strict=True):
        text = "not learned" if not np.isfinite(direct) else "no gain" if not value > 0 else f"saves {value:.0f}"
        # Right of the line of direct training, which the text would otherwise cross.
        beyond = max(total[row], direct) if np.isfinite(direct) else total[row]
        ax.annotate(text, (beyond, row), xytext=(4, 0), textcoords="offset points", va="center", fontsize=6.5)
    if len(rows) < (number := dataset.sizes["candidate"]):
        title = f"{title}\n({len(rows)} of {number})"
    return label(ax, x=f"{'cost' if priced else 'steps'} to the target's accuracy", y="", title=title)


def plan_scores(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    r"""Draw the scores of the best plans, at most 12, relative to direct training.

    Parameters
    ----------
    dataset : Dataset
        `Advice.dataset`: ``score`` over plan.
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
    >>> advice = xr.Dataset(
    ...     {"score": ("plan", [0.7, 1.0], {"long_name": "steps relative to direct training"})},
    ...     coords={"plan": ["easy first", "direct"]},
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.plan_scores(advice, ax).get_xlabel()
    'steps relative to direct\ntraining'
    >>> plt.close(figure)
    """
    few = dataset.isel(plan=slice(0, 12))
    rows = np.arange(few.sizes["plan"])
    ax.barh(rows, few["score"], color=STAGED)
    ax.axvline(1.0, color=DIRECT, linewidth=1, linestyle="--")
    above: Look = {"xycoords": ("data", "axes fraction"), "fontsize": 8, "ha": "center", "va": "bottom"}
    ax.annotate("direct training", (1.0, 1.0), **above)
    ax.set_yticks(rows, [wrapped(shortened(str(name), 44), 22) for name in few["plan"].values])
    ax.invert_yaxis()
    for row, value in zip(rows, few["score"].values, strict=True):
        # Inside the bar, where the line of direct training does not cross it.
        end = value - 0.02 if value < 1 else 0.96
        ax.annotate(f"{value:.2f}", (end, row), va="center", ha="right", fontsize=8, color="white")
    ax.set_xlim(right=1.05 * max(1.0, float(few["score"].max())))
    return label(ax, x=wrapped(str(dataset["score"].attrs["long_name"]), 28), y="", title=title)


LOSS, GOAL = COLOURS[0], COLOURS[1]


def pilot_losses(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Draw the mean loss of each pilot over its learning rate, and the chosen rate.

    Parameters
    ----------
    dataset : Dataset
        `Advice.dataset`: ``pilot_rate`` and ``pilot_loss``.
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
    >>> losses = {"pilot_rate": ("pilot", [0.1, 0.4]), "pilot_loss": (("pilot", "pilot_step"), [[1.0, 0.9], [1, 2]])}
    >>> figure, ax = plt.subplots()
    >>> rates = {"learning_rate": 0.1, "given_rate": 0.1}
    >>> lc.figures.pilot_losses(xr.Dataset(losses, attrs=rates), ax).get_xlabel()
    'learning rate'
    >>> plt.close(figure)
    """
    rates, losses = dataset["pilot_rate"].values, dataset["pilot_loss"].mean("pilot_step").values
    order, bounded = np.argsort(rates), np.isfinite(losses)
    ax.plot(rates[order], np.where(bounded, losses, np.nan)[order], "o-", color=LOSS)
    if not bounded.all():
        top = float(losses[bounded].max()) if bounded.any() else 1.0
        ax.plot(rates[~bounded], np.full(int((~bounded).sum()), top), "x", color="black", label="diverged")
    ax.axvline(dataset.attrs["given_rate"], color="grey", linestyle=":", label="given")
    ax.axvline(dataset.attrs["learning_rate"], color=GOAL, linestyle="--", label="chosen")
    ax.set_xscale("log")
    ax.xaxis.set_minor_formatter(NullFormatter())
    return with_key(ax, "learning rate", "mean loss of five steps", title, below=True)


def advised_training(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Draw the loss of the pilots, then loss and goal of the training; steps with easier tasks mixed in are shaded.

    Parameters
    ----------
    dataset : Dataset
        `Advice.dataset` after `Advice.carried_out`.
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
    >>> run = {"pilot_loss": (("pilot", "pilot_step"), [[1.0, 0.9]]), "run_loss": ("run_step", [0.9, 0.5, 0.2])}
    >>> dataset = xr.Dataset(run, coords={"run_step": [0, 10, 20]}, attrs={"run_stage_steps": [20]})
    >>> figure, ax = plt.subplots()
    >>> lc.figures.advised_training(dataset, ax).get_xlabel()
    'gradient step'
    >>> plt.close(figure)
    """
    losses = dataset["pilot_loss"].values
    ax.axvspan(-losses.size, 0, color=GREY, alpha=0.1, linewidth=0, label="pilots")
    for k, row in enumerate(losses):
        steps = k * losses.shape[1] + np.arange(losses.shape[1]) - losses.size
        ax.plot(steps, np.where(np.isfinite(row), row, np.nan), color="grey", linewidth=1)
    step = dataset["run_step"].values
    ax.plot(step, dataset["run_loss"], color=LOSS, label="loss")
    taken = np.concatenate([[0], np.cumsum(dataset.attrs["run_stage_steps"])])
    if len(taken) == 4 and taken[2] > taken[1]:
        ax.axvspan(taken[1], taken[2], color=GREY, alpha=0.25, linewidth=0, label="easier tasks mixed in")
    if "run_goal" in dataset and np.isfinite(dataset["run_goal"]).any():
        right = ax.twinx()
        right.plot(step, dataset["run_goal"], color=GOAL)
        ax.plot([], [], color=GOAL, label="measure of the goal (right)")
        right.set_ylabel("measure of the goal")
    # A pilot that diverges must not hide the others.
    ax.set_ylim(top=1.2 * max(float(dataset["run_loss"].max()), float(losses[:, :1].max(initial=0.0))))
    return with_key(ax, "gradient step", "loss", title, below=True)
