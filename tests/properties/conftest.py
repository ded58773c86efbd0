"""A swept function that logs its executions, in a module that any process can import."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from learncast import sweep

FUNCTIONS = '''
import os, time
import numpy as np
import xarray as xr

def noted(spec):
    """Log the execution, pause (or wait for the release), and return random numbers."""
    log = os.open(os.environ["SWEEP_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(log, (spec.digest + "\\n").encode())
    os.close(log)
    time.sleep(spec["pause"])
    limit = time.monotonic() + 20
    while os.path.exists(os.environ["SWEEP_LOG"] + ".hold"):
        if time.monotonic() > limit:
            raise TimeoutError("it was not released")
        time.sleep(0.01)
    rng = spec.rng()
    return xr.Dataset({"mean": rng.normal(spec["centre"]), "path": ("time", rng.normal(size=7))})

def forecasts(spec):
    """Forecast the learning time of one network at many learning rates."""
    import learncast as lc
    task = lc.tasks.integration(steps=6)
    network = lc.LinearRNN.aligned(recurrence=spec["recurrence"], initial=0.05, hidden_size=4, task=task)
    rates = np.geomspace(1e-3, 1e-2, spec["rates"])
    found = [lc.forecast(task, network, learning_rate=rate, goal=lc.Accuracy(0.9)).steps for rate in rates]
    return xr.Dataset(
        {"flow": ("rate", [one.flow for one in found]), "steps": ("rate", [one.descent for one in found])},
        {"rate": rates},
    )
'''

DRIVER = """
import json, sys
from learncast import LearncastError, sweep
import swept_functions

if __name__ == "__main__":
    grid, base, store, workers, batch = json.loads(sys.argv[1])
    try:
        made = sweep.run(swept_functions.noted, grid, base=base, store=store, workers=workers, batch=batch)
    except LearncastError as error:
        sys.exit(str(error))
    print(json.dumps([made.done, made.failed, made.interrupted, made.computed]), flush=True)
"""


@dataclass(frozen=True)
class Witness:
    """The swept function, and what sweeps over it leave on the disk."""

    folder: Path
    function: Any
    drivers: list[subprocess.Popen[str]] = field(default_factory=list)

    def executions(self) -> Counter[str]:
        """Return how often each task was started."""
        log = self.folder / "log"
        return Counter(log.read_text().split()) if log.exists() else Counter()

    def undisturbed(self, grid: dict[str, Any], base: dict[str, Any]) -> dict[str, bytes]:
        """Return the result files of an undisturbed sweep, and clear the log."""
        store = self.folder / "undisturbed"
        assert sweep.run(self.function, grid, base=base, store=store, executor="in-process").complete
        (self.folder / "log").unlink()
        return self.results(store)

    @staticmethod
    def results(store: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (store / "results").rglob("*.nc")}

    @staticmethod
    def acknowledged(store: Path) -> dict[str, str]:
        """Return the SHA-256 of every result that the ledger lists as done, read directly from SQLite."""
        return {digest: sha256 for digest, sha256, _ in _done(store)}

    @staticmethod
    def deaths(store: Path) -> int:
        """Return the number of worker deaths that the ledger attributes to finished tasks."""
        return sum(deaths for _, _, deaths in _done(store))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let no execution end."""
        hold = self.folder / "log.hold"
        hold.touch()
        try:
            yield
        finally:
            hold.unlink()

    def environment(self) -> dict[str, str]:
        """Return the environment in which another process can import the function."""
        places = [str(self.folder), os.environ.get("PYTHONPATH", "")]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}

    def driver(
        self, grid: dict[str, Any], base: dict[str, Any], store: Path, *, workers: int = 2, batch: int | None = 1
    ) -> subprocess.Popen[str]:
        """Start a process that drives a sweep."""
        command = [
            sys.executable,
            str(self.folder / "driver.py"),
            json.dumps([grid, base, str(store), workers, batch]),
        ]
        pipe = subprocess.PIPE
        self.drivers.append(subprocess.Popen(command, env=self.environment(), stdout=pipe, stderr=pipe, text=True))
        return self.drivers[-1]

    @staticmethod
    def kill(process: subprocess.Popen[str]) -> None:
        """Kill a driver, and wait for its workers, which must end by themselves."""
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.kill()
        process.communicate()
        limit = time.monotonic() + 10
        while any(map(running, children)):
            assert time.monotonic() < limit, "workers outlive their driver"
            time.sleep(0.005)


def _done(store: Path) -> list[tuple[str, str, int]]:
    """Digest, SHA-256 and deaths of the finished tasks; empty before the tasks were entered."""
    path = store / "ledger.sqlite"
    if not path.exists():
        return []
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30.0)) as connection:
        try:
            return connection.execute("SELECT digest, sha256, deaths FROM tasks WHERE status = 1").fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return []
            raise


def running(process: psutil.Process) -> bool:
    """Return whether a process is alive and not a zombie."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def witness(tmp_path, monkeypatch):
    (tmp_path / "swept_functions.py").write_text(FUNCTIONS, encoding="utf-8")
    (tmp_path / "driver.py").write_text(DRIVER, encoding="utf-8")
    monkeypatch.setenv("SWEEP_LOG", str(tmp_path / "log"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "swept_functions", raising=False)
    import swept_functions

    made = Witness(tmp_path, swept_functions.noted)
    yield made
    for process in made.drivers:
        if process.poll() is None:
            process.kill()
            process.communicate()
