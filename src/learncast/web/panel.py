"""A panel of the explorer: a state that controls set, and the parts that are computed from it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from learncast._core.errors import InvalidSpec, suggestion
from learncast.web.view import View

#: Most characters of a given value that an error message repeats.
_MOST_REPEATED = 60


class State(BaseModel):
    """Settings of a panel: every field is made by `control` and has a default and bounds."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


OwnState = TypeVar("OwnState", bound=State)
Result = TypeVar("Result")


@dataclass(frozen=True)
class Control:
    """One control of the page.

    Attributes
    ----------
    key : str
        Field of the state.
    label, unit, help : str
    kind : {"range", "choice", "numbers", "hidden"}
        "numbers" is a list that is dragged in a chart; "hidden" has no control of its own.
    default
    least, most, step : float, optional
        Bounds and step of a range; on a log scale `step` is a base-10 logarithm.
    scale : {"linear", "log"}
    choices : tuple of (value, label)
    group : str
        Heading above it.
    when : mapping
        Values of other controls for which it is visible: ``{"family": ("integration",)}``.
    clears : tuple of str
        Fields that become None when this one changes.
    folded : bool
        Whether its group is closed at first.
    """

    key: str
    label: str
    kind: Literal["range", "choice", "numbers", "hidden"]
    default: object
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
    """A named state of a panel.

    Attributes
    ----------
    name : str
    look : str
        What to look at.
    changes : mapping
        Fields that differ from the panel's initial state.
    """

    name: str
    look: str
    changes: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class GlossaryTerm:
    """A term that the page explains wherever it appears.

    Attributes
    ----------
    terms : tuple of str
        Spellings of the term.
    meaning : str
    controls : tuple of str
        Controls that it refers to, by field.
    traces : tuple of str
        Traces that it refers to, by the start of their names.
    """

    terms: tuple[str, ...]
    meaning: str
    controls: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()


def control(
    default: object,
    label: str,
    span: tuple[float, float] | None = None,
    step: float | None = None,
    *,
    kind: str = "range",
    lengths: tuple[int | None, int | None] = (None, None),
    allowed: tuple[float, float] | None = None,
    **options: object,
) -> Any:
    """Make a field of a state together with its control.

    Parameters
    ----------
    default, label, step, kind
        See `Control`. With `choices`, labels by value, it is a choice.
    span : pair of float, optional
        Bounds of a number, or of each of several "numbers", whose type must check them.
    lengths : pair of int
        Least and most numbers or characters.
    allowed : pair of float, optional
        Bounds of the field if they are wider than those of the control.
    **options
        Further attributes of the control.
    """
    kind = "choice" if "choices" in options else kind
    ge, le = (None, None) if span is None or kind == "numbers" else allowed or span
    bounds = {"least": float(span[0]), "most": float(span[1])} if span is not None and kind != "hidden" else {}
    extra: Any = {"label": label, "kind": kind, "step": step, **bounds, **options}
    return Field(default=default, ge=ge, le=le, min_length=lengths[0], max_length=lengths[1], json_schema_extra=extra)


@dataclass(frozen=True)
class Panel:
    """One panel of the explorer.

    Attributes
    ----------
    name, title : str
        Name in addresses, and title on the page.
    introduction : str
    state : type of State
    parts : mapping
        Functions from a state to a view, by name; the page requests each of them separately.
    study : callable
        Returns the study file, as TOML, that reproduces a state.
    slow : callable
        Returns a description of the computation if a state takes long, else an empty string. Slow states wait in a
        queue of their own.
    examples : tuple of Example
        The first one is the initial state.
    terms : tuple of GlossaryTerm
    help : mapping
        Help texts of controls, by field.
    topics : mapping
        Titles of the parts that are shown one at a time, chosen by the field ``topic``.
    drops : str
        Description of the files that can be dropped on the panel, if any.
    open_file : callable, optional
        Returns the panel for a dropped file, from the file's token.
    """

    name: str
    title: str
    introduction: str
    state: type[State]
    parts: Mapping[str, Callable[[Any], View]]
    study: Callable[[Any], str]
    slow: Callable[[Any], str] = lambda state: ""
    examples: tuple[Example, ...] = ()
    terms: tuple[GlossaryTerm, ...] = ()
    help: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)
    drops: str = ""
    open_file: Callable[[str], Panel] | None = None

    @property
    def opening(self) -> dict[str, object]:
        """The initial state, by field."""
        return {**self.state().model_dump(), **(self.examples[0].changes if self.examples else {})}

    def opened(self, name: str, look: str, changes: Mapping[str, object]) -> Panel:
        """Return the panel for a person's own data, which begin its examples; the others stay."""
        others = (replace(one, changes={**self.opening, **one.changes}) for one in self.examples)
        return replace(self, examples=(Example(name, look, changes), *others))

    def state_of(self, example: Example) -> State:
        """Return the state of an example."""
        return self.state.model_validate({**self.opening, **example.changes})

    @property
    def controls(self) -> tuple[Control, ...]:
        """Controls of the state, group by group; a range with a single value is hidden."""
        controls: list[Control] = []
        for key, info in self.state.model_fields.items():
            extra: Any = info.json_schema_extra
            if extra["kind"] == "range" and extra["least"] == extra["most"]:
                extra = {"label": extra["label"], "kind": "hidden"}
            choices = tuple(extra.get("choices", {}).items())
            given = {**extra, "choices": choices, "help": self.help.get(key, "")}
            controls.append(Control(key, default=info.default, **given))
        groups = [control.group for control in controls]
        return tuple(sorted(controls, key=lambda control: groups.index(control.group)))


def remembered(
    size: int, fields: str = "", *, except_for: str = ""
) -> Callable[[Callable[[OwnState], Result]], Callable[[OwnState], Result]]:
    """Cache a function of a state by the fields that it uses; the others have their defaults when it is called.

    Parameters
    ----------
    size : int
        Results that are kept.
    fields, except_for : str
        Names of those fields, or of the others, separated by spaces; by default it uses all.
    """

    def decorate(function: Callable[[OwnState], Result]) -> Callable[[OwnState], Result]:
        cached = lru_cache(maxsize=size)(function)

        @wraps(function)
        def called(state: OwnState) -> Result:
            used = fields.split() or [key for key in type(state).model_fields if key not in except_for.split()]
            return cached(type(state)().model_copy(update={key: getattr(state, key) for key in used}))

        return called

    return decorate


def settings_line(panel: str, state: State) -> str:
    """Return the comment by which a study that a panel saves holds the panel's settings."""
    return f"# explorer, {panel}: {state.model_dump_json(exclude_defaults=True)}"


def help_texts(name: str) -> dict[str, Any]:
    """Read a panel's title, introduction, examples, glossary and help texts from its file in the folder ``help``."""
    with (Path(__file__).parent / "help" / f"{name}.toml").open("rb") as file:
        texts = tomllib.load(file)
    examples = tuple(Example(**example) for example in texts.get("examples", ()))
    return {**texts, "examples": examples, "terms": tuple(GlossaryTerm(**term) for term in texts["terms"])}


def invalid_state(error: ValidationError, state: type[State]) -> InvalidSpec:
    """Convert pydantic's first error about a state to one message about one field."""
    problem = error.errors(include_url=False)[0]
    place, known = [str(part) for part in problem["loc"]], tuple(state.model_fields)
    given = ascii(problem.get("input"))[:_MOST_REPEATED]
    if problem["type"] == "extra_forbidden":
        hint = suggestion(place[0], known) or f"The settings are {', '.join(known)}."
        return InvalidSpec(f"{place[0][:_MOST_REPEATED]} is not a setting of this panel. {hint}")
    if not place or place[0] not in known:
        return InvalidSpec(f"The request must be a JSON object of settings, got {given}. {problem['msg']}.")
    return InvalidSpec(f"{'.'.join(place)} is not valid, got {given}. {problem['msg']}.", field=place[0])
