"""One sweep in several stores: shares that together are the whole."""

from __future__ import annotations

import pytest
import xarray as xr
from typer.testing import CliRunner

from learncast import sweep
from learncast._core.errors import InvalidSpec
from learncast.cli import app

GRID = {"a": list(range(12)), "b": [1, 1.5]}


def product(spec):
    """Two numbers multiplied."""
    return {"product": spec["a"] * spec["b"]}


def part(tmp_path, k, n, **keywords):
    store = tmp_path / f"{k}of{n}"
    sweep.run(product, GRID, store=store, executor="in-process", shard=(k, n), **keywords)
    return store


def test_all_shares_are_the_whole_and_none_is_computed_twice(tmp_path):
    sweep.run(product, GRID, store=tmp_path / "whole", executor="in-process")
    stores = [part(tmp_path, k, 3) for k in (1, 2, 3)]
    totals = [sweep.status(store).total for store in stores]
    assert sum(totals) == 24
    assert all(totals)
    xr.testing.assert_identical(sweep.gather(stores), sweep.gather(tmp_path / "whole"))


def test_cells_of_a_share_that_is_not_there_are_missing(tmp_path):
    found = sweep.gather(part(tmp_path, 1, 2, conditions=["a < 10"]))
    status = found["task_status"]
    assert (status.sel(a=[10, 11]) == "excluded").all()
    assert set(status.sel(a=slice(0, 9)).values.ravel()) == {"done", "missing"}
    assert (found["product"].notnull() == (status == "done")).all()


def test_equal_tasks_are_in_one_share(tmp_path):
    grid = {"a": [1, 2, 3, 1, 2, 3]}
    for k in (1, 2):
        sweep.run(lone, grid, store=tmp_path / str(k), executor="in-process", shard=(k, 2))
    assert sum(sweep.status(tmp_path / str(k)).total for k in (1, 2)) == 3
    found = sweep.gather([tmp_path / "1", tmp_path / "2"])
    assert found["value"].values.tolist() == [1, 2, 3, 1, 2, 3]


def lone(spec):
    """A number as it is."""
    return spec["a"]


def test_shares_of_other_sweeps_and_shares_named_twice_are_refused(tmp_path):
    one = part(tmp_path, 1, 2)
    sweep.run(product, {**GRID, "b": [1, 2.5]}, store=tmp_path / "other", executor="in-process", shard=(2, 2))
    with pytest.raises(InvalidSpec, match=r"changes \(grid"):
        sweep.gather([one, tmp_path / "other"])
    with pytest.raises(InvalidSpec, match="two with the share 1/2"):
        sweep.gather([one, one])
    with pytest.raises(InvalidSpec, match="at least one store"):
        sweep.gather([])
    with pytest.raises(InvalidSpec, match=r"shard\.0: 1 -> 2"):
        sweep.run(product, GRID, store=one, executor="in-process", shard=(2, 2))
    with pytest.raises(InvalidSpec, match=r"got \(3, 2\)"):
        sweep.run(product, GRID, store=tmp_path / "none", executor="in-process", shard=(3, 2))


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


def test_on_the_command_line(tmp_path):
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
    assert "--shard must be K/N" in wrong.output
