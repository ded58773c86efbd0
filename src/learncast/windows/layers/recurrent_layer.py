"""One recurrent layer of any supported model: its parameters and gate equations, replayed for all steps together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from learncast._core.errors import UnsupportedModel
from learncast.windows import cells
from learncast.windows.layers.replay import (
    Normalisation,
    OutputGate,
    Pathway,
    Relay,
    Replay,
    Term,
    affine,
    check_signals,
)
from learncast.windows.layers.stepped import SteppedLayer, is_stepped

SUPPORTED = (
    "nn.RNN, nn.GRU, nn.LSTM, their cells, ConstGate, SharedGate, DiagGate, PaperGRU, LSTM, or a module with "
    "input_size, hidden_size and a method step(state, input) that returns the next state"
)

_OWN: dict[type[nn.Module], str] = {
    cells.ConstGate: "const", cells.SharedGate: "shared", cells.DiagGate: "diag", cells.PaperGRU: "paper_gru",
    cells.LSTM: "lstm",
}  # fmt: skip
#: Firing rates as functions of the pre-activation, and their derivatives as functions of pre-activation and rate.
RATES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    "tanh": (torch.tanh, lambda a, g: 1 - g * g),
    "relu": (torch.relu, lambda a, g: (a > 0).to(a)),
    "softplus": (nn.functional.softplus, lambda a, g: a.sigmoid()),
    "sigmoid": (torch.sigmoid, lambda a, g: g * (1 - g)),
    "linear": (torch.clone, lambda a, g: torch.ones_like(a)),
}
_TORCH: dict[type[nn.Module], str] = {
    nn.GRU: "gru", nn.LSTM: "lstm", nn.RNN: "", nn.GRUCell: "gru", nn.LSTMCell: "lstm", nn.RNNCell: ""
}  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class RecurrentLayer:
    """One recurrent layer whose gate equations are known.

    Parameters
    ----------
    kind : str
        "const", "shared", "diag", "paper_gru", "gru" (torch's), "lstm", "tanh" or "relu".
    own : dict of parameters
        The parameters of this layer by their names in the model; the same objects that the optimiser holds.
    input_weights, recurrent_weights : str
        Names of the stacked weights.
    biases : tuple of str
        Names of the biases: that of the input weights, then that of the recurrent weights.
    norm : (str, str), optional
        Names of the gain and bias of the candidate's layer norm.
    constant_gate : float, optional
        The gate of a "const" layer.
    nonlinearity : str
        Nonlinearity of the candidate, a key of `RATES`.
    """

    kind: str
    own: Mapping[str, nn.Parameter]
    input_weights: str
    recurrent_weights: str
    biases: tuple[str, ...]
    norm: tuple[str, str] | None = None
    constant_gate: float | None = None
    nonlinearity: str = "tanh"
    parameters: Mapping[str, Tensor] = field(init=False)

    def __post_init__(self) -> None:
        # Detached: they share memory with the model but do not affect its gradients.
        object.__setattr__(self, "parameters", {name: value.detach() for name, value in self.own.items()})

    @property
    def input_size(self) -> int:
        """Features that enter the layer."""
        return int(self.parameters[self.input_weights].shape[1])

    @property
    def hidden_size(self) -> int:
        """Units."""
        return int(self.parameters[self.recurrent_weights].shape[1])

    @torch.no_grad()
    def replay(self, inputs: Tensor, outputs: Tensor, initial: tuple[Tensor, ...] | None = None) -> Replay:
        """Recompute all gates from the layer's inputs and outputs, by matrix products over all steps.

        Parameters
        ----------
        inputs : (batch, time, inputs) tensor
        outputs : (batch, time, hidden) tensor
        initial : tuple of (batch, hidden) tensors, optional
            The hidden state before the first step, and for an LSTM the cell; zeros by default.
        """
        dtype = self.parameters[self.input_weights].dtype
        check_signals(inputs, outputs, (self.input_size, self.hidden_size), dtype)
        x = inputs.detach().transpose(0, 1).contiguous()
        h = outputs.detach().transpose(0, 1)
        start = initial or (h.new_zeros(h.shape[1:]),) * (2 if self.kind == "lstm" else 1)
        states = torch.cat([start[0].unsqueeze(0), h])
        return _KINDS[self.kind][0](self, x, states, *start[1:])

    def rows(self, block: str) -> slice:
        """Rows of the stacked weights that belong to a gate or to the candidate."""
        blocks, width = _KINDS[self.kind][1], self.hidden_size
        place = blocks.index(block)
        # All blocks have one row per unit, but for the single row of a shared gate, which comes first.
        first = len(self.parameters[self.recurrent_weights]) - (len(blocks) - 1) * width
        return slice(first + (place - 1) * width if place else 0, first + place * width)

    def terms(self, block: str, inputs: Tensor, state: Tensor) -> tuple[Term, ...]:
        """The affine map of a gate or of the candidate."""
        outer, inner = self.split_terms(block, inputs, state)
        return outer + inner

    def split_terms(self, block: str, inputs: Tensor, state: Tensor) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
        """The two parts of an affine map: input weights with their bias, recurrent weights with theirs."""
        rows = self.rows(block)
        biases = [(Term(name, rows, None),) for name in self.biases]
        outer, inner = (*biases, (), ())[:2]
        return ((Term(self.input_weights, rows, inputs), *outer), (Term(self.recurrent_weights, rows, state), *inner))

    def preactivation(self, terms: tuple[Term, ...]) -> Tensor:
        """Value of an affine map of this layer."""
        return affine(terms, self.parameters)

    def recurrent(self, block: str) -> Tensor:
        """Recurrent weights of a gate or of the candidate."""
        return self.parameters[self.recurrent_weights][self.rows(block)]

    def candidate(self, terms: tuple[Term, ...], gate: Tensor) -> tuple[Tensor, tuple[Pathway, ...]]:
        """Rate of the (normalised) pre-activation, and its pathways to a state that it enters multiplied by `gate`.

        The first pathway is that of `terms`; the second is that of a layer norm's own gain and bias.
        """
        a = self.preactivation(terms)
        recurrent = self.recurrent("candidate")
        rate, slope_of = RATES[self.nonlinearity]
        if self.norm is None:
            g = rate(a)
            return g, (Pathway(terms, slope_of(a, g) * gate, recurrent),)
        gain, bias = (self.parameters[name] for name in self.norm)
        variance, mean = torch.var_mean(a, -1, correction=0, keepdim=True)
        deviation = (variance + cells.NORM_EPSILON).sqrt_()
        unit = (a - mean) / deviation
        current = torch.addcmul(bias, unit, gain)
        g = rate(current)
        slope, rows = slope_of(current, g) * gate, slice(None)
        own = (Term(self.norm[0], rows, unit, elementwise=True), Term(self.norm[1], rows, None))
        through = Pathway(terms, slope, recurrent, norm=Normalisation(unit, gain / deviation))
        return g, (through, Pathway(own, slope))


def recurrent_layers(model: nn.Module) -> tuple[RecurrentLayer | SteppedLayer, ...]:
    """The layers of the one recurrent block in `model`, the lowest first.

    Parameters
    ----------
    model : torch.nn.Module
        Contains exactly one of nn.RNN, nn.GRU, nn.LSTM (any number of layers, in one direction), a cell of
        `learncast.windows.cells`, or a module with `input_size`, `hidden_size` and a method step(state, input) that
        returns the next state, such as `learncast.training.RateRNN`.
    """
    path, module = recurrent_module(model)
    prefix = f"{path}." if path else ""
    own = {f"{prefix}{name}": value for name, value in module.named_parameters()}
    if isinstance(module, nn.RNNBase) and type(module) in _TORCH:
        return tuple(_torch_layer(module, own, prefix, f"_l{index}") for index in range(module.num_layers))
    if isinstance(module, nn.RNNCellBase):
        return (_torch_layer(module, own, prefix, ""),)
    if isinstance(module, cells.GatedCell) and type(module) in _OWN:
        return (_gated_layer(module, own, prefix),)
    return (_leaky_layer(module, own, prefix) if _is_leaky(module) else SteppedLayer(module, own, prefix),)


def recurrent_module(model: nn.Module) -> tuple[str, nn.Module]:
    """Name and module of the one recurrent block in `model`, which must be supported."""
    if not isinstance(model, nn.Module):
        raise UnsupportedModel(f"model must be a torch.nn.Module, got {type(model).__name__}.", field="model")
    kinds = (nn.RNNBase, nn.RNNCellBase, cells.GatedCell)
    blocks = {name: one for name, one in model.named_modules() if isinstance(one, kinds) or is_stepped(one)}
    # The parts of a cell that has its own step are not blocks of the model.
    inner = {id(part) for one in blocks.values() if is_stepped(one) for part in list(one.modules())[1:]}
    blocks = {name: one for name, one in blocks.items() if id(one) not in inner}
    if len(blocks) != 1:
        got = ", ".join(f"{name or 'the model itself'} ({type(one).__name__})" for name, one in blocks.items())
        loop = " If forward loops over time, call such a cell in it: h = self.cell(x[:, t], h)." if not blocks else ""
        remedy = f"Use one of {SUPPORTED}.{loop}"
        raise UnsupportedModel(f"model must have one recurrent block, got {got or 'none'}. {remedy}", field="model")
    ((name, module),) = blocks.items()
    _check_module(name or "model", module)
    return name, module


def _check_module(name: str, module: nn.Module) -> None:
    """Raise an error if the block cannot be replayed."""

    def require(condition: bool, requirement: str, got: object) -> None:
        if not condition:
            raise UnsupportedModel(f"{name} must {requirement}, got {got}.", field="model")

    known = type(module) in _OWN or type(module) in _TORCH
    require(known or is_stepped(module), f"be one of {SUPPORTED}", type(module).__name__)
    dtype = next((value.dtype for value in module.parameters()), None)
    require(dtype in (torch.float32, torch.float64), "have float32 or float64 weights", dtype)
    if not known:
        return
    own = {parameter for parameter, _ in module.named_parameters(recurse=False)}
    require(bool(own & {"weight_hh_l0", "weight_hh", "recurrent_weights"}), "own its weights", "reparametrised weights")
    if isinstance(module, nn.RNNBase):
        require(not module.bidirectional, "run in one direction", "bidirectional=True")
        require(not module.proj_size, "have no output projection", f"proj_size={module.proj_size}")


def _is_leaky(module: nn.Module) -> bool:
    """Whether a cell is a leaky rate network by its attributes, with recurrent weights that are its own parameter."""
    leaky = is_stepped(module) and getattr(module, "nonlinearity", None) in RATES and hasattr(module, "alpha")
    recurrent: object = getattr(module, "recurrent", None)
    return leaky and callable(recurrent) and any(recurrent() is value for value in module.parameters())


def _leaky_layer(module: Any, own: dict[str, nn.Parameter], prefix: str) -> RecurrentLayer:
    weights = module.recurrent()
    recurrent = next(name for name, value in own.items() if value is weights)
    gate, names = float(module.alpha), (f"{prefix}input_weights", recurrent, (f"{prefix}bias",))
    return RecurrentLayer("const", own, *names, constant_gate=gate, nonlinearity=module.nonlinearity)


def _torch_layer(module: nn.Module, own: dict[str, nn.Parameter], prefix: str, suffix: str) -> RecurrentLayer:
    names = [f"{prefix}{part}{suffix}" for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    weights, recurrent, *biases = [name for name in names if name in own]
    kind = _TORCH[type(module)] or str(module.nonlinearity)
    return RecurrentLayer(kind, {name: own[name] for name in names if name in own}, weights, recurrent, tuple(biases))


def _gated_layer(module: cells.GatedCell, own: dict[str, nn.Parameter], prefix: str) -> RecurrentLayer:
    names = (f"{prefix}input_weights", f"{prefix}recurrent_weights", (f"{prefix}bias",))
    norm = (f"{prefix}norm_gain", f"{prefix}norm_bias") if module.layer_norm else None
    gate = module.gate if isinstance(module, cells.ConstGate) else None
    return RecurrentLayer(_OWN[type(module)], own, *names, norm=norm, constant_gate=gate)


def replay_leaky(layer: RecurrentLayer, inputs: Tensor, states: Tensor) -> Replay:
    """Replay h <- (1 - s) h + s g, with a constant, a shared or a per-unit gate s.

    Implements: livi2025 Eq. (60)
    Implements: livi2025 Eq. (62)
    Implements: livi2025 Eq. (64)
    """
    h = states[:-1]
    candidate = layer.terms("candidate", inputs, h)
    if layer.constant_gate is None:
        gate = layer.terms("gate", inputs, h)
        s = layer.preactivation(gate).sigmoid_()
        g, pathways = layer.candidate(candidate, s)
        pathways = (Pathway(gate, (g - h).mul_(s * (1 - s)), layer.recurrent("gate")), *pathways)
    else:
        s = h.new_full((1, 1, 1), layer.constant_gate)
        g, pathways = layer.candidate(candidate, s)
    gates = {"candidate": g, "gate": s.expand_as(g)}
    return Replay(states[1:], lambda: torch.lerp(h, g, s.expand_as(g)), (1 - s).expand_as(g), pathways, gates)


def replay_paper_gru(layer: RecurrentLayer, inputs: Tensor, states: Tensor) -> Replay:
    """Replay h <- (1 - z) h + z tanh(W x + U (r h) + b).

    Implements: livi2025 Eq. (54)
    """
    h = states[:-1]
    update, reset = (layer.terms(name, inputs, h) for name in ("update", "reset"))
    z, r = layer.preactivation(update).sigmoid_(), layer.preactivation(reset).sigmoid_()
    candidate = layer.terms("candidate", inputs, r * h)
    g, (through, *rest) = layer.candidate(candidate, z)
    relay = Relay(layer.recurrent("candidate"), (1 - r).mul_(r).mul_(h))
    pathways = (
        Pathway(update, (g - h).mul_(z * (1 - z)), layer.recurrent("update")),
        replace(through, gain=r),
        replace(through, terms=reset, recurrent=layer.recurrent("reset"), relay=relay),
        *rest,
    )
    gates = {"update": z, "reset": r, "candidate": g}
    return Replay(states[1:], lambda: torch.lerp(h, g, z), 1 - z, pathways, gates)


def replay_torch_gru(layer: RecurrentLayer, inputs: Tensor, states: Tensor) -> Replay:
    """Replay h <- z h + (1 - z) tanh(W x + b + r (U h + c)), the GRU of torch."""
    h = states[:-1]
    update, reset = (layer.terms(name, inputs, h) for name in ("update", "reset"))
    # Two affine maps, because the reset gate multiplies the recurrent one before they are added.
    outer, inner = layer.split_terms("candidate", inputs, h)
    z, r = layer.preactivation(update).sigmoid_(), layer.preactivation(reset).sigmoid_()
    recurrent = layer.preactivation(inner)
    n = torch.addcmul(layer.preactivation(outer), r, recurrent).tanh_()
    slope = (1 - n * n).mul_(1 - z)
    pathways = (
        Pathway(update, (h - n).mul_(z * (1 - z)), layer.recurrent("update")),
        Pathway(outer, slope),
        Pathway(inner, slope * r, layer.recurrent("candidate")),
        Pathway(reset, recurrent.mul_(r * (1 - r)).mul_(slope), layer.recurrent("reset")),
    )
    gates = {"update": z, "reset": r, "candidate": n}
    return Replay(states[1:], lambda: torch.lerp(n, h, z), z, pathways, gates)


def replay_lstm(layer: RecurrentLayer, inputs: Tensor, states: Tensor, cell: Tensor) -> Replay:
    """Replay c <- f c + i g, h = o tanh(c); `cell` is the cell before the first step.

    Implements: livi2025 Eq. (43)
    """
    h = states[:-1]
    entry, forget, output = (layer.terms(name, inputs, h) for name in ("input", "forget", "output"))
    candidate = layer.terms("candidate", inputs, h)
    i, f, o = (layer.preactivation(terms).sigmoid_() for terms in (entry, forget, output))
    g, rest = layer.candidate(candidate, i)
    c, added = f.new_empty(len(f) + 1, *f.shape[1:]), i * g  # c[0] is the cell before the first step
    c[0] = cell
    for t in range(len(f)):
        torch.addcmul(added[t], f[t], c[t], out=c[t + 1])
    tanh_c = c[1:].tanh()
    pathways = (
        Pathway(entry, (1 - i).mul_(i).mul_(g), layer.recurrent("input")),
        Pathway(forget, (1 - f).mul_(f).mul_(c[:-1]), layer.recurrent("forget")),
        *rest,
    )
    pathway = Pathway(output, (1 - o).mul_(o).mul_(tanh_c), layer.recurrent("output"))
    output_gate = OutputGate((1 - tanh_c * tanh_c).mul_(o), pathway)
    gates = {"input": i, "forget": f, "output": o, "candidate": g, "cell": c[1:]}
    return Replay(states[1:], lambda: o * tanh_c, f, pathways, gates, output_gate)


def replay_plain(layer: RecurrentLayer, inputs: Tensor, states: Tensor) -> Replay:
    """Replay h <- f(W x + U h + b), f = tanh or relu.

    Without a gate to split the Jacobian, the zeroth order is its full diagonal, f'_q U_qq, and the rest of the diagonal
    is 0.
    """
    terms = layer.terms("candidate", inputs, states[:-1])
    rate, slope_of = RATES[layer.kind]
    a = layer.preactivation(terms)
    new = rate(a)
    slope = slope_of(a, new)
    pathway = Pathway(terms, slope, layer.recurrent("candidate"))
    return Replay(states[1:], lambda: new, torch.zeros_like(slope), (pathway,), {"candidate": new}, gated=False)


#: Replay function of each kind, and its blocks of rows in the order in which they are stacked.
_KINDS: dict[str, tuple[Callable[..., Replay], tuple[str, ...]]] = {
    "const": (replay_leaky, ("candidate",)),
    "shared": (replay_leaky, ("gate", "candidate")),
    "diag": (replay_leaky, ("gate", "candidate")),
    "paper_gru": (replay_paper_gru, ("update", "reset", "candidate")),
    "gru": (replay_torch_gru, ("reset", "update", "candidate")),
    "lstm": (replay_lstm, ("input", "forget", "candidate", "output")),
    "tanh": (replay_plain, ("candidate",)),
    "relu": (replay_plain, ("candidate",)),
}
