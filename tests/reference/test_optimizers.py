"""Steps of optimisers and of torch.nn.MSELoss, held to torch on the raw trials."""

import numpy as np
import pytest

import learncast as lc

torch = pytest.importorskip("torch")

RATES = {"gd": 0.05, "momentum": 0.01, "adam": 0.02, "adamw": 0.02, "rmsprop": 0.01}


def torch_steps(x, y, network, optimizer, rate, loss, share):
    """Full-batch training of the network in torch until the share of the explainable variance is learned."""
    x, y = torch.tensor(x), torch.tensor(y)
    first, second = (torch.tensor(np.array(w), requires_grad=True) for w in network.maps)
    memory = network.scalar_recurrence ** torch.arange(x.shape[1] - 1, -1, -1, dtype=x.dtype)
    pooled = torch.einsum("ptc,t->pc", x, memory)
    kinds = {
        "gd": lambda w: torch.optim.SGD(w, rate),
        "momentum": lambda w: torch.optim.SGD(w, rate, momentum=0.9),
        "adam": lambda w: torch.optim.Adam(w, rate),
        "adamw": lambda w: torch.optim.AdamW(w, rate),
        "rmsprop": lambda w: torch.optim.RMSprop(w, rate),
    }
    rule = kinds[optimizer]([first, second])

    def half(m):
        return 0.5 * ((pooled @ m.T - y) ** 2).sum(dim=1).mean()

    best = torch.linalg.lstsq(pooled, y).solution.T
    least, zero = half(best), half(torch.zeros_like(best))
    for n in range(20_000):
        if half(second @ first) <= least + (1 - share) * (zero - least):
            return n
        rule.zero_grad()
        answers = pooled @ (second @ first).T
        (torch.nn.MSELoss()(answers, y) if loss == "mse" else half(second @ first)).backward()
        rule.step()
    return np.inf


def trials():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 5, 4))
    return x, x.sum(axis=1) @ rng.normal(size=(4, 3)) + 0.5 * rng.normal(size=(60, 3))


@pytest.mark.parametrize("loss", ["half_mse", "mse"])
@pytest.mark.parametrize("optimizer", RATES)
def test_forecast_steps_are_those_of_torch(optimizer, loss):
    x, y = trials()
    network = lc.LinearRNN.random(4, 16, 3, scale="torch", recurrence=0.8)
    rate = RATES[optimizer]
    training = lc.Training(rate, optimizer=optimizer, loss=loss)
    found = lc.forecast((x, y), network, training, goal=0.95)
    expected = torch_steps(x, y, network, optimizer, rate, loss, 0.95)
    assert found.steps.descent == expected
    assert found.steps.status is lc.Status.ok
    curve = found.learning_curve(points=10)
    assert float(curve["loss"].sel(time=expected)) <= curve.attrs["goal_loss"] * (1 + 1e-9)
    assert float(curve["loss"].sel(time=expected, method="ffill")) >= 0


def test_targets_at_every_step_scale_the_mean_squared_error():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(50, 4, 3))
    y = np.cumsum(x, axis=1)[..., :2]
    network = lc.LinearRNN.random(3, 8, 2, scale="torch", recurrence=0.9)
    mean = lc.forecast((x, y), network, lc.Training(0.1, loss="mse"), goal=0.9)
    half = lc.forecast((x, y), network, lc.Training(0.1 * 2 / 8), goal=0.9)
    assert mean.steps == half.steps
    assert mean.learning_rate == pytest.approx(half.learning_rate)
    assert mean.safe_rate.learning_rate == pytest.approx(half.safe_rate.learning_rate * 4)


def test_a_goal_in_units_of_the_loss_needs_half_the_squared_error():
    x, y = trials()
    network = lc.LinearRNN.random(4, 16, 3, recurrence=0.8)
    for optimizer in ("gd", "adam"):
        with pytest.raises(lc.InvalidSpec) as caught:
            _ = lc.forecast((x, y), network, lc.Training(0.01, loss="mse", optimizer=optimizer), lc.Loss(0.5)).steps
        assert caught.value.field == "goal"
