"""The study file of a learnability window: a cell, its training, its task and what to look at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationError, model_validator

from learncast.errors import InvalidSpec
from learncast.study.files import arrays_from, tables_from
from learncast.study.problems import located
from learncast.study.sections import Section
from learncast.study.tables import to_toml, without_none
from learncast.tasks.delays import multi_lag_trials
from learncast.validation import FloatArray, suggestion

OWN_KINDS = ("const-gate", "shared-gate", "diag-gate", "paper-gru", "paper-lstm")


class ModelSection(Section):
    """A built-in recurrent cell with a linear readout."""

    kind: Literal["const-gate", "shared-gate", "diag-gate", "paper-gru", "paper-lstm", "gru", "lstm", "rnn"] = "gru"
    hidden_size: int = Field(default=64, ge=1)
    layers: int | None = Field(default=None, ge=1)
    gate: float | None = Field(default=None, gt=0, lt=1)
    layer_norm: bool | None = None
    orthogonal: bool | None = None
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _keys_fit_the_kind(self) -> ModelSection:
        own = self.kind in OWN_KINDS
        foreign = ("layers",) if own else ("gate", "layer_norm", "orthogonal")
        for key in foreign:
            if getattr(self, key) is not None:
                kinds = "gru, lstm and rnn" if own else ", ".join(OWN_KINDS)
                raise ValueError(f"{key} is a key of {kinds}, not of {self.kind}")
        return self


class WindowTrainingSection(Section):
    """How the cell is trained before it is diagnosed."""

    optimiser: Literal["sgd", "adam", "adamw", "rmsprop"] = "adamw"
    learning_rate: float = Field(default=1e-3, gt=0)
    weight_decay: float | None = Field(default=None, ge=0)
    momentum: float | None = Field(default=None, ge=0, lt=1)
    steps: int = Field(default=200, ge=0)
    batch: int = Field(default=64, ge=1)
    clip: float | None = Field(default=1.0, gt=0)
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _momentum_fits(self) -> WindowTrainingSection:
        if self.momentum is not None and self.optimiser not in ("sgd", "rmsprop"):
            raise ValueError(f"momentum is a key of sgd and rmsprop, not of {self.optimiser}")
        if self.steps == 0 and self.optimiser != "sgd":
            raise ValueError(f"{self.optimiser} has no step sizes before its first step")
        return self


class WindowTaskSection(Section):
    """The multi-lag task, or recorded sequences."""

    steps: int = Field(default=256, ge=2)
    inputs: int = Field(default=16, ge=1)
    lags: list[Annotated[int, Field(ge=0)]] = Field(default=[8, 16, 32])
    coefficients: list[float] = Field(default=[0.6, 0.5, 0.4])
    noise_strength: float = Field(default=0.09, ge=0)
    sequences: int = Field(default=512, ge=1)
    seed: int = Field(default=0, ge=0)
    data: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> WindowTaskSection:
        extra = sorted(self.model_fields_set - {"data"})
        if self.data is not None and extra:
            raise ValueError(f"recorded data leave nothing to say about {', '.join(extra)}")
        return self


class WindowSection(Section):
    """What to diagnose."""

    lags: list[Annotated[int, Field(ge=1)]] | None = None
    sample_sizes: list[Annotated[int, Field(ge=1)]] | None = None
    sequences: int = Field(default=512, ge=16)
    method: Literal["sound", "paper"] = "sound"
    directions: int = Field(default=2, ge=1)
    nulls: int = Field(default=200, ge=19)
    threshold: float | None = Field(default=None, gt=0)
    order: Literal[0, 1] = 1
    exact: int = Field(default=0, ge=0)
    chunk: int | None = Field(default=None, ge=1)
    seed: int = Field(default=0, ge=0)


class WindowStudySection(Section):
    """The whole file."""

    name: str = "learnability window"
    model: ModelSection = ModelSection()
    training: WindowTrainingSection = WindowTrainingSection()
    task: WindowTaskSection = WindowTaskSection()
    window: WindowSection = WindowSection()


_SECTIONS: dict[str, type[Section]] = {
    "model": ModelSection,
    "training": WindowTrainingSection,
    "task": WindowTaskSection,
    "window": WindowSection,
}


@dataclass(frozen=True, eq=False)
class WindowStudy:
    """A checked study file.

    Attributes
    ----------
    section : WindowStudySection
    folder : Path
        Where files it names are looked for.
    source : str
        What to call it in errors.
    """

    section: WindowStudySection
    folder: Path
    source: str

    @classmethod
    def load(cls, path: str | Path) -> WindowStudy:
        """Read and check a study file."""
        source = Path(path)
        raw = tables_from(source, why="there is nothing to diagnose")
        return cls.from_dict(raw, folder=source.parent, source=str(source))

    @classmethod
    def from_dict(cls, raw: dict[str, Any], *, folder: Path, source: str) -> WindowStudy:
        """Check a study given as a dictionary."""
        try:
            return cls(WindowStudySection.model_validate(raw), folder, source)
        except ValidationError as error:
            raise _first_problem(error, source) from error

    @property
    def name(self) -> str:
        """What it is called."""
        return self.section.name

    def settings(self) -> dict[str, dict[str, Any]]:
        """Keywords of the model, its optimiser and its training."""
        training = self.section.training
        optimizer = {"kind": training.optimiser, "learning_rate": training.learning_rate}
        optimizer |= without_none({"weight_decay": training.weight_decay, "momentum": training.momentum})
        return {
            "model": without_none(self.section.model.model_dump()),
            "optimizer": optimizer,
            "training": {key: getattr(training, key) for key in ("steps", "batch", "clip", "seed")},
        }

    def options(self) -> dict[str, Any]:
        """Keywords of the diagnosis."""
        return self.section.window.model_dump(exclude={"sequences"})

    def sequences(self) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
        """Inputs and targets to train on, and others to diagnose on."""
        task = self.section.task
        with located(self.source, "task"):
            if task.data is not None:
                return self._recorded(self.folder / task.data)
            keys = {"steps", "lags", "coefficients", "noise_strength"}
            keywords: dict[str, Any] = {**task.model_dump(include=keys), "direction": task.inputs}
            rngs = np.random.default_rng(task.seed).spawn(2)
            train, diagnose = task.sequences, self.section.window.sequences
            return multi_lag_trials(train, rngs[0], **keywords), multi_lag_trials(diagnose, rngs[1], **keywords)

    def _recorded(self, path: Path) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
        inputs, targets = sequences_from_file(path)
        number = self.section.window.sequences
        if inputs.ndim != 3 or targets.shape[:2] != inputs.shape[:2] or targets.ndim != 3:
            raise InvalidSpec(
                required=f"{path} must hold inputs and targets of shape (sequences, steps, channels)",
                got=f"shapes {inputs.shape} and {targets.shape}",
                why="the readout answers at every step",
                remedy="add the missing axis",
            )
        if number >= len(inputs):
            raise InvalidSpec(
                required=f"{path} must hold more than the {number} sequences that are diagnosed",
                got=f"{len(inputs)}",
                why="the model is trained on the others",
                remedy="lower sequences in [window], or record more",
            )
        return (inputs[:-number], targets[:-number]), (inputs[-number:], targets[-number:])

    def resolved(self) -> str:
        """The study as TOML with every default written out."""
        tables = self.section.model_dump(mode="json")
        if self.section.task.data is not None:
            tables["task"] = {"data": str((self.folder / self.section.task.data).resolve())}
        return to_toml(without_none(tables))


def sequences_from_file(path: Path) -> tuple[FloatArray, FloatArray]:
    """Inputs and targets from an .npz file."""
    arrays = arrays_from(path, "data")
    if not {"inputs", "targets"} <= arrays.keys():
        raise InvalidSpec(
            required=f"{path} must hold inputs and targets",
            got=f"arrays {', '.join(sorted(arrays)) or 'none'}",
            why="a model is diagnosed on both",
            remedy="save them with np.savez(file, inputs=..., targets=...)",
        )
    return arrays["inputs"], arrays["targets"]


def _first_problem(error: ValidationError, source: str) -> InvalidSpec:
    """Turn pydantic's first complaint into one sentence with file, key and reason."""
    problems = error.errors(include_url=False)
    problem = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    words = [str(part) for part in problem["loc"]]
    key, got = ".".join(words) or "the file", repr(problem.get("input"))[:60]
    if problem["type"] == "extra_forbidden":
        section = WindowStudySection if len(words) == 1 else _SECTIONS[words[0]]
        known = tuple(section.model_fields)
        return InvalidSpec(
            required=f"{source}: {key} must be a known key",
            got=f"{words[-1]} = {got}",
            why="a misspelt key would be ignored silently",
            remedy=suggestion(words[-1], known) or f"use one of {', '.join(known)}",
        )
    reason = str(problem["msg"]).removeprefix("Value error, ")
    choices = tuple(str(problem.get("ctx", {}).get("expected", "")).replace("'", "").replace(" or ", ", ").split(", "))
    hint = suggestion(str(problem.get("input")), choices) if problem["type"] == "literal_error" else ""
    return InvalidSpec(
        required=f"{source}: {key} must be valid",
        got=got,
        why=reason[:1].lower() + reason[1:],
        remedy=hint or f"correct {key}",
    )
