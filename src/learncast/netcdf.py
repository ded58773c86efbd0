"""NetCDF files of datasets, laid out directly over HDF5.

`Dataset.to_netcdf` takes some milliseconds for every variable, which is longer than a closed-form task, and takes locks
by the file's name, which fails for a buffer inside a dask worker.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from learncast.errors import UnsupportedModel

if TYPE_CHECKING:
    import xarray as xr

#: The name that NetCDF gives to a dimension without values, followed by its length.
_BARE = "This is a netCDF dimension but not a netCDF variable."
#: Attributes by which the layout ties variables to dimensions, and others name their writer.
_LAYOUT = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_NCProperties"}
#: Attributes on which every reader acts.
_ACTING = ("scale_factor", "add_offset", "missing_value", "_FillValue", "_Unsigned")
#: HDF5 takes space for its own tables in blocks; a result of one number fits into a small one.
_BLOCK = 512


def packed(dataset: xr.Dataset) -> bytes:
    """The dataset as a NetCDF file; equal datasets give equal bytes, since no time of writing is stored."""
    import h5py

    options = {"driver": "core", "backing_store": False, "track_order": True, "meta_block_size": _BLOCK}
    with h5py.File("in memory", "w", **options) as file:
        _lay(file, dataset)
        file.flush()
        return bytes(file.id.get_file_image())


def write(dataset: xr.Dataset, path: Path) -> None:
    """Write what may be larger than the memory."""
    import h5py

    with h5py.File(path, "w", track_order=True, meta_block_size=_BLOCK) as file:
        _lay(file, dataset)


def read(source: bytes | Path) -> xr.Dataset:
    """The dataset of a NetCDF file over HDF5, many times faster than by a reader that must expect anything."""
    import h5py
    import xarray as xr
    from xarray.conventions import decode_cf_variables

    with h5py.File(h5py.h5f.open_file_image(source) if isinstance(source, bytes) else source, "r") as file:
        items = {name: item for name, item in file.items() if isinstance(item, h5py.Dataset)}
        numbers = {name: item.attrs.get("_Netcdf4Dimid", 0) for name, item in items.items() if item.is_scale}
        names = sorted(numbers, key=numbers.__getitem__)
        # By address: HDF5 searches the file for the name of what a reference leads to.
        scales = {h5py.h5o.get_info(items[name].id).addr: name for name in names}
        stored = {name: item for name, item in items.items() if name not in numbers or not _is_bare(item)}
        variables = {name: _loaded(name, item, names, scales) for name, item in stored.items()}
        found, attributes, coordinates = decode_cf_variables(variables, _described(file))
    return xr.Dataset(found, attrs=attributes).set_coords([str(name) for name in coordinates & found.keys()])


def _is_bare(stored: Any) -> bool:
    name = stored.attrs["NAME"]
    return (name.decode() if isinstance(name, bytes) else str(name)).startswith(_BARE)


def _loaded(name: str, stored: Any, names: list[str], scales: dict[int, str]) -> xr.Variable:
    import h5py
    import xarray as xr

    words = h5py.check_string_dtype(stored.dtype) is not None
    values = np.asarray(stored.asstr()[()], dtype=np.str_) if words else np.asarray(stored[()])
    if not stored.is_scale:
        tied = [h5py.h5o.get_info(axis[0].id).addr if len(axis) else 0 for axis in stored.dims]
        dims = [scales.get(place, f"{name}_{k}") for k, place in enumerate(tied)]
    elif "_Netcdf4Coordinates" in stored.attrs:
        dims = [names[number] for number in stored.attrs["_Netcdf4Coordinates"]]
    else:
        dims = [name]
    return xr.Variable(dims, values, _described(stored))


def _described(stored: Any) -> dict[str, Any]:
    """Attributes that are not the layout's own, which take longest to read."""
    return {key: _attribute(stored.attrs[key]) for key in stored.attrs if key not in _LAYOUT}


def _attribute(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    if value.shape == (1,):  # NetCDF knows no difference between one and a list of one
        return value[0]
    return value.tolist() if value.dtype.kind == "O" else value


def _lay(file: Any, dataset: xr.Dataset) -> None:
    """Write attributes and variables, make each dimension an HDF5 scale, and tie every axis to its own."""
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
        if name not in scales:  # a scale is not tied to itself
            for axis, dim in enumerate(variable.dims):
                stored[name].dims[axis].attach_scale(scales[dim])
        elif variable.ndim > 1:
            places = np.array([numbers.index(dim) for dim in variable.dims], dtype=np.int32)
            stored[name].attrs["_Netcdf4Coordinates"] = places


def _store(file: Any, name: str, variable: xr.Variable) -> Any:
    import h5py

    own = {str(key): _storable(key, item) for key, item in variable.attrs.items()}
    fill = own.pop("_FillValue", None)
    words = variable.dtype.kind in "OUT"
    values = np.asarray(variable.values, dtype=object if words else None)
    dtype = h5py.string_dtype() if words else values.dtype
    # A dimension of length zero is an unlimited one: NetCDF knows no other.
    growing = tuple(size or None for size in values.shape) if 0 in values.shape else None
    stored = file.create_dataset(name, data=values, dtype=dtype, fillvalue=fill, maxshape=growing)
    if fill is not None:
        stored.attrs["_FillValue"] = np.asarray(fill, dtype=dtype)
    for key, value in own.items():
        stored.attrs[key] = value
    return stored


def _check(dataset: xr.Dataset) -> None:
    """Refuse what NetCDF has no place for, and attributes by which other values would come back than were written."""
    for name in {*dataset.variables, *dataset.sizes}:
        if not isinstance(name, str) or not name or "/" in name or name in (".", ".."):
            raise UnsupportedModel(
                required="names of variables and dimensions must be words without a slash",
                got=repr(name),
                why="in a NetCDF file a slash opens a group",
                remedy="use a dot or an underscore instead",
            )
    for name, variable in dataset.variables.items():
        kind, units = variable.dtype.kind, str(variable.attrs.get("units", ""))
        if not _is_words(variable.values) and kind not in "biufUTMm":
            raise UnsupportedModel(
                required=f"{name} must hold numbers, words or times",
                got=f"values of kind {variable.dtype}",
                why="NetCDF has no other",
                remedy="store real and imaginary parts, or descriptions, instead",
            )
        acting = [key for key in _ACTING if key in variable.attrs]
        if acting or (" since " in units and kind in "iuf"):
            raise UnsupportedModel(
                required=f"{name} must have no attribute by which readers change its values",
                got=f"{acting[0]} = {variable.attrs[acting[0]]!r}" if acting else f"units = {units!r}",
                why="they would come back scaled, missing or as dates",
                remedy="apply it first, or call the attribute something else",
            )


def _is_words(values: Any) -> bool:
    return values.dtype.kind == "O" and all(isinstance(one, str) for one in values.flat)


def _storable(key: Hashable, item: Any) -> Any:
    """An attribute as NetCDF holds it: truth values as numbers, words as text."""
    if isinstance(item, bool | np.bool_):
        return int(item)
    if isinstance(item, np.str_):
        return str(item)
    if isinstance(item, np.ndarray) and item.dtype.kind in "UT":
        return item.astype(object)
    known = isinstance(item, int | float | str | np.integer | np.floating | np.ndarray | list | tuple)
    array = np.asarray(item, dtype=None if known else object)
    if array.dtype.kind in "iufU" or _is_words(array):
        return item
    raise UnsupportedModel(
        required=f"the attribute {key} must hold numbers or words",
        got=f"{item!r}"[:80],
        why="NetCDF has no other",
        remedy="leave it out, or write it as text",
    )
