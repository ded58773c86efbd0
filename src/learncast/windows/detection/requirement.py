"""The number of sequences that a lag needs, and the longest lag that a number of sequences allows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr

from learncast._core.validation import FloatArray, between, positive, real_array
from learncast.windows.options import THRESHOLD
from learncast.windows.transport.decay import Law

#: c_alpha of the KL bound for a small separation: half the Fisher information of a location at scale 1, which is 1/4
#: both for the normal (index 2) and the Cauchy distribution (index 1).
INFORMATION = 0.25


def sample_exponent(index: ArrayLike) -> FloatArray:
    """Exponent kappa by which the required number of sequences grows, N ~ signal^-kappa.

    kappa = index / (index - 1), which is 2 at index 2. It stays 2 above, where the variance is finite, and is inf at
    index 1 and below, where averaging does not help.

    Implements: livi2025 Eq. (20)
    """
    alpha = _numbers(index)
    with np.errstate(divide="ignore", invalid="ignore"):
        kappa = alpha / (alpha - 1)  # Eq. (20)
    return np.where(alpha <= 1, np.inf, np.where(alpha >= 2, 2.0, kappa))


def least_ratio(error: float, *, information: float = INFORMATION) -> float:
    """Signal-to-noise ratio below which the sign of a lag cannot be decided with this error probability.

    sqrt((log 2 - h(error)) / information), h the entropy in nats of a coin, by Fano's inequality. It is a scaling index
    rather than a guarantee: the argument bounds the information from the wrong side, and to leading order only.
    """
    error = between("error", error, 0.0, 0.5)
    c_alpha = positive("information", information)
    return float(np.sqrt((np.log(2) - entr(error) - entr(1 - error)) / c_alpha))


def mean_alignment(rates: ArrayLike, alignments: ArrayLike) -> FloatArray:
    """Alignment of the units with the direction, weighted by their effective learning rates.

    sum_q |rate_q| |alignment_q| / sum_q |rate_q| over the last axis; the signal of a lag is this times its envelope.

    Implements: livi2025 Eq. (15), with |mu_q| in the numerator: rates may be negative
    """
    mu, m = np.abs(real_array("rates", rates)), np.abs(real_array("alignments", alignments))
    with np.errstate(invalid="ignore"):
        return np.asarray((mu * m).sum(axis=-1) / mu.sum(axis=-1))  # Eq. (15)


def signal_to_noise(signal: ArrayLike, *, scale: ArrayLike, index: ArrayLike, sequences: ArrayLike) -> FloatArray:
    """Ratio of a lag's signal to the noise that remains in the mean over N sequences.

    signal N^(1/kappa) / scale, where signal = alignment x envelope.

    Implements: livi2025 Eq. (28)
    """
    T, sigma, N = (np.abs(_numbers(part)) for part in (signal, scale, sequences))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # In logarithms, so that signals of 1e-200 need no floor.
        return np.exp(np.log(T) - np.log(sigma) + np.log(N) / sample_exponent(index))  # Eq. (28)


def required_sequences(
    signal: ArrayLike, *, scale: ArrayLike, index: ArrayLike, threshold: ArrayLike = THRESHOLD
) -> FloatArray:
    """Sequences after which the signal-to-noise ratio reaches the threshold: (threshold scale / signal)^kappa.

    Real-valued; inf for a signal of 0, or for an index at which averaging does not help.

    Implements: livi2025 Eq. (19)
    Implements: livi2025 Eq. (23)
    """
    T, sigma, least = (np.abs(_numbers(part)) for part in (signal, scale, threshold))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        excess = np.log(least) + np.log(sigma) - np.log(T)
        return np.exp(np.where(excess == 0, 0.0, sample_exponent(index) * excess))  # Eq. (19) with signal = mbar f


def envelope_floor(
    *, alignment: ArrayLike, scale: ArrayLike, index: ArrayLike, sequences: ArrayLike, threshold: ArrayLike = THRESHOLD
) -> FloatArray:
    """Smallest envelope that N sequences can distinguish from 0: threshold scale / (alignment N^(1/kappa)).

    Implements: livi2025 Eq. (21)
    """
    mbar, sigma, N = (np.abs(_numbers(part)) for part in (alignment, scale, sequences))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(_numbers(threshold) * sigma / mbar * N ** (-1 / sample_exponent(index)))  # Eq. (21)


def _numbers(value: ArrayLike) -> FloatArray:
    """Estimates, which may be nan (unknown) or infinite (never), unlike raw input."""
    return np.asarray(value, dtype=np.float64)


class LongestLags(NamedTuple):
    """Longest learnable lag, with gaps below it allowed and up to the first gap; 0 means none, nan unknown."""

    any_lag: FloatArray
    contiguous: FloatArray


def window_of(lags: ArrayLike, detectable: ArrayLike) -> LongestLags:
    """Longest lag that is detectable, and longest before the first that is not.

    Parameters
    ----------
    lags : (lags,)
        Strictly increasing.
    detectable : (..., lags)
        Whether each lag's envelope is above its floor.

    Implements: livi2025 Eq. (22), with the window up to the first gap in addition
    """
    grid, detected = _numbers(lags), np.asarray(detectable, dtype=bool)
    unbroken = np.logical_and.accumulate(detected, axis=-1)
    return LongestLags(np.where(detected, grid, 0.0).max(axis=-1), np.where(unbroken, grid, 0.0).max(axis=-1))


def learnable_window(lags: ArrayLike, significant: ArrayLike, ratio: FloatArray, threshold: float) -> LongestLags:
    """Longest lag with a significant signal whose signal-to-noise ratio reaches the threshold.

    Parameters
    ----------
    lags : (lags,)
    significant, ratio : (..., lags)
        Whether each lag's signal is distinguishable from 0, and its signal-to-noise ratio. The window is unknown if the
        ratio of a significant lag is nan.
    threshold : float
    """
    detected = np.asarray(significant)
    longest = window_of(lags, detected & (ratio >= threshold))
    unknown = (detected & np.isnan(ratio)).any(axis=-1)
    return LongestLags(*(np.where(unknown, np.nan, part) for part in longest))


def required_by_envelope(envelope: ArrayLike, *, index: ArrayLike, constant: ArrayLike) -> FloatArray:
    """Sequences that an envelope value needs if noise and alignment do not depend on the lag.

    (constant / envelope)^kappa, where constant = threshold x scale / alignment.

    Implements: livi2025 Eq. (26)
    """
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray((np.asarray(constant) / _numbers(envelope)) ** sample_exponent(index))  # Eq. (26)


def predicted_window(
    law: Law, sequences: ArrayLike, *, index: ArrayLike, constant: float | FloatArray = 1.0
) -> FloatArray:
    """Real-valued window after N sequences: the lag at which the law falls to constant N^(-1/kappa).

    For f ~ c / log(1 + lag) it grows as exp(N^(1/kappa)), for lag^-beta as N^(1/(kappa beta)), for exp(-rate lag) as
    log N / (kappa rate).
    """
    return law.lag_at(constant * _numbers(sequences) ** (-1 / sample_exponent(index)))
