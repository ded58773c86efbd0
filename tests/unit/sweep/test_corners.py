"""Edge cases of sweeps: unusual results and stores, damage, and tasks that start processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sqlite3
import sys
import time

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

from learncast import InvalidSpec, SchemaMismatch, UnsupportedModel, sweep
from learncast._core.netcdf import packed, read
from learncast.cli import app
from learncast.sweep import Cluster, Fate, InProcess, Outcome, ledger
from learncast.sweep.jobs import as_dataset
from learncast.sweep.studies import sweep_of
from learncast.sweep.sweeping import run_sweep


def run_here(function, grid, store, **keywords):
    return sweep.run(function, grid, store=store, executor="in-process", **keywords)


@pytest.mark.parametrize(
    "made",
    [
        xr.Dataset({"loss": 1.0}, attrs={"dataset": "mnist"}),
        xr.Dataset({"dataset": 2.0, "loss": 1.0}),
        xr.Dataset({"loss": ("dataset", [1.0, 2.0])}, coords={"dataset": ["a", "b"]}),
    ],
)
def test_a_dataset_with_something_named_dataset_is_kept(made):
    assert as_dataset(made) is made


def test_an_object_is_replaced_by_its_dataset():
    class Answer:
        dataset = xr.Dataset({"a": 1})

    assert as_dataset(Answer()) is Answer.dataset


@pytest.mark.parametrize(
    "made",
    [
        xr.Dataset({"loss/train": 1.0}),
        xr.Dataset({"": 1.0}),
        xr.Dataset({"a": ((), 3.0, {"scale_factor": 2.0})}),
        xr.Dataset({"a": ((), -1.0, {"missing_value": -1.0})}),
        xr.Dataset({"a": ((), 7, {"units": "days since 2000-01-01"})}),
        xr.Dataset({"a": 1}, attrs={"nothing": None}),
        xr.Dataset({"a": 1}, attrs={"table": {"b": 1}}),
    ],
)
def test_datasets_that_netcdf_would_change_are_refused(made):
    with pytest.raises(UnsupportedModel):
        packed(made)


def test_numpy_strings_can_be_attributes():
    found = read(packed(xr.Dataset(attrs={"one": np.str_("é"), "two": np.array(["a", "b"]), "three": [1, 2]})))
    assert found.attrs["one"] == "é"
    assert found.attrs["two"] == ["a", "b"]


def test_a_data_file_with_new_content_is_refused(tmp_path):
    rng = np.random.default_rng(0)

    def record():
        np.savez(tmp_path / "trials.npz", inputs=rng.normal(size=(40, 5, 1)), targets=rng.normal(size=(40, 1)))

    record()
    study = tmp_path / "study.toml"
    study.write_text(
        "[network]\nhidden_size = 2\n[training]\nlearning_rate = 1e-3\n[target]\ndata = 'trials.npz'\n"
        "[sweep]\ncommand = 'forecast'\n[sweep.grid]\nnetwork.hidden_size = [2, 3]\n",
        encoding="utf-8",
    )
    run_sweep(sweep_of(study), tmp_path / "s", InProcess())
    assert sweep.resume(tmp_path / "s", executor="in-process").total == 2
    record()
    with pytest.raises(InvalidSpec) as error:
        sweep.resume(tmp_path / "s", executor="in-process")
    assert error.value.field == "study"
    assert "notes.files" in str(error.value)


def uneven(spec):
    """Different variables of different length in every cell."""
    return {f"v{spec['a']}": ("x", np.arange(2.0 + spec["a"]))}


def shifted(spec):
    """A coordinate that differs, and a variable with its new name."""
    return xr.Dataset({"time_value": ("time", [7.0, 8.0])}, coords={"time": [0.0, 1.0 + spec["a"]]})


def mixed(spec):
    """A number in one cell, a string in another."""
    return {"v": 1.0 if spec["a"] == 0 else "one"}


def square(spec):
    """A matrix with the name of one of its dimensions."""
    return xr.Dataset({"x": (("x", "y"), np.eye(2))})


def half(spec):
    """A 16-bit number."""
    return {"v": np.float16(0.5)}


def test_results_of_different_shape_are_padded(tmp_path):
    run_here(uneven, {"a": [1, 3]}, tmp_path / "u")
    found = sweep.gather(tmp_path / "u")
    assert found.sizes["x"] == 5
    np.testing.assert_array_equal(found["v1"].sel(a=1).values, [0, 1, 2, np.nan, np.nan])
    run_here(shifted, {"a": [0, 1]}, tmp_path / "s")
    found = sweep.gather(tmp_path / "s")
    assert (found["time_value"] == [7.0, 8.0]).all()
    np.testing.assert_array_equal(found["time_value_"].values, [[0, 1], [0, 2]])
    run_here(mixed, {"a": [0, 1]}, tmp_path / "m")
    with pytest.raises(SchemaMismatch) as error:
        sweep.gather(tmp_path / "m")
    assert error.value.field == "v"
    run_here(square, {"a": [0, 1]}, tmp_path / "q")
    np.testing.assert_array_equal(sweep.gather(tmp_path / "q")["x_value"].values, [np.eye(2)] * 2)


def test_empty_grids_large_integers_and_16_bit_numbers_are_gathered(tmp_path):
    run_here(half, {}, tmp_path / "e")
    assert sweep.gather(tmp_path / "e")["v"].item() == 0.5
    run_here(half, {"a": [2**70, 1]}, tmp_path / "h")
    sweep.gather(tmp_path / "h", out=tmp_path / "h.nc", table=tmp_path / "h.parquet")
    with xr.open_dataset(tmp_path / "h.nc") as found:
        assert found["a"].values.tolist() == [str(2**70), "1"]


def leaving(spec):
    """Exit, or raise an error that cannot be encoded."""
    if spec["a"] == 1:
        sys.exit("quota")
    if spec["a"] == 2:
        raise ValueError("bad file \udcff.txt")
    return 1.0


def test_a_task_that_exits_or_raises_odd_text_does_not_stop_the_others(tmp_path):
    made = run_here(leaving, {"a": [0, 1, 2]}, tmp_path / "s", attempts=1)
    assert (made.done, made.failed) == (1, 2)
    errors = [one.error for one in sweep.failures(tmp_path / "s")]
    assert "SystemExit: quota" in errors[0]
    assert r"\udcff" in errors[1]


def test_fail_fast_counts_only_failures_of_its_own_run(tmp_path):
    first = run_here(leaving, {"a": [1, 0, 3, 4]}, tmp_path / "s", attempts=1, fail_fast=True)
    assert (first.done, first.failed) == (0, 1)
    second = sweep.resume(tmp_path / "s", leaving, executor="in-process", attempts=1, fail_fast=True)
    assert (second.done, second.failed) == (3, 1)


def test_a_store_named_results_can_be_pruned(tmp_path):
    store = tmp_path / "results"
    run_here(half, {"a": [1]}, store)
    (path,) = (store / "results").rglob("*.nc")
    path.write_bytes(b"")
    assert len(sweep.verify(store)) == 1
    assert sweep.resume(store, half, executor="in-process").complete
    assert [one.parent.name for one in sweep.prune(store)] == ["quarantine"]


def wandering(spec):
    """Change the working directory."""
    os.chdir("/")
    return 1.0


def test_a_task_may_change_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_here(wandering, {"a": [1, 2]}, "s").complete
    assert sweep.verify(tmp_path / "s") == []
    assert len(list((tmp_path / "s" / "results").rglob("*.nc"))) == 2


def test_shards_of_different_numbers_are_not_mixed(tmp_path):
    for shard in ((1, 2), (1, 3)):
        run_here(half, {"a": [1, 2, 3, 4]}, tmp_path / str(shard[1]), shard=shard)
    with pytest.raises(InvalidSpec) as error:
        sweep.gather([tmp_path / "2", tmp_path / "3"])
    assert error.value.field == "store"


def test_a_file_that_is_no_ledger_is_refused(tmp_path):
    (tmp_path / "ledger.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(SchemaMismatch) as error:
        sweep.status(tmp_path)
    assert error.value.field == "store"


def test_a_read_only_archive_can_be_read(tmp_path, monkeypatch):
    run_here(half, {"a": [1, 2]}, tmp_path / "s")
    opened, modes = ledger._opened, []

    class Refused:
        """What SQLite does if it cannot create its journal."""

        def execute(self, _):
            error = sqlite3.OperationalError("unable to open database file")
            error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
            raise error

        def close(self):
            pass

    def opening(path, mode):
        modes.append(mode)
        return Refused() if mode == "mode=ro" else opened(path, mode)

    monkeypatch.setattr(ledger, "_opened", opening)
    assert sweep.status(tmp_path / "s").done == 2
    assert "mode=ro&immutable=1" in modes
    # With a journal, the ledger itself is incomplete.
    (tmp_path / "s" / "ledger.sqlite-wal").write_bytes(b"")
    with pytest.raises(SchemaMismatch):
        sweep.status(tmp_path / "s")


def pooled(spec):
    """Start processes, which end by SIGTERM."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return float(sum(pool.map(abs, [spec["a"], -1])))


def orphaning(spec):
    """Die once, and leave a child that keeps the pipe open."""
    mark = spec["mark"]
    if not os.path.exists(mark):
        open(mark, "w").close()
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    return 1.0


@pytest.mark.slow
def test_tasks_may_start_processes(tmp_path):
    assert sweep.run(pooled, {"a": list(range(12))}, store=tmp_path / "s", workers=1).complete


@pytest.mark.slow
def test_a_dead_worker_with_a_living_child_is_replaced(tmp_path):
    begun = time.monotonic()
    grid, base = {"a": [1, 2]}, {"mark": str(tmp_path / "mark")}
    assert sweep.run(orphaning, grid, base=base, store=tmp_path / "s", workers=1).complete
    assert time.monotonic() - begun < 25


class Deserted(InProcess):
    """A cluster without workers: jobs are never started."""

    def wait(self, seconds):
        return []

    def withdraw(self):
        unstarted = [Outcome(job, Fate.unstarted) for job in self._waiting]
        self._waiting.clear()
        return unstarted


def test_a_stop_does_not_wait_for_jobs_that_no_worker_starts(tmp_path):
    summaries = []

    def watch(summary):
        if len(summaries) in (0, 20):  # the second signal stops immediately, so that a fault cannot hang the tests
            os.kill(os.getpid(), signal.SIGTERM)
        summaries.append(summary)

    made = sweep.run(half, {"a": [1, 2]}, store=tmp_path / "s", executor=Deserted(), watcher=watch)
    assert made.interrupted
    assert len(summaries) < 20
    assert (made.done, made.failed) == (0, 0)
    assert sweep.resume(tmp_path / "s", half, executor="in-process").complete


def slow(spec):
    time.sleep(0.05)
    return {"value": spec["number"]}


def test_a_sweep_that_runs_out_of_time_can_be_continued(tmp_path):
    grid = {"number": list(range(40))}
    made = run_here(slow, grid, tmp_path / "store", seconds=0.3)
    assert 1 <= made.done < 40
    assert made.missing == 40 - made.done
    assert not made.interrupted
    assert run_here(slow, grid, tmp_path / "store").complete
    with pytest.raises(InvalidSpec) as error:
        run_here(slow, {"number": [1, 2]}, tmp_path / "other", seconds=0)
    assert error.value.field == "seconds"


# --- damaged and finished stores --------------------------------------------------------------------------------------


def squared(spec):
    if spec["number"] in spec.get("bad", []):
        raise ValueError(f"no square of {spec['number']}")
    return {"value": spec["number"] ** 2, "noise": spec.rng().normal()}


def swept(store, **keywords):
    return run_here(squared, {"number": list(range(6))}, store, **keywords)


@pytest.mark.parametrize("damage", ["emptied", "gone", "noise"])
def test_a_lost_ledger_is_reported_and_rebuilt_from_the_results(tmp_path, damage):
    store = tmp_path / "store"
    swept(store)
    files = {path: path.read_bytes() for path in (store / "results").rglob("*.nc")}
    gathered = sweep.gather(store)
    bad = sorted(files)[0]
    bad.write_bytes(files[bad][:100])
    place = store / "ledger.sqlite"
    for path in store.glob("ledger.sqlite*"):
        path.unlink()
    if damage == "emptied":
        sqlite3.connect(place).close()
        place.touch()
    elif damage == "noise":
        place.write_bytes(os.urandom(5000))
    for function in (sweep.status, sweep.verify, swept):
        with pytest.raises((InvalidSpec, SchemaMismatch)) as error:
            function(store)
        assert "sweep rebuild" in str(error.value)
    made = sweep.rebuild(store)
    assert (made.done, made.missing, made.failed) == (5, 1, 0)
    assert [path.name for path in (store / "quarantine").iterdir()] == [bad.name]
    assert sweep.verify(store) == []
    assert swept(store).computed == 1
    assert {path: path.read_bytes() for path in (store / "results").rglob("*.nc")} == files
    xr.testing.assert_identical(sweep.gather(store), gathered)
    with pytest.raises(InvalidSpec):
        sweep.rebuild(store)


def test_a_ledger_is_not_rebuilt_from_a_changed_study(tmp_path):
    swept(tmp_path / "store")
    for path in (tmp_path / "store").glob("ledger.sqlite*"):
        path.unlink()
    page = tmp_path / "store" / "study.json"
    page.write_text(page.read_text().replace('"base": {}', '"base": {"bad": [1]}'))
    for change in (lambda: None, page.unlink):
        change()
        with pytest.raises(InvalidSpec) as error:
            sweep.rebuild(tmp_path / "store")
        assert error.value.field == "study"


def test_a_folder_without_a_sweep_is_not_rebuilt(tmp_path):
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(InvalidSpec) as error:
            sweep.rebuild(folder)
        assert error.value.field == "store"
    assert not list(tmp_path.iterdir())


def test_a_read_only_archive_is_verified_without_changes(tmp_path, monkeypatch):
    store = tmp_path / "store"
    swept(store)
    bad = next((store / "results").rglob("*.nc"))
    bad.write_bytes(b"")
    kept = [path for path in store.rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in kept}
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr("learncast.sweep.store.Store.locked", None)
    assert [one.digest for one in sweep.verify(store)] == [bad.stem]
    assert {path: path.read_bytes() for path in kept} == before


def test_the_status_lists_failed_cells_and_the_command_that_retries_them(tmp_path):
    swept(tmp_path / "store", base={"bad": [2, 4]})
    shown = CliRunner().invoke(app, ["sweep", "status", str(tmp_path / "store"), "--errors", "0"]).output
    assert "finished" in shown
    assert "2 failed" in shown
    assert f"number = 2: {ValueError.__name__}" in shown
    assert f"sweep resume {tmp_path / 'store'} --retry" in shown
    assert "Traceback" not in shown


def test_the_status_of_a_sweep_without_failures_is_complete(tmp_path):
    swept(tmp_path / "store")
    found = CliRunner().invoke(app, ["sweep", "status", str(tmp_path / "store")])
    assert "store: complete; " in found.output


class Empty:
    """A scheduler that has no workers."""

    status = "running"

    def nthreads(self):
        return {}


def test_a_scheduler_without_workers_gives_a_warning_after_a_while(monkeypatch):
    cluster = Cluster("tcp://nowhere:1")
    cluster._client = Empty()
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    for clock[0] in (1.0, 20.0):
        cluster._check_workers()
        assert cluster.warning == ""
    clock[0] = 40.0
    cluster._check_workers()
    assert "30 s" in cluster.warning
    Empty.nthreads = lambda self: {"tcp://a": 1}
    cluster._check_workers()
    assert cluster.warning == ""


@pytest.mark.slow
def test_a_local_cluster_takes_any_free_port(tmp_path):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("0.0.0.0", 8787))
        taken.listen()
        made = sweep.run(squared, {"number": [1, 2]}, store=tmp_path / "store", executor=Cluster(workers=1))
    assert made.complete
