"""The runs of a paper: independent computations that its figures need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import xarray as xr

from learncast._core.progress import Progress, silent, within

#: Settings of a run: numbers, strings, lists and dictionaries.
Settings = Mapping[str, Any]
#: Maps settings and a progress callback to a result; defined at the top of a module, so that processes can import it.
RunFunction = Callable[..., xr.Dataset]


@dataclass(frozen=True)
class PaperRun:
    """One run: a function and its settings.

    Attributes
    ----------
    function : callable
        Maps the settings and a progress callback to a Dataset.
    settings : mapping
        Numbers, strings, lists and dictionaries.
    estimate : callable, optional
        Maps the settings to the CPU seconds of the run, for runs that are too long for a trial.

    Examples
    --------
    >>> import learncast as lc
    >>> runs = lc.papers.open_paper("curriculum").figure("4A").runs("smoke")
    >>> len(runs)
    2
    >>> [run.settings["activation"] for run in runs]
    ['linear', 'relu']
    """

    function: RunFunction
    settings: Settings
    estimate: Callable[[Settings], float] | None = None

    @property
    def name(self) -> str:
        """Import path of the function."""
        return f"{self.function.__module__}:{self.function.__qualname__}"

    @property
    def text(self) -> str:
        """Function and settings as text."""
        return f"{self.name} {dict(self.settings)!r}"


class Compute(Protocol):
    """A function that computes runs, or reads their stored results.

    Examples
    --------
    >>> import xarray as xr
    >>> import learncast as lc
    >>> def newest_first(runs, *, progress=lambda share: None):
    ...     results = [run.function(run.settings, progress) for run in reversed(runs)]
    ...     return results[::-1]
    >>> def doubled(settings, progress):
    ...     return xr.Dataset({"twice": 2 * settings["seed"]})
    >>> runs = [lc.papers.PaperRun(doubled, {"seed": seed}) for seed in (1, 2)]
    >>> [one["twice"].item() for one in newest_first(runs)]
    [2, 4]
    """

    def __call__(self, runs: Sequence[PaperRun], *, progress: Progress = silent) -> list[xr.Dataset]:
        """Return the results in the order of the runs."""
        ...


_RESULTS: dict[str, xr.Dataset] = {}


def remembered(runs: Sequence[PaperRun], *, progress: Progress = silent) -> list[xr.Dataset]:
    """Compute runs in this process, each once for all figures that need it."""
    new = {run.text: run for run in runs if run.text not in _RESULTS}
    for k, (text, run) in enumerate(new.items()):
        _RESULTS[text] = run.function(run.settings, within(progress, k, len(new)))
    return [_RESULTS[run.text] for run in runs]


def share_of(progress: Progress, done: float, until: float) -> Progress:
    """Return the progress callback for the part of the work from `done` to `until`."""
    return lambda share: progress(done + (until - done) * share)


def only(results: Sequence[xr.Dataset], preset: str) -> xr.Dataset:
    """Return the data of a figure with a single run."""
    return results[0]
