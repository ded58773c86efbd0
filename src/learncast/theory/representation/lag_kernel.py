"""The neural tangent kernel of a linear RNN as a quadratic form on input lags."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec
from learncast._core.limits import check_bytes
from learncast._core.validation import FloatArray, count, one_of, real_array
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.theory.dynamics.statistics import WEIGHTS, powers


@dataclass(frozen=True, eq=False)
class LagKernel:
    """The tangent kernel as a quadratic form on inputs by lag, one block for each kind of weights.

    The kernel of outputs o, p on two trials is K_op(x, x') = sum_jk x_{T-j}' Theta_{oj,pk} x'_{T-k}, where Theta is the
    sum of the blocks of the weights that learn. Theta does not depend on the trials. Two of its blocks are identity
    matrices times a smaller matrix, which is stored.

    Attributes
    ----------
    output : array (lags, inputs, lags, inputs)
        Gram matrix F_j' F_k of the hidden responses F_k = W_h^k W_x; the block is its product with the identity over
        outputs.
    input : array (lags, outputs, lags, outputs)
        Gram matrix J_j J_k' of the readouts J_k = W_y W_h^k; the block is its product with the identity over inputs.
    recurrent : array (outputs, lags, inputs, outputs, lags, inputs)
        Convolution over lags of the two Gram matrices, one lag later.

    Examples
    --------
    >>> import learncast as lc
    >>> network = lc.LinearRNN.aligned(recurrence=0.5, initial=1.0, hidden_size=1)
    >>> lc.theory.network_kernel(network, steps=3).output.ravel()
    array([1.    , 0.5   , 0.25  , 0.5   , 0.25  , 0.125 , 0.25  , 0.125 ,
           0.0625])
    """

    output: FloatArray
    input: FloatArray
    recurrent: FloatArray

    def dense(self, learn: tuple[str, ...] = WEIGHTS) -> FloatArray:
        """Return the kernel of the weights in `learn`, (outputs, lags, inputs, outputs, lags, inputs).

        The eigenvalues of this matrix are those of the kernel for white inputs. At zero loss the largest is the
        sharpness, and gradient descent needs a learning rate below 2 / sharpness.
        """
        for name in learn:
            one_of("learn", name, WEIGHTS)
        outputs, _, inputs = self.recurrent.shape[:3]
        check_size(self.recurrent.size, "the dense kernel")
        theta = self.recurrent.copy() if "recurrent" in learn else np.zeros_like(self.recurrent)
        if "output" in learn:
            for o in range(outputs):
                theta[o, :, :, o] += self.output
        if "input" in learn:
            for i in range(inputs):
                theta[:, :, i, :, :, i] += self.input.transpose(1, 0, 3, 2)
        return theta

    def between(
        self, inputs: ArrayLike, other_inputs: ArrayLike | None = None, *, learn: tuple[str, ...] = WEIGHTS
    ) -> FloatArray:
        """Return the kernel of the weights in `learn` between trials, (trials, other trials, outputs, outputs).

        Parameters
        ----------
        inputs, other_inputs : (trials, steps, inputs)
            Trials in the order of time; the other ones are the same by default.
        learn : tuple of str
        """
        X = self._by_lag("inputs", inputs)
        Y = X if other_inputs is None else self._by_lag("other_inputs", other_inputs)
        check_size(2 * len(X) * len(Y) * len(self.recurrent) ** 2, f"the kernel of {len(X)} by {len(Y)} trials")
        return np.asarray(np.einsum("ali,olipmj,bmj->abop", X, self.dense(learn), Y, optimize=True))

    def _by_lag(self, name: str, inputs: ArrayLike) -> FloatArray:
        trials, wanted = real_array(name, inputs, ndim=3), self.output.shape[:2]
        if trials.shape[1:] != wanted:
            raise InvalidSpec(f"{name} must be trials of shape {wanted}, got shape {trials.shape}.", field=name)
        return trials[:, ::-1]


def network_kernel(network: LinearRNN | TwoLayer, *, steps: int = 1) -> LagKernel:
    """Return the tangent kernel of the last output of a network after `steps` inputs.

    With F_k = W_h^k W_x and J_k = W_y W_h^k, the derivatives of the output by W_y, W_x and W_h at lag k are F_k, J_k
    and Phi_k = sum_{p+q=k-1} J_p (x) F_q. The blocks are their Gram matrices over lags.

    Parameters
    ----------
    network : LinearRNN or TwoLayer
        A two-layer network is a recurrent network of one step.
    steps : int
        Number of inputs before the readout, which is the number of lags.

    Returns
    -------
    LagKernel

    Examples
    --------
    >>> import learncast as lc
    >>> network = lc.LinearRNN.aligned(recurrence=0.5, initial=1.0, hidden_size=1)
    >>> lc.theory.network_kernel(network, steps=2).dense(("recurrent",)).reshape(2, 2)
    array([[0., 0.],
           [0., 1.]])
    """
    lags, (W_x, W_y) = count("steps", steps), network.maps
    W_h = np.zeros((network.hidden_size,) * 2) if isinstance(network, TwoLayer) else network.recurrent_weights
    (hidden, inputs), outputs = W_x.shape, len(W_y)
    features = lags * inputs * outputs * min(hidden, lags * inputs) * min(hidden, lags * outputs)
    needed = (lags * inputs * outputs) ** 2 + features + lags * hidden * (inputs + outputs)
    check_size(needed, f"the kernel of {lags} lags, {inputs} inputs and {outputs} outputs")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        F = powers(W_x.T, W_h.T, lags)  # (lags, inputs, hidden)
        J = powers(W_y, W_h, lags)  # (lags, outputs, hidden)
        return LagKernel(_gram(F), _gram(J), _recurrent_block(J, F))


def _recurrent_block(J: FloatArray, F: FloatArray) -> FloatArray:
    """Return the Gram matrix of Phi_k = sum_{p+q=k-1} J_p (x) F_q over lags."""
    J, F = _shortened(J), _shortened(F)
    lags, outputs, inputs = len(J), J.shape[1], F.shape[1]
    features = np.zeros((outputs, lags, inputs, J.shape[2], F.shape[2]))
    for p in range(lags - 1):
        features[:, p + 1 :] += J[p][:, None, None, :, None] * F[: lags - 1 - p, :, None, :]
    flat = features.reshape(outputs * lags * inputs, -1)
    return (flat @ flat.T).reshape(outputs, lags, inputs, outputs, lags, inputs)


def _shortened(rows: FloatArray) -> FloatArray:
    """Express vectors in as few coordinates as there are vectors, with the same inner products."""
    lags, channels, hidden = rows.shape
    if hidden <= lags * channels:
        return rows
    # QR keeps the relative precision of each column, which matters since lags differ by orders of magnitude.
    triangle: FloatArray = np.asarray(np.linalg.qr(rows.reshape(-1, hidden).T, mode="r"))
    return triangle.T.reshape(lags, channels, -1)


def _gram(rows: FloatArray) -> FloatArray:
    lags, channels, hidden = rows.shape
    flat = rows.reshape(-1, hidden)
    return (flat @ flat.T).reshape(lags, channels, lags, channels)


def check_size(numbers: int, what: str) -> None:
    """Require that an array of this many numbers fits into memory."""
    check_bytes(what, 8 * numbers, remedy="use fewer samples, lags or channels")
