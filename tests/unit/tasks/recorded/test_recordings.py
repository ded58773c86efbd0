"""Recorded trials: labels, masks, lengths, tables, files and studies, and what is refused."""

from __future__ import annotations

import tomllib
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io

import learncast as lc
from learncast import InvalidSpec, Task, tasks
from learncast.study import Study
from learncast.tasks import from_batches, from_file, from_pairs, from_table

EXAMPLES = Path(__file__).parents[4] / "examples"


def refused(call):
    """The field of the InvalidSpec that a call raises."""
    with pytest.raises(InvalidSpec) as caught:
        call()
    return caught.value.field


def message(call):
    """The message of the InvalidSpec that a call raises."""
    with pytest.raises(InvalidSpec) as caught:
        call()
    return str(caught.value)


@pytest.fixture
def trials():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(40, 5, 3))
    return x, x.sum(axis=1)[:, :2] + rng.normal(size=(40, 2)), rng.integers(3, size=40)


def assert_same(one, other):
    for key in ("input_covariance", "cross_covariance", "target_covariance"):
        # the same numbers in the same order
        np.testing.assert_array_equal(getattr(one, key).dense(), getattr(other, key).dense())
    assert one.trials == other.trials


# --- labels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["integers", "words", "tensor", "floats declared as labels"])
def test_labels_are_one_hot_targets(trials, form):
    x, _, labels = trials
    given = {
        "integers": labels.astype(np.uint8),
        "words": np.array(["left", "middle", "right"])[labels],
        "tensor": pytest.importorskip("torch").tensor(labels),
        "floats declared as labels": labels.astype(float),
    }[form]
    task = Task.from_samples(x, given, labels=True if form.startswith("floats") else None)
    assert_same(task, Task.from_samples(x, np.eye(3)[labels]))
    assert task.recording.classes == (("left", "middle", "right") if form == "words" else (0, 1, 2))
    assert "3 classes" in task.recording.sentences(40)[0]


def test_labels_at_every_step_and_classes_that_do_not_occur(trials):
    x, _, _ = trials
    labels = np.random.default_rng(0).integers(3, size=(40, 5))
    task = Task.from_samples(x, labels, labels=True, classes=4)
    assert_same(task, Task.from_samples(x, np.eye(4)[labels]))
    named = Task.from_samples(x, labels, labels=True, classes=[2, 1, 0])
    assert_same(named, Task.from_samples(x, np.eye(3)[2 - labels]))


def test_labels_that_do_not_count_may_have_any_value(trials):
    x, _, _ = trials
    labels = np.random.default_rng(0).integers(3, size=(40, 5))
    mask = np.random.default_rng(1).random((40, 5)) < 0.5
    task = Task.from_samples(x, np.where(mask, labels, -100), labels=True, mask=mask)
    assert_same(task, Task.from_samples(x, np.eye(3)[labels], mask=mask))
    assert task.recording.classes == (0, 1, 2)


def test_lists_of_labels_at_every_step(trials):
    x, _, _ = trials
    lengths = np.random.default_rng(2).integers(2, 6, size=40)
    labels = np.random.default_rng(0).integers(3, size=(40, 5))
    listed = Task.from_samples(
        [row[:n] for row, n in zip(x, lengths, strict=True)],
        [row[:n] for row, n in zip(labels, lengths, strict=True)],
        classes=3,
    )
    assert_same(listed, Task.from_samples(x, labels, labels=True, classes=3, lengths=lengths))


def test_batches_and_pairs_of_labels(trials):
    x, _, labels = trials
    batches = [(x[:15], labels[:15]), (x[15:], labels[15:])]
    assert_same(from_batches(batches, classes=3), Task.from_samples(x, np.eye(3)[labels]))
    assert from_batches(batches, classes=3).recording.classes == (0, 1, 2)
    assert_same(from_pairs(x[:, 0], labels), from_pairs(x[:, 0], np.eye(3)[labels]))


@pytest.mark.parametrize("number", [40, 12])
def test_batches_are_scaled(trials, number):
    x, y = trials[0][:number], trials[1][:number]
    batches = [(x[:7], y[:7]), (x[7:], y[7:])]
    one = from_batches(batches, centre=True, scale="channel")
    other = Task.from_samples(x, y, centre=True, scale="channel")
    for key in ("input_covariance", "cross_covariance", "target_covariance"):
        np.testing.assert_allclose(getattr(one, key).dense(), getattr(other, key).dense(), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(one.recording.input_mean, x.mean(axis=0), atol=1e-14)


def test_a_constant_channel_is_not_scaled(trials):
    x, y, _ = trials
    x = np.concatenate([x, np.full((40, 5, 1), 0.1)], axis=2)
    task = Task.from_samples(x, y, centre=True, scale="channel")
    assert task.recording.scales[3] == 1
    assert np.abs(task.input_covariance.dense()[:, 3]).max() < 1e-30  # round-off is not amplified


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keywords", "field"),
    [
        ({"scale": "row"}, "scale"),
        ({"mask": np.ones(39)}, "mask"),
        ({"mask": np.full(40, 0.5)}, "mask"),
        ({"mask": np.arange(40) == 3}, "inputs"),  # one trial left
        ({"mask": np.ones((40, 5))}, "mask"),  # targets at the end
        ({"lengths": np.full(40, 6)}, "lengths"),
        ({"lengths": np.full(39, 5)}, "lengths"),
        ({"labels": True}, "labels"),
    ],
)
def test_invalid_keywords_are_refused_by_name(trials, keywords, field):
    x, y, _ = trials
    assert refused(lambda: Task.from_samples(x, y, **keywords)) == field


def test_a_missing_number_is_reported_by_its_index_of_trial_step_and_channel(trials):
    x, y, _ = (np.array(part) for part in trials)
    x[7, 2, 1] = np.nan
    assert "(7, 2, 1)" in message(lambda: Task.from_samples(x, y))
    keep = np.arange(40) > 3
    assert "(7, 2, 1)" in message(lambda: Task.from_samples(x, y, mask=keep))
    assert "(7, 2, 1)" in message(lambda: Task.from_samples(x, y, chunk=2))
    y[9, 1] = np.inf
    assert "(9, 1)" in message(lambda: Task.from_samples(np.zeros_like(x), y))
    lengths = np.where(np.arange(40) == 7, 2, 5)
    assert Task.from_samples(x, np.ones((40, 2)), lengths=lengths).trials == 40  # after the trial's end


@pytest.mark.parametrize(
    ("labels", "keywords", "field"),
    [
        (np.arange(40) % 3, {"classes": 2}, "classes"),
        (np.arange(40) % 3, {"classes": [0, 0, 1]}, "classes"),
        (np.arange(39) % 3, {}, "targets"),
        (np.linspace(0, 1, 40), {"labels": True}, "labels"),
    ],
)
def test_invalid_labels_are_refused_by_name(trials, labels, keywords, field):
    assert refused(lambda: Task.from_samples(trials[0], labels, **keywords)) == field


def test_strings_of_a_pandas_column_are_labels(trials):
    words = pd.Series(["left", "right"] * 20)
    for column in (words, words.astype("category"), words.to_numpy(dtype=object)):
        task = Task.from_samples(trials[0][:40], column)
        assert task.recording.classes == ("left", "right")


def test_masked_entries_of_a_masked_array_are_missing(trials):
    x, y, _ = trials
    hidden = np.ma.masked_array(np.where(np.arange(y.size).reshape(y.shape) == 3, 1e9, y))
    hidden[hidden == 1e9] = np.ma.masked
    assert refused(lambda: Task.from_samples(x, hidden)) == "targets"
    counts = ~np.ma.getmaskarray(hidden).any(axis=1)
    found, plain = Task.from_samples(x, hidden, mask=counts), Task.from_samples(x[counts], y[counts])
    np.testing.assert_allclose(found.cross_covariance.dense(), plain.cross_covariance.dense(), rtol=1e-12)


def test_invalid_lists_are_refused_by_name(trials):
    x, y, _ = trials
    rows = [row[:3] for row in x]
    assert refused(lambda: Task.from_samples([rows[0], rows[1][:, :2]], y[:2])) == "inputs"
    assert refused(lambda: Task.from_samples(rows, [np.ones((4, 2))] * 40)) == "targets"
    assert refused(lambda: Task.from_samples(rows, y, lengths=np.full(40, 3))) == "lengths"
    assert refused(lambda: Task.from_samples(x, x, mask=np.zeros((40, 5), dtype=bool))) == "mask"


# --- tables ----------------------------------------------------------------------------------------------------------


def long_table(x, y, lengths, **columns):
    rows = [
        {"trial": p, "step": t, "input_a": x[p, t, 0], "input_b": x[p, t, 1], "target": y[p, t, 0]}
        | {name: values[p] for name, values in columns.items()}
        for p in range(len(x))
        for t in range(lengths[p])
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("at", ["end", "every_step"])
def test_a_table_of_unequal_trials(trials, tmp_path, suffix, at):
    x = trials[0]
    y = np.cumsum(x, axis=1)
    lengths = np.random.default_rng(1).integers(1, 6, size=40)
    frame = long_table(x, y, lengths)
    path = tmp_path / f"rig.{suffix}"
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    targets = y[:, :, :1] if at == "every_step" else y[np.arange(40), lengths - 1, :1]
    assert_same(from_table(path, at=at), Task.from_samples(x[:, :, :2], targets, lengths=lengths))


def test_a_table_with_labels_and_a_mask(trials, tmp_path):
    x, _, labels = trials
    keep = np.arange(40) % 4 > 0
    frame = long_table(x, x, np.full(40, 5), labels=np.array(["no", "so", "go"])[labels], valid=keep.astype(int))
    frame.loc[frame["trial"] == 0, "input_a"] = np.nan  # a trial that does not count may have gaps
    frame = frame.drop(columns="target")
    frame.to_csv(tmp_path / "rig.csv", index=False)
    wanted = Task.from_samples(x[:, :, :2], np.array(["no", "so", "go"])[labels], mask=keep)
    for found in (from_table(frame, mask="valid"), from_table(tmp_path / "rig.csv", labels="labels", mask="valid")):
        assert_same(found, wanted)
        assert found.recording.classes == ("go", "no", "so")
    both = frame.assign(target=1.0)
    assert refused(lambda: from_table(both, labels="labels", targets="target")) == "labels"
    frame.loc[7, "labels"] = None
    assert refused(lambda: from_table(frame.assign(valid=1, input_a=0.0), at="every_step")) == "labels"


def test_integer_labels_of_a_text_file_are_integers(trials, tmp_path):
    x, _, labels = trials
    long_table(x, x, np.full(40, 5), labels=8 + labels).drop(columns="target").to_csv(tmp_path / "rig.csv", index=False)
    assert from_file(tmp_path / "rig.csv").recording.classes == (8, 9, 10)


# --- files -----------------------------------------------------------------------------------------------------------


def write_mat73(path, **arrays):
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in arrays.items():
            file[name] = np.asarray(values).T  # MATLAB's order


@pytest.mark.parametrize("kind", ["npz", "npz compressed", "mat", "mat, compressed", "mat 7.3", "npy", "safetensors"])
def test_arrays_of_any_name(trials, tmp_path, kind):
    x, y, _ = trials
    keep = np.arange(40) % 3 > 0
    arrays = {"spikes": x, "choice": y, "valid": keep.astype(np.uint8)}
    names = {"inputs": "spikes", "targets": "choice", "mask": "valid"}
    path = tmp_path / f"rig.{kind.split()[0].strip(',')}"
    if kind.startswith("npz"):
        (np.savez_compressed if "compressed" in kind else np.savez)(path, **arrays)
    elif kind == "mat 7.3":
        write_mat73(path, **arrays)
    elif kind.startswith("mat"):
        scipy.io.savemat(path, arrays, do_compression="compressed" in kind)
    elif kind == "safetensors":
        pytest.importorskip("safetensors.numpy").save_file(arrays, path)
    else:
        for name, values in arrays.items():
            np.save(tmp_path / f"{name}.npy", values)
        path, names = tmp_path / "spikes.npy", {"targets": "choice.npy", "mask": "valid.npy"}
    assert_same(from_file(path, **names), Task.from_samples(x, y, mask=keep))


def test_default_names_labels_and_lengths(trials, tmp_path):
    x, y, labels = trials
    lengths = np.random.default_rng(1).integers(1, 6, size=40)
    np.savez(tmp_path / "rig.npz", inputs=x, labels=labels, lengths=lengths, targets_of_others=y)
    assert_same(from_file(tmp_path / "rig.npz"), Task.from_samples(x, labels, lengths=lengths))
    scipy.io.savemat(tmp_path / "rig.mat", {"inputs": x, "labels": labels[:, None].astype(float), "lengths": lengths})
    assert_same(from_file(tmp_path / "rig.mat"), Task.from_samples(x, labels, lengths=lengths))


@pytest.mark.parametrize("version", ["7", "7.3"])
def test_cells_are_trials_of_their_own_length(trials, tmp_path, version):
    x, y, _ = trials
    lengths = np.random.default_rng(1).integers(2, 6, size=40)
    cut = [row[:n] for row, n in zip(x, lengths, strict=True)]
    path = tmp_path / "rig.mat"
    if version == "7":
        cells = np.empty((1, 40), dtype=object)
        for k, trial in enumerate(cut):
            cells[0, k] = trial
        scipy.io.savemat(path, {"spikes": cells, "choice": y})
    else:
        with h5py.File(path, "w") as file:
            references = [file.create_dataset(f"#refs#/{k}", data=trial.T).ref for k, trial in enumerate(cut)]
            file.create_dataset("spikes", data=np.array(references, dtype=h5py.ref_dtype)[:, None])
            file["choice"] = y.T
    assert_same(from_file(path, inputs="spikes", targets="choice"), Task.from_samples(cut, y))


@pytest.mark.parametrize("suffix", [".h5", ".hdf5", ".nwb"])
def test_arrays_of_hdf5_by_their_place(trials, tmp_path, suffix):
    x, y, _ = trials
    path = tmp_path / f"rig{suffix}"
    with h5py.File(path, "w") as file:
        file["processing/rates/data"], file["choice"] = x, y
        file["session"] = "words"
        file["linked"], file["elsewhere"] = h5py.SoftLink("/choice"), h5py.ExternalLink("other.h5", "/a")
        file["around/again"] = file["processing"]  # groups may hold each other
        file["processing/back"] = file["around"]
    found = from_file(path, inputs="processing/rates/data", targets="choice")
    assert_same(found, Task.from_samples(x, y))
    assert "choice, processing/rates/data" in message(lambda: from_file(path, inputs="linked", targets="choice"))
    with pytest.raises(InvalidSpec):
        from_file(path, inputs="processing/rates/data", targets="choice", most_bytes=100)


def test_pairs_in_a_file(trials, tmp_path):
    x, y, _ = trials
    np.savez(tmp_path / "pairs.npz", inputs=x[:, 0], targets=y)
    assert_same(from_file(tmp_path / "pairs.npz", centre=True), from_pairs(x[:, 0], y, centre=True))


def test_large_arrays_are_refused_before_they_are_read(trials, tmp_path):
    x, y, _ = trials
    np.savez_compressed(tmp_path / "bomb.npz", inputs=np.zeros((1000, 100, 30)), targets=np.zeros((1000, 1)))
    assert (tmp_path / "bomb.npz").stat().st_size < 10**5
    assert "'inputs'" in message(lambda: from_file(tmp_path / "bomb.npz", most_bytes=10**6))
    scipy.io.savemat(tmp_path / "rig.mat", {"inputs": x, "targets": y})
    write_mat73(tmp_path / "new.mat", inputs=x, targets=y)
    np.save(tmp_path / "inputs.npy", x)
    (tmp_path / "rig.csv").write_text("trial,step,input,target\n" * 200)
    for name in ("rig.mat", "new.mat", "inputs.npy", "rig.csv"):
        assert "0.977 KiB" in message(lambda name=name: from_file(tmp_path / name, most_bytes=1000))


def test_large_cells_are_refused_before_they_are_read(tmp_path):
    """MATLAB files do not declare the sizes of cells, which may be compressed or refer to one array many times."""
    cells = np.empty((1, 3), dtype=object)
    for k in range(3):
        cells[0, k] = np.zeros((100, 2000))
    scipy.io.savemat(tmp_path / "rig.mat", {"inputs": cells, "targets": np.ones((3, 1))}, do_compression=True)
    assert (tmp_path / "rig.mat").stat().st_size < 10**5
    with h5py.File(tmp_path / "new.mat", "w") as file:
        one = file.create_dataset("#refs#/one", (10**4, 10), "f8", chunks=True).ref
        file.create_dataset("inputs", data=np.array([one] * 5, dtype=h5py.ref_dtype)[:, None])
        file["targets"] = np.ones((1, 5))
    for name, most in {"rig.mat": 10**6, "new.mat": 3 * 10**6}.items():
        assert "'inputs'" in message(lambda n=name, m=most: from_file(tmp_path / n, most_bytes=m))
    assert from_file(tmp_path / "rig.mat", most_bytes=10**8).recording is not None


def test_a_header_that_declares_too_much_is_refused(tmp_path):
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 5, 2), }"
    header += b" " * (118 - len(header) - 1) + b"\n"
    with zipfile.ZipFile(tmp_path / "liar.npz", "w") as archive:
        for name in ("inputs", "targets"):
            archive.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + header + bytes(80))
    assert "liar.npz" in message(lambda: from_file(tmp_path / "liar.npz"))


@pytest.mark.parametrize(
    ("keywords", "field"),
    [
        ({"inputs": "spike"}, "inputs"),
        ({"inputs": ["spikes", "choice"]}, "inputs"),
        ({"inputs": "spikes"}, "inputs"),
        ({"inputs": "spikes", "targets": "choice", "step": "t"}, "step"),
    ],
)
def test_invalid_names_of_arrays_are_refused(trials, tmp_path, keywords, field):
    np.savez(tmp_path / "rig.npz", spikes=trials[0], choice=trials[1])
    assert refused(lambda: from_file(tmp_path / "rig.npz", **keywords)) == field


@pytest.mark.parametrize("name", ["inputs.npy", "session.nwb", "session.tdms", "torn.mat"])
def test_pickles_damaged_files_and_other_kinds_are_refused_by_name(tmp_path, name):
    (tmp_path / name).write_bytes(b"MATLAB 5.0 MAT-file, or so" if name == "torn.mat" else b"")
    if name == "inputs.npy":
        np.save(tmp_path / name, np.array([1, None], dtype=object), allow_pickle=True)
    assert name in message(lambda: from_file(tmp_path / name))


# --- in a study ------------------------------------------------------------------------------------------------------

STUDY = """
[network]
hidden_size = 6
{network}
[training]
learning_rate = 1e-3
[target]
data = "rig.npz"
{target}
"""


def study(tmp_path, target="", network=""):
    (tmp_path / "study.toml").write_text(STUDY.format(target=target, network=network))
    return Study.load(tmp_path / "study.toml")


def test_a_study_names_arrays_and_what_is_done_to_them(trials, tmp_path):
    x, _, labels = trials
    keep = np.arange(40) % 3 > 0
    np.savez(tmp_path / "rig.npz", spikes=x, choice=labels, valid=keep)
    found = study(
        tmp_path,
        'inputs = "spikes"\nlabels = "choice"\nclasses = 4\nmask = "valid"\ncentre = true\nscale = "channel"\n',
    )
    wanted = Task.from_samples(x, np.eye(4)[labels], mask=keep, centre=True, scale="channel")
    assert_same(found.target, wanted)
    again = Study.from_dict(tomllib.loads(found.resolved()), folder=Path("/"), source="resolved")
    assert again.target.hash == found.target.hash
    assert again.network.hash == found.network.hash
    words = message(lambda: study(tmp_path, 'inputs = "spikes"\nlabels = "choice"\nmost_bytes = 100\n'))
    assert "study.toml, [target]" in words
    assert "'spikes'" in words


@pytest.mark.parametrize("scale", ["0.3", '"torch"'])
@pytest.mark.parametrize("recurrence", ["0.5", '"random"'])
def test_a_study_starts_at_random(trials, tmp_path, scale, recurrence):
    np.savez(tmp_path / "rig.npz", inputs=trials[0], targets=trials[1])
    found = study(tmp_path, network=f'initial = "random"\nscale = {scale}\nseed = 3\nrecurrence = {recurrence}\n')
    values = [float(v) if v[0] != '"' else v.strip('"') for v in (scale, recurrence)]
    assert found.network.hash == lc.LinearRNN.random(3, 6, 2, scale=values[0], recurrence=values[1], rng=3).hash
    again = Study.from_dict(tomllib.loads(found.resolved()), folder=Path("/"), source="resolved")
    assert again.network.hash == found.network.hash


@pytest.mark.parametrize(
    "network",
    [
        "scale = 0.1\n",
        "seed = 1\n",
        'initial = "random"\noutput_initial = 0.1\n',
        'recurrence = "random"\n',
        'initial = "randm"\n',
        'initial = "random"\nscale = 0\n',
    ],
)
def test_a_study_with_an_inconsistent_start_is_refused(trials, tmp_path, network):
    np.savez(tmp_path / "rig.npz", inputs=trials[0], targets=trials[1])
    with pytest.raises(InvalidSpec):
        study(tmp_path, network=network)


def test_the_digits_of_the_example_are_those_of_scikit_learn():
    datasets = pytest.importorskip("sklearn.datasets")
    found = Study.load(EXAMPLES / "sequential_digits.toml")
    images, labels = datasets.load_digits().images / 16, datasets.load_digits().target
    assert_same(found.target, Task.from_samples(images, labels, centre=True))
    easy, hard = found.candidates
    assert (easy.trials + hard.trials, easy.outputs, hard.outputs) == (1797, 10, 10)
    shares = [tasks.summary(task, recurrence=0.9).explained for task in (easy, hard)]
    assert shares[0] > shares[1]


# --- odd data --------------------------------------------------------------------------------------------------------


def test_a_duplicate_target_is_learned_as_one(trials):
    """The second mode has round-off strength only, and must not count."""
    x, y, _ = trials
    task = Task.from_samples(x, np.stack([y[:, 0], y[:, 0]], axis=1))
    once = Task.from_samples(x, np.sqrt(2) * y[:, :1])
    steps = []
    for one in (task, once):
        network = lc.LinearRNN.aligned(task=one, hidden_size=4)
        forecast = lc.forecast(one, network, goal=lc.Accuracy(0.9), learning_rate=1e-3, strict=False)
        steps.append(forecast.steps.flow)
    np.testing.assert_allclose(*steps, rtol=1e-9)
