"""Upkeep of a store: how it stands, whether its files are whole, what can go."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from learncast.progress import Progress, silent
from learncast.sweep.grid import Grid
from learncast.sweep.ledger import OPEN, TaskStatus
from learncast.sweep.store import Store


@dataclass(frozen=True)
class StoreStatus:
    """How a store stands.

    Attributes
    ----------
    function, fingerprint : str
        What is swept.
    cells, total, done, failed, missing, copies : int
        Cells of the grid; tasks; and cells whose task another cell has too.
    seconds : float
        Spent computing what is done.
    bytes : int
        Size of its results.
    driven : bool
        Whether a driver is at work.
    """

    function: str
    fingerprint: str
    cells: int
    total: int
    done: int
    failed: int
    missing: int
    copies: int
    seconds: float
    bytes: int
    driven: bool


def status(store: str | os.PathLike[str]) -> StoreStatus:
    """How a sweep stands; a driver may be at work meanwhile."""
    place = Store(store)
    study, driven = place.study(), place.driven()
    with place.ledger() as ledger:
        totals, fingerprint, copies = ledger.totals(), ledger.meta("fingerprint") or "", ledger.copied()
    tasks = {kind.name: totals[kind].tasks for kind in totals}
    return StoreStatus(
        function=study["function"],
        fingerprint=fingerprint,
        cells=Grid.from_described(study["grid"]).size,
        total=sum(tasks.values()),
        **tasks,
        copies=copies,
        seconds=totals[TaskStatus.done].seconds,
        bytes=totals[TaskStatus.done].bytes,
        driven=driven,
    )


@dataclass(frozen=True)
class Failure:
    """A task that was given up: what it was to compute, and the traceback."""

    cell: dict[str, Any]
    attempts: int
    deaths: int
    error: str


def failures(store: str | os.PathLike[str]) -> Iterator[Failure]:
    """Tasks that were given up."""
    place = Store(store)
    grid = place.grid()
    with place.ledger() as ledger:
        for row in ledger.rows(TaskStatus.failed):
            yield Failure(grid.cell(row.position), row.attempts, row.deaths, row.error or "")


@dataclass(frozen=True)
class Damage:
    """A result whose file is not what was written."""

    digest: str
    what: str


def verify(store: str | os.PathLike[str], *, progress: Progress = silent) -> list[Damage]:
    """Read every result again; damaged files go to quarantine and their tasks are open again.

    Returns
    -------
    list of Damage
        What was found; `resume` computes it again.
    """
    place = Store(store)
    place.study()
    found: list[Damage] = []
    with place.locked(), place.ledger(write=True) as ledger:
        total, changes = max(ledger.totals()[TaskStatus.done].tasks, 1), []
        for k, row in enumerate(ledger.rows(TaskStatus.done)):
            _, what = place.examined(row)
            if what:
                found.append(Damage(row.digest, what))
                _set_apart(place, row.digest)
                changes.append({"position": row.position, **OPEN, "seconds": None, "bytes": None, "sha256": None})
            progress((k + 1) / total)
        ledger.record(changes)
    return found


def _set_apart(place: Store, digest: str) -> None:
    path = place.path(digest)
    if path.exists():
        place.quarantine.mkdir(exist_ok=True)
        os.replace(path, place.quarantine / path.name)


def prune(store: str | os.PathLike[str], *, dry_run: bool = False) -> list[Path]:
    """Remove what no task needs: drafts, files that the ledger does not know, quarantine.

    Returns
    -------
    list of Path
        What was removed, or with `dry_run` would be.
    """
    place = Store(store)
    place.study()
    with place.locked(), place.ledger() as ledger:
        files = (path for folder in (place.results, place.quarantine) for path in sorted(folder.rglob("*")))
        known = (path for path in files if path.is_file())
        found = [path for path in known if path != place.path(path.stem) or not ledger.knows(path.stem)]
        if not dry_run:
            for path in found:
                path.unlink()
    return found
