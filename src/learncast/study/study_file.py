"""Study files: reading and checking TOML, and writing it back."""

from __future__ import annotations

import ast
import inspect
import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError

from learncast._core.errors import InvalidSpec, LearncastError, brief, suggestion
from learncast._core.limits import file_size, listed, tables_of

PathLike = str | Path
#: Suffixes of files of trials.
DATA_SUFFIXES = (
    ".npz", ".npy", ".safetensors", ".mat", ".h5", ".hdf5", ".nwb", ".nc", ".csv", ".tsv", ".parquet"
)  # fmt: skip
#: Keys of goals: those of `learncast.procedure.goals.GOALS`, and decisions on recorded trials.
GOAL_KEYS = ("accuracy", "explained", "loss", "r2", "decisions")
#: Keys of a study whose values name files.
FILES = ("data", "test", "weights")


class Section(BaseModel):
    """A table of a study file; unknown keys raise."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe keys by their docstrings; to look for those of every section would delay every command."""
        found = handler(core_schema)
        keys = handler.resolve_ref_schema(found).get("properties", {})
        for kind in (kind for kind in cls.__mro__ if issubclass(kind, Section)):
            (section,) = ast.parse(inspect.getsource(kind)).body
            assert isinstance(section, ast.ClassDef)
            for pair in pairwise(section.body):
                match pair:
                    case ast.AnnAssign(target=ast.Name(key)), ast.Expr(ast.Constant(str(text))) if key in keys:
                        keys[key].setdefault("description", inspect.cleandoc(text))
        return found

    @model_validator(mode="before")
    @classmethod
    def _keys_are_known(cls, table: object) -> object:
        """Raise on the first unknown key, with the keys that are known here."""
        for key in table if isinstance(table, dict) else ():
            if key not in cls.model_fields:
                raise PydanticCustomError("unknown_key", "unknown key", {"key": key, "known": tuple(cls.model_fields)})
        return table


Kind = TypeVar("Kind", bound=Section)


def check_kind(section: Section, keys: Mapping[str, tuple[str, ...]]) -> None:
    """Raise if a key is given that belongs to other kinds of the section."""
    kind: str = getattr(section, "kind")  # noqa: B009
    for key, kinds in keys.items():
        if getattr(section, key) is not None and kind not in kinds:
            raise ValueError(f"{key} is a key of {', '.join(kinds)}, not of {kind}")


@contextmanager
def located(source: str, key: str) -> Iterator[None]:
    """Prefix errors with the file and the key."""
    try:
        yield
    except LearncastError as error:
        raise InvalidSpec(f"{source}, {key}: {error}", field=error.field) from error


def checked(kind: type[Kind], raw: object, source: str, table: str = "") -> Kind:
    """Return a section made of plain values; `table` is where they lie, if they are not the whole file."""
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        raise _other_command(kind, raw, source, table) or _first_problem(error, source, table) from error


#: Tables that only some studies have, and the command for such a study; the first one in a file decides.
COMMANDS = {
    "sweep": "sweep run", "goal": "advise", "window": "window", "task": "window", "sequence": "forget",
    "network": "plan",
}  # fmt: skip


def _other_command(kind: type[Section], raw: object, source: str, table: str) -> InvalidSpec | None:
    """Return an error if the file is a study for another command."""
    if table or not isinstance(raw, dict):
        return None
    commands = {**COMMANDS, "model": "advise" if "target" in raw else "window"}
    key = next((key for key in commands if key in raw), None)
    if key is None or key in kind.model_fields:
        return None
    words = f"{source} is a study for another command, as it has {key}. Run `learncast {commands[key]} {source}`."
    return InvalidSpec(words, field=key)


def _first_problem(error: ValidationError, source: str, table: str) -> InvalidSpec:
    problems = error.errors(include_url=False)
    # A misspelt required key is both unknown and missing; the first says more.
    problem = next((p for p in problems if p["type"] == "unknown_key"), problems[0])
    parts = [table] * bool(table) + [str(part) for part in problem["loc"] if not _is_union_tag(str(part))]
    if parts[:1] == ["sequence"] and parts[2:3] == ["task"]:
        del parts[2]
    context = problem.get("ctx", {})
    if problem["type"] == "unknown_key":
        known = context["known"] + ("train_steps",) * (parts[:1] == ["sequence"])
        path = ".".join([*parts, context["key"]])
        hint = suggestion(context["key"], known) or f"Known keys: {listed(known)}."
        return InvalidSpec(f"{source}: {path} is not a known key. {hint}", field=path)
    path = ".".join(parts)
    return InvalidSpec(f"{source}: {_reason(problem, path)}", field=path or None)


def _reason(problem: ErrorDetails, path: str) -> str:
    """Return what is wrong with the value at `path`."""
    given, message = problem.get("input"), str(problem["msg"])
    if problem["type"] == "missing":
        return f"{path} is required."
    if problem["type"] == "literal_error":
        choices = str(problem["ctx"]["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
        hint = suggestion(str(given), tuple(choices))
        return f"{path} must be one of {', '.join(choices)}, got {brief(given)}. {hint}".strip()
    if problem["type"] != "value_error":  # pydantic's own, such as "Input should be a valid number, unable to parse"
        return f"{path} {message.partition(',')[0].replace('Input should', 'must')}, got {brief(given)}."
    prefix, message = f"{path}: " if path else "", message.removeprefix("Value error, ")
    return prefix + (message if message.endswith(("?", ".")) else f"{message}.")


def _is_union_tag(part: str) -> bool:
    """Return whether pydantic added this part of a location to tell apart the members of a union."""
    return part in ("float", "int") or part.startswith("constrained-") or "[" in part


def read_study(
    kind: type[Kind], path: PathLike, *, most_bytes: int | None = None, changes: Sequence[str] = (), data: bool = False
) -> tuple[Kind, Path, str]:
    """Read a study file and check its keys, before anything that it names is loaded or built.

    Returns the arguments of a `StudyFile`. The text may take 1 MiB unless `most_bytes` allows more. `changes` are keys
    with other values, such as "training.learning_rate=0.01". With `data`, a file of trials is a study of its own.
    """
    source = Path(path)
    if source.suffix.lower() in DATA_SUFFIXES:
        if not data:
            remedy = f"Run `learncast forecast {source.name}`, or name it in a study of `learncast new recordings`."
            raise InvalidSpec(f"{source} holds data and is not a study file. {remedy}", field="study")
        file_size(source, "the data file")
        tables: dict[str, Any] = {"name": source.stem, "network": {"kind": "default"}, "training": {}}
        tables["target"] = {"data": source.name}
    else:
        tables = tables_of(source, "the study file", most_bytes=most_bytes)
    for change in changes:
        _change(tables, change)
    return checked(kind, tables, str(source)), source.parent, str(source)


def _change(tables: dict[str, Any], change: str) -> None:
    """Set a key of nested tables, from text such as "training.learning_rate=0.01"."""
    path, equals, text = change.partition("=")
    *parents, key = path.strip().split(".")
    if not equals or not key:
        raise InvalidSpec(f"--set must be KEY=VALUE, got {change!r}.", field="set")
    for parent in parents:
        tables = tables.setdefault(parent, {})
        if not isinstance(tables, dict):
            raise InvalidSpec(f"--set cannot change {path}: {parent} is not a table.", field="set")
    try:
        tables[key] = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        tables[key] = text.strip()


class StudyFile(Generic[Kind]):
    """A checked study file; subclasses set `sections`.

    Attributes
    ----------
    section : Section
        The file with its defaults.
    folder : Path
        Folder of the files that it names.
    source : str
        Name of the file in errors.
    """

    sections: ClassVar[type[Section]]

    def __init__(self, section: Kind, folder: Path, source: str) -> None:
        self.section, self.folder, self.source = section, folder, source

    @classmethod
    def load(cls, path: PathLike, *, most_bytes: int | None = None) -> Self:
        """Read and check a study file; its text may take 1 MiB unless `most_bytes` allows more."""
        return cls(*read_study(cls.sections, path, most_bytes=most_bytes))  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, raw: dict[str, object], *, folder: Path, source: str) -> Self:
        """Check a study given as a dictionary; `folder` holds the files that it names."""
        return cls(checked(cls.sections, raw, source), folder, source)  # type: ignore[arg-type]

    @property
    def name(self) -> str:
        """Name of the study."""
        return str(getattr(self.section, "name"))  # noqa: B009

    def resolved(self) -> str:
        """Return the study as TOML with every default written out and absolute paths."""
        tables = absolute(self._tables(), self.folder)
        return to_toml({key: value for key, value in tables.items() if value != []})

    def _tables(self) -> dict[str, Any]:
        return self.section.model_dump(mode="json", exclude_none=True)


def to_toml(tables: Mapping[str, Any], path: str = "") -> str:
    """Write nested tables of numbers, strings and lists as TOML.

    Parameters
    ----------
    tables : dict
    path : str
        Position of the tables in the file, with a dot at its end; empty for a whole file.

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


def _is_table(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # The escapes of JSON are valid in TOML, which also forbids a bare DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(value)


def without_none(table: Mapping[str, object]) -> dict[str, object]:
    """Return a table without the keys whose value is None."""
    return {key: value for key, value in table.items() if value is not None}


def absolute(value: object, folder: Path, key: str = "") -> Any:
    """Return nested tables with absolute paths of the files that they name; `key` is the key of the value."""
    if isinstance(value, dict):
        return {word: absolute(item, folder, word) for word, item in value.items()}
    if isinstance(value, list):
        return [absolute(item, folder, key) for item in value]
    return str((folder / value).resolve()) if key in FILES and isinstance(value, str) else value
