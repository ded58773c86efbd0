"""One sweep in several stores: all shards together give the full result."""

from __future__ import annotations

import pytest
import xarray as xr
from typer.testing import CliRunner

from learncast import InvalidSpec, sweep
from learncast.cli import app

GRID = {"a": list(range(12)), "b": [1, 1.5]}


def product(spec):
    """Two numbers multiplied."""
    return {"product": spec["a"] * spec["b"]}


def part(tmp_path, k, n, **keywords):
    store = tmp_path / f"{k}of{n}"
    sweep.run(product, GRID, store=store, executor="in-process", shard=(k, n), **keywords)
    return store


def test_all_shards_together_compute_every_task_once(tmp_path):
    sweep.run(product, GRID, store=tmp_path / "full", executor="in-process")
    stores = [part(tmp_path, k, 3) for k in (1, 2, 3)]
    totals = [sweep.status(store).total for store in stores]
    assert sum(totals) == 24
    assert all(totals)
    xr.testing.assert_identical(sweep.gather(stores), sweep.gather(tmp_path / "full"))


def test_cells_of_absent_shards_are_missing(tmp_path):
    gathered = sweep.gather(part(tmp_path, 1, 2, conditions=["a < 10"]))
    status = gathered["task_status"]
    assert (status.sel(a=[10, 11]) == "excluded").all()
    assert set(status.sel(a=slice(0, 9)).values.ravel()) == {"done", "missing"}
    assert (gathered["product"].notnull() == (status == "done")).all()


def test_every_task_is_in_one_shard(tmp_path):
    for k in (1, 2):
        sweep.run(value_of_a, {"a": [1, 2, 3]}, store=tmp_path / str(k), executor="in-process", shard=(k, 2))
    assert sum(sweep.status(tmp_path / str(k)).total for k in (1, 2)) == 3
    found = sweep.gather([tmp_path / "1", tmp_path / "2"])
    assert found["value"].values.tolist() == [1, 2, 3]


def value_of_a(spec):
    """Return the value."""
    return spec["a"]


def test_stores_of_other_sweeps_and_equal_shards_are_refused(tmp_path):
    one = part(tmp_path, 1, 2)
    sweep.run(product, {**GRID, "b": [1, 2.5]}, store=tmp_path / "other", executor="in-process", shard=(2, 2))
    for stores, field in (([one, tmp_path / "other"], "study"), ([one, one], "store"), ([], "store")):
        with pytest.raises(InvalidSpec) as error:
            sweep.gather(stores)
        assert error.value.field == field
    for store, shard, field in ((one, (2, 2), "study"), (tmp_path / "none", (3, 2), "shard")):
        with pytest.raises(InvalidSpec) as error:
            sweep.run(product, GRID, store=store, executor="in-process", shard=shard)
        assert error.value.field == field


STUDY = """
[network]
hidden_size = 4
[training]
learning_rate = 1e-3
[target]
family = "integration"
steps = 5
[sweep]
command = "forecast"
[sweep.grid]
target.target_strength = [0.5, 0.75, 1.0, 1.25]
"""


def test_shards_on_the_command_line(tmp_path):
    study = tmp_path / "study.toml"
    study.write_text(STUDY, encoding="utf-8")
    command = CliRunner()
    for k in (1, 2):
        made = command.invoke(
            app, ["sweep", "run", str(study), "--shard", f"{k}/2", "--store", str(tmp_path / str(k)), "--in-process"]
        )
        assert made.exit_code == 0, made.output
    again = command.invoke(app, ["sweep", "resume", str(tmp_path / "2"), str(study), "--in-process"])
    assert again.exit_code == 0, again.output
    stores = [str(tmp_path / "1"), str(tmp_path / "2")]
    gathered = command.invoke(app, ["sweep", "gather", *stores, "--out", str(tmp_path / "all.nc")])
    assert gathered.exit_code == 0, gathered.output
    with xr.open_dataset(tmp_path / "all.nc") as found:
        assert (found["task_status"] == "done").all()
    wrong = command.invoke(app, ["sweep", "run", str(study), "--shard", "2-3"])
    assert wrong.exit_code == 2
    assert "--shard" in wrong.output
