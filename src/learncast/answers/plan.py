"""Which pretraining tasks help, and when do I stop them?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from learncast.answers.answer import Answer, between, counted, descended, shown, validity
from learncast.errors import InvalidSpec
from learncast.planning.curricula.curriculum import Curriculum
from learncast.planning.curricula.traced_curriculum import TracedCurriculum
from learncast.planning.plans.candidate import Candidate
from learncast.planning.plans.planner import plan
from learncast.planning.plans.recommendation import Plan
from learncast.planning.schedules.pareto import Front, forgetting_front
from learncast.planning.schedules.schedule import PROOFS
from learncast.progress import Progress, silent
from learncast.report import Table
from learncast.study import Study
from learncast.validation import suggestion

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Rows of a table for people; the files hold all.
MOST_ROWS = 25


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
    front = None if remember is None else _front(study, remember)
    share = 1.0 if front is None else 0.5
    found = plan(
        study.target,
        study.candidates,
        study.network,
        **study.plan_rules,
        by=by,
        strict=False,
        progress=lambda done: progress(share * done),
    )
    traded = None if front is None else front(lambda done: progress(share + share * done))
    values: dict[str, Any] = {
        "target": study.target.name,
        "learning_rate": study.learning_rate,
        "accuracy": study.accuracy,
        "goal": found.terms.goal,
        "summary": found.summary,
        "interval": None if found.interval is None else list(found.interval),
        "saving": found.saving,
        "saving_interval": None if found.saving_interval is None else list(found.saving_interval),
        "proof": found.proof,
        "lower_bound": found.lower_bound,
        "direct": {
            "flow_steps": found.direct.flow_steps,
            "descent_steps": counted(found.direct.descent_steps),
            "total": found.direct_total,
            "status": found.direct.status.name,
            **_interval(found.direct.interval or found.best.direct_interval),
        },
        "candidates": [_candidate(c) for c in found.candidates],
        "best": {**_best(found.best), "total": found.total},
        "alternatives": [
            {
                "plan": a.name,
                "flow_steps": a.flow_steps,
                "descent_steps": counted(a.descent_steps),
                "total": a.total,
                "extra": a.extra,
            }
            for a in found.alternatives
        ],
        "sensitivity": [
            {
                "stage": s.stage,
                "task": s.task,
                "factor": s.factor,
                "steps": s.steps,
                "flow_steps": s.flow_steps,
                "total": s.total,
                "extra": s.extra,
            }
            for s in found.sensitivity
        ],
    }
    tables = [_stages_table(found), _ranking_table(found), *_what_if_tables(found)]
    if traded is not None:
        values["front"] = _front_values(traded)
        tables.append(_front_table(traded))
    return Answer(
        kind="plan",
        title=f"{study.name}: plan",
        lead=found.summary,
        forecast_class=found.forecast_class,
        values=values,
        tables=tables,
        assumptions=found.assumptions,
        dataset=found.dataset,
        draw=lambda: draw_plan(found),
        provenance=found.provenance,
        study=study.resolved(),
    )


def _candidate(c: Candidate) -> dict[str, Any]:
    return {
        "task": c.task.name,
        "best_accuracy": c.accuracy,
        "stop_steps": c.stop_steps,
        "flow_steps": c.flow_steps,
        "descent_steps": counted(c.descent_steps),
        "speedup_steps": c.speedup_steps,
        "speedup_ratio": c.speedup_ratio,
        "total": c.total,
        **_interval(c.interval),
        "helps": c.helps,
        "status": c.status.name,
        "why": c.why,
        "validity": [validity(a) for a in c.assumptions],
    }


def _best(best: Curriculum) -> dict[str, Any]:
    return {
        "stages": [
            {
                "task": o.stage.task.name,
                "accuracy": o.accuracy if o.stage.accuracy is None else o.stage.accuracy,
                "flow_steps": o.flow_steps,
                "descent_steps": counted(o.descent_steps),
                "status": o.status.name,
                **_interval(o.interval),
            }
            for o in best.outcomes
        ],
        "flow_steps": best.flow_steps,
        "descent_steps": counted(best.descent_steps),
        "speedup_steps": best.speedup_steps,
        "speedup_ratio": best.speedup_ratio,
        **_interval(best.interval),
    }


def _interval(interval: tuple[float, float] | None) -> dict[str, Any]:
    """The 95% interval of flow steps, for forecasts that rest on samples."""
    return {} if interval is None else {"interval": list(interval)}


def _stages_table(found: Plan) -> Table:
    best = found.best
    rows: list[tuple[str, ...]] = [
        (
            o.stage.task.name,
            f"{o.accuracy:.4g}",
            shown(o.flow_steps),
            descended(o.descent_steps, o.status),
            o.status.name,
        )
        for o in best.outcomes
    ]
    rows.append(("total", "", shown(best.flow_steps), descended(best.descent_steps, best.status), best.status.name))
    notes = [_proof(found)] if found.candidates else []
    return Table("Do this", ("stage", "stop at accuracy", "flow steps", "descent steps", "status"), rows, notes)


def _proof(found: Plan) -> str:
    """How good the plan is, in a sentence."""
    if found.proof != "best found":
        return f"How good it is: {found.proof}. {PROOFS[found.proof].capitalize()}."
    if math.isnan(found.lower_bound):
        return "How good it is: the best of the plans that were tried. Nothing is proved: a better one may exist."
    gap = (found.total - found.lower_bound) / found.total if found.total > 0 else 0.0
    return f"How good it is: best found. A better plan may exist, by {gap:.1%} of the cost at most."


def _ranking_table(found: Plan) -> Table:
    priced = not np.allclose([c.total for c in found.candidates], [c.flow_steps for c in found.candidates])
    rows: list[tuple[str, ...]] = [
        (
            c.task.name,
            f"{c.accuracy:.4g}" if c.helps else "do not use",
            shown(c.flow_steps),
            descended(c.descent_steps, c.status),
            shown(c.speedup_steps),
            f"{c.speedup_ratio:.3f}",
        )
        for c in found.candidates[:MOST_ROWS]
    ]
    alone = found.direct
    rows.append(
        ("direct training", "", shown(alone.flow_steps), descended(alone.descent_steps, alone.status), "", "1.000")
    )
    columns: tuple[str, ...] = ("candidate", "best stop", "flow steps", "descent steps", "saves", "ratio")
    if priced:
        costs = [*(c.total for c in found.candidates[:MOST_ROWS]), found.direct_total]
        rows = [(*row, shown(cost)) for row, cost in zip(rows, costs, strict=True)]
        columns = (*columns, "cost")
    if found.best.replicas is not None:
        intervals = [c.interval for c in found.candidates[:MOST_ROWS]]
        ends = [*intervals, alone.interval or found.best.direct_interval]
        rows = [(*row, between(i)) for row, i in zip(rows, ends, strict=True)]
        columns = (*columns, "95% interval")
    notes = [_reason(c) for c in found.candidates[:MOST_ROWS]]
    if len(found.candidates) > MOST_ROWS:
        notes.append(f"{len(found.candidates) - MOST_ROWS} more candidates are in the files.")
    return Table("All candidates, best first", columns, rows, notes)


def _reason(c: Candidate) -> str:
    sentence = str(c.why["sentence"])
    return f"{sentence}." if c.task.name in sentence else f"{c.task.name}: {sentence}."


def _what_if_tables(found: Plan) -> list[Table]:
    """What other plans cost, and what stopping early or late does."""
    tables = []
    if found.alternatives:
        rows = [(a.name, shown(a.flow_steps), f"{a.extra:+,.2f}") for a in found.alternatives]
        tables.append(Table("Instead of this", ("plan", "flow steps", "costs more"), rows))
    if found.sensitivity:
        shifts = [
            (s.task, f"{s.factor:.0%}", shown(s.steps), shown(s.flow_steps), f"{s.extra:+,.2f}")
            for s in found.sensitivity
        ]
        columns = ("stage", "length", "flow steps", "in all", "costs more")
        tables.append(Table("If a stage stops early or late", columns, shifts))
    return tables


def _front(study: Study, remember: str) -> Any:
    """The search for the front, ready to start; refuses names it does not know."""
    names = [task.name for task in study.candidates]
    if remember not in names:
        raise InvalidSpec(
            required="--remember must name a candidate",
            got=repr(remember),
            why="only what is trained before the target can be remembered",
            remedy=suggestion(remember, tuple(names)) or f"use one of {', '.join(names)}",
        )
    rules = {key: value for key, value in study.plan_rules.items() if key not in ("learn", "most_excess_loss")}
    rules["goal"] = rules["goal"] or "modes"
    rules["max_stages"] = max(2, study.max_stages)
    return lambda progress: forgetting_front(
        study.target,
        study.candidates,
        study.recurrent_network,
        **rules,
        remember=names.index(remember),
        progress=progress,
    )


def _front_values(front: Front) -> dict[str, Any]:
    data = front.dataset
    return {
        "task": front.task.name,
        "excess_loss": data["excess_loss"].values,
        "total": data["total"].values,
        "proof": data["proof"].values.tolist(),
        "order": data["order"].values.tolist(),
    }


def _front_table(front: Front) -> Table:
    data = front.dataset
    rows = [
        (f"{float(loss):.4g}", shown(float(total)), str(order), str(proof))
        for loss, total, order, proof in zip(
            data["excess_loss"].values, data["total"].values, data["order"].values, data["proof"].values, strict=True
        )
    ]
    columns = ("excess loss left on it", "cost", "order", "proof")
    return Table(f"What remembering {front.task.name} costs", columns, rows)


def draw_plan(found: Plan) -> Figure:
    """The target under the plan and directly, the ranking, and the portrait of the chosen stop."""
    from learncast.figures import page, ranking, stop_curve, stop_map
    from learncast.planning.plans.stop_portrait import stop_portrait

    figure, axes = page(2 if found.candidates else 1, 2 if found.candidates else 1, width=5.4, height=3.8)
    _draw_paths(found, axes[0])
    if found.candidates:
        ranking(found.dataset, axes[1], title="Candidates before the target")
        chosen = next((k for k, c in enumerate(found.candidates) if c.task is found.best.outcomes[0].stage.task), 0)
        portrait = stop_portrait(found, chosen)
        stop_curve(portrait, axes[2], title="One candidate's stop, and what it costs")
        stop_map(portrait, axes[3], title="The same for other accuracies")
    return figure


def _draw_paths(found: Plan, ax: Any) -> None:
    from learncast.figures import curriculum_paths, loss_paths, mode_strengths

    best, direct = found.best, found.direct
    spans = [s for s in (direct.flow_steps, best.flow_steps) if math.isfinite(s)]
    span = 1.25 * max(spans, default=1000.0) or 1.0
    alone = found.planner.follow([best.outcomes[-1].stage])
    ends = np.cumsum([o.flow_steps for o in best.outcomes])[:-1]
    switches = [float(t) for t in ends if math.isfinite(t)]
    if isinstance(best, TracedCurriculum):
        times = np.linspace(0.0, span, 120)
        goal = (1.0 - found.terms.accuracy) ** 2 * best.ground.whole(best.ground.target)
        path, straight = best.at(times).dataset, alone.at(times).dataset
        loss_paths(path, straight, ax, goal=goal, switches=switches, title=f"Learning {found.target.name}")
        return
    if not best.modes:  # measured responses have features instead of modes
        strengths = best.at(np.linspace(0.0, span, 60)).dataset["strength"]
        mode_strengths(strengths.stack(mode=("row", "feature")).to_dataset(), ax, title=f"Learning {found.target.name}")
        return
    mode = int(np.argmax(_mode_times(found)))
    staged = len(best.outcomes) > 1
    times = np.linspace(0.0, span, 500)
    curriculum_paths(
        best.at(times).dataset,
        alone.at(times).dataset,
        ax,
        optimum=float(best.modes[-1].optimum[mode]),
        tolerance=1 - found.terms.accuracy,
        first_optimum=float(best.modes[0].optimum[mode]) if staged else None,
        switch=switches[0] if switches else None,
        mode=mode,
        title=f"Slowest mode of {found.target.name}",
    )


def _mode_times(found: Plan) -> Any:
    """Time of each mode of the target trained alone."""
    from learncast.planning.plans.mode_planner import ModePlanner
    from learncast.responses.modes import solution_of

    assert isinstance(found.planner, ModePlanner)
    target = found.planner.target
    return solution_of(target, found.planner.network, found.learning_rate).time_to(found.terms.accuracy).mode_flow_steps
