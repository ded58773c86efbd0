"""The factor by which a unit's state, and so its blame, is carried over a number of steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from learncast._core.errors import UnsupportedModel
from learncast.windows.replay.replay import Chain, Chained

T = TypeVar("T")

#: Bytes per array that stay in a core's cache while all lags pass over them.
_CACHED = 1 << 20
#: Single precision reaches from e^-87 to e^88. While single factors and sums of their products stay within e^+-20,
#: products that leave out one factor stay below e^40, one mixing makes it e^60, and what vanishes does not matter.
_RANGE = math.exp(20.0)


@torch.no_grad()
def transport_factors(
    replay: Chained, lags: Sequence[int], *, order: int = 1, auxiliary: bool = False, from_start: bool = False
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield the lag, gamma0 and gamma of each lag in turn, for every window, sequence and unit.

    The entry [i] of a (windows, batch, hidden) tensor belongs to what a unit held after step i and passed on to step
    i + lag (with `from_start`, [0] begins at the initial state). The tensors are reused: read them before going on.

    With A the retention and R the mixing of a step, gamma0 = prod A and gamma1 = sum_j R_j prod_{i != j} A_i. Both are
    carried from one lag to the next as a dual number, (A + eR)(A' + eR') = AA' + e(AR' + RA'), by
    P(l + d)[s] = P(l)[s] P(d)[s + l]: nothing is divided, so a gate of exactly 0 is harmless. Products are taken in
    double precision, because 256 factors of 0.7 are already beyond single precision.

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
    return StepFactors.of(replay.chain, order=order, auxiliary=auxiliary, from_start=from_start).factors(lags)


@dataclass(frozen=True, eq=False, repr=False)
class StepFactors:
    """What every step multiplies, time first, so that windows are products.

    Parameters
    ----------
    keep, mix : (steps, batch, hidden) tensors
        Retention and, to first order, mixing.
    shown, recalled : tensors, optional
        An LSTM's last step: what it shows of the cell, and what comes back through the weights.
    reset : tensor, optional
        Reset gates, when auxiliary envelopes are wanted.
    level : (batch, hidden) tensor, optional
        What `keep` and `mix` are measured in; 1 if left out.
    """

    keep: Tensor
    mix: Tensor | None
    shown: Tensor | None = None
    recalled: Tensor | None = None
    reset: Tensor | None = None
    level: Tensor | None = None

    @classmethod
    def of(
        cls,
        chain: Chain,
        *,
        order: int = 1,
        auxiliary: bool = False,
        from_start: bool = False,
        dtype: torch.dtype = torch.float64,
    ) -> StepFactors:
        """Read them off a chain."""
        first = 0 if from_start else 1

        def cut(values: Tensor) -> Tensor:
            return values[first:].to(dtype).contiguous()

        mix = cut(chain.mixing) if order else None
        keep = cut(chain.retention)
        reset = None
        if auxiliary:
            if chain.reset is None:
                raise UnsupportedModel(
                    f"auxiliary envelopes need a reset gate, got a cell with the gates {', '.join(chain.gates)}. Use "
                    "auxiliary=False."
                )
            reset = cut(chain.reset)
        if chain.shown is None or chain.recalled is None:
            return cls(keep, mix, reset=reset)
        e = cut(chain.shown)
        shown = e * keep
        if mix is None:
            return cls(keep, None, shown)
        # A visit to the weights enters through the hidden state of the step before, hence e_{j-1}; there is none at
        # the first step of a window, whose entry is never read.
        before = torch.cat([torch.zeros_like(e[:1]), e[:-1]])
        loop = torch.addcmul(cut(chain.recalled), e, mix)
        return cls(keep, mix * before, shown, loop.mul_(before))

    def balanced(self) -> StepFactors | None:
        """The same, measured in the geometric mean of each unit's retention: products then hardly vanish or explode.

        None when a single factor is out of the range in which single precision is safe.
        """
        level = self.keep.log().mean(0).exp_()
        keep, mix = self.keep / level, None
        low, high = (float(end) for end in torch.aminmax(keep))
        if not 1 / _RANGE < low <= high < _RANGE:
            return None
        if self.mix is not None:
            mix = self.mix / level
            low, high = (float(end) for end in torch.aminmax(mix))
            if not max(-low, high) < _RANGE:
                return None
        return replace(self, keep=keep, mix=mix, level=level)

    def within_range(self, kept: Tensor) -> bool:
        """Whether sums of products of these factors show that none that matters was lost to a lack of range."""
        if self.level is None:
            return True
        kept = kept if self.shown is None else kept / self.shown.mean(0)
        low, high = (float(end) for end in torch.aminmax(kept))
        return 1 / _RANGE < low <= high < _RANGE

    def scale(self, lags: Sequence[int]) -> Tensor | None:
        """What the factors of each lag are measured in, (lags, batch, hidden) in double precision; None for 1."""
        if self.level is None:
            return None
        steps = torch.tensor(lags, dtype=torch.float64, device=self.level.device)
        if self.shown is not None:
            steps = steps - 1  # the last step of an LSTM shows the cell, and is not measured in the level
        return (self.level.double().log() * steps[:, None, None]).exp_()

    def factors(self, lags: Sequence[int]) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Lag, gamma0 and gamma of each lag in turn; see `transport_factors`."""
        pairs = _chain(self.keep, self.mix, lags) if self.shown is None else self._expressed(lags)
        if self.reset is None:
            yield from pairs
            return
        chains = (_chain(kept, None, lags) for kept in (self.reset, self.keep * self.reset))  # Eq. (57)
        for (lag, zeroth, total), (_, rho, _), (_, eta, _) in zip(pairs, *chains, strict=True):
            yield lag, zeroth, total + rho + eta  # Eq. (58)

    def _expressed(self, lags: Sequence[int]) -> Iterator[tuple[int, Tensor, Tensor]]:
        """An LSTM's window: a first step inside the cell, steps between, a last one that shows the cell."""
        assert self.shown is not None
        if lags[0] == 1:
            yield 1, self.shown, self.shown
        inner = [lag - 1 for lag in lags if lag > 1]
        first, second = torch.empty_like(self.shown), torch.empty_like(self.shown)
        for length, zeroth, total in _chain(self.keep, self.mix, inner, begun=True):
            show = self.shown[length:]
            size = show.shape[0]
            gamma = gamma0 = torch.mul(show, zeroth[:size], out=first[:size])
            if self.recalled is not None:
                gamma = torch.mul(show, total[:size], out=second[:size])
                gamma.addcmul_(self.recalled[length:], zeroth[:size])
            yield length + 1, gamma0, gamma


def _chain(
    keep: Tensor, mix: Tensor | None, lengths: Sequence[int], begun: bool = False
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Products over windows of the given lengths, to zeroth and to first order.

    With `begun` the first step of every window counts to zeroth order only.
    """
    at = 1 if begun else 0
    zeroth = keep.clone() if begun else torch.ones_like(keep)
    total = zeroth if mix is None else zeroth.clone()
    jumps = windows_over((keep, mix), {b - a for a, b in zip([at, *lengths], lengths, strict=False)} - {0}, _joined)
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


def windows_over(steps: T, distances: set[int], joined: Callable[[T, T, int], T]) -> dict[int, T]:
    """Products over every window of each distance, put together from windows of 1, 2, 4, ... steps.

    Parameters
    ----------
    steps
        The windows of a single step.
    distances : set of int
    joined : function of (early, late, offset)
        Windows of `early` followed by those of `late` that begin `offset` steps on.
    """
    powers = {1: steps}
    size = 1
    while 2 * size <= max(distances, default=0):
        powers[2 * size] = joined(powers[size], powers[size], size)
        size *= 2
    jumps = {}
    for distance in sorted(distances):
        parts = [power for power in powers if distance & power]
        length, product = parts[0], powers[parts[0]]
        for part in parts[1:]:
            product = joined(product, powers[part], length)
            length += part
        jumps[distance] = product
    return jumps


def _joined(
    early: tuple[Tensor, Tensor | None], late: tuple[Tensor, Tensor | None], offset: int
) -> tuple[Tensor, Tensor | None]:
    size = late[0].shape[0] - offset
    (p, q), (p2, q2) = early, late
    p, p2 = p[:size], p2[offset : offset + size]
    if q is None or q2 is None:
        return p * p2, None
    return p * p2, (q[:size] * p2).addcmul_(p, q2[offset : offset + size])


@runtime_checkable
class Summing(Protocol):
    """A gathering that takes nothing but sums over windows, and says which, so that one compiled pass can take them."""

    def sums(self, some: slice) -> dict[str, Tensor]:
        """Some of `targets`, `sources`, `carried`; `weights`, `weighed`; `size`, where the sequences `some` come next.

        `carried` (directions, lags, some, hidden) takes the sums of gamma times `targets` (time, all, hidden) at the
        end of a window and times each of `sources` (directions, time, all, hidden) at its beginning; `size` and
        `weighed` (lags, some, hidden) those of |gamma|, and of |gamma| times `weights` (time, all, hidden) at its
        beginning. Those of all sequences are read in place: to copy some out takes half as long as their sums.
        """
        ...


class Gathering(Protocol):
    """Takes what it needs of every lag; the tensors are reused after each."""

    def begin(self, some: slice, dtype: torch.dtype) -> None:
        """The sequences `some` come next, with factors of this precision."""
        ...

    def take(self, row: int, lag: int, total: Tensor) -> None:
        """The transport of those sequences over one lag, the `row`-th."""
        ...

    def end(self, kept: Tensor, scale: Tensor | None) -> None:
        """All lags have passed.

        Parameters
        ----------
        kept : (lags, batch, hidden) tensor
            Sums over the steps of the zeroth order's size.
        scale : (lags, batch, hidden) tensor, optional
            How often all factors of a lag count.
        """
        ...


@torch.no_grad()
def walk_lags(
    replay: Chained,
    lags: Sequence[int],
    gatherings: Sequence[Gathering],
    *,
    order: int,
    auxiliary: bool,
    from_start: bool = False,
) -> None:
    """Pass over all lags, a few sequences at a time: to carry factors from lag to lag costs more than to use them.

    A model in single precision is walked in single precision, with the factors of each unit measured in their mean, as
    long as no product can leave its range; everything else in double precision.
    """
    options: dict[str, Any] = {"order": order, "auxiliary": auxiliary, "from_start": from_start}
    chain = replay.chain  # of all sequences: one pass over them is cheaper than one per part
    (steps, batch, width), dtype = chain.retention.shape, chain.retention.dtype
    each = max(1, _CACHED // (steps * width * chain.retention.element_size()))
    plain = chain.gated and not auxiliary
    fused = plain and not from_start and _fusible(chain, gatherings)
    whole = StepFactors.of(chain, order=order, dtype=dtype) if fused and chain.shown is None else None
    for begin in range(0, batch, each):
        some = slice(begin, min(begin + each, batch))
        part = chain.take(some)
        if fused:
            # Factors that are not made of others are read in place.
            own, at = (StepFactors.of(part, order=order, dtype=dtype), 0) if whole is None else (whole, begin)
            if _walk_fused(own, at, some, lags, gatherings):
                continue
        if plain and dtype == torch.float32:
            balanced = StepFactors.of(part, dtype=torch.float32, **options).balanced()
            if balanced is not None and _walk(balanced, some, lags, gatherings):
                continue
        _walk(StepFactors.of(part, **options), some, lags, gatherings, signed=not part.gated)


@cache
def _fused() -> Any:
    """The compiled pass, or None without numba."""
    return import_module("learncast.windows.transport.fused") if find_spec("numba") else None


def _fusible(chain: Chain, gatherings: Sequence[Gathering]) -> bool:
    """Whether one compiled pass takes all that is gathered."""
    there = _fused() is not None and chain.retention.device.type == "cpu"
    return there and all(isinstance(gathering, Summing) for gathering in gatherings)


def _walk_fused(factors: StepFactors, at: int, some: slice, lags: Sequence[int], gatherings: Sequence[Any]) -> bool:
    """Walk in one compiled pass; False where factors leave its range, and then nothing was counted."""
    asked: dict[str, Tensor] = {}
    for gathering in gatherings:
        asked |= gathering.sums(some)
    kept, level = _fused().summed(factors, at, lags, asked, some)
    if level is None:
        return False
    scale = replace(factors, level=level).scale(lags)
    for gathering in gatherings:
        gathering.end(kept, scale)
    return True


def _walk(
    factors: StepFactors, some: slice, lags: Sequence[int], gatherings: Sequence[Gathering], *, signed: bool = False
) -> bool:
    """Walk with factors of one precision; False when they left its range, and then nothing was counted."""
    kept = factors.keep.new_empty(len(lags), *factors.keep.shape[1:])
    for gathering in gatherings:
        gathering.begin(some, factors.keep.dtype)
    for row, (lag, zeroth, total) in enumerate(factors.factors(lags)):
        torch.sum(zeroth.abs() if signed else zeroth, 0, out=kept[row])
        for gathering in gatherings:
            gathering.take(row, lag, total)
    if not factors.within_range(kept):
        return False
    scale = factors.scale(lags)
    for gathering in gatherings:
        gathering.end(kept, scale)
    return True


def sum_over_steps(found: Tensor, left: Tensor, right: Tensor) -> None:
    """Write the sum over the first axis of the product of two (steps, batch, hidden) tensors to `found`."""
    if found.device.type == "cpu":
        # One pass without an intermediate array, for which torch has no operation.
        np.einsum("tbq,tbq->bq", left.numpy(), right.numpy(), out=found.numpy())
    else:
        torch.sum(left * right, 0, out=found)
