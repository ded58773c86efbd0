"""Results of a sweep gathered into one labelled dataset."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from learncast.errors import InvalidSpec, SchemaMismatch
from learncast.progress import Progress, silent
from learncast.sweep.grid import Grid
from learncast.sweep.ledger import Row, TaskStatus
from learncast.sweep.netcdf import unpacked
from learncast.sweep.spec import text_of
from learncast.sweep.store import Store
from learncast.trajectory import described

#: Bytes above which an array lives in a temporary file instead of memory.
MOST_MEMORY = 2**28
#: The variable that says what became of each cell.
STATUS = "task_status"
#: Cells that are filled or written at a time.
CHUNK = 10_000


def gather(
    store: str | os.PathLike[str],
    *,
    variables: Sequence[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    table: str | os.PathLike[str] | None = None,
    progress: Progress = silent,
) -> xr.Dataset:
    """All results as one Dataset over the grid's dimensions, read one file at a time.

    A dimension is named by the last word of its key, or by the whole key where that word is taken. Cells without a
    result are nan (empty for words), and ``task_status`` says why. Where results differ in size, shorter ones are
    filled with nan; a coordinate that differs between cells becomes a variable of its own.

    Parameters
    ----------
    store : path
    variables : sequence of str, optional
        Gather only these.
    out : path, optional
        Write the dataset to this NetCDF file too.
    table : path, optional
        Write a Parquet table too: one row for each cell, with every variable that is one number or word.
    progress : callable
    """
    place = Store(store)
    grid = Grid.from_described(place.study()["grid"])
    ledger = place.ledger()
    try:
        pile = _Pile(grid.size, variables)
        statuses = np.full(grid.size, TaskStatus.excluded.name, dtype="<U8")
        copies: dict[int, list[int]] = {}
        for position, original in ledger.copies():
            copies.setdefault(original, []).append(position)
        total = max(sum(t.tasks for t in ledger.totals().values()), 1)
        for k, row in enumerate(ledger.rows(TaskStatus.done, TaskStatus.missing, TaskStatus.failed)):
            cells = [row.position, *copies.get(row.position, ())]
            statuses[cells] = row.status.name
            if row.status is TaskStatus.done:
                pile.add(cells, _read(place, row))
            progress((k + 1) / total)
    finally:
        ledger.close()
    pile.check_named()
    found = _assembled(grid, pile, statuses)
    if out is not None:
        _write_whole(Path(out), lambda draft: found.to_netcdf(draft, engine="h5netcdf"))
    if table is not None:
        _write_whole(Path(table), lambda draft: _write_table(found, _dimensions(grid, pile), draft))
    return found


def _read(place: Store, row: Row) -> xr.Dataset:
    """A result, opened only if it is what was written: HDF5 is not made for files that somebody else changed."""
    content, wrong = place.examined(row)
    if wrong:
        raise SchemaMismatch(
            required=f"{place.path(row.digest)} must be the file that was written",
            got=f"one that {wrong}",
            why="a damaged result must not be gathered",
            remedy="run `learncast sweep verify`, then `learncast sweep resume`",
        )
    return unpacked(content)


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
        dtype = _joined(self.values.dtype, _kept(variable.dtype))
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

    def filled(self) -> NDArray[Any]:
        """The values, unknown ones as nan, not a time or the empty word."""
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


class _Pile:
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


def _dimensions(grid: Grid, pile: _Pile) -> dict[str, str]:
    """The name of each key in the dataset: its last word, or all of it where that is taken."""
    own = {str(dim) for column in pile.columns.values() for dim in column.dims} | set(pile.columns) | set(pile.shared)
    last = [key.rpartition(".")[2] for key in grid.keys]
    taken = own | {STATUS}
    return {
        key: word if last.count(word) == 1 and word not in taken else (key if key not in taken else f"grid.{key}")
        for key, word in zip(grid.keys, last, strict=True)
    }


def _assembled(grid: Grid, pile: _Pile, statuses: NDArray[np.str_]) -> xr.Dataset:
    names = _dimensions(grid, pile)
    dims = [names[axis.keys[0]] for axis in grid.axes]
    coords: dict[str, Any] = {names[k]: (names[a.keys[0]], _labels(a.values(k))) for a in grid.axes for k in a.keys}
    coords |= {key: variable for key, variable in pile.shared.items() if set(variable.dims) <= _used(pile)}
    data: dict[str, Any] = {}
    for key, column in pile.columns.items():
        # A coordinate that differs cannot keep the name of its dimension: xarray would take it for an index.
        name = f"{key}_value" if key in column.dims else key
        values = column.filled()
        data[name] = ([*dims, *column.dims], values.reshape(*grid.shape, *values.shape[1:]), column.attrs)
    words = "; ".join(f"{status.name}: {status.value}" for status in TaskStatus)
    data[STATUS] = (dims, statuses.reshape(grid.shape), {**described("what became of the cell", "1"), "words": words})
    return xr.Dataset(data, coords=coords)


def _used(pile: _Pile) -> set[Any]:
    return {dim for column in pile.columns.values() for dim in column.dims}


def _labels(values: Iterable[Any]) -> NDArray[Any]:
    """Values of a key along its axis: numbers or words as they are, anything else as text."""
    listed = list(values)
    kinds = {type(value) for value in listed}
    if kinds <= {int, float} or kinds in ({bool}, {str}):
        return np.array(listed)
    return np.array([value if isinstance(value, str) else text_of(value) for value in listed])


def _kept(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Words of any length are kept as objects."""
    return np.dtype(object) if dtype.kind in "UST" else dtype


def _joined(one: np.dtype[Any], other: np.dtype[Any]) -> np.dtype[Any]:
    return one if one == other else np.result_type(one, other)


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


def _write_whole(target: Path, write: Any) -> None:
    """Let `write` fill a draft beside the target, then rename it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        write(draft)
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def _write_table(dataset: xr.Dataset, names: Mapping[str, str], draft: Path) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InvalidSpec(
            required="pyarrow must be installed to write Parquet",
            got="no such package",
            why="it is part of the tables extra",
            remedy="pip install 'learncast[tables]'",
        ) from error
    shape, dims = dataset[STATUS].shape, dataset[STATUS].dims
    columns = {name: dataset[name] for name in names.values()}
    columns |= {str(name): v for name, v in dataset.data_vars.items() if v.dims == dims}
    types = {name: np.asarray(v.values[:0] if v.ndim else v.values).dtype for name, v in columns.items()}
    schema = pa.schema([(n, pa.string() if t.kind in "OU" else pa.from_numpy_dtype(t)) for n, t in types.items()])
    with pq.ParquetWriter(draft, schema) as writer:
        for begin in range(0, int(np.prod(shape)), CHUNK):
            places = np.arange(begin, min(begin + CHUNK, int(np.prod(shape))))
            index = dict(zip(dims, np.unravel_index(places, shape), strict=True)) if dims else {}
            rows = {name: v.values[tuple(index[dim] for dim in v.dims)].reshape(-1) for name, v in columns.items()}
            writer.write_table(pa.table(rows, schema=schema))
