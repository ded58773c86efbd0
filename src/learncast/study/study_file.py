"""A study file, read from TOML and checked key by key, whatever it asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import ValidationError

from learncast.errors import InvalidSpec, LearncastError
from learncast.study.files import absolute, tables_from, to_toml
from learncast.study.sections import Section
from learncast.validation import brief, suggestion

Kind = TypeVar("Kind", bound=Section)


@contextmanager
def located(source: str, key: str) -> Iterator[None]:
    """Say in which file and key a problem lies."""
    try:
        yield
    except LearncastError as error:
        raise InvalidSpec(
            required=f"{source}, {key}: {error.required}", got=error.got, why=error.why, remedy=error.remedy
        ) from error


def checked(kind: type[Kind], raw: Any, source: str, table: str = "") -> Kind:
    """A section read from plain values; a problem is said in one sentence with file, key and reason.

    `table` is where the values lie, if they are not the whole file.
    """
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        raise _first_problem(error, source, table) from error


def _first_problem(error: ValidationError, source: str, table: str) -> InvalidSpec:
    problems = error.errors(include_url=False)
    # A misspelt required key is both unknown and missing: the first says more.
    problem = next((p for p in problems if p["type"] == "unknown_key"), problems[0])
    context = problem.get("ctx", {})
    words = [table] * bool(table) + [str(part) for part in problem["loc"] if not _is_union_tag(str(part))]
    if words[:1] == ["sequence"] and words[2:3] == ["task"]:
        del words[2]
    if problem["type"] == "unknown_key":
        known = context["known"] + ("train_steps",) * (words[:1] == ["sequence"])
        return InvalidSpec(
            required=f"{source}: {'.'.join([*words, context['key']])} must be a known key",
            got=f"{context['key']} = {brief(context['value'])}",
            why="a misspelt key would be ignored silently",
            remedy=suggestion(context["key"], known) or f"use one of {', '.join(known)}",
        )
    key, reason = ".".join(words) or "the file", str(problem["msg"]).removeprefix("Value error, ")
    choices = tuple(str(context.get("expected", "")).replace("'", "").replace(" or ", ", ").split(", "))
    hint = suggestion(str(problem.get("input")), choices) if problem["type"] == "literal_error" else ""
    return InvalidSpec(
        required=f"{source}: {key} must be valid",
        got="nothing" if problem["type"] == "missing" else brief(problem.get("input")),
        why=reason[:1].lower() + reason[1:],
        remedy=f"give {key}" if problem["type"] == "missing" else hint or f"correct {key}",
    )


def _is_union_tag(part: str) -> bool:
    """Whether pydantic put this into a location to tell apart the members of a union."""
    return part in ("float", "int") or part.startswith("constrained-") or "[" in part


class StudyFile(Generic[Kind]):
    """A checked study file; each kind of study says which sections it has.

    Attributes
    ----------
    section : Section
        The whole file with its defaults.
    folder : Path
        Where files it names are looked for.
    source : str
        What to call it in errors.
    """

    sections: ClassVar[Any]
    #: What it means that there is no such file.
    absence: ClassVar[str]

    def __init__(self, section: Kind, folder: Path, source: str) -> None:
        self.section, self.folder, self.source = section, folder, source

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read and check a study file."""
        source = Path(path)
        return cls.from_dict(tables_from(source, why=cls.absence), folder=source.parent, source=str(source))

    @classmethod
    def from_dict(cls, raw: dict[str, Any], *, folder: Path, source: str) -> Self:
        """Check a study given as a dictionary; files it names are looked for in `folder`."""
        return cls(checked(cls.sections, raw, source), folder, source)

    def resolved(self) -> str:
        """The study as TOML with every default written out."""
        # The file is written elsewhere: what it names must still be found.
        tables = absolute(self._tables(), self.folder)
        return to_toml({key: value for key, value in tables.items() if value != []})

    def _tables(self) -> dict[str, Any]:
        return self.section.model_dump(mode="json", exclude_none=True)
