"""What a sweep will take, from a pilot of a few tasks."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass

import numpy as np

from learncast.sweep.ledger import TaskStatus
from learncast.sweep.processes import Processes
from learncast.sweep.store import Store
from learncast.sweep.sweeping import Sweep
from learncast.sweep.work import Fate, Job, Outcome, Work

#: Tasks of a pilot, beside the first: that one pays for imports and is not counted.
PILOT = 4


@dataclass(frozen=True)
class Outlook:
    """What a sweep will take.

    Attributes
    ----------
    cells, tasks : int
        Cells that meet every condition, and different tasks among them.
    pilot : int
        Tasks that were tried.
    failed : int
        How many of these raised.
    task_seconds, entry_seconds : float
        Of computing one task on average, and of putting its result on the disk, which one process does for all
        workers; nan when the whole pilot failed.
    seconds : float
        Of all with this many workers: whichever of the two takes longer.
    bytes : float
        Disk needed for the results, likewise.
    error : str
        The first traceback of the pilot.
    """

    cells: int
    tasks: int
    pilot: int
    failed: int
    task_seconds: float
    entry_seconds: float
    seconds: float
    bytes: float
    error: str


def outlook(sweep: Sweep, *, workers: int) -> Outlook:
    """Try a few tasks, spread over the grid, in one process and without storing anything."""
    places: dict[str, int] = {}
    cells = 0
    for position, digest in sweep.tasks():
        cells += 1
        places.setdefault(digest, position)
    tasks = list(places.items())
    picks = sorted({int(k) for k in np.linspace(0, len(tasks) - 1, PILOT)}) if tasks else []
    jobs = [Job(tasks[k][1], tasks[k][0], sweep.grid.cell(tasks[k][1])) for k in picks]
    outcomes = []
    executor = Processes(1)
    executor.start(Work(sweep.function, sweep.base))
    try:
        # The first twice: its first time loads what all tasks need.
        for job in jobs[:1] + jobs:
            executor.submit([job])
            while not (found := executor.wait(0.5)):
                pass
            outcomes += found
    finally:
        executor.close(now=True)
    counted = outcomes[1:]
    done = [one for one in counted if one.fate is Fate.done]
    mean = float(np.mean([one.seconds for one in done])) if done else float("nan")
    entry = _entering(done)
    size = float(np.mean([len(one.content) for one in done])) if done else float("nan")
    return Outlook(
        cells=cells,
        tasks=len(tasks),
        pilot=len(counted),
        failed=len(counted) - len(done),
        task_seconds=mean,
        entry_seconds=entry,
        seconds=max(mean / workers, entry) * len(tasks),
        bytes=size * len(tasks),
        error=next((one.error for one in counted if one.fate is not Fate.done), ""),
    )


def _entering(outcomes: list[Outcome]) -> float:
    """Seconds that putting one of these results on the disk takes."""
    if not outcomes:
        return float("nan")
    rows = [(k, f"{k:032x}") for k in range(len(outcomes))]
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        ledger = store.ledger(write=True)
        ledger.fill(rows, {})
        begun = time.perf_counter()
        for (position, digest), outcome in zip(rows, outcomes, strict=True):
            hashes = store.write({digest: outcome.content})
            ledger.record([{"position": position, "status": TaskStatus.done.code, "sha256": hashes[digest]}])
        seconds = time.perf_counter() - begun
        ledger.close()
    return seconds / len(outcomes)
