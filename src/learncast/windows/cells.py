"""Gated recurrent cells with known gate equations."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from learncast._core.errors import InvalidSpec
from learncast._core.validation import between, count

#: Largest number of input projections that are computed together.
_PROJECTED = 2**18
NORM_EPSILON = 1e-5


class GatedCell(nn.Module):
    """A single recurrent layer, (batch, time, inputs) to (batch, time, hidden), that starts from a state of zero.

    The weights of all blocks (gates, candidate) are stacked by rows in the order of the class's docstring, so that the
    projections of all inputs are one matrix product and each step computes the recurrence only.

    Parameters
    ----------
    inputs, hidden : int
    generator : torch.Generator
        A CPU generator of all initial weights.
    gate : float, optional
        Initial fraction of the state that a step replaces: the constant of `ConstGate`, otherwise the value of the gate
        at zero input, set through its bias (`LSTM`: one minus the forget gate). None samples the bias at random.
    layer_norm : bool
        Normalise the candidate's pre-activation over the units.
    orthogonal : bool
        Sample every block of weights as a (semi-)orthogonal matrix instead of uniformly.
    dtype : optional
    """

    #: Rows of each block in units of `hidden`; a 0 stands for a single row.
    _blocks: tuple[int, ...] = ()
    #: Index of the block that `gate` refers to; None if it is not a parameter.
    _leak: int | None = None
    #: Whether the initial weights of that block are 0 if `gate` is given, so that the gate is the same for every input.
    _constant_at_start = False

    def __init__(
        self,
        inputs: int,
        hidden: int,
        *,
        generator: torch.Generator,
        gate: float | None = None,
        layer_norm: bool = False,
        orthogonal: bool = False,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size = count("inputs", inputs), count("hidden", hidden)
        if layer_norm and hidden < 2:
            raise InvalidSpec(f"layer_norm needs at least 2 hidden units, got {hidden}.", field="layer_norm")
        kind = dtype or torch.get_default_dtype()
        blocks = [self._sample(rows, orthogonal, generator, kind) for rows in self.block_rows()]
        if gate is not None and self._leak is not None:
            self._set_gate(blocks[self._leak], _fraction(gate))
        stacked = [torch.cat(parts) for parts in zip(*blocks, strict=True)]
        self.input_weights, self.recurrent_weights, self.bias = (nn.Parameter(part) for part in stacked)
        self.layer_norm = layer_norm
        if layer_norm:
            self.norm_gain = nn.Parameter(torch.ones(hidden, dtype=kind))
            self.norm_bias = nn.Parameter(torch.zeros(hidden, dtype=kind))

    def block_rows(self) -> list[int]:
        """Rows of each block of weights."""
        return [block * self.hidden_size or 1 for block in self._blocks]

    def _sample(self, rows: int, orthogonal: bool, generator: torch.Generator, dtype: torch.dtype) -> list[Tensor]:
        """Input weights, recurrent weights and bias of one block."""
        parts = []
        for columns in (self.input_size, self.hidden_size):
            weights = torch.empty(rows, columns, dtype=dtype)
            if orthogonal:
                nn.init.orthogonal_(weights, generator=generator)
            else:
                bound = 1 / math.sqrt(columns)
                nn.init.uniform_(weights, -bound, bound, generator=generator)
            parts.append(weights)
        bound = 1 / math.sqrt(self.hidden_size)
        return [*parts, nn.init.uniform_(torch.empty(rows, dtype=dtype), -bound, bound, generator=generator)]

    def _set_gate(self, block: list[Tensor], gate: float) -> None:
        block[2].fill_(math.log(gate / (1 - gate)))
        if self._constant_at_start:
            block[0].zero_()
            block[1].zero_()

    def _candidate(self, preactivation: Tensor) -> Tensor:
        if self.layer_norm and self.stacked:
            normal = nn.functional.layer_norm(preactivation, (self.hidden_size,), eps=NORM_EPSILON)
            preactivation = torch.addcmul(self.norm_bias[:, None], self.norm_gain[:, None], normal)
        elif self.layer_norm:
            preactivation = nn.functional.layer_norm(
                preactivation, (self.hidden_size,), self.norm_gain, self.norm_bias, NORM_EPSILON
            )
        return preactivation.tanh()

    @property
    def stacked(self) -> bool:
        """Whether parameters and inputs have a leading axis over networks (see `example_model.stack`)."""
        return self.input_weights.dim() == 3

    def forward(self, inputs: Tensor) -> Tensor:
        """The states at every step, (batch, time, hidden); of stacked networks (networks, batch, time, hidden)."""
        if inputs.dim() != 3 + self.stacked or inputs.shape[-1] != self.input_size or 0 in inputs.shape:
            wanted = f"(batch, time, {self.input_size})"
            raise InvalidSpec(f"inputs must be {wanted}, got {tuple(inputs.shape)}.", field="inputs")
        weights, states = self._recurrent(), []
        # Input projections, (time, batch, rows): of all steps in one product if gradients are needed, otherwise of as
        # many steps as fit into a core's cache.
        rows = inputs[..., 0, 0].numel() * self.input_weights.shape[-2]
        size = inputs.shape[-2] if torch.is_grad_enabled() else _PROJECTED // rows
        h = c = None
        for part in torch.split(inputs.movedim(-2, 0), max(1, size)):
            if self.stacked:
                steps = part @ self.input_weights.mT + self.bias[:, None]
            else:
                steps = nn.functional.linear(part, self.input_weights, self.bias)
            if h is None or c is None:
                h = c = steps.new_zeros(*steps.shape[1:-1], self.hidden_size)
            for step in steps.unbind():
                h, c = self._step(step, h, c, *weights)
                states.append(h)
        return torch.stack(states, -2)

    def _recurrent(self) -> tuple[Tensor, ...]:
        """The recurrent weights in the form that `_step` takes."""
        return (self.recurrent_weights.mT,)

    def _step(self, step: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
        """The next hidden state and cell (which only an LSTM has) from the projected input of a step."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """The sizes, for torch's repr."""
        return f"{self.input_size}, {self.hidden_size}, layer_norm={self.layer_norm}"


class ConstGate(GatedCell):
    """The cell h <- (1 - s) h + s tanh(W x + U h + b) with a fixed s (`gate`); its one block is the candidate.

    Parameters
    ----------
    inputs, hidden : int
    gate : float
        The constant s: the fraction of the state that a step replaces.
    **options
        ``generator`` (required), a CPU generator of the initial weights; ``layer_norm``, ``orthogonal``, ``dtype``.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> cell = lc.windows.ConstGate(1, 3, gate=0.1, generator=torch.Generator().manual_seed(0))
    >>> states = cell(torch.ones(2, 5, 1))
    >>> states.shape, bool((states[:, 0].abs() < 0.1).all())
    (torch.Size([2, 5, 3]), True)
    """

    _blocks = (1,)

    def __init__(self, inputs: int, hidden: int, *, gate: float = 0.05, **options: Any) -> None:
        super().__init__(inputs, hidden, **options)
        self.gate = _fraction(gate)

    def _step(self, step: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
        return torch.lerp(h, self._candidate(_affine(step, h, weights[0])), self.gate), c


class SharedGate(GatedCell):
    """The cell h <- (1 - s) h + s tanh(W x + U h + b) with one gate s = sigmoid(w x + u h + b) for all units.

    Blocks: gate (one row), candidate.

    Parameters
    ----------
    inputs, hidden : int
    gate : float or None
        Initial value of the gate for every input, set through its bias, with weights of 0; None samples both at random.
    **options
        ``generator`` (required), a CPU generator of the initial weights; ``layer_norm``, ``orthogonal``, ``dtype``.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> cell = lc.windows.SharedGate(1, 3, gate=0.1, generator=torch.Generator().manual_seed(0))
    >>> cell(torch.ones(2, 5, 1)).shape
    torch.Size([2, 5, 3])
    >>> cell.bias[:1].sigmoid().detach().numpy().round(3)
    array([0.1], dtype=float32)
    """

    _blocks, _leak, _constant_at_start = (0, 1), 0, True

    def __init__(self, inputs: int, hidden: int, *, gate: float | None = 0.05, **options: Any) -> None:
        super().__init__(inputs, hidden, gate=gate, **options)

    def _step(self, step: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
        gate, candidate = _affine(step, h, weights[0]).split_with_sizes(self.block_rows(), -1)
        return torch.lerp(h, self._candidate(candidate), gate.sigmoid()), c


class DiagGate(SharedGate):
    """The cell h <- (1 - s) h + s tanh(W x + U h + b) with one gate per unit; blocks: gate, candidate.

    Parameters
    ----------
    inputs, hidden : int
    gate : float or None
        Initial value of the gates for every input, set through their biases, with weights of 0; None samples both at
        random.
    **options
        ``generator`` (required), a CPU generator of the initial weights; ``layer_norm``, ``orthogonal``, ``dtype``.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> cell = lc.windows.DiagGate(1, 3, gate=0.1, generator=torch.Generator().manual_seed(0))
    >>> cell(torch.ones(2, 5, 1)).shape
    torch.Size([2, 5, 3])
    >>> cell.bias[:3].sigmoid().detach().numpy().round(3)
    array([0.1, 0.1, 0.1], dtype=float32)
    """

    _blocks = (1, 1)


class PaperGRU(GatedCell):
    """The GRU h <- (1 - z) h + z tanh(W x + U (r h) + b); blocks: update z, reset r, candidate.

    `torch.nn.GRU` swaps the roles of z and 1 - z, and lets r act on U h instead of h.

    Parameters
    ----------
    inputs, hidden : int
    generator : torch.Generator
        A CPU generator of all initial weights.
    gate : float, optional
        Initial value of z at zero input and state; None samples its bias at random.
    layer_norm : bool
        Normalise the candidate's pre-activation over the units.
    orthogonal : bool
        Sample every block of weights as a (semi-)orthogonal matrix instead of uniformly.
    dtype : optional

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> cell = lc.windows.PaperGRU(1, 3, gate=0.1, generator=torch.Generator().manual_seed(0))
    >>> cell(torch.ones(2, 5, 1)).shape
    torch.Size([2, 5, 3])
    >>> cell.bias[:3].sigmoid().detach().numpy().round(3)
    array([0.1, 0.1, 0.1], dtype=float32)
    """

    _blocks, _leak = (1, 1, 1), 0

    def _recurrent(self) -> tuple[Tensor, ...]:
        to_gates, to_candidate = self.recurrent_weights.tensor_split([2 * self.hidden_size], -2)
        return to_gates.mT, to_candidate.mT

    def _step(self, step: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
        for_gates, for_candidate = step.tensor_split([2 * self.hidden_size], -1)
        update, reset = _affine(for_gates, h, weights[0]).sigmoid().chunk(2, -1)
        return torch.lerp(h, self._candidate(_affine(for_candidate, reset * h, weights[1])), update), c


class LSTM(GatedCell):
    """The cell c <- f c + i g, h = o tanh(c); blocks: input i, forget f, candidate g, output o, as in torch.

    Parameters
    ----------
    inputs, hidden : int
    generator : torch.Generator
        A CPU generator of all initial weights.
    gate : float, optional
        Initial value of 1 - f at zero input and state; None samples the bias of f at random.
    layer_norm : bool
        Normalise the candidate's pre-activation over the units.
    orthogonal : bool
        Sample every block of weights as a (semi-)orthogonal matrix instead of uniformly.
    dtype : optional

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> cell = lc.windows.LSTM(1, 3, gate=0.1, generator=torch.Generator().manual_seed(0))
    >>> cell(torch.ones(2, 5, 1)).shape
    torch.Size([2, 5, 3])
    >>> cell.bias[3:6].sigmoid().detach().numpy().round(3)  # what the cell keeps
    array([0.9, 0.9, 0.9], dtype=float32)
    """

    _blocks, _leak = (1, 1, 1, 1), 1

    def _set_gate(self, block: list[Tensor], gate: float) -> None:
        super()._set_gate(block, 1 - gate)

    def _step(self, step: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
        entry, forget, candidate, output = _affine(step, h, weights[0]).chunk(4, -1)
        c = torch.addcmul(entry.sigmoid() * self._candidate(candidate), forget.sigmoid(), c)
        return output.sigmoid() * c.tanh(), c


def _affine(step: Tensor, h: Tensor, weights: Tensor) -> Tensor:
    """Return step + h weights, of one network or of each of a stack."""
    return torch.addmm(step, h, weights) if h.dim() == 2 else torch.baddbmm(step, h, weights)


def _fraction(gate: float) -> float:
    value = between("gate", gate, 0, 1)
    if value in (0, 1):
        raise InvalidSpec(f"gate must lie strictly between 0 and 1, got {value:g}.", field="gate")
    return value
