"""Fair timing on a noisy machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def fastest(work: Callable[[], object], *, repeats: int = 7) -> float:
    """CPU seconds of the quickest of several runs: noise only ever adds."""
    return interleaved(work, repeats=repeats)[0]


def interleaved(
    *works: Callable[[], object], repeats: int = 7, clock: Callable[[], float] = time.process_time
) -> list[float]:
    """Quickest run of each, taken in turns so that a slow spell of the machine hits all of them.

    CPU seconds unless told: with one thread they are those of an idle machine.
    """
    best = [float("inf")] * len(works)
    for _ in range(repeats):
        for k, work in enumerate(works):
            begun = clock()
            work()
            best[k] = min(best[k], clock() - begun)
    return best


def most_held() -> int:
    """Bytes of memory that this program has held at the most.

    As resource has it, the process that started this one would count too.
    """
    return 1024 * int(Path("/proc/self/status").read_text(encoding="utf-8").partition("VmHWM:")[2].split()[0])
