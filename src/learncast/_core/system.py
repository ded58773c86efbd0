"""Differences between operating systems: locks, renames, signals and processes."""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any

#: Signals that ask a process to end.
STOPS = (signal.SIGINT, signal.SIGTERM)

WINDOWS = os.name == "nt"
PLATFORM = str(sys.platform)
#: Seconds for which a rename is repeated on Windows, which refuses to replace a file that another program has open.
PATIENCE = 2.0
#: Byte that is locked on Windows. A locked byte cannot be read there, so it lies far beyond the content.
FAR = 2**30
#: Constants of the system calls below.
AT_FDCWD, RENAME_EXCHANGE, RENAME_SWAP, PROCESS_QUERY, STILL_ACTIVE = -100, 2, 2, 0x1000, 259


def lock(file: IO[str]) -> None:
    """Lock an open file for this process, or raise OSError; the lock ends with the process."""
    if WINDOWS:
        windows: Any = import_module("msvcrt")
        file.seek(FAR)
        windows.locking(file.fileno(), windows.LK_NBLCK, 1)
    else:
        posix: Any = import_module("fcntl")
        posix.flock(file.fileno(), posix.LOCK_EX | posix.LOCK_NB)


@contextmanager
def folder_lock(folder: Path) -> Iterator[bool]:
    """Lock a folder itself, so that removing the files in it does not unlock it; yield whether it was free.

    Windows and some network file systems cannot lock folders: there it counts as free.
    """
    if WINDOWS:
        yield True
        return
    posix: Any = import_module("fcntl")
    number = os.open(folder, os.O_RDONLY)
    try:
        try:
            posix.flock(number, posix.LOCK_EX | posix.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:
            pass
        yield True
    finally:
        os.close(number)


def replace(source: Path, target: Path) -> None:
    """Rename a file over another, or a folder to a free name, atomically."""
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
    """Swap two folders atomically; return False if the system or the file system cannot."""
    names = os.fsencode(one), os.fsencode(other)
    with contextlib.suppress(OSError, AttributeError):
        system: Any = ctypes.CDLL(None, use_errno=True)
        if PLATFORM.startswith("linux"):
            return bool(system.renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) == 0)
        if PLATFORM == "darwin":
            return bool(system.renamex_np(*names, RENAME_SWAP) == 0)
    return False


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    if WINDOWS and path.is_dir():  # Windows cannot open folders
        return
    number = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def alive(process: int) -> bool:
    """Return whether a process of this machine runs."""
    if WINDOWS:  # os.kill would end the process there
        kernel = ctypes.windll.kernel32  # type: ignore[attr-defined, unused-ignore]
        handle = kernel.OpenProcess(PROCESS_QUERY, False, process)
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
    except OSError:  # a process of another user
        return True
    return True


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise Ctrl-C again if it arrives in a destructor or weak-reference callback, where Python only reports it."""
    hook, timers = sys.unraisablehook, []

    def raise_again(problem: Any) -> None:
        if isinstance(problem.exc_value, KeyboardInterrupt):
            # From another thread and a moment later: an exception raised here would be lost too.
            timers.append(threading.Timer(0.05, _thread.interrupt_main))
            timers[-1].start()
        else:
            hook(problem)

    sys.unraisablehook = raise_again
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for timer in timers:  # the work is complete, nothing is left to interrupt
            timer.cancel()


@contextmanager
def held(signals: Sequence[signal.Signals] = STOPS) -> Iterator[None]:
    """Block signals inside the context; processes started inside inherit this until they call `listen`."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def listen(signals: Sequence[signal.Signals] = STOPS) -> None:
    """Unblock signals that the parent process had blocked."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)


def serve() -> None:
    """Prepare a worker process: ignore stop signals, which its driver handles, and end with the driver.

    Ctrl-C reaches every process of a terminal, and a batch system signals all processes of a job.
    """
    # A handler instead of SIG_IGN, which processes started by a task would inherit and could not be stopped.
    for number in STOPS:
        signal.signal(number, _ignore)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_restore_default_signals)
    listen()
    threading.Thread(target=_end_with_driver, daemon=True).start()


def _ignore(number: int, frame: object) -> None:
    """Do nothing."""


def _restore_default_signals() -> None:
    for number in STOPS:
        signal.signal(number, signal.SIG_DFL)


def _end_with_driver() -> None:
    import multiprocessing
    from multiprocessing.connection import wait

    driver = multiprocessing.parent_process()
    if driver is not None:
        wait([driver.sentinel])
        os._exit(1)


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Let processes started inside the context run their linear algebra in one thread.

    The libraries read these variables when they load, so a process cannot set them for itself.
    """
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]
        os.environ.update(before)


@contextmanager
def without_script(sent: object) -> Iterator[None]:
    """Let processes started inside the context leave the user's script alone, unless what they are sent needs it.

    A spawned process imports the file of `__main__`, which runs a script without a guard from its beginning.
    """
    main = sys.modules["__main__"]
    before: dict[str, object] = {key: vars(main)[key] for key in ("__spec__", "__file__") if key in vars(main)}
    if b"__main__" not in pickle.dumps(sent, protocol=5, buffer_callback=lambda _: None):
        vars(main).update(dict.fromkeys(before))
    try:
        yield
    finally:
        vars(main).update(before)
