"""How alike two tasks are: the angles between their geometries and the ratios of their strengths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import subspace_angles

from learncast.errors import InvalidSpec
from learncast.tasks.geometry import Frame, common_frame
from learncast.tasks.task import Task
from learncast.validation import FloatArray

#: Share of the strongest mode's strength below which a mode is not part of a task.
ABSENT = 1e-8


@dataclass(frozen=True)
class TaskSimilarity:
    """Comparison of a second task with a first.

    Attributes
    ----------
    input_angles, output_angles : radians
        Principal angles between the input (output) directions that carry the two tasks; 0 is the same
        subspace, pi/2 an orthogonal direction.
    mismatch : float
        Share of the second task's cross covariance that lies off the diagonal in the first task's frame:
        0 when the two have the same geometry, as exact curricula need, 1 when nothing is shared.
    cross_ratio, input_ratio : (modes,)
        Strength of the second task over the first, mode by mode of the first: root-mean-square s_yx over
        steps (negative where the tasks ask for opposite signs), and mean variance s_xx over steps; nan for a mode
        the first task does not have.
    """

    input_angles: FloatArray
    output_angles: FloatArray
    mismatch: float
    cross_ratio: FloatArray
    input_ratio: FloatArray

    def __repr__(self) -> str:
        degrees = np.degrees(np.concatenate([self.input_angles, self.output_angles]))
        return (
            f"<TaskSimilarity: largest angle {degrees.max(initial=0.0):.1f} degrees, mismatch "
            f"{self.mismatch:.2g}, cross ratio {np.round(self.cross_ratio, 4)}, "
            f"input ratio {np.round(self.input_ratio, 4)}>"
        )


def similarity(first: Task, second: Task) -> TaskSimilarity:
    """Measure how the geometry and the strengths of `second` differ from those of `first`."""
    if (first.inputs, first.outputs) != (second.inputs, second.outputs):
        raise InvalidSpec(
            required="two tasks must have the same inputs and outputs to be compared",
            got=f"{first.inputs}->{first.outputs} and {second.inputs}->{second.outputs}",
            why="directions of different spaces have no angle",
            remedy="compare tasks of one network",
        )
    frame = common_frame([first, second])
    one, other = (mode_strengths(task, frame) for task in (first, second))
    carried = [_carried(task) for task in (first, second)]
    rotated = second.cross_covariance.rotated(frame.inputs, frame.outputs)
    with np.errstate(divide="ignore", invalid="ignore"):
        present = one[0] > ABSENT * one[0].max(initial=0.0)
        cross_ratio = np.where(present, _same_sign(first, second, frame) * other[0] / one[0], np.nan)
        input_ratio = np.where(one[1] > 0, other[1] / one[1], np.nan)
    return TaskSimilarity(
        input_angles=_angles(carried[0][0], carried[1][0]),
        output_angles=_angles(carried[0][1], carried[1][1]),
        mismatch=share(rotated.off_diagonal_norm(), rotated.norm()),
        cross_ratio=cross_ratio,
        input_ratio=input_ratio,
    )


def mode_strengths(task: Task, frame: Frame) -> tuple[FloatArray, FloatArray]:
    """Root-mean-square s_yx and mean variance s_xx of each mode over the steps of a trial."""
    cross = task.cross_covariance.rotated(frame.mode_inputs, frame.mode_outputs).diagonal()
    inputs = task.input_covariance.contracted(np.eye(task.steps) / task.steps)
    variances = np.einsum("nk,nm,mk->k", frame.mode_inputs, inputs, frame.mode_inputs)
    readouts = cross.shape[2]
    live = task.steps * readouts if readouts == 1 else task.steps * (task.steps + 1) / 2
    return np.sqrt((cross**2).sum(axis=(1, 2)) / live), variances


def _same_sign(first: Task, second: Task, frame: Frame) -> FloatArray:
    """1 for each mode in which the tasks ask for the same sign, summed over steps; -1 for the opposite."""
    sums = [
        task.cross_covariance.rotated(frame.mode_inputs, frame.mode_outputs).diagonal().sum(axis=(1, 2))
        for task in (first, second)
    ]
    return np.where(sums[0] * sums[1] < 0, -1.0, 1.0)


def share(part: float, whole: float) -> float:
    """Return part / whole, 0 when there is no whole."""
    return part / whole if whole > 0 else 0.0


def _carried(task: Task) -> tuple[FloatArray, FloatArray]:
    frame = common_frame([task])
    strengths, _ = mode_strengths(task, frame)
    present = strengths > ABSENT * strengths.max(initial=0.0)
    return frame.mode_inputs[:, present], frame.mode_outputs[:, present]


def _angles(one: FloatArray, other: FloatArray) -> FloatArray:
    if not one.shape[1] or not other.shape[1]:
        return np.zeros(0)
    return np.asarray(subspace_angles(one, other))
