"""The window that a law of decay allows after any number of sequences.

An envelope f(lag) falling by a law makes the required number of sequences grow as f^-kappa, so that the learnable
window after N sequences is where f falls below a level that shrinks as N^(-1/kappa).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from learncast.errors import InvalidSpec
from learncast.learnability.decay_law import Law
from learncast.learnability.sample_requirement import THRESHOLD, sample_exponent
from learncast.validation import FloatArray, positive


def required_by_envelope(envelope: Any, *, index: Any, constant: Any) -> FloatArray:
    """Sequences that an envelope value needs when noise and alignment do not depend on the lag.

    (constant / envelope)^kappa, where constant = threshold x scale / alignment.

    Implements: livi2025 Eq. (26)
    """
    with np.errstate(divide="ignore", over="ignore"):
        f = np.asarray(envelope, dtype=np.float64)
        return np.asarray((np.asarray(constant) / f) ** sample_exponent(index))  # Eq. (26)


def predicted_window(law: Law, sequences: Any, *, index: Any, constant: Any = 1.0) -> FloatArray:
    """Real-valued window after N sequences: where the law falls to constant N^(-1/kappa).

    For f ~ c / log(1 + lag) it grows as exp(N^(1/kappa)), for lag^-beta as N^(1/(kappa beta)), for exp(-rate lag) as
    log N / (kappa rate).
    """
    N = np.asarray(sequences, dtype=np.float64)
    return law.lag_at(np.asarray(constant) * N ** (-1 / sample_exponent(index)))


class Bounds(NamedTuple):
    """Least and greatest value."""

    low: FloatArray
    high: FloatArray


def requirement_bounds(
    envelope: Any, *, index: Any, scales: tuple[float, float], alignments: tuple[float, float], threshold: float
) -> Bounds:
    """Sequences needed when scale and alignment stay within ranges over all lags (Lemma 5.2).

    Parameters
    ----------
    envelope : array
    index : float
        Tail index.
    scales, alignments : (least, greatest)
        Positive. A noise that shrinks with the envelope has no positive least scale, and then the envelope says
        nothing about the requirement.
    threshold : float
        Signal-to-noise ratio asked for.
    """
    least, most = _constants(scales, alignments, threshold)
    return Bounds(*(required_by_envelope(envelope, index=index, constant=constant) for constant in (least, most)))


def window_bounds(
    law: Law,
    sequences: Any,
    *,
    index: Any,
    scales: tuple[float, float],
    alignments: tuple[float, float],
    threshold: float = THRESHOLD,
) -> Bounds:
    """Window after N sequences under the ranges of `requirement_bounds` (Lemma 5.2)."""
    least, most = _constants(scales, alignments, threshold)
    return Bounds(*(predicted_window(law, sequences, index=index, constant=constant) for constant in (most, least)))


def _constants(scales: tuple[float, float], alignments: tuple[float, float], threshold: float) -> tuple[float, float]:
    why = "bounds hold when it stays within positive limits"
    low_scale, high_scale = (positive("scales", value, why=why) for value in scales)
    low_align, high_align = (positive("alignments", value, why=why) for value in alignments)
    least = positive("threshold", threshold, why="a ratio of 0 asks for nothing")
    if low_scale > high_scale or low_align > high_align:
        raise InvalidSpec(
            required="scales and alignments must be (least, greatest)",
            got=f"{scales} and {alignments}",
            why="they are the ends of ranges",
            remedy="swap the two numbers",
        )
    return least * low_scale / high_align, least * high_scale / low_align
