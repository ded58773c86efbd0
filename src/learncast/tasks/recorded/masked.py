"""Trials of which not every step counts, and the exact statistics of those that do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learncast._core.validation import FloatArray
from learncast.tasks.covariance import Dense
from learncast.tasks.recorded.blocks import CHUNK_SIZE, add_products, channel_scales

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class MaskedTrials:
    """Trials with the steps at which they have inputs and the readouts at which their targets count.

    A linear network from rest answers y_r by its inputs up to r alone. A readout is therefore a trial of its own that
    ends at r, after steps without input, and the sum over readouts of the squared error has the statistics
    sum_r E[m_r x_{r-j} x_{r-k}^T] and sum_r E[m_r y_r x_{r-k}^T] at lags j and k: those of a task with its target at
    the end, whichever readouts count in which trial.

    Attributes
    ----------
    inputs : (trials, steps, inputs)
        0 where there are none.
    targets : (trials, readouts, outputs)
        0 where they do not count; one readout is at the last step, as many as steps are at each.
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

    @property
    def nbytes(self) -> int:
        """Memory that the trials take."""
        return self.inputs.nbytes + self.targets.nbytes

    def prepared(
        self, chosen: NDArray[np.int64] | None = None
    ) -> tuple[MaskedTrials, tuple[FloatArray, FloatArray, FloatArray]]:
        """Chosen trials, centred and scaled by their own means and sizes, and what these are.

        The last are the mean inputs and targets, whether or not they were subtracted, and the input channels' scales.
        """
        x, y, present, counted = self.inputs, self.targets, self.present, self.counted
        if chosen is not None:
            x, y, present, counted = x[chosen], y[chosen], present[chosen], counted[chosen]
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

    def moments(self) -> tuple[Dense, Dense, Dense]:
        """Input, cross and target statistics: sums over the readouts that count, with the readout at the last step."""
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
        """Trials whose products can be summed together, and the readouts that count in all of them."""
        patterns, index = np.unique(self.counted, axis=0, return_inverse=True)
        if 8 * len(patterns) <= len(self.counted) or self.targets.shape[1] == 1:
            for k, pattern in enumerate(patterns):
                if pattern.any():
                    yield np.flatnonzero(index.ravel() == k), np.flatnonzero(pattern).tolist()
            return
        for r in np.flatnonzero(self.counted.any(axis=0)).tolist():  # nearly every trial has its own mask
            yield np.flatnonzero(self.counted[:, r]), [r]


def _means(values: FloatArray, live: Mask) -> FloatArray:
    """Mean at each step over the trials that have it; 0 where none has."""
    number = live.sum(axis=0)[:, None]
    return np.asarray(values.sum(axis=0) / np.maximum(number, 1))
