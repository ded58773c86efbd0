"""Tables of the study file: their keys, types and defaults."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from learncast.study.network_sections import NetworkSection, RecurrentSection, network_section, section_of
from learncast.study.study_file import GOAL_KEYS, Section

if TYPE_CHECKING:  # keys are checked before numpy loads
    from learncast.procedure.goals import Goal

PerChannel = float | list[float]


def underscored(value: object) -> str:
    """Return a word with underscores instead of hyphens."""
    return value.replace("-", "_") if isinstance(value, str) else repr(value)


class TrainingSection(Section):
    """Training by gradient descent, and the goal of a plan."""

    learning_rate: float | None = Field(default=None, gt=0)
    """Learning rate; half the largest safe rate by default."""
    optimizer: Literal["gd", "momentum", "adam", "adamw", "rmsprop"] = "gd"
    """Optimiser, with the defaults of torch; all but gd need full batches, and a learning rate."""
    loss_function: Literal["half_mse", "mse"] = "half_mse"
    """half_mse: half the squared error, summed over outputs and steps; mse: its mean, as torch.nn.MSELoss."""
    batch: int | None = Field(default=None, ge=1)
    """Trials of a step; all of them by default."""
    shuffle: bool = False
    """Whether batches of recorded trials are drawn in shuffled epochs, not independently of each other."""
    accuracy: float | None = Field(default=None, ge=0, le=1)
    """Goal: every mode within 1 - accuracy of its optimum; 0.99 for task families if no goal is given."""
    explained: float | None = Field(default=None, ge=0, le=1)
    """Goal: share of the explainable variance that is learned; 0.95 for recordings if no goal is given."""
    loss: float | None = Field(default=None, gt=0)
    """Goal: half the mean squared error."""
    r2: float | None = Field(default=None, ge=0, le=1)
    """Goal: R², one minus the loss over the loss of answering zero."""
    decisions: float | None = Field(default=None, ge=0, le=1)
    """Goal of forecasts of labelled trials: share of correct decisions on these trials."""
    max_stages: int = Field(default=2, ge=1, le=8)
    """Largest number of stages of a plan, the target included."""
    switch_cost: float = Field(default=0.0, ge=0)
    """Cost of a change of task, in steps."""
    learn: list[Annotated[str, Field(pattern=r"^(input|recurrent|output|first|second|layer\d+)$")]] | None = None
    """Trainable weights: of input, recurrent, output, of first, second, or of layer1, layer2, ...

    All but the recurrent weights by default.
    """
    horizons: list[Annotated[int, Field(ge=1)]] = Field(default=[])
    """Lengths of longer trials on which a learned recurrence is tested, in time steps."""

    @model_validator(mode="before")
    @classmethod
    def _one_goal(cls, given: object) -> object:
        """Allow one goal."""
        if isinstance(given, dict):
            goals = [key for key in GOAL_KEYS if given.get(key) is not None]
            if len(goals) > 1:
                raise ValueError(f"give one of {', '.join(GOAL_KEYS)}, got {' and '.join(goals)}")
        return given

    @property
    def goal_object(self) -> Goal | None:
        """When a task counts as learned; None for the default."""
        from learncast.procedure.goals import GOALS

        if self.decisions is not None:
            from learncast.training.goals import DecisionAccuracy

            return DecisionAccuracy(self.decisions, every=1)
        given = self.model_dump(include=set(GOALS), exclude_none=True)
        return next((GOALS[key](value) for key, value in given.items()), None)


#: Keys of a task that only a plan uses.
RULES = ("cost", "least_accuracy", "most_accuracy", "most_excess_loss")


class NamedSection(Section):
    """Keys of every task: its name and its rules in a plan."""

    name: str | None = None
    """Name of the task."""
    cost: float = Field(default=1.0, gt=0)
    """Cost of one step."""
    least_accuracy: float | None = Field(default=None, ge=0, le=1)
    """Smallest accuracy at which a plan may stop training the task."""
    most_accuracy: float | None = Field(default=None, ge=0, le=1)
    """Largest accuracy to which a plan may train the task."""
    most_excess_loss: float | None = Field(default=None, ge=0)
    """Largest loss above the best after training on the target: how much of the task may be forgotten."""


class FamilySection(NamedSection):
    """Keys of every task family."""

    steps: int = Field(default=50, ge=1)
    """Length of a trial, in time steps."""
    mixing: list[list[float]] | None = None
    """Output weights of the integrated channels, (outputs, inputs); one output for each channel by default."""
    targets: Annotated[Literal["end", "every_step"], BeforeValidator(underscored)] = "end"
    """Time steps with a target."""


class IntegrationSection(FamilySection):
    """A task of the integration family."""

    family: Literal["integration"]
    """Integrate white noise."""
    input_strength: PerChannel = 1.0
    """Variance of the input; one number, or one for each channel."""
    target_strength: PerChannel = 1.0
    """Covariance of the target with the input of each step."""


class LeakyIntegrationSection(FamilySection):
    """A task of the leaky-integration family."""

    family: Annotated[Literal["leaky_integration"], BeforeValidator(underscored)]
    """Integrate temporally correlated noise with a leak."""
    timescale: PerChannel = 10.0
    """Time constant of the leak, in time steps."""
    correlation: PerChannel = 0.0
    """K of the autoregressive input x_t = K x_{t-1} + noise."""
    noise_strength: PerChannel = 1.0
    """Variance of that noise."""
    gain: PerChannel = 1.0
    """Weight of the newest input in the target."""


class SignedSection(NamedSection):
    """Tasks whose targets may change sign."""

    reversed: bool = False
    """Negate the targets."""


class StaticSection(SignedSection):
    """A static task given by its correlations."""

    family: Literal["static"]
    """A task of one step, given by its correlations."""
    cross_correlation: list[list[float]]
    """E[target input^T], (outputs, inputs)."""
    input_correlation: list[list[float]] | None = None
    """E[input input^T], (inputs, inputs); the identity by default."""


class HierarchySection(SignedSection):
    """A tree of items, possibly revised."""

    family: Literal["hierarchy"]
    """Items that are the leaves of a tree, and their features."""
    depth: int = Field(default=3, ge=1, le=12)
    """Levels of the tree; 2^depth items."""
    form: Literal["signed", "membership"] = "signed"
    """signed: a feature is a branching, +1 on one side and -1 on the other; membership: a node, 1 for items below."""
    swap: tuple[int | tuple[int, int], int | tuple[int, int]] | None = None
    """Two items, or two nodes [level, number], that change places with everything below them."""
    shuffle: list[int] | None = None
    """Leaf of each item."""


class SensorySection(SignedSection):
    """A sensory task: one of `learncast.tasks.sensory` with its parameters."""

    family: Literal["sensory"]
    """A task of learncast.tasks.sensory."""
    task: str
    """Name of the task."""
    steps: int = Field(default=10, ge=1)
    """Length of a trial, in time steps."""
    parameters: dict[str, float | list[float]] = Field(default={})
    """Parameters of the task."""


#: One name, or several.
_NAMES = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
Names = Annotated[list[str] | None, BeforeValidator(lambda v: [v] if isinstance(v, str) else v), WithJsonSchema(_NAMES)]


class DataSection(SignedSection):
    """A task recorded in a file: names of its arrays or columns, and preprocessing of its trials."""

    data: str
    """A file of recorded trials, relative to the study file: .npz, .npy, .safetensors, .mat, .h5, .nwb, .nc, .csv,
    .tsv or .parquet."""
    centre: bool = False
    """Subtract the mean over trials at each step from inputs and targets."""
    scale: Literal["none", "channel"] = "none"
    """channel: divide each input channel by its root mean square."""
    trial: str | None = None
    """Column of a table with the trial number."""
    step: str | None = None
    """Column of a table with the time step."""
    inputs: Names = None
    """Name of the array, or names of the columns, of the inputs."""
    targets: Names = None
    """Name of the array, or names of the columns, of the targets."""
    labels: str | bool | None = None
    """Name of the array or column of class labels, which become one-hot targets; or whether integer targets are
    labels (true) or numbers (false)."""
    classes: Annotated[int, Field(ge=1)] | list[int | str] | None = None
    """Number of classes, or all labels, if some do not occur."""
    mask: str | None = None
    """Name of the array or column that is 1 at targets that count."""
    lengths: str | None = None
    """Name of the array with the length of each trial, in time steps."""
    at: Annotated[Literal["end", "every_step"] | None, BeforeValidator(underscored)] = None
    """Time steps of a table that have a target."""
    channel: str | None = None
    """Column of a tidy table with the name of the channel."""
    value: str | None = None
    """Column of a tidy table with the value."""
    axes: str | None = None
    """Order of the axes of plain arrays, e.g. "time trial channel"."""
    fill: Literal["zero", "hold", "drop"] | None = None
    """What is done with missing values: zero, the value of the step before, or the trial is left out."""
    bias: bool = False
    """Whether the network has biases: adds an input that is always 1."""
    events: str | None = None
    """Name of the array of event times in seconds, around which a continuous recording is cut into trials."""
    rate: float | None = Field(default=None, gt=0)
    """Samples per second of a continuous recording, or of trials with a bin_width."""
    window: tuple[float, float] | None = None
    """First and last time of a trial relative to its event, in seconds."""
    bin_width: float | None = Field(default=None, gt=0)
    """Seconds of a bin, over which samples are averaged."""
    most_bytes: int | None = Field(default=None, ge=1)
    """Memory limit of one array, or of the table, in bytes."""


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


def _task_section(value: object) -> object:
    """Select the section by its family, so that an error names the keys of one family only."""
    if not isinstance(value, dict):
        raise ValueError("a task must be a table with a family or a data file")
    if "data" in value:
        return DataSection.model_validate(value)
    problem = f"a task needs data or a family of {', '.join(TASKS)}"
    return section_of(TASKS, underscored(value.get("family")), problem).model_validate(value)


TaskTable = Annotated[TaskSection, BeforeValidator(_task_section)]


class StageSection(Section):
    """One stage of a sequence: a task, and how long it is trained."""

    train_steps: float | None = Field(default=None, ge=0)
    """Gradient steps; until convergence by default."""
    task: TaskTable
    """Its keys are written in the table of the stage."""


def _stage_section(value: object) -> object:
    if not isinstance(value, dict):
        raise ValueError("a stage must be a table with the keys of a task and, optionally, train_steps")
    return {"train_steps": value.get("train_steps"), "task": {k: v for k, v in value.items() if k != "train_steps"}}


class GeneraliseSection(Section):
    """Held-out loss: which trials are held out, and until which step."""

    test: str | None = None
    """A file of held-out trials with the arrays and preprocessing of the target; folds of its trials by default."""
    folds: int = Field(default=10, ge=3)
    """Number of folds."""
    groups: str | None = None
    """Name of the array or column with the group of each trial; groups are held out together."""
    blocks: int | None = Field(default=None, ge=1)
    """Number of neighbouring trials that are held out together."""
    most_steps: int | None = Field(default=None, ge=1)
    """Last step; by default ten times the steps in which 99% of the training loss is learned."""
    after: str | None = None
    """Name of a candidate on which the network is trained first."""
    seed: int = Field(default=0, ge=0)
    """Seed of the folds."""
    plan: bool = False
    """Whether a plan chooses the stops of the least held-out loss instead of the fewest steps."""

    @model_validator(mode="after")
    def _one_way(self) -> GeneraliseSection:
        if self.groups is not None and self.blocks is not None:
            raise ValueError("give either groups or blocks, got both")
        return self


class StudySection(Section):
    """The study file."""

    name: str = "study"
    """Name of the study."""
    network: Annotated[NetworkSection, BeforeValidator(network_section)] = RecurrentSection()
    """The network before training."""
    training: TrainingSection = TrainingSection()
    """How it is trained."""
    target: TaskTable | None = None
    """The task to be learned in the end."""
    candidates: list[TaskTable] = Field(default=[])
    """Tasks that could be trained before the target."""
    sequence: list[Annotated[StageSection, BeforeValidator(_stage_section)]] = Field(default=[])
    """Tasks learned one after another, for `learncast forget`."""
    generalise: GeneraliseSection | None = None
    """What is held out, for `learncast generalise` and plans for the held-out loss."""

    @model_validator(mode="after")
    def _names_differ(self) -> StudySection:
        planned = [self.target, *self.candidates] if self.target else self.candidates
        for tasks, stage in ((planned, False), ([stage.task for stage in self.sequence], True)):
            names = [task_name(section, k, stage=stage) for k, section in enumerate(tasks)]
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"two tasks are called {name!r}; rename one")
        return self

    @model_validator(mode="after")
    def _tables_fit(self) -> StudySection:
        if self.target is None and not self.sequence:
            raise ValueError("a study needs a [target] (to forecast or plan) or a [[sequence]] (to forget)")
        if self.candidates and self.target is None:
            raise ValueError("[[candidates]] need a [target]")
        for key in RULES[1:]:
            if self.target is not None and getattr(self.target, key) is not None:
                raise ValueError(f"{key} belongs to [[candidates]]; the goal of the target is set in [training]")
        for key in RULES:
            if any(key in stage.task.model_fields_set for stage in self.sequence):
                raise ValueError(f"{key} belongs to [[candidates]]; a [[sequence]] is not planned")
        return self


def task_name(section: NamedSection, index: int, *, stage: bool = False) -> str:
    """Return the name of a task; by default that of its data file, or its position in the study."""
    if section.name is not None:
        return section.name
    if isinstance(section, DataSection):
        return Path(section.data).stem
    if stage:
        return f"task {index + 1}"
    return "target" if index == 0 else f"candidate {index}"


class SweepSection(Section):
    """The [sweep] table: one question over a grid of studies."""

    command: Literal["forecast", "plan", "generalise", "check", "train", "window"]
    """Command that is run for every cell of the grid."""
    grid: dict[str, object]
    """What varies: keys of the study with their values, lists or ranges { first, last, count }."""
    seeds: int | None = Field(default=None, ge=1)
    """Repetitions of every cell."""
    zips: list[list[str]] = Field(default=[])
    """Keys that vary together."""
    conditions: list[str] = Field(default=[])
    """Conditions on the keys that cells must meet."""
    options: dict[str, object] = Field(default={})
    """Options of the command."""
