"""Exact gradient flow of a balanced two-layer linear network on one whitened task."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec, brief
from learncast._core.validation import FloatArray, between, real_array
from learncast.theory.dynamics.balanced.frames import (
    FOREVER,
    EchelonFrame,
    IntArray,
    Spectrum,
    final_frame,
    largest_first,
)

_EPS = float(np.finfo(np.float64).eps)
#: Excess of a column's squared length over n, the largest value if pivoted, at which a time gets its own row order.
_SLACK = 256.0
#: Numbers per array in a chunk of times: a few such arrays fit the cache of a core.
_CHUNK = 1 << 15
#: Largest number of columns for which substitution over all times is faster than one triangular solve per time.
_FEW = 8
#: Number of times above which a polynomial is faster than each time by itself.
_WORTH = 64
#: Length of the first piece of time that a polynomial covers, times the largest rate.
_PIECE = 2.5
#: Chebyshev points of a piece, and the map from values at them to coefficients.
_ANGLES = np.pi * np.arange(33) / 32
_SERIES = np.linalg.inv(np.cos(np.multiply.outer(_ANGLES, np.arange(33))))


class BalancedFlow:
    """Weights of a balanced two-layer linear network as a function of training time.

    With Q = [W1^T; W2] the gradient flow of 1/2 ||W2 W1 - S||^2 is Q' = F Q - 1/2 Q Q^T Q, where
    F = [[-lambda/2, S^T], [S, lambda/2]] = O diag(L) O^T. With X = O^T Q(0), an orthonormal basis H of the hidden
    space and column scales c,

        Q(t) = O Y C^-T,   Y = exp(L t) X H c,   C C^T = c (I + H^T X^T g X H) c,   g = (exp(2 L t) - 1) / (2 L).

    H brings X H to echelon form in the order in which its rows come to dominate, and c cancels the growth of the pivot
    row of each column. Then nothing overflows and C is well conditioned. Bottlenecks, rank-deficient tasks,
    separatrices and all times from 0 to infinity need no special cases. Time is in units of tau: learning rate x steps.
    Times may be infinite, and the first axes of results have the shape of the times.

    Implements: braun2022 Eq. (4), with lambda on the diagonal of F
    Implements: braun2022 Eq. (5), without the inverse of F, for any sizes and any imbalance
    Implements: braun2022 Eq. (11), without the inverse of B
    Implements: braun2022 Eq. (13), also for singular A(0)
    Assumes: whitened_input, balanced_weights

    Parameters
    ----------
    cross_covariance : array_like, (outputs, inputs)
        S = Cov(y, x). The input covariance is the identity; for sigma^2 times the identity pass S / sigma^2 and
        multiply times by sigma^2.
    first_weights : array_like, (hidden, inputs)
        W1 at time 0.
    second_weights : array_like, (outputs, hidden)
        W2 at time 0.
    imbalance : float, optional
        lambda in W2^T W2 - W1 W1^T = lambda I; measured from the weights by default.
    separatrix_tolerance : float, optional
        Relative size below which a difference counts as 0: the start is then exactly on a separatrix, singular values
        are equal, or weights are zero-balanced. The default is 16 (inputs + outputs) machine epsilons; 0 keeps
        round-off, as a simulation does.

    Attributes
    ----------
    imbalance : float
        lambda.
    balance_residual : float
        ||Q D - lambda Q|| / ||Q Q^T Q|| at time 0, with D = W2^T W2 - W1 W1^T. It is 0 if the solution is exact, and
        0.1 to 1 for unrelated layers.
    singular_values : ndarray, (min(inputs, outputs),)
        Singular values of S, in descending order.
    lost_modes : ndarray of int
        Singular modes of S that are never learned, for lack of hidden units or because the start lies on a separatrix.
        Among modes of equal singular value only their number is meaningful.
    final_loss : float
        Excess loss at t = infinity: half the sum of the lost singular values squared.

    Examples
    --------
    Two modes are learned one after the other, each at the rate of its singular value. One hidden unit learns only the
    stronger mode:

    >>> import numpy as np
    >>> from learncast.theory import BalancedFlow
    >>> task = np.diag([3.0, 1.0])
    >>> BalancedFlow(task, 0.1 * np.eye(2), 0.1 * np.eye(2)).course([0.0, 1.0, 2.0, np.inf])[1].round(2)
    array([[0.01, 0.01],
           [1.72, 0.07],
           [2.99, 0.36],
           [3.  , 1.  ]])
    >>> narrow = BalancedFlow(task, [[0.1, 0.1]], [[0.1], [0.1]])
    >>> narrow.lost_modes, narrow.final_loss
    (array([1]), 0.5)
    """

    def __init__(
        self,
        cross_covariance: ArrayLike,
        first_weights: ArrayLike,
        second_weights: ArrayLike,
        *,
        imbalance: float | None = None,
        separatrix_tolerance: float | None = None,
    ) -> None:
        S = real_array("cross_covariance", cross_covariance, ndim=2)
        self._shape, self._task = S.shape, S
        self._start = _checked_layers(first_weights, second_weights, S.shape)
        if separatrix_tolerance is None:
            separatrix_tolerance = min(16 * sum(S.shape) * _EPS, 1.0)
        tolerance = between("separatrix_tolerance", separatrix_tolerance, 0, 1)
        self.imbalance, self.balance_residual = _balance(*self._start, imbalance, tolerance)
        self._spectrum = Spectrum.of(S, self._start, self.imbalance, tolerance)
        self.singular_values = self._spectrum.singular_values
        X = self._spectrum.split(*self._start)
        negligible = tolerance * float(np.linalg.norm(X))
        final, self._hidden, self._since = final_frame(X, self._spectrum.rates, negligible)
        self._late = self._early = _Orders(self._spectrum, final, final.rows, negligible / 8)
        if self._since > 0:
            rates = self._spectrum.rates
            frame, hidden = largest_first(X, rates, np.zeros_like(rates), negligible / 8)
            self._early = _Orders(self._spectrum, frame, X @ hidden, negligible / 8)
            self._hidden = max(hidden, self._hidden, key=lambda basis: basis.shape[1])
        unlearned = self.singular_values > 0
        unlearned[final.pivots[final.pivots < unlearned.size]] = False
        self.lost_modes = np.flatnonzero(unlearned)
        self.final_loss = 0.5 * float(np.sum(self.singular_values[self.lost_modes] ** 2))

    def factor(self, time: float) -> FloatArray:
        """Return Q = [W1^T; W2] at one time, (inputs + outputs, hidden), up to a rotation of the hidden space."""
        return self._rotated(time) @ self._hidden.T

    def limit(self) -> FloatArray:
        """Return Q at t = infinity: the optimum, or the saddle at which the flow ends."""
        return self.factor(np.inf)

    def weights(self, time: float) -> tuple[FloatArray, FloatArray]:
        """Return the first and second weights at one time.

        The flow determines Q Q^T. The rotation of the hidden space brings Q nearest to the initial weights.
        Another `BalancedFlow` that starts from these weights continues the training exactly.
        """
        Q, inputs = self._rotated(time), self._shape[1]
        first, second = self._start
        if time == 0:
            return first.copy(), second.copy()
        # Orthogonal Procrustes problem. The factor keeps all digits; eigenvectors of Q Q^T would keep half of them.
        left, _, right = np.linalg.svd(Q[:inputs].T @ first.T + Q[inputs:].T @ second, full_matrices=False)
        Q = Q @ (left @ right)
        return Q[:inputs].T.copy(), Q[inputs:].copy()

    def grams(self, times: ArrayLike) -> FloatArray:
        """Return Q Q^T: input and output similarity of the weights, and the network function as the off-diagonal block.

        Implements: braun2022 Eq. (6)
        """
        return self.course(times)[0]

    def course(self, times: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return Q Q^T, the strength u_k^T W2 W1 v_k of each singular mode, and the excess loss."""
        t, inputs, size, m = _checked_times(times), self._shape[1], sum(self._shape), self.singular_values.size
        order, rows, losses = np.argsort(t, axis=None, kind="stable"), np.empty((t.size, size**2 + m)), np.empty(t.size)
        self._fill(t.ravel()[order], rows)
        rows = rows[np.argsort(order)] if (np.diff(order) < 0).any() else rows
        grams, strengths, step = *self._parts(rows), max(1, _CHUNK // self._task.size)
        for i in range(0, t.size, step):
            error = grams[i : i + step, inputs:, :inputs] - self._task
            np.einsum("tij,tij->t", error, error, out=losses[i : i + step])
        losses /= 2
        return grams.reshape(*t.shape, size, size), strengths.reshape(*t.shape, m), losses.reshape(t.shape)

    def _parts(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return views of Q Q^T and of the strengths in rows of both."""
        size = sum(self._shape)
        return rows[:, : size**2].reshape(len(rows), size, size), rows[:, size**2 :]

    def _fill(self, t: FloatArray, rows: FloatArray) -> None:
        """Fill Q Q^T and strengths at ascending times, by polynomials over pieces of time that hold many times."""
        first, length = 0, float(_PIECE / max(self._spectrum.rates.max(), np.finfo(float).tiny))
        while first < t.size:
            stop = max(int(np.searchsorted(t, t[first] + length, side="right")), min(first + _WORTH, t.size))
            here = slice(first, stop)
            if stop - first <= _WORTH or t[stop - 1] == np.inf:
                self._evaluate(t[here], rows[here])
            elif not self._interpolate(t[here], rows[here]):
                length /= 2
                continue
            first, length = stop, 1.25 * length

    def _interpolate(self, t: FloatArray, rows: FloatArray) -> bool:
        """Fill Q Q^T and strengths from their Chebyshev series, unless its last coefficients are above round-off."""
        middle, half, nodes = (t[-1] + t[0]) / 2, (t[-1] - t[0]) / 2, np.empty((_ANGLES.size, rows.shape[1]))
        self._evaluate(middle + half * np.cos(_ANGLES), nodes)
        series, sizes = _SERIES @ nodes, np.linalg.norm(nodes, axis=1)
        if np.linalg.norm(series[-3:], axis=1).max() > min(1e-13 * sizes.min(), 16 * _EPS * sizes.max()):
            return False
        angles = np.arccos(np.clip((t - middle) / (half or 1.0), -1.0, 1.0))
        np.matmul(np.cos(np.multiply.outer(angles, np.arange(_ANGLES.size))), series, out=rows)
        return True

    def _evaluate(self, t: FloatArray, rows: FloatArray) -> None:
        """Fill Q Q^T and strengths at each time by itself."""
        m, (grams, strengths) = self.singular_values.size, self._parts(rows)
        for here, Z in self._factors(t):
            Q = self._spectrum.join(Z)
            np.matmul(Q, _transpose(Q), out=grams[here])
            above, below = Z[:, :m], Z[:, self._spectrum.inputs.shape[1] :][:, :m]
            np.einsum("tkh,tkh->tk", below, above, out=strengths[here])

    @property
    def modes(self) -> tuple[FloatArray, FloatArray]:
        """Left and right singular vectors of S, (outputs, modes) and (inputs, modes)."""
        m = self.singular_values.size
        return self._spectrum.outputs[:, :m], self._spectrum.inputs[:, :m]

    def network_functions(self, times: ArrayLike) -> FloatArray:
        """Return W2 W1, the outputs for unit inputs.

        Implements: braun2022 Eq. (7), for X = I
        """
        return self.grams(times)[..., self._shape[1] :, : self._shape[1]]

    def losses(self, times: ArrayLike) -> FloatArray:
        """Return the excess loss 1/2 ||W2 W1 - S||^2, computed in the singular coordinates of the task."""
        t, mode = _checked_times(times), np.arange(self.singular_values.size)
        v, losses = self._spectrum.inputs.shape[1], np.empty(t.size)
        for here, Z in self._factors(t.ravel()):
            error = Z[:, v:] @ _transpose(Z[:, :v])
            error[:, mode, mode] -= self.singular_values
            np.einsum("tij,tij->t", error, error, out=losses[here])
        losses /= 2
        return losses.reshape(t.shape)

    def _rotated(self, time: float) -> FloatArray:
        if np.ndim(time):
            raise InvalidSpec(f"time must be one number, got shape {np.shape(time)}.", field="time")
        return self._spectrum.join(self._factor(_checked_times(time).reshape(1)))[0]

    def _factors(self, t: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        """Yield Q in the singular coordinates of the task, (times, coordinates, rank), in chunks of times."""
        step = max(1, _CHUNK // max(1, self._late.first.rows.size))
        for i in range(0, t.size, step):
            yield slice(i, i + step), self._factor(t[i : i + step])

    def _factor(self, t: FloatArray) -> FloatArray:
        early = t < self._since
        if not early.any():
            Z = self._late.at(t)
            if Z.shape[2] == self._hidden.shape[1]:
                return Z
        Z = np.zeros((t.size, self._spectrum.size, self._hidden.shape[1]))
        for orders, here in ((self._early, early), (self._late, ~early)):
            part = orders.at(t[here])
            Z[here, :, : part.shape[2]] = part
        return Z


class _Orders:
    """Factor Q at any time, in one order of rows where it is accurate and in other orders elsewhere."""

    def __init__(self, spectrum: Spectrum, first: EchelonFrame, rows: FloatArray, negligible: float) -> None:
        self.spectrum, self.first, self.rows, self.negligible = spectrum, first, rows, negligible
        self.other = first

    def at(self, t: FloatArray) -> FloatArray:
        """Return Q in the singular coordinates of the task, (times, coordinates, rank)."""
        spectrum, number = self.spectrum, len(t)
        left, frame, own = np.arange(number), self.first, False
        parts: list[tuple[IntArray, FloatArray]] = []
        while True:
            factors = frame.factors(spectrum, t)
            Y = frame.columns(factors)
            G = _gram(Y * factors.inner[:, :, None], factors.scale**2)
            Y *= factors.outer[:, :, None]
            fits = np.einsum("tjj->tj", G).max(axis=1, initial=0.0) <= spectrum.size + _SLACK
            fits[:1] |= own
            if fits.all():
                parts.append((left, _solve(spectrum.mix(Y), G)))
                break
            parts.append((left[fits], _solve(spectrum.mix(Y[fits]), G[fits])))
            left, t = left[~fits], t[~fits]
            # A row that starts near a separatrix stays small for a long time before it dominates. A pivot on it would
            # lose digits meanwhile. Any order is exact, and the last order often suits the next times too.
            own = frame is not self.first or self.other is self.first
            if own:
                # Order of one time, largest sqrt(g) |row| first.
                with np.errstate(divide="ignore"):
                    weight = np.maximum(spectrum.rates, 0.0) * min(t[0], FOREVER) + np.log(spectrum.reach(t[:1])[0])
                self.other, _ = largest_first(self.rows, spectrum.rates, weight, self.negligible)
            frame = self.other
        if len(parts) == 1:
            return parts[0][1]
        Z = np.zeros((number, spectrum.size, self.first.pivots.size))
        for index, part in parts:
            Z[index, :, : part.shape[2]] = part
        return Z


def _balance(first: FloatArray, second: FloatArray, imbalance: float | None, tolerance: float) -> tuple[float, float]:
    """Return the imbalance lambda and the residual of Q D = lambda Q."""
    second_gram, first_gram = second.T @ second, first @ first.T
    D, gram = second_gram - first_gram, second_gram + first_gram
    total, square = float(np.trace(gram)), float(np.sum(gram**2))
    if imbalance is None:
        # Least squares over Q, so that unused hidden directions have no influence.
        imbalance = float(np.sum(D * gram)) / total if total > 0 else 0.0
        if abs(imbalance) * total <= tolerance * square:
            imbalance = 0.0
    imbalance = between("imbalance", imbalance, -np.inf, np.inf)
    if total == 0:
        return imbalance, 0.0
    off = D - imbalance * np.eye(len(D))
    # From Q, not from its Gram matrix: the square root would amplify the round-off of the latter.
    residual = np.hypot(np.linalg.norm(first.T @ off), np.linalg.norm(second @ off))
    size = np.sqrt(np.sum(gram * (gram @ gram)))
    return imbalance, float(residual / max(size, abs(imbalance) * np.sqrt(total)))


def _gram(A: FloatArray, ridge: FloatArray) -> FloatArray:
    """Return A^T A + diag(ridge) for each time."""
    G = np.matmul(_transpose(A), A)
    np.einsum("tjj->tj", G)[...] += ridge
    return G


def _solve(Y: FloatArray, G: FloatArray) -> FloatArray:
    """Overwrite Y by Y C^-T, where C C^T = G, for each time."""
    if Y.shape[2] > _FEW:
        for g, y in zip(G, Y, strict=True):
            # C is well conditioned, and a product with its inverse is faster than a solve.
            upper, failed = scipy.linalg.lapack.dpotrf(g.T, clean=0, overwrite_a=1)
            if failed:
                raise np.linalg.LinAlgError("Gram matrix is not positive definite")
            inverse, _ = scipy.linalg.lapack.dtrtri(upper, overwrite_c=1)
            scipy.linalg.blas.dtrmm(1.0, inverse, y.T, trans_a=1, overwrite_b=1)
        return Y
    C = np.linalg.cholesky(G)
    for j in range(Y.shape[2]):
        if j:
            Y[:, :, j] -= np.einsum("tik,tk->ti", Y[:, :, :j], C[:, j, :j])
        Y[:, :, j] /= C[:, j, j, None]
    return Y


def _transpose(stack: FloatArray) -> FloatArray:
    return np.swapaxes(stack, -1, -2)


def _checked_layers(first: ArrayLike, second: ArrayLike, shape: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
    W1 = real_array("first_weights", first, ndim=2)
    W2 = real_array("second_weights", second, ndim=2)
    if not (min(*W1.shape, *W2.shape) > 0 and len(W1) == W2.shape[1] and (len(W2), W1.shape[1]) == shape):
        given = f"{W1.shape} and {W2.shape} for a task of {shape}"
        raise InvalidSpec(f"weights must be (hidden, inputs) and (outputs, hidden), got {given}.", field="weights")
    return W1.copy(), W2.copy()


def _checked_times(times: ArrayLike) -> FloatArray:
    t = np.asarray(times, dtype=np.float64)
    if not (t >= 0).all():
        raise InvalidSpec(f"times must be at least 0, got {brief(times)}.", field="times")
    return t
