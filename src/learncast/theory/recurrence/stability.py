"""The best recurrence for a task, its stability, and its loss on longer trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import scipy
from numpy.polynomial import chebyshev
from numpy.polynomial.polynomial import polyder
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, count, one_of, positive, real_array
from learncast.networks.linear_rnn import LinearRNN, check_fit
from learncast.procedure.training import Training
from learncast.results import Status
from learncast.tasks.task import Task
from learncast.theory.dynamics.descent import descend
from learncast.theory.dynamics.learning_problem import lag_statistics
from learncast.theory.dynamics.recurrent_mode import checked_strengths, loss_constant, polynomials_of
from learncast.theory.dynamics.statistics import WEIGHTS, LagStatistics, loss_and_gradient, powers
from learncast.theory.representation.lag_kernel import network_kernel

ANCHORS = ("end", "start")
#: Distance of |b| from 1 that counts as marginal: rounding error of a root.
MARGINAL = 1e-9
#: Share of the baseline loss by which one optimum must beat another to count as better than a tie.
TIE = 1e-13
#: Relative distance from an optimum at which a mode has converged to it.
CONVERGED = 1e-4
#: Residual, relative to the target's strengths, below which the tangent kernel is the full curvature.
RESIDUAL = 1e-6
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


@dataclass(frozen=True, eq=False)
class Extrapolation:
    """Losses on trials of other lengths than in training.

    Attributes
    ----------
    horizons : (horizons,)
        Steps in a trial.
    loss, unexplained : (horizons,)
        Half mean squared error, and its ratio to that of the output 0; infinite if the response overflows.

    Examples
    --------
    >>> from learncast.theory import best_recurrence, extrapolation
    >>> best = best_recurrence([1.0, 0.5, 0.2]).best
    >>> longer = extrapolation(best, lambda lag: 0.5**lag, [3, 10], anchor="end")
    >>> longer.horizons, longer.unexplained.round(4)
    (array([ 3., 10.]), array([0.0009, 0.0013]))
    """

    horizons: FloatArray
    loss: FloatArray
    unexplained: FloatArray

    @classmethod
    def of(cls, horizons: list[int], losses: FloatArray, baselines: FloatArray) -> Extrapolation:
        """Make one from the losses of a network and of the output 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return cls(np.array(horizons, dtype=np.float64), losses, losses / baselines)


@dataclass(frozen=True)
class StableRate:
    """The learning rate beyond which gradient descent leaves a solution.

    Attributes
    ----------
    learning_rate : float
        2 / sharpness; infinite if the output does not depend on the weights.
    sharpness : float
        Largest eigenvalue of the tangent kernel under the task's inputs.
    status : Status
        Outside the theory if the network does not solve the task, so that the curvature has a second term.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory import largest_stable_rate
    >>> network = lc.LinearRNN.aligned(recurrence=0.5, initial=1.0, hidden_size=2)
    >>> stable = largest_stable_rate(network, steps=3)
    >>> round(stable.learning_rate, 3), round(stable.learning_rate * stable.sharpness, 6), stable.status.name
    (0.585, 2.0, 'ok')
    """

    learning_rate: float
    sharpness: float
    status: Status


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
        _check_covariances(sig, S)
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


def least_hidden_size(
    cross_strengths: ArrayLike, input_strengths: ArrayLike | None = None, *, tolerance: float = 1e-9
) -> int:
    """Return the least number of hidden units with which a linear RNN fits a task exactly.

    The filter K_k = W_y W_h^k W_x of T lags needs as many units as the minimal partial realisation of K has states,
    sum_i rank H(i, T+1-i) - sum_i rank H(i, T-i), with H(i, j) the Hankel matrix of i by j blocks K_0, K_1, ...

    Parameters
    ----------
    cross_strengths : (lags,) or (lags, outputs, inputs)
        sig_k, lag 0 first.
    input_strengths : (lags, lags), optional
        For one mode with inputs that are not white; the filter is then S^-1 sig.
    tolerance : float
        Share of the largest singular value below which singular values count as 0.

    Returns
    -------
    int

    Examples
    --------
    >>> from learncast.theory import least_hidden_size
    >>> least_hidden_size([1.0, 0.5, 0.25, 0.125])
    1
    >>> least_hidden_size([1.0, 0.0, 0.0, 1.0])
    3
    """
    K = real_array("cross_strengths", cross_strengths, ndim=(1, 3))
    share = positive("tolerance", tolerance)
    if input_strengths is not None:
        K = _filter(K, input_strengths)
    K = K[:, None, None] if K.ndim == 1 else K
    if 0 in K.shape:
        raise InvalidSpec(f"cross_strengths must not be empty, got shape {K.shape}.", field="cross_strengths")
    values = [[_hankel_values(K[:lags], i) for i in range(1, lags + 1)] for lags in (len(K), len(K) - 1)]
    scale = max(float(v[0]) for v in values[0])
    more, fewer = (sum(int((v > share * scale).sum()) for v in matrices) for matrices in values)
    return more - fewer


def extrapolation(
    model: LinearRNN | Optimum,
    strengths: ArrayLike | Callable[[FloatArray], ArrayLike],
    horizons: Iterable[int],
    *,
    anchor: str,
) -> Extrapolation:
    """Return the exact loss on longer trials of white inputs, 1/2 sum_k |B_k - W_y W_h^k W_x|².

    There are two kinds of longer trials. With the anchor at the ``"end"`` the target weights an input by its lag, and
    every exact geometric fit stays exact. With the anchor at the ``"start"`` the target weights an input by its step,
    and only a constant target extrapolates.

    Parameters
    ----------
    model : LinearRNN or Optimum
        A network, or a mode from `best_recurrence` with the response u b^k.
    strengths : (lags or steps, outputs, inputs), or a function of an array of lags or steps
        B_k of lags 0, 1, ... for ``"end"``, and of steps 1, 2, ... for ``"start"``. One-dimensional for one input and
        one output.
    horizons : iterable of int
        Steps in a trial.
    anchor : {"end", "start"}

    Returns
    -------
    Extrapolation

    Examples
    --------
    >>> from learncast.theory import best_recurrence, extrapolation
    >>> best = best_recurrence([1.0, 0.5, 0.25]).best
    >>> extrapolation(best, lambda lag: 0.5**lag, [3, 10], anchor="end").unexplained.round(4)
    array([0., 0.])
    >>> extrapolation(best, lambda step: 0.5 ** (3 - step), [3, 10], anchor="start").unexplained.round(4)
    array([0.    , 0.9844])
    """
    one_of("anchor", anchor, ANCHORS)
    if isinstance(model, Optimum):
        one = np.ones((1, 1))
        model = LinearRNN(one, model.recurrence * one, model.strength * one)
    lengths = _checked_horizons(horizons)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        K = model.output_weights @ reach(model, max(lengths))
        targets = [_targets(strengths, length, anchor, K.shape[1:]) for length in lengths]
        losses = np.array([0.5 * np.sum((B - K[: len(B)]) ** 2) for B in targets])
    losses[np.isnan(losses)] = np.inf  # 0 times an overflow
    return Extrapolation.of(lengths, losses, np.array([0.5 * np.sum(B**2) for B in targets]))


def family_extrapolation(
    network: LinearRNN, family: Task | Callable[[int], Task], horizons: Iterable[int]
) -> Extrapolation:
    """Return the exact loss of a linear RNN on tasks of one family with other numbers of steps.

    Parameters
    ----------
    network : LinearRNN
    family : Task or callable
        A task of a family, whose `steps` are varied, or a function from steps to a task.
    horizons : iterable of int
        Steps in a trial.

    Returns
    -------
    Extrapolation

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory import family_extrapolation
    >>> task = lc.tasks.integration(steps=10)
    >>> network = lc.LinearRNN.aligned(recurrence=0.95, initial=1.0, hidden_size=1)
    >>> family_extrapolation(network, task, [10, 50]).unexplained.round(3)
    array([0.053, 0.465])
    """
    lengths = _checked_horizons(horizons)
    tasks = [family.varied(steps=n) if isinstance(family, Task) else family(n) for n in lengths]
    weights = network.input_weights, network.recurrent_weights, network.output_weights
    losses = np.array([loss_and_gradient(lag_statistics(task), *weights, learn=())[0] for task in tasks])
    known = np.array([np.isfinite(task.target_power) for task in tasks])
    losses[np.isnan(losses) & known] = np.inf
    return Extrapolation.of(lengths, losses, np.array([task.target_power / 2 for task in tasks]))


def largest_stable_rate(
    network: LinearRNN, task: Task | None = None, *, steps: int | None = None, learn: tuple[str, ...] = WEIGHTS
) -> StableRate:
    """Return the learning rate below which gradient descent stays at a solution, 2 / sharpness.

    At zero residual the curvature of the loss is that of the tangent kernel Theta under the task's inputs, whose
    largest eigenvalue is that of A^(1/2) Theta A^(1/2) on lags (A the input covariance by lag, 1 for white inputs).

    Parameters
    ----------
    network : LinearRNN
        Network at the solution.
    task : Task, optional
        Task whose inputs to use; white inputs by default.
    steps : int, optional
        Steps in a trial of white inputs. Either `task` or `steps` must be given.
    learn : tuple of {"input", "recurrent", "output"}
        Weights that learn.

    Returns
    -------
    StableRate
        Its status says whether the network solves the task.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory import largest_stable_rate
    >>> task = lc.tasks.integration(steps=5)
    >>> solved = lc.LinearRNN.aligned(recurrence=1.0, initial=1.0, hidden_size=1)
    >>> stable = largest_stable_rate(solved, task)
    >>> round(stable.learning_rate, 4), stable.status.name
    (0.0536, 'ok')
    """
    if task is not None:
        check_fit(task, network)
    if (task is None) == (steps is None):
        raise InvalidSpec("Either task or steps must be given, not both.", field="steps")
    statistics = None if task is None else lag_statistics(task)
    lags = statistics.lags if statistics is not None else count("steps", steps)
    theta = network_kernel(network, steps=lags).dense(learn)
    if not np.isfinite(theta).all():
        return StableRate(0.0, math.inf, Status.diverged)
    status, size = Status.ok, lags * network.inputs
    matrix = theta.reshape(network.outputs * size, -1)
    if statistics is not None:
        A = input_matrix(statistics)
        values, vectors = np.linalg.eigh(A)
        root = np.kron(np.eye(network.outputs), vectors * np.sqrt(np.clip(values, 0.0, None)))
        matrix = root.T @ matrix @ root
        # The second term of the curvature is proportional to K A - B.
        K, B = (np.hstack(list(by_lag)) for by_lag in (network.output_weights @ reach(network, lags), statistics.cross))
        residual = np.linalg.norm(K @ A - B) / (np.linalg.norm(B) or 1.0)
        status = Status.ok if residual <= RESIDUAL else Status.outside_theory
    last = len(matrix) - 1
    sharpness = max(0.0, float(scipy.linalg.eigh(matrix, eigvals_only=True, subset_by_index=[last, last])[0]))
    return StableRate(2.0 / sharpness if sharpness > 0 else math.inf, sharpness, status)


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


def reach(network: LinearRNN, lags: int) -> FloatArray:
    """Return W_h^k W_x for each lag k: the response of the hidden state to an input k steps ago.

    Parameters
    ----------
    network : LinearRNN
    lags : int

    Returns
    -------
    (lags, units, inputs)

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory import reach
    >>> network = lc.LinearRNN.aligned(recurrence=0.5, initial=1.0, hidden_size=1)
    >>> reach(network, 3).ravel()
    array([1.  , 0.5 , 0.25])
    """
    return powers(network.input_weights.T, network.recurrent_weights.T, lags).transpose(0, 2, 1)


def largest_kept_rate(network: LinearRNN, task: Task, rng: np.random.Generator, *, halvings: int = 9) -> float:
    """Measure the learning rate up to which descent stays at a solution, by bisection from weights perturbed by 1e-6.

    `largest_stable_rate` predicts it. A rate is too large if the loss grows tenfold within 300 steps.

    Parameters
    ----------
    network : LinearRNN
        Network at the solution.
    task : Task
    rng : numpy Generator
        Generator of the perturbation.
    halvings : int
        Number of bisections of the bracket, whose ends differ by a factor of 4.4.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> import learncast as lc
    >>> from learncast.theory import largest_kept_rate, largest_stable_rate
    >>> task = lc.tasks.integration(steps=5)
    >>> solved = lc.LinearRNN.aligned(recurrence=1.0, initial=1.0, hidden_size=1)
    >>> kept = largest_kept_rate(solved, task, np.random.default_rng(0), halvings=5)
    >>> round(kept / largest_stable_rate(solved, task).learning_rate, 1)
    1.0
    """
    weights = network.input_weights, network.recurrent_weights, network.output_weights
    size = max(float(np.abs(W).max(initial=0.0)) for W in weights) or 1.0
    perturbed = LinearRNN(*(W + 1e-6 * size * rng.standard_normal(W.shape) for W in weights))
    middle = largest_stable_rate(network, task).learning_rate
    low, high = 0.5 * middle, 2.2 * middle  # not centred on the prediction, so that agreement is not by chance
    for _ in range(halvings):
        rate = math.sqrt(low * high)
        losses = descend(task, perturbed, Training(rate, learn=WEIGHTS), steps=300).loss
        unstable = not np.isfinite(losses).all() or losses.max() > 10 * losses[0]
        low, high = (low, rate) if unstable else (rate, high)
    return math.sqrt(low * high)


def outlier(network: LinearRNN) -> float:
    """Return the real part of the eigenvalue of W_h with the largest modulus.

    Parameters
    ----------
    network : LinearRNN

    Returns
    -------
    float

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory import outlier
    >>> outlier(lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=2))
    0.9
    """
    values = np.linalg.eigvals(network.recurrent_weights)
    return float(values[np.argmax(np.abs(values))].real)


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


def _check_covariances(sig: FloatArray, S: FloatArray) -> None:
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


def _filter(sig: FloatArray, input_strengths: ArrayLike) -> FloatArray:
    sig, S = checked_strengths(sig, input_strengths, ndim=1)
    assert S is not None
    _check_covariances(sig, S)
    if (condition := np.linalg.cond(S)) > 1e10:
        raise InvalidSpec(
            f"input_strengths must be invertible, got condition {condition:.3g}.", field="input_strengths"
        )
    return np.asarray(np.linalg.solve(S, sig))


def _hankel_values(K: FloatArray, rows: int) -> FloatArray:
    """Return the singular values of the Hankel matrix of the lags of K with `rows` block rows."""
    columns = len(K) + 1 - rows
    blocks = K[np.add.outer(np.arange(rows), np.arange(columns))]  # (rows, columns, outputs, inputs)
    matrix = blocks.transpose(0, 2, 1, 3).reshape(rows * K.shape[1], columns * K.shape[2])
    return np.asarray(np.linalg.svd(matrix, compute_uv=False))


def _checked_horizons(horizons: Iterable[int]) -> list[int]:
    lengths = [count("horizons", length) for length in horizons]
    if not lengths:
        raise InvalidSpec("horizons must not be empty.", field="horizons")
    return lengths


def _targets(
    strengths: ArrayLike | Callable[[FloatArray], ArrayLike], horizon: int, anchor: str, channels: tuple[int, ...]
) -> FloatArray:
    """Return the strengths by lag in a trial of `horizon` steps."""
    step = np.arange(horizon, dtype=np.float64) if anchor == "end" else np.arange(horizon, 0, -1, dtype=np.float64)
    B = real_array("strengths", strengths(step) if callable(strengths) else strengths, ndim=(1, 3))
    if not callable(strengths):
        B = B[:horizon] if anchor == "end" else B[:horizon][::-1]
    B = B[:, None, None] if B.ndim == 1 else B
    if B.shape != (horizon, *channels):
        raise InvalidSpec(f"strengths must have shape {(horizon, *channels)}, got {B.shape}.", field="strengths")
    return B
