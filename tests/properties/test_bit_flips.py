"""One flipped bit in a file: the answer is unchanged, or one error is raised, and the process survives."""

from __future__ import annotations

import contextlib
import os
import shutil

import h5py
import numpy as np
import pytest
import scipy.io
import torch
import xarray as xr
from safetensors.torch import save_file

import learncast as lc
from learncast import sweep, tasks
from learncast.windows import stored_model

FEW, MANY = 4, int(os.environ.get("FLIPS", "300"))
NUMBERS = pytest.mark.parametrize("number", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])


def flipped(content: bytes, rng: np.random.Generator) -> bytes:
    changed, place = bytearray(content), int(rng.integers(len(content)))
    changed[place] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def trials(folder, suffix):
    rng = np.random.default_rng(1)
    inputs, targets = rng.standard_normal((6, 3, 2)), rng.standard_normal((6, 1))
    path = folder / f"trials{suffix}"
    if suffix == ".npz":
        np.savez_compressed(path, inputs=inputs, targets=targets)
    elif suffix == ".mat":
        scipy.io.savemat(path, {"inputs": inputs, "targets": targets}, do_compression=True)
    elif suffix == ".h5":
        with h5py.File(path, "w") as file:
            file["inputs"], file["targets"] = inputs, targets
    elif suffix == ".safetensors":
        save_file({"inputs": torch.from_numpy(inputs), "targets": torch.from_numpy(targets)}, path)
    else:
        pandas = pytest.importorskip("pandas")
        rows = [(k, t, *inputs[k, t], *targets[k]) for k in range(6) for t in range(3)]
        frame = pandas.DataFrame(rows, columns=["trial", "step", "input1", "input2", "target"])
        (frame.to_csv if suffix == ".csv" else frame.to_parquet)(path, index=False)
    return path


@NUMBERS
@pytest.mark.parametrize("suffix", [".npz", ".mat", ".h5", ".safetensors", ".csv", ".parquet"])
def test_recorded_trials(suffix, number, tmp_path):
    """Only .npz holds a checksum of its numbers. In the others, another number may be read."""
    rng, path = np.random.default_rng(2), trials(tmp_path, suffix)
    content, before = path.read_bytes(), tasks.from_file(path)
    for _ in range(number):
        path.write_bytes(flipped(content, rng))
        try:
            task = tasks.from_file(path)
        except lc.LearncastError:
            continue
        if suffix == ".npz":
            np.testing.assert_array_equal(task.input_covariance, before.input_covariance)


@NUMBERS
def test_stored_weights(number, tmp_path):
    rng, path = np.random.default_rng(3), tmp_path / "weights.pt"
    torch.save({"weight": torch.arange(6.0).reshape(2, 3)}, path)
    content = path.read_bytes()
    for _ in range(number):
        path.write_bytes(flipped(content, rng))
        model = torch.nn.Linear(3, 2, bias=False)
        with contextlib.suppress(lc.LearncastError):
            stored_model.load_checkpoint(model, None, path)


@NUMBERS
def test_a_saved_result_is_refused_or_unchanged(number, tmp_path):
    task = tasks.integration(steps=5)
    network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.01, hidden_size=3, task=task)
    saved = lc.forecast(task, network, learning_rate=1e-3).solution.at(range(5))
    rng, path = np.random.default_rng(4), saved.save(tmp_path / "run.nc")
    content = path.read_bytes()
    for _ in range(number):
        path.write_bytes(flipped(content, rng))
        try:
            loaded = lc.Trajectory.load(path)
        except lc.LearncastError:
            continue
        xr.testing.assert_identical(loaded.dataset, saved.dataset)


def squared(spec):
    return {"square": spec["x"] ** 2, "path": ("t", np.arange(3.0) * spec["x"])}


@NUMBERS
def test_a_sweep_is_refused_or_unchanged(number, tmp_path):
    rng, store = np.random.default_rng(5), tmp_path / "store"
    sweep.run(squared, {"x": [1, 2, 3, 2]}, store=store, executor="in-process")
    before, kept = sweep.gather(store), tmp_path / "kept"
    shutil.copytree(store, kept)
    files = [store / "ledger.sqlite", *sorted(store.glob("results/*/*.nc"))]
    for k in range(number):
        path = files[0] if k % 2 else files[int(rng.integers(1, len(files)))]
        path.write_bytes(flipped(path.read_bytes(), rng))
        with contextlib.suppress(lc.LearncastError):
            xr.testing.assert_identical(sweep.gather(store), before)
        for ask in (sweep.status, lambda folder: list(sweep.failures(folder)), sweep.verify):
            with contextlib.suppress(lc.LearncastError):
                ask(store)
        shutil.rmtree(store)  # `verify` may have moved a result
        shutil.copytree(kept, store)
    if number == MANY:
        return
    (store / "ledger.sqlite").unlink()
    result = files[1]
    with h5py.File(result, "a") as file:
        file["square"][...] = -file["square"][()]
    status = sweep.rebuild(store)
    assert (status.done, status.missing) == (2, 1)
    sweep.resume(store, squared, executor="in-process")
    xr.testing.assert_identical(sweep.gather(store), before)


def test_a_ledger_with_another_task_fails_its_check(tmp_path):
    import sqlite3

    sweep.run(squared, {"x": [1, 2]}, store=tmp_path, executor="in-process")
    with sqlite3.connect(tmp_path / "ledger.sqlite") as connection:
        connection.execute("UPDATE tasks SET position = 7 WHERE position = 1")
    connection.close()
    for ask in (sweep.verify, sweep.gather, lambda store: sweep.resume(store, squared, executor="in-process")):
        with pytest.raises(lc.SchemaMismatch) as error:
            ask(tmp_path)
        assert error.value.field == "store"
    assert sweep.rebuild(tmp_path).done == 2
    assert (tmp_path / "ledger.sqlite.old-1").is_file()


def test_removing_the_lock_file_admits_no_second_driver(tmp_path):
    from learncast.sweep import store

    sweep.run(squared, {"x": [1]}, store=tmp_path, executor="in-process")
    with store.Store(tmp_path).locked():
        (tmp_path / "lock").unlink()
        with pytest.raises(lc.InvalidSpec) as error:
            sweep.run(squared, {"x": [1]}, store=tmp_path, executor="in-process")
        assert error.value.field == "store"
