"""Files of a study: its own tables, and the trials, statistics and weights that it names."""

from __future__ import annotations

import tomllib
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from learncast.errors import InvalidSpec
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.tasks.one_step import from_pairs
from learncast.tasks.tables import SUFFIXES, from_table
from learncast.tasks.task import Task


def tables_from(source: Path, *, why: str) -> dict[str, Any]:
    """The tables of a TOML file; `why` says what its absence means."""
    if not source.is_file():
        raise InvalidSpec(
            required="the study file must exist", got=f"no file {source}", why=why, remedy="check the path"
        )
    try:
        return tomllib.loads(source.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSpec(
            required=f"{source} must be a TOML file",
            got=str(error),
            why="it cannot be read",
            remedy="correct the line it names",
        ) from error


def task_from_file(path: Path, *, name: str, centre: bool = False, layout: Mapping[str, Any] | None = None) -> Task:
    """Build a task from recorded trials (inputs, targets) or from statistics in a file of arrays, or from a table.

    `layout` holds the keywords of `from_table` that say how a table is read.
    """
    if path.suffix.lower() in SUFFIXES and path.is_file():
        return from_table(path, name=name, centre=centre, **(layout or {}))
    arrays = arrays_from(path, "data", others=SUFFIXES)
    if layout:
        raise InvalidSpec(
            required=f"{', '.join(layout)} belong to a table ({' or '.join(SUFFIXES)})",
            got=f"data = {path.name!r}",
            why="a file of arrays names its inputs and targets itself",
            remedy=f"leave {'it' if len(layout) == 1 else 'them'} out",
        )
    if {"inputs", "targets"} <= arrays.keys():
        if arrays["inputs"].ndim == 2:
            return from_pairs(arrays["inputs"], arrays["targets"], name=name, centre=centre)
        return Task.from_samples(arrays["inputs"], arrays["targets"], name=name, centre=centre)
    if {"input_covariance", "cross_covariance"} <= arrays.keys():
        return Task(arrays["input_covariance"], arrays["cross_covariance"], arrays.get("target_covariance"), name=name)
    raise InvalidSpec(
        required=f"{path} must hold inputs and targets, or input_covariance and cross_covariance",
        got=f"arrays {', '.join(sorted(arrays)) or 'none'}",
        why="a task is made of one or the other",
        remedy="save it with np.savez(file, inputs=..., targets=...)",
    )


def network_from_file(path: Path) -> LinearRNN:
    """Build a network from input_weights, recurrent_weights and output_weights in .npz or .safetensors."""
    return LinearRNN(*_weights(path, ("input_weights", "recurrent_weights", "output_weights")))


def two_layer_from_file(path: Path) -> TwoLayer:
    """Build a network from first and second in .npz or .safetensors."""
    return TwoLayer(*_weights(path, ("first", "second")))


def _weights(path: Path, wanted: tuple[str, ...]) -> list[Any]:
    arrays = arrays_from(path, "weights")
    missing = [key for key in wanted if key not in arrays]
    if missing:
        raise InvalidSpec(
            required=f"{path} must hold {', '.join(wanted)}",
            got=f"arrays {', '.join(sorted(arrays)) or 'none'}",
            why="such a network has these",
            remedy=f"add {', '.join(missing)}",
        )
    return [arrays[key] for key in wanted]


def arrays_from(path: Path, key: str, *, others: tuple[str, ...] = ()) -> dict[str, Any]:
    """The named arrays of an .npz or .safetensors file; `key` is the word of the study that names it.

    `others` are further kinds that it might have been.
    """
    if not path.is_file():
        raise InvalidSpec(
            required=f"the file that {key} names must exist",
            got=f"no file {path}",
            why="its arrays are needed",
            remedy="give its path relative to the study file",
        )
    readers: dict[str, Callable[[Path], dict[str, Any]]] = {".npz": _read_npz, ".safetensors": _read_safetensors}
    if path.suffix not in readers:
        raise InvalidSpec(
            required=f"{key} must be a file of kind {' or '.join((*readers, *others))}",
            got=path.name,
            why="other kinds cannot be read",
            remedy="convert it, e.g. with np.savez",
        )
    return readers[path.suffix](path)


def _read_npz(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it holds a single array without a name")
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise _unreadable(path, error) from error


def _read_safetensors(path: Path) -> dict[str, Any]:
    try:
        from safetensors.numpy import load_file
    except ImportError as error:
        raise InvalidSpec(
            required="safetensors must be installed to read .safetensors files",
            got="no such package",
            why="it is part of the torch extra",
            remedy="pip install 'learncast[torch]', or save the weights as .npz",
        ) from error
    from safetensors import SafetensorError

    try:
        return dict(load_file(path))
    except (OSError, TypeError, ValueError, SafetensorError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> InvalidSpec:
    return InvalidSpec(
        required=f"{path} must be readable",
        got=f"{type(error).__name__}: {error}",
        why="it is damaged or of another kind",
        remedy="write it again",
    )
