"""The driver: hands out a store's open tasks and enters what comes back."""

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
from learncast.sweep.executors import Executor, Fate, Job, Outcome, Work
from learncast.sweep.grid import Grid
from learncast.sweep.ledger import OPEN, Ledger, Row, TaskStatus
from learncast.sweep.store import Store

#: Workers that may die over one task before it is given up: more than its attempts, for most such deaths are not its
#: fault, but not without end, for some are.
MOST_DEATHS = 5
#: Tasks that are handed out at a time where handing out is dear.
MOST_BATCH = 64
#: Seconds for which results of a batch are collected: putting one on the disk takes as long as putting many.
GROUP_SECONDS = 0.1
#: Seconds between looks at the clock when nothing comes back.
PULSE = 0.5


@dataclass(frozen=True)
class Summary:
    """How a sweep stands.

    Attributes
    ----------
    total, done, failed : int
        Tasks: all, computed and given up.
    computed : int
        Results that this run entered.
    interrupted : bool
        Whether it was asked to stop before the end.
    seconds : float
        Since this run began.
    trouble : str
        What keeps tasks waiting, in words; empty where nothing does.

    Examples
    --------
    >>> import learncast as lc
    >>> summary = lc.sweep.Summary(total=10, done=7, failed=1)
    >>> summary.missing, summary.complete
    (2, False)
    >>> lc.sweep.Summary(total=10, done=8, failed=2, seconds=3.0)
    <Summary: finished, 2 failed; 8 of 10 tasks done, in 3.0 s; sweep.failures(store) tells why>
    """

    total: int
    done: int
    failed: int
    computed: int = 0
    interrupted: bool = False
    seconds: float = 0.0
    trouble: str = ""

    @property
    def missing(self) -> int:
        """Tasks not computed yet."""
        return self.total - self.done - self.failed

    @property
    def complete(self) -> bool:
        """Whether every task has a result."""
        return self.done == self.total

    def __repr__(self) -> str:
        ended = f"{self.missing:,} missing" if self.missing else "complete" if self.complete else "finished"
        told = f"{self.done:,} of {self.total:,} tasks done, in {self.seconds:,.1f} s"
        failed = (f", {self.failed:,} failed", "; sweep.failures(store) tells why") if self.failed else ("", "")
        further = "; sweep.resume(store) goes on" if self.missing else ""
        return f"<Summary: {ended}{failed[0]}; {told}{failed[1]}{further}>"


Watcher = Callable[[Summary], None]


def unwatched(summary: Summary) -> None:
    """Report nothing."""


@dataclass
class _Queue:
    """Open tasks: those that came back first, then those of the ledger."""

    rows: Iterator[Row]
    again: deque[Row]

    def take(self, number: int) -> list[Row]:
        found: list[Row] = []
        while len(found) < number:
            # One over which a worker died goes alone: the next death shows whether it is to blame.
            if self.again and self.again[0].deaths:
                return found or [self.again.popleft()]
            row = self.again.popleft() if self.again else next(self.rows, None)
            if row is None:
                break
            found.append(row)
        return found


@dataclass(eq=False)
class Driver:
    """Computes the open tasks of a store; the caller holds its lock.

    Attributes
    ----------
    store, grid, executor
        Where results go, what the tasks are, and where they are computed.
    attempts : int
        Times a task may raise before it is given up.
    fail_fast : bool
        Begin no more tasks once one is given up.
    batch : int, optional
        Tasks handed out at a time; by default one, or where handing out is dear as many as take
        `Executor.batch_seconds`.
    seconds : float, optional
        Begin no more tasks after so long; what is missing is computed when the sweep is resumed.
    watcher : callable
        Called with a `Summary` whenever something came back, and twice a second.
    """

    store: Store
    grid: Grid
    executor: Executor
    attempts: int = 3
    fail_fast: bool = False
    batch: int | None = None
    seconds: float | None = None
    watcher: Watcher = unwatched

    def __post_init__(self) -> None:
        count("attempts", self.attempts)
        if self.batch is not None:
            count("batch", self.batch)
        self._rows: dict[int, Row] = {}
        self._pace = math.nan
        self._stopping, self._interrupts = False, 0

    def drive(self, work: Work, *, retry: bool = False) -> Summary:
        """Compute what is missing, and with `retry` what was given up too."""
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
        # A ledger of its own: rows are read while others are written.
        with self.store.ledger() as reader:
            queue = _Queue(reader.rows(TaskStatus.missing), deque())
            while True:
                self._stopping = self._stopping or time_is_up()
                if not self._stopping:
                    self._hand_out(queue)
                if not self._rows:
                    return
                outcomes = self._collected() + (self.executor.withdraw() if self._stopping else [])
                if self.batch is None and self._batch_size() > 1 and not self._stopping:
                    self._hand_out(queue)  # nobody need wait until cheap results are on the disk
                if outcomes:
                    queue.again.extend(self._enter(outcomes))
                seconds = time.monotonic() - self._begun
                self.summary = replace(self.summary, seconds=seconds, trouble=self.executor.trouble)
                self.watcher(self.summary)

    def _hand_out(self, queue: _Queue) -> None:
        for _ in range(self.executor.idle()):
            rows = queue.take(self._batch_size())
            if not rows:
                return
            self._rows.update({row.position: row for row in rows})
            self.executor.submit([Job(row.position, row.digest, self.grid.cell(row.position)) for row in rows])

    def _batch_size(self) -> int:
        if self.batch is not None:
            return self.batch
        if math.isnan(self._pace) or not self.executor.batch_seconds:
            return 1
        # Near the end batches shrink, so that no worker waits for another's.
        share = math.ceil(self.summary.missing / (4 * self.executor.workers))
        return max(1, min(int(self.executor.batch_seconds / max(self._pace, 1e-6)), MOST_BATCH, share))

    def _collected(self) -> list[Outcome]:
        """What came back; cheap results are entered together, as long as nobody waits for work."""
        outcomes = self.executor.wait(PULSE)
        until = time.monotonic() + GROUP_SECONDS
        while outcomes and self._batch_size() > 1 and not self.executor.idle() and time.monotonic() < until:
            outcomes += self.executor.wait(max(0.0, until - time.monotonic()))
        return outcomes

    def _enter(self, outcomes: Sequence[Outcome]) -> list[Row]:
        """Write results, then the ledger; returns the tasks to try again."""
        hashes = self.store.write({one.job.digest: one.content for one in outcomes if one.fate is Fate.done})
        changes: list[dict[str, object]] = []
        again: list[Row] = []
        done = failed = 0
        for one in outcomes:
            row = self._rows.pop(one.job.position)
            if one.fate is Fate.unstarted:
                again.append(row)
                continue
            written: dict[str, object] = {}
            if one.fate is Fate.done:
                done += 1
                self._pace = one.seconds if math.isnan(self._pace) else 0.9 * self._pace + 0.1 * one.seconds
                row = replace(row, status=TaskStatus.done, attempts=row.attempts + 1, error=None)
                written = {"seconds": one.seconds, "bytes": len(one.content), "sha256": hashes[row.digest]}
            else:
                row = self._blamed(row, one)
                failed += row.status is TaskStatus.failed
            if row.status is TaskStatus.missing:
                again.append(row)
            told = {key: getattr(row, key) for key in ("position", "attempts", "deaths", "error")}
            changes.append({**told, "status": row.status.code, **written})
        self._ledger.record(changes)
        now = self.summary
        self.summary = replace(now, done=now.done + done, failed=now.failed + failed, computed=now.computed + done)
        # Failures of this run: what an earlier one gave up is known already.
        self._stopping = self._stopping or (self.fail_fast and failed > 0)
        return again

    def _blamed(self, row: Row, outcome: Outcome) -> Row:
        """The row after one more failure."""
        died = outcome.fate is Fate.death
        attempts, deaths = row.attempts + (not died), row.deaths + died
        given_up = attempts >= self.attempts or deaths >= MOST_DEATHS
        status = TaskStatus.failed if given_up else TaskStatus.missing
        return replace(row, attempts=attempts, deaths=deaths, status=status, error=outcome.error)

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        """The first Ctrl-C (or termination) lets running tasks finish, the second stops at once."""
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
                with contextlib.suppress(TypeError):  # a handler that was not set from Python cannot be put back
                    signal.signal(number, handler)
