"""Tasks from recorded trials in any form: files of named arrays, tables or statistics, and arrays and data sets."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec, brief, check_keywords
from learncast._core.limits import listed
from learncast.tasks.recorded.arrays import ArrayFile, arrays_from
from learncast.tasks.recorded.preparation import cut_trials, in_axis_order
from learncast.tasks.recorded.streams import from_batches, is_dataset
from learncast.tasks.recorded.tables import SUFFIXES, column_of_trials, from_table
from learncast.tasks.recorded.targets import array_like, check_same_trials
from learncast.tasks.task import Task

#: Default names of the arrays in a file.
NAMES = ("inputs", "targets", "labels", "mask", "lengths")


def from_file(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    inputs: Sequence[str] | str | None = None,
    targets: Sequence[str] | str | None = None,
    labels: str | bool | None = None,
    mask: str | None = None,
    lengths: str | None = None,
    classes: int | Sequence[object] | None = None,
    centre: bool = False,
    scale: str = "none",
    axes: str | None = None,
    fill: str | None = None,
    bias: bool = False,
    events: str | None = None,
    rate: float | None = None,
    window: Sequence[float] | None = None,
    bin_width: float | None = None,
    most_bytes: int | None = None,
    **layout: Any,
) -> Task:
    """Make a task from a file of recorded trials or of statistics.

    Parameters
    ----------
    path : str or path
        Arrays: .npz, .safetensors, .mat (fields of structs as "name.field"), .h5, .hdf5, .nwb (arrays by path,
        "group/name"), .nc (axes by the names of dimensions), or .npy with the inputs only. Tables: .csv, .tsv,
        .parquet, see `from_table`.
    name : str, optional
        Name of the task; the file's name by default.
    inputs, targets, labels, mask, lengths : str, optional
        Names of the arrays that become these arguments of `Task.from_samples`; by default the arrays with these names.
        For an .npy file they are names of other .npy files in its folder, for a table names of columns. Inputs
        (trials, inputs) have one step. Without inputs, the arrays `input_covariance`, `cross_covariance` and
        `target_covariance` are the statistics of the task. `labels=True` or `labels=False` says whether targets are
        labels or numbers instead.
    classes, centre, scale, axes, fill, bias
        See `Task.from_samples`.
    events : str, optional
        Name of the array of event times in seconds, around which a continuous recording (samples, channels) is cut
        into trials; it needs `rate` and `window`.
    rate, window, bin_width
        See `cut_trials`. Without `events`, trials are averaged over steps of `bin_width` seconds; arrays need `rate`.
    most_bytes : int, optional
        Most memory for one array of the file, or for its table; 2 GiB by default.
    **layout
        `trial`, `step`, `channel`, `value` and `at` of `from_table`.

    Returns
    -------
    Task
        Statistics of the trials.

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
    given = {
        "inputs": inputs, "targets": targets, "labels": labels, "mask": mask, "lengths": lengths, "events": events
    }  # fmt: skip
    named: dict[str, Any] = {key: value for key, value in given.items() if not isinstance(value, bool | None)}
    options: dict[str, Any] = {"name": name or path.stem, "centre": centre, "scale": scale, "classes": classes}
    options |= {"fill": fill, "bias": bias}
    if path.suffix.lower() in SUFFIXES and path.is_file():
        for key, value in {"lengths": lengths, "axes": axes, "events": events}.items():
            if value is not None:
                raise InvalidSpec(f"{key} must be left out for a table, got {path.name!r}.", field=key)
        options |= {"bin_width": bin_width, "most_bytes": most_bytes}
        return from_table(path, **named | {"labels": labels}, **layout, **options)
    arrays = arrays_from(path, "data", others=SUFFIXES, most_bytes=most_bytes)
    if layout:
        key = next(iter(layout))
        raise InvalidSpec(f"{key} needs a table ({' or '.join(SUFFIXES)}), got {path.name!r}.", field=key)
    trials = (_neighbours if path.suffix.lower() == ".npy" else trial_arrays)(arrays, named)
    if "inputs" in trials and ("targets" in trials or "labels" in trials):
        if events is not None:
            if rate is None or window is None or len(window) != 2:
                raise InvalidSpec("events need rate and window, e.g. rate=1000 and window=[0, 0.5].", field="events")
            cut: dict[str, Any] = {"rate": rate, "window": (window[0], window[1]), "bin_width": bin_width}
            trials["inputs"] = cut_trials(trials["inputs"], trials.pop("events"), **cut)
        else:
            options |= {"rate": rate, "bin_width": bin_width}
        return _from_arrays(trials, options | {"axes": axes}, labels if isinstance(labels, bool) else None)
    if not named and "input_covariance" in arrays and "cross_covariance" in arrays:
        statistics = arrays["input_covariance"], arrays["cross_covariance"], arrays.get("target_covariance")
        return Task(*statistics, name=options["name"])
    if path.suffix.lower() == ".npy":
        raise InvalidSpec(
            f"{path} holds inputs only. Name the file of their targets: targets='FILE.npy'.", field="targets"
        )
    wanted = "arrays inputs and targets, or input_covariance and cross_covariance"
    remedy = "Name other arrays with the keys inputs and targets."
    raise InvalidSpec(f"{path} must have {wanted}, got {listed(sorted(arrays))}. {remedy}", field="inputs")


def trial_groups(path: Path, name: str, *, trial: str = "trial", most_bytes: int | None = None) -> list[object]:
    """Return the group of each trial of a file, from the array or the column of that name."""
    if path.suffix.lower() in SUFFIXES:
        return column_of_trials(path, name, trial, most_bytes)
    values = arrays_from(path, "groups", most_bytes=most_bytes).named(name, "groups")
    return list(np.asarray(values).ravel().tolist())


def trial_arrays(arrays: ArrayFile, named: Mapping[str, Sequence[str] | str]) -> dict[str, Any]:
    """Arrays of a file by keyword: those that are named, and those with the default names."""
    trials = {key: arrays.named(_one(key, value), key) for key, value in named.items()}
    for key in NAMES:
        alternative = {"targets": "labels", "labels": "targets"}.get(key)
        if key in arrays and key not in trials and alternative not in trials:
            trials[key] = arrays[key]
    return trials


def _neighbours(arrays: ArrayFile, named: Mapping[str, Sequence[str] | str]) -> dict[str, Any]:
    """The array of an .npy file as inputs, and arrays of other files in its folder."""
    trials = {"inputs": arrays[arrays.path.name]}
    for key, value in named.items():
        other = arrays.path.parent / _one(key, value)
        trials[key] = arrays_from(other, key, most_bytes=arrays.most_bytes).named(other.name, key)
    return trials


def _one(key: str, value: Sequence[str] | str) -> str:
    names = [value] if isinstance(value, str) else list(value)
    if len(names) != 1:
        raise InvalidSpec(f"{key} must name one array, got {len(names)} names.", field=key)
    return names[0]


def _from_arrays(trials: dict[str, Any], options: dict[str, Any], labels: bool | None) -> Task:
    inputs, mask = trials["inputs"], trials.get("mask")
    flat = {key: _flat(trials[key], len(inputs)) for key in ("labels", "mask", "lengths") if key in trials}
    if mask is not None and np.shape(mask) == (len(inputs), 1) and all(len(trial) == 1 for trial in inputs):
        flat["mask"] = mask  # of the readouts of one step, not of trials
    labels = True if "labels" in flat else labels
    y = flat.pop("labels") if "labels" in flat else trials["targets"]
    return from_trials(inputs, y, labels=labels, **flat, **options)


def from_trials(inputs: Any, targets: Any, *, labels: bool | None = None, **options: Any) -> Task:
    """Make a task from arrays, also of one step (trials, channels), and with one number per trial (trials,).

    Parameters
    ----------
    inputs : (trials, steps, inputs) or (trials, inputs)
    targets : (trials,), (trials, outputs) or (trials, steps, outputs)
    labels, **options
        See `Task.from_samples`.
    """
    check_same_trials(inputs=inputs, targets=targets, mask=options.get("mask"), lengths=options.get("lengths"))
    inputs, targets = in_axis_order(inputs, targets, options.pop("axes", None))
    x = inputs if isinstance(inputs, list) else array_like("inputs", inputs)
    if not isinstance(x, list) and x.ndim == 2:
        x = x[:, None, :]
    y = targets if isinstance(targets, list) else array_like("targets", targets)
    return Task.from_samples(x, y, labels=labels, **options)


def _flat(values: object, trials: int) -> Any:
    """Remove the second axis that MATLAB gives to one number per trial."""
    if isinstance(values, np.ndarray) and values.ndim == 2 and values.shape in ((trials, 1), (1, trials)):
        return values.ravel()
    return values


def from_data(
    data: ArrayLike | str | os.PathLike[str] | object, targets: ArrayLike | None = None, **options: Any
) -> Task:
    """Make a task from recorded trials, whatever holds them.

    Parameters
    ----------
    data : array, pair, table or path
        Inputs (trials, steps, channels) or (trials, channels) with `targets`; a pair (inputs, targets); a data frame,
        see `from_table`; an xarray data set, whose variables `inputs` and `targets` name; a Dataset, a DataLoader or
        another iterable of batches, see `from_batches`; or a file, see `from_file`.
    targets : array, optional
        (trials, outputs), (trials, steps, outputs), or (trials,) for one number or one label per trial.
    **options
        Those of `Task.from_samples`, `from_table`, `from_batches` or `from_file`.

    Returns
    -------
    Task

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> rates = np.random.default_rng(0).standard_normal((100, 12))
    >>> lc.tasks.from_data(rates, rates[:, 0])
    <Task 'recorded': 1 step, 12 inputs, 1 output at the end; estimated from 100 trials>
    """
    if isinstance(targets, str) or (isinstance(targets, list) and set(map(str, targets)) <= _names(data)):
        options["targets"], targets = targets, None
    check_keywords(options, data_keywords(data, targets))
    if isinstance(data, list | tuple) and len(data) == 2 and targets is None:
        data, targets = data
    if targets is not None and isinstance(data, str | os.PathLike):
        raise InvalidSpec("targets of a file are named, not given as an array.", field="targets")
    if isinstance(data, np.ndarray) and "targets" in options:
        raise InvalidSpec(f"targets of an array must be an array, got {brief(options['targets'])}.", field="targets")
    if targets is not None:
        return from_trials(data, targets, **options)
    if isinstance(data, str | os.PathLike):
        return from_file(data, **options)
    if hasattr(data, "data_vars"):
        names, known = [str(options.pop(key, key)) for key in ("inputs", "targets")], _names(data)
        if not set(names) <= known:
            got = f"{listed(sorted(known))}. Name them with inputs= and targets="
            raise InvalidSpec(f"data must have the variables {' and '.join(names)}, got {got}.", field="data")
        return from_trials(*(data[name] for name in names), **options)  # type: ignore[index]
    if hasattr(data, "columns"):
        return from_table(data, **options)
    if _is_loader(data):
        return from_batches(data, **options)
    raise InvalidSpec(f"data needs targets, got {type(data).__name__} alone. Give (inputs, targets).", field="targets")


def _is_loader(data: object) -> bool:
    """Whether data are a Dataset, a DataLoader or another iterable of batches."""
    holds_arrays = hasattr(data, "shape") or isinstance(data, list | tuple | Mapping)
    return is_dataset(data) or (isinstance(data, Iterable) and not holds_arrays)


def _names(data: object) -> set[str]:
    """Names of the columns or variables of a table or data set."""
    return {str(name) for name in getattr(data, "data_vars", getattr(data, "columns", ()))}


def data_keywords(data: object, targets: object = None) -> tuple[str, ...]:
    """Return the options of `from_data` for some data."""
    if isinstance(data, str | os.PathLike):
        return (*inspect.signature(from_file).parameters, "trial", "step", "channel", "value", "at")
    if hasattr(data, "data_vars"):
        return tuple(inspect.signature(Task.from_samples).parameters)
    if targets is None and not hasattr(data, "columns") and _is_loader(data):
        return tuple(inspect.signature(from_batches).parameters)[1:]
    is_table = targets is None and hasattr(data, "columns")
    return tuple(inspect.signature(from_table if is_table else Task.from_samples).parameters)
