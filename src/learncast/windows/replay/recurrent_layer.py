"""One recurrent layer of any supported model: its parameters, and its gate equations replayed for all steps at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from learncast._core.errors import UnsupportedModel
from learncast.windows import cells
from learncast.windows.replay.replay import (
    Expression,
    Normalisation,
    Path,
    Relay,
    Replay,
    Term,
    affine,
    check_signal,
    unchanged,
)
from learncast.windows.replay.stepped import SteppedLayer, is_stepped

SUPPORTED = (
    "nn.RNN, nn.GRU, nn.LSTM, ConstGate, SharedGate, DiagGate, PaperGRU, LSTM, or a module with input_size, "
    "hidden_size and a method step(state, input) that returns the next state"
)

_OWN: dict[type[nn.Module], str] = {
    cells.ConstGate: "const",
    cells.SharedGate: "shared",
    cells.DiagGate: "diag",
    cells.PaperGRU: "paper_gru",
    cells.LSTM: "lstm",
}
#: Rates as functions of currents, and their slopes by current and rate.
RATES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    "tanh": (torch.tanh, lambda a, g: 1 - g * g),
    "relu": (torch.relu, lambda a, g: (a > 0).to(a)),
    "softplus": (nn.functional.softplus, lambda a, g: a.sigmoid()),
    "sigmoid": (torch.sigmoid, lambda a, g: g * (1 - g)),
    "linear": (torch.clone, lambda a, g: torch.ones_like(a)),
}
_TORCH: dict[type[nn.Module], str] = {nn.GRU: "gru", nn.LSTM: "lstm", nn.RNN: ""}


@dataclass(frozen=True, eq=False, repr=False)
class RecurrentLayer:
    """One recurrent layer, seen through its weights.

    Parameters
    ----------
    kind : str
        "const", "shared", "diag", "paper_gru", "gru" (torch's), "lstm", "tanh" or "relu".
    own : dict of parameters
        The model's own parameters of this layer, by their names in the model; an optimiser knows these objects.
    input_weights, recurrent_weights : str
        Names of the stacked weights.
    biases : tuple of str
        Names of the biases, the one beside the input weights first; up to two.
    blocks : dict of slices
        The rows of each gate and of the candidate.
    norm : (str, str), optional
        Names of the gain and bias of the candidate's layer norm.
    norm_epsilon : float
    constant_gate : float, optional
        The gate of a "const" layer.
    nonlinearity : str
        Of the candidate, a key of `RATES`.
    """

    kind: str
    own: Mapping[str, nn.Parameter]
    input_weights: str
    recurrent_weights: str
    biases: tuple[str, ...]
    blocks: Mapping[str, slice]
    norm: tuple[str, str] | None = None
    norm_epsilon: float = cells.NORM_EPSILON
    constant_gate: float | None = None
    nonlinearity: str = "tanh"
    parameters: Mapping[str, Tensor] = field(init=False)

    def __post_init__(self) -> None:
        # Detached: they share memory with the model but cannot touch its gradients.
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
        """Recompute all gates from what went into and what came out of the layer, by matrix products over all steps.

        Parameters
        ----------
        inputs : (batch, time, inputs) tensor
        outputs : (batch, time, hidden) tensor
        initial : tuple of (batch, hidden) tensors, optional
            The hidden state before the first step, and for an LSTM the cell; zeros if left out.
        """
        dtype = self.parameters[self.input_weights].dtype
        check_signal("inputs", inputs, self.input_size, dtype)
        check_signal("outputs", outputs, self.hidden_size, dtype)
        x = inputs.detach().transpose(0, 1).contiguous()
        h = outputs.detach().transpose(0, 1)
        # An LSTM starts from a cell too.
        start = initial or (h.new_zeros(h.shape[1:]),) * (2 if self.kind == "lstm" else 1)
        states = torch.cat([start[0].unsqueeze(0), h])
        return _KINDS[self.kind][0](self, x, states, *start[1:])

    def terms(self, block: str, inputs: Tensor, recalled: Tensor) -> tuple[Term, ...]:
        """The affine map of a gate or of the candidate."""
        outer, inner = self.sides(block, inputs, recalled)
        return outer + inner

    def sides(self, block: str, inputs: Tensor, recalled: Tensor) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
        """That map cut in two: input weights with their bias, recurrent weights with theirs."""
        rows = self.blocks[block]
        outer, inner = [*((Term(name, rows, None),) for name in self.biases), (), ()][:2]
        return (
            (Term(self.input_weights, rows, inputs), *outer),
            (Term(self.recurrent_weights, rows, recalled), *inner),
        )

    def preactivation(self, terms: tuple[Term, ...]) -> Tensor:
        """What an affine map of this layer gives."""
        return affine(terms, self.parameters, square=unchanged)

    def recurrent(self, block: str) -> Tensor:
        """Recurrent weights of a gate or of the candidate."""
        return self.parameters[self.recurrent_weights][self.blocks[block]]

    def candidate(self, terms: tuple[Term, ...], gate: Tensor) -> tuple[Tensor, tuple[Path, ...]]:
        """Rate of the (normalised) pre-activation, and its paths to a state that takes it in by `gate`.

        The first path is that of `terms`; a layer norm's own gain and bias have the second.
        """
        a = self.preactivation(terms)
        recurrent = self.recurrent("candidate")
        rate, slope_of = RATES[self.nonlinearity]
        if self.norm is None:
            g = rate(a)
            return g, (Path(terms, slope_of(a, g) * gate, recurrent),)
        gain, bias = (self.parameters[name] for name in self.norm)
        variance, mean = torch.var_mean(a, -1, correction=0, keepdim=True)
        deviation = (variance + self.norm_epsilon).sqrt_()
        unit = (a - mean) / deviation
        current = torch.addcmul(bias, unit, gain)
        g = rate(current)
        slope, rows = slope_of(current, g) * gate, slice(None)
        own = (Term(self.norm[0], rows, unit, elementwise=True), Term(self.norm[1], rows, None))
        through = Path(terms, slope, recurrent, norm=Normalisation(unit, gain / deviation))
        return g, (through, Path(own, slope))


def recurrent_layers(model: nn.Module) -> tuple[RecurrentLayer | SteppedLayer, ...]:
    """The layers of the one recurrent block in `model`, the lowest first.

    Parameters
    ----------
    model : torch.nn.Module
        Contains exactly one of nn.RNN, nn.GRU, nn.LSTM (any number of layers, in one direction) or a cell of
        `learncast.windows.cells`, or any module with `input_size`, `hidden_size` and a method step(state, input)
        to the next state, such as `learncast.training.RateRNN`.
    """
    path, module = recurrent_module(model)
    prefix = f"{path}." if path else ""
    if _is_leaky(module):
        return (_leaky_layer(module, prefix),)
    if _is_unknown(module):
        return (SteppedLayer(module, {f"{prefix}{name}": value for name, value in module.named_parameters()}, prefix),)
    own = {f"{prefix}{name}": value for name, value in module.named_parameters(recurse=False)}
    if isinstance(module, nn.RNNBase):
        return tuple(_torch_layer(module, own, prefix, index) for index in range(module.num_layers))
    return (_own_layer(module, own, prefix),)


def recurrent_module(model: nn.Module) -> tuple[str, nn.Module]:
    """Name and module of the one recurrent block in `model`, refusing what cannot be replayed."""
    if not isinstance(model, nn.Module):
        raise UnsupportedModel(
            f"the model must be a torch.nn.Module, got {type(model).__name__}. Pass a module that contains "
            f"one of {SUPPORTED}."
        )
    kinds = (nn.RNNBase, nn.RNNCellBase, cells.GatedCell)
    found = [
        (name, module) for name, module in model.named_modules() if isinstance(module, kinds) or is_stepped(module)
    ]
    # What a cell that says its step is made of is its own affair.
    inside = {id(part) for _, module in found if is_stepped(module) for part in list(module.modules())[1:]}
    found = [(name, module) for name, module in found if id(module) not in inside]
    if len(found) != 1:
        got = ", ".join(f"{name or 'the model itself'} ({type(m).__name__})" for name, m in found) or "none"
        raise UnsupportedModel(
            f"the model must contain exactly one recurrent block, got {got}. Use one of {SUPPORTED}, or pass "
            "the block of interest by itself."
        )
    name, module = found[0]
    problem = _problem(module)
    if problem is not None:
        required, got, why, remedy = problem
        raise UnsupportedModel(f"{name or 'the model'} must {required}, got {got}.")
    return name, module


def _problem(module: nn.Module) -> tuple[str, str, str, str] | None:
    """What the block must do, what it does instead, why it matters, what to do; None when all is well."""
    kind = type(module).__name__
    if type(module) not in _OWN and type(module) not in _TORCH and not is_stepped(module):
        why = "the gates are replayed from known equations"
        return f"be one of {SUPPORTED}", kind, why, "use one of these"
    weights = next(module.parameters(), None)
    if weights is None or weights.dtype not in (torch.float32, torch.float64):
        got = "no parameters" if weights is None else str(weights.dtype)
        return "have float32 or float64 weights", got, "products of many factors need the precision", "call .float()"
    if _is_unknown(module):
        return None
    own = {name for name, _ in module.named_parameters(recurse=False)}
    if not own & {"weight_hh_l0", "recurrent_weights"}:
        why = "the optimiser moves other numbers than the weights the gates use"
        return "own its weights", "reparametrised weights", why, "make the reparametrisation permanent first"
    if not isinstance(module, nn.RNNBase):
        return None
    if module.bidirectional:
        why = "a backward pass over time has no past to learn from"
        return "run in one direction", f"a bidirectional {kind}", why, "use bidirectional=False"
    if getattr(module, "proj_size", 0):
        why = "the projected state mixes all units, so no unit has a transport of its own"
        return "have no output projection", f"proj_size={module.proj_size}", why, "use proj_size=0"
    if module.training and module.dropout and module.num_layers > 1:
        why = "its random masks cannot be replayed"
        got = f"dropout {module.dropout:g} between layers in training mode"
        return "be free of dropout between its layers", got, why, "call model.eval() first"
    return None


def _is_unknown(module: nn.Module) -> bool:
    """Whether no formula of its gates is known, and its step is all there is to go by."""
    return type(module) not in _OWN and type(module) not in _TORCH


def _is_leaky(module: nn.Module) -> bool:
    """Whether a cell says of itself that it is the leaky rate network, with weights that are its own parameters."""
    says = is_stepped(module) and getattr(module, "nonlinearity", None) in RATES and hasattr(module, "alpha")
    recurrent: Any = getattr(module, "recurrent", None)
    return says and callable(recurrent) and any(recurrent() is value for value in module.parameters())


def _leaky_layer(module: Any, prefix: str) -> RecurrentLayer:
    own = {f"{prefix}{name}": value for name, value in module.named_parameters()}
    weights = module.recurrent()
    return RecurrentLayer(
        kind="const",
        own=own,
        input_weights=f"{prefix}input_weights",
        recurrent_weights=next(name for name, value in own.items() if value is weights),
        biases=(f"{prefix}bias",),
        blocks=_slices("const", [module.hidden_size]),
        constant_gate=float(module.alpha),
        nonlinearity=module.nonlinearity,
    )


def _slices(kind: str, sizes: list[int]) -> dict[str, slice]:
    edges = [sum(sizes[:k]) for k in range(len(sizes) + 1)]
    return {name: slice(*edges[k : k + 2]) for k, name in enumerate(_KINDS[kind][1])}


def _torch_layer(module: nn.RNNBase, own: dict[str, nn.Parameter], prefix: str, index: int) -> RecurrentLayer:
    kind = _TORCH[type(module)] or str(module.nonlinearity)
    mine = {name: value for name, value in own.items() if name.endswith(f"_l{index}")}
    return RecurrentLayer(
        kind=kind,
        own=mine,
        input_weights=f"{prefix}weight_ih_l{index}",
        recurrent_weights=f"{prefix}weight_hh_l{index}",
        biases=(f"{prefix}bias_ih_l{index}", f"{prefix}bias_hh_l{index}") if module.bias else (),
        blocks=_slices(kind, [module.hidden_size] * len(_KINDS[kind][1])),
    )


def _own_layer(module: nn.Module, own: dict[str, nn.Parameter], prefix: str) -> RecurrentLayer:
    assert isinstance(module, cells.GatedCell)
    options: dict[str, Any] = {"constant_gate": module.gate} if isinstance(module, cells.ConstGate) else {}
    kind = _OWN[type(module)]
    return RecurrentLayer(
        kind=kind,
        own=own,
        input_weights=f"{prefix}input_weights",
        recurrent_weights=f"{prefix}recurrent_weights",
        biases=(f"{prefix}bias",),
        blocks=_slices(kind, module.block_rows()),
        norm=(f"{prefix}norm_gain", f"{prefix}norm_bias") if module.layer_norm else None,
        **options,
    )


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
        g, paths = layer.candidate(candidate, s)
        paths = (Path(gate, (g - h).mul_(s * (1 - s)), layer.recurrent("gate")), *paths)
    else:
        s = h.new_full((1, 1, 1), layer.constant_gate)
        g, paths = layer.candidate(candidate, s)
    gates = {"candidate": g, "gate": s.expand_as(g)}
    return Replay(states[1:], lambda: torch.lerp(h, g, s.expand_as(g)), (1 - s).expand_as(g), paths, gates)


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
    paths = (
        Path(update, (g - h).mul_(z * (1 - z)), layer.recurrent("update")),
        replace(through, gain=r),
        replace(through, terms=reset, recurrent=layer.recurrent("reset"), relay=relay),
        *rest,
    )
    gates = {"update": z, "reset": r, "candidate": g}
    return Replay(states[1:], lambda: torch.lerp(h, g, z), 1 - z, paths, gates)


def replay_torch_gru(layer: RecurrentLayer, inputs: Tensor, states: Tensor) -> Replay:
    """Replay h <- z h + (1 - z) tanh(W x + b + r (U h + c)), the GRU of torch."""
    h = states[:-1]
    update, reset = (layer.terms(name, inputs, h) for name in ("update", "reset"))
    # The candidate is two affine maps here: the reset gate stands between the recurrent product and the sum.
    outer, inner = layer.sides("candidate", inputs, h)
    z, r = layer.preactivation(update).sigmoid_(), layer.preactivation(reset).sigmoid_()
    recalled = layer.preactivation(inner)
    n = torch.addcmul(layer.preactivation(outer), r, recalled).tanh_()
    slope = (1 - n * n).mul_(1 - z)
    paths = (
        Path(update, (h - n).mul_(z * (1 - z)), layer.recurrent("update")),
        Path(outer, slope),
        Path(inner, slope * r, layer.recurrent("candidate")),
        Path(reset, recalled.mul_(r * (1 - r)).mul_(slope), layer.recurrent("reset")),
    )
    gates = {"update": z, "reset": r, "candidate": n}
    return Replay(states[1:], lambda: torch.lerp(n, h, z), z, paths, gates)


def replay_lstm(layer: RecurrentLayer, inputs: Tensor, states: Tensor, cell: Tensor) -> Replay:
    """Replay c <- f c + i g, h = o tanh(c); `cell` is the cell before the first step.

    Implements: livi2025 Eq. (43)
    """
    h = states[:-1]
    entry, forget, output = (layer.terms(name, inputs, h) for name in ("input", "forget", "output"))
    candidate = layer.terms("candidate", inputs, h)
    i, f, o = (layer.preactivation(terms).sigmoid_() for terms in (entry, forget, output))
    g, rest = layer.candidate(candidate, i)
    held, added = f.new_empty(len(f) + 1, *f.shape[1:]), i * g  # all cells, the one before the first step included
    held[0] = cell
    for t in range(len(f)):
        torch.addcmul(added[t], f[t], held[t], out=held[t + 1])
    shown = held[1:].tanh()
    paths = (
        Path(entry, (1 - i).mul_(i).mul_(g), layer.recurrent("input")),
        Path(forget, (1 - f).mul_(f).mul_(held[:-1]), layer.recurrent("forget")),
        *rest,
    )
    expression = Expression(
        slope=(1 - shown * shown).mul_(o),
        output=Path(output, (1 - o).mul_(o).mul_(shown), layer.recurrent("output")),
    )
    gates = {"input": i, "forget": f, "output": o, "candidate": g, "cell": held[1:]}
    return Replay(states[1:], lambda: o * shown, f, paths, gates, expression)


def replay_plain(layer: RecurrentLayer, inputs: Tensor, states: Tensor) -> Replay:
    """Replay h <- f(W x + U h + b), f = tanh or relu.

    There is no gate to split the Jacobian by, so the zeroth order is its whole diagonal, f'_q U_qq, and the rest of the
    diagonal is 0.
    """
    terms = layer.terms("candidate", inputs, states[:-1])
    a = layer.preactivation(terms)
    new = a.relu() if layer.kind == "relu" else a.tanh()
    slope = (a > 0).to(a) if layer.kind == "relu" else 1 - new * new
    path = Path(terms, slope, layer.recurrent("candidate"))
    return Replay(states[1:], lambda: new, torch.zeros_like(slope), (path,), {"candidate": new}, gated=False)


#: How each kind is replayed, and its blocks of rows in the order in which it stacks them.
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
