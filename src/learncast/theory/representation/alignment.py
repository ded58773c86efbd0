"""The alignment of a network's function with a task over training."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, between
from learncast.results import Status
from learncast.tasks.best_map import SILENT
from learncast.theory.dynamics.balanced.two_layer import TwoLayerSolution
from learncast.theory.dynamics.gradient_flow import FlowSolution, gradient_flow
from learncast.theory.dynamics.learning_problem import LearningProblem
from learncast.theory.dynamics.modes import ModeSolution
from learncast.theory.dynamics.solution import Solution

#: Times among which the first aligned one is bracketed.
GRID = 257
#: Factor between the two tolerances whose difference estimates the integration error.
LOOSER = 100.0


@dataclass(frozen=True)
class AlignmentTime:
    """Times, in flow steps, at which a network's function is aligned with its task and at which the task is learned.

    Let N = F P^(1/2) be the function F of the inputs in the units of the loss, M that of the least loss and theta the
    angle between them. With two layers or a scalar recurrence F = W2 W1 acts on the pooled input, and P is its
    covariance. With any other fixed recurrence F = [W_y W_h^k W_x] acts on the inputs of every lag k, and M is where
    training from the start rests. Twice the excess loss on the pooled input is
    |M|^2 (sin^2 theta + (cos theta - |N| / |M|)^2), an error of direction and an error of size.

    Attributes
    ----------
    accuracy : float
    aligned : float
        First time at which sin theta <= 1 - accuracy; infinite if never.
    learned : float
        First time at which the excess loss is at most (1 - accuracy)^2 of the baseline loss. On the pooled input this
        is |N - M| <= (1 - accuracy) |M|, never before `aligned`, since |N - M| >= |M| sin theta.
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
        Solution for a linear network with fixed recurrence from `learncast.forecast`: exact on modes, and for white
        inputs and a balanced start; integrated otherwise.
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
    functions = _Functions.of(solution)
    times = functions.times(solution, accuracy)
    error = 0.0
    if isinstance(solution, FlowSolution):
        p = solution.problem
        loose = min(LOOSER * solution.tolerance, 1e-3)
        again = gradient_flow(p.task, p.network, learning_rate=solution.learning_rate, learn=p.learn, tolerance=loose)
        pairs = zip(times, functions.times(again, accuracy), strict=True)
        error = max(0.0 if one == other else abs(one - other) for one, other in pairs)
    status = Status.ok if math.isfinite(times[1]) else Status.not_learned
    return AlignmentTime(accuracy, *times, error, status)


def misalignment(solution: Solution, times: ArrayLike) -> FloatArray:
    """Return the sine of the angle between the network's function and the best one, in the units of the loss.

    It is 1 for a function that is 0.

    Parameters
    ----------
    solution : Solution
        Solution for a linear network with fixed recurrence, as for `time_to_align`.
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
    return _Functions.of(solution).sines(solution, times)


@dataclass(frozen=True, eq=False)
class _Functions:
    """Functions of a network with fixed recurrence, in the units of the loss.

    Attributes
    ----------
    root : (values, values)
        P^(1/2).
    best : (outputs, values)
        Function of the least loss.
    baseline : float
        Excess loss of the zero function.
    problem : LearningProblem or None
        The problem by lag; None if the functions act on the pooled input.
    """

    root: FloatArray
    best: FloatArray
    baseline: float
    problem: LearningProblem | None

    @classmethod
    def of(cls, solution: Solution) -> _Functions:
        """Functions of the network of a solution."""
        if isinstance(solution, ModeSolution):
            problem = LearningProblem.of(solution.modes.task, solution.network, ("input", "output"))
        elif isinstance(solution, FlowSolution):
            problem = solution.problem
        elif not isinstance(solution, TwoLayerSolution):
            raise InvalidSpec(f"solution must be the flow of a linear network, got {solution!r}.", field="solution")
        pooled = solution.problem if isinstance(solution, TwoLayerSolution) else problem.pooled
        if pooled is not None:
            return cls(_root(pooled.power), pooled.best, float(pooled.descent.baseline_loss), None)
        if "recurrent" in problem.learn:
            raise InvalidSpec("The recurrence must be fixed, got one that learns.", field="solution")
        best = problem.by_lag.maps(problem.by_lag.rest[0][None])[0]
        return cls(_root(problem.by_lag.power), best, problem.baseline_loss, problem)

    def at(self, solution: Solution, times: ArrayLike) -> FloatArray:
        """Functions at times in gradient steps, (times, outputs, values)."""
        if self.problem is None and not isinstance(solution, ModeSolution):
            return np.asarray(solution.at(times)["network_function"].values)
        networks = [solution.network_at(float(time)) for time in np.atleast_1d(times)]
        if self.problem is None:
            return np.stack([second @ first for first, second in (network.maps for network in networks)])
        p = self.problem
        return p.by_lag.maps(np.stack([p.flatten(replace(p, network=network).start) for network in networks]))

    def sines(self, solution: Solution, times: ArrayLike) -> FloatArray:
        """Sine of the angle between the function and the best one; 1 for a function that is 0 or opposed."""
        M, N = self.best @ self.root, self.at(solution, times) @ self.root
        sizes = np.linalg.norm(N, axis=(1, 2))
        unit = N / np.where(sizes > 0, sizes, 1.0)[:, None, None]
        along = np.einsum("tij,ij->t", unit, M) / np.linalg.norm(M)
        # The norm of the orthogonal part; 1 - cos^2 would lose half the digits of a small angle.
        across = np.linalg.norm(unit - along[:, None, None] * M / np.linalg.norm(M), axis=(1, 2))
        return np.where((sizes > 0) & (along > 0), across, 1.0)

    def times(self, solution: Solution, accuracy: float) -> tuple[float, float]:
        """Return the first times of alignment and of learning."""
        allowed = 1.0 - accuracy

        def gap(time: float) -> float:
            return float(self.sines(solution, [time])[0]) - allowed

        learned = solution.time_to_loss(max(allowed**2 * self.baseline, 1e-300))
        late = learned
        if not math.isfinite(learned) or (self.problem is not None and gap(learned) > 0):
            if gap(math.inf) > 0:
                return math.inf, learned
            late = learned if math.isfinite(learned) else 1.0
            while gap(late) > 0:
                late *= 2.0
        times = np.linspace(0.0, late, GRID)
        within = np.flatnonzero(self.sines(solution, times) <= allowed)
        if not len(within):  # equal up to rounding
            return learned, learned
        k = int(within[0])
        if k == 0:
            return 0.0, learned
        return float(scipy.optimize.brentq(gap, times[k - 1], times[k], xtol=1e-12 * late, rtol=1e-14)), learned


def _root(power: FloatArray) -> FloatArray:
    """A root of a covariance, without the directions along which inputs do not vary."""
    values, vectors = np.linalg.eigh(power)
    return np.asarray(vectors * np.sqrt(np.where(values > SILENT * values[-1], values, 0.0)))
