"""Tables of a study written as TOML."""

from __future__ import annotations

import json
import math
from typing import Any


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


def without_none(value: Any) -> Any:
    """Nested tables without the keys that say nothing."""
    if isinstance(value, dict):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    return [without_none(item) for item in value] if isinstance(value, list) else value
