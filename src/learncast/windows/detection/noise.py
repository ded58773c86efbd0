"""Sequence-to-sequence noise: its tail index and scale, and whether its variance is finite."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from learncast._core.validation import FloatArray, real_array
from learncast.results import Status
from learncast.windows.detection.signs import power_of_two
from learncast.windows.detection.tail_index import MINIMUM_SAMPLES, TWO_SIDED, TailIndex, fit_tail_index

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
