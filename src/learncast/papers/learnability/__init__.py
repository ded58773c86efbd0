"""The figures and the table of appendix C of livi2025, on the learnability of gated networks, and our experiments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from scipy.stats import pearsonr, spearmanr

from learncast import figures
from learncast._core.validation import FloatArray, one_of
from learncast.papers.learnability import pictures
from learncast.papers.learnability.pictures import LAWS, STATISTICS
from learncast.papers.learnability.preset import CELLS, LEARNED_GATES, PRESETS, VALIDATED, Preset
from learncast.papers.learnability.runs import (
    GATES,
    diagnosis_runs,
    estimated_seconds,
    gate_runs,
    stacked,
    validation_runs,
)
from learncast.papers.paper import Paper, PaperFigure, captions_of
from learncast.papers.runs import PaperRun
from learncast.results import described

#: Name of a GRU whose envelope has the auxiliary terms of eq. (58).
AUXILIARY = "GRU, eq. 58"


def paper(seeds: Sequence[int] | None = None, cells: Sequence[str] | None = None, device: str | None = None) -> Paper:
    """Return all figures.

    Parameters
    ----------
    seeds, cells : sequence, optional
        Instead of those of the preset; cells are keys of `CELLS`.
    device : {"auto", "cpu", "cuda"}, optional
        Device on which networks are trained.
    """
    for cell in cells or ():
        one_of("cells", cell, tuple(CELLS))
    if device is not None:
        one_of("device", device, ("auto", "cpu", "cuda"))
    given: dict[str, Any] = {"seeds": seeds, "validation_seeds": seeds, "cells": cells}
    own: dict[str, Any] = {key: tuple(value) for key, value in given.items() if value is not None}
    sizes = {name: replace(one, **own, device=device or one.device) for name, one in PRESETS.items()}
    survival, powers = (
        partial(pictures.draw_one, partial(pictures.survivals, scale)) for scale in ("semilog", "log-log")
    )
    tails, scales = (
        partial(pictures.draw_one, draw) for draw in (figures.tail_indices_by_cell, figures.noise_scales_by_cell)
    )
    parts: dict[str, tuple[str, Callable[..., Any], Callable[..., Any]]] = {
        "1": ("AdamW", pictures.draw_envelopes, pictures.envelope_numbers),
        "2": ("AdamW", pictures.draw_windows, pictures.window_numbers),
        "3": ("AdamW", survival, pictures.time_scale_numbers),
        "4": ("AdamW", tails, pictures.tail_numbers),
        "5": ("AdamW", scales, pictures.scale_numbers),
        "12": ("AdamW", powers, pictures.time_scale_numbers),
        "13": ("AdamW", pictures.draw_histograms, pictures.time_scale_numbers),
        "N": ("AdamW", pictures.draw_requirements, pictures.requirement_numbers),
        "T": ("AdamW", pictures.draw_courses, pictures.course_numbers),
    }
    for first, optimizer in ((6, "SGD"), (9, "SGD with momentum")):
        parts[f"{first}"] = (optimizer, pictures.draw_envelopes, pictures.envelope_numbers)
        parts[f"{first + 1}"] = (optimizer, survival, pictures.time_scale_numbers)
        parts[f"{first + 2}"] = (optimizer, pictures.draw_noise, pictures.noise_numbers)
    captions, shared = captions_of(__name__)
    every: dict[str, PaperFigure] = {}
    for name, (optimizer, picture, numbers) in parts.items():
        phrases = {key: text.format(optimizer=optimizer, ours=shared["ours"]) for key, text in shared.items()}
        data = partial(_sized, sizes, partial(diagnoses, optimizer))
        runs = partial(_runs, sizes, partial(diagnosis_runs, optimizer))
        caption = captions[name].format(optimizer=optimizer, **phrases)
        every[name] = PaperFigure(name, caption, data, partial(picture, name), numbers, runs)
    table, gates = partial(_sized, sizes, validation), partial(_sized, sizes, both_gates)
    ours = partial(_runs, sizes, gate_runs), partial(_runs, sizes, validation_runs)
    every["C"] = PaperFigure("C", captions["C"], table, pictures.draw_validation, pictures.validation_numbers, ours[1])
    every["G"] = PaperFigure("G", captions["G"], gates, pictures.draw_gates, pictures.gate_numbers, ours[0])
    return Paper("learnability", "livi2025", tuple(every[name] for name in captions), tuple(PRESETS))


def _sized(
    sizes: Mapping[str, Preset], data: Callable[..., xr.Dataset], results: list[xr.Dataset], preset: str
) -> xr.Dataset:
    return data(results, sizes[preset]).assign_attrs(preset=preset)


def _runs(sizes: Mapping[str, Preset], runs: Callable[[Preset], list[PaperRun]], preset: str) -> list[PaperRun]:
    """Return the runs of a preset with their estimates, because some are too long for a trial."""
    return [replace(one, estimate=estimated_seconds) for one in runs(sizes[preset])]


def diagnoses(optimizer: str, results: list[xr.Dataset], preset: Preset) -> xr.Dataset:
    """Return all cells under one optimiser, with both laws fitted to the mean envelope of each."""
    from learncast.windows.transport.decay import fit_decay

    dataset = stacked(results, preset.cells, preset)
    lags, means = dataset["lag"].values, dataset["envelope"].mean("seed")
    fits = [fit_decay(lags, means.sel(cell=cell).values) for cell in dataset["cell"].values]
    for law in LAWS:
        lines = np.array([fit.fits[law].law.at(lags) for fit in fits])
        dataset[f"{law}_fit"] = (("cell", "lag"), lines, described(f"{law} fit", dataset["envelope"].attrs["units"]))
        rates = [getattr(fit.fits[law].law, "rate" if law == "exponential" else "exponent") for fit in fits]
        dataset[f"{law}_parameter"] = ("cell", np.array(rates), described("decay rate or exponent", "1"))
        shares = np.array([fit.fits[law].r_squared for fit in fits])
        dataset[f"{law}_r_squared"] = ("cell", shares, described(f"share of log f explained by the {law} law", "1"))
    best = np.array([fit.best.kind if fit.best else "unknown" for fit in fits])
    dataset["best_law"] = ("cell", best, described("law with the least BIC", "1"))
    dataset.attrs = {
        "optimizer": optimizer,
        "learning_rate": preset.rates[optimizer],
        "longest_task_lag": preset.task_lags[-1],
        "task_lags": list(preset.task_lags),
    }
    return dataset


def both_gates(results: list[xr.Dataset], preset: Preset) -> xr.Dataset:
    """Return every cell with learned gates from both initial values, over (gate, cell, seed)."""
    cells = tuple(cell for cell in preset.cells if cell in LEARNED_GATES)
    each = len(cells) * len(preset.seeds)
    kept = ["envelope", "window", "time_scale", "loss_last"]
    parts = [stacked([one[kept] for one in results[k : k + each]], cells, preset) for k in range(0, len(results), each)]
    return xr.concat(parts, "gate", combine_attrs="drop", join="exact").assign_coords(gate=list(GATES))


def validation(results: list[xr.Dataset], preset: Preset) -> xr.Dataset:
    """Return the envelopes of every run with their correlations and slopes, over (cell, optimizer, seed).

    A GRU occurs a second time with the auxiliary terms of eq. (58).
    """
    shape = (len(preset.cells), len(VALIDATED), len(preset.validation_seeds))
    grid, cells = ("cell", "optimizer", "seed"), [CELLS[cell] for cell in preset.cells]
    joined = xr.concat(results, "run", combine_attrs="override", join="exact")
    columns = {
        name: joined[name].values.reshape(*shape, -1)
        for name in ("envelope", "envelope_auxiliary", "exact_envelope", "frobenius")
    }
    if "paper-gru" in preset.cells:
        gru = preset.cells.index("paper-gru")
        more = {name: values[gru : gru + 1] for name, values in columns.items()}
        more["envelope"] = more["envelope_auxiliary"]
        columns = {name: np.concatenate([values, more[name]]) for name, values in columns.items()}
        cells.append(AUXILIARY)
    variables: dict[str, object] = {
        name: ((*grid, "lag"), columns[name], joined[name].attrs)
        for name in ("envelope", "exact_envelope", "frobenius")
    }
    each = zip(*(values.reshape(-1, values.shape[-1]) for values in columns.values()), strict=True)
    compared = np.array([_compared(first, exact, norm) for first, _, exact, norm in each])
    for k, (name, (title, text)) in enumerate(STATISTICS.items()):
        values = compared[:, k].reshape(len(cells), *shape[1:])
        variables[name] = (grid, values, described(text, "1") | {"short_name": title})
    coordinates = {
        "cell": cells,
        "optimizer": list(VALIDATED),
        "seed": list(preset.validation_seeds),
        "lag": ("lag", results[0]["lag"].values, described("lag", "steps")),
    }
    return xr.Dataset(variables, coordinates)


def _compared(first: FloatArray, exact: FloatArray, norm: FloatArray) -> tuple[float, float, float, float]:
    """Return rank correlation, correlation of logarithms, and slopes; nan if fewer than three lags are positive."""
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
