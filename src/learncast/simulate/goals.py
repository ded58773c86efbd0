"""The goals of a training run: when each of its stages ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from learncast.assumptions import exact
from learncast.dynamics.modes import modes_of, without_round_off
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.simulate.learner import Judge, Learner
from learncast.simulate.sources import Source
from learncast.simulate.stopping import Accuracy, LossBelow, Plateau, Rule, Watch, inside
from learncast.trajectory import Status
from learncast.validation import FloatArray, one_or_each


class Leg(NamedTuple):
    """One stage of a run as it is asked for: its trials, when it ends and where in any case, and its optimum if given.

    The rule is None for a number of steps, which is then the limit.
    """

    source: Source
    rule: Rule | None
    limit: int
    optimum: Any = None


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

    @classmethod
    def known(cls, leg: Leg, facts: dict[str, Any]) -> Goal:
        """The goal that a checkpoint kept."""
        optimum, loss = np.array(facts["optimum"], dtype=float), float(facts["loss"])
        return cls(leg.rule, leg.limit, optimum, loss, Status[facts["status"]])

    @classmethod
    def of(
        cls,
        leg: Leg,
        learner: Learner,
        stage: int,
        first_pass: Callable[[Plateau], tuple[Status, float, float, FloatArray]],
    ) -> Goal:
        """Find the goal of a stage.

        Parameters
        ----------
        first_pass : callable
            Trains from scratch on the stage's source to a plateau, as the paper does for nonlinear networks: gives the
            status, the loss at the start, and the loss and the strengths on the plateau.
        """
        rule, limit, modes = leg.rule, leg.limit, learner.modes
        nothing = np.full(modes, np.nan)
        if not isinstance(rule, Accuracy):
            return cls(rule, limit, nothing)
        asked = rule.optimum if leg.optimum is None else leg.optimum
        found = (
            _theory(learner, stage) if asked is None or not modes else one_or_each("optimum", asked, modes, of="modes")
        )
        if found is not None:
            return cls(rule, limit, found)
        status, began, loss, strength = first_pass(rule.plateau)
        if status is not Status.ok:
            return cls(rule, limit, nothing, status=status)
        if modes:
            return cls(rule, limit, strength)
        return cls(rule, limit, nothing, loss + (1 - rule.accuracy) ** 2 * (began - loss))


def _theory(learner: Learner, stage: int) -> FloatArray | None:
    """The optimum of a linear network as theory knows it; None where its conditions do not hold."""
    network, frame, learn = learner.network, learner.frame, set(learner.training.learn or ())
    if frame is None:
        return None
    task = learner.tasks[stage]
    if isinstance(network, TwoLayer) and network.hidden_size >= frame.modes and len(learn) != 1:
        power = task.input_covariance.dense()[0, :, 0, :]
        best = np.linalg.lstsq(power, task.cross_covariance.dense()[0, :, 0, :], rcond=None)[0].T
        strengths = np.einsum("mk,mn,nk->k", frame.mode_outputs, best, frame.mode_inputs)
        return without_round_off(strengths, np.asarray(best, dtype=float))
    if isinstance(network, LinearRNN) and learn == {"input", "output"}:
        found = modes_of([learner.tasks[-1], task], network)[-1]
        return found.optimum if exact(found.assumptions) else None
    return None
