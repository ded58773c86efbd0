"""A study: a person's tasks, network and training, built from a file and checked key by key."""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from learncast.dynamics.modes import modes
from learncast.dynamics.pooled import PooledProblem
from learncast.errors import InvalidSpec
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.study.files import network_from_file, tables_from, task_from_file, two_layer_from_file
from learncast.study.problems import first_problem, located
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
from learncast.study.tables import to_toml, without_none
from learncast.tasks import sensory
from learncast.tasks.families import FAMILIES
from learncast.tasks.one_step import reversed, static
from learncast.tasks.task import Task
from learncast.tasks.trees import hierarchy
from learncast.validation import one_of, suggestion


class Study:
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

    def __init__(self, section: StudySection, folder: Path, source: str) -> None:
        self.section, self.folder, self.source = section, folder, source
        self.name = section.name
        self.learning_rate, self.accuracy = section.training.learning_rate, section.training.accuracy
        self.max_stages, self.batch = section.training.max_stages, section.training.batch
        self.horizons = tuple(section.training.horizons)
        self._target = (
            None if section.target is None else self._task(section.target, task_name(section.target, 0), "[target]")
        )
        self.candidates = tuple(
            self._task(candidate, task_name(candidate, k), f"[[candidates]] number {k}")
            for k, candidate in enumerate(section.candidates, start=1)
        )
        self.sequence = tuple(
            (
                self._task(stage.task, task_name(stage.task, k, stage=True), f"[[sequence]] number {k + 1}"),
                math.inf if stage.train_steps is None else stage.train_steps,
            )
            for k, stage in enumerate(section.sequence)
        )
        with located(source, "[network]"):
            self.network: LinearRNN | TwoLayer | Activated = self._network(section.network)
            if section.network.activation != "linear":
                self.network = Activated(self.network, section.network.activation)
        self._check_fit()

    def _check_fit(self) -> None:
        """Refuse tasks that the network cannot be trained on, naming them by file and key."""
        keyed = [] if self._target is None else [("[network] and [target]", self._target)]
        keyed += [(f"[network] and [[candidates]] number {k}", t) for k, t in enumerate(self.candidates, start=1)]
        keyed += [(f"[network] and [[sequence]] number {k}", t) for k, (t, _) in enumerate(self.sequence, start=1)]
        for key, task in keyed:
            with located(self.source, key):
                PooledProblem.of(task, self.weights)
                if isinstance(self.weights, LinearRNN):
                    modes(task, self.weights)

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
        named = self.section.training.learn
        if named is not None:
            return tuple(named)
        return ("input", "output") if isinstance(self.weights, LinearRNN) else ("first", "second")

    @property
    def weights(self) -> LinearRNN | TwoLayer:
        """The network's weights, whatever its units do."""
        return self.network.network if isinstance(self.network, Activated) else self.network

    @property
    def plannable(self) -> bool:
        """Whether curricula can be planned: a recurrent network whose recurrence stays fixed."""
        return isinstance(self.weights, LinearRNN) and set(self.learn) == {"input", "output"}

    @property
    def plan_rules(self) -> dict[str, Any]:
        """What the file asks of a plan, as keywords of `learncast.plan`."""
        training, candidates = self.section.training, self.section.candidates
        found: dict[str, Any] = {
            "learning_rate": self.learning_rate,
            "accuracy": self.accuracy,
            "goal": training.goal,
            "max_stages": self.max_stages,
            "switch_cost": training.switch_cost,
            "learn": None if training.learn is None else tuple(training.learn),
        }
        if candidates and self.section.target is not None:
            found["costs"] = [section.cost for section in (*candidates, self.section.target)]
        for key in RULES[1:]:
            values = [getattr(section, key) for section in candidates]
            if any(value is not None for value in values):
                found[key] = [math.nan if value is None else value for value in values]
        return found

    @property
    def recurrent_network(self) -> LinearRNN | Activated:
        """The network, where the question needs a recurrent one."""
        if not isinstance(self.weights, LinearRNN):
            raise InvalidSpec(
                required=f'{self.source}, [network]: kind must be "linear-rnn"',
                got=f"{self.section.network.kind!r}",
                why="curricula are planned mode by mode for linear RNNs",
                remedy="describe the network as a linear RNN, or ask `learncast forecast` or `learncast forget`",
            )
        assert not isinstance(self.network, TwoLayer)
        return self.network

    @property
    def linear_network(self) -> LinearRNN | TwoLayer:
        """The network, where the question needs a linear one."""
        if isinstance(self.network, Activated):
            raise InvalidSpec(
                required=f'{self.source}, [network]: activation must be "linear"',
                got=f"{self.network.activation!r}",
                why="this question is answered by the theory of linear networks",
                remedy="leave activation out, or ask `learncast forecast` or `learncast plan` with fixed recurrence",
            )
        return self.network

    def activated(self, activation: str) -> Study:
        """The same study with another nonlinearity."""
        network = self.section.network.model_copy(update={"activation": activation})
        return Study(self.section.model_copy(update={"network": network}), self.folder, self.source)

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """Read and check a study file."""
        source = Path(path)
        raw = tables_from(source, why="there is nothing to forecast")
        return cls.from_dict(raw, folder=source.parent, source=str(source))

    @classmethod
    def from_dict(cls, raw: dict[str, Any], *, folder: Path, source: str) -> Study:
        """Check a study given as a dictionary; files it names are looked for in `folder`."""
        try:
            section = StudySection.model_validate(raw)
        except ValidationError as error:
            raise first_problem(error, raw, source) from error
        return cls(section, folder, source)

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

    def resolved(self) -> str:
        """The study as TOML with every default written out."""
        tables = self.section.model_dump(mode="json")
        # The file is written elsewhere: what it names must still be found.
        tables["network"] = self._absolute(tables["network"])
        for key in ("candidates", "sequence"):
            tables[key] = [self._absolute(table) for table in tables[key]]
        tables["target"] = self._absolute(tables["target"])
        tables["training"]["horizons"] = tables["training"]["horizons"] or None
        tables["sequence"] = [
            {"train_steps": s["train_steps"], **{key: v for key, v in s["task"].items() if key not in RULES}}
            for s in tables["sequence"]
        ]
        return to_toml({key: value for key, value in without_none(tables).items() if value != []})

    def _absolute(self, table: Any) -> Any:
        if not isinstance(table, dict):
            return table
        found = {key: self._absolute(value) for key, value in table.items()}
        for key in ("data", "weights"):
            if isinstance(found.get(key), str):
                found[key] = str((self.folder / found[key]).resolve())
        return found

    def _task(self, section: TaskSection, name: str, key: str) -> Task:
        name = section.name or name
        with located(self.source, key):
            if isinstance(section, DataSection):
                layout = section.model_dump(include={"trial", "step", "inputs", "targets", "at"}, exclude_none=True)
                task = task_from_file(self.folder / section.data, name=name, centre=section.centre, layout=layout)
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
        if isinstance(section, TwoLayerSection):
            if section.weights is not None:
                return two_layer_from_file(self.folder / section.weights)
            sizes, rng = (task.inputs, section.hidden_size, task.outputs), np.random.default_rng(section.seed)
            if section.start == "random":
                return TwoLayer.random(*sizes, scale=section.scale, rng=rng)
            return TwoLayer.balanced(*sizes, scale=section.scale, imbalance=section.imbalance, rng=rng)
        if section.weights is not None:
            return network_from_file(self.folder / section.weights)
        return LinearRNN.aligned(
            recurrence=section.recurrence,
            initial=section.initial,
            output_initial=section.output_initial,
            hidden_size=section.hidden_size,
            task=task,
        )


def _sensory(section: SensorySection, name: str) -> Task:
    known = tuple(key for key, value in vars(sensory).items() if inspect.isfunction(value) and key[0] != "_")
    makers = tuple(key for key in known if inspect.signature(getattr(sensory, key)).return_annotation == "Task")
    make = getattr(sensory, one_of("task", section.task, makers, why="these are the sensory tasks"))
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
