"""Executors: compute tasks in this process, in worker processes or on a dask cluster."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import pickle
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from multiprocessing.connection import Connection
from typing import Any, Protocol

from learncast._core.errors import InvalidSpec
from learncast._core.packages import package
from learncast._core.system import serve
from learncast._core.validation import count
from learncast._core.worker import Worker, WorkerStopped
from learncast.sweep.jobs import Fate, Job, Outcome, Work, compute

#: Workers in a row that may die before they are ready, for each worker.
MOST_FAILED_STARTS = 5
#: Seconds between counts of the workers of a cluster.
_RECOUNT = 2.0
#: Seconds without any worker after which a cluster warns.
NO_WORKERS = 30.0


class Executor(Protocol):
    """A place where jobs are computed.

    `wait` returns the outcome of every submitted job exactly once, even if its worker dies, unless the executor is
    closed first.

    Examples
    --------
    >>> import learncast as lc
    >>> class Counting(lc.sweep.InProcess):
    ...     submitted = 0
    ...     def submit(self, jobs):
    ...         self.submitted += len(jobs)
    ...         super().submit(jobs)
    >>> executor: lc.sweep.Executor = Counting()
    >>> executor.idle(), executor.submitted
    (1, 0)
    """

    workers: int
    #: Seconds of work worth handing out together; 0 if handing out costs almost nothing.
    batch_seconds: float
    #: Reason why tasks are waiting, if there is one.
    warning: str = ""

    def start(self, work: Work) -> None:
        """Prepare to compute jobs of this work."""

    def idle(self) -> int:
        """Return how many batches would begin immediately."""

    def submit(self, jobs: Sequence[Job]) -> None:
        """Compute a batch of jobs in order."""

    def wait(self, seconds: float) -> list[Outcome]:
        """Return new outcomes; wait at most `seconds` for the first."""

    def withdraw(self) -> list[Outcome]:
        """Take back jobs that no worker can begin, when the sweep is to stop."""
        return []

    def close(self, *, now: bool) -> None:
        """End the executor; `now` abandons running jobs."""


class InProcess(Executor):
    """Computes in the calling process, one job at a time.

    Examples
    --------
    >>> import learncast as lc
    >>> executor = lc.sweep.InProcess()
    >>> executor.start(lc.sweep.Work(lambda spec: 2 * spec["x"], {}))
    >>> executor.submit([lc.sweep.Job(0, "2a", {"x": 3})])
    >>> executor.wait(1.0)[0].fate.name
    'done'
    """

    batch_seconds = 0.0

    def __init__(self) -> None:
        self.workers = 1
        self._waiting: deque[Job] = deque()

    def start(self, work: Work) -> None:
        self._work = work

    def idle(self) -> int:
        return 0 if self._waiting else 1

    def submit(self, jobs: Sequence[Job]) -> None:
        self._waiting.extend(jobs)

    def wait(self, seconds: float) -> list[Outcome]:
        return [compute(self._work, self._waiting.popleft())] if self._waiting else []

    def close(self, *, now: bool) -> None:
        self._waiting.clear()


class _Futures(Executor):
    """Batches of jobs that are futures of `concurrent.futures`."""

    def __init__(self) -> None:
        self._running: dict[Future[list[Outcome]], list[Job]] = {}

    def idle(self) -> int:
        return max(0, self.workers - len(self._running))

    def wait(self, seconds: float) -> list[Outcome]:
        done, _ = wait_for(self._running, timeout=seconds, return_when="FIRST_COMPLETED")
        return [outcome for future in done for outcome in self._outcomes(future, self._running.pop(future))]

    def _outcomes(self, future: Future[list[Outcome]], jobs: Sequence[Job]) -> list[Outcome]:
        """Return the outcomes of a batch that has ended."""
        return future.result()


class Processes(_Futures):
    """Worker processes with one thread each; a worker that dies is replaced, and its job is returned.

    Each worker is served by a thread of this process over a pipe of its own. A `ProcessPoolExecutor` would lose the
    jobs of all workers with one, and wait forever for a worker that is killed while it sends a large result.

    Parameters
    ----------
    workers : int, optional
        Number of workers; by default one for each processor.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.sweep.Processes(2).workers
    2
    """

    #: A pipe is fast; the gain is that the results of cheap jobs are synced to the disk together.
    batch_seconds = 0.016

    def __init__(self, workers: int | None = None) -> None:
        super().__init__()
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.workers = cores if workers is None else count("workers", workers)
        self._pool: list[Worker] = []
        #: Workers in a row that died before they were ready; whether new ones may start.
        self._failed, self._closed = 0, False

    def start(self, work: Work) -> None:
        self._payload, self._failed, self._closed = pickled(work), 0, False
        self._threads = ThreadPoolExecutor(self.workers)
        self._pool = [Worker(_work, self._payload) for _ in range(self.workers)]
        self._free = deque(range(self.workers))

    def submit(self, jobs: Sequence[Job]) -> None:
        self._running[self._threads.submit(self._compute, list(jobs))] = list(jobs)

    def _compute(self, jobs: list[Job]) -> list[Outcome]:
        place = self._free.pop()  # that of the worker that was used last, because it has certainly started
        try:
            return [self._outcome(place, job) for job in jobs]
        finally:
            self._free.append(place)

    def _outcome(self, place: int, job: Job) -> Outcome:
        """Return the outcome of a job in one place of the pool, which one thread uses at a time."""
        while not self._pool[place].loaded:
            try:
                self._pool[place].load()
            except WorkerStopped:
                cause, self._failed = self._replace(place), self._failed + 1
                if self._failed >= MOST_FAILED_STARTS * self.workers:
                    remedy = "The function must be importable, and a script needs `if __name__ == '__main__':`."
                    problem = f"Worker processes do not start ({cause}). {remedy}"
                    raise InvalidSpec(problem, field="function") from None
        self._failed = 0
        try:
            outcome: Outcome = self._pool[place].ask(job)
        except WorkerStopped:
            return Outcome(job, Fate.death, error=f"the worker died ({self._replace(place)})")
        return outcome

    def _replace(self, place: int) -> str:
        """Replace a dead worker, and return the cause of its death."""
        dead = self._pool[place]
        dead.kill()
        dead.end()
        if self._closed:
            raise CancelledError
        self._pool[place] = Worker(_work, self._payload)
        code = dead.process.exitcode or 0
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def close(self, *, now: bool) -> None:
        if not self._pool:
            return
        self._closed = True
        for worker in self._pool:
            if now or self._running:
                worker.kill()
        self._threads.shutdown()
        for worker in self._pool:
            worker.end()
        self._pool, self._running = [], {}


def pickled(work: Work) -> bytes:
    """Return the work as bytes for other processes."""
    try:
        content = pickle.dumps(work)
        pickle.loads(content)
    except (pickle.PicklingError, AttributeError, TypeError, ImportError) as error:
        remedy = "Define it at the top of a module, or use executor='in-process'."
        raise InvalidSpec(f"The function must be picklable, got {error}. {remedy}", field="function") from error
    return content


def _work(pipe: Connection, payload: bytes) -> None:
    """Compute jobs until the driver closes the pipe."""
    serve()
    work: Work = pickle.loads(payload)
    with contextlib.suppress(EOFError, OSError):
        pipe.send(None)
        while True:
            pipe.send(compute(work, pipe.recv()))


def _client(dask: Any, address: object) -> Any:
    """Return a dask client; try three times, because dask's loop may not start in ten seconds on a busy machine.

    A client that failed is closed here. If it were collected while another one starts, it would wait for a lock that
    this thread holds.
    """
    for _ in range(3):
        client = dask.Client.__new__(dask.Client)
        try:
            client.__init__(address, timeout="10s", set_as_default=False)
        except BaseException as error:
            with contextlib.suppress(Exception):
                client.close()
            if not isinstance(error, AssertionError):
                raise
        else:
            return client
    raise OSError("dask's event loop does not start")


class Cluster(_Futures):
    """A dask cluster: a new local one, or one that is already running.

    Parameters
    ----------
    scheduler : str, optional
        Address of a running scheduler, like ``tcp://host:8786``. Without it a local cluster is started.
    workers : int, optional
        Workers of a local cluster; for a running one, the number of batches handed out at a time.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.sweep.Cluster("tcp://10.1.2.3:8786", workers=4).workers
    4
    """

    #: Handing out costs a few exchanges with the scheduler for any batch.
    batch_seconds = 0.2

    def __init__(self, scheduler: str | None = None, *, workers: int | None = None) -> None:
        super().__init__()
        _distributed()
        self.scheduler = scheduler
        self.workers = 1 if workers is None else count("workers", workers)
        self._wanted = workers
        self._counted, self._alone_since = -math.inf, math.inf
        self._client: Any = None
        self._cluster: Any = None

    def start(self, work: Work) -> None:
        dask = _distributed()
        self._payload = pickled(work)
        if self.scheduler is None:
            # Loopback, on any free port: a scheduler runs the code of everyone who can reach it.
            host = "127.0.0.1"
            self._cluster = dask.LocalCluster(
                n_workers=self._wanted, threads_per_worker=1, host=host, dashboard_address=f"{host}:0", silence_logs=50
            )
        try:
            # Not the default client: if it failed, it would stay the default for other users of dask in this process.
            self._client = _client(dask, self._cluster if self._cluster is not None else self.scheduler)
            # Not pure: dask must not return the result of an earlier attempt.
            self._pool = self._client.get_executor(pure=False)
        except (OSError, ValueError, TypeError) as error:  # no answer, no address or no certificates
            remedy = "Give an address like tcp://host:8786 and, for TLS, dask's certificates (distributed.comm.tls)."
            raise InvalidSpec(f"No dask scheduler at {self.scheduler}: {error}. {remedy}", field="scheduler") from error

    def idle(self) -> int:
        # Workers come and go; a batch system may start them long after the sweep.
        if self._wanted is None and time.monotonic() - self._counted > _RECOUNT:
            self._counted = time.monotonic()
            self.workers = max(1, self._threads() or 0)
        return super().idle()

    def _threads(self) -> int | None:
        """Return the threads of all workers, or None if the scheduler is gone, which the next `wait` reports."""
        try:
            return sum(self._client.nthreads().values())
        except OSError:
            return None

    def _check_workers(self) -> None:
        """Warn if there have been no workers for a while; a batch system may yet start some."""
        if self._threads() != 0:
            self._alone_since, self.warning = math.inf, ""
        elif self._alone_since == math.inf:
            self._alone_since = time.monotonic()
        elif time.monotonic() - self._alone_since > NO_WORKERS:
            self.warning = (
                f"the dask scheduler {self.scheduler or ''} has had no workers for {NO_WORKERS:.0f} s. Start "
                "`dask worker` with its address."
            )

    def submit(self, jobs: Sequence[Job]) -> None:
        # The work is sent with every batch, because scattered data are lost with the last worker that holds them.
        self._running[self._pool.submit(_compute_batch, self._payload, list(jobs))] = list(jobs)

    def wait(self, seconds: float) -> list[Outcome]:
        outcomes = super().wait(seconds)
        if self._client.status != "running":
            status = self._client.status
            raise InvalidSpec(f"The dask scheduler is {status}. Start it again and resume.", field="scheduler")
        if not outcomes:
            self._check_workers()
        return outcomes

    def _outcomes(self, future: Future[list[Outcome]], jobs: Sequence[Job]) -> list[Outcome]:
        try:
            return future.result()
        except CancelledError:  # or lost, which no job caused
            return [Outcome(job, Fate.unstarted) for job in jobs]
        except _distributed().KilledWorker as error:  # dask does not say over which job
            return [Outcome(job, Fate.death, error=f"{type(error).__name__}: {error}") for job in jobs]
        except Exception as error:
            # An exception of the function is an outcome; any other happened before the function was called.
            message = (
                f"The cluster's workers must be able to load the function, got {error!r}. Install its module there."
            )
            raise InvalidSpec(message, field="function") from error

    def withdraw(self) -> list[Outcome]:
        if self._threads() != 0:
            return []
        unstarted = [Outcome(job, Fate.unstarted) for jobs in self._running.values() for job in jobs]
        self._abandon()
        return unstarted

    def close(self, *, now: bool) -> None:
        self._abandon()
        for one in (self._client, self._cluster):
            if one is not None:
                one.close()

    def _abandon(self) -> None:
        for future in self._running:
            future.cancel()
        self._running = {}


def _distributed() -> Any:
    return package("distributed", "to compute on a cluster", extra="sweep")


def _compute_batch(payload: bytes, jobs: list[Job]) -> list[Outcome]:
    work: Work = _unpickled(payload)
    return [compute(work, job) for job in jobs]


_unpickled = functools.lru_cache(maxsize=2)(pickle.loads)
