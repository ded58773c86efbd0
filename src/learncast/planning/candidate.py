"""Candidates of a plan: one intermediate task with its best stop, priced against direct training."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from learncast._core.validation import FloatArray
from learncast.planning.forecast import Forecast
from learncast.planning.forecast_numbers import difference, ratio
from learncast.planning.search import UNTRIED, Route
from learncast.planning.terms import PoolTerms
from learncast.results import Status, Steps
from learncast.tasks.task import Task
from learncast.theory.assumptions import Assumption
from learncast.theory.dynamics.solution import status_of
from learncast.theory.responses.bootstrap import interval

#: Share of direct training below which a saving does not justify another task.
NEGLIGIBLE = 0.02


@dataclass(frozen=True, eq=False)
class Costs:
    """Cost of a curriculum and of direct training under resampled statistics.

    Attributes
    ----------
    total, direct : float
        On the statistics that were not resampled.
    totals, directs : (resamples,)
    given : (resamples,), optional
        Cost of the curriculum if all stages but the last end after the steps of the estimate.
    """

    total: float
    direct: float
    totals: FloatArray
    directs: FloatArray
    given: FloatArray | None = None

    @classmethod
    def of(cls, forecast: Forecast, terms: PoolTerms) -> Costs | None:
        """Price the resamples of a forecast; None if nothing was estimated from trials."""
        resampled, direct = forecast.resampled, forecast.direct
        if resampled is None or direct is None:
            return None
        last = float(terms.cost[-1])
        return cls(
            float(terms.price(forecast.places, [s.steps.descent for s in forecast.stages])),
            direct.descent * last,
            _finished(terms.price(forecast.places, resampled.stages)),
            _finished(resampled.direct * last),
            None if resampled.given is None else _finished(terms.price(forecast.places, resampled.given)),
        )

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval of the cost."""
        low, high = interval(self.total, self.totals, given=self.given)
        return float(low), float(high)

    @property
    def direct_interval(self) -> tuple[float, float]:
        """95% interval of the cost of direct training."""
        low, high = interval(self.direct, self.directs)
        return float(low), float(high)

    @property
    def saving_interval(self) -> tuple[float, float]:
        """95% interval of the cost saved; a resample that neither plan nor direct training learns may save any cost."""
        ends = []
        for unknown in (-math.inf, math.inf):
            with np.errstate(invalid="ignore"):
                saved, given = (
                    None
                    if totals is None
                    else np.nan_to_num(self.directs - totals, nan=unknown, posinf=np.inf, neginf=-np.inf)
                    for totals in (self.totals, self.given)
                )
            assert saved is not None
            ends.append(interval(difference(self.direct, self.total), saved, signed=True, given=given))
        return float(ends[0][0]), float(ends[1][1])


class Priced:
    """Stages with the cost of their route, compared with direct training.

    Attributes
    ----------
    forecast : Forecast
        Forecast of the stages.
    route, direct_route : Route
        The stages and direct training, in the steps that are reported.
    terms : PoolTerms
    """

    route: Route
    direct_route: Route
    terms: PoolTerms

    @property
    def forecast(self) -> Forecast:
        """Forecast of the stages."""
        raise NotImplementedError

    @property
    def total(self) -> float:
        """Cost of all stages, in steps if `terms` sets no price."""
        return self.route.total

    @property
    def direct_total(self) -> float:
        """Cost of direct training."""
        return self.direct_route.total

    @cached_property
    def costs(self) -> Costs | None:
        """Cost of the stages under resampled statistics; None if nothing was estimated from trials."""
        return Costs.of(self.forecast, self.terms)

    @property
    def interval(self) -> tuple[float, float] | None:
        """95% interval of the total; None if nothing was estimated from trials."""
        return None if self.costs is None else self.costs.interval

    @property
    def saving(self) -> float:
        """Cost saved against direct training."""
        return difference(self.direct_total, self.total)

    @property
    def saving_ratio(self) -> float:
        """Cost of direct training over that of the stages."""
        return ratio(self.direct_total, self.total)


@dataclass(frozen=True, eq=False)
class Candidate(Priced):
    """One intermediate task with its best stop.

    Attributes
    ----------
    task : Task
    make_forecast : callable
        Makes the forecast when it is first needed.
    route, flow_route : Route
        The recommended stop, in whole steps of descent, and the flow's best stop.
    direct_route : Route
        Direct training.
    terms : PoolTerms
    assumptions, failures : tuple of Assumption
        Conditions of the theory for this task, and those because of which the plan does not use it.
    refined : bool
        Whether the stop was refined in whole steps of descent.
    """

    task: Task
    make_forecast: Callable[[], Forecast]
    route: Route
    flow_route: Route
    direct_route: Route
    terms: PoolTerms
    assumptions: tuple[Assumption, ...]
    failures: tuple[Assumption, ...]
    refined: bool

    @cached_property
    def forecast(self) -> Forecast:
        """The candidate to its best stop, then the target; the target alone if no stop pays."""
        return self.make_forecast()

    @cached_property
    def accuracy(self) -> float:
        """Accuracy on the candidate at its stop: of the worst mode, or of the loss if there are no modes."""
        if self.route.order:
            return self.forecast.stages[0].accuracy
        method = self.forecast.method.precise
        return float(method.accuracy(method.place(self.task), method.start[None])[0])

    @property
    def stop_steps(self) -> float:
        """Steps to spend on the candidate; 0 if direct training is at least as good."""
        return self.route.durations[0] if self.route.order else 0.0

    @cached_property
    def steps(self) -> Steps:
        """Steps of candidate and target together."""
        if self.route is UNTRIED:
            return Steps(math.nan, math.nan, status=Status.outside_theory)
        own = self.forecast.steps
        status = status_of(own.flow, self.route.steps, self.assumptions)
        return Steps(self.route.steps, own.flow, own.low, own.high, status, own.tried, own.loss)

    @property
    def helps(self) -> bool:
        """Whether some stop of this task pays."""
        return self.stop_steps > 0 and self.total < self.direct_total

    @property
    def tried(self) -> bool:
        """Whether there was time for it."""
        return self.route is not UNTRIED

    @property
    def usable(self) -> bool:
        """Whether the conditions hold well enough to recommend it."""
        return not self.failures

    @cached_property
    def why(self) -> dict[str, Any]:
        """Why it helps or not, in a sentence; with common modes also the terms of eq. (16)."""
        if self.failures:
            failed = self.failures[0]
            return {"sentence": f"{failed.name} fails ({failed.measured:.2g}): {failed.condition.otherwise}"}
        name, target = f'"{self.task.name}"', f'"{self.forecast.target.name}"'
        if not self.tried:
            return {"sentence": f"there was no time to try {name}"}
        terms = self.forecast.explanation
        found = {} if terms is None else vars(terms)
        if not self.helps:
            late = f"reaches the goal of {target} in the steps tried"
            reason = late if not math.isfinite(self.direct_total) else f"saves time: train {target} directly"
            return {**found, "sentence": f"no stop of {name} {reason}"}
        direct = self.forecast.direct_time
        assert direct is not None
        sentence = (
            f"{self.stop_steps:,.0f} steps of {name} leave {self.steps.descent - self.stop_steps:,.0f} of the "
            f"{direct.descent_steps:,.0f} that {target} takes directly"
        )
        return {"sentence": sentence, **found}


def _finished(costs: FloatArray) -> FloatArray:
    """Costs of resamples, infinite where the count was stopped; unknown if no count ended."""
    unknown = np.isnan(costs)
    return costs if unknown.all() else np.where(unknown, np.inf, costs)


def hardly_pays(direct: float, total: float) -> bool:
    """Whether the saving is positive but too small to justify another task."""
    return 0.0 < difference(direct, total) < NEGLIGIBLE * direct < math.inf
