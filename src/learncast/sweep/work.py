"""One task computed: what happens inside a worker."""

from __future__ import annotations

import enum
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from learncast.netcdf import packed
from learncast.sweep.results import as_dataset
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
