"""Sweeps: what one task costs beside its own work."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from learncast import sweep
from learncast.sweep.grid import Grid
from learncast.sweep.processes import Processes
from learncast.sweep.results import as_dataset, packed, unpacked
from learncast.sweep.spec import Spec
from learncast.sweep.store import Store
from learncast.sweep.sweeping import Sweep

TASKS, WORKERS, ROWS = 400, 2, 1000


def nothing(spec: Spec) -> float:
    """A task without work: all it takes is overhead."""
    return float(spec["a"])


class Warm(Processes):
    """Processes that have started and computed before the clock does."""

    first = 0.0

    def wait(self, seconds):
        found = super().wait(seconds)
        if found and not self.first:
            self.first = time.perf_counter()
        return found


def swept(folder: Path, batch: int | None) -> float:
    """Seconds for each task from the first result to the last."""
    executor, grid = Warm(WORKERS), Grid.of({"a": list(range(TASKS))})
    made = sweep.run(nothing, grid, store=folder, executor=executor, batch=batch)
    assert made.complete
    return (time.perf_counter() - executor.first) / (TASKS - 1)


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
            unpacked(content)
        yield "reading it again", f"{(time.perf_counter() - begun) * 10:.2f} ms", ""
        made = sweep.run(nothing, {"a": list(range(TASKS))}, store=folder / "alone", executor="in-process")
        yield f"{TASKS} empty tasks in this process, each", f"{made.seconds / TASKS * 1e3:.2f} ms", ""
        for batch, label in ((1, "one at a time"), (None, "in batches")):
            seconds = swept(folder / label, batch)
            yield f"the same by {WORKERS} processes, {label}, each", f"{seconds * 1e3:.2f} ms", ""
        begun = time.perf_counter()
        sweep.verify(folder / "alone")
        yield "verifying a result", f"{(time.perf_counter() - begun) / TASKS * 1e3:.2f} ms", ""
        begun = time.perf_counter()
        sweep.gather(folder / "alone")
        yield "gathering a result", f"{(time.perf_counter() - begun) / TASKS * 1e3:.2f} ms", ""
        yield from million(folder / "million")


def million(folder: Path) -> Iterator[tuple[str, str, str]]:
    """A ledger of a million tasks."""
    many, store = Sweep(nothing, Grid.of({"a": list(range(ROWS)), "b": list(range(ROWS))}), {}, {}), Store(folder)
    begun = time.perf_counter()
    with store.locked():
        store.begin(many.study(), many.tasks())
    yield f"entering {ROWS**2:,} tasks", f"{time.perf_counter() - begun:.1f} s", ""
    begun = time.perf_counter()
    sweep.status(folder)
    yield "their status", f"{time.perf_counter() - begun:.3f} s", "<= 1 s"
