"""A study file, read from TOML and checked key by key, whatever it asks."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from learncast._core.errors import InvalidSpec, LearncastError, brief, suggestion
from learncast._core.limits import tables_of

#: Keys of a study whose values name files.
FILES = ("data", "weights")


class Section(BaseModel):
    """A table of the file; unknown keys are refused."""

    #: What it means that there is no file of such a table.
    absence: ClassVar[str]

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _keys_are_known(cls, table: Any) -> Any:
        """Name the first unknown key together with those that are known here."""
        if not isinstance(table, dict):
            return table
        for key in table:
            if key not in cls.model_fields:
                context = {"key": key, "value": table[key], "known": tuple(cls.model_fields)}
                raise PydanticCustomError("unknown_key", "unknown key", context)
        return table


Kind = TypeVar("Kind", bound=Section)


@contextmanager
def located(source: str, key: str) -> Iterator[None]:
    """Say in which file and key a problem lies."""
    try:
        yield
    except LearncastError as error:
        raise InvalidSpec(f"{source}, {key}: {error}", field=error.field) from error


def checked(kind: type[Kind], raw: Any, source: str, table: str = "") -> Kind:
    """A section read from plain values; a problem is said in one sentence with file, key and reason.

    `table` is where the values lie, if they are not the whole file.
    """
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        raise _another_kind(kind, raw, source, table) or _first_problem(error, source, table) from error


#: Tables that only some studies have, and the command that such a study is for; the first that is found tells it.
MEANT_FOR = {
    "sweep": "sweep run",
    "goal": "advise",
    "window": "window",
    "task": "window",
    "sequence": "forget",
    "network": "plan",
}


def _another_kind(kind: type[Section], raw: Any, source: str, table: str) -> InvalidSpec | None:
    """What is wrong with a whole file that is a study for another command."""
    if table or not isinstance(raw, dict):
        return None
    known = {**MEANT_FOR, "model": "advise" if "target" in raw else "window"}
    told = next((key for key in known if key in raw), None)
    if told is None or told in kind.model_fields:
        return None
    return InvalidSpec(
        f"{source} must be a study for this command, got one for `learncast {known[told]}`: it has "
        f"{told}. Run `learncast {known[told]} {source}`, or begin another study with `learncast new`."
    )


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
            f"{source}: {'.'.join([*words, context['key']])} must be a known key, got {context['key']} = "
            f"{brief(context['value'])}."
        )
    key, reason = ".".join(words) or "the file", str(problem["msg"]).removeprefix("Value error, ")
    got, remedy = brief(problem.get("input")), f"correct {key}"
    if problem["type"] == "missing":
        got, remedy = "nothing", f"give {key}"
    elif problem["type"] == "literal_error":
        choices = str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
        remedy = suggestion(str(problem["input"]), tuple(choices)) or remedy
    why = reason[:1].lower() + reason[1:]
    return InvalidSpec(f"{source}: {key} must be valid, got {got}.")


def _is_union_tag(part: str) -> bool:
    """Whether pydantic put this into a location to tell apart the members of a union."""
    return part in ("float", "int") or part.startswith("constrained-") or "[" in part


class Given(NamedTuple, Generic[Kind]):
    """A study file whose keys were checked; nothing that it names is built yet, so that a slip is told at once."""

    section: Kind
    folder: Path
    source: str

    @classmethod
    def read(cls, kind: type[Kind], path: str | Path, *, most_bytes: int | None = None) -> Given[Kind]:
        """Read a file and check its keys; its text may take a mebibyte unless `most_bytes` allows more."""
        source = Path(path)
        tables = tables_of(source, "the study file", why=kind.absence, most_bytes=most_bytes)
        return cls(checked(kind, tables, str(source)), source.parent, str(source))


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

    def __init__(self, section: Kind, folder: Path, source: str) -> None:
        self.section, self.folder, self.source = section, folder, source

    @classmethod
    def load(cls, path: str | Path, *, most_bytes: int | None = None) -> Self:
        """Read and check a study file; its text may take a mebibyte unless `most_bytes` allows more."""
        return cls(*Given.read(cls.sections, path, most_bytes=most_bytes))

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


def to_toml(tables: dict[str, Any], path: str = "") -> str:
    """Write nested tables of numbers, words and lists as TOML; `path` is where they lie, with a dot at its end.

    Parameters
    ----------
    tables : dict
        Of numbers, words, lists and further tables.
    path : str
        Where they lie, with a dot at its end; empty for a whole file.

    Returns
    -------
    str

    Examples
    --------
    >>> from learncast.study import to_toml
    >>> print(to_toml({"name": "mine", "training": {"learning_rate": 0.001}}).strip())
    name = "mine"
    <BLANKLINE>
    [training]
    learning_rate = 0.001
    """
    lines = [f"{key} = {_toml_value(value)}" for key, value in tables.items() if not _is_table(value)]
    for key, value in tables.items():
        if isinstance(value, dict):
            lines += ["", f"[{path}{key}]", to_toml(value, f"{path}{key}.").strip()]
        elif _is_table(value):
            for item in value:
                lines += ["", f"[[{path}{key}]]", to_toml(item, f"{path}{key}.").strip()]
    return "\n".join(lines) + "\n"


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's too; TOML also forbids a bare DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(value)


def without_none(table: dict[str, Any]) -> dict[str, Any]:
    """A table without the keys that say nothing."""
    return {key: value for key, value in table.items() if value is not None}


def absolute(value: Any, folder: Path, key: str = "") -> Any:
    """Nested tables whose files are found from anywhere; `key` is where the value lies."""
    if isinstance(value, dict):
        return {word: absolute(item, folder, word) for word, item in value.items()}
    if isinstance(value, list):
        return [absolute(item, folder, key) for item in value]
    return str((folder / value).resolve()) if key in FILES and isinstance(value, str) else value
