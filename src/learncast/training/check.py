"""The check of a forecast: train for real, and compare the steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr
from scipy.special import stdtrit

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.progress import Progress, check_time, noticed, silent, until
from learncast._core.validation import FloatArray, count, positive
from learncast.display import Reported
from learncast.planning.batches import BatchSteps
from learncast.planning.forecast import Forecast
from learncast.planning.methods.choice import method_for
from learncast.planning.methods.method import Method
from learncast.planning.plan import Plan
from learncast.planning.planner import plan_with
from learncast.procedure.goals import Accuracy, Goal, Loss
from learncast.procedure.stage import Stage
from learncast.results import STEPS, Status, described
from learncast.tasks.recorded.resampling import halves
from learncast.theory.dynamics.modes import can_be_resampled
from learncast.training.run import Records, TrainingRun
from learncast.training.sources import FRESH
from learncast.training.trainer import TrainingJob, train_in_time

#: Relative deviation that is allowed if every step of training sees all trials, as the forecast does; at least a step.
FULL_BATCH = 0.01
#: Relative deviation that is allowed if batches cannot be simulated, by forecast class.
TOLERANCES = {"exact": 0.05, "flow": 0.1, "integrated": 0.05, "response": 0.1, "outside": 0.1}
#: Probability that a right forecast is called wrong, over all curricula of a check.
FALSE_ALARM = 0.01
#: Relative deviation that a check must be able to detect.
DETECTED = 0.05
#: Multiple of the forecast steps after which a run ends, and the least number of steps.
PATIENCE, LEAST = 10, 2000
#: Candidates of a plan that are trained.
MOST_CANDIDATES = 6
#: Numbers of a checked curriculum, with what they are and their units.
STATISTICS = {
    "predicted_steps": ("steps of the flow", STEPS),
    "predicted_descent_steps": ("predicted steps of descent", STEPS),
    "measured_mean": ("measured steps, mean over runs", STEPS),
    "measured_sd": ("measured steps, standard deviation over runs", STEPS),
    "measured_low": ("measured steps, lower bound of the mean", STEPS),
    "measured_high": ("measured steps, upper bound of the mean", STEPS),
    "steps_deviation": ("measured over predicted steps, minus 1", "1"),
}


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
    full_batch : bool
        Whether every step sees all recorded trials, so that all runs are the same.
    """

    name: str
    forecast: Forecast
    runs: Sequence[TrainingRun]
    batched: BatchSteps | None
    full_batch: bool = False

    @property
    def measured(self) -> FloatArray:
        """Steps of each run; infinite if the goal was not reached."""
        return np.array([run.steps if run.status.name == "ok" else math.inf for run in self.runs])

    @property
    def statistics(self) -> dict[str, float]:
        """Forecast and measured steps, with 95% bounds of the measured mean: the numbers that `STATISTICS` names."""
        steps, n, mean = self.forecast.steps, len(self.measured), float(self.measured.mean())
        spread = float(self.measured.std(ddof=1)) if n > 1 and math.isfinite(mean) else math.nan
        half = float(stdtrit(n - 1, 0.975)) * spread / math.sqrt(n)
        reference = steps.flow if math.isnan(steps.descent) else steps.descent
        deviation = mean / reference - 1 if math.isfinite(mean) and math.isfinite(reference) and reference else math.nan
        values = steps.flow, steps.descent, mean, spread, mean - half, mean + half, deviation
        return dict(zip(STATISTICS, values, strict=True))

    def number(self, key: str) -> float:
        """One of the statistics."""
        return self.statistics[key]

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
        return float(stdtrit(n + m - 2, 1 - alarm / 2) * np.sqrt(pooled * (1 / n + 1 / m))) + 1.0

    @property
    def on_a_saddle(self) -> bool:
        """Whether the exact flow ends on a saddle, which the noise of batches leaves at another time than descent."""
        regular = all(a.holds for a in self.forecast.trust.assumptions if a.name == "regular_orientation")
        counted = self.full_batch and math.isfinite(self.forecast.steps.descent)
        return math.isinf(self.forecast.steps.flow) and not regular and not counted

    def verdict(self, tolerance: float | None, alarm: float) -> str:
        """Return "agrees", "differs" or "cannot tell"."""
        simulated = self.batched
        if tolerance is None and simulated is not None and np.isfinite([*self.measured, *simulated.totals]).all():
            gap, allowed = abs(self.measured.mean() - simulated.mean), self.allowed_difference(alarm)
            return "differs" if gap > allowed else "agrees" if allowed <= DETECTED * simulated.mean else "cannot tell"
        deviation, mean = abs(self.number("steps_deviation")), self.number("measured_mean")
        if tolerance is None:
            tolerance = FULL_BATCH if self.full_batch else TOLERANCES[self.forecast.forecast_class]
            if self.full_batch and abs(mean - self.forecast.steps.descent) <= 1:
                return "agrees"
        if self.forecast.steps.status is Status.not_within:
            return "differs" if (self.measured < self.forecast.steps.tried).any() else "agrees"
        if math.isinf(mean) and math.isinf(self.forecast.steps.flow) and not math.isfinite(self.forecast.steps.descent):
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
        # The interval is for other trials than the recorded ones, which are all trained on.
        return "cannot tell" if overlap and not self.full_batch else "differs"


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
class Check(Reported):
    """Outcome of a check.

    Attributes
    ----------
    curricula : tuple of CheckedCurriculum
    splits : tuple of SplitCheck
        For plans of recorded tasks: how the plan does on trials it has not seen.
    batch : int or None
        Trials of each step; None for all recorded trials.
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
    batch: int | None
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
        variables: dict[str, object] = {
            key: ("plan", [c.number(key) for c in self.curricula], described(text, units))
            for key, (text, units) in STATISTICS.items()
        }
        measured = np.stack([c.measured for c in self.curricula])
        variables["measured_steps"] = (("plan", "seed"), measured, described("measured steps", STEPS))
        coords = {"plan": ("plan", list(self.verdicts)), "seed": ("seed", np.arange(measured.shape[1]))}
        return xr.Dataset(variables, coords=coords)

    def __repr__(self) -> str:
        verdicts = ", ".join(f"{name}: {verdict}" for name, verdict in self.verdicts.items())
        how = "on all trials" if self.batch is None else f"with {self.seeds} seeds in batches of {self.batch:,}"
        return f"<Check {how}: {verdicts}>"


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

    Recorded tasks are trained on their own trials, others on fresh Gaussian trials.

    Parameters
    ----------
    subject : Forecast or Plan
        A plan is checked by direct training and by the best curriculum through each of its best candidates.
    seeds : int
        Runs of each curriculum, at least 2.
    batch : int, optional
        Trials per step; by default that of the training, or all trials of recordings, or 1,000 fresh trials.
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
    trials = [0 if task.recorded_trials is None else len(task.recorded_trials) for task in subject.method.tasks]
    size = batch or subject.method.training.batch or (None if all(trials) else FRESH)
    if all(trials) and size is not None and size >= max(trials):
        size = None
    each = 1 if size is None else seeds  # without batches all seeds give the same run
    jobs = [_job(forecast, size, seed) for forecast in forecasts.values() for seed in range(each)]
    runs = train_in_time(jobs, processes=processes, progress=progress)
    curricula: list[CheckedCurriculum] = []
    for k, (name, forecast) in enumerate(forecasts.items()):
        own = [run for run in runs[k * each : (k + 1) * each] if run is not None] * (seeds // each)
        if len(own) < 2:  # out of time
            if not curricula:
                check_time()
            break
        with until(math.inf):
            simulated = None if size is None else _simulated(forecast, size)
            curricula.append(CheckedCurriculum(name, forecast, own, simulated, full_batch=size is None))
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
        forecasts[f'"{candidate.task.name}" to {stop:.0%}'] = plan.follow(stages)
    return forecasts


def _job(forecast: Forecast, batch: int | None, seed: int) -> TrainingJob:
    """Training through the stages of a forecast, each stopped where its method calls the task learned."""
    expected = forecast.steps.descent
    most = LEAST if not math.isfinite(expected) else max(LEAST, math.ceil(PATIENCE * expected))
    method, stages = forecast.method.precise, []
    for place, stage in zip(forecast.places, forecast.requested, strict=True):
        goal = None if stage.goal is None else training_goal(method, place, stage.goal)
        stages.append(replace(stage, goal=goal))
    training = forecast.training.with_(batch=batch, learn=method.learn, seed=seed, most_steps=most)
    return TrainingJob(stages, method.network, training, record=Records(("strength",)))


def training_goal(method: Method, place: int, goal: Goal) -> Goal:
    """Return a goal as training measures it: strengths of modes, or the loss, which is exact on recorded trials."""
    exact = method.promise == "exact" or method.tasks[place].recorded_trials is None
    if isinstance(goal, Accuracy) and method.per_mode(goal) and exact:
        return replace(goal, optimum=tuple(np.nan_to_num(method.modes[place].optimum).tolist()))
    return Loss(method.goal_loss(place, goal))


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
