"""A recurrent layer of any kind that is defined by its step; derivatives are computed in forward mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TypeVar

import torch
from torch import Tensor, nn

from learncast._core.errors import UnsupportedModel
from learncast.windows.layers.replay import Replay, StepMap, check_signals

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
        steps = _Steps(self, before, x)
        with torch.no_grad():
            states = steps.evaluate("step")
            kept = steps.evaluate("kept") if callable(getattr(self.cell, "kept", None)) else None
        miss, largest = float((states - h).abs().max()), float(h.abs().max())
        if not miss <= _TOLERANCE * max(largest, 1e-12):
            raise UnsupportedModel(
                f"The step of {self.kind} must give the states of its forward pass, which differ by {miss:.2g}.",
                field="model",
            )
        jacobian = steps.jacobian()
        direct = jacobian.diagonal(dim1=2, dim2=3) if kept is None else kept
        return SteppedReplay(
            h,
            lambda: states,
            direct,
            (),
            gated=kept is not None,
            layer=self,
            before=before,
            inputs=x,
            jacobian=jacobian,
        )


@dataclass(frozen=True, eq=False, repr=False)
class _Steps:
    """All steps of a layer from known previous states, as functions of parameters and states.

    Parameters
    ----------
    layer : SteppedLayer
    before, inputs : (time, batch, ...) tensors
        The state before each step, and its input.
    """

    layer: SteppedLayer
    before: Tensor
    inputs: Tensor

    def evaluate(self, method: str, values: Mapping[str, Tensor] | None = None, before: Tensor | None = None) -> Tensor:
        """Result of a method of the cell at every step, with other parameters or other previous states if given."""
        rows = (self.before if before is None else before).flatten(0, 1), self.inputs.flatten(0, 1)
        result = self._call(method, self.layer.parameters if values is None else values, *rows)
        return result.reshape(*self.before.shape[:2], *result.shape[1:])

    def _call(self, method: str, values: Mapping[str, Tensor], state: Tensor, input: Tensor) -> Tensor:
        inner = {f"cell.{name.removeprefix(self.layer.prefix)}": value for name, value in values.items()}
        result: Tensor = torch.func.functional_call(_MethodModule(self.layer.cell, method), inner, (state, input))
        return result

    def jacobian(self) -> Tensor:
        """D state / d previous state of every step, one column at a time."""
        columns = []
        for unit in range(self.before.shape[2]):
            direction = torch.zeros_like(self.before)
            direction[..., unit] = 1.0
            columns.append(self._jvp(lambda state: self.evaluate("step", before=state), self.before, direction))
        return torch.stack(columns, -1)

    def sensitivity(self, direction: Mapping[str, Tensor]) -> Tensor:
        """Derivative of every new state along a direction of the parameters, with the previous state fixed."""
        return self._jvp(lambda values: self.evaluate("step", values), self.layer.parameters, dict(direction))

    def _jvp(self, function: Callable[[Point], Tensor], at: Point, direction: Point) -> Tensor:
        try:
            change: Tensor = torch.func.jvp(function, (at,), (direction,))[1]
        except NotImplementedError as error:
            got = str(error).splitlines()[0]
            raise UnsupportedModel(f"step must support forward-mode derivatives, got {got}.", field="model") from error
        return change.detach()

    def squares(self, rates: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Sums over all parameters of each unit's squared derivative, plain and times the rates."""
        states, inputs = self.before.flatten(0, 1), self.inputs.flatten(0, 1)
        parameters = self.layer.parameters
        size = sum(value.numel() for value in parameters.values()) * states.shape[1]

        def derivatives(state: Tensor, input: Tensor) -> dict[str, Tensor]:
            result: dict[str, Tensor] = torch.func.jacrev(
                lambda values: self._call("step", values, state[None], input[None])[0]
            )(parameters)
            return result

        plain, weighted = [], []
        every = torch.func.vmap(derivatives)
        for rows in torch.split(torch.arange(len(states)), max(1, _HELD // max(size, 1))):
            slopes = {name: slope.detach().square() for name, slope in every(states[rows], inputs[rows]).items()}
            plain.append(sum((s.flatten(2).sum(2) for s in slopes.values()), torch.zeros(())))
            weighted.append(sum(((s * rates[name]).flatten(2).sum(2) for name, s in slopes.items()), torch.zeros(())))
        return torch.cat(plain).reshape(self.before.shape), torch.cat(weighted).reshape(self.before.shape)


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

    def step_map(self) -> StepMap:
        return partial(_add_product, self.jacobian)

    def step_maps(self) -> list[StepMap]:
        return [partial(_add_product, one) for one in self.jacobian.unbind()]

    def sensitivity(self, direction: Mapping[str, Tensor]) -> Tensor:
        return _Steps(self.layer, self.before, self.inputs).sensitivity(direction)

    def squares(self, rates: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        return _Steps(self.layer, self.before, self.inputs).squares(rates)


def _add_product(jacobian: Tensor, change: Tensor, out: Tensor) -> None:
    """Add J v to `out`, at one step or at all steps."""
    out += (jacobian @ change.unsqueeze(-1)).squeeze(-1)
