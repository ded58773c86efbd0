"""The parts of a recurrent model: its one recurrent layer, and the linear map that reads it out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from learncast.errors import InvalidSpec, UnsupportedModel

#: Recurrent layers of torch that are known.
LAYERS = {nn.RNN: "rnn", nn.GRU: "gru", nn.LSTM: "lstm"}
#: Largest difference, as a share of the answers, between the model and its layer read out linearly (float32 round-off).
SAME = 1e-5


@dataclass(frozen=True, eq=False)
class ModelParts:
    """What a model is made of.

    Attributes
    ----------
    layer : nn.RNN, nn.GRU or nn.LSTM
    readout : nn.Linear
    layer_name, readout_name : str
        What their parameters' names begin with in the model, the dot included.
    every_step : bool
        Whether the model answers at every step or at the end.
    """

    layer: Any
    readout: nn.Linear
    layer_name: str
    readout_name: str
    every_step: bool

    @classmethod
    def of(cls, module: nn.Module, steps: int) -> ModelParts:
        """Find them, and refuse a model that is more than these two parts; it is tried on trials of so many steps."""
        layer_name, layer = _recurrent(module)
        readout_name, readout = _readout(module, layer)
        _check_finite(module)
        return cls(layer, readout, layer_name, readout_name, _read_out_when(module, layer, readout, steps))

    @property
    def kind(self) -> str:
        """The cell: tanh, relu, gru or lstm."""
        kind = LAYERS[type(self.layer)]
        return str(self.layer.nonlinearity) if kind == "rnn" else kind

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """The parameters of both parts, by their names in the model."""
        pairs = ((self.layer_name, self.layer), (self.readout_name, self.readout))
        return {f"{stem}{name}": value for stem, part in pairs for name, value in part.named_parameters(recurse=False)}


def _recurrent(module: nn.Module) -> tuple[str, Any]:
    if not isinstance(module, nn.Module):
        raise _unsupported("a torch.nn.Module", type(module).__name__, "pass the model itself")
    kinds = (nn.RNNBase, nn.RNNCellBase)
    found = [(name, part) for name, part in module.named_modules() if isinstance(part, kinds)]
    if len(found) != 1 or type(found[0][1]) not in LAYERS:
        got = ", ".join(f"{name or 'the model itself'} ({type(part).__name__})" for name, part in found)
        raise _unsupported(
            "a model with exactly one recurrent layer, nn.RNN, nn.GRU or nn.LSTM",
            got or "a model without a recurrent layer",
            "use one of these with a linear readout",
        )
    name, layer = found[0]
    if layer.bidirectional:
        raise _unsupported("a layer that runs in one direction", "a bidirectional one", "use bidirectional=False")
    if getattr(layer, "proj_size", 0):
        raise _unsupported("a layer without projection", f"proj_size={layer.proj_size}", "use proj_size=0")
    if "weight_hh_l0" not in dict(layer.named_parameters(recurse=False)):
        raise _unsupported("a layer that owns its weights", "reparametrised weights", "make them permanent first")
    if any(value.device.type != "cpu" for value in module.parameters()):
        raise _unsupported("a model on the CPU", "one on another device", "pass copy.deepcopy(model).cpu()")
    return f"{name}." if name else "", layer


def _readout(module: nn.Module, layer: Any) -> tuple[str, nn.Linear]:
    found = [(name, part) for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    if len(found) != 1 or found[0][1].in_features != layer.hidden_size:
        got = ", ".join(f"{name} ({part.in_features} to {part.out_features})" for name, part in found)
        raise _unsupported(
            f"exactly one nn.Linear, which reads out the layer's {layer.hidden_size} units",
            got or "no nn.Linear",
            "read the layer out with a single nn.Linear",
        )
    return f"{found[0][0]}.", found[0][1]


def _check_finite(module: nn.Module) -> None:
    for name, value in module.named_parameters():
        if not torch.isfinite(value).all():
            raise InvalidSpec(
                required=f"the model's weights must be finite ({name} is not)",
                got=f"{int((~torch.isfinite(value)).sum())} NaN or infinite values of {value.numel()}",
                why="no training can start from them",
                remedy="initialise the model again",
            )


def _read_out_when(module: nn.Module, layer: Any, readout: nn.Linear, steps: int) -> bool:
    """Whether the model answers at every step; refused when it is more than its layer read out linearly."""
    generator = torch.Generator().manual_seed(0)
    weight = layer.weight_ih_l0
    # Loud inputs: where answers are small, whatever bends them is nearly straight.
    x = 10.0 * torch.randn(3, steps, layer.input_size, generator=generator, dtype=torch.float64).to(weight)
    try:
        with _at_rest(module):
            answer = module(x)
            hidden = layer(x if layer.batch_first else x.transpose(0, 1))[0]
            running = readout(hidden if layer.batch_first else hidden.transpose(0, 1))
        shape = tuple(answer.shape)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        raise _unsupported(
            f"a model that takes inputs of shape {tuple(x.shape)} to a tensor of answers", text, _WRAP
        ) from error
    for every_step, expected in ((True, running), (False, running[:, -1])):
        if shape == tuple(expected.shape):
            gap = float((answer - expected).abs().max()) / max(float(expected.abs().max()), 1e-12)
            if gap <= SAME:
                return every_step
            raise _unsupported(
                "a model that is its recurrent layer read out by its nn.Linear and nothing more",
                f"answers that differ from these two parts by {gap:.2g} of their size",
                "move what is done before and after them into the data, or use simulate.train_all to compare plans",
            )
    raise _unsupported(
        f"answers of shape {tuple(running[:, -1].shape)} (at the end) or {tuple(running.shape)} (at every step)",
        f"shape {shape}",
        _WRAP,
    )


_WRAP = "wrap the model so that forward(x) returns its readout, trials first, at the end or at every step"


def _unsupported(required: str, got: str, remedy: str) -> UnsupportedModel:
    why = "the surrogate is the linear network with the weights of one recurrent layer and its readout"
    return UnsupportedModel(required=required, got=got, why=why, remedy=remedy)


@contextmanager
def _at_rest(module: nn.Module) -> Iterator[None]:
    """A look at the module that leaves no trace: no dropout, no running averages, no gradients."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, mode in modes:
            part.training = mode
