"""Conditions of the theory, each measured as one number on a task and a network."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from learncast._core.errors import AssumptionViolated
from learncast._core.validation import FloatArray
from learncast.display import Table
from learncast.networks.linear_rnn import Alignment
from learncast.results import FORECAST_CLASSES
from learncast.tasks.covariance import Covariance
from learncast.tasks.geometry import Frame, share
from learncast.tasks.task import Task

#: Largest residual that counts as round-off.
EXACT = 1e-8


@dataclass(frozen=True)
class Condition:
    """Requirement of the theory, the consequence of a violation and the remedy.

    Attributes
    ----------
    allowed : float
        Largest measured value at which the condition holds.
    requires, otherwise, remedy : str
        What is required, what follows if it fails, and what to do then.
    binding : bool
        Whether the solution is exact only if the condition holds. If False, the condition is only reported.

    Examples
    --------
    >>> from learncast.theory.assumptions import ASSUMPTIONS
    >>> condition = ASSUMPTIONS["stable_learning_rate"]
    >>> condition.allowed, condition.binding
    (2.0, True)
    >>> condition.requires
    'learning_rate times the largest curvature along the way must be below 2'
    """

    allowed: float
    requires: str
    otherwise: str
    remedy: str
    binding: bool = True


def read_conditions(path: Path) -> dict[str, Condition]:
    """Return the conditions in a TOML file, by name."""
    return {name: Condition(**table) for name, table in tomllib.loads(path.read_text(encoding="utf-8")).items()}


#: Conditions of the closed forms by name: what each requires, what follows if it fails, and what to do then.
ASSUMPTIONS = read_conditions(Path(__file__).with_name("conditions.toml"))


@dataclass(frozen=True)
class Assumption:
    """Measured value of one condition.

    Attributes
    ----------
    name : str
        Key of `ASSUMPTIONS`.
    measured, allowed : float
        Measured value, and the largest value at which the theory is exact.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> solution = lc.forecast(task, network, learning_rate=1e-3).solution
    >>> rate = solution.assumptions[-1]
    >>> rate.name, rate.holds, rate.allowed
    ('stable_learning_rate', True, 2.0)
    """

    name: str
    measured: float
    conditions: ClassVar[Mapping[str, Condition]] = ASSUMPTIONS

    @property
    def condition(self) -> Condition:
        """Requirement, consequence and remedy."""
        return self.conditions[self.name]

    @property
    def allowed(self) -> float:
        """Largest value at which the theory is exact."""
        return self.condition.allowed

    @property
    def holds(self) -> bool:
        """Whether the condition holds."""
        return bool(self.measured <= self.allowed)

    @property
    def verdict(self) -> str:
        """Whether it holds, as text."""
        return "yes" if self.holds else "NO"

    @property
    def measured_text(self) -> str:
        """Measured value with enough digits to show whether it exceeds the largest one allowed."""
        texts = (f"{self.measured:.{digits}g}" for digits in (3, 5, 8, 12))
        return next((text for text in texts if (float(text) <= self.allowed) == self.holds), repr(self.measured))

    @property
    def failure(self) -> str:
        """What fails and what follows, for the notes of every report."""
        limit = f"{self.allowed:.6g}"
        least = "below" if float(limit) > self.allowed else "at most"
        measured = f"{self.name.replace('_', ' ')} measures {self.measured_text} and must be {least} {limit}"
        return f"{measured}: {self.condition.otherwise}."

    def violation(self) -> AssumptionViolated:
        """Return the exception for a violated condition."""
        return AssumptionViolated(
            f"{self.name}: {self.condition.requires}. Got {self.measured:.4g}, allowed {self.allowed:g}. "
            f"Remedy: {self.condition.remedy}.",
            assumption=self.name,
            measured=self.measured,
            allowed=self.allowed,
        )


@dataclass(frozen=True)
class Trust:
    """Reliability of a forecast: its measured conditions and the forecast class that follows.

    Attributes
    ----------
    assumptions : tuple of Assumption
    promise : str
        Forecast class if all binding conditions hold, a key of `learncast.results.FORECAST_CLASSES`.

    Examples
    --------
    >>> from learncast.theory.assumptions import Assumption, Trust
    >>> trust = Trust((Assumption("stable_learning_rate", 0.1), Assumption("aligned_start", 0.3)), promise="exact")
    >>> trust.forecast_class, trust.names
    ('outside', 'aligned start (0.3)')
    """

    assumptions: tuple[Assumption, ...]
    promise: str

    @property
    def failed(self) -> tuple[Assumption, ...]:
        """Binding conditions that do not hold."""
        return tuple(a for a in self.assumptions if a.condition.binding and not a.holds)

    @property
    def holds(self) -> bool:
        """Whether all binding conditions hold."""
        return not self.failed

    @property
    def forecast_class(self) -> str:
        """Forecast class: the promise, or "outside" if a condition fails; measurements stay "measured"."""
        return self.promise if self.holds or self.promise == "measured" else "outside"

    @property
    def standing(self) -> tuple[str, str]:
        """Forecast class and its meaning."""
        return self.forecast_class, FORECAST_CLASSES[self.forecast_class]

    @property
    def table(self) -> Table:
        """Table of all conditions with measured and allowed values."""
        listed = [a for a in self.assumptions if a.holds or a.condition.binding]
        rows = [(a.name.replace("_", " "), a.measured_text, f"{a.allowed:g}", a.verdict) for a in listed]
        notes = [f"Not needed: {a.failure}" for a in self.assumptions if a not in listed]
        return Table("Measured conditions", ("condition", "measured", "at most", "holds"), rows, notes)

    @property
    def names(self) -> str:
        """Names and measured values of the failed conditions, as text."""
        return ", ".join(f"{a.name.replace('_', ' ')} ({a.measured:.2g})" for a in self.failed)


def require(assumptions: Iterable[Assumption]) -> None:
    """Raise `AssumptionViolated` for the first binding assumption that does not hold.

    Parameters
    ----------
    assumptions : iterable of Assumption

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.assumptions import Assumption, require
    >>> require([Assumption("aligned_start", 0.0)])
    >>> try:
    ...     require([Assumption("aligned_start", 0.3)])
    ... except lc.AssumptionViolated as error:
    ...     print(error.assumption, error.measured)
    aligned_start 0.3
    """
    for assumption in assumptions:
        if assumption.condition.binding and not assumption.holds:
            raise assumption.violation()


def exact(assumptions: Iterable[Assumption]) -> bool:
    """Return whether all binding assumptions hold, so that the solution is exact.

    Parameters
    ----------
    assumptions : iterable of Assumption

    Returns
    -------
    bool

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.assumptions import exact
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> solution = lc.forecast(task, network, learning_rate=1e-3).solution
    >>> exact(solution.assumptions)
    True
    """
    return all(a.holds for a in assumptions if a.condition.binding)


def worst(groups: Iterable[Iterable[Assumption]]) -> tuple[Assumption, ...]:
    """Return the largest measured value of each condition, in order of first occurrence.

    Parameters
    ----------
    groups : iterable of iterables of Assumption
        Assumptions of several tasks or stages.

    Returns
    -------
    tuple of Assumption

    Examples
    --------
    >>> from learncast.theory.assumptions import Assumption, worst
    >>> stages = [[Assumption("aligned_start", 0.0)], [Assumption("aligned_start", 0.2)]]
    >>> [(one.name, one.measured) for one in worst(stages)]
    [('aligned_start', 0.2)]
    """
    largest: dict[str, Assumption] = {}
    for item in itertools.chain.from_iterable(groups):
        if item.name not in largest or not item.measured <= largest[item.name].measured:
            largest[item.name] = item
    return tuple(largest.values())


def static_geometry(task: Task, frame: Frame) -> Assumption:
    """Measure the share of the cross covariance that lies between different modes.

    Parameters
    ----------
    task : Task
    frame : Frame
        Directions of the modes, from `learncast.tasks.geometry.common_frame`.

    Returns
    -------
    Assumption

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.assumptions import static_geometry
    >>> from learncast.tasks.geometry import common_frame
    >>> task = lc.tasks.integration(steps=5)
    >>> static_geometry(task, common_frame([task])).holds
    True
    """
    rotated = task.cross_covariance.rotated(frame.inputs, frame.outputs)
    return Assumption("static_geometry", _off_diagonal_share(rotated))


def aligned_input_covariance(task: Task, frame: Frame) -> Assumption:
    """Measure the share of the input covariance that lies between a mode and other input directions.

    Parameters
    ----------
    task : Task
    frame : Frame
        Directions of the modes, from `learncast.tasks.geometry.common_frame`.

    Returns
    -------
    Assumption

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.assumptions import aligned_input_covariance
    >>> from learncast.tasks.geometry import common_frame
    >>> task = lc.tasks.integration(steps=5)
    >>> aligned_input_covariance(task, common_frame([task])).measured
    0.0
    """
    # Directions outside the modes may be correlated with each other: no weights ever read them.
    rotated = task.input_covariance.rotated(frame.mode_inputs, frame.inputs)
    return Assumption("aligned_input_covariance", _off_diagonal_share(rotated))


def _off_diagonal_share(covariance: Covariance) -> float:
    off = covariance.off_diagonal_norm()
    return share(off, covariance.norm()) if off else 0.0


def balanced_start(alignment: Alignment) -> Assumption:
    """Measure the largest |a^2 - c^2| / (a^2 + c^2) over modes.

    Parameters
    ----------
    alignment : Alignment
        Weights of a network in the directions of the modes.

    Returns
    -------
    Assumption

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.assumptions import balanced_start
    >>> from learncast.networks.linear_rnn import Alignment
    >>> from learncast.tasks.geometry import common_frame
    >>> task = lc.tasks.integration(steps=5)
    >>> network = lc.LinearRNN([[0.1]], [[0.9]], [[0.2]])
    >>> round(balanced_start(Alignment.of(network, common_frame([task]))).measured, 3)
    0.6
    """
    a2, c2 = alignment.input_weight**2, alignment.output_weight**2
    total = a2 + c2
    ratios = np.abs(a2 - c2) / np.where(total > 0, total, 1.0)
    return Assumption("balanced_start", float(ratios.max(initial=0.0)))


def stable_learning_rate(learning_rate: float, sharpness: FloatArray) -> Assumption:
    """Measure the learning rate times the largest curvature of the loss.

    Parameters
    ----------
    learning_rate : float
    sharpness : array
        Curvatures of the loss along the way.

    Returns
    -------
    Assumption

    Examples
    --------
    >>> import numpy as np
    >>> from learncast.theory.assumptions import stable_learning_rate
    >>> [stable_learning_rate(rate, np.array([5.0, 50.0])).holds for rate in (0.01, 0.1)]
    [True, False]
    """
    return Assumption("stable_learning_rate", learning_rate * float(np.max(sharpness, initial=0.0)))
