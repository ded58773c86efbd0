"""The labelled result every forecast and every training run returns."""

from __future__ import annotations

import enum
import functools
import hashlib
import json
import os
import platform
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from learncast.errors import SchemaMismatch
from learncast.netcdf import packed

FORMAT = "learncast-1"
STEPS = "gradient steps"


class Status(enum.Enum):
    """How one number came out; the value is the sentence a reader needs."""

    ok = "reached within the theory"
    not_learned = "never reaches the tolerance band, so its time is infinite"
    diverged = "gradient descent diverges at this learning rate"
    outside_theory = "a condition of the theory does not hold, so the number is not exact"
    too_few_samples = "too few samples to estimate the number"


#: Where a forecast stands: what may be promised for it (printed with every answer).
FORECAST_CLASSES = {
    "exact": "linear network on which every condition of the theory holds: steps are right to round-off",
    "integrated": "linear network, flow integrated numerically: steps are right to the solver's tolerance",
    "response": "fixed recurrence, nonlinear units seen through their measured responses: steps with a confidence "
    "interval",
    "surrogate": "everything is trained: a ranking and a shortlist of three by the linear surrogate, no step counts",
    "measured": "a trained model as it is, diagnosed on a sample of sequences: numbers with sampling error",
    "outside": "a condition of the theory fails: read the numbers as an approximation",
}


@dataclass(frozen=True)
class Provenance:
    """Where numbers come from: theory or training, whose equations, which input, which versions."""

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
    def from_attributes(cls, attributes: Mapping[str, Any]) -> Provenance:
        """Read back what `as_attributes` wrote."""
        kind, citations, digest, seed, versions = (
            str(attributes[f"provenance_{key}"]) for key in ("kind", "citations", "spec_hash", "seed", "versions")
        )
        return cls(kind, tuple(citations.split()), digest, int(seed) if seed else None, json.loads(versions))


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that make the numbers."""
    return dict(_versions())


@functools.cache  # reading a package's metadata takes milliseconds, more than a closed form
def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("learncast", "numpy", "scipy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # running from a source tree that was never installed
            found[name] = "unknown"
    return found


def spec_hash(*parts: Any) -> str:
    """Short hash of arrays, numbers and words: the same input gives the same hash."""
    digest = hashlib.sha256()
    for part in parts:
        array = np.asarray(part)
        digest.update(str(array.shape).encode())
        digest.update(np.ascontiguousarray(array).tobytes() if array.dtype != object else repr(part).encode())
    return digest.hexdigest()[:16]


def described(long_name: str, units: str) -> dict[str, str]:
    """Attributes that every variable carries."""
    return {"long_name": long_name, "units": units}


@dataclass(frozen=True, repr=False)
class Trajectory:
    """What happens while a network learns, over time in gradient steps.

    Attributes
    ----------
    dataset : xarray.Dataset
        One variable per quantity over ``time`` (in gradient steps) and its own dimensions, each with
        ``units`` and ``long_name``. Theory, flow, descent and training share the names, so comparing
        two trajectories is subtraction.
    provenance : Provenance
        Where the numbers come from.
    """

    dataset: xr.Dataset
    provenance: Provenance

    def __getitem__(self, name: str) -> xr.DataArray:
        return self.dataset[name]

    @property
    def time(self) -> xr.DataArray:
        """Time in gradient steps."""
        return self.dataset["time"]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write to NetCDF; the file appears whole or not at all."""
        return save_dataset(self.dataset, path, kind="trajectory", provenance=self.provenance)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trajectory:
        """Read a file that `save` wrote."""
        dataset, provenance = load_dataset(path, kind="trajectory")
        return cls(dataset, provenance)

    def __repr__(self) -> str:
        times = np.asarray(self.time.values, dtype=float)
        span = f"{times.min():g} to {times.max():g} {STEPS}" if times.size else "no times"
        sizes = ", ".join(f"{name} {size}" for name, size in self.dataset.sizes.items())
        finite = all(np.isfinite(v.values).all() for v in self.dataset.data_vars.values() if v.dtype.kind == "f")
        health = "all values finite" if finite else "some values not finite"
        return (
            f"<Trajectory by {self.provenance.kind}: {span}; {sizes}; "
            f"{', '.join(map(str, self.dataset.data_vars))}; {health}>"
        )


def save_dataset(dataset: xr.Dataset, path: str | os.PathLike[str], *, kind: str, provenance: Provenance) -> Path:
    """Write a Dataset with its provenance to NetCDF through a temporary file and a rename."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    stamps = {"learncast_format": FORMAT, "learncast_object": kind, **provenance.as_attributes()}
    # Not a tempfile: those are private, and the renamed file should be as readable as any other new one.
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        draft.write_bytes(packed(dataset.assign_attrs(stamps)))
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)
    return target


def load_dataset(path: str | os.PathLike[str], *, kind: str) -> tuple[xr.Dataset, Provenance]:
    """Read a Dataset that `save_dataset` wrote, refusing anything else."""
    source = Path(path)
    if not source.is_file():
        raise SchemaMismatch(
            required=f"a saved {kind} must exist",
            got=f"no file {source}",
            why="there is nothing to load",
            remedy="check the path",
        )
    try:
        dataset = xr.load_dataset(source, engine="h5netcdf")
    except OSError as error:
        raise SchemaMismatch(
            required=f"{source} must be a NetCDF file",
            got=str(error),
            why="it cannot be read",
            remedy=f"load a file written by the save method of a {kind}",
        ) from error
    attributes = dict(dataset.attrs)
    found = attributes.pop("learncast_object", None)
    if attributes.pop("learncast_format", None) != FORMAT or found != kind:
        raise SchemaMismatch(
            required=f"{source} must hold a learncast {kind}",
            got=f"a NetCDF file that holds {found or 'something else'}",
            why="its variables would be read with the wrong meaning",
            remedy="load it with the class that saved it, or with xarray",
        )
    try:
        provenance = Provenance.from_attributes(attributes)
    except (KeyError, ValueError) as error:
        raise SchemaMismatch(
            required=f"{source} must say where its numbers come from",
            got=f"no readable provenance ({error})",
            why="a result without it cannot be trusted or repeated",
            remedy="save it again from the object that made it",
        ) from error
    dataset.attrs = {k: v for k, v in attributes.items() if k not in provenance.as_attributes()}
    return dataset, provenance
