"""Transport to all orders: the product of the Jacobians over a window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from learncast._core.validation import FloatArray
from learncast.windows.layers.replay import Replay
from learncast.windows.transport.derivative import one_step_jacobians, push_forward
from learncast.windows.transport.factor import windows_over


@dataclass(frozen=True, eq=False, repr=False)
class ExactTransport:
    """The product M of the Jacobians over each lag (for an LSTM its block from cell to hidden state).

    Parameters
    ----------
    diagonal : (lags, units)
        Mean of |M_qq| of all units, or of a random sample.
    hidden_size : int
    effective : (lags, units)
        Mean of the base rate at the source times |M_qq|.
    """

    diagonal: FloatArray
    hidden_size: int
    effective: FloatArray

    @property
    def envelope(self) -> FloatArray:
        """Sum over units of the mean |M_qq| times the base rate, (lags,)."""
        return self.hidden_size * self.effective.mean(1)


@torch.no_grad()
def exact_transport(
    replay: Replay,
    lags: Sequence[int],
    *,
    rates: Tensor | float = 1.0,
    probes: int | None = None,
    generator: torch.Generator | None = None,
) -> ExactTransport:
    """Mean size of the exact transport at each lag, over sequences and times.

    Parameters
    ----------
    replay : Replay
    lags : sequence of int
    rates : (time, batch, hidden) or (lags, time, batch, hidden) tensor, or float
        Base rates, the same for all lags or one set for each; nan counts as 0.
    probes : int, optional
        By default dense matrices are multiplied: about 2 hidden^3 operations per lag, step and sequence. With `probes`,
        the columns of this many random units are pushed through every window: 2 probes hidden^2 times the *longest*
        lag. Full columns are used because the size of a noisy estimate of M_qq would be biased upwards.
    generator : torch.Generator, optional
        On the CPU; required with `probes`.
    """
    steps, batch, width = replay.hidden.shape
    units, parts = torch.arange(width), _dense(replay, lags)
    if probes is not None:
        assert generator is not None, "probes need a generator"
        units = torch.randperm(width, generator=generator)[:probes].sort().values
        parts = _probed(replay, lags, units)
    # Sums over windows: |M_qq|, and |M_qq| times the rates.
    sums = torch.zeros(2, len(lags), len(units), dtype=torch.float64)
    weights = torch.as_tensor(rates, dtype=torch.float64).nan_to_num(0.0).cpu()
    weights = weights.expand(*weights.shape[:-3], steps, batch, width)[..., units]
    weights = weights.expand(len(lags), steps, batch, len(units))
    for row, sequences, entries in parts:
        size = entries.abs().double().cpu()
        sums[0, row] += size.sum((0, 1))
        sums[1, row] += (size * weights[row, : len(size), sequences]).sum((0, 1))
    windows = np.array([(steps - lag) * batch for lag in lags], dtype=np.int64)
    diagonal, effective = np.asarray(sums) / windows[:, None]
    return ExactTransport(diagonal, width, effective)


def _dense(replay: Replay, lags: Sequence[int]) -> Iterator[tuple[int, slice, Tensor]]:
    """Yield the row of the lag, the sequence, and its M_qq (windows, 1, units)."""
    width = replay.hidden.shape[2]
    for sequence in range(replay.hidden.shape[1]):
        one = slice(sequence, sequence + 1)
        steps = one_step_jacobians(replay.take(one))[1:, 0].double()
        # J_{s+l} ... J_{s+1} for every s, from one lag to the next.
        jumps = windows_over(steps, {b - a for a, b in zip([0, *lags], lags, strict=False)}, _joined)
        product, before = steps, 0
        for row, lag in enumerate(lags):
            product = _joined(product, jumps[lag - before], before) if before else jumps[lag]
            before = lag
            block = product[:, :width, -width:]  # the full matrix, or from cell to hidden state
            yield row, one, block.diagonal(dim1=1, dim2=2).unsqueeze(1)


def _joined(early: Tensor, late: Tensor, offset: int) -> Tensor:
    ahead = late[offset:]
    return ahead @ early[: len(ahead)]


def _probed(replay: Replay, lags: Sequence[int], units: Tensor) -> Iterator[tuple[int, slice, Tensor]]:
    """Yield the values of `_dense` for all sequences together, for some of the units."""
    steps, batch, width = replay.hidden.shape
    columns = torch.nn.functional.one_hot(units, width)[:, None, None]
    change = columns.expand(len(units), steps, batch, width).to(replay.hidden)
    if replay.output_gate is not None:
        change = torch.cat([torch.zeros_like(change), change], -1)
    rows, logarithm = {lag: row for row, lag in enumerate(lags)}, 0.0
    for lag in range(1, lags[-1] + 1):
        # Entry [t] is the window that ends at t, so one more step is a shift in time.
        change = push_forward(replay, change.roll(1, dims=1))
        change[:, :lag] = 0  # windows without a source must not set the scale
        scale = float(change.abs().max()) or 1.0
        change /= scale  # unscaled, the product would leave the range of single precision
        logarithm += float(np.log(scale))
        if lag in rows:
            hidden, factor = change[:, lag:, :, :width], float(np.exp(logarithm))
            diagonal = torch.stack([hidden[j, ..., unit] for j, unit in enumerate(units.tolist())], -1)
            yield rows[lag], slice(None), factor * diagonal.double()
