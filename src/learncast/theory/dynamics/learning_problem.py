"""A learning problem for any linear network: weights, their loss and its slope, from statistics alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, one_of
from learncast.networks.linear_rnn import LinearRNN, check_fit
from learncast.networks.two_layer import TwoLayer
from learncast.tasks.geometry import Frame, common_frame, pooled_statistics
from learncast.tasks.task import Task
from learncast.theory.dynamics.pooled import PooledProblem
from learncast.theory.dynamics.statistics import LagStatistics, loss_and_gradient

__all__ = ["LearningProblem", "curvature", "lag_statistics"]

Weights = dict[str, FloatArray]

#: Weights by kind of network, in the order of the network's own arguments.
KINDS = {LinearRNN: ("input", "recurrent", "output"), TwoLayer: ("first", "second")}

#: A two-layer network is a recurrent one of one step; its weights under the names the statistics use.
AS_RECURRENT = {"input": "input", "recurrent": "recurrent", "output": "output", "first": "input", "second": "output"}


@dataclass(frozen=True, eq=False)
class LearningProblem:
    """A task, a network and the weights that learn.

    Attributes
    ----------
    task : Task
    network : LinearRNN or TwoLayer
        Before training.
    learn : tuple of str
        Names of the weights that learn: of "input", "recurrent", "output" (or "first", "second").

    Examples
    --------
    What is lost by a leak that cannot be learned: with it the best loss is 6.1, and 0 where the recurrence learns too.

    >>> import learncast as lc
    >>> from learncast.theory.dynamics.learning_problem import LearningProblem
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> fixed = LearningProblem.of(task, network, ("input", "output"))
    >>> free = LearningProblem.of(task, network, ("input", "recurrent", "output"))
    >>> round(fixed.least_loss, 1), round(free.least_loss, 1)
    (6.1, 0.0)
    """

    task: Task
    network: LinearRNN | TwoLayer
    learn: tuple[str, ...]

    @classmethod
    def of(cls, task: Task, network: LinearRNN | TwoLayer, learn: tuple[str, ...] | None) -> LearningProblem:
        """Check that the three fit together."""
        check_fit(task, network, why="the gradient is computed from the statistics of linear networks")
        return cls(task, network, checked_learn(network, learn))

    @property
    def map_names(self) -> tuple[str, str]:
        """Names of the map into the hidden units and of the map out of them."""
        names = KINDS[type(self.network)]
        return names[0], names[-1]

    @property
    def start(self) -> Weights:
        """All weights before training."""
        if isinstance(self.network, TwoLayer):
            return {"first": self.network.first, "second": self.network.second}
        n = self.network
        return {"input": n.input_weights, "recurrent": n.recurrent_weights, "output": n.output_weights}

    def built(self, weights: Weights) -> LinearRNN | TwoLayer:
        """The network with these weights."""
        kind = type(self.network)
        return kind(*(weights[name] for name in KINDS[kind]))

    @cached_property
    def statistics(self) -> LagStatistics:
        """The task by lag behind the readout, pooled to one lag where recurrence is a fixed number."""
        if self.pooled_recurrence is None:
            return lag_statistics(self.task)
        cross, power = pooled_statistics(self.task, self.pooled_recurrence)
        return LagStatistics(power[None, :, None, :], cross.T[None], self.task.target_power / 2)

    @cached_property
    def pooled_recurrence(self) -> float | None:
        """The fixed number that is the recurrence; None when it is learned or a matrix."""
        if isinstance(self.network, TwoLayer):
            return 0.0
        if "recurrent" in self.learn:
            return None
        b = self.network.scalar_recurrence
        # Powers that overflow are an outcome of training, not of the statistics.
        return b if b is not None and 2 * self.task.steps * np.log2(max(abs(b), 1.0)) < 900 else None

    def loss_and_slopes(self, weights: Weights, statistics: LagStatistics | None = None) -> tuple[float, Weights]:
        """Loss and the slopes of the weights that learn, on the task or on sampled statistics of it."""
        using = self.statistics if statistics is None else statistics
        W_x, W_y = (weights[name] for name in self.map_names)
        # With one (pooled) lag the recurrence no longer acts; a zero stands in for it.
        W_h = weights["recurrent"] if using.lags > 1 else np.zeros((len(W_x), len(W_x)))
        names = tuple(AS_RECURRENT[name] for name in self.learn)
        value, slopes = loss_and_gradient(using, W_x, W_h, W_y, learn=names)
        return value, {name: slopes[AS_RECURRENT[name]] for name in self.learn}

    @cached_property
    def frame(self) -> Frame:
        """Input and output directions of the task's modes, suited to the start."""
        maps = (self.function(self.start),)
        return common_frame([self.task], maps=maps, recurrence=self.pooled_recurrence)

    def function(self, weights: Weights) -> FloatArray:
        """The map of the newest input to the output, W_y W_x (W2 W1), (outputs, inputs)."""
        first, second = self.map_names
        return weights[second] @ weights[first]

    def strengths(self, weights: Weights) -> FloatArray:
        """Strength of each mode: the diagonal of that map in the modes' frame."""
        f = self.frame
        return np.einsum("mk,mn,nk->k", f.mode_outputs, self.function(weights), f.mode_inputs)

    @cached_property
    def least_loss(self) -> float:
        """Loss of the best linear map that the readout can be: of the pooled input, or of all lags.

        Where recurrence is a fixed number the network can reach it (with enough hidden units). Where recurrence is a
        matrix or is learned it is the best any linear filter of the input does: a bound.
        """
        if self.pooled_recurrence is not None:
            return PooledProblem.of(self.task, self.network).least_loss
        s = self.statistics
        n = s.lags * s.inputs
        B = s.cross.transpose(0, 2, 1).reshape(n, s.outputs)
        explained = float(np.sum(B * np.linalg.lstsq(s.input.reshape(n, n), B, rcond=None)[0]))
        return s.constant - explained / 2

    def target_excess(self, accuracy: float) -> float:
        """Excess loss at which the learned map is within 1 - accuracy of the best one, in the task's own measure."""
        return (1 - accuracy) ** 2 * (self.statistics.constant - self.least_loss)


def checked_learn(network: LinearRNN | TwoLayer, learn: Sequence[str] | None) -> tuple[str, ...]:
    """Names of the weights that learn, in the network's own order; all of them unless told."""
    names = KINDS[type(network)]
    chosen = names if learn is None else tuple(learn)
    for name in chosen:
        one_of("learn", name, names)
    if not chosen:
        raise InvalidSpec("at least one kind of weights must learn, got none.")
    return tuple(name for name in names if name in chosen)


def learned_weights(network: LinearRNN | TwoLayer, learn: Sequence[str] | None) -> tuple[str, ...]:
    """Names of the weights that a training lets learn; by default all but the recurrent weights."""
    names = KINDS[type(network)]
    return checked_learn(network, (names[0], names[-1]) if learn is None else learn)


def lag_statistics(task: Task) -> LagStatistics:
    """A task's statistics by lag behind the readout.

    Parameters
    ----------
    task : Task

    Returns
    -------
    LagStatistics

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.dynamics.learning_problem import lag_statistics
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


#: Weights up to which the Hessian is written out.
_DENSE = 48
#: Lanczos vectors; twice as many as the default reach the top of a spread spectrum in one sweep.
_VECTORS = 24
#: Relative residual at which the iteration ends; the eigenvalue, whose error is of its square, is then known to 1e-9.
_PRECISION = 1e-5
#: Step of the differences of slopes, relative to the weights: balances their third derivatives against round-off.
_STEP = float(np.finfo(float).eps ** (1 / 3))


def curvature(problem: LearningProblem, weights: Weights | None = None) -> float:
    """Largest eigenvalue of the loss's Hessian in the weights that learn, at given weights or at the start.

    Exact where recurrence is a fixed number (or there is none); elsewhere by Lanczos iteration on differences of the
    analytic slopes.

    Parameters
    ----------
    problem : LearningProblem
        A task, a network and the weights that learn.
    weights : dict from name to array, optional
        All weights of the network, as `LearningProblem.start` has them.

    Returns
    -------
    float
        0 where no direction curves upwards; nan where the loss is not finite.

    Examples
    --------
    Descent diverges at more than 2 over the curvature, which doubles while this task is learned: the largest learning
    rate falls to half.

    >>> import learncast as lc
    >>> import numpy as np
    >>> from learncast.theory.dynamics.learning_problem import LearningProblem, curvature
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> learned = lc.solve(task, network, learning_rate=1e-3).network_at(np.inf)
    >>> problems = [LearningProblem.of(task, one, ("input", "output")) for one in (network, learned)]
    >>> [round(2 / curvature(problem), 3) for problem in problems]
    [0.092, 0.046]
    """
    at = problem.start if weights is None else weights
    if problem.pooled_recurrence is None:
        return _differenced(problem, at)
    first, second = problem.map_names
    cross, power = pooled_statistics(problem.task, problem.pooled_recurrence)
    learn = first in problem.learn, second in problem.learn
    return pooled_curvature(cross.T, power, at[first], at[second], learn)


def pooled_curvature(
    cross: FloatArray, power: FloatArray, first: FloatArray, second: FloatArray, learn: tuple[bool, ...] = (True, True)
) -> float:
    """The same of two layers, A (hidden, inputs) and C (outputs, hidden), on E[y z^T] and E[z z^T].

    The hidden space is that of [A, C^T] and one direction beyond it: all others are alike. Where no error is left, or
    one layer alone learns, the Hessian has a closed form.
    """
    straight, error = _straight_curvature(cross, power, first, second, learn)
    if error <= _PRECISION**2 * straight:
        return straight
    return _iterated_curvature(cross, power, first, second)


def _iterated_curvature(cross: FloatArray, power: FloatArray, first: FloatArray, second: FloatArray) -> float:
    """The largest eigenvalue of the whole Hessian of both layers, error included."""
    S, R, n = power, cross, first.shape[1]
    layers = np.concatenate([first, second.T], axis=1)
    if len(layers) > layers.shape[1]:
        layers = np.concatenate([np.linalg.qr(layers, mode="r"), np.zeros((1, layers.shape[1]))])
    A, C = layers[:, :n], layers[:, n:].T
    G = C @ A @ S - R

    def bent(flat: FloatArray) -> FloatArray:
        dA, dC = flat[: A.size].reshape(A.shape), flat[A.size :].reshape(C.shape)
        D = (C @ dA + dC @ A) @ S
        return np.concatenate([(C.T @ D + dC.T @ G).ravel(), (D @ A.T + G @ dA.T).ravel()])

    return _largest(bent, A.size + C.size)


def sharpest_curvature(cross: FloatArray, power: FloatArray, places: Sequence[tuple[FloatArray, FloatArray]]) -> float:
    """The largest curvature of two layers at any of several places.

    It is no larger than its part without the error, which has a closed form, and the error's largest singular value:
    places that cannot be the sharpest are not iterated on.
    """
    bounds = [_straight_curvature(cross, power, *layers) for layers in places]
    found = 0.0
    for k in sorted(range(len(places)), key=lambda k: bounds[k][1] - bounds[k][0]):
        straight, error = bounds[k]
        if not straight + error <= found:
            settled = error <= _PRECISION**2 * straight
            here = straight if settled else _iterated_curvature(cross, power, *places[k])
            found = float(np.maximum(found, here))  # nan stays nan
    return found


def _straight_curvature(
    cross: FloatArray, power: FloatArray, first: FloatArray, second: FloatArray, learn: tuple[bool, ...] = (True, True)
) -> tuple[float, float]:
    """The largest eigenvalue of the Hessian without the error that is left, and what that error can change in it.

    Without it the Hessian is that of D = C dA + dC A in tr(D S D^T): eigenvalues of S^1/2 (|C|^2 + A^T A) S^1/2.
    """
    if not all(np.isfinite(part).all() for part in (cross, power, first, second)):
        return np.nan, np.nan
    inner = _norm(second) ** 2 * np.eye(len(power)) if learn[0] else np.zeros_like(power)
    if learn[1]:
        inner += first.T @ first
    values, vectors = np.linalg.eigh(inner)
    root = vectors * np.sqrt(np.clip(values, 0.0, None))
    straight = max(0.0, float(np.linalg.eigvalsh(root.T @ power @ root)[-1]))
    return straight, _norm(second @ first @ power - cross) if all(learn) else 0.0


def _norm(matrix: FloatArray) -> float:
    """The largest singular value; of one row or column its length."""
    if 1 in matrix.shape:
        return float(np.sqrt(np.vdot(matrix, matrix)))
    return float(np.linalg.svd(matrix, compute_uv=False).max(initial=0.0))


def _differenced(problem: LearningProblem, weights: Weights) -> float:
    """By differences of slopes: recurrence that is learned, or a matrix."""
    names = problem.learn
    ends = np.cumsum([weights[name].size for name in names])
    here = np.concatenate([weights[name].ravel() for name in names])
    step = _STEP * max(float(np.abs(here).max(initial=0.0)), 1e-3)

    def slopes(flat: FloatArray) -> FloatArray:
        parts = np.split(flat, ends[:-1])
        moved = {name: part.reshape(weights[name].shape) for name, part in zip(names, parts, strict=True)}
        found = problem.loss_and_slopes({**weights, **moved})[1]
        return np.concatenate([found[name].ravel() for name in names])

    def bent(flat: FloatArray) -> FloatArray:
        size = step / (float(np.abs(flat).max(initial=0.0)) or 1.0)
        return (slopes(here + size * flat) - slopes(here - size * flat)) / (2 * size)

    return _largest(bent, len(here))


def _largest(bent: Callable[[FloatArray], FloatArray], size: int) -> float:
    """Largest eigenvalue of a symmetric map, 0 if none is positive; nan where it is not finite."""
    if size <= _DENSE:
        columns = np.stack([bent(row) for row in np.eye(size)])
        if not np.isfinite(columns).all():
            return float("nan")
        return max(0.0, float(np.linalg.eigvalsh((columns + columns.T) / 2)[-1]))
    begin = np.random.default_rng(0).normal(size=size)
    pushed = bent(begin)
    if not np.isfinite(pushed).all():
        return float("nan")
    if not pushed.any():
        return 0.0
    operator = scipy.sparse.linalg.LinearOperator((size, size), matvec=lambda v: bent(v.ravel()), dtype=float)
    found = scipy.sparse.linalg.eigsh(
        operator, k=1, which="LA", v0=begin, ncv=_VECTORS, tol=_PRECISION, return_eigenvectors=False
    )
    return max(0.0, float(found[0]))
