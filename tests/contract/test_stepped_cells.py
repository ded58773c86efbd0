"""Cells that are defined by their step are trained and diagnosed like cells with known gate equations.

There are two oracles: the equations of the known cells, wrapped so that only their step is visible, and autograd.
Everything is in double precision, where 1e-12 leaves three digits above the rounding of sums of a few dozen terms.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd.functional import jacobian

import learncast as lc
from learncast import InvalidSpec, UnsupportedModel
from learncast.windows import cells, layers, transport

INPUTS, HIDDEN, STEPS, BATCH = 2, 4, 6, 3
EXACT = 1e-12
LAGS = [1, 2, 4]


class OnlyStep(nn.Module):
    """A known cell that offers only its step."""

    def __init__(self, cell: nn.Module, kept=None) -> None:
        super().__init__()
        self.cell, self.input_size, self.hidden_size = cell, INPUTS, HIDDEN
        if kept is not None:
            self.kept = kept

    def step(self, state, input):
        if isinstance(self.cell, nn.RNNBase):
            return self.cell(input[:, None], state[None].contiguous())[0][:, 0]
        drive = nn.functional.linear(input, self.cell.input_weights, self.cell.bias)
        return self.cell._step(drive, state, state, *self.cell._recurrent())[0]

    def forward(self, inputs):
        state, states = inputs.new_zeros(len(inputs), HIDDEN), []
        for x in inputs.unbind(1):
            state = self.step(state, x)
            states.append(state)
        return torch.stack(states, 1)


class Wrapped(OnlyStep):
    """The step of torch's GRU, written out because a fused layer has no forward-mode derivative."""

    def step(self, state, input):
        p = self.cell
        a = nn.functional.linear(input, p.weight_ih_l0, p.bias_ih_l0).chunk(3, 1)
        u = nn.functional.linear(state, p.weight_hh_l0, p.bias_hh_l0).chunk(3, 1)
        r, z = torch.sigmoid(a[0] + u[0]), torch.sigmoid(a[1] + u[1])
        return (1 - z) * torch.tanh(a[2] + r * u[2]) + z * state


def randomised(module: nn.Module, seed: int = 0) -> nn.Module:
    g = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.data = 0.8 * torch.randn(parameter.shape, generator=g, dtype=torch.float64)
    return module.double()


def const(seed=0):
    return randomised(cells.ConstGate(INPUTS, HIDDEN, gate=0.3, generator=torch.Generator().manual_seed(0)), seed)


def known(name: str) -> tuple[nn.Module, nn.Module]:
    """A cell with known equations, and the same cell defined by its step and, if it has one, its gate."""
    g = torch.Generator().manual_seed(0)
    if name == "const":
        cell = const()
        return cell, OnlyStep(cell, lambda state, input: torch.full_like(state, 0.7))
    if name == "diag":
        cell = randomised(cells.DiagGate(INPUTS, HIDDEN, generator=g))

        def kept(state, input):
            a = input @ cell.input_weights.T + cell.bias + state @ cell.recurrent_weights.T
            return 1 - a[:, :HIDDEN].sigmoid()

        return cell, OnlyStep(cell, kept)
    if name == "normed":
        cell = randomised(cells.ConstGate(INPUTS, HIDDEN, gate=0.3, layer_norm=True, generator=g))
        return cell, OnlyStep(cell, lambda state, input: torch.full_like(state, 0.7))
    if name == "paper_gru":
        cell = randomised(cells.PaperGRU(INPUTS, HIDDEN, generator=g))

        def update(state, input):
            a = input @ cell.input_weights.T + cell.bias + state @ cell.recurrent_weights.T
            return 1 - a[:, :HIDDEN].sigmoid()

        return cell, OnlyStep(cell, update)
    cell = randomised(nn.GRU(INPUTS, HIDDEN, batch_first=True))

    def turned(state, input):
        a = input @ cell.weight_ih_l0.T + cell.bias_ih_l0 + state @ cell.weight_hh_l0.T + cell.bias_hh_l0
        return a[:, HIDDEN : 2 * HIDDEN].sigmoid()

    return cell, Wrapped(cell, turned)


X = torch.randn(BATCH, STEPS, INPUTS, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def close(one, other):
    torch.testing.assert_close(
        one, other, rtol=EXACT, atol=EXACT, equal_nan=True
    )  # a unit without a direction gives nan


@pytest.mark.parametrize("name", ["const", "diag", "normed", "paper_gru", "gru"])
def test_forward_mode_agrees_with_the_gate_equations(name):
    cell, seen = known(name)
    (formula,), (forward,) = layers.replays(cell, X), layers.replays(seen, X)
    close(transport.one_step_jacobians(forward), transport.one_step_jacobians(formula))
    close(forward.retention, formula.retention)
    close(forward.mixing, formula.mixing)
    layer = layers.capture(cell, X).layers[0]
    along = transport.unit_directions(layer, 2, generator=torch.Generator().manual_seed(1))
    renamed = {f"cell.{key}": value for key, value in along.items()}
    close(transport.sensitivities(forward, renamed), transport.sensitivities(formula, along))
    g = torch.Generator().manual_seed(3)
    rates = {key: torch.rand(value.shape, generator=g, dtype=torch.float64) for key, value in layer.parameters.items()}
    close(
        transport.base_rates(forward, {f"cell.{key}": value for key, value in rates.items()}),
        transport.base_rates(formula, rates),
    )
    for way in (transport.mean_transport, transport.exact_transport):
        one, other = way(forward, LAGS), way(formula, LAGS)
        np.testing.assert_allclose(one.effective, other.effective, rtol=1e-10)
    deltas = torch.randn(BATCH, STEPS, HIDDEN, generator=g, dtype=torch.float64)
    np.testing.assert_allclose(
        transport.forward_gradients(forward, transport.sensitivities(forward, renamed), deltas),
        transport.forward_gradients(formula, transport.sensitivities(formula, along), deltas),
        rtol=1e-10,
    )


OWN = {
    "tanh": lambda: lc.training.RateRNN(INPUTS, HIDDEN, alpha=0.3, nonlinearity="tanh"),
    "softplus": lambda: lc.training.RateRNN(INPUTS, HIDDEN, nonlinearity="softplus", batch_first=False),
    "low rank": lambda: lc.training.RateRNN(INPUTS, HIDDEN, recurrence="low_rank", rank=1, nonlinearity="tanh"),
    "dale": lambda: lc.training.RateRNN(INPUTS, HIDDEN, recurrence="dale", excitatory=0.75),
    "masked": lambda: lc.training.RateRNN(INPUTS, HIDDEN, recurrence="masked", mask=np.tri(HIDDEN)),
    "minimal GRU": lambda: lc.training.MinimalGRU(INPUTS, HIDDEN),
    "linear": lambda: lc.training.LinearRecurrentUnit(INPUTS, HIDDEN),
    "turning": lambda: lc.training.LinearRecurrentUnit(INPUTS, HIDDEN, turning=True),
}


@pytest.mark.parametrize("name", OWN)
def test_derivatives_of_custom_cells_agree_with_autograd(name):
    cell = OWN[name]().double()
    inputs = X if cell.batch_first else X.transpose(0, 1).contiguous()
    (replay,) = layers.replays(cell, inputs)
    states, last = cell(inputs)
    states = states if cell.batch_first else states.transpose(0, 1)
    assert replay.residual() < EXACT
    close(last[0], states[:, -1])
    found = transport.one_step_jacobians(replay)
    for t in range(1, STEPS):
        for k in range(BATCH):
            expected = jacobian(lambda s, t=t, k=k: cell.step(s[None], X[k, t][None])[0], states[k, t - 1].detach())
            close(found[t, k], expected)
    names = [key for key, _ in cell.named_parameters()]
    along = {key: torch.randn(1, *p.shape, dtype=torch.float64) for key, p in cell.named_parameters()}
    answers = transport.sensitivities(replay, along)
    for t in (0, STEPS - 1):
        before = torch.zeros(BATCH, HIDDEN, dtype=torch.float64) if t == 0 else states[:, t - 1].detach()
        for unit in range(HIDDEN):
            value = cell.step(before, X[:, t])[1, unit]
            slopes = torch.autograd.grad(value, list(cell.parameters()), allow_unused=True, materialize_grads=True)
            expected = sum((g * along[key][0]).sum() for key, g in zip(names, slopes, strict=True))
            close(answers[0, t, 1, unit], expected.detach())


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu", "softplus", "sigmoid", "linear"])
def test_the_rate_network_has_the_same_derivatives_as_a_leaky_cell_and_by_its_step(nonlinearity):
    cell = lc.training.RateRNN(INPUTS, HIDDEN, alpha=0.3, nonlinearity=nonlinearity).double()
    seen = layers.capture(cell, X)
    (layer,), formula = seen.layers, seen.replay()
    stepped = layers.SteppedLayer(cell, layer.own, "").replay(seen.inputs[0], seen.outputs[0])
    assert layer.constant_gate == 0.3
    close(transport.one_step_jacobians(stepped), transport.one_step_jacobians(formula))
    close(stepped.retention, formula.retention)
    close(stepped.mixing, formula.mixing)
    along = transport.unit_directions(layer, 2, generator=torch.Generator().manual_seed(1))
    close(transport.sensitivities(stepped, along), transport.sensitivities(formula, along))
    rates = {key: value[0].abs() for key, value in along.items()}
    close(transport.base_rates(stepped, rates), transport.base_rates(formula, rates))


@pytest.mark.parametrize("name", OWN)
def test_forward_gradients_of_custom_cells_agree_with_backpropagation(name):
    cell = OWN[name]().double()
    model = Readout(cell)
    inputs = X if cell.batch_first else X.transpose(0, 1).contiguous()
    y = torch.randn(BATCH, 1, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    seen = layers.capture(model, inputs, y, lambda answer, target: (answer - target).square().sum(1))
    replay = seen.replay()
    along = {key: torch.randn(1, *p.shape, dtype=torch.float64) for key, p in seen.layers[0].parameters.items()}
    found = transport.forward_gradients(replay, transport.sensitivities(replay, along), seen.deltas[0])
    for k in range(BATCH):
        one = inputs[k : k + 1] if cell.batch_first else inputs[:, k : k + 1]
        loss = (model(one) - y[k]).square().sum()
        slopes = torch.autograd.grad(loss, list(cell.parameters()), allow_unused=True, materialize_grads=True)
        expected = sum((g * a[0]).sum() for g, a in zip(slopes, along.values(), strict=True))
        assert found[0, k] == pytest.approx(float(expected), rel=1e-9, abs=1e-12)


class Readout(nn.Module):
    """Encoder, recurrent layer, head of two layers."""

    def __init__(self, layer: nn.Module, outputs: int = 1) -> None:
        super().__init__()
        self.encoder, self.layer = nn.Linear(INPUTS, INPUTS), layer
        self.head = nn.Sequential(nn.Linear(HIDDEN, 5), nn.Tanh(), nn.Linear(5, outputs))
        self.double()

    def forward(self, x):
        states, _ = self.layer(self.encoder(x))
        return self.head(states[:, -1] if self.layer.batch_first else states[-1])


def test_custom_cells_have_a_window():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 12, INPUTS))
    model = Readout(lc.training.RateRNN(INPUTS, HIDDEN, alpha=0.3, nonlinearity="tanh"))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        (model(torch.tensor(x)) - torch.tensor(x[:, 0, :1])).square().mean().backward()
        optimizer.step()
    found = lc.windows.window(model, x, x[:, 0, :1], optimizer=optimizer)
    assert found.dataset.attrs["cell"] == "const"
    assert np.isfinite(found.dataset["envelope"]).all()


def test_constraints_hold_while_training():
    mask = np.tri(HIDDEN)
    for name, holds in {
        "dale": lambda w: (w[:, :3] >= 0).all() and (w[:, 3:] <= 0).all(),
        "masked": lambda w: not w[mask == 0].any(),
        "low rank": lambda w: np.linalg.matrix_rank(w) == 1,
    }.items():
        readout = nn.Linear(HIDDEN, 1)
        nn.init.normal_(readout.weight, generator=torch.Generator().manual_seed(0))
        model = lc.training.modules.GatedModule(OWN[name](), readout, every_step=False)
        rng = np.random.default_rng(1)
        x = rng.standard_normal((64, 5, INPUTS))
        pair = (x, x.sum((1, 2), keepdims=True)[:, 0])
        run = lc.training.train(pair, model, lc.Training(0.02, optimizer="adam"), steps=60)
        assert float(run["loss"][-1]) < 0.8 * float(run["loss"][0])
        assert holds(run.module.layer.recurrent().detach().numpy())


def test_the_rate_network_is_a_leaky_cell():
    cell = lc.training.RateRNN(INPUTS, HIDDEN, alpha=0.3, nonlinearity="relu", seed=3).double()
    states, _ = cell(X)
    W, U, b = cell.recurrent.weights, cell.input_weights, cell.bias
    h = torch.zeros(HIDDEN, dtype=torch.float64)
    for t in range(STEPS):
        h = 0.7 * h + 0.3 * torch.relu(W @ h + U @ X[1, t] + b)
        close(states[1, t], h)
    resumed, _ = cell(X[:, 3:], states[:, 2][None])
    close(resumed, states[:, 3:])


def test_the_linear_unit_multiplies_by_a_complex_number():
    cell = lc.training.LinearRecurrentUnit(INPUTS, HIDDEN, turning=True, seed=1).double()
    states, _ = cell(X)
    factor = torch.exp(torch.complex(-cell.log_rate.exp(), cell.angle))
    drive = cell.drive(X)
    h = torch.zeros(HIDDEN // 2, dtype=torch.complex128)
    for t in range(STEPS):
        h = factor * h + torch.complex(*drive[0, t].chunk(2))
        close(states[0, t], torch.cat([h.real, h.imag]))


class Broken(OnlyStep):
    """A cell whose step disagrees with its forward pass."""

    def forward(self, inputs):
        return super().forward(inputs) + 0.1


REFUSED = {
    "another step": (lambda: layers.replays(Broken(const()), X), None),
    "odd pairs": (lambda: lc.training.LinearRecurrentUnit(2, 3, turning=True), "hidden_size"),
    "mask": (lambda: lc.training.RateRNN(2, 3, recurrence="masked", mask=np.ones((2, 2))), "mask"),
    "no leak": (lambda: lc.training.RateRNN(2, 3, alpha=0.0), "alpha"),
    "option": (lambda: lc.training.RateRNN(2, 3, rnak=1, recurrence="low_rank"), None),
    "no sequences": (lambda: lc.training.RateRNN(2, 3)(torch.zeros(4, 2)), "inputs"),
    "no cell": (lambda: layers.replays(nn.Linear(2, 2).double(), X), None),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_cells_are_refused_by_name(name):
    attempt, field = REFUSED[name]
    with pytest.raises((InvalidSpec, UnsupportedModel)) as caught:
        attempt()
    assert field is None or caught.value.field == field
