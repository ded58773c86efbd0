"""A stage: what is trained, and when to go on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from learncast._core.errors import InvalidSpec
from learncast._core.validation import between, positive
from learncast.tasks.task import Task


@dataclass(frozen=True)
class Stage:
    """Training on one task until an accuracy is reached, for a number of steps, or by a rule of real training.

    Parameters
    ----------
    task : Task
    accuracy : float, optional
        Stop when the task is learned so well: every mode within 1 - accuracy of its optimum where there are modes,
        the excess loss within (1 - accuracy)^2 of that of no answer elsewhere.
    steps : float, optional
        Or stop after this many gradient steps; infinity trains to where the flow rests.
    until : rule, optional
        Or stop by a rule of `learncast.training`, such as DecisionAccuracy(0.85), which needs a network that is really
        trained: `training.train` takes it, a forecast does not. `task` may then be any trials.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> lc.Stage(task, accuracy=0.6).accuracy
    0.6
    >>> lc.Stage(task, steps=200).steps
    200
    """

    task: Task
    accuracy: float | None = None
    steps: float | None = None
    until: Any = None

    def __post_init__(self) -> None:
        if sum(rule is not None for rule in (self.accuracy, self.steps, self.until)) != 1:
            raise InvalidSpec(
                "a stage must have either an accuracy or a number of steps, or a rule, got "
                f"accuracy={self.accuracy}, steps={self.steps}, until={self.until}."
            )
        if self.accuracy is not None:
            between("accuracy", self.accuracy, 0.0, 1.0)
        elif self.steps is not None and self.steps not in (0, math.inf):
            positive("steps", self.steps)

    def check_planned(self) -> None:
        """Refuse a rule that only real training can follow."""
        if self.until is not None:
            raise InvalidSpec(
                "a stage that is forecast must end by an accuracy or a number of steps, got "
                f"until={self.until!r:.80}. Train it with learncast.training.train, or give accuracy=..."
            )
