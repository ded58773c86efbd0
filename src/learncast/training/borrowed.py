"""What is borrowed from torch and given back as it was: its threads, its random stream, the mode of a module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def own_threads(number: int) -> Iterator[None]:
    """So many threads inside, as many as before outside; torch's own random stream is left as it was."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """Torch's random numbers from a seed, and the global ones as they were afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@contextmanager
def at_rest(module: nn.Module) -> Iterator[None]:
    """A look at the module that leaves no trace: no dropout, no running averages, no gradients."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, mode in modes:
            part.training = mode
