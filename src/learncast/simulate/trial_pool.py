"""The pool of trials that advice chooses from: a target and candidates, as statistics and as sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from learncast.errors import InvalidSpec
from learncast.simulate.moments import Moments
from learncast.simulate.sources import Source
from learncast.simulate.surrogate import LinearSurrogate
from learncast.tasks.streams import batches_of, checked_batch, from_batches
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
            members.append(Member(label, one.source, one.task, one.moments))
        return cls(first, tuple(members))


def _named(candidates: Any) -> list[tuple[str | None, Any]]:
    if isinstance(candidates, Mapping):
        found: list[tuple[str | None, Any]] = [(str(name), source) for name, source in candidates.items()]
    elif isinstance(candidates, Sequence) and not isinstance(candidates, str | bytes):
        found = [(None, source) for source in candidates]
    else:
        raise InvalidSpec(
            required="candidates must be a list of tasks, or a mapping from names to tasks",
            got=type(candidates).__name__,
            why="each is a task that may be trained before the target",
            remedy="put them in a list, a single one too",
        )
    if not found:
        raise InvalidSpec(
            required="there must be at least one candidate",
            got="none",
            why="advice compares pretraining on each of them with none",
            remedy="give the tasks that could be trained first",
        )
    return found


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
        watched = _Means(source, name)
        return from_batches(iter(watched), name=name), watched.means
    if trials.data is not None:
        x, y = trials.data
    else:
        assert trials.draw is not None
        x, y = (np.asarray(part, dtype=float) for part in trials.draw(SAMPLED, np.random.default_rng(seed)))
    _check_steps(name, x)
    return Task.from_samples(x, y, name=name), (x.mean(0), np.atleast_2d(y.mean(0)))


class _Means:
    """Batches on their way to their statistics, added up as they pass."""

    def __init__(self, source: Any, name: str) -> None:
        self._source, self._name, self._trials = source, name, 0
        self._sums: list[Any] = [0.0, 0.0]

    def __iter__(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        for k, batch in enumerate(batches_of(self._source)):
            x, y = checked_batch(batch, f"batch {k} of {self._name!r}")
            _check_steps(self._name, x)
            self._trials += len(x)
            self._sums = [total + part.sum(0) for total, part in zip(self._sums, (x, y), strict=True)]
            yield x, y

    @property
    def means(self) -> tuple[FloatArray, FloatArray]:
        """Mean input and target of all batches."""
        x, y = (total / self._trials for total in self._sums)
        return x, np.atleast_2d(y)


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
