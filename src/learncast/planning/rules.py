"""Rules of a path or schedule: costs and the accuracies at which stages may stop, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from learncast.errors import InvalidSpec
from learncast.validation import FloatArray, between, real_array


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
