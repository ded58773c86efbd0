"""The envelope of straight lines: which of many is highest, and where they change over."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from learncast.validation import FloatArray


def upper_envelope(height: FloatArray, slope: FloatArray) -> tuple[list[int], list[float]]:
    """Lines height + slope x that are highest somewhere, from left to right, and where they change over."""
    order = np.lexsort((height, slope))
    heights, slopes = height[order].tolist(), slope[order].tolist()  # plain floats: a loop over numpy scalars is slow
    hull: list[int] = []
    cuts: list[float] = []
    for k, (rise, tilt) in enumerate(zip(heights, slopes, strict=True)):
        if hull and slopes[hull[-1]] == tilt:  # parallel: the higher comes later in the order
            hull.pop()
            if cuts:
                cuts.pop()
        while hull:
            cut = (heights[hull[-1]] - rise) / (tilt - slopes[hull[-1]])
            if not cuts or cut > cuts[-1]:
                cuts.append(cut)
                break
            hull.pop()
            cuts.pop()
        hull.append(k)
    return [int(order[k]) for k in hull], cuts


def undominated(left: FloatArray, right: FloatArray) -> NDArray[np.intp]:
    """Lines that no other line beats at both ends of an interval, given their heights there; one of equals.

    A line below another at both ends is below it in between, so nothing is gained by ever using it.
    """
    order = np.lexsort((-right, -left))
    best = np.maximum.accumulate(right[order])
    first = np.ones(len(order), dtype=bool)
    first[1:] = best[1:] > best[:-1]
    return np.sort(order[first])
