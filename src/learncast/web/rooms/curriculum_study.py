"""The study file of one curriculum of the room."""

from __future__ import annotations

from typing import Any

from learncast.study.tables import to_toml
from learncast.web.rooms.curriculum_state import CurriculumState


def study_of(state: CurriculumState, value: float, stop: float) -> str:
    """A study whose plan is the target after a first task with this value, stopped at this accuracy.

    Parameters
    ----------
    state : CurriculumState
    value : float
        Of the varied keyword, on the first task.
    stop : float
        Accuracy at which the first task stops.
    """
    by = "" if state.activation == "linear" else " --by modes"
    grid = f"--vary {state.varied} --values {value!r} --accuracies {stop!r}"
    lines = [
        f"# learncast plan this-file.toml{by}",
        f"# explorer, curriculum: {state.model_dump_json(exclude_defaults=True)}",
        "# The stop is fixed as it was on the page. Where it costs steps the plan is to train directly; what it costs:",
        f"# learncast phase this-file.toml {grid}",
        to_toml(_tables(state, value, stop)),
    ]
    return "\n".join(lines)


def _tables(state: CurriculumState, value: float, stop: float) -> dict[str, Any]:
    return {
        "name": f"{state.name(value)} before {state.name()}",
        "network": {
            "kind": "linear-rnn",
            "hidden_size": state.hidden_size,
            "recurrence": state.recurrence,
            "initial": state.initial,
            "activation": state.activation,
        },
        "training": {"learning_rate": state.learning_rate, "accuracy": state.accuracy, "max_stages": 2},
        "target": {"name": state.name(), "family": state.family, **state.parameters()},
        "candidates": [
            {
                "name": state.name(value),
                "family": state.family,
                **state.parameters(value),
                "least_accuracy": stop,
                "most_accuracy": stop,
            }
        ],
    }
