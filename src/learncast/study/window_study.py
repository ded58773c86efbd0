"""The study file of a learnability window: a cell, its training, its task and what to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.limits import check_bytes, check_made
from learncast._core.validation import FloatArray
from learncast.study.sections import WindowStudySection
from learncast.study.study_file import StudyFile, located
from learncast.tasks.delays import multi_lag_trials
from learncast.tasks.recorded.arrays import arrays_named
from learncast.windows.options import Options, grouped


class WindowStudy(StudyFile[WindowStudySection]):
    """The study file of a learnability window.

    Examples
    --------
    >>> import tempfile
    >>> from learncast.study import WindowStudy
    >>> from learncast.study.beginning import begin
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (path,) = begin("window", f"{folder}/mine.toml")
    ...     study = WindowStudy.load(path)
    >>> study.name, study.settings()["optimizer"]["kind"]
    ('my window', 'adamw')
    """

    sections = WindowStudySection

    @property
    def name(self) -> str:
        """What it is called."""
        return self.section.name

    def settings(self) -> dict[str, dict[str, Any]]:
        """Keywords of the model, its optimiser and its training."""
        training, model = self.section.training, self.section.model
        # Four gates, and three copies: gradients and an optimiser's two averages.
        taken = 64 * model.hidden_size * (model.hidden_size + self.section.task.inputs) * (model.layers or 1)
        what = f"{self.source}: a cell of {model.hidden_size:,} units"
        check_made(what, taken, remedy="make hidden_size smaller")
        batch = 8 * training.batch * self.section.task.steps * (self.section.task.inputs + model.hidden_size)
        check_bytes(f"{self.source}: a batch of {training.batch:,} sequences", batch, remedy="make batch smaller")
        own = training.model_dump(include={"learning_rate", "weight_decay", "momentum"}, exclude_none=True)
        return {
            "model": self.section.model.model_dump(exclude_none=True),
            "optimizer": {"kind": training.optimizer, **own},
            "training": {key: getattr(training, key) for key in ("steps", "batch", "clip", "seed")},
        }

    def question(self) -> Options:
        """What is asked of the diagnosis: the three objects of `learncast.windows.window` by keyword."""
        return grouped(self.section.window.model_dump(exclude={"sequences"}))

    def sequences(self) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
        """Inputs and targets to train on, and others to diagnose on."""
        task = self.section.task
        with located(self.source, "task"):
            if task.data is not None:
                return self._recorded(self.folder / task.data)
            keys = {"steps", "lags", "coefficients", "noise_strength"}
            keywords: dict[str, Any] = {**task.model_dump(include=keys), "direction": task.inputs}
            rngs = np.random.default_rng(task.seed).spawn(2)
            train, diagnose = task.sequences, self.section.window.sequences
            taken = 8 * (train + diagnose) * task.steps * (task.inputs + 1)
            check_bytes(f"{train + diagnose:,} sequences", taken, remedy="draw fewer or shorter ones")
            return multi_lag_trials(train, rngs[0], **keywords), multi_lag_trials(diagnose, rngs[1], **keywords)

    def _recorded(self, path: Path) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
        inputs, targets = sequences_from_file(path)
        number = self.section.window.sequences
        if inputs.ndim != 3 or targets.shape[:2] != inputs.shape[:2] or targets.ndim != 3:
            raise InvalidSpec(
                f"{path} must hold inputs and targets of shape (sequences, steps, channels), got shapes "
                f"{inputs.shape} and {targets.shape}."
            )
        if number >= len(inputs):
            raise InvalidSpec(
                f"{path} must hold more than the {number} sequences that are diagnosed, got {len(inputs)}. Lower "
                "sequences in [window], or record more."
            )
        return (inputs[:-number], targets[:-number]), (inputs[-number:], targets[-number:])

    def _tables(self) -> dict[str, Any]:
        tables = super()._tables()
        if self.section.task.data is not None:
            tables["task"] = {"data": self.section.task.data}
        return tables


def sequences_from_file(path: Path) -> list[FloatArray]:
    """Inputs and targets from an .npz file."""
    return arrays_named(path, "data", ("inputs", "targets"))
