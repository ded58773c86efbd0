"""Solutions of learning problems: learning as a function of time, and the time to learn."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from learncast._core.citations import bibliography
from learncast._core.errors import InvalidSpec, brief
from learncast._core.validation import FloatArray, positive
from learncast.display import Displayable, HtmlRepr, Plot, Table, format_count, format_number
from learncast.networks.deep import Linear
from learncast.results import FORECAST_CLASSES, Provenance, Status, Steps, Trajectory
from learncast.tasks.task import Task
from learncast.theory.assumptions import Assumption, Trust, exact, stable_learning_rate

__all__ = ["LearningTime", "Solution", "status_of", "worst_status"]

#: Accuracy of the step counts in an HTML repr.
USUAL_ACCURACY = 0.99
#: Number of times in a plot.
POINTS = 200


@dataclass(frozen=True)
class LearningTime:
    """Time at which each mode first enters the tolerance band around its optimum.

    Attributes
    ----------
    accuracy : float
        1 - eps; the band is |u - u*| <= eps |u*|.
    mode_flow_steps : (modes,)
        Gradient-flow time, in units of the learning rate.
    mode_descent_steps : (modes,)
        Number of gradient-descent steps.
    mode_status : tuple of Status, one per mode
    descent_interval : (2, modes), optional
        Ends of the 95% confidence interval of the descent steps, if the statistics were estimated from trials.
    held : (modes,) of bool, optional
        Modes that the hidden units can hold; the others do not count. All by default.
    tried, loss : float
        Steps that were tried without success, and the loss after them; otherwise nan.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> time = lc.forecast(task, network, learning_rate=1e-3).solution.time_to(0.99)
    >>> time.descent_steps, time.status.name
    (331.0, 'ok')
    """

    accuracy: float
    mode_flow_steps: FloatArray
    mode_descent_steps: FloatArray
    mode_status: tuple[Status, ...]
    descent_interval: FloatArray | None = None
    held: NDArray[np.bool_] | None = None
    tried: float = math.nan
    loss: float = math.nan

    @property
    def interval(self) -> tuple[float, float] | None:
        """95% interval of the descent steps until all modes are learned, in whole steps; None if unknown."""
        if self.descent_interval is None or np.isnan(self.descent_interval).any():
            return None
        low, high = (_slowest(ends) for ends in self.descent_interval)
        return float(np.floor(low)), float(np.ceil(high))

    @property
    def flow_steps(self) -> float:
        """Flow time until all modes are learned."""
        return _slowest(self._counting(self.mode_flow_steps))

    @property
    def descent_steps(self) -> float:
        """Descent steps until all modes are learned."""
        return _slowest(self._counting(self.mode_descent_steps))

    @property
    def steps(self) -> Steps:
        """Steps until all modes are learned, without their interval."""
        return Steps(self.descent_steps, self.flow_steps, status=self.status, tried=self.tried, loss=self.loss)

    def _counting(self, steps: FloatArray) -> FloatArray:
        return steps if self.held is None else steps[self.held]

    @property
    def horizon(self) -> float:
        """Time range of a plot: 1.25 times the largest finite flow time, or 1000."""
        finite = self.mode_flow_steps[np.isfinite(self.mode_flow_steps)]
        return 1.25 * float(finite.max(initial=0.0)) or 1000.0

    @property
    def status(self) -> Status:
        """Worst status of any mode that counts."""
        held = itertools.repeat(True) if self.held is None else self.held
        return worst_status(itertools.compress(self.mode_status, held))

    def __repr__(self) -> str:
        within = "" if self.interval is None else f" ({self.interval[0]:.6g} to {self.interval[1]:.6g})"
        return (
            f"<LearningTime to {self.accuracy:g}: {self.flow_steps:.6g} flow steps, "
            f"{self.descent_steps:.6g} descent steps{within}, {self.status.name}>"
        )


def _slowest(steps: FloatArray) -> float:
    return float(np.max(steps)) if len(steps) else 0.0  # nan (unknown) stays nan


_SEVERITY = [
    Status.ok, Status.too_few_samples, Status.outside_theory, Status.not_within, Status.diverged, Status.not_learned,
]  # fmt: skip


def worst_status(statuses: Iterable[Status]) -> Status:
    """Return the most severe status; ``ok`` if there are none.

    Parameters
    ----------
    statuses : iterable of Status

    Returns
    -------
    Status

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory import worst_status
    >>> worst_status([lc.Status.ok, lc.Status.diverged]).name
    'diverged'
    """
    return max(statuses, key=_SEVERITY.index, default=Status.ok)


def settles(assumptions: Iterable[Assumption]) -> bool:
    """Whether measured conditions allow descent to settle at its learning rate."""
    return all(a.holds for a in assumptions if a.name == "stable_learning_rate")


def status_of(flow: float, descent: float, assumptions: Iterable[Assumption]) -> Status:
    """Return the status of a flow time and a number of descent steps.

    Parameters
    ----------
    flow, descent : float
        Infinite if the goal is never reached, nan if unknown.
    assumptions : iterable of Assumption
        Measured conditions of the theory.

    Returns
    -------
    Status
        ``diverged`` also if descent passes the goal but cannot converge at its learning rate. If its steps are unknown,
        as where they are too many to count, that is not known.

    Examples
    --------
    >>> from learncast.theory import Assumption, status_of
    >>> fast = [Assumption("stable_learning_rate", 2.5)]
    >>> status_of(70.0, 72.0, [Assumption("stable_learning_rate", 0.5)]).name, status_of(70.0, 72.0, fast).name
    ('ok', 'diverged')
    """
    known = tuple(assumptions)
    if math.isinf(flow) and math.isinf(descent):
        return Status.not_learned
    if not math.isfinite(flow) and math.isnan(descent):
        return Status.not_within
    if math.isinf(descent) or (math.isfinite(descent) and not settles(known)):
        return Status.diverged
    return Status.ok if exact(known) else Status.outside_theory


class Solution(Displayable, ABC):
    """Learning as a function of time.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> solution = lc.forecast(task, network, learning_rate=1e-3).solution
    >>> solution.at([0, 200, 400])["loss"].values.round(3)
    array([24.998, 16.54 ,  6.133])
    >>> solution.time_to(0.99)
    <LearningTime to 0.99: 329.985 flow steps, 331 descent steps, ok>
    >>> solution.network_at(331)
    <LinearRNN: 1 input, 4 hidden, 1 output; spectral radius 0.96>
    """

    learning_rate: float
    #: Forecast class if all conditions hold; an integration is always "integrated".
    promise: ClassVar[str] = "exact"

    @abstractmethod
    def at(self, times: ArrayLike) -> Trajectory:
        """Return the trajectory at times in gradient steps; infinity is allowed."""

    @abstractmethod
    def network_at(self, time: float) -> Linear:
        """Return the network at a time in gradient steps."""

    @abstractmethod
    def time_to(self, accuracy: float) -> LearningTime:
        """Return the time at which each mode first reaches the accuracy."""

    def time_to_loss(self, tolerance: float) -> float:
        """Return the first time in gradient steps with an excess loss of at most `tolerance`; infinite if never."""
        return self._time_to_loss(positive("tolerance", tolerance))

    def _time_to_loss(self, excess: float) -> float:
        return first_time(lambda time: self._excess_loss(time) - excess)

    def _excess_loss(self, time: float) -> float:
        return float(self.at([time])["excess_loss"][0])

    def _trajectory(
        self, steps: FloatArray, values: Mapping[str, ArrayLike], task: Task, **attributes: Any
    ) -> Trajectory:
        return Trajectory.of(
            steps, values, self.provenance, task=task.name, learning_rate=self.learning_rate, **attributes
        )

    @property
    @abstractmethod
    def assumptions(self) -> tuple[Assumption, ...]:
        """Measured conditions of the theory."""

    @property
    @abstractmethod
    def provenance(self) -> Provenance:
        """Origin of the numbers."""

    @property
    def optimum(self) -> FloatArray:
        """Strength of each mode at infinite time."""
        return np.asarray(self.limit()["strength"].values[0])

    def conditions_until(self, steps: float) -> tuple[Assumption, ...]:
        """Return the conditions of training up to a number of gradient steps.

        If the learning rate is stable to the end of training, it is stable at any stop. Otherwise the curvature is
        measured along the flow up to the stop.
        """
        own, rate = self.assumptions, "stable_learning_rate"
        if not math.isfinite(steps) or settles(own):
            return own
        curvatures = self.curvatures_until(steps)
        if not len(curvatures):
            return own
        measured = stable_learning_rate(self.learning_rate, curvatures)
        return tuple(measured if a.name == rate else a for a in own)

    @cached_property
    def curvatures(self) -> FloatArray:
        """Curvatures of the loss along the whole flow; empty if not measured."""
        return self.curvatures_until(math.inf)

    def curvatures_until(self, steps: float) -> FloatArray:
        """Return curvatures of the loss along the flow up to a number of gradient steps; empty if not measured."""
        return np.empty(0)

    def limit(self) -> Trajectory:
        """Return the state at infinite time."""
        return self.at([math.inf])

    def citation(self) -> str:
        """Return BibTeX of the papers whose equations this solution evaluates; empty if it evaluates none."""
        return bibliography(*self.provenance.citations)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Notes for the reader, such as modes that are never learned."""
        return ()

    @property
    def bottleneck_loss(self) -> float:
        """Loss that is left because there are fewer hidden units than modes; 0 if there are enough."""
        return 0.0

    @property
    def holds(self) -> bool:
        """Whether all binding conditions hold."""
        return exact(self.assumptions)

    @property
    def forecast_class(self) -> str:
        """Forecast class, a key of `learncast.results.FORECAST_CLASSES`."""
        return self.promise if self.promise == "integrated" or self.holds else "outside"

    def _plot(self) -> Plot:
        course = self.at(np.linspace(0.0, self.time_to(USUAL_ACCURACY).horizon, POINTS)).dataset
        return Plot.of("mode_strengths", course, optimum=self.optimum, title="Strength of every mode")

    def _html_repr(self) -> HtmlRepr:
        learned = self.time_to(USUAL_ACCURACY)
        times = zip(learned.mode_descent_steps, learned.mode_flow_steps, learned.mode_status, strict=True)
        rows = [(str(k), format_count(n), format_number(t), s.name) for k, (n, t, s) in enumerate(times, start=1)]
        table = Table(f"Steps to {USUAL_ACCURACY:.0%}", ("mode", "descent", "flow", "status"), rows)
        standing = self.forecast_class, FORECAST_CLASSES[self.forecast_class]
        return HtmlRepr.of(self, table, standing=standing, conditions=Trust(self.assumptions, standing[0]).table)


def first_time(gap: Callable[[float], float]) -> float:
    """Return the first time at which a gap that never rises is 0; infinite if never."""
    if gap(0.0) <= 0:
        return 0.0
    if not gap(math.inf) < 0:
        return math.inf
    late = 1.0
    while gap(late) > 0:
        late *= 2.0
    if late == math.inf:
        return late
    early = late / 2.0 if gap(late / 2.0) > 0 else 0.0
    return float(scipy.optimize.brentq(gap, early, late, xtol=1e-300, rtol=4 * np.finfo(float).eps))


def checked_times(times: ArrayLike) -> FloatArray:
    """Return times in gradient steps as an array of numbers of at least 0; infinity is allowed."""
    try:
        array = np.atleast_1d(np.asarray(times, dtype=float))
    except (TypeError, ValueError) as error:
        raise InvalidSpec(f"times must be numbers, got {brief(times)}.", field="times") from error
    if array.ndim != 1:
        raise InvalidSpec(f"times must be a number or a list, got shape {array.shape}.", field="times")
    if not (array >= 0).all():
        raise InvalidSpec(f"times must be at least 0, got {array[~(array >= 0)][0]}.", field="times")
    return array


def checked_time(time: float) -> float:
    """Return one time in gradient steps."""
    times = checked_times(time)
    if len(times) != 1:
        raise InvalidSpec(f"time must be one number, got {len(times)}.", field="time")
    return float(times[0])
