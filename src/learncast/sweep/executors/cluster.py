"""Tasks computed by the workers of a dask cluster."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import math
import pickle
import time
import uuid
from collections.abc import Sequence
from typing import Any

from learncast.errors import InvalidSpec
from learncast.packages import package
from learncast.sweep.executors.executor import Executor, Fate, Job, Outcome, Work, computed
from learncast.sweep.executors.processes import pickled
from learncast.validation import count

#: How dask and asyncio say that nobody waits for an answer any more.
_CANCELLED = (asyncio.CancelledError, concurrent.futures.CancelledError)
#: Seconds after which the workers of a running cluster are counted again.
_RECOUNT = 2.0


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
        self.workers = 1 if workers is None else count("workers", workers, why="somebody must compute")
        self._asked = workers
        self._counted = -math.inf
        self._client: Any = None
        self._cluster: Any = None
        self._payload = b""
        self._running: dict[Any, list[Job]] = {}
        self._run = uuid.uuid4().hex

    def start(self, work: Work) -> None:
        dask = _distributed()
        self._payload = pickled(work)
        if self.scheduler is None:
            # Loopback, and no page: whoever reaches a scheduler can run code on its workers.
            self._cluster = dask.LocalCluster(
                n_workers=self._asked, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, silence_logs=50
            )
        try:
            place = self._cluster if self._cluster is not None else self.scheduler
            # Not the default one: a client that failed would stay that for whatever else uses dask in this process.
            self._client = dask.Client(place, timeout="10s", set_as_default=False)
        except (OSError, ValueError) as error:  # nobody there, or no address at all
            raise InvalidSpec(
                required=f"a dask scheduler must answer at {self.scheduler}",
                got=str(error),
                why="it hands out the tasks",
                remedy="start `dask scheduler` and `dask worker`, and give its address like tcp://host:8786",
            ) from error

    def idle(self) -> int:
        # Workers come and go; a batch system may start them long after the sweep.
        if self._asked is None and time.monotonic() - self._counted > _RECOUNT:
            self._counted = time.monotonic()
            self.workers = max(1, sum(self._client.nthreads().values()))
        return max(0, self.workers - len(self._running))

    def submit(self, jobs: Sequence[Job]) -> None:
        # A key of its own: dask must not take the result of an earlier attempt for this one's. The work goes along
        # with every batch, for what is scattered is lost with the last worker that holds it.
        key = f"sweep-{self._run}-{uuid.uuid4().hex}"
        future = self._client.submit(_batch, self._payload, list(jobs), key=key, pure=False)
        self._running[future] = list(jobs)

    def wait(self, seconds: float) -> list[Outcome]:
        if not self._running:
            return []
        with self._client.as_current(), contextlib.suppress(TimeoutError, *_CANCELLED):
            _distributed().wait(list(self._running), timeout=seconds, return_when="FIRST_COMPLETED")
        if self._client.status != "running":
            raise InvalidSpec(
                required="the dask scheduler must go on running",
                got=f"a connection that is {self._client.status}",
                why="nobody hands out the tasks",
                remedy="start it again and resume: what was entered is kept",
            )
        found: list[Outcome] = []
        for future in [future for future in self._running if future.done()]:
            found += _returned(future, self._running.pop(future))
        return found

    def withdraw(self) -> list[Outcome]:
        if self._client.nthreads():
            return []
        found = [Outcome(job, Fate.unstarted) for jobs in self._running.values() for job in jobs]
        self._abandon()
        return found

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
    remedy = "pip install 'learncast[sweep]', or use processes"
    return package("distributed", "to compute on a cluster", why="dask hands out the tasks", remedy=remedy)


def _batch(payload: bytes, jobs: list[Job]) -> list[Outcome]:
    work = _unpickled(payload)
    return [computed(work, job) for job in jobs]


@functools.lru_cache(maxsize=2)
def _unpickled(payload: bytes) -> Work:
    work: Work = pickle.loads(payload)
    return work


def _returned(future: Any, jobs: list[Job]) -> list[Outcome]:
    """What a future brought; when its workers died, dask does not say over which job."""
    status = future.status
    if status == "finished":
        with contextlib.suppress(OSError, *_CANCELLED):  # its worker died between computing and sending
            return list(future.result())
    if status != "error":  # cancelled or lost, which is nobody's fault
        return [Outcome(job, Fate.unstarted) for job in jobs]
    error = future.exception()
    if isinstance(error, _distributed().KilledWorker):
        return [Outcome(job, Fate.death, error=f"{type(error).__name__}: {error}") for job in jobs]
    # What the function raises is an outcome; anything else happened before it was called.
    raise InvalidSpec(
        required="workers of the cluster must be able to load the function",
        got=f"{type(error).__name__}: {error}",
        why="no task can be computed there",
        remedy="install the same learncast and the function's module where the workers run, then resume",
    )
