"""Atomic writing: after an interrupted write the old or the new file is there, and no draft."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from learncast._core import files


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_missing_folders_are_created(tmp_path):
    assert files.write_file(tmp_path / "deep" / "er" / "a.txt", "é\n").read_bytes() == "é\n".encode()
    assert names(tmp_path / "deep" / "er") == ["a.txt"]


@pytest.mark.parametrize("stop", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("sole", [True, False])
def test_an_interrupted_write_keeps_the_old_file(tmp_path, stop, sole):
    files.write_file(tmp_path / "a", "old")

    def write():
        with files.draft_of(tmp_path / "a", sole=sole) as draft:
            draft.write_text("ne")
            raise stop

    with pytest.raises(stop):
        write()
    assert (tmp_path / "a").read_text() == "old"
    assert names(tmp_path) == ["a"]


def test_a_sole_writer_overwrites_the_draft_of_a_killed_process(tmp_path):
    script = (
        "import os, signal, sys\nfrom learncast._core.files import draft_of\n"
        "with draft_of(sys.argv[1], sole=True) as draft:\n"
        "    draft.write_text('half')\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "a")], check=False)
    assert names(tmp_path) == [".a.part"]
    with files.draft_of(tmp_path / "a", sole=True, durable=True) as draft:
        draft.write_text("whole")
    assert (tmp_path / "a").read_text() == "whole"
    assert names(tmp_path) == ["a"]


def test_a_durable_write_flushes_before_the_rename(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *given, real=real, name=name: (calls.append(name), real(*given)))
    with files.draft_of(tmp_path / "a", durable=True) as draft:
        draft.write_text("content")
    assert calls == ["fsync", "replace"]


@pytest.mark.parametrize("place", ["new", "deep/er/new"])
def test_a_folder_appears_complete_or_not_at_all(tmp_path, place):
    def fill():
        with files.draft_folder(tmp_path / place) as draft:
            (draft / "a").write_text("half")
            raise OSError("full")

    with pytest.raises(OSError):
        fill()
    assert names(tmp_path) == []
    with files.draft_folder(tmp_path / place) as draft:
        (draft / "a").write_text("whole")
    assert names(tmp_path / place) == ["a"]
    (tmp_path / "plain").mkdir()
    assert oct((tmp_path / place).stat().st_mode) == oct((tmp_path / "plain").stat().st_mode)


def test_other_files_of_an_existing_folder_are_kept(tmp_path, monkeypatch):
    files.write_file(tmp_path / "here" / "notes", "mine")
    files.write_file(tmp_path / "here" / "a", "old")
    monkeypatch.chdir(tmp_path / "here")
    with files.draft_folder(".") as draft:
        (draft / "a").write_text("new")
    assert {path.name: path.read_text() for path in (tmp_path / "here").iterdir()} == {"a": "new", "notes": "mine"}
    assert names(tmp_path) == ["here"]


FILL = """
import sys
from learncast._core.files import draft_folder
with draft_folder(sys.argv[1]) as draft:
    for k in range(8):
        (draft / str(k)).write_text(sys.argv[2])
    print("ready", flush=True)
    sys.stdin.read()
"""


def content(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_all_files_of_a_folder_are_replaced_at_once(tmp_path):
    with files.draft_folder(tmp_path / "here") as draft:
        (draft / "a").write_text("old")
        (draft / "b").write_text("old")
    files.write_file(tmp_path / "here" / "notes", "mine")
    (tmp_path / "here").chmod(0o711)
    (tmp_path / "here" / "link").symlink_to("notes")
    seen = []
    with files.draft_folder(tmp_path / "here") as draft:
        (draft / "a").write_text("new")
        (draft / "b").write_text("new")
        seen.append(content(tmp_path / "here"))
    assert seen == [{"a": "old", "b": "old", "notes": "mine", "link": "mine"}]
    assert content(tmp_path / "here") == {"a": "new", "b": "new", "notes": "mine", "link": "mine"}
    assert (tmp_path / "here" / "link").is_symlink()
    assert (tmp_path / "here").stat().st_mode & 0o777 == 0o711
    assert names(tmp_path) == ["here"]


def test_subfolders_of_an_existing_folder_are_kept(tmp_path):
    files.write_file(tmp_path / "here" / "deep" / "model", "mine")
    with files.draft_folder(tmp_path / "here") as draft:
        (draft / "a").write_text("new")
    assert names(tmp_path / "here") == ["a", "deep"]
    assert (tmp_path / "here" / "deep" / "model").read_text() == "mine"


def test_drafts_of_dead_processes_are_removed(tmp_path):
    started = [
        subprocess.Popen(
            [sys.executable, "-c", FILL, str(tmp_path / "here"), "x"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    for process in started:
        assert process.stdout.readline() == "ready\n"
    started[0].kill()
    started[0].communicate()
    assert len(names(tmp_path)) == 2
    with files.draft_folder(tmp_path / "here") as draft:
        (draft / "a").write_text("whole")
    assert len(names(tmp_path)) == 2  # the folder and the draft of the running process
    started[1].communicate("")
    assert sorted(content(tmp_path / "here")) == ["0", "1", "2", "3", "4", "5", "6", "7", "a"]
    assert names(tmp_path) == ["here"]


@pytest.mark.parametrize("beside", [True, False])
def test_a_folder_that_is_a_mount_point_is_filled(tmp_path, monkeypatch, beside):
    """As on Linux, nothing can be renamed or linked across the mount; beside it, writing may be forbidden too."""
    mount = tmp_path / "mount"
    files.write_file(mount / "notes", "mine")

    def within(path):
        return mount in Path(path).resolve().parents

    def across(real):
        def call(one, other, *rest, **options):
            if within(one) != within(other):
                raise OSError(errno.EXDEV, "Invalid cross-device link", str(one))
            return real(one, other, *rest, **options)

        return call

    real = Path.mkdir
    monkeypatch.setattr(os, "replace", across(os.replace))
    monkeypatch.setattr(os, "link", across(os.link))
    monkeypatch.setattr(files, "exchange", lambda one, other: False)
    if not beside:

        def mkdir(path, *args, **options):
            if not within(path) and not path.is_dir():
                raise OSError(errno.EROFS, "Read-only file system", str(path))
            real(path, *args, **options)

        monkeypatch.setattr(Path, "mkdir", mkdir)
    files.check_writable(mount)
    with files.draft_folder(mount) as draft:
        (draft / "a").write_text("new")
        real(draft / "deep")
        (draft / "deep" / "b").write_text("new")
    assert names(mount) == ["a", "deep", "notes"]
    assert names(mount / "deep") == ["b"]
    assert names(tmp_path) == ["mount"]


def test_errors_name_the_path_that_was_given_and_are_found_before_the_work(tmp_path, monkeypatch):
    def refuse(path, *args, **options):
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.chdir(tmp_path)
    for path in ("new", "deep/new"):
        with pytest.raises(OSError) as error:
            files.check_writable(path)
        assert error.value.filename == path


def test_an_error_of_a_file_names_it_and_not_its_draft(tmp_path):
    with pytest.raises(FileNotFoundError) as error, files.draft_of(tmp_path / "a") as draft:
        draft.read_text()
    assert error.value.filename == str(tmp_path / "a")


@pytest.mark.slow
def test_a_killed_process_leaves_only_old_or_only_new_files(tmp_path):
    """A process that rewrites ten files of a folder is killed 200 times, at random moments."""
    script = (
        "import sys\nfrom learncast._core.files import draft_folder\nfor n in range(10**6):\n"
        "    with draft_folder(sys.argv[1]) as draft:\n"
        "        for k in range(10):\n            (draft / str(k)).write_text(str(n))\n"
        "    if n == 0:\n        print('ready', flush=True)\n"
    )
    rng = np.random.default_rng(0)
    for _ in range(200):
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "here")], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0, 0.02))
        process.kill()
        process.communicate()
        found = content(tmp_path / "here")
        assert sorted(found) == sorted(map(str, range(10)))
        assert len(set(found.values())) == 1
    files.write_file(tmp_path / "other", "")
    with files.draft_folder(tmp_path / "here"):
        pass
    assert names(tmp_path) == ["here", "other"]
