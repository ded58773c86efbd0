"""The evolution of a learnability window: what became of it from one stored state of a model to the next."""

from __future__ import annotations

import copy
import os
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any, Self

import numpy as np
import xarray as xr
from torch import nn, optim

from learncast._core.errors import InvalidSpec, SchemaMismatch
from learncast._core.limits import readable
from learncast._core.progress import Progress, noticed, silent, within
from learncast.results import STEPS, Provenance, Result, described, spec_hash
from learncast.windows.diagnosis import LAG, window
from learncast.windows.learnability_window import CONDITIONS, NO_OPTIMIZER, LearnabilityWindow, Validity
from learncast.windows.question import Batching, DetectionRule, Measurement, refuse_loose
from learncast.windows.stored_model import load_checkpoint
from learncast.windows.transport.decay import power_of_lag

#: What is followed from state to state.
FOLLOWED = (
    "reach", "contiguous_reach", "window", "envelope", "signal", "time_scale", "tail_index", "scale", "critical_score",
    "decay_kind", "decay_rate", "decay_exponent", "sequences",
)  # fmt: skip
#: Words before a number in a file's name, the ones that say most first.
STEP, EPOCH, NUMBER, PLACE = "training step", "epoch", "number in the file's name", "place among the files' names"
COUNTERS = {"step": STEP, "iter": STEP, "update": STEP, "epoch": EPOCH}
#: Shares of units whose time scales are told.
QUANTILES = (0.1, 0.5, 0.9)


@noticed("diagnosing stored states")
def evolution(
    model: nn.Module,
    checkpoints: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    inputs: Any,
    targets: Any,
    *,
    optimizer: optim.Optimizer | None = None,
    measurement: Measurement | None = None,
    rule: DetectionRule | None = None,
    batching: Batching | None = None,
    progress: Progress = silent,
    **loose: Any,
) -> Evolution:
    """Diagnose every stored state of one model on the same sequences.

    Parameters
    ----------
    model : torch.nn.Module
        As for `learncast.windows.window`; it has its own weights again when this returns.
    checkpoints : pattern of files, or sequence of files
        State_dicts as .pt or .safetensors, such as ``"runs/*.pt"``, in any order: they are put into that of the step,
        iteration or epoch in their names, of the last number there, or of the names. A .pt file may hold the
        optimiser's state too: ``{"model": model.state_dict(), "optimizer": optimizer.state_dict()}``.
    inputs, targets, measurement, rule, batching
        As for `learncast.windows.window`.
    optimizer : torch.optim.Optimizer, optional
        Of the model's parameters; its state comes from each file. Without it every base rate is 1.
    progress : callable
    **loose
        Refused.

    Returns
    -------
    Evolution
        The windows over the states, in the order of training.

    Raises
    ------
    InvalidSpec
        If there are fewer than two files, one does not hold a state of this model or this optimiser, or the model
        cannot be diagnosed.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> inputs = torch.randn(120, 8, 1, generator=torch.Generator().manual_seed(0))
    >>> model = lc.training.gated_module("gru", hidden_size=4)
    >>> measurement = lc.windows.Measurement(lags=(1, 2, 3), directions=1)
    >>> with TemporaryDirectory() as folder:
    ...     for step in (10, 200):
    ...         stored = lc.training.gated_module("gru", hidden_size=4, seed=step)
    ...         torch.save(stored.state_dict(), Path(folder) / f"step{step}.pt")
    ...     found = lc.windows.evolution(model, f"{folder}/*.pt", inputs, inputs[:, -2], measurement=measurement)
    >>> found.dataset["step"].values, found.dataset["reach"].dims
    (array([ 10, 200]), ('step', 'layer'))
    """
    refuse_loose(loose)
    paths, numbers, counted = in_order(_files(checkpoints))
    question: dict[str, Any] = {"measurement": measurement, "rule": rule, "batching": batching}
    before = [(part, copy.deepcopy(part.state_dict())) for part in (model, optimizer) if part is not None]
    found = []
    try:
        for path in paths:  # one after another: the last may be damaged, and diagnoses take minutes
            load_checkpoint(model, optimizer, path)
        _put_back(before)
        for k, path in enumerate(paths):
            load_checkpoint(model, optimizer, path)
            told = within(progress, k, len(paths))
            found.append(window(model, inputs, targets, optimizer=optimizer, progress=told, **question))
    finally:
        _put_back(before)
    dataset = followed(found, numbers, counted=counted)
    dataset = dataset.assign_coords(file=("step", [path.name for path in paths], described("file", "1")))
    digest = spec_hash(*(one.provenance.spec_hash for one in found), *numbers)
    return Evolution(dataset, Provenance("diagnosis", ("livi2025",), digest, found[0].provenance.seed))


def _put_back(states: Iterable[tuple[Any, dict[str, Any]]]) -> None:
    for part, state in states:
        part.load_state_dict(state)


def followed(windows: Sequence[LearnabilityWindow], numbers: Sequence[int], *, counted: str = STEP) -> xr.Dataset:
    """What windows of one model found, over the step of each."""
    kept = [f"validity_{name}" for name in CONDITIONS]
    parts = [one.dataset[[*FOLLOWED, *(name for name in kept if name in one.dataset)]] for one in windows]
    whole = xr.concat(parts, "step", combine_attrs="override", join="exact")
    whole["step"] = ("step", np.array(numbers, dtype=np.int64), described(counted, STEPS if counted == STEP else "1"))
    slopes = [[power_of_lag(one["lag"].values, f) for f in one["envelope"].values] for one in parts]
    text = "exponent of the envelope as a power of the lag"
    whole["envelope_exponent"] = (("step", "layer"), np.array(slopes), described(text, "1"))
    with warnings.catch_warnings():  # a layer of which no unit or no lag is known stays unknown
        warnings.simplefilter("ignore", RuntimeWarning)
        times = whole["time_scale"].transpose("step", "layer", "unit").values
        spectrum = np.nanquantile(times, QUANTILES, axis=-1, method="lower")
        middle = np.nanmedian(whole["tail_index"].transpose("step", "layer", "lag").values, axis=-1)
    dims = ("quantile", "step", "layer")
    whole["time_scale_quantile"] = (dims, spectrum, described("time scale that so many units stay below", LAG))
    whole["tail_index_median"] = (dims[1:], middle, described("median tail index over lags", "1"))
    return whole.assign_coords(quantile=("quantile", list(QUANTILES), described("share of the units", "1")))


def _files(given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The files that a pattern matches, or those of a list."""
    pattern, paths = (os.fspath(given), []) if isinstance(given, str | os.PathLike) else ("", list(given))
    found = [Path(path) for path in paths or glob(pattern)]
    folder = next((path for path in found if path.is_dir()), None)
    if folder is not None:
        raise InvalidSpec(f"checkpoints must be files, got a folder, {str(folder)!r}.", field="checkpoints")
    if len(found) < 2:
        raise InvalidSpec(
            required="checkpoints must be two files or more",
            got=f"{len(found)} for {pattern!r}" if pattern else f"{len(found)}",
            why="what becomes of a window is seen from one state to the next",
            remedy="quote the pattern, as in 'runs/*.pt', or diagnose one state with `window`",
        )
    return found


def in_order(paths: Sequence[Path]) -> tuple[list[Path], list[int], str]:
    """Files in the order of training, the number of each, and what these numbers count."""
    patterns = {word: (rf"{word}[a-z]*[^0-9a-z]?(\d+)", counted) for word, counted in COUNTERS.items()}
    for pattern, counted in (*patterns.values(), (r"(\d+)\D*$", NUMBER)):
        found = [re.search(pattern, path.stem, re.IGNORECASE) for path in paths]
        numbers = {int(one[1]): path for one, path in zip(found, paths, strict=True) if one}
        if len(numbers) == len(paths):
            return [numbers[k] for k in sorted(numbers)], sorted(numbers), counted
    ordered = sorted(paths, key=_naturally)
    return ordered, list(range(1, len(paths) + 1)), PLACE


def _naturally(path: Path) -> list[str | int]:
    """A key by which run2 comes before run10: words and numbers take turns."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(path))]


@dataclass(frozen=True, eq=False, repr=False)
class Evolution(Result):
    """What became of a model's learnability window while it was trained.

    Attributes
    ----------
    dataset : xarray.Dataset
        Over (step, layer, lag, unit, ...): windows, envelopes, time scales and tail indices as in a
        `LearnabilityWindow`, and of every step ``time_scale_quantile`` (10%, median and 90% of the units),
        ``envelope_exponent`` and ``tail_index_median``.
    provenance : Provenance

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> inputs = torch.randn(120, 8, 1, generator=torch.Generator().manual_seed(0))
    >>> model = lc.training.gated_module("gru", hidden_size=4)
    >>> measurement = lc.windows.Measurement(lags=(1, 2, 3), directions=1)
    >>> with TemporaryDirectory() as folder:
    ...     files = [Path(folder) / name for name in ("epoch1.pt", "epoch2.pt")]
    ...     for file in files:
    ...         torch.save(model.state_dict(), file)
    ...     found = lc.windows.evolution(model, files, inputs, inputs[:, -2], measurement=measurement)
    ...     path = found.save(Path(folder) / "evolution.nc")
    ...     again = lc.windows.Evolution.load(path)
    >>> again.layers, again.dataset["file"].values.tolist()
    (1, ['epoch1.pt', 'epoch2.pt'])
    """

    kind = "evolution"

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, most_bytes: int | None = None) -> Self:
        """Read a file that `save` wrote, refusing any other, and one whose numbers take more than `most_bytes`."""
        found = super().load(path, most_bytes=most_bytes)
        with readable(Path(path), kind="a whole evolution", error=SchemaMismatch):
            found.summary, found.validity()
        return found

    @property
    def layers(self) -> int:
        """Recurrent layers."""
        return int(self.dataset.sizes["layer"])

    def validity(self) -> tuple[Validity, ...]:
        """What the diagnoses assume, as measured where it holds least."""
        known = [name for name in CONDITIONS if f"validity_{name}" in self.dataset]
        return tuple(Validity(name, float(np.max(self.dataset[f"validity_{name}"].values))) for name in known)

    @property
    def summary(self) -> str:
        """What it means, in plain words, layer by layer."""
        texts = [_told(self.dataset.sel(layer=layer)) for layer in range(self.layers)]
        return texts[0] if len(texts) == 1 else "\n".join(f"Layer {k}: {text}" for k, text in enumerate(texts))

    def __repr__(self) -> str:
        steps = self.dataset["step"].values
        span = f"{self.dataset['step'].attrs['long_name']} {steps[0]} to {steps[-1]}"
        return f"<Evolution over {len(steps)} states, {span}: {_told(self.dataset.isel(layer=0))}>"


def _told(layer: xr.Dataset) -> str:
    """What was asked, and the course of everything that is followed."""
    n, counted = layer.sizes["step"], str(layer["step"].attrs["long_name"])
    first, last = (int(layer["step"][k]) for k in (0, -1))
    longest = int(layer["lag"][-1])
    most = f" ({longest} is the longest lag looked at)" if (layer["reach"] == longest).any() else ""
    parts = [
        f"its window {course(layer['reach'], LAG)}{most}",
        f"the median time scale of its units {course(layer['time_scale_quantile'].sel(quantile=0.5), LAG)}",
        f"the exponent of its envelope {course(layer['envelope_exponent'])}",
        f"the median tail index {course(layer['tail_index_median'])}",
        *([NO_OPTIMIZER] if layer.attrs["optimizer"] == "none" else []),
    ]
    states = f"Over {n} states of this model ({counted} {first:,} to {last:,})"
    return f"{states}, each with {int(layer['sequences'][0]):,} sequences, {'; '.join(parts)}."


def course(values: xr.DataArray, units: str = "") -> str:
    """A quantity over the states: where it stays, from where to where it goes, or between what it goes up and down."""
    known = [float(f"{value:.3g}") for value in values.values if not np.isnan(value)]
    if not known:
        return "is unknown"
    low, high, first, last = (_number(value) for value in (min(known), max(known), known[0], known[-1]))
    if low == high:
        text = f"shows {low}" if np.isinf(known[0]) else f"stays at {low}"
    elif known in (sorted(known), sorted(known, reverse=True)):
        text = f"goes from {first} to {last}"
    else:
        text = f"lies between {low} and {high} and ends at {last}"
    missing = values.size - len(known)
    return f"{text} {units if text[-1].isdigit() else ''}".rstrip() + (f", unknown in {missing}" if missing else "")


def _number(value: float) -> str:
    return "no decay" if np.isinf(value) else f"{value:.3g}"
