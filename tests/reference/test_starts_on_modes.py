"""Starts that are aligned with the modes despite few units, singular recurrences or idle inputs."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import learncast as lc

RATE = 1e-3


def flowed(task, network, steps):
    """Network function after the exact flow: an ODE on the pooled statistics by lag, recurrence fixed."""
    A0, W, C0 = network.input_weights, network.recurrent_weights, network.output_weights
    T = task.steps
    powers = [np.linalg.matrix_power(W, T - 1 - t) for t in range(T)]
    K = task.input_covariance.dense()
    R = task.cross_covariance.dense()[:, :, 0, :]

    def slope(_, flat):
        A, C = flat[: A0.size].reshape(A0.shape), flat[A0.size :].reshape(C0.shape)
        maps = [C @ P @ A for P in powers]
        # gap[t] = E[(yhat - y) x_t^T]
        gaps = [sum(maps[s] @ K[s, :, t, :] for s in range(T)) - R[t].T for t in range(T)]
        dA = sum((C @ P).T @ g for P, g in zip(powers, gaps, strict=True))
        dC = sum(g @ (P @ A).T for P, g in zip(powers, gaps, strict=True))
        return -np.concatenate([dA.ravel(), dC.ravel()])

    start = np.concatenate([A0.ravel(), C0.ravel()])
    ends = [solve_ivp(slope, (0, n * RATE), start, rtol=1e-12, atol=1e-14, method="DOP853").y[:, -1] for n in steps]
    return [e[A0.size :].reshape(C0.shape) @ e[: A0.size].reshape(A0.shape) for e in ends]


def fewer_units():
    return lc.tasks.static(np.diag([2.0, 1.0])), lc.LinearRNN([[0.1, 0.0]], [[0.5]], [[0.1], [0.0]])


def nilpotent_direction():
    D = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    network = lc.LinearRNN(0.1 * D[:, :1], (D * [0.0, 0.5, -0.3]) @ D.T, 0.1 * D[:, :1].T)
    return lc.tasks.integration(steps=5), network


def idle_input_varies_most():
    rng = np.random.default_rng(0)
    rng.normal(size=(3, 3))
    Q = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    U = np.linalg.qr(rng.normal(size=(2, 2)))[0]
    network = lc.LinearRNN(np.diag([0.1, 0.2]) @ Q[:, :2].T, 0.5 * np.eye(2), U @ np.diag([0.1, 0.2]))
    return lc.tasks.static(1.5 * np.outer(U[:, 0], Q[:, 0]), (Q * [0.89, 0.95, 1.72]) @ Q.T), network


def idle_input_without_output():
    task, network = idle_input_varies_most()
    output = network.output_weights * [1.0, 0.0]
    return task, lc.LinearRNN(network.input_weights, network.recurrent_weights, output)


CASES = {
    "fewer units": fewer_units,
    "no recurrence": nilpotent_direction,
    "idle input": idle_input_varies_most,
    "no output": idle_input_without_output,
}


@pytest.mark.parametrize("case", CASES)
def test_aligned_starts_are_solved_exactly(case):
    task, network = CASES[case]()
    solution = lc.forecast(task, network, learning_rate=RATE).solution
    assert solution.holds
    steps = [0.0, 300.0, 1500.0, 6000.0]
    for n, expected in zip(steps, flowed(task, network, [max(n, 1e-9) for n in steps]), strict=True):
        there = solution.network_at(n)
        # integrated to 1e-12 relative per step
        np.testing.assert_allclose(there.output_weights @ there.input_weights, expected, atol=1e-9)


def test_a_mode_without_a_unit_does_not_count():
    task, network = fewer_units()
    found = lc.forecast(task, network, learning_rate=RATE).solution.time_to(0.99)
    assert np.isfinite(found.mode_flow_steps[0])
    assert found.mode_status == (lc.Status.ok, lc.Status.not_learned)
    assert found.flow_steps == found.mode_flow_steps[0]


def test_a_recurrence_that_leaks_between_modes_violates_a_condition():
    W = np.array([[0.0, 0.4], [0.0, 0.5]])  # unit 1 leaks into unit 0, the mode's
    network = lc.LinearRNN([[0.1], [0.0]], W, [[0.1, 0.0]])
    with pytest.raises(lc.AssumptionViolated) as error:
        lc.forecast(lc.tasks.integration(steps=5), network, learning_rate=RATE, method="modes")
    assert error.value.assumption == "normal_recurrence"
