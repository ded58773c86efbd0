"""Rules of a path or schedule: what is asked of its end, its costs, and where stages may stop; checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from learncast.errors import InvalidSpec
from learncast.tasks.task import Task
from learncast.validation import FloatArray, between, count, one_of, positive, real_array

#: What accuracy may be asked of: every mode, or the loss as a whole.
GOALS = ("modes", "loss")


@dataclass(frozen=True, eq=False)
class Terms:
    """What a plan must meet and what it costs, for a pool of candidates.

    Attributes
    ----------
    learning_rate, accuracy : float
    goal : str
        What must be accurate, of `GOALS`.
    max_stages : int
        The target included.
    cost : (candidates + 1,)
        Of a step on each candidate and, last, on the target.
    switch_cost : float
    least, most : (candidates,)
        Accuracy at which a candidate's stage may stop; -inf and 1 where it is free.
    most_loss : (candidates,)
        Excess loss of each candidate allowed at the end; infinite where any is.
    """

    learning_rate: float
    accuracy: float
    goal: str
    max_stages: int
    cost: FloatArray
    switch_cost: float
    least: FloatArray
    most: FloatArray
    most_loss: FloatArray

    @property
    def plain(self) -> bool:
        """Whether every step costs the same and nothing but the modes' accuracy at the end is asked for."""
        same = bool((self.cost == self.cost[-1]).all()) and self.switch_cost == 0
        free = np.isinf(self.least).all() and (self.most == 1).all() and np.isinf(self.most_loss).all()
        return bool(same and free and self.goal == "modes")


def checked_terms(
    candidates: int,
    *,
    learning_rate: Any,
    accuracy: Any,
    goal: Any,
    max_stages: Any,
    costs: Any,
    switch_cost: Any,
    least_accuracy: Any,
    most_accuracy: Any,
    most_excess_loss: Any,
) -> Terms:
    """Validate the terms of a plan over so many candidates."""
    least, most = accuracy_limits(least_accuracy, most_accuracy, candidates)
    return Terms(
        learning_rate=positive("learning_rate", learning_rate, why="training moves against the gradient"),
        accuracy=between("accuracy", accuracy, 0.0, 1.0, why="it is one minus the tolerance"),
        goal=one_of("goal", goal, GOALS, why="it says what must be accurate"),
        max_stages=count("max_stages", max_stages, why="the target itself is one stage"),
        cost=checked_costs(costs, candidates + 1),
        switch_cost=checked_switch_cost(switch_cost),
        least=least,
        most=most,
        most_loss=_loss_limits(most_excess_loss, candidates),
    )


def checked_pool(target: Task, candidates: Sequence[Task]) -> list[Task]:
    """Validate target and candidates: tasks, some of them, and none of them the target."""
    if not isinstance(target, Task):
        raise InvalidSpec(
            required="the target must be a Task",
            got=type(target).__name__,
            why="a plan is made from the statistics of tasks",
            remedy="make one with learncast.tasks, Task.from_samples or learncast.tasks.from_batches",
        )
    if isinstance(candidates, Task | str) or not isinstance(candidates, Iterable):
        raise InvalidSpec(
            required="candidates must be a list of tasks",
            got=type(candidates).__name__,
            why="any number of them may come before the target",
            remedy="put them in a list, also a single one",
        )
    pool = list(candidates)
    if not pool:
        raise InvalidSpec(
            required="there must be at least one candidate",
            got="none",
            why="without one the only schedule is the target itself",
            remedy="offer a task to train first, or forecast the target with solve()",
        )
    for k, task in enumerate(pool):
        if not isinstance(task, Task):
            raise InvalidSpec(
                required="every candidate must be a Task",
                got=f"{type(task).__name__} as candidate {k}",
                why="a plan is made from the statistics of tasks",
                remedy="make one with learncast.tasks, Task.from_samples or learncast.tasks.from_batches",
            )
        if task.hash == target.hash:
            raise InvalidSpec(
                required="candidates must differ from the target",
                got=f"candidate {k}, {task.name!r}, which is the target",
                why="the target is always part of a schedule",
                remedy="remove it from the candidates",
            )
    return pool


def checked_switch_cost(switch_cost: Any) -> float:
    """Validate the cost of a change of task."""
    return between("switch_cost", switch_cost, 0.0, float(np.finfo(float).max), why="a change of task saves nothing")


def checked_costs(costs: Any, tasks: int) -> FloatArray:
    """Validate costs per step: one for all tasks, or one each."""
    array = real_array("costs", costs, ndim=(0, 1))
    if array.ndim and len(array) != tasks:
        raise InvalidSpec(
            required=f"costs must be one number or one for each of the {tasks} tasks",
            got=f"{len(array)}",
            why="every task has its price",
            remedy="match the list of tasks",
        )
    if not (array > 0).all():
        raise InvalidSpec(
            required="costs must be positive",
            got=f"{float(array.min()):g}",
            why="a step that costs nothing could be taken forever",
            remedy="give each task a cost above 0",
        )
    return np.array(np.broadcast_to(array, (tasks,)))


def accuracy_limits(least: Any, most: Any, tasks: int) -> tuple[FloatArray, FloatArray]:
    """Validate limits on the accuracy at which stages stop; -inf and 1 where there is none."""
    limits = []
    for name, value, none in (("least_accuracy", least, -np.inf), ("most_accuracy", most, 1.0)):
        given = np.asarray(np.nan if value is None else value, dtype=float)
        if given.ndim > 1 or (given.ndim and len(given) != tasks):
            raise InvalidSpec(
                required=f"{name} must be one number or one for each of the {tasks} tasks",
                got=f"shape {given.shape}",
                why="each limit belongs to a task",
                remedy="match the list of tasks; nan where a task has no limit",
            )
        for bad in given[~np.isnan(given) & ~((given >= 0) & (given <= 1))].ravel()[:1]:
            between(name, bad, 0.0, 1.0, why="an accuracy is one minus a tolerance")
        limits.append(np.array(np.broadcast_to(np.where(np.isnan(given), none, given), (tasks,))))
    low, high = limits
    if (low > high).any():
        k = int(np.argmax(low > high))
        raise InvalidSpec(
            required="least_accuracy must not exceed most_accuracy",
            got=f"{low[k]:g} and {high[k]:g} for task {k}",
            why="no stop lies between them",
            remedy="exchange them, or widen the limits",
        )
    return low, high


def stop_band(cross: FloatArray, power: FloatArray, least: Any, most: Any) -> tuple[FloatArray, FloatArray]:
    """Least and greatest distance from its optimum at which a stage of each task may stop."""
    low, high = accuracy_limits(least, most, len(cross))
    size = np.abs(np.divide(cross, power, out=np.zeros_like(cross), where=power > 0))
    farthest = np.where(np.isinf(low), np.inf, (1 - np.where(np.isinf(low), 0.0, low)) * size)
    return (1 - high) * size, farthest


def _loss_limits(most_excess_loss: Any, tasks: int) -> Any:
    given = np.asarray(np.full(tasks, np.nan) if most_excess_loss is None else most_excess_loss, dtype=float)
    if given.shape != (tasks,):
        raise InvalidSpec(
            required=f"most_excess_loss must be one number for each of the {tasks} candidates",
            got=f"shape {given.shape}",
            why="what may be forgotten differs between tasks",
            remedy="match the candidates; nan where a task has no limit",
        )
    if (given < 0).any():
        raise InvalidSpec(
            required="most_excess_loss must not be negative",
            got=f"{float(np.nanmin(given)):g}",
            why="an excess loss is measured from the minimum",
            remedy="choose limits from 0 on",
        )
    finite = np.where(np.isfinite(given), given, 0.0)
    return np.where(np.isfinite(given), real_array("most_excess_loss", finite), np.inf)
