"""The store: a folder with a ledger, one file for each result, and the study they belong to."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import IO, TypeVar

import xarray as xr

from learncast._core.errors import InvalidSpec, SchemaMismatch, brief
from learncast._core.files import draft_of, write_file
from learncast._core.limits import readable
from learncast._core.netcdf import read
from learncast._core.system import folder_lock, lock, sync
from learncast.sweep.grid import Grid
from learncast.sweep.ledger import FORMAT, Ledger, Row, TaskStatus, damaged_ledger
from learncast.sweep.spec import Tables, digest_of, merged

#: Path of a store or file.
PathLike = str | os.PathLike[str]
#: Seconds for which a driver waits for the lock; a reader may hold it for a moment.
LOCK_PATIENCE = 0.3
#: Files that are written to the disk in parallel, which takes as long as one.
_PARALLEL = 16

_Item = TypeVar("_Item")


class Store:
    """The folder of a sweep.

    Parameters
    ----------
    folder : path
    """

    def __init__(self, folder: PathLike) -> None:
        # Absolute, because a task may change the working directory.
        self.folder = Path(folder).absolute()
        self.results, self.quarantine = self.folder / "results", self.folder / "quarantine"
        self.ledger_path, self.study_path = self.folder / "ledger.sqlite", self.folder / "study.json"

    def ledger(self, *, write: bool = False) -> Ledger:
        """Open the ledger; a writer must hold the lock."""
        return Ledger(self.ledger_path, write=write)

    def path(self, digest: str) -> Path:
        """Return the path of a task's result."""
        return self.results / digest[:2] / f"{digest}.nc"

    def write(self, results: Mapping[str, bytes]) -> dict[str, str]:
        """Write results, named by the hashes of their tasks, and return the SHA-256 of each file.

        Every file appears complete or not at all, and all are on the disk when this returns.
        """
        _in_parallel(self._write, results.items())
        _in_parallel(sync, {self.path(digest).parent for digest in results})
        return {digest: hashlib.sha256(content).hexdigest() for digest, content in results.items()}

    def _write(self, result: tuple[str, bytes]) -> None:
        with draft_of(self.path(result[0]), sole=True, durable=True) as draft:
            draft.write_bytes(result[1])

    def check(self, row: Row) -> tuple[bytes, str]:
        """Return a result's content, and a description of the damage that is empty if there is none."""
        try:
            content = self.path(row.digest).read_bytes()
        except OSError as error:
            return b"", f"cannot be read ({error.strerror})"
        if len(content) != row.bytes:
            return b"", f"has {len(content)} bytes instead of {row.bytes}"
        intact = hashlib.sha256(content).hexdigest() == row.sha256
        return (content, "") if intact else (b"", "has another SHA-256 than when it was written")

    def move_to_quarantine(self, path: Path) -> None:
        """Move a damaged file to quarantine, if it exists."""
        if path.exists():
            self.quarantine.mkdir(exist_ok=True)
            os.replace(path, self.quarantine / path.name)

    def result(self, row: Row) -> xr.Dataset:
        """Read a result. A file that was changed is not opened, because HDF5 is not safe for those."""
        content, damage = self.check(row)
        if damage:
            remedy = "Run `learncast sweep verify`, then `learncast sweep resume`."
            raise SchemaMismatch(f"{self.path(row.digest)} {damage}. {remedy}", field="store")
        return read(content)

    def grid(self) -> Grid:
        """Return the grid of the study."""
        return Grid.from_dict(self.study()["grid"])

    def begun(self) -> bool:
        """Return whether the tasks were entered; a driver may have been killed before that."""
        if not self.ledger_path.is_file():
            return False
        with self.ledger() as ledger:
            return ledger.meta("study") is not None

    def _check_results(self, study: str | None) -> None:
        """Raise if there are results but the ledger is empty or lost."""
        results = (path for path in self.results.glob("*/*.nc") if path == self.path(path.stem))
        if study is None and next(results, None) is not None:
            remedy = "Restore it, or run `learncast sweep rebuild`."
            raise InvalidSpec(f"{self.folder} has results but its ledger was lost. {remedy}", field="store")

    def study(self) -> Tables:
        """Return the study that `begin` entered."""
        if not self.ledger_path.is_file():
            self._check_results(None)
        with self.ledger() as ledger:
            stored, kind, fingerprint = (ledger.meta(key) for key in ("study", "format", "fingerprint"))
        self._check_results(stored)
        if stored is None or kind != FORMAT:
            raise InvalidSpec(f"{self.folder} must hold a sweep of the format {FORMAT}, got {kind!r}.", field="store")
        try:
            study = dict(json.loads(stored))
        except (ValueError, TypeError) as error:
            raise damaged_ledger(self.ledger_path, "an unreadable study") from error
        if fingerprint != digest_of(study):
            raise damaged_ledger(self.ledger_path, "a changed study")
        return study

    def check_ledger(self) -> None:
        """Raise if the ledger is damaged: by SQLite's own check, or if its tasks are not those of its study."""
        study = self.study()
        with self.ledger() as ledger:
            ledger.check()
            with readable(self.ledger_path, kind="an intact ledger", error=SchemaMismatch):
                rows = ((row.position, row.digest) for row in map(self._consistent, ledger.rows(*list(TaskStatus)[:3])))
                # One by one: a list of a million tasks would take hundreds of megabytes.
                for pair in zip_longest(tasks_of(study), rows):
                    if pair[0] != pair[1]:
                        position = min(one[0] for one in pair if one is not None)
                        raise damaged_ledger(self.ledger_path, f"a changed task {position}")

    def _consistent(self, row: Row) -> Row:
        """Return the row of a task if it has a hash exactly when it is done."""
        if (row.sha256 is not None) != (row.status is TaskStatus.done):
            raise damaged_ledger(self.ledger_path, f"a changed status of task {row.position}")
        return row

    def begin(self, study: Tables, tasks: Iterable[tuple[int, str]]) -> None:
        """Enter the tasks of a study, or check that the store holds this study already.

        The caller holds the lock.
        """
        with self.ledger(write=True) as ledger:
            stored = ledger.meta("study")
            self._check_results(stored)
            if stored is None:
                ledger.enter(tasks, study_record(study))
        if stored is not None:
            self.check_ledger()
            if digest_of(self.study()) != digest_of(study):
                raise study_mismatch(self.folder, self.study(), study)
        if not self.study_path.exists():
            content = {"fingerprint": digest_of(study), **study}
            write_file(self.study_path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def extend(self, study: Tables, tasks: Iterable[tuple[int, str]]) -> None:
        """Enter more tasks of a study whose grid has grown at its end; the old ones stay as they are.

        The caller holds the lock, and has checked that the rest of the study is unchanged.
        """
        with self.ledger(write=True) as ledger:
            ledger.enter(tasks, study_record(study), extend=True)
        self.study_path.unlink(missing_ok=True)  # `begin` writes it again

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only driver of this store."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a+", encoding="utf-8") as file, folder_lock(self.folder) as alone:
            if not alone or not _take(file, patience=LOCK_PATIENCE):
                file.seek(0)
                holder = file.read().strip() or "another process"
                raise InvalidSpec(f"{self.folder} is in use by {holder}. Wait for it or stop it.", field="store")
            file.truncate(0)
            file.write(f"process {os.getpid()}")
            file.flush()
            yield

    def driven(self) -> bool:
        """Return whether a driver is running."""
        try:
            with (self.folder / "lock").open("a+", encoding="utf-8") as file:
                return not _take(file, patience=0.0)
        except OSError:
            return False


def _in_parallel(call: Callable[[_Item], None], items: Collection[_Item]) -> None:
    if len(items) == 1:
        call(*items)
        return
    with ThreadPoolExecutor(_PARALLEL) as pool:
        list(pool.map(call, items))


def tasks_of(study: Tables) -> Iterator[tuple[int, str]]:
    """Yield position and hash of every task of a study."""
    k, n = study.get("shard") or (1, 1)
    for position, cell in Grid.from_dict(study["grid"]).cells(study["base"]):
        digest = digest_of([study["function"], merged(study["base"], cell)])
        if int(digest, 16) % n == k - 1:
            yield position, digest


def study_record(study: Tables) -> dict[str, str]:
    """Return the metadata of a study in the ledger."""
    return {"study": json.dumps(study, sort_keys=True, ensure_ascii=False), "fingerprint": digest_of(study)}


def differences(stored: object, given: object) -> list[str]:
    """Return one line for each value that differs between two nested tables."""
    old, new = dict(_leaves(stored)), dict(_leaves(given))
    lines = []
    for key in sorted(old.keys() | new.keys()):
        if key not in new:
            lines.append(f"{key}: {brief(old[key])} is gone")
        elif key not in old:
            lines.append(f"{key}: {brief(new[key])} is new")
        elif old[key] != new[key] or type(old[key]) is not type(new[key]):
            lines.append(f"{key}: {brief(old[key])} -> {brief(new[key])}")
    return lines


def _leaves(value: object, key: str = "") -> Iterator[tuple[str, object]]:
    """Yield the dotted key and the value of everything in nested tables and lists."""
    if not value or not isinstance(value, dict | list):
        yield key, value
        return
    for word, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _leaves(item, f"{key}.{word}" if key else str(word))


def study_mismatch(folder: Path, stored: Tables, given: Tables) -> InvalidSpec:
    """Return the error for a study that is not the one of the store."""
    lines = differences(stored, given)
    # The first cell repeats the study with its defaults, so list it only if the rest is equal.
    lines = [line for line in lines if not line.startswith("notes.first_cell")] or lines
    listed = "; ".join(lines[:8]) + (f"; and {len(lines) - 8} more" if len(lines) > 8 else "")
    return InvalidSpec(f"{folder} holds another study, which differs in {listed}.", field="study")


def _take(file: IO[str], *, patience: float) -> bool:
    """Lock a file for this process; the system unlocks it when the process ends."""
    begun = time.monotonic()
    while True:
        with contextlib.suppress(OSError):
            lock(file)
            return True
        if time.monotonic() - begun >= patience:
            return False
        time.sleep(0.02)
