"""Results of a sweep gathered into one labelled dataset."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from learncast.errors import InvalidSpec, SchemaMismatch
from learncast.netcdf import unpacked
from learncast.progress import Progress, silent
from learncast.sweep.grid import Grid
from learncast.sweep.ledger import Row, TaskStatus
from learncast.sweep.pile import CHUNK, STATUS, Pile
from learncast.sweep.spec import text_of
from learncast.sweep.store import Store, changed
from learncast.trajectory import described

#: Where a store or a file is.
Place = str | os.PathLike[str]


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
        Write a Parquet table too: one row for each cell, with every variable that is one number or word.
    progress : callable
    """
    stores = [Store(store)] if isinstance(store, str | os.PathLike) else [Store(one) for one in store]
    study = _common_study(stores)
    grid = Grid.from_described(study["grid"])
    pile, statuses = Pile(grid.size, variables), _unknown(grid, study)
    for k, place in enumerate(stores):
        _pour(place, pile, statuses, _after(progress, k, len(stores)))
    pile.check_named()
    pile.settle()
    found = _assembled(grid, pile, statuses)
    if out is not None:
        _write_whole(Path(out), lambda draft: found.to_netcdf(draft, engine="h5netcdf"))
    if table is not None:
        _write_whole(Path(table), lambda draft: _write_table(found, _dimensions(grid, pile), draft))
    return found


def _after(progress: Progress, stores: int, total: int) -> Progress:
    """The progress of one store among several."""
    return lambda share: progress((stores + share) / total)


def _common_study(stores: Sequence[Store]) -> dict[str, Any]:
    """The study that all stores belong to, each with a share of its own."""
    if not stores:
        raise InvalidSpec(
            required="at least one store must be given",
            got="none",
            why="there is nothing to gather",
            remedy="name the folders",
        )
    studies = [place.study() for place in stores]
    shares = [tuple(study.pop("shard", ())) for study in studies]
    for place, study in zip(stores, studies, strict=True):
        if study != studies[0]:
            raise changed(place.folder, study, studies[0])
    twice = [share for k, share in enumerate(shares) if share in shares[:k]]
    if twice:
        raise InvalidSpec(
            required="stores that are gathered together must hold different shares of one sweep",
            got=f"two with the share {'/'.join(map(str, twice[0])) or 'of all tasks'}",
            why="each cell has one result",
            remedy="name each store once, and begin shares with --shard 1/n to n/n",
        )
    if len({share[1] for share in shares if share}) > 1 or (any(shares) and not all(shares)):
        raise InvalidSpec(
            required="stores that are gathered together must be shares of one cut",
            got=", ".join("/".join(map(str, share)) or "all tasks" for share in shares),
            why="shares of different cuts overlap",
            remedy="gather those that were begun with one N",
        )
    return {**studies[0], "shared": any(shares)}


def _unknown(grid: Grid, study: dict[str, Any]) -> NDArray[np.str_]:
    """The status of every cell before a ledger is read: no task, unless it may be one of another share."""
    statuses = np.full(grid.size, TaskStatus.excluded.name, dtype="<U8")
    if study["shared"]:
        for position, _ in grid.cells(study["base"]):
            statuses[position] = TaskStatus.missing.name
    return statuses


def _pour(place: Store, pile: Pile, statuses: NDArray[np.str_], progress: Progress) -> None:
    """Add the results of one store."""
    ledger = place.ledger()
    try:
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


def _dimensions(grid: Grid, pile: Pile) -> dict[str, str]:
    """The name of each key in the dataset: its last word, or all of it where that is taken."""
    own = {str(dim) for column in pile.columns.values() for dim in column.dims} | set(pile.columns) | set(pile.shared)
    last = [key.rpartition(".")[2] for key in grid.keys]
    taken = own | {STATUS}
    return {
        key: word if last.count(word) == 1 and word not in taken else (key if key not in taken else f"grid.{key}")
        for key, word in zip(grid.keys, last, strict=True)
    }


def _assembled(grid: Grid, pile: Pile, statuses: NDArray[np.str_]) -> xr.Dataset:
    names = _dimensions(grid, pile)
    dims = [names[axis.keys[0]] for axis in grid.axes]
    coords: dict[str, Any] = {names[k]: (names[a.keys[0]], _labels(a.values(k))) for a in grid.axes for k in a.keys}
    coords |= {key: variable for key, variable in pile.shared.items() if set(variable.dims) <= _used(pile)}
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


def _used(pile: Pile) -> set[Any]:
    return {dim for column in pile.columns.values() for dim in column.dims}


def _labels(values: Iterable[Any]) -> NDArray[Any]:
    """Values of a key along its axis: numbers or words as they are, anything else as text."""
    listed = list(values)
    kinds = {type(value) for value in listed}
    large = any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in listed)
    if (kinds <= {int, float} and not large) or kinds in ({bool}, {str}):
        return np.array(listed)
    return np.array([value if isinstance(value, str) else text_of(value) for value in listed])


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
    # Parquet has no half and no long numbers.
    columns = {name: v.astype(float) if v.dtype in (np.float16, np.longdouble) else v for name, v in columns.items()}
    types = {name: np.asarray(v.values[:0] if v.ndim else v.values).dtype for name, v in columns.items()}
    schema = pa.schema([(n, pa.string() if t.kind in "OU" else pa.from_numpy_dtype(t)) for n, t in types.items()])
    with pq.ParquetWriter(draft, schema) as writer:
        for begin in range(0, int(np.prod(shape)), CHUNK):
            places = np.arange(begin, min(begin + CHUNK, int(np.prod(shape))))
            index = dict(zip(dims, np.unravel_index(places, shape), strict=True)) if dims else {}
            rows = {name: v.values[tuple(index[dim] for dim in v.dims)].reshape(-1) for name, v in columns.items()}
            writer.write_table(pa.table(rows, schema=schema))
