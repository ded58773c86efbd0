"""Targets of low rank: modes with nothing to learn, against plain descent and integration."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import learncast as lc
from learncast.theory import time_to_band

RATE = 1e-3


def pooled(task, recurrence):
    """E[z z^T] and E[y z^T] of z = sum of recurrence^(T-t) x_t, step by step."""
    power = recurrence ** np.arange(task.steps - 1, -1, -1)
    inputs = np.einsum("t,tnsm,s->nm", power, task.input_covariance.dense(), power)
    return inputs, np.einsum("t,tnm->mn", power, task.cross_covariance.dense()[:, :, 0, :])


def descended(task, network, recurrence, accuracy, most=40_000):
    """Steps of plain descent until every singular direction of the target is within its band."""
    S, R = pooled(task, recurrence)
    best = R @ np.linalg.pinv(S)
    U, s, Vt = np.linalg.svd(best)
    width = (1 - accuracy) * np.where(s > 1e-9 * s[0], s, s[0])
    A, C = network.input_weights, network.output_weights
    for n in range(most):
        M = C @ A
        if (np.abs(np.einsum("mk,mn,kn->k", U, M - best, Vt)) <= width).all():
            return n
        G = M @ S - R
        A, C = A - RATE * C.T @ G, C - RATE * G @ A.T
    return np.inf


def low_rank():
    task = lc.tasks.integration(steps=10, input_strength=[1.0, 1.0], target_strength=[1.0, 1.0], mixing=np.ones((2, 2)))
    return task, lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=8, task=task), 0.9


def one_hot():
    """Centred one-hot targets: their sum over channels is always 0."""
    rng = np.random.default_rng(3)
    labels = rng.integers(3, size=400)
    x = np.eye(3)[labels][:, None, :] + rng.normal(size=(400, 6, 3))
    y = np.eye(3)[labels]
    x, y = x - x.mean(axis=(0, 1)), y - y.mean(axis=0)
    z = np.einsum("t,ptn->pn", 0.8 ** np.arange(5, -1, -1), x)
    R = y.T @ z / len(z)  # static by construction: one covariance, seen at the last step alone
    task = lc.tasks.static(R)
    return task, lc.LinearRNN.aligned(recurrence=0.0, initial=0.1, hidden_size=5, task=task), 0.0


def turned():
    U = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    return lc.tasks.static((U * [2.0, 1.0, 0.0]) @ U.T), lc.LinearRNN(0.1 * U.T, 0.5 * np.eye(3), 0.1 * U), 0.5


def far(start=3.0):
    """The absent mode starts large and must be unlearned, like 1 / t."""
    U = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    a = np.sqrt([0.01, 0.01, start])
    network = lc.LinearRNN((U * a).T, 0.5 * np.eye(3), U * a)
    return lc.tasks.static((U * [2.0, 1.0, 0.0]) @ U.T), network, 0.5


CASES = {"low rank": low_rank, "one-hot": one_hot, "turned": turned, "far": far}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("accuracy", [0.9, 0.99])
def test_targets_of_low_rank_take_the_steps_of_plain_descent(case, accuracy):
    task, network, recurrence = CASES[case]()
    expected = descended(task, network, recurrence, accuracy)
    found = lc.forecast(task, network, learning_rate=RATE).solution.time_to(accuracy)
    assert found.status is lc.Status.ok
    assert np.isfinite(expected)
    assert abs(found.descent_steps - expected) <= 1  # the count is right to first order in the rate
    stage = [lc.Stage(task, goal=accuracy)]
    followed = lc.follow(stage, network, learning_rate=RATE)
    assert followed.steps.descent == found.descent_steps
    assert followed.steps.flow == pytest.approx(found.flow_steps, rel=1e-12)


@pytest.mark.parametrize("imbalance", [0.0, 0.4, -2.0])
@pytest.mark.parametrize("start", [3.0, -3.0, 0.05])
def test_an_absent_mode_decays_into_the_strongest_modes_band(start, imbalance):
    cross, power, eps = np.array([1.2, 0.0]), np.array([0.6, 0.7]), 0.01
    time, edge = time_to_band([1.0, start], [0.0, imbalance], cross, power, eps)
    width = eps * cross[0] / power[0]

    def crossed(_, u):
        return abs(u[0]) - width

    crossed.terminal = True
    course = solve_ivp(
        lambda _, u: -np.hypot(imbalance, 2 * u) * u * power[1],
        (0, 1e4),
        [start],
        events=crossed,
        rtol=1e-12,
        atol=1e-15,
        method="LSODA",
    )
    assert time[1] == pytest.approx(course.t_events[0][0], rel=1e-8)
    assert edge[1] == pytest.approx(np.sign(start) * width, rel=1e-15)


def test_accuracy_and_bands_use_the_same_distance():
    task, network, _ = far(0.5)
    solution = lc.forecast(task, network, learning_rate=RATE).solution
    modes = solution.modes
    absent = int(np.argmin(np.abs(modes.weighted_cross)))
    assert modes.weighted_cross[absent] == 0.0
    edge = modes.optimum.copy()
    edge[absent] = 0.02  # a hundredth of the strongest optimum, 2
    assert modes.accuracy(edge)[absent] == pytest.approx(0.99, rel=1e-12)
    after = solution.at([solution.time_to(0.99).mode_flow_steps[absent]])["strength"].values[0, absent]
    assert after == pytest.approx(0.02, rel=1e-9)


def test_a_task_with_nothing_to_learn_takes_no_steps():
    task = lc.tasks.static(np.zeros((2, 2)))
    idle = lc.LinearRNN(np.zeros((2, 2)), 0.5 * np.eye(2), np.eye(2))
    assert lc.forecast(task, idle, learning_rate=RATE).solution.time_to(0.99).flow_steps == 0.0
    busy = lc.LinearRNN(np.eye(2), 0.5 * np.eye(2), np.eye(2))
    found = lc.forecast(task, busy, learning_rate=RATE).solution.time_to(0.99)
    assert found.flow_steps == 0.0
    assert found.status is lc.Status.ok


def test_plans_and_portraits_with_absent_modes():
    task, network, _ = low_rank()
    strong = lc.tasks.integration(
        steps=10, input_strength=[1.0, 1.0], target_strength=[2.0, 2.0], mixing=np.ones((2, 2)), name="strong"
    )
    direct = lc.forecast(task, network, learning_rate=RATE).solution.time_to(0.99)
    plan = lc.plan(task, [strong], network, learning_rate=RATE, terms=lc.Terms(goal=lc.Accuracy(0.99)))
    assert plan.best.steps.flow <= direct.flow_steps
    followed = lc.follow([lc.Stage(strong, goal=0.5), lc.Stage(task, goal=0.99)], network, learning_rate=RATE)
    assert np.isfinite(followed.steps.flow)
