"""What one recurrent layer did at every step of every sequence, and how it would have answered small changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import repeat
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from learncast._core.errors import InvalidSpec


@dataclass(frozen=True, eq=False, repr=False)
class Term:
    """One summand of an affine map: rows of a parameter acting on a feature.

    Parameters
    ----------
    name : str
        The parameter's name in the model.
    rows : slice
        Its rows that belong to the map.
    feature : (time, batch, columns) tensor, optional
        What the rows act on; None for a bias.
    elementwise : bool
        The parameter scales the feature instead of multiplying it as a matrix.
    """

    name: str
    rows: slice
    feature: Tensor | None
    elementwise: bool = False


def affine(terms: tuple[Term, ...], values: Mapping[str, Tensor], *, square: Callable[[Tensor], Tensor]) -> Tensor:
    """The affine map with `values` in the place of its parameters and each feature passed through `square`.

    Only the base rate needs squared features; the pre-activation and its directional derivative pass `unchanged`.
    """
    products = [term for term in terms if term.feature is not None]
    shift = sum((values[term.name][term.rows] for term in terms if term.feature is None), torch.zeros(()))
    total: Tensor | None = None
    for term in products:
        assert term.feature is not None
        feature, value = square(term.feature), values[term.name][term.rows]
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


def unchanged(feature: Tensor) -> Tensor:
    """The feature itself."""
    return feature


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
class Path:
    """One way in which parameters and the previous state reach the new state.

    The new state changes by E v when the affine map of `terms` changes by v, E = diag(slope) [K] [U diag(gain)], and v
    is `recurrent` (gain * change of the previous state).

    Parameters
    ----------
    terms : tuple of Term
    slope : (time, batch, hidden) tensor
    recurrent : (rows, hidden) tensor, optional
        The weights by which the previous state enters; None when it does not. A single row serves every unit.
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

    def add_push(self, change: Tensor, found: Tensor) -> None:
        """Add the change of the new state after one of the previous state, (..., hidden), to `found`, in place."""
        if self.recurrent is None:
            return
        inner = (change if self.gain is None else change * self.gain) @ self.recurrent.t()
        found.addcmul_(self.slope, self._before_slope(inner))

    def steps(self) -> list[Path]:
        """The path of every step, without its terms; time is cut away from all tensors."""
        every: Any = [repeat(None)] * 3
        if self.gain is not None:
            every[0] = self.gain.unbind()
        if self.norm is not None:
            every[1] = map(Normalisation, self.norm.unit.unbind(), self.norm.scale.unbind())
        if self.relay is not None:
            every[2] = map(Relay, repeat(self.relay.weights), self.relay.gain.unbind())
        cuts = zip(self.slope.unbind(), *every, strict=False)
        return [Path((), slope, self.recurrent, *rest) for slope, *rest in cuts]

    def diagonal(self) -> Tensor:
        """How much every unit changes itself through this path, (time, batch, hidden)."""
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
class Expression:
    """How an LSTM's cell shows in its hidden state: dh/dc (`slope`) and the path of the output gate."""

    slope: Tensor
    output: Path


class Step(NamedTuple):
    """One step, or all at once: what a change of the previous state does to the new one.

    `slope` and `output` are those of an LSTM's `Expression`, whose states are the hidden units and then the cells.
    """

    direct: Tensor
    paths: tuple[Path, ...]
    slope: Tensor | None = None
    output: Path | None = None

    def __call__(self, change: Tensor, found: Tensor) -> None:
        """Add the pushed change to `found`."""
        if self.slope is None or self.output is None:
            found.addcmul_(self.direct, change)
            for path in self.paths:
                path.add_push(change, found)
            return
        hidden, cell = change.chunk(2, -1)
        shown, moved = found.chunk(2, -1)
        pushed = self.direct * cell
        for path in self.paths:
            path.add_push(hidden, pushed)
        moved += pushed
        shown.addcmul_(self.slope, pushed)
        self.output.add_push(hidden, shown)


@dataclass(frozen=True, eq=False, repr=False)
class Chain:
    """What transport over any number of steps is made of; all tensors are (time, batch, hidden).

    Parameters
    ----------
    retention, mixing : tensors
        The diagonal of every step's Jacobian, cut in two as `Replay` says.
    shown, recalled : tensors, optional
        Of an LSTM: what every step shows of the cell, and what comes back to a unit through the output gate.
    reset : tensor, optional
        Reset gates, of a cell that has them.
    gates : tuple of str
        Names of the cell's gates.
    gated : bool
        See `Replay`.
    """

    retention: Tensor
    mixing: Tensor
    shown: Tensor | None = None
    recalled: Tensor | None = None
    reset: Tensor | None = None
    gates: tuple[str, ...] = ()
    gated: bool = True

    def longer(self, steps: int) -> Chain:
        """Room for a chain of the same kind with so many steps."""
        return self._each(lambda part: room_like(part, steps, *part.shape[1:]))

    def write(self, steps: slice, part: Chain) -> None:
        """Let some of the steps be those of another chain."""
        for name in ("retention", "mixing", "shown", "recalled", "reset"):
            if getattr(self, name) is not None:
                getattr(self, name)[steps] = getattr(part, name)

    @property
    def chain(self) -> Chain:
        """Itself, as a replay has one."""
        return self

    def take(self, sequences: slice) -> Chain:
        """The chain of some of the sequences."""
        return self._each(lambda part: part[:, sequences])

    def _each(self, changed: Callable[[Tensor], Tensor]) -> Chain:
        parts = {one.name: getattr(self, one.name) for one in fields(self)}
        new: dict[str, Any] = {name: changed(part) for name, part in parts.items() if isinstance(part, Tensor)}
        return replace(self, **new)


def room_like(given: Tensor, *shape: int) -> Tensor:
    """Memory for numbers of the same kind: numpy asks for large pages, which are had much sooner than many small."""
    if given.device.type != "cpu":
        return given.new_empty(shape)
    return torch.from_numpy(np.empty(shape, dtype=str(given.dtype).removeprefix("torch.")))


class Chained(Protocol):
    """What has a chain: a replay, or the chain itself."""

    @property
    def chain(self) -> Chain: ...


class Transition(Protocol):
    """Adds what a change of the previous state does to the new one to what is found."""

    def __call__(self, change: Tensor, found: Tensor, /) -> None: ...


@dataclass(frozen=True, eq=False, repr=False)
class Replay:
    """Gates and one-step derivatives of a recurrent layer at all steps, time first.

    The *transported state* is the hidden state, and for an LSTM the cell.

    Parameters
    ----------
    hidden : (time, batch, hidden) tensor
        The layer's outputs.
    reproduce : function of nothing
        Computes the same outputs from the replayed gates.
    direct : (time, batch, hidden) tensor
        d state / d previous state, unit by unit, that bypasses all weights.
    paths : tuple of Path
        Everything else that acts on the transported state.
    gates : dict of tensors
    expression : Expression, optional
        Only for an LSTM.
    gated : bool
        False for a plain RNN, whose zeroth order is the diagonal of its Jacobian for want of a gate.
    """

    hidden: Tensor
    reproduce: Callable[[], Tensor]
    direct: Tensor
    paths: tuple[Path, ...]
    gates: Mapping[str, Tensor] = field(default_factory=dict)
    expression: Expression | None = None
    gated: bool = True

    @cached_property
    def retention(self) -> Tensor:
        """The zeroth order of the Jacobian's diagonal: what a unit keeps of itself, (time, batch, hidden)."""
        return self.direct if self.gated else self.direct + self._self_coupling

    @cached_property
    def mixing(self) -> Tensor:
        """The rest of the diagonal: what comes back to a unit through the weights, (time, batch, hidden).

        For an LSTM d c / d h_previous, and not of the same kind as `retention`.
        """
        return self._self_coupling if self.gated else torch.zeros_like(self.direct)

    @property
    def chain(self) -> Chain:
        """What transport is made of."""
        show = self.expression
        return Chain(
            self.retention,
            self.mixing,
            None if show is None else show.slope,
            None if show is None else show.output.diagonal(),
            self.gates.get("reset"),
            tuple(self.gates),
            self.gated,
        )

    @property
    def last(self) -> tuple[Tensor, ...]:
        """The state after the last step: the hidden units, and the cells of an LSTM."""
        return (self.hidden[-1],) if self.expression is None else (self.hidden[-1], self.gates["cell"][-1])

    @property
    def recurrent_paths(self) -> tuple[Path, ...]:
        """Those through which the previous state acts."""
        return tuple(path for path in self.paths if path.recurrent is not None)

    @cached_property
    def _self_coupling(self) -> Tensor:
        first, *others = (path.diagonal() for path in self.recurrent_paths)
        return sum(others, first)

    def transition(self) -> Transition:
        """What a change of each previous state, (..., time, batch, states), does to the new one, at all steps."""
        shown = () if self.expression is None else (self.expression.slope, self.expression.output)
        return Step(self.direct, self.recurrent_paths, *shown)

    def transitions(self) -> Sequence[Transition]:
        """The same of every step alone, of changes (..., batch, states).

        Everything is cut into steps beforehand: a step that is taken alone is too short to cut it anew.
        """
        cuts: list[Any] = [self.direct.unbind(), zip(*(path.steps() for path in self.recurrent_paths), strict=True)]
        if self.expression is not None:
            cuts += [self.expression.slope.unbind(), self.expression.output.steps()]
        return [Step(*cut) for cut in zip(*cuts, strict=True)]

    def answer(self, values: Mapping[str, Tensor]) -> Tensor:
        """The change of every transported state when parameters move along `values`, the previous state held."""
        return answer_of(self.paths, values)

    def squares(self, rates: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Sums over all parameters of each unit's squared immediate derivative, plain and times the rates."""
        # Each feature is squared once, however many paths share it.
        features = {id(term.feature): term.feature for path in self.paths for term in path.terms}
        squares = {key: feature * feature for key, feature in features.items() if feature is not None}
        sums = {key: square.sum(-1, keepdim=True) for key, square in squares.items()}
        power, moved = torch.zeros_like(self.hidden), torch.zeros_like(self.hidden)
        for path in self.paths:
            power += path.squares(_lengths(path.terms, squares, sums))
            moved += path.squares(affine(path.terms, rates, square=lambda feature: squares[id(feature)]))
        return power, moved

    def take(self, sequences: slice = slice(None), *, steps: slice = slice(None)) -> Replay:
        """The replay of some of the sequences or steps."""
        where = (steps, sequences)
        names = ("hidden", "direct", "paths", "gates", "expression")
        parts = {name: _taken(getattr(self, name), where) for name in names}
        some = Replay(reproduce=lambda: self.reproduce()[where], gated=self.gated, **parts)
        for name in ("_self_coupling", "retention", "mixing"):
            if name in self.__dict__:
                some.__dict__[name] = self.__dict__[name][where]
        return some

    def residual(self) -> float:
        """Largest difference between the layer's outputs and those of the replayed gates."""
        return float((self.hidden - self.reproduce()).abs().max())


def _taken(part: Any, where: tuple[slice, slice]) -> Any:
    """Cut every (time, batch, ...) tensor inside `part`; weights have two dimensions and are shared."""
    if isinstance(part, Tensor):
        return part[where] if part.dim() == 3 else part
    if isinstance(part, tuple):
        return tuple(_taken(one, where) for one in part)
    if isinstance(part, dict):
        return {name: _taken(one, where) for name, one in part.items()}
    if isinstance(part, Term | Path | Relay | Normalisation | Expression):
        return replace(part, **{f.name: _taken(getattr(part, f.name), where) for f in fields(part)})
    return part


def answer_of(paths: tuple[Path, ...], values: Mapping[str, Tensor]) -> Tensor:
    """What a change of parameters does through some paths."""
    first, *others = paths
    total = first.apply(affine(first.terms, values, square=unchanged))
    for path in others:
        total += path.apply(affine(path.terms, values, square=unchanged))
    return total


def _lengths(terms: tuple[Term, ...], squares: Mapping[int, Tensor], sums: Mapping[int, Tensor]) -> Tensor:
    """Squared length of what one row of the affine map acts on, biases included."""
    biases = float(sum(term.feature is None for term in terms))
    acted = [term for term in terms if term.feature is not None]
    return sum(((squares if term.elementwise else sums)[id(term.feature)] for term in acted), torch.tensor(biases))


def check_signal(name: str, value: Tensor, width: int, dtype: torch.dtype) -> None:
    """Refuse what a layer cannot have received or answered."""
    if value.dim() != 3 or value.shape[2] != width or 0 in value.shape or value.dtype != dtype:
        raise InvalidSpec(
            f"{name} must be a (batch, time, {width}) tensor of {dtype}, got shape {tuple(value.shape)} of "
            f"{value.dtype}. Pass {name} as the layer saw them.",
            field=name,
        )
