"""The exact gradient flow of a balanced two-layer linear network on one whitened task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, between, real_array
from learncast.theory.dynamics.balanced.interpolation import WORTH, sampled

IntArray = NDArray[np.intp]

_EPS = float(np.finfo(np.float64).eps)
#: Stands for t = infinity, so that 0 * t stays 0; exp(-rate * 1e300) is 0 for any rate that is not.
_FOREVER = 1e300
#: Largest rate * time at which exp(a t) exp(-b t) is as good as exp((a - b) t): 32 roundings are lost.
_SEPARABLE = 32.0
#: Excess of a column's squared length over the n a pivoted one can have, above which its time gets its own order.
_SLACK = 256.0
#: Numbers in one array of a chunk of times: a few such arrays fit a core's own cache.
_CHUNK = 1 << 15
#: Chunks whose exponentials are taken at once, so that the calls for them do not count.
_AHEAD = 16
#: Columns up to which substitution over all times at once beats one triangular solve per time.
_FEW = 8


class BalancedFlow:
    """The weights of a balanced two-layer linear network as a function of training time.

    With Q = [W1^T; W2] the gradient flow of 1/2 ||W2 W1 - S||^2 is Q' = F Q - 1/2 Q Q^T Q, where
    F = [[-lambda/2, S^T], [S, lambda/2]] = O diag(L) O^T. With X = O^T Q(0), an orthonormal basis H of the hidden
    space and column scales c,

        Q(t) = O Y C^-T,   Y = exp(L t) X H c,   C C^T = c (I + H^T X^T g X H) c,   g = (exp(2 L t) - 1) / (2 L).

    H makes X H echelon in the order in which its rows come to dominate, and c undoes the growth of the row each
    column is pivoted on. Then nothing overflows and C stays well conditioned, so that bottlenecks, rank-deficient
    tasks, separatrices and all times from 0 to infinity are one case. Time is in units of tau: learning rate times
    steps. Wherever times are taken they may be infinite, and results carry their shape in front.

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
        lambda in W2^T W2 - W1 W1^T = lambda I; measured from the weights if not given.
    separatrix_tolerance : float, optional
        Relative size below which a difference counts as round-off of 0: the start is then exactly on a
        separatrix, the singular values exactly tied, the weights exactly zero-balanced. The default is
        16 (inputs + outputs) machine epsilons; 0 keeps round-off, as a simulation does.

    Attributes
    ----------
    imbalance : float
        lambda.
    balance_residual : float
        ||Q D - lambda Q|| / ||Q Q^T Q|| at time 0, with D = W2^T W2 - W1 W1^T: 0 where the solution is exact, and
        from 0.1 to 1 for unrelated layers. It is measured here and judged by the caller.
    singular_values : ndarray, (min(inputs, outputs),)
        Singular values of S, falling.
    lost_modes : ndarray of int
        The singular modes of S that are never learned, for want of a hidden unit or because the start lies on a
        separatrix. Among modes of equal singular value only their number has a meaning.
    final_loss : float
        Excess loss at t = infinity: half the sum of the lost singular values squared.

    Examples
    --------
    Two modes are learned one after the other, each at the pace of its singular value. One hidden unit has room for the
    stronger alone:

    >>> import numpy as np
    >>> from learncast.theory.dynamics.balanced.flow import BalancedFlow
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
        cross_covariance: Any,
        first_weights: Any,
        second_weights: Any,
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
        self._settled, self._hidden, self._since = _settled_frame(X, self._spectrum.rates, negligible)
        self._late = self._early = _Orders(self._spectrum, self._settled, self._settled.rows, negligible / 8)
        if self._since > 0:
            rates = self._spectrum.rates
            frame, hidden = _largest_first(X, rates, np.zeros_like(rates), negligible / 8)
            self._early = _Orders(self._spectrum, frame, X @ hidden, negligible / 8)
            self._hidden = max(hidden, self._hidden, key=lambda basis: basis.shape[1])
        unlearned = self.singular_values > 0
        unlearned[self._settled.pivots[self._settled.pivots < unlearned.size]] = False
        self.lost_modes = np.flatnonzero(unlearned)
        self.final_loss = 0.5 * float(np.sum(self.singular_values[self.lost_modes] ** 2))

    def factor(self, time: float) -> FloatArray:
        """Q = [W1^T; W2] at one time, (inputs + outputs, hidden), up to a rotation of the hidden space."""
        return self._rotated(time) @ self._hidden.T

    def limit(self) -> FloatArray:
        """Q at t = infinity: the optimum, or the saddle at which the flow ends."""
        return self.factor(np.inf)

    def weights(self, time: float, *, like: tuple[Any, Any] | None = None) -> tuple[FloatArray, FloatArray]:
        """First and second weights at one time.

        The flow fixes Q Q^T; the rotation of the hidden space is chosen to bring Q nearest to `like`, the
        initial weights by default. As starts of another `BalancedFlow` they continue the training exactly.
        """
        Q, inputs = self._rotated(time), self._shape[1]
        first, second = self._start
        if like is not None:
            first, second = _checked_layers(like[0], like[1], self._shape)
        elif time == 0:
            return first.copy(), second.copy()  # to the last bit
        # Orthogonal Procrustes. Going through the factor keeps all digits; eigenvectors of Q Q^T keep half of them.
        left, _, right = np.linalg.svd(Q[:inputs].T @ first.T + Q[inputs:].T @ second, full_matrices=False)
        Q = Q @ (left @ right)
        return Q[:inputs].T.copy(), Q[inputs:].copy()

    def grams(self, times: Any) -> FloatArray:
        """Q Q^T: input and output similarity of the weights with the network function between them.

        Implements: braun2022 Eq. (6)
        """
        t = _checked_times(times)
        return self._path(t.ravel(), 1)[0].reshape(*t.shape, *2 * (sum(self._shape),))

    def course(self, times: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Q Q^T, the strength u_k^T W2 W1 v_k of every singular mode, and the excess loss, in one go."""
        t, inputs = _checked_times(times), self._shape[1]
        grams, strengths = self._path(t.ravel(), 2)
        losses = np.empty(t.size)
        step = max(1, _CHUNK // self._task.size)
        for i in range(0, t.size, step):
            error = grams[i : i + step, inputs:, :inputs] - self._task
            np.einsum("tij,tij->t", error, error, out=losses[i : i + step])
        losses /= 2
        shape = t.shape
        return (
            grams.reshape(*shape, *grams.shape[1:]),
            strengths.reshape(*shape, *strengths.shape[1:]),
            losses.reshape(shape),
        )

    def _path(self, t: FloatArray, quantities: int) -> list[FloatArray]:
        """Q Q^T, and the strengths if both are wanted, at many times."""
        m = self.singular_values.size

        def observe(Z: FloatArray, gram: FloatArray, *strength: FloatArray) -> None:
            Q = self._spectrum.join(Z)
            np.matmul(Q, _transpose(Q), out=gram)
            if strength:
                above, below = Z[:, :m], Z[:, self._spectrum.inputs.shape[1] :][:, :m]
                np.einsum("tkh,tkh->tk", below, above, out=strength[0])

        exact, size = partial(self._evaluate, observe), sum(self._shape)
        shapes = [(size, size), (m,)][:quantities]
        if t.size <= WORTH:
            values = [np.empty((t.size, *shape)) for shape in shapes]
            exact(t, *values)
            return values
        # Weights of a size above the task's fall at first by themselves.
        pull = np.abs(self._start[0] @ self._start[0].T + self._start[1].T @ self._start[1]).sum(axis=0).max()
        fastest = max(float(self._spectrum.rates.max()), float(pull))
        return sampled(exact, t, shapes, 2.5 / fastest if fastest > 0 else np.inf)

    @property
    def modes(self) -> tuple[FloatArray, FloatArray]:
        """Left and right singular vectors of S, (outputs, modes) and (inputs, modes)."""
        m = self.singular_values.size
        return self._spectrum.outputs[:, :m], self._spectrum.inputs[:, :m]

    def network_functions(self, times: Any) -> FloatArray:
        """W2 W1, the outputs for unit inputs.

        Implements: braun2022 Eq. (7), for X = I
        """
        return self.grams(times)[..., self._shape[1] :, : self._shape[1]]

    def losses(self, times: Any) -> FloatArray:
        """Excess loss 1/2 ||W2 W1 - S||^2, found without leaving the task's singular coordinates."""

        def loss(Z: FloatArray, out: FloatArray) -> None:
            v = self._spectrum.inputs.shape[1]
            error = Z[:, v:] @ _transpose(Z[:, :v])
            mode = np.arange(self.singular_values.size)
            error[:, mode, mode] -= self.singular_values
            np.einsum("tij,tij->t", error, error, out=out)
            out /= 2

        t = _checked_times(times)
        losses = np.empty(t.size)
        self._evaluate(loss, t.ravel(), losses)
        return losses.reshape(t.shape)

    def _rotated(self, time: float) -> FloatArray:
        if np.ndim(time):
            raise InvalidSpec(f"time must be one number, got shape {np.shape(time)}.", field="time")
        _, Z = next(self._factors(_checked_times(time).reshape(1)))
        return self._spectrum.join(Z)[0]

    def _evaluate(self, quantity: Callable[..., None], t: FloatArray, *values: FloatArray) -> None:
        """Fill the values, a row for each time, chunk by chunk."""
        for here, Z in self._factors(t):
            quantity(Z, *(value[here] for value in values))

    def _factors(self, t: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        """Q in the task's singular coordinates, (times, coordinates, rank), of chunk after chunk of the times."""
        step = max(1, _CHUNK // max(1, self._settled.rows.size))
        for begin in range(0, t.size, _AHEAD * step):
            moments = self._late.moments(t[begin : begin + _AHEAD * step])
            for i in range(0, len(moments.t), step):
                yield slice(begin + i, begin + i + step), self._factor(moments[i : i + step])

    def _factor(self, late: _Moments) -> FloatArray:
        early = late.t < self._since
        if not early.any():
            found = self._late.factors(late)
            if found.shape[2] == self._hidden.shape[1]:
                return found
        Z = np.zeros((len(early), self._spectrum.size, self._hidden.shape[1]))
        for orders, here in ((self._early, early), (self._late, ~early)):
            part = orders.factors(orders.moments(late.t[here]))
            Z[here, :, : part.shape[2]] = part
        return Z


@dataclass(frozen=True)
class _Spectrum:
    """Eigenpairs of F on the space the weights can reach.

    Rows: the growing combination of every singular mode, the directions of the larger outer layer that are in no
    mode, the fading combination of every mode.
    """

    singular_values: FloatArray
    inputs: FloatArray
    outputs: FloatArray
    rates: FloatArray
    sine: FloatArray
    cosine: FloatArray

    @classmethod
    def of(cls, S: FloatArray, start: tuple[FloatArray, FloatArray], imbalance: float, tolerance: float) -> _Spectrum:
        # From the SVD of S, not from eigh(F): zeros stay exact and +- pairs stay paired.
        U, s, Vt = np.linalg.svd(S, full_matrices=False)
        s = _tied(s, tolerance * s.max(initial=0.0))
        V, U = _completed(Vt.T, start[0].T), _completed(U, start[1])
        half = abs(imbalance) / 2
        mu = np.hypot(s, half)
        # sqrt(2) times sine and cosine of the eigenvector of [[-half, s], [s, half]], from its half-angle without
        # cancellation and without dividing by lambda.
        less, more = (s, mu + half) if half else (np.ones_like(s), np.ones_like(s))
        norm = np.sqrt(2.0) / np.hypot(less, more)
        sine, cosine = (norm * less, norm * more) if imbalance >= 0 else (norm * more, norm * less)
        unpaired = np.full(U.shape[1] + V.shape[1] - 2 * s.size, imbalance / (2 if len(U) > len(V) else -2))
        return cls(s, V, U, np.concatenate([mu, unpaired, -mu]), sine[:, None], cosine[:, None])

    @property
    def size(self) -> int:
        return self.rates.size

    @property
    def balanced(self) -> bool:
        """Whether no layer is larger: sine and cosine are then 1."""
        return bool((self.sine == self.cosine).all())

    def split(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """O^T Q / sqrt(2): for zero-balanced weights half-sums and half-differences, free of rounding."""
        m = self.singular_values.size
        v, u = self.inputs.T @ first.T, self.outputs.T @ second
        up, down = self.sine * v[:m] + self.cosine * u[:m], self.cosine * v[:m] - self.sine * u[:m]
        return np.concatenate([up / 2, v[m:] / np.sqrt(2.0), u[m:] / np.sqrt(2.0), down / 2])

    def mix(self, Y: FloatArray) -> FloatArray:
        """Singular coordinates, inputs above outputs, of such rows; Y is spent."""
        m, n, v = self.singular_values.size, self.size, self.inputs.shape[1]
        Z = np.empty_like(Y)
        up, down, above, below = Y[:, :m], Y[:, n - m :], Z[:, :m], Z[:, v : v + m]
        Z[:, slice(m, v) if v > m else slice(v + m, n)] = Y[:, m : n - m]
        if self.balanced:
            np.add(up, down, out=above)
            np.subtract(up, down, out=below)
            return Z
        np.multiply(up, self.sine, out=above)
        np.multiply(up, self.cosine, out=below)
        below -= np.multiply(down, self.sine, out=up)
        above += np.multiply(down, self.cosine, out=up)
        return Z

    def join(self, Z: FloatArray) -> FloatArray:
        """Q from singular coordinates."""
        (inputs, v), outputs = self.inputs.shape, len(self.outputs)
        Q = np.empty((len(Z), inputs + outputs, Z.shape[2]))
        np.matmul(self.inputs, Z[:, :v], out=Q[:, :inputs])
        np.matmul(self.outputs, Z[:, v:], out=Q[:, inputs:])
        return Q

    def reach(self, t: FloatArray) -> FloatArray:
        """sqrt((1 - exp(-2 |L| t)) / |L|), (times, rows): sqrt(2 g) without its growth."""
        size = np.abs(self.rates)
        finite = np.minimum(t, _FOREVER)[:, None]
        with np.errstate(over="ignore"):
            grown = -np.expm1(-2 * size * finite)
        return np.sqrt(np.where(size > 0, grown / np.where(size > 0, size, 1.0), 2 * finite))

    def fading(self, t: FloatArray) -> FloatArray:
        """exp(L t) of the rows that do not grow and 1 for those that do, with the sqrt(2) of the unpaired."""
        with np.errstate(over="ignore"):
            decay = np.exp(np.minimum(self.rates, 0.0) * np.minimum(t, _FOREVER)[:, None])
        m = self.singular_values.size
        decay[:, m : self.size - m] *= np.sqrt(2.0)
        # Rows of rate 0 fade as 1 / sqrt(t), which at t = infinity is exactly 0.
        decay[np.isinf(t)] *= self.rates > 0
        return decay


@dataclass(frozen=True)
class _Moments:
    """What the rows and columns of a frame are multiplied by at some times, apart from what they share."""

    t: FloatArray
    #: Of the rows in the product that is factorised, and in the weights.
    inner: FloatArray
    outer: FloatArray
    #: Of the columns, and the same before their decay.
    scale: FloatArray
    peak: FloatArray
    #: Whether rows and columns take their growth and decay each by itself; else these are taken of their difference.
    separable: bool

    def __getitem__(self, some: Any) -> _Moments:
        t, inner, outer = self.t[some], self.inner[some], self.outer[some]
        return _Moments(t, inner, outer, self.scale[some], self.peak[some], self.separable)


@dataclass(frozen=True)
class _Frame:
    """X H, echelon for one order of its rows, with the row each column is pivoted on."""

    rows: FloatArray
    pivots: IntArray
    rates: FloatArray

    def moments(self, spectrum: _Spectrum, t: FloatArray) -> _Moments:
        reach, fading, finite = spectrum.reach(t), spectrum.fading(t), np.minimum(t, _FOREVER)[:, None]
        pivot = self.rows[self.pivots, np.arange(self.pivots.size)]
        with np.errstate(over="ignore"):
            decay = np.exp(-np.maximum(self.rates[self.pivots], 0.0) * finite)
            grown = np.maximum(self.rates, 0.0) * finite
        peak = 1 / np.hypot(decay, reach[:, self.pivots] * pivot)
        separable = bool(grown.max(initial=0.0) <= _SEPARABLE)
        growth = np.exp(grown) if separable else 1.0
        return _Moments(t, growth * reach, growth * fading, decay * peak, peak, separable)

    def columns(self, moments: _Moments) -> FloatArray:
        """X H c, (times, rows, columns), with its growth where rows do not take it by themselves."""
        K, growing = self.rows, int(np.count_nonzero(self.rates > 0))
        Y = np.multiply(K, moments.scale[:, None])
        if moments.separable:
            return Y
        up, finite = Y[:, :growing], np.minimum(moments.t, _FOREVER)[:, None, None]
        with np.errstate(over="ignore"):
            np.multiply(self.rates[:growing, None] - np.maximum(self.rates[self.pivots], 0.0), finite, out=up)
        # Above the pivots K is exactly 0 and the exponent may be anything. Elsewhere so large a column does not fit.
        np.exp(np.minimum(up, 200.0, out=up), out=up)
        up *= K[:growing]
        up *= moments.peak[:, None]
        return Y


class _Orders:
    """The factor at any time, by one order of rows where it serves and by others where it does not."""

    def __init__(self, spectrum: _Spectrum, first: _Frame, rows: FloatArray, negligible: float) -> None:
        self.spectrum, self.first, self.rows, self.negligible = spectrum, first, rows, negligible
        self.turned = first

    def moments(self, t: FloatArray) -> _Moments:
        return self.first.moments(self.spectrum, t)

    def factors(self, moments: _Moments) -> FloatArray:
        """Q in the task's singular coordinates, (times, coordinates, rank), at moments of the first order."""
        spectrum, number = self.spectrum, len(moments.t)
        left, frame, own = np.arange(number), self.first, False
        parts: list[tuple[IntArray, FloatArray]] = []
        while True:
            Y = frame.columns(moments)
            G = _gram(Y * moments.inner[:, :, None], moments.scale**2)
            Y *= moments.outer[:, :, None]
            fits = np.einsum("tjj->tj", G).max(axis=1, initial=0.0) <= spectrum.size + _SLACK
            fits[:1] |= own
            if fits.all():
                parts.append((left, _solved(spectrum.mix(Y), G)))
                break
            parts.append((left[fits], _solved(spectrum.mix(Y[fits]), G[fits])))
            left, t = left[~fits], moments.t[~fits]
            # A row that starts near a separatrix stays small for long before it dominates, and pivoting on it would
            # lose its digits meanwhile. Any order is exact; the last one made often serves the next times too.
            own = frame is not self.first or self.turned is self.first
            if own:
                # The order of one time, largest sqrt(g) |row| first.
                with np.errstate(divide="ignore"):
                    weight = np.maximum(spectrum.rates, 0.0) * min(t[0], _FOREVER) + np.log(spectrum.reach(t[:1])[0])
                self.turned, _ = _largest_first(self.rows, spectrum.rates, weight, self.negligible)
            frame = self.turned
            moments = frame.moments(spectrum, t)
        if len(parts) == 1:
            return parts[0][1]
        Z = np.zeros((number, spectrum.size, self.first.pivots.size))
        for index, part in parts:
            Z[index, :, : part.shape[2]] = part
        return Z


class _Echelon:
    """Gram-Schmidt on the rows of X, in the order in which they are added.

    A row adds no direction when what is left of it is round-off: its own, and that of the rows taken out of it, which
    counts in the multiples in which they are taken. Largest first takes out no large multiples.
    """

    def __init__(self, X: FloatArray, negligible: float) -> None:
        self.X, self.negligible = X, negligible**2
        # The threshold is a safe one; what a row hands on to others is one or two roundings.
        self.grain = (negligible / (8 * len(X))) ** 2
        rank = min(X.shape)
        self.basis = np.zeros((X.shape[1], rank))
        self.pivots: list[int] = []
        self.lengths, self.noise = np.zeros(rank), np.zeros(rank)
        # Columns in which a row is not 0; rows never added, for want of room, are not 0 in any.
        self.depth = np.full(len(X), rank)

    @property
    def found(self) -> FloatArray:
        return self.basis[:, : len(self.pivots)]

    @property
    def room(self) -> int:
        return self.basis.shape[1] - len(self.pivots)

    def frame(self, rates: FloatArray) -> _Frame:
        known = np.arange(len(self.pivots)) < self.depth[:, None]
        return _Frame((self.X @ self.found) * known, np.array(self.pivots, dtype=np.intp), rates)

    def add_one_by_one(self, rows: IntArray) -> None:
        """Each row before the next."""
        while rows.size and self.room:
            rest, noise = self._rest(rows)
            live = np.einsum("ij,ij->i", rest, rest) > self.negligible + noise
            self.depth[rows[~live]] = j = len(self.pivots)
            rows, noise = rows[live], noise[live][: self.room]
            if not rows.size:
                return
            # Householder instead of a loop, as far as every row adds a direction.
            Q, R = np.linalg.qr(np.hstack([self.found, self.X[rows[: self.room]].T]))
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
        """Always the row with the largest exp(weight) |row| of what is left."""
        if not self.room:
            return
        rest, noise = self._rest(rows)
        self.depth[rows] = j = len(self.pivots)
        while self.room:
            lengths = np.linalg.norm(rest, axis=1)
            live = lengths**2 > self.negligible + noise
            if not live.any():
                return
            k = int(np.argmax(np.where(live, weight[rows] + np.log(np.where(live, lengths, 1.0)), -np.inf)))
            row = rest[k] / lengths[k]
            row -= self.found @ (row @ self.found)  # once more: twice makes it orthogonal to full precision
            row /= np.linalg.norm(row)
            self.basis[:, j], self.lengths[j], self.noise[j] = row, lengths[k], noise[k]
            self.pivots.append(int(rows[k]))
            self.depth[rows[live]] = j = j + 1
            rest -= np.multiply.outer(rest @ row, row)
            rest[k] = 0.0

    def _rest(self, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """What of the rows lies outside the directions found, and the squared noise in it."""
        shares, found = self.X[rows] @ self.found, len(self.pivots)
        noise = self.grain + (shares / self.lengths[:found]) ** 2 @ self.noise[:found]
        return self.X[rows] - shares @ self.found.T, noise


def _settled_frame(X: FloatArray, rates: FloatArray, negligible: float) -> tuple[_Frame, FloatArray, float]:
    """The order of the far future, fastest row first, the hidden basis it goes with, and since when it is exact."""
    echelon = _Echelon(X, negligible)
    order = np.argsort(-rates, kind="stable")
    # Rows of equal rate never leave one another behind: of these the largest goes first. Cut around every such group,
    # so that all rows between two of them are added in one go.
    falls = np.concatenate([[True], np.diff(rates[order]) < 0, [True]])
    tied = ~(falls[1:] & falls[:-1])
    cuts = np.flatnonzero(falls[1:-1] & (tied[1:] | tied[:-1])) + 1
    for rows in np.split(order, cuts):
        if rates[rows[0]] == rates[rows[-1]]:
            echelon.add_largest_first(rows, np.zeros_like(rates))
        else:
            echelon.add_one_by_one(rows)
    return echelon.frame(rates), echelon.found, _dominant_since(echelon, np.maximum(rates, 0.0))


def _dominant_since(echelon: _Echelon, rates: FloatArray) -> float:
    """Time from which every row of which something was lost is smaller than the faster rows it was lost to.

    A fast row that starts near a separatrix is small, and its direction ill known: what a larger row has outside of
    it is taken for round-off. That is so once the fast row has outgrown it; before, another order keeps all of it.
    """
    X, found, since = echelon.X, echelon.found, 0.0
    for row in np.flatnonzero(echelon.depth < found.shape[1]):
        depth = int(echelon.depth[row])
        shares = X[row] @ found[:, :depth]
        if row in echelon.pivots or np.linalg.norm(X[row] - found[:, :depth] @ shares) ** 2 <= echelon.negligible:
            continue
        lead = rates[echelon.pivots[:depth]] - rates[row]
        larger = (np.abs(shares) > echelon.lengths[:depth]) & (lead > 0)
        times = np.log(np.abs(shares[larger]) / echelon.lengths[:depth][larger]) / lead[larger]
        since = max(since, float(times.max(initial=0.0)))
    return since


def _largest_first(
    X: FloatArray, rates: FloatArray, weight: FloatArray, negligible: float
) -> tuple[_Frame, FloatArray]:
    """The order of one moment, largest exp(weight) |row| first, and the hidden basis it goes with."""
    echelon = _Echelon(X, negligible)
    echelon.add_largest_first(np.arange(len(X)), weight)
    return echelon.frame(rates), echelon.found


def _balance(first: FloatArray, second: FloatArray, imbalance: float | None, tolerance: float) -> tuple[float, float]:
    """Imbalance lambda and the residual of Q D = lambda Q."""
    second_gram, first_gram = second.T @ second, first @ first.T
    D, gram = second_gram - first_gram, second_gram + first_gram
    total, square = float(np.trace(gram)), float(np.sum(gram**2))
    if imbalance is None:
        # Least squares over Q: directions of the hidden space that no weight uses have no say.
        imbalance = float(np.sum(D * gram)) / total if total > 0 else 0.0
        if abs(imbalance) * total <= tolerance * square:
            imbalance = 0.0
    imbalance = between("imbalance", imbalance, -np.inf, np.inf)
    if total == 0:
        return imbalance, 0.0
    off = D - imbalance * np.eye(len(D))
    # Through Q and not through its Gram matrix, whose round-off off the weights' own directions would be rooted.
    residual = np.hypot(np.linalg.norm(first.T @ off), np.linalg.norm(second @ off))
    size = np.sqrt(np.sum(gram * (gram @ gram)))
    return imbalance, float(residual / max(size, abs(imbalance) * np.sqrt(total)))


def _tied(values: FloatArray, width: float) -> FloatArray:
    """Falling values with those closer than width made equal, and those below it 0."""
    values = np.where(values <= width, 0.0, values)
    group = np.concatenate([[0], np.cumsum(np.diff(values) < -width)])
    return (np.bincount(group, values) / np.bincount(group))[group]


def _completed(basis: FloatArray, columns: FloatArray) -> FloatArray:
    """The orthonormal basis with as many more directions as the columns need."""
    if basis.shape[0] == basis.shape[1]:
        return basis
    # Householder on both at once: orthogonal to the basis also where the columns almost lie in its span.
    more = np.linalg.qr(np.hstack([basis, columns]))[0][:, basis.shape[1] :]
    return np.hstack([basis, more])


def _gram(A: FloatArray, ridge: FloatArray) -> FloatArray:
    """A^T A + diag(ridge) for every time."""
    G = np.matmul(_transpose(A), A)
    np.einsum("tjj->tj", G)[...] += ridge
    return G


def _solved(Y: FloatArray, G: FloatArray) -> FloatArray:
    """Y C^-T in the place of Y, where C C^T = G, for every time."""
    if Y.shape[2] > _FEW:
        for g, y in zip(G, Y, strict=True):
            # C is well conditioned, and to multiply by its inverse takes less than to solve.
            upper, failed = scipy.linalg.lapack.dpotrf(g.T, clean=0, overwrite_a=1)
            if failed:
                raise np.linalg.LinAlgError("a sum of squares is not positive")
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


def _checked_layers(first: Any, second: Any, shape: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
    W1 = real_array("first_weights", first, ndim=2)
    W2 = real_array("second_weights", second, ndim=2)
    if not (min(*W1.shape, *W2.shape) > 0 and len(W1) == W2.shape[1] and (len(W2), W1.shape[1]) == shape):
        raise InvalidSpec(
            "weights must be (hidden, inputs) and (outputs, hidden) for a task of (outputs, inputs), got "
            f"{W1.shape} and {W2.shape} for a task of {shape}.",
            field="weights",
        )
    return W1.copy(), W2.copy()


def _checked_times(times: Any) -> FloatArray:
    t = np.asarray(times, dtype=np.float64)
    if not (t >= 0).all():
        raise InvalidSpec(
            required="times must not be negative or NaN",
            got=repr(times) if t.size < 5 else f"{np.count_nonzero(~(t >= 0))} such values",
            why="the flow is known forwards from the start at time 0",
            remedy="give times from 0 to infinity, in units of steps times learning rate",
        )
    return t
