"""Cells, the search for a recurrent block, capture, base rates and transport."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from learncast import InvalidSpec, UnsupportedModel
from learncast.windows import Batching, Measurement, cells, layers, transport, window

CELLS = [cells.ConstGate, cells.SharedGate, cells.DiagGate, cells.PaperGRU, cells.LSTM]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def replay_of(kind=cells.DiagGate, steps=4):
    cell = kind(2, 3, generator=generator(), dtype=torch.float64)
    return layers.replays(cell, torch.randn(2, steps, 2, generator=generator(1), dtype=torch.float64))[0]


# Cells


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("layer_norm", [False, True])
def test_a_cell_maps_sequences_to_states_and_learns(kind, layer_norm):
    cell = kind(2, 3, generator=generator(), layer_norm=layer_norm)
    out = cell(torch.randn(4, 5, 2, generator=generator(1)))
    assert out.shape == (4, 5, 3)
    assert out.dtype == torch.float32
    out.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in cell.parameters())
    assert "2, 3" in repr(cell)


@pytest.mark.parametrize("kind", CELLS)
def test_a_cell_sees_no_future(kind):
    cell = kind(2, 3, generator=generator())
    x = torch.randn(1, 6, 2, generator=generator(1))
    changed = x.clone()
    changed[:, 4:] += 1
    assert torch.equal(cell(x)[:, :4], cell(changed)[:, :4])
    assert not torch.equal(cell(x)[:, 4], cell(changed)[:, 4])


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("together", [1, 40, 2**18])
def test_a_cell_without_gradients_gives_the_same_states(monkeypatch, kind, together):
    """Without gradients, inputs are projected a few steps at a time."""
    monkeypatch.setattr(cells, "_PROJECTED", together)
    cell = kind(2, 3, generator=generator())
    x = torch.randn(3, 7, 2, generator=generator(1))
    with torch.no_grad():
        quick = cell(x)
    np.testing.assert_allclose(quick.numpy(), cell(x).detach().numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", CELLS)
def test_the_generator_determines_every_weight_and_the_global_state_is_unchanged(kind):
    before = torch.random.get_rng_state()
    one, two, other = (kind(2, 3, generator=generator(seed), orthogonal=seed == 5) for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert not torch.equal(one.recurrent_weights, other.recurrent_weights)


@pytest.mark.parametrize("kind", CELLS)
def test_orthogonal_blocks(kind):
    cell = kind(4, 4, generator=generator(), orthogonal=True, dtype=torch.float64)
    block = cell.recurrent_weights[-4:]
    assert (block @ block.t() - torch.eye(4, dtype=torch.float64)).abs().max() < 1e-14  # rounding of a QR


@pytest.mark.parametrize("kind", [cells.SharedGate, cells.DiagGate])
def test_gates_start_at_the_given_value_for_every_input(kind):
    cell = kind(2, 3, generator=generator(), gate=0.05, dtype=torch.float64)
    (replay,) = layers.replays(cell, torch.randn(2, 4, 2, generator=generator(1), dtype=torch.float64))
    assert (replay.gates["gate"] - 0.05).abs().max() < 1e-15
    free = kind(2, 3, generator=generator(), gate=None, dtype=torch.float64)
    (replay,) = layers.replays(free, torch.randn(2, 4, 2, generator=generator(1), dtype=torch.float64))
    assert replay.gates["gate"].std() > 0


def test_gates_of_gru_and_lstm_are_set_through_the_bias():
    gru = cells.PaperGRU(2, 3, generator=generator(), gate=0.1, dtype=torch.float64)
    assert gru.bias[:3].tolist() == pytest.approx([math.log(0.1 / 0.9)] * 3, rel=1e-14)
    lstm = cells.LSTM(2, 3, generator=generator(), gate=0.1, dtype=torch.float64)
    assert lstm.bias[3:6].sigmoid().tolist() == pytest.approx([0.9] * 3, rel=1e-14)
    assert gru.recurrent_weights[:3].abs().sum() > 0
    assert lstm.recurrent_weights[3:6].abs().sum() > 0
    assert cells.PaperGRU(2, 3, generator=generator()).bias[:3].std() > 0


@pytest.mark.parametrize("gate", [0.0, 1.0, 1.5, math.nan])
@pytest.mark.parametrize("kind", [cells.ConstGate, cells.DiagGate])
def test_a_gate_is_a_fraction(kind, gate):
    with pytest.raises(InvalidSpec) as error:
        kind(2, 3, generator=generator(), gate=gate)
    assert error.value.field == "gate"


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: cells.ConstGate(2, 0, generator=generator()), "hidden"),
        (lambda: cells.LSTM(2, 1, generator=generator(), layer_norm=True), "layer_norm"),
        (lambda: cells.ConstGate(2, 3, generator=generator())(torch.zeros(4, 2)), "inputs"),
    ],
)
def test_invalid_sizes_and_inputs_of_cells_raise_an_error(make, field):
    with pytest.raises(InvalidSpec) as error:
        make()
    assert error.value.field == field


# The recurrent block


def test_layers_inside_any_model_have_their_full_names():
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(cells.PaperGRU(2, 3, generator=generator())), nn.Linear(3, 1))
    (layer,) = layers.recurrent_layers(model)
    assert list(layer.own) == ["1.0.input_weights", "1.0.recurrent_weights", "1.0.bias"]
    assert layer.own["1.0.bias"] is model[1][0].bias
    assert (layer.kind, layer.input_size, layer.hidden_size) == ("paper_gru", 2, 3)
    assert [one.input_size for one in layers.recurrent_layers(nn.LSTM(2, 3, num_layers=3))] == [2, 3, 3]


class Wrapped(nn.GRU):
    pass


#: Models without a supported recurrent block, and a token of the reason.
UNSUPPORTED = [
    (nn.Linear(2, 2), "none"),
    (nn.ModuleList([nn.GRU(2, 3), nn.LSTM(3, 3)]), "0 (GRU), 1 (LSTM)"),
    (nn.GRU(2, 3, bidirectional=True), "bidirectional=True"),
    (nn.LSTM(2, 3, proj_size=2), "proj_size=2"),
    (Wrapped(2, 3), "Wrapped"),
    (nn.GRU(2, 3, dtype=torch.bfloat16), "torch.bfloat16"),
    (prune.identity(nn.GRU(2, 3), "weight_hh_l0"), "reparametrised"),
    (nn.utils.parametrizations.weight_norm(nn.GRU(2, 3), "weight_hh_l0"), "ParametrizedGRU"),
    ({}, "dict"),
]


@pytest.mark.parametrize(("model", "reason"), UNSUPPORTED, ids=[reason for _, reason in UNSUPPORTED])
def test_unsupported_models_raise_an_error(model, reason):
    with pytest.raises(UnsupportedModel) as error:
        layers.recurrent_layers(model)
    assert error.value.field == "model"
    assert reason in str(error.value)


class Regularised(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.GRU(2, 3, num_layers=2, dropout=0.5, batch_first=True), nn.BatchNorm1d(3)
        self.readout = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 1))

    def forward(self, inputs):
        return self.readout(self.norm(self.layer(inputs)[0][:, -1]))


@pytest.mark.parametrize("chunk", [7, 40])
def test_a_model_in_training_mode_is_diagnosed_in_evaluation_mode_and_stays_in_its_own(chunk):
    inputs = torch.randn(40, 6, 2, generator=generator(), dtype=torch.float64)
    targets, lags = inputs[:, 0, :1], Measurement(lags=(1, 2))
    torch.manual_seed(0)
    model = Regularised().double()
    model.readout.eval()
    training = window(model, inputs, targets, measurement=lags, batching=Batching(chunk=chunk))
    assert [part.training for part in (model, model.layer, model.norm, model.readout)] == [True, True, True, False]
    evaluated = window(model.eval(), inputs, targets, measurement=lags)
    for name in ("envelope", "signal", "tail_index"):
        np.testing.assert_allclose(training[name], evaluated[name], rtol=1e-9, atol=1e-12)


# Capture


class Calling(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.gru, self.call = nn.GRU(2, 3, batch_first=True), call

    def forward(self, x):
        return self.call(self.gru, x)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda gru, x: gru(gru(x)[0][..., :2])[0], "2 calls"),
        (lambda gru, x: x, "0 calls"),
        (lambda gru, x: gru(x[0])[0], "(4, 2)"),
        (lambda gru, x: gru(nn.utils.rnn.pack_sequence(list(x)))[0].data, "PackedSequence"),
    ],
)
def test_the_recurrent_block_must_be_called_once_with_a_batch_of_sequences(call, reason):
    with pytest.raises(UnsupportedModel) as error:
        layers.capture(Calling(call), torch.zeros(2, 4, 2))
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("loss", "error"),
    [(nn.MSELoss(), InvalidSpec), (lambda y, t: 3.0, InvalidSpec), (lambda y, t: t, UnsupportedModel)],
    ids=["averaged", "number", "independent of the model"],
)
def test_a_loss_must_give_the_error_of_every_sequence(loss, error):
    cell = cells.DiagGate(2, 3, generator=generator())
    with pytest.raises(error) as caught:
        layers.capture(cell, torch.zeros(2, 4, 2), torch.zeros(2, 4, 3), loss)
    assert caught.value.field == "loss"


def test_a_loss_on_the_final_cell_raises_an_error():
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(2, 3, batch_first=True)

        def forward(self, x):
            return self.lstm(x)[1][1][-1]

    with pytest.raises(UnsupportedModel) as error:
        layers.capture(Cell(), torch.zeros(2, 4, 2), None, lambda y, _: y)
    assert error.value.field == "loss"


def test_a_capture_without_a_loss_has_no_deltas():
    seen = layers.capture(cells.LSTM(2, 3, generator=generator()), torch.zeros(2, 4, 2))
    assert seen.deltas == ()
    assert seen.outputs[0].shape == (2, 4, 3)


@pytest.mark.parametrize(
    ("inputs", "outputs", "field"),
    [
        (torch.zeros(2, 4, 2, dtype=torch.float64), torch.zeros(2, 4, 3), "inputs"),
        (torch.zeros(2, 4, 2), torch.zeros(2, 4, 2), "outputs"),
    ],
)
def test_replaying_signals_of_another_layer_raises_an_error(inputs, outputs, field):
    with pytest.raises(InvalidSpec) as error:
        layers.recurrent_layers(nn.GRU(2, 3))[0].replay(inputs, outputs)
    assert error.value.field == field


# Base rates

ADAPTIVE = {
    "adam": lambda ps: torch.optim.Adam(ps, lr=0.01, betas=(0.8, 0.95)),
    "amsgrad": lambda ps: torch.optim.Adam(ps, lr=0.01, amsgrad=True, betas=(0.5, 0.5)),
    "adamw": lambda ps: torch.optim.AdamW(ps, lr=0.01, weight_decay=0.0),
    "rmsprop": lambda ps: torch.optim.RMSprop(ps, lr=0.01),
    "centred": lambda ps: torch.optim.RMSprop(ps, lr=0.01, centered=True),
}


@pytest.mark.parametrize("name", ADAPTIVE)
def test_rates_times_the_averaged_gradient_equal_the_step_of_torch(name):
    p = nn.Parameter(torch.randn(5, generator=generator(), dtype=torch.float64))
    optimizer = ADAPTIVE[name]([p])
    g = generator(1)
    for k in range(1, 5):
        before = p.detach().clone()
        p.grad = torch.randn(5, generator=g, dtype=torch.float64) / k**2
        optimizer.step()
        state, group = optimizer.state[p], optimizer.param_groups[0]
        mean = p.grad if "rms" in name or name == "centred" else state["exp_avg"] / (1 - group["betas"][0] ** k)
        expected = before - transport.parameter_rates(optimizer, {"p": p})["p"] * mean
        assert (p.detach() - expected).abs().max() < 1e-14  # a dozen roundings of numbers of order 1


def test_plain_and_momentum_descent_have_the_learning_rate_of_their_group():
    cell = cells.DiagGate(2, 3, generator=generator())
    groups = [{"params": [cell.bias], "lr": 0.5}, {"params": [cell.input_weights], "lr": torch.tensor(0.25)}]
    rates = transport.parameter_rates(
        torch.optim.SGD(groups, lr=0.1, momentum=0.9), layers.recurrent_layers(cell)[0].own
    )
    assert (rates["bias"] == 0.5).all()
    assert (rates["input_weights"] == 0.25).all()
    assert (rates["recurrent_weights"] == 0).all()  # not in the optimiser, so never moved
    assert not any(rate.requires_grad for rate in rates.values())


def test_descent_gives_every_unit_the_learning_rate():
    cell = cells.LSTM(2, 3, generator=generator(), layer_norm=True)
    (replay,) = layers.replays(cell, torch.zeros(2, 4, 2))
    rates = transport.parameter_rates(
        torch.optim.SGD(cell.parameters(), lr=0.125), layers.recurrent_layers(cell)[0].own
    )
    assert (transport.base_rates(replay, rates) == 0.125).all()


def test_frozen_parameters_never_move():
    cell = cells.DiagGate(2, 3, generator=generator())
    cell.bias.requires_grad_(False)
    optimizer = torch.optim.Adam(cell.parameters())
    cell(torch.ones(1, 3, 2)).sum().backward()
    optimizer.step()
    rates = transport.parameter_rates(optimizer, layers.recurrent_layers(cell)[0].own)
    assert (rates["bias"] == 0).all()
    assert (rates["input_weights"] > 0).all()


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda cell: torch.optim.Adam(cell.parameters()), InvalidSpec),
        (lambda cell: torch.optim.RMSprop(cell.parameters()), InvalidSpec),
        (lambda cell: torch.optim.SGD(nn.Linear(2, 2).parameters()), InvalidSpec),
        (lambda cell: torch.optim.Adagrad(cell.parameters()), UnsupportedModel),
        (lambda cell: torch.optim.SGD(cell.parameters(), maximize=True), UnsupportedModel),
    ],
    ids=["Adam before its first step", "RMSprop before its first step", "other parameters", "Adagrad", "maximize"],
)
def test_optimisers_without_known_rates_raise_an_error(make, error):
    cell = cells.DiagGate(2, 3, generator=generator())
    with pytest.raises(error) as caught:
        transport.parameter_rates(make(cell), layers.recurrent_layers(cell)[0].own)
    assert caught.value.field == "optimizer"


def test_a_unit_without_a_gradient_has_no_rate_and_adds_nothing():
    cell = nn.RNN(2, 3, nonlinearity="relu", batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.uniform_(0, 0.5, generator=generator(2))  # positive, so that an active unit stays active
        cell.bias_ih_l0[0] = -1e4  # never active
        cell.bias_ih_l0[1:] = 1e2  # always active
    (replay,) = layers.replays(cell, torch.randn(2, 4, 2, generator=generator(), dtype=torch.float64))
    random = {name: torch.rand(p.shape, generator=generator(1), dtype=p.dtype) for name, p in cell.named_parameters()}
    rates = transport.base_rates(replay, random)
    assert rates[..., 0].isnan().all()
    assert rates[..., 1:].isfinite().all()
    effective = transport.mean_transport(replay, [1, 2], rates=rates).effective
    assert (effective[:, 0] == 0).all()
    assert (effective[:, 1:] > 0).all()


# Directions


def test_directions_are_the_same_for_any_precision_and_uniform_on_the_sphere():
    cell = cells.DiagGate(2, 3, generator=generator())
    one = transport.unit_directions(layers.recurrent_layers(cell)[0], 4, generator=generator(1))
    two = transport.unit_directions(layers.recurrent_layers(cell.double())[0], 4, generator=generator(1))
    for name in one:
        assert one[name].dtype == torch.float32
        assert torch.equal(one[name], two[name].float())


# Transport


def test_auxiliary_envelopes_need_a_reset_gate():
    with pytest.raises(UnsupportedModel) as error:
        transport.mean_transport(replay_of(), [1], auxiliary=True)
    assert error.value.field == "auxiliary"


def test_zeroth_order_ignores_the_recurrent_weights():
    for kind in (cells.DiagGate, cells.LSTM):
        replay = replay_of(kind)
        zeroth, first = (
            transport.mean_transport(replay, [1, 2, 3], order=0),
            transport.mean_transport(replay, [1, 2, 3]),
        )
        assert (zeroth.total == zeroth.zeroth).all()
        assert (zeroth.zeroth == first.zeroth).all()
        assert (first.total != first.zeroth).any()


def test_a_common_rate_scales_the_envelope():
    replay = replay_of()
    one = transport.mean_transport(replay, [1, 2], rates=0.5)
    full = transport.mean_transport(replay, [1, 2], rates=torch.full_like(replay.hidden, 0.5))
    assert one.envelope == pytest.approx(full.envelope, rel=1e-14)
    assert one.decomposition(0.5)[1] == pytest.approx(np.zeros(2), abs=1e-16)
    assert transport.exact_transport(replay, [1], rates=0.5).envelope == pytest.approx(
        0.5 * transport.exact_transport(replay, [1]).envelope, rel=1e-14
    )
    assert one.total.shape == (2, 3)
    assert transport.exact_transport(replay, [1]).diagonal.shape == (1, 3)


def test_a_closed_gate_causes_no_division_by_zero():
    cell = cells.DiagGate(2, 3, generator=generator())
    with torch.no_grad():
        cell.bias[:3] = 200.0  # sigmoid is exactly 1 in single precision: nothing is retained
    found = transport.mean_transport(layers.replays(cell, torch.ones(1, 6, 2))[0], [1, 2, 4])
    assert (found.zeroth == 0).all()
    assert np.isfinite(found.total).all()
    assert (found.total[0] > 0).all()
    assert (found.total[1:] == 0).all()


def test_long_products_do_not_underflow():
    cell = cells.ConstGate(2, 3, generator=generator(), gate=0.6)
    found = transport.mean_transport(layers.replays(cell, torch.zeros(1, 256, 2))[0], [250], order=0)
    # 250 factors 1 - 0.6, each rounded to single precision (6e-8) when the gate is stored; 1e-100 is below its range.
    assert found.zeroth[0] == pytest.approx(np.full(3, 0.4**250), rel=250 * 2e-7)


def test_one_probe_estimates_one_unit():
    found = transport.exact_transport(replay_of(), [1], probes=1)
    assert found.diagonal.shape == (1, 1)
    assert found.hidden_size == 3
