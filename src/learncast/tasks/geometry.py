"""Geometry of tasks: input and output directions that separate a task into modes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, frozen
from learncast.tasks.task import Task

#: Eigenvalues (singular values) closer than this share of the largest are degenerate.
TIE = 1e-9

#: Share of the strongest mode's strength below which a task does not have a mode.
ABSENT = 1e-8

#: Off-diagonal share of a cross covariance in its frame up to which the directions are constant over a trial.
STATIC = 1e-8

#: Size of pooled statistics whose fourth power is still finite.
LARGEST = 1e75


@dataclass(frozen=True, eq=False)
class Frame:
    """Orthonormal input and output directions; mode k pairs column k of the inputs with column k of the outputs.

    Attributes
    ----------
    inputs : (inputs, inputs)
        Input directions; those beyond the modes carry no target.
    outputs : (outputs, outputs)
        Output directions.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> frame = lc.tasks.Frame(np.eye(3), np.eye(2))
    >>> frame.modes, frame.mode_inputs.shape
    (2, (3, 2))
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
    """Compute the frame of the first task; the other arguments settle its degeneracies.

    If the first task has equal or zero strengths, its singular vectors are not unique, and an arbitrary choice could
    make an aligned network look misaligned. Degenerate directions are chosen by the first task's input covariance,
    then by `maps`, then by the other tasks.

    Parameters
    ----------
    tasks : sequence of Task
    maps : (outputs, inputs) matrices
        Such as the input-output maps of a network.
    recurrence : float, optional
        Scalar recurrence of the network. If the directions of the first task change over a trial, the frame is that of
        the inputs pooled by it, which are all that such a network can use.
    reading : (any, inputs), optional
        Weights that read the inputs. If there are fewer outputs than inputs, the directions without target that become
        modes are those that `reading` or the maps read.

    Returns
    -------
    Frame
        Directions in which the first task separates into modes.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> task = lc.tasks.static(np.array([[0.0, 3.0], [1.0, 0.0]]))
    >>> frame = lc.tasks.common_frame([task])
    >>> abs(frame.outputs.T @ np.array([[0.0, 3.0], [1.0, 0.0]]) @ frame.inputs).round(12)
    array([[3., 0.],
           [0., 1.]])
    """
    maps = list(maps)
    reading = np.concatenate([np.zeros((0, tasks[0].inputs)) if reading is None else reading, *maps])
    frame = _frame(tasks, maps, reading)
    if recurrence is None or tasks[0].steps == 1:
        return frame
    cross = tasks[0].cross_covariance.rotated(frame.inputs, frame.outputs)
    if cross.off_diagonal_norm() <= STATIC * cross.norm():
        return frame
    pooled = (pooled_statistics(task, recurrence) for task in tasks)
    return _frame([Task(power[None, :, None, :], cross[None]) for cross, power in pooled], maps, reading)


def _frame(tasks: Sequence[Task], maps: list[FloatArray], reading: FloatArray) -> Frame:
    groups = [np.eye(tasks[0].inputs)]
    for decider, symmetric in _deciders(tasks, maps):
        if all(group.shape[1] == 1 for group in groups):
            break
        groups = [part for group in groups for part in _split(group, decider, symmetric)]
    inputs = _ordered(np.concatenate(groups, axis=1), tasks[0], reading)
    return Frame(inputs, _output_directions(tasks, maps, inputs))


def _ordered(directions: FloatArray, task: Task, reading: FloatArray) -> FloatArray:
    """Put directions that carry the target first, then those that are read, then the rest."""
    if task.outputs >= task.inputs:
        return directions

    def reached(matrix: FloatArray) -> FloatArray:
        return np.linalg.norm(matrix.T @ directions, axis=0) > TIE * float(np.linalg.norm(matrix))

    carries, read = reached(task.cross_covariance.left_factor()), reached(reading.T)
    return directions[:, np.argsort(np.where(carries, 0, np.where(read, 1, 2)), kind="stable")]


def _deciders(tasks: Sequence[Task], maps: list[FloatArray]) -> Iterator[tuple[FloatArray, bool]]:
    """Matrices that determine the modes' input directions, in order of priority, and whether each is symmetric.

    The directions are eigenvectors of the symmetric ones and left singular vectors of the others.
    """

    def summed(task: Task) -> FloatArray:
        return task.cross_covariance.contracted(np.ones(task.cross_covariance.shape[::2]))

    def inputs(task: Task) -> Iterator[tuple[FloatArray, bool]]:
        yield task.input_covariance.contracted(np.eye(task.steps)), True
        yield task.input_covariance.contracted(np.ones((task.steps, task.steps))), True

    first, others = tasks[0], tasks[1:]
    yield first.cross_covariance.left_factor(), False
    yield from inputs(first)
    yield from ((m.T, False) for m in maps)
    yield from ((summed(first) @ m, True) for m in maps)
    for task in others:
        yield task.cross_covariance.left_factor(), False
        yield summed(first) @ summed(task).T, True
        yield from inputs(task)


def _split(group: FloatArray, decider: FloatArray, symmetric: bool) -> list[FloatArray]:
    """Split a degenerate group into the eigenspaces (or singular spaces) of a decider, strongest first."""
    scale = float(np.linalg.norm(decider))
    if group.shape[1] == 1 or scale == 0.0:
        return [group]
    values = np.zeros(group.shape[1])
    if symmetric:
        inside = group.T @ decider @ group
        rising, vectors = np.linalg.eigh((inside + inside.T) / 2)
        values, vectors = rising[::-1], vectors[:, ::-1]
    else:
        vectors, singular, _ = np.linalg.svd(group.T @ decider)
        values[: len(singular)] = singular
    cuts = np.flatnonzero(values[:-1] - values[1:] > TIE * scale) + 1
    return np.split(group @ vectors, cuts, axis=1) if len(cuts) else [group]


def _output_directions(tasks: Sequence[Task], maps: list[FloatArray], inputs: FloatArray) -> FloatArray:
    """For each input direction, the output direction that the first task, a map or another task pairs with it."""
    outputs = tasks[0].outputs
    directions: list[FloatArray] = []
    for k in range(outputs):
        paired = _paired_output(tasks, maps, inputs[:, k : k + 1]) if k < len(inputs) else None
        # Already orthogonal if the directions of the task are constant over the trial.
        direction = None if paired is None else _orthogonalised(paired, directions)
        directions.append(_completion(directions, outputs) if direction is None else direction)
    return np.stack(directions, axis=1)


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


def _orthogonalised(direction: FloatArray, others: list[FloatArray]) -> FloatArray | None:
    """Gram-Schmidt, twice because once leaves round-off for nearly parallel directions; None if nothing is left."""
    for other in others * 2:
        direction = direction - (other @ direction) * other
    length = float(np.linalg.norm(direction))
    return direction / length if length > np.sqrt(TIE) else None


def _completion(directions: list[FloatArray], size: int) -> FloatArray:
    """A unit vector orthogonal to those given, from the coordinate axis that they cover least."""
    covered = np.sum(np.square(directions), axis=0) if directions else np.zeros(size)
    axis = np.zeros(size)
    axis[int(np.argmin(covered))] = 1.0
    completed = _orthogonalised(axis, directions)
    assert completed is not None  # the least covered axis has length >= 1/size outside the span
    return completed


def mode_strengths(task: Task, frame: Frame) -> tuple[FloatArray, FloatArray]:
    """Root-mean-square s_yx and mean variance s_xx of each mode over the steps of a trial."""
    cross = task.cross_covariance.rotated(frame.mode_inputs, frame.mode_outputs).diagonal()
    inputs = task.input_covariance.contracted(np.eye(task.steps) / task.steps)
    variances = np.einsum("nk,nm,mk->k", frame.mode_inputs, inputs, frame.mode_inputs)
    pairs = task.steps if cross.shape[2] == 1 else task.steps * (task.steps + 1) / 2
    return np.sqrt((cross**2).sum(axis=(1, 2)) / pairs), variances


def share(part: float, total: float) -> float:
    """Return part / total, or 0 if the total is 0."""
    return part / total if total > 0 else 0.0


def recurrence_kernel(recurrence: float, steps: int, readouts: int) -> FloatArray:
    """Weight b^(r-t) with which input step t reaches readout step r >= t, (steps, readouts)."""
    with np.errstate(over="ignore"):
        powers = np.power(recurrence, np.arange(steps))  # 0^0 = 1: at b = 0 only the last input counts
    if readouts == 1:
        return powers[::-1, None]
    # A view of one row, shifted from step to step, takes no memory for a matrix.
    shifted = np.concatenate([np.zeros(steps - 1), powers])
    return np.lib.stride_tricks.sliding_window_view(shifted, steps)[::-1]


def pooling_kernel(recurrence: float, steps: int, readouts: int) -> FloatArray:
    """Weight of a pair of input steps in the pooled input's power, sum over r of b^(r-t) b^(r-t'), (steps, steps)."""
    if readouts == 1:
        last = recurrence_kernel(recurrence, steps, 1)
        return np.asarray(last @ last.T)
    with np.errstate(over="ignore"):
        powers = np.power(recurrence, np.arange(steps))
        # A sum, not (1 - b^2n) / (1 - b^2), is right at |b| = 1 too; a matrix product would take steps^3 operations.
        after = np.cumsum(powers**2)[::-1]
        later = np.arange(steps)
        return by_gap(powers) * after[np.maximum(later[:, None], later)]


def by_gap(values: FloatArray) -> FloatArray:
    """A view, (..., steps, steps), whose entry [t, t'] is values[..., |t - t'|]."""
    mirrored = np.concatenate([values[..., :0:-1], values], axis=-1)
    return np.lib.stride_tricks.sliding_window_view(mirrored, values.shape[-1], axis=-1)[..., ::-1, :]


def pooled_statistics(task: Task, recurrence: float) -> tuple[FloatArray, FloatArray]:
    """Cov(z, y) and Cov(z, z) of the pooled input z_r = sum_{t<=r} b^(r-t) x_t, summed over readout steps r.

    Parameters
    ----------
    task : Task
    recurrence : float
        Scalar recurrence b.

    Returns
    -------
    cross : (inputs, outputs)
    power : (inputs, inputs)

    Examples
    --------
    >>> import learncast as lc
    >>> cross, power = lc.tasks.pooled_statistics(lc.tasks.integration(steps=3), 0.5)
    >>> cross, power
    (array([[1.75]]), array([[1.3125]]))
    """
    if recurrence in task.pooled_cache:
        return task.pooled_cache[recurrence]
    kernel = recurrence_kernel(recurrence, task.steps, task.cross_covariance.shape[2])
    with np.errstate(over="ignore", invalid="ignore"):
        cross = task.cross_covariance.contracted(kernel)
        power = task.input_covariance.contracted(pooling_kernel(recurrence, task.steps, kernel.shape[1]))
    if not all((np.abs(part) < LARGEST).all() for part in (cross, power)):  # nan too
        over = f"overflows over {task.steps} steps. Use a smaller one"
        raise InvalidSpec(f"a recurrence of {recurrence:.4g} {over}.", field="recurrence")
    task.pooled_cache[recurrence] = frozen(cross), frozen(power)
    return task.pooled_cache[recurrence]
