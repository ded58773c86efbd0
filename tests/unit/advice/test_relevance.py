"""Answers that trials alone tell, against scikit-free plain numpy and tasks whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from learncast.advice.readout import RIDGE, answer_share
from learncast.training import DecisionAccuracy, Measured
from learncast.training.sources import Batch

GOAL = DecisionAccuracy(0.9, ignore=0)


def drawn(answer: str, trials: int = 400, seed: int = 0, steps: int = 5) -> Batch:
    """Two signs shown at the last three steps; at the last the sign of one or of their product is asked for."""
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1.0, 1.0], (trials, 2))
    x = 0.1 * rng.standard_normal((trials, steps, 2))
    x[:, -3:] += signs[:, None]
    value = {"first": signs[:, 0], "second": signs[:, 1], "product": signs[:, 0] * signs[:, 1]}[answer]
    y = np.zeros((trials, steps), dtype=np.int64)
    y[:, -1] = 1 + (value > 0)
    return Batch(torch.from_numpy(x), torch.from_numpy(y))


def test_linear_answers_decide_a_sign_and_no_product() -> None:
    shares = {task: answer_share(drawn(task), drawn(task, seed=1), GOAL, power=1) for task in ("first", "product")}
    assert shares["first"] == 1.0
    assert shares["product"] == pytest.approx(0.5, abs=0.1)  # 4 s.e. of 400 trials


def test_products_are_known_to_the_square_and_parts_of_the_question_do_not_answer_it() -> None:
    target = drawn("product", seed=1)
    assert answer_share(drawn("product"), target, GOAL, power=2) == 1.0
    assert answer_share(drawn("first"), target, GOAL, power=2) == pytest.approx(0.5, abs=0.1)


def test_trials_of_unequal_length_are_set_side_by_side_by_their_ends() -> None:
    for steps in (4, 9):
        assert answer_share(drawn("first", steps=steps), drawn("first", seed=1), GOAL, power=1) == 1.0


def test_it_is_ridge_regression_in_all_monomials() -> None:
    # With power 2 the features are 1, x and all products; ridge in them, written out, gives the same answers.
    rng = np.random.default_rng(3)
    x, other = rng.standard_normal((30, 1, 3)), rng.standard_normal((20, 1, 3))
    y = rng.standard_normal((30, 2))
    seen: list[np.ndarray] = []
    goal = Measured(lambda answers, targets: float(seen.append(answers.numpy()) or 0.0), at_least=1.0)
    learned, judged = (
        Batch(torch.from_numpy(x), torch.from_numpy(y)),
        Batch(torch.from_numpy(other), torch.zeros(20, 2)),
    )
    answer_share(learned, judged, goal, power=2)
    size = np.sqrt((x**2).sum((1, 2)).mean())

    def monomials(rows: np.ndarray) -> np.ndarray:
        z = rows[:, 0] / size
        pairs = np.einsum("ni,nj->nij", z, z).reshape(len(z), -1)
        return np.concatenate([np.ones((len(z), 1)), np.sqrt(2) * z, pairs], 1)

    features = monomials(x)
    ridge = RIDGE * (features**2).sum(1).mean()
    weights = np.linalg.solve(features.T @ features + ridge * np.eye(features.shape[1]), features.T @ (y - y.mean(0)))
    np.testing.assert_allclose(seen[0], monomials(other) @ weights + y.mean(0), atol=1e-9)
