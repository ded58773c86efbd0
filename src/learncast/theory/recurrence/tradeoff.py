"""The trade-off between recurrent and feedforward computation: whether training uses or ignores the past."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import numpy as np
import scipy
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, count, evenly
from learncast.theory.dynamics.recurrent_mode import (
    checked_strengths,
    checked_weights,
    loss_constant,
    polynomial_values,
    polynomials_of,
)
from learncast.theory.recurrence.optimum import Optimum, RecurrenceFit, best_recurrence

#: Change of the recurrence that counts as a jump if it persists in a vanishing range of the parameter.
JUMP = 1e-3
#: Difference of the unexplained shares of two optima that counts as a tie.
EQUAL = 1e-10


@dataclass(frozen=True, eq=False)
class LossTerms:
    """The terms of the loss of a mode: constant + data + regulariser.

    Attributes
    ----------
    constant : (...)
        Half the mean square of the target.
    data : (...)
        -u P(b), the covariance of response and target.
    regulariser : (...)
        u² Q(b) / 2, the power of the response: a penalty on weights that grows with trial length and with |b|. It is
        part of the squared error, not an addition to it. At the best u, data = -2 regulariser.

    Examples
    --------
    >>> from learncast.theory import loss_terms
    >>> terms = loss_terms(1.0, 0.5, 0.8, [1.0, 0.5, 0.25])
    >>> [round(float(one), 4) for one in (terms.constant, terms.data, terms.regulariser, terms.loss)]
    [0.6562, -1.05, 0.42, 0.0263]
    """

    constant: FloatArray
    data: FloatArray
    regulariser: FloatArray

    @property
    def loss(self) -> FloatArray:
        """Sum of the terms."""
        return self.constant + self.data + self.regulariser

    @property
    def least_loss(self) -> FloatArray:
        """Loss at the best multiple of u, constant - data² / 4 regulariser."""
        return self.constant - self.data**2 / (4 * self.regulariser)


@dataclass(frozen=True)
class RecurrenceTransition:
    """A transition of the best recurrence in a family of tasks with one parameter.

    Attributes
    ----------
    parameter : float
        Parameter at the transition; nan if there is none in the range.
    kind : str
        "first order" (the best recurrence jumps), "continuous" (it leaves 0 without a jump) or "none".
    below, above : float
        Best recurrence on either side.
    bistable_from, bistable_to : float
        Range of the parameter around a first-order transition in which both sides are local optima, so that the end of
        training depends on its start; -inf or inf if it extends beyond the range searched.

    Examples
    --------
    >>> from learncast.theory import two_pulse_transition
    >>> change = two_pulse_transition(steps=6, lag=3)
    >>> change.kind, change.below, change.above > 0.5
    ('first order', 0.0, True)
    """

    parameter: float
    kind: str
    below: float
    above: float
    bistable_from: float = math.nan
    bistable_to: float = math.nan


def loss_terms(
    input_weight: ArrayLike,
    recurrence: ArrayLike,
    output_weight: ArrayLike,
    cross_strengths: ArrayLike,
    input_strengths: ArrayLike | None = None,
    *,
    constant: ArrayLike | None = None,
) -> LossTerms:
    """Split the loss of modes into constant, data term -u P and regulariser u² Q / 2.

    All arrays broadcast over modes, or over the times of a trajectory.

    Parameters
    ----------
    input_weight, recurrence, output_weight : (...)
        a, b and c.
    cross_strengths : (..., lags)
        sig_k = E[y x_{T-k}], lag 0 (the last input) first.
    input_strengths : (..., lags, lags), optional
        White inputs of variance 1 by default.
    constant : (...), optional
        By default that of a target which the inputs determine.

    Returns
    -------
    LossTerms

    Examples
    --------
    >>> from learncast.theory import loss_terms
    >>> terms = loss_terms(1.0, [0.0, 0.5], 1.0, [1.0, 0.5, 0.25])
    >>> terms.loss.round(4)
    array([0.1562, 0.    ])
    >>> terms.least_loss.round(4)
    array([0.1562, 0.    ])
    """
    a, b, c = checked_weights(input_weight, recurrence, output_weight)
    sig, S = checked_strengths(cross_strengths, input_strengths)
    u = a * c
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        P, _, _, Q, _, _ = polynomial_values(polynomials_of(sig, S), b)
        data, regulariser = -u * P, 0.5 * u * u * Q
    return LossTerms(np.broadcast_to(loss_constant(sig, S, constant), data.shape), data, regulariser)


def transition(
    family: Callable[[float], ArrayLike], low: float, high: float, *, points: int = 65
) -> RecurrenceTransition:
    """Find the transition of the best recurrence in a family with one parameter.

    The global optimum is followed over a grid. If it jumps by an amount that bisection does not reduce, two optima tie
    and the transition is of first order; the largest of several jumps is returned. Otherwise, if the optimum leaves
    b = 0, the transition is continuous. Among ties of either sign the positive recurrence counts.

    Parameters
    ----------
    family : callable
        Function from the parameter to cross strengths by lag, (lags,).
    low, high : float
        Range of the parameter.
    points : int
        Grid points.

    Returns
    -------
    RecurrenceTransition

    Examples
    --------
    >>> from learncast.theory import transition
    >>> change = transition(lambda strength: [1.0, 0.0, strength], 0.1, 0.9, points=9)
    >>> change.kind, round(change.parameter, 4)
    ('continuous', 0.5)
    """
    grid = evenly(low, high, points)

    @cache
    def fit(parameter: float) -> RecurrenceFit:
        return best_recurrence(family(parameter))

    change = change_of_kind(fit, grid)
    if change.kind != "first order" or not (math.isfinite(change.below) and math.isfinite(change.above)):
        return change
    inside = np.linspace(change.below, change.above, 2001)[1:-1]
    terms = loss_terms(1.0, inside, 1.0, family(change.parameter))
    barrier = float(inside[np.argmax(terms.least_loss)])

    def bistable_end(optimum: float, end: float) -> float:
        # An optimum and the barrier merge between the two places they have at the transition.
        least, most = sorted((barrier, optimum + (optimum - barrier) * 1e-9))

        def exists(x: float) -> bool:
            return any(least < o.recurrence <= most for o in fit(x).optima)

        if exists(end):
            return math.copysign(math.inf, end - change.parameter)
        return bisected(exists, change.parameter, end)

    return replace(
        change, bistable_from=bistable_end(change.above, grid[0]), bistable_to=bistable_end(change.below, grid[-1])
    )


def change_of_kind(
    fit: Callable[[float], RecurrenceFit], grid: Sequence[float], *, jumps: int = 8, precision: float = 0.0
) -> RecurrenceTransition:
    """Find the transition of a family from its fits, without the bistable range.

    Parameters
    ----------
    fit : callable
        Function from the parameter to the result of `best_recurrence`. It should be cached, since parameters repeat.
    grid : sequence of float
        Ascending parameters that bracket the transition.
    jumps : int
        Number of grid intervals searched for a jump, those with the largest change first. A steep smooth change can be
        larger than a jump, so the first need not contain it.
    precision : float
        Precision of a continuous transition as a share of its grid interval; 0 for machine precision.

    Returns
    -------
    RecurrenceTransition

    Examples
    --------
    >>> from functools import cache
    >>> from learncast.theory import best_recurrence
    >>> from learncast.theory import change_of_kind
    >>> @cache
    ... def fit(strength):
    ...     return best_recurrence([1.0, 0.0, strength])
    >>> change = change_of_kind(fit, [0.1, 0.4, 0.8, 1.2])
    >>> change.kind, round(change.parameter, 4)
    ('continuous', 0.5)
    """

    def best(x: float) -> float:
        return fit(x).best.recurrence

    spans = sorted(pairwise(grid), key=lambda span: -_size(best(span[1]) - best(span[0])))
    candidates = [jump for span in spans[:jumps] if (jump := _jump(fit, *span)) is not None]
    if candidates:
        return max(candidates, key=lambda jump: _size(jump.above - jump.below))
    for low, high in pairwise(grid):
        at_zero = best(low) == 0
        if (best(high) == 0) != at_zero:
            x = bisected(lambda x: (best(x) == 0) == at_zero, low, high, precision * (high - low))  # noqa: B023
            return RecurrenceTransition(x, "continuous", 0.0, 0.0)
    return RecurrenceTransition(math.nan, "none", best(grid[0]), best(grid[-1]))


def late_pulse_transition(steps: int) -> RecurrenceTransition:
    """Find the background eps at which a late pulse, sig = (1, eps, eps, ...), starts to be integrated.

    The transition is of first order for trials of 11 steps or more, near eps = 1 / (1 + sqrt(steps)). In shorter trials
    the recurrence grows smoothly, without a transition.

    Parameters
    ----------
    steps : int
        Steps of a trial, at least 2.

    Returns
    -------
    RecurrenceTransition

    Examples
    --------
    >>> from learncast.theory import late_pulse_transition
    >>> change = late_pulse_transition(12)
    >>> change.kind, round(change.parameter, 3)
    ('first order', 0.198)
    """
    T = count("steps", steps, least=2)
    return transition(lambda eps: np.where(np.arange(T) == 0, 1.0, eps), 1e-3, 0.5)


def two_pulse_transition(steps: int, lag: int) -> RecurrenceTransition:
    """Find the strength r of an earlier pulse, sig_0 = 1 and sig_lag = r, at which training starts to remember it.

    At lag 1 there is no transition: every r has a best recurrence other than 0. At lag 2 the transition is continuous,
    at r = 1/2. At longer lags it is of first order, and b = 0 stays a local optimum for every r.

    Parameters
    ----------
    steps : int
        Steps of a trial, at least 2.
    lag : int
        Lag of the earlier pulse behind the last input, less than `steps`.

    Returns
    -------
    RecurrenceTransition

    Examples
    --------
    >>> from learncast.theory import two_pulse_transition
    >>> [two_pulse_transition(6, lag).kind for lag in (1, 2, 3)]
    ['none', 'continuous', 'first order']
    """
    T, m = count("steps", steps, least=2), count("lag", lag)
    if m >= T:
        raise InvalidSpec(f"lag must be less than the {T} steps of a trial, got {m}.", field="lag")
    k = np.arange(T)
    return transition(lambda r: np.where(k == 0, 1.0, np.where(k == m, r, 0.0)), 1e-3, 2.0 + m / 2)


def zero_recurrence_warning(
    cross_strengths: ArrayLike, input_strengths: ArrayLike | None = None, *, recurrence: float = 0.0
) -> str | None:
    """Return a warning if a recurrence that starts at 0 can never learn the task, else None.

    At b = 0 the recurrence moves at u P'(0) - u² Q'(0)/2 with P'(0) = sig_1 and Q'(0) = 2 S_01. If the input one step
    before the last co-varies neither with the target nor with the last input, b stays at 0. So does a full matrix of
    recurrent weights that starts at 0.

    Parameters
    ----------
    cross_strengths : (lags,)
        sig_k, lag 0 first.
    input_strengths : (lags, lags), optional
        White inputs of variance 1 by default.
    recurrence : float
        b_0.

    Returns
    -------
    str or None

    Examples
    --------
    >>> from learncast.theory import zero_recurrence_warning
    >>> zero_recurrence_warning([1.0, 0.5, 0.25]) is None
    True
    >>> print(zero_recurrence_warning([1.0, 0.0, 1.0]).split(":")[0])
    a recurrence of exactly 0 is never learned on this task
    """
    sig, S = checked_strengths(cross_strengths, input_strengths, ndim=1)
    fit = best_recurrence(sig, S)
    if recurrence != 0 or len(sig) < 2 or sig[1] != 0 or (S is not None and S[0, 1] != 0):
        return None
    if fit.flat or fit.best.recurrence == 0:
        return None
    power, baseline = 1.0 if S is None else float(S[0, 0]), float(loss_constant(sig, S, None))
    share = 1.0 - (0.5 * sig[0] ** 2 / power / baseline if power > 0 else 0.0)
    return (
        "a recurrence of exactly 0 is never learned on this task: the target does not co-vary with the input one step "
        f"before the last. {share:.1%} of the target stays unexplained, compared with {fit.best.unexplained:.1%} at "
        f"recurrence {fit.best.recurrence:.4g}; start from a recurrence other than 0"
    )


def _size(change: float) -> float:
    """Return the size of a change of recurrence, finite also for a runaway."""
    return 0.0 if math.isnan(change) else min(abs(change), 1e6)


def _jump(fit: Callable[[float], RecurrenceFit], low: float, high: float) -> RecurrenceTransition | None:
    """Return the jump of the best recurrence between two parameters, or None if it changes continuously."""
    below, above = fit(low).best.recurrence, fit(high).best.recurrence
    while _size(above - below) > JUMP:
        if high - low <= 4 * np.spacing(max(abs(low), abs(high))):
            return RecurrenceTransition((low + high) / 2, "first order", below, above)
        tie = _tie(fit, low, high)
        if tie is not None:
            return tie
        middle = (low + high) / 2
        b = fit(middle).best.recurrence
        if _size(b - below) > _size(above - b):
            high, above = middle, b
        else:
            low, below = middle, b
    return None


def _tie(fit: Callable[[float], RecurrenceFit], low: float, high: float) -> RecurrenceTransition | None:
    """Return the parameter at which the best optima of two parameters tie, or None if they do not persist."""
    sides = fit(low).best.recurrence, fit(high).best.recurrence

    def pair(x: float) -> list[Optimum]:
        # Compare angles, since a distant optimum changes fast in b and slowly in 1/b.
        angles = [math.atan(b) for b in sides]
        return [min(fit(x).optima, key=lambda o: abs(math.sin(math.atan(o.recurrence) - angle))) for angle in angles]

    def lead(x: float) -> float:
        one, other = pair(x)
        return one.loss - other.loss

    if not lead(low) < 0 < lead(high):
        return None
    x = float(scipy.optimize.brentq(lead, low, high, xtol=1e-300, rtol=4 * np.finfo(float).eps))
    one, other = pair(x)
    if one is other or fit(x).best not in (one, other) or abs(one.unexplained - other.unexplained) > EQUAL:
        return None  # one of the two was confused with a third
    return RecurrenceTransition(x, "first order", one.recurrence, other.recurrence)


def bisected(holds: Callable[[float], bool], low: float, high: float, width: float = 0.0) -> float:
    """Bisect between low, which meets a condition, and high, which does not."""
    while abs(high - low) > max(width, 4 * np.spacing(max(abs(low), abs(high)))):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return (low + high) / 2
