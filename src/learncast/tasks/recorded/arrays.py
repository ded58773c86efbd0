"""Files of named arrays, whose sizes are checked before they are read."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.isolation import read_apart
from learncast._core.limits import allowed, allowing, check_bytes, file_size, listed, readable
from learncast._core.netcdf import own_items
from learncast._core.packages import package

#: Bytes of one number of each MATLAB class that is read: numbers, strings and cells of trials.
MATLAB = {"double": 8, "single": 4, "int64": 8, "uint64": 8, "int32": 4, "uint32": 4, "int16": 2, "uint16": 2,
          "cell": 1, "char": 1, "logical": 1, "int8": 1, "uint8": 1}  # fmt: skip


@dataclass(frozen=True)
class ArrayFormat:
    """A file format.

    Attributes
    ----------
    sizes : callable
        Bytes of every array of a file by its name, as the file declares them.
    array : callable
        Reads one array of a file.
    apart : bool
        The format is read in a child process, because its library is not safe for damaged files.
    """

    sizes: Callable[[Path], dict[str, int]]
    array: Callable[[Path, str], Any]
    apart: bool = True

    def call(self, read: Callable[..., Any], path: Path, *arguments: object) -> Any:
        """Return ``read(path, *arguments)``, computed in a child process if the format requires it."""
        if self.apart:
            return read_apart(read, path, *arguments)
        with readable(path):
            return read(path, *arguments)


class ArrayFile(Mapping[str, Any]):
    """The named arrays of a file; each is read on access, unless it is too large.

    Parameters
    ----------
    path : Path
    read_format : ArrayFormat
    most_bytes : int
        Most bytes of one array.
    """

    def __init__(self, path: Path, read_format: ArrayFormat, most_bytes: int) -> None:
        self.path, self._format, self.most_bytes = path, read_format, most_bytes
        self._sizes: dict[str, int] = read_format.call(read_format.sizes, path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)

    def __contains__(self, name: object) -> bool:
        return name in self._sizes

    def __getitem__(self, name: str) -> Any:
        check_bytes(f"{self.path}: array {name!r}", self._sizes[name], self.most_bytes)
        with allowing(self.most_bytes):
            array = self._format.call(self._format.array, self.path, name)
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
    kind = path.suffix.lower()
    if kind not in FORMATS:
        kinds = ", ".join((*FORMATS, *others))
        raise InvalidSpec(f"{key} must be a {kinds} file, got {path.name}. Use np.savez.", field=key)
    with allowing(most_bytes):
        return ArrayFile(path, FORMATS[kind], allowed())


def arrays_named(path: Path, key: str, names: tuple[str, ...]) -> list[Any]:
    """Read arrays of a file by their names, all of which it must have."""
    arrays = arrays_from(path, key)
    missing = [name for name in names if name not in arrays]
    if missing:
        raise InvalidSpec(f"{path} must have {', '.join(missing)}, got {listed(sorted(arrays))}.", field=key)
    return [arrays[name] for name in names]


def _npz_sizes(path: Path) -> dict[str, int]:
    with zipfile.ZipFile(path) as archive:
        return {entry.filename.removesuffix(".npy"): entry.file_size for entry in archive.infolist()}


def _npz_array(path: Path, name: str) -> Any:
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
        return _npy_content(file, archive.getinfo(f"{name}.npy").file_size)


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


def _npy_sizes(path: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size}


def _npy_array(path: Path, name: str) -> Any:
    # A memory map, so that trials are read in chunks.
    return np.lib.format.open_memmap(path, mode="r")


def _safetensors_sizes(path: Path) -> dict[str, int]:
    safetensors = package("safetensors", "to read .safetensors files", extra="torch")
    with safetensors.safe_open(path, framework="numpy") as file:
        return dict.fromkeys(file.keys(), path.stat().st_size)


def _safetensors_array(path: Path, name: str) -> Any:
    safetensors = package("safetensors", "to read .safetensors files", extra="torch")
    with safetensors.safe_open(path, framework="numpy") as file:
        return file.get_tensor(name)


def _mat_sizes(path: Path) -> dict[str, int]:
    import h5py
    from scipy.io import whosmat

    if h5py.is_hdf5(path):  # MATLAB 7.3
        with h5py.File(path) as file:
            fields = _hdf5_sizes(path).items()
            structs = {name.replace("/", "."): size for name, size in fields if "/" in name and name[0] != "#"}
            return {name: int(item.nbytes) for name, item in own_items(file).items()} | structs
    listed = whosmat(path)
    sizes = {name: math.prod(shape) * MATLAB[kind] for name, shape, kind in listed if kind in MATLAB}
    for name in (name for name, _, kind in listed if kind == "struct"):
        sizes |= {f"{name}.{field}": path.stat().st_size for field in _mat_variable(path, name).dtype.names or ()}
    return sizes


def _mat_array(path: Path, name: str) -> Any:
    import h5py

    if h5py.is_hdf5(path):
        return _mat73_array(path, name.replace(".", "/"))
    variable, _, field = name.partition(".")
    array = _mat_variable(path, variable)
    if field:  # of a struct, or of each struct of an array of them
        parts = array[field].ravel(order="F")
        array = parts[0] if len(parts) == 1 else parts
    trials = _as_trials(array)
    check_bytes(f"{path}: array {name!r}", sum(np.asarray(one).nbytes for one in trials))
    return trials


def _mat_variable(path: Path, name: str) -> Any:
    from scipy.io import loadmat

    return loadmat(path, variable_names=[name])[name]


def _mat73_array(path: Path, name: str) -> Any:
    """Read an array of a MATLAB 7.3 file, which is HDF5 with the axes of every array in reverse order."""
    import h5py

    with h5py.File(path) as file:
        array = file[name][()].T
        if array.dtype != h5py.ref_dtype:
            return _as_trials(array)
        cells = [file[reference] for reference in array.ravel(order="F")]
        check_bytes(f"{path}: the cells of {name!r}", sum(int(cell.nbytes) for cell in cells))
        if any(_is_external(cell) for cell in cells):
            raise OSError(f"a cell of {name!r} is stored in another file")
        return [cell[()].T for cell in cells]


def _hdf5_sizes(path: Path) -> dict[str, int]:
    """Numeric arrays of an HDF5 or NWB file by their path: "processing/behavior/rates/data".

    Links, strings and arrays in other files are left out.
    """
    import h5py

    sizes: dict[str, int] = {}
    with h5py.File(path) as file:
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
                    sizes[item.name.lstrip("/")] = int(item.nbytes)
    return sizes


def _hdf5_array(path: Path, name: str) -> Any:
    import h5py

    with h5py.File(path) as file:
        return file[name][()]


def _nc_sizes(path: Path) -> dict[str, int]:
    import xarray as xr

    with xr.open_dataset(path, decode_times=False) as file:
        return {str(name): int(item.nbytes) for name, item in file.variables.items()}


def _nc_array(path: Path, name: str) -> Any:
    import xarray as xr

    with xr.open_dataset(path, decode_times=False) as file:
        return {"dims": tuple(map(str, file[name].dims)), "values": np.asarray(file[name].values)}


def _is_external(item: Any) -> bool:
    """Whether the numbers of an HDF5 array are stored in another file."""
    return bool(item.external or item.is_virtual)


def _as_trials(array: Any) -> Any:
    """Return the trials of a cell array as a list, and other arrays unchanged."""
    return list(array.ravel(order="F")) if array.dtype == object else array


_HDF5 = ArrayFormat(_hdf5_sizes, _hdf5_array)
#: Formats by the suffix of the file.
FORMATS = {
    ".npz": ArrayFormat(_npz_sizes, _npz_array, apart=False),
    ".safetensors": ArrayFormat(_safetensors_sizes, _safetensors_array),
    ".npy": ArrayFormat(_npy_sizes, _npy_array, apart=False),
    ".mat": ArrayFormat(_mat_sizes, _mat_array),
    ".nc": ArrayFormat(_nc_sizes, _nc_array),
    ".h5": _HDF5,
    ".hdf5": _HDF5,
    ".nwb": _HDF5,
}
