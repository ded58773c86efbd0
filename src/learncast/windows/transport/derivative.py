"""Exact derivatives of a recurrent layer by its previous state and by its parameters, at one step and over all lags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from learncast._core.validation import FloatArray
from learncast.windows.layers.recording import capture
from learncast.windows.layers.recurrent_layer import RecurrentLayer
from learncast.windows.layers.replay import Replay, pathway_sensitivity
from learncast.windows.layers.stepped import SteppedLayer
from learncast.windows.sequences import half_squared_error
from learncast.windows.transport.accumulator import sum_over_steps
from learncast.windows.transport.factor import transport_factors


@torch.no_grad()
def one_step_jacobians(replay: Replay) -> Tensor:
    """D state_t / d state_{t-1} at every step, (time, batch, states, states).

    The states are the hidden units, and for an LSTM the hidden units followed by the cells.
    """
    width = replay.hidden.shape[-1]
    states = width if replay.output_gate is None else 2 * width
    basis = torch.eye(states, dtype=replay.hidden.dtype, device=replay.hidden.device)
    return push_forward(replay, basis[:, None, None]).permute(1, 2, 3, 0)


@torch.no_grad()
def push_forward(replay: Replay, change: Tensor) -> Tensor:
    """The change of each new state after `change` of the previous one, without forming a Jacobian.

    Parameters
    ----------
    replay : Replay
    change : (..., time, batch, states) tensor
        Time and batch may be 1 and are then broadcast.
    """
    out = change.new_zeros(*change.shape[:-3], *replay.hidden.shape[:2], change.shape[-1])
    replay.step_map()(change, out)
    return out


def unit_directions(
    layer: RecurrentLayer | SteppedLayer, directions: int, *, generator: torch.Generator
) -> dict[str, Tensor]:
    """Random unit vectors over all parameters of a recurrent layer, uniform on the sphere.

    Sampled on the CPU in double precision, so that a seed gives the same directions for any precision and device.

    Parameters
    ----------
    layer : RecurrentLayer
    directions : int
    generator : torch.Generator
        On the CPU.

    Returns
    -------
    dict of (directions, *shape) tensors, by parameter name
    """
    sizes = [value.numel() for value in layer.parameters.values()]
    vectors = torch.randn(directions, sum(sizes), dtype=torch.float64, generator=generator)
    vectors /= vectors.norm(dim=1, keepdim=True)
    parts = torch.split(vectors, sizes, dim=1)
    return {
        name: part.reshape(directions, *value.shape).to(value)
        for (name, value), part in zip(layer.parameters.items(), parts, strict=True)
    }


@torch.no_grad()
def sensitivities(replay: Replay, directions: Mapping[str, Tensor]) -> Tensor:
    """<b_q, w>: the immediate derivative of every transported state along each direction.

    The previous state is held fixed; for an LSTM the states are the cells. The cost is a few matrix products.

    Parameters
    ----------
    replay : Replay
    directions : dict of (directions, *shape) tensors
        As from `unit_directions`.

    Returns
    -------
    (directions, time, batch, hidden) tensor
    """
    return torch.stack([replay.sensitivity(direction) for direction in _each(directions)])


@torch.no_grad()
def state_sensitivities(replay: Replay, directions: Mapping[str, Tensor], transported: Tensor | None = None) -> Tensor:
    """Immediate derivatives of all states along each direction: for an LSTM of the hidden units, then of the cells.

    `transported` are the `sensitivities`, if they are known already.
    """
    if transported is None:
        transported = sensitivities(replay, directions)
    gate = replay.output_gate
    if gate is None:
        return transported
    output = torch.stack([pathway_sensitivity((gate.pathway,), direction) for direction in _each(directions)])
    return torch.cat([gate.slope * transported + output, transported], -1)


def _each(directions: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    k = next(iter(directions.values())).shape[0]
    return [{name: value[index] for name, value in directions.items()} for index in range(k)]


@torch.no_grad()
def forward_gradients(replay: Replay, derivatives: Tensor, deltas: Tensor) -> FloatArray:
    """The exact gradient of every sequence's loss by the layer's parameters, along each direction.

    Carries the derivative of all states along each direction forward in time. It equals backpropagation through time
    (all lags together), but gives one number per sequence instead of one gradient for all.

    Parameters
    ----------
    replay : Replay
        Best of many sequences, because the steps are computed one by one.
    derivatives : (directions, time, batch, states) tensor
        Immediate derivatives from `state_sensitivities`. They are overwritten by the total derivatives.
    deltas : (batch, time, hidden) tensor

    Returns
    -------
    (directions, batch) array

    Notes
    -----
    Implements: livi2025 Eq. (3)
    """
    errors = deltas.transpose(0, 1).contiguous()
    steps = derivatives.unbind(1)
    for step, before, now in zip(replay.step_maps()[1:], steps, steps[1:], strict=False):
        step(before, now)
    hidden = derivatives[..., : replay.hidden.shape[2]]
    totals = errors.new_empty(len(derivatives), *errors.shape[1:])
    for total, one in zip(totals, hidden, strict=True):
        sum_over_steps(total, one, errors)
    return totals.sum(2, dtype=torch.float64).cpu().numpy()


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
    replay: Replay, lags: Sequence[int], *, rates: Tensor | float = 1.0, probes: int | None = None, seed: int = 0
) -> ExactTransport:
    """Mean size of the exact transport at each lag, over sequences and times.

    Parameters
    ----------
    replay : Replay
    lags : sequence of int
    rates : (time, batch, hidden) or (lags, time, batch, hidden) tensor, or float
        Base rates, the same for all lags or one set for each; nan counts as 0.
    probes : int, optional
        Number of random units whose columns of M are computed, without forming a Jacobian; all units by default. It
        costs about 2 probes hidden^2 operations per step and sequence times the longest lag. Full columns are used
        because the size of a noisy estimate of M_qq would be biased upwards.
    seed : int
        Of the choice of units.
    """
    steps, batch, width = replay.hidden.shape
    units, parts = torch.arange(width), _dense(replay, lags)
    if probes is not None:
        units = torch.randperm(width, generator=torch.Generator().manual_seed(seed))[:probes].sort().values
        parts = _probed(replay, lags, units)
    # Sums over windows: |M_qq|, and |M_qq| times the rates.
    sums = torch.zeros(2, len(lags), len(units), dtype=torch.float64)
    weights = torch.as_tensor(rates, dtype=torch.float64).nan_to_num(0.0).cpu()
    weights = weights.expand(*weights.shape[:-3], steps, batch, width)[..., units]
    weights = weights.expand(len(lags), steps, batch, len(units))
    for row, entries in enumerate(parts):
        size = entries.abs().cpu()
        sums[0, row] = size.sum((0, 1))
        sums[1, row] = (size * weights[row, : len(size)]).sum((0, 1))
    windows = np.array([(steps - lag) * batch for lag in lags], dtype=np.int64)
    diagonal, effective = np.asarray(sums) / windows[:, None]
    return ExactTransport(diagonal, width, effective)


def _dense(replay: Replay, lags: Sequence[int]) -> Iterator[Tensor]:
    """Yield M_qq (windows, batch, units) of all units for each lag."""
    width = replay.hidden.shape[2]
    product = jacobians = one_step_jacobians(replay)[1:].double()
    for lag in range(1, lags[-1] + 1):
        if lag > 1:
            product = jacobians[lag - 1 :] @ product[:-1]
        if lag in lags:  # the full matrix, or from cell to hidden state
            yield product[..., :width, -width:].diagonal(dim1=2, dim2=3)


def _probed(replay: Replay, lags: Sequence[int], units: Tensor) -> Iterator[Tensor]:
    """Yield the values of `_dense` for some of the units."""
    steps, batch, width = replay.hidden.shape
    columns = torch.nn.functional.one_hot(units, width)[:, None, None]
    change = columns.expand(len(units), steps, batch, width).to(replay.hidden)
    if replay.output_gate is not None:
        change = torch.cat([torch.zeros_like(change), change], -1)
    logarithm = 0.0
    for lag in range(1, lags[-1] + 1):
        # Entry [t] is the window that ends at t, so one more step is a shift in time.
        change = push_forward(replay, change.roll(1, dims=1))
        change[:, :lag] = 0  # windows without a source must not set the scale
        scale = float(change.abs().max()) or 1.0
        change /= scale  # unscaled, the product would leave the range of single precision
        logarithm += float(np.log(scale))
        if lag in lags:
            hidden, factor = change[:, lag:, :, :width], float(np.exp(logarithm))
            diagonal = torch.stack([hidden[j, ..., unit] for j, unit in enumerate(units.tolist())], -1)
            yield factor * diagonal.double()


@torch.no_grad()
def gradient_terms(
    model: nn.Module, inputs: ArrayLike, targets: ArrayLike, lags: Sequence[int], *, seed: int
) -> Iterator[tuple[int, FloatArray]]:
    """Yield each lag with the terms of the gradient of half the squared error along one random direction.

    The mean of the terms over the steps of a sequence, summed over units, is its contribution in `lag_sums` with rates
    of 1.

    Parameters
    ----------
    model : torch.nn.Module
        With one recurrent layer.
    inputs, targets : (sequences, steps, channels)
    lags : sequence of int
    seed : int
        Seed of the direction.

    Yields
    ------
    lag : int
    terms : (steps - lag, sequences)
    """
    like = next(model.parameters())
    seen = capture(model, like.new_tensor(inputs), like.new_tensor(targets), half_squared_error)
    replay, deltas = seen.replay(), seen.deltas[0].transpose(0, 1)
    along = unit_directions(seen.layers[0], 1, generator=torch.Generator().manual_seed(seed))
    sources = sensitivities(replay, along)[0]
    for lag, _, factor in transport_factors(replay, list(lags)):
        terms = (deltas[lag:] * factor * sources[: len(sources) - lag]).sum(-1)
        yield lag, terms.double().cpu().numpy()
