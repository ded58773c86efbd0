"""What a study says, which way it will be answered and why, and what that will cost."""

from __future__ import annotations

import math
from typing import Any

from learncast._core.errors import LearncastError, OutOfTime
from learncast._core.progress import time_limit
from learncast.answers.answer import validity
from learncast.card import so_many
from learncast.planning.forgetting import in_sequence
from learncast.planning.methods.ground import Ground
from learncast.results import FORECAST_CLASSES
from learncast.study import Study

#: Ways in the order in which they are tried, from exact to general.
WAYS = ("modes", "two-layer", "pooled", "flow")
#: Seconds for which direct training is followed.
LOOKED = 5.0


def explained(study: Study, *, by: str = "auto") -> dict[str, Any]:
    """The parts of an explanation, as plain values; `in_words` writes them out."""
    stages = [task for task, _ in study.sequence]
    tasks = [study.target, *study.candidates] if study.section.target is not None else stages
    ground = study.ground(by) if study.section.target is not None else _of_sequence(study, by)
    found: dict[str, Any] = {
        "study": study.resolved(),
        "tasks": [
            {"name": t.name, "steps": t.steps, "inputs": t.inputs, "outputs": t.outputs, "trials": t.trials}
            for t in tasks
        ],
        "by": ground.by,
        "class": ground.trust_of(range(len(ground.tasks))).forecast_class,
        "conditions": [validity(one) for one in ground.assumptions],
        "passed_over": [] if by != "auto" else _passed_over(study, ground.by),
    }
    if study.section.target is not None:
        found |= _cost(study, ground)
    return found


def _of_sequence(study: Study, by: str) -> Ground:
    tasks, steps = zip(*study.sequence, strict=True)
    options: dict[str, Any] = {"steps": steps, "learn": study.named_learn, "by": by, "strict": False}
    return in_sequence(tasks, study.network, learning_rate=study.learning_rate, **options).ground


def _passed_over(study: Study, chosen: str) -> list[dict[str, str]]:
    """Ways that would have been taken before this one, and what keeps them from it."""
    found = []
    for way in WAYS[: WAYS.index(chosen)] if chosen in WAYS else ():
        try:
            ground = study.ground(way) if study.section.target is not None else _of_sequence(study, way)
            failed = next((one for one in ground.assumptions if not one.holds), None)
            if failed is None:
                continue
            words = f"{failed.name.replace('_', ' ')} measures {failed.measured:.3g}, and may be {failed.allowed:g}"
        except LearncastError as error:
            words = str(error)
        found.append({"by": way, "because": words})
    return found


def _cost(study: Study, ground: Ground) -> dict[str, Any]:
    """Steps of direct training, and how many ways of pretraining a plan weighs."""
    pool = len(study.candidates)
    orders = pool if ground.by == "modes" else sum(pool**k for k in range(1, study.max_stages))
    try:
        with time_limit(LOOKED):
            direct = ground.learning_time(ground.target, study.accuracy)
    except OutOfTime:
        return {"direct_steps": None, "direct_status": "", "orders": orders}
    steps = direct.flow_steps if math.isnan(direct.descent_steps) else direct.descent_steps  # too many to be counted
    return {"direct_steps": steps, "direct_status": direct.status.value, "orders": orders}


def in_words(study: Study, found: dict[str, Any]) -> str:
    """The explanation for people."""
    lines = [f"{study.name} ({study.source})", "", found["study"].strip(), ""]
    lines += ["Tasks:"]
    for task in found["tasks"]:
        trials = f", {task['trials']:,} recorded trials" if task["trials"] else ""
        sizes = ", ".join(so_many(task[f"{word}s"], word) for word in ("step", "input", "output"))
        lines.append(f"  {task['name']}: {sizes}{trials}")
    lines += ["", f"Way: {found['by']} ({found['class']}: {FORECAST_CLASSES[found['class']]})"]
    lines += [f"  not {one['by']}: {one['because']}" for one in found["passed_over"]]
    lines += [
        f"  {one['assumption'].replace('_', ' ')}: measures {float(one['measured']):.3g}, may be {one['allowed']:g}"
        for one in found["conditions"]
    ]
    if "direct_steps" in found:
        lines += ["", "Cost:", *(f"  {line}" for line in _cost_in_words(study, found))]
    return "\n".join(lines)


def _cost_in_words(study: Study, found: dict[str, Any]) -> list[str]:
    if found["direct_steps"] is None:
        return [f"direct training could not be followed in {LOOKED:.0f} s: give answers a time with --seconds"]
    steps = found["direct_steps"]
    if not math.isfinite(steps):
        return [f"direct training is forecast never to reach its goal ({found['direct_status']})"]
    said = [f"direct training is forecast to take {steps:,.0f} steps ({found['direct_status']})"]
    if study.candidates and found["by"] == "modes":
        said.append(f"`learncast plan` solves {so_many(found['orders'], 'candidate')} in closed form")
    elif study.candidates:
        ways = so_many(found["orders"], "order")
        said.append(f"`learncast plan` tries {ways} of pretraining at many stops; --seconds bounds it")
    said.append(f"`learncast check` trains for real: {steps:,.0f} steps a run of direct training")
    return said
