"""Exact derivatives of one step of a recurrent layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from learncast.learnability.replay import Path, Replay


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


def step_maps(replay: Replay) -> Sequence[StateStep | CellStep]:
    """For every step a function that adds `push_forward` of its first argument, (..., batch, states), to its second.

    Everything is cut into steps beforehand: a step that is taken alone is too short to cut it anew.
    """
    paths = [path.steps() for path in replay.paths if path.recurrent is not None]
    if replay.expression is None:
        return [StateStep(*cut) for cut in zip(replay.direct.unbind(), zip(*paths, strict=True), strict=True)]
    slopes, output = replay.expression.slope.unbind(), replay.expression.output.steps()
    cuts = zip(replay.direct.unbind(), zip(*paths, strict=True), slopes, output, strict=True)
    return [CellStep(*cut) for cut in cuts]


class StateStep(NamedTuple):
    """One step of a cell whose states are its hidden units."""

    direct: Tensor
    paths: tuple[Path, ...]

    def __call__(self, change: Tensor, found: Tensor) -> None:
        """Add the pushed change to `found`."""
        found.addcmul_(self.direct, change)
        for path in self.paths:
            path.add_push(change, found)


class CellStep(NamedTuple):
    """One step of an LSTM."""

    direct: Tensor
    paths: tuple[Path, ...]
    slope: Tensor
    output: Path

    def __call__(self, change: Tensor, found: Tensor) -> None:
        """Add the pushed change to `found`."""
        hidden, cell = change.chunk(2, -1)
        shown, moved = found.chunk(2, -1)
        pushed = self.direct * cell
        for path in self.paths:
            path.add_push(hidden, pushed)
        moved += pushed
        shown.addcmul_(self.slope, pushed)
        self.output.add_push(hidden, shown)
