"""The sequences of a diagnosis, checked and handed out in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from learncast.errors import InvalidSpec
from learncast.learnability.replay.recurrent_layer import recurrent_module
from learncast.validation import FloatArray, real_array

LEAST_SEQUENCES = 16
#: Sets the diagnosis' random numbers apart from those of a person who drew the data with the same seed.
STREAM = 0x1A65


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
                    required=f"{name} must be finite",
                    got=f"{int(bad.sum())} NaN or infinite values among {len(rows)} sequences, one in sequence "
                    f"{rows[sequence]} at {tuple(place)}",
                    why="one of them would spread to every later step",
                    remedy="remove or impute them",
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
            required="inputs must have 3 dimensions: sequences, steps and channels",
            got=f"shape {tuple(inputs.shape)}",
            why="lags are counted within sequences of one length",
            remedy="stack the sequences, and add a last axis when there is a single channel",
        )
    axis = 0 if batch_first else 1
    number = int(inputs.shape[axis])
    if number < LEAST_SEQUENCES:
        other = "second" if batch_first else "first"
        raise InvalidSpec(
            required=f"at least {LEAST_SEQUENCES} sequences are needed",
            got=f"{number}",
            why="errors are taken over sequences, since the steps of one are not independent",
            remedy=f"pass more sequences, shorter ones cut from the long ones for example (or, if the {other} axis "
            f"counts them, batch_first={not batch_first})",
        )
    target_axis = axis if tuple(targets.shape[:2]) == tuple(inputs.shape[:2]) else 0
    if targets.ndim == 0 or targets.shape[target_axis] != number:
        raise InvalidSpec(
            required=f"targets must hold one entry for each of the {number} sequences, per step or at the end",
            got=f"targets of shape {tuple(targets.shape)} for inputs of shape {tuple(inputs.shape)}",
            why="each sequence is judged by its own targets",
            remedy="put the sequences of targets where those of inputs are",
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
            required="the model must return a tensor when no loss is given",
            got=f"a {type(answers).__name__}",
            why="it is not known which part of the answer to compare with the targets",
            remedy="pass loss=, a function of (answers, targets), or return the prediction alone",
        )
    if answers.shape == targets.shape:
        return (answers - targets).square() / 2
    last = answers.select(1 if batch_first else 0, -1) if answers.dim() > 1 else answers
    if last.shape == targets.shape:
        return (last - targets).square() / 2
    raise InvalidSpec(
        required=f"targets must be shaped like the model's answers {tuple(answers.shape)}, or like their last step "
        f"{tuple(last.shape)}",
        got=f"shape {tuple(targets.shape)}",
        why="broadcasting would compare every answer with the wrong targets",
        remedy="reshape the targets, or pass loss=, a function of (answers, targets)",
    )


def _array(name: str, value: Any) -> Any:
    if isinstance(value, Tensor):
        return value
    found = np.asanyarray(value)
    return found if found.dtype.kind in "fiub" else real_array(name, value)
