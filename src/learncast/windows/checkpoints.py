"""The evolution of a learnability window over the checkpoints of one training run."""

from __future__ import annotations

import copy
import os
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from glob import glob
from pathlib import Path
from typing import Self

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from torch import Tensor, nn, optim

from learncast._core.errors import InvalidSpec, SchemaMismatch
from learncast._core.limits import natural_key, readable
from learncast._core.progress import Progress, noticed, silent, within
from learncast.display import Reported
from learncast.results import STEPS, Provenance, Result, described, spec_hash
from learncast.windows.diagnosis import window
from learncast.windows.layer_result import LAG
from learncast.windows.options import Batching, DetectionRule, Measurement
from learncast.windows.result import CONDITIONS, NO_OPTIMIZER, Window, WindowAssumption, summaries
from learncast.windows.stored_model import load_checkpoint
from learncast.windows.transport.decay import power_of_lag

#: Variables of a window that an evolution keeps.
KEPT = (
    "reach", "contiguous_reach", "window", "envelope", "signal", "time_scale", "tail_index", "scale", "critical_score",
    "decay_kind", "decay_rate", "decay_exponent", "sequences",
)  # fmt: skip
STEP = "training step"
#: Words before a number in a file's name, the most specific first, and what the number counts.
COUNTERS = {"step": STEP, "iter": STEP, "update": STEP, "epoch": "epoch"}
#: Quantiles of the units' time scales.
QUANTILES = (0.1, 0.5, 0.9)


@noticed("diagnosing stored states")
def evolution(
    model: nn.Module,
    checkpoints: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    inputs: ArrayLike | Tensor,
    targets: ArrayLike | Tensor,
    *,
    optimizer: optim.Optimizer | None = None,
    measurement: Measurement | None = None,
    rule: DetectionRule | None = None,
    batching: Batching | None = None,
    progress: Progress = silent,
) -> Evolution:
    """Diagnose every checkpoint of one model on the same sequences.

    Parameters
    ----------
    model : torch.nn.Module
        As for `learncast.windows.window`; its own weights are restored at the end.
    checkpoints : pattern of files, or sequence of files
        State_dicts as .pt or .safetensors, such as ``"runs/*.pt"``, in any order. They are sorted by the step,
        iteration or epoch in their names, by the last number in them, or by the names. A .pt file may hold the
        optimiser's state too: ``{"model": model.state_dict(), "optimizer": optimizer.state_dict()}``.
    inputs, targets, measurement, rule, batching
        As for `learncast.windows.window`.
    optimizer : torch.optim.Optimizer, optional
        Optimiser of the model's parameters; its state is read from each file. Without it every base rate is 1.
    progress : callable
        Called with the completed share of the work, from 0 to 1.

    Returns
    -------
    Evolution
        The windows over the checkpoints, in the order of training.

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
    ...     course = lc.windows.evolution(model, f"{folder}/*.pt", inputs, inputs[:, -2], measurement=measurement)
    >>> course.dataset["step"].values, course.dataset["reach"].dims
    (array([ 10, 200]), ('step', 'layer'))
    """
    paths, numbers, counted = in_order(_files(checkpoints))
    before = [(part, copy.deepcopy(part.state_dict())) for part in (model, optimizer) if part is not None]
    diagnose = partial(
        window, model, inputs, targets, optimizer=optimizer, measurement=measurement, rule=rule, batching=batching
    )
    windows = []
    try:
        for path in paths:  # all before the first diagnosis, which may take minutes: the last file may be damaged
            load_checkpoint(model, optimizer, path)
        _restore(before)
        for k, path in enumerate(paths):
            load_checkpoint(model, optimizer, path)
            windows.append(diagnose(progress=within(progress, k, len(paths))))
    finally:
        _restore(before)
    dataset = combined(windows, numbers, counted=counted)
    dataset = dataset.assign_coords(file=("step", [path.name for path in paths], described("file", "1")))
    digest = spec_hash(*(one.provenance.spec_hash for one in windows), *numbers)
    return Evolution(dataset, Provenance("diagnosis", ("livi2025",), digest, windows[0].provenance.seed))


def _restore(states: Iterable[tuple[nn.Module | optim.Optimizer, dict[str, object]]]) -> None:
    for part, state in states:
        part.load_state_dict(state)


def combined(windows: Sequence[Window], numbers: Sequence[int], *, counted: str = STEP) -> xr.Dataset:
    """Windows of one model in one dataset over the step of each."""
    names = [*KEPT, *(f"validity_{name}" for name in CONDITIONS)]
    parts = [one.dataset[[name for name in names if name in one.dataset]] for one in windows]
    dataset = xr.concat(parts, "step", combine_attrs="override", join="exact")
    dataset["step"] = ("step", np.array(numbers, dtype=np.int64), described(counted, STEPS if counted == STEP else "1"))
    slopes = [[power_of_lag(one["lag"].values, f) for f in one["envelope"].values] for one in parts]
    text = "exponent of the envelope as a power of the lag"
    dataset["envelope_exponent"] = (("step", "layer"), np.array(slopes), described(text, "1"))
    with warnings.catch_warnings():  # a layer without any known unit or lag gives nan
        warnings.simplefilter("ignore", RuntimeWarning)
        times = dataset["time_scale"].transpose("step", "layer", "unit").values
        spectrum = np.nanquantile(times, QUANTILES, axis=-1, method="lower")
        middle = np.nanmedian(dataset["tail_index"].transpose("step", "layer", "lag").values, axis=-1)
    dims = ("quantile", "step", "layer")
    dataset["time_scale_quantile"] = (dims, spectrum, described("quantile of the units' time scales", LAG))
    dataset["tail_index_median"] = (dims[1:], middle, described("median tail index over lags", "1"))
    return dataset.assign_coords(quantile=("quantile", list(QUANTILES), described("share of the units", "1")))


def _files(given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The files that a pattern matches, or those of a list."""
    names = glob(os.fspath(given)) if isinstance(given, str | os.PathLike) else given
    paths = [Path(name) for name in names]
    folder = next((path for path in paths if path.is_dir()), None)
    if folder is not None:
        raise InvalidSpec(f"checkpoints must be files, got the folder {str(folder)!r}.", field="checkpoints")
    if len(paths) < 2:
        raise InvalidSpec(f"checkpoints must be at least 2 files, got {len(paths)}.", field="checkpoints")
    return paths


def in_order(paths: Sequence[Path]) -> tuple[list[Path], list[int], str]:
    """Files in the order of training, the number of each, and what these numbers count."""
    patterns = {rf"{word}[a-z]*[^0-9a-z]?(\d+)": counted for word, counted in COUNTERS.items()}
    patterns[r"(\d+)\D*$"] = "number in the file's name"
    for pattern, counted in patterns.items():
        matches = [re.search(pattern, path.stem, re.IGNORECASE) for path in paths]
        numbers = {int(one[1]): path for one, path in zip(matches, paths, strict=True) if one}
        if len(numbers) == len(paths):
            return [numbers[k] for k in sorted(numbers)], sorted(numbers), counted
    return sorted(paths, key=natural_key), list(range(1, len(paths) + 1)), "place among the files' names"


@dataclass(frozen=True, eq=False, repr=False)
class Evolution(Result, Reported):
    """The learnability window of a model over the checkpoints of its training.

    Attributes
    ----------
    dataset : xarray.Dataset
        Over (step, layer, lag, unit, ...): windows, envelopes, time scales and tail indices as in a `Window`, and for
        every step ``time_scale_quantile`` (10%, median and 90% of the units), ``envelope_exponent`` and
        ``tail_index_median``.
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
    ...     course = lc.windows.evolution(model, files, inputs, inputs[:, -2], measurement=measurement)
    ...     path = course.save(Path(folder) / "evolution.nc")
    ...     again = lc.windows.Evolution.load(path)
    >>> again.layers, again.dataset["file"].values.tolist()
    (1, ['epoch1.pt', 'epoch2.pt'])
    """

    kind = "evolution"

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, most_bytes: int | None = None) -> Self:
        """Read a file that `save` wrote; raise an error for any other, or if its numbers exceed `most_bytes`."""
        course = super().load(path, most_bytes=most_bytes)
        with readable(Path(path), kind="a complete evolution", error=SchemaMismatch):
            course.summary, course.validity()
        return course

    @property
    def layers(self) -> int:
        """Number of recurrent layers."""
        return int(self.dataset.sizes["layer"])

    def validity(self) -> tuple[WindowAssumption, ...]:
        """The conditions of the diagnoses, with the worst measurement of each."""
        known = [name for name in CONDITIONS if f"validity_{name}" in self.dataset]
        return tuple(WindowAssumption(name, float(np.max(self.dataset[f"validity_{name}"].values))) for name in known)

    @property
    def summary(self) -> str:
        """Summary in words, layer by layer."""
        return summaries([_summary(self.dataset.sel(layer=layer)) for layer in range(self.layers)])

    def __repr__(self) -> str:
        steps = self.dataset["step"].values
        span = f"{self.dataset['step'].attrs['long_name']} {steps[0]} to {steps[-1]}"
        return f"<Evolution over {len(steps)} checkpoints, {span}: {_summary(self.dataset.isel(layer=0))}>"


def _summary(layer: xr.Dataset) -> str:
    """Summary of one layer in words."""
    n, counted = layer.sizes["step"], str(layer["step"].attrs["long_name"])
    first, last = (int(layer["step"][k]) for k in (0, -1))
    longest = int(layer["lag"][-1])
    most = f" ({longest} is the longest lag measured)" if (layer["reach"] == longest).any() else ""
    parts = [
        f"the window {course(layer['reach'], LAG)}{most}",
        f"the median time scale of the units {course(layer['time_scale_quantile'].sel(quantile=0.5), LAG)}",
        f"the exponent of the envelope {course(layer['envelope_exponent'])}",
        f"the median tail index {course(layer['tail_index_median'])}",
        *([NO_OPTIMIZER] if layer.attrs["optimizer"] == "none" else []),
    ]
    states = f"Over {n} checkpoints of this model ({counted} {first:,} to {last:,})"
    return f"{states}, each with {int(layer['sequences'][0]):,} sequences, {'; '.join(parts)}."


def course(values: xr.DataArray, units: str = "") -> str:
    """Describe how a quantity changes over the checkpoints: constant, monotonic, or between two values."""
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
