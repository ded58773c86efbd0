"""The update rules of exact descent are torch's, defaults and all."""

from __future__ import annotations

import numpy as np
import pytest

import learncast as lc
from learncast.theory import Optimizer

torch = pytest.importorskip("torch")

#: Name: (given to both, torch's class, what torch must be told besides).
RULES = {
    "gd": ({}, "SGD", {}),
    "gd, decay": ({"weight_decay": 0.05}, "SGD", {}),
    "momentum": ({}, "SGD", {"momentum": 0.9}),
    "adam": ({}, "Adam", {}),
    "adam, decay": ({"weight_decay": 0.05, "betas": (0.5, 0.7), "eps": 1e-3}, "Adam", {}),
    "adamw": ({}, "AdamW", {}),
    "rmsprop": ({"eps": 1e-6}, "RMSprop", {}),
}


@pytest.mark.parametrize("name", RULES)
def test_weights_move_as_torch_moves_them(name):
    """Slopes that differ in size and sign, and vanish at times, over enough steps for every moment to be felt."""
    given, torch_name, told = RULES[name]
    rng = np.random.default_rng(3)
    slopes = rng.normal(size=(40, 4)) * np.array([1e-9, 1e-3, 1.0, 30.0])
    slopes[10:20] = 0.0
    rule = Optimizer(lc.Training(0.02, optimizer=name.partition(",")[0], **given))
    weights = {"weights": np.array([0.5, -1.0, 2.0, 0.0])}
    theirs = torch.nn.Parameter(torch.tensor(weights["weights"]))
    optimizer = getattr(torch.optim, torch_name)([theirs], lr=0.02, **given, **told)
    for slope in slopes:
        weights = rule.update(weights, {"weights": slope})
        theirs.grad = torch.tensor(slope)
        optimizer.step()
        np.testing.assert_allclose(weights["weights"], theirs.detach().numpy(), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_training_moves_weights_as_torch_does_bit_for_bit(dtype):
    from learncast.training.updates import SGD

    rng = np.random.default_rng(4)
    begun = torch.tensor(rng.normal(size=(5, 3)), dtype=getattr(torch, dtype))
    ours, theirs, still = (torch.nn.Parameter(begun.clone()) for _ in range(3))
    rules = SGD([ours, still], 0.037), torch.optim.SGD([theirs], 0.037, foreach=False)
    for _ in range(50):
        for rule, one in zip(rules, (ours, theirs), strict=True):
            rule.zero_grad(set_to_none=True)
            assert one.grad is None
            (one.tanh() ** 2).sum().backward()
            rule.step()
        assert torch.equal(ours, theirs)
    assert not torch.equal(ours, begun)
    assert torch.equal(still, begun)  # it has no gradient
    assert rules[0].defaults == rules[1].defaults
    assert type(rules[0]).__qualname__ == type(rules[1]).__qualname__  # by both runs are known again
    assert not rules[0].state_dict()["state"]
