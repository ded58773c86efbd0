"""A study: a person's tasks, network and training, built from a file and checked key by key."""

from __future__ import annotations

import inspect
import math
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from learncast.errors import InvalidSpec
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN, check_fit
from learncast.networks.two_layer import TwoLayer
from learncast.planning.grounds.choice import ground_for
from learncast.planning.grounds.ground import Ground
from learncast.planning.terms import Terms, checked_pool
from learncast.study.study_file import Section, StudyFile, arrays_named, located
from learncast.tasks import sensory
from learncast.tasks.families import FAMILIES
from learncast.tasks.one_step import hierarchy, reversed, static
from learncast.tasks.recorded.files import from_file
from learncast.tasks.task import Task
from learncast.validation import one_of, suggestion

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


class Study(StudyFile[StudySection]):
    """A study file with everything it names, built and checked.

    Attributes
    ----------
    name : str
    network : LinearRNN, TwoLayer or Activated
    candidates : tuple of Task
    sequence : tuple of (Task, steps)
        Stages to learn one after another; infinite steps train to convergence.
    learning_rate, accuracy : float
    max_stages : int
    """

    sections, absence = StudySection, "there is nothing to forecast"

    def __init__(self, section: StudySection, folder: Path, source: str) -> None:
        super().__init__(section, folder, source)
        self._grounds: dict[str, Ground] = {}
        self.name = section.name
        self.learning_rate, self.accuracy = section.training.learning_rate, section.training.accuracy
        self.max_stages, self.batch = section.training.max_stages, section.training.batch
        self.horizons = tuple(section.training.horizons)
        keyed: list[tuple[str, Task]] = []

        def built(task: TaskSection, k: int, key: str, *, stage: bool = False) -> Task:
            keyed.append((key, self._task(task, task_name(task, k, stage=stage), key)))
            return keyed[-1][1]

        self._target = None if section.target is None else built(section.target, 0, "[target]")
        self.candidates = tuple(
            built(one, k, f"[[candidates]] number {k}") for k, one in enumerate(section.candidates, 1)
        )
        ends = [math.inf if one.train_steps is None else one.train_steps for one in section.sequence]
        self.sequence = tuple(
            (built(one.task, k, f"[[sequence]] number {k + 1}", stage=True), steps)
            for k, (one, steps) in enumerate(zip(section.sequence, ends, strict=True))
        )
        with located(source, "[network]"):
            self.network: LinearRNN | TwoLayer | Activated = self._network(section.network)
            if section.network.activation != "linear":
                self.network = Activated(self.network, section.network.activation)
        # Tasks that the network cannot be trained on are refused by file and key.
        for key, task in keyed:
            with located(source, f"[network] and {key}"):
                check_fit(task, self.weights)

    @property
    def target(self) -> Task:
        """What must be learned in the end."""
        if self._target is None:
            raise InvalidSpec(
                required=f"{self.source} must have a [target]",
                got="a [[sequence]] alone",
                why="this question is about one target task",
                remedy="add a [target], or ask `learncast forget`",
            )
        return self._target

    @property
    def learn(self) -> tuple[str, ...]:
        """Weights that learn: those of the closed forms unless the file names others."""
        own = ("input", "output") if isinstance(self.weights, LinearRNN) else ("first", "second")
        return own if self.named_learn is None else self.named_learn

    @property
    def weights(self) -> LinearRNN | TwoLayer:
        """The network's weights, whatever its units do."""
        return self.network.network if isinstance(self.network, Activated) else self.network

    @property
    def named_learn(self) -> tuple[str, ...] | None:
        """The weights that learn, where the file names them."""
        named = self.section.training.learn
        return None if named is None else tuple(named)

    @property
    def terms(self) -> Terms:
        """What the file asks of a plan."""
        training, candidates = self.section.training, self.section.candidates
        found: dict[str, Any] = training.model_dump(include={"accuracy", "goal", "max_stages", "switch_cost"})
        if candidates and self.section.target is not None:
            found["costs"] = [section.cost for section in (*candidates, self.section.target)]
        for key in RULES[1:]:
            values = [getattr(section, key) for section in candidates]
            if any(value is not None for value in values):
                found[key] = [math.nan if value is None else value for value in values]
        return Terms(**found)

    def ground(self, by: str = "auto") -> Ground:
        """How the target and its candidates are learned by the network: chosen once for every question about them."""
        if by not in self._grounds:
            pool = checked_pool(self.target, self.candidates) if self.candidates else []
            self._grounds[by] = ground_for(
                [*pool, self.target], self.network, learning_rate=self.learning_rate, learn=self.named_learn, by=by,
                goal=self.section.training.goal,
            )  # fmt: skip
        return self._grounds[by]

    def activated(self, activation: str) -> Study:
        """The same study with another nonlinearity."""
        network = self.section.network.model_copy(update={"activation": activation})
        return Study(self.section.model_copy(update={"network": network}), self.folder, self.source)

    def task(self, name: str) -> Task:
        """The target or the candidate of that name."""
        tasks = {task.name: task for task in (self.target, *self.candidates)}
        if name not in tasks:
            raise InvalidSpec(
                required=f"{self.source} must have a task called {name!r}",
                got=f"tasks {', '.join(map(repr, tasks))}",
                why="there is nothing of that name to forecast",
                remedy=suggestion(name, tuple(tasks)) or "use one of these names",
            )
        return tasks[name]

    def _tables(self) -> dict[str, Any]:
        tables = super()._tables()
        if not self.horizons:
            del tables["training"]["horizons"]
        tables["sequence"] = [
            {**stage, **{key: v for key, v in stage.pop("task").items() if key not in RULES}}
            for stage in tables["sequence"]
        ]
        return tables

    def _task(self, section: TaskSection, name: str, key: str) -> Task:
        with located(self.source, key):
            if isinstance(section, DataSection):
                options = section.model_dump(exclude={"data", "name", "reversed", *RULES}, exclude_none=True)
                task = from_file(self.folder / section.data, name=name, **options)
            elif isinstance(section, StaticSection):
                task = static(section.cross_correlation, section.input_correlation, name=name)
            elif isinstance(section, HierarchySection):
                task = _tree(section, name)
            elif isinstance(section, SensorySection):
                task = _sensory(section, name)
            else:
                keywords = section.model_dump(exclude={"family", "name", *RULES})
                return FAMILIES[section.family].build(**keywords, name=name)
            return reversed(task, name=name) if section.reversed else task

    def _network(self, section: NetworkSection) -> LinearRNN | TwoLayer:
        task = self._target if self._target is not None else self.sequence[0][0]
        kind: type[Any] = TwoLayer if isinstance(section, TwoLayerSection) else LinearRNN
        if section.weights is not None:
            path, names = self.folder / section.weights, tuple(field.name for field in fields(kind))
            stored: LinearRNN | TwoLayer = kind(*arrays_named(path, "weights", names, why="such a network has these"))
            return stored
        if isinstance(section, TwoLayerSection):
            sizes, rng = (task.inputs, section.hidden_size, task.outputs), np.random.default_rng(section.seed)
            if section.start == "random":
                return TwoLayer.random(*sizes, scale=section.scale, rng=rng)
            return TwoLayer.balanced(*sizes, scale=section.scale, imbalance=section.imbalance, rng=rng)
        if section.initial == "random":
            drawn = section.model_dump(include={"recurrence", "scale", "seed"})
            return LinearRNN.random(section.hidden_size, task.inputs, task.outputs, **drawn)
        aligned = section.model_dump(include={"recurrence", "initial", "output_initial", "hidden_size"})
        return LinearRNN.aligned(**aligned, task=task)


def _sensory(section: SensorySection, name: str) -> Task:
    known = {key: value for key, value in vars(sensory).items() if inspect.isfunction(value) and key[0] != "_"}
    makers = tuple(key for key in known if inspect.signature(known[key]).return_annotation == "Task")
    make = known[one_of("task", section.task, makers, why="these are the sensory tasks")]
    allowed = tuple(key for key in inspect.signature(make).parameters if key not in ("steps", "name"))
    for key in section.parameters:
        one_of(f"a parameter of {section.task}", key, allowed, why="the task has no other")
    whole = {
        key: int(value) if isinstance(value, float) and value.is_integer() else value
        for key, value in section.parameters.items()
    }
    task: Task = make(section.steps, **whole, name=name)
    return task


def _tree(section: HierarchySection, name: str) -> Task:
    tree = hierarchy(section.depth, form=section.form, name=name)
    if section.swap is not None:
        tree = tree.swapped(*section.swap)
    if section.shuffle is not None:
        tree = tree.shuffled(section.shuffle)
    return tree.renamed(name)
