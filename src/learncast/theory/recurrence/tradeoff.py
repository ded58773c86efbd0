"""The trade-off between recurrent and feedforward computation: when training uses the past, and when it ignores it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, count, evenly, positive, real_array
from learncast.results import Status
from learncast.theory.dynamics.recurrent_mode import (
    ModeTrajectory,
    checked_strengths,
    checked_weights,
    loss_constant,
    mode_loss,
    polynomial_values,
    polynomials_of,
)
from learncast.theory.recurrence.long_run import ModeStart, long_run, weights_at
from learncast.theory.recurrence.stability import Optimum, RecurrenceFit, best_recurrence

#: Distance of two recurrences, relative to the larger, that a continuous change cannot keep in a vanishing range.
JUMP = 1e-3
#: Shares of the target left by two optima that tie differ by less: rounding.
EQUAL = 1e-10


@dataclass(frozen=True, eq=False)
class LossTerms:
    """The loss of a mode, term by term: constant + data + regulariser.

    Attributes
    ----------
    constant : (...)
        Half the mean square of the target.
    data : (...)
        -u P(b), what following the target saves.
    regulariser : (...)
        u² Q(b) / 2, the power of the response: a penalty on weights that grows with trial length and with |b|. It is
        part of the squared error, not added to it. At the best u, data = -2 regulariser.

    Examples
    --------
    >>> from learncast.theory.recurrence.tradeoff import loss_terms
    >>> terms = loss_terms(1.0, 0.5, 0.8, [1.0, 0.5, 0.25])
    >>> [round(float(one), 4) for one in (terms.constant, terms.data, terms.regulariser, terms.loss)]
    [0.6562, -1.05, 0.42, 0.0263]
    """

    constant: FloatArray
    data: FloatArray
    regulariser: FloatArray

    @property
    def loss(self) -> FloatArray:
        """Their sum."""
        return self.constant + self.data + self.regulariser

    @property
    def least_loss(self) -> FloatArray:
        """Their sum at the best multiple of u, which is constant - data² / 4 regulariser."""
        return self.constant - self.data**2 / (4 * self.regulariser)


@dataclass(frozen=True)
class Transition:
    """Where the best recurrence of a family of tasks changes from one kind to another.

    Attributes
    ----------
    parameter : float
        Of the family, at the transition; `nan` if there is none in the range.
    kind : str
        "first order" (the best recurrence jumps), "continuous" (it leaves 0 without a jump) or "none".
    below, above : float
        Best recurrence on either side.
    bistable_from, bistable_to : float
        Range of the parameter around a first-order transition in which both sides are local optima, so that the end of
        training depends on its start; -inf or inf where it reaches an end of the range searched.

    Examples
    --------
    >>> from learncast.theory.recurrence.tradeoff import two_pulse_transition
    >>> found = two_pulse_transition(steps=6, lag=3)
    >>> found.kind, found.below, found.above > 0.5
    ('first order', 0.0, True)
    """

    parameter: float
    kind: str
    below: float
    above: float
    bistable_from: float = math.nan
    bistable_to: float = math.nan


@dataclass(frozen=True)
class End:
    """Where training of a mode ends.

    Attributes
    ----------
    recurrence, strength, loss : float
        There; the recurrence is infinite for a runaway, and the rest unknown (`nan`).
    status : Status
        Not learned if this is no local optimum but a place the flow cannot leave; diverged for a runaway; outside the
        theory if the integration gave up.

    Examples
    --------
    >>> from learncast.theory.recurrence.tradeoff import end_of_training
    >>> end = end_of_training([1.0, 0.5, 0.25], recurrence=0.2, input_weight=0.1)
    >>> round(end.recurrence, 6), round(end.strength, 6), end.status.name
    (0.5, 1.0, 'ok')
    """

    recurrence: float
    strength: float
    loss: float
    status: Status


@dataclass(frozen=True, eq=False)
class Basins:
    """Where training ends, over the initial recurrence.

    Attributes
    ----------
    boundaries : (boundaries,)
        Initial recurrences at which the end changes, rising.
    ends : tuple of End
        One more than boundaries: that of each range between them.

    Examples
    --------
    >>> from learncast.theory.recurrence.tradeoff import basins
    >>> found = basins([1.0, 0.0, 0.0, 1.2, 0.0, 0.0], input_weight=0.3, points=3, tolerance=1e-3)
    >>> len(found.boundaries), [round(end.recurrence, 2) for end in found.ends]
    (1, [0.0, 0.7])
    """

    boundaries: FloatArray
    ends: tuple[End, ...]


def loss_terms(
    input_weight: ArrayLike,
    recurrence: ArrayLike,
    output_weight: ArrayLike,
    cross_strengths: ArrayLike,
    input_strengths: ArrayLike | None = None,
    *,
    constant: ArrayLike | None = None,
) -> LossTerms:
    """Take the loss of modes apart into constant, data term -u P and regulariser u² Q / 2.

    Parameters
    ----------
    input_weight, recurrence, output_weight : (...)
        a, b and c.
    cross_strengths : (..., lags)
        sig_k = E[y x_{T-k}], lag 0 (the last input) first.
    input_strengths : (..., lags, lags), optional
        White inputs of variance 1 unless told.
    constant : (...), optional
        Unless told, of a target the inputs determine.

    Returns
    -------
    LossTerms

    Examples
    --------
    >>> from learncast.theory.recurrence.tradeoff import loss_terms
    >>> terms = loss_terms(1.0, [0.0, 0.5], 1.0, [1.0, 0.5, 0.25])
    >>> terms.loss.round(4)
    array([0.1562, 0.    ])
    >>> terms.least_loss.round(4)
    array([0.1562, 0.    ])
    """
    a, b, c = checked_weights(input_weight, recurrence, output_weight)
    return _terms(a * c, b, *checked_strengths(cross_strengths, input_strengths), constant)


def loss_terms_over_time(
    trajectory: ModeTrajectory,
    cross_strengths: ArrayLike,
    input_strengths: ArrayLike | None = None,
    *,
    constant: ArrayLike | None = None,
) -> LossTerms:
    """Take the loss along a trajectory apart, (..., times).

    Parameters
    ----------
    trajectory : ModeTrajectory
        Of one mode or several.
    cross_strengths, input_strengths, constant
        As for `loss_terms`.

    Returns
    -------
    LossTerms

    Examples
    --------
    >>> from learncast.theory.recurrence.tradeoff import loss_terms_over_time
    >>> from learncast.theory.dynamics.recurrent_mode import mode_trajectory
    >>> strengths = [1.0, 0.5, 0.25]
    >>> path = mode_trajectory([0.0, 2.0, 50.0], 0.2, 0.3, 0.2, strengths)
    >>> loss_terms_over_time(path, strengths).regulariser.round(3)
    array([0.001, 0.503, 0.656])
    """
    sig, S = checked_strengths(cross_strengths, input_strengths)
    S = None if S is None else S[..., None, :, :]
    level = None if constant is None else real_array("constant", constant)[..., None]
    return _terms(trajectory.input * trajectory.output, trajectory.recurrence, sig[..., None, :], S, level)


def transition(
    family: Callable[[float], ArrayLike],
    low: float,
    high: float,
    *,
    input_strengths: ArrayLike | None = None,
    points: int = 65,
) -> Transition:
    """Find where the best recurrence of a one-parameter family changes its kind, and how.

    The global optimum is followed over a grid. Where it jumps by an amount that bisection does not make smaller, two
    optima tie and the transition is of first order; of several jumps the largest is taken. Otherwise, where it leaves
    b = 0, the transition is continuous. Of recurrences of either sign that do equally well the positive is taken.

    Parameters
    ----------
    family : callable
        From the parameter to cross strengths by lag, (lags,).
    low, high : float
        Range of the parameter.
    input_strengths : (lags, lags), optional
        White inputs of variance 1 unless told.
    points : int
        Grid points.

    Returns
    -------
    Transition

    Examples
    --------
    >>> from learncast.theory.recurrence.tradeoff import transition
    >>> found = transition(lambda strength: [1.0, 0.0, strength], 0.1, 0.9, points=9)
    >>> found.kind, round(found.parameter, 4)
    ('continuous', 0.5)
    """
    grid = evenly(low, high, points)

    @cache
    def fit(parameter: float) -> RecurrenceFit:
        return best_recurrence(family(parameter), input_strengths)

    found = change_of_kind(fit, grid)
    if found.kind != "first order" or not (math.isfinite(found.below) and math.isfinite(found.above)):
        return found
    inside = np.linspace(found.below, found.above, 2001)[1:-1]
    barrier = float(
        inside[np.argmax(loss_terms(1.0, inside, 1.0, family(found.parameter), input_strengths).least_loss)]
    )

    def reach(side: float, end: float) -> float:
        # An optimum and the barrier merge between the two places they have at the transition.
        least, most = sorted((barrier, side + (side - barrier) * 1e-9))

        def alive(x: float) -> bool:
            return any(least < o.recurrence <= most for o in fit(x).optima)

        return math.copysign(math.inf, end - found.parameter) if alive(end) else _bisected(alive, found.parameter, end)

    return replace(found, bistable_from=reach(found.above, grid[0]), bistable_to=reach(found.below, grid[-1]))


def change_of_kind(
    fit: Callable[[float], RecurrenceFit], grid: Sequence[float], *, jumps: int = 8, precision: float = 0.0
) -> Transition:
    """Find the transition of a family whose fits are at hand, without its bistable range.

    Parameters
    ----------
    fit : callable
        From the parameter to what `best_recurrence` finds. The same parameters are asked for again: it should remember.
    grid : sequence of float
        Rising parameters between which to look.
    jumps : int
        Intervals of the grid searched for a jump, those of the largest change first. The jump need not be in the first,
        since a steep but smooth change can be larger.
    precision : float
        Share of an interval to which the place where b leaves 0 is located; 0 for the last digit.

    Returns
    -------
    Transition

    Examples
    --------
    >>> from functools import cache
    >>> from learncast.theory.recurrence.stability import best_recurrence
    >>> from learncast.theory.recurrence.tradeoff import change_of_kind
    >>> @cache
    ... def fit(strength):
    ...     return best_recurrence([1.0, 0.0, strength])
    >>> found = change_of_kind(fit, [0.1, 0.4, 0.8, 1.2])
    >>> found.kind, round(found.parameter, 4)
    ('continuous', 0.5)
    """

    def best(x: float) -> float:
        return fit(x).best.recurrence

    spans = sorted(pairwise(grid), key=lambda span: -_size(best(span[1]) - best(span[0])))
    found = [jump for span in spans[:jumps] if (jump := _jump(fit, *span)) is not None]
    if found:
        return max(found, key=lambda jump: _size(jump.above - jump.below))
    for low, high in pairwise(grid):
        at_zero = best(low) == 0
        if (best(high) == 0) != at_zero:
            x = _bisected(lambda x: (best(x) == 0) == at_zero, low, high, precision * (high - low))  # noqa: B023
            return Transition(x, "continuous", 0.0, 0.0)
    return Transition(math.nan, "none", best(grid[0]), best(grid[-1]))


def late_pulse_transition(steps: int) -> Transition:
    """Find the background at which the late pulse sig = (1, eps, eps, ...) starts to be integrated.

    Of first order for trials of 11 steps or more, near eps = 1 / (1 + sqrt(steps)). In shorter ones recurrence grows
    smoothly, without a transition.

    Parameters
    ----------
    steps : int
        Of a trial.

    Returns
    -------
    Transition

    Raises
    ------
    InvalidSpec
        If there are fewer than two steps.

    Examples
    --------
    >>> from learncast.theory.recurrence.tradeoff import late_pulse_transition
    >>> found = late_pulse_transition(12)
    >>> found.kind, round(found.parameter, 3)
    ('first order', 0.198)
    """
    T = count("steps", steps, least=2)
    return transition(lambda eps: np.where(np.arange(T) == 0, 1.0, eps), 1e-3, 0.5)


def two_pulse_transition(steps: int, lag: int) -> Transition:
    """Find the strength r of an earlier pulse, sig_0 = 1 and sig_lag = r, at which training starts to remember it.

    At lag 1 there is none: any r is worth some recurrence. At lag 2 it is continuous, at r = 1/2; at longer lags of
    first order, and ignoring the past stays a local optimum for every r.

    Parameters
    ----------
    steps : int
        Of a trial.
    lag : int
        Of the earlier pulse behind the last input.

    Returns
    -------
    Transition

    Raises
    ------
    InvalidSpec
        If there are fewer than two steps, or the lag is not within the trial.

    Examples
    --------
    >>> from learncast.theory.recurrence.tradeoff import two_pulse_transition
    >>> [two_pulse_transition(6, lag).kind for lag in (1, 2, 3)]
    ['none', 'continuous', 'first order']
    """
    T = count("steps", steps, least=2)
    m = count("lag", lag)
    if m >= T:
        raise InvalidSpec(f"lag must be less than the {T} steps of a trial, got {m}.", field="lag")
    k = np.arange(T)
    return transition(lambda r: np.where(k == 0, 1.0, np.where(k == m, r, 0.0)), 1e-3, 2.0 + m / 2)


def two_pulse_recurrence(strength: ArrayLike) -> FloatArray:
    """Return the best recurrence of two pulses at lag 2 in an endless trial: sqrt((2r - 1) / 3r), 0 for r <= 1/2.

    Parameters
    ----------
    strength : (...)
        r, of the earlier pulse relative to the last.

    Returns
    -------
    (...)

    Examples
    --------
    >>> from learncast.theory.recurrence.tradeoff import two_pulse_recurrence
    >>> two_pulse_recurrence([0.5, 0.6, 1.0]).round(3)
    array([0.   , 0.333, 0.577])
    """
    r = real_array("strength", strength)
    return np.sqrt(np.maximum(2 * r - 1, 0.0) / np.where(r > 0.5, 3 * r, 1.0))


def end_of_training(
    cross_strengths: ArrayLike,
    input_strengths: ArrayLike | None = None,
    *,
    recurrence: float,
    input_weight: float,
    output_weight: float | None = None,
) -> End:
    """Follow the flow of one mode to where it ends.

    Parameters
    ----------
    cross_strengths : (lags,)
        sig_k, lag 0 first.
    input_strengths : (lags, lags), optional
        White inputs of variance 1 unless told.
    recurrence : float
        b_0.
    input_weight, output_weight : float
        a_0 and c_0; c_0 = a_0 unless told.

    Returns
    -------
    End

    Examples
    --------
    >>> from learncast.theory.recurrence.tradeoff import end_of_training
    >>> strengths = [1.0, 0.0, 0.0, 1.2, 0.0, 0.0]
    >>> ends = [end_of_training(strengths, recurrence=b, input_weight=0.3) for b in (0.1, 0.9)]
    >>> [round(end.recurrence, 3) for end in ends]
    [0.0, 0.699]
    """
    sig, S = checked_strengths(cross_strengths, input_strengths, ndim=1)
    output = input_weight if output_weight is None else output_weight
    start = ModeStart(*real_array("the start", [input_weight, recurrence, output]).tolist())
    fit = best_recurrence(sig, S)

    def runaway(b: float) -> End:
        return End(math.copysign(math.inf, b), math.nan, math.nan, Status.diverged)

    if not math.isfinite(mode_loss(*start, sig, S)):
        return runaway(start.recurrence)
    now, loss, grows = start, math.nan, False
    for _, path, _ in long_run(start, sig, S):
        if path.status != "ok":
            return runaway(now.recurrence) if grows else End(math.nan, math.nan, math.nan, Status.outside_theory)
        before, now, loss = now.recurrence, weights_at(path, -1), float(path.loss[-1])
        there = fit.near(now.recurrence, now.strength)
        if there is not None:
            return End(there.recurrence, there.strength, there.loss, Status.ok)
        grows = abs(now.recurrence) > max(1.0, 1.5 * abs(before))  # like the fourth root of time, or faster
    if grows:
        return runaway(now.recurrence)
    return End(now.recurrence, now.strength, loss, Status.not_learned)


def basins(
    cross_strengths: ArrayLike,
    input_strengths: ArrayLike | None = None,
    *,
    input_weight: float,
    output_weight: float | None = None,
    low: float = 0.0,
    high: float = 1.0,
    points: int = 9,
    tolerance: float = 1e-8,
) -> Basins:
    """Divide the initial recurrences into ranges from which training ends in the same place.

    Parameters
    ----------
    cross_strengths, input_strengths, input_weight, output_weight
        As in `end_of_training`.
    low, high : float
        Range of b_0.
    points : int
        Starts tried first; a basin that lies between two of them is missed.
    tolerance : float
        To which the separatrices are located, by bisection on the flow.

    Returns
    -------
    Basins

    Examples
    --------
    >>> from learncast.theory.recurrence.tradeoff import basins
    >>> found = basins([1.0, 0.0, 0.0, 1.2, 0.0, 0.0], input_weight=0.3, points=3, tolerance=1e-3)
    >>> found.boundaries.round(2)
    array([0.23])
    """
    width = positive("tolerance", tolerance)
    grid = evenly(low, high, points)
    weights: dict[str, Any] = {"input_weight": input_weight, "output_weight": output_weight}

    @cache
    def end(b: float) -> End:
        return end_of_training(cross_strengths, input_strengths, recurrence=b, **weights)

    boundaries, ends = [], [end(grid[0])]
    for before, after in pairwise(grid):
        if not _same(end(before), end(after)):
            here = end(before)
            boundaries.append(_bisected(lambda b: _same(end(b), here), before, after, width))  # noqa: B023
            ends.append(end(after))
    return Basins(np.array(boundaries), tuple(ends))


def zero_recurrence_warning(
    cross_strengths: ArrayLike, input_strengths: ArrayLike | None = None, *, recurrence: float = 0.0
) -> str | None:
    """Warn, in a sentence, when a recurrence that starts at 0 can never learn the task; None if it can.

    At b = 0 the recurrence moves at u P'(0) - u² Q'(0)/2 with P'(0) = sig_1 and Q'(0) = 2 S_01. If the input one step
    before the last co-varies neither with the target nor with the last input, it stays at 0 for ever, whatever else the
    target asks for. The same holds for a whole matrix of recurrent weights that starts at 0.

    Parameters
    ----------
    cross_strengths : (lags,)
        sig_k, lag 0 first.
    input_strengths : (lags, lags), optional
        White inputs of variance 1 unless told.
    recurrence : float
        b_0.

    Returns
    -------
    str or None

    Examples
    --------
    >>> from learncast.theory.recurrence.tradeoff import zero_recurrence_warning
    >>> zero_recurrence_warning([1.0, 0.5, 0.25]) is None
    True
    >>> print(zero_recurrence_warning([1.0, 0.0, 1.0])[:61])
    a recurrence that starts at exactly 0 never leaves it on this
    """
    sig, S = checked_strengths(cross_strengths, input_strengths, ndim=1)
    fit = best_recurrence(sig, S)
    if recurrence != 0 or len(sig) < 2 or sig[1] != 0 or (S is not None and S[0, 1] != 0):
        return None
    if fit.flat or fit.best.recurrence == 0:
        return None
    power, whole = 1.0 if S is None else float(S[0, 0]), float(loss_constant(sig, S, None))
    share = 1.0 - (0.5 * sig[0] ** 2 / power / whole if power > 0 else 0.0)
    return (
        "a recurrence that starts at exactly 0 never leaves it on this task, because the target does not co-vary with "
        f"the input one step before the last: {share:.1%} of the target stays unexplained, where a recurrence of "
        f"{fit.best.recurrence:.4g} would leave {fit.best.unexplained:.1%}; start from a recurrence other than 0"
    )


def _terms(
    u: FloatArray, b: FloatArray, sig: FloatArray, S: FloatArray | None, constant: ArrayLike | None
) -> LossTerms:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        P, _, _, Q, _, _ = polynomial_values(polynomials_of(sig, S), b)
        data, regulariser = -u * P, 0.5 * u * u * Q
    return LossTerms(np.broadcast_to(loss_constant(sig, S, constant), data.shape), data, regulariser)


def _size(change: float) -> float:
    """Size of a change of recurrence, a finite number also to or from a runaway."""
    return 0.0 if math.isnan(change) else min(abs(change), 1e6)


def _jump(fit: Callable[[float], RecurrenceFit], low: float, high: float) -> Transition | None:
    """Return the jump of the best recurrence between two parameters; None if its change vanishes in a narrow range."""
    below, above = fit(low).best.recurrence, fit(high).best.recurrence
    while _size(above - below) > JUMP:
        if high - low <= 4 * np.spacing(max(abs(low), abs(high))):
            return Transition((low + high) / 2, "first order", below, above)
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


def _tie(fit: Callable[[float], RecurrenceFit], low: float, high: float) -> Transition | None:
    """Return where the best optima at two parameters do equally well; None if either is gone at the other."""
    sides = fit(low).best.recurrence, fit(high).best.recurrence

    def pair(x: float) -> list[Optimum]:
        # By angle: an optimum far out moves fast in b, and slowly in 1/b.
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
        return None  # one of the two was not followed, but exchanged for a third
    return Transition(x, "first order", one.recurrence, other.recurrence)


def _bisected(holds: Callable[[float], bool], low: float, high: float, width: float = 0.0) -> float:
    """Return the place between low, where a condition holds, and high, where it does not, at which that changes."""
    while abs(high - low) > max(width, 4 * np.spacing(max(abs(low), abs(high)))):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return (low + high) / 2


def _same(one: End, other: End) -> bool:
    """Whether two ends are one place; stuck ends are one kind, wherever they got stuck."""
    if one.status is not other.status:
        return False
    return one.status is Status.not_learned or one.recurrence == other.recurrence
