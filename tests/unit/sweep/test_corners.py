"""Corners of sweeps: odd results, odd grids, odd stores, and tasks that start processes of their own."""

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

from learncast import sweep
from learncast._core.errors import InvalidSpec, SchemaMismatch, UnsupportedModel
from learncast._core.netcdf import packed, read
from learncast.cli import app
from learncast.sweep import Grid, ledger
from learncast.sweep.executors import Cluster, Fate, InProcess, Outcome, as_dataset


def alone(function, grid, store, **keywords):
    return sweep.run(function, grid, store=store, executor="in-process", **keywords)


@pytest.mark.parametrize(
    "made",
    [
        xr.Dataset({"loss": 1.0}, attrs={"dataset": "mnist"}),
        xr.Dataset({"dataset": 2.0, "loss": 1.0}),
        xr.Dataset({"loss": ("dataset", [1.0, 2.0])}, coords={"dataset": ["a", "b"]}),
    ],
)
def test_a_dataset_is_kept_whatever_it_calls_its_own(made):
    assert as_dataset(made) is made


def test_an_object_with_a_dataset_gives_it():
    class Answer:
        dataset = xr.Dataset({"a": 1})

    assert as_dataset(Answer()) is Answer.dataset


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (xr.Dataset({"loss/train": 1.0}), "without a slash"),
        (xr.Dataset({"": 1.0}), "without a slash"),
        (xr.Dataset({"a": ((), 3.0, {"scale_factor": 2.0})}), "no attribute by which readers change"),
        (xr.Dataset({"a": ((), -1.0, {"missing_value": -1.0})}), "no attribute by which readers change"),
        (xr.Dataset({"a": ((), 7, {"units": "days since 2000-01-01"})}), "as dates"),
        (xr.Dataset({"a": 1}, attrs={"nothing": None}), "attribute nothing must hold numbers or words"),
        (xr.Dataset({"a": 1}, attrs={"table": {"b": 1}}), "attribute table must hold numbers or words"),
    ],
)
def test_what_would_come_back_as_something_else_is_refused(made, words):
    with pytest.raises(UnsupportedModel, match=words):
        packed(made)


def test_words_of_numpy_are_attributes_too():
    found = read(packed(xr.Dataset(attrs={"one": np.str_("é"), "two": np.array(["a", "b"]), "three": [1, 2]})))
    assert found.attrs["one"] == "é"
    assert found.attrs["two"] == ["a", "b"]


class Model:
    """Something with a number of its own."""

    def __init__(self, factor):
        self.factor = factor

    def scaled(self, spec):
        return self.factor * spec["a"]


def test_a_method_of_an_object_is_refused(tmp_path):
    with pytest.raises(InvalidSpec, match="a method of Model: the object's own values"):
        alone(Model(2).scaled, {"a": [1]}, tmp_path / "s")


def test_another_file_under_an_old_name_is_another_study(tmp_path):
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
    from learncast.sweep.studies import sweep_of
    from learncast.sweep.sweeping import carry_out, stored_sweep

    sweep_of(study)
    from learncast.sweep.executors import InProcess

    carry_out(sweep_of(study), tmp_path / "s", InProcess())
    assert sweep.resume(tmp_path / "s", executor="in-process").total == 2
    record()
    with pytest.raises(InvalidSpec, match=r"changes \(notes\.files"):
        carry_out(stored_sweep(tmp_path / "s"), tmp_path / "s", InProcess())


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"a/b": [1]}, "without a slash"),
        ({"a.b": [3], "a": [1, 2]}, "lie beside each other"),
        ({"a.b": [3], "a": {"b": [4]}}, "lie beside each other"),
        ([1, 2], "must be a mapping"),
        ({"a": ["\udcff"]}, "text that can be written"),
    ],
)
def test_odd_grids_are_refused(keys, words):
    with pytest.raises(InvalidSpec, match=words):
        Grid.of(keys)


def test_zips_are_lists():
    with pytest.raises(InvalidSpec, match="zips must be lists of keys"):
        Grid.of({"a": [1], "b": [1]}, zips=["ab"])


def test_conditions_see_a_table_that_varies():
    grid = Grid.of({"net": [{"h": 1}, {"h": 9}]}, conditions=["net.h < 3"])
    assert [cell["net"]["h"] for _, cell in grid.cells({"net": {"h": 5}})] == [1]


def uneven(spec):
    """Other variables, over one dimension, in every cell."""
    return {f"v{spec['a']}": ("x", np.arange(2.0 + spec["a"]))}


def shifted(spec):
    """A coordinate that differs, and a variable with the name it would get."""
    return xr.Dataset({"time_value": ("time", [7.0, 8.0])}, coords={"time": [0.0, 1.0 + spec["a"]]})


def mixed(spec):
    """A number here, a word there."""
    return {"v": 1.0 if spec["a"] == 0 else "one"}


def square(spec):
    """A matrix named like one of its dimensions."""
    return xr.Dataset({"x": (("x", "y"), np.eye(2))})


def half(spec):
    """A short number."""
    return {"v": np.float16(0.5)}


def test_cells_that_differ_are_laid_side_by_side(tmp_path):
    alone(uneven, {"a": [1, 3]}, tmp_path / "u")
    found = sweep.gather(tmp_path / "u")
    assert found.sizes["x"] == 5
    np.testing.assert_array_equal(found["v1"].sel(a=1).values, [0, 1, 2, np.nan, np.nan])
    alone(shifted, {"a": [0, 1]}, tmp_path / "s")
    found = sweep.gather(tmp_path / "s")
    assert (found["time_value"] == [7.0, 8.0]).all()
    np.testing.assert_array_equal(found["time_value_"].values, [[0, 1], [0, 2]])
    alone(mixed, {"a": [0, 1]}, tmp_path / "m")
    with pytest.raises(SchemaMismatch, match="v must hold values of one kind in every cell"):
        sweep.gather(tmp_path / "m")
    alone(square, {"a": [0, 1]}, tmp_path / "q")
    np.testing.assert_array_equal(sweep.gather(tmp_path / "q")["x_value"].values, [np.eye(2)] * 2)


def test_empty_grids_large_numbers_and_short_ones_are_gathered(tmp_path):
    alone(half, {}, tmp_path / "e")
    assert sweep.gather(tmp_path / "e")["v"].item() == 0.5
    alone(half, {"a": [2**70, 1]}, tmp_path / "h")
    sweep.gather(tmp_path / "h", out=tmp_path / "h.nc", table=tmp_path / "h.parquet")
    with xr.open_dataset(tmp_path / "h.nc") as found:
        assert found["a"].values.tolist() == [str(2**70), "1"]


def leaving(spec):
    """Ask to end the program, or say what cannot be written."""
    if spec["a"] == 1:
        sys.exit("quota")
    if spec["a"] == 2:
        raise ValueError("bad file \udcff.txt")
    return 1.0


def test_a_task_that_exits_or_cannot_be_quoted_fails_alone(tmp_path):
    made = alone(leaving, {"a": [0, 1, 2]}, tmp_path / "s", attempts=1)
    assert (made.done, made.failed) == (1, 2)
    errors = [one.error for one in sweep.failures(tmp_path / "s")]
    assert "SystemExit: quota" in errors[0]
    assert r"\udcff" in errors[1]


def test_fail_fast_minds_failures_of_its_own_run(tmp_path):
    first = alone(leaving, {"a": [1, 0, 3, 4]}, tmp_path / "s", attempts=1, fail_fast=True)
    assert (first.done, first.failed) == (0, 1)
    second = sweep.resume(tmp_path / "s", leaving, executor="in-process", attempts=1, fail_fast=True)
    assert (second.done, second.failed) == (3, 1)


def test_quarantine_goes_also_from_a_store_called_results(tmp_path):
    store = tmp_path / "results"
    alone(half, {"a": [1]}, store)
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
    assert alone(wandering, {"a": [1, 2]}, "s").complete
    assert sweep.verify(tmp_path / "s") == []
    assert len(list((tmp_path / "s" / "results").rglob("*.nc"))) == 2


def test_shares_of_different_cuts_are_not_mixed(tmp_path):
    for share in ((1, 2), (1, 3)):
        alone(half, {"a": [1, 2, 3, 4]}, tmp_path / str(share[1]), shard=share)
    with pytest.raises(InvalidSpec, match="shares of one cut, but got 1/2, 1/3"):
        sweep.gather([tmp_path / "2", tmp_path / "3"])


def test_a_ledger_that_is_none_is_said(tmp_path):
    (tmp_path / "ledger.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(SchemaMismatch, match="must be a ledger that can be read"):
        sweep.status(tmp_path)


def test_an_archive_that_nobody_may_write_to_is_read(tmp_path, monkeypatch):
    alone(half, {"a": [1, 2]}, tmp_path / "s")
    opened, asked = ledger._opened, []

    class Refused:
        """What SQLite does where it cannot make its journal."""

        def execute(self, _):
            error = sqlite3.OperationalError("unable to open database file")
            error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
            raise error

        def close(self):
            pass

    def opening(path, how):
        asked.append(how)
        return Refused() if how == "mode=ro" else opened(path, how)

    monkeypatch.setattr(ledger, "_opened", opening)
    assert sweep.status(tmp_path / "s").done == 2
    assert "mode=ro&immutable=1" in asked
    # With a journal beside it the ledger alone is not the truth.
    (tmp_path / "s" / "ledger.sqlite-wal").write_bytes(b"")
    with pytest.raises(SchemaMismatch, match="check who may read it"):
        sweep.status(tmp_path / "s")


def pooled(spec):
    """Use processes of its own, which end by SIGTERM."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return float(sum(pool.map(abs, [spec["a"], -1])))


def orphaning(spec):
    """Die once, and leave a child that holds on to everything."""
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


def test_a_dead_worker_with_a_living_child_is_noticed(tmp_path):
    begun = time.monotonic()
    grid, base = {"a": [1, 2]}, {"mark": str(tmp_path / "mark")}
    assert sweep.run(orphaning, grid, base=base, store=tmp_path / "s", workers=1).complete
    assert time.monotonic() - begun < 25


class Deserted(InProcess):
    """A cluster whose workers have all gone: what is handed out is never begun."""

    def wait(self, seconds):
        return []

    def withdraw(self):
        found = [Outcome(job, Fate.unstarted) for job in self._waiting]
        self._waiting.clear()
        return found


def test_a_stop_does_not_wait_for_what_nobody_begins(tmp_path):
    told = []

    def watch(summary):
        if len(told) in (0, 20):  # the second time it stops at once, so that a fault cannot hang the tests
            os.kill(os.getpid(), signal.SIGTERM)
        told.append(summary)

    made = sweep.run(half, {"a": [1, 2]}, store=tmp_path / "s", executor=Deserted(), watcher=watch)
    assert made.interrupted
    assert len(told) < 20
    assert (made.done, made.failed) == (0, 0)
    assert sweep.resume(tmp_path / "s", half, executor="in-process").complete


def slow(spec):
    time.sleep(0.05)
    return {"value": spec["number"]}


def test_a_sweep_that_is_out_of_time_begins_nothing_more_and_goes_on_when_asked_again(tmp_path):
    grid = {"number": list(range(40))}
    made = alone(slow, grid, tmp_path / "store", seconds=0.3)
    assert 1 <= made.done < 40
    assert made.missing == 40 - made.done
    assert not made.interrupted
    assert alone(slow, grid, tmp_path / "store").complete
    with pytest.raises(InvalidSpec, match="seconds must be a positive number"):
        alone(slow, {"number": [1, 2]}, tmp_path / "other", seconds=0)


# --- damaged and finished stores --------------------------------------------------------------------------------------


def squared(spec):
    if spec["number"] in spec.get("bad", []):
        raise ValueError(f"no square of {spec['number']}")
    return {"value": spec["number"] ** 2, "noise": spec.rng().normal()}


def swept(store, **keywords):
    return alone(squared, {"number": list(range(6))}, store, **keywords)


@pytest.mark.parametrize("damage", ["emptied", "gone", "noise"])
def test_a_lost_ledger_is_called_so_and_made_anew_from_the_results(tmp_path, damage):
    store = tmp_path / "store"
    swept(store)
    whole = {path: path.read_bytes() for path in (store / "results").rglob("*.nc")}
    found = sweep.gather(store)
    bad = sorted(whole)[0]
    bad.write_bytes(whole[bad][:100])
    place = store / "ledger.sqlite"
    for path in store.glob("ledger.sqlite*"):
        path.unlink()
    if damage == "emptied":
        sqlite3.connect(place).close()
        place.touch()
    elif damage == "noise":
        place.write_bytes(os.urandom(5000))
    for asked in (sweep.status, sweep.verify, swept):
        with pytest.raises((InvalidSpec, SchemaMismatch), match="sweep rebuild"):
            asked(store)
    made = sweep.rebuild(store)
    assert (made.done, made.missing, made.failed) == (5, 1, 0)
    assert [path.name for path in (store / "quarantine").iterdir()] == [bad.name]
    assert sweep.verify(store) == []
    assert swept(store).computed == 1
    assert {path: path.read_bytes() for path in (store / "results").rglob("*.nc")} == whole
    xr.testing.assert_identical(sweep.gather(store), found)
    with pytest.raises(InvalidSpec, match="must be damaged or lost"):
        sweep.rebuild(store)


def test_a_ledger_is_not_made_for_another_study(tmp_path):
    swept(tmp_path / "store")
    for path in (tmp_path / "store").glob("ledger.sqlite*"):
        path.unlink()
    page = tmp_path / "store" / "study.json"
    page.write_text(page.read_text().replace('"base": {}', '"base": {"bad": [1]}'))
    with pytest.raises(InvalidSpec, match="that the sweep was begun with"):
        sweep.rebuild(tmp_path / "store")
    page.unlink()
    with pytest.raises(InvalidSpec, match="missing or was changed"):
        sweep.rebuild(tmp_path / "store")


def test_a_ledger_is_not_made_where_there_is_no_sweep(tmp_path):
    with pytest.raises(InvalidSpec, match=r"must hold a sweep.*no such folder"):
        sweep.rebuild(tmp_path / "nowhere")
    with pytest.raises(InvalidSpec, match=r"must hold a sweep.*nothing of one"):
        sweep.rebuild(tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_archive_is_verified_without_a_change(tmp_path, monkeypatch):
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


def test_a_sweep_that_failed_in_part_says_which_cells_and_how_to_try_them_again(tmp_path):
    swept(tmp_path / "store", base={"bad": [2, 4]})
    found = CliRunner().invoke(app, ["sweep", "status", str(tmp_path / "store"), "--errors", "0"])
    assert "finished, 2 failed" in found.output
    assert "number = 2: ValueError: no square of 2" in found.output
    assert f"sweep resume {tmp_path / 'store'} --retry" in found.output
    assert "Traceback" not in found.output


def test_a_sweep_without_a_failure_is_complete(tmp_path):
    swept(tmp_path / "store")
    found = CliRunner().invoke(app, ["sweep", "status", str(tmp_path / "store")])
    assert "store: complete; " in found.output


class Empty:
    """A scheduler that has no workers."""

    status = "running"

    def nthreads(self):
        return {}


def test_a_scheduler_without_workers_is_said_after_a_while(monkeypatch):
    found = Cluster("tcp://nowhere:1")
    found._client = Empty()
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    for clock[0] in (1.0, 20.0):
        found._check_workers()
        assert found.trouble == ""
    clock[0] = 40.0
    found._check_workers()
    assert "has had no workers for 30 s" in found.trouble
    Empty.nthreads = lambda self: {"tcp://a": 1}
    found._check_workers()
    assert found.trouble == ""


@pytest.mark.slow
def test_a_local_cluster_takes_any_free_port(tmp_path):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("0.0.0.0", 8787))
        taken.listen()
        made = sweep.run(squared, {"number": [1, 2]}, store=tmp_path / "store", executor=Cluster(workers=1))
    assert made.complete
