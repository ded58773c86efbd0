"""Envelopes, windows, time scales and noise of every cell: figures 1 to 13 of livi2025."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from learncast.papers.learnability_runs import all_diagnosed
from learncast.papers.runs import Compute
from learncast.progress import Progress, silent
from learncast.trajectory import described

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAWS = ("exponential", "power")


def diagnoses(
    optimiser: str,
    *,
    preset: str = "smoke",
    folder: Path,
    progress: Progress = silent,
    compute: Compute | None = None,
) -> xr.Dataset:
    """All cells under one optimiser, with both laws fitted to the mean envelope of each.

    Parameters
    ----------
    optimiser : str
    preset : str
    folder : Path
        Where trained networks are kept.
    progress : callable
    compute : callable, optional
        Where networks are trained and diagnosed, if not in the folder.
    """
    from learncast.learnability.decay import fit_decay

    found = all_diagnosed(optimiser, preset, folder, progress=progress, compute=compute)
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


def shown(value: Any) -> float | str | None:
    """Four digits; None for unknown, a word for infinite."""
    number = float(value)
    if np.isnan(number):
        return None
    return float(f"{number:.4g}") if np.isfinite(number) else "inf"


def envelope_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Laws of every cell, and what the optimiser adds."""
    found: dict[str, Any] = {"learning rate": dataset.attrs["learning_rate"]}
    for cell, one in _cells(dataset):
        mean = one["envelope"].mean("seed")
        found[f"{cell}: exponential rate"] = shown(one["exponential_parameter"])
        found[f"{cell}: exponential R2"] = shown(one["exponential_r_squared"])
        found[f"{cell}: power exponent"] = shown(one["power_parameter"])
        found[f"{cell}: power R2"] = shown(one["power_r_squared"])
        found[f"{cell}: best of four laws by BIC"] = str(one["best_law"].values)
        found[f"{cell}: envelope at the first and last lag"] = [shown(mean[0]), shown(mean[-1])]
        found[f"{cell}: envelope over the gates' part, first lag"] = shown(
            mean[0] / one["envelope_gate"].mean("seed")[0]
        )
        found[f"{cell}: largest rise of the envelope, share"] = shown((mean.values[1:] / mean.values[:-1] - 1).max())
        found[f"{cell}: loss, first and last"] = [shown(one[f"loss_{k}"].mean("seed")) for k in ("first", "last")]
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
            found[f"{cell}: {name}"] = [shown(value) for value in values.median("seed").values]
        alarms = one["published_validity_silent_null"].mean("seed")
        found[f"{cell}: share of data without signal with a window by the published rule"] = shown(alarms)
        told = (one["score"] > one["critical_score"]).sum("lag").mean("seed")
        found[f"{cell}: lags told from 0, of {dataset.sizes['lag']}"] = shown(told)
    return found


def time_scale_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Spread of the time scales of every cell."""
    found: dict[str, Any] = {}
    for cell, one in _cells(dataset):
        found[f"{cell}: time scale, 10%, median, 90% (steps)"] = _quantiles(one["time_scale"])
        found[f"{cell}: units that do not decay, share"] = shown(np.isinf(one["time_scale"]).mean())
    return found


def tail_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Tail indices over lags: the ones to use, and those of single sequences."""
    found: dict[str, Any] = {}
    for cell, one in _cells(dataset):
        for name, text in (("tail_index", "tail index"), ("published_tail_index", "tail index of single sequences")):
            found[f"{cell}: {text}, 10%, median, 90%"] = _quantiles(one[name])
        found[f"{cell}: lags whose variance is finite, share"] = shown((one["tail_index"] == 2).mean())
    return found


def scale_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """How noise and envelope fall together."""
    found: dict[str, Any] = {}
    for cell, one in _cells(dataset):
        for name in ("scale", "envelope"):
            ends = one[name].mean("seed").isel(lag=[0, -1]).values
            text = "noise" if name == "scale" else name
            found[f"{cell}: {text} at the first over the last lag"] = shown(ends[0] / ends[1] if ends[1] else np.inf)
    return found


def noise_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Tail indices and scales."""
    return tail_numbers(dataset) | scale_numbers(dataset)


def draw_envelopes(name: str, dataset: xr.Dataset) -> Figure:
    """Linear, semilogarithmic with the exponential fit, doubly logarithmic with the power fit."""
    from learncast.figures import envelopes_by_cell, page

    figure, axes = page(1, 3, width=3.9, height=3.4)
    for ax, law, axis in zip(axes, (None, *LAWS), ("linear", "semilog", "log-log"), strict=True):
        envelopes_by_cell(dataset, ax, law=law, axis=axis, title=f"{name}: {dataset.attrs['optimiser']}, {axis}")
    return figure


def draw_windows(name: str, dataset: xr.Dataset) -> Figure:
    """Windows by the sound rule, against all gradient noise, and by the published rule."""
    from learncast.figures import page, windows_by_cell

    figure, axes = page(1, 3, width=3.9, height=3.4)
    windows_by_cell(dataset, axes[0], variable="window", null="null_window", title=f"{name}: told from noise")
    windows_by_cell(dataset, axes[1], variable="window", noise="total", title="against all gradient noise")
    windows_by_cell(dataset, axes[2], variable="published_window", title="published rule")
    return figure


def draw_survivals(name: str, scale: str, dataset: xr.Dataset) -> Figure:
    """Share of units that are at least as slow."""
    from learncast.figures import page, survivals_by_cell

    figure, (ax,) = page(width=5.0, height=3.6)
    survivals_by_cell(dataset, ax, scale=scale, title=f"{name}: {dataset.attrs['optimiser']}")
    return figure


def draw_tails(name: str, dataset: xr.Dataset) -> Figure:
    """Distribution of the tail index over lags, of blocks and of single sequences."""
    from learncast.figures import page, tail_indices_by_cell

    figure, (ax,) = page(width=5.4, height=3.6)
    tail_indices_by_cell(dataset, ax, title=f"{name}: {dataset.attrs['optimiser']}")
    return figure


def draw_scales(name: str, dataset: xr.Dataset) -> Figure:
    """Noise scale against the lag, with the envelope scaled to it."""
    from learncast.figures import noise_scales_by_cell, page

    figure, (ax,) = page(width=5.0, height=3.6)
    noise_scales_by_cell(dataset, ax, title=f"{name}: {dataset.attrs['optimiser']}")
    return figure


def draw_noise(name: str, dataset: xr.Dataset) -> Figure:
    """Tail indices and noise scales side by side."""
    from learncast.figures import noise_scales_by_cell, page, tail_indices_by_cell

    figure, axes = page(1, 2, width=5.0, height=3.6)
    tail_indices_by_cell(dataset, axes[0], title=f"{name}(a): {dataset.attrs['optimiser']}")
    noise_scales_by_cell(dataset, axes[1], title=f"{name}(b)")
    return figure


def draw_histograms(name: str, dataset: xr.Dataset) -> Figure:
    """Histogram of time scales, one panel per cell."""
    from learncast.figures import page, time_scale_histogram

    figure, axes = page(1, dataset.sizes["cell"], width=3.2, height=3.0)
    for k, (ax, cell) in enumerate(zip(axes, dataset["cell"].values, strict=True)):
        head = f"{name}: {cell}" if k == 0 else str(cell)
        time_scale_histogram(dataset.sel(cell=cell), ax, colour=k, title=head)
    return figure


def _cells(dataset: xr.Dataset) -> list[tuple[str, xr.Dataset]]:
    return [(str(cell), dataset.sel(cell=cell)) for cell in dataset["cell"].values]


def _quantiles(values: xr.DataArray) -> list[float | str | None]:
    """10%, median and 90% of what is known, each a value that occurs: time scales may be infinite."""
    known = values.values[~np.isnan(values.values)]
    found = np.quantile(known, (0.1, 0.5, 0.9), method="lower") if known.size else np.full(3, np.nan)
    return [shown(value) for value in found]
