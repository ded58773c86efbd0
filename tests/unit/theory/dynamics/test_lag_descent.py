"""Gradient descent of recurrent networks on statistics by lag."""

from __future__ import annotations

import numpy as np
import pytest

from learncast.theory.dynamics.steps.lag_descent import LagDescent


@pytest.mark.parametrize("turn", [1.0, 1.0 + 0.1j])  # curvatures are measured at complex weights
@pytest.mark.parametrize("learns", [(True, True, True), (True, False, True), (False, True, False)])
@pytest.mark.parametrize(("lags", "outputs"), [(1, 1), (3, 1), (4, 2)])
def test_one_network_has_the_loss_and_gradient_that_it_has_among_several(lags, outputs, learns, turn):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 2 * lags)), rng.normal(size=(30, outputs))
    weights = rng.normal(size=(3, 2)), rng.normal(size=(3, 3)), rng.normal(size=(outputs, 3))
    descent = LagDescent(x.T @ x / 30, y.T @ x / 30, np.array(0.5), weights, learns)
    one, several = (descent.loss_and_slopes(np.repeat(turn * descent.start[None], n, axis=0)) for n in (1, 2))
    assert one[0] == pytest.approx(several[0][:1], rel=1e-12)
    assert one[1] == pytest.approx(several[1][:1], rel=1e-11)
