"""Gates and one-step derivatives of a recurrent layer at every step of every sequence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import repeat
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from learncast._core.errors import InvalidSpec


class StateMap(Protocol):
    """Adds the change of the new state after a change of the previous state to `out`."""

    def __call__(self, change: Tensor, out: Tensor) -> None: ...


@dataclass(frozen=True, eq=False, repr=False)
class Term:
    """One summand of an affine map: rows of a parameter applied to a feature.

    Parameters
    ----------
    name : str
        The parameter's name in the model.
    rows : slice
        Its rows that belong to the map.
    feature : (time, batch, columns) tensor, optional
        What the rows are applied to; None for a bias.
    elementwise : bool
        The parameter scales the feature instead of multiplying it as a matrix.
    """

    name: str
    rows: slice
    feature: Tensor | None
    elementwise: bool = False


def affine(
    terms: tuple[Term, ...], values: Mapping[str, Tensor], squares: Mapping[int, Tensor] | None = None
) -> Tensor:
    """Evaluate an affine map with `values` in place of its parameters.

    `squares` holds the squared features by their id, to be used instead of the features; base rates need them.
    """
    shift = sum((values[term.name][term.rows] for term in terms if term.feature is None), torch.zeros(()))
    total: Tensor | None = None
    for term in terms:
        if term.feature is None:
            continue
        feature = term.feature if squares is None else squares[id(term.feature)]
        value = values[term.name][term.rows]
        if term.elementwise:
            part = feature * value + shift
            total = part if total is None else total + part
        elif total is None:
            flat, start = feature.reshape(-1, feature.shape[2]), shift.to(value)
            total = torch.addmm(start.expand(value.shape[0]), flat, value.t()).view(*feature.shape[:2], -1)
        else:
            total.view(-1, total.shape[2]).addmm_(feature.reshape(-1, feature.shape[2]), value.t())
    assert total is not None
    return total


@dataclass(frozen=True, eq=False, repr=False)
class Normalisation:
    """The derivative of a layer norm: K = diag(scale) (I - 1 1^T / H - u u^T / H), u the normalised values."""

    unit: Tensor
    scale: Tensor

    def apply(self, change: Tensor) -> Tensor:
        """K v."""
        tilt = (self.unit * change).mean(-1, keepdim=True)
        return self.scale * (change - change.mean(-1, keepdim=True) - self.unit * tilt)

    def squares(self, weights: Tensor) -> Tensor:
        """(K o K) v, expanded so that it stays linear in the number of units."""
        u, n = self.unit, self.unit.shape[-1]
        own = (1 - 2 / n - 2 / n * u * u) * weights
        weights = weights.expand_as(u)
        zeroth, first, second = (m.sum(-1, keepdim=True) / n**2 for m in (weights, 2 * u * weights, u * u * weights))
        return self.scale**2 * (own + zeroth + u * first + u * u * second)

    def diagonal(self, weights: Tensor) -> Tensor:
        """diag(K U) at every step."""
        n = self.unit.shape[-1]
        return self.scale * (weights.diagonal() - weights.mean(0) - self.unit * (self.unit @ weights) / n)


@dataclass(frozen=True, eq=False, repr=False)
class Relay:
    """A second recurrent product on the way to the state: U diag(gain), as from reset gate to candidate."""

    weights: Tensor
    gain: Tensor

    def apply(self, change: Tensor) -> Tensor:
        """U (gain * v)."""
        return (change * self.gain) @ self.weights.t()

    def squares(self, weights: Tensor, norm: Normalisation | None) -> Tensor:
        """(E o E) v for E = K U diag(gain)."""
        m = self.gain**2 * weights
        if norm is None:
            return m @ (self.weights**2).t()
        centred, y = self._centred(norm)
        tail = (y * y * m).sum(-1, keepdim=True)
        spread = m @ (centred**2).t() - 2 * norm.unit * ((y * m) @ centred.t()) + norm.unit**2 * tail
        return norm.scale**2 * spread

    def diagonal(self, weights: Tensor, norm: Normalisation | None) -> Tensor:
        """diag(K U diag(gain) V) at every step: the sum over the relaying units is one matrix product."""
        if norm is None:
            return self.gain @ (self.weights * weights.t()).t()
        centred, y = self._centred(norm)
        straight = self.gain @ (centred * weights.t()).t()
        return norm.scale * (straight - norm.unit * ((y * self.gain) @ weights))

    def _centred(self, norm: Normalisation) -> tuple[Tensor, Tensor]:
        return self.weights - self.weights.mean(0), norm.unit @ self.weights / norm.unit.shape[-1]


@dataclass(frozen=True, eq=False, repr=False)
class Pathway:
    """One way in which parameters and the previous state reach the new state.

    The new state changes by E v if the affine map of `terms` changes by v, E = diag(slope) [K] [U diag(gain)], and v is
    `recurrent` (gain * change of the previous state).

    Parameters
    ----------
    terms : tuple of Term
    slope : (time, batch, hidden) tensor
    recurrent : (rows, hidden) tensor, optional
        The weights by which the previous state enters; None if it does not. A single row serves every unit.
    gain : (time, batch, hidden) tensor, optional
        What scales the previous state before `recurrent` (the reset gate); None for 1.
    norm : Normalisation, optional
    relay : Relay, optional
    """

    terms: tuple[Term, ...]
    slope: Tensor
    recurrent: Tensor | None = None
    gain: Tensor | None = None
    norm: Normalisation | None = None
    relay: Relay | None = None

    def apply(self, change: Tensor) -> Tensor:
        """E v: the change of the new state."""
        return self.slope * self._before_slope(change)

    def _before_slope(self, change: Tensor) -> Tensor:
        if self.relay is not None:
            change = self.relay.apply(change)
        return change if self.norm is None else self.norm.apply(change)

    def squares(self, weights: Tensor) -> Tensor:
        """(E o E) v: the squared entries of E, weighted and summed."""
        if self.relay is not None:
            weights = self.relay.squares(weights, self.norm)
        elif self.norm is not None:
            weights = self.norm.squares(weights)
        return self.slope**2 * weights

    def add_change(self, change: Tensor, out: Tensor) -> None:
        """Add the change of the new state after a change of the previous state, (..., hidden), to `out`."""
        if self.recurrent is None:
            return
        inner = (change if self.gain is None else change * self.gain) @ self.recurrent.t()
        out.addcmul_(self.slope, self._before_slope(inner))

    def by_step(self) -> list[Pathway]:
        """The pathway at every step without its terms, as tensors without the time axis."""
        every: Any = [repeat(None)] * 3
        if self.gain is not None:
            every[0] = self.gain.unbind()
        if self.norm is not None:
            every[1] = map(Normalisation, self.norm.unit.unbind(), self.norm.scale.unbind())
        if self.relay is not None:
            every[2] = map(Relay, repeat(self.relay.weights), self.relay.gain.unbind())
        parts = zip(self.slope.unbind(), *every, strict=False)
        return [Pathway((), slope, self.recurrent, *rest) for slope, *rest in parts]

    def diagonal(self) -> Tensor:
        """Derivative of every unit by its own previous value through this pathway, (time, batch, hidden)."""
        if self.recurrent is None:
            return torch.zeros_like(self.slope)
        weights = self.recurrent.expand(self.slope.shape[-1], -1)
        if self.relay is not None:
            inner = self.relay.diagonal(weights, self.norm)
        elif self.norm is not None:
            inner = self.norm.diagonal(weights)
        else:
            inner = weights.diagonal()
        return self.slope * inner if self.gain is None else self.slope * inner * self.gain


@dataclass(frozen=True, eq=False, repr=False)
class OutputGate:
    """How an LSTM's hidden state depends on its cell, dh/dc (`slope`), and on its output gate (`pathway`)."""

    slope: Tensor
    pathway: Pathway


class GatedStep(NamedTuple):
    """Effect of a change of the previous state on the new state, at one step or at all steps.

    `slope` and `output` are those of an LSTM's `OutputGate`; its states are the hidden units followed by the cells.
    """

    direct: Tensor
    pathways: tuple[Pathway, ...]
    slope: Tensor | None = None
    output: Pathway | None = None

    def __call__(self, change: Tensor, out: Tensor) -> None:
        """Add the resulting change to `out`."""
        if self.slope is None or self.output is None:
            out.addcmul_(self.direct, change)
            for pathway in self.pathways:
                pathway.add_change(change, out)
            return
        hidden, cell = change.chunk(2, -1)
        new_hidden, new_cell = out.chunk(2, -1)
        moved = self.direct * cell
        for pathway in self.pathways:
            pathway.add_change(hidden, moved)
        new_cell += moved
        new_hidden.addcmul_(self.slope, moved)
        self.output.add_change(hidden, new_hidden)


@dataclass(frozen=True, eq=False, repr=False)
class Chain:
    """The factors of transport over any number of steps; all tensors are (time, batch, hidden).

    Parameters
    ----------
    retention, mixing : tensors
        The two parts of the diagonal of every step's Jacobian, as in `Replay`.
    cell_slope, output_loop : tensors, optional
        Only for an LSTM: dh/dc, and the derivative of h by its own previous value through the output gate.
    reset : tensor, optional
        Reset gates of a cell that has them.
    gated : bool
        As in `Replay`.
    """

    retention: Tensor
    mixing: Tensor
    cell_slope: Tensor | None = None
    output_loop: Tensor | None = None
    reset: Tensor | None = None
    gated: bool = True

    def take(self, sequences: slice) -> Chain:
        """The chain of some of the sequences."""
        return replace(self, **{one.name: _taken(getattr(self, one.name), sequences) for one in fields(self)})


@dataclass(frozen=True, eq=False, repr=False)
class Replay:
    """Gates and one-step derivatives of a recurrent layer at all steps, time first.

    The *transported state* is the hidden state, and for an LSTM the cell.

    Parameters
    ----------
    hidden : (time, batch, hidden) tensor
        The layer's outputs.
    reproduce : function without arguments
        Computes the outputs again from the replayed gates.
    direct : (time, batch, hidden) tensor
        d state / d previous state, unit by unit, that bypasses all weights.
    pathways : tuple of Pathway
        Everything else that acts on the transported state.
    gates : dict of tensors
    output_gate : OutputGate, optional
        Only for an LSTM.
    gated : bool
        False for a plain RNN, which has no gate: its zeroth order is the diagonal of its Jacobian.
    """

    hidden: Tensor
    reproduce: Callable[[], Tensor]
    direct: Tensor
    pathways: tuple[Pathway, ...]
    gates: Mapping[str, Tensor] = field(default_factory=dict)
    output_gate: OutputGate | None = None
    gated: bool = True

    @cached_property
    def retention(self) -> Tensor:
        """The zeroth order of the Jacobian's diagonal: what a unit keeps of itself, (time, batch, hidden)."""
        return self.direct if self.gated else self.direct + self._self_coupling

    @cached_property
    def mixing(self) -> Tensor:
        """The rest of the diagonal: what returns to a unit through the weights, (time, batch, hidden).

        For an LSTM it is d c / d h_previous, a different derivative than `retention`.
        """
        return self._self_coupling if self.gated else torch.zeros_like(self.direct)

    @property
    def chain(self) -> Chain:
        """The factors of transport."""
        slope, loop = None, None
        if self.output_gate is not None:
            slope, loop = self.output_gate.slope, self.output_gate.pathway.diagonal()
        return Chain(self.retention, self.mixing, slope, loop, self.gates.get("reset"), self.gated)

    @property
    def recurrent_pathways(self) -> tuple[Pathway, ...]:
        """Pathways through which the previous state acts."""
        return tuple(pathway for pathway in self.pathways if pathway.recurrent is not None)

    @cached_property
    def _self_coupling(self) -> Tensor:
        first, *others = (pathway.diagonal() for pathway in self.recurrent_pathways)
        return sum(others, first)

    def step_map(self) -> StateMap:
        """Effect of a change of each previous state, (..., time, batch, states), at all steps."""
        output = () if self.output_gate is None else (self.output_gate.slope, self.output_gate.pathway)
        return GatedStep(self.direct, self.recurrent_pathways, *output)

    def step_maps(self) -> Sequence[StateMap]:
        """Effect of a change of the previous state, (..., batch, states), at each step.

        All tensors are split into steps beforehand: a single step is too short to do it.
        """
        pathways = zip(*(pathway.by_step() for pathway in self.recurrent_pathways), strict=True)
        parts: list[object] = [self.direct.unbind(), pathways]
        if self.output_gate is not None:
            parts += [self.output_gate.slope.unbind(), self.output_gate.pathway.by_step()]
        return [GatedStep(*part) for part in zip(*parts, strict=True)]

    def sensitivity(self, direction: Mapping[str, Tensor]) -> Tensor:
        """Derivative of every transported state along a direction of the parameters, with the previous state fixed."""
        return pathway_sensitivity(self.pathways, direction)

    def squares(self, rates: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Sums over all parameters of each unit's squared immediate derivative, plain and times the rates."""
        # Each feature is squared once, even if several pathways share it.
        features = {id(term.feature): term.feature for pathway in self.pathways for term in pathway.terms}
        squares = {key: feature * feature for key, feature in features.items() if feature is not None}
        sums = {key: square.sum(-1, keepdim=True) for key, square in squares.items()}
        plain, weighted = torch.zeros_like(self.hidden), torch.zeros_like(self.hidden)
        for pathway in self.pathways:
            plain += pathway.squares(_squared_length(pathway.terms, squares, sums))
            weighted += pathway.squares(affine(pathway.terms, rates, squares))
        return plain, weighted

    def take(self, sequences: slice) -> Replay:
        """The replay of some of the sequences."""
        parts = {one.name: _taken(getattr(self, one.name), sequences) for one in fields(self)}
        return replace(self, **{**parts, "reproduce": lambda: self.reproduce()[:, sequences]})

    def residual(self) -> float:
        """Largest difference between the layer's outputs and those of the replayed gates."""
        return float((self.hidden - self.reproduce()).abs().max())


def _taken(part: object, sequences: slice) -> Any:
    """Take sequences of every (time, batch, ...) tensor inside `part`; weights have two dimensions and are shared."""
    if isinstance(part, Tensor):
        return part[:, sequences] if part.dim() > 2 else part
    if isinstance(part, tuple):
        return tuple(_taken(one, sequences) for one in part)
    if isinstance(part, dict):
        return {name: _taken(one, sequences) for name, one in part.items()}
    if isinstance(part, Term | Pathway | Relay | Normalisation | OutputGate):
        return replace(part, **{one.name: _taken(getattr(part, one.name), sequences) for one in fields(part)})
    return part


def pathway_sensitivity(pathways: tuple[Pathway, ...], direction: Mapping[str, Tensor]) -> Tensor:
    """Derivative of the new state along a direction of the parameters through some pathways."""
    first, *others = pathways
    total = first.apply(affine(first.terms, direction))
    for pathway in others:
        total += pathway.apply(affine(pathway.terms, direction))
    return total


def _squared_length(terms: tuple[Term, ...], squares: Mapping[int, Tensor], sums: Mapping[int, Tensor]) -> Tensor:
    """Squared length of the vector to which one row of the affine map is applied, biases included."""
    biases = float(sum(term.feature is None for term in terms))
    products = [term for term in terms if term.feature is not None]
    return sum(((squares if term.elementwise else sums)[id(term.feature)] for term in products), torch.tensor(biases))


def check_signals(inputs: Tensor, outputs: Tensor, sizes: tuple[int, int], dtype: torch.dtype) -> None:
    """Raise an error unless the tensors can be inputs and outputs of a layer with these sizes."""
    for name, value, width in zip(("inputs", "outputs"), (inputs, outputs), sizes, strict=True):
        if value.dim() != 3 or value.shape[2] != width or 0 in value.shape or value.dtype != dtype:
            got = f"shape {tuple(value.shape)} of {value.dtype}"
            raise InvalidSpec(f"{name} must be a (batch, time, {width}) tensor of {dtype}, got {got}.", field=name)
