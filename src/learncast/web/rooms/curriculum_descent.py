"""Gradient descent of one mode through the stages of a curriculum, step by step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learncast.planning.curricula.curriculum import Curriculum
from learncast.validation import FloatArray

#: Steps that are carried out; a longer course is left to the theory.
MOST_STEPS = 100_000
#: Steps of a course that are kept.
_KEPT = 400


@dataclass(frozen=True, eq=False)
class Course:
    """Strength of the mode after some of the steps.

    Attributes
    ----------
    steps, strength : (kept,)
    ends : tuple of int
        Steps after which each stage was over.
    """

    steps: FloatArray
    strength: FloatArray
    ends: tuple[int, ...]


def descended(way: Curriculum, last: float) -> Course | None:
    """Carry out every step of a curriculum of one mode, up to `last`; None where that takes too many.

    With a and c the input and output weight each step is a += r c, c += r a at r = learning_rate (beta - a c B), which
    multiplies a + c by 1 + r and a - c by 1 - r. So u = a c is known from these two numbers, of one unit or of many.
    """
    steps = int(min(np.ceil(last), 1e9))
    if steps > MOST_STEPS or len(way.modes[0]) != 1:
        return None
    weights = way.modes[-1].alignment
    a, c = float(weights.input_weight[0]), float(weights.output_weight[0])
    forward, backward = a + c, a - c
    strengths, ends, stage = np.empty(steps + 1), [], 0
    problems = [_numbers(way, k) for k in range(len(way.modes))]
    cross, power, low, high, length = problems[0]
    begun = 0
    for step in range(steps + 1):
        u = (forward * forward - backward * backward) / 4
        strengths[step] = u
        while stage < len(problems) - 1 and (low <= u <= high or step - begun >= length):
            ends.append(step)
            stage, begun = stage + 1, step
            cross, power, low, high, length = problems[stage]
        rate = way.learning_rate * (cross - u * power)
        forward, backward = forward * (1 + rate), backward * (1 - rate)
        if not abs(forward) < 1e50:  # descent diverges: there is nothing more to draw
            strengths[step + 1 :] = np.nan
            break
    kept = np.unique(np.linspace(0, steps, min(_KEPT, steps + 1)).round().astype(int))
    return Course(kept.astype(float), strengths[kept], tuple(ends))


def _numbers(way: Curriculum, k: int) -> tuple[float, float, float, float, float]:
    """Strengths of a stage's task, the band in which it stops, and the steps after which it does."""
    m, stage = way.modes[k], way.outcomes[k].stage
    cross, power = float(m.weighted_cross[0]), float(m.weighted_input[0])
    if stage.accuracy is None:
        assert stage.steps is not None
        return cross, power, np.inf, -np.inf, float(np.ceil(stage.steps))
    best = float(m.optimum[0])
    margin = (1 - stage.accuracy) * abs(best)
    return cross, power, best - margin, best + margin, np.inf
