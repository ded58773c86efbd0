"""The noise of a statistic between sequences: its tail index, its scale and how well they are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learncast.learnability.aggregation import Aggregation, aggregated
from learncast.learnability.sign_flip import power_of_two
from learncast.learnability.tail_index import MINIMUM_SAMPLES, TWO_SIDED, fit_tail_index
from learncast.trajectory import Status
from learncast.validation import FloatArray


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
    single = blocks.estimates[0]
    usable = [estimate for estimate in blocks.estimates if estimate.samples >= MINIMUM_SAMPLES]
    largest = usable[-1] if usable else single
    centred = values - values.mean(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = centred / np.abs(centred).max(-1, keepdims=True)
        kurtosis = (spread**4).mean(-1) / (spread**2).mean(-1) ** 2
    margin = TWO_SIDED * scale * np.sqrt(np.maximum(kurtosis - 1, 0) / (4 * values.shape[-1]))
    normal = np.stack([scale - margin, scale + margin], -1)
    finite = blocks.finite_variance[..., None]
    index_interval = np.where(finite, largest.index_interval, single.index_interval)
    return index_interval, np.where(finite, normal, single.scale_interval)
