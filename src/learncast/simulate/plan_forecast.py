"""The forecast of every plan by the linear surrogate: pretraining on a candidate to a stop, then the target."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from learncast.progress import Progress, silent
from learncast.simulate.moments import MomentStack
from learncast.simulate.surrogate import LinearSurrogate
from learncast.simulate.surrogate_descent import BatchSlopes, MakeOptimiser, Passages, descend_surrogate, stacked
from learncast.simulate.trial_pool import Member, TrialPool
from learncast.simulate.update_rule import UpdateRule
from learncast.validation import FloatArray

#: A plan is given up when it takes this many times the steps of direct training.
PATIENCE = 4.0


@dataclass(frozen=True)
class PlanForecast:
    """Steps of the surrogate, which are not those of the model: only their order means something.

    Attributes
    ----------
    direct : float
        Steps of training on the target alone.
    spent : (candidates, stops)
        Steps on each candidate until each stop.
    total : (candidates, stops)
        Steps of the whole plan; infinite when it was given up.
    """

    direct: float
    spent: FloatArray
    total: FloatArray


class Forecaster:
    """Runs the surrogate through plans.

    Parameters
    ----------
    surrogate : LinearSurrogate
    pool : TrialPool
    rule : UpdateRule
    batch : int or None
        Trials of a batch. They matter to an adaptive optimiser, which divides by the size of noisy gradients; others
        follow exact slopes, because what noise adds to their steps cancels on average.
    goal : float
        Loss of the surrogate at which the target counts as learned.
    most_steps : int
        Where direct training is given up.
    """

    def __init__(
        self,
        surrogate: LinearSurrogate,
        pool: TrialPool,
        rule: UpdateRule,
        *,
        batch: int | None,
        goal: float,
        most_steps: int,
        seed: int,
    ) -> None:
        self.surrogate, self.pool, self.rule, self.batch = surrogate, pool, rule, batch
        self.goal, self.most_steps, self.seed = goal, most_steps, seed

    def direct(self) -> float:
        """Steps of the surrogate on the target alone."""
        found = self._run([self.pool.target], self.surrogate.stacked(1), np.array([[self.goal]]), key=0)
        return float(found.steps[0, 0])

    def cost(self, direct: float, stops: Sequence[float]) -> str:
        """What the forecast of all plans will cost, in words, from a few timed steps."""
        members = list(self.pool.candidates)
        steps = direct if math.isfinite(direct) else float(self.most_steps)
        plans, seconds = len(members) * len(stops), 0.0
        for group, copies in ((members, len(members)), ([self.pool.target], plans)):
            begun = time.perf_counter()
            never, few = np.full((copies, 1), -np.inf), np.full(copies, 3.0)
            self._run(group, self.surrogate.stacked(copies), never, key=2, limits=few)
            seconds += (time.perf_counter() - begun) / 3 * steps
        return f"surrogate of {plans + 1} plans: about {seconds:.1f} s"

    def plans(self, stops: Sequence[float], direct: float, *, progress: Progress = silent) -> PlanForecast:
        """Steps of every candidate at every stop."""
        members = list(self.pool.candidates)
        patience = PATIENCE * direct if math.isfinite(direct) else self.most_steps
        goals = np.array([[_left(start_loss(self.surrogate, one), one, stop) for stop in stops] for one in members])
        first = self._run(
            members,
            self.surrogate.stacked(len(members)),
            goals,
            key=1,
            limits=np.full(len(members), patience),
            progress=lambda step: progress(min(0.4 * step / patience, 0.4)),
        )
        total = np.full(goals.shape, np.inf)
        reached = [(c, s) for c in range(len(members)) for s in range(len(stops)) if first.states[c][s] is not None]
        if reached:
            states = [first.states[c][s] for c, s in reached]
            second = self._run(
                [self.pool.target],
                stacked([state for state in states if state is not None]),
                np.full((len(reached), 1), self.goal),
                key=0,
                limits=np.array([patience - first.steps[c, s] for c, s in reached]),
                progress=lambda step: progress(min(0.4 + 0.6 * step / patience, 1.0)),
            )
            for (c, s), steps in zip(reached, second.steps[:, 0], strict=True):
                total[c, s] = first.steps[c, s] + steps
        progress(1.0)
        return PlanForecast(direct, first.steps, total)

    def _run(
        self,
        members: list[Member],
        parameters: dict[str, torch.Tensor],
        goals: FloatArray,
        *,
        key: int,
        limits: FloatArray | None = None,
        progress: object = None,
    ) -> Passages:
        moments = MomentStack.of([one.moments for one in members])
        batches = None
        if self.rule.adaptive:
            batches = BatchSlopes([one.source for one in members], self.batch, (self.seed, key), moments.lags)
        make: MakeOptimiser = self.rule.made
        return descend_surrogate(
            self.surrogate,
            parameters,
            moments,
            goals,
            optimiser=make,
            most_steps=self.most_steps,
            batches=batches,
            limits=None if limits is None else lambda steps: limits,
            progress=progress,  # type: ignore[arg-type]
        )


def start_loss(surrogate: LinearSurrogate, member: Member) -> float:
    """Loss of the surrogate before any training."""
    moments = MomentStack.of([member.moments])
    with torch.no_grad():
        filters = surrogate.system(surrogate.stacked(1)).filters(moments.lags).flatten(2)
        return float(moments.loss_and_slope(filters)[0][0])


def remaining(start: float, least: float, accuracy: float) -> float:
    """Loss that remains when this share of what can be learned is learned."""
    return least + (1.0 - accuracy) * max(start - least, 0.0)


def _left(start: float, member: Member, accuracy: float) -> float:
    return remaining(start, member.moments.least, accuracy)
