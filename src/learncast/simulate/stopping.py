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
    itself and the mean of each kind of weights has moved by less than `tolerance` of its size. Both are asked for: at a
    small start the loss stands still while weights grow, and large weights hardly move while the loss falls.
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
        self.rule, self.steps = rule, 0
        self.loss, self._losses = float("nan"), 0.0
        self.strength = self._strengths = np.zeros(0)
        self.weights: list[FloatArray] = []
        self._sums: list[FloatArray] = []
        self.spacing = next(k for k in range(max(1, rule.window // 10), 0, -1) if rule.window % k == 0)

    def settled(self, judge: Callable[[], float], weights: list[FloatArray], strength: FloatArray) -> bool:
        """Take in one step; at the end of a window say whether it agrees with the window before."""
        if self.steps % self.rule.window == 0:
            self._losses, self._sums, self._strengths = 0.0, [0.0 * w for w in weights], 0.0 * strength
        if self.steps % self.spacing == 0:  # the loss changes slowly, and to judge it may cost more than a step
            self._losses += judge()
        with np.errstate(over="ignore", invalid="ignore"):
            self._sums = [old + new for old, new in zip(self._sums, weights, strict=True)]
            self._strengths = self._strengths + strength
        self.steps += 1
        return self.steps % self.rule.window == 0 and self._compared()

    def _compared(self) -> bool:
        n, before, old, tolerance = self.rule.window, self.loss, self.weights, self.rule.tolerance
        self.loss = self._losses / (n // self.spacing)
        self.weights, self.strength = [s / n for s in self._sums], self._strengths / n
        if not old:
            return False
        with np.errstate(over="ignore", invalid="ignore"):
            # Each kind of weights by itself: large ones that rest would hide small ones that grow.
            rest = all(
                np.linalg.norm(now - then) <= tolerance * np.linalg.norm(now)
                for now, then in zip(self.weights, old, strict=True)
            )
        return bool(rest and before - self.loss <= tolerance * abs(self.loss))

    def state(self) -> dict[str, FloatArray]:
        """What is needed to go on."""
        found = {"watch_numbers": np.array([self.steps, self.loss, self._losses])}
        found |= {"watch_strength": self.strength, "watch_strengths": self._strengths}
        found |= {f"watch_weights.{k}": w for k, w in enumerate(self.weights)}
        return found | {f"watch_sums.{k}": w for k, w in enumerate(self._sums)}

    def restore(self, state: dict[str, FloatArray]) -> None:
        """Go on from a saved state."""
        self.steps = int(state["watch_numbers"][0])
        self.loss, self._losses = float(state["watch_numbers"][1]), float(state["watch_numbers"][2])
        self.strength, self._strengths = state["watch_strength"], state["watch_strengths"]
        kinds = sum(key.startswith("watch_sums.") for key in state)
        self._sums = [state[f"watch_sums.{k}"] for k in range(kinds)]
        self.weights = [state[f"watch_weights.{k}"] for k in range(kinds)] if "watch_weights.0" in state else []


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
