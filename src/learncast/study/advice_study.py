"""The study file of advice: a model that is trained whole, the trials it trains on, and the goal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from learncast._core.errors import InvalidSpec
from learncast._core.limits import check_made
from learncast.procedure.goals import Explained, Goal, Loss
from learncast.procedure.training import Training
from learncast.study.sections import Chosen, DataSection, NamedSection, task_name
from learncast.study.study import task_of
from learncast.study.study_file import Section, StudyFile, located
from learncast.tasks.recorded.arrays import arrays_from
from learncast.tasks.recorded.environments import EnvironmentTrials, made_environment
from learncast.tasks.recorded.files import trial_arrays
from learncast.tasks.recorded.labels import one_hot
from learncast.tasks.recorded.tables import SUFFIXES

#: Keys of a model that belong to some kinds alone.
KEYS = {
    "layers": ("gru", "lstm", "rnn"),
    "nonlinearity": ("rnn", "rate"),
    "alpha": ("rate",),
    "recurrence": ("rate",),
    "rank": ("rate",),
    "excitatory": ("rate",),
    "gain": ("rate",),
    "gate": ("minimal_gru",),
}
#: Keys of a data section that change trials, which are trained on as they were recorded.
CHANGES = ("centre", "scale", "reversed", "trial", "step", "at")


class TrainedModelSection(Section):
    """A recurrent layer with a linear readout."""

    kind: Literal["gru", "lstm", "rnn", "rate", "minimal_gru", "lru"] = "gru"
    """torch's cells, the leaky rate network, the minimal GRU or the linear recurrent unit."""
    hidden_size: int = Field(default=64, ge=1)
    """Hidden units."""
    outputs: int | None = Field(default=None, ge=1)
    """Outputs of the readout; those of the targets where it is left out."""
    layers: int | None = Field(default=None, ge=1)
    """Layers of torch's cells."""
    nonlinearity: str | None = None
    """What units do to their input."""
    alpha: float | None = Field(default=None, gt=0, le=1)
    """Leak of a rate network: h <- (1 - alpha) h + alpha f(W h + U x + b)."""
    recurrence: Literal["full", "low_rank", "dale"] | None = None
    """Kind of recurrent matrix of a rate network."""
    rank: int | None = Field(default=None, ge=1)
    """Of a low-rank recurrence."""
    excitatory: float | None = Field(default=None, ge=0, le=1)
    """Share of excitatory units under Dale's law."""
    gain: float | None = Field(default=None, gt=0)
    """Size of the recurrent weights before training; at 1 activity neither dies nor explodes."""
    gate: float | None = Field(default=None, gt=0, lt=1)
    """Where gates start."""
    seed: int = Field(default=0, ge=0)
    """Of the weights."""

    @model_validator(mode="after")
    def _keys_fit_the_kind(self) -> TrainedModelSection:
        for key, kinds in KEYS.items():
            if getattr(self, key) is not None and self.kind not in kinds:
                raise ValueError(f"{key} is a key of {' and '.join(kinds)}, not of {self.kind}")
        return self


class UserTrainingSection(Section):
    """How the model is trained."""

    optimizer: Literal["sgd", "momentum", "adam", "adamw", "rmsprop"] = "adam"
    """Which optimiser."""
    learning_rate: float = Field(gt=0)
    """Step size; 1 / steps."""
    batch: int | None = Field(default=None, ge=1)
    """Trials of a step."""
    loss: Literal["half_squared_error", "mean_squared_error", "cross_entropy"] = "half_squared_error"
    """What is descended."""
    clip: float | None = Field(default=None, gt=0)
    """Largest norm of a gradient."""
    weight_decay: float | None = Field(default=None, ge=0)
    """The optimiser's own where it is left out."""
    reset_optimizer: bool = True
    """Begin every stage with a fresh optimiser."""
    seed: int = Field(default=0, ge=0)
    """Of the batches."""


class GoalSection(Section):
    """When the target counts as learned: a share of right decisions, a loss, or a share of the loss."""

    decisions: float | None = Field(default=None, gt=0, le=1)
    """Share of right decisions on held-out trials."""
    loss: float | None = Field(default=None, gt=0)
    """Loss on held-out trials."""
    accuracy: float | None = Field(default=None, ge=0, le=1)
    """Share of what the loss can lose."""
    steps: list[int] | None = None
    """Time steps that are judged; all that count where it is left out."""
    outputs: list[int] | None = None
    """Outputs among which is decided."""
    ignore: int | None = Field(default=None, ge=0)
    """Label of steps at which nothing is decided, such as fixation."""

    @model_validator(mode="after")
    def _one_goal(self) -> GoalSection:
        if sum(value is not None for value in (self.decisions, self.loss, self.accuracy)) != 1:
            raise ValueError("a goal is one of decisions, loss and accuracy (of the loss)")
        for key in ("steps", "outputs", "ignore"):
            if getattr(self, key) is not None and self.decisions is None:
                raise ValueError(f"{key} says which decisions count; the goal is no decision")
        return self


class EnvironmentSection(NamedSection):
    """Trials of an environment, by its id and its keywords."""

    environment: str
    """Its id, such as neurogym's."""
    options: dict[str, Any] = Field(default={})
    """Its keywords."""


def _trial_section(value: Any) -> Any:
    return EnvironmentSection.model_validate(value) if isinstance(value, dict) and "environment" in value else value


class AdviceStudySection(Section):
    """The whole file."""

    absence: ClassVar[str] = "there is nothing to advise on"

    name: str = "advice"
    """What to call the study."""
    model: TrainedModelSection = TrainedModelSection()
    training: UserTrainingSection
    goal: GoalSection = GoalSection(accuracy=0.95)
    target: Annotated[EnvironmentSection | Chosen, BeforeValidator(_trial_section)]
    candidates: list[Annotated[EnvironmentSection | Chosen, BeforeValidator(_trial_section)]] = Field(min_length=1)


class AdviceStudy(StudyFile[AdviceStudySection]):
    """The study file of advice, with everything it names built when it is asked for.

    Examples
    --------
    >>> from pathlib import Path
    >>> from learncast.study import AdviceStudy
    >>> slow = {"name": "slow", "family": "leaky-integration", "steps": 12, "timescale": 10.0}
    >>> tables = {
    ...     "name": "slow and quick evidence",
    ...     "training": {"learning_rate": 0.01},
    ...     "target": slow,
    ...     "candidates": [{**slow, "name": "quick", "timescale": 2.0}],
    ... }
    >>> study = AdviceStudy.from_dict(tables, folder=Path(), source="my study")
    >>> study.name, study.section.training.optimizer
    ('slow and quick evidence', 'adam')
    """

    sections = AdviceStudySection

    @property
    def name(self) -> str:
        """What it is called."""
        return self.section.name

    def question(self) -> dict[str, Any]:
        """Keywords of `learncast.advise`."""
        from learncast.training.goals import DecisionAccuracy

        named = [self.section.target, *self.section.candidates]
        sources = [self._trials(one, k) for k, one in enumerate(named)]
        goal, training = self.section.goal, self.section.training
        if goal.decisions is not None:
            meant: Goal = DecisionAccuracy(goal.decisions, goal.steps, goal.outputs, goal.ignore)
        else:
            meant = Loss(goal.loss) if goal.loss is not None else Explained(goal.accuracy or 0.0)
        settings = training.model_dump(exclude={"batch", "optimizer", "loss", "learning_rate"})
        names = {"sgd": "gd", "half_squared_error": "half_mse", "mean_squared_error": "mse"}
        how = Training(
            training.learning_rate,
            batch=training.batch if training.batch is not None else 64,
            optimizer=names.get(training.optimizer, training.optimizer),
            loss=names.get(training.loss, training.loss),
            **settings,
        )
        with located(self.source, "[model] and [target]"):
            model = self._model(sources[0])
        candidates = {one.name: one for one in sources[1:]}
        if len(candidates) < len(sources) - 1:
            raise InvalidSpec(
                f"{self.source}: candidates must have names of their own, got "
                f"{', '.join(one.name for one in sources[1:])}."
            )
        return {"model": model, "target": sources[0], "candidates": candidates, "training": how, "goal": meant}

    def _trials(self, section: Any, place: int) -> Any:
        from learncast.training.sources import trials

        key = "[target]" if place == 0 else f"[[candidates]] number {place}"
        with located(self.source, key):
            if isinstance(section, EnvironmentSection):
                made = made_environment(section.environment, section.options)
                return trials(EnvironmentTrials(made, called=section.name or section.environment))
            name = task_name(section, place)
            if isinstance(section, DataSection):
                return _recorded(self.folder / section.data, section, name)
            return trials(task_of(section, name, self.folder))

    def _model(self, target: Any) -> Any:
        from learncast.training.modules import gated_module

        section, sizes = self.section.model, target.sizes
        outputs = sizes["outputs"] if section.outputs is None else section.outputs
        taken = 64 * section.hidden_size**2 * (section.layers or 1)
        check_made(f"a model of {section.hidden_size:,} units", taken, remedy="make hidden_size smaller")
        options = section.model_dump(exclude={"kind", "hidden_size", "outputs", "layers"}, exclude_none=True)
        if section.layers is not None:
            options["num_layers"] = section.layers
        own = {**sizes, "outputs": outputs, "hidden_size": section.hidden_size}
        return gated_module(section.kind, **own, **options)

    def _tables(self) -> dict[str, Any]:
        tables = super()._tables()
        for one in (tables["target"], *tables["candidates"]):
            one.pop("cost", None)
        return tables


def _recorded(path: Path, section: DataSection, name: str) -> Any:
    """The trials of a file as they were recorded, a fifth of them set aside to judge by."""
    from learncast.training.sources import trials

    changed = [key for key in CHANGES if key in section.model_fields_set]
    if changed or path.suffix.lower() in SUFFIXES:
        raise InvalidSpec(
            required="recorded trials must be arrays that are trained on as they are",
            got=f"{changed[0]} = {getattr(section, changed[0])!r}" if changed else path.name,
            why="the model is trained on the trials themselves, not on their statistics",
            remedy="save them as they should be with np.savez(file, inputs=..., labels=...)",
        )
    named = {key: getattr(section, key) for key in ("inputs", "targets", "labels", "mask", "lengths")}
    arrays = arrays_from(path, "data", most_bytes=section.most_bytes)
    found = trial_arrays(arrays, {key: value for key, value in named.items() if value is not None})
    if "inputs" not in found or ("targets" not in found and "labels" not in found):
        raise InvalidSpec(
            f"{path} must hold inputs, and targets or labels, got {', '.join(sorted(found)) or 'neither'}. "
            "Save them with np.savez(file, inputs=..., labels=...)."
        )
    wanted = found.get("targets")
    if wanted is None:
        wanted = one_hot(found["labels"], section.classes)[0].argmax(-1)
    said = {key: found[key] for key in ("mask", "lengths") if key in found}
    return trials((found["inputs"], wanted), **said, held_out=0.2, name=name)
