"""The table of a sweep: one row for each cell, as CSV or Parquet."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from learncast._core.errors import InvalidSpec
from learncast._core.files import draft_of
from learncast._core.packages import package
from learncast.sweep.store import PathLike

#: Rows that are written at a time.
CHUNK = 10_000
Columns = Mapping[str, xr.DataArray]
Sizes = Mapping[Hashable, int]


def write_table(path: PathLike, columns: Columns, sizes: Sizes) -> None:
    """Write columns over all or some of the grid's dimensions; the file's ending determines the format."""
    writer = _write_csv if check_table(path) == ".csv" else _write_parquet
    with draft_of(path) as draft:
        writer(draft, columns, sizes)


def check_table(path: PathLike) -> str:
    """Return the file's ending if tables of this format can be written."""
    ending = Path(path).suffix.lower()
    if ending not in (".csv", ".parquet"):
        raise InvalidSpec(f"table must be a .csv or .parquet file, got {Path(path).name!r}.", field="table")
    if ending == ".parquet":
        _parquet()
    return ending


def _parquet() -> list[ModuleType]:
    """Return the modules that write Parquet."""
    needed = {"why": "the columns are written with it", "extra": "tables"}
    return [package(name, "to write Parquet", **needed) for name in ("pyarrow", "pyarrow.parquet")]


def _chunks(columns: Columns, sizes: Sizes) -> Iterator[dict[str, NDArray[np.generic]]]:
    """Yield the columns of some cells at a time."""
    shape = tuple(sizes.values())
    cells = int(np.prod(shape))
    for begin in range(0, cells, CHUNK):
        places = np.unravel_index(np.arange(begin, min(begin + CHUNK, cells)), shape) if shape else ()
        index = dict(zip(sizes, places, strict=True))
        yield {name: v.values[tuple(index[dim] for dim in v.dims)].reshape(-1) for name, v in columns.items()}


def _write_csv(draft: Path, columns: Columns, sizes: Sizes) -> None:
    """Write numbers with all digits; an unknown number is nan, which differs from an empty string."""
    with draft.open("w", encoding="utf-8", newline="") as file:
        pd.DataFrame(columns=list(columns)).to_csv(file, index=False, lineterminator="\n")
        for rows in _chunks(columns, sizes):
            pd.DataFrame(rows).to_csv(file, index=False, header=False, na_rep="nan", lineterminator="\n")


def _write_parquet(draft: Path, columns: Columns, sizes: Sizes) -> None:
    pa, pq = _parquet()
    # Parquet has no 16-bit and no 128-bit floats.
    columns = {name: v.astype(float) if v.dtype in (np.float16, np.longdouble) else v for name, v in columns.items()}
    types = [
        (name, pa.string() if v.dtype.kind in "OU" else pa.from_numpy_dtype(v.dtype)) for name, v in columns.items()
    ]
    with pq.ParquetWriter(draft, pa.schema(types)) as writer:
        for rows in _chunks(columns, sizes):
            writer.write_table(pa.table(rows, schema=pa.schema(types)))
