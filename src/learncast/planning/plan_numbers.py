"""The numbers of a plan: its dataset, the ranking and the stops of its candidates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from learncast._core.validation import FloatArray
from learncast.display import Columns, Table, format_count, format_interval, format_number
from learncast.planning.methods.method import Method
from learncast.planning.run import format_accuracy
from learncast.procedure.goals import Accuracy, Explained, Goal
from learncast.results import STEPS, described, variables

if TYPE_CHECKING:
    import xarray as xr

    from learncast.planning.plan import Plan

#: Rows of a table of candidates, and reasons below it; files hold all.
MOST_ROWS, MOST_REASONS = 25, 5
#: Stops and accuracies of a portrait: for methods that count many states together, and one by one.
MANY, FEW = (61, 21), (13, 9)


def plan_dataset(plan: Plan) -> xr.Dataset:
    """The ranking and the recommended stages, labelled."""
    import xarray as xr

    rows, unknown = plan.candidates, (math.nan, math.nan)
    columns: dict[str, tuple[list[float], str, str]] = {
        "best_accuracy": ([c.accuracy for c in rows], "accuracy at which to stop the candidate", "1"),
        "stop_steps": ([c.stop_steps for c in rows], "steps to spend on the candidate", STEPS),
        "descent_steps": ([c.steps.descent for c in rows], "descent steps of candidate and target together", STEPS),
        "flow_steps": ([c.steps.flow for c in rows], "flow steps of candidate and target together", STEPS),
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
        "plan_flow_total": (plan.flow_route.total, "cost of the plan that is best by the flow", "cost"),
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
    return xr.Dataset(
        variables("candidate", columns) | variables("stage", stages) | variables((), totals),
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
    some, priced = plan.candidates[:MOST_ROWS], plan.terms.priced
    counts = [*(c.steps for c in some), plan.direct]
    stops = [format_accuracy(c.accuracy) if c.helps else "do not use" if c.tried else "not tried" for c in some]
    columns: Columns = {
        "candidate": ([*(c.task.name for c in some), "direct training"], str),
        "best stop": ([*stops, ""], str),
        **({"cost": ([*(c.total for c in some), plan.direct_total], format_number)} if priced else {}),
        "steps": (counts, lambda steps: steps.count),
        **({} if priced else {"flow": ([steps.flow for steps in counts], format_number)}),
        "cost saved" if priced else "saves": ([*(format_count(c.saving) for c in some), ""], str),
        "ratio": ([*(c.saving_ratio for c in some), 1.0], "{:.3f}".format),
    }
    if plan.best.resampled is not None:
        interval = "95% interval of the cost" if priced else "95% interval"
        columns = {**columns, interval: ([*(c.interval for c in some), plan.direct_interval], format_interval)}
    sentences = [(f'"{c.task.name}"', str(c.why["sentence"])) for c in some[:MOST_REASONS]]
    notes = [f"{text[:1].upper()}{text[1:]}." if name in text else f"{name}: {text}." for name, text in sentences]
    if len(some) > MOST_REASONS:
        notes.append("The reasons of the other candidates are in the files.")
    if len(plan.candidates) > MOST_ROWS:
        notes.append(f"{len(plan.candidates) - MOST_ROWS} more candidates are in the files.")
    return Table.of("All candidates, best first", columns, notes)


def stop_portrait(plan: Plan, candidate: int = 0) -> xr.Dataset:
    """Compute the portrait that `Plan.stop_portrait` documents.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> pool = [task.varied(target_strength=s).renamed(f"strength {s:g}") for s in (1.5, 2.0)]
    >>> plan = lc.plan(task, pool, network, learning_rate=1e-3)
    >>> sorted(map(str, plan.stop_portrait().data_vars))
    ['direct_steps', 'saving_steps']
    """
    import xarray as xr

    chosen, method = plan.candidates[candidate], plan.method
    stops_number, accuracies_number = MANY if method.name in ("modes", "two-layer", "pooled", "deep") else FEW
    reach = max(2.0 * chosen.stop_steps, plan.direct_steps if np.isfinite(plan.direct_steps) else 0.0) or 1.0
    stops = np.unique([*np.linspace(0.0, reach, stops_number).round(), round(chosen.stop_steps)]).astype(int)
    asked = plan.direct_time.accuracy
    far = 1.0 - min(0.1 * (1.0 - asked), 1e-4) if asked < 1 else asked
    # Even in the logarithm of what is left to learn.
    accuracies = np.union1d(1.0 - np.geomspace(0.7, max(1.0 - far, 1e-6), accuracies_number), [asked])
    goals = [plan.goal if accuracy == asked else _goal(plan.goal, float(accuracy)) for accuracy in accuracies]
    states = method.advance(method.place(chosen.task), method.start[None], stops.tolist())[:, 0]
    totals = _totals(method, states, stops.astype(float), goals)
    measures = {"steps": (totals, STEPS)}
    if plan.terms.priced:
        stages = np.stack([np.broadcast_to(stops, totals.shape), totals - stops])
        measures["cost"] = plan.terms.price([method.place(chosen.task), method.target], stages), "cost"
    columns: dict[str, tuple[object, ...]] = {}
    for name, (spent, units) in measures.items():
        alone = spent[:, :1]
        with np.errstate(invalid="ignore"):
            saving = np.where(np.isfinite(alone), alone - spent, np.nan)
        saved = described(f"{name} saved against direct training", units)
        columns[f"saving_{name}"] = (("accuracy", "stop"), saving, saved)
        columns[f"direct_{name}"] = ("accuracy", alone[:, 0], described(f"{name} of direct training", units))
    same = [*plan.best.tasks[:-1]] == [chosen.task] and round(plan.stage_steps()[0]) == round(chosen.stop_steps)
    return xr.Dataset(
        columns,
        coords={
            "stop": ("stop", stops.astype(float), described(f"steps on {chosen.task.name}", STEPS)),
            "accuracy": ("accuracy", accuracies, described("accuracy asked of the target", "1")),
        },
        attrs={
            "candidate": chosen.task.name,
            "target": plan.target.name,
            "stop_steps": chosen.stop_steps,
            "accuracy": asked,
            "plan": int(same),
        },
    )


def _goal(like: Goal, accuracy: float) -> Goal:
    """An accuracy of every mode or, for goals on the loss, the loss that corresponds to it."""
    return Accuracy(accuracy) if isinstance(like, Accuracy) else Explained(1.0 - (1.0 - accuracy) ** 2)


def _totals(method: Method, states: FloatArray, spent: FloatArray, goals: list[Goal]) -> FloatArray:
    """Steps of both stages, (goals, stops): each goal is counted from where the one before it was met."""
    rows = []
    for goal in goals:
        rest, ends = method.steps_to(method.target, states, goal)
        spent = spent + np.where(np.isnan(rest), np.inf, rest)
        finite = np.isfinite(rest).reshape(-1, *(1,) * (states.ndim - 1))
        states = np.where(finite, ends, states)
        rows.append(spent)
    return np.stack(rows)
