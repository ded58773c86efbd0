"""The response features of ReLU units and their second moments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray
from learncast.tasks.geometry import pooled_statistics
from learncast.tasks.recorded.masked import Mask
from learncast.theory.responses.bootstrap import Resampling, group_sums, readouts, sample_means
from learncast.theory.responses.trials import TrialStream

__all__ = ["Features"]

#: Number of recurrences whose linear response is a control variate; more would cost accuracy with 256 groups.
_CONTROLS = 4


@dataclass(frozen=True, eq=False)
class Features:
    """Second moments of the features z = relu(b z + s x); feature 2k of recurrence k has s = +1, feature 2k + 1 s = -1.

    Both signs are kept, since an input weight that passes through 0 takes the unit to the other feature. The first
    axis holds the estimate, then its resamples. Moments are sums over steps if there is a target at every step.

    Attributes
    ----------
    recurrences : (recurrences,)
        Distinct recurrences b in ascending order.
    cross : (1 + resamples, outputs, features)
        E[y z].
    power : (1 + resamples, features, features)
        E[z z'].
    target_power : (1 + resamples,)
        E|y|^2.

    Examples
    --------
    The least loss of units of one sign, and of both signs, follows from E[y z] and E[z z']:

    >>> import learncast as lc
    >>> import numpy as np
    >>> task = lc.tasks.integration(steps=20)
    >>> network = lc.Activated(lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=1), "relu")
    >>> features = lc.theory.response(task, network, trials=2000).features
    >>> y, z, total = features.cross[0, 0], features.power[0], features.target_power[0]
    >>> one, both = total - y[0] ** 2 / z[0, 0], total - y @ np.linalg.solve(z, y)
    >>> float((one / 2).round(2)), float((both / 2).round(2))
    (8.27, 5.74)
    """

    recurrences: FloatArray
    cross: FloatArray
    power: FloatArray
    target_power: FloatArray


def measured_features(trials: TrialStream, recurrences: FloatArray, resampling: Resampling) -> Features:
    """Measure the features of the given recurrences."""
    F, M = 2 * len(recurrences), trials.task.outputs
    chosen = recurrences[np.unique(np.linspace(0, len(recurrences) - 1, _CONTROLS).round().astype(int))]
    controlled = chosen if trials.gaussian else chosen[:0]
    decay, sign = np.repeat(recurrences, 2)[:, None], np.tile([1.0, -1.0], len(recurrences))[:, None]

    def measure(inputs: FloatArray, targets: FloatArray, counted: Mask | None) -> FloatArray:
        z, line = np.zeros((F, inputs.shape[1])), np.zeros((len(controlled), inputs.shape[1]))
        sums = [np.zeros((M, F)), np.zeros((F, F)), np.zeros((M, len(controlled))), np.zeros(len(controlled))]
        for x, y, live in readouts(inputs, targets, counted):
            z = np.maximum(decay * z + sign * x, 0.0)
            line = controlled[:, None] * line + x
            if y is not None:
                for total, value in zip(
                    sums, (y.T @ z.T, (live * z) @ z.T, y.T @ line.T, (line**2).sum(axis=1)), strict=True
                ):
                    total += value
        return np.concatenate([*(total.ravel() for total in sums), [(targets**2).sum()]])

    with np.errstate(over="ignore", invalid="ignore"):
        sums = group_sums(trials, measure) if trials.gaussian else sample_means(trials, measure, resampling)
    if not np.isfinite(sums).all():
        raise InvalidSpec(
            f"recurrence {float(np.abs(recurrences).max()):.4g} overflows over a trial of {trials.task.steps} steps.",
            field="recurrence",
        )
    sizes = np.cumsum([M * F, F * F, M * len(controlled), len(controlled)])
    cross, power, line_cross, line_power, target = np.split(sums, sizes, axis=1)
    cross, power = cross.reshape(-1, M, F), power.reshape(-1, F, F)
    if not trials.gaussian:
        return Features(recurrences, cross, power, target[:, 0])
    # x -> -x with y -> -y is equally likely and exchanges the features of the two signs.
    other = np.arange(F) ^ 1
    cross = (cross - cross[:, :, other]) / 2
    power = (power + power[:, other][:, :, other]) / 2
    controls = control_variates(trials, controlled, line_cross, line_power, target)
    return Features(recurrences, *(resampling.corrected(part, *controls) for part in (cross, power, target[:, 0])))


def control_variates(
    trials: TrialStream, recurrences: FloatArray, cross: FloatArray, power: FloatArray, target: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the moments of linear responses to a task's Gaussian trials, and of the target, with their exact means."""
    pooled = [pooled_statistics(trials.task, float(b)) for b in recurrences]
    known = [np.array([c[0] for c, _ in pooled]).T.ravel(), np.array([p[0, 0] for _, p in pooled])]
    parts = [cross, power]
    if np.isfinite(trials.task.target_power):
        parts.append(target)
        known.append(np.array([trials.task.target_power]))
    return np.concatenate(parts, axis=1), np.concatenate(known)
