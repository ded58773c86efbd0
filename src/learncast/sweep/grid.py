"""A grid: what a sweep varies, cell by cell."""

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

from learncast._core.errors import InvalidSpec
from learncast._core.validation import count, one_of
from learncast.sweep.spec import canonical, found_at, placed

#: Cells of one sweep; a mistyped count must not exhaust the disk.
MOST_CELLS = 10**7
#: The axis that repeats every cell.
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
class Axis:
    """Keys that vary together: one key, or several that are zipped.

    Attributes
    ----------
    keys : tuple of str
        Dotted keys.
    points : tuple of tuple
        What the keys take at each point of the axis.

    Examples
    --------
    >>> import learncast as lc
    >>> axis = lc.sweep.Axis(("training.rate", "training.steps"), ((0.1, 100), (0.01, 1000)))
    >>> axis.values("training.steps")
    [100, 1000]
    """

    keys: tuple[str, ...]
    points: tuple[tuple[Any, ...], ...]

    def values(self, key: str) -> list[Any]:
        """What one key takes along the axis."""
        place = self.keys.index(key)
        return [point[place] for point in self.points]


@dataclass(frozen=True)
class Grid:
    """Axes whose product is swept, less the cells that fail a condition.

    Attributes
    ----------
    axes : tuple of Axis
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

    axes: tuple[Axis, ...]
    conditions: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        keys: Mapping[str, Any],
        *,
        zips: Sequence[Sequence[str]] = (),
        conditions: Sequence[str] = (),
        seeds: int | None = None,
    ) -> Grid:
        """Build a grid from dotted keys with lists or ranges.

        Parameters
        ----------
        keys : mapping
            Dotted keys; each takes a list of values, or a range ``{"first": 0.1, "last": 2.0, "count": 20}`` with
            ``"spacing": "log"`` if wanted. Tables inside tables are dotted keys too.
        zips : sequence of sequences of str
            Keys that vary together instead of in every combination.
        conditions : sequence of str
            Comparisons of a key with a number, a word or another key.
        seeds : int, optional
            How often every cell is repeated, each time with other random numbers.
        """
        if not isinstance(keys, Mapping):
            raise InvalidSpec(
                f"a grid must be a mapping from keys to lists of values, got {type(keys).__name__}. Write it like "
                f'{{"training.learning_rate": [1e-3, 1e-2]}}.'
            )
        listed = list(_flattened(keys))
        _check_keys([key for key, _ in listed])
        flat = {key: _points(key, value) for key, value in listed}
        axes = _axes(flat, zips)
        if seeds is not None:
            if SEED in flat:
                raise InvalidSpec("either seeds or a key called seed must be given, got both. Leave one of them out.")
            number = count("seeds", seeds)
            axes = (*axes, Axis((SEED,), tuple((k,) for k in range(number))))
        for condition in conditions:
            _parsed(condition)
        grid = cls(axes, tuple(conditions))
        if grid.size > MOST_CELLS:
            raise InvalidSpec(f"a grid must have at most {MOST_CELLS:,} cells, got {grid.size:,}.")
        return grid

    @property
    def shape(self) -> tuple[int, ...]:
        """Points along each axis."""
        return tuple(len(axis.points) for axis in self.axes)

    @property
    def size(self) -> int:
        """Cells, those that fail a condition too."""
        return math.prod(self.shape)

    @property
    def keys(self) -> tuple[str, ...]:
        """Every key that varies."""
        return tuple(key for axis in self.axes for key in axis.keys)

    def cell(self, position: int) -> dict[str, Any]:
        """What the keys take in the cell at a position; the last axis varies fastest."""
        points = (axis.points[k] for axis, k in zip(self.axes, np.unravel_index(position, self.shape), strict=True))
        return dict(zip(self.keys, itertools.chain.from_iterable(points), strict=True))

    def cells(self, base: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Positions and assignments of the cells that meet every condition; `base` holds what does not vary."""
        for position in range(self.size):
            cell = self.cell(position)
            if self.includes(cell, base):
                yield position, cell

    def includes(self, cell: Mapping[str, Any], base: Mapping[str, Any]) -> bool:
        """Whether a cell meets every condition."""
        if not self.conditions:
            return True
        whole = placed(base, cell)
        return all(_meets(condition, cell, whole) for condition in self.conditions)

    def described(self) -> dict[str, Any]:
        """The grid as plain values, to be stored and compared."""
        axes = [{"keys": list(axis.keys), "points": [list(p) for p in axis.points]} for axis in self.axes]
        return {"axes": axes, "conditions": list(self.conditions)}

    @classmethod
    def from_described(cls, stored: Mapping[str, Any]) -> Grid:
        """Read back what `described` gave."""
        axes = tuple(Axis(tuple(a["keys"]), tuple(tuple(p) for p in a["points"])) for a in stored["axes"])
        return cls(axes, tuple(stored["conditions"]))


def _check_keys(keys: Sequence[str]) -> None:
    """Each key can be the name of a dimension, and lies beside the others."""
    for k, key in enumerate(keys):
        if not key or "/" in key or not all(key.split(".")):
            raise InvalidSpec(
                f"a key of the grid must be words joined by dots, without a slash, got {key!r}. Use the key's "
                "dotted name."
            )
        for other in keys[:k]:
            if key == other or key.startswith(f"{other}.") or other.startswith(f"{key}."):
                raise InvalidSpec(f"keys of the grid must lie beside each other, got {other!r} and {key!r}.")


def _flattened(keys: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in keys.items():
        if isinstance(value, Mapping) and not (value and set(value) <= _RANGE):
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _points(key: str, value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return _range(key, value)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, list | tuple | range) or len(value) == 0:
        raise InvalidSpec(
            required=f"{key} must take a list of values or a range",
            got=repr(value)[:60],
            why="a sweep varies it",
            remedy=f"write {key} = [...], or move it out of the grid",
        )
    return [canonical(item, key) for item in value]


def _range(key: str, table: Mapping[str, Any]) -> list[Any]:
    missing = [word for word in ("first", "last", "count") if word not in table]
    if missing:
        raise InvalidSpec(f"a range of {key} must have first, last and count, got no {missing[0]}.")
    number = count(f"{key}.count", table["count"])
    if number > MOST_CELLS:
        raise InvalidSpec(f"{key}.count must be at most {MOST_CELLS:,}, got {number:,}.")
    ends = [table["first"], table["last"]]
    spacing = one_of(f"{key}.spacing", table.get("spacing", "linear"), ("linear", "log"))
    if not all(isinstance(end, int | float) and math.isfinite(end) for end in ends) or (
        spacing == "log" and min(ends) <= 0
    ):
        raise InvalidSpec(
            f"first and last of {key} must be {'positive' if spacing == 'log' else 'finite'} numbers, got "
            f"{ends[0]!r} and {ends[1]!r}."
        )
    points = (np.geomspace if spacing == "log" else np.linspace)(float(ends[0]), float(ends[1]), number)
    # Whole ends with whole steps are counts, which a key such as hidden_size insists on.
    whole = all(isinstance(end, int) for end in ends) and spacing == "linear" and bool((points == points.round()).all())
    return [int(p) for p in points] if whole else [float(p) for p in points]


def _axes(flat: Mapping[str, list[Any]], zips: Sequence[Sequence[str]]) -> tuple[Axis, ...]:
    together: dict[str, tuple[str, ...]] = {}
    for group in zips:
        if isinstance(group, str):
            raise InvalidSpec(f'zips must be lists of keys, got {group!r}. Write [["a", "b"]].', field="zips")
        for key in group:
            if key not in flat or key in together:
                raise InvalidSpec(f"zips must name keys of the grid, each once, got {key!r}.", field="zips")
            together[key] = tuple(group)
        lengths = {key: len(flat[key]) for key in group}
        if len(set(lengths.values())) > 1:
            raise InvalidSpec(
                "zipped keys must take equally many values, got "
                f"{', '.join((f'{key}: {n}' for key, n in lengths.items()))}."
            )
    groups = dict.fromkeys(together.get(key, (key,)) for key in flat)
    return tuple(Axis(group, tuple(zip(*(flat[key] for key in group), strict=True))) for group in groups)


def _parsed(condition: str) -> tuple[str, Callable[[Any, Any], bool], str]:
    found = _CONDITION.match(condition)
    if found is None:
        raise InvalidSpec(
            f"a condition must compare a key with a number, a word or another key, got {condition!r}. "
            "Write it like 'network.hidden_size >= 16', and several conditions for 'and'."
        )
    return found[1], _COMPARISONS[found[2]], found[3]


def _meets(condition: str, cell: Mapping[str, Any], whole: Mapping[str, Any]) -> bool:
    left, compare, right = _parsed(condition)
    values = [_valued(word, cell, whole, must=first) for word, first in ((left, True), (right, False))]
    try:
        return bool(compare(*values))
    except TypeError as error:
        raise InvalidSpec(f"{left} and {right} must be comparable, got {values[0]!r} and {values[1]!r}.") from error


def _valued(word: str, cell: Mapping[str, Any], whole: Mapping[str, Any], *, must: bool) -> Any:
    """The value a word of a condition stands for: a key's, a number's, or the word itself."""
    known, value = found_at(whole, word)
    if known:
        return value
    if must:
        raise InvalidSpec(f"a condition must begin with a key of the grid or of the study, got {word!r}.")
    if word in ("true", "false"):
        return word == "true"
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return number(word)
    return word.strip("'\"")
