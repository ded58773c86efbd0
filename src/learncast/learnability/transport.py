"""Mean transport over sequences and times: how far back each unit's blame reaches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn, optim

from learncast.errors import InvalidSpec
from learncast.learnability.base_rate import base_rates, parameter_rates
from learncast.learnability.lag_walk import sum_over_steps, walk_lags
from learncast.learnability.replay import Replay
from learncast.learnability.replay_capture import capture
from learncast.learnability.transport_factor import check_order, checked_lags
from learncast.validation import FloatArray, count


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
    effective : (lags, hidden), optional
        Mean of the base rate at the source times |gamma|: the effective learning rate |mu|.
    """

    lags: NDArray[np.int64]
    windows: NDArray[np.int64]
    zeroth: FloatArray
    total: FloatArray
    effective: FloatArray | None = None

    @property
    def gate_envelope(self) -> FloatArray:
        """Sum over units of mean |gamma|, (lags,)."""
        return self.total.sum(1)

    @property
    def envelope(self) -> FloatArray:
        """Sum over units of mean |mu|, (lags,).

        Implements: livi2025 Eq. (8)
        """
        if self.effective is None:
            raise InvalidSpec(
                required="base rates must be known",
                got="transport without an optimiser",
                why="an effective learning rate is a base rate times a transport factor",
                remedy="pass rates, or read gate_envelope",
            )
        return self.effective.sum(1)

    def decomposition(self, learning_rate: float) -> tuple[FloatArray, FloatArray]:
        """Parts of the envelope owed to the gates (at `learning_rate`) and to the optimiser; they add up to it.

        Implements: livi2025 Eq. (9)
        """
        gates = learning_rate * self.gate_envelope
        return gates, self.envelope - gates

    def __repr__(self) -> str:
        rates = "with" if self.effective is not None else "without"
        return f"<Transport: {self.total.shape[1]} units, lags {self.lags[0]} to {self.lags[-1]}, {rates} base rates>"


def pooled(transports: Sequence[Transport]) -> Transport:
    """One transport from those of several sets of sequences, each window counted once."""
    first = transports[0]
    windows = sum((one.windows for one in transports[1:]), first.windows)

    def mean(name: str) -> FloatArray:
        parts: list[Any] = [getattr(one, name) * one.windows[:, None] for one in transports]
        return np.asarray(sum(parts[1:], parts[0]) / windows[:, None])

    effective = None if first.effective is None else mean("effective")
    return Transport(first.lags, windows, mean("zeroth"), mean("total"), effective)


@torch.no_grad()
def mean_transport(
    replay: Replay,
    lags: Sequence[int],
    *,
    order: int = 1,
    rates: Tensor | float | None = None,
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
    rates : (time, batch, hidden) tensor or float, optional
        Base rates; where they are nan nothing is learned from the source, and it counts as 0.
    auxiliary : bool
        Add the GRU's auxiliary envelopes, which are no part of the expansion of the Jacobians.
    from_start : bool
        Include the window that begins at the initial state, on which no parameter acts.
    """
    wanted = checked_lags(lags, replay, from_start)
    check_order(order)
    if isinstance(rates, Tensor) and from_start:
        raise InvalidSpec(
            required="from_start must be False when rates are given",
            got="from_start=True",
            why="no parameter acts on the initial state, so it has no base rate",
            remedy="leave from_start out",
        )
    means = TransportMeans(replay, wanted, rates, from_start=from_start)
    walk_lags(replay, wanted, [means], order=order, auxiliary=auxiliary, from_start=from_start)
    return means.transport


class TransportMeans:
    """Gathers mean sizes of transport factors on a walk over the lags."""

    def __init__(
        self, replay: Replay, lags: list[int], rates: Tensor | float | None, *, from_start: bool = False
    ) -> None:
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
        if isinstance(self._rates, float | int):
            effective = [self._rates * total]
        return Transport(np.array(self._lags, dtype=np.int64), windows, zeroth, total, *effective)


def transports(
    model: nn.Module,
    inputs: Any,
    lags: Sequence[int],
    *,
    optimizer: optim.Optimizer | None = None,
    order: int = 1,
    auxiliary: bool = False,
    from_start: bool = False,
    chunk: int = 16,
) -> tuple[Transport, ...]:
    """Mean transport of every recurrent layer of `model` on `inputs`, the lowest first.

    Parameters
    ----------
    model : torch.nn.Module
        See `learncast.learnability.recurrent_layer.recurrent_layers`; it is left as it was.
    inputs : what the model takes
    lags : sequence of int
    optimizer : torch.optim.Optimizer, optional
        The one that trains the model, for base rates.
    order, auxiliary, from_start
        See `mean_transport`.
    chunk : int
        Sequences replayed at a time.
    """
    size = count("chunk", chunk, why="sequences are replayed in groups")
    seen = capture(model, inputs)
    found = []
    for index, layer in enumerate(seen.layers):
        lambdas = None if optimizer is None else parameter_rates(optimizer, layer.own)
        parts = []
        for begin in range(0, seen.outputs[index].shape[0], size):
            replay = seen.replay(index, slice(begin, begin + size))
            rates = None if lambdas is None else base_rates(replay, lambdas)
            part = mean_transport(replay, lags, order=order, rates=rates, auxiliary=auxiliary, from_start=from_start)
            parts.append(part)
        found.append(pooled(parts))
    return tuple(found)
