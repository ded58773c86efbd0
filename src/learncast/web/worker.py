"""A worker process, which computes views and can be killed at any time; run as a module it is that process."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress

from learncast._core.errors import LearncastError
from learncast._core.threads import one_thread_each

#: Bytes that a pipe holds where this can be set: a whole answer, so that a worker does not wait for its reader.
_PIPE_SIZE = 2**18


class WorkerStopped(Exception):
    """The worker process ended before it answered."""


class Worker:
    """A worker process as its parent sees it. Messages are pickles on its standard input and output."""

    def __init__(self) -> None:
        with one_thread_each():  # the arrays are small: several threads would only wait for each other
            self.process = subprocess.Popen(
                [sys.executable, "-m", "learncast.web.worker"],
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


def _work() -> None:
    """Answer requests from standard input until it is closed."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # printed text must not mix with the answers
    import xarray  # noqa: F401  (loaded before the first request, which needs it)

    from learncast.web.app import all_panels, part_json
    from learncast.web.uploads import UPLOADS

    panels = {panel.name: panel for panel in all_panels()}
    result: object = True
    while True:
        pickle.dump(result, answers)
        answers.flush()
        try:
            name, part, state, files = pickle.load(requests)
        except EOFError:
            return
        for token, file in files.items():
            UPLOADS.store(token, *file)
        try:
            result = part_json(panels[name], part)(panels[name].state.model_validate_json(state))
        except LearncastError as error:
            result = error
        except Exception as error:  # the server logs it
            result = RuntimeError(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    _work()
