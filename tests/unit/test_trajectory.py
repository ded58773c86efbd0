"""Saved trajectories load unchanged, other files raise, and writes are atomic; steps and statuses."""

import errno
import math
import os
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import learncast as lc
from learncast import SchemaMismatch, Status, Trajectory
from learncast._core.netcdf import packed
from learncast.results import Provenance, Steps, described, package_versions, save_dataset, spec_hash
from learncast.theory import worst_status


@pytest.fixture
def trajectory():
    solution = lc.forecast(
        lc.tasks.integration(steps=5), lc.LinearRNN.aligned(hidden_size=3), learning_rate=1e-2
    ).solution
    return solution.at([0.0, 10.0, np.inf])


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_saved_trajectory_loads_unchanged(trajectory, tmp_path):
    path = trajectory.save(tmp_path / "deep" / "run.nc")
    back = Trajectory.load(path)
    xr.testing.assert_identical(back.dataset, trajectory.dataset)  # values, units, long names and attributes
    assert back.provenance == trajectory.provenance
    assert names(path.parent) == ["run.nc"]


def test_saving_a_loaded_trajectory_changes_nothing(trajectory, tmp_path):
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


def test_provenance_records_package_versions():
    assert package_versions()["numpy"] == np.__version__
    assert set(package_versions()) == {"python", "learncast", "numpy", "scipy"}


def test_dataset_with_its_own_seed_attribute_can_be_saved(trajectory, tmp_path):
    mine = Trajectory(trajectory.dataset.assign_attrs(seed=3), trajectory.provenance)
    assert Trajectory.load(mine.save(tmp_path / "run.nc")).dataset.sizes["time"] == 3


def test_saved_file_has_the_default_permissions(trajectory, tmp_path):
    (tmp_path / "plain").touch()
    path = trajectory.save(tmp_path / "run.nc")
    assert oct(path.stat().st_mode) == oct((tmp_path / "plain").stat().st_mode)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(SchemaMismatch):
        Trajectory.load(tmp_path / "gone.nc")


def test_a_file_that_is_not_netcdf_is_refused(tmp_path):
    (tmp_path / "notes.nc").write_text("not a NetCDF file")
    with pytest.raises(SchemaMismatch):
        Trajectory.load(tmp_path / "notes.nc")


def test_a_foreign_netcdf_file_is_refused(tmp_path):
    xr.Dataset({"strength": ("time", [1.0])}).to_netcdf(tmp_path / "foreign.nc", engine="h5netcdf")
    with pytest.raises(SchemaMismatch) as error:
        Trajectory.load(tmp_path / "foreign.nc")
    assert error.value.field == "kind"


def test_another_kind_of_ours_is_refused_by_name(trajectory, tmp_path):
    save_dataset(trajectory.dataset, tmp_path / "plan.nc", kind="plan", provenance=trajectory.provenance)
    with pytest.raises(SchemaMismatch) as error:
        Trajectory.load(tmp_path / "plan.nc")
    assert error.value.field == "kind"


def test_a_file_of_another_format_version_is_refused(trajectory, tmp_path):
    path = trajectory.save(tmp_path / "run.nc")
    older = xr.load_dataset(path, engine="h5netcdf").assign_attrs(learncast_format="learncast-0")
    (tmp_path / "older.nc").write_bytes(packed(older))
    with pytest.raises(SchemaMismatch) as error:
        Trajectory.load(tmp_path / "older.nc")
    assert error.value.field == "kind"


def test_a_file_without_its_provenance_is_refused(trajectory, tmp_path):
    path = trajectory.save(tmp_path / "run.nc")
    bare = xr.load_dataset(path, engine="h5netcdf")
    del bare.attrs["provenance_kind"]
    (tmp_path / "bare.nc").write_bytes(packed(bare))
    with pytest.raises(SchemaMismatch) as error:
        Trajectory.load(tmp_path / "bare.nc")
    assert error.value.field == "provenance"


@pytest.mark.parametrize("change", ["value", "name", "attribute", "no seal"])
def test_a_changed_file_is_refused_by_its_hash(trajectory, tmp_path, change):
    path = trajectory.save(tmp_path / "run.nc")
    dataset = xr.load_dataset(path, engine="h5netcdf")
    name = str(next(iter(dataset.data_vars)))
    if change == "value":
        dataset[name] = dataset[name] + 1e-12
    elif change == "name":
        dataset = dataset.rename({name: "other"})
    elif change == "attribute":
        dataset[name].attrs["units"] = "furlongs"
    else:
        del dataset.attrs["sha256"]
    dataset.to_netcdf(tmp_path / "changed.nc", engine="h5netcdf")
    with pytest.raises(SchemaMismatch) as error:
        Trajectory.load(tmp_path / "changed.nc")
    assert error.value.field == "sha256"
    assert "changed.nc" in str(error.value)


def test_a_failed_write_leaves_nothing_behind(trajectory, tmp_path, monkeypatch):
    def half(self, content):
        with open(self, "wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError) as error:
        trajectory.save(tmp_path / "run.nc")
    assert error.value.errno == errno.ENOSPC
    assert names(tmp_path) == []


def test_a_failed_write_keeps_the_older_file(trajectory, tmp_path, monkeypatch):
    path = trajectory.save(tmp_path / "run.nc")
    before = path.read_bytes()

    def refuse(*_):
        raise PermissionError("the folder went away")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(PermissionError):
        trajectory.save(path)
    assert names(tmp_path) == ["run.nc"]
    assert path.read_bytes() == before


def test_repr_tells_whether_all_values_are_finite(trajectory):
    text = repr(trajectory)
    assert text.startswith("<Trajectory by theory: 0 to inf gradient steps; time 3, mode 1; strength,")
    assert "not finite" not in text
    broken = trajectory.dataset.assign(loss=("time", [1.0, np.nan, 0.0]))
    assert "not finite" in repr(Trajectory(broken, trajectory.provenance))


def test_repr_of_no_times(trajectory):
    assert "no times" in repr(Trajectory(trajectory.dataset.isel(time=slice(0, 0)), trajectory.provenance))


def test_every_variable_has_units_and_a_name(trajectory):
    for variable in (*trajectory.dataset.data_vars.values(), trajectory.time):
        assert variable.attrs.keys() >= {"units", "long_name"}
    assert trajectory.time.attrs["units"] == "gradient steps"
    assert trajectory["strength"].dims == ("time", "mode")
    assert described("weight", "1") == {"long_name": "weight", "units": "1"}


def test_hash_depends_on_content_and_shape_only():
    x = np.arange(6.0)
    assert spec_hash(x, "a", 1.0) == spec_hash(x.copy(), "a", 1.0)
    assert len({spec_hash(x), spec_hash(x + 1), spec_hash(x.reshape(2, 3)), spec_hash(x, "a"), spec_hash("a")}) == 5
    assert spec_hash(x.reshape(2, 3).T) == spec_hash(np.ascontiguousarray(x.reshape(2, 3).T))


def test_worst_status():
    assert worst_status([]) is Status.ok
    assert worst_status([Status.ok, Status.too_few_samples]) is Status.too_few_samples
    assert worst_status([Status.diverged, Status.ok, Status.outside_theory]) is Status.diverged
    assert worst_status(Status) is Status.not_learned


def test_a_status_is_a_sentence():
    assert all(" " in status.value for status in Status)


def test_a_file_rewritten_by_xarray_is_read(trajectory, tmp_path):
    path = trajectory.save(tmp_path / "run.nc")
    xr.load_dataset(path, engine="h5netcdf").to_netcdf(tmp_path / "copy.nc", engine="h5netcdf")
    xr.testing.assert_identical(Trajectory.load(tmp_path / "copy.nc").dataset, trajectory.dataset)


def test_plain_hdf5_is_no_trajectory(tmp_path):
    with h5py.File(tmp_path / "plain.nc", "w") as file:
        file.create_group("group")["inner"] = [1.0]
        file["matrix"] = np.eye(2)
    with pytest.raises(SchemaMismatch) as error:
        Trajectory.load(tmp_path / "plain.nc")
    assert error.value.field == "kind"


def test_steps_report_descent_and_fall_back_to_flow():
    assert Steps(331.0, 329.985).value == float(Steps(331.0, 329.985)) == 331.0
    assert float(Steps(math.nan, 329.985)) == 329.985
    assert math.isinf(float(Steps(math.inf, 70.0, status=Status.diverged)))
    assert math.isnan(float(Steps(math.nan, math.nan)))


def test_steps_have_an_interval_only_if_both_ends_are_known():
    assert Steps(5.0, 4.5).interval is None
    assert Steps(5.0, 4.5, low=4.0).interval is None
    assert Steps(5.0, 4.5, low=4.0, high=math.inf).interval == (4.0, math.inf)


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (Steps(331.0, 329.985), "331 steps"),
        (Steps(1.0, 0.4), "1 step"),
        (Steps(12345.0, 12340.2, 12000.0, 12500.0), "12,345 steps (95% interval 12,000 to 12,500)"),
        (Steps(300.0, 299.1, 280.0, math.inf), "300 steps (95% interval from 280)"),
        (Steps(math.nan, 2e6), "about 2,000,000 steps (gradient flow)"),
        (Steps(math.inf, math.inf, status=Status.not_learned), "never"),
        (Steps(math.inf, 70.0, status=Status.diverged), f"never: {Status.diverged.value}"),
        (Steps(math.nan, math.nan, status=Status.outside_theory), "unknown"),
    ],
)
def test_steps_as_text(steps, text):
    assert str(steps) == text


def test_repr_of_steps_has_all_its_numbers():
    assert repr(Steps(331.0, 329.985)) == "<Steps: 331 descent, 329.985 flow, ok>"
    assert repr(Steps(331.0, 329.985, 320, 345)) == "<Steps: 331 descent, 329.985 flow, 320 to 345, ok>"


def test_steps_are_immutable_values():
    assert Steps(5.0, 4.5, 4.0, 6.0) == Steps(5.0, 4.5, 4.0, 6.0)
    with pytest.raises(AttributeError):
        Steps(5.0, 4.5).flow = 3.0
