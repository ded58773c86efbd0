"""Phase portraits: where in task space, and at which stop, pretraining pays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from learncast._core.errors import InvalidSpec, OutOfTime
from learncast._core.progress import Progress, noticed, silent, time_is_up, time_limit, until
from learncast._core.validation import FloatArray, between, real_array
from learncast.networks import Network
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.planning.explanation import singular_accuracy
from learncast.planning.forecast import DEFAULT_GOAL
from learncast.planning.methods.choice import method_for
from learncast.planning.methods.method import Method
from learncast.planning.methods.modes import ModeMethod
from learncast.planning.variants import share_geometry, weighted_variants
from learncast.procedure.goals import Accuracy, Goal, goal_of
from learncast.procedure.training import Training
from learncast.results import STEPS, Provenance, described
from learncast.tasks.families import FAMILIES, checked_channels
from learncast.tasks.task import Task
from learncast.theory.assumptions import Assumption, Trust, require, stable_learning_rate, worst
from learncast.theory.dynamics import mode_equation
from learncast.theory.dynamics.modes import Modes
from learncast.theory.dynamics.steps.mode_descent import Problem
from learncast.theory.responses.bootstrap import interval
from learncast.theory.responses.modes import ResponseModes, mode_of_response
from learncast.theory.responses.response import Response
from learncast.theory.responses.trials import seed_of

if TYPE_CHECKING:
    import xarray as xr

#: Bytes that the grids of a portrait may take together, and their number.
GRID_LIMIT, GRIDS = 2**31, 7
#: Grid points computed together: their temporaries stay in the processor's cache.
_BLOCK = 2**16
#: Grid points up to which descent is counted at every one; in larger grids only at the best by the flow.
MOST_COUNTED = 10_000
BEST_COUNTED = 200
#: Grid points that may be computed one by one, without common modes.
MOST_POINTS = 2_000


@noticed("computing the portrait")
def phase(
    target: Task,
    network: Network,
    training: Training | None = None,
    *,
    vary: str,
    values: ArrayLike,
    accuracies: ArrayLike,
    goal: Goal | float = DEFAULT_GOAL,
    learning_rate: float | None = None,
    method: str = "auto",
    strict: bool = True,
    seconds: float | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> xr.Dataset:
    """Time two-task curricula over a task parameter and the first task's stopping accuracy.

    The first task is the target with one keyword of its family changed. With common modes the grid is computed in
    closed form, otherwise point by point.

    Parameters
    ----------
    target : Task
        From a task family.
    network : LinearRNN, TwoLayer or Activated
        The network before training.
    vary : str
        Keyword of the target's family that the first task changes.
    values : (values,)
        Values of the keyword.
    accuracies : (accuracies,)
        Accuracies at which the first task stops.
    goal : Goal or float
        When the target counts as learned.
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
    xarray.Dataset
        ``first_stage_steps``, ``second_stage_steps``, ``total_steps``, ``speedup_steps``, ``speedup_ratio`` of the flow
        over (`vary`, ``accuracy``); ``direct_steps``; ``total_descent_steps`` (nan where not counted) and
        ``direct_descent_steps``; per value the first task's ``optimum`` of each mode, the ``singular_accuracy`` at
        which its end is the target's optimum (one mode), and whether descent is ``stable``. For an Activated network
        with one response also the ends ``_low`` and ``_high`` of 95% intervals of ``total_steps`` and
        ``speedup_steps``.

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
    asked = goal_of(goal, recorded=target.recording is not None)
    _check_values(vary, values)
    stops = _checked_accuracies(accuracies)
    given = cast("Sequence[Any]", values)
    _check_size(len(given), len(stops))
    with time_limit(seconds):
        own = method_for([target], network, settings, method=method, seed=seed)
        options: dict[str, Any] = {"vary": vary, "values": values, "accuracies": stops, "strict": strict}
        options |= {"progress": progress, "seed": seed}
        if isinstance(own, ModeMethod) and isinstance(asked, Accuracy):
            known = own.promise == "exact" and np.ndim(values) == 1 and share_geometry(target, {vary: given})
            if known or _rescaled(own.modes[-1], vary, values) is not None:
                return portrait_times(own, accuracy=asked.value, **options).labelled()
        firsts = [target.varied(**{vary: _as_given(target, vary, value)}) for value in given]
        chosen = method_for([*firsts, target], network, settings, method=method, seed=seed)
        if isinstance(chosen, ModeMethod) and isinstance(asked, Accuracy):
            single = type(chosen)(chosen.modes[-1:], network, settings)
            return portrait_times(single, accuracy=asked.value, firsts=chosen.modes[:-1], **options).labelled()
        return _point_by_point(chosen, vary, values, stops, asked, strict, progress)


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
    replicas : list of Problem, optional
        Of first tasks that were measured on trials.
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
    replicas: list[Problem] | None
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
    def _filled(self) -> FloatArray:
        """All grids, with descent steps."""
        with np.errstate(invalid="ignore"):
            np.subtract(self.direct_descent, self.total_descent, out=self.grids[6])
        return self.grids

    @property
    def _promising(self) -> NDArray[np.intp]:
        """Points that save most by the flow."""
        known = self.speedup
        best = known.max(axis=1)
        if np.isnan(best).any():
            known = np.where(np.isnan(known), -np.inf, known)
            best = known.max(axis=1)
        most = min(BEST_COUNTED, known.size)
        if most == known.size:
            return np.argsort(-known, axis=None, kind="stable")
        if len(best) < most:
            near = np.arange(known.size)
        else:
            # As many points as there are rows reach the best of a row: points below all of these cannot be chosen.
            least = np.partition(best, -most)[-most]
            rows = np.flatnonzero(best >= least)
            row, column = np.nonzero(known[rows] >= least)
            near = rows[row] * known.shape[1] + column
        return near[np.argpartition(-known.ravel()[near], most - 1)[:most]]

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

    def labelled(self) -> xr.Dataset:
        """The dataset that `phase` returns."""
        with np.errstate(invalid="ignore", divide="ignore"):
            optimum = (self.firsts.cross / self.firsts.power)[:, 0, :]
        one = len(self.own) == 1
        singular = singular_accuracy(optimum[:, 0], self.own.optimum[0]) if one else np.full(len(self.values), np.nan)
        portrait = _labelled(
            self.vary, self.values, self.stops, self._filled, self.direct, self.direct_descent,
            optimum=((self.vary, "mode"), optimum, described("optimal strength on the first task", "1")),
            singular_accuracy=(
                self.vary, singular, described("stop at which the first task ends on the target's optimum", "1"),
            ),
            stable=(self.vary, self.stable, described("descent is stable on the first task", "1")),
            **_intervals(self, self.replicas or []),
        )  # fmt: skip
        return _stamped(portrait, self.method, self.vary, self.values, Accuracy(self.accuracy), self.trust)


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
    seed: int = 0,
) -> PortraitTimes:
    """Time two-task curricula, as `phase` does, for a target that has been decomposed already.

    Parameters
    ----------
    own : ModeMethod
        Of the target only.
    firsts : sequence of Modes, optional
        Of the first task for each of the values, in the target's frame; computed by default.
    seed : int
        Of the trials on which responses are measured.
    vary, values, accuracies, accuracy, strict, progress
        As for `phase`.
    """
    accuracy = between("accuracy", accuracy, 0.0, 1.0)
    stops = _checked_accuracies(accuracies)
    _check_values(vary, values)
    _check_size(len(values), len(stops))
    rate, modes = own.learning_rate, own.modes[-1]
    first, measured, replicas = _first_problems(own, vary, values, firsts, seed)
    sharp = mode_equation.sharpness(modes.start, modes.imbalance, first.cross, first.power)
    found = worst([own.conditions(0), measured, [stable_learning_rate(rate, sharp)]])
    if strict:
        require(found)
    steps = own.flow_steps_to(0, own.start, Accuracy(accuracy))
    grids = _timed(modes.start, first, own.problems[-1], 1.0 - stops, 1.0 - accuracy, rate, steps, progress)
    stable = np.asarray((sharp * rate <= 2.0).all(axis=(1, 2)))
    return PortraitTimes(own, vary, values, stops, grids, steps, first, replicas, stable, found, accuracy)


def _first_problems(
    own: ModeMethod, vary: str, values: object, given: Sequence[Modes] | None, seed: int
) -> tuple[Problem, tuple[Assumption, ...], list[Problem] | None]:
    """Weighted strengths of every first task, (values, 1, modes), the worst of each condition, and resamples."""
    modes, network = own.modes[-1], cast(LinearRNN | Activated, own.network)
    each = given or _rescaled(modes, vary, values)
    if each is None:
        cross, power = weighted_variants(modes.task, modes, network, {vary: np.asarray(values, dtype=float)}, seed)
        return Problem(cross[:, None, :], power[:, None, :], modes.imbalance), modes.assumptions, None
    cross = np.stack([m.weighted_cross for m in each])[:, None, :]
    power = np.stack([m.weighted_input for m in each])[:, None, :]
    measured = [m.replicas for m in each]
    replicas = [Problem(r[0][:, None, :], r[1][:, None, :], modes.imbalance) for r in measured if r is not None]
    return Problem(cross, power, modes.imbalance), worst(m.assumptions for m in each), replicas or None


def _rescaled(own: Modes, vary: str, values: Any) -> list[Modes] | None:
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


def _as_given(target: Task, vary: str, value: object) -> object:
    """Repeat a single number for a keyword that the target has per channel."""
    own = target.recipe.parameters.get(vary) if target.recipe else None
    return [value] * len(own) if np.ndim(own) == 1 and np.ndim(value) == 0 else value  # type: ignore[arg-type]


def _check_values(vary: str, values: Any) -> None:
    if vary == "name":
        raise InvalidSpec("vary must name a keyword that changes the task, got 'name'.", field="vary")
    if np.ndim(values) == 0:
        raise InvalidSpec(f"values must be a list, got {values!r:.60}.", field="values")


def _checked_accuracies(accuracies: object) -> FloatArray:
    stops = real_array("accuracies", accuracies, ndim=1)
    for stop in (stops.min(initial=0.0), stops.max(initial=0.0)):
        between("accuracies", stop, 0.0, 1.0)
    return stops


def _check_size(values: int, accuracies: int) -> None:
    size = GRIDS * 8 * values * accuracies
    if size > GRID_LIMIT or values * accuracies == 0:
        raise InvalidSpec(
            f"A portrait must have from 1 to {GRID_LIMIT // (8 * GRIDS):,} points, got {values} x {accuracies}.",
            field="values",
        )


def _intervals(times: PortraitTimes, firsts: list[Problem]) -> dict[str, object]:
    """Ends of the confidence intervals over the grid, one first task at a time."""
    own, tolerances, target_tolerance = times.own, 1.0 - times.stops, 1.0 - times.accuracy
    if not firsts:
        return {}
    vary, learning_rate = times.vary, times.method.learning_rate
    assert own.replicas is not None
    cross, power = own.replicas
    second = Problem(cross[:, None, :], power[:, None, :], own.imbalance)
    direct = second.duration(own.start, np.array([target_tolerance])) / learning_rate
    total, saved = [], []
    for k, first in enumerate(firsts):
        time, ends = first.arrival(own.start, tolerances)
        rest = second.duration(ends, target_tolerance)
        steps = np.where(np.isfinite(time), time + rest, np.inf) / learning_rate
        total.append(interval(times.total[k], steps))
        with np.errstate(invalid="ignore"):
            saved.append(interval(times.direct - times.total[k], direct - steps, signed=True))
    found: dict[str, object] = {}
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
        _compare(flow[:, block], direct)
        progress(min(1.0, (begin + rows) / values))
    return grids


def _compare(flow: FloatArray, direct: float) -> None:
    """Fill in the sum of both stages, what it saves, and the ratio of direct training to it."""
    one, two, total, saved, ratio = flow
    np.add(one, two, out=total)
    with np.errstate(invalid="ignore", divide="ignore"):
        np.subtract(direct, total, out=saved)
        np.divide(direct, total, out=ratio)
    if direct == 0:
        ratio[total == 0] = 1.0


def _point_by_point(
    method: Method, vary: str, values: Any, stops: FloatArray, goal: Goal, strict: bool, progress: Progress
) -> xr.Dataset:
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
    _compare(grids[:5], direct.flow_steps)
    with np.errstate(invalid="ignore"):
        grids[6] = direct.descent_steps - grids[5]
    portrait = _labelled(vary, values, stops, grids, direct.flow_steps, direct.descent_steps)
    return _stamped(portrait, method, vary, values, goal, method.trust(range(len(method.tasks))))


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


def _labelled(
    vary: str,
    values: Any,
    stops: FloatArray,
    grids: FloatArray,
    direct: float,
    direct_counted: float,
    **more: object,
) -> xr.Dataset:
    import xarray as xr

    one, two, total, speedup, ratio, counted, saved = grids
    over = (vary, "accuracy")
    return xr.Dataset(
        {
            "first_stage_steps": (over, one, described("flow steps on the first task", STEPS)),
            "second_stage_steps": (over, two, described("flow steps on the target after it", STEPS)),
            "total_steps": (over, total, described("flow steps of both", STEPS)),
            "speedup_steps": (over, speedup, described("flow steps saved against direct training", STEPS)),
            "speedup_ratio": (over, ratio, described("direct flow steps over total", "1")),
            "direct_steps": ((), direct, described("flow steps of direct training", STEPS)),
            "total_descent_steps": (over, counted, described("descent steps of both", STEPS)),
            "saved_descent_steps": (over, saved, described("descent steps saved against direct training", STEPS)),
            "direct_descent_steps": ((), direct_counted, described("descent steps of direct training", STEPS)),
            **more,
        },
        coords={
            vary: (vary, np.asarray(values) if np.ndim(values) == 1 else np.arange(len(values))),
            "accuracy": ("accuracy", stops, described("accuracy at which the first task stops", "1")),
        },
    )


def _stamped(portrait: xr.Dataset, method: Method, vary: str, values: object, goal: Goal, trust: Trust) -> xr.Dataset:
    given = np.asarray(values)
    known = given if given.dtype.kind in "fiu" else str(given.tolist())
    origin: Provenance = method.provenance(vary, known, portrait["accuracy"].values, repr(goal))
    rows = int(
        np.isfinite(portrait["total_steps"].values).any(axis=1).sum()
        + np.isinf(portrait["total_steps"].values).all(axis=1).sum()
    )
    if rows < len(given):
        portrait.attrs["incomplete"] = f"only {rows} of {len(given)} values were computed in the time given"
    return portrait.assign_attrs(
        target=method.tasks[-1].name,
        learning_rate=method.learning_rate,
        target_accuracy=getattr(goal, "value", math.nan),
        goal=goal.text,
        vary=vary,
        method=method.name,
        forecast_class=trust.forecast_class,
        **{a.name: a.measured for a in trust.assumptions},
        **origin.as_attributes(),
    )
