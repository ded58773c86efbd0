"""The check of a forecast: train for real, and compare the steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from scipy import stats

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.progress import Progress, check_time, noticed, silent, until
from learncast._core.validation import FloatArray, count, positive
from learncast.planning.agreement import agreement, step_statistics
from learncast.planning.batches import BatchSteps
from learncast.planning.forecast import Forecast
from learncast.planning.methods.choice import method_for
from learncast.planning.plan import Plan
from learncast.planning.planner import plan_with
from learncast.procedure.goals import Accuracy, Goal, Loss
from learncast.procedure.stage import Stage
from learncast.results import described
from learncast.tasks.recorded.resampling import halves
from learncast.theory.dynamics.modes import can_be_resampled
from learncast.training.run import Records, TrainingRun
from learncast.training.sources import FRESH
from learncast.training.trainer import TrainingJob, train_in_time

#: Relative deviation that is allowed if batches cannot be simulated, by forecast class.
TOLERANCES = {"exact": 0.05, "integrated": 0.05, "response": 0.1, "outside": 0.1}
#: Probability that a right forecast is called wrong, over all curricula of a check.
FALSE_ALARM = 0.01
#: Relative deviation that a check must be able to detect.
DETECTED = 0.05
#: Multiple of the forecast steps after which a run ends, and the least number of steps.
PATIENCE, LEAST = 10, 2000
#: Candidates of a plan that are trained.
MOST_CANDIDATES = 6


@dataclass(frozen=True, eq=False)
class CheckedCurriculum:
    """One curriculum: what was forecast and what was measured.

    Attributes
    ----------
    name : str
    forecast : Forecast
    runs : sequence of TrainingRun
    batched : BatchSteps or None
        Simulated steps with the batches that are trained on; None if they cannot be simulated.
    """

    name: str
    forecast: Forecast
    runs: Sequence[TrainingRun]
    batched: BatchSteps | None

    @property
    def measured(self) -> FloatArray:
        """Steps of each run; infinite if the goal was not reached."""
        return np.array([run.steps if run.status.name == "ok" else math.inf for run in self.runs])

    @property
    def statistics(self) -> dict[str, Any]:
        """Forecast and measured steps as variables of a dataset."""
        return step_statistics(self.forecast.steps.flow, self.forecast.steps.descent, self.measured)

    def number(self, key: str) -> float:
        """One of the statistics."""
        return float(self.statistics[key][1])

    @property
    def deviation(self) -> float:
        """Measured over forecast mean steps, minus 1; compared with simulated batches if there are any."""
        if self.batched is None or not math.isfinite(self.batched.mean):
            return self.number("steps_deviation")
        mean = self.number("measured_mean")
        if self.batched.mean == 0:  # learned before training begins
            return math.inf if mean else 0.0
        return mean / self.batched.mean - 1

    def allowed_difference(self, alarm: float) -> float:
        """Difference of mean steps that is expected by chance: both means are over runs with their own batches."""
        assert self.batched is not None
        measured, simulated = self.measured, self.batched.totals
        n, m = len(measured), len(simulated)
        pooled = ((n - 1) * np.var(measured, ddof=1) + (m - 1) * np.var(simulated, ddof=1)) / (n + m - 2)
        # One step more, because counts are whole numbers.
        return float(stats.t.ppf(1 - alarm / 2, n + m - 2) * np.sqrt(pooled * (1 / n + 1 / m))) + 1.0

    @property
    def on_a_saddle(self) -> bool:
        """Whether the forecast is "never" because the exact flow ends on a saddle, which noise leaves."""
        regular = all(a.holds for a in self.forecast.trust.assumptions if a.name == "regular_orientation")
        return math.isinf(self.forecast.steps.flow) and not regular

    def verdict(self, tolerance: float | None, alarm: float) -> str:
        """Return "agrees", "differs" or "cannot tell"."""
        simulated = self.batched
        if tolerance is None and simulated is not None and np.isfinite([*self.measured, *simulated.totals]).all():
            gap, allowed = abs(self.measured.mean() - simulated.mean), self.allowed_difference(alarm)
            return "differs" if gap > allowed else "agrees" if allowed <= DETECTED * simulated.mean else "cannot tell"
        tolerance = TOLERANCES[self.forecast.forecast_class] if tolerance is None else tolerance
        deviation, mean = abs(self.number("steps_deviation")), self.number("measured_mean")
        if math.isinf(mean) and math.isinf(self.forecast.steps.flow):
            return "agrees"
        if self.on_a_saddle:
            return "cannot tell"
        if math.isnan(deviation):
            return "differs"
        if deviation <= tolerance:
            return "agrees"
        steps = self.forecast.steps
        least, most = steps.interval or (steps.descent, steps.descent)
        overlap = self.number("measured_low") <= most and least <= self.number("measured_high")
        return "cannot tell" if overlap else "differs"

    @property
    def largest_deviation(self) -> float:
        """Largest deviation of mean strength or loss from theory, as a share of its largest value."""
        result = agreement(self.forecast, list(self.runs))
        return max((float(result[key]) for key in result.data_vars if str(key).endswith("_largest")), default=math.nan)


@dataclass(frozen=True)
class SplitCheck:
    """A plan made on half of the recorded trials and followed on the other half.

    Attributes
    ----------
    forecast_share : float
        Cost of the plan over that of direct training, as forecast on the first half.
    steps, direct_steps : float
        Steps of the plan and of direct training on the other half.
    pretrains : bool
    """

    forecast_share: float
    steps: float
    direct_steps: float
    pretrains: bool


@dataclass(frozen=True, eq=False)
class Check:
    """Outcome of a check.

    Attributes
    ----------
    curricula : tuple of CheckedCurriculum
    splits : tuple of SplitCheck
        For plans of recorded tasks: how the plan does on trials it has not seen.
    batch : int
    seeds : int
    tolerance : float or None

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=10)
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> check = lc.check(lc.forecast(task, network, learning_rate=0.01), seeds=3, processes=1)
    >>> check.passed, check.verdicts
    (True, {'direct training': 'agrees'})
    """

    curricula: tuple[CheckedCurriculum, ...]
    splits: tuple[SplitCheck, ...]
    batch: int
    seeds: int
    tolerance: float | None

    @property
    def verdicts(self) -> dict[str, str]:
        """Verdict on each curriculum."""
        alarm = FALSE_ALARM / len(self.curricula)
        return {c.name: c.verdict(self.tolerance, alarm) for c in self.curricula}

    @property
    def passed(self) -> bool:
        """Whether training contradicts no forecast."""
        return "differs" not in self.verdicts.values()

    @property
    def dataset(self) -> xr.Dataset:
        """Forecast and measured steps of every curriculum, labelled."""
        rows = [c.statistics for c in self.curricula]
        variables: dict[str, object] = {
            key: ("plan", [float(row[key][1]) for row in rows], rows[0][key][2])
            for key in rows[0]
            if key != "measured_steps"
        }
        measured = np.stack([c.measured for c in self.curricula])
        variables["measured_steps"] = (("plan", "seed"), measured, rows[0]["measured_steps"][2])
        text = described("largest deviation of mean strength or loss from theory, share of its largest value", "1")
        variables["largest_deviation"] = ("plan", [c.largest_deviation for c in self.curricula], text)
        coords = {"plan": ("plan", list(self.verdicts)), "seed": ("seed", np.arange(measured.shape[1]))}
        return xr.Dataset(variables, coords=coords)

    def __repr__(self) -> str:
        verdicts = ", ".join(f"{name}: {verdict}" for name, verdict in self.verdicts.items())
        return f"<Check with {self.seeds} seeds in batches of {self.batch:,}: {verdicts}>"


@noticed("training")
def check(
    subject: Forecast | Plan,
    *,
    seeds: int = 5,
    batch: int | None = None,
    tolerance: float | None = None,
    processes: int | None = None,
    progress: Progress = silent,
) -> Check:
    """Train for real and compare the steps with a forecast, or with a plan and its candidates.

    Parameters
    ----------
    subject : Forecast or Plan
        A plan is checked by direct training and by the best curriculum through each of its best candidates.
    seeds : int
        Runs of each curriculum, at least 2.
    batch : int, optional
        Trials per step; that of the training, or 1,000.
    tolerance : float, optional
        Relative deviation of mean steps that is allowed. By default the spread of simulated batches decides.
    processes : int, optional
        Parallel processes; all cores by default.
    progress : callable
        Called with the share of runs done.

    Returns
    -------
    Check

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=10)
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> lc.check(lc.forecast(task, network, learning_rate=0.01), seeds=2, processes=1).passed
    True
    """
    count("seeds", seeds, least=2)
    if tolerance is not None:
        positive("tolerance", tolerance)
    if not isinstance(subject, Forecast | Plan):
        raise InvalidSpec(f"subject must be a Forecast or a Plan, got {type(subject).__name__}.", field="subject")
    forecasts = _of_plan(subject) if isinstance(subject, Plan) else {_name(subject): subject.full_batch}
    size = batch or subject.method.training.batch or FRESH
    jobs = [_job(forecast, size, seed) for forecast in forecasts.values() for seed in range(seeds)]
    runs = train_in_time(jobs, processes=processes, progress=progress)
    curricula: list[CheckedCurriculum] = []
    for k, (name, forecast) in enumerate(forecasts.items()):
        own = [run for run in runs[k * seeds : (k + 1) * seeds] if run is not None]
        if len(own) < 2:  # out of time
            if not curricula:
                check_time()
            break
        with until(math.inf):
            curricula.append(CheckedCurriculum(name, forecast, own, _simulated(forecast, size)))
    splits = _splits(subject) if isinstance(subject, Plan) else ()
    return Check(tuple(curricula), splits, size, seeds, tolerance)


def _name(forecast: Forecast) -> str:
    return "direct training" if len(forecast.requested) == 1 else " -> ".join(task.name for task in forecast.tasks)


def _of_plan(plan: Plan) -> dict[str, Forecast]:
    """Direct training and the best curriculum through each candidate."""
    last = Stage(plan.target, plan.goal)
    forecasts = {"direct training": plan.follow([last])}
    for candidate in plan.candidates[:MOST_CANDIDATES]:
        # A candidate that does not help is checked too, at an accuracy of 0.8.
        stop = candidate.accuracy if candidate.helps and 0 < candidate.accuracy < 1 else 0.8
        stages = [Stage(candidate.task, Accuracy(stop)), last]
        forecasts[f"{candidate.task.name} to {stop:.4g}"] = plan.follow(stages)
    return forecasts


def _job(forecast: Forecast, batch: int, seed: int) -> TrainingJob:
    """Training through the stages of a forecast, each stopped where its method calls the task learned."""
    expected = forecast.steps.descent
    most = LEAST if not math.isfinite(expected) else max(LEAST, math.ceil(PATIENCE * expected))
    method, stages = forecast.method.precise, []
    for place, stage in zip(forecast.places, forecast.requested, strict=True):
        goal: Goal | None = stage.goal
        if isinstance(goal, Accuracy) and method.per_mode(goal):
            goal = replace(goal, optimum=tuple(np.nan_to_num(method.modes[place].optimum).tolist()))
        elif goal is not None:
            goal = Loss(method.goal_loss(place, goal))
        stages.append(replace(stage, goal=goal))
    training = forecast.training.with_(batch=batch, learn=method.learn, seed=seed, most_steps=most)
    return TrainingJob(stages, method.network, training, record=Records(("strength",)))


def _simulated(forecast: Forecast, batch: int) -> BatchSteps | None:
    try:
        return forecast.in_batches(batch, shuffle=forecast.training.shuffle)
    except (InvalidSpec, UnsupportedModel):
        return None


def _splits(plan: Plan) -> tuple[SplitCheck, ...]:
    """Make a plan on one half of the recorded trials and follow it on the other, both ways round, by descent."""
    method = plan.method
    if not plan.candidates or not method.recorded or method.promise == "response":
        return ()
    rng = np.random.default_rng(0)
    pairs = [halves(t, rng) if can_be_resampled(t) else (t, t) for t in method.tasks]
    splits = []
    for one, other in ((0, 1), (1, 0)):
        here, there = (
            method_for([pair[k] for pair in pairs], method.network, method.training, method=method.name)
            for k in (one, other)
        )
        half = plan_with(here, plan.terms.terms, strict=False)
        route = zip(half.route.order, half.route.durations, strict=True)
        stages = [Stage(there.tasks[k], steps=n) for k, n in route]
        last = Stage(there.tasks[-1], plan.goal)
        places = (*half.route.order, there.target)
        steps = Forecast(there, (*stages, last), places, resample=False).steps.descent
        direct = Forecast(there, (last,), (there.target,), resample=False).steps.descent
        share = half.total / half.direct_total if half.direct_total > 0 else math.nan
        splits.append(SplitCheck(share, steps, direct, bool(stages)))
    return tuple(splits)
