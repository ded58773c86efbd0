"""Every recurrent layer must be replayed, differentiated and transported exactly.

The oracle is each cell's one-step equation, written out below for a single sequence and differentiated by autograd.
It has separate arguments for the state that leaks (`kept`) and the state that enters through the weights (`seen`). The
equations themselves are compared with torch's own modules. Everything is small and in double precision, so that 1e-12
leaves three digits above the rounding of sums of a few dozen terms of order one.
"""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.autograd.functional import jacobian

from learncast import InvalidSpec
from learncast.windows import cells, layers, transport

INPUTS, HIDDEN, STEPS, BATCH = 2, 3, 5, 2
EXACT = 1e-12

OWN = {
    "const": cells.ConstGate,
    "shared": cells.SharedGate,
    "diag": cells.DiagGate,
    "paper_gru": cells.PaperGRU,
    "lstm": cells.LSTM,
}
TORCH = {
    "torch_gru": (nn.GRU, {}),
    "torch_gru_without_bias": (nn.GRU, {"bias": False}),
    "torch_gru_time_first": (nn.GRU, {"batch_first": False}),
    "torch_gru_two_layers": (nn.GRU, {"num_layers": 2}),
    "torch_lstm": (nn.LSTM, {}),
    "torch_lstm_two_layers_time_first": (nn.LSTM, {"num_layers": 2, "batch_first": False}),
    "torch_rnn": (nn.RNN, {}),
    "torch_rnn_relu": (nn.RNN, {"nonlinearity": "relu"}),
    "torch_rnn_two_layers": (nn.RNN, {"num_layers": 2, "nonlinearity": "relu", "batch_first": False}),
}
NAMES = [*OWN, *(f"{name}_normed" for name in OWN), *TORCH]


class Reader(nn.Module):
    """A recurrent body with something before it and after it; reads every step, or the last state only."""

    def __init__(self, body: nn.Module, last: bool = False) -> None:
        super().__init__()
        self.body, self.last = body, last
        self.before, self.after = nn.Linear(INPUTS, INPUTS), nn.Linear(HIDDEN, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        out = self.body(self.before(inputs))
        if isinstance(out, tuple):
            final = out[1][0] if isinstance(out[1], tuple) else out[1]
            out = final.sum(0) if self.last else out[0]  # the sum reads the last state of every layer
        return self.after(out)


def unit_contributions(replay, lags, **given):
    return transport.lag_sums(replay.chain, lags, **given)[1]


def body(name: str, seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Module:
    g = torch.Generator().manual_seed(seed)
    if name in TORCH:
        kind, options = TORCH[name]
        module = kind(INPUTS, HIDDEN, **{"batch_first": True, **options})
    else:
        module = OWN[name.removesuffix("_normed")](INPUTS, HIDDEN, generator=g, layer_norm=name.endswith("_normed"))
    for parameter in module.parameters():
        # Large enough for every gate to move and every nonlinearity to bend.
        parameter.data = 0.8 * torch.randn(parameter.shape, generator=g, dtype=torch.float64) + (parameter.dim() == 1)
    return module.to(dtype)


def reader(name: str, *, last: bool = False, dtype: torch.dtype = torch.float64) -> Reader:
    model = Reader(body(name, dtype=dtype), last).to(dtype)
    g = torch.Generator().manual_seed(1)
    for parameter in [*model.before.parameters(), *model.after.parameters()]:
        parameter.data = torch.randn(parameter.shape, generator=g, dtype=torch.float64).to(dtype)
    return model


def sequences(name: str, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    x = torch.randn(BATCH, STEPS, INPUTS, generator=torch.Generator().manual_seed(2), dtype=torch.float64).to(dtype)
    return x if TORCH.get(name, (None, {}))[1].get("batch_first", True) else x.transpose(0, 1).contiguous()


def normed(layer, p, a):
    if layer.norm is None:
        return a
    gain, bias = (p[name] for name in layer.norm)
    centred = a - a.mean()
    return gain * centred / (centred.square().mean() + 1e-5).sqrt() + bias


def step(layer, p, x, kept, seen):
    """New state of one sequence; an LSTM's is (h, c)."""
    H = layer.hidden_size
    W, U = p[layer.input_weights], p[layer.recurrent_weights]
    b = p[layer.biases[0]] if layer.biases else torch.zeros(len(W), dtype=x.dtype)
    c = p[layer.biases[1]] if len(layer.biases) > 1 else torch.zeros(len(W), dtype=x.dtype)
    h = seen[:H]
    a, u = W @ x + b, U @ h + c
    sig = torch.sigmoid
    if layer.kind == "const":
        g = torch.tanh(normed(layer, p, a + u))
        return (1 - layer.constant_gate) * kept + layer.constant_gate * g
    if layer.kind in ("shared", "diag"):
        n = 1 if layer.kind == "shared" else H
        # The gate's own factor on the old state counts as kept, its dependence on the old state does not.
        s, g = sig(a + u)[:n], torch.tanh(normed(layer, p, (a + u)[n:]))
        return kept * (1 - s) + s * g
    if layer.kind == "paper_gru":
        z, r = sig(a + u)[:H], sig(a + u)[H : 2 * H]
        g = torch.tanh(normed(layer, p, a[2 * H :] + U[2 * H :] @ (r * h)))
        return (1 - z) * kept + z * g
    if layer.kind == "gru":
        r, z = sig(a + u)[:H], sig(a + u)[H : 2 * H]
        n = torch.tanh(a[2 * H :] + r * u[2 * H :])
        return (1 - z) * n + z * kept
    if layer.kind == "lstm":
        i, f, o = (sig((a + u)[k * H : (k + 1) * H]) for k in (0, 1, 3))
        cell = f * kept[H:] + i * torch.tanh(normed(layer, p, (a + u)[2 * H : 3 * H]))
        return torch.cat([o * torch.tanh(cell), cell])
    return torch.relu(a + u) if layer.kind == "relu" else torch.tanh(a + u)


class Oracle:
    """One layer of one model, unrolled by hand: states and derivatives at every step, by autograd."""

    @classmethod
    @functools.cache
    def of(cls, name, index):
        return cls(layers.capture(reader(name), sequences(name)), index)

    def __init__(self, seen, index):
        self.layer, self.x = seen.layers[index], seen.inputs[index]
        self.p = {name: value.clone() for name, value in self.layer.parameters.items()}
        self.width = self.layer.hidden_size * (2 if self.layer.kind == "lstm" else 1)
        self.states = torch.zeros(BATCH, STEPS + 1, self.width, dtype=torch.float64)
        for n in range(BATCH):
            for t in range(STEPS):
                old = self.states[n, t]
                self.states[n, t + 1] = step(self.layer, self.p, self.x[n, t], old, old)

    @functools.cache  # noqa: B019  (the few oracles live as long as the tests)
    def jacobians(self, t, n):
        """J and its zeroth order A."""
        old = self.states[n, t]
        J = jacobian(lambda s: step(self.layer, self.p, self.x[n, t], s, s), old)
        A = jacobian(lambda s: step(self.layer, self.p, self.x[n, t], s, old), old)
        return J, torch.diag(J.diagonal()) if self.layer.kind in ("tanh", "relu") else A

    def immediate(self, t, n):
        """Immediate derivative of the state by all parameters, (states, parameters)."""
        names = list(self.p)
        old = self.states[n, t]

        def of(*values):
            return step(self.layer, dict(zip(names, values, strict=True)), self.x[n, t], old, old)

        return torch.cat([part.reshape(self.width, -1) for part in jacobian(of, tuple(self.p.values()))], 1)

    def block(self, matrix):
        """From the transported state to the hidden state."""
        H = self.layer.hidden_size
        return matrix[:H, -H:]


def flat(values, lead=()):
    return torch.cat([value.reshape(*lead, -1) for value in values.values()], -1)


LAYERS = [(name, index) for name in NAMES for index in range(2 if "two_layers" in name else 1)]
each_layer = pytest.mark.parametrize(("name", "index"), LAYERS)
each_model = pytest.mark.parametrize("name", NAMES)


@each_model
@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, EXACT), (torch.float32, 1e-5)])
def test_replayed_gates_reproduce_the_module(name, dtype, close):
    # float32: a few dozen sums and a nonlinearity, each rounded to 6e-8, grow at most tenfold over five steps.
    model, x = reader(name, dtype=dtype), sequences(name, dtype)
    seen = layers.capture(model, x)
    for index in range(len(seen.layers)):
        replay = seen.replay(index)
        assert replay.hidden.dtype == dtype
        assert replay.residual() < close
    states = model.body(model.before(x))
    states = states[0] if isinstance(states, tuple) else states
    top = seen.outputs[-1] if x.shape[0] == BATCH else seen.outputs[-1].transpose(0, 1)
    assert (states - top).abs().max() < close


@each_layer
def test_states_follow_the_written_equation(name, index):
    seen, oracle = layers.capture(reader(name), sequences(name)), Oracle.of(name, index)
    hidden = oracle.states[:, 1:, : oracle.layer.hidden_size]
    assert (hidden - seen.outputs[index]).abs().max() < EXACT


@each_layer
def test_one_step_jacobians_equal_autograd(name, index):
    oracle, replay = Oracle.of(name, index), layers.capture(reader(name), sequences(name)).replay(index)
    found = transport.one_step_jacobians(replay)
    H = oracle.layer.hidden_size
    for t in range(STEPS):
        for n in range(BATCH):
            J, A = oracle.jacobians(t, n)
            assert (found[t, n] - J).abs().max() < EXACT
            assert (replay.retention[t, n] - A[-H:, -H:].diagonal()).abs().max() < EXACT
            # Mixing enters the transported state (the last H) from the hidden state (the first H).
            assert (replay.mixing[t, n] - (J - A)[-H:, :H].diagonal()).abs().max() < EXACT


@each_layer
def test_push_forward_multiplies_by_the_jacobian(name, index):
    replay = layers.capture(reader(name), sequences(name)).replay(index)
    J = transport.one_step_jacobians(replay)
    change = torch.randn(4, STEPS, BATCH, J.shape[-1], generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    assert (transport.push_forward(replay, change) - torch.einsum("tnij,ktnj->ktni", J, change)).abs().max() < EXACT


def dense_factors(oracle, lag, t, n):
    """Diagonals of prod A and of the sum of all products with one R, from source t - lag to step t, and prod J."""
    pairs = [oracle.jacobians(j, n) for j in range(t, t - lag, -1)]  # latest first
    chain = torch.linalg.multi_dot if lag > 1 else (lambda ms: ms[0])
    first = sum(chain([J - A if k == j else A for k, (J, A) in enumerate(pairs)]) for j in range(lag))
    zeroth, exact = (chain([pair[k] for pair in pairs]) for k in (1, 0))
    return [oracle.block(m) for m in (zeroth, first, exact)]


@each_layer
def test_transports_equal_dense_products(name, index):
    oracle, replay = Oracle.of(name, index), layers.capture(reader(name), sequences(name)).replay(index)
    lags = [1, 2, 4]
    mean, exact = transport.mean_transport(replay, lags), transport.exact_transport(replay, lags)
    for row, (lag, zeroth, total) in enumerate(transport.transport_factors(replay, lags)):
        sizes = []
        for source in range(STEPS - lag):
            for n in range(BATCH):
                A, R, M = dense_factors(oracle, lag, source + lag, n)
                assert (zeroth[source, n] - A.diagonal()).abs().max() < EXACT
                assert (total[source, n] - (A + R).diagonal()).abs().max() < EXACT
                sizes.append(torch.stack([A.diagonal(), (A + R).diagonal(), M.diagonal()]).abs())
        expected = torch.stack(sizes).mean(0).numpy()
        assert mean.windows[row] == len(sizes)
        for got, want in zip((mean.zeroth, mean.total, exact.diagonal), expected, strict=True):
            assert abs(got[row] - want).max() < EXACT


@each_layer
def test_computations_do_not_change_the_replay(name, index):
    model, x = reader(name), sequences(name)
    seen = layers.capture(model, x, torch.zeros_like(model(x)), nn.MSELoss(reduction="none"))
    replay = seen.replay(index)
    rates = torch.full_like(replay.hidden, torch.nan)
    w = transport.unit_directions(seen.layers[index], 1, generator=torch.Generator().manual_seed(0))

    def compute():
        b = transport.sensitivities(replay, w)
        return (
            transport.mean_transport(replay, [1, 2, 4], rates=rates).total.tobytes(),
            transport.exact_transport(replay, [1, 2, 4], rates=rates).diagonal.tobytes(),
            transport.base_rates(replay, {key: value[0].abs() for key, value in w.items()}).numpy().tobytes(),
            unit_contributions(replay, [1, 2], sensitivities=b, deltas=seen.deltas[index], rates=rates).tobytes(),
            transport.forward_gradients(replay, transport.state_sensitivities(replay, w), seen.deltas[index]).tobytes(),
            rates.numpy().tobytes(),
        )

    assert compute() == compute()


@each_layer
def test_sensitivities_equal_autograd(name, index):
    oracle, replay = Oracle.of(name, index), layers.capture(reader(name), sequences(name)).replay(index)
    w = transport.unit_directions(oracle.layer, 3, generator=torch.Generator().manual_seed(4))
    columns = flat(w, (3,))
    assert (columns.norm(dim=1) - 1).abs().max() < EXACT
    found, cell = transport.state_sensitivities(replay, w), transport.sensitivities(replay, w)
    for t in (0, STEPS // 2, STEPS - 1):
        for n in range(BATCH):
            expected = columns @ oracle.immediate(t, n).t()
            assert (found[:, t, n] - expected).abs().max() < EXACT
            assert (cell[:, t, n] - expected[:, -HIDDEN:]).abs().max() < EXACT


@each_layer
def test_base_rates_equal_the_rayleigh_quotient_of_autograd(name, index):
    model, x = reader(name), sequences(name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    seen = layers.capture(model, x)
    oracle, rates = Oracle(seen, index), transport.parameter_rates(optimizer, seen.layers[index].own)
    found, scale = transport.base_rates(seen.replay(index), rates), flat(rates)
    for t in (0, STEPS // 2, STEPS - 1):
        for n in range(BATCH):
            b = oracle.immediate(t, n)[-HIDDEN:]
            expected = (b.square() @ scale) / b.square().sum(1)
            assert torch.equal(expected.isnan(), found[t, n].isnan())
            # Relative: rates differ by orders of magnitude between parameters.
            assert torch.allclose(found[t, n], expected, rtol=1e-10, atol=0, equal_nan=True)
            known = found[t, n][~found[t, n].isnan()]
            assert ((known >= scale.min() * (1 - EXACT)) & (known <= scale.max() * (1 + EXACT))).all()  # Eq. (65)


def sequence_gradient(model, layer, x, targets, n, batch_axis):
    """The gradient of sequence n's loss by the layer's own parameters, by backpropagation through the real model."""
    loss = (model(x) - targets).square()
    loss = loss.select(batch_axis if loss.dim() == 3 else 0, n).sum()
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(layer.own.values()))])


@each_layer
@pytest.mark.parametrize("last", [False, True])
def test_delta_times_transport_times_sensitivity_is_backpropagation(name, index, last):
    model, x = reader(name, last=last), sequences(name)
    targets = torch.zeros_like(model(x))
    seen = layers.capture(model, x, targets, nn.MSELoss(reduction="none"))
    replay, delta = seen.replay(index), seen.deltas[index]
    w = transport.unit_directions(seen.layers[index], 3, generator=torch.Generator().manual_seed(5))
    J, Bw = transport.one_step_jacobians(replay), transport.state_sensitivities(replay, w)
    axis = 0 if x.shape[0] == BATCH else 1
    fast = transport.forward_gradients(replay, transport.state_sensitivities(replay, w), delta)
    for n in range(BATCH):
        total = torch.zeros(3, dtype=torch.float64)
        for t in range(STEPS):
            M = torch.eye(J.shape[-1], dtype=torch.float64)
            for lag in range(t + 1):
                total += (Bw[:, t - lag, n] @ M.t())[:, :HIDDEN] @ delta[n, t]
                M = M @ J[t - lag, n]
        expected = flat(w, (3,)) @ sequence_gradient(model, seen.layers[index], x, targets, n, axis)
        # Gradients are of order 1 to 100 here, so the bound is relative to their size.
        bound = EXACT * max(1.0, float(expected.abs().max()))
        assert (total - expected).abs().max() < bound
        assert abs(fast[:, n] - expected.numpy()).max() < bound


@each_layer
def test_contributions_are_time_means_of_rate_transport_delta_and_sensitivity(name, index):
    model, x = reader(name), sequences(name)
    seen = layers.capture(model, x, torch.zeros_like(model(x)), nn.MSELoss(reduction="none"))
    replay, delta = seen.replay(index), seen.deltas[index]
    w = transport.unit_directions(seen.layers[index], 2, generator=torch.Generator().manual_seed(6))
    b = transport.sensitivities(replay, w)
    rates = torch.rand(replay.hidden.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    found = unit_contributions(replay, [1, 3], sensitivities=b, deltas=delta, rates=rates)
    for row, (lag, _, gamma) in enumerate(transport.transport_factors(replay, [1, 3])):
        for n in range(BATCH):
            terms = [rates[s, n] * gamma[s, n] * delta[n, s + lag] * b[:, s, n] for s in range(STEPS - lag)]
            assert abs(found[:, n, row] - torch.stack(terms).mean(0).numpy()).max() < EXACT


class Noisy(nn.Module):
    """A model whose forward pass uses random numbers and changes running means."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.norm, self.dropout = nn.BatchNorm1d(2, dtype=torch.float64), nn.Dropout(0.5)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.norm(self.inner(inputs).transpose(1, 2)).transpose(1, 2))


def fingerprint(model):
    modules = list(model.modules())
    return (
        {name: value.clone().numpy().tobytes() for name, value in model.state_dict().items()},
        [None if p.grad is None else p.grad.numpy().tobytes() for p in model.parameters()],
        [(p.requires_grad, id(p)) for p in model.parameters()],
        [(m.training, len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks)) for m in modules],
        torch.random.get_rng_state().numpy().tobytes(),
        torch.is_grad_enabled(),
    )


@each_model
@pytest.mark.parametrize("training", [False, True])
def test_the_model_is_left_unchanged(name, training):
    model, x = Noisy(reader(name)).train(training), sequences(name)
    model(x).sum().backward()
    before = fingerprint(model)
    seen = layers.capture(model, x, torch.zeros(2, 2, dtype=torch.float64), lambda y, _: y.square())
    for index in range(len(seen.layers)):
        replay = seen.replay(index)
        w = transport.unit_directions(seen.layers[index], 1, generator=torch.Generator().manual_seed(0))
        (
            transport.mean_transport(replay, [1]),
            transport.exact_transport(replay, [1]),
            transport.sensitivities(replay, w),
        )
        transport.base_rates(replay, {key: value[0].abs() for key, value in w.items()})
        transport.forward_gradients(replay, transport.state_sensitivities(replay, w), seen.deltas[index])
    assert fingerprint(model) == before


def test_an_interrupted_forward_pass_leaves_no_hooks_behind():
    model = reader("torch_gru")
    before = fingerprint(model)
    with pytest.raises(InvalidSpec) as error:
        layers.capture(model, torch.zeros(BATCH, STEPS, INPUTS + 1, dtype=torch.float64))
    assert error.value.field == "inputs"
    assert fingerprint(model) == before


@pytest.mark.parametrize("name", ["torch_gru", "torch_lstm", "torch_rnn", "torch_gru_two_layers"])
def test_initial_states_given_by_the_model_are_used(name):
    class Warm(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            start = torch.ones(self.inner.num_layers, BATCH, HIDDEN, dtype=x.dtype)
            return self.inner(x, (start, 2 * start) if isinstance(self.inner, nn.LSTM) else start)[0]

    x = sequences(name)
    for replay in layers.replays(Warm(body(name)), x):
        assert replay.residual() < EXACT


@each_model
def test_pooled_chunks_equal_the_mean_over_all(name):
    model, x = reader(name), sequences(name)
    optimizer = torch.optim.Adam(model.parameters())
    model(x).square().sum().backward()
    optimizer.step()
    seen = layers.capture(model, x)
    for index, layer in enumerate(seen.layers):
        rates = transport.parameter_rates(optimizer, layer.own)
        number = seen.outputs[index].shape[0]
        full = seen.replay(index)
        pieces = [full.take(slice(k, k + 1)) for k in range(number)]
        one = transport.mean_transport(full, [1, 3], rates=transport.base_rates(full, rates))
        two = transport.pooled(
            [transport.mean_transport(part, [1, 3], rates=transport.base_rates(part, rates)) for part in pieces]
        )
        assert (one.windows == two.windows).all()
        for field in ("zeroth", "total", "effective"):
            # Sums in another order: rounding only, relative to each value; a dead unit's is exactly 0 in both.
            assert getattr(one, field) == pytest.approx(getattr(two, field), rel=EXACT, abs=0)


@given(st.data())
@settings(max_examples=25 * settings().max_examples // 300, deadline=None)
def test_any_shape_and_any_lags_give_the_plain_product(data):
    name = data.draw(st.sampled_from(["diag", "torch_lstm"]))
    steps = data.draw(st.integers(2, 20))
    lags = sorted(data.draw(st.sets(st.integers(1, steps - 1), min_size=1)))
    batch = data.draw(st.integers(1, 3))
    x = torch.randn(batch, steps, INPUTS, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    (replay,) = layers.replays(body(name), x)
    A, R = replay.retention, replay.mixing
    e = torch.ones_like(A) if replay.output_gate is None else replay.output_gate.slope
    for lag, zeroth, total in transport.transport_factors(replay, lags):
        assert zeroth.shape == (steps - lag, batch, HIDDEN)
        for s in range(steps - lag):
            steps_of = range(s + 1, s + lag + 1)
            product = torch.stack([A[j] for j in steps_of]).prod(0) * e[s + lag]
            assert (zeroth[s] - product).abs().max() < EXACT
            if replay.output_gate is None:
                one = sum(R[j] * torch.stack([A[i] for i in steps_of if i != j] or [e[0]]).prod(0) for j in steps_of)
                assert (total[s] - product - one).abs().max() < EXACT


@pytest.mark.parametrize("name", ["diag_normed", "paper_gru_normed", "torch_lstm"])
def test_probes_estimate_the_exact_transport(name):
    (replay,) = layers.replays(body(name), sequences("diag"))
    lags = [1, 3, 4]
    rates = torch.rand(replay.hidden.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    every = transport.exact_transport(replay, lags, rates=rates)
    probed = transport.exact_transport(replay, lags, rates=rates, probes=HIDDEN)
    # With as many columns as units the diagonal is exact.
    assert abs(probed.diagonal - every.diagonal).max() < EXACT
    assert abs(probed.effective - every.effective).max() < EXACT
    some = transport.exact_transport(replay, lags, rates=rates, probes=2)
    columns = [abs(every.diagonal - column[:, None]).max(axis=0).argmin() for column in some.diagonal.T]
    assert columns == sorted(set(columns))
    assert abs(some.diagonal - every.diagonal[:, columns]).max() < EXACT
    assert abs(some.effective - every.effective[:, columns]).max() < EXACT


def test_copies_of_a_model_give_the_same_layers():
    model = reader("torch_gru_two_layers")
    one, two = layers.recurrent_layers(model), layers.recurrent_layers(copy.deepcopy(model))
    assert [list(layer.own) for layer in one] == [list(layer.own) for layer in two]
    assert list(one[1].own) == [f"body.{part}_l1" for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
