"""Tasks from trials that arrive in batches: loaders, data sets and generators."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from itertools import islice
from operator import length_hint
from typing import Any

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.progress import Progress, silent
from learncast._core.validation import FloatArray, count, real_array
from learncast.tasks.covariance import MEMORY_LIMIT
from learncast.tasks.recorded.blocks import BlockSums
from learncast.tasks.recorded.estimation import is_scaled, kept_as_trials, sampled, summed
from learncast.tasks.recorded.labels import one_hot
from learncast.tasks.task import Task

#: Items of a data set that are put together to one batch.
ITEMS = 256


def from_batches(
    batches: Any,
    *,
    name: str | None = None,
    centre: bool = False,
    scale: str = "none",
    classes: int | Sequence[Any] | None = None,
    most_batches: int | None = None,
    progress: Progress = silent,
) -> Task:
    """Estimate a task from batches of trials in one pass, without keeping them.

    The result is that of `Task.from_samples` on all trials together. Memory is bounded by the second moments: trials
    are kept while there are fewer than values in a trial, and only summed after that, in up to 64 blocks (see
    `resampled`).

    Parameters
    ----------
    batches : iterable, function of nothing that returns one, DataLoader or map-style Dataset
        Of batches (inputs, targets) or {"inputs": ..., "targets": ...}, as numpy arrays or torch tensors: inputs
        (batch, steps, inputs), or (batch, inputs) for a static task; targets (batch, outputs), or (batch, steps,
        outputs) for a target at every step. The items of a Dataset are single trials, without the batch axis. With
        `classes`, targets are labels: (batch,), or (batch, steps) for one at every step.
    name : str, optional
        What to call it; "recorded" by default.
    centre, scale
        As in `Task.from_samples`, nothing by default.
    classes : int or sequence, optional
        How many classes labels number, from 0, or which they name.
    most_batches : int, optional
        Batches to read. A generator without an end needs it: without it reading goes on until the generator stops,
        and whether it ever will cannot be known here.
    progress : callable
        Called with the share of batches read, where their number is known.

    Returns
    -------
    Task
        Its statistics; `name` is what tables call it.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> inputs = rng.standard_normal((300, 8, 2))
    >>> batches = [(inputs[k : k + 100], inputs[k : k + 100].sum(axis=1)) for k in (0, 100, 200)]
    >>> lc.tasks.from_batches(batches, name="sums")
    <Task 'sums': 8 steps, 2 inputs, 2 outputs at the end; estimated from 300 trials>
    """
    limit = None if most_batches is None else count("most_batches", most_batches)
    expected = _expected(batches, limit)
    stream = _Stream(centre, is_scaled(scale), classes)
    for k, batch in enumerate(islice(batches_of(batches), limit)):
        stream.add(batch, k)
        if expected:
            progress(min((k + 1) / expected, 1.0))
    progress(1.0)
    # A generator has run out by now. Trials that were centred, scaled or labelled are not those it gave.
    again = not isinstance(batches, Iterator) and not (centre or is_scaled(scale) or classes is not None)
    return stream.task(name or "recorded", batches if again else None)


def batches_of(source: Any) -> Iterator[Any]:
    """The batches of anything that `from_batches` reads, as they come."""
    if _is_iterable_dataset(source):
        raise InvalidSpec(
            f"batches must say whether its items are trials or batches, got {type(source).__name__}, an "
            "IterableDataset. Wrap it in a DataLoader with the batch_size that it needs (None for items that "
            "are batches).",
            field="batches",
        )
    if is_dataset(source):
        return _item_batches(source)
    if callable(source) and not isinstance(source, Iterable):
        source = source()
    if isinstance(source, str | bytes | Mapping) or not isinstance(source, Iterable):
        raise InvalidSpec(
            "batches must be an iterable of (inputs, targets), a function that returns one, a DataLoader or "
            f"a Dataset, got {type(source).__name__}. Pass one of these; whole arrays go to "
            "Task.from_samples, files to tasks.from_table.",
            field="batches",
        )
    return iter(source)


def endless(source: Any) -> Iterator[Any]:
    """The batches of a source, one pass after the other without end."""
    passes = 0
    while True:
        passes, given = passes + 1, 0
        for batch in batches_of(source):
            given += 1
            yield batch
        if not given:
            raise InvalidSpec(
                f"a source must give batches at every pass, got none in pass {passes}. Give a loader, a list, or "
                "a function that makes a new generator; a generator runs only once."
            )


def is_dataset(source: Any) -> bool:
    """Whether this is a map-style data set: numbered single trials."""
    torch_data = sys.modules.get("torch.utils.data")  # without torch loaded nothing can be one of its data sets
    if torch_data is not None and isinstance(source, torch_data.Dataset):
        return hasattr(source, "__getitem__") and not _is_iterable_dataset(source)
    # torch takes any object with these two methods for a data set; what can also be iterated is no such object.
    return hasattr(source, "__getitem__") and isinstance(source, Sized) and not isinstance(source, Iterable)


def _is_iterable_dataset(source: Any) -> bool:
    torch_data = sys.modules.get("torch.utils.data")
    return torch_data is not None and isinstance(source, torch_data.IterableDataset)


def _item_batches(dataset: Any) -> Iterator[Any]:
    first: Any = None
    for start in range(0, len(dataset), ITEMS):
        pairs = [trial_pair(dataset[k], f"trial {k}") for k in range(start, min(start + ITEMS, len(dataset)))]
        for k, (x, y) in enumerate(pairs):
            first = first or (x.shape, y.shape)
            if (x.shape, y.shape) != first:
                raise _changed(f"trial {start + k}", (x.shape, y.shape), "trial 0", first)
        yield tuple(np.stack(parts) for parts in zip(*pairs, strict=True))


def pair_of(item: Any, where: str) -> tuple[Any, Any]:
    """Inputs and targets of one item, as they are."""
    if isinstance(item, Mapping):
        if not {"inputs", "targets"} <= set(item):
            raise _no_pair(where, f"a mapping of {', '.join(map(repr, item)) or 'nothing'}")
        return item["inputs"], item["targets"]
    if not isinstance(item, tuple | list) or len(item) != 2:
        kind = type(item).__name__
        raise _no_pair(where, f"{kind} of {len(item)}" if isinstance(item, tuple | list) else kind)
    return item[0], item[1]


def trial_pair(item: Any, where: str) -> tuple[FloatArray, FloatArray]:
    """Inputs and targets of one item, as finite arrays."""
    inputs, targets = pair_of(item, where)
    return real_array(f"inputs of {where}", inputs), real_array(f"targets of {where}", targets)


def _no_pair(where: str, got: str) -> InvalidSpec:
    return InvalidSpec(
        f"{where} must be a pair (inputs, targets) or a mapping with these two keys, got {got}. Yield "
        "(inputs, targets); whole arrays go to Task.from_samples."
    )


def _changed(where: str, got: Any, first: str, shape: Any) -> InvalidSpec:
    return InvalidSpec(
        f"{where} must have the shapes of {first}, inputs {shape[0]} and targets {shape[1]}, got {got[0]} and {got[1]}."
    )


def _expected(source: Any, limit: int | None) -> int | None:
    """How many batches will come, where that can be told."""
    known = length_hint(source)
    if is_dataset(source):
        known = -(-known // ITEMS)
    return min(known, limit or known) if known else limit


class _Stream:
    """The statistics of what has been read so far."""

    def __init__(self, centre: bool, scaled: bool, classes: int | Sequence[Any] | None) -> None:
        self.centre, self.scaled, self.trials = centre, scaled, 0
        self._classes: int | Sequence[Any] | None = classes
        self._known: tuple[Any, ...] | None = None
        self._kept: list[FloatArray] = []
        self._sums: BlockSums | None = None
        self._shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    def add(self, batch: Any, k: int) -> None:
        if self._classes is not None:
            inputs, labels = pair_of(batch, f"batch {k}")
            targets, self._known = one_hot(labels, self._classes, where=f"labels of batch {k}")
            batch = inputs, targets
        x, y = checked_batch(batch, f"batch {k}")
        shapes = x.shape[1:], y.shape[1:]
        if self._shapes is None:
            self._shapes = shapes
        elif shapes != self._shapes:
            raise _changed(f"a trial in batch {k}", shapes, "those in batch 0", self._shapes)
        rows = np.concatenate([x.reshape(len(x), -1), y.reshape(len(y), -1)], axis=1)
        self.trials += len(rows)
        if self._sums is not None:
            self._sums.add(rows)
            return
        self._kept.append(rows)
        if kept_as_trials(self.trials, rows.shape[1]):
            return
        if 8 * rows.shape[1] ** 2 > MEMORY_LIMIT:
            raise InvalidSpec(
                f"the statistics must fit in {MEMORY_LIMIT / 2**30:.3g} GiB, got {rows.shape[1]} values a "
                f"trial, and {self.trials} trials up to batch {k}. Shorten or down-sample the trials, reduce the "
                "channels, or set most_batches."
            )
        self._sums = BlockSums(*self._layout, centred=self.centre, scaled=self.scaled)
        for part in self._kept:
            self._sums.add(part)
        self._kept = []

    @property
    def _layout(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """(steps, channels) of inputs and of targets; one step where there is no such axis."""
        assert self._shapes is not None
        x, y = ((1, shape[0]) if len(shape) == 1 else (shape[0], shape[1]) for shape in self._shapes)
        return x, y

    def task(self, name: str, origin: Any) -> Task:
        if self.trials < 2:
            raise InvalidSpec(
                required="at least two trials are needed",
                got="one trial" if self.trials else "a source that yields nothing",
                why="covariances cannot be estimated from less",
                remedy="check that the source is not used up (a generator runs once), or record more trials",
            )
        if self._sums is not None:
            found = summed(self._sums)
        else:
            rows, (inputs, targets) = np.concatenate(self._kept), self._layout
            n = inputs[0] * inputs[1]
            found = sampled(rows[:, :n], rows[:, n:], inputs, targets, centre=self.centre, scaled=self.scaled)
        recording = replace(found.recording, given=self.trials, classes=self._known, origin=origin)
        return Task.estimated(found._replace(recording=recording), name=name)


def checked_batch(batch: Any, where: str) -> tuple[FloatArray, FloatArray]:
    """Inputs (trials[, steps], inputs) and targets (trials[, steps], outputs) of a batch, which fit each other."""
    x, y = trial_pair(batch, where)
    fits = x.ndim in (2, 3) and y.ndim in (2, 3) and len(x) == len(y) and 0 not in x.shape + y.shape
    if not fits or (y.ndim == 3 and y.shape[1] not in (1, x.shape[1] if x.ndim == 3 else 1)):
        raise InvalidSpec(
            f"{where} must pair inputs (trials, steps, inputs) or (trials, inputs) with targets (trials, "
            f"outputs) or, at every step, (trials, steps, outputs), got shapes {x.shape} and {y.shape}."
        )
    return x, y
