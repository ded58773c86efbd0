"""Trajectories: what is saved comes back, foreign files do not, and nothing is left half-written."""

import errno
import os
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import learncast as lc
from learncast._core.errors import SchemaMismatch
from learncast.results import Provenance, Status, Trajectory, described, package_versions, save_dataset, spec_hash
from learncast.theory.dynamics.solution import worst_status


@pytest.fixture
def trajectory():
    solution = lc.solve(lc.tasks.integration(steps=5), lc.LinearRNN.aligned(hidden_size=3), learning_rate=1e-2)
    return solution.at([0.0, 10.0, np.inf])


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_saved_trajectory_comes_back_the_same(trajectory, tmp_path):
    path = trajectory.save(tmp_path / "deep" / "run.nc")
    back = Trajectory.load(path)
    xr.testing.assert_identical(back.dataset, trajectory.dataset)  # values, units, long names and attributes
    assert back.provenance == trajectory.provenance
    assert names(path.parent) == ["run.nc"]


def test_saving_what_was_loaded_changes_nothing(trajectory, tmp_path):
    once = Trajectory.load(trajectory.save(tmp_path / "one.nc"))
    twice = Trajectory.load(once.save(tmp_path / "two.nc"))
    xr.testing.assert_identical(twice.dataset, once.dataset)
    assert twice.provenance == once.provenance


def test_saving_replaces_an_older_file(trajectory, tmp_path):
    path = tmp_path / "run.nc"
    path.write_text("old")
    trajectory.save(path)
    assert Trajectory.load(path).dataset.sizes["time"] == 3


@pytest.mark.parametrize("seed", [None, 0, 12345])
def test_provenance_survives_as_attributes(seed):
    provenance = Provenance("training", ("saxe2014", "proca2025"), "abc", seed)
    assert Provenance.from_attributes(provenance.as_attributes()) == provenance


def test_provenance_names_the_versions_that_made_the_numbers():
    assert package_versions()["numpy"] == np.__version__
    assert set(package_versions()) == {"python", "learncast", "numpy", "scipy"}


def test_a_dataset_with_a_seed_of_its_own_can_be_saved(trajectory, tmp_path):
    mine = Trajectory(trajectory.dataset.assign_attrs(seed=3), trajectory.provenance)
    assert Trajectory.load(mine.save(tmp_path / "run.nc")).dataset.sizes["time"] == 3


def test_a_saved_file_is_readable_by_whom_other_new_files_are(trajectory, tmp_path):
    (tmp_path / "plain").touch()
    path = trajectory.save(tmp_path / "run.nc")
    assert oct(path.stat().st_mode) == oct((tmp_path / "plain").stat().st_mode)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(SchemaMismatch, match=r"^a saved trajectory must exist, but got no file .*gone\.nc"):
        Trajectory.load(tmp_path / "gone.nc")


def test_a_file_that_is_not_netcdf_is_refused(tmp_path):
    (tmp_path / "notes.nc").write_text("not a NetCDF file")
    with pytest.raises(SchemaMismatch, match=r"notes\.nc must be a NetCDF file, but got .+: it is damaged"):
        Trajectory.load(tmp_path / "notes.nc")


def test_a_foreign_netcdf_file_is_refused(tmp_path):
    xr.Dataset({"strength": ("time", [1.0])}).to_netcdf(tmp_path / "foreign.nc", engine="h5netcdf")
    with pytest.raises(SchemaMismatch, match=r"must hold a learncast trajectory, but got .+ something else"):
        Trajectory.load(tmp_path / "foreign.nc")


def test_another_kind_of_ours_is_refused_by_name(trajectory, tmp_path):
    save_dataset(trajectory.dataset, tmp_path / "plan.nc", kind="plan", provenance=trajectory.provenance)
    with pytest.raises(SchemaMismatch, match="a NetCDF file that holds plan"):
        Trajectory.load(tmp_path / "plan.nc")


def test_a_file_of_another_format_version_is_refused(trajectory, tmp_path):
    path = trajectory.save(tmp_path / "run.nc")
    older = xr.load_dataset(path, engine="h5netcdf").assign_attrs(learncast_format="learncast-0")
    older.to_netcdf(tmp_path / "older.nc", engine="h5netcdf")
    with pytest.raises(SchemaMismatch, match="must hold a learncast trajectory"):
        Trajectory.load(tmp_path / "older.nc")


def test_a_file_without_its_provenance_is_refused(trajectory, tmp_path):
    path = trajectory.save(tmp_path / "run.nc")
    bare = xr.load_dataset(path, engine="h5netcdf")
    del bare.attrs["provenance_kind"]
    bare.to_netcdf(tmp_path / "bare.nc", engine="h5netcdf")
    with pytest.raises(SchemaMismatch):
        Trajectory.load(tmp_path / "bare.nc")


def test_a_failed_write_leaves_nothing_behind(trajectory, tmp_path, monkeypatch):
    def half(self, content):
        with open(self, "wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="No space left"):
        trajectory.save(tmp_path / "run.nc")
    assert names(tmp_path) == []


def test_a_failed_write_keeps_the_older_file_whole(trajectory, tmp_path, monkeypatch):
    path = trajectory.save(tmp_path / "run.nc")
    before = path.read_bytes()

    def refuse(*_):
        raise PermissionError("the folder went away")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(PermissionError):
        trajectory.save(path)
    assert names(tmp_path) == ["run.nc"]
    assert path.read_bytes() == before


def test_repr_says_what_it_is_and_whether_it_is_fine(trajectory):
    text = repr(trajectory)
    assert text.startswith("<Trajectory by theory: 0 to inf gradient steps; time 3, mode 1; strength,")
    assert text.endswith("all values finite>")
    broken = trajectory.dataset.assign(loss=("time", [1.0, np.nan, 0.0]))
    assert "some values not finite" in repr(Trajectory(broken, trajectory.provenance))


def test_repr_of_no_times(trajectory):
    assert "no times" in repr(Trajectory(trajectory.dataset.isel(time=slice(0, 0)), trajectory.provenance))


def test_every_variable_has_units_and_a_name(trajectory):
    for variable in (*trajectory.dataset.data_vars.values(), trajectory.time):
        assert variable.attrs.keys() >= {"units", "long_name"}
    assert trajectory.time.attrs["units"] == "gradient steps"
    assert trajectory["strength"].dims == ("time", "mode")
    assert described("weight", "1") == {"long_name": "weight", "units": "1"}


def test_the_hash_follows_the_content():
    x = np.arange(6.0)
    assert spec_hash(x, "a", 1.0) == spec_hash(x.copy(), "a", 1.0)
    assert len({spec_hash(x), spec_hash(x + 1), spec_hash(x.reshape(2, 3)), spec_hash(x, "a"), spec_hash("a")}) == 5
    assert spec_hash(x.reshape(2, 3).T) == spec_hash(np.ascontiguousarray(x.reshape(2, 3).T))


def test_the_status_of_a_whole_is_its_worst():
    assert worst_status([]) is Status.ok
    assert worst_status([Status.ok, Status.too_few_samples]) is Status.too_few_samples
    assert worst_status([Status.diverged, Status.ok, Status.outside_theory]) is Status.diverged
    assert worst_status(Status) is Status.not_learned


def test_a_status_is_a_sentence():
    assert all(" " in status.value for status in Status)


def test_a_file_that_another_writer_laid_out_is_read(trajectory, tmp_path):
    """Files were written by xarray once, and may be copied by other tools."""
    path = trajectory.save(tmp_path / "run.nc")
    xr.load_dataset(path, engine="h5netcdf").to_netcdf(tmp_path / "copy.nc", engine="h5netcdf")
    xr.testing.assert_identical(Trajectory.load(tmp_path / "copy.nc").dataset, trajectory.dataset)


def test_plain_hdf5_is_no_trajectory(tmp_path):
    with h5py.File(tmp_path / "plain.nc", "w") as file:
        file.create_group("group")["inner"] = [1.0]
        file["matrix"] = np.eye(2)
    with pytest.raises(SchemaMismatch, match="must hold a learncast trajectory"):
        Trajectory.load(tmp_path / "plain.nc")
