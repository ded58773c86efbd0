"""Exact gradient flow of a balanced two-layer linear network on one whitened task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from learncast._core.errors import InvalidSpec, brief
from learncast._core.validation import FloatArray, between, real_array

IntArray = NDArray[np.intp]

_EPS = float(np.finfo(np.float64).eps)
#: Finite replacement of t = infinity, so that 0 * t is 0; exp(-rate * 1e300) is 0 for any positive rate.
_FOREVER = 1e300
#: Largest rate * time at which exp(a t) exp(-b t) replaces exp((a - b) t), at a loss of 32 roundings.
_SEPARABLE = 32.0
#: Excess of a column's squared length over n, the largest value if pivoted, at which a time gets its own row order.
_SLACK = 256.0
#: Numbers per array in a chunk of times: a few such arrays fit the cache of a core.
_CHUNK = 1 << 15
#: Largest number of columns for which substitution over all times is faster than one triangular solve per time.
_FEW = 8


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
        self._spectrum = _Spectrum.of(S, self._start, self.imbalance, tolerance)
        self.singular_values = self._spectrum.singular_values
        X = self._spectrum.split(*self._start)
        negligible = tolerance * float(np.linalg.norm(X))
        final, self._hidden, self._since = _final_frame(X, self._spectrum.rates, negligible)
        self._late = self._early = _Orders(self._spectrum, final, final.rows, negligible / 8)
        if self._since > 0:
            rates = self._spectrum.rates
            frame, hidden = _largest_first(X, rates, np.zeros_like(rates), negligible / 8)
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
        grams, strengths, losses = np.empty((t.size, size, size)), np.empty((t.size, m)), np.empty(t.size)
        for here, Z in self._factors(t.ravel()):
            Q = self._spectrum.join(Z)
            np.matmul(Q, _transpose(Q), out=grams[here])
            above, below = Z[:, :m], Z[:, self._spectrum.inputs.shape[1] :][:, :m]
            np.einsum("tkh,tkh->tk", below, above, out=strengths[here])
            error = grams[here, inputs:, :inputs] - self._task
            np.einsum("tij,tij->t", error, error, out=losses[here])
        losses /= 2
        return grams.reshape(*t.shape, size, size), strengths.reshape(*t.shape, m), losses.reshape(t.shape)

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


@dataclass(frozen=True)
class _Spectrum:
    """Eigenpairs of F on the space that the weights can reach.

    Rows: the growing combination of each singular mode, the directions of the larger outer layer outside all modes, the
    decaying combination of each mode.
    """

    singular_values: FloatArray
    inputs: FloatArray
    outputs: FloatArray
    rates: FloatArray
    sine: FloatArray
    cosine: FloatArray

    @classmethod
    def of(cls, S: FloatArray, start: tuple[FloatArray, FloatArray], imbalance: float, tolerance: float) -> _Spectrum:
        # The SVD of S, unlike eigh(F), keeps zeros exact and +- pairs paired.
        U, s, Vt = np.linalg.svd(S, full_matrices=False)
        s = _tied(s, tolerance * s.max(initial=0.0))
        V, U = _completed(Vt.T, start[0].T), _completed(U, start[1])
        half = abs(imbalance) / 2
        mu = np.hypot(s, half)
        # sqrt(2) times sine and cosine of the eigenvector of [[-half, s], [s, half]], from the half-angle formula
        # without cancellation or division by lambda.
        less, more = (s, mu + half) if half else (np.ones_like(s), np.ones_like(s))
        norm = np.sqrt(2.0) / np.hypot(less, more)
        sine, cosine = (norm * less, norm * more) if imbalance >= 0 else (norm * more, norm * less)
        unpaired = np.full(U.shape[1] + V.shape[1] - 2 * s.size, imbalance / (2 if len(U) > len(V) else -2))
        return cls(s, V, U, np.concatenate([mu, unpaired, -mu]), sine[:, None], cosine[:, None])

    @property
    def size(self) -> int:
        return self.rates.size

    def split(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Return O^T Q / sqrt(2): for zero-balanced weights half-sums and half-differences, without rounding."""
        m = self.singular_values.size
        v, u = self.inputs.T @ first.T, self.outputs.T @ second
        up, down = self.sine * v[:m] + self.cosine * u[:m], self.cosine * v[:m] - self.sine * u[:m]
        return np.concatenate([up / 2, v[m:] / np.sqrt(2.0), u[m:] / np.sqrt(2.0), down / 2])

    def mix(self, Y: FloatArray) -> FloatArray:
        """Return singular coordinates, inputs above outputs, of rows of `split`; Y is overwritten."""
        m, n, v = self.singular_values.size, self.size, self.inputs.shape[1]
        Z = np.empty_like(Y)
        up, down, above, below = Y[:, :m], Y[:, n - m :], Z[:, :m], Z[:, v : v + m]
        Z[:, slice(m, v) if v > m else slice(v + m, n)] = Y[:, m : n - m]
        np.multiply(up, self.sine, out=above)
        np.multiply(up, self.cosine, out=below)
        below -= np.multiply(down, self.sine, out=up)
        above += np.multiply(down, self.cosine, out=up)
        return Z

    def join(self, Z: FloatArray) -> FloatArray:
        """Return Q from singular coordinates."""
        (inputs, v), outputs = self.inputs.shape, len(self.outputs)
        Q = np.empty((len(Z), inputs + outputs, Z.shape[2]))
        np.matmul(self.inputs, Z[:, :v], out=Q[:, :inputs])
        np.matmul(self.outputs, Z[:, v:], out=Q[:, inputs:])
        return Q

    def reach(self, t: FloatArray) -> FloatArray:
        """Return sqrt((1 - exp(-2 |L| t)) / |L|), (times, rows): sqrt(2 g) without its exponential growth."""
        size = np.abs(self.rates)
        finite = np.minimum(t, _FOREVER)[:, None]
        with np.errstate(over="ignore"):
            grown = -np.expm1(-2 * size * finite)
        return np.sqrt(np.where(size > 0, grown / np.where(size > 0, size, 1.0), 2 * finite))

    def decaying(self, t: FloatArray) -> FloatArray:
        """Return exp(L t) of decaying rows and 1 for growing rows; unpaired rows have a factor sqrt(2)."""
        with np.errstate(over="ignore"):
            decay = np.exp(np.minimum(self.rates, 0.0) * np.minimum(t, _FOREVER)[:, None])
        m = self.singular_values.size
        decay[:, m : self.size - m] *= np.sqrt(2.0)
        # Rows of rate 0 decay as 1 / sqrt(t), which is 0 at t = infinity.
        decay[np.isinf(t)] *= self.rates > 0
        return decay


@dataclass(frozen=True)
class _Factors:
    """Factors of the rows and columns of a frame at some times."""

    t: FloatArray
    #: Row factors in the Gram matrix to be factorised, and in the weights.
    inner: FloatArray
    outer: FloatArray
    #: Column factors with and without their decay.
    scale: FloatArray
    peak: FloatArray
    #: Whether row growth and column decay are separate factors; otherwise exp of their difference is used.
    separable: bool


@dataclass(frozen=True)
class _Frame:
    """X H in echelon form for one order of its rows, with the pivot row of each column."""

    rows: FloatArray
    pivots: IntArray
    rates: FloatArray

    def factors(self, spectrum: _Spectrum, t: FloatArray) -> _Factors:
        reach, decaying, finite = spectrum.reach(t), spectrum.decaying(t), np.minimum(t, _FOREVER)[:, None]
        pivot = self.rows[self.pivots, np.arange(self.pivots.size)]
        with np.errstate(over="ignore"):
            decay = np.exp(-np.maximum(self.rates[self.pivots], 0.0) * finite)
            grown = np.maximum(self.rates, 0.0) * finite
        peak = 1 / np.hypot(decay, reach[:, self.pivots] * pivot)
        separable = bool(grown.max(initial=0.0) <= _SEPARABLE)
        growth = np.exp(grown) if separable else 1.0
        return _Factors(t, growth * reach, growth * decaying, decay * peak, peak, separable)

    def columns(self, factors: _Factors) -> FloatArray:
        """Return X H c, (times, rows, columns), including the growth unless it is separable."""
        K, growing = self.rows, int(np.count_nonzero(self.rates > 0))
        Y = np.multiply(K, factors.scale[:, None])
        if factors.separable:
            return Y
        up, finite = Y[:, :growing], np.minimum(factors.t, _FOREVER)[:, None, None]
        with np.errstate(over="ignore"):
            np.multiply(self.rates[:growing, None] - np.maximum(self.rates[self.pivots], 0.0), finite, out=up)
        # Above the pivots K is exactly 0, so the exponent may have any value. Elsewhere so large a column is rejected.
        np.exp(np.minimum(up, 200.0, out=up), out=up)
        up *= K[:growing]
        up *= factors.peak[:, None]
        return Y


class _Orders:
    """Factor Q at any time, in one order of rows where it is accurate and in other orders elsewhere."""

    def __init__(self, spectrum: _Spectrum, first: _Frame, rows: FloatArray, negligible: float) -> None:
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
                    weight = np.maximum(spectrum.rates, 0.0) * min(t[0], _FOREVER) + np.log(spectrum.reach(t[:1])[0])
                self.other, _ = _largest_first(self.rows, spectrum.rates, weight, self.negligible)
            frame = self.other
        if len(parts) == 1:
            return parts[0][1]
        Z = np.zeros((number, spectrum.size, self.first.pivots.size))
        for index, part in parts:
            Z[index, :, : part.shape[2]] = part
        return Z


class _Echelon:
    """Gram-Schmidt orthogonalisation of the rows of X, in the order in which they are added.

    A row adds no direction if its remainder is round-off: its own, and that of the rows subtracted from it, times their
    coefficients. Adding the largest row first avoids large coefficients.
    """

    def __init__(self, X: FloatArray, negligible: float) -> None:
        self.X, self.negligible = X, negligible**2
        # The threshold has a safety factor; a row passes on only one or two roundings to others.
        self.grain = (negligible / (8 * len(X))) ** 2
        rank = min(X.shape)
        self.basis = np.zeros((X.shape[1], rank))
        self.pivots: list[int] = []
        self.lengths, self.noise = np.zeros(rank), np.zeros(rank)
        # Number of columns in which a row is not 0; rows that are never added are nonzero in all.
        self.depth = np.full(len(X), rank)

    @property
    def directions(self) -> FloatArray:
        return self.basis[:, : len(self.pivots)]

    @property
    def free(self) -> int:
        """Number of directions that can still be added."""
        return self.basis.shape[1] - len(self.pivots)

    def frame(self, rates: FloatArray) -> _Frame:
        known = np.arange(len(self.pivots)) < self.depth[:, None]
        return _Frame((self.X @ self.directions) * known, np.array(self.pivots, dtype=np.intp), rates)

    def add_one_by_one(self, rows: IntArray) -> None:
        """Add rows in the given order."""
        while rows.size and self.free:
            rest, noise = self._rest(rows)
            live = np.einsum("ij,ij->i", rest, rest) > self.negligible + noise
            self.depth[rows[~live]] = j = len(self.pivots)
            rows, noise = rows[live], noise[live][: self.free]
            if not rows.size:
                return
            # One Householder factorisation for all rows up to the first that adds no direction.
            Q, R = np.linalg.qr(np.hstack([self.directions, self.X[rows[: self.free]].T]))
            Q, R = Q[:, j:], R[j:, j:]
            lengths, new = np.abs(np.diagonal(R)), 0
            for length in lengths:
                noise[new] += (R[:new, new] / lengths[:new]) ** 2 @ noise[:new]
                if length**2 <= self.negligible + noise[new]:
                    break
                new += 1
            self.basis[:, j : j + new] = Q[:, :new]
            self.lengths[j : j + new], self.noise[j : j + new] = lengths[:new], noise[:new]
            self.pivots += rows[:new].tolist()
            self.depth[rows[: new + 1]] = np.minimum(j + 1 + np.arange(rows[: new + 1].size), j + new)
            rows = rows[new + 1 :]

    def add_largest_first(self, rows: IntArray, weight: FloatArray) -> None:
        """Add the row with the largest exp(weight) |remainder|, repeatedly."""
        if not self.free:
            return
        rest, noise = self._rest(rows)
        self.depth[rows] = j = len(self.pivots)
        while self.free:
            lengths = np.linalg.norm(rest, axis=1)
            live = lengths**2 > self.negligible + noise
            if not live.any():
                return
            k = int(np.argmax(np.where(live, weight[rows] + np.log(np.where(live, lengths, 1.0)), -np.inf)))
            row = rest[k] / lengths[k]
            row -= self.directions @ (row @ self.directions)  # a second time, for full orthogonality
            row /= np.linalg.norm(row)
            self.basis[:, j], self.lengths[j], self.noise[j] = row, lengths[k], noise[k]
            self.pivots.append(int(rows[k]))
            self.depth[rows[live]] = j = j + 1
            rest -= np.multiply.outer(rest @ row, row)
            rest[k] = 0.0

    def _rest(self, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the remainder of rows outside the present directions, and its squared round-off."""
        shares, rank = self.X[rows] @ self.directions, len(self.pivots)
        noise = self.grain + (shares / self.lengths[:rank]) ** 2 @ self.noise[:rank]
        return self.X[rows] - shares @ self.directions.T, noise


def _final_frame(X: FloatArray, rates: FloatArray, negligible: float) -> tuple[_Frame, FloatArray, float]:
    """Return the frame of late times, fastest row first, its hidden basis, and the time from which it is exact."""
    echelon = _Echelon(X, negligible)
    order = np.argsort(-rates, kind="stable")
    # Among rows of equal rate, the largest goes first. Split the order around each such group, so that all rows between
    # two groups are added together.
    falls = np.concatenate([[True], np.diff(rates[order]) < 0, [True]])
    tied = ~(falls[1:] & falls[:-1])
    cuts = np.flatnonzero(falls[1:-1] & (tied[1:] | tied[:-1])) + 1
    for rows in np.split(order, cuts):
        if rates[rows[0]] == rates[rows[-1]]:
            echelon.add_largest_first(rows, np.zeros_like(rates))
        else:
            echelon.add_one_by_one(rows)
    return echelon.frame(rates), echelon.directions, _dominant_since(echelon, np.maximum(rates, 0.0))


def _dominant_since(echelon: _Echelon, rates: FloatArray) -> float:
    """Return the time from which each truncated row is smaller than the faster rows that displaced it.

    A fast row that starts near a separatrix is small, and its direction is inaccurate: the part of a larger row outside
    that direction counts as round-off. This holds once the fast row has outgrown the other. Before, another order keeps
    all of it.
    """
    X, directions, since = echelon.X, echelon.directions, 0.0
    for row in np.flatnonzero(echelon.depth < directions.shape[1]):
        depth = int(echelon.depth[row])
        shares = X[row] @ directions[:, :depth]
        rest = X[row] - directions[:, :depth] @ shares
        if row in echelon.pivots or np.linalg.norm(rest) ** 2 <= echelon.negligible:
            continue
        lead = rates[echelon.pivots[:depth]] - rates[row]
        larger = (np.abs(shares) > echelon.lengths[:depth]) & (lead > 0)
        times = np.log(np.abs(shares[larger]) / echelon.lengths[:depth][larger]) / lead[larger]
        since = max(since, float(times.max(initial=0.0)))
    return since


def _largest_first(
    X: FloatArray, rates: FloatArray, weight: FloatArray, negligible: float
) -> tuple[_Frame, FloatArray]:
    """Return the frame of one time, largest exp(weight) |row| first, and its hidden basis."""
    echelon = _Echelon(X, negligible)
    echelon.add_largest_first(np.arange(len(X)), weight)
    return echelon.frame(rates), echelon.directions


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


def _tied(values: FloatArray, width: float) -> FloatArray:
    """Return descending values, equal if closer than width, and 0 if below it."""
    values = np.where(values <= width, 0.0, values)
    group = np.concatenate([[0], np.cumsum(np.diff(values) < -width)])
    return (np.bincount(group, values) / np.bincount(group))[group]


def _completed(basis: FloatArray, columns: FloatArray) -> FloatArray:
    """Extend an orthonormal basis to span the columns too."""
    if basis.shape[0] == basis.shape[1]:
        return basis
    # One QR of both keeps the new directions orthogonal even if the columns almost lie in the span of the basis.
    more = np.linalg.qr(np.hstack([basis, columns]))[0][:, basis.shape[1] :]
    return np.hstack([basis, more])


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
