"""The alignment of a network's map with a task: when its directions are right, and when it has learned."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, between
from learncast.results import Status
from learncast.tasks.best_map import SILENT
from learncast.theory.dynamics.balanced.two_layer import TwoLayerSolution
from learncast.theory.dynamics.gradient_flow import FlowSolution, gradient_flow
from learncast.theory.dynamics.pooled import PooledProblem
from learncast.theory.dynamics.solution import Solution

#: Moments among which the first one of an aligned map is looked for.
MOMENTS = 257
#: Times as loose as the integration by which its error is told.
LOOSER = 100.0


@dataclass(frozen=True)
class AlignmentTime:
    """When a map points where its task does, and when it has learned it, in steps of the flow.

    With N = W2 W1 P^(1/2) the map in the units of the loss (P the covariance of the pooled input), M that of the best
    map and theta the angle between them, twice the excess loss is |M|^2 (sin^2 theta + (cos theta - |N| / |M|)^2): what
    is wrong with the directions, which no change of size repairs, and what is wrong with the size.

    Attributes
    ----------
    accuracy : float
    aligned : float
        First time at which sin theta <= 1 - accuracy; infinite if never.
    learned : float
        First time at which |N - M| <= (1 - accuracy) |M|. Never before `aligned`, since |N - M| >= |M| sin theta.
    error : float
        Steps by which both may be off: 0 where the solution is exact; where it is integrated, how far they are from
        those of an integration a hundred times as loose.
    status : Status

    Examples
    --------
    From a small start the directions are right only just before the task is learned:

    >>> import learncast as lc
    >>> import numpy as np
    >>> task = lc.tasks.static(np.diag([3.0, 1.0]))
    >>> network = lc.TwoLayer.balanced(2, 3, 2, scale=0.01, rng=np.random.default_rng(0))
    >>> found = lc.theory.time_to_align(lc.solve(task, network, learning_rate=1e-2))
    >>> round(found.aligned), round(found.learned), round(found.growing, 1)
    (834, 837, 2.6)
    """

    accuracy: float
    aligned: float
    learned: float
    error: float
    status: Status

    @property
    def growing(self) -> float:
        """Steps from when the directions are right until the task is learned."""
        return self.learned - self.aligned if math.isfinite(self.learned) else math.inf


def time_to_align(solution: Solution, accuracy: float = 0.99) -> AlignmentTime:
    """When a network's map is aligned with its task, and when it has learned it; for any covariance of the inputs.

    Parameters
    ----------
    solution : Solution
        Of a TwoLayer network or a LinearRNN of scalar recurrence, as `learncast.solve` returns it: exact where the
        inputs are white and the start balanced, integrated elsewhere.
    accuracy : float

    Returns
    -------
    AlignmentTime
        Both times, and their error.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> task = lc.tasks.static(np.diag([3.0, 1.0]))
    >>> network = lc.TwoLayer.balanced(2, 3, 2, scale=0.01, rng=np.random.default_rng(0))
    >>> solution = lc.solve(task, network, learning_rate=1e-2)
    >>> found = lc.theory.time_to_align(solution, 0.9)
    >>> round(found.aligned), round(found.learned), found.error
    (703, 704, 0.0)
    """
    accuracy = between("accuracy", accuracy, 0.0, 1.0)
    problem = _pooled(solution)
    aligned, learned = _moments(solution, problem, accuracy)
    error = 0.0
    if isinstance(solution, FlowSolution):
        p = solution.problem
        loose = min(LOOSER * solution.tolerance, 1e-3)
        again = gradient_flow(p.task, p.network, learning_rate=solution.learning_rate, learn=p.learn, tolerance=loose)
        both = zip((aligned, learned), _moments(again, problem, accuracy), strict=True)
        error = max(0.0 if one == other else abs(one - other) for one, other in both)
    status = Status.ok if math.isfinite(learned) else Status.not_learned
    return AlignmentTime(accuracy, aligned, learned, error, status)


def misalignment(solution: Solution, times: Any) -> FloatArray:
    """Sine of the angle between the network's map and the best one, in the units of the loss, at gradient steps.

    It is 1 for a map that is 0, which points nowhere.

    Parameters
    ----------
    solution : Solution
        Of a TwoLayer network or a LinearRNN of scalar recurrence, as for `time_to_align`.
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
    >>> solution = lc.solve(task, network, learning_rate=1e-2)
    >>> lc.theory.misalignment(solution, [0, 400, 800, 2000]).round(3) + 0.0
    array([1.   , 0.315, 0.019, 0.   ])
    """
    return _sines(solution, _pooled(solution), times)


def _pooled(solution: Solution) -> PooledProblem:
    if isinstance(solution, TwoLayerSolution):
        return solution.problem
    if isinstance(solution, FlowSolution) and solution.problem.pooled_recurrence is not None:
        return PooledProblem.of(solution.problem.task, solution.problem.network)
    raise InvalidSpec(
        "alignment needs a solution of two layers, or of a LinearRNN of scalar recurrence that stays, "
        f'got {solution!r}. Solve with by="two-layer", "pooled" or "flow".'
    )


def _sines(solution: Solution, problem: PooledProblem, times: Any) -> FloatArray:
    values, vectors = np.linalg.eigh(problem.power)
    root = vectors * np.sqrt(np.where(values > SILENT * values[-1], values, 0.0))
    M = problem.descent.best @ root
    N = solution.at(times)["network_function"].values @ root
    sizes = np.linalg.norm(N, axis=(1, 2))
    unit = N / np.where(sizes > 0, sizes, 1.0)[:, None, None]
    along = np.einsum("tij,ij->t", unit, M) / np.linalg.norm(M)
    # By the rest that is left, not by 1 - cos^2, which would lose half the digits of a small angle.
    rest = np.linalg.norm(unit - along[:, None, None] * M / np.linalg.norm(M), axis=(1, 2))
    return np.where((sizes > 0) & (along > 0), rest, 1.0)


def _moments(solution: Solution, problem: PooledProblem, accuracy: float) -> tuple[float, float]:
    """First times of an aligned and of a learned map."""
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
    times = np.linspace(0.0, late, MOMENTS)
    within = np.flatnonzero(_sines(solution, problem, times) <= allowed)
    if not len(within):  # both at once, up to rounding
        return learned, learned
    k = int(within[0])
    if k == 0:
        return 0.0, learned
    return float(scipy.optimize.brentq(gap, times[k - 1], times[k], xtol=1e-12 * late, rtol=1e-14)), learned
