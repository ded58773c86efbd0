"""Locks, processes and renames, on this system and as on Windows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from learncast._core import system


def fail(*_):
    raise PermissionError(13, "in use")


@pytest.fixture
def windows(monkeypatch):
    monkeypatch.setattr(system, "WINDOWS", True)


def test_a_lock_excludes_other_processes(tmp_path):
    script = "import sys\nfrom learncast._core import system\nsystem.lock(open(sys.argv[1], 'a'))\n"
    with open(tmp_path / "lock", "a", encoding="utf-8") as file:
        system.lock(file)
        other = subprocess.run([sys.executable, "-c", script, str(tmp_path / "lock")], capture_output=True, check=False)
        assert b"BlockingIOError" in other.stderr
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "lock")], check=True)


def test_windows_locks_a_byte_beyond_the_text(tmp_path, windows, monkeypatch):
    asked = []
    fake = SimpleNamespace(LK_NBLCK=2, locking=lambda *given: asked.append(given))
    monkeypatch.setitem(sys.modules, "msvcrt", fake)
    with open(tmp_path / "lock", "a+", encoding="utf-8") as file:
        system.lock(file)
        assert asked == [(file.fileno(), 2, 1)]
        assert file.tell() == system.FAR


def test_windows_repeats_the_rename_of_a_file_in_use(tmp_path, windows, monkeypatch):
    tries, real = [], os.replace

    def busy(source, target):
        tries.append(target)
        if len(tries) < 3:
            raise PermissionError(13, "in use")
        real(source, target)

    monkeypatch.setattr(os, "replace", busy)
    (tmp_path / "a").write_text("new")
    system.replace(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_text() == "new"
    monkeypatch.setattr(system, "PATIENCE", 0.05)
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(PermissionError):
        system.replace(tmp_path / "b", tmp_path / "c")


def test_other_systems_raise_at_once(tmp_path, monkeypatch):
    tries = []

    def refuse(*given):
        tries.append(given)
        raise PermissionError(13, "not yours")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(PermissionError):
        system.replace(tmp_path / "a", tmp_path / "b")
    assert len(tries) == 1


def test_folders_are_not_opened_on_windows(tmp_path, windows, monkeypatch):
    monkeypatch.setattr(os, "open", None)
    system.sync(tmp_path)


def test_running_processes_are_alive():
    assert system.alive(os.getpid())
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert not system.alive(ended.pid)


@pytest.mark.parametrize(("handle", "code", "living"), [(7, 259, True), (7, 0, False), (0, 259, False)])
def test_windows_queries_the_exit_code_of_a_process(windows, monkeypatch, handle, code, living):
    closed = []

    def exit_code(_, place):
        place._obj.value = code
        return 1

    kernel = SimpleNamespace(
        OpenProcess=lambda *_: handle, GetExitCodeProcess=exit_code, CloseHandle=lambda one: closed.append(one)
    )
    monkeypatch.setattr(system.ctypes, "windll", SimpleNamespace(kernel32=kernel), raising=False)
    monkeypatch.setattr(os, "kill", None)  # on Windows it would end the process
    assert system.alive(4321) is living
    assert closed == ([7] if handle else [])


def test_folders_are_swapped_or_the_result_is_false(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    if system.exchange(tmp_path / "a", tmp_path / "b"):
        assert (tmp_path / "a" / "b").exists()
        assert (tmp_path / "b" / "a").exists()
    assert not system.exchange(tmp_path / "a", tmp_path / "missing")
    monkeypatch.setattr(system, "PLATFORM", "win32")
    assert not system.exchange(tmp_path / "a", tmp_path / "b")


def test_held_signals_arrive_after_the_context(monkeypatch):
    heard = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append(True))
    try:
        with system.held():
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
            assert heard == []
        assert heard == [True]
        monkeypatch.delattr(signal, "pthread_sigmask")
        with system.held():
            system.listen()
    finally:
        signal.signal(signal.SIGTERM, before)
