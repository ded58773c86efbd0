"""Torch modules of described networks, optimised for training speed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from learncast._core.errors import UnsupportedModel
from learncast._core.validation import FloatArray, count, one_of
from learncast.networks.activated import Activated
from learncast.networks.deep import Deep
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import LinearNetwork, TwoLayer
from learncast.theory.dynamics.learning_problem import learned_weights
from learncast.training.cells import CELLS
from learncast.training.torch_state import own_randomness

Network = LinearRNN | TwoLayer | Deep | Activated
#: What can be trained.
Model = Network | nn.Module

#: Recurrent layers by name.
GATED: dict[str, Callable[..., nn.Module]] = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN, **CELLS}


def as_module(
    network: Network, *, learn: Sequence[str] | None = None, every_step: bool = False, dtype: torch.dtype | None = None
) -> RecurrentModule | LayeredModule:
    """Return a torch module with the weights of a described network.

    Parameters
    ----------
    network : LinearRNN, TwoLayer, Deep or Activated
    learn : sequence of str, optional
        Weights that learn: of input, recurrent and output, of first and second, or of layer1, layer2, ... By default
        all but the recurrent.
    every_step : bool
        Whether a recurrent network answers at every step or at the end.
    dtype : torch dtype
        By default float64.

    Returns
    -------
    nn.Module
        From inputs (trials, steps, inputs), or (trials, inputs) for a two-layer network, to answers.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> sorted(name for name, _ in lc.training.as_module(network).named_parameters())
    ['input_weights', 'output_weights', 'recurrent_weights']
    """
    weights, activation = (network.network, network.activation) if isinstance(network, Activated) else (network, None)
    if not isinstance(weights, LinearNetwork):
        raise UnsupportedModel(f"network must be a Network, got {type(network).__name__}.", field="network")
    names = learned_weights(weights, learn)
    kind = torch.float64 if dtype is None else dtype
    if isinstance(weights, LinearRNN):
        return RecurrentModule(weights, activation, names, every_step=every_step, dtype=kind)
    return LayeredModule(weights, activation, names, every_step=every_step, dtype=kind)


def _parameter(values: FloatArray, dtype: torch.dtype, learns: bool) -> nn.Parameter:
    return nn.Parameter(torch.tensor(np.asarray(values), dtype=dtype), requires_grad=learns)


class LayeredModule(nn.Module):
    """y = W_L f(... W_1 z), for inputs (trials, inputs) or (trials, steps, inputs), with the pooled input z."""

    def __init__(
        self,
        network: TwoLayer | Deep,
        activation: str | None,
        learn: Sequence[str],
        *,
        every_step: bool,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.activation, self.every_step = activation, every_step
        self.recurrence = network.recurrence if isinstance(network, Deep) else None
        for name, w in network.named_weights.items():
            self.register_parameter(name, _parameter(w, dtype, name in learn))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return answers (trials, outputs), or (trials, steps, outputs) at every step."""
        x = x[:, None] if x.ndim == 2 else x
        pooled = [x[:, 0]]
        for t in range(1, x.shape[1]):
            pooled.append((self.recurrence or 0.0) * pooled[-1] + x[:, t])
        first, *rest = self.weights.values()
        answer = (torch.stack(pooled, dim=1) if self.every_step else pooled[-1]) @ first.T
        for w in rest:
            answer = (answer if self.activation is None else getattr(answer, self.activation)()) @ w.T
        return answer

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        """Weights by name."""
        return dict(self.named_parameters())

    def described(self) -> TwoLayer | Deep:
        """Return the network with the current weights."""
        weights = [w.detach().double().numpy() for w in self.parameters()]
        return TwoLayer(*weights) if "first" in self.weights else Deep(tuple(weights), self.recurrence)


class RecurrentModule(nn.Module):
    """h_t = f(W_h h_{t-1} + W_x x_t), y_t = W_y h_t, for inputs (trials, steps, inputs).

    A linear network is applied through its impulse response W_y W_h^k W_x, which needs one matrix product over trials.
    A fixed diagonal recurrence acts on each unit, and units without input and output weights are left out.
    """

    def __init__(
        self, network: LinearRNN, activation: str | None, learn: Sequence[str], *, every_step: bool, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.activation, self.every_step = activation, every_step
        W_x, W_h, W_y = network.input_weights, network.recurrent_weights, network.output_weights
        self.diagonal = "recurrent" not in learn and bool(np.array_equal(W_h, np.diag(np.diagonal(W_h))))
        live = (W_x != 0).any(axis=1) | (W_y != 0).any(axis=0)
        self._network, self._live = network, np.flatnonzero(live | (not self.diagonal))
        self.input_weights = _parameter(W_x[self._live], dtype, "input" in learn)
        self.output_weights = _parameter(W_y[:, self._live], dtype, "output" in learn)
        kept = np.diagonal(W_h)[self._live] if self.diagonal else W_h
        self.recurrent_weights = _parameter(kept, dtype, "recurrent" in learn)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return answers (trials, outputs), or (trials, steps, outputs) at every step."""
        if self.activation is None and x.shape[2] <= len(x):
            return self._filtered(x)
        hidden = self._hidden(x)
        return (hidden if self.every_step else hidden[:, -1]) @ self.output_weights.T

    def _filtered(self, x: torch.Tensor) -> torch.Tensor:
        """Return the answers of a linear network, by its impulse response."""
        trials, steps, inputs = x.shape
        response = torch.matmul(self.output_weights, self._powers(steps))  # (lags, outputs, inputs)
        outputs = response.shape[1]
        if not self.every_step:
            backwards = response.flip(0).permute(1, 0, 2).reshape(outputs, steps * inputs)
            return x.reshape(trials, steps * inputs) @ backwards.T
        kernel = response.flip(0).permute(1, 2, 0)
        padded = nn.functional.pad(x.transpose(1, 2), (steps - 1, 0))
        return nn.functional.conv1d(padded, kernel).transpose(1, 2)

    def _powers(self, steps: int) -> torch.Tensor:
        """Return W_h^k W_x for k = 0 ... steps - 1, (lags, hidden, inputs)."""
        if self.diagonal:
            lag = torch.arange(steps, dtype=self.input_weights.dtype)[:, None]
            return (self.recurrent_weights**lag)[:, :, None] * self.input_weights
        powers: list[torch.Tensor] = [self.input_weights]
        for _ in range(steps - 1):
            powers.append(self.recurrent_weights @ powers[-1])
        if steps == 1:  # the recurrence has no effect, and the gradient 0
            powers[0] = powers[0] + 0.0 * self.recurrent_weights.sum()
        return torch.stack(powers)

    def _hidden(self, x: torch.Tensor) -> torch.Tensor:
        """Return states (trials, steps, hidden), or (trials, 1, hidden) if only the last is read out."""
        if self.diagonal and self.activation == "relu" and x.shape[2] == 1:
            return self._scaled(x[:, :, 0])
        by_step = x.transpose(0, 1).contiguous()
        states: torch.Tensor = _Scan.apply(  # type: ignore[no-untyped-call]
            by_step, self.input_weights, self.recurrent_weights, self.activation, self.every_step
        )
        return states

    def _scaled(self, x: torch.Tensor) -> torch.Tensor:
        """Return states of ReLU units with one input and fixed diagonal recurrence.

        A unit's response is |a| times the response to an input weight of +-1. Units with the same sign and recurrence
        share that response, which does not depend on the weights, so no backpropagation through time is needed.
        """
        a = self.input_weights[:, 0]
        signs, b = a.detach().sign(), self.recurrent_weights
        kinds, of_unit = torch.unique(torch.stack([signs, b]), dim=1, return_inverse=True)
        sign, recurrence = kinds.numpy()
        # numpy, because no gradient is needed here and its calls have less overhead.
        drive = x.detach().numpy().T[:, :, None] * sign
        response, states = np.zeros_like(drive[0]), []
        for now in drive:
            response *= recurrence
            response += now
            np.maximum(response, 0.0, out=response)
            if self.every_step:
                states.append(response.copy())
        shared = torch.as_tensor(np.stack(states, axis=1) if self.every_step else response[:, None])
        return a.abs() * shared[:, :, of_unit]

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        """Weights by name, without silent units."""
        return {"input": self.input_weights, "recurrent": self.recurrent_weights, "output": self.output_weights}

    def described(self) -> LinearRNN:
        """Return the network with the current weights, including silent units."""
        W_x, W_h, W_y = (w.detach().double().numpy() for w in self.weights.values())
        old = self._network
        if not self.diagonal:
            return LinearRNN(W_x, W_h, W_y)
        inputs, outputs = np.zeros_like(old.input_weights), np.zeros_like(old.output_weights)
        inputs[self._live], outputs[:, self._live] = W_x, W_y
        return LinearRNN(inputs, old.recurrent_weights, outputs)


class _Scan(torch.autograd.Function):
    """h_t = f(recurrence of h_{t-1} + W_x x_t) over all steps, with an explicit gradient.

    The recurrence is a matrix, or one fixed number per unit. Autograd would keep a graph node per step and operation;
    here each step is a few in-place operations.
    """

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, W_x: torch.Tensor, recurrence: torch.Tensor, activation: str | None, every_step: bool
    ) -> torch.Tensor:
        """Return states (trials, steps, hidden) from inputs (steps, trials, inputs)."""
        states, hidden = x.new_empty(*x.shape[:2], len(W_x)), x.new_zeros(x.shape[1], len(W_x))
        step, combine = (recurrence.T, torch.mm) if recurrence.ndim == 2 else (recurrence, torch.mul)
        for t in range(len(x)):
            hidden = combine(hidden, step, out=states[t]).addmm_(x[t], W_x.T)
            if activation is not None:
                getattr(hidden, f"{activation}_")()
        ctx.save_for_backward(states, x, W_x, recurrence)
        ctx.activation, ctx.every_step = activation, every_step
        return (states if every_step else states[-1:]).transpose(0, 1)

    @staticmethod
    def backward(ctx: Any, *given: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return gradients of the input weights and of the recurrent weights."""
        states, x, W_x, recurrence = ctx.saved_tensors
        above = given[0].transpose(0, 1)
        of_input, slope = torch.zeros_like(W_x), above[-1].clone()
        of_recurrent = torch.zeros_like(recurrence) if ctx.needs_input_grad[2] else None
        for t in range(len(states) - 1, -1, -1):
            if ctx.activation == "relu":
                slope.mul_(states[t] > 0)
            elif ctx.activation == "tanh":
                slope.addcmul_(slope, states[t] ** 2, value=-1)
            of_input.addmm_(slope.T, x[t])
            if t and of_recurrent is not None:
                of_recurrent.addmm_(slope.T, states[t - 1])
            if t:
                slope = slope @ recurrence if recurrence.ndim == 2 else slope.mul_(recurrence)
                if ctx.every_step:
                    slope.add_(above[t - 1])
        return None, of_input, of_recurrent, None, None


class TimeFirst(nn.Module):
    """Wraps a module that expects (steps, trials, inputs), so that trials come first.

    Parameters
    ----------
    module : nn.Module
        Returns (steps, trials, outputs), or (trials, outputs) at the end.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> class Reader(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layer, self.readout = torch.nn.GRU(1, 3), torch.nn.Linear(3, 2)
    ...     def forward(self, inputs):
    ...         return self.readout(self.layer(inputs)[0])
    >>> lc.training.TimeFirst(Reader())(torch.zeros(8, 20, 1)).shape
    torch.Size([8, 20, 2])
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return answers (trials, steps, outputs) or (trials, outputs)."""
        answer: torch.Tensor = self.module(x.transpose(0, 1))
        return answer.transpose(0, 1) if answer.ndim == 3 else answer


class GatedModule(nn.Module):
    """A recurrent layer with a linear readout, for inputs (trials, steps, inputs)."""

    def __init__(self, layer: nn.Module, readout: nn.Linear, *, every_step: bool) -> None:
        super().__init__()
        self.layer, self.readout, self.every_step = layer, readout, every_step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return answers (trials, outputs), or (trials, steps, outputs) at every step."""
        hidden = self.layer(x)[0]
        answer: torch.Tensor = self.readout(hidden if self.every_step else hidden[:, -1])
        return answer


def gated_module(
    kind: str,
    *,
    inputs: int = 1,
    hidden_size: int = 64,
    outputs: int = 1,
    every_step: bool = False,
    seed: int = 0,
    **keywords: object,
) -> GatedModule:
    """Make a recurrent layer with a linear readout; torch's random state is not changed.

    Parameters
    ----------
    kind : {"gru", "lstm", "rnn", "rate", "minimal_gru", "lru"}
        Torch's layers, `RateRNN`, `MinimalGRU` or `LinearRecurrentUnit`.
    inputs, hidden_size, outputs : int
    every_step : bool
        Whether it answers at every step or at the end.
    seed : int
        Of the initial weights, which follow the layer's defaults.
    **keywords
        Of the layer, e.g. ``nonlinearity="relu"``, ``num_layers=2`` or ``alpha=0.1``.

    Returns
    -------
    nn.Module
        From inputs (trials, steps, inputs) to answers (trials, outputs), or (trials, steps, outputs) at every step. Its
        parts are `layer` and `readout`.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> model = lc.training.gated_module("gru", inputs=2, hidden_size=3, outputs=1)
    >>> model(torch.zeros(8, 20, 2)).shape
    torch.Size([8, 1])
    >>> lc.training.gated_module("rate", hidden_size=3, every_step=True, alpha=0.1)(torch.zeros(8, 20, 1)).shape
    torch.Size([8, 20, 1])
    """
    make = GATED[one_of("kind", kind, tuple(GATED))]
    sizes = [count(name, n) for name, n in (("inputs", inputs), ("hidden_size", hidden_size))]
    if kind in CELLS:
        keywords = {"seed": seed, **keywords}
    with own_randomness(seed):
        layer = make(*sizes, batch_first=True, **keywords)
        readout = nn.Linear(sizes[1], count("outputs", outputs))
    return GatedModule(layer, readout, every_step=every_step)
