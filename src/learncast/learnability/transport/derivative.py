"""Exact derivatives of one step of a recurrent layer, by its previous state or by its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from learncast.learnability.replay.recurrent_layer import RecurrentLayer
from learncast.learnability.replay.replay import Path, Replay, affine, unchanged


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
    shown = () if replay.expression is None else (replay.expression.slope, replay.expression.output)
    Step(replay.direct, replay.recurrent_paths, *shown)(change, found)
    return found


def step_maps(replay: Replay) -> list[Step]:
    """For every step a function that adds `push_forward` of its first argument, (..., batch, states), to its second.

    Everything is cut into steps beforehand: a step that is taken alone is too short to cut it anew.
    """
    cuts: list[Any] = [replay.direct.unbind(), zip(*(path.steps() for path in replay.recurrent_paths), strict=True)]
    if replay.expression is not None:
        cuts += [replay.expression.slope.unbind(), replay.expression.output.steps()]
    return [Step(*cut) for cut in zip(*cuts, strict=True)]


class Step(NamedTuple):
    """One step, or all at once: what a change of the previous state does to the new one.

    `slope` and `output` are those of an LSTM's `Expression`, whose states are the hidden units and then the cells.
    """

    direct: Tensor
    paths: tuple[Path, ...]
    slope: Tensor | None = None
    output: Path | None = None

    def __call__(self, change: Tensor, found: Tensor) -> None:
        """Add the pushed change to `found`."""
        if self.slope is None or self.output is None:
            found.addcmul_(self.direct, change)
            for path in self.paths:
                path.add_push(change, found)
            return
        hidden, cell = change.chunk(2, -1)
        shown, moved = found.chunk(2, -1)
        pushed = self.direct * cell
        for path in self.paths:
            path.add_push(hidden, pushed)
        moved += pushed
        shown.addcmul_(self.slope, pushed)
        self.output.add_push(hidden, shown)


def unit_directions(layer: RecurrentLayer, directions: int, *, generator: torch.Generator) -> dict[str, Tensor]:
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
    return torch.stack([_answer(replay.paths, values) for values in _one_by_one(directions)])


@torch.no_grad()
def state_sensitivities(replay: Replay, directions: Mapping[str, Tensor]) -> Tensor:
    """As `sensitivities`, of the whole state: for an LSTM the hidden units followed by the cells."""
    return whole_state(replay, sensitivities(replay, directions), directions)


@torch.no_grad()
def whole_state(replay: Replay, answers: Tensor, directions: Mapping[str, Tensor]) -> Tensor:
    """`state_sensitivities`, when the `sensitivities` are known."""
    if replay.expression is None:
        return answers
    output = torch.stack([_answer((replay.expression.output,), values) for values in _one_by_one(directions)])
    return torch.cat([replay.expression.slope * answers + output, answers], -1)


def _answer(paths: tuple[Path, ...], values: Mapping[str, Tensor]) -> Tensor:
    first, *others = paths
    total = first.apply(affine(first.terms, values, square=unchanged))
    for path in others:
        total += path.apply(affine(path.terms, values, square=unchanged))
    return total


def _one_by_one(directions: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    k = next(iter(directions.values())).shape[0]
    return [{name: value[index] for name, value in directions.items()} for index in range(k)]
