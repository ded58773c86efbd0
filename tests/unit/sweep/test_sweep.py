"""Sweeps: grids, tasks, stores, executors, gathering and the command line."""

from __future__ import annotations

import csv
import importlib
import itertools
import json
import subprocess
import sys
import time

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

from learncast import InvalidSpec, SchemaMismatch, UnsupportedModel, sweep
from learncast._core.limits import allowing
from learncast._core.netcdf import packed, read
from learncast.cli import app
from learncast.sweep import Fate, Grid, InProcess, Job, Outcome, Spec, Sweep, TaskStatus, Work
from learncast.sweep.driver import MOST_DEATHS
from learncast.sweep.jobs import as_dataset, compute
from learncast.sweep.ledger import Ledger
from learncast.sweep.reproduction import compute_run
from learncast.sweep.spec import canonical, digest_of, merged
from learncast.sweep.store import Store, differences
from learncast.sweep.studies import sweep_of
from learncast.sweep.sweeping import stored_sweep
from learncast.tasks import from_file


def run_here(function, grid, store, **keywords):
    return sweep.run(function, grid, store=store, executor="in-process", **keywords)


class Scaled:
    """An object whose values a task's hash would not include."""

    def __init__(self, factor):
        self.factor = factor

    def scaled(self, spec):
        return self.factor * spec["a"]


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


def works_the_third_time(spec):
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
        ("keys", "options", "field"),
        [
            ({"a": 3}, {}, "a"),
            ({"a": []}, {}, "a"),
            ({"a": [object()]}, {}, "a"),
            ({"a": ["\udcff"]}, {}, "a"),
            ({"a": {"first": 1, "count": 3}}, {}, "a"),
            ({"a": {"first": 0, "last": 1, "count": 3, "spacing": "log"}}, {}, "a"),
            ({"a": {"first": 0, "last": 1, "count": 3, "spacing": "cubic"}}, {}, "a.spacing"),
            ({"a": {"first": 0, "last": 1, "count": 10**8}}, {}, "a.count"),
            ({"a": [1], "b": [1, 2]}, {"zips": [["a", "b"]]}, "zips"),
            ({"alpha": [1]}, {"zips": [["alpa"]]}, "zips"),
            ({"a": [1], "b": [1]}, {"zips": ["ab"]}, "zips"),
            ({"a": [1]}, {"conditions": ["a is small"]}, "conditions"),
            ({"seed": [1]}, {"seeds": 2}, "seeds"),
            ({"a": [1]}, {"seeds": 0}, "seeds"),
            ({str(k): list(range(100)) for k in range(4)}, {}, "grid"),
            ({"a/b": [1]}, {}, "grid"),
            ({"a.b": [3], "a": [1, 2]}, {}, "grid"),
            ({"a.b": [3], "a": {"b": [4]}}, {}, "grid"),
            ([1, 2], {}, "grid"),
        ],
    )
    def test_invalid_grids_are_refused(self, keys, options, field):
        with pytest.raises(InvalidSpec) as error:
            Grid.of(keys, **options)
        assert error.value.field == field

    @pytest.mark.parametrize("condition", ["b < 1", "a < word"])
    def test_conditions_on_unknown_keys_or_other_types_are_refused(self, condition):
        with pytest.raises(InvalidSpec) as error:
            list(Grid.of({"a": [1]}, conditions=[condition]).cells({}))
        assert error.value.field == "conditions"

    def test_conditions_use_the_values_of_a_table_that_varies(self):
        grid = Grid.of({"net": [{"h": 1}, {"h": 9}]}, conditions=["net.h < 3"])
        assert [cell["net"]["h"] for _, cell in grid.cells({"net": {"h": 5}})] == [1]


class TestSpec:
    def test_equal_content_has_equal_hashes(self):
        assert digest_of({"a": 1, "b": [2.5]}) == digest_of({"b": [2.5], "a": 1})
        assert len({digest_of(value) for value in (1, 1.0, "1", [1], True, None)}) == 6
        assert canonical({"a": np.float64(2.5), "b": np.arange(2), "c": (1,)}) == {"a": 2.5, "b": [0, 1], "c": [1]}

    def test_dotted_keys_reach_tables_and_lists(self):
        base = {"a": {"x": 1}, "l": [{"y": 1}, {"y": 2}]}
        assert merged(base, {"a.z": 3, "l.1.y": 5}) == {"a": {"x": 1, "z": 3}, "l": [{"y": 1}, {"y": 5}]}
        assert base["l"][1]["y"] == 2
        for key in ("l.2.y", "a.x.w"):
            with pytest.raises(InvalidSpec) as error:
                merged(base, {key: 5})
            assert error.value.field == key

    def test_a_spec_is_read_only_and_seeded_by_its_hash(self):
        spec = Spec({"a": {"x": [1]}}, digest_of(1))
        spec["a"]["x"].append(2)
        assert spec["a.x"] == [1]
        with pytest.raises(KeyError):
            spec["a.w"]
        expected = np.random.default_rng(np.random.SeedSequence(int(digest_of(1), 16))).normal()
        assert spec.rng().normal() == spec.rng().normal() == expected
        assert Spec({}, digest_of(2)).rng().normal() != expected


class TestResults:
    def test_equal_datasets_have_equal_bytes_and_are_read_back_unchanged(self):
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
        assert len(theirs.attrs.pop("sha256")) == 64
        xr.testing.assert_identical(theirs, read(packed(dataset)).drop_encoding())
        xr.testing.assert_equal(theirs, dataset)
        assert list(theirs.data_vars) == list(dataset.data_vars)

    def test_functions_return_datasets_arrays_numbers_or_mappings(self):
        assert as_dataset(2.5)["value"].item() == 2.5
        assert as_dataset(xr.DataArray([1], dims="x", name="n"))["n"].dims == ("x",)
        assert as_dataset({"a": 1, "b": ("x", [1, 2])})["b"].dims == ("x",)
        with pytest.raises(UnsupportedModel) as error:
            as_dataset([1, 2])
        assert error.value.field == "function"
        with pytest.raises(UnsupportedModel):
            packed(xr.Dataset({"a": ((), 1j)}))


class TestRun:
    def test_results_are_those_of_a_plain_loop(self, tmp_path):
        made = run_here(product, {"a": [1, 2], "b": [3, 4, 5]}, tmp_path / "s")
        assert (made.total, made.done, made.failed, made.complete) == (6, 6, 0, True)
        found = sweep.gather(tmp_path / "s")
        assert found["product"].dims == ("a", "b")
        for a, b in itertools.product([1, 2], [3, 4, 5]):
            assert found["product"].sel(a=a, b=b) == a * b
        assert (found["task_status"] == "done").all()
        assert len(np.unique(found["noise"])) == 6

    def test_results_do_not_depend_on_the_order_of_the_grid(self, tmp_path):
        run_here(product, {"a": [1, 2], "b": [3, 4]}, tmp_path / "one")
        run_here(product, {"b": [4, 3], "a": [2, 1, 7]}, tmp_path / "two")
        one, two = (sweep.gather(tmp_path / name).drop_vars("task_status") for name in ("one", "two"))
        xr.testing.assert_equal(one, two.sel(a=[1, 2], b=[3, 4]).transpose("a", "b"))

    def test_a_value_that_is_given_twice_is_refused(self, tmp_path):
        with pytest.raises(InvalidSpec) as error:
            run_here(product, {"a": [5, 6, 5], "b": [1]}, tmp_path / "s")
        assert error.value.field == "a"
        assert not (tmp_path / "s").exists()

    def test_a_task_that_works_the_third_time_is_done(self, tmp_path):
        CALLS.clear()
        made = run_here(works_the_third_time, {"a": [5, 6]}, tmp_path / "s")
        assert (made.total, made.done) == (2, 2)
        assert sorted(CALLS) == [5, 5, 5, 6, 6, 6]

    def test_a_failing_task_is_tried_three_times_and_the_rest_finishes(self, tmp_path):
        made = run_here(picky, {"a": [0, 1, 2, 3]}, tmp_path / "s")
        assert (made.done, made.failed, made.complete) == (3, 1, False)
        (failure,) = sweep.failures(tmp_path / "s")
        assert failure.cell == {"a": 2}
        assert failure.attempts == 3
        assert 'raise ValueError("two is not a number")' in failure.error
        again = run_here(picky, {"a": [0, 1, 2, 3]}, tmp_path / "s")
        assert (again.computed, again.failed) == (0, 1)
        again = run_here(picky, {"a": [0, 1, 2, 3]}, tmp_path / "s", retry=True, attempts=1)
        assert (again.computed, again.failed) == (0, 1)
        assert next(sweep.failures(tmp_path / "s")).attempts == 1

    def test_fail_fast_starts_no_more_tasks(self, tmp_path):
        made = run_here(picky, {"a": [0, 2, 1, 3]}, tmp_path / "s", fail_fast=True, attempts=1)
        assert (made.done, made.failed, made.missing) == (1, 1, 2)
        assert run_here(picky, {"a": [0, 2, 1, 3]}, tmp_path / "s").done == 3

    def test_a_task_that_kills_its_workers_fails(self, tmp_path):
        class Deadly(InProcess):
            def wait(self, seconds):
                return [Outcome(one.job, Fate.death, error="died") for one in super().wait(seconds)]

        made = sweep.run(product, {"a": [1], "b": [1]}, store=tmp_path / "s", executor=Deadly())
        assert made.failed == 1
        (failure,) = sweep.failures(tmp_path / "s")
        assert (failure.deaths, failure.attempts, failure.error) == (MOST_DEATHS, 0, "died")

    def test_jobs_that_were_not_started_use_no_attempts(self, tmp_path):
        class Shy(InProcess):
            times = 0

            def wait(self, seconds):
                self.times += 1
                found = super().wait(seconds)
                return [Outcome(one.job, Fate.unstarted) for one in found] if self.times < 20 else found

        assert sweep.run(product, {"a": [1], "b": [1]}, store=tmp_path / "s", executor=Shy()).complete

    def test_cheap_tasks_are_batched_only_if_handing_out_is_expensive(self, tmp_path):
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

    def test_a_task_whose_worker_died_is_retried_in_a_batch_of_its_own(self, tmp_path):
        class Deadly(InProcess):
            """A batch with the task a = 3 dies, without a hint which task was the cause."""

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

    def test_another_study_is_refused_with_its_differences(self, tmp_path):
        run_here(product, {"a": [1], "b": [1]}, tmp_path / "s", base={"c": {"d": 1}})
        with pytest.raises(InvalidSpec) as error:
            run_here(product, {"a": [1], "b": [1]}, tmp_path / "s", base={"c": {"d": 2}})
        assert error.value.field == "study"
        assert "base.c.d: 1 -> 2" in str(error.value)
        with pytest.raises(InvalidSpec) as error:
            run_here(picky, {"a": [1], "b": [1]}, tmp_path / "s", base={"c": {"d": 1}})
        assert error.value.field == "study"

    def test_functions_that_cannot_be_imported_are_refused(self, tmp_path):
        for function in (lambda spec: 1.0, Scaled(2).scaled):
            with pytest.raises(InvalidSpec) as error:
                run_here(function, {"a": [1]}, tmp_path / "s")
            assert error.value.field == "function"

    def test_unknown_executors_are_refused(self, tmp_path):
        with pytest.raises(InvalidSpec) as error:
            sweep.run(product, {"a": [1]}, store=tmp_path / "s", executor="process")
        assert error.value.field == "executor"

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
            assert "some_functions:one" in refused.stderr
        del some_functions.one
        with pytest.raises(InvalidSpec) as error:
            stored_sweep(tmp_path / "s", "some_functions:one")
        assert error.value.field == "function"

    @pytest.mark.slow_cases("--workers=1")
    @pytest.mark.parametrize("where", ["--in-process", "--workers=1"])
    def test_tasks_obey_the_memory_limit(self, tmp_path, where):
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
        assert "most_bytes" in refused.stderr
        with allowing(2000):
            sweep.run(
                read_trials, {"path": [str(tmp_path / "trials.npz")]}, store=tmp_path / "f", workers=1, attempts=1
            )
        assert "InvalidSpec" in next(sweep.failures(tmp_path / "f")).error
        assert CliRunner().invoke(app, words).exit_code == 0

    @pytest.mark.parametrize(
        ("function", "code"), [("subprocess:Popen", 2), ("learncast.sweep.reproduction:compute_run", 1)]
    )
    def test_a_hostile_store_runs_no_code(self, tmp_path, function, code):
        """The store's study and ledger are consistent, and name a function that would create a file."""
        mark = tmp_path / "mark"
        by_name = {"function": "os:system", "settings": f"touch {mark}"}
        base = {"touch": 1, str(mark): 1} if function == "subprocess:Popen" else by_name
        named = subprocess.Popen if function == "subprocess:Popen" else compute_run
        hostile = Sweep(named, Grid.of({"x": [1]}), base, {})
        place = Store(tmp_path / "s")
        with place.locked():
            place.begin(hostile.study(), hostile.tasks())
        words = ["sweep", "resume", str(tmp_path / "s"), "--in-process"]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == code, result.output
        assert not mark.exists()

    def test_a_second_driver_is_refused(self, tmp_path):
        run_here(product, {"a": [1], "b": [1]}, tmp_path / "s")
        with Store(tmp_path / "s").locked():
            assert sweep.status(tmp_path / "s").driven
            with pytest.raises(InvalidSpec) as error:
                run_here(product, {"a": [1], "b": [1]}, tmp_path / "s")
            assert error.value.field == "store"
        assert not sweep.status(tmp_path / "s").driven


class TestStore:
    def test_a_folder_without_a_sweep_is_refused(self, tmp_path):
        for question in (sweep.status, sweep.verify, sweep.gather, sweep.prune, sweep.resume):
            with pytest.raises(InvalidSpec) as error:
                question(tmp_path / "nothing")
            assert error.value.field == "store"

    def test_a_driver_killed_before_it_entered_the_tasks_can_start_again(self, tmp_path):
        store = Store(tmp_path / "s")
        with store.locked():
            store.ledger(write=True).close()
        with pytest.raises(InvalidSpec):
            sweep.status(tmp_path / "s")
        assert run_here(product, {"a": [1], "b": [1]}, tmp_path / "s").complete

    def test_the_ledger_is_durable(self, tmp_path):
        ledger = Ledger(tmp_path / "ledger.sqlite", write=True)
        assert ledger._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert ledger._connection.execute("PRAGMA synchronous").fetchone() == (2,)
        ledger.close()

    def test_a_transaction_is_all_or_nothing(self, tmp_path):
        ledger = Ledger(tmp_path / "ledger.sqlite", write=True)
        ledger.enter([(0, "a"), (1, "b")], {})
        with pytest.raises(SchemaMismatch):
            ledger.record([{"position": 0, "status": 1}, {"position": 1, "no_such_column": 1}])
        assert ledger.totals()[TaskStatus.missing].tasks == 2
        ledger.close()

    def test_prune_removes_only_needless_files(self, tmp_path):
        run_here(product, {"a": [1], "b": [1]}, tmp_path / "s")
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

    def test_differences_are_listed_by_dotted_key(self):
        stored, given = {"a": 1, "b": {"c": [1, 2]}, "d": 0}, {"a": 1.0, "b": {"c": [1, 3]}, "e": 0}
        assert differences(stored, given) == ["a: 1 -> 1.0", "b.c.1: 2 -> 3", "d: 0 is gone", "e: 0 is new"]

    @pytest.mark.slow
    def test_the_status_of_a_million_tasks_takes_less_than_a_second(self, tmp_path):
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


def test_the_repr_of_a_summary_has_its_counts():
    assert repr(sweep.Summary(total=3, done=3, failed=0)) == "<Summary: 3 of 3 tasks done, in 0.0 s>"
    text = repr(sweep.Summary(total=3000, done=1, failed=2))
    assert all(part in text for part in ("1 of 3,000", "2 failed", "2,997 missing", "sweep.failures", "sweep.resume"))


class TestGather:
    def test_cells_without_results_are_nan_and_have_a_status(self, tmp_path):
        grid = {"a": [0, 1, 2, 3, 4]}
        run_here(picky, grid, tmp_path / "s", conditions=["a < 4"])
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

    def test_csv_and_parquet_tables_have_equal_rows(self, tmp_path):
        run_here(third, {"a": [1, 2, 0], "b": ["x, y", "z"]}, tmp_path / "s", conditions=["a > 0"])
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
            with pytest.raises(InvalidSpec) as error:
                sweep.gather(tmp_path / "nowhere", table=tmp_path / name)
            assert error.value.field == "table"
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(InvalidSpec) as error:
            sweep.gather(tmp_path / "nowhere", table=tmp_path / "all.parquet")
        assert "pyarrow" in str(error.value)

    def test_integers_stay_integers_only_if_all_are_known(self, tmp_path):
        run_here(product, {"a": [1, 2], "b": [2**53 + 1]}, tmp_path / "whole")
        assert sweep.gather(tmp_path / "whole")["product"].values.ravel().tolist() == [2**53 + 1, 2**54 + 2]
        run_here(product, {"a": [1, 2], "b": [1]}, tmp_path / "part", conditions=["a < 2"])
        np.testing.assert_array_equal(sweep.gather(tmp_path / "part")["product"].values.ravel(), [1.0, np.nan])

    def test_dimensions_are_named_by_the_last_word_of_their_keys(self, tmp_path):
        run_here(clock, {"x.time": [1, 2], "y.rate": [3], "z.rate": [4]}, tmp_path / "s", zips=[["y.rate", "z.rate"]])
        found = sweep.gather(tmp_path / "s")
        assert found["level"].dims == ("x.time", "y.rate", "time")
        assert found["z.rate"].dims == ("y.rate",)
        # Times differ between cells, so each cell has its own.
        np.testing.assert_array_equal(found["time_value"].squeeze(), [[1.0, 2.0], [2.0, 4.0]])
        assert "level" not in sweep.gather(tmp_path / "s", variables=["other"])
        with pytest.raises(InvalidSpec) as error:
            sweep.gather(tmp_path / "s", variables=["levels"])
        assert error.value.field == "variables"

    @pytest.mark.parametrize("content", [packed(xr.Dataset({"product": 7})), b"nonsense"], ids=["changed", "damaged"])
    def test_a_file_with_other_content_is_not_gathered(self, tmp_path, content):
        run_here(product, {"a": [1], "b": [1]}, tmp_path / "s")
        next((tmp_path / "s" / "results").rglob("*.nc")).write_bytes(content)
        with pytest.raises(SchemaMismatch) as error:
            sweep.gather(tmp_path / "s")
        assert error.value.field == "store"


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
        from learncast.report.forecast import forecast_report as forecast
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
            answer = forecast(Study.from_dict(raw, folder=tmp_path, source="x"))
            cell = found.sel(recurrence=b, target_strength=k)
            assert cell["flow_steps"] == answer.values["flow_steps"]
            np.testing.assert_array_equal(cell["loss"], answer.labelled["loss"])
        text = study.read_text(encoding="utf-8")
        study.write_text(text.replace("1e-3", "2e-3"), encoding="utf-8")
        refused = command("resume", store, study)
        assert refused.exit_code == 2
        assert "base.training.learning_rate: 0.001 -> 0.002" in refused.stderr
        assert command("resume", store, "--in-process").exit_code == 0

    def test_plans_can_be_swept(self, study, tmp_path):
        text = study.read_text(encoding="utf-8").replace('"forecast"', '"plan"').replace("[1.0, 2.0]", "[1.0]")
        study.write_text(text, encoding="utf-8")
        assert command("run", study, "--store", tmp_path / "s", "--in-process").exit_code == 0
        found = sweep.gather(tmp_path / "s")
        assert (found["best_flow_steps"] <= found["direct_flow_steps"]).all()

    @pytest.mark.parametrize(
        ("old", "new", "words"),
        [
            ('"forecast"', '"forcast"', "sweep.command"),
            ("[sweep.grid]", "seed = 3\n[sweep.grid]", "sweep.seed"),
            ("[sweep.grid]", "seeds = 3\n[sweep.grid]", "seeds"),
            ("[sweep.grid]", "options = {taks = 1}\n[sweep.grid]", "'task'"),
            ("network.recurrence =", "network.recurence =", "recurence"),
            ("[0.9, 0.95]", '[0.9, "high"]', "network.recurrence = 'high'"),
            ("[sweep]", "[swept]", "[sweep]"),
        ],
    )
    def test_invalid_studies_are_refused_before_anything_runs(self, study, tmp_path, old, new, words):
        study.write_text(study.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
        if "[swept]" in new:
            study.write_text(study.read_text(encoding="utf-8").replace("[sweep.grid]", "[grid]"), encoding="utf-8")
        refused = command("run", study, "--store", tmp_path / "s")
        assert refused.exit_code == 2
        assert words in refused.stderr
        assert not (tmp_path / "s").exists()

    def test_a_changed_data_file_changes_the_study(self, study, tmp_path):
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
    def test_failures_exit_with_1_and_are_listed(self, study, tmp_path):
        text = study.read_text(encoding="utf-8").replace("[sweep.grid]", 'options = {task = "nobody"}\n[sweep.grid]')
        study.write_text(text, encoding="utf-8")
        store = tmp_path / "s"
        made = command("run", study, "--store", store, "--in-process", "--fail-fast")
        assert made.exit_code == 1
        shown = command("status", store)
        assert "1 failed" in shown.stdout
        assert "'nobody'" in shown.stdout
        assert json.loads(command("status", store, "--json").stdout)["missing"] == 3

    def test_verify_gather_and_prune(self, study, tmp_path):
        store = tmp_path / "s"
        command("run", study, "--store", store, "--in-process")
        assert command("verify", store).exit_code == 0
        next((store / "results").rglob("*.nc")).write_bytes(b"")
        damaged = command("verify", store)
        assert damaged.exit_code == 1
        assert "has 0 bytes" in damaged.stdout
        files = [tmp_path / "all.nc", tmp_path / "all.csv"]
        gathered = command("gather", store, "--out", files[0], "--table", files[1], "--variables", "flow_steps")
        assert gathered.exit_code == 0
        assert gathered.stdout.endswith("".join(f"Wrote {path}\n" for path in files))
        assert len(files[1].read_text(encoding="utf-8").splitlines()) == 5
        assert int(np.isnan(xr.load_dataset(tmp_path / "all.nc", engine="h5netcdf")["flow_steps"]).sum()) == 1
        assert "1 file removed." in command("prune", store).stdout
        assert command("resume", store, "--in-process").exit_code == 0

    def test_two_executors_are_refused(self, study):
        assert command("run", study, "--in-process", "--cluster", "local").exit_code == 2

    def test_a_dry_run_estimates_the_cost(self, study, tmp_path, monkeypatch):
        # In this process, because starting another one takes seconds.
        monkeypatch.setattr("learncast.sweep.sweeping.Processes", lambda workers: InProcess())
        made = command("run", study, "--store", tmp_path / "s", "--dry-run", "--json", "--workers", 2)
        found = json.loads(made.stdout)
        assert (found["tasks"], found["workers"], found["failed"]) == (4, 2, 0)
        # Two workers compute and one process writes, whichever takes longer.
        each = max(found["task_seconds"] / 2, found["entry_seconds"])
        assert found["seconds"] == pytest.approx(4 * each)
        assert found["bytes"] > 4000
        assert not (tmp_path / "s").exists()


def test_an_outcome_keeps_the_traceback():
    outcome = compute(Work(picky, {}), Job(0, digest_of(0), {"a": 2}))
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


def test_a_changed_module_that_the_function_imports_is_named(tmp_path, monkeypatch):
    project = tmp_path / "project"
    project.mkdir()
    (project / "swept_main.py").write_text(
        "import swept_part\n\n\ndef ratio(spec):\n    return swept_part.factor * spec['x']\n"
    )
    (project / "swept_part.py").write_text("factor = 1\n")
    monkeypatch.syspath_prepend(project)
    module = importlib.import_module("swept_main")
    sweep.run(module.ratio, {"x": [1, 2]}, store=tmp_path / "store", executor="in-process")
    (project / "swept_part.py").write_text("factor = 100\n")
    with pytest.raises(InvalidSpec) as error:
        sweep.resume(tmp_path / "store", module.ratio, executor="in-process")
    assert error.value.field == "study"
    assert "source.swept_part" in str(error.value)
