"""Replicas of a curriculum: its steps in every bootstrap resampling of measured statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from learncast.dynamics.modes import Modes
from learncast.planning.curricula.passage import Problem
from learncast.responses.bootstrap import bounds
from learncast.validation import FloatArray


@dataclass(frozen=True, eq=False)
class ReplicaSteps:
    """Steps of a measured curriculum and of direct training in every bootstrap replica.

    Every task is resampled alike, so that what curricula share cancels in their differences.

    Attributes
    ----------
    flow, descent : (stages, replicas)
    direct : (replicas,)
        nan when the last stage is given by steps.
    """

    flow: FloatArray
    descent: FloatArray
    direct: FloatArray


def replicated(
    rules: Sequence[tuple[float | None, float | None]], modes: tuple[Modes, ...], learning_rate: float
) -> ReplicaSteps | None:
    """Follow stages, each to an accuracy or for steps, in every bootstrap replica of measured statistics at once."""
    problems = replica_problems(modes)
    if problems is None:
        return None
    start = np.broadcast_to(modes[-1].start, problems[0].cross.shape)
    flow = descent = start
    flows, descents = [], []
    for (accuracy, given), problem in zip(rules, problems, strict=True):
        if accuracy is not None:
            time, after = problem.arrival(flow, 1.0 - accuracy)
            steps, descent = problem.descent_arrival(descent, 1.0 - accuracy, learning_rate)
            flow = np.where(np.isfinite(time)[:, None], after, problem.strength(np.full(time.shape, np.inf), flow))
        else:
            assert given is not None
            time = np.full(len(flow), given * learning_rate)
            steps = np.full(len(flow), np.ceil(given))
            flow, descent = problem.strength(time, flow), problem.after_descent(descent, steps, learning_rate)
        flows.append(time / learning_rate)
        descents.append(steps)
    direct = np.full(len(start), np.nan)
    last = rules[-1][0]
    if last is not None:
        direct = problems[-1].arrival(start, 1.0 - last)[0] / learning_rate
    return ReplicaSteps(np.stack(flows), np.stack(descents), direct)


def replica_problems(modes: Sequence[Modes]) -> list[Problem] | None:
    """Each task in every replica, (replicas, modes); a task that is known exactly is the same in all of them.

    None where every task is known exactly.
    """
    measured = [m.replicas for m in modes]
    number = max((len(r[0]) for r in measured if r is not None), default=0)
    if number == 0:
        return None
    found = []
    for m, replicas in zip(modes, measured, strict=True):
        cross, power = (m.weighted_cross[None], m.weighted_input[None]) if replicas is None else replicas
        shape = (number, len(m))
        found.append(Problem(np.broadcast_to(cross, shape), np.broadcast_to(power, shape), m.imbalance))
    return found


def ends_of(replicas: FloatArray) -> tuple[float, float]:
    """Low and high end of the interval of one number."""
    low, high = bounds(replicas)
    return float(low), float(high)
