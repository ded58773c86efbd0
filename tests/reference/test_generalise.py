"""Held-out curves against plain training on raw trials, fold by fold."""

from __future__ import annotations

import numpy as np
import pytest

import learncast as lc

RATE = 0.01


def trials(number=50, steps=4, inputs=6, outputs=2, *, noise=2.0, seed=0, every_step=False):
    rng = np.random.default_rng(seed)
    x = 1.0 + rng.standard_normal((number, steps, inputs)) * np.linspace(0.5, 1.5, inputs)
    y = np.cumsum(x, axis=1)[:, :, :outputs] + noise * rng.standard_normal((number, steps, outputs))
    return x, y if every_step else y[:, -1]


def prepared(x, y, rows, centre, scale):
    """All trials, prepared by the means and scales of some."""
    if not centre:
        return x, y
    gap = x[rows] - x[rows].mean(axis=0)
    size = np.sqrt((gap**2).mean(axis=(0, 1))) if scale else np.ones(x.shape[2])
    size = np.where(size > 1e-10, size, 1.0)  # a constant channel is not scaled
    return (x - x[rows].mean(axis=0)) / size, y - y[rows].mean(axis=0)


def path(network, x, y, rows, stops, learn, activation="linear", batches=None, mask=1.0, rate=RATE):
    """Loss of every trial after each stop of training on some trials by torch autograd, (stops, trials)."""
    torch = pytest.importorskip("torch")
    f = {"linear": lambda h: h, "relu": torch.relu, "tanh": torch.tanh}[activation]
    y = y if y.ndim == 3 else y[:, None]
    names = ("input", "recurrent", "output")
    values = (network.input_weights, network.recurrent_weights, network.output_weights)
    weights = {k: torch.tensor(np.array(v), requires_grad=k in learn) for k, v in zip(names, values, strict=True)}
    X, Y = torch.tensor(x), torch.tensor(y)
    counted = torch.tensor(np.broadcast_to(mask, y.shape).copy())

    def losses(chosen):
        h, out = torch.zeros(len(chosen), len(values[0]), dtype=torch.float64), []
        for t in range(x.shape[1]):
            h = f(h @ weights["recurrent"].T + X[chosen][:, t] @ weights["input"].T)
            out.append(h @ weights["output"].T)
        gaps = torch.stack(out, 1)[:, -y.shape[1] :] - Y[chosen]
        return (counted[chosen] * gaps**2).sum(dim=(1, 2)) / 2

    found = []
    for step in range(max(stops) + 1):
        if step in stops:
            found.append(losses(np.arange(len(x))).detach().numpy())
        own = rows if batches is None else batches(step, rows)
        slopes = torch.autograd.grad(losses(own).mean(), [weights[k] for k in learn])
        with torch.no_grad():
            for k, slope in zip(learn, slopes, strict=True):
                weights[k] -= rate * slope
    return np.array(found)


def plain_curve(losses_of, folds):
    """Cross-validated loss with Burman's correction from losses (stops, trials) of training on some trials."""
    full = losses_of(np.arange(len(folds)))
    curve = full.mean(axis=1)
    for f in np.unique(folds):
        own = losses_of(np.flatnonzero(folds != f))
        curve += (folds == f).mean() * (own[:, folds == f].mean(axis=1) - own.mean(axis=1))
    return curve, full.mean(axis=1)


KINDS = {
    "pooled": {},
    "prepared": {"centre": True, "scale": "channel"},
    "every step": {"every_step": True},
    "learned recurrence": {"learn": ("input", "recurrent", "output")},
    "learned recurrence, prepared, every step": {
        "learn": ("input", "recurrent", "output"), "centre": True, "every_step": True,
    },
    "one layer": {"learn": ("input",)},
    "relu": {"activation": "relu"},
    "relu, prepared": {"activation": "relu", "centre": True, "scale": "channel"},
    "tanh": {"activation": "tanh"},
    "tanh, prepared, every step": {"activation": "tanh", "centre": True, "scale": "channel", "every_step": True},
    "one tanh unit": {"activation": "tanh", "units": 1},
}  # fmt: skip


@pytest.mark.equation("generalise Eq. (2)")
@pytest.mark.parametrize("kind", KINDS)
def test_the_curve_from_folds_is_that_of_plain_training_on_raw_trials(kind):
    options = dict(KINDS[kind])
    learn, activation = options.pop("learn", ("input", "output")), options.pop("activation", "linear")
    x, y = trials(inputs=6 if activation == "linear" else 1, outputs=2 if activation == "linear" else 1,
                  every_step=options.pop("every_step", False))  # fmt: skip
    units = options.pop("units", 5)
    task = lc.Task.from_samples(x, y, **options)
    network = lc.LinearRNN.random(x.shape[2], units, y.shape[-1], recurrence=0.8, scale=0.3, rng=1)
    own = network if activation == "linear" else lc.Activated(network, activation)
    training = lc.Training(RATE, learn=learn if activation == "linear" else None)
    g = lc.generalise(task, own, training, most_steps=60, folds=4)
    stops, folds = g.curve["steps"].values.tolist(), g.asked.samples.folds

    def losses_of(rows):
        data = prepared(x, y, rows, options.get("centre"), options.get("scale"))
        return path(network, *data, rows, range(61), learn, activation)

    curve, train = plain_curve(losses_of, folds)
    np.testing.assert_allclose(g.curve["held_out"], curve[stops], rtol=1e-8)
    np.testing.assert_allclose(g.curve["train"], train[stops], rtol=1e-8)
    assert g.stop == np.argmin(curve)
    assert g.loss == pytest.approx(curve.min(), rel=1e-8)
    assert g.rise == pytest.approx(curve[-1] / curve.min(), rel=1e-8)


def test_tanh_units_that_saturate_and_test_inputs_that_are_larger_match_plain_training():
    rng = np.random.default_rng(0)
    x, x_test = (size * rng.standard_normal((number, 6, 1)) for size, number in ((1.0, 40), (3.0, 50)))
    y, y_test = (np.sign(one.sum(axis=1)) @ [[1.0, -0.5]] for one in (x, x_test))
    weights = np.array([[0.3], [-0.1], [0.2]]), np.diag([0.8, 0.5, 0.8]), 0.3 * rng.standard_normal((2, 3))
    network, rate = lc.LinearRNN(*weights), 0.5
    g = lc.generalise(lc.Task.from_samples(x, y), lc.Activated(network, "tanh"), learning_rate=rate,
                      test=lc.Task.from_samples(x_test, y_test), most_steps=100)  # fmt: skip
    both = np.concatenate([x, x_test]), np.concatenate([y, y_test])
    losses = path(network, *both, np.arange(40), range(101), ("input", "output"), "tanh", rate=rate)
    curve = losses[:, 40:].mean(axis=1)
    np.testing.assert_allclose(g.curve["held_out"], curve[g.curve["steps"]], rtol=1e-8)
    assert g.stop == np.argmin(curve)


@pytest.mark.parametrize("learn", [("input", "output"), ("input", "recurrent", "output")])
def test_readouts_that_do_not_count_are_left_out(learn):
    x, y = trials(every_step=True)
    mask = np.random.default_rng(2).random(y.shape[:2]) < 0.7
    mask[:, -1] = True
    network = lc.LinearRNN.random(6, 5, 2, recurrence=0.8, scale=0.3, rng=1)
    task = lc.Task.from_samples(x, y, mask=mask)
    g = lc.generalise(task, network, lc.Training(RATE, learn=learn), most_steps=40, folds=4)

    def losses_of(rows):
        return path(network, x, y, rows, range(41), learn, mask=mask[:, :, None].astype(float))

    curve, _ = plain_curve(losses_of, g.asked.samples.folds)
    np.testing.assert_allclose(g.curve["held_out"], curve[g.curve["steps"]], rtol=1e-8)


def test_a_channel_that_is_constant_without_one_fold_is_not_scaled_there():
    x, y = trials()
    x[:, :, 2] = 0.3
    x[7, :, 2] = 5.0  # in one fold
    network = lc.LinearRNN.random(6, 5, 2, recurrence=0.8, scale=0.3, rng=1)
    task = lc.Task.from_samples(x, y, centre=True, scale="channel")
    g = lc.generalise(task, network, learning_rate=RATE, most_steps=60, folds=4)

    def losses_of(rows):
        return path(network, *prepared(x, y, rows, True, True), rows, range(61), ("input", "output"))

    curve, _ = plain_curve(losses_of, g.asked.samples.folds)
    np.testing.assert_allclose(g.curve["held_out"], curve[g.curve["steps"]], rtol=1e-8)


@pytest.mark.equation("generalise Eq. (1)")
@pytest.mark.parametrize("options", [{}, {"centre": True, "scale": "channel"}])
@pytest.mark.parametrize("learn", [("input", "output"), ("input", "recurrent", "output")])
def test_the_curve_on_test_trials_is_that_of_plain_training(learn, options):
    x, y = trials(30)
    x_test, y_test = trials(100, seed=5)
    network = lc.LinearRNN.random(6, 5, 2, recurrence=0.8, scale=0.3, rng=1)
    task, test = lc.Task.from_samples(x, y, **options), lc.Task.from_samples(x_test, y_test, **options)
    g = lc.generalise(task, network, lc.Training(RATE, learn=learn), test=test, most_steps=80)
    both = np.concatenate([x, x_test]), np.concatenate([y, y_test])
    data = prepared(*both, np.arange(30), options.get("centre"), options.get("scale"))
    curve = path(network, *data, np.arange(30), range(81), learn)[:, 30:].mean(axis=1)
    np.testing.assert_allclose(g.curve["held_out"], curve[g.curve["steps"]], rtol=1e-8)
    assert g.stop == np.argmin(curve)
    zero = (prepared(*both, np.arange(30), options.get("centre"), options.get("scale"))[1][30:] ** 2).sum(1).mean() / 2
    np.testing.assert_allclose(g.curve["r2"], 1 - curve[g.curve["steps"]] / zero, atol=1e-8)


def test_two_layers_and_exact_test_statistics_match_plain_training():
    rng = np.random.default_rng(0)
    x, teacher = rng.standard_normal((25, 10)), rng.standard_normal((3, 10))
    y = x @ teacher.T + 2 * rng.standard_normal((25, 3))
    population = lc.Task(np.eye(10)[None, :, None, :], teacher.T[None], (teacher @ teacher.T + 4 * np.eye(3)))
    network = lc.TwoLayer.balanced(10, 6, 3, scale=0.1, rng=rng)
    g = lc.generalise(lc.Task.from_samples(x[:, None], y), network, learning_rate=RATE, test=population,
                      most_steps=3000)  # fmt: skip
    A, C, curve = network.first, network.second, []
    for _ in range(3001):
        curve.append(((C @ A - teacher) ** 2).sum() / 2 + 6)
        G = (x @ (C @ A).T - y).T @ x / 25
        A, C = A - RATE * C.T @ G, C - RATE * G @ A.T
    np.testing.assert_allclose(g.curve["held_out"], np.array(curve)[g.curve["steps"]], rtol=1e-8)
    assert g.stop == np.argmin(curve)
    assert g.stop_set == (g.stop, g.stop)
    assert g.overfits == "yes"
    least = g.dataset["least_loss"]
    assert float(least) == pytest.approx(6)


@pytest.mark.parametrize("shuffle", [True, False])
def test_batches_are_those_of_plain_training_on_the_drawn_trials(shuffle):
    x, y = trials(30)
    x_test, y_test = trials(50, seed=5)
    network = lc.LinearRNN.random(6, 5, 2, recurrence=0.8, scale=0.3, rng=1)
    training = lc.Training(RATE, batch=8, shuffle=shuffle, seed=3)
    g = lc.generalise(lc.Task.from_samples(x, y), network, training, test=lc.Task.from_samples(x_test, y_test),
                      most_steps=30)  # fmt: skip
    rng, drawn, epoch = np.random.default_rng(3), [], np.empty((4, 0), dtype=int)
    for _ in range(31):
        if shuffle:
            if not epoch.shape[1]:
                epoch = rng.permuted(np.tile(np.arange(30), (4, 1)), axis=1)
            drawn.append(epoch[:, :8])
            epoch = epoch[:, 8:]
        else:
            drawn.append(rng.integers(30, size=(4, 8)))
    both, curves = (np.concatenate([x, x_test]), np.concatenate([y, y_test])), []
    for run in range(4):
        own = path(network, *both, np.arange(30), range(31), ("input", "output"),
                   batches=lambda n, _, r=run: drawn[n][r])  # fmt: skip
        curves.append(own[:, 30:].mean(axis=1))
    curve = np.mean(curves, axis=0)
    np.testing.assert_allclose(g.curve["held_out"], curve[g.curve["steps"]], rtol=1e-8)
    # The noise of batches makes many minima. The stop is the least between the neighbours of the best stop of the grid.
    grid = sorted({0, 30, *(min(round(10 ** (k / 24)), 30) for k in range(36))})
    best = int(np.argmin(curve[grid]))
    between = np.arange(grid[best - 1], grid[min(best + 1, len(grid) - 1)] + 1)
    assert g.stop == between[np.argmin(curve[between])]


@pytest.mark.parametrize("best", [0.6, 0.9, 1.5])
def test_the_best_stop_of_a_balanced_mode_is_that_of_the_closed_form(best):
    start, optimum, power, rate = 1e-3, 1.2, 0.5, 0.002
    network = lc.TwoLayer(np.full((1, 1), np.sqrt(start)), np.full((1, 1), np.sqrt(start)))
    train, population = (
        lc.Task(np.full((1, 1, 1, 1), power), np.full((1, 1, 1), power * u), np.full((1, 1), 2.0))
        for u in (optimum, best)
    )
    g = lc.generalise(train, network, learning_rate=rate, test=population, most_steps=6000)
    if best > optimum:
        assert (g.overfits, g.stop) == ("no", 6000)
        return
    steps = np.log((optimum / start - 1) / (optimum / best - 1)) / (2 * rate * power * optimum)
    assert g.stop == pytest.approx(steps, rel=2 * rate * power * optimum)  # descent lags behind the flow by this share


@pytest.mark.equation("generalise Eq. (6)")
def test_the_edge_of_noise_is_the_largest_strength_of_drawn_noise():
    rng, (n, m, P), tops, edges = np.random.default_rng(0), (24, 6, 600), [], []
    for _ in range(20):
        x, y = rng.standard_normal((P, 1, n)), 1.5 * rng.standard_normal((P, m))
        network = lc.TwoLayer.random(n, 8, m, scale=0.1, rng=rng)
        g = lc.generalise(lc.Task.from_samples(x, y), network, learning_rate=RATE, most_steps=1, folds=3)
        values, vectors = np.linalg.eigh(x[:, 0].T @ x[:, 0] / P)
        tops.append(np.linalg.svd(y.T @ x[:, 0] / P @ vectors / np.sqrt(values), compute_uv=False)[0])
        edges.append(float(g.dataset["edge"]))
    # The mean of the largest strength is just below the edge: its distance is of order (n + m)^(1/6) below n + m.
    assert 0.85 < np.mean(tops) / np.mean(edges) < 1.0
    assert np.mean(edges) == pytest.approx(1.5 * (np.sqrt(n) + np.sqrt(m)) / np.sqrt(P), rel=0.02)


def test_test_trials_may_count_at_other_steps_than_the_training_trials():
    rng = np.random.default_rng(4)
    x = rng.standard_normal((30, 4, 2))
    y = x.cumsum(axis=1) @ rng.standard_normal((2, 1)) + 0.3 * rng.standard_normal((30, 4, 1))
    counts = rng.random((30, 4)) < 0.6
    counts[0, -1] = True
    into, out = 0.3 * rng.standard_normal((3, 2)), 0.3 * rng.standard_normal((1, 3))
    network = lc.LinearRNN(into, 0.8 * np.eye(3), out)
    masked, complete = lc.Task.from_samples(x[:20], y[:20], mask=counts[:20]), lc.Task.from_samples(x[20:], y[20:])
    z = np.stack([(x[:, : t + 1] * 0.8 ** np.arange(t, -1, -1)[:, None]).sum(axis=1) for t in range(4)], axis=1)
    for train, test, live in (
        (masked, complete, np.vstack([counts[:20], np.ones((10, 4), bool)])),
        (lc.Task.from_samples(x[:20], y[:20]), lc.Task.from_samples(x[20:], y[20:], mask=counts[20:]),
         np.vstack([np.ones((20, 4), bool), counts[20:]])),
    ):  # fmt: skip
        first, second, held_out = into, out, []
        for _ in range(31):
            error = (z @ (second @ first).T - y) * live[:, :, None]
            held_out.append(0.5 * (error[20:] ** 2).sum() / 10)
            slope = np.einsum("nto,ntc->oc", error[:20], z[:20]) / 20
            first, second = first - 0.01 * second.T @ slope, second - 0.01 * slope @ first.T
        found = lc.generalise(train, network, learning_rate=0.01, test=test, most_steps=30)
        assert found.loss == pytest.approx(min(held_out), rel=1e-9)


def test_test_trials_with_targets_at_the_end_do_not_test_targets_at_every_step():
    x = np.random.default_rng(0).standard_normal((30, 4, 2))
    counts = np.random.default_rng(1).random((30, 4)) < 0.6
    end, masked = lc.Task.from_samples(x, x[:, -1]), lc.Task.from_samples(x, x, mask=counts)
    network = lc.LinearRNN.random(2, 3, 2, rng=0)
    for task, test in ((end, masked), (masked, end)):
        with pytest.raises(lc.InvalidSpec) as caught:
            lc.generalise(task, network, learning_rate=0.01, test=test, most_steps=5)
        assert caught.value.field == "test"
