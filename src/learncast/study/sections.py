"""The sections of study files: their keys, and what these may say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from learncast.errors import suggestion
from learncast.study.study_file import Section

PerChannel = float | list[float]


def underscored(value: Any) -> Any:
    """A word with underscores for its hyphens."""
    return value.replace("-", "_") if isinstance(value, str) else repr(value)


def _section_of(kinds: dict[str, type[Section]], word: Any, problem: str) -> type[Section]:
    """The section that a word of the table chooses."""
    if not isinstance(word, str) or word not in kinds:
        hint = suggestion(str(word), tuple(kinds))
        raise ValueError(problem + (f"; {hint}" if hint else ""))
    return kinds[word]


class RecurrentSection(Section):
    """A linear RNN."""

    kind: Literal["linear-rnn"] = "linear-rnn"
    hidden_size: int = Field(default=128, ge=1)
    recurrence: PerChannel | Literal["random"] = 0.96
    initial: PerChannel | Literal["random"] = 0.01
    output_initial: PerChannel | None = None
    scale: Annotated[float, Field(gt=0)] | Literal["torch"] | None = None
    seed: int | None = Field(default=None, ge=0)
    activation: Literal["linear", "relu", "tanh"] = "linear"
    weights: str | None = None

    @model_validator(mode="after")
    def _random_keys(self) -> RecurrentSection:
        if self.initial == "random" and self.output_initial is not None:
            raise ValueError("output_initial belongs to an aligned start; a random one has a scale")
        for key in ("scale", "seed"):
            if self.initial != "random" and getattr(self, key) is not None:
                raise ValueError(f'{key} belongs to initial = "random"')
        if self.recurrence == "random" and self.initial != "random":
            raise ValueError('recurrence = "random" belongs to initial = "random"')
        return self


class TwoLayerSection(Section):
    """A two-layer linear network, drawn balanced or independent."""

    kind: Literal["two-layer"]
    hidden_size: int = Field(default=16, ge=1)
    activation: Literal["linear", "relu", "tanh"] = "linear"
    start: Literal["balanced", "random"] = "balanced"
    scale: float = Field(default=0.01, gt=0)
    imbalance: float = 0.0
    seed: int = Field(default=0, ge=0)
    weights: str | None = None


NetworkSection = RecurrentSection | TwoLayerSection
NETWORKS: dict[str, type[Section]] = {"linear-rnn": RecurrentSection, "two-layer": TwoLayerSection}


def _network_section(value: Any) -> Any:
    if isinstance(value, Section):
        return value
    if not isinstance(value, dict):
        raise ValueError("a network is a table with a kind and its keys")
    kind = value.get("kind", "linear-rnn")
    return _section_of(NETWORKS, kind, f"kind must be one of {', '.join(NETWORKS)}, not {kind!r}").model_validate(value)


class TrainingSection(Section):
    """How it is trained."""

    learning_rate: float = Field(gt=0)
    batch: int | None = Field(default=None, ge=1)
    accuracy: float = Field(default=0.99, ge=0, le=1)
    max_stages: int = Field(default=2, ge=1, le=8)
    goal: Literal["modes", "loss"] | None = None
    switch_cost: float = Field(default=0.0, ge=0)
    learn: list[Literal["input", "recurrent", "output", "first", "second"]] | None = None
    horizons: list[Annotated[int, Field(ge=1)]] = Field(default=[])


#: What a plan is told of a task, beside the task itself.
RULES = ("cost", "least_accuracy", "most_accuracy", "most_excess_loss")


class NamedSection(Section):
    """What every task shares: its name, and what a plan is told of it."""

    name: str | None = None
    cost: float = Field(default=1.0, gt=0)
    least_accuracy: float | None = Field(default=None, ge=0, le=1)
    most_accuracy: float | None = Field(default=None, ge=0, le=1)
    most_excess_loss: float | None = Field(default=None, ge=0)


class FamilySection(NamedSection):
    """What every family of tasks shares."""

    steps: int = Field(default=50, ge=1)
    mixing: list[list[float]] | None = None
    targets: Annotated[Literal["end", "every_step"], BeforeValidator(underscored)] = "end"


class IntegrationSection(FamilySection):
    """A task of the integration family."""

    family: Literal["integration"]
    input_strength: PerChannel = 1.0
    target_strength: PerChannel = 1.0


class LeakyIntegrationSection(FamilySection):
    """A task of the leaky-integration family."""

    family: Annotated[Literal["leaky_integration"], BeforeValidator(underscored)]
    timescale: PerChannel = 10.0
    correlation: PerChannel = 0.0
    noise_strength: PerChannel = 1.0
    gain: PerChannel = 1.0


class StaticSection(NamedSection):
    """A static task given by its correlations."""

    family: Literal["static"]
    cross_correlation: list[list[float]]
    input_correlation: list[list[float]] | None = None
    reversed: bool = False


class HierarchySection(NamedSection):
    """A tree of items, possibly revised."""

    family: Literal["hierarchy"]
    depth: int = Field(default=3, ge=1, le=12)
    form: Literal["signed", "membership"] = "signed"
    swap: tuple[int | tuple[int, int], int | tuple[int, int]] | None = None
    shuffle: list[int] | None = None
    reversed: bool = False


class SensorySection(NamedSection):
    """A sensory task: one of `learncast.tasks.sensory`, with its own parameters."""

    family: Literal["sensory"]
    task: str
    steps: int = Field(default=10, ge=1)
    parameters: dict[str, float | list[float]] = Field(default={})
    reversed: bool = False


#: One name, or several.
Names = Annotated[list[str] | None, BeforeValidator(lambda v: [v] if isinstance(v, str) else v)]


class DataSection(NamedSection):
    """A task recorded in a file: what its arrays or columns are called, and what is done to its trials."""

    data: str
    centre: bool = False
    scale: Literal["none", "channel"] = "none"
    reversed: bool = False
    trial: str | None = None
    step: str | None = None
    inputs: Names = None
    targets: Names = None
    labels: str | None = None
    classes: Annotated[int, Field(ge=1)] | list[int | str] | None = None
    mask: str | None = None
    lengths: str | None = None
    at: Annotated[Literal["end", "every_step"] | None, BeforeValidator(underscored)] = None
    most_bytes: int = Field(default=2**31, ge=1)


TaskSection = (
    IntegrationSection | LeakyIntegrationSection | StaticSection | HierarchySection | SensorySection | DataSection
)
TASKS: dict[str, type[Section]] = {
    "integration": IntegrationSection,
    "leaky_integration": LeakyIntegrationSection,
    "static": StaticSection,
    "hierarchy": HierarchySection,
    "sensory": SensorySection,
}


def _task_section(value: Any) -> Any:
    """Choose the section by its own words, so that an error names one family's keys and not all families'."""
    if not isinstance(value, dict):
        raise ValueError("a task is a table with a family or a data file")
    if "data" in value:
        return DataSection.model_validate(value)
    families = f"{', '.join(TASKS)} (or give data = 'file.npz')"
    problem = f"family must be one of {families}, not {value.get('family')!r}"
    return _section_of(TASKS, underscored(value.get("family")), problem).model_validate(value)


Chosen = Annotated[TaskSection, BeforeValidator(_task_section)]


class StageSection(Section):
    """One stage of a sequence: a task, and how long it is trained."""

    train_steps: float | None = Field(default=None, ge=0)
    task: Chosen


def _stage_section(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError("a stage is a table with a task's keys and, if it should not converge, train_steps")
    return {"train_steps": value.get("train_steps"), "task": {k: v for k, v in value.items() if k != "train_steps"}}


class StudySection(Section):
    """The whole file."""

    absence: ClassVar[str] = "there is nothing to forecast"

    name: str = "study"
    network: Annotated[NetworkSection, BeforeValidator(_network_section)] = RecurrentSection()
    training: TrainingSection
    target: Chosen | None = None
    candidates: list[Chosen] = Field(default=[])
    sequence: list[Annotated[StageSection, BeforeValidator(_stage_section)]] = Field(default=[])

    @model_validator(mode="after")
    def _names_differ(self) -> StudySection:
        planned = [self.target, *self.candidates] if self.target else self.candidates
        for tasks, stage in ((planned, False), ([stage.task for stage in self.sequence], True)):
            names = [task_name(section, k, stage=stage) for k, section in enumerate(tasks)]
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"two tasks are called {name!r}; give each its own name")
        if self.target is None and not self.sequence:
            raise ValueError("a study needs a [target] (to forecast or plan for) or a [[sequence]] (to forget)")
        if self.candidates and self.target is None:
            raise ValueError("[[candidates]] need a [target]")
        self._check_rules()
        return self

    def _check_rules(self) -> None:
        """Rules of a plan stand where a plan looks for them."""
        if self.target is not None:
            for key in RULES[1:]:
                if getattr(self.target, key) is not None:
                    raise ValueError(f"{key} belongs to [[candidates]]; the target's accuracy stands in [training]")
        for stage in self.sequence:
            for key in RULES:
                if key in stage.task.model_fields_set:
                    raise ValueError(
                        f"{key} belongs to [[candidates]], not to a [[sequence]]: nothing is planned there"
                    )


def task_name(section: TaskSection, index: int, *, stage: bool = False) -> str:
    """What a task is called, by its place in the file where it has no name of its own."""
    if section.name is not None:
        return section.name
    if isinstance(section, DataSection):
        return Path(section.data).stem
    if stage:
        return f"task {index + 1}"
    return "target" if index == 0 else f"candidate {index}"


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
    """The whole file of a learnability window."""

    absence: ClassVar[str] = "there is nothing to diagnose"

    name: str = "learnability window"
    model: ModelSection = ModelSection()
    training: WindowTrainingSection = WindowTrainingSection()
    task: WindowTaskSection = WindowTaskSection()
    window: WindowSection = WindowSection()
