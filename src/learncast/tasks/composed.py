"""Tasks composed of parts: the target is the sum of the parts' targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, between, one_of, one_or_each
from learncast.tasks.task import Task

#: Relative difference of covariances that counts as round-off.
SAME = 1e-9
#: Remark on a sum of recorded parts.
RECORDED = (
    "The parts were recorded, but the sum has no trials. Noise that the parts' targets share is not in its target "
    "covariance. Add up the targets of the trials if they are the same."
)


@dataclass(frozen=True, eq=False)
class Composition:
    """A task that is the sum of its parts, and the parts on the same inputs and outputs.

    Attributes
    ----------
    target : Task
        Its target is the sum of the parts' targets.
    parts : tuple of Task
        Each with the inputs of the target and its own share of the targets: candidates for `learncast.plan`.
    remarks : tuple of str
        What the sum leaves out.

    Examples
    --------
    >>> import learncast as lc
    >>> parts = [lc.tasks.static([[1.0], [0.0]]), lc.tasks.static([[0.0], [1.0]])]
    >>> made = lc.tasks.composed(parts, inputs="separate", angle=60.0)
    >>> made.overlap.round(3)
    array([[1.   , 0.866],
           [0.866, 1.   ]])
    """

    target: Task
    parts: tuple[Task, ...]
    remarks: tuple[str, ...] = ()

    @cached_property
    def overlap(self) -> FloatArray:
        """Correlation of the answers of the best maps of each two parts, over rotations of the outputs, 0 to 1.

        The nuclear norm of E[y_j y_k^T] over the root of the powers of both: parts with 0 do not interfere. A part
        of which the inputs explain nothing has 0 with all parts.
        """
        power = _flat(self.target.input_covariance.dense())
        crosses = [_flat(part.cross_covariance.dense()) for part in self.parts]
        shared = [[np.linalg.norm(_explained(power, one, two), "nuc") for two in crosses] for one in crosses]
        size = np.sqrt(np.diagonal(shared))
        both = np.outer(size, size)
        return np.divide(shared, both, out=np.zeros_like(both), where=both > 0)


def composed(
    parts: Sequence[Task],
    *,
    inputs: str = "shared",
    angle: float = 0.0,
    strengths: ArrayLike = 1.0,
    name: str = "composed",
) -> Composition:
    """Compose a task of parts: y = sum_k strength_k y_k.

    Parameters
    ----------
    parts : sequence of Task
        At least two, with the same numbers of steps and outputs. Of recorded parts only the statistics are used: the
        sum has no trials, and the parts' targets are taken to share only what the inputs explain linearly.
    inputs : {"shared", "separate"}
        Whether all parts read the same channels, or each has channels of its own, independent of the others.
    angle : float
        Degrees by which the input directions of the parts after the first are turned, which changes how much the parts
        interfere. Shared inputs are turned within each two successive channels. With separate inputs, part k reads
        cos(angle) x_k + sin(angle) x_1: parts do not interfere at 0 and read the same channels at 90.
    strengths : float or one per part
        Factors of the parts' targets.
    name : str

    Returns
    -------
    Composition
        The composed task, and the parts as tasks on its inputs and outputs.

    Raises
    ------
    InvalidSpec
        If the parts do not fit, or an angle is given and the channels that it mixes have different statistics.

    Examples
    --------
    Parts that interfere share a strong mode and have a weak one, which is learned late:

    >>> import learncast as lc
    >>> parts = [lc.tasks.static([[1.0], [0.0]], name="left"), lc.tasks.static([[0.0], [1.0]], name="right")]
    >>> network = lc.TwoLayer.random(2, 8, 2, scale=0.1, rng=1)
    >>> for angle in (0.0, 80.0):
    ...     made = lc.tasks.composed(parts, inputs="separate", angle=angle)
    ...     plan = lc.plan(made.target, made.parts, network, learning_rate=0.02)
    ...     print(plan.direct.descent, plan.best.total.descent)
    244.0 244.0
    784.0 576.0
    """
    tasks = list(parts)
    if len(tasks) < 2 or not all(isinstance(task, Task) for task in tasks):
        kinds = ", ".join(type(task).__name__ for task in tasks) or "none"
        raise InvalidSpec(f"parts must be at least two of Task, got {kinds:.60}.", field="parts")
    separate = one_of("inputs", inputs, ("shared", "separate")) == "separate"
    turn = np.deg2rad(between("angle", angle, -360.0, 360.0))
    factors = one_or_each("strengths", strengths, len(tasks), of="parts")
    shapes = {(t.cross_covariance.shape[0], *t.cross_covariance.shape[2:]) for t in tasks}
    if len(shapes) != 1 or (not separate and len({t.inputs for t in tasks}) != 1):
        raise InvalidSpec("parts must have the same steps, outputs and (if shared) inputs.", field="parts")
    total, maps = (_separate if separate else _shared)(tasks, turn)
    crosses = [
        f * np.einsum("ab,tbrm->tarm", E, t.cross_covariance.dense())
        for f, E, t in zip(factors, maps, tasks, strict=True)
    ]
    return _summed(tasks, total, crosses, factors, name)


def _shared(tasks: list[Task], turn: float) -> tuple[FloatArray, list[FloatArray]]:
    """Input covariance, and the maps of the parts' channels: later parts are turned within pairs of channels."""
    n, power = tasks[0].inputs, [t.input_covariance.dense() for t in tasks]
    Q = np.eye(n)
    for k in range(0, n - 1, 2):
        Q[k : k + 2, k : k + 2] = [[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]
    if any(_differ(power[0], other) for other in (*power[1:], np.einsum("ab,tbsc,dc->tasd", Q, power[0], Q))):
        raise InvalidSpec("Parts that share inputs must have the same input covariance, turned or not.", field="parts")
    return power[0], [np.eye(n), *[Q] * (len(tasks) - 1)]


def _separate(tasks: list[Task], turn: float) -> tuple[FloatArray, list[FloatArray]]:
    """Covariance of all inputs, and the maps of the parts' channels to them: later parts are turned to the first's."""
    power = [t.input_covariance.dense() for t in tasks]
    if turn and any(_differ(power[0], other) for other in power[1:]):
        raise InvalidSpec("An angle needs parts with the same input covariance.", field="angle")
    own = np.split(np.eye(sum(t.inputs for t in tasks)), np.cumsum([t.inputs for t in tasks])[:-1], axis=1)
    total = sum(np.einsum("ab,tbsc,dc->tasd", E, S, E) for E, S in zip(own, power, strict=True))
    turned = [np.cos(turn) * E + (np.sin(turn) * own[0] if turn else 0.0) for E in own[1:]]
    return np.asarray(total), [own[0], *turned]


def _summed(
    tasks: list[Task], power: FloatArray, crosses: list[FloatArray], factors: FloatArray, name: str
) -> Composition:
    """The sum of parts. Their targets share only what the inputs explain linearly."""
    shape = tasks[0].cross_covariance.shape[2:] * 2
    flat = [c.reshape(-1, shape[0] * shape[1]) for c in crosses]
    covariances = [None if t.target_covariance is None else t.target_covariance.dense() for t in tasks]
    known = [c for c in covariances if c is not None]
    target: FloatArray | None = None
    if len(known) == len(tasks):
        own = sum(f**2 * c for f, c in zip(factors, known, strict=True))
        whole = np.sum(flat, axis=0)
        mixed = _explained(_flat(power), whole, whole) - sum(_explained(_flat(power), c, c) for c in flat)
        target = own + mixed.reshape(shape)
    made = [
        Task(power, cross, None if c is None else f**2 * c, name=t.name)
        for t, cross, c, f in zip(tasks, crosses, covariances, factors, strict=True)
    ]
    remarks = (RECORDED,) if any(t.recording is not None for t in tasks) else ()
    return Composition(Task(power, sum(crosses), target, name=name), tuple(made), remarks)


def _explained(power: FloatArray, one: FloatArray, two: FloatArray) -> FloatArray:
    """Covariance of the answers of two best linear maps, c^T S^+ d."""
    return np.asarray(one.T @ np.linalg.pinv(power, hermitian=True) @ two)


def _flat(covariance: FloatArray) -> FloatArray:
    """Steps and channels on one axis, readouts (or steps again) on the other."""
    return covariance.reshape(covariance.shape[0] * covariance.shape[1], -1)


def _differ(one: FloatArray, other: FloatArray) -> bool:
    return one.shape != other.shape or bool(np.linalg.norm(one - other) > SAME * np.linalg.norm(one))
