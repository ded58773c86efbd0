"""Trials on which the responses of a nonlinear network are measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.validation import FloatArray, count, real_array
from learncast.results import spec_hash
from learncast.tasks.recorded.masked import Mask, MaskedTrials
from learncast.tasks.task import Task

__all__ = ["TrialStream"]

#: Groups of trials whose sums are kept and resampled for confidence intervals.
GROUPS = 256

#: Numbers drawn or read at a time, so that temporary arrays stay in the processor's cache.
_BLOCK = 2**19

Sampler = Callable[[int, np.random.Generator], tuple[ArrayLike, ArrayLike]]
Source = Task | Sampler | tuple[ArrayLike, ArrayLike]


#: Group, inputs (steps, trials), targets (readouts, trials, outputs), and readouts that count (readouts, trials).
Block = tuple[int, FloatArray, FloatArray, Mask | None]


@dataclass(frozen=True, eq=False)
class TrialStream:
    """A stream of trials with one input channel that can be replayed.

    Attributes
    ----------
    task : Task or None
        The task of the trials. Gaussian trials with its second moments are drawn if there are no others.
    recorded : MaskedTrials or None
        Recorded trials.
    sampler : callable or None
        Draws trials.
    number : int
        Number of trials.
    seed : int
        Seed of the draws. Tasks with the same number of steps and the same seed see the same noise.
    steps, outputs : int
    every_step : bool
        Whether there is a target at every step, or only one at the end.

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

    task: Task | None
    recorded: MaskedTrials | None
    sampler: Sampler | None
    number: int
    seed: int
    steps: int
    outputs: int
    every_step: bool

    @property
    def gaussian(self) -> bool:
        """Whether Gaussian trials of the task are drawn."""
        return self.recorded is None and self.sampler is None

    @property
    def name(self) -> str:
        """Name of the task, the recording or the sampler."""
        if self.task is not None:
            return self.task.name
        return "recorded trials" if self.sampler is None else getattr(self.sampler, "__name__", "sampler")

    @cached_property
    def hash(self) -> str:
        """Short hash of the trials: of the recording, of the task, or of the first block of a sampler."""
        if self.recorded is not None:
            return spec_hash(self.recorded.inputs, self.recorded.targets, self.recorded.counted.astype(float))
        drawn = (self.task.hash,) if self.task is not None else next(self.blocks())[1:3]
        return spec_hash(*drawn, self.number, self.seed)

    @cached_property
    def as_task(self) -> Task:
        """The task, or one with the second moments of the recording or of the first block of a sampler."""
        if self.task is not None:
            return self.task
        _, x, y, _ = next(self.blocks()) if self.recorded is None else (0, *columns(self.recorded))
        return Task.from_samples(x.T[:, :, None], y.transpose(1, 0, 2) if self.every_step else y[0], name=self.name)

    @property
    def edges(self) -> NDArray[np.int64]:
        """First trial of each group, then the number of trials; few trials are groups of their own."""
        return np.linspace(0, self.number, min(GROUPS, self.number) + 1).astype(int)

    def blocks(self) -> Iterator[Block]:
        """Yield one block after another.

        Several small groups are drawn together. A large group is split into several blocks.
        """
        edges, width = self.edges, self.steps
        if self.gaussian and self.task is not None and self.task.trials is not None:
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
        rng = np.random.default_rng([self.seed, begin])
        if self.sampler is None:
            assert self.task is not None
            inputs, targets = self.task.sample(end - begin, rng)
        else:
            inputs, targets = _checked_pair(*self.sampler(end - begin, rng))
            if inputs.shape[:2] != (end - begin, self.steps) or targets.shape[-1] != self.outputs:
                raise _wrong_shapes(f"inputs {inputs.shape} and targets {targets.shape} for {end - begin} trials")
        return columns(
            MaskedTrials.complete(inputs, targets.reshape(end - begin, -1, self.outputs), centred=False, scaled=False)
        )


def columns(trials: MaskedTrials, rows: slice = slice(None)) -> tuple[FloatArray, FloatArray, Mask | None]:
    """Return inputs (steps, trials), targets (readouts, trials, outputs) and readouts that count, or None if all do."""
    inputs, targets = trials.inputs[rows, :, 0].T, trials.targets[rows].transpose(1, 0, 2)
    counted = None if trials.counted.all() else trials.counted[rows].T
    return np.ascontiguousarray(inputs), np.ascontiguousarray(targets), counted


def trial_stream(source: Source, number: int | None, default: int, rng: np.random.Generator | int) -> TrialStream:
    """Check a source of trials and the number of trials to take from it."""
    task, sampler, recorded = source if isinstance(source, Task) else None, None, None
    if isinstance(source, Task):
        check_channels("source", source.inputs)
        recorded = source.recorded_trials
    elif isinstance(source, tuple | list) and len(source) == 2:
        inputs, targets = _checked_pair(*source)
        recorded = MaskedTrials.complete(
            inputs, targets if targets.ndim == 3 else targets[:, None], centred=False, scaled=False
        )
    elif callable(source):
        sampler = source
    else:
        raise UnsupportedModel(
            f"source must be a Task, a function or a pair (inputs, targets), got {type(source).__name__}.",
            field="source",
        )
    if recorded is not None:
        if number is not None and count("trials", number) != len(recorded):
            raise InvalidSpec(
                f"trials must be the {len(recorded)} recorded ones or None, got {number}.", field="trials"
            )
        steps, (readouts, outputs) = recorded.inputs.shape[1], recorded.targets.shape[1:]
        return TrialStream(task, recorded, None, len(recorded), 0, steps, outputs, readouts > 1)
    wanted, seed = default if number is None else count("trials", number, least=2), seed_of(rng)
    if task is not None:
        return TrialStream(task, None, None, wanted, seed, task.steps, task.outputs, task.targets == "every_step")
    assert sampler is not None
    inputs, targets = _checked_pair(*sampler(2, np.random.default_rng([seed, 0])))
    return TrialStream(None, None, sampler, wanted, seed, inputs.shape[1], targets.shape[-1], targets.ndim == 3)


def seed_of(rng: np.random.Generator | int) -> int:
    """Return a seed as it is, or draw one from a generator."""
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(2**62))
    return count("rng", rng, least=0)


def _checked_pair(inputs: ArrayLike, targets: ArrayLike) -> tuple[FloatArray, FloatArray]:
    x, y = real_array("inputs", inputs, ndim=3), real_array("targets", targets, ndim=(2, 3))
    if 0 in x.shape or len(x) != len(y) or (y.ndim == 3 and y.shape[1] != x.shape[1]) or y.shape[-1] == 0:
        raise _wrong_shapes(f"inputs {x.shape} and targets {y.shape}")
    check_channels("source", x.shape[2])
    return x, y


def _wrong_shapes(given: str) -> InvalidSpec:
    return InvalidSpec(
        f"inputs must be (trials, steps, 1) and targets (trials, outputs) or (trials, steps, outputs), got {given}.",
        field="source",
    )


def check_channels(field: str, inputs: int) -> None:
    """Require one input channel of a source or network."""
    if inputs != 1:
        raise UnsupportedModel(f"{field} must have one input channel, got {inputs}.", field=field)
