"""What is forgotten when tasks are learned one after another."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec, hinted
from learncast.networks import Network
from learncast.planning.forecast import Forecast, follow
from learncast.procedure.stage import Stage
from learncast.procedure.training import Training
from learncast.tasks.task import Task


class IrregularSwitch(UserWarning):
    """A switch of tasks at a saddle, from which the exact flow never learns a mode.

    Real training leaves the saddle by round-off or noise, at a time that the theory cannot predict.
    """


@hinted
def forget(
    tasks: Sequence[Task],
    network: Network,
    training: Training | None = None,
    *,
    steps: ArrayLike = math.inf,
    learning_rate: float | None = None,
    method: str = "auto",
    strict: bool = True,
    seed: int = 0,
) -> Forecast:
    """Forecast the loss of every task after every stage of learning them in sequence.

    Warns (`IrregularSwitch`) if a switch ends on a saddle.

    Parameters
    ----------
    tasks : sequence of Task
        In the order they are learned.
    network : LinearRNN, TwoLayer, Deep or Activated
        The network before training.
    steps : float or one per task
        Gradient steps of each stage; infinite (the default) trains to convergence.
    training, learning_rate, method, strict, seed
        As for `learncast.forecast`.

    Returns
    -------
    Forecast
        ``forecast.losses()`` is the loss of every task after every stage, ``forecast.forgetting`` its changes.

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
    >>> lc.forget([task, later], network, learning_rate=1e-3, steps=[400, 50]).losses().values.round(2)
    array([[25.  ,  6.25],
           [ 6.13,  6.24],
           [ 9.17,  1.72]])
    """
    stages = stages_of(tasks, steps)
    forecast = follow(stages, network, training, learning_rate=learning_rate, method=method, strict=strict, seed=seed)
    for remark in forecast.switch_remarks:
        warnings.warn(remark, IrregularSwitch, stacklevel=3)
    return forecast


def stages_of(tasks: Sequence[Task], steps: ArrayLike) -> list[Stage]:
    """Stages of tasks that are each trained for a number of steps."""
    number = len(tasks)
    if not number:
        raise InvalidSpec("tasks must have at least one task, got none.", field="tasks")
    try:
        lengths = np.asarray(steps, dtype=float)
    except (TypeError, ValueError):
        lengths = np.array(np.nan)
    if lengths.shape not in ((), (number,)) or not (lengths >= 0).all():
        wanted = f"one number from 0 on, or {number}, one per task"
        raise InvalidSpec(f"steps must be {wanted}, got {steps!r:.60}.", field="steps")
    each = zip(tasks, np.broadcast_to(lengths, (number,)).tolist(), strict=True)
    return [Stage(task, steps=length) for task, length in each]
