"""The sampling error of recorded tasks, told by drawing their trials again."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray
from learncast.tasks.covariance import Covariance, Sampled
from learncast.tasks.geometry import recurrence_kernel
from learncast.tasks.recorded.blocks import Blocks
from learncast.tasks.recorded.estimation import sampled
from learncast.tasks.task import Task


class StandardErrors(NamedTuple):
    """Standard error of every entry of a task's statistics, in the shapes of its covariances written out.

    Attributes
    ----------
    input, cross, target : array
        Of `Task.input_covariance`, `Task.cross_covariance` and `Task.target_covariance`.

    Examples
    --------
    The target is the sum over steps: every input co-varies with it by 1. Are 300 trials off by more than chance?

    >>> import learncast as lc
    >>> import numpy as np
    >>> inputs = np.random.default_rng(0).standard_normal((300, 8, 1))
    >>> task = lc.Task.from_samples(inputs, inputs.sum(axis=1))
    >>> off = task.cross_covariance.dense() - 1.0
    >>> float((abs(off) / lc.tasks.standard_errors(task).cross).max().round(1))
    2.0
    """

    input: FloatArray
    cross: FloatArray
    target: FloatArray


def resampled(task: Task, rng: np.random.Generator) -> Task:
    """Draw a bootstrap replicate of a recorded task.

    Where a task keeps its trials (fewer of them than values in a trial) trials are drawn with replacement. Otherwise it
    keeps the second moments of up to 64 blocks of consecutive trials, and these are drawn: trials that depend on their
    neighbours then stay together, and a replicate costs one weighted sum. A recording that was centred or scaled is
    so again by each replicate's own means and sizes. The spread of whatever is computed from replicates is its sampling
    error; with B blocks that error is itself known to about 1 / sqrt(2 B).

    Parameters
    ----------
    task : Task
        From `Task.from_samples`, `from_pairs`, `from_batches`, `from_table` or `from_environment`.
    rng : numpy.random.Generator

    Returns
    -------
    Task
        Under the same name, of as many trials (with blocks of unequal length, nearly as many).

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
    number, whole = _units(task)
    if whole:
        return _chosen(task, rng.integers(number, size=number))
    repeats = rng.multinomial(number, np.full(number, 1 / number))
    return _chosen(task, np.repeat(np.arange(number), repeats))


def pooled_recording(task: Task, recurrence: float) -> Task:
    """The trials of a recorded task with their inputs pooled by a recurrence that is a number: a task of one step.

    A network of that recurrence sees no more of them, and they are drawn again a hundred times as fast. Where trials
    are scaled anew by each replicate, or have several readouts, the task itself.
    """
    rule = task.recording
    if task.targets != "end" or (rule is not None and (rule.scaled or rule.masked is not None)):
        return task
    weights = recurrence_kernel(recurrence, task.steps, 1)[:, 0]
    if isinstance(task.cross_covariance, Sampled):
        cross = _parts(task)[1]
        seen, asked = np.einsum("t,ptc->pc", weights, cross.left)[:, None], cross.right
        parts: tuple[Covariance, ...] = (Sampled(seen, seen), Sampled(seen, asked), Sampled(asked, asked))
    elif rule is not None and rule.blocks is not None:
        blocks = rule.blocks.pooled(weights)
        parts, rule = blocks.cut(blocks.moment()), replace(rule, blocks=blocks)
    else:
        return task
    return Task.trusted(parts[0], parts[1], parts[2], name=task.name, trials=task.trials, recording=rule)


def halves(task: Task, rng: np.random.Generator) -> tuple[Task, Task]:
    """Part the trials of a recorded task at random: what is found on one half can be tried on the other."""
    number, _ = _units(task)
    order = rng.permutation(number)
    return _chosen(task, np.sort(order[: number // 2])), _chosen(task, np.sort(order[number // 2 :]))


def _units(task: Task) -> tuple[int, bool]:
    """What can be drawn one by one: how many, and whether these are trials or blocks of them."""
    if isinstance(task.cross_covariance, Sampled):
        return _parts(task)[1].trials, True
    if task.recording is not None and task.recording.masked is not None:
        return len(task.recording.masked.inputs), True
    return len(_blocks(task)), False


def _chosen(task: Task, chosen: NDArray[np.int64]) -> Task:
    """The task of some of its trials, or of some of the blocks it keeps."""
    if isinstance(task.cross_covariance, Sampled):
        cross, rule = _parts(task)[1], task.recording
        left, right = (part[chosen].reshape(len(chosen), -1) for part in (cross.left, cross.right))
        centre, scaled = (rule.centred, rule.scaled) if rule is not None else (False, False)
        drawn = sampled(left, right, cross.shape[:2], cross.shape[2:], centre=centre, scaled=scaled)
        parts, trials = (drawn.input, drawn.cross, drawn.target), len(chosen)
    elif task.recording is not None and task.recording.masked is not None:
        parts, trials = task.recording.masked.prepared(chosen)[0].moments(), len(chosen)
    else:
        blocks = _blocks(task)
        repeats = np.bincount(chosen, minlength=len(blocks)).astype(float)
        parts, trials = blocks.cut(blocks.moment(repeats)), int(repeats @ blocks.counts)
    target = None if task.target_covariance is None else parts[2]
    recording = task.recording and task.recording.replicate
    return Task.trusted(parts[0], parts[1], target, name=task.name, trials=trials, recording=recording)


def standard_errors(task: Task) -> StandardErrors:
    """Standard error of every statistic of a recorded task, without drawing anything.

    From kept trials the error of a mean of products; from blocks the error of a mean over blocks.

    Parameters
    ----------
    task : Task
        From recorded trials.

    Returns
    -------
    StandardErrors
        One for every entry of every covariance.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> inputs = rng.standard_normal((300, 8, 2))
    >>> task = lc.Task.from_samples(inputs, inputs.sum(axis=1))
    >>> errors = lc.tasks.standard_errors(task)
    >>> errors.cross.shape == task.cross_covariance.shape, float(errors.cross.mean().round(2))
    (True, 0.18)
    """
    if isinstance(task.cross_covariance, Sampled):
        return StandardErrors(*map(_product_error, _parts(task)))
    blocks = _blocks(task)
    return StandardErrors(*(part.values for part in blocks.cut(blocks.deviations())))


def _parts(task: Task) -> list[Sampled]:
    cross = task.cross_covariance
    assert isinstance(cross, Sampled)
    target = task.target_covariance if task.target_covariance is not None else Sampled(cross.right, cross.right)
    parts = [part for part in (task.input_covariance, cross, target) if isinstance(part, Sampled)]
    if len(parts) < 3 or len({part.trials for part in parts}) > 1:
        raise _not_recorded(task)
    return parts


def _product_error(part: Sampled) -> FloatArray:
    squares = Sampled(part.left**2, part.right**2).dense()
    # Round-off may leave the variance of an exactly constant product below 0.
    return np.sqrt(np.maximum(squares - part.dense() ** 2, 0.0) / (part.trials - 1))


def _blocks(task: Task) -> Blocks:
    if task.recording is None:
        raise _not_recorded(task)
    if task.recording.masked is not None:
        raise InvalidSpec(
            "every step of a task's trials must count for its standard errors to be told, got task "
            f"{task.name!r}, whose statistics are sums over some."
        )
    if task.recording.blocks is None:
        raise InvalidSpec(
            f"a task must keep its trials or blocks of them to be drawn again, got task {task.name!r} of "
            f"{task.steps} steps, {task.inputs} inputs and {task.outputs} outputs, which keeps its mean "
            "statistics alone."
        )
    return task.recording.blocks


def _not_recorded(task: Task) -> InvalidSpec:
    return InvalidSpec(
        f"a task must come from recorded trials to be drawn again, got task {task.name!r}, made of given "
        "statistics or a family."
    )
