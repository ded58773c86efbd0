"""Sums over the windows of every lag in one compiled pass; needs numba, the extra `fast`.

With P the running product of what a unit keeps and R the running sum of what it mixes per what it keeps, transport
from s to t is P_t / P_s (1 + R_t - R_s): a lag only reads, and every sum of a unit is taken while its arrays over time,
a few kilobytes, are in a core's first cache. In double precision, and only where P and R stay so small that what
cancels does not matter; elsewhere products are carried from lag to lag, without a division.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

# Sums may be taken in any order and products be fused into them; infinities and nan keep their meaning.
_compiled = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})

#: Steps that a loop takes at a time, at most; beyond the last step everything is 0, so that none is left over.
_STRIDE = 32
#: Numbers of a line of the cache.
_LINE = 8
#: Largest running product and its inverse, in the unit's mean: sums over windows then hardly leave single precision.
#: Over a thousand steps the products of half-open gates stray by e^25.
_RANGE = math.exp(30.0)
#: Largest running sum: differences of smaller ones are right to 1e-13.
_SUM = 1e3


def summed(
    factors: Any, at: int, lags: Sequence[int], asked: Mapping[str, Tensor], some: slice
) -> tuple[Tensor, Tensor | None]:
    """Write the sums that are `asked` for; return those of |gamma0| and the level of each unit, None out of range.

    Parameters
    ----------
    factors : StepFactors
        The sequences to walk begin at the place `at`.
    lags : sequence of int
    asked : dict of tensors
        See `learncast.windows.transport.factor.Summing`.
    some : slice
        Where the sequences are among all.
    """
    keep, shape = factors.keep, (some.stop - some.start, factors.keep.shape[2])
    nothing = keep.new_empty(0, 1, 1, 1)
    mix, shown, recalled = (
        (torch.zeros_like(keep) if wanted else nothing[0:0, 0]) if part is None else part
        for part, wanted in (
            (factors.mix, True),
            (factors.shown, False),
            (factors.recalled, factors.shown is not None),
        )
    )
    found, level = keep.new_empty(2, len(lags), *shape), keep.new_empty(*shape, dtype=torch.float64)
    within = sums_over_windows(
        keep.numpy(),
        mix.numpy(),
        shown.numpy(),
        recalled.numpy(),
        at,
        np.array(lags, dtype=np.int64),
        asked.get("targets", nothing[0:0, 0]).numpy(),
        asked.get("sources", nothing).numpy(),
        asked["weights"][None].numpy() if "weights" in asked else nothing.numpy(),
        some.start,
        found.numpy(),
        asked["weighed"][None].numpy() if "weighed" in asked else nothing.numpy(),
        asked.get("carried", nothing).numpy(),
        level.numpy(),
    )
    if "size" in asked:
        asked["size"].copy_(found[1])
    made = (found, *(asked[name] for name in ("weighed", "carried") if name in asked))
    return found[0], level if within and all(bool(part.isfinite().all()) for part in made) else None


@_compiled
def sums_over_windows(
    keep: Any,
    mix: Any,
    shown: Any,
    recalled: Any,
    at: int,
    lags: Any,
    targets: Any,
    sources: Any,
    weights: Any,
    first: int,
    found: Any,
    weighed: Any,
    carried: Any,
    level: Any,
) -> bool:
    """Walk all lags, unit by unit; False, and nothing is to be read, where a unit leaves the range.

    Parameters
    ----------
    keep, mix : (steps, all, hidden)
        What every step keeps and mixes; the sequences to walk begin at `at`.
    shown, recalled : (steps, all, hidden)
        Of an LSTM what its last step shows and recalls; else none.
    at : int
    lags : (lags,)
    targets : (time, all, hidden)
        What gamma is multiplied with at the last step of a window; here the sequences begin at `first`.
    sources : (directions, time, all, hidden)
        And at its source; none for no such sums.
    weights : (0 or 1, time, all, hidden)
        Of the size of gamma, at the source.
    first : int
    found, weighed, carried : (2, lags, batch, hidden), (0 or 1, ...), (directions, ...)
        Sums of the sizes of gamma0 and gamma, of gamma weighed, and of gamma between targets and each source.
    level : (batch, hidden)
        The mean of what a unit keeps, in which sums are measured.
    """
    (steps, _, hidden), (batch, _), expressed = keep.shape, level.shape, len(shown) > 0
    # Rows an odd number of cache lines apart: those of all units would else crowd into a few.
    width = _whole(steps + 1) + _STRIDE + _LINE
    run, rows, room = np.zeros((2, steps + 1, 1, hidden)), _zeros(2, hidden, width), _zeros(1, 5, width)[0]
    last, after = _zeros(2 * expressed, hidden, width), _zeros(1, hidden, width)
    before, heavy = _zeros(len(sources), hidden, width), _zeros(len(weights), hidden, width)
    for b in range(batch):
        if not _accumulate(keep, mix, at + b, run, level[b]):
            return False
        _by_unit(run, 0, rows)
        if expressed:
            _by_unit(shown[None], at + b, last[:1])
            _by_unit(recalled[None], at + b, last[1:])
        _by_unit(targets[None], first + b, after)
        _by_unit(sources, first + b, before)
        _by_unit(weights, first + b, heavy)
        for q in range(hidden):
            _prepare(rows[0, q], rows[1, q], steps, room)
            if expressed:
                _express(last[0, q], last[1, q], steps, room)
            for j in range(len(sources)):
                _multiply(before[j, q], room[0], steps)
            _follow(room, lags, steps, expressed, after[0, q], before, q, found[:, :, b, q], carried[:, :, b, q])
            for j in range(len(weights)):
                _weigh(room, lags, steps, expressed, heavy[j, q], weighed[j, :, b, q])
    return True


@_compiled
def _zeros(kinds: int, rows: int, width: int) -> Any:
    """Zeros that begin with a line of the cache: what straddles two lines takes twice as long to read."""
    size = kinds * rows * width
    found = np.zeros(size + _LINE)
    begin = -(found.ctypes.data // 8) % _LINE
    return found[begin : begin + size].reshape((kinds, rows, width))


@_compiled
def _by_unit(values: Any, sequence: int, found: Any) -> None:
    """The steps of one sequence, (kinds, time, batch, hidden), to a row of each unit."""
    kinds, steps, _, hidden = values.shape
    lines = steps // _LINE * _LINE
    for kind in range(kinds):
        for begin in range(0, lines, _LINE):
            for q in range(hidden):
                for t in range(_LINE):  # whole lines of the cache are written
                    found[kind, q, begin + t] = values[kind, begin + t, sequence, q]
        for t in range(lines, steps):
            for q in range(hidden):
                found[kind, q, t] = values[kind, t, sequence, q]


@_compiled
def _accumulate(keep: Any, mix: Any, sequence: int, run: Any, level: Any) -> bool:
    """Running products of what units keep, measured in its mean, and running sums of what they mix per that.

    False where one leaves the range. All units take a step at a time: several are computed at once.
    """
    steps, _, hidden = keep.shape
    logarithm, product = np.zeros(hidden), np.ones(hidden)
    for t in range(steps):
        for q in range(hidden):
            product[q] *= keep[t, sequence, q]
        if t % _STRIDE == _STRIDE - 1 or t == steps - 1:  # a logarithm costs as much as all else
            for q in range(hidden):
                logarithm[q] += math.log(product[q])
                product[q] = 1.0
    for q in range(hidden):
        level[q] = math.exp(logarithm[q] / steps)
        run[0, 0, 0, q], run[1, 0, 0, q] = 1.0, 0.0
    within = 0
    for t in range(steps):
        for q in range(hidden):
            kept, mixed = np.float64(keep[t, sequence, q]), np.float64(mix[t, sequence, q])
            end, turn = run[0, t, 0, q] * (kept / level[q]), run[1, t, 0, q] + mixed / kept
            run[0, t + 1, 0, q], run[1, t + 1, 0, q] = end, turn
            within += (end > 1 / _RANGE) & (end < _RANGE) & (abs(turn) < _SUM)
    return within == steps * hidden


@_compiled
def _prepare(product: Any, ratio: Any, steps: int, room: Any) -> None:
    """In `room` what the windows of a unit are made of.

    gamma0 = source end, gamma = source (reach - end turn), with `source` and `turn` at the beginning of a window.
    """
    source, turn, end, reach = room[0], room[1], room[2], room[3]
    for t in range(steps + 1):
        source[t], turn[t] = 1 / product[t], ratio[t]
        end[t], reach[t] = product[t], product[t] * (1 + ratio[t])


@_compiled
def _express(shown: Any, recalled: Any, steps: int, room: Any) -> None:
    """A window of an LSTM begins inside the cell, and ends with a step that shows it."""
    turn, end, reach = room[1], room[2], room[3]
    for t in range(steps):
        turn[t] = turn[t + 1]
        reach[t] = shown[t] * reach[t] + recalled[t] * end[t]
        end[t] = shown[t] * end[t]
    end[steps], reach[steps] = 0.0, 0.0


@_compiled
def _multiply(values: Any, factors: Any, steps: int) -> None:
    """In place: what would else be multiplied at every lag."""
    for t in range(steps):
        values[t] *= factors[t]


@_compiled
def _follow(
    room: Any, lags: Any, steps: int, expressed: bool, after: Any, before: Any, q: int, found: Any, carried: Any
) -> None:
    """All lags of one unit: sizes, and sums between targets and sources, which are multiplied with `source` already."""
    source, turn, made = room[0], room[1], room[4]
    for k in range(len(lags)):
        length, size = lags[k] - expressed, _whole(steps - lags[k] + 1)
        end, reach, target, first = room[2, length:], room[3, length:], after[lags[k] :], length == 0
        zeroth, total = 0.0, 0.0
        for t in range(size):
            inner = end[t] if first else reach[t] - end[t] * turn[t]
            zeroth += source[t] * end[t]
            total += source[t] * abs(inner)
            made[t] = inner * target[t]
        found[0, k], found[1, k] = zeroth, total
        for j in range(len(before)):
            one, value = before[j, q], 0.0
            for t in range(size):
                value += made[t] * one[t]
            carried[j, k] = value


@_compiled
def _weigh(room: Any, lags: Any, steps: int, expressed: bool, weights: Any, weighed: Any) -> None:
    """All lags of one unit: sizes weighed at the source."""
    source, turn = room[0], room[1]
    for k in range(len(lags)):
        length, size = lags[k] - expressed, _whole(steps - lags[k] + 1)
        end, reach, first = room[2, length:], room[3, length:], length == 0
        total = 0.0
        for t in range(size):
            inner = end[t] if first else reach[t] - end[t] * turn[t]
            total += source[t] * abs(inner) * weights[t]
        weighed[k] = total


@_compiled
def _whole(steps: int) -> int:
    """The next multiple of a stride."""
    return -(-steps // _STRIDE) * _STRIDE
