"""A stage: what is trained, and when to go on."""

from __future__ import annotations

import math
from dataclasses import dataclass

from learncast.errors import InvalidSpec
from learncast.tasks.task import Task
from learncast.validation import between, positive


@dataclass(frozen=True)
class Stage:
    """Training on one task until an accuracy is reached, or for a number of steps.

    Parameters
    ----------
    task : Task
    accuracy : float, optional
        Stop when the task is learned so well: every mode within 1 - accuracy of its optimum where there are modes,
        the excess loss within (1 - accuracy)^2 of that of no answer elsewhere.
    steps : float, optional
        Or stop after this many gradient steps; infinity trains to where the flow rests.
    """

    task: Task
    accuracy: float | None = None
    steps: float | None = None

    def __post_init__(self) -> None:
        if (self.accuracy is None) == (self.steps is None):
            raise InvalidSpec(
                required="a stage must have either an accuracy or a number of steps",
                got=f"accuracy={self.accuracy}, steps={self.steps}",
                why="it needs exactly one rule to stop",
                remedy="give one of them",
            )
        if self.accuracy is not None:
            between("accuracy", self.accuracy, 0.0, 1.0, why="it is one minus the tolerance")
        elif self.steps not in (0, math.inf):
            positive("steps", self.steps, why="training takes time")
