"""Fast, checked reading and writing of NetCDF files over h5py.

`Dataset.to_netcdf` takes some milliseconds for every variable, more than a closed-form task of a sweep, and locks by
file name, which fails for a buffer inside a dask worker.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from learncast._core.errors import SchemaMismatch, UnsupportedModel, brief
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
#: Largest ratio of decompressed to compressed bytes.
_MOST_PACKED = 1032
#: HDF5's codes of the datatype classes "variable length" and "reference".
_VARIABLE_LENGTH, _REFERENCE = 9, 7
#: Advice for a file whose arrays are too large.
_FEWER = "save less in one file"


def packed(dataset: xr.Dataset) -> bytes:
    """Return the dataset as the bytes of a NetCDF file; equal datasets give equal bytes."""
    import h5py

    options = {"driver": "core", "backing_store": False, "track_order": True, "meta_block_size": _BLOCK}
    with h5py.File("in memory", "w", **options) as file:
        _lay(file, dataset)
        file.flush()
        return bytes(file.id.get_file_image())


def write(dataset: xr.Dataset, path: Path) -> None:
    """Write a dataset, which may be larger than the memory, to a file."""
    import h5py

    with h5py.File(path, "w", track_order=True, meta_block_size=_BLOCK) as file:
        _lay(file, dataset)


def read(source: bytes | Path, *, most_bytes: int | None = None) -> xr.Dataset:
    """Read a NetCDF file; its variables must lie in the file itself and take at most `most_bytes` together."""
    import h5py
    import xarray as xr
    from xarray.conventions import decode_cf_variables

    most = allowed(most_bytes)
    with (
        _Heaps.of(source) as heaps,
        h5py.File(h5py.h5f.open_file_image(source) if isinstance(source, bytes) else source, "r") as file,
    ):
        items = own_items(file)
        what = "the variables" if isinstance(source, bytes) else f"{source}: the variables"
        check_bytes(f"{what} together", sum(_declared(item) for item in items.values()), most, remedy=_FEWER)
        if isinstance(source, Path):  # callers have compared bytes with their hash
            for name, number in Counter(key for item in (file, *items.values()) for key in _kinds(item)).items():
                heaps.check(name, number)
        numbers = {name: item.attrs.get("_Netcdf4Dimid", 0) for name, item in items.items() if item.is_scale}
        names = sorted(numbers, key=numbers.__getitem__)
        # By address: looking up the name of a reference would search the whole file.
        scales = {h5py.h5o.get_info(items[name].id).addr: name for name in names}
        stored = {name: item for name, item in items.items() if name not in numbers or not _is_bare(item)}
        variables = {name: _loaded(name, item, names, scales, heaps, most) for name, item in stored.items()}
        found, attributes, coordinates = decode_cf_variables(variables, _described(file, most))
    # Loaded now, so that undecodable values raise here and not at a later access.
    return xr.Dataset(found, attrs=attributes).set_coords([str(name) for name in coordinates & found.keys()]).load()


@dataclass(frozen=True)
class _Heaps:
    """The global heaps of an HDF5 file, which hold strings and references of variable length.

    No checksum protects them: with a wrong length HDF5 would read beyond the end, or for ever.

    Attributes
    ----------
    content : bytes or mmap
    sizes : dict
        For every heap by its address: bytes of each entry by its number.
    """

    content: bytes | mmap.mmap
    sizes: dict[int, dict[int, int]]

    @classmethod
    @contextmanager
    def of(cls, source: bytes | Path) -> Iterator[_Heaps]:
        """Find the heaps of a file; raise if the entries of one do not fill it."""
        if isinstance(source, bytes):
            yield cls(source, dict(_entries(source)))
            return
        with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            yield cls(content, dict(_entries(content)))

    def check(self, name: str, number: int) -> None:
        """Raise unless `number` attributes of that name refer to heap entries of the length they declare.

        HDF5 allocates the declared length before it looks: up to 64 GB for one wrong bit. Further attributes may refer
        to nothing: they are remains of attributes that were overwritten.
        """
        key = name.encode()
        hits = re.finditer(re.escape(key) + b"\0", self.content)
        valid = sum(self._is_valid(hit.start(), len(key) + 1) for hit in hits)
        if valid < number:
            raise OSError(f"{number - valid} attributes {name!r} refer to missing heap entries")

    def _is_valid(self, place: int, length: int) -> bool:
        """Return whether the name at `place` belongs to an attribute message whose items are all in the heaps."""
        for version, head in ((1, 8), (3, 9)):
            found = bytes(self.content[max(place - head, 0) : place - head + 8])
            if len(found) == 8 and found[0] == version and not found[1] & 1:
                sizes = struct.unpack("<HHH", found[2:])
                if sizes[0] == length:
                    break
        else:
            return False
        step = 8 if version == 1 else 1
        kind, space, values = (place + sum(-(-size // step) * step for size in sizes[:k]) for k in (1, 2, 3))
        size, inner = struct.unpack("<4xI4xI", self.content[kind : kind + 16].ljust(16, b"\0"))
        item = 8 if self.content[kind + 8] & 15 == _REFERENCE else 1
        if self.content[kind] & 15 != _VARIABLE_LENGTH or (size, inner) != (16, item):
            return False
        rank, first = self.content[space + 1], 8 if self.content[space] == 1 else 4
        shape = struct.unpack(f"<{rank}Q", self.content[space + first : space + first + 8 * rank])
        named = self.content[values : values + 16 * min(math.prod(shape), len(self.content))]
        return all(
            not number or self.sizes.get(heap, {}).get(entry) == number * item
            for number, heap, entry in struct.iter_unpack("<IQI", named)
        )

    def longest(self, stored: Any) -> int:
        """Return the bytes of the longest string of an array; raise if one is not a heap entry of its length."""
        place, number = stored.id.get_offset(), int(stored.size)
        if place is None:
            raise OSError("strings that are not stored contiguously")
        kind = np.dtype([("bytes", "<u4"), ("heap", "<u8"), ("entry", "<u4")])
        words = np.frombuffer(self.content[place : place + 16 * number], dtype=kind, count=number)
        for length, heap, entry in words.tolist():
            if length and self.sizes.get(heap, {}).get(entry) != length:
                raise OSError(f"a string of {length} bytes is missing")
        return int(words["bytes"].max(initial=1))


def _entries(content: bytes | mmap.mmap) -> Iterator[tuple[int, dict[int, int]]]:
    """Yield the address of every heap and the sizes of its entries."""
    for heap in re.finditer(rb"GCOL\x01\0\0\0(.{8})", content, re.DOTALL):
        place, end = heap.end(), heap.start() + int.from_bytes(heap[1], "little")
        if not place <= end <= len(content):
            raise OSError(f"a heap ends at byte {end} of {len(content)}")
        found: dict[int, int] = {}
        while place + 16 <= end:
            index, _, empty, size = struct.unpack("<HHIQ", content[place : place + 16])
            # Entry 0 is the free space, its 16-byte header included; others follow theirs, padded to 8 bytes.
            taken = size if index == 0 else 16 + -(-size // 8) * 8
            if empty or index in found or not 16 <= taken <= end - place or (index == 0 and taken < end - place):
                raise OSError(f"entry {index} of a heap has {size} bytes, {end - place} are left")
            found[index] = size
            place += taken
        yield heap.start(), found


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


def _kinds(stored: Any) -> Iterator[str]:
    """Yield the names of attributes of variable length; types that NetCDF does not have raise, as HDF5 may crash."""
    import h5py

    kinds = {h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.STRING, h5py.h5t.ENUM}
    size = stored.file.id.get_filesize()
    for key in stored.attrs:
        attribute = stored.attrs.get_id(key)
        kind = attribute.get_type()
        if math.prod(attribute.shape or ()) * kind.get_size() > size:
            raise OSError(f"the attribute {key!r} claims to be larger than the file")
        listed = key == "DIMENSION_LIST" and kind.get_class() == h5py.h5t.VLEN
        if not (kind.get_class() in kinds or key == "REFERENCE_LIST" or listed):
            raise OSError(f"the attribute {key!r} has an unknown type")
        base = kind.get_super() if listed else kind
        if listed and (base.get_class(), base.get_size(), attribute.shape) != (h5py.h5t.REFERENCE, 8, (stored.ndim,)):
            raise OSError(f"the attribute {key!r} has an unknown type")
        if listed or (kind.get_class() == h5py.h5t.STRING and kind.is_variable_str()):
            yield key
    if isinstance(stored, h5py.Dataset) and stored.id.get_type().get_class() not in kinds:
        raise OSError(f"{stored.name!r} has an unknown type")


def _declared(stored: Any) -> int:
    """Return the bytes that an array declares; numpy takes 4 for each character of a string."""
    return int(stored.size or 0) * stored.dtype.itemsize * (4 if stored.dtype.kind == "S" else 1)


def _is_bare(stored: Any) -> bool:
    name = stored.attrs["NAME"]
    return (name.decode() if isinstance(name, bytes) else str(name)).startswith(_BARE)


def _loaded(name: str, stored: Any, names: list[str], scales: dict[int, str], heaps: _Heaps, most: int) -> xr.Variable:
    import h5py
    import xarray as xr

    held = min(stored.id.get_storage_size(), len(heaps.content))
    if _declared(stored) > max(2**20, 4 * _MOST_PACKED * held):
        raise OSError(f"{name!r} claims {_declared(stored)} bytes and holds {held}")
    is_text = h5py.check_string_dtype(stored.dtype) is not None
    values = _strings(name, stored, heaps, most) if is_text else np.asarray(stored[()])
    if values.dtype.kind not in "biufU":
        raise TypeError(f"{name!r} holds neither numbers nor strings")
    if not stored.is_scale:
        tied = [h5py.h5o.get_info(axis[0].id).addr if len(axis) else 0 for axis in stored.dims]
        dims = [scales.get(place, f"{name}_{k}") for k, place in enumerate(tied)]
    elif "_Netcdf4Coordinates" in stored.attrs:
        dims = [names[number] for number in stored.attrs["_Netcdf4Coordinates"]]
    else:
        dims = [name]
    return xr.Variable(dims, values, _described(stored, most))


def _strings(name: str, stored: Any, heaps: _Heaps, most: int) -> NDArray[np.str_]:
    """Read strings after a check of their size: many may refer to one long string of the file."""
    if not stored.size:
        return np.empty(stored.shape or (), dtype=np.str_)
    longest = heaps.longest(stored) if stored.dtype.kind == "O" else stored.dtype.itemsize
    check_bytes(f"the strings of {name!r}", 4 * longest * int(stored.size), most, remedy=_FEWER)
    return np.asarray(stored.asstr()[()], dtype=np.str_)


def _described(stored: Any, most: int) -> dict[str, Any]:
    """Read the attributes of the dataset; those of the layout are skipped, as they are slow to read."""
    size = stored.file.id.get_filesize()
    found = {}
    for key in stored.attrs:
        if key not in _LAYOUT:
            declared = stored.attrs.get_id(key)
            shape = declared.shape or ()
            # Each of several strings may be as long as the file.
            each = size if declared.dtype.kind == "O" and shape else declared.dtype.itemsize
            check_bytes(f"the attribute {key!r}", math.prod(shape) * each, most, remedy=_FEWER)
            found[key] = _attribute(stored.attrs[key])
    return found


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
