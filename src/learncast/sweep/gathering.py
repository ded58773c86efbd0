"""Results of a sweep gathered into one labelled dataset."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from learncast._core.errors import InvalidSpec, SchemaMismatch
from learncast._core.files import draft_of
from learncast._core.netcdf import write
from learncast._core.progress import Progress, silent, within
from learncast.results import described
from learncast.sweep.grid import Grid
from learncast.sweep.ledger import TaskStatus
from learncast.sweep.spec import text_of
from learncast.sweep.store import Place, Store, changed
from learncast.sweep.table import check_table, write_table


def gather(
    store: Place | Sequence[Place],
    *,
    variables: Sequence[str] | None = None,
    out: Place | None = None,
    table: Place | None = None,
    progress: Progress = silent,
) -> xr.Dataset:
    """All results as one Dataset over the grid's dimensions, read one file at a time.

    A dimension is named by the last word of its key, or by the whole key where that word is taken. Cells without a
    result are nan (empty for words), and ``task_status`` says why. Where results differ in size, shorter ones are
    filled with nan; a coordinate that differs between cells becomes a variable of its own.

    Parameters
    ----------
    store : path or sequence of paths
        One store, or those of several shares of one sweep.
    variables : sequence of str, optional
        Gather only these.
    out : path, optional
        Write the dataset to this NetCDF file too.
    table : path, optional
        Write a table too, CSV or Parquet by its ending: one row for each cell, with every variable that is one number
        or word.
    progress : callable

    Returns
    -------
    Dataset
        The results' variables over the grid's dimensions, and ``task_status``.

    Raises
    ------
    InvalidSpec
        If no store is given, one of them holds no sweep, they are not different shares of one sweep, or the table
        ends in neither .csv nor .parquet.
    SchemaMismatch
        If a result's file is not what was written.

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
        check_table(table)
    stores = [Store(store)] if isinstance(store, str | os.PathLike) else [Store(one) for one in store]
    study = _common_study(stores)
    grid = Grid.from_described(study["grid"])
    # Before a ledger is read a cell has no task, unless it may have one of another share.
    pile, statuses = Pile(grid.size, variables), np.full(grid.size, TaskStatus.excluded.name, dtype="<U8")
    if study["shared"]:
        statuses[[position for position, _ in grid.cells(study["base"])]] = TaskStatus.missing.name
    for k, place in enumerate(stores):
        _pour(place, pile, statuses, within(progress, k, len(stores)))
    pile.check_named()
    pile.settle()
    found = _assembled(grid, pile, statuses)
    if out is not None:
        with draft_of(out) as draft:
            write(found, draft)
    if table is not None:
        keys = {name: found[name] for name in _dimensions(grid, pile).values()}
        single = {str(name): v for name, v in found.data_vars.items() if v.dims == found[STATUS].dims}
        write_table(table, keys | single, found[STATUS].sizes)
    return found


def _common_study(stores: Sequence[Store]) -> dict[str, Any]:
    """The study that all stores belong to, each with a share of its own."""
    if not stores:
        raise InvalidSpec("at least one store must be given, got none.")
    studies = [place.study() for place in stores]
    shares = [tuple(study.pop("shard", ())) for study in studies]
    for place, study in zip(stores, studies, strict=True):
        if study != studies[0]:
            raise changed(place.folder, study, studies[0])
    twice = [share for k, share in enumerate(shares) if share in shares[:k]]
    if twice:
        raise InvalidSpec(
            "stores that are gathered together must hold different shares of one sweep, got two with the "
            f"share {'/'.join(map(str, twice[0])) or 'of all tasks'}."
        )
    if len({share[1:] for share in shares}) > 1:
        raise InvalidSpec(
            required="stores that are gathered together must be shares of one cut",
            got=", ".join("/".join(map(str, share)) or "all tasks" for share in shares),
            why="shares of different cuts overlap",
            remedy="gather those that were begun with one N",
        )
    return {**studies[0], "shared": any(shares)}


def _pour(place: Store, pile: Pile, statuses: NDArray[np.str_], progress: Progress) -> None:
    """Add the results of one store."""
    with place.ledger() as ledger:
        copies: dict[int, list[int]] = {}
        for position, original in ledger.copies():
            copies.setdefault(original, []).append(position)
        total = max(sum(t.tasks for t in ledger.totals().values()), 1)
        for k, row in enumerate(ledger.rows(TaskStatus.done, TaskStatus.missing, TaskStatus.failed)):
            cells = [row.position, *copies.get(row.position, ())]
            statuses[cells] = row.status.name
            if row.status is TaskStatus.done:
                pile.add(cells, place.result(row))
            progress((k + 1) / total)


def _dimensions(grid: Grid, pile: Pile) -> dict[str, str]:
    """The name of each key in the dataset: its last word, or all of it where that is taken."""
    last = [key.rpartition(".")[2] for key in grid.keys]
    taken = {*pile.dims, *pile.columns, *pile.shared, STATUS}
    return {
        key: word if last.count(word) == 1 and word not in taken else (key if key not in taken else f"grid.{key}")
        for key, word in zip(grid.keys, last, strict=True)
    }


def _assembled(grid: Grid, pile: Pile, statuses: NDArray[np.str_]) -> xr.Dataset:
    names = _dimensions(grid, pile)
    dims = [names[axis.keys[0]] for axis in grid.axes]
    coords: dict[str, Any] = {names[k]: (names[a.keys[0]], _labels(a.values(k))) for a in grid.axes for k in a.keys}
    coords |= {key: variable for key, variable in pile.shared.items() if set(variable.dims) <= pile.dims}
    data: dict[str, Any] = {}
    lengths, taken = pile.lengths(), {*coords, *pile.columns, *pile.shared, *names.values(), STATUS}
    for key, column in pile.columns.items():
        # A coordinate that differs cannot keep the name of its dimension: xarray would take it for an index.
        name = _free(f"{key}_value", taken) if key in column.dims else key
        values = column.filled(lengths)
        data[name] = ([*dims, *column.dims], values.reshape((*grid.shape, *values.shape[1:])), column.attrs)
    words = "; ".join(f"{status.name}: {status.value}" for status in TaskStatus)
    data[STATUS] = (dims, statuses.reshape(grid.shape), {**described("what became of the cell", "1"), "words": words})
    return xr.Dataset(data, coords=coords)


def _free(name: str, taken: set[str]) -> str:
    """The name, with as many strokes as it takes to be another than those that are taken."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _labels(values: Iterable[Any]) -> NDArray[Any]:
    """Values of a key along its axis: numbers or words as they are, anything else as text."""
    listed = list(values)
    kinds = {type(value) for value in listed}
    large = any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in listed)
    if (kinds <= {int, float} and not large) or kinds in ({bool}, {str}):
        return np.array(listed)
    return np.array([value if isinstance(value, str) else text_of(value) for value in listed])


#: Bytes above which an array lives in a temporary file instead of memory.
MOST_MEMORY = 2**28
#: The variable that says what became of each cell.
STATUS = "task_status"
_KINDS = {"O": "words", "M": "dates", "m": "durations"}
#: Cells that are filled at a time.
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
                f"{name} must have the dimensions {self.dims} in every cell, got {variable.dims}.", field=name
            )
        largest = tuple(np.maximum(self.values.shape[1:], variable.shape))
        self._grow(largest, _joined(name, self.values.dtype, _kept(variable.dtype)))
        for cell in cells:
            where: Any = (cell, *(slice(0, n) for n in variable.shape))
            # Indexed, since an array of no dimensions would be stored as an object.
            self.values[where] = variable.values[()]
            self.known[where] = True

    def _grow(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        if shape != self.values.shape[1:]:
            self.known = _regrown(self.known, shape, np.dtype(bool))
        if shape != self.values.shape[1:] or dtype != self.values.dtype:
            self.values = _regrown(self.values, shape, dtype)

    def filled(self, lengths: Mapping[str, int]) -> NDArray[Any]:
        """The values as long as their dimensions, unknown ones as nan, not a time or the empty word."""
        shape = tuple(lengths[dim] for dim in self.dims)
        self._grow(shape, self.values.dtype)
        if self.known.all():
            return self.values
        if self.values.dtype.kind in "biu":
            self._grow(shape, np.dtype(np.float64))
        dtype = self.values.dtype
        blank: Any = np.array("NaT", dtype) if dtype.kind in "Mm" else "" if dtype.kind == "O" else np.nan
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
            # A coordinate is kept while all cells share it; one that differs becomes a column.
            if key in dataset.coords and key not in self.columns:
                known = self.shared.setdefault(key, variable)
                if not np.array_equal(known.values, variable.values):
                    self._lay_out(key)
            if key in self.columns or (key not in dataset.coords and (self.wanted is None or key in self.wanted)):
                if key not in self.columns:
                    self.columns[key] = _Column(self.cells, variable)
                self.columns[key].put(cells, key, variable)
        self.filled += cells

    def _lay_out(self, key: str) -> None:
        """Make a column of what was shared."""
        variable = self.shared.pop(key)
        self.columns[key] = _Column(self.cells, variable)
        self.columns[key].put(self.filled, key, variable)

    @property
    def dims(self) -> set[Any]:
        """Dimensions of the columns."""
        return {dim for column in self.columns.values() for dim in column.dims}

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
                self._lay_out(key)

    def check_named(self) -> None:
        if STATUS in self.seen:
            raise SchemaMismatch(f"results must have no variable called {STATUS}, got one.", field="results")
        unknown = [name for name in self.wanted or () if self.filled and name not in self.seen]
        if unknown:
            raise InvalidSpec(
                f"variables must be among those of the results, got {unknown[0]!r}. Use "
                f"{', '.join(sorted(self.seen))}.",
                field="variables",
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
        f"{name} must hold values of one kind in every cell, got {_KINDS.get(one.kind, 'numbers')} here "
        f"and {_KINDS.get(other.kind, 'numbers')} there.",
        field=name,
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
