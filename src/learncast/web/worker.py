"""A worker process as its parent sees it: it computes views and can be killed at any time."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress

from learncast._core.system import one_thread_each

#: Bytes that a pipe holds where this can be set: a whole answer, so that a worker does not wait for its reader.
_PIPE_SIZE = 2**18


class WorkerStopped(Exception):
    """The worker process ended before it answered."""


class Worker:
    """A running `learncast.web.worker_process`. Messages are pickles on its standard input and output."""

    def __init__(self) -> None:
        with one_thread_each():  # the arrays are small: several threads would only wait for each other
            self.process = subprocess.Popen(
                [sys.executable, "-m", "learncast.web.worker_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pipesize=_PIPE_SIZE,
                start_new_session=True,  # Ctrl-C reaches only the server, which ends its workers itself
            )
        self.ready, self.killed = False, False
        self.tokens: set[str] = set()
        threading.Thread(target=self._wait_until_ready, daemon=True).start()

    def _wait_until_ready(self) -> None:
        with suppress(WorkerStopped):
            self.ready = self._receive() is True

    @property
    def usable(self) -> bool:
        """Whether the process has loaded its packages and is alive."""
        return self.ready and not self.killed and self.process.poll() is None

    def compute(self, panel: str, part: str, state: str, files: Mapping[str, tuple[str, bytes]]) -> bytes:
        """Return a part of a panel as JSON, or raise the worker's error.

        Parameters
        ----------
        panel, part : str
            Their names.
        state : str
            As JSON.
        files : mapping
            Name and content of the dropped files that the state refers to, by token.
        """
        new = {token: file for token, file in files.items() if token not in self.tokens}
        assert self.process.stdin is not None
        try:
            pickle.dump((panel, part, state, new), self.process.stdin)
            self.process.stdin.flush()
        except (OSError, ValueError) as error:
            raise WorkerStopped from error
        self.tokens |= set(new)
        result = self._receive()
        if isinstance(result, Exception):
            raise result
        assert isinstance(result, bytes)
        return result

    def _receive(self) -> object:
        assert self.process.stdout is not None
        try:
            return pickle.load(self.process.stdout)
        except (EOFError, OSError, ValueError, pickle.UnpicklingError) as error:
            raise WorkerStopped from error

    def kill(self) -> None:
        """End the process now."""
        self.killed = True
        self.process.kill()

    def close(self) -> None:
        """End the process and wait until it is gone."""
        self.kill()
        self.process.communicate()
