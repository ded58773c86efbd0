"""Mean transport factors of every unit at each lag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learncast._core.validation import FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class Transport:
    """Mean transport factors of every unit, over sequences and times.

    Parameters
    ----------
    lags : (lags,)
    windows : (lags,)
        Number of windows in each mean.
    zeroth, total : (lags, hidden)
        Means of |gamma0| and of |gamma0 + gamma1 (+ auxiliary)|.
    effective : (lags, hidden)
        Mean of the base rate at the source times |gamma|: the effective learning rate |mu|.
    """

    lags: NDArray[np.int64]
    windows: NDArray[np.int64]
    zeroth: FloatArray
    total: FloatArray
    effective: FloatArray

    @property
    def envelope(self) -> FloatArray:
        """Sum over units of mean |mu|, (lags,).

        Implements: livi2025 Eq. (8)
        """
        return self.effective.sum(1)

    def decomposition(self, learning_rate: float) -> tuple[FloatArray, FloatArray]:
        """Parts of the envelope due to the gates (at `learning_rate`) and to the optimiser; their sum is the envelope.

        Implements: livi2025 Eq. (9)
        """
        gates = learning_rate * self.total.sum(1)  # the mean |gamma| of all units
        return gates, self.envelope - gates


def pooled(transports: Sequence[Transport]) -> Transport:
    """Combine the transport of several sets of sequences, each window counted once."""
    windows = np.sum([one.windows for one in transports], axis=0)

    def mean(name: str) -> FloatArray:
        parts: list[FloatArray] = [getattr(one, name) * one.windows[:, None] for one in transports]
        return np.asarray(sum(parts[1:], parts[0]) / windows[:, None])

    return Transport(transports[0].lags, windows, mean("zeroth"), mean("total"), mean("effective"))
