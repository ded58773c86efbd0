"""Report of `learncast plan`: which pretraining tasks help, and when do I stop them?"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from learncast import InvalidSpec, OutOfTime, Training, UnsupportedModel
from learncast._core.progress import Progress, silent, until
from learncast._core.validation import one_of
from learncast.display import Table, format_count, format_number
from learncast.planning.candidate import Candidate
from learncast.planning.front import Front
from learncast.planning.generalise.held_out_plan import HeldOutPlan, plan_held_out
from learncast.planning.plan import Alternative, Plan, Shift
from learncast.planning.planner import plan_with
from learncast.planning.terms import GENERALISE
from learncast.report.generalise import held_out_values
from learncast.report.report import (
    Report,
    as_count,
    batch_values,
    data_notes,
    goal_values,
    method_note,
    outcome_values,
    validity,
)
from learncast.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plan_report(
    study: Study,
    *,
    remember: str | None = None,
    method: str = "auto",
    held_out: bool = False,
    progress: Progress = silent,
) -> Report:
    """Rank the study's candidates as intermediate tasks, each with its best stop, and recommend a plan.

    Parameters
    ----------
    study : Study
    remember : str, optional
        Candidate that should not be forgotten: the report adds what that costs.
    method : str
        As in `learncast.plan`.
    held_out : bool
        Choose stops for the held-out loss instead of speed, as the key plan of [generalise] does.
    progress : callable
    """
    if remember is not None:
        one_of("--remember", remember, tuple(task.name for task in study.candidates))
    share = 1.0 if remember is None else 0.5
    if study.max_stages > 1:
        study.check_pool()
    within: Progress = lambda done: progress(share * done)  # noqa: E731
    plan: Plan
    if held_out:
        study = study.with_held_out({"plan": True})
    if study.terms.goal == GENERALISE:
        how = study.held_out
        del how["after"]
        for_speed = partial(plan_with, strict=False)
        asked = study.method(method), study.training, study.terms, for_speed
        plan = plan_held_out(*asked, **how, progress=within)
    else:
        plan = plan_with(study.method(method), study.terms, strict=False, progress=within)
    front = None
    try:
        plan.alternatives, plan.sensitivity  # noqa: B018  computed once, within the time limit
        if remember is not None:
            front = plan.front(remember, strict=False, progress=lambda done: progress(share + share * done))
    except OutOfTime:
        plan = replace(plan, compares=False)
    with until(math.inf):  # the answer is known
        return of_plan(plan, front, name=study.name, study=study.resolved())


def of_plan(plan: Plan, front: Front | None = None, *, name: str = "", study: str = "") -> Report:
    """Report a plan.

    Parameters
    ----------
    plan : Plan
    front : Front, optional
        The cost of remembering one of the candidates.
    name, study : str
        Name and content of the study; by default the target's name and nothing.
    """
    values, training = _values(plan), plan.method.training
    tables = [plan.stages_table, plan.ranking_table, *_what_if_tables(plan)]
    if isinstance(plan, HeldOutPlan):
        tables.append(plan.trade_table)
        values["held_out"] = {
            "recommended": held_out_values(plan.chosen),
            "direct": held_out_values(plan.held_out),
            "after": [held_out_values(g) for g in plan.after],
            "fastest": {"total": plan.fastest.total, "loss": plan.fastest_loss},
        }
    if front is not None:
        values["front"] = _front_values(front)
        tables.append(_front_table(front))
    first, data = data_notes(plan.method, plan.method.target)
    if data:
        tables.append(Table(f'What the trials of "{plan.target.name}" allow', ("",), [(line,) for line in data]))
    values["data"] = data
    lead = first + plan.summary + (method_note(plan.method, plan.trust) if plan.trust.holds else "")
    if training.batch is not None and plan.trust.holds and math.isfinite(plan.best.steps.descent):
        values["in_batches"], sentence = _in_batches(plan, training)
        lead = f"{lead} {sentence}"
    return Report(
        kind="plan",
        title=f"{name or plan.target.name}: plan",
        lead=lead,
        trust=plan.trust,
        values=values,
        tables=tables,
        dataset=lambda: plan.dataset,
        draw=lambda: draw_plan(plan),
        provenance=plan.provenance,
        study=study,
    )


def _in_batches(plan: Plan, training: Training) -> tuple[dict[str, Any] | None, str]:
    """The plan and direct training, if every step sees only one batch."""
    assert training.batch is not None
    direct = plan.follow([plan.stages[-1]])
    forecasts = [plan.best] if plan.pretrains else []
    forecasts += [direct] if math.isfinite(direct.steps.descent) else []
    try:
        runs = [one.in_batches(training.batch, shuffle=training.shuffle) for one in forecasts]
    except (InvalidSpec, UnsupportedModel) as error:
        return None, str(error)
    values = dict(zip(("plan", "direct") if plan.pretrains else ("plan",), map(batch_values, runs), strict=False))
    if len(runs) == 1 or any(run.by_chance for run in runs):
        return values, next((run for run in runs if run.by_chance), runs[0]).sentence
    plan_text, direct_text = (f"{run.mean:,.0f} ± {run.spread:,.0f} steps" for run in runs)
    note = f"mean and standard deviation of {runs[0].runs} runs"
    return values, f"In {runs[0].drawn}, the plan takes {plan_text}, direct training {direct_text} ({note})."


def _values(plan: Plan) -> dict[str, object]:
    best = plan.best
    return {
        "target": plan.target.name,
        "learning_rate": plan.method.learning_rate,
        **goal_values(plan.goal),
        "method": plan.method.name,
        **plan.method.trial_values(range(len(plan.method.tasks))),
        "summary": plan.summary,
        "counted_by": "descent" if plan.counted else "flow",
        "interval": None if plan.interval is None else list(plan.interval),
        "worthwhile": plan.worthwhile,
        "saving": plan.saving,
        "may_not_pay": plan.may_not_pay,
        "saving_interval": None if plan.saving_interval is None else list(plan.saving_interval),
        "proof": plan.proof,
        "lower_bound": plan.bound,
        "direct": {
            "descent_steps": as_count(plan.direct.descent),
            "flow_steps": plan.direct.flow,
            "total": plan.direct_total,
            **outcome_values(plan.direct),
            **_interval(plan.direct_interval),
        },
        "candidates": [_candidate(c) for c in plan.candidates],
        "best": {
            "stages": [
                {
                    "task": s.task.name,
                    "accuracy": getattr(s.stage.goal, "value", s.accuracy),
                    "descent_steps": as_count(s.steps.descent),
                    "flow_steps": s.steps.flow,
                    **outcome_values(s.steps),
                    **_interval(s.steps.interval),
                }
                for s in best.stages
            ],
            "descent_steps": as_count(best.steps.descent),
            "flow_steps": best.steps.flow,
            "saving": plan.saving,
            "saving_ratio": plan.saving_ratio,
            **_interval(plan.interval),
            "total": plan.total,
        },
        "in_sample": {
            "total": plan.in_sample_route.total,
            "stages": [
                {"task": plan.method.tasks[k].name, "steps": n}
                for k, n in zip(plan.in_sample_route.order, plan.in_sample_route.durations, strict=True)
            ],
        },
        "best_by_flow": {
            "total": plan.flow_route.total,
            "direct_total": plan.direct_flow_route.total,
            "stages": [
                {"task": plan.method.tasks[k].name, "flow_steps": t}
                for k, t in zip(plan.flow_route.order, plan.flow_route.durations, strict=True)
            ],
        },
        "alternatives": [
            {"plan": a.name, "steps": a.steps, "total": a.total, "extra": a.extra} for a in plan.alternatives
        ],
        "sensitivity": [dict(vars(s)) for s in plan.sensitivity],
    }


def _candidate(c: Candidate) -> dict[str, object]:
    return {
        "task": c.task.name,
        "best_accuracy": c.accuracy,
        "stop_steps": c.stop_steps,
        "descent_steps": as_count(c.steps.descent),
        "flow_steps": c.steps.flow,
        "saving": c.saving,
        "saving_ratio": c.saving_ratio,
        "total": c.total,
        **_interval(c.interval),
        "helps": c.helps,
        "usable": c.usable,
        **outcome_values(c.steps),
        "why": c.why,
        "validity": [validity(a) for a in c.assumptions],
    }


def _interval(ends: tuple[float, float] | None) -> dict[str, object]:
    """The 95% interval, if statistics were estimated from trials."""
    return {} if ends is None else {"interval": list(ends)}


def _what_if_tables(plan: Plan) -> list[Table]:
    """Costs of other plans, and of stopping early or late."""
    tables, unit = [], "steps" if plan.counted else "flow steps"
    more = ("cost", "costs more") if plan.terms.priced else ("more steps",)

    def cells(one: Alternative | Shift) -> tuple[str, ...]:
        return (format_count(one.total), f"{one.extra:+,.0f}")[-len(more) :]

    if plan.alternatives:
        rows = [(a.name, format_count(a.steps), *cells(a)) for a in plan.alternatives]
        tables.append(Table("Instead of this", ("plan", unit, *more), rows))
    if plan.sensitivity:
        shifts = [
            (s.task, f"{s.factor:.0%}", format_count(s.steps), format_count(s.all_steps), *cells(s))
            for s in plan.sensitivity
        ]
        tables.append(Table("If a stage stops early or late", ("stage", "length", unit, "in all", *more), shifts))
    return tables


def _front_values(front: Front) -> dict[str, object]:
    data = front.dataset
    return {"task": front.task.name} | {
        key: data[key].values.tolist() for key in ("excess_loss", "total", "proof", "order")
    }


def _front_table(front: Front) -> Table:
    data = front.dataset
    rows = [
        (f"{float(loss):.4g}", format_number(float(total)), str(order), str(proof))
        for loss, total, order, proof in zip(
            data["excess_loss"].values, data["total"].values, data["order"].values, data["proof"].values, strict=True
        )
    ]
    columns = ("excess loss left on it", "flow cost" if front.by_flow else "cost", "order", "proof")
    return Table(f'Cost of remembering "{front.task.name}"', columns, rows)


def draw_plan(plan: Plan) -> Figure:
    """The target under the plan and directly, the ranking, and the portrait of the chosen stop."""
    from learncast.figures import page, ranking, stop_curve, stop_map

    complete = bool(plan.candidates) and plan.compares
    figure, axes = page(2 if complete else 1, 2 if complete else 1, width=3.55, height=2.7)
    plan.plot(axes[0])
    if complete:
        ranking(plan.dataset, axes[1], priced=plan.terms.priced, title="Candidates before the target")
        first = plan.best.tasks[0]
        chosen = next((k for k, c in enumerate(plan.candidates) if c.task is first), 0)
        portrait = plan.stop_portrait(chosen)
        stop_curve(portrait, axes[2], title="Total steps for each stop of one candidate")
        stop_map(portrait, axes[3], title="Steps saved for other accuracies")
    return figure
