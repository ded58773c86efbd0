"""Where questions are answered: equal ones once, a few at a time, in processes that can be stopped."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.to_thread

from learncast._core.errors import OutOfTime
from learncast.web.worker import Stopped, Worker

#: Computations at once, and how many more may wait for their turn; beside these one that takes long, such as measuring
#: responses.
AT_ONCE, WAITING = 2, 32
#: Seconds after which a computation is given up, and after which workers are started: the first picture comes first.
SECONDS, DELAY = 30.0, 1.5
#: Bytes of answers that are kept.
MOST_KEPT = 48 * 2**20


class Busy(Exception):
    """More questions than are let wait."""


@dataclass(frozen=True)
class Question:
    """What is asked, and what works it out in this process.

    Attributes
    ----------
    key : tuple
        Equal for questions with equal answers.
    work : callable
        Works it out here.
    sent : tuple of str, optional
        Room, part and state as another process is told them; None where it cannot be.
    files : mapping
        Dropped files that the state names.
    slow : bool
    """

    key: tuple[str, ...]
    work: Callable[[], str | bytes]
    sent: tuple[str, str, str] | None = None
    files: Mapping[str, tuple[str, bytes]] = field(default_factory=dict)
    slow: bool = False


@dataclass
class _Running:
    task: asyncio.Task[str | bytes]
    waiting: int = 0
    worker: Worker | None = None


class Desk:
    """Answers questions.

    Parameters
    ----------
    workers : bool
        Whether to compute in processes of their own, which use other cores, and can be stopped. While none is ready,
        and where there are none, threads of this process compute.
    """

    def __init__(self, *, workers: bool = False) -> None:
        self.quick, self.slow = anyio.CapacityLimiter(AT_ONCE), anyio.CapacityLimiter(1)
        self.present = 0
        self.kept: OrderedDict[tuple[str, ...], str | bytes] = OrderedDict()
        self.size = 0
        self.running: dict[tuple[str, ...], _Running] = {}
        self.idle: list[Worker] = []
        self.all: list[Worker] = []
        self.closed = not workers
        self.lock = threading.Lock()
        if workers:
            timer = threading.Timer(DELAY, self._hire, [AT_ONCE])
            timer.daemon = True
            timer.start()

    def _hire(self, number: int = 1) -> None:
        with self.lock:
            if self.closed:
                return
            made = [Worker() for _ in range(number)]
            self.all += made
            self.idle += made

    def close(self) -> None:
        """End every worker."""
        with self.lock:
            self.closed = True
            workers, self.all, self.idle = self.all, [], []
        for worker in workers:
            worker.close()

    async def answer(self, question: Question, gone: Callable[[], Any]) -> str | bytes | None:
        """The answer; None where whoever asked has gone before it came.

        Parameters
        ----------
        question : Question
        gone : callable
            Gives an awaitable that returns when whoever asked has gone.
        """
        if question.key in self.kept:
            self.kept.move_to_end(question.key)
            return self.kept[question.key]
        running = self.running.get(question.key)
        if running is None:
            if self.present >= AT_ONCE + WAITING:
                raise Busy
            # Counted here: the limiter itself counts a question only some turns of the event loop after it came.
            self.present += 1
            running = _Running(asyncio.create_task(self._compute(question)))
            # Where nobody waits to hear of its failure, it is nobody's.
            running.task.add_done_callback(lambda task: task.cancelled() or task.exception())
            self.running[question.key] = running
        running.waiting += 1
        leaving = asyncio.ensure_future(gone())
        try:
            await asyncio.wait({running.task, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return await running.task if running.task.done() else None
        finally:
            leaving.cancel()
            running.waiting -= 1
            if not running.waiting and not running.task.done():
                self._stop(question, running)

    def _stop(self, question: Question, running: _Running) -> None:
        """Nobody waits for it any more: a worker is stopped, and what waits for its turn does not get it."""
        self.running.pop(question.key, None)
        if running.worker is not None:
            running.worker.kill()
        else:
            running.task.cancel()

    def limiter(self, question: Question) -> anyio.CapacityLimiter:
        """With whom it waits."""
        return self.slow if question.slow else self.quick

    async def _compute(self, question: Question) -> str | bytes:
        try:
            async with self.limiter(question):
                found = await self._worked(question)
            self._keep(question.key, found)
            return found
        finally:
            self.present -= 1
            if question.key in self.running and self.running[question.key].task is asyncio.current_task():
                del self.running[question.key]

    async def _worked(self, question: Question) -> str | bytes:
        worker = self._hired() if question.sent is not None else None
        if worker is None:
            return await anyio.to_thread.run_sync(question.work, limiter=_unlimited())
        running = self.running.get(question.key)
        if running is not None:
            running.worker = worker
        end = asyncio.get_running_loop().call_later(SECONDS, worker.kill)
        begun = asyncio.get_running_loop().time()
        assert question.sent is not None
        try:
            found = await anyio.to_thread.run_sync(worker.ask, *question.sent, question.files, limiter=_unlimited())
        except Stopped:
            worker.kill()
            if asyncio.get_running_loop().time() - begun < SECONDS:
                raise
            raise OutOfTime(
                f"an answer must be there within {SECONDS:g} seconds, got a computation that was not done. Ask "
                "for less: a larger learning rate, fewer hidden units, a lower accuracy."
            ) from None
        finally:
            end.cancel()
            if running is not None:
                running.worker = None
            self._release(worker)
        if isinstance(found, Exception):
            raise found
        return found

    def _hired(self) -> Worker | None:
        """A worker that is ready and has nothing to do."""
        with self.lock:
            for worker in self.idle:
                if worker.usable:
                    self.idle.remove(worker)
                    return worker
        return None

    def _release(self, worker: Worker) -> None:
        """Let it wait for the next question, or another in its place where it was stopped."""
        with self.lock:
            if worker.usable:
                self.idle.append(worker)
                return
            if worker in self.all:
                self.all.remove(worker)
        threading.Thread(target=worker.close, daemon=True).start()
        threading.Thread(target=self._hire, daemon=True).start()

    def _keep(self, key: tuple[str, ...], found: str | bytes) -> None:
        self.kept[key] = found
        self.size += len(found)
        while self.size > MOST_KEPT:
            _, old = self.kept.popitem(last=False)
            self.size -= len(old)


def _unlimited() -> anyio.CapacityLimiter:
    """Turns are taken before a thread is: a thread of its own each."""
    return anyio.CapacityLimiter(1)
