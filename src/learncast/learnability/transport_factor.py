"""The factor by which a unit's state, and so its blame, is carried over a number of steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from learncast.errors import InvalidSpec, UnsupportedModel
from learncast.learnability.replay import Replay
from learncast.validation import count

#: Bytes per array that stay in a core's cache while all lags pass over them.
_CACHED = 1 << 20
#: Single precision reaches from e^-87 to e^88. While single factors and sums of their products stay within e^+-20,
#: products that leave out one factor stay below e^40, one mixing makes it e^60, and what vanishes does not matter.
_RANGE = math.exp(20.0)


@torch.no_grad()
def transport_factors(
    replay: Replay, lags: Sequence[int], *, order: int = 1, auxiliary: bool = False, from_start: bool = False
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
    wanted = checked_lags(lags, replay, from_start)
    check_order(order)
    return StepFactors.of(replay, order=order, auxiliary=auxiliary, from_start=from_start).factors(wanted)


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
        replay: Replay,
        *,
        order: int = 1,
        auxiliary: bool = False,
        from_start: bool = False,
        dtype: torch.dtype = torch.float64,
    ) -> StepFactors:
        """Read them off a replay."""
        first = 0 if from_start else 1

        def cut(values: Tensor) -> Tensor:
            return values[first:].to(dtype).contiguous()

        mix = cut(replay.mixing) if order else None
        keep = cut(replay.retention)
        reset = None
        if auxiliary:
            if "reset" not in replay.gates:
                raise UnsupportedModel(
                    required="auxiliary envelopes need a reset gate",
                    got=f"a cell with the gates {', '.join(replay.gates)}",
                    why="they are products of reset gates",
                    remedy="use auxiliary=False",
                )
            reset = cut(replay.gates["reset"])
        if replay.expression is None:
            return cls(keep, mix, reset=reset)
        e = cut(replay.expression.slope)
        shown = e * keep
        if mix is None:
            return cls(keep, None, shown)
        # A visit to the weights enters through the hidden state of the step before, hence e_{j-1}; there is none at
        # the first step of a window, whose entry is never read.
        before = torch.cat([torch.zeros_like(e[:1]), e[:-1]])
        loop = torch.addcmul(cut(replay.expression.output.diagonal()), e, mix)
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

    def scale(self, lags: list[int]) -> Tensor | None:
        """What the factors of each lag are measured in, (lags, batch, hidden) in double precision; None for 1."""
        if self.level is None:
            return None
        steps = torch.tensor(lags, dtype=torch.float64, device=self.level.device)
        if self.shown is not None:
            steps = steps - 1  # the last step of an LSTM shows the cell, and is not measured in the level
        return (self.level.double().log() * steps[:, None, None]).exp_()

    def factors(self, lags: list[int]) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Lag, gamma0 and gamma of each lag in turn; see `transport_factors`."""
        pairs = _chain(self.keep, self.mix, lags) if self.shown is None else self._expressed(lags)
        if self.reset is None:
            yield from pairs
            return
        chains = (_chain(kept, None, lags) for kept in (self.reset, self.keep * self.reset))  # Eq. (57)
        for (lag, zeroth, total), (_, rho, _), (_, eta, _) in zip(pairs, *chains, strict=True):
            yield lag, zeroth, total + rho + eta  # Eq. (58)

    def _expressed(self, lags: list[int]) -> Iterator[tuple[int, Tensor, Tensor]]:
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


def cached_parts(replay: Replay) -> Iterator[tuple[slice, Replay]]:
    """The replay in parts of few enough sequences for a core's cache."""
    steps, batch, width = replay.hidden.shape
    each = max(1, _CACHED // (steps * width * replay.hidden.element_size()))
    replay.retention, replay.mixing  # noqa: B018  (one pass over all sequences is cheaper than one per part)
    for begin in range(0, batch, each):
        some = slice(begin, begin + each)
        yield some, replay.take(some)


def _chain(
    keep: Tensor, mix: Tensor | None, lengths: list[int], begun: bool = False
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Products over windows of the given lengths, to zeroth and to first order.

    With `begun` the first step of every window counts to zeroth order only.
    """
    at = 1 if begun else 0
    zeroth = keep.clone() if begun else torch.ones_like(keep)
    total = zeroth if mix is None else zeroth.clone()
    jumps = _jumps(keep, mix, {b - a for a, b in zip([at, *lengths], lengths, strict=False)} - {0})
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


def _jumps(keep: Tensor, mix: Tensor | None, distances: set[int]) -> dict[int, tuple[Tensor, Tensor | None]]:
    """Products over every window of each distance, put together from windows of 1, 2, 4, ... steps."""
    powers = {1: (keep, mix)}
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


def _joined(
    early: tuple[Tensor, Tensor | None], late: tuple[Tensor, Tensor | None], offset: int
) -> tuple[Tensor, Tensor | None]:
    size = late[0].shape[0] - offset
    (p, q), (p2, q2) = early, late
    p, p2 = p[:size], p2[offset : offset + size]
    if q is None or q2 is None:
        return p * p2, None
    return p * p2, (q[:size] * p2).addcmul_(p, q2[offset : offset + size])


def checked_lags(lags: Sequence[int], replay: Replay, from_start: bool = False) -> list[int]:
    """The lags as a list of whole numbers, refused unless they increase strictly and fit the sequences."""
    why = "a lag counts steps between two states"
    wanted = [count("lags", lag, why=why) for lag in np.ravel(np.asarray(lags)).tolist()]
    steps = replay.hidden.shape[0]
    longest = steps - (0 if from_start else 1)
    if not wanted or wanted != sorted(set(wanted)) or wanted[-1] > longest:
        raise InvalidSpec(
            required=f"lags must increase strictly and stay within {longest} in sequences of {steps} steps",
            got=f"{wanted}" if len(wanted) < 9 else f"{len(wanted)} lags from {wanted[0]} to {wanted[-1]}",
            why="a window needs a step at each of its ends",
            remedy="sort the lags and drop those that are too long or repeated, or use longer sequences",
        )
    return wanted


def check_order(order: int) -> None:
    """Refuse any order but 0 and 1."""
    if order not in (0, 1):
        raise InvalidSpec(
            required="order must be 0 or 1",
            got=f"{order!r}",
            why="the expansion is known to first order",
            remedy="use the exact transport for all orders",
        )
