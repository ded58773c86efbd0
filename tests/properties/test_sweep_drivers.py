"""A killed driver loses no acknowledged result, and there is only one driver at a time."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import time
from pathlib import Path

import pytest

from learncast import InvalidSpec, sweep

WORKERS = 2


def wait_for(witness, store: Path, number: int, process: subprocess.Popen[str]) -> None:
    """Wait until `number` results are acknowledged, or the driver has ended."""
    limit = time.monotonic() + 60
    while len(witness.acknowledged(store)) < number and process.poll() is None:
        assert time.monotonic() < limit, "the driver acknowledges nothing"
        time.sleep(0.005)


def survive_driver_kills(witness, *, tasks: int, kills: int, pause: float, batch: int | None, seed: int) -> None:
    grid, base, rng = {"centre": list(range(tasks))}, {"pause": pause}, random.Random(seed)
    expected, store = witness.undisturbed(grid, base), witness.folder / "store"
    # By default processes get one task at a time.
    most_wasted = WORKERS * (batch or 1)
    promised: dict[str, str] = {}
    for _ in range(kills):
        before = witness.executions().total() - len(promised)
        process = witness.driver(grid, base, store, workers=WORKERS, batch=batch)
        # Some are killed while they start.
        wait_for(witness, store, len(promised) + rng.randint(0, (tasks - len(promised)) // (kills + 1)), process)
        time.sleep(rng.uniform(0.0, 0.03))
        assert process.poll() is None, process.communicate()[1]
        witness.kill(process)
        now = witness.acknowledged(store)
        assert promised.items() <= now.items(), "an acknowledged result was lost"
        files = witness.results(store)
        assert {digest: hashlib.sha256(files[f"{digest}.nc"]).hexdigest() for digest in now} == now
        wasted = witness.executions().total() - len(now) - before
        assert wasted <= most_wasted, f"{wasted} executions lost by one kill"
        promised = now
    assert 0 < len(promised) < tasks
    made = sweep.run(witness.function, grid, base=base, store=store, executor="in-process")
    assert made.complete
    assert made.computed == tasks - len(promised)
    assert witness.results(store) == expected
    assert witness.executions().total() <= tasks + kills * most_wasted


def test_killed_drivers_lose_nothing_acknowledged(witness):
    survive_driver_kills(witness, tasks=16, kills=2, pause=0.02, batch=None, seed=5)


@pytest.mark.slow
@pytest.mark.parametrize(("tasks", "kills", "batch"), [(400, 20, None), (200, 8, 4)])
def test_hundreds_of_tasks_and_twenty_killed_drivers(witness, tasks, kills, batch):
    survive_driver_kills(witness, tasks=tasks, kills=kills, pause=0.02, batch=batch, seed=6)


@pytest.mark.slow
def test_a_second_driver_is_refused_until_the_first_is_dead(witness):
    grid, base, store = {"centre": list(range(12))}, {"pause": 0.02}, witness.folder / "store"
    expected = witness.undisturbed(grid, base)
    first = witness.driver(grid, base, store, workers=1)
    wait_for(witness, store, 1, first)
    with witness.held():
        with pytest.raises(InvalidSpec) as error:
            sweep.run(witness.function, grid, base=base, store=store, executor="in-process", attempts=1, fail_fast=True)
        assert f"process {first.pid}" in str(error.value)
        for function in (sweep.verify, sweep.prune):
            with pytest.raises(InvalidSpec) as error:
                function(store)
            assert error.value.field == "store"
        assert sweep.status(store).driven
        first.kill()
    # The first may still be dying; then the second waits a moment or is refused once more.
    while True:
        try:
            made = sweep.run(witness.function, grid, base=base, store=store, executor="in-process")
            break
        except InvalidSpec as refused:
            assert refused.field == "store"  # noqa: PT017
    first.communicate()
    assert made.complete
    assert made.computed >= 1
    assert witness.results(store) == expected
    # The first driver's worker had at most one task, and the second computes no task that was entered.
    assert witness.executions().total() <= 12 + 1
    assert not sweep.status(store).driven


@pytest.mark.slow
def test_only_one_of_several_simultaneous_drivers_runs(witness):
    grid, base, store = {"centre": list(range(40))}, {"pause": 0.1}, witness.folder / "store"
    expected = witness.undisturbed(grid, base)
    for _ in range(3):
        rivals = [witness.driver(grid, base, store, workers=1) for _ in range(4)]
        endings = [rival.communicate(timeout=60) for rival in rivals]
        # The sweep takes seconds, so that no driver starts after the first has finished.
        assert sorted(rival.returncode for rival in rivals) == [0, 1, 1, 1], endings
        for rival, (output, errors) in zip(rivals, endings, strict=True):
            if rival.returncode:
                assert "in use by" in errors
            else:
                assert json.loads(output) == [40, 0, False, 40]
        assert witness.results(store) == expected
        assert witness.executions().total() == 40
        store = store.with_name(f"{store.name}-next")
        (witness.folder / "log").unlink()
