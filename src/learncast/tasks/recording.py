"""What is kept of recorded trials beside their mean statistics: second moments of blocks of trials."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learncast.tasks.covariance import Dense
from learncast.validation import FloatArray

#: Most blocks that are kept; fewer are merged to halves of it as trials go on arriving.
MOST_BLOCKS = 64
#: Fewest blocks from which a sampling error can be told: its own relative error is then 1 / sqrt(14) = 27%.
LEAST_BLOCKS = 8
#: Bytes that all blocks together may take.
BLOCK_MEMORY = 2**26


@dataclass(frozen=True, eq=False)
class Blocks:
    """Second moments of consecutive blocks of trials, each trial written as one row (inputs, targets).

    Attributes
    ----------
    counts : (blocks,)
        Trials in each block.
    means : (blocks, values)
        Mean row of each block; zero when moments are about zero.
    scatters : (blocks, values, values)
        Sum over a block's trials of row row^T, about the block's own mean when centred.
    input_shape, target_shape : (steps, channels)
        How a row is cut back.
    centred : bool
        Whether moments are about the mean over trials or about zero.
    """

    counts: FloatArray
    means: FloatArray
    scatters: FloatArray
    input_shape: tuple[int, int]
    target_shape: tuple[int, int]
    centred: bool

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def trials(self) -> int:
        """Trials in all blocks."""
        return int(self.counts.sum())

    def moment(self, repeats: FloatArray | None = None) -> FloatArray:
        """Mean of row row^T over all trials, each block taken `repeats` times, (values, values)."""
        repeats = np.ones(len(self)) if repeats is None else repeats
        weights = repeats * self.counts
        total = np.tensordot(repeats, self.scatters, axes=1)
        if self.centred:
            # Scatter within blocks plus scatter of their means: no difference of large numbers.
            gaps = self.means - weights @ self.means / weights.sum()
            total += (weights[:, None] * gaps).T @ gaps
        return np.asarray(total / weights.sum())

    def deviations(self) -> FloatArray:
        """Standard error of each entry of `moment`, from how much the blocks differ, (values, values)."""
        whole, spread = self.moment(), np.zeros(self.scatters.shape[1:])
        mean = self.counts @ self.means / self.trials
        for n, middle, scatter in zip(self.counts, self.means, self.scatters, strict=True):
            gap = middle - mean
            spread += (scatter + n * (np.outer(gap, gap) - whole)) ** 2
        return np.sqrt(spread * len(self) / (len(self) - 1)) / self.trials

    def cut(self, matrix: FloatArray) -> tuple[Dense, Dense, Dense]:
        """Input, cross and target part of a matrix over rows."""
        n = self.input_shape[0] * self.input_shape[1]
        x, y = self.input_shape, self.target_shape
        return (
            Dense(matrix[:n, :n].reshape(x + x)),
            Dense(matrix[:n, n:].reshape(x + y)),
            Dense(matrix[n:, n:].reshape(y + y)),
        )

    def with_targets_times(self, factor: float) -> Blocks:
        """The same trials with every target multiplied."""
        n = self.input_shape[0] * self.input_shape[1]
        scale = np.where(np.arange(self.means.shape[1]) < n, 1.0, factor)
        scatters = self.scatters * (scale[:, None] * scale)
        return Blocks(self.counts, self.means * scale, scatters, self.input_shape, self.target_shape, self.centred)


@dataclass(frozen=True, eq=False)
class Recording:
    """How a task was recorded.

    Attributes
    ----------
    centred : bool
        Whether the mean over trials was subtracted.
    blocks : Blocks or None
        None where the trials themselves are kept, or where blocks would take more than `BLOCK_MEMORY`.
    """

    centred: bool
    blocks: Blocks | None = None


class BlockSums:
    """Sums up trials as they arrive, in blocks that merge in pairs when there are too many.

    Moments about the mean are merged by the formula of Chan, Golub and LeVeque: what is summed is scatter about a
    running mean, so a large mean costs no digits.

    Parameters
    ----------
    input_shape, target_shape : (steps, channels)
    centred : bool
    size : int
        Trials per block to begin with.
    """

    def __init__(
        self, input_shape: tuple[int, int], target_shape: tuple[int, int], *, centred: bool, size: int = 1
    ) -> None:
        self.input_shape, self.target_shape, self.centred, self.size = input_shape, target_shape, centred, size
        self.values = int(np.prod(input_shape) + np.prod(target_shape))
        self.most = blocks_that_fit(self.values)
        self._counts = np.zeros(self.most)
        self._means = np.zeros((self.most, self.values))
        self._scatters = np.zeros((self.most, self.values, self.values))
        self._filled = 0

    @property
    def trials(self) -> int:
        """Trials so far."""
        return int(self._counts.sum())

    def add(self, rows: FloatArray) -> None:
        """Take in trials, (trials, values)."""
        if self.most == 1:
            self._merge(0, rows)
            return
        while len(rows):
            if self._counts[self._filled] == self.size:
                self._filled += 1
                if self._filled == self.most:
                    self._halve()
            room = self.size - int(self._counts[self._filled])
            self._merge(self._filled, rows[:room])
            rows = rows[room:]

    def blocks(self) -> Blocks:
        """What has been summed; a single block where more would not fit."""
        live = self._counts > 0
        return Blocks(
            self._counts[live],
            self._means[live],
            self._scatters[live],
            self.input_shape,
            self.target_shape,
            self.centred,
        )

    def _merge(self, block: int, rows: FloatArray) -> None:
        if self.centred:
            n, mean = self._counts[block], rows.mean(axis=0)
            gap, whole = mean - self._means[block], n + len(rows)
            rows = rows - mean
            self._scatters[block] += np.outer(gap, gap) * (n * len(rows) / whole)
            self._means[block] += gap * (len(rows) / whole)
        self._scatters[block] += rows.T @ rows
        self._counts[block] += len(rows)

    def _halve(self) -> None:
        """Merge neighbouring blocks, all of which are full."""
        half = self.most // 2
        if self.centred:
            gaps = self._means[1::2] - self._means[::2]
            for k, gap in enumerate(gaps):
                self._scatters[2 * k] += np.outer(gap, gap) * (self.size / 2)
        for k in range(half):  # in place: a copy of all blocks would double the memory
            self._scatters[k] = self._scatters[2 * k] + self._scatters[2 * k + 1]
            self._means[k] = (self._means[2 * k] + self._means[2 * k + 1]) / 2
        self._counts[:half] = self._counts[::2] + self._counts[1::2]
        for array in (self._counts, self._means, self._scatters):
            array[half:] = 0.0
        self.size, self._filled = 2 * self.size, half


def blocks_that_fit(values: int) -> int:
    """Blocks of moments over so many values a trial that may be kept: an even number, or 1 where too few would fit."""
    most = min(MOST_BLOCKS, BLOCK_MEMORY // (8 * values**2)) // 2 * 2
    return most if most >= LEAST_BLOCKS else 1
