"""The figures of livi2025, on the learnability of gated networks, and tests of its claims."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from importlib.resources import files
from typing import Any, cast

import numpy as np
import xarray as xr

from learncast import figures
from learncast._core.errors import SchemaMismatch
from learncast._core.progress import Progress, silent
from learncast._core.validation import one_of
from learncast.papers.learnability import claims, pictures
from learncast.papers.learnability.pictures import LAWS
from learncast.papers.learnability.preset import CELLS, PRESETS, Preset
from learncast.papers.learnability.runs import diagnosis_runs, stacked
from learncast.papers.paper import Paper, PaperFigure, captions_of
from learncast.papers.runs import PaperRun
from learncast.results import described, spec_hash

#: Results of the preset default that come with the package: a table of datasets by run, in JSON.
STORED = files(__name__).joinpath("stored.json.gz")


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
    own: dict[str, Any] = {k: tuple(v) for k, v in (("seeds", seeds), ("cells", cells)) if v is not None}
    sizes = {name: replace(one, **own, device=device or one.device) for name, one in PRESETS.items()}
    survival, powers = (partial(pictures.draw_one, partial(pictures.survivals, s)) for s in ("semilog", "log-log"))
    tails = partial(pictures.draw_one, figures.tail_indices_by_cell)
    scales = partial(pictures.draw_one, figures.noise_scales_by_cell)
    parts: dict[str, tuple[str, Callable[..., Any], Callable[..., Any]]] = {
        "1": ("AdamW", pictures.draw_envelopes, pictures.envelope_numbers),
        "2": ("AdamW", pictures.draw_windows, pictures.window_numbers),
        "3": ("AdamW", survival, pictures.time_scale_numbers),
        "4": ("AdamW", tails, pictures.tail_numbers),
        "5": ("AdamW", scales, pictures.scale_numbers),
        "12": ("AdamW", powers, pictures.time_scale_numbers),
        "13": ("AdamW", pictures.draw_histograms, pictures.time_scale_numbers),
        "T": ("AdamW", partial(pictures.draw_one, pictures.course), pictures.course_numbers),
    }
    for first, optimizer in ((6, "SGD"), (9, "SGD with momentum")):
        parts[f"{first}"] = (optimizer, pictures.draw_envelopes, pictures.envelope_numbers)
        parts[f"{first + 1}"] = (optimizer, survival, pictures.time_scale_numbers)
        parts[f"{first + 2}"] = (optimizer, pictures.draw_noise, pictures.noise_numbers)
    captions, shared = captions_of(__name__)

    def figure(name: str, caption: str, make: Any, picture: Any, numbers: Any, runs: Any) -> PaperFigure:
        def data(results: list[xr.Dataset], preset: str) -> xr.Dataset:
            return cast(xr.Dataset, make(results, sizes[preset])).assign_attrs(preset=preset)

        return PaperFigure(name, caption, data, picture, numbers, lambda preset: runs(sizes[preset]))

    made = (claims.claims, claims.draw_claims, claims.claim_numbers, claims.claim_runs)
    every = {"claims": figure("claims", captions["claims"], *made)}
    for name, (optimizer, picture, numbers) in parts.items():
        phrases = {key: text.format(optimizer=optimizer, ours=shared["ours"]) for key, text in shared.items()}
        caption = captions[name].format(optimizer=optimizer, **phrases)
        data, runs = partial(diagnoses, optimizer), partial(diagnosis_runs, optimizer)
        every[name] = figure(name, caption, data, picture, numbers, runs)
    return Paper("learnability", "livi2025", tuple(every[name] for name in captions), tuple(PRESETS), stored=stored)


def stored(runs: Sequence[PaperRun], *, progress: Progress = silent) -> list[xr.Dataset]:
    """Return the results of runs of the preset default that come with the package."""
    known = _stored()
    if any(stored_key(one) not in known for one in runs):
        raise SchemaMismatch("stored results need the preset default with its own seeds and cells.", field="stored")
    progress(1.0)
    return [xr.Dataset.from_dict(known[stored_key(one)]) for one in runs]


@cache
def _stored() -> dict[str, Any]:
    return dict(json.loads(gzip.decompress(STORED.read_bytes())))


def stored_key(run: PaperRun) -> str:
    """Return the key of a run in the table of stored results."""
    return spec_hash(run.text)[:16]


def diagnoses(optimizer: str, results: list[xr.Dataset], preset: Preset) -> xr.Dataset:
    """Return all cells under one optimiser, with both laws fitted to the mean envelope of each at the task's lags."""
    from learncast.windows.transport.decay import fit_decay

    dataset, longest = stacked(results, preset.cells_of(optimizer)), preset.main.task_lags[-1]
    lags, means = dataset["lag"].values, dataset["envelope"].mean("seed")
    near = lags <= longest
    fits = [fit_decay(lags[near], means.sel(cell=cell).values[near]) for cell in dataset["cell"].values]
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
        "learning_rate": preset.schedules[optimizer].rate,
        "longest_task_lag": longest,
        "task_lags": list(preset.main.task_lags),
    }
    return dataset
