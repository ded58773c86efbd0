"""The sequences of a diagnosis, in their own layout, read in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, real_array
from learncast.tasks.recorded.targets import Targets, array_like, check_same_trials, class_numbers
from learncast.windows.layers.recurrent_layer import recurrent_module

Values = Tensor | NDArray[np.generic]
LEAST_SEQUENCES = 16
#: Separates the random numbers of a diagnosis from those of data that were drawn with the same seed.
STREAM = 0x1A65


@dataclass(frozen=True, eq=False, repr=False)
class Sequences:
    """Inputs and targets that are read when a chunk is requested.

    Parameters
    ----------
    inputs, targets : arrays or tensors
        Anything that numpy can index, a memory map for example.
    axis, target_axis : int
        The axis that counts sequences.
    order : (sequences,)
        The order in which they are visited.
    labels : bool
        Whether targets are class labels.
    dtype, device
        Of the model.
    tokens : bool
        Whether inputs are integers that the model embeds; other integers become numbers of the model's type.
    shift : int
        Places in the order by which targets are shifted against inputs: 1 gives every sequence the targets of another.
    """

    inputs: Values
    targets: Values
    axis: int
    target_axis: int
    order: NDArray[np.int64]
    labels: bool
    dtype: torch.dtype
    device: torch.device
    tokens: bool = False
    shift: int = 0

    @property
    def steps(self) -> int:
        """Steps of a sequence."""
        return int(self.inputs.shape[1 - self.axis])

    def __len__(self) -> int:
        return len(self.order)

    def chunks(self, size: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Places in the order, inputs and targets of `size` sequences at a time."""
        for begin in range(0, len(self), size):
            places = slice(begin, min(begin + size, len(self)))
            rows = self.order[places]
            inputs = self._taken("inputs", self.inputs, self.axis, rows)
            others = np.roll(self.order, self.shift)[places]
            yield places, inputs, self._taken("targets", self.targets, self.target_axis, others)

    def squared_error(self) -> Callable[..., Tensor]:
        """Half the squared error of answers, in the layout of the targets."""
        error = half_squared_error_of_classes if self.labels else half_squared_error
        return partial(error, batch_first=self.axis == 0, steps=self.steps)

    def fingerprint(self) -> tuple[FloatArray, ...]:
        """A few sequences and the shapes of all, for the hash of a result."""
        _, inputs, targets = next(self.chunks(min(8, len(self))))
        shapes = np.array([*self.inputs.shape, *self.targets.shape], dtype=np.float64)
        return inputs.cpu().numpy(), targets.cpu().numpy(), shapes

    def _taken(self, name: str, values: Values, axis: int, rows: NDArray[np.int64]) -> Tensor:
        if isinstance(values, Tensor):
            part = values.detach().index_select(axis, torch.as_tensor(rows, device=values.device))
        else:
            part = torch.as_tensor(np.ascontiguousarray(values[rows] if axis == 0 else values[:, rows]))
        if not part.dtype.is_floating_point:
            if name == "inputs":
                part = part.long() if self.tokens else part.to(self.dtype)
            return part.to(self.device)
        bad = ~torch.isfinite(part.movedim(axis, 0))
        if bool(bad.any()):
            sequence, *place = bad.nonzero()[0].tolist()
            where = f"sequence {rows[sequence]} at {tuple(place)}"
            raise InvalidSpec(f"{name} must be finite, got NaN or infinity in {where}.", field=name)
        return part.to(self.dtype).to(self.device)


def checked_sequences(
    model: nn.Module,
    inputs: ArrayLike | Tensor,
    targets: ArrayLike | Tensor,
    batch_first: bool | None = None,
    labels: bool | None = None,
    *,
    seed: int = 0,
    meaning: bool = True,
) -> Sequences:
    """Check inputs and targets against each other and the model, without copying them.

    Parameters
    ----------
    model : torch.nn.Module
    inputs : (sequences, steps, channels), or integer tokens (sequences, steps)
        With the first two axes swapped if the model takes time first.
    targets : (sequences, steps, ...) or (sequences, ...)
        One per step, in the layout of the inputs, or one per sequence.
    seed : int
        Seed of the random order in which sequences are visited. Sequences stored by condition would otherwise put one
        condition into each half.
    batch_first : bool, optional
        Whether the first axis counts sequences; by default as the recurrent block expects.
    labels : bool, optional
        Whether targets are class labels; by default their type says so (see `Task.from_samples`).
    meaning : bool
        Whether integers are read as labels or numbers; a given loss takes them as they are.
    """
    check_same_trials(inputs=inputs, targets=targets)
    _, module = recurrent_module(model)
    if batch_first is None:
        batch_first = bool(getattr(module, "batch_first", True))
    x, y = (_array(*pair, batch_first) for pair in (("inputs", inputs), ("targets", targets)))
    integers = not (x.is_floating_point() if isinstance(x, Tensor) else x.dtype.kind == "f")
    tokens = integers and (x.ndim == 2 or any(isinstance(part, nn.Embedding) for part in model.modules()))
    if x.ndim not in ((2, 3) if tokens else (3,)) or 0 in x.shape:
        wanted = "(sequences, steps, channels) or integer tokens (sequences, steps)"
        raise InvalidSpec(f"inputs must be {wanted}, got shape {tuple(x.shape)}.", field="inputs")
    axis = 0 if batch_first else 1
    number = int(x.shape[axis])
    if number < LEAST_SEQUENCES:
        got = f"{number} along axis {axis}. Cut them, or set batch_first={not batch_first}"
        raise InvalidSpec(f"inputs must hold at least {LEAST_SEQUENCES} sequences, got {got}.", field="inputs")
    target_axis = axis if tuple(y.shape[:2]) == tuple(x.shape[:2]) else 0
    if y.ndim == 0 or y.shape[target_axis] != number:
        shapes = f"{tuple(y.shape)} for inputs {tuple(x.shape)}"
        raise InvalidSpec(f"targets must have one entry per step or sequence, got shape {shapes}.", field="targets")
    are_labels = False
    floats = y.is_floating_point() if isinstance(y, Tensor) else y.dtype.kind == "f"
    if meaning and (labels is not None or not floats):
        y, are_labels = _with_meaning(y, (number, int(x.shape[1 - axis])), bool(target_axis), labels)
    weights = next(module.parameters())
    order = np.random.default_rng([STREAM, seed]).permutation(number)
    return Sequences(x, y, axis, target_axis, order, are_labels, weights.dtype, weights.device, tokens)


def _with_meaning(y: Values, size: tuple[int, int], by_step: bool, labels: bool | None) -> tuple[Values, bool]:
    """Return targets, and whether they are labels, in the layout of the inputs.

    Parameters
    ----------
    size : (sequences, steps)
    by_step : bool
        Whether the first axis of targets counts steps.
    """
    first = array_like("targets", y.swapaxes(0, 1) if by_step else y)
    values, are_labels, every_step = Targets.of(first, size, labels)
    values = torch.as_tensor(class_numbers(values)) if are_labels else values
    return values.swapaxes(0, 1) if by_step and every_step else values, are_labels


def half_squared_error(
    answers: Tensor, targets: Tensor, *, batch_first: bool = True, steps: int | None = None
) -> Tensor:
    """Half the squared error of every number; that of the last step if there is one target per sequence.

    Parameters
    ----------
    answers : tensor
        What the model returns.
    targets : tensor
        Of the shape of the answers, or of their last step.
    batch_first : bool
        Whether the steps of the answers are on axis 1 or 0.
    steps : int, optional
        Number of steps: an axis of another length counts outputs, of which none is the last step.
    """
    if not isinstance(answers, Tensor):
        raise InvalidSpec(f"model must return a tensor, got {type(answers).__name__}. Set loss.", field="model")
    if answers.shape == targets.shape:
        return (answers - targets).square() / 2
    axis = 1 if batch_first else 0
    by_step = answers.dim() > 1 and (steps is None or answers.shape[axis] in (1, steps))
    last = answers.select(axis, -1) if by_step else answers
    if last.shape == targets.shape:
        return (last - targets).square() / 2
    shapes = " or ".join(dict.fromkeys((str(tuple(answers.shape)), str(tuple(last.shape)))))
    raise InvalidSpec(f"targets must have the answers' shape {shapes}, got {tuple(targets.shape)}.", field="targets")


def half_squared_error_of_classes(
    answers: Tensor, labels: Tensor, *, batch_first: bool = True, steps: int | None = None
) -> Tensor:
    """Half the squared error of every number, with one-hot targets of as many classes as the model has outputs.

    Parameters
    ----------
    answers : tensor
        What the model returns.
    labels : integer tensor
        One for each step, or for each sequence.
    batch_first, steps
        As for `half_squared_error`.
    """
    outputs = answers.shape[-1] if isinstance(answers, Tensor) and answers.dim() > labels.dim() else 1
    low, high = int(labels.min()), int(labels.max())
    if not 0 <= low <= high < outputs:
        got = f"{low} to {high}. Use labels=False for numbers"
        raise InvalidSpec(f"classes must lie between 0 and {outputs - 1}, got {got}.", field="labels")
    wanted = torch.nn.functional.one_hot(labels, outputs).to(answers)
    return half_squared_error(answers, wanted, batch_first=batch_first, steps=steps)


def _array(name: str, value: ArrayLike | Tensor, batch_first: bool) -> Values:
    if isinstance(value, Tensor):
        return value
    array = array_like(name, value)
    if isinstance(getattr(value, "dims", None), tuple) and not batch_first and array.ndim == 3:
        array = array.swapaxes(0, 1)
    return array if array.dtype.kind in "fiubUS" else real_array(name, array)
