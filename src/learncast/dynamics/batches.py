"""Statistics of fresh batches: what a batch of trials would show, without drawing the trials."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learncast.dynamics.learning_problem import LearningProblem
from learncast.dynamics.pooled import PooledProblem
from learncast.dynamics.statistics import LagStatistics
from learncast.errors import InvalidSpec
from learncast.tasks.covariance import MEMORY_LIMIT
from learncast.validation import FloatArray, count


@dataclass(frozen=True, eq=False)
class BatchStatistics:
    """Draws the second moments of Gaussian batches.

    The second moment of `batch` Gaussian trials with covariance L L^T is L W L^T / batch with W a standard Wishart
    matrix, drawn by its triangular (Bartlett) factor: the cost depends on the variables and not on the batch.

    Attributes
    ----------
    root : (variables, rank)
        L: inputs first, then targets.
    inputs, targets : tuple of int
        How the variables are cut: (steps, inputs) and (readouts, outputs).
    """

    root: FloatArray
    inputs: tuple[int, int]
    targets: tuple[int, int]
    batch: int

    @classmethod
    def of(cls, problem: LearningProblem, batch: int) -> BatchStatistics:
        """Prepare batches of a task, of its pooled input where the recurrence is a fixed number."""
        size = count("batch", batch, why="it counts trials")
        task = problem.task
        if task.target_covariance is None:
            raise InvalidSpec(
                required="the task must know its target covariance to be drawn in batches",
                got=f"task {task.name!r} without one",
                why="a batch shows the targets' own variation too",
                remedy="give target_covariance, or descend without batch",
            )
        if problem.pooled_recurrence is not None and task.targets == "end":
            p = PooledProblem.of(task, problem.network)
            target = task.target_covariance.dense()[0, :, 0, :]
            joint = np.block([[p.power, p.cross.T], [p.cross, target]])
            return cls(_root(joint), (1, task.inputs), (1, task.outputs), size)
        n, m = task.steps * task.inputs, task.cross_covariance.shape[2] * task.outputs
        if 8 * (n + m) ** 2 > MEMORY_LIMIT:
            raise InvalidSpec(
                required=f"the joint covariance of a trial must fit in {MEMORY_LIMIT / 2**30:.3g} GiB",
                got=f"{n + m} variables",
                why="batches are drawn from it",
                remedy="use shorter trials, or descend without batch",
            )
        cross = task.cross_covariance.dense().reshape(n, m)
        joint = np.block(
            [
                [task.input_covariance.dense().reshape(n, n), cross],
                [cross.T, task.target_covariance.dense().reshape(m, m)],
            ]
        )
        return cls(_root(joint), (task.steps, task.inputs), (task.cross_covariance.shape[2], task.outputs), size)

    def draw(self, rng: np.random.Generator) -> LagStatistics:
        """Statistics of one fresh batch."""
        half = self.root @ _wishart_root(self.root.shape[1], self.batch, rng)
        moment = half @ half.T / self.batch
        n = self.inputs[0] * self.inputs[1]
        cross = moment[:n, n:].reshape(*self.inputs, *self.targets)
        power = np.diagonal(moment)[n:].reshape(self.targets).sum(axis=1)
        end = self.targets[0] == 1
        return LagStatistics.from_covariances(
            moment[:n, :n].reshape(self.inputs * 2),
            cross[:, :, 0, :] if end else cross,
            target_power=float(power[0]) if end else power,
        )


def _root(joint: FloatArray) -> FloatArray:
    """L with L L^T the covariance, one column per direction that varies."""
    values, vectors = np.linalg.eigh(joint)
    live = values > 1e-13 * values.max(initial=0.0)
    return np.asarray(vectors[:, live] * np.sqrt(values[live]))


def _wishart_root(size: int, freedom: int, rng: np.random.Generator) -> FloatArray:
    """A with A A^T Wishart distributed: triangular with chi on the diagonal, or Gaussian for small batches."""
    if freedom < size:
        return rng.standard_normal((size, freedom))
    factor = np.tril(rng.standard_normal((size, size)), -1)
    factor[np.diag_indices(size)] = np.sqrt(rng.chisquare(freedom - np.arange(size)))
    return factor
