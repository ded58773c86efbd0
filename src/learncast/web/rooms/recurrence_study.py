"""The study file that learns a drawn series."""

from __future__ import annotations

import json
from typing import Any

from learncast.study.tables import to_toml
from learncast.web.rooms.recurrence_setting import RecurrenceState


def study_of(state: RecurrenceState) -> str:
    """The study with which `learncast forecast` gives the numbers of the room's first mode."""
    tables: dict[str, Any] = {
        "name": "a learned recurrence",
        "network": {
            "kind": "linear-rnn",
            "hidden_size": 1,
            "recurrence": state.recurrence,
            "initial": state.initial,
        },
        "training": {"learning_rate": state.learning_rate, "learn": ["input", "recurrent", "output"]},
        "target": {
            "name": "drawn series",
            "family": "sensory",
            "task": "drawn",
            "steps": len(state.series),
            "parameters": {"strengths": list(state.series)},
        },
    }
    told = json.dumps(state.model_dump(), separators=(",", ":"))
    return f"# learncast forecast this-file.toml\n# recurrence {told}\n{to_toml(tables)}"
