"""Gates, Jacobians, transports and base rates against golden numbers, autograd and products written out.

The golden file holds numbers of an independent double-precision implementation, each with the relative tolerance that
its own rounding allows.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from learncast.windows import cells, layers, transport

GOLDEN = json.loads((Path(__file__).parent / "golden" / "learnability.json").read_text(encoding="utf-8"))
ENTRIES = {entry["id"]: entry for entry in GOLDEN["entries"]}
# Sums of a few dozen products of order one in double precision, with three digits to spare.
EXACT = 1e-12

#: Golden letters of each cell's blocks, in the order in which our modules stack them: input weights, recurrent, bias.
STACKED = {
    "const": (("Wx",), ("Wh",), ("bx",)),
    "diag": (("Ws", "Wx"), ("Us", "Wh"), ("bs", "bx")),
    "gru": (("Wz", "Wr", "Wn"), ("Uz", "Ur", "Un"), ("bz", "br", "bn")),
    "grut": (("Wr", "Wz", "Wn"), ("Ur", "Uz", "Un"), ("br", "bz", "bn")),
    "lstm": (("Wi", "Wf", "Wg", "Wo"), ("Ui", "Uf", "Ug", "Uo"), ("bi", "bf", "bg", "bo")),
}
OWN = {"const": cells.ConstGate, "diag": cells.DiagGate, "gru": cells.PaperGRU, "lstm": cells.LSTM}
GATES = {
    "const": {"gate_s": "gate", "gate_g": "candidate"},
    "diag": {"gate_s": "gate", "gate_g": "candidate"},
    "gru": {"gate_z": "update", "gate_r": "reset", "gate_g": "candidate"},
    "grut": {"gate_z": "update", "gate_r": "reset", "gate_n": "candidate"},
    "lstm": {"gate_i": "input", "gate_f": "forget", "gate_o": "output", "gate_g": "candidate"},
}


def unit_contributions(replay, lags, **given):
    return transport.lag_sums(replay.chain, lags, **given)[1]


def tensor(value):
    return torch.tensor(value, dtype=torch.float64)


def stacked(given, kind, prefix):
    """Golden tensors with a prefix ("param_", "lambda_") stacked as our modules hold them."""
    return [torch.cat([tensor(given[prefix + letter]) for letter in letters]) for letters in STACKED[kind]]


def cell_of(given):
    kind = given["cell"]
    weights, recurrent, bias = stacked(given, kind, "param_")
    hidden, inputs = recurrent.shape[1], weights.shape[1]
    if kind == "grut":
        cell = nn.GRU(inputs, hidden, batch_first=True, dtype=torch.float64)
        values = {"weight_ih_l0": weights, "weight_hh_l0": recurrent, "bias_ih_l0": bias}
        values["bias_hh_l0"] = torch.cat([torch.zeros(2 * hidden, dtype=torch.float64), tensor(given["param_cn"])])
    else:
        options = {"gate": given["param_s"]} if kind == "const" else {}
        cell = OWN[kind](
            inputs,
            hidden,
            generator=torch.Generator(),
            layer_norm="param_ln_g" in given,
            dtype=torch.float64,
            **options,
        )
        values = {"input_weights": weights, "recurrent_weights": recurrent, "bias": bias}
        if "param_ln_g" in given:
            values |= {"norm_gain": tensor(given["param_ln_g"]), "norm_bias": tensor(given["param_ln_b"])}
    cell.load_state_dict(values)
    return cell


def one_step(given):
    """Replay of a single step from the golden state."""
    layer = layers.recurrent_layers(cell_of(given))[0]
    states = tuple(tensor(given[key])[None] for key in ("h_prev", "c_prev") if key in given)
    # What comes out of the last step plays no part in its gates.
    return layer.replay(tensor(given["x"])[None, None], torch.zeros_like(states[0])[None], states)


def close(entry, found, expected):
    assert np.asarray(found) == pytest.approx(np.asarray(expected), rel=entry["rtol"], abs=entry["atol"])


def of(*whats):
    return [entry["id"] for entry in GOLDEN["entries"] if entry["what"] in whats]


@pytest.mark.equation("livi2025 Eq. (43)")
@pytest.mark.equation("livi2025 Eq. (54)")
@pytest.mark.equation("livi2025 Eq. (60)")
@pytest.mark.equation("livi2025 Eq. (64)")
@pytest.mark.parametrize("name", of("jacobian"))
def test_golden_jacobians(name):
    entry = ENTRIES[name]
    given, expected = entry["inputs"], entry["expected"]
    replay = one_step(given)
    close(entry, transport.one_step_jacobians(replay)[0, 0], expected["J"])
    A, R = np.array(expected["A"]), np.array(expected["R"])
    H = replay.hidden.shape[2]
    close(entry, replay.retention[0, 0], A[-H:, -H:].diagonal())
    close(entry, replay.mixing[0, 0], R[-H:, :H].diagonal())
    for letter, gate in GATES[given["cell"]].items():
        close(entry, replay.gates[gate][0, 0], expected[letter])
    if "gate_tc" in expected:
        close(entry, replay.gates["cell"][0, 0].tanh(), expected["gate_tc"])


@pytest.mark.parametrize("name", of("jacobian_ln"))
def test_golden_jacobians_with_layer_norm(name):
    entry = ENTRIES[name]
    replay = one_step(entry["inputs"])
    close(entry, transport.one_step_jacobians(replay)[0, 0], entry["expected"]["J"])
    close(entry, (replay.retention + replay.mixing)[0, 0], np.array(entry["expected"]["J"]).diagonal())


@pytest.mark.equation("livi2025 Eq. (35)")
@pytest.mark.equation("livi2025 Eq. (56)")
@pytest.mark.equation("livi2025 Eq. (57)")
@pytest.mark.equation("livi2025 Eq. (58)")
@pytest.mark.parametrize("name", of("transport"))
def test_golden_transports(name):
    entry = ENTRIES[name]
    given, expected = entry["inputs"], entry["expected"]
    lag, t = given["ell"], given["t"]
    seen = layers.capture(cell_of(given), tensor(given["X"])[None])
    close(entry, seen.outputs[0][0], expected["states_h"][1:])
    replay = seen.replay()
    ((_, zeroth, total),) = transport.transport_factors(replay, [lag])
    source = t - lag - 1  # steps are counted from 1 in the paper
    close(entry, zeroth[source, 0], expected["gamma0"])
    close(entry, (total - zeroth)[source, 0], expected["gamma1"])
    close(entry, total[source, 0], expected["gamma"])
    if "aux_rho" in expected:
        ((_, _, auxiliary),) = transport.transport_factors(replay, [lag], auxiliary=True)
        close(entry, auxiliary[source, 0], expected["gamma_with_aux"])
        close(entry, (auxiliary - total)[source, 0], np.add(expected["aux_rho"], expected["aux_eta"]))
    # The last `lag` steps hold a single window, that of the golden entry.
    layer = layers.recurrent_layers(cell_of(given))[0]
    tail = slice(source, t)
    start = (tensor(expected["states_h"][source])[None],)
    last = layer.replay(seen.inputs[0][:, tail], seen.outputs[0][:, tail], start)
    exact = transport.exact_transport(last, [lag])
    close(entry, exact.diagonal[0], np.abs(np.diag(expected["M_exact"])))
    close(entry, exact.envelope[0], expected["exact_diag_l1"])


@pytest.mark.equation("livi2025 Eq. (8)")
@pytest.mark.equation("livi2025 Eq. (45)")
@pytest.mark.equation("livi2025 Eq. (46)")
@pytest.mark.parametrize("name", of("envelope"))
def test_golden_envelopes(name):
    entry = ENTRIES[name]
    given = entry["inputs"]
    (replay,) = layers.replays(cell_of(given), tensor(given["X"])[None])
    # The golden windows are t = l..T: one more step in front adds those that begin at the initial state.
    parts = {name: value for name, value in vars(replay.chain).items() if isinstance(value, torch.Tensor)}
    longer = {name: torch.cat([torch.zeros_like(value[:1]), value]) for name, value in parts.items()}
    auxiliary = given["gru_aux"] and given["cell"] == "gru"
    found, _ = transport.lag_sums(
        replace(replay.chain, **longer), given["lags"], rates=given["lr"], auxiliary=auxiliary
    )
    close(entry, found.envelope, entry["expected"]["f"])


@pytest.mark.equation("livi2025 Eq. (7)")
@pytest.mark.parametrize("name", of("rayleigh"))
def test_golden_base_rates(name):
    entry = ENTRIES[name]
    given = entry["inputs"]
    weights, recurrent, bias = stacked(given, given["cell"], "lambda_")
    rates = {"input_weights": weights, "recurrent_weights": recurrent, "bias": bias}
    replay = one_step(given)
    close(entry, transport.base_rates(replay, rates)[0, 0], entry["expected"]["base_rate"])
    # |b|^2, entry by entry: the squared answers to unit directions along every parameter.
    sizes = {key: value.numel() for key, value in rates.items()}
    basis = torch.eye(sum(sizes.values()), dtype=torch.float64).split(list(sizes.values()), 1)
    every = {key: part.reshape(-1, *rates[key].shape) for key, part in zip(sizes, basis, strict=True)}
    close(entry, transport.sensitivities(replay, every).square().sum(0)[0, 0], entry["expected"]["row_norm2"])


def test_golden_adam_rates():
    entry = ENTRIES["adam_lambda"]
    given = entry["inputs"]
    p = nn.Parameter(torch.zeros(4, dtype=torch.float64))
    optimizer = torch.optim.Adam([p], lr=given["lr"], betas=(0.9, given["beta2"]), eps=given["eps"])
    optimizer.state[p] = {"step": torch.tensor(float(given["step"])), "exp_avg_sq": tensor(given["exp_avg_sq"])}
    close(entry, transport.parameter_rates(optimizer, {"p": p})["p"], entry["expected"]["Lambda"])


@pytest.mark.equation("livi2025 Eq. (9)")
def test_golden_decomposition():
    entry = ENTRIES["envelope_decomposition"]
    gamma, rates = (np.array(entry["inputs"][key]) for key in ("gamma", "base_rate"))
    size = abs(gamma)[None]
    found = transport.Transport(np.array([1]), np.array([1]), size, size, size * rates)
    gates, optimiser = found.decomposition(entry["inputs"]["lr"])
    close(entry, found.envelope[0], entry["expected"]["f"])
    close(entry, gates[0], entry["expected"]["f_gate"])
    close(entry, optimiser[0], entry["expected"]["f_opt"])


def test_every_golden_entry_of_a_model_is_used():
    kinds = {"jacobian", "jacobian_ln", "transport", "envelope", "rayleigh", "lambda", "decomposition"}
    assert len([entry for entry in GOLDEN["entries"] if entry["what"] in kinds]) == 19


@pytest.mark.equation("livi2025 Eq. (62)")
def test_a_shared_gate_adds_a_rank_one_jacobian():
    cell = cells.SharedGate(2, 4, generator=torch.Generator().manual_seed(0), gate=0.3, dtype=torch.float64)
    with torch.no_grad():
        cell.recurrent_weights += torch.randn(5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x = torch.randn(1, 3, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    seen = layers.capture(cell, x)
    J, h, p = transport.one_step_jacobians(seen.replay())[2, 0], seen.outputs[0][0, 1], dict(cell.named_parameters())

    def step(old):
        a = p["input_weights"] @ x[0, 2] + p["recurrent_weights"] @ old + p["bias"]
        s = torch.sigmoid(a[0])
        return (1 - s) * old + s * torch.tanh(a[1:])

    expected = torch.autograd.functional.jacobian(step, h)
    assert (J - expected).abs().max() < EXACT
    a = (p["input_weights"] @ x[0, 2] + p["recurrent_weights"] @ h + p["bias"]).detach()
    s, g, U = torch.sigmoid(a[0]), torch.tanh(a[1:]), p["recurrent_weights"].detach()
    rest = J - (1 - s) * torch.eye(4, dtype=torch.float64) - s * torch.diag(1 - g**2) @ U[1:]
    assert (rest - torch.outer(s * (1 - s) * (g - h), U[0])).abs().max() < EXACT


def lstm_blocks(cell, x):
    """J and A of every step of one sequence in (h, c), by autograd on the equations of torch's documentation."""
    p, H = {name: value.detach() for name, value in cell.named_parameters()}, cell.hidden_size

    def step(x_t, kept, h):
        a = p["weight_ih_l0"] @ x_t + p["bias_ih_l0"] + p["weight_hh_l0"] @ h + p["bias_hh_l0"]
        i, f, o = (torch.sigmoid(a[k * H : (k + 1) * H]) for k in (0, 1, 3))
        c = f * kept + i * torch.tanh(a[2 * H : 3 * H])
        return torch.cat([o * torch.tanh(c), c])

    state, found = torch.zeros(2 * H, dtype=torch.float64), []
    for x_t in x:
        J = torch.autograd.functional.jacobian(lambda s, x_t=x_t: step(x_t, s[H:], s[:H]), state)
        A = J.clone()
        A[:, :H] = 0  # what passes through the recurrent weights comes from the hidden state
        found.append((J, A))
        state = step(x_t, state[H:], state[:H])
    return found


@pytest.mark.equation("livi2025 Eq. (45)")
@pytest.mark.equation("livi2025 Eq. (46)")
def test_lstm_transport_sums_every_product_with_one_pass_through_the_weights():
    torch_cell = nn.LSTM(2, 3, batch_first=True, dtype=torch.float64)
    for k, value in enumerate(torch_cell.parameters()):
        g = torch.Generator().manual_seed(k)
        value.data = torch.randn(value.shape, generator=g, dtype=torch.float64)
    x = torch.randn(1, 8, 2, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    blocks = lstm_blocks(torch_cell, x[0])
    (replay,) = layers.replays(torch_cell, x)
    for lag, zeroth, total in transport.transport_factors(replay, [1, 2, 3, 7]):
        for source in range(8 - lag):
            window = blocks[source + 1 : source + lag + 1]
            expected = []
            for place in [None, *range(lag)]:
                product = torch.eye(6, dtype=torch.float64)
                for k, (J, A) in enumerate(window):
                    product = (J - A if k == place else A) @ product
                expected.append(product[:3, 3:].diagonal())
            assert (zeroth[source, 0] - expected[0]).abs().max() < EXACT
            assert (total[source, 0] - torch.stack(expected).sum(0)).abs().max() < EXACT


@pytest.mark.equation("livi2025 Eq. (3)")
@pytest.mark.equation("livi2025 Eq. (12)")
def test_contributions_sum_to_the_gradient_if_units_do_not_mix():
    # With diagonal recurrent weights and no gate, the Jacobians are diagonal: the zeroth order is the full transport,
    # and the contributions of all lags and units, with that of lag 0, are the gradient itself.
    cell = nn.RNN(2, 3, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(6))
        cell.weight_hh_l0.copy_(torch.diag(tensor([0.9, -0.7, 0.5])))
    x = torch.randn(2, 5, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    target = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)

    class Body(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = cell

        def forward(self, inputs):
            return self.cell(inputs)[0]

    model = Body()
    seen = layers.capture(model, x, target, nn.MSELoss(reduction="none"))
    replay, delta = seen.replay(), seen.deltas[0]
    w = transport.unit_directions(seen.layers[0], 2, generator=torch.Generator().manual_seed(5))
    b = transport.sensitivities(replay, w)
    lags = [1, 2, 3, 4]
    units = unit_contributions(replay, lags, sensitivities=b, deltas=delta)
    weights = (5 - np.array(lags))[:, None]  # means over steps, back to sums
    total = (units * weights).sum((2, 3)) + (b * delta.transpose(0, 1)).sum((1, 3)).numpy()
    for n in range(2):
        loss = (model(x)[n] - target[n]).square().sum()
        grads = torch.autograd.grad(loss, list(seen.layers[0].own.values()))
        expected = sum((w[name] * g).flatten(1).sum(1) for name, g in zip(seen.layers[0].own, grads, strict=True))
        assert abs(total[:, n] - expected.numpy()).max() < EXACT
        exact = transport.forward_gradients(replay, transport.state_sensitivities(replay, w), delta)
        assert abs(exact[:, n] - expected.numpy()).max() < EXACT


@pytest.mark.equation("livi2025 Eq. (7)")
@pytest.mark.equation("livi2025 Eq. (8)")
def test_the_envelope_weights_each_window_by_the_rate_at_its_source():
    cell = cells.DiagGate(2, 3, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    x = torch.randn(3, 6, 2, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    optimizer = torch.optim.RMSprop(cell.parameters(), lr=0.01)
    cell(x).square().sum().backward()
    optimizer.step()
    (replay,) = layers.replays(cell, x)
    rates = transport.base_rates(replay, transport.parameter_rates(optimizer, layers.recurrent_layers(cell)[0].own))
    found = transport.mean_transport(replay, [2, 4], rates=rates)
    for row, (lag, _, gamma) in enumerate(transport.transport_factors(replay, [2, 4])):
        terms = [rates[s] * gamma[s].abs() for s in range(6 - lag)]
        assert found.effective[row] == pytest.approx(torch.stack(terms).mean((0, 1)).numpy(), rel=EXACT)
    assert found.envelope == pytest.approx(found.effective.sum(1), rel=EXACT)


@pytest.mark.parametrize("kind", [cells.DiagGate, cells.PaperGRU, cells.LSTM])
def test_single_precision_agrees_with_double(kind):
    x = torch.randn(4, 64, 3, generator=torch.Generator().manual_seed(8))
    cell = kind(3, 8, generator=torch.Generator().manual_seed(0), layer_norm=True)
    found = []
    for dtype in (torch.float32, torch.float64):
        cell, x = cell.to(dtype), x.to(dtype)
        (replay,) = layers.replays(cell, x)
        (layer,) = layers.recurrent_layers(cell)
        w = transport.unit_directions(layer, 1, generator=torch.Generator().manual_seed(9))
        rates = transport.base_rates(replay, {name: value[0].abs() for name, value in w.items()})
        answers = transport.sensitivities(replay, w)
        assert rates.dtype == answers.dtype == dtype
        found.append((transport.mean_transport(replay, [1, 8, 40], rates=rates), rates.double(), answers.double()))
    (single, *fields), (double, *exact) = found
    # 40 factors, each rounded to 6e-8, of states that differ by as much after 64 steps.
    assert single.total == pytest.approx(double.total, rel=1e-4)
    assert single.effective == pytest.approx(double.effective, rel=1e-4)
    for one, two in zip(fields, exact, strict=True):
        assert (one - two).abs().max() < 1e-4 * two.abs().max()


@pytest.mark.parametrize("swing", [1.0, 15.0])
@pytest.mark.parametrize("kind", [cells.ConstGate, cells.DiagGate, cells.PaperGRU, cells.LSTM])
def test_sums_of_a_model_in_single_precision_are_in_double(kind, swing):
    # Inputs fifteen times as large saturate gates: the product of 100 of them leaves single precision.
    x = swing * torch.randn(3, 128, 3, generator=torch.Generator().manual_seed(8))
    cell = kind(3, 6, generator=torch.Generator().manual_seed(0), **({} if kind is cells.ConstGate else {"gate": None}))
    (replay,) = layers.replays(cell, x)
    derivatives = torch.randn(2, 128, 3, 6, generator=torch.Generator().manual_seed(1))
    deltas = torch.randn(3, 128, 6, generator=torch.Generator().manual_seed(2))
    lags = [1, 2, 5, 30, 100]
    means = transport.mean_transport(replay, lags)
    found = unit_contributions(replay, lags, sensitivities=derivatives, deltas=deltas)
    for row, (lag, zeroth, total) in enumerate(transport.transport_factors(replay, lags)):
        assert means.zeroth[row] == pytest.approx(zeroth.abs().mean((0, 1)).numpy(), rel=1e-12)
        assert means.total[row] == pytest.approx(total.abs().mean((0, 1)).numpy(), rel=1e-12)
        terms = total * deltas.transpose(0, 1)[lag:].double() * derivatives[:, : 128 - lag].double()
        assert np.abs(found[:, :, row] - terms.mean(1).numpy()).max() <= 1e-12 * float(terms.abs().mean(1).max())


def test_very_small_errors_are_not_lost_in_single_precision():
    (replay,) = layers.replays(cells.DiagGate(3, 4, generator=torch.Generator().manual_seed(0)), torch.ones(2, 40, 3))
    derivatives = torch.randn(1, 40, 2, 4, generator=torch.Generator().manual_seed(1))
    deltas = torch.randn(2, 40, 4, generator=torch.Generator().manual_seed(2))
    one = unit_contributions(replay, [1, 20], sensitivities=derivatives, deltas=deltas)
    # Their product, 1e-48, is below its range; rounding of the factors themselves is 6e-8.
    tiny = unit_contributions(replay, [1, 20], sensitivities=1e-24 * derivatives, deltas=1e-24 * deltas)
    assert tiny == pytest.approx(1e-48 * one, rel=1e-4, abs=1e-6 * np.abs(1e-48 * one).max())
