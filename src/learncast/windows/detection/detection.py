"""The detection of a lag's gradient signal against its sequence-to-sequence noise.

The unit of evidence is one number per *sequence* and lag, because the steps of a sequence are not independent. The
signal of a lag is the mean of its matched statistic, a sum over hidden units whose signs must come from other data than
those they are applied to. Otherwise the mean of pure noise is positive, and every lag looks learnable.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from learncast._core.validation import FloatArray, real_array
from learncast.results import Status
from learncast.windows.detection.noise import noise_of
from learncast.windows.detection.requirement import LongestLags, learnable_window, required_sequences, signal_to_noise
from learncast.windows.detection.signs import Scores, random_flips, scored
from learncast.windows.detection.tail_index import TailIndex
from learncast.windows.options import THRESHOLD

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
