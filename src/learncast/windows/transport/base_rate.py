"""The step size of an optimiser along the direction in which each unit learns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, optim

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast.windows.layers.replay import Replay

KNOWN: tuple[type[optim.Optimizer], ...] = (optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop)

#: State or settings of an optimiser.
Settings = dict[str, Any]


def parameter_rates(
    optimizer: optim.Optimizer, parameters: Mapping[str, Tensor], first: Mapping[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """The step of each parameter per unit of (averaged) gradient, from the optimiser's state.

    SGD, with or without momentum: the learning rate. Adam and AdamW: lr / (sqrt(v / (1 - beta2^k)) + eps), RMSprop:
    lr / (sqrt(v) + eps), v the running square of the gradient. Weight decay is ignored, since it is not a step along
    the gradient. The rate of a parameter that is frozen or not held by the optimiser is 0.

    Parameters
    ----------
    optimizer : torch.optim.SGD, Adam, AdamW or RMSprop
        After at least one step, unless it is SGD or `first` is given.
    parameters : dict of parameters
        The model's own, as in `RecurrentLayer.own`.
    first : dict of tensors, optional
        Gradient of each parameter at the first step. The rates of an optimiser without a state are then those of its
        first step.

    Returns
    -------
    dict of tensors shaped like the parameters
    """
    kind = type(optimizer)
    if kind not in KNOWN:
        names = ", ".join(one.__name__ for one in KNOWN)
        raise UnsupportedModel(f"optimizer must be one of {names}, got {kind.__name__}.", field="optimizer")
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    if not any(id(p) in groups for p in parameters.values()):
        raise InvalidSpec(f"optimizer must hold at least one of {', '.join(parameters)}.", field="optimizer")
    return {
        name: _rates(optimizer, name, p, groups[id(p)], (first or {}).get(name))
        if id(p) in groups and p.requires_grad
        else torch.zeros_like(p, requires_grad=False)
        for name, p in parameters.items()
    }


def _rates(optimizer: optim.Optimizer, name: str, parameter: Tensor, group: Settings, first: Tensor | None) -> Tensor:
    if group.get("maximize"):
        raise UnsupportedModel("optimizer must minimise, got maximize=True.", field="optimizer")
    rate = float(group["lr"])
    if type(optimizer) is optim.SGD:
        return torch.full_like(parameter, rate, requires_grad=False)
    state: Settings | None = optimizer.state.get(parameter)
    if not state and first is not None:
        state = _first_state(type(optimizer), parameter, group, first.double())
    if not state:
        raise InvalidSpec(f"optimizer must have a state for {name}. Train, or load its state_dict.", field="optimizer")
    return (rate / (_root(type(optimizer), state, group) + float(group["eps"]))).to(parameter)


def _first_state(kind: type[optim.Optimizer], parameter: Tensor, group: Settings, gradient: Tensor) -> Settings:
    """The state of an optimiser after its first step."""
    if kind is not optim.AdamW:
        gradient = gradient + float(group["weight_decay"]) * parameter.detach().double()
    if kind is optim.RMSprop:
        new = 1 - float(group["alpha"])
        return {"square_avg": new * gradient**2, "grad_avg": new * gradient}
    square = (1 - float(group["betas"][1])) * gradient**2
    return {"exp_avg_sq": square, "max_exp_avg_sq": square, "step": 1}


def _root(kind: type[optim.Optimizer], state: Settings, group: Settings) -> Tensor:
    """The root of the running square by which the optimiser divides, in double precision."""
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
    """The step size of an optimiser along each unit's own direction b: b^T Lambda b / b^T b.

    b is the immediate derivative of the transported state (for an LSTM the cell) by all parameters of the layer. It is
    never formed: its entries are local, so both sums are products of matrices. The rate lies between the smallest and
    the largest of `rates` (Eq. 65), and is their common value if all are equal, as for SGD (Eq. 5). If b is 0 or too
    small to square, the rate is nan.

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
    low = min(float(rate.min()) for rate in rates.values())
    high = max(float(rate.max()) for rate in rates.values())
    if low == high:  # Eq. (5)
        return torch.full_like(replay.hidden, low)
    plain, weighted = replay.squares(rates)
    info = torch.finfo(plain.dtype)
    # Below this bound the squares have lost digits to underflow.
    return torch.where(plain > info.tiny / info.eps, weighted / plain, torch.nan)
