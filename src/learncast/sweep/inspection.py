"""The status of a store: progress, failures, and damaged or needless files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from learncast._core.progress import Progress, silent
from learncast.sweep.grid import Grid
from learncast.sweep.ledger import OPEN, Ledger, Row, TaskStatus
from learncast.sweep.store import PathLike, Store


@dataclass(frozen=True)
class StoreStatus:
    """Progress of a store.

    Attributes
    ----------
    function, fingerprint : str
        Name of the swept function, and hash of the study.
    cells, total, done, failed, missing : int
        Number of cells; of tasks, which meet every condition; and of those done, failed and missing.
    seconds : float
        Total computing time of the tasks that are done.
    bytes : int
        Size of the results.
    driven : bool
        Whether a driver is running.

    Examples
    --------
    >>> import tempfile
    >>> import learncast as lc
    >>> def halved(spec):
    ...     return 0.5 ** spec["steps"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = lc.sweep.run(halved, {"steps": [1, 2]}, store=folder, executor="in-process")
    ...     status = lc.sweep.status(folder)
    >>> status.cells, status.done, status.driven
    (2, 2, False)
    """

    function: str
    fingerprint: str
    cells: int
    total: int
    done: int
    failed: int
    missing: int
    seconds: float
    bytes: int
    driven: bool


def status(store: PathLike) -> StoreStatus:
    """Return the progress of a sweep, also while it is running.

    Parameters
    ----------
    store : path
        Folder of the sweep.

    Returns
    -------
    StoreStatus

    Examples
    --------
    >>> import tempfile
    >>> import learncast as lc
    >>> def halved(spec):
    ...     return 0.5 ** spec["steps"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = lc.sweep.run(halved, {"steps": [1, 2]}, store=folder, executor="in-process")
    ...     status = lc.sweep.status(folder)
    >>> status.total, status.done, status.missing
    (2, 2, 0)
    """
    place = Store(store)
    study, driven = place.study(), place.driven()
    with place.ledger() as ledger:
        totals, fingerprint = ledger.totals(), ledger.meta("fingerprint") or ""
    tasks, done = {kind.name: totals[kind].tasks for kind in totals}, totals[TaskStatus.done]
    size = {"cells": Grid.from_dict(study["grid"]).size, "total": sum(tasks.values()), **tasks}
    return StoreStatus(study["function"], fingerprint, **size, seconds=done.seconds, bytes=done.bytes, driven=driven)


@dataclass(frozen=True)
class Failure:
    """A task that failed: its values, attempts, deaths of workers and last traceback.

    Examples
    --------
    >>> import tempfile
    >>> import learncast as lc
    >>> def inverse(spec):
    ...     return 1 / spec["x"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = lc.sweep.run(inverse, {"x": [0, 2]}, store=folder, executor="in-process", attempts=1)
    ...     failure = next(lc.sweep.failures(folder))
    >>> failure.cell, failure.attempts
    ({'x': 0}, 1)
    >>> failure.error.splitlines()[-1]
    'ZeroDivisionError: division by zero'
    """

    cell: dict[str, object]
    attempts: int
    deaths: int
    error: str


def failures(store: PathLike) -> Iterator[Failure]:
    """Yield the tasks that failed.

    Parameters
    ----------
    store : path
        Folder of the sweep.

    Returns
    -------
    iterator of Failure

    Examples
    --------
    >>> import tempfile
    >>> import learncast as lc
    >>> def inverse(spec):
    ...     return 1 / spec["x"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = lc.sweep.run(inverse, {"x": [0, 2]}, store=folder, executor="in-process")
    ...     print([failure.cell for failure in lc.sweep.failures(folder)])
    [{'x': 0}]
    """
    place = Store(store)
    grid = place.grid()
    with place.ledger() as ledger:
        for row in ledger.rows(TaskStatus.failed):
            yield Failure(grid.cell(row.position), row.attempts, row.deaths, row.error or "")


@dataclass(frozen=True)
class Damage:
    """A damaged result: the hash of its task, and a description of the damage.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import learncast as lc
    >>> def halved(spec):
    ...     return 0.5 ** spec["steps"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = lc.sweep.run(halved, {"steps": [1, 2]}, store=folder, executor="in-process")
    ...     _ = sorted(Path(folder).glob("results/*/*.nc"))[0].write_bytes(b"torn")
    ...     print([damage.what for damage in lc.sweep.verify(folder)])
    ['has 4 bytes instead of ...']
    """

    digest: str
    what: str


def verify(store: PathLike, *, progress: Progress = silent) -> list[Damage]:
    """Check every result, move damaged files to quarantine and mark their tasks as missing.

    In a read-only store, such as an archive, damage is only reported.

    Parameters
    ----------
    store : path
        Folder of the sweep.
    progress : callable
        Called with the share that is done.

    Returns
    -------
    list of Damage
        Damaged results; `resume` computes them again.

    Examples
    --------
    >>> import tempfile
    >>> import learncast as lc
    >>> def halved(spec):
    ...     return 0.5 ** spec["steps"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = lc.sweep.run(halved, {"steps": [1, 2]}, store=folder, executor="in-process")
    ...     print(lc.sweep.verify(folder))
    []
    """
    place = Store(store)
    place.check_ledger()
    if not os.access(place.folder, os.W_OK):
        with place.ledger() as ledger:
            return [Damage(row.digest, what) for row, what in _damaged(place, ledger, progress)]
    damaged = []
    with place.locked(), place.ledger(write=True) as ledger:
        changes = []
        for row, what in _damaged(place, ledger, progress):
            damaged.append(Damage(row.digest, what))
            place.move_to_quarantine(place.path(row.digest))
            changes.append({"position": row.position, **OPEN, "seconds": None, "bytes": None, "sha256": None})
        ledger.record(changes)
    return damaged


def _damaged(place: Store, ledger: Ledger, progress: Progress) -> Iterator[tuple[Row, str]]:
    """Yield finished tasks with a damaged result, and a description of the damage."""
    total = max(ledger.totals()[TaskStatus.done].tasks, 1)
    for k, row in enumerate(ledger.rows(TaskStatus.done)):
        _, what = place.check(row)
        if what:
            yield row, what
        progress((k + 1) / total)


def prune(store: PathLike, *, dry_run: bool = False) -> list[Path]:
    """Remove files that no task needs: unfinished files, files that are not in the ledger, and the quarantine.

    Parameters
    ----------
    store : path
        Folder of the sweep.
    dry_run : bool
        Remove nothing.

    Returns
    -------
    list of Path
        Files that were removed, or that would be with `dry_run`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import learncast as lc
    >>> def halved(spec):
    ...     return 0.5 ** spec["steps"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = lc.sweep.run(halved, {"steps": [1, 2]}, store=folder, executor="in-process")
    ...     Path(folder, "results", "notes.txt").touch()
    ...     print([path.name for path in lc.sweep.prune(folder, dry_run=True)])
    ['notes.txt']
    """
    place = Store(store)
    place.study()
    with place.locked(), place.ledger() as ledger:
        paths = (path for folder in (place.results, place.quarantine) for path in sorted(folder.rglob("*")))
        files = (path for path in paths if path.is_file())
        needless = [path for path in files if path != place.path(path.stem) or not ledger.has_result(path.stem)]
        if not dry_run:
            for path in needless:
                path.unlink()
    return needless
