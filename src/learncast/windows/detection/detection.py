"""The detection of a lag's gradient signal against its sequence-to-sequence noise.

One number per *sequence* and lag is the unit of evidence: steps of a sequence are not independent. The signal of a lag
is the mean of its matched statistic, a sum over hidden units whose signs must come from data other than those they
are applied to: otherwise the mean of pure noise is positive, and every lag looks learnable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learncast._core.validation import FloatArray, real_array
from learncast.results import Status
from learncast.windows.detection.requirement import Window, learnable_window, required_sequences, signal_to_noise
from learncast.windows.detection.signs import Scores, power_of_two, random_flips, score_of, scored
from learncast.windows.detection.tail_index import MINIMUM_SAMPLES, TWO_SIDED, TailIndex, fit_tail_index
from learncast.windows.question import THRESHOLD

BoolArray = NDArray[np.bool_]

NOISES = ("per_lag", "total")
#: Standard errors that the mean must exceed in any case.
LEAST_SCORE = 3.0
#: Numbers of one block of lags held at a time (8 bytes each).
_BLOCK = 2**22


@dataclass(frozen=True, eq=False, repr=False)
class Detection:
    """What the sequences say about each lag.

    Attributes
    ----------
    lags : (lags,)
    statistic : (sequences, lags)
        Matched statistic of each sequence, a mean over directions.
    mean, standard_error, score : (lags,)
        Signal, its standard error over sequences, and their ratio.
    critical : float
        Score above which a lag counts: the larger of 3 and the largest score of any lag under `nulls` random sign
        flips of whole sequences, for which signs were selected anew. Of data without signal, a share of at most
        1 / (nulls + 1) passes at *any* lag, however many lags there are and however they and the units depend on
        one another. -inf for the published method, which has no such test.
    noise : Noise
        Of each lag. Where the index rises to 2 under aggregation, index and scale are those of a normal law.
    by_direction : DirectionSignal
        What each direction shows by itself.
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
    noise: Noise
    by_direction: DirectionSignal
    total_index: float
    total_scale: float
    status: NDArray[np.object_]
    null_mean: FloatArray = field(repr=False)
    null_score: FloatArray = field(repr=False)
    method: str

    @property
    def index(self) -> FloatArray:
        """Tail index of each lag's noise."""
        return self.noise.index

    @property
    def scale(self) -> FloatArray:
        """Scale of each lag's noise."""
        return self.noise.scale

    @property
    def significant(self) -> BoolArray:
        """Whether each lag's signal is told from 0."""
        return np.asarray(self.score > self.critical)

    def signal_to_noise(self, sequences: Any, *, noise: str = "per_lag") -> FloatArray:
        """Signal-to-noise ratio of each lag after each number of sequences, (..., lags)."""
        return self._ratio(self.mean, sequences, noise)

    def required(self, threshold: float = THRESHOLD, *, noise: str = "per_lag") -> FloatArray:
        """Sequences each lag needs; nan where no signal is told from 0, since it may be anything below."""
        index, scale = self._competitor(noise)
        needed = required_sequences(self.mean, scale=scale, index=index, threshold=threshold)
        return np.where(self.significant, needed, np.nan)

    def windows(self, sequences: Any, threshold: float = THRESHOLD, *, noise: str = "per_lag") -> Window:
        """Longest learnable lag after each number of sequences.

        A lag counts when its signal is told from 0 and its signal-to-noise ratio reaches the threshold. With
        ``noise="per_lag"`` the envelope largely cancels, since the noise of a lag shrinks with it; with ``"total"``
        every lag competes with the same gradient noise.

        Implements: livi2025 Eq. (29), with the test of significance added unless the method is "paper"
        """
        return learnable_window(self.lags, self.significant, self.signal_to_noise(sequences, noise=noise), threshold)

    def null_windows(self, sequences: Any, threshold: float = THRESHOLD, *, noise: str = "per_lag") -> Window:
        """Windows of the same sequences with random signs, (..., nulls): what this rule reports when nothing is there.

        The noise is that of the data, since flips leave it nearly as it is.
        """
        ratio = self._ratio(self.null_mean, np.asarray(sequences)[..., None], noise)
        told = np.broadcast_to(self.null_score > self.critical, ratio.shape)
        return learnable_window(self.lags, told, ratio, threshold)

    def _competitor(self, noise: str) -> tuple[FloatArray, FloatArray]:
        if noise == "per_lag":
            return self.index, self.scale
        return np.asarray(self.total_index), np.asarray(self.total_scale)

    def _ratio(self, mean: FloatArray, sequences: Any, noise: str) -> FloatArray:
        index, scale = self._competitor(noise)
        sizes = np.asarray(sequences, dtype=np.float64)[..., None]
        return signal_to_noise(mean, scale=scale, index=index, sequences=sizes)


def detect(
    lags: Any,
    contributions: Any,
    *,
    rng: np.random.Generator,
    method: str = "sound",
    total: Any = None,
    nulls: int = 200,
    directions: int = 1,
    signed: bool = False,
    precision: Any = np.float64,
) -> Detection:
    """Find the lags whose gradient signal is told from noise.

    Parameters
    ----------
    lags : (lags,)
        Growing.
    contributions : (sequences, lags, units)
        mu_q a_q of each sequence, a mean over its steps.
    rng : numpy Generator
        For the random signs.
    method : {"sound", "paper"}
        ``"paper"`` takes signs from the very data they are applied to, tests nothing, and fits the index to single
        values; it is here to be compared with.
    total : (sequences,), optional
        Projected total gradient of each sequence, for the noise that does not depend on the lag.
    nulls : int
        Random sign flips behind `Detection.critical`, and as many again for the null band.
    directions : int
        Into how many equal parts the units fall, one for each direction. Contributions to the mean over directions are
        meant: those of each direction divided by their number.
    signed : bool
        Whether contributions are matched statistics already, their signs taken from other sequences: then a unit is
        one direction.
    precision : dtype
        Of the flips; np.float32 will do for contributions of a model in single precision.
    """
    signs = "fixed" if signed else "crossed" if method == "sound" else "same"
    values = real_array("contributions", contributions, ndim=3)
    # As many flips for the critical score as for the band.
    flips = random_flips(len(values), 2 * nulls, rng)
    step = max(1, _BLOCK // max(1, values.shape[0] * values.shape[2]))
    starts = range(0, values.shape[1], step)
    options: dict[str, Any] = {"directions": directions, "precision": precision}
    parts = [scored(values[:, first : first + step], flips, signs, **options) for first in starts]
    scores = Scores(*(np.concatenate(part, axis=-1) for part in zip(*parts, strict=True)))
    statistic, mean, score = scores.statistic.mean(axis=0), scores.mean, scores.score
    critical = max(LEAST_SCORE, float(score[1 : nulls + 1].max())) if method == "sound" else -np.inf
    noise = noise_of(statistic.T, method)
    status = noise.status.copy()
    status[~(score[0] > critical)] = Status.too_few_samples
    whole = None if total is None else noise_of(real_array("total", total, ndim=1), method)
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
        by_direction=signal_of_directions(scores.statistic, noise, method),
        total_index=np.nan if whole is None else float(whole.index),
        total_scale=np.nan if whole is None else float(whole.scale),
        status=status,
        null_mean=mean[nulls + 1 :],
        null_score=score[nulls + 1 :],
        method=method,
    )


#: Standard errors by which the index of blocks must exceed that of single values: a stable sample does so by chance
#: in 1 of 700 cases.
_RISE = 3.0


@dataclass(frozen=True, eq=False)
class Aggregation:
    """Tail indices of means over blocks of growing size.

    Attributes
    ----------
    estimates : tuple of TailIndex
        One per size of blocks; `too_few_samples` where too few blocks are left.
    finite_variance : array of bool
        Whether the index is 2 already for single values, or rises to it: then means concentrate as N^(-1/2) and the
        index to use is 2.
    index : array
        The index to use: 2 where the variance is finite, else the estimate from single values.
    """

    estimates: tuple[TailIndex, ...]
    finite_variance: NDArray[np.bool_]
    index: FloatArray


def aggregated(values: Any, *, sizes: tuple[int, ...] = (1, 4, 16)) -> Aggregation:
    """Estimate the tail index of block means, and whether it rises to 2.

    Means of truly stable values keep their index; those of values with a finite variance, however heavy their tails
    look, approach 2. The variance counts as finite when the interval of single values reaches 2, or when the index
    of the largest usable blocks lies more than 3 standard errors above that of single values and has either come to
    where its interval reaches 2 or lost at least half of the distance to 2. A sample too small to decide keeps its own
    index, which asks for more data rather than less.

    Parameters
    ----------
    values : (..., samples)
        Independent samples along the last axis, cut into consecutive blocks; a remainder is left out.
    sizes : tuple of int
        Block sizes, growing from 1.
    """
    x = real_array("values", values)
    estimates = tuple(fit_tail_index(_block_means(x, size)) for size in sizes)
    single, largest = estimates[0], _largest(estimates)
    with np.errstate(invalid="ignore"):
        already = single.index_interval[..., 1] >= 2
        # Both errors at the index of single values: that of blocks shrinks near 2, where chance may have taken it.
        error = single.index_error * np.sqrt(1 + single.samples / max(largest.samples, 1))
        risen = largest.index - single.index > _RISE * error
        arrived = (largest.index_interval[..., 1] >= 2) | (2 - largest.index <= (2 - single.index) / 2)
    finite = np.asarray(already | (risen & arrived))
    return Aggregation(estimates, finite, np.where(finite, 2.0, single.index))


def _largest(estimates: tuple[TailIndex, ...]) -> TailIndex:
    """The estimate from the largest blocks of which enough are left."""
    return next((one for one in reversed(estimates) if one.samples >= MINIMUM_SAMPLES), estimates[0])


def _block_means(x: FloatArray, size: int) -> FloatArray:
    blocks = x.shape[-1] // size
    return np.asarray(x[..., : blocks * size].reshape(*x.shape[:-1], blocks, size).mean(axis=-1))


@dataclass(frozen=True, eq=False)
class Noise:
    """Index, scale and status of every set of samples, with 95% intervals (..., 2) of the first two."""

    index: FloatArray
    scale: FloatArray
    status: NDArray[np.object_]
    index_interval: FloatArray
    scale_interval: FloatArray


def noise_of(values: FloatArray, method: str) -> Noise:
    """Noise of samples along the last axis.

    Parameters
    ----------
    values : (..., sequences)
    method : {"sound", "paper"}
        ``"paper"`` fits single values. Otherwise, where means over blocks of sequences show that the variance is
        finite, index 2 and the standard deviation are used.
    """
    if method == "paper":
        single = fit_tail_index(values)
        return Noise(single.index, single.scale, single.status, single.index_interval, single.scale_interval)
    found = aggregated(values)
    single = found.estimates[0]
    unit = power_of_two(np.abs(values).max(axis=-1, initial=0.0))
    # A normal law of index 2 has variance 2 scale^2.
    normal = unit * (values / unit[..., None]).std(axis=-1, ddof=1) / np.sqrt(2)
    scale = np.where(found.finite_variance, normal, single.scale)
    status = single.status.copy()
    status[found.finite_variance] = Status.ok
    return Noise(found.index, scale, status, *_intervals(values, found, scale))


def _intervals(values: FloatArray, blocks: Aggregation, scale: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Of index and scale; where blocks of sequences show a finite variance, of the blocks and of the deviation."""
    single, largest = blocks.estimates[0], _largest(blocks.estimates)
    centred = values - values.mean(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = centred / np.abs(centred).max(-1, keepdims=True)
        kurtosis = (spread**4).mean(-1) / (spread**2).mean(-1) ** 2
    margin = TWO_SIDED * scale * np.sqrt(np.maximum(kurtosis - 1, 0) / (4 * values.shape[-1]))
    normal = np.stack([scale - margin, scale + margin], -1)
    finite = blocks.finite_variance[..., None]
    index_interval = np.where(finite, largest.index_interval, single.index_interval)
    return index_interval, np.where(finite, normal, single.scale_interval)


@dataclass(frozen=True, eq=False)
class DirectionSignal:
    """Signal and noise of each direction; the answer is drawn from their mean.

    Attributes
    ----------
    mean, score : (directions, lags)
        Signal, and signal over its standard error. The critical score is that of the mean over directions.
    index, scale : (directions, lags)
        Tail index and scale of the noise between sequences.
    """

    mean: FloatArray
    score: FloatArray
    index: FloatArray
    scale: FloatArray


def signal_of_directions(statistic: FloatArray, pooled: Noise, method: str) -> DirectionSignal:
    """Signal of each direction.

    Parameters
    ----------
    statistic : (directions, sequences, lags)
    pooled : Noise
        Of the mean over directions: a single direction has no other.
    method : {"sound", "paper"}
    """
    values = statistic.transpose(0, 2, 1)
    noise = noise_of(values, method) if len(values) > 1 else None
    index, scale = (pooled.index[None], pooled.scale[None]) if noise is None else (noise.index, noise.scale)
    mean = values.mean(axis=-1)
    return DirectionSignal(mean, score_of(mean, values.var(axis=-1), values.shape[-1]), index, scale)
