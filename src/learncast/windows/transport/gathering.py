"""What is gathered on a walk over the lags: mean transport, and what each unit contributes to a sequence's gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learncast._core.validation import FloatArray
from learncast.windows.replay.replay import Chained, Replay
from learncast.windows.transport.factor import sum_over_steps, walk_lags

#: Largest of a set of numbers of which products in single precision are safe.
_ORDINARY = 1e4


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
    def envelope(self) -> FloatArray:
        """Sum over units of mean |mu|, (lags,).

        Implements: livi2025 Eq. (8)
        """
        return self.effective.sum(1)

    def decomposition(self, learning_rate: float) -> tuple[FloatArray, FloatArray]:
        """Parts of the envelope owed to the gates (at `learning_rate`) and to the optimiser; they add up to it.

        Implements: livi2025 Eq. (9)
        """
        gates = learning_rate * self.total.sum(1)  # the mean |gamma| of all units
        return gates, self.envelope - gates


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
    replay: Chained,
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

    def __init__(
        self, replay: Chained, lags: Sequence[int], rates: Tensor | float, *, from_start: bool = False
    ) -> None:
        self._every, self._lags, self._rates, self._from_start = replay.chain.retention, lags, rates, from_start
        self._rows = 3 if isinstance(rates, Tensor) else 2
        self._sums = torch.zeros(self._rows, len(lags), self._every.shape[2], dtype=torch.float64)
        self._part = self._size = torch.empty(0, 0, 0)
        self._weights: Tensor | None = None

    def begin(self, some: slice, dtype: torch.dtype) -> None:
        """Sequences come next."""
        self._make_room(some, dtype)
        if isinstance(self._rates, Tensor):
            self._weights = self._rates[:, some].to(dtype).nan_to_num(0.0)
        steps, *shape = self._every[:, some].shape
        if self._size.shape[1:] != self._part.shape[2:] or self._size.dtype != dtype:
            self._size = self._part.new_empty(steps + 1, *shape)

    def _make_room(self, some: slice, dtype: torch.dtype) -> None:
        shape = (self._rows, len(self._lags), *self._every[0, some].shape)
        if self._part.shape != shape or self._part.dtype != dtype:
            self._part = self._every.new_empty(shape, dtype=dtype)

    def take(self, row: int, lag: int, total: Tensor) -> None:
        """Add one lag."""
        size = torch.abs(total, out=self._size[: total.shape[0]])
        torch.sum(size, 0, out=self._part[1, row])
        if self._weights is not None:
            sum_over_steps(self._part[2, row], size, self._weights[: size.shape[0]])

    def sums(self, some: slice) -> dict[str, Tensor]:
        """Sizes, and sizes times the rates."""
        self._make_room(some, self._every.dtype)
        size = {"size": self._part[1]}
        weights = self._all_weights
        return size if weights is None else size | {"weights": weights, "weighed": self._part[2]}

    @cached_property
    def _all_weights(self) -> Tensor | None:
        """Of all sequences."""
        return self._rates.to(self._every.dtype).nan_to_num(0.0) if isinstance(self._rates, Tensor) else None

    def end(self, kept: Tensor, scale: Tensor | None) -> None:
        """Count the sequences in."""
        self._part[0] = kept
        part = self._part.double() if scale is None else self._part * scale
        self._sums += part.sum(2).cpu()

    @property
    def transport(self) -> Transport:
        """The means."""
        steps, batch, _ = self._every.shape
        windows = np.array([(steps - lag + self._from_start) * batch for lag in self._lags], dtype=np.int64)
        zeroth, total, *effective = np.asarray(self._sums) / windows[:, None]
        if not isinstance(self._rates, Tensor):
            effective = [self._rates * total]
        return Transport(np.array(self._lags, dtype=np.int64), windows, zeroth, total, *effective)


class Contributions:
    """Gathers what each unit contributes on a walk over the lags.

    That is the mean over the steps of each sequence of mu_q a_q, mu the effective rate and a_q = delta_q <b_q, w>.

    Parameters
    ----------
    replay : Replay
    lags : sequence of int
    sensitivities : (directions, time, batch, hidden) tensor
        <b_q, w>, from `learncast.windows.transport.derivative.sensitivities`.
    deltas : (batch, time, hidden) tensor
        From `learncast.windows.replay.capture.capture`.
    rates : (time, batch, hidden) tensor or float
        Base rates; where they are nan they count as 0.

    Notes
    -----
    Implements: livi2025 Eq. (12), times the effective rate of Eq. (6)
    """

    def __init__(
        self, replay: Chained, lags: Sequence[int], *, sensitivities: Tensor, deltas: Tensor, rates: Tensor | float
    ) -> None:
        self._steps, batch, width = replay.chain.retention.shape
        self._dtype, self._blame = replay.chain.retention.dtype, deltas.transpose(0, 1)
        self._sensitivities, self._rates, self._lags = sensitivities, rates, lags
        self._found = torch.zeros(len(sensitivities), batch, len(lags), width, dtype=torch.float64)
        self._some, self._unit = slice(0), 1.0
        self._part = self._targets = self._carried = self._sources = self._found

    def begin(self, some: slice, dtype: torch.dtype) -> None:
        """Sequences come next."""
        # Contiguous: rows a fixed power of two apart would crowd into a few lines of the cache.
        self._targets, self._sources, self._unit = self._measured(
            self._blame[:, some].to(dtype).contiguous(), self._sensitivities[:, :, some].to(dtype).contiguous(), some
        )
        self._make_room(some)
        self._carried = torch.empty_like(self._targets)

    def _measured(self, targets: Tensor, sources: Tensor, some: slice) -> tuple[Tensor, Tensor, float]:
        """Targets and weighed sources of some sequences, each of ordinary size, and what both are measured in."""
        if isinstance(self._rates, Tensor):
            sources = sources * self._rates[:, some].to(sources.dtype).nan_to_num(0.0)
        targets, blamed = _in_own_unit(targets)
        sources, answered = _in_own_unit(sources)
        return targets, sources, blamed * answered * (1.0 if isinstance(self._rates, Tensor) else self._rates)

    def _make_room(self, some: slice) -> None:
        self._some = some
        shape = (len(self._sources), len(self._lags), some.stop - some.start, self._targets.shape[-1])
        self._part = self._targets.new_empty(shape)

    def take(self, row: int, lag: int, total: Tensor) -> None:
        """Add one lag."""
        number = self._steps - lag
        carried = torch.mul(total, self._targets[lag:], out=self._carried[:number])
        for j, source in enumerate(self._sources):
            sum_over_steps(self._part[j, row], carried, source[:number])

    def sums(self, some: slice) -> dict[str, Tensor]:
        """What is carried from each source to the blame."""
        self._targets, self._sources, self._unit = self._whole
        self._make_room(some)
        return {"targets": self._targets, "sources": self._sources, "carried": self._part}

    @cached_property
    def _whole(self) -> tuple[Tensor, Tensor, float]:
        """Of all sequences."""
        blame, sources = self._blame.to(self._dtype), self._sensitivities.to(self._dtype).contiguous()
        return self._measured(blame, sources, slice(None))

    def end(self, kept: Tensor, scale: Tensor | None) -> None:
        """Count the sequences in."""
        number = self._steps - torch.tensor(self._lags, dtype=torch.float64, device=self._part.device)
        each = self._unit / number[:, None, None]
        found = self._part * (each if scale is None else scale * each)
        self._found[:, self._some] = found.transpose(1, 2).cpu()

    @property
    def found(self) -> FloatArray:
        """Contributions, (directions, batch, lags, hidden)."""
        return self._found.numpy()


@torch.no_grad()
def forward_gradients(replay: Replay, answers: Tensor, deltas: Tensor, *, before: Tensor | None = None) -> FloatArray:
    """The exact gradient of every sequence's loss by the layer's parameters, along each direction.

    Carries the answer of the whole state to each direction forward in time; equal to backpropagation through time
    (all lags together), but with one number per sequence instead of one gradient for all.

    Parameters
    ----------
    replay : Replay
        Of many sequences at once rather than few: the steps are taken one by one.
    answers : (directions, time, batch, states) tensor
        Immediate ones of the whole state, from `learncast.windows.transport.derivative.state_sensitivities`.
        They are used up: afterwards it holds the total answers.
    deltas : (batch, time, hidden) tensor
    before : (directions, batch, states) tensor, optional
        Total answers at the step before the first, where the replay goes on after another.

    Returns
    -------
    (directions, batch) array

    Notes
    -----
    Implements: livi2025 Eq. (3)
    """
    blame = deltas.transpose(0, 1).contiguous()
    for step, now in zip(replay.transitions(), answers.unbind(1), strict=True):
        if before is not None:
            step(before, now)
        before = now
    shown = answers[..., : replay.hidden.shape[2]]
    found = blame.new_empty(len(answers), *blame.shape[1:])
    for total, one in zip(found, shown, strict=True):
        sum_over_steps(total, one, blame)
    return found.sum(2, dtype=torch.float64).cpu().numpy()


def _in_own_unit(values: Tensor) -> tuple[Tensor, float]:
    """Values of ordinary size, and what they are measured in: products of very small ones must not vanish."""
    flat = (values if values.is_contiguous() else values.transpose(0, 1)).reshape(-1)
    if len(flat) / _ORDINARY**2 < float(flat @ flat) < _ORDINARY**2:  # the quickest sum: what it says is enough
        return values, 1.0
    low, high = (float(end) for end in torch.aminmax(values))
    largest = max(-low, high)
    if largest == 0 or not math.isfinite(largest) or 1 / _ORDINARY < largest < _ORDINARY:
        return values, 1.0
    unit = math.ldexp(1.0, math.frexp(largest)[1])  # a power of two: nothing is rounded
    return values / unit, unit
