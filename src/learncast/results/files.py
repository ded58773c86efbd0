"""Results with their provenance, saved to and read from NetCDF."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from learncast import __version__
from learncast._core.errors import SchemaMismatch
from learncast._core.files import write_file
from learncast._core.limits import file_size, readable
from learncast._core.netcdf import SEAL, packed, read_sealed

if TYPE_CHECKING:
    import xarray as xr

FORMAT = "learncast-1"

#: Dimensions, values and attributes of a quantity.
Variable = tuple[str | tuple[str, ...], Any, dict[str, str]]


@dataclass(frozen=True)
class Provenance:
    """Origin of numbers: kind of computation, cited papers, hash of the input, seed and package versions.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> solution = lc.forecast(task, network, learning_rate=1e-3).solution
    >>> course = solution.at([0, 200, 400])
    >>> course.provenance.kind, course.provenance.citations
    ('theory', ('curriculum2025', 'proca2025', 'saxe2014'))
    """

    kind: str
    citations: tuple[str, ...] = ()
    spec_hash: str = ""
    seed: int | None = None
    versions: Mapping[str, str] = field(default_factory=lambda: package_versions())

    def as_attributes(self) -> dict[str, str]:
        """Flatten to NetCDF attributes."""
        return {
            "provenance_kind": self.kind,
            "provenance_citations": " ".join(self.citations),
            "provenance_spec_hash": self.spec_hash,
            "provenance_seed": "" if self.seed is None else str(self.seed),
            "provenance_versions": json.dumps(dict(self.versions), sort_keys=True),
        }

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, object]) -> Provenance:
        """Read back what `as_attributes` wrote."""
        kind, citations, digest, seed, versions = (
            str(attributes[f"provenance_{key}"]) for key in ("kind", "citations", "spec_hash", "seed", "versions")
        )
        return cls(kind, tuple(citations.split()), digest, int(seed) if seed else None, json.loads(versions))


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that compute the numbers.

    Returns
    -------
    dict of str to str

    Examples
    --------
    >>> from learncast.results import package_versions
    >>> sorted(package_versions())
    ['learncast', 'numpy', 'python', 'scipy']
    """
    return dict(_versions())


@functools.cache  # reading a package's metadata takes milliseconds, more than a closed form
def _versions() -> dict[str, str]:
    versions = {name: version(name) for name in ("numpy", "scipy")}
    return {"python": platform.python_version(), "learncast": __version__, **versions}


def spec_hash(*parts: object) -> str:
    """Return a short hash of arrays, numbers and strings.

    Parameters
    ----------
    *parts
        Arrays, numbers and strings.

    Returns
    -------
    str
        Sixteen hexadecimal digits.

    Examples
    --------
    >>> from learncast.results import spec_hash
    >>> spec_hash("integration", 50) == spec_hash("integration", 50)
    True
    >>> spec_hash("integration", 50) == spec_hash("integration", 51)
    False
    """
    digest = hashlib.sha256()
    for part in parts:
        array = np.asarray(part)
        digest.update(str(array.shape).encode())
        digest.update(
            np.ascontiguousarray(array).view(np.uint8).ravel().data if array.dtype != object else repr(part).encode()
        )
    return digest.hexdigest()[:16]


def described(long_name: str, units: str) -> dict[str, str]:
    """Return the attributes of a variable.

    Parameters
    ----------
    long_name : str
        Meaning of the variable.
    units : str
        ``"1"`` for a dimensionless number.

    Returns
    -------
    dict of str to str

    Examples
    --------
    >>> from learncast.results import described
    >>> described("training time", "gradient steps")
    {'long_name': 'training time', 'units': 'gradient steps'}
    """
    return {"long_name": long_name, "units": units}


def variables(dims: str | tuple[str, ...], table: Mapping[str, tuple[Any, str, str]]) -> dict[str, Variable]:
    """Return variables of a dataset.

    Parameters
    ----------
    dims : str or tuple of str
        Dimensions of all of them.
    table : mapping
        Values, meaning and units by name.

    Returns
    -------
    dict of str to tuple
        Dimensions, values and attributes, as `xarray.Dataset` takes them.

    Examples
    --------
    >>> from learncast.results import variables
    >>> variables("stage", {"steps": ([12.0], "duration", "gradient steps")})["steps"][2]
    {'long_name': 'duration', 'units': 'gradient steps'}
    """
    return {name: (dims, np.asarray(values), described(*words)) for name, (values, *words) in table.items()}


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """Dataset with its provenance, saved together in one file.

    Attributes
    ----------
    dataset : xarray.Dataset
        One variable per quantity, each with ``units`` and ``long_name``.
    provenance : Provenance

    Examples
    --------
    >>> import tempfile
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> solution = lc.forecast(task, network, learning_rate=1e-3).solution
    >>> course = solution.at([0, 200, 400])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = lc.Trajectory.load(course.save(f"{folder}/course.nc"))
    >>> again["loss"].equals(course["loss"])
    True
    """

    #: Kind of file that `save` writes.
    kind: ClassVar[str]

    dataset: xr.Dataset
    provenance: Provenance

    def __getitem__(self, name: str) -> xr.DataArray:
        return self.dataset[name]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write to NetCDF atomically."""
        return save_dataset(self.dataset, path, kind=self.kind, provenance=self.provenance)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, most_bytes: int | None = None) -> Self:
        """Read a file that `save` wrote; its numbers may take at most `most_bytes`."""
        return cls(*load_dataset(path, kind=cls.kind, most_bytes=most_bytes))


def save_dataset(dataset: xr.Dataset, path: str | os.PathLike[str], *, kind: str, provenance: Provenance) -> Path:
    """Write a dataset with its provenance to NetCDF, atomically.

    Parameters
    ----------
    dataset : Dataset
    path : path
        File to write.
    kind : str
        Kind of result; `load_dataset` checks it.
    provenance : Provenance

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> import xarray as xr
    >>> from learncast.results import Provenance, save_dataset
    >>> numbers = xr.Dataset({"loss": ("time", [0.5, 0.1])})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = save_dataset(numbers, f"{folder}/mine.nc", kind="figure", provenance=Provenance("training"))
    ...     print(path.name, path.is_file())
    mine.nc True
    """
    stamps = {"learncast_format": FORMAT, "learncast_object": kind, **provenance.as_attributes()}
    return write_file(path, packed(dataset.assign_attrs(stamps)))


def load_dataset(
    path: str | os.PathLike[str], *, kind: str, most_bytes: int | None = None
) -> tuple[xr.Dataset, Provenance]:
    """Read a dataset that `save_dataset` wrote.

    Parameters
    ----------
    path : path
        File to read.
    kind : str
        Kind of result that the file must hold.
    most_bytes : int, optional
        Largest size of the numbers in memory.

    Returns
    -------
    dataset : Dataset
    provenance : Provenance

    Raises
    ------
    SchemaMismatch
        If the file does not exist, or `save_dataset` did not write it with this kind.

    Examples
    --------
    >>> import tempfile
    >>> import xarray as xr
    >>> from learncast.results import Provenance, load_dataset, save_dataset
    >>> numbers = xr.Dataset({"loss": ("time", [0.5, 0.1])})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = save_dataset(numbers, f"{folder}/mine.nc", kind="figure", provenance=Provenance("training", seed=3))
    ...     dataset, provenance = load_dataset(path, kind="figure")
    >>> dataset["loss"].values, provenance.seed
    (array([0.5, 0.1]), 3)
    """
    source = Path(path)
    file_size(source, f"a saved {kind}", error=SchemaMismatch)
    with readable(source, kind="a NetCDF file", error=SchemaMismatch):
        dataset, seal = read_sealed(source, most_bytes=most_bytes)
    attributes = dict(dataset.attrs)
    stored = attributes.pop("learncast_object", None)
    if attributes.pop("learncast_format", None) != FORMAT or stored != kind:
        raise SchemaMismatch(
            f"{source} must hold a learncast {kind}, got {stored or 'another NetCDF file'}.", field="kind"
        )
    if seal is None:
        raise SchemaMismatch(f"{source} must hold the SHA-256 of its content.", field=SEAL)
    try:
        provenance = Provenance.from_attributes(attributes)
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise SchemaMismatch(f"{source} has no readable provenance ({error}).", field="provenance") from error
    dataset.attrs = {k: v for k, v in attributes.items() if k not in provenance.as_attributes()}
    return dataset, provenance
