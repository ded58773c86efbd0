"""The pile of results: every variable over all cells, growing as results come."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from learncast.errors import InvalidSpec, SchemaMismatch

#: Bytes above which an array lives in a temporary file instead of memory.
MOST_MEMORY = 2**28
#: The variable that says what became of each cell.
STATUS = "task_status"
_KINDS = {"O": "words", "M": "dates", "m": "durations"}
#: Cells that are filled or written at a time.
CHUNK = 10_000


class _Column:
    """One variable over all cells, growing with the largest result."""

    def __init__(self, cells: int, variable: xr.Variable) -> None:
        self.dims, self.attrs = tuple(map(str, variable.dims)), dict(variable.attrs)
        self.values: NDArray[Any] = _blank((cells, *variable.shape), _kept(variable.dtype))
        self.known: NDArray[np.bool_] = _blank((cells, *variable.shape), np.dtype(bool))

    def put(self, cells: Sequence[int], name: str, variable: xr.Variable) -> None:
        if tuple(variable.dims) != self.dims:
            raise SchemaMismatch(
                required=f"{name} must have the dimensions {self.dims} in every cell",
                got=f"{variable.dims}",
                why="cells are laid side by side",
                remedy="return the same dimensions from every task",
            )
        largest = tuple(np.maximum(self.values.shape[1:], variable.shape))
        dtype = _joined(name, self.values.dtype, _kept(variable.dtype))
        if largest != self.values.shape[1:] or dtype != self.values.dtype:
            self.values, self.known = (
                _regrown(self.values, largest, dtype),
                _regrown(self.known, largest, np.dtype(bool)),
            )
        for cell in cells:
            where: Any = (cell, *(slice(0, n) for n in variable.shape))
            # Indexed, since an array of no dimensions would be stored as an object.
            self.values[where] = variable.values[()]
            self.known[where] = True

    def filled(self, lengths: Mapping[str, int]) -> NDArray[Any]:
        """The values as long as their dimensions, unknown ones as nan, not a time or the empty word."""
        shape = tuple(lengths[dim] for dim in self.dims)
        if shape != self.values.shape[1:]:
            self.values = _regrown(self.values, shape, self.values.dtype)
            self.known = _regrown(self.known, shape, np.dtype(bool))
        if self.known.all():
            return self.values
        kind = self.values.dtype.kind
        if kind in "biu":
            self.values, kind = _regrown(self.values, self.values.shape[1:], np.dtype(np.float64)), "f"
        blank: Any = {"f": np.nan, "c": complex(np.nan, np.nan), "O": ""}.get(kind)
        if kind in "Mm":
            blank = np.array("NaT", dtype=self.values.dtype)
        for begin in range(0, len(self.values), CHUNK):
            some = slice(begin, begin + CHUNK)
            self.values[some][~self.known[some]] = blank
        return self.values


class Pile:
    """Everything that results hold, variable by variable."""

    def __init__(self, cells: int, variables: Sequence[str] | None) -> None:
        self.cells, self.wanted, self.seen = cells, variables, set[str]()
        self.columns: dict[str, _Column] = {}
        self.shared: dict[str, xr.Variable] = {}
        self.filled: list[int] = []

    def add(self, cells: Sequence[int], dataset: xr.Dataset) -> None:
        self.seen |= set(map(str, dataset.variables))
        for name, variable in dataset.variables.items():
            key = str(name)
            if key in dataset.coords and key not in self.columns:
                self._compare(key, variable)
            if key in self.columns or (key not in dataset.coords and (self.wanted is None or key in self.wanted)):
                if key not in self.columns:
                    self.columns[key] = _Column(self.cells, variable)
                self.columns[key].put(cells, key, variable)
        self.filled += cells

    def _compare(self, key: str, variable: xr.Variable) -> None:
        """Keep a coordinate that all cells share; one that differs becomes a column."""
        known = self.shared.setdefault(key, variable)
        if known.shape == variable.shape and bool(np.array_equal(known.values, variable.values)):
            return
        self.columns[key] = _Column(self.cells, known)
        if self.filled:
            self.columns[key].put(self.filled, key, known)
        del self.shared[key]

    def lengths(self) -> dict[str, int]:
        """How long each dimension of the results is: as long as in the largest."""
        found: dict[str, int] = {}
        columns = [(column.dims, column.values.shape[1:]) for column in self.columns.values()]
        for dims, shape in (*columns, *((v.dims, v.shape) for v in self.shared.values())):
            for dim, size in zip(dims, shape, strict=True):
                found[str(dim)] = max(size, found.get(str(dim), 0))
        return found

    def settle(self) -> None:
        """Make columns of what is shared but shorter than its dimensions, or not an index of one."""
        lengths = self.lengths()
        for key, variable in list(self.shared.items()):
            short = any(size < lengths[str(dim)] for dim, size in zip(variable.dims, variable.shape, strict=True))
            if short or (key in variable.dims and variable.ndim > 1):
                self.columns[key] = _Column(self.cells, variable)
                self.columns[key].put(self.filled, key, variable)
                del self.shared[key]

    def check_named(self) -> None:
        if STATUS in self.seen:
            raise SchemaMismatch(
                required=f"results must have no variable called {STATUS}",
                got="one",
                why="it says what became of each cell",
                remedy="give it another name",
            )
        unknown = [name for name in self.wanted or () if self.filled and name not in self.seen]
        if unknown:
            raise InvalidSpec(
                required="variables must be among those of the results",
                got=repr(unknown[0]),
                why="there is nothing to gather",
                remedy=f"use {', '.join(sorted(self.seen))}",
            )


def _kept(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Words of any length are kept as objects."""
    return np.dtype(object) if dtype.kind in "UST" else dtype


def _joined(name: str, one: np.dtype[Any], other: np.dtype[Any]) -> np.dtype[Any]:
    """The kind that holds both; a word and a number, or a number and a date, have none."""
    if one == other:
        return one
    try:
        if "O" not in (one.kind, other.kind):
            return np.result_type(one, other)
    except TypeError:
        pass
    raise SchemaMismatch(
        required=f"{name} must hold values of one kind in every cell",
        got=f"{_KINDS.get(one.kind, 'numbers')} here and {_KINDS.get(other.kind, 'numbers')} there",
        why="cells are laid side by side",
        remedy="return one kind from every task, or gather other variables",
    )


def _blank(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    size = int(np.prod(shape)) * dtype.itemsize
    if dtype.kind == "O":
        return np.full(shape, "", dtype)
    if size <= MOST_MEMORY:
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, dtype=dtype, mode="w+", shape=shape)


def _regrown(array: NDArray[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    grown = _blank((len(array), *shape), dtype)
    grown[(slice(None), *(slice(0, n) for n in array.shape[1:]))] = array
    return grown
