"""The frozen description of one task, with its hash."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from learncast._core.errors import InvalidSpec


@dataclass(frozen=True, eq=False)
class Spec(Mapping[str, Any]):
    """What one task is given: a read-only mapping whose random numbers follow from its content.

    Attributes
    ----------
    content : mapping
        Its values; ``spec["a.b"]`` gives a copy of what lies at a dotted key.
    digest : str
        Hash of the function's name and of all values; equal tasks have equal ones.

    Examples
    --------
    >>> import learncast as lc
    >>> spec = lc.sweep.Spec({"training": {"rate": 0.1}, "seed": 0}, digest="2a")
    >>> spec["training.rate"]
    0.1
    >>> spec.rng().normal() == spec.rng().normal()
    True
    """

    content: Mapping[str, Any]
    digest: str

    def __getitem__(self, key: str) -> Any:
        known, value = found_at(self.content, key)
        if not known:
            raise KeyError(key)
        return copy.deepcopy(value)

    def __iter__(self) -> Iterator[str]:
        return iter(self.content)

    def __len__(self) -> int:
        return len(self.content)

    @property
    def seed_sequence(self) -> np.random.SeedSequence:
        """The task's own stream, which depends on nothing but its content."""
        return np.random.SeedSequence(int(self.digest, 16))

    def rng(self) -> np.random.Generator:
        """A new generator at the beginning of the task's stream."""
        return np.random.default_rng(self.seed_sequence)

    def seeds(self, number: int) -> list[int]:
        """Whole numbers for what takes a seed instead of a generator."""
        return [int(word) for word in self.seed_sequence.generate_state(number, np.uint32)]


def canonical(value: Any, name: str = "a value") -> Any:
    """The plain form of a value: numbers, words, lists and tables.

    Raises
    ------
    InvalidSpec
        For anything whose content cannot be hashed and stored.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidSpec(
                f"{name} must be text that can be written, got {value!a}. Decode the name of a file "
                "properly, or use another.",
                field=name,
            ) from error
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        return canonical(value.tolist(), name)
    if isinstance(value, list | tuple | range):
        return [canonical(item, name) for item in value]
    if isinstance(value, Mapping):
        return {str(key): canonical(item, f"{name}.{key}") for key, item in value.items()}
    raise InvalidSpec(
        f"{name} must be made of numbers, words, lists and tables, got {type(value).__name__}.", field=name
    )


def text_of(value: Any) -> str:
    """One text for equal plain values, whatever the order of their keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest_of(value: Any) -> str:
    """Hash of a plain value: 128 bits as hexadecimal digits."""
    return hashlib.sha256(text_of(value).encode()).hexdigest()[:32]


def placed(base: Mapping[str, Any], cell: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of a cell put at their dotted keys; a number in a key is a place in a list."""
    whole: dict[str, Any] = copy.deepcopy(dict(base))
    for key, value in cell.items():
        *path, last = key.split(".")
        table: Any = whole
        for word in path:
            if isinstance(table, dict):
                table.setdefault(word, {})
            table = table[_place(key, word, table)]
        table[_place(key, last, table)] = copy.deepcopy(value)
    return whole


def found_at(tables: Mapping[str, Any], key: str) -> tuple[bool, Any]:
    """Whether there is something at a dotted key, and what."""
    value: Any = tables
    for word in key.split("."):
        if isinstance(value, Mapping) and word in value:
            value = value[word]
        elif isinstance(value, list) and word.isdecimal() and int(word) < len(value):
            value = value[int(word)]
        else:
            return False, None
    return True, value


def _place(key: str, word: str, table: Any) -> str | int:
    """Where a word of a key leads in a table, or in a list by its number."""
    if isinstance(table, dict):
        return word
    if not isinstance(table, list):
        path = key.rpartition(".")[0]
        raise InvalidSpec(f"{key} must lie in a table, got {table!r} at {path}.", field=key)
    if not word.isdecimal() or int(word) >= len(table):
        raise InvalidSpec(f"{key} must name a place from 0 to {len(table) - 1} in a list, got {word!r}.", field=key)
    return int(word)


def file_hashes(tables: Any) -> dict[str, str]:
    """Hashes of all files that a study names: other trials under the same name are another study."""
    found: dict[str, str] = {}
    if isinstance(tables, str) and tables.startswith("/") and Path(tables).is_file():
        with Path(tables).open("rb") as file:
            found[tables] = hashlib.file_digest(file, "sha256").hexdigest()
    elif isinstance(tables, Mapping | list):
        for item in tables.values() if isinstance(tables, Mapping) else tables:
            found |= file_hashes(item)
    return found
