"""The stability of a learned recurrence, and its loss on longer trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, count, one_of, real_array
from learncast.networks.linear_rnn import LinearRNN, check_fit
from learncast.results import Status
from learncast.tasks.task import Task
from learncast.theory.dynamics.learning_problem import lag_statistics
from learncast.theory.dynamics.statistics import WEIGHTS, loss_and_gradient, powers
from learncast.theory.recurrence.optimum import Optimum, input_matrix
from learncast.theory.representation.lag_kernel import network_kernel

ANCHORS = ("end", "start")
#: Share of the largest singular value of a Hankel matrix below which singular values count as 0.
SILENT = 1e-9
#: Residual, relative to the target's strengths, below which the tangent kernel is the full curvature.
RESIDUAL = 1e-6


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


def least_hidden_size(cross_strengths: ArrayLike) -> int:
    """Return the least number of hidden units with which a linear RNN fits a task exactly.

    The filter K_k = W_y W_h^k W_x of T lags needs as many units as the minimal partial realisation of K has states,
    sum_i rank H(i, T+1-i) - sum_i rank H(i, T-i), with H(i, j) the Hankel matrix of i by j blocks K_0, K_1, ...

    Parameters
    ----------
    cross_strengths : (lags,) or (lags, outputs, inputs)
        sig_k of white inputs, lag 0 first.

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
    K = K[:, None, None] if K.ndim == 1 else K
    if 0 in K.shape:
        raise InvalidSpec(f"cross_strengths must not be empty, got shape {K.shape}.", field="cross_strengths")
    values = [[_hankel_values(K[:lags], i) for i in range(1, lags + 1)] for lags in (len(K), len(K) - 1)]
    scale = max(float(v[0]) for v in values[0])
    more, fewer = (sum(int((v > SILENT * scale).sum()) for v in matrices) for matrices in values)
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
