"""The results of a sweep as one labelled dataset."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from learncast._core.errors import InvalidSpec, SchemaMismatch
from learncast._core.files import draft_of
from learncast._core.netcdf import write
from learncast._core.packages import package
from learncast._core.progress import Progress, silent, within
from learncast.results import described
from learncast.sweep.grid import Grid
from learncast.sweep.ledger import TaskStatus
from learncast.sweep.spec import Tables, json_text
from learncast.sweep.store import PathLike, Store, study_mismatch

#: Bytes above which an array is kept in a temporary file instead of memory.
MOST_MEMORY = 2**28
#: Variable with the status of each cell.
STATUS = "task_status"
#: Cells that are filled at a time.
CHUNK = 10_000
_KINDS = {"O": "strings", "M": "dates", "m": "durations"}

Array = NDArray[Any]


def gather(
    store: PathLike | Sequence[PathLike],
    *,
    variables: Sequence[str] | None = None,
    out: PathLike | None = None,
    table: PathLike | None = None,
    progress: Progress = silent,
) -> xr.Dataset:
    """Return all results as one Dataset over the grid's dimensions, read one file at a time.

    A dimension has the name of the last word of its key, or of the full key if that word is taken. Cells without a
    result are nan (strings: empty), and ``task_status`` gives the reason. If results differ in size, shorter ones are
    padded with nan. A coordinate that differs between cells becomes a variable.

    Parameters
    ----------
    store : path or sequence of paths
        One store, or those of several shards of one sweep.
    variables : sequence of str, optional
        Gather only these.
    out : path, optional
        NetCDF file to write.
    table : path, optional
        CSV or Parquet file to write, by its ending: one row for each cell, one column for each scalar variable.
    progress : callable

    Returns
    -------
    Dataset
        The results' variables over the grid's dimensions, and ``task_status``.

    Raises
    ------
    SchemaMismatch
        If a result is damaged.

    Examples
    --------
    >>> import tempfile
    >>> import learncast as lc
    >>> def halved(spec):
    ...     return 0.5 ** spec["steps"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = lc.sweep.run(halved, {"steps": [1, 2]}, store=folder, executor="in-process")
    ...     found = lc.sweep.gather(folder)
    >>> found["value"].sel(steps=2).item()
    0.25
    >>> found["task_status"].values.tolist()
    ['done', 'done']
    """
    if table is not None:
        _check_table(Path(table))
    stores = [Store(one) for one in ([store] if isinstance(store, str | os.PathLike) else store)]
    study, sharded = _common_study(stores)
    grid = Grid.from_dict(study["grid"])
    results, statuses = _Results(grid.size, variables), np.full(grid.size, TaskStatus.excluded.name, dtype="<U8")
    if sharded:  # the tasks of other shards are in no ledger here
        statuses[[position for position, _ in grid.cells(study["base"])]] = TaskStatus.missing.name
    for k, place in enumerate(stores):
        place.check_ledger()
        _read(place, results, statuses, within(progress, k, len(stores)))
    results.check_names()
    results.align()
    gathered = _assembled(grid, results, statuses)
    if out is not None:
        with draft_of(out) as draft:
            write(gathered, draft)
    if table is not None:
        keys = {name: gathered[name] for name in _names(grid, results).values()}
        scalars = {str(name): v for name, v in gathered.data_vars.items() if v.dims == gathered[STATUS].dims}
        _write_table(Path(table), keys | scalars, gathered[STATUS])
    return gathered


def _check_table(path: Path) -> None:
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise InvalidSpec(f"table must be a .csv or .parquet file, got {path.name!r}.", field="table")
    if path.suffix.lower() == ".parquet":
        package("pyarrow", "to write Parquet", extra="tables")


def _write_table(path: Path, columns: Mapping[str, xr.DataArray], like: xr.DataArray) -> None:
    """Write one row for each cell of `like`; the file's ending determines the format."""
    cells = {name: v.broadcast_like(like).transpose(*like.dims).values.ravel() for name, v in columns.items()}
    with draft_of(path) as draft:
        if path.suffix.lower() == ".csv":  # an unknown number is nan, which differs from an empty string
            pd.DataFrame(cells).to_csv(draft, index=False, na_rep="nan", lineterminator="\n")
            return
        pa, pq = import_module("pyarrow"), import_module("pyarrow.parquet")
        # Parquet has no 16-bit and no 128-bit floats.
        odd = {name: v.astype(float) for name, v in cells.items() if v.dtype in (np.float16, np.longdouble)}
        pq.write_table(pa.table(cells | odd), draft)


def _common_study(stores: Sequence[Store]) -> tuple[Tables, bool]:
    """Return the study of all stores, and whether they are shards of it."""
    if not stores:
        raise InvalidSpec("store must name at least one store, got none.", field="store")
    studies = [place.study() for place in stores]
    shards = [tuple(study.pop("shard", ())) for study in studies]
    for place, study in zip(stores, studies, strict=True):
        if study != studies[0]:
            raise study_mismatch(place.folder, study, studies[0])
    if len(set(shards)) < len(shards) or len({shard[1:] for shard in shards}) > 1:
        given = ", ".join("/".join(map(str, shard)) or "all tasks" for shard in shards)
        raise InvalidSpec(f"Stores must be different shards k/n with the same n, got {given}.", field="store")
    return studies[0], any(shards)


def _read(place: Store, results: _Results, statuses: NDArray[np.str_], progress: Progress) -> None:
    """Add the results of one store."""
    with place.ledger() as ledger:
        total = max(sum(t.tasks for t in ledger.totals().values()), 1)
        for k, row in enumerate(ledger.rows(TaskStatus.done, TaskStatus.missing, TaskStatus.failed)):
            statuses[row.position] = row.status.name
            if row.status is TaskStatus.done:
                results.add(row.position, place.result(row))
            progress((k + 1) / total)


def _names(grid: Grid, results: _Results) -> dict[str, str]:
    """Return the name of each key in the dataset: its last word, or the full key if that is taken."""
    last = [key.rpartition(".")[2] for key in grid.keys]
    taken = {*results.dims, *results.columns, *results.shared, STATUS}
    return {
        key: word if last.count(word) == 1 and word not in taken else (key if key not in taken else f"grid.{key}")
        for key, word in zip(grid.keys, last, strict=True)
    }


def _assembled(grid: Grid, results: _Results, statuses: NDArray[np.str_]) -> xr.Dataset:
    names = _names(grid, results)
    dims = [names[axis.keys[0]] for axis in grid.axes]
    coords: dict[str, object] = {names[k]: (names[a.keys[0]], _labels(a.values(k))) for a in grid.axes for k in a.keys}
    coords |= {key: variable for key, variable in results.shared.items() if set(variable.dims) <= results.dims}
    data: dict[str, object] = {}
    lengths, taken = results.lengths(), {*coords, *results.columns, *results.shared, STATUS}
    for key, column in results.columns.items():
        # xarray would take a variable with the name of its dimension for an index.
        name = _free(f"{key}_value", taken) if key in column.dims else key
        values = column.filled(lengths)
        data[name] = ([*dims, *column.dims], values.reshape((*grid.shape, *values.shape[1:])), column.attrs)
    meanings = "; ".join(f"{status.name}: {status.value}" for status in TaskStatus)
    attrs = {**described("status of the cell", "1"), "meanings": meanings}
    return xr.Dataset({**data, STATUS: (dims, statuses.reshape(grid.shape), attrs)}, coords=coords)


def _free(name: str, taken: set[str]) -> str:
    """Append underscores to a name until it is not taken, and take it."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _labels(values: list[object]) -> Array:
    """Return the values of a key as labels: numbers or strings as they are, anything else as JSON."""
    kinds = {type(value) for value in values}
    large = any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in values)
    if (kinds <= {int, float} and not large) or kinds in ({bool}, {str}):
        return np.array(values)
    return np.array([value if isinstance(value, str) else json_text(value) for value in values])


class _Column:
    """One variable over all cells, padded to the largest result."""

    def __init__(self, cells: int, variable: xr.Variable) -> None:
        self.dims, self.attrs = tuple(map(str, variable.dims)), dict(variable.attrs)
        self.values: Array = _blank((cells, *variable.shape), _storage_type(variable))
        self.known: Array = _blank((cells, *variable.shape), np.dtype(bool))

    def put(self, cells: int | list[int], name: str, variable: xr.Variable) -> None:
        if tuple(variable.dims) != self.dims:
            raise SchemaMismatch(f"{name} must have dimensions {self.dims}, got {variable.dims}.", field=name)
        largest = tuple(np.maximum(self.values.shape[1:], variable.shape))
        self._resize(largest, _common_type(name, self.values.dtype, _storage_type(variable)))
        where: Any = (cells, *(slice(0, n) for n in variable.shape))
        # The empty index turns a 0-d array into a scalar, which would be stored as an object otherwise.
        self.values[where] = variable.values[()]
        self.known[where] = True

    def _resize(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.values, self.known = _resized(self.values, shape, dtype), _resized(self.known, shape, self.known.dtype)

    def filled(self, lengths: Mapping[str, int]) -> Array:
        """Return the values padded to the lengths of their dimensions; unknown ones are nan, NaT or empty."""
        shape = tuple(lengths[dim] for dim in self.dims)
        self._resize(shape, self.values.dtype)
        if self.known.all():
            return self.values
        if self.values.dtype.kind in "biu":
            self._resize(shape, np.dtype(np.float64))
        dtype = self.values.dtype
        blank: object = np.array("NaT", dtype) if dtype.kind in "Mm" else "" if dtype.kind == "O" else np.nan
        for begin in range(0, len(self.values), CHUNK):
            some = slice(begin, begin + CHUNK)
            self.values[some][~self.known[some]] = blank
        return self.values


class _Results:
    """The variables of all results: `columns` over the cells, and the coordinates that all cells share."""

    def __init__(self, cells: int, variables: Sequence[str] | None) -> None:
        self.cells, self.wanted, self.seen = cells, variables, set[str]()
        self.columns: dict[str, _Column] = {}
        self.shared: dict[str, xr.Variable] = {}
        self.added: list[int] = []

    def add(self, cell: int, dataset: xr.Dataset) -> None:
        self.seen |= set(map(str, dataset.variables))
        for name, variable in dataset.variables.items():
            key = str(name)
            # A coordinate is kept while all cells share it; one that differs becomes a column.
            if key in dataset.coords and key not in self.columns:
                known = self.shared.setdefault(key, variable)
                if not np.array_equal(known.values, variable.values):
                    self._make_column(key)
            if key in self.columns or (key not in dataset.coords and (self.wanted is None or key in self.wanted)):
                if key not in self.columns:
                    self.columns[key] = _Column(self.cells, variable)
                self.columns[key].put(cell, key, variable)
        self.added.append(cell)

    def _make_column(self, key: str) -> None:
        """Turn a shared coordinate into a column."""
        variable = self.shared.pop(key)
        self.columns[key] = _Column(self.cells, variable)
        self.columns[key].put(self.added, key, variable)

    @property
    def dims(self) -> set[object]:
        """Dimensions of the columns."""
        return {dim for column in self.columns.values() for dim in column.dims}

    def lengths(self) -> dict[str, int]:
        """Return the largest length of each dimension."""
        lengths: dict[str, int] = {}
        columns = [(column.dims, column.values.shape[1:]) for column in self.columns.values()]
        for dims, shape in (*columns, *((v.dims, v.shape) for v in self.shared.values())):
            for dim, size in zip(dims, shape, strict=True):
                lengths[str(dim)] = max(size, lengths.get(str(dim), 0))
        return lengths

    def align(self) -> None:
        """Make columns of shared coordinates that are shorter than their dimensions or no valid index."""
        lengths = self.lengths()
        for key, variable in list(self.shared.items()):
            short = any(size < lengths[str(dim)] for dim, size in zip(variable.dims, variable.shape, strict=True))
            if short or (key in variable.dims and variable.ndim > 1):
                self._make_column(key)

    def check_names(self) -> None:
        if STATUS in self.seen:
            raise SchemaMismatch(f"Results must have no variable {STATUS}.", field="results")
        unknown = [name for name in self.wanted or () if self.added and name not in self.seen]
        if unknown:
            known = ", ".join(sorted(self.seen))
            raise InvalidSpec(f"variables must be among {known}, got {unknown[0]!r}.", field="variables")


def _storage_type(variable: xr.Variable) -> np.dtype[Any]:
    """Return the type of a column; strings of any length are stored as objects."""
    return np.dtype(object) if variable.dtype.kind in "UST" else variable.dtype


def _common_type(name: str, one: np.dtype[Any], other: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that holds both; numbers and strings, or numbers and dates, have none."""
    if one == other:
        return one
    try:
        if "O" not in (one.kind, other.kind):
            return np.result_type(one, other)
    except TypeError:
        pass
    kinds = " and ".join(_KINDS.get(dtype.kind, "numbers") for dtype in (one, other))
    raise SchemaMismatch(f"{name} must have values of one kind in all cells, got {kinds}.", field=name)


def _blank(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if dtype.kind == "O":
        return np.full(shape, "", dtype)
    if int(np.prod(shape)) * dtype.itemsize <= MOST_MEMORY:
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, dtype=dtype, mode="w+", shape=shape)


def _resized(array: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return the array with the given shape of one cell and the given type."""
    if shape == array.shape[1:] and dtype == array.dtype:
        return array
    larger = _blank((len(array), *shape), dtype)
    larger[(slice(None), *(slice(0, n) for n in array.shape[1:]))] = array
    return larger
