"""The best recurrence for a task: all local optima of the loss of one mode."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import scipy
from numpy.polynomial import chebyshev
from numpy.polynomial.polynomial import polyder
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray
from learncast.results import Status
from learncast.tasks.task import Task
from learncast.theory.dynamics.learning_problem import lag_statistics
from learncast.theory.dynamics.recurrent_mode import checked_strengths, loss_constant, polynomials_of
from learncast.theory.dynamics.statistics import LagStatistics

#: Distance of |b| from 1 that counts as marginal: rounding error of a root.
MARGINAL = 1e-9
#: Share of the baseline loss by which one optimum must beat another to count as better than a tie.
TIE = 1e-13
#: Relative distance from an optimum at which a mode has converged to it.
CONVERGED = 1e-4
#: Degree of the Chebyshev pieces in which roots are isolated.
PIECE = 24
_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Optimum:
    """A locally optimal recurrence, with the best strength for it.

    Attributes
    ----------
    recurrence : float
        b. Infinite if the loss keeps falling as b grows without bound.
    strength : float
        u* = P(b) / Q(b).
    loss : float
        constant - P²/2Q; rounding is relative to the constant.
    unexplained : float
        Loss divided by the baseline loss, that of the output 0.
    stability : str
        "stable" (|b| < 1), "marginal" (|b| = 1), "unstable" (|b| > 1) or "runaway" (no finite b).

    Examples
    --------
    >>> from learncast.theory import best_recurrence
    >>> best = best_recurrence([1.0, 0.5, 0.25]).best
    >>> round(best.recurrence, 6), round(best.strength, 6), best.stability
    (0.5, 1.0, 'stable')
    """

    recurrence: float
    strength: float
    loss: float
    unexplained: float
    stability: str


@dataclass(frozen=True)
class RecurrenceFit:
    """All locally optimal recurrences of one mode.

    Attributes
    ----------
    optima : tuple of Optimum
        In ascending order of recurrence.
    best : Optimum
        The global optimum; among ties the finite, then the smallest, then the positive one.
    flat : bool
        Whether all recurrences have the same loss; `optima` then holds one of them.

    Examples
    --------
    >>> from learncast.theory import best_recurrence
    >>> fit = best_recurrence([1.0, 0.0, 0.0, 1.2, 0.0, 0.0])
    >>> [round(one.recurrence, 3) for one in fit.optima]
    [-1.443, 0.0, 0.699]
    >>> fit.status.name, fit.flat
    ('ok', False)
    """

    optima: tuple[Optimum, ...]
    best: Optimum
    flat: bool = False

    @property
    def status(self) -> Status:
        """Not learned if the best recurrence is infinite: training approaches its loss but does not attain it."""
        return Status.ok if math.isfinite(self.best.recurrence) else Status.not_learned

    def near(self, recurrence: float, strength: float) -> Optimum | None:
        """Return the optimum to which a mode with this b and u = a c has converged, or None."""
        for o in self.optima:
            close = abs(recurrence - o.recurrence) <= CONVERGED * max(1.0, abs(recurrence))
            if close and abs(strength - o.strength) <= CONVERGED * abs(o.strength):
                return o
        return None


def best_recurrence(
    cross_strengths: ArrayLike, input_strengths: ArrayLike | None = None, *, constant: float | None = None
) -> RecurrenceFit:
    """Find all locally optimal recurrences of one mode.

    At the best strength u = P/Q the loss is constant - G/2 with G = P²/Q. Optima are therefore the places where
    2P'Q - PQ', times the sign of P, falls through 0: where the mean lag of the target equals that of the model. The
    roots are isolated by Chebyshev pieces, in b inside [-1, 1] and in 1/b outside, then bracketed and polished by
    Newton steps.

    As b grows, G tends to the square of the first input's strength. If it does so from below, the flow runs away: there
    is an optimum with infinite recurrence and strength 0. With white inputs a task and its time reversal have the same
    best loss, at b and 1/b.

    Parameters
    ----------
    cross_strengths : (lags,)
        sig_k = E[y x_{T-k}], lag 0 (the last input) first.
    input_strengths : (lags, lags), optional
        S_jk = E[x_{T-j} x_{T-k}]; white inputs of variance 1 by default.
    constant : float, optional
        Half the mean square of the target; by default that of a target which the inputs determine.

    Returns
    -------
    RecurrenceFit

    Examples
    --------
    >>> from learncast.theory import best_recurrence
    >>> fit = best_recurrence([1.0, 0.0, 0.0, 1.2, 0.0, 0.0])
    >>> [(round(one.recurrence, 3), round(one.unexplained, 3)) for one in fit.optima]
    [(-1.443, 0.963), (0.0, 0.59), (0.699, 0.578)]
    >>> round(fit.best.recurrence, 3), fit.best.stability
    (0.699, 'stable')
    """
    sig, S = checked_strengths(cross_strengths, input_strengths, ndim=1)
    if S is not None:
        check_covariances(sig, S)
    level = float(loss_constant(sig, S, constant))
    p, q, shift = _polynomial_pair(sig, S)
    peaks, flat = _peaks(p, q)
    optima = tuple(_optimum(b, p, q, shift, level) for b in sorted(peaks))
    least = min(o.loss for o in optima)
    ties = [o for o in optima if o.loss <= least + TIE * level]
    return RecurrenceFit(optima, min(ties, key=lambda o: (abs(o.recurrence), o.recurrence < 0)), flat)


def best_mode(task: Task) -> Optimum:
    """Find the best single mode for a task with one input and one output.

    Parameters
    ----------
    task : Task
        With one input and one output.

    Returns
    -------
    Optimum

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory import best_mode
    >>> best = best_mode(lc.tasks.integration(steps=10))
    >>> round(best.recurrence, 6), round(best.strength, 6), best.stability
    (1.0, 1.0, 'marginal')
    """
    if (task.inputs, task.outputs) != (1, 1):
        sizes = f"{task.inputs} and {task.outputs}"
        raise InvalidSpec(f"task must have one input and one output, got {sizes}. Use best_recurrence.", field="task")
    statistics = lag_statistics(task)
    return best_recurrence(statistics.cross[:, 0, 0], input_matrix(statistics), constant=0.5 * task.target_power).best


def input_matrix(statistics: LagStatistics) -> FloatArray:
    """Return the covariance of all inputs of a trial, by lag and then by channel.

    Parameters
    ----------
    statistics : LagStatistics

    Returns
    -------
    (lags inputs, lags inputs)

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory import input_matrix
    >>> from learncast.theory.dynamics.learning_problem import lag_statistics
    >>> input_matrix(lag_statistics(lc.tasks.integration(steps=3)))
    array([[1., 0., 0.],
           [0., 1., 0.],
           [0., 0., 1.]])
    """
    size = statistics.lags * statistics.inputs
    return statistics.input.reshape(size, size)


def _polynomial_pair(sig: FloatArray, S: FloatArray | None) -> tuple[FloatArray, FloatArray, int]:
    """Return the coefficients of P and Q without silent lags, and the number of silent lags from lag 0 on."""
    rows = polynomials_of(sig, S)
    p, q = rows[0, : len(sig)], rows[3]
    # G = P²/Q does not change if silent first inputs are omitted and b^shift is cancelled for silent last ones.
    active = np.arange(len(sig)) if S is None else np.flatnonzero(np.diag(S) > 0)
    if not len(active):
        return np.zeros(1), np.ones(1), 0
    shift, lags = int(active[0]), int(active[-1] - active[0]) + 1
    return p[shift : shift + lags], q[2 * shift : 2 * shift + 2 * lags - 1], shift


def _peaks(p: FloatArray, q: FloatArray) -> tuple[list[float], bool]:
    """Return the recurrences, also infinite ones, at which G = P²/Q has a local maximum, and whether G is constant."""
    slope = _slope(p, q)
    if not slope.any() or not p.any():
        return [0.0], True
    alternate = (-1.0) ** np.arange(len(q))
    mirrored = p * alternate[: len(p)], q * alternate
    right, (right_at_zero, right_at_infinity) = _half_line(p, slope)
    left, (left_at_zero, left_at_infinity) = _half_line(mirrored[0], _slope(*mirrored))
    peaks = [*right, *(-b for b in left)]
    if right_at_zero < 0 and left_at_zero < 0:  # G falls from b = 0 on either side
        peaks.append(0.0)
    if right_at_infinity > 0:
        peaks.append(math.inf)
    if left_at_infinity > 0:
        peaks.append(-math.inf)
    return peaks, False


def _slope(p: FloatArray, q: FloatArray) -> FloatArray:
    """Return the coefficients of 2P'Q - PQ'; those below the rounding error are 0."""
    dp, dq = polyder(p), polyder(q)
    if len(p) == 1:
        return np.zeros(1)
    one, two = 2 * np.convolve(dp, q), np.convolve(p, dq)
    size = 2 * np.convolve(np.abs(dp), np.abs(q)) + np.convolve(np.abs(p), np.abs(dq))
    n = one - two
    n[np.abs(n) <= 2 * len(p) * _EPS * size] = 0.0
    return n[:-1]  # the leading terms cancel


def _polynomial_at(z: ArrayLike, coefficients: FloatArray) -> FloatArray:
    """Evaluate a polynomial from powers of z, which is faster than a loop over a few hundred coefficients."""
    return np.asarray(np.asarray(z)[..., None] ** np.arange(len(coefficients)) @ coefficients)


def _half_line(p: FloatArray, slope: FloatArray) -> tuple[list[float], tuple[float, float]]:
    """Return the maxima of G at 0 < b < inf, and the signs of dG/db near 0 and near infinity (0 if P is 0 there)."""
    nonzero = np.flatnonzero(slope)
    inner = slope[nonzero[0] : nonzero[-1] + 1]  # a power of b has no roots at 0 < b < inf
    outer = inner[::-1]

    def value(t: float, one: FloatArray = inner, two: FloatArray = outer) -> float:
        # The half line as 0 <= t <= 2: b = t inside, 1/b = 2 - t outside.
        return float(_polynomial_at(t, one) if t <= 1 else _polynomial_at(2 - t, two))

    inside, outside = np.array(_breakpoints(inner)), np.array(_breakpoints(outer))
    cuts = np.unique(np.concatenate([[0.0, 2.0], inside, 2 - outside]))
    samples = [0.0, *((cuts[1:] + cuts[:-1]) / 2).tolist(), 2.0]
    noise = [4 * _EPS * value(t, np.abs(inner), np.abs(outer)) for t in samples]
    known = [(t, y) for t, e in zip(samples, noise, strict=True) if abs(y := value(t)) > e]
    maxima = []
    for (left, before), (right, after) in pairwise(known):
        if before * after < 0:
            b = _polished(scipy.optimize.brentq(value, left, right, xtol=1e-300, rtol=4 * _EPS), inner, outer)
            P = _polynomial_at(b, p) if b <= 1 else _polynomial_at(1 / b, p[::-1])
            if before * P > 0:
                maxima.append(b)
    return maxima, (float(np.sign(inner[0] * p[0])), float(np.sign(inner[-1] * p[-1])))


def _breakpoints(coefficients: FloatArray, low: float = 0.0, high: float = 1.0) -> list[float]:
    """Return the real parts in [low, high] of the roots of a polynomial, by Chebyshev pieces within [0, 1]."""
    degree = min(len(coefficients) - 1, PIECE)
    if degree == 0:
        return []
    centre, half = (low + high) / 2, (high - low) / 2
    points, to_series = _chebyshev(degree)
    series = to_series @ _polynomial_at(centre + half * points, coefficients)
    size = np.abs(series).max()
    rounding = 8 * _EPS * float(_polynomial_at(high, np.abs(coefficients)))
    if size <= rounding:
        return []
    resolved = np.abs(series[-3:]).max() <= max(1e-13 * size, rounding)
    if degree < len(coefficients) - 1 and not resolved and half > 1e-9:
        return [*_breakpoints(coefficients, low, centre), centre, *_breakpoints(coefficients, centre, high)]
    if abs(series[0]) > np.abs(series[1:]).sum():  # no Chebyshev polynomial exceeds 1
        return []
    kept = chebyshev.chebtrim(series, tol=1e-15 * size)
    roots = chebyshev.chebroots(kept).real if len(kept) > 1 else np.zeros(0)
    return (centre + half * roots[np.abs(roots) <= 1]).tolist()


@cache
def _chebyshev(degree: int) -> tuple[FloatArray, FloatArray]:
    """Return interpolation points in [-1, 1] and the matrix from values there to Chebyshev coefficients."""
    points = chebyshev.chebpts1(degree + 1)
    weight = np.where(np.arange(degree + 1) == 0, 1.0, 2.0)[:, None] / (degree + 1)
    return points, weight * chebyshev.chebvander(points, degree).T


def _polished(t: float, inner: FloatArray, outer: FloatArray) -> float:
    """Return the recurrence at a bracketed root; Newton steps in 1/b restore the digits that 2 - t lost."""
    z, polynomial = (t, inner) if t <= 1 else (2 - t, outer)
    slope = np.asarray(polyder(polynomial), dtype=np.float64)
    for _ in range(2):
        step = float(_polynomial_at(z, polynomial) / (_polynomial_at(z, slope) or math.inf))
        if abs(step) < 1e-6 * z:
            z -= step
    return float(z if t <= 1 else 1 / z)


def _optimum(b: float, p: FloatArray, q: FloatArray, shift: int, constant: float) -> Optimum:
    if abs(b) <= 1:
        P, Q = _polynomial_at(b, p), _polynomial_at(b, q)
        u = P / Q / b**shift if b or not shift else math.copysign(math.inf, P)
    else:
        P, Q = _polynomial_at(1 / b, p[::-1]), _polynomial_at(1 / b, q[::-1])
        u = P / Q * (1 / b) ** (len(p) - 1 + shift)
    E = max(0.0, constant - 0.5 * float(P * P / Q))
    stability = "runaway" if math.isinf(b) else "stable" if abs(b) < 1 else "unstable"
    if abs(abs(b) - 1) <= MARGINAL:
        stability = "marginal"
    return Optimum(float(b), float(u), E, E / constant if constant > 0 else math.nan, stability)


def check_covariances(sig: FloatArray, S: FloatArray) -> None:
    """Require that input strengths are a covariance that allows the cross strengths."""
    values, vectors = np.linalg.eigh(S)
    scale = float(np.abs(values).max())
    silent = vectors[:, values <= 1e-10 * scale]
    impossible = float(np.linalg.norm(silent.T @ sig))
    if values[0] < -1e-10 * scale or impossible > 1e-7 * float(np.linalg.norm(sig)):
        raise InvalidSpec(
            f"input_strengths must be a covariance, got a least eigenvalue of {values[0]:.3g} and a target "
            f"covariance of {impossible:.3g} with silent inputs.",
            field="input_strengths",
        )
