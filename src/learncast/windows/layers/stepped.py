"""A recurrent layer of any kind that is defined by its step; derivatives are computed in forward mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TypeVar

import torch
from torch import Tensor, nn

from learncast._core.errors import UnsupportedModel
from learncast.windows.layers.replay import Replay, StateMap, check_signals

Point = TypeVar("Point", Tensor, dict[str, Tensor])

#: Numbers held at a time of the derivatives by all parameters.
_HELD = 2**24
#: Largest difference between the step's and the layer's states, relative to the largest state.
_TOLERANCE = 1e-4


def is_stepped(module: nn.Module) -> bool:
    """Whether a module has a method step(state, input) that returns the next state, and its two sizes."""
    sizes = all(isinstance(getattr(module, name, None), int) for name in ("input_size", "hidden_size"))
    return sizes and callable(getattr(module, "step", None))


@dataclass(frozen=True, eq=False, repr=False)
class SteppedLayer:
    """One recurrent layer that is defined by its step, (trials, hidden), (trials, inputs) to (trials, hidden).

    Parameters
    ----------
    cell : nn.Module
        See `is_stepped`. A method `kept` with the same arguments may give what each unit keeps of itself without any
        weights, which is the zeroth order of its transport. Otherwise that is the diagonal of the Jacobian.
    own : dict of parameters
        The parameters of this layer by their names in the model.
    prefix : str
        Common beginning of these names.
    """

    cell: nn.Module
    own: Mapping[str, nn.Parameter]
    prefix: str
    parameters: dict[str, Tensor] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", {name: value.detach() for name, value in self.own.items()})

    @property
    def kind(self) -> str:
        """Name of the cell's class."""
        return type(self.cell).__name__

    @property
    def input_size(self) -> int:
        """Number of input features."""
        return int(self.cell.input_size)  # type: ignore[arg-type]

    @property
    def hidden_size(self) -> int:
        """Number of units."""
        return int(self.cell.hidden_size)  # type: ignore[arg-type]

    def replay(self, inputs: Tensor, outputs: Tensor, initial: tuple[Tensor, ...] | None = None) -> SteppedReplay:
        """Repeat every step from the layer's inputs and outputs, with its derivatives.

        Parameters
        ----------
        inputs : (batch, time, inputs) tensor
        outputs : (batch, time, hidden) tensor
            The states.
        initial : tuple of a (batch, hidden) tensor, optional
            The state before the first step; zeros by default.
        """
        dtype = next(iter(self.parameters.values())).dtype
        check_signals(inputs, outputs, (self.input_size, self.hidden_size), dtype)
        x, h = (part.detach().transpose(0, 1).contiguous() for part in (inputs, outputs))
        start = h.new_zeros(h.shape[1:]) if initial is None else initial[0]
        before = torch.cat([start.unsqueeze(0), h[:-1]])
        with torch.no_grad():
            states = self.evaluate("step", before, x)
            kept = self.evaluate("kept", before, x) if callable(getattr(self.cell, "kept", None)) else None
        miss, largest = float((states - h).abs().max()), float(h.abs().max())
        if not miss <= _TOLERANCE * max(largest, 1e-12):
            got = f"states that differ by {miss:.2g}"
            raise UnsupportedModel(f"step of {self.kind} must agree with its forward, got {got}.", field="model")
        units = torch.eye(self.hidden_size).to(before)
        step = partial(self.evaluate, "step", inputs=x)
        jacobian = torch.stack([_derivative(step, before, unit.expand_as(before)) for unit in units], -1)
        direct = jacobian.diagonal(dim1=2, dim2=3) if kept is None else kept
        gated = kept is not None
        return SteppedReplay(
            h, lambda: states, direct, (), gated=gated, layer=self, before=before, inputs=x, jacobian=jacobian
        )

    def evaluate(
        self, method: str, before: Tensor, inputs: Tensor, values: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """Result of a method of the cell from each (..., units) state and its input, with other parameters if given."""
        parameters = self.parameters if values is None else values
        inner = {f"cell.{name.removeprefix(self.prefix)}": value for name, value in parameters.items()}
        rows = before.reshape(-1, before.shape[-1]), inputs.reshape(-1, inputs.shape[-1])
        result: Tensor = torch.func.functional_call(_MethodModule(self.cell, method), inner, rows)
        return result.reshape(*before.shape[:-1], *result.shape[1:])


def _derivative(function: Callable[[Point], Tensor], at: Point, direction: Point) -> Tensor:
    """Derivative of a function along a direction, in forward mode."""
    try:
        change: Tensor = torch.func.jvp(function, (at,), (direction,))[1]
    except NotImplementedError as error:
        got = str(error).splitlines()[0]
        raise UnsupportedModel(f"step must support forward-mode derivatives, got {got}.", field="model") from error
    return change.detach()


class _MethodModule(nn.Module):
    """A cell whose forward pass is one of its methods, so that `functional_call` can exchange its parameters."""

    def __init__(self, cell: nn.Module, method: str) -> None:
        super().__init__()
        self.cell, self.method = cell, method

    def forward(self, state: Tensor, input: Tensor) -> Tensor:
        result: Tensor = getattr(self.cell, self.method)(state, input)
        return result


@dataclass(frozen=True, eq=False, repr=False)
class SteppedReplay(Replay):
    """Replay of a layer that is defined by its step.

    Parameters
    ----------
    layer : SteppedLayer
    before, inputs : (time, batch, ...) tensors
        The state before each step, and its input.
    jacobian : (time, batch, hidden, hidden) tensor
        d state / d previous state.
    """

    layer: SteppedLayer = field(kw_only=True)
    before: Tensor = field(kw_only=True)
    inputs: Tensor = field(kw_only=True)
    jacobian: Tensor = field(kw_only=True)

    @cached_property
    def _self_coupling(self) -> Tensor:
        return self.jacobian.diagonal(dim1=2, dim2=3) - self.direct

    def step_map(self) -> StateMap:
        return partial(_add_product, self.jacobian)

    def step_maps(self) -> list[StateMap]:
        return [partial(_add_product, one) for one in self.jacobian.unbind()]

    def sensitivity(self, direction: Mapping[str, Tensor]) -> Tensor:
        step = partial(self.layer.evaluate, "step", self.before, self.inputs)
        return _derivative(step, self.layer.parameters, dict(direction))

    def squares(self, rates: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        states, inputs = self.before.flatten(0, 1), self.inputs.flatten(0, 1)
        parameters = self.layer.parameters
        size = sum(value.numel() for value in parameters.values()) * states.shape[1]

        def derivatives(state: Tensor, input: Tensor) -> dict[str, Tensor]:
            step = partial(self.layer.evaluate, "step", state, input)
            result: dict[str, Tensor] = torch.func.jacrev(step)(parameters)
            return result

        plain, weighted = [], []
        every = torch.func.vmap(derivatives)
        for rows in torch.split(torch.arange(len(states)), max(1, _HELD // max(size, 1))):
            slopes = {name: slope.detach().square() for name, slope in every(states[rows], inputs[rows]).items()}
            plain.append(sum((s.flatten(2).sum(2) for s in slopes.values()), torch.zeros(())))
            weighted.append(sum(((s * rates[name]).flatten(2).sum(2) for name, s in slopes.items()), torch.zeros(())))
        return torch.cat(plain).reshape(self.before.shape), torch.cat(weighted).reshape(self.before.shape)


def _add_product(jacobian: Tensor, change: Tensor, out: Tensor) -> None:
    """Add J v to `out`, at one step or at all steps."""
    out += (jacobian @ change.unsqueeze(-1)).squeeze(-1)
