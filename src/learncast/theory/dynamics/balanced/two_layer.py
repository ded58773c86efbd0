"""The exact learning of a balanced two-layer linear network, and of the linear RNNs that are one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, between, one_of, positive, real_array
from learncast.display import plural
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.results import STEPS, Provenance, Trajectory, described, spec_hash
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

#: Share of the loss that is left when a flow is said to have arrived on a saddle.
ARRIVED = 1e-2

#: What `TwoLayerSolution.at` adds on request.
EXTRAS = ("input_weights", "output_weights")


@dataclass(frozen=True, eq=False, repr=False)
class TwoLayerSolution(Solution):
    """Exact gradient flow of a two-layer linear network from any balanced start.

    With E[z z^T] = sigma^2 I the flow is that of whitened inputs with S / sigma^2 for the task and sigma^2 t for time.

    Assumes: whitened_input, balanced_weights, scalar_recurrence

    Attributes
    ----------
    problem : PooledProblem
        What the two layers learn.
    network : LinearRNN or TwoLayer
        Before training.
    learning_rate : float
        Step size of gradient descent; times are counted in its steps.
    separatrix_tolerance : float or None
        As for `learncast.solve`.

    Examples
    --------
    The modes' strengths on the way, both layers at one moment, and how far the start is from a saddle:

    >>> import learncast as lc
    >>> import numpy as np
    >>> network = lc.TwoLayer.balanced(2, 3, 2, scale=0.01, rng=np.random.default_rng(0))
    >>> solution = lc.solve(lc.tasks.static(np.diag([3.0, 1.0])), network, learning_rate=1e-2)
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
        """The matrix Riccati flow in whitened coordinates."""
        p = self.problem
        scale = p.variance if p.variance > 0 else 1.0
        return BalancedFlow(p.cross / scale, p.first, p.second, separatrix_tolerance=self.separatrix_tolerance)

    @property
    def _clock(self) -> float:
        """Flow time per gradient step."""
        return self.learning_rate * self.problem.variance

    def at(self, times: Any, *, include: tuple[str, ...] = ()) -> Trajectory:
        """Network function, similarities of the weights and loss at times in gradient steps.

        Parameters
        ----------
        times : array_like
            Gradient steps; infinity allowed.
        include : tuple of {"input_weights", "output_weights"}
            Both layers too, rotated to be continuous in time: each step nearest to the one before, from the start on.

        Returns
        -------
        Trajectory
            ``network_function`` (time, row, column), ``input_gram`` W1^T W1, ``output_gram`` W2 W2^T, ``strength`` of
            each of the task's singular modes, ``loss`` and ``excess_loss``.
        """
        steps = checked_times(times)
        for name in include:
            one_of("include", name, EXTRAS)
        grams, strengths, losses = self.flow.course(self._flow_times(steps))
        n, excess = self.problem.first.shape[1], self.problem.variance * losses
        values = {
            "network_function": grams[:, n:, :n],
            "input_gram": grams[:, :n, :n],
            "output_gram": grams[:, n:, n:],
            "strength": strengths,
            "loss": excess + self.problem.least_loss,
            "excess_loss": excess,
        }
        if include:
            values |= self._weights_over(steps, include)
        return Trajectory.of(
            steps, values, self.provenance, task=self.problem.task.name, learning_rate=self.learning_rate
        )

    def _flow_times(self, steps: FloatArray) -> FloatArray:
        return steps * self._clock if self._clock > 0 else np.zeros_like(steps)

    def _weights_over(self, steps: FloatArray, include: tuple[str, ...]) -> dict[str, FloatArray]:
        first = np.empty((len(steps), *self.problem.first.shape))
        second = np.empty((len(steps), *self.problem.second.shape))
        near, times = (self.problem.first, self.problem.second), self._flow_times(steps)
        for k in np.argsort(steps, kind="stable"):
            near = self.flow.weights(float(times[k]), like=near)
            first[k], second[k] = near
        found = {"input_weights": first, "output_weights": second}
        return {name: found[name] for name in include}

    @property
    def mode_vectors(self) -> tuple[FloatArray, FloatArray]:
        """Left and right singular vectors of the task, (outputs, modes) and (inputs, modes)."""
        return self.flow.modes

    @property
    def optimum(self) -> FloatArray:
        """Strength each singular mode of the task should reach."""
        scale = self.problem.variance if self.problem.variance > 0 else 1.0
        return np.asarray(np.linalg.svd(self.problem.cross, compute_uv=False), dtype=float) / scale

    def network_at(self, time: float) -> LinearRNN | TwoLayer:
        """The network after `time` gradient steps, its hidden space turned to be nearest to the start."""
        step = checked_time(time)
        first, second = self.flow.weights(float(self._flow_times(np.array([step]))[0]))
        return self.network.with_maps(first, second)

    def time_to(self, accuracy: float) -> LearningTime:
        """First time at which |W2 W1 - optimum| <= (1 - accuracy) |optimum|, by root finding on the exact loss.

        Descent is counted on the same statistics.
        """
        accuracy = between("accuracy", accuracy, 0.0, 1.0)
        whole = float((self.optimum**2).sum()) * self.problem.variance / 2
        excess = (1.0 - accuracy) ** 2 * whole
        steps = super().time_to_loss(excess)
        counted = self.problem.counted(excess, self.learning_rate) if math.isfinite(steps) else steps
        status = status_of(steps, counted, self.assumptions)
        return LearningTime(accuracy, np.array([steps]), np.array([counted]), (status,))

    def time_to_loss(self, tolerance: float) -> float:
        """First time, in gradient steps, at which the excess loss is at most `tolerance`; infinite if never."""
        positive("tolerance", tolerance)
        return super().time_to_loss(tolerance)

    def _excess_loss(self, time: float) -> float:
        return self.problem.variance * float(self.flow.losses(self._flow_times(np.array([time])))[0])

    @property
    def _flow_assumptions(self) -> tuple[Assumption, ...]:
        found = [self.problem.whitened_input, Assumption("balanced_weights", self.flow.balance_residual)]
        if isinstance(self.network, LinearRNN):
            found.insert(0, self.problem.scalar_recurrence)
        return tuple(found)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Conditions of the theory, as measured."""
        return (
            *self._flow_assumptions,
            Assumption("regular_orientation", 1.0 - self.orientation_margin),
            conditions.stable_learning_rate(self.learning_rate, np.array(self.sharpness)),
        )

    @cached_property
    def orientation_margin(self) -> float:
        """How far the start is from being turned against the task: 1 aligned, 0 exactly on a separatrix.

        Half the smallest singular value of B = U^T U~ + V^T V~, the singular vectors of the initial network function
        against the task's; 0 when the flow loses a mode that the network has the units for.
        """
        p = self.problem
        units = min(p.first.shape[0], *p.cross.shape)
        task_rank = int(np.count_nonzero(self.flow.singular_values > 1e-12 * max(self.flow.singular_values[0], 1e-300)))
        if len(self.flow.lost_modes) > max(0, task_rank - units):
            return 0.0
        left, strengths, right = np.linalg.svd(p.second @ p.first, full_matrices=False)
        rank = int(np.count_nonzero(strengths > 1e-12 * max(float(strengths[0]), 1e-300)))
        if min(rank, task_rank) == 0:
            return 1.0
        U, V = self.mode_vectors
        B = left[:, :rank].T @ U[:, :task_rank] + right[:rank] @ V[:, :task_rank]
        return float(np.linalg.svd(B, compute_uv=False)[-1]) / 2

    @cached_property
    def sharpness(self) -> float:
        """Largest curvature of the loss that descent meets, at the start or at the end."""
        ends = [(self.problem.first, self.problem.second), self.flow.weights(np.inf)]
        return sharpest_curvature(self.problem.cross, self.problem.power, ends)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Modes that the exact flow never learns, and where real training would stall."""
        lost, p = self.flow.lost_modes, self.problem
        if not len(lost):
            return ()
        units = min(p.first.shape[0], *p.cross.shape)
        left = p.variance * self.flow.final_loss
        which = ("mode " if len(lost) == 1 else "modes ") + ", ".join(str(int(k)) for k in lost)
        stay = "stays" if len(lost) == 1 else "stay"
        if int(np.count_nonzero(self.flow.singular_values)) - len(lost) >= units:
            return (
                f"{plural(units, 'hidden unit')} cannot hold every mode: {which} {stay} unlearned, "
                f"final excess loss {left:.4g}",
            )
        stall = super().time_to_loss((1 + ARRIVED) * left)
        return (
            f"this start never learns {which} under exact gradient flow: final excess loss {left:.4g}; real training "
            f"will stall near step {stall:.4g} and escape by noise",
        )

    @property
    def provenance(self) -> Provenance:
        """Where the numbers come from."""
        whole = self.problem.task.hash, self.network.hash, self.learning_rate, self.separatrix_tolerance
        digest = spec_hash("two-layer", *whole)
        keys = ("braun2022",) if isinstance(self.network, TwoLayer) else ("curriculum2025", "braun2022")
        return Provenance("theory", keys, digest)

    def __repr__(self) -> str:
        sizes = f"{self.problem.first.shape[1]}-{self.problem.first.shape[0]}-{self.problem.second.shape[0]}"
        return (
            f"<TwoLayerSolution of {self.problem.task.name!r} at learning rate {self.learning_rate:g}: {sizes}, "
            f"imbalance {self.flow.imbalance:.4g}, {self.forecast_class}>"
        )


def checked_two_layer(solution: Solution) -> TwoLayerSolution:
    """Return a two-layer solution, or refuse anything else."""
    if isinstance(solution, TwoLayerSolution):
        return solution
    raise InvalidSpec(f"a solution of a two-layer network is needed, got {type(solution).__name__}.")


def shallow(task: Task, start: Any, times: Any, *, learning_rate: float) -> xr.Dataset:
    """Weights and loss of y = W x under gradient flow: W(t) = W* + (W_0 - W*) exp(-C t), for any input correlation C.

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

    Raises
    ------
    InvalidSpec
        If the task has several steps, or the start another shape.

    Examples
    --------
    What depth does to learning: one layer begins at once, two stay near their start until a mode breaks away.

    >>> import learncast as lc
    >>> import numpy as np
    >>> from learncast.theory.dynamics.balanced.two_layer import shallow
    >>> task, steps = lc.tasks.static(np.diag([3.0, 1.0])), [0, 100, 200]
    >>> shallow(task, np.zeros((2, 2)), steps, learning_rate=1e-2)["excess_loss"].values.round(2)
    array([5.  , 0.68, 0.09])
    >>> network = lc.TwoLayer.balanced(2, 3, 2, scale=0.01, rng=np.random.default_rng(0))
    >>> lc.solve(task, network, learning_rate=1e-2).at(steps)["excess_loss"].values.round(2)
    array([5.  , 5.  , 4.05])
    """
    import xarray as xr

    rate = positive("learning_rate", learning_rate)
    steps = checked_times(times)
    W0 = real_array("start", start, ndim=2)
    if task.steps != 1 or W0.shape != (task.outputs, task.inputs):
        raise InvalidSpec(
            f"a static task and a start of shape ({task.outputs}, {task.inputs}), got {task.steps} steps and "
            f"shape {W0.shape}. Use tasks.static and match the start to it."
        )
    C = task.input_covariance.dense()[0, :, 0, :]
    S = task.cross_covariance.dense()[0, :, 0, :].T
    values, vectors = np.linalg.eigh(C)
    values = np.clip(values, 0.0, None)
    live = values > 1e-14 * values.max(initial=0.0)
    best = np.where(live, (S @ vectors) / np.where(live, values, 1.0), W0 @ vectors)
    # A direction without input keeps its start; at infinite time 0 * inf must stay 0.
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
