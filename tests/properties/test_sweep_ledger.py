"""A ledger of a million tasks needs no more memory than a small one, and its status is fast."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from learncast import sweep

#: Computes the first two hundred tasks of a grid, and prints the peak memory in megabytes.
FIRST_FEW = """
import json, sys, time
from learncast import sweep

def product(spec):
    return {"value": spec["a"] * spec["b"]}

def stop(summary):
    if summary.computed >= 200:
        raise KeyboardInterrupt

if __name__ == "__main__":
    rows, store = int(sys.argv[1]), sys.argv[2]
    grid, begun = {"a": list(range(rows // 1000)), "b": list(range(1000))}, time.perf_counter()
    made = sweep.run(product, grid, store=store, executor="in-process", watcher=stop)
    assert made.interrupted and made.total == rows, made
    # The resource module would include the parent process.
    most = int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) / 1024
    print(json.dumps([made.computed, most, time.perf_counter() - begun]))
"""


def first_few(folder: Path, rows: int) -> tuple[float, float]:
    """Return the peak memory of a driver in megabytes, and its seconds."""
    script = folder / "first_few.py"
    script.write_text(FIRST_FEW, encoding="utf-8")
    call = [sys.executable, str(script), str(rows), str(folder / f"store-{rows}")]
    made = subprocess.run(call, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert made.returncode == 0, made.stderr
    computed, most, seconds = json.loads(made.stdout)
    assert computed >= 200
    return most, seconds


def every_row(store: Path) -> float:
    """Return the seconds of the simplest way to count: reading every row."""
    begun, counts = time.perf_counter(), [0, 0, 0]
    connection = sqlite3.connect(store / "ledger.sqlite")
    for status, _, _ in connection.execute("SELECT status, seconds, bytes FROM tasks"):
        counts[status] += 1
    connection.close()
    assert sum(counts) == 10**6
    return time.perf_counter() - begun


@pytest.mark.slow
def test_a_million_tasks_need_little_memory_and_time(tmp_path):
    small, _ = first_few(tmp_path, 10**5)
    entering, _ = first_few(tmp_path, 10**6)
    # The second time the tasks are already in the ledger, as in a resumed sweep.
    resuming, _ = first_few(tmp_path, 10**6)
    # One list of a million task hashes alone would take 80 MB.
    assert abs(entering - small) < 30, (small, entering)
    assert abs(resuming - small) < 30, (small, resuming)
    store = tmp_path / f"store-{10**6}"
    took, simple = [], every_row(store)
    for _ in range(5):
        begun = time.perf_counter()
        found = sweep.status(store)
        took.append(time.perf_counter() - begun)
    assert (found.total, found.cells, found.failed) == (10**6, 10**6, 0)
    assert found.done >= 400
    # SQLite counts with its index; a reader accepts to wait one second.
    assert min(took) < simple, (took, simple)
    assert min(took) < 1.0, took
