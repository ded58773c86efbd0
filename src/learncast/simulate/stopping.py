"""When a training run ends: at an accuracy, below a loss, or on a plateau."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from learncast.errors import InvalidSpec
from learncast.validation import FloatArray, between, count, positive, real_array


@dataclass(frozen=True)
class Accuracy:
    """Stop when every mode is within 1 - accuracy of the optimum.

    Parameters
    ----------
    accuracy : float
    optimum : array, optional
        Strength each mode should reach. Without it the theory's, where the network is linear with fixed recurrence;
        for any other network training is first run to its plateau, and what it finds there is the optimum (the paper's
        two passes). A network without modes is judged by its loss instead: the excess over the plateau's must fall
        below (1 - accuracy)^2 of where it began.
    plateau : Plateau
        Where that first pass ends.
    """

    accuracy: float
    optimum: Any = None
    plateau: Plateau = field(default_factory=lambda: Plateau())

    def __post_init__(self) -> None:
        between("accuracy", self.accuracy, 0.0, 1.0, why="it is one minus the tolerance")
        if self.optimum is not None:
            real_array("optimum", self.optimum, ndim=(0, 1))


@dataclass(frozen=True)
class LossBelow:
    """Stop when the loss on the task is at most `tolerance`."""

    tolerance: float

    def __post_init__(self) -> None:
        positive("tolerance", self.tolerance, why="no sampled loss falls to nothing")


@dataclass(frozen=True)
class Plateau:
    """Stop when neither the loss nor the weights move on.

    Over the last `window` steps against the `window` before, the mean loss has fallen by less than `tolerance` of
    itself and the mean weights have moved by less than `tolerance` of their size. Both are asked for: at a small start
    the loss stands still while weights grow, and large weights hardly move while the loss falls.
    """

    window: int = 200
    tolerance: float = 2e-3

    def __post_init__(self) -> None:
        count("window", self.window, why="it counts steps")
        positive("tolerance", self.tolerance, why="noise never rests altogether")


Rule = Accuracy | LossBelow | Plateau


class Watch:
    """The state of a plateau rule along a run: means over one window of steps after the other."""

    def __init__(self, rule: Plateau) -> None:
        self.rule, self.steps, self.loss = rule, 0, float("nan")
        self.weights = self._sum = self._strengths = np.zeros(0)
        self._losses, self.strength = 0.0, np.zeros(0)
        self.spacing = next(k for k in range(max(1, rule.window // 10), 0, -1) if rule.window % k == 0)

    def settled(self, judge: Callable[[], float], weights: FloatArray, strength: FloatArray) -> bool:
        """Take in one step; at the end of a window say whether it agrees with the window before."""
        fresh = self.steps % self.rule.window == 0
        self._losses = 0.0 if fresh else self._losses
        if self.steps % self.spacing == 0:  # the loss changes slowly, and to judge it may cost more than a step
            self._losses += judge()
        self._sum = weights + (0.0 if fresh else self._sum)
        self._strengths = strength + (0.0 if fresh else self._strengths)
        self.steps += 1
        if self.steps % self.rule.window:
            return False
        n, before, old = self.rule.window, self.loss, self.weights
        self.weights, self.strength = self._sum / n, self._strengths / n
        self.loss = self._losses / (n // self.spacing)
        if self.steps == n:
            return False
        moved, size = np.linalg.norm(self.weights - old), np.linalg.norm(self.weights)
        still = before - self.loss <= self.rule.tolerance * abs(self.loss) and moved <= self.rule.tolerance * size
        return bool(still)

    def state(self) -> dict[str, FloatArray]:
        """What is needed to go on."""
        numbers = np.array([self.steps, self.loss, self._losses])
        arrays = {"weights": self.weights, "sum": self._sum, "strengths": self._strengths, "strength": self.strength}
        return {"watch_numbers": numbers, **{f"watch_{key}": value for key, value in arrays.items()}}

    def restore(self, state: dict[str, FloatArray]) -> None:
        """Go on from a saved state."""
        self.steps = int(state["watch_numbers"][0])
        self.loss, self._losses = float(state["watch_numbers"][1]), float(state["watch_numbers"][2])
        self.weights, self._sum = state["watch_weights"], state["watch_sum"]
        self._strengths, self.strength = state["watch_strengths"], state["watch_strength"]


def inside(strength: FloatArray, optimum: FloatArray, accuracy: float) -> bool:
    """Whether every mode is in its band; a mode with nothing to learn (optimum nan) always is."""
    with np.errstate(invalid="ignore"):
        gap = np.abs(strength - optimum) <= (1 - accuracy) * np.abs(optimum)
    return bool((gap | np.isnan(optimum)).all())


def checked_optimum(optimum: Any, modes: int) -> FloatArray:
    """One optimum per mode."""
    found = real_array("optimum", optimum, ndim=(0, 1))
    if found.ndim and len(found) != modes:
        raise InvalidSpec(
            required=f"optimum must be a number or one for each of the {modes} modes",
            got=f"{len(found)} numbers",
            why="each mode has its own",
            remedy="give a single number, or match the modes",
        )
    return np.broadcast_to(found, (modes,))
