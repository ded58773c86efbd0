"""Executors: compute tasks in this process, in worker processes or on a dask cluster."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import enum
import functools
import math
import multiprocessing
import os
import pickle
import time
import traceback
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Protocol

import numpy as np
import xarray as xr

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.limits import allowing, given_bytes
from learncast._core.netcdf import packed
from learncast._core.packages import package
from learncast._core.system import held, one_thread_each, serve
from learncast._core.validation import count
from learncast.sweep.spec import Spec, merged

#: Workers in a row that may die before they are ready, for each worker.
MOST_FAILED_STARTS = 5
#: Seconds between checks whether workers are alive.
_CHECK = 1.0
#: Exceptions of a cancelled future in dask and asyncio.
_CANCELLED = (asyncio.CancelledError, concurrent.futures.CancelledError)
#: Seconds between counts of the workers of a cluster.
_RECOUNT = 2.0
#: Seconds without any worker after which a cluster warns.
NO_WORKERS = 30.0

Function = Callable[[Spec], object]


@dataclass(frozen=True)
class Work:
    """What all tasks of a sweep share.

    Attributes
    ----------
    function : callable
        Maps a `Spec` to a result.
    base : mapping
        Values that do not vary.
    most_bytes : int, optional
        Limit on the size of one file, array or table in a task; by default the limit where the sweep begins.

    Examples
    --------
    >>> import learncast as lc
    >>> work = lc.sweep.Work(lambda spec: spec["factor"] * spec["x"], {"factor": 2})
    >>> work.base["factor"]
    2
    """

    function: Function
    base: Mapping[str, object]
    most_bytes: int | None = field(default_factory=given_bytes)


@dataclass(frozen=True)
class Job:
    """One task to compute: its position in the grid, its hash and its values.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.sweep.Job(0, digest="2a", cell={"x": 3}).cell["x"]
    3
    """

    position: int
    digest: str
    cell: Mapping[str, object]


class Fate(enum.Enum):
    """How a job ended.

    Examples
    --------
    >>> import learncast as lc
    >>> [fate.name for fate in lc.sweep.Fate]
    ['done', 'error', 'death', 'unstarted']
    """

    done = "computed"
    error = "the function raised"
    death = "the worker died while computing it"
    unstarted = "the worker died before it began"


@dataclass(frozen=True)
class Outcome:
    """The end of one job.

    Attributes
    ----------
    job : Job
    fate : Fate
    content : bytes
        The result as a NetCDF file.
    error : str
        The traceback.
    seconds : float
        Computing time.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.sweep.Outcome(lc.sweep.Job(0, "2a", {}), lc.sweep.Fate.unstarted).seconds
    0.0
    """

    job: Job
    fate: Fate
    content: bytes = b""
    error: str = ""
    seconds: float = 0.0


def compute(work: Work, job: Job) -> Outcome:
    """Compute one job; an exception of the function becomes the job's outcome."""
    begun = time.perf_counter()
    try:
        spec = Spec(merged(work.base, job.cell), job.digest)
        with allowing(work.most_bytes):
            content = packed(as_dataset(work.function(spec)))
    except (Exception, SystemExit):
        # Text that cannot be encoded, such as an odd file name, must not stop the ledger.
        error = traceback.format_exc().encode(errors="backslashreplace").decode()
        return Outcome(job, Fate.error, error=error, seconds=time.perf_counter() - begun)
    return Outcome(job, Fate.done, content=content, seconds=time.perf_counter() - begun)


def as_dataset(value: object) -> xr.Dataset:
    """Return the result of a function as a Dataset.

    A DataArray keeps its name, an object with a `dataset` is replaced by it, a number becomes the variable ``value``,
    and a mapping holds variables: numbers, strings, DataArrays or pairs (dimensions, array).
    """
    if isinstance(value, xr.Dataset):
        return value
    if isinstance(value, xr.DataArray):
        return value.to_dataset(name=value.name or "value")
    if isinstance(value, Mapping):
        return xr.Dataset({str(key): item for key, item in value.items()})
    # After the others, because `.dataset` of a Dataset may be a variable with this name.
    if isinstance(dataset := getattr(value, "dataset", None), xr.Dataset):
        return dataset
    array = np.asarray(value)
    if array.ndim == 0 and array.dtype.kind in "biufU":
        return xr.Dataset({"value": ((), array)})
    kind = type(value).__name__
    raise UnsupportedModel(f"function must return a Dataset, array, number or mapping, got {kind}.", field="function")


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


@dataclass(eq=False)
class _Worker:
    process: SpawnProcess
    pipe: Connection
    jobs: deque[Job] = field(default_factory=deque)
    ready: bool = False


class Processes(Executor):
    """Worker processes with one thread each; a worker that dies is replaced and its jobs are returned.

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
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.workers = cores if workers is None else count("workers", workers)
        self._pool: list[_Worker] = []
        self._outcomes: list[Outcome] = []
        self._failed_starts = 0
        self._checked = time.monotonic()

    def start(self, work: Work) -> None:
        self._payload = pickled(work)
        self._pool = [self._new_worker() for _ in range(self.workers)]

    def idle(self) -> int:
        return sum(not worker.jobs for worker in self._pool)

    def submit(self, jobs: Sequence[Job]) -> None:
        # Prefer a worker that is ready to one that is still starting.
        free = [worker for worker in self._pool if not worker.jobs]
        worker = next((w for w in free if w.ready), free[0])
        worker.jobs.extend(jobs)
        try:
            worker.pipe.send(list(jobs))
        except OSError:
            self._replace(worker)

    def wait(self, seconds: float) -> list[Outcome]:
        if not self._outcomes:
            ready = wait([worker.pipe for worker in self._pool], seconds)
            for worker in [worker for worker in self._pool if worker.pipe in ready]:
                self._receive(worker)
            self._check_alive()
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def close(self, *, now: bool) -> None:
        for worker in self._pool:
            if now or worker.jobs:
                worker.process.kill()
            worker.pipe.close()
        for worker in self._pool:
            worker.process.join(timeout=5.0)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._pool = []

    def _receive(self, worker: _Worker) -> None:
        """Read everything that a worker has sent; the end of its pipe means that it died."""
        try:
            while worker.pipe.poll():
                outcome: Outcome | None = worker.pipe.recv()
                if outcome is None:
                    worker.ready, self._failed_starts = True, 0
                else:
                    worker.jobs.popleft()
                    self._outcomes.append(outcome)
        except (EOFError, OSError, pickle.UnpicklingError):
            self._replace(worker)

    def _check_alive(self) -> None:
        """Find dead workers whose pipe is kept open by one of their children."""
        if time.monotonic() - self._checked < _CHECK:
            return
        self._checked = time.monotonic()
        for worker in list(self._pool):
            if not worker.process.is_alive():
                self._receive(worker)
                if worker in self._pool:
                    self._replace(worker)

    def _replace(self, worker: _Worker) -> None:
        """Return the jobs of a dead worker and start another."""
        worker.pipe.close()
        worker.process.kill()
        worker.process.join()
        code = worker.process.exitcode or 0
        cause = f"signal {-code}" if code < 0 else f"exit code {code}"
        for k, job in enumerate(worker.jobs):
            begun = k == 0 and worker.ready
            error = f"the worker died ({cause})" if begun else ""
            self._outcomes.append(Outcome(job, Fate.death if begun else Fate.unstarted, error=error))
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= MOST_FAILED_STARTS * self.workers:
                remedy = "The function must be importable, and a script needs `if __name__ == '__main__':`."
                raise InvalidSpec(f"Worker processes do not start ({cause}). {remedy}", field="function")
        self._pool[self._pool.index(worker)] = self._new_worker()

    def _new_worker(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, self._payload))
        with one_thread_each(), held():
            process.start()
        # Close our copy: the pipe must end when the worker does.
        theirs.close()
        return _Worker(process, ours)


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
    """Compute batches until the driver closes the pipe."""
    serve()
    work: Work = pickle.loads(payload)
    with contextlib.suppress(EOFError, OSError):
        pipe.send(None)
        while True:
            for job in pipe.recv():
                pipe.send(compute(work, job))


def _client(dask: Any, address: object) -> object:
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


class Cluster(Executor):
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
        _distributed()
        self.scheduler = scheduler
        self.workers = 1 if workers is None else count("workers", workers)
        self._wanted = workers
        self._counted, self._alone_since = -math.inf, math.inf
        self._client: Any = None
        self._cluster: Any = None
        self._running: dict[concurrent.futures.Future[list[Outcome]], tuple[Any, list[Job]]] = {}

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
        except (OSError, ValueError, TypeError) as error:  # no answer, no address or no certificates
            remedy = "Give an address like tcp://host:8786 and, for TLS, dask's certificates (distributed.comm.tls)."
            raise InvalidSpec(f"No dask scheduler at {self.scheduler}: {error}. {remedy}", field="scheduler") from error

    def idle(self) -> int:
        # Workers come and go; a batch system may start them long after the sweep.
        if self._wanted is None and time.monotonic() - self._counted > _RECOUNT:
            self._counted = time.monotonic()
            self.workers = max(1, self._threads() or 0)
        return max(0, self.workers - len(self._running))

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
        # A unique key, so that dask does not return the result of an earlier attempt. The work is sent with every
        # batch, because scattered data are lost with the last worker that holds them.
        key = f"sweep-{uuid.uuid4().hex}"
        future = self._client.submit(_compute_batch, self._payload, list(jobs), key=key, pure=False)
        fetched = asyncio.run_coroutine_threadsafe(self._fetch(future), self._client.loop.asyncio_loop)
        self._running[fetched] = future, list(jobs)

    async def _fetch(self, future: object) -> list[Outcome]:
        """Fetch the outcomes of a batch as soon as they exist.

        Each batch is fetched separately: if its worker is lost it is computed again, and the others must not wait on
        workers that may be lost too.
        """
        outcomes: list[Outcome] = await self._client.gather(future, asynchronous=True)
        return outcomes

    def wait(self, seconds: float) -> list[Outcome]:
        if not self._running:
            return []
        concurrent.futures.wait(self._running, timeout=seconds, return_when="FIRST_COMPLETED")
        if self._client.status != "running":
            status = self._client.status
            raise InvalidSpec(f"The dask scheduler is {status}. Start it again and resume.", field="scheduler")
        outcomes: list[Outcome] = []
        for fetched in [one for one in self._running if one.done()]:
            outcomes += _outcomes(fetched, *self._running.pop(fetched))
        if not outcomes:
            self._check_workers()
        return outcomes

    def withdraw(self) -> list[Outcome]:
        if self._threads() != 0:
            return []
        unstarted = [Outcome(job, Fate.unstarted) for _, jobs in self._running.values() for job in jobs]
        self._abandon()
        return unstarted

    def close(self, *, now: bool) -> None:
        self._abandon()
        for one in (self._client, self._cluster):
            if one is not None:
                one.close()

    def _abandon(self) -> None:
        for fetched, (future, _) in self._running.items():
            future.cancel()
            fetched.cancel()
        self._running = {}


def _distributed() -> Any:
    return package("distributed", "to compute on a cluster", extra="sweep")


def _compute_batch(payload: bytes, jobs: list[Job]) -> list[Outcome]:
    work: Work = _unpickled(payload)
    return [compute(work, job) for job in jobs]


_unpickled = functools.lru_cache(maxsize=2)(pickle.loads)


def _outcomes(fetched: concurrent.futures.Future[list[Outcome]], future: Any, jobs: list[Job]) -> list[Outcome]:
    """Return the outcomes of a batch; if its worker died, dask does not say over which job."""
    if future.status != "error":
        with contextlib.suppress(OSError, *_CANCELLED):  # cancelled or lost, which no job caused
            return fetched.result()
        return [Outcome(job, Fate.unstarted) for job in jobs]
    error = future.exception()
    if isinstance(error, _distributed().KilledWorker):
        return [Outcome(job, Fate.death, error=f"{type(error).__name__}: {error}") for job in jobs]
    # An exception of the function is an outcome; any other happened before the function was called.
    message = f"The cluster's workers must be able to load the function, got {error!r}. Install its module there."
    raise InvalidSpec(message, field="function")
