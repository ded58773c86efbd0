"""Is the theory right here? Theory, integrated flow, exact descent and real training beside each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from scipy import stats

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.progress import Progress, check_time, silent, until
from learncast._core.validation import count, positive
from learncast.answers.answer import Answer, batch_values, counted
from learncast.card import Table, shown, whole
from learncast.planning.agreement import agreement, rehearse, step_statistics
from learncast.planning.batches import BatchSteps
from learncast.planning.curriculum import Curriculum, followed
from learncast.planning.methods.choice import ground_for
from learncast.planning.plans.planner import plan_on
from learncast.procedure.goals import Accuracy, Goal, Loss
from learncast.procedure.stage import Stage
from learncast.procedure.training import Training
from learncast.results import Provenance, described, spec_hash
from learncast.study import Study
from learncast.tasks.recorded.resampling import halves
from learncast.theory.dynamics.modes import can_be_resampled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Share of the prediction by which measured steps may differ where batches cannot be counted, by class of forecast.
TOLERANCES = {"exact": 0.05, "integrated": 0.05, "response": 0.1, "outside": 0.1}
#: Trials of a training step, unless the study says.
TRAINED = 1000
#: How rarely a right forecast may be called wrong, over all plans of a check.
FALSE_ALARM = 0.01
#: Deviation that a check must be able to tell; where its runs spread too widely for that it says so.
TOLD = 0.05
#: Multiple of the predicted steps after which a run is given up, and the least it is given.
PATIENCE, LEAST = 10, 2000
#: Candidates that are trained, the best of the plan.
MOST_CANDIDATES = 6


@dataclass(frozen=True, eq=False)
class _Row:
    """One training plan: what was predicted and what was measured."""

    name: str
    theory: Curriculum
    flow: float
    descent: float
    predicted: float
    predicted_descent: float
    interval: tuple[float, float] | None
    runs: Sequence[Any]
    steps: dict[str, Any]
    batched: BatchSteps | None

    def room(self, alarm: float) -> float:
        """Steps by which the mean may differ by chance: both means are of runs that draw their own batches."""
        assert self.batched is not None
        measured, told = self.steps["measured_steps"][1], self.batched.totals
        n, m = len(measured), len(told)
        pooled = ((n - 1) * np.var(measured, ddof=1) + (m - 1) * np.var(told, ddof=1)) / (n + m - 2)
        # A step more: counts are whole.
        return float(stats.t.ppf(1 - alarm / 2, n + m - 2) * np.sqrt(pooled * (1 / n + 1 / m))) + 1.0

    @property
    def on_a_saddle(self) -> bool:
        """Whether the forecast is never because the exact flow ends on a saddle, which the noise of batches leaves."""
        regular = all(one.holds for one in self.theory.assumptions if one.name == "regular_orientation")
        return math.isinf(self.predicted) and not regular

    def verdict(self, tolerance: float | None, alarm: float) -> str:
        """Whether measured steps agree with the prediction, or the runs cannot tell."""
        measured = np.asarray(self.steps["measured_steps"][1])
        if tolerance is None and self.batched is not None and np.isfinite([*measured, *self.batched.totals]).all():
            gap, room = abs(measured.mean() - self.batched.mean), self.room(alarm)
            return "differs" if gap > room else "agrees" if room <= TOLD * self.batched.mean else "cannot tell"
        tolerance = TOLERANCES[self.theory.forecast_class] if tolerance is None else tolerance
        deviation = abs(float(self.steps["steps_deviation"][1]))
        mean, low, high = (float(self.steps[key][1]) for key in ("measured_mean", "measured_low", "measured_high"))
        if math.isinf(mean) and math.isinf(self.predicted):
            return "agrees"
        if self.on_a_saddle:
            return "cannot tell"
        if math.isnan(deviation):
            return "differs"
        if deviation <= tolerance:
            return "agrees"
        least, most = self.interval or (self.predicted_descent, self.predicted_descent)
        return "cannot tell" if low <= most and least <= high else "differs"


def checked(
    study: Study,
    *,
    seeds: int = 5,
    tolerance: float | None = None,
    processes: int | None = None,
    progress: Progress = silent,
) -> Answer:
    """Train the study's network for real, directly and through every candidate, and compare with the forecast."""
    count("seeds", seeds, least=2)
    if tolerance is not None:
        positive("tolerance", tolerance)
    rows = _trained(study, seeds, processes, progress)
    verdicts = {row.name: row.verdict(tolerance, FALSE_ALARM / len(rows)) for row in rows}
    failed = [name for name, verdict in verdicts.items() if verdict == "differs"]
    theory, unseen = rows[0].theory, _unseen(study)
    lead = " ".join([_lead(rows, verdicts, tolerance, seeds), *(row[-1] for row in unseen)])
    return Answer(
        kind="check",
        title=f"{study.name}: check",
        lead=lead,
        trust=theory.trust,
        values={
            "learning_rate": study.learning_rate,
            "accuracy": study.accuracy,
            "batch": study.batch or TRAINED,
            "seeds": seeds,
            "tolerance": tolerance,
            "agrees": not failed,
            "summary": lead,
            "rows": [_values(row, verdicts[row.name]) for row in rows],
            "unseen": [dict(zip(("promised", "plan_steps", "direct_steps"), row, strict=False)) for row in unseen],
        },
        tables=[_table(rows, verdicts, tolerance, study.batch or TRAINED)],
        dataset=_dataset(rows),
        draw=partial(_draw, rows, study),
        provenance=Provenance("training", theory.provenance.citations, spec_hash(theory.provenance.spec_hash, seeds)),
        study=study.resolved(),
        passed=not failed,
    )


def _forecasts(study: Study) -> dict[str, Curriculum]:
    """Direct training and the best curriculum through every candidate, on one ground."""
    ground = study.ground()
    last = Stage(study.target, goal=study.accuracy)
    found = {"direct training": followed([last], [ground.target], ground)}
    if study.candidates:
        planned = plan_on(ground, study.terms.over(len(study.candidates)), strict=False)
        for candidate in planned.candidates[:MOST_CANDIDATES]:
            # A candidate that does not help is checked too, at a stop where the theory has something to say.
            stop = candidate.accuracy if candidate.helps and 0 < candidate.accuracy < 1 else 0.8
            stages = [Stage(candidate.task, goal=stop), last]
            found[f"{candidate.task.name} to {stop:.4g}"] = planned.follow(stages)
    return found


def _trained(study: Study, seeds: int, processes: int | None, progress: Progress) -> list[_Row]:
    """The same stages on another ground: the network trained for real, stopped by what each ground calls learned."""
    from learncast import training

    forecasts = _forecasts(study)
    batch = study.batch or TRAINED
    settings = Training(study.learning_rate, batch=batch, learn=study.learn)

    def job(way: Curriculum, seed: int) -> training.TrainingJob:
        own = settings.with_(seed=seed, most_steps=_most(way.descent_steps))
        goals: list[Goal] = []
        for k, outcome in enumerate(way.outcomes):
            accuracy = float(outcome.stage.accuracy or 0.0)
            if way.modes and way.ground.goal == "modes":
                goals.append(Accuracy(accuracy, optimum=tuple(way.modes[k].optimum)))
            else:
                goals.append(Loss(way.ground.goal_loss(way.places[k], accuracy)))
        stages = [Stage(o.stage.task, goal) for o, goal in zip(way.outcomes, goals, strict=True)]
        return training.TrainingJob(stages, study.network, own, record=("strength",))

    jobs = [job(way, seed) for way in forecasts.values() for seed in range(seeds)]
    runs = training.train_in_time(jobs, processes=processes, progress=progress)
    rows: list[_Row] = []
    for k, (name, way) in enumerate(forecasts.items()):
        own = [run for run in runs[k * seeds : (k + 1) * seeds] if run is not None]
        if len(own) < 2:  # there was no time for more; without one plan there is nothing to say
            if not rows:
                check_time()
            break
        with until(math.inf):
            flow, descent = _numerical(way)
            batched = _batched(way, batch)
        measured = np.array([run.steps if run.status.name == "ok" else math.inf for run in own])
        steps = step_statistics(way.flow_steps, way.descent_steps, measured)
        interval = way.descent_interval
        rows.append(_Row(name, way, flow, descent, way.flow_steps, way.descent_steps, interval, own, steps, batched))
    return rows


def _batched(way: Curriculum, batch: int) -> BatchSteps | None:
    """What training on such batches takes by theory; None where that is not told."""
    try:
        return way.in_batches(batch)
    except (InvalidSpec, UnsupportedModel):
        return None


def _unseen(study: Study) -> list[tuple[float, float, float, str]]:
    """Does a plan made on half of the recorded trials come true on the other half? Both ways round, in descent."""
    ground = study.ground()
    if not study.candidates or not ground.recorded or ground.promise == "response":
        return []
    rng = np.random.default_rng(0)
    parted = [halves(t, rng) if can_be_resampled(t) else (t, t) for t in ground.tasks]
    bound = study.terms.over(len(study.candidates))
    found: list[tuple[float, float, float, str]] = []
    for one, other in ((0, 1), (1, 0)):
        here, there = (
            ground_for(
                [pair[k] for pair in parted], study.network, learning_rate=study.learning_rate,
                learn=study.named_learn, by=ground.by, goal=study.terms.goal,
            )
            for k in (one, other)
        )  # fmt: skip
        made = plan_on(here, bound, strict=False)
        stages = [Stage(there.tasks[k], steps=n) for k, n in zip(made.route.order, made.route.durations, strict=True)]
        last = Stage(there.tasks[-1], goal=study.accuracy)
        places = [*made.route.order, there.target]
        tried = followed([*stages, last], places, there, resample=False).descent_steps
        direct = followed([last], [there.target], there, resample=False).descent_steps
        promised = made.total / made.direct_total if made.direct_total > 0 else math.nan
        part = tried / direct if direct > 0 else math.nan
        came = f"{tried:,.0f} of {direct:,.0f} steps of direct training ({part:.0%}, promised {promised:.0%})"
        said = "advises direct training" if not stages else f"takes {came}"
        whose = "The other way round it" if found else "Made on half of the trials and followed on the other, a plan"
        found.append((promised, tried, direct, f"{whose} {said}."))
    return found


def _numerical(way: Curriculum) -> tuple[float, float]:
    """The same run through numerically on exact statistics, where a closed form told it."""
    if way.ground.readable_modes(way.ground.target) is None or way.ground.goal != "modes":
        return way.flow_steps, way.descent_steps
    stages, network, limit = [o.stage for o in way.outcomes], way.ground.network, _most(way.descent_steps)
    found = [
        rehearse(stages, network, learning_rate=way.learning_rate, by=by, most_steps=limit).steps
        for by in ("flow", "descent")
    ]
    return found[0], found[1]


def _most(predicted: float) -> int:
    """Steps after which a run is given up."""
    return LEAST if not math.isfinite(predicted) else max(LEAST, math.ceil(PATIENCE * predicted))


def _lead(rows: list[_Row], verdicts: dict[str, str], tolerance: float | None, seeds: int) -> str:
    off = [name for name, verdict in verdicts.items() if verdict == "differs"]
    worst = max(rows, key=lambda row: np.nan_to_num(abs(_off(row)), nan=math.inf))
    if off:
        much = "than its runs spread" if tolerance is None else f"than {tolerance:.0%}"
        return f"Training differs from the forecast by more {much}: {', '.join(off)}."
    unsure = [name for name, verdict in verdicts.items() if verdict == "cannot tell"]
    said = (
        f"Training agrees with the forecast in all {len(rows)} plans ({seeds} seeds each); the largest deviation of "
        f"mean steps is {_off(worst):+.1%}, for {worst.name}."
    )
    if not unsure:
        return said
    saddles = [row.name for row in rows if row.on_a_saddle and row.name in unsure]
    if saddles:
        return (
            f"Training does not contradict the forecast, but of {', '.join(saddles)} it cannot confirm it either: the "
            "exact flow ends on a saddle, which the noise of batches leaves in its own time."
        )
    wide = f"its runs spread too widely to tell {TOLD:.0%}: use more seeds or larger batches"
    return f"Training does not contradict the forecast, but of {', '.join(unsure)} {wide}."


def _off(row: _Row) -> float:
    """Measured over predicted mean steps, minus 1: of the same batches where these are told."""
    if row.batched is None or not math.isfinite(row.batched.mean):
        return float(row.steps["steps_deviation"][1])
    measured = float(row.steps["measured_mean"][1])
    if row.batched.mean == 0:  # learned before it begins
        return math.inf if measured else 0.0
    return measured / row.batched.mean - 1


def _values(row: _Row, verdict: str) -> dict[str, Any]:
    number = {key: float(value[1]) for key, value in row.steps.items() if key != "measured_steps"}
    return {
        "plan": row.name,
        "predicted_flow_steps": row.predicted,
        "predicted_descent_steps": counted(row.predicted_descent),
        "predicted_interval": row.interval,
        "integrated_flow_steps": row.flow,
        "exact_descent_steps": counted(row.descent),
        "measured_steps": [counted(float(n)) for n in row.steps["measured_steps"][1]],
        "measured_mean": number["measured_mean"],
        "measured_sd": number["measured_sd"],
        "measured_interval": [number["measured_low"], number["measured_high"]],
        "deviation": number["steps_deviation"],
        "in_batches": None if row.batched is None else batch_values(row.batched),
        "verdict": verdict,
    }


def _table(rows: list[_Row], verdicts: dict[str, str], tolerance: float | None, batch: int) -> Table:
    cells = [
        (
            row.name,
            _predicted(row),
            "" if row.batched is None else f"{shown(row.batched.mean, 1)} ± {row.batched.spread:.1f}",
            _measured(row),
            _deviation(row),
            verdicts[row.name],
        )
        for row in rows
    ]
    columns = ("plan", "predicted", "batches", "trained", "off by", "verdict")
    notes = [
        "predicted: steps by theory, with the 95% interval of a forecast that rests on samples; batches: by "
        f"theory, in batches of {batch:,} trials, with which it is trained; "
        "trained: mean ± standard deviation over seeds.",
        f"agrees: mean steps as near those in batches as the spread of runs allows ({1 - FALSE_ALARM:.0%} of right "
        f"forecasts); cannot tell: so too, but the spread would hide {TOLD:.0%}."
        if tolerance is None and all(row.batched is not None for row in rows)
        else "agrees: mean steps within the tolerance of the prediction; cannot tell: further off, but the prediction "
        "lies in the 95% interval of the mean.",
    ]
    return Table("Gradient steps, predicted and measured", columns, cells, notes)


def _measured(row: _Row) -> str:
    mean, spread = (float(row.steps[key][1]) for key in ("measured_mean", "measured_sd"))
    return f"{shown(mean, 1)} ± {spread:.1f}" if math.isfinite(mean) else "not reached"


def _deviation(row: _Row) -> str:
    deviation = _off(row)
    return f"{deviation:+.1%}" if math.isfinite(deviation) else "unknown"


def _predicted(row: _Row) -> str:
    steps = row.predicted if math.isnan(row.predicted_descent) else row.predicted_descent
    return (
        whole(steps) if row.interval is None else f"{whole(steps)} ({whole(row.interval[0])}-{whole(row.interval[1])})"
    )


def _dataset(rows: list[_Row]) -> xr.Dataset:
    names = [row.name for row in rows]
    keys = [key for key in rows[0].steps if key != "measured_steps"]
    variables: dict[str, Any] = {
        key: ("plan", [float(row.steps[key][1]) for row in rows], rows[0].steps[key][2]) for key in keys
    }
    measured = np.stack([row.steps["measured_steps"][1] for row in rows])
    variables["measured_steps"] = (("plan", "seed"), measured, rows[0].steps["measured_steps"][2])
    for key, values in (("integrated_flow_steps", "flow"), ("exact_descent_steps", "descent")):
        text = described(key.replace("_", " "), "gradient steps")
        variables[key] = ("plan", [getattr(row, values) for row in rows], text)
    gaps = [_largest_gap(row) for row in rows]
    text = described("largest deviation of mean strength or loss from theory, share of its largest value", "1")
    variables["largest_deviation"] = ("plan", gaps, text)
    return xr.Dataset(variables, coords={"plan": ("plan", names), "seed": ("seed", np.arange(measured.shape[1]))})


def _largest_gap(row: _Row) -> float:
    found = agreement(row.theory, list(row.runs))
    return max((float(found[key]) for key in found.data_vars if str(key).endswith("_largest")), default=math.nan)


def _draw(rows: list[_Row], study: Study) -> Figure:
    from learncast.figures import page, predicted_and_measured, training_over_theory

    figure, axes = page(1, 2, width=5.4, height=3.8)
    shown_rows = [rows[0], *rows[1:2]]
    for row, colour in zip(shown_rows, (1, 0), strict=False):
        longest = max(float(run.time.values[-1]) for run in row.runs)
        times = np.linspace(0.0, 1.1 * longest, 400)
        runs, title = [run.dataset for run in row.runs], f"Training over theory: {study.target.name}"
        training_over_theory(row.theory.at(times).dataset, runs, axes[0], name=row.name, colour=colour, title=title)
    predicted_and_measured(_dataset(rows), axes[1], title="Steps, predicted and measured")
    return figure
