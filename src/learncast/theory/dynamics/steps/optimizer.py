"""Optimizer of a gradient descent, with the update rules and defaults of `torch.optim`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from learncast._core.errors import InvalidSpec, brief
from learncast._core.validation import FloatArray, between, one_of, positive, real_array

NAMES = ("gd", "momentum", "adam", "adamw")


@dataclass
class Optimizer:
    """Settings and state of an optimizer.

    Parameters
    ----------
    name : {"gd", "momentum", "adam", "adamw"}
        Plain descent; heavy-ball momentum as `torch.optim.SGD(momentum=...)`; Adam; Adam with decoupled weight decay.
    learning_rate : float
    momentum : float
        For "momentum".
    betas : (float, float)
        Decay of Adam's two moments.
    eps : float
        Added to the root of Adam's second moment.
    weight_decay : float, optional
        Decoupled for "adamw", where it is 0.01 by default; added to the gradient otherwise, 0 by default.
    steps, first, second
        State: number of steps, and the first and second moments of the gradient.

    Examples
    --------
    The first step of Adam has the size of the learning rate for any gradient:

    >>> import numpy as np
    >>> from learncast.theory import Optimizer
    >>> rule = Optimizer("adam", learning_rate=1e-3)
    >>> rule.update({"weights": np.zeros(2)}, {"weights": np.array([5.0, -0.01])})["weights"].round(6)
    array([-0.001,  0.001])
    """

    name: str
    learning_rate: float
    momentum: float = 0.9
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float | None = None
    steps: int = 0
    first: dict[str, FloatArray] = field(default_factory=dict)
    second: dict[str, FloatArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.weight_decay is None:
            self.weight_decay = 0.01 if self.name == "adamw" else 0.0
        one_of("optimizer", self.name, NAMES)
        positive("learning_rate", self.learning_rate)
        between("momentum", self.momentum, 0.0, 1.0)
        betas = real_array("betas", self.betas, ndim=1)
        if len(betas) != 2 or not ((betas >= 0) & (betas < 1)).all():
            raise InvalidSpec(f"betas must be two numbers from 0 to below 1, got {brief(self.betas)}.", field="betas")
        between("eps", self.eps, 0.0, 1e300)
        between("weight_decay", self.weight_decay, 0.0, 1e300)

    def update(self, weights: dict[str, FloatArray], slopes: dict[str, FloatArray]) -> dict[str, FloatArray]:
        """Return the weights after one step, and update the state."""
        self.steps += 1
        return {key: self._moved(key, weights[key], slope) for key, slope in slopes.items()}

    def _moved(self, key: str, w: FloatArray, slope: FloatArray) -> FloatArray:
        assert self.weight_decay is not None
        if self.name == "adamw":
            w = w * (1 - self.learning_rate * self.weight_decay)
        elif self.weight_decay:
            slope = slope + self.weight_decay * w
        if self.name == "gd":
            return w - self.learning_rate * slope
        if self.name == "momentum":
            kept = self.first.get(key)
            self.first[key] = slope if kept is None else self.momentum * kept + slope
            return w - self.learning_rate * self.first[key]
        one, two = self.betas
        zero = np.zeros_like(w)
        self.first[key] = one * self.first.get(key, zero) + (1 - one) * slope
        self.second[key] = two * self.second.get(key, zero) + (1 - two) * slope**2
        # Bias correction, as the moments start at zero.
        root = np.sqrt(self.second[key]) / np.sqrt(1 - two**self.steps) + self.eps
        return w - self.learning_rate / (1 - one**self.steps) * self.first[key] / root

    def copy(self) -> Optimizer:
        """Return a copy with the same state; updates replace arrays, so the copies share them."""
        return replace(self, first=dict(self.first), second=dict(self.second))
