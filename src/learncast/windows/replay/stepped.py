"""A recurrent layer of any kind, known by its step alone: its derivatives are taken in forward mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from learncast._core.errors import UnsupportedModel
from learncast.windows.replay.replay import Replay, Transition, check_signal

#: Numbers of the derivatives by all parameters that are held at a time.
_HELD = 2**24
#: Share of the largest answer by which the step may miss what the layer answered.
_SAME = 1e-4


def is_stepped(module: nn.Module) -> bool:
    """Whether a module follows the protocol: a method step(state, input) to the next state, and its two sizes."""
    sizes = all(isinstance(getattr(module, name, None), int) for name in ("input_size", "hidden_size"))
    return sizes and callable(getattr(module, "step", None))


@dataclass(frozen=True, eq=False, repr=False)
class SteppedLayer:
    """One recurrent layer, seen through its step (trials, hidden), (trials, inputs) to (trials, hidden).

    Parameters
    ----------
    cell : nn.Module
        See `is_stepped`. With a method `kept` of the same arguments it says what each unit keeps of itself past all
        weights, which is the zeroth order of its transport; without it that is the diagonal of the Jacobian.
    own : dict of parameters
        The model's own parameters of this layer, by their names in the model.
    prefix : str
        What these names begin with.
    """

    cell: nn.Module
    own: Mapping[str, nn.Parameter]
    prefix: str
    parameters: Mapping[str, Tensor] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", {name: value.detach() for name, value in self.own.items()})

    @property
    def kind(self) -> str:
        """Name of the cell's class."""
        return type(self.cell).__name__

    @property
    def input_size(self) -> int:
        """Features that enter the layer."""
        return int(self.cell.input_size)  # type: ignore[arg-type]

    @property
    def hidden_size(self) -> int:
        """Units."""
        return int(self.cell.hidden_size)  # type: ignore[arg-type]

    def replay(self, inputs: Tensor, outputs: Tensor, initial: tuple[Tensor, ...] | None = None) -> SteppedReplay:
        """Take every step again from what went into and what came out of the layer, and its derivatives.

        Parameters
        ----------
        inputs : (batch, time, inputs) tensor
        outputs : (batch, time, hidden) tensor
            The states.
        initial : tuple of a (batch, hidden) tensor, optional
            The state before the first step; zeros if left out.
        """
        dtype = next(iter(self.parameters.values())).dtype
        check_signal("inputs", inputs, self.input_size, dtype)
        check_signal("outputs", outputs, self.hidden_size, dtype)
        x, h = (part.detach().transpose(0, 1).contiguous() for part in (inputs, outputs))
        start = h.new_zeros(h.shape[1:]) if initial is None else initial[0]
        before = torch.cat([start.unsqueeze(0), h[:-1]])
        step = _Step(self.cell, self.prefix, self.parameters)
        again = step.taken(before, x)
        miss = float((again - h).abs().max())
        if not miss <= _SAME * max(float(h.abs().max()), 1e-12):
            raise UnsupportedModel(
                f"the step of {self.kind} must give the states that its forward gave, got states that differ by "
                f"{miss:.2g} where the largest is {float(h.abs().max()):.2g}. Let forward answer its states and "
                "begin at 0 (or at hx), without noise: call model.eval()."
            )
        jacobian = step.jacobian(before, x)
        kept = step.kept(before, x)
        diagonal = jacobian.diagonal(dim1=2, dim2=3)
        return SteppedReplay(
            h,
            lambda: again,
            diagonal if kept is None else kept,
            (),
            gated=kept is not None,
            jacobian=jacobian,
            before=before,
            inputs=x,
            step=step,
        )


@dataclass(frozen=True, eq=False, repr=False)
class SteppedReplay(Replay):
    """What such a layer did, with its Jacobians.

    Parameters
    ----------
    jacobian : (time, batch, hidden, hidden) tensor
        d state / d previous state.
    before, inputs : (time, batch, ...) tensors
        States before each step, and its input.
    step : _Step
    """

    jacobian: Tensor = field(default_factory=lambda: torch.empty(0))
    before: Tensor = field(default_factory=lambda: torch.empty(0))
    inputs: Tensor = field(default_factory=lambda: torch.empty(0))
    step: Any = None

    @cached_property
    def _self_coupling(self) -> Tensor:
        return self.jacobian.diagonal(dim1=2, dim2=3) - self.direct

    def transition(self) -> Transition:
        return _Push(self.jacobian)

    def transitions(self) -> list[Transition]:
        return [_Push(one) for one in self.jacobian.unbind()]

    def answer(self, values: Mapping[str, Tensor]) -> Tensor:
        return self.step.answer(self.before, self.inputs, values)

    def squares(self, rates: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        return self.step.squares(self.before, self.inputs, rates)

    def take(self, sequences: slice = slice(None), *, steps: slice = slice(None)) -> SteppedReplay:
        where = (steps, sequences)
        parts = {name: getattr(self, name)[where] for name in ("hidden", "direct", "jacobian", "before", "inputs")}
        return replace(self, reproduce=lambda: self.reproduce()[where], **parts)


class _Push:
    """Adds J v to what is found, at one step or at all."""

    def __init__(self, jacobian: Tensor) -> None:
        self.jacobian = jacobian

    def __call__(self, change: Tensor, found: Tensor) -> None:
        found += (self.jacobian @ change.unsqueeze(-1)).squeeze(-1)


class _Stepping(nn.Module):
    """The cell with its step for a forward pass, so that its parameters can be exchanged for others."""

    def __init__(self, cell: nn.Module, method: str) -> None:
        super().__init__()
        self.cell, self.method = cell, method

    def forward(self, state: Tensor, input: Tensor) -> Tensor:
        found: Tensor = getattr(self.cell, self.method)(state, input)
        return found


@dataclass(frozen=True, eq=False)
class _Step:
    """The step of a cell as a function of its parameters, a state and an input."""

    cell: nn.Module
    prefix: str
    parameters: Mapping[str, Tensor]

    def __call__(self, values: Mapping[str, Tensor], state: Tensor, input: Tensor, method: str = "step") -> Tensor:
        inner = {f"cell.{name.removeprefix(self.prefix)}": value for name, value in values.items()}
        found: Tensor = torch.func.functional_call(_Stepping(self.cell, method), inner, (state, input))
        return found

    @torch.no_grad()
    def taken(self, before: Tensor, inputs: Tensor) -> Tensor:
        """All steps at once: each begins at a state that is known."""
        return self._rows(before, inputs, lambda state, input: self(self.parameters, state, input))

    @torch.no_grad()
    def kept(self, before: Tensor, inputs: Tensor) -> Tensor | None:
        """What units keep of themselves past all weights, where the cell says it."""
        if not callable(getattr(self.cell, "kept", None)):
            return None
        return self._rows(before, inputs, lambda state, input: self(self.parameters, state, input, "kept"))

    def _rows(self, before: Tensor, inputs: Tensor, function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        found = function(before.flatten(0, 1), inputs.flatten(0, 1))
        return _by_step(found, before.shape[:2])

    def jacobian(self, before: Tensor, inputs: Tensor) -> Tensor:
        """D state / d previous state of every step, a column at a time."""
        states, given = before.flatten(0, 1), inputs.flatten(0, 1)
        columns = []
        for unit in range(states.shape[1]):
            direction = torch.zeros_like(states)
            direction[:, unit] = 1.0
            columns.append(self._forward(lambda state: self(self.parameters, state, given), states, direction))
        return _by_step(torch.stack(columns, -1), before.shape[:2])

    def answer(self, before: Tensor, inputs: Tensor, values: Mapping[str, Tensor]) -> Tensor:
        """The change of every new state when parameters move along `values`, the previous state held."""
        states, given = before.flatten(0, 1), inputs.flatten(0, 1)
        found = self._forward(lambda p: self(p, states, given), dict(self.parameters), dict(values))
        return _by_step(found, before.shape[:2])

    def _forward(self, function: Callable[..., Tensor], at: Any, along: Any) -> Tensor:
        try:
            change: Tensor = torch.func.jvp(function, (at,), (along,))[1]
        except NotImplementedError as error:
            raise UnsupportedModel(
                required=f"the step of {type(self.cell).__name__} must have derivatives in forward mode",
                got=str(error).splitlines()[0],
                why="transport is the product of the steps' Jacobians",
                remedy="write it in torch's own operations, or give a custom one its jvp",
            ) from error
        return change.detach()

    def squares(self, before: Tensor, inputs: Tensor, rates: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Sums over all parameters of each unit's squared derivative, plain and times the rates."""
        states, given = before.flatten(0, 1), inputs.flatten(0, 1)
        size = sum(value.numel() for value in self.parameters.values()) * states.shape[1]

        def one(state: Tensor, input: Tensor) -> dict[str, Tensor]:
            slopes: dict[str, Tensor] = torch.func.jacrev(lambda p: self(p, state[None], input[None])[0])(
                dict(self.parameters)
            )
            return slopes

        power, moved = [], []
        every = torch.func.vmap(one)
        each = max(1, _HELD // max(size, 1))
        for first in range(0, len(states), each):
            rows = slice(first, first + each)
            slopes = {name: slope.detach().square() for name, slope in every(states[rows], given[rows]).items()}
            power.append(sum((s.flatten(2).sum(2) for s in slopes.values()), torch.zeros(())))
            moved.append(sum(((s * rates[name]).flatten(2).sum(2) for name, s in slopes.items()), torch.zeros(())))
        shape = before.shape[:2]
        return _by_step(torch.cat(power), shape), _by_step(torch.cat(moved), shape)


def _by_step(rows: Tensor, shape: torch.Size) -> Tensor:
    """Rows of all steps and sequences as (time, batch, ...)."""
    return rows.reshape(*shape, *rows.shape[1:])
