"""Transport to all orders: the true product of the Jacobians over a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learncast.errors import InvalidSpec
from learncast.learnability.jacobian import one_step_jacobians, push_forward
from learncast.learnability.replay import Replay
from learncast.learnability.transport_factor import checked_lags
from learncast.validation import FloatArray, count


@dataclass(frozen=True, eq=False, repr=False)
class ExactTransport:
    """The product M of the Jacobians over each lag (for an LSTM its block from cell to hidden state).

    Parameters
    ----------
    lags : (lags,)
    windows : (lags,)
        How many windows each mean is over.
    units : (units,)
        The units whose diagonal entries are known: all, or a random sample.
    diagonal : (lags, units)
        Mean of |M_qq|.
    frobenius : (lags,)
        Root of the mean square of the Frobenius norm.
    frobenius_error : (lags,)
        Its standard error; 0 when no probes were used.
    hidden_size : int
    effective : (lags, units), optional
        Mean of the base rate at the source times |M_qq|.
    """

    lags: NDArray[np.int64]
    windows: NDArray[np.int64]
    units: NDArray[np.int64]
    diagonal: FloatArray
    frobenius: FloatArray
    frobenius_error: FloatArray
    hidden_size: int
    effective: FloatArray | None = None

    @property
    def envelope(self) -> FloatArray:
        """Sum over units of the mean |M_qq|, times the base rate if it is known, (lags,)."""
        return self.hidden_size * self._summed.mean(1)

    @property
    def envelope_error(self) -> FloatArray:
        """Standard error of `envelope` from the choice of units; 0 when all are known, nan when only one is."""
        known = len(self.units)
        if known == self.hidden_size:
            return np.zeros(len(self.lags))
        if known == 1:
            return np.full(len(self.lags), np.nan)
        spread = self._summed.std(1, ddof=1) / np.sqrt(known)
        return self.hidden_size * spread * np.sqrt(1 - known / self.hidden_size)

    @property
    def _summed(self) -> FloatArray:
        return self.diagonal if self.effective is None else self.effective

    def __repr__(self) -> str:
        how = "all" if len(self.units) == self.hidden_size else f"{len(self.units)} of {self.hidden_size}"
        return f"<ExactTransport: {how} units, lags {self.lags[0]} to {self.lags[-1]}>"


@torch.no_grad()
def exact_transport(
    replay: Replay,
    lags: Sequence[int],
    *,
    rates: Tensor | float | None = None,
    probes: int | None = None,
    generator: torch.Generator | None = None,
) -> ExactTransport:
    """Mean size of the exact transport at each lag, over sequences and times.

    Parameters
    ----------
    replay : Replay
    lags : sequence of int
    rates : (time, batch, hidden) tensor or float, optional
        Base rates; where they are nan they count as 0.
    probes : int, optional
        Left out, dense matrices are multiplied: about 2 hidden^3 operations per lag, step and sequence. Given, this
        many random +-1 vectors are pushed through every window for the Frobenius norm (Hutchinson's estimate) and the
        columns of this many random units for the diagonal: 2 probes hidden^2 times the *longest* lag. Whole columns
        are used because the size of a noisy estimate of M_qq would be biased upwards.
    generator : torch.Generator, optional
        On the CPU; needed with `probes`.
    """
    wanted = checked_lags(lags, replay)
    steps, batch, width = replay.hidden.shape
    weights = None
    if rates is not None:
        weights = torch.as_tensor(rates, dtype=torch.float64).nan_to_num(0.0).expand(steps, batch, width)
    sizes = _dense(replay, wanted, weights) if probes is None else _probed(replay, wanted, weights, probes, generator)
    windows = np.array([(steps - lag) * batch for lag in wanted], dtype=np.int64)
    diagonal, effective = (np.asarray(part) / windows[:, None] for part in (sizes.diagonal, sizes.effective))
    square = np.asarray(sizes.square) / windows[:, None]
    root = np.sqrt(square.mean(1))
    k = square.shape[1]
    error = square.std(1, ddof=1) / np.sqrt(k) if k > 1 else np.full(len(wanted), 0.0 if probes is None else np.nan)
    with np.errstate(invalid="ignore"):
        error = np.where(root > 0, error / (2 * root), error)
    return ExactTransport(
        np.array(wanted, dtype=np.int64),
        windows,
        np.asarray(sizes.units),
        diagonal,
        root,
        error,
        width,
        effective if rates is not None else None,
    )


@dataclass(frozen=True, eq=False, repr=False)
class _Sizes:
    """Sums over windows: |M_qq| and its weighted twin (lags, units), squared norms (lags, probes)."""

    units: Tensor
    diagonal: Tensor
    effective: Tensor
    square: Tensor

    @classmethod
    def zeros(cls, lags: int, units: Tensor, probes: int) -> _Sizes:
        by_unit = torch.zeros(2, lags, len(units), dtype=torch.float64)
        return cls(units, by_unit[0], by_unit[1], torch.zeros(lags, probes, dtype=torch.float64))

    def add(self, row: int, entries: Tensor, weights: Tensor | None, factor: float = 1.0) -> None:
        """Add |M_qq| of (windows, batch, units) entries, `weights` being those of the sources."""
        size = entries.abs().double().cpu()
        self.diagonal[row] += factor * size.sum((0, 1))
        if weights is not None:
            chosen = weights[: size.shape[0]].cpu()[..., self.units]
            self.effective[row] += factor * (size * chosen).sum((0, 1))


def _dense(replay: Replay, lags: list[int], weights: Tensor | None) -> _Sizes:
    width, batch = replay.hidden.shape[2], replay.hidden.shape[1]
    sizes = _Sizes.zeros(len(lags), torch.arange(width), 1)
    for sequence in range(batch):
        one = slice(sequence, sequence + 1)
        steps = one_step_jacobians(replay.take(one))[1:, 0].double()
        products = _products(steps, lags)
        for row, product in enumerate(products):
            block = product[:, :width, -width:]  # the whole matrix, or from cell to hidden state
            diagonal = block.diagonal(dim1=1, dim2=2).unsqueeze(1)
            sizes.add(row, diagonal, None if weights is None else weights[:, one])
            sizes.square[row] += block.square().sum().cpu()
    return sizes


def _products(steps: Tensor, lags: list[int]) -> list[Tensor]:
    """J_{s+l} ... J_{s+1} for every s, at each lag; jumps are put together from windows of 1, 2, 4, ... steps."""
    powers = {1: steps}
    jumps = [b - a for a, b in zip([0, *lags], lags, strict=False)]
    size = 1
    while 2 * size <= max(jumps):
        powers[2 * size] = powers[size][size:] @ powers[size][:-size]
        size *= 2
    products, current, at = [], None, 0
    for jump in jumps:
        for part in (power for power in powers if jump & power):
            length = steps.shape[0] - at - part + 1
            ahead = powers[part][at : at + length]
            current = ahead if current is None else ahead @ current[:length]
            at += part
        assert current is not None
        products.append(current)
    return products


def _probed(
    replay: Replay, lags: list[int], weights: Tensor | None, probes: int, generator: torch.Generator | None
) -> _Sizes:
    steps, batch, width = replay.hidden.shape
    k = min(count("probes", probes, why="an estimate needs at least one"), width)
    if generator is None:
        raise InvalidSpec(
            required="probes need a generator",
            got="none",
            why="they are random, and randomness is an argument here",
            remedy="pass generator=torch.Generator().manual_seed(...)",
        )
    units = torch.randperm(width, generator=generator)[:k].sort().values
    sizes = _Sizes.zeros(len(lags), units, k)
    signs = torch.randint(0, 2, (k, steps, batch, width), generator=generator).mul_(2).sub_(1)
    columns = torch.nn.functional.one_hot(units, width)[:, None, None].expand(k, steps, batch, width)
    change = torch.cat([signs, columns]).to(replay.hidden)
    if replay.expression is not None:
        change = torch.cat([torch.zeros_like(change), change], -1)
    rows, logarithm = {lag: row for row, lag in enumerate(lags)}, 0.0
    for lag in range(1, lags[-1] + 1):
        # Entry [t] is the window that ends at t, so one more step is a shift in time.
        change = push_forward(replay, change.roll(1, dims=1))
        change[:, :lag] = 0  # windows without a source must not set the scale
        scale = float(change.abs().max()) or 1.0
        change /= scale  # the product alone would leave the range of single precision
        logarithm += float(np.log(scale))
        if lag in rows:
            shown, factor = change[:, lag:, :, :width], float(np.exp(logarithm))
            diagonal = torch.stack([shown[k + j, ..., unit] for j, unit in enumerate(units.tolist())], -1)
            sizes.add(rows[lag], diagonal, weights, factor)
            sizes.square[rows[lag]] += factor**2 * shown[:k].double().square().sum((1, 2, 3)).cpu()
    return sizes
