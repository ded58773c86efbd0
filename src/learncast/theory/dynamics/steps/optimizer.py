"""Optimizer of a gradient descent, with the update rules and defaults of `torch.optim`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray
from learncast.procedure.training import Training

#: Decay of the second moment of "rmsprop".
RMSPROP_DECAY = 0.99


@dataclass
class Optimizer:
    """An update rule with its state.

    Parameters
    ----------
    training : Training
        Names one of the optimisers "gd", "momentum", "adam", "adamw" and "rmsprop".
    steps, first, second
        The state: steps taken, and first and second moments of the gradient of each weight.

    Examples
    --------
    The length of Adam's first step is the learning rate, whatever the gradient:

    >>> import learncast as lc
    >>> import numpy as np
    >>> from learncast.theory.dynamics.steps.optimizer import Optimizer
    >>> rule = Optimizer(lc.Training(1e-3, optimizer="adam"))
    >>> rule.update({"weights": np.zeros(2)}, {"weights": np.array([5.0, -0.01])})["weights"].round(6)
    array([-0.001,  0.001])
    """

    training: Training
    steps: int = 0
    first: dict[str, FloatArray] = field(default_factory=dict)
    second: dict[str, FloatArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.training.optimizer, str):
            raise InvalidSpec("optimizer must be a name; only learncast.training takes functions.", field="optimizer")

    def update(self, weights: dict[str, FloatArray], slopes: dict[str, FloatArray]) -> dict[str, FloatArray]:
        """Return the weights after one step, and advance the state."""
        self.steps += 1
        return {key: self._moved(key, weights[key], slope) for key, slope in slopes.items()}

    def _moved(self, key: str, w: FloatArray, slope: FloatArray) -> FloatArray:
        training, name = self.training, self.training.optimizer
        rate, decay = training.learning_rate, training.weight_decay
        if name == "adamw":
            w = w * (1 - rate * (0.01 if decay is None else decay))
        elif decay:
            slope = slope + decay * w
        if name == "gd":
            return w - rate * slope
        if name == "momentum":
            kept = self.first.get(key)
            self.first[key] = slope if kept is None else training.momentum * kept + slope
            return w - rate * self.first[key]
        one, two = (0.0, RMSPROP_DECAY) if name == "rmsprop" else training.betas
        zero = np.zeros_like(w)
        self.second[key] = two * self.second.get(key, zero) + (1 - two) * slope**2
        if name == "rmsprop":
            return w - rate * slope / (np.sqrt(self.second[key]) + training.eps)
        self.first[key] = one * self.first.get(key, zero) + (1 - one) * slope
        # Bias correction: the moments start at zero.
        root = np.sqrt(self.second[key]) / np.sqrt(1 - two**self.steps) + training.eps
        return w - rate / (1 - one**self.steps) * self.first[key] / root

    def copy(self) -> Optimizer:
        """Return the optimiser in the same state; updates replace arrays, so they can be shared."""
        return replace(self, first=dict(self.first), second=dict(self.second))
