"""A study: a person's tasks, network and training, built from a file and checked key by key."""

from __future__ import annotations

import inspect
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.limits import check_made
from learncast._core.validation import one_of
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN, check_fit
from learncast.networks.two_layer import TwoLayer
from learncast.planning.methods.choice import method_for
from learncast.planning.methods.method import Method
from learncast.planning.terms import Terms, checked_pool
from learncast.procedure.training import Training
from learncast.study.sections import (
    RULES,
    DataSection,
    HierarchySection,
    NetworkSection,
    SensorySection,
    StaticSection,
    StudySection,
    TaskSection,
    TwoLayerSection,
    task_name,
)
from learncast.study.study_file import StudyFile, located
from learncast.tasks import sensory
from learncast.tasks.families import FAMILIES
from learncast.tasks.one_step import hierarchy, reversed, static
from learncast.tasks.recorded.arrays import arrays_named
from learncast.tasks.recorded.files import from_file
from learncast.tasks.task import Task

#: Matrices of a network's size that are there at once while a question about it is answered.
COPIES = 5


class Study(StudyFile[StudySection]):
    """A study file with everything it names, built and checked.

    Attributes
    ----------
    name : str
    network : LinearRNN, TwoLayer or Activated
    candidates : tuple of Task
    sequence : tuple of (Task, steps)
        Stages to learn one after another; infinite steps train to convergence.
    learning_rate : float
    goal : Goal
    max_stages : int

    Examples
    --------
    >>> import tempfile
    >>> from learncast.study import Study
    >>> from learncast.study.beginning import begin
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (path,) = begin("plan", f"{folder}/mine.toml")
    ...     study = Study.load(path)
    >>> study.target.name, [task.name for task in study.candidates]
    ('target', ['stronger targets', 'correlated input'])
    >>> study.learning_rate, study.goal
    (0.001, Accuracy(value=0.99))
    """

    sections = StudySection

    def __init__(self, section: StudySection, folder: Path, source: str) -> None:
        super().__init__(section, folder, source)
        self._methods: dict[str, Method] = {}
        self.name = section.name
        self.learning_rate, self.goal = section.training.learning_rate, section.training.goal_object
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
                f"{self.source} must have a [target], got a [[sequence]] alone. Add a [target], or ask `learncast "
                "forget`."
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
        found: dict[str, Any] = {"goal": self.goal, **training.model_dump(include={"max_stages", "switch_cost"})}
        if candidates and self.section.target is not None:
            found["costs"] = [section.cost for section in (*candidates, self.section.target)]
        for key in RULES[1:]:
            values = [getattr(section, key) for section in candidates]
            if any(value is not None for value in values):
                found[key] = [math.nan if value is None else value for value in values]
        return Terms(**found)

    @property
    def training(self) -> Training:
        """How the network is trained: full-batch gradient descent; `batch` is for steps in batches."""
        return Training(self.learning_rate, learn=self.named_learn)

    @property
    def goal_values(self) -> dict[str, float]:
        """The goal under its study key, for JSON."""
        return {self.section.training.goal_key: float(getattr(self.goal, "value", math.nan))}

    def check_pool(self) -> list[Task]:
        """Check target and candidates of a plan."""
        return checked_pool(self.target, self.candidates)

    def method(self, name: str = "auto") -> Method:
        """The method by which target and candidates are learned, chosen once for every question about them."""
        if name not in self._methods:
            pool = self.check_pool() if self.candidates else []
            self._methods[name] = method_for([*pool, self.target], self.network, self.training, method=name)
        return self._methods[name]

    def activated(self, activation: str) -> Study:
        """The same study with another nonlinearity."""
        network = self.section.network.model_copy(update={"activation": activation})
        return Study(self.section.model_copy(update={"network": network}), self.folder, self.source)

    def task(self, name: str) -> Task:
        """The target or the candidate of that name."""
        tasks = {task.name: task for task in (self.target, *self.candidates)}
        if name not in tasks:
            raise InvalidSpec(
                f"{self.source} must have a task called {name!r}, got tasks {', '.join(map(repr, tasks))}."
            )
        return tasks[name]

    def _tables(self) -> dict[str, Any]:
        tables = super()._tables()
        if not self.horizons:
            del tables["training"]["horizons"]
        tables["sequence"] = [
            {key: v for key, v in {**stage.pop("task"), **stage}.items() if key not in RULES}
            for stage in tables["sequence"]
        ]
        return tables

    def _task(self, section: TaskSection, name: str, key: str) -> Task:
        with located(self.source, key):
            return task_of(section, name, self.folder)

    def _network(self, section: NetworkSection) -> LinearRNN | TwoLayer:
        task = self._target if self._target is not None else self.sequence[0][0]
        if section.weights is None:
            units = section.hidden_size
            taken = 8 * units * (units * (not isinstance(section, TwoLayerSection)) + task.inputs + task.outputs)
            check_made(f"a network of {units:,} units", COPIES * taken, remedy="make hidden_size smaller")
        kind: type[Any] = TwoLayer if isinstance(section, TwoLayerSection) else LinearRNN
        if section.weights is not None:
            path, names = self.folder / section.weights, tuple(field.name for field in fields(kind))
            stored: LinearRNN | TwoLayer = kind(*arrays_named(path, "weights", names))
            return stored
        if isinstance(section, TwoLayerSection):
            sizes, rng = (task.inputs, section.hidden_size, task.outputs), np.random.default_rng(section.seed)
            if section.start == "random":
                return TwoLayer.random(*sizes, scale=section.scale, rng=rng)
            return TwoLayer.balanced(*sizes, scale=section.scale, imbalance=section.imbalance, rng=rng)
        if section.initial == "random":
            options = section.model_dump(include={"recurrence", "scale"}, exclude_none=True)
            return LinearRNN.random(task.inputs, section.hidden_size, task.outputs, rng=section.seed or 0, **options)
        aligned = section.model_dump(include={"recurrence", "initial", "output_initial", "hidden_size"})
        return LinearRNN.aligned(**aligned, task=task)


def task_of(section: TaskSection, name: str, folder: Path) -> Task:
    """Build the task of a section; files it names are looked for in `folder`."""
    if isinstance(section, DataSection):
        options = section.model_dump(exclude={"data", "name", "reversed", *RULES}, exclude_none=True)
        task = from_file(folder / section.data, name=name, **options)
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


def _sensory(section: SensorySection, name: str) -> Task:
    known = {key: value for key, value in vars(sensory).items() if inspect.isfunction(value) and key[0] != "_"}
    makers = tuple(key for key in known if inspect.signature(known[key]).return_annotation == "Task")
    make = known[one_of("task", section.task, makers)]
    allowed = tuple(key for key in inspect.signature(make).parameters if key not in ("steps", "name"))
    for key in section.parameters:
        one_of(f"a parameter of {section.task}", key, allowed)
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
