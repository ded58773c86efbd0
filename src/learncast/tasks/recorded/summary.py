"""What recorded data can teach a linear network: how much of the target, by which modes, how well conditioned."""

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

#: Times that one channel may be as large as another before its unit decides what is learned when.
UNEVEN = 30.0
#: Correlation that makes two channels one.
DUPLICATE = 1 - 1e-10
#: Quantile of the permutation null above which a mode is no noise.
LEVEL = 0.95
#: Numbers in the groups of trials that are left out one after another; more are put together.
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
    """What a task's trials say about learning it with a recurrence b, in numbers and in sentences.

    Shares are of the target's power (its variance where the recording is centred), summed over outputs and readouts:
    what answering by the best linear map of the pooled input z = sum_t b^(T-t) x_t takes away.

    Attributes
    ----------
    trials, channels, rank : int
        Trials, input channels, and directions in which the pooled input varies.
    explained : float
        Share explained in sample.
    adjusted : float
        1 - (1 - explained) P / (P - rank): an estimate for the best map of endless data. nan with targets at several
        steps, which are not independent, and with no more trials than directions.
    left_out : float
        Share explained of trials (or blocks of them) that were left out of the fit; nan where none are kept. Below 0
        when the fit is worse than answering nothing.
    groups : int
        How many groups of trials were left out, one after another.
    modes : (modes,)
        Singular values of R S^(-1/2), whose squares add up to what is explained.
    null : float
        95% of the largest singular value when targets are dealt to trials at random: smaller modes are noise. nan
        where it cannot be told.
    condition : float
        Largest over smallest live eigenvalue of S, the pooled input's second moment: steps to learn grow with it.
    raw_condition, mean_share : float
        The condition number with the mean left in, and the share of the then largest eigenvalue that is the mean's.
    centred : bool
    unevenness : float
        Root mean square of the largest channel over that of the smallest one that is not silent.
    constant : tuple of int
        Channels that never vary.
    duplicates : tuple of (int, int)
        Channels that are multiples of each other.
    outputs, target_rank : int
        Outputs, and directions in which targets vary.

    Examples
    --------
    The second output is noise, and steps that wait for its mode wait for noise:

    >>> import learncast as lc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> inputs = rng.standard_normal((300, 8, 2))
    >>> targets = inputs.sum(axis=1) * [1, 0] + rng.standard_normal((300, 2)) * [0, 2]
    >>> found = lc.tasks.summary(lc.Task.from_samples(inputs, targets), recurrence=1.0)
    >>> found.noise, found.modes.round(2), round(found.null, 2)
    ((False, True), array([3.07, 0.15]), 0.47)
    """

    trials: int
    channels: int
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
    constant: tuple[int, ...]
    duplicates: tuple[tuple[int, int], ...]
    outputs: int
    target_rank: int

    @property
    def noise(self) -> tuple[bool, ...]:
        """Whether each mode is no stronger than chance makes it."""
        return tuple(bool(value <= self.null) for value in self.modes)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The summary in plain words, the most consequential first."""
        return (*self._explained(), *self._noise(), *self._conditioning(), *self._odd())

    def _explained(self) -> list[str]:
        power = "variance" if self.centred else "mean square"
        said = [f"A linear network can explain {self.explained:.0%} of the target's {power} on these trials"]
        if np.isfinite(self.left_out):
            what = "trials" if self.groups == self.trials else "blocks of trials"
            said.append(f"{max(self.left_out, 0):.0%} on {what} left out of the fit")
        if np.isfinite(self.adjusted):
            said.append(f"about {max(self.adjusted, 0):.0%} with endless trials")
        found = [", ".join(said) + "."]
        if self.rank >= self.trials - self.centred:
            found.append(
                f"There are no more trials ({self.trials}) than directions of input ({self.rank}): every target can be "
                "fitted, and nothing is told about new trials; record more, or use fewer channels."
            )
        elif np.isfinite(self.left_out) and self.left_out <= 0 < self.explained:
            found.append("What is learned would not carry over to new trials.")
        return found

    def _noise(self) -> list[str]:
        noisy = [k + 1 for k, is_noise in enumerate(self.noise) if is_noise]
        if not noisy:
            return []
        which = ("mode " if len(noisy) == 1 else "modes ") + ", ".join(map(str, noisy))
        return [
            f"{which[0].upper()}{which[1:]} of {len(self.modes)} {'is' if len(noisy) == 1 else 'are'} no stronger than "
            f"chance makes {'it' if len(noisy) == 1 else 'them'} ({self.modes[noisy[0] - 1]:.3g} against "
            f"{self.null:.3g}); a count of steps that waits for {'it' if len(noisy) == 1 else 'them'} waits for noise."
        ]

    def _conditioning(self) -> list[str]:
        found = f"The pooled input's condition number is {self.condition:.3g}"
        if self.mean_share <= 0.5:
            return [f"{found}."]
        if self.centred:
            return [f"{found}, against {self.raw_condition:.3g} with the mean left in."]
        return [
            f"{found}; {self.mean_share:.1%} of its largest eigenvalue is the mean's, which limits the learning "
            "rate: centre the data to learn in fewer steps."
        ]

    def _odd(self) -> list[str]:
        found = []
        if self.unevenness > UNEVEN:
            found.append(
                f"The largest channel is {self.unevenness:.3g} times as large as the smallest, which is learned last: "
                'scale them (scale = "channel") unless their sizes mean something.'
            )
        if self.constant:
            one, rest = len(self.constant) == 1, len(self.constant) - 8
            shown = ", ".join(map(str, self.constant[:8])) + (f" and {rest} more" if rest > 0 else "")
            found.append(f"Channel{'' if one else 's'} {shown} never var{'ies' if one else 'y'}.")
        if self.duplicates:
            pairs = ", ".join(f"{i} and {j}" for i, j in self.duplicates[:5])
            more = f" and {len(self.duplicates) - 5} other pairs" if len(self.duplicates) > 5 else ""
            found.append(f"Channels {pairs}{more} are multiples of each other: they are learned as one.")
        if self.target_rank < self.outputs:
            found.append(
                f"Targets vary in {self.target_rank} of {self.outputs} directions; the others ask for nothing to be "
                "learned."
            )
        return found

    def __repr__(self) -> str:
        return "<DataSummary: " + " ".join(self.sentences) + ">"


def summary(task: Task, *, recurrence: float, permutations: int = 200, seed: int = 0) -> DataSummary:
    """Tell what a recorded task can teach a linear network of scalar recurrence.

    Parameters
    ----------
    task : Task
        From recorded trials.
    recurrence : float
        b; 0 for a network without memory.
    permutations : int
        Random deals of targets to trials.
    seed : int

    Returns
    -------
    DataSummary
        What can be explained, told on trials that were left out, and in words.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> inputs = rng.standard_normal((300, 8, 2))
    >>> task = lc.Task.from_samples(inputs, inputs.sum(axis=1))
    >>> lc.tasks.summary(task, recurrence=1.0).sentences[0]
    "A linear network can explain 100% of the target's mean square on these trials, 100% on blocks of trials left out
    of the fit, about 100% with endless trials."
    """
    recording = task.recording
    if recording is None or task.trials is None or task.target_covariance is None:
        raise InvalidSpec(
            f"a task must come from recorded trials to be summarised, got task {task.name!r}, made of given "
            "statistics or a family."
        )
    b = float(recurrence)
    count("permutations", permutations)
    cross, S = pooled_statistics(task, b)
    R, P = cross.T, task.trials
    told = Correlations.of(S)
    root = told.root[:, told.live]
    modes = np.linalg.svd(R @ root, compute_uv=False)
    modes = modes[modes > SILENT * modes.max(initial=0.0)]
    explained = float((modes**2).sum() / task.target_power) if task.target_power > 0 else 0.0
    rank, readouts = told.rank, task.cross_covariance.shape[2]
    single = readouts == 1 and recording.counted is None
    free = P - recording.centred
    pooled = _pooled_trials(task, b)
    groups = _groups(task, b, pooled)
    mean, power = _mean_power(task, recording, b), task.input_covariance.contracted(np.eye(task.steps))
    wanted = task.target_covariance.contracted(np.eye(task.target_covariance.shape[0]))
    raw = np.linalg.eigh(S + mean if recording.centred else S)
    return DataSummary(
        trials=P,
        channels=task.inputs,
        rank=rank,
        explained=min(explained, 1.0),
        adjusted=1 - (1 - explained) * free / (free - rank) if single and free > rank else float("nan"),
        left_out=_left_out(groups, task.target_power * P) if groups is not None else float("nan"),
        groups=0 if groups is None else len(groups.power),
        modes=modes,
        null=_null(task, wanted, root, pooled, permutations, np.random.default_rng(seed)),
        condition=_condition(S),
        raw_condition=_condition(S + mean if recording.centred else S),
        mean_share=float(raw[1][:, -1] @ mean @ raw[1][:, -1] / raw[0][-1]) if raw[0][-1] > 0 else 0.0,
        centred=recording.centred,
        unevenness=_unevenness(power),
        constant=_constant(power, recording),
        duplicates=_duplicates(power),
        outputs=task.outputs,
        target_rank=Correlations.of(wanted).rank,
    )


def _condition(S: FloatArray) -> float:
    live = np.linalg.eigvalsh(S)[len(S) - Correlations.of(S).rank :]
    if not len(live):
        return float("nan")
    return float(live[-1] / live[0]) if live[0] > 0 else float("inf")


def _pooled_trials(task: Task, b: float) -> tuple[FloatArray, FloatArray] | None:
    """Pooled inputs and targets of every trial, (trials, readouts, channels), where trials are kept."""
    cross, masked, counted = task.cross_covariance, task.recording and task.recording.masked, None
    if isinstance(cross, Sampled):
        x, y = cross.left, cross.right
    elif masked:
        trials = masked.prepared()[0]
        x, y, counted = trials.inputs, trials.targets, trials.counted[:, :, None]
    else:
        return None
    z = np.einsum("ptc,tr->prc", x, recurrence_kernel(b, x.shape[1], y.shape[1]), optimize=True)
    return z if counted is None else np.where(counted, z, 0.0), y


def _groups(task: Task, b: float, pooled: tuple[FloatArray, FloatArray] | None) -> Groups | None:
    """Sums over single trials where they are kept, over blocks otherwise."""
    if pooled is not None:
        z, y = pooled
        if task.recording is not None and task.recording.centred and z.shape[1] == 1:
            # A mean that was subtracted is a coefficient that was fitted: leave it out with the trial.
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
    """Share of the targets' power explained by fits to all groups but one, on that one."""
    S, R = groups.power.sum(axis=0), groups.cross.sum(axis=0)
    missed = 0.0
    for own, cross, target in zip(groups.power, groups.cross, groups.target, strict=True):
        M = best_map(S - own, R - cross)
        missed += float(target - 2 * (M * cross).sum() + ((M @ own) * M).sum())
    return 1 - missed / power if power > 0 else 0.0


def _null(
    task: Task,
    wanted: FloatArray,
    root: FloatArray,
    pooled: tuple[FloatArray, FloatArray] | None,
    permutations: int,
    rng: np.random.Generator,
) -> float:
    """Quantile of the largest singular value of R S^(-1/2) when targets are dealt to trials at random.

    Targets are centred for it: their mean is the same in every deal and would hide the modes behind it. Where trials
    are not kept there are many, and the deals are Gaussian: R S^(-1/2) has rows of covariance Cov(y) / P, with
    `wanted`, E[y y^T], less the means.
    """
    if not root.shape[1]:
        return float("nan")
    if pooled is not None:
        z, y = pooled
        white, gap = z @ root, y - y.mean(axis=0)
        deals = (
            np.einsum("pro,prk->ok", gap[rng.permutation(len(z))], white, optimize=True) / len(z)
            for _ in range(permutations)
        )
    else:
        if task.targets != "end" or task.recording is None or task.trials is None:
            return float("nan")
        mean = task.recording.target_mean[0]
        values, vectors = np.linalg.eigh(wanted if task.recording.centred else wanted - np.outer(mean, mean))
        factor = vectors * np.sqrt(np.maximum(values, 0.0) / task.trials)
        deals = (factor @ rng.standard_normal((len(factor), root.shape[1])) for _ in range(permutations))
    return float(np.quantile([np.linalg.norm(deal, 2) for deal in deals], LEVEL))


def _mean_power(task: Task, recording: Recording, b: float) -> FloatArray:
    """What the mean course of the inputs adds (or added) to the pooled input's second moment, (inputs, inputs)."""
    course = recording.input_mean / recording.scales
    weights = np.ones(task.cross_covariance.shape[2]) if recording.counted is None else recording.counted
    pooled = recurrence_kernel(b, len(course), len(weights)).T @ course  # (readouts, inputs)
    return (weights[:, None] * pooled).T @ pooled


def _constant(powers: FloatArray, recording: Recording) -> tuple[int, ...]:
    power = np.diagonal(powers) * recording.scales**2
    mean = (recording.input_mean**2).sum(axis=0)
    # Sums over readouts count a step as often as it is read: their mean is no course that could be subtracted.
    left = power if recording.centred or recording.counted is not None else power - mean
    return tuple(np.flatnonzero(left <= SILENT * (power + mean)).tolist())


def _unevenness(power: FloatArray) -> float:
    inverse = Correlations.of(power).inverse
    heard = inverse[inverse > 0]
    return float(heard.max() / heard.min()) if len(heard) else 1.0


def _duplicates(power: FloatArray) -> tuple[tuple[int, int], ...]:
    size = np.sqrt(np.maximum(np.diagonal(power), 0.0))
    live = Correlations.of(power).inverse > 0
    same = np.abs(np.triu(power, 1)) > DUPLICATE * np.outer(size, size)
    return tuple((int(i), int(j)) for i, j in np.argwhere(same & np.outer(live, live)))
