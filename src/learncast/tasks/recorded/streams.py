"""Tasks from trials that arrive in batches: loaders, data sets and generators."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from itertools import islice
from operator import length_hint
from typing import Any, Protocol

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.progress import Progress, silent
from learncast._core.validation import FloatArray, count, real_array
from learncast.tasks.covariance import check_memory
from learncast.tasks.recorded.blocks import BlockSums
from learncast.tasks.recorded.estimation import is_scaled, kept_as_trials, sampled, summed
from learncast.tasks.recorded.targets import Targets, array_like, as_numpy, check_same_trials, one_hot, squarable
from learncast.tasks.recorded.trials import KEPT_MEMORY, RecordedTrials
from learncast.tasks.task import Task

#: Number of items of a data set in one batch.
ITEMS = 256


class MapDataset(Protocol):
    """A map-style data set, whose items are single trials."""

    def __getitem__(self, index: int, /) -> object: ...
    def __len__(self) -> int: ...


def from_batches(
    batches: object,
    *,
    name: str | None = None,
    centre: bool = False,
    scale: str = "none",
    labels: bool | None = None,
    classes: int | Sequence[object] | None = None,
    most_batches: int | None = None,
    progress: Progress = silent,
) -> Task:
    """Estimate a task from batches of trials in one pass, without storing all trials.

    The result is that of `Task.from_samples` on all trials together. Trials are stored while there are fewer of them
    than values in a trial; after that only their second moments are, in up to 64 blocks (see `resampled`).

    Parameters
    ----------
    batches : iterable, function without arguments that returns one, DataLoader or map-style Dataset
        Batches (inputs, targets) or {"inputs": ..., "targets": ...} of numpy arrays or torch tensors: inputs
        (batch, steps, inputs), or (batch, inputs) for a static task; targets (batch, outputs), or (batch, steps,
        outputs) for a target at every step. The items of a Dataset are single trials, without the batch axis. Integers
        and strings (batch,) or (batch, steps) are labels, which need `classes`.
    name : str, optional
        Name of the task; "recorded" by default.
    centre, scale
        See `Task.from_samples`.
    labels : bool, optional
        See `Task.from_samples`.
    classes : int or sequence, optional
        Number of classes of the labels, numbered from 0, or the classes.
    most_batches : int, optional
        Most batches to read. Required for a generator that does not end.
    progress : callable
        Called with the share of batches read, if their number is known.

    Returns
    -------
    Task
        Statistics of the trials.

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
    stream = _Stream(centre, is_scaled(scale), True if classes is not None else labels, classes)
    for k, batch in enumerate(islice(batches_of(batches), limit)):
        stream.add(batch, f"batch {k}")
        if expected:
            progress(min((k + 1) / expected, 1.0))
    progress(1.0)
    # A generator is exhausted by now, and preprocessed trials differ from those of the source.
    reusable = not (isinstance(batches, Iterator) or centre or stream.scaled or stream.known)
    return stream.task(name or "recorded", batches if reusable else None)


def batches_of(source: object) -> Iterator[object]:
    """Iterate over the batches of any source that `from_batches` accepts."""
    if _is_iterable_dataset(source):
        remedy = f"Wrap {type(source).__name__} in a DataLoader with its batch_size."
        raise InvalidSpec(f"batches must not be an IterableDataset. {remedy}", field="batches")
    if is_dataset(source):
        return _item_batches(source)
    if callable(source) and not isinstance(source, Iterable):
        source = source()
    if isinstance(source, str | bytes | Mapping) or not isinstance(source, Iterable):
        kinds = "an iterable of (inputs, targets), a function that returns one, a DataLoader or a Dataset"
        raise InvalidSpec(f"batches must be {kinds}, got {type(source).__name__}.", field="batches")
    return iter(source)


def repeated_batches(source: object) -> Iterator[object]:
    """Iterate over the batches of a source again and again."""
    while True:
        batch = None
        for batch in batches_of(source):
            yield batch
        if batch is None:
            remedy = "Give a loader, a list, or a function that makes a generator."
            raise InvalidSpec(f"batches must be repeatable, got none. {remedy}", field="batches")


def is_dataset(source: object) -> bool:
    """Whether a source is a map-style data set, whose items are single trials."""
    torch_data = sys.modules.get("torch.utils.data")  # if torch is not loaded, the source is not one of its data sets
    if torch_data is not None and isinstance(source, torch_data.Dataset):
        return hasattr(source, "__getitem__") and not _is_iterable_dataset(source)
    # torch accepts any object with these two methods as a data set.
    return hasattr(source, "__getitem__") and isinstance(source, Sized) and not isinstance(source, Iterable)


def _is_iterable_dataset(source: object) -> bool:
    torch_data = sys.modules.get("torch.utils.data")
    return torch_data is not None and isinstance(source, torch_data.IterableDataset)


def _item_batches(dataset: Any) -> Iterator[object]:
    shapes: tuple[object, object] | None = None
    for start in range(0, len(dataset), ITEMS):
        pairs = []
        for k in range(start, min(start + ITEMS, len(dataset))):
            x, y = (as_numpy(part) for part in pair_of(dataset[k], f"trial {k}"))
            shapes = _same_shapes(shapes, (x.shape, y.shape), f"trial {k}")
            pairs.append((x, y))
        yield tuple(np.stack(parts) for parts in zip(*pairs, strict=True))


def pair_of(item: object, where: str) -> tuple[object, object]:
    """Inputs and targets of one item."""
    if isinstance(item, Mapping) and {"inputs", "targets"} <= set(item):
        return item["inputs"], item["targets"]
    if isinstance(item, tuple | list) and len(item) == 2:
        return item[0], item[1]
    size = f" of {len(item)}" if isinstance(item, tuple | list | Mapping) else ""
    raise InvalidSpec(f"{where} must be (inputs, targets), got {type(item).__name__}{size}.", field="batches")


def _same_shapes(first: tuple[object, object] | None, shapes: tuple[object, object], where: str) -> tuple[Any, Any]:
    if first is not None and shapes != first:
        wanted, got = (f"{one[0]} and {one[1]}" for one in (first, shapes))
        raise InvalidSpec(f"trials must have the shapes {wanted}, got {got} in {where}.", field="batches")
    return shapes


def _expected(source: object, limit: int | None) -> int | None:
    """Number of batches, if it is known."""
    known = length_hint(source)
    if is_dataset(source):
        known = -(-known // ITEMS)
    return min(known, limit or known) if known else limit


class _Stream:
    """Statistics of the batches read so far."""

    def __init__(self, centre: bool, scaled: bool, labels: bool | None, classes: int | Sequence[object] | None) -> None:
        self.centre, self.scaled, self.labels, self.classes, self.trials = centre, scaled, labels, classes, 0
        self.known: tuple[object, ...] | None = None
        self._rows: list[FloatArray] | None = []
        self._sums: BlockSums | None = None
        self._shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    def add(self, batch: object, where: str) -> None:
        x, (y, are_labels, _) = checked_batch(batch, where, self.labels)
        if are_labels:
            if self.classes is None:
                remedy = "Set their number, or labels=False if they are numbers."
                raise InvalidSpec(f"labels of batches need classes, got none in {where}. {remedy}", field="classes")
            y, self.known = one_hot(y, self.classes, where=f"labels of {where}")
        x, y = squarable("inputs", x), squarable("targets", real_array(f"targets of {where}", y))
        self._shapes = _same_shapes(self._shapes, (x.shape[1:], y.shape[1:]), where)
        rows = np.concatenate([x.reshape(len(x), -1), y.reshape(len(y), -1)], axis=1)
        self.trials += len(rows)
        if self._rows is not None:
            self._rows.append(rows)
        if self._sums is not None:
            self._sums.add(rows)
        elif not kept_as_trials(self.trials, rows.shape[1]):
            check_memory(rows.shape[1] ** 2, f"the statistics of trials of {rows.shape[1]} values")
            self._sums = BlockSums(*self._layout, centred=self.centre, scaled=self.scaled)
            for part in self._rows or ():
                self._sums.add(part)
        if self._sums is not None and 8 * self.trials * rows.shape[1] > KEPT_MEMORY:
            self._rows = None

    @property
    def _layout(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """(steps, channels) of inputs and of targets."""
        assert self._shapes is not None
        x, y = ((1, shape[0]) if len(shape) == 1 else (shape[0], shape[1]) for shape in self._shapes)
        return x, y

    def task(self, name: str, origin: object) -> Task:
        if self.trials < 2:
            raise InvalidSpec(f"batches must have at least two trials, got {self.trials}.", field="batches")
        source = None
        if self._rows is not None:
            rows, (inputs, targets) = np.concatenate(self._rows), self._layout
            n = inputs[0] * inputs[1]
            x, y = rows[:, :n].reshape(-1, *inputs), rows[:, n:].reshape(-1, *targets)
            source = RecordedTrials(x, y, np.arange(len(x)))
        if self._sums is not None:
            estimate = summed(self._sums)
        else:
            estimate, source = sampled(x, y, self.centre, self.scaled), None
        recording = replace(estimate.recording, given=self.trials, classes=self.known, source=source, origin=origin)
        return Task.estimated(estimate._replace(recording=recording), name=name)


def checked_batch(batch: object, where: str, labels: bool | None = None) -> tuple[FloatArray, Targets]:
    """Inputs (trials[, steps], inputs) and targets of a batch, with shapes that fit."""
    inputs, targets = pair_of(batch, where)
    check_same_trials(inputs=inputs, targets=targets)
    x, y = real_array(f"inputs of {where}", array_like("inputs", inputs)), array_like("targets", targets)
    size = (len(x), x.shape[1] if x.ndim == 3 else 1) if x.ndim else (0, 0)
    if x.ndim not in (2, 3) or y.ndim == 0 or len(x) != len(y) or 0 in x.shape + tuple(y.shape):
        raise _misfit(where, x, y)
    read = Targets.of(y, size, labels, complete=False, where=f" of {where}")
    if read.every_step and read.values.shape[1] != size[1]:
        raise _misfit(where, x, y)
    return x, read


def _misfit(where: str, x: Any, y: Any) -> InvalidSpec:
    got = f"{tuple(x.shape)} and {tuple(y.shape)}"
    return InvalidSpec(f"inputs and targets of {where} must match, got shapes {got}.", field="batches")
