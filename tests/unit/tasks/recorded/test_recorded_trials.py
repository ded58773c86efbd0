"""Recorded tasks keep their trials, which nonlinear networks and training need."""

from __future__ import annotations

import numpy as np
import pytest

import learncast as lc
from learncast.tasks.recorded import streams
from learncast.tasks.recorded import trials as recorded


def recording(trials, steps=5, channels=2):
    rng = np.random.default_rng(0)
    inputs = 1.0 + rng.exponential(size=(trials, steps, channels)) * [1.0, 3.0]
    return inputs, inputs.sum(axis=1)


@pytest.mark.parametrize("trials", [8, 300], ids=["fewer trials than values", "more trials than values"])
@pytest.mark.parametrize("preprocessing", [{}, {"centre": True}, {"centre": True, "scale": "channel"}])
def test_recorded_trials_are_preprocessed_as_the_statistics(trials, preprocessing):
    inputs, targets = recording(trials)
    task = lc.Task.from_samples(inputs, targets, **preprocessing)
    stored = task.recorded_trials
    x, y = inputs, targets
    if preprocessing:
        x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    if "scale" in preprocessing:
        x = x / np.sqrt((x**2).mean(axis=(0, 1)))
    np.testing.assert_allclose(stored.inputs, x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(stored.targets[:, 0], y, rtol=1e-12, atol=1e-12)
    assert stored.present.all()
    assert stored.counted.all()
    # The moments of the stored trials are those of the task.
    np.testing.assert_allclose(
        task.cross_covariance.dense()[:, :, 0], np.einsum("ptc,po->tco", x, y) / trials, rtol=1e-9, atol=1e-12
    )


def test_trials_of_batches_are_stored():
    inputs, targets = recording(300)
    batches = [(inputs[k : k + 7], targets[k : k + 7]) for k in range(0, 300, 7)]
    stored = lc.tasks.from_batches(batches).recorded_trials
    np.testing.assert_array_equal(stored.inputs, inputs)
    np.testing.assert_array_equal(stored.targets[:, 0], targets)


def test_trials_beyond_the_memory_limit_are_not_stored(monkeypatch):
    inputs, targets = recording(300)
    for module in (recorded, streams):
        monkeypatch.setattr(module, "KEPT_MEMORY", 1000)
    assert lc.Task.from_samples(inputs, targets).recorded_trials is None
    assert lc.tasks.from_batches([(inputs, targets)]).recorded_trials is None


def test_a_memory_map_is_stored_as_it_is(tmp_path):
    inputs, targets = recording(300)
    on_disk = np.memmap(tmp_path / "inputs", dtype="float32", shape=inputs.shape, mode="w+")
    on_disk[:] = inputs
    task = lc.Task.from_samples(on_disk, targets)
    assert task.recording.source.inputs is on_disk
    np.testing.assert_allclose(task.recorded_trials.inputs, inputs, rtol=1e-6)


def test_masks_are_stored_with_the_trials():
    inputs, _ = recording(300)
    mask = np.random.default_rng(1).random((300, 5)) < 0.6
    mask[0, -1] = True
    stored = lc.Task.from_samples(inputs, inputs.cumsum(axis=1), mask=mask).recorded_trials
    np.testing.assert_array_equal(stored.counted, mask)


def test_a_mask_of_readouts_leaves_the_loss_a_mean_over_all_trials_of_one_step_too(tmp_path):
    inputs, targets = recording(40, steps=1)
    mask = np.random.default_rng(1).random((40, 1)) < 0.5
    loss = 0.5 * (targets[mask[:, 0]] ** 2).sum()
    network = lc.TwoLayer(np.zeros((2, 2)), np.ones((2, 2)))
    every = lc.Task.from_samples(inputs, targets[:, None], mask=mask)
    chosen = lc.Task.from_samples(inputs, targets, mask=mask[:, 0])
    np.savez(tmp_path / "day.npz", inputs=inputs, targets=targets[:, None], mask=mask)
    read = lc.tasks.from_file(tmp_path / "day.npz", inputs="inputs", targets="targets", mask="mask")
    for task, trials in ((every, 40), (read, 40), (chosen, mask.sum())):
        first = lc.descend(task, network, learning_rate=1e-3, steps=1).at([0])["loss"].item()
        np.testing.assert_allclose(first, loss / trials, rtol=1e-12)


def test_reversed_targets_reverse_the_stored_targets():
    inputs, targets = recording(300)
    task = lc.Task.from_samples(inputs, targets)
    np.testing.assert_array_equal(lc.tasks.reversed(task).recorded_trials.targets[:, 0], -targets)


def test_families_resamples_and_pooled_inputs_have_no_trials():
    inputs, targets = recording(300)
    task = lc.Task.from_samples(inputs, targets)
    assert lc.tasks.integration(steps=5).recorded_trials is None
    assert lc.tasks.resampled(task, np.random.default_rng(0)).recorded_trials is None
    assert lc.tasks.pooled_recording(task, 0.9).recorded_trials is None
