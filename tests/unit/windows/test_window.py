"""The diagnosis of a model as a whole: its numbers, words, files, refusals, and its monitor."""

import itertools
import sys
import types
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from learncast.windows.layers.capture import checked_sequences, half_squared_error
from learncast.windows.learnability_window import CONDITIONS, LearnabilityWindow
from learncast.windows.question import THRESHOLD, Batching, DetectionRule, Measurement, grouped
from learncast.windows.rehearsal import KINDS, build_model, build_optimizer
from torch import nn, optim

from learncast import windows
from learncast._core.errors import InvalidSpec, SchemaMismatch, UnsupportedModel
from learncast.windows.layers import capture
from learncast.windows.monitor import WindowMonitor, lightning_callback

STEPS, CHANNELS, UNITS, NUMBER = 20, 3, 5, 128
LAGS = [1, 2, 4, 7]
QUICK = {"lags": LAGS, "directions": 1, "nulls": 19}


def window(model, inputs, targets, *, optimizer=None, **options):
    """The diagnosis, asked by a flat table."""
    return windows.window(model, inputs, targets, optimizer=optimizer, **grouped(options))


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


def trained(kind="gru", optimizer="adamw", **options):
    model = build_model(kind, inputs=CHANNELS, outputs=1, hidden_size=UNITS, seed=1, **options).double()
    optimizer = build_optimizer(optimizer, model, learning_rate=1e-2)
    inputs, targets = (torch.as_tensor(part) for part in data(seed=9))
    for _ in range(3):
        optimizer.zero_grad()
        half_squared_error(model(inputs), targets).mean().backward()
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
        "direction": 1,
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


def test_sgd_leaves_nothing_to_the_optimiser():
    model, optimizer = trained(optimizer="sgd")
    here = window(model, *data(), optimizer=optimizer, **QUICK).dataset.isel(layer=0)
    assert (np.abs(here["envelope_optimizer"]) <= 1e-12 * here["envelope"]).all()  # a difference of equal sums
    assert float(here["learning_rate"]) == 1e-2


def test_sgd_in_single_precision_leaves_nothing_to_the_optimiser_either():
    model, x, y = trained()[0].float(), *(torch.as_tensor(part).float() for part in data())
    found = window(model, x, y, optimizer=optim.SGD(model.parameters(), lr=1e-2), **QUICK)
    assert "SGD moves all weights at one rate" in found.summary


def test_units_of_the_rate_do_not_matter():
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


def test_intervals_hold_their_estimates(found):
    here = found.dataset.isel(layer=0)
    for name in ("signal", "tail_index", "scale"):
        low, high = here[f"{name}_interval"].transpose("side", "lag").values
        assert ((low <= here[name]) & (here[name] <= high)).all(), name


@pytest.mark.parametrize("memory", [2**28, 0])
def test_chunks_do_not_change_the_answer(memory):
    model, optimizer = trained("diag-gate")
    one, other = (
        window(model, *data(), optimizer=optimizer, chunk=chunk, memory=memory, exact=50, **QUICK)
        for chunk in (NUMBER, 37)
    )
    assert one.dataset.attrs["signs"] == ("crossed" if memory else "pilot")
    # Sums in another order; the estimators of the tail index magnify that through roots and logarithms.
    same(one, other, rtol=1e-7)


def test_a_pilot_tests_only_the_other_half():
    model, optimizer = trained()
    piloted = window(model, *data(), optimizer=optimizer, memory=0, **QUICK)
    kept = window(model, *data(), optimizer=optimizer, **QUICK)
    assert [float(one.dataset["validity_enough_sequences"][0]) for one in (piloted, kept)] == [100 / 64, 100 / 128]
    np.testing.assert_allclose(piloted["envelope"], kept["envelope"], rtol=1e-12)  # the same sums


def test_tested_sequences_have_no_say_in_their_signs():
    model, _ = trained()
    inputs, targets = data()
    signals = []
    for sign in (1.0, -1.0):
        signs = np.ones(NUMBER)
        order = checked_sequences(model, inputs, targets, seed=5).order
        signs[order[NUMBER // 2 :]] = sign
        marked = np.concatenate([targets, np.broadcast_to(signs[:, None, None], targets.shape)], axis=2)
        found = window(
            model, inputs, marked, loss=lambda a, t: t[..., 1:] * (a - t[..., :1]).square(), memory=0, seed=5, **QUICK
        )
        signals.append(found["signal"].values)
    # Turning the errors of the tested half turns the statistic with it, exactly, if its signs come from elsewhere.
    np.testing.assert_array_equal(signals[0], -signals[1])


def test_a_seed_shared_with_the_data_is_another_stream():
    # numpy fills seeds up with zeros: 5 and (5, 0) are one stream, in which the order would follow the data.
    order = checked_sequences(trained()[0], *data(), seed=5).order
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


def test_arrays_tensors_and_memory_maps_are_the_same(tmp_path):
    model, _ = trained()
    inputs, targets = data()
    np.save(tmp_path / "inputs.npy", inputs)
    mapped = np.load(tmp_path / "inputs.npy", mmap_mode="r")
    base = window(model, inputs, targets, **QUICK)
    for other in (mapped, torch.as_tensor(inputs), inputs.tolist()):
        same(base, window(model, other, targets, **QUICK), rtol=0)


def test_the_hash_knows_weights_and_data():
    model, _ = trained()
    other, _ = trained("lstm")
    calls = [(model, data()), (model, data()), (model, data(seed=1)), (other, data())]
    hashes = [window(one, *given, **QUICK).provenance.spec_hash for one, given in calls]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3


def test_the_model_is_left_as_it_was():
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


def test_layers_are_told_apart():
    model, optimizer = trained("lstm", layers=2)
    found = window(model, *data(), optimizer=optimizer, **QUICK)
    assert found.layers == 2
    assert not np.allclose(found["envelope"].isel(layer=0), found["envelope"].isel(layer=1))
    assert found.summary.count("\n") == 1
    assert found.summary.startswith("Layer 0: With 128 sequences")
    assert "2 layers" in repr(found)


DIRECTIONAL = ("signal", "score", "tail_index", "scale")


@pytest.mark.parametrize("memory", [2**28, 0])
def test_every_direction_is_there(memory, tmp_path):
    model, optimizer = trained()
    found = window(model, *data(), optimizer=optimizer, memory=memory, **QUICK | {"directions": 3})
    for name in DIRECTIONAL:
        each = found[f"{name}_by_direction"]
        assert each.dims == ("layer", "direction", "lag")
        assert each.sizes["direction"] == 3
        assert each.attrs["units"] == found[name].attrs["units"]
    # A mean of three sums, in another order.
    pooled = found["signal_by_direction"].mean("direction")
    np.testing.assert_allclose(pooled, found["signal"], rtol=1e-9, atol=1e-12 * float(np.abs(found["signal"]).max()))
    same(LearnabilityWindow.load(found.save(tmp_path / "window.nc")), found, rtol=0)


def test_a_single_direction_is_the_answer(found):
    for name in DIRECTIONAL:
        np.testing.assert_allclose(found[f"{name}_by_direction"].isel(direction=0), found[name], rtol=1e-12)


def test_saved_and_loaded_again(found, tmp_path):
    again = LearnabilityWindow.load(found.save(tmp_path / "window.nc"))
    xr.testing.assert_identical(again.dataset, found.dataset)
    assert again.provenance == found.provenance
    assert again.summary == found.summary
    with pytest.raises(SchemaMismatch, match="no file"):
        LearnabilityWindow.load(tmp_path / "nothing.nc")


def test_without_recurrent_weights_the_first_order_is_exact():
    model, _ = trained("const-gate")
    with torch.no_grad():
        model.block.recurrent_weights.zero_()
    found = window(model, *data(), exact=3, **QUICK)
    np.testing.assert_allclose(found["exact_envelope"], found["envelope"], rtol=1e-12)  # products of the same numbers
    assert float(found["exact_slope"][0]) == pytest.approx(1, abs=1e-12)
    assert "it decays 1.00 times as fast as the envelope to all orders" in found.summary
    assert "first_order_transport" in [v.name for v in found.validity()]


def test_words(found):
    text = found.summary
    assert text.startswith("With 128 sequences this GRU can credit up to ")
    assert "AdamW's rates" in text
    assert "4x the data" in text
    assert repr(found).startswith("<LearnabilityWindow by the sound method: 128 sequences, lags 1 to 7, signal at ")
    assert repr(found).endswith("conditions hold>")
    assert found.trusted
    assert [v.name for v in found.validity()] == [name for name in CONDITIONS if name != "first_order_transport"]


def test_too_few_sequences_are_unknown_and_said_so():
    model, optimizer = trained()
    found = window(model, *data(40), optimizer=optimizer, **QUICK)
    assert not found.trusted
    assert "do not trust: enough_sequences" in repr(found)
    assert np.isnan(found["tail_index"]).all()
    told = bool((found["score"] > found["critical_score"]).any())
    assert ("too few" in found.summary) == told
    assert np.isnan(list(found.windows().values())).all() == told


def test_the_published_rule_warns_of_itself():
    model, optimizer = trained()
    found = window(model, *data(), optimizer=optimizer, method="paper", **QUICK)
    assert float(found["threshold"][0]) == THRESHOLD
    assert "do not rely on it" in found.summary
    assert not found.trusted
    with pytest.raises(InvalidSpec, match=r'method="paper" must keep all contributions'):
        window(model, *data(), optimizer=optimizer, method="paper", memory=0, **QUICK)


def test_windows_by_name(found):
    sizes = [2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert list(found.windows()) == sizes
    assert list(found.null_windows(noise="total")) == sizes
    pairs = zip(found.windows(contiguous=True).values(), found.windows().values(), strict=True)
    assert all(gapless <= whole for gapless, whole in pairs)
    values = list(found.windows().values())
    assert values == sorted(values)
    with pytest.raises(InvalidSpec, match="noise must be one of"):
        found.windows(noise="all")


def test_the_window_of_all_sequences_is_their_reach(found):
    # At the default threshold a lag counts exactly when it is told from 0; of one lag the statistic is normal, so only
    # the (n - 1) / n between the two deviations stands between the rules.
    here = found.dataset.isel(layer=0)
    told = here["lag"].values[(here["score"] > 1.01 * here["critical_score"]).values & (here["tail_index"] == 2).values]
    assert float(here["reach"]) >= told.max(initial=0)
    assert found.windows()[NUMBER] == float(here["reach"])


def spoiled(what):
    inputs, targets = data()
    {"inputs": inputs, "targets": targets}[what][3, 5, 0] = np.nan
    return inputs, targets


def refused(**changes):
    model, optimizer = trained()
    call = {"model": model, "optimizer": optimizer, **dict(zip(("inputs", "targets"), data(), strict=True)), **QUICK}
    call["chunk"] = NUMBER
    call |= changes
    return window(call.pop("model"), call.pop("inputs"), call.pop("targets"), **call)


def other_optimizer():
    return optim.AdamW([nn.Parameter(torch.zeros(2))])


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"inputs": spoiled("inputs")[0]}, InvalidSpec, r"inputs must be finite, .* in sequence 3 at \(5, 0\)"),
        ({"targets": spoiled("targets")[1]}, InvalidSpec, "targets must be finite"),
        ({"inputs": np.zeros((NUMBER, STEPS))}, InvalidSpec, "inputs must have 3 dimensions"),
        ({"inputs": "words"}, InvalidSpec, "inputs must be an array of real numbers"),
        ({"lags": [1, STEPS]}, InvalidSpec, "lags must grow and stay within 19"),
        ({"lags": [4, 2]}, InvalidSpec, "lags must grow"),
        ({"lags": []}, InvalidSpec, "lags must grow"),
        ({"lags": [0, 2]}, InvalidSpec, "lags must be a whole number of at least 1"),
        ({"inputs": data(1)[0], "targets": data(1)[1]}, InvalidSpec, "at least 16 sequences are needed, but got 1"),
        ({"targets": np.zeros((7, STEPS, 1))}, InvalidSpec, "one entry for each of the 128 sequences"),
        ({"targets": np.zeros((NUMBER, STEPS, 2))}, InvalidSpec, "targets must be shaped like the model's answers"),
        ({"targets": np.zeros((NUMBER, STEPS))}, InvalidSpec, "targets must be shaped like the model's answers"),
        ({"loss": nn.MSELoss()}, InvalidSpec, "each of the 128 sequences it is given, but got a single number"),
        ({"loss": lambda a, t: (a - t).square().mean((0, 1))}, InvalidSpec, "each of the 128 sequences it is given"),
        ({"loss": lambda a, t: 0 * a}, InvalidSpec, "gradient of exactly 0 on every sequence"),
        ({"loss": lambda a, t: t}, UnsupportedModel, "the loss must depend on the recurrent block's outputs"),
        ({"optimizer": other_optimizer()}, InvalidSpec, "must hold the recurrent parameters"),
        ({"model": nn.Linear(3, 1)}, UnsupportedModel, "exactly one recurrent block"),
        ({"model": nn.GRU(CHANNELS, 4, batch_first=True)}, InvalidSpec, "the model must return a tensor"),
        ({"sample_sizes": [10, 5]}, InvalidSpec, "sample_sizes must grow"),
        ({"method": "papers"}, InvalidSpec, "did you mean 'paper'"),
        ({"nulls": 5}, InvalidSpec, "nulls must be a whole number of at least 19"),
        ({"threshold": 0}, InvalidSpec, "threshold must be positive"),
        ({"order": 2}, InvalidSpec, "order must be 0 or 1"),
        ({"chunk": 0}, InvalidSpec, "chunk must be a whole number"),
        ({"batch_first": False, "inputs": data(40)[0], "targets": data(40)[1]}, InvalidSpec, "pass batch_first=True"),
    ],
)  # fmt: skip
def test_refusals_say_what_to_do(changes, error, words):
    if isinstance(changes.get("model"), nn.Module):
        changes = {"optimizer": None, **changes}
    with pytest.raises(error, match=words) as caught:
        refused(**changes)
    assert all((caught.value.required, caught.value.got, caught.value.why, caught.value.remedy))


def test_an_untrained_adaptive_optimiser_is_refused():
    model, _ = trained()
    with pytest.raises(InvalidSpec, match="must have taken a step"):
        refused(model=model, optimizer=optim.AdamW(model.parameters()))


# What is asked


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Measurement(lags=[4, 2]), "lags must grow, but got"),
        (lambda: Measurement(lags=[1, 1]), "lags must grow"),
        (lambda: Measurement(lags=[0.5]), "lags must be a whole number of at least 1"),
        (lambda: Measurement(directions=0), "directions must be a whole number of at least 1"),
        (lambda: Measurement(order=2), "order must be 0 or 1, but got 2"),
        (lambda: Measurement(exact=-1), "exact must be a whole number of at least 0"),
        (lambda: DetectionRule(method="sounds"), "did you mean 'sound'"),
        (lambda: DetectionRule(nulls=18), "nulls must be a whole number of at least 19"),
        (lambda: DetectionRule(threshold=0), "threshold must be positive"),
        (lambda: DetectionRule(sample_sizes=[10, 5]), "sample_sizes must grow"),
        (lambda: DetectionRule(seed=-1), "seed must be a whole number of at least 0"),
        (lambda: DetectionRule(seed="one"), "seed must be a number"),
        (lambda: Batching(chunk=0), "chunk must be a whole number of at least 1"),
        (lambda: Batching(memory=-1), "memory must be a whole number of at least 0"),
    ],
)
def test_what_is_asked_checks_itself(make, words):
    with pytest.raises(InvalidSpec, match=words) as caught:
        make()
    assert all((caught.value.required, caught.value.got, caught.value.why, caught.value.remedy))


def test_what_is_asked_is_a_value():
    one, other = Measurement(lags=[1, 2]), Measurement(lags=np.array([1, 2]))
    assert one == other
    assert hash(one) == hash(other)
    assert DetectionRule(sample_sizes=[8, 16]) == DetectionRule(sample_sizes=(8, 16))
    for frozen in (one, DetectionRule(), Batching()):
        with pytest.raises(FrozenInstanceError):
            frozen.lags = frozen.seed = frozen.memory = 3


@pytest.mark.parametrize("kind", ["diag-gate", "gru", "paper-lstm", "lstm"])
def test_how_many_steps_are_replayed_at_a_time_changes_nothing(monkeypatch, kind):
    model, optimizer = trained(kind)
    asked = {"optimizer": optimizer, **QUICK, "exact": 4, "auxiliary": kind == "gru"}
    whole = window(model, *data(), **asked)
    for numbers in (1, 3 * NUMBER * UNITS):  # a step at a time, and three with two left over
        monkeypatch.setattr(capture, "_STRETCH", numbers)
        # The same products in other sums: tail indices amplify roundings by as much as their weights.
        same(window(model, *data(), **asked), whole, 1e-9)


def test_defaults_follow_the_data():
    assert Measurement().lags_within(9) == [1, 2, 3, 4]
    assert Measurement(lags=[1, 8]).lags_within(9) == [1, 8]
    assert DetectionRule().sizes_around(64) == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert DetectionRule().threshold_at(3.0) == pytest.approx(3 * 2**0.5, rel=1e-15)
    assert DetectionRule(method="paper").threshold_at(-np.inf) == THRESHOLD
    assert DetectionRule(threshold=0.4).threshold_at(3.0) == 0.4
    assert [Batching().chunk_of(numbers) for numbers in (2**10, 2**30)] == [2**11, 1]
    assert Batching(chunk=5).chunk_of(1) == 5
    assert [Batching(memory=80).keeps(number, "sound") for number in (10, 11)] == [True, False]


def test_a_flat_table_falls_into_groups():
    found = grouped({"lags": [1, 2], "nulls": 19, "chunk": None, "seed": 3, "threshold": None})
    assert found == {
        "measurement": Measurement(lags=(1, 2)),
        "rule": DetectionRule(nulls=19, seed=3),
        "batching": Batching(),
    }


OLD = {"lags": "Measurement", "sample_sizes": "DetectionRule", "seed": "DetectionRule", "method": "DetectionRule"}
OLD |= {"directions": "Measurement", "loss": "Measurement", "order": "Measurement", "auxiliary": "Measurement"}
OLD |= {"exact": "Measurement", "nulls": "DetectionRule", "threshold": "DetectionRule", "chunk": "Batching"}
OLD |= {"batch_first": "Batching", "memory": "Batching"}


@pytest.mark.parametrize("name", OLD)
def test_old_keywords_name_their_new_place(name):
    for ask in (
        lambda: windows.window(None, None, None, **{name: 1}),
        lambda: WindowMonitor(None, None, None, **{name: 1}),
    ):
        with pytest.raises(InvalidSpec, match=rf"write \w+={OLD[name]}\({name}=\.\.\.\)"):
            ask()


def test_unknown_keywords_are_refused():
    with pytest.raises(InvalidSpec, match="did you mean 'measurement'"):
        windows.window(None, None, None, measurment=Measurement())
    with pytest.raises(InvalidSpec, match="use one of measurement, rule, batching"):
        windows.window(None, None, None, zzz=1)


def test_the_hash_knows_what_was_asked():
    model, optimizer = trained()
    asked = [{}, {"nulls": 20}, {"order": 0}, {"threshold": 0.3}, {"seed": 1}, {"memory": 0}]
    hashes = {window(model, *data(), optimizer=optimizer, **QUICK | more).provenance.spec_hash for more in asked}
    hashes.add(window(model, *data(), **QUICK).provenance.spec_hash)  # other base rates
    assert len(hashes) == 7


@settings(max_examples=12 * settings().max_examples // 300, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    steps=st.integers(2, 9),
    units=st.integers(1, 4),
    number=st.integers(16, 24),
    chunk=st.integers(1, 30),
    memory=st.sampled_from([0, 2**28]),
    seed=st.integers(0, 5),
)
def test_any_shape_has_an_answer(kind, steps, units, number, chunk, memory, seed):
    model = build_model(kind, inputs=2, outputs=1, hidden_size=units, seed=seed)
    rng = np.random.default_rng(seed)
    inputs, targets = rng.standard_normal((number, steps, 2)), rng.standard_normal((number, steps, 1))
    found = window(model, inputs, targets, chunk=chunk, memory=memory, seed=seed, directions=1, nulls=19)
    here = found.dataset.isel(layer=0)
    assert here.sizes["unit"] == units
    assert (here["envelope"] >= 0).all()
    assert np.isnan(here["reach"]) or float(here["reach"]) in {0, *here["lag"].values}
    assert isinstance(found.summary, str)


class Clock:
    """A clock that each diagnosis and each training step moves by a known time."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def diagnosed(monkeypatch, found):
    """Replace the diagnosis by one that takes 3 seconds and can be counted."""
    clock, calls = Clock(), []

    def pretend(model, inputs, targets, **options):
        calls.append(options)
        clock.now += 3.0
        return found

    monkeypatch.setattr("learncast.windows.monitor.window", pretend)
    return clock, calls


def test_a_monitor_keeps_its_share_of_the_time(diagnosed):
    clock, calls = diagnosed
    monitor = WindowMonitor(*trained(), data(), clock=clock)
    overheads = []
    for _ in range(2000):
        clock.now += 0.1
        if monitor.step() is not None:
            overheads.append(monitor.overhead)
    # 200 s of training leave room for 0.08 / 0.92 x 200 / 3 = 5.8 diagnoses.
    assert len(calls) == 5
    assert all(overhead <= 0.08 for overhead in overheads[1:])
    assert monitor.overhead < 0.1
    assert "5 diagnoses in 2000 steps (at most 8% of the time)" in repr(monitor)
    assert f"measured overhead {monitor.overhead:.1%}" in repr(monitor)


def test_a_monitor_with_a_cadence(diagnosed):
    clock, calls = diagnosed
    monitor = WindowMonitor(*trained(), data(), every=7, clock=clock, measurement=Measurement(lags=LAGS))
    steps = [step for step in range(1, 30) if monitor.step() is not None]
    assert steps == [7, 14, 21, 28]
    assert monitor.history["step"].values.tolist() == steps
    assert calls[0]["measurement"].lags == tuple(LAGS)
    assert calls[0]["rule"].nulls == 99
    assert np.isnan(WindowMonitor(*trained(), data(), clock=Clock()).overhead)


def test_history_follows_training():
    model, optimizer = trained()
    monitor = WindowMonitor(
        model, optimizer, data(), every=2, measurement=Measurement(lags=LAGS), rule=DetectionRule(nulls=19)
    )
    with pytest.raises(InvalidSpec, match="diagnosed the model at least once, but got none in 0 steps"):
        _ = monitor.history
    for _ in range(4):
        monitor.step()
    assert monitor.history.sizes["step"] == 2
    assert {"reach", "window", "envelope"} <= set(monitor.history)
    assert monitor.latest is not None
    assert "last window" in repr(monitor)


def test_a_lightning_callback(monkeypatch, diagnosed):
    lightning, pytorch = types.ModuleType("lightning"), types.ModuleType("lightning.pytorch")
    pytorch.Callback, lightning.pytorch = type("Callback", (), {}), pytorch
    lightning.__spec__ = types.SimpleNamespace(name="lightning")
    monkeypatch.setitem(sys.modules, "lightning", lightning)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", pytorch)
    callback = lightning_callback(data(), every=2)
    assert isinstance(callback, pytorch.Callback)
    model, optimizer = trained()
    trainer = types.SimpleNamespace(optimizers=[optimizer])
    for batch in itertools.islice(itertools.count(), 4):
        callback.on_train_batch_end(trainer, model, None, None, batch)
    assert len(diagnosed[1]) == 2
    assert callback.monitor.model is model


def test_without_lightning_there_is_a_remedy(monkeypatch):
    monkeypatch.setattr("learncast._core.packages.find_spec", lambda name: None)
    with pytest.raises(InvalidSpec, match="lightning must be installed"):
        lightning_callback(data())
