"""Temporary changes of torch's state: its threads, its random numbers, the mode of a module."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

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
