"""A sweep whose workers are killed ends with every result once, with equal bytes."""

from __future__ import annotations

import os
import random
import threading
import time

import numpy as np
import psutil
import pytest

from learncast import sweep


class Assassin:
    """Kills a random worker of this process shortly after given numbers of results."""

    def __init__(self, moments: list[int], rng: random.Random) -> None:
        self.moments, self.rng, self.kills = moments, rng, 0
        self._timers: list[threading.Timer] = []

    def __call__(self, summary: sweep.Summary) -> None:
        while self.moments and summary.computed >= self.moments[0]:
            self.moments.pop(0)
            # A random delay, so that deaths happen while starting, computing, packing or sending.
            self._timers.append(threading.Timer(self.rng.uniform(0.0, 0.03), self._kill))
            self._timers[-1].start()

    def rest(self) -> None:
        for timer in self._timers:
            timer.join()

    def _kill(self) -> None:
        alive = [child for child in psutil.Process().children() if "spawn_main" in " ".join(_command(child))]
        if alive:
            self.rng.choice(alive).kill()
            self.kills += 1


def _command(process: psutil.Process) -> list[str]:
    """Return the command line of a process, empty if it is dead."""
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def survive_worker_kills(witness, *, tasks: int, number: int, batch: int | None, seed: int) -> None:
    grid, base, rng = {"centre": list(range(tasks))}, {"pause": 0.004}, random.Random(seed)
    expected, store = witness.undisturbed(grid, base), witness.folder / "store"
    # Early enough that some tasks are left.
    assassin = Assassin(sorted(rng.sample(range(1, tasks - 10), number)), rng)
    made = sweep.run(witness.function, grid, base=base, store=store, workers=2, batch=batch, watcher=assassin)
    assassin.rest()
    assert assassin.kills >= number - 1  # two at the same moment may find no worker
    assert (made.total, made.done, made.computed, made.failed) == (tasks, tasks, tasks, 0)
    assert witness.results(store) == expected
    assert sweep.verify(store) == []
    again = witness.executions()
    # A kill costs at most the task that was being computed.
    assert len(again) == tasks
    assert again.total() <= tasks + assassin.kills
    # Only that task is charged with the death, not those that waited behind it.
    assert witness.deaths(store) <= assassin.kills


def test_killed_workers_change_no_result(witness):
    survive_worker_kills(witness, tasks=24, number=2, batch=3, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize(("tasks", "number", "batch"), [(1000, 100, None), (200, 20, 8)])
def test_a_thousand_tasks_and_a_hundred_killed_workers(witness, tasks, number, batch):
    # A task fails only if five of the kills hit it, which has a probability below 1e-6.
    survive_worker_kills(witness, tasks=tasks, number=number, batch=batch, seed=1)


#: Forecasts of the soak test, and forecasts in one task; with one file for each the disk would dominate.
SOAK, TOGETHER = int(os.environ.get("SWEEP_SOAK", "100000")), 50


@pytest.mark.slow
def test_a_hundred_thousand_forecasts_on_two_workers_with_kills(witness):
    """No result is lost or stored twice, and no process grows; SWEEP_SOAK sets the number of forecasts."""
    import swept_functions

    tasks, rng, begun, sizes = max(SOAK // TOGETHER, 20), random.Random(4), time.monotonic(), {}
    grid, base = {"recurrence": np.linspace(0.5, 0.99, tasks).tolist()}, {"rates": TOGETHER}
    assassin = Assassin(sorted(rng.sample(range(1, tasks - 10), max(tasks // 100, 2))), rng)

    def watch(summary: sweep.Summary) -> None:
        assassin(summary)
        if summary.computed not in sizes:
            sizes[summary.computed] = max(map(_bytes, [psutil.Process(), *psutil.Process().children()]))

    store, again = witness.folder / "store", witness.folder / "again"
    made = sweep.run(swept_functions.forecasts, grid, base=base, store=store, workers=2, watcher=watch)
    assassin.rest()
    assert (made.total, made.done, made.computed, made.failed) == (tasks, tasks, tasks, 0)
    assert sweep.verify(store) == []
    assert assassin.kills > 0
    early, late = (max(size for k, size in sizes.items() if (k > tasks // 2) is half) for half in (False, True))
    print(
        f"{tasks * TOGETHER} forecasts in {tasks} tasks, {assassin.kills} workers killed, "
        f"{time.monotonic() - begun:.0f} s, largest process {early / 2**20:.0f} MiB, later {late / 2**20:.0f} MiB"
    )
    # A process loads everything in the first half; a leak would continue.
    assert late < 1.1 * early
    # Without workers and kills the files are equal. Flow steps times learning rate is the same for all rates.
    few = {**grid, "recurrence": grid["recurrence"][:: tasks // 10]}
    sweep.run(swept_functions.forecasts, few, base=base, store=again, executor="in-process")
    assert witness.results(again).items() <= witness.results(store).items()
    gathered = sweep.gather(store)
    assert gathered.sizes == {"recurrence": tasks, "rate": TOGETHER}
    time_constant = (gathered.flow * gathered.rate).to_numpy()
    np.testing.assert_allclose(time_constant, np.broadcast_to(time_constant[:, :1], time_constant.shape), rtol=1e-9)
    assert (np.diff(time_constant[:, 0]) < 0).all()  # a longer memory sums more input and is learned sooner


def _bytes(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return 0
