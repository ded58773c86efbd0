"""Models whose learnability window is known: pure noise, a constant gate, a linear leaky unit, a line of memory."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from learncast import windows
from learncast.windows import Batching, DetectionRule, Measurement, example_model

NULLS = 99


def null_windows(kind, repeats, *, memory=2**28):
    """Reach of models on data whose errors have a random sign per sequence: no lag has a signal."""
    model = example_model.build_model(kind, inputs=2, outputs=1, hidden_size=6, seed=3)
    reaches = []
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        inputs = rng.standard_normal((128 if memory else 256, 24, 2))
        targets = np.zeros((len(inputs), 24, 2))
        targets[:, 3:, 0] = 3 * inputs[:, :-3, 0]
        targets[:, :, 1] = rng.choice([-1.0, 1.0], size=len(inputs))[:, None]
        found = windows.window(
            model,
            inputs,
            targets,
            measurement=Measurement(
                loss=lambda answers, t: t[..., 1:] * (answers - t[..., :1]).square(),
                lags=[1, 2, 3, 5, 8, 13],
                directions=1,
            ),
            rule=DetectionRule(nulls=NULLS, seed=seed),
            batching=Batching(memory=memory),
        )
        reaches.append(float(found["reach"][0]))
    return np.array(reaches)


@pytest.mark.parametrize("kind", example_model.KINDS)
def test_sign_flipped_data_have_no_window(kind):
    # Each null passes with probability at most 1 / 100, so 3 of 8 by chance in 1 of 18,000 cases.
    assert (null_windows(kind, 8) != 0).sum() <= 2


def test_sign_flipped_data_have_no_window_if_the_first_half_gives_the_signs():
    assert (null_windows("gru", 8, memory=0) != 0).sum() <= 2  # as above


@pytest.mark.slow
@pytest.mark.parametrize("memory", [2**28, 0])
@pytest.mark.parametrize("kind", example_model.KINDS)
def test_sign_flipped_data_have_no_window_in_200_nulls(kind, memory):
    # At most 1 in 100 by construction, so more than 10 of 200 by chance in 1 of 100,000 cases.
    assert (null_windows(kind, 200, memory=memory) == 0).mean() >= 0.95


def test_the_same_data_without_flips_have_a_window():
    model = example_model.build_model("gru", inputs=2, outputs=1, hidden_size=6, seed=3)
    inputs = np.random.default_rng(0).standard_normal((128, 24, 2))
    targets = np.zeros((128, 24, 1))
    targets[:, 3:, 0] = 3 * inputs[:, :-3, 0]
    found = windows.window(
        model,
        inputs,
        targets,
        measurement=Measurement(lags=[1, 2, 3, 5, 8, 13], directions=1),
        rule=DetectionRule(nulls=NULLS),
    )
    assert float(found["score"].sel(lag=3, layer=0)) > float(found["critical_score"][0])
    assert float(found["reach"][0]) >= 3


@pytest.mark.parametrize("gate", [0.05, 0.3])
def test_a_constant_gate_has_one_time_scale(gate):
    model = example_model.build_model("const-gate", inputs=2, outputs=1, hidden_size=4, seed=0, gate=gate).double()
    rng = np.random.default_rng(0)
    inputs, targets = rng.standard_normal((32, 40, 2)), rng.standard_normal((32, 40, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    found = windows.window(
        model,
        inputs,
        targets,
        optimizer=optimizer,
        measurement=Measurement(order=0, directions=1),
        rule=DetectionRule(nulls=19),
    )
    here = found.dataset.isel(layer=0)
    # Products of one number: only rounding, of the gate itself to single precision nowhere.
    np.testing.assert_allclose(here["time_scale"], -1 / math.log1p(-gate), rtol=1e-10)
    np.testing.assert_allclose(here["envelope"], 0.2 * 4 * (1 - gate) ** here["lag"].values, rtol=1e-12)
    assert str(here["decay_kind"].values) == "exponential"
    assert float(here["decay_rate"]) == pytest.approx(-math.log1p(-gate), rel=1e-9)


class Leaky(nn.Module):
    """One linear unit h <- a h + x + b above the kink of its ReLU, with a readout that is almost 0."""

    retention, drive, weight = 0.8, 2.4, 1e-4

    def __init__(self):
        super().__init__()
        self.unit = nn.RNN(1, 1, nonlinearity="relu", batch_first=True, dtype=torch.float64)
        values = (1.0, self.retention, self.drive, 0.0)
        for parameter, value in zip(self.unit.parameters(), values, strict=True):
            nn.init.constant_(parameter, value)

    def forward(self, inputs):
        return self.weight * (self.unit(inputs)[0] - self.drive / (1 - self.retention))


def test_a_linear_unit_learns_exactly_as_far_as_its_task():
    """With targets x_{t-6} the mean contribution of lag l is w a^l times the covariance of the target and b_{t-l}.

    b = (x_{t-l}, h_{t-l-1}, 1, 1): nothing covaries beyond lag 6, x only at lag 6, and h by a^(6 - l - 1) before,
    so that the signal is w a^5 |d_h| at every lag below 6, w a^6 |d_x| at 6 and 0 beyond.
    """
    lag, burn = 6, 40  # after 40 steps the start of the unit has decayed to 1e-4
    inputs = np.random.default_rng(1).standard_normal((3000, 80, 1))
    targets = np.zeros_like(inputs)
    targets[:, lag:] = inputs[:, :-lag]
    found = windows.window(
        Leaky(),
        inputs,
        targets,
        measurement=Measurement(
            loss=lambda answers, t: ((answers - t).square() / 2)[:, burn:], lags=range(1, 13), directions=1
        ),
    )
    here = found.dataset.isel(layer=0)
    np.testing.assert_allclose(here["envelope"], Leaky.retention ** here["lag"].values, rtol=1e-12)  # rounding
    # A lag beyond passes by chance in 1 of 201 cases; those before have scores of 8 and more.
    assert float(here["reach"]) == float(here["contiguous_reach"]) == lag
    below = here.sel(lag=slice(1, lag - 1))
    flat = float(below["signal"].isel(lag=-1))
    half = (below["signal_interval"].isel(side=1) - below["signal_interval"].isel(side=0)) / 2
    # Two estimates differ by less than 4 standard errors of the worse one, doubled: by chance in 1 of 200 per lag.
    assert (np.abs(below["signal"] - flat) < 2.9 * half).all()
    needed = here["required_sequences"].sel(noise="per_lag")
    assert (needed.sel(lag=slice(1, lag)) < 3000).all()
    assert needed.sel(lag=slice(lag + 1, None)).isnull().all()


def test_a_lag_needs_as_many_sequences_as_its_score_says():
    """For normal noise N = n (critical / score)^2: the number at which the score is just critical."""
    inputs = np.random.default_rng(1).standard_normal((2000, 80, 1))
    targets = np.zeros_like(inputs)
    targets[:, 6:] = inputs[:, :-6]
    found = windows.window(
        Leaky(),
        inputs,
        targets,
        measurement=Measurement(loss=lambda answers, t: (answers - t).square()[:, 40:], lags=[4, 5, 6], directions=1),
    )
    here = found.dataset.isel(layer=0)
    significant = (here["tail_index"] == 2) & (here["score"] > here["critical_score"])
    assert significant.any()
    expected = 2000 * (here["critical_score"] / here["score"]) ** 2
    needed = here["required_sequences"].sel(noise="per_lag")
    # Score and scale both divide by n - 1, then one by n: they differ by 1 / n at most.
    np.testing.assert_allclose(needed[significant.values], expected[significant.values], rtol=2 / 2000)
