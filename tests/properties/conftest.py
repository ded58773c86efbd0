"""A swept function that leaves a line for each of its executions, in a module that any process can import."""

from __future__ import annotations

import json
import os
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
from learncast.sweep import TaskStatus
from learncast.sweep.store import Store

FUNCTIONS = '''
import os, time
import numpy as np
import xarray as xr

def noted(spec):
    """Leave a line for every execution, take a moment (or wait to be let go), and return random numbers."""
    log = os.open(os.environ["SWEEP_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(log, (spec.digest + "\\n").encode())
    os.close(log)
    time.sleep(spec["pause"])
    limit = time.monotonic() + 20
    while os.path.exists(os.environ["SWEEP_LOG"] + ".hold"):
        if time.monotonic() > limit:
            raise TimeoutError("nobody let it go")
        time.sleep(0.01)
    rng = spec.rng()
    return xr.Dataset({"mean": rng.normal(spec["centre"]), "path": ("time", rng.normal(size=7))})

def forecasts(spec):
    """Forecast for real how long one network learns at each of many learning rates."""
    import learncast as lc
    task = lc.tasks.integration(steps=6)
    network = lc.LinearRNN.aligned(recurrence=spec["recurrence"], initial=0.05, hidden_size=4, task=task)
    rates = np.geomspace(1e-3, 1e-2, spec["rates"])
    found = [lc.time_to_learn(lc.solve(task, network, learning_rate=rate), 0.9) for rate in rates]
    return xr.Dataset(
        {"flow": ("rate", [one.flow_steps for one in found]), "steps": ("rate", [one.descent_steps for one in found])},
        {"rate": rates},
    )
'''

DRIVER = """
import json, sys
from learncast import sweep
from learncast._core.errors import LearncastError
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
    """The swept function, and what can be seen from outside of sweeps over it."""

    folder: Path
    function: Any
    drivers: list[subprocess.Popen[str]] = field(default_factory=list)

    def executions(self) -> Counter[str]:
        """How often each task was begun."""
        log = self.folder / "log"
        return Counter(log.read_text().split()) if log.exists() else Counter()

    def undisturbed(self, grid: dict[str, Any], base: dict[str, Any]) -> dict[str, bytes]:
        """The files of a sweep in which nothing happens; its executions are forgotten."""
        store = self.folder / "undisturbed"
        assert sweep.run(self.function, grid, base=base, store=store, executor="in-process").complete
        (self.folder / "log").unlink()
        return self.results(store)

    @staticmethod
    def results(store: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (store / "results").rglob("*.nc")}

    @staticmethod
    def acknowledged(store: Path) -> dict[str, str]:
        """Hash of every result that the ledger has promised."""
        if not (store / "ledger.sqlite").exists():
            return {}
        ledger = Store(store).ledger()
        try:
            return {row.digest: str(row.sha256) for row in ledger.rows(TaskStatus.done)} if ledger.meta("study") else {}
        finally:
            ledger.close()

    @staticmethod
    def deaths(store: Path) -> int:
        """How many deaths of workers the finished tasks are blamed for."""
        ledger = Store(store).ledger()
        try:
            return sum(row.deaths for row in ledger.rows(TaskStatus.done))
        finally:
            ledger.close()

    @contextmanager
    def held(self) -> Iterator[None]:
        """No execution ends inside."""
        hold = self.folder / "log.hold"
        hold.touch()
        try:
            yield
        finally:
            hold.unlink()

    def environment(self) -> dict[str, str]:
        """Where another process finds the function."""
        places = [str(self.folder), os.environ.get("PYTHONPATH", "")]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}

    def driver(
        self, grid: dict[str, Any], base: dict[str, Any], store: Path, *, workers: int = 2, batch: int | None = 1
    ) -> subprocess.Popen[str]:
        """A process of its own that drives a sweep."""
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
        """End a driver without warning, and wait for its workers, which must end by themselves."""
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.kill()
        process.communicate()
        limit = time.monotonic() + 10
        while any(map(running, children)):
            assert time.monotonic() < limit, "workers outlive their driver"
            time.sleep(0.005)


def running(process: psutil.Process) -> bool:
    """Whether a process can still do something; who is dead but not yet buried cannot."""
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

    found = Witness(tmp_path, swept_functions.noted)
    yield found
    for process in found.drivers:
        if process.poll() is None:
            process.kill()
            process.communicate()
