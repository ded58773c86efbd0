"""Signs of the units' contributions to a lag, taken from other sequences than those they are applied to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from learncast.errors import InvalidSpec
from learncast.validation import FloatArray, count, real_array

#: Numbers of one block of lags held at a time (8 bytes each).
_BLOCK = 2**22


def matched_statistic(contributions: Any, signs: Any) -> FloatArray:
    """Sum over units of signed contributions, one number per sequence and lag.

    Parameters
    ----------
    contributions : (..., units)
        mu_q a_q: effective rate times alignment, as a mean over the steps of a sequence.
    signs : (units,) or (lags, units)
        Expected sign of each unit's contribution, from other data.

    Implements: livi2025 Eq. (13), with the sign of mu_q a_q in place of that of a_q, for rates of either sign
    """
    return np.einsum("...q,...q->...", real_array("contributions", contributions), real_array("signs", signs))


def cross_fitted(contributions: Any) -> FloatArray:
    """Matched statistic of every sequence with signs from the other half of the sequences.

    Even and odd sequences are the halves. Each value is unbiased for its half, but the halves are not independent of
    each other: sequence means vary up to 1.3 times more than their standard error says. `detect` allows for that.

    Parameters
    ----------
    contributions : (sequences, lags, units)

    Returns
    -------
    (sequences, lags)
    """
    c = contribution_block(contributions)
    statistic = np.empty(c.shape[:2])
    for own, other in ((0, 1), (1, 0)):
        statistic[own::2] = matched_statistic(c[own::2], np.sign(c[other::2].sum(axis=0)))
    return statistic


class SignPilot:
    """Signs from a stream of batches, so that the rest of the stream needs one number per sequence and lag.

    Feed it one part of the sequences, then pass ``matched_statistic(batch, pilot.signs)`` of the *other* sequences to
    `detect_projected`.
    """

    def __init__(self) -> None:
        self._total: FloatArray | None = None

    def add(self, contributions: Any) -> None:
        """Count a batch (sequences, lags, units) in."""
        summed = contribution_block(contributions).sum(axis=0)
        self._total = summed if self._total is None else self._total + summed

    @property
    def signs(self) -> FloatArray:
        """Sign of each unit's mean contribution, (lags, units)."""
        if self._total is None:
            raise InvalidSpec(
                required="a pilot must see at least one batch",
                got="none",
                why="there is nothing to take signs from",
                remedy="call add with contributions of some sequences first",
            )
        return np.sign(self._total)


def contribution_block(contributions: Any) -> FloatArray:
    """Contributions as an array (sequences, lags, units)."""
    return real_array("contributions", contributions, ndim=3)


def lag_blocks(contributions: Any, directions: int = 1) -> Iterator[FloatArray]:
    """Contributions in blocks of some lags, all sequences and units, from one array or from blocks."""
    if hasattr(contributions, "shape"):
        c = _parted(contribution_block(contributions), directions)
        step = max(1, _BLOCK // max(1, c.shape[0] * c.shape[2]))
        yield from (c[:, first : first + step] for first in range(0, c.shape[1], step))
    elif isinstance(contributions, Iterable):
        yield from (_parted(contribution_block(part), directions) for part in contributions)
    else:
        contribution_block(contributions)


def _parted(block: FloatArray, directions: int) -> FloatArray:
    if block.shape[2] % count("directions", directions, why="units belong to directions"):
        raise InvalidSpec(
            required=f"the units of {directions} directions must be equally many",
            got=f"{block.shape[2]} columns",
            why="each direction has all units of the layer",
            remedy="put the units of one direction after those of the other along the last axis",
        )
    return block
