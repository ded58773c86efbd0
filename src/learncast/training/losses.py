"""Loss functions: what training minimises."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from learncast._core.errors import InvalidSpec
from learncast._core.validation import between, one_of, real_array

#: Label of a readout that does not count, as in torch.
IGNORED = -100


class Answered(NamedTuple):
    """Answers and their targets, always with an axis of readouts.

    Attributes
    ----------
    answers : (trials, readouts, outputs)
    wanted : (trials, readouts, outputs)
        Targets; one-hot if labels were given.
    labels : (trials, readouts) or None
        The labels, 0 at ignored readouts; None for numeric targets.
    weights : (trials, readouts, 1 or outputs) or None
        Weight of each target; None if all count once.
    """

    answers: Tensor
    wanted: Tensor
    labels: Tensor | None
    weights: Tensor | None

    @classmethod
    def of(cls, answers: Tensor, targets: Tensor, weights: Tensor | None) -> Answered:
        """Combine answers (trials[, readouts], outputs) with targets of that shape, or with labels."""
        a = answers if answers.ndim == 3 else answers[:, None]
        w = None if weights is None else weights.to(a).reshape(*a.shape[:2], -1)
        if targets.is_floating_point():
            return cls(a, targets.reshape(a.shape), None, w)
        labels, outputs = targets.reshape(a.shape[:2]).long(), a.shape[2]
        live = labels != IGNORED
        invalid = live & ((labels < 0) | (labels >= outputs))
        if invalid.any():
            trial, readout = (int(i) for i in invalid.nonzero()[0])
            hint = " For two classes with one output, use targets -1.0 and 1.0." if outputs == 1 else ""
            label, place = int(labels[trial, readout]), f"trial {trial} at readout {readout}"
            raise InvalidSpec(f"labels must be 0 to {outputs - 1}, got {label} in {place}.{hint}", field="labels")
        labels = labels.where(live, 0)
        if not bool(live.all()):
            w = live[:, :, None].to(a) if w is None else w * live[:, :, None]
        return cls(a, nn.functional.one_hot(labels, outputs).to(a), labels, w)

    def weighted(self, steps: tuple[float, ...] | None, outputs: tuple[float, ...] | None) -> Answered:
        """Multiply the weights of the trials by weights of steps and outputs."""
        weights = self.weights
        for name, given, axis in (("steps", steps, 1), ("outputs", outputs, 2)):
            if given is None:
                continue
            if len(given) != self.answers.shape[axis]:
                size = self.answers.shape[axis]
                raise InvalidSpec(f"{name} must have {size} weights, got {len(given)}.", field=name)
            own = torch.tensor(given).to(self.answers).reshape((1, -1, 1) if axis == 1 else (1, 1, -1))
            weights = own if weights is None else weights * own
        return self._replace(weights=weights)


@dataclass(frozen=True)
class LossFunction(ABC):
    """Loss of answers (trials[, steps], outputs) given targets of that shape or labels (trials[, steps]).

    Parameters
    ----------
    steps, outputs : sequence of float, optional
        Weight of each readout step and of each output; 0 ignores it. All weights are 1 by default. Weights or masks of
        single trials come with the trials (see `learncast.training.trials`) and multiply these.

    Attributes
    ----------
    squared : bool
        Whether the loss is the squared error of the forecasts, up to a factor.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> lc.training.LossFunction.read("mse")
    MeanSquaredError(steps=None, outputs=None)
    >>> lc.training.LossFunction.read(torch.nn.CrossEntropyLoss(label_smoothing=0.1))
    CrossEntropy(steps=None, outputs=None, smoothing=0.1)
    >>> answers, targets = torch.zeros(2, 3, 1), torch.tensor([[[5.0], [5.0], [1.0]], [[5.0], [5.0], [1.0]]])
    >>> last = lc.training.HalfSquaredError(steps=(0, 0, 1))
    >>> float(last(answers, targets)), float(lc.training.HalfSquaredError()(answers, targets))
    (0.5, 25.5)
    """

    steps: tuple[float, ...] | None = None
    outputs: tuple[float, ...] | None = None

    squared: ClassVar[bool] = False
    #: Whether integer targets are always labels.
    of_labels: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("steps", "outputs"):
            given = getattr(self, name)
            if given is None:
                continue
            weights = real_array(name, np.asarray(given, dtype=float), ndim=(1,))
            if not (weights >= 0).all() or not weights.any():
                raise InvalidSpec(f"{name} must be weights of at least 0, not all 0, got {given}.", field=name)
            object.__setattr__(self, name, tuple(weights.tolist()))

    def __call__(self, answers: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss as a scalar tensor.

        Parameters
        ----------
        answers : (trials[, steps], outputs)
        targets : of the same shape, or integer labels (trials[, steps])
        weights : (trials[, steps][, outputs]), optional
        """
        return self.of(Answered.of(answers, targets, weights).weighted(self.steps, self.outputs))

    @abstractmethod
    def of(self, trials: Answered) -> Tensor:
        """Return the loss of weighted answers."""

    def factor(self, trials: Answered) -> float:
        """Return the ratio of this loss to half the squared error; nan if it is not a squared error."""
        return float("nan")

    @classmethod
    def read(cls, loss: str | Callable[..., object]) -> LossFunction:
        """Return a LossFunction from a name, a torch loss, or a function or module of (answers, targets[, weights])."""
        if isinstance(loss, LossFunction):
            return loss
        if isinstance(loss, str):
            return LOSSES[one_of("loss", loss, tuple(LOSSES))]()
        if isinstance(loss, nn.MSELoss) and loss.reduction == "mean":
            return MeanSquaredError()
        if isinstance(loss, nn.CrossEntropyLoss) and loss.reduction == "mean" and loss.ignore_index == IGNORED:
            weights = None if loss.weight is None else tuple(loss.weight.tolist())
            return CrossEntropy(outputs=weights, smoothing=float(loss.label_smoothing))
        if isinstance(loss, nn.modules.loss._Loss):
            own = loss.reduction == "mean" and not isinstance(loss, nn.CrossEntropyLoss)
            own = own and len(inspect.signature(loss.forward).parameters) == 2
        else:
            own = callable(loss) and not isinstance(loss, type)
        if own:
            return OwnLoss(function=loss)
        kinds = "a name, a torch loss with reduction='mean', or a function of (answers, targets)"
        raise InvalidSpec(f"loss must be {kinds}, got {loss!r:.80}.", field="loss")


@dataclass(frozen=True)
class HalfSquaredError(LossFunction):
    """Half the squared error, summed over outputs and readout steps, mean over trials.

    Parameters
    ----------
    steps, outputs : sequence of float, optional
        Weight of each readout step and of each output, as in `LossFunction`.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> answers, targets = torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([[1.0, 2.0], [1.0, 1.0]])
    >>> float(lc.training.HalfSquaredError()(answers, targets))
    1.25
    >>> float(lc.training.HalfSquaredError(outputs=(1, 0))(answers, targets))
    0.25
    """

    squared: ClassVar[bool] = True

    def of(self, trials: Answered) -> Tensor:
        error = (trials.answers - trials.wanted).pow(2)
        return (error if trials.weights is None else error * trials.weights).sum() / (2 * len(error))

    def factor(self, trials: Answered) -> float:
        return 1.0


@dataclass(frozen=True)
class MeanSquaredError(LossFunction):
    """Squared error, mean over trials, readout steps and outputs: `torch.nn.MSELoss`.

    Parameters
    ----------
    steps, outputs : sequence of float, optional
        Weight of each readout step and of each output, as in `LossFunction`.

    Examples
    --------
    With one output and one readout it is twice the loss of the forecasts.

    >>> import learncast as lc
    >>> import torch
    >>> answers, targets = torch.tensor([[0.0], [1.0]]), torch.tensor([[2.0], [1.0]])
    >>> float(lc.training.MeanSquaredError()(answers, targets)), float(torch.nn.MSELoss()(answers, targets))
    (2.0, 2.0)
    >>> float(lc.training.HalfSquaredError()(answers, targets))
    1.0
    """

    squared: ClassVar[bool] = True

    def of(self, trials: Answered) -> Tensor:
        error = (trials.answers - trials.wanted).pow(2)
        if trials.weights is None:
            return error.mean()
        weights = trials.weights.expand_as(error)
        return (error * weights).sum() / weights.sum().clamp_min(torch.finfo(error.dtype).tiny)

    def factor(self, trials: Answered) -> float:
        answers, weights = trials.answers, trials.weights
        total = answers.numel() if weights is None else float(weights.expand_as(answers).sum())
        return 2.0 * len(answers) / total


@dataclass(frozen=True)
class CrossEntropy(LossFunction):
    """Cross-entropy with the answers as logits, mean over the readouts that count, as in torch.

    Targets are labels, or class probabilities that sum to 1.

    Parameters
    ----------
    steps : sequence of float, optional
        Weight of each readout step, as in `LossFunction`.
    outputs : sequence of float, optional
        Weight of each class, as torch's weight.
    smoothing : float
        As torch's label_smoothing, from 0 to 1.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> answers, labels = torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1])
    >>> round(float(lc.training.CrossEntropy()(answers, labels)), 3)
    1.127
    >>> round(float(lc.training.CrossEntropy(outputs=(1, 4))(answers, labels)), 3)
    1.727
    """

    smoothing: float = 0.0

    of_labels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        between("smoothing", self.smoothing, 0.0, 1.0)

    def of(self, trials: Answered) -> Tensor:
        weights = None if self.outputs is None else torch.tensor(self.outputs).to(trials.answers)
        wanted = trials.wanted.transpose(1, 2) if trials.labels is None else trials.labels
        each = nn.functional.cross_entropy(
            trials.answers.transpose(1, 2),  # torch expects the classes on axis 1
            wanted,
            weight=weights,
            reduction="none",
            label_smoothing=self.smoothing,
        )
        # torch divides by the sum of the class weights
        size = torch.ones_like(each) if trials.labels is None or weights is None else weights[trials.labels]
        if trials.weights is not None:
            each, size = each * trials.weights[:, :, 0], size * trials.weights[:, :, 0]
        return each.sum() / size.sum().clamp_min(torch.finfo(each.dtype).tiny)

    def __call__(self, answers: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss; weights of outputs are class weights, not weights of readouts."""
        trials = Answered.of(answers, targets, weights).weighted(self.steps, None)
        if trials.weights is not None and trials.weights.shape[2] != 1:
            remedy = "Weight classes by CrossEntropy(outputs=...)."
            raise InvalidSpec(f"weights must be (trials) or (trials, steps). {remedy}", field="weights")
        return self.of(trials)


@dataclass(frozen=True, repr=False)
class OwnLoss(LossFunction):
    """A user's function of (answers, targets) or (answers, targets, weights), in the shapes of the trials.

    Parameters
    ----------
    steps, outputs : None
        Not used: the function applies its own weights.
    function : callable
        Returns a scalar tensor. It must take weights if the trials have a mask.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> def absolute_error(answers, targets):
    ...     return (answers - targets).abs().mean()
    >>> loss = lc.training.OwnLoss(function=absolute_error)
    >>> float(loss(torch.tensor([[0.0], [1.0]]), torch.tensor([[2.0], [1.0]])))
    1.0

    `Training` takes the function itself: ``lc.Training(0.01, loss=absolute_error)``.
    """

    function: Callable[..., object] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps is not None or self.outputs is not None or not callable(self.function):
            raise InvalidSpec("OwnLoss needs a function, and no steps or outputs.", field="function")

    def __repr__(self) -> str:
        return f"OwnLoss({full_name(self.function)})"

    def __call__(self, answers: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Call the function."""
        value = call_with_weights(self.function, answers, targets, weights)
        if not isinstance(value, Tensor) or value.numel() != 1:
            got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise InvalidSpec(f"The loss function must return a scalar tensor, got {got}.", field="loss")
        return value.reshape(())

    def of(self, trials: Answered) -> Tensor:
        return self(trials.answers, trials.wanted if trials.labels is None else trials.labels, trials.weights)


def call_with_weights(function: Any, answers: Tensor, targets: Tensor, weights: Tensor | None) -> Any:
    """Call a user's function of (answers, targets), with the weights of the trials if it takes them.

    It takes them if its third parameter is named "weights" or has no default: that of `huber_loss` is its reduction.
    """
    try:
        parameters = list(
            inspect.signature(function.forward if isinstance(function, nn.Module) else function).parameters.values()
        )
    except (TypeError, ValueError):  # some functions written in C have no signature
        parameters = []
    third = parameters[2] if len(parameters) > 2 else None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if third and third.kind in positional and (third.name == "weights" or third.default is third.empty):
        return function(answers, targets, weights)
    if weights is not None:
        raise InvalidSpec("With a mask, function must take (answers, targets, weights).", field="function")
    return function(answers, targets)


def full_name(function: object) -> str:
    """Module and name of a function, which do not change between runs as its repr does; with settings of a module."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    text = f"{getattr(function, '__module__', '')}.{name}"
    if not isinstance(function, nn.Module):
        return text
    kept = (int, float, str)
    plain = {key: value for key, value in vars(function).items() if key != "training" and isinstance(value, kept)}
    tensors = {key: value.tolist() for key, value in function.state_dict().items()}
    return f"{text} {plain} {tensors}"


#: Losses by name.
LOSSES: dict[str, Callable[[], LossFunction]] = {
    "half_mse": HalfSquaredError,
    "mse": MeanSquaredError,
    "cross_entropy": CrossEntropy,
}
