"""Where the trials of a training run come from: a task's statistics, a sampler, recorded arrays or a loader."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from learncast.errors import InvalidSpec
from learncast.tasks.recorded.streams import batches_of, checked_batch, is_dataset
from learncast.tasks.task import Task
from learncast.trajectory import spec_hash
from learncast.validation import FloatArray, count, real_array

#: Inputs and targets.
Trials = tuple[FloatArray, FloatArray]
#: A function that draws trials: (trials, rng) to inputs and targets.
Sampler = Callable[[int, np.random.Generator], tuple[Any, Any]]
#: Trials on which a network that has no exact loss is judged, unless told otherwise.
EVALUATION = 2000
#: Key of the random stream of those trials; batches use the step, which is never negative.
_HELD_OUT = 2**32 - 1


@dataclass(frozen=True, eq=False)
class Source:
    """Trials for training.

    Every batch is drawn from (seed, stage, step) alone, so that a run can be taken up again at any step. A loader is
    the exception: it gives its own batches in its own order, pass after pass, and cannot be asked for them again.

    Attributes
    ----------
    name : str
    draw : callable
        (trials, rng) to inputs and targets; None for recorded trials.
    data : (inputs, targets) or None
        Recorded trials.
    task : Task or None
        The statistics behind the trials, where they are known.
    passes : Passes or None
        The batches of a loader.
    """

    name: str
    draw: Sampler | None
    data: Trials | None
    task: Task | None
    hash: str
    passes: Passes | None = None
    _tensors_of: dict[torch.dtype, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, source: Any) -> Source:
        """Take a Task, a sampler, a pair of arrays, a DataLoader, a Dataset, or a function of nothing.

        The function returns batches (inputs, targets), and is called again for every pass. A Dataset is read into
        memory; its trials are then recorded ones. Of a loader or such a function the first batches are kept to judge
        by, and batches have the size that it gives them.
        """
        if isinstance(source, cls):
            return source
        if isinstance(source, Task):
            return cls(source.name, source.sample, None, source, source.hash)
        if isinstance(source, torch.utils.data.DataLoader) or _gives_batches(source):
            passes = Passes(source)
            name = getattr(source, "__qualname__", type(source).__name__)
            return cls(name, None, None, None, spec_hash(name, *passes.first(1)), passes)
        if is_dataset(source):
            x, y = (np.concatenate(parts) for parts in zip(*batches_of(source), strict=True))
            return cls.of((x, y))
        if callable(source):
            name = getattr(source, "__qualname__", type(source).__name__)
            probe = [np.asarray(part) for part in source(2, _stream((0, 0), 0))]  # two functions may share a name
            return cls(name, source, None, None, spec_hash(f"{getattr(source, '__module__', '')}.{name}", *probe))
        if isinstance(source, tuple) and len(source) == 2:
            x, y = _checked(*source)
            return cls("recorded", None, (x, y), None, spec_hash(x, y))
        raise InvalidSpec(
            required="trials must come from a Task, a function of (trials, rng), a pair (inputs, targets), a "
            "DataLoader, a Dataset, or a function of nothing that returns batches",
            got=type(source).__name__,
            why="training needs inputs and targets",
            remedy="pass one of these",
        )

    def batch(self, trials: int | None, key: tuple[int, int], step: int, dtype: torch.dtype) -> Any:
        """Inputs and targets of one step, as tensors."""
        if self.passes is not None:
            return _tensors(self.passes.following(), dtype, check=False)
        if self.data is None:
            assert trials is not None
            assert self.draw is not None
            return _tensors(self.draw(trials, _stream(key, step)), dtype, check=not self.task)
        x, y = self._recorded(dtype)
        if trials is None or trials >= len(x):
            return x, y
        # Every epoch is its own shuffle; trials that do not fill a batch wait for the next one.
        per_epoch = len(x) // trials
        epoch, place = divmod(step, per_epoch)
        chosen = _stream(key, epoch).permutation(len(x))[place * trials : (place + 1) * trials]
        return x[chosen], y[chosen]

    def held_out(self, trials: int, key: tuple[int, int], dtype: torch.dtype) -> Any:
        """Trials on which to judge: fresh ones, all that were recorded, or a loader's first."""
        if self.passes is not None:
            return _tensors(self.passes.first(trials), dtype, check=False)
        if self.data is not None:
            return self._recorded(dtype)
        assert self.draw is not None
        return _tensors(self.draw(trials, _stream(key, _HELD_OUT)), dtype, check=True)

    def _recorded(self, dtype: torch.dtype) -> Any:
        if dtype not in self._tensors_of:
            assert self.data is not None
            self._tensors_of[dtype] = _tensors(self.data, dtype, check=False)
        return self._tensors_of[dtype]

    def check(self, batch: Any, *, replayed: bool = False) -> None:
        """Refuse a batch that is no number of trials, and a checkpoint where batches cannot be drawn again.

        None uses all recorded trials at every step, or a loader's own number.
        """
        if batch is not None:
            count("batch", batch, why="it counts trials")
        elif self.draw is not None:
            raise InvalidSpec(
                required="batch must say how many fresh trials are drawn per step",
                got="None",
                why=f"{self.name!r} has no end of them",
                remedy="give a batch such as 1000",
            )
        if replayed and self.passes is not None:
            raise InvalidSpec(
                required="a run with a checkpoint must draw its batches from a Task, a sampler or recorded trials",
                got=f"{self.name!r}, a loader or a function that returns batches",
                why="it cannot be asked again for the batches that would have come next",
                remedy="leave checkpoint out, or pass the trials as arrays or a Dataset",
            )


class Passes:
    """The batches of a loader, one pass after the other without end.

    The first batches are kept to judge by and are not trained on until the loader gives them again, in its next pass.
    """

    def __init__(self, source: Any) -> None:
        self._source, self._given, self._passes = source, 0, 1
        self._batches = batches_of(source)
        self._held: list[Trials] = []

    def following(self) -> Trials:
        """The next batch, if need be of a new pass."""
        batch = self._rest_of_pass()
        if batch is None:
            self._batches, self._passes = batches_of(self._source), self._passes + 1
            batch = self._rest_of_pass()
        if batch is None:
            raise InvalidSpec(
                required="a loader must give batches at every pass",
                got=f"none in pass {self._passes} after {self._given} batches",
                why="training goes on pass after pass",
                remedy="check its data set, batch_size and drop_last; a function must make a new generator each time",
            )
        return batch

    def first(self, trials: int) -> Trials:
        """The first trials, at most those of one pass."""
        while sum(len(x) for x, _ in self._held) < trials and self._passes == 1:
            batch = self._rest_of_pass() if self._held else self.following()
            if batch is None:
                break
            self._held.append(batch)
        x, y = (np.concatenate(parts)[:trials] for parts in zip(*self._held, strict=True))
        return x, y

    def _rest_of_pass(self) -> Trials | None:
        """The next batch of this pass; None at its end."""
        for batch in self._batches:
            self._given += 1
            return checked_batch(batch, f"batch {self._given - 1}")
        return None


def _gives_batches(source: Any) -> bool:
    """Whether this is a function of nothing; one of (trials, rng) is a sampler."""

    def takes(*values: Any) -> bool:
        try:
            inspect.signature(source).bind(*values)
        except (TypeError, ValueError):  # some functions written in C do not say
            return False
        return True

    return callable(source) and takes() and not takes(1, None)


def _tensors(trials: tuple[Any, Any], dtype: torch.dtype, *, check: bool) -> Any:
    x, y = _checked(*trials) if check else trials
    return torch.as_tensor(x, dtype=dtype), torch.as_tensor(y, dtype=dtype)


def _stream(key: tuple[int, int], step: int) -> np.random.Generator:
    return np.random.default_rng([*key, step])


def _checked(inputs: Any, targets: Any) -> Trials:
    x, y = real_array("inputs", inputs, ndim=(2, 3)), real_array("targets", targets, ndim=(2, 3))
    if len(x) != len(y) or 0 in x.shape + y.shape or (y.ndim == 3 and (x.ndim != 3 or y.shape[1] != x.shape[1])):
        raise InvalidSpec(
            required="inputs (trials, steps, inputs) or (trials, inputs) must go with targets (trials, outputs) or, "
            "at every step, (trials, steps, outputs)",
            got=f"shapes {x.shape} and {y.shape}",
            why="each trial has its own inputs and targets",
            remedy="check the axis order and the number of trials",
        )
    return x, y
