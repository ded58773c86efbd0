"""Coordinates of a balanced flow: the spectrum of the task, and frames of the weights in echelon form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learncast._core.validation import FloatArray

IntArray = NDArray[np.intp]
#: Finite replacement of t = infinity, so that 0 * t is 0; exp(-rate * 1e300) is 0 for any positive rate.
FOREVER = 1e300
#: Largest rate * time at which exp(a t) exp(-b t) replaces exp((a - b) t), at a loss of 32 roundings.
SEPARABLE = 32.0


@dataclass(frozen=True)
class Spectrum:
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
    def of(cls, S: FloatArray, start: tuple[FloatArray, FloatArray], imbalance: float, tolerance: float) -> Spectrum:
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
        finite = np.minimum(t, FOREVER)[:, None]
        with np.errstate(over="ignore"):
            grown = -np.expm1(-2 * size * finite)
        return np.sqrt(np.where(size > 0, grown / np.where(size > 0, size, 1.0), 2 * finite))

    def decaying(self, t: FloatArray) -> FloatArray:
        """Return exp(L t) of decaying rows and 1 for growing rows; unpaired rows have a factor sqrt(2)."""
        with np.errstate(over="ignore"):
            decay = np.exp(np.minimum(self.rates, 0.0) * np.minimum(t, FOREVER)[:, None])
        m = self.singular_values.size
        decay[:, m : self.size - m] *= np.sqrt(2.0)
        # Rows of rate 0 decay as 1 / sqrt(t), which is 0 at t = infinity.
        decay[np.isinf(t)] *= self.rates > 0
        return decay


@dataclass(frozen=True)
class Factors:
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
class EchelonFrame:
    """X H in echelon form for one order of its rows, with the pivot row of each column."""

    rows: FloatArray
    pivots: IntArray
    rates: FloatArray

    def factors(self, spectrum: Spectrum, t: FloatArray) -> Factors:
        reach, decaying, finite = spectrum.reach(t), spectrum.decaying(t), np.minimum(t, FOREVER)[:, None]
        pivot = self.rows[self.pivots, np.arange(self.pivots.size)]
        with np.errstate(over="ignore"):
            decay = np.exp(-np.maximum(self.rates[self.pivots], 0.0) * finite)
            grown = np.maximum(self.rates, 0.0) * finite
        peak = 1 / np.hypot(decay, reach[:, self.pivots] * pivot)
        separable = bool(grown.max(initial=0.0) <= SEPARABLE)
        growth = np.exp(grown) if separable else 1.0
        return Factors(t, growth * reach, growth * decaying, decay * peak, peak, separable)

    def columns(self, factors: Factors) -> FloatArray:
        """Return X H c, (times, rows, columns), including the growth unless it is separable."""
        K, growing = self.rows, int(np.count_nonzero(self.rates > 0))
        Y = np.multiply(K, factors.scale[:, None])
        if factors.separable:
            return Y
        up, finite = Y[:, :growing], np.minimum(factors.t, FOREVER)[:, None, None]
        with np.errstate(over="ignore"):
            np.multiply(self.rates[:growing, None] - np.maximum(self.rates[self.pivots], 0.0), finite, out=up)
        # Above the pivots K is exactly 0, so the exponent may have any value. Elsewhere so large a column is rejected.
        np.exp(np.minimum(up, 200.0, out=up), out=up)
        up *= K[:growing]
        up *= factors.peak[:, None]
        return Y


class Echelon:
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

    def frame(self, rates: FloatArray) -> EchelonFrame:
        known = np.arange(len(self.pivots)) < self.depth[:, None]
        return EchelonFrame((self.X @ self.directions) * known, np.array(self.pivots, dtype=np.intp), rates)

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


def final_frame(X: FloatArray, rates: FloatArray, negligible: float) -> tuple[EchelonFrame, FloatArray, float]:
    """Return the frame of late times, fastest row first, its hidden basis, and the time from which it is exact."""
    echelon = Echelon(X, negligible)
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


def _dominant_since(echelon: Echelon, rates: FloatArray) -> float:
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


def largest_first(
    X: FloatArray, rates: FloatArray, weight: FloatArray, negligible: float
) -> tuple[EchelonFrame, FloatArray]:
    """Return the frame of one time, largest exp(weight) |row| first, and its hidden basis."""
    echelon = Echelon(X, negligible)
    echelon.add_largest_first(np.arange(len(X)), weight)
    return echelon.frame(rates), echelon.directions


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
