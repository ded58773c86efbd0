"""The matched statistic of each sequence and lag, scored against random sign flips of whole sequences."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from learncast._core.validation import FloatArray, real_array

_HALVES = [slice(0, None, 2), slice(1, None, 2)]


class Scores(NamedTuple):
    """Statistics of the data, (sequences, lags); means and scores of data and of flips, the data first."""

    statistic: FloatArray
    mean: FloatArray
    score: FloatArray


def random_flips(sequences: int, nulls: int, rng: np.random.Generator) -> FloatArray:
    """Draw random signs, (nulls, sequences)."""
    return np.asarray(rng.integers(0, 2, size=(nulls, sequences)) * 2.0 - 1.0, dtype=np.float64)


def scored(block: FloatArray, flips: FloatArray, rule: str, *, precision: DTypeLike = np.float64) -> Scores:
    """Score every lag of the data and of each flip.

    Parameters
    ----------
    block : (sequences, lags, units)
    flips : (nulls, sequences)
    rule : {"crossed", "same", "fixed"}
        Where signs come from: the other half of the sequences, the same sequences, or a choice made beforehand.
    precision : dtype
        Precision of the sums over flips; those of the data are in double precision.
    """
    unit = power_of_two(np.abs(block).max(axis=(0, 2), initial=0.0))
    block = block / unit[:, None]
    halves = _HALVES if rule == "crossed" else [slice(None)]
    statistic, n = _statistic(block, halves, rule), len(block)
    mean = statistic.mean(axis=0)
    null_mean, null_square = _null_moments(block.astype(precision), flips.astype(precision), halves, rule)
    means = np.concatenate([mean[None], null_mean])
    # Centred on its own mean, which may be many times the standard deviation.
    variance = np.concatenate([((statistic - mean) ** 2).mean(axis=0)[None], null_square - null_mean**2])
    return Scores(statistic * unit, means * unit, score_of(means, variance, n))


def score_of(mean: FloatArray, variance: FloatArray, sequences: int) -> FloatArray:
    """Means divided by their standard errors, from the variance between sequences."""
    with np.errstate(divide="ignore", invalid="ignore"):
        # A constant statistic has an error of 0: its score is infinite, or nan if the mean is 0 too.
        score = mean / np.sqrt(np.maximum(variance, 0.0) / (sequences - 1))
    return np.nan_to_num(score, nan=0.0, posinf=np.inf, neginf=-np.inf)


def power_of_two(largest: FloatArray) -> FloatArray:
    """Power of two near each number. In this unit squares do not underflow, and the division is exact."""
    return np.ldexp(1.0, np.frexp(largest)[1])


def _statistic(block: FloatArray, halves: list[slice], rule: str) -> FloatArray:
    """Matched statistic of every sequence, (sequences, lags).

    With signs from the other half (even and odd sequences) each value is unbiased for its half, but the halves depend
    on each other: sequence means vary up to 1.3 times more than their standard error. The critical score allows for
    that.
    """
    statistic = np.empty(block.shape[:2])
    for half, other in zip(halves, halves[::-1], strict=True):
        signs = np.ones(block.shape[1:]) if rule == "fixed" else np.sign(block[other].sum(axis=0))
        statistic[half] = matched_statistic(block[half], signs)
    return statistic


def _null_moments(
    block: FloatArray, flips: FloatArray, halves: list[slice], rule: str
) -> tuple[FloatArray, FloatArray]:
    """Mean and mean square (nulls, lags) of every flip's statistic, with signs selected again for each flip.

    Flipping a sequence does not change its outer products, so the sum of squared statistics of any flip is s^T G s with
    one Gram matrix G per lag: a null costs matrix products, never a pass over the sequences.
    """
    n, lags, units = block.shape
    shape = (len(flips), lags, units)
    sums = [(flips[:, half] @ block[half].reshape(-1, lags * units)).reshape(shape) for half in halves]
    total, square = np.zeros((2, len(flips), lags))
    for half, own, other in zip(halves, sums, sums[::-1], strict=True):
        signs = np.ones_like(own) if rule == "fixed" else np.sign(other)
        by_lag = np.ascontiguousarray(block[half].transpose(1, 0, 2))
        gram = by_lag.transpose(0, 2, 1) @ by_lag
        total += np.einsum("rlq,rlq->rl", signs, own)
        square += np.einsum("lrq,rlq->rl", signs.transpose(1, 0, 2) @ gram, signs)
    return total / n, square / n


def matched_statistic(contributions: ArrayLike, signs: ArrayLike) -> FloatArray:
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
