"""Recurrent cells that torch does not have, each defined by one step."""

from __future__ import annotations

import inspect
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from learncast._core.errors import InvalidSpec
from learncast._core.validation import between, count, one_of, positive, real_array
from learncast.training.torch_state import own_randomness

#: Rates as functions of currents.
RATES: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "softplus": nn.functional.softplus,
    "sigmoid": torch.sigmoid,
    "linear": lambda current: current,
}


class SteppedCell(nn.Module):
    """Base class of recurrent layers that are defined by one step; used like torch's: ``states, last = layer(inputs)``.

    A subclass defines `moved`, and is trained, advised on and diagnosed (`windows.window`) like any other layer. The
    class only adds the loop over time: any module with `step`, `input_size` and `hidden_size` works.

    Parameters
    ----------
    inputs, hidden_size : int
    batch_first : bool
        Whether inputs are (trials, steps, inputs) or (steps, trials, inputs).

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> class Leaky(lc.training.SteppedCell):
    ...     def __init__(self, inputs, hidden_size):
    ...         super().__init__(inputs, hidden_size)
    ...         self.weights = torch.nn.Parameter(torch.ones(hidden_size, inputs))
    ...     def drive(self, inputs):
    ...         return inputs @ self.weights.T
    ...     def moved(self, state, drive, recurrence):
    ...         return 0.5 * state + 0.5 * drive
    >>> states, last = Leaky(1, 2)(torch.ones(1, 3, 1))
    >>> states[0].tolist()
    [[0.5, 0.5], [0.75, 0.75], [0.875, 0.875]]
    """

    def __init__(self, inputs: int, hidden_size: int, *, batch_first: bool = True) -> None:
        super().__init__()
        self.input_size, self.hidden_size = count("inputs", inputs), count("hidden_size", hidden_size)
        self.batch_first = batch_first

    def step(self, state: Tensor, input: Tensor) -> Tensor:
        """Return the next state (trials, hidden) from a state and the input (trials, inputs) of one step."""
        return self.moved(state, self.drive(input), self.recurrence())

    def drive(self, inputs: Tensor) -> Tensor:
        """Return the effect of inputs (..., inputs), computed for all steps together."""
        return inputs

    def recurrence(self) -> object:
        """Return what is the same at every step; computed once per sequence."""
        return None

    @abstractmethod
    def moved(self, state: Tensor, drive: Tensor, recurrence: object) -> Tensor:
        """Return the next state from the state and the drive of the input."""

    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return all states in the layout of the inputs, and the last state (1, trials, hidden)."""
        if input.dim() != 3 or input.shape[2] != self.input_size or 0 in input.shape:
            wanted, got = f"(trials, steps, {self.input_size})", tuple(input.shape)
            raise InvalidSpec(f"inputs must be {wanted}, got shape {got}.", field="inputs")
        drives = self.drive(input.transpose(0, 1) if self.batch_first else input)
        state = drives.new_zeros(drives.shape[1], self.hidden_size) if hx is None else hx[0]
        same, states = self.recurrence(), []
        for drive in drives.unbind():
            state = self.moved(state, drive, same)
            states.append(state)
        return torch.stack(states, 1 if self.batch_first else 0), state[None]

    def extra_repr(self) -> str:
        """Return the sizes, in torch's format."""
        return f"{self.input_size}, {self.hidden_size}, batch_first={self.batch_first}"


class FullRecurrence(nn.Module):
    """Unconstrained recurrent weights; at `gain` 1 activity neither dies out nor explodes."""

    def __init__(self, hidden_size: int, *, gain: float = 1.0) -> None:
        super().__init__()
        self.weights = nn.Parameter(gain * torch.randn(hidden_size, hidden_size) / math.sqrt(hidden_size))

    def forward(self) -> Tensor:
        """Return the weights (to, from)."""
        return self.weights


class LowRankRecurrence(nn.Module):
    """Recurrent weights of a given rank, W = M N^T / units."""

    def __init__(self, hidden_size: int, *, rank: int = 2) -> None:
        super().__init__()
        size = (hidden_size, count("rank", rank))
        self.left, self.right = (nn.Parameter(torch.randn(size)) for _ in range(2))

    def forward(self) -> Tensor:
        """Return the weights (to, from)."""
        return self.left @ self.right.T / len(self.left)


class DaleRecurrence(nn.Module):
    """Recurrent weights that obey Dale's law: all outputs of a unit have one sign, W = |V| diag(signs).

    Parameters
    ----------
    hidden_size : int
    excitatory : float
        Share of excitatory units, which come first. The inhibitory weights are scaled so that the two balance at the
        start.
    gain : float
    """

    signs: Tensor

    def __init__(self, hidden_size: int, *, excitatory: float = 0.8, gain: float = 1.0) -> None:
        super().__init__()
        first = round(hidden_size * between("excitatory", excitatory, 0.0, 1.0))
        signs, size = torch.ones(hidden_size), torch.ones(hidden_size)
        signs[first:] = -1.0
        if 0 < first < hidden_size:
            size[first:] = first / (hidden_size - first)
        weights = torch.randn(hidden_size, hidden_size).abs() * size
        weights *= gain * math.sqrt(hidden_size) / float(weights.norm())
        self.weights = nn.Parameter(weights)
        self.register_buffer("signs", signs)

    def forward(self) -> Tensor:
        """Return the weights (to, from)."""
        return self.weights.abs() * self.signs


class MaskedRecurrence(nn.Module):
    """Sparse recurrent weights W * mask, mask (to, from)."""

    mask: Tensor

    def __init__(self, hidden_size: int, *, mask: object, gain: float = 1.0) -> None:
        super().__init__()
        present = real_array("mask", mask, ndim=2)
        if present.shape != (hidden_size, hidden_size) or not np.isin(present, (0.0, 1.0)).all():
            raise InvalidSpec(f"mask must be 0 or 1 for {hidden_size} units, got {present.shape}.", field="mask")
        self.weights = nn.Parameter(
            gain * torch.randn(hidden_size, hidden_size) / math.sqrt(max(present.sum(1).mean(), 1))
        )
        self.register_buffer("mask", torch.tensor(present, dtype=self.weights.dtype))

    def forward(self) -> Tensor:
        """Return the weights (to, from)."""
        return self.weights * self.mask


#: Recurrences by name.
RECURRENCES: dict[str, type[nn.Module]] = {
    "full": FullRecurrence,
    "low_rank": LowRankRecurrence,
    "dale": DaleRecurrence,
    "masked": MaskedRecurrence,
}


class RateRNN(SteppedCell):
    """The leaky rate network, h <- (1 - a) h + a f(W h + U x + b).

    Parameters
    ----------
    inputs, hidden_size : int
    alpha : float
        Leak a of a step: step length over time constant, above 0 and at most 1.
    nonlinearity : {"tanh", "relu", "softplus", "sigmoid", "linear"}
    recurrence : {"full", "low_rank", "dale", "masked"} or nn.Module
        Kind of W; a module returns W when called without arguments.
    seed : int
        Of the initial weights.
    batch_first : bool
    **options
        Of the recurrence: gain, rank, excitatory, mask.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> layer = lc.training.RateRNN(1, 4, alpha=0.1, recurrence="dale", excitatory=0.75)
    >>> states, last = layer(torch.zeros(8, 20, 1))
    >>> states.shape, last.shape
    (torch.Size([8, 20, 4]), torch.Size([1, 8, 4]))
    >>> layer.recurrent().sign()[0].tolist()
    [1.0, 1.0, 1.0, -1.0]
    """

    def __init__(
        self,
        inputs: int,
        hidden_size: int,
        *,
        alpha: float = 0.2,
        nonlinearity: str = "relu",
        recurrence: str | nn.Module = "full",
        seed: int = 0,
        batch_first: bool = True,
        **options: object,
    ) -> None:
        super().__init__(inputs, hidden_size, batch_first=batch_first)
        self.alpha = between("alpha", alpha, 0.0, 1.0)
        positive("alpha", alpha)
        self.nonlinearity = one_of("nonlinearity", nonlinearity, tuple(RATES))
        with own_randomness(seed):
            self.input_weights = nn.Parameter(torch.randn(hidden_size, inputs) / math.sqrt(inputs))
            self.bias = nn.Parameter(torch.zeros(hidden_size))
            if isinstance(recurrence, nn.Module):
                self.recurrent = recurrence
            else:
                name = one_of("recurrence", recurrence, tuple(RECURRENCES))
                known = tuple(inspect.signature(RECURRENCES[name]).parameters)[1:]
                for option in options:
                    one_of(f"option of recurrence={name!r}", option, known)
                self.recurrent = RECURRENCES[name](hidden_size, **options)

    def drive(self, inputs: Tensor) -> Tensor:
        """Return U x + b."""
        return nn.functional.linear(inputs, self.input_weights, self.bias)

    def recurrence(self) -> object:
        """Return W transposed."""
        return self.recurrent().T

    def moved(self, state: Tensor, drive: Tensor, recurrence: Any) -> Tensor:
        """Return the next state."""
        return torch.lerp(state, RATES[self.nonlinearity](drive + state @ recurrence), self.alpha)

    def kept(self, state: Tensor, input: Tensor) -> Tensor:
        """Return the factor by which a unit keeps its state: 1 - a."""
        return torch.full_like(state, 1.0 - self.alpha)

    def extra_repr(self) -> str:
        """Return the sizes, in torch's format."""
        return f"{super().extra_repr()}, alpha={self.alpha}, nonlinearity={self.nonlinearity}"


class MinimalGRU(SteppedCell):
    """The minimal gated unit, h <- (1 - z) h + z (W x + b), z = sigmoid(V x + c).

    It has no recurrent weights, so it is linear in its state, and its memory is determined by its gates.

    Parameters
    ----------
    inputs, hidden_size : int
    gate : float
        Initial value of z at zero input: one over the number of steps that a unit remembers.
    seed : int
    batch_first : bool

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> layer = lc.training.MinimalGRU(1, 2, gate=0.1)
    >>> states, last = layer(torch.zeros(8, 20, 1))
    >>> states.shape
    torch.Size([8, 20, 2])
    >>> layer.kept(torch.ones(1, 2), torch.zeros(1, 1)).detach().numpy().round(3)
    array([[0.9, 0.9]], dtype=float32)
    """

    def __init__(
        self, inputs: int, hidden_size: int, *, gate: float = 0.2, seed: int = 0, batch_first: bool = True
    ) -> None:
        super().__init__(inputs, hidden_size, batch_first=batch_first)
        share = between("gate", gate, 1e-6, 1 - 1e-6)
        with own_randomness(seed):
            self.input_weights = nn.Parameter(torch.randn(2 * hidden_size, inputs) / math.sqrt(inputs))
            bias = torch.zeros(2 * hidden_size)
            bias[:hidden_size] = math.log(share / (1 - share))
            self.bias = nn.Parameter(bias)

    def drive(self, inputs: Tensor) -> Tensor:
        """Return the gate and the candidate, concatenated."""
        gate, candidate = nn.functional.linear(inputs, self.input_weights, self.bias).chunk(2, -1)
        return torch.cat([gate.sigmoid(), candidate], -1)

    def moved(self, state: Tensor, drive: Tensor, recurrence: object) -> Tensor:
        """Return the next state."""
        gate, candidate = drive.chunk(2, -1)
        return torch.lerp(state, candidate, gate)

    def kept(self, state: Tensor, input: Tensor) -> Tensor:
        """Return the factor by which a unit keeps its state: 1 - z."""
        return 1.0 - self.drive(input)[..., : self.hidden_size]


class LinearRecurrentUnit(SteppedCell):
    """A diagonal linear recurrence, h <- l h + sqrt(1 - l^2) (B x + b), as in state-space layers.

    Each l = exp(-exp(v)) lies between 0 and 1 for any v.

    Parameters
    ----------
    inputs, hidden_size : int
    timescales : (float, float)
        Initial memory of the fastest and the slowest unit in steps; the others are spaced evenly on a log scale.
    turning : bool
        Whether pairs of units act as complex numbers: (h, k) is multiplied by l and rotated by a learned angle.
        `hidden_size` must then be even.
    seed : int
    batch_first : bool

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> layer = lc.training.LinearRecurrentUnit(1, 3, timescales=(2, 50))
    >>> (-layer.log_rate).exp().detach().numpy().round(1)
    array([ 2., 10., 50.], dtype=float32)
    >>> states, last = layer(torch.zeros(8, 20, 1))
    >>> states.shape
    torch.Size([8, 20, 3])
    """

    def __init__(
        self,
        inputs: int,
        hidden_size: int,
        *,
        timescales: Sequence[float] = (2.0, 50.0),
        turning: bool = False,
        seed: int = 0,
        batch_first: bool = True,
    ) -> None:
        super().__init__(inputs, hidden_size, batch_first=batch_first)
        low, high = (positive("timescales", value) for value in timescales)
        if turning and hidden_size % 2:
            raise InvalidSpec(f"hidden_size must be even with turning=True, got {hidden_size}.", field="hidden_size")
        self.turning, number = turning, hidden_size // 2 if turning else hidden_size
        with own_randomness(seed):
            self.input_weights = nn.Parameter(torch.randn(hidden_size, inputs) / math.sqrt(inputs))
            self.bias = nn.Parameter(torch.zeros(hidden_size))
            times = torch.logspace(math.log10(low), math.log10(high), number)
            self.log_rate = nn.Parameter(-times.log())
            self.angle = nn.Parameter(0.1 * math.pi * torch.rand(number)) if turning else None

    def _retention(self) -> Tensor:
        return torch.exp(-self.log_rate.exp())

    def drive(self, inputs: Tensor) -> Tensor:
        """Return the input, scaled so that activity does not grow with memory."""
        kept = self._retention()
        scale = (1 - kept**2).sqrt()
        given = nn.functional.linear(inputs, self.input_weights, self.bias)
        return given * (torch.cat([scale, scale]) if self.turning else scale)

    def recurrence(self) -> object:
        """Return the factor of each unit, and of its partner if units rotate in pairs."""
        kept = self._retention()
        if self.angle is None:
            return kept, None
        along, across = kept * self.angle.cos(), kept * self.angle.sin()
        return torch.cat([along, along]), torch.cat([-across, across])

    def moved(self, state: Tensor, drive: Tensor, recurrence: Any) -> Tensor:
        """Return the next state."""
        along, across = recurrence
        if across is None:
            return torch.addcmul(drive, along, state)
        return drive + along * state + across * state.roll(self.hidden_size // 2, -1)


#: Cells by their name in `gated_module`.
CELLS: dict[str, type[SteppedCell]] = {"rate": RateRNN, "minimal_gru": MinimalGRU, "lru": LinearRecurrentUnit}
