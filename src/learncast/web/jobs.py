"""The job queue: computes each distinct request once, a few at a time, in worker processes if there are any."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import anyio
import anyio.to_thread

from learncast._core.errors import OutOfTime
from learncast.web.worker import Worker, WorkerStopped

#: Quick computations that run at the same time, and how many more may wait; one slow computation runs besides.
AT_ONCE, WAITING = 2, 32
#: Seconds after which a computation is stopped, and after which workers start, so that the first chart comes first.
SECONDS, DELAY = 30.0, 1.5
#: Bytes of results that are kept.
MOST_KEPT = 48 * 2**20


class QueueFull(Exception):
    """More computations than may wait."""


@dataclass(frozen=True)
class Computation:
    """A computation that the queue can run.

    Attributes
    ----------
    key : tuple of str
        Equal for computations with equal results.
    run : callable
        Computes the result in this process.
    remote : tuple of str, optional
        Panel, part and state, for a worker process; None if only this process can compute it.
    files : mapping
        Name and content of the dropped files that it needs, by token.
    slow : bool
    """

    key: tuple[str, ...]
    run: Callable[[], str | bytes]
    remote: tuple[str, str, str] | None = None
    files: Mapping[str, tuple[str, bytes]] = field(default_factory=dict)
    slow: bool = False


@dataclass
class _Running:
    task: asyncio.Task[str | bytes]
    clients: int = 0
    worker: Worker | None = None


class JobQueue:
    """Runs computations and keeps their results.

    Parameters
    ----------
    workers : bool
        Whether to start worker processes, which use other cores and can be killed. Threads of this process compute
        while no worker is ready.
    """

    def __init__(self, *, workers: bool = False) -> None:
        self.quick, self.slow = anyio.CapacityLimiter(AT_ONCE), anyio.CapacityLimiter(1)
        self.present = 0
        self.kept: OrderedDict[tuple[str, ...], str | bytes] = OrderedDict()
        self.size = 0
        self.running: dict[tuple[str, ...], _Running] = {}
        self.workers: list[Worker] = []
        self.idle: list[Worker] = []
        self.closed = not workers
        self.lock = threading.Lock()
        if workers:
            timer = threading.Timer(DELAY, self._start_workers, [AT_ONCE])
            timer.daemon = True
            timer.start()

    def _start_workers(self, number: int = 1) -> None:
        with self.lock:
            if self.closed:
                return
            workers = [Worker() for _ in range(number)]
            self.workers += workers
            self.idle += workers

    def close(self) -> None:
        """End every worker."""
        with self.lock:
            self.closed = True
            workers, self.workers, self.idle = self.workers, [], []
        for worker in workers:
            worker.close()

    async def result(self, computation: Computation, disconnected: Callable[[], Awaitable[None]]) -> str | bytes | None:
        """Return the result, or None if the client disconnects first.

        Parameters
        ----------
        computation : Computation
        disconnected : callable
            Its awaitable returns when the client has disconnected.
        """
        key = computation.key
        if key in self.kept:
            self.kept.move_to_end(key)
            return self.kept[key]
        running = self.running.get(key)
        if running is None:
            if self.present >= AT_ONCE + WAITING:
                raise QueueFull
            # The limiter would count the computation only after some turns of the event loop.
            self.present += 1
            running = self.running[key] = _Running(asyncio.create_task(self._compute(computation)))
            # Retrieve the exception even if no client waits for it any more.
            running.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        running.clients += 1
        leaving = asyncio.ensure_future(disconnected())
        try:
            await asyncio.wait({running.task, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return await running.task if running.task.done() else None
        finally:
            leaving.cancel()
            running.clients -= 1
            if not running.clients and not running.task.done():  # nobody waits for it any more
                self.running.pop(key, None)
                if running.worker is not None:
                    running.worker.kill()
                else:
                    running.task.cancel()

    async def _compute(self, computation: Computation) -> str | bytes:
        key = computation.key
        try:
            async with self.slow if computation.slow else self.quick:
                worker = self._take_worker() if computation.remote is not None else None
                if worker is None:
                    result = await anyio.to_thread.run_sync(computation.run, limiter=anyio.CapacityLimiter(1))
                else:
                    result = await self._compute_remotely(computation, worker)
            self._keep(key, result)
            return result
        finally:
            self.present -= 1
            if key in self.running and self.running[key].task is asyncio.current_task():
                del self.running[key]

    async def _compute_remotely(self, computation: Computation, worker: Worker) -> bytes:
        assert computation.remote is not None
        running, loop = self.running.get(computation.key), asyncio.get_running_loop()
        if running is not None:
            running.worker = worker
        timeout, begun = loop.call_later(SECONDS, worker.kill), loop.time()
        try:
            return await anyio.to_thread.run_sync(
                worker.compute, *computation.remote, computation.files, limiter=anyio.CapacityLimiter(1)
            )
        except WorkerStopped:
            worker.kill()
            if loop.time() - begun < SECONDS:
                raise
            remedy = "Choose a larger learning rate, fewer hidden units or a lower accuracy."
            raise OutOfTime(f"The computation takes more than {SECONDS:g} seconds. {remedy}") from None
        finally:
            timeout.cancel()
            if running is not None:
                running.worker = None
            self._release(worker)

    def _take_worker(self) -> Worker | None:
        """Return an idle worker that is ready, if there is one."""
        with self.lock:
            worker = next((worker for worker in self.idle if worker.usable), None)
            if worker is not None:
                self.idle.remove(worker)
            return worker

    def _release(self, worker: Worker) -> None:
        """Make a worker idle again, or replace it if it was killed."""
        with self.lock:
            if worker.usable:
                self.idle.append(worker)
                return
            if worker in self.workers:
                self.workers.remove(worker)
        for target in (worker.close, self._start_workers):
            threading.Thread(target=target, daemon=True).start()

    def _keep(self, key: tuple[str, ...], result: str | bytes) -> None:
        self.size += len(result) - len(self.kept.get(key, b""))
        self.kept[key] = result
        while self.size > MOST_KEPT:
            _, oldest = self.kept.popitem(last=False)
            self.size -= len(oldest)
