"""The runs of a paper: what is computed independently before a figure can be drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import xarray as xr

from learncast._core.progress import Progress, silent, within

#: Settings, and where to report progress, to a result; at the top of a module, so that other processes find it.
RunFunction = Callable[..., xr.Dataset]


@dataclass(frozen=True)
class PaperRun:
    """One run: a function and all that decides its result.

    Attributes
    ----------
    function : callable
        From settings and a progress report to a Dataset.
    settings : mapping
        Numbers, words, lists and tables.
    estimate : callable, optional
        From the settings to the CPU seconds it will take here; for runs that are too long to be tried.

    Examples
    --------
    >>> import learncast as lc
    >>> runs = lc.papers.open_paper("curriculum").figure("4A").runs("smoke")
    >>> len(runs)
    10
    >>> runs[0].settings["activation"], runs[0].settings["seed"]
    ('linear', 0)
    """

    function: RunFunction
    settings: Mapping[str, Any]
    estimate: Callable[[Mapping[str, Any]], float] | None = None

    @property
    def name(self) -> str:
        """Where the function is found again."""
        return f"{self.function.__module__}:{self.function.__qualname__}"

    @property
    def text(self) -> str:
        """All that decides its result."""
        return f"{self.name} {dict(self.settings)!r}"


class Compute(Protocol):
    """Where runs are computed: here, in other processes, or already.

    Examples
    --------
    >>> import xarray as xr
    >>> import learncast as lc
    >>> def newest_first(runs, *, progress=lambda share: None):
    ...     found = [run.function(run.settings, progress) for run in reversed(runs)]
    ...     return found[::-1]
    >>> def doubled(settings, progress):
    ...     return xr.Dataset({"twice": 2 * settings["seed"]})
    >>> runs = [lc.papers.PaperRun(doubled, {"seed": seed}) for seed in (1, 2)]
    >>> [one["twice"].item() for one in newest_first(runs)]
    [2, 4]
    """

    def __call__(self, runs: Sequence[PaperRun], *, progress: Progress = silent) -> list[xr.Dataset]:
        """The results, in the order of the runs."""
        ...


def one_by_one(runs: Sequence[PaperRun], *, progress: Progress = silent) -> list[xr.Dataset]:
    """Compute here, one after another."""
    return [run.function(run.settings, within(progress, k, len(runs))) for k, run in enumerate(runs)]


_FOUND: dict[str, xr.Dataset] = {}


def remembered(runs: Sequence[PaperRun], *, progress: Progress = silent) -> list[xr.Dataset]:
    """Compute here, once for all the figures of this process that show the same networks."""
    new = {run.text: run for run in runs if run.text not in _FOUND}
    _FOUND.update(zip(new, one_by_one(list(new.values()), progress=progress), strict=True))
    return [_FOUND[run.text] for run in runs]


def share_of(progress: Progress, done: float, until: float) -> Progress:
    """Progress of a part of the work."""
    return lambda share: progress(done + (until - done) * share)


def only(found: Sequence[xr.Dataset], preset: str) -> xr.Dataset:
    """The data of a figure that is one run."""
    return found[0]


def parts_of(number: int, together: int = 10) -> list[dict[str, int]]:
    """Where each part of so many networks begins and ends: many to train at once, few enough for several runs."""
    return [{"first": k, "end": min(k + together, number)} for k in range(0, number, together)]


def joined(dim: str, parts: Sequence[xr.Dataset], preset: str = "") -> xr.Dataset:
    """The data of a figure whose runs stand side by side; what has no such dimension is the same in all of them."""
    return xr.concat(
        parts, dim, data_vars="minimal", coords="minimal", compat="equals", join="exact", combine_attrs="override"
    )
