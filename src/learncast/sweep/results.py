"""A task's result as a labelled dataset, packed into the same bytes every time."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from learncast.errors import UnsupportedModel


def as_dataset(value: Any) -> xr.Dataset:
    """What a function returned, as a Dataset.

    A Dataset stays as it is, a DataArray gets a name, objects with a `dataset` give it, numbers become ``value``, and
    a mapping names its own: each a number, a word, a DataArray or a pair (dimensions, array).
    """
    value = getattr(value, "dataset", value)
    if isinstance(value, xr.Dataset):
        return value
    if isinstance(value, xr.DataArray):
        return value.to_dataset(name=value.name or "value")
    if isinstance(value, Mapping):
        return xr.Dataset({str(key): item for key, item in value.items()})
    if np.ndim(value) == 0 and np.asarray(value).dtype.kind in "biufU":
        return xr.Dataset({"value": ((), value)})
    raise UnsupportedModel(
        required="a swept function must return a Dataset, a DataArray, a number or a mapping of these",
        got=type(value).__name__,
        why="results are gathered by their labels",
        remedy="wrap arrays as xr.DataArray with named dimensions",
    )


def packed(dataset: xr.Dataset) -> bytes:
    """The dataset as NetCDF; equal datasets give equal bytes, since no time of writing is stored."""
    # Not Dataset.to_netcdf: it takes locks by the file's name, which fails for a buffer inside a dask worker.
    import h5netcdf
    import h5py
    from xarray.conventions import cf_encoder, encode_dataset_coordinates

    plain = dataset.drop_encoding()
    for name, variable in plain.variables.items():
        _check_kind(name, variable)
    variables, attributes = cf_encoder(*encode_dataset_coordinates(plain))
    buffer = io.BytesIO()
    with h5netcdf.File(buffer, "w") as file:
        file.dimensions = {str(name): size for name, size in dataset.sizes.items()}
        file.attrs.update(_storable(attributes))
        for name, variable in variables.items():
            own = _storable(variable.attrs)
            fill = own.pop("_FillValue", None)
            words = variable.dtype.kind in "OUT"
            values = np.asarray(variable.values, dtype=object if words else None)
            dtype = h5py.string_dtype() if words else values.dtype
            stored = file.create_variable(str(name), tuple(map(str, variable.dims)), dtype, fillvalue=fill)
            stored[...] = values
            stored.attrs.update(own)
    return buffer.getvalue()


def _check_kind(name: Any, variable: xr.Variable) -> None:
    words = variable.dtype.kind == "O" and all(isinstance(item, str) for item in variable.values.flat)
    if not words and variable.dtype.kind not in "biufUTMm":
        raise UnsupportedModel(
            required=f"{name} must hold numbers, words or times",
            got=f"values of kind {variable.dtype}",
            why="NetCDF has no other",
            remedy="store real and imaginary parts, or descriptions, instead",
        )


def _storable(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    """Attributes with truth values as numbers, which NetCDF lacks."""
    return {str(key): int(item) if isinstance(item, bool | np.bool_) else item for key, item in attributes.items()}


def unpacked(content: bytes) -> xr.Dataset:
    """Read what `packed` wrote."""
    with xr.open_dataset(io.BytesIO(content), engine="h5netcdf") as dataset:
        return dataset.load()
