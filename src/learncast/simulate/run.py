"""A training run: what really happens when a network is trained, in the schema of every forecast."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from torch import nn

from learncast.simulate.modules import Network
from learncast.trajectory import STEPS, Provenance, Status, Trajectory, described


@dataclass(frozen=True, repr=False)
class TrainingRun(Trajectory):
    """The record of one training run, and the network it ended with.

    Attributes
    ----------
    dataset : Dataset
        ``loss`` and ``batch_loss`` over time, ``strength`` over (time, mode), as far as recorded; ``optimum`` over
        (stage, mode), nan where none was asked for; ``stage`` at each time.
    status : Status
        ``ok`` when the last stage reached what it was to reach, ``not_learned`` when it was given up before,
        ``diverged`` when numbers stopped being finite (the last finite weights are kept).
    stage_steps : tuple of int
        Steps each stage took.
    network : LinearRNN, TwoLayer, Activated or None
        The weights at the end; None for a torch module.
    module : nn.Module
        The trained module.
    """

    status: Status = Status.ok
    stage_steps: tuple[int, ...] = ()
    network: Network | None = None
    module: nn.Module = field(default_factory=nn.Identity, compare=False)

    @property
    def steps(self) -> int:
        """Steps of all stages together."""
        return sum(self.stage_steps)

    def __repr__(self) -> str:
        names = str(self.dataset.attrs["stages"]).split(" | ")
        parts = " -> ".join(f"{name} ({steps})" for name, steps in zip(names, self.stage_steps, strict=False))
        return f"<TrainingRun by {self.dataset.attrs['optimiser']}: {parts}; {self.steps} steps, {self.status.name}>"


class History:
    """Records of a run, step by step."""

    def __init__(self, modes: int, record: tuple[str, ...]) -> None:
        self.modes, self.record = modes, record
        self.rows: dict[str, list[Any]] = {key: [] for key in ("time", "stage", "loss", "batch_loss", "strength")}

    def add(self, time: int, stage: int, loss: float, batch_loss: float, strength: Any) -> None:
        """One record."""
        for key, value in zip(self.rows, (time, stage, loss, batch_loss, strength), strict=True):
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

    def dataset(self, stages: list[str], optima: Any, attributes: dict[str, Any]) -> xr.Dataset:
        """The records, labelled."""
        rows = self.arrays()
        variables: dict[str, Any] = {}
        if "strength" in self.record and self.modes:
            variables["strength"] = (("time", "mode"), rows["strength"], described("strength of each mode", "1"))
        if self.modes:
            variables["optimum"] = (("stage_index", "mode"), optima, described("strength each mode should reach", "1"))
        for key, text in (("loss", "half mean squared error"), ("batch_loss", "the same on the batch trained on")):
            if key in self.record:
                variables[key] = ("time", rows[key], described(text, "target^2"))
        coordinates: dict[str, Any] = {
            "time": ("time", rows["time"], described("training time", STEPS)),
            "stage": ("time", rows["stage"].astype(int), described("stage in training", "1")),
        }
        if self.modes:
            coordinates["mode"] = ("mode", np.arange(self.modes))
        return xr.Dataset(variables, coords=coordinates, attrs={**attributes, "stages": " | ".join(stages)})


def training_provenance(digest: str, seed: int) -> Provenance:
    """Where a run's numbers come from."""
    import torch

    versions = {**Provenance("training").versions, "torch": str(torch.__version__)}
    return Provenance("training", (), digest, seed, versions)
