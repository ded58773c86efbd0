"""A training run: its settings, its record and its checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import xarray as xr
from torch import nn

from learncast._core.errors import InvalidSpec, SchemaMismatch
from learncast._core.files import draft_of
from learncast._core.progress import silent
from learncast._core.validation import FloatArray, count, one_of
from learncast.display import plural
from learncast.results import Provenance, Status, Trajectory, described, labelled
from learncast.training.modules import Network
from learncast.training.remaining import Earlier

DTYPES = {"float64": torch.float64, "float32": torch.float32}
#: What can be recorded.
RECORDS = ("loss", "strength", "batch_loss", "goal")
#: First bytes of a checkpoint, followed by a checksum and the state as `torch.save` writes it.
FORMAT = b"learncast-training-5"
#: Held-out trials on which a loss without closed form is evaluated.
EVALUATION = 2000


class Writer(Protocol):
    """Receives scalars, e.g. TensorBoard's SummaryWriter."""

    def add_scalar(self, name: str, value: float, step: int, /) -> object:
        """Write one value."""


@dataclass(frozen=True)
class Records:
    """What a training run records.

    Parameters
    ----------
    quantities : tuple of {"loss", "strength", "batch_loss", "goal"}
        ``loss`` is the loss on the task: exact for linear networks and half the squared error, on the recorded trials
        if there are any, on held-out trials otherwise. ``strength`` is that of each mode of a described network.
        ``goal`` is the quantity of the last stage's goal on its own task.
    every : int
        Steps between records.
    evaluation : int
        Held-out trials.
    log : callable
        Called with a sentence when a stage begins and when it ends, e.g. `print`.
    writer : object with add_scalar(name, value, step), optional
        Such as TensorBoard's SummaryWriter. It receives the loss, the goal and the stage at every record.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.training.Records(("loss",), every=10).every
    10
    """

    quantities: tuple[str, ...] = ("loss", "strength")
    every: int = 1
    evaluation: int = EVALUATION
    log: Callable[[str], object] = silent
    writer: Writer | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "quantities", tuple(self.quantities))
        for name in self.quantities:
            one_of("record", name, RECORDS)
        count("every", self.every)
        count("evaluation", self.evaluation)
        if self.writer is not None and not callable(getattr(self.writer, "add_scalar", None)):
            raise InvalidSpec(f"writer must have add_scalar, got {type(self.writer).__name__}.", field="writer")


@dataclass(frozen=True)
class Execution:
    """How a training run is executed.

    Parameters
    ----------
    dtype : {"float64", "float32"}
    threads : int
        Of torch during the run.
    checkpoint : path, optional
        A file. If it holds a state of this run, training continues from there and ends as if it had never
        stopped.
    checkpoint_every : int
        Steps between two checkpoints.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.training.Execution(dtype="float32").threads
    1
    """

    dtype: str = "float64"
    threads: int = 1
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: int = 1000

    def __post_init__(self) -> None:
        one_of("dtype", self.dtype, tuple(DTYPES))
        count("threads", self.threads)
        count("checkpoint_every", self.checkpoint_every)

    def save(self, state: dict[str, object], *, spec: str) -> None:
        """Write tensors, numbers and text to the checkpoint atomically; `spec` is the hash of the run."""
        assert self.checkpoint is not None
        content = BytesIO()
        torch.save({"spec": spec, **state}, content)
        with draft_of(self.checkpoint, sole=True) as draft:
            draft.write_bytes(FORMAT + sha256(content.getvalue()).digest() + content.getvalue())

    def load(self, *, spec: str) -> dict[str, Any] | None:
        """Read the state of the same run from the checkpoint; None if there is none."""
        source = None if self.checkpoint is None else Path(self.checkpoint)
        if source is None or not source.exists():
            return None
        content, begin = source.read_bytes() if source.is_file() else b"", len(FORMAT) + sha256().digest_size
        if not content.startswith(FORMAT):
            problem = "is not a checkpoint of this version"
        elif content[len(FORMAT) : begin] != sha256(content[begin:]).digest():
            problem = "is damaged"
        else:
            state: dict[str, Any] = torch.load(BytesIO(content[begin:]), weights_only=True)
            if state["spec"] == spec:
                return state
            problem = "is a checkpoint of another run"
        remedy = "Use another file, or delete this one to train afresh."
        raise SchemaMismatch(f"{source} {problem}. {remedy}", field="checkpoint")


@dataclass(frozen=True, eq=False, repr=False)
class TrainingRun(Trajectory):
    """The record of a training run, and the trained network.

    Attributes
    ----------
    dataset : Dataset
        The variables of every trajectory, nan if not recorded; ``batch_loss`` and ``goal`` on request; ``optimum`` over
        (stage, mode); ``stage`` at each time. Torch modules have no strengths.
    status : Status
        ``ok`` if the last stage reached its goal, ``not_within`` if a stage was given up, ``diverged`` if numbers
        stopped being finite (the last finite weights are kept).
    stage_steps : tuple of int
        Steps of each stage.
    network : LinearRNN, TwoLayer, Activated or None
        The trained network; None for a torch module.
    module : nn.Module
        The trained module. Files contain neither network nor module.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> inputs = np.random.default_rng(0).standard_normal((64, 5, 1))
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> run = lc.training.train((inputs, inputs.sum(axis=1)), network, lc.Training(0.02), steps=50)
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
        """Read a file that `save` wrote; refuse trajectories that are not training runs."""
        run = super().load(path, most_bytes=most_bytes)
        if "stage_steps" not in run.dataset.attrs:
            raise SchemaMismatch(f"{path} must hold a training run, got a trajectory by {run.provenance.kind}.")
        return run

    @property
    def status(self) -> Status:
        """How the run ended."""
        return Status[self.dataset.attrs["status"]]

    @property
    def stage_steps(self) -> tuple[int, ...]:
        """Steps of each stage."""
        return tuple(int(n) for n in np.atleast_1d(self.dataset.attrs["stage_steps"]))

    @property
    def steps(self) -> int:
        """Steps of all stages together."""
        return sum(self.stage_steps)

    def as_earlier(self) -> Earlier:
        """Return what a later training of the same task can learn from this one."""
        return Earlier(self.steps, float(self.dataset.attrs["learning_rate"]), self.status is Status.ok)

    def __repr__(self) -> str:
        names = str(self.dataset.attrs["stages"]).split(" | ")
        parts = " -> ".join(f"{name} ({steps})" for name, steps in zip(names, self.stage_steps, strict=False))
        ended = f"{plural(self.steps, 'step')}, {self.status.name}"
        return f"<TrainingRun by {self.dataset.attrs['optimizer']}: {parts}; {ended}>"


class History:
    """Records of a run, step by step."""

    def __init__(self, modes: int, record: tuple[str, ...]) -> None:
        self.modes, self.record = modes, record
        self.rows: dict[str, list[float | FloatArray]] = {
            key: [] for key in ("time", "stage", "loss", "batch_loss", "strength", "goal")
        }

    def add(self, time: int, stage: int, loss: float, batch_loss: float, strength: FloatArray, goal: float) -> None:
        """Add a record."""
        row: tuple[float | FloatArray, ...] = (time, stage, loss, batch_loss, strength, goal)
        for key, value in zip(self.rows, row, strict=True):
            self.rows[key].append(value)

    def arrays(self) -> dict[str, FloatArray]:
        """Return the records as arrays."""
        arrays = {key: np.asarray(rows, dtype=float) for key, rows in self.rows.items()}
        arrays["strength"] = arrays["strength"].reshape(len(self.rows["time"]), self.modes)
        return arrays

    def dataset(
        self, stages: list[str], optima: FloatArray, least: Sequence[float], attributes: dict[str, object]
    ) -> xr.Dataset:
        """Return the records as a Dataset; `least` is the least loss of each stage."""
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
    """Return the provenance of a run."""
    versions = {**Provenance("training").versions, "torch": str(torch.__version__)}
    return Provenance("training", (), digest, seed, versions)
