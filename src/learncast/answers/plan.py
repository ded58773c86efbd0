"""Which pretraining task helps, and when do I stop it?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from learncast.answers.answer import Answer, between, counted, descended, shown, validity, whole, within
from learncast.planning.curriculum import Curriculum
from learncast.planning.planner import Candidate, Plan, plan
from learncast.progress import Progress, silent
from learncast.report import Table
from learncast.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def planned(study: Study, *, progress: Progress = silent) -> Answer:
    """Rank the study's candidates as intermediate tasks, each with its best stop."""
    found = plan(
        study.target,
        study.candidates,
        study.recurrent_network,
        learning_rate=study.learning_rate,
        accuracy=study.accuracy,
        max_stages=study.max_stages,
        strict=False,
        progress=progress,
    )
    values: dict[str, Any] = {
        "target": study.target.name,
        "learning_rate": study.learning_rate,
        "accuracy": study.accuracy,
        "direct": {
            "flow_steps": found.direct.flow_steps,
            "descent_steps": counted(found.direct.descent_steps),
            "status": found.direct.status.name,
            **_interval(found.direct.interval),
        },
        "candidates": [_candidate(c) for c in found.candidates],
        "best": _best(found.best),
    }
    return Answer(
        kind="plan",
        title=f"{study.name}: plan",
        lead=_lead(found),
        forecast_class=found.forecast_class,
        values=values,
        tables=[_stages_table(found.best), _ranking_table(found)],
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


def _lead(found: Plan) -> str:
    best, target = found.best, found.target.name
    if not np.isfinite(found.direct.flow_steps) and not np.isfinite(best.flow_steps):
        return f"{target} is never learned, directly or after any candidate: it {found.direct.status.value}."
    if len(best.outcomes) == 1 and not np.isfinite(found.direct.descent_steps):
        return (
            f"Gradient descent diverges on {target} at this learning rate, whatever comes before; the flow takes "
            f"{shown(found.direct.flow_steps)} steps. Lower the learning rate."
        )
    if len(best.outcomes) == 1:
        return (
            f"Do not pretrain: train {target} directly, {whole(found.direct.descent_steps)} gradient steps "
            f"(flow: {shown(found.direct.flow_steps)}). No candidate saves time at any stop."
        )
    first, last = best.outcomes
    then = (
        f"then {target} for {whole(last.descent_steps)}"
        if last.descent_steps > 0
        else f"which already is within the tolerance of {target}"
    )
    return (
        f"Train {first.stage.task.name} to {first.accuracy:.4g} ({whole(first.descent_steps)} gradient steps), {then}. "
        f"That takes {shown(best.flow_steps)} flow steps{within(best.interval)} instead of "
        f"{shown(found.direct.flow_steps)}{within(found.direct.interval)}: "
        f"{best.speedup_ratio:.3g} times faster."
    )


def _stages_table(best: Curriculum) -> Table:
    rows = [
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
    return Table("Do this", ("stage", "stop at accuracy", "flow steps", "descent steps", "status"), rows)


def _ranking_table(found: Plan) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            c.task.name,
            f"{c.accuracy:.4g}" if c.helps else "do not use",
            shown(c.flow_steps),
            descended(c.descent_steps, c.status),
            shown(c.speedup_steps),
            f"{c.speedup_ratio:.3f}",
        )
        for c in found.candidates[:25]
    ]
    alone = found.direct
    rows.append(
        ("direct training", "", shown(alone.flow_steps), descended(alone.descent_steps, alone.status), "", "1.000")
    )
    columns: tuple[str, ...] = ("candidate", "best stop", "flow steps", "descent steps", "saves", "ratio")
    if alone.interval is not None:
        intervals = [c.interval for c in found.candidates[:25]]
        rows = [(*row, between(i)) for row, i in zip(rows, [*intervals, alone.interval], strict=True)]
        columns = (*columns, "95% interval")
    notes = [_reason(c) for c in found.candidates[:25]]
    if len(found.candidates) > 25:
        notes.append(f"{len(found.candidates) - 25} more candidates are in the files.")
    return Table("All candidates, best first", columns, rows, notes)


def _reason(c: Candidate) -> str:
    sentence = str(c.why["sentence"])
    return f"{sentence}." if c.task.name in sentence else f"{c.task.name}: {sentence}."


def draw_plan(found: Plan) -> Figure:
    """Left the slowest mode under the plan and directly, right the ranking."""
    from learncast.figures import curriculum_paths, page, ranking
    from learncast.planning.curriculum import follow_modes

    best, direct = found.best, found.direct
    mode = int(np.argmax(direct.mode_flow_steps))
    spans = [s for s in (direct.flow_steps, best.flow_steps) if np.isfinite(s)]
    times = np.linspace(0.0, 1.25 * max(spans, default=1000.0) or 1.0, 500)
    alone = follow_modes([best.outcomes[-1].stage], (best.modes[-1],), found.network, found.learning_rate)
    figure, axes = page(1, 2 if found.candidates else 1, width=5.4, height=3.8)
    staged = len(best.outcomes) > 1
    curriculum_paths(
        best.at(times).dataset,
        alone.at(times).dataset,
        axes[0],
        optimum=float(best.modes[-1].optimum[mode]),
        tolerance=1 - direct.accuracy,
        first_optimum=float(best.modes[0].optimum[mode]) if staged else None,
        switch=best.outcomes[0].flow_steps if staged and np.isfinite(best.outcomes[0].flow_steps) else None,
        mode=mode,
        title=f"Slowest mode of {found.target.name}",
    )
    if found.candidates:
        ranking(found.dataset, axes[1], title="Candidates before the target")
    return figure
