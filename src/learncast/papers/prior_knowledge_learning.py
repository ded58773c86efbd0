"""Learning one task: pictures and numbers of braun2022's figures 1 to 4."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from learncast import figures
from learncast.papers.prior_knowledge_sheet import curves, gaps, sheet, short
from learncast.papers.two_layer_kingdom import ITEMS
from learncast.papers.two_layer_learning import STARTS
from learncast.validation import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: What figure 2 shows over training.
QUANTITIES = ("loss", "network_function", "input_gram", "output_gram", "tangent_kernel")


def draw_everything(title: str, dataset: xr.Dataset) -> Figure:
    """Loss, network function, similarities and tangent kernel over training."""
    loss, *others = QUANTITIES
    first = curves(dataset, loss, names=["descent"], title=title)
    return sheet(first, *(curves(dataset, name, legend=False) for name in others), width=3.2)


def draw_deviations(dataset: xr.Dataset) -> Figure:
    """Deviation of theory and training against the learning rate."""
    return sheet(partial(figures.deviations, dataset, title="2C  theory against training"), width=4.8)


def draw_five(dataset: xr.Dataset) -> Figure:
    """Learning curves of a few networks."""
    names = [str(name) for name in dataset["network"].values]
    return sheet(curves(dataset, "loss", names=names, title="2D  five networks of 2C"), width=4.8)


def draw_structure(title: str, shown: slice, dataset: xr.Dataset) -> Figure:
    """Singular value decomposition and similarity matrices of tasks."""
    draws = []
    names = ("output_vectors", "singular_values", "input_vectors", "input_similarity", "output_similarity")
    for task in dataset["task"].values[shown]:
        for name in names:
            values = dataset[name].sel(task=task)
            rows = ITEMS if name == "input_similarity" else None
            columns = ITEMS if name in ("input_vectors", "input_similarity") else None
            heading = f"{title}  {task}: U" if name == names[0] else values.attrs["long_name"]
            draws.append(partial(figures.matrix, values, rows=rows, columns=columns, title=heading))
    return sheet(*draws, columns=len(names), width=2.9, height=3.0)


def draw_gram(panel: str, dataset: xr.Dataset) -> Figure:
    """Q Q^T before and after training, and the task's own."""
    one, top = dataset.sel(start=STARTS[panel]), float(np.abs(dataset["task_gram"]).max())
    shown = (
        (one["start_gram"], None, f"{panel}  {STARTS[panel]} start: Q Q^T"),
        (one["end_gram"], None if panel == "3D" else top, "after training"),
        (one["task_gram"], top, "the task's own"),
    )
    draws = (partial(figures.matrix, m, limit=limit, borders=(len(ITEMS),), title=title) for m, limit, title in shown)
    return sheet(*draws, width=3.2, height=2.8)


def draw_regimes(dataset: xr.Dataset) -> Figure:
    """Learning curves from three starts."""
    names, early = list(STARTS.values()), dataset.sel(time=slice(0, 300))
    first = curves(dataset, "loss", names=names, title="3F  three starts")
    return sheet(first, curves(early, "loss", legend=False, title="the first 300 steps"))


def draw_decoupling(panel: str, dataset: xr.Dataset) -> Figure:
    """Strengths within and between two modes, a panel for each scale."""
    last = dataset["scale"].values[-1]
    draws = (
        partial(figures.decoupling, dataset.isel(scale=k), legend=scale == last, title=f"{panel}  {scale} start")
        for k, scale in enumerate(dataset["scale"].values)
    )
    return sheet(*draws, width=3.8)


def slopes(deviation: xr.DataArray) -> FloatArray:
    """Of each network's deviation against the learning rate, on logarithmic axes."""
    return np.asarray(np.polyfit(np.log(deviation["learning_rate"]), np.log(deviation.values.T), 1)[0])


def deviation_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Slopes of the deviation against the learning rate."""
    found, deviation = slopes(dataset["deviation"]), dataset["deviation"]
    return {
        "networks": len(found),
        "median slope": short(np.median(found)),
        "smallest and largest slope": [short(found.min()), short(found.max())],
        "largest deviation at the largest rate": short(deviation.isel(learning_rate=0).max()),
        "largest deviation at the smallest rate": short(deviation.isel(learning_rate=-1).max()),
    }


def structure_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Singular values, and what the revisions change."""
    values = np.diagonal(dataset["singular_values"].values, axis1=1, axis2=2)
    found: dict[str, Any] = {"singular values": [short(v) for v in values[0]]}
    for k, task in enumerate(dataset["task"].values[1:], start=1):
        found[f"{task}: items that move"] = int((dataset["features"][k] != dataset["features"][0]).any("row").sum())
        for side in ("input", "output"):
            change = np.abs(dataset[f"{side}_similarity"][k] - dataset[f"{side}_similarity"][0]).max()
            found[f"{task}: largest change of the {side} similarity"] = short(np.round(change, 12))
    return found


def gram_numbers(panel: str, dataset: xr.Dataset) -> dict[str, Any]:
    """Distance of the similarities at the end from the task's own."""
    own, n = dataset["task_gram"].values, len(ITEMS)
    end = dataset["end_gram"].sel(start=STARTS[panel]).values
    found: dict[str, Any] = {"final loss": short(dataset["final_loss"].sel(start=STARTS[panel]))}
    for name, block in {"input": np.s_[:n, :n], "output": np.s_[n:, n:], "function": np.s_[n:, :n]}.items():
        distance = np.linalg.norm(end[block] - own[block]) / np.linalg.norm(own[block])
        found[f"distance from the task's own, {name} block, share"] = short(distance)
    if panel == "3E":
        found["largest gap of the flow's limit and the task's own"] = short(np.abs(dataset["limit_gram"] - own).max())
    return found


def regime_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Steps to learn from each start."""
    learned = (dataset["loss"].sel(source="descent") < 0.01).values.argmax(axis=0)
    found = {
        f"{start}: steps to 1% of the loss": int(dataset["time"][k])
        for start, k in zip(STARTS.values(), learned, strict=True)
    }
    return found | gaps("loss")(dataset)


def decoupling_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Gaps of theory and training, and peaks of the coupling."""
    found = gaps("diagonal", "coupling")(dataset)
    size = np.abs(dataset["coupling"].sel(source="descent").values)
    for k, scale in enumerate(dataset["scale"].values):
        found[f"{scale} start: largest coupling"] = short(size[:, k].max())
        found[f"{scale} start: at step"] = int(dataset["time"][size[:, k].argmax()])
        if np.isfinite(dataset["peak_step"][k]):
            found[f"{scale} start: predicted peak, step"] = round(float(dataset["peak_step"][k]), 2)
    return found
