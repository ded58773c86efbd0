"""Times of alignment and of learning, against an ODE solver and gradient descent."""

import numpy as np
import pytest
import scipy

import learncast as lc
from learncast.theory import misalignment, time_to_align

RATE = 1e-3


def rotation(n, angle):
    """Rotate the first direction towards the second, and the third towards the fourth."""
    turn = np.eye(n)
    for k in range(0, n - 1, 2):
        turn[k : k + 2, k : k + 2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    return turn


def switched(angle, anisotropy, *, seed=0, grown=2.0):
    """Return a network that has learned one task, and a next task with rotated and stronger directions."""
    rng = np.random.default_rng(seed)
    n, m = 4, 3
    basis = np.linalg.qr(rng.standard_normal((n, n)))[0]
    C = basis @ np.diag(np.geomspace(1, anisotropy, n)) @ basis.T
    first = np.linalg.qr(rng.standard_normal((m, m)))[0] @ np.diag([1.5, 1.0, 0.7]) @ np.eye(m, n)
    network = lc.TwoLayer.balanced(n, 5, m, scale=0.1, rng=rng)
    before = lc.forecast(lc.tasks.static(first @ C, C), network, learning_rate=RATE).solution
    task = lc.tasks.static(grown * first @ rotation(n, angle).T @ C, C)
    return task, before.network_at(before.time_to(0.999).flow_steps)


def oracle(task, network, allowed):
    """Return both times from their definitions, by DOP853 at 1e-13 with events."""
    P = task.input_covariance.dense()[0, :, 0, :]
    S = task.cross_covariance.dense()[0, :, 0, :].T
    root = scipy.linalg.sqrtm(P).real
    M = S @ np.linalg.inv(root)
    cut = network.first.size

    def maps(y):
        return y[:cut].reshape(network.first.shape), y[cut:].reshape(network.second.shape)

    def slope(_, y):
        A, C = maps(y)
        G = S - C @ A @ P
        return np.concatenate([(C.T @ G).ravel(), (G @ A.T).ravel()])

    def misaligned(_, y):
        A, C = maps(y)
        N = C @ A @ root
        cosine = np.sum(N * M) / np.linalg.norm(N) / np.linalg.norm(M)
        return np.sqrt(max(1 - cosine**2, 0)) - allowed

    def far(_, y):
        A, C = maps(y)
        return np.linalg.norm(C @ A @ root - M) / np.linalg.norm(M) - allowed

    far.terminal = True
    begin = np.concatenate([network.first.ravel(), network.second.ravel()])
    run = scipy.integrate.solve_ivp(slope, (0, 1e3), begin, "DOP853", rtol=1e-13, atol=1e-15, events=(misaligned, far))
    return run.t_events[0][0] / RATE, run.t_events[1][0] / RATE


@pytest.mark.parametrize("anisotropy", [1.0, 6.0])
@pytest.mark.parametrize("angle", [0.4, 1.2])
def test_times_agree_with_the_ode_within_the_reported_error(angle, anisotropy):
    task, network = switched(angle, anisotropy)
    solution = lc.forecast(task, network, learning_rate=RATE).solution
    assert (solution.forecast_class == "exact") == (anisotropy == 1.0)
    found = time_to_align(solution, 0.95)
    aligned, learned = oracle(task, network, 0.05)
    # 1e-8: precision of the oracle's events.
    assert abs(found.aligned - aligned) <= found.error + 1e-8 * learned
    assert abs(found.learned - learned) <= found.error + 1e-8 * learned
    assert found.error <= 1e-6 * learned
    assert 0 < found.aligned <= found.learned
    sines = misalignment(solution, [found.aligned, found.learned])
    assert sines[0] == pytest.approx(0.05, rel=1e-6)


def test_gradient_descent_aligns_and_learns_at_the_same_times():
    task, network = switched(0.8, 4.0, seed=1)
    found = time_to_align(lc.forecast(task, network, learning_rate=RATE).solution, 0.95)
    P, S = task.input_covariance.dense()[0, :, 0, :], task.cross_covariance.dense()[0, :, 0, :].T
    A, C, best = network.first.copy(), network.second.copy(), S @ np.linalg.inv(P)
    steps = {}
    for k in range(1, 20000):
        G = S - C @ A @ P
        A, C = A + RATE * C.T @ G, C + RATE * G @ A.T
        W = C @ A
        inner, size = np.trace(W @ P @ best.T), np.trace(W @ P @ W.T) * np.trace(best @ P @ best.T)
        if "aligned" not in steps and 1 - inner**2 / size <= 0.05**2:
            steps["aligned"] = k
        if np.trace((W - best) @ P @ (W - best).T) <= 0.05**2 * np.trace(best @ P @ best.T):
            steps["learned"] = k
            break
    assert steps["aligned"] == pytest.approx(found.aligned, rel=0.01, abs=1)
    assert steps["learned"] == pytest.approx(found.learned, rel=0.01, abs=1)


def test_the_excess_loss_splits_into_direction_and_size():
    task, network = switched(0.9, 5.0, seed=2)
    solution = lc.forecast(task, network, learning_rate=RATE).solution
    times = np.linspace(0, 500, 6)
    P, S = task.input_covariance.dense()[0, :, 0, :], task.cross_covariance.dense()[0, :, 0, :].T
    root = scipy.linalg.sqrtm(P).real
    M = np.linalg.norm(S @ np.linalg.inv(root))
    r = np.linalg.norm(solution.at(times)["network_function"].values @ root, axis=(1, 2)) / M
    sine = misalignment(solution, times)
    excess = M**2 * (sine**2 + (np.sqrt(1 - sine**2) - r) ** 2) / 2
    np.testing.assert_allclose(excess, solution.at(times)["excess_loss"], rtol=1e-7)


def test_an_aligned_start_has_alignment_time_zero():
    task, network = switched(0.0, 3.0)
    found = time_to_align(lc.forecast(task, network, learning_rate=RATE).solution, 0.95)
    assert found.aligned == 0
    assert found.learned > 0


def test_a_mode_that_is_never_learned_is_never_aligned():
    task = lc.tasks.static(np.diag([2.0, 1.0]))
    network = lc.TwoLayer(np.diag([0.1, 0.1]), np.diag([0.1, -0.1]))
    found = time_to_align(lc.forecast(task, network, learning_rate=RATE, strict=False).solution, 0.99)
    assert found.aligned == found.learned == np.inf
    assert found.status is lc.Status.not_learned


def recurrent_oracle(task, network, allowed):
    """Both times under a fixed recurrence, by DOP853 with events; the best function is where a long flow rests."""
    steps, n = task.steps, task.inputs
    S = task.input_covariance.dense().reshape(steps * n, steps * n)
    R = task.cross_covariance.dense()[:, :, 0].reshape(steps * n, -1).T
    W = [np.linalg.matrix_power(network.recurrent_weights, steps - 1 - t) for t in range(steps)]
    cut, root = network.input_weights.size, scipy.linalg.sqrtm(S).real

    def function(y):
        A, C = y[:cut].reshape(-1, n), y[cut:].reshape(task.outputs, -1)
        return A, C, np.hstack([C @ w @ A for w in W])

    def slope(_, y):
        A, C, K = function(y)
        G = np.split(R - K @ S, steps, axis=1)
        of_input = sum(w.T @ C.T @ g for w, g in zip(W, G, strict=True))
        return np.concatenate([of_input.ravel(), sum(g @ (w @ A).T for w, g in zip(W, G, strict=True)).ravel()])

    def loss(y):
        K = function(y)[2]
        return float((K @ S * K).sum() / 2 - (K * R).sum())

    begin = np.concatenate([network.input_weights.ravel(), network.output_weights.ravel()])
    rest = scipy.integrate.solve_ivp(slope, (0, 1e3), begin, "LSODA", rtol=1e-10, atol=1e-12).y[:, -1]
    options = {"gtol": 1e-13, "maxiter": 10_000}
    rest = scipy.optimize.minimize(loss, rest, jac=lambda y: -slope(0, y), method="BFGS", options=options).x
    M, least = function(rest)[2] @ root, loss(rest)

    def misaligned(_, y):
        N = function(y)[2] @ root
        cosine = np.sum(N * M) / np.linalg.norm(N) / np.linalg.norm(M)
        return np.sqrt(max(1 - cosine**2, 0)) - allowed

    def far(_, y):
        return loss(y) - least - allowed**2 * -least

    run = scipy.integrate.solve_ivp(slope, (0, 60), begin, "DOP853", rtol=1e-12, atol=1e-14, events=(misaligned, far))
    return run.t_events[0][0] / RATE, run.t_events[1][0] / RATE


def test_times_under_any_fixed_recurrence_agree_with_the_ode():
    rng = np.random.default_rng(5)
    task = lc.tasks.leaky_integration(steps=4, timescale=[2.0, 6.0], mixing=[[1.0, 0.4], [0.0, 0.8]])
    full = 0.5 * rng.standard_normal((4, 4))
    for recurrence in (full, np.diag([0.9, 0.7, 0.5, 0.2])):
        network = lc.LinearRNN(0.3 * rng.standard_normal((4, 2)), recurrence, 0.3 * rng.standard_normal((2, 4)))
        solution = lc.forecast(task, network, learning_rate=RATE).solution
        found = time_to_align(solution, 0.9)
        aligned, learned = recurrent_oracle(task, network, 0.1)
        # 1e-6: both rests, which are approached slowly along flat directions.
        assert found.aligned == pytest.approx(aligned, rel=1e-6, abs=found.error)
        assert found.learned == pytest.approx(learned, rel=1e-6, abs=found.error)
        assert misalignment(solution, [found.aligned])[0] == pytest.approx(0.1, rel=1e-6)


def test_a_solution_by_modes_aligns_as_the_integrated_flow_does():
    task = lc.tasks.integration(steps=5, target_strength=[1.5, 0.5])
    for recurrence in (0.9, [0.9, 0.5]):
        network = lc.LinearRNN.aligned(task=task, recurrence=recurrence, initial=0.1, hidden_size=2)
        by_modes, integrated = (
            lc.forecast(task, network, learning_rate=RATE, method=method).solution for method in ("modes", "flow")
        )
        one, other = time_to_align(by_modes, 0.95), time_to_align(integrated, 0.95)
        assert one.error == 0.0
        assert one.aligned == pytest.approx(other.aligned, rel=1e-7)
        assert one.learned == pytest.approx(other.learned, rel=1e-7)
        assert 0 < one.aligned <= one.learned


def test_a_deep_network_aligns_before_it_learns():
    task = lc.tasks.static(np.diag([2.0, 1.0]))
    found = time_to_align(lc.forecast(task, lc.Deep.aligned((2, 2), task=task), learning_rate=RATE).solution, 0.95)
    assert 0 < found.aligned <= found.learned < np.inf


def test_a_recurrence_that_learns_is_refused():
    task = lc.tasks.integration(steps=5)
    network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    training = lc.Training(RATE, learn=("input", "recurrent", "output"))
    with pytest.raises(lc.InvalidSpec) as caught:
        time_to_align(lc.forecast(task, network, training).solution)
    assert caught.value.field == "solution"


def test_zero_and_opposed_functions_are_fully_misaligned():
    task = lc.tasks.static(np.diag([2.0, 1.0]))
    opposed = lc.TwoLayer(np.eye(2), -np.diag([2.0, 1.0]))
    zero = lc.TwoLayer(np.zeros((2, 2)), np.eye(2))
    for network in (opposed, zero):
        solution = lc.forecast(task, network, learning_rate=RATE, method="flow").solution
        assert misalignment(solution, [0.0])[0] == 1.0


@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_alignment_and_growth_do_not_add_up(spread):
    """The map grows while it turns: learning takes about as long as the longer of both."""
    task, network = switched(1.2, spread)
    turned = lc.TwoLayer(network.first @ rotation(4, 1.2).T, network.second)
    rotated, grown = (time_to_align(lc.forecast(task, n, learning_rate=RATE).solution, 0.95) for n in (network, turned))
    assert rotated.learned < 0.8 * (rotated.aligned + grown.learned)
    assert rotated.learned == pytest.approx(max(rotated.aligned, grown.learned), rel=0.1)
