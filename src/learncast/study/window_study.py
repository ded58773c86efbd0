"""The study file of a learnability window: a cell, its training, its task and what to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from learncast.errors import InvalidSpec
from learncast.learnability.question import grouped
from learncast.study.study_file import Section, StudyFile, arrays_named, located
from learncast.tasks.delays import multi_lag_trials
from learncast.validation import FloatArray

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

    optimizer: Literal["sgd", "adam", "adamw", "rmsprop"] = Field(default="adamw")
    learning_rate: float = Field(default=1e-3, gt=0)
    weight_decay: float | None = Field(default=None, ge=0)
    momentum: float | None = Field(default=None, ge=0, lt=1)
    steps: int = Field(default=200, ge=0)
    batch: int = Field(default=64, ge=1)
    clip: float | None = Field(default=1.0, gt=0)
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _momentum_fits(self) -> WindowTrainingSection:
        if self.momentum is not None and self.optimizer not in ("sgd", "rmsprop"):
            raise ValueError(f"momentum is a key of sgd and rmsprop, not of {self.optimizer}")
        if self.steps == 0 and self.optimizer != "sgd":
            raise ValueError(f"{self.optimizer} has no step sizes before its first step")
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


class WindowStudy(StudyFile[WindowStudySection]):
    """The study file of a learnability window."""

    sections, absence = WindowStudySection, "there is nothing to diagnose"

    @property
    def name(self) -> str:
        """What it is called."""
        return self.section.name

    def settings(self) -> dict[str, dict[str, Any]]:
        """Keywords of the model, its optimiser and its training."""
        training = self.section.training
        own = training.model_dump(include={"learning_rate", "weight_decay", "momentum"}, exclude_none=True)
        return {
            "model": self.section.model.model_dump(exclude_none=True),
            "optimizer": {"kind": training.optimizer, **own},
            "training": {key: getattr(training, key) for key in ("steps", "batch", "clip", "seed")},
        }

    def question(self) -> dict[str, Any]:
        """What is asked of the diagnosis: the three objects of `learncast.learnability.window` by keyword."""
        return grouped(self.section.window.model_dump(exclude={"sequences"}))

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

    def _tables(self) -> dict[str, Any]:
        tables = super()._tables()
        if self.section.task.data is not None:
            tables["task"] = {"data": self.section.task.data}
        return tables


def sequences_from_file(path: Path) -> list[FloatArray]:
    """Inputs and targets from an .npz file."""
    remedy = "save them with np.savez(file, inputs=..., targets=...)"
    return arrays_named(path, "data", ("inputs", "targets"), why="a model is diagnosed on both", remedy=remedy)
