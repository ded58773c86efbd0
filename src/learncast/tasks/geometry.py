"""The frame in which tasks fall apart into modes: paired input and output directions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from learncast.tasks.task import Task
from learncast.validation import FloatArray

#: Eigenvalues (singular values) closer than this share of the largest are one group, whose directions are free.
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
    suit the first task's input covariance, then `maps`, (outputs, inputs) matrices such as a network's input-output
    maps, then the other tasks.
    """
    maps = list(maps)
    inputs = _input_directions(tasks, maps)
    return Frame(inputs, _output_directions(tasks, maps, inputs))


def _input_directions(tasks: Sequence[Task], maps: list[FloatArray]) -> FloatArray:
    groups = [np.eye(tasks[0].inputs)]
    for decider, symmetric in _deciders(tasks, maps):
        if all(group.shape[1] == 1 for group in groups):
            break
        groups = [part for group in groups for part in _split(group, decider, symmetric)]
    return np.concatenate(groups, axis=1)


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
