"""The first-order envelope set against the exact one: appendix C of livi2025."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from scipy.stats import pearsonr, spearmanr

from learncast import figures, tasks
from learncast.papers.learnability.preset import CELLS, PRESETS
from learncast.papers.learnability.runs import Run, kept, trained_model
from learncast.papers.paper import short
from learncast.papers.runs import PaperRun, share_of
from learncast.progress import Progress, silent
from learncast.trajectory import described
from learncast.validation import FloatArray

OPTIMIZERS = ("SGD", "AdamW", "RMSprop")
PERIODS = (20.0,)
#: How a cell starts, and whether its candidate is then normalised.
STARTS = {"plain": False, "normalised": True}
STATISTICS = {
    "spearman": ("Spearman correlation", "rank correlation of the first-order and the exact envelope"),
    "pearson": ("Pearson correlation of logs", "correlation of the envelopes' logarithms"),
    "slope": ("slope of log f on log exact f", "slope of log first-order on log exact envelope"),
    "slope_frobenius": ("slope on log norm", "slope of log first-order envelope on log Frobenius norm"),
}
_RATE = "parameter change per gradient"


def validation_runs(preset: str) -> list[PaperRun]:
    """What `validation` needs."""
    size = PRESETS[preset]
    every = product(STARTS.values(), size.cells, OPTIMIZERS, size.seeds)
    runs = (Run(cell, optimizer, seed, size, normalised) for normalised, cell, optimizer, seed in every)
    return [PaperRun(compare_envelopes, run.described()) for run in runs]


def validation(found: list[xr.Dataset], preset: str) -> xr.Dataset:
    """Envelopes of every run with their correlations and slopes, over (start, cell, optimizer, seed).

    The paper does not say whether candidates were normalised in this appendix, so both are here.
    """
    size = PRESETS[preset]
    shape = (len(STARTS), len(size.cells), len(OPTIMIZERS), len(size.seeds))
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
        "optimizer": list(OPTIMIZERS),
        "seed": list(size.seeds),
        "lag": ("lag", found[0]["lag"].values, described("lag", "steps")),
    }
    return xr.Dataset(variables, coordinates, attrs={"preset": preset})


def compare_envelopes(
    settings: Mapping[str, Any], progress: Progress = silent, folder: Path | None = None
) -> xr.Dataset:
    """First-order and exact envelope of the network of `Run.described`, from the folder if they are there."""
    run = Run.from_described(settings)
    preset, training = run.preset, run.preset.validation
    shared = (run.settings(training), training.steps, training.sequences, preset.delay)
    file, place = run.place(folder, "exact", *shared, training.lags, preset.exact), run.place(folder, "waves", *shared)
    return kept(run, file, lambda: _compared_envelopes(run, place, progress), progress)


def _trials(run: Run, number: int, stream: int) -> tuple[FloatArray, FloatArray]:
    preset, rng = run.preset, np.random.default_rng([run.seed, stream])
    steps = preset.validation.steps
    return tasks.sinusoidal_delay_trials(number, rng, steps=steps, delay=preset.delay, periods=PERIODS)


def _compared_envelopes(run: Run, place: Path | None, progress: Progress) -> xr.Dataset:
    from learncast.learnability.replay.capture import capture
    from learncast.learnability.transport.base_rate import base_rates, parameter_rates
    from learncast.learnability.transport.exact import exact_transport
    from learncast.learnability.transport.gathering import mean_transport

    training, lags = run.preset.validation, list(run.preset.validation.lags)
    data, during = partial(_trials, run, training.sequences, 3), share_of(progress, 0, 0.5)
    model, optimizer, _ = trained_model(run, training, data, place, inputs=len(PERIODS), progress=during)
    inputs, _ = _trials(run, run.preset.exact, 4)
    seen = capture(model, model.weights.new_tensor(inputs))
    replay = seen.replay()
    rates = base_rates(replay, parameter_rates(optimizer, seen.layers[0].own))
    first = mean_transport(replay, lags, rates=rates)
    exact = exact_transport(replay, lags, rates=rates)
    return xr.Dataset(
        {
            "envelope": ("lag", first.envelope, described("first-order envelope", _RATE)),
            "exact_envelope": ("lag", exact.envelope, described("envelope of the exact diagonal", _RATE)),
            "frobenius": ("lag", exact.frobenius, described("Frobenius norm of the exact transport", "1")),
        },
        {"lag": lags},
    )


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
