"""NetCDF bytes of a dataset, laid out directly over HDF5.

`Dataset.to_netcdf` takes some milliseconds for every variable, which is longer than a closed-form task, and takes locks
by the file's name, which fails for a buffer inside a dask worker.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from learncast.errors import UnsupportedModel

#: The name that NetCDF gives to a dimension without values, followed by its length.
_BARE = "This is a netCDF dimension but not a netCDF variable."
#: Attributes by which the layout ties variables to dimensions.
_LAYOUT = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates"}
#: Attributes on which every reader acts.
_ACTING = ("scale_factor", "add_offset", "missing_value", "_FillValue", "_Unsigned")
#: HDF5 takes space for its own tables in blocks; a result of one number fits into a small one.
_BLOCK = 512


def packed(dataset: xr.Dataset) -> bytes:
    """The dataset as a NetCDF file; equal datasets give equal bytes, since no time of writing is stored."""
    import h5py
    from xarray.conventions import cf_encoder, encode_dataset_coordinates

    plain = dataset.drop_encoding()
    for name in {*plain.variables, *plain.sizes}:
        _check_name(name)
    for name, variable in plain.variables.items():
        _check_kind(name, variable)
        _check_meaning(name, variable)
    variables, attributes = cf_encoder(*encode_dataset_coordinates(plain))
    options = {"driver": "core", "backing_store": False, "track_order": True, "meta_block_size": _BLOCK}
    with h5py.File("in memory", "w", **options) as file:
        for key, value in _storable(attributes).items():
            file.attrs[key] = value
        for name, variable in variables.items():
            _store(file, str(name), variable)
        _lay_dimensions(file, dataset.sizes, variables)
        file.flush()
        return bytes(file.id.get_file_image())


def unpacked(content: bytes) -> xr.Dataset:
    """Read what `packed` wrote, many times faster than a reader that must expect anything."""
    import h5py
    from xarray.conventions import decode_cf_variables

    with h5py.File(h5py.h5f.open_file_image(content)) as file:
        stored = {name: item for name, item in file.items() if not _is_bare(item)}
        names = [str(name) for name, _ in sorted(_numbered(file), key=lambda pair: pair[1])]
        variables = {name: _loaded(name, item, names) for name, item in stored.items()}
        found, attributes, coordinates = decode_cf_variables(variables, _described(file))
    return xr.Dataset(found, attrs=attributes).set_coords([str(name) for name in coordinates & found.keys()])


def _is_bare(stored: Any) -> bool:
    return stored.is_scale and _text(stored.attrs["NAME"]).startswith(_BARE)


def _numbered(file: Any) -> list[tuple[str, int]]:
    return [(name, int(item.attrs["_Netcdf4Dimid"])) for name, item in file.items() if item.is_scale]


def _loaded(name: str, stored: Any, names: list[str]) -> xr.Variable:
    import h5py

    words = h5py.check_string_dtype(stored.dtype) is not None
    values = np.asarray(stored.asstr()[()], dtype=np.str_) if words else np.asarray(stored[()])
    if not stored.is_scale:
        dims = [axis[0].name[1:] for axis in stored.dims]
    elif "_Netcdf4Coordinates" in stored.attrs:
        dims = [names[number] for number in stored.attrs["_Netcdf4Coordinates"]]
    else:
        dims = [name]
    return xr.Variable(dims, values, _described(stored))


def _described(stored: Any) -> dict[str, Any]:
    """Attributes that are not the layout's own."""
    own = {key: value for key, value in stored.attrs.items() if key not in _LAYOUT}
    return {key: value.tolist() if _is_words(value) else value for key, value in own.items()}


def _is_words(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "O"


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _store(file: Any, name: str, variable: xr.Variable) -> None:
    import h5py

    own = _storable(variable.attrs)
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


def _lay_dimensions(file: Any, sizes: Mapping[Hashable, int], variables: Mapping[Hashable, xr.Variable]) -> None:
    """Make each dimension an HDF5 scale, and tie every axis to its own."""
    numbers = {name: number for number, name in enumerate(sizes)}
    scales = {}
    for name, size in sizes.items():
        key = str(name)
        if name not in variables:
            file.create_dataset(key, shape=(size,), dtype=">f4", maxshape=None if size else (None,))
        scales[name] = file[key]
        scales[name].make_scale(key if name in variables else f"{_BARE}{size:10}")
        scales[name].attrs["_Netcdf4Dimid"] = np.int32(numbers[name])
    for name, variable in variables.items():
        stored = file[str(name)]
        if name in scales and len(variable.dims) > 1:
            stored.attrs["_Netcdf4Coordinates"] = np.array([numbers[dim] for dim in variable.dims], dtype=np.int32)
        if name in scales:  # a scale is not tied to itself
            continue
        for axis, dim in enumerate(variable.dims):
            stored.dims[axis].attach_scale(scales[dim])


def _check_kind(name: Hashable, variable: xr.Variable) -> None:
    words = variable.dtype.kind == "O" and all(isinstance(item, str) for item in variable.values.flat)
    if not words and variable.dtype.kind not in "biufUTMm":
        raise UnsupportedModel(
            required=f"{name} must hold numbers, words or times",
            got=f"values of kind {variable.dtype}",
            why="NetCDF has no other",
            remedy="store real and imaginary parts, or descriptions, instead",
        )


def _check_name(name: Hashable) -> None:
    if not isinstance(name, str) or not name or "/" in name or name in (".", ".."):
        raise UnsupportedModel(
            required="names of variables and dimensions must be words without a slash",
            got=repr(name),
            why="in a NetCDF file a slash opens a group",
            remedy="use a dot or an underscore instead",
        )


def _check_meaning(name: Hashable, variable: xr.Variable) -> None:
    """Refuse attributes on which every reader of NetCDF acts: other values would come back than were written."""
    units = str(variable.attrs.get("units", ""))
    acting = [key for key in _ACTING if key in variable.attrs]
    if acting or (" since " in units and variable.dtype.kind in "iuf"):
        raise UnsupportedModel(
            required=f"{name} must have no attribute by which readers change its values",
            got=f"{acting[0]} = {variable.attrs[acting[0]]!r}" if acting else f"units = {units!r}",
            why="they would come back scaled, missing or as dates",
            remedy="apply it first, or call the attribute something else",
        )


def _storable(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    """Attributes as NetCDF holds them: truth values as numbers, words as text."""
    return {str(key): _stored(key, item) for key, item in attributes.items()}


def _stored(key: Any, item: Any) -> Any:
    if isinstance(item, bool | np.bool_):
        return int(item)
    if isinstance(item, np.str_):
        return str(item)
    if isinstance(item, np.ndarray) and item.dtype.kind in "UT":
        return item.astype(object)
    known = isinstance(item, int | float | str | np.integer | np.floating)
    array = np.asarray(item, dtype=None if known or isinstance(item, np.ndarray | list | tuple) else object)
    if array.dtype.kind in "iufU" or (array.dtype.kind == "O" and all(isinstance(one, str) for one in array.flat)):
        return item
    raise UnsupportedModel(
        required=f"the attribute {key} must hold numbers or words",
        got=f"{item!r}"[:80],
        why="NetCDF has no other",
        remedy="leave it out, or write it as text",
    )
