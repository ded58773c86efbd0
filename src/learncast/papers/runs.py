"""The runs of a paper: what is computed independently before a figure can be drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import xarray as xr

from learncast.progress import Progress, silent

#: Settings, and where to report progress, to a result; at the top of a module, so that other processes find it.
RunFunction = Callable[[Mapping[str, Any], Progress], xr.Dataset]


@dataclass(frozen=True)
class PaperRun:
    """One run: a function and all that decides its result.

    Attributes
    ----------
    function : callable
        From settings and a progress report to a Dataset.
    settings : mapping
        Numbers, words, lists and tables.
    """

    function: RunFunction
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Where the function is found again."""
        return f"{self.function.__module__}:{self.function.__qualname__}"


class Compute(Protocol):
    """Where runs are computed: here, in other processes, or already."""

    def __call__(self, runs: Sequence[PaperRun], *, progress: Progress = silent) -> list[xr.Dataset]:
        """The results, in the order of the runs."""
        ...

    def __hash__(self) -> int:
        """Figures remember by it what they share."""
        ...


def one_by_one(runs: Sequence[PaperRun], *, progress: Progress = silent) -> list[xr.Dataset]:
    """Compute here, one after another."""
    return [run.function(run.settings, within(progress, k, len(runs))) for k, run in enumerate(runs)]


def within(progress: Progress, done: int, number: int) -> Progress:
    """Progress of one of several runs."""
    return partial(_within, progress, done, number)


def _within(progress: Progress, done: int, number: int, share: float) -> None:
    progress((done + share) / number)
