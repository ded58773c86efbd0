"""Report of `learncast plan`: which pretraining tasks help, and when do I stop them?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from learncast import InvalidSpec, OutOfTime, Steps, Training, UnsupportedModel
from learncast._core.progress import Progress, silent, until
from learncast._core.validation import one_of
from learncast.display import Columns, Plot, Table, format_count, format_number
from learncast.planning.candidate import Candidate
from learncast.planning.front import Front
from learncast.planning.generalise.held_out_plan import HeldOutPlan, plan_held_out
from learncast.planning.plan import Plan
from learncast.planning.planner import plan_with
from learncast.planning.search import Route
from learncast.planning.summary import answer_and_rest, chosen_on_average
from learncast.planning.terms import GENERALISE
from learncast.report.generalise import held_out_values
from learncast.report.report import (
    Report,
    as_count,
    batch_values,
    data_notes,
    data_tables,
    fields,
    goal_values,
    method_note,
    outcome_values,
    picture,
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
    tables += data_tables(plan.target, data)
    values["data"] = data
    lead = first + (plan.summary if isinstance(plan, HeldOutPlan) else "\n\n".join(answer_and_rest(plan)))
    lead += method_note(plan.method, plan.trust) if plan.trust.holds else ""
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
        **fields(plan, "interval worthwhile saving may_not_pay saving_interval proof"),
        "lower_bound": plan.bound,
        "direct": {
            **_steps(plan.direct, plan.direct_interval),
            "total": plan.direct_total,
            **outcome_values(plan.direct),
        },
        "candidates": [_candidate(c) for c in plan.candidates],
        "best": {
            "stages": [
                {"task": s.task.name, "accuracy": getattr(s.stage.goal, "value", s.accuracy)}
                | _steps(s.steps, s.steps.interval)
                | outcome_values(s.steps)
                for s in best.stages
            ],
            **_steps(best.steps, plan.interval),
            **fields(plan, "saving saving_ratio total"),
        },
        "in_sample": _route(plan, plan.in_sample_route, "steps"),
        "best_by_flow": {
            **_route(plan, plan.flow_route, "flow_steps"),
            "direct_total": plan.direct_flow_route.total,
        },
        "alternatives": [{"plan": a.name, **fields(a, "steps total extra")} for a in plan.alternatives],
        "sensitivity": [dict(vars(s)) for s in plan.sensitivity],
    }


def _route(plan: Plan, route: Route, unit: str) -> dict[str, object]:
    stages = zip(route.order, route.durations, strict=True)
    return {"total": route.total, "stages": [{"task": plan.method.tasks[k].name, unit: n} for k, n in stages]}


def _candidate(c: Candidate) -> dict[str, object]:
    return {
        "task": c.task.name,
        "best_accuracy": c.accuracy,
        **_steps(c.steps, c.interval),
        **fields(c, "stop_steps saving saving_ratio total helps usable why"),
        **outcome_values(c.steps),
        "validity": [validity(a) for a in c.assumptions],
    }


def _steps(steps: Steps, interval: tuple[float, float] | None) -> dict[str, object]:
    """Steps by descent and by the flow, and the 95% interval if statistics were estimated from trials."""
    own = {} if interval is None else {"interval": list(interval)}
    return {"descent_steps": as_count(steps.descent), "flow_steps": steps.flow, **own}


def _what_if_tables(plan: Plan) -> list[Table]:
    """Costs of other plans, and of stopping early or late."""
    unit, priced = "steps" if plan.counted else "flow steps", plan.terms.priced
    cost = {"cost": "total", "costs more": "extra"} if priced else {"more steps": "extra"}
    instead = {"plan": "name", unit: "steps", **cost}
    shifted = {"stage": "task", "length": "factor", unit: "steps", "in all": "all_steps", **cost}
    written: dict[str, Callable[..., str]] = {"name": str, "task": str}
    written |= {"factor": "{:.0%}".format, "extra": "{:+,.0f}".format}
    average = "Negative: cheaper on these data alone, but not on average over resamples of them."
    notes = [average] if chosen_on_average(plan) else []
    tables = []
    for title, names, rows in (
        ("Instead of this", instead, plan.alternatives),
        ("If a stage stops early or late", shifted, plan.sensitivity),
    ):
        columns = {k: ([getattr(r, key) for r in rows], written.get(key, format_count)) for k, key in names.items()}
        tables += [Table.of(title, columns, notes)] if rows else []
    return tables


def _front_values(front: Front) -> dict[str, object]:
    numbers = {key: front.dataset[key].values.tolist() for key in ("excess_loss", "total", "proof", "order")}
    return {"task": front.task.name, **numbers}


def _front_table(front: Front) -> Table:
    data = front.dataset
    columns: Columns = {
        "excess loss left on it": (data["excess_loss"].values, "{:.4g}".format),
        "flow cost" if front.by_flow else "cost": (data["total"].values, format_number),
        **{name: (data[name].values, str) for name in ("order", "proof")},
    }
    return Table.of(f'Cost of remembering "{front.task.name}"', columns)


def draw_plan(plan: Plan) -> Figure:
    """The target under the plan and directly, the ranking, and the portrait of the chosen stop."""
    plots = [plan._plot()]
    if plan.candidates and plan.compares:
        # A plan with one more task is marked on its own portrait, any other plan beside the best single candidate.
        single = plan.best.tasks[0] if len(plan.best.stages) == 2 else None
        chosen = next((k for k, c in enumerate(plan.candidates) if c.task is single), 0)
        portrait, what = plan.stop_portrait(chosen), "Cost" if plan.terms.priced else "Steps"
        ranked: dict[str, object] = {"priced": plan.terms.priced, "title": "Candidates before the target"}
        plots += [
            Plot.of("ranking", plan.dataset, **ranked),
            Plot.of("stop_curve", portrait, title=f"Total {what.lower()} for each stop of one candidate"),
            Plot.of("stop_map", portrait, title=f"{what} saved for other accuracies"),
        ]
    width, height = (3.55, 2.7) if len(plots) > 1 else (7.0, 3.6)
    return picture(*(one.on for one in plots), columns=min(2, len(plots)), width=width, height=height)
