"""Inputs, outputs and loss gradients of every recurrent layer in one forward pass of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from learncast._core.errors import InvalidSpec, LearncastError, UnsupportedModel
from learncast._core.limits import library_message
from learncast.windows.layers.recurrent_layer import RecurrentLayer, recurrent_layers, recurrent_module
from learncast.windows.layers.replay import Replay
from learncast.windows.layers.stepped import SteppedLayer

Loss = Callable[..., Tensor]


@dataclass(frozen=True, eq=False, repr=False)
class Capture:
    """The signals at every recurrent layer, one entry per layer, the lowest first.

    Parameters
    ----------
    layers : tuple of RecurrentLayer
    inputs, outputs : tuple of (batch, time, features) tensors
    initial : tuple of (tuple of tensors or None)
        States before the first step, if the model sets them.
    deltas : tuple of (batch, time, hidden) tensors
        dE / dh_t of each sequence's loss E, with the layer's own recurrence cut; empty without a loss.
    """

    layers: tuple[RecurrentLayer | SteppedLayer, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    initial: tuple[tuple[Tensor, ...] | None, ...]
    deltas: tuple[Tensor, ...] = ()

    def replay(self, layer: int = 0, sequences: slice = slice(None)) -> Replay:
        """Replay one layer, on all sequences or some."""
        start = self.initial[layer]
        return self.layers[layer].replay(
            self.inputs[layer][sequences],
            self.outputs[layer][sequences],
            None if start is None else tuple(state[sequences] for state in start),
        )


def capture(model: nn.Module, inputs: Tensor, targets: Tensor | None = None, loss: Loss | None = None) -> Capture:
    """Run `model(inputs)` once and record the signals at its recurrent layers; the model is left unchanged.

    Parameters
    ----------
    model : torch.nn.Module
        See `learncast.windows.layers.recurrent_layers`. It runs in evaluation mode.
    inputs : tensor
    targets : tensor, optional
    loss : function of (model(inputs), targets), optional
        Must not be averaged over the sequences: one number per sequence or finer (`nn.MSELoss(reduction="none")`). The
        loss of a sequence is the sum of all its numbers. Without it no deltas are computed.
    """
    layers = recurrent_layers(model)
    _, module = recurrent_module(model)
    recorder = _LayerRecorder(module, differentiate=loss is not None)
    deltas: list[Tensor] = []
    with restored(model), torch.set_grad_enabled(loss is not None), recorder.attached():
        prediction = answers_of(model, inputs)
        if recorder.steps:
            recorder.gather(inputs)
        elif recorder.calls != 1:
            got = f"{recorder.calls} calls"
            raise UnsupportedModel(f"model must call its recurrent block once, got {got}.", field="model")
        if loss is not None:
            deltas = recorder.deltas(losses_of(loss, prediction, targets))
    batch_first = bool(getattr(module, "batch_first", True))
    inputs_, outputs, deltas_ = (
        tuple(x.detach() if batch_first else x.detach().transpose(0, 1) for x in signals)
        for signals in (recorder.inputs, recorder.outputs, deltas)
    )
    return Capture(layers, inputs_, outputs, tuple(recorder.initial), deltas_)


def answers_of(model: nn.Module, inputs: Tensor) -> Any:
    """What the model returns."""
    with _explained(f"inputs of shape {_shape(inputs)} must suit the model", "inputs"):
        return model(inputs)


def losses_of(loss: Loss, answers: Any, targets: Tensor | None) -> Tensor:
    """What the loss returns."""
    shapes = f"answers of shape {_shape(answers)} and targets of shape {_shape(targets)}"
    with _explained(f"{shapes} must suit the loss", "targets"):
        return loss(answers, targets)


@contextmanager
def _explained(requirement: str, field: str) -> Iterator[None]:
    """Report what torch raises on wrong shapes as an invalid argument."""
    try:
        yield
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        if isinstance(error, LearncastError):
            raise
        raise InvalidSpec(f"{requirement}, got {library_message(error)}.", field=field) from error


def _shape(value: object) -> tuple[int, ...] | str:
    return tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__


def replays(model: nn.Module, inputs: Tensor) -> tuple[Replay, ...]:
    """Replay every recurrent layer of `model` on `inputs`, the lowest first."""
    captured = capture(model, inputs)
    return tuple(captured.replay(index) for index in range(len(captured.layers)))


class _CellStep(NamedTuple):
    """Inputs of one call of a cell, and the states that it returned, as leaves."""

    features: Tensor
    states: tuple[Tensor, ...]


@dataclass
class _LayerRecorder:
    """Hooks that record the signals at the recurrent layers and cut the graph at their outputs."""

    module: nn.Module
    differentiate: bool
    calls: int = 0
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    initial: list[tuple[Tensor, ...] | None] = field(default_factory=list)
    cell: Tensor | None = None
    steps: list[_CellStep] = field(default_factory=list)

    @property
    def time(self) -> int:
        """The axis of the steps."""
        return 1 if getattr(self.module, "batch_first", True) else 0

    @contextmanager
    def attached(self) -> Iterator[None]:
        handles = [
            self.module.register_forward_pre_hook(self._enter),
            self.module.register_forward_hook(self._record, with_kwargs=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, module: nn.Module, args: tuple[object, ...]) -> None:
        torch.set_grad_enabled(False)  # the graph inside the block is never used and would only cost memory

    def _record(self, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], output: object) -> object:
        torch.set_grad_enabled(self.differentiate)
        self.calls += 1
        sequence = args[0] if args else kwargs["input"]
        initial = args[1] if len(args) > 1 else kwargs.get("hx")
        if isinstance(sequence, Tensor) and sequence.dim() == 2 and not isinstance(module, nn.RNNBase):
            return self._record_step(sequence, initial, output)
        if not isinstance(sequence, Tensor) or sequence.dim() != 3:
            wanted = "a (batch, time, features) tensor"
            raise UnsupportedModel(f"The recurrent block needs {wanted}, got {_shape(sequence)}.", field="model")
        if isinstance(module, nn.RNNBase):
            return self._record_stack(module, sequence.detach(), initial, output)
        return self._record_cell(sequence, initial, output)

    def _record_step(self, features: Tensor, state: object, output: Any) -> object:
        """One call of a cell that the model calls at every step; its states are leaves, which cuts its recurrence."""
        given = state if isinstance(state, tuple) or state is None else (state,)
        if not self.steps:
            start = None if given is None else tuple(part.detach() for part in given)
            self.initial = [start]
        elif given is None or not all(map(torch.equal, given, self.steps[-1].states)):
            remedy = f"Write h = self.cell(x[:, t], h) at step {len(self.steps)}."
            raise UnsupportedModel(f"The cell must get the state that it returned. {remedy}", field="model")
        states = tuple(self._leaf(part) for part in (output if isinstance(output, tuple) else (output,)))
        self.steps.append(_CellStep(features, states))
        return states if isinstance(output, tuple) else states[0]

    def gather(self, inputs: Tensor) -> None:
        """Join the steps of a cell that was called once per step of the inputs."""
        if len(self.steps) not in inputs.shape[:2] or self.calls != len(self.steps):
            got = f"{self.calls} calls for inputs of shape {_shape(inputs)}"
            raise UnsupportedModel(f"model must call its cell once per step, got {got}.", field="model")
        self.inputs = [torch.stack([step.features.detach() for step in self.steps], self.time)]
        self.outputs = [torch.stack([step.states[0].detach() for step in self.steps], self.time)]

    def _step_deltas(self, losses: Tensor) -> list[Tensor | None]:
        """Gradients of the loss by the states of every step; inputs of the cell must not depend on them."""
        leaves = [step.states[0] for step in self.steps]
        entered = torch.stack([step.features for step in self.steps]).sum()
        fed = entered.requires_grad and torch.autograd.grad(entered, leaves, allow_unused=True, retain_graph=True)
        if fed and any(grad is not None for grad in fed):
            remedy = "Feed back detached outputs, or none."
            raise UnsupportedModel(f"The cell's inputs must not depend on its states. {remedy}", field="model")
        cells = [state for step in self.steps for state in step.states[1:]]
        grads = torch.autograd.grad(losses.sum(), [*leaves, *cells], allow_unused=True) if losses.requires_grad else ()
        if any(grad is not None for grad in grads[len(leaves) :]):
            raise UnsupportedModel("loss must read the hidden states of an LSTM, not its cells.", field="loss")
        known = [leaf.new_zeros(()).expand_as(leaf) if g is None else g for leaf, g in zip(leaves, grads, strict=False)]
        return [torch.stack(known, self.time) if any(grad is not None for grad in grads) else None]

    def _record_cell(self, sequence: Tensor, initial: object, output: Any) -> object:
        """A layer that returns its states, or a tuple of its states and its last state."""
        start = initial.detach() if isinstance(initial, Tensor) else None
        self.inputs = [sequence.detach()]
        self.initial = [None if start is None else (start[0] if start.dim() == 3 else start,)]
        if not isinstance(output, tuple):
            self.outputs = [self._leaf(output)]
            return self.outputs[0]
        self.outputs = [self._leaf(output[0])]
        last = self.outputs[0].select(self.time, -1)
        return self.outputs[0], last.reshape(output[1].shape), *output[2:]

    def _record_stack(self, module: nn.RNNBase, sequence: Tensor, initial: object, output: Any) -> object:
        """Run the layers one by one, because a fused stack hides the sequences between them."""
        given = initial if isinstance(initial, tuple) or initial is None else (initial,)
        top, last = output
        for index in range(module.num_layers):
            start = None if given is None else tuple(state.detach()[index] for state in given)
            self.inputs.append(sequence.detach())
            self.initial.append(start)
            if module.num_layers == 1:
                sequence = self._leaf(top)
            else:
                new = _run_layer(module, index, sequence, start)
                sequence = self._leaf(new) if index == 0 else new
            self.outputs.append(sequence)
        final = torch.stack([out.select(self.time, -1) for out in self.outputs])
        if not isinstance(module, nn.LSTM):
            return sequence, final
        self.cell = self._leaf(last[1])
        return sequence, (final, self.cell)

    def _leaf(self, value: Tensor) -> Tensor:
        return value.detach().requires_grad_(self.differentiate)

    def deltas(self, losses: Tensor) -> list[Tensor]:
        number = self.inputs[0].shape[1 - self.time]
        if not isinstance(losses, Tensor) or number not in losses.shape:
            wanted = f"numbers for each of {number} sequences (reduction='none')"
            raise InvalidSpec(f"loss must give {wanted}, got {_shape(losses)}.", field="loss")
        leaves = self.outputs if self.cell is None else [*self.outputs, self.cell]
        grads: list[Tensor | None] = [None] * len(leaves)
        if self.steps:
            grads = self._step_deltas(losses)
        elif losses.requires_grad:
            grads = list(torch.autograd.grad(losses.sum(), leaves, allow_unused=True))
        if self.cell is not None and grads.pop() is not None:
            raise UnsupportedModel("loss must read the hidden states of an LSTM, not its final cell.", field="loss")
        if all(grad is None for grad in grads):
            raise UnsupportedModel("loss must depend on the outputs of the recurrent block.", field="loss")
        return [torch.zeros_like(out) if grad is None else grad for grad, out in zip(grads, self.outputs, strict=True)]


def _run_layer(module: nn.RNNBase, index: int, sequence: Tensor, start: tuple[Tensor, ...] | None) -> Tensor:
    """Outputs of one layer of a fused stack, differentiable in its inputs only."""
    weights = next(module.parameters())
    options: dict[str, object] = {name: getattr(module, name) for name in ("bias", "batch_first")}
    if isinstance(module, nn.RNN):
        options["nonlinearity"] = module.nonlinearity
    kind: Any = type(module)
    single = kind(sequence.shape[2], module.hidden_size, **options).to(weights).requires_grad_(False)
    for name, value in single.named_parameters():
        value.data.copy_(getattr(module, name.replace("_l0", f"_l{index}")).detach())
    if start is None:
        return single(sequence)[0]
    first, *others = (state.unsqueeze(0) for state in start)
    return single(sequence, (first, *others) if others else first)[0]


@contextmanager
def restored(model: nn.Module) -> Iterator[None]:
    """Set evaluation mode, in which no sequence depends on others; then restore modes, random state and buffers."""
    modes = [(part, part.training) for part in model.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    devices = sorted({p.device.index for p in model.parameters() if p.device.type == "cuda"})
    try:
        with torch.random.fork_rng(devices=devices):
            model.eval()
            yield
    finally:
        for part, mode in modes:
            part.training = mode
        with torch.no_grad():
            for buffer, before in buffers:
                if not torch.equal(buffer, before):
                    buffer.copy_(before)
