"""Where the trials of a training run come from: a task's statistics, a sampler or recorded arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from learncast.errors import InvalidSpec
from learncast.tasks.task import Task
from learncast.trajectory import spec_hash
from learncast.validation import FloatArray, count, real_array

#: A function that draws trials: (trials, rng) to inputs and targets.
Sampler = Callable[[int, np.random.Generator], tuple[Any, Any]]
#: Trials on which a network that has no exact loss is judged, unless told otherwise.
EVALUATION = 2000
#: Key of the random stream of those trials; batches use the step, which is never negative.
_HELD_OUT = 2**32 - 1


@dataclass(frozen=True, eq=False)
class Source:
    """Trials for training.

    Every batch is drawn from (seed, stage, step) alone, so that a run can be taken up again at any step.

    Attributes
    ----------
    name : str
    draw : callable
        (trials, rng) to inputs and targets; None for recorded trials.
    data : (inputs, targets) or None
        Recorded trials.
    task : Task or None
        The statistics behind the trials, where they are known.
    """

    name: str
    draw: Sampler | None
    data: tuple[FloatArray, FloatArray] | None
    task: Task | None
    hash: str
    _tensors_of: dict[torch.dtype, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, source: Any) -> Source:
        """Take a Task, a sampler, or a pair of arrays."""
        if isinstance(source, cls):
            return source
        if isinstance(source, Task):
            return cls(source.name, source.sample, None, source, source.hash)
        if callable(source):
            name = getattr(source, "__qualname__", type(source).__name__)
            probe = [np.asarray(part) for part in source(2, _stream((0, 0), 0))]  # two functions may share a name
            return cls(name, source, None, None, spec_hash(f"{getattr(source, '__module__', '')}.{name}", *probe))
        if isinstance(source, tuple) and len(source) == 2:
            x, y = _checked(*source)
            return cls("recorded", None, (x, y), None, spec_hash(x, y))
        raise InvalidSpec(
            required="trials must come from a Task, a function of (trials, rng), or a pair (inputs, targets)",
            got=type(source).__name__,
            why="training needs inputs and targets",
            remedy="pass one of these",
        )

    def batch(self, trials: int | None, key: tuple[int, int], step: int, dtype: torch.dtype) -> Any:
        """Inputs and targets of one step, as tensors."""
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
        """Trials on which to judge: fresh ones, or all that were recorded."""
        if self.data is not None:
            return self._recorded(dtype)
        assert self.draw is not None
        return _tensors(self.draw(trials, _stream(key, _HELD_OUT)), dtype, check=True)

    def _recorded(self, dtype: torch.dtype) -> Any:
        if dtype not in self._tensors_of:
            assert self.data is not None
            self._tensors_of[dtype] = _tensors(self.data, dtype, check=False)
        return self._tensors_of[dtype]

    def checked_batch(self, trials: Any) -> int | None:
        """Number of trials per step; None uses all recorded trials at every step."""
        if trials is None:
            if self.data is None:
                raise InvalidSpec(
                    required="batch must say how many fresh trials are drawn per step",
                    got="None",
                    why=f"{self.name!r} has no end of them",
                    remedy="give a batch such as 1000",
                )
            return None
        return count("batch", trials, why="it counts trials")


def _tensors(trials: tuple[Any, Any], dtype: torch.dtype, *, check: bool) -> Any:
    x, y = _checked(*trials) if check else trials
    return torch.as_tensor(x, dtype=dtype), torch.as_tensor(y, dtype=dtype)


def _stream(key: tuple[int, int], step: int) -> np.random.Generator:
    return np.random.default_rng([*key, step])


def _checked(inputs: Any, targets: Any) -> tuple[FloatArray, FloatArray]:
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
