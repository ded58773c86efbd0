"""The longest lag of a grid that can be learned."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from learncast.errors import InvalidSpec
from learncast.validation import FloatArray, real_array


class Window(NamedTuple):
    """Longest learnable lag: with gaps below it allowed, and up to the first gap. 0 is none, nan unknown."""

    any_lag: FloatArray
    contiguous: FloatArray


def window_of(lags: Any, detectable: Any) -> Window:
    """Longest lag that is detectable, and longest before the first that is not.

    Parameters
    ----------
    lags : (lags,)
        Growing.
    detectable : (..., lags)
        Whether each lag's envelope is above its floor.

    Implements: livi2025 Eq. (22), with the window up to the first gap beside it
    """
    grid = lag_grid(lags)
    seen = np.asarray(detectable, dtype=bool)
    if seen.shape[-1:] != grid.shape:
        raise InvalidSpec(
            required=f"detectable must have one entry for each of the {len(grid)} lags along its last axis",
            got=f"shape {seen.shape}",
            why="each entry says whether that lag counts",
            remedy="put the lags last",
        )
    unbroken = np.logical_and.accumulate(seen, axis=-1)
    return Window(np.where(seen, grid, 0.0).max(axis=-1), np.where(unbroken, grid, 0.0).max(axis=-1))


def lag_grid(lags: Any) -> FloatArray:
    """The lags as an array, refused unless they are positive and growing."""
    grid = real_array("lags", lags, ndim=1)
    if not len(grid) or grid[0] <= 0 or (np.diff(grid) <= 0).any():
        raise InvalidSpec(
            required="lags must be positive and growing",
            got=f"{grid[:5]}{'...' if len(grid) > 5 else ''}",
            why="a window is the longest of them",
            remedy="sort them and drop repetitions and 0",
        )
    return grid
