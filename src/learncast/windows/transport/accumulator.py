"""Sums over the windows of every lag: sizes of transport factors, and contributions to the gradient."""

from __future__ import annotations

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

#: Numbers per array that stay in a core's cache while all lags are computed from them.
_CACHED = 2**17


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
) -> tuple[Transport, FloatArray]:
    """Compute mean transport and, with `sensitivities` and `deltas`, each unit's contribution to the gradient.

    Sequences are processed a few at a time, because factors are cheap to use while they are in the cache. All sums are
    in double precision.

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

    Returns
    -------
    transport : Transport
    contributions : (directions, batch, lags, hidden) array
        Mean over the steps of each sequence of mu_q a_q, with mu the effective rate and a_q = delta_q <b_q, w>.

    Notes
    -----
    Implements: livi2025 Eq. (12), times the effective rate of Eq. (6)
    """
    sums = _Accumulator(chain, lags, rates, sensitivities, deltas)
    steps, batch, width = chain.retention.shape
    size = max(1, _CACHED // (steps * width))
    for begin in range(0, batch, size):
        block = slice(begin, min(begin + size, batch))
        part = chain.take(block)
        factors = StepFactors.of(part, order=order, auxiliary=auxiliary)
        sums.add(factors, block, signed=not part.gated)
    return sums.transport, sums.contributions.numpy()


class _Accumulator:
    """Sums over blocks of sequences."""

    def __init__(
        self,
        chain: Chain,
        lags: Sequence[int],
        rates: Tensor | float,
        sensitivities: Tensor | None,
        deltas: Tensor | None,
    ) -> None:
        self._like, self._lags = chain.retention, lags
        empty = chain.retention.new_empty(0, 1, 1, 1)
        self._rates, self._rate = (rates[None], 1.0) if isinstance(rates, Tensor) else (empty, rates)
        self._sensitivities = empty if sensitivities is None else sensitivities
        self._deltas = empty[:, 0] if deltas is None else deltas.transpose(0, 1)
        _, batch, width = chain.retention.shape
        # Sums of |gamma0|, |gamma| and, if rates differ, |gamma| times the rate at the source.
        self._sums = torch.zeros(2 + len(self._rates), len(lags), width, dtype=torch.float64)
        self.contributions = torch.zeros(len(self._sensitivities), batch, len(lags), width, dtype=torch.float64)

    def add(self, factors: StepFactors, block: slice, *, signed: bool = False) -> None:
        """Add a block lag by lag."""
        weights = self._rates[:, :, block].double().nan_to_num(0.0)
        # Contiguous: rows a fixed power of two apart would compete for a few lines of the cache.
        targets = self._deltas[:, block].double().contiguous()
        sources = self._sensitivities[:, :, block].double().contiguous()
        for weight in weights if len(sources) else ():
            sources = sources * weight
        part = targets.new_empty(len(self._sums), len(self._lags), *factors.keep.shape[1:])
        products = targets.new_empty(len(sources), *part.shape[1:])
        product, sizes = torch.empty_like(targets), targets.new_empty(len(self._like) + 1, *part.shape[2:])
        for row, (lag, zeroth, total) in enumerate(factors.factors(self._lags)):
            number = len(total)
            torch.sum(zeroth.abs() if signed else zeroth, 0, out=part[0, row])
            size = torch.abs(total, out=sizes[:number])
            torch.sum(size, 0, out=part[1, row])
            for weight in weights:
                sum_over_steps(part[2, row], size, weight[:number])
            if len(sources):
                torch.mul(total, targets[lag:], out=product[:number])
            for j, source in enumerate(sources):
                sum_over_steps(products[j, row], product[:number], source[:number])
        self._sums += part.sum(2).cpu()
        steps = len(self._like) - torch.tensor(self._lags, dtype=torch.float64, device=part.device)
        means = products * (self._rate / steps[:, None, None])
        self.contributions[:, block] = means.transpose(1, 2).cpu()

    @property
    def transport(self) -> Transport:
        steps, batch, _ = self._like.shape
        windows = np.array([(steps - lag) * batch for lag in self._lags], dtype=np.int64)
        zeroth, total, *weighted = np.asarray(self._sums) / windows[:, None]
        effective = weighted[0] if weighted else self._rate * total
        return Transport(np.array(self._lags, dtype=np.int64), windows, zeroth, total, effective)


def sum_over_steps(out: Tensor, left: Tensor, right: Tensor) -> None:
    """Write the sum over the first axis of the product of two (steps, batch, hidden) tensors to `out`."""
    if out.device.type == "cpu":
        # One pass without an intermediate array, for which torch has no operation.
        np.einsum("tbq,tbq->bq", left.numpy(), right.numpy(), out=out.numpy())
    else:
        torch.sum(left * right, 0, out=out)
