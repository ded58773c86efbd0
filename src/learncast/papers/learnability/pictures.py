"""Pictures and numbers of the figures of livi2025."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from learncast import figures
from learncast._core.validation import FloatArray
from learncast.papers.learnability.preset import CELLS
from learncast.papers.paper import Numbers, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LAWS = ("exponential", "power")
STATISTICS = {
    "spearman": ("Spearman correlation", "rank correlation of the first-order and the exact envelope"),
    "pearson": ("Pearson correlation of logs", "correlation of the envelopes' logarithms"),
    "slope": ("slope of log f on log exact f", "slope of log first-order on log exact envelope"),
    "slope_frobenius": ("slope on log norm", "slope of log first-order envelope on log Frobenius norm"),
}


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
        gates = one["envelope_gate"].mean("seed")
        yield f"{cell}: envelope over the gates' part, first lag", short(mean[0] / gates[0])
        yield f"{cell}: largest rise of the envelope, share", short((mean.values[1:] / mean.values[:-1] - 1).max())
        if bool(one["envelope_auxiliary"].notnull().any()):
            more = one["envelope_auxiliary"].mean("seed")
            key = f"{cell}: envelope with eq. (58)'s terms over without, first and last lag"
            yield key, short((more / mean)[[0, -1]])
        yield f"{cell}: loss, first and last", short([one[f"loss_{k}"].mean("seed") for k in ("first", "last")])


def window_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield windows by number of sequences: ours, without signal, against all gradient noise, by the published rule."""
    yield "sequences", [int(n) for n in dataset["sample_size"].values]
    for cell, one in _cells(dataset):
        rows = {
            "window": one["window"].sel(noise="per_lag"),
            "window without signal (95%)": one["null_window"].sel(noise="per_lag"),
            "window against all gradient noise": one["window"].sel(noise="total"),
            "window by the published rule": one["published_window"].sel(noise="per_lag"),
        }
        for name, values in rows.items():
            yield f"{cell}: {name}", short(values.median("seed"))
        alarms = one["published_validity_silent_null"].mean("seed")
        yield f"{cell}: share of data without signal with a window by the published rule", short(alarms)
        detected = (one["score"] > one["critical_score"]).sum("lag").mean("seed")
        yield f"{cell}: detected lags, of {dataset.sizes['lag']}", short(detected)
        yield from _beyond(cell, one, [int(lag) for lag in dataset.attrs["task_lags"]])


def _beyond(cell: str, one: xr.Dataset, lags: list[int]) -> Numbers:
    """Yield the signal at lags beyond the task's longest with targets of other sequences, in standard errors."""
    longest, detected = lags[-1], (one["score"] > one["critical_score"]).values
    far, own = np.asarray(one["lag"] > longest), np.isin(one["lag"], lags)
    errors = [(one[f"{kind}signal"] / one[f"{kind}score"]).values for kind in ("", "unrelated_")]
    apart = np.abs(one["signal"].values - one["unrelated_signal"].values) / np.hypot(errors[0], errors[1])
    key = f"{cell}: lags beyond the task's longest, {longest}"
    yield f"{key}: detected, of {int(far.sum())}", short((detected & far).sum(axis=-1).mean())
    for where, kind in ((far, "beyond it"), (own, "at the task's lags")):
        if (detected & where).any():
            median = short(np.nanmedian(apart[detected & where]))
            yield f"{key}: change of the signal {kind} by other sequences' targets, median standard errors", median


def time_scale_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield quantiles of the time scales of every cell."""
    for cell, one in _cells(dataset):
        yield f"{cell}: time scale, 10%, median, 90% (steps)", _quantiles(one["time_scale"])
        yield f"{cell}: units that do not decay, share", short(np.isinf(one["time_scale"]).mean())


def tail_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield quantiles of the tail indices over lags, of means and of single sequences."""
    for cell, one in _cells(dataset):
        for name, text in (("tail_index", "tail index"), ("published_tail_index", "tail index of single sequences")):
            yield f"{cell}: {text}, 10%, median, 90%", _quantiles(one[name])
        yield f"{cell}: lags whose variance is finite, share", short((one["tail_index"] == 2).mean())


def scale_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield the decay of noise and envelope over the lags."""
    for cell, one in _cells(dataset):
        for name, text in (("scale", "noise"), ("envelope", "envelope")):
            ends = one[name].mean("seed").isel(lag=[0, -1]).values
            yield f"{cell}: {text} at the first over the last lag", short(ends[0] / ends[1] if ends[1] else np.inf)


def noise_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield tail indices and scales."""
    yield from tail_numbers(dataset)
    yield from scale_numbers(dataset)


def requirement_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield slopes of the logarithm of the sequences a lag needs on that of its envelope; eq. (26) predicts -2."""
    for cell, one in _cells(dataset):
        for noise, text in (("per_lag", "its own noise"), ("total", "all gradient noise")):
            needed, f = detected_requirements(one, noise)
            yield f"{cell}: detected lags", len(f)
            slope = np.polyfit(np.log(f), np.log(needed), 1)[0] if len(f) > 2 else np.nan
            yield f"{cell}: slope of log N on log f, against {text}", short(slope)


def detected_requirements(one: xr.Dataset, noise: str) -> tuple[FloatArray, FloatArray]:
    """Return required sequences and envelope of the detected lags whose requirement is known."""
    needed, f = one["required_sequences"].sel(noise=noise), one["envelope"]
    used = (one["score"] > one["critical_score"]) & np.isfinite(needed) & (needed > 0) & (f > 0)
    return needed.values[used.values], f.broadcast_like(needed).values[used.values]


def course_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield time scales, exponent of the envelope and tail index during training."""
    yield "updates", [int(k) for k in dataset["update"].values]
    for cell, one in _cells(dataset):
        scales = one["watched_time_scale"]
        medians = [_quantiles(scales.isel(update=k))[1] for k in range(one.sizes["update"])]
        yield f"{cell}: median time scale (steps)", medians
        for name, text in (("exponent", "exponent of the envelope"), ("tail", "median tail index")):
            yield f"{cell}: {text}", short(_course(one, name))


def _course(one: xr.Dataset, name: str) -> xr.DataArray:
    """Return minus the slope of log envelope on log lag, or the median tail index, during training."""
    if name == "tail":
        return one["watched_tail_index"].median(("lag", "seed"))
    from learncast.windows.transport import power_of_lag

    mean = one["watched_envelope"].mean("seed").transpose("update", "lag")
    return xr.DataArray([power_of_lag(one["lag"].values, f) for f in mean.values], {"update": one["update"]})


def gate_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield the effects of the initial value of the gates."""
    for gate, (cell, one) in product(dataset["gate"].values, _cells(dataset)):
        here, case = one.sel(gate=gate), f"{cell}, gates from {gate:g}"
        mean, windows = here["envelope"].mean("seed"), here["window"].sel(noise="per_lag")
        yield f"{case}: envelope at the last over the first lag", short(mean[-1] / mean[0])
        yield f"{case}: time scale, 10%, median, 90% (steps)", _quantiles(here["time_scale"])
        yield f"{case}: window of the most sequences", short(windows.isel(sample_size=-1).median("seed"))
        yield f"{case}: loss at the end", short(here["loss_last"].mean("seed"))


def validation_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield the table: means of every statistic by cell and optimiser and by cell, and ranges over all runs."""
    for cell, optimizer, name in product(dataset["cell"].values, dataset["optimizer"].values, STATISTICS):
        one = dataset[name].sel(cell=cell, optimizer=optimizer)
        yield f"{cell}, {optimizer}: {name.replace('_', ' ')}", short(one.mean("seed"))
    for cell, name in product(dataset["cell"].values, ("spearman", "pearson")):
        values = dataset[name].sel(cell=cell)
        yield f"{cell}: {name}, mean and standard deviation", short([values.mean(), values.std()])
    for name in STATISTICS:
        values = dataset[name]
        yield f"all {values.size}: {name.replace('_', ' ')}, least and largest", short([values.min(), values.max()])


def draw_envelopes(name: str, dataset: xr.Dataset) -> figures.Figure:
    """Draw envelopes on linear, semilogarithmic (exponential fit) and doubly logarithmic axes (power fit)."""
    heads = (f"{name}  {dataset.attrs['optimizer']}, linear", "semilogarithmic", "doubly logarithmic")
    kinds = {"linear": None, "semilog": LAWS[0], "log-log": LAWS[1]}
    one = partial(figures.envelopes_by_cell, dataset)
    draws = (
        partial(one, law=law, axis=axis, title=head) for head, (axis, law) in zip(heads, kinds.items(), strict=True)
    )
    return figures.sheet(*draws, width=2.36, height=2.5)


def draw_windows(name: str, dataset: xr.Dataset) -> figures.Figure:
    """Draw windows by our rule, against all gradient noise, and by the published rule."""
    one = partial(figures.windows_by_cell, dataset)
    sound = partial(one, variable="window", null="null_window", title=f"{name}  detected against noise")
    total = partial(one, variable="window", noise="total", legend=False, title="against all gradient noise")
    published = partial(one, variable="published_window", legend=False, title="published rule")
    return figures.sheet(sound, total, published, width=2.36, height=2.9)


def draw_one(draw: Callable[..., object], name: str, dataset: xr.Dataset) -> figures.Figure:
    """Draw one picture of all cells."""
    return figures.sheet(partial(draw, dataset, title=f"{name}  {dataset.attrs['optimizer']}"), width=3.6, height=2.7)


def survivals(scale: str, dataset: xr.Dataset, ax: Axes, *, title: str) -> object:
    """Draw the share of units with at least a time scale for every cell."""
    known = list(CELLS.values())
    lines = {cell: one["time_scale"].values for cell, one in _cells(dataset)}
    colours = [figures.COLOURS[known.index(cell)] for cell in lines]
    return figures.time_scale_survival(lines, ax, colours=colours, scale=scale, title=title)


def draw_noise(name: str, dataset: xr.Dataset) -> figures.Figure:
    """Draw tail indices and noise scales."""
    tails = partial(figures.tail_indices_by_cell, dataset, title=f"{name}  (a) {dataset.attrs['optimizer']}")
    scales = partial(figures.noise_scales_by_cell, dataset, title="(b)")
    return figures.sheet(tails, scales, width=3.5, height=2.7)


def draw_histograms(name: str, dataset: xr.Dataset) -> figures.Figure:
    """Draw histograms of time scales, one panel per cell."""
    known = list(CELLS.values())
    draws = (
        partial(figures.time_scale_histogram, one, colour=known.index(cell), title=cell if k else f"{name}  {cell}")
        for k, (cell, one) in enumerate(_cells(dataset))
    )
    return figures.sheet(*draws, columns=min(3, dataset.sizes["cell"]), width=2.3, height=1.9)


def draw_requirements(name: str, dataset: xr.Dataset) -> figures.Figure:
    """Draw required sequences against the envelope, for both kinds of noise."""
    titles = {"per_lag": f"{name}  against the lag's own noise", "total": "against all gradient noise"}
    draws = (
        partial(figures.requirements_by_cell, dataset, measure=partial(detected_requirements, noise=noise), title=title)
        for noise, title in titles.items()
    )
    return figures.sheet(*draws, width=3.5, height=2.8)


def draw_courses(name: str, dataset: xr.Dataset) -> figures.Figure:
    """Draw time scales, exponent and tail index during training."""
    over = [dim for dim in dataset["watched_time_scale"].dims if dim not in ("cell", "update")]
    low, middle, high = dataset["watched_time_scale"].quantile((0.1, 0.5, 0.9), over, method="lower", skipna=True)
    y = r"time scale $\tau$ (steps)"
    scales = partial(figures.curves_by_cell, middle, y=y, band=(low, high), title=f"{name}  time scales")
    courses = {
        word: xr.concat([_course(one, word) for _, one in _cells(dataset)], dataset["cell"])
        for word in ("exponent", "tail")
    }
    exponents = partial(figures.curves_by_cell, courses["exponent"], y="exponent of the envelope", title="envelope")
    tails = partial(figures.curves_by_cell, courses["tail"], y="median tail index", title="noise")
    return figures.sheet(scales, exponents, tails, width=2.36, height=2.4)


def draw_gates(dataset: xr.Dataset) -> figures.Figure:
    """Draw envelopes from both initial values of the gates, one panel per cell."""
    known = list(CELLS.values())
    draws = (
        partial(figures.envelopes_by_gate, one, colour=known.index(cell), title=cell if k else f"G  {cell}")
        for k, (cell, one) in enumerate(_cells(dataset))
    )
    return figures.sheet(*draws, columns=min(2, dataset.sizes["cell"]), width=3.4, height=2.2)


def draw_validation(dataset: xr.Dataset) -> figures.Figure:
    """Draw first-order against exact envelopes under every optimiser, and the statistics of the table."""
    envelopes = (
        partial(figures.envelope_agreement, dataset.sel(optimizer=k), legend=not j, title=f"C  {k}" if not j else k)
        for j, k in enumerate(dataset["optimizer"].values)
    )
    statistics = (
        partial(figures.statistic_by_cell, dataset, variable=name, legend=not j)
        for j, name in enumerate(("spearman", "pearson", "slope"))
    )
    return figures.sheet(*envelopes, *statistics, columns=3, width=2.36, height=2.5)


def _cells(dataset: xr.Dataset) -> list[tuple[str, xr.Dataset]]:
    return [(str(cell), dataset.sel(cell=cell)) for cell in dataset["cell"].values]


def _quantiles(values: xr.DataArray) -> list[object]:
    """Return 10%, median and 90% of the known values; each is one of the values, because some may be infinite."""
    known = values.values[~np.isnan(values.values)]
    return short(np.quantile(known, (0.1, 0.5, 0.9), method="lower") if known.size else np.full(3, np.nan))
