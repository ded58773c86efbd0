"""How far back can this model learn, and from how many sequences?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from learncast._core.errors import InvalidSpec
from learncast._core.progress import Progress, silent
from learncast.display import Table, format_count, format_number
from learncast.report.report import Report
from learncast.study.study_file import to_toml, without_none
from learncast.study.window_study import WindowStudy, sequences_from_file
from learncast.theory.assumptions import Trust

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from learncast.windows import Evolution, Window
    from learncast.windows.options import Options
    from learncast.windows.stored_model import StoredModel

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


@dataclass(frozen=True)
class OwnModel:
    """A person's own model and the sequences it is diagnosed on; reading it means executing their file.

    Attributes
    ----------
    place : str
        ``file.py:function``, which returns the model, or (model, optimiser) or (model, optimiser, loss).
    data : Path
        Sequences as .npz with inputs and targets.
    optimizer : str, optional
        Kind of the optimiser when the function returns none: sgd, adam, adamw or rmsprop.
    learning_rate : float, optional
        Its learning rate.
    options : dict
        What is asked, by the names of `learncast.windows.options`; None keeps a default.
    """

    place: str
    data: Path
    optimizer: str | None = None
    learning_rate: float | None = None
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def asked(self) -> dict[str, object]:
        """The options that were given."""
        return without_none({key: np.asarray(value).tolist() for key, value in self.options.items()})

    def read(self) -> tuple[StoredModel, Sequence[object], Options]:
        """The model with its optimiser, inputs and targets, and the question."""
        from learncast.windows.example_model import build_optimizer
        from learncast.windows.options import grouped
        from learncast.windows.stored_model import built_model

        sequences = sequences_from_file(self.data)
        stored = built_model(self.place)
        if self.optimizer is not None and stored.optimizer is None:
            if self.learning_rate is None:
                raise InvalidSpec("--learning-rate must be given too, got --optimizer alone.")
            own = build_optimizer(self.optimizer, stored.model, learning_rate=self.learning_rate)
            stored = replace(stored, optimizer=own)
        stored.model.eval()
        return stored, sequences, grouped({**self.asked, "loss": stored.loss})

    def resolved(self, **files: object) -> str:
        """What was asked, as a study says it."""
        said: dict[str, object] = {"model": self.place}
        said |= {key: str(value) for key, value in files.items() if value is not None}
        said |= {"data": str(self.data), "optimizer": self.optimizer, "learning_rate": self.learning_rate}
        return to_toml({**without_none(said), "window": self.asked})

    @property
    def name(self) -> str:
        """What it is called."""
        return Path(self.place.rpartition(":")[0]).stem


def model_window_report(
    own: OwnModel, *, weights: Path, optimizer_state: Path | None = None, progress: Progress = silent
) -> Report:
    """Diagnose a person's own model.

    Parameters
    ----------
    own : OwnModel
    weights : Path
        As .safetensors or .pt.
    optimizer_state : Path, optional
        State of the optimiser as .pt.
    progress : callable
    """
    from learncast.windows import window
    from learncast.windows.stored_model import load_checkpoint, load_optimizer

    stored, sequences, question = own.read()
    load_checkpoint(stored.model, None, weights)
    if optimizer_state is not None:
        if stored.optimizer is None:
            raise InvalidSpec("--optimizer must be given too, got --optimizer-state alone.")
        load_optimizer(stored.optimizer, stored.model, optimizer_state)
    found = window(stored.model, *sequences, optimizer=stored.optimizer, progress=progress, **question)
    return of_window(found, name=own.name, study=own.resolved(weights=weights, optimizer_state=optimizer_state))


def evolution_report(own: OwnModel, *, checkpoints: str, progress: Progress = silent) -> Report:
    """Diagnose every stored state of a person's own model.

    Parameters
    ----------
    own : OwnModel
    checkpoints : str
        A pattern of files, as for `learncast.windows.evolution`.
    progress : callable
    """
    from learncast.windows import evolution

    stored, sequences, question = own.read()
    found = evolution(stored.model, checkpoints, *sequences, optimizer=stored.optimizer, progress=progress, **question)
    return of_evolution(found, name=own.name, study=own.resolved(checkpoints=checkpoints))


def of_evolution(found: Evolution, *, name: str = "", study: str = "") -> Report:
    """Report a learnability window over training.

    Parameters
    ----------
    found : Evolution
    name, study : str
        Name and content of the study; by default neither.
    """
    title = "learnability window over training"
    layers = [_course(found.dataset.sel(layer=index)) for index in range(found.layers)]
    counted = str(found.dataset["step"].attrs["long_name"])
    values = {
        "summary": found.summary,
        "sequences": int(found.dataset["sequences"][0]),
        "lags": found.dataset["lag"].values,
        "optimizer": found.dataset.attrs["optimizer"],
        "counted": counted,
        "files": found.dataset["file"].values,
    }
    return Report(
        kind="evolution",
        title=f"{name}: {title}" if name else title.capitalize(),
        lead=found.summary,
        trust=Trust(found.validity(), "measured"),
        values={**values, **layers[0], **({"layers": layers} if len(layers) > 1 else {})},
        tables=[_course_table(layer, index, counted, len(layers)) for index, layer in enumerate(layers)],
        dataset=found.dataset,
        draw=lambda: draw_evolution(found.dataset),
        provenance=found.provenance,
        study=study,
    )


#: The values reported for every checkpoint, and their column headings.
_FOLLOWED = {
    "reach": "window",
    "contiguous_reach": "without gaps",
    "envelope_exponent": "exponent",
    "tail_index_median": "tail index",
}


def _course(layer: xr.Dataset) -> dict[str, object]:
    quantiles = layer["time_scale_quantile"]
    scales = {f"time_scale_{100 * q:.0f}": quantiles.sel(quantile=q).values for q in quantiles["quantile"].values}
    return {"steps": layer["step"].values, **{name: layer[name].values for name in _FOLLOWED}, **scales}


def _course_table(layer: Mapping[str, Any], index: int, counted: str, layers: int) -> Table:
    columns = _FOLLOWED | {name: f"tau {name.rpartition('_')[2]}%" for name in layer if name.startswith("time_scale")}
    formats = {name: format_count if name.endswith("reach") else format_number for name in columns}
    rows = [
        (f"{step:,}", *(words(float(layer[name][k])) for name, words in formats.items()))
        for k, step in enumerate(layer["steps"])
    ]
    of = f" of layer {index}" if layers > 1 else ""
    note = "Window and time scales in steps of a sequence. tau: quantiles of the units' time scales; never: no decay. "
    note += "Exponent: of the envelope as a power of the lag."
    return Table(f"Over training{of}", (counted, *columns.values()), rows, [note])


def draw_evolution(dataset: xr.Dataset) -> Figure:
    """For each layer: time scales of the units, exponent of the envelope, tail index and window over training."""
    from learncast.figures import page, time_scale_survival, window_over_training

    layers = dataset.sizes["layer"]
    figure, axes = page(2 * layers, 2, width=3.5, height=2.6)
    for index in range(layers):
        here, of = dataset.sel(layer=index), f", layer {index}" if layers > 1 else ""
        row = axes[4 * index : 4 * index + 4]
        steps, counted = here["step"].values.tolist(), here["step"].attrs["long_name"]
        shown = {steps[0], steps[len(steps) // 2], steps[-1]}
        names = [f"{'' if step in shown else '_'}{counted} {step:,}" for step in steps]
        lines = {name: here["time_scale"].isel(step=k).values for k, name in enumerate(names)}
        time_scale_survival(lines, row[0], colours="viridis_r", title=f"A  time scales of the units{of}")
        for ax, name, title in zip(row[1:], ("envelope_exponent", "tail_index", "reach"), "BCD", strict=True):
            window_over_training(here, name, ax, title=title)
    return figure


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
        "method": found.method,
        "summary": found.summary,
        "sequences": found.sequences,
        "signs": found.dataset.attrs["signs"],
        "optimizer": found.dataset.attrs["optimizer"],
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
    arrays = ("envelope", "envelope_gate", "envelope_optimizer", "tail_index", "tail_index_interval", "scale",
              "scale_interval", "signal", "signal_interval", "score", "status")  # fmt: skip
    decay = ("kind", "amplitude", "rate", "exponent", "r_squared", "status", "implication")
    return {
        "lags": here["lag"].values,
        **{key: here[key].values for key in arrays},
        "required_sequences": here["required_sequences"].sel(noise="per_lag").values,
        "required_sequences_total": here["required_sequences"].sel(noise="total").values,
        **{key: here[key].item() for key in ("critical_score", "reach", "contiguous_reach")},
        # With a control: what is due to the task.
        **{key: here[key].values for key in ("control_signal", "control_score", "attributable") if key in here},
        **{key: here[key].item() for key in ("control_reach", "attributable_reach") if key in here},
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
    rows = [_lag_row(here.isel(lag=row)) for row in range(here.sizes["lag"])]
    lags = ("lag", "envelope", "gates", "signal", "score", "index", "needs", "status")
    score = float(here["critical_score"])
    note = (
        "Envelope: how much a step that far back weighs in learning; gates: without the optimiser's rates; score: "
        f"signal over noise, a signal if above {score:.3g}; index: tail index of the noise, 2 if Gaussian; needs: "
        "sequences to detect the signal, of which there may be too few."
    )
    return [found.table(index), Table(f"Lag by lag{of}", lags, rows, [note])]


#: Statuses in a word or two: a table has eight columns to fit into 80 characters.
_SHORT = {"too_few_samples": "too few", "outside_theory": "outside", "not_learned": "never"}


def _lag_row(here: xr.Dataset) -> tuple[str, ...]:
    status, needed = here["status"].item(), here["required_sequences"].sel(noise="per_lag").item()
    return (
        f"{here['lag'].item()}",
        *(f"{here[name].item():.3g}" for name in ("envelope", "envelope_gate", "signal")),
        f"{here['score'].item():.2f}",
        format_number(here["tail_index"].item()),
        format_count(np.ceil(needed)),
        _SHORT.get(status, status.replace("_", " ")),
    )


def draw_window(found: Window) -> Figure:
    """For each layer: envelope with its fit, window against sequences, time scales."""
    from learncast.figures import envelope, page, time_scale_survival, window_curve

    figure, axes = page(found.layers, 3, width=3.1, height=2.7)
    for index in range(found.layers):
        here = found.dataset.sel(layer=index)
        of = f", layer {index}" if found.layers > 1 else ""
        row = axes[3 * index : 3 * index + 3]
        envelope(here, row[0], title=f"Envelope{of}")
        window_curve(here, row[1], title=f"Window ({found.method} method)")
        time_scale_survival({"units": here["time_scale"].values}, row[2], title="Time scales of the units")
    return figure
