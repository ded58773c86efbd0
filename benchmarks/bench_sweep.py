"""Sweeps: what one task costs beside its own work.

A result is on the disk before it is reported, so that most of the time is the disk's. Times are wall-clock times of an
idle machine.

The file of a result, its directory entry and the ledger are each synchronised once, three times per task. Tasks of less
than 8 ms are entered in groups: the ledger is synchronised once per group, sixteen files at a time, while the next
tasks are computed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from learncast import sweep
from learncast._core.netcdf import packed, read
from learncast.sweep import Cluster, Executor, Grid, Processes, Spec, Sweep, TaskStatus
from learncast.sweep.jobs import as_dataset
from learncast.sweep.store import Store
from learncast.sweep.studies import sweep_of
from learncast.sweep.sweeping import run_sweep

TASKS, WORKERS, ROWS = 400, 2, 1000
FORECASTS, ALONE = int(os.environ.get("FORECASTS", "1000")), 6

STUDY = """
[network]
hidden_size = 16
[training]
learning_rate = 1e-3
[target]
family = "integration"
steps = 50
"""
SWEEP = """
[sweep]
command = "forecast"
[sweep.grid]
target.target_strength = {{first = 0.5, last = 2.0, count = {count}}}
"""


def nothing(spec: Spec) -> float:
    """A task without work: all it takes is overhead."""
    return float(spec["a"])


class Watched:
    """An executor with a clock: from its first outcome, when all has started, to its last."""

    def __init__(self, executor: Executor) -> None:
        self.executor, self.begun, self.ended, self.first = executor, 0.0, 0.0, 0

    def __getattr__(self, name: str):
        return getattr(self.executor, name)

    def wait(self, seconds: float):
        found = self.executor.wait(seconds)
        if found and not self.begun:
            self.begun, self.first = time.perf_counter(), len(found)
        if found:
            self.ended = time.perf_counter()
        return found


def swept(folder: Path, executor: Executor, batch: int | None = None, tasks: int = TASKS) -> float:
    """Seconds for each task from the first result to the last."""
    watched = Watched(executor)
    made = sweep.run(nothing, {"a": list(range(tasks))}, store=folder, executor=watched, batch=batch)
    assert made.complete
    return (watched.ended - watched.begun) / (tasks - watched.first)


def rows() -> Iterator[tuple[str, str, str]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dataset = as_dataset(1.0)
        begun = time.perf_counter()
        for _ in range(100):
            content = packed(dataset)
        yield "packing one number as NetCDF", f"{(time.perf_counter() - begun) * 10:.2f} ms", ""
        begun = time.perf_counter()
        for _ in range(100):
            read(content)
        yield "reading one number from NetCDF", f"{(time.perf_counter() - begun) * 10:.2f} ms", ""
        made = sweep.run(nothing, {"a": list(range(TASKS))}, store=folder / "alone", executor="in-process")
        yield f"{TASKS} empty tasks in this process, each", f"{made.seconds / TASKS * 1e3:.2f} ms", ""
        begun = time.perf_counter()
        for k in range(TASKS):
            nothing(Spec({"a": k}, "0"))
        empty = (time.perf_counter() - begun) / TASKS
        yield "calling the empty function, each", f"{empty * 1e3:.4f} ms", ""
        seconds = swept(folder / "processes", Processes(WORKERS))
        yield f"{TASKS} empty tasks by {WORKERS} processes, each", f"{seconds * 1e3:.2f} ms", "<= 5 ms"
        for batch, label, goal in ((1, "one at a time", ""), (None, "in batches", "<= 10 ms")):
            seconds = swept(folder / f"dask {label}", Cluster(workers=WORKERS), batch)
            yield f"{TASKS} empty tasks by {WORKERS} dask workers, {label}, each", f"{seconds * 1e3:.2f} ms", goal
        for group in (1, 64):
            seconds = entered(folder / f"entered {group}", content, group)
            yield f"entering a result on the disk, {group} at a time, each", f"{seconds * 1e3:.2f} ms", ""
        begun = time.perf_counter()
        sweep.verify(folder / "alone")
        yield "verifying a result", f"{(time.perf_counter() - begun) / TASKS * 1e3:.2f} ms", ""
        begun = time.perf_counter()
        sweep.gather(folder / "alone")
        yield "gathering a result", f"{(time.perf_counter() - begun) / TASKS * 1e3:.2f} ms", ""
        yield from forecasts(folder)
        yield from million(folder / "million")


def entered(folder: Path, content: bytes, group: int) -> float:
    """Seconds that the driver takes to write a result and to enter it: what one process does for all workers."""
    many, store = Sweep(nothing, Grid.of({"a": list(range(TASKS))}), {}, {}), Store(folder)
    with store.locked():
        store.begin(many.study(), many.tasks())
    ledger, tasks = store.ledger(write=True), list(many.tasks())
    begun = time.perf_counter()
    for first in range(0, TASKS, group):
        some = tasks[first : first + group]
        hashes = store.write({digest: content for _, digest in some})
        ledger.record([{"position": k, "status": TaskStatus.done.code, "sha256": hashes[d]} for k, d in some])
    seconds = time.perf_counter() - begun
    ledger.close()
    return seconds / TASKS


def forecasts(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Closed-form forecasts through a sweep, and each by a process of its own, both two at a time."""
    study, alone = folder / "forecasts.toml", folder / "forecast.toml"
    alone.write_text(STUDY, encoding="utf-8")
    study.write_text(STUDY + SWEEP.format(count=FORECASTS), encoding="utf-8")
    command = [Path(sys.executable).with_name("learncast"), "forecast", alone, "--json"]
    begun = time.perf_counter()
    for _ in range(ALONE // WORKERS):
        pair = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(WORKERS)]
        assert not any(process.wait() for process in pair)
    single = (time.perf_counter() - begun) / ALONE
    yield f"a forecast in a process of its own, {WORKERS} at a time, each", f"{single * 1e3:.0f} ms", ""
    watched = Watched(Processes(WORKERS))
    begun = time.perf_counter()
    made = run_sweep(sweep_of(study), folder / "forecasts", watched)
    assert made.complete
    each = (watched.ended - watched.begun) / (made.total - watched.first)
    yield f"a forecast in a sweep of {made.total:,}, each", f"{each * 1e3:.1f} ms", ""
    # What starting costs is paid once: of 100,000 it is nothing.
    start = watched.begun - begun
    yield "100,000 forecasts, separate processes over sweep", f"{single * 1e5 / (start + each * 1e5):.0f}x", ">= 50x"


def million(folder: Path) -> Iterator[tuple[str, str, str]]:
    """A ledger of a million tasks."""
    many, store = Sweep(nothing, Grid.of({"a": list(range(ROWS)), "b": list(range(ROWS))}), {}, {}), Store(folder)
    begun = time.perf_counter()
    with store.locked():
        store.begin(many.study(), many.tasks())
    yield f"entering {ROWS**2:,} tasks", f"{time.perf_counter() - begun:.1f} s", ""
    begun = time.perf_counter()
    sweep.status(folder)
    seconds = time.perf_counter() - begun
    size = (folder / "ledger.sqlite").stat().st_size
    yield f"ledger of {ROWS**2:,} tasks on the disk", f"{size / 1e6:.0f} MB", ""
    yield f"status of {ROWS**2:,} tasks", f"{seconds:.3f} s", "<= 1 s"
