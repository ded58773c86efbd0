"""The sequences of a diagnosis, and what every recurrent layer received, answered and was blamed for on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from learncast._core.errors import InvalidSpec, LearncastError, UnsupportedModel
from learncast._core.limits import unadvised
from learncast._core.validation import FloatArray, real_array
from learncast.windows.replay.recurrent_layer import RecurrentLayer, recurrent_layers, recurrent_module
from learncast.windows.replay.replay import Replay
from learncast.windows.replay.stepped import SteppedLayer

Loss = Callable[[Any, Any], Tensor]
LEAST_SEQUENCES = 16
#: Numbers in one array of the steps that are replayed at a time: a few such arrays stay in a core's cache.
_STRETCH = 2**18
#: Sets the diagnosis' random numbers apart from those of a person who drew the data with the same seed.
STREAM = 0x1A65


@dataclass(frozen=True, eq=False, repr=False)
class Capture:
    """The signals at every recurrent layer, one entry per layer, the lowest first.

    Parameters
    ----------
    layers : tuple of RecurrentLayer
    inputs, outputs : tuple of (batch, time, features) tensors
    initial : tuple of (tuple of tensors or None)
        States before the first step, when the model sets them.
    deltas : tuple of (batch, time, hidden) tensors, optional
        dE / dh_t of each sequence's loss E, with the layer's own recurrence cut.
    """

    layers: tuple[RecurrentLayer | SteppedLayer, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    initial: tuple[tuple[Tensor, ...] | None, ...]
    deltas: tuple[Tensor, ...] | None = None

    def replay(self, layer: int = 0, sequences: slice = slice(None)) -> Replay:
        """Replay one layer, on all sequences or some."""
        start = self.initial[layer]
        return self.layers[layer].replay(
            self.inputs[layer][sequences],
            self.outputs[layer][sequences],
            None if start is None else tuple(state[sequences] for state in start),
        )

    def stretches(self, layer: int = 0) -> Iterator[tuple[slice, Replay]]:
        """Replay one layer on all sequences, a few steps after the others: which steps, and their replay."""
        inputs, outputs, start = self.inputs[layer], self.outputs[layer], self.initial[layer]
        number, steps, width = outputs.shape
        each = max(1, _STRETCH // (number * width))
        for begin in range(0, steps, each):
            some = slice(begin, min(begin + each, steps))
            replay = self.layers[layer].replay(inputs[:, some], outputs[:, some], start)
            yield some, replay
            start = replay.last


def capture(model: nn.Module, inputs: Any, targets: Any = None, loss: Loss | None = None) -> Capture:
    """Run `model(inputs)` once and record the signals at its recurrent layers; the model is left as it was.

    Parameters
    ----------
    model : torch.nn.Module
        See `learncast.windows.replay.recurrent_layer.recurrent_layers`. It runs in the mode it is in.
    inputs : what the model takes
    targets : optional
    loss : function of (model(inputs), targets), optional
        Must not be averaged over the sequences: one number per sequence or finer (`nn.MSELoss(reduction="none")`); the
        loss of a sequence is the sum of all its numbers. Without it no deltas are computed.
    """
    layers = recurrent_layers(model)
    _, module = recurrent_module(model)
    tap = _Tap(module, differentiate=loss is not None)
    with _untouched(model), torch.set_grad_enabled(loss is not None), tap.attached():
        prediction = _answered(model, inputs)
        if tap.calls != 1:
            raise UnsupportedModel(
                f"the model must call its recurrent block once per forward pass, got {tap.calls} calls."
            )
        deltas = None if loss is None else tap.deltas(_lost(loss, prediction, targets))
    first = bool(getattr(module, "batch_first", True))
    inputs_, outputs = (tuple(_batch_first(x, first) for x in side) for side in (tap.inputs, tap.outputs))
    blame = None if deltas is None else tuple(_batch_first(x, first) for x in deltas)
    return Capture(layers, inputs_, outputs, tuple(tap.initial), blame)


def _answered(model: nn.Module, inputs: Any) -> Any:
    """What the model answers; inputs that it cannot take are refused with the shapes of both."""
    try:
        return model(inputs)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        if isinstance(error, LearncastError):
            raise
        _, module = recurrent_module(model)
        channels = getattr(module, "input_size", None)
        raise InvalidSpec(
            required="the model must take the inputs"
            + ("" if channels is None else f", whose recurrent block takes {channels} channels"),
            got=f"inputs of shape {shape_of(inputs)} ({unadvised(error)})",
            why="it is diagnosed by its own answers",
            remedy="put sequences, steps and channels where the model expects them",
        ) from error


def _lost(loss: Loss, prediction: Any, targets: Any) -> Any:
    """The loss of the answers; targets that it cannot take are refused with the shapes of both."""
    try:
        return loss(prediction, targets)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        if isinstance(error, LearncastError):
            raise
        raise InvalidSpec(
            "the loss must take the model's answers and the targets, got answers of shape "
            f"{shape_of(prediction)} and targets of shape {shape_of(targets)} ({unadvised(error)})."
        ) from error


def shape_of(value: Any) -> Any:
    """The shape of a tensor, or what else it is."""
    return tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__


def replays(model: nn.Module, inputs: Any) -> tuple[Replay, ...]:
    """Replay every recurrent layer of `model` on `inputs`, the lowest first."""
    seen = capture(model, inputs)
    return tuple(seen.replay(index) for index in range(len(seen.layers)))


@dataclass
class _Tap:
    """Hooks that cut the graph at the outputs of the recurrent layers."""

    module: nn.Module
    differentiate: bool
    calls: int = 0
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    initial: list[tuple[Tensor, ...] | None] = field(default_factory=list)
    cell: Tensor | None = None

    @contextmanager
    def attached(self) -> Iterator[None]:
        handles = [
            self.module.register_forward_pre_hook(self._enter),
            self.module.register_forward_hook(self._receive, with_kwargs=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        # The graph inside the block is never used: building it would only cost memory.
        torch.set_grad_enabled(False)

    def _receive(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        torch.set_grad_enabled(self.differentiate)
        self.calls += 1
        sequence = args[0] if args else kwargs["input"]
        if not isinstance(sequence, Tensor) or sequence.dim() != 3:
            got = f"{sequence.dim()} dimensions" if isinstance(sequence, Tensor) else type(sequence).__name__
            raise UnsupportedModel(
                f"the recurrent block must receive a plain batch of sequences, got {got}. Pass padded (batch, "
                "time, features) tensors of sequences of one length."
            )
        given = args[1] if len(args) > 1 else kwargs.get("hx")
        if not isinstance(module, nn.RNNBase):
            return self._cell(sequence, given, output)
        return self._stack(module, sequence.detach(), given, output)

    def _cell(self, sequence: Tensor, given: Any, output: Any) -> Any:
        """A layer that answers its states, alone or before its last state."""
        start = given.detach() if isinstance(given, Tensor) else None
        self.inputs = [sequence.detach()]
        self.initial = [None if start is None else (start[0] if start.dim() == 3 else start,)]
        if not isinstance(output, tuple):
            self.outputs = [self._leaf(output)]
            return self.outputs[0]
        self.outputs = [self._leaf(output[0])]
        time = 1 if getattr(self.module, "batch_first", True) else 0
        last = self.outputs[0].select(time, -1)
        return self.outputs[0], last.reshape(output[1].shape), *output[2:]

    def _stack(self, module: nn.RNNBase, sequence: Tensor, given: Any, output: Any) -> Any:
        """Run the layers one by one: a fused stack hides the sequences between them."""
        states = None if given is None else tuple(s.detach() for s in (given if isinstance(given, tuple) else (given,)))
        top, last = output
        for index in range(module.num_layers):
            start = None if states is None else tuple(state[index] for state in states)
            self.inputs.append(sequence.detach())
            self.initial.append(start)
            if module.num_layers == 1:
                sequence = self._leaf(top)
            else:
                new = _run_layer(module, index, sequence, start)
                sequence = self._leaf(new) if index == 0 else new
            self.outputs.append(sequence)
        time = 1 if module.batch_first else 0
        final = torch.stack([out.select(time, -1) for out in self.outputs])
        if not isinstance(module, nn.LSTM):
            return sequence, final
        self.cell = self._leaf(last[1])
        return sequence, (final, self.cell)

    def _leaf(self, value: Tensor) -> Tensor:
        return value.detach().requires_grad_(self.differentiate)

    def deltas(self, losses: Tensor) -> list[Tensor]:
        number = self.inputs[0].shape[0 if getattr(self.module, "batch_first", True) else 1]
        if not isinstance(losses, Tensor) or number not in losses.shape:
            got = type(losses).__name__ if not isinstance(losses, Tensor) else f"shape {tuple(losses.shape)}"
            raise InvalidSpec(
                required=f"loss must return at least one number for each of the {number} sequences it is given",
                got="a single number" if got == "shape ()" else got,
                why="an average over sequences hides how large each one's error is",
                remedy='do not reduce it: nn.MSELoss(reduction="none") for example',
            )
        wanted = self.outputs if self.cell is None else [*self.outputs, self.cell]
        grads: list[Tensor | None] = [None] * len(wanted)
        if losses.requires_grad:
            grads = list(torch.autograd.grad(losses.sum(), wanted, allow_unused=True))
        if self.cell is not None and grads.pop() is not None:
            raise UnsupportedModel(
                "the loss must reach an LSTM through its hidden states, got a loss that reads the final cell state."
            )
        if all(grad is None for grad in grads):
            raise UnsupportedModel(
                "the loss must depend on the recurrent block's outputs, got a loss that does not. Check that the "
                "loss uses the model's prediction."
            )
        return [torch.zeros_like(out) if grad is None else grad for grad, out in zip(grads, self.outputs, strict=True)]


def _run_layer(module: nn.RNNBase, index: int, sequence: Tensor, start: tuple[Tensor, ...] | None) -> Tensor:
    """Outputs of one layer of a fused stack, differentiable in its inputs only."""
    weights = next(module.parameters())
    options: dict[str, Any] = {name: getattr(module, name) for name in ("bias", "batch_first")}
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
def _untouched(model: nn.Module) -> Iterator[None]:
    """Restore the random state and the buffers (running means) that a forward pass may move."""
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    devices = sorted({p.device.index for p in model.parameters() if p.device.type == "cuda"})
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        with torch.no_grad():
            for buffer, before in buffers:
                if not torch.equal(buffer, before):
                    buffer.copy_(before)


def _batch_first(sequence: Tensor, already: bool) -> Tensor:
    return sequence.detach() if already else sequence.detach().transpose(0, 1)


@dataclass(frozen=True, eq=False, repr=False)
class Sequences:
    """Inputs and targets that stay where they are until a chunk is asked for.

    Parameters
    ----------
    inputs, targets : arrays or tensors
        Anything that numpy's indexing works on, a memory map for example.
    axis, target_axis : int
        Where the sequences are.
    order : (sequences,)
        The order in which they are visited.
    dtype, device
        Of the model.
    """

    inputs: Any
    targets: Any
    axis: int
    target_axis: int
    order: NDArray[np.int64]
    dtype: torch.dtype
    device: torch.device

    @property
    def steps(self) -> int:
        """Steps of a sequence."""
        return int(self.inputs.shape[1 - self.axis])

    def __len__(self) -> int:
        return len(self.order)

    def chunks(self, size: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Places in the order, inputs and targets of `size` sequences at a time."""
        for begin in range(0, len(self), size):
            some = slice(begin, min(begin + size, len(self)))
            rows = self.order[some]
            yield some, self._taken("inputs", self.axis, rows), self._taken("targets", self.target_axis, rows)

    def specimen(self) -> tuple[FloatArray, ...]:
        """A few sequences and the shapes of all, by which these data are known again."""
        _, inputs, targets = next(self.chunks(min(8, len(self))))
        shapes = np.array([*self.inputs.shape, *self.targets.shape], dtype=np.float64)
        return inputs.cpu().numpy(), targets.cpu().numpy(), shapes

    def _taken(self, name: str, axis: int, rows: NDArray[np.int64]) -> Tensor:
        whole = getattr(self, name)
        if isinstance(whole, Tensor):
            part = whole.detach().index_select(axis, torch.as_tensor(rows, device=whole.device))
        else:
            part = torch.as_tensor(np.ascontiguousarray(whole[rows] if axis == 0 else whole[:, rows]))
        if part.dtype.is_floating_point:
            if not bool(torch.isfinite(part).all()):
                bad = ~torch.isfinite(part.movedim(axis, 0))
                sequence, *place = bad.nonzero()[0].tolist()
                raise InvalidSpec(
                    f"{name} must be finite, got {int(bad.sum())} NaN or infinite values among {len(rows)} sequences, "
                    f"one in sequence {rows[sequence]} at {tuple(place)}. Remove or impute them.",
                    field=name,
                )
            part = part.to(self.dtype)
        return part.to(self.device)


def checked_sequences(
    model: nn.Module, inputs: Any, targets: Any, *, seed: int = 0, batch_first: bool | None = None
) -> Sequences:
    """Check inputs and targets against each other and the model, without copying them.

    Parameters
    ----------
    model : torch.nn.Module
    inputs : (sequences, steps, channels)
        With the first two swapped when the model takes time first.
    targets : (sequences, steps, ...) or (sequences, ...)
        One per step, in the layout of the inputs, or one per sequence.
    seed : int
        Of the random order in which they are visited: sequences stored by condition would otherwise put one
        condition into each half.
    batch_first : bool, optional
        Whether the first axis counts sequences; as the recurrent block says, by default.
    """
    _, module = recurrent_module(model)
    if batch_first is None:
        batch_first = bool(getattr(module, "batch_first", True))
    inputs, targets = _array("inputs", inputs), _array("targets", targets)
    if inputs.ndim != 3 or 0 in inputs.shape:
        raise InvalidSpec(
            f"inputs must have 3 dimensions: sequences, steps and channels, got shape {tuple(inputs.shape)}.",
            field="inputs",
        )
    axis = 0 if batch_first else 1
    number = int(inputs.shape[axis])
    if number < LEAST_SEQUENCES:
        other = "second" if batch_first else "first"
        raise InvalidSpec(
            f"at least {LEAST_SEQUENCES} sequences are needed, got {number}. Pass more sequences, shorter "
            f"ones cut from the long ones for example (or, if the {other} axis counts them, "
            f"batch_first={not batch_first})."
        )
    target_axis = axis if tuple(targets.shape[:2]) == tuple(inputs.shape[:2]) else 0
    if targets.ndim == 0 or targets.shape[target_axis] != number:
        raise InvalidSpec(
            f"targets must hold one entry for each of the {number} sequences, per step or at the end, got "
            f"targets of shape {tuple(targets.shape)} for inputs of shape {tuple(inputs.shape)}.",
            field="targets",
        )
    weights = next(module.parameters())
    order = np.random.default_rng([STREAM, seed]).permutation(number)
    return Sequences(inputs, targets, axis, target_axis, order, weights.dtype, weights.device)


def half_squared_error(answers: Any, targets: Tensor, *, batch_first: bool = True) -> Tensor:
    """Half the squared error of every number; of the last step when there is one target per sequence.

    Parameters
    ----------
    answers : tensor
        What the model returns.
    targets : tensor
        Of the same shape, or of the shape of the last step.
    batch_first : bool
        Where to find the steps of answers that targets lack.
    """
    if not isinstance(answers, Tensor):
        raise InvalidSpec(
            f"the model must return a tensor when no loss is given, got a {type(answers).__name__}. Pass "
            "loss=, a function of (answers, targets), or return the prediction alone."
        )
    if answers.shape == targets.shape:
        return (answers - targets).square() / 2
    last = answers.select(1 if batch_first else 0, -1) if answers.dim() > 1 else answers
    if last.shape == targets.shape:
        return (last - targets).square() / 2
    raise InvalidSpec(
        f"targets must be shaped like the model's answers {tuple(answers.shape)}, or like their last step "
        f"{tuple(last.shape)}, got shape {tuple(targets.shape)}. Reshape the targets, or pass loss=, a "
        "function of (answers, targets).",
        field="targets",
    )


def _array(name: str, value: Any) -> Any:
    if isinstance(value, Tensor):
        return value
    found = np.asanyarray(value)
    return found if found.dtype.kind in "fiub" else real_array(name, value)
