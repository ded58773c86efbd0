"""Mean transport over sequences and times: how far back each unit's blame reaches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learncast.learnability.replay.replay import Replay
from learncast.learnability.transport.factor import sum_over_steps, walk_lags
from learncast.validation import FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class Transport:
    """Mean transport factors of every unit, over sequences and times.

    Parameters
    ----------
    lags : (lags,)
    windows : (lags,)
        How many windows each mean is over.
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
    def gate_envelope(self) -> FloatArray:
        """Sum over units of mean |gamma|, (lags,)."""
        return self.total.sum(1)

    @property
    def envelope(self) -> FloatArray:
        """Sum over units of mean |mu|, (lags,).

        Implements: livi2025 Eq. (8)
        """
        return self.effective.sum(1)

    def decomposition(self, learning_rate: float) -> tuple[FloatArray, FloatArray]:
        """Parts of the envelope owed to the gates (at `learning_rate`) and to the optimiser; they add up to it.

        Implements: livi2025 Eq. (9)
        """
        gates = learning_rate * self.gate_envelope
        return gates, self.envelope - gates

    def __repr__(self) -> str:
        return f"<Transport: {self.total.shape[1]} units, lags {self.lags[0]} to {self.lags[-1]}>"


def pooled(transports: Sequence[Transport]) -> Transport:
    """One transport from those of several sets of sequences, each window counted once."""
    first = transports[0]
    windows = sum((one.windows for one in transports[1:]), first.windows)

    def mean(name: str) -> FloatArray:
        parts: list[Any] = [getattr(one, name) * one.windows[:, None] for one in transports]
        return np.asarray(sum(parts[1:], parts[0]) / windows[:, None])

    return Transport(first.lags, windows, mean("zeroth"), mean("total"), mean("effective"))


@torch.no_grad()
def mean_transport(
    replay: Replay,
    lags: Sequence[int],
    *,
    order: int = 1,
    rates: Tensor | float = 1.0,
    auxiliary: bool = False,
    from_start: bool = False,
) -> Transport:
    """Mean size of every unit's transport factor at each lag, over sequences and times, in one pass.

    Parameters
    ----------
    replay : Replay
    lags : sequence of int
    order : 0 or 1
        0 for the product of the gates alone, 1 to add one visit to the recurrent weights.
    rates : (time, batch, hidden) tensor or float
        Base rates; where they are nan nothing is learned from the source, and it counts as 0.
    auxiliary : bool
        Add the GRU's auxiliary envelopes, which are no part of the expansion of the Jacobians.
    from_start : bool
        Include the window that begins at the initial state, on which no parameter acts: it has no base rate of its own.
    """
    means = TransportMeans(replay, lags, rates, from_start=from_start)
    walk_lags(replay, lags, [means], order=order, auxiliary=auxiliary, from_start=from_start)
    return means.transport


class TransportMeans:
    """Gathers mean sizes of transport factors on a walk over the lags."""

    def __init__(self, replay: Replay, lags: Sequence[int], rates: Tensor | float, *, from_start: bool = False) -> None:
        self._replay, self._lags, self._rates, self._from_start = replay, lags, rates, from_start
        self._rows = 3 if isinstance(rates, Tensor) else 2
        self._sums = torch.zeros(self._rows, len(lags), replay.hidden.shape[2], dtype=torch.float64)
        self._part = self._size = torch.empty(0, 0, 0)
        self._weights: Tensor | None = None

    def begin(self, some: slice, dtype: torch.dtype) -> None:
        """Sequences come next."""
        like = self._replay.hidden[:, some]
        if isinstance(self._rates, Tensor):
            self._weights = self._rates[:, some].to(dtype).nan_to_num(0.0)
        if self._size.shape[1:] != like.shape[1:] or self._size.dtype != dtype:
            steps, *shape = like.shape
            self._size = like.new_empty((steps + 1, *shape), dtype=dtype)
            self._part = like.new_empty((self._rows, len(self._lags), *shape), dtype=dtype)

    def take(self, row: int, lag: int, total: Tensor) -> None:
        """Add one lag."""
        size = torch.abs(total, out=self._size[: total.shape[0]])
        torch.sum(size, 0, out=self._part[1, row])
        if self._weights is not None:
            sum_over_steps(self._part[2, row], size, self._weights[: size.shape[0]])

    def end(self, kept: Tensor, scale: Tensor | None) -> None:
        """Count the sequences in."""
        self._part[0] = kept
        part = self._part.double() if scale is None else self._part * scale
        self._sums += part.sum(2).cpu()

    @property
    def transport(self) -> Transport:
        """The means."""
        steps, batch, _ = self._replay.hidden.shape
        windows = np.array([(steps - lag + self._from_start) * batch for lag in self._lags], dtype=np.int64)
        zeroth, total, *effective = np.asarray(self._sums) / windows[:, None]
        if not isinstance(self._rates, Tensor):
            effective = [self._rates * total]
        return Transport(np.array(self._lags, dtype=np.int64), windows, zeroth, total, *effective)
