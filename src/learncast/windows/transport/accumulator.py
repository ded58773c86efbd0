"""Sums over the windows of every lag: sizes of transport factors, and contributions to the gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learncast._core.validation import FloatArray
from learncast.windows.layers.replay import Chain, Replay
from learncast.windows.transport.factor import StepFactors

#: Bytes per array that stay in a core's cache while all lags are computed from them.
_CACHED = 1 << 20
#: Products of two numbers below this size are safe in single precision.
_MODERATE = 1e4


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


def mean_transport(replay: Replay, lags: Sequence[int], **options: Any) -> Transport:
    """Mean size of every unit's transport factor at each lag, over sequences and times; options as of `lag_sums`."""
    return lag_sums(replay.chain, lags, **options)[0]


@torch.no_grad()
def lag_sums(
    chain: Chain,
    lags: Sequence[int],
    *,
    rates: Tensor | float = 1.0,
    sensitivities: Tensor | None = None,
    deltas: Tensor | None = None,
    order: int = 1,
    auxiliary: bool = False,
    from_start: bool = False,
) -> tuple[Transport, FloatArray]:
    """Compute mean transport and, with `sensitivities` and `deltas`, each unit's contribution to the gradient.

    Sequences are processed a few at a time, because factors are cheap to use while they are in the cache. A model in
    single precision is computed in single precision, with the factors of each unit in units of their mean, unless a
    product could leave its range; everything else is in double precision.

    Parameters
    ----------
    chain : Chain
    lags : sequence of int
    rates : (time, batch, hidden) tensor or float
        Base rates; nan, where nothing is learned from the source, counts as 0.
    sensitivities : (directions, time, batch, hidden) tensor, optional
        <b_q, w>, from `learncast.windows.transport.sensitivities`.
    deltas : (batch, time, hidden) tensor, optional
        From `learncast.windows.layers.capture`.
    order : 0 or 1
        0 for the product of the gates, 1 to add one pass through the recurrent weights.
    auxiliary : bool
        Add the GRU's auxiliary envelopes, which are not part of the expansion of the Jacobians.
    from_start : bool
        Include the window that begins at the initial state, which has no base rate because no parameter acts on it.

    Returns
    -------
    transport : Transport
    contributions : (directions, batch, lags, hidden) array
        Mean over the steps of each sequence of mu_q a_q, with mu the effective rate and a_q = delta_q <b_q, w>.

    Notes
    -----
    Implements: livi2025 Eq. (12), times the effective rate of Eq. (6)
    """
    sums = _Accumulator(chain, lags, rates, sensitivities, deltas, from_start)
    options: dict[str, Any] = {"order": order, "auxiliary": auxiliary, "from_start": from_start}
    (steps, batch, width), dtype = chain.retention.shape, chain.retention.dtype
    size = max(1, _CACHED // (steps * width * chain.retention.element_size()))
    for begin in range(0, batch, size):
        block = slice(begin, min(begin + size, batch))
        part = chain.take(block)
        if chain.gated and not auxiliary and dtype == torch.float32:
            balanced = StepFactors.of(part, dtype=dtype, **options).balanced()
            if balanced is not None and sums.add(balanced, block):
                continue
        sums.add(StepFactors.of(part, **options), block, signed=not part.gated)
    return sums.transport, sums.contributions.numpy()


class _Accumulator:
    """Sums over blocks of sequences; a block whose factors leave the range of their precision adds nothing."""

    def __init__(
        self,
        chain: Chain,
        lags: Sequence[int],
        rates: Tensor | float,
        sensitivities: Tensor | None,
        deltas: Tensor | None,
        from_start: bool,
    ) -> None:
        self._like, self._lags, self._from_start = chain.retention, lags, from_start
        empty = chain.retention.new_empty(0, 1, 1, 1)
        self._rates, self._rate = (rates[None], 1.0) if isinstance(rates, Tensor) else (empty, rates)
        self._sensitivities = empty if sensitivities is None else sensitivities
        self._deltas = empty[:, 0] if deltas is None else deltas.transpose(0, 1)
        _, batch, width = chain.retention.shape
        # Sums of |gamma0|, |gamma| and, if rates differ, |gamma| times the rate at the source.
        self._sums = torch.zeros(2 + len(self._rates), len(lags), width, dtype=torch.float64)
        self.contributions = torch.zeros(len(self._sensitivities), batch, len(lags), width, dtype=torch.float64)
        self._part, self._size = torch.empty(0, 0, 0, 0), torch.empty(0, 0, 0)

    def add(self, factors: StepFactors, block: slice, *, signed: bool = False) -> bool:
        """Add a block lag by lag; False if its factors leave the range of their precision."""
        part, products = self._allocate(block, factors.keep.dtype)
        if self._size.shape[1:] != part.shape[2:] or self._size.dtype != part.dtype:
            self._size = part.new_empty(len(self._like) + 1, *part.shape[2:])
        targets, sources, weights, unit = self._signals(block, part.dtype)
        # Contiguous: rows a fixed power of two apart would compete for a few lines of the cache.
        targets = targets.contiguous()
        product = torch.empty_like(targets)
        for row, (lag, zeroth, total) in enumerate(factors.factors(self._lags)):
            number = len(total)
            torch.sum(zeroth.abs() if signed else zeroth, 0, out=part[0, row])
            size = torch.abs(total, out=self._size[:number])
            torch.sum(size, 0, out=part[1, row])
            for weight in weights:
                sum_over_steps(part[2, row], size, weight[:number])
            if len(sources):
                torch.mul(total, targets[lag:], out=product[:number])
            for j, source in enumerate(sources):
                sum_over_steps(products[j, row], product[:number], source[:number])
        if not factors.within_range(part[0]):
            return False
        self._finish(block, part, products, unit, factors.scale(self._lags))
        return True

    def _allocate(self, block: slice, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Arrays for the sums of one block, (2 or 3, lags, block, hidden) and (directions, lags, block, hidden)."""
        shape = (len(self._lags), block.stop - block.start, self._like.shape[2])
        if self._part.shape[1:] != shape or self._part.dtype != dtype:
            self._part = self._like.new_empty(len(self._sums), *shape, dtype=dtype)
        return self._part, self._like.new_empty(len(self._sensitivities), *shape, dtype=dtype)

    def _signals(self, block: slice, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, float]:
        """Deltas and weighted sensitivities of moderate size, base rates, and the unit of their products."""
        weights = self._rates[:, :, block].to(dtype).nan_to_num(0.0)
        targets, sources = self._deltas[:, block].to(dtype), self._sensitivities[:, :, block].to(dtype).contiguous()
        if not len(sources):
            return targets, sources, weights, 1.0
        for weight in weights:
            sources = sources * weight
        (targets, target_unit), (sources, source_unit) = _rescaled(targets), _rescaled(sources)
        return targets, sources, weights, target_unit * source_unit * self._rate

    def _finish(self, block: slice, part: Tensor, products: Tensor, unit: float, scale: Tensor | None) -> None:
        """Add the sums of a block, given in units of `scale`."""
        self._sums += (part.double() if scale is None else part * scale).sum(2).cpu()
        number = len(self._like) - torch.tensor(self._lags, dtype=torch.float64, device=part.device)
        each = unit / number[:, None, None]
        means = products * (each if scale is None else scale * each)
        self.contributions[:, block] = means.transpose(1, 2).cpu()

    @property
    def transport(self) -> Transport:
        steps, batch, _ = self._like.shape
        windows = np.array([(steps - lag + self._from_start) * batch for lag in self._lags], dtype=np.int64)
        zeroth, total, *weighted = np.asarray(self._sums) / windows[:, None]
        effective = weighted[0] if weighted else self._rate * total
        return Transport(np.array(self._lags, dtype=np.int64), windows, zeroth, total, effective)


def _rescaled(values: Tensor) -> tuple[Tensor, float]:
    """Values of moderate size and their unit, so that products of very small values do not underflow."""
    flat = (values if values.is_contiguous() else values.transpose(0, 1)).reshape(-1)
    if len(flat) / _MODERATE**2 < float(flat @ flat) < _MODERATE**2:  # the fastest sum, which suffices
        return values, 1.0
    low, high = (float(end) for end in torch.aminmax(values))
    largest = max(-low, high)
    if largest == 0 or not math.isfinite(largest) or 1 / _MODERATE < largest < _MODERATE:
        return values, 1.0
    unit = math.ldexp(1.0, math.frexp(largest)[1])  # a power of two: nothing is rounded
    return values / unit, unit


def sum_over_steps(out: Tensor, left: Tensor, right: Tensor) -> None:
    """Write the sum over the first axis of the product of two (steps, batch, hidden) tensors to `out`."""
    if out.device.type == "cpu":
        # One pass without an intermediate array, for which torch has no operation.
        np.einsum("tbq,tbq->bq", left.numpy(), right.numpy(), out=out.numpy())
    else:
        torch.sum(left * right, 0, out=out)
