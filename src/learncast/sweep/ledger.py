"""The ledger: an SQLite file with the status of every task."""

from __future__ import annotations

import enum
import errno
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
CREATE INDEX IF NOT EXISTS by_status ON tasks (status, seconds, bytes);
"""


class TaskStatus(enum.Enum):
    """Status of a cell; the value explains it.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.sweep.TaskStatus["failed"].value
    'failed in its last attempt; the ledger has the traceback'
    >>> [status.name for status in lc.sweep.TaskStatus]
    ['missing', 'done', 'failed', 'excluded']
    """

    missing = "not computed yet"
    done = "computed and stored"
    failed = "failed in its last attempt; the ledger has the traceback"
    excluded = "excluded by a condition of the grid"

    @property
    def code(self) -> int:
        """Its number in the ledger."""
        return list(TaskStatus).index(self)


#: Columns of a task that is to be computed again.
OPEN: dict[str, object] = {"status": TaskStatus.missing.code, "attempts": 0, "deaths": 0}


@dataclass(frozen=True)
class Row:
    """One task in the ledger."""

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
    """Number of tasks with one status, their total seconds and bytes."""

    tasks: int = 0
    seconds: float = 0.0
    bytes: int = 0


class Ledger(AbstractContextManager["Ledger"]):
    """An SQLite file with one row for each task; one process writes, any number read.

    Parameters
    ----------
    path : Path
    write : bool
        Open for writing. Only the holder of the store's lock may do this.
    """

    def __init__(self, path: Path, *, write: bool = False) -> None:
        self.path = path
        if not write and not path.is_file():
            raise InvalidSpec(f"{path.parent} must hold a sweep, got no ledger.", field="store")
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
        """Close the file."""
        self._connection.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def meta(self, key: str) -> str | None:
        """Return a value that describes the sweep, if it is there."""
        if not self._query("SELECT 1 FROM sqlite_master WHERE name = 'meta'"):
            return None  # the driver was killed before it created the tables
        rows = self._query("SELECT value FROM meta WHERE key = ?", (key,))
        return str(rows[0][0]) if rows else None

    def check(self) -> None:
        """Raise if SQLite finds damage."""
        rows = self._query("PRAGMA quick_check")
        if rows != [("ok",)]:
            raise damaged_ledger(self.path, rows[0][0])

    def _query(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with _readable(self.path):
            return self._connection.execute(query, values).fetchall()

    def enter(self, tasks: Iterable[tuple[int, str]], meta: dict[str, str], *, extend: bool = False) -> None:
        """Enter tasks (position and hash) and metadata in one transaction.

        With `extend` the tasks that are already there stay as they are; otherwise they are deleted first.
        """
        with self._transaction() as run:
            if not extend:
                for table in ("tasks", "meta"):
                    run(f"DELETE FROM {table}")
            for task in tasks:
                run("INSERT OR IGNORE INTO tasks (position, digest) VALUES (?, ?)", task)
            for item in {**meta, "format": FORMAT}.items():
                run("INSERT OR REPLACE INTO meta VALUES (?, ?)", item)

    def record(self, changes: Iterable[dict[str, object]]) -> None:
        """Update tasks in one transaction, which is on the disk when this returns.

        Each change has a position and the columns to set.
        """
        with self._transaction() as run:
            for change in changes:
                setting = ", ".join(f"{column} = :{column}" for column in change)
                run(f"UPDATE tasks SET {setting} WHERE position = :position", change)

    @contextmanager
    def _transaction(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        """Write everything that is run inside to the disk, or nothing."""
        run = self._connection.execute
        with _readable(self.path), _disk_errors(self.path):
            run("BEGIN IMMEDIATE")
            try:
                yield run
                run("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # if the disk is full, SQLite has rolled back already
                    run("ROLLBACK")
                raise

    def rows(self, *statuses: TaskStatus, chunk: int = 1000) -> Iterator[Row]:
        """Yield tasks with the given statuses by position, read in chunks so that others can write in between."""
        last, codes = -1, [status.code for status in statuses]
        # The plus sign makes SQLite use the primary key, so that each chunk starts where the last one ended.
        query = (
            "SELECT position, digest, status, attempts, deaths, bytes, sha256, error FROM tasks "
            f"WHERE position > ? AND +status IN ({', '.join('?' * len(codes))}) ORDER BY position LIMIT ?"
        )
        kinds = list(TaskStatus)
        while rows := self._query(query, (last, *codes, chunk)):
            for position, digest, status, *others in rows:
                if position <= last:
                    raise damaged_ledger(self.path, f"task {position} after task {last}")
                yield Row(position, digest, kinds[status], *others)
                last = position

    def totals(self) -> dict[TaskStatus, Totals]:
        """Return the totals of each status."""
        query = "SELECT status, count(*), total(seconds), total(bytes) FROM tasks GROUP BY status"
        counted = {code: Totals(n, s, int(b)) for code, n, s, b in self._query(query)}
        return {status: counted.get(status.code, Totals()) for status in list(TaskStatus)[:3]}

    def has_result(self, digest: str) -> bool:
        """Return whether the task with this hash is done."""
        query = "SELECT 1 FROM tasks WHERE digest = ? AND status = ?"
        return bool(self._query(query, (digest, TaskStatus.done.code)))


def _connected(path: Path, *, write: bool) -> sqlite3.Connection:
    if write:
        return _opened(path, "mode=rwc")
    connection = _opened(path, "mode=ro")
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        connection.close()
        if not isinstance(error, sqlite3.OperationalError):
            raise
        refused = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        if not refused or path.with_name(f"{path.name}-wal").exists():
            raise
        # In a read-only store, such as an archive, SQLite cannot create a journal and does not need one.
        return _opened(path, "mode=ro&immutable=1")
    return connection


def _opened(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, isolation_level=None, timeout=30.0)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raise `SchemaMismatch` if the file is not a ledger."""
    try:
        yield
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # SQLite's own message may hold damaged bytes
        raise damaged_ledger(path, error) from error


def damaged_ledger(path: Path, what: object) -> SchemaMismatch:
    """Return the error for a ledger that is damaged."""
    remedy = "Restore it, or run `learncast sweep rebuild`."
    return SchemaMismatch(f"{path} must be an intact ledger, got {what}. {remedy}", field="store")


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    """Raise OSError if SQLite reports a full or broken disk."""
    try:
        yield
    except sqlite3.OperationalError as error:
        kind = {sqlite3.SQLITE_FULL: errno.ENOSPC, sqlite3.SQLITE_IOERR: errno.EIO}.get(error.sqlite_errorcode & 0xFF)
        if kind is None:
            raise
        raise OSError(kind, os.strerror(kind), str(path)) from error
