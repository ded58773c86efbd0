"""Files of a study: its own tables, and the weights that it names."""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path
from typing import Any

from learncast.errors import InvalidSpec
from learncast.tasks.recorded.arrays import arrays_from


def tables_from(source: Path, *, why: str) -> dict[str, Any]:
    """The tables of a TOML file; `why` says what its absence means."""
    if not source.is_file():
        raise InvalidSpec(
            required="the study file must exist", got=f"no file {source}", why=why, remedy="check the path"
        )
    try:
        return tomllib.loads(source.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSpec(
            required=f"{source} must be a TOML file",
            got=str(error),
            why="it cannot be read",
            remedy="correct the line it names",
        ) from error


def weights_from(path: Path, *names: str) -> list[Any]:
    """The weights of a network in .npz or .safetensors."""
    return arrays_named(path, "weights", names, why="such a network has these")


def arrays_named(path: Path, key: str, names: tuple[str, ...], *, why: str, remedy: str = "") -> list[Any]:
    """Arrays of a file by their names, all of which it must hold; `why` and `remedy` say what it means if not."""
    arrays = arrays_from(path, key)
    missing = [name for name in names if name not in arrays]
    if missing:
        raise InvalidSpec(
            required=f"{path} must hold {(' and ' if key == 'data' else ', ').join(names)}",
            got=f"arrays {', '.join(sorted(arrays)) or 'none'}",
            why=why,
            remedy=remedy or f"add {', '.join(missing)}",
        )
    return [arrays[name] for name in names]


#: Keys of a study whose values name files.
FILES = ("data", "weights")


def to_toml(tables: dict[str, Any], path: str = "") -> str:
    """Write nested tables of numbers, words and lists as TOML; `path` is where they lie, with a dot at its end."""
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
