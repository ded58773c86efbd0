"""Learning tasks in turn: pictures and numbers of braun2022's figure 5."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from learncast import figures
from learncast.papers.prior_knowledge_sheet import curves, sheet, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: How the kinds of hidden units are written.
_WRITTEN = {"linear": "linear", "tanh": "tanh", "relu": "ReLU"}


def draw_sequence(dataset: xr.Dataset) -> Figure:
    """Network function and losses while three tasks are learned in turn."""
    names = [str(name) for name in dataset["task"].values]
    function = curves(dataset, "network_function", title="5A  three tasks in turn")
    return sheet(function, curves(dataset, "loss", names=names), columns=1, width=6.4, height=2.8)


def draw_forgetting(dataset: xr.Dataset) -> Figure:
    """Forgetting measured against told, one panel for each kind of targets."""
    last = dataset["targets"].values[-1]
    draws = []
    for targets in dataset["targets"].values:
        one, title = dataset.sel(targets=targets), f"{'' if targets == last else '5B  '}{targets}"
        agree = partial(figures.agreement_by_kind, one["predicted"], one["measured"], title=title)
        draws.append(partial(agree, legend=targets == last))
    return sheet(*draws, width=4.2, height=3.6)


def draw_imbalance(dataset: xr.Dataset) -> Figure:
    """Imbalance of the layers before and after training, one panel for each kind of targets."""
    last = dataset["targets"].values[-1]
    draws = []
    for targets in dataset["targets"].values:
        values, title = dataset["imbalance"].sel(targets=targets), f"{'' if targets == last else '5C  '}{targets}"
        spread = partial(figures.spread_by_kind, values, ceiling=1.0, title=title)
        draws.append(partial(spread, legend=targets == last))
    return sheet(*draws, width=4.2, height=3.4)


def draw_table(panel: str, name: str, dataset: xr.Dataset) -> Figure:
    """Told and measured table of the first sequence for each kind of targets and of network."""
    one, last = dataset.isel(sequence=0), dataset["kind"].values[-1]
    draws: list[Any] = []
    for targets in dataset["targets"].values:
        told, trained = (one[f"{source}_{name}"].sel(targets=targets) for source in ("predicted", "measured"))
        limit = float(max(np.abs(told).max(), np.abs(trained).max()))
        for kind in dataset["kind"].values:
            first = kind == dataset["kind"].values[0]
            rows = [f"after {stage}" if first else "" for stage in told[told.dims[0]].values]
            title = f"{'' if draws else f'{panel}  '}{_WRITTEN[str(kind)]}, {targets}"
            table = partial(figures.told_and_trained, told, trained.sel(kind=kind), rows=rows, limit=limit)
            draws.append(partial(table, bar=kind == last, title=title))
    return sheet(*draws, columns=dataset.sizes["kind"], width=4.0, height=3.6)


def forgetting_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Agreement of told and measured forgetting for each kind of targets and of network."""
    found: dict[str, Any] = {"networks of each kind": dataset.sizes["network"]}
    for targets in dataset["targets"].values:
        one = dataset.sel(targets=targets)
        told = one["predicted"].values
        found[f"{targets}: draws set aside"] = int(one["set_aside"])
        found[f"{targets}: median forgetting told"] = short(np.median(told))
        for kind in dataset["kind"].values:
            measured, words = one["measured"].sel(kind=kind).values, f"{targets}, {_WRITTEN[str(kind)]}"
            found[f"{words}: correlation of told and measured"] = short(np.corrcoef(told, measured)[0, 1])
            found[f"{words}: mean absolute gap"] = short(np.abs(measured - told).mean())
            found[f"{words}: median measured / told"] = short(np.median(measured / told))
            # Linear networks differ by round-off alone, which is not forgetting more.
            found[f"{words}: networks that forget 1% more than told"] = int((measured > 1.01 * told).sum())
            found[f"{words}: median loss of task 1 after learning it"] = short(np.median(one["left"].sel(kind=kind)))
    return found


def imbalance_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Median and largest imbalance at each moment, for each kind of targets and of network."""
    found: dict[str, Any] = {}
    for targets in dataset["targets"].values:
        for kind in dataset["kind"].values:
            for when in dataset["when"].values:
                values = dataset["imbalance"].sel(targets=targets, kind=kind, when=when)
                words = f"{targets}, {_WRITTEN[str(kind)]}, {when}"
                found[f"{words}: median and largest"] = [short(np.median(values)), short(values.max())]
    return found


def table_numbers(name: str, dataset: xr.Dataset) -> dict[str, Any]:
    """Gaps of told and measured over all sequences, for each kind of targets and of network."""
    found: dict[str, Any] = {"sequences": dataset.sizes["sequence"]}
    for targets in dataset["targets"].values:
        told = dataset[f"predicted_{name}"].sel(targets=targets).values
        for kind in dataset["kind"].values:
            gap = dataset[f"measured_{name}"].sel(targets=targets, kind=kind).values - told
            words = f"{targets}, {_WRITTEN[str(kind)]}"
            found[f"{words}: largest gap of told and measured"] = short(np.abs(gap).max())
            if name == "forgetting":
                # On the diagonal is the task that was learned just before; others had been forgotten already.
                fresh = np.diagonal(gap, axis1=-2, axis2=-1)
                found[f"{words}: task just learned, mean gap of measured and told"] = short(fresh.mean())
                found[f"{words}: task just learned, share forgotten more than told"] = short((fresh > 1e-3).mean())
    return found
