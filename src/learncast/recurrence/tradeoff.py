"""The trade-off between recurrent and feedforward computation: when training uses the past, and when it ignores it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from learncast.dynamics.recurrent_mode import (
    ModeTrajectory,
    checked_strengths,
    loss_constant,
    mode_trajectory,
    polynomial_values,
    polynomials_of,
)
from learncast.errors import InvalidSpec
from learncast.recurrence.stability import RecurrenceFit, best_recurrence
from learncast.trajectory import Status
from learncast.validation import FloatArray, count, positive, real_array

#: Distance of two recurrences, relative to the larger, that a continuous change cannot keep in a vanishing range.
JUMP = 1e-3
#: Powers of ten of its own time scale over which a mode is followed to where it ends.
DECADES = 16
#: Relative change of every weight over one of them below which it is stuck.
SETTLED = 1e-9


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
    """

    constant: FloatArray
    data: FloatArray
    regulariser: FloatArray

    @property
    def loss(self) -> FloatArray:
        """Their sum."""
        return self.constant + self.data + self.regulariser


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
    """

    parameter: float
    kind: str
    below: float
    above: float
    bistable_from: float = math.nan
    bistable_to: float = math.nan


class LatePulseBranches(NamedTuple):
    """Stationary recurrences of an endless late pulse, and where the feedforward one ends."""

    feedforward: float
    barrier: float
    last_background: float
    last_recurrence: float


class TwoPulseLimit(NamedTuple):
    """Transition of two pulses in an endless trial."""

    strength: float
    recurrence: float
    kind: str


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
    """
    weights = zip(
        ("input_weight", "recurrence", "output_weight"), (input_weight, recurrence, output_weight), strict=True
    )
    a, b, c = (real_array(name, weight) for name, weight in weights)
    return _terms(a * c, b, *checked_strengths(cross_strengths, input_strengths), constant)


def loss_terms_over_time(
    trajectory: ModeTrajectory,
    cross_strengths: ArrayLike,
    input_strengths: ArrayLike | None = None,
    *,
    constant: ArrayLike | None = None,
) -> LossTerms:
    """Take the loss along a trajectory apart, (..., times). Parameters as for `loss_terms`."""
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
    """
    span = real_array("low and high", [low, high])
    _require_rising(span[0], span[1])
    number = count("points", points, least=2, why="a transition lies between two of them")
    grid = np.linspace(span[0], span[1], number).tolist()

    def best(parameter: float) -> float:
        return best_recurrence(family(parameter), input_strengths).best.recurrence

    found = [best(x) for x in grid]
    steps = [_size(y - x) for x, y in pairwise(found)]
    largest = Transition(math.nan, "none", found[0], found[-1])
    # A jump need not be the largest step of the grid, on which a steep but smooth change can be larger.
    for n in sorted(range(number - 1), key=lambda n: -steps[n])[:8]:
        x = _jump(best, grid[n], grid[n + 1], found[n], found[n + 1]) if steps[n] > JUMP else math.nan
        if not math.isnan(x):
            gap = 1e-10 * (span[1] - span[0])  # at the transition itself rounding decides
            jump = Transition(x, "first order", best(x - gap), best(x + gap))
            if largest.kind == "none" or _size(jump.above - jump.below) > _size(largest.above - largest.below):
                largest = jump
    if largest.kind == "first order":
        return _with_bistable_range(largest, family, input_strengths, grid)
    zero = [b == 0 for b in found]
    for n in range(number - 1):
        if zero[n] != zero[n + 1]:
            x = _bisected(lambda x: (best(x) == 0) == zero[n], grid[n], grid[n + 1])  # noqa: B023
            return Transition(x, "continuous", 0.0, 0.0)
    return largest


def late_pulse_transition(steps: int) -> Transition:
    """Find the background at which the late pulse sig = (1, eps, eps, ...) starts to be integrated.

    Of first order for trials of 11 steps or more, near eps = 1 / (1 + sqrt(steps)). In shorter ones recurrence grows
    smoothly, without a transition.
    """
    T = count("steps", steps, least=2, why="there must be a past")
    return transition(lambda eps: np.where(np.arange(T) == 0, 1.0, eps), 1e-3, 0.5)


def two_pulse_transition(steps: int, lag: int) -> Transition:
    """Find the strength r of an earlier pulse, sig_0 = 1 and sig_lag = r, at which training starts to remember it.

    At lag 1 there is none: any r is worth some recurrence. At lag 2 it is continuous, at r = 1/2; at longer lags of
    first order, and ignoring the past stays a local optimum for every r.
    """
    T = count("steps", steps, least=2, why="there must be a past")
    m = count("lag", lag, why="the earlier pulse comes before the last input")
    if m >= T:
        raise InvalidSpec(
            required=f"lag must be less than the {T} steps of a trial",
            got=f"{m}",
            why="no input came before the first",
            remedy="lengthen the trial or shorten lag",
        )
    k = np.arange(T)
    return transition(lambda r: np.where(k == 0, 1.0, np.where(k == m, r, 0.0)), 1e-3, 2.0 + m / 2)


def late_pulse_branches(background: float) -> LatePulseBranches:
    """Return the feedforward optimum and its barrier for a late pulse in an endless trial.

    b = (1 -+ sqrt(1 - 4 eps / (1 - eps))) / 2. The feedforward branch ends at eps = 1/5, b = 1/2; then both are `nan`.
    """
    eps = float(real_array("background", background, ndim=0))
    square = 1 - 4 * eps / (1 - eps) if eps < 1 else -1.0
    root = math.sqrt(square) if square >= 0 else math.nan
    # The smaller root as the product over the larger, 2 eps / (1 - eps) / (1 + root): no difference of near equals.
    small = 2 * eps / (1 - eps) / (1 + root) if eps < 1 else math.nan
    return LatePulseBranches(small, (1 + root) / 2, 0.2, 0.5)


def two_pulse_limit(lag: int) -> TwoPulseLimit:
    """Return the strength and the recurrence at which two pulses change over in an endless trial.

    For lags m of 3 and more r_c = (1 - z) / (z b_c^m), b_c = sqrt(1 - z²), z = (1 + sqrt(1 + 4m)) / 2m; at lag 2 it is
    r_c = 1/2, b_c = 0; at lag 1 recurrence is always used (r_c = 0).
    """
    m = count("lag", lag, why="the earlier pulse comes before the last input")
    if m < 3:
        return TwoPulseLimit(*((0.5, 0.0, "continuous") if m == 2 else (0.0, 0.0, "none")))
    z = (1 + math.sqrt(1 + 4 * m)) / (2 * m)
    b = math.sqrt((1 - z) * (1 + z))
    return TwoPulseLimit((1 - z) / (z * b**m), b, "first order")


def two_pulse_recurrence(strength: ArrayLike) -> FloatArray:
    """Return the best recurrence of two pulses at lag 2 in an endless trial: sqrt((2r - 1) / 3r), 0 for r <= 1/2."""
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
    """
    sig, S = checked_strengths(real_array("cross_strengths", cross_strengths, ndim=1), input_strengths)
    output = input_weight if output_weight is None else output_weight
    a, b, c = real_array("the start", [input_weight, recurrence, output]).tolist()
    return _end(a, b, c, sig, S, best_recurrence(sig, S))


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
    """
    width = positive("tolerance", tolerance, why="bisection stops there")
    number = count("points", points, least=2, why="a boundary lies between two of them")
    sig, S = checked_strengths(real_array("cross_strengths", cross_strengths, ndim=1), input_strengths)
    output = input_weight if output_weight is None else output_weight
    first, last, a, c = real_array("low, high and the start", [low, high, input_weight, output]).tolist()
    _require_rising(first, last)
    fit = best_recurrence(sig, S)

    def end(b: float) -> End:
        return _end(a, b, c, sig, S, fit)

    grid = np.linspace(first, last, number).tolist()
    found = [end(b) for b in grid]
    boundaries, ends = [], [found[0]]
    for n in range(number - 1):
        if not _same(found[n], found[n + 1]):
            here = found[n]
            boundaries.append(_bisected(lambda b: _same(end(b), here), grid[n], grid[n + 1], width))  # noqa: B023
            ends.append(found[n + 1])
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
    """
    sig, S = checked_strengths(real_array("cross_strengths", cross_strengths, ndim=1), input_strengths)
    fit = best_recurrence(sig, S)
    if recurrence != 0 or len(sig) < 2 or sig[1] != 0 or (S is not None and S[0, 1] != 0):
        return None
    if fit.flat or fit.best.recurrence == 0:
        return None
    known = S is None or S[0, 0] > 0
    left = float(loss_constant(sig, S, None)) - (0.5 * sig[0] ** 2 / (1.0 if S is None else S[0, 0]) if known else 0.0)
    share = left / float(loss_constant(sig, S, None))
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


def _require_rising(low: float, high: float) -> None:
    if not low < high:
        raise InvalidSpec(
            required="low must be below high",
            got=f"{low:g} and {high:g}",
            why="they bound the search",
            remedy="exchange them",
        )


def _size(change: float) -> float:
    """Size of a change of recurrence, a finite number also to or from a runaway."""
    return 0.0 if math.isnan(change) else min(abs(change), 1e6)


def _jump(best: Callable[[float], float], low: float, high: float, below: float, above: float) -> float:
    """Return where the best recurrence jumps between low and high; `nan` if its change vanishes in a narrow range."""
    while high - low > 4 * np.spacing(max(abs(low), abs(high))):
        middle = (low + high) / 2
        b = best(middle)
        if _size(b - below) > _size(above - b):
            high, above = middle, b
        else:
            low, below = middle, b
        if _size(above - below) <= JUMP:
            return math.nan
    return (low + high) / 2


def _bisected(holds: Callable[[float], bool], low: float, high: float, width: float = 0.0) -> float:
    """Return the place between low, where a condition holds, and high, where it does not, at which that changes."""
    while abs(high - low) > max(width, 4 * np.spacing(max(abs(low), abs(high)))):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return (low + high) / 2


def _with_bistable_range(
    found: Transition, family: Callable[[float], ArrayLike], S: ArrayLike | None, grid: list[float]
) -> Transition:
    """Add where each side of a first-order transition stops being a local optimum."""

    def has(low: float, high: float) -> Callable[[float], bool]:
        return lambda x: any(low < o.recurrence <= high for o in best_recurrence(family(x), S).optima)

    def reach(side: float, other: float, end: float) -> float:
        # An optimum and the barrier merge between the two places they have at the transition.
        barrier = _barrier(family(found.parameter), S, side, other)
        edges = sorted((barrier, side + (side - barrier) * 1e-9))
        alive = has(*edges)
        return math.copysign(math.inf, end - found.parameter) if alive(end) else _bisected(alive, found.parameter, end)

    if not (math.isfinite(found.below) and math.isfinite(found.above)):
        return found
    return Transition(
        found.parameter,
        found.kind,
        found.below,
        found.above,
        reach(found.above, found.below, grid[0]),
        reach(found.below, found.above, grid[-1]),
    )


def _barrier(sig: ArrayLike, S: ArrayLike | None, one: float, other: float) -> float:
    """The recurrence between two optima at which P²/Q, the explained part of the loss, is least."""
    rows = polynomials_of(*checked_strengths(sig, S))
    between = np.linspace(one, other, 2001)[1:-1]
    P, _, _, Q, _, _ = polynomial_values(rows, between)
    return float(between[np.argmin(P**2 / Q)])


def _end(a: float, b: float, c: float, sig: FloatArray, S: FloatArray | None, fit: RecurrenceFit) -> End:
    with np.errstate(over="ignore", invalid="ignore"):
        P, dP, _, Q, _, _ = (float(v) for v in polynomial_values(polynomials_of(sig, S), np.asarray(b)))
    pace = max(abs(P), abs(dP), abs(a * c) * Q)
    runaway = End(math.copysign(math.inf, b), math.nan, math.nan, Status.diverged)
    if not math.isfinite(pace):
        return runaway
    span, loss, moved, grows = 1.0 / (pace or 1.0), math.nan, True, False
    for _ in range(DECADES):
        path = mode_trajectory(span, a, b, c, sig, S)
        if path.status != "ok" and not moved:  # the solver fails on steps of 1e12 that lead nowhere
            break
        if path.status != "ok":
            return runaway if grows else End(math.nan, math.nan, math.nan, Status.outside_theory)
        before, loss = (a, b, c), float(path.loss[0])
        a, b, c = float(path.input[0]), float(path.recurrence[0]), float(path.output[0])
        there = fit.near(b, a * c)
        if there is not None:
            return End(there.recurrence, there.strength, there.loss, Status.ok)
        moved = any(abs(x - y) > SETTLED * abs(y) for x, y in zip((a, b, c), before, strict=True))
        grows = abs(b) > max(1.0, 1.5 * abs(before[1]))  # a runaway grows like the fourth root of time, or faster
        runaway = End(math.copysign(math.inf, b), math.nan, math.nan, Status.diverged)
        span *= 10
    return runaway if grows else End(b, a * c, loss, Status.not_learned)


def _same(one: End, other: End) -> bool:
    """Whether two ends are one place; stuck ends are one kind, wherever they got stuck."""
    if one.status is not other.status:
        return False
    return one.status is Status.not_learned or one.recurrence == other.recurrence
