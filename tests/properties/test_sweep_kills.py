"""Whichever workers are killed, a sweep ends with every result once and with the same bytes."""

from __future__ import annotations

import random
import threading

import psutil
import pytest

from learncast import sweep


class Assassin:
    """Kills a random worker of this process, a moment after so many results were entered."""

    def __init__(self, moments: list[int], rng: random.Random) -> None:
        self.moments, self.rng, self.kills = moments, rng, 0
        self._timers: list[threading.Timer] = []

    def __call__(self, summary: sweep.Summary) -> None:
        while self.moments and summary.computed >= self.moments[0]:
            self.moments.pop(0)
            # A moment later, so that deaths fall anywhere: starting, computing, packing, sending.
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
    """The words a process was started by; none for one that is dead already."""
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def survive_worker_kills(witness, *, tasks: int, number: int, batch: int | None, seed: int) -> None:
    grid, base, rng = {"centre": list(range(tasks))}, {"pause": 0.004}, random.Random(seed)
    expected, store = witness.undisturbed(grid, base), witness.folder / "store"
    # None so late that all might be done before it comes.
    assassin = Assassin(sorted(rng.sample(range(1, tasks - 10), number)), rng)
    made = sweep.run(witness.function, grid, base=base, store=store, workers=2, batch=batch, watcher=assassin)
    assassin.rest()
    assert assassin.kills >= number - 1  # two at the same moment may find nobody left
    assert (made.total, made.done, made.computed, made.failed) == (tasks, tasks, tasks, 0)
    assert witness.results(store) == expected
    assert sweep.verify(store) == []
    again = witness.executions()
    # A kill costs at most the task that was being computed.
    assert len(again) == tasks
    assert again.total() <= tasks + assassin.kills
    # ... and only that one is blamed, not those that waited behind it.
    assert witness.deaths(store) <= assassin.kills


def test_killed_workers_cost_nothing_but_time(witness):
    survive_worker_kills(witness, tasks=24, number=2, batch=3, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize(("tasks", "number", "batch"), [(1000, 100, None), (200, 20, 8)])
def test_a_thousand_tasks_and_a_hundred_killed_workers(witness, tasks, number, batch):
    # One task is given up only if five of the kills fall on it, which has a chance below 1e-6.
    survive_worker_kills(witness, tasks=tasks, number=number, batch=batch, seed=1)
