"""How far back does the gradient of this model carry a signal, and from how many sequences?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.progress import Progress, silent
from learncast.display import Columns, Plot, Table, format_count, format_number
from learncast.report.report import Report, fields, picture
from learncast.study.study_file import to_toml, without_none
from learncast.study.window_study import WindowStudy, sequences_from_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from learncast.windows import Window

#: Share of the progress bar for training; the rest is the diagnosis.
_TRAINING = 0.7


def window_report(study: WindowStudy, *, progress: Progress = silent) -> Report:
    """Train the study's cell, then diagnose it on sequences it has not seen."""
    from learncast.windows import window
    from learncast.windows.example_model import trained_model

    (inputs, targets), held_out = study.sequences()
    model, optimizer, losses = trained_model(
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
    return of_window(found, name=study.name, study=study.resolved(), training=training)


def model_window_report(
    place: str,
    data: Path,
    options: Mapping[str, object],
    *,
    weights: Path,
    optimizer: str | None = None,
    learning_rate: float | None = None,
    optimizer_state: Path | None = None,
    progress: Progress = silent,
) -> Report:
    """Diagnose a person's own model, which means executing their file.

    Parameters
    ----------
    place : str
        ``file.py:function``, which returns the model, or (model, optimiser) or (model, optimiser, loss).
    data : Path
        Sequences as .npz with inputs and targets.
    options : mapping
        What is asked, by the names of `learncast.windows.options`; None keeps a default.
    weights : Path
        As .safetensors or .pt.
    optimizer : str, optional
        Kind of the optimiser when the function returns none: sgd, adam, adamw or rmsprop.
    learning_rate : float, optional
        Its learning rate.
    optimizer_state : Path, optional
        State of the optimiser as .pt.
    progress : callable
    """
    from learncast.windows import window
    from learncast.windows.example_model import build_optimizer
    from learncast.windows.options import grouped
    from learncast.windows.stored_model import built_model, load_optimizer, load_weights

    asked = without_none({key: np.asarray(value).tolist() for key, value in options.items()})
    files = {"weights": weights, "optimizer_state": optimizer_state, "data": data}
    study: dict[str, object] = {"model": place, **{k: str(file) for k, file in files.items() if file is not None}}
    study |= without_none({"optimizer": optimizer, "learning_rate": learning_rate})
    named = {"name": Path(place.rpartition(":")[0]).stem, "study": to_toml({**study, "window": asked})}
    sequences, stored = sequences_from_file(data), built_model(place)
    model, own = stored.model.eval(), stored.optimizer
    if optimizer is not None and own is None:
        if learning_rate is None:
            raise InvalidSpec("--learning-rate must be given too, got --optimizer alone.")
        own = build_optimizer(optimizer, model, learning_rate=learning_rate)
    question = {"optimizer": own, "progress": progress, **grouped({**asked, "loss": stored.loss})}
    load_weights(model, weights)
    if optimizer_state is not None:
        if own is None:
            raise InvalidSpec("--optimizer must be given too, got --optimizer-state alone.")
        load_optimizer(own, model, optimizer_state)
    return of_window(window(model, *sequences, **question), **named)


def of_window(found: Window, *, name: str = "", study: str = "", **extra: object) -> Report:
    """Report a learnability window.

    Parameters
    ----------
    found : Window
    name, study : str
        Name and content of the study; by default neither.
    **extra
        Further values for JSON.
    """
    layers = [_values(found, index) for index in range(found.layers)]
    values = {
        **fields(found, "method summary sequences"),
        **{key: found.dataset.attrs[key] for key in ("signs", "optimizer")},
        **layers[0],
        **({"layers": layers} if len(layers) > 1 else {}),
        **extra,
    }
    return Report(
        kind="window",
        title=f"{name}: learnability window" if name else "Learnability window",
        lead=found.summary,
        trust=found.trust,
        values=values,
        tables=[table for index in range(found.layers) for table in _tables(found, index)],
        dataset=found.dataset,
        draw=lambda: draw_window(found),
        provenance=found.provenance,
        study=study,
    )


def _values(found: Window, index: int) -> dict[str, object]:
    here = found.dataset.sel(layer=index)
    # The last five, what is due to the task, exist with a control only.
    names = ("envelope", "envelope_gate", "envelope_optimizer", "tail_index", "tail_index_interval", "scale",
             "scale_interval", "signal", "signal_interval", "score", "status", "critical_score", "reach",
             "contiguous_reach", "control_signal", "control_score", "attributable", "control_reach",
             "attributable_reach")  # fmt: skip
    decay = ("kind", "amplitude", "rate", "exponent", "r_squared", "status", "implication")
    return {
        "lags": here["lag"].values,
        **{key: here[key].values for key in names if key in here},
        "required_sequences": here["required_sequences"].sel(noise="per_lag").values,
        "required_sequences_total": here["required_sequences"].sel(noise="total").values,
        "window": found.windows(index),
        "contiguous_window": found.windows(index, contiguous=True),
        "window_total": found.windows(index, noise="total"),
        "null_window": found.null_windows(index),
        "decay": {key: here[f"decay_{key}"].item() for key in decay},
        "time_scales": here["time_scale"].values,
    }


def _tables(found: Window, index: int) -> list[Table]:
    here = found.dataset.sel(layer=index)
    of = f" of layer {index}" if found.layers > 1 else ""
    needed, short = here["required_sequences"].sel(noise="per_lag"), "{:.3g}".format
    columns: Columns = {
        "lag": (here["lag"].values, str),
        "envelope": (here["envelope"].values, short),
        "gates": (here["envelope_gate"].values, short),
        "signal": (here["signal"].values, short),
        "score": (here["score"].values, "{:.2f}".format),
        "index": (here["tail_index"].values, format_number),
        "needs": (np.ceil(needed.values), format_count),
        "status": (here["status"].values, lambda status: _SHORT.get(status, status.replace("_", " "))),
    }
    score, ratio = float(here["critical_score"]), float(here["threshold"])
    note = (
        "Envelope: how much a step that far back weighs in learning; gates: without the optimiser's rates; score: "
        f"signal over noise, a signal if above {score:.3g} (a threshold of {ratio:.3g} in the explorer); index: "
        "tail index of the noise, 2 if Gaussian; needs: "
        "sequences to detect the signal, of which there may be too few."
    )
    return [found.table(index), Table.of(f"Lag by lag{of}", columns, [note])]


#: Statuses in a word or two: a table has eight columns to fit into 80 characters.
_SHORT = {"too_few_samples": "too few", "outside_theory": "outside", "not_learned": "never"}


def draw_window(found: Window) -> Figure:
    """For each layer: window against sequences, envelope with its fit, time scales."""
    plots = []
    for index in range(found.layers):
        here, of = found.dataset.sel(layer=index), f", layer {index}" if found.layers > 1 else ""
        units = {"units": here["time_scale"].values}
        plots += [
            Plot.of("window_curve", here, title=found.picture_title),
            Plot.of("envelope", here, title=f"Envelope{of}"),
            Plot.of("time_scale_survival", units, title="Time scales of the units"),
        ]
    return picture(*(one.on for one in plots), columns=3, width=2.7, height=2.7)
