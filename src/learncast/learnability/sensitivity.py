"""How strongly each unit answers, at once, to a move of the recurrent parameters in a given direction."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from learncast.learnability.affine_map import affine, unchanged
from learncast.learnability.recurrent_layer import RecurrentLayer
from learncast.learnability.replay import Path, Replay
from learncast.validation import count


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
    k = count("directions", directions, why="a projection needs at least one direction")
    sizes = [value.numel() for value in layer.parameters.values()]
    drawn = torch.randn(k, sum(sizes), dtype=torch.float64, generator=generator)
    drawn /= drawn.norm(dim=1, keepdim=True)
    parts = torch.tensor_split(drawn, torch.tensor(sizes).cumsum(0)[:-1], dim=1)
    return {
        name: part.reshape(k, *value.shape).to(value)
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
    replay.require_values("directions", directions)
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
