"""A worker process, which answers requests over a pipe and can be killed."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
from collections.abc import Callable
from multiprocessing import resource_tracker
from typing import Any

from learncast._core.system import WINDOWS, held, one_thread_each

#: Seconds between checks whether a worker is alive.
_CHECK = 1.0
#: One start at a time: the number of threads is set in the environment of this process.
_STARTING = threading.Lock()


class WorkerStopped(Exception):
    """The worker process ended before it answered."""


class Worker:
    """A process with one thread for linear algebra, which computes one answer at a time.

    Stop signals do not reach it until `serve` unblocks them with `learncast._core.system.listen`.

    Parameters
    ----------
    serve : callable
        Function of a module that the process calls with its end of the pipe and `arguments`. It sends one message when
        it is ready, and one for each request.
    *arguments
    daemon : bool
        Whether the process ends with this one. A daemon may not start processes.

    Attributes
    ----------
    process : multiprocessing.Process
    loaded : bool
        Whether the process has said that it is ready.
    """

    def __init__(self, serve: Callable[..., None], *arguments: object, daemon: bool = False) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process, self.loaded = context.Process(target=serve, args=(theirs, *arguments), daemon=daemon), False
        if not WINDOWS:
            resource_tracker.ensure_running()  # its own start would let signals through again
        with _STARTING, one_thread_each(), held():
            self.process.start()
        theirs.close()  # the pipe must end when the process does

    @property
    def ready(self) -> bool:
        """Whether the process waits for a request."""
        if not self.loaded and self._pipe.poll():
            self.load()
        return self.loaded and self.process.is_alive()

    def load(self) -> None:
        """Wait until the process is ready."""
        if not self.loaded:
            self._receive()
            self.loaded = True

    def ask(self, request: object) -> Any:
        """Return the answer to a request."""
        self.load()
        try:
            self._pipe.send(request)
        except OSError as error:
            raise WorkerStopped from error
        return self._receive()

    def _receive(self) -> Any:
        """Return the next message; the process may be dead although one of its children keeps the pipe open."""
        try:
            while not self._pipe.poll(_CHECK):
                if not self.process.is_alive() and not self._pipe.poll():
                    raise WorkerStopped
            return self._pipe.recv()
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise WorkerStopped from error

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()

    def end(self) -> None:
        """Close the pipe, at which the process ends."""
        self._pipe.close()
        self.process.join(timeout=5.0)
        if self.process.is_alive():
            self.kill()
            self.process.join()
