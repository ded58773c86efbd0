"""Seeded draws of batches are those of the Cholesky factor, which no machine may choose otherwise."""

import numpy as np
import pytest

import learncast as lc
from learncast.theory.dynamics import batch_draws


@pytest.mark.parametrize("units", [1.0, 1e-7])
def test_the_root_of_a_covariance_with_equal_eigenvalues_is_its_cholesky_factor(units):
    inputs = np.random.default_rng(0).standard_normal((40, 3, 2))
    noise = np.random.default_rng(1).standard_normal((40, 1))
    recorded = lc.Task.from_samples(inputs, units * (inputs.sum(axis=(1, 2))[:, None] + noise))
    for task in (recorded, lc.tasks.integration(steps=4).varied(target_strength=0.5)):
        joint = batch_draws._joint_covariance(task)
        scale = np.sqrt(np.diagonal(joint))
        root = batch_draws._root(joint) / scale[:, None]
        assert np.allclose(root @ root.T, joint / scale[:, None] / scale, atol=1e-12)
        assert np.allclose(root, np.tril(root), atol=0)
        assert (np.diagonal(root) > 0).all()


def test_the_root_of_a_covariance_without_full_rank_has_a_column_per_direction():
    task = lc.tasks.integration(steps=4)  # the target is a sum of the inputs
    joint = batch_draws._joint_covariance(task)
    root = batch_draws._root(joint)
    assert root.shape == (len(joint), np.linalg.matrix_rank(joint))
    assert np.allclose(root @ root.T, joint, atol=1e-12)
    assert np.allclose(root, np.tril(root), atol=0)
