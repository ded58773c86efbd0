"""Labelled results of forecasts and training runs, with status, step counts and provenance."""

from __future__ import annotations

import enum
import functools
import hashlib
import json
import math
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import SchemaMismatch, suggestion
from learncast._core.files import write_file
from learncast._core.limits import file_size, readable
from learncast._core.netcdf import SEAL, packed, read_sealed
from learncast.display import Displayable, HtmlRepr, Plot, facts, format_count, format_number

if TYPE_CHECKING:
    import xarray as xr

FORMAT = "learncast-1"
STEPS = "gradient steps"


class Status(enum.Enum):
    """Outcome of a computed number; the value explains it in one sentence.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.Status.not_learned.value
    'never reaches its goal, so its time is infinite'
    """

    ok = "reached within the theory"
    not_learned = "never reaches its goal, so its time is infinite"
    not_within = "does not reach its goal within the steps that were tried"
    diverged = "gradient descent diverges at this learning rate"
    outside_theory = "a condition of the theory does not hold, so the number is not exact"
    too_few_samples = "too few samples to estimate the number"


#: Classes of forecasts, from the most to the least certain, with what each promises.
FORECAST_CLASSES = {
    "exact": "linear network on which every condition of the theory holds: steps are right to round-off",
    "integrated": "linear network, flow integrated numerically: steps are right to the solver's tolerance",
    "response": "fixed recurrence, nonlinear units described by their measured responses: steps with a confidence "
    "interval",
    "surrogate": "everything is trained: a ranking and a shortlist of three by the linear surrogate, no step counts",
    "measured": "a trained model, diagnosed on a sample of sequences: numbers with sampling error",
    "outside": "a condition of the theory fails: read the numbers as an approximation",
}


@dataclass(frozen=True, repr=False)
class Steps:
    """Number of training steps, with a 95% interval and a status.

    Attributes
    ----------
    descent : float
        Gradient-descent steps, a whole number. Infinite if the goal is never reached, nan if not counted.
    flow : float
        Continuous time of the gradient flow in units of the learning rate; infinite or nan likewise.
    low, high : float
        Ends of the 95% interval of `value`; nan without an interval.
    status : Status
        ``not_learned`` only if it is proved that the goal is never reached.
    tried : float
        Steps that were tried, if the status is ``not_within``; otherwise nan.
    loss : float
        Loss after these steps, or nan.
    spread : float
        Standard deviation over runs, if `descent` is the mean of training in batches; nan for full batches.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.results import Steps
    >>> steps = Steps(331.0, 329.985, low=320.0, high=345.0)
    >>> steps
    <Steps: 331 descent, 329.985 flow, 320 to 345, ok>
    >>> print(steps)
    331 steps (95% interval 320 to 345)
    >>> print(Steps(float("nan"), 2e6))
    about 2,000,000 steps (gradient flow)
    >>> print(Steps(float("nan"), float("nan"), status=lc.Status.not_within, tried=50_000, loss=0.25))
    not within 50,000 steps (loss 0.25)
    >>> Steps(float("inf"), float("inf"), status=lc.Status.not_learned).outcome
    'is never learned'
    """

    descent: float
    flow: float
    low: float = math.nan
    high: float = math.nan
    status: Status = Status.ok
    tried: float = math.nan
    loss: float = math.nan
    spread: float = math.nan

    @property
    def value(self) -> float:
        """Reported number: the descent steps, or the flow time if they were not counted."""
        return self.flow if math.isnan(self.descent) and not math.isinf(self.flow) else self.descent

    @property
    def interval(self) -> tuple[float, float] | None:
        """Ends of the 95% interval; None without one."""
        return None if math.isnan(self.low) or math.isnan(self.high) else (self.low, self.high)

    @property
    def count(self) -> str:
        """Reported steps for a table: a number, "about" a flow time, "never", "diverges", "not within N" or "unknown"."""
        if self.status is Status.diverged and math.isinf(self.descent):
            return "diverges"
        if self.status is Status.not_within and not math.isnan(self.tried):
            return f"not within {format_count(self.tried)}"
        return ("about " if math.isnan(self.descent) and math.isfinite(self.flow) else "") + format_count(self.value)

    @property
    def outcome(self) -> str:
        """What becomes of a task without a finite number of steps, to follow its name in a sentence."""
        if self.status is Status.diverged:
            return "is not learned, because gradient descent diverges at this learning rate"
        if self.status is Status.not_learned:
            return "is never learned"
        if math.isfinite(self.value):
            return f"is learned in about {format_count(self.value)} steps"
        if math.isnan(self.tried):
            return "is learned in an unknown number of steps"
        reached = "" if math.isnan(self.loss) else f" (the loss is then {self.loss:.3g})"
        return f"is not learned within {format_count(self.tried)} steps{reached}"

    def __float__(self) -> float:
        return float(self.value)

    def __repr__(self) -> str:
        interval = "" if self.interval is None else f", {self.low:.6g} to {self.high:.6g}"
        spread = "" if math.isnan(self.spread) else f" ± {self.spread:.3g}"
        return f"<Steps: {self.descent:.6g}{spread} descent, {self.flow:.6g} flow{interval}, {self.status.name}>"

    def __str__(self) -> str:
        if self.status is Status.not_within:
            reached = "" if math.isnan(self.loss) else f" (loss {self.loss:.3g})"
            return f"not within {format_count(self.tried)} steps{reached}"
        if not math.isfinite(self.value):
            because = f": {self.status.value}" if self.status is Status.diverged else ""
            return format_number(self.value) + because
        flow = " (gradient flow)" if math.isnan(self.descent) else ""
        interval = "" if self.interval is None else f" (95% interval {self._range()})"
        unit = "step" if round(self.value) == 1 else "steps"
        spread = "" if math.isnan(self.spread) else f" ± {format_count(self.spread)}"
        return f"{'about ' if flow else ''}{format_count(self.value)}{spread} {unit}{flow}{interval}"

    def _range(self) -> str:
        if math.isinf(self.high):
            return f"from {format_count(self.low)}"
        return f"{format_count(self.low)} to {format_count(self.high)}"


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
    versions = {"python": platform.python_version()}
    for name in ("learncast", "numpy", "scipy"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:  # a source tree that is not installed
            versions[name] = "unknown"
    return versions


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


#: Variables of a trajectory: dimensions, meaning and units. The first and second weights of a two-layer network are its
#: input and output weights. Losses refer to the task being trained, target losses to the last task of a curriculum.
SCHEMA: dict[str, tuple[tuple[str, ...], str, str]] = {
    "strength": (("time", "mode"), "strength of each mode", "1"),
    "loss": (("time",), "half mean squared error", "target^2"),
    "excess_loss": (("time",), "loss above the least", "target^2"),
    "target_loss": (("time",), "loss of the target task", "target^2"),
    "target_excess_loss": (("time",), "loss of the target task above its least", "target^2"),
    "goal": (("time",), "measure of the last stage's goal", "1"),
    "batch_loss": (("time",), "half mean squared error of the batch trained on", "target^2"),
    "input_weight": (("time", "mode"), "input weight a of each mode", "1"),
    "output_weight": (("time", "mode"), "output weight c of each mode", "1"),
    "input_weights": (("time", "unit", "column"), "input weights", "1"),
    "recurrent_weights": (("time", "unit", "unit_other"), "recurrent weights", "1"),
    "output_weights": (("time", "row", "unit"), "output weights", "1"),
    "network_function": (("time", "row", "column"), "network function W2 W1", "1"),
    "input_gram": (("time", "column", "column_other"), "W1^T W1", "1"),
    "output_gram": (("time", "row", "row_other"), "W2 W2^T", "1"),
    "optimum": (("stage_index", "mode"), "strength each mode should reach", "1"),
}
#: Variables of every trajectory; nan where a quantity is unknown or was not recorded.
ALWAYS = ("strength", "loss", "excess_loss")
#: Coordinates and their dimensions.
COORDINATES = {"time": "time", "mode": "mode", "stage": "time", "status": "time"}


@dataclass(frozen=True, eq=False, repr=False)
class Trajectory(Result, Displayable):
    """Course of learning over time, in gradient steps.

    Attributes
    ----------
    dataset : xarray.Dataset
        Variables of `SCHEMA`, always with ``strength``, ``loss`` and ``excess_loss``. Theory, flow, descent and
        training share this layout, so two trajectories can be subtracted.
    provenance : Provenance

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> flow = lc.forecast(task, network, learning_rate=1e-3).solution.at(range(0, 401, 100))
    >>> flow["strength"].values[:, 0].round(3)
    array([0.   , 0.008, 0.446, 1.672, 1.734])
    >>> descent = lc.descend(task, network, learning_rate=1e-3, steps=400)
    >>> float(abs(descent.at(range(0, 401, 100)) - flow)["strength"].max()) < 0.02
    False
    """

    kind = "trajectory"

    def __post_init__(self) -> None:
        _check_schema(self.dataset)

    @classmethod
    def of(
        cls,
        times: ArrayLike,
        values: Mapping[str, ArrayLike],
        provenance: Provenance,
        *,
        coords: Mapping[str, object] | None = None,
        **attributes: object,
    ) -> Self:
        """Label values by `SCHEMA`; `coords` are coordinates besides time and mode, as xarray takes them."""
        return cls(labelled(times, values, coords, attributes), provenance)

    @property
    def time(self) -> xr.DataArray:
        """Time in gradient steps."""
        return self.dataset["time"]

    def at(self, times: ArrayLike) -> Trajectory:
        """Return this trajectory with its own times."""
        return self

    def __sub__(self, other: Trajectory) -> xr.Dataset:
        """Return the differences of common variables at common times and modes.

        Weights of networks of different sizes are omitted.
        """
        import xarray as xr

        if not isinstance(other, Trajectory):
            return NotImplemented
        mine, theirs = (
            one.dataset.drop_vars([c for c in one.dataset.coords if c not in one.dataset.dims]) for one in (self, other)
        )
        shared = [
            name
            for name, (dims, _, _) in SCHEMA.items()
            if name in mine and name in theirs and "time" in dims
            if all(mine.sizes[d] == theirs.sizes[d] for d in dims if d not in ("time", "mode"))
        ]
        try:
            mine, theirs = xr.align(mine[shared], theirs[shared], join="inner")
        except ValueError as error:
            raise _incomparable("a trajectory with repeated times") from error
        for dim in ("time", "mode"):
            if not mine.sizes[dim]:
                raise _incomparable(f"none in common along {dim!r}")
        difference = mine - theirs
        for name in shared:
            difference[name].attrs = described(f"{SCHEMA[name][1]}, difference", SCHEMA[name][2])
        return difference

    def _html_repr(self) -> HtmlRepr:
        rows = [(str(name), " × ".join(map(str, v.dims))) for name, v in self.dataset.data_vars.items()]
        return HtmlRepr.of(self, facts(rows))

    def _plot(self) -> Plot:
        known = bool(self.dataset.sizes["mode"]) and bool(np.isfinite(self.dataset["strength"].values).any())
        return Plot.of("mode_strengths" if known else "loss_curve", self.dataset)

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


def labelled(
    times: ArrayLike,
    values: Mapping[str, ArrayLike],
    coords: Mapping[str, object] | None,
    attributes: Mapping[str, object],
) -> xr.Dataset:
    """Label values by `SCHEMA`.

    Parameters
    ----------
    times : (times,)
        In gradient steps.
    values : mapping
        Arrays by variable name, including ``strength``.
    coords : mapping or None
        Coordinates besides time and mode.
    attributes : mapping
        Attributes of the dataset.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> from learncast.results import labelled
    >>> course = labelled([0, 10], {"strength": [[0.1], [0.9]], "loss": [0.4, 0.1]}, None, {"task": "mine"})
    >>> dict(course.sizes), course["loss"].attrs["units"]
    ({'time': 2, 'mode': 1}, 'target^2')
    """
    import xarray as xr

    modes = np.shape(values["strength"])[1]
    return xr.Dataset(
        {name: (SCHEMA[name][0], value, described(*SCHEMA[name][1:])) for name, value in values.items()},
        coords={
            "time": ("time", times, described("training time", STEPS)),
            "mode": ("mode", np.arange(modes)),
            **(coords or {}),
        },
        attrs=attributes,
    )


def _check_schema(dataset: xr.Dataset) -> None:
    for name in (*ALWAYS, "time", "mode"):
        if name not in dataset.variables:
            raise _not_a_trajectory(f"the variable {name!r}", f"only {', '.join(map(str, dataset.variables))}", name)
    for key in dataset.data_vars:
        name, variable = str(key), dataset.variables[key]
        if name not in SCHEMA:
            got = f"{name!r} {suggestion(name, tuple(SCHEMA))}".strip()
            raise _not_a_trajectory(f"only the variables {', '.join(SCHEMA)}", got, name)
        if variable.dims != SCHEMA[name][0]:
            raise _not_a_trajectory(f"{name!r} over {SCHEMA[name][0]}", f"{variable.dims}", name)
    for name, dim in COORDINATES.items():
        if name in dataset.coords and dataset.variables[name].dims != (dim,):
            raise _not_a_trajectory(f"the coordinate {name!r} over {dim!r}", f"{dataset.variables[name].dims}", name)


def _not_a_trajectory(required: str, got: str, name: str) -> SchemaMismatch:
    return SchemaMismatch(f"A trajectory must have {required}, got {got}.", field=name)


def _incomparable(got: str) -> SchemaMismatch:
    return SchemaMismatch(f"Trajectories must share times and modes to be subtracted, got {got}.", field="trajectories")


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
