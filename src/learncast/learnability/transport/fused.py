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
#: Largest running product and its inverse, in the unit's mean: sums over windows then fit into single precision.
_RANGE = math.exp(20.0)
#: Largest running sum: differences of smaller ones are right to 1e-13.
_SUM = 1e3


def summed(factors: Any, lags: Sequence[int], asked: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None]:
    """Write the sums that are `asked` for; return those of |gamma0| and the level of each unit, None out of range.

    Parameters
    ----------
    factors : StepFactors
    lags : sequence of int
    asked : dict of tensors
        See `learncast.learnability.transport.factor.Summing`.
    """
    keep = factors.keep
    mix = torch.zeros_like(keep) if factors.mix is None else factors.mix
    kinds = [keep, mix]
    if factors.shown is not None:
        kinds += [factors.shown, torch.zeros_like(keep) if factors.recalled is None else factors.recalled]
    nothing, (_, *shape) = keep.new_empty(0, 1, *keep.shape[1:]), keep.shape
    found, level = keep.new_empty(2, len(lags), *shape), keep.new_empty(*shape, dtype=torch.float64)
    within = sums_over_windows(
        torch.stack(kinds).numpy(),
        np.array(lags, dtype=np.int64),
        asked.get("targets", nothing[0:0].reshape(0, *shape)).numpy(),
        asked.get("sources", nothing).numpy(),
        asked["weights"][None].numpy() if "weights" in asked else nothing.numpy(),
        found.numpy(),
        asked["weighed"][None].numpy() if "weighed" in asked else nothing.numpy(),
        asked.get("carried", nothing).numpy(),
        level.numpy(),
    )
    if "size" in asked:
        asked["size"].copy_(found[1])
    return found[0], level if within else None


@_compiled
def sums_over_windows(
    chain: Any, lags: Any, targets: Any, sources: Any, weights: Any, found: Any, weighed: Any, carried: Any, level: Any
) -> bool:
    """Walk all lags, unit by unit; False, and nothing is to be read, where a unit leaves the range.

    Parameters
    ----------
    chain : (2 or 4, steps, batch, hidden)
        What every step keeps and mixes, and of an LSTM what its last step shows and recalls.
    lags : (lags,)
    targets : (time, batch, hidden)
        What gamma is multiplied with at the last step of a window.
    sources : (directions, time, batch, hidden)
        And at its source; none for no such sums.
    weights : (0 or 1, time, batch, hidden)
        Of the size of gamma, at the source.
    found, weighed, carried : (2, lags, batch, hidden), (0 or 1, ...), (directions, ...)
        Sums of the sizes of gamma0 and gamma, of gamma weighed, and of gamma between targets and each source.
    level : (batch, hidden)
        The mean of what a unit keeps, in which sums are measured.
    """
    kinds, steps, batch, hidden = chain.shape
    # Rows an odd number of cache lines apart: those of all units would else crowd into a few.
    width = _whole(steps + 1) + _STRIDE + 8
    rows, after = np.zeros((kinds, hidden, width)), np.zeros((1, hidden, width))
    before, heavy = np.zeros((len(sources), hidden, width)), np.zeros((len(weights), hidden, width))
    room = np.zeros((5, width))
    for b in range(batch):
        _by_unit(chain, b, rows)
        _by_unit(targets[None], b, after)
        _by_unit(sources, b, before)
        _by_unit(weights, b, heavy)
        for q in range(hidden):
            level[b, q] = _prepare(rows[0, q], rows[1, q], steps, room)
            if not level[b, q] > 0:
                return False
            if kinds > 2:
                _express(rows[2, q], rows[3, q], steps, room)
            _follow(room, lags, steps, kinds > 2, after[0, q], before, q, found[:, :, b, q], carried[:, :, b, q])
            for j in range(len(weights)):
                _weigh(room, lags, steps, kinds > 2, heavy[j, q], weighed[j, :, b, q])
    return True


@_compiled
def _by_unit(values: Any, sequence: int, found: Any) -> None:
    """The steps of one sequence, (kinds, time, batch, hidden), to a row of each unit."""
    for kind in range(values.shape[0]):
        for t in range(values.shape[1]):
            for q in range(values.shape[3]):
                found[kind, q, t] = values[kind, t, sequence, q]


@_compiled
def _prepare(keep: Any, mix: Any, steps: int, room: Any) -> float:
    """The level of a unit (0 when out of range), and in `room` what windows are made of.

    gamma0 = source end, gamma = source (reach - end turn), with `source` and `turn` at the beginning of a window.
    """
    source, turn, end, reach = room[0], room[1], room[2], room[3]
    logarithm, product = 0.0, 1.0
    for t in range(steps):
        product *= keep[t]
        if t % 8 == 7 or t == steps - 1:  # a logarithm costs as much as all else
            logarithm, product = logarithm + math.log(product), 1.0
    level = math.exp(logarithm / steps)
    inverse, ratio, low, high, largest = 1 / level, 0.0, 1.0, 1.0, 0.0
    source[0], turn[0], end[0], reach[0] = 1.0, 0.0, 1.0, 1.0
    for t in range(steps):
        product *= keep[t] * inverse
        ratio += mix[t] / keep[t]
        low, high, largest = min(low, product), max(high, product), max(largest, abs(ratio))
        source[t + 1], turn[t + 1] = 1 / product, ratio
        end[t + 1], reach[t + 1] = product, product * (1 + ratio)
    if not (low > 1 / _RANGE and high < _RANGE and largest < _SUM):
        return 0.0
    return level


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
def _follow(
    room: Any, lags: Any, steps: int, expressed: bool, after: Any, before: Any, q: int, found: Any, carried: Any
) -> None:
    """All lags of one unit: sizes, and sums between targets and sources."""
    source, turn, made = room[0], room[1], room[4]
    for k in range(len(lags)):
        length, size = lags[k] - expressed, _whole(steps - lags[k] + 1)
        end, reach, target, first = room[2, length:], room[3, length:], after[lags[k] :], length == 0
        zeroth, total = 0.0, 0.0
        for t in range(size):
            gamma0 = source[t] * end[t]
            gamma = gamma0 if first else source[t] * reach[t] - gamma0 * turn[t]
            zeroth += gamma0
            total += abs(gamma)
            made[t] = gamma * target[t]
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
            gamma0 = source[t] * end[t]
            total += abs(gamma0 if first else source[t] * reach[t] - gamma0 * turn[t]) * weights[t]
        weighed[k] = total


@_compiled
def _whole(steps: int) -> int:
    """The next multiple of a stride."""
    return -(-steps // _STRIDE) * _STRIDE
