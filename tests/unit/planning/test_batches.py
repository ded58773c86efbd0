"""Steps in batches, against plain stochastic descent on trials."""

import itertools
import json
import math

import numpy as np
import pytest

import learncast as lc
from learncast import tasks
from learncast.report.forecast import forecast_report
from learncast.study import Study
from learncast.tasks import Task

RATE = 1e-3


def trained(stages, network, batch, seed, learned, every=False):
    """Plain stochastic descent on fresh trials; steps of each stage."""
    rng = np.random.default_rng(seed)
    A, C, b = network.input_weights.copy(), network.output_weights.copy(), network.recurrent_weights[0, 0]
    counts = []
    for stage, done in zip(stages, learned, strict=True):
        age = np.arange(stage.task.steps)
        kernel = np.where(age[:, None] >= age, b ** np.maximum(age[:, None] - age, 0.0), 0.0)
        kernel = kernel if every else kernel[-1:]
        for n in range(100_000):
            if done(C @ A, n):
                break
            x, y = stage.task.sample(batch, rng)
            z = np.einsum("rt,btc->brc", kernel, x).reshape(-1, A.shape[1])
            y = y.reshape(len(z), -1)
            G = (z @ (C @ A).T - y).T @ z / batch
            A, C = A - RATE * C.T @ G, C - RATE * G @ A.T
        counts.append(n)
    return counts


def within(modes, accuracy):
    frame, best = modes.frame, modes.optimum

    def done(function, _):
        u = np.einsum("mk,mn,nk->k", frame.mode_outputs, function, frame.mode_inputs)
        return (np.abs(u - best) <= (1 - accuracy) * np.abs(best)).all()

    return done


def agree(simulated, measured):
    """Means and spreads of two samples of one distribution."""
    measured = np.asarray(measured, dtype=float)
    error = np.hypot(simulated.std(ddof=1) / math.sqrt(len(simulated)), measured.std(ddof=1) / math.sqrt(len(measured)))
    assert abs(simulated.mean() - measured.mean()) < 4 * error + 1
    assert 0.5 < (simulated.std(ddof=1) + 0.5) / (measured.std(ddof=1) + 0.5) < 2.0


@pytest.mark.slow_cases("64", "512")
@pytest.mark.parametrize("batch", [8, 64, 512])
def test_two_stages_of_modes(batch):
    target = tasks.integration(12, [1.0, 0.8], [1.0, 0.7])
    first = tasks.integration(12, [1.0, 0.8], [1.4, 0.9], name="stronger")
    network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=6, task=target)
    stages = [lc.Stage(first, goal=0.5), lc.Stage(target, goal=0.9)]
    forecast = lc.follow(stages, network, learning_rate=RATE)
    found = forecast.in_batches(batch)
    rules = [within(m, s.goal.value) for m, s in zip(forecast.modes, stages, strict=True)]
    each = np.array([trained(stages, network, batch, seed, rules) for seed in range(24)])
    agree(found.totals, each.sum(axis=1))
    agree(found.steps[0], each[:, 0])
    assert str(batch) in found.sentence.split(":")[0].replace(",", "")


def test_targets_at_every_step():
    task = tasks.integration(4, targets="every_step")
    network = lc.LinearRNN.aligned(recurrence=0.8, initial=0.3, hidden_size=3, task=task)
    stages = [lc.Stage(task, goal=0.8)]
    forecast = lc.follow(stages, network, learning_rate=RATE)
    rules = [within(forecast.modes[0], 0.8)]
    agree(
        forecast.in_batches(16).totals,
        [sum(trained(stages, network, 16, seed, rules, every=True)) for seed in range(24)],
    )


def test_fewer_runs_with_a_learned_recurrence_are_counted():
    task = tasks.integration(3)
    network = lc.LinearRNN([[0.4]], [[0.4]], [[0.4]])
    stages = [lc.Stage(task, steps=7), lc.Stage(task, goal=0.6)]
    forecast = lc.follow(stages, network, training=lc.Training(0.01, learn=("input", "recurrent", "output")))
    found = forecast.in_batches(2000)
    assert found.runs == 6
    assert (found.steps[0] == 7).all()
    assert found.mean == pytest.approx(forecast.steps.descent, rel=0.05)
    assert math.isnan(found.floor)


def plain_runs(network, learn, rate, batch, runs, reached):
    """Steps of plain training in torch on drawn trials, the target of which is the sum of three white inputs."""
    torch = pytest.importorskip("torch")
    rng, counts = np.random.default_rng(9), []
    for _ in range(runs):
        own = {k: torch.tensor(np.array(w), requires_grad=k in learn) for k, w in network.named_weights.items()}
        step = 0
        while not reached({k: w.detach().numpy() for k, w in own.items()}):
            step += 1
            x, h = torch.tensor(rng.standard_normal((batch, 3, 1))), 0.0
            for t in range(3):
                h = x[:, t] @ own["input"].T + (h @ own["recurrent"].T if t else 0.0)
            loss = ((h @ own["output"].T - x.sum(dim=1)) ** 2).sum() / (2 * batch)
            slopes = zip(learn, torch.autograd.grad(loss, [own[k] for k in learn]), strict=True)
            own |= {k: (own[k] - rate * slope).detach().requires_grad_() for k, slope in slopes}
        counts.append(step)
    return np.array(counts, dtype=float)


@pytest.mark.parametrize("learn", [("input", "output"), ("input", "recurrent", "output"), ("recurrent", "output")])
def test_runs_of_any_weights_take_the_steps_of_plain_training_on_drawn_trials(learn):
    """Means of two samples of runs, |z| < 4.5: false alarm 1e-5 for each case; the seeds are fixed."""
    task, b = tasks.integration(3), np.array([0.6, 0.3])
    network = lc.LinearRNN.aligned(task=task, recurrence=b, initial=0.5, hidden_size=2)
    forecast = lc.forecast(task, network, lc.Training(0.02, learn=learn), goal=0.8)
    assert forecast.method.name == ("modes" if len(learn) == 2 and "input" in learn else "flow")

    def reached(w):
        filters = [(w["output"] @ np.linalg.matrix_power(w["recurrent"], k) @ w["input"]).item() for k in range(3)]
        if forecast.method.name == "modes":  # within 20% of the best strength through this recurrence
            best = (0.6 ** np.arange(3)).sum() / (0.36 ** np.arange(3)).sum()
            return abs(filters[0] - best) <= 0.2 * best
        least = forecast.method.least_loss(0)
        return ((np.array(filters) - 1) ** 2).sum() / 2 - least <= 0.04 * (1.5 - least)

    found, plain = forecast.in_batches(8, runs=24).steps[0], plain_runs(network, learn, 0.02, 8, 24, reached)
    error = np.sqrt((found.var(ddof=1) + plain.var(ddof=1)) / 24)
    assert abs(found.mean() - plain.mean()) < 4.5 * error
    assert 0.5 < found.std() / plain.std() < 2


@pytest.mark.parametrize("learn", [("layer1",), ("layer1", "layer3")])
def test_a_batch_of_all_trials_is_the_full_batch_for_any_layers(learn):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 3))
    task = tasks.from_pairs(x, x @ rng.standard_normal((3, 2)) + 0.2 * rng.standard_normal((40, 2)))
    network = lc.Deep.random(3, (4, 3), 2, scale=0.6, rng=1)
    forecast = lc.forecast(task, network, lc.Training(0.02, learn=learn), goal=lc.Explained(0.8))
    assert (forecast.in_batches(40).steps == forecast.steps.descent).all()


def test_every_method_for_linear_networks_simulates_the_same_batches():
    task = tasks.integration(4)
    network = lc.LinearRNN.aligned(recurrence=0.8, initial=0.3, hidden_size=2, task=task)
    forecasts = [
        lc.follow([lc.Stage(task, goal=0.8)], network, learning_rate=5e-3, method=by)
        for by in ("modes", "two-layer", "pooled", "flow")
    ]
    counts = [forecast.in_batches(50, seed=1).steps for forecast in forecasts]
    for forecast, steps in zip(forecasts, counts, strict=True):
        assert abs(steps.mean() - forecast.steps.descent) < 0.1 * forecast.steps.descent
        np.testing.assert_array_equal(steps, counts[0])


def test_noise_as_wide_as_the_tolerance_is_reported():
    task = tasks.leaky_integration(10, 4.0, 1.0)
    network = lc.LinearRNN.aligned(recurrence=0.8, initial=0.3, hidden_size=2, task=task)
    forecast = lc.follow([lc.Stage(task, goal=0.999)], network, learning_rate=2e-3)
    found = forecast.in_batches(2)
    assert found.by_chance
    assert not forecast.in_batches(100_000).by_chance


def test_batches_that_cannot_be_simulated_are_refused():
    task = tasks.integration(10)
    network = lc.LinearRNN.aligned(recurrence=0.8, hidden_size=2, task=task)
    forecast = lc.follow([lc.Stage(task, goal=0.9)], lc.Activated(network, "relu"), learning_rate=1e-3)
    with pytest.raises(lc.UnsupportedModel) as caught:
        forecast.in_batches(8)
    assert caught.value.field == "batch"
    slow = lc.follow([lc.Stage(task, goal=0.9)], network, learning_rate=1e-9)
    with pytest.raises(lc.InvalidSpec) as caught:
        slow.in_batches(8)
    assert caught.value.field == "batch"


# --- recorded trials --------------------------------------------------------------------------------------------------


def recording(offset=3.0, targets=1.0, sparse=False, trials=150):
    """Trials with a mean, or mostly zero, and a start of random weights."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(trials, 5, 2)) + offset
    x = x * (rng.random(x.shape) < 0.15) if sparse else x
    y = x.sum(axis=1) @ np.array([[1.0], [-0.6]]) + 0.5 * rng.normal(size=(trials, 1))
    weights = 0.2 * rng.normal(size=(6, 3))
    start = np.sqrt(targets) * weights[:, :2], 0.8 * np.eye(6), np.sqrt(targets) * weights[:, 2:].T
    return x, targets * y, lc.LinearRNN(*start)


def order_of(trials, batch, shuffle, rng):
    """Trials of one batch after another, with plain numpy."""
    while True:
        if not shuffle:
            yield rng.integers(trials, size=batch)
            continue
        epoch = rng.permutation(trials)
        yield from (epoch[k : k + batch] for k in range(0, trials, batch))


def sgd(x, y, network, rate, accuracy, orders):
    """Steps of runs of stochastic gradient descent on the raw trials until the loss on all of them is low enough."""
    A, C = (np.repeat(one[None], len(orders), axis=0) for one in network.maps)
    z = np.einsum("t,btc->bc", network.recurrent_weights[0, 0] ** np.arange(x.shape[1])[::-1], x)
    best = np.linalg.lstsq(z, y, rcond=None)[0].T
    S, counts = z.T @ z, np.full(len(orders), -1)
    for n in itertools.count():
        gap = C @ A - best
        counts[
            (counts < 0) & (((gap @ S) * gap).sum(axis=(1, 2)) <= (1 - accuracy) ** 2 * ((best @ S) * best).sum())
        ] = n
        if (counts >= 0).all():
            return counts
        chosen = np.stack([next(order) for order in orders])
        error = z[chosen] @ np.swapaxes(C @ A, 1, 2) - y[chosen]
        G = np.swapaxes(error, 1, 2) @ z[chosen] / chosen.shape[1]
        A, C = A - rate * np.swapaxes(C, 1, 2) @ G, C - rate * G @ np.swapaxes(A, 1, 2)


CASES = {
    "one trial, with a mean": ({}, 1, 2e-4),
    "four trials, with a mean": ({}, 4, 4e-4),
    "sparse inputs": ({"offset": 0.0, "sparse": True}, 16, 0.1),
    "a last batch that is smaller": ({}, 64, 5e-4),
}


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_batches_of_recorded_trials_take_the_steps_of_plain_sgd(case, shuffle):
    """Means within 4 standard errors, spreads within a factor of 2 (beyond 4 sigma for 24 against 24 runs)."""
    options, batch, rate = CASES[case]
    x, y, network = recording(**options)
    training = lc.Training(rate, batch=batch, shuffle=shuffle)
    found = lc.forecast(Task.from_samples(x, y), network, training, lc.Accuracy(0.8), strict=False)
    orders = [order_of(len(x), batch, shuffle, np.random.default_rng(seed)) for seed in range(24)]
    agree(found.batches.totals, sgd(x, y, network, rate, 0.8, orders))
    assert not found.batches.gaussian
    assert found.steps.descent == round(found.batches.mean)
    assert found.steps.spread == found.batches.spread


@pytest.mark.slow
def test_shuffled_batches_take_the_steps_of_a_torch_loader():
    torch = pytest.importorskip("torch")
    x, y, network = recording()
    data = torch.utils.data.TensorDataset(torch.arange(len(x)))

    def orders(seed):
        generator = torch.Generator().manual_seed(seed)
        loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True, generator=generator)
        while True:
            yield from (chosen.numpy() for (chosen,) in loader)

    training = lc.Training(5e-4, batch=16, shuffle=True)
    found = lc.forecast(Task.from_samples(x, y), network, training, lc.Accuracy(0.8), strict=False)
    agree(found.batches.totals, sgd(x, y, network, 5e-4, 0.8, [orders(seed) for seed in range(16)]))


def test_shuffled_epochs_are_quieter_than_independent_draws():
    x, y, network = recording()
    forecast = lc.forecast(Task.from_samples(x, y), network, lc.Training(5e-4), lc.Accuracy(0.8), strict=False)
    assert forecast.method.name == "pooled"
    independent, shuffled, again = (forecast.in_batches(4, shuffle=shuffle) for shuffle in (False, True, True))
    assert shuffled.spread < 0.5 * independent.spread
    np.testing.assert_array_equal(shuffled.steps, again.steps)


@pytest.mark.parametrize("factor", [1e-7, 1e6])
@pytest.mark.parametrize("recorded", [True, False], ids=["trials", "moments"])
def test_steps_in_batches_do_not_depend_on_the_units_of_the_targets(recorded, factor):
    """Targets and starting maps times a factor, at a learning rate divided by it, follow the scaled path."""
    counts = []
    for size, rate in ((1.0, 5e-4), (factor, 5e-4 / factor)):
        x, y, network = recording(targets=size)
        task = Task.from_samples(x, y)
        if not recorded:
            task = Task(task.input_covariance, task.cross_covariance, task.target_covariance)
        training = lc.Training(rate, batch=16)
        forecast = lc.forecast(task, network, training, lc.Accuracy(0.8), strict=False)
        assert forecast.batches.gaussian == (not recorded)
        counts.append(forecast.batches.totals)
    np.testing.assert_allclose(counts[0], counts[1], atol=1)


@pytest.mark.parametrize("optimizer", ["gd", "adam"])
def test_a_batch_of_all_trials_is_the_full_batch(optimizer):
    x, y, network = recording()
    task, full = Task.from_samples(x, y), lc.Training(5e-4, optimizer=optimizer)
    steps = [
        lc.forecast(task, network, full.with_(batch=batch, shuffle=shuffle), lc.Accuracy(0.8), strict=False).steps
        for batch, shuffle in ((None, False), (len(x), False), (len(x), True), (3 * len(x), False))
    ]
    assert np.isfinite(steps[0].descent)
    assert len({(one.descent, one.interval) for one in steps}) == 1


def test_decisions_are_counted_in_a_batch_of_all_trials():
    pytest.importorskip("torch")
    x, y, network = recording()
    goal, training = lc.training.DecisionAccuracy(0.7, every=1), lc.Training(5e-4)
    task = Task.from_samples(x, y)
    counts = [lc.forecast(task, network, training.with_(batch=b), goal, strict=False).steps for b in (None, len(x))]
    assert counts[0].descent == counts[1].descent


def test_masked_trials_are_drawn_whole():
    """A trial brings all of its readouts that count into a batch."""
    rng = np.random.default_rng(0)
    x = 1 + rng.normal(size=(80, 4, 1))
    y, mask = np.cumsum(x, axis=1), (rng.random((80, 4)) < 0.6).astype(float)
    mask[:, -1] = 1.0
    network = lc.LinearRNN(0.3 * rng.normal(size=(3, 1)), 0.7 * np.eye(3), 0.3 * rng.normal(size=(1, 3)))
    found = lc.forecast(
        Task.from_samples(x, y, mask=mask), network, lc.Training(2e-3, batch=4), lc.Accuracy(0.8), strict=False
    )
    z = np.zeros_like(x)
    for t in range(4):
        z[:, t] = x[:, t] + (0.7 * z[:, t - 1] if t else 0.0)
    z, y = z * mask[:, :, None], y * mask[:, :, None]
    S, R = np.einsum("ptc,ptd->cd", z, z) / 80, np.einsum("pto,ptc->oc", y, z) / 80
    counts = []
    for seed in range(24):
        A, C = network.maps
        for step, chosen in enumerate(order_of(80, 4, False, np.random.default_rng(seed))):
            gap = C @ A - R / S
            if (gap * S * gap).sum() <= 0.04 * (R * R / S).sum():
                counts.append(step)
                break
            G = np.einsum("pto,ptc->oc", z[chosen] @ (C @ A).T - y[chosen], z[chosen]) / 4
            A, C = A - 2e-3 * C.T @ G, C - 2e-3 * G @ A.T
    agree(found.batches.totals, counts)


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_learned_recurrence_sees_batches_of_the_trials(shuffle):
    """After one step the weights are those of torch on some batch of four trials."""
    torch = pytest.importorskip("torch")
    x = 1 + np.random.default_rng(3).normal(size=(6, 3, 1))
    y, learn = x.sum(axis=1), ("input", "recurrent", "output")
    network = lc.LinearRNN([[0.4]], [[0.5]], [[0.6]])
    training = lc.Training(0.01, batch=4, shuffle=shuffle, learn=learn)
    end = lc.descend(Task.from_samples(x, y), network, training, steps=1, rng=np.random.default_rng(5)).network_at(1)
    combine = itertools.combinations if shuffle else itertools.combinations_with_replacement
    possible = np.array(list(combine(range(6), 4)))
    weights = torch.tensor([0.4, 0.5, 0.6], dtype=torch.float64).repeat(len(possible), 1).requires_grad_()
    hidden = torch.zeros(possible.shape, dtype=torch.float64)
    for step in range(3):
        hidden = weights[:, 1:2] * hidden + weights[:, :1] * torch.tensor(x[possible, step, 0])
    (0.5 * (weights[:, 2:] * hidden - torch.tensor(y[possible, 0])) ** 2).mean(dim=1).sum().backward()
    reached = [w[0, 0] for w in (end.input_weights, end.recurrent_weights, end.output_weights)]
    distance = (weights - 0.01 * weights.grad).detach().numpy() - reached
    assert np.abs(distance).max(axis=1).min() < 1e-12


def test_command_and_python_report_the_same_steps_in_batches(tmp_path):
    x, y, network = recording()
    np.savez(tmp_path / "trials.npz", inputs=x, targets=y)
    names = ("input_weights", "recurrent_weights", "output_weights")
    np.savez(tmp_path / "start.npz", **{name: getattr(network, name) for name in names})
    study = tmp_path / "study.toml"
    study.write_text(
        '[network]\nweights = "start.npz"\n[training]\nlearning_rate = 5e-4\naccuracy = 0.8\n'
        "batch = 16\nshuffle = true\n"
        '[target]\ndata = "trials.npz"\ninputs = "inputs"\ntargets = "targets"\n'
    )
    values = json.loads(forecast_report(Study.load(study)).json())
    training = lc.Training(5e-4, batch=16, shuffle=True)
    found = lc.forecast(Task.from_samples(x, y), network, training, lc.Accuracy(0.8), strict=False)
    assert values["descent_steps"] == found.steps.descent
    assert values["full_batch_steps"] == found.full_batch.steps.descent
    assert values["interval"] == pytest.approx(list(found.steps.interval))
    batches = values["in_batches"]
    assert (batches["mean_steps"], batches["spread"]) == pytest.approx((found.batches.mean, found.steps.spread))
    assert (batches["shuffle"], batches["gaussian"]) == (True, False)


def test_stages_in_batches_add_up_to_their_total():
    target = tasks.integration(6)
    network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.3, hidden_size=3, task=target)
    stages = [lc.Stage(target.varied(target_strength=1.5), goal=0.5), lc.Stage(target, goal=0.8)]
    found = lc.follow(stages, network, lc.Training(5e-3, batch=8))
    assert found.steps.descent == sum(s.steps.descent for s in found.stages)
    assert abs(found.steps.descent - found.batches.mean) <= 0.5
    alone = lc.forecast(target, network, lc.Training(5e-3, batch=8), 0.8)
    assert found.direct.descent == alone.steps.descent
    assert found.saving.descent == alone.steps.descent - found.steps.descent
    assert found.full_batch.saving.descent == found.full_batch.direct.descent - found.full_batch.steps.descent


def test_a_nonlinear_network_has_no_forecast_in_batches():
    task = tasks.integration(10)
    network = lc.Activated(lc.LinearRNN.aligned(recurrence=0.8, hidden_size=2, task=task), "relu")
    with pytest.raises(lc.UnsupportedModel) as caught:
        lc.forecast(task, network, lc.Training(1e-3, batch=8), 0.9)
    assert caught.value.field == "batch"
