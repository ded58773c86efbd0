"""The table of a sweep: one row for each cell, as CSV or Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import xarray as xr

from learncast._core.errors import InvalidSpec
from learncast._core.files import draft_of
from learncast._core.packages import package
from learncast.sweep.store import Place

#: Rows that are written at a time.
CHUNK = 10_000
Columns = Mapping[str, xr.DataArray]
Sizes = Mapping[Any, int]


def write_table(path: Place, columns: Columns, sizes: Sizes) -> None:
    """Write columns over the grid's dimensions, or over some of them, cell by cell; the ending says how."""
    check_table(path)
    with draft_of(path) as draft:
        _WRITERS[_ending(path)](draft, columns, sizes)


def check_table(path: Place) -> None:
    """Refuse a table of another kind than those that can be written, or for which a package is missing."""
    if _ending(path) not in _WRITERS:
        raise InvalidSpec(f"the table must be a .csv or .parquet file, got {Path(path).name!r}.")
    if _ending(path) == ".parquet":
        _parquet()


def _parquet() -> list[ModuleType]:
    """The packages that write Parquet."""
    return [package(name, "to write Parquet", extra="tables") for name in ("pyarrow", "pyarrow.parquet")]


def _ending(path: Place) -> str:
    return Path(path).suffix.lower()


def _rows(columns: Columns, sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Some cells after others, every column of them."""
    shape = tuple(sizes.values())
    cells = int(np.prod(shape))
    for begin in range(0, cells, CHUNK):
        places = np.arange(begin, min(begin + CHUNK, cells))
        index = dict(zip(sizes, np.unravel_index(places, shape), strict=True)) if shape else {}
        yield {name: v.values[tuple(index[dim] for dim in v.dims)].reshape(-1) for name, v in columns.items()}


def _write_csv(draft: Path, columns: Columns, sizes: Sizes) -> None:
    """Every number with all its digits; an unknown one is nan, so that it is told from an empty word."""
    import pandas as pd

    with draft.open("w", encoding="utf-8", newline="") as file:
        pd.DataFrame(columns=list(columns)).to_csv(file, index=False, lineterminator="\n")
        for rows in _rows(columns, sizes):
            pd.DataFrame(rows).to_csv(file, index=False, header=False, na_rep="nan", lineterminator="\n")


def _write_parquet(draft: Path, columns: Columns, sizes: Sizes) -> None:
    pa, pq = _parquet()
    # Parquet has no half and no long numbers.
    columns = {name: v.astype(float) if v.dtype in (np.float16, np.longdouble) else v for name, v in columns.items()}
    types = {name: np.asarray(v.values[:0] if v.ndim else v.values).dtype for name, v in columns.items()}
    schema = pa.schema([(n, pa.string() if t.kind in "OU" else pa.from_numpy_dtype(t)) for n, t in types.items()])
    with pq.ParquetWriter(draft, schema) as writer:
        for rows in _rows(columns, sizes):
            writer.write_table(pa.table(rows, schema=schema))


_WRITERS = {".csv": _write_csv, ".parquet": _write_parquet}
