"""Sums over the windows of every lag in one compiled pass; needs numba, the extra `fast`.

With P the running product of what a unit keeps and R the running sum of what it mixes over what it keeps, transport
from s to t is P_t / P_s (1 + R_t - R_s). A lag only reads these arrays, and all sums of a unit are computed while its
arrays over time, a few kilobytes, are in a core's first cache. Sums are in double precision, and P and R must stay so
small that cancellation is negligible; otherwise `lag_sums` carries products from lag to lag, without a division.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numba
import numpy as np
import torch
from torch import Tensor

from learncast._core.validation import FloatArray as Array
from learncast.windows.transport.factor import StepFactors

Arrays = tuple[Array, ...]

# Sums may be computed in any order and products be fused into them; infinities and nan keep their meaning.
_compiled = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})

#: Loops take at most this many steps at a time. Arrays are 0 beyond the last step, so that no remainder is left.
_STRIDE = 32
#: Numbers in a line of the cache.
_LINE = 8
#: Largest running product and its inverse, in units of the unit's mean, at which sums over windows hardly leave single
#: precision. Over a thousand steps the products of half-open gates deviate by e^25.
_RANGE = math.exp(30.0)
#: Largest running sum: differences of smaller ones are accurate to 1e-13.
_SUM = 1e3


def window_sums(
    factors: StepFactors, at: int, lags: Sequence[int], first: int, signals: Sequence[Tensor], out: Sequence[Tensor]
) -> Tensor | None:
    """Compute the sums of one block of sequences; see `sums_over_windows`.

    Parameters
    ----------
    factors : StepFactors
        The block begins at the sequence `at`.
    at : int
    lags : sequence of int
    first : int
        The sequence at which the block begins in the signals.
    signals : targets, sources and weights
        Of all sequences: copying a block takes half as long as its sums.
    out : sizes, weighted and products

    Returns
    -------
    (block, hidden) tensor or None
        Unit of the sums, the mean of what each unit keeps; None if a unit is out of range.
    """
    keep = factors.keep
    mix = torch.zeros_like(keep) if factors.mix is None else factors.mix
    last = keep.new_empty(0, 1, 1) if factors.last is None else factors.last
    last_mix = torch.zeros_like(last) if factors.last_mix is None else factors.last_mix
    level = keep.new_empty(*out[0].shape[2:], dtype=torch.float64)
    steps, given, results = (tuple(one.numpy() for one in part) for part in ((keep, mix, last, last_mix), signals, out))
    kernel: Callable[..., bool] = sums_over_windows
    within = kernel(steps, at, np.array(lags), given, first, results, level.numpy())
    return level if within and all(bool(one.isfinite().all()) for one in out) else None


@_compiled
def sums_over_windows(
    factors: Arrays, at: int, lags: Array, signals: Arrays, first: int, out: Arrays, level: Array
) -> bool:
    """Compute all lags, unit by unit; False, with undefined results, if a unit leaves the range.

    Parameters
    ----------
    factors : four arrays (steps, all, hidden)
        Retention and mixing of every step, then the factors of an LSTM's last step (empty for other cells). The
        sequences of the block begin at `at`.
    at : int
    lags : (lags,)
    signals : (time, all, hidden), (directions, time, all, hidden) and (0 or 1, time, all, hidden)
        Targets, the factor of gamma at the last step of a window; sources, its factors at the first; and weights of
        |gamma| at the first. The sequences of the block begin at `first`.
    first : int
    out : (2, lags, batch, hidden), (0 or 1, ...) and (directions, ...)
        Receive the sums of |gamma0| and |gamma|, of weighted |gamma|, and of gamma times targets and each source.
    level : (batch, hidden)
        The mean of what a unit keeps, the unit of the sums.
    """
    (keep, mix, last, last_mix), (targets, sources, weights), (sizes, weighted, products) = factors, signals, out
    (steps, _, hidden), (batch, _), is_lstm = keep.shape, level.shape, len(last) > 0
    # Rows are an odd number of cache lines apart, so that those of all units do not compete for the same lines.
    width = _padded(steps + 1) + _STRIDE + _LINE
    run, rows, work = np.zeros((2, steps + 1, 1, hidden)), _zeros(2, hidden, width), _zeros(1, 5, width)[0]
    ends, after = _zeros(2 * is_lstm, hidden, width), _zeros(1, hidden, width)
    before, weight = _zeros(len(sources), hidden, width), _zeros(len(weights), hidden, width)
    for b in range(batch):
        if not _accumulate(keep, mix, at + b, run, level[b]):
            return False
        _by_unit(run, 0, rows)
        if is_lstm:
            _by_unit(last[None], at + b, ends[:1])
            _by_unit(last_mix[None], at + b, ends[1:])
        _by_unit(targets[None], first + b, after)
        _by_unit(sources, first + b, before)
        _by_unit(weights, first + b, weight)
        for q in range(hidden):
            _prepare(rows[0, q], rows[1, q], steps, work)
            if is_lstm:
                _add_last_step(ends[0, q], ends[1, q], steps, work)
            for j in range(len(sources)):
                _multiply(before[j, q], work[0], steps)
            _sum_lags(work, lags, steps, is_lstm, after[0, q], before, q, sizes[:, :, b, q], products[:, :, b, q])
            for j in range(len(weights)):
                _sum_weighted(work, lags, steps, is_lstm, weight[j, q], weighted[j, :, b, q])
    return True


@_compiled
def _zeros(kinds: int, rows: int, width: int) -> Array:
    """Zeros aligned with the lines of the cache: numbers across two lines take twice as long to read."""
    size = kinds * rows * width
    zeros = np.zeros(size + _LINE)
    begin = -(zeros.ctypes.data // 8) % _LINE
    return zeros[begin : begin + size].reshape((kinds, rows, width))


@_compiled
def _by_unit(values: Array, sequence: int, out: Array) -> None:
    """Copy one sequence of (kinds, time, batch, hidden) values to (kinds, hidden, time)."""
    kinds, steps, _, hidden = values.shape
    lines = steps // _LINE * _LINE
    for kind in range(kinds):
        for begin in range(0, lines, _LINE):
            for q in range(hidden):
                for t in range(_LINE):  # a full line of the cache is written
                    out[kind, q, begin + t] = values[kind, begin + t, sequence, q]
        for t in range(lines, steps):
            for q in range(hidden):
                out[kind, q, t] = values[kind, t, sequence, q]


@_compiled
def _accumulate(keep: Array, mix: Array, sequence: int, run: Array, level: Array) -> bool:
    """Running products of what units keep, in units of its mean, and running sums of what they mix over what they keep.

    False if one leaves the range. The inner loops are over units, so that they are vectorised.
    """
    steps, _, hidden = keep.shape
    logarithm, product = np.zeros(hidden), np.ones(hidden)
    for t in range(steps):
        for q in range(hidden):
            product[q] *= keep[t, sequence, q]
        if t % _STRIDE == _STRIDE - 1 or t == steps - 1:  # a logarithm is expensive
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
def _prepare(product: Array, ratio: Array, steps: int, work: Array) -> None:
    """Write the factors of a unit's windows to `work`.

    gamma0 = source end, gamma = source (reach - end turn), with `source` and `turn` at the beginning of a window and
    `end` and `reach` at its end.
    """
    source, turn, end, reach = work[0], work[1], work[2], work[3]
    for t in range(steps + 1):
        source[t], turn[t] = 1 / product[t], ratio[t]
        end[t], reach[t] = product[t], product[t] * (1 + ratio[t])


@_compiled
def _add_last_step(last: Array, last_mix: Array, steps: int, work: Array) -> None:
    """Change `work` for an LSTM, whose windows end with a step from cell to hidden state."""
    turn, end, reach = work[1], work[2], work[3]
    for t in range(steps):
        turn[t] = turn[t + 1]
        reach[t] = last[t] * reach[t] + last_mix[t] * end[t]
        end[t] = last[t] * end[t]
    end[steps], reach[steps] = 0.0, 0.0


@_compiled
def _multiply(values: Array, factors: Array, steps: int) -> None:
    """Multiply in place, once instead of at every lag."""
    for t in range(steps):
        values[t] *= factors[t]


@_compiled
def _sum_lags(
    work: Array,
    lags: Array,
    steps: int,
    is_lstm: bool,
    after: Array,
    before: Array,
    q: int,
    sizes: Array,
    products: Array,
) -> None:
    """Sum |gamma0|, |gamma| and products of one unit at all lags; `before` are the sources times `source`."""
    source, turn, product = work[0], work[1], work[4]
    for k in range(len(lags)):
        length, size = lags[k] - is_lstm, _padded(steps - lags[k] + 1)
        end, reach, target, first = work[2, length:], work[3, length:], after[lags[k] :], length == 0
        zeroth, total = 0.0, 0.0
        for t in range(size):
            inner = end[t] if first else reach[t] - end[t] * turn[t]
            zeroth += source[t] * end[t]
            total += source[t] * abs(inner)
            product[t] = inner * target[t]
        sizes[0, k], sizes[1, k] = zeroth, total
        for j in range(len(before)):
            one, value = before[j, q], 0.0
            for t in range(size):
                value += product[t] * one[t]
            products[j, k] = value


@_compiled
def _sum_weighted(work: Array, lags: Array, steps: int, is_lstm: bool, weights: Array, weighted: Array) -> None:
    """Sum |gamma| times the weight at the source, of one unit at all lags."""
    source, turn = work[0], work[1]
    for k in range(len(lags)):
        length, size = lags[k] - is_lstm, _padded(steps - lags[k] + 1)
        end, reach, first = work[2, length:], work[3, length:], length == 0
        total = 0.0
        for t in range(size):
            inner = end[t] if first else reach[t] - end[t] * turn[t]
            total += source[t] * abs(inner) * weights[t]
        weighted[k] = total


@_compiled
def _padded(steps: int) -> int:
    """Round up to a multiple of the stride."""
    return -(-steps // _STRIDE) * _STRIDE
