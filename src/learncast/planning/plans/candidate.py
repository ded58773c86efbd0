"""A candidate: one intermediate task with its best stop before the target."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from learncast.assumptions import Assumption, exact
from learncast.dynamics.solution import LearningTime
from learncast.planning.curricula.curriculum import Curriculum, Stage, difference, ratio
from learncast.tasks.task import Task
from learncast.trajectory import Status

#: Residual up to which a plan that is not strict still uses a candidate; 10% anisotropy costs 2-8% of the time.
USABLE = 0.1


@dataclass(frozen=True, eq=False)
class Candidate:
    """One intermediate task with its best stop.

    Attributes
    ----------
    stop_steps : float
        Flow steps to spend on it; 0 when direct training is at least as good.
    accuracy : float
        Accuracy on the candidate at that stop: of the worst mode, or of the loss where there are no modes.
    flow_steps, descent_steps : float
        Of candidate and target together.
    total, direct_total : float
        Cost of both stages, and of the target alone; steps where nothing else is priced.
    expected : float
        Mean total over resampled statistics, where they were estimated from trials; the total elsewhere.
    direct : LearningTime
        Training on the target alone.
    followed : callable
        Follows its stages.
    reason : callable
        Says why it helps or does not, given the candidate.
    """

    task: Task
    target: Task
    stop_steps: float
    accuracy: float
    flow_steps: float
    descent_steps: float
    total: float
    direct_total: float
    expected: float
    direct: LearningTime
    assumptions: tuple[Assumption, ...]
    followed: Callable[[], Curriculum]
    reason: Callable[[Candidate], dict[str, Any]]

    @cached_property
    def curriculum(self) -> Curriculum:
        """The candidate to its best stop, then the target; the target alone when no stop of it pays."""
        return self.followed()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that carry it out."""
        return tuple(o.stage for o in self.curriculum.outcomes)

    @property
    def interval(self) -> tuple[float, float] | None:
        """95% confidence interval of the flow steps at this stop; None where nothing was measured."""
        return self.curriculum.interval

    @property
    def speedup_interval(self) -> tuple[float, float] | None:
        """The same of the flow steps saved."""
        return self.curriculum.speedup_interval

    @property
    def helps(self) -> bool:
        """Whether some stop of this task pays."""
        return self.stop_steps > 0 and self.total < self.direct_total

    @property
    def usable(self) -> bool:
        """Whether the theory speaks about this task well enough to recommend it."""
        return all(a.measured <= max(a.allowed, USABLE) for a in self.assumptions)

    @property
    def holds(self) -> bool:
        """Whether every condition of the theory is met."""
        return exact(self.assumptions)

    @property
    def status(self) -> Status:
        """How the forecast came out."""
        failed = {a.name for a in self.assumptions if a.condition.binding and not a.holds}
        if failed - {"stable_learning_rate"} or math.isnan(self.flow_steps):
            return Status.outside_theory
        if math.isinf(self.flow_steps):
            return Status.not_learned
        return Status.diverged if failed or math.isinf(self.descent_steps) else Status.ok

    @property
    def speedup_steps(self) -> float:
        """Flow steps saved against direct training."""
        return difference(self.direct.flow_steps, self.flow_steps)

    @property
    def speedup_ratio(self) -> float:
        """Direct training time over this curriculum's."""
        return ratio(self.direct.flow_steps, self.flow_steps)

    @property
    def saving(self) -> float:
        """Cost saved against direct training."""
        return difference(self.direct_total, self.total)

    @property
    def failure(self) -> str | None:
        """Which condition keeps it from being recommended; None where none does."""
        failed = next((a for a in self.assumptions if a.measured > max(a.allowed, USABLE)), None)
        return None if failed is None else f"{failed.name} fails ({failed.measured:.2g}): {failed.condition.otherwise}"

    @cached_property
    def why(self) -> dict[str, Any]:
        """What makes it help or not, with a sentence; for one common frame of modes the terms of eq. (16)."""
        return {"sentence": self.failure} if self.failure else self.reason(self)

    @property
    def no_help(self) -> str:
        """The sentence for a candidate none of whose stops pays."""
        return (
            f"no stop of {self.task.name} saves time: train {self.target.name} directly"
            if math.isfinite(self.direct.flow_steps)
            else f"no stop of {self.task.name} makes {self.target.name} learnable"
        )


def last_if_unknown(steps: float) -> float:
    """A number to sort by: what is unknown comes last."""
    return math.inf if math.isnan(steps) else steps
