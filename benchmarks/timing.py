"""Fair timing on a noisy machine."""

from __future__ import annotations

import time
from collections.abc import Callable


def fastest(work: Callable[[], object], *, repeats: int = 7) -> float:
    """Seconds of the quickest of several runs: noise only ever adds."""
    best = float("inf")
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
    return best


def interleaved(
    *works: Callable[[], object], repeats: int = 7, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Quickest run of each, taken in turns so that a slow spell of the machine hits all of them."""
    best = [float("inf")] * len(works)
    for _ in range(repeats):
        for k, work in enumerate(works):
            begun = clock()
            work()
            best[k] = min(best[k], clock() - begun)
    return best
