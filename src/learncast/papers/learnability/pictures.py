"""Pictures and numbers of the figures of livi2025."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from learncast import figures
from learncast.papers.learnability.preset import CELLS
from learncast.papers.paper import short

LAWS = ("exponential", "power")
STATISTICS = {
    "spearman": ("Spearman correlation", "rank correlation of the first-order and the exact envelope"),
    "pearson": ("Pearson correlation of logs", "correlation of the envelopes' logarithms"),
    "slope": ("slope of log f on log exact f", "slope of log first-order on log exact envelope"),
    "slope_frobenius": ("slope on log norm", "slope of log first-order envelope on log Frobenius norm"),
}


def envelope_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Laws of every cell, and what the optimiser adds."""
    found: dict[str, Any] = {"learning rate": dataset.attrs["learning_rate"]}
    for cell, one in _cells(dataset):
        mean = one["envelope"].mean("seed")
        for law, parameter in zip(LAWS, ("rate", "exponent"), strict=True):
            found[f"{cell}: {law} {parameter}"] = short(one[f"{law}_parameter"])
            found[f"{cell}: {law} R2"] = short(one[f"{law}_r_squared"])
        found[f"{cell}: best of four laws by BIC"] = str(one["best_law"].values)
        found[f"{cell}: envelope at the first and last lag"] = [short(mean[0]), short(mean[-1])]
        found[f"{cell}: envelope over the gates' part, first lag"] = short(
            mean[0] / one["envelope_gate"].mean("seed")[0]
        )
        found[f"{cell}: largest rise of the envelope, share"] = short((mean.values[1:] / mean.values[:-1] - 1).max())
        if bool(one["envelope_auxiliary"].notnull().any()):
            more = one["envelope_auxiliary"].mean("seed")
            found[f"{cell}: envelope with eq. (58)'s terms over without, first and last lag"] = [
                short(more[k] / mean[k]) for k in (0, -1)
            ]
        found[f"{cell}: loss, first and last"] = [short(one[f"loss_{k}"].mean("seed")) for k in ("first", "last")]
    return found


def window_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Windows by number of sequences: ours, without signal, against all gradient noise, and by the published rule."""
    found: dict[str, Any] = {"sequences": [int(n) for n in dataset["sample_size"].values]}
    for cell, one in _cells(dataset):
        rows = {
            "window": one["window"].sel(noise="per_lag"),
            "window without signal (95%)": one["null_window"].sel(noise="per_lag"),
            "window against all gradient noise": one["window"].sel(noise="total"),
            "window by the published rule": one["published_window"].sel(noise="per_lag"),
        }
        for name, values in rows.items():
            found[f"{cell}: {name}"] = [short(value) for value in values.median("seed").values]
        alarms = one["published_validity_silent_null"].mean("seed")
        found[f"{cell}: share of data without signal with a window by the published rule"] = short(alarms)
        told = (one["score"] > one["critical_score"]).sum("lag").mean("seed")
        found[f"{cell}: lags told from 0, of {dataset.sizes['lag']}"] = short(told)
        found |= _beyond(cell, one, [int(lag) for lag in dataset.attrs["task_lags"]])
    return found


def _beyond(cell: str, one: xr.Dataset, lags: list[int]) -> dict[str, Any]:
    """What lags beyond the task's longest carry: their signal, with targets of other sequences, in standard errors."""
    longest, told = lags[-1], (one["score"] > one["critical_score"]).values
    far, own = np.asarray(one["lag"] > longest), np.isin(one["lag"], lags)
    errors = [(one[f"{kind}signal"] / one[f"{kind}score"]).values for kind in ("", "unrelated_")]
    apart = np.abs(one["signal"].values - one["unrelated_signal"].values) / np.hypot(errors[0], errors[1])
    words = f"{cell}: lags beyond the task's longest, {longest}"
    found: dict[str, Any] = {f"{words}: told from 0, of {int(far.sum())}": short((told & far).sum(axis=-1).mean())}
    for where, kind in ((far, "beyond it"), (own, "at the task's lags")):
        if (told & where).any():
            middle = short(np.nanmedian(apart[told & where]))
            found[f"{words}: change of the signal {kind} by other sequences' targets, median standard errors"] = middle
    return found


def time_scale_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Spread of the time scales of every cell."""
    found: dict[str, Any] = {}
    for cell, one in _cells(dataset):
        found[f"{cell}: time scale, 10%, median, 90% (steps)"] = _quantiles(one["time_scale"])
        found[f"{cell}: units that do not decay, share"] = short(np.isinf(one["time_scale"]).mean())
    return found


def tail_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Tail indices over lags: the ones to use, and those of single sequences."""
    found: dict[str, Any] = {}
    for cell, one in _cells(dataset):
        for name, text in (("tail_index", "tail index"), ("published_tail_index", "tail index of single sequences")):
            found[f"{cell}: {text}, 10%, median, 90%"] = _quantiles(one[name])
        found[f"{cell}: lags whose variance is finite, share"] = short((one["tail_index"] == 2).mean())
    return found


def scale_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """How noise and envelope fall together."""
    found: dict[str, Any] = {}
    for cell, one in _cells(dataset):
        for name in ("scale", "envelope"):
            ends = one[name].mean("seed").isel(lag=[0, -1]).values
            text = "noise" if name == "scale" else name
            found[f"{cell}: {text} at the first over the last lag"] = short(ends[0] / ends[1] if ends[1] else np.inf)
    return found


def noise_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Tail indices and scales."""
    return tail_numbers(dataset) | scale_numbers(dataset)


def requirement_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Slopes of the logarithm of the sequences a lag needs on that of its envelope; eq. (26) says -2."""
    found: dict[str, Any] = {}
    for cell, one in _cells(dataset):
        for noise, words in (("per_lag", "its own noise"), ("total", "all gradient noise")):
            needed, f = told_requirements(one, noise)
            found[f"{cell}: lags told from noise"] = len(f)
            slope = np.polyfit(np.log(f), np.log(needed), 1)[0] if len(f) > 2 else np.nan
            found[f"{cell}: slope of log N on log f, against {words}"] = short(slope)
    return found


def told_requirements(one: xr.Dataset, noise: str) -> tuple[Any, Any]:
    """Sequences and envelope of the lags whose signal is told from 0 and whose need is known."""
    needed, f = one["required_sequences"].sel(noise=noise), one["envelope"]
    used = (one["score"] > one["critical_score"]) & np.isfinite(needed) & (needed > 0) & (f > 0)
    return needed.values[used.values], f.broadcast_like(needed).values[used.values]


def course_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Time scales, exponent of the envelope and tail index, moment by moment."""
    found: dict[str, Any] = {"updates": [int(k) for k in dataset["update"].values]}
    for cell, one in _cells(dataset):
        found[f"{cell}: median time scale (steps)"] = [
            _quantiles(one["watched_time_scale"].isel(update=k))[1] for k in range(one.sizes["update"])
        ]
        for name, words in (("exponent", "exponent of the envelope"), ("tail", "median tail index")):
            found[f"{cell}: {words}"] = [short(v) for v in _course(one, name).values]
    return found


def _course(one: xr.Dataset, name: str) -> xr.DataArray:
    """Minus the slope of log envelope on log lag, or the median tail index, over training."""
    if name == "tail":
        return one["watched_tail_index"].median(("lag", "seed"))
    from learncast.windows.transport import power_of_lag

    mean = one["watched_envelope"].mean("seed").transpose("update", "lag")
    return xr.DataArray([power_of_lag(one["lag"].values, f) for f in mean.values], {"update": one["update"]})


def gate_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """What the initial value of the gates changes."""
    found: dict[str, Any] = {}
    for gate, (cell, one) in product(dataset["gate"].values, _cells(dataset)):
        here, words = one.sel(gate=gate), f"{cell}, gates from {gate:g}"
        mean = here["envelope"].mean("seed")
        found[f"{words}: envelope at the last over the first lag"] = short(mean[-1] / mean[0])
        found[f"{words}: time scale, 10%, median, 90% (steps)"] = _quantiles(here["time_scale"])
        found[f"{words}: window of the most sequences"] = short(
            here["window"].sel(noise="per_lag").isel(sample_size=-1).median("seed")
        )
        found[f"{words}: loss at the end"] = short(here["loss_last"].mean("seed"))
    return found


def validation_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """The table: mean over seeds of every statistic, by cell and optimiser, by cell, then ranges over all runs."""
    found: dict[str, Any] = {}
    for cell, optimizer, name in product(dataset["cell"].values, dataset["optimizer"].values, STATISTICS):
        one = dataset[name].sel(cell=cell, optimizer=optimizer)
        found[f"{cell}, {optimizer}: {name.replace('_', ' ')}"] = short(one.mean("seed"))
    for cell, name in product(dataset["cell"].values, ("spearman", "pearson")):
        values = dataset[name].sel(cell=cell)
        found[f"{cell}: {name}, mean and standard deviation"] = [short(values.mean()), short(values.std())]
    for name in STATISTICS:
        values = dataset[name]
        ends = [short(values.min()), short(values.max())]
        found[f"all {values.size}: {name.replace('_', ' ')}, least and largest"] = ends
    return found


def draw_envelopes(name: str, dataset: xr.Dataset) -> figures.Figure:
    """Linear, semilogarithmic with the exponential fit, doubly logarithmic with the power fit."""
    heads = (f"{name}  {dataset.attrs['optimizer']}, linear", "semilogarithmic", "doubly logarithmic")
    kinds = {"linear": None, "semilog": LAWS[0], "log-log": LAWS[1]}
    one = partial(figures.envelopes_by_cell, dataset)
    draws = (
        partial(one, law=law, axis=axis, title=head) for head, (axis, law) in zip(heads, kinds.items(), strict=True)
    )
    return figures.sheet(*draws, width=2.36, height=2.5)


def draw_windows(name: str, dataset: xr.Dataset) -> figures.Figure:
    """Windows by the sound rule, against all gradient noise, and by the published rule."""
    one = partial(figures.windows_by_cell, dataset)
    sound = partial(one, variable="window", null="null_window", title=f"{name}  told from noise")
    total = partial(one, variable="window", noise="total", legend=False, title="against all gradient noise")
    published = partial(one, variable="published_window", legend=False, title="published rule")
    return figures.sheet(sound, total, published, width=2.36, height=2.9)


def draw_one(draw: Callable[..., Any], name: str, dataset: xr.Dataset) -> figures.Figure:
    """One picture of all cells."""
    return figures.sheet(partial(draw, dataset, title=f"{name}  {dataset.attrs['optimizer']}"), width=3.6, height=2.7)


def draw_noise(name: str, dataset: xr.Dataset) -> figures.Figure:
    """Tail indices and noise scales side by side."""
    tails = partial(figures.tail_indices_by_cell, dataset, title=f"{name}  (a) {dataset.attrs['optimizer']}")
    scales = partial(figures.noise_scales_by_cell, dataset, title="(b)")
    return figures.sheet(tails, scales, width=3.5, height=2.7)


def draw_histograms(name: str, dataset: xr.Dataset) -> figures.Figure:
    """Histogram of time scales, one panel per cell."""
    known = list(CELLS.values())
    draws = (
        partial(figures.time_scale_histogram, one, colour=known.index(cell), title=cell if k else f"{name}  {cell}")
        for k, (cell, one) in enumerate(_cells(dataset))
    )
    return figures.sheet(*draws, columns=min(3, dataset.sizes["cell"]), width=2.3, height=1.9)


def draw_requirements(name: str, dataset: xr.Dataset) -> figures.Figure:
    """Sequences that lags need against their envelope, for both kinds of noise."""
    draws = (
        partial(figures.requirements_by_cell, dataset, measure=partial(told_requirements, noise=noise), title=title)
        for noise, title in (
            ("per_lag", f"{name}  against the lag's own noise"),
            ("total", "against all gradient noise"),
        )
    )
    return figures.sheet(*draws, width=3.5, height=2.8)


def draw_courses(name: str, dataset: xr.Dataset) -> figures.Figure:
    """Time scales, exponent and tail index while networks train."""
    scales = partial(figures.time_scales_over_training, dataset, title=f"{name}  time scales")
    courses = {
        word: xr.concat([_course(one, word) for _, one in _cells(dataset)], dataset["cell"])
        for word in ("exponent", "tail")
    }
    exponents = partial(figures.curves_by_cell, courses["exponent"], y="exponent of the envelope", title="envelope")
    tails = partial(figures.curves_by_cell, courses["tail"], y="median tail index", title="noise")
    return figures.sheet(scales, exponents, tails, width=2.36, height=2.4)


def draw_gates(dataset: xr.Dataset) -> figures.Figure:
    """Envelopes from both initial values of the gates, one panel per cell."""
    known = list(CELLS.values())
    draws = (
        partial(figures.envelopes_by_gate, one, colour=known.index(cell), title=cell if k else f"G  {cell}")
        for k, (cell, one) in enumerate(_cells(dataset))
    )
    return figures.sheet(*draws, columns=min(2, dataset.sizes["cell"]), width=3.4, height=2.2)


def draw_validation(dataset: xr.Dataset) -> figures.Figure:
    """First-order against exact envelopes under every optimiser, and the table's statistics."""
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


def _quantiles(values: xr.DataArray) -> list[float | str | None]:
    """10%, median and 90% of what is known, each a value that occurs: time scales may be infinite."""
    known = values.values[~np.isnan(values.values)]
    found = np.quantile(known, (0.1, 0.5, 0.9), method="lower") if known.size else np.full(3, np.nan)
    return [short(value) for value in found]
