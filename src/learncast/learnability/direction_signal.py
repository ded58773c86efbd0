"""The signal that each random direction shows by itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learncast.learnability.sequence_noise import Noise, noise_of
from learncast.validation import FloatArray


@dataclass(frozen=True, eq=False)
class DirectionSignal:
    """Signal and noise of each direction; the answer is drawn from their mean.

    Attributes
    ----------
    mean, score : (directions, lags)
        Signal, and signal over its standard error. The critical score is that of the mean over directions.
    index, scale : (directions, lags)
        Tail index and scale of the noise between sequences.
    """

    mean: FloatArray
    score: FloatArray
    index: FloatArray
    scale: FloatArray


def signal_of_directions(statistic: FloatArray, pooled: Noise, method: str) -> DirectionSignal:
    """Signal of each direction.

    Parameters
    ----------
    statistic : (directions, sequences, lags)
    pooled : Noise
        Of the mean over directions: a single direction has no other.
    method : {"sound", "paper"}
    """
    values = statistic.transpose(0, 2, 1)
    noise = noise_of(values, method) if len(values) > 1 else None
    index, scale = (pooled.index[None], pooled.scale[None]) if noise is None else (noise.index, noise.scale)
    mean = values.mean(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        score = mean / (values.std(axis=-1) / np.sqrt(values.shape[-1] - 1))
    return DirectionSignal(mean, np.nan_to_num(score, nan=0.0, posinf=np.inf, neginf=-np.inf), index, scale)
