"""Report of `learncast check`: is the forecast right?"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from learncast import Forecast, Stage
from learncast._core.progress import Progress, silent
from learncast.display import Plot, Table, bracketed_interval, format_count, format_number
from learncast.planning.planner import plan_with
from learncast.report.report import Report, as_count, batch_values, fields, goal_values, outcome_values, picture
from learncast.results import Provenance, spec_hash
from learncast.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from learncast.training.check import Check, CheckedCurriculum, SplitCheck


def check_report(
    study: Study,
    *,
    seeds: int = 5,
    tolerance: float | None = None,
    processes: int | None = None,
    progress: Progress = silent,
) -> Report:
    """Train the study's network for real, directly and through its candidates, and compare with the forecast."""
    from learncast.training.check import check

    method = study.method()
    direct = Forecast(method, (Stage(study.target, study.goal),), (method.target,))
    subject = plan_with(method, study.terms.with_(goal=study.goal), strict=False) if study.candidates else direct
    result = check(subject, seeds=seeds, batch=study.batch, tolerance=tolerance, processes=processes, progress=progress)
    return of_check(result, name=study.name, study=study.resolved())


def of_check(result: Check, *, name: str = "", study: str = "") -> Report:
    """Report a check.

    Parameters
    ----------
    result : Check
    name, study : str
        Name and content of the study; by default the target's name and nothing.
    """
    forecast, verdicts = result.curricula[0].forecast, result.verdicts
    origin = forecast.provenance
    sentences = [_split_text(split, k) for k, split in enumerate(result.splits)]
    lead = " ".join([_lead(result), *sentences])
    steps = Plot.of("predicted_and_measured", result.dataset, title="Steps, forecast and measured")
    return Report(
        kind="check",
        title=f"{name or forecast.target.name}: check",
        lead=lead,
        trust=forecast.trust,
        values={
            "learning_rate": forecast.learning_rate,
            **goal_values(forecast.requested[-1].goal),
            **fields(result, "batch seeds tolerance"),
            "agrees": result.passed,
            "summary": lead,
            "rows": [_values(c, verdicts[c.name]) for c in result.curricula],
            "unseen": [
                {"promised": s.forecast_share, "plan_steps": s.steps, "direct_steps": s.direct_steps}
                for s in result.splits
            ],
        },
        tables=[_table(result)],
        dataset=result.dataset,
        draw=partial(picture, partial(_over_theory, result), steps.on, width=4.2, height=3.2),
        provenance=Provenance("training", origin.citations, spec_hash(origin.spec_hash, result.seeds)),
        study=study,
        passed=result.passed,
    )


def _split_text(split: SplitCheck, k: int) -> str:
    which = "The other way round, it" if k else "Made on half of the trials and followed on the other half, the plan"
    if not split.pretrains:
        return f"{which} recommends direct training."
    share = split.steps / split.direct_steps if split.direct_steps > 0 else math.nan
    return (
        f"{which} takes {split.steps:,.0f} of {split.direct_steps:,.0f} steps of direct training ({share:.0%}; "
        f"forecast {split.forecast_share:.0%})."
    )


def _lead(result: Check) -> str:
    from learncast.training.check import DETECTED, FULL_BATCH

    verdicts = result.verdicts
    differing = [name for name, verdict in verdicts.items() if verdict == "differs"]
    if differing:
        limit = "the spread of runs allows" if result.tolerance is None else f"{result.tolerance:.0%}"
        if result.tolerance is None and result.batch is None:
            limit = f"a step and {FULL_BATCH:.0%}"
        return f"Training differs from the forecast by more than {limit}: {', '.join(differing)}."
    unsure = [c for c in result.curricula if verdicts[c.name] == "cannot tell"]
    if not unsure:
        worst = max(result.curricula, key=lambda c: np.nan_to_num(abs(c.deviation), nan=math.inf))
        how = "on all trials" if result.batch is None else f"{result.seeds} seeds each"
        return (
            f"Training agrees with the forecast in all {len(verdicts)} curricula ({how}). The "
            f"largest deviation of mean steps is {worst.deviation:+.1%}, for {worst.name}."
        )
    names = ", ".join(c.name for c in unsure)
    if any(c.on_a_saddle for c in unsure):
        return (
            f"Training does not contradict the forecast but cannot confirm it for {names}: the exact flow ends on a "
            "saddle, which the noise of batches leaves at a random time."
        )
    return (
        f"Training does not contradict the forecast, but for {names} the runs vary too much to detect a {DETECTED:.0%} "
        "error. Use more seeds or larger batches."
    )


def _values(c: CheckedCurriculum, verdict: str) -> dict[str, object]:
    steps = c.forecast.steps
    return {
        "plan": c.name,
        "predicted_flow_steps": steps.flow,
        "predicted_descent_steps": as_count(steps.descent),
        **outcome_values(steps),
        "predicted_interval": steps.interval,
        "measured_steps": [as_count(float(n)) for n in c.measured],
        **{key: c.number(key) for key in ("measured_mean", "measured_sd")},
        "measured_interval": [c.number("measured_low"), c.number("measured_high")],
        "deviation": c.number("steps_deviation"),
        "in_batches": None if c.batched is None else batch_values(c.batched),
        "verdict": verdict,
    }


def _table(result: Check) -> Table:
    from learncast.training.check import DETECTED, FALSE_ALARM

    cells = [(*_cells(c), result.verdicts[c.name]) for c in result.curricula]
    simulated = result.tolerance is None and all(c.batched is not None for c in result.curricula)
    batches = "every step sees all recorded trials" if result.batch is None else (
        f"batches: forecast for batches of {result.batch:,} trials, as trained"
    )  # fmt: skip
    notes = [
        f"forecast: full-batch steps with 95% interval; {batches}; trained: mean ± standard deviation over seeds.",
        f"agrees: mean steps within the spread of runs ({1 - FALSE_ALARM:.0%} of right forecasts); cannot tell: "
        f"consistent, but the runs vary too much to detect a {DETECTED:.0%} error."
        if simulated
        else "agrees: mean steps within the tolerance; cannot tell: outside it, but the forecast lies in the 95% "
        "interval of the mean.",
    ]
    columns = ("curriculum", "forecast", "batches", "trained", "deviation", "verdict")
    return Table("Gradient steps, forecast and measured", columns, cells, notes)


def _cells(c: CheckedCurriculum) -> tuple[str, ...]:
    steps, mean = c.forecast.steps, c.number("measured_mean")
    forecast = format_count(steps.value) if math.isfinite(steps.value) else steps.count
    batched = "" if c.batched is None else f"{format_number(c.batched.mean, 1)} ± {c.batched.spread:.1f}"
    trained = f"{format_number(mean, 1)} ± {c.number('measured_sd'):.1f}" if math.isfinite(mean) else "not reached"
    deviation = f"{c.deviation:+.1%}" if math.isfinite(c.deviation) else "unknown"
    return c.name, forecast + bracketed_interval(steps.interval), batched, trained, deviation


def _over_theory(result: Check, ax: Axes) -> None:
    """Draw the runs of two curricula over their forecasts."""
    from learncast.figures import training_over_theory
    from learncast.figures.look import DIRECT, STAGED

    title = f"Training over theory: {result.curricula[0].forecast.target.name}"
    for c, colour in zip(result.curricula[:2], (DIRECT, STAGED), strict=False):
        times = np.linspace(0.0, 1.1 * max(float(run.time.values[-1]) for run in c.runs), 400)
        runs = [run.dataset for run in c.runs]
        training_over_theory(c.forecast.at(times).dataset, runs, ax, name=c.name, colour=colour, title=title)
