"""Curvature of the loss against the dense Hessian by autograd on the trials."""

import time

import numpy as np
import pytest

import learncast as lc
from learncast.theory import (
    LearningProblem,
    PooledProblem,
    curvature,
    gradient_flow,
    pooled_curvature,
    sharpest_curvature,
)

torch = pytest.importorskip("torch")


def autograd(x, y, weights, learn):
    """Largest eigenvalue of the Hessian of half the mean squared error, run through time on every trial."""
    x, y = torch.as_tensor(x), torch.as_tensor(y)
    fixed = {name: torch.as_tensor(np.array(w)) for name, w in weights.items()}
    sizes = [fixed[name].numel() for name in learn]

    def loss(flat):
        parts = torch.split(flat, sizes)
        w = fixed | {name: part.reshape(fixed[name].shape) for name, part in zip(learn, parts, strict=True)}
        h = torch.zeros(len(x), len(w["recurrent"]), dtype=torch.float64)
        for t in range(x.shape[1]):
            h = h @ w["recurrent"].T + x[:, t] @ w["input"].T
        return 0.5 * ((h @ w["output"].T - y) ** 2).sum(dim=1).mean()

    flat = torch.cat([fixed[name].ravel() for name in learn])
    return float(torch.linalg.eigvalsh(torch.func.hessian(loss)(flat))[-1])


def recorded(channels=3, outputs=2, steps=5, mean=0.0, seed=0):
    rng = np.random.default_rng(seed)
    x = mean + rng.normal(size=(60, steps, channels)) * np.linspace(1, 2, channels)
    return x, x[:, -1] @ rng.normal(size=(channels, outputs)) + 0.3 * rng.normal(size=(60, outputs))


def network(hidden, channels=3, outputs=2, scale=0.5, recurrent=None, seed=1):
    rng = np.random.default_rng(seed)
    recurrent = 0.6 * np.eye(hidden) if recurrent is None else recurrent
    return lc.LinearRNN(
        scale * rng.normal(size=(hidden, channels)), recurrent, scale * rng.normal(size=(outputs, hidden))
    )


@pytest.mark.parametrize("mean", [0.0, 3.0])
@pytest.mark.parametrize("hidden", [1, 4, 9])  # fewer units than the input and output directions together, and more
@pytest.mark.parametrize("scale", [0.0, 0.8])
@pytest.mark.parametrize("learn", [("input", "output"), ("input",), ("output",)])
def test_pooled_inputs(mean, hidden, scale, learn):
    x, y = recorded(mean=mean)
    net = network(hidden, scale=scale)
    problem = LearningProblem.of(lc.Task.from_samples(x, y), net, learn)
    expected = max(0.0, autograd(x, y, problem.start, learn))
    # Lanczos to 1e-9, against a dense Hessian of the same trials
    assert curvature(problem) == pytest.approx(expected, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("learn", [("input", "output"), ("input", "recurrent", "output")])
def test_any_recurrence(learn):
    x, y = recorded()
    net = network(5, recurrent=0.3 * np.random.default_rng(4).normal(size=(5, 5)))
    problem = LearningProblem.of(lc.Task.from_samples(x, y), net, learn)
    # differences of slopes know eight digits or so of the largest eigenvalue
    assert curvature(problem) == pytest.approx(autograd(x, y, problem.start, learn), rel=1e-6)


def test_curvature_without_a_residual_is_the_gauss_newton_part():
    rng = np.random.default_rng(5)
    A, C = rng.normal(size=(7, 4)), rng.normal(size=(3, 7))
    root = rng.normal(size=(4, 4))
    S = root @ root.T
    net = lc.TwoLayer(A, C)
    problem = LearningProblem.of(lc.tasks.static(C @ A @ S, S), net, None)
    half = np.linalg.cholesky(S)
    expected = np.linalg.eigvalsh(half.T @ (np.linalg.norm(C, 2) ** 2 * np.eye(4) + A.T @ A) @ half)[-1]
    assert curvature(problem) == pytest.approx(expected, rel=1e-9)


def measured(solution):
    return next(a.measured for a in solution.assumptions if a.name == "stable_learning_rate")


def ends(task, solution, learn=("input", "output")):
    return max(curvature(LearningProblem.of(task, solution.network_at(t), learn)) for t in (0.0, np.inf))


def test_input_channels_without_weights_count():
    """One mode of curvature 2 reads one channel; the other channel varies a hundredfold and has no target."""
    task = lc.tasks.static(np.array([[1.0, 0.0]]), np.diag([1.0, 100.0]))
    net = lc.LinearRNN.aligned(recurrence=0.5, initial=0.1, hidden_size=3, task=task)
    # at the optimum c^2 = 1 reads the other channel's variance of 100
    assert measured(lc.forecast(task, net, learning_rate=1e-3).solution) == pytest.approx(0.1, rel=1e-8)
    # and there descent leaves the flow: weights of 1e-6 on the other channel grow until the loss rises
    shaken = lc.LinearRNN(net.input_weights + 1e-6, net.recurrent_weights, net.output_weights)
    rises = [np.diff(lc.descend(task, shaken, learning_rate=rate, steps=3000).loss).max() for rate in (0.019, 0.022)]
    assert rises[0] < 1e-9
    assert rises[1] > 1e-3


def test_modes_of_different_recurrence():
    task = lc.tasks.integration(steps=4, target_strength=[2.0, 1.0])
    net = lc.LinearRNN.aligned(recurrence=[0.9, -0.4], initial=0.1, hidden_size=2, task=task)
    solution = lc.forecast(task, net, learning_rate=1e-3).solution
    assert measured(solution) == pytest.approx(1e-3 * ends(task, solution), rel=1e-6)


@pytest.mark.parametrize("solve", ["two-layer", "flow"])
def test_all_solutions_measure_the_curvature(solve):
    if solve == "two-layer":
        rng = np.random.default_rng(2)
        task, net = lc.tasks.static(rng.normal(size=(3, 4))), lc.TwoLayer.balanced(4, 5, 3, scale=0.3, rng=rng)
        solution, learn = lc.forecast(task, net, learning_rate=1e-3).solution, ("first", "second")
    else:
        x, y = recorded(mean=2.0)
        task, net = lc.Task.from_samples(x, y), network(4, scale=0.1)
        learn = ("input", "output")
        solution = gradient_flow(task, net, learning_rate=1e-3, learn=learn)
    found = measured(solution) if solve == "two-layer" else solution.conditions_until(1e6)[0].measured
    assert found >= 1e-3 * ends(task, solution, learn) * (1 - 1e-6)
    if solve == "two-layer":
        assert found == pytest.approx(1e-3 * ends(task, solution, learn), rel=1e-8)


def test_it_takes_milliseconds():
    x, y = recorded(channels=12, outputs=4, steps=25, mean=1.0)
    problem = LearningProblem.of(lc.Task.from_samples(x, y), network(64, 12, 4, 0.2), ("input", "output"))
    curvature(problem)
    begun = time.perf_counter()
    for _ in range(5):
        curvature(problem)
    assert (time.perf_counter() - begun) / 5 < 0.1  # a few milliseconds on an idle machine


@pytest.mark.parametrize("scale", [0.05, 0.5, 2.0])  # the end is sharpest, either may be, the start is
def test_sharpest_curvature_is_the_largest_of_all(scale):
    rng = np.random.default_rng(3)
    task, net = lc.tasks.static(rng.normal(size=(3, 4))), lc.TwoLayer.balanced(4, 5, 3, scale=scale, rng=rng)
    problem = PooledProblem.of(task, net)
    halfway = lc.forecast(task, net, learning_rate=1e-3).solution.network_at(500)
    places = [net.maps, halfway.maps, (0 * net.first, 0 * net.second)]
    each = [curvature(LearningProblem.of(task, lc.TwoLayer(*maps), None)) for maps in places]
    assert sharpest_curvature(problem.cross, problem.power, places) == pytest.approx(max(each), rel=1e-9)
    gone = (np.full_like(net.first, np.nan), net.second)
    assert np.isnan(sharpest_curvature(problem.cross, problem.power, [gone, *places]))


@pytest.mark.parametrize("factor", [1e-8, 1e-3, 1e6])
@pytest.mark.parametrize("scale", [1e-3, 0.5])
def test_curvature_scales_with_the_task(factor, scale):
    """R, A, C -> c R, sqrt(c) A, sqrt(c) C multiplies the Hessian by c, with or without an error."""
    rng = np.random.default_rng(7)
    R, A, C = rng.normal(size=(3, 4)), scale * rng.normal(size=(5, 4)), scale * rng.normal(size=(3, 5))
    power = np.diag([0.5, 1.0, 2.0, 3.0])
    plain = pooled_curvature(R, power, A, C)
    strong = pooled_curvature(factor * R, power, np.sqrt(factor) * A, np.sqrt(factor) * C)
    assert strong == pytest.approx(factor * plain, rel=1e-9)
    assert plain > 0.9 * np.linalg.norm(C @ A @ power - R, 2)
