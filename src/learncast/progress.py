"""How long work reports that it goes on."""

from __future__ import annotations

from collections.abc import Callable

#: Called now and then with the share of the work that is done, from 0 to 1.
Progress = Callable[[float], None]


def silent(share: float) -> None:
    """Report nothing."""
