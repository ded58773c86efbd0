"""One stage of a training loop: its task, its batches and when it ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from learncast.procedure.goals import Goal, Loss, Plateau, Rule
from learncast.procedure.stage import Stage
from learncast.procedure.training import Training
from learncast.results import Status, spec_hash
from learncast.training.goals import TrialGoal
from learncast.training.losses import LossFunction
from learncast.training.rules import GoalWatch, Learned, PlateauWatch, Stalled, StepWatch, Watch
from learncast.training.sources import Batch, Source

#: Makes the watch of a stage from that of the stage before.
MakeWatch = Callable[[Watch | None], Watch]


@dataclass(eq=False)
class StageRun:
    """One stage of a loop.

    Attributes
    ----------
    name : str
        Of the task.
    text : str
        When the stage ends, in words.
    limit : float
        Steps after which the stage is given up.
    make_watch : callable
        From the watch of the stage before (or None) to the watch of this one.
    batch : callable
        From the number of a batch to the batch.
    goal : Goal or None
        The goal of the stage, if it has one.
    rate : float
        Factor of the learning rate.
    expected_steps : float
        Steps that a plan forecasts; nan without a plan.
    steps : int
        Steps so far.
    loss, reached : float
        Last reported loss and last measured value of the goal; nan before.
    status : Status or None
        None until the stage is over: ``ok``, ``not_within`` if it was given up, ``diverged`` if the loss became
        infinite or nan.
    """

    name: str
    text: str
    limit: float
    make_watch: MakeWatch
    batch: Callable[[int], Any]
    goal: Goal | None = None
    rate: float = 1.0
    expected_steps: float = math.nan
    steps: int = 0
    loss: float = math.nan
    reached: float = math.nan
    status: Status | None = None
    warnings: list[str] = field(default_factory=list)


def stage_run(
    stage: Stage[object], source: Source, training: Training, place: int, dtype: torch.dtype, make_watch: MakeWatch
) -> StageRun:
    """Return the run of a stage whose batches come from a source."""

    def batch(number: int) -> Batch:
        return source.batch(training.batch, (training.seed, place), number, dtype, shuffle=training.shuffle)

    if stage.goal is None:
        return StageRun(source.name, f"for {stage.steps:g} steps", math.inf, make_watch, batch, rate=stage.rate)
    rule = stage.goal
    goal = rule.goal if isinstance(rule, Learned | Stalled) else rule if isinstance(rule, Goal) else None
    return StageRun(source.name, f"until {rule.text}", training.most_steps, make_watch, batch, goal, stage.rate)


def chance_of(goal: Goal | None, source: Source, dtype: torch.dtype) -> float:
    """Return a goal's measure of the best constant answer; nan if unknown."""
    if not isinstance(goal, TrialGoal):
        return math.nan
    _, targets, weights = source.held_out(500, (0, 0), dtype)
    return goal.chance(targets, weights)


def watch_of(rule: Rule | None, steps: float | None, source: Source, previous: Watch | None = None) -> Watch:
    """Return the watch of a stage that ends by steps or by a rule that needs no optimum."""
    if rule is None:
        assert steps is not None
        return StepWatch(steps)
    if isinstance(rule, Plateau):
        return PlateauWatch(rule, source)
    assert isinstance(rule, Goal | Learned | Stalled)
    return GoalWatch(rule, source, previous)


def stage_keys(stages: Sequence[Stage[object]]) -> list[str]:
    """Return what identifies each stage: its trials and its rule."""
    return [
        spec_hash(Source.of(stage.task).hash, repr(_stable(stage.goal)), repr((stage.steps, stage.rate)))
        for stage in stages
    ]


def _stable(rule: Rule | None) -> Rule | None:
    """Return the rule with loss functions whose repr is the same in every process."""
    if isinstance(rule, Learned | Stalled):
        goal = _stable(rule.goal)
        assert isinstance(goal, Goal)
        return replace(rule, goal=goal)
    if isinstance(rule, Loss) and rule.function is not None:
        return replace(rule, function=LossFunction.read(rule.function))
    return rule
