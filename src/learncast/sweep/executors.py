"""Where tasks are computed: in this process, in others of this machine, or on a cluster; any may die at any time."""

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
from typing import Any, Protocol

import numpy as np
import xarray as xr

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.limits import allowing, given_bytes
from learncast._core.netcdf import packed
from learncast._core.packages import package
from learncast._core.system import held, serve
from learncast._core.threads import one_thread_each
from learncast._core.validation import count
from learncast.sweep.spec import Spec, placed

#: Deaths of new workers in a row, before any job was begun, after which no more are started.
MOST_STILLBORN = 5
#: Seconds between looks whether workers live.
_LOOK = 1.0
#: How dask and asyncio say that nobody waits for an answer any more.
_CANCELLED = (asyncio.CancelledError, concurrent.futures.CancelledError)
#: Seconds after which the workers of a running cluster are counted again.
_RECOUNT = 2.0
#: Seconds without any worker after which that is said.
NOBODY = 30.0


@dataclass(frozen=True)
class Work:
    """What all tasks of a sweep share.

    Attributes
    ----------
    function : callable
        From a `Spec` to a result.
    base : mapping
        Values that do not vary.
    most_bytes : int, optional
        That one file, array or table may take where tasks are computed: as it is where the sweep begins.
    """

    function: Callable[[Spec], Any]
    base: Mapping[str, Any]
    most_bytes: int | None = field(default_factory=given_bytes)


@dataclass(frozen=True)
class Job:
    """One task to be computed: its place in the grid, its hash and what it takes there."""

    position: int
    digest: str
    cell: Mapping[str, Any]


class Fate(enum.Enum):
    """How a job came back."""

    done = "computed"
    error = "the function raised"
    death = "the worker died while computing it"
    unstarted = "the worker died before it began"


@dataclass(frozen=True)
class Outcome:
    """How one job came back.

    Attributes
    ----------
    job : Job
    fate : Fate
    content : bytes
        The packed result.
    error : str
        The traceback.
    seconds : float
    """

    job: Job
    fate: Fate
    content: bytes = b""
    error: str = ""
    seconds: float = 0.0


def computed(work: Work, job: Job) -> Outcome:
    """Compute one job; whatever its function raises is its outcome."""
    begun = time.perf_counter()
    try:
        spec = Spec(placed(work.base, job.cell), job.digest)
        with allowing(work.most_bytes):
            content = packed(as_dataset(work.function(spec)))
    except (Exception, SystemExit):
        # Words that cannot be encoded, such as an odd file name, must not stop the ledger.
        error = traceback.format_exc().encode(errors="backslashreplace").decode()
        return Outcome(job, Fate.error, error=error, seconds=time.perf_counter() - begun)
    return Outcome(job, Fate.done, content=content, seconds=time.perf_counter() - begun)


def as_dataset(value: Any) -> xr.Dataset:
    """What a function returned, as a Dataset.

    A Dataset stays as it is, a DataArray gets a name, objects with a `dataset` give it, numbers become ``value``, and
    a mapping names its own: each a number, a word, a DataArray or a pair (dimensions, array).
    """
    if isinstance(value, xr.Dataset):
        return value
    if isinstance(value, xr.DataArray):
        return value.to_dataset(name=value.name or "value")
    if isinstance(value, Mapping):
        return xr.Dataset({str(key): item for key, item in value.items()})
    # Only now: of a Dataset or an array, `.dataset` may be a variable or an attribute called so.
    if isinstance(found := getattr(value, "dataset", None), xr.Dataset):
        return found
    if np.ndim(value) == 0 and np.asarray(value).dtype.kind in "biufU":
        return xr.Dataset({"value": ((), value)})
    raise UnsupportedModel(
        "a swept function must return a Dataset, a DataArray, a number or a mapping of these, got "
        f"{type(value).__name__}."
    )


class Executor(Protocol):
    """What the driver needs of a place that computes.

    Every submitted job comes back exactly once from `wait`, whatever happens to the worker, unless the executor is
    closed first.
    """

    workers: int
    #: Seconds of work that are worth handing out at a time; 0 where handing out costs next to nothing.
    batch_seconds: float
    #: What keeps tasks waiting, in words.
    trouble: str = ""

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
        return []

    def close(self, *, now: bool) -> None:
        """End; `now` abandons what is running."""


class InProcess(Executor):
    """Compute in the calling process, one job at a time."""

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
        return [computed(self._work, self._waiting.popleft())] if self._waiting else []

    def close(self, *, now: bool) -> None:
        self._waiting.clear()


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

    #: A pipe is quick: what is gained is that results of cheap jobs are put on the disk together.
    batch_seconds = 0.016

    def __init__(self, workers: int | None = None) -> None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.workers = cores if workers is None else count("workers", workers)
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
                    f"worker processes must be able to start, got {self._stillborn} that died first "
                    f"({_ending(worker.process.exitcode)}). See what they print; the function must be importable, and "
                    "a script needs `if __name__ == '__main__':`."
                )
        self._crew[self._crew.index(worker)] = self._hired()

    def _hired(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_labour, args=(theirs, self._payload))
        with one_thread_each(), held():
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
            f"the function must be picklable, got {getattr(work.function, '__qualname__', work.function)!s} "
            f"({error}). Define it at the top of a module, or use executor='in-process'."
        ) from error
    return content


def _labour(pipe: Connection, payload: bytes) -> None:
    """Compute batches until the driver hangs up."""
    serve()
    work: Work = pickle.loads(payload)
    try:
        pipe.send(None)
        while True:
            for job in pipe.recv():
                outcome = computed(work, job)
                pipe.send((outcome.fate, outcome.content, outcome.error, outcome.seconds))
    except (EOFError, OSError):
        return


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {-code}"
    return f"exit code {code}"


def _client(dask: Any, place: Any) -> Any:
    """A client; where a machine is so busy that dask's loop does not start in its ten seconds it is asked again.

    One that failed is closed here and now: collected while another one starts, it would wait for that one's lock, which
    this very thread holds.
    """
    for _ in range(3):
        client = dask.Client.__new__(dask.Client)
        try:
            client.__init__(place, timeout="10s", set_as_default=False)
        except BaseException as error:
            with contextlib.suppress(Exception):
                client.close()
            if not isinstance(error, AssertionError):
                raise
        else:
            return client
    raise OSError("dask's event loop does not start")


class Cluster(Executor):
    """A dask cluster: one started here, or one that runs already.

    Parameters
    ----------
    scheduler : str, optional
        Address of a running scheduler, like ``tcp://host:8786``; without it a local cluster is started.
    workers : int, optional
        Workers of a local cluster; of a running one, how many batches to hand out at a time.
    """

    #: Handing out costs a few exchanges with the scheduler, whatever the batch holds.
    batch_seconds = 0.2

    def __init__(self, scheduler: str | None = None, *, workers: int | None = None) -> None:
        _distributed()
        self.scheduler = scheduler
        self.workers = 1 if workers is None else count("workers", workers)
        self._asked = workers
        self._counted, self._since = -math.inf, math.inf
        self._client: Any = None
        self._cluster: Any = None
        self._payload = b""
        self._running: dict[concurrent.futures.Future[list[Outcome]], tuple[Any, list[Job]]] = {}

    def start(self, work: Work) -> None:
        dask = _distributed()
        self._payload = pickled(work)
        if self.scheduler is None:
            # Loopback, on any port: whoever reaches a scheduler can run code on its workers.
            own = "127.0.0.1"
            self._cluster = dask.LocalCluster(
                n_workers=self._asked, threads_per_worker=1, host=own, dashboard_address=f"{own}:0", silence_logs=50
            )
        try:
            place = self._cluster if self._cluster is not None else self.scheduler
            # Not the default one: a client that failed would stay that for whatever else uses dask in this process.
            self._client = _client(dask, place)
        except (OSError, ValueError, TypeError) as error:  # nobody there, no address at all, or no certificates
            raise InvalidSpec(
                f"a dask scheduler must answer at {self.scheduler}, got {error!s}. Start `dask scheduler` and "
                "`dask worker`, and give its address like tcp://host:8786; behind TLS, give dask its "
                "certificates too (distributed.comm.tls)."
            ) from error

    def idle(self) -> int:
        # Workers come and go; a batch system may start them long after the sweep.
        if self._asked is None and time.monotonic() - self._counted > _RECOUNT:
            self._counted = time.monotonic()
            self.workers = max(1, self._threads() or 0)
        return max(0, self.workers - len(self._running))

    def _threads(self) -> int | None:
        """Threads of all workers; None where the scheduler is gone, which the next wait says."""
        try:
            return sum(self._client.nthreads().values())
        except OSError:
            return None

    def _check_workers(self) -> None:
        """Notice that what was handed out finds nobody to take it; a batch system may yet start workers."""
        if self._threads() != 0:
            self._since, self.trouble = math.inf, ""
        elif self._since == math.inf:
            self._since = time.monotonic()
        elif time.monotonic() - self._since > NOBODY:
            self.trouble = (
                f"the dask scheduler {self.scheduler or ''} has had no workers for {NOBODY:.0f} s, and tasks wait: "
                "start `dask worker` with its address, and see whether it is reached (names, firewalls, certificates)"
            )

    def submit(self, jobs: Sequence[Job]) -> None:
        # A key of its own: dask must not take the result of an earlier attempt for this one's. The work goes along
        # with every batch, for what is scattered is lost with the last worker that holds it.
        key = f"sweep-{uuid.uuid4().hex}"
        future = self._client.submit(_batch, self._payload, list(jobs), key=key, pure=False)
        brought = asyncio.run_coroutine_threadsafe(self._brought(future), self._client.loop.asyncio_loop)
        self._running[brought] = future, list(jobs)

    async def _brought(self, future: Any) -> list[Outcome]:
        """What a batch brings, fetched as soon as it is there.

        Each is waited for by itself: one that was lost with its worker is computed again, and whoever waited for it
        would leave others where their workers may be lost too.
        """
        found: list[Outcome] = await self._client.gather(future, asynchronous=True)
        return found

    def wait(self, seconds: float) -> list[Outcome]:
        if not self._running:
            return []
        concurrent.futures.wait(self._running, timeout=seconds, return_when="FIRST_COMPLETED")
        if self._client.status != "running":
            raise InvalidSpec(
                f"the dask scheduler must go on running, got a connection that is {self._client.status}. Start it "
                "again and resume: what was entered is kept."
            )
        found: list[Outcome] = []
        for brought in [one for one in self._running if one.done()]:
            found += _returned(brought, *self._running.pop(brought))
        if not found:
            self._check_workers()
        return found

    def withdraw(self) -> list[Outcome]:
        if self._threads() != 0:
            return []
        found = [Outcome(job, Fate.unstarted) for _, jobs in self._running.values() for job in jobs]
        self._abandon()
        return found

    def close(self, *, now: bool) -> None:
        self._abandon()
        for one in (self._client, self._cluster):
            if one is not None:
                one.close()

    def _abandon(self) -> None:
        for brought, (future, _) in self._running.items():
            future.cancel()
            brought.cancel()
        self._running = {}


def _distributed() -> Any:
    return package("distributed", "to compute on a cluster", extra="sweep")


def _batch(payload: bytes, jobs: list[Job]) -> list[Outcome]:
    work = _unpickled(payload)
    return [computed(work, job) for job in jobs]


@functools.lru_cache(maxsize=2)
def _unpickled(payload: bytes) -> Work:
    work: Work = pickle.loads(payload)
    return work


def _returned(brought: concurrent.futures.Future[list[Outcome]], future: Any, jobs: list[Job]) -> list[Outcome]:
    """What a future brought; when its workers died, dask does not say over which job."""
    if future.status != "error":
        with contextlib.suppress(OSError, *_CANCELLED):  # cancelled or lost, which is nobody's fault
            return brought.result()
        return [Outcome(job, Fate.unstarted) for job in jobs]
    error = future.exception()
    if isinstance(error, _distributed().KilledWorker):
        return [Outcome(job, Fate.death, error=f"{type(error).__name__}: {error}") for job in jobs]
    # What the function raises is an outcome; anything else happened before it was called.
    raise InvalidSpec(
        f"workers of the cluster must be able to load the function, got {type(error).__name__}: {error}. "
        "Install the same learncast and the function's module where the workers run, then resume."
    )
