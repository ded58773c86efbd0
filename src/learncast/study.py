"""The study file: a person's tasks, network and training, read from TOML and checked key by key."""

from __future__ import annotations

import inspect
import json
import math
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from learncast.dynamics.modes import modes
from learncast.dynamics.pooled import PooledProblem
from learncast.errors import InvalidSpec, LearncastError
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.tasks import sensory
from learncast.tasks.families import FAMILIES
from learncast.tasks.one_step import from_pairs, reversed, static
from learncast.tasks.task import Task
from learncast.tasks.trees import hierarchy
from learncast.validation import one_of, suggestion

PerChannel = float | list[float]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _underscored(value: Any) -> Any:
    return value.replace("-", "_") if isinstance(value, str) else repr(value)


class RecurrentSection(_Section):
    """A linear RNN."""

    kind: Literal["linear-rnn"] = "linear-rnn"
    hidden_size: int = Field(default=128, ge=1)
    recurrence: PerChannel = 0.96
    initial: PerChannel = 0.01
    output_initial: PerChannel | None = None
    weights: str | None = None


class TwoLayerSection(_Section):
    """A two-layer linear network, drawn balanced or independent."""

    kind: Literal["two-layer"]
    hidden_size: int = Field(default=16, ge=1)
    start: Literal["balanced", "random"] = "balanced"
    scale: float = Field(default=0.01, gt=0)
    imbalance: float = 0.0
    seed: int = Field(default=0, ge=0)
    weights: str | None = None


NetworkSection = RecurrentSection | TwoLayerSection
_NETWORKS: dict[str, type[_Section]] = {"linear-rnn": RecurrentSection, "two-layer": TwoLayerSection}


def _network_section(value: Any) -> Any:
    if isinstance(value, _Section):
        return value
    if not isinstance(value, dict):
        raise ValueError("a network is a table with a kind and its keys")
    kind = value.get("kind", "linear-rnn")
    if not isinstance(kind, str) or kind not in _NETWORKS:
        hint = suggestion(str(kind), tuple(_NETWORKS))
        raise ValueError(f"kind must be one of {', '.join(_NETWORKS)}, not {kind!r}" + (f"; {hint}" if hint else ""))
    return _NETWORKS[kind].model_validate(value)


class TrainingSection(_Section):
    """How it is trained."""

    learning_rate: float = Field(gt=0)
    accuracy: float = Field(default=0.99, ge=0, le=1)
    max_stages: int = Field(default=2, ge=1, le=2)
    learn: list[Literal["input", "recurrent", "output", "first", "second"]] | None = None
    horizons: list[Annotated[int, Field(ge=1)]] = []


class FamilySection(_Section):
    """What every family of tasks shares."""

    name: str | None = None
    steps: int = Field(default=50, ge=1)
    mixing: list[list[float]] | None = None
    targets: Annotated[Literal["end", "every_step"], BeforeValidator(_underscored)] = "end"


class IntegrationSection(FamilySection):
    """A task of the integration family."""

    family: Literal["integration"]
    input_strength: PerChannel = 1.0
    target_strength: PerChannel = 1.0


class LeakyIntegrationSection(FamilySection):
    """A task of the leaky-integration family."""

    family: Annotated[Literal["leaky_integration"], BeforeValidator(_underscored)]
    timescale: PerChannel = 10.0
    correlation: PerChannel = 0.0
    noise_strength: PerChannel = 1.0
    gain: PerChannel = 1.0


class StaticSection(_Section):
    """A static task given by its correlations."""

    name: str | None = None
    family: Literal["static"]
    cross_correlation: list[list[float]]
    input_correlation: list[list[float]] | None = None
    reversed: bool = False


class HierarchySection(_Section):
    """A tree of items, possibly revised."""

    name: str | None = None
    family: Literal["hierarchy"]
    depth: int = Field(default=3, ge=1, le=12)
    form: Literal["signed", "membership"] = "signed"
    swap: tuple[int | tuple[int, int], int | tuple[int, int]] | None = None
    shuffle: list[int] | None = None
    reversed: bool = False


class SensorySection(_Section):
    """A sensory task: one of `learncast.tasks.sensory`, with its own parameters."""

    name: str | None = None
    family: Literal["sensory"]
    task: str
    steps: int = Field(default=10, ge=1)
    parameters: dict[str, float] = {}
    reversed: bool = False


class DataSection(_Section):
    """A task recorded in a file."""

    name: str | None = None
    data: str
    centre: bool = False
    reversed: bool = False


TaskSection = (
    IntegrationSection | LeakyIntegrationSection | StaticSection | HierarchySection | SensorySection | DataSection
)
_SECTIONS: dict[str, type[_Section]] = {
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
    family = _underscored(value.get("family"))
    if family not in _SECTIONS:
        hint = suggestion(str(family), tuple(_SECTIONS))
        raise ValueError(
            f"family must be one of {', '.join(_SECTIONS)} (or give data = 'file.npz'), not {value.get('family')!r}"
            + (f"; {hint}" if hint else "")
        )
    return _SECTIONS[family].model_validate(value)


Chosen = Annotated[TaskSection, BeforeValidator(_task_section)]


class StageSection(_Section):
    """One stage of a sequence: a task, and how long it is trained."""

    train_steps: float | None = Field(default=None, ge=0)
    task: Chosen


def _stage_section(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError("a stage is a table with a task's keys and, if it should not converge, train_steps")
    return {"train_steps": value.get("train_steps"), "task": {k: v for k, v in value.items() if k != "train_steps"}}


class StudySection(_Section):
    """The whole file."""

    name: str = "study"
    network: Annotated[NetworkSection, BeforeValidator(_network_section)] = RecurrentSection()
    training: TrainingSection
    target: Chosen | None = None
    candidates: list[Chosen] = []
    sequence: list[Annotated[StageSection, BeforeValidator(_stage_section)]] = []

    @model_validator(mode="after")
    def _names_differ(self) -> StudySection:
        for tasks in (
            [self.target, *self.candidates] if self.target else self.candidates,
            [stage.task for stage in self.sequence],
        ):
            stage = bool(self.sequence) and tasks[:1] == [self.sequence[0].task]
            names = [_name(section, k, stage=stage) for k, section in enumerate(tasks)]
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"two tasks are called {name!r}; give each its own name")
        if self.target is None and not self.sequence:
            raise ValueError("a study needs a [target] (to forecast or plan for) or a [[sequence]] (to forget)")
        if self.candidates and self.target is None:
            raise ValueError("[[candidates]] need a [target]")
        return self


def _name(section: TaskSection, index: int, *, stage: bool = False) -> str:
    if section.name is not None:
        return section.name
    if isinstance(section, DataSection):
        return Path(section.data).stem
    if stage:
        return f"task {index + 1}"
    return "target" if index == 0 else f"candidate {index}"


class Study:
    """A study file with everything it names, built and checked.

    Attributes
    ----------
    name : str
    network : LinearRNN or TwoLayer
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
        self.max_stages = section.training.max_stages
        self.horizons = tuple(section.training.horizons)
        self._target = (
            None if section.target is None else self._task(section.target, _name(section.target, 0), "[target]")
        )
        self.candidates = tuple(
            self._task(candidate, _name(candidate, k), f"[[candidates]] number {k}")
            for k, candidate in enumerate(section.candidates, start=1)
        )
        self.sequence = tuple(
            (
                self._task(stage.task, _name(stage.task, k, stage=True), f"[[sequence]] number {k + 1}"),
                math.inf if stage.train_steps is None else stage.train_steps,
            )
            for k, stage in enumerate(section.sequence)
        )
        with _located(source, "[network]"):
            self.network = self._network(section.network)
        self._check_fit()

    def _check_fit(self) -> None:
        """Refuse tasks that the network cannot be trained on, naming them by file and key."""
        keyed = [] if self._target is None else [("[network] and [target]", self._target)]
        keyed += [(f"[network] and [[candidates]] number {k}", t) for k, t in enumerate(self.candidates, start=1)]
        keyed += [(f"[network] and [[sequence]] number {k}", t) for k, (t, _) in enumerate(self.sequence, start=1)]
        for key, task in keyed:
            with _located(self.source, key):
                PooledProblem.of(task, self.network)
                if isinstance(self.network, LinearRNN):
                    modes(task, self.network)

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
        return ("input", "output") if isinstance(self.network, LinearRNN) else ("first", "second")

    @property
    def recurrent_network(self) -> LinearRNN:
        """The network, where the question needs a recurrent one."""
        if not isinstance(self.network, LinearRNN):
            raise InvalidSpec(
                required=f'{self.source}, [network]: kind must be "linear-rnn"',
                got=f"{self.section.network.kind!r}",
                why="curricula are planned mode by mode for linear RNNs",
                remedy="describe the network as a linear RNN, or ask `learncast forecast` or `learncast forget`",
            )
        return self.network

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """Read and check a study file."""
        source = Path(path)
        if not source.is_file():
            raise InvalidSpec(
                required="the study file must exist",
                got=f"no file {source}",
                why="there is nothing to forecast",
                remedy="check the path",
            )
        try:
            raw = tomllib.loads(source.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidSpec(
                required=f"{source} must be a TOML file",
                got=str(error),
                why="it cannot be read",
                remedy="correct the line it names",
            ) from error
        return cls.from_dict(raw, folder=source.parent, source=str(source))

    @classmethod
    def from_dict(cls, raw: dict[str, Any], *, folder: Path, source: str) -> Study:
        """Check a study given as a dictionary; files it names are looked for in `folder`."""
        try:
            section = StudySection.model_validate(raw)
        except ValidationError as error:
            raise _first_problem(error, raw, source) from error
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
        tables["sequence"] = [{"train_steps": s["train_steps"], **s["task"]} for s in tables["sequence"]]
        return to_toml({key: value for key, value in _without_none(tables).items() if value != []})

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
        with _located(self.source, key):
            if isinstance(section, DataSection):
                task = task_from_file(self.folder / section.data, name=name, centre=section.centre)
            elif isinstance(section, StaticSection):
                task = static(section.cross_correlation, section.input_correlation, name=name)
            elif isinstance(section, HierarchySection):
                task = _tree(section, name)
            elif isinstance(section, SensorySection):
                task = _sensory(section, name)
            else:
                keywords = section.model_dump(exclude={"family", "name"})
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
    whole = {key: int(value) if value == int(value) else value for key, value in section.parameters.items()}
    task: Task = make(section.steps, **whole, name=name)
    return task


def _tree(section: HierarchySection, name: str) -> Task:
    tree = hierarchy(section.depth, form=section.form, name=name)
    if section.swap is not None:
        tree = tree.swapped(*section.swap)
    if section.shuffle is not None:
        tree = tree.shuffled(section.shuffle)
    return tree.renamed(name)


def task_from_file(path: Path, *, name: str, centre: bool = False) -> Task:
    """Build a task from recorded trials (inputs, targets) or from statistics in an .npz file."""
    arrays = _arrays(path, "data")
    if {"inputs", "targets"} <= arrays.keys():
        if arrays["inputs"].ndim == 2:
            return from_pairs(arrays["inputs"], arrays["targets"], name=name, centre=centre)
        return Task.from_samples(arrays["inputs"], arrays["targets"], name=name, centre=centre)
    if {"input_covariance", "cross_covariance"} <= arrays.keys():
        return Task(arrays["input_covariance"], arrays["cross_covariance"], arrays.get("target_covariance"), name=name)
    raise InvalidSpec(
        required=f"{path} must hold inputs and targets, or input_covariance and cross_covariance",
        got=f"arrays {', '.join(sorted(arrays)) or 'none'}",
        why="a task is made of one or the other",
        remedy="save it with np.savez(file, inputs=..., targets=...)",
    )


def network_from_file(path: Path) -> LinearRNN:
    """Build a network from input_weights, recurrent_weights and output_weights in .npz or .safetensors."""
    return LinearRNN(*_weights(path, ("input_weights", "recurrent_weights", "output_weights")))


def two_layer_from_file(path: Path) -> TwoLayer:
    """Build a network from first and second in .npz or .safetensors."""
    return TwoLayer(*_weights(path, ("first", "second")))


def _weights(path: Path, wanted: tuple[str, ...]) -> list[Any]:
    arrays = _arrays(path, "weights")
    missing = [key for key in wanted if key not in arrays]
    if missing:
        raise InvalidSpec(
            required=f"{path} must hold {', '.join(wanted)}",
            got=f"arrays {', '.join(sorted(arrays)) or 'none'}",
            why="such a network has these",
            remedy=f"add {', '.join(missing)}",
        )
    return [arrays[key] for key in wanted]


def _arrays(path: Path, key: str) -> dict[str, Any]:
    if not path.is_file():
        raise InvalidSpec(
            required=f"the file that {key} names must exist",
            got=f"no file {path}",
            why="its arrays are needed",
            remedy="give its path relative to the study file",
        )
    readers: dict[str, Callable[[Path], dict[str, Any]]] = {".npz": _read_npz, ".safetensors": _read_safetensors}
    if path.suffix not in readers:
        raise InvalidSpec(
            required=f"{key} must be a file of kind {' or '.join(readers)}",
            got=path.name,
            why="other kinds cannot be read",
            remedy="convert it, e.g. with np.savez",
        )
    return readers[path.suffix](path)


def _read_npz(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it holds a single array without a name")
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise _unreadable(path, error) from error


def _read_safetensors(path: Path) -> dict[str, Any]:
    try:
        from safetensors.numpy import load_file
    except ImportError as error:
        raise InvalidSpec(
            required="safetensors must be installed to read .safetensors files",
            got="no such package",
            why="it is part of the torch extra",
            remedy="pip install 'learncast[torch]', or save the weights as .npz",
        ) from error
    from safetensors import SafetensorError

    try:
        return dict(load_file(path))
    except (OSError, TypeError, ValueError, SafetensorError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> InvalidSpec:
    return InvalidSpec(
        required=f"{path} must be readable",
        got=f"{type(error).__name__}: {error}",
        why="it is damaged or of another kind",
        remedy="write it again",
    )


@contextmanager
def _located(source: str, key: str) -> Iterator[None]:
    """Say in which file and key a problem lies."""
    try:
        yield
    except LearncastError as error:
        raise InvalidSpec(
            required=f"{source}, {key}: {error.required}", got=error.got, why=error.why, remedy=error.remedy
        ) from error


def _first_problem(error: ValidationError, raw: dict[str, Any], source: str) -> InvalidSpec:
    """Turn pydantic's first complaint into one sentence with file, key and reason."""
    problems = error.errors(include_url=False)
    # A misspelt required key is both unknown and missing: the first says more.
    problem = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    words = [str(part) for part in problem["loc"] if part not in _UNION_TAGS]
    if words[:1] == ["sequence"] and words[2:3] == ["task"]:
        del words[2]
    key = ".".join(words) or "the file"
    got = "nothing" if problem["type"] == "missing" else _shortened(problem.get("input"))
    if problem["type"] == "extra_forbidden":
        known = _keys_beside(problem["loc"], raw)
        return InvalidSpec(
            required=f"{source}: {key} must be a known key",
            got=f"{words[-1]} = {got}",
            why="a misspelt key would be ignored silently",
            remedy=suggestion(words[-1], known) or f"use one of {', '.join(known)}",
        )
    reason = str(problem["msg"]).removeprefix("Value error, ")
    return InvalidSpec(
        required=f"{source}: {key} must be valid",
        got=got,
        why=reason[:1].lower() + reason[1:],
        remedy=f"give {key}" if problem["type"] == "missing" else f"correct {key}",
    )


#: What pydantic puts into a location to tell apart the members of a union.
_UNION_TAGS = ("float", "int", "list[float]", "tuple[int, int]")


def _keys_beside(loc: tuple[Any, ...], raw: Any) -> tuple[str, ...]:
    """Keys that are allowed where an unknown one was found."""
    if len(loc) == 1:
        return tuple(StudySection.model_fields)
    if loc[0] == "training":
        return tuple(TrainingSection.model_fields)
    for part in loc[:-1]:
        raw = raw if part == "task" and loc[0] == "sequence" else raw[part]
    if loc[0] == "network":
        return tuple(_NETWORKS[raw.get("kind", "linear-rnn")].model_fields)
    section = DataSection if "data" in raw else _SECTIONS[_underscored(raw["family"])]
    return (*section.model_fields, *(("train_steps",) if loc[0] == "sequence" else ()))


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def to_toml(tables: dict[str, Any]) -> str:
    """Write nested tables of numbers, words and lists as TOML."""
    lines = [f"{key} = {_toml_value(value)}" for key, value in tables.items() if not _is_table(value)]
    for key, value in tables.items():
        if isinstance(value, dict):
            lines += ["", f"[{key}]", to_toml(value).strip()]
        elif _is_table(value):
            for item in value:
                lines += ["", f"[[{key}]]", to_toml(item).strip()]
    return "\n".join(lines) + "\n"


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's too; TOML also forbids a bare DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(value)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list) else value
