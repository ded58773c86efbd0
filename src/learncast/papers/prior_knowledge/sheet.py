"""The sheet of a braun2022 figure: curves over training, theory over descent, and how far they are apart."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from learncast import figures
from learncast.papers.paper import short
from learncast.papers.prior_knowledge.descent import SOURCES


def curves(dataset: xr.Dataset, name: str, **options: Any) -> Callable[..., Any]:
    """What draws a quantity over training, with a line at each switch of tasks."""
    stage = dataset["stage"].values if "stage" in dataset.coords else np.zeros(1)
    switches = dataset["time"].values[1:][np.diff(stage) > 0].tolist() if len(stage) > 1 else []
    return partial(figures.learning_curves, dataset[name], switches=switches, **options)


def draw_functions(title: str, dataset: xr.Dataset) -> figures.Figure:
    """The network function over training."""
    return figures.sheet(curves(dataset, "network_function", title=title), width=4.8)


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
