"""Trials on which the responses of a nonlinear network are measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.validation import FloatArray, count, real_array
from learncast.results import spec_hash
from learncast.tasks.task import Task

__all__ = ["TrialStream"]

#: Groups of trials whose sums are kept and resampled for confidence intervals.
GROUPS = 256

#: Numbers drawn or read at a time, so that temporary arrays stay in the processor's cache.
_BLOCK = 2**19

Sampler = Callable[[int, np.random.Generator], tuple[ArrayLike, ArrayLike]]
Source = Task | Sampler | tuple[ArrayLike, ArrayLike]


@dataclass(frozen=True, eq=False)
class TrialStream:
    """A stream of trials with one input channel that can be replayed.

    Attributes
    ----------
    source : Task, callable, or (inputs, targets)
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
    >>> (_, first, _), (_, again, _) = next(trials.blocks()), next(trials.blocks())
    >>> trials.number, trials.seed, bool((first == again).all())
    (2000, 7, True)
    """

    source: Task | Sampler | tuple[FloatArray, FloatArray]
    number: int
    seed: int
    steps: int
    outputs: int
    every_step: bool

    @property
    def task(self) -> Task | None:
        """The task whose Gaussian trials these are, or None."""
        return self.source if isinstance(self.source, Task) else None

    @property
    def name(self) -> str:
        """Name of the source."""
        if isinstance(self.source, Task):
            return self.source.name
        return "recorded trials" if isinstance(self.source, tuple) else getattr(self.source, "__name__", "sampler")

    @property
    def hash(self) -> str:
        """Short hash of the trials: of the recording, of the task, or of the first block of a sampler."""
        if isinstance(self.source, tuple):
            return spec_hash(*self.source)
        drawn = (self.source.hash,) if isinstance(self.source, Task) else next(self.blocks())[1:]
        return spec_hash(*drawn, self.number, self.seed)

    @property
    def as_task(self) -> Task:
        """The task, or one with the second moments of the recording or of the first block of a sampler."""
        if isinstance(self.source, Task):
            return self.source
        if isinstance(self.source, tuple):
            inputs, targets = self.source
        else:
            _, x, y = next(self.blocks())
            inputs, targets = x.T[:, :, None], y.transpose(1, 0, 2) if self.every_step else y[0]
        return Task.from_samples(inputs, targets, name=self.name)

    @property
    def groups(self) -> int:
        """Number of groups; if there are few trials, each is a group of its own."""
        return min(GROUPS, self.number)

    def blocks(self) -> Iterator[tuple[int, FloatArray, FloatArray]]:
        """Yield group, inputs (steps, trials) and targets (readouts, trials, outputs) of one block after another.

        Several small groups are drawn together. A large group is split into several blocks.
        """
        edges = np.linspace(0, self.number, self.groups + 1).astype(int)
        width = self.steps
        if self.task is not None and self.task.trials is not None:
            width = max(width, self.task.trials)  # new trials of a recorded task are mixtures of all recorded ones
        most, end = max(1, _BLOCK // width), 0
        while end < self.number:
            begin, group = end, int(np.searchsorted(edges, end, side="right")) - 1
            end = int(edges[edges <= begin + most][-1])
            if end <= begin:  # the group does not fit into one block
                end = min(begin + most, int(edges[group + 1]))
            inside = edges[(edges > begin) & (edges < end)] - begin
            parts = (np.split(array, inside) for array in self._draw(begin, end))
            for k, (inputs, targets) in enumerate(zip(*parts, strict=True), start=group):
                yield k, np.ascontiguousarray(inputs.T), np.ascontiguousarray(targets.transpose(1, 0, 2))

    def _draw(self, begin: int, end: int) -> tuple[FloatArray, FloatArray]:
        """Return inputs (trials, steps) and targets (trials, readouts, outputs) of the trials from begin to end."""
        rng = np.random.default_rng([self.seed, begin])
        if isinstance(self.source, tuple):
            inputs, targets = (array[begin:end] for array in self.source)
        elif isinstance(self.source, Task):
            inputs, targets = self.source.sample(end - begin, rng)
        else:
            inputs, targets = _checked_pair(*self.source(end - begin, rng))
            if inputs.shape[:2] != (end - begin, self.steps) or targets.shape[-1] != self.outputs:
                raise _wrong_shapes(f"inputs {inputs.shape} and targets {targets.shape} for {end - begin} trials")
        return inputs[:, :, 0], targets.reshape(end - begin, -1, self.outputs)


def trial_stream(source: Source, number: int | None, default: int, rng: np.random.Generator | int) -> TrialStream:
    """Check a source of trials and the number of trials to take from it."""
    seed = 0
    if isinstance(source, tuple | list) and len(source) == 2:
        inputs, targets = source = _checked_pair(*source)
        if number is not None and count("trials", number) != len(inputs):
            raise InvalidSpec(f"trials must be the {len(inputs)} recorded ones or None, got {number}.", field="trials")
        wanted = len(inputs)
    else:
        wanted, seed = default if number is None else count("trials", number, least=2), seed_of(rng)
        if isinstance(source, Task):
            check_channels("source", source.inputs)
            return TrialStream(source, wanted, seed, source.steps, source.outputs, source.targets == "every_step")
        if not callable(source):
            raise UnsupportedModel(
                f"source must be a Task, a function or a pair (inputs, targets), got {type(source).__name__}.",
                field="source",
            )
        inputs, targets = _checked_pair(*source(2, np.random.default_rng([seed, 0])))
    return TrialStream(source, wanted, seed, inputs.shape[1], targets.shape[-1], targets.ndim == 3)


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
