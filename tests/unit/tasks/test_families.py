"""Long trials: families whose covariances take no products of matrices, and questions that make few copies of them."""

import tracemalloc

import numpy as np
import pytest

import learncast as lc
from learncast._core.errors import InvalidSpec
from learncast._core.limits import allowing
from learncast.tasks.covariance import COPIES
from learncast.tasks.families import Profile, integration_profile
from learncast.tasks.geometry import pooling_kernel, recurrence_kernel


@pytest.mark.parametrize("targets", ["end", "every_step"])
def test_an_even_sum_has_the_covariances_of_its_filter(targets):
    strengths = np.array([0.3, 2.0]), np.array([1.7, -0.4])
    found = integration_profile(steps=7, targets=targets, input_strength=strengths[0], target_strength=strengths[1])
    plain = Profile(found.input, found.filter)
    np.testing.assert_allclose(found.cross, plain.cross, rtol=1e-15)
    np.testing.assert_allclose(found.target, plain.target, rtol=1e-14)  # sums of seven


@pytest.mark.parametrize("readouts", [1, 9])
@pytest.mark.parametrize("recurrence", [0.0, 0.6, -0.8, 1.0, 1.2])
def test_pairs_of_steps_weigh_as_the_product_of_their_weights(recurrence, readouts):
    kernel = recurrence_kernel(recurrence, 9, readouts)
    plain = [[recurrence ** (r - t) if r >= t else 0.0 for r in (range(9) if readouts > 1 else [8])] for t in range(9)]
    np.testing.assert_allclose(kernel, plain, rtol=1e-14)
    np.testing.assert_allclose(pooling_kernel(recurrence, 9, readouts), kernel @ kernel.T, rtol=1e-13)


def asked(steps, targets):
    """Forecast a task and draw from it."""
    task = lc.tasks.integration(steps=steps, targets=targets)
    network = lc.LinearRNN.random(1, 3, 1, recurrence=0.9, scale=0.1, rng=0)
    lc.solve(task, network, learning_rate=1e-5).at(range(3))
    task.sample(2, np.random.default_rng(0))


@pytest.mark.parametrize("targets", ["end", "every_step"])
def test_no_more_copies_are_made_than_are_counted(targets):
    asked(4, targets)  # what is imported is not counted
    tracemalloc.start()
    try:
        asked(600, targets)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < (COPIES[targets] + 0.5) * 8 * 600**2


def test_trials_without_room_are_refused_unless_more_is_allowed():
    with pytest.raises(InvalidSpec, match=r"of 3500 steps must take at most 0.5 GiB.*raise most_bytes"):
        lc.tasks.integration(steps=3500, targets="every_step")
    with allowing(1e5):
        slow = lc.tasks.leaky_integration(steps=60, correlation=0.5)
        with pytest.raises(InvalidSpec, match="of 60 steps"):  # roots are more than the statistics
            slow.sample(2, np.random.default_rng(0))
    assert slow.sample(2, np.random.default_rng(0))[0].shape == (2, 60, 1)
