"""Ensembles against the trainer, which takes one network at a time through autograd."""

import numpy as np
import pytest
import torch

from learncast import Activated, Training, TwoLayer
from learncast.training import Records, train
from learncast.training.ensembles import train_ensemble

KINDS = (None, "relu", "tanh")
#: Sums in another order: a few units of the last place at each step, and descent on these losses does not amplify them.
ROUNDING = 1e-12


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def made(number, seed=0, scale=0.4):
    """Networks of all kinds and many sizes, each with trials of its own."""
    rng, networks, pairs = np.random.default_rng(seed), [], []
    for k in range(number):
        inputs, hidden, outputs = (int(n) for n in rng.integers(1, 7, 3))
        trials, kind = int(rng.integers(5, 30)), KINDS[k % 3]
        weights = TwoLayer.random(inputs, hidden, outputs, scale=scale, rng=rng)
        networks.append(weights if kind is None else Activated(weights, kind))
        pairs.append((rng.standard_normal((trials, inputs)), rng.standard_normal((trials, outputs))))
    return networks, pairs, rng.uniform(0.01, 0.1, number)


def layers(network):
    found = network.network if isinstance(network, Activated) else network
    return found.first, found.second


def same_weights(one, other):
    assert type(one) is type(other)
    for a, b in zip(layers(one), layers(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=ROUNDING, atol=ROUNDING)


def test_each_network_learns_as_it_would_alone():
    networks, pairs, rates = made(6)
    losses, trained = train_ensemble(pairs, networks, learning_rates=rates, steps=100, every=7)
    for k, (network, pair) in enumerate(zip(networks, pairs, strict=True)):
        alone = train(pair, network, Training(float(rates[k])), steps=100, record=Records(every=7))
        same_weights(trained[k], alone.network)
        np.testing.assert_allclose(losses[:, k], alone["loss"], rtol=ROUNDING)


def test_networks_of_every_kind_share_trials():
    rng = np.random.default_rng(1)
    pair = rng.standard_normal((12, 3)), rng.standard_normal((12, 2))
    weights = [TwoLayer.random(3, 5, 2, scale=0.3, rng=rng) for _ in range(3)]
    networks = [weights[0], Activated(weights[1], "relu"), Activated(weights[2], "tanh")]
    losses, trained = train_ensemble([pair] * 3, networks, learning_rates=[0.05] * 3, steps=50, every=20)
    assert losses.shape == (4, 3)  # steps 0, 20, 40 and 50
    for start, network in zip(networks, trained, strict=True):
        same_weights(network, train(pair, start, Training(0.05, batch=None), steps=50).network)


def test_without_steps_every_network_stays_at_its_start():
    networks, pairs, rates = made(3, seed=3)
    losses, trained = train_ensemble(pairs, networks, learning_rates=rates, steps=0)
    for start, network in zip(networks, trained, strict=True):
        same_weights(network, start)
    assert losses.shape == (1, 3)


def test_a_diverging_network_harms_no_other():
    networks, pairs, rates = made(6, seed=4)
    wild = rates.copy()
    wild[3] = 50.0  # linear: cubic growth
    calm_losses, calm = train_ensemble(pairs, networks, learning_rates=rates, steps=60)
    losses, trained = train_ensemble(pairs, networks, learning_rates=wild, steps=60)
    assert np.isfinite(layers(trained[3])[0]).all()
    assert not losses[-1, 3] < 1e100
    for k in (0, 1, 2, 4, 5):
        same_weights(trained[k], calm[k])
        np.testing.assert_allclose(losses[:, k], calm_losses[:, k], rtol=ROUNDING)


def test_units_at_rest_stay_at_rest():
    """A ReLU unit that no trial reaches has no slope, and one exactly at 0 none either, as in torch."""
    first = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]])
    start = Activated(TwoLayer(first, np.ones((1, 3))), "relu")
    x, y = np.array([[1.0, 0.5], [2.0, -0.5]]), np.ones((2, 1))
    _, (end,) = train_ensemble([(x, y)], [start], learning_rates=[0.1], steps=20)
    np.testing.assert_array_equal(layers(end)[0][1:], first[1:])
    assert not np.allclose(layers(end)[0][0], first[0])


def test_the_run_is_repeatable_and_reported():
    networks, pairs, rates = made(4, seed=5)
    shares = []
    losses, _ = train_ensemble(pairs, networks, learning_rates=rates, steps=200, every=10, progress=shares.append)
    again, _ = train_ensemble(pairs, networks, learning_rates=rates, steps=200, every=10)
    np.testing.assert_array_equal(losses, again)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(shares) > 2


def test_torch_keeps_its_threads():
    networks, pairs, rates = made(2)
    torch.set_num_threads(2)
    train_ensemble(pairs, networks, learning_rates=rates, steps=1)
    assert torch.get_num_threads() == 2
