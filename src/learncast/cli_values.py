"""Values of command-line options: numbers, ranges, words and shards."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from learncast._core.errors import InvalidSpec

if TYPE_CHECKING:
    import numpy as np

    from learncast._core.validation import FloatArray

#: Most numbers in a range of an option.
MOST_NUMBERS = 10**6


def read_whole_numbers(option: str, text: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Read distinct whole numbers; those of a range are rounded."""
    import numpy as np

    numbers = read_numbers(option, text)
    rounded = numbers.round() if np.isfinite(numbers).all() else numbers
    if not np.isfinite(numbers).all() or (":" not in text and (numbers != rounded).any()):
        raise InvalidSpec(f"{option} must be whole numbers, got {text!r}.", field=option)
    return np.unique(rounded).astype(np.int64)


def read_numbers(option: str, text: str) -> FloatArray:
    """Read numbers like 0.5,0.75 or a range first:last:count."""
    import numpy as np

    try:
        return _range(*text.split(":")) if ":" in text else np.array([float(word) for word in text.split(",")])
    except ValueError as error:
        form = "numbers like 0.5,0.75 or a range first:last:count like 0.1:2.0:200"
        raise InvalidSpec(f"{option} must be {form}, got {text!r}: {error}.", field=option) from error


def _range(first: str, last: str, *counts: str) -> FloatArray:
    import numpy as np

    if len(counts) != 1:
        raise ValueError("too many colons" if counts else "the count is missing")
    if not all(math.isfinite(float(end)) for end in (first, last)):
        raise ValueError("its ends must be finite")
    # Checked before the range is made, so that a mistyped count cannot exhaust the memory.
    if not (counts[0].strip().isdecimal() and 1 <= int(counts[0]) <= MOST_NUMBERS):
        raise ValueError(f"its count must be a number from 1 to {MOST_NUMBERS:,}")
    return np.linspace(float(first), float(last), int(counts[0]))


def read_words(text: str | None) -> list[str] | None:
    """Read words that are separated by commas."""
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def read_shard(text: str | None) -> tuple[int, int] | None:
    """Return K/N as two numbers."""
    if text is None:
        return None
    k, _, n = text.partition("/")
    if not (k.isdecimal() and n.isdecimal()):
        raise InvalidSpec(f"--shard must be K/N, like 3/100, got {text!r}.", field="shard")
    return int(k), int(n)
