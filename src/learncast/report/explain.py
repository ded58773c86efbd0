"""Explanation of a study: the method that will be used and why, and the cost of an answer."""

from __future__ import annotations

import math
from typing import Any

from learncast._core.errors import LearncastError, OutOfTime
from learncast._core.progress import time_limit
from learncast.display import plural
from learncast.planning.forget import stages_of
from learncast.planning.methods.choice import method_for
from learncast.planning.methods.method import Method
from learncast.report.report import fields, outcome_values, validity
from learncast.results import FORECAST_CLASSES
from learncast.study import Study

#: Methods in the order in which they are tried.
METHODS = ("modes", "two-layer", "pooled", "flow")
#: Seconds allowed for the forecast of direct training.
SECONDS = 5.0


def explain_study(study: Study, *, method: str = "auto") -> dict[str, object]:
    """The parts of an explanation, as plain values; `explanation_text` writes them out."""
    stages = [task for task, _ in study.sequence]
    tasks = [study.target, *study.candidates] if study.section.target is not None else stages
    chosen = _method(study, method)
    parts: dict[str, object] = {
        "study": study.resolved(),
        "tasks": [fields(task, "name steps inputs outputs trials") for task in tasks],
        "method": chosen.name,
        "class": chosen.trust(range(len(chosen.tasks))).forecast_class,
        "conditions": [validity(one) for one in chosen.assumptions],
        "rejected": [] if method != "auto" else _rejected(study, chosen.name),
    }
    if study.section.target is not None:
        parts |= _cost(study, chosen)
    return parts


def _method(study: Study, name: str) -> Method:
    if study.section.target is not None:
        return study.method(name)
    tasks, steps = zip(*study.sequence, strict=True)
    stages = stages_of(tasks, steps)
    return method_for([stage.task for stage in stages], study.network, study.training, method=name)


def _rejected(study: Study, chosen: str) -> list[dict[str, str]]:
    """Methods that come before the chosen one, and why they were rejected."""
    rows = []
    for name in METHODS[: METHODS.index(chosen)] if chosen in METHODS else ():
        try:
            failed = next((a for a in _method(study, name).assumptions if not a.holds), None)
            if failed is None:
                continue
            reason = f"{failed.name.replace('_', ' ')} measures {failed.measured:.3g}, allowed {failed.allowed:g}"
        except LearncastError as error:
            reason = str(error)
        rows.append({"method": name, "because": reason})
    return rows


def _cost(study: Study, method: Method) -> dict[str, object]:
    """Steps of direct training, and the number of orders that a plan tries."""
    pool = len(study.candidates)
    orders = {"orders": pool if method.name == "modes" else sum(pool**k for k in range(1, study.max_stages))}
    try:
        with time_limit(SECONDS):
            direct = method.learning_time(method.target, study.goal)
    except OutOfTime:
        return {"direct_steps": None, "direct_status": "", **orders}
    outcome = {f"direct_{key}": value for key, value in outcome_values(direct.steps).items()}
    return {"direct_steps": direct.steps.value, **outcome, "direct_status": direct.status.value, **orders}


def explanation_text(study: Study, parts: dict[str, Any]) -> str:
    """The explanation as text."""
    lines = [f"{study.name} ({study.source})", "", parts["study"].strip(), ""]
    lines += ["Tasks:"]
    for task in parts["tasks"]:
        trials = f", {task['trials']:,} recorded trials" if task["trials"] else ""
        sizes = ", ".join(plural(task[f"{word}s"], word) for word in ("step", "input", "output"))
        lines.append(f"  {task['name']}: {sizes}{trials}")
    lines += ["", f"Method: {parts['method']} ({parts['class']}: {FORECAST_CLASSES[parts['class']]})"]
    lines += [f"  not {one['method']}: {one['because']}" for one in parts["rejected"]]
    lines += [
        f"  {one['assumption'].replace('_', ' ')}: measures {float(one['measured']):.3g}, allowed {one['allowed']:g}"
        for one in parts["conditions"]
    ]
    if "direct_steps" in parts:
        lines += ["", "Cost:", *(f"  {line}" for line in _cost_text(study, parts))]
    return "\n".join(lines)


def _cost_text(study: Study, parts: dict[str, Any]) -> list[str]:
    if parts["direct_steps"] is None:
        return [f"direct training could not be forecast in {SECONDS:.0f} s: use --seconds"]
    steps = parts["direct_steps"]
    if "direct_tried" in parts:
        reached = f"the loss is then {parts['direct_loss_reached']:.3g}"
        return [f"direct training is forecast not to reach its goal within {parts['direct_tried']:,} steps; {reached}"]
    if not math.isfinite(steps):
        return [f"direct training {parts['direct_status']}"]
    lines = [f"direct training is forecast to take {steps:,.0f} steps ({parts['direct_status']})"]
    if study.candidates and parts["method"] == "modes":
        lines.append(f"`learncast plan` solves {plural(parts['orders'], 'candidate')} in closed form")
    elif study.candidates:
        orders = plural(parts["orders"], "order")
        lines.append(f"`learncast plan` tries {orders} of pretraining at many stops; --seconds limits it")
    lines.append(f"`learncast check` trains for real: {steps:,.0f} steps per run of direct training")
    return lines
