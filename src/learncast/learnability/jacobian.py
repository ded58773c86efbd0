"""Exact derivatives of one step of a recurrent layer."""

from __future__ import annotations

import torch
from torch import Tensor

from learncast.learnability.replay import Replay


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
    if replay.expression is None:
        moved = replay.direct * change
        for path in replay.paths:
            if path.recurrent is not None:
                moved = moved + path.push(change)
        return moved
    hidden, cell = change.chunk(2, -1)
    cell = replay.direct * cell
    for path in replay.paths:
        if path.recurrent is not None:
            cell = cell + path.push(hidden)
    return torch.cat([replay.expression.slope * cell + replay.expression.output.push(hidden), cell], -1)
