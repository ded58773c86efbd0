"""A stage of a curriculum: a task and when to stop training on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Generic

from typing_extensions import TypeVar

from learncast._core.errors import InvalidSpec, hinted
from learncast._core.validation import positive
from learncast.procedure.goals import Goal, Rule, goal_of
from learncast.tasks.task import Task

#: What a stage trains on.
Trained = TypeVar("Trained", default=Task, covariant=True)


@dataclass(frozen=True, init=False)
class Stage(Generic[Trained]):
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
    rate : float
        Factor of the learning rate during this stage; only training can follow other factors than 1.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> lc.Stage(task, 0.6).goal.text
    'accuracy 0.6'
    >>> lc.Stage(task, steps=200).steps
    200
    """

    task: Trained
    goal: Any  # a Rule or None; forecasts require a Goal
    steps: float | None
    rate: float

    @hinted
    def __init__(
        self, task: Trained, goal: Rule | float | None = None, steps: float | None = None, rate: float = 1.0
    ) -> None:
        if goal is None and steps is None:
            raise InvalidSpec("A stage needs a goal or a number of steps.", field="goal")
        if goal is not None and steps is not None:
            remedy = "Training(most_steps=...) limits the steps to a goal."
            raise InvalidSpec(f"A stage takes a goal or steps, got both ({goal}, {steps}). {remedy}", field="goal")
        if goal is not None and not isinstance(goal, Rule):
            goal = goal_of(goal, recorded=getattr(task, "recording", None) is not None)
        if steps is not None and steps not in (0, math.inf):
            positive("steps", steps)
        self.__dict__.update(task=task, goal=goal, steps=steps, rate=positive("rate", rate))

    def check_forecast(self) -> None:
        """Raise if only training can follow the stage, because of its rule, its goal or its learning rate."""
        if self.rate != 1.0:
            raise InvalidSpec(
                f"Only learncast.training can change the rate of a stage, got {self.rate:g}.", field="rate"
            )
        if self.goal is not None and self.goal.needs_training:
            kind = type(self.goal).__name__
            raise InvalidSpec(f"Only learncast.training can end a stage by {kind}; give a goal or steps.", field="goal")
        if isinstance(self.goal, Goal):
            self.goal.check_forecast()
