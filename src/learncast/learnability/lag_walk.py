"""One walk over the lags of a replay, on which everything that needs transport factors is gathered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from learncast.learnability.replay import Replay
from learncast.learnability.transport_factor import StepFactors, cached_parts


class Gathering(Protocol):
    """Takes what it needs of every lag; the tensors are reused after each."""

    def begin(self, some: slice) -> None:
        """The sequences `some` come next."""
        ...

    def take(self, row: int, lag: int, zeroth: Tensor, total: Tensor) -> None:
        """The transport of those sequences over one lag, the `row`-th."""
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
    """Pass over all lags, a few sequences at a time: to carry factors from lag to lag costs more than to use them."""
    for some, part in cached_parts(replay):
        for gathering in gatherings:
            gathering.begin(some)
        factors = StepFactors.of(part, order=order, auxiliary=auxiliary, from_start=from_start)
        for row, (lag, zeroth, total) in enumerate(factors.factors(lags)):
            for gathering in gatherings:
                gathering.take(row, lag, zeroth, total)
