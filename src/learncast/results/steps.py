"""Statuses, forecast classes and step counts."""

from __future__ import annotations

import enum
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path

from learncast.display import Displayable, HtmlRepr, Plot, format_count, format_interval, format_number


class Status(enum.Enum):
    """Outcome of a computed number; the value explains it in one sentence.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.Status.not_learned.value
    'never reaches its goal, so its time is infinite'
    """

    ok = "reached within the theory"
    not_learned = "never reaches its goal, so its time is infinite"
    not_within = "does not reach its goal within the steps that were tried"
    diverged = "gradient descent diverges at this learning rate"
    outside_theory = "a condition of the theory does not hold, so the number is not exact"
    too_few_samples = "too few samples to estimate the number"


_VOCABULARY = tomllib.loads(Path(__file__).with_name("vocabulary.toml").read_text(encoding="utf-8"))
#: Words for each class of forecasts: what it promises and, for plans, what it means and assumes.
CLASS_WORDS: dict[str, dict[str, str]] = _VOCABULARY["classes"]
#: Classes of forecasts, from the most to the least certain, with what each promises.
FORECAST_CLASSES = {name: words["promise"] for name, words in CLASS_WORDS.items()}
#: How good a recommended plan is: its meaning in a table, and the clause that ends a sentence.
PROOFS: dict[str, dict[str, str]] = _VOCABULARY["proofs"]


@dataclass(frozen=True, repr=False)
class Steps(Displayable):
    """Number of training steps, with a 95% interval and a status.

    Attributes
    ----------
    descent : float
        Gradient-descent steps, a whole number. Infinite if the goal is never reached, nan if not counted.
    flow : float
        Continuous time of the gradient flow in units of the learning rate; infinite or nan likewise.
    low, high : float
        Ends of the 95% interval of `value`; nan without an interval.
    status : Status
        ``not_learned`` only if it is proved that the goal is never reached.
    tried : float
        Steps that were tried, if the status is ``not_within``; otherwise nan.
    loss : float
        Loss after these steps, or nan.
    spread : float
        Standard deviation over runs, if `descent` is the mean of training in batches; nan for full batches.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.results import Steps
    >>> steps = Steps(331.0, 329.985, low=320.0, high=345.0)
    >>> steps
    <Steps: 331 descent, 329.985 flow, 320 to 345, ok>
    >>> print(steps)
    331 steps (95% interval 320 to 345)
    >>> print(Steps(float("nan"), 2e6))
    about 2,000,000 steps (gradient flow)
    >>> print(Steps(float("nan"), float("nan"), status=lc.Status.not_within, tried=50_000, loss=0.25))
    not within 50,000 steps (loss 0.25)
    >>> Steps(float("inf"), float("inf"), status=lc.Status.not_learned).outcome
    'is never learned'
    """

    descent: float
    flow: float
    low: float = math.nan
    high: float = math.nan
    status: Status = Status.ok
    tried: float = math.nan
    loss: float = math.nan
    spread: float = math.nan

    @property
    def value(self) -> float:
        """Reported number: the descent steps, or the flow time if they were not counted."""
        return self.flow if math.isnan(self.descent) and not math.isinf(self.flow) else self.descent

    @property
    def interval(self) -> tuple[float, float] | None:
        """Ends of the 95% interval; None without one."""
        return None if math.isnan(self.low) or math.isnan(self.high) else (self.low, self.high)

    @property
    def count(self) -> str:
        """Reported steps for a table: a number, "about" one, "never", "diverges", "not within N" or "unknown"."""
        if self.status is Status.diverged and math.isinf(self.descent):
            return "diverges"
        if self.status is Status.not_within and not math.isnan(self.tried):
            return f"not within {format_count(self.tried)}"
        return ("about " if math.isnan(self.descent) and math.isfinite(self.flow) else "") + format_count(self.value)

    @property
    def outcome(self) -> str:
        """What becomes of a task without a finite number of steps, to follow its name in a sentence."""
        if self.status is Status.diverged:
            return "is not learned, because gradient descent diverges at this learning rate"
        if self.status is Status.not_learned:
            return "is never learned"
        if math.isfinite(self.value):
            return f"is learned in about {format_count(self.value)} steps"
        if math.isnan(self.tried):
            return "is learned in an unknown number of steps"
        reached = "" if math.isnan(self.loss) else f" (the loss is then {self.loss:.3g})"
        return f"is not learned within {format_count(self.tried)} steps{reached}"

    def _html_repr(self) -> HtmlRepr:
        flow = f"flow time {format_number(self.flow)}; {self.status.value}"
        return HtmlRepr("Steps", f"{self}; {flow}.")

    def _plot(self) -> Plot:
        return Plot.of("step_count", self)

    def __float__(self) -> float:
        return float(self.value)

    def __repr__(self) -> str:
        interval = "" if self.interval is None else f", {self.low:.6g} to {self.high:.6g}"
        spread = "" if math.isnan(self.spread) else f" ± {self.spread:.3g}"
        descent = "not counted" if math.isnan(self.descent) else f"{self.descent:.6g}{spread} descent"
        return f"<Steps: {descent}, {self.flow:.6g} flow{interval}, {self.status.name}>"

    def __str__(self) -> str:
        if self.status is Status.not_within:
            reached = "" if math.isnan(self.loss) else f" (loss {self.loss:.3g})"
            return f"not within {format_count(self.tried)} steps{reached}"
        if math.isinf(self.value) and self.status is Status.ok:  # to convergence
            return "infinitely many steps"
        if not math.isfinite(self.value):
            because = f": {self.status.value}" if self.status is Status.diverged else ""
            return format_number(self.value) + because
        flow = " (gradient flow)" if math.isnan(self.descent) else ""
        within = "" if self.interval is None else self._range()
        interval = f" (95% interval {within})" if within else ""
        unit = "step" if round(self.value) == 1 else "steps"
        spread = "" if math.isnan(self.spread) else f" ± {format_count(self.spread)}"
        return f"{'about ' if flow else ''}{format_count(self.value)}{spread} {unit}{flow}{interval}"

    def _range(self) -> str:
        if math.isinf(self.high):
            return f"from {format_count(self.low)}"
        return format_interval((self.low, self.high))
