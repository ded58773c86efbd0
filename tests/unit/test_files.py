"""Files that appear whole: whatever stops a write, the old file or the new one is there, and no draft."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from learncast.files import draft_folder, draft_of, write_file


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
        "import os, signal, sys\nfrom learncast.files import draft_of\n"
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
