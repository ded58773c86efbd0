"""Which pretraining tasks help, and when do I stop them?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.progress import Progress, silent, until
from learncast._core.validation import one_of
from learncast.answers.answer import Answer, batch_values, counted, data_said, validity, way_taken
from learncast.card import Table, shown
from learncast.planning.plans.planner import plan_on
from learncast.planning.plans.recommendation import Plan
from learncast.planning.plans.route import Candidate
from learncast.planning.plans.stop_portrait import stop_portrait
from learncast.planning.plans.tables import ranking_table, stages_table
from learncast.planning.schedules.pareto import Front
from learncast.planning.terms import checked_pool
from learncast.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def planned(study: Study, *, remember: str | None = None, by: str = "auto", progress: Progress = silent) -> Answer:
    """Rank the study's candidates as intermediate tasks, each with its best stop, and recommend a plan.

    Parameters
    ----------
    study : Study
    remember : str, optional
        Candidate that should not be forgotten: what that costs, point by point, is added to the answer.
    by : str
        How to plan, as in `learncast.plan`.
    progress : callable
    """
    if remember is not None:
        names = tuple(task.name for task in study.candidates)
        one_of("--remember", remember, names)
    share = 1.0 if remember is None else 0.5
    if study.max_stages > 1:
        checked_pool(study.target, study.candidates)
    terms = study.terms if study.candidates else study.terms.direct
    bound = terms.over(len(study.candidates))
    found = plan_on(study.ground(by), bound, strict=False, progress=lambda done: progress(share * done))
    with until(math.inf):  # what was found in time is told in full
        return _answer(study, found, remember, lambda done: progress(share + share * done))


def _answer(study: Study, found: Plan, remember: str | None, progress: Progress) -> Answer:
    values = _values(study, found)
    tables = [stages_table(found), ranking_table(found), *_what_if_tables(found)]
    if remember is not None:
        traded = found.front(remember, progress=progress)
        values["front"] = _front_values(traded)
        tables.append(_front_table(traded))
    first, data = data_said(found.ground, found.ground.target)
    if data:
        tables.append(Table(f"What the trials of {study.target.name} allow", ("",), [(line,) for line in data]))
    values["data"] = data
    lead = first + found.summary + ("" if not found.trust.holds else way_taken(found.ground, found.trust))
    if study.batch is not None and found.trust.holds and math.isfinite(found.best.descent_steps):
        values["in_batches"], said = _in_batches(found, study.batch)
        lead = f"{lead} {said}"
    return Answer(
        kind="plan",
        title=f"{study.name}: plan",
        lead=lead,
        trust=found.trust,
        values=values,
        tables=tables,
        dataset=lambda: found.dataset,
        draw=lambda: draw_plan(found),
        provenance=found.provenance,
        study=study.resolved(),
    )


def _in_batches(found: Plan, batch: int) -> tuple[dict[str, Any] | None, str]:
    """The plan and direct training where every step sees so many trials only."""
    direct = found.follow([found.best.outcomes[-1].stage])
    try:
        ways = [(found.best if found.pretrains else direct).in_batches(batch)]
        ways += [direct.in_batches(batch)] if found.pretrains and math.isfinite(direct.descent_steps) else []
    except (InvalidSpec, UnsupportedModel) as refused:
        return None, f"Steps in batches of {batch:,} cannot be forecast: {refused}"
    values = dict(zip(("plan", "direct"), map(batch_values, ways), strict=False))
    chance = next((way for way in ways if way.by_chance), None)
    if chance is not None:
        return values, chance.sentence
    told = [f"{way.mean:,.0f} ± {way.spread:,.0f} steps" for way in ways]
    beside = f", direct training {told[1]}" if len(told) > 1 else ""
    runs = f"mean and standard deviation of {ways[0].runs} runs"
    return values, f"In batches of {batch:,} the plan takes {told[0]}{beside} ({runs})."


def _values(study: Study, found: Plan) -> dict[str, Any]:
    best = found.best
    return {
        "target": study.target.name,
        "learning_rate": study.learning_rate,
        "accuracy": study.accuracy,
        "by": found.ground.by,
        "goal": found.ground.goal,
        "summary": found.summary,
        "counted_by": "descent" if found.counted else "flow",
        "interval": None if found.interval is None else list(found.interval),
        "worthwhile": found.worthwhile,
        "saving": found.saving,
        "saving_interval": None if found.saving_interval is None else list(found.saving_interval),
        "proof": found.proof,
        "lower_bound": found.lower_bound,
        "direct": {
            "descent_steps": counted(found.direct.descent_steps),
            "flow_steps": found.direct.flow_steps,
            "total": found.direct_total,
            "status": found.direct.status.name,
            **_interval(found.direct_interval),
        },
        "candidates": [_candidate(c) for c in found.candidates],
        "best": {
            "stages": [
                {
                    "task": o.stage.task.name,
                    "accuracy": o.accuracy if o.stage.accuracy is None else o.stage.accuracy,
                    "descent_steps": counted(o.descent_steps),
                    "flow_steps": o.flow_steps,
                    "status": o.status.name,
                    **_interval(o.interval),
                }
                for o in best.outcomes
            ],
            "descent_steps": counted(best.descent_steps),
            "flow_steps": best.flow_steps,
            "saving": found.saving,
            "saving_ratio": found.saving_ratio,
            **_interval(found.interval),
            "total": found.total,
        },
        "flow": {
            "total": found.flow.best.total,
            "direct_total": found.flow.direct.total,
            "stages": [
                {"task": found.ground.tasks[k].name, "flow_steps": t}
                for k, t in zip(found.flow.best.order, found.flow.best.durations, strict=True)
            ],
        },
        "alternatives": [
            {"plan": a.name, "steps": a.steps, "total": a.total, "extra": a.extra} for a in found.alternatives
        ],
        "sensitivity": [dict(vars(s)) for s in found.sensitivity],
    }


def _candidate(c: Candidate) -> dict[str, Any]:
    return {
        "task": c.task.name,
        "best_accuracy": c.accuracy,
        "stop_steps": c.stop_steps,
        "descent_steps": counted(c.descent_steps),
        "flow_steps": c.flow_steps,
        "saving": c.saving,
        "saving_ratio": c.saving_ratio,
        "total": c.total,
        **_interval(c.interval),
        "helps": c.helps,
        "status": c.status.name,
        "why": c.why,
        "validity": [validity(a) for a in c.assumptions],
    }


def _interval(interval: tuple[float, float] | None) -> dict[str, Any]:
    """The 95% interval of steps, for forecasts that rest on samples."""
    return {} if interval is None else {"interval": list(interval)}


def _what_if_tables(found: Plan) -> list[Table]:
    """What other plans cost, and what stopping early or late does."""
    tables, unit = [], "steps" if found.counted else "flow steps"
    if found.alternatives:
        rows = [(a.name, shown(a.steps, 0), f"{a.extra:+,.0f}") for a in found.alternatives]
        tables.append(Table("Instead of this", ("plan", unit, "costs more"), rows))
    if found.sensitivity:
        shifts = [
            (s.task, f"{s.factor:.0%}", shown(s.steps, 0), shown(s.all_steps, 0), f"{s.extra:+,.0f}")
            for s in found.sensitivity
        ]
        columns = ("stage", "length", unit, "in all", "costs more")
        tables.append(Table("If a stage stops early or late", columns, shifts))
    return tables


def _front_values(front: Front) -> dict[str, Any]:
    data = front.dataset
    return {"task": front.task.name} | {
        key: data[key].values.tolist() for key in ("excess_loss", "total", "proof", "order")
    }


def _front_table(front: Front) -> Table:
    data = front.dataset
    rows = [
        (f"{float(loss):.4g}", shown(float(total)), str(order), str(proof))
        for loss, total, order, proof in zip(
            data["excess_loss"].values, data["total"].values, data["order"].values, data["proof"].values, strict=True
        )
    ]
    columns = ("excess loss left on it", "cost, by the flow", "order", "proof")
    return Table(f"What remembering {front.task.name} costs", columns, rows)


def draw_plan(found: Plan) -> Figure:
    """The target under the plan and directly, the ranking, and the portrait of the chosen stop."""
    from learncast.figures import page, ranking, stop_curve, stop_map

    whole = bool(found.candidates) and not found.given_up
    figure, axes = page(2 if whole else 1, 2 if whole else 1, width=3.55, height=2.7)
    found.plot(axes[0])
    if whole:
        ranking(found.dataset, axes[1], priced=found.terms.priced, title="Candidates before the target")
        first = found.best.outcomes[0].stage.task
        chosen = next((k for k, c in enumerate(found.candidates) if c.task is first), 0)
        portrait = stop_portrait(found, chosen)
        stop_curve(portrait, axes[2], title="One candidate's stop, and what it costs")
        stop_map(portrait, axes[3], title="The same for other accuracies")
    return figure
