"""What is asked about a held-out loss: task, network, training and the trials that are held out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from learncast.networks import Network
from learncast.planning.generalise.folds import Folds, Labels
from learncast.planning.generalise.learners import MapLearner, PooledLearner
from learncast.planning.generalise.subsets import Kept, Samples
from learncast.procedure.training import Training
from learncast.tasks.best_map import Correlations, best_map
from learncast.tasks.task import Task
from learncast.theory.dynamics.steps.pooled_descent import PooledDescent

#: Ratio of rows to directions from which on the noise of the targets is known.
ENOUGH = 1.5


@dataclass(frozen=True, eq=False)
class HeldOutProblem:
    """What was asked: task, network, training, and the trials in folds or with test trials."""

    task: Task
    network: Network
    training: Training
    learner: MapLearner
    samples: Samples
    units: Labels
    folds: Folds
    most: int
    test: Task | None

    @property
    def trials(self) -> int:
        """Number of training trials."""
        return int(self.task.trials or 0) if self.test is not None else len(self.samples.folds)

    @cached_property
    def kept(self) -> Kept:
        """Folds that training on everything sees."""
        kept = np.ones(self.samples.number, dtype=bool)
        if self.test is not None:
            kept[-1] = False
        return kept

    @cached_property
    def fit(self) -> tuple[float, int]:
        """Mean squared residual of the best map times the readouts, per degree of freedom, and the rank of inputs."""
        each = [s for s, inside in zip(self.samples.samples(self.kept), self.kept, strict=True) if inside]
        windows, targets = (np.concatenate([getattr(s, part) for s in each]) for part in ("windows", "targets"))
        power, cross = self.samples.moments(self.kept)
        rank = Correlations.of(power).rank
        missed = float(((windows @ best_map(power, cross).T - targets) ** 2).sum())
        readouts = self.task.cross_covariance.shape[2]
        rows = self.trials * readouts
        used = rank + readouts * (self.task.recording is not None and self.task.recording.centred)
        return (readouts * missed / (rows - used) if rows > ENOUGH * used else math.nan), rank

    @cached_property
    def noise_loss(self) -> float:
        """Loss that unlimited trials would leave, from the residuals; nan with too few trials or other weights."""
        if not isinstance(self.learner, PooledLearner):
            return math.nan
        power, cross = self.samples.moments(self.kept)
        return self.fit[0] / 2 + float(PooledDescent(power, cross, self.learner.units).bottleneck_loss)

    def least_loss(self) -> float:
        """Least held-out loss of any map that the network can have; nan if it is unknown."""
        if self.test is None or not isinstance(self.learner, PooledLearner):
            return self.noise_loss
        sample = self.samples.samples(self.kept)[-1]
        power, cross = sample.windows.T @ sample.windows / sample.trials, sample.targets.T @ sample.windows
        descent = PooledDescent(power, cross / sample.trials, self.learner.units)
        return float((sample.targets**2).sum() / (2 * sample.trials) - descent.baseline_loss)
