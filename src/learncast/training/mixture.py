"""Trials of a target, mixed with those of other tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import torch

from learncast.results import spec_hash
from learncast.training.sources import Batch, Source


@dataclass(frozen=True, eq=False)
class Mixture(Source):
    """Trials of a target, mixed with those of other tasks: half of each batch, from one of them after the other.

    Where their trials cannot be joined, e.g. because they have other lengths, batches alternate. Trials for evaluation
    are those of the target.

    Attributes
    ----------
    target : Source
    others : tuple of Source
    """

    target: Source = field(kw_only=True)
    others: tuple[Source, ...] = field(kw_only=True)

    @classmethod
    def mixed(cls, target: Source, others: Sequence[Source]) -> Mixture:
        """Mix a target with other tasks."""
        known = {one.name: getattr(target, one.name) for one in fields(Source) if one.init}
        name = f"{target.name}, mixed with {', '.join(one.name for one in others)}"
        digest = spec_hash("mixture", target.hash, *(one.hash for one in others))
        return cls(**{**known, "name": name, "hash": digest}, target=target, others=tuple(others))

    def batch(
        self, trials: int | None, key: tuple[int, int], step: int, dtype: torch.dtype, *, shuffle: bool = False
    ) -> Batch:
        place = (step // 2) % len(self.others)
        half = None if trials is None else max(trials // 2, 1)
        own = self.target.batch(half, key, step, dtype, shuffle=shuffle)
        # Other random numbers than those of the target, so that noise is not shared.
        other = self.others[place].batch(half, (key[0], key[1] + 1000 + place), step, dtype, shuffle=shuffle)
        if any(
            (a is None) != (b is None) or (a is not None and a.shape[1:] != b.shape[1:])
            for a, b in zip(own, other, strict=True)
        ):
            return own if step % 2 else other
        return Batch(*(None if a is None else torch.cat([a, b]) for a, b in zip(own, other, strict=True)))
