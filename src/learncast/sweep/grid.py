"""A grid: the values that a sweep varies."""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from learncast._core.errors import InvalidSpec, brief
from learncast._core.validation import count, one_of
from learncast.sweep.spec import Tables, canonical, json_text, lookup, merged

#: Largest number of cells; a mistyped count must not fill the disk.
MOST_CELLS = 10**7
#: Key that repeats every cell with new random numbers.
SEED = "seed"

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_CONDITION = re.compile(r"^\s*(\S+)\s*(<=|>=|==|!=|<|>)\s*(.+?)\s*$")
_RANGE = {"first", "last", "count", "spacing"}


@dataclass(frozen=True)
class GridAxis:
    """One key that varies, or several that vary together.

    Attributes
    ----------
    keys : tuple of str
        Dotted keys.
    points : tuple of tuple
        Values of the keys at each point of the axis.

    Examples
    --------
    >>> import learncast as lc
    >>> axis = lc.sweep.GridAxis(("training.rate", "training.steps"), ((0.1, 100), (0.01, 1000)))
    >>> axis.values("training.steps")
    [100, 1000]
    """

    keys: tuple[str, ...]
    points: tuple[tuple[object, ...], ...]

    def values(self, key: str) -> list[object]:
        """Return the values of one key along the axis."""
        place = self.keys.index(key)
        return [point[place] for point in self.points]


@dataclass(frozen=True)
class Grid:
    """The product of several axes, without the cells that fail a condition.

    Attributes
    ----------
    axes : tuple of GridAxis
    conditions : tuple of str
        Comparisons like ``"training.batch < network.hidden_size"``; a cell must meet all of them.

    Examples
    --------
    >>> import learncast as lc
    >>> grid = lc.sweep.Grid.of(
    ...     {"hidden_size": [8, 64], "batch": {"first": 4, "last": 16, "count": 2}},
    ...     conditions=["batch < hidden_size"],
    ...     seeds=2,
    ... )
    >>> grid.size, len(list(grid.cells({})))
    (8, 6)
    >>> grid.cell(0)
    {'hidden_size': 8, 'batch': 4, 'seed': 0}
    """

    axes: tuple[GridAxis, ...]
    conditions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for axis in self.axes:
            if len(set(map(json_text, axis.points))) < len(axis.points):
                names = ", ".join(axis.keys)
                raise InvalidSpec(f"{names} must have different values, got one of them twice.", field=axis.keys[0])

    @classmethod
    def of(
        cls,
        keys: Mapping[str, object],
        *,
        zips: Sequence[Sequence[str]] = (),
        conditions: Sequence[str] = (),
        seeds: int | None = None,
    ) -> Grid:
        """Build a grid from dotted keys with lists or ranges.

        Parameters
        ----------
        keys : mapping
            Dotted keys. Each has a list of values, or a range ``{"first": 0.1, "last": 2.0, "count": 20}`` with an
            optional ``"spacing": "log"``. Nested tables are flattened to dotted keys.
        zips : sequence of sequences of str
            Keys that vary together instead of in every combination.
        conditions : sequence of str
            Comparisons of a key with a number, a word or another key.
        seeds : int, optional
            Number of repetitions of every cell, each with its own random numbers.
        """
        if not isinstance(keys, Mapping):
            raise InvalidSpec(f"grid must map keys to lists of values, got {type(keys).__name__}.", field="grid")
        listed = list(_flattened(keys))
        _check_keys([key for key, _ in listed])
        flat = {key: _points(key, value) for key, value in listed}
        axes = _axes(flat, zips)
        if seeds is not None:
            if SEED in flat:
                raise InvalidSpec("seeds must be left out if the grid has the key seed, got both.", field="seeds")
            axes = (*axes, GridAxis((SEED,), tuple((k,) for k in range(count("seeds", seeds)))))
        for condition in conditions:
            _parsed(condition)
        grid = cls(axes, tuple(conditions))
        if grid.size > MOST_CELLS:
            raise InvalidSpec(f"grid must have at most {MOST_CELLS:,} cells, got {grid.size:,}.", field="grid")
        return grid

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of points along each axis."""
        return tuple(len(axis.points) for axis in self.axes)

    @property
    def size(self) -> int:
        """Number of cells, including those that fail a condition."""
        return math.prod(self.shape)

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys that vary."""
        return tuple(key for axis in self.axes for key in axis.keys)

    def cell(self, position: int) -> Tables:
        """Return the values of the keys in one cell; the last axis varies fastest."""
        points = (axis.points[k] for axis, k in zip(self.axes, np.unravel_index(position, self.shape), strict=True))
        return dict(zip(self.keys, itertools.chain.from_iterable(points), strict=True))

    def cells(self, base: Mapping[str, object]) -> Iterator[tuple[int, Tables]]:
        """Yield position and values of the cells that meet every condition; `base` holds the fixed values."""
        for position in range(self.size):
            cell = self.cell(position)
            if self.includes(cell, base):
                yield position, cell

    def includes(self, cell: Mapping[str, object], base: Mapping[str, object]) -> bool:
        """Return whether a cell meets every condition."""
        tables = merged(base, cell) if self.conditions else {}
        return all(_meets(condition, tables) for condition in self.conditions)

    def to_dict(self) -> Tables:
        """Return the grid as JSON types."""
        axes = [{"keys": list(axis.keys), "points": [list(p) for p in axis.points]} for axis in self.axes]
        return {"axes": axes, "conditions": list(self.conditions)}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Grid:
        """Build a grid from the result of `to_dict`."""
        axes = tuple(GridAxis(tuple(a["keys"]), tuple(tuple(p) for p in a["points"])) for a in stored["axes"])
        return cls(axes, tuple(stored["conditions"]))


def _check_keys(keys: Sequence[str]) -> None:
    """Check that each key is a valid name of a dimension and is not part of another."""
    for k, key in enumerate(keys):
        if not key or "/" in key or not all(key.split(".")):
            raise InvalidSpec(f"A grid key must be words joined by dots, without slashes, got {key!r}.", field="grid")
        for other in keys[:k]:
            if key == other or key.startswith(f"{other}.") or other.startswith(f"{key}."):
                raise InvalidSpec(f"Grid keys must not contain each other, got {other!r} and {key!r}.", field="grid")


def _flattened(keys: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in keys.items():
        if isinstance(value, Mapping) and not (value and set(value) <= _RANGE):
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _points(key: str, value: object) -> Sequence[object]:
    """Return the values of one key."""
    if isinstance(value, Mapping):
        return _range(key, value)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, list | tuple | range) or len(value) == 0:
        raise InvalidSpec(f"{key} must have a list of values or a range, got {brief(value)}.", field=key)
    return [canonical(item, key) for item in value]


def _range(key: str, table: Mapping[str, Any]) -> Sequence[object]:
    """Return the values of a range; integers if both ends and the step are whole."""
    missing = [word for word in ("first", "last", "count") if word not in table]
    if missing:
        raise InvalidSpec(f"{key} must have first, last and count, got no {missing[0]}.", field=key)
    number = count(f"{key}.count", table["count"])
    if number > MOST_CELLS:
        raise InvalidSpec(f"{key}.count must be at most {MOST_CELLS:,}, got {number:,}.", field=f"{key}.count")
    ends = [table["first"], table["last"]]
    log = one_of(f"{key}.spacing", table.get("spacing", "linear"), ("linear", "log")) == "log"
    if not all(isinstance(end, int | float) and math.isfinite(end) for end in ends) or (log and min(ends) <= 0):
        kind = "positive" if log else "finite"
        raise InvalidSpec(f"first and last of {key} must be {kind}, got {ends[0]!r} and {ends[1]!r}.", field=key)
    points = (np.geomspace if log else np.linspace)(float(ends[0]), float(ends[1]), number)
    integers = all(isinstance(end, int) for end in ends) and not log and bool((points == points.round()).all())
    return [int(p) for p in points] if integers else points.tolist()


def _axes(flat: Mapping[str, Sequence[object]], zips: Sequence[Sequence[str]]) -> tuple[GridAxis, ...]:
    together: dict[str, tuple[str, ...]] = {}
    for group in zips:
        if isinstance(group, str):
            raise InvalidSpec(f'zips must be lists of keys like [["a", "b"]], got {group!r}.', field="zips")
        for key in group:
            if key not in flat or key in together:
                raise InvalidSpec(f"zips must name keys of the grid, each once, got {key!r}.", field="zips")
            together[key] = tuple(group)
        lengths = {key: len(flat[key]) for key in group}
        if len(set(lengths.values())) > 1:
            given = ", ".join(f"{key}: {n}" for key, n in lengths.items())
            raise InvalidSpec(f"Zipped keys must have equally many values, got {given}.", field="zips")
    groups = dict.fromkeys(together.get(key, (key,)) for key in flat)
    return tuple(GridAxis(group, tuple(zip(*(flat[key] for key in group), strict=True))) for group in groups)


def _parsed(condition: str) -> tuple[str, Callable[[object, object], bool], str]:
    parts = _CONDITION.match(condition)
    if parts is None:
        raise InvalidSpec(f"A condition must be like 'hidden_size >= 16', got {condition!r}.", field="conditions")
    return parts[1], _COMPARISONS[parts[2]], parts[3]


def _meets(condition: str, tables: Mapping[str, object]) -> bool:
    """Return whether a cell's values, in nested tables, meet a condition."""
    left, compare, right = _parsed(condition)
    try:
        value = lookup(tables, left)
    except KeyError as error:
        raise InvalidSpec(f"A condition must start with a known key, got {left!r}.", field="conditions") from error
    other = _operand(right, tables)
    try:
        return bool(compare(value, other))
    except TypeError as error:
        raise InvalidSpec(f"{left} and {right} must be comparable.", field="conditions") from error


def _operand(word: str, tables: Mapping[str, object]) -> object:
    """Return the value of a condition's right side: that of a key, a boolean, a number or the word itself."""
    with contextlib.suppress(KeyError):
        return lookup(tables, word)
    if word in ("true", "false"):
        return word == "true"
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return number(word)
    return word.strip("'\"")
