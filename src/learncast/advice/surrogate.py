"""The linear surrogate of a recurrent model: a linear network with the model's own parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import count
from math import log
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from learncast._core.errors import UnsupportedModel
from learncast._core.progress import Progress, silent
from learncast._core.validation import FloatArray
from learncast.advice.moments import MomentStack
from learncast.procedure.training import Training
from learncast.training.cells import FullRecurrence, RateRNN, SteppedCell
from learncast.training.losses import Answered
from learncast.training.sources import Batch, Source
from learncast.training.torch_state import evaluating
from learncast.training.updates import Make

Parameters = dict[str, Tensor]

#: Drive (copies, states, inputs + 1), recurrence, and output of each state (copies, states) of a layer.
Layer = tuple[Tensor, Tensor, Tensor]
#: Supported recurrent layers.
LAYERS: dict[type[nn.Module], str] = {nn.RNN: "rnn", nn.GRU: "gru", nn.LSTM: "lstm", RateRNN: "rate"}
#: Value and slope at 0 of a rate network's units; a ReLU counts as active.
AT_REST = {"softplus": (log(2.0), 0.5), "sigmoid": (0.5, 0.25)} | dict.fromkeys(("tanh", "relu", "linear"), (0.0, 1.0))
#: Largest relative difference between the model and its layer with linear readout (float32 round-off).
SAME = 1e-5
#: Numbers of a batch, written out lag by lag, that are kept in memory at a time.
CHUNK = 2**22


@dataclass(frozen=True, eq=False)
class LinearSystem:
    """s_t = recurrence s_{t-1} + drive (x_t, 1), answered by readout s_t + offset; all with a leading axis of copies.

    Attributes
    ----------
    drive : (copies, states, inputs + 1)
        The last column is the constant drive of the biases.
    recurrence : (copies, states, states)
    readout : (copies, outputs, states)
    offset : (copies, outputs)
    """

    drive: Tensor
    recurrence: Tensor
    readout: Tensor
    offset: Tensor

    def filters(self, lags: int) -> Tensor:
        """Return the weight of each lag's input (and constant 1) in the answer, (copies, outputs, lags, inputs + 1)."""
        found: Tensor = _Filter.apply(self.drive, self.recurrence, self.readout, lags)  # type: ignore[no-untyped-call]
        # The constant 1 of the newest step is present at every readout, so it carries the readout's bias.
        own = torch.zeros_like(found)
        own[:, :, 0, -1] = self.offset
        return found + own


@dataclass(frozen=True, eq=False, repr=False)
class LinearSurrogate:
    """The linearisation of a model at zero activity, as a function of the model's own parameters.

    Gates are fixed at the values of their biases, activations have their slope at 0. The rest is linear in the input
    and the state:

    - nn.RNN: h <- W x + U h + b
    - nn.GRU: h <- z h + (1 - z) (W x + b + r (U h + b')), with z and r the gates' values at x = h = 0
    - nn.LSTM: c <- f c + i (W x + U h + b), h = o c, with i, f, o the gates' values at x = h = 0
    - RateRNN: h <- (1 - a) h + a (f(0) + f'(0) (W h + U x + b))

    Several layers are composed. The model's parameters learn, so that an optimiser acts on them as in the model:
    candidate and readout weights, their biases, and the gates' biases. The gates' weights have no first-order effect.

    Attributes
    ----------
    kind : str
        "tanh", "relu", "gru", "lstm", or the nonlinearity of a rate network.
    every_step : bool
        Whether the model answers at every step or at the end.
    parameters : dict of tensors
        Copies in float64, by their names in the model.
    learns : tuple of str
        Names of those that require a gradient.
    """

    kind: str
    inputs: int
    outputs: int
    layers: int
    every_step: bool
    parameters: Mapping[str, Tensor]
    learns: tuple[str, ...]
    layer_name: str
    readout_name: str
    leak: float | None = None

    @property
    def has_biases(self) -> bool:
        """Whether the surrogate can answer without an input."""
        return any("bias" in name for name in self.parameters)

    def stacked(self, copies: int) -> dict[str, Tensor]:
        """Return the parameters of several copies, with a leading axis."""
        return {name: value.expand(copies, *value.shape).clone() for name, value in self.parameters.items()}

    def system(self, parameters: Mapping[str, Tensor]) -> LinearSystem:
        """Return the linear network with these parameters (with a leading axis); differentiable."""
        drive, recurrence, output = reduce(_behind, (self._layer(parameters, k) for k in range(self.layers)))
        weight = parameters[f"{self.readout_name}weight"]
        offset = parameters.get(f"{self.readout_name}bias", weight.new_zeros(weight.shape[:2]))
        own = output.shape[-1]
        inner = weight.new_zeros(*weight.shape[:2], drive.shape[1] - own)  # only the last layer is read out
        return LinearSystem(drive, recurrence, torch.cat([inner, weight * output[:, None, :]], dim=2), offset)

    def _layer(self, parameters: Mapping[str, Tensor], index: int) -> Layer:
        stem = self.layer_name
        if self.leak is not None:
            return self._leaky(parameters)
        W, U = (parameters[f"{stem}weight_{side}_l{index}"] for side in ("ih", "hh"))
        zero = W.new_zeros(W.shape[:2])
        b, b2 = (parameters.get(f"{stem}bias_{side}_l{index}", zero) for side in ("ih", "hh"))
        n = U.shape[-1]
        if self.kind == "gru":
            r, z = (b + b2)[:, : 2 * n].sigmoid().chunk(2, dim=1)
            share = (1 - z)[:, :, None]
            drive = share * torch.cat([W[:, 2 * n :], (b[:, 2 * n :] + r * b2[:, 2 * n :])[:, :, None]], dim=2)
            recurrence = share * r[:, :, None] * U[:, 2 * n :] + torch.diag_embed(z)
            return drive, recurrence, torch.ones_like(z)
        total = (b + b2)[:, :, None]
        if self.kind == "lstm":
            i, f, _, o = (b + b2).sigmoid().chunk(4, dim=1)
            rows = slice(2 * n, 3 * n)
            drive = i[:, :, None] * torch.cat([W[:, rows], total[:, rows]], dim=2)
            # The state is c; the recurrent input is h = o c.
            recurrence = i[:, :, None] * U[:, rows] * o[:, None, :] + torch.diag_embed(f)
            return drive, recurrence, o
        return torch.cat([W, total], dim=2), U, W.new_ones(W.shape[:2])

    def _leaky(self, parameters: Mapping[str, Tensor]) -> Layer:
        """Return the layer of a rate network."""
        stem, a, (level, slope) = self.layer_name, float(self.leak or 1.0), AT_REST[self.kind]
        W, U, b = (parameters[f"{stem}{name}"] for name in ("recurrent.weights", "input_weights", "bias"))
        drive = a * torch.cat([slope * U, (level + slope * b)[:, :, None]], dim=2)
        own = torch.eye(W.shape[-1], dtype=W.dtype)
        return drive, (1.0 - a) * own + a * slope * W, torch.ones_like(b)


def linear_surrogate(module: nn.Module, *, steps: int = 5) -> LinearSurrogate:
    """Return the linear surrogate of a model.

    Parameters
    ----------
    module : nn.Module
        Contains one unidirectional nn.RNN, nn.GRU or nn.LSTM with any number of layers, and one nn.Linear that reads
        out its last layer at the end or at every step. It maps inputs (trials, steps, inputs) to the answers.
    steps : int
        Steps of the random trials on which the model is compared with these two parts.
    """
    layer_name, layer = _recurrent(module)
    readout_name, readout = _readout(module, layer)
    parts = ((layer_name, layer), (readout_name, readout))
    kind = LAYERS[type(layer)]
    named = ((stem, part.named_parameters(recurse=kind == "rate")) for stem, part in parts)
    own = {f"{stem}{name}": value for stem, these in named for name, value in these}
    return LinearSurrogate(
        kind=str(layer.nonlinearity) if kind in ("rnn", "rate") else kind,
        inputs=layer.input_size,
        outputs=readout.out_features,
        layers=getattr(layer, "num_layers", 1),
        every_step=_read_out_when(module, layer, readout, steps),
        parameters={name: value.detach().to(torch.float64).clone() for name, value in own.items()},
        learns=tuple(name for name, value in own.items() if value.requires_grad),
        layer_name=layer_name,
        readout_name=readout_name,
        leak=layer.alpha if kind == "rate" else None,
    )


def _recurrent(module: nn.Module) -> tuple[str, Any]:
    kinds = (nn.RNNBase, nn.RNNCellBase, SteppedCell)
    layers = [(name, part) for name, part in module.named_modules() if isinstance(part, kinds)]
    if len(layers) != 1 or type(layers[0][1]) not in LAYERS:
        got = ", ".join(f"{name or 'the model itself'} ({type(part).__name__})" for name, part in layers)
        raise _unsupported(f"exactly one nn.RNN, nn.GRU, nn.LSTM or training.RateRNN, got {got or 'none'}")
    name, layer = layers[0]
    if isinstance(layer, RateRNN):
        if not isinstance(layer.recurrent, FullRecurrence):
            raise _unsupported(f'recurrence="full", got {type(layer.recurrent).__name__}')
    elif layer.bidirectional:
        raise _unsupported("bidirectional=False")
    if getattr(layer, "proj_size", 0):
        raise _unsupported(f"proj_size=0, got {layer.proj_size}")
    if isinstance(layer, nn.RNNBase) and "weight_hh_l0" not in dict(layer.named_parameters(recurse=False)):
        raise _unsupported("a layer with plain, not reparametrised, weights")
    return f"{name}." if name else "", layer


def _readout(module: nn.Module, layer: Any) -> tuple[str, nn.Linear]:
    linear = [(name, part) for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    if len(linear) != 1 or linear[0][1].in_features != layer.hidden_size:
        got = ", ".join(f"{name} ({part.in_features} to {part.out_features})" for name, part in linear)
        raise _unsupported(f"exactly one nn.Linear, from the layer's {layer.hidden_size} units, got {got or 'none'}")
    return f"{linear[0][0]}.", linear[0][1]


def _read_out_when(module: nn.Module, layer: Any, readout: nn.Linear, steps: int) -> bool:
    """Return whether the model answers at every step; refuse a model that is more than a layer and a readout."""
    generator = torch.Generator().manual_seed(0)
    weight = next(layer.parameters())
    # Large inputs, because any nonlinearity is nearly linear for small answers.
    x = 10.0 * torch.randn(3, steps, layer.input_size, generator=generator, dtype=torch.float64).to(weight)
    try:
        with evaluating(module):
            answer = module(x)
            hidden = layer(x if layer.batch_first else x.transpose(0, 1))[0]
            running = readout(hidden if layer.batch_first else hidden.transpose(0, 1))
        shape = tuple(answer.shape)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        raise _unsupported(f"inputs of shape {tuple(x.shape)}, got {text}") from error
    for every_step, expected in ((True, running), (False, running[:, -1])):
        if shape == tuple(expected.shape):
            gap = float((answer - expected).abs().max()) / max(float(expected.abs().max()), 1e-12)
            if gap <= SAME:
                return every_step
            raise _unsupported(f"a layer and a linear readout only, got answers that differ from these by {gap:.2g}")
    shapes = f"{tuple(running[:, -1].shape)} or {tuple(running.shape)}"
    raise _unsupported(f"answers of shape {shapes}, trials first, got {shape}")


def _unsupported(required: str) -> UnsupportedModel:
    return UnsupportedModel(f"The linear surrogate of a model needs {required}.", field="model")


def _behind(below: Layer, above: Layer) -> Layer:
    """Compose two linear layers; the upper one is driven by the lower one's output of the same step."""
    (B, A, out), (B2, A2, out2) = below, above
    read = out.new_zeros(len(out), B2.shape[1], A.shape[1])
    read[:, :, -out.shape[1] :] = B2[:, :, :-1] * out[:, None, :]
    drive = read @ B
    constant = drive[:, :, -1:] + B2[:, :, -1:]
    drive = torch.cat([B, torch.cat([drive[:, :, :-1], constant], dim=2)], dim=1)
    top = torch.cat([A, A.new_zeros(len(A), A.shape[1], A2.shape[1])], dim=2)
    return drive, torch.cat([top, torch.cat([read @ A, A2], dim=2)], dim=1), out2


class _Filter(torch.autograd.Function):
    """K_k = C A^k B for all lags k, with an explicit gradient: autograd would sum one matrix per lag."""

    @staticmethod
    def forward(ctx: Any, drive: Tensor, recurrence: Tensor, readout: Tensor, lags: int) -> Tensor:
        rows = [readout]
        for _ in range(lags - 1):
            rows.append(torch.bmm(rows[-1], recurrence))
        reach = torch.stack(rows, dim=1)  # J_k = C A^k, (copies, lags, outputs, states)
        ctx.save_for_backward(drive, recurrence, reach)
        return torch.matmul(reach, drive[:, None]).transpose(1, 2)

    @staticmethod
    def backward(ctx: Any, *given: Any) -> object:
        drive, recurrence, reach = ctx.saved_tensors
        slope = given[0].transpose(1, 2)  # (copies, lags, outputs, inputs)
        direct = torch.matmul(slope, drive[:, None].transpose(2, 3))
        back = recurrence.transpose(1, 2)
        rows = [direct[:, -1]]
        for k in range(direct.shape[1] - 2, -1, -1):
            rows.append(torch.baddbmm(direct[:, k], rows[-1], back))  # M_k = D_k B' + M_{k+1} A'
        carried = torch.stack(rows[::-1], dim=1)
        copies, _, _, states = reach.shape
        flat, early, late = reach.flatten(1, 2), reach[:, :-1].reshape(copies, -1, states), carried[:, 1:]
        of_drive = torch.bmm(flat.transpose(1, 2), slope.reshape(copies, -1, slope.shape[3]))
        of_recurrence = torch.bmm(early.transpose(1, 2), late.reshape(copies, -1, states))
        return of_drive, of_recurrence, carried[:, 0], None


@dataclass(frozen=True, eq=False)
class BatchSlopes:
    """Gradients on the batches of the model's training.

    Attributes
    ----------
    sources : list of Source
        One for each copy, or one for all copies.
    """

    sources: Sequence[Source]
    training: Training
    key: int
    lags: int

    def at(self, filters: Tensor, step: int) -> Tensor:
        """Return the gradient of each copy's batch loss in its filters (copies, outputs, variables)."""
        if len(self.sources) == 1:
            return self._slope(filters, self.sources[0], step)
        return torch.cat([self._slope(filters[k : k + 1], one, step) for k, one in enumerate(self.sources)])

    def _slope(self, filters: Tensor, source: Source, step: int) -> Tensor:
        settings, key = self.training, (self.training.seed, self.key)
        batch = source.batch(settings.batch, key, step, torch.float64, shuffle=settings.shuffle)
        x, y, counted = in_numbers(batch, filters.shape[1])
        total = torch.zeros_like(filters)
        size = max(1, CHUNK // (filters.shape[2] * (x.shape[1] if y.ndim == 3 else 1)))
        for first in range(0, len(x), size):
            part = slice(first, first + size)
            rows, wanted = written_out(x[part], y[part], self.lags)
            error = filters @ rows.T - wanted.T
            if counted is not None:
                error = error * counted[part].reshape(-1, counted.shape[-1]).T
            total += error @ rows
        return total / len(x)

    def kept(self, index: Tensor) -> BatchSlopes:
        """Return the gradients of some copies."""
        if len(self.sources) == 1:
            return self
        return replace(self, sources=[self.sources[int(k)] for k in index])


def in_numbers(batch: Batch, outputs: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return inputs, numeric targets (labels one-hot), and their weights with an axis of outputs, or None."""
    x, y, w = batch
    shape = (*y.shape, outputs) if not y.is_floating_point() else tuple(y.shape)
    answered = Answered.of(x.new_zeros(shape), y, w)
    return x, answered.wanted.reshape(shape), answered.weights


def written_out(x: Tensor, y: Tensor, lags: int) -> tuple[Tensor, Tensor]:
    """Return one row of (lag, input and constant 1) per readout, and its targets."""
    n, steps, inputs = x.shape
    ones = torch.cat([x, x.new_ones(n, steps, 1)], dim=2)
    every_step = y.ndim == 3
    rows = x.new_zeros(n, steps if every_step else 1, lags, inputs + 1)
    for place, r in enumerate(range(steps) if every_step else [steps - 1]):
        rows[:, place, : r + 1] = ones[:, : r + 1].flip(1)
    return rows.reshape(-1, lags * (inputs + 1)), y.reshape(-1, y.shape[-1])


def descend_surrogate(
    surrogate: LinearSurrogate,
    parameters: Parameters,
    moments: MomentStack,
    goals: FloatArray,
    *,
    optimizer: Make,
    limits: FloatArray | float,
    batches: BatchSlopes | None = None,
    scale: float = 1.0,
    progress: Progress = silent,
) -> tuple[FloatArray, list[list[Parameters | None]]]:
    """Train copies of a surrogate until each has passed its goals.

    Parameters
    ----------
    surrogate : LinearSurrogate
    parameters : dict of (copies, ...) tensors
    moments : MomentStack
        One task for each copy, or one for all; they determine the loss.
    goals : (copies, goals)
        Losses to reach.
    optimizer : callable
        It must update every number independently, because the copies are stacked.
    limits : float or (copies,)
        Steps after which each copy is given up.
    batches : BatchSlopes, optional
        Gradients of batches; by default exact ones, from the moments.
    scale : float
        Factor of the gradient of half the squared error.
    progress : callable, optional
        Called with the number of steps taken.

    Returns
    -------
    steps : (copies, goals)
        First step at which the loss is at most the goal; infinite if it was not reached.
    states : list of lists of parameters
        The parameters at that step; None if it was not reached.
    """
    n, many = goals.shape
    steps, alive = np.full((n, many), np.inf), np.arange(n)
    states: list[list[Parameters | None]] = [[None] * many for _ in range(n)]
    limit = np.broadcast_to(limits, n)
    moving = {name: value.detach().clone() for name, value in parameters.items()}
    rule = optimizer({name: moving[name].requires_grad_() for name in surrogate.learns})
    for step in count():
        filters = surrogate.system(moving).filters(moments.lags).flatten(2)
        loss, slope = moments.loss_and_slope(filters.detach())
        now = np.asarray(loss.numpy())
        passed = np.isinf(steps[alive]) & (now[:, None] <= goals[alive])
        for place, goal in np.argwhere(passed):
            steps[alive[place], goal] = step
            states[alive[place]][goal] = {name: value[place].detach().clone() for name, value in moving.items()}
        on = np.isinf(steps[alive]).any(1) & (step < limit[alive]) & np.isfinite(now)
        if not on.any():
            break
        rule.zero_grad(set_to_none=True)
        gradient = slope if batches is None else batches.at(filters.detach(), step)
        filters.backward(scale * gradient)  # type: ignore[no-untyped-call]
        rule.step()
        if on.sum() < len(alive):
            alive, index = alive[on], torch.from_numpy(np.flatnonzero(on))
            moments, batches = moments.kept(index), batches and batches.kept(index)
            _keep(moving, rule, index)
        if step % 16 == 15:
            progress(step + 1)
    return steps, states


def _keep(moving: Parameters, rule: torch.optim.Optimizer, index: Tensor) -> None:
    """Continue with some copies and the state of their optimiser."""
    with torch.no_grad():
        for value in moving.values():
            state: dict[str, object] = rule.state.get(value, {})
            for key, moment in state.items():
                if isinstance(moment, Tensor) and moment.shape == value.shape:
                    state[key] = moment[index]
            value.grad = None
            value.set_(value.detach()[index])  # type: ignore[call-overload]


def stacked(states: Sequence[Parameters]) -> Parameters:
    """Stack the states of several copies."""
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}
