"""One meaning for targets and axes in every function that accepts trials."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import learncast as lc
from learncast.study import WindowStudy
from learncast.tasks import from_batches, from_file, from_pairs, from_table

torch = pytest.importorskip("torch")

N, T, C = 60, 7, 3
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, T, C))
LABELS = RNG.integers(3, size=N)
AT_STEPS = RNG.integers(3, size=(N, T))


def same(one, other):
    for key in ("input_covariance", "cross_covariance", "target_covariance"):
        np.testing.assert_allclose(getattr(one, key).dense(), getattr(other, key).dense(), atol=1e-12)


def field_of(call):
    with pytest.raises(lc.LearncastError) as error:
        call()
    return error.value.field


FORMS = {
    "int64": lambda y: y,
    "uint8": lambda y: y.astype(np.uint8),
    "negative": lambda y: y - 5,
    "huge": lambda y: y * 10**9,
    "column": lambda y: y[..., None],
    "list": lambda y: y.tolist(),
    "strings": lambda y: np.array(["a", "b", "c"])[y],
    "objects": lambda y: np.array(["a", "b", "c"], dtype=object)[y],
    "objects that are integers": lambda y: y.astype(object),
    "tensor": lambda y: torch.tensor(y),
    "column of a tensor": lambda y: torch.tensor(y)[..., None],
    "read-only": lambda y: np.broadcast_to(y, y.shape),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("at_steps", [False, True])
def test_labels_of_every_type_and_shape_are_classes(form, at_steps):
    labels = AT_STEPS if at_steps else LABELS
    task = lc.Task.from_samples(X, FORMS[form](labels))
    assert len(task.recording.classes) == 3
    same(task, lc.Task.from_samples(X, np.eye(3)[labels]))


def test_a_row_vector_holds_one_target_for_every_trial():
    same(lc.Task.from_samples(X, LABELS[None]), lc.Task.from_samples(X, LABELS))
    numbers = LABELS + 0.5
    same(lc.Task.from_samples(X, numbers[None]), lc.Task.from_samples(X, numbers))
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.Task.from_samples(X, numbers[None, 1:])
    assert caught.value.field == "targets"


def test_booleans_and_categories_are_classes():
    same(lc.Task.from_samples(X, LABELS > 0), lc.Task.from_samples(X, np.eye(2)[(LABELS > 0).astype(int)]))
    for column in (pd.Series(LABELS), pd.Series(np.array(["a", "b", "c"])[LABELS]).astype("category")):
        same(lc.Task.from_samples(X, column), lc.Task.from_samples(X, np.eye(3)[LABELS]))


def test_integers_of_several_outputs_and_floats_are_numbers():
    counts = RNG.poisson(3, size=(N, 2))
    same(lc.Task.from_samples(X, counts), lc.Task.from_samples(X, counts.astype(float)))
    assert lc.Task.from_samples(X, counts.astype(np.float32)[:, :1]).recording.classes is None
    assert lc.Task.from_samples(X.astype(int), counts).inputs == C


def test_one_float_for_each_trial_is_one_output_in_every_function(tmp_path):
    times = RNG.standard_normal(N)  # for example reaction times
    wanted = lc.Task.from_samples(X, times[:, None])
    np.savez(tmp_path / "a.npz", inputs=X, targets=times)
    tensors = torch.tensor(X), torch.tensor(times)
    for task in (
        lc.Task.from_samples(X, times), lc.Task.from_samples(X, times.tolist()), lc.Task.from_samples(*tensors),
        lc.tasks.from_data(X, times), lc.tasks.from_data((X, times)), from_file(tmp_path / "a.npz"),
        from_batches([(X[:30], times[:30]), (X[30:], times[30:])]),
    ):  # fmt: skip
        assert (task.outputs, task.recording.classes) == (1, None)
        same(task, wanted)
    assert from_pairs(X[:, 0], times).outputs == 1


def test_the_keyword_overrides_the_type():
    same(lc.Task.from_samples(X, LABELS, labels=False), lc.Task.from_samples(X, LABELS[:, None].astype(float)))
    same(lc.Task.from_samples(X, LABELS.astype(float), labels=True), lc.Task.from_samples(X, LABELS))
    same(lc.Task.from_samples(X, LABELS.astype(float), classes=3), lc.Task.from_samples(X, LABELS))
    same(lc.Task.from_samples(X, AT_STEPS, labels=False), lc.Task.from_samples(X, AT_STEPS.astype(float)))


def test_lists_of_labels_mean_the_same_for_equal_and_unequal_lengths():
    equal = lc.Task.from_samples(list(X), list(AT_STEPS))
    same(equal, lc.Task.from_samples(X, np.eye(3)[AT_STEPS]))
    lengths = np.where(np.arange(N) == 0, T - 1, T)
    x, y = ([row[:n] for row, n in zip(part, lengths, strict=True)] for part in (X, AT_STEPS))
    unequal = lc.Task.from_samples(x, y)
    assert (unequal.outputs, unequal.recording.classes) == (3, (0, 1, 2))
    same(unequal, lc.Task.from_samples(X, np.eye(3)[AT_STEPS], lengths=lengths))
    for parts in (x, list(X)):  # floats without an axis of channels: labels, or one output at every step?
        floats = [np.asarray(row[: len(part)], dtype=float) for row, part in zip(AT_STEPS, parts, strict=True)]
        assert field_of(lambda parts=parts, floats=floats: lc.Task.from_samples(parts, floats)) == "labels"


def test_lists_keep_the_widest_type():
    words = [np.array(["a"] * (T - 1)), *[np.array(["long", "b"] * T)[:T]] * (N - 1)]
    x = [X[0, : T - 1], *X[1:]]
    assert lc.Task.from_samples(x, words).recording.classes == ("a", "b", "long")
    counts = [np.zeros((T, C), dtype=int), *X[1:]]
    same(lc.Task.from_samples(counts, list(X.sum(1))), lc.Task.from_samples(np.stack(counts), X.sum(1)))


@pytest.mark.parametrize(
    ("targets", "keywords", "field"),
    [
        (np.eye(T, dtype=int)[RNG.integers(T, size=N)], {}, "labels"),  # one-hot rows, or labels at every step
        (np.arange(N), {}, "labels"),  # as many classes as trials
        (np.arange(N) % 11, {}, "labels"),  # more values than classes usually have: counts?
        ((np.arange(N) % 11)[:, None], {}, "labels"),
        (np.where(np.arange(N) == 0, 7, LABELS), {}, "labels"),  # a value that occurs once
        (X[:, 0, 0].astype(str), {}, "labels"),  # numbers as text
        (np.zeros(N, dtype=int), {}, "labels"),  # a single class
        (np.where(LABELS == 0, np.nan, LABELS), {"labels": True}, "labels"),
        (np.where(LABELS == 0, 1e300, LABELS), {"labels": True}, "labels"),
        (LABELS + 0.5, {"labels": True}, "labels"),
        (np.array(["a", None] * (N // 2), dtype=object), {}, "targets"),
        (np.array(["a", "b"] * (N // 2)), {"labels": False}, "targets"),
        (X[:, 0], {"labels": True}, "labels"),
        (X[:, 0], {"classes": 3}, "labels"),
        (LABELS + 1j, {}, "targets"),
    ],
)
def test_ambiguous_and_invalid_targets_are_refused_by_field(targets, keywords, field):
    assert field_of(lambda: lc.Task.from_samples(X, targets, **keywords)) == field


def test_one_hot_rows_and_labels_at_every_step_are_told_apart_by_a_keyword():
    rows = np.eye(T, dtype=int)[RNG.integers(T, size=N)]
    same(lc.Task.from_samples(X, rows, labels=False), lc.Task.from_samples(X, rows.astype(float)))
    assert lc.Task.from_samples(X, rows, labels=True).targets == "every_step"


def test_pairs_batches_and_files_read_labels_alike(tmp_path):
    wanted = lc.Task.from_samples(X[:, :1], np.eye(3)[LABELS])
    same(from_pairs(X[:, 0], LABELS[:, None]), wanted)
    halves = [(X[:30, :1], LABELS[:30, None]), (X[30:, :1], LABELS[30:, None])]
    same(from_batches(halves, classes=3), wanted)
    assert field_of(lambda: from_batches(halves)) == "classes"
    same(from_batches(halves, labels=False), lc.Task.from_samples(X[:, :1], LABELS[:, None].astype(float)))
    np.savez(tmp_path / "rig.npz", inputs=X[:, :1], targets=LABELS[:, None])
    same(from_file(tmp_path / "rig.npz"), wanted)
    same(from_file(tmp_path / "rig.npz", labels=False), from_batches(halves, labels=False))


def test_integers_that_may_be_counts_are_refused_by_every_interface_and_plain_labels_by_none(tmp_path):
    model, measured = Reader(11), lc.windows.Measurement(lags=(1, 2))
    network = lc.LinearRNN.aligned(recurrence=0.5, hidden_size=11, inputs=C, outputs=11)

    def of_file(counts):
        np.savez(tmp_path / "rig.npz", inputs=X, targets=counts)
        return from_file(tmp_path / "rig.npz")

    def of_table(counts):
        frame = pd.DataFrame({"trial": np.repeat(np.arange(N), T), "step": np.tile(np.arange(T), N)})
        return from_table(frame.assign(input=X[:, :, 0].ravel(), target=np.repeat(counts, T)))

    interfaces = [
        lambda y: lc.Task.from_samples(X, y),
        lambda y: lc.forecast(X, y).target,
        lambda y: lc.generalise((X, y), network, learning_rate=1e-3).task,
        lambda y: lc.training.train((X, y), network, lc.Training(1e-3), steps=1),
        lambda y: lc.window(model, torch.tensor(X).float(), y, measurement=measured),
        of_file,
        of_table,
    ]
    counts, few = np.arange(N) % 11, np.arange(N) % 10
    for ask in interfaces:
        assert field_of(lambda ask=ask: ask(counts)) == "labels"
    for ask in (interfaces[0], interfaces[1], of_file, of_table):
        assert ask(few).outputs == 10


def test_an_integer_column_of_a_table_is_read_as_an_array_is(tmp_path):
    steps = np.tile(np.arange(T), N)
    frame = pd.DataFrame({"trial": np.repeat(np.arange(N), T), "step": steps, "input": X[:, :, 0].ravel()})
    frame["target"] = np.repeat(LABELS, T)
    frame.to_csv(tmp_path / "rig.csv", index=False)
    for table in (frame, tmp_path / "rig.csv"):
        for labels in (None, True):
            same(from_table(table, labels=labels), lc.Task.from_samples(X[:, :, :1], LABELS))
        numbers = lc.Task.from_samples(X[:, :, :1], LABELS[:, None].astype(float))
        same(from_table(table, labels=False), numbers)
        same(from_file(table, labels=False) if table is not frame else from_table(table, labels=False), numbers)
    same(from_table(frame.astype({"target": float})), numbers)


@pytest.mark.parametrize(
    ("dims", "order"),
    [
        (("trial", "time", "neuron"), (0, 1, 2)),
        (("time", "trials", "Channels"), (1, 0, 2)),
        (("unit", "step", "epoch"), (2, 1, 0)),
    ],
)
def test_named_dimensions_count_and_their_order_does_not(dims, order):
    x, y = xr.DataArray(X.transpose(order), dims=dims), X.cumsum(axis=1)
    targets = xr.DataArray(y.transpose(order), dims=dims)
    same(lc.Task.from_samples(x, targets), lc.Task.from_samples(X, y))
    same(lc.Task.from_samples(x, y[:, -1]), lc.Task.from_samples(X, y[:, -1]))


def test_named_targets_are_never_ambiguous():
    rows = np.eye(T, dtype=int)[RNG.integers(T, size=N)]
    named = lc.Task.from_samples(X, xr.DataArray(rows.T, dims=("output", "trial")))
    same(named, lc.Task.from_samples(X, rows.astype(float)))
    trace = xr.DataArray(X[:, :, 0].T, dims=("time", "trial"))
    same(lc.Task.from_samples(X, trace), lc.Task.from_samples(X, X[:, :, :1]))
    same(lc.Task.from_samples(X, xr.DataArray(AT_STEPS.T, dims=("time", "trial"))), lc.Task.from_samples(X, AT_STEPS))
    mask = RNG.random((N, T)) < 0.5
    same(
        lc.Task.from_samples(X, X, mask=xr.DataArray(mask.T, dims=("time", "trial"))),
        lc.Task.from_samples(X, X, mask=mask),
    )


@pytest.mark.parametrize("dims", [("a", "b", "c"), ("trial", "time", "step"), ("x", "time", "neuron"), None])
def test_unknown_dimensions_are_refused_with_the_accepted_names(dims):
    with pytest.raises(lc.InvalidSpec) as error:
        lc.Task.from_samples(xr.DataArray(X, dims=dims), X.sum(axis=1))
    assert error.value.field == "inputs"
    assert all(word in str(error.value) for word in (*(dims or ("dim_0",)), "neuron", "trial", "time"))


def test_pairs_with_named_dimensions():
    same(from_pairs(xr.DataArray(X[:, 0].T, dims=("feature", "sample")), LABELS), from_pairs(X[:, 0], LABELS))


# --- training and windows --------------------------------------------------------------------------------------------


def read(source, **keywords):
    return lc.training.trials(source, **keywords).batch(None, (0, 0), 0, torch.float64)


@pytest.mark.parametrize("form", ["int64", "uint8", "column", "list", "tensor", "column of a tensor"])
@pytest.mark.parametrize("at_steps", [False, True])
def test_training_reads_labels_as_tasks_do(form, at_steps):
    labels = AT_STEPS if at_steps else LABELS
    found = read((X, FORMS[form](labels)))
    assert not found.numeric
    assert found.every_step == at_steps
    np.testing.assert_array_equal(found.targets.numpy(), labels)


def test_training_reads_named_dimensions_and_the_keyword():
    named = xr.DataArray(X.transpose(1, 0, 2), dims=("time", "trial", "neuron"))
    np.testing.assert_array_equal(read((named, LABELS)).inputs.numpy(), X)
    assert read((X, LABELS), labels=False).targets.shape == (N, 1)
    assert not read((X, LABELS.astype(float)), labels=True).numeric
    assert read((X, LABELS > 0)).targets.dtype == torch.int64
    assert field_of(lambda: read((X, LABELS * 10**9))) == "labels"
    assert field_of(lambda: read((X, np.where(LABELS == 0, np.nan, LABELS)), labels=True)) == "labels"
    rows = np.eye(T, dtype=int)[RNG.integers(T, size=N)]
    assert field_of(lambda: read((X, rows))) == "labels"


def test_training_statistics_have_a_class_for_every_output():
    network = lc.LinearRNN.random(C, 4, 5, scale=0.3, recurrence=0.5, rng=0)
    run = lc.training.train((X, LABELS), network, lc.Training(1e-3), steps=2)
    assert run.status.name == "ok"


class Reader(torch.nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.layer, self.readout = torch.nn.GRU(C, 4, batch_first=True), torch.nn.Linear(4, outputs)

    def forward(self, inputs):
        return self.readout(self.layer(inputs)[0])


def test_a_window_reads_labels_as_classes():
    torch.manual_seed(0)
    model, x = Reader(3), torch.tensor(X).float()
    measured = lc.windows.Measurement(lags=(1, 2))

    def window(targets, inputs=x, **keywords):
        return lc.window(model, inputs, targets, measurement=measured, **keywords).dataset

    for labels in (LABELS, AT_STEPS):
        wanted = window(np.eye(3, dtype=np.float32)[labels])
        for given in (labels, labels[..., None], labels.astype(np.uint8), torch.tensor(labels)):
            assert window(given).equals(wanted)
    named = xr.DataArray(X.transpose(1, 2, 0).astype(np.float32), dims=("time", "neuron", "trial"))
    assert window(AT_STEPS, named).equals(wanted)

    def entropy_loss(answers, labels):
        return torch.nn.functional.cross_entropy(answers[:, -1], labels, reduction="none")

    entropy = lc.windows.Measurement(lags=(1, 2), loss=entropy_loss)
    assert lc.window(model, x, LABELS, measurement=entropy).sequences == N
    assert field_of(lambda: window(LABELS + 1)) == "labels"
    assert field_of(lambda: lc.window(Reader(1), x, LABELS)) == "labels"
    one = lc.window(Reader(1), x, LABELS, labels=False, measurement=measured)
    assert one.sequences == N


@pytest.mark.parametrize("column", [False, True])
def test_the_study_of_a_window_reads_labels_as_classes(tmp_path, column):
    np.savez(tmp_path / "rig.npz", inputs=X, targets=AT_STEPS[..., None] if column else AT_STEPS)
    tables = {"task": {"data": "rig.npz"}, "window": {"sequences": 20}}
    study = WindowStudy.from_dict(tables, folder=tmp_path, source="study")
    (_, train), (_, held_out) = study.sequences()
    np.testing.assert_array_equal(np.concatenate([train, held_out]), np.eye(3)[AT_STEPS])
    np.savez(tmp_path / "rig.npz", inputs=X, targets=np.arange(AT_STEPS.size).reshape(AT_STEPS.shape) % 11)
    assert field_of(WindowStudy.from_dict(tables, folder=tmp_path, source="study").sequences) == "labels"
    tables["task"]["labels"] = True
    (_, train), _ = WindowStudy.from_dict(tables, folder=tmp_path, source="study").sequences()
    assert train.shape[2] == 11


def test_a_word_is_not_a_truth_value():
    assert field_of(lambda: lc.Task.from_samples(X, X.sum(axis=1), centre="yes")) == "centre"
