"""Result files: xarray's NetCDF-4 by h5netcdf, sealed and checked as learncast writes it, and its NetCDF-3 by scipy."""

from __future__ import annotations

import resource
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import xarray as xr

from benchmarks.timing import interleaved
from learncast._core.netcdf import packed, read
from learncast.report.forecast import forecast_report
from learncast.report.plan import plan_report
from learncast.report.window import window_report
from learncast.study import Study, WindowStudy

STUDY = """
[network]
hidden_size = 32
[training]
learning_rate = 1e-3
[target]
family = "integration"
[[candidates]]
family = "integration"
steps = 25
[[candidates]]
family = "leaky-integration"
"""
WINDOW = """
[model]
hidden_size = 4
[training]
steps = 5
[task]
steps = 64
sequences = 64
[window]
sequences = 32
nulls = 19
"""
#: Values that a result may hold, each in a file of its own.
VALUES = {
    "whole numbers": xr.Dataset({"x": ("k", [1, 2])}),
    "whole numbers above 2^31": xr.Dataset({"x": ("k", [1, 2**60])}),
    "seeds (uint32)": xr.Dataset({"x": ("k", np.array([1, 2**32 - 1], dtype=np.uint32))}),
    "short numbers (float16)": xr.Dataset({"x": ("k", np.array([0.5, 1.5], dtype=np.float16))}),
    "nan and infinity": xr.Dataset({"x": ("k", [np.nan, np.inf])}),
    "truth values": xr.Dataset({"x": ("k", [True, False])}),
    "words": xr.Dataset({"x": ("k", ["é", ""])}),
    "times to the nanosecond": xr.Dataset(
        {"x": ("k", np.array(["2020-01-01", "2021-01-01T00:00:00.000000001"], dtype="M8[ns]"))}
    ),
    "two dimensions of length zero": xr.Dataset({"x": ("k", np.zeros(0)), "y": ("l", np.zeros(0))}),
    "a list of words as an attribute": xr.Dataset({"x": 1.0}, attrs={"words": ["a", "b"]}),
    "a large number as an attribute": xr.Dataset({"x": 1.0}, attrs={"seed": 2**40}),
}


def sealed(dataset: xr.Dataset, path: Path) -> None:
    path.write_bytes(packed(dataset))


WRITERS: dict[str, Callable[[xr.Dataset, Path], object]] = {
    "h5netcdf, sealed": sealed,
    "scipy": partial(xr.Dataset.to_netcdf, engine="scipy"),
}
READERS: dict[str, Callable[[Path], xr.Dataset]] = {
    "h5netcdf, sealed": read,
    "scipy": partial(xr.load_dataset, engine="scipy"),
}


def results() -> Iterator[tuple[str, xr.Dataset]]:
    """Results of typical sizes: one number of a sweep, and three reports."""
    study = Study.from_dict(tomllib.loads(STUDY), folder=Path(), source="study")
    yield "one number", xr.Dataset({"value": 1.0})
    yield "a plan", plan_report(study).labelled
    yield "a trajectory of 400 times", forecast_report(study).labelled
    window = WindowStudy.from_dict(tomllib.loads(WINDOW), folder=Path(), source="study")
    yield "a window", window_report(window).labelled


def became(dataset: xr.Dataset, name: str, path: Path) -> str:
    """What a value is when it comes back."""
    try:
        WRITERS[name](dataset, path)
        found = READERS[name](path)
    except Exception as error:  # whatever a writer says is the finding
        return f"refused ({type(error).__name__})"
    if not found.equals(dataset) or {**found.attrs} != {**dataset.attrs}:
        return "changed"
    kinds = {name: variable.dtype for name, variable in found.variables.items()}
    other = [kind for key, kind in kinds.items() if kind.kind not in "OU" and kind != dataset[key].dtype]
    return f"as {other[0]}" if other else "kept"


def cpu_seconds() -> float:
    """Processor time of this process and of its children, which read files."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usages)


def rows() -> Iterator[tuple[str, str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        for label, dataset in results():
            paths = {name: Path(folder) / f"{label} {name}.nc" for name in WRITERS}
            write = [partial(WRITERS[name], dataset, path) for name, path in paths.items()]
            again = [partial(READERS[name], path) for name, path in paths.items()]
            # Processor time: small files are all work and no waiting, and what else the machine does must not count.
            writing, reading = (interleaved(*works, repeats=20, clock=cpu_seconds) for works in (write, again))
            for (name, path), wrote, had in zip(paths.items(), writing, reading, strict=True):
                said = f"{wrote * 1e3:.1f} / {had * 1e3:.1f} ms"
                yield f"{label} ({len(dataset.variables)} variables), write / read: {name}", said, ""
                yield f"{label}, on the disk: {name}", f"{path.stat().st_size:,} B", ""
        for label, dataset in VALUES.items():
            for name in WRITERS:
                yield f"{label}: {name}", became(dataset, name, Path(folder) / "value.nc"), ""
