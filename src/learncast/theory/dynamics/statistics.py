"""Second-order statistics of a task by lag, and the exact loss and gradient of a linear RNN on them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, one_of, real_array

WEIGHTS = ("input", "recurrent", "output")


@dataclass(frozen=True, eq=False)
class LagStatistics:
    """Second-order statistics of inputs and targets, by lag behind the readout.

    Lag 0 is the input at the readout step. With several readout steps r the statistics are the sums
    A_jk = sum_r E[x_{r-j} x_{r-k}'] and B_k = sum_r E[y_r x_{r-k}'], without inputs before the first step. Arrays are
    kept without a copy if their layout allows, so do not write to them.

    Parameters
    ----------
    input : array (lags, inputs, lags, inputs)
        A.
    cross : array (lags, outputs, inputs)
        B.
    constant : float
        Loss of the zero output: half the mean square of the targets, summed over readout steps. If it is unknown
        (nan), the loss is nan but the gradients are not.

    Examples
    --------
    >>> import numpy as np
    >>> from learncast.theory import LagStatistics
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
            raise InvalidSpec(f"cross must have a lag, an output and an input, got shape {cross.shape}.", field="cross")
        lags, _, inputs = cross.shape
        power = real_array("input", self.input, ndim=4)
        _require_shape("input", power, (lags, inputs, lags, inputs))
        # The covariance of a task is in time order. Its lag-ordered view has negative strides, which BLAS copies at
        # each product. So keep the time-ordered matrix and reverse the small filters instead.
        backwards = power[::-1, :, ::-1, :]
        by_time = backwards.flags.c_contiguous and not power.flags.c_contiguous
        matrix = (backwards if by_time else power).reshape(lags * inputs, lags * inputs)
        _require_symmetric(matrix)
        names = ("input", "cross", "constant", "_matrix", "_by_time")
        for name, value in zip(names, (power, cross, float(self.constant), matrix, by_time), strict=True):
            object.__setattr__(self, name, value)

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
        """Sum time-ordered covariances by lag.

        Parameters
        ----------
        input_covariance : array (steps, inputs, steps, inputs)
            E[x_t x_s'].
        cross_covariance : array (steps, inputs, outputs) or (steps, inputs, steps, outputs)
            E[x_t y'] for a target at the end, or E[x_t y_r'] for a target at every step r.
        target_power : float or array (steps,), optional
            E|y|^2, summed over outputs, at the end or at every step. Without it the loss is nan.
        """
        cross = real_array("cross_covariance", cross_covariance, ndim=(3, 4))
        steps, inputs = cross.shape[:2]
        if cross.ndim == 4:
            _require_shape("cross_covariance", cross, (steps, inputs, steps, cross.shape[3]))
        covariance = real_array("input_covariance", input_covariance, ndim=4)
        _require_shape("input_covariance", covariance, (steps, inputs, steps, inputs))
        constant = np.nan
        if target_power is not None:
            power = real_array("target_power", target_power, ndim=cross.ndim - 3)
            _require_shape("target_power", power, (steps,) * power.ndim)
            constant = 0.5 * sum(power.ravel().tolist())
        if cross.ndim == 3:
            # A target at the end is the common case: a view costs no memory.
            return cls(covariance[::-1, :, ::-1, :], cross[::-1].transpose(0, 2, 1).copy(), constant)
        A, B = np.zeros_like(covariance), np.zeros((steps, cross.shape[3], inputs))
        for r in range(steps):
            A[: r + 1, :, : r + 1, :] += covariance[r::-1, :, r::-1, :]
            B[: r + 1] += cross[r::-1, :, r, :].transpose(0, 2, 1)
        return cls(A, B, constant)

    def _filtered(self, K: FloatArray) -> FloatArray:
        """Return sum_j K_j A_jk, lag by lag."""
        turn = slice(None, None, -1 if self._by_time else 1)
        rows: FloatArray = K[turn].transpose(1, 0, 2).reshape(self.outputs, -1) @ self._matrix
        return rows.reshape(self.outputs, self.lags, self.inputs).transpose(1, 0, 2)[turn]


def loss_and_gradient(
    statistics: LagStatistics,
    input_weights: ArrayLike,
    recurrent_weights: ArrayLike,
    output_weights: ArrayLike,
    *,
    learn: tuple[str, ...] = WEIGHTS,
) -> tuple[float, dict[str, FloatArray]]:
    """Return the loss of a linear RNN and its gradients.

    The loss is half the mean squared error, summed over outputs and readout steps. With J_k = W_y W_h^k, K_k = J_k W_x
    and D_k = sum_j K_j A_jk - B_k it is <KA, K>/2 - <K, B> + constant, and the gradients are

        M_k = D_k W_x' + M_{k+1} W_h',
        g(W_y) = M_0,   g(W_x) = sum_k J_k' D_k,   g(W_h) = sum_{k>=1} J_{k-1}' M_k.

    The recursion carries matrices with one row per output. With more outputs than inputs it runs on the transposed
    network (W_y', W_h', W_x'), with one row per input. Round-off in the loss is relative to the constant.

    Implements: curriculum2025 Eq. (4), with the 1/2 on the quadratic term only
    Implements: curriculum2025 Eq. (28), for weights in any frame
    Implements: curriculum2025 Eq. (29), for weights in any frame

    Parameters
    ----------
    statistics : LagStatistics
    input_weights : array (hidden, inputs)
    recurrent_weights : array (hidden, hidden)
    output_weights : array (outputs, hidden)
        Weights too large for a finite loss give inf or nan, not an error.
    learn : tuple of {"input", "recurrent", "output"}
        Weights to differentiate.

    Returns
    -------
    loss : float
    gradient : dict of str to array
        Gradient of each kind of weights in `learn`.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory import lag_statistics, loss_and_gradient
    >>> statistics = lag_statistics(lc.tasks.integration(steps=3))
    >>> loss, slopes = loss_and_gradient(statistics, [[1.0]], [[1.0]], [[1.0]])
    >>> print(abs(round(loss, 6)), sorted(slopes))
    0.0 ['input', 'output', 'recurrent']
    """
    W_x, W_h, W_y = (_matrix(w) for w in (input_weights, recurrent_weights, output_weights))
    _require_shape("recurrent_weights", W_h, (len(W_h), len(W_h)))
    _require_shape("input_weights", W_x, (len(W_h), statistics.inputs))
    _require_shape("output_weights", W_y, (statistics.outputs, len(W_h)))
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
            slopes[ends[0]] = M[0].copy()  # a view would keep all lags in memory
            if "recurrent" in learn:
                slopes["recurrent"] = J[:-1].reshape(-1, hidden).T @ M[1:].reshape(-1, hidden)
    return value, {name: slopes[name].T if mirrored else slopes[name] for name in WEIGHTS if name in learn}


def powers(first: FloatArray, step: FloatArray, lags: int, hop: FloatArray | None = None, m: int = 1) -> FloatArray:
    """Return first, first step, first step^2, ... for each lag.

    Parameters
    ----------
    first : array (rows, units)
    step : array (units, units)
    lags : int
    hop : array, optional
        step^m, which makes it faster.
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
    """Return E_k + E_{k+1} step + E_{k+2} step^2 + ... for each lag k of the terms E, where hop = step^m."""
    lags, rows, hidden = terms.shape
    M = np.zeros((m, -(-lags // m), rows, hidden))  # lag k at [k % m, k // m]
    for i in range(m):
        M[i, : len(terms[i::m])] = terms[i::m]
    flat = M.reshape(m, -1, hidden)
    # First the sum of the m lags of each hop at its first lag, then the sum over all later hops.
    within = flat[-1]
    for i in range(m - 2, -1, -1):
        within = within @ step + flat[i]
    flat[0] = within
    carried = np.empty((rows, hidden))
    for later, earlier in pairwise(M[0, ::-1]):
        np.dot(later, hop, out=carried)
        earlier += carried
    # Then the other lags, for all hops together: the last lag of a hop follows from the first lag of the next.
    if m > 1:
        flat[-1, :-rows] += flat[0, rows:] @ step
        for i in range(m - 2, 0, -1):
            flat[i] += flat[i + 1] @ step
    return M.swapaxes(0, 1).reshape(-1, rows, hidden)[:lags]


@cache
def _stride(lags: int, rows: int, hidden: int) -> int:
    """Return the number of lags per hop with the least estimated run time.

    One lag at a time takes one thin matrix product per lag, dominated by call overhead and memory traffic. Hops of m
    lags cost log2(m) squarings of the recurrent weights, and the steps between are shared by all hops.
    """
    call, thin, thick = 2e3, 0.25, 0.06  # nanoseconds per call, and per multiplication in a thin or thick matrix

    def duration(m: int) -> float:
        hops = lags / m
        squarings = math.log2(m) * (call + thick * hidden**3)
        shared = 2 * thick * lags * (m > 1)
        return squarings + (hops + m - 1) * call + (thin * hops + shared) * rows * hidden**2

    return min([1 << i for i in range(max(1, lags.bit_length() - 1))], key=duration)


def _matrix(weights: ArrayLike) -> FloatArray:
    # Training calls this at every step. Arrays are not scanned for nan: overflow is an outcome of training.
    if isinstance(weights, np.ndarray) and weights.dtype == np.float64 and weights.ndim == 2:
        return weights
    return real_array("weights", weights, ndim=2)


def _require_symmetric(matrix: FloatArray) -> None:
    # In strips: a full transposed difference would double the memory of a large covariance.
    strip = max(1, 2**22 // len(matrix))
    pieces = [slice(i, i + strip) for i in range(0, len(matrix), strip)]
    size = max(float(np.abs(matrix[piece]).max()) for piece in pieces)
    gap = max(float(np.abs(matrix[piece] - matrix[:, piece].T).max()) for piece in pieces)
    if gap > 1e-8 * size:
        raise InvalidSpec(f"input must be symmetric, got a difference of {gap:.3g} at size {size:.3g}.", field="input")


def _require_shape(name: str, array: FloatArray, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise InvalidSpec(f"{name} must have shape {shape}, got {array.shape}.", field=name)
