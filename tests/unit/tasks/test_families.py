"""Long trials: covariances of families without matrix products, and forecasts with few copies in memory."""

import tracemalloc

import numpy as np
import pytest

import learncast as lc
from learncast._core.limits import allowing
from learncast.tasks.covariance import COPIES
from learncast.tasks.families import Profile, integration_profile
from learncast.tasks.geometry import pooling_kernel, recurrence_kernel


@pytest.mark.parametrize("targets", ["end", "every_step"])
def test_an_even_sum_has_the_covariances_of_its_filter(targets):
    strengths = np.array([0.3, 2.0]), np.array([1.7, -0.4])
    profile = integration_profile(steps=7, targets=targets, input_strength=strengths[0], target_strength=strengths[1])
    plain = Profile(profile.input, profile.filter)
    np.testing.assert_allclose(profile.cross, plain.cross, rtol=1e-15)
    np.testing.assert_allclose(profile.target, plain.target, rtol=1e-14)  # sums of seven


@pytest.mark.parametrize("readouts", [1, 9])
@pytest.mark.parametrize("recurrence", [0.0, 0.6, -0.8, 1.0, 1.2])
def test_the_pooling_kernel_is_the_product_of_recurrence_kernels(recurrence, readouts):
    kernel = recurrence_kernel(recurrence, 9, readouts)
    plain = [[recurrence ** (r - t) if r >= t else 0.0 for r in (range(9) if readouts > 1 else [8])] for t in range(9)]
    np.testing.assert_allclose(kernel, plain, rtol=1e-14)
    np.testing.assert_allclose(pooling_kernel(recurrence, 9, readouts), kernel @ kernel.T, rtol=1e-13)


def forecast_and_sample(steps, targets):
    task = lc.tasks.integration(steps=steps, targets=targets)
    network = lc.LinearRNN.random(1, 3, 1, recurrence=0.9, scale=0.1, rng=0)
    lc.forecast(task, network, learning_rate=1e-5).solution.at(range(3))
    task.sample(2, np.random.default_rng(0))


@pytest.mark.parametrize("targets", ["end", "every_step"])
def test_memory_stays_below_the_declared_number_of_copies(targets):
    forecast_and_sample(4, targets)  # imports do not count
    tracemalloc.start()
    try:
        forecast_and_sample(600, targets)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < (COPIES[targets] + 0.5) * 8 * 600**2


def test_trials_that_exceed_the_memory_limit_are_refused():
    with pytest.raises(lc.InvalidSpec):
        lc.tasks.integration(steps=3500, targets="every_step")
    with allowing(1e5):
        slow = lc.tasks.leaky_integration(steps=60, correlation=0.5)
        with pytest.raises(lc.InvalidSpec):  # sampling needs more memory than the statistics
            slow.sample(2, np.random.default_rng(0))
    assert slow.sample(2, np.random.default_rng(0))[0].shape == (2, 60, 1)
