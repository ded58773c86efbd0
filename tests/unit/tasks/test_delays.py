"""Multi-lag tasks: exact statistics, trials with these statistics, and reproducible draws."""

import tracemalloc

import numpy as np
import pytest

from learncast import InvalidSpec, tasks

LAGS, COEFFICIENTS, DIRECTION = (1, 4, 7), (0.6, -0.5, 0.3), np.array([0.6, 0.0, -0.8])
SMALL = {
    "steps": 12,
    "direction": DIRECTION,
    "lags": LAGS,
    "coefficients": COEFFICIENTS,
    "noise_strength": 0.2,
}


def refused(call):
    """The field of the InvalidSpec that a call raises."""
    with pytest.raises(InvalidSpec) as caught:
        call()
    return caught.value.field


def moments(inputs, targets):
    trials = len(inputs)
    return [
        np.einsum("pti,psj->tisj", a, b) / trials for a, b in ((inputs, inputs), (inputs, targets), (targets, targets))
    ]


def covariances(task):
    return [task.input_covariance.dense(), task.cross_covariance.dense(), task.target_covariance.dense()]


def test_statistics_are_those_of_the_definition():
    task = tasks.multi_lag(**SMALL)
    # The covariance of white input with the target is the target's response to a single 1.
    response = np.zeros((12, 3, 12, 1))
    for t in range(12):
        for i in range(3):
            for lag, c in zip(LAGS, COEFFICIENTS, strict=True):
                if t + lag < 12:
                    response[t, i, t + lag, 0] += c * DIRECTION[i]
    np.testing.assert_array_equal(task.cross_covariance.dense(), response)
    np.testing.assert_array_equal(task.input_covariance.dense().reshape(36, 36), np.eye(36))
    expected = np.einsum("tiro,tisp->rosp", response, response) + 0.2 * np.eye(12)[:, None, :, None]
    # Sums of at most three products of order one.
    np.testing.assert_allclose(task.target_covariance.dense(), expected, rtol=0, atol=1e-15)
    assert (task.steps, task.inputs, task.outputs, task.targets) == (12, 3, 1, "every_step")


@pytest.mark.parametrize(
    ("task", "draw"),
    [
        (tasks.multi_lag(**SMALL), lambda n, rng: tasks.multi_lag_trials(n, rng, **SMALL)),
        (tasks.multi_lag(**SMALL), tasks.multi_lag(**SMALL).sample),
    ],
    ids=["direct", "task"],
)
def test_trials_have_the_statistics_of_the_task(task, draw):
    trials = 40_000
    inputs, targets = draw(trials, np.random.default_rng(5))
    assert inputs.shape == (trials, task.steps, task.inputs)
    assert targets.shape == (trials, task.steps, 1)
    for estimated, exact in zip(moments(inputs, targets), covariances(task), strict=True):
        # Variances are at most 1.3, so a product has a standard deviation below 2. Six standard errors, over fewer
        # than 10^4 entries in all, raise a false alarm with probability 2e-5.
        assert np.abs(estimated - exact).max() < 6 * 2 / np.sqrt(trials)


def test_the_same_seed_gives_the_same_bytes():
    for draw in (
        lambda rng: tasks.multi_lag_trials(4, rng, steps=300),
        lambda rng: (tasks.random_direction(16, rng),),
    ):
        first, second = (draw(np.random.default_rng(212)) for _ in range(2))
        assert [part.tobytes() for part in first] == [part.tobytes() for part in second]
        assert first[0].tobytes() != draw(np.random.default_rng(213))[0].tobytes()


def test_inputs_are_drawn_before_noise():
    inputs, targets = tasks.multi_lag_trials(2, np.random.default_rng(3), **SMALL)
    rng = np.random.default_rng(3)
    x, noise = rng.standard_normal((2, 12, 3)), rng.standard_normal((2, 12, 1))
    np.testing.assert_array_equal(inputs, x)
    by_hand = np.sqrt(0.2) * noise
    for t in range(12):
        for lag, c in zip(LAGS, COEFFICIENTS, strict=True):
            if t >= lag:
                by_hand[:, t, 0] += c * (x[:, t - lag] @ DIRECTION)
    np.testing.assert_allclose(targets, by_hand, rtol=0, atol=1e-15)


def test_defaults_are_the_published_setting_and_need_little_memory():
    tracemalloc.start()
    task = tasks.multi_lag()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (task.steps, task.inputs) == (1024, 16)
    # The dense input covariance would take 2 GiB.
    assert peak < 100e6
    squares = np.array([0.6, 0.5, 0.4, 0.32, 0.26]) ** 2
    reached = 1024 - np.array([32, 64, 128, 192, 256])
    # A sum of a thousand variances of order one.
    assert task.target_power == pytest.approx(squares @ reached + 1024 * 0.3**2, rel=1e-12)
    assert np.linalg.norm(tasks.random_direction(16, np.random.default_rng(1))) == pytest.approx(1, rel=1e-15)


def test_a_number_of_inputs_is_an_even_direction():
    even = tasks.multi_lag(9, 4, lags=(2,), coefficients=(1.0,)).cross_covariance.dense()
    given = tasks.multi_lag(9, np.full(4, 0.5), lags=(2,), coefficients=(1.0,)).cross_covariance.dense()
    np.testing.assert_array_equal(even, given)


def test_tasks_can_be_varied():
    changed = tasks.multi_lag(**SMALL).varied(noise_strength=0.0)
    assert changed.target_power == pytest.approx(tasks.multi_lag(**SMALL).target_power - 12 * 0.2, rel=1e-12)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: tasks.multi_lag(50, lags=(1, 2), coefficients=(1.0,)), "lags"),
        (lambda: tasks.multi_lag(50, lags=(2, 2), coefficients=(1.0, 2.0)), "lags"),
        (lambda: tasks.multi_lag(256), "lags"),
        (lambda: tasks.multi_lag(300, np.zeros(3)), "direction"),
        (lambda: tasks.multi_lag(300, noise_strength=-1.0), "noise_strength"),
        (lambda: tasks.multi_lag_trials(0, np.random.default_rng(0)), "trials"),
    ],
)
def test_invalid_parameters_are_refused_by_name(call, field):
    assert refused(call) == field


def test_long_trials_can_be_drawn_but_have_no_dense_statistics():
    with pytest.raises(InvalidSpec):
        tasks.multi_lag(20_000)
    inputs, _ = tasks.multi_lag_trials(1, np.random.default_rng(0), steps=20_000, direction=1)
    assert inputs.shape == (1, 20_000, 1)
