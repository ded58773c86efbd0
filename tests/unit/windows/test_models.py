"""Cells, the search for a recurrent block, base rates and refusals, one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast.windows import cells
from learncast.windows.replay.capture import capture, replays
from learncast.windows.replay.recurrent_layer import recurrent_layers
from learncast.windows.transport.base_rate import base_rates, parameter_rates
from learncast.windows.transport.derivative import unit_directions
from learncast.windows.transport.exact import exact_transport
from learncast.windows.transport.gathering import mean_transport

CELLS = [cells.ConstGate, cells.SharedGate, cells.DiagGate, cells.PaperGRU, cells.LSTM]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def replay_of(kind=cells.DiagGate, steps=4):
    cell = kind(2, 3, generator=generator(), dtype=torch.float64)
    return replays(cell, torch.randn(2, steps, 2, generator=generator(1), dtype=torch.float64))[0]


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
    """Inputs are then projected a few steps at a time; none at all must not be left out."""
    monkeypatch.setattr(cells, "_PROJECTED", together)
    cell = kind(2, 3, generator=generator())
    x = torch.randn(3, 7, 2, generator=generator(1))
    with torch.no_grad():
        quick = cell(x)
    np.testing.assert_allclose(quick.numpy(), cell(x).detach().numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", CELLS)
def test_the_generator_decides_every_weight_and_nothing_else_is_drawn(kind):
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
def test_gates_start_at_the_given_value_whatever_the_input(kind):
    cell = kind(2, 3, generator=generator(), gate=0.05, dtype=torch.float64)
    (replay,) = replays(cell, torch.randn(2, 4, 2, generator=generator(1), dtype=torch.float64))
    assert (replay.gates["gate"] - 0.05).abs().max() < 1e-15
    free = kind(2, 3, generator=generator(), gate=0.05, zero_gate_weights=False, dtype=torch.float64)
    (replay,) = replays(free, torch.randn(2, 4, 2, generator=generator(1), dtype=torch.float64))
    assert replay.gates["gate"].std() > 0


def test_gates_of_gru_and_lstm_are_set_through_the_bias():
    gru = cells.PaperGRU(2, 3, generator=generator(), gate=0.1, dtype=torch.float64)
    assert gru.bias[:3].tolist() == pytest.approx([math.log(0.1 / 0.9)] * 3, rel=1e-14)
    lstm = cells.LSTM(2, 3, generator=generator(), gate=0.1, zero_gate_weights=True, dtype=torch.float64)
    assert lstm.bias[3:6].sigmoid().tolist() == pytest.approx([0.9] * 3, rel=1e-14)
    assert lstm.recurrent_weights[3:6].abs().sum() == 0
    assert lstm.recurrent_weights[:3].abs().sum() > 0
    assert cells.PaperGRU(2, 3, generator=generator()).bias[:3].std() > 0


@pytest.mark.parametrize("gate", [0.0, 1.0, 1.5, math.nan])
@pytest.mark.parametrize("kind", [cells.ConstGate, cells.DiagGate])
def test_a_gate_is_a_fraction(kind, gate):
    with pytest.raises(InvalidSpec, match="gate must"):
        kind(2, 3, generator=generator(), gate=gate)


def test_cells_refuse_sizes_and_inputs_that_mean_nothing():
    with pytest.raises(InvalidSpec, match="hidden must be a whole number"):
        cells.ConstGate(2, 0, generator=generator())
    with pytest.raises(InvalidSpec, match="at least 2 hidden units"):
        cells.LSTM(2, 1, generator=generator(), layer_norm=True)
    with pytest.raises(InvalidSpec, match=r"inputs must be \(batch, time, 2\)"):
        cells.ConstGate(2, 3, generator=generator())(torch.zeros(4, 2))


# The recurrent block


def test_layers_are_found_inside_any_model_with_their_full_names():
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(cells.PaperGRU(2, 3, generator=generator())), nn.Linear(3, 1))
    (layer,) = recurrent_layers(model)
    assert list(layer.own) == ["1.0.input_weights", "1.0.recurrent_weights", "1.0.bias"]
    assert layer.own["1.0.bias"] is model[1][0].bias
    assert (layer.kind, layer.input_size, layer.hidden_size) == ("paper_gru", 2, 3)
    assert [one.input_size for one in recurrent_layers(nn.LSTM(2, 3, num_layers=3))] == [2, 3, 3]


class Wrapped(nn.GRU):
    pass


REFUSED = [
    (nn.Linear(2, 2), "exactly one recurrent block, but got none"),
    (nn.ModuleList([nn.GRU(2, 3), nn.LSTM(3, 3)]), r"got 0 \(GRU\), 1 \(LSTM\)"),
    (nn.GRU(2, 3, bidirectional=True), "run in one direction"),
    (nn.LSTM(2, 3, proj_size=2), "no output projection, but got proj_size=2"),
    (nn.GRU(2, 3, num_layers=2, dropout=0.5), "dropout 0.5 between layers in training mode"),
    (nn.GRUCell(2, 3), "must be one of nn.RNN"),
    (Wrapped(2, 3), "but got Wrapped"),
    (nn.GRU(2, 3, dtype=torch.bfloat16), "float32 or float64 weights, but got torch.bfloat16"),
    (prune.identity(nn.GRU(2, 3), "weight_hh_l0"), "reparametrised weights"),
    (nn.utils.parametrizations.weight_norm(nn.GRU(2, 3), "weight_hh_l0"), "but got ParametrizedGRU"),
]


@pytest.mark.parametrize(("model", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_models_without_a_theory_are_refused(model, message):
    with pytest.raises(UnsupportedModel, match=message):
        recurrent_layers(model)


def test_something_that_is_no_module_is_refused():
    with pytest.raises(UnsupportedModel, match=r"must be a torch.nn.Module, but got dict"):
        recurrent_layers({})


def test_dropout_is_fine_where_it_does_nothing():
    assert len(recurrent_layers(nn.GRU(2, 3, num_layers=2, dropout=0.5).eval())) == 2


# Capture


class Calling(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.gru, self.call = nn.GRU(2, 3, batch_first=True), call

    def forward(self, x):
        return self.call(self.gru, x)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda gru, x: gru(gru(x)[0][..., :2])[0], "got 2 calls"),
        (lambda gru, x: x, "got 0 calls"),
        (lambda gru, x: gru(x[0])[0], "got 2 dimensions"),
        (lambda gru, x: gru(nn.utils.rnn.pack_sequence(list(x)))[0].data, "got PackedSequence"),
    ],
)
def test_only_one_call_on_one_batch_of_sequences(call, message):
    with pytest.raises(UnsupportedModel, match=message):
        capture(Calling(call), torch.zeros(2, 4, 2))


@pytest.mark.parametrize(
    ("loss", "error", "message"),
    [
        (nn.MSELoss(), InvalidSpec, "got a single number"),
        (lambda y, t: 3.0, InvalidSpec, "got float"),
        (lambda y, t: t, UnsupportedModel, "a loss that does not"),
    ],
)
def test_a_loss_must_give_every_sequence_its_error(loss, error, message):
    cell = cells.DiagGate(2, 3, generator=generator())
    with pytest.raises(error, match=message):
        capture(cell, torch.zeros(2, 4, 2), torch.zeros(2, 4, 3), loss)


def test_a_loss_on_the_final_cell_is_refused():
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(2, 3, batch_first=True)

        def forward(self, x):
            return self.lstm(x)[1][1][-1]

    with pytest.raises(UnsupportedModel, match="reads the final cell state"):
        capture(Cell(), torch.zeros(2, 4, 2), None, lambda y, _: y)


def test_a_capture_without_a_loss_has_no_deltas():
    seen = capture(cells.LSTM(2, 3, generator=generator()), torch.zeros(2, 4, 2))
    assert seen.deltas is None
    assert seen.outputs[0].shape == (2, 4, 3)


def test_replay_refuses_signals_of_another_layer():
    layer = recurrent_layers(nn.GRU(2, 3))[0]
    with pytest.raises(InvalidSpec, match=r"inputs must be a \(batch, time, 2\) tensor of torch.float32"):
        layer.replay(torch.zeros(2, 4, 2, dtype=torch.float64), torch.zeros(2, 4, 3))
    with pytest.raises(InvalidSpec, match="outputs must be"):
        layer.replay(torch.zeros(2, 4, 2), torch.zeros(2, 4, 2))


# Base rates

ADAPTIVE = {
    "adam": lambda ps: torch.optim.Adam(ps, lr=0.01, betas=(0.8, 0.95)),
    "amsgrad": lambda ps: torch.optim.Adam(ps, lr=0.01, amsgrad=True, betas=(0.5, 0.5)),
    "adamw": lambda ps: torch.optim.AdamW(ps, lr=0.01, weight_decay=0.0),
    "rmsprop": lambda ps: torch.optim.RMSprop(ps, lr=0.01),
    "centred": lambda ps: torch.optim.RMSprop(ps, lr=0.01, centered=True),
}


@pytest.mark.parametrize("name", ADAPTIVE)
def test_rates_times_the_averaged_gradient_are_the_step_torch_takes(name):
    p = nn.Parameter(torch.randn(5, generator=generator(), dtype=torch.float64))
    optimizer = ADAPTIVE[name]([p])
    g = generator(1)
    for k in range(1, 5):
        before = p.detach().clone()
        p.grad = torch.randn(5, generator=g, dtype=torch.float64) / k**2
        optimizer.step()
        state, group = optimizer.state[p], optimizer.param_groups[0]
        mean = p.grad if "rms" in name or name == "centred" else state["exp_avg"] / (1 - group["betas"][0] ** k)
        expected = before - parameter_rates(optimizer, {"p": p})["p"] * mean
        assert (p.detach() - expected).abs().max() < 1e-14  # a dozen roundings of numbers of order 1


def test_plain_and_momentum_descent_have_the_learning_rate_of_their_group():
    cell = cells.DiagGate(2, 3, generator=generator())
    groups = [{"params": [cell.bias], "lr": 0.5}, {"params": [cell.input_weights], "lr": torch.tensor(0.25)}]
    rates = parameter_rates(torch.optim.SGD(groups, lr=0.1, momentum=0.9), recurrent_layers(cell)[0].own)
    assert (rates["bias"] == 0.5).all()
    assert (rates["input_weights"] == 0.25).all()
    assert (rates["recurrent_weights"] == 0).all()  # not in the optimiser, so never moved
    assert not any(rate.requires_grad for rate in rates.values())


def test_descent_gives_every_unit_the_learning_rate():
    cell = cells.LSTM(2, 3, generator=generator(), layer_norm=True)
    (replay,) = replays(cell, torch.zeros(2, 4, 2))
    rates = parameter_rates(torch.optim.SGD(cell.parameters(), lr=0.125), recurrent_layers(cell)[0].own)
    assert (base_rates(replay, rates) == 0.125).all()


def test_frozen_parameters_never_move():
    cell = cells.DiagGate(2, 3, generator=generator())
    cell.bias.requires_grad_(False)
    optimizer = torch.optim.Adam(cell.parameters())
    cell(torch.ones(1, 3, 2)).sum().backward()
    optimizer.step()
    rates = parameter_rates(optimizer, recurrent_layers(cell)[0].own)
    assert (rates["bias"] == 0).all()
    assert (rates["input_weights"] > 0).all()


def test_optimisers_without_an_answer_are_refused():
    cell = cells.DiagGate(2, 3, generator=generator())
    own = recurrent_layers(cell)[0].own
    with pytest.raises(InvalidSpec, match="Adam must have taken a step on input_weights"):
        parameter_rates(torch.optim.Adam(cell.parameters()), own)
    with pytest.raises(InvalidSpec, match="RMSprop must have taken a step"):
        parameter_rates(torch.optim.RMSprop(cell.parameters()), own)
    with pytest.raises(UnsupportedModel, match="one of SGD, Adam, AdamW, RMSprop, but got Adagrad"):
        parameter_rates(torch.optim.Adagrad(cell.parameters()), own)
    with pytest.raises(UnsupportedModel, match="maximize=True"):
        parameter_rates(torch.optim.SGD(cell.parameters(), maximize=True), own)
    with pytest.raises(InvalidSpec, match="without any of input_weights"):
        parameter_rates(torch.optim.SGD(nn.Linear(2, 2).parameters()), own)


def test_a_unit_without_a_direction_has_no_rate_and_adds_nothing():
    cell = nn.RNN(2, 3, nonlinearity="relu", batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.uniform_(0, 0.5, generator=generator(2))  # positive, so that an active unit stays active
        cell.bias_ih_l0[0] = -1e4  # never active
        cell.bias_ih_l0[1:] = 1e2  # always active
    (replay,) = replays(cell, torch.randn(2, 4, 2, generator=generator(), dtype=torch.float64))
    drawn = {name: torch.rand(p.shape, generator=generator(1), dtype=p.dtype) for name, p in cell.named_parameters()}
    rates = base_rates(replay, drawn)
    assert rates[..., 0].isnan().all()
    assert rates[..., 1:].isfinite().all()
    effective = mean_transport(replay, [1, 2], rates=rates).effective
    assert (effective[:, 0] == 0).all()
    assert (effective[:, 1:] > 0).all()


# Directions


def test_directions_are_the_same_for_any_precision_and_uniform_on_the_sphere():
    cell = cells.DiagGate(2, 3, generator=generator())
    one = unit_directions(recurrent_layers(cell)[0], 4, generator=generator(1))
    two = unit_directions(recurrent_layers(cell.double())[0], 4, generator=generator(1))
    for name in one:
        assert one[name].dtype == torch.float32
        assert torch.equal(one[name], two[name].float())


# Transport


def test_auxiliary_envelopes_need_a_reset_gate():
    with pytest.raises(UnsupportedModel, match="auxiliary envelopes need a reset gate, but got a cell with the gates"):
        mean_transport(replay_of(), [1], auxiliary=True)


def test_zeroth_order_leaves_the_weights_out():
    for kind in (cells.DiagGate, cells.LSTM):
        replay = replay_of(kind)
        zeroth, first = mean_transport(replay, [1, 2, 3], order=0), mean_transport(replay, [1, 2, 3])
        assert (zeroth.total == zeroth.zeroth).all()
        assert (zeroth.zeroth == first.zeroth).all()
        assert (first.total != first.zeroth).any()


def test_a_common_rate_scales_the_envelope():
    replay = replay_of()
    one = mean_transport(replay, [1, 2], rates=0.5)
    full = mean_transport(replay, [1, 2], rates=torch.full_like(replay.hidden, 0.5))
    assert one.envelope == pytest.approx(full.envelope, rel=1e-14)
    assert one.decomposition(0.5)[1] == pytest.approx(np.zeros(2), abs=1e-16)
    assert exact_transport(replay, [1], rates=0.5).envelope == pytest.approx(
        0.5 * exact_transport(replay, [1]).envelope, rel=1e-14
    )
    assert one.total.shape == (2, 3)
    assert exact_transport(replay, [1]).units.tolist() == [0, 1, 2]


def test_a_gate_shut_for_good_divides_nothing():
    cell = cells.DiagGate(2, 3, generator=generator())
    with torch.no_grad():
        cell.bias[:3] = 200.0  # sigmoid is exactly 1 in single precision: nothing is retained
    found = mean_transport(replays(cell, torch.ones(1, 6, 2))[0], [1, 2, 4])
    assert (found.zeroth == 0).all()
    assert np.isfinite(found.total).all()
    assert (found.total[0] > 0).all()
    assert (found.total[1:] == 0).all()


def test_long_products_do_not_underflow():
    cell = cells.ConstGate(2, 3, generator=generator(), gate=0.6)
    found = mean_transport(replays(cell, torch.zeros(1, 256, 2))[0], [250], order=0)
    # 250 factors 1 - 0.6, each rounded to single precision (6e-8) when the gate is stored; 1e-100 is below its range.
    assert found.zeroth[0] == pytest.approx(np.full(3, 0.4**250), rel=250 * 2e-7)


def test_a_probe_follows_one_unit():
    found = exact_transport(replay_of(), [1], probes=1, generator=generator())
    assert found.diagonal.shape == (1, 1)
    assert found.hidden_size == 3
