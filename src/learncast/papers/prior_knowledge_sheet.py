"""The sheet of a braun2022 figure: axes side by side with curves over training on them, and its numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from learncast import figures
from learncast.papers.two_layer_descent import SOURCES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def sheet(*draws: Callable[[Axes], Any], columns: int = 0, width: float = 4.2, height: float = 3.2) -> Figure:
    """One axes for each of the draws, `columns` in a row; all in one row by default."""
    across = columns or len(draws)
    figure, axes = figures.page(-(-len(draws) // across), across, width=width, height=height)
    for draw, ax in zip(draws, axes, strict=True):
        draw(ax)
    return figure


def curves(dataset: xr.Dataset, name: str, **options: Any) -> Callable[[Axes], Axes]:
    """What draws a quantity over training, with a line at each switch of tasks."""
    stage = dataset["stage"].values if "stage" in dataset.coords else np.zeros(1)
    switches = dataset["time"].values[1:][np.diff(stage) > 0].tolist() if len(stage) > 1 else []
    return partial(figures.learning_curves, dataset[name], switches=switches, **options)


def draw_functions(title: str, dataset: xr.Dataset) -> Figure:
    """The network function over training."""
    return sheet(curves(dataset, "network_function", title=title), width=4.8)


def short(value: Any) -> float:
    """Four digits of a number."""
    return float(f"{float(value):.4g}")


def gaps(*names: str) -> Callable[[xr.Dataset], dict[str, Any]]:
    """Largest gap of theory and training, as a share of the quantity's own size."""

    def numbers(dataset: xr.Dataset) -> dict[str, Any]:
        found = {}
        for name in names:
            trained_values, theory = (dataset[name].sel(source=source).values for source in SOURCES)
            share = np.nanmax(np.abs(trained_values - theory)) / np.nanmax(np.abs(theory))
            found[f"largest gap of theory and training, {name.replace('_', ' ')}, share"] = short(share)
        return found

    return numbers


def stage_of(dataset: xr.Dataset, stage: int) -> xr.Dataset:
    """The times of one stage."""
    return dataset.isel(time=dataset["stage"].values == stage)
