"""What is forgotten when tasks are learned one after another."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast.networks import Network
from learncast.planning.curriculum import Curriculum, follow
from learncast.practice.stage import Stage
from learncast.tasks.task import Task

if TYPE_CHECKING:
    import xarray as xr


class IrregularSwitch(UserWarning):
    """A switch of tasks from which the exact flow never learns a mode.

    A simulation leaves such a saddle by its round-off or its noise, at a time that no theory tells.

    Examples
    --------
    A network that has learned a task stands where the reversed task has no slope to turn its direction round:

    >>> import learncast as lc
    >>> import numpy as np
    >>> import warnings
    >>> task = lc.tasks.static(np.diag([3.0, 1.0]))
    >>> network = lc.TwoLayer.balanced(2, 3, 2, scale=0.1, rng=np.random.default_rng(0))
    >>> with warnings.catch_warnings(record=True) as told:
    ...     warnings.simplefilter("always", lc.planning.IrregularSwitch)
    ...     losses = lc.forgetting([task, lc.tasks.reversed(task)], network, learning_rate=1e-2)
    >>> print(told[0].message)
    stage 2 (static, reversed): this start never learns modes 0, 1 under exact gradient flow: final excess loss 5; real
    training will stall near step 121.6 and escape by noise
    """


def in_sequence(
    tasks: Sequence[Task],
    network: Network,
    *,
    learning_rate: float,
    steps: Any = math.inf,
    learn: tuple[str, ...] | None = None,
    by: str = "auto",
    strict: bool = True,
    seed: int = 0,
) -> Curriculum:
    """Learn tasks one after another, each for a number of steps or to where the flow rests.

    Parameters
    ----------
    tasks : sequence of Task
    network : LinearRNN, TwoLayer or Activated
    learning_rate : float
    steps : float or one per task
        Gradient steps of each stage; infinite (the default) trains to convergence.
    learn, by, strict, seed
        As for `follow`.

    Returns
    -------
    Curriculum
        Its `losses` and `forgetting` tell every task after every stage.

    Raises
    ------
    AssumptionViolated
        If a condition of the theory fails and `strict` is set.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> later = task.varied(target_strength=0.5).renamed("weaker targets")
    >>> found = lc.planning.in_sequence([task, later], network, learning_rate=1e-3, steps=[400, 50])
    >>> found.losses().values.round(2)
    array([[25.  ,  6.25],
           [ 6.13,  6.24],
           [ 9.17,  1.72]])
    """
    if not len(tasks):
        raise InvalidSpec("a sequence must have at least one task, got none. Pass a list of tasks.")
    stages = [Stage(task, steps=length) for task, length in zip(tasks, _durations(steps, len(tasks)), strict=True)]
    return follow(stages, network, learning_rate=learning_rate, learn=learn, by=by, strict=strict, seed=seed)


def forgetting(
    tasks: Sequence[Task],
    network: Network,
    *,
    learning_rate: float,
    steps: Any = math.inf,
    learn: tuple[str, ...] | None = None,
    by: str = "auto",
    strict: bool = True,
    seed: int = 0,
) -> xr.DataArray:
    """Loss of every task after every stage of learning them in sequence, before any training.

    Warns (`IrregularSwitch`) where a switch ends on a saddle.

    Parameters
    ----------
    tasks : sequence of Task
        In the order they are learned.
    network : LinearRNN, TwoLayer or Activated
        The network before training.
    learning_rate : float
        Step size of gradient descent.
    steps : float or one per task
        Gradient steps of each stage; infinite (the default) trains to convergence.
    learn, by, strict, seed
        As for `follow`.

    Returns
    -------
    xarray.DataArray over (stage, task)
        Stage ``"start"`` first. Differences along ``stage`` are what is forgotten.

    Raises
    ------
    AssumptionViolated
        If a condition of the theory fails and `strict` is set.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> later = task.varied(target_strength=0.5).renamed("weaker targets")
    >>> lc.forgetting([task, later], network, learning_rate=1e-3, steps=[400, 50]).values.round(2)
    array([[25.  ,  6.25],
           [ 6.13,  6.24],
           [ 9.17,  1.72]])
    """
    found = in_sequence(
        tasks, network, learning_rate=learning_rate, steps=steps, learn=learn, by=by, strict=strict, seed=seed
    )
    for remark in found.remarks:
        warnings.warn(remark, IrregularSwitch, stacklevel=2)
    return found.losses()


def _durations(steps: Any, number: int) -> tuple[float, ...]:
    try:
        array = np.asarray(steps, dtype=float)
    except (TypeError, ValueError):
        array = np.array(np.nan)
    if array.ndim > 1 or (array.ndim == 1 and len(array) != number) or np.isnan(array).any() or (array < 0).any():
        raise InvalidSpec(
            required=f"steps must be one number or one for each of the {number} tasks, from 0 on",
            got=repr(steps)[:60],
            why="each stage lasts so long",
            remedy="use infinity for a stage to convergence",
        )
    return tuple(np.broadcast_to(array, (number,)).tolist())
