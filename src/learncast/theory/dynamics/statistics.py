"""Second-order statistics of a task by lag, and the exact loss and gradient of a linear RNN on them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, one_of, real_array
from learncast.theory.dynamics.steps.lag_descent import LagDescent

WEIGHTS = ("input", "recurrent", "output")


@dataclass(frozen=True, eq=False)
class LagStatistics:
    """Second-order statistics of inputs and targets, by lag behind the readout.

    Lag 0 is the input at the readout step. With several readout steps r the statistics are the sums
    A_jk = sum_r E[x_{r-j} x_{r-k}'] and B_k = sum_r E[y_r x_{r-k}'], without inputs before the first step.

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

    def __post_init__(self) -> None:
        cross = real_array("cross", self.cross, ndim=3)
        if 0 in cross.shape:
            raise InvalidSpec(f"cross must have a lag, an output and an input, got shape {cross.shape}.", field="cross")
        lags, _, inputs = cross.shape
        power = real_array("input", self.input, ndim=4)
        _require_shape("input", power, (lags, inputs, lags, inputs))
        _require_symmetric(power.reshape(lags * inputs, lags * inputs))
        for name, value in (("input", power), ("cross", cross), ("constant", float(self.constant))):
            object.__setattr__(self, name, value)

    def descent(self, weights: tuple[FloatArray, ...], learns: tuple[bool, ...]) -> LagDescent:
        """Gradient descent of a linear RNN (W_x, W_h, W_y) of which some weights learn on these statistics."""
        return LagDescent(*self.moments, np.array(self.constant), weights, learns)

    @property
    def moments(self) -> tuple[FloatArray, FloatArray]:
        """A and B with all lags as one axis, (lags x inputs, lags x inputs) and (outputs, lags x inputs)."""
        size = self.lags * self.inputs
        return self.input.reshape(size, size), self.cross.transpose(1, 0, 2).reshape(self.outputs, size)

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
            return cls(covariance[::-1, :, ::-1, :].copy(), cross[::-1].transpose(0, 2, 1).copy(), constant)
        A, B = np.zeros_like(covariance), np.zeros((steps, cross.shape[3], inputs))
        for r in range(steps):
            A[: r + 1, :, : r + 1, :] += covariance[r::-1, :, r::-1, :]
            B[: r + 1] += cross[r::-1, :, r, :].transpose(0, 2, 1)
        return cls(A, B, constant)


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

    Round-off in the loss is relative to the constant.

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
    descent = statistics.descent((W_x, W_h, W_y), tuple(name in learn for name in WEIGHTS))
    (loss,), (flat,) = descent.loss_and_slopes(descent.start[None])
    slopes = zip(WEIGHTS, descent.parts(flat[None]), strict=True)
    return float(loss), {name: slope[0] for name, slope in slopes if name in learn}


def powers(first: FloatArray, step: FloatArray, lags: int) -> FloatArray:
    """Return first, first step, first step^2, ... for each lag.

    Parameters
    ----------
    first : array (rows, units)
    step : array (units, units)
    lags : int

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
    J = np.empty((lags, *first.shape))
    J[0] = first
    for before, after in pairwise(J):
        np.dot(before, step, out=after)
    return J


def _matrix(weights: ArrayLike) -> FloatArray:
    # Training calls this at every step. Arrays are not scanned for nan: overflow is an outcome of training.
    if isinstance(weights, np.ndarray) and weights.dtype == np.float64 and weights.ndim == 2:
        return weights
    return real_array("weights", weights, ndim=2)


def _require_symmetric(matrix: FloatArray) -> None:
    size, gap = float(np.abs(matrix).max()), float(np.abs(matrix - matrix.T).max())
    if gap > 1e-8 * size:
        raise InvalidSpec(f"input must be symmetric, got a difference of {gap:.3g} at size {size:.3g}.", field="input")


def _require_shape(name: str, array: FloatArray, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise InvalidSpec(f"{name} must have shape {shape}, got {array.shape}.", field=name)
