"""How far back can this model learn, and from how many sequences?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from learncast.answers.answer import Answer, Table, shown, whole
from learncast.assumptions import Trust, worst
from learncast.errors import InvalidSpec
from learncast.progress import Progress, silent
from learncast.study.study_file import to_toml, without_none
from learncast.study.window_study import WindowStudy, sequences_from_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from learncast.learnability.learnability_window import LearnabilityWindow

#: Share of the progress bar for training; the rest is the diagnosis.
_TRAINING = 0.7


def rehearsed_window(study: WindowStudy, *, progress: Progress = silent) -> Answer:
    """Train the study's cell, then diagnose it on sequences it has not seen."""
    from learncast.learnability.diagnosis import window
    from learncast.learnability.rehearsal import trained

    (inputs, targets), held_out = study.sequences()
    model, optimizer, losses = trained(
        study.settings(), inputs, targets, progress=lambda share: progress(_TRAINING * share)
    )
    found = window(
        model,
        *held_out,
        optimizer=optimizer,
        progress=lambda share: progress(_TRAINING + (1 - _TRAINING) * share),
        **study.question(),
    )
    training = {"steps": len(losses), "first_loss": losses[0], "last_loss": losses[-1]} if len(losses) else {"steps": 0}
    return _answer(found, study.name, study.resolved(), {"training": training})


def stored_window(
    place: str,
    *,
    weights: Path,
    data: Path,
    optimizer_state: Path | None = None,
    optimizer: str | None = None,
    learning_rate: float | None = None,
    options: dict[str, Any] | None = None,
    progress: Progress = silent,
) -> Answer:
    """Diagnose a person's own model, which means executing their file.

    Parameters
    ----------
    place : str
        ``file.py:function``, which returns the model, or (model, optimiser) or (model, optimiser, loss).
    weights, data : Path
        Weights as .safetensors or .pt, sequences as .npz with inputs and targets.
    optimizer_state : Path, optional
        State of the optimiser as .pt or .safetensors.
    optimizer : str, optional
        Kind of the optimiser when the function returns none: sgd, adam, adamw or rmsprop.
    learning_rate : float, optional
        Its learning rate.
    options : dict, optional
        What is asked, by the names of `learncast.learnability.question`; None keeps a default.
    progress : callable
    """
    from learncast.learnability.diagnosis import window
    from learncast.learnability.question import grouped
    from learncast.learnability.rehearsal import build_optimizer
    from learncast.learnability.stored_model import built_model, load_optimizer, load_weights

    inputs, targets = sequences_from_file(data)
    stored = built_model(place)
    load_weights(stored.model, weights)
    chosen = stored.optimizer
    if optimizer is not None and chosen is None:
        if learning_rate is None:
            raise _incomplete("--learning-rate", "--optimizer alone", "an optimiser's steps are multiples of it")
        chosen = build_optimizer(optimizer, stored.model, learning_rate=learning_rate)
    if optimizer_state is not None:
        if chosen is None:
            raise _incomplete("--optimizer", "--optimizer-state alone", "a state does not say whose it is")
        load_optimizer(chosen, stored.model, optimizer_state)
    asked = without_none({key: np.asarray(value).tolist() for key, value in (options or {}).items()})
    question = grouped({**asked, "loss": stored.loss})
    stored.model.eval()
    found = window(stored.model, inputs, targets, optimizer=chosen, progress=progress, **question)
    state = None if optimizer_state is None else str(optimizer_state)
    said: dict[str, Any] = {"model": place, "weights": str(weights), "data": str(data), "optimizer_state": state}
    said |= {"optimizer": optimizer, "learning_rate": learning_rate}
    return _answer(found, Path(place.rpartition(":")[0]).stem, to_toml({**without_none(said), "window": asked}), {})


def _incomplete(missing: str, got: str, why: str) -> InvalidSpec:
    return InvalidSpec(
        required=f"{missing} must be given too",
        got=got,
        why=why,
        remedy=f"add {missing}, or return it from the function",
    )


def _answer(found: LearnabilityWindow, name: str, study: str, extra: dict[str, Any]) -> Answer:
    layers = [_values(found, index) for index in range(found.layers)]
    values = {
        "method": found.method,
        "summary": found.summary(),
        "sequences": found.sequences,
        "signs": found.dataset.attrs["signs"],
        "optimizer": found.dataset.attrs["optimizer"],
        **layers[0],
        **({"layers": layers} if len(layers) > 1 else {}),
        **extra,
    }
    return Answer(
        kind="window",
        title=f"{name}: learnability window",
        lead=found.summary(),
        trust=Trust(worst(found.validity(index) for index in range(found.layers)), "measured"),
        values=values,
        tables=[table for index in range(found.layers) for table in _tables(found, index)],
        dataset=found.dataset,
        draw=lambda: draw_window(found),
        provenance=found.provenance,
        study=study,
    )


def _values(found: LearnabilityWindow, index: int) -> dict[str, Any]:
    here = found.dataset.sel(layer=index)
    arrays = ("envelope", "envelope_gate", "envelope_optimizer", "tail_index", "tail_index_interval", "scale",
              "scale_interval", "signal", "signal_interval", "score", "status")  # fmt: skip
    decay = ("kind", "amplitude", "rate", "exponent", "r_squared", "status", "implication")
    return {
        "lags": here["lag"].values,
        **{key: here[key].values for key in arrays},
        "required_sequences": here["required_sequences"].sel(noise="per_lag").values,
        "required_sequences_total": here["required_sequences"].sel(noise="total").values,
        **{key: here[key].item() for key in ("critical_score", "reach", "contiguous_reach")},
        "window": found.windows(index),
        "contiguous_window": found.windows(index, contiguous=True),
        "window_total": found.windows(index, noise="total"),
        "null_window": found.null_windows(index),
        "decay": {key: here[f"decay_{key}"].item() for key in decay},
        "time_scales": here["time_scale"].values,
    }


def _tables(found: LearnabilityWindow, index: int) -> list[Table]:
    here = found.dataset.sel(layer=index)
    of = f" of layer {index}" if found.layers > 1 else ""
    windows, gapless = found.windows(index), found.windows(index, contiguous=True)
    total, null = found.windows(index, noise="total"), found.null_windows(index)
    sizes = [(f"{n:,}", *(_lag(part[n]) for part in (windows, gapless, total, null))) for n in windows]
    columns = ("sequences", "window", "without gaps", "against all noise", "no signal (95%)")
    more = f"More than {found.sequences:,} sequences: at least so far, since lags without a signal here stay unknown."
    rows = [_lag_row(here.isel(lag=row)) for row in range(here.sizes["lag"])]
    lags = ("lag", "envelope", "gates", "signal", "score", "index", "needs", "status")
    told = f"A signal is told from 0 by a score above {float(here['critical_score']):.3g}; too few: these "
    return [
        Table(f"Longest learnable lag{of}", columns, sizes, [more]),
        Table(f"Lag by lag{of}", lags, rows, [f"{told}sequences do not tell it, or not its noise."]),
    ]


#: Statuses in a word or two: a table has eight columns to fit into 80 characters.
_SHORT = {"too_few_samples": "too few", "outside_theory": "outside", "not_learned": "never"}


def _lag_row(here: xr.Dataset) -> tuple[str, ...]:
    status, needed = here["status"].item(), here["required_sequences"].sel(noise="per_lag").item()
    return (
        f"{here['lag'].item()}",
        *(f"{here[name].item():.3g}" for name in ("envelope", "envelope_gate", "signal")),
        f"{here['score'].item():.2f}",
        shown(here["tail_index"].item()),
        whole(np.ceil(needed)),
        _SHORT.get(status, status.replace("_", " ")),
    )


def _lag(value: float) -> str:
    return "unknown" if np.isnan(value) else f"{value:.0f}"


def draw_window(found: LearnabilityWindow) -> Figure:
    """For each layer: envelope with its fit, window against sequences, time scales."""
    from learncast.figures import envelope, page, time_scale_survival, window_curve

    figure, axes = page(found.layers, 3, width=4.4, height=3.5)
    for index in range(found.layers):
        here = found.dataset.sel(layer=index)
        of = f", layer {index}" if found.layers > 1 else ""
        row = axes[3 * index : 3 * index + 3]
        envelope(here, row[0], title=f"Envelope{of}")
        window_curve(here, row[1], title=f"Window ({found.method} method)")
        time_scale_survival(here, row[2], title="Time scales of the units")
    return figure
