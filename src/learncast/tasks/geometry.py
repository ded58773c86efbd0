"""The geometry of tasks: paired input and output directions in which one falls apart into modes and two compare."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, frozen
from learncast.tasks.task import Task

#: Eigenvalues (singular values) closer than this share of the largest are one group, whose directions are free.
TIE = 1e-9

#: Share of the strongest mode's strength below which a mode is not part of a task.
ABSENT = 1e-8

#: Share of a cross covariance off the diagonal of its frame up to which its directions stand still.
STATIC = 1e-8


@dataclass(frozen=True, eq=False)
class Frame:
    """Orthonormal input and output directions; mode k joins column k of the one to column k of the other.

    Attributes
    ----------
    inputs : (inputs, inputs)
        Input directions; those beyond the modes carry no target.
    outputs : (outputs, outputs)
        Output directions.
    """

    inputs: FloatArray
    outputs: FloatArray

    @property
    def modes(self) -> int:
        """Number of modes: the smaller of inputs and outputs."""
        return min(len(self.inputs), len(self.outputs))

    @property
    def mode_inputs(self) -> FloatArray:
        """Input directions of the modes, (inputs, modes)."""
        return self.inputs[:, : self.modes]

    @property
    def mode_outputs(self) -> FloatArray:
        """Output directions of the modes, (outputs, modes)."""
        return self.outputs[:, : self.modes]


def common_frame(
    tasks: Sequence[Task],
    *,
    maps: Iterable[FloatArray] = (),
    recurrence: float | None = None,
    reading: FloatArray | None = None,
) -> Frame:
    """Find the frame of the first task, leaving to the others what it does not decide.

    Where the first task is degenerate (equal strengths, or none) its singular vectors are not unique; an
    arbitrary choice there would make a network look misaligned that is not. Those directions are chosen to
    suit the first task's input covariance, then `maps`, (outputs, inputs) matrices such as a network's input-output
    maps, then the other tasks.

    Directions that turn over a trial are none of a frame's: the frame is then that of the inputs pooled by
    `recurrence`, where it is one number, which are all that such a network sees. Directions that carry no target are
    modes only where outputs are left for them: those that `reading`, (any, inputs), or the maps read come first.
    """
    maps = list(maps)
    reading = np.concatenate([np.zeros((0, tasks[0].inputs)) if reading is None else reading, *maps])
    frame = _framed(tasks, maps, reading)
    if recurrence is None or tasks[0].steps == 1:
        return frame
    cross = tasks[0].cross_covariance.rotated(frame.inputs, frame.outputs)
    if cross.off_diagonal_norm() <= STATIC * cross.norm():
        return frame
    # The static tasks that a network whose recurrence is one number sees.
    pooled = (pooled_statistics(task, recurrence) for task in tasks)
    return _framed([Task(power[None, :, None, :], cross[None]) for cross, power in pooled], maps, reading)


def _framed(tasks: Sequence[Task], maps: list[FloatArray], reading: FloatArray) -> Frame:
    groups = [np.eye(tasks[0].inputs)]
    for decider, symmetric in _deciders(tasks, maps):
        if all(group.shape[1] == 1 for group in groups):
            break
        groups = [part for group in groups for part in _split(group, decider, symmetric)]
    inputs = _reached_first(np.concatenate(groups, axis=1), tasks[0], reading)
    return Frame(inputs, _output_directions(tasks, maps, inputs))


def _reached_first(directions: FloatArray, task: Task, reading: FloatArray) -> FloatArray:
    """Directions that carry the target, then those that are read, then the rest."""
    if task.outputs >= task.inputs:
        return directions

    def felt(matrix: FloatArray) -> FloatArray:
        return np.linalg.norm(matrix.T @ directions, axis=0) > TIE * float(np.linalg.norm(matrix))

    carried, read = felt(task.cross_covariance.left_factor()), felt(reading.T)
    return directions[:, np.argsort(np.where(carried, 0, np.where(read, 1, 2)), kind="stable")]


def _deciders(tasks: Sequence[Task], maps: list[FloatArray]) -> Iterator[tuple[FloatArray, bool]]:
    """Matrices that tell the modes' input directions apart, most binding first, and whether each is symmetric.

    The directions are eigenvectors of the symmetric ones and left singular vectors of the others.
    """

    def pooled(task: Task) -> FloatArray:
        return task.cross_covariance.contracted(np.ones(task.cross_covariance.shape[::2]))

    def inputs(task: Task) -> Iterator[tuple[FloatArray, bool]]:
        yield task.input_covariance.contracted(np.eye(task.steps)), True
        yield task.input_covariance.contracted(np.ones((task.steps, task.steps))), True

    first, others = tasks[0], tasks[1:]
    yield first.cross_covariance.left_factor(), False
    yield from inputs(first)
    yield from ((m.T, False) for m in maps)
    yield from ((pooled(first) @ m, True) for m in maps)
    for task in others:
        yield task.cross_covariance.left_factor(), False
        yield pooled(first) @ pooled(task).T, True
        yield from inputs(task)


def _split(group: FloatArray, decider: FloatArray, symmetric: bool) -> list[FloatArray]:
    """Cut a degenerate group into the eigenspaces (or singular spaces) of a decider, strongest first."""
    scale = float(np.linalg.norm(decider))
    if group.shape[1] == 1 or scale == 0.0:
        return [group]
    if symmetric:
        inside = group.T @ decider @ group
        rising, vectors = np.linalg.eigh((inside + inside.T) / 2)
        values, vectors = rising[::-1], vectors[:, ::-1]
    else:
        vectors, found, _ = np.linalg.svd(group.T @ decider)
        values = np.zeros(group.shape[1])
        values[: len(found)] = found
    cuts = np.flatnonzero(values[:-1] - values[1:] > TIE * scale) + 1
    if not len(cuts):  # nothing to tell apart: keep the directions as they were
        return [group]
    return np.split(group @ vectors, cuts, axis=1)


def _output_directions(tasks: Sequence[Task], maps: list[FloatArray], inputs: FloatArray) -> FloatArray:
    """For each input direction the output direction that the first task, or what decides next, pairs with it."""
    outputs = tasks[0].outputs
    modes = min(len(inputs), outputs)
    found: list[FloatArray] = []
    for k in range(modes):
        direction = _paired_output(tasks, maps, inputs[:, k : k + 1])
        if direction is not None:
            # The directions of a task with static geometry are orthogonal already; of any other, made so.
            direction = _orthogonalised(direction, found)
        found.append(_completion(found, outputs) if direction is None else direction)
    while len(found) < outputs:
        found.append(_completion(found, outputs))
    return np.stack(found, axis=1)


def _paired_output(tasks: Sequence[Task], maps: list[FloatArray], direction: FloatArray) -> FloatArray | None:
    sources: list[Task | FloatArray] = [tasks[0], *maps, *tasks[1:]]
    for source in sources:
        if isinstance(source, Task):
            response = source.cross_covariance.rotated(direction, np.eye(source.outputs))
            factor, scale = response.transposed().left_factor(), source.cross_covariance.norm()
            mean = response.contracted(np.ones(response.shape[::2]))[0]
        else:
            factor, scale = source @ direction, float(np.linalg.norm(source))
            mean = factor[:, 0]
        vectors, values, _ = np.linalg.svd(factor, full_matrices=False)
        if values[0] > TIE * scale:
            return vectors[:, 0] if mean @ vectors[:, 0] >= 0 else -vectors[:, 0]
    return None


def _orthogonalised(direction: FloatArray, found: list[FloatArray]) -> FloatArray | None:
    for _ in range(2):  # twice: once leaves round-off when directions are nearly parallel
        for other in found:
            direction = direction - (other @ direction) * other
    length = float(np.linalg.norm(direction))
    return direction / length if length > np.sqrt(TIE) else None


def _completion(found: list[FloatArray], size: int) -> FloatArray:
    """A unit vector orthogonal to those found: the least covered coordinate axis, made orthogonal."""
    covered = np.sum(np.square(found), axis=0) if found else np.zeros(size)
    axis = np.zeros(size)
    axis[int(np.argmin(covered))] = 1.0
    completed = _orthogonalised(axis, found)
    assert completed is not None  # an axis covered least has length >= 1/size outside the span
    return completed


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

    Examples
    --------
    Tasks turned by 17 degrees have the same channels, but not the same modes. Exact curricula need a mismatch of 0:

    >>> import learncast as lc
    >>> import numpy as np
    >>> turn = np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
    >>> first, turned = (lc.tasks.static(np.diag([3.0, 1.0]) @ by) for by in (np.eye(2), turn))
    >>> found = lc.tasks.similarity(first, turned)
    >>> round(found.mismatch, 2), found.cross_ratio.round(2)
    (0.3, array([0.96, 0.96]))
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
    """Measure how the geometry and the strengths of `second` differ from those of `first`.

    Parameters
    ----------
    first : Task
        Whose modes are the measure.
    second : Task
        Of as many inputs and outputs.

    Returns
    -------
    TaskSimilarity
        Angles between their modes, and ratios of their strengths.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=10)
    >>> lc.tasks.similarity(task, task.varied(target_strength=2.0))
    <TaskSimilarity: largest angle 0.0 degrees, mismatch 0, cross ratio [2.], input ratio [1.]>
    """
    if (first.inputs, first.outputs) != (second.inputs, second.outputs):
        raise InvalidSpec(
            "two tasks must have the same inputs and outputs to be compared, got "
            f"{first.inputs}->{first.outputs} and {second.inputs}->{second.outputs}."
        )
    frame = common_frame([first, second])
    one, other = (mode_strengths(task, frame) for task in (first, second))
    sums = [_mode_courses(task, frame).sum(axis=(1, 2)) for task in (first, second)]
    signs = np.where(sums[0] * sums[1] < 0, -1.0, 1.0)  # -1 where the tasks ask for opposite ones, summed over steps
    carried = [_carried(task) for task in (first, second)]
    rotated = second.cross_covariance.rotated(frame.inputs, frame.outputs)
    with np.errstate(divide="ignore", invalid="ignore"):
        present = one[0] > ABSENT * one[0].max(initial=0.0)
        cross_ratio = np.where(present, signs * other[0] / one[0], np.nan)
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
    cross = _mode_courses(task, frame)
    inputs = task.input_covariance.contracted(np.eye(task.steps) / task.steps)
    variances = np.einsum("nk,nm,mk->k", frame.mode_inputs, inputs, frame.mode_inputs)
    readouts = cross.shape[2]
    live = task.steps * readouts if readouts == 1 else task.steps * (task.steps + 1) / 2
    return np.sqrt((cross**2).sum(axis=(1, 2)) / live), variances


def _mode_courses(task: Task, frame: Frame) -> FloatArray:
    """Cross covariance of each mode, (modes, steps, readouts)."""
    return task.cross_covariance.rotated(frame.mode_inputs, frame.mode_outputs).diagonal()


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
    return np.asarray(scipy.linalg.subspace_angles(one, other))


def recurrence_kernel(recurrence: float, steps: int, readouts: int) -> FloatArray:
    """Weight b^(r-t) with which input step t reaches readout step r >= t, (steps, readouts)."""
    with np.errstate(over="ignore"):
        powers = np.power(recurrence, np.arange(steps))  # 0^0 = 1: at b = 0 the last input counts alone
    if readouts == 1:
        return powers[::-1, None]
    # A view of one row that is moved on from step to step: long trials have no room for one matrix more.
    ahead = np.concatenate([np.zeros(steps - 1), powers])
    return np.lib.stride_tricks.sliding_window_view(ahead, steps)[::-1]


def pooling_kernel(recurrence: float, steps: int, readouts: int) -> FloatArray:
    """Weight of a pair of input steps in the pooled input's power, sum over r of b^(r-t) b^(r-t'), (steps, steps)."""
    if readouts == 1:
        last = recurrence_kernel(recurrence, steps, 1)
        return np.asarray(last @ last.T)
    with np.errstate(over="ignore"):
        powers = np.power(recurrence, np.arange(steps))
        # Summed, not (1 - b^2n) / (1 - b^2): right at |b| = 1; a product of matrices would take the cube of the steps.
        after = np.cumsum(powers**2)[::-1]
        both_ways = np.concatenate([powers[:0:-1], powers])
        by_gap = np.lib.stride_tricks.sliding_window_view(both_ways, steps)[::-1]  # b^|t-t'|
        later = np.arange(steps)
        return by_gap * after[np.maximum(later[:, None], later)]


def pooled_statistics(task: Task, recurrence: float) -> tuple[FloatArray, FloatArray]:
    """Cov(z, y) and Cov(z, z) of the pooled input z_r = sum_{t<=r} b^(r-t) x_t, summed over readout steps r."""
    if recurrence in task.pooled_already:
        return task.pooled_already[recurrence]
    kernel = recurrence_kernel(recurrence, task.steps, task.cross_covariance.shape[2])
    with np.errstate(over="ignore", invalid="ignore"):
        cross = task.cross_covariance.contracted(kernel)
        power = task.input_covariance.contracted(pooling_kernel(recurrence, task.steps, kernel.shape[1]))
    if not (np.isfinite(cross).all() and np.isfinite(power).all()):
        raise InvalidSpec(
            f"the recurrence must not overflow over a trial, got eigenvalue {recurrence:.4g} over "
            f"{task.steps} steps. Use a smaller recurrence or shorter trials."
        )
    task.pooled_already[recurrence] = frozen(cross), frozen(power)
    return task.pooled_already[recurrence]
