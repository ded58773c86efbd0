"""The driver: hands out the open tasks of a store and enters their results."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType

from learncast._core.progress import time_is_up, time_limit
from learncast._core.system import STOPS
from learncast._core.validation import count
from learncast.sweep.executors import Executor
from learncast.sweep.grid import Grid
from learncast.sweep.jobs import Fate, Job, Outcome, Work
from learncast.sweep.ledger import OPEN, Ledger, Row, TaskStatus
from learncast.sweep.store import Store

#: Deaths of workers after which their task counts as failed. More than its attempts, because the task is rarely the
#: cause.
MOST_DEATHS = 5
#: Largest batch of tasks.
MOST_BATCH = 64
#: Seconds for which results of a batch are collected: syncing many files takes as long as syncing one.
GROUP_SECONDS = 0.1
#: Longest wait for a result, in seconds.
PULSE = 0.5


@dataclass(frozen=True)
class Summary:
    """Progress of a sweep.

    Attributes
    ----------
    total, done, failed : int
        Number of tasks, and of those done and failed.
    computed : int
        Results that this run entered.
    interrupted : bool
        Whether the run was asked to stop.
    seconds : float
        Time since this run began.
    warning : str
        Reason why tasks are waiting; empty if there is none.

    Examples
    --------
    >>> import learncast as lc
    >>> summary = lc.sweep.Summary(total=10, done=7, failed=1)
    >>> summary.missing, summary.complete
    (2, False)
    >>> lc.sweep.Summary(total=10, done=8, failed=2, seconds=3.0)
    <Summary: 8 of 10 tasks done, 2 failed (see sweep.failures), in 3.0 s>
    """

    total: int
    done: int
    failed: int
    computed: int = 0
    interrupted: bool = False
    seconds: float = 0.0
    warning: str = ""

    @property
    def missing(self) -> int:
        """Number of tasks that are not computed yet."""
        return self.total - self.done - self.failed

    @property
    def complete(self) -> bool:
        """Whether every task has a result."""
        return self.done == self.total

    def __repr__(self) -> str:
        failed = f", {self.failed:,} failed (see sweep.failures)" if self.failed else ""
        missing = f", {self.missing:,} missing (use sweep.resume)" if self.missing else ""
        return f"<Summary: {self.done:,} of {self.total:,} tasks done{failed}{missing}, in {self.seconds:,.1f} s>"


Watcher = Callable[[Summary], None]


@dataclass(eq=False)
class Driver:
    """Computes the open tasks of a store; the caller holds its lock.

    Attributes
    ----------
    store, grid, executor
    attempts : int
        Number of times that a task may raise before it counts as failed.
    fail_fast : bool
        Start no more tasks after a failure.
    batch : int, optional
        Tasks handed out together; by default as many as take `Executor.batch_seconds`.
    seconds : float, optional
        Start no more tasks after this time.
    watcher : callable
        Called with a `Summary` after every result, and at least twice a second.
    """

    store: Store
    grid: Grid
    executor: Executor
    attempts: int = 3
    fail_fast: bool = False
    batch: int | None = None
    seconds: float | None = None
    watcher: Watcher = lambda summary: None

    def __post_init__(self) -> None:
        count("attempts", self.attempts)
        if self.batch is not None:
            count("batch", self.batch)
        self._rows: dict[int, Row] = {}  # handed out, by position
        self._again: deque[Row] = deque()
        self._task_seconds = math.nan
        self._stopping, self._interrupts = False, 0

    def drive(self, work: Work, *, retry: bool = False) -> Summary:
        """Compute the missing tasks, and with `retry` also those that failed."""
        self._begun = time.monotonic()
        self._ledger: Ledger = self.store.ledger(write=True)
        tasks = {status: totals.tasks for status, totals in self._ledger.totals().items()}
        self.summary = Summary(sum(tasks.values()), tasks[TaskStatus.done], tasks[TaskStatus.failed])
        now = True
        try:
            if retry:
                failed = self._ledger.rows(TaskStatus.failed)
                self._ledger.record([{"position": row.position, **OPEN} for row in failed])
                self.summary = replace(self.summary, failed=0)
            if self.summary.missing:
                self.executor.start(work)
                with self._stoppable(), time_limit(self.seconds):
                    self._loop()
            now = False
        except KeyboardInterrupt:
            self._interrupts += 1
        finally:
            self.executor.close(now=now)
            self._ledger.close()
        seconds = time.monotonic() - self._begun
        self.summary = replace(self.summary, interrupted=self._interrupts > 0, seconds=seconds)
        return self.summary

    def _loop(self) -> None:
        # A second connection, because rows are read while others are written.
        with self.store.ledger() as reader:
            self._open = reader.rows(TaskStatus.missing)
            while True:
                self._stopping = self._stopping or time_is_up()
                if not self._stopping:
                    self._hand_out()
                if not self._rows:
                    return
                outcomes = self._collect() + (self.executor.withdraw() if self._stopping else [])
                if self.batch is None and self._batch_size() > 1 and not self._stopping:
                    self._hand_out()  # workers need not wait until cheap results are on the disk
                if outcomes:
                    self._enter(outcomes)
                seconds = time.monotonic() - self._begun
                self.summary = replace(self.summary, seconds=seconds, warning=self.executor.warning)
                self.watcher(self.summary)

    def _take(self, number: int) -> list[Row]:
        """Return open tasks: first those to try again, then those of the ledger."""
        taken: list[Row] = []
        while len(taken) < number:
            # A task whose worker died is a batch of its own, so that its next death is certainly its own.
            if self._again and self._again[0].deaths:
                return taken or [self._again.popleft()]
            row = self._again.popleft() if self._again else next(self._open, None)
            if row is None:
                break
            taken.append(row)
        return taken

    def _hand_out(self) -> None:
        for _ in range(self.executor.idle()):
            rows = self._take(self._batch_size())
            if not rows:
                return
            self._rows.update({row.position: row for row in rows})
            self.executor.submit([Job(row.position, row.digest, self.grid.cell(row.position)) for row in rows])

    def _batch_size(self) -> int:
        if self.batch is not None:
            return self.batch
        if math.isnan(self._task_seconds) or not self.executor.batch_seconds:
            return 1
        # Batches shrink near the end, so that no worker waits for another.
        share = math.ceil(self.summary.missing / (4 * self.executor.workers))
        return max(1, min(int(self.executor.batch_seconds / max(self._task_seconds, 1e-6)), MOST_BATCH, share))

    def _collect(self) -> list[Outcome]:
        """Return outcomes; those of cheap tasks are collected for a moment while every worker is busy."""
        outcomes = self.executor.wait(PULSE)
        until = time.monotonic() + GROUP_SECONDS
        while outcomes and self._batch_size() > 1 and not self.executor.idle() and time.monotonic() < until:
            outcomes += self.executor.wait(max(0.0, until - time.monotonic()))
        return outcomes

    def _enter(self, outcomes: Sequence[Outcome]) -> None:
        """Write results, then the ledger."""
        hashes = self.store.write({one.job.digest: one.content for one in outcomes if one.fate is Fate.done})
        changes: list[dict[str, object]] = []
        for one in outcomes:
            row = self._rows.pop(one.job.position)
            written: dict[str, object] = {}
            if one.fate is Fate.done:
                slow = self._task_seconds
                self._task_seconds = one.seconds if math.isnan(slow) else 0.9 * slow + 0.1 * one.seconds
                row = replace(row, status=TaskStatus.done, attempts=row.attempts + 1, error=None)
                written = {"seconds": one.seconds, "bytes": len(one.content), "sha256": hashes[row.digest]}
            elif one.fate is not Fate.unstarted:
                row = self._after_failure(row, one)
            if row.status is TaskStatus.missing:
                self._again.append(row)
            columns = {key: getattr(row, key) for key in ("position", "attempts", "deaths", "error")}
            changes.append({**columns, "status": row.status.code, **written})
        self._ledger.record(changes)
        codes = [change["status"] for change in changes]
        done, failed = (codes.count(status.code) for status in (TaskStatus.done, TaskStatus.failed))
        now = self.summary
        self.summary = replace(now, done=now.done + done, failed=now.failed + failed, computed=now.computed + done)
        # Only failures of this run count: those of earlier runs are known.
        self._stopping = self._stopping or (self.fail_fast and failed > 0)

    def _after_failure(self, row: Row, outcome: Outcome) -> Row:
        """Return the row of a task after one more failure."""
        died = outcome.fate is Fate.death
        attempts, deaths = row.attempts + (not died), row.deaths + died
        final = attempts >= self.attempts or deaths >= MOST_DEATHS
        status = TaskStatus.failed if final else TaskStatus.missing
        return replace(row, attempts=attempts, deaths=deaths, status=status, error=outcome.error)

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        """Let running tasks finish after the first Ctrl-C or SIGTERM, and stop immediately after the second."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, frame: FrameType | None) -> None:
            self._stopping, self._interrupts = True, self._interrupts + 1
            if self._interrupts > 1:
                raise KeyboardInterrupt
            self.watcher(replace(self.summary, interrupted=True))

        before = {number: signal.signal(number, stop) for number in STOPS}
        try:
            yield
        finally:
            for number, handler in before.items():
                with contextlib.suppress(TypeError):  # a handler that was not set from Python cannot be restored
                    signal.signal(number, handler)
