"""Figures from a store are identical to those of one process, even if processes were killed."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import asdict
from importlib import import_module

import pytest
import xarray as xr
from typer.main import get_command
from typer.testing import CliRunner

pytest.importorskip("torch")

from learncast import InvalidSpec, SchemaMismatch
from learncast.cli import app
from learncast.papers import PAPERS, open_paper, reproduce
from learncast.papers.learnability.preset import PRESETS
from learncast.papers.learnability.runs import DiagnosedRun
from learncast.sweep import Summary, status
from learncast.sweep.reproduction import Reproduction, run_base
from learncast.sweep.spec import canonical

SLOW = pytest.mark.slow


def figure_data(folder, name):
    return xr.load_dataset(folder / f"figure_{name}.nc", engine="h5netcdf")


def assert_same_figures(one, other, names):
    """Check that all values, labels, attributes and files are identical."""
    for name in names:
        xr.testing.assert_identical(figure_data(one, name), figure_data(other, name))
        for suffix in ("png", "csv"):
            assert (one / f"figure_{name}.{suffix}").read_bytes() == (other / f"figure_{name}.{suffix}").read_bytes()
    assert (one / "numbers.json").read_text() == (other / "numbers.json").read_text()


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Figure 3 of learnability by one process without a store."""
    folder = tmp_path_factory.mktemp("plain")
    reproduce("learnability", figure="3", preset="smoke", out=folder)
    return folder


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The store of figure 3."""
    store = tmp_path_factory.mktemp("kept") / "store"
    assert Reproduction("learnability", figure="3", preset="smoke", store=store).train(executor="in-process").complete
    return store


@pytest.mark.slow
def test_a_stored_figure_is_identical_to_that_of_one_process(plain, kept, tmp_path):
    Reproduction("learnability", figure="3", preset="smoke", store=kept).draw(out=tmp_path)
    assert_same_figures(tmp_path, plain, ["3"])
    assert not tmp_path.with_name(f"{tmp_path.name}-runs").exists()


@pytest.mark.parametrize(
    ("paper", "figure"),
    [
        pytest.param("prior-knowledge", "2C", marks=pytest.mark.slow),
        pytest.param("learnability", None, marks=SLOW),
        # One figure of each kind of run.
        *(pytest.param("prior-knowledge", figure, marks=SLOW) for figure in ("5B", "5D")),
        pytest.param("curriculum", "2B", marks=SLOW),
        pytest.param("curriculum", "4A", marks=SLOW),
    ],
)
def test_stored_figures_are_identical_to_those_of_one_process(paper, figure, tmp_path):
    stored = Reproduction(paper, figure=figure, preset="smoke", store=tmp_path / "store")
    assert stored.train(workers=2, executor="in-process" if figure == "2C" else "processes").complete
    made = stored.draw(out=tmp_path / "stored")
    assert made.pop("cpu_seconds") > 0
    assert made == reproduce(paper, figure=figure, preset="smoke", out=tmp_path / "plain")
    assert_same_figures(tmp_path / "stored", tmp_path / "plain", made["figures"])


def done(store):
    """Return time of writing and content of every result that the ledger lists as done."""
    if not (store / "ledger.sqlite").exists():
        return {}
    with contextlib.closing(sqlite3.connect(f"file:{store}/ledger.sqlite?mode=ro", uri=True, timeout=30.0)) as ledger:
        try:
            digests = [digest for (digest,) in ledger.execute("SELECT digest FROM tasks WHERE status = 1")]
        except sqlite3.OperationalError:  # the tables do not exist yet
            return {}
    paths = [store / "results" / digest[:2] / f"{digest}.nc" for digest in digests]
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


def command(*arguments):
    return [sys.executable, "-m", "learncast.cli", "reproduce", *map(str, arguments)]


@SLOW
def test_a_killed_reproduction_continues_to_the_same_figure(tmp_path):
    store, out = tmp_path / "store", tmp_path / "stored"
    line = command(
        "learnability", "--figure", "claims", "--preset", "smoke", "--store", store, "--out", out, "--workers", "2"
    )
    before = {}
    # There are five runs; the process is killed after one, two and three.
    for number in (1, 2, 3):
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 120
        while len(done(store)) < number and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        after = done(store)
        assert len(after) >= number
        # Results that were entered before are neither lost nor computed again.
        assert {name: after[name] for name in before} == before
        before = after
    assert len(before) < 5
    assert not out.exists()
    finished = subprocess.run([*line, "--json"], capture_output=True, text=True, timeout=300, check=True)
    after = done(store)
    assert len(after) == 5
    assert {name: after[name] for name in before} == before
    printed = json.loads(finished.stdout)
    assert (printed.pop("cpu_seconds") > 0, printed.pop("drawing_cpu_seconds") > 0) == (True, True)
    assert printed == reproduce("learnability", figure="claims", preset="smoke", out=tmp_path / "plain")
    assert_same_figures(out, tmp_path / "plain", ["claims"])


KILLED = """
import os, signal, sys
from learncast.sweep.reproduction import Reproduction

def stop(summary):
    if summary.done == 1:
        os.kill(os.getpid(), signal.SIGKILL)

Reproduction("learnability", figure="3", preset="smoke", store=sys.argv[1]).train(executor="in-process", watcher=stop)
"""


@pytest.mark.slow
def test_a_reproduction_killed_between_two_runs_continues_with_the_second(plain, tmp_path):
    store = tmp_path / "store"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(store)], timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL
    before = done(store)
    assert len(before) == 1
    stored = Reproduction("learnability", figure="3", preset="smoke", store=store)
    with pytest.raises(SchemaMismatch) as error:
        stored.draw(out=tmp_path / "early")
    assert "learnability.runs:diagnose" in str(error.value)
    assert not (tmp_path / "early").exists()
    second = stored.train(executor="in-process")
    assert (second.computed, second.complete) == (1, True)
    assert before.items() <= done(store).items()
    stored.draw(out=tmp_path / "out")
    assert_same_figures(tmp_path / "out", plain, ["3"])


def test_figures_with_the_same_runs_share_a_store(kept, tmp_path):
    sharing = Reproduction("learnability", figure="12", preset="smoke", store=kept)
    assert sharing.train(executor="in-process") is None
    sharing.draw(out=tmp_path)
    assert (tmp_path / "figure_12.png").is_file()


def test_a_store_is_extended_by_missing_runs(tmp_path, monkeypatch):
    """Another figure or one more seed adds its runs and computes no run again."""
    monkeypatch.setattr("learncast.sweep.reproduction.compute_run", nothing)
    store = tmp_path / "store"
    one = Reproduction("learnability", figure="3", preset="smoke", store=store).train(executor="in-process")
    assert (one.computed, one.total) == (2, 2)
    entered = done(store)
    more = Reproduction("learnability", figure="3", preset="smoke", store=store, seeds=[212, 1001])
    assert len(more.missing()) == 2
    grown = more.train(executor="in-process")
    assert (grown.computed, grown.total, grown.complete) == (2, 4, True)
    assert entered.items() <= done(store).items()
    assert (
        Reproduction("learnability", figure="7", preset="smoke", store=store).train(executor="in-process").computed == 2
    )
    assert more.train() is None
    for paper, preset, changed in (("learnability", "default", "base.preset"), ("curriculum", "smoke", "base.paper")):
        with pytest.raises(InvalidSpec) as error:
            Reproduction(paper, preset=preset, store=store).train()
        assert error.value.field == "study"
        assert changed in str(error.value)


@pytest.mark.slow
def test_a_figure_is_drawn_from_all_shards(plain, tmp_path):
    shares = [
        Reproduction("learnability", figure="3", preset="smoke", store=tmp_path / f"{k}", shard=(k, 2)) for k in (1, 2)
    ]
    assert sum(share.train(executor="in-process").done for share in shares) == 2
    both = Reproduction("learnability", figure="3", preset="smoke", store=[tmp_path / "1", tmp_path / "2"])
    assert both.missing() == []
    both.draw(out=tmp_path / "out")
    assert_same_figures(tmp_path / "out", plain, ["3"])


def nothing(spec):
    return 0.0


def test_changed_code_is_refused(kept, monkeypatch):
    def edited(paper, preset):
        base = run_base(paper, preset)
        return {**base, "sources": {**base["sources"], "runs": "another text"}}

    assert set(run_base("learnability", "smoke")["sources"]) == {"runs"}
    monkeypatch.setattr("learncast.sweep.reproduction.run_base", edited)
    with pytest.raises(InvalidSpec) as error:
        Reproduction("learnability", figure="3", preset="smoke", store=kept).train()
    assert "base.sources.runs" in str(error.value)


def test_a_damaged_result_is_not_drawn(kept, tmp_path):
    stored = Reproduction("learnability", figure="3", preset="smoke", store=kept)
    file = sorted((kept / "results").rglob("*.nc"))[0]
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    try:
        with pytest.raises(SchemaMismatch) as error:
            stored.draw(out=tmp_path / "out")
        assert error.value.field == "store"
    finally:
        file.write_bytes(content)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", PAPERS)
def test_runs_have_json_settings_and_importable_functions(name):
    paper = open_paper(name)
    for preset in paper.presets:
        for figure in paper.figures:
            assert (figure.runs is not None) == figure.trained, figure.name
            for run in figure.runs(preset) if figure.runs else ():
                module, _, function = run.name.partition(":")
                assert getattr(import_module(module), function) is run.function
                plain = canonical(run.settings)
                assert json.loads(json.dumps(plain)) == plain


@pytest.mark.parametrize("preset", PRESETS)
def test_a_learnability_run_can_be_restored_from_json(preset):
    settings = open_paper("learnability").figure("1").runs(preset)[-1].settings
    run = DiagnosedRun.from_dict(json.loads(json.dumps(settings)))
    assert asdict(run) == settings


def test_a_run_does_not_depend_on_other_seeds_and_cells():
    usual, other = (
        {run.text for run in open_paper("learnability", **choices).figure("1").runs("smoke")}
        for choices in ({}, {"seeds": [5, 212], "cells": ["paper-lstm", "const-gate"]})
    )
    assert len(usual & other) == 1  # the constant gate of seed 212
    for paper, field, value in (("learnability", "cells", ["gru"]), ("curriculum", "seeds", [1])):
        with pytest.raises(InvalidSpec) as error:
            open_paper(paper, **{field: value})
        assert error.value.field == field


def run(*arguments):
    return CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke(app, ["reproduce", *map(str, arguments)])


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("curriculum", "--figure", "3A", "--cells", "paper-gru"), "cells"),
        (("learnability", "--device", "tpu"), "device"),
        (("learnability", "--shard", "3"), "--shard"),
        (("curriculum", "--figure", "9Z", "--store", "{}/store"), "'9Z'"),
        (("learnability", "--preset", "full", "--store", "{}/store"), "preset"),
    ],
)
def test_invalid_options_are_refused_before_anything_is_written(arguments, word, tmp_path):
    result = run(*(str(a).format(tmp_path) for a in arguments), "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert word in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_drawn_before_all_runs_are_done(tmp_path, monkeypatch):
    stopped = Summary(2, 1, 0, interrupted=True)
    monkeypatch.setattr(Reproduction, "train", lambda self, **options: stopped)
    result = run(
        "learnability", "--figure", "3", "--preset", "smoke", "--store", tmp_path / "store", "--out", tmp_path / "out"
    )
    assert (result.exit_code, (tmp_path / "out").exists()) == (130, False)
    assert "1 of 2" in result.stderr


def test_nothing_is_drawn_if_a_run_failed(tmp_path, monkeypatch):
    monkeypatch.setattr("learncast.sweep.reproduction.compute_run", refusing)
    line = (
        "learnability",
        "--figure",
        "3",
        "--preset",
        "smoke",
        "--store",
        tmp_path / "store",
        "--in-process",
        "--out",
        tmp_path / "out",
    )
    result = run(*line)
    assert (result.exit_code, (tmp_path / "out").exists()) == (1, False)
    assert "2 runs failed" in result.stderr


def refusing(spec):
    raise ValueError("no")


def test_the_command_draws_from_a_store(kept, plain, tmp_path):
    result = run(
        "learnability",
        "--figure",
        "3",
        "--preset",
        "smoke",
        "--store",
        kept,
        "--workers",
        "1",
        "--out",
        tmp_path,
        "--json",
    )
    assert result.exit_code == 0, result.stderr
    printed = json.loads(result.stdout)
    assert (printed.pop("cpu_seconds") > 0, printed.pop("drawing_cpu_seconds") > 0) == (True, True)
    assert printed == json.loads((plain / "numbers.json").read_text())
    assert status(kept).done == 2


def test_the_default_store_is_next_to_the_figures(tmp_path):
    out = tmp_path / "figures"
    line = ("linear-rnn", "--figure", "S2a", "--out", out, "--in-process", "--format", "svg")
    first, again = run(*line), run(*line)
    assert (first.exit_code, again.exit_code) == (0, 0), first.stderr + again.stderr
    assert "CPU seconds: " in again.stdout
    [store] = (tmp_path / "figures-runs").iterdir()
    assert status(store).done == 1
    drawn = [f"figure_S2a.{suffix}" for suffix in ("csv", "nc", "svg")]
    assert sorted(path.name for path in out.iterdir()) == [*drawn, "numbers.json"]


def test_a_dry_run_estimates_missing_runs(kept, tmp_path):
    line = (
        "learnability",
        "--figure",
        "3",
        "--preset",
        "smoke",
        "--store",
        kept,
        "--dry-run",
        "--out",
        tmp_path / "out",
    )
    assert run(*line).exit_code == 0
    estimate = json.loads(run(*line, "--seeds", "212,5", "--workers", "2", "--json").stdout)
    assert (estimate["runs"], estimate["missing"], estimate["workers"]) == (4, 2, 2)
    # Two networks of eight units and eight steps: a second or so, not a minute.
    assert 0 < estimate["cpu_seconds"] < 60
    assert estimate["seconds"] == pytest.approx(estimate["cpu_seconds"] / 2)
    assert not (tmp_path / "out").exists()


def test_a_dry_run_of_curriculum_estimates_its_cost_without_training(tmp_path):
    costs = {}
    for preset in ("default", "full"):
        cost = Reproduction("curriculum", preset=preset, store=tmp_path / preset).estimate(workers=1)
        assert (cost["missing"], cost["pilot"]) == (10, 0)
        costs[preset] = cost["cpu_seconds"]
    # Measured: half a minute; 11 curricula instead of 7, 5 times the steps, 2 and 3 times the seeds.
    assert 10 < costs["default"] < 120
    assert costs["full"] == pytest.approx(4 * 11 * (3 * 0.7 + 4 * 2.2) + 4 * 0.7, rel=1e-9)


def test_a_dry_run_of_the_largest_preset_trains_nothing(tmp_path):
    torch = pytest.importorskip("torch")
    sizes = []
    hook = torch.nn.modules.module.register_module_forward_pre_hook(lambda _, given: sizes.append(given[0].numel()))
    try:
        reproduction = Reproduction("learnability", preset="paper", store=tmp_path / "store", device="cpu")
        estimate = reproduction.estimate(workers=2)
    finally:
        hook.remove()
    # 5 cells and 5 seeds with 3 optimisers.
    assert (estimate["runs"], estimate["missing"]) == (5 * 5 * 3, 75)
    assert estimate["cpu_seconds"] > 3600
    assert not sizes


def test_reproduce_has_the_options_of_a_sweep():
    """Every option of `sweep run` is an option of `reproduce`, with the same name and help."""
    commands = get_command(app).commands
    ours, theirs = ({p.name: p for p in c.params} for c in (commands["reproduce"], commands["sweep"].commands["run"]))
    shared = ("workers", "cluster", "scheduler", "in_process", "fail_fast", "retry", "batch", "most_bytes", "seconds")
    assert set(theirs) - set(ours) <= {"study"}
    assert {name: ours[name].help for name in shared} == {name: theirs[name].help for name in shared}
    for name in ("shard", "dry_run"):
        assert ours[name].opts == theirs[name].opts


def test_the_preset_paper_runs_on_a_processor_and_prints_its_cost(tmp_path, monkeypatch):
    estimate = {"runs": 25, "missing": 25, "cpu_seconds": 7200.0, "seconds": 3600.0}
    monkeypatch.setattr(Reproduction, "estimate", lambda self, **options: estimate)
    monkeypatch.setattr(Reproduction, "train", lambda self, **options: Summary(25, 1, 0, interrupted=True))
    line = ("learnability", "--figure", "3", "--preset", "paper", "--device", "cpu", "--store", tmp_path / "store")
    result = run(*line, "--workers", "2", "--out", tmp_path)
    assert "25 of 25" in result.stderr
    assert "2.0 h" in result.stderr
    for device, asked in (("cpu", {"device": "cpu"}), ("auto", {})):
        runs = Reproduction("learnability", figure="3", preset="paper", store=tmp_path / "store", **asked).runs
        assert {one.settings["device"] for one in runs} == {device}


@SLOW
def test_a_dask_cluster_draws_the_same_figure(tmp_path):
    for place, words in (("one", ["--in-process"]), ("two", ["--cluster", "local", "--workers", "1"])):
        result = run("linear-rnn", "--figure", "S2a", "--out", tmp_path / place, *words)
        assert result.exit_code == 0, result.stderr
    assert_same_figures(tmp_path / "one", tmp_path / "two", ["S2a"])


def test_stored_results_are_drawn_at_once(tmp_path):
    result = run(
        "learnability", "--figure", "claims", "--stored", "--format", "png", "--out", tmp_path / "out", "--json"
    )
    assert result.exit_code == 0, result.stderr
    numbers = json.loads(result.stdout)["figures"]["claims"]["numbers"]
    assert numbers["C1"].startswith("holds")
    assert (tmp_path / "out" / "figure_claims.png").stat().st_size > 10_000
    refused = run("curriculum", "--stored", "--out", tmp_path / "other")
    assert refused.exit_code == 2
