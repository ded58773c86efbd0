"""An example model, a built-in cell with a linear readout, and its training."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn, optim

from learncast._core.errors import InvalidSpec
from learncast._core.progress import Progress, check_time, silent
from learncast._core.validation import FloatArray, count, one_of, positive, real_array
from learncast.windows import cells
from learncast.windows.transport.base_rate import KNOWN

OWN: dict[str, type[cells.GatedCell]] = {
    "const-gate": cells.ConstGate,
    "shared-gate": cells.SharedGate,
    "diag-gate": cells.DiagGate,
    "paper-gru": cells.PaperGRU,
    "paper-lstm": cells.LSTM,
}
TORCH: dict[str, Callable[..., nn.RNNBase]] = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}
KINDS = (*OWN, *TORCH)
Optimizer = optim.Optimizer
OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {kind.__name__.lower(): kind for kind in KNOWN}


class CellReadout(nn.Module):
    """A recurrent block and a linear readout of its states at every step.

    Parameters
    ----------
    block : torch.nn.Module
        (batch, time, inputs) to (batch, time, hidden), or a torch block with batch_first.
    outputs : int
    generator : torch.Generator
        Generator of the readout's weights.
    """

    def __init__(self, block: nn.Module, outputs: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.block = block
        width, bound = int(block.hidden_size), 1 / math.sqrt(int(block.hidden_size))  # type: ignore[arg-type]
        self.weights = nn.Parameter((2 * torch.rand(outputs, width, generator=generator) - 1) * bound)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs at every step, (batch, time, outputs)."""
        states = self.block(inputs)
        states = states[0] if isinstance(states, tuple) else states
        if self.weights.dim() == 3:  # a stack of networks
            return states @ self.weights.mT[:, None] + self.bias[:, None, None]
        return nn.functional.linear(states, self.weights, self.bias)

    @torch.no_grad()
    def answers(self, inputs: ArrayLike) -> FloatArray:
        """Outputs at every step as an array, (batch, time, outputs)."""
        return self(self.weights.new_tensor(inputs)).double().cpu().numpy()


@torch.no_grad()
def published_start(model: CellReadout, *, random_biases: bool, seed: int) -> None:
    """Set biases and readout of a cell of `learncast.windows` as the scripts of livi2025 do.

    All biases are uniform within 1 / sqrt(inputs) in size (GRU and LSTM), or those of the candidate are 0. The readout
    has norm 1.
    """
    bias, width = model.block.bias, int(model.block.input_size)  # type: ignore[arg-type]
    assert isinstance(bias, Tensor)
    if random_biases:
        bias.uniform_(-1, 1, generator=torch.Generator().manual_seed(seed)).div_(math.sqrt(width))
    else:
        bias[-int(model.block.hidden_size) :] = 0  # type: ignore[arg-type]
    model.weights.div_(model.weights.norm())


def build_model(kind: str, *, inputs: int, outputs: int, hidden_size: int, seed: int, **options: Any) -> CellReadout:
    """Create a built-in cell with a readout; its weights depend on `seed` only.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    inputs, outputs, hidden_size, seed : int
    **options
        gate, layer_norm and orthogonal for the cells of `learncast.windows.cells`, layers for torch's.
    """
    one_of("kind", kind, KINDS)
    generator = torch.Generator().manual_seed(seed)
    if kind in OWN:
        block: nn.Module = OWN[kind](inputs, hidden_size, generator=generator, **options)
    else:
        with torch.random.fork_rng(devices=[]):  # torch initialises weights from the global generator
            block = TORCH[kind](inputs, hidden_size, options.get("layers", 1), batch_first=True)
        bound = 1 / math.sqrt(hidden_size)
        with torch.no_grad():
            for value in block.parameters():
                value.copy_((2 * torch.rand(value.shape, generator=generator) - 1) * bound)
    return CellReadout(block, outputs, generator=generator)


def build_optimizer(kind: str, model: nn.Module, *, learning_rate: float, **options: object) -> optim.Optimizer:
    """Create an optimiser of a supported kind for all parameters of `model`."""
    one_of("optimizer", kind, tuple(OPTIMIZERS))
    return OPTIMIZERS[kind](model.parameters(), lr=positive("learning_rate", learning_rate), **options)


def train_on_batches(
    model: nn.Module,
    optimizer: optim.Optimizer,
    inputs: ArrayLike,
    targets: ArrayLike,
    *,
    steps: int,
    batch: int,
    rng: np.random.Generator,
    clip: float | None = None,
    progress: Progress = silent,
) -> FloatArray:
    """Train on random batches with the mean squared error, and return the loss of every training step.

    Parameters
    ----------
    model, optimizer
    inputs, targets : (sequences, steps, channels)
    steps, batch : int
        Training steps, and sequences per step.
    rng : numpy Generator
        Selects the batches.
    clip : float, optional
        Largest norm of a gradient.
    progress : callable
    """
    number = count("batch", batch)
    x, y = (torch.as_tensor(real_array(*pair, ndim=3)).float() for pair in (("inputs", inputs), ("targets", targets)))
    losses = np.empty(count("steps", steps, least=0))
    for step in range(len(losses)):
        rows = torch.as_tensor(rng.integers(0, len(x), number))
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        losses[step] = loss.item()
        if not math.isfinite(losses[step]):
            raise InvalidSpec(f"The loss is {losses[step]} at step {step}. Lower the learning rate.", field="training")
        torch.autograd.backward(loss)
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        check_time()
        progress((step + 1) / len(losses))
    return losses


class Stack:
    """Models of equal sizes that are trained as one model with stacked parameters, each on batches of its own.

    Every network learns as it would by itself: losses, gradients, clipping and the optimiser's state are separate.

    Parameters
    ----------
    models : sequence of CellReadout
        Cells of `learncast.windows` with equal sizes; the gates of `ConstGate` may differ.
    optimizer : mapping
        Keywords of `build_optimizer`.

    Attributes
    ----------
    models, optimizers : list
        The networks after the last training, and an optimiser of each with its part of the state.
    """

    def __init__(self, models: Sequence[CellReadout], optimizer: Mapping[str, Any]) -> None:
        self.models = list(models)
        self.model = copy.deepcopy(self.models[0])
        for name, parameter in list(self.model.named_parameters()):
            owner, _, key = name.rpartition(".")
            rows = torch.stack([one.get_parameter(name).detach() for one in self.models])
            setattr(self.model.get_submodule(owner), key, nn.Parameter(rows.to(parameter.device)))
        if isinstance(self.model.block, cells.ConstGate):
            gates = [float(one.block.gate) for one in self.models]  # type: ignore[arg-type]
            self.model.block.gate = self.model.weights.new_tensor(gates)[:, None, None]  # type: ignore[assignment]
        self.optimizer = build_optimizer(model=self.model, **optimizer)
        self.optimizers = [build_optimizer(model=one, **optimizer) for one in self.models]

    def train(
        self,
        inputs: ArrayLike,
        targets: ArrayLike,
        batches: Iterator[NDArray[np.int64]],
        *,
        steps: int,
        clip: float | None = None,
        progress: Progress = silent,
    ) -> FloatArray:
        """Take training steps, and return the mean squared error of every step and network.

        Parameters
        ----------
        inputs, targets : (networks, sequences, steps, channels)
        batches : iterator of (networks, batch)
            The sequences of each step; an iterator continues where the last training ended.
        """
        place, losses = self.model.weights.device, np.empty((steps, len(self.models)))
        x, y = (torch.as_tensor(part).float() for part in (inputs, targets))
        each, parameters = torch.arange(len(self.models))[:, None], list(self.model.parameters())
        for step in range(steps):
            rows = torch.as_tensor(next(batches))
            self.optimizer.zero_grad(set_to_none=True)
            error = self.model(x[each, rows].to(place)) - y[each, rows].to(place)
            own = error.square().mean((1, 2, 3))
            losses[step] = own.detach().cpu().numpy()
            if not np.isfinite(losses[step]).all():
                raise InvalidSpec(f"The loss is not finite at step {step}. Lower the learning rate.", field="training")
            torch.autograd.backward(own.sum())
            if clip is not None:
                norms = torch.cat([p.grad.flatten(1) for p in parameters if p.grad is not None], 1).norm(dim=1)
                for p in parameters:
                    if p.grad is not None:
                        p.grad *= (clip / (norms + 1e-6)).clamp(max=1).reshape(-1, *[1] * (p.dim() - 1))
            self.optimizer.step()
            check_time()
            progress((step + 1) / steps)
        self._separate()
        return losses

    @torch.no_grad()
    def _separate(self) -> None:
        """Copy parameters and the optimiser's state to the single networks."""
        for k, (model, optimizer) in enumerate(zip(self.models, self.optimizers, strict=True)):
            for own, stacked in zip(model.parameters(), self.model.parameters(), strict=True):
                own.copy_(stacked[k])
                for key, value in self.optimizer.state[stacked].items():
                    part = value[k].clone() if isinstance(value, Tensor) and value.shape == stacked.shape else value
                    optimizer.state[own][key] = part


def trained_model(
    settings: Mapping[str, Any], inputs: ArrayLike, targets: ArrayLike, *, progress: Progress = silent
) -> tuple[CellReadout, optim.Optimizer, FloatArray]:
    """Build and train a model by the settings of a study; returns the model, its optimiser and the losses.

    Parameters
    ----------
    settings : mapping
        ``model`` (keywords of `build_model`), ``optimizer`` (of `build_optimizer`) and ``training`` (steps, batch,
        clip, seed).
    inputs, targets : (sequences, steps, channels)
    progress : callable
    """
    model = build_model(inputs=np.shape(inputs)[2], outputs=np.shape(targets)[2], **settings["model"])
    optimizer = build_optimizer(model=model, **settings["optimizer"])
    training = dict(settings["training"])
    rng = np.random.default_rng([training.pop("seed"), 2])
    losses = train_on_batches(model, optimizer, inputs, targets, rng=rng, progress=progress, **training)
    return model, optimizer, losses
