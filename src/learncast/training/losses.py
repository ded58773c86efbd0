"""What a network is trained to make small: a loss of its answers to trials."""

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

#: The label of a step that does not count, as torch has it.
IGNORED = -100


class Answered(NamedTuple):
    """Answers beside what they should be, with an axis of readouts whether there is one or many.

    Attributes
    ----------
    answers : (trials, readouts, outputs)
    wanted : (trials, readouts, outputs)
        Targets; one-hot where labels were given.
    labels : (trials, readouts) or None
        The labels, 0 where they do not count; None where targets are numbers.
    weights : (trials, readouts, 1 or outputs) or None
        How much each counts; None where all count once.
    """

    answers: Tensor
    wanted: Tensor
    labels: Tensor | None
    weights: Tensor | None

    @classmethod
    def of(cls, answers: Tensor, targets: Tensor, weights: Tensor | None) -> Answered:
        """Put answers (trials[, readouts], outputs) beside targets of that shape, or labels without the last axis."""
        a = answers if answers.ndim == 3 else answers[:, None]
        w = None if weights is None else weights.to(a).reshape(*a.shape[:2], -1)
        if targets.is_floating_point():
            return cls(a, targets.reshape(a.shape), None, w)
        found, outputs = targets.reshape(a.shape[:2]).long(), a.shape[2]
        live = found != IGNORED
        strange = live & ((found < 0) | (found >= outputs))
        if strange.any():
            trial, readout = (int(i) for i in strange.nonzero()[0])
            raise _unanswered(int(found[trial, readout]), outputs, f"in trial {trial} at readout {readout}")
        found = found.where(live, 0)
        if not bool(live.all()):
            w = live[:, :, None].to(a) if w is None else w * live[:, :, None]
        return cls(a, nn.functional.one_hot(found, outputs).to(a), found, w)

    def weighed(self, steps: tuple[float, ...] | None, outputs: tuple[float, ...] | None) -> Answered:
        """The same with weights of steps and outputs besides those of the trials."""
        weights = self.weights
        for name, given, axis in (("steps", steps, 1), ("outputs", outputs, 2)):
            if given is None:
                continue
            if len(given) != self.answers.shape[axis]:
                raise InvalidSpec(
                    f"a loss must weigh the {self.answers.shape[axis]} {name} that are answered, got {len(given)} "
                    "weights. Give one weight for each, or weigh trials of unequal length by their own mask."
                )
            own = torch.tensor(given).to(self.answers).reshape((1, -1, 1) if axis == 1 else (1, 1, -1))
            weights = own if weights is None else weights * own
        return self._replace(weights=weights)


def _unanswered(label: int, outputs: int, place: str) -> InvalidSpec:
    """A label that no output answers; one output is mostly meant for two classes."""
    one = outputs == 1
    return InvalidSpec(
        required=f"labels must be {'0' if one else f'from 0 to {outputs - 1}'}, one for each output of the network, "
        f"or {IGNORED}",
        got=f"{label} {place}" + (" of a network with one output, which answers one class alone" if one else ""),
        why="the output of that number is what a label asks for",
        remedy=f"give the network an output for every class, or label what does not count {IGNORED}"
        + (", or give two classes as -1.0 and 1.0 (trials, 1) with a squared error" if one else ""),
    )


@dataclass(frozen=True)
class Loss(ABC):
    """A loss of answers (trials[, steps], outputs) against targets of that shape or labels (trials[, steps]).

    Parameters
    ----------
    steps, outputs : sequence of float, optional
        How much each readout step and each output counts; 0 leaves it out. All count once by default. Weights or a mask
        of single trials come with the trials (see `learncast.training.Trials`) and multiply these.

    Attributes
    ----------
    squared : bool
        Whether it is, up to a factor, the squared error that forecasts are about.
    meaning : str
        What a forecast from second-order statistics can say of it.

    Raises
    ------
    InvalidSpec
        If a weight is below 0, or none is above.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> lc.training.Loss.read("mse")
    MeanSquaredError(steps=None, outputs=None)
    >>> lc.training.Loss.read(torch.nn.CrossEntropyLoss(label_smoothing=0.1))
    CrossEntropy(steps=None, outputs=None, smoothing=0.1)
    >>> answers, targets = torch.zeros(2, 3, 1), torch.tensor([[[5.0], [5.0], [1.0]], [[5.0], [5.0], [1.0]]])
    >>> last = lc.training.HalfSquaredError(steps=(0, 0, 1))
    >>> float(last(answers, targets)), float(lc.training.HalfSquaredError()(answers, targets))
    (0.5, 25.5)
    """

    steps: tuple[float, ...] | None = None
    outputs: tuple[float, ...] | None = None

    squared: ClassVar[bool] = False
    meaning: ClassVar[str]

    def __post_init__(self) -> None:
        for name in ("steps", "outputs"):
            given = getattr(self, name)
            if given is None:
                continue
            found = real_array(f"weights of {name}", np.asarray(given, dtype=float), ndim=(1,))
            if not (found >= 0).all() or not found.any():
                raise InvalidSpec(
                    f"weights of {name} must be at least 0, and one above, got {found.tolist()}. Use 0 for what does "
                    "not count."
                )
            object.__setattr__(self, name, tuple(found.tolist()))

    def __call__(self, answers: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """The loss, a tensor of one number.

        Parameters
        ----------
        answers : (trials[, steps], outputs)
        targets : of the same shape, or whole numbers (trials[, steps])
        weights : (trials[, steps][, outputs]), optional
            How much each counts.
        """
        return self.of(Answered.of(answers, targets, weights).weighed(self.steps, self.outputs))

    @abstractmethod
    def of(self, trials: Answered) -> Tensor:
        """The loss of answers that stand beside what they should be."""

    def factor(self, trials: Answered) -> float:
        """By what half the squared error is multiplied to give this loss; nan where it is another."""
        return float("nan")

    @classmethod
    def read(cls, loss: Any) -> Loss:
        """Take a Loss, its name, a loss of torch that is known here, or a function of (answers, targets[, weights])."""
        if isinstance(loss, Loss):
            return loss
        if isinstance(loss, str):
            return LOSSES[one_of("loss", loss, tuple(LOSSES))]()
        if isinstance(loss, nn.MSELoss) and loss.reduction == "mean":
            return MeanSquaredError()
        if isinstance(loss, nn.CrossEntropyLoss) and loss.reduction == "mean" and loss.ignore_index == IGNORED:
            weights = None if loss.weight is None else tuple(loss.weight.tolist())
            return CrossEntropy(outputs=weights, smoothing=float(loss.label_smoothing))
        if callable(loss) and not isinstance(loss, nn.modules.loss._Loss | type):
            return OwnLoss(function=loss)
        number = isinstance(loss, int | float)
        raise InvalidSpec(
            required="loss must be a Loss, a name, nn.MSELoss() or nn.CrossEntropyLoss() as they are made, or a "
            "function of (answers, targets)",
            got=repr(loss) if number else f"{loss!r:.80}",
            why="it is what training makes small",
            remedy=f"a loss to reach is a goal: LossBelow({loss!r})"
            if number
            else "wrap it: lambda answers, targets: ..., with answers (trials, steps, outputs)",
        )


@dataclass(frozen=True)
class HalfSquaredError(Loss):
    """Half the squared error, summed over outputs and readout steps, mean over trials.

    Parameters
    ----------
    steps, outputs : sequence of float, optional
        How much each readout step and each output counts, as of `Loss`.

    Raises
    ------
    InvalidSpec
        If a weight is below 0, or none is above.

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
    meaning: ClassVar[str] = "Forecasts are of this very loss."

    def of(self, trials: Answered) -> Tensor:
        error = (trials.answers - trials.wanted).pow(2)
        return (error if trials.weights is None else error * trials.weights).sum() / (2 * len(error))

    def factor(self, trials: Answered) -> float:
        return 1.0


@dataclass(frozen=True)
class MeanSquaredError(Loss):
    """The squared error, mean over all that counts: trials, readout steps and outputs.

    Parameters
    ----------
    steps, outputs : sequence of float, optional
        How much each readout step and each output counts, as of `Loss`.

    Raises
    ------
    InvalidSpec
        If a weight is below 0, or none is above.

    Examples
    --------
    It is `torch.nn.MSELoss`; with one output, twice the loss that forecasts are about.

    >>> import learncast as lc
    >>> import torch
    >>> answers, targets = torch.tensor([[0.0], [1.0]]), torch.tensor([[2.0], [1.0]])
    >>> float(lc.training.MeanSquaredError()(answers, targets)), float(torch.nn.MSELoss()(answers, targets))
    (2.0, 2.0)
    >>> float(lc.training.HalfSquaredError()(answers, targets))
    1.0
    """

    squared: ClassVar[bool] = True
    meaning: ClassVar[str] = (
        "It is half the squared error times 2 over the number of readouts and outputs: forecasts are of that, and the "
        "learning rate is multiplied by this factor where the optimiser does not divide by it."
    )

    def of(self, trials: Answered) -> Tensor:
        error = (trials.answers - trials.wanted).pow(2)
        if trials.weights is None:
            return error.mean()
        weights = trials.weights.expand_as(error)
        return (error * weights).sum() / weights.sum().clamp_min(torch.finfo(error.dtype).tiny)

    def factor(self, trials: Answered) -> float:
        each = trials.answers[0].numel()
        whole = each * len(trials.answers)
        counted = whole if trials.weights is None else float(trials.weights.expand_as(trials.answers).sum())
        return 2.0 * len(trials.answers) / counted


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """Cross-entropy of the answers as logits: the mean over all readouts that count, as torch has it.

    Targets are labels, or one-hot or other shares that sum to 1. Weights of outputs are those of the classes.

    Parameters
    ----------
    steps : sequence of float, optional
        How much each readout step counts, as of `Loss`.
    outputs : sequence of float, optional
        How much each class counts, as torch's weight.
    smoothing : float
        As torch's label_smoothing: from 0 to 1.

    Raises
    ------
    InvalidSpec
        If a weight is below 0, or none is above, or the smoothing is no share.

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

    def __post_init__(self) -> None:
        super().__post_init__()
        between("smoothing", self.smoothing, 0.0, 1.0)

    meaning: ClassVar[str] = (
        "Near answers of nothing it is a squared error towards the centred one-hot targets, and its first steps are "
        "forecast as such; later its slope is bounded where that of a squared error is not, so times are those of "
        "another loss: only the order of plans may be believed."
    )

    def of(self, trials: Answered) -> Tensor:
        weights = None if self.outputs is None else torch.tensor(self.outputs).to(trials.answers)
        wanted = trials.wanted if trials.labels is None else trials.labels
        # torch has the classes second.
        each = nn.functional.cross_entropy(
            trials.answers.transpose(1, 2),
            wanted.transpose(1, 2) if trials.labels is None else wanted,
            weight=weights,
            reduction="none",
            label_smoothing=self.smoothing,
        )
        # torch's mean of weighted classes
        size = torch.ones_like(each) if trials.labels is None or weights is None else weights[trials.labels]
        if trials.weights is not None:
            each, size = each * trials.weights[:, :, 0], size * trials.weights[:, :, 0]
        return each.sum() / size.sum().clamp_min(torch.finfo(each.dtype).tiny)

    def __call__(self, answers: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """The loss; weights of outputs are the classes', not the readouts'."""
        trials = Answered.of(answers, targets, weights).weighed(self.steps, None)
        if trials.weights is not None and trials.weights.shape[2] != 1:
            raise InvalidSpec(
                "weights of trials must be (trials) or (trials, steps) for cross-entropy, got shape "
                f"{tuple(trials.weights.shape)}. Weigh classes with CrossEntropy(outputs=...)."
            )
        return self.of(trials)


@dataclass(frozen=True, repr=False)
class OwnLoss(Loss):
    """A user's function of (answers, targets) or (answers, targets, weights), in the shapes that the trials have.

    Parameters
    ----------
    steps, outputs : None
        Left out: the function weighs by itself.
    function : callable
        To a tensor of one number. One of two arguments cannot be used where trials have a mask.

    Raises
    ------
    InvalidSpec
        If there is no function, or weights of steps or outputs are given besides.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> def absolute_error(answers, targets):
    ...     return (answers - targets).abs().mean()
    >>> loss = lc.training.OwnLoss(function=absolute_error)
    >>> float(loss(torch.tensor([[0.0], [1.0]]), torch.tensor([[2.0], [1.0]])))
    1.0

    To train on it, the function alone will do.

    >>> lc.training.Training(learning_rate=0.01, loss=absolute_error).loss_object == loss
    True
    """

    function: Callable[..., Any] | None = None

    meaning: ClassVar[str] = (
        "Nothing is known of it here: forecasts are of half the squared error, and say which plan brings answers near "
        "their targets, which is as much as this loss asks for that."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps is not None or self.outputs is not None or not callable(self.function):
            raise InvalidSpec(
                f"a loss of one's own must be a function, without weights of steps or outputs, got {self!r:.80}."
            )

    def __repr__(self) -> str:
        return f"OwnLoss({known_as(self.function)})"

    def __call__(self, answers: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """What the function says."""
        found = called(self.function, answers, targets, weights)
        if not isinstance(found, Tensor) or found.numel() != 1:
            raise InvalidSpec(
                required="a loss must return a tensor of one number",
                got=f"a tensor of shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__,
                why="its gradient is what training follows",
                remedy="take the mean over trials, and keep to torch's functions",
            )
        return found.reshape(())

    def of(self, trials: Answered) -> Tensor:
        return self(trials.answers, trials.wanted if trials.labels is None else trials.labels, trials.weights)


def called(function: Any, answers: Any, targets: Any, weights: Any) -> Any:
    """Call a user's function of (answers, targets), or with a third argument of weights; refuse weights it cannot take.

    Labels that do not count are told by their own mark, so only weights that came with the trials are at stake.
    """
    if takes_weights(function):
        return function(answers, targets, weights)
    if weights is not None:
        raise InvalidSpec(
            "a function of answers and targets must take weights as well where trials have a mask, got a "
            "function of two arguments. Write it as function(answers, targets, weights)."
        )
    return function(answers, targets)


def known_as(function: Any) -> str:
    """The full name of a function: its printed form would change from one run to the next."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', '')}.{name}"


def takes_weights(function: Any) -> bool:
    """Whether a function has room for a third argument."""
    try:
        inspect.signature(function).bind(None, None, None)
    except (TypeError, ValueError):  # some functions written in C do not say
        return False
    return True


#: Losses known by name.
LOSSES: dict[str, Callable[[], Loss]] = {
    "half_squared_error": HalfSquaredError,
    "mean_squared_error": MeanSquaredError,
    "mse": MeanSquaredError,
    "cross_entropy": CrossEntropy,
}
