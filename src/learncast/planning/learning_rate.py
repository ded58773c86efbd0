"""The learning rate that a forecast suggests: half the largest rate at which descent is sure to settle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from learncast._core.errors import InvalidSpec
from learncast.networks import Network
from learncast.planning.methods.choice import method_for
from learncast.planning.methods.method import Method
from learncast.planning.run import StageSequence
from learncast.procedure.goals import Goal
from learncast.procedure.stage import Stage
from learncast.procedure.training import Training
from learncast.results import Status, Steps
from learncast.theory.dynamics.solution import settles

#: Share of the largest safe learning rate that is suggested.
SHARE = 0.5
#: Times that a suggestion is halved if descent does not settle at it.
MOST_HALVINGS = 8


@dataclass(frozen=True)
class SuggestedRate:
    """A learning rate for some stages of training.

    Attributes
    ----------
    learning_rate : float
        The suggestion: half the largest safe rate.
    largest : float
        Largest safe rate: 2 over the largest curvature of the loss along the gradient flow of every task.
    steps : Steps
        Steps of all stages at the suggested rate.
    """

    learning_rate: float
    largest: float
    steps: Steps

    @property
    def values(self) -> dict[str, float]:
        """The numbers, for JSON."""
        return {"largest": self.largest, "learning_rate": self.learning_rate, "descent_steps": self.steps.value}

    @property
    def why(self) -> str:
        """Where the suggestion comes from, in a few words."""
        safe = f"half the largest safe rate {self.largest:.3g}"
        return safe if math.isfinite(self.largest) else "nothing to learn: every rate is safe"

    @property
    def sentence(self) -> str:
        """The suggestion in words."""
        reached = math.isfinite(self.steps.value)
        outcome = f"training takes {self.steps}" if reached else f"the task {self.steps.outcome}"
        return (
            f"The largest safe learning rate is {self.largest:.3g}; at half of it, {self.learning_rate:.3g}, {outcome}."
        )


def suggest_rate(
    stages: Sequence[Stage],
    network: Network,
    training: Training | None = None,
    *,
    method: str = "auto",
    seed: int = 0,
) -> SuggestedRate:
    """Suggest a learning rate for training on these stages.

    Parameters
    ----------
    stages : sequence of Stage
    network : LinearRNN, TwoLayer, Deep or Activated
    training : Training, optional
        Other settings; its learning rate is not used.
    method, seed
        As for `learncast.forecast`.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.planning.learning_rate import suggest_rate
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> found = suggest_rate([lc.Stage(task, 0.99)], network)
    >>> round(found.largest, 4), round(found.learning_rate, 4), found.steps.descent
    (0.046, 0.023, 15.0)
    """
    for stage in stages:
        stage.check_forecast()
    tasks, settings = [stage.task for stage in stages], training or Training(1.0)

    def at(rate: float) -> StageSequence:
        method_at = method_for(
            tasks, network, settings.with_(learning_rate=rate), method=method, seed=seed, optimizers=True
        )
        return StageSequence(method_at, tuple(stages), tuple(range(len(tasks))))

    probe = at(1.0).method
    rates = [_safe_rate(probe, k, stage.goal) for k, stage in enumerate(stages)]
    largest = min((rate for rate in rates if not math.isnan(rate)), default=math.inf) / probe.learning_rate
    for _ in range(MOST_HALVINGS if 0 < largest < math.inf else 0):
        tried = at(SHARE * largest)
        status = tried.total.status
        unsettled = status is Status.outside_theory and not settles(tried.trust.assumptions)
        if status is not Status.diverged and not unsettled:
            return SuggestedRate(SHARE * largest, largest, tried.total)
        largest /= 2
    if all(stage.goal is not None and probe.nothing_to_learn(k, stage.goal) for k, stage in enumerate(stages)):
        return SuggestedRate(1.0, math.inf, at(1.0).total)
    remedy = "Scale inputs and targets to about 1, or give learning_rate."
    raise InvalidSpec(f"No learning rate was found at which training settles. {remedy}", field="learning_rate")


def _safe_rate(method: Method, task: int, goal: Goal | None) -> float:
    """Learning rate below which descent settles on a task; nan if not measured."""
    flow = method.flow(task, method.start)
    steps = math.inf if goal is None else method.flow_steps_to(task, method.start, goal, flow)
    limits = [*method.conditions(task), *flow.assumptions, *flow.conditions_until(steps)]
    return method.settling_rate(limits)
