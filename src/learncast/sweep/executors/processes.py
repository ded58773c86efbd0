"""Tasks computed by processes of this machine, any of which may die at any time."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from learncast.errors import InvalidSpec
from learncast.sweep.executors.executor import Executor, Fate, Job, Outcome, Work, computed
from learncast.threads import one_thread_each
from learncast.validation import count

#: Deaths of new workers in a row, before any job was begun, after which no more are started.
MOST_STILLBORN = 5
#: Seconds between looks whether workers live.
_LOOK = 1.0
#: Signals by which a driver is asked to stop.
STOPS = (signal.SIGINT, signal.SIGTERM)


@dataclass(eq=False)
class _Worker:
    process: Any
    pipe: Connection
    jobs: deque[Job] = field(default_factory=deque)
    ready: bool = False


class Processes(Executor):
    """Spawned processes with one thread each; one that dies is replaced and its job comes back.

    Parameters
    ----------
    workers : int, optional
        How many; one for each processor by default.
    """

    #: A pipe is quick, and one job at a time loses at most one for each worker when the driver dies.
    batch_seconds = 0.0

    def __init__(self, workers: int | None = None) -> None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.workers = cores if workers is None else count("workers", workers, why="somebody must compute")
        self._crew: list[_Worker] = []
        self._returned: list[Outcome] = []
        self._payload = b""
        self._stillborn = 0
        self._looked = time.monotonic()

    def start(self, work: Work) -> None:
        self._payload = pickled(work)
        self._crew = [self._hired() for _ in range(self.workers)]

    def idle(self) -> int:
        return sum(not worker.jobs for worker in self._crew)

    def submit(self, jobs: Sequence[Job]) -> None:
        # One that is ready first: another may still be starting.
        free = [worker for worker in self._crew if not worker.jobs]
        worker = next((w for w in free if w.ready), free[0])
        worker.jobs.extend(jobs)
        try:
            worker.pipe.send(list(jobs))
        except OSError:
            self._bury(worker)

    def wait(self, seconds: float) -> list[Outcome]:
        if not self._returned:
            ready = wait([worker.pipe for worker in self._crew], seconds)
            for worker in [worker for worker in self._crew if worker.pipe in ready]:
                self._receive(worker)
            self._look_round()
        found, self._returned = self._returned, []
        return found

    def close(self, *, now: bool) -> None:
        for worker in self._crew:
            if now or worker.jobs:
                worker.process.kill()
            worker.pipe.close()
        for worker in self._crew:
            worker.process.join(timeout=5.0)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._crew = []

    def _receive(self, worker: _Worker) -> None:
        """Take all that a worker has sent; the end of its pipe is its death."""
        try:
            while worker.pipe.poll():
                message = worker.pipe.recv()
                if message is None:
                    worker.ready, self._stillborn = True, 0
                    continue
                fate, content, error, seconds = message
                self._returned.append(Outcome(worker.jobs.popleft(), fate, content, error, seconds))
        except (EOFError, OSError, pickle.UnpicklingError):
            self._bury(worker)

    def _look_round(self) -> None:
        """Find the dead whose pipe has not ended, because a child of theirs holds it still."""
        if time.monotonic() - self._looked < _LOOK:
            return
        self._looked = time.monotonic()
        for worker in list(self._crew):
            if not worker.process.is_alive():
                self._receive(worker)
                if worker in self._crew:
                    self._bury(worker)

    def _bury(self, worker: _Worker) -> None:
        """Give back a dead worker's jobs and hire another."""
        worker.pipe.close()
        worker.process.kill()
        worker.process.join()
        why = f"the worker died ({_ending(worker.process.exitcode)})"
        for k, job in enumerate(worker.jobs):
            began = k == 0 and worker.ready
            self._returned.append(Outcome(job, Fate.death if began else Fate.unstarted, error=why if began else ""))
        if not worker.ready:
            self._stillborn += 1
            if self._stillborn >= MOST_STILLBORN * self.workers:
                raise InvalidSpec(
                    required="worker processes must be able to start",
                    got=f"{self._stillborn} that died first ({_ending(worker.process.exitcode)})",
                    why="no task can be computed",
                    remedy="see what they print; the function must be importable, and a script needs "
                    "`if __name__ == '__main__':`",
                )
        self._crew[self._crew.index(worker)] = self._hired()

    def _hired(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_labour, args=(theirs, self._payload))
        with one_thread_each(), _signals_held():
            process.start()
        # Ours alone: the pipe must end when the worker does.
        theirs.close()
        return _Worker(process, ours)


def pickled(work: Work) -> bytes:
    """The work as bytes for other processes."""
    try:
        content = pickle.dumps(work)
        pickle.loads(content)
    except (pickle.PicklingError, AttributeError, TypeError, ImportError) as error:
        raise InvalidSpec(
            required="the function must be picklable",
            got=f"{getattr(work.function, '__qualname__', work.function)!s} ({error})",
            why="other processes look it up by its name",
            remedy="define it at the top of a module, or use executor='in-process'",
        ) from error
    return content


def _labour(pipe: Connection, payload: bytes) -> None:
    """Compute batches until the driver hangs up."""
    # Ctrl-C reaches every process of a terminal, and a batch system ends all at once; the driver alone decides what
    # that means.
    # A handler, not SIG_IGN: that would be handed down to what a task starts, which then could not be ended.
    for number in STOPS:
        signal.signal(number, _unheard)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_hearing_again)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    threading.Thread(target=_follow_driver, daemon=True).start()
    work: Work = pickle.loads(payload)
    try:
        pipe.send(None)
        while True:
            for job in pipe.recv():
                outcome = computed(work, job)
                pipe.send((outcome.fate, outcome.content, outcome.error, outcome.seconds))
    except (EOFError, OSError):
        return


def _unheard(number: int, frame: object) -> None:
    """Go on: the driver decides what a signal means."""


def _hearing_again() -> None:
    for number in STOPS:
        signal.signal(number, signal.SIG_DFL)


def _follow_driver() -> None:
    """End with the driver: nobody would take the result."""
    driver = multiprocessing.parent_process()
    if driver is not None:
        wait([driver.sentinel])
        os._exit(1)


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {-code}"
    return f"exit code {code}"


@contextmanager
def _signals_held() -> Iterator[None]:
    """Processes started inside are born deaf to what stops the driver, until they ignore it themselves."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
