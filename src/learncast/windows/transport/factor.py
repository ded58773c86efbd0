"""The factor by which a unit's state, and its part of the gradient, is transported over a number of steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from learncast._core.errors import UnsupportedModel
from learncast.windows.layers.replay import Chain, Replay

#: Products of retention over windows, and their first order in the mixing; None for the zeroth order alone.
Pair = tuple[Tensor, Tensor | None]


@torch.no_grad()
def transport_factors(
    replay: Replay, lags: Sequence[int], *, order: int = 1, auxiliary: bool = False
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield the lag, gamma0 and gamma of each lag in turn, for every window, sequence and unit.

    The entry [i] of a (windows, batch, hidden) tensor belongs to what a unit held after step i and passed on to step
    i + lag. The tensors are reused: read them before the next lag.

    With A the retention and R the mixing of a step, gamma0 = prod A and gamma1 = sum_j R_j prod_{i != j} A_i. Both are
    carried from one lag to the next as a dual number, (A + eR)(A' + eR') = AA' + e(AR' + RA'), by
    P(l + d)[s] = P(l)[s] P(d)[s + l]. Nothing is divided, so a gate of exactly 0 is harmless. Products are in double
    precision, because 256 factors of 0.7 already underflow in single precision.

    For an LSTM gamma belongs to the block from cell to hidden state.

    Notes
    -----
    Implements: livi2025 Eq. (35)
    Implements: livi2025 Eq. (45)
    Implements: livi2025 Eq. (46)
    Implements: livi2025 Eq. (56)
    Implements: livi2025 Eq. (57)
    Implements: livi2025 Eq. (58)
    """
    return StepFactors.of(replay.chain, order=order, auxiliary=auxiliary).factors(lags)


@dataclass(frozen=True, eq=False, repr=False)
class StepFactors:
    """The factors of every step, time first; a window is a product of them.

    Parameters
    ----------
    keep, mix : (steps, batch, hidden) tensors
        Retention and, to first order, mixing.
    last, last_mix : tensors, optional
        Factors of an LSTM's last step, from cell to hidden state: to zeroth order, and through the weights.
    reset : tensor, optional
        Reset gates, if auxiliary envelopes are requested.
    """

    keep: Tensor
    mix: Tensor | None
    last: Tensor | None = None
    last_mix: Tensor | None = None
    reset: Tensor | None = None

    @classmethod
    def of(cls, chain: Chain, *, order: int = 1, auxiliary: bool = False) -> StepFactors:
        """Compute the factors of a chain."""

        def cut(values: Tensor) -> Tensor:  # no window begins before the first step
            return values[1:].double().contiguous()

        keep, mix = cut(chain.retention), cut(chain.mixing) if order else None
        if auxiliary and chain.reset is None:
            raise UnsupportedModel("auxiliary=True needs a cell with a reset gate.", field="auxiliary")
        if chain.cell_slope is None or chain.output_loop is None:
            return cls(keep, mix, reset=cut(chain.reset) if auxiliary and chain.reset is not None else None)
        e = cut(chain.cell_slope)
        last = e * keep
        if mix is None:
            return cls(keep, None, last)
        # The recurrent weights read the hidden state of the step before, hence e_{j-1}. The first step of a window has
        # none, and its entry is never read.
        before = torch.cat([torch.zeros_like(e[:1]), e[:-1]])
        loop = torch.addcmul(cut(chain.output_loop), e, mix)
        return cls(keep, mix * before, last, loop.mul_(before))

    def factors(self, lags: Sequence[int]) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Lag, gamma0 and gamma of each lag in turn; see `transport_factors`."""
        pairs = _products(self.keep, self.mix, lags) if self.last is None else self._lstm_factors(lags)
        if self.reset is None:
            yield from pairs
            return
        chains = (_products(kept, None, lags) for kept in (self.reset, self.keep * self.reset))  # Eq. (57)
        for (lag, zeroth, total), (_, rho, _), (_, eta, _) in zip(pairs, *chains, strict=True):
            yield lag, zeroth, total + rho + eta  # Eq. (58)

    def _lstm_factors(self, lags: Sequence[int]) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Windows of an LSTM: steps inside the cell, then a last step from cell to hidden state."""
        assert self.last is not None
        if lags[0] == 1:
            yield 1, self.last, self.last
        inner = [lag - 1 for lag in lags if lag > 1]
        first, second = torch.empty_like(self.last), torch.empty_like(self.last)
        for length, zeroth, total in _products(self.keep, self.mix, inner, in_cell=True):
            last = self.last[length:]
            size = last.shape[0]
            gamma = gamma0 = torch.mul(last, zeroth[:size], out=first[:size])
            if self.last_mix is not None:
                gamma = torch.mul(last, total[:size], out=second[:size])
                gamma.addcmul_(self.last_mix[length:], zeroth[:size])
            yield length + 1, gamma0, gamma


def _products(
    keep: Tensor, mix: Tensor | None, lengths: Sequence[int], in_cell: bool = False
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Products over windows of the given lengths, to zeroth and to first order.

    With `in_cell` the first step of every window counts to zeroth order only.
    """
    at = 1 if in_cell else 0
    zeroth = keep.clone() if in_cell else torch.ones_like(keep)
    total = zeroth if mix is None else zeroth.clone()
    jumps = _windows_over((keep, mix), {b - a for a, b in zip([at, *lengths], lengths, strict=False)} - {0})
    for length in lengths:
        if length > at:
            size = keep.shape[0] - length + 1
            factor, extra = jumps[length - at]
            ahead, zeroth = factor[at : at + size], zeroth[:size]
            if extra is not None:
                total = total[:size].mul_(ahead).addcmul_(zeroth, extra[at : at + size])
            zeroth.mul_(ahead)
            at = length
        yield length, zeroth, zeroth if mix is None else total


def _windows_over(steps: Pair, distances: set[int]) -> dict[int, Pair]:
    """Products over every window of each distance, composed of windows of 1, 2, 4, ... steps."""
    powers = {1: steps}
    size = 1
    while 2 * size <= max(distances, default=0):
        powers[2 * size] = _joined(powers[size], powers[size], size)
        size *= 2
    jumps = {}
    for distance in sorted(distances):
        parts = [power for power in powers if distance & power]
        length, product = parts[0], powers[parts[0]]
        for part in parts[1:]:
            product = _joined(product, powers[part], length)
            length += part
        jumps[distance] = product
    return jumps


def _joined(early: Pair, late: Pair, offset: int) -> Pair:
    """Windows of `early` followed by those of `late` that begin `offset` steps later."""
    size = late[0].shape[0] - offset
    (p, q), (p2, q2) = early, late
    p, p2 = p[:size], p2[offset : offset + size]
    if q is None or q2 is None:
        return p * p2, None
    return p * p2, (q[:size] * p2).addcmul_(p, q2[offset : offset + size])
