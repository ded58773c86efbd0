"""A rehearsal: a curriculum run through step by step, by integrated flow or by descent, without its closed form."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.optimize import brentq

from learncast.dynamics.descent import MOST_STEPS, descend
from learncast.dynamics.gradient_flow import gradient_flow
from learncast.dynamics.modes import modes_of
from learncast.networks.linear_rnn import LinearRNN
from learncast.planning.curricula.curriculum import Stage
from learncast.tasks.geometry import Frame
from learncast.trajectory import Status
from learncast.validation import FloatArray, one_of

#: Weights the closed forms let learn.
LEARN = ("input", "output")


@dataclass(frozen=True)
class Rehearsal:
    """How long each stage took.

    Attributes
    ----------
    stage_steps : tuple of float
        Real numbers for the flow, whole ones for descent; infinite for a stage that never ends, nan for those after it.
    status : Status
    """

    stage_steps: tuple[float, ...]
    status: Status

    @property
    def steps(self) -> float:
        """Steps of all stages together."""
        return math.inf if any(map(math.isinf, self.stage_steps)) else float(sum(self.stage_steps))


def rehearse(
    stages: Sequence[Stage], network: LinearRNN, *, learning_rate: float, by: str, most_steps: int = MOST_STEPS
) -> Rehearsal:
    """Run a curriculum through numerically, with nothing taken from the closed form but the optimum of every task.

    Parameters
    ----------
    stages : sequence of Stage
    network : LinearRNN
    learning_rate : float
    by : {"flow", "descent"}
        Gradient flow integrated to tight tolerance, or exact gradient descent on the tasks' statistics.
    most_steps : int
        Where a stage is given up.
    """
    target, *rest = modes_of([stages[-1].task, *(stage.task for stage in stages[:-1])], network)
    frame, optima = target.frame, [m.optimum for m in (*rest, target)]

    run = _WAYS[one_of("by", by, tuple(_WAYS), why="these are the ways to run it through")]
    found: list[float] = []
    for stage, optimum in zip(stages, optima, strict=True):
        steps, ended = run(stage, network, learning_rate, partial(_gap, frame, optimum), most_steps)
        found.append(steps)
        if ended is None:
            left = [math.nan] * (len(stages) - len(found))
            return Rehearsal((*found, *left), Status.diverged if math.isnan(steps) else Status.not_learned)
        network = ended
    return Rehearsal(tuple(found), Status.ok)


Gap = Callable[[LinearRNN], float]


def _gap(frame: Frame, optimum: FloatArray, network: LinearRNN) -> float:
    """Distance of the worst mode from its optimum, as a share of it."""
    function = network.output_weights @ network.input_weights
    strength = np.einsum("mk,mn,nk->k", frame.mode_outputs, function, frame.mode_inputs)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.abs(strength - optimum) / np.abs(optimum)
    return float(np.nanmax(shares, initial=0.0))


def _flowed(
    stage: Stage, network: LinearRNN, learning_rate: float, gap: Gap, most_steps: int
) -> tuple[float, LinearRNN | None]:
    flow = gradient_flow(stage.task, network, learning_rate=learning_rate, learn=LEARN)

    def at(time: float) -> LinearRNN:
        found = flow.network_at(time)
        assert isinstance(found, LinearRNN)
        return found

    if stage.accuracy is None:
        assert stage.steps is not None
        return float(stage.steps), at(stage.steps)
    tolerance = 1.0 - stage.accuracy
    if gap(network) <= tolerance:
        return 0.0, network
    # Strengths move one way on one task, so the first doubling inside the band brackets its edge.
    late = 1.0
    while gap(at(late)) > tolerance:
        late *= 1.25
        if late > most_steps:
            return math.inf, None
    early = late / 1.25 if late > 1.0 else 0.0
    steps = float(brentq(lambda t: gap(at(t)) - tolerance, early, late, xtol=1e-9, rtol=1e-12))
    return steps, at(steps)


def _descended(
    stage: Stage, network: LinearRNN, learning_rate: float, gap: Gap, most_steps: int
) -> tuple[float, LinearRNN | None]:
    if stage.accuracy is None:
        assert stage.steps is not None
        steps = math.ceil(stage.steps)
    else:
        tolerance, steps, block = 1.0 - stage.accuracy, 0, 256
        if gap(network) <= tolerance:
            return 0.0, network
        while True:
            run = descend(stage.task, network, learning_rate=learning_rate, steps=block, learn=LEARN)
            if run.status is Status.diverged:
                return math.nan, None
            here = next((n for n in range(1, block + 1) if gap(_network(run, n)) <= tolerance), None)
            if here is not None:
                return float(steps + here), _network(run, here)
            network, steps = _network(run, block), steps + block
            if steps > most_steps:
                return math.inf, None
    run = descend(stage.task, network, learning_rate=learning_rate, steps=steps, learn=LEARN)
    return (math.nan, None) if run.status is Status.diverged else (float(steps), _network(run, steps))


def _network(run: object, step: int) -> LinearRNN:
    found = run.network_at(step)  # type: ignore[attr-defined]
    assert isinstance(found, LinearRNN)
    return found


_WAYS = {"flow": _flowed, "descent": _descended}
