"""The store: a folder with the ledger, one file for each finished task, and the study they belong to."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import xarray as xr

from learncast._core.errors import InvalidSpec, SchemaMismatch
from learncast._core.files import draft_of, write_file
from learncast._core.netcdf import read
from learncast._core.progress import Progress, silent
from learncast._core.system import lock, sync
from learncast.sweep.grid import Grid
from learncast.sweep.ledger import FORMAT, OPEN, Ledger, Row, TaskStatus
from learncast.sweep.spec import digest_of

#: Where a store or a file is.
Place = str | os.PathLike[str]
#: Seconds for which a driver waits for the lock; a reader may hold it for an instant.
LOCK_PATIENCE = 0.3
#: Files that are put on the disk at once.
_AT_ONCE = 16


class Store:
    """Where a sweep's results lie.

    Parameters
    ----------
    folder : path
    """

    def __init__(self, folder: Place) -> None:
        # Absolute: a task may change the working directory.
        self.folder = Path(folder).absolute()
        self.results, self.quarantine = self.folder / "results", self.folder / "quarantine"

    def ledger(self, *, write: bool = False) -> Ledger:
        """Open the ledger; who writes must hold the lock."""
        return Ledger(self.folder / "ledger.sqlite", write=write)

    def path(self, digest: str) -> Path:
        """Where a task's result lies."""
        return self.results / digest[:2] / f"{digest}.nc"

    def write(self, results: Mapping[str, bytes]) -> dict[str, str]:
        """Write results by their hashes; each file appears whole, and all are on the disk when this returns.

        Returns
        -------
        dict
            The SHA-256 of each file.
        """
        paths = {self.path(digest): content for digest, content in results.items()}
        _each(lambda path: _write(path, paths[path]), paths)
        _each(sync, {path.parent for path in paths})
        return {digest: hashlib.sha256(content).hexdigest() for digest, content in results.items()}

    def examined(self, row: Row) -> tuple[bytes, str]:
        """A finished task's file, and what is wrong with it: nothing, if it is what was written."""
        try:
            content = self.path(row.digest).read_bytes()
        except OSError as error:
            return b"", f"cannot be read ({error.strerror})"
        if len(content) != row.bytes:
            return b"", f"has {len(content)} bytes instead of {row.bytes}"
        whole = hashlib.sha256(content).hexdigest() == row.sha256
        return (content, "") if whole else (b"", "has other content than was written")

    def set_apart(self, path: Path) -> None:
        """Move a damaged file to quarantine, if it is there."""
        if path.exists():
            self.quarantine.mkdir(exist_ok=True)
            os.replace(path, self.quarantine / path.name)

    def result(self, row: Row) -> xr.Dataset:
        """A result, opened only if it is what was written: HDF5 is not made for files that somebody else changed."""
        content, wrong = self.examined(row)
        if wrong:
            raise SchemaMismatch(
                f"{self.path(row.digest)} must be the file that was written, got one that {wrong}. Run `learncast "
                "sweep verify`, then `learncast sweep resume`."
            )
        return read(content)

    def grid(self) -> Grid:
        """What was varied."""
        return Grid.from_described(self.study()["grid"])

    def begun(self) -> bool:
        """Whether its tasks were entered: a sweep may be killed before."""
        if not (self.folder / "ledger.sqlite").is_file():
            return False
        with self.ledger() as ledger:
            return ledger.meta("study") is not None

    def files(self) -> Iterator[Path]:
        """Every file under results that is named as a result is."""
        return (path for path in self.results.glob("*/*.nc") if path == self.path(path.stem))

    def _lost(self) -> InvalidSpec | None:
        """What to say where the ledger knows no study and results are there: it was emptied, or taken away."""
        if next(self.files(), None) is None:
            return None
        return InvalidSpec(
            f"the ledger of {self.folder} must know the results beside it, got a ledger without a study. "
            f"Restore it, or make it anew from the files with `learncast sweep rebuild {self.folder}`."
        )

    def study(self) -> dict[str, Any]:
        """What was swept, as `begin` was told."""
        if not (self.folder / "ledger.sqlite").is_file() and (lost := self._lost()):
            raise lost
        with self.ledger() as ledger:
            stored, kind = ledger.meta("study"), ledger.meta("format")
        if stored is None or kind != FORMAT:
            raise (None if kind and stored else self._lost()) or InvalidSpec(
                f"{self.folder} must hold a sweep of the format {FORMAT}, got {kind!r}."
            )
        return dict(json.loads(stored))

    def begin(self, study: dict[str, Any], tasks: Iterable[tuple[int, str]]) -> None:
        """Enter a study's tasks, or check that the store already holds this very study.

        The caller holds the lock.
        """
        with self.ledger(write=True) as ledger:
            stored = ledger.meta("study")
            if stored is None and (lost := self._lost()):
                raise lost
            if stored is None:
                ledger.fill(tasks, described(study))
            elif ledger.meta("fingerprint") != digest_of(study):
                raise changed(self.folder, json.loads(stored), study)
        page = self.folder / "study.json"
        if not page.exists():
            content = {"fingerprint": digest_of(study), **study}
            write_file(page, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def extend(self, study: dict[str, Any], tasks: Iterable[tuple[int, str]]) -> None:
        """Enter further tasks of a study whose grid has grown at its end; those entered before stay as they are.

        The caller holds the lock, and has seen that nothing else of the study has changed.
        """
        with self.ledger(write=True) as ledger:
            text = json.dumps(study, sort_keys=True, ensure_ascii=False)
            ledger.extend(tasks, {"study": text, "fingerprint": digest_of(study)})
        (self.folder / "study.json").unlink(missing_ok=True)  # `begin` writes it anew

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only driver of this store."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a+", encoding="utf-8") as file:
            if not _take(file, patience=LOCK_PATIENCE):
                file.seek(0)
                raise InvalidSpec(
                    required=f"no other process may drive the sweep in {self.folder}",
                    got=file.read().strip() or "another driver",
                    why="two drivers would compute every task twice",
                    remedy="wait for it or stop it, then resume",
                )
            file.truncate(0)
            file.write(f"process {os.getpid()}")
            file.flush()
            yield

    def driven(self) -> bool:
        """Whether a driver is at work now."""
        try:
            with (self.folder / "lock").open("a+", encoding="utf-8") as file:
                return not _take(file, patience=0.0)
        except OSError:
            return False


def _write(path: Path, content: bytes) -> None:
    with draft_of(path, sole=True, durable=True) as draft:
        draft.write_bytes(content)


def _each(put: Callable[[Path], None], paths: Collection[Path]) -> None:
    """Put all on the disk at once: it takes several at a time as quickly as one."""
    if len(paths) < 2:
        for path in paths:
            put(path)
        return
    with ThreadPoolExecutor(min(len(paths), _AT_ONCE)) as pool:
        list(pool.map(put, paths))


def described(study: dict[str, Any]) -> dict[str, str]:
    """A study as a ledger keeps it."""
    return {"study": json.dumps(study, sort_keys=True, ensure_ascii=False), "fingerprint": digest_of(study)}


def differences(stored: Any, given: Any, key: str = "") -> list[str]:
    """What changed between two nested tables, one line for each key."""
    if isinstance(stored, dict) and isinstance(given, dict):
        lines = []
        for word in sorted(stored.keys() | given.keys()):
            place = f"{key}.{word}" if key else word
            if word not in given:
                lines.append(f"{place}: {_shown(stored[word])} is gone")
            elif word not in stored:
                lines.append(f"{place}: {_shown(given[word])} is new")
            else:
                lines += differences(stored[word], given[word], place)
        return lines
    if isinstance(stored, list) and isinstance(given, list) and len(stored) == len(given):
        pairs = enumerate(zip(stored, given, strict=True))
        return [line for k, (old, new) in pairs for line in differences(old, new, f"{key}.{k}")]
    return [] if stored == given and type(stored) is type(given) else [f"{key}: {_shown(stored)} -> {_shown(given)}"]


def changed(folder: Path, stored: dict[str, Any], given: dict[str, Any]) -> InvalidSpec:
    """The refusal to go on with another study, with what differs."""
    lines = differences(stored, given)
    # The first cell repeats the study with its defaults: worth showing only when the study itself says nothing.
    lines = [line for line in lines if not line.startswith("notes.first_cell")] or lines
    shown = "; ".join(lines[:8]) + (f"; and {len(lines) - 8} more" if len(lines) > 8 else "")
    return InvalidSpec(f"the study must be the one that {folder} was begun with, got changes ({shown}).")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."


def _take(file: IO[str], *, patience: float) -> bool:
    """Lock a file for this process; the system lets go when the process ends, however it ends."""
    begun = time.monotonic()
    while True:
        with contextlib.suppress(OSError):
            lock(file)
            return True
        if time.monotonic() - begun >= patience:
            return False
        time.sleep(0.02)


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
    copies: int
    seconds: float
    bytes: int
    driven: bool


def status(store: Place) -> StoreStatus:
    """How a sweep stands; a driver may be at work meanwhile.

    Parameters
    ----------
    store : path
        Folder of the results.

    Returns
    -------
    StoreStatus
        Tasks by what became of them, seconds spent and bytes written.

    Raises
    ------
    InvalidSpec
        If the folder holds no sweep, or one whose ledger is damaged.

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
        totals, fingerprint, copies = ledger.totals(), ledger.meta("fingerprint") or "", ledger.copied()
    tasks, done = {kind.name: totals[kind].tasks for kind in totals}, totals[TaskStatus.done]
    size = {"cells": Grid.from_described(study["grid"]).size, "total": sum(tasks.values()), **tasks, "copies": copies}
    return StoreStatus(study["function"], fingerprint, **size, seconds=done.seconds, bytes=done.bytes, driven=driven)


@dataclass(frozen=True)
class Failure:
    """A task that was given up: what it was to compute, and the traceback.

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

    cell: dict[str, Any]
    attempts: int
    deaths: int
    error: str


def failures(store: Place) -> Iterator[Failure]:
    """Tasks that were given up.

    Parameters
    ----------
    store : path
        Folder of the results.

    Returns
    -------
    iterator of Failure
        What each was to compute, how often it was tried, and its last traceback.

    Raises
    ------
    InvalidSpec
        If the folder holds no sweep, or one whose ledger is damaged.

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
    """A result whose file is not what was written.

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


def verify(store: Place, *, progress: Progress = silent) -> list[Damage]:
    """Read every result again; damaged files go to quarantine and their tasks are open again.

    Of a store that cannot be written to, such as an archive, they are told and stay where they are.

    Parameters
    ----------
    store : path
        Folder of the results.
    progress : callable
        Called with the share that is done.

    Returns
    -------
    list of Damage
        What was found; `resume` computes it again.

    Raises
    ------
    InvalidSpec
        If the folder holds no sweep, or one whose ledger is damaged; or where a driver is at work.

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
    place.study()
    if not os.access(place.folder, os.W_OK):  # an archive: nobody drives it
        with place.ledger() as ledger:
            return [Damage(row.digest, what) for row, what in _damaged(place, ledger, progress)]
    found: list[Damage] = []
    with place.locked(), place.ledger(write=True) as ledger:
        changes = []
        for row, what in _damaged(place, ledger, progress):
            found.append(Damage(row.digest, what))
            place.set_apart(place.path(row.digest))
            changes.append({"position": row.position, **OPEN, "seconds": None, "bytes": None, "sha256": None})
        ledger.record(changes)
    return found


def _damaged(place: Store, ledger: Ledger, progress: Progress) -> Iterator[tuple[Row, str]]:
    """Finished tasks whose file is not what was written, and what is wrong with it."""
    total = max(ledger.totals()[TaskStatus.done].tasks, 1)
    for k, row in enumerate(ledger.rows(TaskStatus.done)):
        _, what = place.examined(row)
        if what:
            yield row, what
        progress((k + 1) / total)


def prune(store: Place, *, dry_run: bool = False) -> list[Path]:
    """Remove what no task needs: drafts, files that the ledger does not know, quarantine.

    Parameters
    ----------
    store : path
        Folder of the results.
    dry_run : bool
        Remove nothing.

    Returns
    -------
    list of Path
        What was removed, or with `dry_run` would be.

    Raises
    ------
    InvalidSpec
        If the folder holds no sweep, or one whose ledger is damaged; or where a driver is at work.

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
        files = (path for folder in (place.results, place.quarantine) for path in sorted(folder.rglob("*")))
        known = (path for path in files if path.is_file())
        found = [path for path in known if path != place.path(path.stem) or not ledger.knows(path.stem)]
        if not dry_run:
            for path in found:
                path.unlink()
    return found
