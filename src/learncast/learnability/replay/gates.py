"""The gate equations of every supported cell, replayed for all steps at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from learncast.learnability.replay.replay import Expression, Normalisation, Path, Relay, Replay, Term, affine, unchanged

if TYPE_CHECKING:
    from learncast.learnability.replay.recurrent_layer import RecurrentLayer


def replay_leaky(layer: RecurrentLayer, inputs: Tensor, states: Tensor) -> Replay:
    """Replay h <- (1 - s) h + s g, with a constant, a shared or a per-unit gate s.

    Implements: livi2025 Eq. (60)
    Implements: livi2025 Eq. (62)
    Implements: livi2025 Eq. (64)
    """
    h = states[:-1]
    candidate = _terms(layer, layer.blocks["candidate"], inputs, h)
    if layer.constant_gate is None:
        gate = _terms(layer, layer.blocks["gate"], inputs, h)
        s = _preactivation(layer, gate).sigmoid_()
        g, paths = _candidate(layer, candidate, s)
        paths = (Path(gate, (g - h).mul_(s * (1 - s)), _recurrent(layer, "gate")), *paths)
    else:
        s = h.new_full((1, 1, 1), layer.constant_gate)
        g, paths = _candidate(layer, candidate, s)
    gates = {"candidate": g, "gate": s.expand_as(g)}
    return Replay(states[1:], lambda: torch.lerp(h, g, s.expand_as(g)), (1 - s).expand_as(g), paths, gates)


def replay_paper_gru(layer: RecurrentLayer, inputs: Tensor, states: Tensor) -> Replay:
    """Replay h <- (1 - z) h + z tanh(W x + U (r h) + b).

    Implements: livi2025 Eq. (54)
    """
    h = states[:-1]
    update, reset = (_terms(layer, layer.blocks[name], inputs, h) for name in ("update", "reset"))
    z, r = _preactivation(layer, update).sigmoid_(), _preactivation(layer, reset).sigmoid_()
    candidate = _terms(layer, layer.blocks["candidate"], inputs, r * h)
    g, (through, *rest) = _candidate(layer, candidate, z)
    relay = Relay(_recurrent(layer, "candidate"), (1 - r).mul_(r).mul_(h))
    paths = (
        Path(update, (g - h).mul_(z * (1 - z)), _recurrent(layer, "update")),
        replace(through, gain=r),
        replace(through, terms=reset, recurrent=_recurrent(layer, "reset"), relay=relay),
        *rest,
    )
    gates = {"update": z, "reset": r, "candidate": g}
    return Replay(states[1:], lambda: torch.lerp(h, g, z), 1 - z, paths, gates)


def replay_torch_gru(layer: RecurrentLayer, inputs: Tensor, states: Tensor) -> Replay:
    """Replay h <- z h + (1 - z) tanh(W x + b + r (U h + c)), the GRU of torch."""
    h = states[:-1]
    rows = layer.blocks["candidate"]
    update, reset = (_terms(layer, layer.blocks[name], inputs, h) for name in ("update", "reset"))
    # The candidate is two affine maps here: the reset gate stands between the recurrent product and the sum.
    outer, inner = _sides(layer, rows, inputs, h)
    z, r = _preactivation(layer, update).sigmoid_(), _preactivation(layer, reset).sigmoid_()
    recalled = _preactivation(layer, inner)
    n = torch.addcmul(_preactivation(layer, outer), r, recalled).tanh_()
    slope = (1 - n * n).mul_(1 - z)
    paths = (
        Path(update, (h - n).mul_(z * (1 - z)), _recurrent(layer, "update")),
        Path(outer, slope),
        Path(inner, slope * r, _recurrent(layer, "candidate")),
        Path(reset, recalled.mul_(r * (1 - r)).mul_(slope), _recurrent(layer, "reset")),
    )
    gates = {"update": z, "reset": r, "candidate": n}
    return Replay(states[1:], lambda: torch.lerp(n, h, z), z, paths, gates)


def replay_lstm(layer: RecurrentLayer, inputs: Tensor, states: Tensor, cell: Tensor) -> Replay:
    """Replay c <- f c + i g, h = o tanh(c); `cell` is the cell before the first step.

    Implements: livi2025 Eq. (43)
    """
    h = states[:-1]
    entry, forget, output = (_terms(layer, layer.blocks[name], inputs, h) for name in ("input", "forget", "output"))
    candidate = _terms(layer, layer.blocks["candidate"], inputs, h)
    i, f, o = (_preactivation(layer, terms).sigmoid_() for terms in (entry, forget, output))
    g, rest = _candidate(layer, candidate, i)
    cells = _scan(cell, f, i * g)
    shown = cells[1:].tanh()
    paths = (
        Path(entry, (1 - i).mul_(i).mul_(g), _recurrent(layer, "input")),
        Path(forget, (1 - f).mul_(f).mul_(cells[:-1]), _recurrent(layer, "forget")),
        *rest,
    )
    expression = Expression(
        slope=(1 - shown * shown).mul_(o),
        output=Path(output, (1 - o).mul_(o).mul_(shown), _recurrent(layer, "output")),
    )
    gates = {"input": i, "forget": f, "output": o, "candidate": g, "cell": cells[1:]}
    return Replay(states[1:], lambda: o * shown, f, paths, gates, expression)


def replay_plain(layer: RecurrentLayer, inputs: Tensor, states: Tensor) -> Replay:
    """Replay h <- f(W x + U h + b), f = tanh or relu.

    There is no gate to split the Jacobian by, so the zeroth order is its whole diagonal, f'_q U_qq, and the rest of the
    diagonal is 0.
    """
    terms = _terms(layer, layer.blocks["candidate"], inputs, states[:-1])
    a = _preactivation(layer, terms)
    new = a.relu() if layer.kind == "relu" else a.tanh()
    slope = (a > 0).to(a) if layer.kind == "relu" else 1 - new * new
    path = Path(terms, slope, _recurrent(layer, "candidate"))
    return Replay(states[1:], lambda: new, torch.zeros_like(slope), (path,), {"candidate": new}, gated=False)


def _terms(layer: RecurrentLayer, rows: slice, inputs: Tensor, recalled: Tensor) -> tuple[Term, ...]:
    outer, inner = _sides(layer, rows, inputs, recalled)
    return outer + inner


def _sides(
    layer: RecurrentLayer, rows: slice, inputs: Tensor, recalled: Tensor
) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
    """The affine map cut in two: input weights with their bias, recurrent weights with theirs."""
    biases = [(Term(name, rows, None),) for name in layer.biases]
    outer, inner = [*biases, (), ()][:2]
    return (
        (Term(layer.input_weights, rows, inputs), *outer),
        (Term(layer.recurrent_weights, rows, recalled), *inner),
    )


def _preactivation(layer: RecurrentLayer, terms: tuple[Term, ...]) -> Tensor:
    return affine(terms, layer.parameters, square=unchanged)


def _recurrent(layer: RecurrentLayer, block: str) -> Tensor:
    return layer.parameters[layer.recurrent_weights][layer.blocks[block]]


def _candidate(layer: RecurrentLayer, terms: tuple[Term, ...], gate: Tensor) -> tuple[Tensor, tuple[Path, ...]]:
    """Tanh of the (normalised) pre-activation, and its paths to a state that takes it in by `gate`.

    The first path is that of `terms`; a layer norm's own gain and bias have the second.
    """
    a = _preactivation(layer, terms)
    recurrent = _recurrent(layer, "candidate")
    if layer.norm is None:
        g = a.tanh_()
        return g, (Path(terms, (1 - g * g).mul_(gate), recurrent),)
    gain, bias = (layer.parameters[name] for name in layer.norm)
    variance, mean = torch.var_mean(a, -1, correction=0, keepdim=True)
    deviation = (variance + layer.norm_epsilon).sqrt_()
    unit = (a - mean) / deviation
    g = torch.addcmul(bias, unit, gain).tanh_()
    slope, rows = (1 - g * g).mul_(gate), slice(None)
    own = (Term(layer.norm[0], rows, unit, elementwise=True), Term(layer.norm[1], rows, None))
    through = Path(terms, slope, recurrent, norm=Normalisation(unit, gain / deviation))
    return g, (through, Path(own, slope))


def _scan(start: Tensor, keep: Tensor, add: Tensor) -> Tensor:
    """All cells, the one before the first step included."""
    cells = keep.new_empty(keep.shape[0] + 1, *keep.shape[1:])
    cells[0] = start
    for t in range(keep.shape[0]):
        torch.addcmul(add[t], keep[t], cells[t], out=cells[t + 1])
    return cells
