"""Trajectories: the course of learning over time, in one schema for theory, descent and training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import SchemaMismatch, suggestion
from learncast.display import Displayable, HtmlRepr, Plot, facts
from learncast.results.files import Provenance, Result, described

if TYPE_CHECKING:
    import xarray as xr

#: Unit of times: steps of gradient descent, or time of the gradient flow divided by the learning rate.
STEPS = "gradient steps"

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
#: Coordinates of a trajectory, each with its dimension.
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
