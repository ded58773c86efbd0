"""The ledger: which tasks there are and what became of each, in SQLite."""

from __future__ import annotations

import enum
import errno
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from learncast._core.errors import InvalidSpec, SchemaMismatch

#: Changes whenever the tables do.
FORMAT = "learncast-sweep-1"

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tasks (
    position INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    status INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    deaths INTEGER NOT NULL DEFAULT 0,
    seconds REAL,
    bytes INTEGER,
    sha256 TEXT,
    error TEXT
);
CREATE TABLE IF NOT EXISTS copies (position INTEGER PRIMARY KEY, original INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS by_status ON tasks (status, seconds, bytes);
"""


class TaskStatus(enum.Enum):
    """What became of a cell; the value is the sentence a reader needs.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.sweep.TaskStatus["failed"].value
    'given up after its last attempt; the traceback is in the ledger'
    >>> [status.name for status in lc.sweep.TaskStatus]
    ['missing', 'done', 'failed', 'excluded']
    """

    missing = "not computed yet"
    done = "computed, and its file is in the store"
    failed = "given up after its last attempt; the traceback is in the ledger"
    excluded = "fails a condition of the grid, so it is no task"

    @property
    def code(self) -> int:
        """Its number in the ledger."""
        return list(TaskStatus).index(self)


#: What is entered of a task that is to be computed afresh.
OPEN: dict[str, object] = {"status": TaskStatus.missing.code, "attempts": 0, "deaths": 0}


@dataclass(frozen=True)
class Row:
    """One task as the ledger knows it."""

    position: int
    digest: str
    status: TaskStatus
    attempts: int
    deaths: int
    bytes: int | None
    sha256: str | None
    error: str | None


@dataclass(frozen=True)
class Totals:
    """Tasks of one status, with their seconds and bytes."""

    tasks: int = 0
    seconds: float = 0.0
    bytes: int = 0


class Ledger:
    """A SQLite file with one row for each task; one process writes, any number reads.

    Parameters
    ----------
    path : Path
    write : bool
        Open for writing, which only the holder of the store's lock may do.
    """

    def __init__(self, path: Path, *, write: bool = False) -> None:
        self.path = path
        if not write and not path.is_file():
            raise InvalidSpec(f"{path.parent} must hold a sweep, got no ledger.")
        with _readable(path):
            self._connection = _connected(path, write=write)
            if write:
                try:
                    with _disk_errors(path):
                        self._connection.execute("PRAGMA journal_mode=WAL")
                        self._connection.execute("PRAGMA synchronous=FULL")
                        self._connection.executescript(_TABLES)
                except BaseException:
                    self._connection.close()
                    raise

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def meta(self, key: str) -> str | None:
        """A word about the whole sweep."""
        try:
            row = self._connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error):
                raise
            return None  # killed before its tables were made
        return None if row is None else str(row[0])

    def fill(self, tasks: Iterable[tuple[int, str]], meta: dict[str, str]) -> None:
        """Enter all tasks and what holds for the sweep, all or nothing; equal tasks are entered once."""
        with self._transaction() as run:
            for table in ("tasks", "copies", "meta"):
                run(f"DELETE FROM {table}")
            self._enter(tasks, meta)

    def extend(self, tasks: Iterable[tuple[int, str]], meta: dict[str, str]) -> None:
        """Enter those tasks that are not there yet, and what now holds for the sweep, all or nothing."""
        with self._transaction() as run:
            known = {position for (position,) in run("SELECT position FROM tasks UNION SELECT position FROM copies")}
            self._enter((task for task in tasks if task[0] not in known), meta)

    def _enter(self, tasks: Iterable[tuple[int, str]], meta: dict[str, str]) -> None:
        run = self._connection.execute
        for position, digest in tasks:
            if run("INSERT OR IGNORE INTO tasks (position, digest) VALUES (?, ?)", (position, digest)).rowcount:
                continue
            run("INSERT INTO copies SELECT ?, position FROM tasks WHERE digest = ?", (position, digest))
        values = {**meta, "format": FORMAT}.items()
        self._connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values)

    def record(self, changes: Iterable[dict[str, object]]) -> None:
        """Enter what became of tasks; when this returns, it is on the disk.

        Each change has a position and the columns to set.
        """
        with self._transaction() as run:
            for change in changes:
                setting = ", ".join(f"{column} = :{column}" for column in change)
                run(f"UPDATE tasks SET {setting} WHERE position = :position", change)

    @contextmanager
    def _transaction(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        """All that is run inside is on the disk at the end, or none of it."""
        run = self._connection.execute
        with _disk_errors(self.path):
            run("BEGIN IMMEDIATE")
            try:
                yield run
                run("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk makes SQLite roll back by itself
                    run("ROLLBACK")
                raise

    def rows(self, *statuses: TaskStatus, chunk: int = 1000) -> Iterator[Row]:
        """Tasks of the given statuses by position, read in chunks so that others may write in between."""
        last, codes = -1, [status.code for status in statuses]
        marks = ", ".join("?" * len(codes))
        # The plus keeps SQLite on the primary key: each chunk goes on where the last one ended.
        query = (
            "SELECT position, digest, status, attempts, deaths, bytes, sha256, error FROM tasks "
            f"WHERE position > ? AND +status IN ({marks}) ORDER BY position LIMIT ?"
        )
        kinds = list(TaskStatus)
        while found := self._connection.execute(query, (last, *codes, chunk)).fetchall():
            for position, digest, status, *others in found:
                yield Row(position, digest, kinds[status], *others)
            last = found[-1][0]

    def copies(self) -> Iterator[tuple[int, int]]:
        """Cells whose task another cell has too, and where that one is."""
        yield from self._connection.execute("SELECT position, original FROM copies ORDER BY position")

    def copied(self) -> int:
        """How many cells have a task that another cell has too."""
        return int(self._connection.execute("SELECT count(*) FROM copies").fetchone()[0])

    def totals(self) -> dict[TaskStatus, Totals]:
        """Tasks, seconds and bytes of each status."""
        query = "SELECT status, count(*), total(seconds), total(bytes) FROM tasks GROUP BY status"
        kinds = list(TaskStatus)
        found = {kinds[code]: Totals(n, s, int(b)) for code, n, s, b in self._connection.execute(query)}
        return {status: found.get(status, Totals()) for status in kinds[:3]}

    def knows(self, digest: str) -> bool:
        """Whether a finished task has this hash."""
        query = "SELECT 1 FROM tasks WHERE digest = ? AND status = ?"
        return self._connection.execute(query, (digest, TaskStatus.done.code)).fetchone() is not None


def _connected(path: Path, *, write: bool) -> sqlite3.Connection:
    if write:
        return _opened(path, "mode=rwc")
    connection = _opened(path, "mode=ro")
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        connection.close()
        if not isinstance(error, sqlite3.OperationalError):
            raise
        refused = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        if not refused or path.with_name(f"{path.name}-wal").exists():
            raise
        # A store that nobody may write to, such as an archive: SQLite cannot make its journal there, and needs none.
        return _opened(path, "mode=ro&immutable=1")
    return connection


def _opened(path: Path, how: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, isolation_level=None, timeout=30.0)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """A file that is no ledger is said in words."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise SchemaMismatch(
            f"{path} must be a ledger that can be read, got {error}. Check who may read it, restore it, or "
            "make it anew with `learncast sweep rebuild`."
        ) from error


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    """SQLite's word for a full or broken disk as the system's."""
    try:
        yield
    except sqlite3.OperationalError as error:
        kind = {sqlite3.SQLITE_FULL: errno.ENOSPC, sqlite3.SQLITE_IOERR: errno.EIO}.get(error.sqlite_errorcode & 0xFF)
        if kind is None:
            raise
        raise OSError(kind, os.strerror(kind), str(path)) from error
