"""A goal: what a network's answers to held-out trials must be like for a task to count as learned."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from learncast._core.errors import InvalidSpec
from learncast._core.validation import between, count, positive
from learncast.training.losses import Answered, Loss, called, known_as


class Goal(ABC):
    """What a training or a stage of it is to reach, judged on held-out trials.

    Attributes
    ----------
    looks : int
        A single look is noisy where trials are few: the mean over so many looks must meet the goal.
    every : int
        Steps between two looks.

    Examples
    --------
    Where a goal is asked for, a number is the loss to reach.

    >>> import learncast as lc
    >>> lc.training.Goal.read(0.05).words
    'a loss of 0.05'
    >>> lc.training.Goal.read(lc.training.DecisionAccuracy(0.85)).words
    '85% right decisions'
    """

    looks: int
    every: int

    @abstractmethod
    def measure(self, answers: Tensor, targets: Tensor, weights: Tensor | None = None) -> float:
        """What the goal is about, of answers to trials."""

    @abstractmethod
    def met(self, value: float) -> bool:
        """Whether a measure is good enough; nan never is."""

    @property
    @abstractmethod
    def level(self) -> float:
        """The measure at which it is met."""

    @property
    @abstractmethod
    def words(self) -> str:
        """The goal in a few words."""

    @property
    @abstractmethod
    def asked(self) -> tuple[Any, ...]:
        """What it measures, whatever must be reached: goals that ask alike share their looks."""

    def chance(self, targets: Tensor, weights: Tensor | None = None) -> float:
        """The measure of the best answer that does not look at its inputs; nan where that is unknown."""
        return math.nan

    @classmethod
    def read(cls, goal: Any) -> Goal:
        """Take a Goal, or a number: the loss to reach."""
        if isinstance(goal, Goal):
            return goal
        if isinstance(goal, int | float | np.number) and not isinstance(goal, bool):
            return LossBelow(float(goal))
        lossy = isinstance(goal, Loss | nn.modules.loss._Loss)
        raise InvalidSpec(
            required="a goal must be a loss to reach (a number), a LossBelow, a DecisionAccuracy or a Measured",
            got=type(goal).__name__ if not callable(goal) or lossy else f"the function {getattr(goal, '__name__', '')}",
            why="it says when the target counts as learned, which takes a number to reach",
            remedy="use LossBelow(0.05, loss=...)"
            if lossy
            else "use DecisionAccuracy(0.85), or Measured(function, at_least=...)",
        )


@dataclass(frozen=True)
class LossBelow(Goal):
    """Stop when the loss on the task is at most `tolerance`.

    Parameters
    ----------
    tolerance : float
    loss : Loss, name or function of (answers, targets), optional
        The loss that is trained on, unless another is given.
    looks, every : int
        Looks that are averaged, and steps between them.

    Raises
    ------
    InvalidSpec
        If the tolerance is not a number above 0, the loss is none, or looks are fewer than one.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> inputs = np.random.default_rng(0).standard_normal((64, 5, 1))
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> until = lc.training.LossBelow(0.1, loss="mse")
    >>> training = lc.training.Training(learning_rate=0.02, batch=None, until=until)
    >>> run = lc.training.train((inputs, inputs.sum(axis=1)), network, training)
    >>> run.status.name, bool(run.dataset["loss"][-1] <= 0.05)  # the record is of half the squared error
    ('ok', True)
    """

    tolerance: float
    loss: Any = None
    looks: int = 1
    every: int = 1

    def __post_init__(self) -> None:
        _check_looks(self)
        if isinstance(self.tolerance, Loss | nn.Module | str) or callable(self.tolerance):
            raise InvalidSpec(
                f"tolerance must be a number, the loss to reach, got {type(self.tolerance).__name__}. Use "
                "LossBelow(0.05, loss=...).",
                field="tolerance",
            )
        positive("tolerance", self.tolerance)
        if self.loss is not None:
            object.__setattr__(self, "loss", Loss.read(self.loss))

    def measure(self, answers: Tensor, targets: Tensor, weights: Tensor | None = None) -> float:
        loss = self.loss if self.loss is not None else Loss.read("half_squared_error")
        return float(loss(answers, targets, weights))

    def of(self, loss: Loss) -> LossBelow:
        """The same goal with the loss said, where it is that of the training."""
        return self if self.loss is not None else replace(self, loss=loss)

    def met(self, value: float) -> bool:
        return value <= self.tolerance

    @property
    def level(self) -> float:
        return self.tolerance

    @property
    def asked(self) -> tuple[Any, ...]:
        return ("loss", self.loss)

    @property
    def words(self) -> str:
        return f"a loss of {self.tolerance:.3g}"


@dataclass(frozen=True)
class DecisionAccuracy(Goal):
    """Stop when so large a share of decisions is right.

    A decision is the largest of the answers at a readout, right when it is the label or the largest target. Of one
    output alone it is the side of `threshold` on which the answer lies, right when the target lies there too.

    Parameters
    ----------
    accuracy : float
        Share to reach, between 0 and 1.
    steps : slice, sequence of int, or None
        Readouts at which decisions count, e.g. ``slice(-1, None)`` for the last; all by default.
    outputs : sequence of int, optional
        Outputs that take part; all by default. A readout whose label is none of them does not count.
    ignore : int, optional
        A class that is no decision, e.g. 0 for fixation: readouts that ask for it do not count. Answers may still
        choose it, and are then wrong.
    threshold : float
        Between the two answers of one output.
    looks, every : int
        Looks that are averaged, and steps between them.

    Raises
    ------
    InvalidSpec
        If the accuracy does not lie between 0 and 1, a class or looks are no counts, or `steps` and `outputs` are no
        places.

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

    accuracy: float
    steps: Any = None
    outputs: Any = None
    ignore: int | None = None
    threshold: float = 0.0
    looks: int = 1
    every: int = 5

    def __post_init__(self) -> None:
        between("accuracy", self.accuracy, 0.0, 1.0)
        _check_looks(self)
        if self.ignore is not None:
            count("ignore", self.ignore, least=0)
        for name in ("steps", "outputs"):
            given = getattr(self, name)
            if given is not None and not isinstance(given, slice):
                object.__setattr__(self, name, _places(name, given))

    def measure(self, answers: Tensor, targets: Tensor, weights: Tensor | None = None) -> float:
        chosen, wanted, counted = self._decisions(answers.detach(), targets, weights)
        size = float(counted.sum())
        return float(((chosen == wanted) * counted).sum()) / size if size > 0 else math.nan

    def chance(self, targets: Tensor, weights: Tensor | None = None) -> float:
        """Share that is right when at every step the most frequent decision of that step is taken."""
        shape = (*targets.shape, self._classes(targets)) if not targets.is_floating_point() else targets.shape
        _, wanted, counted = self._decisions(torch.zeros(shape, dtype=torch.float64), targets, weights)
        classes = int(wanted.max()) + 1
        share = nn.functional.one_hot(wanted, classes).to(counted) * counted[:, :, None]
        size = float(counted.sum())
        return float(share.sum(0).amax(1).sum()) / size if size > 0 else math.nan

    def counted(self, answers: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """How much the decision at each readout counts, (trials, readouts); 0 where none is due."""
        readouts = answers.shape[1] if answers.ndim == 3 else 1
        _, _, counted = self._decisions(answers.detach(), targets, weights)
        found = counted.new_zeros(len(answers), readouts)
        found[:, self._chosen("steps", readouts)] = counted
        return found

    def _classes(self, labels: Tensor) -> int:
        most = int(labels.max()) + 1 if labels.numel() else 1
        named = max(self.outputs, default=0) + 1 if isinstance(self.outputs, tuple) else 1
        return max(most, named, 2)

    def _decisions(self, answers: Tensor, targets: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """The outputs chosen and wanted, and how much each counts, (trials, chosen readouts)."""
        a, wanted, labels, w = Answered.of(answers, targets, weights)
        counted = a.new_ones(a.shape[:2]) if w is None else w.amax(2)  # outputs together are one decision
        outputs = self._chosen("outputs", a.shape[2])
        a, wanted = a[:, :, outputs], wanted[:, :, outputs]
        if len(outputs) == 1:
            right, of = (wanted[:, :, 0] > self.threshold).long(), (a[:, :, 0] > self.threshold).long()
        else:
            right, of = wanted.argmax(2), a.argmax(2)
            if labels is not None:
                counted = counted * wanted.any(2)  # a label that is none of the outputs
            if self.ignore is not None and self.ignore in outputs:
                counted = counted * (right != outputs.index(self.ignore))
        steps = self._chosen("steps", a.shape[1])
        return of[:, steps], right[:, steps], counted[:, steps]

    def _chosen(self, name: str, size: int) -> list[int]:
        given = getattr(self, name)
        if given is None:
            return list(range(size))
        places = range(size)
        found = list(places[given]) if isinstance(given, slice) else [k + size if k < 0 else k for k in given]
        if not found or not all(0 <= k < size for k in found):
            raise InvalidSpec(
                f"{name} of decisions must be among the {size} that are answered, got {given}. Use numbers from 0 "
                f"to {size - 1}, or from -{size} to -1 counted from the end."
            )
        return found

    def met(self, value: float) -> bool:
        return value >= self.accuracy

    @property
    def level(self) -> float:
        return self.accuracy

    @property
    def asked(self) -> tuple[Any, ...]:
        return ("decisions", self.steps, self.outputs, self.ignore, self.threshold)

    @property
    def words(self) -> str:
        return f"{self.accuracy:.0%} right decisions"


@dataclass(frozen=True, repr=False)
class Measured(Goal):
    """Stop when a function of (answers, targets) is large or small enough.

    Parameters
    ----------
    function : callable
        Of (answers, targets) or (answers, targets, weights), as tensors of held-out trials, to a number.
    at_least, at_most : float
        One of them: what the number must be.
    chance_level : float
        What an answer reaches that does not look at its inputs, where that is known.
    looks, every : int
        Looks that are averaged, and steps between them.

    Raises
    ------
    InvalidSpec
        If there is no function, or not exactly one of `at_least` and `at_most`, or looks are fewer than one.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> def correlation(answers, targets):
    ...     return torch.corrcoef(torch.stack([answers.flatten(), targets.flatten()]))[0, 1]
    >>> goal = lc.training.Measured(correlation, at_least=0.9, chance_level=0.0)
    >>> goal.words
    'correlation of at least 0.9'
    >>> answers, targets = torch.tensor([[0.1], [0.4], [0.5]]), torch.tensor([[1.0], [2.0], [3.0]])
    >>> round(goal.measure(answers, targets), 2), goal.met(goal.measure(answers, targets))
    (0.96, True)
    """

    function: Callable[..., Any]
    at_least: float | None = None
    at_most: float | None = None
    chance_level: float = math.nan
    looks: int = 1
    every: int = 5

    def __post_init__(self) -> None:
        if not callable(self.function) or (self.at_least is None) == (self.at_most is None):
            raise InvalidSpec(
                "a measured goal must have a function of (answers, targets), and at_least or at_most, got "
                f"{type(self.function).__name__}, at_least={self.at_least}, at_most={self.at_most}. Use "
                "Measured(function, at_least=0.9)."
            )
        _check_looks(self)

    def measure(self, answers: Tensor, targets: Tensor, weights: Tensor | None = None) -> float:
        found = called(self.function, answers.detach(), targets, weights)
        try:
            return float(found)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidSpec(f"the function of a goal must return a number, got {type(found).__name__}.") from error

    def chance(self, targets: Tensor, weights: Tensor | None = None) -> float:
        return self.chance_level

    def __repr__(self) -> str:
        bounds = f"at_least={self.at_least}, at_most={self.at_most}"
        return f"Measured({known_as(self.function)}, {bounds}, looks={self.looks}, every={self.every})"

    def met(self, value: float) -> bool:
        return value >= self.at_least if self.at_least is not None else value <= self.level

    @property
    def level(self) -> float:
        return float(self.at_most if self.at_least is None else self.at_least)  # type: ignore[arg-type]

    @property
    def asked(self) -> tuple[Any, ...]:
        return ("measured", self.function)

    @property
    def words(self) -> str:
        name = getattr(self.function, "__name__", "its measure")
        return f"{name} of at {'most' if self.at_least is None else 'least'} {self.level:.3g}"


def _check_looks(goal: Goal) -> None:
    for name in ("looks", "every"):
        count(name, getattr(goal, name))


def _places(name: str, given: Any) -> tuple[int, ...]:
    """Numbers of steps or outputs; a mask of true and false says them too."""
    if isinstance(given, int | np.integer) and not isinstance(given, bool):
        return (int(given),)
    found = np.asarray(given)
    if found.ndim != 1 or found.dtype.kind not in "iub" or not found.size:
        raise InvalidSpec(
            f"{name} must be whole numbers, a mask of true and false, or a slice, got {given!r:.60}. Use "
            f"{name}=[-1] for the last, or {name}=slice(-3, None).",
            field=name,
        )
    return tuple(int(k) for k in (np.flatnonzero(found) if found.dtype.kind == "b" else found))
