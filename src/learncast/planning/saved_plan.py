"""The numbers of a plan: its dataset, the ranking of its candidates, and a plan read from a file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from learncast.display import Displayable, HtmlRepr, Plot, Table, format_count, format_interval, format_number
from learncast.planning.forecast import difference
from learncast.results import STEPS, Provenance, described

if TYPE_CHECKING:
    import xarray as xr

    from learncast.planning.plan import Plan

#: Rows of a table of candidates; files hold all.
MOST_ROWS = 25


def plan_dataset(plan: Plan) -> xr.Dataset:
    """The ranking and the recommended stages, labelled."""
    import xarray as xr

    rows, unknown = plan.candidates, (math.nan, math.nan)
    columns: dict[str, tuple[list[float], str, str]] = {
        "best_accuracy": ([c.accuracy for c in rows], "accuracy at which to stop the candidate", "1"),
        "stop_steps": ([c.stop_steps for c in rows], "steps to spend on the candidate", STEPS),
        "descent_steps": ([c.steps.descent for c in rows], "descent steps of candidate and target together", STEPS),
        "flow_steps": ([c.steps.flow for c in rows], "flow steps of both at the flow's own best stop", STEPS),
        "saving": ([c.saving for c in rows], "cost saved against direct training", "cost"),
        "saving_ratio": ([c.saving_ratio for c in rows], "cost of direct training over these", "1"),
        "total": ([c.total for c in rows], "cost of candidate and target together", "cost"),
    }
    totals = {
        "direct_steps": (plan.direct_steps, "steps of direct training", STEPS),
        "direct_flow_steps": (plan.direct.flow, "flow steps of direct training", STEPS),
        "direct_total": (plan.direct_total, "cost of direct training", "cost"),
        "plan_total": (plan.total, "cost of the recommended plan", "cost"),
        "plan_in_sample_total": (plan.in_sample_route.total, "cost of the cheapest plan on these data", "cost"),
        "plan_flow_total": (plan.flow_route.total, "cost of the best plan by the flow", "cost"),
    }
    if rows and plan.best.resampled is not None:
        for k, end in enumerate(("low", "high")):
            note = f"{end} end of its interval"
            columns[f"steps_{end}"] = ([getattr(c.steps, end) for c in rows], f"steps, {note}", STEPS)
            savings = [math.nan if c.costs is None else c.costs.saving_interval[k] for c in rows]
            columns[f"saving_{end}"] = (savings, f"saving, {note}", "cost")
            direct = (plan.direct.interval or unknown)[k]
            totals[f"direct_steps_{end}"] = (direct, f"direct steps, {note}", STEPS)
    stages = {
        "stage_steps": (plan.stage_steps(), "steps of the stage", STEPS),
        "stage_flow_steps": ([s.steps.flow for s in plan.best.stages], "flow steps of the stage", STEPS),
        "stage_accuracy": ([s.accuracy for s in plan.best.stages], "accuracy at its end", "1"),
    }
    variables: dict[str, Any] = {}
    for dim, group in (("candidate", columns), ("stage", stages)):
        for name, (values, text, units) in group.items():
            variables[name] = (dim, np.array(values, dtype=float), described(text, units))
    for name, (value, text, units) in totals.items():
        variables[name] = ((), value, described(text, units))
    return xr.Dataset(
        variables,
        coords={
            "candidate": ("candidate", np.array([c.task.name for c in rows], dtype=str)),
            "status": ("candidate", np.array([c.steps.status.name for c in rows], dtype=str)),
            "stage_task": ("stage", np.array([task.name for task in plan.best.tasks], dtype=str)),
        },
        attrs={
            "target": plan.target.name,
            "learning_rate": plan.learning_rate,
            "goal": plan.goal.text,
            "method": plan.method.name,
            "proof": plan.proof,
            "summary": plan.summary,
        },
    )


def ranking_table(plan: Plan) -> Table:
    """All candidates, best first."""
    some = plan.candidates[:MOST_ROWS]
    rows: list[tuple[str, ...]] = [
        (
            c.task.name,
            f"{c.accuracy:.4g}" if c.helps else "do not use" if c.tried else "not tried",
            c.steps.count,
            format_number(c.steps.flow),
            format_count(c.saving),
            f"{c.saving_ratio:.3f}",
        )
        for c in some
    ]
    direct = plan.direct
    steps = direct.count, format_number(direct.flow)
    rows.append(("direct training", "", *steps, "", "1.000"))
    columns: tuple[str, ...] = ("candidate", "best stop", "descent steps", "flow steps", "saves", "ratio")
    if plan.terms.priced:
        costs = [*(c.total for c in some), plan.direct_total]
        rows = [(*row, format_number(cost)) for row, cost in zip(rows, costs, strict=True)]
        columns = (*columns, "cost")
    if plan.best.resampled is not None:
        ends = [*(c.interval for c in some), plan.direct_interval]
        rows = [(*row, format_interval(i)) for row, i in zip(rows, ends, strict=True)]
        columns = (*columns, "95% interval of the cost" if plan.terms.priced else "95% interval")
    sentences = [(c.task.name, str(c.why["sentence"])) for c in some]
    notes = [f"{text}." if name in text else f"{name}: {text}." for name, text in sentences]
    if len(plan.candidates) > MOST_ROWS:
        notes.append(f"{len(plan.candidates) - MOST_ROWS} more candidates are in the files.")
    return Table("All candidates, best first", columns, rows, notes)


@dataclass(frozen=True, eq=False, repr=False)
class SavedPlan(Displayable):
    """A plan read from a file: its numbers and summary, without the tasks and the network."""

    dataset: xr.Dataset
    provenance: Provenance

    @property
    def summary(self) -> str:
        """The recommendation in one paragraph."""
        return str(self.dataset.attrs["summary"])

    @property
    def proof(self) -> str:
        """How good the recommendation is."""
        return str(self.dataset.attrs["proof"])

    @property
    def total(self) -> float:
        """Cost of the recommended stages."""
        return float(self.dataset["plan_total"])

    @property
    def direct_total(self) -> float:
        """Cost of direct training."""
        return float(self.dataset["direct_total"])

    @property
    def saving(self) -> float:
        """Cost saved against direct training."""
        return difference(self.direct_total, self.total)

    @property
    def stages_table(self) -> Table:
        """The recommended stages."""
        names = [str(name) for name in self.dataset["stage_task"].values]
        steps, accuracy = self.dataset["stage_steps"].values, self.dataset["stage_accuracy"].values
        rows = [(n, format_count(float(s)), f"{float(a):.4g}") for n, s, a in zip(names, steps, accuracy, strict=True)]
        return Table("Do this", ("stage", "steps", "stop at accuracy"), rows)

    def _html_repr(self) -> HtmlRepr:
        return HtmlRepr(f"Plan for {self.dataset.attrs['target']}", self.summary, [self.stages_table])

    def _plot(self) -> Plot:
        return Plot.of("ranking", self.dataset, title="Candidates before the target")

    def __repr__(self) -> str:
        target = self.dataset.attrs["target"]
        return f"<SavedPlan for {target!r}: saves {self.saving:.6g} of {self.direct_total:.6g}; {self.proof}>"
