"""Lag statistics of a task, from which a linear RNN's loss and its gradients follow exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, one_of, real_array

WEIGHTS = ("input", "recurrent", "output")


@dataclass(frozen=True, eq=False)
class LagStatistics:
    """The second-order statistics a linear RNN can learn from, by lag behind the readout.

    Lag 0 is the input that arrives with the readout. With several readout steps r of weight w_r the
    statistics are sums, A_jk = sum_r w_r E[x_{r-j} x_{r-k}'] and B_k = sum_r w_r E[y_r x_{r-k}'], where
    inputs before the first step are absent. Arrays are kept without a copy where their layout allows: do
    not write to them afterwards.

    Parameters
    ----------
    input : array (lags, inputs, lags, inputs)
        A.
    cross : array (lags, outputs, inputs)
        B.
    constant : float
        The loss of a network that answers 0: half the weighted mean square of the targets. `nan` if
        unknown; the loss is then `nan` too, the gradients are not.

    Examples
    --------
    >>> import numpy as np
    >>> from learncast.theory.dynamics.statistics import LagStatistics
    >>> statistics = LagStatistics(np.eye(3).reshape(3, 1, 3, 1), np.ones((3, 1, 1)), 1.5)
    >>> statistics.lags, statistics.inputs, statistics.outputs
    (3, 1, 1)
    """

    input: FloatArray
    cross: FloatArray
    constant: float
    _matrix: FloatArray = field(init=False, repr=False)
    _by_time: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        cross = real_array("cross", self.cross, ndim=3)
        if 0 in cross.shape:
            raise _mismatch("cross", cross.shape, "at least one lag, one output and one input")
        object.__setattr__(self, "cross", cross)
        object.__setattr__(self, "constant", float(self.constant))
        lags, _, inputs = cross.shape
        input_statistics = real_array("input", self.input, ndim=4)
        object.__setattr__(self, "input", input_statistics)
        if input_statistics.shape != (lags, inputs, lags, inputs):
            raise _mismatch("input", input_statistics.shape, f"{(lags, inputs, lags, inputs)} to match cross")
        # A task's covariance comes in time order. Its lag-ordered view has negative strides, which BLAS takes
        # only through a copy per product: keep the time-ordered matrix and turn the small filters round.
        backwards = input_statistics[::-1, :, ::-1, :]
        by_time = backwards.flags.c_contiguous and not input_statistics.flags.c_contiguous
        matrix = (backwards if by_time else input_statistics).reshape(lags * inputs, lags * inputs)
        _require_symmetric(matrix)
        object.__setattr__(self, "_matrix", matrix)
        object.__setattr__(self, "_by_time", by_time)

    @property
    def lags(self) -> int:
        """Number of lags."""
        return int(self.cross.shape[0])

    @property
    def outputs(self) -> int:
        """Number of output channels."""
        return int(self.cross.shape[1])

    @property
    def inputs(self) -> int:
        """Number of input channels."""
        return int(self.cross.shape[2])

    @classmethod
    def from_covariances(
        cls, input_covariance: ArrayLike, cross_covariance: ArrayLike, *, target_power: ArrayLike | None = None
    ) -> LagStatistics:
        """Collect time-ordered covariances by lag.

        Parameters
        ----------
        input_covariance : array (steps, inputs, steps, inputs)
            E[x_t x_s'].
        cross_covariance : array (steps, inputs, outputs) or (steps, inputs, steps, outputs)
            E[x_t y'] for a target at the end, or E[x_t y_r'] for targets at every step r, over which the loss
            is summed.
        target_power : float or array (steps,), optional
            E|y|², summed over outputs, at the end or at every step. Without it the loss is unknown (`nan`).
        """
        cross = real_array("cross_covariance", cross_covariance, ndim=(3, 4))
        steps, inputs = cross.shape[:2]
        if cross.ndim == 4 and cross.shape[2] != steps:
            raise _mismatch("cross_covariance", cross.shape, "as many target steps as input steps")
        covariance = real_array("input_covariance", input_covariance, ndim=4)
        if covariance.shape != (steps, inputs, steps, inputs):
            wanted = f"{(steps, inputs, steps, inputs)} to match cross_covariance"
            raise _mismatch("input_covariance", covariance.shape, wanted)
        constant = np.nan
        if target_power is not None:
            power = real_array("target_power", target_power, ndim=cross.ndim - 3)
            if power.ndim == 1 and power.shape != (steps,):
                raise _mismatch("target_power", power.shape, f"({steps},), one number per step")
            constant = 0.5 * sum(power.ravel().tolist())
        if cross.ndim == 3:
            # A view: the common case, a target at the end, costs no memory.
            return cls(covariance[::-1, :, ::-1, :], cross[::-1].transpose(0, 2, 1).copy(), constant)
        A, B = np.zeros_like(covariance), np.zeros((steps, cross.shape[3], inputs))
        for r in range(steps):
            A[: r + 1, :, : r + 1, :] += covariance[r::-1, :, r::-1, :]
            B[: r + 1] += cross[r::-1, :, r, :].transpose(0, 2, 1)
        return cls(A, B, constant)

    def pooled(self, recurrence: float) -> LagStatistics:
        """Return the one-lag statistics of the pooled input sum_k b^k x_{r-k}.

        A network whose recurrent weights are b times the identity is a two-layer linear network on that
        input: A -> sum_jk b^(j+k) A_jk and B -> sum_k b^k B_k.
        """
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            v = float(recurrence) ** np.arange(self.lags)
            ordered = v[::-1] if self._by_time else v
            rows = np.dot(ordered, self._matrix.reshape(self.lags, -1)).reshape(self.inputs, self.lags, -1)
            A = np.einsum("k,ikj->ij", ordered, rows)[None, :, None, :]
            B = np.tensordot(v, self.cross, axes=1)[None]
        return LagStatistics(A, B, self.constant)

    def _filtered(self, K: FloatArray) -> FloatArray:
        """Return sum_j K_j A_jk, lag by lag."""
        turn = slice(None, None, -1 if self._by_time else 1)
        rows: FloatArray = K[turn].transpose(1, 0, 2).reshape(self.outputs, -1) @ self._matrix
        return rows.reshape(self.outputs, self.lags, self.inputs).transpose(1, 0, 2)[turn]


def loss(statistics: LagStatistics, input_weights: Any, recurrent_weights: Any, output_weights: Any) -> float:
    """Return the loss of a linear RNN: half the mean squared error, summed over outputs and readout steps.

    With K_k = W_y W_h^k W_x it is <KA, K>/2 - <K, B> + constant. Rounding is relative to the constant, so a
    loss near 0 is known to about 1e-16 of it.

    Implements: curriculum2025 Eq. (4), with the 1/2 on the quadratic term only

    Parameters
    ----------
    statistics : LagStatistics
        Of a task.
    input_weights, recurrent_weights, output_weights : array
        Of a linear RNN.

    Returns
    -------
    float
        `nan` where the constant is unknown.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.dynamics.learning_problem import lag_statistics
    >>> from learncast.theory.dynamics.statistics import loss
    >>> statistics = lag_statistics(lc.tasks.integration(steps=3))
    >>> print(round(loss(statistics, [[1.0]], [[0.0]], [[1.0]]), 6))
    1.0
    """
    return loss_and_gradient(statistics, input_weights, recurrent_weights, output_weights, learn=())[0]


def gradient(
    statistics: LagStatistics,
    input_weights: Any,
    recurrent_weights: Any,
    output_weights: Any,
    *,
    learn: tuple[str, ...] = WEIGHTS,
) -> dict[str, FloatArray]:
    """Return the gradient of `loss` with respect to each kind of weights in `learn`.

    Implements: curriculum2025 Eq. (28), for weights in any frame
    Implements: curriculum2025 Eq. (29), for weights in any frame

    Parameters
    ----------
    statistics : LagStatistics
        Of a task.
    input_weights, recurrent_weights, output_weights : array
        Of a linear RNN.
    learn : tuple of {"input", "recurrent", "output"}
        Weights whose gradients are asked for.

    Returns
    -------
    dict of str to array

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.dynamics.learning_problem import lag_statistics
    >>> from learncast.theory.dynamics.statistics import gradient
    >>> statistics = lag_statistics(lc.tasks.integration(steps=3))
    >>> slopes = gradient(statistics, [[1.0]], [[0.5]], [[1.0]], learn=("input", "recurrent"))
    >>> {name: slope.round(6).tolist() for name, slope in slopes.items()}
    {'input': [[-0.4375]], 'recurrent': [[-1.25]]}
    """
    return loss_and_gradient(statistics, input_weights, recurrent_weights, output_weights, learn=learn)[1]


def loss_and_gradient(
    statistics: LagStatistics,
    input_weights: Any,
    recurrent_weights: Any,
    output_weights: Any,
    *,
    learn: tuple[str, ...] = WEIGHTS,
) -> tuple[float, dict[str, FloatArray]]:
    """Return the loss and its gradients, at a cost that does not depend on the number of trials.

    With J_k = W_y W_h^k, K_k = J_k W_x and D_k = sum_j K_j A_jk - B_k,

        M_k = D_k W_x' + M_{k+1} W_h',
        g(W_y) = M_0,   g(W_x) = sum_k J_k' D_k,   g(W_h) = sum_{k>=1} J_{k-1}' M_k.

    The recursion carries matrices with one row per output. The transposed network (W_y', W_h', W_x') has the
    transposed K_k, so with more outputs than inputs the same recursion runs on it, one row per input.

    Parameters
    ----------
    statistics : LagStatistics
    input_weights : array (hidden, inputs)
    recurrent_weights : array (hidden, hidden)
    output_weights : array (outputs, hidden)
        Weights too large for a finite loss are a numerical outcome, not an error: they give `inf` or `nan`.
    learn : tuple of {"input", "recurrent", "output"}
        The weights to differentiate.

    Returns
    -------
    loss : float
    gradient : dict of str to array
        The gradients asked for, each shaped like its weights.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.dynamics.learning_problem import lag_statistics
    >>> from learncast.theory.dynamics.statistics import loss_and_gradient
    >>> statistics = lag_statistics(lc.tasks.integration(steps=3))
    >>> loss, slopes = loss_and_gradient(statistics, [[1.0]], [[1.0]], [[1.0]])
    >>> print(abs(round(loss, 6)), sorted(slopes))
    0.0 ['input', 'output', 'recurrent']
    """
    W_x, W_h, W_y = _weights(statistics, input_weights, recurrent_weights, output_weights)
    for name in learn:
        one_of("learn", name, WEIGHTS)
    mirrored = statistics.outputs > statistics.inputs
    left, step, right = (W_x.T, W_h.T, W_y.T) if mirrored else (W_y, W_h, W_x)
    ends = ("input", "output") if mirrored else ("output", "input")
    lags, hidden = statistics.lags, W_h.shape[0]
    m = _stride(lags, len(left), hidden)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        hop = np.linalg.matrix_power(step, m)
        J = powers(left, step, lags, hop, m)
        K = (J.reshape(-1, hidden) @ right).reshape(lags, len(left), -1)
        if mirrored:
            K = K.transpose(0, 2, 1)
        D = statistics._filtered(K) - statistics.cross
        value = 0.5 * float(np.sum(K * (D - statistics.cross))) + statistics.constant
        if mirrored:
            D = D.transpose(0, 2, 1)
        flat = D.reshape(-1, D.shape[2])
        slopes = {}
        if ends[1] in learn:
            slopes[ends[1]] = J.reshape(-1, hidden).T @ flat
        if ends[0] in learn or "recurrent" in learn:
            M = _accumulated((flat @ right.T).reshape(J.shape), step.T, hop.T, m)
            slopes[ends[0]] = M[0].copy()  # a view would keep all lags alive
            if "recurrent" in learn:
                slopes["recurrent"] = J[:-1].reshape(-1, hidden).T @ M[1:].reshape(-1, hidden)
    return value, {name: slopes[name].T if mirrored else slopes[name] for name in WEIGHTS if name in learn}


def powers(first: FloatArray, step: FloatArray, lags: int, hop: FloatArray | None = None, m: int = 1) -> FloatArray:
    """Stack first, first step, first step², ... for each lag; faster with hop = step^m at hand.

    Parameters
    ----------
    first : array (rows, units)
    step : array (units, units)
    lags : int
    hop : array, optional
        step^m.
    m : int

    Returns
    -------
    array (lags, rows, units)

    Examples
    --------
    >>> import numpy as np
    >>> from learncast.theory.dynamics.statistics import powers
    >>> powers(np.array([[1.0]]), np.array([[0.5]]), 4).ravel()
    array([1.   , 0.5  , 0.25 , 0.125])
    """
    J = np.empty((m, -(-lags // m), *first.shape))  # lag k at [k % m, k // m]
    J[0, 0] = first
    for before, after in pairwise(J[0]):
        np.dot(before, step if hop is None else hop, out=after)
    for before, after in pairwise(J.reshape(m, -1, len(step))):
        np.dot(before, step, out=after)
    return J.swapaxes(0, 1).reshape(-1, *first.shape)[:lags]


def _accumulated(terms: FloatArray, step: FloatArray, hop: FloatArray, m: int) -> FloatArray:
    """Return E_k + E_{k+1} step + E_{k+2} step² + ... for each lag of the terms E, where hop = step^m."""
    lags, rows, hidden = terms.shape
    M = np.zeros((m, -(-lags // m), rows, hidden))  # lag k at [k % m, k // m]
    for i in range(m):
        M[i, : len(terms[i::m])] = terms[i::m]
    flat = M.reshape(m, -1, hidden)
    # What the m lags of each hop add up to at its first lag; then, hop by hop, all later lags too.
    within = flat[-1]
    for i in range(m - 2, -1, -1):
        within = within @ step + flat[i]
    flat[0] = within
    carried = np.empty((rows, hidden))
    for later, earlier in pairwise(M[0, ::-1]):
        np.dot(later, hop, out=carried)
        earlier += carried
    # The lags between, for all hops at once: the last of a hop follows from the first of the next.
    if m > 1:
        flat[-1, :-rows] += flat[0, rows:] @ step
        for i in range(m - 2, 0, -1):
            flat[i] += flat[i + 1] @ step
    return M.swapaxes(0, 1).reshape(-1, rows, hidden)[:lags]


@cache
def _stride(lags: int, rows: int, hidden: int) -> int:
    """Choose how many lags one hop spans; only the time taken depends on it, not the answer.

    One lag at a time means one thin matrix product per lag, which is call overhead and memory traffic. Hops
    of m lags cost log2(m) squarings of the recurrent weights, and all hops then share the steps between.
    """
    call, thin, thick = 2e3, 0.25, 0.06  # nanoseconds per call, and per product in a thin or thick matrix

    def duration(m: int) -> float:
        hops = lags / m
        squarings = math.log2(m) * (call + thick * hidden**3)
        shared = 2 * thick * lags * (m > 1)
        return squarings + (hops + m - 1) * call + (thin * hops + shared) * rows * hidden**2

    return min([1 << i for i in range(max(1, lags.bit_length() - 1))], key=duration)


def _weights(
    statistics: LagStatistics, input_weights: Any, recurrent_weights: Any, output_weights: Any
) -> tuple[FloatArray, FloatArray, FloatArray]:
    W_x, W_h, W_y = (_matrix(w) for w in (input_weights, recurrent_weights, output_weights))
    hidden = len(W_h)
    wanted = {
        "input_weights": (W_x, (hidden, statistics.inputs)),
        "recurrent_weights": (W_h, (hidden, hidden)),
        "output_weights": (W_y, (statistics.outputs, hidden)),
    }
    for name, (matrix, shape) in wanted.items():
        if matrix.shape != shape:
            raise _mismatch(name, matrix.shape, f"{shape} to match the statistics and the recurrent weights")
    return W_x, W_h, W_y


def _matrix(weights: Any) -> FloatArray:
    # Training calls this every step: an array passes as it is, unscanned, because weights that overflowed are
    # a numerical outcome of the training that made them.
    if isinstance(weights, np.ndarray) and weights.dtype == np.float64 and weights.ndim == 2:
        return weights
    return real_array("weights", weights, ndim=2)


def _require_symmetric(matrix: FloatArray) -> None:
    # By strips: a whole transposed difference would double the memory of a large covariance.
    strip = max(1, 2**22 // len(matrix))
    pieces = [slice(i, i + strip) for i in range(0, len(matrix), strip)]
    size = max(float(np.abs(matrix[piece]).max()) for piece in pieces)
    gap = max(float(np.abs(matrix[piece] - matrix[:, piece].T).max()) for piece in pieces)
    if gap > 1e-8 * size:
        raise InvalidSpec(
            "input statistics must be symmetric under exchange of (lag, input) pairs, got a largest "
            f"difference of {gap:.3g} among entries up to {size:.3g}. Average the array with its transpose "
            "(2, 3, 0, 1), or check its axes."
        )


def _mismatch(name: str, shape: tuple[int, ...], wanted: str) -> InvalidSpec:
    return InvalidSpec(
        required=f"{name} must have shape {wanted}" if wanted.startswith("(") else f"{name} must have {wanted}",
        got=f"shape {shape}",
        why="each axis has a fixed meaning",
        remedy="reshape it to the layout the docstring names",
    )
