"""Second moments of blocks of recorded trials, accumulated as trials arrive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from learncast._core.validation import FloatArray
from learncast.tasks.covariance import Dense

StepsAndChannels = tuple[int, int]
#: Most blocks that are stored; when they are full, neighbours are merged.
MOST_BLOCKS = 64
#: Fewest blocks for a sampling error, whose own relative error is then 1 / sqrt(14) = 27%.
LEAST_BLOCKS = 8
#: Most bytes of all blocks together.
BLOCK_MEMORY = 2**26
#: Most numbers in one chunk of trials: 16 MB of float64, of which there are a few copies.
CHUNK_SIZE = 2**21
#: Numbers that fit in the cache of a core.
CACHED = 2**17


@dataclass(frozen=True, eq=False)
class Blocks:
    """Second moments of consecutive blocks of trials; a trial is one row of (inputs, targets).

    Attributes
    ----------
    counts : (blocks,)
        Number of trials in each block.
    means : (blocks, values)
        Mean row of each block.
    scatters : (blocks, values, values)
        Sum of row row^T over the trials of a block, about the block's own mean if centred.
    input_shape, target_shape : (steps, channels)
        Shapes of the two parts of a row.
    centred : bool
        Whether moments are about the mean over trials or about zero.
    scaled : bool
        Whether each input channel is divided by its root mean square.
    """

    counts: FloatArray
    means: FloatArray
    scatters: FloatArray
    input_shape: StepsAndChannels
    target_shape: StepsAndChannels
    centred: bool
    scaled: bool = False

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def trials(self) -> int:
        """Number of trials in all blocks."""
        return int(self.counts.sum())

    @property
    def mean(self) -> FloatArray:
        """Mean row of all trials, (values,)."""
        return np.asarray(self.counts @ self.means / self.trials)

    @property
    def scales(self) -> FloatArray:
        """Divisor of each input channel, (inputs,)."""
        if not self.scaled:
            return np.ones(self.input_shape[1])
        return self._scales(np.diagonal(self._moment(np.ones(len(self)))))

    def moment(self, repeats: FloatArray | None = None) -> FloatArray:
        """Mean of row row^T over all trials, each block repeated `repeats` times, (values, values)."""
        total = self._moment(np.ones(len(self)) if repeats is None else repeats)
        if self.scaled:
            units = self._units(self._scales(np.diagonal(total)))
            total /= units
            total /= units[:, None]
        return total

    def _moment(self, repeats: FloatArray) -> FloatArray:
        weights = repeats * self.counts
        total = np.tensordot(repeats, self.scatters, axes=1)
        if self.centred:
            # Scatter within blocks plus scatter of their means avoids differences of large numbers.
            gaps = self.means - weights @ self.means / weights.sum()
            add_products(total, np.sqrt(weights)[:, None] * gaps)
        total /= weights.sum()
        return np.asarray(total)

    def _scales(self, powers: FloatArray) -> FloatArray:
        steps, inputs = self.input_shape
        power, mean = (part[: steps * inputs].reshape(steps, inputs) for part in (powers, self.mean))
        return channel_scales(power.mean(axis=0), (mean**2).mean(axis=0))

    def _units(self, scales: FloatArray) -> FloatArray:
        """Divisor of each value of a row."""
        return np.concatenate([np.tile(scales, self.input_shape[0]), np.ones(int(np.prod(self.target_shape)))])

    def sums(self) -> Iterator[FloatArray]:
        """Sum of row row^T over the trials of each block, about the mean of all trials if centred, and scaled."""
        units = self._units(self.scales)
        for n, middle, scatter in zip(self.counts, self.means, self.scatters, strict=True):
            gap = middle - self.mean if self.centred else np.zeros_like(middle)
            yield (scatter + n * np.outer(gap, gap)) / np.outer(units, units)

    def cut(self, matrix: FloatArray) -> tuple[Dense, Dense, Dense]:
        """Split a matrix over rows into its input, cross and target parts."""
        n = self.input_shape[0] * self.input_shape[1]
        x, y = self.input_shape, self.target_shape
        return (
            Dense(matrix[:n, :n].reshape(x + x)),
            Dense(matrix[:n, n:].reshape(x + y)),
            Dense(matrix[n:, n:].reshape(y + y)),
        )

    def pooled(self, weights: FloatArray) -> Blocks:
        """Blocks of trials whose inputs are summed over steps with these weights."""
        inputs, outputs = self.input_shape[1], int(np.prod(self.target_shape))
        pool = np.kron(weights, np.eye(inputs))
        map_ = np.block([[pool, np.zeros((inputs, outputs))], [np.zeros((outputs, pool.shape[1])), np.eye(outputs)]])
        means, scatters = self.means @ map_.T, map_ @ self.scatters @ map_.T
        return replace(self, means=means, scatters=scatters, input_shape=(1, inputs))

    def with_targets_times(self, factor: float) -> Blocks:
        """Blocks of trials whose targets are multiplied by a factor."""
        n = self.input_shape[0] * self.input_shape[1]
        scale = np.where(np.arange(self.means.shape[1]) < n, 1.0, factor)
        scatters = self.scatters * (scale[:, None] * scale)
        return replace(self, means=self.means * scale, scatters=scatters)


class BlockSums:
    """Accumulate trials as they arrive, in blocks that are merged in pairs when there are too many.

    Moments about the mean are merged by the formula of Chan, Golub and LeVeque, which sums the scatter about a running
    mean, so that a large mean costs no digits.

    Parameters
    ----------
    input_shape, target_shape : (steps, channels)
    centred, scaled : bool
    size : int
        Initial number of trials per block.
    """

    def __init__(
        self, inputs: StepsAndChannels, targets: StepsAndChannels, *, centred: bool, scaled: bool = False, size: int = 1
    ) -> None:
        self.values, self.size, self._filled = int(np.prod(inputs) + np.prod(targets)), size, 0
        self.most = blocks_that_fit(self.values)
        count, total, square = (np.zeros((self.most, *[self.values] * axes)) for axes in range(3))
        self._blocks = Blocks(count, total, square, inputs, targets, centred, scaled)

    def add(self, rows: FloatArray) -> None:
        """Add trials, (trials, values)."""
        if self.most == 1:
            self._merge(0, rows)
            return
        while len(rows):
            if self._blocks.counts[self._filled] == self.size:
                self._filled += 1
                if self._filled == self.most:
                    self._halve()
            free = self.size - int(self._blocks.counts[self._filled])
            self._merge(self._filled, rows[:free])
            rows = rows[free:]

    def blocks(self) -> Blocks:
        """The blocks so far; a single one if more do not fit in memory."""
        full, live = self._blocks, slice(0, int((self._blocks.counts > 0).sum()))  # blocks fill one after another
        return replace(full, counts=full.counts[live], means=full.means[live], scatters=full.scatters[live])

    def _merge(self, block: int, rows: FloatArray) -> None:
        counts, mean, scatter = self._blocks.counts, self._blocks.means[block], self._blocks.scatters[block]
        before, new = counts[block], len(rows)
        # A product takes a third of the time of a mean over the long axis, with no more rounding.
        own = np.ones(new) @ rows / new
        gap, total = own - mean, before + new
        mean += gap * (new / total)
        if self._blocks.centred:
            rows = rows - own
            add_products(scatter, gap[None] * np.sqrt(before * new / total))
        add_products(scatter, rows)
        counts[block] = total

    def _halve(self) -> None:
        """Merge neighbouring blocks when all are full."""
        half, full = self.most // 2, self._blocks
        counts, means, scatters = full.counts, full.means, full.scatters
        for k in range(half):  # in place, because a copy would double the memory
            if self._blocks.centred:
                gap = means[2 * k + 1] - means[2 * k]
                scatters[2 * k] += np.outer(gap, gap) * (self.size / 2)
            scatters[k] = scatters[2 * k] + scatters[2 * k + 1]
            means[k] = (means[2 * k] + means[2 * k + 1]) / 2
        counts[:half] = counts[::2] + counts[1::2]
        for array in (counts, means, scatters):
            array[half:] = 0.0
        self.size, self._filled = 2 * self.size, half


def blocks_that_fit(values: int) -> int:
    """Number of blocks that fit in memory, given the values of a trial: an even number, or 1 if too few fit."""
    most = min(MOST_BLOCKS, BLOCK_MEMORY // (8 * values**2)) // 2 * 2
    return most if most >= LEAST_BLOCKS else 1


def rows_at_a_time(values: int) -> int:
    """Number of trials to read at a time, given the values of a trial: few enough for the cache, not too few."""
    return max(1, CACHED // values, min(values, CHUNK_SIZE // values))


def add_products(total: FloatArray, rows: FloatArray) -> None:
    """Add rows^T rows to a matrix in place, in slabs of columns, because a full product would double the memory."""
    width = max(1, CHUNK_SIZE // len(total))
    for start in range(0, rows.shape[1], width):
        slab = slice(start, start + width)
        total[:, slab] += rows.T @ rows[:, slab]


def channel_scales(power: FloatArray, mean_square: FloatArray) -> FloatArray:
    """Root mean square of each channel, or 1 if it does not vary.

    `power` is the mean square of a channel after centring and `mean_square` that of its mean, which separates round-off
    of a constant channel from variation.
    """
    return np.where(power > 1e-20 * (power + mean_square), np.sqrt(power), 1.0)
