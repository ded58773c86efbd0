"""The table of plans: what each is, how long it is forecast to take, and which may be recommended."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from learncast.simulate.advice import DIRECT
from learncast.simulate.plan_forecast import PlanForecast
from learncast.simulate.trial_pool import TrialPool
from learncast.validation import FloatArray

#: Plans on the shortlist.
SHORTLIST = 3


@dataclass(frozen=True, eq=False)
class PlanTable:
    """Plans, no pretraining first.

    Attributes
    ----------
    names, tasks : tuple of str
        Of each plan, and of the task it trains first (empty for none).
    stops, losses : (plans,)
        Accuracy and loss of the real model at which that ends; nan for none.
    scores : (plans,)
        Forecast time relative to training directly.
    within : (plans,)
        Whether the stop is within the cap.
    """

    names: tuple[str, ...]
    tasks: tuple[str, ...]
    stops: FloatArray
    losses: FloatArray
    scores: FloatArray
    within: np.ndarray

    @classmethod
    def of(
        cls,
        forecast: PlanForecast,
        pool: TrialPool,
        losses: FloatArray,
        stops: tuple[float, ...],
        cap: float,
    ) -> PlanTable:
        """Put a forecast into words and relative times."""
        pairs = [(c, s) for c in range(len(pool.candidates)) for s in range(len(stops))]
        steps = np.array([forecast.direct, *forecast.total.ravel()])
        # When direct training is never done in time, the others are compared with each other.
        unit = forecast.direct if math.isfinite(forecast.direct) else float(np.min(steps))
        scores = steps / unit if math.isfinite(unit) and unit > 0 else np.full(len(steps), np.inf)
        ends = np.array([math.nan, *(stops[s] for _, s in pairs)])
        return cls(
            (DIRECT, *(f"{pool.candidates[c].name} to {stops[s]:.0%}" for c, s in pairs)),
            ("", *(pool.candidates[c].name for c, _ in pairs)),
            ends,
            np.array([math.nan, *(losses[c, s] for c, s in pairs)]),
            scores,
            np.where(np.isnan(ends), 0.0, ends) <= cap,
        )

    @property
    def shortlist(self) -> list[str]:
        """The best plans within the cap."""
        places = np.argsort(np.where(self.within, self.scores, np.inf), kind="stable")[:SHORTLIST]
        return [self.names[k] for k in places if math.isfinite(self.scores[k])] or [DIRECT]
