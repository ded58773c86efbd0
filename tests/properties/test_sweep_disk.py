"""Wherever the disk runs full, a sweep stops with a sentence, keeps its promises and goes on later."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from learncast import sweep
from learncast._core.errors import LearncastError
from learncast.sweep import TaskStatus
from learncast.sweep.store import Store

STUDY = """
[network]
hidden_size = 8
[training]
learning_rate = 1e-3
[target]
family = "integration"
steps = 10
[sweep]
command = "forecast"
[sweep.grid]
network.recurrence = {first = 0.9, last = 0.98, count = 4}
target.target_strength = [1.0, 1.5]
"""

#: Sweeps onto disks of several sizes, each of which grows when it is full, and tells what happened as JSON.
SMALL_DISKS = """
import hashlib, json, subprocess, sys
from pathlib import Path
from typer.testing import CliRunner
from learncast.cli import app
from learncast.sweep import TaskStatus
from learncast.sweep.store import Store

def swept(*words):
    made = CliRunner().invoke(app, ["sweep", *map(str, words), *places])
    bare = made.exception is not None and not isinstance(made.exception, SystemExit)
    return {"code": made.exit_code, "errors": made.stderr, "traceback": repr(made.exception) if bare else ""}

def hashes():
    return {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in (store / "results").rglob("*.nc")}

def acknowledged():
    try:
        ledger = Store(store).ledger()
    except ValueError:
        return None
    try:
        return {row.digest: row.sha256 for row in ledger.rows(TaskStatus.done)} if ledger.meta("study") else None
    finally:
        ledger.close()

if __name__ == "__main__":
    study, disk, sizes, places = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]), json.loads(sys.argv[4])
    store = disk / "store"
    disk.mkdir()
    for size in sizes:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", disk], check=True)
        report = {"size": size, "first": swept("run", study, "--store", store)}
        promised = acknowledged()
        report |= {"promised": promised, "kept": hashes()}
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        # Without room for the ledger nothing had begun, and there is nothing to resume.
        words = ["run", study, "--store", store] if promised is None else ["resume", store]
        report |= {"second": swept(*words), "results": hashes(), "drafts": [str(p) for p in disk.rglob("*.part")]}
        print(json.dumps(report))
        subprocess.run(["umount", disk], check=True)
"""


def private_mounts() -> list[str]:
    """The words before a command that may then mount things for itself alone, or a reason to skip."""
    if shutil.which("unshare") is None:
        pytest.skip("mounting a small disk needs unshare, which is not installed")
    for words in (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"]):
        trial = [*words, "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/mnt"]
        if subprocess.run(trial, capture_output=True, check=False).returncode == 0:
            return words
    pytest.skip("mounting a small disk needs root or user namespaces, and neither is allowed here")


def sweep_onto(folder: Path, sizes: list[int], *places: str) -> list[int]:
    """Results that were kept on disks of so many kilobytes, after everything was seen to be right."""
    words = private_mounts()
    study, script = folder / "study.toml", folder / "small_disks.py"
    study.write_text(STUDY, encoding="utf-8")
    script.write_text(SMALL_DISKS, encoding="utf-8")
    arguments = [str(study), str(folder / "disk"), json.dumps([*sizes, 4096]), json.dumps(places)]
    made = subprocess.run(
        [*words, sys.executable, str(script), *arguments], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    *reports, undisturbed = map(json.loads, made.stdout.splitlines())
    assert undisturbed["first"] == {"code": 0, "errors": "", "traceback": ""}
    assert len(undisturbed["results"]) == 8
    for report in reports:
        first = report["first"]
        assert (first["traceback"], first["code"]) == ("", 2), report
        assert first["errors"].startswith("learncast: "), report
        assert first["errors"].count("\n") == 1, report
        # What was promised is there and whole.
        promised = report["promised"] or {}
        assert promised.items() <= report["kept"].items(), report
        assert promised.items() <= undisturbed["results"].items()
        assert report["second"]["code"] == 0, report
        assert report["results"] == undisturbed["results"]
        assert report["drafts"] == []
    return [len(report["promised"] or {}) for report in reports]


def test_a_full_disk_stops_a_sweep_cleanly(tmp_path):
    # Full while the ledger is made, and while results are written.
    kept = sweep_onto(tmp_path, [92, 200], "--in-process")
    assert kept[0] == 0
    assert 0 < kept[-1] < 8


@pytest.mark.slow
def test_a_disk_that_is_full_anywhere(tmp_path):
    # A page more each time, so that it is full before, while and after the ledger is made, and inside of every file.
    kept = sweep_onto(tmp_path, list(range(4, 252, 4)), "--in-process")
    assert kept == sorted(kept)
    assert 0 in kept
    assert len(set(kept)) >= 4


@pytest.mark.slow
def test_a_full_disk_stops_workers_too(tmp_path):
    kept = sweep_onto(tmp_path, [120, 200], "--workers", "2")
    assert 0 < kept[-1] < 8


def squared(spec):
    return {"square": spec["number"] ** 2, "noise": spec.rng().normal()}


def numbers(store: Path, **keywords) -> sweep.Summary:
    return sweep.run(squared, {"number": list(range(4))}, store=store, executor="in-process", **keywords)


def promised_files(store: Path) -> dict[str, str]:
    if not (store / "ledger.sqlite").exists():
        return {}
    ledger = Store(store).ledger()
    try:
        return {row.digest: str(row.sha256) for row in ledger.rows(TaskStatus.done)} if ledger.meta("study") else {}
    finally:
        ledger.close()


@pytest.mark.parametrize("batch", [1, None])
def test_every_call_that_may_find_the_disk_full(tmp_path, monkeypatch, batch):
    """Each synchronisation, renaming and writing of the driver fails in turn."""
    numbers(tmp_path / "undisturbed")
    expected = {path.name: path.read_bytes() for path in (tmp_path / "undisturbed" / "results").rglob("*.nc")}
    calls, fatal = [0], [0]

    def failing(call):
        def instead(*arguments, **keywords):
            calls[0] += 1
            if calls[0] == fatal[0]:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(*arguments, **keywords)

        return instead

    for name in ("fsync", "fdatasync", "replace", "rename", "write"):
        monkeypatch.setattr(os, name, failing(getattr(os, name)))
    calls[0] = 0
    numbers(tmp_path / "counted", batch=batch)
    for number in range(1, calls[0] + 1):
        store = tmp_path / f"full-{number}"
        calls[0], fatal[0] = 0, number
        with pytest.raises((OSError, LearncastError), match="space"):
            numbers(store, batch=batch)
        fatal[0] = 0
        promised = promised_files(store)
        for digest, sha256 in promised.items():
            assert hashlib.sha256(Store(store).path(digest).read_bytes()).hexdigest() == sha256
        made = numbers(store, batch=batch)
        assert made.complete
        assert made.computed == 4 - len(promised)
        assert {path.name: path.read_bytes() for path in (store / "results").rglob("*.nc")} == expected
    assert number >= 12  # three for each result: its file, its name, its folder
