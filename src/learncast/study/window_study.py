"""The study of a learnability window: a cell, its training, its task and what is diagnosed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.limits import check_bytes, check_made
from learncast._core.validation import FloatArray
from learncast.study.study_file import StudyFile, located
from learncast.study.window_sections import WindowStudySection
from learncast.tasks.delays import multi_lag_trials
from learncast.tasks.recorded.arrays import arrays_named
from learncast.tasks.recorded.targets import Targets, one_hot
from learncast.windows.options import Options, grouped

#: Inputs and targets, (sequences, steps, channels).
Sequences = tuple[FloatArray, FloatArray]


class WindowStudy(StudyFile[WindowStudySection]):
    """The study of a learnability window.

    Examples
    --------
    >>> import tempfile
    >>> from learncast.study import WindowStudy, new_study
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path, _ = new_study("window", f"{folder}/mine.toml")
    ...     study = WindowStudy.load(path)
    >>> study.name, study.settings()["optimizer"]["kind"]
    ('my window', 'adamw')
    """

    sections = WindowStudySection

    def settings(self) -> dict[str, dict[str, object]]:
        """Return the keyword arguments of the model, its optimiser and its training."""
        training, model, task = self.section.training, self.section.model, self.section.task
        # Four gates, and three copies: gradients and the two averages of an optimiser.
        model_bytes = 64 * model.hidden_size * (model.hidden_size + task.inputs) * (model.layers or 1)
        cell = f"{self.source}: a cell of {model.hidden_size:,} units"
        check_made(cell, model_bytes, remedy="make hidden_size smaller")
        batch_bytes = 8 * training.batch * task.steps * (task.inputs + model.hidden_size)
        check_bytes(f"{self.source}: a batch of {training.batch:,} sequences", batch_bytes, remedy="make batch smaller")
        own = training.model_dump(include={"learning_rate", "weight_decay", "momentum"}, exclude_none=True)
        return {
            "model": model.model_dump(exclude_none=True),
            "optimizer": {"kind": training.optimizer, **own},
            "training": training.model_dump(include={"steps", "batch", "clip", "seed"}),
        }

    def question(self) -> Options:
        """Return the three objects that `learncast.windows.window` takes, by keyword."""
        return grouped(self.section.window.model_dump(exclude={"sequences"}))

    def sequences(self) -> tuple[Sequences, Sequences]:
        """Return the training sequences and the held-out sequences for the diagnosis."""
        task = self.section.task
        with located(self.source, "task"):
            if task.data is not None:
                return self._recorded(self.folder / task.data)
            keys = {"steps", "lags", "coefficients", "noise_strength"}
            keywords: dict[str, Any] = {**task.model_dump(include=keys), "direction": task.inputs}
            rngs = np.random.default_rng(task.seed).spawn(2)
            numbers = (task.sequences, self.section.window.sequences)
            size = 8 * sum(numbers) * task.steps * (task.inputs + 1)
            check_bytes(f"{sum(numbers):,} sequences", size, remedy="use fewer or shorter ones")
            train, diagnose = (multi_lag_trials(n, rng, **keywords) for n, rng in zip(numbers, rngs, strict=True))
            return train, diagnose

    def _recorded(self, path: Path) -> tuple[Sequences, Sequences]:
        inputs, targets = sequences_from_file(path)
        number = self.section.window.sequences
        if inputs.ndim == 3:
            targets, are_labels, _ = Targets.of(targets, inputs.shape[:2], self.section.task.labels)
            targets = one_hot(targets)[0] if are_labels else targets
        if inputs.ndim != 3 or targets.shape[:2] != inputs.shape[:2] or targets.ndim != 3:
            shapes = f"{inputs.shape} and {targets.shape}"
            raise InvalidSpec(f"{path} must hold inputs and targets (sequences, steps, channels), got {shapes}.")
        if number >= len(inputs):
            raise InvalidSpec(f"{path} must hold more than {number} sequences, got {len(inputs)}.", field="sequences")
        return (inputs[:-number], targets[:-number]), (inputs[-number:], targets[-number:])

    def _tables(self) -> dict[str, object]:
        tables = super()._tables()
        if self.section.task.data is not None:
            tables["task"] = self.section.task.model_dump(include={"data", "labels"}, exclude_none=True)
        return tables


def sequences_from_file(path: Path) -> list[FloatArray]:
    """Return inputs and targets of an .npz file."""
    return arrays_named(path, "data", ("inputs", "targets"))
