"""Files of named arrays, whose sizes are checked before they are read."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.isolation import read_apart
from learncast._core.limits import allowed, allowing, check_bytes, file_size, listed, readable
from learncast._core.netcdf import own_items
from learncast._core.packages import package

#: Bytes of one number of each MATLAB class that is read: numbers, strings and cells of trials.
MATLAB = {"double": 8, "single": 4, "int64": 8, "uint64": 8, "int32": 4, "uint32": 4, "int16": 2, "uint16": 2,
          "cell": 1, "char": 1, "logical": 1, "int8": 1, "uint8": 1}  # fmt: skip


#: Bytes of every array of a file by its name, as the file declares them, and a function that reads the array.
Items = dict[str, tuple[int, Callable[[], Any]]]


class ArrayFormat(NamedTuple):
    """A file format.

    Attributes
    ----------
    opened : callable
        Opens a file and yields its arrays.
    apart : bool
        The format is read in a child process, because its library is not safe for damaged files.
    """

    opened: Callable[[Path], AbstractContextManager[Items]]
    apart: bool = True


class ArrayFile(Mapping[str, Any]):
    """The named arrays of a file; each is read on access, unless it is too large.

    Parameters
    ----------
    path : Path
        File with one of the suffixes of `FORMATS`.
    most_bytes : int
        Most bytes of one array.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        self.path, self.most_bytes = path, most_bytes
        self._sizes: dict[str, int] = self._call(_sizes)

    def _call(self, read: Callable[..., Any], *arguments: object) -> Any:
        """Return ``read(path, *arguments)``, computed in a child process if the format requires it."""
        if FORMATS[self.path.suffix.lower()].apart:
            return read_apart(read, self.path, *arguments)
        with readable(self.path):
            return read(self.path, *arguments)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)

    def __contains__(self, name: object) -> bool:
        return name in self._sizes

    def __getitem__(self, name: str) -> Any:
        check_bytes(f"{self.path}: array {name!r}", self._sizes[name], self.most_bytes)
        with allowing(self.most_bytes):
            array = self._call(_array, name)
        if isinstance(array, dict):  # of NetCDF, with the names of its dimensions
            import xarray as xr

            return xr.DataArray(array["values"], dims=array["dims"])
        return array

    def named(self, name: str, key: str) -> Any:
        """The array that a keyword names."""
        if name not in self:
            raise InvalidSpec(f"{self.path} must have the array {name!r}, got {listed(sorted(self))}.", field=key)
        return self[name]


def arrays_from(path: Path, key: str, *, others: tuple[str, ...] = (), most_bytes: int | None = None) -> ArrayFile:
    """Open a file of named arrays.

    Parameters
    ----------
    path : Path
    key : str
        Study key or argument that names the file.
    others : tuple of str
        Other kinds of file that the key accepts, for the message.
    most_bytes : int, optional
        Most bytes of one array.
    """
    file_size(path, f"the file that {key} names")
    if path.suffix.lower() not in FORMATS:
        kinds = ", ".join((*FORMATS, *others))
        raise InvalidSpec(f"{key} must be a {kinds} file, got {path.name}. Use np.savez.", field=key)
    with allowing(most_bytes):
        return ArrayFile(path, allowed())


def arrays_named(path: Path, key: str, names: tuple[str, ...]) -> list[Any]:
    """Read arrays of a file by their names, all of which it must have."""
    arrays = arrays_from(path, key)
    missing = [name for name in names if name not in arrays]
    if missing:
        raise InvalidSpec(f"{path} must have {', '.join(missing)}, got {listed(sorted(arrays))}.", field=key)
    return [arrays[name] for name in names]


def _sizes(path: Path) -> dict[str, int]:
    with FORMATS[path.suffix.lower()].opened(path) as items:
        return {name: size for name, (size, _) in items.items()}


def _array(path: Path, name: str) -> Any:
    with FORMATS[path.suffix.lower()].opened(path) as items:
        return items[name][1]()


@contextmanager
def _npz(path: Path) -> Iterator[Items]:
    with zipfile.ZipFile(path) as archive:

        def array(entry: zipfile.ZipInfo) -> Any:
            with archive.open(entry) as file:
                return _npy_content(file, entry.file_size)

        entries = archive.infolist()
        yield {one.filename.removesuffix(".npy"): (one.file_size, partial(array, one)) for one in entries}


def _npy_content(file: IO[bytes], size: int) -> Any:
    """Read an array in numpy's format, after checking that its header declares no more than the `size` bytes stored."""
    version = np.lib.format.read_magic(file)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = header(file)
    number = math.prod(shape)
    if not dtype.hasobject and number * dtype.itemsize > size:
        raise ValueError(f"its header declares {number} numbers and it holds {size} bytes")
    file.seek(0)
    array = np.lib.format.read_array(file, allow_pickle=False)
    # The archive compares its checksum only when its end is reached.
    if file.read(1):
        raise ValueError("it holds more than its header declares")
    return array


@contextmanager
def _npy(path: Path) -> Iterator[Items]:
    # A memory map, so that trials are read in chunks.
    yield {path.name: (path.stat().st_size, partial(np.lib.format.open_memmap, path, mode="r"))}


@contextmanager
def _safetensors(path: Path) -> Iterator[Items]:
    safetensors = package("safetensors", "to read .safetensors files", extra="torch")
    with safetensors.safe_open(path, framework="numpy") as file:
        yield {name: (path.stat().st_size, partial(file.get_tensor, name)) for name in file.keys()}  # noqa: SIM118  not a dictionary


@contextmanager
def _mat(path: Path) -> Iterator[Items]:
    import h5py
    from scipy.io import loadmat, whosmat

    if h5py.is_hdf5(path):  # MATLAB 7.3
        with h5py.File(path) as file:
            fields = {name: item for name, item in _numeric_arrays(file) if "/" in name and name[0] != "#"}
            items = own_items(file) | {name.replace("/", "."): item for name, item in fields.items()}
            yield {name: (int(item.nbytes), partial(_mat73_array, file, item)) for name, item in items.items()}
        return
    found: Items = {}
    for name, shape, kind in whosmat(path):
        if kind in MATLAB:
            found[name] = math.prod(shape) * MATLAB[kind], partial(_mat_array, path, name)
        elif kind == "struct":
            parts = loadmat(path, variable_names=[name])[name].dtype.names or ()
            size = path.stat().st_size
            found |= {f"{name}.{field}": (size, partial(_mat_array, path, name, field)) for field in parts}
    yield found


def _mat_array(path: Path, name: str, field: str = "") -> Any:
    from scipy.io import loadmat

    array = loadmat(path, variable_names=[name])[name]
    if field:  # of a struct, or of each struct of an array of them
        parts = array[field].ravel(order="F")
        array = parts[0] if len(parts) == 1 else parts
    trials = _as_trials(array)
    check_bytes(f"{path}: array {name!r}", sum(np.asarray(one).nbytes for one in trials))
    return trials


def _mat73_array(file: Any, item: Any) -> Any:
    """Read an array of a MATLAB 7.3 file, which is HDF5 with the axes of every array in reverse order."""
    import h5py

    array = item[()].T
    if array.dtype != h5py.ref_dtype:
        return _as_trials(array)
    cells = [file[reference] for reference in array.ravel(order="F")]
    check_bytes(f"{file.filename}: the cells of {item.name.lstrip('/')!r}", sum(int(cell.nbytes) for cell in cells))
    if any(_is_external(cell) for cell in cells):
        raise OSError(f"a cell of {item.name!r} is stored in another file")
    return [cell[()].T for cell in cells]


def _numeric_arrays(file: Any) -> Iterator[tuple[str, Any]]:
    """Numeric arrays of an HDF5 or NWB file by their path: "processing/behavior/rates/data".

    Links, strings and arrays in other files are left out.
    """
    import h5py

    groups, seen = [file], set()
    for group in groups:  # the list grows during the loop; a group with several parents is visited once
        for name in group:
            item = group[name] if isinstance(group.get(name, getlink=True), h5py.HardLink) else None
            if isinstance(item, h5py.Group):
                address = h5py.h5o.get_info(item.id).addr
                if address not in seen:
                    seen.add(address)
                    groups.append(item)
            elif isinstance(item, h5py.Dataset) and item.dtype.kind in "fiub" and not _is_external(item):
                yield item.name.lstrip("/"), item


@contextmanager
def _hdf5(path: Path) -> Iterator[Items]:
    import h5py

    with h5py.File(path) as file:
        yield {name: (int(item.nbytes), partial(item.__getitem__, ())) for name, item in _numeric_arrays(file)}


@contextmanager
def _nc(path: Path) -> Iterator[Items]:
    import xarray as xr

    with xr.open_dataset(path, decode_times=False) as file:

        def array(name: object) -> dict[str, Any]:
            return {"dims": tuple(map(str, file[name].dims)), "values": np.asarray(file[name].values)}

        yield {str(name): (int(item.nbytes), partial(array, name)) for name, item in file.variables.items()}


def _is_external(item: Any) -> bool:
    """Whether the numbers of an HDF5 array are stored in another file."""
    return bool(item.external or item.is_virtual)


def _as_trials(array: Any) -> Any:
    """Return the trials of a cell array as a list, and other arrays unchanged."""
    return list(array.ravel(order="F")) if array.dtype == object else array


#: Formats by the suffix of the file.
FORMATS = {
    ".npz": ArrayFormat(_npz, apart=False),
    ".safetensors": ArrayFormat(_safetensors),
    ".npy": ArrayFormat(_npy, apart=False),
    ".mat": ArrayFormat(_mat),
    ".nc": ArrayFormat(_nc),
    **dict.fromkeys((".h5", ".hdf5", ".nwb"), ArrayFormat(_hdf5)),
}
