"""A model on its way through the stages of a plan, as the user trains it, that can be left and taken up again."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from learncast._core.errors import InvalidSpec
from learncast.advice.update_rule import UpdateRule
from learncast.training.borrowed import at_rest, own_randomness
from learncast.training.goals import Goal, LossBelow
from learncast.training.sources import Batch, Source
from learncast.training.stopping import GoalWatch, Learned, Rule, Stalled, watch_of
from learncast.training.training import Training
from learncast.training.updates import Updates

#: Steps between two looks at a loss: to judge costs as much as a step.
LOOK = 5


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A runner's state: weights, optimiser, and where it stands."""

    weights: dict[str, Any]
    optimizer: dict[str, Any]
    schedule: dict[str, Any] | None
    place: tuple[int, int, int]
    watch: dict[str, Any] | None


class Runner:
    """A model that is trained by one stage after the other.

    Parameters
    ----------
    module : nn.Module
        Trained in place.
    stages : sequence of (Source, rule)
        A rule is a Goal, a Learned, a Stalled, a number of steps, or None for a stage without an end.
    rule : UpdateRule
    training : Training
        Loss, batch, clipping, schedule, seed, and whether stages reset the optimiser.
    judged : int
        Held-out trials that are looked at.

    Attributes
    ----------
    stage, step, taken : int
        Which stage, steps in it, and steps altogether.
    lost : bool
        Whether a number stopped being finite.
    """

    def __init__(
        self,
        module: nn.Module,
        stages: Sequence[tuple[Source, Any]],
        rule: UpdateRule,
        training: Training,
        *,
        judged: int = 500,
    ) -> None:
        self.module, self.training, self.stages = module.train(), training, [_checked(stage) for stage in stages]
        self.dtype = next(module.parameters()).dtype
        learning = {name: value for name, value in module.named_parameters() if value.requires_grad}
        self.updates = Updates(module, training, make=lambda: rule.made(learning))
        self.stage, self.step, self.taken, self.lost, self._judged = 0, 0, 0, False, judged
        self._trials: dict[int, Batch] = {}
        self.batch_loss = math.nan
        self._watch: GoalWatch | None = None
        self._watch = self._watching()
        self._pass_on()

    @property
    def finished(self) -> bool:
        """Whether the last stage has ended."""
        return self.stage == len(self.stages)

    @property
    def source(self) -> Source:
        """The trials of the stage in training, or of the last."""
        return self.stages[min(self.stage, len(self.stages) - 1)][0]

    @property
    def latest(self) -> float:
        """The measure of the stage's goal at the last look; nan before the first."""
        return self._watch.latest if self._watch is not None else math.nan

    def advance(self, steps: int) -> int:
        """Take up to so many steps; fewer when the last stage ends or a number is no longer finite."""
        settings, done = self.training, 0
        with own_randomness(settings.seed * 1_000_003 + self.taken):  # of dropout
            while done < steps and not (self.finished or self.lost):
                batch = self.source.batch(settings.batch, (settings.seed, self.stage), self.step, self.dtype)
                loss = self.updates.step(batch)
                done += 1
                if loss is None:
                    self.lost, self.taken = True, self.taken + 1
                    break
                self.batch_loss = loss
                self.step, self.taken = self.step + 1, self.taken + 1
                self._pass_on()
        return done

    def measure(self, goal: Goal, source: Source | None = None) -> float:
        """A goal's measure on held-out trials, of the stage in training by default; a loss is that of the training."""
        own = self.source if source is None else source
        if id(own) not in self._trials:
            trials = own.held_out(self._judged, (0, 0), self.dtype)
            self._trials[id(own)] = trials.rows(slice(0, self._judged))
        x, y, w = self._trials[id(own)]
        if isinstance(goal, LossBelow):
            goal = goal.of(self.updates.loss)
        with at_rest(self.module):
            return goal.measure(self.module(x), y, w)

    def _pass_on(self) -> None:
        """Go on to the next stage when this one has ended; several may end at once."""
        while not self.finished and not self.lost and self._ended():
            self.stage, self.step = self.stage + 1, 0
            self._watch = self._watching()
            if self.training.reset_optimizer and not self.finished:
                self.updates.begin()

    def _ended(self) -> bool:
        rule = self.stages[self.stage][1]
        if self._watch is None:
            return isinstance(rule, int) and self.step >= rule
        met = self._watch.settled(self.step, self.measure)
        self.lost = self.lost or math.isinf(self._watch.latest)
        return met

    def _watching(self) -> GoalWatch | None:
        if self.finished:
            return None
        source, rule = self.stages[self.stage]
        found = watch_of(rule, source, self._watch)
        return found if isinstance(found, GoalWatch) else None

    def snapshot(self) -> Snapshot:
        """The state now; `restore` goes on from it as if nothing had happened since."""
        schedule = None if self.updates.schedule is None else copy.deepcopy(self.updates.schedule.state_dict())
        return Snapshot(
            copy.deepcopy(self.module.state_dict()),
            copy.deepcopy(self.updates.optimizer.state_dict()),
            schedule,
            (self.stage, self.step, self.taken),
            None if self._watch is None else self._watch.state(),
        )

    def restore(self, state: Snapshot) -> None:
        """Go on from such a state."""
        self.module.load_state_dict(state.weights)
        self.updates.begin()
        self.updates.optimizer.load_state_dict(copy.deepcopy(state.optimizer))
        if state.schedule is not None:
            self.updates.schedule.load_state_dict(copy.deepcopy(state.schedule))
        self.stage, self.step, self.taken = state.place
        self.lost, self._watch = False, self._watching()
        if state.watch is not None and self._watch is not None:
            self._watch.restore(state.watch)

    def lead(self, stages: Sequence[tuple[Source, Any]], *, fresh: bool | None = None) -> None:
        """Go on by other stages from here; the optimiser is reset as the training says, unless told."""
        self.stages, self.stage, self.step = [_checked(stage) for stage in stages], 0, 0
        if self.training.reset_optimizer if fresh is None else fresh:
            self.updates.begin()
        self._watch = self._watching()
        self._pass_on()


def _checked(stage: tuple[Source, Any]) -> tuple[Source, Rule | int | None]:
    source, rule = stage
    if rule is None or isinstance(rule, int):
        return source, rule
    staged = isinstance(rule, Learned | Stalled)
    goal = rule.goal if staged else rule
    if not isinstance(goal, Goal):
        raise InvalidSpec(
            "a stage of a plan must end by a goal, a Learned, a Stalled, or a number of steps, got "
            f"{type(rule).__name__}. Use LossBelow, DecisionAccuracy, Measured, Learned or Stalled."
        )
    if goal.every < LOOK:
        goal = replace(goal, every=LOOK)  # type: ignore[type-var]
    return source, replace(rule, goal=goal) if staged else goal
