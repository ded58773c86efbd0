"""Tables of a plan: what to do, stage by stage, and all candidates."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from learncast.display import Table, format_count, format_interval, format_number
from learncast.planning.plans.route import Candidate
from learncast.planning.schedules.schedule import PROOFS
from learncast.planning.wording import descended

if TYPE_CHECKING:
    from learncast.planning.plans.recommendation import Plan

#: Rows of a table for people; the files hold all.
MOST_ROWS = 25


def stages_table(found: Plan) -> Table:
    """What to do, stage by stage, and how good that is."""
    title = "Do this" if found.worthwhile or not found.pretrains else "The best plan, which hardly pays"
    return replace(found.best.table, title=title, notes=[_proof(found)] if found.candidates else [])


def _proof(found: Plan) -> str:
    """How good the plan is, in a sentence."""
    if found.proof != "best found":
        flow = "" if found.proof == "robust" else f" Its flow costs {format_number(found.flow.best.total)}."
        return f"How good it is: {found.proof}. {PROOFS[found.proof].capitalize()}.{flow}"
    if math.isnan(found.lower_bound):
        return "How good it is: the best of the plans that were tried. Nothing is proved: a better one may exist."
    total = found.flow.best.total
    gap = (total - found.lower_bound) / total if total > 0 else 0.0
    return f"How good it is: best found. A better plan may exist, by {gap:.1%} of the flow's cost at most."


def ranking_table(found: Plan) -> Table:
    """All candidates, best first."""
    shown_rows = found.candidates[:MOST_ROWS]
    rows: list[tuple[str, ...]] = [
        (
            c.task.name,
            f"{c.accuracy:.4g}" if c.helps else "do not use" if c.tried else "not tried",
            descended(c.descent_steps, c.status),
            format_number(c.flow_steps),
            format_count(c.saving),
            f"{c.saving_ratio:.3f}",
        )
        for c in shown_rows
    ]
    alone = found.direct
    rows.append(
        (
            "direct training",
            "",
            descended(alone.descent_steps, alone.status),
            format_number(alone.flow_steps),
            "",
            "1.000",
        )
    )
    columns: tuple[str, ...] = ("candidate", "best stop", "descent steps", "flow steps", "saves", "ratio")
    if found.terms.priced:
        costs = [*(c.total for c in shown_rows), found.direct_total]
        rows = [(*row, format_number(cost)) for row, cost in zip(rows, costs, strict=True)]
        columns = (*columns, "cost")
    if found.best.replicas is not None:
        ends = [*(c.interval for c in shown_rows), found.direct_interval]
        rows = [(*row, format_interval(i)) for row, i in zip(rows, ends, strict=True)]
        columns = (*columns, "95% interval")
    notes = [_reason(c) for c in shown_rows]
    if len(found.candidates) > MOST_ROWS:
        notes.append(f"{len(found.candidates) - MOST_ROWS} more candidates are in the files.")
    return Table("All candidates, best first", columns, rows, notes)


def _reason(c: Candidate) -> str:
    sentence = str(c.why["sentence"])
    return f"{sentence}." if c.task.name in sentence else f"{c.task.name}: {sentence}."
