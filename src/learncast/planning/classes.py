"""What a network has learned of class labels: base rate, balanced accuracy, and the gain over a constant answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learncast.display import Table
from learncast.networks import Network
from learncast.tasks.task import Task


@dataclass(frozen=True)
class ClassSummary:
    """Decoding of class labels on the recorded trials; the largest output is the answer.

    Attributes
    ----------
    base_rate : float
        Share of the most frequent class: the accuracy of answering it always.
    accuracy : float
        Share of correct answers.
    balanced_accuracy : float
        Share of correct answers of each class, averaged over classes; chance is one over the number of classes.
    constant_r2 : float
        R² of the best constant answer, the mean target.
    explained_above_constant : float
        Share of the loss of the best constant answer that is removed.
    """

    base_rate: float
    accuracy: float
    balanced_accuracy: float
    constant_r2: float
    explained_above_constant: float

    @classmethod
    def of(cls, task: Task, network: Network) -> ClassSummary | None:
        """Decode the recorded trials of a task by a network; None if it has no labels or no trials are stored."""
        trials, recording = task.recorded_trials, task.recording
        if trials is None or recording is None or recording.classes is None:
            return None
        every = trials.targets.shape[1] > 1
        answers = network.respond(trials.inputs, every_step=every).reshape(trials.targets.shape)
        live, targets = trials.counted, trials.targets
        mean = recording.target_mean if trials.centred else 0.0
        true, chosen = (targets + mean)[live].argmax(axis=1), (answers + mean)[live].argmax(axis=1)
        shares = np.bincount(true, minlength=len(recording.classes)) / len(true)
        recalls = [float((chosen[true == k] == k).mean()) for k in np.flatnonzero(shares)]
        power, error = np.sum(targets[live] ** 2), np.sum((answers - targets)[live] ** 2)
        spread = np.sum((targets - targets.sum(axis=0) / np.maximum(live.sum(axis=0), 1)[:, None])[live] ** 2)
        return cls(
            base_rate=float(shares.max()),
            accuracy=float((true == chosen).mean()),
            balanced_accuracy=float(np.mean(recalls)),
            constant_r2=float(1 - spread / power),
            explained_above_constant=float(1 - error / spread) if spread > 0 else 0.0,
        )

    @property
    def table(self) -> Table:
        """The numbers, as a table."""
        names = {
            "accuracy": self.accuracy,
            "base rate (always the most frequent class)": self.base_rate,
            "balanced accuracy": self.balanced_accuracy,
            "R² of the best constant answer": self.constant_r2,
            "explained above the constant answer": self.explained_above_constant,
        }
        return Table("Classes at the goal", ("measure", "value"), [(k, f"{v:.3g}") for k, v in names.items()])
