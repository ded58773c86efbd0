"""Modes of a recorded task, with the sampling error of their strengths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learncast.dynamics.modes import Modes, weighted_strengths
from learncast.tasks.covariance import Sampled
from learncast.tasks.resampling import resampled
from learncast.tasks.task import Task
from learncast.validation import FloatArray

#: Replicas drawn of every recorded task.
REPLICAS = 200


@dataclass(frozen=True, eq=False, repr=False)
class SampledModes(Modes):
    """Modes whose weighted strengths were estimated from trials.

    Attributes
    ----------
    drawn : pair of (replicas, modes)
        Bootstrap replicas of beta_yx and beta_xx in the estimate's own frame.
    """

    drawn: tuple[FloatArray, FloatArray]

    @property
    def replicas(self) -> tuple[FloatArray, FloatArray]:
        """Bootstrap replicas of both weighted strengths."""
        return self.drawn


def can_be_resampled(task: Task) -> bool:
    """Whether a task keeps the trials, or blocks of them, that tell its sampling error."""
    return isinstance(task.cross_covariance, Sampled) or (
        task.recording is not None and task.recording.blocks is not None
    )


def with_replicas(m: Modes, rng: np.random.Generator, replicas: int = REPLICAS) -> Modes:
    """The same modes with replicas where their task was recorded; as they are otherwise."""
    if m.replicas is not None or not can_be_resampled(m.task):
        return m
    rows = [weighted_strengths(resampled(m.task, rng), m.frame, m.recurrence) for _ in range(replicas)]
    cross, power = (np.stack([row[k] for row in rows]) for k in (0, 1))
    return SampledModes(m.task, m.frame, m.alignment, m.weighted_cross, m.weighted_input, m.assumptions, (cross, power))
