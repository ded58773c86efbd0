"""Training, against loops written out in torch, against descent on statistics, and against samples drawn elsewhere."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
import torch
from torch import nn

import learncast as lc
from learncast import Accuracy, Training
from learncast.training import Plateau, gated_module, train

RECURRENT, LAYERS = ("input", "recurrent", "output"), ("first", "second")
STEPS = 30
# One step is a few hundred products of numbers of order 1, in another order than the loop's.
ONE_STEP = 1e-12
# Thirty steps that shrink or keep differences (no learning rate here is past the edge of stability).
MANY_STEPS = 1e-10


@pytest.fixture(autouse=True)
def one_thread():
    """Small matrices: on a busy machine torch's threads wait for one another up to 50 times longer."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# --- the loop every run is compared with ----------------------------------------------------------------------------

FUNCTIONS = {"linear": lambda h: h, "relu": torch.relu, "tanh": torch.tanh}


def weights(network):
    """Weights by name, of a described network."""
    inner = network.network if isinstance(network, lc.Activated) else network
    if isinstance(inner, lc.TwoLayer):
        return {name: np.array(getattr(inner, name)) for name in LAYERS}
    return {name: np.array(getattr(inner, f"{name}_weights")) for name in RECURRENT}


def answers(given, x, every_step, f):
    if "first" in given:
        return f(x @ given["first"].T) @ given["second"].T
    h, said = torch.zeros(len(x), len(given["recurrent"]), dtype=x.dtype), []
    for t in range(x.shape[1]):
        h = f(h @ given["recurrent"].T + x[:, t] @ given["input"].T)
        said.append(h @ given["output"].T)
    return torch.stack(said, dim=1) if every_step else said[-1]


def loop(respond, parameters, make_optimizer, pieces, clip=None):
    """Loss before every step and after the last, training on (x, y, steps) pieces one after another."""
    optimizer, losses = make_optimizer(parameters), []
    for x, y, steps in pieces:
        for _ in range(steps):
            optimizer.zero_grad()
            loss = 0.5 * ((respond(x) - y) ** 2).sum() / len(x)
            losses.append(loss.item())
            loss.backward()
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(parameters, clip)
            optimizer.step()
    return np.array([*losses, (0.5 * ((respond(x) - y) ** 2).sum() / len(x)).item()])


def loop_of_weights(x, y, network, learn, make_optimizer, steps, clip=None):
    """The loop on a described network: losses, and weights at the end."""
    f = FUNCTIONS[network.activation if isinstance(network, lc.Activated) else "linear"]
    given = {name: torch.tensor(w) for name, w in weights(network).items()}
    parameters = [given[name].requires_grad_() for name in learn]
    x, y = torch.tensor(x), torch.tensor(y)
    losses = loop(lambda x: answers(given, x, y.ndim == 3, f), parameters, make_optimizer, [(x, y, steps)], clip)
    return losses, {name: w.detach().numpy() for name, w in given.items()}


def sgd(learning_rate, **keywords):
    return lambda parameters: torch.optim.SGD(parameters, lr=learning_rate, **keywords)


def compare(x, y, network, learn, make_optimizer, training, clip=None):
    """Every recorded loss, and the weights after one step and after all, against the loop."""
    for steps, tolerance in ((1, ONE_STEP), (STEPS, MANY_STEPS)):
        run = train((x, y), network, training.with_(learn=learn), steps=steps)
        losses, expected = loop_of_weights(x, y, network, learn or tuple(weights(network)), make_optimizer, steps, clip)
        assert np.isfinite(losses).all()
        assert losses[0] != losses[-1]
        np.testing.assert_allclose(run["loss"], losses, rtol=0, atol=tolerance * max(1, losses.max()))
        found = weights(run.network)
        for name, w in expected.items():
            np.testing.assert_allclose(found[name], w, rtol=0, atol=tolerance, err_msg=name)
        assert type(run.network) is type(network)
        assert run.stage_steps == (steps,)
        np.testing.assert_array_equal(run.time, np.arange(steps + 1))


def trials(kind, *, seed=0, count=20, steps=5, inputs=2, outputs=3):
    """Recorded trials with a part that no network explains."""
    rng = np.random.default_rng(seed)
    if kind == "static":
        x = rng.standard_normal((count, inputs))
        return x, x @ rng.standard_normal((inputs, outputs)) + 0.3 * rng.standard_normal((count, outputs))
    x = rng.standard_normal((count, steps, inputs)).cumsum(axis=1) / 2
    y = x.cumsum(axis=1) @ rng.standard_normal((inputs, outputs)) / 2
    y = y + 0.3 * rng.standard_normal(y.shape)
    return x, y[:, -1] if kind == "end" else y


def recurrent(recurrence, *, seed=1, inputs=2, hidden=6, outputs=3):
    """A network at random, its recurrence full, diagonal, or diagonal with units of which some never speak."""
    rng = np.random.default_rng(seed)
    into, out = 0.4 * rng.standard_normal((hidden, inputs)), 0.4 * rng.standard_normal((outputs, hidden))
    if recurrence == "dense":
        between = 0.5 * rng.standard_normal((hidden, hidden)) / np.sqrt(hidden)
    else:
        between = np.diag(np.linspace(-0.5, 0.9, hidden))
    if recurrence == "silent":
        into[-3:-1], out[:, -3:-1] = 0, 0  # neither hear nor speak
    if recurrence == "half silent":
        into[-1], out[:, -2] = 0, 0  # one does not hear, one does not speak: both wake up in a linear network
    if recurrence == "dense silent":
        between = 0.5 * rng.standard_normal((hidden, hidden)) / np.sqrt(hidden)
        into[-3:-1], out[:, -3:-1] = 0, 0  # not silent at all: the others drive them
    return lc.LinearRNN(into, between, out)


SUBSETS = [s for r in (1, 2, 3) for s in itertools.combinations(RECURRENT, r)]
COMMON = [RECURRENT, ("input", "output")]
SOME_SLOW = [pytest.param(s, marks=[] if s in COMMON else pytest.mark.slow, id="-".join(s)) for s in SUBSETS]


@pytest.mark.parametrize(
    ("recurrence", "kind"),
    [
        ("dense", "every_step"),
        ("diagonal", "end"),
        ("silent", "every_step"),
        ("half silent", "end"),
        ("dense silent", "end"),
    ],
)
@pytest.mark.parametrize("learn", SOME_SLOW)
def test_linear_rnn_is_the_loop(learn, recurrence, kind):
    x, y = trials(kind)
    rate = 0.02 if kind == "end" else 0.005
    compare(x, y, recurrent(recurrence), learn, sgd(rate), Training(rate))


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize(
    ("recurrence", "kind"),
    [
        ("dense", "every_step"),
        ("diagonal", "end"),
        ("silent", "every_step"),
        ("half silent", "end"),
        ("dense silent", "end"),
    ],
)
@pytest.mark.parametrize("learn", COMMON, ids="-".join)
def test_activated_rnn_is_the_loop(learn, recurrence, kind, activation):
    x, y = trials(kind)
    rate = 0.02 if kind == "end" else 0.005
    compare(x, y, lc.Activated(recurrent(recurrence), activation), learn, sgd(rate), Training(rate))


@pytest.mark.parametrize("activation", [None, "relu", "tanh"])
@pytest.mark.parametrize("recurrence", ["dense", "diagonal", "silent"])
@pytest.mark.parametrize(("count", "inputs", "outputs", "steps"), [(3, 11, 2, 4), (2, 5, 1, 3), (40, 1, 1, 1)])
def test_more_channels_than_trials_and_other_sizes(count, inputs, outputs, steps, recurrence, activation):
    x, y = trials("end", count=count, inputs=inputs, outputs=outputs, steps=steps)
    network = recurrent(recurrence, inputs=inputs, outputs=outputs)
    network = network if activation is None else lc.Activated(network, activation)
    learn = RECURRENT if recurrence == "dense" else ("input", "output")
    compare(x / np.sqrt(inputs), y / np.sqrt(inputs), network, learn, sgd(0.03), Training(0.03))


def test_more_hidden_units_than_anything_else():
    x, y = trials("end", count=4, inputs=3, outputs=2)
    compare(x, y, recurrent("silent", inputs=3, hidden=40, outputs=2), ("input", "output"), sgd(0.01), Training(0.01))


@pytest.mark.parametrize("activation", [None, "relu", "tanh"])
@pytest.mark.parametrize("learn", [LAYERS, ("first",), ("second",)], ids="-".join)
@pytest.mark.parametrize(("count", "inputs"), [(20, 3), (4, 9)])
def test_two_layers_are_the_loop(count, inputs, learn, activation):
    x, y = trials("static", count=count, inputs=inputs)
    network = lc.TwoLayer.random(inputs, 5, 3, scale=0.4, rng=np.random.default_rng(2))
    network = network if activation is None else lc.Activated(network, activation)
    compare(x, y, network, learn, sgd(0.05), Training(0.05))


#: Settings of `Training` and torch's optimiser with the same ones.
OPTIMIZERS = {
    "gd": ({"optimizer": "gd"}, torch.optim.SGD, {}),
    "gd, decay": ({"weight_decay": 0.05}, torch.optim.SGD, {"weight_decay": 0.05}),
    "gd, clipped": ({"clip": 0.3}, torch.optim.SGD, {}),
    "momentum": ({"optimizer": "momentum"}, torch.optim.SGD, {"momentum": 0.9}),
    "momentum .5, decay": (
        {"optimizer": "momentum", "momentum": 0.5, "weight_decay": 0.02},
        torch.optim.SGD,
        {"momentum": 0.5, "weight_decay": 0.02},
    ),
    "adam": ({"optimizer": "adam"}, torch.optim.Adam, {}),
    "adam, decay, clipped": (
        {"optimizer": "adam", "weight_decay": 0.1, "betas": (0.8, 0.99), "clip": 0.5},
        torch.optim.Adam,
        {"weight_decay": 0.1, "betas": (0.8, 0.99)},
    ),
    "adamw": ({"optimizer": "adamw"}, torch.optim.AdamW, {}),
    "adamw, decay": ({"optimizer": "adamw", "weight_decay": 0.3}, torch.optim.AdamW, {"weight_decay": 0.3}),
    "rmsprop": ({"optimizer": "rmsprop"}, torch.optim.RMSprop, {}),
    "rmsprop, decay": ({"optimizer": "rmsprop", "weight_decay": 0.1}, torch.optim.RMSprop, {"weight_decay": 0.1}),
    "adagrad, by hand": (
        {"optimizer": lambda parameters: torch.optim.Adagrad(parameters, lr=0.01)},
        torch.optim.Adagrad,
        {},
    ),
}


@pytest.mark.slow_cases(*(f"{name}-dense-None" for name in OPTIMIZERS if name not in ("gd", "adam, decay, clipped")))
@pytest.mark.parametrize(("recurrence", "activation"), [("dense", None), ("half silent", "relu")])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_are_torch_s(name, recurrence, activation):
    """The half silent units tell decay of weights without a gradient; silent ones must stay at zero."""
    settings, kind, keywords = OPTIMIZERS[name]
    x, y = trials("end")
    network = recurrent(recurrence)
    network = network if activation is None else lc.Activated(network, activation)
    learn = RECURRENT if recurrence == "dense" else ("input", "output")
    compare(
        x,
        y,
        network,
        learn,
        lambda parameters: kind(parameters, lr=0.01, **keywords),
        Training(0.01, **settings),
        settings.get("clip"),
    )


def test_the_clip_that_was_tested_clips():
    x, y = trials("end")
    loose = train((x, y), recurrent("dense"), Training(0.01, learn=RECURRENT), steps=3)
    tight = train((x, y), recurrent("dense"), Training(0.01, clip=0.3, learn=RECURRENT), steps=3)
    moved = [
        np.sqrt(sum(((weights(run.network)[k] - w) ** 2).sum() for k, w in weights(recurrent("dense")).items()))
        for run in (loose, tight)
    ]
    assert moved[1] <= 3 * 0.01 * 0.3 * (1 + 1e-9) < moved[0]


# --- torch modules --------------------------------------------------------------------------------------------------


class Own(nn.Module):
    """A user's network: a delay line with gain, a nonlinearity, a frozen weight and a buffer."""

    def __init__(self, outputs=3):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.taps = nn.Parameter(torch.randn(5, 2, 4, generator=generator) / 3)
        self.frozen = nn.Parameter(torch.randn(4, 4, generator=generator) / 2, requires_grad=False)
        self.register_buffer("shift", torch.full((4,), 0.1))
        self.readout = nn.Linear(4, outputs)
        with torch.no_grad():
            self.readout.weight.copy_(torch.randn(outputs, 4, generator=generator) / 2)
            self.readout.bias.zero_()

    def forward(self, x):
        return self.readout(torch.sigmoid(torch.einsum("bti,tih->bh", x, self.taps) @ self.frozen + self.shift))


def compare_module(x, y, module, optimizer="gd", kind=torch.optim.SGD, clip=None):
    before = {name: w.clone() for name, w in module.state_dict().items()}
    mine = copy.deepcopy(module).double()
    parameters = [p for p in mine.parameters() if p.requires_grad]
    pieces = [(torch.tensor(x), torch.tensor(y), STEPS)]
    losses = loop(mine, parameters, lambda p: kind(p, lr=0.02), pieces, clip)
    run = train((x, y), module, Training(0.02, batch=None, optimizer=optimizer, clip=clip), steps=STEPS)
    np.testing.assert_allclose(run["loss"], losses, rtol=0, atol=MANY_STEPS)
    assert losses[0] > losses[-1]
    expected = mine.state_dict()
    for name, w in run.module.state_dict().items():
        np.testing.assert_allclose(w, expected[name], rtol=0, atol=MANY_STEPS, err_msg=name)
    assert run.network is None
    # the user's own module is where it was, in the precision it had
    for name, w in module.state_dict().items():
        assert w.dtype == before[name].dtype
        assert torch.equal(w, before[name])


@pytest.mark.parametrize("kind", ["end", "every_step"])
@pytest.mark.parametrize("cell", ["gru", "lstm", "rnn"])
def test_gated_modules_are_the_loop(cell, kind):
    x, y = trials(kind)
    compare_module(x, y, gated_module(cell, inputs=2, hidden_size=5, outputs=3, every_step=kind != "end", seed=4))


def test_gated_modules_take_what_torch_s_layers_take():
    module = gated_module("rnn", inputs=2, hidden_size=4, outputs=3, nonlinearity="relu", num_layers=2, seed=1)
    assert module.layer.num_layers == 2
    x, y = trials("end")
    compare_module(x, y, module)


def test_gated_modules_start_as_torch_does():
    """The same draws as torch's own construction after seeding, or at least their range: ±1/sqrt(hidden)."""
    module = gated_module("gru", inputs=2, hidden_size=16, outputs=3, seed=5)
    flat = torch.cat([w.ravel() for w in module.state_dict().values()])
    # 963 uniform draws all but fill the range: P(none in the outer 5%) = .95^963 = 4e-22
    assert 0.95 / 4 < flat.abs().max() <= 1 / 4
    again, other = (gated_module("gru", inputs=2, hidden_size=16, outputs=3, seed=s) for s in (5, 6))
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), again.parameters(), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(module.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize(("optimizer", "kind"), [("gd", torch.optim.SGD), ("adam", torch.optim.Adam)])
def test_a_module_of_the_user_s_own_is_the_loop(optimizer, kind):
    x, y = trials("end")
    compare_module(x, y, Own(), optimizer, kind, clip=0.5)


def test_a_module_that_keeps_averages_sees_each_batch_once():
    """Running averages of batch normalisation count training passes, and not those that record a loss."""
    x, y = trials("end")
    generator = torch.Generator().manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(10, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) / 3)
    mine = copy.deepcopy(module).double()
    optimizer = torch.optim.SGD(mine.parameters(), lr=0.02)
    for _ in range(STEPS):
        optimizer.zero_grad()
        (0.5 * ((mine(torch.tensor(x)) - torch.tensor(y)) ** 2).sum() / len(x)).backward()
        optimizer.step()
    run = train((x, y), module, Training(0.02, batch=None), steps=STEPS)
    expected = mine.state_dict()
    for name, w in run.module.state_dict().items():
        np.testing.assert_allclose(w, expected[name], rtol=0, atol=MANY_STEPS, err_msg=name)


# --- curricula ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("optimizer", ["adam", "momentum"])
def test_a_curriculum_is_two_loops_or_one_long_one(optimizer, reset):
    """With a fresh optimiser two loops, one after the other; with the moments kept a single loop over both data."""
    first, second = trials("end", seed=0), trials("end", seed=8, count=12)
    network = recurrent("dense")
    kind, keywords = {"adam": (torch.optim.Adam, {}), "momentum": (torch.optim.SGD, {"momentum": 0.9})}[optimizer]
    given = {name: torch.tensor(w) for name, w in weights(network).items()}
    parameters = [w.requires_grad_() for w in given.values()]
    pieces = [(*map(torch.tensor, first), 12), (*map(torch.tensor, second), 9)]
    for part in [pieces[:1], pieces[1:]] if reset else [pieces]:
        loop(
            lambda x: answers(given, x, False, FUNCTIONS["linear"]),
            parameters,
            lambda p: kind(p, lr=0.02, **keywords),
            part,
        )
    run = train(
        [lc.Stage(first, steps=12), lc.Stage(second, steps=9)],
        network,
        Training(0.02, optimizer=optimizer, reset_optimizer=reset, learn=RECURRENT),
    )
    for name, w in weights(run.network).items():
        np.testing.assert_allclose(w, given[name].detach().numpy(), rtol=0, atol=MANY_STEPS, err_msg=name)
    assert run.stage_steps == (12, 9)


# --- descent on statistics ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learn", SOME_SLOW)
@pytest.mark.parametrize("kind", ["end", "every_step"])
@pytest.mark.parametrize(
    "optimizer", [pytest.param(o, marks=pytest.mark.slow) for o in ("momentum", "adamw", "rmsprop")] + ["gd", "adam"]
)
def test_a_full_batch_of_sequences_is_descent_on_its_statistics(optimizer, kind, learn):
    x, y = trials(kind)
    compare_descent(x, y, lc.Task.from_samples(x, y), recurrent("dense"), optimizer, learn)


@pytest.mark.parametrize("learn", [LAYERS, ("first",), ("second",)], ids="-".join)
@pytest.mark.parametrize("optimizer", ["gd", "momentum", "adam", "adamw", "rmsprop"])
def test_a_full_batch_of_pairs_is_descent_on_its_statistics(optimizer, learn):
    x, y = trials("static")
    network = lc.TwoLayer.random(2, 4, 3, scale=0.4, rng=np.random.default_rng(2))
    compare_descent(x, y, lc.tasks.from_pairs(x, y), network, optimizer, learn)


def compare_descent(x, y, task, network, optimizer, learn):
    training = Training(0.005, learn=learn, optimizer=optimizer)
    descent = lc.descend(task, network, training, steps=STEPS)
    run = train((x, y), network, training, steps=STEPS)
    theory = descent.at(run.time.values)
    for name in ("loss", "strength"):
        gap = run[name] - theory[name]
        assert gap.shape == theory[name].shape
        # statistics round differently from trials
        assert float(np.abs(gap).max()) < MANY_STEPS * max(1, float(np.abs(theory[name]).max()))
    for k, w in weights(descent.network_at(STEPS)).items():
        np.testing.assert_allclose(weights(run.network)[k], w, rtol=0, atol=MANY_STEPS)


def test_sampled_training_approaches_descent_as_one_over_the_root_of_the_batch():
    """Root mean square gap to `descend` over 8 seeds, at batches of 100, 1000 and 10,000: slope -1/2.

    Were all gaps of a run one number (the worst case), each mean square would be chi^2 of 8 degrees, its log10 root
    would have standard deviation .11, and the slope .11/sqrt(2) = .08; simulating three such chi^2, |slope + 1/2| > .35
    happens with probability 1.4e-4. A gap that does not shrink has slope 0, one from a seed used twice is no smaller.
    """
    task = lc.tasks.leaky_integration(steps=5, timescale=[4.0, 2.0], correlation=[0.3, 0.0])
    network = recurrent("diagonal", outputs=2)
    descent = lc.descend(task, network, Training(0.03, learn=RECURRENT), steps=25)
    limit = weights(descent.network_at(25))
    batches, gaps = (100, 1000, 10_000), []
    for k, batch in enumerate(batches):
        squares = []
        for seed in range(8):
            run = train(task, network, Training(0.03, batch=batch, seed=100 * k + seed, learn=RECURRENT), steps=25)
            squares.append(sum(((w - limit[name]) ** 2).sum() for name, w in weights(run.network).items()))
        gaps.append(np.sqrt(np.mean(squares)))
    slope = np.polyfit(np.log(batches), np.log(gaps), 1)[0]
    assert abs(slope + 0.5) < 0.35, (slope, gaps)


def test_the_loss_of_a_sampled_linear_run_is_the_task_s_own():
    """Exact, and so equal at the start to that of descent; rounding only."""
    task = lc.tasks.leaky_integration(steps=5, timescale=[4.0, 2.0], targets="every_step")
    network = recurrent("dense", outputs=2)
    run = train(task, network, Training(0.01, batch=50, learn=RECURRENT), steps=3)
    descent = lc.descend(task, network, Training(0.01, learn=RECURRENT), steps=1)
    assert float(run["loss"][0]) == pytest.approx(float(descent.loss[0]), rel=1e-12)
    again = lc.descend(task, run.network, Training(0.01, learn=RECURRENT), steps=1)
    assert float(run["loss"][-1]) == pytest.approx(float(again.loss[0]), rel=1e-12)
    np.testing.assert_allclose(run["strength"][-1], again.strength[0], rtol=1e-12)


# --- the optimum of a rectified network -----------------------------------------------------------------------------


@pytest.mark.parametrize("recurrence", [0.9, 0.5])
def test_two_passes_find_the_optimum_of_a_rectified_network(recurrence):
    """With a, c > 0 the answer is c a z with z_t = max(0, b z_{t-1} + x_t), so the best strength is E[yz]/E[z^2].

    The plateau's weights stand within about .5% of their mean (200 steps of batches of 1000), the 200,000 samples
    give the ratio to .3%; 3% is more than five standard deviations.
    """
    task = lc.tasks.leaky_integration(steps=6, timescale=4.0, correlation=0.3)
    network = lc.Activated(lc.LinearRNN.aligned(recurrence=recurrence, initial=0.3, hidden_size=3), "relu")
    run = train(task, network, Training(0.03, batch=1000), goal=Accuracy(0.9, optimum=Plateau(window=100)))
    x, y = task.sample(200_000, np.random.default_rng(7))
    z = np.zeros(len(x))
    for t in range(x.shape[1]):
        z = np.maximum(0, recurrence * z + x[:, t, 0])
    optimum = (z @ y[:, 0]) / (z @ z)
    assert run.status is lc.Status.ok
    assert float(run["optimum"][0, 0]) == pytest.approx(optimum, rel=0.03)
    strength = run["strength"].values[:, 0]
    inside = np.abs(strength - float(run["optimum"][0, 0])) <= 0.1 * abs(float(run["optimum"][0, 0]))
    assert np.flatnonzero(inside)[0] == run.steps
    # and the loss recorded on the way is that of trials like these: 2000 held-out ones, loss of relative spread
    # below sqrt(2.5/2000) = 3.5%, five of which are 18%
    z = np.zeros(len(x))
    held = lc.Activated(run.network.network, "relu").respond(x)
    assert float(run["loss"][-1]) == pytest.approx(0.5 * ((held - y) ** 2).sum(axis=1).mean(), rel=0.18)


def test_strength_of_an_activated_network_is_that_of_its_weights():
    task = lc.tasks.leaky_integration(steps=6, timescale=4.0)
    network = lc.Activated(lc.LinearRNN.aligned(recurrence=0.8, initial=0.4, hidden_size=3), "tanh")
    run = train(task, network, Training(0.02, batch=100, learn=RECURRENT), steps=5)
    inner = run.network.network
    assert run["strength"].values[-1, 0] == pytest.approx(
        (inner.output_weights @ inner.input_weights).item(), rel=1e-12
    )
