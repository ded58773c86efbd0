"""The step size an optimiser really takes along the direction in which each unit learns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, optim

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast.windows.replay.replay import Replay

KNOWN: tuple[type[optim.Optimizer], ...] = (optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop)


def parameter_rates(optimizer: optim.Optimizer, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The step each parameter takes per unit of (averaged) gradient, from the optimiser's state.

    SGD, with or without momentum: the learning rate. Adam and AdamW: lr / (sqrt(v / (1 - beta2^k)) + eps), RMSprop:
    lr / (sqrt(v) + eps), v the running square of the gradient. Weight decay is left out, since it is not a step along
    the gradient. A parameter that the optimiser does not hold, or that is frozen, never moves: its rate is 0.

    Parameters
    ----------
    optimizer : torch.optim.SGD, Adam, AdamW or RMSprop
        After at least one step, unless it is SGD.
    parameters : dict of parameters
        The model's own, as in `RecurrentLayer.own`.

    Returns
    -------
    dict of tensors shaped like the parameters
    """
    if type(optimizer) not in KNOWN:
        raise UnsupportedModel(
            f"the optimiser must be one of {', '.join(kind.__name__ for kind in KNOWN)}, got "
            f"{type(optimizer).__name__}."
        )
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    if not any(id(p) in groups for p in parameters.values()):
        raise InvalidSpec(
            "the optimiser must hold the recurrent parameters, got an optimiser without any of "
            f"{', '.join(parameters)}."
        )
    return {
        name: _rates(optimizer, name, p, groups[id(p)])
        if id(p) in groups and p.requires_grad
        else torch.zeros_like(p, requires_grad=False)
        for name, p in parameters.items()
    }


def _rates(optimizer: optim.Optimizer, name: str, parameter: Tensor, group: dict[str, Any]) -> Tensor:
    if group.get("maximize"):
        raise UnsupportedModel("the optimiser must descend, got maximize=True.")
    rate = float(group["lr"])
    if type(optimizer) is optim.SGD:
        return torch.full_like(parameter, rate, requires_grad=False)
    state = optimizer.state.get(parameter)
    if not state:
        raise InvalidSpec(
            f"{type(optimizer).__name__} must have taken a step on {name}, got an optimiser without state for "
            "it. Train for at least one step first, or load the optimiser's state_dict."
        )
    return (rate / (_root(type(optimizer), state, group) + float(group["eps"]))).to(parameter)


def _root(kind: type[optim.Optimizer], state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    """The root of the running square, as the optimiser divides by it, in double precision."""
    if kind is optim.RMSprop:
        square = state["square_avg"].double()
        if group["centered"]:
            square = square - state["grad_avg"].double() ** 2
        return square.sqrt()
    square = state["max_exp_avg_sq" if group["amsgrad"] else "exp_avg_sq"].double()
    correction = 1 - float(group["betas"][1]) ** float(state["step"])
    return (square / correction).sqrt()


@torch.no_grad()
def base_rates(replay: Replay, rates: Mapping[str, Tensor]) -> Tensor:
    """The step an optimiser takes along each unit's own direction b: b^T Lambda b / b^T b.

    b is the immediate derivative of the transported state (for an LSTM the cell) by all parameters of the layer, and it
    is never formed: its entries are local, so both sums are products of matrices. The rate lies between the smallest
    and the largest of `rates` (Eq. 65), and is their common value when all are equal, as for SGD (Eq. 5). Where b is 0,
    or too small to square, there is no direction and the rate is nan.

    Parameters
    ----------
    replay : Replay
    rates : dict of tensors
        From `parameter_rates`.

    Returns
    -------
    (time, batch, hidden) tensor

    Notes
    -----
    Implements: livi2025 Eq. (7)
    """
    common = _common_rate(rates)
    if common is not None:
        return torch.full_like(replay.hidden, common)
    power, moved = replay.squares(rates)
    info = torch.finfo(power.dtype)
    # Below this bound the squares have lost digits to underflow.
    return torch.where(power > info.tiny / info.eps, moved / power, torch.nan)


def _common_rate(rates: Mapping[str, Tensor]) -> float | None:
    """The one rate of all parameters (Eq. 5), None when they differ."""
    low = min(float(rate.min()) for rate in rates.values())
    return low if low == max(float(rate.max()) for rate in rates.values()) else None
