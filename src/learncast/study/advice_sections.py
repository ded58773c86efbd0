"""Tables of the study file of advice."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from learncast.study.sections import NamedSection, TaskTable
from learncast.study.study_file import Section, check_kind


class TrainedModelSection(Section):
    """A recurrent layer with a linear readout."""

    kind: Literal["gru", "lstm", "rnn", "rate", "minimal_gru", "lru"] = "gru"
    """One of torch's cells, the leaky rate network, the minimal GRU or the linear recurrent unit."""
    hidden_size: int = Field(default=64, ge=1)
    """Number of hidden units."""
    outputs: int | None = Field(default=None, ge=1)
    """Number of outputs of the readout; that of the targets by default."""
    layers: int | None = Field(default=None, ge=1)
    """Number of layers of torch's cells."""
    nonlinearity: str | None = None
    """Activation function."""
    alpha: float | None = Field(default=None, gt=0, le=1)
    """Leak of a rate network: h <- (1 - alpha) h + alpha f(W h + U x + b)."""
    recurrence: Literal["full", "low_rank", "dale"] | None = None
    """Structure of the recurrent matrix of a rate network."""
    rank: int | None = Field(default=None, ge=1)
    """Rank of a low-rank recurrence."""
    excitatory: float | None = Field(default=None, ge=0, le=1)
    """Fraction of excitatory units under Dale's law."""
    gain: float | None = Field(default=None, gt=0)
    """Scale of the initial recurrent weights; at 1 activity neither decays nor explodes."""
    gate: float | None = Field(default=None, gt=0, lt=1)
    """Initial value of the gates."""
    seed: int = Field(default=0, ge=0)
    """Seed of the weights."""

    @model_validator(mode="after")
    def _keys_fit_the_kind(self) -> TrainedModelSection:
        check_kind(self, dict.fromkeys(("alpha", "recurrence", "rank", "excitatory", "gain"), ("rate",)))
        own = {"layers": ("gru", "lstm", "rnn"), "nonlinearity": ("rnn", "rate"), "gate": ("minimal_gru",)}
        check_kind(self, own)
        return self


class UserTrainingSection(Section):
    """How the model is trained."""

    optimizer: Literal["sgd", "momentum", "adam", "adamw", "rmsprop"] = "adam"
    """Optimiser."""
    learning_rate: float = Field(gt=0)
    """Learning rate."""
    batch: int = Field(default=64, ge=1)
    """Trials of a step."""
    loss: Literal["half_squared_error", "mean_squared_error", "cross_entropy"] = "half_squared_error"
    """Loss function."""
    clip: float | None = Field(default=None, gt=0)
    """Largest norm of a gradient."""
    weight_decay: float | None = Field(default=None, ge=0)
    """Weight decay; the optimiser's default unless given."""
    reset_optimizer: bool = True
    """Reset the optimiser at every stage."""
    seed: int = Field(default=0, ge=0)
    """Seed of the batches."""


class GoalSection(Section):
    """When the target counts as learned: by correct decisions, by a loss, or by a fraction of the loss."""

    decisions: float | None = Field(default=None, gt=0, le=1)
    """Fraction of correct decisions on held-out trials."""
    loss: float | None = Field(default=None, gt=0)
    """Loss on held-out trials."""
    explained: float | None = Field(default=None, ge=0, le=1)
    """Share of the explainable variance that is learned."""
    steps: list[int] | None = None
    """Time steps of the decisions; all with a target by default."""
    outputs: list[int] | None = None
    """Outputs among which the decision is made."""
    ignore: int | None = Field(default=None, ge=0)
    """Label of steps without a decision, such as fixation."""

    @model_validator(mode="after")
    def _one_goal(self) -> GoalSection:
        if sum(value is not None for value in (self.decisions, self.loss, self.explained)) != 1:
            raise ValueError("a goal needs exactly one of decisions, loss and explained")
        for key in ("steps", "outputs", "ignore"):
            if getattr(self, key) is not None and self.decisions is None:
                raise ValueError(f"{key} needs decisions, a goal for classification")
        return self


class EnvironmentSection(NamedSection):
    """Trials of an environment."""

    environment: str
    """Id of the environment, such as neurogym's."""
    options: dict[str, object] = Field(default={})
    """Keyword arguments of the environment."""


def _trial_section(value: object) -> object:
    return EnvironmentSection.model_validate(value) if isinstance(value, dict) and "environment" in value else value


TrialSection = Annotated[EnvironmentSection | TaskTable, BeforeValidator(_trial_section)]


class AdviceStudySection(Section):
    """The study file of advice."""

    name: str = "advice"
    """Name of the study."""
    model: TrainedModelSection = TrainedModelSection()
    """The model."""
    training: UserTrainingSection
    """How it is trained."""
    goal: GoalSection = GoalSection(explained=0.95)
    """When the target counts as learned."""
    target: TrialSection
    """The task to be learned in the end."""
    candidates: list[TrialSection] = Field(default=[])
    """Easier tasks, for a target that stalls or to be trained first."""
