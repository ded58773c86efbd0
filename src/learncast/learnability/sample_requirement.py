"""The number of sequences from which a signal of given size is told, in noise of given tail index."""

from __future__ import annotations

from typing import Any

import numpy as np

from learncast.validation import FloatArray, between, positive, real_array

#: Signal-to-noise ratio from which the published diagnosis counts a lag as learnable.
THRESHOLD = 0.1
#: c_alpha of the KL bound when the separation is small: half the Fisher information of a location at scale 1, which
#: is 1/4 both for the normal (index 2) and the Cauchy law (index 1).
INFORMATION = 0.25


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


def _numbers(value: Any) -> FloatArray:
    """Numbers that may be nan (unknown) or infinite (never): estimates, not raw input."""
    return np.asarray(value, dtype=np.float64)
