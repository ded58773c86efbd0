"""Own data: the settings of `learncast.forecast` for dropped trials, and a plan with scaled targets as candidates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from learncast import Explained, InvalidSpec, LinearRNN, Plan, Stage, Task, Terms, TwoLayer, plan
from learncast.planning.defaults import default_network
from learncast.planning.learning_rate import suggest_rate
from learncast.procedure.goals import DATA_GOAL
from learncast.study.study_file import to_toml
from learncast.tasks.recorded.files import from_file
from learncast.web.panel import remembered
from learncast.web.uploads import UPLOADS

if TYPE_CHECKING:
    from learncast.web.panels.curriculum import CurriculumState

#: Suffixes of files that can be dropped.
SUFFIXES = (".npz", ".csv")
#: Factors by which the targets of the first tasks are scaled.
STRENGTHS = (0.5, 1.5, 2.0, 3.0)
#: Learning rates that are accepted; the one that is chosen for trials may lie outside the slider.
RATES = (1e-12, 1e6)
#: Seconds that a plan may take.
_SECONDS = 15.0


def opening(token: str) -> tuple[dict[str, Any], str]:
    """Return the settings with which `learncast.forecast` forecasts the trials, and what to look at."""
    task = tasks_of(token)[0]
    network = default_network(task)
    rate = suggest_rate([Stage(task, DATA_GOAL)], network)
    look = (
        f"{task.trials} trials of {task.steps} {'step' if task.steps == 1 else 'steps'}. The learning rate "
        f"{rate.learning_rate:.3g} was chosen: {rate.why}."
    )
    memory = {"recurrence": network.scalar_recurrence} if isinstance(network, LinearRNN) else {}
    return {"data": token, "learning_rate": rate.learning_rate, **memory}, look


def _network(state: CurriculumState, task: Task) -> LinearRNN | TwoLayer:
    """Return the network; it has at least as many units as the task has modes."""
    return default_network(task, **_sizes(state, task))


def _sizes(state: CurriculumState, task: Task) -> dict[str, Any]:
    units = max(state.hidden_size, min(task.inputs, task.outputs))
    return {"hidden_size": units, **({} if task.steps == 1 else {"recurrence": state.recurrence})}


def tasks_of(token: str) -> tuple[Task, ...]:
    """Return the dropped trials as a task, then with scaled targets unless these are classes."""
    name = UPLOADS.file(token)[0]
    if Path(name).suffix.lower() not in SUFFIXES:
        remedy = "Save them with numpy.savez(file, inputs=..., targets=...)."
        raise InvalidSpec(f"Trials must be in a {' or '.join(SUFFIXES)} file, got {name!r}. {remedy}", field="data")
    return UPLOADS.read(token, "tasks", lambda path: _read(path, Path(name).stem))


def _read(path: Path, name: str) -> tuple[Task, ...]:
    try:
        own = from_file(path, name=name)
    except InvalidSpec as error:
        if error.field != "labels":
            raise
        remedy = "In a dropped file, classes are called labels, and numbers have a decimal point."
        raise InvalidSpec(f"{str(error).partition('. ')[0]}. {remedy}", field="data") from error
    if own.recording is not None and own.recording.classes is not None:
        return (own,)
    return (own, *(_scaled(own, strength) for strength in STRENGTHS))


def _scaled(task: Task, strength: float) -> Task:
    """Return the task with every target multiplied by a factor."""
    stretch = strength * np.eye(task.outputs)
    return task.replaced(
        cross_covariance=task.cross_covariance.rotated(np.eye(task.inputs), stretch),
        target_covariance=task.target_covariance and task.target_covariance.rotated(stretch, stretch),
        name=f"targets × {strength:g}",
        recording=task.recording and task.recording.with_targets_times(strength),
    )


@remembered(8, "data recurrence hidden_size learning_rate explained")
def own_plan(state: CurriculumState) -> Plan:
    """Return the plan of `learncast.plan` for the trials, with the scaled targets as candidates."""
    own, *firsts = tasks_of(str(state.data))
    terms = Terms(Explained(state.explained), max_stages=2 if firsts else 1)
    return plan(
        own,
        firsts,
        _network(state, own),
        learning_rate=state.learning_rate,
        terms=terms,
        strict=False,
        seconds=_SECONDS,
    )


def study_of(state: CurriculumState) -> str:
    """Return a study that forecasts direct training on the dropped file, which must lie in the same folder."""
    name, (target, *_) = UPLOADS.file(str(state.data))[0], tasks_of(str(state.data))
    tables = {
        "name": Path(name).stem,
        "network": {"kind": "default", **_sizes(state, target)},
        "training": {"learning_rate": state.learning_rate, "explained": state.explained},
        "target": {"data": name},
    }
    return (
        "# learncast forecast this-file.toml\n"
        f"# Save this file next to {name!r}. For a plan, add first tasks as [[candidates]].\n{to_toml(tables)}"
    )
