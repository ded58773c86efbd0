"""The alignment of a network's function with a task over training."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, between
from learncast.results import Status
from learncast.tasks.best_map import SILENT
from learncast.theory.dynamics.balanced.two_layer import TwoLayerSolution
from learncast.theory.dynamics.gradient_flow import FlowSolution, gradient_flow
from learncast.theory.dynamics.pooled import PooledProblem
from learncast.theory.dynamics.solution import Solution

#: Times among which the first aligned one is bracketed.
GRID = 257
#: Factor between the two tolerances whose difference estimates the integration error.
LOOSER = 100.0


@dataclass(frozen=True)
class AlignmentTime:
    """Times, in flow steps, at which a network's function is aligned with its task and at which the task is learned.

    Let N = W2 W1 P^(1/2) be the function in the units of the loss (P is the covariance of the pooled input), M the best
    one and theta the angle between them. Twice the excess loss is |M|^2 (sin^2 theta + (cos theta - |N| / |M|)^2), an
    error of direction and an error of size.

    Attributes
    ----------
    accuracy : float
    aligned : float
        First time at which sin theta <= 1 - accuracy; infinite if never.
    learned : float
        First time at which |N - M| <= (1 - accuracy) |M|. Never before `aligned`, since |N - M| >= |M| sin theta.
    error : float
        Estimated error of both times: 0 for an exact solution, and for an integrated one the difference from an
        integration with 100 times the tolerance.
    status : Status

    Examples
    --------
    From a small start the function is aligned only just before the task is learned:

    >>> import learncast as lc
    >>> import numpy as np
    >>> task = lc.tasks.static(np.diag([3.0, 1.0]))
    >>> network = lc.TwoLayer.balanced(2, 3, 2, scale=0.01, rng=np.random.default_rng(0))
    >>> times = lc.theory.time_to_align(lc.forecast(task, network, learning_rate=1e-2).solution)
    >>> round(times.aligned), round(times.learned)
    (834, 837)
    """

    accuracy: float
    aligned: float
    learned: float
    error: float
    status: Status


def time_to_align(solution: Solution, accuracy: float = 0.99) -> AlignmentTime:
    """Return when a network's function is aligned with its task and when the task is learned, for any input covariance.

    Parameters
    ----------
    solution : Solution
        Solution for a TwoLayer network or a LinearRNN of scalar recurrence from `learncast.forecast`: exact for white
        inputs and a balanced start, integrated otherwise.
    accuracy : float

    Returns
    -------
    AlignmentTime

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> task = lc.tasks.static(np.diag([3.0, 1.0]))
    >>> network = lc.TwoLayer.balanced(2, 3, 2, scale=0.01, rng=np.random.default_rng(0))
    >>> solution = lc.forecast(task, network, learning_rate=1e-2).solution
    >>> times = lc.theory.time_to_align(solution, 0.9)
    >>> round(times.aligned), round(times.learned), times.error
    (703, 704, 0.0)
    """
    accuracy = between("accuracy", accuracy, 0.0, 1.0)
    problem = _pooled(solution)
    times = _times(solution, problem, accuracy)
    error = 0.0
    if isinstance(solution, FlowSolution):
        p = solution.problem
        loose = min(LOOSER * solution.tolerance, 1e-3)
        again = gradient_flow(p.task, p.network, learning_rate=solution.learning_rate, learn=p.learn, tolerance=loose)
        pairs = zip(times, _times(again, problem, accuracy), strict=True)
        error = max(0.0 if one == other else abs(one - other) for one, other in pairs)
    status = Status.ok if math.isfinite(times[1]) else Status.not_learned
    return AlignmentTime(accuracy, *times, error, status)


def misalignment(solution: Solution, times: ArrayLike) -> FloatArray:
    """Return the sine of the angle between the network's function and the best one, in the units of the loss.

    It is 1 for a function that is 0.

    Parameters
    ----------
    solution : Solution
        Solution for a TwoLayer network or a LinearRNN of scalar recurrence, as for `time_to_align`.
    times : array_like
        Gradient steps.

    Returns
    -------
    (times,) array
        Between 0 and 1.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> task = lc.tasks.static(np.diag([3.0, 1.0]))
    >>> network = lc.TwoLayer.balanced(2, 3, 2, scale=0.01, rng=np.random.default_rng(0))
    >>> solution = lc.forecast(task, network, learning_rate=1e-2).solution
    >>> lc.theory.misalignment(solution, [0, 400, 800, 2000]).round(3) + 0.0
    array([1.   , 0.315, 0.019, 0.   ])
    """
    return _sines(solution, _pooled(solution), times)


def _pooled(solution: Solution) -> PooledProblem:
    if isinstance(solution, TwoLayerSolution):
        return solution.problem
    if isinstance(solution, FlowSolution) and solution.problem.pooled_recurrence is not None:
        return PooledProblem.of(solution.problem.task, solution.problem.network)
    kinds = "a TwoLayer network or a LinearRNN with fixed scalar recurrence"
    raise InvalidSpec(f"solution must be of {kinds}, got {solution!r}.", field="solution")


def _sines(solution: Solution, problem: PooledProblem, times: ArrayLike) -> FloatArray:
    values, vectors = np.linalg.eigh(problem.power)
    root = vectors * np.sqrt(np.where(values > SILENT * values[-1], values, 0.0))
    M = problem.descent.best @ root
    N = solution.at(times)["network_function"].values @ root
    sizes = np.linalg.norm(N, axis=(1, 2))
    unit = N / np.where(sizes > 0, sizes, 1.0)[:, None, None]
    along = np.einsum("tij,ij->t", unit, M) / np.linalg.norm(M)
    # The norm of the orthogonal part; 1 - cos^2 would lose half the digits of a small angle.
    across = np.linalg.norm(unit - along[:, None, None] * M / np.linalg.norm(M), axis=(1, 2))
    return np.where((sizes > 0) & (along > 0), across, 1.0)


def _times(solution: Solution, problem: PooledProblem, accuracy: float) -> tuple[float, float]:
    """Return the first times of alignment and of learning."""
    allowed = 1.0 - accuracy

    def gap(time: float) -> float:
        return float(_sines(solution, problem, [time])[0]) - allowed

    learned = solution.time_to_loss(max(allowed**2 * float(problem.descent.baseline_loss), 1e-300))
    late = learned
    if not math.isfinite(learned):
        if gap(math.inf) > 0:
            return math.inf, learned
        late = 1.0
        while gap(late) > 0:
            late *= 2.0
    times = np.linspace(0.0, late, GRID)
    within = np.flatnonzero(_sines(solution, problem, times) <= allowed)
    if not len(within):  # equal up to rounding
        return learned, learned
    k = int(within[0])
    if k == 0:
        return 0.0, learned
    return float(scipy.optimize.brentq(gap, times[k - 1], times[k], xtol=1e-12 * late, rtol=1e-14)), learned
