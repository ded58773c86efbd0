"""Figures of advice: the pilots, and the training that followed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import NullFormatter

from learncast.figures.look import COLOURS, GREY
from learncast.figures.page import key, label

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

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
    key(ax, below=True)
    return label(ax, x="learning rate", y="mean loss of five steps", title=title)


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
    key(ax, below=True)
    return label(ax, x="gradient step", y="loss", title=title)
