"""Descent on statistics and the numerical flow, against torch training, autograd and integration by another solver."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
import scipy.integrate
import torch
from scipy.integrate import LSODA, solve_ivp
from scipy.stats import ks_2samp, norm

import learncast as lc
from learncast import NotLearned
from learncast.theory import Batches, LearningProblem, gradient_flow, lag_statistics, loss_and_gradient

RECURRENT, LAYERS = ("input", "recurrent", "output"), ("first", "second")


@pytest.fixture(autouse=True)
def one_thread():
    """With small matrices on a busy machine, several threads are up to 50 times slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def subsets(names):
    return [s for r in range(1, len(names) + 1) for s in itertools.combinations(names, r)]


def weights(network):
    if isinstance(network, lc.TwoLayer):
        return {"first": network.first, "second": network.second}
    return {name: getattr(network, f"{name}_weights") for name in RECURRENT}


def descend(task, network, *, learning_rate, goal=None, steps=None, rng=None, learn=None, progress=None, **settings):
    """Descend; all weights learn unless `learn` names some, and a number is an accuracy."""
    names = tuple(weights(network)) if learn is None else learn
    training = lc.Training(learning_rate, learn=names, **settings)
    goal = lc.Accuracy(goal) if isinstance(goal, float) else goal
    options = {} if progress is None else {"progress": progress}
    return lc.descend(task, network, training, goal=goal, steps=steps, rng=rng, **options)


def flat(network, learn):
    found = weights(network)
    return np.concatenate([np.asarray(found[name]).ravel() for name in learn])


def problem(kind, *, seed=0, trials=20, steps=4, inputs=2, hidden=3, outputs=2):
    """Samples that no linear map explains fully, their task, and a random network."""
    rng = np.random.default_rng(seed)
    if kind == "static":
        x = rng.standard_normal((trials, inputs)) @ rng.standard_normal((inputs, inputs))
        y = x @ rng.standard_normal((inputs, outputs)) + 0.3 * rng.standard_normal((trials, outputs))
        network = lc.TwoLayer.random(inputs, hidden, outputs, scale=0.5, rng=rng)
        return x, y, lc.tasks.from_pairs(x, y), network
    x = rng.standard_normal((trials, steps, inputs)).cumsum(axis=1) / 2
    y = x.cumsum(axis=1) @ rng.standard_normal((inputs, outputs)) / 2 + 0.3 * rng.standard_normal(
        (trials, steps, outputs)
    )
    y = y[:, -1] if kind == "end" else y
    network = lc.LinearRNN(
        0.5 * rng.standard_normal((hidden, inputs)),
        0.5 * rng.standard_normal((hidden, hidden)) / np.sqrt(hidden),
        0.5 * rng.standard_normal((outputs, hidden)),
    )
    return x, y, lc.Task.from_samples(x, y), network


def torch_loss(x, y, given):
    """Half the mean squared error over trials, summed over outputs and readout steps."""
    if "first" in given:
        return 0.5 * ((x @ given["first"].T @ given["second"].T - y) ** 2).sum() / len(x)
    state, loss = torch.zeros(len(x), len(given["recurrent"]), dtype=torch.float64), 0.0
    for t in range(x.shape[1]):
        state = state @ given["recurrent"].T + x[:, t] @ given["input"].T
        if y.ndim == 3:
            loss = loss + 0.5 * ((state @ given["output"].T - y[:, t]) ** 2).sum() / len(x)
    return loss if y.ndim == 3 else 0.5 * ((state @ given["output"].T - y) ** 2).sum() / len(x)


def tensors(network, learn):
    given = {name: torch.tensor(np.array(w)) for name, w in weights(network).items()}
    for name in learn:
        given[name].requires_grad_()
    return given


def trained(x, y, network, learn, make_optimiser, steps):
    """Losses before every step and the weights after the last, by backpropagation through time in torch."""
    x, y, given = torch.tensor(x), torch.tensor(y), tensors(network, learn)
    optimizer, losses = make_optimiser([given[name] for name in learn]), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch_loss(x, y, given)
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    losses.append(torch_loss(x, y, given).item())
    return np.array(losses), {name: w.detach().numpy() for name, w in given.items()}


# --- torch training, step by step -----------------------------------------------------------------------------------

#: Settings of `descend` and torch's optimiser with the same ones.
OPTIMIZERS = {
    "gd": ({"optimizer": "gd"}, torch.optim.SGD, {}),
    "gd, decay": ({"optimizer": "gd", "weight_decay": 0.05}, torch.optim.SGD, {"weight_decay": 0.05}),
    "momentum": ({"optimizer": "momentum"}, torch.optim.SGD, {"momentum": 0.9}),
    "momentum .5, decay": (
        {"optimizer": "momentum", "momentum": 0.5, "weight_decay": 0.02},
        torch.optim.SGD,
        {"momentum": 0.5, "weight_decay": 0.02},
    ),
    "adam": ({"optimizer": "adam"}, torch.optim.Adam, {}),
    "adam, decay": (
        {"optimizer": "adam", "weight_decay": 0.1, "betas": (0.8, 0.99)},
        torch.optim.Adam,
        {"weight_decay": 0.1, "betas": (0.8, 0.99)},
    ),
    "adam, eps": ({"optimizer": "adam", "eps": 0.03}, torch.optim.Adam, {"eps": 0.03}),
    "adamw": ({"optimizer": "adamw"}, torch.optim.AdamW, {}),
    "adamw, eps": (
        {"optimizer": "adamw", "eps": 1e-3, "betas": (0.7, 0.9)},
        torch.optim.AdamW,
        {"eps": 1e-3, "betas": (0.7, 0.9)},
    ),
    "adamw, decay": ({"optimizer": "adamw", "weight_decay": 0.3}, torch.optim.AdamW, {"weight_decay": 0.3}),
    "rmsprop": ({"optimizer": "rmsprop"}, torch.optim.RMSprop, {}),
}


def assert_trains_like_torch(kind, learn, name, steps=100, seed=0, rate=0.01):
    settings, optimizer, keywords = OPTIMIZERS[name]
    x, y, task, network = problem(kind, seed=seed)
    losses, ends = trained(x, y, network, learn, lambda p: optimizer(p, lr=rate, **keywords), steps)
    found = descend(task, network, learning_rate=rate, steps=steps, learn=learn, **settings)
    assert found.status is lc.Status.ok
    # Two sums in different orders differ by 1e-15 a step, which a hundred steps add up and spread; measured: 3e-14.
    np.testing.assert_allclose(found.loss, losses, rtol=1e-10)
    for key, wanted in ends.items():
        np.testing.assert_allclose(weights(found.network_at(np.inf))[key], wanted, rtol=0, atol=1e-10)
        if key not in learn:
            np.testing.assert_array_equal(wanted, weights(network)[key])


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(("kind", "learn"), [("end", RECURRENT), ("every", RECURRENT), ("static", LAYERS)])
def test_descent_equals_full_batch_training_in_torch(kind, learn, name):
    assert_trains_like_torch(kind, learn, name)


@pytest.mark.parametrize(
    ("kind", "learn"),
    [("end", s) for s in subsets(RECURRENT)[:-1]]
    + [("every", s) for s in subsets(RECURRENT)[:-1]]
    + [("static", s) for s in subsets(LAYERS)[:-1]],
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
def test_any_subset_of_weights_trains_like_torch(kind, learn):
    assert_trains_like_torch(kind, learn, "adam", seed=1)


@pytest.mark.parametrize("targets", ["end", "every"])
def test_pooled_scalar_recurrence_trains_like_torch(targets):
    x, y, task, network = problem(targets, seed=2)
    network = lc.LinearRNN(network.input_weights, 0.8 * np.eye(3), network.output_weights)
    learn = ("input", "output")
    assert LearningProblem.of(task, network, learn).statistics.lags == 1
    losses, ends = trained(x, y, network, learn, lambda p: torch.optim.SGD(p, lr=0.01), 100)
    found = descend(task, network, learning_rate=0.01, steps=100, learn=learn)
    np.testing.assert_allclose(found.loss, losses, rtol=1e-10)
    for key, wanted in ends.items():
        np.testing.assert_allclose(weights(found.network_at(np.inf))[key], wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (1, 1, 1, 4), (3, 2, 1, 3), (1, 4, 3, 2)])
def test_any_sizes_train_like_torch(sizes):
    inputs, hidden, outputs, steps = sizes
    x, y, task, network = problem("every", seed=3, inputs=inputs, hidden=hidden, outputs=outputs, steps=steps)
    losses, _ = trained(x, y, network, RECURRENT, lambda p: torch.optim.SGD(p, lr=0.005), 60)
    np.testing.assert_allclose(descend(task, network, learning_rate=0.005, steps=60).loss, losses, rtol=1e-10)


def test_exact_statistics_are_the_limit_of_many_trials():
    """The difference of the losses on P trials and on exact statistics falls as 1 / sqrt(P)."""
    task = lc.tasks.leaky_integration(steps=4, timescale=3.0)
    network = lc.LinearRNN([[0.3], [0.2]], [[0.5, 0.1], [0.0, 0.4]], [[0.4, -0.1]])
    population = descend(task, network, learning_rate=0.02, steps=80).network_at(np.inf)
    gaps = []
    for trials in (10**3, 10**5):
        x, y = task.sample(trials, np.random.default_rng(0))
        sampled = descend(lc.Task.from_samples(x, y), network, learning_rate=0.02, steps=80).network_at(np.inf)
        gaps.append(np.linalg.norm(flat(sampled, RECURRENT) - flat(population, RECURRENT)))
    # a tenth, give or take the two draws: seven weights, so either norm is within a factor 3 of its mean (rate < 1e-3)
    assert 0.01 < gaps[1] / gaps[0] < 1.0
    assert gaps[1] < 0.01


# --- the weights at any step ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["gd", "momentum", "adam", "adamw"])
@pytest.mark.parametrize("batch", [None, 5])
def test_network_at_a_step_equals_that_of_a_shorter_run(optimizer, batch):
    _, _, task, network = problem("end")

    def run(steps):
        rng = None if batch is None else np.random.default_rng(7)
        return descend(
            task,
            network,
            learning_rate=0.005,
            steps=steps,
            optimizer=optimizer,
            batch=batch,
            rng=rng,
            weight_decay=0.01,
        )

    # more steps than snapshots are kept, so that most are found by walking on from one
    whole = run(150)
    for step in (0, 1, 64, 65, 131, 150):
        stopped = run(step)
        np.testing.assert_array_equal(
            flat(whole.network_at(step), RECURRENT), flat(stopped.network_at(np.inf), RECURRENT)
        )
        np.testing.assert_array_equal(whole.loss[: step + 1], stopped.loss)
        np.testing.assert_array_equal(whole.strength[: step + 1], stopped.strength)
    # Repeated calls give the same network.
    twice = [flat(whole.network_at(131), RECURRENT) for _ in range(2)]
    np.testing.assert_array_equal(*twice)


@pytest.mark.parametrize("kind", [np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_any_random_generator_can_be_replayed(kind):
    _, _, task, network = problem("static")
    whole = descend(task, network, learning_rate=0.01, steps=20, batch=4, rng=np.random.Generator(kind(1)))
    stopped = descend(task, network, learning_rate=0.01, steps=13, batch=4, rng=np.random.Generator(kind(1)))
    np.testing.assert_array_equal(flat(whole.network_at(13), LAYERS), flat(stopped.network_at(np.inf), LAYERS))
    # Repeated calls, also after later steps, give the same network.
    first, again = (flat(whole.network_at(n), LAYERS) for n in (5, 5))
    np.testing.assert_array_equal(first, again)


def test_returned_weights_are_read_only():
    _, _, task, network = problem("static")
    run = descend(task, network, learning_rate=0.01, steps=5)
    with pytest.raises(ValueError, match="read-only"):
        run.network_at(5).first[0, 0] = 1.0


# --- batches --------------------------------------------------------------------------------------------------------


def drawn_by(batches):
    """Second moments of the next batch of one run."""
    power, cross = batches.moments(np.zeros(1, dtype=int))
    return power[0], cross[0]


def pooled(power, cross, recurrence, inputs):
    """Return the moments of the pooled input."""
    lags = len(power) // inputs
    pool = np.kron(recurrence ** np.arange(lags), np.eye(inputs))
    return pool @ power @ pool.T, cross @ pool.T


def moments(power, cross):
    """Return the entries of second moments as one vector: inputs, cross."""
    return np.concatenate([power[np.triu_indices(len(power))], cross.ravel()])


def wishart(joint, inputs, batch):
    """Mean and covariance of these entries for `batch` Gaussian trials with second moment `joint`."""
    n, size = inputs, len(joint)
    rows, columns = np.triu_indices(n)
    pairs = [(i, j) for i, j in zip(rows, columns, strict=True)]
    pairs += [(i, n + k) for i in range(n) for k in range(size - n)]
    weights_of = np.zeros((len(pairs), size, size))
    for k, (i, j) in enumerate(pairs):
        weights_of[k, i, j] += 0.5
        weights_of[k, j, i] += 0.5
    mean = np.einsum("kij,ij->k", weights_of, joint)
    # Isserlis: Cov(M_ij, M_kl) = (S_ik S_jl + S_il S_jk) / P
    spread = np.einsum("aij,ik,jl,bkl->ab", weights_of, joint, joint, weights_of) * 2 / batch
    return mean, spread


def batch_task(outputs=1):
    """Two steps of one channel, correlated, with targets that noise shares: every covariance different from 0."""
    joint = np.array([[1.0, 0.4, 0.7], [0.4, 2.0, -0.5], [0.7, -0.5, 1.5]])
    return lc.Task(joint[:2, None, :2, None], joint[:2, None, 2:], joint[2:, 2:], name="pair"), joint


def by_lag(joint, steps):
    """Return the joint moments with inputs in the order of their lag."""
    order = [*range(steps - 1, -1, -1), *range(steps, len(joint))]
    return joint[np.ix_(order, order)]


DRAWS = 3000


@pytest.mark.slow_cases("6")
@pytest.mark.parametrize("batch", [1, 3, 6, 1000])
def test_batch_moments_have_the_wishart_mean_and_covariance(batch):
    """Mean and covariance of 3000 draws. Fewer trials than variables (1) take the other branch.

    Means are Gaussian: |z| < 5 for 5 numbers, false alarm 5 x 6e-7. A sample covariance has a spread of at most
    sqrt((2 + kurtosis) / draws) of the product of deviations, with an excess kurtosis of 12 / P for squares of
    Gaussians: 5 of them for 15 numbers, false alarm of the order of 1e-5. The seed is fixed.
    """
    task, joint = batch_task()
    network = lc.LinearRNN([[0.5]], [[0.3]], [[0.5]])
    batches = Batches.of(LearningProblem.of(task, network, None), batch, np.random.default_rng(batch))
    drawn = np.array([moments(*drawn_by(batches)) for _ in range(DRAWS)])
    mean, spread = wishart(by_lag(joint, 2), 2, batch)
    deviation = np.sqrt(np.diag(spread))
    assert np.abs((drawn.mean(axis=0) - mean) / (deviation / np.sqrt(DRAWS))).max() < 5
    measured = np.cov(drawn.T)
    allowed = 5 * np.sqrt((2 + 12 / batch) / DRAWS) * np.outer(deviation, deviation)
    assert (np.abs(measured - spread) < allowed).all()


@pytest.mark.parametrize("batch", [2, 40])
def test_drawn_moments_are_distributed_like_those_of_drawn_trials(batch):
    """Distribution of each entry by Kolmogorov-Smirnov tests, false alarm 6 x 1e-5; the seed is fixed."""
    task, _ = batch_task()
    network = lc.LinearRNN([[0.5]], [[0.3]], [[0.5]])
    rng = np.random.default_rng(1)
    batches = Batches.of(LearningProblem.of(task, network, None), batch, rng)
    drawn = np.array([moments(*drawn_by(batches)) for _ in range(2000)])
    trials = []
    for _ in range(2000):
        x, y = task.sample(batch, rng)
        sample = np.concatenate([x[:, ::-1, 0], y], axis=1)
        M = sample.T @ sample / batch
        trials.append([M[0, 0], M[0, 1], M[1, 1], M[0, 2], M[1, 2]])
    for one, other in zip(drawn.T, np.array(trials).T, strict=True):
        assert ks_2samp(one, other).pvalue > 1e-5


@pytest.mark.slow_cases("30")
@pytest.mark.parametrize("batch", [2, 30])
def test_pooled_batches_are_distributed_like_full_batches(batch):
    """With a fixed scalar recurrence the inputs are pooled before drawing, which does not change the distribution.

    Kolmogorov-Smirnov on every entry, false alarm 10 x 1e-5; means by |z| < 5, false alarm 10 x 6e-7.
    """
    task = lc.tasks.leaky_integration(steps=4, timescale=3.0, correlation=0.5, mixing=[[1.0, 0.3], [-0.2, 0.8]])
    network = lc.LinearRNN(np.eye(2), 0.7 * np.eye(2), np.eye(2))
    fixed, learned = (LearningProblem.of(task, network, learn) for learn in (("input", "output"), RECURRENT))
    rng, draws = np.random.default_rng(2), 1500
    small, large = (Batches.of(p, batch, rng) for p in (fixed, learned))
    one = np.array([moments(*drawn_by(small)) for _ in range(draws)])
    other = np.array([moments(*pooled(*drawn_by(large), 0.7, 2)) for _ in range(draws)])
    for a, b in zip(one.T, other.T, strict=True):
        assert ks_2samp(a, b).pvalue > 1e-5
    spread = np.sqrt(one.var(axis=0) / draws + other.var(axis=0) / draws)
    assert np.abs((one.mean(axis=0) - other.mean(axis=0)) / spread).max() < 5


@pytest.mark.slow_cases("end")
@pytest.mark.parametrize("targets", ["end", "every_step"])
def test_descent_in_batches_is_unbiased(targets):
    """One step's change, averaged over 400 batches, is the population's: |z| < 5 for 15 weights, rate 15 x 6e-7."""
    task = lc.tasks.leaky_integration(steps=3, timescale=3.0, mixing=[[1.0, 0.3], [-0.2, 0.8]], targets=targets)
    network = problem("end", seed=5)[3]
    rng = np.random.default_rng(3)
    ends = np.array(
        [
            flat(descend(task, network, learning_rate=0.1, steps=1, batch=8, rng=rng).network_at(1), RECURRENT)
            for _ in range(400)
        ]
    )
    wanted = flat(descend(task, network, learning_rate=0.1, steps=1).network_at(1), RECURRENT)
    z = (ends.mean(axis=0) - wanted) / (ends.std(axis=0) / np.sqrt(len(ends)))
    assert np.abs(z).max() < norm.isf(3e-7)
    assert ends.std(axis=0).min() > 1e-3


def test_reported_loss_is_that_of_the_task_also_with_batches():
    _, _, task, network = problem("end")
    run = descend(task, network, learning_rate=0.01, steps=20, batch=3, rng=np.random.default_rng(0))
    again = LearningProblem.of(task, network, None)
    for step in (0, 7, 20):
        loss, _ = again.loss_and_slopes(dict(weights(run.network_at(step))))
        assert run.loss[step] == pytest.approx(loss, rel=1e-13)


def test_large_batches_approach_exact_statistics():
    _, _, task, network = problem("every")
    exact = descend(task, network, learning_rate=0.005, steps=50)
    noisy = descend(task, network, learning_rate=0.005, steps=50, batch=10**12, rng=np.random.default_rng(0))
    # relative noise of 1e-6 a step
    np.testing.assert_allclose(noisy.loss, exact.loss, rtol=1e-4)
    assert not np.array_equal(noisy.loss, exact.loss)


# --- stopping -------------------------------------------------------------------------------------------------------


@pytest.mark.slow_cases("static-0.97")
@pytest.mark.parametrize("accuracy", [0.5, 0.9, 0.97])
@pytest.mark.parametrize("kind", ["static", "pooled"])
def test_until_stops_at_the_first_step_that_reaches_the_accuracy(kind, accuracy):
    x, y, task, network = problem("static" if kind == "static" else "end", seed=4, hidden=4)
    learn = None
    if kind == "pooled":
        network = lc.LinearRNN(network.input_weights, 0.6 * np.eye(4), network.output_weights)
        learn = ("input", "output")
        pooled = np.einsum("t,pti->pi", 0.6 ** np.arange(3, -1, -1), x)
    else:
        pooled = x
    run = descend(task, network, learning_rate=0.04, goal=accuracy, learn=learn)
    assert run.status is lc.Status.ok
    # The best map by least squares; its error in the data's own measure is 1 - accuracy of the best map's own size.
    best = np.linalg.lstsq(pooled, y, rcond=None)[0].T

    def distance(step):
        now = run.network_at(step)
        f = now.function if kind == "static" else now.output_weights @ now.input_weights
        return np.sqrt((((f - best) @ pooled.T) ** 2).sum() / ((best @ pooled.T) ** 2).sum())

    assert distance(run.steps) <= 1 - accuracy < distance(run.steps - 1)
    assert run.time_to(accuracy).descent_steps == run.steps
    longer = descend(task, network, learning_rate=0.04, steps=run.steps + 50, learn=learn)
    assert longer.time_to(accuracy).descent_steps == run.steps
    np.testing.assert_array_equal(longer.loss[: run.steps + 1], run.loss)


def test_until_stops_at_the_largest_number_of_steps():
    _, _, task, network = problem("static")
    run = descend(task, network, learning_rate=1e-4, goal=0.99, most_steps=30)
    assert run.status is lc.Status.not_within
    assert run.steps == 30
    time = run.time_to(0.99)
    assert (time.status, time.tried, time.loss) == (lc.Status.not_within, 30, run.loss[-1])
    assert np.isnan(time.descent_steps)


def test_a_learned_start_takes_no_step():
    task = lc.tasks.static(np.diag([1.0, 0.5]))
    root = np.diag(np.sqrt([1.0, 0.5]))
    run = descend(task, lc.TwoLayer(root, root), learning_rate=0.1, goal=0.99)
    assert (run.steps, run.status) == (0, lc.Status.ok)
    assert run.time_to(0.99).descent_steps == 0


# --- divergence and overflow ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["gd", "momentum"])
@pytest.mark.parametrize("stop", [{"steps": 200}, {"goal": 0.99}])
def test_divergence_is_a_status_and_no_nan_travels(optimizer, stop):
    _, _, task, network = problem("end")
    run = descend(task, network, learning_rate=3.0, optimizer=optimizer, **stop)
    assert run.status is lc.Status.diverged
    assert run.steps < 200
    # the last step is the one that is no longer finite; nothing before it is harmed
    assert np.isfinite(run.loss[:-1]).all()
    assert np.isfinite(run.strength[:-1]).all()
    assert not np.isfinite(run.loss[-1])
    assert np.isfinite(flat(run.network_at(run.steps - 1), RECURRENT)).all()
    assert run.time_to(0.999).status is lc.Status.diverged
    assert run.time_to(0.999).descent_steps == np.inf
    beyond = run.at([0, run.steps - 1, run.steps + 1])
    assert np.isfinite(beyond["loss"][:2]).all()
    assert np.isnan(beyond["loss"][2])


def unstable(hidden=1):
    """A recurrence of 10 over four hundred steps: 1e400 overflows."""
    W_h = 10.0 * np.eye(hidden) + (np.triu(np.ones((hidden, hidden)), 1) if hidden > 1 else 0.0)
    return lc.tasks.sensory.integrate(400), lc.LinearRNN(np.ones((hidden, 1)), W_h, np.ones((1, hidden)))


@pytest.mark.parametrize("hidden", [1, 3])
@pytest.mark.parametrize("learn", [RECURRENT, ("input", "output")])
def test_overflow_at_the_start_is_a_status(hidden, learn):
    task, network = unstable(hidden)
    run = descend(task, network, learning_rate=1e-3, steps=5, learn=learn)
    assert (run.status, run.steps) == (lc.Status.diverged, 0)
    flow = gradient_flow(task, network, learning_rate=1e-3, learn=learn)
    found = flow.at([0.0, 1.0, np.inf])
    assert found["status"].values.tolist() == ["ok", "diverged", "diverged"]
    assert np.isnan(found["loss"].values[1:]).all()
    times = flow.time_to(0.99)
    assert (times.flow_steps, times.status) == (np.inf, lc.Status.diverged)
    with pytest.raises(NotLearned) as error:
        flow.network_at(1.0)
    assert error.value.field == "time"
    # The start is available.
    np.testing.assert_array_equal(flat(flow.network_at(0.0), RECURRENT), flat(network, RECURRENT))


def test_pooled_and_full_gradient_agree_at_the_edge_of_overflow():
    """b^(2T) is just below the overflow threshold."""
    task = lc.tasks.sensory.integrate(100)
    network = lc.LinearRNN([[0.5]], [[25.0]], [[0.5]])
    fixed, learned = (LearningProblem.of(task, network, learn) for learn in (("input", "output"), RECURRENT))
    (one, slopes), (other, more) = (p.loss_and_slopes(p.start) for p in (fixed, learned))
    assert np.isfinite(one)
    assert one == pytest.approx(other, rel=1e-12)
    np.testing.assert_allclose(slopes["input"], more["input"], rtol=1e-12)


class Impatient(LSODA):
    """A solver that limits its number of steps, so that the test ends."""

    most = 5_000

    def __init__(self, *given, **options):
        self.taken = 0
        super().__init__(*given, **options)

    def step(self):
        self.taken += 1
        if self.taken > self.most:
            pytest.fail(f"no status after {self.most} solver steps, at flow time {self.t:.4g}, weights {self.y}")
        return super().step()


@pytest.mark.slow
def test_unbounded_growth_ends_with_a_status(monkeypatch):
    """An impulse at the first step: the best recurrence is infinite, b grows as (4 tau)^(1/4) and stiffens as b^18.

    Five thousand solver steps, and as many for the curvature on the way; other flows here need less than two thousand.
    """
    monkeypatch.setattr(scipy.integrate, "LSODA", Impatient)
    task = lc.tasks.sensory.impulse(10, lag=9)
    flow = gradient_flow(task, lc.LinearRNN([[0.1]], [[0.5]], [[0.1]]), learning_rate=1.0)
    early = flow.at([600.0])
    # the asymptote, from where b passes 1.5 at tau = 504; E = 1 / (4 sqrt(tau)) to some per cent
    assert early["recurrent_weights"].values.item() == pytest.approx((4 * (600 - 505)) ** 0.25, rel=0.03)
    times = flow.time_to(0.999)
    assert times.flow_steps == np.inf
    assert times.status in (lc.Status.diverged, lc.Status.not_learned)
    limit = flow.limit()
    assert limit["status"].values[0] != "ok"
    assert np.isnan(limit["loss"].values[0])
    with pytest.raises(NotLearned):
        flow.network_at(np.inf)


# --- the flow against another solver on another gradient ------------------------------------------------------------


def autograd_flow(x, y, network, learn, times):
    """Weights that learn, (times, number), by DOP853 at 1e-12 on torch's gradient."""
    x, y = torch.tensor(x), torch.tensor(y)
    given = {name: np.asarray(w) for name, w in weights(network).items()}

    def velocity(_, values):
        now, offset = {name: torch.tensor(np.array(w)) for name, w in given.items()}, 0
        for name in learn:
            size = given[name].size
            now[name] = torch.tensor(values[offset : offset + size].reshape(given[name].shape), requires_grad=True)
            offset += size
        slopes = torch.autograd.grad(torch_loss(x, y, now), [now[name] for name in learn])
        return -np.concatenate([s.numpy().ravel() for s in slopes])

    start = flat(network, learn)
    return solve_ivp(
        velocity, (0, times[-1]), start, method="DOP853", rtol=1e-12, atol=1e-14, t_eval=times, max_step=np.inf
    ).y.T


@pytest.mark.parametrize(
    ("kind", "learn"),
    [
        ("end", RECURRENT),
        pytest.param("every", RECURRENT, marks=pytest.mark.slow),
        ("end", ("input", "output")),
        ("every", ("recurrent",)),
        ("static", LAYERS),
        ("static", ("first",)),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
def test_flow_equals_integration_with_autograd(kind, learn):
    x, y, task, network = problem(kind, seed=6, trials=12)
    rate, times = 0.01, np.array([0.2, 1.0, 3.0])
    wanted = autograd_flow(x, y, network, learn, times)
    flow = gradient_flow(task, network, learning_rate=rate, learn=learn)
    # 1e-11 allowed per step of some hundred; measured: 6e-11
    for time, values in zip(times, wanted, strict=True):
        np.testing.assert_allclose(flat(flow.network_at(time / rate), learn), values, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", ["static", "pooled"])
def test_pooled_velocity_and_jacobian_equal_autograd(kind):
    """A wrong Jacobian would only cost solver steps, which is otherwise unnoticed."""
    _, _, task, network = problem("static" if kind == "static" else "every", inputs=3, hidden=2, outputs=4)
    if kind == "pooled":
        network = lc.LinearRNN(network.input_weights, 0.6 * np.eye(2), network.output_weights)
    found = LearningProblem.of(task, network, LAYERS if kind == "static" else ("input", "output"))
    course = gradient_flow(task, network, learning_rate=1.0, learn=found.learn)._course
    A, R = (torch.tensor(found.statistics.input[0, :, 0, :]), torch.tensor(found.statistics.cross[0]))

    def loss(flat):
        W = flat[6:].reshape(4, 2) @ flat[:6].reshape(2, 3)
        return torch.trace(W @ A @ W.T) / 2 - torch.trace(W @ R.T)

    at = np.concatenate([found.start[name].ravel() for name in found.learn])
    np.testing.assert_allclose(course.slope(0.0, at), -torch.func.grad(loss)(torch.tensor(at)), rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        course.jacobian(0.0, at), -torch.func.hessian(loss)(torch.tensor(at)), rtol=0, atol=1e-12
    )


@pytest.mark.slow
def test_large_flow_equals_integration_with_autograd():
    """More weights than `STIFF_SIZE`: the explicit solver."""
    x, y, task, network = problem("static", seed=7, inputs=12, hidden=26, outputs=9, trials=30)
    assert flat(network, LAYERS).size > 500
    times = np.array([0.05, 0.3])
    wanted = autograd_flow(x, y, network, LAYERS, times)
    flow = gradient_flow(task, network, learning_rate=0.01)
    for time, values in zip(times, wanted, strict=True):
        np.testing.assert_allclose(flat(flow.network_at(time / 0.01), LAYERS), values, rtol=0, atol=1e-9)


def conserved(network):
    """W_x W_x' - W_y' W_y + W_h W_h' - W_h' W_h, conserved because hidden coordinates do not affect the loss."""
    W_x, W_h, W_y = (np.asarray(w) for w in weights(network).values())
    return W_x @ W_x.T - W_y.T @ W_y + W_h @ W_h.T - W_h.T @ W_h


@pytest.mark.parametrize("kind", ["end", "every"])
@pytest.mark.parametrize("seed", range(2))
def test_flow_conserves_the_weight_imbalance(kind, seed):
    _, _, task, network = problem(kind, seed=10 + seed, hidden=4, steps=5)
    flow = gradient_flow(task, network, learning_rate=0.01, tolerance=1e-12)
    start = conserved(network)
    partly = [np.abs(np.asarray(w) @ np.asarray(w).T).max() for w in weights(flow.network_at(500.0)).values()]
    for step in (1.0, 20.0, 100.0, 500.0):
        # 1e-12 per step and element, of products of two weights of order 1; measured: 7e-11
        np.testing.assert_allclose(conserved(flow.network_at(step)), start, rtol=0, atol=1e-9 * max(partly))
    # the input and output weights alone do not conserve theirs, so the recurrence's share is really there
    ends = flow.network_at(500.0)
    alone = ends.input_weights @ ends.input_weights.T - ends.output_weights.T @ ends.output_weights
    before = network.input_weights @ network.input_weights.T - network.output_weights.T @ network.output_weights
    assert np.abs(alone - before).max() > 1e-3


@pytest.mark.parametrize(
    ("kind", "learn"), [("end", RECURRENT), ("every", ("recurrent", "output")), ("static", LAYERS)]
)
def test_descent_approaches_the_flow_in_proportion_to_the_learning_rate(kind, learn):
    """Gap of the weights at a fixed flow time against the learning rate, log-log: slope 1.

    Descent is the Euler method of the flow; its second-order term is rate times sharpness, at most 0.03 of the first.
    """
    _, _, task, network = problem(kind, seed=8)
    rates, gaps = [8e-3, 4e-3, 2e-3, 1e-3], []
    for rate in rates:
        steps = round(0.8 / rate)
        ends = [
            found.network_at(steps)
            for found in (
                descend(task, network, learning_rate=rate, steps=steps, learn=learn),
                gradient_flow(task, network, learning_rate=rate, learn=learn),
            )
        ]
        gaps.append(np.abs(flat(ends[0], learn) - flat(ends[1], learn)).max())
    slopes = np.diff(np.log(gaps)) / np.diff(np.log(rates))
    np.testing.assert_allclose(slopes, 1.0, atol=0.04)
    assert gaps[-1] < 1e-2


def test_learning_time_of_descent_approaches_that_of_the_flow():
    task = lc.tasks.leaky_integration(steps=4, timescale=3.0)
    network = lc.LinearRNN([[0.3], [0.2]], [[0.5, 0.1], [0.0, 0.4]], [[0.4, -0.1]])
    flow = gradient_flow(task, network, learning_rate=1e-3).time_to(0.9)
    assert flow.status is lc.Status.ok
    for rate in (4e-3, 1e-3):
        steps = descend(task, network, learning_rate=rate, goal=0.9).steps
        # one whole step, and a first-order term of rate times sharpness
        assert steps * rate == pytest.approx(1e-3 * flow.flow_steps, abs=2 * rate, rel=20 * rate)


@pytest.mark.parametrize("learn", [("first",), ("second",), LAYERS])
def test_descent_steps_of_a_flow_use_the_weights_that_learn(learn):
    _, _, task, network = problem("static", inputs=2, hidden=4, outputs=2)
    learned = gradient_flow(task, network, learning_rate=1e-2, learn=learn).time_to(0.9)
    rest = gradient_flow(task, network, learning_rate=1e-2, learn=learn).limit()["excess_loss"].values[0]
    whole = LearningProblem.of(task, network, learn)
    goal = rest + 0.01 * (whole.statistics.constant - whole.least_loss - rest)
    run = descend(task, network, learning_rate=1e-2, learn=learn, goal=lc.Loss(whole.least_loss + float(goal)))
    assert learned.descent_steps == run.steps


@pytest.mark.parametrize(("start", "weaker"), [(1e-4, 0.1), (1e-6, 0.03), (1e-7, 0.003)])
def test_a_slowly_growing_mode_does_not_count_as_rest(start, weaker):
    """The gradient is small while a weak mode grows from a small start; the flow must continue."""
    task, network = lc.tasks.static(np.diag([1.0, weaker])), lc.TwoLayer(start * np.eye(2), start * np.eye(2))
    limit = gradient_flow(task, network, learning_rate=1.0).limit()
    assert limit["status"].values[0] == "ok"
    # at rest to 1e-9 of the largest slope, over a rate of 2 weaker
    np.testing.assert_allclose(limit["strength"].values[0], [1.0, weaker], rtol=0, atol=1e-6)


@pytest.mark.slow
def test_an_unfinished_flow_has_a_learning_time(monkeypatch):
    """The explicit solver may end before the flow rests; an accuracy reached before has a time.

    This happens with all weights of 32 hidden units over fifty steps. Here the solver steps of a small network are
    limited; it reaches 99% after 269 steps and rests after 565.
    """
    task, network = lc.tasks.integration(10), lc.LinearRNN.aligned(hidden_size=1)
    wanted = gradient_flow(task, network, learning_rate=1e-3).time_to(0.99)
    assert wanted.status is lc.Status.ok
    monkeypatch.setattr("learncast.theory.dynamics.gradient_flow.STIFF_SIZE", 0)
    monkeypatch.setattr("learncast.theory.dynamics.gradient_flow.MOST_STEPS", 400)
    flow = gradient_flow(task, network, learning_rate=1e-3)
    # The flow is integrated well past that time.
    assert flow.at([1.2 * wanted.flow_steps])["excess_loss"].values[0] < 5e-4
    found = flow.time_to(0.99)
    assert found.status is lc.Status.ok
    assert found.flow_steps == pytest.approx(wanted.flow_steps, rel=1e-6)


def unmoved(name):
    """A start at which the gradient is exactly 0."""
    if name == "plateau":  # evidence before a delay, without recurrence or output weights
        return lc.tasks.sensory.evidence_delay(6, 3), lc.LinearRNN([[0.3]], [[0.0]], [[0.0]])
    task = lc.tasks.static(np.diag([4.0, 1.0]))
    scale = 0.0 if name == "saddle" else 1.0
    return task, lc.TwoLayer(scale * np.diag([2.0, 1.0]), scale * np.diag([2.0, 1.0]))


@pytest.mark.parametrize("name", ["plateau", "saddle", "learned"])
def test_a_start_with_zero_gradient_stays(name):
    task, network = unmoved(name)
    flow = gradient_flow(task, network, learning_rate=0.1)
    found = flow.at([0.0, 10.0, np.inf])
    assert found["status"].values.tolist() == ["ok"] * 3
    np.testing.assert_array_equal(found["loss"].values, found["loss"].values[0])
    for key, value in weights(network).items():
        np.testing.assert_array_equal(weights(flow.network_at(np.inf))[key], value)


# --- invalid arguments ----------------------------------------------------------------------------------------------


def field_of_error(task, network, **given):
    """Return the argument that the exception of an invalid call names."""
    with pytest.raises(lc.InvalidSpec) as error:
        descend(task, network, **{"learning_rate": 0.01, "steps": 3, **given})
    return error.value.field


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"steps": None}, "goal"),
        ({"goal": 0.9}, "goal"),
        ({"steps": 1.5}, "steps"),
        ({"steps": -1}, "steps"),
        ({"steps": None, "goal": 1.5}, "accuracy"),
        ({"steps": None, "goal": 0.9, "most_steps": 0}, "most_steps"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": np.nan}, "learning_rate"),
        ({"learn": ("inputs",)}, "learn"),
        ({"learn": ("first",)}, "learn"),
        ({"optimizer": "adm"}, "optimizer"),
        ({"optimizer": torch.optim.Adam}, "optimizer"),
        ({"optimizer": "momentum", "momentum": 1.5}, "momentum"),
        ({"optimizer": "adam", "betas": (0.9, 1.5)}, "betas"),
        # torch rejects the following too; its bias correction would divide by 0.
        ({"optimizer": "adam", "betas": (1.0, 0.999)}, "betas"),
        ({"optimizer": "adam", "betas": (0.9,)}, "betas"),
        ({"optimizer": "adam", "betas": 0.9}, "betas"),
        ({"optimizer": "adam", "eps": -1e-8}, "eps"),
        ({"optimizer": "adamw", "weight_decay": np.nan}, "weight_decay"),
        ({"optimizer": "gd", "weight_decay": -1.0}, "weight_decay"),
        ({"loss": "cross_entropy"}, "training"),
        ({"clip": 1.0}, "training"),
        ({"batch": 10}, "rng"),
        ({"batch": 0, "rng": np.random.default_rng(0)}, "batch"),
        ({"batch": 2.5, "rng": np.random.default_rng(0)}, "batch"),
    ],
)
def test_invalid_settings_are_refused_by_name(given, field):
    _, _, task, network = problem("end")
    assert field_of_error(task, network, **given) == field


def test_recurrent_weights_are_fixed_unless_named():
    _, _, task, network = problem("end")
    run = lc.descend(task, network, learning_rate=0.01, steps=5)
    assert run.problem.learn == ("input", "output")
    np.testing.assert_array_equal(run.network_at(5).recurrent_weights, network.recurrent_weights)


def test_tasks_and_networks_that_do_not_match_raise():
    _, _, task, network = problem("end")
    field_of_error(lc.tasks.integration(4), network)
    wide = lc.tasks.integration(4, [1.0, 1.0])
    field_of_error(wide, lc.TwoLayer(np.eye(2), np.eye(2)))
    with pytest.raises(lc.UnsupportedModel):
        lc.descend(task, object(), learning_rate=0.1, steps=1)
    with pytest.raises(lc.InvalidSpec) as error:
        gradient_flow(task, network, learning_rate=0.1, tolerance=0.5)
    assert error.value.field == "tolerance"


def test_without_target_covariance_only_a_number_of_steps_is_possible():
    _, _, full, network = problem("end")
    task = lc.Task(full.input_covariance, full.cross_covariance)
    run, known = (descend(t, network, learning_rate=0.01, steps=10) for t in (task, full))
    assert np.isnan(run.loss).all()
    assert run.status is lc.Status.ok
    np.testing.assert_allclose(flat(run.network_at(10), RECURRENT), flat(known.network_at(10), RECURRENT), rtol=1e-12)
    assert field_of_error(task, network, steps=None, goal=0.9) == "target_covariance"
    field_of_error(task, network, batch=5, rng=np.random.default_rng(0))


def test_rank_deficient_covariances_train_like_torch():
    """One channel is 0 and one repeats another: singular input statistics, also in batches."""
    rng = np.random.default_rng(9)
    x = rng.standard_normal((30, 3, 1))
    x = np.concatenate([x, 2 * x, np.zeros_like(x)], axis=2)
    y = x[:, :, 0].sum(axis=1, keepdims=True)
    task = lc.Task.from_samples(x, y)
    network = problem("end", inputs=3, outputs=1)[3]
    losses, _ = trained(x, y, network, RECURRENT, lambda p: torch.optim.SGD(p, lr=0.01), 50)
    np.testing.assert_allclose(descend(task, network, learning_rate=0.01, steps=50).loss, losses, rtol=1e-10)
    run = descend(task, network, learning_rate=0.01, steps=50, batch=2, rng=rng)
    assert np.isfinite(run.loss).all()
    flow = gradient_flow(task, network, learning_rate=0.01)
    assert np.isfinite(flow.at([100.0])["loss"].values).all()


def test_overflow_does_not_warn():
    task, network = unstable()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        descend(task, network, learning_rate=1e-3, steps=3)
        gradient_flow(task, network, learning_rate=1e-3).limit()


@pytest.mark.parametrize("batch", [None, 4], ids=["statistics", "batches"])
@pytest.mark.parametrize("kind", ["static", "end"])
def test_networks_at_several_steps_equal_those_at_each(kind, batch):
    """In any order, with repetitions, and more of them than there are snapshots."""
    _, _, task, network = problem(kind)
    options = {"batch": batch, "rng": np.random.default_rng(3)} if batch else {}
    run = descend(task, network, learning_rate=0.01, steps=150, **options)
    steps = [*range(0, 151, 2), 150, 7, 7, 149]
    single = [run.network_at(step) for step in steps]
    for one, other in zip(run.networks_at(steps), single, strict=True):
        for name, found in weights(one).items():
            np.testing.assert_array_equal(found, weights(other)[name])


@pytest.mark.parametrize("by", ["flow", "pooled"])
@pytest.mark.parametrize("off", [1e-9, 1e-12, 1e-16, 1e-25])
def test_an_almost_learned_network_decays_to_rest(by, off):
    """One weight is slightly off and decays at the rate of the others' square."""
    root = np.sqrt(0.1)
    network = lc.TwoLayer([[root, off], [0.0, 0.0]], [[root, 0.0], [0.0, 0.0]])
    flow = lc.forecast(lc.tasks.static(np.diag([0.1, 0.0])), network, learning_rate=1e-3, method=by).solution
    for steps in (1.0, 900.0, 1e4, 1e9):
        first, second = (np.asarray(w) for w in flow.network_at(steps).maps)
        np.testing.assert_allclose(first, [[root, off * np.exp(-0.1 * 1e-3 * steps)], [0.0, 0.0]], rtol=0, atol=1e-8)
        np.testing.assert_allclose(second, network.second, rtol=0, atol=1e-8)
    assert flow.time_to(0.9).descent_steps == 0
    # The solver's default first step would be 1e12 or more; the limited one is about 1 / curvature = 5.
    assert off > 1e-10 or 1 < flow._course.ends[1] < 20


def test_progress_is_reported():
    _, _, task, network = problem("end")
    told = []
    descend(task, network, learning_rate=1e-3, steps=1000, progress=told.append)
    assert told == [0.0, 0.256, 0.512, 0.768]


@pytest.mark.parametrize("learn", [("input", "output"), ("input",), ("output",)])
@pytest.mark.parametrize(("hidden", "steps"), [(4, 7), (70, 30)])  # powers of the recurrence are kept, or too large
def test_gradient_of_a_fixed_recurrence_is_that_of_its_filters(learn, hidden, steps) -> None:
    """Complex differences of tr(M S M^T) / 2 - tr(M R^T) + c with M the filters C W^k A, written out."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, steps, 3)), rng.normal(size=(60, 2))
    shapes = {"input": (hidden, 3), "recurrent": (hidden, hidden), "output": (2, hidden)}
    w = {name: rng.normal(size=shape) / np.sqrt(hidden) for name, shape in shapes.items()}
    loss, slopes = loss_and_gradient(lag_statistics(lc.Task.from_samples(x, y)), *w.values(), learn=learn)

    def plain(own: dict[str, np.ndarray]) -> complex:
        total, gain = -y.astype(complex), own["output"]
        for t in reversed(range(steps)):
            total = total + x[:, t] @ (gain @ own["input"]).T
            gain = gain @ own["recurrent"]
        return (total * total).sum() / 120

    assert loss == pytest.approx(plain(w).real, rel=1e-12)
    for name in learn:
        for place in ((0, 0), (1, 2)):
            moved = w[name].astype(complex)
            moved[place] += 1e-30j
            assert slopes[name][place] == pytest.approx(plain({**w, name: moved}).imag / 1e-30, rel=1e-9)
