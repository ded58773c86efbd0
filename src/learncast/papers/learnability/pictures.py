"""Pictures and numbers of the figures of livi2025."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from learncast import figures
from learncast.figures.page import logarithmic
from learncast.papers.learnability.preset import CELLS
from learncast.papers.paper import Numbers, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LAWS = ("exponential", "power")


def envelope_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield the decay laws of every cell, and the contribution of the optimiser."""
    yield "learning rate", dataset.attrs["learning_rate"]
    for cell, one in _cells(dataset):
        mean = one["envelope"].mean("seed")
        for law, parameter in zip(LAWS, ("rate", "exponent"), strict=True):
            yield f"{cell}: {law} {parameter}", short(one[f"{law}_parameter"])
            yield f"{cell}: {law} R2", short(one[f"{law}_r_squared"])
        yield f"{cell}: best of four laws by BIC", str(one["best_law"].values)
        yield f"{cell}: envelope at the first and last lag", short(mean[[0, -1]])
        yield f"{cell}: envelope over the gates' part, first lag", short(mean[0] / one["envelope_gate"].mean("seed")[0])
        yield f"{cell}: largest rise of the envelope, share", short((mean.values[1:] / mean.values[:-1] - 1).max())
        if bool(one["envelope_auxiliary"].notnull().any()):
            more = one["envelope_auxiliary"].mean("seed")
            key = f"{cell}: envelope with eq. (58)'s terms over without, first and last lag"
            yield key, short((more / mean)[[0, -1]])
        yield f"{cell}: loss, first and last", short(one["watched_loss"].mean("seed")[[0, -1]])


def window_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield windows by number of sequences: ours, without signal, against all gradient noise, by the paper's rule."""
    yield "sequences", [int(n) for n in dataset["sample_size"].values]
    for cell, one in _cells(dataset):
        rows = {
            "window": one["window"].sel(noise="per_lag"),
            "window without signal (95%)": one["null_window"].sel(noise="per_lag"),
            "window against all gradient noise": one["window"].sel(noise="total"),
            "window by the paper's rule": one["paper_rule_window"].sel(noise="per_lag"),
        }
        for name, values in rows.items():
            yield f"{cell}: {name}", short(values.median("seed"))
        alarms = one["paper_rule_validity_silent_null"].mean("seed")
        yield f"{cell}: share of data without signal with a window by the paper's rule", short(alarms)
        detected = (one["score"] > one["critical_score"]).sum("lag").mean("seed")
        yield f"{cell}: detected lags, of {dataset.sizes['lag']}", short(detected)
        yield f"{cell}: longest lag that is due to the task", short(one["attributable_reach"].median("seed"))


def time_scale_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield quantiles of the time scales of every cell."""
    for cell, one in _cells(dataset):
        yield f"{cell}: time scale, 10%, median, 90% (steps)", _quantiles(one["time_scale"])
        yield f"{cell}: units that do not decay, share", short(np.isinf(one["time_scale"]).mean())


def tail_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield tail indices: of the gradient's single terms, of means of 16, and of sequences over lags."""
    for cell, one in _cells(dataset):
        for name, text in (("pooled", "single terms"), ("block", "means of 16 terms")):
            yield f"{cell}: tail index of {text}, by seed", short(one[f"{name}_tail_index"])
        yield f"{cell}: tail index of sequences, 10%, median, 90% over lags", _quantiles(one["tail_index"])
        yield f"{cell}: lags whose variance is finite, share", short((one["tail_index"] == 2).mean())


def scale_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield the decay of noise and envelope over the lags."""
    for (cell, one), (name, text) in product(_cells(dataset), (("scale", "noise"), ("envelope", "envelope"))):
        ends = one[name].mean("seed").isel(lag=[0, -1]).values
        yield f"{cell}: {text} at the first over the last lag", short(ends[0] / ends[1] if ends[1] else np.inf)


def noise_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield tail indices and scales."""
    yield from tail_numbers(dataset)
    yield from scale_numbers(dataset)


def draw_envelopes(dataset: xr.Dataset) -> figures.Figure:
    """Draw envelopes on linear, semilogarithmic (exponential fit) and doubly logarithmic axes (power fit)."""
    heads = (f"{dataset.attrs['optimizer']}, linear", "semilogarithmic", "doubly logarithmic")
    kinds = {"linear": None, "semilog": LAWS[0], "log-log": LAWS[1]}
    one = partial(figures.envelopes_by_cell, dataset)
    draws = (partial(one, law=k, axis=axis, title=head) for head, (axis, k) in zip(heads, kinds.items(), strict=True))
    return figures.sheet(*draws, width=2.36, height=3.2)


def draw_windows(dataset: xr.Dataset) -> figures.Figure:
    """Draw windows by our rule, against all gradient noise, and by the paper's rule."""
    one = partial(figures.windows_by_cell, dataset)
    sound = partial(one, variable="window", null="null_window", title="detected against noise")
    total = partial(
        one, variable="window", noise="total", legend=False, title="against the noise\nof the whole gradient"
    )
    published = partial(one, variable="paper_rule_window", legend=False, title="the paper's rule")
    return figures.sheet(sound, total, published, width=2.36, height=2.9)


def draw_one(draw: Callable[..., object], dataset: xr.Dataset) -> figures.Figure:
    """Draw one picture of all cells."""
    return figures.sheet(partial(draw, dataset, title=dataset.attrs["optimizer"]), width=3.6, height=2.7)


def survivals(scale: str, dataset: xr.Dataset, ax: Axes, *, title: str) -> object:
    """Draw the share of units with at least a time scale for every cell."""
    known = list(CELLS.values())
    lines = {cell: one["time_scale"].values for cell, one in _cells(dataset)}
    colours = [figures.COLOURS[known.index(cell)] for cell in lines]
    return figures.time_scale_survival(lines, ax, colours=colours, scale=scale, title=title)


def draw_noise(dataset: xr.Dataset) -> figures.Figure:
    """Draw tail indices and noise scales."""
    tails = partial(figures.tail_indices_by_cell, dataset, title=dataset.attrs["optimizer"])
    return figures.sheet(tails, partial(figures.noise_scales_by_cell, dataset), width=3.5, height=2.7)


def course_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield the median drop of the envelope and the loss during training, and in how many seeds the drop falls."""
    yield "updates", [int(k) for k in dataset["update"].values]
    for cell, one in _cells(dataset):
        drop, loss = (one[name].transpose("update", "seed") for name in ("watched_drop", "watched_loss"))
        yield f"{cell}: drop of the envelope", short(drop.median("seed"))
        yield f"{cell}: loss", short(loss.median("seed"))
        yield f"{cell}: seeds in which the drop falls, of {drop.sizes['seed']}", int((drop[-1] < drop[0]).sum())


def course(dataset: xr.Dataset, ax: Axes, *, title: str) -> None:
    """Draw the drop of the envelope during training: medians as lines, networks as dots."""
    dots = dataset["watched_drop"].rename(cell="series").transpose("series", "update", "seed")
    figures.networks_on_lines(dots.median("seed", keep_attrs=True), ax, networks=dots, named=False, title=title)
    ax.set_ylabel("envelope's drop, log f(1)/f(L)")
    logarithmic(ax, "y")
    figures.key(ax, below=True, ncols=2)


def draw_histograms(dataset: xr.Dataset) -> figures.Figure:
    """Draw histograms of time scales, one panel per cell."""
    known = list(CELLS.values())
    draws = (
        partial(figures.time_scale_histogram, one, colour=known.index(cell), title=cell)
        for cell, one in _cells(dataset)
    )
    return figures.sheet(*draws, columns=min(3, dataset.sizes["cell"]), width=2.3, height=1.9)


def _cells(dataset: xr.Dataset) -> list[tuple[str, xr.Dataset]]:
    return [(str(cell), dataset.sel(cell=cell)) for cell in dataset["cell"].values]


def _quantiles(values: xr.DataArray) -> list[object]:
    """Return 10%, median and 90% of the known values; each is one of the values, because some may be infinite."""
    known = values.values[~np.isnan(values.values)]
    return short(np.quantile(known, (0.1, 0.5, 0.9), method="lower") if known.size else np.full(3, np.nan))
