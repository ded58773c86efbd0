"""Aligned starts on recorded data against plain descent on the trials."""

import numpy as np
import pytest

import learncast as lc

RATE = 2e-3


def descended(x, y, network, accuracy, most=60_000):
    """Steps of plain descent on all trials until the excess loss is (1 - accuracy)^2 of the baseline loss."""
    b = network.recurrent_weights[0, 0]
    z = np.einsum("t,ptn->pn", b ** np.arange(x.shape[1] - 1, -1, -1), x)
    best = np.linalg.lstsq(z, y, rcond=None)[0]
    least, most_loss = ((y - z @ best) ** 2).sum() / 2 / len(y), (y**2).sum() / 2 / len(y)
    goal = least + (1 - accuracy) ** 2 * (most_loss - least)
    A, C = network.input_weights, network.output_weights
    for n in range(most):
        error = z @ A.T @ C.T - y
        if (error**2).sum() / 2 / len(y) <= goal:
            return n
        G = error.T @ z / len(y)
        A, C = A - RATE * C.T @ G, C - RATE * G @ A.T
    return np.inf


def opposed(inputs, outputs, seed=0):
    """Trials whose early and late inputs drive the target in opposite directions."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(300, 12, inputs))
    map_ = rng.normal(size=(inputs, outputs))
    return x, (x[:, -1] - 0.6 * x[:, :8].sum(axis=1)) @ map_ + 0.1 * rng.normal(size=(300, outputs))


def test_one_channel_starts_with_the_sign_of_the_pooled_statistics():
    x, y = opposed(1, 1)
    task = lc.Task.from_samples(x, y)
    network = lc.LinearRNN.aligned(recurrence=0.5, initial=0.1, hidden_size=4, task=task)
    found = lc.forecast(task, network, learning_rate=RATE).solution.time_to(0.9)
    assert found.status is lc.Status.ok
    # A single channel's band on the strength is one on the excess loss, eps^2 of it.
    assert abs(found.descent_steps - descended(x, y, network, 0.9)) <= 1


@pytest.mark.parametrize(("inputs", "outputs"), [(3, 1), (1, 3), (3, 3)])
def test_several_channels_start_in_the_frame_of_the_pooled_statistics(inputs, outputs):
    x, y = opposed(inputs, outputs, seed=1)
    task = lc.Task.from_samples(x, y)
    network = lc.LinearRNN.aligned(recurrence=0.5, initial=0.1, hidden_size=6, task=task)
    z = np.einsum("t,ptn->pn", 0.5 ** np.arange(11, -1, -1), x)
    R = y.T @ z / len(y)
    U, s, Vt = np.linalg.svd(R, full_matrices=False)
    start = network.output_weights @ network.input_weights
    # every mode begins at .1 x .1, in the directions and with the sign of the pooled covariance
    np.testing.assert_allclose(U.T @ start @ Vt.T, 0.01 * np.eye(len(s)), atol=1e-9)
    assert np.isfinite(descended(x, y, network, 0.5))


def test_each_recurrence_has_its_own_sign():
    """Target +1 on the last step and -3 on the one before: b = .9 sees -1.7, b = -.5 sees 2.5."""
    cross = np.zeros((2, 2, 2))
    cross[0], cross[1] = -3.0 * np.eye(2), np.eye(2)
    task = lc.Task(np.eye(4).reshape(2, 2, 2, 2), cross)
    network = lc.LinearRNN.aligned(recurrence=[0.9, -0.5], initial=0.1, hidden_size=2, task=task)
    modes = lc.forecast(task, network, learning_rate=RATE).solution.modes
    assert sorted(modes.weighted_cross * np.sign(modes.start)) == pytest.approx([1.7, 2.5], rel=1e-12)
    assert lc.forecast(task, network, learning_rate=RATE).solution.time_to(0.99).status is lc.Status.ok
