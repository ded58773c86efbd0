"""The frame in which tasks fall apart into modes: paired input and output directions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from learncast.tasks.task import Task
from learncast.validation import FloatArray

#: Eigenvalues closer than this share of the largest are one degenerate group, whose directions are free.
TIE = 1e-9


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


def common_frame(tasks: Sequence[Task], *, maps: Iterable[FloatArray] = ()) -> Frame:
    """Find the frame of the first task, leaving to the others what it does not decide.

    Where the first task is degenerate (equal strengths, or none) its singular vectors are not unique; an
    arbitrary choice there would make a network look misaligned that is not. Those directions are chosen to
    suit `maps`, (outputs, inputs) matrices such as a network's input-output maps, then the other tasks, then
    the input covariances.
    """
    maps = list(maps)
    inputs = _input_directions(tasks, maps)
    return Frame(inputs, _output_directions(tasks, maps, inputs))


def _input_directions(tasks: Sequence[Task], maps: list[FloatArray]) -> FloatArray:
    groups = [np.eye(tasks[0].inputs)]
    for generator in _deciders(tasks, maps):
        if all(group.shape[1] == 1 for group in groups):
            break
        groups = [part for group in groups for part in _split(group, generator)]
    return np.concatenate(groups, axis=1)


def _deciders(tasks: Sequence[Task], maps: list[FloatArray]) -> Iterator[FloatArray]:
    """Symmetric matrices that all have the modes' input directions as eigenvectors, most binding first."""

    def pooled(task: Task) -> FloatArray:
        return task.cross_covariance.contracted(np.ones(task.cross_covariance.shape[::2]))

    first, others = tasks[0], tasks[1:]
    yield first.cross_covariance.left_gram()
    yield from (m.T @ m for m in maps)
    yield from (pooled(first) @ m for m in maps)
    yield from (task.cross_covariance.left_gram() for task in others)
    yield from (pooled(first) @ pooled(task).T for task in others)
    yield from (task.input_covariance.contracted(np.eye(task.steps)) for task in tasks)


def _split(group: FloatArray, generator: FloatArray) -> list[FloatArray]:
    """Cut a degenerate group into the eigenspaces of a symmetric generator, strongest first."""
    scale = float(np.linalg.norm(generator))
    if group.shape[1] == 1 or scale == 0.0:
        return [group]
    inside = group.T @ generator @ group
    values, vectors = np.linalg.eigh((inside + inside.T) / 2)
    values, directions = values[::-1], group @ vectors[:, ::-1]
    cuts = np.flatnonzero(values[:-1] - values[1:] > TIE * scale) + 1
    if not len(cuts):  # nothing to tell apart: keep the directions as they were
        return [group]
    return np.split(directions, cuts, axis=1)


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
            gram = response.transposed().left_gram()
            scale = source.cross_covariance.norm() ** 2
            mean = response.contracted(np.ones(response.shape[::2]))[0]
        else:
            mean = (source @ direction)[:, 0]
            gram, scale = np.outer(mean, mean), float((source**2).sum())
        values, vectors = np.linalg.eigh(gram)
        if values[-1] > TIE**2 * scale:
            return vectors[:, -1] if mean @ vectors[:, -1] >= 0 else -vectors[:, -1]
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
