"""How large a file and what it declares may be: measured, and refused in a sentence, before anything is read."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from learncast._core.errors import InvalidSpec, LearncastError

#: Bytes that one array, table or file may take in memory, unless told.
MOST_BYTES = 2**31
#: Bytes of what a study asks to be made, with the copies that questions make: beside torch, a process stays below 1 GB.
MOST_MADE = 2**29
#: Bytes of a text that is parsed word by word.
MOST_TEXT = 2**20
#: Brackets within brackets, and parts of one dotted key, in such a text.
MOST_NESTED = 16
#: Digits of one number in it.
MOST_DIGITS = 400
#: Names that one sentence lists.
MOST_NAMES = 20

_most_bytes: ContextVar[int | None] = ContextVar("most_bytes", default=None)


@contextmanager
def allowing(most_bytes: float | None) -> Iterator[None]:
    """Let what is read inside take so many bytes; None leaves the limit as it is."""
    if most_bytes is None:
        yield
        return
    if not 1 <= most_bytes < float("inf"):
        raise InvalidSpec(f"most_bytes must be a number of bytes, got {most_bytes!r}.", field="most_bytes")
    token = _most_bytes.set(int(most_bytes))
    try:
        yield
    finally:
        _most_bytes.reset(token)


def allowed(most_bytes: int | None = None, *, default: int = MOST_BYTES) -> int:
    """The limit that is given here or by whoever asks, else the one of its kind."""
    given = _most_bytes.get() if most_bytes is None else most_bytes
    return default if given is None else given


def given_bytes() -> int | None:
    """The limit that whoever asks has given; None where there is none, and each kind has its own."""
    return _most_bytes.get()


def check_bytes(what: str, size: float, most_bytes: int | None = None, *, remedy: str = "") -> None:
    """Refuse what would take more than `most_bytes`; `remedy` says how to ask for less."""
    most = allowed(most_bytes)
    if size > most:
        raise InvalidSpec(
            f"{what} must take at most {_size(most)}, got {_size(size)}. Raise most_bytes if there is room, "
            f"or {remedy or 'keep fewer trials, steps or channels'}."
        )


def check_made(what: str, size: float, *, remedy: str) -> None:
    """Refuse what a study asks to be made where it would take more than `MOST_MADE`, unless whoever asks allows it."""
    check_bytes(what, size, allowed(default=MOST_MADE), remedy=remedy)


def _size(number: float) -> str:
    for unit, bytes_ in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if number >= bytes_ / 10:
            return f"{number / bytes_:.3g} {unit}"
    return f"{number:.0f} bytes"


def file_size(path: Path, what: str, *, why: str, remedy: str = "check the path", error: Any = InvalidSpec) -> int:
    """Bytes of a file that must exist and end: no folder, device or pipe."""
    try:
        if path.is_file():
            return path.stat().st_size
        got = f"{path}, which is a folder, a device or a pipe" if path.exists() else f"no file {path}"
    except (OSError, ValueError) as problem:
        got = f"no file {str(path)[:200]!r} ({unadvised(problem)})"
    raise error(f"{what} must exist, got {got}.")


@contextmanager
def readable(
    path: Path | str, remedy: str = "write it again", *, kind: str = "readable", error: Any = InvalidSpec
) -> Iterator[None]:
    """Say in words that a file is damaged, and no file of its `kind`, whatever that makes its reader raise."""
    try:
        yield
    except LearncastError:
        raise
    except Exception as problem:
        raise error(f"{path} must be {kind}, got {type(problem).__name__}: {unadvised(problem)}.") from problem


def unadvised(problem: Exception) -> str:
    """What a library says, without its advice to read the file unsafely."""
    if isinstance(problem, MemoryError):
        return "more than the memory holds"
    text = " ".join(str(problem).split())
    if "pickle" in text.lower() or "weights_only" in text:
        return "objects, which only running a part of the file could restore"
    return text if len(text) <= 200 else f"{text[:197]}..."


def listed(names: Any) -> str:
    """Names in a sentence, the first of them where they are many."""
    words = [str(name) if len(str(name)) <= 60 else f"{str(name)[:57]}..." for name in names]
    more = f" and {len(words) - MOST_NAMES:,} more" if len(words) > MOST_NAMES else ""
    return ", ".join(words[:MOST_NAMES]) + more or "none"


def tables_of(path: Path, what: str, *, why: str, most_bytes: int | None = None) -> dict[str, Any]:
    """The tables of a TOML file, whose size and depth are measured before it is parsed.

    `what` is its name in a sentence, and `why` says what its absence means.
    """
    size, most = file_size(path, what, why=why), allowed(most_bytes, default=MOST_TEXT)
    check_bytes(str(path), size, most, remedy="keep long lists in files of arrays")
    try:
        text = path.read_text(encoding="utf-8")
        _check_depth(text)
        tables = tomllib.loads(text)
        _check_integers(tables)
        return tables
    except (ValueError, RecursionError) as error:  # TOML's, Unicode's and those of numbers
        raise InvalidSpec(f"{path} must be a TOML file, got {unadvised(error)}.") from error


#: Strings, closed or not, and comments: each is passed over in one step.
_QUOTED = re.compile(
    r'"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*(?:"""|\Z)'
    r"|'''[^']*(?:'(?!'')[^']*)*(?:'''|\Z)"
    r'|"[^"\\\n]*(?:\\.[^"\\\n]*)*"?'
    r"|'[^'\n]*'?|\#[^\n]*",
    re.DOTALL,
)


def _check_depth(text: str) -> None:
    """Refuse numbers, brackets and keys on which a parser would spend its stack or the memory."""
    bare = _QUOTED.sub("''", text)
    if (number := re.search(rf"(?:0[xob]\w|\d)[\w]{{{MOST_DIGITS}}}", bare)) is not None:
        raise _too_deep(f"a number of more than {MOST_DIGITS} digits", bare, number.start())
    depth = 0
    for bracket in re.finditer(r"[\[\]{}]", bare):
        depth = depth + 1 if bracket[0] in "[{" else max(depth - 1, 0)
        if depth > MOST_NESTED:
            raise _too_deep(f"more than {MOST_NESTED} brackets in each other", bare, bracket.start())
    for part in re.finditer(r"[^=,\[\]{}\n]+", bare):
        if part[0].count(".") >= MOST_NESTED:
            raise _too_deep(f"a key of more than {MOST_NESTED} parts", bare, part.start())


def _check_integers(value: Any) -> None:
    """Refuse integers of more than 64 bits, which TOML has not."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _check_integers(item)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"the integer {str(value)[:20]}..., which has more than 64 bits")


def _too_deep(what: str, text: str, place: int) -> ValueError:
    return ValueError(f"{what} (about line {text[:place].count(chr(10)) + 1})")
