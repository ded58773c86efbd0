"""Tasks from files: trials as named arrays or as a table, or statistics."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.limits import listed
from learncast.tasks.recorded.arrays import ArrayFile, arrays_from
from learncast.tasks.recorded.tables import SUFFIXES, from_table
from learncast.tasks.task import Task

#: Names of arrays that are read where no other is given.
NAMES = ("inputs", "targets", "labels", "mask", "lengths")


def from_file(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    inputs: Sequence[str] | str | None = None,
    targets: Sequence[str] | str | None = None,
    labels: str | None = None,
    mask: str | None = None,
    lengths: str | None = None,
    classes: int | Sequence[Any] | None = None,
    centre: bool = False,
    scale: str = "none",
    most_bytes: int | None = None,
    **layout: Any,
) -> Task:
    """Build a task from recorded trials, or from statistics, in a file.

    Parameters
    ----------
    path : str or path
        Arrays: .npz, .safetensors, .mat, .h5, .hdf5, .nwb (arrays by their place, "group/name"), or .npy for the
        inputs alone. Tables: .csv, .parquet, see `from_table`.
    name : str, optional
        What to call it; the file's name by default.
    inputs, targets, labels, mask, lengths : str, optional
        Names of the arrays that are these arguments of `Task.from_samples` (beside an .npy file: names of other .npy
        files in its folder); by default the arrays so called, where the file has them. Inputs (trials, inputs) are
        pairs of one step. Without inputs, `input_covariance`, `cross_covariance` and `target_covariance` are the
        task's statistics. In a table they are columns.
    classes, centre, scale
        As in `Task.from_samples`.
    most_bytes : int, optional
        Most memory that one array of the file, or its table, may take; 2 GiB by default.
    **layout
        `trial`, `step` and `at` of `from_table`.

    Returns
    -------
    Task
        Its statistics; `name` is what tables call it.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> inputs = rng.standard_normal((300, 8, 2))
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.savez(folder / "trials.npz", inputs=inputs, targets=inputs.sum(axis=1))
    >>> lc.tasks.from_file(folder / "trials.npz", name="recorded")
    <Task 'recorded': 8 steps, 2 inputs, 2 outputs at the end; estimated from 300 trials>
    """
    path = Path(path)
    given = {"inputs": inputs, "targets": targets, "labels": labels, "mask": mask, "lengths": lengths}
    named: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    options: dict[str, Any] = {"name": name or path.stem, "centre": centre, "scale": scale}
    if path.suffix.lower() in SUFFIXES and path.is_file():
        if lengths is not None:
            raise _misplaced("lengths", "a file of arrays", path, "a table's rows say how long each trial is")
        return from_table(path, **named, **layout, classes=classes, **options, most_bytes=most_bytes)
    arrays = arrays_from(path, "data", others=SUFFIXES, most_bytes=most_bytes)
    if layout:
        kinds = f"a table ({' or '.join(SUFFIXES)})"
        raise _misplaced(", ".join(layout), kinds, path, "a file of arrays names its inputs and targets itself")
    found = _beside(arrays, named) if path.suffix.lower() == ".npy" else trial_arrays(arrays, named)
    if "inputs" in found and ("targets" in found or "labels" in found):
        return _from_arrays(found, classes, options)
    statistics = ("input_covariance", "cross_covariance")
    if not named and all(key in arrays for key in statistics):
        power, cross = (arrays[key] for key in statistics)
        return Task(power, cross, arrays.get("target_covariance"), name=options["name"])
    raise InvalidSpec(
        f"{path} must hold inputs and targets, or input_covariance and cross_covariance, got arrays "
        f"{listed(sorted(arrays))}. Save it with np.savez(file, inputs=..., targets=...), or name its "
        "arrays with inputs and targets."
    )


def trial_arrays(arrays: ArrayFile, named: dict[str, Any]) -> dict[str, Any]:
    """The arrays of one file that are named, or are called so."""
    found = {key: arrays.named(_one(key, value), key) for key, value in named.items()}
    for key in NAMES:
        instead = {"targets": "labels", "labels": "targets"}.get(key)
        if key in arrays and key not in found and instead not in found:
            found[key] = arrays[key]
    return found


def _beside(arrays: ArrayFile, named: dict[str, Any]) -> dict[str, Any]:
    """An .npy file's own array as inputs, and those of its neighbours that are named."""
    found = {"inputs": arrays[arrays.path.name]}
    for key, value in named.items():
        other = arrays.path.parent / _one(key, value)
        found[key] = arrays_from(other, key, most_bytes=arrays.most_bytes).named(other.name, key)
    return found


def _one(key: str, value: Sequence[str] | str) -> str:
    names = [value] if isinstance(value, str) else list(value)
    if len(names) != 1:
        raise InvalidSpec(f"{key} must name one array, got {len(names)} names.", field=key)
    return names[0]


def _from_arrays(found: dict[str, Any], classes: int | Sequence[Any] | None, options: dict[str, Any]) -> Task:
    x, labels = found["inputs"], "labels" in found
    y = found["labels"] if labels else found["targets"]
    if not isinstance(x, list) and x.ndim == 2:
        x = x[:, None, :]
    flat = {key: _flat(found[key], len(x)) for key in ("mask", "lengths") if key in found}
    y = _flat(y, len(x)) if labels else y
    return Task.from_samples(x, y, labels=labels, classes=classes, **flat, **options)


def _flat(values: Any, trials: int) -> Any:
    """One number a trial without the second axis that MATLAB gives it."""
    if isinstance(values, np.ndarray) and values.ndim == 2 and values.shape in ((trials, 1), (1, trials)):
        return values.ravel()
    return values


def _misplaced(keys: str, owner: str, path: Path, why: str) -> InvalidSpec:
    return InvalidSpec(
        f"{keys} belong to {owner}, got data = {path.name!r}. Leave {'them' if ',' in keys else 'it'} out."
    )
