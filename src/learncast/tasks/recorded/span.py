"""Recorded trials that vary along fewer directions than there are inputs, as few trials of many channels do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy

from learncast._core.validation import FloatArray
from learncast.tasks.covariance import Sampled
from learncast.tasks.geometry import recurrence_kernel
from learncast.tasks.task import Task

#: Relative size of a direction below which trials do not vary along it.
SPAN = 1e-14


def trial_span(tasks: Sequence[Task], recurrence: float) -> FloatArray | None:
    """Return an orthonormal basis of the directions along which pooled inputs vary, (inputs, directions).

    Descent never changes the other directions of the first layer, and no loss depends on them. Resamples of the trials
    do not leave the basis.

    Parameters
    ----------
    tasks : sequence of Task
    recurrence : float
        Scalar recurrence that pools the inputs.

    Returns
    -------
    (inputs, directions) array or None
        None if there are more than half as many directions as inputs, if some task does not store its trials, has
        several readouts or is scaled, or if the recurrence overflows.
    """
    pooled = [_pooled(task, recurrence) for task in tasks]
    trials = [z for z in pooled if z is not None]
    if len(trials) < len(tasks) or sum(map(len, trials)) > len(tasks) * tasks[0].inputs:
        return None
    rows = np.concatenate(trials)
    if not np.isfinite(rows).all():  # the recurrence overflows, which the statistics report
        return None
    q, r, _ = scipy.linalg.qr(rows.T, mode="economic", pivoting=True)
    size = np.abs(np.diagonal(r))
    basis = q[:, : max(1, int(np.count_nonzero(size > SPAN * size.max(initial=0.0))))]
    return np.asarray(basis) if 2 * basis.shape[1] <= len(basis) else None


def in_span(task: Task, recurrence: float, basis: FloatArray) -> Task:
    """Return the task of one step whose inputs are the pooled inputs along a basis from `trial_span`."""
    cross, pooled = task.cross_covariance, _pooled(task, recurrence)
    if pooled is None or not isinstance(cross, Sampled):
        raise TypeError("trials must be stored")
    z = (pooled @ basis)[:, None]
    parts = Sampled(z, z), Sampled(z, cross.right), task.target_covariance
    return Task.trusted(*parts, name=task.name, trials=task.trials, recording=task.recording)


def _pooled(task: Task, recurrence: float) -> FloatArray | None:
    """Pooled inputs of the trials, (trials, inputs); None if these alone do not make the statistics of resamples."""
    cross, rule = task.cross_covariance, task.recording
    if not isinstance(cross, Sampled) or not isinstance(task.input_covariance, Sampled) or task.targets != "end":
        return None
    if rule is not None and (rule.scaled or rule.masked is not None):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        return np.einsum("t,ptc->pc", recurrence_kernel(recurrence, task.steps, 1)[:, 0], cross.left)
