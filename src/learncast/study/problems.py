"""Problems of a study file, said in one sentence with file, key and reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError

from learncast.errors import InvalidSpec, LearncastError
from learncast.study.sections import NETWORKS, TASKS, DataSection, StudySection, TrainingSection, underscored
from learncast.validation import suggestion


@contextmanager
def located(source: str, key: str) -> Iterator[None]:
    """Say in which file and key a problem lies."""
    try:
        yield
    except LearncastError as error:
        raise InvalidSpec(
            required=f"{source}, {key}: {error.required}", got=error.got, why=error.why, remedy=error.remedy
        ) from error


def first_problem(error: ValidationError, raw: dict[str, Any], source: str) -> InvalidSpec:
    """Turn pydantic's first complaint into one sentence with file, key and reason."""
    problems = error.errors(include_url=False)
    # A misspelt required key is both unknown and missing: the first says more.
    problem = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    words = [str(part) for part in problem["loc"] if part not in _UNION_TAGS]
    if words[:1] == ["sequence"] and words[2:3] == ["task"]:
        del words[2]
    key = ".".join(words) or "the file"
    got = "nothing" if problem["type"] == "missing" else _shortened(problem.get("input"))
    if problem["type"] == "extra_forbidden":
        known = _keys_beside(problem["loc"], raw)
        return InvalidSpec(
            required=f"{source}: {key} must be a known key",
            got=f"{words[-1]} = {got}",
            why="a misspelt key would be ignored silently",
            remedy=suggestion(words[-1], known) or f"use one of {', '.join(known)}",
        )
    reason = str(problem["msg"]).removeprefix("Value error, ")
    return InvalidSpec(
        required=f"{source}: {key} must be valid",
        got=got,
        why=reason[:1].lower() + reason[1:],
        remedy=f"give {key}" if problem["type"] == "missing" else f"correct {key}",
    )


#: What pydantic puts into a location to tell apart the members of a union.
_UNION_TAGS = ("float", "int", "list[float]", "tuple[int, int]")


def _keys_beside(loc: tuple[Any, ...], raw: Any) -> tuple[str, ...]:
    """Keys that are allowed where an unknown one was found."""
    if len(loc) == 1:
        return tuple(StudySection.model_fields)
    if loc[0] == "training":
        return tuple(TrainingSection.model_fields)
    for part in loc[:-1]:
        raw = raw if part == "task" and loc[0] == "sequence" else raw[part]
    if loc[0] == "network":
        return tuple(NETWORKS[raw.get("kind", "linear-rnn")].model_fields)
    section = DataSection if "data" in raw else TASKS[underscored(raw["family"])]
    return (*section.model_fields, *(("train_steps",) if loc[0] == "sequence" else ()))


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
