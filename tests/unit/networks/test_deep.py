"""Deep networks: weights, starts, and answers through the interfaces."""

import numpy as np
import pytest
import torch

import learncast as lc


def trials(rng, steps=1):
    x = rng.standard_normal((40, steps, 3))
    return x, x.sum(axis=1)[:, :2] + 0.2 * rng.standard_normal((40, 2))


@pytest.mark.parametrize(
    ("weights", "field"),
    [
        ([np.eye(2)], "weights"),
        ([np.eye(2), np.ones((2, 3))], "weights"),
        ([np.eye(2), np.zeros((0, 2))], "weights"),
        ([np.eye(2), [[np.nan, 0.0]]], "weights[1]"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights, field):
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.Deep(tuple(weights))
    assert caught.value.field == field


@pytest.mark.parametrize("hidden", [(), 3, (3, 0), "ab"])
def test_hidden_sizes_are_a_list_of_widths(hidden):
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.Deep.random(3, hidden, 2, scale=0.1)
    assert caught.value.field == "hidden_sizes"


def test_starts_have_the_shapes_and_the_balance_that_they_promise():
    for make in (lc.Deep.random, lc.Deep.balanced):
        network = make(5, (4, 2, 6), 3, scale=0.3, rng=1)
        assert network.widths == (5, 4, 2, 6, 3)
        assert (network.layers, network.inputs, network.outputs, network.hidden_size) == (4, 5, 3, 2)
    assert network.imbalance_share < 1e-14
    first, second = network.maps
    np.testing.assert_allclose(second @ first, network.function, atol=1e-15)
    torch_like = lc.Deep.random(400, (100,), 2, scale="torch", rng=0)
    assert np.abs(torch_like.weights[0]).max() == pytest.approx(400**-0.5, rel=1e-3)


def test_an_aligned_start_lies_on_the_modes_with_their_signs():
    task = lc.tasks.static([[0.0, -2.0], [1.0, 0.0], [0.0, 0.0]])
    network = lc.Deep.aligned((3, 2), task=task, initial=[0.5, 0.2])
    np.testing.assert_allclose(network.function, [[0.0, -(0.5**3)], [0.2**3, 0.0], [0.0, 0.0]], atol=1e-16)
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.Deep.aligned((3, 1), task=task)
    assert caught.value.field == "hidden_sizes"


def test_the_weights_of_a_torch_module_are_copied():
    parts = [torch.nn.Linear(3, 4, bias=False), torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 2, bias=False)]
    module = torch.nn.Sequential(*parts).double()
    network = lc.Deep.from_module(module)
    x = np.random.default_rng(0).standard_normal((7, 3))
    np.testing.assert_allclose(network.respond(x), module(torch.tensor(x)).detach().numpy(), atol=1e-14)
    for bad in (torch.nn.Linear(3, 4), torch.nn.Sequential(parts[0], torch.nn.ReLU(), parts[2])):
        with pytest.raises(lc.UnsupportedModel):
            lc.Deep.from_module(bad)
    with pytest.raises(lc.UnsupportedModel):
        lc.TwoLayer.from_module(module)


def test_a_recurrence_pools_the_inputs():
    rng = np.random.default_rng(0)
    network = lc.Deep.random(3, (4, 4), 2, scale=0.5, recurrence=0.8, rng=0)
    x, _ = trials(rng, steps=4)
    every = network.respond(x, every_step=True)
    z = sum(0.8 ** (3 - t) * x[:, t] for t in range(4))
    np.testing.assert_allclose(network.respond(x), z @ network.function.T, atol=1e-14)
    np.testing.assert_allclose(every[:, -1], network.respond(x), atol=1e-14)
    module = lc.training.as_module(network, every_step=True)
    np.testing.assert_allclose(module(torch.tensor(x)).detach().numpy(), every, atol=1e-14)


def test_a_network_without_recurrence_needs_one_step():
    task = lc.tasks.integration(steps=3)
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.forecast(task, lc.Deep.random(1, (2, 2), 1, scale=0.1), learning_rate=1e-3)
    assert caught.value.field == "task"


def test_only_layers_of_the_network_learn():
    task = lc.tasks.static([[1.0]])
    for learn in (("layer1", "layer4"), ("first",), ()):
        with pytest.raises(lc.InvalidSpec) as caught:
            lc.forecast(task, lc.Deep.random(1, (2, 2), 1, scale=0.1), lc.Training(1e-2, learn=learn))
        assert caught.value.field == "learn"


def test_two_hashes_agree_only_for_the_same_weights_and_recurrence():
    one = lc.Deep.random(2, (3,), 2, scale=0.1, rng=0)
    assert one.hash == lc.Deep(one.weights).hash
    assert len({one.hash, lc.Deep(one.weights, 0.9).hash, lc.Deep.random(2, (3,), 2, scale=0.1, rng=1).hash}) == 3


@pytest.mark.parametrize("learn", [None, ("layer1",), ("layer2", "layer3"), ("layer1", "layer3")])
@pytest.mark.parametrize("steps", [1, 3])
def test_torch_training_is_the_descent_that_is_forecast(steps, learn):
    x, y = trials(np.random.default_rng(1), steps)
    task, training = lc.Task.from_samples(x, y), lc.Training(0.02, learn=learn)
    network = lc.Deep.random(3, (4, 3), 2, scale=0.5, recurrence=None if steps == 1 else 0.9, rng=2)
    forecast = lc.forecast(task, network, training, goal=lc.Explained(0.9))
    run = lc.training.train(task, network, training, goal=lc.Explained(0.9))
    assert run.steps == forecast.steps.descent
    curve = lc.descend(task, network, training, steps=int(run.steps))
    for name, w in curve.network_at(run.steps).named_weights.items():
        np.testing.assert_allclose(run.network.named_weights[name], w, atol=1e-9)
        assert np.array_equal(w, network.named_weights[name]) == (learn is not None and name not in learn)
    assert float(run.dataset["loss"][-1]) == pytest.approx(curve.loss[-1], abs=1e-9)


def test_a_phase_portrait_and_forgetting_are_those_of_the_stages():
    task = lc.tasks.integration(steps=10)
    network = lc.Deep.aligned((3, 3), task=task, initial=0.2, recurrence=0.9)
    portrait = lc.phase(task, network, vary="target_strength", values=[2.0], accuracies=[0.5], learning_rate=2e-3)
    stronger = task.varied(target_strength=2.0)
    made = lc.follow([lc.Stage(stronger, 0.5), lc.Stage(task, 0.99)], network, learning_rate=2e-3)
    saved = made.direct.descent - made.total.descent
    assert float(portrait["saved_descent_steps"].values.squeeze()) == saved
    forgotten = lc.forget([task, stronger], network, steps=[400, 300], learning_rate=2e-3)
    states = [network]
    for one, steps in ((task, 400), (stronger, 300)):
        states.append(lc.descend(one, states[-1], learning_rate=2e-3, steps=steps).network_at(steps))
    losses = [lc.descend(task, state, learning_rate=2e-3, steps=0).loss[0] for state in states]
    np.testing.assert_allclose(forgotten.losses().values[:, 0], losses, rtol=1e-9)


@pytest.mark.parametrize(
    ("start", "learn"),
    [
        ("aligned", None),
        ("balanced", None),
        ("random", None),
        ("random", ("layer1", "layer3")),
        ("aligned", ("layer2",)),
    ],
)
def test_a_study_gives_the_forecast_of_python(tmp_path, start, learn):
    file = tmp_path / "deep.toml"
    file.write_text(
        "[target]\nfamily = 'static'\ncross_correlation = [[1.0, 0.0], [0.0, 0.5], [0.0, 0.1]]\n"
        f"[network]\nkind = 'deep'\nlayers = 4\nhidden_size = [3, 2, 4]\nstart = '{start}'\nscale = 0.6\nseed = 3\n"
        "[training]\nlearning_rate = 0.02\naccuracy = 0.9\n" + ("" if learn is None else f"learn = {list(learn)}\n")
    )
    from learncast.study import Study

    study = Study.load(file)
    task, hidden = study.target, (3, 2, 4)
    network = (
        lc.Deep.aligned(hidden, task=task, initial=0.6)
        if start == "aligned"
        else getattr(lc.Deep, start)(2, hidden, 3, scale=0.6, rng=3)
    )
    assert study.network.hash == network.hash
    found = lc.forecast(task, study.network, study.training, study.goal).steps.descent
    training = lc.Training(0.02, learn=learn)
    assert found == lc.forecast(task, network, training, goal=0.9).steps.descent
    run = lc.descend(task, network, training, goal=0.9)
    assert found == run.steps
