"""Figures 1 to 13 and the table of appendix C of livi2025: learnability windows of gated networks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import xarray as xr
from scipy.stats import pearsonr, spearmanr

from learncast import figures
from learncast.papers.learnability.preset import CELLS, PRESETS
from learncast.papers.learnability.runs import STARTS, VALIDATED, all_diagnosed, diagnosis_runs, validation_runs
from learncast.papers.paper import Paper, PaperFigure, short
from learncast.trajectory import described

LAWS = ("exponential", "power")
STATISTICS = {
    "spearman": ("Spearman correlation", "rank correlation of the first-order and the exact envelope"),
    "pearson": ("Pearson correlation of logs", "correlation of the envelopes' logarithms"),
    "slope": ("slope of log f on log exact f", "slope of log first-order on log exact envelope"),
    "slope_frobenius": ("slope on log norm", "slope of log first-order envelope on log Frobenius norm"),
}
_ENVELOPES = "Envelopes of every cell under {}, with exponential and power fits."
_SURVIVAL = "Share of units whose time scale is at least as long under {}."
_NOISE = "Tail index over lags and noise scale against the lag under {}."
CAPTIONS = {
    "1": "Envelopes of every cell under AdamW, base rates from the optimiser's state, with exponential and power fits.",
    "2": "Longest learnable lag against the number of sequences: told from noise (with what data without signal show), "
    "against the noise of the whole gradient, and by the published rule, whose signs come from the data they are "
    "applied to.",
    "3": _SURVIVAL,
    "4": "Tail index of the noise between sequences, over lags: where it rises to 2 in means of sequences the variance "
    "is finite.",
    "5": "Noise scale against the lag; dotted, the envelope scaled to it at the first lag.",
    "6": _ENVELOPES,
    "7": _SURVIVAL,
    "8": _NOISE,
    "9": _ENVELOPES,
    "10": _SURVIVAL,
    "11": _NOISE,
    "12": "Share of units whose time scale is at least as long under {} on doubly logarithmic axes.",
    "13": "Time scales of the units of every cell under {}.",
    "C": "First-order against exact envelopes: rank correlation, correlation of logarithms and slope, by cell and "
    "optimiser; from plain starts, and with orthogonal weights and normalised candidates as in figures 1 to 13.",
}


def paper() -> Paper:
    """All figures."""
    tails, scales = (
        partial(draw_one, figures.tail_indices_by_cell, 5.4),
        partial(draw_one, figures.noise_scales_by_cell, 5.0),
    )
    survival, powers = (
        partial(draw_one, partial(figures.survivals_by_cell, scale=scale), 5.0) for scale in ("semilog", "log-log")
    )
    made: dict[str, tuple[str, Callable[..., Any], Callable[..., Any]]] = {
        "1": ("AdamW", draw_envelopes, envelope_numbers),
        "2": ("AdamW", draw_windows, window_numbers),
        "3": ("AdamW", survival, time_scale_numbers),
        "4": ("AdamW", tails, tail_numbers),
        "5": ("AdamW", scales, scale_numbers),
        "12": ("AdamW", powers, time_scale_numbers),
        "13": ("AdamW", draw_histograms, time_scale_numbers),
    }
    for first, optimizer in ((6, "SGD"), (9, "SGD with momentum")):
        made[f"{first}"] = (optimizer, draw_envelopes, envelope_numbers)
        made[f"{first + 1}"] = (optimizer, survival, time_scale_numbers)
        made[f"{first + 2}"] = (optimizer, draw_noise, noise_numbers)
    last = PaperFigure(
        "C", CAPTIONS["C"], validation, draw_validation, validation_numbers, validation_runs, stored=True
    )
    figures_1_to_13 = (_figure(name, *made[name]) for name in CAPTIONS if name in made)
    return Paper("learnability", "livi2025", (*figures_1_to_13, last), tuple(PRESETS))


def _figure(name: str, optimizer: str, picture: Callable[..., Any], numbers: Callable[..., Any]) -> PaperFigure:
    """A figure of all cells under one optimiser."""
    data, runs = partial(diagnoses, optimizer), partial(diagnosis_runs, optimizer)
    caption = CAPTIONS[name].format(optimizer)
    return PaperFigure(name, caption, data, partial(picture, name), numbers, runs, stored=True)


def diagnoses(optimizer: str, results: list[xr.Dataset], preset: str) -> xr.Dataset:
    """All cells under one optimiser, with both laws fitted to the mean envelope of each."""
    from learncast.learnability.transport.decay import fit_decay

    found = all_diagnosed(optimizer, results, preset)
    lags, means = found["lag"].values, found["envelope"].mean("seed")
    fits = [fit_decay(lags, means.sel(cell=cell).values) for cell in found["cell"].values]
    for law in LAWS:
        lines = np.array([fit.fits[law].law.at(lags) for fit in fits])
        found[f"{law}_fit"] = (("cell", "lag"), lines, described(f"{law} fit", found["envelope"].attrs["units"]))
        rates = [getattr(fit.fits[law].law, "rate" if law == "exponential" else "exponent") for fit in fits]
        found[f"{law}_parameter"] = ("cell", np.array(rates), described("decay rate or exponent", "1"))
        shares = np.array([fit.fits[law].r_squared for fit in fits])
        found[f"{law}_r_squared"] = ("cell", shares, described(f"share of log f the {law} law explains", "1"))
    best = np.array([fit.best.kind if fit.best else "unknown" for fit in fits])
    found["best_law"] = ("cell", best, described("law with the least BIC", "1"))
    found.attrs["preset"] = preset
    return found


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


def draw_envelopes(name: str, dataset: xr.Dataset) -> figures.Figure:
    """Linear, semilogarithmic with the exponential fit, doubly logarithmic with the power fit."""
    head, kinds = f"{name}: {dataset.attrs['optimizer']}", {"linear": None, "semilog": LAWS[0], "log-log": LAWS[1]}
    one = partial(figures.envelopes_by_cell, dataset)
    draws = (partial(one, law=law, axis=axis, title=f"{head}, {axis}") for axis, law in kinds.items())
    return figures.sheet(*draws, width=3.9, height=3.4)


def draw_windows(name: str, dataset: xr.Dataset) -> figures.Figure:
    """Windows by the sound rule, against all gradient noise, and by the published rule."""
    one = partial(figures.windows_by_cell, dataset)
    sound = partial(one, variable="window", null="null_window", title=f"{name}: told from noise")
    total = partial(one, variable="window", noise="total", title="against all gradient noise")
    published = partial(one, variable="published_window", title="published rule")
    return figures.sheet(sound, total, published, width=3.9, height=3.4)


def draw_one(draw: Callable[..., Any], width: float, name: str, dataset: xr.Dataset) -> figures.Figure:
    """One picture of all cells."""
    return figures.sheet(partial(draw, dataset, title=f"{name}: {dataset.attrs['optimizer']}"), width=width, height=3.6)


def draw_noise(name: str, dataset: xr.Dataset) -> figures.Figure:
    """Tail indices and noise scales side by side."""
    tails = partial(figures.tail_indices_by_cell, dataset, title=f"{name}(a): {dataset.attrs['optimizer']}")
    scales = partial(figures.noise_scales_by_cell, dataset, title=f"{name}(b)")
    return figures.sheet(tails, scales, width=5.0, height=3.6)


def draw_histograms(name: str, dataset: xr.Dataset) -> figures.Figure:
    """Histogram of time scales, one panel per cell."""
    draws = (
        partial(figures.time_scale_histogram, one, colour=k, title=cell if k else f"{name}: {cell}")
        for k, (cell, one) in enumerate(_cells(dataset))
    )
    return figures.sheet(*draws, width=3.2, height=3.0)


def _cells(dataset: xr.Dataset) -> list[tuple[str, xr.Dataset]]:
    return [(str(cell), dataset.sel(cell=cell)) for cell in dataset["cell"].values]


def _quantiles(values: xr.DataArray) -> list[float | str | None]:
    """10%, median and 90% of what is known, each a value that occurs: time scales may be infinite."""
    known = values.values[~np.isnan(values.values)]
    found = np.quantile(known, (0.1, 0.5, 0.9), method="lower") if known.size else np.full(3, np.nan)
    return [short(value) for value in found]


def validation(found: list[xr.Dataset], preset: str) -> xr.Dataset:
    """Envelopes of every run with their correlations and slopes, over (start, cell, optimizer, seed).

    The paper does not say whether candidates were normalised in this appendix, so both are here.
    """
    size = PRESETS[preset]
    shape = (len(STARTS), len(size.cells), len(VALIDATED), len(size.seeds))
    whole = xr.concat(found, "run", combine_attrs="override", join="exact")
    grid = ("start", "cell", "optimizer", "seed")
    variables: dict[str, Any] = {
        name: ((*grid, "lag"), whole[name].values.reshape(*shape, -1), whole[name].attrs)
        for name in ("envelope", "exact_envelope", "frobenius")
    }
    compared = np.array([_compared(one) for one in found]).reshape(*shape, len(STATISTICS))
    for k, (name, (title, text)) in enumerate(STATISTICS.items()):
        variables[name] = (grid, compared[..., k], described(text, "1") | {"short_name": title})
    coordinates = {
        "start": list(STARTS),
        "cell": [CELLS[cell] for cell in size.cells],
        "optimizer": list(VALIDATED),
        "seed": list(size.seeds),
        "lag": ("lag", found[0]["lag"].values, described("lag", "steps")),
    }
    return xr.Dataset(variables, coordinates, attrs={"preset": preset})


def _compared(one: xr.Dataset) -> tuple[float, float, float, float]:
    """Rank correlation, correlation of logarithms, and slopes; nan where fewer than three lags are positive."""
    first, exact, norm = (one[name].values for name in ("envelope", "exact_envelope", "frobenius"))
    used = (first > 0) & (exact > 0) & (norm > 0)
    if used.sum() < 3:
        return (np.nan,) * 4
    y, x, z = (np.log(values[used]) for values in (first, exact, norm))
    return (
        float(spearmanr(first[used], exact[used]).statistic),
        float(pearsonr(x, y).statistic),
        float(np.polyfit(x, y, 1)[0]),
        float(np.polyfit(z, y, 1)[0]),
    )


def validation_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """The table: mean over seeds of every statistic, by start, cell and optimiser, then ranges over all runs."""
    found: dict[str, Any] = {}
    for start in dataset["start"].values:
        for cell, optimizer, name in product(dataset["cell"].values, dataset["optimizer"].values, STATISTICS):
            one = dataset[name].sel(start=start, cell=cell, optimizer=optimizer)
            found[f"{cell}, {optimizer}, {start}: {name.replace('_', ' ')}"] = short(one.mean("seed"))
        for name in STATISTICS:
            values = dataset[name].sel(start=start)
            found[f"all {values.size} {start}: {name.replace('_', ' ')}, least and largest"] = [
                short(values.min()),
                short(values.max()),
            ]
    return found


def draw_validation(dataset: xr.Dataset) -> figures.Figure:
    """First-order against exact envelopes under AdamW for both starts, and the table's statistics."""
    envelopes = (
        partial(figures.envelope_agreement, dataset.sel(start=start, optimizer="AdamW"), title=f"C: AdamW, {start}")
        for start in dataset["start"].values
    )
    statistics = (partial(figures.statistic_by_cell, dataset, variable=name) for name in ("spearman", "slope"))
    return figures.sheet(*envelopes, *statistics, width=3.9, height=3.6)
