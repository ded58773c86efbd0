"""One walk over the lags of a replay, on which everything that needs transport factors is gathered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from learncast.learnability.replay import Replay
from learncast.learnability.transport_factor import StepFactors, cached_parts


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
    replay: Replay,
    lags: list[int],
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
    for some, part in cached_parts(replay):
        if part.hidden.dtype == torch.float32 and part.gated and not auxiliary:
            balanced = StepFactors.of(part, dtype=torch.float32, **options).balanced()
            if balanced is not None and _walk(balanced, some, lags, gatherings):
                continue
        _walk(StepFactors.of(part, **options), some, lags, gatherings, signed=not part.gated)


def _walk(
    factors: StepFactors, some: slice, lags: list[int], gatherings: Sequence[Gathering], *, signed: bool = False
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
