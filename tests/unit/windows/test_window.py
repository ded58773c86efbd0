"""The diagnosis of a model: numbers, summary, files, errors, options, and the monitor."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn, optim

from learncast import InvalidSpec, SchemaMismatch, UnsupportedModel, windows
from learncast.windows import (
    Batching,
    DetectionRule,
    Measurement,
    Window,
    WindowMonitor,
    example_model,
    options,
    result,
    sequences,
)

STEPS, CHANNELS, UNITS, NUMBER = 20, 3, 5, 128
LAGS = [1, 2, 4, 7]
QUICK = {"lags": LAGS, "directions": 1, "nulls": 19}


def window(model, inputs, targets, *, optimizer=None, **flat):
    """The diagnosis, with a flat table of options."""
    return windows.window(model, inputs, targets, optimizer=optimizer, **options.grouped(flat))


class Net(nn.Module):
    """A torch block in either layout, with a readout."""

    def __init__(self, block):
        super().__init__()
        self.block, self.readout = block, nn.Linear(block.hidden_size, 1, dtype=torch.float64)

    def forward(self, inputs):
        return self.readout(self.block(inputs)[0])


def data(number=NUMBER, steps=STEPS, seed=0):
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((number, steps, CHANNELS))
    targets = np.zeros((number, steps, 1))
    targets[:, 2:, 0] = inputs[:, :-2, 0]
    return inputs, targets


def trained(kind="gru", optimizer="adamw", **own):
    model = example_model.build_model(kind, inputs=CHANNELS, outputs=1, hidden_size=UNITS, seed=1, **own).double()
    optimizer = example_model.build_optimizer(optimizer, model, learning_rate=1e-2)
    inputs, targets = (torch.as_tensor(part) for part in data(seed=9))
    for _ in range(3):
        optimizer.zero_grad()
        sequences.half_squared_error(model(inputs), targets).mean().backward()
        optimizer.step()
    return model, optimizer


@pytest.fixture(scope="module")
def found():
    model, optimizer = trained()
    return window(model, *data(), optimizer=optimizer, **QUICK)


def same(one, other, rtol):
    assert set(one.dataset.variables) == set(other.dataset.variables)
    for name, values in one.dataset.variables.items():
        if name == "validity_faithful_replay":
            continue  # itself a rounding error
        if values.dtype.kind == "f":
            np.testing.assert_allclose(values, other.dataset[name].values, rtol=rtol, atol=0, err_msg=str(name))
        else:
            assert (values.values == other.dataset[name].values).all(), name


def test_every_variable_has_a_name_and_units(found):
    for name, values in found.dataset.variables.items():
        assert values.attrs["long_name"], name
        assert values.attrs["units"], name
    assert dict(found.dataset.sizes) == {
        "layer": 1,
        "lag": len(LAGS),
        "unit": UNITS,
        "sample_size": 9,
        "noise": 2,
        "side": 2,
    }
    assert found.provenance.citations == ("livi2025",)
    assert found.dataset.attrs["signs"] == "crossed"


def test_parts_of_the_envelope_add_up(found):
    here = found.dataset.isel(layer=0)
    parts = here["envelope_gate"] + here["envelope_optimizer"]
    np.testing.assert_allclose(parts, here["envelope"], rtol=1e-13)  # one subtraction and one addition
    np.testing.assert_allclose(here["effective_rate"].sum("unit"), here["envelope"], rtol=1e-13)


@pytest.mark.parametrize(("dtype", "share"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_the_envelope_of_sgd_is_due_to_the_gates(dtype, share):
    model, x, y = trained()[0].to(dtype), *(torch.as_tensor(part).to(dtype) for part in data())
    found = window(model, x, y, optimizer=optim.SGD(model.parameters(), lr=1e-2), **QUICK)
    here = found.dataset.isel(layer=0)
    assert (np.abs(here["envelope_optimizer"]) <= share * here["envelope"]).all()  # a difference of equal sums
    assert float(here["learning_rate"]) == 1e-2
    assert "SGD has one rate" in found.summary


def test_windows_do_not_depend_on_the_size_of_the_learning_rate():
    model, _ = trained()
    one, other = (
        window(model, *data(), optimizer=optim.SGD(model.parameters(), lr=rate), **QUICK)
        for rate in (2.0**-3, 2.0**-103)
    )
    for name in ("envelope", "signal", "scale", "total_scale"):
        # A power of two changes no digit, but for roots of squares that a library takes by another path.
        np.testing.assert_allclose(other[name], one[name] * 2.0**-100, rtol=1e-9, err_msg=name)
    for name in ("window", "contiguous_window", "reach", "score", "required_sequences", "tail_index"):
        np.testing.assert_allclose(other[name], one[name], rtol=1e-9, err_msg=name)


def test_intervals_contain_their_estimates(found):
    here = found.dataset.isel(layer=0)
    for name in ("signal", "tail_index", "scale"):
        low, high = here[f"{name}_interval"].transpose("side", "lag").values
        assert ((low <= here[name]) & (here[name] <= high)).all(), name


@pytest.mark.parametrize("memory", [2**28, 0])
def test_chunks_do_not_change_the_result(memory):
    model, optimizer = trained("diag-gate")
    one, other = (
        window(model, *data(), optimizer=optimizer, chunk=chunk, memory=memory, exact=50, **QUICK)
        for chunk in (NUMBER, 37)
    )
    assert one.dataset.attrs["signs"] == ("crossed" if memory else "pilot")
    # Sums in another order; the estimators of the tail index magnify that through roots and logarithms.
    same(one, other, rtol=1e-7)


def test_pilot_sequences_are_not_tested():
    model, optimizer = trained()
    piloted = window(model, *data(), optimizer=optimizer, memory=0, **QUICK)
    kept = window(model, *data(), optimizer=optimizer, **QUICK)
    assert [float(one.dataset["validity_enough_sequences"][0]) for one in (piloted, kept)] == [100 / 64, 100 / 128]
    np.testing.assert_allclose(piloted["envelope"], kept["envelope"], rtol=1e-12)  # the same sums


def test_tested_sequences_do_not_influence_their_signs():
    model, _ = trained()
    inputs, targets = data()
    signals = []
    for sign in (1.0, -1.0):
        signs = np.ones(NUMBER)
        order = sequences.checked_sequences(model, inputs, targets, seed=5).order
        signs[order[NUMBER // 2 :]] = sign
        marked = np.concatenate([targets, np.broadcast_to(signs[:, None, None], targets.shape)], axis=2)
        found = window(
            model, inputs, marked, loss=lambda a, t: t[..., 1:] * (a - t[..., :1]).square(), memory=0, seed=5, **QUICK
        )
        signals.append(found["signal"].values)
    # If the signs come from other sequences, flipping the errors of the tested half flips the statistic exactly.
    np.testing.assert_array_equal(signals[0], -signals[1])


def test_the_order_is_independent_of_data_with_the_same_seed():
    # numpy pads seeds with zeros: 5 and (5, 0) are one stream, in which the order would depend on the data.
    order = sequences.checked_sequences(trained()[0], *data(), seed=5).order
    assert all((order != np.random.default_rng(same).permutation(NUMBER)).any() for same in (5, [5, 0]))


def test_time_first_models_take_time_first_data():
    block = nn.GRU(CHANNELS, UNITS, batch_first=True, dtype=torch.float64)
    first = Net(block)
    second = Net(nn.GRU(CHANNELS, UNITS, dtype=torch.float64))
    second.load_state_dict(first.state_dict())
    inputs, targets = data()
    one = window(first, inputs, targets, **QUICK)
    other = window(second, inputs.swapaxes(0, 1), targets.swapaxes(0, 1), **QUICK)
    same(one, other, rtol=1e-7)  # matrix products over another layout
    at_end = targets[:, -1]
    one = window(first, inputs, at_end, **QUICK)
    other = window(second, inputs.swapaxes(0, 1), at_end, **QUICK)
    same(one, other, rtol=1e-7)


def test_arrays_tensors_lists_and_memory_maps_give_the_same_result(tmp_path):
    model, _ = trained()
    inputs, targets = data()
    np.save(tmp_path / "inputs.npy", inputs)
    mapped = np.load(tmp_path / "inputs.npy", mmap_mode="r")
    base = window(model, inputs, targets, **QUICK)
    for other in (mapped, torch.as_tensor(inputs), inputs.tolist()):
        same(base, window(model, other, targets, **QUICK), rtol=0)


def test_the_hash_depends_on_weights_and_data():
    model, _ = trained()
    other, _ = trained("lstm")
    calls = [(model, data()), (model, data()), (model, data(seed=1)), (other, data())]
    hashes = [window(one, *given, **QUICK).provenance.spec_hash for one, given in calls]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3


def test_the_model_is_left_unchanged():
    model, optimizer = trained("rnn")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    grads = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    state, stream = str(optimizer.state_dict()), torch.get_rng_state()
    window(model, *data(), optimizer=optimizer, **QUICK)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), grads, strict=True))
    assert str(optimizer.state_dict()) == state
    assert torch.equal(torch.get_rng_state(), stream)
    assert model.training


def test_each_layer_has_its_own_result():
    model, optimizer = trained("lstm", layers=2)
    found = window(model, *data(), optimizer=optimizer, **QUICK)
    assert found.layers == 2
    assert not np.allclose(found["envelope"].isel(layer=0), found["envelope"].isel(layer=1))
    assert found.summary.startswith("Layer 0:")
    assert found.summary.count("\n") == 1
    assert "2 layers" in repr(found)


def test_saved_and_loaded_again(found, tmp_path):
    again = Window.load(found.save(tmp_path / "window.nc"))
    xr.testing.assert_identical(again.dataset, found.dataset)
    assert again.provenance == found.provenance
    assert again.summary == found.summary
    with pytest.raises(SchemaMismatch):
        Window.load(tmp_path / "nothing.nc")


def test_without_recurrent_weights_the_first_order_is_exact():
    model, _ = trained("const-gate")
    with torch.no_grad():
        model.block.recurrent_weights.zero_()
    found = window(model, *data(), exact=3, **QUICK)
    np.testing.assert_allclose(found["exact_envelope"], found["envelope"], rtol=1e-12)  # products of the same numbers
    assert float(found["exact_slope"][0]) == pytest.approx(1, abs=1e-12)
    assert "1.00 times" in found.summary
    assert "first_order_transport" in [v.name for v in found.validity()]


def test_summary_and_repr_name_the_numbers(found):
    for token in ("128 sequences", "GRU", "AdamW", "4x the data"):
        assert token in found.summary
    for token in ("Window", "sound", "128 sequences", "lags 1 to 7", "conditions hold"):
        assert token in repr(found)
    assert found.trust.holds
    assert [v.name for v in found.validity()] == [one for one in result.CONDITIONS if one != "first_order_transport"]


def test_too_few_sequences_give_an_unknown_window():
    model, optimizer = trained()
    found = window(model, *data(40), optimizer=optimizer, **QUICK)
    assert not found.trust.holds
    assert "do not trust: enough_sequences" in repr(found)
    assert np.isnan(found["tail_index"]).all()
    significant = bool((found["score"] > found["critical_score"]).any())
    assert ("too few" in found.summary) == significant
    assert np.isnan(list(found.windows().values())).all() == significant


def test_the_published_rule_is_not_trusted():
    model, optimizer = trained()
    found = window(model, *data(), optimizer=optimizer, method="paper", **QUICK)
    assert float(found["threshold"][0]) == options.THRESHOLD
    assert "Do not rely" in found.summary
    assert not found.trust.holds
    with pytest.raises(InvalidSpec) as error:
        window(model, *data(), optimizer=optimizer, method="paper", memory=0, **QUICK)
    assert error.value.field == "memory"


def test_windows_by_number_of_sequences(found):
    sizes = [2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert list(found.windows()) == sizes
    assert list(found.null_windows(noise="total")) == sizes
    pairs = zip(found.windows(contiguous=True).values(), found.windows().values(), strict=True)
    assert all(contiguous <= any_lag for contiguous, any_lag in pairs)
    values = list(found.windows().values())
    assert values == sorted(values)
    with pytest.raises(InvalidSpec) as error:
        found.windows(noise="all")
    assert error.value.field == "noise"


def test_the_window_of_all_sequences_is_their_reach(found):
    # At the default threshold a lag counts exactly if its signal is significant. With normal noise the two rules differ
    # only by the factor (n - 1) / n between two standard deviations.
    here = found.dataset.isel(layer=0)
    clear = (here["score"] > 1.01 * here["critical_score"]).values & (here["tail_index"] == 2).values
    assert float(here["reach"]) >= here["lag"].values[clear].max(initial=0)
    assert found.windows()[NUMBER] == float(here["reach"])


def with_nan(name):
    inputs, targets = data()
    {"inputs": inputs, "targets": targets}[name][3, 5, 0] = np.nan
    return {"inputs": inputs, "targets": targets}


def few(number):
    return dict(zip(("inputs", "targets"), data(number), strict=True))


def diagnose_with(**changes):
    model, optimizer = trained()
    call = {"model": model, "optimizer": optimizer, **few(NUMBER), **QUICK, "chunk": NUMBER, **changes}
    return window(call.pop("model"), call.pop("inputs"), call.pop("targets"), **call)


def other_optimizer():
    return optim.AdamW([nn.Parameter(torch.zeros(2))])


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        (with_nan("inputs"), InvalidSpec, "inputs"),
        (with_nan("targets"), InvalidSpec, "targets"),
        ({"inputs": np.zeros((NUMBER, STEPS))}, InvalidSpec, "inputs"),
        ({"inputs": "words"}, InvalidSpec, "inputs"),
        ({"lags": [1, STEPS]}, InvalidSpec, "lags"),
        (few(1), InvalidSpec, "inputs"),
        ({"targets": np.zeros((7, STEPS, 1))}, InvalidSpec, "targets"),
        ({"targets": np.zeros((NUMBER, STEPS, 2))}, InvalidSpec, "targets"),
        ({"targets": np.zeros((NUMBER, STEPS))}, InvalidSpec, "targets"),
        ({"loss": nn.MSELoss()}, InvalidSpec, "loss"),
        ({"loss": lambda a, t: (a - t).square().mean((0, 1))}, InvalidSpec, "loss"),
        ({"loss": lambda a, t: 0 * a}, InvalidSpec, "loss"),
        ({"loss": lambda a, t: t}, UnsupportedModel, "loss"),
        ({"loss": lambda a, t: a @ t}, InvalidSpec, "targets"),
        ({"optimizer": other_optimizer()}, InvalidSpec, "optimizer"),
        ({"model": nn.Linear(3, 1), "optimizer": None}, UnsupportedModel, "model"),
        ({"model": nn.GRU(CHANNELS, 4, batch_first=True), "optimizer": None}, InvalidSpec, "model"),
        ({"batch_first": False, **few(40)}, InvalidSpec, "batch_first"),
    ],
)  # fmt: skip
def test_invalid_data_raise_an_error(changes, error, field):
    with pytest.raises(error) as caught:
        diagnose_with(**changes)
    assert caught.value.field == field


def test_a_nan_is_located():
    with pytest.raises(InvalidSpec) as error:
        diagnose_with(**with_nan("inputs"))
    assert "sequence 3 at (5, 0)" in str(error.value)


# Options


@pytest.mark.parametrize(
    ("kind", "values", "field"),
    [
        (Measurement, {"lags": [4, 2]}, "lags"),
        (Measurement, {"lags": [1, 1]}, "lags"),
        (Measurement, {"lags": []}, "lags"),
        (Measurement, {"lags": [0, 2]}, "lags"),
        (Measurement, {"lags": [0.5]}, "lags"),
        (Measurement, {"directions": 0}, "directions"),
        (Measurement, {"order": 2}, "order"),
        (Measurement, {"exact": -1}, "exact"),
        (DetectionRule, {"method": "sounds"}, "method"),
        (DetectionRule, {"nulls": 18}, "nulls"),
        (DetectionRule, {"threshold": 0}, "threshold"),
        (DetectionRule, {"sample_sizes": [10, 5]}, "sample_sizes"),
        (DetectionRule, {"seed": -1}, "seed"),
        (DetectionRule, {"seed": "one"}, "seed"),
        (Batching, {"chunk": 0}, "chunk"),
        (Batching, {"memory": -1}, "memory"),
    ],
)
def test_invalid_options_raise_an_error(kind, values, field):
    with pytest.raises(InvalidSpec) as error:
        kind(**values)
    assert error.value.field == field


def test_options_are_immutable_and_compare_by_value():
    one, other = Measurement(lags=[1, 2]), Measurement(lags=np.array([1, 2]))
    assert one == other
    assert hash(one) == hash(other)
    assert DetectionRule(sample_sizes=[8, 16]) == DetectionRule(sample_sizes=(8, 16))
    for frozen in (one, DetectionRule(), Batching()):
        with pytest.raises(FrozenInstanceError):
            frozen.lags = frozen.seed = frozen.memory = 3


def test_defaults_depend_on_the_data():
    assert Measurement().lags_within(9) == [1, 2, 3, 4]
    assert Measurement(lags=[1, 8]).lags_within(9) == [1, 8]
    assert DetectionRule().sizes_around(64) == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert DetectionRule().threshold_at(3.0) == pytest.approx(3 * 2**0.5, rel=1e-15)
    assert DetectionRule(method="paper").threshold_at(-np.inf) == options.THRESHOLD
    assert DetectionRule(threshold=0.4).threshold_at(3.0) == 0.4
    assert [Batching().chunk_of(numbers) for numbers in (2**10, 2**30)] == [2**10, 1]
    assert Batching(chunk=5).chunk_of(1) == 5
    assert [Batching(memory=80).keeps(number, "sound") for number in (10, 11)] == [True, False]


def test_a_flat_table_of_options_is_grouped():
    found = options.grouped({"lags": [1, 2], "nulls": 19, "chunk": None, "seed": 3, "threshold": None})
    assert found == {
        "measurement": Measurement(lags=(1, 2)),
        "rule": DetectionRule(nulls=19, seed=3),
        "batching": Batching(),
    }


def test_unknown_keywords_raise_an_error():
    with pytest.raises(TypeError):
        windows.window(None, None, None, lags=[1])
    with pytest.raises(TypeError):
        WindowMonitor(None, None, None, lags=[1])


def test_the_hash_depends_on_the_options():
    model, optimizer = trained()
    choices = [{}, {"nulls": 20}, {"order": 0}, {"threshold": 0.3}, {"seed": 1}, {"memory": 0}]
    hashes = {window(model, *data(), optimizer=optimizer, **QUICK | more).provenance.spec_hash for more in choices}
    hashes.add(window(model, *data(), **QUICK).provenance.spec_hash)  # other base rates
    assert len(hashes) == 7


@settings(max_examples=12 * settings().max_examples // 300, deadline=None)
@given(
    kind=st.sampled_from(example_model.KINDS),
    steps=st.integers(2, 9),
    units=st.integers(1, 4),
    number=st.integers(16, 24),
    chunk=st.integers(1, 30),
    memory=st.sampled_from([0, 2**28]),
    seed=st.integers(0, 5),
)
def test_any_shape_gives_a_window(kind, steps, units, number, chunk, memory, seed):
    model = example_model.build_model(kind, inputs=2, outputs=1, hidden_size=units, seed=seed)
    rng = np.random.default_rng(seed)
    inputs, targets = rng.standard_normal((number, steps, 2)), rng.standard_normal((number, steps, 1))
    found = window(model, inputs, targets, chunk=chunk, memory=memory, seed=seed, directions=1, nulls=19)
    here = found.dataset.isel(layer=0)
    assert here.sizes["unit"] == units
    assert (here["envelope"] >= 0).all()
    assert np.isnan(here["reach"]) or float(here["reach"]) in {0, *here["lag"].values}
    assert isinstance(found.summary, str)


class Clock:
    """A clock that is advanced by hand."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def diagnosed(monkeypatch, found):
    """Replace the diagnosis by one that takes 3 seconds and can be counted."""
    clock, calls = Clock(), []

    def pretend(model, inputs, targets, **given):
        calls.append(given)
        clock.now += 3.0
        return found

    monkeypatch.setattr("learncast.windows.monitor.window", pretend)
    monkeypatch.setattr("learncast.windows.monitor.perf_counter", clock)
    return clock, calls


def test_a_monitor_stays_within_its_share_of_the_time(diagnosed):
    clock, calls = diagnosed
    monitor = WindowMonitor(*trained(), data())
    overheads = []
    for _ in range(2000):
        clock.now += 0.1
        if monitor.step() is not None:
            overheads.append(3.0 * len(calls) / clock.now)
    # 200 s of training allow 0.08 / 0.92 x 200 / 3 = 5.8 diagnoses.
    assert len(calls) == 5
    assert all(overhead <= 0.08 for overhead in overheads[1:])
    for token in ("5 diagnoses", "2000 steps", "8%"):
        assert token in repr(monitor)


def test_a_monitor_diagnoses_every_nth_step(diagnosed):
    _, calls = diagnosed
    monitor = WindowMonitor(*trained(), data(), every=7, measurement=Measurement(lags=LAGS))
    steps = [step for step in range(1, 30) if monitor.step() is not None]
    assert steps == [7, 14, 21, 28]
    assert monitor.history["step"].values.tolist() == steps
    assert calls[0]["measurement"].lags == tuple(LAGS)
    assert calls[0]["rule"].nulls == 99


def test_the_history_holds_every_diagnosis():
    model, optimizer = trained()
    monitor = WindowMonitor(
        model, optimizer, data(), every=2, measurement=Measurement(lags=LAGS), rule=DetectionRule(nulls=19)
    )
    with pytest.raises(InvalidSpec):
        _ = monitor.history
    for _ in range(4):
        monitor.step()
    assert monitor.history.sizes["step"] == 2
    assert {"reach", "window", "envelope"} <= set(monitor.history)
    assert monitor.latest is not None
    assert "last window" in repr(monitor)


def test_a_control_finds_the_lags_that_are_due_to_the_task():
    model, optimizer = trained()
    inputs, targets = data(512)
    plain, controlled = (window(model, inputs, targets, optimizer=optimizer, **QUICK, control=k) for k in (False, True))
    for name in plain.dataset.variables:  # a control changes nothing else
        xr.testing.assert_identical(plain.dataset[name], controlled.dataset[name])
    assert plain.provenance == controlled.provenance
    assert controlled.attributable() == 2  # the delay of the target
    # Shorter lags carry it too, through the hidden state; longer ones do not.
    assert controlled.dataset["attributable"].values[0, 1:].tolist() == [True, False, False]
    with pytest.raises(InvalidSpec) as error:
        plain.attributable()
    assert error.value.field == "control"


def test_the_control_is_the_diagnosis_with_the_targets_of_other_sequences():
    model, optimizer = trained()
    inputs, targets = data()
    order = sequences.checked_sequences(model, inputs, targets).order
    swapped = targets.copy()
    swapped[order] = targets[np.roll(order, 1)]
    control = window(model, inputs, targets, optimizer=optimizer, **QUICK, control=True).dataset
    other = window(model, inputs, swapped, optimizer=optimizer, **QUICK).dataset
    for name in ("signal", "score", "reach"):
        np.testing.assert_array_equal(control[f"control_{name}"], other[name])


@pytest.mark.slow
def test_targets_of_pure_noise_are_not_attributed_to_the_task():
    """The windows themselves may be long: the gradient contains the network's own answer."""
    model, optimizer = trained()
    hits = []
    for seed in range(10):
        inputs, targets = data()
        noise = np.random.default_rng([1, seed]).standard_normal(targets.shape)
        found = window(model, inputs, noise, optimizer=optimizer, **QUICK, control=True, seed=seed)
        hits.append(found.attributable() > 0)
    # At most 5% of data have one by chance, so that 3 of 10 occur in 1.2% of cases.
    assert sum(hits) < 3


def test_sums_of_many_sequences_need_no_directions():
    """Several blocks of sequences with base rates, but without contributions to a gradient."""
    from learncast.windows import layers, transport

    model, optimizer = trained("paper-gru")
    inputs, _ = data(1200, steps=60)
    envelopes = []
    for rows in (slice(None), slice(600), slice(600, None)):
        seen = layers.capture(model, torch.as_tensor(inputs[rows]))
        rates = transport.base_rates(seen.replay(), transport.parameter_rates(optimizer, seen.layers[0].own))
        envelopes.append(transport.mean_transport(seen.replay(), LAGS, rates=rates).envelope)
    # The mean over all sequences is the mean of two halves.
    np.testing.assert_allclose(envelopes[0], (envelopes[1] + envelopes[2]) / 2, rtol=1e-10)


class Last(nn.Module):
    """A readout of the last step with several outputs."""

    def __init__(self, outputs):
        super().__init__()
        self.block = nn.GRU(CHANNELS, UNITS, batch_first=True, dtype=torch.float64)
        self.readout = nn.Linear(UNITS, outputs, dtype=torch.float64)

    def forward(self, inputs):
        return self.readout(self.block(inputs)[0][:, -1])


def test_one_number_for_each_sequence_is_not_read_as_the_target_of_the_last_of_several_outputs():
    inputs, _ = data()
    classes = np.random.default_rng(0).integers(0, 3, NUMBER)
    with pytest.raises(InvalidSpec) as caught:
        window(Last(3), inputs, classes.astype(float), **QUICK)
    assert caught.value.field == "targets"
    assert len(window(Last(3), inputs, classes, **QUICK).dataset["lag"]) == len(LAGS)
    assert len(window(Last(1), inputs, classes.astype(float), **QUICK).dataset["lag"]) == len(LAGS)


def test_sequences_of_one_step_are_refused_because_they_have_no_lag():
    inputs, _ = data()
    with pytest.raises(InvalidSpec) as caught:
        windows.window(Last(1), inputs[:, :1], np.zeros((NUMBER, 1)))
    assert caught.value.field == "inputs"


def test_an_optimizer_by_name_is_refused():
    model, x = torch.nn.GRU(2, 4, batch_first=True), torch.randn(40, 6, 2)
    with pytest.raises(InvalidSpec) as caught:
        windows.window(model, x, torch.randn(40, 6, 4), optimizer="adam")
    assert caught.value.field == "optimizer"
