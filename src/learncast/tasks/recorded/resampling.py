"""Sampling error of recorded tasks, estimated by resampling their trials."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from learncast._core.errors import InvalidSpec
from learncast.tasks.covariance import Covariance, Sampled
from learncast.tasks.geometry import recurrence_kernel
from learncast.tasks.recorded.blocks import Blocks
from learncast.tasks.recorded.masked import MaskedTrials
from learncast.tasks.task import Task


def resampled(task: Task, rng: np.random.Generator) -> Task:
    """Draw a bootstrap resample of a recorded task.

    If the task stores its trials (fewer trials than values in a trial), trials are drawn with replacement. Otherwise it
    stores the second moments of up to 64 blocks of consecutive trials, and blocks are drawn, which keeps dependent
    neighbours together and costs one weighted sum. Centring and scaling are repeated with the resample's own means and
    scales. The spread of any quantity over resamples estimates its sampling error; with B blocks the relative error of
    that estimate is about 1 / sqrt(2 B).

    Parameters
    ----------
    task : Task
        From `Task.from_samples`, `from_pairs`, `from_batches`, `from_table` or `from_environment`.
    rng : numpy.random.Generator

    Returns
    -------
    Task
        With the same name and number of trials (nearly, if blocks have unequal lengths).

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> inputs = rng.standard_normal((300, 8, 2))
    >>> task = lc.Task.from_samples(inputs, inputs.sum(axis=1))
    >>> lc.tasks.resampled(task, rng)
    <Task 'recorded': 8 steps, 2 inputs, 2 outputs at the end; estimated from 300 trials>
    """
    stored = _stored(task)
    if not isinstance(stored, Blocks):
        return _chosen(task, stored, rng.integers(len(stored), size=len(stored)))
    repeats = rng.multinomial(len(stored), np.full(len(stored), 1 / len(stored)))
    return _chosen(task, stored, np.repeat(np.arange(len(stored)), repeats))


def halves(task: Task, rng: np.random.Generator) -> tuple[Task, Task]:
    """Split the trials of a recorded task at random into two halves.

    Parameters
    ----------
    task : Task
        From recorded trials.
    rng : numpy.random.Generator

    Returns
    -------
    two Tasks
        Of disjoint trials, or disjoint blocks of trials.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> inputs = rng.standard_normal((30, 20, 2))
    >>> first, second = lc.tasks.halves(lc.Task.from_samples(inputs, inputs.sum(axis=1)), rng)
    >>> first.trials, second.trials
    (15, 15)
    """
    stored = _stored(task)
    order = rng.permutation(len(stored))
    parts = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
    return _chosen(task, stored, parts[0]), _chosen(task, stored, parts[1])


def pooled_recording(task: Task, recurrence: float) -> Task:
    """Pool the inputs of recorded trials by a scalar recurrence, which gives a task of one step.

    A network with that recurrence depends on the pooled inputs only, and resampling them is a hundred times faster. The
    task is returned unchanged if it has several readouts or if resamples are scaled.

    Parameters
    ----------
    task : Task
        From recorded trials.
    recurrence : float
        Scalar recurrence.

    Returns
    -------
    Task
        Of one step, if possible.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> inputs = np.random.default_rng(0).standard_normal((300, 8, 2))
    >>> lc.tasks.pooled_recording(lc.Task.from_samples(inputs, inputs.sum(axis=1)), 0.9)
    <Task 'recorded': 1 step, 2 inputs, 2 outputs at the end; estimated from 300 trials>
    """
    rule, cross = task.recording, task.cross_covariance
    if task.targets != "end" or (rule is not None and (rule.scaled or rule.masked is not None)):
        return task
    weights = recurrence_kernel(recurrence, task.steps, 1)[:, 0]
    parts: tuple[Covariance, ...]
    if isinstance(cross, Sampled):
        _require_trials(task)
        x, y = np.einsum("t,ptc->pc", weights, cross.left)[:, None], cross.right
        parts = Sampled(x, x), Sampled(x, y), Sampled(y, y)
    elif rule is not None and rule.blocks is not None:
        blocks = rule.blocks.pooled(weights)
        parts, rule = blocks.cut(blocks.moment()), replace(rule, blocks=blocks, source=None)
    else:
        return task
    return Task.trusted(*parts, name=task.name, trials=task.trials, recording=rule)


def _stored(task: Task) -> MaskedTrials | Blocks:
    """The trials of a recorded task, or blocks of them."""
    if isinstance(task.cross_covariance, Sampled):
        _require_trials(task)
        stored: MaskedTrials | Blocks | None = task.recorded_trials
    elif task.recording is None:
        raise _not_recorded(task)
    else:
        stored = task.recording.masked or task.recording.blocks
    if stored is None:
        raise InvalidSpec(f"task {task.name!r} stores no trials: it is a resample or too large.", field="task")
    return stored


def _require_trials(task: Task) -> None:
    """Raise unless all statistics are stored as the same trials."""
    parts = (task.input_covariance, task.cross_covariance, task.target_covariance)
    trials = {part.trials if isinstance(part, Sampled) else None for part in parts if part is not None}
    if None in trials or len(trials) > 1:
        raise _not_recorded(task)


def _chosen(task: Task, stored: MaskedTrials | Blocks, chosen: NDArray[np.int64]) -> Task:
    """The task of some of its trials, or of some of its blocks."""
    rule, trials = task.recording, len(chosen)
    parts: tuple[Covariance, ...]
    if isinstance(stored, MaskedTrials):
        made = stored.prepared(chosen)[0]
        parts = made.sampled if isinstance(task.cross_covariance, Sampled) else made.moments()
    else:
        repeats = np.bincount(chosen, minlength=len(stored)).astype(float)
        parts, trials = stored.cut(stored.moment(repeats)), int(repeats @ stored.counts)
    target = None if task.target_covariance is None else parts[2]
    kept = rule and replace(rule, blocks=None, source=None, origin=None)  # a resample cannot be resampled again
    return Task.trusted(parts[0], parts[1], target, name=task.name, trials=trials, recording=kept)


def _not_recorded(task: Task) -> InvalidSpec:
    return InvalidSpec(f"only a task from recorded trials can be resampled, got task {task.name!r}.", field="task")
