"""Goals: when a task counts as learned."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, TypeVar

import numpy as np

from learncast._core.errors import InvalidSpec, brief
from learncast._core.validation import FloatArray, between, count, positive, real_array

#: A number, or one for each of several resamples.
Number = TypeVar("Number", float, FloatArray)


class Rule(ABC):
    """When a stage of training ends: a `Goal`, or a rule of `learncast.training` such as `Learned` or `Plateau`.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.Loss(0.1).needs_training, lc.training.Plateau().needs_training
    (False, True)
    """

    #: Whether the rule can only be followed by training, not by a forecast.
    needs_training: ClassVar[bool] = True

    @property
    @abstractmethod
    def text(self) -> str:
        """The rule in a few words."""


class Goal(Rule):
    """When a task counts as learned.

    Subclasses are `Accuracy`, `Explained`, `Loss` and `R2`, which forecasts and training both understand, and
    `learncast.training.DecisionAccuracy` and `learncast.training.Measured`, which need trials: of training, or the
    recorded trials of a forecast of one task.

    Attributes
    ----------
    looks : int
        Evaluations whose mean must meet the goal. A single evaluation on few trials is noisy.
    every : int
        Steps between two evaluations.

    Examples
    --------
    >>> import learncast as lc
    >>> isinstance(lc.Accuracy(0.99), lc.Goal), lc.Accuracy(0.99).text
    (True, 'accuracy 0.99')
    """

    needs_training = False
    value: float
    looks: int = 1
    every: int = 1

    @abstractmethod
    def excess(self, baseline: Number, least: float) -> Number:
        """Return the excess loss at which the task is learned.

        Parameters
        ----------
        baseline : float or array
            Excess loss of the zero map.
        least : float
            Least loss that the network can reach; nan if the target variance is unknown.
        """

    def target_loss(self, baseline: float, least: float) -> float:
        """Return the loss at which the task is learned; see `excess`."""
        return least + self.excess(baseline, least)

    def check_forecast(self) -> None:
        """Raise if the goal has a setting that only training can follow."""

    @property
    def level(self) -> float:
        """Value of the measured quantity at which the goal is met."""
        return self.value

    def met(self, value: float) -> bool:
        """Whether a measured value meets the goal; nan never does."""
        return value >= self.level

    @property
    def quantity(self) -> tuple[object, ...]:
        """What the goal measures. Goals with equal quantities share their evaluations."""
        return (type(self).__name__,)


@dataclass(frozen=True)
class Plateau(Rule):
    """Stop when neither the loss nor the weights change any more.

    The mean over the last `window` steps is compared with the mean over the `window` before. The loss must have fallen
    by less than `tolerance` of itself, and each weight matrix must have moved by less than `tolerance` of its size.
    Both are needed: from small weights the loss stays constant while the weights grow, and large weights hardly move
    while the loss falls.

    Parameters
    ----------
    window : int
    tolerance : float

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> inputs = np.random.default_rng(0).standard_normal((64, 5, 1))
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> rule = lc.training.Plateau(window=10, tolerance=1e-3)
    >>> run = lc.training.train((inputs, inputs.sum(axis=1)), network, lc.Training(0.02), goal=rule)
    >>> run.status.name, round(float(run.dataset["loss"][-1]), 2)
    ('ok', 0.06)
    """

    window: int = 200
    tolerance: float = 2e-3

    def __post_init__(self) -> None:
        count("window", self.window)
        positive("tolerance", self.tolerance)

    @property
    def text(self) -> str:
        return f"a plateau over {self.window} steps"


@dataclass(frozen=True)
class Accuracy(Goal):
    """Every mode is within 1 - `value` of its optimum.

    Where forecasts do not use modes, the excess loss is at most (1 - value)² of the baseline loss. Training uses the
    same definition.

    Parameters
    ----------
    value : float
    optimum : float, sequence of float or Plateau, optional
        For training only: the strength each mode should reach, or the plateau at which a first training finds it. By
        default training uses the optimum or the least loss of the theory if the network is linear and the squared error
        is trained, and a first training to ``Plateau()`` otherwise. Without modes, the loss on that plateau is the
        least loss.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.Accuracy(0.9).text
    'accuracy 0.9'
    >>> task = lc.tasks.integration(steps=10)
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> run = lc.training.train(task, network, lc.Training(0.01, batch=100), goal=lc.Accuracy(0.9))
    >>> run.status.name, run.steps
    ('ok', 55)
    """

    value: float
    _: KW_ONLY
    optimum: tuple[float, ...] | Plateau | None = None

    def __post_init__(self) -> None:
        between("accuracy", self.value, 0.0, 1.0)
        if self.optimum is not None and not isinstance(self.optimum, Plateau):
            given = np.atleast_1d(real_array("optimum", self.optimum, ndim=(0, 1)))
            object.__setattr__(self, "optimum", tuple(given.tolist()))

    def check_forecast(self) -> None:
        if self.optimum is not None:
            raise InvalidSpec("Only learncast.training can follow an optimum. Give Accuracy without it.", field="goal")
        _check_reachable(self.value)

    def excess(self, baseline: Number, least: float) -> Number:
        return (1.0 - self.value) ** 2 * baseline

    @property
    def text(self) -> str:
        return f"accuracy {share_text(self.value)}"


@dataclass(frozen=True)
class Explained(Goal):
    """The share `value` of the explainable variance is learned: the excess loss is 1 - value of the baseline loss.

    Examples
    --------
    >>> import learncast as lc
    >>> round(lc.Explained(0.95).excess(2.0, 0.0), 3)
    0.1
    """

    value: float

    def __post_init__(self) -> None:
        between("explained", self.value, 0.0, 1.0)

    def check_forecast(self) -> None:
        _check_reachable(self.value)

    def excess(self, baseline: Number, least: float) -> Number:
        return (1.0 - self.value) * baseline

    @property
    def text(self) -> str:
        return f"{share_text(self.value)} of the explainable variance"


@dataclass(frozen=True)
class Loss(Goal):
    """The loss is at most `value`, in the units of the training loss.

    Parameters
    ----------
    value : float
    function : str or callable, optional
        For training only: another loss than the one that is trained on, in any form that `Training.loss` takes.
    looks, every : int
        For training only: evaluations that are averaged, and steps between them.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> inputs = np.random.default_rng(0).standard_normal((64, 5, 1))
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> goal = lc.Loss(0.2, function="mse")
    >>> run = lc.training.train((inputs, inputs.sum(axis=1)), network, lc.Training(0.02), goal=goal)
    >>> run.status.name, bool(run.dataset["loss"][-1] <= 0.1)  # the record is half the squared error
    ('ok', True)
    """

    value: float
    _: KW_ONLY
    function: str | Callable[..., object] | None = None
    looks: int = 1
    every: int = 1

    def __post_init__(self) -> None:
        positive("loss", self.value)
        check_looks(self)

    def check_forecast(self) -> None:
        if self.function not in (None, "half_mse"):
            given = f"{self.function!r:.40}"
            raise InvalidSpec(f"Only learncast.training can measure another loss, got function={given}.", field="goal")

    def excess(self, baseline: Number, least: float) -> Number:
        return self.value - _known(least) + 0.0 * baseline

    def target_loss(self, baseline: float, least: float) -> float:
        return self.value

    def met(self, value: float) -> bool:
        return value <= self.value

    @property
    def quantity(self) -> tuple[object, ...]:
        return ("loss", self.function)

    @property
    def text(self) -> str:
        return f"loss {self.value:.3g}"


@dataclass(frozen=True)
class R2(Goal):
    """R² is at least `value`: one minus the squared error over the squared error of the zero map.

    It differs from R² about the mean if the mean target is not zero; a remark of the forecast then gives the R² of the
    mean target. For trials with ``centre=True`` both are equal.

    Parameters
    ----------
    value : float
    looks, every : int
        For training only: evaluations that are averaged, and steps between them.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.R2(0.75).excess(4.0, 1.0)
    0.25
    """

    value: float
    _: KW_ONLY
    looks: int = 1
    every: int = 1

    def __post_init__(self) -> None:
        between("r2", self.value, 0.0, 1.0)
        check_looks(self)

    def excess(self, baseline: Number, least: float) -> Number:
        known = _known(least)
        return (1.0 - self.value) * (baseline + known) - known

    @property
    def text(self) -> str:
        return f"R² {share_text(self.value)}"


#: The goals if none is given: of task families, and of recordings.
FAMILY_GOAL, DATA_GOAL = Accuracy(0.99), Explained(0.95)


def goal_of(goal: Goal | float | str | None, *, recorded: bool) -> Goal:
    """Return a goal: a number means `Explained` for recorded tasks and `Accuracy` for task families.

    None is the default goal.
    """
    if goal is None:
        return DATA_GOAL if recorded else FAMILY_GOAL
    if isinstance(goal, Goal):
        return goal
    if isinstance(goal, int | float | np.number) and not isinstance(goal, bool):
        return Explained(float(goal)) if recorded else Accuracy(float(goal))
    raise InvalidSpec(f"goal must be a number or a Goal such as R2(0.8), got {brief(goal)}.", field="goal")


def forecast_goal_of(goal: Goal | float | str | None, *, recorded: bool) -> Goal:
    """Return a goal that a forecast can follow, as `goal_of`."""
    found = goal_of(goal, recorded=recorded)
    if found.needs_training:
        remedy = "Give Explained or another goal."
        raise InvalidSpec(f"{found.text} needs training, or a forecast of one recorded task. {remedy}", field="goal")
    found.check_forecast()
    return found


def share_text(value: float) -> str:
    """A share with four digits, or with as many as tell it from 1."""
    short = f"{value:.4g}"
    return f"{value:.12g}" if short == "1" else short


def check_looks(goal: Goal) -> None:
    """Raise if `looks` or `every` is not a positive count."""
    count("looks", goal.looks)
    count("every", goal.every)


def _check_reachable(value: float) -> None:
    """Refuse a share of 1, which descent approaches without end."""
    if value == 1.0:
        raise InvalidSpec("A goal must be below 1, got 1: training only approaches the best network.", field="goal")


def _known(least: float) -> float:
    if math.isnan(least):
        raise InvalidSpec("This goal needs target_covariance. Give it, or use Accuracy.", field="goal")
    return least


#: Goals by their key in study files and terms files.
GOALS: dict[str, type[Accuracy] | type[Explained] | type[Loss] | type[R2]] = {
    "accuracy": Accuracy,
    "explained": Explained,
    "loss": Loss,
    "r2": R2,
}
