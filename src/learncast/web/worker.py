"""A process that computes for the explorer, and can be stopped at any moment."""

from __future__ import annotations

import pickle
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import IO

from learncast._core.threads import one_thread_each

#: What a worker says first, once it has loaded everything.
READY = b"ready"
_LENGTH = struct.Struct(">Q")
#: Bytes that a pipe holds, where that can be said: whole answers, so that nobody waits for who reads them.
_ANSWER = 2**18


class Stopped(Exception):
    """The process ended before it answered."""


class Worker:
    """The other process as it is seen from here.

    It is killed rather than asked to stop: what computes need not look up. Nothing that it was sent is code.
    """

    def __init__(self) -> None:
        with one_thread_each():  # pictures are small: threads would wait for each other more than they compute
            self.process = subprocess.Popen(
                [sys.executable, "-m", "learncast.web.labour"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pipesize=_ANSWER,
                # Ctrl-C is for the server, which ends its workers itself.
                start_new_session=True,
            )
        self.ready, self.ended = threading.Event(), False
        self.held: set[str] = set()
        threading.Thread(target=self._greet, daemon=True).start()

    def _greet(self) -> None:
        try:
            if self._read() == READY:
                self.ready.set()
        except Stopped:
            pass

    @property
    def usable(self) -> bool:
        """Whether it has loaded and lives."""
        return self.ready.is_set() and not self.ended and self.process.poll() is None

    def ask(self, room: str, part: str, state: str, files: Mapping[str, tuple[str, bytes]]) -> bytes | Exception:
        """What a part of a room shows for a state (as JSON), or the error that it raises.

        Parameters
        ----------
        room, part, state : str
        files : mapping
            What the state names among the files that were dropped, by token: its name and content.
        """
        new = {token: file for token, file in files.items() if token not in self.held}
        assert self.process.stdin is not None
        try:
            write(self.process.stdin, pickle.dumps((room, part, state, new)))
        except (OSError, ValueError) as error:
            raise Stopped from error
        self.held |= set(new)
        kind, content = self._read()[:1], b""
        content = self._read()
        return content if kind == b"=" else pickle.loads(content)

    def _read(self) -> bytes:
        assert self.process.stdout is not None
        return read(self.process.stdout)

    def kill(self) -> None:
        """End it now."""
        self.ended = True
        self.process.kill()

    def close(self) -> None:
        """End it and wait until it is gone."""
        self.kill()
        self.process.communicate()


def write(stream: IO[bytes], content: bytes) -> None:
    """Send one message."""
    stream.write(_LENGTH.pack(len(content)) + content)
    stream.flush()


def read(stream: IO[bytes]) -> bytes:
    """Wait for one message."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise Stopped
    (length,) = _LENGTH.unpack(head)
    content = stream.read(length)
    if len(content) < length:
        raise Stopped
    return content
