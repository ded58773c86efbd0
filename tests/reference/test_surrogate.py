"""The linear surrogate against cells linearised by hand, autograd, and torch's own optimisers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import learncast as lc
from learncast import Task
from learncast.advice.moments import Moments, MomentStack
from learncast.advice.surrogate import BatchSlopes, descend_surrogate, linear_surrogate
from learncast.training import Source


@pytest.fixture(autouse=True)
def one_thread():
    """Small matrices: on a busy machine torch's threads wait for one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


UNITS, STEPS, INPUTS, OUTPUTS = 5, 6, 2, 3
CASES = [
    ("rnn", 1, False),
    ("rnn", 2, True),
    ("gru", 1, False),
    ("gru", 2, False),
    ("lstm", 1, True),
    ("lstm", 2, False),
]


def model_of(kind, layers=1, every_step=False, **keywords):
    return lc.training.gated_module(
        kind,
        inputs=INPUTS,
        hidden_size=UNITS,
        outputs=OUTPUTS,
        every_step=every_step,
        num_layers=layers,
        seed=3,
        **keywords,
    ).double()


def trials(every_step, n=40):
    """Trials whose means are not zero, so that biases have something to learn."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((n, STEPS, INPUTS)) + 0.3
    y = rng.standard_normal((n, STEPS, OUTPUTS) if every_step else (n, OUTPUTS)) - 0.5
    return x, y + 0.4 * (x.sum(2, keepdims=True) if every_step else x.sum((1, 2))[:, None])


def moments_of(x, y):
    task = Task.from_samples(x, y)
    return Moments.of(task, means=(x.mean(0), np.atleast_2d(y.mean(0))))


def linearised(kind, p, x, layers, every_step):
    """The linearised cells as loops over steps, written from their equations."""
    below = [x[:, t] for t in range(x.shape[1])]
    for k in range(layers):
        W, U = p[f"layer.weight_ih_l{k}"], p[f"layer.weight_hh_l{k}"]
        b, c = p[f"layer.bias_ih_l{k}"], p[f"layer.bias_hh_l{k}"]
        n = U.shape[1]
        h = x.new_zeros(len(x), n)
        cell = x.new_zeros(len(x), n)
        above = []
        for u in below:
            if kind == "rnn":
                h = u @ W.T + h @ U.T + b + c
            elif kind == "gru":
                r, z = torch.sigmoid(b[:n] + c[:n]), torch.sigmoid(b[n : 2 * n] + c[n : 2 * n])
                new = u @ W[2 * n :].T + b[2 * n :] + r * (h @ U[2 * n :].T + c[2 * n :])
                h = z * h + (1 - z) * new
            else:
                i, f, o = (torch.sigmoid((b + c)[j * n : (j + 1) * n]) for j in (0, 1, 3))
                rows = slice(2 * n, 3 * n)
                cell = f * cell + i * (u @ W[rows].T + h @ U[rows].T + (b + c)[rows])
                h = o * cell
            above.append(h)
        below = above
    answers = [h @ p["readout.weight"].T + p["readout.bias"] for h in below]
    return torch.stack(answers, 1) if every_step else answers[-1]


def half_error(kind, p, x, y, layers, every_step):
    return (linearised(kind, p, x, layers, every_step) - y).pow(2).sum() / (2 * len(x))


@pytest.mark.parametrize(("kind", "layers", "every_step"), CASES)
def test_loss_and_gradient_are_those_of_the_linearised_cell(kind, layers, every_step):
    model, (x, y) = model_of(kind, layers, every_step), trials(every_step)
    expected = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}
    loss = half_error(kind, expected, torch.tensor(x), torch.tensor(y), layers, every_step)
    loss.backward()
    surrogate = linear_surrogate(model)
    assert surrogate.every_step is every_step
    stacked = {name: value.requires_grad_() for name, value in surrogate.stacked(2).items()}
    stack = MomentStack.of([moments_of(x, y)])
    filters = surrogate.system(stacked).filters(stack.lags).flatten(2)
    values, slope = stack.loss_and_slope(filters.detach())
    filters.backward(slope.expand_as(filters))
    # Round-off of sums over 40 trials and 6 steps of numbers of order 1.
    np.testing.assert_allclose(values.numpy(), float(loss.detach()), rtol=1e-12)
    for name, value in expected.items():
        for copy in range(2):
            given = torch.zeros_like(value) if stacked[name].grad is None else stacked[name].grad[copy]
            wanted = torch.zeros_like(value) if value.grad is None else value.grad
            np.testing.assert_allclose(given.numpy(), wanted.numpy(), atol=1e-11)


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize(
    ("make", "steps"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.02), 24),
        (lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.8, weight_decay=0.1), 24),
        (lambda p: torch.optim.Adam(p, lr=0.01), 24),
        (lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.8, 0.99), weight_decay=0.1), 24),
        (lambda p: torch.optim.RMSprop(p, lr=0.003), 24),
    ],
)
def test_descent_is_torch_training_of_the_linearised_model(kind, make, steps):
    model, (x, y) = model_of(kind), trials(False)
    inputs, targets = torch.tensor(x), torch.tensor(y)
    expected = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}
    optimizer, losses, states = make(list(expected.values())), [], []
    for _ in range(steps + 1):
        optimizer.zero_grad()
        loss = half_error(kind, expected, inputs, targets, 1, False)
        losses.append(float(loss.detach()))
        states.append({name: value.detach().clone() for name, value in expected.items()})
        loss.backward()
        optimizer.step()
    goal = losses[steps] * (1 + 1e-9)
    first = int(np.argmax(np.array(losses) <= goal))
    assert first > steps // 2
    surrogate, stack = linear_surrogate(model), MomentStack.of([moments_of(x, y)])
    # Two copies: one is given up half way, and must not disturb the other.
    found = descend_surrogate(
        surrogate,
        surrogate.stacked(2),
        stack,
        np.array([[-1.0], [goal]]),
        optimizer=lambda p: make(list(p.values())),
        limits=np.array([steps // 2, steps + 5]),
    )
    assert np.isinf(found[0][0, 0])
    assert found[0][1, 0] == first
    for name, value in found[1][1][0].items():
        # 24 steps of round-off, which the root in an adaptive step can enlarge where a slope is nearly 0.
        np.testing.assert_allclose(value.numpy(), states[first][name].numpy(), atol=1e-10)


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("layers", [1, 2])
def test_filters_are_the_models_own_slope_at_no_input(kind, layers):
    model = model_of(kind, layers)
    with torch.no_grad():  # a drive at rest would bend the units: only the gates keep their biases
        for name, value in model.layer.named_parameters():
            if "bias" in name:
                keep = {"rnn": slice(0, 0), "gru": slice(0, 2 * UNITS), "lstm": slice(0, 2 * UNITS)}[kind]
                value[keep.stop :] = 0.0
    slope = torch.autograd.functional.jacobian(lambda x: model(x)[0], torch.zeros(1, STEPS, INPUTS).double())
    surrogate = linear_surrogate(model)
    filters = surrogate.system(surrogate.stacked(1)).filters(STEPS)[0, :, :, :INPUTS]
    np.testing.assert_allclose(filters.detach().flip(1).numpy(), slope[:, 0].numpy(), atol=1e-14)


@pytest.mark.parametrize("every_step", [False, True])
def test_batch_of_all_trials_has_the_slope_of_their_moments(every_step):
    x, y = trials(every_step)
    filters = torch.tensor(np.random.default_rng(0).standard_normal((2, OUTPUTS, (STEPS + 1) * (INPUTS + 1))))
    short = moments_of(x, y)
    # One lag more than the trials have: it holds nothing, and gets no slope.
    before = ((0, 0), (1, 0), (0, 0))
    padded = moments_of(np.pad(x, before), np.pad(y, before) if every_step else y)
    longer = MomentStack.of([short, padded])
    expected = longer.loss_and_slope(filters)[1][0]
    found = BatchSlopes([Source.of((x, y))], lc.Training(1e-3), 0, STEPS + 1).at(filters, 0)[0]
    np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-11)


def test_parameters_that_do_not_require_a_gradient_stay():
    model = model_of("gru")
    model.readout.weight.requires_grad_(False)
    surrogate = linear_surrogate(model)
    assert "readout.weight" not in surrogate.learns
    x, y = trials(False)
    found = descend_surrogate(
        surrogate,
        surrogate.stacked(1),
        MomentStack.of([moments_of(x, y)]),
        np.array([[1e9, 3.0]]),
        optimizer=lambda p: torch.optim.SGD(list(p.values()), lr=0.05),
        limits=500,
    )
    assert found[0][0, 0] == 0
    state = found[1][0][1]
    assert state is not None
    np.testing.assert_array_equal(state["readout.weight"].numpy(), model.readout.weight.detach().numpy())


class Bare(nn.Module):
    """Weights without biases, steps first inside."""

    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.RNN(INPUTS, UNITS, bias=False), nn.Linear(UNITS, OUTPUTS, bias=False)

    def forward(self, x):
        return self.out(self.cell(x.transpose(0, 1))[0][-1])


def test_model_without_biases_cannot_answer_a_constant():
    surrogate = linear_surrogate(Bare())
    assert not surrogate.has_biases
    assert not surrogate.every_step
    filters = surrogate.system(surrogate.stacked(1)).filters(4)
    assert (filters[..., -1] == 0).all()
    x, y = trials(False)
    task, means = Task.from_samples(x, y), (x.mean(0), y.mean(0)[None])
    rows = x[:, ::-1].reshape(len(x), -1)
    missed = y - rows @ np.linalg.lstsq(rows, y, rcond=None)[0]
    expected = (missed**2).sum() / (2 * len(x))
    # Round-off of normal equations against least squares on the trials themselves.
    assert Moments.of(task, means=means, affine=False).least == pytest.approx(expected, rel=1e-9)
    affine = np.c_[rows, np.ones(len(x))]
    missed = y - affine @ np.linalg.lstsq(affine, y, rcond=None)[0]
    assert Moments.of(task, means=means).least == pytest.approx((missed**2).sum() / (2 * len(x)), rel=1e-9)


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu", "linear", "softplus", "sigmoid"])
def test_rate_network_is_linearised_about_rest(nonlinearity):
    """Loss and gradient against a loop over steps, differentiated by autograd."""
    model = lc.training.gated_module(
        "rate", inputs=INPUTS, hidden_size=UNITS, outputs=OUTPUTS, seed=3, alpha=0.3, nonlinearity=nonlinearity
    ).double()
    surrogate = linear_surrogate(model)
    x, y = trials(False)
    moments = MomentStack.of([moments_of(x, y)])
    moving = {name: value.requires_grad_() for name, value in surrogate.stacked(1).items()}
    filters = surrogate.system(moving).filters(moments.lags).flatten(2)
    loss, slope = moments.loss_and_slope(filters.detach())
    filters.backward(slope)
    f = {"softplus": nn.functional.softplus, "linear": lambda a: a, "relu": lambda a: a}.get(
        nonlinearity, getattr(torch, nonlinearity, None)
    )
    zero = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    level = f(zero)
    bend, level = torch.autograd.grad(level, zero)[0].item(), level.detach()
    p = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}
    h = torch.zeros(len(x), UNITS, dtype=torch.float64)
    for t in range(STEPS):
        current = h @ p["layer.recurrent.weights"].T + torch.tensor(x[:, t]) @ p["layer.input_weights"].T
        h = 0.7 * h + 0.3 * (level.item() + bend * (current + p["layer.bias"]))
    answer = h @ p["readout.weight"].T + p["readout.bias"]
    expected = (answer - torch.tensor(y)).pow(2).sum() / (2 * len(x))
    expected.backward()
    assert float(loss[0]) == pytest.approx(float(expected.detach()), rel=1e-10)
    for name, value in moving.items():
        torch.testing.assert_close(value.grad[0], p[name].grad, rtol=1e-8, atol=1e-10)


def test_moments_of_trials_that_count_in_part_are_plain_sums():
    from learncast.advice.surrogate import written_out

    x, y = trials(True)
    counted = np.random.default_rng(0).integers(0, 2, y.shape[:2]).astype(float)
    rows, wanted = (part.numpy() for part in written_out(torch.tensor(x), torch.tensor(y), STEPS))
    weights = counted.reshape(-1, 1)
    whole = Moments.of_rows([(rows, wanted, None)], trials=len(x), lags=STEPS, inputs=INPUTS)
    reference = moments_of(x, y)
    np.testing.assert_allclose(whole.square, reference.square, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(whole.cross, reference.cross, rtol=1e-10, atol=1e-12)
    assert whole.least == pytest.approx(reference.least, rel=1e-10)
    part = Moments.of_rows([(rows, wanted, weights)], trials=len(x), lags=STEPS, inputs=INPUTS)
    filters = np.random.default_rng(1).standard_normal(part.cross.shape)
    direct = float((weights * (rows @ filters.T - wanted) ** 2).sum()) / (2 * len(x))
    stack = MomentStack.of([part])
    assert float(stack.loss_and_slope(torch.tensor(filters)[None])[0][0]) == pytest.approx(direct, rel=1e-10)
    root = np.sqrt(weights)
    best = np.linalg.lstsq(root * rows, root * wanted, rcond=None)[0]
    assert float((weights * (rows @ best - wanted) ** 2).sum()) / (2 * len(x)) == pytest.approx(part.least, rel=1e-8)
