"""A candidate: one intermediate task with its best stop before the target."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from learncast.assumptions import Assumption, exact
from learncast.dynamics.solution import LearningTime
from learncast.planning.curriculum import Curriculum, Interval, difference, ratio
from learncast.planning.plans.route import Route
from learncast.practice.stage import Stage
from learncast.tasks.task import Task
from learncast.trajectory import Status

#: Residual up to which a plan that is not strict still uses a candidate; 10% anisotropy costs 2-8% of the time.
USABLE = 0.1


@dataclass(frozen=True, eq=False)
class Candidate:
    """One intermediate task with its best stop.

    Attributes
    ----------
    route : Route
        What is recommended: the candidate for so many whole steps of descent, then the target.
    flow : Route
        What is best by the flow.
    direct_total, direct_flow_total : float
        Cost of the target alone, in the same two counts.
    direct : LearningTime
        Training on the target alone.
    followed : callable
        Follows its stages.
    """

    task: Task
    target: Task
    route: Route
    flow: Route
    direct_total: float
    direct_flow_total: float
    direct: LearningTime
    assumptions: tuple[Assumption, ...]
    followed: Callable[[], Curriculum]

    @cached_property
    def curriculum(self) -> Curriculum:
        """The candidate to its best stop, then the target; the target alone when no stop of it pays."""
        return self.followed()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that carry it out."""
        return tuple(o.stage for o in self.curriculum.outcomes)

    @property
    def stop_steps(self) -> float:
        """Steps to spend on it; 0 when direct training is at least as good."""
        return self.route.durations[0] if self.route.order else 0.0

    @property
    def total(self) -> float:
        """Cost of both stages; steps where nothing else is priced."""
        return self.route.total

    @property
    def accuracy(self) -> float:
        """Accuracy on the candidate at its stop: of the worst mode, or of the loss where there are no modes."""
        way = self.curriculum
        return (
            way.outcomes[0].accuracy
            if self.route.order
            else way.ground.accuracy(way.ground.place(self.task), way.ground.start)
        )

    @property
    def descent_steps(self) -> float:
        """Descent steps of candidate and target together."""
        return self.route.steps

    @property
    def flow_steps(self) -> float:
        """Flow steps of both, at the stop that is best by the flow."""
        return self.flow.steps

    @property
    def interval(self) -> Interval | None:
        """95% confidence interval of the steps at this stop; None where nothing was measured."""
        way = self.curriculum
        known = way.descent_interval is not None and not any(map(math.isnan, way.descent_interval))
        return way.descent_interval if known else way.interval

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
        if failed - {"stable_learning_rate"} or math.isnan(self.flow.rest):
            return Status.outside_theory
        if math.isinf(self.flow_steps):
            return Status.not_learned
        return Status.diverged if failed or math.isinf(self.descent_steps) else Status.ok

    @property
    def saving(self) -> float:
        """Cost saved against direct training."""
        return difference(self.direct_total, self.total)

    @property
    def saving_ratio(self) -> float:
        """Cost of direct training over this curriculum's."""
        return ratio(self.direct_total, self.total)

    @property
    def failure(self) -> str | None:
        """Which condition keeps it from being recommended; None where none does."""
        failed = next((a for a in self.assumptions if a.measured > max(a.allowed, USABLE)), None)
        return None if failed is None else f"{failed.name} fails ({failed.measured:.2g}): {failed.condition.otherwise}"

    @cached_property
    def why(self) -> dict[str, Any]:
        """What makes it help or not, with a sentence; for one common frame of modes the terms of eq. (16)."""
        if self.failure:
            return {"sentence": self.failure}
        explained = self.curriculum.why
        found = {} if explained is None else explained.as_dict()
        if not self.helps:
            never = math.isinf(self.direct_total)
            return {
                **found,
                "sentence": f"no stop of {self.task.name} "
                + (
                    f"makes {self.target.name} learnable" if never else f"saves time: train {self.target.name} directly"
                ),
            }
        rest = self.descent_steps - self.stop_steps
        told = (
            f"{self.stop_steps:,.0f} steps of {self.task.name} leave {rest:,.0f} of the "
            f"{self.direct.descent_steps:,.0f} that {self.target.name} takes alone"
        )
        return {"sentence": told, **found}


def last_if_unknown(steps: float) -> float:
    """A number to sort by: what is unknown comes last."""
    return math.inf if math.isnan(steps) else steps
