"""What the conserved imbalance of two layers bounds, against integration by scipy and descent in plain numpy."""

import numpy as np
import pytest
import scipy
import torch

import learncast as lc
from learncast.dynamics.balanced.imbalance import Imbalance
from learncast.dynamics.pooled import PooledProblem

RATE = 1e-2
SIZES = ((4, 16, 3), (8, 24, 5), (4, 3, 3), (3, 2, 4))


def drawn(sizes, start, *, anisotropy=1.0, seed=0):
    """A task, a start and what it says, the start by torch's default initialisation or of a scale."""
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
    """Layers of the flow at given flow times, written down from the loss alone."""
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
def test_the_loss_keeps_between_the_paces_that_the_imbalance_allows(sizes, start, anisotropy):
    _, _, found = drawn(sizes, start, anisotropy=anisotropy)
    times = np.linspace(0, 2.0, 9)
    layers, _ = integrated(found, times)
    D = [C.T @ C - A @ A.T for A, C in layers]
    assert np.allclose(D, D[0], atol=1e-9)  # conserved, whatever the covariance of the inputs
    seen = losses(found, layers)
    assert seen[0] == pytest.approx(found.excess, rel=1e-12)
    # 1e-9: the integration's own error.
    assert (seen <= seen[0] * np.exp(-2 * found.slowest * times) * (1 + 1e-9)).all()
    assert (seen >= seen[0] * np.exp(-2 * found.fastest * times) * (1 - 1e-9)).all()


def test_a_wide_default_network_is_sure_to_learn():
    _, _, found = drawn((4, 16, 3), "torch")
    assert found.slowest > 0.3
    assert np.isfinite(found.interval(1e-4)[1])


@pytest.mark.parametrize("start", ["torch", 1e-4, 1e-2])
@pytest.mark.parametrize("sizes", SIZES)
def test_the_learning_time_is_between_the_bounds(sizes, start):
    task, network, found = drawn(sizes, start, seed=3)
    goal = 0.01 * float(found._descent.whole)
    low, high = found.interval(goal)
    steps = lc.solve(task, network, learning_rate=RATE, strict=False).time_to_loss(goal)
    assert low <= steps <= high


def test_small_random_starts_are_bounded_closely():
    rng = np.random.default_rng(1)
    task = lc.tasks.static(np.eye(3, 4) * [[1.5], [1.2], [1.0]])  # of modes that are about equally strong
    network = lc.TwoLayer.random(4, 16, 3, scale=1e-4, rng=rng)
    found = Imbalance(PooledProblem.of(task, network), RATE)
    goal = 1e-4 * float(found._descent.whole)
    low, high = found.interval(goal)
    steps = lc.solve(task, network, learning_rate=RATE).time_to_loss(goal)
    assert low <= steps <= high
    assert high - low < 0.01 * steps


@pytest.mark.parametrize("scale", [1e-3, 0.03, 0.3])
def test_the_balanced_flow_is_off_by_no_more_than_the_bound(scale):
    _, _, found = drawn((3, 6, 3), scale, seed=5)
    steps = np.linspace(0, 300, 301)
    bound = found.deviation(steps)
    layers, _ = integrated(found, steps[::20] * RATE)
    balanced = found.flow.network_functions(steps[::20] * RATE)
    off = np.array([np.linalg.norm(C @ A - one) for (A, C), one in zip(layers, balanced, strict=True)])
    assert (off <= bound[::20] + 1e-12).all()
    assert off.max() > 0


def test_balanced_layers_deviate_by_nothing():
    rng = np.random.default_rng(2)
    task = lc.tasks.static(rng.standard_normal((3, 3)))
    for imbalance in (0.0, 0.4):
        network = lc.TwoLayer.balanced(3, 3, 3, scale=0.1, imbalance=imbalance, rng=rng)
        found = Imbalance(PooledProblem.of(task, network), RATE)
        assert found.share < 1e-12
        assert not found.told
        goal = 1e-4 * float(found._descent.whole)
        low, high = found.interval(goal)
        steps = lc.solve(task, network, learning_rate=RATE).time_to_loss(goal)
        assert low <= steps <= high
        assert high - low < 0.02 * steps


def test_solve_takes_an_unbalanced_start_and_says_what_it_stands_on():
    task, network, found = drawn((4, 16, 3), "torch", seed=2)
    solution = lc.solve(task, network, learning_rate=RATE)
    assert solution.forecast_class == "integrated"
    assert "start unbalanced" in solution.bounds[0]
    assert solution.imbalance.share == found.share
    # Plain descent at a small rate comes to the same moment.
    p, goal = found.problem, 1e-4 * float(found._descent.whole)
    A, C, rate, taken = p.first.copy(), p.second.copy(), RATE / 50, 0
    best = np.linalg.solve(p.power, p.cross.T).T
    while np.trace((C @ A - best) @ p.power @ (C @ A - best).T) / 2 > goal:
        G = p.cross - C @ A @ p.power
        A, C, taken = A + rate * C.T @ G, C + rate * G @ A.T, taken + 1
    assert taken / 50 == pytest.approx(solution.time_to_loss(goal), rel=2e-3)


def test_inputs_that_do_not_vary_bound_nothing():
    rng = np.random.default_rng(4)
    task = lc.tasks.static(np.diag([2.0, 1.0, 0.0]), np.diag([1.0, 1.0, 0.0]))
    network = lc.TwoLayer.random(3, 12, 3, scale=0.3, rng=rng)
    found = Imbalance(PooledProblem.of(task, network), RATE)
    assert found.slowest > 0
    goal = 1e-4 * float(found._descent.whole)
    low, high = found.interval(goal)
    steps = lc.solve(task, network, learning_rate=RATE).time_to_loss(goal)
    assert low <= steps <= high
