"""Executors: where tasks are computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from learncast.sweep.work import Job, Outcome, Work, computed


class Executor(Protocol):
    """What the driver needs of a place that computes.

    Every submitted job comes back exactly once from `wait`, whatever happens to the worker, unless the executor is
    closed first.
    """

    workers: int
    #: Seconds of work that are worth handing out at a time; 0 where handing out costs next to nothing.
    batch_seconds: float

    def start(self, work: Work) -> None:
        """Get ready to compute jobs of this work."""

    def idle(self) -> int:
        """How many batches would begin at once."""

    def submit(self, jobs: Sequence[Job]) -> None:
        """Compute a batch, one job after another."""

    def wait(self, seconds: float) -> list[Outcome]:
        """What has come back; waits that long for the first."""

    def withdraw(self) -> list[Outcome]:
        """Take back what nobody is there to begin: the sweep is to stop."""

    def close(self, *, now: bool) -> None:
        """End; `now` abandons what is running."""


class InProcess:
    """Compute in the calling process, one job at a time."""

    batch_seconds = 0.0

    def __init__(self) -> None:
        self.workers = 1
        self._waiting: deque[Job] = deque()
        self._work: Work | None = None

    def start(self, work: Work) -> None:
        self._work = work

    def idle(self) -> int:
        return 0 if self._waiting else 1

    def submit(self, jobs: Sequence[Job]) -> None:
        self._waiting.extend(jobs)

    def wait(self, seconds: float) -> list[Outcome]:
        assert self._work is not None
        return [computed(self._work, self._waiting.popleft())] if self._waiting else []

    def withdraw(self) -> list[Outcome]:
        return []

    def close(self, *, now: bool) -> None:
        self._waiting.clear()
