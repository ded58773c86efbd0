"""A study: tasks, network and training, built from a file."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from learncast._core.errors import InvalidSpec, suggestion
from learncast._core.limits import check_made, listed
from learncast._core.validation import one_of
from learncast.networks import Network
from learncast.networks.activated import Activated
from learncast.networks.deep import Deep, Linear
from learncast.networks.linear_rnn import LinearRNN, check_fit
from learncast.networks.two_layer import TwoLayer
from learncast.planning.defaults import Choice, default_network
from learncast.planning.generalise.folds import Folds
from learncast.planning.learning_rate import suggest_rate
from learncast.planning.methods.choice import method_for
from learncast.planning.methods.method import Method
from learncast.planning.terms import GENERALISE, Terms, checked_pool
from learncast.procedure.goals import DATA_GOAL, GOALS, Goal, goal_of
from learncast.procedure.stage import Stage
from learncast.procedure.training import Training
from learncast.study import sections as kinds
from learncast.study.network_sections import DeepSection, DefaultNetworkSection, NetworkSection, TwoLayerSection
from learncast.study.study_file import StudyFile, checked, located
from learncast.tasks import sensory
from learncast.tasks.families import FAMILIES
from learncast.tasks.one_step import hierarchy, reversed, static
from learncast.tasks.recorded.arrays import arrays_named
from learncast.tasks.recorded.files import from_file, trial_groups
from learncast.tasks.task import Task
from learncast.theory.dynamics.learning_problem import learned_weights

#: Matrices of a network's size that are in memory while a question is answered.
COPIES = 5


class Study(StudyFile[kinds.StudySection]):
    """A study file with the tasks and the network that it describes.

    Attributes
    ----------
    network : LinearRNN, TwoLayer, Deep or Activated
    candidates : tuple of Task
    sequence : tuple of (Task, steps)
        Tasks learned one after another; infinite steps train to convergence.
    learning_rate : float
    goal : Goal
    max_stages : int
    chosen : tuple of Choice
        Network and learning rate, if they were not given.

    Examples
    --------
    >>> import tempfile
    >>> from learncast.study import Study, new_study
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path, _ = new_study("plan", f"{folder}/mine.toml")
    ...     study = Study.load(path)
    >>> study.target.name, [task.name for task in study.candidates]
    ('target', ['stronger targets', 'correlated input'])
    >>> study.learning_rate, study.goal
    (0.001, Accuracy(value=0.99, optimum=None))
    """

    sections = kinds.StudySection

    def __init__(self, section: kinds.StudySection, folder: Path, source: str) -> None:
        super().__init__(section, folder, source)
        self._methods: dict[str, Method] = {}
        self.chosen: tuple[Choice, ...] = ()
        self.max_stages, self.batch = section.training.max_stages, section.training.batch
        self.horizons = tuple(section.training.horizons)
        self._tasks: dict[str, Task] = {}
        self._target = None if section.target is None else self._task("[target]", section.target, 0)
        self.candidates = tuple(
            self._task(f"[[candidates]] number {k}", one, k) for k, one in enumerate(section.candidates, 1)
        )
        self.sequence = tuple(
            (
                self._task(f"[[sequence]] number {k}", one.task, k - 1, stage=True),
                math.inf if one.train_steps is None else one.train_steps,
            )
            for k, one in enumerate(section.sequence, 1)
        )
        self.goal = section.training.goal_object or self._default_goal()
        with located(source, "[training]"):
            self.goal.check_forecast()
        with located(source, "[network]"):
            self.network: Network = self._network(section.network)
            if section.network.activation != "linear" and not isinstance(self.network, Deep):
                self.network = Activated(self.network, section.network.activation)
        for key, task in self._tasks.items():
            with located(source, f"[network] and {key}"):
                check_fit(task, self.weights)
        self.learning_rate = section.training.learning_rate or self._safe_rate()

    def _default_goal(self) -> Goal:
        """Choose the goal by the target, and write it into the study."""
        task = self._target or next(iter(self._tasks.values()))
        goal = goal_of(None, recorded=task.recording is not None)
        key = next(key for key, kind in GOALS.items() if isinstance(goal, kind))
        training = self.section.training.model_copy(update={key: goal.value})
        self.section = self.section.model_copy(update={"training": training})
        if task.recording is not None:
            self.chosen += (Choice("goal", goal.text, "default", f"training.{key}"),)
        return goal

    def _safe_rate(self) -> float:
        """Choose the learning rate for every task of the study, and write it into the study."""
        with located(self.source, "[training]"):
            goal = DATA_GOAL if self.goal.needs_training else self.goal
            stages = [Stage(task, goal) for task in self._tasks.values()]
            found = suggest_rate(stages, self.network, self._training(1.0))
        training = self.section.training.model_copy(update={"learning_rate": found.learning_rate})
        self.section = self.section.model_copy(update={"training": training})
        self.chosen += (Choice("learning rate", f"{found.learning_rate:.3g}", found.why, "training.learning_rate"),)
        return found.learning_rate

    @property
    def target(self) -> Task:
        """The task to be learned in the end."""
        if self._target is None:
            remedy = "For its [[sequence]] run `learncast forget`."
            raise InvalidSpec(f"{self.source} needs a [target] for this question. {remedy}", field="target")
        return self._target

    @property
    def weights(self) -> Linear:
        """The network's weights, without its activation function."""
        return self.network.network if isinstance(self.network, Activated) else self.network

    @property
    def named_learn(self) -> tuple[str, ...] | None:
        """The trainable weights, if the file names them."""
        named = self.section.training.learn
        return None if named is None else tuple(named)

    @property
    def learn(self) -> tuple[str, ...]:
        """The trainable weights; those of the closed forms unless the file names others."""
        return self.named_learn or learned_weights(self.weights, None)

    @property
    def terms(self) -> Terms:
        """Terms of a plan: goal, costs and limits of the candidates."""
        candidates, training = self.section.candidates, self.section.training
        held_out = self.section.generalise is not None and self.section.generalise.plan
        terms: dict[str, Any] = {
            "goal": GENERALISE if held_out else self.goal,
            **training.model_dump(include={"max_stages", "switch_cost"}),
        }
        if candidates and self.section.target is not None:
            terms["costs"] = [section.cost for section in (*candidates, self.section.target)]
        for key in kinds.RULES[1:]:
            values = [getattr(section, key) for section in candidates]
            if any(value is not None for value in values):
                terms[key] = [math.nan if value is None else value for value in values]
        return Terms(**terms)

    @property
    def training(self) -> Training:
        """How the network is trained."""
        return self._training(self.learning_rate)

    def _training(self, learning_rate: float) -> Training:
        own = self.section.training
        how: dict[str, Any] = {"optimizer": own.optimizer, "loss": own.loss_function, "shuffle": own.shuffle}
        return Training(learning_rate, batch=self.batch, learn=self.named_learn, **how)

    def with_held_out(self, changes: Mapping[str, object]) -> Study:
        """Return this study with some keys of [generalise] changed."""
        if not changes:
            return self
        own = self.section.generalise or kinds.GeneraliseSection()
        section = checked(kinds.GeneraliseSection, {**own.model_dump(), **changes}, self.source, "generalise")
        return Study(self.section.model_copy(update={"generalise": section}), self.folder, self.source)

    @property
    def held_out(self) -> dict[str, Any]:
        """Keyword arguments of `learncast.generalise`: test task, folds, last step and source."""
        section, target = self.section.generalise or kinds.GeneraliseSection(), self.section.target
        groups, test = None, None
        with located(self.source, "[generalise]"):
            if not (isinstance(target, kinds.DataSection) or section.groups is section.test is None):
                raise InvalidSpec("groups and test need a [target] with data.", field="generalise")
            if isinstance(target, kinds.DataSection) and section.groups is not None:
                column = {} if target.trial is None else {"trial": target.trial}
                path = self.folder / target.data
                groups = tuple(trial_groups(path, section.groups, **column, most_bytes=target.most_bytes))
            if isinstance(target, kinds.DataSection) and section.test is not None:
                classes = self.target.recording.classes if self.target.recording is not None else None
                named = None if classes is None else list(classes)
                own = target.model_copy(update={"data": section.test, "classes": target.classes or named})
                test = task_of(own, Path(section.test).stem, self.folder)
            after = None if section.after is None else self.task(section.after)
            folds = Folds(section.folds, groups=groups, blocks=section.blocks, seed=section.seed)
        return {"test": test, "folds": folds, "most_steps": section.most_steps, "after": after}

    def check_pool(self) -> list[Task]:
        """Check target and candidates of a plan."""
        return checked_pool(self.target, self.candidates)

    def method(self, name: str = "auto", *, optimizers: bool = False) -> Method:
        """The method by which target and candidates are learned, chosen once for every question about them."""
        if name not in self._methods:
            pool = self.check_pool() if self.candidates else []
            how: dict[str, Any] = {"method": name, "optimizers": optimizers}
            self._methods[name] = method_for([*pool, self.target], self.network, self.training, **how)
        return self._methods[name]

    def activated(self, activation: str) -> Study:
        """Return this study with another activation function."""
        network = self.section.network.model_copy(update={"activation": activation})
        return Study(self.section.model_copy(update={"network": network}), self.folder, self.source)

    def task(self, name: str) -> Task:
        """Return the target or the candidate of that name."""
        tasks = {task.name: task for task in (self.target, *self.candidates)}
        if name not in tasks:
            hint = suggestion(name, tuple(tasks)) or f"Its tasks are {listed(tasks)}."
            raise InvalidSpec(f"{self.source} has no task {name!r}. {hint}", field="task")
        return tasks[name]

    def _tables(self) -> dict[str, object]:
        tables = super()._tables()
        if not self.horizons:
            del tables["training"]["horizons"]
        tables["sequence"] = [
            {key: v for key, v in {**stage.pop("task"), **stage}.items() if key not in kinds.RULES}
            for stage in tables["sequence"]
        ]
        return tables

    def _task(self, key: str, section: kinds.TaskSection, index: int, *, stage: bool = False) -> Task:
        with located(self.source, key):
            self._tasks[key] = task_of(section, kinds.task_name(section, index, stage=stage), self.folder)
        return self._tasks[key]

    def _network(self, section: NetworkSection) -> Linear:
        if isinstance(section, DefaultNetworkSection):
            return self._default_network(section)
        if isinstance(section, DeepSection):
            return self._deep_network(section)
        kind: type[LinearRNN | TwoLayer] = TwoLayer if isinstance(section, TwoLayerSection) else LinearRNN
        if section.weights is not None:
            path, names = self.folder / section.weights, tuple(field.name for field in fields(kind))
            return kind(*arrays_named(path, "weights", names))
        task = next(iter(self._tasks.values()))
        units, inputs, outputs = section.hidden_size, task.inputs, task.outputs
        size = 8 * units * (units * (kind is LinearRNN) + inputs + outputs)
        check_made(f"a network of {units:,} units", COPIES * size, remedy="make hidden_size smaller")
        if isinstance(section, TwoLayerSection):
            rng = np.random.default_rng(section.seed)
            if section.start == "random":
                return TwoLayer.random(inputs, units, outputs, scale=section.scale, rng=rng)
            assert section.scale != "torch"
            sizes = inputs, units, outputs
            return TwoLayer.balanced(*sizes, scale=section.scale, imbalance=section.imbalance, rng=rng)
        if section.initial == "random":
            options = section.model_dump(include={"recurrence", "scale"}, exclude_none=True)
            return LinearRNN.random(inputs, units, outputs, rng=section.seed or 0, **options)
        options = section.model_dump(include={"recurrence", "initial", "output_initial", "hidden_size"})
        return LinearRNN.aligned(**options, task=task)

    def _deep_network(self, section: DeepSection) -> Deep:
        if section.weights is not None:
            names = tuple(f"layer{k}" for k in range(1, section.layers + 1))
            return Deep(tuple(arrays_named(self.folder / section.weights, "weights", names)), section.recurrence)
        task, hidden = next(iter(self._tasks.values())), section.hidden_sizes
        sizes = [task.inputs, *hidden, task.outputs]
        size = 8 * sum(one * two for one, two in pairwise(sizes))
        check_made(f"a network of {sum(hidden):,} units", COPIES * size, remedy="make hidden_size smaller")
        if section.start == "aligned":
            return Deep.aligned(hidden, task=task, initial=section.scale, recurrence=section.recurrence)
        make = Deep.random if section.start == "random" else Deep.balanced
        options: dict[str, Any] = {"scale": section.scale, "recurrence": section.recurrence, "rng": section.seed}
        return make(task.inputs, hidden, task.outputs, **options)

    def _default_network(self, section: DefaultNetworkSection) -> LinearRNN | TwoLayer:
        """Make the default network, and note it among the chosen settings."""
        task = next(iter(self._tasks.values()))
        network = default_network(task, **section.model_dump(exclude={"kind", "activation"}))
        kind = "two-layer network" if isinstance(network, TwoLayer) else "linear RNN"
        value = f"{kind}, {network.hidden_size} hidden units"
        self.chosen += (Choice("network", value, "default for these sizes", "network.hidden_size ..."),)
        return network


def task_of(section: kinds.TaskSection, name: str, folder: Path) -> Task:
    """Build the task of a section; `folder` holds the files that it names."""
    if isinstance(section, kinds.IntegrationSection | kinds.LeakyIntegrationSection):
        return FAMILIES[section.family].build(**section.model_dump(exclude={"family", "name", *kinds.RULES}), name=name)
    if isinstance(section, kinds.DataSection):
        options = section.model_dump(exclude={"data", "name", "reversed", *kinds.RULES}, exclude_none=True)
        task = from_file(folder / section.data, name=name, **options)
    elif isinstance(section, kinds.StaticSection):
        task = static(section.cross_correlation, section.input_correlation, name=name)
    elif isinstance(section, kinds.HierarchySection):
        task = _tree(section, name)
    else:
        task = _sensory(section, name)
    return reversed(task, name=name) if section.reversed else task


def _sensory(section: kinds.SensorySection, name: str) -> Task:
    functions = {key: value for key, value in vars(sensory).items() if inspect.isfunction(value) and key[0] != "_"}
    tasks = tuple(key for key in functions if inspect.signature(functions[key]).return_annotation == "Task")
    function = functions[one_of("task", section.task, tasks)]
    known = tuple(key for key in inspect.signature(function).parameters if key not in ("steps", "name"))
    parameters: dict[str, object] = {}
    for key, value in section.parameters.items():
        is_whole = isinstance(value, float) and value.is_integer()
        parameters[one_of(f"parameter of {section.task}", key, known)] = int(value) if is_whole else value  # type: ignore[arg-type]
    task: Task = function(section.steps, **parameters, name=name)
    return task


def _tree(section: kinds.HierarchySection, name: str) -> Task:
    tree = hierarchy(section.depth, form=section.form, name=name)
    if section.swap is not None:
        tree = tree.swapped(*section.swap)
    if section.shuffle is not None:
        tree = tree.shuffled(section.shuffle)
    return tree.renamed(name)
