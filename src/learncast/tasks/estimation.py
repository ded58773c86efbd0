"""Second-order statistics estimated from recorded trials, a chunk at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from learncast.errors import InvalidSpec
from learncast.tasks.covariance import MEMORY_LIMIT, Covariance, Sampled
from learncast.tasks.recording import BlockSums, Recording, blocks_that_fit
from learncast.validation import FloatArray, count, real_array

#: Numbers in one chunk of trials: 16 MB of float64, of which a few copies live at a time.
CHUNK_SIZE = 2**21


@dataclass(frozen=True)
class Estimate:
    """Second moments of recorded inputs and targets."""

    input: Covariance
    cross: Covariance
    target: Covariance
    trials: int
    recording: Recording


def estimate(inputs: Any, targets: Any, *, centre: bool, chunk: int | None) -> Estimate:
    """Estimate E[x x^T], E[x y^T] and E[y y^T] from trials, trials first.

    The sums run over chunks, so a memory map of a million trials needs a chunk of memory. With fewer trials
    than steps x channels the trials themselves are the smaller form and are kept instead.
    """
    x, y = _layout(inputs, targets)
    trials, n, m = x.shape[0], x.shape[1] * x.shape[2], y.shape[1] * y.shape[2]
    rows = max(1, CHUNK_SIZE // (n + m)) if chunk is None else count("chunk", chunk, why="it counts trials")
    if kept_as_trials(trials, n + m):
        return sampled(*_chunk(x, y, slice(0, trials)), x.shape[1:], y.shape[1:], centre=centre)
    check_size(trials, n, m)
    sums = BlockSums(x.shape[1:], y.shape[1:], centred=centre, size=-(-trials // blocks_that_fit(n + m)))
    for start in range(0, trials, rows):
        sums.add(np.concatenate(_chunk(x, y, slice(start, start + rows)), axis=1))
    return summed(sums)


def kept_as_trials(trials: int, values: int) -> bool:
    """Whether so many trials of so many values are smaller than their second moments, and fit in memory."""
    return trials < values and 8 * trials * values <= MEMORY_LIMIT


def check_size(trials: int, n: int, m: int) -> None:
    """Refuse second moments that do not fit in memory."""
    if 8 * (n + m) ** 2 > MEMORY_LIMIT:
        raise InvalidSpec(
            required=f"the statistics of {trials} trials must fit in {MEMORY_LIMIT / 2**30:.3g} GiB",
            got=f"{n} input and {m} target values a trial, which need {8 * (n + m) ** 2 / 2**30:.3g} GiB",
            why="they would exhaust memory",
            remedy="shorten or down-sample the trials, or reduce the channels",
        )


def sampled(
    left: FloatArray, right: FloatArray, inputs: tuple[int, int], targets: tuple[int, int], *, centre: bool
) -> Estimate:
    """The moments of flat trials, kept as the trials themselves."""
    if centre:
        left, right = left - left.mean(axis=0), right - right.mean(axis=0)
    left, right = left.reshape(-1, *inputs), right.reshape(-1, *targets)
    both = Sampled(left, left), Sampled(left, right), Sampled(right, right)
    return Estimate(*both, len(left), Recording(centre))


def summed(sums: BlockSums) -> Estimate:
    """The moments of trials that were summed up, with the sums of their blocks where several fit."""
    blocks = sums.blocks()
    kept = blocks if len(blocks) > 1 else None
    return Estimate(*blocks.cut(blocks.moment()), blocks.trials, Recording(blocks.centred, kept))


def _layout(inputs: Any, targets: Any) -> tuple[Any, Any]:
    """Check shapes without copying; targets at the end get a step axis of length one."""
    inputs, targets = _array_like(inputs), _array_like(targets)
    for name, value, allowed in (("inputs", inputs, (3,)), ("targets", targets, (2, 3))):
        if getattr(value, "ndim", None) is None:
            raise InvalidSpec(
                required=f"{name} must be a numpy array or torch tensor",
                got=type(value).__name__,
                why="trials are read in chunks along the first axis",
                remedy=f"pass {name} as an array, trials first",
            )
        if value.ndim not in allowed:
            layout = "(trials, steps, inputs)" if name == "inputs" else "(trials[, steps], outputs)"
            raise InvalidSpec(
                required=f"{name} must be {layout}",
                got=f"shape {tuple(value.shape)}",
                why="each axis has a fixed meaning",
                remedy="add or drop an axis",
            )
    if len(inputs) != len(targets):
        raise InvalidSpec(
            required="inputs and targets must have the same number of trials",
            got=f"{len(inputs)} and {len(targets)}",
            why="they are paired trial by trial",
            remedy="check that trials come first in both",
        )
    if len(inputs) < 2:
        raise InvalidSpec(
            required="at least two trials are needed",
            got=f"{len(inputs)}",
            why="covariances cannot be estimated from one trial",
            remedy="record more trials, or use a task family",
        )
    if min(inputs.shape) < 1 or min(targets.shape) < 1:
        raise InvalidSpec(
            required="every axis of inputs and targets must have an entry",
            got=f"shapes {tuple(inputs.shape)} and {tuple(targets.shape)}",
            why="an empty axis has no statistics",
            remedy="check how the arrays were cut",
        )
    if targets.ndim == 3 and targets.shape[1] not in (1, inputs.shape[1]):
        raise InvalidSpec(
            required=f"targets at every step must have the inputs' {inputs.shape[1]} steps",
            got=f"{targets.shape[1]} steps",
            why="each target belongs to a step",
            remedy="align them, or pass (trials, outputs) for a target at the end",
        )
    return inputs, targets[:, None, :] if targets.ndim == 2 else targets


def _array_like(value: Any) -> Any:
    """Labelled and other array-likes as numpy; arrays, memory maps and tensors as they are, read in chunks."""
    if isinstance(value, np.ndarray) or hasattr(value, "detach") or getattr(value, "ndim", None) is None:
        return value
    return np.asarray(value)


def _chunk(x: Any, y: Any, rows: slice) -> tuple[FloatArray, FloatArray]:
    left = real_array("inputs", x[rows], first=rows.start)
    right = real_array("targets", y[rows] if y.shape[1] > 1 else y[rows, 0], first=rows.start)
    return left.reshape(len(left), -1), right.reshape(len(right), -1)
