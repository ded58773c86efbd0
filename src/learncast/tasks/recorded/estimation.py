"""Second-order statistics estimated from recorded trials in chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from learncast._core.validation import FloatArray, count, one_of
from learncast.tasks.covariance import MEMORY_LIMIT, Covariance, check_memory
from learncast.tasks.recorded.blocks import BlockSums, blocks_that_fit, rows_at_a_time
from learncast.tasks.recorded.masked import MaskedTrials
from learncast.tasks.recorded.recording import Recording
from learncast.tasks.recorded.trials import RecordedTrials


class Estimate(NamedTuple):
    """Second moments of recorded inputs and targets."""

    input: Covariance
    cross: Covariance
    target: Covariance
    trials: int
    recording: Recording


def is_scaled(scale: str) -> bool:
    """Whether a `scale` argument asks for scaled input channels."""
    return one_of("scale", scale, ("none", "channel")) == "channel"


def estimate(trials: RecordedTrials, *, centre: bool, scale: str, chunk: int | None) -> Estimate:
    """Estimate E[x x^T], E[x y^T] and E[y y^T] from trials.

    The sums run over chunks, so that a memory map of a million trials needs the memory of a chunk. If there are fewer
    trials than steps x channels, the trials are stored instead, because they are smaller.
    """
    scaled = is_scaled(scale)
    x, y = trials.inputs.shape[1:], trials.targets.shape[1:]
    n, m = x[0] * x[1], y[0] * y[1]
    rows = rows_at_a_time(n + m) if chunk is None else count("chunk", chunk)
    # Missing first steps are zeros, but they must not count in means.
    if trials.needs_mask(centre or scaled):
        check_memory((n + y[1]) ** 2, f"the statistics of trials of {n} input values")
        result = prepared(trials.masked(centre, scaled), MaskedTrials.moments)
        result = result._replace(recording=replace(result.recording, source=trials.kept))
    elif kept_as_trials(len(trials), n + m):
        result = sampled(*trials.chunk(slice(0, len(trials))), centre, scaled)
    else:
        check_memory((n + m) ** 2, f"the statistics of trials of {n + m} values")
        size = -(-len(trials) // blocks_that_fit(n + m))
        sums = BlockSums(x, y, centred=centre, scaled=scaled, size=size)
        for start in range(0, len(trials), rows):
            sums.add(np.hstack([part.reshape(len(part), -1) for part in trials.chunk(slice(start, start + rows))]))
        result = summed(sums)
        result = result._replace(recording=replace(result.recording, source=trials.kept))
    return result._replace(recording=_described(result.recording, trials))


def _described(recording: Recording, trials: RecordedTrials) -> Recording:
    lengths = None
    if trials.present is not None:
        steps = trials.present[trials.numbers].sum(axis=1)
        lengths = (int(steps.min()), int(steps.max()))
    counted = None if trials.counted is None else trials.counted[trials.numbers].mean(axis=0)
    return replace(recording, classes=trials.classes, given=len(trials.inputs), lengths=lengths, counted=counted)


def kept_as_trials(trials: int, values: int) -> bool:
    """Whether trials of this many values are smaller than their second moments and fit in memory."""
    return trials < values and 8 * trials * values <= MEMORY_LIMIT


def sampled(x: FloatArray, y: FloatArray, centre: bool, scaled: bool) -> Estimate:
    """Moments of trials (trials, steps, channels), stored as the trials themselves."""
    trials = MaskedTrials.complete(x, y, centred=centre, scaled=scaled)
    return prepared(trials, lambda made: made.sampled)


def prepared(trials: MaskedTrials, moments: Callable[[MaskedTrials], tuple[Covariance, ...]]) -> Estimate:
    """Moments of trials, which are centred and scaled first."""
    made, preprocessing = trials.prepared()
    input_, cross, target = moments(made)
    return Estimate(input_, cross, target, len(made), Recording(made.centred, made.scaled, *preprocessing))


def summed(sums: BlockSums) -> Estimate:
    """Moments of accumulated trials, with their blocks if there are several."""
    blocks = sums.blocks()
    n = blocks.input_shape[0] * blocks.input_shape[1]
    means = blocks.mean[:n].reshape(blocks.input_shape), blocks.mean[n:].reshape(blocks.target_shape)
    kept = blocks if len(blocks) > 1 else None
    recording = Recording(blocks.centred, blocks.scaled, *means, blocks.scales, blocks=kept)
    return Estimate(*blocks.cut(blocks.moment()), blocks.trials, recording)
