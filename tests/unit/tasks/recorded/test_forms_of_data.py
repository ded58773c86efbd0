"""The same trials in every form that laboratories store give the same task."""

import itertools

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io
import xarray as xr

import learncast as lc

RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(30, 6, 4)), RNG.normal(size=(30, 2))
PLAIN = lc.Task.from_samples(X, Y)


def assert_same(task, other=PLAIN):
    for part in ("input_covariance", "cross_covariance", "target_covariance"):
        np.testing.assert_allclose(getattr(task, part).dense(), getattr(other, part).dense(), rtol=1e-12, atol=1e-13)


def test_netcdf_is_read_by_the_names_of_its_dimensions(tmp_path):
    data = xr.Dataset(
        {
            "rates": (("time", "neuron", "trial"), X.transpose(1, 2, 0)),
            "movement": (("output", "trial"), Y.T),
        }
    )
    data.to_netcdf(tmp_path / "day.nc")
    assert_same(lc.tasks.from_file(tmp_path / "day.nc", inputs="rates", targets="movement"))
    assert_same(lc.tasks.from_data(data, inputs="rates", targets="movement"))


@pytest.mark.parametrize(
    ("axes", "order", "flipped"),
    [("time trial channel", (1, 0, 2), False), ("neurons, bins, trials", (2, 1, 0), True)],
)
def test_plain_arrays_may_have_their_axes_in_any_order(axes, order, flipped):
    assert_same(lc.tasks.from_data(X.transpose(order), Y.T if flipped else Y, axes=axes))


@pytest.mark.parametrize("axes", ["time trial", "trial trial channel", "a b c"])
def test_axes_must_name_every_axis_once(axes):
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.tasks.from_data(X, Y, axes=axes)
    assert caught.value.field == "axes"


def tidy(seconds=0.02):
    trial, step, channel = np.meshgrid(np.arange(30), np.arange(6), np.arange(4), indexing="ij")
    columns = {"trial": trial, "time": -0.1 + seconds * step, "channel": channel, "value": X}
    frame = pd.DataFrame({key: part.ravel() for key, part in columns.items()})
    frame["channel"] = "unit" + frame["channel"].astype(str)
    for k in range(2):
        frame[f"target{k}"] = Y[frame["trial"], k]
    return frame


def test_a_tidy_table_with_time_in_seconds(tmp_path):
    shuffled = tidy().sample(frac=1.0, random_state=0)
    assert_same(lc.tasks.from_table(shuffled))
    shuffled.to_csv(tmp_path / "tidy.csv", index=False)
    assert_same(lc.tasks.from_file(tmp_path / "tidy.csv"))
    shuffled.to_csv(tmp_path / "tidy.tsv", index=False, sep="\t")
    assert_same(lc.forecast(tmp_path / "tidy.tsv", learning_rate=1e-3, strict=False).target)


def test_a_wide_table_with_time_in_seconds_must_be_evenly_sampled():
    frame = tidy()
    wide = frame.pivot(index=["trial", "time", "target0", "target1"], columns="channel", values="value").reset_index()
    names = [f"unit{k}" for k in range(4)]
    assert_same(lc.tasks.from_table(wide, inputs=names))
    wide.loc[3, "time"] += 0.009
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.tasks.from_table(wide, inputs=names)
    assert caught.value.field == "time"


def test_two_values_of_one_channel_are_refused():
    frame = tidy()
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.tasks.from_table(pd.concat([frame, frame.iloc[:1]]))
    assert caught.value.field == "channel"


def test_missing_values_are_filled_only_when_asked():
    x = X.copy()
    x[0, 0, 1], x[4, 2:4, 3] = np.nan, np.nan
    with pytest.raises(lc.InvalidSpec):
        lc.tasks.from_data(x, Y)
    zero, hold = np.nan_to_num(x), np.nan_to_num(x)
    hold[4, 2:4, 3] = x[4, 1, 3]
    kept = ~np.isin(np.arange(30), [0, 4])
    assert_same(lc.tasks.from_data(x, Y, fill="zero"), lc.Task.from_samples(zero, Y))
    assert_same(lc.tasks.from_data(x, Y, fill="hold"), lc.Task.from_samples(hold, Y))
    assert_same(lc.tasks.from_data(x, Y, fill="drop"), lc.Task.from_samples(X[kept], Y[kept]))


LENGTHS = np.random.default_rng(5).integers(3, 7, len(X))


def test_trials_left_out_for_missing_values_leave_out_their_mask_and_length():
    x = np.where((np.arange(6) < LENGTHS[:, None])[:, :, None], X, np.nan)  # missing after the end of a trial
    x[[0, 4], 1, 2] = np.nan
    kept, counts = ~np.isin(np.arange(30), [0, 4]), np.arange(30) != 7
    short = {"lengths": LENGTHS[kept]}
    assert_same(
        lc.Task.from_samples(x, Y, fill="drop", lengths=LENGTHS), lc.Task.from_samples(X[kept], Y[kept], **short)
    )
    assert_same(
        lc.Task.from_samples(x, Y, fill="drop", lengths=LENGTHS, mask=counts),
        lc.Task.from_samples(X[kept & counts], Y[kept & counts], lengths=LENGTHS[kept & counts]),
    )


def test_targets_that_do_not_count_may_be_missing_in_a_trial_that_is_kept():
    every = np.cumsum(X[:, :, :2], axis=1)
    mask = np.random.default_rng(6).random((30, 6)) < 0.7
    holes = np.where(mask[:, :, None], every, np.nan)
    holes[3, mask[3].argmax()] = np.nan
    kept = np.arange(30) != 3
    assert_same(
        lc.Task.from_samples(X, holes, fill="drop", mask=mask),
        lc.Task.from_samples(X[kept], every[kept], mask=mask[kept]),
    )


@pytest.mark.parametrize("fill", ["zero", "hold", "drop"])
def test_gaps_in_trials_of_different_length_are_filled_as_in_padded_arrays(fill):
    x = X.copy()
    x[0, 1, 2] = np.nan
    listed = lc.Task.from_samples([one[:n] for one, n in zip(x, LENGTHS, strict=True)], Y, fill=fill)
    assert_same(listed, lc.Task.from_samples(x, Y, lengths=LENGTHS, fill=fill))


def labelled(order):
    """Targets of the trials in this order, which their labels state."""
    return xr.DataArray(Y[order], dims=("trial", "output"), coords={"trial": np.asarray(order)})


def test_data_that_label_their_trials_in_another_order_are_refused():
    x = xr.DataArray(X, dims=("trial", "time", "neuron"), coords={"trial": np.arange(30)})
    frame = pd.DataFrame(X[:, 0])
    shuffled = pd.DataFrame(Y).sample(frac=1.0, random_state=0)
    assert_same(lc.Task.from_samples(x, labelled(range(30))))
    for inputs, targets in [(x, labelled(range(29, -1, -1))), (frame, shuffled), (frame[5:], pd.DataFrame(Y)[3:-2])]:
        for ask in (lc.tasks.from_data, lc.forecast):
            with pytest.raises(lc.InvalidSpec) as caught:
                ask(inputs, targets)
            assert caught.value.field == "targets"
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.Task.from_samples(x, Y, mask=xr.ones_like(labelled(range(29, -1, -1))[:, 0]))
    assert caught.value.field == "mask"


def test_the_default_index_of_pandas_labels_no_trials():
    frame = pd.DataFrame(X[:, 0])[::2]  # rows 0, 2, 4, ...
    assert_same(lc.tasks.from_data(frame, pd.DataFrame(Y[::2])), lc.tasks.from_data(X[::2, 0], Y[::2]))


def test_missing_cells_of_a_table_are_filled_only_when_asked():
    frame = tidy()
    frame.loc[5, "value"] = np.nan
    with pytest.raises(lc.InvalidSpec):
        lc.tasks.from_table(frame)
    zero = X.copy()
    zero[0, 1, 1] = 0.0
    assert_same(lc.tasks.from_table(frame, fill="zero"), lc.Task.from_samples(zero, Y))


def test_matlab_structs_by_field(tmp_path):
    scipy.io.savemat(tmp_path / "one.mat", {"session": {"rates": X, "hand": Y}})
    assert_same(lc.tasks.from_file(tmp_path / "one.mat", inputs="session.rates", targets="session.hand"))
    with h5py.File(tmp_path / "two.mat", "w") as file:
        file["session/rates"], file["session/hand"] = X.T, Y.T
    assert_same(lc.tasks.from_file(tmp_path / "two.mat", inputs="session.rates", targets="session.hand"))


def test_an_array_of_matlab_structs_has_one_trial_in_each(tmp_path):
    trials = np.zeros((1, 30), dtype=[("rates", object)])
    for k in range(30):
        trials[0, k]["rates"] = X[k]
    scipy.io.savemat(tmp_path / "trials.mat", {"trials": trials, "hand": Y})
    assert_same(lc.tasks.from_file(tmp_path / "trials.mat", inputs="trials.rates", targets="hand"))


def test_a_bias_is_an_input_that_is_always_one():
    ones = np.concatenate([X, np.ones((30, 6, 1))], axis=2)
    assert_same(lc.tasks.from_data(X, Y, bias=True), lc.Task.from_samples(ones, Y))
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.tasks.from_data(X, Y, bias=True, centre=True)
    assert caught.value.field == "bias"


def test_a_recording_is_cut_into_trials_around_events(tmp_path):
    rng = np.random.default_rng(0)
    signal, events = rng.normal(size=(5000, 3)), np.arange(30) * 0.15 + 0.2
    options = {"rate": 1000.0, "window": (-0.1, 0.02), "bin_width": 0.02}
    cut = lc.tasks.cut_trials(signal, events, **options)
    by_hand = [[signal[round(1000 * (e - 0.1)) + 20 * b :][:20].mean(axis=0) for b in range(6)] for e in events]
    np.testing.assert_allclose(cut, by_hand, rtol=1e-12)
    with h5py.File(tmp_path / "day.nwb", "w") as file:
        file["acquisition/lfp/data"], file["intervals/trials/start_time"], file["hand"] = signal, events, Y
    names = {"inputs": "acquisition/lfp/data", "events": "intervals/trials/start_time", "targets": "hand"}
    assert_same(lc.tasks.from_file(tmp_path / "day.nwb", **names, **options), lc.Task.from_samples(cut, Y))
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.tasks.cut_trials(signal, [4.99], **options)
    assert caught.value.field == "events"


def test_words_are_labels_of_trials_unless_they_name_columns():
    words = ["left", "right"] * 15
    assert lc.tasks.from_data(X, words).recording.classes == ("left", "right")
    frame = pd.DataFrame(X[:, 0], columns=list("abcd"))
    assert lc.tasks.from_data(frame, words).outputs == 2
    assert_same(lc.tasks.from_data(frame, Y), lc.Task.from_samples(X[:, :1], Y))


def test_a_target_column_of_words_is_read_as_classes():
    rows = [(k, step, *X[k, step], ("left", "right")[k % 2]) for k in range(30) for step in range(6)]
    frame = pd.DataFrame(rows, columns=["trial", "step", *"abcd", "choice"])
    task = lc.tasks.from_data(frame, inputs=list("abcd"), targets="choice")
    assert_same(task, lc.Task.from_samples(X, np.arange(30) % 2))
    assert task.recording.classes == ("left", "right")
    for wrong in ({"targets": "choice", "labels": False}, {"targets": "a", "inputs": ["choice"]}):
        with pytest.raises(lc.InvalidSpec) as caught:
            lc.tasks.from_data(frame, **{"inputs": list("abcd"), **wrong})
        assert caught.value.field == "choice"
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.tasks.from_data(frame.assign(choice=frame.choice.where(frame.trial > 3, "2")), inputs="a", targets="choice")
    assert caught.value.field == "choice"


def test_a_data_set_names_the_variables_that_it_has():
    data = xr.Dataset({"rates": (("trial", "time", "neuron"), X), "reach": (("trial", "output"), Y)})
    assert_same(lc.tasks.from_data(data, inputs="rates", targets="reach"), lc.Task.from_samples(X, Y))
    for names in ({}, {"inputs": "rate", "targets": "reach"}):
        with pytest.raises(lc.InvalidSpec) as caught:
            lc.tasks.from_data(data, **names)
        assert caught.value.field == "data"


def test_trials_are_averaged_over_longer_steps_when_asked(tmp_path):
    every = RNG.normal(size=(30, 6, 2))
    pairs, targets = X.reshape(30, 3, 2, 4).mean(axis=2), every.reshape(30, 3, 2, 2).mean(axis=2)
    assert_same(lc.tasks.from_data(X, Y, rate=50, bin_width=0.04), lc.Task.from_samples(pairs, Y))
    assert_same(lc.tasks.from_data(X, every, rate=50, bin_width=0.04), lc.Task.from_samples(pairs, targets))
    np.savez(tmp_path / "day.npz", inputs=X, targets=Y)
    assert_same(lc.tasks.from_file(tmp_path / "day.npz", rate=50, bin_width=0.04), lc.Task.from_samples(pairs, Y))
    uneven = np.stack([X[:, :2].mean(axis=1), X[:, 2], X[:, 3:5].mean(axis=1), X[:, 5]], axis=1)
    assert_same(lc.tasks.from_data(X, Y, rate=60, bin_width=0.025), lc.Task.from_samples(uneven, Y))


def test_bins_that_do_not_fit_leave_out_the_samples_farthest_from_a_readout_at_the_end():
    inputs = np.random.default_rng(0).standard_normal((40, 8, 1))
    threes = inputs[:, 2:].reshape(40, 2, 3, 1).mean(axis=2)
    task = lc.Task.from_samples(inputs, inputs[:, -1], rate=1000, bin_width=0.003)
    assert_same(task, lc.Task.from_samples(threes, inputs[:, -1]))
    uneven = np.stack([inputs[:, 1:4].mean(axis=1), inputs[:, 4:6].mean(axis=1), inputs[:, 6:].mean(axis=1)], axis=1)
    at_end = lc.Task.from_samples(inputs, inputs[:, -1], rate=1000, bin_width=0.0023)
    assert_same(at_end, lc.Task.from_samples(uneven, inputs[:, -1]))
    every = lc.Task.from_samples(inputs, inputs, rate=1000, bin_width=0.003)
    first = inputs[:, :6].reshape(40, 2, 3, 1).mean(axis=2)
    assert_same(every, lc.Task.from_samples(first, first))


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"bin_width": 0.04}, "rate"),
        ({"rate": 50, "bin_width": 0.01}, "bin_width"),
        ({"rate": 50, "bin_width": 0.5}, "bin_width"),
        ({"rate": 50, "bin_width": 0.04, "lengths": np.full(30, 5)}, "bin_width"),
    ],
)
def test_bins_that_cannot_be_filled_are_refused(options, field):
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.tasks.from_data(X, Y, **options)
    assert caught.value.field == field


def test_channels_of_a_tidy_table_may_have_different_sampling_rates(tmp_path):
    slow = RNG.normal(size=(30, 3, 1))
    frame = tidy()
    trial, step = (part.ravel() for part in np.meshgrid(np.arange(30), np.arange(3), indexing="ij"))
    extra = pd.DataFrame(
        {"trial": trial, "time": -0.1 + 0.04 * step + 0.013, "channel": "unit9", "value": slow[trial, step, 0]}
    )
    both = pd.concat([frame, extra.assign(target0=Y[trial, 0], target1=Y[trial, 1])]).sample(frac=1.0, random_state=0)
    expected = np.concatenate([X.reshape(30, 3, 2, 4).mean(axis=2), slow], axis=2)
    assert_same(lc.tasks.from_table(both, bin_width=0.04), lc.Task.from_samples(expected, Y))
    both.to_csv(tmp_path / "tidy.csv", index=False)
    assert_same(lc.tasks.from_file(tmp_path / "tidy.csv", bin_width=0.04), lc.Task.from_samples(expected, Y))
    both.iloc[7, both.columns.get_loc("value")] = np.nan
    with pytest.raises(lc.InvalidSpec):
        lc.tasks.from_table(both, bin_width=0.04)
    with pytest.raises(lc.InvalidSpec):
        lc.tasks.from_table(pd.concat([both, both.iloc[:1]]), bin_width=0.04)


def test_a_wide_table_with_uneven_times_is_averaged_with_its_targets():
    times = np.array([0.0, 0.013, 0.02, 0.051, 0.06, 0.09])
    trial, step = (part.ravel() for part in np.meshgrid(np.arange(30), np.arange(6), indexing="ij"))
    every = RNG.normal(size=(30, 6))
    columns = {f"input{k}": X[trial, step, k] for k in range(4)}
    frame = pd.DataFrame({"trial": trial, "time": times[step], **columns, "target": every[trial, step]})
    bins = [slice(0, 3), slice(3, 6)]
    x, y = (np.stack([part[:, b].mean(axis=1) for b in bins], axis=1) for part in (X, every[..., None]))
    task = lc.tasks.from_table(frame, at="every_step", bin_width=0.05)
    assert_same(task, lc.Task.from_samples(x, y))
    assert_same(lc.tasks.from_table(frame, bin_width=0.05), lc.Task.from_samples(x, every[:, -1:]))


def test_signals_of_different_rates_are_cut_into_the_same_bins():
    rng = np.random.default_rng(0)
    signal, events = rng.normal(size=(300, 2)), np.arange(5) + 1.0
    cut = lc.tasks.cut_trials(signal, events, rate=30, window=(0.0, 0.5), bin_width=0.05)
    starts = np.ceil(1.5 * np.arange(11) - 1e-9).astype(int)
    by_hand = [
        [signal[30 * k + a : 30 * k + b].mean(axis=0) for a, b in itertools.pairwise(starts)] for k in range(1, 6)
    ]
    np.testing.assert_allclose(cut, by_hand, rtol=1e-12)
    other = lc.tasks.cut_trials(rng.normal(size=(10_000, 1)), events, rate=1000, window=(0.0, 0.5), bin_width=0.05)
    assert cut.shape[1] == other.shape[1] == 10


def test_channels_of_a_tidy_table_that_begin_with_target_are_targets():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((20, 4, 2)), rng.standard_normal(20)
    rows = [
        (trial, step, name, value)
        for trial in range(20)
        for step in range(4)
        for name, value in (("input_0", x[trial, step, 0]), ("input_1", x[trial, step, 1]), ("target_0", y[trial]))
    ]
    found = lc.tasks.from_table(pd.DataFrame(rows, columns=["trial", "step", "channel", "value"]))
    wanted = lc.Task.from_samples(x, y)
    np.testing.assert_allclose(found.cross_covariance.dense(), wanted.cross_covariance.dense(), atol=1e-12)
    assert (found.inputs, found.outputs) == (2, 1)
