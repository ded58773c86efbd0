"""Ensembles against the trainer, which takes one network at a time through autograd."""

import numpy as np
import pytest
import torch

from learncast import (
    Activated,
    InvalidSpec,
    LinearRNN,
    Loss,
    SchemaMismatch,
    Status,
    Training,
    Trajectory,
    TwoLayer,
    UnsupportedModel,
)
from learncast.training import EnsembleRun, Records, train, train_ensemble

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
    run = train_ensemble(pairs, networks, learning_rate=rates, steps=100, every=7, record=("loss", "weights"))
    assert run.status == (Status.ok,) * 6
    assert run.steps == (100,) * 6
    for k, (network, pair) in enumerate(zip(networks, pairs, strict=True)):
        alone = train(pair, network, Training(float(rates[k])), steps=100, record=Records(every=7))
        same_weights(run.networks[k], alone.network)
        np.testing.assert_allclose(run["loss"][:, k], alone["loss"], rtol=ROUNDING)
        np.testing.assert_array_equal(run.time, alone.time)
        for name, last in zip(("input_weights", "output_weights"), layers(alone.network), strict=True):
            rows, columns = last.shape
            found = run[name].values[-1, k]
            np.testing.assert_allclose(found[:rows, :columns], last, rtol=ROUNDING, atol=ROUNDING)
            assert not found[rows:].any()
            assert not found[:, columns:].any()


def test_shared_trials_and_answers():
    rng = np.random.default_rng(1)
    pair = rng.standard_normal((12, 3)), rng.standard_normal((12, 2))
    weights = [TwoLayer.random(3, 5, 2, scale=0.3, rng=rng) for _ in range(3)]
    networks = [weights[0], Activated(weights[1], "relu"), Activated(weights[2], "tanh")]
    run = train_ensemble(pair, networks, learning_rate=0.05, steps=50, every=20, record=("answers",))
    np.testing.assert_array_equal(run.time, [0, 20, 40, 50])
    for k, network in enumerate(run.networks):
        expected = network.respond(pair[0]) if isinstance(network, Activated) else pair[0] @ network.function.T
        np.testing.assert_allclose(run["answers"][-1, k], expected, rtol=1e-10, atol=1e-12)
        same_weights(network, train(pair, networks[k], Training(0.05, batch=None), steps=50).network)
    assert set(run.dataset.data_vars) == {"answers", "final_loss", "steps"}


def test_each_network_ends_at_its_own_loss():
    networks, pairs, _ = made(6, seed=2)
    began = train_ensemble(pairs, networks, learning_rate=0.05, steps=0)["final_loss"].values
    goals = np.append(0.9 * began[:5], 1e-9)  # noise cannot be fitted to the last of them
    run = train_ensemble(pairs, networks, learning_rate=0.05, steps=400, target_loss=goals, every=50)
    assert run.status == (Status.ok,) * 5 + (Status.not_within,)
    assert len(set(run.steps)) > 3
    for k in range(6):
        settings, record = Training(0.05, most_steps=400), Records(every=50)
        alone = train(pairs[k], networks[k], settings, goal=Loss(float(goals[k])), record=record)
        assert (run.steps[k], run.status[k]) == (alone.steps, alone.status)
        same_weights(run.networks[k], alone.network)
        assert float(run["final_loss"][k]) == pytest.approx(float(alone["loss"][-1]), rel=ROUNDING)
        later = run.time.values >= run.steps[k]
        np.testing.assert_array_equal(run["loss"].values[later, k], float(run["final_loss"][k]))


def test_each_network_has_its_own_number_of_steps():
    networks, pairs, rates = made(3, seed=3)
    run = train_ensemble(pairs, networks, learning_rate=rates, steps=[0, 10, 30])
    assert run.steps == (0, 10, 30)
    same_weights(run.networks[0], networks[0])
    alone = train(pairs[1], networks[1], Training(float(rates[1]), batch=None), steps=10)
    same_weights(run.networks[1], alone.network)


def test_a_diverging_network_harms_no_other():
    networks, pairs, rates = made(6, seed=4)
    wild = rates.copy()
    wild[3] = 50.0  # linear: cubic growth
    calm = train_ensemble(pairs, networks, learning_rate=rates, steps=60)
    run = train_ensemble(pairs, networks, learning_rate=wild, steps=60)
    assert [s is Status.diverged for s in run.status] == [k == 3 for k in range(6)]
    alone = train(pairs[3], networks[3], Training(50.0, batch=None), steps=60)
    assert alone.status is Status.diverged
    assert run.steps[3] == alone.steps < 60
    assert np.isfinite(layers(run.networks[3])[0]).all()
    # The last finite weights are astronomically large; each step cubes the rounding of the one before.
    np.testing.assert_allclose(layers(run.networks[3])[0], layers(alone.network)[0], rtol=1e-9)
    assert np.isnan(run["loss"].values[run.steps[3] :, 3]).all()
    assert np.isfinite(run["loss"].values[: run.steps[3], 3]).all()
    assert not np.isfinite(run["final_loss"][3]) or run["final_loss"][3] > 1e100
    for k in (0, 1, 2, 4, 5):
        same_weights(run.networks[k], calm.networks[k])
        np.testing.assert_allclose(run["loss"][:, k], calm["loss"][:, k], rtol=ROUNDING)


def test_units_at_rest_stay_at_rest():
    """A ReLU unit that no trial reaches has no slope, and one exactly at 0 none either, as in torch."""
    first = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]])
    start = Activated(TwoLayer(first, np.ones((1, 3))), "relu")
    x, y = np.array([[1.0, 0.5], [2.0, -0.5]]), np.ones((2, 1))
    end = train_ensemble((x, y), [start], learning_rate=0.1, steps=20).networks[0]
    np.testing.assert_array_equal(layers(end)[0][1:], first[1:])
    assert not np.allclose(layers(end)[0][0], first[0])


def test_the_run_is_repeatable_saved_and_reported(tmp_path):
    networks, pairs, rates = made(4, seed=5)
    shares = []
    run = train_ensemble(pairs, networks, learning_rate=rates, steps=200, every=10, progress=shares.append)
    again = train_ensemble(pairs, networks, learning_rate=rates, steps=200, every=10)
    assert run.dataset.identical(again.dataset)
    assert run.provenance.spec_hash == again.provenance.spec_hash
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(shares) > 2
    loaded = EnsembleRun.load(run.save(tmp_path / "run.nc"))
    with pytest.raises(SchemaMismatch):
        Trajectory.load(tmp_path / "run.nc")
    np.testing.assert_array_equal(loaded["loss"], run["loss"])
    assert (loaded.status, loaded.steps, repr(loaded)) == (run.status, run.steps, repr(run))
    assert "4 networks" in repr(run)
    assert "4 ok" in repr(run)
    assert "torch" in run.provenance.versions
    for variable in run.dataset.data_vars.values():
        assert {"long_name", "units"} <= set(variable.attrs)


def test_torch_keeps_its_threads():
    networks, pairs, _ = made(2)
    torch.set_num_threads(2)
    train_ensemble(pairs, networks, learning_rate=0.01, steps=1)
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"networks": []}, "networks"),
        ({"trials": np.ones((3, 2))}, "trials"),
        ({"trials": [(np.ones((3, 2)), np.ones((3, 1)))] * 3}, "trials"),
        ({"trials": (np.ones((3, 4)), np.ones((3, 1)))}, "trials"),
        ({"trials": (np.ones((3, 2)), np.ones((4, 1)))}, "targets"),
        ({"learning_rate": [0.1, 0.1, 0.1]}, "learning_rate"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"target_loss": -1.0}, "target_loss"),
        ({"steps": 1.5}, "steps"),
        ({"steps": -1}, "steps"),
        ({"every": 0}, "every"),
        ({"record": ("strength",)}, "record"),
    ],
)
def test_invalid_arguments_are_refused_by_name(changes, field):
    networks = [TwoLayer.random(2, 3, 1, scale=0.1, rng=np.random.default_rng(0))] * 2
    given = {"trials": (np.ones((3, 2)), np.ones((3, 1))), "networks": networks, "learning_rate": 0.1, "steps": 1}
    given |= changes
    with pytest.raises(InvalidSpec) as caught:
        train_ensemble(given.pop("trials"), given.pop("networks"), **given)
    assert caught.value.field == field


def test_only_two_layers_stack():
    rnn = LinearRNN(np.ones((1, 1)), np.zeros((1, 1)), np.ones((1, 1)))
    with pytest.raises(UnsupportedModel):
        train_ensemble((np.ones((3, 1)), np.ones((3, 1))), [rnn], learning_rate=0.1, steps=1)
