"""Trials on which the responses of a nonlinear network are measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.validation import FloatArray, count
from learncast.results import spec_hash
from learncast.tasks.recorded.masked import Mask, MaskedTrials
from learncast.tasks.task import Task

__all__ = ["TrialStream"]

#: Groups of trials whose sums are kept and resampled for confidence intervals.
GROUPS = 256

#: Numbers drawn or read at a time, so that temporary arrays stay in the processor's cache.
_BLOCK = 2**19

#: Group, inputs (steps, trials), targets (readouts, trials, outputs), and readouts that count (readouts, trials).
Block = tuple[int, FloatArray, FloatArray, Mask | None]


@dataclass(frozen=True, eq=False)
class TrialStream:
    """A stream of trials with one input channel that can be replayed.

    Attributes
    ----------
    task : Task
        The task of the trials.
    recorded : MaskedTrials or None
        Recorded trials of the task. Gaussian trials with its second moments are drawn if there are none.
    number : int
        Number of trials.
    seed : int
        Seed of the draws. Tasks with the same number of steps and the same seed see the same noise.

    Examples
    --------
    Trials are not stored. Each pass draws the same trials again:

    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=20)
    >>> network = lc.Activated(lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=1), "relu")
    >>> trials = lc.theory.response(task, network, trials=2000, rng=7).trials
    >>> (_, first, *_), (_, again, *_) = next(trials.blocks()), next(trials.blocks())
    >>> trials.number, trials.seed, bool((first == again).all())
    (2000, 7, True)
    """

    task: Task
    recorded: MaskedTrials | None
    number: int
    seed: int

    @classmethod
    def of(cls, task: Task, number: int | None, default: int, rng: np.random.Generator | int) -> TrialStream:
        """Check a task and the number of its trials to take."""
        check_channels("task", task.inputs)
        recorded = task.recorded_trials
        if recorded is None:
            return cls(task, None, default if number is None else count("trials", number, least=2), seed_of(rng, "rng"))
        if number is not None and count("trials", number) != len(recorded):
            raise InvalidSpec(
                f"trials must be the {len(recorded)} recorded ones or None, got {number}.", field="trials"
            )
        return cls(task, recorded, len(recorded), 0)

    @property
    def gaussian(self) -> bool:
        """Whether Gaussian trials of the task are drawn."""
        return self.recorded is None

    @property
    def hash(self) -> str:
        """Short hash of the trials: of the recording, or of the task, the number and the seed."""
        if self.recorded is not None:
            return spec_hash(self.recorded.inputs, self.recorded.targets, self.recorded.counted.astype(float))
        return spec_hash(self.task.hash, self.number, self.seed)

    @property
    def edges(self) -> NDArray[np.int64]:
        """First trial of each group, then the number of trials; few trials are groups of their own."""
        return np.linspace(0, self.number, min(GROUPS, self.number) + 1).astype(int)

    def blocks(self) -> Iterator[Block]:
        """Yield one block after another.

        Several small groups are drawn together. A large group is split into several blocks.
        """
        edges, width = self.edges, self.task.steps
        if self.gaussian and self.task.trials is not None:
            width = max(width, self.task.trials)  # Gaussian trials of a recording are mixtures of all its trials
        most, end = max(1, _BLOCK // width), 0
        while end < self.number:
            begin, group = end, int(np.searchsorted(edges, end, side="right")) - 1
            end = int(edges[edges <= begin + most][-1])
            if end <= begin:  # the group does not fit into one block
                end = min(begin + most, int(edges[group + 1]))
            inside = edges[(edges > begin) & (edges < end)] - begin
            inputs, targets, counted = self._draw(begin, end)
            masks = [None] * (len(inside) + 1) if counted is None else np.split(counted, inside, axis=1)
            parts = np.split(inputs, inside, axis=1), np.split(targets, inside, axis=1), masks
            yield from zip(range(group, group + len(inside) + 1), *parts, strict=True)

    def _draw(self, begin: int, end: int) -> tuple[FloatArray, FloatArray, Mask | None]:
        """Return inputs, targets and mask of the trials from begin to end, as in a block."""
        if self.recorded is not None:
            return columns(self.recorded, slice(begin, end))
        inputs, targets = self.task.sample(end - begin, np.random.default_rng([self.seed, begin]))
        targets = targets.reshape(end - begin, -1, self.task.outputs)
        return columns(MaskedTrials.complete(inputs, targets, centred=False, scaled=False))


def columns(trials: MaskedTrials, rows: slice = slice(None)) -> tuple[FloatArray, FloatArray, Mask | None]:
    """Return inputs (steps, trials), targets (readouts, trials, outputs) and readouts that count, or None if all do."""
    inputs, targets = trials.inputs[rows, :, 0].T, trials.targets[rows].transpose(1, 0, 2)
    counted = None if trials.counted.all() else trials.counted[rows].T
    return np.ascontiguousarray(inputs), np.ascontiguousarray(targets), counted


def seed_of(rng: np.random.Generator | int, name: str = "seed") -> int:
    """Return a seed as it is, or draw one from a generator."""
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(2**62))
    return count(name, rng, least=0)


def check_channels(field: str, inputs: int) -> None:
    """Require one input channel of a task or network."""
    if inputs != 1:
        raise UnsupportedModel(f"{field} must have one input channel, got {inputs}.", field=field)
