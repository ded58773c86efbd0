"""Files of named arrays, measured before they are read."""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.limits import allowed, allowing, check_bytes, file_size, listed, readable
from learncast._core.netcdf import own_items
from learncast._core.packages import package

#: Bytes of one number of MATLAB's classes of more than one.
MATLAB = {"double": 8, "single": 4, "int64": 8, "uint64": 8, "int32": 4, "uint32": 4, "int16": 2, "uint16": 2}


#: MATLAB's number for a part that is packed, and what a cell takes at most beside the bytes it is read from.
PACKED, CELLS = 15, 4


class ArrayFile(Mapping[str, Any]):
    """The named arrays of a file, each read when it is asked for and refused when it is too large.

    Parameters
    ----------
    path : Path
    sizes : mapping
        Bytes that each array takes once it is read, as the file's directory says.
    read : callable
        Reads one array by its name.
    most_bytes : int
        That one array may take.
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
        """The array that a key of the study, or a keyword, names."""
        if name not in self:
            raise InvalidSpec(
                f"{self.path} must hold the array {name!r} that {key} names, got arrays {listed(sorted(self))}."
            )
        return self[name]


def arrays_from(path: Path, key: str, *, others: tuple[str, ...] = (), most_bytes: int | None = None) -> ArrayFile:
    """The named arrays of a file; `key` is the word of the study that names it.

    `others` are further kinds that it might have been.
    """
    file_size(path, f"the file that {key} names")
    kind = path.suffix.lower()
    if kind not in READERS:
        raise InvalidSpec(
            f"{key} must be a file of kind {' or '.join((*READERS, *others))}, got {path.name}. Export trials "
            "as arrays (trials, steps, channels), e.g. with np.savez.",
            field=key,
        )
    with readable(path), allowing(most_bytes):
        return ArrayFile(path, *READERS[kind](path), allowed())


def arrays_named(path: Path, key: str, names: tuple[str, ...], *, why: str, remedy: str = "") -> list[Any]:
    """Arrays of a file by their names, all of which it must hold; `why` and `remedy` say what it means if not."""
    arrays = arrays_from(path, key)
    missing = [name for name in names if name not in arrays]
    if missing:
        raise InvalidSpec(
            f"{path} must hold {(' and ' if key == 'data' else ', ').join(names)}, got arrays {listed(sorted(arrays))}."
        )
    return [arrays[name] for name in names]


Directory = tuple[dict[str, int], Callable[[str], Any]]


def _npz(path: Path) -> Directory:
    with zipfile.ZipFile(path) as archive:
        sizes = {entry.filename.removesuffix(".npy"): entry.file_size for entry in archive.infolist()}

    def read(name: str) -> Any:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
            return _npy_array(file, sizes[name])

    return sizes, read


def _npy_array(file: Any, size: int) -> Any:
    """One array in numpy's format, which must not claim to be larger than what holds it."""
    version = np.lib.format.read_magic(file)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, kind = header(file)
    number = math.prod(shape)
    if kind.hasobject:
        raise ValueError("objects, which only running a part of the file could restore")
    if number * kind.itemsize > size:
        raise ValueError(f"it claims {number} numbers and holds {size} bytes")
    file.seek(0)
    found = np.lib.format.read_array(file, allow_pickle=False)
    # The archive compares its checksum when its end is reached.
    if file.read(1):
        raise ValueError("it holds more than its header claims")
    return found


def _npy(path: Path) -> Directory:
    # Mapped, not read: trials are then read a chunk at a time.
    return {path.name: path.stat().st_size}, lambda name: np.lib.format.open_memmap(path, mode="r")


def _safetensors(path: Path) -> Directory:
    safe_open = package("safetensors", "to read .safetensors files", extra="torch").safe_open

    def read(name: str) -> Any:
        with safe_open(path, framework="numpy") as file:
            return file.get_tensor(name)

    with safe_open(path, framework="numpy") as file:
        return dict.fromkeys(file.keys(), path.stat().st_size), read


def _mat(path: Path) -> Directory:
    import h5py
    from scipy.io import loadmat, whosmat

    if h5py.is_hdf5(path):
        return _mat73(path)
    # What is no array of numbers, of words or of trials is left out.
    bytes_of = {**dict.fromkeys(("cell", "char", "logical", "int8", "uint8"), 1), **MATLAB}
    listed, unpacked = whosmat(path), _unpacked(path)
    if unpacked is not None and len(unpacked) != len(listed):
        raise ValueError(f"{len(listed)} arrays in {len(unpacked)} parts")
    sizes = {
        name: max(math.prod(shape) * bytes_of[kind], (CELLS if kind == "cell" else 1) * held)
        for (name, shape, kind), held in zip(listed, unpacked or [0] * len(listed), strict=True)
        if kind in bytes_of
    }
    return sizes, lambda name: _uncelled(loadmat(path, variable_names=[name])[name])


def _unpacked(path: Path) -> list[int] | None:
    """Bytes of every array of a file of MATLAB's version 5 once it is unpacked, counted up to the limit.

    None for version 4, which packs nothing.
    """
    from scipy.io.matlab import matfile_version

    if matfile_version(path)[0] != 1:
        return None
    found = []
    with path.open("rb") as file:
        order = "<" if file.read(128)[126:] == b"IM" else ">"
        while len(tag := file.read(8)) == 8:
            kind, length = struct.unpack(f"{order}II", tag)
            end = file.tell() + length
            found.append(length if kind != PACKED else _inflated(file, length))
            file.seek(end)
    return found


def _inflated(file: Any, length: int) -> int:
    """Bytes to which so many packed ones swell, a piece at a time: no further than the limit."""
    unpacker, found, most = zlib.decompressobj(), 0, allowed()
    while length and found <= most:
        piece = file.read(min(length, 2**16))
        if not piece:
            break
        length -= len(piece)
        while piece and found <= most:
            found += len(unpacker.decompress(piece, 2**20))
            piece = unpacker.unconsumed_tail
    return found


def _mat73(path: Path) -> Directory:
    """MATLAB's files of version 7.3: HDF5, with every array's axes in reverse order."""
    import h5py

    most = allowed()

    def read(name: str) -> Any:
        with h5py.File(path) as file:
            found = file[name][()].T
            if found.dtype == h5py.ref_dtype:
                cells, taken = [file[part] for part in found.ravel(order="F")], 0
                for cell in cells:
                    taken += int(cell.nbytes)
                    check_bytes(f"{path}: the cells of {name!r}", taken, most)
                    if _elsewhere(cell):
                        raise OSError(f"a cell of {name!r} whose numbers lie in another file")
                found = np.array([None, *(cell[()].T for cell in cells)], dtype=object)[1:]
            return _uncelled(found)

    with h5py.File(path) as file:
        sizes = {name: int(item.nbytes) for name, item in own_items(file).items()}
    return sizes, read


def _hdf5(path: Path) -> Directory:
    """Arrays of numbers in HDF5, NWB among it, by their place: "processing/behavior/rates/data".

    What is a link, words, or lies in another file is left out.
    """
    import h5py

    def read(name: str) -> Any:
        with h5py.File(path) as file:
            return file[name][()]

    sizes: dict[str, int] = {}
    with h5py.File(path) as file:
        groups, seen = [file], set()
        for group in groups:  # grows as it is walked; a group that is held by several is entered once
            for name in group:
                item = group[name] if isinstance(group.get(name, getlink=True), h5py.HardLink) else None
                if isinstance(item, h5py.Group):
                    address = h5py.h5o.get_info(item.id).addr
                    if address not in seen:
                        seen.add(address)
                        groups.append(item)
                elif isinstance(item, h5py.Dataset) and item.dtype.kind in "fiub" and not _elsewhere(item):
                    sizes[item.name.lstrip("/")] = int(item.nbytes)
    return sizes, read


def _elsewhere(item: Any) -> bool:
    """Whether an array's numbers lie in another file."""
    return bool(item.external or item.is_virtual)


def _uncelled(found: Any) -> Any:
    """Trials of a cell array as a list; numbers as they are."""
    return list(found.ravel(order="F")) if found.dtype == object else found


#: How each kind of file is opened.
READERS: dict[str, Callable[[Path], Directory]] = {
    ".npz": _npz,
    ".safetensors": _safetensors,
    ".npy": _npy,
    ".mat": _mat,
    ".h5": _hdf5,
    ".hdf5": _hdf5,
    ".nwb": _hdf5,
}
