"""The first-order envelope set against the exact one: appendix C of livi2025."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from scipy.stats import pearsonr, spearmanr

from learncast import tasks
from learncast.papers.learnability_curves import shown
from learncast.papers.learnability_preset import CELLS, PRESETS, Preset
from learncast.papers.learnability_runs import Run, trained_model
from learncast.papers.runs import Compute, PaperRun, within
from learncast.progress import Progress, silent
from learncast.trajectory import Provenance, described, load_dataset, save_dataset
from learncast.validation import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OPTIMISERS = ("SGD", "AdamW", "RMSprop")
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


def _runs(preset: Preset) -> list[Run]:
    return [
        Run(c, o, s, preset, normalised)
        for normalised in STARTS.values()
        for c in preset.cells
        for o in OPTIMISERS
        for s in preset.seeds
    ]


def validation_runs(preset: str) -> list[PaperRun]:
    """What `validation` needs."""
    return [PaperRun(compare_envelopes, run.described()) for run in _runs(PRESETS[preset])]


def validation(
    *, preset: str = "smoke", folder: Path, progress: Progress = silent, compute: Compute | None = None
) -> xr.Dataset:
    """Envelopes of every run with their correlations and slopes, over (start, cell, optimiser, seed).

    The paper does not say whether candidates were normalised in this appendix, so both are here.

    Parameters
    ----------
    preset : str
    folder : Path
        Where trained networks are kept.
    progress : callable
    compute : callable, optional
        Where networks are trained, if not in the folder.
    """
    size = PRESETS[preset]
    if compute is None:
        runs = _runs(size)
        found = [_envelopes(run, folder, within(progress, k, len(runs))) for k, run in enumerate(runs)]
    else:
        found = compute(validation_runs(preset), progress=progress)
    return _tabled(found, preset)


def _tabled(found: list[xr.Dataset], preset: str) -> xr.Dataset:
    size = PRESETS[preset]
    shape = (len(STARTS), len(size.cells), len(OPTIMISERS), len(size.seeds))
    whole = xr.concat(found, "run", combine_attrs="override", join="exact")
    grid = ("start", "cell", "optimiser", "seed")
    variables: dict[str, Any] = {
        name: ((*grid, "lag"), whole[name].values.reshape(*shape, -1), whole[name].attrs)
        for name in ("envelope", "exact_envelope", "frobenius")
    }
    compared = np.array([_compared(one) for one in found]).reshape(*shape, len(STATISTICS))
    for k, (name, (short, text)) in enumerate(STATISTICS.items()):
        variables[name] = (grid, compared[..., k], described(text, "1") | {"short_name": short})
    coordinates = {
        "start": list(STARTS),
        "cell": [CELLS[cell] for cell in size.cells],
        "optimiser": list(OPTIMISERS),
        "seed": list(size.seeds),
        "lag": ("lag", found[0]["lag"].values, described("lag", "steps")),
    }
    return xr.Dataset(variables, coordinates, attrs={"preset": preset})


def _envelopes(run: Run, folder: Path, progress: Progress) -> xr.Dataset:
    """First-order and exact envelope of one network, from the folder if they are there."""
    preset, training = run.preset, run.preset.validation
    shared = (run.settings(training), training.steps, training.sequences, preset.delay)
    stored = run.place(folder, "exact", *shared, training.lags, preset.exact)
    file = stored.with_name(f"{stored.name}.nc")
    if file.is_file():
        progress(1.0)
        return load_dataset(file, kind="run")[0]
    found = _compared_envelopes(run, run.place(folder, "waves", *shared), progress)
    save_dataset(found, file, kind="run", provenance=Provenance("training", ("livi2025",), file.stem, run.seed))
    progress(1.0)
    return found


def compare_envelopes(settings: Mapping[str, Any], progress: Progress = silent) -> xr.Dataset:
    """Envelopes of the network of `Run.described`, which is trained and not kept."""
    found = _compared_envelopes(Run.from_described(settings), None, progress)
    progress(1.0)
    return found


def _compared_envelopes(run: Run, place: Path | None, progress: Progress) -> xr.Dataset:
    preset, training = run.preset, run.preset.validation
    model, optimizer, _ = trained_model(
        run,
        training,
        lambda: _trials(run, preset, training.sequences, 3),
        place,
        inputs=len(PERIODS),
        progress=lambda share: progress(0.5 * share),
    )
    return _transported(model, optimizer, _trials(run, preset, preset.exact, 4)[0], list(training.lags))


def _trials(run: Run, preset: Preset, number: int, stream: int) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng([run.seed, stream])
    return tasks.sinusoidal_delay_trials(
        number, rng, steps=preset.validation.steps, delay=preset.delay, periods=PERIODS
    )


def _transported(model: Any, optimizer: Any, inputs: FloatArray, lags: list[int]) -> xr.Dataset:
    from learncast.learnability.base_rate import base_rates, parameter_rates
    from learncast.learnability.replay_capture import capture
    from learncast.learnability.transport import mean_transport
    from learncast.learnability.transport_exact import exact_transport

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
        for cell in dataset["cell"].values:
            for optimiser in dataset["optimiser"].values:
                one = dataset.sel(start=start, cell=cell, optimiser=optimiser)
                for name in STATISTICS:
                    key = f"{cell}, {optimiser}, {start}: {name.replace('_', ' ')}"
                    found[key] = shown(one[name].mean("seed"))
        for name in STATISTICS:
            values = dataset[name].sel(start=start)
            found[f"all {values.size} {start}: {name.replace('_', ' ')}, least and largest"] = [
                shown(values.min()),
                shown(values.max()),
            ]
    return found


def draw_validation(dataset: xr.Dataset) -> Figure:
    """First-order against exact envelopes under AdamW for both starts, and the table's statistics."""
    from learncast.figures import envelope_agreement, page, statistic_by_cell

    figure, axes = page(1, 4, width=3.9, height=3.6)
    for ax, start in zip(axes, dataset["start"].values, strict=False):
        envelope_agreement(dataset.sel(start=start, optimiser="AdamW"), ax, title=f"C: AdamW, {start}")
    statistic_by_cell(dataset, axes[2], variable="spearman")
    statistic_by_cell(dataset, axes[3], variable="slope")
    return figure
