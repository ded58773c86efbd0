"""Exact derivatives of one step of a recurrent layer, by its previous state or by its parameters."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from learncast.windows.replay.recurrent_layer import RecurrentLayer
from learncast.windows.replay.replay import Replay, answer_of
from learncast.windows.replay.stepped import SteppedLayer


@torch.no_grad()
def one_step_jacobians(replay: Replay) -> Tensor:
    """D state_t / d state_{t-1} at every step, (time, batch, states, states).

    The states are the hidden units, and for an LSTM the hidden units followed by the cells.
    """
    width = replay.hidden.shape[-1]
    states = width if replay.expression is None else 2 * width
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
    found = change.new_zeros(*change.shape[:-3], *replay.hidden.shape[:2], change.shape[-1])
    replay.transition()(change, found)
    return found


def unit_directions(
    layer: RecurrentLayer | SteppedLayer, directions: int, *, generator: torch.Generator
) -> dict[str, Tensor]:
    """Random unit vectors over all parameters of a recurrent layer, uniform on the sphere.

    Drawn on the CPU in double precision, so that a seed means the same directions for any precision and device.

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
    drawn = torch.randn(directions, sum(sizes), dtype=torch.float64, generator=generator)
    drawn /= drawn.norm(dim=1, keepdim=True)
    parts = torch.tensor_split(drawn, torch.tensor(sizes).cumsum(0)[:-1], dim=1)
    return {
        name: part.reshape(directions, *value.shape).to(value)
        for (name, value), part in zip(layer.parameters.items(), parts, strict=True)
    }


@torch.no_grad()
def sensitivities(replay: Replay, directions: Mapping[str, Tensor]) -> Tensor:
    """<b_q, w>: the immediate answer of every transported state to each direction.

    The previous state is held fixed; an LSTM answers with its cells. A few matrix products, no differentiation.

    Parameters
    ----------
    replay : Replay
    directions : dict of (directions, *shape) tensors
        As from `unit_directions`.

    Returns
    -------
    (directions, time, batch, hidden) tensor
    """
    return torch.stack([replay.answer(values) for values in _one_by_one(directions)])


@torch.no_grad()
def state_sensitivities(replay: Replay, directions: Mapping[str, Tensor]) -> Tensor:
    """As `sensitivities`, of the whole state: for an LSTM the hidden units followed by the cells."""
    return whole_state(replay, sensitivities(replay, directions), directions)


@torch.no_grad()
def whole_state(replay: Replay, answers: Tensor, directions: Mapping[str, Tensor]) -> Tensor:
    """`state_sensitivities`, when the `sensitivities` are known."""
    if replay.expression is None:
        return answers
    output = torch.stack([answer_of((replay.expression.output,), values) for values in _one_by_one(directions)])
    return torch.cat([replay.expression.slope * answers + output, answers], -1)


def _one_by_one(directions: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    k = next(iter(directions.values())).shape[0]
    return [{name: value[index] for name, value in directions.items()} for index in range(k)]
