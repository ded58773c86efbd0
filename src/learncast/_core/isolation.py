"""Reading untrusted files in a child process with limits on memory and time.

The libraries that read HDF5, MATLAB, Parquet and torch files are not safe for damaged input: one wrong bit may crash
the process or make it allocate any amount of memory. A child process that crashes does no harm.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from learncast._core.errors import InvalidSpec, LearncastError, SchemaMismatch, UnsupportedModel
from learncast._core.limits import allowed, allowing, library_message

T = TypeVar("T")

#: CPU seconds that reading a file may take: some for every file, and more for every byte.
SECONDS, SECONDS_PER_BYTE = 5, 1e-7
#: Time that may pass for every CPU second, on a busy machine or a slow disk.
PATIENCE = 20
#: Memory of the child in multiples of the bytes that one array may take, as libraries copy while they convert.
COPIES = 4
#: Bytes that the child may allocate besides arrays.
OVERHEAD = 2**29
#: The only classes and functions that a child's answer may name: those that restore arrays and numbers.
_PLAIN = {
    "numpy": {"ndarray", "dtype"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy.core.numeric": {"_frombuffer"},
    "numpy._core.numeric": {"_frombuffer"},
}
#: Errors that a child raises by name.
_ERRORS: dict[str, type[LearncastError]] = {
    one.__name__: one for one in (InvalidSpec, SchemaMismatch, UnsupportedModel)
}


def read_apart(
    read: Callable[..., T],
    path: Path,
    *arguments: object,
    kind: str = "readable",
    error: type[LearncastError] = InvalidSpec,
    most_bytes: int | None = None,
) -> T:
    """Return ``read(path, *arguments)``, computed in a child process.

    Parameters
    ----------
    read : callable
        Function of a module. It returns arrays, numbers and strings, or lists, tuples and dictionaries of them.
    path : Path
        File to read.
    *arguments
        Further arguments of `read`.
    kind : str
        What the file must be, for messages.
    error : type
        Exception for a file that cannot be read.
    most_bytes : int, optional
        Most memory of one array.

    Returns
    -------
    object
        What `read` returned.
    """
    limits = _Limits(allowed(most_bytes), SECONDS + int(path.stat().st_size * SECONDS_PER_BYTE))
    ask = _forked if sys.platform == "linux" else _spawned
    try:
        answer = _Plain(io.BytesIO(ask(read, (path, *arguments), limits))).load()
    except _Ended as problem:
        raise error(f"{path} must be {kind}: the process that read it {problem}.") from None
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError) as problem:
        raise error(f"{path} must be {kind}: it does not hold plain arrays.") from problem
    if answer[0] == "result":
        result: T = answer[1]
        return result
    name, message, field = answer[1:]
    if name in _ERRORS:
        raise _ERRORS[name](message, field=field)
    memory = name == "MemoryError"
    raise error(f"{path} must be {kind}, got {name}: {message}.", field="most_bytes" if memory else None)


@dataclass(frozen=True)
class _Limits:
    """Most bytes of one array, and most CPU seconds, of the child."""

    bytes: int
    seconds: int

    def apply(self) -> None:
        """Limit this process, where the system can: its address space to what it has now and copies of one array."""
        if sys.platform == "linux":
            import resource

            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            space = pages * resource.getpagesize() + COPIES * self.bytes + OVERHEAD
            for limit, value in (
                (resource.RLIMIT_AS, space),
                (resource.RLIMIT_CPU, self.seconds),
                (resource.RLIMIT_CORE, 0),
            ):
                _, hard = resource.getrlimit(limit)
                resource.setrlimit(limit, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))

    def ended(self, number: int) -> _Ended:
        """How the child ended, from the number of the signal that ended it."""
        if number == getattr(signal, "SIGXCPU", 0):
            return self.late()
        return _Ended(f"crashed ({signal.Signals(number).name})")

    def late(self) -> _Ended:
        return _Ended(f"took longer than {self.seconds} s")


class _Ended(Exception):
    """The child ended without an answer; the message says how."""


class _Plain(pickle.Unpickler):
    """An unpickler that restores arrays and numbers only, whatever the child was made to send."""

    def find_class(self, module: str, name: str) -> Any:
        if name in _PLAIN.get(module, ()):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name}")


def _answer(read: Callable[..., object], arguments: tuple[object, ...], limits: _Limits) -> bytes:
    """Call `read` under the limits; return its result, or its exception, as bytes."""
    try:
        limits.apply()
        with warnings.catch_warnings(), allowing(limits.bytes):
            warnings.simplefilter("ignore")
            return pickle.dumps(("result", read(*arguments)), protocol=5)
    except LearncastError as problem:
        return pickle.dumps(("error", type(problem).__name__, str(problem), problem.field))
    except MemoryError:
        return pickle.dumps(("error", "MemoryError", "it needs more memory than most_bytes allows", None))
    except Exception as problem:  # a library may raise anything on a damaged file
        return pickle.dumps(("error", type(problem).__name__, library_message(problem), None))


def _forked(read: Callable[..., object], arguments: tuple[object, ...], limits: _Limits) -> bytes:
    """Ask a fork of this process: it starts within milliseconds, as every library is already imported."""
    receiver, sender = Pipe(duplex=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads: the child only reads and ends
        child = os.fork()
    if child == 0:
        _serve_fork(sender, read, arguments, limits)
    sender.close()
    content = b""
    try:
        if not receiver.poll(PATIENCE * limits.seconds):
            raise limits.late()
        with contextlib.suppress(EOFError, OSError):  # it ended before its answer did
            content = receiver.recv_bytes()
    finally:  # also after Ctrl-C
        receiver.close()
        if not content:
            os.kill(child, signal.SIGKILL)  # without effect if it has ended
        _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise limits.ended(os.WTERMSIG(status))
    return content


def _serve_fork(
    sender: Connection, read: Callable[..., object], arguments: tuple[object, ...], limits: _Limits
) -> None:
    """Write the answer to a pipe and end the process without running the parent's exit handlers."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 2)  # libraries print while they abort
        sender.send_bytes(_answer(read, arguments, limits))
    finally:
        os._exit(0)


def _spawned(read: Callable[..., object], arguments: tuple[object, ...], limits: _Limits) -> bytes:
    """Ask a new interpreter, on systems where a fork is not safe."""
    command = [sys.executable, "-c", "from learncast._core.isolation import serve; serve()"]
    try:
        asked, longest = pickle.dumps((read, arguments, limits)), PATIENCE * limits.seconds
        done = subprocess.run(command, input=asked, capture_output=True, timeout=longest, check=False)
    except subprocess.TimeoutExpired:
        raise limits.late() from None
    if done.returncode:
        raise _Ended(f"crashed (exit code {done.returncode})")
    return done.stdout


def serve() -> None:
    """Answer one request from standard input on standard output, in an interpreter of its own."""
    sys.stdout.buffer.write(_answer(*pickle.load(sys.stdin.buffer)))
