"""The order in which modes, and tasks, are learned when recurrence is frozen or learned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.validation import FloatArray, between, evenly, positive, real_array
from learncast.networks.linear_rnn import Alignment, LinearRNN, check_fit
from learncast.procedure.goals import Accuracy
from learncast.procedure.training import Training
from learncast.results import Status
from learncast.tasks.geometry import ABSENT, Frame, common_frame
from learncast.tasks.task import Task
from learncast.theory import assumptions as conditions
from learncast.theory.assumptions import Assumption, exact
from learncast.theory.dynamics import mode_equation
from learncast.theory.dynamics.descent import descend
from learncast.theory.dynamics.recurrent_mode import (
    ModeTrajectory,
    checked_strengths,
    checked_weights,
    loss_constant,
    mode_flow,
    mode_loss,
    mode_trajectory,
    polynomial_values,
    polynomials_of,
)
from learncast.theory.dynamics.solution import worst_status
from learncast.theory.dynamics.statistics import WEIGHTS, LagStatistics
from learncast.theory.recurrence.long_run import ModeStart, long_run, weights_at
from learncast.theory.recurrence.stability import best_recurrence


class ModeProfile(NamedTuple):
    """Statistics of one mode of a task by lag behind the readout, lag 0 first.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.recurrence.order import mode_profiles
    >>> (profile,) = mode_profiles(lc.tasks.integration(steps=3))
    >>> profile.cross_strengths.round(6)
    array([1., 1., 1.])
    >>> profile.input_strengths.shape
    (3, 3)
    """

    cross_strengths: FloatArray
    input_strengths: FloatArray


@dataclass(frozen=True, eq=False)
class HalfTimes:
    """When modes have done half of their learning.

    Attributes
    ----------
    steps : (...)
        In gradient steps; infinite if never, `nan` if unknown.
    status : (...) of Status

    Examples
    --------
    >>> from learncast.theory.recurrence.order import half_loss_time
    >>> times = half_loss_time([[1.0, 0.0], [0.0, 1.0]], recurrence=0.5, input_weight=0.1, learn_recurrence=False)
    >>> times.steps.round(2)
    array([1.98,  inf])
    >>> [status.name for status in times.status]
    ['ok', 'not_learned']
    """

    steps: FloatArray
    status: NDArray[np.object_]


@dataclass(frozen=True, eq=False)
class Reversal:
    """Where along the initial recurrence two modes change their order.

    Attributes
    ----------
    recurrence : float
        The lowest such b0 in the range; `nan` if the order is the same throughout.
    recurrences : (reversals,)
        All of them.
    first_below : str
        Which mode is first at the lower end of the range: "first", "second" or "neither".

    Examples
    --------
    >>> from learncast.theory.recurrence.order import order_reversal
    >>> found = order_reversal([1.0, 0.0], [0.0, 1.5], initial=0.1, low=0.3, high=1.2, points=4)
    >>> found.first_below, round(found.recurrence, 3)
    ('first', 0.716)
    """

    recurrence: float
    recurrences: FloatArray
    first_below: str


@dataclass(frozen=True, eq=False)
class Precedence:
    """Which of two tasks is learned first.

    Attributes
    ----------
    first : str or None
        Name of the task whose slowest mode is first to halve its loss; None if neither is.
    steps : (2,)
        Gradient steps until that, of the one task and of the other.
    status : tuple of Status
    reason : str
        Why, in a sentence.
    assumptions : tuple of Assumption
        How nearly the tasks, and the network if one was given, fall apart into modes.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.recurrence.order import learned_first
    >>> weak = lc.tasks.integration(steps=5, name="weak")
    >>> strong = weak.varied(target_strength=2.0, name="strong")
    >>> found = learned_first(weak, strong)
    >>> found.first, found.steps.round(2)
    ('strong', array([0.88, 0.45]))
    """

    first: str | None
    steps: FloatArray
    status: tuple[Status, Status]
    reason: str
    assumptions: tuple[Assumption, ...]


def half_strength_time(
    cross_strengths: ArrayLike,
    input_strengths: ArrayLike | None = None,
    *,
    recurrence: ArrayLike,
    input_weight: ArrayLike,
    output_weight: ArrayLike | None = None,
    learning_rate: float = 1.0,
) -> HalfTimes:
    """Time until u = a c is half its optimum u* = P/Q, with frozen recurrence, in closed form.

    From a = c it is ln((u* - u_0) / u_0) / 2P with P = sum_k sig_k b^k: a value m steps earlier must be b^-m times
    larger to be learned as fast. All arrays broadcast over modes.

    Parameters
    ----------
    cross_strengths : (..., lags)
        sig_k = E[y x_{T-k}], lag 0 (the last input) first.
    input_strengths : (..., lags, lags), optional
        S_jk = E[x_{T-j} x_{T-k}]; white inputs of variance 1 unless told.
    recurrence : (...)
        b.
    input_weight, output_weight : (...)
        a and c before training; c = a unless told.
    learning_rate : float
        Flow time per gradient step.

    Returns
    -------
    HalfTimes
        Of every mode.

    Examples
    --------
    >>> from learncast.theory.recurrence.order import half_strength_time
    >>> half_strength_time([[1.0, 0.0], [0.0, 1.0]], recurrence=0.5, input_weight=0.1).steps.round(2)
    array([2.18, 3.66])
    """
    rate = positive("learning_rate", learning_rate)
    a, b, c = checked_weights(input_weight, recurrence, output_weight)
    P, _, Q, _ = _weighted(*checked_strengths(cross_strengths, input_strengths), b)
    with np.errstate(divide="ignore", invalid="ignore"):
        half = np.asarray(0.5 * P / Q)
        times = np.where(np.isnan(half), np.nan, _passage(a, c, P, Q, half))  # nan: no input, so nothing to learn from
    return _half_times(np.where(a * c * np.sign(P) >= np.abs(half), 0.0, times) / rate)


def half_loss_time(
    cross_strengths: ArrayLike,
    input_strengths: ArrayLike | None = None,
    *,
    recurrence: ArrayLike,
    input_weight: ArrayLike,
    output_weight: ArrayLike | None = None,
    learn_recurrence: bool = True,
    learning_rate: float = 1.0,
    share: float = 0.5,
) -> HalfTimes:
    """Time until the loss of modes is half what it was before training.

    With learned recurrence the flow is integrated, and the loss, which never rises along it, is followed to the
    moment it crosses. As u_0 tends to 0 the time tends to ln(1/u_0) / 2P(b_0): the order is then that of P, the
    larger and, for 0 < b_0 < 1, the later first. At larger u_0 the order can be another. With frozen recurrence it
    is a closed form.

    Parameters
    ----------
    cross_strengths, input_strengths, recurrence, input_weight, output_weight, learning_rate
        As in `half_strength_time`.
    learn_recurrence : bool
        Whether b learns too.
    share : float
        Part of the first loss to reach.

    Returns
    -------
    HalfTimes
        Of every mode.

    Examples
    --------
    >>> from learncast.theory.recurrence.order import half_loss_time
    >>> modes = [[1.0, 0.0], [0.0, 1.0]]
    >>> half_loss_time(modes, recurrence=0.5, input_weight=0.1).steps.round(2)
    array([1.97, 4.65])
    >>> half_loss_time(modes, recurrence=0.5, input_weight=0.1, learn_recurrence=False).steps.round(2)
    array([1.98,  inf])
    """
    rate = positive("learning_rate", learning_rate)
    part = between("share", share, 0.0, 1.0)
    start = checked_weights(input_weight, recurrence, output_weight)
    sig, S = checked_strengths(cross_strengths, input_strengths)
    level = part * mode_loss(*start, sig, S)
    if not learn_recurrence:
        return _half_times(_frozen_crossing(*start, sig=sig, S=S, level=level) / rate)
    a, b, c, level = np.broadcast_arrays(*start, level)
    sigs = np.broadcast_to(sig, (*level.shape, sig.shape[-1]))
    inputs = None if S is None else np.broadcast_to(S, (*level.shape, *S.shape[-2:]))
    times, status = np.empty(level.shape), np.empty(level.shape, dtype=object)
    for n in np.ndindex(level.shape):
        one = ModeStart(float(a[n]), float(b[n]), float(c[n]))
        times[n], status[n] = _crossing(one, sigs[n], None if inputs is None else inputs[n], float(level[n]))
    return HalfTimes(times / rate, status)


def descent_half_loss_time(task: Task, network: LinearRNN, *, learning_rate: float) -> float:
    """Flow time, steps times learning rate, in which descent halves the loss of a network; what `half_loss_time` tells.

    Between two steps the loss is interpolated.

    Parameters
    ----------
    task : Task
        With a known target covariance.
    network : LinearRNN
        Before training.
    learning_rate : float

    Returns
    -------
    float

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.recurrence.order import descent_half_loss_time, half_loss_time, mode_profiles
    >>> task = lc.tasks.integration(steps=5)
    >>> network = lc.LinearRNN.aligned(recurrence=0.5, initial=0.1, hidden_size=2)
    >>> print(round(descent_half_loss_time(task, network, learning_rate=1e-3), 2))
    0.88
    >>> (profile,) = mode_profiles(task)
    >>> round(half_loss_time(*profile, recurrence=0.5, input_weight=0.1).steps.item(), 2)
    0.88
    """
    training = Training(learning_rate, learn=WEIGHTS)
    first = descend(task, network, training, steps=0).loss[0]
    accuracy = 1 - math.sqrt(0.5 * first / (0.5 * task.target_power))
    loss = descend(task, network, training, goal=Accuracy(accuracy)).loss
    beyond = (loss[-2] - 0.5 * first) / (loss[-2] - loss[-1])
    return float(learning_rate * (len(loss) - 2 + beyond))


def order_reversal(
    first_strengths: ArrayLike,
    second_strengths: ArrayLike,
    input_strengths: ArrayLike | None = None,
    *,
    initial: float,
    learn_recurrence: bool = True,
    low: float = 0.0,
    high: float = 1.5,
    points: int = 17,
) -> Reversal:
    """Find the initial recurrence at which two modes change the order in which they are learned.

    With learned recurrence the order is that of the half-loss times, with frozen recurrence that of the times to half
    strength. Ties of the two are bracketed on a grid of b_0 and then located to 1e-10.

    Parameters
    ----------
    first_strengths, second_strengths : (lags,)
        sig_k of the two, lag 0 first.
    input_strengths : (lags, lags), optional
        As in `half_strength_time`, of both.
    initial : float
        Initial input and output weight a = c of both, so that u_0 = initial².
    learn_recurrence : bool
        Whether b learns too.
    low, high : float
        Range of b_0 to search.
    points : int
        Grid points in it; two reversals between neighbours cancel out.

    Returns
    -------
    Reversal

    Examples
    --------
    >>> from learncast.theory.recurrence.order import order_reversal
    >>> late, early = [1.0, 0.0], [0.0, 1.5]
    >>> found = order_reversal(late, early, initial=0.1, low=0.3, high=1.2, points=4)
    >>> found.first_below, round(found.recurrence, 3)
    ('first', 0.716)
    """
    size = positive("initial", initial)
    grid = evenly(low, high, points)
    pair = [real_array("strengths", s, ndim=1) for s in (first_strengths, second_strengths)]
    if len(pair[0]) != len(pair[1]):
        raise InvalidSpec(f"the two modes must have as many lags, got {len(pair[0])} and {len(pair[1])}.")
    modes = np.stack(pair)

    half_time = half_loss_time if learn_recurrence else half_strength_time

    def lead(b: float) -> float:  # positive if the first is first
        one, two = half_time(modes, input_strengths, recurrence=b, input_weight=size).steps
        if one == two or np.isnan(one + two):
            return 0.0
        with np.errstate(divide="ignore"):
            return float(np.clip(np.log(two) - np.log(one), -50.0, 50.0))  # finite also if one is never learned

    known = [(b, y) for b in grid if abs(y := lead(b)) > 1e-12]
    found = [
        float(scipy.optimize.brentq(lead, left, right, xtol=1e-10))
        for (left, before), (right, after) in pairwise(known)
        if before * after < 0
    ]
    below = "neither" if not known else "first" if known[0][1] > 0 else "second"
    return Reversal(found[0] if found else math.nan, np.array(found), below)


def effective_start(network: LinearRNN, cross_strengths: ArrayLike | None = None) -> ModeStart:
    """Return the aligned start that learns like an unaligned network with small weights.

    For one input, one output and W_h = b_0 times the identity: a_0 = c_0 = |W_x + W_y'| / 2. While weights are small
    W_x + W_y' grows at the rate P(b_0) and W_x - W_y' shrinks at it; if P(b_0) is negative it is the other way round,
    and a_0 = -c_0 = |W_x - W_y'| / 2. Exact as the weights tend to 0. Half-loss times of leaky integration are off by
    0.02% for weight vectors of length 0.03, by 0.3% at 0.1 and by 5% at 0.3; slower tasks fare worse.

    Parameters
    ----------
    network : LinearRNN
    cross_strengths : (lags,), optional
        Of the task, for the sign of P; positive unless told.

    Returns
    -------
    ModeStart
        Weights a, b and c of the one mode.

    Raises
    ------
    UnsupportedModel
        If the network has more than one input or output, or recurrent weights that are no multiple of the identity.

    Examples
    --------
    >>> import numpy as np
    >>> import learncast as lc
    >>> from learncast.theory.recurrence.order import effective_start
    >>> network = lc.LinearRNN(np.array([[0.03], [0.01]]), 0.5 * np.eye(2), np.array([[0.01, 0.03]]))
    >>> start = effective_start(network)
    >>> round(start.input_weight, 4), start.recurrence
    (0.0283, 0.5)
    """
    b = float(network.recurrent_weights[0, 0])
    off = float(np.abs(network.recurrent_weights - b * np.eye(network.hidden_size)).max())
    if (network.inputs, network.outputs) != (1, 1) or off > 1e-12 * max(abs(b), 1.0):
        raise UnsupportedModel(
            "an effective start needs one input, one output and recurrent weights b times the identity, got "
            f"{network.inputs} inputs, {network.outputs} outputs and a largest deviation of {off:.3g}. Start "
            "from LinearRNN.aligned, or integrate the network's own flow."
        )
    W_x, W_y = network.input_weights[:, 0], network.output_weights[0]
    sig, _ = checked_strengths([1.0] if cross_strengths is None else cross_strengths, None, ndim=1)
    sign = -1.0 if _weighted(sig, None, np.float64(b))[0] < 0 else 1.0
    size = float(np.linalg.norm(W_x + sign * W_y)) / 2
    return ModeStart(size, b, sign * size)


def mode_profiles(task: Task) -> tuple[ModeProfile, ...]:
    """Return the statistics by lag of every mode that the task has, the strongest first.

    Parameters
    ----------
    task : Task

    Returns
    -------
    tuple of ModeProfile

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.recurrence.order import half_strength_time, mode_profiles
    >>> (profile,) = mode_profiles(lc.tasks.integration(steps=3))
    >>> round(half_strength_time(*profile, recurrence=0.5, input_weight=0.1).steps.item(), 2)
    1.4
    """
    return _profiles(task, common_frame([task]))


def learned_first(
    first: Task,
    second: Task,
    network: LinearRNN | None = None,
    *,
    recurrence: float = 0.5,
    initial: float = 0.1,
    learn_recurrence: bool = True,
    learning_rate: float = 1.0,
) -> Precedence:
    """Say which of two tasks the same network learns first, and why.

    A task is learned when every mode it has has halved its loss.

    Parameters
    ----------
    first, second : Task
    network : LinearRNN, optional
        Before training: aligned with the modes of both tasks, or with one input, one output and scalar recurrence
        (`effective_start`). Without it every mode starts from `recurrence` and `initial`.
    recurrence, initial : float
        b, and a = c, of every mode.
    learn_recurrence : bool
        Whether b learns too.
    learning_rate : float
        Flow time per gradient step.

    Returns
    -------
    Precedence

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.recurrence.order import learned_first
    >>> weak = lc.tasks.integration(steps=5, name="weak")
    >>> strong = weak.varied(target_strength=2.0, name="strong")
    >>> found = learned_first(weak, strong, recurrence=0.5, initial=0.1)
    >>> found.first
    'strong'
    >>> print(found.reason.split(":")[0])
    strong halves its loss first, after 0.4509 steps against 0.8788 for weak
    """
    size, b = float(real_array("initial", initial, ndim=0)), float(real_array("recurrence", recurrence, ndim=0))
    found: list[_SlowestMode] = []
    measured: list[list[Assumption]] = []
    for task in (first, second):
        frame = common_frame([task])
        profiles = _profiles(task, frame)
        if not profiles:
            raise InvalidSpec(f"task {task.name!r} must ask for something, got a target that co-varies with no input.")
        starts = [ModeStart(size, b, size)] * len(profiles)
        measured.append([conditions.static_geometry(task, frame), conditions.aligned_input_covariance(task, frame)])
        if network is not None:
            starts, more = _network_starts(network, task, frame, profiles)
            measured[-1] += more
        modes = [_slowness(*mode, learn_recurrence, learning_rate) for mode in zip(profiles, starts, strict=True)]
        found.append(max(modes, key=lambda mode: math.inf if math.isnan(mode.steps) else mode.steps))
    steps = np.array([mode.steps for mode in found])
    names = first.name, second.name if second.name != first.name else f"{second.name} (second)"
    winner = None if np.isnan(steps).any() or steps[0] == steps[1] else int(np.argmin(steps))
    one, two = (
        worst_status((mode.status, Status.ok if exact(m) else Status.outside_theory))
        for mode, m in zip(found, measured, strict=True)
    )
    reason = _reason(winner, names, found)
    return Precedence(None if winner is None else names[winner], steps, (one, two), reason, conditions.worst(measured))


class _SlowestMode(NamedTuple):
    """The mode of a task that is last to halve its loss, and what decided when."""

    steps: float
    status: Status
    recurrence: float
    pull: float  # P(b_0), towards the sign of u
    size: float  # |sig|
    mean_lag: float


def _slowness(profile: ModeProfile, start: ModeStart, learned: bool, rate: float) -> _SlowestMode:
    time = half_loss_time(*profile, **start._asdict(), learn_recurrence=learned, learning_rate=rate)
    pull = float(_weighted(*profile, np.float64(start.recurrence))[0])
    pull = -pull if start.strength < 0 else pull
    sizes = np.abs(profile.cross_strengths)
    lag = float(sizes @ np.arange(len(sizes)) / sizes.sum())
    return _SlowestMode(
        float(time.steps), time.status.item(), start.recurrence, pull, float(np.linalg.norm(sizes)), lag
    )


def _network_starts(
    network: LinearRNN, task: Task, frame: Frame, profiles: Sequence[ModeProfile]
) -> tuple[list[ModeStart], list[Assumption]]:
    check_fit(task, network)
    found = Alignment.of(network, frame)
    measured = [
        Assumption("normal_recurrence", found.recurrence_residual),
        Assumption("aligned_start", found.start_residual),
    ]
    if not exact(measured) and (network.inputs, network.outputs) == (1, 1):
        # The effective start is a limit for small weights, so the misalignment stays reported.
        return [effective_start(network, profile.cross_strengths) for profile in profiles], measured
    weights = zip(found.input_weight, found.recurrence, found.output_weight, strict=True)
    return [ModeStart(float(a), float(b), float(c)) for a, b, c in weights][: len(profiles)], measured


def _profiles(task: Task, frame: Frame) -> tuple[ModeProfile, ...]:
    """Modes that the task has; a frame lists them first."""
    cross = task.cross_covariance.rotated(frame.mode_inputs, frame.mode_outputs).diagonal()
    inputs = task.input_covariance.rotated(frame.mode_inputs, frame.mode_inputs).diagonal()
    sizes = np.linalg.norm(cross, axis=(1, 2))
    found = []
    for k in range(int((sizes > ABSENT * sizes.max(initial=0.0)).sum())):
        over_time = cross[k][:, None, :, None] if task.targets == "every_step" else cross[k][:, :1, None]
        statistics = LagStatistics.from_covariances(inputs[k][:, None, :, None], over_time)
        found.append(ModeProfile(statistics.cross[:, 0, 0], statistics.input.reshape(statistics.lags, -1)))
    return tuple(found)


def _reason(winner: int | None, names: tuple[str, str], modes: list[_SlowestMode]) -> str:
    if winner is None:
        steps = modes[0].steps, modes[1].steps
        if math.isnan(sum(steps)):
            return "at least one of the times is not known"
        both = "halve their loss together" if math.isfinite(steps[0]) else "never halve their loss from this start"
        return f"{names[0]} and {names[1]} {both}"
    one, two = modes[winner], modes[1 - winner]
    rival = f"{two.steps:.4g}" if math.isfinite(two.steps) else "never"
    size = _compared(one.size, two.size, ("smaller", "equally large", "larger"))
    place = _compared(one.mean_lag, two.mean_lag, ("later", "as late", "earlier"))
    pull = _compared(one.pull, two.pull, ("weaker", "equal", "stronger"))
    join = "although" if pull == "weaker" else "and"
    end = "" if pull == "stronger" else "; what decides is how recurrence and strength grow from there on"
    return (
        f"{names[winner]} halves its loss first, after {one.steps:.4g} steps against {rival} for {names[1 - winner]}: "
        f"its strengths are {size} ({one.size:.3g} against {two.size:.3g}) and come {place} (mean lag "
        f"{one.mean_lag:.3g} against {two.mean_lag:.3g}), {join} where a value k steps before the end counts "
        f"{one.recurrence:.3g}^k the first pull on it is {pull} ({one.pull:.3g} against {two.pull:.3g}){end}"
    )


def _compared(one: float, other: float, words: tuple[str, str, str]) -> str:
    """Say whether the first is less, equal or more, up to rounding."""
    return words[1 + int(one > other * (1 + 1e-9)) - int(one < other * (1 - 1e-9))]


def _weighted(sig: FloatArray, S: FloatArray | None, b: Any) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """P, P', Q and Q' at b."""
    with np.errstate(over="ignore", invalid="ignore"):
        P, dP, _, Q, dQ, _ = polynomial_values(polynomials_of(sig, S), b)
    return P, dP, Q, dQ


def _passage(a: FloatArray, c: FloatArray, P: FloatArray, Q: FloatArray, end: FloatArray) -> FloatArray:
    return mode_equation.time_between(a * c, end, (a - c) * (a + c), P, Q)


def _half_times(times: FloatArray) -> HalfTimes:
    times = np.asarray(times)
    kinds = np.array([Status.ok, Status.not_learned, Status.outside_theory], dtype=object)
    return HalfTimes(times, np.asarray(kinds[np.isinf(times) + 2 * np.isnan(times)], dtype=object))


def _frozen_crossing(
    a: FloatArray, b: FloatArray, c: FloatArray, *, sig: FloatArray, S: FloatArray | None, level: FloatArray
) -> FloatArray:
    """Flow time at which the loss constant - u P + u² Q/2 falls to a level while b stays."""
    P, _, Q, _ = _weighted(sig, S, b)
    Q = np.where(Q > 0, Q, np.nan)  # without input there is nothing to learn from
    square = 2 * (level - loss_constant(sig, S, None)) / Q + (P / Q) ** 2  # (u - u*)² at the level
    side = np.sign(P / Q - a * c)
    times = _passage(a, c, P, Q, P / Q - side * np.sqrt(np.maximum(square, 0.0)))
    there = mode_loss(a, b, c, sig, S) <= level
    return np.where(there, 0.0, np.where(square <= 0, np.inf, times))


def _crossing(start: ModeStart, sig: FloatArray, S: FloatArray | None, level: float) -> tuple[float, Status]:
    """Flow time at which the loss of one mode, which never rises, falls to a level while b learns."""
    a, b, c = start
    if not math.isfinite(level):
        return math.nan, Status.diverged
    P, dP, Q, dQ = (float(v) for v in _weighted(sig, S, np.float64(b)))
    if (b == 0 == dP == dQ) or a * c == 0 == (a - c) * (a + c) or P == 0 == a * c * Q:  # then b never moves
        time = float(_frozen_crossing(*(np.asarray(w) for w in start), sig=sig, S=S, level=np.asarray(level)))
        return time, Status.ok if time < math.inf else Status.not_learned
    if float(mode_loss(*start, sig, S)) <= level:
        return 0.0, Status.ok
    moved = True
    for begun, path, moving in long_run(start, sig, S):
        time = crossing_time(path, level, sig, S)
        if not math.isnan(time):
            return begun + time, Status.ok
        if path.status != "ok":
            return math.nan, Status.diverged if path.status == "diverged" else Status.outside_theory
        end, moved = weights_at(path, -1), moving
        there = best_recurrence(sig, S).near(end.recurrence, end.strength)
        if there is not None and there.loss >= level:
            return math.inf, Status.not_learned
    return (math.nan, Status.outside_theory) if moved else (math.inf, Status.not_learned)


def crossing_time(
    path: ModeTrajectory, level: float, cross_strengths: ArrayLike, input_strengths: ArrayLike | None = None
) -> float:
    """Time at which the loss of one mode, which never rises, falls to a level along a trajectory in flow time.

    By Newton, dE/dtau = -|flow|², between the times that hold it; `nan` if it does not fall so far.

    Parameters
    ----------
    path : ModeTrajectory
        From above the level.
    level : float
    cross_strengths, input_strengths
        As in `half_loss_time`, of one mode.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from learncast.theory.recurrence.order import crossing_time
    >>> from learncast.theory.dynamics.recurrent_mode import mode_trajectory
    >>> strengths = [1.0, 0.8, 0.64]
    >>> path = mode_trajectory(np.linspace(0.0, 5.0, 11), 0.2, 0.5, 0.2, strengths)
    >>> print(round(crossing_time(path, 0.5 * path.loss[0], strengths), 4))
    0.7738
    """
    below = np.flatnonzero(path.loss <= level)
    if not len(below):
        return math.nan
    n = max(1, int(below[0]))
    begun, gap = float(path.times[n - 1]), float(path.times[n] - path.times[n - 1])
    start = here = weights_at(path, n - 1)
    low, high, time, excess = 0.0, gap, 0.0, float(path.loss[n - 1]) - level
    for _ in range(60):
        speed = float(np.sum(np.square(mode_flow(*here, cross_strengths, input_strengths))))
        after = time + excess / speed if speed > 0 else math.inf
        after = after if low <= after <= high else (low + high) / 2
        if abs(after - time) <= 1e-12 * gap or excess == 0:
            break
        time = after
        there = mode_trajectory(time, *start, cross_strengths, input_strengths)
        here, excess = weights_at(there, 0), float(there.loss[0]) - level
        low, high = (time, high) if excess > 0 else (low, time)
    return begun + time
