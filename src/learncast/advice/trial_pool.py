"""The pool of trials that advice chooses from: a target and candidates, as statistics and as sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from learncast.advice.moments import Moments
from learncast.advice.surrogate import LinearSurrogate
from learncast.errors import InvalidSpec
from learncast.simulate.sources import Source
from learncast.tasks.recorded.streams import batches_of, checked_batch, from_batches
from learncast.tasks.task import Task
from learncast.validation import FloatArray

#: Trials drawn from a sampler to learn its statistics.
SAMPLED = 4000
#: Names that say nothing about the task.
_NAMELESS = ("recorded", "DataLoader", "<lambda>", "function", "partial")


@dataclass(frozen=True, eq=False)
class Member:
    """One task of the pool.

    Attributes
    ----------
    name : str
    source : Source
        Where batches come from.
    task : Task
        Its second-order statistics.
    moments : Moments
        What the surrogate learns from.
    """

    name: str
    source: Source
    task: Task
    moments: Moments


@dataclass(frozen=True, eq=False)
class TrialPool:
    """A target and the candidates that may be trained before it."""

    target: Member
    candidates: tuple[Member, ...]

    @property
    def members(self) -> tuple[Member, ...]:
        """All of them, the target first."""
        return (self.target, *self.candidates)

    @classmethod
    def of(cls, target: Any, candidates: Any, surrogate: LinearSurrogate, *, seed: int = 0) -> TrialPool:
        """Read the target and the candidates, and check that the model can be trained on each of them.

        Parameters
        ----------
        target : Task, pair of arrays, function of (trials, rng), DataLoader or Dataset
        candidates : mapping from names to such, or a sequence of such
        surrogate : LinearSurrogate
            Of the model.
        seed : int
            Of the trials drawn from samplers.
        """
        named = _named(candidates)
        first = _member(target, "target", surrogate, seed)
        members: list[Member] = []
        taken = {first.name}
        for place, (name, source) in enumerate(named):
            one = _member(source, name or f"candidate {place + 1}", surrogate, seed, given=name is not None)
            if one.task.hash == first.task.hash:
                raise InvalidSpec(
                    required="candidates must differ from the target",
                    got=f"{one.name!r} (number {place + 1}), which has the target's own statistics",
                    why="to train on the target first is to train directly",
                    remedy="leave it out",
                )
            label, again = one.name, 2
            while label in taken:
                label, again = f"{one.name} ({again})", again + 1
            taken.add(label)
            members.append(replace(one, name=label))
        return cls(first, tuple(members))


def _named(candidates: Any) -> list[tuple[str | None, Any]]:
    if isinstance(candidates, str | bytes) or not isinstance(candidates, Mapping | Sequence) or not candidates:
        raise InvalidSpec(
            required="candidates must be a list of tasks, or a mapping from names to tasks, at least one candidate",
            got=type(candidates).__name__ if candidates else "none",
            why="advice compares pretraining on each of them with none",
            remedy="put them in a list, a single one too",
        )
    if isinstance(candidates, Mapping):
        return [(str(name), source) for name, source in candidates.items()]
    return [(None, source) for source in candidates]


def _member(source: Any, name: str, surrogate: LinearSurrogate, seed: int, *, given: bool = False) -> Member:
    trials = Source.of(source)
    if not given and trials.name not in _NAMELESS:
        name = trials.name
    task, means = _statistics(source, trials, name, seed)
    _check_fit(name, task, surrogate)
    return Member(name, trials, task, Moments.of(task, means=means, affine=surrogate.has_biases))


def _statistics(source: Any, trials: Source, name: str, seed: int) -> tuple[Task, tuple[FloatArray, FloatArray] | None]:
    """A task's statistics and, where trials tell them, the means."""
    if trials.task is not None:
        return trials.task, None
    if trials.passes is not None:
        sums: list[Any] = [0, 0.0, 0.0]

        def watched() -> Iterator[tuple[FloatArray, FloatArray]]:
            for k, batch in enumerate(batches_of(source)):
                x, y = checked_batch(batch, f"batch {k} of {name!r}")
                _check_steps(name, x)
                sums[:] = (old + new for old, new in zip(sums, (len(x), x.sum(0), y.sum(0)), strict=True))
                yield x, y

        task = from_batches(watched(), name=name)
        return task, (sums[1] / sums[0], np.atleast_2d(sums[2] / sums[0]))
    if trials.data is not None:
        x, y = trials.data
    else:
        assert trials.draw is not None
        x, y = (np.asarray(part, dtype=float) for part in trials.draw(SAMPLED, np.random.default_rng(seed)))
    _check_steps(name, x)
    return Task.from_samples(x, y, name=name), (x.mean(0), np.atleast_2d(y.mean(0)))


def _check_steps(name: str, x: FloatArray) -> None:
    if x.ndim != 3:
        raise InvalidSpec(
            required=f"inputs of {name!r} must be (trials, steps, inputs)",
            got=f"shape {x.shape}",
            why="a recurrent model reads them step by step",
            remedy="add the axis of steps",
        )


def _check_fit(name: str, task: Task, surrogate: LinearSurrogate) -> None:
    when = "every_step" if surrogate.every_step else "end"
    wanted = (surrogate.inputs, surrogate.outputs, when)
    # A trial of one step has one target, which is both at the end and at every step.
    targets = when if task.steps == 1 else task.targets
    if (task.inputs, task.outputs, targets) != wanted:
        raise InvalidSpec(
            required=f"{name!r} must have the model's {wanted[0]} inputs and {wanted[1]} outputs, "
            f"with targets {_when(when)}",
            got=f"{task.inputs} inputs and {task.outputs} outputs, with targets {_when(task.targets)}",
            why="the model is trained on it as it is",
            remedy="match channels and readout to the model, or leave it out",
        )


def _when(targets: str) -> str:
    return "at the end" if targets == "end" else "at every step"
