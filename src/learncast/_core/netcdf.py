"""NetCDF files of datasets, laid out directly over HDF5.

`Dataset.to_netcdf` takes some milliseconds for every variable, which is longer than a closed-form task, and takes locks
by the file's name, which fails for a buffer inside a dask worker.
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

from learncast._core.errors import SchemaMismatch, UnsupportedModel
from learncast._core.limits import allowed, check_bytes

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
#: Bytes that one compressed byte can stand for at most.
_MOST_PACKED = 1032
#: HDF5's numbers for kinds: what leads to items of any length in a heap, and references.
_ANY_LENGTH, _REFERENCE = 9, 7
#: What to do about a file whose arrays are too large.
_FEWER = "save less in one file"


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


def read(source: bytes | Path, *, most_bytes: int | None = None) -> xr.Dataset:
    """The dataset of a NetCDF file over HDF5, many times faster than by a reader that must expect anything.

    What its variables declare must take no more than `most_bytes` together, and lie in the file itself.
    """
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
        if isinstance(source, Path):  # bytes were compared with their hash
            for name, number in Counter(key for item in (file, *items.values()) for key in _kinds(item)).items():
                heaps.check(name, number)
        numbers = {name: item.attrs.get("_Netcdf4Dimid", 0) for name, item in items.items() if item.is_scale}
        names = sorted(numbers, key=numbers.__getitem__)
        # By address: HDF5 searches the file for the name of what a reference leads to.
        scales = {h5py.h5o.get_info(items[name].id).addr: name for name in names}
        stored = {name: item for name, item in items.items() if name not in numbers or not _is_bare(item)}
        variables = {name: _loaded(name, item, names, scales, heaps, most) for name, item in stored.items()}
        found, attributes, coordinates = decode_cf_variables(variables, _described(file, most))
    # Loaded: what cannot be decoded is found here and not by who looks at it later.
    return xr.Dataset(found, attrs=attributes).set_coords([str(name) for name in coordinates & found.keys()]).load()


@dataclass(frozen=True)
class _Heaps:
    """The words and references of a file as HDF5 keeps them, apart from the arrays that name them.

    No checksum guards these: a wrong length there would be read for ever, or beyond the end.

    Attributes
    ----------
    content : bytes or mmap
    sizes : dict
        Bytes of each entry by its number, for every heap by its place in the file.
    """

    content: Any
    sizes: dict[int, dict[int, int]]

    @classmethod
    @contextmanager
    def of(cls, source: bytes | Path) -> Iterator[_Heaps]:
        """The heaps of a file, refused where their entries do not follow one another to the end."""
        if isinstance(source, bytes):
            yield cls(source, dict(_entries(source)))
            return
        with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            yield cls(content, dict(_entries(content)))

    def check(self, name: str, number: int) -> None:
        """Refuse a file in which fewer than `number` attributes of that name lead to items of the very length they say.

        HDF5 takes memory for what they say before it looks: up to 64 GB for one wrong bit. Some bytes may be left of
        attributes that were written anew, so that others which lead nowhere mean nothing.
        """
        key = name.encode()
        hits = re.finditer(re.escape(key) + b"\0", self.content)
        whole = sum(self._leads(hit.start(), len(key) + 1) for hit in hits)
        if whole < number:
            raise OSError(f"the attribute {name!r}, which leads {number - whole} times to what is not there")

    def _leads(self, place: int, length: int) -> bool:
        """Whether a name stands there in an attribute message of HDF5, all items of which are in the heaps."""
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
        if self.content[kind] & 15 != _ANY_LENGTH or (size, inner) != (16, item):
            return False
        rank, first = self.content[space + 1], 8 if self.content[space] == 1 else 4
        shape = struct.unpack(f"<{rank}Q", self.content[space + first : space + first + 8 * rank])
        named = self.content[values : values + 16 * min(math.prod(shape), len(self.content))]
        return all(
            not number or self.sizes.get(heap, {}).get(entry) == number * item
            for number, heap, entry in struct.iter_unpack("<IQI", named)
        )

    def longest(self, stored: Any) -> int:
        """Bytes of the longest word of an array, each of which must be an entry of that very length."""
        place, number = stored.id.get_offset(), int(stored.size)
        if place is None:
            raise OSError("words that do not lie in one piece")
        kind = np.dtype([("bytes", "<u4"), ("heap", "<u8"), ("entry", "<u4")])
        words = np.frombuffer(self.content[place : place + 16 * number], dtype=kind, count=number)
        for length, heap, entry in words.tolist():
            if length and self.sizes.get(heap, {}).get(entry) != length:
                raise OSError(f"a word of {length} bytes that is not there")
        return int(words["bytes"].max(initial=1))


def _entries(content: Any) -> Iterator[tuple[int, dict[int, int]]]:
    for heap in re.finditer(rb"GCOL\x01\0\0\0(.{8})", content, re.DOTALL):
        place, end = heap.end(), heap.start() + int.from_bytes(heap[1], "little")
        if not place <= end <= len(content):
            raise OSError(f"a heap that ends at byte {end} of {len(content)}")
        found: dict[int, int] = {}
        while place + 16 <= end:
            index, _, empty, size = struct.unpack("<HHIQ", content[place : place + 16])
            # The entry of number 0 is what is free, with its own head; others come after theirs, in steps of 8.
            taken = size if index == 0 else 16 + -(-size // 8) * 8
            if empty or index in found or not 16 <= taken <= end - place or (index == 0 and taken < end - place):
                raise OSError(f"a heap whose entry {index} has {size} bytes where {end - place} are left")
            found[index] = size
            place += taken
        yield heap.start(), found


def own_items(file: Any) -> dict[str, Any]:
    """The arrays of an HDF5 file by their names; those that lie in another file, by whatever link, are refused."""
    import h5py

    found: dict[str, Any] = {}
    links = file.id.links
    # As they were written: older versions of h5py list them by name.
    for name in sorted(file, key=lambda name: links.get_info(name.encode("utf-8", "surrogateescape")).corder):
        link = file.get(name, getlink=True)
        item = file[name] if isinstance(link, h5py.HardLink) else None
        if item is None or (isinstance(item, h5py.Dataset) and (item.external or item.is_virtual)):
            raise SchemaMismatch(
                f"{file.filename} must hold all its arrays itself, got {name!r}, which is a link to others."
            )
        if isinstance(item, h5py.Dataset):
            found[name] = item
    return found


def _kinds(stored: Any) -> Iterator[str]:
    """Names of attributes of any length; those of a kind that NetCDF has not are refused.

    HDF5 fails on damaged ones without a word.
    """
    import h5py

    kinds = {h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.STRING, h5py.h5t.ENUM}
    size = stored.file.id.get_filesize()
    for key in stored.attrs:
        attribute = stored.attrs.get_id(key)
        kind = attribute.get_type()
        if math.prod(attribute.shape or ()) * kind.get_size() > size:
            raise OSError(f"the attribute {key!r}, which claims to be larger than the file")
        listed = key == "DIMENSION_LIST" and kind.get_class() == h5py.h5t.VLEN
        if not (kind.get_class() in kinds or key == "REFERENCE_LIST" or listed):
            raise OSError(f"the attribute {key!r} of an unknown kind")
        base = kind.get_super() if listed else kind
        if listed and (base.get_class(), base.get_size(), attribute.shape) != (h5py.h5t.REFERENCE, 8, (stored.ndim,)):
            raise OSError(f"the attribute {key!r} of an unknown kind")
        if listed or (kind.get_class() == h5py.h5t.STRING and kind.is_variable_str()):
            yield key
    if isinstance(stored, h5py.Dataset) and stored.id.get_type().get_class() not in kinds:
        raise OSError(f"{stored.name!r} of an unknown kind")


def _declared(stored: Any) -> int:
    """Bytes of an array as its header says; a word takes 4 for each of its letters."""
    return int(stored.size or 0) * stored.dtype.itemsize * (4 if stored.dtype.kind == "S" else 1)


def _is_bare(stored: Any) -> bool:
    name = stored.attrs["NAME"]
    return (name.decode() if isinstance(name, bytes) else str(name)).startswith(_BARE)


def _loaded(name: str, stored: Any, names: list[str], scales: dict[int, str], heaps: _Heaps, most: int) -> xr.Variable:
    import h5py
    import xarray as xr

    held = min(stored.id.get_storage_size(), len(heaps.content))
    if _declared(stored) > max(2**20, 4 * _MOST_PACKED * held):
        raise OSError(f"{name!r}, which claims {_declared(stored)} bytes and holds {held}")
    words = h5py.check_string_dtype(stored.dtype) is not None
    values = _words(name, stored, heaps, most) if words else np.asarray(stored[()])
    if values.dtype.kind not in "biufU":
        raise TypeError(f"{name!r} holds neither numbers nor words")
    if not stored.is_scale:
        tied = [h5py.h5o.get_info(axis[0].id).addr if len(axis) else 0 for axis in stored.dims]
        dims = [scales.get(place, f"{name}_{k}") for k, place in enumerate(tied)]
    elif "_Netcdf4Coordinates" in stored.attrs:
        dims = [names[number] for number in stored.attrs["_Netcdf4Coordinates"]]
    else:
        dims = [name]
    return xr.Variable(dims, values, _described(stored, most))


def _words(name: str, stored: Any, heaps: _Heaps, most: int) -> np.ndarray[Any, np.dtype[np.str_]]:
    """Words of any length; many may be one and the same long word of the file."""
    if not stored.size:
        return np.empty(stored.shape or (), dtype=np.str_)
    longest = heaps.longest(stored) if stored.dtype.kind == "O" else stored.dtype.itemsize
    check_bytes(f"the words of {name!r}", 4 * longest * int(stored.size), most, remedy=_FEWER)
    return np.asarray(stored.asstr()[()], dtype=np.str_)


def _described(stored: Any, most: int) -> dict[str, Any]:
    """Attributes that are not the layout's own, which take longest to read."""
    size = stored.file.id.get_filesize()
    found = {}
    for key in stored.attrs:
        if key not in _LAYOUT:
            declared = stored.attrs.get_id(key)
            shape = declared.shape or ()
            # Every one of many words may be as long as the file.
            each = size if declared.dtype.kind == "O" and shape else declared.dtype.itemsize
            check_bytes(f"the attribute {key!r}", math.prod(shape) * each, most, remedy=_FEWER)
            found[key] = _attribute(stored.attrs[key])
    return found


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
                f"names of variables and dimensions must be words without a slash, got {name!r}. Use a dot or "
                "an underscore instead."
            )
    for name, variable in dataset.variables.items():
        kind, units = variable.dtype.kind, str(variable.attrs.get("units", ""))
        if not _is_words(variable.values) and kind not in "biufUTMm":
            raise UnsupportedModel(
                f"{name} must hold numbers, words or times, got values of kind {variable.dtype}.", field=name
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
