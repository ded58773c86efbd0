"""What advice is measured against: simpler ways to order plans."""

from __future__ import annotations

import math

import numpy as np
import torch

import learncast as lc
from benchmarks.skill_training import STOPS
from learncast.advice.surrogate import linear_surrogate
from learncast.tasks import Task


def rule_of_thumb(candidates: list[Task]) -> int:
    """Place of the plan: the candidate with the largest ||Cov(x, y)||, stopped at 80%."""
    sizes = [candidate.cross_covariance.norm() for candidate in candidates]
    return 1 + int(np.argmax(sizes)) * len(STOPS) + STOPS.index(0.8)


def closed_form(
    model: torch.nn.Module, target: Task, candidates: list[Task], rate: float, accuracy: float
) -> np.ndarray:
    """Flow steps of each plan for one mode whose recurrence is the spectral radius of the model's own."""
    system = linear_surrogate(model).system(linear_surrogate(model).stacked(1))
    recurrence = float(torch.linalg.eigvals(system.recurrence[0]).abs().max())
    strength = abs(float(system.readout[0] @ system.drive[0, :, :1]))
    network = lc.LinearRNN.aligned(recurrence=min(recurrence, 1.0), initial=math.sqrt(strength), hidden_size=2)

    def steps(*stages: tuple[Task, float]) -> float:
        # A share of the loss that is left is the square of a share of the mode's strength.
        made = [lc.Stage(task, goal=1 - math.sqrt(1 - share)) for task, share in stages]
        return lc.follow(made, network, learning_rate=rate, strict=False).steps.flow

    direct = steps((target, accuracy))
    plans = [steps((one, stop), (target, accuracy)) for one in candidates for stop in STOPS]
    return np.array([direct, *plans])
