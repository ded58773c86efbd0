"""A stage of a curriculum: a task and when to stop training on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from learncast._core.errors import InvalidSpec
from learncast._core.validation import positive
from learncast.procedure.goals import Rule, goal_of


@dataclass(frozen=True)
class Stage:
    """Training on one task until a goal is reached, or for a number of steps.

    Parameters
    ----------
    task : Task
        What is trained on. `learncast.training` also takes other trials, e.g. a DataLoader or a pair of arrays.
    goal : Goal, rule or float, optional
        Stop when the task is learned. A number means `Accuracy` for task families and `Explained` for recordings.
        Training also follows rules such as `DecisionAccuracy`, `Learned`, `Stalled` and `Plateau`.
    steps : float, optional
        Or stop after this many gradient steps; infinity trains until the flow rests.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> lc.Stage(task, 0.6).goal.text
    'accuracy 0.6'
    >>> lc.Stage(task, steps=200).steps
    200
    """

    task: Any
    goal: Any = None
    steps: float | None = None

    def __post_init__(self) -> None:
        if (self.goal is None) == (self.steps is None):
            raise InvalidSpec(f"A stage needs a goal or steps, got {self.goal} and {self.steps}.", field="goal")
        if self.goal is not None and not isinstance(self.goal, Rule):
            recorded = getattr(self.task, "recording", None) is not None
            object.__setattr__(self, "goal", goal_of(self.goal, recorded=recorded))
        if self.steps is not None and self.steps not in (0, math.inf):
            positive("steps", self.steps)

    def check_forecast(self) -> None:
        """Raise if the stage ends by a rule that only training can follow."""
        if self.goal is not None and self.goal.needs_training:
            kind = type(self.goal).__name__
            raise InvalidSpec(f"Only learncast.training can end a stage by {kind}; give a goal or steps.", field="goal")
