"""Tasks from recorded trials in any form: arrays, a table, a data set or a file."""

from __future__ import annotations

import inspect
import os
from typing import Any

from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec, check_keywords
from learncast.tasks.recorded.files import from_file, from_trials
from learncast.tasks.recorded.tables import from_table
from learncast.tasks.task import Task


def from_data(
    data: ArrayLike | str | os.PathLike[str] | object, targets: ArrayLike | None = None, **options: Any
) -> Task:
    """Make a task from recorded trials, whatever holds them.

    Parameters
    ----------
    data : array, pair, table or path
        Inputs (trials, steps, channels) or (trials, channels) with `targets`; a pair (inputs, targets); a data frame,
        see `from_table`; an xarray data set, whose variables `inputs` and `targets` name; or a file, see `from_file`.
    targets : array, optional
        (trials, outputs), (trials, steps, outputs), or (trials,) for one number or one label per trial.
    **options
        Those of `Task.from_samples`, `from_table` or `from_file`.

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
    if targets is not None:
        return from_trials(data, targets, **options)
    if isinstance(data, str | os.PathLike):
        return from_file(data, **options)
    if hasattr(data, "data_vars"):
        names = {key: str(options.pop(key, key)) for key in ("inputs", "targets")}
        return from_trials(*(data[name] for name in names.values()), **options)  # type: ignore[index]
    if hasattr(data, "columns"):
        return from_table(data, **options)
    raise InvalidSpec(f"data needs targets, got {type(data).__name__} alone. Give (inputs, targets).", field="targets")


def _names(data: object) -> set[str]:
    """Names of the columns or variables of a table or data set."""
    return {str(name) for name in getattr(data, "data_vars", getattr(data, "columns", ()))}


def data_keywords(data: object, targets: object = None) -> tuple[str, ...]:
    """Return the options of `from_data` for some data."""
    if isinstance(data, str | os.PathLike):
        return (*inspect.signature(from_file).parameters, "trial", "step", "channel", "value", "at")
    if hasattr(data, "data_vars"):
        return tuple(inspect.signature(Task.from_samples).parameters)
    is_table = targets is None and hasattr(data, "columns")
    return tuple(inspect.signature(from_table if is_table else Task.from_samples).parameters)
