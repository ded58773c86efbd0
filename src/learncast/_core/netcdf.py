"""NetCDF files through xarray and h5netcdf, sealed by a SHA-256 of their content."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from learncast._core.errors import SchemaMismatch, UnsupportedModel, brief
from learncast._core.isolation import read_apart
from learncast._core.limits import allowed, check_bytes

if TYPE_CHECKING:
    import xarray as xr

#: Attributes that make readers change the values.
_ACTING = ("scale_factor", "add_offset", "missing_value", "_FillValue", "_Unsigned")
#: Attribute that holds the SHA-256 of the content.
SEAL = "sha256"
#: Advice for a file whose arrays are too large.
_FEWER = "save less in one file"


def packed(dataset: xr.Dataset) -> bytes:
    """Return the dataset as the bytes of a NetCDF file; equal datasets give equal bytes."""
    buffer = io.BytesIO()
    _write(dataset.assign_attrs({SEAL: digest(dataset)}), buffer)
    return buffer.getvalue()


def write(dataset: xr.Dataset, path: Path) -> None:
    """Write a dataset, which may be larger than the memory, to a file."""
    _write(dataset, path)


def _write(dataset: xr.Dataset, target: Path | io.BytesIO) -> None:
    import h5netcdf
    from xarray.backends import H5NetCDFStore

    stored = dataset.drop_encoding()
    _check(stored)
    stored.attrs = _storable_attributes(stored.attrs)
    for variable in stored.variables.values():
        variable.attrs = _storable_attributes(variable.attrs)
    # `to_netcdf` locks by file name, which fails for a buffer inside a dask worker.
    with h5netcdf.File(target, "w") as file:
        stored.dump_to_store(H5NetCDFStore(file))


def read(source: bytes | Path, *, most_bytes: int | None = None) -> xr.Dataset:
    """Read a NetCDF file; see `read_sealed`."""
    return read_sealed(source, most_bytes=most_bytes)[0]


def read_sealed(source: bytes | Path, *, most_bytes: int | None = None) -> tuple[xr.Dataset, str | None]:
    """Read a NetCDF file and compare it with the SHA-256 that it holds.

    Parameters
    ----------
    source : bytes or Path
        Content that was compared with its hash, or a file, which is read in a child process.
    most_bytes : int, optional
        Most memory of the variables together.

    Returns
    -------
    dataset : Dataset
    seal : str or None
        The SHA-256; None if the file has none, because `packed` did not write it.
    """
    import xarray as xr

    most = allowed(most_bytes)
    if isinstance(source, bytes):
        variables, attributes, coordinates = contents(io.BytesIO(source), most)
    else:
        variables, attributes, coordinates = read_apart(
            contents, source, most, kind="a NetCDF file", error=SchemaMismatch, most_bytes=most
        )
    dataset = xr.Dataset({name: xr.Variable(*parts) for name, parts in variables.items()}, attrs=attributes)
    dataset = dataset.set_coords(coordinates)
    seal = dataset.attrs.pop(SEAL, None)
    if seal is not None and seal != digest(dataset):
        what = "the file" if isinstance(source, bytes) else str(source)
        raise SchemaMismatch(f"{what} was changed after it was written: its SHA-256 differs.", field=SEAL)
    return dataset, seal


def contents(source: io.BytesIO | Path, most: int) -> tuple[dict[str, tuple[Any, ...]], dict[Hashable, Any], list[str]]:
    """Variables as (dimensions, values, attributes), attributes and names of coordinates of a NetCDF file."""
    import h5py
    import xarray as xr

    with h5py.File(source, "r") as file:
        own_items(file)
    with xr.open_dataset(source, engine="h5netcdf") as stored:
        what = f"{source}: the variables" if isinstance(source, Path) else "the variables"
        check_bytes(f"{what} together", stored.nbytes, most, remedy=_FEWER)
        # Not `to_dict`, which rounds times to microseconds.
        variables = {str(name): (one.dims, _loaded(one), one.attrs) for name, one in stored.variables.items()}
        return variables, stored.attrs, sorted(map(str, stored.coords))


def _loaded(variable: xr.Variable) -> np.ndarray[Any, Any]:
    values = np.asarray(variable.values)
    return values.astype(str) if values.dtype.kind == "O" else values


def digest(dataset: xr.Dataset) -> str:
    """SHA-256 of the names, dimensions, values and attributes of a dataset, as NetCDF holds them."""
    hashed = hashlib.sha256()
    for name in sorted(str(name) for name in dataset.variables):
        variable = dataset.variables[name]
        values = variable.values
        if values.dtype.kind in "Mm":
            values = values.astype(f"{values.dtype.kind}8[ns]")
        is_text = values.dtype.kind in "OUT"
        kind = "text" if is_text else values.dtype.newbyteorder("<").str
        described = [name, name in dataset.coords, variable.dims, variable.shape, kind, _comparable(variable.attrs)]
        hashed.update(json.dumps(described).encode())
        if is_text:
            hashed.update(json.dumps([str(one) for one in values.flat]).encode())
        else:
            hashed.update(np.ascontiguousarray(values, dtype=kind).tobytes())
    hashed.update(json.dumps(_comparable({k: v for k, v in dataset.attrs.items() if k != SEAL})).encode())
    return hashed.hexdigest()


def _comparable(attributes: Mapping[Hashable, Any]) -> list[tuple[str, str]]:
    """Attributes in order of their names, with values as they are after a round trip through NetCDF."""
    found = []
    for key, item in sorted(_storable_attributes(attributes).items()):
        value = np.asarray(item)
        found.append((key, repr(value.item() if value.size == 1 else value.tolist())))
    return found


def own_items(file: Any) -> dict[str, Any]:
    """Return the arrays of an HDF5 file by name; arrays and links that lie in another file raise."""
    import h5py

    found: dict[str, Any] = {}
    links = file.id.links
    # In the order of writing: older versions of h5py list them by name.
    for name in sorted(file, key=lambda name: links.get_info(name.encode("utf-8", "surrogateescape")).corder):
        link = file.get(name, getlink=True)
        item = file[name] if isinstance(link, h5py.HardLink) else None
        if item is None or (isinstance(item, h5py.Dataset) and (item.external or item.is_virtual)):
            raise SchemaMismatch(f"{file.filename} must hold all its arrays itself, got {name!r}, a link.")
        if isinstance(item, h5py.Dataset):
            found[name] = item
    return found


def _check(dataset: xr.Dataset) -> None:
    """Raise on values that NetCDF cannot hold, and on attributes that would change the values when they are read."""
    for name in {*dataset.variables, *dataset.sizes}:
        if not isinstance(name, str) or not name or "/" in name or name in (".", ".."):
            raise UnsupportedModel(f"names of variables and dimensions must be text without a slash, got {name!r}.")
    for name, variable in dataset.variables.items():
        kind, units = variable.dtype.kind, str(variable.attrs.get("units", ""))
        if not _is_text(variable.values) and kind not in "biufUTMm":
            raise UnsupportedModel(f"{name} must hold numbers, text or times, got {variable.dtype}.", field=str(name))
        acting = [key for key in _ACTING if key in variable.attrs]
        acting += ["units"] if " since " in units and kind in "iuf" else []
        if acting:
            remedy = "by which readers change the values. Rename it."
            raise UnsupportedModel(f"{name} must not have the attribute {acting[0]}, {remedy}", field=str(name))


def _is_text(values: Any) -> bool:
    return values.dtype.kind == "O" and all(isinstance(one, str) for one in values.flat)


def _storable_attributes(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key): _storable(key, item) for key, item in attributes.items()}


def _storable(key: Hashable, item: Any) -> Any:
    """Return an attribute as NetCDF holds it: booleans as integers, strings as text."""
    if isinstance(item, bool | np.bool_):
        return int(item)
    if isinstance(item, np.str_):
        return str(item)
    if isinstance(item, np.ndarray) and item.dtype.kind in "UT":
        return item.astype(object)
    known = isinstance(item, int | float | str | np.integer | np.floating | np.ndarray | list | tuple)
    array = np.asarray(item, dtype=None if known else object)
    if array.dtype.kind in "iufU" or _is_text(array):
        return item
    raise UnsupportedModel(f"the attribute {key} must hold numbers or text, got {brief(item)}.", field=str(key))
