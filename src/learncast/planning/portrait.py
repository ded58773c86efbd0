"""Phase portraits by modes: grids of flow steps and descent steps over a task parameter and a stop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from learncast._core.errors import InvalidSpec, OutOfTime
from learncast._core.progress import Progress, silent, time_is_up, until
from learncast._core.validation import FloatArray, between, real_array
from learncast.planning.explanation import singular_accuracy
from learncast.planning.methods.method import Method
from learncast.planning.methods.modes import ModeMethod
from learncast.planning.variants import weighted_variants
from learncast.procedure.goals import Accuracy, Goal
from learncast.results import STEPS, described
from learncast.tasks.families import FAMILIES, checked_channels
from learncast.theory.assumptions import Assumption, Trust, require, stable_learning_rate, worst
from learncast.theory.dynamics import mode_equation
from learncast.theory.dynamics.modes import Modes
from learncast.theory.dynamics.steps.mode_descent import Problem
from learncast.theory.responses.modes import ResponseModes, mode_of_response
from learncast.theory.responses.response import Response

if TYPE_CHECKING:
    from learncast.planning.portrait_data import Portrait

#: Bytes that the grids of a portrait may take together, and their number.
GRID_LIMIT, GRIDS = 2**31, 7
#: Grid points computed together: their temporaries stay in the processor's cache.
_BLOCK = 2**16
#: Grid points up to which descent is counted at every one; in larger grids only at the best by the flow.
MOST_COUNTED = 10_000
BEST_COUNTED = 200


@dataclass(frozen=True, eq=False)
class PortraitTimes:
    """Numbers of a phase portrait by modes.

    Attributes
    ----------
    method : ModeMethod
        Of the target only.
    vary : str
    values : (values,)
    stops : (accuracies,)
        Where the first task stops.
    grids : (7, values, accuracies)
        Flow steps on the first task, on the target after it, of both, saved against direct training (nan if neither
        ever ends), and the ratio of direct training to both; then descent steps of both, and saved.
    direct : float
        Flow steps of direct training.
    firsts : Problem
        Weighted strengths of every first task, (values, 1, modes).
    stable : (values,)
        Whether descent is stable on each first task.
    assumptions : tuple of Assumption
        For each condition the worst measured on any task.
    accuracy : float
    """

    method: ModeMethod
    vary: str
    values: Any
    stops: FloatArray
    grids: FloatArray
    direct: float
    firsts: Problem
    stable: NDArray[np.bool_]
    assumptions: tuple[Assumption, ...]
    accuracy: float

    @property
    def own(self) -> Modes:
        """Modes of the target."""
        return self.method.modes[-1]

    @property
    def trust(self) -> Trust:
        """How far the portrait can be trusted."""
        return Trust(self.assumptions, self.method.promise)

    @property
    def total(self) -> FloatArray:
        """Flow steps of both stages, (values, accuracies)."""
        return self.grids[2]

    @property
    def speedup(self) -> FloatArray:
        """Flow steps saved against direct training; nan where neither way ever ends."""
        return self.grids[3]

    @cached_property
    def direct_descent(self) -> float:
        """Descent steps of direct training."""
        with until(math.inf):
            return float(self.method.steps_to(0, self.method.start[None], Accuracy(self.accuracy))[0][0])

    @cached_property
    def total_descent(self) -> FloatArray:
        """Descent steps of both stages, (values, accuracies).

        In large grids, or if the time is up, only the best points by the flow are counted.
        """
        grid = self.grids[5]
        grid.fill(np.nan)
        if grid.size <= MOST_COUNTED:
            with suppress(OutOfTime):
                grid.ravel()[:] = self.descent_steps(np.arange(grid.size))
                return grid
        flat = self._promising
        flat = flat[~np.isnan(self.total.ravel()[flat])]
        if len(flat):
            with until(math.inf):
                grid.ravel()[flat] = self.descent_steps(flat)
        return grid

    @property
    def _promising(self) -> NDArray[np.intp]:
        """Points that save most by the flow; nan, which sorts last, is not among them if others are left."""
        saved, most = self.speedup.ravel(), min(BEST_COUNTED, self.speedup.size)
        best, near = np.fmax.reduce(self.speedup, axis=1), np.empty(0, dtype=np.intp)
        if len(best) >= most:  # as many points as rows reach the best of a row: no others need sorting
            near = np.flatnonzero(saved >= np.partition(best, -most)[-most])
        near = near if len(near) >= most else np.arange(len(saved))
        return near[np.argpartition(-saved[near], most - 1)[:most]]

    def descent_steps(self, flat: NDArray[np.intp]) -> FloatArray:
        """Descent steps of both stages at some points of the grid, by their place in the flattened grid."""
        value, stop = np.unravel_index(flat, self.total.shape)
        cross, power = (p[value, 0] for p in (self.firsts.cross, self.firsts.power))
        first, rate = Problem(cross, power, self.firsts.imbalance), self.method.learning_rate
        weights = np.broadcast_to(self.method.start, (len(flat), *self.method.start.shape))
        one, ends = first.steps_to(weights, first.within(1.0 - self.stops[stop]), rate)
        second = self.method.problems[-1]
        two, _ = second.steps_to(
            np.where(np.isfinite(one)[:, None, None], ends, weights), second.within(1.0 - self.accuracy), rate
        )
        return one + two

    @cached_property
    def best(self) -> tuple[int, int, float] | None:
        """Value and stop that save most steps of descent, and how many; None if no point is known to arrive."""
        flat = np.sort(self._promising)
        with np.errstate(invalid="ignore"):
            saved = self.direct_descent - self.descent_steps(flat)
        known = np.where(np.isnan(saved), -np.inf, saved)
        k = int(known.argmax())
        row, column = np.unravel_index(flat[k], self.total.shape)
        return (int(row), int(column), float(known[k])) if known[k] > -np.inf else None

    def labelled(self) -> Portrait:
        """The dataset that `phase` returns."""
        with np.errstate(invalid="ignore", divide="ignore"):
            np.subtract(self.direct_descent, self.total_descent, out=self.grids[6])
            optimum = (self.firsts.cross / self.firsts.power)[:, 0, :]
        one = len(self.own) == 1
        singular = singular_accuracy(optimum[:, 0], self.own.optimum[0]) if one else np.full(len(self.values), np.nan)
        direct, goal = (self.direct, self.direct_descent), Accuracy(self.accuracy)
        return portrait_dataset(
            self.method, self.vary, self.values, self.stops, self.grids, direct, goal, self.trust,
            optimum=((self.vary, "mode"), optimum, described("optimal strength on the first task", "1")),
            singular_accuracy=(
                self.vary, singular, described("stop at which the first task ends on the target's optimum", "1"),
            ),
            stable=(self.vary, self.stable, described("descent is stable on the first task", "1")),
        )  # fmt: skip


def portrait_times(
    own: ModeMethod,
    *,
    vary: str,
    values: Sequence[object] | FloatArray,
    accuracies: Sequence[float] | FloatArray,
    accuracy: float = 0.99,
    firsts: Sequence[Modes] | None = None,
    strict: bool = True,
    progress: Progress = silent,
) -> PortraitTimes:
    """Time two-task curricula, as `phase` does, for a target that has been decomposed already.

    Parameters
    ----------
    own : ModeMethod
        Of the target only.
    firsts : sequence of Modes, optional
        Of the first task for each of the values, in the target's frame; computed by default.
    vary, values, accuracies, accuracy, strict, progress
        As for `phase`.
    """
    accuracy = between("accuracy", accuracy, 0.0, 1.0)
    stops = checked_grid(vary, values, accuracies)
    rate, modes = own.learning_rate, own.modes[-1]
    first, measured = _first_problems(modes, vary, values, firsts)
    sharp = mode_equation.sharpness(modes.start, modes.imbalance, first.cross, first.power)
    found = worst([own.conditions(0), measured, [stable_learning_rate(rate, sharp)]])
    if strict:
        require(found)
    steps = own.flow_steps_to(0, own.start, Accuracy(accuracy))
    grids = _timed(modes.start, first, own.problems[-1], 1.0 - stops, 1.0 - accuracy, rate, steps, progress)
    stable = np.asarray((sharp * rate <= 2.0).all(axis=(1, 2)))
    return PortraitTimes(own, vary, values, stops, grids, steps, first, stable, found, accuracy)


def _first_problems(
    modes: Modes, vary: str, values: object, given: Sequence[Modes] | None
) -> tuple[Problem, tuple[Assumption, ...]]:
    """Weighted strengths of every first task, (values, 1, modes), and the worst of each condition."""
    each = given or rescaled(modes, vary, values)
    if each is None:
        cross, power = weighted_variants(modes, vary, np.asarray(values, dtype=float))
        return Problem(cross[:, None, :], power[:, None, :], modes.imbalance), modes.assumptions
    cross = np.stack([m.weighted_cross for m in each])[:, None, :]
    power = np.stack([m.weighted_input for m in each])[:, None, :]
    return Problem(cross, power, modes.imbalance), worst(m.assumptions for m in each)


def rescaled(own: Modes, vary: str, values: Any) -> list[Modes] | None:
    """Measured modes of first tasks that differ from the target only in the strength of inputs or targets.

    ReLU units are positively homogeneous: if inputs are s times and the target filter k times as strong, E[y z] is
    s^2 k times and E[z^2] s^2 times as large, on every trial.
    """
    recipe = own.task.recipe
    if own.promise != "response" or recipe is None or recipe.name not in FAMILIES:
        return None
    own = cast(ResponseModes, own)
    target = own.task
    family = FAMILIES[recipe.name]
    if vary not in family.channel_keywords or np.ndim(values) != 1:
        return None
    common = {key: np.ravel(checked_channels(key, recipe.parameters[key]))[0] for key in family.channel_keywords}
    with np.errstate(over="ignore", invalid="ignore"):
        here = family.profile(steps=target.steps, targets=target.targets, **common)
        there = family.profile(
            steps=target.steps, targets=target.targets, **{**common, vary: checked_channels(vary, values)}
        )
        inputs, filters = _factors(there.input, here.input), _factors(there.filter, here.filter)
    if inputs is None or filters is None:
        return None
    inputs, filters = np.broadcast_to(inputs, len(values)), np.broadcast_to(filters, len(values))
    return [mode_of_response(_stronger(own.response, r, k)) for r, k in zip(inputs, filters, strict=True)]


def _stronger(found: Response, inputs: float, filter_: float) -> Response:
    """The response to inputs and a target filter that are stronger by factors."""
    old = found.features
    return replace(
        found,
        statistics=replace(
            old,
            cross=old.cross * (inputs * filter_),
            power=old.power * inputs,
            target_power=old.target_power * (inputs * filter_**2),
        ),
    )


def _factors(there: FloatArray, here: FloatArray) -> FloatArray | None:
    """The factor by which each of `there` is a multiple of `here`; None if one is not a multiple."""
    row, column = (int(k) for k in np.unravel_index(int(np.abs(here).argmax()), here.shape))
    factors = there[..., row, column] / here[row, column]
    same = np.allclose(there, factors[..., None, None] * here, rtol=1e-12, atol=0.0)
    return factors if same else None


def checked_grid(vary: str, values: Any, accuracies: object) -> FloatArray:
    """Check the keyword and the values of a portrait; return the accuracies at which the first task stops."""
    if vary == "name":
        raise InvalidSpec("vary must name a keyword that changes the task, got 'name'.", field="vary")
    if np.ndim(values) == 0:
        raise InvalidSpec(f"values must be a list, got {values!r:.60}.", field="values")
    stops = real_array("accuracies", accuracies, ndim=1)
    for stop in (stops.min(initial=0.0), stops.max(initial=0.0)):
        between("accuracies", stop, 0.0, 1.0)
    points = len(values) * len(stops)
    if not 1 <= points <= GRID_LIMIT // (8 * GRIDS):
        raise InvalidSpec(
            f"A portrait must have from 1 to {GRID_LIMIT // (8 * GRIDS):,} points, got {len(values)} x {len(stops)}.",
            field="values",
        )
    return stops


def _timed(
    start: FloatArray,
    first: Problem,
    second: Problem,
    tolerances: FloatArray,
    target_tolerance: float,
    learning_rate: float,
    direct: float,
    progress: Progress,
) -> FloatArray:
    """The grids of a portrait, those of the flow filled, a block of rows at a time."""
    values = len(first.cross)
    # One allocation in large pages: several take longer to get than to fill.
    grids = np.empty((GRIDS, values, len(tolerances)))
    flow = grids[:5]
    rows = max(1, _BLOCK // (len(tolerances) * start.shape[-1]))
    for begin in range(0, values, rows):
        if time_is_up():
            grids[:, begin:] = np.nan
            break
        block = slice(begin, begin + rows)
        here = Problem(first.cross[block], first.power[block], first.imbalance)
        time, ends = here.arrival(start, tolerances)
        one, two = flow[0, block], flow[1, block]
        np.divide(time, learning_rate, out=one)
        np.divide(second.duration(ends, target_tolerance), learning_rate, out=two)
        if not one.max() < np.inf:  # after a first stage that never ends there is no second
            two[np.isinf(one)] = np.inf
        compare(flow[:, block], direct)
        progress(min(1.0, (begin + rows) / values))
    return grids


def compare(flow: FloatArray, direct: float) -> None:
    """Fill in the sum of both stages, what it saves, and the ratio of direct training to it."""
    one, two, total, saved, ratio = flow
    np.add(one, two, out=total)
    with np.errstate(invalid="ignore", divide="ignore"):
        np.subtract(direct, total, out=saved)
        np.divide(direct, total, out=ratio)
    if direct == 0:
        ratio[total == 0] = 1.0


def portrait_dataset(
    method: Method,
    vary: str,
    values: Any,
    stops: FloatArray,
    grids: FloatArray,
    direct: tuple[float, float],
    goal: Goal,
    trust: Trust,
    **more: object,
) -> Portrait:
    """Label the grids of a portrait; `direct` are the flow and descent steps of direct training."""
    from learncast.planning.portrait_data import Portrait

    one, two, total, speedup, ratio, counted, saved = grids
    over, given = (vary, "accuracy"), np.asarray(values)
    known = given if given.dtype.kind in "fiu" else str(given.tolist())
    origin = method.provenance(vary, known, stops, repr(goal))
    portrait = Portrait(
        {
            "first_stage_steps": (over, one, described("flow steps on the first task", STEPS)),
            "second_stage_steps": (over, two, described("flow steps on the target after it", STEPS)),
            "total_steps": (over, total, described("flow steps of both", STEPS)),
            "speedup_steps": (over, speedup, described("flow steps saved against direct training", STEPS)),
            "speedup_ratio": (over, ratio, described("direct flow steps over total", "1")),
            "direct_steps": ((), direct[0], described("flow steps of direct training", STEPS)),
            "total_descent_steps": (over, counted, described("descent steps of both", STEPS)),
            "saved_descent_steps": (over, saved, described("descent steps saved against direct training", STEPS)),
            "direct_descent_steps": ((), direct[1], described("descent steps of direct training", STEPS)),
            **more,
        },
        coords={
            vary: (vary, given if given.ndim == 1 else np.arange(len(values))),
            "accuracy": ("accuracy", stops, described("accuracy at which the first task stops", "1")),
        },
        attrs={
            "target": method.tasks[-1].name,
            "learning_rate": method.learning_rate,
            "target_accuracy": getattr(goal, "value", math.nan),
            "goal": goal.text,
            "vary": vary,
            "method": method.name,
            "forecast_class": trust.forecast_class,
            **{a.name: a.measured for a in trust.assumptions},
            **origin.as_attributes(),
        },
    )
    rows = int((np.isfinite(total).any(axis=1) | np.isinf(total).all(axis=1)).sum())
    if rows < len(given):
        portrait.attrs["incomplete"] = f"only {rows} of {len(given)} values were computed in the time given"
    return portrait
