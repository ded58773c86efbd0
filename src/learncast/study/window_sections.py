"""Tables of the study file of a learnability window."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from learncast.study.study_file import Section, check_kind

OWN_KINDS = ("const-gate", "shared-gate", "diag-gate", "paper-gru", "paper-lstm")


class ModelSection(Section):
    """A built-in recurrent cell with a linear readout."""

    kind: Literal["const-gate", "shared-gate", "diag-gate", "paper-gru", "paper-lstm", "gru", "lstm", "rnn"] = "gru"
    """A gated cell of the paper, or one of torch's cells."""
    hidden_size: int = Field(default=64, ge=1)
    """Number of hidden units."""
    layers: int | None = Field(default=None, ge=1)
    """Number of layers of torch's cells."""
    gate: float | None = Field(default=None, gt=0, lt=1)
    """Value of the constant gate, or initial value of the gates."""
    layer_norm: bool | None = None
    """Layer normalisation of the paper's cells."""
    orthogonal: bool | None = None
    """Orthogonal initial recurrent weights."""
    seed: int = Field(default=0, ge=0)
    """Seed of the weights."""

    @model_validator(mode="after")
    def _keys_fit_the_kind(self) -> ModelSection:
        check_kind(self, {"layers": ("gru", "lstm", "rnn")})
        check_kind(self, dict.fromkeys(("gate", "layer_norm", "orthogonal"), OWN_KINDS))
        return self


class WindowTrainingSection(Section):
    """Training of the cell before it is diagnosed."""

    optimizer: Literal["sgd", "adam", "adamw", "rmsprop"] = Field(default="adamw")
    """Optimiser of torch."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Learning rate."""
    weight_decay: float | None = Field(default=None, ge=0)
    """Weight decay; the optimiser's default unless given."""
    momentum: float | None = Field(default=None, ge=0, lt=1)
    """Momentum of sgd and rmsprop."""
    steps: int = Field(default=200, ge=0)
    """Gradient steps before the model is diagnosed."""
    batch: int = Field(default=64, ge=1)
    """Sequences of a step."""
    clip: float | None = Field(default=1.0, gt=0)
    """Largest norm of a gradient."""
    seed: int = Field(default=0, ge=0)
    """Seed of the batches."""

    @model_validator(mode="after")
    def _keys_fit_the_optimizer(self) -> WindowTrainingSection:
        if self.momentum is not None and self.optimizer not in ("sgd", "rmsprop"):
            raise ValueError(f"momentum is a key of sgd and rmsprop, not of {self.optimizer}")
        if self.steps == 0 and self.optimizer != "sgd":
            raise ValueError(f"{self.optimizer} has no step sizes before its first step; use at least 1 step")
        return self


class WindowTaskSection(Section):
    """The multi-lag task, or recorded sequences."""

    steps: int = Field(default=256, ge=2)
    """Length of a sequence, in time steps."""
    inputs: int = Field(default=16, ge=1)
    """Number of input channels."""
    lags: list[Annotated[int, Field(ge=0)]] = Field(default=[8, 16, 32])
    """Lags of the inputs that the target depends on, in time steps."""
    coefficients: list[float] = Field(default=[0.6, 0.5, 0.4])
    """Weight of each lag."""
    noise_strength: float = Field(default=0.09, ge=0)
    """Variance of the noise of the target."""
    sequences: int = Field(default=512, ge=1)
    """Number of training sequences."""
    seed: int = Field(default=0, ge=0)
    """Seed of the sequences."""
    data: str | None = None
    """An .npz file with inputs and targets (sequences, steps, channels) instead."""
    labels: bool | None = None
    """Whether integer targets of the file are labels (true) or numbers (false)."""

    @model_validator(mode="after")
    def _one_source(self) -> WindowTaskSection:
        extra = sorted(self.model_fields_set - {"data", "labels"})
        if self.data is not None and extra:
            raise ValueError(f"data cannot be combined with {', '.join(extra)}")
        return self


class WindowSection(Section):
    """What is diagnosed."""

    lags: list[Annotated[int, Field(ge=1)]] | None = None
    """Lags to diagnose, in time steps; 32 lags up to half the sequence by default."""
    sample_sizes: list[Annotated[int, Field(ge=1)]] | None = None
    """Numbers of sequences N for which the window is computed."""
    sequences: int = Field(default=512, ge=16)
    """Number of held-out sequences for the diagnosis."""
    method: Literal["sound", "paper"] = "sound"
    """sound: test against random sign flips; paper: the rule of the paper."""
    directions: int = Field(default=2, ge=1)
    """Number of random directions on which gradients are projected."""
    nulls: int = Field(default=200, ge=19)
    """Number of random sign flips."""
    threshold: float | None = Field(default=None, gt=0)
    """Detection threshold; derived from the sign flips by default."""
    order: Literal[0, 1] = 1
    """Order of the transport: 0 gates only, 1 with one factor of the recurrent weights."""
    exact: int = Field(default=0, ge=0)
    """Number of sequences on which the transport is also computed exactly."""
    control: bool = False
    """Diagnose again with the targets of other sequences, to find out which lags are due to the task."""
    chunk: int | None = Field(default=None, ge=1)
    """Sequences processed at a time."""
    seed: int = Field(default=0, ge=0)
    """Seed of directions and sign flips."""


class WindowStudySection(Section):
    """The study file of a learnability window."""

    name: str = "learnability window"
    """Name of the study."""
    model: ModelSection = ModelSection()
    """The cell."""
    training: WindowTrainingSection = WindowTrainingSection()
    """How it is trained before it is diagnosed."""
    task: WindowTaskSection = WindowTaskSection()
    """What it is trained on."""
    window: WindowSection = WindowSection()
    """What is diagnosed."""
