"""The description of one task, and its hash."""

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

#: A JSON object: nested dictionaries and lists of numbers and strings.
Tables = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Spec(Mapping[str, object]):
    """Arguments of one task: a read-only mapping whose random numbers are seeded by its content.

    Attributes
    ----------
    content : mapping
        Values; ``spec["a.b"]`` returns a copy of the value at a dotted key.
    digest : str
        Hash of the function's name and of all values. Equal tasks have equal hashes.

    Examples
    --------
    >>> import learncast as lc
    >>> spec = lc.sweep.Spec({"training": {"rate": 0.1}, "seed": 0}, digest="2a")
    >>> spec["training.rate"]
    0.1
    >>> spec.rng().normal() == spec.rng().normal()
    True
    """

    content: Mapping[str, object]
    digest: str

    def __getitem__(self, key: str) -> Any:
        return copy.deepcopy(lookup(self.content, key))

    def __iter__(self) -> Iterator[str]:
        return iter(self.content)

    def __len__(self) -> int:
        return len(self.content)

    @property
    def seed_sequence(self) -> np.random.SeedSequence:
        """Seed of the task's random numbers; it depends only on the task's content."""
        return np.random.SeedSequence(int(self.digest, 16))

    def rng(self) -> np.random.Generator:
        """Return a new generator at the start of the task's random stream."""
        return np.random.default_rng(self.seed_sequence)

    def seeds(self, number: int) -> list[int]:
        """Return integer seeds, for functions that accept no generator."""
        return [int(word) for word in self.seed_sequence.generate_state(number, np.uint32)]


def canonical(value: object, name: str = "value") -> Any:
    """Return a value as JSON types: numbers, strings, lists and dictionaries."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidSpec(f"{name} must be valid Unicode text, got {value!a}.", field=name) from error
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple | range):
        return [canonical(item, name) for item in value]
    if isinstance(value, Mapping):
        return {str(key): canonical(item, f"{name}.{key}") for key, item in value.items()}
    raise InvalidSpec(f"{name} must be numbers, strings, lists or tables, got {type(value).__name__}.", field=name)


def json_text(value: object) -> str:
    """Return JSON with sorted keys: equal values have equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest_of(value: object) -> str:
    """Return the hash of a JSON value: 128 bits as hexadecimal digits."""
    return hashlib.sha256(json_text(value).encode()).hexdigest()[:32]


def merged(base: Mapping[str, object], cell: Mapping[str, object]) -> Tables:
    """Return a copy of `base` with a cell's values set at their dotted keys; a number in a key indexes a list."""
    tables: Tables = copy.deepcopy(dict(base))
    for key, value in cell.items():
        *path, last = key.split(".")
        table: Any = tables
        for word in path:
            if isinstance(table, dict):
                table.setdefault(word, {})
            table = table[_index(key, word, table)]
        table[_index(key, last, table)] = copy.deepcopy(value)
    return tables


def lookup(tables: object, key: str) -> object:
    """Return the value at a dotted key, or raise KeyError."""
    value = tables
    for word in key.split("."):
        if isinstance(value, Mapping) and word in value:
            value = value[word]
        elif isinstance(value, list) and word.isdecimal() and int(word) < len(value):
            value = value[int(word)]
        else:
            raise KeyError(key)
    return value


def _index(key: str, word: str, table: object) -> str | int:
    """Return one word of a dotted key as the index into a table or list."""
    if isinstance(table, dict):
        return word
    if not isinstance(table, list):
        raise InvalidSpec(f"{key} must be inside a table, got {table!r} at {key.rpartition('.')[0]}.", field=key)
    if word not in map(str, range(len(table))):
        raise InvalidSpec(f"{key} must have a list index from 0 to {len(table) - 1}, got {word!r}.", field=key)
    return int(word)


def file_hashes(tables: object) -> dict[str, str]:
    """Return the SHA-256 of every file that a study names: a file with new content is a new study."""
    if isinstance(tables, str) and tables.startswith("/") and Path(tables).is_file():
        with Path(tables).open("rb") as file:
            return {tables: hashlib.file_digest(file, "sha256").hexdigest()}
    items = tables.values() if isinstance(tables, Mapping) else tables if isinstance(tables, list) else ()
    return {path: digest for item in items for path, digest in file_hashes(item).items()}
