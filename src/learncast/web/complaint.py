"""What is wrong with a state, in one sentence that names the field."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from learncast.errors import InvalidSpec
from learncast.validation import suggestion
from learncast.web.room import State

#: Characters of what was got that a sentence repeats.
_MOST_SHOWN = 60


def complaint(error: ValidationError, state: type[State]) -> InvalidSpec:
    """Turn pydantic's first complaint about a state into one sentence: the field, what was got, what is allowed."""
    problem = error.errors(include_url=False)[0]
    words = [str(part) for part in problem["loc"]]
    key = words[0] if words else ""
    got = _shortened(problem.get("input"))
    if problem["type"] == "extra_forbidden":
        known = tuple(state.model_fields)
        return InvalidSpec(
            required=f"{key[:_MOST_SHOWN]} must be a field of the state",
            got=got,
            why="the room has no such control",
            remedy=suggestion(key, known) or f"use {', '.join(known)}",
        )
    reason = str(problem["msg"]).removeprefix("Value error, ")
    if key not in state.model_fields:
        return InvalidSpec(
            required="the body must be the room's state as a JSON object",
            got=got,
            why=_lower(reason),
            remedy=f"send an object with any of {', '.join(state.model_fields)}",
        )
    allowed = _allowed(state.model_fields[key])
    return InvalidSpec(
        required=f"{'.'.join(words)} must be valid",
        got=got,
        why=_lower(reason),
        remedy=f"{key} may be {allowed}" if allowed else f"correct {key}",
    )


def _allowed(field: FieldInfo) -> str:
    """The bounds or choices of a field, in words."""
    lengths, inside = _bounds(field.metadata, "min_length", "max_length"), get_args(field.annotation)[:1]
    if lengths:
        own = [part for item in inside for info in getattr(item, "__metadata__", ()) for part in _parts(info)]
        each = _bounds(own, "ge", "le")
        return f"{lengths} numbers" + (f", each {each}" if each else "")
    if within := _bounds(field.metadata, "ge", "le"):
        return within
    choices = [item for item in get_args(field.annotation) if isinstance(item, str)]
    return f"one of {', '.join(choices)}" if choices else ""


def _bounds(metadata: Iterable[Any], least: str, most: str) -> str:
    """Two bounds in words, if both are there."""
    found = {name: getattr(item, name) for item in metadata for name in (least, most) if hasattr(item, name)}
    return f"{found[least]:g} to {found[most]:g}" if len(found) == 2 else ""


def _parts(info: Any) -> Iterable[Any]:
    return info.metadata if isinstance(info, FieldInfo) else (info,)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _shortened(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "..."
