"""Goals that are measured on trials."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, between, count
from learncast.procedure.goals import R2, Goal, Loss, Number, check_looks
from learncast.training.losses import Answered, HalfSquaredError, LossFunction, call_with_weights, full_name


class TrialGoal(Goal):
    """A goal that is measured on answers to trials: those of training, or the recorded trials of a forecast."""

    needs_training = True

    @abstractmethod
    def measure(self, answers: Tensor, targets: Tensor, weights: Tensor | None = None) -> float:
        """Return the measured quantity."""

    @abstractmethod
    def chance(self, targets: Tensor, weights: Tensor | None = None) -> float:
        """Return the measure of the best answers that ignore the inputs; nan if unknown."""

    def measure_arrays(self, answers: FloatArray, targets: FloatArray, counted: NDArray[np.bool_]) -> float:
        """Return the measured quantity of arrays (trials, readouts, outputs) at the readouts that count."""
        a, y, w = (torch.from_numpy(np.ascontiguousarray(p)) for p in (answers, targets, counted.astype(float)))
        a, y = (a[:, 0], y[:, 0]) if a.shape[1] == 1 else (a, y)
        return self.measure(a, y, None if counted.all() else w)

    def excess(self, baseline: Number, least: float) -> Number:
        name = type(self).__name__
        raise InvalidSpec(f"{name} needs trials: use it in training or with recorded trials.", field="goal")


@dataclass(frozen=True)
class DecisionAccuracy(TrialGoal):
    """The share `value` of the decisions is correct.

    The decision at a readout is the largest answer. It is correct if it is the label or the largest target. With one
    output, the decision is the side of `threshold` on which the answer lies.

    Parameters
    ----------
    value : float
        Share to reach, between 0 and 1.
    steps : slice, sequence of int, or None
        Readouts whose decisions count, e.g. ``slice(-1, None)`` for the last; all by default.
    outputs : sequence of int, optional
        Outputs that take part; all by default. A readout with another label does not count.
    ignore : int, optional
        A class that is no decision, e.g. 0 for fixation. Readouts with this label do not count; choosing it elsewhere
        is an error.
    threshold : float
        Boundary between the two decisions of a single output.
    looks, every : int
        Evaluations that are averaged, and steps between them.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> goal = lc.training.DecisionAccuracy(0.75)
    >>> answers = torch.tensor([[0.9, 0.1], [0.2, 0.7], [0.6, 0.4], [0.8, 0.3]])
    >>> labels = torch.tensor([0, 1, 1, 0])
    >>> goal.measure(answers, labels), goal.chance(labels)
    (0.75, 0.5)
    >>> goal.met(goal.measure(answers, labels))
    True
    """

    value: float
    steps: slice | Sequence[int] | None = None
    outputs: slice | Sequence[int] | None = None
    ignore: int | None = None
    threshold: float = 0.0
    looks: int = 1
    every: int = 5

    def __post_init__(self) -> None:
        between("accuracy", self.value, 0.0, 1.0)
        check_looks(self)
        if self.ignore is not None:
            count("ignore", self.ignore, least=0)
        for name in ("steps", "outputs"):
            given = getattr(self, name)
            if given is not None and not isinstance(given, slice):
                object.__setattr__(self, name, _indices(name, given))

    def measure(self, answers: Tensor, targets: Tensor, weights: Tensor | None = None) -> float:
        chosen, wanted, counted = self._decisions(answers.detach(), targets, weights)
        size = float(counted.sum())
        return float(((chosen == wanted) * counted).sum()) / size if size > 0 else math.nan

    def chance(self, targets: Tensor, weights: Tensor | None = None) -> float:
        """Return the share that is correct if each step always gets its most frequent decision."""
        shape = (*targets.shape, self._classes(targets)) if not targets.is_floating_point() else targets.shape
        _, wanted, counted = self._decisions(torch.zeros(shape, dtype=torch.float64), targets, weights)
        share = nn.functional.one_hot(wanted, int(wanted.max()) + 1).to(counted) * counted[:, :, None]
        size = float(counted.sum())
        return float(share.sum(0).amax(1).sum()) / size if size > 0 else math.nan

    def _classes(self, labels: Tensor) -> int:
        most = int(labels.max()) + 1 if labels.numel() else 1
        named = max(self.outputs, default=0) + 1 if isinstance(self.outputs, tuple) else 1
        return max(most, named, 2)

    def _decisions(self, answers: Tensor, targets: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return chosen and correct outputs and the weight of each decision, (trials, chosen readouts)."""
        a, wanted, labels, w = Answered.of(answers, targets, weights)
        counted = a.new_ones(a.shape[:2]) if w is None else w.amax(2)
        outputs = self._chosen("outputs", a.shape[2])
        a, wanted = a[:, :, outputs], wanted[:, :, outputs]
        if len(outputs) == 1:
            correct, chosen = (wanted[:, :, 0] > self.threshold).long(), (a[:, :, 0] > self.threshold).long()
        else:
            correct, chosen = wanted.argmax(2), a.argmax(2)
            if labels is not None:
                counted = counted * wanted.any(2)  # a label that is none of the outputs
            if self.ignore is not None and self.ignore in outputs:
                counted = counted * (correct != outputs.index(self.ignore))
        steps = self._chosen("steps", a.shape[1])
        return chosen[:, steps], correct[:, steps], counted[:, steps]

    def _chosen(self, name: str, size: int) -> list[int]:
        given = getattr(self, name)
        if given is None:
            return list(range(size))
        chosen = list(range(size)[given]) if isinstance(given, slice) else [k + size if k < 0 else k for k in given]
        if not chosen or not all(0 <= k < size for k in chosen):
            raise InvalidSpec(f"{name} of decisions must lie between {-size} and {size - 1}, got {given}.", field=name)
        return chosen

    @property
    def quantity(self) -> tuple[object, ...]:
        return ("decisions", self.steps, self.outputs, self.ignore, self.threshold)

    @property
    def text(self) -> str:
        return f"{100 * self.value:.4g}% correct decisions"


@dataclass(frozen=True, repr=False)
class Measured(TrialGoal):
    """A function of (answers, targets) is large or small enough.

    Parameters
    ----------
    function : callable
        Of (answers, targets) or (answers, targets, weights), tensors of held-out trials; returns a number.
    at_least, at_most : float
        Bound of the number; give one of them.
    chance_level : float
        Value that answers reach without looking at the inputs, if known.
    looks, every : int
        Evaluations that are averaged, and steps between them.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> def correlation(answers, targets):
    ...     return torch.corrcoef(torch.stack([answers.flatten(), targets.flatten()]))[0, 1]
    >>> goal = lc.training.Measured(correlation, at_least=0.9, chance_level=0.0)
    >>> goal.text
    'correlation of at least 0.9'
    >>> answers, targets = torch.tensor([[0.1], [0.4], [0.5]]), torch.tensor([[1.0], [2.0], [3.0]])
    >>> round(goal.measure(answers, targets), 2), goal.met(goal.measure(answers, targets))
    (0.96, True)
    """

    function: Callable[..., object]
    _: KW_ONLY
    at_least: float | None = None
    at_most: float | None = None
    chance_level: float = math.nan
    looks: int = 1
    every: int = 5

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InvalidSpec(f"function must be callable, got {type(self.function).__name__}.", field="function")
        if (self.at_least is None) == (self.at_most is None):
            raise InvalidSpec("Give either at_least or at_most.", field="at_least")
        check_looks(self)

    def measure(self, answers: Tensor, targets: Tensor, weights: Tensor | None = None) -> float:
        value = call_with_weights(self.function, answers.detach(), targets, weights)
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidSpec(f"function must return a number, got {value!r:.60}.", field="function") from error

    def chance(self, targets: Tensor, weights: Tensor | None = None) -> float:
        return self.chance_level

    def __repr__(self) -> str:
        bounds = f"at_least={self.at_least}, at_most={self.at_most}"
        return f"Measured({full_name(self.function)}, {bounds}, looks={self.looks}, every={self.every})"

    def met(self, value: float) -> bool:
        return value >= self.level if self.at_most is None else value <= self.level

    @property
    def level(self) -> float:
        return float(self.at_most if self.at_least is None else self.at_least)  # type: ignore[arg-type]

    @property
    def quantity(self) -> tuple[object, ...]:
        return ("measured", self.function)

    @property
    def text(self) -> str:
        name = getattr(self.function, "__name__", "measure")
        return f"{name} of at {'most' if self.at_least is None else 'least'} {self.level:.3g}"


def checked_measurable(goal: object, *, field: str = "goal") -> Goal:
    """Return a goal that can be measured on trials; refuse any other."""
    if not isinstance(goal, Loss | R2 | TrialGoal):
        raise InvalidSpec(f"{field} must be measurable on trials, got {type(goal).__name__}.", field=field)
    return goal


def measure(goal: Goal, loss: LossFunction, answers: Tensor, targets: Tensor, weights: Tensor | None) -> float:
    """Measure a goal on answers; `loss` is the loss that is trained on."""
    if isinstance(goal, TrialGoal):
        return goal.measure(answers, targets, weights)
    if isinstance(goal, Loss):
        return float(loss_of(goal, loss)(answers, targets, weights))
    assert isinstance(goal, R2)
    error, silent = (HalfSquaredError()(a, targets, weights) for a in (answers, torch.zeros_like(answers)))
    return 1.0 - float(error / silent)


def loss_of(goal: Loss, loss: LossFunction) -> LossFunction:
    """Return the loss function that a goal refers to."""
    return loss if goal.function is None else LossFunction.read(goal.function)


def _indices(name: str, given: object) -> tuple[int, ...]:
    """Return indices given as numbers or as a boolean mask."""
    if isinstance(given, int | np.integer) and not isinstance(given, bool):
        return (int(given),)
    values = np.asarray(given)
    if values.ndim != 1 or values.dtype.kind not in "iub" or not values.size:
        raise InvalidSpec(f"{name} must be integers, a boolean mask or a slice, got {given!r:.60}.", field=name)
    return tuple(int(k) for k in (np.flatnonzero(values) if values.dtype.kind == "b" else values))
