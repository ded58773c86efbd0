"""A training run: what really happens when a network is trained, in the schema of every forecast."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import nn

from learncast._core.errors import SchemaMismatch
from learncast.display import plural
from learncast.results import Provenance, Status, Trajectory, described, labelled
from learncast.training.modules import Network


@dataclass(frozen=True, eq=False, repr=False)
class TrainingRun(Trajectory):
    """The record of one training run, and the network it ended with.

    Attributes
    ----------
    dataset : Dataset
        As of every trajectory, nan where it was not recorded or is unknown; ``batch_loss`` and ``goal`` on
        request; ``optimum`` over (stage, mode), nan where none was asked for; ``stage`` at each time. A network without
        modes has no strengths.
    status : Status
        ``ok`` when the last stage reached what it was to reach, ``not_learned`` when it was given up before,
        ``diverged`` when numbers stopped being finite (the last finite weights are kept).
    stage_steps : tuple of int
        Steps each stage took.
    network : LinearRNN, TwoLayer, Activated or None
        The weights at the end; None for a torch module.
    module : nn.Module
        The trained module. A file keeps neither this nor the network.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> inputs = np.random.default_rng(0).standard_normal((64, 5, 1))
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> training = lc.training.Training(learning_rate=0.02, batch=None, steps=50, learn=("input", "output"))
    >>> run = lc.training.train((inputs, inputs.sum(axis=1)), network, training)
    >>> run
    <TrainingRun by gd: recorded (50); 50 steps, ok>
    >>> run.dataset["loss"].sel(time=[0, 25, 50]).values.round(2)
    array([2.75, 0.86, 0.06])
    >>> run.network
    <LinearRNN: 1 input, 4 hidden, 1 output; spectral radius 0.9>
    """

    network: Network | None = None
    module: nn.Module = field(default_factory=nn.Identity)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, most_bytes: int | None = None) -> TrainingRun:
        """Read a file that `save` wrote, refusing any other, also one of a forecast."""
        found = super().load(path, most_bytes=most_bytes)
        if "stage_steps" not in found.dataset.attrs:
            raise SchemaMismatch(
                f"{path} must hold a training run, got a trajectory by {found.provenance.kind}. Load it with "
                "learncast.Trajectory."
            )
        return found

    @property
    def status(self) -> Status:
        """How it ended."""
        return Status[self.dataset.attrs["status"]]

    @property
    def stage_steps(self) -> tuple[int, ...]:
        """Steps of each stage."""
        return tuple(int(n) for n in np.atleast_1d(self.dataset.attrs["stage_steps"]))

    @property
    def steps(self) -> int:
        """Steps of all stages together."""
        return sum(self.stage_steps)

    def __repr__(self) -> str:
        names = str(self.dataset.attrs["stages"]).split(" | ")
        parts = " -> ".join(f"{name} ({steps})" for name, steps in zip(names, self.stage_steps, strict=False))
        ended = f"{plural(self.steps, 'step')}, {self.status.name}"
        return f"<TrainingRun by {self.dataset.attrs['optimizer']}: {parts}; {ended}>"


class History:
    """Records of a run, step by step."""

    def __init__(self, modes: int, record: tuple[str, ...]) -> None:
        self.modes, self.record = modes, record
        self.rows: dict[str, list[Any]] = {
            key: [] for key in ("time", "stage", "loss", "batch_loss", "strength", "goal")
        }

    def add(self, time: int, stage: int, loss: float, batch_loss: float, strength: Any, goal: float) -> None:
        """One record."""
        for key, value in zip(self.rows, (time, stage, loss, batch_loss, strength, goal), strict=True):
            self.rows[key].append(value)

    def arrays(self) -> dict[str, Any]:
        """The records as arrays."""
        found = {key: np.asarray(rows, dtype=float) for key, rows in self.rows.items()}
        found["strength"] = found["strength"].reshape(len(self.rows["time"]), self.modes)
        return found

    def restore(self, arrays: dict[str, Any]) -> None:
        """Go on from saved arrays."""
        for key in self.rows:
            self.rows[key] = list(arrays[key])

    def dataset(self, stages: list[str], optima: Any, least: Any, attributes: dict[str, Any]) -> xr.Dataset:
        """The records, labelled; `least` is the least loss of each stage."""
        rows = self.arrays()
        unknown, stage = np.full(len(rows["time"]), np.nan), rows["stage"].astype(int)
        values = {
            "strength": rows["strength"] if "strength" in self.record else np.full_like(rows["strength"], np.nan),
            "loss": rows["loss"] if "loss" in self.record else unknown,
            "excess_loss": rows["loss"] - np.asarray(least)[stage] if "loss" in self.record else unknown,
            "optimum": optima,
        }
        if "batch_loss" in self.record:
            values["batch_loss"] = rows["batch_loss"]
        if "goal" in self.record:
            values["goal"] = rows["goal"]
        coordinate = ("time", stage, described("stage in training", "1"))
        return labelled(rows["time"], values, {"stage": coordinate}, {**attributes, "stages": " | ".join(stages)})


def training_provenance(digest: str, seed: int | None) -> Provenance:
    """Where a run's numbers come from."""
    versions = {**Provenance("training").versions, "torch": str(torch.__version__)}
    return Provenance("training", (), digest, seed, versions)
