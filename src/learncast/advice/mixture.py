"""Trials of several tasks in one batch, dealt in equal shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from learncast.errors import InvalidSpec
from learncast.simulate.losses import IGNORED
from learncast.simulate.sources import Batch, Source
from learncast.trajectory import spec_hash


@dataclass(frozen=True, eq=False)
class Mixture(Source):
    """Several sources as one: every batch, and the trials that are judged by, come from all of them.

    Shorter trials are padded to the longest: after their end where there are targets at every step, which do not count
    there, and before their beginning where the target is at the end.

    Attributes
    ----------
    parts : tuple of Source
    """

    parts: tuple[Source, ...] = ()

    @classmethod
    def mixed(cls, parts: Sequence[Source]) -> Source:
        """Mix some sources; one alone is itself."""
        if len(parts) == 1:
            return parts[0]
        name = " and ".join(one.name for one in parts)
        return cls(name, None, None, None, spec_hash("mixture", *(one.hash for one in parts)), parts=tuple(parts))

    def batch(self, trials: int | None, key: tuple[int, int], step: int, dtype: torch.dtype) -> Batch:
        """The trials of one step: a share from each part, a loader's whole batch."""
        shares = self._shares(trials, step)
        return together([one.batch(n, key, step, dtype) for one, n in zip(self.parts, shares, strict=True) if n != 0])

    def held_out(self, trials: int, key: tuple[int, int], dtype: torch.dtype) -> Batch:
        """Trials on which to judge, as many from each part; of recorded ones no more than that."""
        found = []
        for one, n in zip(self.parts, self._shares(trials, 0), strict=True):
            found.append(one.held_out(max(n or 1, 1), key, dtype).rows(slice(0, max(n or 1, 1))))
        return together(found)

    def _shares(self, trials: int | None, step: int) -> list[int | None]:
        """Trials from each part; what does not go round is dealt in turn."""
        if trials is None:
            return [None] * len(self.parts)
        each, over = divmod(trials, len(self.parts))
        return [each + ((k - step) % len(self.parts) < over) for k in range(len(self.parts))]

    def check(self, batch: Any, *, replayed: bool = False) -> None:
        """Refuse what any part refuses."""
        for one in self.parts:
            one.check(batch, replayed=replayed)


def together(batches: Sequence[Batch]) -> Batch:
    """Batches of tensors as one, padded to the longest trials."""
    first = batches[0]
    if any(one.every_step != first.every_step or one.targets.dtype != first.targets.dtype for one in batches):
        raise InvalidSpec(
            required="tasks that are mixed must have targets of one kind",
            got="labels beside numbers, or targets at the end beside targets at every step",
            why="they are one batch of one loss",
            remedy="give all of them labels, or all of them numbers, at the same steps",
        )
    steps = max(one.inputs.shape[1] for one in batches)
    uneven = first.inputs.ndim == 3 and any(one.inputs.shape[1] < steps for one in batches)
    weighed = any(one.weights is not None for one in batches) or (uneven and first.every_step)
    rows = [_padded(one, steps, weighed) if uneven else _with_weights(one, weighed) for one in batches]
    ranks = {one.weights.ndim for one in rows} if weighed else set()
    if len(ranks) > 1:
        rows = [one._replace(weights=_widened(one, max(ranks))) for one in rows]
    weights = torch.cat([one.weights for one in rows]) if weighed else None
    return Batch(torch.cat([one.inputs for one in rows]), torch.cat([one.targets for one in rows]), weights)


def _with_weights(one: Batch, weighed: bool) -> Batch:
    if not weighed or one.weights is not None:
        return one
    shape = one.targets.shape[:2] if one.every_step else one.targets.shape[:1]
    return one._replace(weights=torch.ones(shape, dtype=one.inputs.dtype))


def _widened(one: Batch, rank: int) -> Tensor:
    """Weights with further axes, of what they did not tell apart."""
    weights: Tensor = one.weights
    shape = one.targets.shape[:rank]
    while weights.ndim < rank:
        weights = weights[..., None]
    return weights.expand(shape).clone()


def _padded(one: Batch, steps: int, weighed: bool) -> Batch:
    one = _with_weights(one, weighed)
    missing = steps - one.inputs.shape[1]
    x, y, w = one
    if not one.every_step:
        return Batch(torch.cat([x.new_zeros(len(x), missing, x.shape[2]), x], 1), y, w)

    def longer(values: Tensor, fill: float) -> Tensor:
        return torch.cat([values, values.new_full((len(values), missing, *values.shape[2:]), fill)], 1)

    return Batch(longer(x, 0.0), longer(y, 0.0 if y.is_floating_point() else IGNORED), longer(w, 0.0))
