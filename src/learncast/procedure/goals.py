"""Goals: when a task counts as learned."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, between, positive

#: A number, or one for each of several resamples.
Number = TypeVar("Number", float, FloatArray)


class Goal(ABC):
    """When a task counts as learned.

    Subclasses are `Accuracy`, `Explained`, `Loss` and `R2`, which forecasts and training both understand, and
    `learncast.training.DecisionAccuracy` and `learncast.training.Measured`, which need trials.
    """

    @abstractmethod
    def excess(self, baseline: Number, least: float) -> Number:
        """Return the excess loss at which the task is learned.

        Parameters
        ----------
        baseline : float or array
            Excess loss of the zero map.
        least : float
            Least loss that the network can reach; nan if the target variance is unknown.
        """

    @property
    @abstractmethod
    def text(self) -> str:
        """The goal in a few words."""


@dataclass(frozen=True)
class Accuracy(Goal):
    """Every mode is within 1 - `value` of its optimum.

    Without modes, the excess loss is at most (1 - value)² of the baseline loss.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.Accuracy(0.9).text
    'accuracy 0.9'
    """

    value: float

    def __post_init__(self) -> None:
        between("accuracy", self.value, 0.0, 1.0)

    def excess(self, baseline: Number, least: float) -> Number:
        return (1.0 - self.value) ** 2 * baseline

    @property
    def text(self) -> str:
        return f"accuracy {self.value:.4g}"


@dataclass(frozen=True)
class Explained(Goal):
    """The share `value` of the explainable variance is learned: the excess loss is 1 - value of the baseline loss."""

    value: float

    def __post_init__(self) -> None:
        between("explained", self.value, 0.0, 1.0)

    def excess(self, baseline: Number, least: float) -> Number:
        return (1.0 - self.value) * baseline

    @property
    def text(self) -> str:
        return f"{self.value:.4g} of the explainable variance learned"


@dataclass(frozen=True)
class Loss(Goal):
    """The loss is at most `value`, in the units of the training loss."""

    value: float

    def __post_init__(self) -> None:
        positive("loss", self.value)

    def excess(self, baseline: Number, least: float) -> Number:
        return self.value - _known(least) + 0.0 * baseline

    @property
    def text(self) -> str:
        return f"loss {self.value:.3g}"


@dataclass(frozen=True)
class R2(Goal):
    """R² is at least `value`: one minus the loss over the loss of the zero map."""

    value: float

    def __post_init__(self) -> None:
        between("r2", self.value, 0.0, 1.0)

    def excess(self, baseline: Number, least: float) -> Number:
        known = _known(least)
        return (1.0 - self.value) * (baseline + known) - known

    @property
    def text(self) -> str:
        return f"R² {self.value:.4g}"


def goal_of(goal: Goal | float, *, recorded: bool) -> Goal:
    """Return a goal: a number means `Explained` for recorded tasks and `Accuracy` for task families."""
    if isinstance(goal, Goal):
        return goal
    if isinstance(goal, int | float | np.number) and not isinstance(goal, bool):
        return Explained(float(goal)) if recorded else Accuracy(float(goal))
    raise InvalidSpec(
        f"goal must be a number or a Goal such as learncast.Loss(0.1), got {type(goal).__name__}.", field="goal"
    )


def _known(least: float) -> float:
    if math.isnan(least):
        raise InvalidSpec(
            "This goal needs the variance of the targets. Give target_covariance, or use Accuracy.", field="goal"
        )
    return least


#: Goals by their key in study files and terms files.
GOALS: dict[str, type[Accuracy] | type[Explained] | type[Loss] | type[R2]] = {
    "accuracy": Accuracy,
    "explained": Explained,
    "loss": Loss,
    "r2": R2,
}
