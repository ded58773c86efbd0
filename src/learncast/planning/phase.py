"""Phase portraits: where in task space, and at which stop, pretraining pays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec, OutOfTime, hinted
from learncast._core.progress import Progress, noticed, silent, time_limit
from learncast._core.validation import FloatArray
from learncast.networks import Network
from learncast.planning.methods.choice import method_for
from learncast.planning.methods.method import Method
from learncast.planning.methods.modes import ModeMethod
from learncast.planning.portrait import GRIDS, checked_grid, compare, portrait_dataset, portrait_times, rescaled
from learncast.planning.variants import share_geometry
from learncast.procedure.goals import Accuracy, Goal, forecast_goal_of
from learncast.procedure.training import Training
from learncast.tasks.task import Task
from learncast.theory.assumptions import require
from learncast.theory.responses.trials import seed_of

if TYPE_CHECKING:
    from learncast.planning.portrait_data import Portrait

#: Grid points that may be computed one by one, without common modes.
MOST_POINTS = 2_000


@hinted
@noticed("computing the portrait")
def phase(
    target: Task,
    network: Network,
    training: Training | None = None,
    *,
    vary: str,
    values: ArrayLike,
    accuracies: ArrayLike,
    goal: Goal | float | None = None,
    learning_rate: float | None = None,
    method: str = "auto",
    strict: bool = True,
    seconds: float | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Portrait:
    """Time two-task curricula over a task parameter and the first task's stopping accuracy.

    The first task is the target with one keyword of its family changed. With common modes the grid is computed in
    closed form, otherwise point by point.

    Parameters
    ----------
    target : Task
        From a task family.
    network : LinearRNN, TwoLayer, Deep or Activated
        The network before training.
    vary : str
        Keyword of the target's family that the first task changes.
    values : (values,)
        Values of the keyword.
    accuracies : (accuracies,)
        Accuracies at which the first task stops.
    goal : Goal or float, optional
        When the target counts as learned; see `learncast.forecast`.
    training, learning_rate, method, strict
        As for `learncast.forecast`; conditions must hold for the target and every first task.
    seconds : float, optional
        Time limit; the rest of the grid is then unknown (nan) and the attribute ``incomplete`` says so.
    seed : int
        Activated networks: seed of the trials on which responses are measured, the same for every task.
    progress : callable
        Called with the share of the grid done.

    Returns
    -------
    Portrait (an xarray.Dataset)
        ``first_stage_steps``, ``second_stage_steps``, ``total_steps``, ``speedup_steps``, ``speedup_ratio`` of the flow
        over (`vary`, ``accuracy``); ``direct_steps``; ``total_descent_steps`` (nan where not counted) and
        ``direct_descent_steps``; per value the first task's ``optimum`` of each mode, the ``singular_accuracy`` at
        which its end is the target's optimum (one mode), and whether descent is ``stable``.

    Raises
    ------
    AssumptionViolated
        If a condition of the theory fails and `strict` is set.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> portrait = lc.phase(
    ...     task, network, vary="target_strength", values=[0.5, 1.5], accuracies=[0.3, 0.6], learning_rate=1e-3
    ... )
    >>> portrait["speedup_steps"].values.round()
    array([[-193., -231.],
           [  77.,  113.]])
    """
    settings, seed = Training.of(training, learning_rate), seed_of(seed)
    asked = forecast_goal_of(goal, recorded=target.recording is not None)
    stops, given = checked_grid(vary, values, accuracies), cast("Sequence[Any]", values)
    with time_limit(seconds):
        own = method_for([target], network, settings, method=method, seed=seed)
        options: dict[str, Any] = {"vary": vary, "values": values, "accuracies": stops}
        options |= {"strict": strict, "progress": progress}
        if isinstance(own, ModeMethod) and isinstance(asked, Accuracy):
            known = own.promise == "exact" and np.ndim(values) == 1 and share_geometry(target, vary)
            if known or rescaled(own.modes[-1], vary, values) is not None:
                return portrait_times(own, accuracy=asked.value, **options).labelled()
        firsts = [target.varied(**{vary: _as_given(target, vary, value)}) for value in given]
        chosen = method_for([*firsts, target], network, settings, method=method, seed=seed)
        if isinstance(chosen, ModeMethod) and isinstance(asked, Accuracy):
            single = type(chosen)(chosen.modes[-1:], network, settings)
            return portrait_times(single, accuracy=asked.value, firsts=chosen.modes[:-1], **options).labelled()
        return _point_by_point(chosen, vary, values, stops, asked, strict, progress)


def _point_by_point(
    method: Method, vary: str, values: Any, stops: FloatArray, goal: Goal, strict: bool, progress: Progress
) -> Portrait:
    """Compute the portrait by a method without modes."""
    if len(values) * len(stops) > MOST_POINTS:
        raise InvalidSpec(
            f"Without common modes a portrait may have {MOST_POINTS} points, got {len(values)} x {len(stops)}.",
            field="values",
        )
    if strict:
        require(method.assumptions)
    direct, shape = method.learning_time(method.target, goal), (len(values), len(stops))
    steps = np.full((3, *shape), np.nan)
    with suppress(OutOfTime):  # the remaining values stay nan
        for k in range(len(values)):
            steps[:, k] = _row(method, k, stops, goal)
            progress((k + 1) / len(values))
    grids = np.empty((GRIDS, *shape))
    grids[[0, 1, 5]] = steps
    compare(grids[:5], direct.flow_steps)
    with np.errstate(invalid="ignore"):
        grids[6] = direct.descent_steps - grids[5]
    steps_directly, trust = (direct.flow_steps, direct.descent_steps), method.trust(range(len(method.tasks)))
    return portrait_dataset(method, vary, values, stops, grids, steps_directly, goal, trust)


def _row(method: Method, task: int, stops: FloatArray, goal: Goal) -> FloatArray:
    """Flow steps of both stages and descent steps of their sum, for every stop of one first task."""
    one, two, counted = (np.full(len(stops), np.inf) for _ in range(3))
    first, start, goals = method.flow(task, method.start), method.start, [Accuracy(float(stop)) for stop in stops]
    for j, stop in enumerate(goals):
        one[j] = method.flow_steps_to(task, start, stop, first)
        if math.isfinite(one[j]):
            two[j] = method.flow_steps_to(method.target, method.after_flow(task, start, one[j], first), goal)
    ends = [method.steps_to(task, start[None], stop) for stop in goals]
    known = [j for j, (steps, _) in enumerate(ends) if math.isfinite(steps[0])]
    if known:
        spent = np.array([ends[j][0][0] for j in known])
        counted[known] = spent + method.steps_to(method.target, np.stack([ends[j][1][0] for j in known]), goal)[0]
    return np.stack([one, two, counted])


def _as_given(target: Task, vary: str, value: object) -> object:
    """Repeat a single number for a keyword that the target has per channel."""
    own = target.recipe.parameters.get(vary) if target.recipe else None
    return [value] * len(own) if np.ndim(own) == 1 and np.ndim(value) == 0 else value  # type: ignore[arg-type]
