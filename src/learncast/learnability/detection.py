"""The detection of a lag's gradient signal against its sequence-to-sequence noise.

One number per *sequence* and lag is the unit of evidence: steps of a sequence are not independent. The signal of a lag
is the mean of its matched statistic, a sum over hidden units whose signs must come from data other than those they
are applied to: otherwise the mean of pure noise is positive, and every lag looks learnable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learncast.errors import InvalidSpec
from learncast.learnability.direction_signal import DirectionSignal, signal_of_directions
from learncast.learnability.lag_window import Window, lag_grid, window_of
from learncast.learnability.sample_requirement import THRESHOLD, required_sequences, signal_to_noise
from learncast.learnability.sequence_noise import Noise, noise_of
from learncast.learnability.sign_flip import Scores, random_flips, scored
from learncast.learnability.unit_signs import lag_blocks
from learncast.trajectory import Status
from learncast.validation import FloatArray, count, one_of, real_array

BoolArray = NDArray[np.bool_]

METHODS = ("sound", "paper")
NOISES = ("per_lag", "total")
#: Standard errors that the mean must exceed in any case.
LEAST_SCORE = 3.0
#: Sequences on each side of the cross-fit below which a standard error means nothing.
_LEAST_SEQUENCES = 8


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
        return self._window(self.significant, self.signal_to_noise(sequences, noise=noise), threshold)

    def null_windows(self, sequences: Any, threshold: float = THRESHOLD, *, noise: str = "per_lag") -> Window:
        """Windows of the same sequences with random signs, (..., nulls): what this rule reports when nothing is there.

        The noise is that of the data, since flips leave it nearly as it is.
        """
        sizes = np.asarray(sequences, dtype=np.float64)[..., None]
        ratio = self._ratio(self.null_mean, sizes, noise)
        return self._window(np.broadcast_to(self.null_score > self.critical, ratio.shape), ratio, threshold)

    def _competitor(self, noise: str) -> tuple[FloatArray, FloatArray]:
        one_of("noise", noise, NOISES, why="it says what the signal competes with")
        if noise == "per_lag":
            return self.index, self.scale
        return np.asarray(self.total_index), np.asarray(self.total_scale)

    def _ratio(self, mean: FloatArray, sequences: Any, noise: str) -> FloatArray:
        index, scale = self._competitor(noise)
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
    directions: int = 1,
    precision: Any = np.float64,
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
    directions : int
        Into how many equal parts the units fall, one for each direction. Contributions to the mean over directions are
        meant: those of each direction divided by their number.
    precision : dtype
        Of the flips; np.float32 will do for contributions of a model in single precision.
    """
    one_of("method", method, METHODS, why="it says whether signs come from independent data")
    rule = "crossed" if method == "sound" else "same"
    blocks = lag_blocks(contributions, directions)
    scores = _collected(lag_grid(lags), blocks, rule, _nulls(nulls), rng, directions=directions, precision=precision)
    return _detection(lag_grid(lags), scores, method, total)


def detect_projected(
    lags: Any, statistics: Any, *, rng: np.random.Generator, total: Any = None, nulls: int = 200
) -> Detection:
    """As `detect`, from matched statistics whose signs come from other sequences.

    Parameters
    ----------
    statistics : (sequences, lags) or (sequences, lags, directions)
        With directions, parts of the mean over them, as for `detect`.
    """
    values = real_array("statistics", statistics, ndim=(2, 3))
    values = values[:, :, None] if values.ndim == 2 else values
    grid = lag_grid(lags)
    scores = _collected(grid, iter([values]), "fixed", _nulls(nulls), rng, directions=values.shape[2])
    return _detection(grid, scores, "sound", total)


def _detection(grid: FloatArray, scores: Scores, method: str, total: Any) -> Detection:
    statistic = scores.statistic.mean(axis=0)
    mean, score, nulls = scores.mean, scores.score, len(scores.mean) // 2
    critical = max(LEAST_SCORE, float(score[1 : nulls + 1].max())) if method == "sound" else -np.inf
    noise = noise_of(statistic.T, method)
    status = noise.status.copy()
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
        noise=noise,
        by_direction=signal_of_directions(scores.statistic, noise, method),
        total_index=total_index,
        total_scale=total_scale,
        status=status,
        null_mean=mean[nulls + 1 :],
        null_score=score[nulls + 1 :],
        method=method,
    )


def _nulls(nulls: int) -> int:
    """Flips for the critical score and for the band."""
    return 2 * count("nulls", nulls, least=19, why="fewer cannot keep false alarms below one in twenty")


def _collected(
    grid: FloatArray, blocks: Iterator[FloatArray], rule: str, nulls: int, rng: np.random.Generator, **options: Any
) -> Scores:
    """Scores of all blocks under the same flips."""
    flips: FloatArray | None = None
    parts: list[Scores] = []
    for block in blocks:
        if flips is None:
            flips = random_flips(_enough(len(block)), nulls, rng)
        elif len(block) != flips.shape[1]:
            raise _mismatch(f"{len(block)} sequences after {flips.shape[1]}")
        parts.append(scored(block, flips, rule, **options))
    found = sum(part.mean.shape[1] for part in parts)
    if found != len(grid):
        raise _mismatch(f"{found} lags instead of {len(grid)}")
    return Scores(*(np.concatenate(part, axis=-1) for part in zip(*parts, strict=True)))


def _total_noise(total: Any, sequences: int, method: str) -> tuple[float, float]:
    values = real_array("total", total, ndim=1)
    if len(values) != sequences:
        raise InvalidSpec(
            required=f"total must have one number for each of the {sequences} sequences",
            got=f"{len(values)}",
            why="it is the gradient of those sequences",
            remedy="project the gradient of each sequence on the same direction",
        )
    noise = noise_of(values, method)
    return float(noise.index), float(noise.scale)


def _enough(sequences: int) -> int:
    return count("the number of sequences", sequences, least=_LEAST_SEQUENCES, why="an error is taken over sequences")


def _mismatch(got: str) -> InvalidSpec:
    return InvalidSpec(
        required="blocks of contributions must hold the same sequences and together all lags",
        got=got,
        why="random signs belong to whole sequences",
        remedy="pass arrays (sequences, some lags, units) in the order of lags",
    )
