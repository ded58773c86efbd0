"""If the disk is full, a sweep stops with an error, keeps every entered result and can be resumed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from learncast import LearncastError, sweep

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

#: Runs sweeps on small disks that grow after they were full, and reports what happened as JSON.
SMALL_DISKS = """
import hashlib, json, sqlite3, subprocess, sys
from pathlib import Path
from typer.testing import CliRunner
from learncast.cli import app

def swept(*words):
    made = CliRunner().invoke(app, ["sweep", *map(str, words), *places])
    bare = made.exception is not None and not isinstance(made.exception, SystemExit)
    return {"code": made.exit_code, "errors": made.stderr, "traceback": repr(made.exception) if bare else ""}

def hashes():
    return {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in (store / "results").rglob("*.nc")}

def acknowledged():
    ledger = None
    try:
        ledger = sqlite3.connect(f"file:{store}/ledger.sqlite?mode=ro", uri=True)
        begun = ledger.execute("SELECT value FROM meta WHERE key = 'study'").fetchone()
        return dict(ledger.execute("SELECT digest, sha256 FROM tasks WHERE status = 1")) if begun else None
    except sqlite3.Error:
        return None
    finally:
        if ledger is not None:
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
        # Without space for the ledger there is nothing to resume.
        words = ["run", study, "--store", store] if promised is None else ["resume", store]
        report |= {"second": swept(*words), "results": hashes(), "drafts": [str(p) for p in disk.rglob("*.part")]}
        print(json.dumps(report))
        subprocess.run(["umount", disk], check=True)
"""


def private_mounts() -> list[str]:
    """Return the start of a command that can mount disks only for itself, or skip the test."""
    if shutil.which("unshare") is None:
        pytest.skip("mounting a small disk needs unshare")
    for words in (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"]):
        trial = [*words, "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/mnt"]
        if subprocess.run(trial, capture_output=True, check=False).returncode == 0:
            return words
    pytest.skip("mounting a small disk needs root or user namespaces")


def sweep_onto(folder: Path, sizes: list[int], *places: str) -> list[int]:
    """Check sweeps on disks of the given kilobytes, and return how many results each kept."""
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
        # Every result that the ledger lists exists and is intact.
        promised = report["promised"] or {}
        assert promised.items() <= report["kept"].items(), report
        assert promised.items() <= undisturbed["results"].items()
        assert report["second"]["code"] == 0, report
        assert report["results"] == undisturbed["results"]
        assert report["drafts"] == []
    return [len(report["promised"] or {}) for report in reports]


def test_a_full_disk_stops_a_sweep_with_an_error(tmp_path):
    # The disk is full while the ledger is created, and while results are written.
    kept = sweep_onto(tmp_path, [92, 200], "--in-process")
    assert kept[0] == 0
    assert 0 < kept[-1] < 8


@pytest.mark.slow
def test_a_disk_of_any_size_loses_nothing(tmp_path):
    # One page more each time, so that the disk is full before, during and after the creation of the ledger, and
    # inside every file.
    kept = sweep_onto(tmp_path, list(range(4, 252, 4)), "--in-process")
    assert kept == sorted(kept)
    assert 0 in kept
    assert len(set(kept)) >= 4


@pytest.mark.slow
def test_a_full_disk_stops_a_sweep_with_workers(tmp_path):
    kept = sweep_onto(tmp_path, [120, 200], "--workers", "2")
    assert 0 < kept[-1] < 8


def squared(spec):
    return {"square": spec["number"] ** 2, "noise": spec.rng().normal()}


def numbers(store: Path, **keywords) -> sweep.Summary:
    return sweep.run(squared, {"number": list(range(4))}, store=store, executor="in-process", **keywords)


def promised_files(store: Path) -> dict[str, str]:
    if not (store / "ledger.sqlite").exists():
        return {}
    with contextlib.closing(sqlite3.connect(f"file:{store}/ledger.sqlite?mode=ro", uri=True)) as ledger:
        try:
            return dict(ledger.execute("SELECT digest, sha256 FROM tasks WHERE status = 1"))
        except sqlite3.OperationalError:  # no tables yet
            return {}


@pytest.mark.parametrize("batch", [1, None])
def test_every_failing_disk_call_loses_nothing(tmp_path, monkeypatch, batch):
    """Each sync, rename and write of the driver fails in turn."""
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
        with pytest.raises((OSError, LearncastError)):
            numbers(store, batch=batch)
        fatal[0] = 0
        promised = promised_files(store)
        for digest, sha256 in promised.items():
            path = store / "results" / digest[:2] / f"{digest}.nc"
            assert hashlib.sha256(path.read_bytes()).hexdigest() == sha256
        made = numbers(store, batch=batch)
        assert made.complete
        assert made.computed == 4 - len(promised)
        assert {path.name: path.read_bytes() for path in (store / "results").rglob("*.nc")} == expected
    assert number >= 12  # three calls for each result: its file, its name and its folder
