"""How long work reports that it goes on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

#: Called now and then with the share of the work that is done, from 0 to 1.
Progress = Callable[[float], None]


def silent(share: float) -> None:
    """Report nothing."""


def within(progress: Progress, done: int, number: int) -> Progress:
    """Progress of one of several pieces of work."""
    return partial(_within, progress, done, number)


def _within(progress: Progress, done: int, number: int, share: float) -> None:
    progress((done + share) / number)
