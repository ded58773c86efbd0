"""Fast reading and writing of NetCDF files over h5py, sealed by a SHA-256 of their content.

`Dataset.to_netcdf` takes some milliseconds for every variable, more than a closed-form task of a sweep, and locks by
file name, which fails for a buffer inside a dask worker.
"""

from __future__ import annotations

import hashlib
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

#: Name that NetCDF gives to a dimension without coordinate values, followed by its length.
_BARE = "This is a netCDF dimension but not a netCDF variable."
#: Attributes of the NetCDF layout, not of the dataset.
_LAYOUT = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_NCProperties"}
#: Attributes that make readers change the values.
_ACTING = ("scale_factor", "add_offset", "missing_value", "_FillValue", "_Unsigned")
#: Bytes that HDF5 allocates at a time for its own tables; the results of a sweep are small.
_BLOCK = 512
#: Attribute that holds the SHA-256 of the content.
SEAL = "sha256"
#: Advice for a file whose arrays are too large.
_FEWER = "save less in one file"


def packed(dataset: xr.Dataset) -> bytes:
    """Return the dataset as the bytes of a NetCDF file; equal datasets give equal bytes."""
    import h5py

    options = {"driver": "core", "backing_store": False, "track_order": True, "meta_block_size": _BLOCK}
    with h5py.File("in memory", "w", **options) as file:
        _lay(file, dataset.assign_attrs({SEAL: digest(dataset)}))
        file.flush()
        return bytes(file.id.get_file_image())


def write(dataset: xr.Dataset, path: Path) -> None:
    """Write a dataset, which may be larger than the memory, to a file."""
    import h5py

    with h5py.File(path, "w", track_order=True, meta_block_size=_BLOCK) as file:
        _lay(file, dataset)


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
        variables, attributes, coordinates = contents(source, most)
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


def contents(source: bytes | Path, most: int) -> tuple[dict[str, tuple[Any, ...]], dict[str, Any], list[str]]:
    """Variables as (dimensions, values, attributes), attributes and names of coordinates of a NetCDF file."""
    import h5py
    from xarray.conventions import decode_cf_variables

    with h5py.File(h5py.h5f.open_file_image(source) if isinstance(source, bytes) else source, "r") as file:
        items = own_items(file)
        what = "the variables" if isinstance(source, bytes) else f"{source}: the variables"
        check_bytes(f"{what} together", sum(_declared(item) for item in items.values()), most, remedy=_FEWER)
        numbers = {name: item.attrs.get("_Netcdf4Dimid", 0) for name, item in items.items() if item.is_scale}
        names = sorted(numbers, key=numbers.__getitem__)
        # By address: looking up the name of a reference would search the whole file.
        scales = {h5py.h5o.get_info(items[name].id).addr: name for name in names}
        stored = {name: item for name, item in items.items() if name not in numbers or not _is_bare(item)}
        variables = {name: _loaded(name, item, names, scales) for name, item in stored.items()}
        found, attributes, coordinates = decode_cf_variables(variables, _described(file))
    plain = {str(name): (one.dims, one.values, one.attrs) for name, one in found.items()}
    return plain, dict(attributes), sorted(str(name) for name in coordinates & found.keys())


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
    for key in sorted(attributes, key=str):
        value = np.asarray(_storable(key, attributes[key]))
        found.append((str(key), repr(value.item() if value.size == 1 else value.tolist())))
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


def _declared(stored: Any) -> int:
    """Return the bytes that an array declares; numpy takes 4 for each character of a string."""
    return int(stored.size or 0) * stored.dtype.itemsize * (4 if stored.dtype.kind == "S" else 1)


def _is_bare(stored: Any) -> bool:
    name = stored.attrs["NAME"]
    return (name.decode() if isinstance(name, bytes) else str(name)).startswith(_BARE)


def _loaded(name: str, stored: Any, names: list[str], scales: dict[int, str]) -> xr.Variable:
    import h5py
    import xarray as xr

    is_text = h5py.check_string_dtype(stored.dtype) is not None
    values = np.asarray(stored.asstr()[()], dtype=np.str_) if is_text and stored.size else np.asarray(stored[()])
    if is_text and not stored.size:
        values = np.empty(stored.shape or (), dtype=np.str_)
    if values.dtype.kind not in "biufU":
        raise TypeError(f"{name!r} holds neither numbers nor strings")
    if not stored.is_scale:
        tied = [h5py.h5o.get_info(axis[0].id).addr if len(axis) else 0 for axis in stored.dims]
        dims = [scales.get(place, f"{name}_{k}") for k, place in enumerate(tied)]
    elif "_Netcdf4Coordinates" in stored.attrs:
        dims = [names[number] for number in stored.attrs["_Netcdf4Coordinates"]]
    else:
        dims = [name]
    return xr.Variable(dims, values, _described(stored))


def _described(stored: Any) -> dict[str, Any]:
    """Read the attributes of the dataset; those of the layout are skipped, as they are slow to read."""
    return {key: _attribute(stored.attrs[key]) for key in stored.attrs if key not in _LAYOUT}


def _attribute(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    if value.shape == (1,):  # NetCDF does not distinguish a value from a list of one
        return value[0]
    return value.tolist() if value.dtype.kind == "O" else value


def _lay(file: Any, dataset: xr.Dataset) -> None:
    """Write attributes and variables, make each dimension an HDF5 scale, and attach it to the axes."""
    from xarray.conventions import cf_encoder, encode_dataset_coordinates

    plain = dataset.drop_encoding()
    _check(plain)
    variables, attributes = cf_encoder(*encode_dataset_coordinates(plain))
    for key, value in attributes.items():
        file.attrs[str(key)] = _storable(key, value)
    stored = {name: _store(file, str(name), variable) for name, variable in variables.items()}
    scales = {}
    for number, (name, size) in enumerate(dataset.sizes.items()):
        if name in stored:
            scales[name] = stored[name]
        else:
            scales[name] = file.create_dataset(str(name), (size,), ">f4", maxshape=None if size else (None,))
        scales[name].make_scale(str(name) if name in stored else f"{_BARE}{size:10}")
        scales[name].attrs["_Netcdf4Dimid"] = np.int32(number)
    numbers = list(scales)
    for name, variable in variables.items():
        if name not in scales:  # a scale is not attached to itself
            for axis, dim in enumerate(variable.dims):
                stored[name].dims[axis].attach_scale(scales[dim])
        elif variable.ndim > 1:
            places = np.array([numbers.index(dim) for dim in variable.dims], dtype=np.int32)
            stored[name].attrs["_Netcdf4Coordinates"] = places


def _store(file: Any, name: str, variable: xr.Variable) -> Any:
    import h5py

    own = {str(key): _storable(key, item) for key, item in variable.attrs.items()}
    fill = own.pop("_FillValue", None)
    is_text = variable.dtype.kind in "OUT"
    values = np.asarray(variable.values, dtype=object if is_text else None)
    dtype = h5py.string_dtype() if is_text else values.dtype
    # NetCDF represents a dimension of length zero as unlimited.
    growing = tuple(size or None for size in values.shape) if 0 in values.shape else None
    stored = file.create_dataset(name, data=values, dtype=dtype, fillvalue=fill, maxshape=growing)
    if fill is not None:
        stored.attrs["_FillValue"] = np.asarray(fill, dtype=dtype)
    for key, value in own.items():
        stored.attrs[key] = value
    return stored


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
