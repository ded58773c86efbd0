"""The update rules of exact descent are torch's, defaults and all."""

from __future__ import annotations

import numpy as np
import pytest

from learncast.dynamics.steps.optimizer import Optimizer

torch = pytest.importorskip("torch")

#: Name: (given to both, torch's class, what torch must be told besides).
RULES = {
    "gd": ({}, "SGD", {}),
    "gd, decay": ({"weight_decay": 0.05}, "SGD", {}),
    "momentum": ({}, "SGD", {"momentum": 0.9}),
    "adam": ({}, "Adam", {}),
    "adam, decay": ({"weight_decay": 0.05, "betas": (0.5, 0.7), "eps": 1e-3}, "Adam", {}),
    "adamw": ({}, "AdamW", {}),
}


@pytest.mark.parametrize("name", RULES)
def test_weights_move_as_torch_moves_them(name):
    """Slopes that differ in size and sign, and vanish at times, over enough steps for every moment to be felt."""
    given, torch_name, told = RULES[name]
    rng = np.random.default_rng(3)
    slopes = rng.normal(size=(40, 4)) * np.array([1e-9, 1e-3, 1.0, 30.0])
    slopes[10:20] = 0.0
    rule = Optimizer(name.partition(",")[0], learning_rate=0.02, **given)
    weights = {"weights": np.array([0.5, -1.0, 2.0, 0.0])}
    theirs = torch.nn.Parameter(torch.tensor(weights["weights"]))
    optimizer = getattr(torch.optim, torch_name)([theirs], lr=0.02, **given, **told)
    for slope in slopes:
        weights = rule.update(weights, {"weights": slope})
        theirs.grad = torch.tensor(slope)
        optimizer.step()
        np.testing.assert_allclose(weights["weights"], theirs.detach().numpy(), rtol=1e-12, atol=1e-15)
