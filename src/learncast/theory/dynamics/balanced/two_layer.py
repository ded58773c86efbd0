"""Exact solution of balanced two-layer linear networks, and of linear RNNs with a scalar recurrence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, between, positive, real_array
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer, product
from learncast.results import STEPS, Provenance, Status, Trajectory, described, spec_hash
from learncast.tasks.task import Task
from learncast.theory import assumptions as conditions
from learncast.theory.assumptions import Assumption
from learncast.theory.dynamics.balanced.flow import BalancedFlow
from learncast.theory.dynamics.learning_problem import sharpest_curvature
from learncast.theory.dynamics.pooled import PooledProblem
from learncast.theory.dynamics.solution import LearningTime, Solution, checked_time, checked_times, status_of

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["TwoLayerSolution", "shallow"]

#: Relative distance of the loss from its final value at which a flow counts as stalled on a saddle.
STALLED = 1e-2


@dataclass(frozen=True, eq=False, repr=False)
class TwoLayerSolution(Solution):
    """Exact gradient flow of a two-layer linear network from any balanced start.

    With E[z z^T] = sigma^2 I the flow is that of whitened inputs, with S / sigma^2 as task and sigma^2 t as time.

    Assumes: whitened_input, balanced_weights, scalar_recurrence

    Attributes
    ----------
    problem : PooledProblem
    network : LinearRNN or TwoLayer
        Before training.
    learning_rate : float
        Times are counted in its steps.
    separatrix_tolerance : float or None
        As for `learncast.forecast`.

    Examples
    --------
    Strengths of the modes over time, the second layer at one time, and the distance of the start from a saddle:

    >>> import learncast as lc
    >>> import numpy as np
    >>> network = lc.TwoLayer.balanced(2, 3, 2, scale=0.01, rng=np.random.default_rng(0))
    >>> solution = lc.forecast(lc.tasks.static(np.diag([3.0, 1.0])), network, learning_rate=1e-2).solution
    >>> solution.at([200, 400, 800])["strength"].values.round(2)
    array([[0.33, 0.  ],
           [3.  , 0.  ],
           [3.  , 0.94]])
    >>> solution.network_at(400).second.shape, round(solution.orientation_margin, 2)
    ((2, 3), 0.25)
    """

    problem: PooledProblem
    network: LinearRNN | TwoLayer
    learning_rate: float
    separatrix_tolerance: float | None = None

    @cached_property
    def flow(self) -> BalancedFlow:
        """Matrix Riccati flow in whitened coordinates."""
        tolerance = self.separatrix_tolerance
        return BalancedFlow(self.problem.best_if_white, *self.network.layer_weights, separatrix_tolerance=tolerance)

    @property
    def _clock(self) -> float:
        """Flow time per gradient step."""
        return self.learning_rate * self.problem.variance

    def at(self, times: ArrayLike) -> Trajectory:
        """Return network function, similarities of the weights and loss at times in gradient steps.

        Parameters
        ----------
        times : array_like
            Gradient steps; infinity is allowed.

        Returns
        -------
        Trajectory
            ``network_function`` W2 W1, ``input_gram`` W1^T W1, ``output_gram`` W2 W2^T, ``strength`` of each singular
            mode, ``loss`` and ``excess_loss``.
        """
        steps = checked_times(times)
        grams, strengths, losses = self.flow.course(self._flow_times(steps))
        n, excess = self.network.inputs, self._above_least(losses)
        values = {
            "network_function": grams[:, n:, :n],
            "input_gram": grams[:, :n, :n],
            "output_gram": grams[:, n:, n:],
            "strength": strengths,
            "loss": excess + self.problem.least_loss,
            "excess_loss": excess,
        }
        return self._trajectory(steps, values, self.problem.task)

    def _above_least(self, losses: FloatArray) -> FloatArray:
        """Excess loss over the least that the hidden units allow, from losses of the whitened task."""
        above = self.problem.variance * losses - float(self.problem.descent.bottleneck_loss)
        return np.asarray(np.maximum(above, 0.0))  # round-off

    def _flow_times(self, steps: FloatArray) -> FloatArray:
        return steps * self._clock if self._clock > 0 else np.zeros_like(steps)

    @property
    def mode_vectors(self) -> tuple[FloatArray, FloatArray]:
        """Left and right singular vectors of the task, (outputs, modes) and (inputs, modes)."""
        return self.flow.modes

    @property
    def optimum(self) -> FloatArray:
        """Optimal strength of each singular mode of the task."""
        return np.asarray(np.linalg.svd(self.problem.cross, compute_uv=False)) / (self.problem.variance or 1.0)

    def network_at(self, time: float) -> LinearRNN | TwoLayer:
        """Return the network after `time` gradient steps, with the hidden space rotated nearest to the start."""
        step = checked_time(time)
        first, second = self.flow.weights(float(self._flow_times(np.array([step]))[0]))
        return self.network.with_layers(first, second)

    def time_to(self, accuracy: float) -> LearningTime:
        """Return the first time at which the excess loss is at most (1 - accuracy)^2 of the baseline loss."""
        accuracy = between("accuracy", accuracy, 0.0, 1.0)
        excess = (1.0 - accuracy) ** 2 * float(self.problem.descent.baseline_loss)
        flow = self._time_to_loss(excess) if excess > 0 or accuracy == 1 else 0.0  # nothing to learn
        descent, tried, loss = self.problem.count(excess, self.learning_rate) if flow > 0 else (0.0, math.nan, math.nan)
        status = status_of(flow, descent, self.conditions_until(flow))
        if math.isinf(descent) and not self.problem.never_reaches(excess):
            status = Status.diverged
        return LearningTime(accuracy, np.array([flow]), np.array([descent]), (status,), tried=tried, loss=loss)

    def _excess_loss(self, time: float) -> float:
        return float(self._above_least(self.flow.losses(self._flow_times(np.array([time])))[0]))

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Measured conditions of the theory."""
        return (
            *([self.problem.scalar_recurrence] if isinstance(self.network, LinearRNN) else []),
            self.problem.whitened_input,
            Assumption("balanced_weights", self.flow.balance_residual),
            Assumption("regular_orientation", 1.0 - self.orientation_margin),
            conditions.stable_learning_rate(self.learning_rate, self.curvatures),
        )

    @cached_property
    def orientation_margin(self) -> float:
        """Distance of the start from opposing the task: 1 if aligned, 0 exactly on a separatrix.

        It is half the smallest singular value of B = U^T U~ + V^T V~, with the singular vectors of the initial network
        function and of the task, and 0 if the flow loses a mode for which the network has hidden units.
        """
        task_rank = _rank(self.flow.singular_values)
        if len(self.flow.lost_modes) > max(0, task_rank - self._units):
            return 0.0
        left, strengths, right = np.linalg.svd(product(self.network.layer_weights), full_matrices=False)
        rank = _rank(strengths)
        if min(rank, task_rank) == 0:
            return 1.0
        U, V = self.mode_vectors
        B = left[:, :rank].T @ U[:, :task_rank] + right[:rank] @ V[:, :task_rank]
        return float(np.linalg.svd(B, compute_uv=False)[-1]) / 2

    def curvatures_until(self, steps: float) -> FloatArray:
        """Return the larger of the curvatures at the start and at a stop."""
        end = self.flow.weights(float(self._flow_times(np.array([steps]))[0]))
        ends = [self.network.maps, end]
        return np.array([sharpest_curvature(self.problem.cross, self.problem.power, ends)])

    @property
    def bottleneck_loss(self) -> float:
        """Loss that is left because there are fewer hidden units than modes."""
        return self.problem.bottleneck_loss

    @property
    def remarks(self) -> tuple[str, ...]:
        """Modes that the exact flow never learns, and the step at which real training stalls."""
        lost = self.flow.lost_modes
        if not len(lost):
            return ()
        if int(np.count_nonzero(self.flow.singular_values)) - len(lost) >= self._units:
            return self.problem.remarks
        loss = self._excess_loss(math.inf)
        modes = ("mode " if len(lost) == 1 else "modes ") + ", ".join(str(int(k) + 1) for k in lost)
        stall = self._time_to_loss((1 + STALLED) * loss)
        return (
            f"exact gradient flow never learns {modes} from this start: final excess loss {loss:.3g}; descent "
            f"stalls about {stall:,.0f} steps later and leaves the saddle by its finite steps or by noise",
        )

    @property
    def _units(self) -> int:
        """Number of modes that the layers can represent."""
        return min(self.network.widths)

    @property
    def provenance(self) -> Provenance:
        """Origin of the numbers."""
        settings = self.learning_rate, self.separatrix_tolerance
        digest = spec_hash("two-layer", self.problem.task.hash, self.network.hash, *settings)
        keys = ("braun2022",) if isinstance(self.network, TwoLayer) else ("curriculum2025", "braun2022")
        return Provenance("theory", keys, digest)

    def __repr__(self) -> str:
        sizes = "-".join(map(str, self.network.widths))
        return (
            f"<TwoLayerSolution of {self.problem.task.name!r} at learning rate {self.learning_rate:g}: {sizes}, "
            f"imbalance {self.flow.imbalance:.4g}, {self.forecast_class}>"
        )


def checked_two_layer(solution: Solution) -> TwoLayerSolution:
    """Return the solution if it is a `TwoLayerSolution`; raise otherwise."""
    if isinstance(solution, TwoLayerSolution):
        return solution
    raise InvalidSpec(f"solution must be a TwoLayerSolution, got {type(solution).__name__}.", field="solution")


def _rank(singular_values: FloatArray) -> int:
    return int(np.count_nonzero(singular_values > 1e-12 * singular_values[0]))


def shallow(task: Task, start: ArrayLike, times: ArrayLike, *, learning_rate: float) -> xr.Dataset:
    """Return weights and loss of y = W x under gradient flow, W(t) = W* + (W_0 - W*) exp(-C t) for input covariance C.

    Parameters
    ----------
    task : Task
        A static task.
    start : (outputs, inputs)
        W_0.
    times : array_like
        Gradient steps.
    learning_rate : float

    Returns
    -------
    xarray.Dataset
        ``network_function`` (time, row, column), ``excess_loss``.

    Examples
    --------
    Effect of depth: one layer learns immediately, two layers stay near their start until a mode grows.

    >>> import learncast as lc
    >>> import numpy as np
    >>> from learncast.theory import shallow
    >>> task, steps = lc.tasks.static(np.diag([3.0, 1.0])), [0, 100, 200]
    >>> shallow(task, np.zeros((2, 2)), steps, learning_rate=1e-2)["excess_loss"].values.round(2)
    array([5.  , 0.68, 0.09])
    >>> network = lc.TwoLayer.balanced(2, 3, 2, scale=0.01, rng=np.random.default_rng(0))
    >>> lc.forecast(task, network, learning_rate=1e-2).solution.at(steps)["excess_loss"].values.round(2)
    array([5.  , 5.  , 4.05])
    """
    import xarray as xr

    rate = positive("learning_rate", learning_rate)
    steps = checked_times(times)
    W0 = real_array("start", start, ndim=2)
    if task.steps != 1:
        raise InvalidSpec(f"task must be static, got {task.steps} steps.", field="task")
    if W0.shape != (task.outputs, task.inputs):
        raise InvalidSpec(f"start must have shape ({task.outputs}, {task.inputs}), got {W0.shape}.", field="start")
    C = task.input_covariance.dense()[0, :, 0, :]
    S = task.cross_covariance.dense()[0, :, 0, :].T
    values, vectors = np.linalg.eigh(C)
    values = np.clip(values, 0.0, None)
    live = values > 1e-14 * values.max(initial=0.0)
    best = np.where(live, (S @ vectors) / np.where(live, values, 1.0), W0 @ vectors)
    # A direction without input keeps its initial weights; at infinite time 0 * inf must be 0.
    exponent = np.where(live, np.outer(np.minimum(steps, 1e300), values) * rate, 0.0)
    gap = (W0 @ vectors - best) * np.exp(-exponent)[:, None, :]
    excess = 0.5 * (gap**2 * values).sum(axis=(1, 2))
    return xr.Dataset(
        {
            "network_function": (("time", "row", "column"), (best + gap) @ vectors.T, described("weights W", "1")),
            "excess_loss": ("time", excess, described("loss above the optimum", "target^2")),
        },
        coords={"time": ("time", steps, described("training time", STEPS))},
    )
