"""The detection of a lag's gradient signal against its sequence-to-sequence noise.

One number per *sequence* and lag is the unit of evidence: steps of a sequence are not independent. The signal of a lag
is the mean of its matched statistic, a sum over hidden units whose signs must come from data other than those they
are applied to: otherwise the mean of pure noise is positive, and every lag looks learnable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learncast.errors import InvalidSpec
from learncast.learnability.tail_index import Aggregation, aggregated, fit_tail_index
from learncast.trajectory import Status
from learncast.validation import FloatArray, between, count, one_of, positive, real_array

BoolArray = NDArray[np.bool_]

METHODS = ("sound", "paper")
NOISES = ("per_lag", "total")
#: Signal-to-noise ratio from which the published diagnosis counts a lag as learnable.
THRESHOLD = 0.1
#: c_alpha of the KL bound when the separation is small: half the Fisher information of a location at scale 1, which
#: is 1/4 both for the normal (index 2) and the Cauchy law (index 1).
INFORMATION = 0.25
#: Standard errors that the mean must exceed in any case.
LEAST_SCORE = 3.0
#: Sequences on each side of the cross-fit below which a standard error means nothing.
_LEAST_SEQUENCES = 8
#: Numbers of one block of lags held at a time (8 bytes each).
_BLOCK = 2**22


def sample_exponent(index: Any) -> FloatArray:
    """Exponent kappa by which the required number of sequences grows, N ~ signal^-kappa.

    kappa = index / (index - 1), which is 2 at index 2. It stays 2 above, where the variance is finite, and is inf at
    index 1 and below, where averaging does not help.

    Implements: livi2025 Eq. (20)
    """
    alpha = _numbers(index)
    with np.errstate(divide="ignore", invalid="ignore"):
        kappa = alpha / (alpha - 1)  # Eq. (20)
    return np.where(alpha <= 1, np.inf, np.where(alpha >= 2, 2.0, kappa))


def binary_entropy(error: Any) -> FloatArray:
    """Entropy in nats of a coin that shows one side with probability `error`."""
    p = real_array("error", error)
    if ((p < 0) | (p > 1)).any():
        between("error", float(p[(p < 0) | (p > 1)][0]), 0.0, 1.0, why="it is a probability")
    safe = np.where((p > 0) & (p < 1), p, 0.5)
    return np.where((p > 0) & (p < 1), -safe * np.log(safe) - (1 - safe) * np.log1p(-safe), 0.0)


def least_ratio(error: float, *, information: float = INFORMATION) -> float:
    """Signal-to-noise ratio below which a lag's sign cannot be told with this error probability.

    sqrt((log 2 - h(error)) / information), by Fano's inequality. It is a scaling index rather than a guarantee: the
    argument bounds the information from the wrong side, and to leading order only.
    """
    error = between("error", error, 0.0, 0.5, why="it is the probability of telling the sign wrong")
    c_alpha = positive("information", information, why="it is the constant of a lower bound")
    return float(np.sqrt((np.log(2) - binary_entropy(error)) / c_alpha))


def mean_alignment(rates: Any, alignments: Any) -> FloatArray:
    """Alignment of the units with the direction, weighed by their effective learning rates.

    sum_q |rate_q| |alignment_q| / sum_q |rate_q| over the last axis; the signal of a lag is this times its envelope.

    Implements: livi2025 Eq. (15), with |mu_q| in the numerator: rates may be negative
    """
    mu, m = np.abs(real_array("rates", rates)), np.abs(real_array("alignments", alignments))
    with np.errstate(invalid="ignore"):
        return np.asarray((mu * m).sum(axis=-1) / mu.sum(axis=-1))  # Eq. (15)


def signal_to_noise(signal: Any, *, scale: Any, index: Any, sequences: Any) -> FloatArray:
    """Ratio of a lag's signal to the noise left in the mean over N sequences.

    signal N^(1/kappa) / scale, where signal = alignment x envelope.

    Implements: livi2025 Eq. (28)
    """
    T, sigma, N = (np.abs(_numbers(part)) for part in (signal, scale, sequences))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # In logarithms: signals of 1e-200 are as good as any, and no floor is needed.
        return np.exp(np.log(T) - np.log(sigma) + np.log(N) / sample_exponent(index))  # Eq. (28)


def required_sequences(signal: Any, *, scale: Any, index: Any, threshold: Any = THRESHOLD) -> FloatArray:
    """Sequences after which the signal-to-noise ratio reaches the threshold: (threshold scale / signal)^kappa.

    Real-valued; inf for a signal of 0, or for an index at which averaging does not help.

    Implements: livi2025 Eq. (19)
    Implements: livi2025 Eq. (23)
    """
    T, sigma, least = (np.abs(_numbers(part)) for part in (signal, scale, threshold))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        excess = np.log(least) + np.log(sigma) - np.log(T)
        return np.exp(np.where(excess == 0, 0.0, sample_exponent(index) * excess))  # Eq. (19) with signal = mbar f


def envelope_floor(*, alignment: Any, scale: Any, index: Any, sequences: Any, threshold: Any = THRESHOLD) -> FloatArray:
    """Smallest envelope that N sequences can tell from 0: threshold scale / (alignment N^(1/kappa)).

    Implements: livi2025 Eq. (21)
    """
    mbar, sigma, N = (np.abs(_numbers(part)) for part in (alignment, scale, sequences))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(_numbers(threshold) * sigma / mbar * N ** (-1 / sample_exponent(index)))  # Eq. (21)


class Window(NamedTuple):
    """Longest learnable lag: with gaps below it allowed, and up to the first gap. 0 is none, nan unknown."""

    any_lag: FloatArray
    contiguous: FloatArray


def window_of(lags: Any, detectable: Any) -> Window:
    """Longest lag that is detectable, and longest before the first that is not.

    Parameters
    ----------
    lags : (lags,)
        Growing.
    detectable : (..., lags)
        Whether each lag's envelope is above its floor.

    Implements: livi2025 Eq. (22), with the window up to the first gap beside it
    """
    grid = _lags(lags)
    seen = np.asarray(detectable, dtype=bool)
    if seen.shape[-1:] != grid.shape:
        raise InvalidSpec(
            required=f"detectable must have one entry for each of the {len(grid)} lags along its last axis",
            got=f"shape {seen.shape}",
            why="each entry says whether that lag counts",
            remedy="put the lags last",
        )
    unbroken = np.logical_and.accumulate(seen, axis=-1)
    return Window(np.where(seen, grid, 0.0).max(axis=-1), np.where(unbroken, grid, 0.0).max(axis=-1))


def matched_statistic(contributions: Any, signs: Any) -> FloatArray:
    """Sum over units of signed contributions, one number per sequence and lag.

    Parameters
    ----------
    contributions : (..., units)
        mu_q a_q: effective rate times alignment, as a mean over the steps of a sequence.
    signs : (units,) or (lags, units)
        Expected sign of each unit's contribution, from other data.

    Implements: livi2025 Eq. (13), with the sign of mu_q a_q in place of that of a_q, for rates of either sign
    """
    return np.einsum("...q,...q->...", real_array("contributions", contributions), real_array("signs", signs))


def cross_fitted(contributions: Any) -> FloatArray:
    """Matched statistic of every sequence with signs from the other half of the sequences.

    Even and odd sequences are the halves. Each value is unbiased for its half, but the halves are not independent of
    each other: sequence means vary up to 1.3 times more than their standard error says. `detect` allows for that.

    Parameters
    ----------
    contributions : (sequences, lags, units)

    Returns
    -------
    (sequences, lags)
    """
    c = _block(contributions)
    statistic = np.empty(c.shape[:2])
    for own, other in ((0, 1), (1, 0)):
        statistic[own::2] = matched_statistic(c[own::2], np.sign(c[other::2].sum(axis=0)))
    return statistic


class SignPilot:
    """Signs from a stream of batches, so that the rest of the stream needs one number per sequence and lag.

    Feed it one part of the sequences, then pass ``matched_statistic(batch, pilot.signs)`` of the *other* sequences to
    `detect_projected`.
    """

    def __init__(self) -> None:
        self._total: FloatArray | None = None

    def add(self, contributions: Any) -> None:
        """Count a batch (sequences, lags, units) in."""
        summed = _block(contributions).sum(axis=0)
        self._total = summed if self._total is None else self._total + summed

    @property
    def signs(self) -> FloatArray:
        """Sign of each unit's mean contribution, (lags, units)."""
        if self._total is None:
            raise InvalidSpec(
                required="a pilot must see at least one batch",
                got="none",
                why="there is nothing to take signs from",
                remedy="call add with contributions of some sequences first",
            )
        return np.sign(self._total)


@dataclass(frozen=True, eq=False, repr=False)
class Detection:
    """What the sequences say about each lag.

    Attributes
    ----------
    lags : (lags,)
    statistic : (sequences, lags)
        Matched statistic of each sequence.
    mean, standard_error, score : (lags,)
        Signal, its standard error over sequences, and their ratio.
    critical : float
        Score above which a lag counts: the larger of 3 and the largest score of any lag under `nulls` random sign
        flips of whole sequences, for which signs were selected anew. Of data without signal, a share of at most
        1 / (nulls + 1) passes at *any* lag, however many lags there are and however they and the units depend on
        one another. -inf for the published method, which has no such test.
    index, scale : (lags,)
        Tail index and scale of the noise. Where the index rises to 2 under aggregation they are those of a normal law.
    total_index, total_scale : float
        The same for the projected total gradient, a noise that does not depend on the lag; nan when not given.
    status : (lags,) of Status
        ``too_few_samples`` where they do not tell a signal from 0, or why the noise is unknown.
    null_mean, null_score : (nulls, lags)
        Signal and score under further flips, independent of those behind `critical`.
    method : str
        ``"sound"`` or ``"paper"``.
    """

    lags: FloatArray
    statistic: FloatArray
    mean: FloatArray
    standard_error: FloatArray
    score: FloatArray
    critical: float
    index: FloatArray
    scale: FloatArray
    total_index: float
    total_scale: float
    status: NDArray[np.object_]
    null_mean: FloatArray = field(repr=False)
    null_score: FloatArray = field(repr=False)
    method: str

    @property
    def significant(self) -> BoolArray:
        """Whether each lag's signal is told from 0."""
        return np.asarray(self.score > self.critical)

    def signal_to_noise(self, sequences: Any, *, noise: str = "per_lag") -> FloatArray:
        """Signal-to-noise ratio of each lag after each number of sequences, (..., lags)."""
        return self._ratio(self.mean, sequences, noise)

    def required(self, threshold: float = THRESHOLD, *, noise: str = "per_lag") -> FloatArray:
        """Sequences each lag needs; nan where no signal is told from 0, since it may be anything below."""
        index, scale = self._noise(noise)
        needed = required_sequences(self.mean, scale=scale, index=index, threshold=threshold)
        return np.where(self.significant, needed, np.nan)

    def windows(self, sequences: Any, threshold: float = THRESHOLD, *, noise: str = "per_lag") -> Window:
        """Longest learnable lag after each number of sequences.

        A lag counts when its signal is told from 0 and its signal-to-noise ratio reaches the threshold. With
        ``noise="per_lag"`` the envelope largely cancels, since the noise of a lag shrinks with it; with ``"total"``
        every lag competes with the same gradient noise.

        Implements: livi2025 Eq. (29), with the test of significance added unless the method is "paper"
        """
        return self._window(self.significant, self.signal_to_noise(sequences, noise=noise), threshold)

    def null_windows(self, sequences: Any, threshold: float = THRESHOLD, *, noise: str = "per_lag") -> Window:
        """Windows of the same sequences with random signs, (..., nulls): what this rule reports when nothing is there.

        The noise is that of the data, since flips leave it nearly as it is.
        """
        sizes = np.asarray(sequences, dtype=np.float64)[..., None]
        ratio = self._ratio(self.null_mean, sizes, noise)
        return self._window(np.broadcast_to(self.null_score > self.critical, ratio.shape), ratio, threshold)

    def _noise(self, noise: str) -> tuple[FloatArray, FloatArray]:
        one_of("noise", noise, NOISES, why="it says what the signal competes with")
        if noise == "per_lag":
            return self.index, self.scale
        return np.asarray(self.total_index), np.asarray(self.total_scale)

    def _ratio(self, mean: FloatArray, sequences: Any, noise: str) -> FloatArray:
        index, scale = self._noise(noise)
        sizes = np.asarray(sequences, dtype=np.float64)[..., None]
        return signal_to_noise(mean, scale=scale, index=index, sequences=sizes)

    def _window(self, significant: BoolArray, ratio: FloatArray, threshold: float) -> Window:
        found = window_of(self.lags, significant & (ratio >= threshold))
        unknown = (significant & np.isnan(ratio)).any(axis=-1)
        return Window(*(np.where(unknown, np.nan, part) for part in found))

    def __repr__(self) -> str:
        told = int(self.significant.sum())
        return (
            f"<Detection by the {self.method} method: {len(self.statistic)} sequences, {len(self.lags)} lags, "
            f"signal told from 0 at {told} (score above {self.critical:.3g})>"
        )


def detect(
    lags: Any,
    contributions: Any,
    *,
    rng: np.random.Generator,
    method: str = "sound",
    total: Any = None,
    nulls: int = 200,
) -> Detection:
    """Find the lags whose gradient signal is told from noise.

    Parameters
    ----------
    lags : (lags,)
        Growing.
    contributions : (sequences, lags, units), or an iterable of such blocks of successive lags
        mu_q a_q of each sequence, a mean over its steps. Blocks bound memory; each holds all sequences, in one order.
    rng : numpy Generator
        For the random signs.
    method : {"sound", "paper"}
        ``"paper"`` takes signs from the very data they are applied to, tests nothing, and fits the index to single
        values; it is here to be compared with.
    total : (sequences,), optional
        Projected total gradient of each sequence, for the noise that does not depend on the lag.
    nulls : int
        Random sign flips behind `Detection.critical`, and as many again for the null band.
    """
    one_of("method", method, METHODS, why="it says whether signs come from independent data")
    rule = "crossed" if method == "sound" else "same"
    return _detect(_lags(lags), _blocks(contributions), rule, method, rng, total, nulls)


def detect_projected(
    lags: Any, statistics: Any, *, rng: np.random.Generator, total: Any = None, nulls: int = 200
) -> Detection:
    """As `detect`, from matched statistics (sequences, lags) whose signs come from other sequences."""
    values = real_array("statistics", statistics, ndim=2)
    return _detect(_lags(lags), iter([values[:, :, None]]), "fixed", "sound", rng, total, nulls)


def _detect(
    grid: FloatArray,
    blocks: Iterator[FloatArray],
    rule: str,
    method: str,
    rng: np.random.Generator,
    total: Any,
    nulls: int,
) -> Detection:
    nulls = count("nulls", nulls, least=19, why="fewer cannot keep false alarms below one in twenty")
    statistic, mean, score = _collected(grid, blocks, rule, 2 * nulls, rng)
    critical = max(LEAST_SCORE, float(score[1 : nulls + 1].max())) if method == "sound" else -np.inf
    index, scale, status = _noise_of(statistic.T, method)
    status[~(score[0] > critical)] = Status.too_few_samples
    total_index, total_scale = (np.nan, np.nan) if total is None else _total_noise(total, len(statistic), method)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.abs(mean[0]) / np.abs(score[0])
    return Detection(
        lags=grid,
        statistic=statistic,
        mean=mean[0],
        standard_error=error,
        score=score[0],
        critical=critical,
        index=index,
        scale=scale,
        total_index=total_index,
        total_scale=total_scale,
        status=status,
        null_mean=mean[nulls + 1 :],
        null_score=score[nulls + 1 :],
        method=method,
    )


def _collected(
    grid: FloatArray, blocks: Iterator[FloatArray], rule: str, nulls: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Statistic, mean and score as in `_scored`, of all blocks, under the same flips."""
    flips: FloatArray | None = None
    parts: list[tuple[FloatArray, FloatArray, FloatArray]] = []
    for block in blocks:
        if flips is None:
            flips = _flips(_enough(len(block)), nulls, rng)
        elif len(block) != flips.shape[1]:
            raise _mismatch(f"{len(block)} sequences after {flips.shape[1]}")
        parts.append(_scored(block, flips, rule))
    found = sum(part[0].shape[1] for part in parts)
    if found != len(grid):
        raise _mismatch(f"{found} lags instead of {len(grid)}")
    statistic, mean, score = (np.concatenate(part, axis=1) for part in zip(*parts, strict=True))
    return statistic, mean, score


def _scored(block: FloatArray, flips: FloatArray, rule: str) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Statistic (sequences, lags) of the data; mean and score (1 + flips, lags) of the data and of every flip.

    Flipping a sequence leaves its outer products alone, so the sum of squared statistics of any flip is s^T G s with
    one Gram matrix G per lag: a null costs matrix products, never a pass over the sequences.
    """
    n = len(block)
    unit = _unit(np.abs(block).max(axis=(0, 2), initial=0.0))
    block = block / unit[:, None]
    halves = [slice(0, None, 2), slice(1, None, 2)] if rule == "crossed" else [slice(None)]
    sums = [np.einsum("rn,nlq->lrq", flips[:, half], block[half], optimize=True) for half in halves]
    statistic = np.empty(block.shape[:2])
    total, square = np.zeros((2, block.shape[1], len(flips)))
    for half, own, other in zip(halves, sums, sums[::-1], strict=True):
        signs = np.ones_like(own) if rule == "fixed" else np.sign(other)
        by_lag = np.ascontiguousarray(block[half].transpose(1, 0, 2))
        gram = by_lag.transpose(0, 2, 1) @ by_lag
        total += (signs * own).sum(axis=2)
        square += ((signs @ gram) * signs).sum(axis=2)
        statistic[half] = (by_lag @ signs[:, 0, :, None])[..., 0].T
    mean = total / n
    with np.errstate(divide="ignore", invalid="ignore"):
        # A statistic that never varies has an error of 0: its score is infinite, or nan when the mean is 0 too.
        variance = np.maximum(square / n - mean**2, 0.0)
        score = mean / np.sqrt(variance / (n - 1))
    return statistic * unit, mean.T * unit, np.nan_to_num(score.T, nan=0.0, posinf=np.inf, neginf=-np.inf)


def _unit(largest: FloatArray) -> FloatArray:
    """Power of two near each number: measured in it, squares neither underflow nor round differently."""
    return np.ldexp(1.0, np.frexp(largest)[1])


def _flips(sequences: int, nulls: int, rng: np.random.Generator) -> FloatArray:
    """Signs (1 + nulls, sequences); the first row leaves the data as they are."""
    signs = rng.integers(0, 2, size=(nulls, sequences)) * 2.0 - 1.0
    return np.concatenate([np.ones((1, sequences)), signs])


def _noise_of(values: FloatArray, method: str) -> tuple[FloatArray, FloatArray, NDArray[np.object_]]:
    """Index, scale and status of samples along the last axis."""
    if method == "paper":
        single = fit_tail_index(values)
        return single.index, single.scale, single.status
    found: Aggregation = aggregated(values)
    single = found.estimates[0]
    unit = _unit(np.abs(values).max(axis=-1, initial=0.0))
    deviation = unit * (values / unit[..., None]).std(axis=-1, ddof=1)
    # A normal law of index 2 has variance 2 scale^2.
    scale = np.where(found.finite_variance, deviation / np.sqrt(2), single.scale)
    status = single.status.copy()
    status[found.finite_variance] = Status.ok
    return found.index, scale, status


def _total_noise(total: Any, sequences: int, method: str) -> tuple[float, float]:
    values = real_array("total", total, ndim=1)
    if len(values) != sequences:
        raise InvalidSpec(
            required=f"total must have one number for each of the {sequences} sequences",
            got=f"{len(values)}",
            why="it is the gradient of those sequences",
            remedy="project the gradient of each sequence on the same direction",
        )
    index, scale, _ = _noise_of(values, method)
    return float(index), float(scale)


def _blocks(contributions: Any) -> Iterator[FloatArray]:
    if hasattr(contributions, "shape"):
        c = _block(contributions)
        step = max(1, _BLOCK // max(1, c.shape[0] * c.shape[2]))
        yield from (c[:, first : first + step] for first in range(0, c.shape[1], step))
    elif isinstance(contributions, Iterable):
        yield from (_block(part) for part in contributions)
    else:
        _block(contributions)


def _block(contributions: Any) -> FloatArray:
    return real_array("contributions", contributions, ndim=3)


def _enough(sequences: int) -> int:
    return count("the number of sequences", sequences, least=_LEAST_SEQUENCES, why="an error is taken over sequences")


def _mismatch(got: str) -> InvalidSpec:
    return InvalidSpec(
        required="blocks of contributions must hold the same sequences and together all lags",
        got=got,
        why="random signs belong to whole sequences",
        remedy="pass arrays (sequences, some lags, units) in the order of lags",
    )


def _lags(lags: Any) -> FloatArray:
    grid = real_array("lags", lags, ndim=1)
    if not len(grid) or grid[0] <= 0 or (np.diff(grid) <= 0).any():
        raise InvalidSpec(
            required="lags must be positive and growing",
            got=f"{grid[:5]}{'...' if len(grid) > 5 else ''}",
            why="a window is the longest of them",
            remedy="sort them and drop repetitions and 0",
        )
    return grid


def _numbers(value: Any) -> FloatArray:
    """Numbers that may be nan (unknown) or infinite (never): estimates, not raw input."""
    return np.asarray(value, dtype=np.float64)
