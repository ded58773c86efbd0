"""Deep linear networks against autograd on raw trials, an ODE solver, quadrature and the two-layer theory."""

import mpmath
import numpy as np
import pytest
import scipy
import torch

import learncast as lc
from learncast.theory import LearningProblem, curvature, deep_mode_time, deep_mode_weight

DEPTHS = (2, 3, 4, 5)


def recording(rng, inputs, outputs, trials=40):
    """Trials of correlated inputs with an offset, and noisy targets that are counts."""
    x = rng.standard_normal((trials, inputs)) @ rng.standard_normal((inputs, inputs)) / inputs**0.5 + 0.3
    y = x @ rng.standard_normal((inputs, outputs))
    return x, rng.poisson(np.exp(np.clip(y, -3, 1.2))).astype(float)


def autograd(network, x, y, rate, steps):
    """Losses before each step of plain full-batch training by torch, half the squared error per trial."""
    layers = [torch.tensor(w, requires_grad=True) for w in network.weights]
    x, y, losses = torch.tensor(x), torch.tensor(y), []
    for _ in range(steps):
        out = x
        for w in layers:
            out = out @ w.T
        loss = ((out - y) ** 2).sum() / (2 * len(x))
        losses.append(loss.item())
        slopes = torch.autograd.grad(loss, layers)
        layers = [(w - rate * s).detach().requires_grad_() for w, s in zip(layers, slopes, strict=True)]
    return np.array(losses), [w.detach().numpy() for w in layers]


@pytest.mark.parametrize(
    ("hidden", "seed"), [((4,), 0), ((3, 5), 1), ((6, 2), 2), ((3, 3, 3), 3), ((4, 1, 4), 4), ((3, 4, 3, 4), 5)]
)
def test_counted_steps_and_losses_are_those_of_autograd_on_the_raw_trials(hidden, seed):
    rng = np.random.default_rng(seed)
    x, y = recording(rng, 3, 2)
    task, network = lc.tasks.from_pairs(x, y), lc.Deep.random(3, hidden, 2, scale=0.6, rng=seed)
    forecast = lc.forecast(task, network, learning_rate=0.02, goal=lc.Explained(0.9))
    counted = int(forecast.steps.descent)
    losses, ends = autograd(network, x, y, 0.02, counted + 1)
    # Least loss of maps of the rank that the narrowest layer allows, by reduced-rank regression.
    root = np.linalg.cholesky(x.T @ x / len(x))
    values = np.linalg.svd(np.linalg.solve(root, x.T @ y / len(x)))[1][: min(hidden)]
    baseline = float((values**2).sum() / 2)
    least = float((y**2).sum() / (2 * len(y))) - baseline
    assert forecast.method.least_loss(0) == pytest.approx(least, abs=1e-12)
    reached = losses - least <= 0.1 * baseline
    assert counted == int(np.argmax(reached))
    assert reached.any()
    run = lc.descend(task, network, learning_rate=0.02, steps=counted)
    np.testing.assert_allclose(run.loss, losses, rtol=0, atol=1e-9)
    # One more step of autograd was taken than counted.
    again = lc.descend(task, network, learning_rate=0.02, steps=counted + 1).network_at(counted + 1)
    for one, other in zip(again.weights, ends, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)


@pytest.mark.parametrize("layers", DEPTHS)
def test_a_balanced_mode_takes_the_time_of_the_quadrature(layers):
    for beta, B, start, end in (
        (1.3, 0.7, 0.1, 1.0),
        (0.4, 2.0, 0.95, 0.85),
        (-1.0, 1.5, 0.8, 0.2),
        (0.0, 1.5, 0.8, 0.2),
    ):
        with mpmath.workdps(30):
            time = mpmath.quad(lambda w: 1 / (w ** (layers - 1) * (beta - B * w**layers)), [start, end])  # noqa: B023
        assert deep_mode_time(start, end, layers, beta, B) == pytest.approx(float(time), rel=1e-12)
        assert deep_mode_weight(float(time), start, layers, beta, B) == pytest.approx(end, rel=1e-12)
    assert deep_mode_time(0.1, 1.2, layers, 1.0, 1.0) == np.inf
    assert deep_mode_weight(np.inf, 0.1, layers, 2.0, 0.5) == pytest.approx(4 ** (1 / layers))
    assert deep_mode_weight(np.inf, 0.1, layers, -2.0, 0.5) == 0.0


def flow_oracle(network, x, y, time, learn=None):
    """Network function after a flow time in which some layers learn, by an explicit solver of high order."""
    shapes = [w.shape for w in network.weights]
    ends = np.cumsum([m * n for m, n in shapes])[:-1]

    def slope(_, flat):
        layers = [part.reshape(s) for part, s in zip(np.split(flat, ends), shapes, strict=True)]
        slopes = []
        for k in range(len(layers)):
            below, above = np.eye(shapes[0][1]), np.eye(shapes[-1][0])
            for w in layers[:k]:
                below = w @ below
            for w in layers[:k:-1]:
                above = above @ w
            error = y.T - above @ layers[k] @ below @ x.T
            moves = learn is None or f"layer{k + 1}" in learn
            slopes.append(moves * (above.T @ error @ x @ below.T / len(x)).ravel())
        return np.concatenate(slopes)

    start = np.concatenate([w.ravel() for w in network.weights])
    end = scipy.integrate.solve_ivp(slope, (0, time), start, method="DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
    layers = [part.reshape(s) for part, s in zip(np.split(end, ends), shapes, strict=True)]
    return np.linalg.multi_dot(layers[::-1])


@pytest.mark.parametrize("hidden", [(4,), (3, 5), (3, 2, 4)])
def test_the_integrated_flow_is_that_of_an_ode_solver(hidden):
    rng = np.random.default_rng(7)
    x, y = recording(rng, 3, 2)
    task, network = lc.tasks.from_pairs(x, y), lc.Deep.random(3, hidden, 2, scale=0.5, rng=1)
    solution = lc.forecast(task, network, learning_rate=0.01).solution
    found = solution.at([0, 300, 900])["network_function"].values
    assert solution.forecast_class == "integrated"
    np.testing.assert_allclose(found[0], network.function, atol=1e-14)
    for k, step in ((1, 300), (2, 900)):
        np.testing.assert_allclose(found[k], flow_oracle(network, x, y, 0.01 * step), atol=2e-9)


SUBSETS = [("layer1",), ("layer3",), ("layer2", "layer3"), ("layer1", "layer3"), ("layer2", "layer3", "layer4")]


@pytest.mark.parametrize("learn", SUBSETS)
def test_the_flow_of_some_layers_is_that_of_an_ode_solver(learn):
    x, y = recording(np.random.default_rng(7), 3, 2)
    task, network = lc.tasks.from_pairs(x, y), lc.Deep.random(3, (3, 2, 4), 2, scale=0.6, rng=1)
    forecast = lc.forecast(task, network, lc.Training(0.01, learn=learn), goal=lc.Explained(0.5))
    found = forecast.solution.at([300, 900])["network_function"].values
    for k, step in enumerate((300, 900)):
        np.testing.assert_allclose(found[k], flow_oracle(network, x, y, 0.01 * step, learn), atol=2e-9)
    assert abs(forecast.steps.flow - forecast.steps.descent) < 10


@pytest.mark.parametrize("learn", SUBSETS)
@pytest.mark.parametrize("hidden", [(4, 5, 3), (4, 1, 3), (1, 4, 2)])
def test_the_least_loss_through_layers_that_do_not_learn_is_that_of_the_best_weights(learn, hidden):
    x, y = recording(np.random.default_rng(3), 3, 3)
    network = lc.Deep.random(3, hidden, 3, scale=0.7, rng=2)
    shapes = {name: w.shape for name, w in network.named_weights.items()}
    cuts = np.cumsum([np.prod(shapes[name]) for name in learn])[:-1]

    def loss(flat):
        parts = zip(learn, np.split(flat, cuts), strict=True)
        own = {**network.named_weights, **{name: part.reshape(shapes[name]) for name, part in parts}}
        return ((x @ np.linalg.multi_dot([*own.values()][::-1]).T - y) ** 2).sum() / (2 * len(x))

    starts = [np.concatenate([network.named_weights[name].ravel() for name in learn])]
    starts += [np.random.default_rng(k).standard_normal(len(starts[0])) for k in range(3)]
    best = min(scipy.optimize.minimize(loss, start, method="BFGS", tol=1e-9).fun for start in starts)
    problem = LearningProblem.of(lc.tasks.from_pairs(x, y), network, learn)
    assert problem.least_loss == pytest.approx(best, rel=1e-6)


def test_other_weights_than_the_first_layer_also_know_their_interval_and_their_plan():
    x, y = recording(np.random.default_rng(5), 3, 2, trials=80)
    task, network = lc.tasks.from_pairs(x, y), lc.Deep.random(3, (4, 4), 2, scale=0.6, rng=3)
    other = lc.tasks.from_pairs(x, 1.5 * y, name="stronger")
    training, terms = lc.Training(0.01, learn=("layer2", "layer3")), lc.Terms(goal=lc.Explained(0.8))
    forecast = lc.forecast(task, network, training, goal=lc.Explained(0.8))
    assert forecast.steps.low <= forecast.steps.descent <= forecast.steps.high
    best = lc.plan(task, [other], network, training, terms=terms).best
    state = network
    for stage in best.stages:
        own = other if stage.task.name == "stronger" else task
        state = lc.descend(own, state, training, steps=int(stage.steps.descent)).network_at(np.inf)
    reached = lc.descend(task, state, training, steps=0).loss[0]
    problem = LearningProblem.of(task, network, training.learn)
    assert reached <= problem.least_loss + 0.2 * problem.baseline_loss


@pytest.mark.parametrize("layers", DEPTHS)
def test_aligned_layers_follow_the_closed_form(layers):
    rng = np.random.default_rng(3)
    q = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    x = rng.standard_normal((60, 3))
    x = x @ np.linalg.inv(np.linalg.cholesky(x.T @ x / 60)).T * np.array([1.0, 0.7, 1.3]) @ q.T
    y = x @ q @ np.diag([1.5, -0.8, 0.5])[:, :2]
    task = lc.tasks.from_pairs(x, y)
    network = lc.Deep.aligned((4,) * (layers - 1), task=task, initial=[0.8, 0.7])
    forecast = lc.forecast(task, network, goal=lc.Accuracy(0.99), learning_rate=5e-3)
    assert forecast.trust.forecast_class == "exact"
    solution = forecast.solution
    function = solution.at([280])["network_function"].values[0]
    np.testing.assert_allclose(function, flow_oracle(network, x, y, 1.4), atol=1e-10)
    np.testing.assert_allclose(solution.network_at(280).function, function, atol=1e-14)
    counted = int(forecast.steps.descent)
    losses, _ = autograd(network, x, y, 5e-3, counted + 1)
    goal = 1e-4 * float((y**2).sum()) / 120
    assert losses[counted] <= goal < losses[counted - 1]
    assert abs(forecast.steps.flow - counted) < 3


def test_two_layers_are_the_two_layer_network():
    rng = np.random.default_rng(0)
    x, y = recording(rng, 4, 3)
    task = lc.tasks.from_pairs(x, y)
    for make, options in (("random", {"scale": 0.5}), ("random", {"scale": "torch"}), ("balanced", {"scale": 0.5})):
        two = getattr(lc.TwoLayer, make)(4, 2, 3, rng=5, **options)
        deep = getattr(lc.Deep, make)(4, (2,), 3, rng=5, **options)
        np.testing.assert_allclose(deep.weights[0], two.first, rtol=1e-13)
        for goal in (lc.Loss(1.2), lc.Explained(0.8)):
            one, same = (lc.forecast(task, n, learning_rate=2e-2, goal=goal) for n in (two, deep))
            assert same.steps.descent == one.steps.descent
            assert same.steps.status is one.steps.status
            assert same.steps.flow == pytest.approx(one.steps.flow, rel=1e-6)
            assert (same.steps.low, same.steps.high) == (one.steps.low, one.steps.high)
        assert same.in_batches(10).mean == one.in_batches(10).mean
        assert same.method.least_loss(0) == pytest.approx(one.method.least_loss(0), abs=1e-13)
        assert same.method.largest_rate(0) == pytest.approx(one.method.largest_rate(0), rel=1e-9)


@pytest.mark.slow
def test_a_plan_for_two_layers_is_that_of_the_two_layer_network():
    x, y = recording(np.random.default_rng(0), 4, 3)
    task = lc.tasks.from_pairs(x, y)
    other = lc.tasks.from_pairs(x, y[:, ::-1] * 1.5, name="other")
    networks = lc.TwoLayer.random(4, 2, 3, scale=0.3, rng=5), lc.Deep.random(4, (2,), 3, scale=0.3, rng=5)
    terms = lc.Terms(goal=lc.Explained(0.8))
    plans = [lc.plan(task, [other], network, learning_rate=5e-3, terms=terms) for network in networks]
    assert plans[0].best.total.descent == plans[1].best.total.descent
    assert plans[0].direct.descent == plans[1].direct.descent


def test_two_layers_with_a_recurrence_are_the_recurrent_network():
    task = lc.tasks.integration(steps=50)
    network = lc.Deep.aligned((4,), task=task, initial=0.01, recurrence=0.96)
    other = lc.LinearRNN.aligned(task=task, recurrence=0.96, initial=0.01, hidden_size=4)
    one, two = (lc.forecast(task, n, learning_rate=1e-3) for n in (network, other))
    assert one.steps.descent == two.steps.descent == 331
    assert one.steps.flow == pytest.approx(two.steps.flow, rel=1e-12)


@pytest.mark.parametrize("layers", [2, 3])
def test_the_flow_of_balanced_layers_keeps_the_sign_of_the_determinant(layers):
    task = lc.tasks.static([[1.5, 0.3], [0.0, 1.0]])
    network = lc.Deep.balanced(2, (3,) * (layers - 1), 2, scale=0.4, rng=0)
    if np.linalg.det(network.function) > 0:
        network = lc.Deep((network.weights[0][:, ::-1], *network.weights[1:]))
    target, solution = np.array([[1.5, 0.3], [0.0, 1.0]]), lc.forecast(task, network, learning_rate=5e-3).solution
    weakest = np.linalg.svd(target, compute_uv=False)[-1]
    assert solution.time_to_loss(weakest**2 / 2.1) == np.inf
    rest = solution.at([np.inf])
    assert float(rest["excess_loss"][0]) == pytest.approx(weakest**2 / 2, rel=1e-6)

    def slope(_, flat):
        # Balanced layers: dM/dt = sum_l (M M^T)^((L-l)/L) (R - M) (M^T M)^((l-1)/L).
        U, s, V = np.linalg.svd(flat.reshape(2, 2))
        powers = [s ** (2 * k / layers) for k in range(layers)]
        moved = sum((U * powers[layers - 1 - k]) @ U.T @ (target - flat.reshape(2, 2)) @ (V.T * powers[k]) @ V
                    for k in range(layers))  # fmt: skip
        return moved.ravel()

    start = network.function.ravel()
    run = scipy.integrate.solve_ivp(slope, (0, 4.0), start, method="DOP853", rtol=1e-12, atol=1e-14, t_eval=[1.0, 4.0])
    found = solution.at([200, 800])["network_function"].values
    np.testing.assert_allclose(found.reshape(2, 4), run.y.T, atol=1e-8)


@pytest.mark.parametrize("layers", [2, 3, 4])
def test_a_start_without_weights_or_with_the_wrong_sign_never_learns(layers):
    task, zero = lc.tasks.static([[1.0]]), np.zeros((2, 2))
    nothing = lc.Deep((np.zeros((2, 1)), *[zero] * (layers - 2), np.zeros((1, 2))))
    wrong = lc.Deep((np.array([[-0.2]]), *[np.array([[0.2]])] * (layers - 1)))
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    rotated = lc.tasks.static(turn @ np.diag([1.5, 0.7]) @ turn.T)
    partial = lc.Deep.aligned((3,) * (layers - 1), task=rotated, initial=[0.5, 0.0])
    for own, network in ((task, nothing), (task, wrong), (rotated, partial)):
        steps = lc.forecast(own, network, learning_rate=0.05).steps
        assert steps.descent == steps.flow == np.inf
        assert steps.status is lc.Status.not_learned


def test_a_rate_above_the_flattest_optimum_diverges_and_below_it_settles():
    task = lc.tasks.static([[1.5, 0.0], [0.0, 0.4]])
    network = lc.Deep.aligned((2, 2), task=task, initial=0.4)
    limit = 2 / (3 * 1.5 ** (2 - 2 / 3))
    assert lc.forecast(task, network, learning_rate=0.98 * limit).steps.status is lc.Status.ok
    fast = lc.planning.method_for([task], network, 1.05 * limit)
    assert [a.name for a in fast.assumptions if not a.holds] == ["stable_learning_rate"]
    wild = lc.Deep.random(2, (3, 3), 2, scale=4.0, rng=0)
    steps = lc.forecast(task, wild, learning_rate=0.2, strict=False).steps
    assert steps.descent == np.inf
    assert steps.status is lc.Status.diverged


@pytest.mark.parametrize("layers", DEPTHS)
def test_every_optimum_is_at_least_as_sharp_as_the_bound(layers):
    rng = np.random.default_rng(layers)
    x, y = recording(rng, 3, 3)
    task, shapes = lc.tasks.from_pairs(x, y), [(3, 3)] * layers
    descent = lc.planning.method_for([task], lc.Deep(tuple(np.zeros(s) + np.eye(3) for s in shapes)), 1e-3).descents[0]
    best, sharpest = descent.best, []
    for _ in range(30):
        layers_ = [np.eye(3) + 0.5 * rng.standard_normal((3, 3)) for _ in range(layers - 1)]
        last = best @ np.linalg.inv(np.linalg.multi_dot([np.eye(3), *layers_[::-1]]))
        state = np.concatenate([w.ravel() for w in (*layers_, last)])
        sharpest.append(np.linalg.eigvalsh(descent.hessian(state))[-1])
    assert min(sharpest) >= descent.flattest * (1 - 1e-9)
    assert descent.curvature >= descent.flattest * (1 - 1e-9)


def test_the_curvature_is_that_of_the_autograd_hessian():
    x, y = recording(np.random.default_rng(1), 3, 2)
    network = lc.Deep.random(3, (4, 5), 2, scale=0.6, rng=3)
    cuts, shapes = [w.size for w in network.weights], [w.shape for w in network.weights]

    def loss(flat):
        out = torch.tensor(x)
        for part, shape in zip(torch.split(flat, cuts), shapes, strict=True):
            out = out @ part.reshape(shape).T
        return ((out - torch.tensor(y)) ** 2).sum() / (2 * len(x))

    flat = torch.tensor(np.concatenate([w.ravel() for w in network.weights]))
    largest = torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, flat))[-1].item()
    problem = LearningProblem.of(lc.tasks.from_pairs(x, y), network, None)
    assert curvature(problem) == pytest.approx(largest, rel=1e-8)


@pytest.mark.parametrize("learn", [(1, 1, 1), (1, 0, 1), (0, 1, 0)])
def test_held_out_losses_are_those_of_plain_descent_on_the_training_trials(learn):
    rng = np.random.default_rng(2)
    x, y = recording(rng, 4, 2, trials=50)
    test, network = np.arange(50) % 5 == 0, lc.Deep.random(4, (3, 3), 2, scale=0.5, rng=0)
    parts = [lc.tasks.from_pairs(x[some], y[some]) for some in (~test, test)]
    names = tuple(f"layer{k}" for k, moves in enumerate(learn, 1) if moves)
    curve = lc.generalise(parts[0], network, lc.Training(0.02, learn=names), test=parts[1], most_steps=200).curve
    layers = [w.copy() for w in network.weights]
    a, b = x[~test], y[~test]
    course = []
    for _ in range(201):
        m = np.linalg.multi_dot(layers[::-1])
        course.append(float(((x[test] @ m.T - y[test]) ** 2).sum()) / (2 * test.sum()))
        g = (b - a @ m.T).T @ a / len(a)
        h1, h2 = layers[0], layers[1] @ layers[0]
        slopes = ((layers[2] @ layers[1]).T @ g, layers[2].T @ g @ h1.T, g @ h2.T)
        layers = [w + 0.02 * moves * s for w, s, moves in zip(layers, slopes, learn, strict=True)]
    np.testing.assert_allclose(curve["held_out"], np.array(course)[curve["steps"]], rtol=1e-9)
