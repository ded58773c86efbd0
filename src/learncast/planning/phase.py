"""The phase portrait: where in task space, and at which stop, pretraining pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from learncast.assumptions import Assumption, require, stable_learning_rate, worst
from learncast.dynamics import mode_equation
from learncast.dynamics.modes import Modes
from learncast.errors import InvalidSpec
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.planning.curricula.explanation import singular_accuracy
from learncast.planning.curricula.passage import Problem
from learncast.planning.first_tasks import first_problems
from learncast.progress import Progress, silent
from learncast.responses.bootstrap import bounds
from learncast.responses.modes import modes_seen_by, solution_of
from learncast.responses.trials import seed_of
from learncast.tasks.task import Task
from learncast.trajectory import STEPS, described
from learncast.validation import FloatArray, between, positive, real_array

#: Bytes the portrait's five grids may take together.
GRID_LIMIT = 2**31

#: Grid points computed at a time: their temporaries stay in the processor's cache.
_BLOCK = 2**14


def phase_portrait(
    target: Task,
    network: LinearRNN | Activated,
    *,
    vary: str,
    values: Sequence[Any] | FloatArray,
    accuracies: Sequence[float] | FloatArray,
    learning_rate: float,
    accuracy: float = 0.99,
    strict: bool = True,
    progress: Progress = silent,
    rng: np.random.Generator | int = 0,
) -> xr.Dataset:
    """Time two-task curricula over a task parameter and the first task's stopping accuracy.

    The first task is the target with one keyword of its family changed.

    Parameters
    ----------
    target : Task
        From a family; learned to `accuracy` in the end.
    network : LinearRNN or Activated
        The network before training; ReLU units must share one response (one recurrence, one sign, one output).
    vary : str
        Keyword of the target's family that the first task changes.
    values : (values,)
        What it takes.
    accuracies : (accuracies,)
        Where the first task stops.
    learning_rate, accuracy : float
    strict : bool
        Raise when a condition of the theory fails for the target or any first task.
    progress : callable
        Called with the share of the grid done.
    rng : numpy.random.Generator or int
        Activated networks: generator or seed of the trials on which responses are measured, the same for every task.

    Returns
    -------
    xarray.Dataset
        ``first_stage_steps``, ``second_stage_steps``, ``total_steps``, ``speedup_steps``, ``speedup_ratio`` over
        (`vary`, ``accuracy``); ``direct_steps``; per value the first task's ``optimum`` of each mode, the
        ``singular_accuracy`` at which its end is the target's optimum (one mode), and whether descent is ``stable``.
        Of an Activated network also ``total_steps_low`` and ``total_steps_high``, ``speedup_steps_low`` and
        ``speedup_steps_high``, the ends of 95% confidence intervals.
    """
    seed = seed_of(rng)
    own = modes_seen_by(network, [target], seed)[0]
    return portrait_times(
        own,
        network,
        vary=vary,
        values=values,
        accuracies=accuracies,
        learning_rate=learning_rate,
        accuracy=accuracy,
        strict=strict,
        progress=progress,
        seed=seed,
    ).labelled()


@dataclass(frozen=True, eq=False)
class PortraitTimes:
    """The numbers of a phase portrait, before they are labelled.

    Attributes
    ----------
    own : Modes
        Of the target.
    vary : str
    values : (values,)
    stops : (accuracies,)
        Where the first task stops.
    first_stage, second_stage : (values, accuracies)
        Flow steps on the first task, and on the target after it.
    direct : float
        Flow steps on the target alone.
    firsts : Problem
        Weighted strengths of every first task, (values, 1, modes).
    replicas : list of Problem, optional
        Of first tasks that were measured on trials.
    stable : (values,)
        Whether descent is stable on each first task.
    assumptions : tuple of Assumption
        For each condition the worst measured on any task.
    learning_rate, accuracy : float
    """

    own: Modes
    vary: str
    values: Any
    stops: FloatArray
    first_stage: FloatArray
    second_stage: FloatArray
    direct: float
    firsts: Problem
    replicas: list[Problem] | None
    stable: NDArray[np.bool_]
    assumptions: tuple[Assumption, ...]
    learning_rate: float
    accuracy: float

    @cached_property
    def total(self) -> FloatArray:
        """Flow steps of both stages, (values, accuracies)."""
        return self.first_stage + self.second_stage

    @cached_property
    def speedup(self) -> FloatArray:
        """Flow steps saved against direct training; nan where neither way ever ends."""
        with np.errstate(invalid="ignore"):
            return self.direct - self.total

    def labelled(self) -> xr.Dataset:
        """The Dataset that `phase_portrait` returns, with intervals where responses were measured."""
        portrait = _labelled(self)
        if self.replicas is not None:
            portrait = portrait.assign(_intervals(self, self.replicas))
        return portrait.assign_attrs(
            target=self.own.task.name,
            learning_rate=self.learning_rate,
            target_accuracy=self.accuracy,
            vary=self.vary,
            **{a.name: a.measured for a in self.assumptions},
        )


def portrait_times(
    own: Modes,
    network: LinearRNN | Activated,
    *,
    vary: str,
    values: Sequence[Any] | FloatArray,
    accuracies: Sequence[float] | FloatArray,
    learning_rate: float,
    accuracy: float = 0.99,
    firsts: Sequence[Modes] | None = None,
    strict: bool = True,
    progress: Progress = silent,
    seed: int = 0,
) -> PortraitTimes:
    """Time two-task curricula, as `phase_portrait` does, for a target that has been taken apart already.

    Responses are measured on trials; whoever draws several portraits of them need not measure them again.

    Parameters
    ----------
    own : Modes
        Of the target.
    firsts : sequence of Modes, optional
        Of the first task for each of the values, in the target's frame; found here by default.
    seed : int
        Of the trials on which responses are measured.
    network, vary, values, accuracies, learning_rate, accuracy, strict, progress
        As for `phase_portrait`.
    """
    rate = positive("learning_rate", learning_rate, why="training moves against the gradient")
    accuracy = between("accuracy", accuracy, 0.0, 1.0, why="it is one minus the tolerance")
    stops = _checked_accuracies(accuracies)
    _check_values(vary, values)
    _check_size(len(values), len(stops))
    first, measured, replicas = first_problems(own, network, vary, values, firsts, seed)
    direct = solution_of(own, network, rate)
    sharp = mode_equation.sharpness(own.start, own.imbalance, first.cross, first.power)
    found = worst([direct.assumptions, measured, [stable_learning_rate(rate, sharp)]])
    if strict:
        require(found)
    second = Problem(own.weighted_cross, own.weighted_input, own.imbalance)
    one, two = _timed(own.start, first, second, 1.0 - stops, 1.0 - accuracy, rate, progress)
    steps = direct.time_to(accuracy).flow_steps
    stable = np.asarray((sharp * rate <= 2.0).all(axis=(1, 2)))
    return PortraitTimes(own, vary, values, stops, one, two, steps, first, replicas, stable, found, rate, accuracy)


def _check_values(vary: str, values: Any) -> None:
    if vary == "name":
        raise InvalidSpec(
            required="vary must name a keyword that changes the task",
            got="'name'",
            why="tasks that differ in name alone are one task",
            remedy="vary a number such as target_strength",
        )
    if np.ndim(values) == 0:
        raise InvalidSpec(
            required="values must be a list",
            got=repr(values)[:60],
            why="a portrait runs over several first tasks",
            remedy="put a single value in a list",
        )


def _checked_accuracies(accuracies: Any) -> FloatArray:
    stops = real_array("accuracies", accuracies, ndim=1)
    for stop in (stops.min(initial=0.0), stops.max(initial=0.0)):
        between("accuracies", stop, 0.0, 1.0, why="each is one minus a tolerance")
    return stops


def _check_size(values: int, accuracies: int) -> None:
    size = 5 * 8 * values * accuracies
    if size > GRID_LIMIT or values * accuracies == 0:
        raise InvalidSpec(
            required=f"a portrait must have at least one point and fit in {GRID_LIMIT / 2**30:g} GiB",
            got=f"{values} values x {accuracies} accuracies ({size / 2**30:.3g} GiB)",
            why="it would exhaust memory, or show nothing",
            remedy="use a coarser or smaller grid",
        )


def _intervals(times: PortraitTimes, firsts: list[Problem]) -> dict[str, Any]:
    """Ends of the confidence intervals over the grid, one first task at a time."""
    own, tolerances, target_tolerance = times.own, 1.0 - times.stops, 1.0 - times.accuracy
    vary, learning_rate = times.vary, times.learning_rate
    assert own.replicas is not None
    cross, power = own.replicas
    second = Problem(cross[:, None, :], power[:, None, :], own.imbalance)
    direct = second.arrival(own.start, np.array([target_tolerance]))[0] / learning_rate
    total, saved = [], []
    for first in firsts:
        time, ends = first.arrival(own.start, tolerances)
        rest, _ = second.arrival(ends, target_tolerance)
        steps = np.where(np.isfinite(time), time + rest, np.inf) / learning_rate
        total.append(bounds(steps))
        with np.errstate(invalid="ignore"):
            saved.append(bounds(direct - steps))
    found: dict[str, Any] = {}
    for k, end in enumerate(("low", "high")):
        for name, values in (("total_steps", total), ("speedup_steps", saved)):
            note = f"{name.replace('_', ' ')}, {end} end of its interval"
            found[f"{name}_{end}"] = ((vary, "accuracy"), np.stack(values)[:, k], described(note, STEPS))
    return found


def _timed(
    start: FloatArray,
    first: Problem,
    second: Problem,
    tolerances: FloatArray,
    target_tolerance: float,
    learning_rate: float,
    progress: Progress,
) -> tuple[FloatArray, FloatArray]:
    """Flow steps of both stages over (values, accuracies), a block of rows at a time."""
    values = len(first.cross)
    one, two = np.empty((values, len(tolerances))), np.empty((values, len(tolerances)))
    rows = max(1, _BLOCK // (len(tolerances) * start.shape[-1]))
    for begin in range(0, values, rows):
        block = slice(begin, begin + rows)
        here = Problem(first.cross[block], first.power[block], first.imbalance)
        time, ends = here.arrival(start, tolerances)
        np.divide(time, learning_rate, out=one[block])
        rest, _ = second.arrival(ends, target_tolerance)
        np.divide(rest, learning_rate, out=two[block])
        progress(min(1.0, (begin + rows) / values))
    # A first stage that never ends leaves nothing to start the second from.
    two[np.isinf(one)] = np.inf
    return one, two


def _labelled(times: PortraitTimes) -> xr.Dataset:
    vary, values, own, direct = times.vary, times.values, times.own, times.direct
    one, two, total, speedup = times.first_stage, times.second_stage, times.total, times.speedup
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where((total == 0) & (direct == 0), 1.0, direct / total)
        optimum = (times.firsts.cross / times.firsts.power)[:, 0, :]
    over = (vary, "accuracy")
    plain = np.ndim(values) == 1
    singular = singular_accuracy(optimum[:, 0], own.optimum[0]) if len(own) == 1 else np.full(len(values), np.nan)

    return xr.Dataset(
        {
            "first_stage_steps": (over, one, described("flow steps on the first task", STEPS)),
            "second_stage_steps": (over, two, described("flow steps on the target after it", STEPS)),
            "total_steps": (over, total, described("flow steps of both", STEPS)),
            "speedup_steps": (over, speedup, described("flow steps saved against direct training", STEPS)),
            "speedup_ratio": (over, ratio, described("direct flow steps over total", "1")),
            "direct_steps": ((), direct, described("flow steps of direct training", STEPS)),
            "optimum": ((vary, "mode"), optimum, described("optimal strength on the first task", "1")),
            "singular_accuracy": (
                vary,
                singular,
                described("stop at which the first task ends on the target's optimum", "1"),
            ),
            "stable": (vary, times.stable, described("descent is stable on the first task", "1")),
        },
        coords={
            vary: (vary, np.asarray(values) if plain else np.arange(len(values))),
            "accuracy": ("accuracy", times.stops, described("accuracy at which the first task stops", "1")),
        },
    )
