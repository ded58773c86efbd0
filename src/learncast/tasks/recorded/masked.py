"""Trials, of which some steps may not count, and the exact statistics of those that do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from learncast._core.validation import FloatArray
from learncast.tasks.covariance import Dense, Sampled
from learncast.tasks.recorded.blocks import CHUNK_SIZE, add_products, channel_scales

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class MaskedTrials:
    """Trials, the steps at which they have inputs, and the readouts at which their targets count.

    The output of a linear network from rest at readout r depends on the inputs up to r only. Each readout is therefore
    a trial that ends at r, after steps of zero input, and the squared error summed over readouts has the statistics
    sum_r E[m_r x_{r-j} x_{r-k}^T] and sum_r E[m_r y_r x_{r-k}^T] at lags j and k. These are the statistics of a task
    with its target at the end, for any mask m.

    Attributes
    ----------
    inputs : (trials, steps, inputs)
        0 at steps that do not exist.
    targets : (trials, readouts, outputs)
        0 at readouts that do not count. A single readout is at the last step.
    present : (trials, steps)
    counted : (trials, readouts)
    centred, scaled : bool
    """

    inputs: FloatArray
    targets: FloatArray
    present: Mask
    counted: Mask
    centred: bool
    scaled: bool

    @classmethod
    def complete(cls, inputs: FloatArray, targets: FloatArray, *, centred: bool, scaled: bool) -> MaskedTrials:
        """Return trials of which every step counts."""
        present, counted = (np.ones(values.shape[:2], dtype=bool) for values in (inputs, targets))
        return cls(inputs, targets, present, counted, centred, scaled)

    def __len__(self) -> int:
        return len(self.inputs)

    def chosen(self, rows: NDArray[np.int64]) -> MaskedTrials:
        """Some of the trials, as they are."""
        parts = {name: getattr(self, name)[rows] for name in ("inputs", "targets", "present", "counted")}
        return replace(self, **parts)

    def joined(self, other: MaskedTrials) -> MaskedTrials:
        """These trials, followed by others of the same shape."""
        parts = zip(vars(self).values(), vars(other).values(), strict=True)
        x, y, present, counted = (np.concatenate(pair) for pair in [*parts][:4])
        return MaskedTrials(x, y, present, counted, self.centred, self.scaled)

    def pooled(self, kernel: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Inputs summed over steps with a kernel (steps, readouts), and targets, (trials, readouts, channels) each."""
        z = np.einsum("ptc,tr->prc", self.inputs, kernel, optimize=True)
        return z if self.counted.all() else np.where(self.counted[:, :, None], z, 0.0), self.targets

    def prepared(
        self, chosen: NDArray[np.int64] | None = None
    ) -> tuple[MaskedTrials, tuple[FloatArray, FloatArray, FloatArray]]:
        """Chosen trials, centred and scaled by their own means and scales; mean input, mean target and scales.

        The means are returned whether or not they were subtracted.
        """
        rows = slice(None) if chosen is None else chosen
        x, y = (np.asarray(values[rows], dtype=float) for values in (self.inputs, self.targets))
        present, counted = self.present[rows], self.counted[rows]
        x_mean, y_mean = _means(x, present), _means(y, counted)
        if self.centred:
            x = np.where(present[:, :, None], x - x_mean, 0.0)
            y = np.where(counted[:, :, None], y - y_mean, 0.0)
        scales = np.ones(x.shape[2])
        if self.scaled:
            power = np.einsum("ptc,ptc->c", x, x) / max(int(present.sum()), 1)
            scales = channel_scales(power, (x_mean**2).mean(axis=0))
            x = x / scales
        return MaskedTrials(x, y, present, counted, self.centred, self.scaled), (x_mean, y_mean, scales)

    @property
    def sampled(self) -> tuple[Sampled, Sampled, Sampled]:
        """Input, cross and target statistics of trials of which every step counts, stored as the trials themselves."""
        x, y = self.inputs, self.targets
        return Sampled(x, x), Sampled(x, y), Sampled(y, y)

    def moments(self) -> tuple[Dense, Dense, Dense]:
        """Input, cross and target statistics, summed over the readouts that count, each shifted to the last step."""
        trials, steps, inputs = self.inputs.shape
        readouts, outputs = self.targets.shape[1:]
        A, B = np.zeros((steps, inputs, steps, inputs)), np.zeros((steps, inputs, outputs))
        for rows, chosen in self._groups():
            last = chosen[-1] + 1 if readouts > 1 else steps
            square = np.zeros((last * inputs, last * inputs))
            product = np.zeros((last * inputs, len(chosen) * outputs))
            for part in np.array_split(rows, -(-len(rows) * last * inputs // CHUNK_SIZE)):
                flat = self.inputs[part, :last].reshape(len(part), -1)
                add_products(square, flat)
                product += flat.T @ self.targets[part][:, chosen].reshape(len(part), -1)
            by_step, by_readout = square.reshape(last, inputs, last, inputs), product.reshape(last, inputs, -1, outputs)
            for k, r in enumerate(chosen):
                end = r + 1 if readouts > 1 else steps
                A[steps - end :, :, steps - end :, :] += by_step[:end, :, :end, :]
                B[steps - end :] += by_readout[:end, :, k]
        A /= trials
        C = np.einsum("pri,prj->ij", self.targets, self.targets, optimize=True) / trials
        return Dense(A), Dense(B[:, :, None, :] / trials), Dense(C[None, :, None, :])

    def _groups(self) -> Iterator[tuple[NDArray[np.int64], list[int]]]:
        """Groups of trials and the readouts that count in all trials of the group."""
        patterns, index = np.unique(self.counted, axis=0, return_inverse=True)
        if 8 * len(patterns) <= len(self.counted) or self.targets.shape[1] == 1:
            for k, pattern in enumerate(patterns):
                if pattern.any():
                    yield np.flatnonzero(index.ravel() == k), np.flatnonzero(pattern).tolist()
            return
        for r in np.flatnonzero(self.counted.any(axis=0)).tolist():  # most trials have a mask of their own
            yield np.flatnonzero(self.counted[:, r]), [r]


def _means(values: FloatArray, live: Mask) -> FloatArray:
    """Mean at each step over the trials that have it; 0 if none has."""
    number = live.sum(axis=0)[:, None]
    return np.asarray(values.sum(axis=0) / np.maximum(number, 1))
