"""The command line, read from the commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import typer

from learncast.cli import app

WORDS = {Path: "path", float: "number", int: "integer", str: "text", bool: "switch"}


def commands(group: Any = None, name: str = "learncast") -> Iterator[tuple[str, Any]]:
    """Every command with its full name; commands of a group follow the group."""
    for key, one in (group or typer.main.get_command(app)).commands.items():
        yield f"{name} {key}", one
        if hasattr(one, "commands"):
            yield from commands(one, f"{name} {key}")


def page() -> str:
    """The page in MyST."""
    parts = [
        "# The command line",
        "Generated from the commands when this site is built; `learncast COMMAND --help` prints the same. Results go to stdout, "
        "progress and estimates to stderr. Commands with a result take `--json` for one JSON object and `--out DIR` for a folder "
        "with report, figure and data.",
        _table(("exit code", "meaning"), EXITS),
        *(_section(name, one) for name, one in commands()),
    ]
    return "\n\n".join(parts) + "\n"


EXITS = [
    ("0", "success"),
    ("1", "a check failed, the time limit was reached, or a condition of the theory fails with `--strict`"),
    ("2", "invalid input; stderr says what is required and what was given"),
    ("130", "interrupted; files that were written are complete"),
]


def _section(name: str, one: Any) -> str:
    level = "#" * (name.count(" ") + 1)
    label = "-".join(name.split()[1:])
    parts = [f"(command-{label})=\n{level} {name}", (one.help or "").strip()]
    if hasattr(one, "commands"):
        return "\n\n".join([*parts, "Commands: " + ", ".join(f"`{name} {key}`" for key in one.commands) + "."])
    given = [p for p in one.params if p.param_type_name == "argument"]
    options = [p for p in one.params if p.param_type_name == "option" and not p.hidden]
    usage = " ".join([name, *(_placeholder(p) for p in given), *(["[OPTIONS]"] if options else [])])
    parts.append(f"```text\n{usage}\n```")
    rows = [(f"`{_placeholder(p)}`", _type(p), _default(p), p.help or "") for p in given]
    rows += [(" ".join(f"`{word}`" for word in p.opts), _type(p), _default(p), p.help or "") for p in options]
    if rows:
        parts.append(_table(("argument or option", "value", "default", "meaning"), rows))
    example = (one.epilog or "").removeprefix("Example: ")
    parts.append(f"```console\n$ {example}\n```")
    return "\n\n".join(parts)


def _placeholder(parameter: Any) -> str:
    word = (parameter.metavar or parameter.name).strip("[]")
    return word.upper() if parameter.required else f"[{word.upper()}]"


def _type(parameter: Any) -> str:
    kind = parameter.type_descriptor.annotation
    kinds = [one for one in (get_args(kind) or (kind,)) if one is not type(None)]
    word = " or ".join(WORDS.get(one, getattr(one, "__name__", str(one))) for one in kinds)
    return f"{word}, may be repeated" if parameter.multiple else word


def _default(parameter: Any) -> str:
    default = parameter.default() if callable(parameter.default) else parameter.default
    if parameter.required:
        return "required"
    return "" if default in (None, False, [], ()) else f"`{'on' if default is True else default}`"


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    cells = [heads, tuple("---" for _ in heads), *rows]
    return "{.stacked}\n" + "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells)
