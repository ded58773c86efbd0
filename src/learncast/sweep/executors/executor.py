"""An executor: a place where tasks are computed."""

from __future__ import annotations

import enum
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import xarray as xr

from learncast.errors import UnsupportedModel
from learncast.netcdf import packed
from learncast.sweep.spec import Spec, placed


@dataclass(frozen=True)
class Work:
    """What all tasks of a sweep share.

    Attributes
    ----------
    function : callable
        From a `Spec` to a result.
    base : mapping
        Values that do not vary.
    """

    function: Callable[[Spec], Any]
    base: Mapping[str, Any]


@dataclass(frozen=True)
class Job:
    """One task to be computed: its place in the grid, its hash and what it takes there."""

    position: int
    digest: str
    cell: Mapping[str, Any]


class Fate(enum.Enum):
    """How a job came back."""

    done = "computed"
    error = "the function raised"
    death = "the worker died while computing it"
    unstarted = "the worker died before it began"


@dataclass(frozen=True)
class Outcome:
    """How one job came back.

    Attributes
    ----------
    job : Job
    fate : Fate
    content : bytes
        The packed result.
    error : str
        The traceback.
    seconds : float
    """

    job: Job
    fate: Fate
    content: bytes = b""
    error: str = ""
    seconds: float = 0.0


def computed(work: Work, job: Job) -> Outcome:
    """Compute one job; whatever its function raises is its outcome."""
    begun = time.perf_counter()
    try:
        spec = Spec(placed(work.base, job.cell), job.digest)
        content = packed(as_dataset(work.function(spec)))
    except (Exception, SystemExit):
        # Words that cannot be encoded, such as an odd file name, must not stop the ledger.
        error = traceback.format_exc().encode(errors="backslashreplace").decode()
        return Outcome(job, Fate.error, error=error, seconds=time.perf_counter() - begun)
    return Outcome(job, Fate.done, content=content, seconds=time.perf_counter() - begun)


def as_dataset(value: Any) -> xr.Dataset:
    """What a function returned, as a Dataset.

    A Dataset stays as it is, a DataArray gets a name, objects with a `dataset` give it, numbers become ``value``, and
    a mapping names its own: each a number, a word, a DataArray or a pair (dimensions, array).
    """
    if isinstance(value, xr.Dataset):
        return value
    if isinstance(value, xr.DataArray):
        return value.to_dataset(name=value.name or "value")
    if isinstance(value, Mapping):
        return xr.Dataset({str(key): item for key, item in value.items()})
    # Only now: of a Dataset or an array, `.dataset` may be a variable or an attribute called so.
    if isinstance(found := getattr(value, "dataset", None), xr.Dataset):
        return found
    if np.ndim(value) == 0 and np.asarray(value).dtype.kind in "biufU":
        return xr.Dataset({"value": ((), value)})
    raise UnsupportedModel(
        required="a swept function must return a Dataset, a DataArray, a number or a mapping of these",
        got=type(value).__name__,
        why="results are gathered by their labels",
        remedy="wrap arrays as xr.DataArray with named dimensions",
    )


class Executor(Protocol):
    """What the driver needs of a place that computes.

    Every submitted job comes back exactly once from `wait`, whatever happens to the worker, unless the executor is
    closed first.
    """

    workers: int
    #: Seconds of work that are worth handing out at a time; 0 where handing out costs next to nothing.
    batch_seconds: float

    def start(self, work: Work) -> None:
        """Get ready to compute jobs of this work."""

    def idle(self) -> int:
        """How many batches would begin at once."""

    def submit(self, jobs: Sequence[Job]) -> None:
        """Compute a batch, one job after another."""

    def wait(self, seconds: float) -> list[Outcome]:
        """What has come back; waits that long for the first."""

    def withdraw(self) -> list[Outcome]:
        """Take back what nobody is there to begin: the sweep is to stop."""
        return []

    def close(self, *, now: bool) -> None:
        """End; `now` abandons what is running."""


class InProcess(Executor):
    """Compute in the calling process, one job at a time."""

    batch_seconds = 0.0

    def __init__(self) -> None:
        self.workers = 1
        self._waiting: deque[Job] = deque()

    def start(self, work: Work) -> None:
        self._work = work

    def idle(self) -> int:
        return 0 if self._waiting else 1

    def submit(self, jobs: Sequence[Job]) -> None:
        self._waiting.extend(jobs)

    def wait(self, seconds: float) -> list[Outcome]:
        return [computed(self._work, self._waiting.popleft())] if self._waiting else []

    def close(self, *, now: bool) -> None:
        self._waiting.clear()
