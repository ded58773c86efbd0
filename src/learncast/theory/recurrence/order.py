"""The order in which modes and tasks are learned, with frozen or learned recurrence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, evenly, positive, real_array
from learncast.networks.linear_rnn import LinearRNN
from learncast.procedure.goals import Accuracy
from learncast.procedure.training import Training
from learncast.results import Status
from learncast.tasks.task import Task
from learncast.theory.dynamics import mode_equation
from learncast.theory.dynamics.descent import descend
from learncast.theory.dynamics.recurrent_mode import (
    ModeStart,
    ModeTrajectory,
    checked_strengths,
    checked_weights,
    long_run,
    loss_constant,
    mode_flow,
    mode_loss,
    mode_trajectory,
    polynomial_values,
    polynomials_of,
    weights_at,
)
from learncast.theory.dynamics.statistics import WEIGHTS
from learncast.theory.recurrence.optimum import best_recurrence


@dataclass(frozen=True, eq=False)
class HalfTimes:
    """Times at which modes have done half of their learning.

    Attributes
    ----------
    steps : (...)
        Gradient steps; infinite if never, nan if unknown.
    status : (...) of Status

    Examples
    --------
    >>> from learncast.theory import half_loss_time
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
    """Initial recurrences b_0 at which two modes exchange their order.

    Attributes
    ----------
    recurrence : float
        The lowest b_0 in the range; nan if the order does not change.
    recurrences : (reversals,)
        All b_0 in the range.

    Examples
    --------
    >>> from learncast.theory import order_reversal
    >>> reversal = order_reversal([1.0, 0.0], [0.0, 1.5], initial=0.1, low=0.3, high=1.2, points=4)
    >>> round(reversal.recurrence, 3)
    0.716
    """

    recurrence: float
    recurrences: FloatArray


def half_strength_time(
    cross_strengths: ArrayLike,
    input_strengths: ArrayLike | None = None,
    *,
    recurrence: ArrayLike,
    input_weight: ArrayLike,
    output_weight: ArrayLike | None = None,
    learning_rate: float = 1.0,
) -> HalfTimes:
    """Return the time until u = a c is half its optimum u* = P/Q, with frozen recurrence, in closed form.

    From a = c the time is ln((u* - u_0) / u_0) / 2P with P = sum_k sig_k b^k. An input m steps earlier must therefore
    be b^-m times stronger to be learned as fast. All arrays broadcast over modes.

    Parameters
    ----------
    cross_strengths : (..., lags)
        sig_k = E[y x_{T-k}], lag 0 (the last input) first.
    input_strengths : (..., lags, lags), optional
        S_jk = E[x_{T-j} x_{T-k}]; white inputs of variance 1 by default.
    recurrence : (...)
        b.
    input_weight, output_weight : (...)
        a and c before training; c = a by default.
    learning_rate : float
        Flow time per gradient step.

    Returns
    -------
    HalfTimes

    Examples
    --------
    >>> from learncast.theory import half_strength_time
    >>> half_strength_time([[1.0, 0.0], [0.0, 1.0]], recurrence=0.5, input_weight=0.1).steps.round(2)
    array([2.18, 3.66])
    """
    rate = positive("learning_rate", learning_rate)
    a, b, c = checked_weights(input_weight, recurrence, output_weight)
    P, _, Q, _ = _polynomials_at(*checked_strengths(cross_strengths, input_strengths), b)
    with np.errstate(divide="ignore", invalid="ignore"):
        half = np.asarray(0.5 * P / Q)
        times = np.where(np.isnan(half), np.nan, _time_to_strength(a, c, P, Q, half))  # nan: no input
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
) -> HalfTimes:
    """Return the time until the loss of each mode is half of that before training.

    With frozen recurrence there is a closed form. With learned recurrence the flow is integrated until the loss, which
    never rises, crosses the level. As u_0 tends to 0 the time tends to ln(1/u_0) / 2P(b_0). Modes are then learned in
    the order of P: larger ones first and, for 0 < b_0 < 1, later inputs first. The order can differ at larger u_0.

    Parameters
    ----------
    cross_strengths, input_strengths, recurrence, input_weight, output_weight, learning_rate
        As in `half_strength_time`.
    learn_recurrence : bool
        Whether b is learned.

    Returns
    -------
    HalfTimes

    Examples
    --------
    >>> from learncast.theory import half_loss_time
    >>> modes = [[1.0, 0.0], [0.0, 1.0]]
    >>> half_loss_time(modes, recurrence=0.5, input_weight=0.1).steps.round(2)
    array([1.97, 4.65])
    >>> half_loss_time(modes, recurrence=0.5, input_weight=0.1, learn_recurrence=False).steps.round(2)
    array([1.98,  inf])
    """
    rate = positive("learning_rate", learning_rate)
    start = checked_weights(input_weight, recurrence, output_weight)
    sig, S = checked_strengths(cross_strengths, input_strengths)
    level = 0.5 * mode_loss(*start, sig, S)
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
    """Measure the flow time (steps times learning rate) in which gradient descent halves the loss of a network.

    `half_loss_time` predicts it. The loss is interpolated between steps.

    Parameters
    ----------
    task : Task
        Task with a known target covariance.
    network : LinearRNN
        Network before training.
    learning_rate : float

    Returns
    -------
    float

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory import descent_half_loss_time, half_loss_time
    >>> task = lc.tasks.integration(steps=5)
    >>> network = lc.LinearRNN.aligned(recurrence=0.5, initial=0.1, hidden_size=2)
    >>> print(round(descent_half_loss_time(task, network, learning_rate=1e-3), 2))
    0.88
    >>> round(half_loss_time([1.0] * 5, recurrence=0.5, input_weight=0.1).steps.item(), 2)
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
    *,
    initial: float,
    learn_recurrence: bool = True,
    low: float = 0.0,
    high: float = 1.5,
    points: int = 17,
) -> Reversal:
    """Find the initial recurrences at which two modes exchange the order in which they are learned.

    The order is that of the half-loss times for learned recurrence, and of the half-strength times for frozen
    recurrence. Ties are bracketed on a grid of b_0 and then located to 1e-10.

    Parameters
    ----------
    first_strengths, second_strengths : (lags,)
        sig_k of the two modes, lag 0 first.
    initial : float
        Initial weights a = c of both modes, so that u_0 = initial².
    learn_recurrence : bool
        Whether b is learned.
    low, high : float
        Range of b_0 to search.
    points : int
        Grid points; two reversals between neighbouring points are missed.

    Returns
    -------
    Reversal

    Examples
    --------
    >>> from learncast.theory import order_reversal
    >>> late, early = [1.0, 0.0], [0.0, 1.5]
    >>> reversal = order_reversal(late, early, initial=0.1, low=0.3, high=1.2, points=4)
    >>> round(reversal.recurrence, 3)
    0.716
    """
    size = positive("initial", initial)
    grid = evenly(low, high, points)
    pair = [real_array("strengths", s, ndim=1) for s in (first_strengths, second_strengths)]
    if len(pair[0]) != len(pair[1]):
        lags = f"{len(pair[0])} and {len(pair[1])}"
        raise InvalidSpec(f"Both modes must have the same number of lags, got {lags}.", field="second_strengths")
    modes = np.stack(pair)

    half_time = half_loss_time if learn_recurrence else half_strength_time

    def lead(b: float) -> float:  # positive if the first mode is learned first
        one, two = half_time(modes, recurrence=b, input_weight=size).steps
        if one == two or np.isnan(one + two):
            return 0.0
        with np.errstate(divide="ignore"):
            return float(np.clip(np.log(two) - np.log(one), -50.0, 50.0))  # finite if one is never learned

    known = [(b, y) for b in grid if abs(y := lead(b)) > 1e-12]
    reversals = [
        float(scipy.optimize.brentq(lead, left, right, xtol=1e-10))
        for (left, before), (right, after) in pairwise(known)
        if before * after < 0
    ]
    return Reversal(reversals[0] if reversals else math.nan, np.array(reversals))


def _polynomials_at(sig: FloatArray, S: FloatArray | None, b: ArrayLike) -> tuple[FloatArray, ...]:
    """Return P, P', Q and Q' at b."""
    with np.errstate(over="ignore", invalid="ignore"):
        P, dP, _, Q, dQ, _ = polynomial_values(polynomials_of(sig, S), np.asarray(b))
    return P, dP, Q, dQ


def _time_to_strength(a: FloatArray, c: FloatArray, P: FloatArray, Q: FloatArray, u: FloatArray) -> FloatArray:
    return mode_equation.time_between(a * c, u, (a - c) * (a + c), P, Q)


def _half_times(times: FloatArray) -> HalfTimes:
    times = np.asarray(times)
    kinds = np.array([Status.ok, Status.not_learned, Status.outside_theory], dtype=object)
    return HalfTimes(times, np.asarray(kinds[np.isinf(times) + 2 * np.isnan(times)], dtype=object))


def _frozen_crossing(
    a: FloatArray, b: FloatArray, c: FloatArray, *, sig: FloatArray, S: FloatArray | None, level: FloatArray
) -> FloatArray:
    """Return the flow time at which the loss constant - u P + u² Q/2 falls to a level, with frozen b."""
    P, _, Q, _ = _polynomials_at(sig, S, b)
    Q = np.where(Q > 0, Q, np.nan)  # no input
    square = 2 * (level - loss_constant(sig, S, None)) / Q + (P / Q) ** 2  # (u - u*)² at the level
    side = np.sign(P / Q - a * c)
    times = _time_to_strength(a, c, P, Q, P / Q - side * np.sqrt(np.maximum(square, 0.0)))
    reached = mode_loss(a, b, c, sig, S) <= level
    return np.where(reached, 0.0, np.where(square <= 0, np.inf, times))


def _crossing(start: ModeStart, sig: FloatArray, S: FloatArray | None, level: float) -> tuple[float, Status]:
    """Return the flow time at which the loss of one mode falls to a level, with learned b."""
    a, b, c = start
    if not math.isfinite(level):
        return math.nan, Status.diverged
    P, dP, Q, dQ = (float(v) for v in _polynomials_at(sig, S, b))
    if (b == 0 == dP == dQ) or a * c == 0 == (a - c) * (a + c) or P == 0 == a * c * Q:  # b never moves
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
        optimum = best_recurrence(sig, S).near(end.recurrence, end.strength)
        if optimum is not None and optimum.loss >= level:
            return math.inf, Status.not_learned
    return (math.nan, Status.outside_theory) if moved else (math.inf, Status.not_learned)


def crossing_time(
    path: ModeTrajectory, level: float, cross_strengths: ArrayLike, input_strengths: ArrayLike | None = None
) -> float:
    """Return the time at which the loss of one mode falls to a level along a trajectory in flow time.

    Newton's method with dE/dtau = -|flow|² is used between the times that bracket it. The result is nan if the loss
    stays above the level.

    Parameters
    ----------
    path : ModeTrajectory
        Trajectory that starts above the level.
    level : float
    cross_strengths, input_strengths
        Strengths of the mode, as in `half_loss_time`.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from learncast.theory import crossing_time
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
