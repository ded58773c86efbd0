"""What every solution of a learning problem offers, whatever found it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from learncast._core.citations import bibliography
from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray
from learncast.display import Displayable, HtmlRepr, Plot, Table, format_count, format_number
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.results import FORECAST_CLASSES, Provenance, Status, Trajectory
from learncast.theory.assumptions import Assumption, Trust, exact

__all__ = ["LearningTime", "Solution", "status_of", "worst_status"]

#: Accuracy at which people mostly call a task learned, for what is shown before they say one.
USUAL_ACCURACY = 0.99
#: Moments of a course in a picture.
POINTS = 200


@dataclass(frozen=True)
class LearningTime:
    """When each mode is first within the tolerance band of its optimum.

    Attributes
    ----------
    accuracy : float
        1 - eps; the band is |u - u*| <= eps |u*|.
    mode_flow_steps : (modes,)
        Time of the gradient flow, in steps of the learning rate; a real number.
    mode_descent_steps : (modes,)
        Predicted whole number of gradient-descent steps.
    mode_status : one per mode
    flow_interval, descent_interval : (2, modes), optional
        Ends of the 95% confidence intervals of both, where the statistics were measured on trials; None elsewhere.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> time = lc.time_to_learn(lc.solve(task, network, learning_rate=1e-3), 0.99)
    >>> time.descent_steps, time.status.name
    (331.0, 'ok')
    """

    accuracy: float
    mode_flow_steps: FloatArray
    mode_descent_steps: FloatArray
    mode_status: tuple[Status, ...]
    flow_interval: FloatArray | None = None
    descent_interval: FloatArray | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Interval of the flow steps until every mode is learned; None where nothing was measured."""
        return (
            None if self.flow_interval is None else (_slowest(self.flow_interval[0]), _slowest(self.flow_interval[1]))
        )

    @property
    def flow_steps(self) -> float:
        """Flow steps until every mode is learned."""
        return _slowest(self.mode_flow_steps)

    @property
    def descent_steps(self) -> float:
        """Descent steps until every mode is learned."""
        return _slowest(self.mode_descent_steps)

    @property
    def horizon(self) -> float:
        """Steps that a picture shows: until the slowest mode that is ever learned has been, and a little on."""
        finite = self.mode_flow_steps[np.isfinite(self.mode_flow_steps)]
        return 1.25 * float(finite.max(initial=0.0)) or 1000.0

    @property
    def status(self) -> Status:
        """Status of the whole: that of the mode that fares worst."""
        return worst_status(self.mode_status)

    def __repr__(self) -> str:
        within = "" if self.interval is None else f" ({self.interval[0]:.6g} to {self.interval[1]:.6g})"
        return (
            f"<LearningTime to {self.accuracy:g}: {self.flow_steps:.6g} flow steps{within}, "
            f"{self.descent_steps:.6g} descent steps, {self.status.name}>"
        )


def _slowest(steps: FloatArray) -> float:
    return float(np.max(steps)) if len(steps) else 0.0  # np.max passes nan on: unknown stays unknown


_SEVERITY = [Status.ok, Status.too_few_samples, Status.outside_theory, Status.diverged, Status.not_learned]


def worst_status(statuses: Iterable[Status]) -> Status:
    """Pick the status that most limits what may be said.

    Parameters
    ----------
    statuses : iterable of Status

    Returns
    -------
    Status
        ``ok`` where there are none.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.dynamics.solution import worst_status
    >>> worst_status([lc.Status.ok, lc.Status.diverged]).name
    'diverged'
    """
    return max(statuses, key=_SEVERITY.index, default=Status.ok)


def status_of(flow: float, descent: float, assumptions: Iterable[Assumption]) -> Status:
    """Say what numbers of flow steps and of descent steps mean together, under these conditions.

    Parameters
    ----------
    flow, descent : float
        Infinite where never, nan where unknown.
    assumptions : iterable of Assumption
        Conditions of the theory, as measured.

    Returns
    -------
    Status
        Descent diverges too where it passes the goal at a learning rate at which it cannot settle.

    Examples
    --------
    >>> from learncast.theory.assumptions import Assumption
    >>> from learncast.theory.dynamics.solution import status_of
    >>> fast = [Assumption("stable_learning_rate", 2.5)]
    >>> status_of(70.0, 72.0, [Assumption("stable_learning_rate", 0.5)]).name, status_of(70.0, 72.0, fast).name
    ('ok', 'diverged')
    """
    known = tuple(assumptions)
    if math.isnan(flow):
        return Status.outside_theory
    if math.isinf(flow):
        return Status.not_learned
    settles = all(a.holds for a in known if a.name == "stable_learning_rate")
    if math.isinf(descent) or not settles:
        return Status.diverged
    return Status.ok if exact(known) else Status.outside_theory


class Solution(Displayable, ABC):
    """A trajectory of learning as a function of time.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> solution = lc.solve(task, network, learning_rate=1e-3)
    >>> solution.at([0, 200, 400])["loss"].values.round(3)
    array([24.998, 16.54 ,  6.133])
    >>> solution.time_to(0.99)
    <LearningTime to 0.99: 329.985 flow steps, 331 descent steps, ok>
    >>> solution.network_at(331)
    <LinearRNN: 1 input, 4 hidden, 1 output; spectral radius 0.96>
    """

    learning_rate: float

    @abstractmethod
    def at(self, times: Any) -> Trajectory:
        """Evaluate at times in gradient steps (infinity allowed)."""

    @abstractmethod
    def network_at(self, time: float) -> LinearRNN | TwoLayer:
        """Return the network as it is after `time` gradient steps of the flow."""

    @abstractmethod
    def time_to(self, accuracy: float) -> LearningTime:
        """First entry of every mode into the band of the given accuracy."""

    def time_to_loss(self, tolerance: float) -> float:
        """First time, in gradient steps, at which the excess loss is at most `tolerance`; infinite if never.

        The loss never rises under a flow, so that the first bracket holds the only crossing.
        """

        def gap(time: float) -> float:
            return self._excess_loss(time) - tolerance

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

    def _excess_loss(self, time: float) -> float:
        return float(self.at([time])["excess_loss"][0])

    @property
    @abstractmethod
    def assumptions(self) -> tuple[Assumption, ...]:
        """Conditions of the theory, as measured."""

    @property
    @abstractmethod
    def provenance(self) -> Provenance:
        """Where the numbers come from."""

    #: Stage that is trained last; a single task is a single stage.
    last_stage: int = 0

    @property
    def optimum(self) -> FloatArray:
        """Strength each mode comes to."""
        return np.asarray(self.limit()["strength"].values[0])

    def limit(self) -> Trajectory:
        """Where learning ends: the state at infinite time."""
        return self.at([math.inf])

    def citation(self) -> str:
        """BibTeX of the papers this solution rests on."""
        return bibliography(*self.provenance.citations)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader should know of this solution beyond its numbers."""
        return ()

    def bounds(self, accuracy: float) -> tuple[str, ...]:
        """What is known, before it is integrated, of when a solution without a closed form reaches an accuracy."""
        return ()

    @property
    def holds(self) -> bool:
        """Whether every condition that the solution needs is met."""
        return exact(self.assumptions)

    @property
    def forecast_class(self) -> str:
        """What may be promised: a key of `learncast.results.FORECAST_CLASSES`."""
        return "exact" if self.holds else "outside"

    def _plot(self) -> Plot:
        course = self.at(np.linspace(0.0, self.time_to(USUAL_ACCURACY).horizon, POINTS)).dataset
        return Plot.of("mode_strengths", course, optimum=self.optimum, title="Strength of every mode")

    def _html_repr(self) -> HtmlRepr:
        learned = self.time_to(USUAL_ACCURACY)
        times = zip(learned.mode_descent_steps, learned.mode_flow_steps, learned.mode_status, strict=True)
        rows = [(str(k), format_count(n), format_number(t), status.name) for k, (n, t, status) in enumerate(times)]
        table = Table(f"Steps to {USUAL_ACCURACY:.0%}", ("mode", "descent", "flow", "status"), rows)
        standing = self.forecast_class, FORECAST_CLASSES[self.forecast_class]
        conditions = Trust(self.assumptions, self.forecast_class).table
        return HtmlRepr.of(self, table, standing=standing, conditions=conditions)


def checked_times(times: Any) -> FloatArray:
    """Validate times in gradient steps: one-dimensional, not negative; infinity is a time."""
    try:
        array = np.atleast_1d(np.asarray(times, dtype=float))
    except (TypeError, ValueError) as error:
        raise InvalidSpec(
            required="times must be numbers of gradient steps",
            got=repr(times)[:60],
            why="a trajectory is a function of time",
            remedy="pass a number or a list of numbers",
        ) from error
    if array.ndim != 1 or np.isnan(array).any() or (array < 0).any():
        shown = f"shape {array.shape}" if array.ndim != 1 else f"{array[~(array >= 0)][0]}"
        raise InvalidSpec(
            f"times must be a list of gradient steps from 0 on, got {shown}. Pass times of at least 0; "
            "infinity gives the limit.",
            field="times",
        )
    return array


def checked_time(time: Any) -> float:
    """Validate one time in gradient steps."""
    times = checked_times(time)
    if len(times) != 1:
        raise InvalidSpec(f"one time must be given, got {len(times)} times.")
    return float(times[0])
