"""Sweeps: grids, tasks, stores, executors, gathering and the command line."""

from __future__ import annotations

import csv
import itertools
import json
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

from learncast import sweep
from learncast._core.errors import InvalidSpec, SchemaMismatch, UnsupportedModel
from learncast._core.limits import allowing
from learncast._core.netcdf import packed, read
from learncast.cli import app
from learncast.sweep import Grid
from learncast.sweep.driver import MOST_DEATHS
from learncast.sweep.executors import Fate, InProcess, Job, Outcome, Work, as_dataset, computed
from learncast.sweep.ledger import Ledger, TaskStatus
from learncast.sweep.reproduction import computed_run
from learncast.sweep.spec import Spec, canonical, digest_of, placed
from learncast.sweep.store import Store, differences
from learncast.sweep.studies import sweep_of
from learncast.sweep.sweeping import Sweep, _source, _tasks, stored_sweep
from learncast.tasks import from_file


def alone(function, grid, store, **keywords):
    return sweep.run(function, grid, store=store, executor="in-process", **keywords)


def product(spec):
    return {"product": spec["a"] * spec["b"], "noise": spec.rng().normal()}


def read_trials(spec):
    return {"steps": from_file(spec["path"]).steps}


def third(spec):
    return spec["a"] / 3


def picky(spec):
    if spec["a"] == 2:
        raise ValueError("two is not a number")
    return xr.Dataset({"values": ("place", np.arange(spec["a"] + 1.0)), "word": ((), "x" * (spec["a"] + 1))})


CALLS: list[int] = []


def slow_to_please(spec):
    CALLS.append(spec["a"])
    if CALLS.count(spec["a"]) < 3:
        raise OSError("not yet")
    return 1.0


class TestGrid:
    def test_cells_are_the_product_with_the_last_axis_fastest(self):
        grid = Grid.of({"a.x": [1, 2], "b": ["u", "v", "w"]}, seeds=2)
        cells = [cell for _, cell in grid.cells({})]
        assert cells == [
            {"a.x": a, "b": b, "seed": s} for a, b, s in itertools.product([1, 2], ["u", "v", "w"], [0, 1])
        ]
        assert [grid.cell(k) for k in range(grid.size)] == cells

    def test_nested_tables_and_ranges(self):
        grid = Grid.of({"a": {"x": {"first": 1, "last": 5, "count": 3}}, "b": {"first": 0.1, "last": 10, "count": 3}})
        assert grid.axes[0].points == ((1,), (3,), (5,))
        assert all(isinstance(point[0], int) for point in grid.axes[0].points)
        # np.linspace is exact at its ends and correctly rounded in the middle of this one.
        assert grid.axes[1].points == ((0.1,), (5.05,), (10.0,))
        log = Grid.of({"b": {"first": 0.1, "last": 10, "count": 3, "spacing": "log"}})
        np.testing.assert_allclose([p[0] for p in log.axes[0].points], [0.1, 1.0, 10.0], rtol=1e-14)  # a few roundings

    def test_zipped_keys_vary_together(self):
        grid = Grid.of({"a": [1, 2], "b": [3, 4], "c": [5, 6]}, zips=[["a", "c"]])
        assert grid.shape == (2, 2)
        assert [cell for _, cell in grid.cells({})][1] == {"a": 1, "c": 5, "b": 4}

    def test_conditions_leave_cells_out(self):
        grid = Grid.of({"a": [1, 2, 3], "b": [1, 2, 3]}, conditions=["a <= b", "a != limit", "kind == round"])
        kept = [(cell["a"], cell["b"]) for _, cell in grid.cells({"limit": 2, "kind": "round"})]
        assert kept == [(1, 1), (1, 2), (1, 3), (3, 3)]
        assert list(grid.cells({"limit": 2, "kind": "square"})) == []

    @pytest.mark.parametrize(
        ("keys", "options", "words"),
        [
            ({"a": 3}, {}, "list of values or a range"),
            ({"a": []}, {}, "list of values or a range"),
            ({"a": [object()]}, {}, "numbers, words, lists and tables"),
            ({"a": {"first": 1, "count": 3}}, {}, "no last"),
            ({"a": {"first": 0, "last": 1, "count": 3, "spacing": "log"}}, {}, "positive numbers"),
            ({"a": [1], "b": [1, 2]}, {"zips": [["a", "b"]]}, "equally many"),
            ({"alpha": [1]}, {"zips": [["alpa"]]}, "did you mean 'alpha'"),
            ({"a": [1]}, {"conditions": ["a is small"]}, "compare a key"),
            ({"seed": [1]}, {"seeds": 2}, "either seeds"),
            ({"a": [1]}, {"seeds": 0}, "at least 1"),
            ({str(k): list(range(100)) for k in range(4)}, {}, "at most 10,000,000 cells"),
        ],
    )
    def test_refusals(self, keys, options, words):
        with pytest.raises(InvalidSpec, match=words):
            Grid.of(keys, **options)

    def test_a_condition_on_nothing_is_refused(self):
        with pytest.raises(InvalidSpec, match="begin with a key"):
            list(Grid.of({"a": [1]}, conditions=["b < 1"]).cells({}))
        with pytest.raises(InvalidSpec, match="comparable"):
            list(Grid.of({"a": [1]}, conditions=["a < word"]).cells({}))


class TestSpec:
    def test_equal_content_has_equal_hashes(self):
        assert digest_of({"a": 1, "b": [2.5]}) == digest_of({"b": [2.5], "a": 1})
        assert len({digest_of(value) for value in (1, 1.0, "1", [1], True, None)}) == 6
        assert canonical({"a": np.float64(2.5), "b": np.arange(2), "c": (1,)}) == {"a": 2.5, "b": [0, 1], "c": [1]}

    def test_dotted_keys_reach_tables_and_lists(self):
        base = {"a": {"x": 1}, "l": [{"y": 1}, {"y": 2}]}
        assert placed(base, {"a.z": 3, "l.1.y": 5}) == {"a": {"x": 1, "z": 3}, "l": [{"y": 1}, {"y": 5}]}
        assert base["l"][1]["y"] == 2
        with pytest.raises(InvalidSpec, match="from 0 to 1"):
            placed(base, {"l.2.y": 5})
        with pytest.raises(InvalidSpec, match="must lie in a table"):
            placed(base, {"a.x.w": 5})

    def test_a_spec_is_frozen_and_draws_by_its_hash(self):
        spec = Spec({"a": {"x": [1]}}, digest_of(1))
        spec["a"]["x"].append(2)
        assert spec["a.x"] == [1]
        with pytest.raises(KeyError):
            spec["a.w"]
        expected = np.random.default_rng(np.random.SeedSequence(int(digest_of(1), 16))).normal()
        assert spec.rng().normal() == spec.rng().normal() == expected
        assert Spec({}, digest_of(2)).rng().normal() != expected


class TestResults:
    def test_bytes_are_the_same_and_nothing_is_lost(self):
        dataset = xr.Dataset(
            {
                "number": 1.5,
                "many": ("time", np.array([np.nan, np.inf, -0.0]), {"units": "1"}),
                "words": ("mode", ["a", "bcd"]),
                "flags": ("mode", [True, False]),
                "counts": ("mode", [1, 2**60]),
                "when": ("mode", np.array(["2020-01-01", "2021-01-01T00:00:01"], dtype="datetime64[ns]")),
                "nothing": ("empty", np.zeros(0)),
            },
            coords={"time": [0.0, 1.0, 2.0], "label": ("time", list("abc"))},
            attrs={"name": "é", "number": 3},
        )
        content = packed(dataset)
        time.sleep(1.1)  # HDF5 counts times in seconds
        assert packed(dataset) == content
        xr.testing.assert_identical(read(content), dataset)

    @pytest.mark.parametrize(
        "dataset",
        [
            xr.Dataset(),
            xr.Dataset({"x": (("x", "y"), np.eye(2))}),
            xr.Dataset({"a": ("k", np.array([1, 2], "m8[ns]")), "b": ("k", np.array([1, np.nan], "f4"))}),
            xr.Dataset({"a": ((), "word"), "b": (("k", "z"), [["", "é"], ["a", "b"]]), "c": ((), np.uint8(3))}),
            xr.Dataset({"a": (("i", "j"), np.zeros((2, 0)))}, coords={"i": [1, 2], "pair": (("i", "i2"), np.eye(2))}),
            xr.Dataset({"a": ("z", [1.0])}, attrs={"words": ["p", "q"], "numbers": [1.5, 2.5], "true": True}),
            xr.Dataset({name: ((name, "m"), np.ones((2, 3))) for name in "fedcba"}, coords={"m": list("xyz")}),
        ],
        ids=lambda dataset: ",".join(map(str, dataset.variables)),
    )
    def test_any_netcdf_reader_reads_it(self, dataset, tmp_path):
        (tmp_path / "r.nc").write_bytes(packed(dataset))
        with xr.open_dataset(tmp_path / "r.nc", engine="h5netcdf") as opened:
            theirs = opened.load().drop_encoding()
        xr.testing.assert_identical(theirs, read(packed(dataset)).drop_encoding())
        xr.testing.assert_equal(theirs, dataset)
        assert list(theirs.data_vars) == list(dataset.data_vars)

    def test_what_a_function_may_return(self):
        assert as_dataset(2.5)["value"].item() == 2.5
        assert as_dataset(xr.DataArray([1], dims="x", name="n"))["n"].dims == ("x",)
        assert as_dataset({"a": 1, "b": ("x", [1, 2])})["b"].dims == ("x",)
        with pytest.raises(UnsupportedModel, match="must return a Dataset"):
            as_dataset([1, 2])
        with pytest.raises(UnsupportedModel, match="numbers, words or times"):
            packed(xr.Dataset({"a": ((), 1j)}))


class TestRun:
    def test_results_are_those_of_a_plain_loop(self, tmp_path):
        made = alone(product, {"a": [1, 2], "b": [3, 4, 5]}, tmp_path / "s")
        assert (made.total, made.done, made.failed, made.complete) == (6, 6, 0, True)
        found = sweep.gather(tmp_path / "s")
        assert found["product"].dims == ("a", "b")
        for a, b in itertools.product([1, 2], [3, 4, 5]):
            assert found["product"].sel(a=a, b=b) == a * b
        assert (found["task_status"] == "done").all()
        assert len(np.unique(found["noise"])) == 6

    def test_order_and_place_change_nothing(self, tmp_path):
        alone(product, {"a": [1, 2], "b": [3, 4]}, tmp_path / "one")
        alone(product, {"b": [4, 3], "a": [2, 1, 7]}, tmp_path / "two")
        one, two = (sweep.gather(tmp_path / name).drop_vars("task_status") for name in ("one", "two"))
        xr.testing.assert_equal(one, two.sel(a=[1, 2], b=[3, 4]).transpose("a", "b"))

    def test_equal_tasks_are_computed_once(self, tmp_path):
        CALLS.clear()
        made = alone(slow_to_please, {"a": [5, 6, 5, 5]}, tmp_path / "s")
        assert (made.total, made.done) == (2, 2)
        assert sorted(CALLS) == [5, 5, 5, 6, 6, 6]
        assert sweep.status(tmp_path / "s").copies == 2
        assert (sweep.gather(tmp_path / "s")["value"] == 1.0).all()

    def test_a_failing_task_is_tried_three_times_and_the_rest_finishes(self, tmp_path):
        made = alone(picky, {"a": [0, 1, 2, 3]}, tmp_path / "s")
        assert (made.done, made.failed, made.complete) == (3, 1, False)
        (failure,) = sweep.failures(tmp_path / "s")
        assert failure.cell == {"a": 2}
        assert failure.attempts == 3
        assert 'raise ValueError("two is not a number")' in failure.error
        again = alone(picky, {"a": [0, 1, 2, 3]}, tmp_path / "s")
        assert (again.computed, again.failed) == (0, 1)
        again = alone(picky, {"a": [0, 1, 2, 3]}, tmp_path / "s", retry=True, attempts=1)
        assert (again.computed, again.failed) == (0, 1)
        assert next(sweep.failures(tmp_path / "s")).attempts == 1

    def test_fail_fast_begins_nothing_more(self, tmp_path):
        made = alone(picky, {"a": [0, 2, 1, 3]}, tmp_path / "s", fail_fast=True, attempts=1)
        assert (made.done, made.failed, made.missing) == (1, 1, 2)
        assert alone(picky, {"a": [0, 2, 1, 3]}, tmp_path / "s").done == 3

    def test_a_task_that_kills_its_workers_is_given_up(self, tmp_path):
        class Deadly(InProcess):
            def wait(self, seconds):
                return [Outcome(one.job, Fate.death, error="died") for one in super().wait(seconds)]

        made = sweep.run(product, {"a": [1], "b": [1]}, store=tmp_path / "s", executor=Deadly())
        assert made.failed == 1
        (failure,) = sweep.failures(tmp_path / "s")
        assert (failure.deaths, failure.attempts, failure.error) == (MOST_DEATHS, 0, "died")

    def test_unstarted_jobs_are_not_blamed(self, tmp_path):
        class Shy(InProcess):
            times = 0

            def wait(self, seconds):
                self.times += 1
                found = super().wait(seconds)
                return [Outcome(one.job, Fate.unstarted) for one in found] if self.times < 20 else found

        assert sweep.run(product, {"a": [1], "b": [1]}, store=tmp_path / "s", executor=Shy()).complete

    def test_cheap_tasks_go_in_batches_where_handing_out_is_dear(self, tmp_path):
        class Counting(InProcess):
            sizes: list[int] = []  # noqa: RUF012
            batch_seconds = 0.2

            def submit(self, jobs):
                self.sizes.append(len(jobs))
                super().submit(jobs)

        sweep.run(product, {"a": list(range(40)), "b": [1]}, store=tmp_path / "s", executor=Counting())
        assert sum(Counting.sizes) == 40
        assert Counting.sizes[0] == 1
        assert max(Counting.sizes) > 1
        Counting.sizes, Counting.batch_seconds = [], 0.0
        sweep.run(product, {"a": list(range(40)), "b": [1]}, store=tmp_path / "t", executor=Counting())
        assert Counting.sizes == [1] * 40

    def test_a_task_over_which_a_worker_died_goes_alone(self, tmp_path):
        class Deadly(InProcess):
            """Whoever is handed the task a = 3 dies, and nobody can say over which of the batch."""

            batches: list[list[int]] = []  # noqa: RUF012

            def submit(self, jobs):
                self.batches.append([job.cell["a"] for job in jobs])
                super().submit(jobs)

            def wait(self, seconds):
                if any(job.cell["a"] == 3 for job in self._waiting):
                    dead = [Outcome(job, Fate.death, error="died") for job in self._waiting]
                    self._waiting.clear()
                    return dead
                return super().wait(seconds)

        made = sweep.run(
            product, {"a": list(range(8)), "b": [1]}, store=tmp_path / "s", executor=Deadly(), batch=4, attempts=1
        )
        assert (made.done, made.failed) == (7, 1)
        assert [batch for batch in Deadly.batches if 3 in batch] == [[0, 1, 2, 3], [3], [3], [3], [3]]

    def test_another_study_is_refused_and_the_difference_shown(self, tmp_path):
        alone(product, {"a": [1], "b": [1]}, tmp_path / "s", base={"c": {"d": 1}})
        with pytest.raises(InvalidSpec, match=r"base\.c\.d: 1 -> 2\): results of two studies"):
            alone(product, {"a": [1], "b": [1]}, tmp_path / "s", base={"c": {"d": 2}})
        with pytest.raises(InvalidSpec, match=r"function: .*product.* -> .*picky"):
            alone(picky, {"a": [1], "b": [1]}, tmp_path / "s", base={"c": {"d": 1}})

    def test_a_function_without_a_name_is_refused(self, tmp_path):
        with pytest.raises(InvalidSpec, match="name that can be imported"):
            alone(lambda spec: 1.0, {"a": [1]}, tmp_path / "s")
        with pytest.raises(InvalidSpec, match="did you mean 'processes'"):
            sweep.run(product, {"a": [1]}, store=tmp_path / "s", executor="process")

    def test_resume_needs_the_function(self, tmp_path, monkeypatch):
        (tmp_path / "some_functions.py").write_text("def one(spec):\n    return 1.0\n", encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        import some_functions

        sweep.run(some_functions.one, {"a": [1, 2]}, store=tmp_path / "s", executor="in-process")
        path = Store(tmp_path / "s").path(next((tmp_path / "s" / "results").rglob("*.nc")).stem)
        path.unlink()
        assert len(sweep.verify(tmp_path / "s")) == 1
        assert sweep.resume(tmp_path / "s", some_functions.one, executor="in-process").computed == 1
        path.unlink()
        assert len(sweep.verify(tmp_path / "s")) == 1
        words = ["sweep", "resume", str(tmp_path / "s"), "--in-process"]
        named = CliRunner().invoke(app, [*words, "--function", "some_functions:one"])
        assert (named.exit_code, sweep.status(tmp_path / "s").done) == (0, 2)
        for other in ([], ["--function", "some_functions:two"]):
            refused = CliRunner().invoke(app, [*words, *other])
            assert refused.exit_code == 2
            assert "must be given by whoever goes on with it" in refused.stderr
        del some_functions.one
        with pytest.raises(InvalidSpec, match="must be importable"):
            stored_sweep(tmp_path / "s", "some_functions:one")

    @pytest.mark.slow_cases("--workers=1")
    @pytest.mark.parametrize("where", ["--in-process", "--workers=1"])
    def test_tasks_read_no_more_than_is_allowed(self, tmp_path, where):
        rng = np.random.default_rng(0)
        np.savez(tmp_path / "trials.npz", inputs=rng.standard_normal((64, 6, 1)), targets=rng.standard_normal((64, 1)))
        study = tmp_path / "study.toml"
        study.write_text(
            "[network]\nhidden_size = 2\n[training]\nlearning_rate = 1e-3\naccuracy = 0.5\n"
            "[target]\ndata = 'trials.npz'\n"
            "[sweep]\ncommand = 'forecast'\n[sweep.grid]\nnetwork.hidden_size = [2]\n",
            encoding="utf-8",
        )
        words = ["sweep", "run", str(study), where, "--store", str(tmp_path / "s")]
        refused = CliRunner().invoke(app, [*words, "--most-bytes", "2000"])
        assert refused.exit_code == 2
        assert "must take at most" in refused.stderr
        with allowing(2000):
            sweep.run(
                read_trials, {"path": [str(tmp_path / "trials.npz")]}, store=tmp_path / "f", workers=1, attempts=1
            )
        assert "must take at most" in next(iter(sweep.failures(tmp_path / "f"))).error
        assert CliRunner().invoke(app, words).exit_code == 0

    @pytest.mark.parametrize(
        ("function", "code"), [("subprocess:Popen", 2), ("learncast.sweep.reproduction:computed_run", 1)]
    )
    def test_a_store_of_somebody_else_runs_nothing(self, tmp_path, function, code):
        """A folder whose study and ledger agree with each other, and name what would leave a mark."""
        mark = tmp_path / "sprung"
        told = {"function": "os:system", "settings": f"touch {mark}"}
        base = {"touch": 1, str(mark): 1} if function == "subprocess:Popen" else told
        hostile = Sweep(product, Grid.of({"x": [1]}), base, {})
        source = _source(subprocess.Popen if function == "subprocess:Popen" else computed_run)
        study = {**hostile.study(), "function": function, "source": source}
        place = Store(tmp_path / "s")
        with place.locked():
            place.begin(study, _tasks(function, hostile.grid, base, None))
        words = ["sweep", "resume", str(tmp_path / "s"), "--in-process"]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == code, result.output
        assert not mark.exists()

    def test_two_drivers_are_one_too_many(self, tmp_path):
        alone(product, {"a": [1], "b": [1]}, tmp_path / "s")
        with Store(tmp_path / "s").locked():
            assert sweep.status(tmp_path / "s").driven
            with pytest.raises(InvalidSpec, match="no other process may drive"):
                alone(product, {"a": [1], "b": [1]}, tmp_path / "s")
        assert not sweep.status(tmp_path / "s").driven


class TestStore:
    def test_no_store_no_answer(self, tmp_path):
        for question in (sweep.status, sweep.verify, sweep.gather, sweep.prune, sweep.resume):
            with pytest.raises(InvalidSpec, match="must hold a sweep"):
                question(tmp_path / "nothing")

    def test_a_driver_killed_before_it_entered_the_tasks_begins_again(self, tmp_path):
        store = Store(tmp_path / "s")
        with store.locked():
            store.ledger(write=True).close()
        with pytest.raises(InvalidSpec, match="it had just begun"):
            sweep.status(tmp_path / "s")
        assert alone(product, {"a": [1], "b": [1]}, tmp_path / "s").complete

    def test_the_ledger_is_durable(self, tmp_path):
        ledger = Ledger(tmp_path / "ledger.sqlite", write=True)
        assert ledger._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert ledger._connection.execute("PRAGMA synchronous").fetchone() == (2,)
        ledger.close()

    def test_entering_is_all_or_nothing(self, tmp_path):
        ledger = Ledger(tmp_path / "ledger.sqlite", write=True)
        ledger.fill([(0, "a"), (1, "b")], {})
        with pytest.raises(sqlite3.OperationalError):
            ledger.record([{"position": 0, "status": 1}, {"position": 1, "no_such_column": 1}])
        assert ledger.totals()[TaskStatus.missing].tasks == 2
        ledger.close()

    def test_prune_keeps_what_is_needed(self, tmp_path):
        alone(product, {"a": [1], "b": [1]}, tmp_path / "s")
        results = tmp_path / "s" / "results"
        needed = next(results.rglob("*.nc"))
        stray, draft = results / "ff" / f"{'f' * 32}.nc", needed.with_name(".half.nc.part")
        stray.parent.mkdir(exist_ok=True)
        for path in (stray, draft):
            path.write_bytes(b"x")
        assert set(sweep.prune(tmp_path / "s", dry_run=True)) == {stray, draft}
        assert stray.exists()
        assert set(sweep.prune(tmp_path / "s")) == {stray, draft}
        assert list(results.rglob("*.*")) == [needed]
        assert sweep.verify(tmp_path / "s") == []

    def test_differences_name_keys(self):
        stored, given = {"a": 1, "b": {"c": [1, 2]}, "d": 0}, {"a": 1.0, "b": {"c": [1, 3]}, "e": 0}
        assert differences(stored, given) == ["a: 1 -> 1.0", "b.c.1: 2 -> 3", "d: 0 is gone", "e: 0 is new"]

    @pytest.mark.slow
    def test_a_million_tasks_have_their_status_at_once(self, tmp_path):
        many = Sweep(product, Grid.of({"a": list(range(1000)), "b": list(range(1000))}), {}, {})
        store = Store(tmp_path / "s")
        with store.locked():
            store.begin(many.study(), many.tasks())
        ledger = store.ledger(write=True)
        done = {"status": 1, "seconds": 0.5, "bytes": 1000, "sha256": "0" * 64}
        ledger.record({"position": k, **done} for k in range(0, 10**6, 2))
        ledger.close()
        begun = time.perf_counter()
        found = sweep.status(tmp_path / "s")
        seconds = time.perf_counter() - begun
        assert (found.total, found.done, found.bytes) == (10**6, 5 * 10**5, 5 * 10**8)
        assert seconds < 1.0


def test_a_summary_says_how_it_ended_and_where_to_look():
    told = [repr(sweep.Summary(total=3, done=done, failed=failed)) for done, failed in ((3, 0), (1, 2), (2, 0), (1, 1))]
    assert told == [
        "<Summary: complete; 3 of 3 tasks done, in 0.0 s>",
        "<Summary: finished, 2 failed; 1 of 3 tasks done, in 0.0 s; sweep.failures(store) tells why>",
        "<Summary: 1 missing; 2 of 3 tasks done, in 0.0 s; sweep.resume(store) goes on>",
        "<Summary: 1 missing, 1 failed; 1 of 3 tasks done, in 0.0 s; sweep.failures(store) tells why; "
        "sweep.resume(store) goes on>",
    ]


class TestGather:
    def test_cells_without_results_are_unknown_and_say_why(self, tmp_path):
        grid = {"a": [0, 1, 2, 3, 4]}
        alone(picky, grid, tmp_path / "s", conditions=["a < 4"])
        lost = Store(tmp_path / "s").path(digest_of([f"{picky.__module__}:picky", {"a": 3}]))
        lost.unlink()
        sweep.verify(tmp_path / "s")
        found = sweep.gather(tmp_path / "s", out=tmp_path / "all.nc", table=tmp_path / "all.parquet")
        assert found["task_status"].values.tolist() == ["done", "done", "failed", "missing", "excluded"]
        np.testing.assert_array_equal(found["values"].sel(a=1), [0.0, 1.0])
        np.testing.assert_array_equal(found["values"].sel(a=0), [0.0, np.nan])
        assert np.isnan(found["values"].sel(a=[2, 3, 4])).all()
        assert found["word"].values.tolist() == ["x", "xx", "", "", ""]
        xr.testing.assert_equal(xr.load_dataset(tmp_path / "all.nc", engine="h5netcdf"), found)
        import pyarrow.parquet as pq

        rows = pq.read_table(tmp_path / "all.parquet").to_pylist()
        assert [row["task_status"] for row in rows] == found["task_status"].values.tolist()
        assert rows[1] == {"a": 1, "word": "xx", "task_status": "done"}

    def test_a_table_is_what_its_ending_says(self, tmp_path):
        alone(third, {"a": [1, 2, 0], "b": ["x, y", "z"]}, tmp_path / "s", conditions=["a > 0"])
        sweep.gather(tmp_path / "s", table=tmp_path / "all.csv")
        sweep.gather(tmp_path / "s", table=tmp_path / "all.parquet")
        with (tmp_path / "all.csv").open(encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
        import pyarrow.parquet as pq

        packed = pq.read_table(tmp_path / "all.parquet").to_pylist()
        assert header == list(packed[0])
        assert rows == [[str(row[name]) for name in header] for row in packed]
        assert rows[0] == ["1", "x, y", repr(1 / 3), "done"]
        assert rows[-1] == ["0", "z", "nan", "excluded"]

    def test_a_table_that_cannot_be_written_is_refused_before_gathering(self, tmp_path, monkeypatch):
        for name in ("all.xlsx", "all"):
            with pytest.raises(InvalidSpec, match=r"must be a \.csv or \.parquet file"):
                sweep.gather(tmp_path / "nowhere", table=tmp_path / name)
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(InvalidSpec, match="to write Parquet"):
            sweep.gather(tmp_path / "nowhere", table=tmp_path / "all.parquet")

    def test_whole_numbers_stay_whole_only_when_all_are_known(self, tmp_path):
        alone(product, {"a": [1, 2], "b": [2**53 + 1]}, tmp_path / "whole")
        assert sweep.gather(tmp_path / "whole")["product"].values.ravel().tolist() == [2**53 + 1, 2**54 + 2]
        alone(product, {"a": [1, 2], "b": [1]}, tmp_path / "part", conditions=["a < 2"])
        np.testing.assert_array_equal(sweep.gather(tmp_path / "part")["product"].values.ravel(), [1.0, np.nan])

    def test_names_of_dimensions(self, tmp_path):
        alone(clock, {"x.time": [1, 2], "y.rate": [3], "z.rate": [4]}, tmp_path / "s", zips=[["y.rate", "z.rate"]])
        found = sweep.gather(tmp_path / "s")
        assert found["level"].dims == ("x.time", "y.rate", "time")
        assert found["z.rate"].dims == ("y.rate",)
        # Times differ between cells, so each cell has its own.
        np.testing.assert_array_equal(found["time_value"].squeeze(), [[1.0, 2.0], [2.0, 4.0]])
        assert "level" not in sweep.gather(tmp_path / "s", variables=["other"])
        with pytest.raises(InvalidSpec, match="'levels'"):
            sweep.gather(tmp_path / "s", variables=["levels"])

    def test_a_changed_file_is_not_even_opened(self, tmp_path):
        alone(product, {"a": [1], "b": [1]}, tmp_path / "s")
        (path,) = (tmp_path / "s" / "results").rglob("*.nc")
        other = packed(xr.Dataset({"product": 7}))
        path.write_bytes(other)
        with pytest.raises(SchemaMismatch, match=r"bytes instead of|other content than was written"):
            sweep.gather(tmp_path / "s")

    def test_damage_is_not_gathered(self, tmp_path):
        alone(product, {"a": [1], "b": [1]}, tmp_path / "s")
        next((tmp_path / "s" / "results").rglob("*.nc")).write_bytes(b"nonsense")
        with pytest.raises(SchemaMismatch, match="damaged result must not be gathered"):
            sweep.gather(tmp_path / "s")


def clock(spec):
    times = np.array([1.0, 2.0]) * spec["x.time"]
    return xr.Dataset({"level": ("time", times**2), "other": 1.0}, coords={"time": times})


STUDY = """
[network]
hidden_size = 8
[training]
learning_rate = 1e-3
[target]
family = "integration"
steps = 10
[[candidates]]
family = "integration"
steps = 10
target_strength = 1.5
[sweep]
command = "forecast"
[sweep.grid]
network.recurrence = [0.9, 0.95]
"target.target_strength" = [1.0, 2.0]
"""


def command(*words):
    return CliRunner().invoke(app, ["sweep", *map(str, words)])


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(STUDY, encoding="utf-8")
    return path


class TestStudies:
    def test_a_forecast_of_each_cell_is_that_of_its_own_study(self, study, tmp_path):
        from learncast.answers.forecast import forecast

        from learncast.study import Study

        store = tmp_path / "s"
        made = command("run", study, "--store", store, "--in-process", "--json")
        assert made.exit_code == 0, made.output
        assert json.loads(made.stdout)["done"] == 4
        found = sweep.gather(store)
        raw = {"network": {"hidden_size": 8}, "training": {"learning_rate": 1e-3}}
        for b, k in itertools.product([0.9, 0.95], [1.0, 2.0]):
            raw["network"]["recurrence"] = b
            raw["target"] = {"family": "integration", "steps": 10, "target_strength": k}
            alone_answer = forecast(Study.from_dict(raw, folder=tmp_path, source="x"))
            cell = found.sel(recurrence=b, target_strength=k)
            assert cell["flow_steps"] == alone_answer.values["flow_steps"]
            np.testing.assert_array_equal(cell["loss"], alone_answer.dataset["loss"])
        text = study.read_text(encoding="utf-8")
        study.write_text(text.replace("1e-3", "2e-3"), encoding="utf-8")
        refused = command("resume", store, study)
        assert refused.exit_code == 2
        assert "base.training.learning_rate: 0.001 -> 0.002" in refused.stderr
        assert command("resume", store, "--in-process").exit_code == 0

    def test_plans_are_swept_too(self, study, tmp_path):
        text = study.read_text(encoding="utf-8").replace('"forecast"', '"plan"').replace("[1.0, 2.0]", "[1.0]")
        study.write_text(text, encoding="utf-8")
        assert command("run", study, "--store", tmp_path / "s", "--in-process").exit_code == 0
        found = sweep.gather(tmp_path / "s")
        assert (found["best_flow_steps"] <= found["direct_flow_steps"]).all()

    @pytest.mark.parametrize(
        ("old", "new", "words"),
        [
            ('"forecast"', '"forcast"', "sweep.command must be valid"),
            ("[sweep.grid]", "seed = 3\n[sweep.grid]", "did you mean 'seeds'"),
            ("[sweep.grid]", "seeds = 3\n[sweep.grid]", "nothing is random"),
            ("[sweep.grid]", "options = {taks = 1}\n[sweep.grid]", "did you mean 'task'"),
            ("network.recurrence =", "network.recurence =", "did you mean 'recurrence'"),
            ("[0.9, 0.95]", '[0.9, "high"]', "cell network.recurrence = 'high'"),
            ("[sweep]", "[swept]", "must have a [sweep]"),
        ],
    )
    def test_bad_studies_are_refused_before_anything_runs(self, study, tmp_path, old, new, words):
        study.write_text(study.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
        if "[swept]" in new:
            study.write_text(study.read_text(encoding="utf-8").replace("[sweep.grid]", "[grid]"), encoding="utf-8")
        refused = command("run", study, "--store", tmp_path / "s")
        assert refused.exit_code == 2
        assert words in refused.stderr
        assert not (tmp_path / "s").exists()

    def test_files_belong_to_the_study(self, study, tmp_path):
        rng = np.random.default_rng(0)
        inputs = rng.normal(size=(40, 4, 1))
        text = (
            study.read_text(encoding="utf-8")
            .split("[[candidates]]")[0]
            .replace('family = "integration"\nsteps = 10', 'data = "t.npz"')
        )
        study.write_text(
            text + '[sweep]\ncommand = "forecast"\n[sweep.grid]\nnetwork.recurrence = [0.9]\n', encoding="utf-8"
        )
        np.savez(tmp_path / "t.npz", inputs=inputs, targets=inputs.sum(1))
        first = sweep_of(study).study()
        np.savez(tmp_path / "t.npz", inputs=2 * inputs, targets=inputs.sum(1))
        assert [line.split(":")[0] for line in differences(first, sweep_of(study).study())] == [
            f"notes.files.{tmp_path / 't.npz'}"
        ]


class TestCommands:
    def test_failures_end_with_one_and_are_shown(self, study, tmp_path):
        # Only steps can be wrong for the candidate that is asked for.
        text = study.read_text(encoding="utf-8").replace("[sweep.grid]", 'options = {task = "nobody"}\n[sweep.grid]')
        study.write_text(text, encoding="utf-8")
        store = tmp_path / "s"
        made = command("run", study, "--store", store, "--in-process", "--fail-fast")
        assert made.exit_code == 1
        shown = command("status", store)
        assert "0 of 4 tasks done, 1 failed" in shown.stdout
        assert "must have a task called 'nobody'" in shown.stdout
        assert json.loads(command("status", store, "--json").stdout)["missing"] == 3

    def test_verify_gather_and_prune(self, study, tmp_path):
        store = tmp_path / "s"
        command("run", study, "--store", store, "--in-process")
        assert command("verify", store).stdout == "All results are whole.\n"
        next((store / "results").rglob("*.nc")).write_bytes(b"")
        damaged = command("verify", store)
        assert damaged.exit_code == 1
        assert "has 0 bytes instead of" in damaged.stdout
        assert damaged.stdout.endswith("1 set apart; resume computes it again.\n")
        files = [tmp_path / "all.nc", tmp_path / "all.csv"]
        gathered = command("gather", store, "--out", files[0], "--table", files[1], "--variables", "flow_steps")
        assert gathered.exit_code == 0
        assert gathered.stdout.endswith("".join(f"Wrote {path}\n" for path in files))
        assert len(files[1].read_text(encoding="utf-8").splitlines()) == 5
        assert int(np.isnan(xr.load_dataset(tmp_path / "all.nc", engine="h5netcdf")["flow_steps"]).sum()) == 1
        assert "1 file removed." in command("prune", store).stdout
        assert command("resume", store, "--in-process").exit_code == 0

    def test_one_place_at_a_time(self, study):
        refused = command("run", study, "--in-process", "--cluster", "local")
        assert refused.exit_code == 2
        assert "at most one of" in refused.stderr

    def test_a_dry_run_says_what_it_would_take(self, study, tmp_path, monkeypatch):
        # In this process: another takes seconds to start, and is tried with every kill.
        monkeypatch.setattr("learncast.sweep.sweeping.Processes", lambda workers: InProcess())
        made = command("run", study, "--store", tmp_path / "s", "--dry-run", "--json", "--workers", 2)
        found = json.loads(made.stdout)
        assert (found["tasks"], found["cells"], found["workers"], found["failed"]) == (4, 4, 2, 0)
        # Computed by two workers, entered by one process: whichever takes longer.
        each = max(found["task_seconds"] / 2, found["entry_seconds"])
        assert found["seconds"] == pytest.approx(4 * each)
        assert found["bytes"] > 4000
        assert not (tmp_path / "s").exists()


def test_an_outcome_keeps_the_traceback():
    outcome = computed(Work(picky, {}), Job(0, digest_of(0), {"a": 2}))
    assert outcome.fate is Fate.error
    assert "ValueError: two is not a number" in outcome.error


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_bytes(study, tmp_path):
    for place, words in (("one", ["--in-process"]), ("two", ["--cluster", "local", "--workers", 2])):
        assert command("run", study, "--store", tmp_path / place, *words).exit_code == 0
    contents = [
        {path.name: path.read_bytes() for path in (tmp_path / place / "results").rglob("*.nc")}
        for place in ("one", "two")
    ]
    assert contents[0] == contents[1]
    assert len(contents[0]) == 4
