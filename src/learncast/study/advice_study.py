"""The study of advice: a model, the trials it is trained on, and the goal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from learncast._core.errors import InvalidSpec
from learncast._core.limits import check_made
from learncast.procedure.goals import Explained, Goal, Loss
from learncast.procedure.training import Training
from learncast.study.advice_sections import AdviceStudySection, EnvironmentSection
from learncast.study.sections import DataSection, TaskSection, task_name
from learncast.study.study import task_of
from learncast.study.study_file import StudyFile, located
from learncast.tasks.recorded.arrays import arrays_from
from learncast.tasks.recorded.environments import EnvironmentTrials, make_environment
from learncast.tasks.recorded.files import trial_arrays
from learncast.tasks.recorded.tables import SUFFIXES
from learncast.tasks.recorded.targets import one_hot

if TYPE_CHECKING:
    from learncast.training.modules import GatedModule
    from learncast.training.sources import Source

#: Keys of a data section that change the trials; a model is trained on trials as they were recorded.
CHANGES = ("centre", "scale", "reversed", "trial", "step", "at")


class AdviceStudy(StudyFile[AdviceStudySection]):
    """The study file of advice; the objects it names are built by `question`.

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

    def question(self) -> dict[str, object]:
        """Return the keyword arguments of `learncast.advise`."""
        from learncast.training.goals import DecisionAccuracy

        named = [self.section.target, *self.section.candidates]
        target, *others = [self._trials(one, k) for k, one in enumerate(named)]
        with located(self.source, "[model] and [target]"):
            model = self._model(target)
        candidates = {one.name: one for one in others}
        if len(candidates) < len(others):
            names = ", ".join(one.name for one in others)
            raise InvalidSpec(f"{self.source}: candidates must have different names, got {names}.", field="candidates")
        goal, training = self.section.goal, self.section.training
        if goal.decisions is not None:
            asked: Goal = DecisionAccuracy(goal.decisions, goal.steps, goal.outputs, goal.ignore)
        else:
            asked = Loss(goal.loss) if goal.loss is not None else Explained(goal.explained or 0.0)
        renamed = {"sgd": "gd", "half_squared_error": "half_mse", "mean_squared_error": "mse"}
        settings = Training(
            training.learning_rate,
            batch=training.batch if training.batch is not None else 64,
            optimizer=renamed.get(training.optimizer, training.optimizer),
            loss=renamed.get(training.loss, training.loss),
            **training.model_dump(exclude={"batch", "optimizer", "loss", "learning_rate"}),
        )
        return {"model": model, "target": target, "candidates": candidates, "training": settings, "goal": asked}

    def _trials(self, section: EnvironmentSection | TaskSection, index: int) -> Source:
        from learncast.training.sources import trials

        key = "[target]" if index == 0 else f"[[candidates]] number {index}"
        with located(self.source, key):
            if isinstance(section, EnvironmentSection):
                made = make_environment(section.environment, section.options)
                return trials(EnvironmentTrials(made, called=section.name or section.environment))
            name = task_name(section, index)
            if isinstance(section, DataSection):
                return _recorded(self.folder / section.data, section, name)
            return trials(task_of(section, name, self.folder))

    def _model(self, target: Source) -> GatedModule:
        from learncast.training.modules import gated_module

        section = self.section.model
        size = 64 * section.hidden_size**2 * (section.layers or 1)
        check_made(f"a model of {section.hidden_size:,} units", size, remedy="make hidden_size smaller")
        options = section.model_dump(exclude={"kind", "layers"}, exclude_none=True)
        if section.layers is not None:
            options["num_layers"] = section.layers
        return gated_module(section.kind, **{**target.sizes, **options})

    def _tables(self) -> dict[str, object]:
        tables = super()._tables()
        for one in (tables["target"], *tables["candidates"]):
            one.pop("cost", None)
        return tables


def _recorded(path: Path, section: DataSection, name: str) -> Source:
    """Return the trials of a file as they were recorded; a fifth of them is held out."""
    from learncast.training.sources import trials

    changed = [key for key in CHANGES if key in section.model_fields_set]
    if changed or path.suffix.lower() in SUFFIXES:
        got, field = (changed[0], changed[0]) if changed else (path.name, "data")
        remedy = "Save them with np.savez(file, inputs=..., labels=...)."
        raise InvalidSpec(f"a model is trained on arrays as recorded, got {got}. {remedy}", field=field)
    given = section.model_dump(include={"inputs", "targets", "labels", "mask", "lengths"}, exclude_none=True)
    names = {key: value for key, value in given.items() if not isinstance(value, bool)}
    arrays = trial_arrays(arrays_from(path, "data", most_bytes=section.most_bytes), names)
    if "inputs" not in arrays or ("targets" not in arrays and "labels" not in arrays):
        got = ", ".join(sorted(arrays)) or "none"
        raise InvalidSpec(f"{path} must hold inputs, and targets or labels, got {got}.", field="data")
    targets, labels = arrays.get("targets"), section.labels if isinstance(section.labels, bool) else None
    if targets is None:
        targets, labels = one_hot(arrays["labels"], section.classes)[0].argmax(-1), True
    masks = {key: arrays[key] for key in ("mask", "lengths") if key in arrays}
    return trials((arrays["inputs"], targets), **masks, labels=labels, held_out=0.2, name=name)
