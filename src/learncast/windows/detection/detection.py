"""The detection of a lag's gradient signal against its sequence-to-sequence noise.

The unit of evidence is one number per *sequence* and lag, because the steps of a sequence are not independent. The
signal of a lag is the mean of its matched statistic, a sum over hidden units whose signs must come from other data than
those they are applied to. Otherwise the mean of pure noise is positive, and every lag looks learnable.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from learncast._core.validation import FloatArray, real_array
from learncast.results import Status
from learncast.windows.detection.requirement import LongestLags, learnable_window, required_sequences, signal_to_noise
from learncast.windows.detection.signs import Scores, power_of_two, random_flips, scored
from learncast.windows.detection.tail_index import MINIMUM_SAMPLES, TWO_SIDED, TailIndex, fit_tail_index
from learncast.windows.options import THRESHOLD

#: Standard errors by which the index of block means must exceed that of single values. A stable sample exceeds it by
#: chance in 1 of 700 cases.
_RISE = 3.0


def noise_of(values: FloatArray, method: str) -> TailIndex:
    """Tail index and scale of the noise of samples along the last axis.

    Parameters
    ----------
    values : (..., sequences)
    method : {"sound", "paper"}
        ``"paper"`` fits single values. ``"sound"`` uses index 2 and the standard deviation if means over blocks of
        sequences show that the variance is finite.
    """
    if method == "paper":
        return fit_tail_index(values)
    blocks = aggregated(values)
    single, finite = blocks.estimates[0], blocks.finite_variance
    unit = power_of_two(np.abs(values).max(axis=-1, initial=0.0))
    # A normal distribution written as a stable one of index 2 has variance 2 scale^2.
    normal = unit * (values / unit[..., None]).std(axis=-1, ddof=1) / np.sqrt(2)
    scale = np.where(finite, normal, single.scale)
    status = single.status.copy()
    status[finite] = Status.ok
    largest = _largest(blocks.estimates)
    return replace(
        single,
        index=blocks.index,
        scale=scale,
        status=status,
        index_interval=np.where(finite[..., None], largest.index_interval, single.index_interval),
        scale_interval=np.where(finite[..., None], _normal_interval(values, scale), single.scale_interval),
    )


def _normal_interval(values: FloatArray, scale: FloatArray) -> FloatArray:
    """95% interval of a scale that is a standard deviation, from the kurtosis of the values."""
    centred = values - values.mean(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = centred / np.abs(centred).max(-1, keepdims=True)
        kurtosis = (spread**4).mean(-1) / (spread**2).mean(-1) ** 2
    margin = TWO_SIDED * scale * np.sqrt(np.maximum(kurtosis - 1, 0) / (4 * values.shape[-1]))
    return np.stack([scale - margin, scale + margin], -1)


@dataclass(frozen=True, eq=False)
class Aggregation:
    """Tail indices of means over blocks of growing size.

    Attributes
    ----------
    estimates : tuple of TailIndex
        One per block size; ``too_few_samples`` if there are too few blocks.
    finite_variance : array of bool
        Whether the index is 2 already for single values, or rises to 2. Means then concentrate as N^(-1/2).
    index : array
        The index to use: 2 if the variance is finite, else the estimate from single values.
    """

    estimates: tuple[TailIndex, ...]
    finite_variance: NDArray[np.bool_]
    index: FloatArray


def aggregated(values: ArrayLike, *, sizes: tuple[int, ...] = (1, 4, 16)) -> Aggregation:
    """Estimate the tail index of block means, and whether it rises to 2.

    Means of stable values keep their index; means of values with a finite variance, however heavy their tails look,
    approach 2. The variance counts as finite if the interval of single values reaches 2, or if the index of the largest
    usable blocks lies more than 3 standard errors above that of single values and either its interval reaches 2 or it
    has lost at least half of the distance to 2. A sample too small to decide keeps its own index, which leads to a
    larger number of required sequences rather than a smaller one.

    Parameters
    ----------
    values : (..., samples)
        Independent samples along the last axis, cut into consecutive blocks; a remainder is ignored.
    sizes : tuple of int
        Block sizes, growing from 1.
    """
    x = real_array("values", values)
    estimates = tuple(fit_tail_index(_block_means(x, size)) for size in sizes)
    single, largest = estimates[0], _largest(estimates)
    with np.errstate(invalid="ignore"):
        normal = single.index_interval[..., 1] >= 2
        # Both errors at the index of single values: the error of blocks shrinks near 2, which they may reach by chance.
        error = single.index_error * np.sqrt(1 + single.samples / max(largest.samples, 1))
        risen = largest.index - single.index > _RISE * error
        arrived = (largest.index_interval[..., 1] >= 2) | (2 - largest.index <= (2 - single.index) / 2)
    finite = np.asarray(normal | (risen & arrived))
    return Aggregation(estimates, finite, np.where(finite, 2.0, single.index))


def _largest(estimates: tuple[TailIndex, ...]) -> TailIndex:
    """The estimate from the largest blocks of which there are enough."""
    return next((one for one in reversed(estimates) if one.samples >= MINIMUM_SAMPLES), estimates[0])


def _block_means(x: FloatArray, size: int) -> FloatArray:
    blocks = x.shape[-1] // size
    return np.asarray(x[..., : blocks * size].reshape(*x.shape[:-1], blocks, size).mean(axis=-1))


NOISES = ("per_lag", "total")
#: Standard errors that the mean must exceed in any case.
LEAST_SCORE = 3.0
#: Numbers of one block of lags held at a time (8 bytes each).
_BLOCK = 2**22


@dataclass(frozen=True, eq=False, repr=False)
class Detection:
    """Signal and noise of each lag.

    Attributes
    ----------
    lags : (lags,)
    statistic : (sequences, lags)
        Matched statistic of each sequence.
    mean, standard_error, score : (lags,)
        Signal, its standard error over sequences, and their ratio.
    critical : float
        Score above which a lag is detected: the larger of 3 and the largest score of any lag under `nulls` random sign
        flips of whole sequences, with signs selected again for each flip. Of data without signal, a share of at most
        1 / (nulls + 1) passes at *any* lag, for any number of lags and any dependence between lags and units. -inf for
        the published method, which has no such test.
    noise : TailIndex
        Noise of each lag. If the index rises to 2 under aggregation, index and scale are those of a normal
        distribution.
    total_index, total_scale : float
        Index and scale of the noise of the projected total gradient, which does not depend on the lag; nan without it.
    status : (lags,) of Status
        ``too_few_samples`` if the signal is not distinguishable from 0, or why the noise is unknown.
    null_mean, null_score : (nulls, lags)
        Signal and score under further flips, independent of those behind `critical`.
    """

    lags: FloatArray
    statistic: FloatArray
    mean: FloatArray
    standard_error: FloatArray
    score: FloatArray
    critical: float
    noise: TailIndex
    total_index: float
    total_scale: float
    status: NDArray[np.object_]
    null_mean: FloatArray = field(repr=False)
    null_score: FloatArray = field(repr=False)

    @property
    def significant(self) -> NDArray[np.bool_]:
        """Whether each lag's signal is distinguishable from 0."""
        return np.asarray(self.score > self.critical)

    def signal_to_noise(self, sequences: ArrayLike, *, noise: str = "per_lag") -> FloatArray:
        """Signal-to-noise ratio of each lag after each number of sequences, (..., lags)."""
        return self._ratio(self.mean, sequences, noise)

    def required(self, threshold: float = THRESHOLD, *, noise: str = "per_lag") -> FloatArray:
        """Sequences that each lag needs; nan without a significant signal, which may be arbitrarily small."""
        index, scale = self._index_and_scale(noise)
        needed = required_sequences(self.mean, scale=scale, index=index, threshold=threshold)
        return np.where(self.significant, needed, np.nan)

    def windows(self, sequences: ArrayLike, threshold: float = THRESHOLD, *, noise: str = "per_lag") -> LongestLags:
        """Longest learnable lag after each number of sequences.

        A lag counts if its signal is significant and its signal-to-noise ratio reaches the threshold. With
        ``noise="per_lag"`` the envelope largely cancels, since the noise of a lag shrinks with it; with ``"total"``
        every lag competes with the same gradient noise.

        Implements: livi2025 Eq. (29), with the test of significance added unless the method is "paper"
        """
        return learnable_window(self.lags, self.significant, self.signal_to_noise(sequences, noise=noise), threshold)

    def null_windows(
        self, sequences: ArrayLike, threshold: float = THRESHOLD, *, noise: str = "per_lag"
    ) -> LongestLags:
        """Windows of the same sequences with random signs, (..., nulls): what this rule reports without a signal.

        The noise is that of the data, since flips hardly change it.
        """
        ratio = self._ratio(self.null_mean, np.asarray(sequences)[..., None], noise)
        detected = np.broadcast_to(self.null_score > self.critical, ratio.shape)
        return learnable_window(self.lags, detected, ratio, threshold)

    def _index_and_scale(self, noise: str) -> tuple[FloatArray, FloatArray]:
        if noise == "per_lag":
            return self.noise.index, self.noise.scale
        return np.asarray(self.total_index), np.asarray(self.total_scale)

    def _ratio(self, mean: FloatArray, sequences: ArrayLike, noise: str) -> FloatArray:
        index, scale = self._index_and_scale(noise)
        sizes = np.asarray(sequences, dtype=np.float64)[..., None]
        return signal_to_noise(mean, scale=scale, index=index, sequences=sizes)


def detect(
    lags: ArrayLike,
    contributions: ArrayLike,
    *,
    rng: np.random.Generator,
    method: str = "sound",
    total: ArrayLike | None = None,
    nulls: int = 200,
    signed: bool = False,
    precision: DTypeLike = np.float64,
) -> Detection:
    """Find the lags whose gradient signal is distinguishable from noise.

    Parameters
    ----------
    lags : (lags,)
        Strictly increasing.
    contributions : (sequences, lags, units)
        mu_q a_q of each sequence, a mean over its steps.
    rng : numpy Generator
        For the random signs.
    method : {"sound", "paper"}
        ``"paper"`` takes signs from the very data they are applied to, tests nothing, and fits the index to single
        values; it is provided for comparison.
    total : (sequences,), optional
        Projected total gradient of each sequence, for the noise that does not depend on the lag.
    nulls : int
        Random sign flips behind `Detection.critical`, and as many again for the null band.
    signed : bool
        Whether contributions are matched statistics already, with signs taken from other sequences.
    precision : dtype
        Precision of the flips; np.float32 suffices for contributions of a model in single precision.
    """
    signs = "fixed" if signed else "crossed" if method == "sound" else "same"
    values = real_array("contributions", contributions, ndim=3)
    flips = random_flips(len(values), 2 * nulls, rng)
    step = max(1, _BLOCK // max(1, values.shape[0] * values.shape[2]))
    parts = [
        scored(values[:, first : first + step], flips, signs, precision=precision)
        for first in range(0, values.shape[1], step)
    ]
    scores = Scores(*(np.concatenate(part, axis=-1) for part in zip(*parts, strict=True)))
    statistic, mean, score = scores
    critical = max(LEAST_SCORE, float(score[1 : nulls + 1].max())) if method == "sound" else -np.inf
    noise = noise_of(statistic.T, method)
    status = noise.status.copy()
    status[~(score[0] > critical)] = Status.too_few_samples
    overall = None if total is None else noise_of(real_array("total", total, ndim=1), method)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.abs(mean[0]) / np.abs(score[0])
    return Detection(
        lags=np.asarray(lags, dtype=np.float64),
        statistic=statistic,
        mean=mean[0],
        standard_error=error,
        score=score[0],
        critical=critical,
        noise=noise,
        total_index=np.nan if overall is None else float(overall.index),
        total_scale=np.nan if overall is None else float(overall.scale),
        status=status,
        null_mean=mean[nulls + 1 :],
        null_score=score[nulls + 1 :],
    )
