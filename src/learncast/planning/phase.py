"""The phase portrait: where in task space, and at which stop, pretraining pays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from learncast._core.errors import InvalidSpec, OutOfTime
from learncast._core.progress import Progress, noticed, silent, time_limit
from learncast._core.validation import FloatArray, between, real_array
from learncast.networks import Network
from learncast.planning.methods.choice import ground_for, mode_ground
from learncast.planning.methods.ground import Ground
from learncast.planning.methods.modal import ModeGround
from learncast.planning.variants import share_geometry, weighted_variants
from learncast.planning.wording import singular_accuracy
from learncast.results import STEPS, Provenance, described
from learncast.tasks.families import FAMILIES, checked_channels
from learncast.tasks.task import Task
from learncast.theory.assumptions import Assumption, Trust, require, stable_learning_rate, worst
from learncast.theory.dynamics import mode_equation
from learncast.theory.dynamics.mode_equation import Problem
from learncast.theory.dynamics.modes import Modes
from learncast.theory.responses.bootstrap import interval
from learncast.theory.responses.modes import ResponseModes, mode_of_response
from learncast.theory.responses.response import Response
from learncast.theory.responses.trials import seed_of

if TYPE_CHECKING:
    import xarray as xr

#: Bytes the portrait's grids may take together, and how many there are.
GRID_LIMIT, GRIDS = 2**31, 7
#: Grid points computed at a time: their temporaries stay in the processor's cache.
_BLOCK = 2**16
#: Grid points up to which every one is counted by descent; of larger grids the best by the flow are.
MOST_COUNTED = 10_000
BEST_COUNTED = 200
#: Grid points that may be followed one by one, where no modes tell them at once.
MOST_FOLLOWED = 2_000


@noticed("timing curricula")
def phase_portrait(
    target: Task,
    network: Network,
    *,
    vary: str,
    values: Sequence[Any] | FloatArray,
    accuracies: Sequence[float] | FloatArray,
    learning_rate: float,
    accuracy: float = 0.99,
    by: str = "auto",
    strict: bool = True,
    progress: Progress = silent,
    seconds: float | None = None,
    seed: int = 0,
) -> xr.Dataset:
    """Time two-task curricula over a task parameter and the first task's stopping accuracy.

    The first task is the target with one keyword of its family changed. Where all of them fall apart into common modes
    the grid is computed at once in closed form, elsewhere point by point on the ground whose conditions hold.

    Parameters
    ----------
    target : Task
        From a family; learned to `accuracy` in the end.
    network : LinearRNN, TwoLayer or Activated
        The network before training.
    vary : str
        Keyword of the target's family that the first task changes.
    values : (values,)
        What it takes.
    accuracies : (accuracies,)
        Where the first task stops.
    learning_rate, accuracy : float
    by : {"auto", "modes", "two-layer", "pooled", "flow", "responses"}
        The first of these whose conditions hold for every task, or the one named.
    strict : bool
        Raise when a condition of the theory fails for the target or any first task.
    progress : callable
        Called with the share of the grid done.
    seconds : float, optional
        Where tasks have no common modes: after which the rest of the grid is left unknown (nan).
    seed : int
        Activated networks: of the trials on which responses are measured, the same for every task.

    Returns
    -------
    xarray.Dataset
        ``first_stage_steps``, ``second_stage_steps``, ``total_steps``, ``speedup_steps``, ``speedup_ratio`` of the flow
        over (`vary`, ``accuracy``); ``direct_steps``; ``total_descent_steps`` (nan where not counted) and
        ``direct_descent_steps``; per value the first task's ``optimum`` of each mode, the ``singular_accuracy`` at
        which its end is the target's optimum (one mode), and whether descent is ``stable``. Of an Activated network
        with one response also ``total_steps_low`` and ``total_steps_high``, ``speedup_steps_low`` and
        ``speedup_steps_high``, the ends of 95% confidence intervals.

    Raises
    ------
    AssumptionViolated
        If a condition of the theory fails and `strict` is set.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> found = lc.phase_portrait(
    ...     task, network, vary="target_strength", values=[0.5, 1.5], accuracies=[0.3, 0.6], learning_rate=1e-3
    ... )
    >>> found["speedup_steps"].values.round()
    array([[-193., -231.],
           [  77.,  113.]])
    """
    seed = seed_of(seed)
    _check_values(vary, values)
    stops = _checked_accuracies(accuracies)
    _check_size(len(values), len(stops))
    options = {"learning_rate": learning_rate, "seed": seed}
    own = ground_for([target], network, by=by, **options)  # type: ignore[arg-type]
    quick = own.by == "modes" and (
        (own.promise == "exact" and np.ndim(values) == 1 and share_geometry(target, {vary: values}))
        or _rescaled(own.modes[-1], vary, values) is not None
    )
    if quick:
        return portrait_times(
            cast(ModeGround, own),
            vary=vary,
            values=values,
            accuracies=stops,
            accuracy=accuracy,
            strict=strict,
            progress=progress,
            seed=seed,
        ).labelled()
    firsts = [target.varied(**{vary: _as_given(target, vary, value)}) for value in values]
    ground = ground_for([*firsts, target], network, by=by, **options)  # type: ignore[arg-type]
    if ground.modes:
        return portrait_times(
            mode_ground(ground.modes[-1:], network, ground.learning_rate),
            vary=vary, values=values, accuracies=stops, accuracy=accuracy, firsts=ground.modes[:-1], strict=strict,
            progress=progress, seed=seed,
        ).labelled()  # fmt: skip
    with time_limit(seconds):
        return _followed(ground, vary, values, stops, accuracy, strict, progress)


@dataclass(frozen=True, eq=False)
class PortraitTimes:
    """The numbers of a phase portrait by modes, before they are labelled.

    Attributes
    ----------
    ground : ModeGround
        Of the target alone.
    vary : str
    values : (values,)
    stops : (accuracies,)
        Where the first task stops.
    grids : (7, values, accuracies)
        Flow steps on the first task, on the target after it, of both, saved against direct training (nan where neither
        way ever ends), and how many times as long direct training takes; and room for descent steps of both, and saved.
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
    accuracy : float
    """

    ground: ModeGround
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
        return self.ground.modes[-1]

    @property
    def trust(self) -> Trust:
        """How far the portrait can be trusted."""
        return Trust(self.assumptions, self.ground.promise)

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
        """Descent steps on the target alone."""
        return float(self.ground.counted(0, [self.ground.start], self.accuracy)[0][0])

    @cached_property
    def total_descent(self) -> FloatArray:
        """Descent steps of both stages, (values, accuracies); of a large grid at the best points by the flow alone."""
        grid = self.grids[5]
        grid.fill(np.nan)
        flat = np.arange(grid.size) if grid.size <= MOST_COUNTED else self._promising
        grid.ravel()[flat] = self.counted(flat)
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
            # As many points as there are rows reach the best of a row: what is below all of these is not looked at.
            least = np.partition(best, -most)[-most]
            rows = np.flatnonzero(best >= least)
            row, column = np.nonzero(known[rows] >= least)
            near = rows[row] * known.shape[1] + column
        return near[np.argpartition(-known.ravel()[near], most - 1)[:most]]

    def counted(self, flat: NDArray[np.intp]) -> FloatArray:
        """Descent steps of both stages at some points of the grid, by their place in the flattened grid."""
        value, stop = np.unravel_index(flat, self.total.shape)
        cross, power = (p[value, 0] for p in (self.firsts.cross, self.firsts.power))
        first, rate = Problem(cross, power, self.firsts.imbalance), self.ground.learning_rate
        weights = np.broadcast_to(self.ground.start, (len(flat), *self.ground.start.shape))
        one, ends = first.counted(weights, first.within(1.0 - self.stops[stop]), rate)
        second = self.ground.problems[-1]
        two, _ = second.counted(
            np.where(np.isfinite(one)[:, None, None], ends, weights), second.within(1.0 - self.accuracy), rate
        )
        return one + two

    @cached_property
    def best(self) -> tuple[int, int, float] | None:
        """Value and stop that save most steps of descent, and how many; None where nothing is known to be reached."""
        flat = np.sort(self._promising)
        with np.errstate(invalid="ignore"):
            saved = self.direct_descent - self.counted(flat)
        known = np.where(np.isnan(saved), -np.inf, saved)
        k = int(known.argmax())
        row, column = np.unravel_index(flat[k], self.total.shape)
        return (int(row), int(column), float(known[k])) if known[k] > -np.inf else None

    def labelled(self) -> xr.Dataset:
        """The Dataset that `phase_portrait` returns, with intervals where responses were measured."""
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
        return _stamped(portrait, self.ground, self.vary, self.values, self.accuracy, self.trust)


def portrait_times(
    own: ModeGround,
    *,
    vary: str,
    values: Sequence[Any] | FloatArray,
    accuracies: Sequence[float] | FloatArray,
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
    own : ModeGround
        Of the target alone.
    firsts : sequence of Modes, optional
        Of the first task for each of the values, in the target's frame; found here by default.
    seed : int
        Of the trials on which responses are measured.
    vary, values, accuracies, accuracy, strict, progress
        As for `phase_portrait`.
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
    steps = own.steps_to(0, own.start, accuracy)
    grids = _timed(modes.start, first, own.problems[-1], 1.0 - stops, 1.0 - accuracy, rate, steps, progress)
    stable = np.asarray((sharp * rate <= 2.0).all(axis=(1, 2)))
    return PortraitTimes(own, vary, values, stops, grids, steps, first, replicas, stable, found, accuracy)


def _first_problems(
    own: ModeGround, vary: str, values: Any, given: Sequence[Modes] | None, seed: int
) -> tuple[Problem, tuple[Assumption, ...], list[Problem] | None]:
    """Weighted strengths of every first task, (values, 1, modes), the worst of each condition, and replicas."""
    modes, network = own.modes[-1], own.network
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
    """Measured modes of first tasks that differ from the target in the strength of inputs or targets alone.

    ReLU units answer in proportion to their inputs: where these are s times and the filter that makes targets of them
    k times as strong, E[y z] is s^2 k times and E[z^2] s^2 times as large, on every trial.
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
    """The response to inputs of more variance and to targets that weigh them more, each by a factor."""
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
    """By which number each of `there` is a multiple of `here`; None where one is not."""
    row, column = (int(k) for k in np.unravel_index(int(np.abs(here).argmax()), here.shape))
    factors = there[..., row, column] / here[row, column]
    same = np.allclose(there, factors[..., None, None] * here, rtol=1e-12, atol=0.0)
    return factors if same else None


def _as_given(target: Task, vary: str, value: Any) -> Any:
    """A single number for a keyword the target has per channel stands for all channels."""
    own = target.recipe.parameters.get(vary) if target.recipe else None
    return [value] * len(own) if np.ndim(own) == 1 and np.ndim(value) == 0 else value  # type: ignore[arg-type]


def _check_values(vary: str, values: Any) -> None:
    if vary == "name":
        raise InvalidSpec("vary must name a keyword that changes the task, got 'name'.", field="vary")
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
        between("accuracies", stop, 0.0, 1.0)
    return stops


def _check_size(values: int, accuracies: int) -> None:
    size = GRIDS * 8 * values * accuracies
    if size > GRID_LIMIT or values * accuracies == 0:
        raise InvalidSpec(
            f"a portrait must have at least one point and fit in {GRID_LIMIT / 2**30:g} GiB, got {values} "
            f"values x {accuracies} accuracies ({size / 2**30:.3g} GiB). Use a coarser or smaller grid."
        )


def _intervals(times: PortraitTimes, firsts: list[Problem]) -> dict[str, Any]:
    """Ends of the confidence intervals over the grid, one first task at a time."""
    own, tolerances, target_tolerance = times.own, 1.0 - times.stops, 1.0 - times.accuracy
    if not firsts:
        return {}
    vary, learning_rate = times.vary, times.ground.learning_rate
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
    direct: float,
    progress: Progress,
) -> FloatArray:
    """The grids of a portrait, those of the flow filled, a block of rows at a time."""
    values = len(first.cross)
    # One piece of memory, in large pages: several by themselves take longer to get than to fill.
    grids = np.empty((GRIDS, values, len(tolerances)))
    flow = grids[:5]
    rows = max(1, _BLOCK // (len(tolerances) * start.shape[-1]))
    for begin in range(0, values, rows):
        block = slice(begin, begin + rows)
        here = Problem(first.cross[block], first.power[block], first.imbalance)
        time, ends = here.arrival(start, tolerances)
        one, two = flow[0, block], flow[1, block]
        np.divide(time, learning_rate, out=one)
        np.divide(second.duration(ends, target_tolerance), learning_rate, out=two)
        if not one.max() < np.inf:  # a first stage that never ends leaves nothing to start the second from
            two[np.isinf(one)] = np.inf
        _compare(flow[:, block], direct)
        progress(min(1.0, (begin + rows) / values))
    return grids


def _compare(flow: FloatArray, direct: float) -> None:
    """Fill in, beside both stages, their sum, what it saves, and how many times as long direct training takes."""
    one, two, total, saved, ratio = flow
    np.add(one, two, out=total)
    with np.errstate(invalid="ignore", divide="ignore"):
        np.subtract(direct, total, out=saved)
        np.divide(direct, total, out=ratio)
    if direct == 0:
        ratio[total == 0] = 1.0


def _followed(
    ground: Ground, vary: str, values: Any, stops: FloatArray, accuracy: float, strict: bool, progress: Progress
) -> xr.Dataset:
    """The portrait point by point, on a ground without modes."""
    if len(values) * len(stops) > MOST_FOLLOWED:
        raise InvalidSpec(
            f"without common modes a portrait may have {MOST_FOLLOWED} points, got {len(values)} values x "
            f"{len(stops)} accuracies. Use a coarser grid."
        )
    if strict:
        require(ground.assumptions)
    target, shape = ground.target, (len(values), len(stops))
    alone, trust = ground.learning_time(target, accuracy), ground.trust
    steps = np.full((3, *shape), np.nan)
    done = 0
    try:
        for k in range(len(values)):
            steps[:, k] = _row(ground, k, stops, accuracy)
            done = k + 1
            progress(done / len(values))
    except OutOfTime:
        pass  # what is missing stays unknown, and is said
    grids = np.empty((GRIDS, *shape))
    grids[[0, 1, 5]] = steps
    _compare(grids[:5], alone.flow_steps)
    with np.errstate(invalid="ignore"):
        grids[6] = alone.descent_steps - grids[5]
    portrait = _labelled(vary, values, stops, grids, alone.flow_steps, alone.descent_steps)
    if done < len(values):
        portrait.attrs["given_up"] = f"only {done} of {len(values)} values were followed in the time given"
    return _stamped(portrait, ground, vary, values, accuracy, trust)


def _row(ground: Ground, task: int, stops: FloatArray, accuracy: float) -> FloatArray:
    """Flow steps of both stages and descent steps of the whole, for every stop of one first task."""
    one, two, counted = (np.full(len(stops), np.inf) for _ in range(3))
    first = ground.course(task, ground.start)
    whole = [float(ground.counted(task, [ground.start], float(stop))[0][0]) for stop in stops]
    for j, stop in enumerate(stops):
        one[j] = ground.steps_to(task, ground.start, float(stop), first)
        if math.isfinite(one[j]):
            two[j] = ground.steps_to(ground.target, ground.after(task, ground.start, one[j], first), accuracy)
    known = [j for j, n in enumerate(whole) if math.isfinite(n)]
    ends = [ground.descended(task, [ground.start], [int(whole[j])])[0][0] for j in known]
    if known:
        counted[known] = np.array([whole[j] for j in known]) + ground.counted(ground.target, ends, accuracy)[0]
    return np.stack([one, two, counted])


def _labelled(
    vary: str,
    values: Any,
    stops: FloatArray,
    grids: FloatArray,
    direct: float,
    direct_counted: float,
    **more: Any,
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


def _stamped(portrait: xr.Dataset, ground: Ground, vary: str, values: Any, accuracy: float, trust: Trust) -> xr.Dataset:
    given = np.asarray(values)
    known = given if given.dtype.kind in "fiu" else str(given.tolist())
    origin: Provenance = ground.provenance(vary, known, portrait["accuracy"].values, accuracy)
    return portrait.assign_attrs(
        target=ground.tasks[-1].name,
        learning_rate=ground.learning_rate,
        target_accuracy=accuracy,
        vary=vary,
        by=ground.by,
        forecast_class=trust.forecast_class,
        **{a.name: a.measured for a in trust.assumptions},
        **origin.as_attributes(),
    )
