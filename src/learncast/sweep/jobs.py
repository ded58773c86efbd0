"""Jobs: what a worker computes, and how it ended."""

from __future__ import annotations

import enum
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import xarray as xr

from learncast._core.errors import UnsupportedModel
from learncast._core.limits import allowing, given_bytes
from learncast._core.netcdf import packed
from learncast.sweep.spec import Spec, merged

Function = Callable[[Spec], object]


@dataclass(frozen=True)
class Work:
    """What all tasks of a sweep share.

    Attributes
    ----------
    function : callable
        Maps a `Spec` to a result.
    base : mapping
        Values that do not vary.
    most_bytes : int, optional
        Limit on the size of one file, array or table in a task; by default the limit where the sweep begins.

    Examples
    --------
    >>> import learncast as lc
    >>> work = lc.sweep.Work(lambda spec: spec["factor"] * spec["x"], {"factor": 2})
    >>> work.base["factor"]
    2
    """

    function: Function
    base: Mapping[str, object]
    most_bytes: int | None = field(default_factory=given_bytes)


@dataclass(frozen=True)
class Job:
    """One task to compute: its position in the grid, its hash and its values.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.sweep.Job(0, digest="2a", cell={"x": 3}).cell["x"]
    3
    """

    position: int
    digest: str
    cell: Mapping[str, object]


class Fate(enum.Enum):
    """How a job ended.

    Examples
    --------
    >>> import learncast as lc
    >>> [fate.name for fate in lc.sweep.Fate]
    ['done', 'error', 'death', 'unstarted']
    """

    done = "computed"
    error = "the function raised"
    death = "the worker died while computing it"
    unstarted = "the worker died before it began"


@dataclass(frozen=True)
class Outcome:
    """The end of one job.

    Attributes
    ----------
    job : Job
    fate : Fate
    content : bytes
        The result as a NetCDF file.
    error : str
        The traceback.
    seconds : float
        Computing time.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.sweep.Outcome(lc.sweep.Job(0, "2a", {}), lc.sweep.Fate.unstarted).seconds
    0.0
    """

    job: Job
    fate: Fate
    content: bytes = b""
    error: str = ""
    seconds: float = 0.0


def compute(work: Work, job: Job) -> Outcome:
    """Compute one job; an exception of the function becomes the job's outcome."""
    begun = time.perf_counter()
    try:
        spec = Spec(merged(work.base, job.cell), job.digest)
        with allowing(work.most_bytes):
            content = packed(as_dataset(work.function(spec)))
    except (Exception, SystemExit):
        # Text that cannot be encoded, such as an odd file name, must not stop the ledger.
        error = traceback.format_exc().encode(errors="backslashreplace").decode()
        return Outcome(job, Fate.error, error=error, seconds=time.perf_counter() - begun)
    return Outcome(job, Fate.done, content=content, seconds=time.perf_counter() - begun)


def as_dataset(value: object) -> xr.Dataset:
    """Return the result of a function as a Dataset.

    A DataArray keeps its name, an object with a `dataset` is replaced by it, a number becomes the variable ``value``,
    and a mapping holds variables: numbers, strings, DataArrays or pairs (dimensions, array).
    """
    if isinstance(value, xr.Dataset):
        return value
    if isinstance(value, xr.DataArray):
        return value.to_dataset(name=value.name or "value")
    if isinstance(value, Mapping):
        return xr.Dataset({str(key): item for key, item in value.items()})
    # After the others, because `.dataset` of a Dataset may be a variable with this name.
    if isinstance(dataset := getattr(value, "dataset", None), xr.Dataset):
        return dataset
    array = np.asarray(value)
    if array.ndim == 0 and array.dtype.kind in "biufU":
        return xr.Dataset({"value": ((), array)})
    kind = type(value).__name__
    raise UnsupportedModel(f"function must return a Dataset, array, number or mapping, got {kind}.", field="function")
