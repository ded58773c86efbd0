"""Figures 1 to 13 and the table of appendix C of livi2025, and ours on its claims: learnability of gated networks."""

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
from learncast.papers.paper import Paper, PaperFigure
from learncast.papers.runs import PaperRun
from learncast.results import described

#: What a GRU is called where its envelope has the auxiliary terms of eq. (58).
AUXILIARY = "GRU, eq. 58"
_OURS = (
    "Differs from the print: signs, noise and tail index from independent sequences, base rates by eq. (7) from the "
    "optimiser's state, sums over units; gates start as in the scripts (0.05, GRU and LSTM random)"
)
_ENVELOPES = (
    "Envelopes f(l) of every cell under {}, with exponential and power fits; dashed, the GRU's with the reset gates' "
    f"products that eq. (58) adds and no expansion of the Jacobians contains. {_OURS}."
)
_SURVIVAL = f"Share of units whose time scale is at least as long under {{}}. {_OURS}."
_NOISE = f"Tail index over lags and noise scale against the lag under {{}}. {_OURS}."
CAPTIONS = {
    "1": _ENVELOPES,
    "2": "Longest learnable lag against the number of sequences: told from noise (with what data without signal show), "
    "against the noise of the whole gradient, and by the published rule, whose signs come from the data they are "
    "applied to. Beyond the task's longest lag (dotted) the signal is the network's own answer: with targets of other "
    f"sequences it stays within a few standard errors. {_OURS}.",
    "3": _SURVIVAL,
    "4": "Tail index of the noise between sequences, over lags: where it rises to 2 in means of sequences the variance "
    f"is finite. {_OURS}.",
    "5": f"Noise scale against the lag; dotted, the envelope scaled to it at the first lag. {_OURS}.",
    "6": _ENVELOPES,
    "7": _SURVIVAL,
    "8": _NOISE,
    "9": _ENVELOPES,
    "10": _SURVIVAL,
    "11": _NOISE,
    "12": f"Share of units whose time scale is at least as long under {{}} on doubly logarithmic axes. {_OURS}.",
    "13": f"Time scales of the units of every cell under {{}}. {_OURS}.",
    "C": "First-order against exact envelopes of networks trained on appendix C's task, orthogonal weights and no "
    "normalisation: rank correlation, correlation of logarithms and slope, by cell and optimiser, the GRU without and "
    "with the terms of eq. (58). Settings of the authors' diagnostics/run_envelope_validation_batch.sh (commit f43916c)"
    " at the preset paper, cut down in the others, but at all times in place of 50 drawn ones; its --B 256 are all "
    "sequences, trained on in batches of 32. Differs from it: base rates by eq. (7) in place of means over rows, the "
    "LSTM's exact block is the one that the expansion is of (from cell to hidden state).",
    "N": "Ours, a test of eq. (26): sequences that a lag needs against its envelope, for lags told from noise, with "
    "the slope -kappa = -2 of a finite variance; against the noise of the lag itself the envelope cancels, against "
    "that of the whole gradient the alignment is left beside it.",
    "G": "Ours: envelopes from gates that start at 0.5, as the text says, and at 0.05, as the scripts set them.",
    "T": "Ours, the paper's next step: time scales (median and 10% to 90%), exponent of the envelope and tail index "
    "while a network trains.",
}


def paper(seeds: Sequence[int] | None = None, cells: Sequence[str] | None = None, device: str | None = None) -> Paper:
    """All figures.

    Parameters
    ----------
    seeds, cells : sequence, optional
        In place of the presets' own; cells by a key of `CELLS`.
    device : {"auto", "cpu", "cuda"}, optional
        Where networks are trained.
    """
    for cell in cells or ():
        one_of("cells", cell, tuple(CELLS))
    if device is not None:
        one_of("device", device, ("auto", "cpu", "cuda"))
    given: dict[str, Any] = {"seeds": seeds, "validation_seeds": seeds, "cells": cells}
    own: dict[str, Any] = {key: tuple(value) for key, value in given.items() if value is not None}
    sizes = {name: replace(one, **own, device=device or one.device) for name, one in PRESETS.items()}
    tails, scales = (
        partial(pictures.draw_one, figures.tail_indices_by_cell),
        partial(pictures.draw_one, figures.noise_scales_by_cell),
    )
    survival, powers = (
        partial(pictures.draw_one, partial(figures.survivals_by_cell, scale=scale)) for scale in ("semilog", "log-log")
    )
    made: dict[str, tuple[str, Callable[..., Any], Callable[..., Any]]] = {
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
        made[f"{first}"] = (optimizer, pictures.draw_envelopes, pictures.envelope_numbers)
        made[f"{first + 1}"] = (optimizer, survival, pictures.time_scale_numbers)
        made[f"{first + 2}"] = (optimizer, pictures.draw_noise, pictures.noise_numbers)
    every = {name: _figure(name, sizes, *parts) for name, parts in made.items()}
    table, gates = partial(_sized, sizes, validation), partial(_sized, sizes, both_gates)
    ours = partial(_runs, sizes, gate_runs), partial(_runs, sizes, validation_runs)
    every["C"] = PaperFigure("C", CAPTIONS["C"], table, pictures.draw_validation, pictures.validation_numbers, ours[1])
    every["G"] = PaperFigure("G", CAPTIONS["G"], gates, pictures.draw_gates, pictures.gate_numbers, ours[0])
    return Paper("learnability", "livi2025", tuple(every[name] for name in CAPTIONS), tuple(PRESETS))


def _sized(sizes: Mapping[str, Preset], data: Callable[..., xr.Dataset], found: list[xr.Dataset], preset: str) -> Any:
    return data(found, sizes[preset]).assign_attrs(preset=preset)


def _runs(sizes: Mapping[str, Preset], runs: Callable[[Preset], list[PaperRun]], preset: str) -> list[PaperRun]:
    """The runs of a preset, which say what they will take: some are too long to be tried."""
    return [replace(one, estimate=estimated_seconds) for one in runs(sizes[preset])]


def _figure(
    name: str, sizes: Mapping[str, Preset], optimizer: str, picture: Callable[..., Any], numbers: Callable[..., Any]
) -> PaperFigure:
    """A figure of all cells under one optimiser."""
    data = partial(_sized, sizes, partial(diagnoses, optimizer))
    runs = partial(_runs, sizes, partial(diagnosis_runs, optimizer))
    return PaperFigure(name, CAPTIONS[name].format(optimizer), data, partial(picture, name), numbers, runs)


def diagnoses(optimizer: str, results: list[xr.Dataset], preset: Preset) -> xr.Dataset:
    """All cells under one optimiser, with both laws fitted to the mean envelope of each."""
    from learncast.windows.transport import fit_decay

    found = stacked(results, preset.cells, preset)
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
    found.attrs = {
        "optimizer": optimizer,
        "learning_rate": preset.rates[optimizer],
        "longest_task_lag": preset.task_lags[-1],
        "task_lags": list(preset.task_lags),
    }
    return found


def both_gates(results: list[xr.Dataset], preset: Preset) -> xr.Dataset:
    """Every cell with learned gates from both initial values, over (gate, cell, seed)."""
    cells = tuple(cell for cell in preset.cells if cell in LEARNED_GATES)
    each = len(cells) * len(preset.seeds)
    kept = ["envelope", "window", "time_scale", "loss_last"]
    parts = [stacked([one[kept] for one in results[k : k + each]], cells, preset) for k in range(0, len(results), each)]
    return xr.concat(parts, "gate", combine_attrs="drop", join="exact").assign_coords(gate=list(GATES))


def validation(found: list[xr.Dataset], preset: Preset) -> xr.Dataset:
    """Envelopes of every run with their correlations and slopes, over (cell, optimizer, seed).

    A GRU is there a second time, with the auxiliary terms of eq. (58).
    """
    shape = (len(preset.cells), len(VALIDATED), len(preset.validation_seeds))
    grid, cells = ("cell", "optimizer", "seed"), [CELLS[cell] for cell in preset.cells]
    whole = xr.concat(found, "run", combine_attrs="override", join="exact")
    columns = {
        name: whole[name].values.reshape(*shape, -1)
        for name in ("envelope", "envelope_auxiliary", "exact_envelope", "frobenius")
    }
    if "paper-gru" in preset.cells:
        gru = preset.cells.index("paper-gru")
        more = {name: values[gru : gru + 1] for name, values in columns.items()}
        more["envelope"] = more["envelope_auxiliary"]
        columns = {name: np.concatenate([values, more[name]]) for name, values in columns.items()}
        cells.append(AUXILIARY)
    variables: dict[str, Any] = {
        name: ((*grid, "lag"), columns[name], whole[name].attrs) for name in ("envelope", "exact_envelope", "frobenius")
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
        "lag": ("lag", found[0]["lag"].values, described("lag", "steps")),
    }
    return xr.Dataset(variables, coordinates)


def _compared(first: FloatArray, exact: FloatArray, norm: FloatArray) -> tuple[float, float, float, float]:
    """Rank correlation, correlation of logarithms, and slopes; nan where fewer than three lags are positive."""
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
