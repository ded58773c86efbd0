"""The job queue: computes each distinct request once, a few at a time, in worker processes if there are any."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from learncast._core.errors import OutOfTime
from learncast._core.worker import Worker
from learncast.web.answers import work

if TYPE_CHECKING:
    from learncast.windows import Window

#: Computations that run at the same time, at most one of them slow, and how many more may wait.
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
        Equal for equal results.
    run : callable
        Computes the result in this process.
    request : (panel, name, state)
        Names of the panel and of its answer, and the state, from which a worker computes the result.
    files : mapping
        Name and content of the dropped files that the request refers to, by token.
    slow : bool
        Only one slow computation runs at a time, so that quick ones do not wait for it.
    prompt : bool
        Whether to compute in this process if no worker is ready: a quick chart, so that the first one comes first.
    """

    key: tuple[str, ...]
    run: Callable[[], bytes]
    request: tuple[str, str, str]
    files: Mapping[str, tuple[str, bytes]] = field(default_factory=dict)
    slow: bool = False
    prompt: bool = False


class AnswerWorker(Worker):
    """A worker process that computes answers of the panels."""

    def __init__(self, window: Window | None = None) -> None:
        super().__init__(work, window, daemon=True)
        self.busy = False

    def compute(self, computation: Computation) -> bytes:
        """Return the answer to a request, or raise the worker's error."""
        result: bytes | Exception = self.ask((*computation.request, computation.files))
        self.busy = False
        if isinstance(result, Exception):
            raise result
        return result

    def kill(self) -> None:
        """End the process now."""
        super().kill()
        self.process.join()


@dataclass
class _Running:
    task: asyncio.Task[bytes]
    clients: int = 0


class JobQueue:
    """Runs computations and keeps their results.

    Parameters
    ----------
    workers : bool
        Compute in worker processes, which are stopped after `SECONDS`. Without them, compute in threads.
    window : Window, optional
        The window that the last panel shows.
    """

    def __init__(self, *, workers: bool = False, window: Window | None = None) -> None:
        self.total, self.slow = anyio.CapacityLimiter(AT_ONCE), anyio.CapacityLimiter(1)
        self.present = 0
        self.kept: OrderedDict[tuple[str, ...], bytes] = OrderedDict()
        self.size = 0
        self.running: dict[tuple[str, ...], _Running] = {}
        self.window = window
        self.workers: list[AnswerWorker] = []
        self.idle: list[AnswerWorker] = []
        self.wanted, self.scheduled = AT_ONCE if workers else 0, False

    def start_workers(self) -> None:
        """Start as many workers as are missing."""
        while len(self.workers) < self.wanted:
            worker = AnswerWorker(self.window)
            self.workers.append(worker)
            self.idle.append(worker)

    def close(self) -> None:
        """End every worker."""
        self.wanted = 0
        for worker in self.workers:
            worker.kill()
        self.workers, self.idle = [], []

    async def result(self, computation: Computation, disconnected: Callable[[], Awaitable[None]]) -> bytes | None:
        """Return the result, or None if the client disconnects first.

        Parameters
        ----------
        computation : Computation
        disconnected : callable
            Returns when the client has disconnected. A computation that nobody waits for is stopped.
        """
        if not self.scheduled:
            self.scheduled = True
            asyncio.get_running_loop().call_later(DELAY, self.start_workers)
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
                running.task.cancel()

    async def _compute(self, computation: Computation) -> bytes:
        key = computation.key
        try:
            async with AsyncExitStack() as turn:
                if computation.slow:
                    await turn.enter_async_context(self.slow)
                await turn.enter_async_context(self.total)
                worker = self._take_worker(computation)
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

    def _take_worker(self, computation: Computation) -> AnswerWorker | None:
        """Return an idle worker; None if there are no workers, or if none is ready for a prompt computation."""
        if not computation.prompt:
            self.start_workers()
        self.idle.sort(key=lambda worker: not worker.ready)
        return self.idle.pop(0) if self.idle and (self.idle[0].ready or not computation.prompt) else None

    async def _compute_remotely(self, computation: Computation, worker: AnswerWorker) -> bytes:
        worker.busy = True  # until it has answered, whether or not anybody waits for the answer
        try:
            with anyio.fail_after(SECONDS):
                return await anyio.to_thread.run_sync(
                    worker.compute, computation, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
                )
        except TimeoutError:
            remedy = "Choose a larger learning rate, fewer hidden units, a lower accuracy or a smaller file."
            raise OutOfTime(f"The computation takes more than {SECONDS:g} seconds. {remedy}") from None
        finally:
            self._release(worker)

    def _release(self, worker: AnswerWorker) -> None:
        """Make a worker idle again, or kill and replace it if it still computes or has ended."""
        if worker not in self.workers:  # the queue was closed
            return
        if not worker.busy and worker.ready:
            self.idle.append(worker)
            return
        self.workers.remove(worker)
        worker.kill()
        self.start_workers()

    def _keep(self, key: tuple[str, ...], result: bytes) -> None:
        self.size += len(result) - len(self.kept.get(key, b""))
        self.kept[key] = result
        while self.size > MOST_KEPT:
            _, oldest = self.kept.popitem(last=False)
            self.size -= len(oldest)
