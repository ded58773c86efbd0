"""How many more steps a training is likely to take until its goal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, positive

if TYPE_CHECKING:
    from learncast.training.run import TrainingRun

#: Probabilities of the interval's ends.
LOW, HIGH = 0.1, 0.9
#: Chance of being late above which no number is given.
LIKELY_LATE = 0.6
#: Evaluations before which a curve says nothing.
LEAST_LOOKS = 3
#: Exponent of the distribution of a total around that of an earlier run, with the same and with another learning rate.
SAME_RATE, OTHER_RATE = 5.0, 3.0
#: An earlier run that did not reach the goal is taken to need this multiple of its steps.
UNFINISHED = 1.4
#: Exponent of the distribution of the remaining steps around the estimate from a curve.
FROM_CURVE = 1.7
#: Chance that the goal is never reached, if less than `BARELY` of the way from chance to the goal is done.
NEVER, BARELY = 0.12, 0.1


@dataclass(frozen=True)
class Earlier:
    """An earlier training of the same task, e.g. with another seed.

    Parameters
    ----------
    steps : float
        Its gradient steps.
    learning_rate : float
    reached : bool
        Whether it reached the goal.

    Examples
    --------
    A run that was stopped after 400 steps before it reached the goal:

    >>> import learncast as lc
    >>> lc.training.Earlier(400, learning_rate=1e-3, reached=False).reached
    False
    """

    steps: float
    learning_rate: float
    reached: bool = True


def as_earlier(run: Earlier | TrainingRun) -> Earlier:
    """Return what an earlier run says about a later one; refuse anything else, and runs without a step."""
    found = run if isinstance(run, Earlier) else getattr(run, "as_earlier", lambda: None)()
    if found is None or not found.steps > 0:
        got = type(run).__name__ if found is None else "a run without a step"
        raise InvalidSpec(f"earlier must be a TrainingRun or Earlier with steps, got {got}.", field="earlier")
    return found


@dataclass(frozen=True)
class Remaining:
    """Steps that are left until the goal.

    Attributes
    ----------
    median, low, high : float
        Median and 80% interval of the remaining steps, if the goal is reached; nan if it is likelier than 60% to be
        missed by the limit of steps.
    late : float
        Chance that the goal is not reached by the limit of steps; nan without a limit.
    source : str
        What the estimate is based on: ``earlier run``, ``earlier run at another rate`` or ``curve``.

    Examples
    --------
    >>> import learncast as lc
    >>> left = lc.training.Remaining.from_earlier(400, done=100, limit=1000)
    >>> round(left.median), round(left.low), round(left.high), round(left.late, 2)
    (300, 158, 521, 0.01)
    >>> left.text
    'about 300 more steps (158 to 521, from an earlier run)'
    """

    median: float
    low: float
    high: float
    late: float
    source: str

    @classmethod
    def from_earlier(
        cls, total: float, *, done: float, limit: float = math.inf, reached: bool = True, rate_ratio: float = 1.0
    ) -> Remaining:
        """Estimate from an earlier training of the same task, e.g. with another seed.

        Parameters
        ----------
        total : float
            Steps of the earlier run.
        done : float
            Steps of this run so far.
        limit : float
            Steps at which this run is given up.
        reached : bool
            Whether the earlier run reached the goal.
        rate_ratio : float
            Learning rate of this run, divided by that of the earlier one.
        """
        same = math.isclose(rate_ratio, 1.0, rel_tol=1e-6)
        power = SAME_RATE if same else OTHER_RATE
        middle = positive("total", total) * (1.0 if reached else UNFINISHED) / math.sqrt(positive("ratio", rate_ratio))
        known = 1.0 + (done / middle) ** power  # that the goal is not reached yet

        def at(probability: float) -> float:
            return middle * (known / (1.0 - probability) - 1.0) ** (1.0 / power) - done

        late = known / (1.0 + (limit / middle) ** power) if limit > done else 1.0
        return cls._of(at, late, "earlier run" if same else "earlier run at another rate", limit)

    @classmethod
    def from_curve(
        cls, steps: Sequence[float], shares: Sequence[float], *, limit: float = math.inf
    ) -> Remaining | None:
        """Estimate from the evaluations of this run; None before three of them.

        Parameters
        ----------
        steps : sequence of float
            Steps of each evaluation.
        shares : sequence of float
            Share of the way from chance (0) to the goal (1) at each of them.
        limit : float
            Steps at which this run is given up.
        """
        if len(steps) != len(shares):
            raise InvalidSpec(f"steps and shares must be equally long, got {len(steps)} and {len(shares)}.")
        if len(steps) < LEAST_LOOKS or not steps[-1] > 0:
            return None
        done = float(steps[-1])
        way = float(np.mean(shares[-LEAST_LOOKS:]))
        left = min(max(1.0 - way, 0.02), 1.0)
        middle = done * math.exp(0.94 + 0.39 * math.log(_line(steps, shares) / done) + 0.74 * math.log(left))
        never = NEVER if way < BARELY else 0.0

        def at(probability: float) -> float:
            return middle * (1.0 / (1.0 - probability) - 1.0) ** (1.0 / FROM_CURVE)

        late = never + (1 - never) / (1 + ((limit - done) / middle) ** FROM_CURVE) if limit > done else 1.0
        return cls._of(at, late, "curve", limit)

    @classmethod
    def _of(cls, at: Callable[[float], float], late: float, source: str, limit: float) -> Remaining:
        numbers = (math.nan,) * 3 if late > LIKELY_LATE else (at(0.5), at(LOW), at(HIGH))
        return cls(*numbers, late if math.isfinite(limit) else math.nan, source)

    @property
    def text(self) -> str:
        """The estimate in words."""
        based = "the curve alone" if self.source == "curve" else f"an {self.source}"
        if math.isnan(self.median):
            return f"probably not there by the limit of steps (chance {self.late:.0%}, from {based})"
        late = f"; not there by the limit: {self.late:.0%}" if self.late >= 0.1 else ""
        return f"about {self.median:.0f} more steps ({self.low:.0f} to {self.high:.0f}, from {based}{late})"


def _line(steps: Sequence[float], shares: Sequence[float]) -> float:
    """Steps until the goal by a straight line through the logit of the shares, over the last half of the looks."""
    number = max(4, math.ceil(len(steps) / 2))
    t, height = np.asarray(steps[-number:], dtype=float), _logit(np.asarray(shares[-number:], dtype=float))
    slope, now = np.polyfit(t - t[-1], height, 1)
    gap = max(float(_logit(np.ones(1))[0] - now), 0.05)
    return gap / (max(float(slope), 0.0) + 0.4 / float(t[-1]))


def _logit(shares: FloatArray) -> FloatArray:
    """Logit of an accuracy that is 0.5 at chance and 0.85 at the goal."""
    accuracy = np.clip(0.5 + 0.35 * shares, 0.05, 0.95)
    return np.asarray(np.log(accuracy / (1.0 - accuracy)))
