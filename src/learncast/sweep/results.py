"""A task's result as a labelled dataset."""

from __future__ import annotations

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
    if isinstance(value, xr.Dataset):
        return value
    if isinstance(value, xr.DataArray):
        return value.to_dataset(name=value.name or "value")
    if isinstance(value, Mapping):
        return xr.Dataset({str(key): item for key, item in value.items()})
    # Only now: of a Dataset or an array, `.dataset` may be a variable or an attribute called so.
    if isinstance(found := getattr(value, "dataset", None), xr.Dataset):
        return found
    if np.ndim(value) == 0 and np.asarray(value).dtype.kind in "biufU":
        return xr.Dataset({"value": ((), value)})
    raise UnsupportedModel(
        required="a swept function must return a Dataset, a DataArray, a number or a mapping of these",
        got=type(value).__name__,
        why="results are gathered by their labels",
        remedy="wrap arrays as xr.DataArray with named dimensions",
    )
