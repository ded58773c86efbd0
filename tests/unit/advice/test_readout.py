"""The readout's flow against plain torch: the tangent kernel by autograd, slopes by backward, an exponential."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import expm
from torch import nn

from learncast.advice.readout import SLOPED, TIMES, Probe, ReadoutFlow, gradient_sizes, readout_time
from learncast.training import CrossEntropy, DecisionAccuracy, HalfSquaredError, MeanSquaredError, Measured
from learncast.training.sources import Batch

STEPS, UNITS = 6, 9


class Reader(nn.Module):
    """A recurrent layer with a linear readout at every step."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(UNITS, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x)[0])


def made(kind: type[nn.RNNBase] = nn.GRU, seed: int = 0) -> Reader:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Reader(kind(2, UNITS, batch_first=True)).double()


def drawn(trials: int, seed: int = 0, answer: str = "sign") -> Batch:
    """The sign of the first input at the last two steps (labels 1 and 2), or of the product of both; 0 before."""
    rng = np.random.default_rng(seed)
    x = rng.choice([-1.0, 1.0], (trials, 1, 2)) * np.ones((1, STEPS, 1)) + 0.05 * rng.standard_normal(
        (trials, STEPS, 2)
    )
    value = x[:, 0, 0] if answer == "sign" else x[:, 0, 0] * x[:, 0, 1]
    y = np.zeros((trials, STEPS), dtype=np.int64)
    y[:, -2:] = 1 + (value > 0)[:, None]
    return Batch(torch.from_numpy(x), torch.from_numpy(y))


GOAL = DecisionAccuracy(0.9, ignore=0)


def one_hot(trials: Batch) -> Batch:
    return trials._replace(targets=nn.functional.one_hot(trials.targets, 3).double())


def test_the_flow_is_that_of_the_tangent_kernel() -> None:
    # J by autograd of the real model's answers in its own readout, then F(t) = Y + exp(-K t) (F0 - Y).
    model, trials, rate = made(), one_hot(drawn(12)), 0.3
    head = {"weight": model.head.weight.detach(), "bias": model.head.bias.detach()}
    states = model.layer(trials.inputs)[0].detach()

    def deciding(weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(states, weight, bias)[:, -2:].reshape(-1)

    parts = torch.autograd.functional.jacobian(deciding, tuple(head.values()))
    jacobian = torch.cat([part.reshape(part.shape[0], -1) for part in parts], 1).numpy()
    kernel = rate * 2 / (12 * STEPS * 3) * jacobian @ jacobian.T
    start, wanted = deciding(**head).detach().numpy(), trials.targets[:, -2:].reshape(-1).numpy()
    probe = Probe.of(model, trials)
    flow = ReadoutFlow.of(probe, GOAL, MeanSquaredError(), learning_rate=rate, adaptive=False)
    for time in (0.0, 3.0, 400.0):
        exact = wanted + expm(-kernel * time) @ (start - wanted)
        # The kernel has rank 10 of 24 in each output: what is left is round-off of two eigensolvers.
        np.testing.assert_allclose(flow.answers(probe, time)[:, -2:].reshape(-1).numpy(), exact, atol=1e-9)


@pytest.mark.parametrize("loss", [CrossEntropy(), MeanSquaredError(), HalfSquaredError()])
def test_the_sizes_of_slopes_are_those_of_backward(loss) -> None:
    model, trials = made(nn.LSTM), drawn(3 * SLOPED)
    trials = trials if isinstance(loss, CrossEntropy) else one_hot(trials)
    square = 0.0
    for first in range(0, 3 * SLOPED, SLOPED):
        model.zero_grad()
        some = trials.rows(slice(first, first + SLOPED))
        loss(model(some.inputs), some.targets).backward()
        square = square + torch.cat([model.head.weight.grad, model.head.bias.grad[:, None]], 1).square() / 3
    torch.testing.assert_close(gradient_sizes(Probe.of(model, trials), loss), square.sqrt(), rtol=1e-10, atol=1e-14)


def test_a_readout_learns_what_its_features_show_and_never_a_product_they_do_not() -> None:
    # A linear layer keeps the sign of an input; no readout of it tells the sign of a product.
    model = made(nn.RNN)
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(0.02)  # tanh is linear there
    times = {
        answer: readout_time(
            Probe.of(model, drawn(256, answer=answer)), GOAL, CrossEntropy(), learning_rate=1e-2, adaptive=True
        )
        for answer in ("sign", "product")
    }
    assert times["sign"] <= TIMES[-1] < times["product"]
    # The time grows with the shortfall: half the decisions are correct by chance.
    assert times["product"] == pytest.approx(TIMES[-1] * 1.4, rel=0.1)


def test_adaptive_optimizers_do_not_see_the_scale_of_the_loss() -> None:
    probe = Probe.of(made(nn.RNN), one_hot(drawn(256)))
    adaptive, plain = (
        [
            readout_time(probe, GOAL, loss, learning_rate=1e-3, adaptive=kind)
            for loss in (MeanSquaredError(), HalfSquaredError())
        ]
        for kind in (True, False)
    )
    assert adaptive[0] == adaptive[1]
    assert plain[0] > plain[1]


def test_measured_goals_are_followed_whichever_way_they_go() -> None:
    def wrong(answers: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (1 + answers[:, -1, 1:].argmax(1) != targets[:, -1]).double().mean()

    probe = Probe.of(made(nn.RNN), drawn(256))
    found = readout_time(probe, Measured(wrong, at_most=0.1), CrossEntropy(), learning_rate=1e-2, adaptive=True)
    assert found < TIMES[-1]


def test_features_are_found_behind_other_layouts_and_heads() -> None:
    class TimeFirstInside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = nn.GRU(2, UNITS), nn.Sequential(nn.Linear(UNITS, 5), nn.ReLU(), nn.Linear(5, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.layer(x.transpose(0, 1))[0]).transpose(0, 1)

    model, trials = TimeFirstInside().double(), drawn(10)
    probe = Probe.of(model, trials)
    assert probe.features.shape == (10, STEPS, 5)
    last = model.head[2]
    torch.testing.assert_close(last(probe.features), model(trials.inputs))
    assert not model.head[2]._forward_pre_hooks
