"""Pictures of curricula: the path through the stages, and the ranking of candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from learncast.figures.page import COLOURS, THEORY, label

DIRECT, STAGED, BAND = COLOURS[1], COLOURS[0], "#BBBBBB"


def curriculum_paths(
    staged: xr.Dataset,
    direct: xr.Dataset,
    ax: Axes,
    *,
    optimum: float,
    tolerance: float,
    first_optimum: float | None = None,
    switch: float | None = None,
    mode: int = 0,
    simulated: dict[str, xr.Dataset] | None = None,
    simulated_by: str = "descent",
    title: str = "",
) -> Axes:
    """One mode's strength under a curriculum and under direct training, with the target's tolerance band.

    Parameters
    ----------
    staged, direct : Dataset
        ``strength`` over (time, mode).
    ax : Axes
    optimum, tolerance : float
        The target's optimum and eps: the band that counts as learned.
    first_optimum : float, optional
        The first task's optimum, a thin line.
    switch : float, optional
        When the tasks change over.
    mode : int
    simulated : mapping, optional
        ``"staged"`` and ``"direct"`` from training, drawn in colour under the theory.
    simulated_by : str
        How they were made, for the legend.
    title : str
    """
    ax.axhspan((1 - tolerance) * optimum, (1 + tolerance) * optimum, color=BAND, alpha=0.6, linewidth=0)
    ax.axhline(optimum, color="grey", linewidth=0.8)
    _name_line(ax, optimum, "target's optimum")
    if first_optimum is not None and np.isfinite(first_optimum):
        ax.axhline(first_optimum, color=STAGED, linewidth=0.8, linestyle="--")
        if abs(first_optimum - optimum) > 0.1 * max(abs(first_optimum), abs(optimum)):
            _name_line(ax, first_optimum, "first task's optimum")
    for name, dataset, colour in (("direct", direct, DIRECT), ("curriculum", staged, STAGED)):
        key = "direct" if name == "direct" else "staged"
        if simulated is not None:
            series = simulated[key]["strength"].isel(mode=mode)
            ax.plot(series["time"], series, color=colour, linewidth=3.2, alpha=0.65, label=f"{name}, {simulated_by}")
            style: dict[str, Any] = {**THEORY, "label": "theory" if name == "direct" else None}
        else:
            style = {"color": colour, "linewidth": 2, "label": name}
        series = dataset["strength"].isel(mode=mode)
        ax.plot(series["time"], series, **style)
    if switch is not None:
        ax.axvline(switch, color=STAGED, linewidth=0.8, linestyle=":")
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    return label(ax, x="training time (gradient steps)", y="strength u", title=title)


def _name_line(ax: Axes, height: float, text: str) -> None:
    place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    ax.annotate(text, (0.01, height), xytext=(0, 3), fontsize=7.5, color="dimgrey", **place)


def loss_paths(
    staged: xr.Dataset,
    direct: xr.Dataset,
    ax: Axes,
    *,
    goal: float,
    switches: Sequence[float] = (),
    title: str = "",
) -> Axes:
    """Excess loss of the target under a curriculum and under direct training.

    Parameters
    ----------
    staged, direct : Dataset
        ``target_excess_loss`` over time.
    ax : Axes
    goal : float
        Excess loss at which the target counts as learned.
    switches : sequence of float
        When tasks change over.
    title : str
    """
    for name, dataset, colour in (("direct", direct, DIRECT), ("curriculum", staged, STAGED)):
        series = dataset["target_excess_loss"]
        ax.plot(series["time"], np.maximum(series, 1e-3 * goal), color=colour, linewidth=2, label=name)
    ax.axhline(goal, color="grey", linewidth=0.8)
    _name_line(ax, goal, "learned")
    for switch in switches:
        ax.axvline(switch, color=STAGED, linewidth=0.8, linestyle=":")
    ax.set_yscale("log")
    ax.legend(frameon=False, fontsize=8, loc="upper right")
    return label(ax, x="training time (gradient steps)", y="excess loss on the target", title=title)


def stop_curve(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Steps in all over the first task's stop, at the accuracy asked for; a star marks the plan.

    Parameters
    ----------
    dataset : Dataset
        What `learncast.planning.plans.stop_portrait.stop_portrait` returned.
    ax : Axes
    title : str
    """
    asked = dataset.sel(accuracy=float(dataset.attrs["accuracy"]), method="nearest")
    direct = float(asked["direct_steps"])
    total = direct - asked["saving_steps"].values
    ax.plot(dataset["stop"], total, color=STAGED, linewidth=2, label="both stages")
    if np.isfinite(direct):
        ax.axhline(direct, color="black", linewidth=1, linestyle="--", label="direct training")
    stop = float(dataset.attrs["stop_steps"])
    if np.isfinite(total).any():
        height = float(np.interp(stop, dataset["stop"].values, total))
        ax.plot(stop, height, marker="*", markersize=13, color="#F0E442", markeredgecolor="black", clip_on=False)
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    return label(ax, x=f"steps on {dataset.attrs['candidate']}", y="flow steps in all", title=title)


def stop_map(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Steps saved over the first task's stop and the accuracy asked of the target; a star marks the plan.

    Parameters
    ----------
    dataset : Dataset
        What `learncast.planning.plans.stop_portrait.stop_portrait` returned.
    ax : Axes
    title : str
    """
    saving = dataset["saving_steps"].values
    finite = np.abs(saving[np.isfinite(saving)])
    top = max(float(np.percentile(finite, 97)) if finite.size else 0.0, 1e-9)
    x, y = dataset["stop"].values, 1.0 - dataset["accuracy"].values
    mesh = ax.pcolormesh(
        x, y, np.clip(saving, -top, top), cmap="RdBu", vmin=-top, vmax=top, shading="nearest", rasterized=True
    )
    if finite.size and np.nanmin(saving) < 0 < np.nanmax(saving):
        ax.contour(x, y, saving, levels=[0.0], colors="black", linewidths=1)
    ax.plot(
        float(dataset.attrs["stop_steps"]),
        1.0 - float(dataset.attrs["accuracy"]),
        marker="*",
        markersize=13,
        color="#F0E442",
        markeredgecolor="black",
        clip_on=False,
    )
    ax.set_yscale("log")
    bar = ax.figure.colorbar(mesh, ax=ax)
    bar.set_label("steps saved (blue) or lost (red)", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return label(
        ax,
        x=f"steps on {dataset.attrs['candidate']}",
        y="tolerance asked of the target (1 - accuracy)",
        title=title,
    )


def ranking(dataset: xr.Dataset, ax: Axes, *, most: int = 12, title: str = "") -> Axes:
    """Total steps of each candidate's best curriculum against direct training.

    Parameters
    ----------
    dataset : Dataset
        `Plan.dataset`: ``stop_steps`` and ``flow_steps`` over candidate, and ``direct_steps``.
    ax : Axes
    most : int
        Show this many, the best.
    title : str
    """
    shown = dataset.isel(candidate=slice(0, most))
    direct = float(dataset["direct_steps"])
    total = np.where(np.isfinite(shown["flow_steps"]), shown["flow_steps"], direct if np.isfinite(direct) else 0.0)
    first = np.where(np.isfinite(shown["stop_steps"]), shown["stop_steps"], 0.0)
    names = [str(name) for name in shown["candidate"].values]
    rows = np.arange(len(names))
    ax.barh(rows, first, color=STAGED, label="on the candidate")
    ax.barh(rows, total - first, left=first, color=DIRECT, label="on the target")
    if np.isfinite(direct):
        ax.axvline(direct, color="black", linewidth=1, linestyle="--", label="direct training")
    ax.set_yticks(rows, [name if len(name) <= 24 else name[:22] + "…" for name in names])
    ax.invert_yaxis()
    ax.set_xlim(0, 1.32 * max(direct if np.isfinite(direct) else 0.0, float(total.max(initial=0.0))) or 1.0)
    ax.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=3)
    for row, value in zip(rows, shown["speedup_steps"].values, strict=True):
        text = "never learned" if not np.isfinite(direct) else "no gain" if not value > 0 else f"saves {value:.0f}"
        ax.annotate(text, (total[row], row), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    return label(ax, x="flow steps to the target's accuracy", y="", title=title)
