"""Temporary changes of torch's state: its threads, its random numbers, the mode of a module."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn


@contextmanager
def own_threads(number: int) -> Iterator[None]:
    """Use this many threads; restore the number of threads and the random state afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """Seed torch's random numbers; restore the random state afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def training_copy(model: nn.Module) -> nn.Module:
    """Return a copy of a module for training; parts in evaluation mode stay so, unless all of them are."""
    module = copy.deepcopy(model)
    return module if any(part.training for part in module.modules()) else module.train()


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluate a module without gradients, dropout or running averages; restore its mode afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, mode in modes:
            part.training = mode


class Resumable:
    """Something that changes along a run and can be continued from a saved state."""

    #: Names of the attributes that change: numbers, arrays, lists of these, or other resumable objects.
    kept: ClassVar[tuple[str, ...]] = ()

    def state(self) -> dict[str, object]:
        """The state as plain numbers and lists."""
        return {name.lstrip("_"): _plain(getattr(self, name)) for name in self.kept}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state."""
        for name in self.kept:
            now, saved = getattr(self, name), state[name.lstrip("_")]
            if isinstance(now, Resumable):
                now.restore(saved)
            elif isinstance(now, deque):
                now.clear()
                now.extend(saved)
            else:
                setattr(self, name, np.array(saved) if isinstance(now, np.ndarray) else saved)


def _plain(value: Any) -> object:
    if isinstance(value, Resumable):
        return value.state()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [_plain(item) for item in value] if isinstance(value, list | tuple | deque) else value
