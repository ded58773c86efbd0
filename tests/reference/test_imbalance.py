"""Bounds from the conserved imbalance of two layers, against integration by scipy and plain descent."""

import re

import numpy as np
import pytest
import scipy
import torch

import learncast as lc
from learncast.report.forecast import forecast_report as forecast
from learncast.study import Study
from learncast.theory import Imbalance, PooledProblem

RATE = 1e-2
SIZES = ((4, 16, 3), (8, 24, 5), (4, 3, 3), (3, 2, 4))


def drawn(sizes, start, *, anisotropy=1.0, seed=0):
    """Return a task, a network (torch's default initialisation or a given scale) and its imbalance."""
    n, h, m = sizes
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((n, n)))[0]
    C = turn @ np.diag(np.geomspace(1, anisotropy, n)) @ turn.T
    task = lc.tasks.static(rng.standard_normal((m, n)) @ C, C)
    if start == "torch":
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            layers = torch.nn.Linear(n, h, bias=False), torch.nn.Linear(h, m, bias=False)
        network = lc.TwoLayer.from_module(torch.nn.Sequential(*layers))
    else:
        network = lc.TwoLayer.random(n, h, m, scale=start, rng=rng)
    return task, network, Imbalance(PooledProblem.of(task, network), RATE)


def integrated(found, ends, event=None):
    """Return the layers at given flow times, integrated from the gradient of the loss."""
    p, shape = found.problem, found.problem.first.shape

    def slope(_, flat):
        A, C = flat[: p.first.size].reshape(shape), flat[p.first.size :].reshape(p.second.shape)
        G = p.cross - C @ A @ p.power
        return np.concatenate([(C.T @ G).ravel(), (G @ A.T).ravel()])

    begin = np.concatenate([p.first.ravel(), p.second.ravel()])
    span = (0.0, float(np.max(ends)))
    run = scipy.integrate.solve_ivp(slope, span, begin, "DOP853", t_eval=ends, rtol=1e-12, atol=1e-14, events=event)
    cut = [(y[: p.first.size].reshape(shape), y[p.first.size :].reshape(p.second.shape)) for y in run.y.T]
    return cut, run


def losses(found, layers):
    p = found.problem
    best = np.linalg.solve(p.power, p.cross.T).T
    gaps = [C @ A - best for A, C in layers]
    return np.array([np.trace(g @ p.power @ g.T) / 2 for g in gaps])


@pytest.mark.parametrize("anisotropy", [1.0, 5.0])
@pytest.mark.parametrize("start", ["torch", 1e-3, 0.1])
@pytest.mark.parametrize("sizes", SIZES)
def test_decay_of_the_loss_is_within_the_bounds(sizes, start, anisotropy):
    _, _, found = drawn(sizes, start, anisotropy=anisotropy)
    times = np.linspace(0, 2.0, 9)
    layers, _ = integrated(found, times)
    D = [C.T @ C - A @ A.T for A, C in layers]
    assert np.allclose(D, D[0], atol=1e-9)  # conserved for any input covariance
    seen = losses(found, layers)
    assert seen[0] == pytest.approx(found.excess, rel=1e-12)
    # 1e-9 is the error of the integration.
    assert (seen <= seen[0] * np.exp(-2 * found.slowest * times) * (1 + 1e-9)).all()
    assert (seen >= seen[0] * np.exp(-2 * found.fastest * times) * (1 - 1e-9)).all()


def test_a_wide_default_network_has_a_finite_upper_bound():
    _, _, found = drawn((4, 16, 3), "torch")
    assert found.slowest > 0.3
    assert np.isfinite(found.interval(1e-4)[1])


@pytest.mark.parametrize("start", ["torch", 1e-4, 1e-2])
@pytest.mark.parametrize("sizes", SIZES)
def test_learning_time_is_within_the_bounds(sizes, start):
    task, network, found = drawn(sizes, start, seed=3)
    goal = 0.01 * float(found.problem.descent.baseline_loss)
    low, high = found.interval(goal)
    steps = lc.forecast(task, network, learning_rate=RATE, strict=False).solution.time_to_loss(goal)
    assert low <= steps <= high


def test_small_random_starts_are_bounded_closely():
    rng = np.random.default_rng(1)
    task = lc.tasks.static(np.eye(3, 4) * [[1.5], [1.2], [1.0]])
    network = lc.TwoLayer.random(4, 16, 3, scale=1e-4, rng=rng)
    found = Imbalance(PooledProblem.of(task, network), RATE)
    goal = 1e-4 * float(found.problem.descent.baseline_loss)
    low, high = found.interval(goal)
    steps = lc.forecast(task, network, learning_rate=RATE).solution.time_to_loss(goal)
    assert low <= steps <= high
    assert high - low < 0.01 * steps


@pytest.mark.parametrize("scale", [1e-3, 0.03, 0.3])
def test_deviation_from_the_balanced_flow_is_below_its_bound(scale):
    _, _, found = drawn((3, 6, 3), scale, seed=5)
    steps = np.linspace(0, 300, 301)
    bound = found.deviation(steps)
    layers, _ = integrated(found, steps[::20] * RATE)
    balanced = found.flow.network_functions(steps[::20] * RATE)
    off = np.array([np.linalg.norm(C @ A - one) for (A, C), one in zip(layers, balanced, strict=True)])
    assert (off <= bound[::20] + 1e-12).all()
    assert off.max() > 0


def test_bounds_of_balanced_layers_are_close():
    rng = np.random.default_rng(2)
    task = lc.tasks.static(rng.standard_normal((3, 3)))
    for imbalance in (0.0, 0.4):
        network = lc.TwoLayer.balanced(3, 3, 3, scale=0.1, imbalance=imbalance, rng=rng)
        found = Imbalance(PooledProblem.of(task, network), RATE)
        assert found.share < 1e-12
        assert not found.remarks(0.99)
        goal = 1e-4 * float(found.problem.descent.baseline_loss)
        low, high = found.interval(goal)
        steps = lc.forecast(task, network, learning_rate=RATE).solution.time_to_loss(goal)
        assert low <= steps <= high
        assert high - low < 0.02 * steps


def test_an_unbalanced_start_is_integrated():
    task, network, found = drawn((4, 16, 3), "torch", seed=2)
    solution = lc.forecast(task, network, learning_rate=RATE).solution
    assert solution.forecast_class == "integrated"
    assert len(solution.bounds(0.99)) == 1
    assert solution.imbalance.share == found.share
    # Plain descent at a small rate takes the same time.
    p, goal = found.problem, 1e-4 * float(found.problem.descent.baseline_loss)
    A, C, rate, taken = p.first.copy(), p.second.copy(), RATE / 50, 0
    best = np.linalg.solve(p.power, p.cross.T).T
    while np.trace((C @ A - best) @ p.power @ (C @ A - best).T) / 2 > goal:
        G = p.cross - C @ A @ p.power
        A, C, taken = A + rate * C.T @ G, C + rate * G @ A.T, taken + 1
    assert taken / 50 == pytest.approx(solution.time_to_loss(goal), rel=2e-3)


def test_inputs_without_variance_do_not_affect_the_bounds():
    rng = np.random.default_rng(4)
    task = lc.tasks.static(np.diag([2.0, 1.0, 0.0]), np.diag([1.0, 1.0, 0.0]))
    network = lc.TwoLayer.random(3, 12, 3, scale=0.3, rng=rng)
    found = Imbalance(PooledProblem.of(task, network), RATE)
    assert found.slowest > 0
    goal = 1e-4 * float(found.problem.descent.baseline_loss)
    low, high = found.interval(goal)
    steps = lc.forecast(task, network, learning_rate=RATE).solution.time_to_loss(goal)
    assert low <= steps <= high


def test_remark_contains_the_interval():
    _, _, found = drawn((4, 16, 3), "torch", seed=2)
    low, high = found.interval(1e-4 * float(found.problem.descent.baseline_loss))
    assert f"between {low:.4g} and {high:.4g}" in found.remarks(0.99)[0]


def hand_made(first, second, cross, variances):
    """Return the imbalance of given layers with independent inputs."""
    C = np.diag(np.asarray(variances, dtype=float))
    task = lc.tasks.static(np.asarray(cross, dtype=float), C)
    return Imbalance(PooledProblem.of(task, lc.TwoLayer(np.array(first), np.array(second))), RATE)


def test_decay_rates_against_manual_calculation():
    """D = diag(-1, -1/4, 16/25): two inputs of variance 2 and 3, three units, one output that is still 0."""
    found = hand_made([[1.0, 0.0], [0.0, 0.5], [0.0, 0.0]], [[0.0, 0.0, 0.8]], [[1.0, 2.0]], [2.0, 3.0])
    assert found.slowest == pytest.approx(2 * (0.64 + 0.25), rel=1e-14)
    # M* P^1/2 = (1 / sqrt 2, 2 / sqrt 3), and the baseline loss is half its square.
    size = np.sqrt(1 / 2 + 4 / 3)
    assert found.excess == pytest.approx(size**2 / 2, rel=1e-14)
    largest = (size + size) / np.sqrt(2)
    roots = [max(np.roots([1.0, -end, -(largest**2)])) for end in (1.0, 0.64)]
    assert found.fastest == pytest.approx(3 * sum(roots), rel=1e-14)
    # The inputs are not white, so only these rates bound the time.
    low, high = found.interval(found.excess / 100)
    assert low == pytest.approx(np.log(100) / (2 * RATE * found.fastest), rel=1e-14)
    assert high == pytest.approx(np.log(100) / (2 * RATE * found.slowest), rel=1e-14)


def test_few_units_or_balanced_layers_guarantee_no_decay():
    assert hand_made([[0.3, 0.1]], [[0.2], [0.9]], np.eye(2), [1.0, 2.0]).slowest == 0
    assert hand_made(0.1 * np.eye(2), 0.1 * np.eye(2), np.eye(2), [1.0, 2.0]).slowest == pytest.approx(0, abs=1e-17)


def test_interval_of_the_initial_loss_is_zero():
    for anisotropy in (1.0, 5.0):
        _, _, found = drawn((3, 2, 4), 0.1, anisotropy=anisotropy)
        assert found.slowest == 0
        assert found.interval(found.excess) == (0.0, 0.0)


def coarsely(found, span):
    """Return the bound after one step from the largest change of Q Q^T: |(Q Q^T)'| <= 2 f |Q Q^T| + |Q Q^T|^2."""
    p, half = found.problem, found.flow.imbalance / 2
    S, n = p.cross / p.variance, p.first.shape[1]
    F = np.block([[-half * np.eye(n), S.T], [S, half * np.eye(len(S))]])
    basis = np.linalg.svd(np.hstack([p.first, p.second.T]), full_matrices=False)[0]
    D = p.second.T @ p.second - p.first @ p.first.T
    drive = np.linalg.norm(basis.T @ D @ basis - 2 * half * np.eye(basis.shape[1]), 2) / 2
    fastest = np.linalg.eigvalsh(F)[-1]
    begin, end = found.flow.grams(np.array([0.0, span * RATE * p.variance]))
    h = span * RATE * p.variance
    most = np.linalg.norm(begin, 2) * np.exp(2 * fastest * h)
    moved = (2 * fastest * most + most**2) * h / 2
    far, near = (
        min(max(np.linalg.eigvalsh(F - k * G)[-1] for G in (begin, end)) + k * moved, fastest) for k in (1 / 4, 1 / 2)
    )
    pushed = drive * h * np.sqrt(np.trace(begin)) * np.exp(fastest * h)
    once = np.exp(max(far + drive, 0.0) * h) * pushed
    e = min(once, np.exp(max(near + drive + once**2 / 16, 0.0) * h) * pushed)
    layers = np.sqrt(np.linalg.norm(end[:n, :n], 2) + np.linalg.norm(end[n:, n:], 2))
    return np.sqrt(p.variance) * (e * layers + e**2 / 2)


@pytest.mark.parametrize("scale", [0.1, 0.6])
def test_bound_of_one_long_step(scale):
    _, network, _ = drawn((3, 6, 3), scale, seed=5)
    cross = np.random.default_rng(6).standard_normal((3, 3))
    found = hand_made(network.first, network.second, cross, [0.7, 0.7, 0.7])
    for span in (0.5, 2.0, 8.0):
        assert found.deviation(np.array([span]))[0] == pytest.approx(coarsely(found, span), rel=1e-10)


@pytest.mark.parametrize("scale", [0.1, 0.6])
def test_close_steps_approach_the_differential_inequality(scale):
    """|e|' = (k + d) |e| + d |Q^|, integrated by scipy; the first-order effect of the step is extrapolated."""
    _, network, _ = drawn((3, 6, 3), scale, seed=5)
    cross = np.random.default_rng(6).standard_normal((3, 3))
    found = hand_made(network.first, network.second, cross, [0.7, 0.7, 0.7])
    S, half = cross / 0.7, found.flow.imbalance / 2
    F = np.block([[-half * np.eye(3), S.T], [S, half * np.eye(3)]])
    D = network.second.T @ network.second - network.first @ network.first.T
    drive = np.linalg.norm(D - 2 * half * np.eye(6), 2) / 2
    assert abs(half) > 0.01 * scale**2

    def slope(time, e):
        gram = found.flow.grams(time)
        far, near = (np.linalg.eigvalsh(F - k * gram)[-1] for k in (1 / 4, 1 / 2))
        growth = max(min(far, near + e[0] ** 2 / 16) + drive, 0.0)
        return [growth * e[0] + drive * np.sqrt(np.trace(gram))]

    last = 100.0
    end = last * RATE * 0.7
    e = scipy.integrate.solve_ivp(slope, (0.0, end), [0.0], rtol=1e-8, atol=1e-12).y[0, -1]
    gram = found.flow.grams(end)
    # |W2 W1 - W2^ W1^| <= |e| sqrt(|W1^|^2 + |W2^|^2) + |e|^2 / 2
    layers = np.sqrt(np.linalg.norm(gram[:3, :3], 2) + np.linalg.norm(gram[3:, 3:], 2))
    expected = np.sqrt(0.7) * (e * layers + e**2 / 2)
    once, twice = (found.deviation(np.linspace(0, last, number))[-1] for number in (1001, 2001))
    assert twice == pytest.approx(expected, rel=0.05)
    assert 2 * twice - once == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("accuracy", [0.8, 0.95])
def test_forecast_reports_the_bounds_of_the_requested_accuracy(tmp_path, accuracy):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 4, 2)) * [1.0, 1.4]
    y = x.sum(axis=1) @ [[1.0, 0.4], [0.2, 0.8]] + 0.2 * rng.standard_normal((60, 2))
    np.savez(tmp_path / "trials.npz", inputs=x, targets=y)
    raw = {
        "network": {"hidden_size": 24, "recurrence": 0.7, "initial": "random", "scale": 0.3, "seed": 1},
        "training": {"learning_rate": RATE, "accuracy": accuracy},
        "target": {"name": "recorded", "data": "trials.npz"},
    }
    study = Study.from_dict(raw, folder=tmp_path, source="here")
    (remark,) = (line for line in forecast(study).values["remarks"] if "imbalance" in line)
    asked, low, high = map(float, re.findall(r"of (\S+) between (\S+) and (\S+) steps", remark)[0])
    assert asked == accuracy
    # Plain descent on the trials, at a small rate that approximates the flow.
    z, fine = np.einsum("ptc,t->pc", x, 0.7 ** np.arange(3, -1, -1)), 20
    A, C, taken = study.network.input_weights, study.network.output_weights, 0
    missed = np.linalg.lstsq(z, y, rcond=None)[1].sum()
    while ((z @ (C @ A).T - y) ** 2).sum() - missed > (1 - accuracy) ** 2 * ((y**2).sum() - missed):
        G = (z @ (C @ A).T - y).T @ z / len(z)
        A, C, taken = A - RATE / fine * C.T @ G, C - RATE / fine * G @ A.T, taken + 1
    assert low <= taken / fine <= high


def test_forecast_reports_no_infinite_bound(tmp_path):
    """Equal numbers of inputs, outputs and hidden units guarantee no decay."""
    raw = {
        "network": {"kind": "two-layer", "hidden_size": 4, "start": "random", "scale": 0.8, "seed": 1},
        "training": {"learning_rate": RATE, "accuracy": 0.9},
        "target": {
            "name": "static",
            "family": "static",
            "cross_correlation": np.random.default_rng(0).normal(size=(4, 4)).tolist(),
        },
    }
    found = forecast(Study.from_dict(raw, folder=tmp_path, source="here")).values["remarks"]
    (remark,) = (line for line in found if "imbalance" in line)
    assert "between" not in remark
