"""What operating systems do each in their own way: locks, names that change places, signals, processes that live."""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any

#: What asks a process to end.
STOPS = (signal.SIGINT, signal.SIGTERM)

WINDOWS = os.name == "nt"
PLATFORM = str(sys.platform)
#: Seconds for which a file that another program has open is tried again; Windows does not replace it meanwhile.
PATIENCE = 2.0
#: Byte that is locked on Windows, where nobody could read a locked one: far beyond the text.
FAR = 2**30
#: Numbers of the systems' own calls: the working folder, "exchange the two", a process that is only asked about.
AT_FDCWD, EXCHANGE, SWAP, QUERY, STILL_ACTIVE = -100, 2, 2, 0x1000, 259


def lock(file: IO[str]) -> None:
    """Lock an open file for this process, or raise OSError; the system lets go when the process ends, however."""
    if WINDOWS:
        windows: Any = import_module("msvcrt")
        file.seek(FAR)
        windows.locking(file.fileno(), windows.LK_NBLCK, 1)
    else:
        posix: Any = import_module("fcntl")
        posix.flock(file.fileno(), posix.LOCK_EX | posix.LOCK_NB)


def replace(source: Path, target: Path) -> None:
    """Give a file, or a folder where there is none, another name: whoever looks finds the old one or the new one."""
    begun = time.monotonic()
    while True:
        try:
            os.replace(source, target)
        except PermissionError:
            if not WINDOWS or time.monotonic() - begun > PATIENCE:
                raise
            time.sleep(0.02)
        else:
            return


def exchange(one: Path, other: Path) -> bool:
    """Let two folders change places at once; False where this system, or this disk, cannot."""
    names = os.fsencode(one), os.fsencode(other)
    with contextlib.suppress(OSError, AttributeError):
        system: Any = ctypes.CDLL(None, use_errno=True)
        if PLATFORM.startswith("linux"):
            return bool(system.renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], EXCHANGE) == 0)
        if PLATFORM == "darwin":
            return bool(system.renamex_np(*names, SWAP) == 0)
    return False


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk."""
    if WINDOWS and path.is_dir():  # folders cannot be opened there
        return
    number = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def alive(process: int) -> bool:
    """Whether a process of this machine runs."""
    if WINDOWS:  # there os.kill would end it
        kernel = ctypes.windll.kernel32  # type: ignore[attr-defined, unused-ignore]
        handle = kernel.OpenProcess(QUERY, False, process)
        if not handle:
            return False
        code = ctypes.c_ulong()
        try:
            return bool(kernel.GetExitCodeProcess(handle, ctypes.byref(code))) and code.value == STILL_ACTIVE
        finally:
            kernel.CloseHandle(handle)
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's, and alive
        return True
    return True


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C count where Python would report it and go on: in what is called when an object is let go."""
    told, late = sys.unraisablehook, []

    def again(found: Any) -> None:
        if isinstance(found.exc_value, KeyboardInterrupt):
            # From a thread, a moment later: raised here it would be lost once more.
            late.append(threading.Timer(0.05, _thread.interrupt_main))
            late[-1].start()
        else:
            told(found)

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = told
        for timer in late:  # all is done: there is nothing left to end
            timer.cancel()


@contextmanager
def held(signals: Sequence[signal.Signals] = STOPS) -> Iterator[None]:
    """Signals wait until the end; processes started inside are born deaf to them, until they listen themselves."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def listen(signals: Sequence[signal.Signals] = STOPS) -> None:
    """Hear signals to which a process was born deaf."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)


def serve() -> None:
    """Begin a process that works for the one that started it: that one alone decides what a signal means.

    Ctrl-C reaches every process of a terminal, and a batch system ends all at once. Without its driver it ends, for
    nobody would take what it computes.
    """
    # A handler, not SIG_IGN: that would be handed down to what a task starts, which then could not be ended.
    for number in STOPS:
        signal.signal(number, _unheard)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_hearing_again)
    listen()
    threading.Thread(target=_follow_driver, daemon=True).start()


def _unheard(number: int, frame: object) -> None:
    """Go on."""


def _hearing_again() -> None:
    for number in STOPS:
        signal.signal(number, signal.SIG_DFL)


def _follow_driver() -> None:
    import multiprocessing
    from multiprocessing.connection import wait

    driver = multiprocessing.parent_process()
    if driver is not None:
        wait([driver.sentinel])
        os._exit(1)
