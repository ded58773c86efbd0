"""The tail index of means over blocks of samples, which tells heavy tails from a finite variance."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learncast.errors import InvalidSpec
from learncast.learnability.tail_index import MINIMUM_SAMPLES, TailIndex, fit_tail_index
from learncast.validation import FloatArray, count, real_array

#: Standard errors by which the index of blocks must exceed that of single values: a stable sample does so by chance
#: in 1 of 700 cases.
_RISE = 3.0


@dataclass(frozen=True, eq=False)
class Aggregation:
    """Tail indices of means over blocks of growing size.

    Attributes
    ----------
    sizes : tuple of int
        Values per block.
    estimates : tuple of TailIndex
        One per size; `too_few_samples` where too few blocks are left.
    finite_variance : array of bool
        Whether the index is 2 already for single values, or rises to it: then means concentrate as N^(-1/2) and the
        index to use is 2.
    index : array
        The index to use: 2 where the variance is finite, else the estimate from single values.
    """

    sizes: tuple[int, ...]
    estimates: tuple[TailIndex, ...]
    finite_variance: NDArray[np.bool_]
    index: FloatArray


def aggregated(values: Any, *, sizes: tuple[int, ...] = (1, 4, 16), method: str = "gls") -> Aggregation:
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
    method : str
        As for `fit_tail_index`.
    """
    x = real_array("values", values)
    sizes = tuple(count("sizes", size, why="a block holds whole samples") for size in sizes)
    if not sizes or sizes[0] != 1 or any(b <= a for a, b in pairwise(sizes)):
        raise InvalidSpec(
            required="sizes must grow from 1",
            got=str(sizes),
            why="the index of blocks is compared with that of single values",
            remedy="use sizes such as (1, 4, 16)",
        )
    estimates = tuple(fit_tail_index(_block_means(x, size), method=method) for size in sizes)
    usable = [estimate for estimate in estimates if estimate.samples >= MINIMUM_SAMPLES]
    single, largest = estimates[0], usable[-1] if usable else estimates[0]
    with np.errstate(invalid="ignore"):
        already = single.index_interval[..., 1] >= 2
        # Both errors at the index of single values: that of blocks shrinks near 2, where chance may have taken it.
        error = single.index_error * np.sqrt(1 + single.samples / max(largest.samples, 1))
        risen = largest.index - single.index > _RISE * error
        arrived = (largest.index_interval[..., 1] >= 2) | (2 - largest.index <= (2 - single.index) / 2)
    finite = np.asarray(already | (risen & arrived))
    return Aggregation(sizes, estimates, finite, np.where(finite, 2.0, single.index))


def _block_means(x: FloatArray, size: int) -> FloatArray:
    blocks = x.shape[-1] // size
    return np.asarray(x[..., : blocks * size].reshape(*x.shape[:-1], blocks, size).mean(axis=-1))
