"""Files of named arrays, whose sizes are checked before they are read."""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.limits import allowed, allowing, check_bytes, file_size, listed, readable
from learncast._core.netcdf import own_items
from learncast._core.packages import package

#: Bytes of one number of each MATLAB class that is read: numbers, strings and cells of trials.
MATLAB = {"double": 8, "single": 4, "int64": 8, "uint64": 8, "int32": 4, "uint32": 4, "int16": 2, "uint16": 2,
          "cell": 1, "char": 1, "logical": 1, "int8": 1, "uint8": 1}  # fmt: skip
#: MATLAB's type number of a compressed element.
COMPRESSED = 15
#: Most memory of a cell array per byte of its file.
CELL_OVERHEAD = 4


class ArrayFile(Mapping[str, Any]):
    """The named arrays of a file; each is read on access, unless it is too large.

    Parameters
    ----------
    path : Path
    sizes : mapping
        Bytes of each array in memory, as declared by the file.
    read : callable
        Reads one array by its name.
    most_bytes : int
        Most bytes of one array.
    """

    def __init__(self, path: Path, sizes: Mapping[str, int], read: Callable[[str], Any], most_bytes: int) -> None:
        self.path, self._sizes, self._read, self.most_bytes = path, dict(sizes), read, most_bytes

    def __iter__(self) -> Iterator[str]:
        return iter(self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)

    def __contains__(self, name: object) -> bool:
        return name in self._sizes

    def __getitem__(self, name: str) -> Any:
        check_bytes(f"{self.path}: array {name!r}", self._sizes[name], self.most_bytes)
        with readable(self.path):
            return self._read(name)

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
    if kind not in READERS:
        raise InvalidSpec(
            f"{key} must be a {', '.join((*READERS, *others))} file, got {path.name}. Export trials as arrays, e.g. "
            "with np.savez.",
            field=key,
        )
    with readable(path), allowing(most_bytes):
        return ArrayFile(path, *READERS[kind](path), allowed())


def arrays_named(path: Path, key: str, names: tuple[str, ...]) -> list[Any]:
    """Read arrays of a file by their names, all of which it must have."""
    arrays = arrays_from(path, key)
    missing = [name for name in names if name not in arrays]
    if missing:
        raise InvalidSpec(f"{path} must have {', '.join(missing)}, got {listed(sorted(arrays))}.", field=key)
    return [arrays[name] for name in names]


Directory = tuple[dict[str, int], Callable[[str], Any]]


def _npz(path: Path) -> Directory:
    with zipfile.ZipFile(path) as archive:
        sizes = {entry.filename.removesuffix(".npy"): entry.file_size for entry in archive.infolist()}

    def read(name: str) -> Any:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
            return _npy_array(file, sizes[name])

    return sizes, read


def _npy_array(file: IO[bytes], size: int) -> Any:
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


def _npy(path: Path) -> Directory:
    # A memory map, so that trials are read in chunks.
    return {path.name: path.stat().st_size}, lambda name: np.lib.format.open_memmap(path, mode="r")


def _safetensors(path: Path) -> Directory:
    safetensors = package("safetensors", "to read .safetensors files", extra="torch")

    def read(name: str) -> Any:
        with safetensors.safe_open(path, framework="numpy") as file:
            return file.get_tensor(name)

    with safetensors.safe_open(path, framework="numpy") as file:
        return dict.fromkeys(file.keys(), path.stat().st_size), read


def _mat(path: Path) -> Directory:
    import h5py
    from scipy.io import loadmat, whosmat

    if h5py.is_hdf5(path):
        return _mat73(path)
    contents, inflated = whosmat(path), _inflated_sizes(path)
    if inflated is not None and len(inflated) != len(contents):
        raise ValueError(f"{len(contents)} arrays in {len(inflated)} elements")
    sizes = {
        name: max(math.prod(shape) * MATLAB[kind], (CELL_OVERHEAD if kind == "cell" else 1) * size)
        for (name, shape, kind), size in zip(contents, inflated or [0] * len(contents), strict=True)
        if kind in MATLAB
    }
    return sizes, lambda name: _as_trials(loadmat(path, variable_names=[name])[name])


def _inflated_sizes(path: Path) -> list[int] | None:
    """Uncompressed size of every array of a MATLAB 5 file, counted up to the limit; None for version 4."""
    from scipy.io.matlab import matfile_version

    if matfile_version(path)[0] != 1:
        return None
    sizes = []
    with path.open("rb") as file:
        order = "<" if file.read(128)[126:] == b"IM" else ">"
        while len(tag := file.read(8)) == 8:
            kind, length = struct.unpack(f"{order}II", tag)
            end = file.tell() + length
            sizes.append(length if kind != COMPRESSED else _inflated_size(file, length))
            file.seek(end)
    return sizes


def _inflated_size(file: IO[bytes], length: int) -> int:
    """Uncompressed size of `length` bytes, inflated in pieces and only up to the limit."""
    inflater, size, most = zlib.decompressobj(), 0, allowed()
    while length and size <= most and (piece := file.read(min(length, 2**16))):
        length -= len(piece)
        while piece and size <= most:
            size += len(inflater.decompress(piece, 2**20))
            piece = inflater.unconsumed_tail
    return size


def _mat73(path: Path) -> Directory:
    """MATLAB 7.3 files, which are HDF5 with the axes of every array in reverse order."""
    import h5py

    most = allowed()

    def read(name: str) -> Any:
        with h5py.File(path) as file:
            array = file[name][()].T
            if array.dtype != h5py.ref_dtype:
                return _as_trials(array)
            cells, size = [file[reference] for reference in array.ravel(order="F")], 0
            for cell in cells:
                size += int(cell.nbytes)
                check_bytes(f"{path}: the cells of {name!r}", size, most)
                if _is_external(cell):
                    raise OSError(f"a cell of {name!r} is stored in another file")
            return [cell[()].T for cell in cells]

    with h5py.File(path) as file:
        sizes = {name: int(item.nbytes) for name, item in own_items(file).items()}
    return sizes, read


def _hdf5(path: Path) -> Directory:
    """Numeric arrays of an HDF5 or NWB file by their path: "processing/behavior/rates/data".

    Links, strings and arrays in other files are left out.
    """
    import h5py

    def read(name: str) -> Any:
        with h5py.File(path) as file:
            return file[name][()]

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
    return sizes, read


def _is_external(item: Any) -> bool:
    """Whether the numbers of an HDF5 array are stored in another file."""
    return bool(item.external or item.is_virtual)


def _as_trials(array: Any) -> Any:
    """Return the trials of a cell array as a list, and other arrays unchanged."""
    return list(array.ravel(order="F")) if array.dtype == object else array


#: Reader of each kind of file.
READERS: dict[str, Callable[[Path], Directory]] = {
    ".npz": _npz, ".safetensors": _safetensors, ".npy": _npy, ".mat": _mat,
    ".h5": _hdf5, ".hdf5": _hdf5, ".nwb": _hdf5,
}  # fmt: skip
