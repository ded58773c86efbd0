"""The sections of study files: their keys, and what these may say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from learncast._core.errors import suggestion
from learncast.procedure.goals import GOALS, Goal
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
    """A linear RNN: h <- W h + A x, answer C h."""
    hidden_size: int = Field(default=128, ge=1)
    """Hidden units."""
    recurrence: PerChannel | Literal["random"] = 0.96
    """What every unit keeps of itself from step to step; one number, one for each input channel, or "random" (a whole
    matrix, drawn)."""
    initial: PerChannel | Literal["random"] = 0.01
    """Weights before training: the strength of an aligned start (one number or one for each mode), or "random"."""
    output_initial: PerChannel | None = None
    """Output weights of an aligned start where they differ from the input weights."""
    scale: Annotated[float, Field(gt=0)] | Literal["torch"] | None = None
    """Standard deviation of a random start's weights, or "torch" for torch's own initialisation."""
    seed: int | None = Field(default=None, ge=0)
    """Of a random start."""
    activation: Literal["linear", "relu", "tanh"] = "linear"
    """What units do to their input; relu and tanh are forecast through measured responses."""
    weights: str | None = None
    """A .npz or .safetensors file with the weights before training, beside the study."""

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
    """A two-layer linear network: answer = second x first x input."""
    hidden_size: int = Field(default=16, ge=1)
    """Hidden units."""
    activation: Literal["linear", "relu", "tanh"] = "linear"
    """What hidden units do to their input."""
    start: Literal["balanced", "random"] = "balanced"
    """balanced: both layers of one strength; random: drawn apart from each other."""
    scale: float = Field(default=0.01, gt=0)
    """Standard deviation of the drawn weights."""
    imbalance: float = 0.0
    """How much the second layer is stronger than the first: lambda in W2^T W2 - W1 W1^T = lambda I."""
    seed: int = Field(default=0, ge=0)
    """Of the drawn weights."""
    weights: str | None = None
    """A .npz or .safetensors file with the weights before training, beside the study."""


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
    """Step size of gradient descent on half the mean squared error; 1 / steps."""
    batch: int | None = Field(default=None, ge=1)
    """Trials of a step; all of them where it is left out."""
    accuracy: float | None = Field(default=None, ge=0, le=1)
    """Goal: every mode within 1 - accuracy of its optimum; 0.99 unless another goal is given."""
    explained: float | None = Field(default=None, ge=0, le=1)
    """Goal: share of the explainable variance that is learned."""
    loss: float | None = Field(default=None, gt=0)
    """Goal: half the mean squared error."""
    r2: float | None = Field(default=None, ge=0, le=1)
    """Goal: R², one minus the loss over the loss of answering zero."""
    max_stages: int = Field(default=2, ge=1, le=8)
    """Most stages of a plan, the target among them."""
    switch_cost: float = Field(default=0.0, ge=0)
    """What a change of task costs, in steps."""
    learn: list[Literal["input", "recurrent", "output", "first", "second"]] | None = None
    """Weights that learn; input and output (or first and second) where it is left out."""
    horizons: list[Annotated[int, Field(ge=1)]] = Field(default=[])
    """Lengths of longer trials on which a learned recurrence is judged, in steps."""

    @model_validator(mode="before")
    @classmethod
    def _one_goal(cls, given: Any) -> Any:
        """Allow one goal; the default is an accuracy of 0.99."""
        if not isinstance(given, dict):
            return given
        goals = [key for key in GOALS if given.get(key) is not None]
        if len(goals) > 1:
            raise ValueError(f"give one of {', '.join(GOALS)}, got {' and '.join(goals)}")
        return given if goals else {**given, "accuracy": 0.99}

    @property
    def goal_key(self) -> str:
        """Key of the goal."""
        return next(key for key in GOALS if getattr(self, key) is not None)

    @property
    def goal_object(self) -> Goal:
        """When a task counts as learned."""
        return GOALS[self.goal_key](getattr(self, self.goal_key))


#: What a plan is told of a task, beside the task itself.
RULES = ("cost", "least_accuracy", "most_accuracy", "most_excess_loss")


class NamedSection(Section):
    """What every task shares: its name, and what a plan is told of it."""

    name: str | None = None
    """What to call the task."""
    cost: float = Field(default=1.0, gt=0)
    """What a step on it costs."""
    least_accuracy: float | None = Field(default=None, ge=0, le=1)
    """Accuracy that it must be trained to at least, if it is trained."""
    most_accuracy: float | None = Field(default=None, ge=0, le=1)
    """Accuracy that it may be trained to at most."""
    most_excess_loss: float | None = Field(default=None, ge=0)
    """Loss above its best that the target may leave it with: how much may be forgotten."""


class FamilySection(NamedSection):
    """What every family of tasks shares."""

    steps: int = Field(default=50, ge=1)
    """Length of a trial, in time steps."""
    mixing: list[list[float]] | None = None
    """How integrated channels add up to outputs, (outputs, inputs); one for each channel where it is left out."""
    targets: Annotated[Literal["end", "every_step"], BeforeValidator(underscored)] = "end"
    """When an answer is asked for."""


class IntegrationSection(FamilySection):
    """A task of the integration family."""

    family: Literal["integration"]
    """Sum up white noise."""
    input_strength: PerChannel = 1.0
    """Variance of the input; one number, or one for each channel."""
    target_strength: PerChannel = 1.0
    """Covariance of the target with the input of each step."""


class LeakyIntegrationSection(FamilySection):
    """A task of the leaky-integration family."""

    family: Annotated[Literal["leaky_integration"], BeforeValidator(underscored)]
    """Sum up noise, correlated in time, and forget it at a timescale."""
    timescale: PerChannel = 10.0
    """Time after which the past counts a factor e less, in time steps."""
    correlation: PerChannel = 0.0
    """K of x_t = K x_{t-1} + noise: what the input keeps of its last value."""
    noise_strength: PerChannel = 1.0
    """Variance of that noise."""
    gain: PerChannel = 1.0
    """Weight of the newest input in the target."""


class StaticSection(NamedSection):
    """A static task given by its correlations."""

    family: Literal["static"]
    """One step, given by its correlations."""
    cross_correlation: list[list[float]]
    """E[target input^T], (outputs, inputs)."""
    input_correlation: list[list[float]] | None = None
    """E[input input^T], (inputs, inputs); the identity where it is left out."""
    reversed: bool = False
    """Ask for the opposite sign."""


class HierarchySection(NamedSection):
    """A tree of items, possibly revised."""

    family: Literal["hierarchy"]
    """Items that are leaves of a tree, and their features."""
    depth: int = Field(default=3, ge=1, le=12)
    """Levels of the tree; 2^depth items."""
    form: Literal["signed", "membership"] = "signed"
    """signed: a feature is a branching, +1 on one side and -1 on the other; membership: a node, 1 for items below."""
    swap: tuple[int | tuple[int, int], int | tuple[int, int]] | None = None
    """Two items, or two nodes [level, number], that change places with all below them."""
    shuffle: list[int] | None = None
    """Which leaf each item sits on."""
    reversed: bool = False
    """Ask for the opposite sign."""


class SensorySection(NamedSection):
    """A sensory task: one of `learncast.tasks.sensory`, with its own parameters."""

    family: Literal["sensory"]
    """A task of learncast.tasks.sensory."""
    task: str
    """Its name."""
    steps: int = Field(default=10, ge=1)
    """Length of a trial, in time steps."""
    parameters: dict[str, float | list[float]] = Field(default={})
    """Its own parameters."""
    reversed: bool = False
    """Ask for the opposite sign."""


#: One name, or several.
_NAMES = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
Names = Annotated[list[str] | None, BeforeValidator(lambda v: [v] if isinstance(v, str) else v), WithJsonSchema(_NAMES)]


class DataSection(NamedSection):
    """A task recorded in a file: what its arrays or columns are called, and what is done to its trials."""

    data: str
    """A file of recorded trials beside the study: .npz, .npy, .safetensors, .mat, .h5, .nwb, .csv or .parquet."""
    centre: bool = False
    """Subtract the mean over trials at each step from inputs and targets."""
    scale: Literal["none", "channel"] = "none"
    """channel: divide each input channel by its root mean square."""
    reversed: bool = False
    """Ask for the opposite sign."""
    trial: str | None = None
    """A table's column with the number of the trial."""
    step: str | None = None
    """A table's column with the time step."""
    inputs: Names = None
    """Name of the array, or names of the columns, of the inputs."""
    targets: Names = None
    """Name of the array, or names of the columns, of the targets."""
    labels: str | None = None
    """Name of the array or column of class labels, which become one-hot targets."""
    classes: Annotated[int, Field(ge=1)] | list[int | str] | None = None
    """Number of classes, or all of them, where some do not occur."""
    mask: str | None = None
    """Name of the array or column that is 1 where a target counts."""
    lengths: str | None = None
    """Name of the array with the length of each trial, in time steps."""
    at: Annotated[Literal["end", "every_step"] | None, BeforeValidator(underscored)] = None
    """When a table's targets are asked for."""
    most_bytes: int | None = Field(default=None, ge=1)
    """Memory that one array, or the table, may take, in bytes."""


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
    """Gradient steps; until the flow rests where it is left out."""
    task: Chosen
    """Its keys stand in the same table."""


def _stage_section(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError("a stage is a table with a task's keys and, if it should not converge, train_steps")
    return {"train_steps": value.get("train_steps"), "task": {k: v for k, v in value.items() if k != "train_steps"}}


class StudySection(Section):
    """The whole file."""

    absence: ClassVar[str] = "there is nothing to forecast"

    name: str = "study"
    """What to call the study."""
    network: Annotated[NetworkSection, BeforeValidator(_network_section)] = RecurrentSection()
    """The network before training."""
    training: TrainingSection
    """How it is trained."""
    target: Chosen | None = None
    """What must be learned in the end."""
    candidates: list[Chosen] = Field(default=[])
    """Tasks that could be trained before the target."""
    sequence: list[Annotated[StageSection, BeforeValidator(_stage_section)]] = Field(default=[])
    """Tasks learned one after another, for `learncast forget`."""

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
    """Gated cells of the paper, or torch's own."""
    hidden_size: int = Field(default=64, ge=1)
    """Hidden units."""
    layers: int | None = Field(default=None, ge=1)
    """Layers of torch's cells."""
    gate: float | None = Field(default=None, gt=0, lt=1)
    """Of the constant gate, or where gates start."""
    layer_norm: bool | None = None
    """Normalise the paper's cells."""
    orthogonal: bool | None = None
    """Start from orthogonal recurrent weights."""
    seed: int = Field(default=0, ge=0)
    """Of the weights."""

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
    """Which of torch's optimisers."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Step size; 1 / steps."""
    weight_decay: float | None = Field(default=None, ge=0)
    """The optimiser's own where it is left out."""
    momentum: float | None = Field(default=None, ge=0, lt=1)
    """Of sgd and rmsprop."""
    steps: int = Field(default=200, ge=0)
    """Gradient steps before the model is diagnosed."""
    batch: int = Field(default=64, ge=1)
    """Sequences of a step."""
    clip: float | None = Field(default=1.0, gt=0)
    """Largest norm of a gradient."""
    seed: int = Field(default=0, ge=0)
    """Of the batches."""

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
    """Length of a sequence, in time steps."""
    inputs: int = Field(default=16, ge=1)
    """Channels."""
    lags: list[Annotated[int, Field(ge=0)]] = Field(default=[8, 16, 32])
    """How far back the target looks, in time steps."""
    coefficients: list[float] = Field(default=[0.6, 0.5, 0.4])
    """Weight of each lag."""
    noise_strength: float = Field(default=0.09, ge=0)
    """Variance of what is added to the target."""
    sequences: int = Field(default=512, ge=1)
    """Drawn to train on."""
    seed: int = Field(default=0, ge=0)
    """Of the sequences."""
    data: str | None = None
    """An .npz file with inputs and targets (sequences, steps, channels) instead."""

    @model_validator(mode="after")
    def _one_source(self) -> WindowTaskSection:
        extra = sorted(self.model_fields_set - {"data"})
        if self.data is not None and extra:
            raise ValueError(f"recorded data leave nothing to say about {', '.join(extra)}")
        return self


class WindowSection(Section):
    """What to diagnose."""

    lags: list[Annotated[int, Field(ge=1)]] | None = None
    """How far back to look, in time steps; 32 lags up to half the sequence where it is left out."""
    sample_sizes: list[Annotated[int, Field(ge=1)]] | None = None
    """Numbers of sequences N for which a window is told."""
    sequences: int = Field(default=512, ge=16)
    """Kept apart to diagnose on."""
    method: Literal["sound", "paper"] = "sound"
    """sound: judged against flipped signs; paper: by the printed rule."""
    directions: int = Field(default=2, ge=1)
    """Random directions in which gradients are looked at."""
    nulls: int = Field(default=200, ge=19)
    """Flips of signs."""
    threshold: float | None = Field(default=None, gt=0)
    """Above which a signal counts; found from the flips where it is left out."""
    order: Literal[0, 1] = 1
    """Of the transport: 0 gates alone, 1 with one visit to the recurrent weights."""
    exact: int = Field(default=0, ge=0)
    """Sequences on which the transport is also computed exactly."""
    chunk: int | None = Field(default=None, ge=1)
    """Sequences at a time."""
    seed: int = Field(default=0, ge=0)
    """Of directions and flips."""


class WindowStudySection(Section):
    """The whole file of a learnability window."""

    absence: ClassVar[str] = "there is nothing to diagnose"

    name: str = "learnability window"
    """What to call the study."""
    model: ModelSection = ModelSection()
    """The cell."""
    training: WindowTrainingSection = WindowTrainingSection()
    """How it is trained before it is diagnosed."""
    task: WindowTaskSection = WindowTaskSection()
    """What it is trained on."""
    window: WindowSection = WindowSection()
    """What to diagnose."""


class SweepSection(Section):
    """The [sweep] table of a study that is asked over a grid."""

    command: Literal["forecast", "plan", "check", "train", "window"]
    """What is asked of every cell."""
    grid: dict[str, Any]
    """What varies: keys of the study with their values, lists or ranges { first, last, count }."""
    seeds: int | None = Field(default=None, ge=1)
    """Repetitions of every cell."""
    zips: list[list[str]] = Field(default=[])
    """Keys that vary together."""
    conditions: list[str] = Field(default=[])
    """What cells must meet, in words of their keys."""
    options: dict[str, Any] = Field(default={})
    """Of the command."""
