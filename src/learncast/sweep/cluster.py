"""Tasks computed by the workers of a dask cluster."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from learncast.errors import InvalidSpec
from learncast.sweep.processes import pickled
from learncast.sweep.work import Fate, Job, Outcome, Work, computed
from learncast.validation import count


class Cluster:
    """A dask cluster: one started here, or one that runs already.

    Parameters
    ----------
    scheduler : str, optional
        Address of a running scheduler, like ``tcp://host:8786``; without it a local cluster is started.
    workers : int, optional
        Workers of a local cluster; of a running one, how many batches to hand out at a time.
    """

    def __init__(self, scheduler: str | None = None, *, workers: int | None = None) -> None:
        _distributed()
        self.scheduler = scheduler
        self.workers = 1 if workers is None else count("workers", workers, why="somebody must compute")
        self._asked = workers
        self._client: Any = None
        self._cluster: Any = None
        self._work: Any = None
        self._running: dict[Any, list[Job]] = {}
        self._run = uuid.uuid4().hex

    def start(self, work: Work) -> None:
        dask = _distributed()
        pickled(work)
        if self.scheduler is None:
            self._cluster = dask.LocalCluster(
                n_workers=self._asked, threads_per_worker=1, dashboard_address=None, silence_logs=50
            )
        try:
            self._client = dask.Client(self._cluster if self._cluster is not None else self.scheduler, timeout="10s")
        except OSError as error:
            raise InvalidSpec(
                required=f"a dask scheduler must answer at {self.scheduler}",
                got=str(error),
                why="it hands out the tasks",
                remedy="start `dask scheduler` and `dask worker`, or leave --scheduler out",
            ) from error
        if self._asked is None:
            self.workers = max(1, sum(self._client.nthreads().values()))
        self._work = self._client.scatter(work, broadcast=True)

    def idle(self) -> int:
        return max(0, self.workers - len(self._running))

    def submit(self, jobs: Sequence[Job]) -> None:
        # A key of its own: dask must not take the result of an earlier attempt for this one's.
        key = f"sweep-{self._run}-{uuid.uuid4().hex}"
        future = self._client.submit(_batch, self._work, list(jobs), key=key, pure=False)
        self._running[future] = list(jobs)

    def wait(self, seconds: float) -> list[Outcome]:
        if not self._running:
            return []
        try:
            _distributed().wait(list(self._running), timeout=seconds, return_when="FIRST_COMPLETED")
        except TimeoutError:
            return []
        found: list[Outcome] = []
        for future in [future for future in self._running if future.done()]:
            found += _returned(future, self._running.pop(future))
        return found

    def close(self, *, now: bool) -> None:
        for future in self._running:
            future.cancel()
        self._running = {}
        if self._client is not None:
            self._client.close()
        if self._cluster is not None:
            self._cluster.close()


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise InvalidSpec(
            required="distributed must be installed to compute on a cluster",
            got="no such package",
            why="dask hands out the tasks",
            remedy="pip install 'learncast[sweep]', or use processes",
        ) from error
    return distributed


def _batch(work: Work, jobs: list[Job]) -> list[Outcome]:
    return [computed(work, job) for job in jobs]


def _returned(future: Any, jobs: list[Job]) -> list[Outcome]:
    """What a future brought; when its workers died, dask does not say over which job."""
    if future.status == "finished":
        return list(future.result())
    error = str(future.exception()) if future.status == "error" else f"the cluster gave it up ({future.status})"
    return [Outcome(job, Fate.death, error=error) for job in jobs]
