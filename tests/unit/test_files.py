"""Files that appear whole: whatever stops a write, the old file or the new one is there, and no draft."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from learncast._core.files import draft_folder, draft_of, write_file


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_with_the_folders_on_its_way(tmp_path):
    assert write_file(tmp_path / "deep" / "er" / "a.txt", "é\n").read_bytes() == "é\n".encode()
    assert names(tmp_path / "deep" / "er") == ["a.txt"]


@pytest.mark.parametrize("stop", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("sole", [True, False])
def test_a_stopped_write_keeps_the_old_file(tmp_path, stop, sole):
    write_file(tmp_path / "a", "old")

    def write():
        with draft_of(tmp_path / "a", sole=sole) as draft:
            draft.write_text("ne")
            raise stop

    with pytest.raises(stop):
        write()
    assert (tmp_path / "a").read_text() == "old"
    assert names(tmp_path) == ["a"]


def test_a_sole_writer_takes_over_what_a_kill_left(tmp_path):
    script = (
        "import os, signal, sys\nfrom learncast._core.files import draft_of\n"
        "with draft_of(sys.argv[1], sole=True) as draft:\n"
        "    draft.write_text('half')\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "a")], check=False)
    assert names(tmp_path) == [".a.part"]
    with draft_of(tmp_path / "a", sole=True, durable=True) as draft:
        draft.write_text("whole")
    assert (tmp_path / "a").read_text() == "whole"
    assert names(tmp_path) == ["a"]


def test_content_is_on_the_disk_before_its_name(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *given, real=real, name=name: (calls.append(name), real(*given)))
    with draft_of(tmp_path / "a", durable=True) as draft:
        draft.write_text("content")
    assert calls == ["fsync", "replace"]


@pytest.mark.parametrize("place", ["new", "deep/er/new"])
def test_a_folder_appears_whole_or_not_at_all(tmp_path, place):
    def fill():
        with draft_folder(tmp_path / place) as draft:
            (draft / "a").write_text("half")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fill()
    assert names(tmp_path) == []
    with draft_folder(tmp_path / place) as draft:
        (draft / "a").write_text("whole")
    assert names(tmp_path / place) == ["a"]
    (tmp_path / "plain").mkdir()
    assert oct((tmp_path / place).stat().st_mode) == oct((tmp_path / "plain").stat().st_mode)


def test_a_folder_that_is_there_keeps_what_else_it_holds(tmp_path, monkeypatch):
    write_file(tmp_path / "here" / "notes", "mine")
    write_file(tmp_path / "here" / "a", "old")
    monkeypatch.chdir(tmp_path / "here")
    with draft_folder(".") as draft:
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


def test_files_of_a_folder_change_all_at_once(tmp_path):
    with draft_folder(tmp_path / "here") as draft:
        (draft / "a").write_text("old")
        (draft / "b").write_text("old")
    write_file(tmp_path / "here" / "notes", "mine")
    (tmp_path / "here").chmod(0o711)
    (tmp_path / "here" / "link").symlink_to("notes")
    seen = []
    with draft_folder(tmp_path / "here") as draft:
        (draft / "a").write_text("new")
        (draft / "b").write_text("new")
        seen.append(content(tmp_path / "here"))
    assert seen == [{"a": "old", "b": "old", "notes": "mine", "link": "mine"}]
    assert content(tmp_path / "here") == {"a": "new", "b": "new", "notes": "mine", "link": "mine"}
    assert (tmp_path / "here" / "link").is_symlink()
    assert (tmp_path / "here").stat().st_mode & 0o777 == 0o711
    assert names(tmp_path) == ["here"]


def test_a_folder_with_folders_is_filled_file_by_file(tmp_path):
    write_file(tmp_path / "here" / "deep" / "model", "mine")
    with draft_folder(tmp_path / "here") as draft:
        (draft / "a").write_text("new")
    assert names(tmp_path / "here") == ["a", "deep"]
    assert (tmp_path / "here" / "deep" / "model").read_text() == "mine"


def test_drafts_of_dead_processes_are_cleared_and_those_of_living_ones_are_not(tmp_path):
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
    with draft_folder(tmp_path / "here") as draft:
        (draft / "a").write_text("whole")
    assert len(names(tmp_path)) == 2  # the folder, and the draft of the one that lives
    started[1].communicate("")
    assert sorted(content(tmp_path / "here")) == ["0", "1", "2", "3", "4", "5", "6", "7", "a"]
    assert names(tmp_path) == ["here"]


@pytest.mark.slow
def test_kills_leave_old_files_or_new_ones(tmp_path):
    """Killed 200 times at random moments while ten files of a folder are written anew, again and again."""
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
    write_file(tmp_path / "other", "")
    with draft_folder(tmp_path / "here"):
        pass
    assert names(tmp_path) == ["here", "other"]
