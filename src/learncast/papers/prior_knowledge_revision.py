"""Knowledge reversed and revised: pictures and numbers of braun2022's figure 6."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from learncast import figures
from learncast.figures.page import COLOURS
from learncast.papers.prior_knowledge_sheet import curves, gaps, sheet, short, stage_of
from learncast.papers.two_layer_descent import SOURCES
from learncast.papers.two_layer_kingdom import ITEMS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_features(dataset: xr.Dataset) -> Figure:
    """Features of the items, task by task."""
    named = ((task, dataset["features"].sel(task=task)) for task in dataset["task"].values)
    return sheet(
        *(partial(figures.matrix, m, columns=ITEMS, title=f"6C  {task}") for task, m in named), width=3.4, height=3.6
    )


def draw_revision(panel: str, name: str, dataset: xr.Dataset) -> Figure:
    """A quantity over learning the living kingdom and then its revision, two panels."""

    def draw(k: int, ax: Axes) -> None:
        one, what = dataset.isel(panel=k), f": {ITEMS[k]}" if name == "item_output" else ""
        curves(one, name, title=f"{panel}  living kingdom, then {dataset['panel'].values[k]}{what}")(ax)
        escape = float(one["escape_step"])
        if np.isfinite(escape) and name == "loss_in_training":
            height = float(one[name].sel(source="descent", time=escape))
            ax.plot(escape, height, "o", color=COLOURS[2], markersize=11, markerfacecolor="none", markeredgewidth=1.8)

    return sheet(partial(draw, 0), partial(draw, 1), columns=1, width=6.4, height=2.9)


def draw_paths(panel: str, titles: Sequence[str], dataset: xr.Dataset) -> Figure:
    """Paths of the items in a plane, two panels."""
    draws = (
        partial(figures.item_paths, dataset["points"].isel(panel=k), names=ITEMS, title=f"{panel}  {title}")
        for k, title in enumerate(titles)
    )
    return sheet(*draws, width=4.6, height=4.2)


def draw_reversal(dataset: xr.Dataset) -> Figure:
    """Network function over the reversal, and the time on the saddle against noise."""
    function = curves(dataset, "network_function", title="6A  reversal, two layers")
    return sheet(function, partial(figures.escapes, dataset, title="time on the saddle"), width=4.8, height=3.4)


def reversal_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """What is left on the saddle, and how long it holds training of many networks."""
    first, last = stage_of(dataset, 0), dataset.isel(time=-1)
    learned = first.isel(time=-1).sel(source="theory")
    least = float(learned["loss"].isel(task=0))
    found: dict[str, Any] = {
        "half the squared norm of the task": short(0.5 * (learned["network_function"] ** 2).sum()),
        "excess loss, flow at its end": short(last["loss"].sel(source="theory").isel(task=1) - least),
        "excess loss, training at its end": short(np.round(last["loss"].sel(source="descent")[1] - least, 12)),
        "training leaves the saddle, steps after the switch": int(dataset["escape_step"] - first["time"][-1]),
    }
    measured = dataset["measured_escape"]
    found["networks pushed off the saddle by noise"] = int(measured.size)
    for size in (0, -1):
        steps = [short(v) for v in measured.isel(noise=size).values]
        found[f"noise of {float(dataset['noise'][size]):g}: measured steps on the saddle"] = steps
    for name, words in (("integrated", "integrated flow"), ("balanced", "closed form, as if balanced")):
        gap = np.abs(dataset[f"{name}_escape"] / measured - 1)
        found[f"steps on the saddle, largest gap of {words} and training, share"] = short(gap.max())
    found["without noise: steps on the saddle until round-off ends it"] = short(dataset["unkicked_escape"])
    found["one layer: steps to the same loss"] = int(dataset["one_layer_step"])
    return found | gaps("network_function")(first)


def shallow_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Steps of one layer through the reversal."""
    steps = {"steps after the switch to half of the loss without weights": int(dataset["one_layer_step"])}
    return gaps("network_function")(dataset) | steps


def revision_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Steps to learn and losses at the end, stage by stage."""
    found: dict[str, Any] = {}
    for k, name in enumerate(dataset["panel"].values):
        for stage, words in enumerate((f"living kingdom before {name}", f"then {name}")):
            part = stage_of(dataset.isel(panel=k), stage)
            for source in SOURCES:
                loss = part["loss_in_training"].sel(source=source).values
                learned = np.flatnonzero(loss < 0.01)
                steps = int(part["time"][learned[0]] - part["time"][0]) if learned.size else None
                found[f"{words}: steps to a loss of 0.01, {source}"] = steps
                if stage:
                    found[f"{words}: final loss, {source}"] = short(np.round(loss[-1], 9))
        told, switch = float(dataset["told_escape_step"][k]), float(stage_of(dataset, 1)["time"][0])
        if np.isfinite(told):
            escape = int(float(dataset["escape_step"][k]) - switch)
            found[f"then {name}: training leaves the saddle, steps after the switch"] = escape
            found[f"then {name}: the same, told by the flow from the same weights"] = int(told - switch)
    return found


def item_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Gaps of theory and training in the outputs for one item."""
    ends = np.ptp(dataset["item_output"].isel(time=-1).transpose("source", "panel", "row").values, axis=0).max(axis=1)
    found = {
        f"then {name}: largest gap at the end": short(v) for name, v in zip(dataset["panel"].values, ends, strict=True)
    }
    return gaps("item_output")(stage_of(dataset, 0)) | found


def path_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """What the planes miss, and how far apart the fish end."""
    fish = dataset["outputs"].isel(item=0, time=-1) - dataset["outputs"].isel(item=1, time=-1)
    apart = np.sqrt((fish**2).sum("feature"))
    found: dict[str, Any] = {}
    for k in (0, 1):
        found[f"panel {k + 1}: share of squared distances missed"] = short(dataset["stress"][k])
        for i, source in enumerate(SOURCES):
            found[f"panel {k + 1}: distance of the two fish at the end, {source}"] = short(np.round(apart[k, i], 9))
    return found
