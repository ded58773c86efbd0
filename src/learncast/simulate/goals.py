"""The goals of a training run: when each of its stages ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from learncast.assumptions import exact
from learncast.dynamics.modes import modes_of
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.simulate.learner import Judge, Learner
from learncast.simulate.sources import Source
from learncast.simulate.stopping import Accuracy, LossBelow, Plateau, Rule, Watch, checked_optimum, inside
from learncast.simulate.training import Training
from learncast.trajectory import Status
from learncast.validation import FloatArray


@dataclass(frozen=True, eq=False)
class Goal:
    """When one stage ends.

    Attributes
    ----------
    rule : Rule or None
        None for a number of steps.
    limit : int
        Where the stage ends in any case.
    optimum : (modes,)
        Strengths to reach; nan where none are asked for.
    loss : float
        Loss to reach instead, for a network without modes.
    status : Status
        Of the first pass that looked for the optimum: the stage cannot be trained to an optimum that was not found.
    """

    rule: Rule | None
    limit: int
    optimum: FloatArray
    loss: float = float("nan")
    status: Status = Status.ok

    def reached(self, strength: FloatArray, judge: Judge, watch: Watch | None, learner: Learner) -> bool:
        """Whether the stage is over at this step; a plateau takes the step into account."""
        rule = self.rule
        if isinstance(rule, Accuracy):
            return judge() <= self.loss if np.isfinite(self.loss) else inside(strength, self.optimum, rule.accuracy)
        if isinstance(rule, LossBelow):
            return judge() <= rule.tolerance
        return watch is not None and watch.settled(judge, learner.weights, strength)

    def facts(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
        return {"optimum": self.optimum.tolist(), "loss": self.loss, "status": self.status.name}


@dataclass(frozen=True, eq=False)
class Goals:
    """Finds when each stage ends.

    Attributes
    ----------
    rules : list of (Rule or None, limit)
    given : list
        Optima that were given, None where they must be found.
    first_pass : callable
        Trains from scratch on a stage's source to a plateau: (stage, plateau) to the status, the loss at the start,
        and the loss and the strengths on the plateau.
    """

    learner: Learner
    sources: list[Source]
    rules: list[tuple[Rule | None, int]]
    training: Training
    given: list[Any]
    first_pass: Callable[[int, Plateau], tuple[Status, float, float, FloatArray]]

    def of(self, stage: int, known: dict[str, Any] | None = None) -> Goal:
        """The goal of a stage, or what a checkpoint kept of it."""
        rule, limit = self.rules[stage]
        modes = self.learner.modes
        if known is not None:
            optimum = np.array(known["optimum"], dtype=float)
            return Goal(rule, limit, optimum, float(known["loss"]), Status[known["status"]])
        if not isinstance(rule, Accuracy):
            return Goal(rule, limit, np.full(modes, np.nan))
        optimum = self.given[stage] if self.given[stage] is not None else rule.optimum
        if optimum is not None and modes:
            return Goal(rule, limit, checked_optimum(optimum, modes))
        theory = self._theory(stage)
        return Goal(rule, limit, theory) if theory is not None else self._two_passes(rule, limit, stage)

    def _theory(self, stage: int) -> FloatArray | None:
        """The optimum of a linear network as theory knows it; None where its conditions do not hold."""
        network, frame, learn = self.learner.network, self.learner.frame, set(self.training.learn or ())
        if frame is None:
            return None
        task = self.learner.tasks[stage]
        if isinstance(network, TwoLayer) and network.hidden_size >= frame.modes and len(learn) != 1:
            power = task.input_covariance.dense()[0, :, 0, :]
            best = np.linalg.lstsq(power, task.cross_covariance.dense()[0, :, 0, :], rcond=None)[0].T
            return np.asarray(np.einsum("mk,mn,nk->k", frame.mode_outputs, best, frame.mode_inputs))
        if isinstance(network, LinearRNN) and learn == {"input", "output"}:
            found = modes_of([self.learner.tasks[-1], task], network)[-1]
            return found.optimum if exact(found.assumptions) else None
        return None

    def _two_passes(self, rule: Accuracy, limit: int, stage: int) -> Goal:
        """Train to the plateau from scratch for the optimum, as the paper does for nonlinear networks."""
        status, began, loss, strength = self.first_pass(stage, rule.plateau)
        modes = self.learner.modes
        if status is not Status.ok:
            return Goal(rule, limit, np.full(modes, np.nan), status=status)
        if modes:
            return Goal(rule, limit, strength)
        return Goal(rule, limit, np.zeros(0), loss + (1 - rule.accuracy) ** 2 * (began - loss))
