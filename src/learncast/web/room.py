"""A room of the explorer: a state that controls set, and what is shown for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from learncast._core.errors import InvalidSpec, suggestion
from learncast.web.panel import View

#: Characters of what was got that a sentence repeats.
_MOST_SHOWN = 60


class State(BaseModel):
    """What a room's controls say: finite numbers within bounds, and nothing else.

    Every field is a `control` with a bound and a default.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


@dataclass(frozen=True)
class Control:
    """One control of the page.

    Attributes
    ----------
    key : str
        Field of the state.
    label, unit, help : str
        Its words.
    kind : {"range", "choice", "toggle", "numbers", "hidden"}
        "numbers" is a list that is dragged in a panel; "hidden" is set by clicks.
    default
        What it is at first.
    least, most, step : float, optional
        Of a range; on a log scale `step` is a factor's logarithm to base 10.
    scale : {"linear", "log"}
    choices : tuple of str
        Of a choice, each with its words.
    group : str
        Heading that it stands under.
    when : mapping
        Values of other controls for which it is shown: ``{"family": ("integration",)}``.
    clears : tuple of str
        Fields that mean something else once this one has changed, and become None.
    folded : bool
        Whether its group stays closed until somebody opens it.
    """

    key: str
    label: str
    kind: Literal["range", "choice", "toggle", "numbers", "hidden"]
    default: Any
    unit: str = "1"
    help: str = ""
    least: float | None = None
    most: float | None = None
    step: float | None = None
    scale: Literal["linear", "log"] = "linear"
    choices: tuple[tuple[str, str], ...] = ()
    group: str = ""
    when: Mapping[str, tuple[str, ...]] | None = None
    clears: tuple[str, ...] = ()
    folded: bool = False


@dataclass(frozen=True)
class Example:
    """A setting worth seeing.

    Attributes
    ----------
    name : str
        What a link calls it.
    look : str
        What to look at.
    changes : mapping
        Fields of the state that differ from how the room opens.
    """

    name: str
    look: str
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Word:
    """A word that the page explains where it stands.

    Attributes
    ----------
    terms : tuple of str
        How it is written, in any of the room's texts.
    meaning : str
        What it means, in plain words.
    controls : tuple of str
        Fields whose controls it speaks of.
    traces : tuple of str
        Beginnings of the names of what is drawn for it.
    """

    terms: tuple[str, ...]
    meaning: str
    controls: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()


def control(
    default: Any,
    label: str,
    span: tuple[float, float] | None = None,
    step: float | None = None,
    *,
    kind: str = "range",
    lengths: tuple[int | None, int | None] = (None, None),
    allowed: tuple[float, float] | None = None,
    **words: Any,
) -> Any:
    """Make a field of a state and its control at once, so that a bound is written once.

    Parameters
    ----------
    default, label, step, kind
        As of the `Control`; with `choices`, words by value, it is a choice.
    span : pair of float, optional
        Least and most of a number; of "numbers" those of each, which its own type must check.
    lengths : pair of int
        Least and most of how many numbers, or letters, there are.
    allowed : pair of float, optional
        Least and most of a number where a state may say more than its control shows.
    words
        Further fields of the control.
    """
    kind = "choice" if "choices" in words else kind
    bounds = (None, None) if span is None or kind == "numbers" else allowed or span
    shown = {"least": float(span[0]), "most": float(span[1])} if span is not None and kind != "hidden" else {}
    told: Any = {"label": label, "kind": kind, "step": step, **shown, **words}
    (ge, le), (fewest, most) = bounds, lengths
    return Field(default=default, ge=ge, le=le, min_length=fewest, max_length=most, json_schema_extra=told)


@dataclass(frozen=True)
class Room:
    """One room.

    Attributes
    ----------
    name, title : str
        In addresses, and for people.
    introduction : str
        What one can see here, in a sentence or two.
    state : type of State
    parts : mapping
        From a name to the function that shows this part of a state; the page asks for each as soon as it has changed.
    study : callable
        The study file that reproduces a state, as TOML.
    slow : callable
        What is being computed, where a state takes long: such ones wait for each other and hold up no quick one.
    examples : tuple of Example
        Settings worth seeing; the first is how the room opens.
    words : tuple of Word
    topics : mapping
        From the name of a part to what a tab calls it: such parts are shown one at a time, by the field ``topic``.
    drops : str
        What may be dropped on the room, for people; nothing where it is empty.
    opened : callable, optional
        The room as a dropped file opens it, from the file's token.
    own : bool
        Whether it shows something that only this process has, so that no other can compute for it.
    """

    name: str
    title: str
    introduction: str
    state: type[State]
    parts: Mapping[str, Callable[[Any], View]]
    study: Callable[[Any], str]
    slow: Callable[[Any], str] = lambda state: ""
    examples: tuple[Example, ...] = ()
    words: tuple[Word, ...] = ()
    topics: Mapping[str, str] = field(default_factory=dict)
    drops: str = ""
    opened: Callable[[str], Room] | None = None
    own: bool = False

    @property
    def opening(self) -> dict[str, Any]:
        """The state in which the room opens."""
        return {**self.state().model_dump(), **(self.examples[0].changes if self.examples else {})}

    def shown(self, example: Example) -> Any:
        """The state of an example."""
        return self.state(**{**self.opening, **example.changes})

    @property
    def controls(self) -> tuple[Control, ...]:
        """Controls of its state: those under one heading together, in the order of the fields; one value is hidden."""
        found: list[Control] = []
        for key, one in self.state.model_fields.items():
            words: Any = one.json_schema_extra
            if words["kind"] == "range" and words["least"] == words["most"]:
                words = {"label": words["label"], "kind": "hidden"}
            choices = tuple(words.get("choices", {}).items())
            found.append(Control(key, default=one.default, **{**words, "choices": choices}))
        groups = [one.group for one in found]
        return tuple(sorted(found, key=lambda one: groups.index(one.group)))


def wrong_field(error: ValidationError, state: type[State]) -> str | None:
    """The field that pydantic complains about first; None where it is the state as a whole."""
    where = error.errors(include_url=False)[0]["loc"]
    return str(where[0]) if where and str(where[0]) in state.model_fields else None


def complaint(error: ValidationError, state: type[State]) -> InvalidSpec:
    """Turn pydantic's first complaint about a state into one sentence: the field, what was got, what is allowed."""
    problem = error.errors(include_url=False)[0]
    words = [str(part) for part in problem["loc"]]
    key, known = words[0] if words else "", tuple(state.model_fields)
    reason = str(problem["msg"]).removeprefix("Value error, ")
    why = reason[:1].lower() + reason[1:]
    if problem["type"] == "extra_forbidden":
        required, why = f"{key[:_MOST_SHOWN]} must be a field of the state", "the room has no such control"
        remedy = suggestion(key, known) or f"use {', '.join(known)}"
    elif key not in known:
        required = "the body must be the room's state as a JSON object"
        remedy = f"send an object with any of {', '.join(known)}"
    else:
        required, allowed = f"{'.'.join(words)} must be valid", _allowed(state.model_fields[key])
        remedy = f"{key} may be {allowed}" if allowed else f"correct {key}"
    got = ascii(problem.get("input"))
    shown = got if len(got) <= _MOST_SHOWN else got[: _MOST_SHOWN - 3] + "..."
    return InvalidSpec(f"{required}, got {shown}.")


def _allowed(field: FieldInfo) -> str:
    """The bounds or choices of a field, in words."""
    lengths, inside = _bounds(field.metadata, "min_length", "max_length"), get_args(field.annotation)[:1]
    if lengths:
        own = [info for item in inside for info in getattr(item, "__metadata__", ())]
        own = [part for info in own for part in (info.metadata if isinstance(info, FieldInfo) else (info,))]
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
