"""Static tasks: one input, one target, no time between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from learncast.errors import InvalidSpec
from learncast.tasks.covariance import Covariance, Dense, Kronecker, Sampled
from learncast.tasks.recording import Recording
from learncast.tasks.task import Task
from learncast.validation import FloatArray, real_array

#: Share of the largest input variance below which a direction has no input.
SILENT = 1e-12


def static(
    cross_correlation: Any, input_correlation: Any = None, *, target_correlation: Any = None, name: str = "static"
) -> Task:
    """Make a task of one step from its correlations.

    Parameters
    ----------
    cross_correlation : (outputs, inputs)
        E[y x^T]. Note the order: as a network's map from inputs to outputs.
    input_correlation : (inputs, inputs), optional
        E[x x^T]; whitened inputs (the identity) by default.
    target_correlation : (outputs, outputs), optional
        E[y y^T]; by default that of targets which the inputs determine, so that the best loss is 0.
    name : str
    """
    cross = real_array("cross_correlation", cross_correlation, ndim=2)
    inputs = np.eye(cross.shape[1]) if input_correlation is None else input_correlation
    covariance = real_array("input_correlation", inputs, ndim=2)
    if target_correlation is None and covariance.shape == (cross.shape[1],) * 2:
        target_correlation = cross @ np.linalg.pinv(covariance, hermitian=True) @ cross.T
    return Task(covariance[None, :, None, :], cross.T[None], target_correlation, name=name)


def from_pairs(inputs: Any, targets: Any, *, centre: bool = False, name: str = "pairs") -> Task:
    """Make a task of one step from input-target pairs.

    Parameters
    ----------
    inputs : (pairs, inputs)
    targets : (pairs, outputs)
    centre : bool
        Subtract the means first; off by default, as in `Task.from_samples`.
    name : str
    """
    x = real_array("inputs", inputs, ndim=2)
    return Task.from_samples(x[:, None, :], real_array("targets", targets, ndim=2), centre=centre, name=name)


def reversed(task: Task, *, name: str | None = None) -> Task:
    """Ask for the opposite of every target."""
    flipped = _scaled(task.cross_covariance, -1.0)
    return Task.trusted(
        task.input_covariance,
        flipped,
        task.target_covariance,
        name=name or f"{task.name}, reversed",
        trials=task.trials,
        recording=_flipped(task.recording),
    )


def _flipped(recording: Recording | None) -> Recording | None:
    if recording is None or recording.blocks is None:
        return recording
    return Recording(recording.centred, recording.blocks.with_targets_times(-1.0))


def _scaled(covariance: Covariance, factor: float) -> Covariance:
    if isinstance(covariance, Kronecker):
        return Kronecker(covariance.time, factor * covariance.channel)
    if isinstance(covariance, Sampled):
        return Sampled(covariance.left, factor * covariance.right)
    return Dense(factor * covariance.dense())


@dataclass(frozen=True, eq=False)
class Whitened:
    """A static task in coordinates where its inputs are white, and the way back.

    Gradient descent is not the same in other coordinates: a network trained on whitened inputs follows another path to
    the same input-output map. Whiten the data for training too when the forecast should hold for it.

    Attributes
    ----------
    task : Task
        The same targets, asked of whitened inputs.
    transform : (white inputs, inputs)
        White input = transform @ input.
    """

    task: Task
    transform: FloatArray

    def inputs(self, inputs: Any) -> FloatArray:
        """Whiten inputs (pairs, inputs)."""
        return real_array("inputs", inputs, ndim=2) @ self.transform.T

    def first_weights(self, weights: Any) -> FloatArray:
        """First-layer weights for the user's own inputs, from those for whitened ones."""
        return real_array("weights", weights, ndim=2) @ self.transform

    def network_function(self, function: Any) -> FloatArray:
        """Input-output map for the user's own inputs, from that for whitened ones."""
        return real_array("function", function, ndim=2) @ self.transform


def whitened(task: Task) -> Whitened:
    """Change to coordinates in which a static task's inputs are white, dropping directions without input.

    The transform is the symmetric root of the inverse input correlation where that exists: the white coordinates are
    as close as possible to the original ones.
    """
    if task.steps != 1:
        raise InvalidSpec(
            required="only a static task (one step) can be whitened",
            got=f"{task.steps} steps",
            why="one change of coordinates cannot whiten correlations over time",
            remedy="use the recurrent theory, which takes time correlations as they are",
        )
    covariance = task.input_covariance.dense()[0, :, 0, :]
    values, vectors = np.linalg.eigh(covariance)
    live = values > SILENT * values.max(initial=0.0)
    if not live.any():
        raise InvalidSpec(
            required="a task must have an input that varies to be whitened",
            got="inputs without any variance",
            why="nothing can be scaled to unit variance",
            remedy="check the input correlation",
        )
    axes = vectors[:, live] / np.sqrt(values[live])
    transform = axes @ vectors.T if live.all() else axes.T
    cross = task.cross_covariance.rotated(transform.T, np.eye(task.outputs))
    white = Task.trusted(
        Dense(np.eye(len(transform))[None, :, None, :]),
        cross,
        task.target_covariance,
        name=f"{task.name}, whitened",
        trials=task.trials,
    )
    return Whitened(white, transform)
