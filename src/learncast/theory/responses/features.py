"""The response features of ReLU units, with their second moments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray
from learncast.tasks.geometry import pooled_statistics
from learncast.theory.responses.bootstrap import Resampling, group_sums
from learncast.theory.responses.trials import Trials

__all__ = ["Features"]

#: Recurrences whose linear response serves as a control; more would cost accuracy with 256 groups.
_CONTROLS = 4


@dataclass(frozen=True, eq=False)
class Features:
    """Second moments of the features z = relu(b z + s x): of recurrence k, feature 2k has s = +1 and 2k + 1 s = -1.

    Both signs are kept of every recurrence: an input weight that passes through 0 moves to the other one. The first
    axis is the estimate, then its replicas. Sums over readout steps when there is a target at every step.

    Attributes
    ----------
    recurrences : (recurrences,)
        Distinct recurrences b, rising.
    cross : (1 + replicas, outputs, features)
        E[y z].
    power : (1 + replicas, features, features)
        E[z z'].
    target_power : (1 + replicas,)
        E|y|^2.

    Examples
    --------
    The least loss of units of one sign and of both, from E[y z] and E[z z'] alone:

    >>> import learncast as lc
    >>> import numpy as np
    >>> from learncast.theory.responses.response import response
    >>> task = lc.tasks.integration(steps=20)
    >>> network = lc.Activated(lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=1), "relu")
    >>> features = response(task, network, trials=2000).features
    >>> y, z, whole = features.cross[0, 0], features.power[0], features.target_power[0]
    >>> one, both = whole - y[0] ** 2 / z[0, 0], whole - y @ np.linalg.solve(z, y)
    >>> float((one / 2).round(2)), float((both / 2).round(2))
    (8.27, 5.74)
    """

    recurrences: FloatArray
    cross: FloatArray
    power: FloatArray
    target_power: FloatArray

    @property
    def summary(self) -> str:
        """In words."""
        return f"{self.cross.shape[2]} features"

    def listed(self) -> dict[str, tuple[tuple[str, ...], FloatArray, str, str]]:
        """Variables for a dataset: dimensions, values with replicas, meaning and units."""
        return {
            "cross": (("output", "feature"), self.cross, "mean of target x feature", "target x input"),
            "power": (("feature", "feature_other"), self.power, "mean of feature x feature", "input^2"),
            "target_power": ((), self.target_power, "mean squared target", "target^2"),
        }

    def coordinates(self) -> dict[str, Any]:
        """Recurrence and sign of each feature."""
        return {
            "recurrence": ("feature", np.repeat(self.recurrences, 2)),
            "sign": ("feature", np.tile([1.0, -1.0], len(self.recurrences))),
        }


def measured_features(trials: Trials, recurrences: FloatArray, resampling: Resampling) -> Features:
    """Measure the features of the given recurrences."""
    F, M = 2 * len(recurrences), trials.outputs
    chosen = recurrences[np.unique(np.linspace(0, len(recurrences) - 1, _CONTROLS).round().astype(int))]
    controlled = chosen if trials.task is not None else chosen[:0]
    rows = np.repeat(recurrences, 2)[:, None], np.tile([1.0, -1.0], len(recurrences))[:, None]

    def measure(inputs: FloatArray, targets: FloatArray) -> FloatArray:
        z, line = np.zeros((F, inputs.shape[1])), np.zeros((len(controlled), inputs.shape[1]))
        found = [np.zeros((M, F)), np.zeros((F, F)), np.zeros((M, len(controlled))), np.zeros(len(controlled))]
        for t, x in enumerate(inputs):
            z = np.maximum(rows[0] * z + rows[1] * x, 0.0)
            line = controlled[:, None] * line + x
            if trials.every_step or t == len(inputs) - 1:
                y = targets[t if trials.every_step else 0].T
                for k, value in enumerate((y @ z.T, z @ z.T, y @ line.T, (line**2).sum(axis=1))):
                    found[k] += value
        return np.concatenate([*(part.ravel() for part in found), [(targets**2).sum()]])

    with np.errstate(over="ignore", invalid="ignore"):
        sums = group_sums(trials, measure)
    if not np.isfinite(sums).all():
        raise InvalidSpec(
            "the recurrence must not overflow over a trial, got recurrence "
            f"{float(np.abs(recurrences).max()):.4g} over {trials.steps} steps. Use a smaller recurrence or "
            "shorter trials."
        )
    sizes = np.cumsum([M * F, F * F, M * len(controlled), len(controlled)])
    cross, power, line_cross, line_power, target = np.split(sums, sizes, axis=1)
    cross, power = cross.reshape(-1, M, F), power.reshape(-1, F, F)
    if trials.task is None:
        return Features(recurrences, *(resampling.means(part) for part in (cross, power, target[:, 0])))
    other = np.arange(F) ^ 1
    # x -> -x with y -> -y is as likely, and turns each feature into that of the other sign.
    cross = (cross - cross[:, :, other]) / 2
    power = (power + power[:, other][:, :, other]) / 2
    controls, known = control_means(trials, controlled, line_cross, line_power, target)
    return Features(
        recurrences, *(resampling.corrected(part, controls, known) for part in (cross, power, target[:, 0]))
    )


def control_means(
    trials: Trials, recurrences: FloatArray, cross: FloatArray, power: FloatArray, target: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Controls of a Gaussian task's trials and their exact means: the linear responses' moments and the target's."""
    assert trials.task is not None
    exact_cross, exact_power = [], []
    for b in recurrences:
        pooled_cross, pooled_input = pooled_statistics(trials.task, float(b))
        exact_cross.append(pooled_cross[0])
        exact_power.append(pooled_input[0, 0])
    parts, known = [cross, power], [np.array(exact_cross).T.ravel(), np.array(exact_power)]
    if np.isfinite(trials.task.target_power):
        parts.append(target)
        known.append(np.array([trials.task.target_power]))
    return np.concatenate(parts, axis=1), np.concatenate(known)
