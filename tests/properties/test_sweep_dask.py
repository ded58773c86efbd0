"""A sweep on a dask cluster whose workers are killed and replaced ends with equal bytes."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from learncast import InvalidSpec, sweep
from learncast.sweep import Cluster

pytest.importorskip("distributed")
import dask

#: Roles that need a certificate.
WHO = ("scheduler", "worker", "client")


class BatchSystem:
    """A dask scheduler with workers, each in a process of its own; a dead worker can be replaced."""

    def __init__(self, witness, workers: int, *, protocol: str = "tcp", settings: dict[str, str] | None = None) -> None:
        self.folder: Path = witness.folder
        quiet = {"DASK_DISTRIBUTED__LOGGING__DISTRIBUTED": "error"}
        self._environment, self._protocol = {**witness.environment(), **quiet, **(settings or {})}, protocol
        self._one_at_a_time = threading.Lock()
        self._book = self.folder / "scheduler.json"
        self._scheduler = self._start("scheduler", "--port", "0")
        self.address = self._known_address()
        self.workers = [self._worker() for _ in range(workers)]

    def replace(self, which: int) -> None:
        """Kill a worker and start another."""
        with self._one_at_a_time:
            self.workers[which].kill()
            self.workers[which].wait()
            self.workers[which] = self._worker()

    def end(self) -> None:
        for process in [*self.workers, self._scheduler]:
            process.kill()
            process.wait()

    def _worker(self) -> subprocess.Popen[bytes]:
        place = ["--local-directory", str(self.folder / "scratch")]
        return self._start("worker", "--no-nanny", "--nthreads", "1", "--memory-limit", "0", *place)

    def _start(self, kind: str, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", "--scheduler-file", str(self._book)]
        with (self.folder / f"{kind}.log").open("ab") as log:
            return subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--protocol", self._protocol, "--no-dashboard", *words],
                env=self._environment,
                stdout=log,
                stderr=log,
            )

    def _known_address(self) -> str:
        limit = time.monotonic() + 30
        while time.monotonic() < limit:
            with contextlib.suppress(OSError, json.JSONDecodeError):
                return json.loads(self._book.read_text())["address"]
            time.sleep(0.02)
        raise AssertionError((self.folder / "scheduler.log").read_text())


@pytest.fixture
def batch_system(witness):
    system = BatchSystem(witness, 2)
    yield system
    system.end()


def survive_worker_kills(witness, system: BatchSystem, *, tasks: int, number: int, batch: int, seed: int) -> None:
    grid, base, rng = {"centre": list(range(tasks))}, {"pause": 0.004}, random.Random(seed)
    expected, store = witness.undisturbed(grid, base), witness.folder / "store"
    moments, timers = sorted(rng.sample(range(1, tasks - 5), number)), []

    def watch(summary: sweep.Summary) -> None:
        while moments and summary.computed >= moments[0]:
            moments.pop(0)
            timers.append(threading.Timer(rng.uniform(0.0, 0.03), system.replace, [rng.randrange(2)]))
            timers[-1].start()

    executor = Cluster(system.address, workers=2)
    made = sweep.run(witness.function, grid, base=base, store=store, executor=executor, batch=batch, watcher=watch)
    for timer in timers:
        timer.join()
    assert len(timers) == number
    assert (made.total, made.done, made.computed, made.failed) == (tasks, tasks, tasks, 0)
    assert witness.results(store) == expected
    assert sweep.verify(store) == []
    again = witness.executions()
    assert len(again) == tasks
    # A kill costs at most both batches, because the other worker may still be starting. Dask may start a batch twice:
    # when it notices the death, and when it learns that the result cannot be fetched.
    assert again.total() <= tasks + number * batch * 2 * 2


@pytest.mark.slow
def test_killed_dask_workers_change_no_result(witness, batch_system):
    survive_worker_kills(witness, batch_system, tasks=30, number=2, batch=2, seed=4)


@pytest.mark.slow
def test_hundreds_of_tasks_and_forty_killed_dask_workers(witness, batch_system):
    # A task fails only if some ten kills hit it, which has a probability far below 1e-6.
    survive_worker_kills(witness, batch_system, tasks=400, number=40, batch=3, seed=2)


def test_a_scheduler_lost_while_counting_workers_is_not_an_error_yet():
    class Gone:
        def nthreads(self):
            raise OSError("connection reset by peer")

    cluster = Cluster("tcp://nowhere:8786")
    cluster._client = Gone()
    assert cluster.idle() == 1
    assert cluster.withdraw() == []
    cluster._check_workers()
    assert not cluster.warning


@pytest.mark.slow
def test_a_lost_scheduler_stops_the_sweep_with_an_error(witness, batch_system):
    grid, base, store = {"centre": list(range(60))}, {"pause": 0.05}, witness.folder / "store"

    def watch(summary: sweep.Summary) -> None:
        if summary.computed >= 4:
            batch_system._scheduler.kill()

    with pytest.raises(InvalidSpec) as error:
        sweep.run(
            witness.function,
            grid,
            base=base,
            store=store,
            executor=Cluster(batch_system.address),
            batch=1,
            watcher=watch,
        )
    assert error.value.field == "scheduler"
    made = sweep.run(witness.function, grid, base=base, store=store, executor="in-process")
    assert made.complete
    assert 0 < made.computed < 60


@pytest.mark.slow
def test_workers_that_cannot_load_the_function_use_up_no_attempts(witness, tmp_path_factory, monkeypatch):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "unknown_to_workers.py").write_text("def one(spec):\n    return 1.0\n", encoding="utf-8")
    system = BatchSystem(witness, 1)
    try:
        monkeypatch.syspath_prepend(elsewhere)
        import unknown_to_workers

        store = witness.folder / "store"
        with pytest.raises(InvalidSpec) as error:
            sweep.run(unknown_to_workers.one, {"a": [1, 2, 3]}, store=store, executor=Cluster(system.address))
        assert error.value.field == "function"
        assert sweep.status(store).failed == 0
    finally:
        system.end()


def test_invalid_addresses_of_a_scheduler_are_refused(tmp_path):
    for address in ("localhost", "nonsense://x:1"):
        with pytest.raises(InvalidSpec) as error:
            sweep.run(one, {"a": [1]}, store=tmp_path / "s", executor=Cluster(address))
        assert error.value.field == "scheduler"
    # Other users of dask in this process, such as xarray, are not affected.
    assert dask.config.get("scheduler", None) is None


def one(spec):
    """Return a number."""
    return 1.0


@pytest.mark.slow
def test_a_tls_scheduler_is_reached_only_with_certificates(witness):
    """The certificates are made as the how-to describes; dask reads their paths from its own settings."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, certificate = witness.folder / "key.pem", witness.folder / "cert.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*words, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    tls = {"ca-file": str(certificate), **{who: {"cert": str(certificate), "key": str(key)} for who in WHO}}
    places = {f"distributed.comm.tls.{who}": place for who, place in tls.items()}
    settings = {"DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True", "DASK_DISTRIBUTED__COMM__TLS": repr(tls)}
    system, grid = BatchSystem(witness, 1, protocol="tls", settings=settings), {"centre": list(range(5))}
    base = {"pause": 0.0}
    try:
        assert system.address.startswith("tls://")
        expected, store = witness.undisturbed(grid, base), witness.folder / "store"
        with pytest.raises(InvalidSpec) as error:
            sweep.run(
                witness.function, grid, base=base, store=witness.folder / "refused", executor=Cluster(system.address)
            )
        assert error.value.field == "scheduler"
        with dask.config.set({**places, "distributed.comm.require-encryption": True}):
            made = sweep.run(witness.function, grid, base=base, store=store, executor=Cluster(system.address))
    finally:
        system.end()
    assert made.complete
    assert witness.results(store) == expected
