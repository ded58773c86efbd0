"""The phase portrait: where in task space, and at which stop, pretraining pays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from learncast.assumptions import Assumption, require, stable_learning_rate, worst
from learncast.dynamics import mode_equation
from learncast.dynamics.modes import Modes, modes_of, recurrence_kernel
from learncast.dynamics.response_bootstrap import bounds
from learncast.dynamics.response_modes import solution_of
from learncast.dynamics.response_trials import seed_of
from learncast.errors import InvalidSpec
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.planning.curricula.explanation import singular_accuracy
from learncast.planning.curricula.passage import Problem
from learncast.progress import Progress, silent
from learncast.tasks.covariance import Kronecker
from learncast.tasks.families import FAMILIES, checked_channels
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
    rate = positive("learning_rate", learning_rate, why="training moves against the gradient")
    accuracy = between("accuracy", accuracy, 0.0, 1.0, why="it is one minus the tolerance")
    stops = _checked_accuracies(accuracies)
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
    _check_size(len(values), len(stops))
    seed = seed_of(rng)
    own = modes_of([target], network, rng=seed)[0]
    firsts, measured, replicas = _first_tasks(target, own, network, vary, values, seed)
    direct = solution_of(own, network, rate)
    sharp = mode_equation.sharpness(own.start, own.imbalance, firsts.cross, firsts.power)
    if strict:
        require(worst([direct.assumptions, measured]))
        require([stable_learning_rate(rate, sharp)])
    second = Problem(own.weighted_cross, own.weighted_input, own.imbalance)
    grids = _timed(own.start, firsts, second, 1.0 - stops, 1.0 - accuracy, rate, progress)
    direct_steps = direct.time_to(accuracy).flow_steps
    portrait = _labelled(vary, values, stops, grids, direct_steps, firsts, own, sharp * rate <= 2.0)
    if replicas is not None:
        portrait = portrait.assign(_intervals(vary, own, replicas, 1.0 - stops, 1.0 - accuracy, rate))
    return portrait.assign_attrs(
        target=target.name,
        learning_rate=rate,
        target_accuracy=accuracy,
        vary=vary,
        **{a.name: a.measured for a in worst([direct.assumptions, measured, [stable_learning_rate(rate, sharp)]])},
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


def _first_tasks(
    target: Task, own: Modes, network: LinearRNN | Activated, vary: str, values: Any, seed: int
) -> tuple[Problem, tuple[Assumption, ...], list[Problem] | None]:
    """Weighted strengths of every first task, (values, 1, modes), the worst of each condition, and replicas."""
    batch = _batched(target, own, vary, values) if isinstance(network, LinearRNN) else None
    if batch is not None:
        cross, power = batch
        return Problem(cross[:, None, :], power[:, None, :], own.imbalance), own.assumptions, None
    tasks = [target.varied(**{vary: _as_given(target, vary, value)}) for value in values]
    # The target first: its frame is the common one.
    each = modes_of([target, *tasks], network, rng=seed)[1:]
    cross = np.stack([m.weighted_cross for m in each])[:, None, :]
    power = np.stack([m.weighted_input for m in each])[:, None, :]
    measured = [m.replicas for m in each]
    replicas = [Problem(r[0][:, None, :], r[1][:, None, :], own.imbalance) for r in measured if r is not None]
    return Problem(cross, power, own.imbalance), worst(m.assumptions for m in each), replicas or None


def _intervals(
    vary: str, own: Modes, firsts: list[Problem], tolerances: FloatArray, target_tolerance: float, learning_rate: float
) -> dict[str, Any]:
    """Ends of the confidence intervals over the grid, one first task at a time."""
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


def _as_given(target: Task, vary: str, value: Any) -> Any:
    """A single number for a keyword the target has per channel stands for all channels."""
    own = target.recipe.parameters.get(vary) if target.recipe else None
    return [value] * len(own) if np.ndim(own) == 1 and np.ndim(value) == 0 else value  # type: ignore[arg-type]


def _batched(target: Task, own: Modes, vary: str, values: Any) -> tuple[FloatArray, FloatArray] | None:
    """Weighted strengths of all variants at once, where they share the target's geometry by construction.

    That is so when the family's channel keywords are single numbers: variants then differ in their time profile alone,
    and mode k is that profile times the strengths of the target's own channel pattern.
    """
    recipe = target.recipe
    if recipe is None or recipe.name not in FAMILIES:
        return None
    family = FAMILIES[recipe.name]
    keywords = {key: recipe.parameters[key] for key in family.channel_keywords}
    if vary not in keywords or any(np.ndim(value) for value in keywords.values()) or np.ndim(values) != 1:
        return None
    keywords[vary] = values
    checked = {key: checked_channels(key, value) for key, value in keywords.items()}
    with np.errstate(over="ignore", invalid="ignore"):
        profile = family.profile(steps=target.steps, targets=target.targets, **checked)
        cross_time, input_time = profile.cross, profile.input
        cross, power = np.empty((len(values), len(own))), np.empty((len(values), len(own)))
        # One time pattern means one channel pattern, the mixing matrix; in the frame it is diagonal.
        pattern = target.cross_covariance.rotated(own.frame.mode_inputs, own.frame.mode_outputs)
        assert isinstance(pattern, Kronecker)
        channel = np.diagonal(pattern.channel[0])
        for b in sorted(set(own.recurrence.tolist())):
            here = own.recurrence == b
            kernel = recurrence_kernel(b, target.steps, cross_time.shape[-1])
            cross[:, here] = np.outer(_summed(cross_time, kernel, len(values)), channel[here])
            power[:, here] = _summed(input_time, kernel @ kernel.T, len(values))[:, None]
    if not (np.isfinite(cross).all() and np.isfinite(power).all()):
        raise InvalidSpec(
            required=f"every value of {vary} must give finite statistics",
            got="an overflow",
            why="input and recurrence together grow beyond floating point over a trial",
            remedy="narrow the values or shorten the trial",
        )
    return cross, power


def _summed(profiles: FloatArray, kernel: FloatArray, number: int) -> FloatArray:
    """Sum of profile x kernel over both steps for each variant; a profile the variants share counts for all."""
    sums = profiles.reshape(-1, kernel.size) @ kernel.ravel()
    return np.broadcast_to(sums, (number,))


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


def _labelled(
    vary: str,
    values: Any,
    stops: FloatArray,
    grids: tuple[FloatArray, FloatArray],
    direct: float,
    firsts: Problem,
    own: Modes,
    stable: NDArray[np.bool_],
) -> xr.Dataset:
    one, two = grids
    total = one + two
    with np.errstate(invalid="ignore", divide="ignore"):
        speedup = direct - total  # inf - inf is nan: unknown
        ratio = np.where((total == 0) & (direct == 0), 1.0, direct / total)
        optimum = (firsts.cross / firsts.power)[:, 0, :]
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
            "stable": (vary, stable.all(axis=(1, 2)), described("descent is stable on the first task", "1")),
        },
        coords={
            vary: (vary, np.asarray(values) if plain else np.arange(len(values))),
            "accuracy": ("accuracy", stops, described("accuracy at which the first task stops", "1")),
        },
    )
