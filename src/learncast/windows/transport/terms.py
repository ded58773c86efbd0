"""Single terms of a gradient by lag, before they are averaged over steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from numpy.typing import ArrayLike
from torch import nn

from learncast._core.validation import FloatArray
from learncast.windows.layers.recording import capture
from learncast.windows.sequences import half_squared_error
from learncast.windows.transport.derivative import sensitivities, unit_directions
from learncast.windows.transport.factor import transport_factors


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
