"""How much of the target a linear network can learn from recorded data, by which modes, how well conditioned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, count
from learncast.tasks.best_map import SILENT, Correlations, best_map
from learncast.tasks.covariance import Sampled
from learncast.tasks.geometry import pooled_statistics, pooling_kernel, recurrence_kernel
from learncast.tasks.recorded.recording import Recording
from learncast.tasks.task import Task

#: Pooled inputs and targets of every trial.
Pooled = tuple[FloatArray, FloatArray]
#: Ratio of channel scales above which the units determine what is learned first.
UNEVEN = 30.0
#: Quantile of the permutation null above which a mode is not noise.
LEVEL = 0.95
#: Most numbers in the sums of all groups of trials in cross-validation.
GROUP_NUMBERS = 2**24


class Groups(NamedTuple):
    """Sums over groups of trials of the pooled input z and the target y.

    Attributes
    ----------
    power : (groups, inputs, inputs)
        Sum of z z^T.
    cross : (groups, outputs, inputs)
        Sum of y z^T.
    target : (groups,)
        Sum of |y|^2.
    """

    power: FloatArray
    cross: FloatArray
    target: FloatArray


@dataclass(frozen=True, eq=False)
class DataSummary:
    """What a linear network with scalar recurrence b can learn from a task's trials.

    Shares are shares of the target's power (its variance if the recording is centred), summed over outputs and
    readouts, that the best linear map of the pooled input z = sum_t b^(T-t) x_t explains.

    Attributes
    ----------
    trials, rank : int
        Numbers of trials, and of directions along which the pooled input varies.
    explained : float
        Share explained in sample.
    adjusted : float
        1 - (1 - explained) P / (P - rank), an estimate of the share for unlimited data. nan with targets at several
        steps, which are not independent, or if there are not more trials than directions.
    left_out : float
        Cross-validated share: explained on trials (or blocks of trials) that are left out of the fit; nan if none are
        stored. Below 0 if the fit is worse than the zero map.
    groups : int
        Number of groups of trials in the cross-validation.
    modes : (modes,)
        Singular values of R S^(-1/2). Their squares sum to the explained power.
    null : float
        95% quantile of the largest singular value with targets permuted over trials: smaller modes are noise. nan if
        unknown.
    condition : float
        Condition number of S, the pooled input's second moment: the number of steps to learn grows with it.
    raw_condition, mean_share : float
        Condition number without centring, and the share of the mean in the largest eigenvalue.
    centred : bool
    unevenness : float
        Root mean square of the largest channel over that of the smallest that varies.

    Examples
    --------
    The second output is noise, and so is its mode:

    >>> import learncast as lc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> inputs = rng.standard_normal((300, 8, 2))
    >>> targets = inputs.sum(axis=1) * [1, 0] + rng.standard_normal((300, 2)) * [0, 2]
    >>> summary = lc.tasks.summary(lc.Task.from_samples(inputs, targets), recurrence=1.0)
    >>> summary.noise, summary.modes.round(2), round(summary.null, 2)
    ((False, True), array([3.07, 0.15]), 0.47)
    """

    trials: int
    rank: int
    explained: float
    adjusted: float
    left_out: float
    groups: int
    modes: FloatArray
    null: float
    condition: float
    raw_condition: float
    mean_share: float
    centred: bool
    unevenness: float

    @property
    def noise(self) -> tuple[bool, ...]:
        """Whether each mode is no stronger than expected by chance."""
        return tuple(bool(value <= self.null) for value in self.modes)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The summary in sentences, most important first."""
        return (*self._explained(), *self._noise(), self._conditioning(), *self._scales())

    def _explained(self) -> list[str]:
        power = "variance" if self.centred else "mean square"
        shares = [f"A linear network can explain {self.explained:.0%} of the target's {power} on these trials"]
        if np.isfinite(self.left_out):
            what = "trials" if self.groups == self.trials else "blocks of trials"
            shares.append(f"{max(self.left_out, 0):.0%} on {what} left out of the fit")
        if np.isfinite(self.adjusted):
            shares.append(f"about {max(self.adjusted, 0):.0%} with unlimited trials")
        lines = [", ".join(shares) + "."]
        if self.rank >= self.trials - self.centred:
            lines.append(
                f"There are no more trials ({self.trials}) than input directions ({self.rank}), so every target can be "
                "fitted: record more trials or use fewer channels."
            )
        elif np.isfinite(self.left_out) and self.left_out <= 0 < self.explained:
            lines.append("The fit does not generalise to new trials.")
        return lines

    def _noise(self) -> list[str]:
        noisy = [k + 1 for k, is_noise in enumerate(self.noise) if is_noise]
        if not noisy:
            return []
        which, one, strength = ", ".join(map(str, noisy)), len(noisy) == 1, self.modes[noisy[0] - 1]
        return [
            f"{'Mode' if one else 'Modes'} {which} of {len(self.modes)} {'is' if one else 'are'} no stronger than "
            f"chance ({strength:.3g}, null {self.null:.3g}): steps to learn them are steps to fit noise."
        ]

    def _conditioning(self) -> str:
        line = f"The pooled input's condition number is {self.condition:.3g}"
        if self.mean_share <= 0.5:
            return f"{line}."
        if self.centred:
            return f"{line}, and {self.raw_condition:.3g} without centring."
        return (
            f"{line}; the mean is {self.mean_share:.1%} of its largest eigenvalue, which limits the learning rate: "
            "centre the data to learn in fewer steps."
        )

    def _scales(self) -> list[str]:
        if self.unevenness <= UNEVEN:
            return []
        return [
            f"The largest channel is {self.unevenness:.3g} times as large as the smallest, which is learned last: "
            'scale them (scale = "channel") unless their scales have a meaning.'
        ]

    def __repr__(self) -> str:
        return "<DataSummary: " + " ".join(self.sentences) + ">"


def summary(task: Task, *, recurrence: float, permutations: int = 200, seed: int = 0) -> DataSummary:
    """Summarise what a linear network with scalar recurrence can learn from a recorded task.

    Parameters
    ----------
    task : Task
        From recorded trials.
    recurrence : float
        Scalar recurrence b; 0 for a network without memory.
    permutations : int
        Number of permutations of the targets over trials.
    seed : int

    Returns
    -------
    DataSummary
        Explained shares, modes and conditioning, as numbers and in sentences.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> inputs = rng.standard_normal((300, 8, 2))
    >>> task = lc.Task.from_samples(inputs, inputs.sum(axis=1))
    >>> lc.tasks.summary(task, recurrence=1.0).sentences[0]
    "A linear network can explain 100% of the target's mean square on these trials, 100% on blocks of trials left out
    of the fit, about 100% with unlimited trials."
    """
    recording = task.recording
    if recording is None or task.trials is None or task.target_covariance is None:
        raise InvalidSpec(f"only a task from recorded trials has a summary, got task {task.name!r}.", field="task")
    b = float(recurrence)
    count("permutations", permutations)
    cross, S = pooled_statistics(task, b)
    R, P = cross.T, task.trials
    correlations = Correlations.of(S)
    root, rank = correlations.root[:, correlations.live], correlations.rank
    modes = np.linalg.svd(R @ root, compute_uv=False)
    modes = modes[modes > SILENT * modes.max(initial=0.0)]
    explained = float((modes**2).sum() / task.target_power) if task.target_power > 0 else 0.0
    single = task.targets == "end" and recording.counted is None
    free = P - recording.centred
    pooled = _pooled_trials(task, b)
    groups = _groups(task, b, pooled)
    mean, power = _mean_power(task, recording, b), task.input_covariance.contracted(np.eye(task.steps))
    target = task.target_covariance.contracted(np.eye(task.target_covariance.shape[0]))
    raw = S + mean if recording.centred else S
    values, vectors = np.linalg.eigh(raw)
    return DataSummary(
        trials=P,
        rank=rank,
        explained=min(explained, 1.0),
        adjusted=1 - (1 - explained) * free / (free - rank) if single and free > rank else float("nan"),
        left_out=_left_out(groups, task.target_power * P) if groups is not None else float("nan"),
        groups=0 if groups is None else len(groups.power),
        modes=modes,
        null=_null(task, target, root, pooled, permutations, np.random.default_rng(seed)),
        condition=_condition(S),
        raw_condition=_condition(raw),
        mean_share=float(vectors[:, -1] @ mean @ vectors[:, -1] / values[-1]) if values[-1] > 0 else 0.0,
        centred=recording.centred,
        unevenness=_unevenness(power),
    )


def _condition(S: FloatArray) -> float:
    live = np.linalg.eigvalsh(S)[len(S) - Correlations.of(S).rank :]
    if not len(live):
        return float("nan")
    return float(live[-1] / live[0]) if live[0] > 0 else float("inf")


def _pooled_trials(task: Task, b: float) -> Pooled | None:
    """Pooled inputs and targets of every trial, (trials, readouts, channels), if trials are stored."""
    trials = task.recorded_trials
    if trials is None or not (isinstance(task.cross_covariance, Sampled) or (task.recording and task.recording.masked)):
        return None
    return trials.pooled(recurrence_kernel(b, task.steps, trials.targets.shape[1]))


def _groups(task: Task, b: float, pooled: Pooled | None) -> Groups | None:
    """Sums over single trials if they are stored, else over blocks."""
    if pooled is not None:
        z, y = pooled
        flat = z.reshape(-1, z.shape[2])
        if 2 * len(flat) <= z.shape[2]:  # few trials of many channels: in the span of the trials
            z = z @ np.linalg.qr(flat.T)[0]
        if task.recording is not None and task.recording.centred and z.shape[1] == 1:
            # A subtracted mean is a fitted coefficient, so it must not use the left-out trial either.
            z = np.concatenate([z, np.ones((len(z), 1, 1))], axis=2)
        size = -(-len(z) * z.shape[2] * (z.shape[2] + y.shape[2]) // GROUP_NUMBERS)
        starts = np.arange(0, len(z), size)
        power, cross, target = (
            np.add.reduceat(np.einsum(rule, one, other, optimize=True), starts)
            for rule, one, other in (("prc,prd->pcd", z, z), ("pro,prc->poc", y, z), ("pro,pro->p", y, y))
        )
        return Groups(power, cross, target)
    blocks = task.recording and task.recording.blocks
    if not blocks:
        return None
    kernel = recurrence_kernel(b, task.steps, task.cross_covariance.shape[2])
    pooling = pooling_kernel(b, *kernel.shape)
    cuts = [blocks.cut(total) for total in blocks.sums()]
    return Groups(
        np.stack([power.contracted(pooling) for power, _, _ in cuts]),
        np.stack([cross.contracted(kernel).T for _, cross, _ in cuts]),
        np.array([np.trace(target.contracted(np.eye(target.shape[0]))) for _, _, target in cuts]),
    )


def _left_out(groups: Groups, power: float) -> float:
    """Share of the targets' power explained on each group by a fit to the others."""
    S, R = groups.power.sum(axis=0), groups.cross.sum(axis=0)
    missed = 0.0
    for own, cross, target in zip(groups.power, groups.cross, groups.target, strict=True):
        M = best_map(S - own, R - cross)
        missed += float(target - 2 * (M * cross).sum() + ((M @ own) * M).sum())
    return 1 - missed / power if power > 0 else 0.0


def _null(
    task: Task, target: FloatArray, root: FloatArray, pooled: Pooled | None, permutations: int, rng: np.random.Generator
) -> float:
    """Quantile of the largest singular value of R S^(-1/2) with targets permuted over trials.

    Targets are centred first, because their mean is the same in every permutation and would hide the modes. If trials
    are not stored there are many, and R S^(-1/2) is Gaussian with columns of covariance Cov(y) / P, from `target`,
    E[y y^T].
    """
    if not root.shape[1]:
        return float("nan")
    if pooled is not None:
        z, y = pooled
        white, gap = z @ root, y - y.mean(axis=0)
        draws = (
            np.einsum("pro,prk->ok", gap[rng.permutation(len(z))], white, optimize=True) / len(z)
            for _ in range(permutations)
        )
    else:
        if task.targets != "end" or task.recording is None or task.trials is None:
            return float("nan")
        mean = task.recording.target_mean[0]
        values, vectors = np.linalg.eigh(target if task.recording.centred else target - np.outer(mean, mean))
        factor = vectors * np.sqrt(np.maximum(values, 0.0) / task.trials)
        draws = (factor @ rng.standard_normal((len(factor), root.shape[1])) for _ in range(permutations))
    # Products of very large numbers overflow; they have no singular values.
    norms = [float(np.linalg.norm(draw, 2)) if np.isfinite(draw).all() else np.nan for draw in draws]
    return float(np.quantile(norms, LEVEL))


def _mean_power(task: Task, recording: Recording, b: float) -> FloatArray:
    """Contribution of the mean input to the pooled input's second moment, (inputs, inputs)."""
    course = recording.input_mean / recording.scales
    weights = np.ones(task.cross_covariance.shape[2]) if recording.counted is None else recording.counted
    pooled = recurrence_kernel(b, len(course), len(weights)).T @ course  # (readouts, inputs)
    return (weights[:, None] * pooled).T @ pooled


def _unevenness(power: FloatArray) -> float:
    inverse = Correlations.of(power).inverse
    audible = inverse[inverse > 0]
    return float(audible.max() / audible.min()) if len(audible) else 1.0
