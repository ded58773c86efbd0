"""Limits on the size and depth of files, checked before anything is read."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from learncast._core.errors import InvalidSpec, LearncastError

#: Default limit in bytes of one array, table or file in memory.
MOST_BYTES = 2**31
#: Default limit in bytes of a network that a study asks for, so that a process with torch stays below 1 GB.
MOST_MADE = 2**29
#: Default limit in bytes of a TOML file.
MOST_TEXT = 2**20
#: Limit on nested brackets, and on the parts of one dotted key, in a TOML file.
MOST_NESTED = 16
#: Limit on the digits of one number in a TOML file.
MOST_DIGITS = 400
#: Names listed in one error message.
MOST_NAMES = 20

_most_bytes: ContextVar[int | None] = ContextVar("most_bytes", default=None)


@contextmanager
def allowing(most_bytes: float | None) -> Iterator[None]:
    """Set the memory limit of everything read inside the context; None keeps the current limit."""
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
    """Return the memory limit: the argument, else that of the enclosing `allowing`, else the default."""
    limit = given_bytes() if most_bytes is None else most_bytes
    return default if limit is None else limit


def given_bytes() -> int | None:
    """Return the limit of the enclosing `allowing`, or None."""
    return _most_bytes.get()


def check_bytes(
    what: str, size: float, most_bytes: int | None = None, *, remedy: str = "keep fewer trials, steps or channels"
) -> None:
    """Raise if `what` takes more memory than allowed; `remedy` says how to need less."""
    most = allowed(most_bytes)
    if size > most:
        sizes = f"{format_bytes(most)}, got {format_bytes(size)}"
        raise InvalidSpec(f"{what} must take at most {sizes}. Raise most_bytes, or {remedy}.", field="most_bytes")


def check_made(what: str, size: float, *, remedy: str) -> None:
    """Raise if an object that a study asks for takes more than `MOST_MADE`, or than the enclosing `allowing`."""
    check_bytes(what, size, allowed(default=MOST_MADE), remedy=remedy)


def format_bytes(number: float) -> str:
    """Return a number of bytes with its unit."""
    for unit, bytes_ in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if number >= bytes_ / 10:
            return f"{number / bytes_:.3g} {unit}"
    return f"{number:.0f} bytes"


def file_size(path: Path, what: str, *, error: type[LearncastError] = InvalidSpec) -> int:
    """Return the bytes of a regular file; folders, devices and pipes raise."""
    try:
        if path.is_file():
            return path.stat().st_size
        problem = f"{path} is a folder, a device or a pipe" if path.exists() else f"{path} does not exist"
    except (OSError, ValueError) as failure:
        problem = f"{str(path)[:200]!r} cannot be opened ({library_message(failure)})"
    raise error(f"{what} cannot be read: {problem}.")


@contextmanager
def readable(path: Path | str, *, kind: str = "readable", error: type[LearncastError] = InvalidSpec) -> Iterator[None]:
    """Convert whatever a library raises on a damaged file to one `error`; `kind` says what the file must be."""
    try:
        yield
    except LearncastError:
        raise
    except Exception as problem:
        raise error(f"{path} must be {kind}, got {type(problem).__name__}: {library_message(problem)}.") from problem


def library_message(problem: Exception) -> str:
    """Return the message of a library's exception on one line, without advice to load the file unsafely."""
    if isinstance(problem, MemoryError):
        return "out of memory"
    text = " ".join(str(problem).split())
    if "pickle" in text.lower() or "weights_only" in text:
        return "it holds Python objects, which only executing code of the file could restore"
    return text if len(text) <= 200 else f"{text[:197]}..."


def listed(names: Iterable[object]) -> str:
    """Return the first names, separated by commas, and how many more there are."""
    words = [str(name) if len(str(name)) <= 60 else f"{str(name)[:57]}..." for name in names]
    more = f" and {len(words) - MOST_NAMES:,} more" if len(words) > MOST_NAMES else ""
    return ", ".join(words[:MOST_NAMES]) + more or "none"


def natural_key(name: object) -> tuple[list[str | tuple[int, str]], str]:
    """Return a sort key that puts run2 before run10: alternating words and numbers, which may have any length."""
    parts = [part.lstrip("0") if k % 2 else part for k, part in enumerate(re.split(r"(\d+)", str(name)))]
    return [(len(part), part) if k % 2 else part for k, part in enumerate(parts)], str(name)


def tables_of(path: Path, what: str, *, most_bytes: int | None = None) -> dict[str, object]:
    """Return the tables of a TOML file after checking its size and depth; `what` names the file in errors."""
    size, most = file_size(path, what), allowed(most_bytes, default=MOST_TEXT)
    check_bytes(str(path), size, most, remedy="keep long lists in files of arrays")
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors of Windows write a byte-order mark
        _check_depth(text)
        tables = tomllib.loads(text)
        _check_integers(tables)
        return tables
    except (ValueError, RecursionError) as error:  # ValueError: TOML syntax, Unicode and very long numbers
        raise InvalidSpec(f"{path} must be a TOML file: {library_message(error)}.") from error


#: Strings, closed or not, and comments: each is skipped in one step.
_QUOTED = re.compile(
    r'"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*(?:"""|\Z)'
    r"|'''[^']*(?:'(?!'')[^']*)*(?:'''|\Z)"
    r'|"[^"\\\n]*(?:\\.[^"\\\n]*)*"?'
    r"|'[^'\n]*'?|\#[^\n]*",
    re.DOTALL,
)


def _check_depth(text: str) -> None:
    """Raise on numbers, brackets and keys that would exhaust the stack or the memory of the parser."""
    bare = _QUOTED.sub("''", text)
    if (number := re.search(rf"(?:0[xob]\w|\d)[\w]{{{MOST_DIGITS}}}", bare)) is not None:
        raise _too_deep(f"a number of more than {MOST_DIGITS} digits", bare, number.start())
    depth = 0
    for bracket in re.finditer(r"[\[\]{}]", bare):
        depth = depth + 1 if bracket[0] in "[{" else max(depth - 1, 0)
        if depth > MOST_NESTED:
            raise _too_deep(f"more than {MOST_NESTED} nested brackets", bare, bracket.start())
    for part in re.finditer(r"[^=,\[\]{}\n]+", bare):
        if part[0].count(".") >= MOST_NESTED:
            raise _too_deep(f"a key of more than {MOST_NESTED} parts", bare, part.start())


def _check_integers(value: object) -> None:
    """Raise on integers of more than 64 bits, which TOML excludes."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _check_integers(item)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"the integer {str(value)[:20]}... has more than 64 bits")


def _too_deep(what: str, text: str, place: int) -> ValueError:
    return ValueError(f"{what} (about line {text[:place].count(chr(10)) + 1})")
