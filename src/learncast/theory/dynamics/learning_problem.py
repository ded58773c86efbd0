"""Learning problem of any linear network: loss, gradient and curvature from second-order statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, one_of
from learncast.networks.deep import Linear
from learncast.networks.linear_rnn import check_fit
from learncast.networks.two_layer import product
from learncast.procedure.training import Training
from learncast.tasks.geometry import Frame, common_frame
from learncast.tasks.recorded.span import in_span, trial_span
from learncast.tasks.task import Task
from learncast.theory.dynamics.pooled import PooledProblem
from learncast.theory.dynamics.statistics import LagStatistics
from learncast.theory.dynamics.steps.lag_descent import LagDescent

__all__ = ["LearningProblem", "curvature", "lag_statistics"]

Weights = dict[str, FloatArray]

#: Share of the loss of the zero map that counts as nothing to learn: round-off.
NOTHING = 1e-12

#: A two-layer network is a recurrent network with one step: the names of its weights as such.
AS_RECURRENT = {"input": "input", "recurrent": "recurrent", "output": "output", "first": "input", "second": "output"}


def loss_scale(task: Task, training: Training) -> float:
    """Return the training loss of a task over half the squared error: 1, or 2 / (readouts x outputs) for "mse"."""
    if training.loss != "mse":
        return 1.0
    counted = None if task.recording is None else task.recording.counted
    if counted is not None and training.batch is not None:
        raise InvalidSpec("loss='mse' in batches needs targets that all count. Use half_mse.", field="loss")
    readouts = task.cross_covariance.shape[2] if counted is None else float(counted.sum())
    return 2.0 / (readouts * task.outputs)


@dataclass(frozen=True, eq=False)
class LearningProblem:
    """Task, network and the weights that learn.

    Attributes
    ----------
    task : Task
    network : LinearRNN, TwoLayer or Deep
        Before training.
    learn : tuple of str
        Names of the weights that learn: some of "input", "recurrent", "output" (or "first", "second", or "layer1",
        "layer2", ...).

    Examples
    --------
    With a fixed leaky recurrence the least loss is 6.1. It is 0 if the recurrence learns too.

    >>> import learncast as lc
    >>> from learncast.theory import LearningProblem
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> fixed = LearningProblem.of(task, network, ("input", "output"))
    >>> free = LearningProblem.of(task, network, ("input", "recurrent", "output"))
    >>> round(fixed.least_loss, 1), round(free.least_loss, 1)
    (6.1, 0.0)
    """

    task: Task
    network: Linear
    learn: tuple[str, ...]

    @classmethod
    def of(cls, task: Task, network: Linear, learn: tuple[str, ...] | None) -> LearningProblem:
        """Check that task, network and weights fit together."""
        check_fit(task, network)
        return cls(task, network, checked_learn(network, learn))

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the weights from the inputs to the outputs, without the recurrent ones."""
        return tuple(name for name in self.start if name != "recurrent")

    @property
    def start(self) -> Weights:
        """All weights before training."""
        return self.network.named_weights

    def flatten(self, weights: Weights) -> FloatArray:
        """Return the weights that learn, or their gradients, as one vector."""
        return np.concatenate([weights[name].ravel() for name in self.learn])

    def unflatten(self, flat: FloatArray, like: Weights) -> Weights:
        """Return `like` with the weights that learn taken from a vector."""
        parts = np.split(flat, np.cumsum([like[name].size for name in self.learn])[:-1])
        return {**like, **{name: part.reshape(like[name].shape) for name, part in zip(self.learn, parts, strict=True)}}

    @cached_property
    def statistics(self) -> LagStatistics:
        """Statistics by lag behind the readout, pooled to one lag if the recurrence is a fixed scalar."""
        if self.pooled is None:
            return lag_statistics(self.task)
        return LagStatistics(self.pooled.power[None, :, None, :], self.pooled.cross[None], self.task.target_power / 2)

    @cached_property
    def pooled_recurrence(self) -> float | None:
        """Recurrence b if it is a fixed scalar; None if it is a matrix or learned."""
        if "recurrent" in self.learn:
            return None
        b = self.network.scalar_recurrence
        # If the powers of b overflow, use the unpooled statistics: overflow is an outcome of training.
        return b if b is not None and 2 * self.task.steps * np.log2(max(abs(b), 1.0)) < 900 else None

    @cached_property
    def pooled(self) -> PooledProblem | None:
        """Pooled problem, if the recurrence is a fixed scalar."""
        b = self.pooled_recurrence
        return None if b is None else PooledProblem.of(self.task, self.network, trial_span([self.task], b))

    @property
    def map_problem(self) -> PooledProblem | None:
        """Pooled problem, if the recurrence is a fixed scalar and all other weights learn."""
        return self.pooled if self.learn == learned_weights(self.network, None) else None

    def loss_and_slopes(
        self, weights: Weights, moments: tuple[FloatArray, FloatArray] | None = None
    ) -> tuple[float, Weights]:
        """Return the loss and its gradient in the weights that learn, on the task or on sampled second moments."""
        descent = self.by_lag if moments is None else replace(self.by_lag, power=moments[0], cross=moments[1])
        (loss,), (flat,) = descent.loss_and_slopes(self.flatten(weights)[None])
        slopes = self.unflatten(flat, weights)
        return float(loss), {name: slopes[name] for name in self.learn}

    @cached_property
    def frame(self) -> Frame:
        """Input and output directions of the modes of the task."""
        function, b = self.function(self.start), self.pooled_recurrence
        span = None if b is None or self.pooled is None else self.pooled.span
        if b is None or span is None or span.shape[1] < self.task.outputs:
            return common_frame([self.task], maps=(function,), recurrence=b)
        small = common_frame([in_span(self.task, b, span)], maps=(function @ span,))
        rest = np.linalg.qr(span, mode="complete")[0][:, span.shape[1] :]
        return Frame(np.concatenate([span @ small.inputs, rest], axis=1), small.outputs)

    def function(self, weights: Weights) -> FloatArray:
        """Return the map from the last input to the output, W_y W_x (or W_L ... W_1), (outputs, inputs)."""
        return product([weights[name] for name in self.layers])

    def strengths(self, weights: Weights) -> FloatArray:
        """Return the strength of each mode: the diagonal of `function` in the frame."""
        return self._strengths_of(self.function(weights))

    def _strengths_of(self, function: FloatArray) -> FloatArray:
        return np.einsum("mk,mn,nk->k", self.frame.mode_outputs, function, self.frame.mode_inputs)

    @property
    def best_strengths(self) -> FloatArray:
        """Strength of each mode at the least loss."""
        if self.map_problem is None:
            return self.strengths(self.unflatten(self.by_lag.rest[0], self.start))
        return self._strengths_of(self.map_problem.reachable)

    @cached_property
    def by_lag(self) -> LagDescent:
        """Gradient descent on the statistics by lag, many networks in parallel."""
        return self.statistics.descent(*self.parts)

    @property
    def parts(self) -> tuple[tuple[FloatArray, ...], tuple[bool, ...]]:
        """Weights of the first layer, the recurrence and the layers after it, and which of them learn."""
        first, *out = self.layers
        kept = np.zeros((len(self.start[first]),) * 2)
        weights = {first: self.start[first], "recurrent": kept, **self.start}
        names = (first, "recurrent", *out)
        return tuple(weights[name] for name in names), tuple(name in self.learn for name in names)

    @cached_property
    def least_loss(self) -> float:
        """Least loss that this network can reach; nan if the variance of the targets is unknown.

        For a fixed scalar recurrence it is the loss of the best linear map of the pooled input, of the rank that the
        hidden units allow and through the layers that do not learn, if these do not lie between others that do.
        Otherwise it is the loss at which training from these weights rests. This is the one definition against which
        tasks count as learned.
        """
        if self.map_problem is not None:
            return self.map_problem.least_loss
        known = None if self.pooled is None else self.pooled.least_loss_of([name in self.learn for name in self.layers])
        return self.by_lag.rest[1] if known is None else known

    @property
    def baseline_loss(self) -> float:
        """Excess loss of the zero map over `least_loss`."""
        return self.statistics.constant - self.least_loss

    @property
    def nothing_to_learn(self) -> bool:
        """Whether no map is better than the zero map, to round-off."""
        return self.baseline_loss <= NOTHING * self.statistics.constant

    @property
    def remarks(self) -> tuple[str, ...]:
        """A note on the loss that is left because there are too few hidden units."""
        return () if self.map_problem is None else self.map_problem.remarks


def checked_learn(network: Linear, learn: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the weights that learn, in the order of the network; all by default."""
    names = tuple(network.named_weights)
    chosen = names if learn is None else tuple(learn)
    for name in chosen:
        one_of("learn", name, names)
    if not chosen:
        raise InvalidSpec("learn must name at least one kind of weights, got none.", field="learn")
    return tuple(name for name in names if name in chosen)


def learned_weights(network: Linear, learn: Sequence[str] | None) -> tuple[str, ...]:
    """Names of the weights that a training lets learn; by default all but the recurrent weights."""
    names = tuple(name for name in network.named_weights if name != "recurrent")
    return checked_learn(network, names if learn is None else learn)


def lag_statistics(task: Task) -> LagStatistics:
    """Return the statistics of a task by lag behind the readout.

    Parameters
    ----------
    task : Task

    Returns
    -------
    LagStatistics

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory import lag_statistics
    >>> statistics = lag_statistics(lc.tasks.integration(steps=3))
    >>> statistics.lags, statistics.cross.ravel().round(6)
    (3, array([1., 1., 1.]))
    """
    cross = task.cross_covariance.dense()
    end = task.targets == "end"
    power = None
    if task.target_covariance is not None:
        per_step = np.einsum("rmrm->r", task.target_covariance.dense())
        power = per_step[0] if end else per_step
    return LagStatistics.from_covariances(
        task.input_covariance.dense(), cross[:, :, 0, :] if end else cross, target_power=power
    )


#: Largest number of weights for a dense Hessian.
_DENSE = 48
#: Lanczos vectors, twice the default.
_VECTORS = 24
#: Relative residual at which the Lanczos iteration ends. The eigenvalue, with a quadratic error, is then known to 1e-9.
_PRECISION = 1e-5


def curvature(problem: LearningProblem, weights: Weights | None = None) -> float:
    """Return the largest eigenvalue of the Hessian of the loss in the weights that learn.

    It is computed from exact products with the Hessian, by Lanczos iteration if there are many weights.

    Parameters
    ----------
    problem : LearningProblem
    weights : dict from name to array, optional
        All weights of the network; the start by default.

    Returns
    -------
    float
        At least 0; nan if the loss is not finite.

    Examples
    --------
    Descent diverges at learning rates above 2 / curvature. The curvature doubles while this task is learned:

    >>> import learncast as lc
    >>> import numpy as np
    >>> from learncast.theory import LearningProblem, curvature
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> learned = lc.forecast(task, network, learning_rate=1e-3).solution.network_at(np.inf)
    >>> problems = [LearningProblem.of(task, one, ("input", "output")) for one in (network, learned)]
    >>> [round(2 / curvature(problem), 3) for problem in problems]
    [0.092, 0.046]
    """
    at = problem.start if weights is None else weights
    pooled = problem.pooled
    if pooled is None or len(problem.layers) > 2:
        flat, descent = problem.flatten(at), problem.by_lag
        return _largest_eigenvalue(lambda v: descent.hessian_product(flat, v[None])[0], len(flat))
    first, second = problem.layers
    learn, seen = (first in problem.learn, second in problem.learn), at[first]
    if pooled.span is not None:
        seen = seen @ pooled.span
    return pooled_curvature(pooled.descent.cross, pooled.descent.power, seen, at[second], learn)


def pooled_curvature(
    cross: FloatArray, power: FloatArray, first: FloatArray, second: FloatArray, learn: tuple[bool, ...] = (True, True)
) -> float:
    """Return the largest eigenvalue of the Hessian for two layers, A (hidden, inputs) and C (outputs, hidden).

    `cross` is E[y z^T] and `power` is E[z z^T].
    """
    return _completed(_gauss_newton_curvature(cross, power, first, second, learn), cross, power, first, second)


def _completed(
    parts: tuple[float, float], cross: FloatArray, power: FloatArray, first: FloatArray, second: FloatArray
) -> float:
    """Return the largest eigenvalue of the full Hessian of both layers, given its Gauss-Newton part and its error."""
    gauss_newton, error = parts
    if error <= _PRECISION**2 * gauss_newton:
        return gauss_newton
    n = first.shape[1]
    layers = np.concatenate([first, second.T], axis=1)
    # Reduce the hidden space to the span of [A, C^T] and one direction beyond it, which represents all others.
    if len(layers) > layers.shape[1]:
        layers = np.concatenate([np.linalg.qr(layers, mode="r"), np.zeros((1, layers.shape[1]))])
    A, C = layers[:, :n], layers[:, n:].T
    G = C @ A @ power - cross

    def product(v: FloatArray) -> FloatArray:
        dA, dC = v[: A.size].reshape(A.shape), v[A.size :].reshape(C.shape)
        dG = (C @ dA + dC @ A) @ power
        return np.concatenate([(C.T @ dG + dC.T @ G).ravel(), (dG @ A.T + G @ dA.T).ravel()])

    return _largest_eigenvalue(product, A.size + C.size)


def sharpest_curvature(cross: FloatArray, power: FloatArray, places: Sequence[tuple[FloatArray, FloatArray]]) -> float:
    """Return the largest curvature of two layers at any of several pairs of weights.

    The closed-form Gauss-Newton part plus the largest singular value of the error is an upper bound, so pairs that
    cannot have the largest curvature are skipped.
    """
    bounds = [_gauss_newton_curvature(cross, power, *layers) for layers in places]
    largest = 0.0
    for k in sorted(range(len(places)), key=lambda k: bounds[k][1] - bounds[k][0]):
        if not sum(bounds[k]) <= largest:
            largest = float(np.maximum(largest, _completed(bounds[k], cross, power, *places[k])))  # nan stays nan
    return largest


def _gauss_newton_curvature(
    cross: FloatArray, power: FloatArray, first: FloatArray, second: FloatArray, learn: tuple[bool, ...] = (True, True)
) -> tuple[float, float]:
    """Return the largest eigenvalue of the Hessian without its error term, and a bound on that term.

    The Gauss-Newton part is that of D = C dA + dC A in tr(D S D^T): eigenvalues of S^1/2 (|C|^2 + A^T A) S^1/2.
    """
    if not all(np.isfinite(part).all() for part in (cross, power, first, second)):
        return np.nan, np.nan
    inner = _norm(second) ** 2 * np.eye(len(power)) if learn[0] else np.zeros_like(power)
    if learn[1]:
        inner += first.T @ first
    if len(power) == 1:
        largest = float(inner[0, 0] * power[0, 0])
    else:
        values, vectors = np.linalg.eigh(inner)
        root = vectors * np.sqrt(np.clip(values, 0.0, None))
        largest = max(0.0, float(np.linalg.eigvalsh(root.T @ power @ root)[-1]))
    return largest, _norm(second @ first @ power - cross) if all(learn) else 0.0


def _norm(matrix: FloatArray) -> float:
    """Return the largest singular value."""
    if 1 in matrix.shape:
        return float(np.sqrt(np.vdot(matrix, matrix)))
    return float(np.linalg.svd(matrix, compute_uv=False).max(initial=0.0))


def _largest_eigenvalue(product: Callable[[FloatArray], FloatArray], size: int) -> float:
    """Return the largest eigenvalue of a symmetric map given by its products, at least 0; nan if not finite."""
    if size <= _DENSE:
        columns = np.stack([product(row) for row in np.eye(size)])
        if not np.isfinite(columns).all():
            return float("nan")
        return max(0.0, float(np.linalg.eigvalsh((columns + columns.T) / 2)[-1]))
    start = np.random.default_rng(0).normal(size=size)
    image = product(start)
    if not np.isfinite(image).all():
        return float("nan")
    if not image.any():
        return 0.0
    operator = scipy.sparse.linalg.LinearOperator((size, size), matvec=lambda v: product(v.ravel()), dtype=float)
    values = scipy.sparse.linalg.eigsh(
        operator, k=1, which="LA", v0=start, ncv=_VECTORS, tol=_PRECISION, return_eigenvectors=False
    )
    return max(0.0, float(values[0]))
