"""Own data: how long a network takes to learn the trials that were dropped on the page, and what to train first."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast.display import bracketed_interval, format_count, format_number
from learncast.networks.linear_rnn import LinearRNN
from learncast.planning.plans.planner import plan
from learncast.planning.plans.recommendation import Plan
from learncast.planning.terms import Terms
from learncast.tasks.recorded.files import from_file
from learncast.tasks.task import Task
from learncast.web.panel import (
    FIRST,
    MOMENTS,
    TARGET,
    Axis,
    Clock,
    Note,
    Panel,
    Reading,
    Trace,
    View,
    validity_of,
    warnings_of,
)
from learncast.web.uploads import UPLOADS

#: Kinds of file that may be dropped.
KINDS = (".npz", ".csv")
#: How many times as strong the targets of each first task are that is weighed.
STRENGTHS = (0.5, 1.5, 2.0, 3.0)
#: Points of a curve, and seconds that a plan may take.
_POINTS, _SECONDS = 200, 15.0


def tasks_of(token: str) -> tuple[Task, ...]:
    """The dropped trials as a task, then with weaker and with stronger targets where these are numbers."""
    name = UPLOADS.name(token)
    if Path(name).suffix.lower() not in KINDS:
        raise InvalidSpec(
            f"trials must come as {' or '.join(KINDS)}, got {name!r}. Save them with numpy.savez(file, "
            "inputs=..., targets=...).",
            field="trials",
        )
    found: tuple[Task, ...] = UPLOADS.read(token, "tasks", lambda path: _read(path, Path(name).stem))
    return found


def _read(path: Path, name: str) -> tuple[Task, ...]:
    own = from_file(path, name=name)
    if own.recording is not None and own.recording.classes is not None:
        return (own,)  # a class is there or not
    scale: Callable[[Path, Path, float], bool] = _scaled_table if path.suffix == ".csv" else _scaled_arrays
    firsts = []
    for strength in STRENGTHS:
        copy = path.with_name(f"scaled{path.suffix}")
        if scale(path, copy, strength):
            firsts.append(from_file(copy, name=f"targets × {strength:g}"))
    return (own, *firsts)


def _scaled_arrays(path: Path, copy: Path, strength: float) -> bool:
    with np.load(path, allow_pickle=False) as arrays:
        if "targets" not in arrays.files:
            return False
        np.savez(copy, **{key: arrays[key] * (strength if key == "targets" else 1) for key in arrays.files})
    return True


def _scaled_table(path: Path, copy: Path, strength: float) -> bool:
    with path.open(newline="", encoding="utf-8-sig") as given, copy.open("w", newline="", encoding="utf-8") as made:
        rows = csv.DictReader(given)
        names = list(rows.fieldnames or ())
        scaled = [name for name in names if name.startswith("target")]
        writer = csv.DictWriter(made, names)
        writer.writeheader()
        for row in rows:
            writer.writerow({**row, **{name: repr(strength * float(row[name])) for name in scaled if row[name]}})
    return bool(scaled)


@dataclass(frozen=True)
class Asked:
    """What the room's controls say about the network and its training."""

    data: str
    recurrence: float
    initial: float
    hidden_size: int
    learning_rate: float
    accuracy: float


@lru_cache(maxsize=32)
def planned(asked: Asked) -> Plan:
    """What `learncast.plan` says of the trials and of the first tasks made from them."""
    own, *firsts = tasks_of(asked.data)
    units = max(asked.hidden_size, min(own.inputs, own.outputs))
    network = LinearRNN.aligned(recurrence=asked.recurrence, initial=asked.initial, hidden_size=units, task=own)
    terms = Terms(accuracy=asked.accuracy, max_stages=2 if firsts else 1)
    return plan(own, firsts, network, learning_rate=asked.learning_rate, terms=terms, strict=False, seconds=_SECONDS)


def weighed(asked: Asked) -> View:
    """Steps in all, directly and after each first task."""
    found = planned(asked)
    names, steps = ["train directly"], [found.direct_steps]
    for candidate in found.candidates:
        names.append(candidate.task.name)
        steps.append(candidate.curriculum.descent_steps if candidate.curriculum is not None else math.nan)
    known = np.array(steps, dtype=float)
    bars = Trace("bars", "data", "steps in all", tuple(names), np.where(np.isfinite(known), known, np.nan))
    own = found.target
    picture = Panel(
        "firsts",
        f"Steps to learn {own.name}, by what is trained first",
        Axis("trained first"),
        Axis("steps in all", "steps"),
        (bars,),
        main=True,
    )
    first, _, rest = found.summary.partition(". ")
    notes = [*warnings_of(found.assumptions)]
    if len(found.pool) == 0:
        notes.append(Note("Targets that are classes cannot be made stronger: no first task is weighed."))
    return View(
        (picture,),
        validity_of(found.forecast_class, found.assumptions),
        _readings(found),
        tuple(notes),
        rest,
        answer=f"{first}.",
    )


def _readings(found: Plan) -> tuple[Reading, ...]:
    own = found.target
    return (
        Reading("direct training", found.direct_steps, "steps", format_count(found.direct_steps)),
        Reading("with the plan", found.total, "steps", format_count(found.total) + bracketed_interval(found.interval)),
        Reading("saved", found.saving, "steps", format_count(found.saving) + bracketed_interval(found.saving_interval)),
        Reading(
            "direct training by the flow", found.direct.flow_steps, "steps", format_number(found.direct.flow_steps)
        ),
        Reading("trials", float(own.trials or math.nan), "trials", f"{own.trials:,}" if own.trials else "not told"),
        Reading("steps in a trial", float(own.steps), "steps", f"{own.steps}"),
    )


def course(asked: Asked) -> View:
    """Loss of the trials over training, by the plan and directly."""
    found = planned(asked)
    ways: list[tuple[int, Any, str]] = [(FIRST, found.best, "by the plan"), (TARGET, _direct(found), "directly")]
    ends = [w.flow_steps for _, w, _ in ways if math.isfinite(w.flow_steps)]
    last = 1.1 * max(ends, default=0.0) or 1.0
    times = np.linspace(0.0, last, _POINTS)
    traces = tuple(
        Trace("line", "data", f"{name}, flow", times, way.at(times).dataset["target_loss"].values, series=series)
        for series, way, name in (ways if found.pretrains else ways[1:])
    )
    axis = Axis("training time", "steps", span=(0.0, last), clock=True)
    panel = Panel("loss", f"Loss of {found.target.name}", axis, Axis("loss", "target^2"), traces)
    return View((panel,), clock=Clock("time", np.linspace(0.0, last, MOMENTS), "steps"))


def _direct(found: Plan) -> Any:
    return found.follow([found.best.outcomes[-1].stage])


def study_of(asked: Asked) -> str:
    """The study that forecasts direct training on the file, once it lies beside it."""
    name = UPLOADS.name(asked.data)
    return "\n".join(
        [
            "# learncast forecast this-file.toml",
            f"# Save it beside {name}: the explorer keeps no file. For a plan, add first tasks as [[candidates]].",
            f"name = {_quoted(Path(name).stem)}",
            "[network]",
            'kind = "linear-rnn"',
            f"hidden_size = {asked.hidden_size}",
            f"recurrence = {asked.recurrence!r}",
            f"initial = {asked.initial!r}",
            "[training]",
            f"learning_rate = {asked.learning_rate!r}",
            f"accuracy = {asked.accuracy!r}",
            "[target]",
            f"data = {_quoted(name)}",
            "",
        ]
    )


def _quoted(text: str) -> str:
    return '"' + "".join(letter if letter.isalnum() or letter in "._- " else "_" for letter in text) + '"'
