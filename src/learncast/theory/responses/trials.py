"""Trials on which a nonlinear network's responses are measured: a stream that can be replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.validation import FloatArray, count, real_array
from learncast.results import spec_hash
from learncast.tasks.task import Task

__all__ = ["Trials"]

#: Groups of trials whose means are kept, and resampled for confidence intervals; all else is streamed.
GROUPS = 256

#: Numbers drawn or read at a time: their temporaries stay in the processor's cache.
_BLOCK = 2**19

Sampler = Callable[[int, np.random.Generator], tuple[Any, Any]]


@dataclass(frozen=True, eq=False)
class Trials:
    """A replayable stream of trials of one input channel.

    Attributes
    ----------
    source : Task, callable, or (inputs, targets)
    number : int
        Trials in all.
    seed : int
        Tasks of equally many steps that are drawn with one seed see the same noise.
    steps, outputs : int
    every_step : bool
        Whether there is a target at every step, or one at the end.

    Examples
    --------
    Trials are drawn again where they are needed again, never kept: the first block twice.

    >>> import learncast as lc
    >>> from learncast.theory.responses.response import response
    >>> task = lc.tasks.integration(steps=20)
    >>> network = lc.Activated(lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=1), "relu")
    >>> trials = response(task, network, trials=2000, rng=7).trials
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
        """The task, when the trials are the Gaussian ones of a task."""
        return self.source if isinstance(self.source, Task) else None

    @property
    def name(self) -> str:
        """What to call it."""
        if isinstance(self.source, Task):
            return self.source.name
        return "recorded trials" if isinstance(self.source, tuple) else getattr(self.source, "__name__", "sampler")

    @property
    def hash(self) -> str:
        """Short hash of the trials, or of what draws them."""
        if isinstance(self.source, tuple):
            return spec_hash(*self.source)
        if isinstance(self.source, Task):
            return spec_hash(self.source.hash, self.number, self.seed)
        first = next(self.blocks())
        return spec_hash(first[1], first[2], self.number, self.seed)

    @property
    def described(self) -> Task:
        """The task, or the second moments of (at most a block of) the trials as one."""
        if isinstance(self.source, Task):
            return self.source
        _, inputs, targets = next(self.blocks())
        if isinstance(self.source, tuple):
            inputs, targets = self.source[0][..., 0].T, self.source[1].reshape(self.number, -1, self.outputs)
            targets = targets.transpose(1, 0, 2)
        outcome = targets.transpose(1, 0, 2) if self.every_step else targets[0]
        return Task.from_samples(inputs.T[:, :, None], outcome, name=self.name)

    @property
    def groups(self) -> int:
        """Groups whose means are kept: single trials when there are few."""
        return min(GROUPS, self.number)

    def blocks(self) -> Iterator[tuple[int, FloatArray, FloatArray]]:
        """Group, inputs (steps, trials) and targets (readouts, trials, outputs), block after block.

        Small groups are drawn many at a time; a large group comes in several blocks.
        """
        edges = np.linspace(0, self.number, self.groups + 1).astype(int)
        width = self.steps
        if self.task is not None and self.task.trials is not None:
            width = max(width, self.task.trials)  # new trials of a recorded task are mixtures of all recorded ones
        most = max(1, _BLOCK // width)
        begin = 0
        while begin < self.number:
            group = int(np.searchsorted(edges, begin, side="right")) - 1
            last = int(np.searchsorted(edges, begin + most, side="right")) - 1
            end = int(edges[last]) if last > group else min(begin + most, int(edges[group + 1]))
            inputs, targets = self._drawn(begin, end)
            for k in range(group, max(last, group + 1)):
                part = slice(max(int(edges[k]), begin) - begin, min(int(edges[k + 1]), end) - begin)
                yield k, np.ascontiguousarray(inputs[part].T), np.ascontiguousarray(targets[part].transpose(1, 0, 2))
            begin = end

    def _drawn(self, begin: int, end: int) -> tuple[FloatArray, FloatArray]:
        """Inputs (trials, steps) and targets (trials, readouts, outputs) of some trials."""
        if isinstance(self.source, tuple):
            inputs, targets = (array[begin:end] for array in self.source)
        else:
            rng = np.random.default_rng([self.seed, begin])
            draw = self.source.sample if isinstance(self.source, Task) else self.source
            inputs, targets = draw(end - begin, rng)
            if not isinstance(self.source, Task):
                inputs, targets = _checked(inputs, targets)
                if inputs.shape[:2] != (end - begin, self.steps) or targets.shape[-1] != self.outputs:
                    raise _uneven(f"inputs {inputs.shape} and targets {targets.shape} for {end - begin} trials")
        return inputs[:, :, 0], targets.reshape(end - begin, -1, self.outputs)


def trials_of(source: Any, number: int | None, default: int, rng: np.random.Generator | int) -> Trials:
    """Check a source of trials and how many to take from it."""
    if isinstance(source, tuple | list) and len(source) == 2:
        inputs, targets = _checked(*source)
        if number is not None and count("trials", number) != len(inputs):
            raise InvalidSpec(
                f"trials must be left out, or be the {len(inputs)} recorded ones, got {number}. Leave trials out, "
                "or pass fewer rows.",
                field="trials",
            )
        return Trials((inputs, targets), len(inputs), 0, inputs.shape[1], targets.shape[-1], targets.ndim == 3)
    wanted = default if number is None else count("trials", number, least=2)
    seed = seed_of(rng)
    if isinstance(source, Task):
        check_channels(source.inputs)
        return Trials(source, wanted, seed, source.steps, source.outputs, source.targets == "every_step")
    if callable(source):
        inputs, targets = _checked(*source(2, np.random.default_rng([seed, 0])))
        return Trials(source, wanted, seed, inputs.shape[1], targets.shape[-1], targets.ndim == 3)
    raise UnsupportedModel(
        f"responses are measured on a Task, a sampler or recorded trials, got {type(source).__name__}. "
        "Pass a Task, a function sampler(trials, rng) -> (inputs, targets), or the pair (inputs, "
        "targets)."
    )


def seed_of(rng: np.random.Generator | int) -> int:
    """A seed as it is, or one drawn from a generator."""
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(2**62))
    return count("rng", rng, least=0)


def _checked(inputs: Any, targets: Any) -> tuple[FloatArray, FloatArray]:
    x, y = real_array("inputs", inputs, ndim=3), real_array("targets", targets, ndim=(2, 3))
    if 0 in x.shape or len(x) != len(y) or (y.ndim == 3 and y.shape[1] != x.shape[1]) or y.shape[-1] == 0:
        raise _uneven(f"inputs {x.shape} and targets {y.shape}")
    check_channels(x.shape[2])
    return x, y


def _uneven(got: str) -> InvalidSpec:
    return InvalidSpec(
        "trials must be inputs (trials, steps, 1) with targets (trials, outputs) or (trials, steps, "
        f"outputs), got {got}.",
        field="trials",
    )


def check_channels(inputs: int) -> None:
    """Refuse several input channels, of a task or of a network."""
    if inputs != 1:
        raise UnsupportedModel(
            f"the response-feature theory needs one input channel, got {inputs} channels. Train it "
            "(learncast.training), or forecast the linear network."
        )
