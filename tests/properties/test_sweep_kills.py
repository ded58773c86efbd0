"""Whatever is killed or damaged, a sweep ends with every result once and with the same bytes."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from learncast import sweep
from learncast.errors import InvalidSpec
from learncast.sweep.ledger import TaskStatus
from learncast.sweep.store import Store

FUNCTIONS = '''
import os, time
import numpy as np
import xarray as xr

def noted(spec):
    """Leave a line for every execution, take a moment, and return random numbers."""
    log = os.open(os.environ["SWEEP_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(log, (spec.digest + "\\n").encode())
    os.close(log)
    time.sleep(spec["pause"])
    rng = spec.rng()
    return xr.Dataset({"mean": rng.normal(spec["centre"]), "path": ("time", rng.normal(size=7))})
'''

DRIVER = """
import json, sys
from learncast import sweep
import swept_functions

if __name__ == "__main__":
    grid, base, store, workers = json.loads(sys.argv[1])
    made = sweep.run(swept_functions.noted, grid, base=base, store=store, workers=workers, batch=1)
    print(json.dumps([made.done, made.failed, made.interrupted]), flush=True)
"""


@pytest.fixture
def noted(tmp_path, monkeypatch):
    """The swept function in a module that workers can import, with a log of its executions."""
    (tmp_path / "swept_functions.py").write_text(FUNCTIONS, encoding="utf-8")
    (tmp_path / "driver.py").write_text(DRIVER, encoding="utf-8")
    monkeypatch.setenv("SWEEP_LOG", str(tmp_path / "log"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "swept_functions", raising=False)
    import swept_functions

    return swept_functions.noted


def executions(folder: Path) -> Counter:
    log = folder / "log"
    return Counter(log.read_text().split()) if log.exists() else Counter()


def results(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (store / "results").rglob("*.nc")}


def acknowledged(store: Path) -> dict[str, str]:
    """Hash of every result that the ledger has promised."""
    if not (store / "ledger.sqlite").exists():
        return {}
    ledger = Store(store).ledger()
    try:
        return {row.digest: row.sha256 for row in ledger.rows(TaskStatus.done)} if ledger.meta("study") else {}
    finally:
        ledger.close()


def undisturbed(noted, folder: Path, grid: dict, base: dict) -> dict[str, bytes]:
    made = sweep.run(noted, grid, base=base, store=folder / "undisturbed", executor="in-process")
    assert made.complete
    (folder / "log").unlink()
    return results(folder / "undisturbed")


def survive_worker_kills(noted, folder: Path, *, tasks: int, number: int, seed: int) -> None:
    grid, base, rng, kills = {"centre": list(range(tasks))}, {"pause": 0.004}, random.Random(seed), []
    expected = undisturbed(noted, folder, grid, base)
    moments = sorted(rng.sample(range(1, tasks - 4), number))

    def kill() -> None:
        alive = multiprocessing.active_children()
        if alive:
            kills.append(rng.choice(alive).pid)
            os.kill(kills[-1], signal.SIGKILL)

    def watch(summary: sweep.Summary) -> None:
        while moments and summary.computed >= moments[0]:
            moments.pop(0)
            # A moment later, so that deaths fall anywhere: starting, computing, packing, sending.
            threading.Timer(rng.uniform(0.0, 0.03), kill).start()

    made = sweep.run(noted, grid, base=base, store=folder / "store", workers=2, batch=3, watcher=watch)
    assert made.complete
    assert made.total == made.computed == tasks
    # The last may come when all is done.
    assert len(kills) >= max(1, number - 2)
    assert results(folder / "store") == expected
    assert sweep.verify(folder / "store") == []
    again = executions(folder)
    # A kill costs at most the task that was being computed.
    assert len(again) == tasks
    assert again.total() <= tasks + len(kills)
    # ... and only that one is blamed, not those that waited behind it.
    ledger = Store(folder / "store").ledger()
    assert sum(row.deaths for row in ledger.rows(TaskStatus.done)) <= len(kills)
    ledger.close()


def test_killed_workers_cost_nothing_but_time(noted, tmp_path):
    survive_worker_kills(noted, tmp_path, tasks=20, number=2, seed=3)


@pytest.mark.slow
def test_a_thousand_tasks_with_killed_workers(noted, tmp_path):
    # One task is given up only if five of the kills fall on it, which has a chance below 1e-6.
    survive_worker_kills(noted, tmp_path, tasks=1000, number=50, seed=1)


def driver(folder: Path, grid: dict, base: dict, store: Path, workers: int = 2) -> subprocess.Popen:
    arguments = json.dumps([grid, base, str(store), workers])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, str(folder / "driver.py"), arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(store: Path, number: int, process: subprocess.Popen) -> None:
    """Wait until so many results are acknowledged, or the driver has ended."""
    limit = time.monotonic() + 60
    while len(acknowledged(store)) < number and process.poll() is None:
        assert time.monotonic() < limit, "the driver acknowledges nothing"
        time.sleep(0.005)


def survive_driver_kills(noted, folder: Path, *, tasks: int, kills: int, pause: float, seed: int) -> None:
    grid, base, rng = {"centre": list(range(tasks))}, {"pause": pause}, random.Random(seed)
    expected, store, workers = undisturbed(noted, folder, grid, base), folder / "store", 2
    promised: dict[str, str] = {}
    for _ in range(kills):
        before = executions(folder).total() - len(promised)
        process = driver(folder, grid, base, store, workers)
        wait_for(store, len(promised) + rng.randint(1, max(2, tasks // (kills + 1))), process)
        time.sleep(rng.uniform(0.0, 0.02))
        process.kill()
        process.communicate()
        time.sleep(0.1)  # orphaned workers end by themselves
        now = acknowledged(store)
        assert promised.items() <= now.items(), "an acknowledged result was lost"
        wasted = executions(folder).total() - len(now) - before
        assert wasted <= workers, f"{wasted} executions lost by one kill"
        promised = now
    made = sweep.run(noted, grid, base=base, store=store, executor="in-process")
    assert made.complete
    assert made.computed == tasks - len(promised)
    assert results(store) == expected
    assert executions(folder).total() <= tasks + kills * workers


def test_killed_drivers_lose_nothing_acknowledged(noted, tmp_path):
    survive_driver_kills(noted, tmp_path, tasks=16, kills=1, pause=0.02, seed=5)


@pytest.mark.slow
def test_a_thousand_tasks_with_killed_drivers(noted, tmp_path):
    survive_driver_kills(noted, tmp_path, tasks=1000, kills=20, pause=0.01, seed=6)


@pytest.mark.slow
def test_interrupting_once_finishes_what_runs_and_twice_does_not(noted, tmp_path):
    grid, base, store = {"centre": list(range(4))}, {"pause": 0.4}, tmp_path / "store"
    process = driver(tmp_path, grid, base, store, workers=1)
    wait_for(store, 1, process)
    with pytest.raises(InvalidSpec, match="no other process may drive"):
        sweep.run(noted, grid, base=base, store=store)
    with pytest.raises(InvalidSpec, match="no other process may drive"):
        sweep.verify(store)
    assert sweep.status(store).driven
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    done, failed, interrupted = json.loads(output)
    assert interrupted, errors
    assert failed == 0
    # All that was begun was finished and entered.
    assert done == executions(tmp_path).total() < 4
    process = driver(tmp_path, grid, {"pause": 60.0}, tmp_path / "long", workers=1)
    while executions(tmp_path).total() < done + 1:
        time.sleep(0.01)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    output, errors = process.communicate(timeout=10)
    assert json.loads(output) == [0, 0, True], errors
    assert not sweep.status(tmp_path / "long").driven


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A finished store of twelve results, to be damaged and mended again and again."""
    store = tmp_path_factory.mktemp("damage") / "store"
    sweep.run(squared, {"number": list(range(12))}, store=store, executor="in-process")
    return store, results(store)


def squared(spec):
    return {"square": spec["number"] ** 2, "noise": spec.rng().normal()}


def damaged(content: bytes, kind: str, where: int) -> bytes | None:
    place = where % len(content)
    if kind == "flipped":
        return content[:place] + bytes([content[place] ^ (1 << (where % 8))]) + content[place + 1 :]
    return {"truncated": content[:place], "emptied": b"", "gone": None}[kind]


KINDS = st.sampled_from(["truncated", "emptied", "flipped", "gone"])
DAMAGE = st.dictionaries(st.integers(0, 11), st.tuples(KINDS, st.integers(0, 10**6)), min_size=1, max_size=5)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damage=DAMAGE)
def test_damage_is_found_set_apart_and_mended(shared, damage):
    store, whole = shared
    names = sorted(whole)
    for number, (kind, where) in damage.items():
        path = Store(store).path(names[number].removesuffix(".nc"))
        content = damaged(whole[names[number]], kind, where)
        path.unlink() if content is None else path.write_bytes(content)
    found = sweep.verify(store)
    assert {one.digest for one in found} == {names[k].removesuffix(".nc") for k in damage}
    assert sweep.verify(store) == []
    assert sweep.status(store).missing == len(damage)
    apart = {names[k] for k, (kind, _) in damage.items() if kind != "gone"}
    assert {path.name for path in (store / "quarantine").glob("*")} == apart
    made = sweep.run(squared, {"number": list(range(12))}, store=store, executor="in-process")
    assert made.computed == len(damage)
    assert results(store) == whole
    assert {path.name for path in sweep.prune(store)} == apart
