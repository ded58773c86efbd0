"""Sources of trials: a task, an environment, a sampler, recorded arrays or a loader."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, between, count, real_array
from learncast.results import spec_hash
from learncast.tasks.recorded.environments import Environment, EnvironmentTrials, is_environment
from learncast.tasks.recorded.streams import MapDataset, batches_of, is_dataset, pair_of
from learncast.tasks.recorded.targets import Targets, array_like, as_numpy, check_same_trials, class_numbers
from learncast.tasks.task import Task
from learncast.training.losses import IGNORED, LossFunction

#: Draws trials: (trials, rng) to inputs and targets, or to inputs, targets and weights.
Sampler = Callable[[int, np.random.Generator], tuple[object, ...]]
#: Trials for training: a task, arrays, a loader, a data set, an environment or a function that draws or loads them.
Trials: TypeAlias = (
    "Task | Source | EnvironmentTrials | Environment | MapDataset | Iterable[object] | Callable[..., object]"
)
#: Fresh trials per step if the training does not say how many.
FRESH = 1000
#: Index of the random stream of held-out trials; batches use the step.
_HELD_OUT = 2**32 - 1


class Batch(NamedTuple):
    """Trials that are trained on together.

    Attributes
    ----------
    inputs : (trials, steps, inputs) or (trials, inputs)
    targets : (trials, outputs), (trials, steps, outputs), or integer labels (trials,) or (trials, steps)
    weights : (trials,), (trials, steps), (trials, steps, outputs) or None
        Weight of each target; None if all count once.
    """

    inputs: Any
    targets: Any
    weights: Any = None

    def tensors(self, dtype: torch.dtype) -> Batch:
        """Return tensors; numbers have the given precision, labels stay integers."""
        y = torch.as_tensor(self.targets)
        w = None if self.weights is None else torch.as_tensor(self.weights, dtype=dtype)
        return Batch(torch.as_tensor(self.inputs, dtype=dtype), y if not y.is_floating_point() else y.to(dtype), w)

    def rows(self, chosen: object) -> Batch:
        """Return some of the trials."""
        return Batch(*(None if part is None else part[chosen] for part in self))

    @property
    def every_step(self) -> bool:
        """Whether there is a target at every step."""
        return bool(np.ndim(self.targets) == (3 if self.numeric else 2))

    @property
    def numeric(self) -> bool:
        """Whether targets are numbers, not labels."""
        y = self.targets
        return bool(y.is_floating_point() if isinstance(y, torch.Tensor) else y.dtype.kind == "f")


def trials(
    source: Trials,
    *,
    mask: ArrayLike | torch.Tensor | None = None,
    lengths: ArrayLike | torch.Tensor | None = None,
    batch_first: bool | None = None,
    labels: bool | None = None,
    held_out: float | int | tuple[object, ...] | None = None,
    name: str | None = None,
    gaussian: bool = False,
) -> Source:
    """Describe trials in more detail than their arrays or loader do.

    Parameters
    ----------
    source : any trials that `train` takes
    mask : (trials,), (trials, steps) or (trials, steps, outputs), optional
        Weight of each target of recorded arrays; targets with weight 0 may be nan. Loaders and samplers return a mask
        as the third item of (inputs, targets, mask).
    lengths : (trials,), optional
        Number of steps of each recorded trial, for arrays that are padded at the end.
    batch_first : bool, optional
        False for arrays and batches (steps, trials, channels). By default true, or what the source itself says.
    labels : bool, optional
        Whether targets are class labels; see `Task.from_samples`.
    held_out : float, int or (inputs, targets), optional
        Trials for evaluation that are not trained on: a share or a number of recorded trials (the last ones), or other
        trials.
    name : str, optional
    gaussian : bool
        For a recorded Task: draw Gaussian trials with its statistics instead of its own trials.

    Returns
    -------
    Source
        Accepted wherever trials are.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> inputs = np.random.default_rng(0).standard_normal((40, 6, 1))
    >>> targets, mask = inputs.cumsum(axis=1), np.zeros((40, 6))
    >>> mask[:, -2:] = 1  # only the last two steps count
    >>> recorded = lc.training.trials((inputs, targets), mask=mask, held_out=0.25, name="running sum")
    >>> recorded.name, len(recorded.data.inputs), len(recorded.kept.inputs)
    ('running sum', 30, 10)
    >>> model = lc.training.gated_module("gru", hidden_size=3, every_step=True)
    >>> lc.training.train(recorded, model, lc.Training(0.01, batch=10), steps=5)
    <TrainingRun by gd: running sum (5); 5 steps, ok>
    """
    where = "" if name is None else f" of {name!r}"
    if mask is None and lengths is None:
        made = Source.of(source, batch_first=batch_first, gaussian=gaussian, labels=labels, where=where)
    elif isinstance(source, tuple) and len(source) == 2:
        first = batch_first is not False
        made = Source.recorded(_checked(*source, mask, batch_first=first, lengths=lengths, labels=labels, where=where))
    else:
        got = f"{type(source).__name__}, which may return (inputs, targets, mask) itself"
        raise InvalidSpec(f"mask and lengths need arrays (inputs, targets), got {got}.", field="mask")
    if held_out is not None:
        made = made.split(held_out)
    return made if name is None else replace(made, name=name)


@dataclass(frozen=True, eq=False)
class Source:
    """Trials for training.

    Every batch is a function of (seed, stage, step), so that a run can be resumed at any step. Loaders are the
    exception: they give their own batches in their own order.

    Attributes
    ----------
    name : str
    draw : callable or None
        (trials, rng) to inputs, targets and perhaps weights; None for recorded trials.
    data : Batch or None
        Recorded trials.
    task : Task or None
        Statistics of the trials, if known.
    passes : Passes or None
        Batches of a loader.
    kept : Batch or None
        Trials for evaluation only.
    labels : bool or None
        Whether targets that are drawn or loaded are class labels; None if their type says so.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.training.Source.of(lc.tasks.integration(steps=5)).sizes
    {'inputs': 1, 'outputs': 1, 'every_step': False}
    """

    name: str
    draw: Sampler | None
    data: Batch | None
    task: Task | None
    hash: str
    passes: Passes | None = None
    kept: Batch | None = None
    batch_first: bool = True
    labels: bool | None = None
    _tensors_of: dict[torch.dtype, Batch] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        source: object,
        *,
        batch_first: bool | None = None,
        gaussian: bool = False,
        labels: bool | None = None,
        where: str = "",
        loss: LossFunction | None = None,
    ) -> Source:
        """Return a Source from a Task, environment, sampler, pair of arrays, DataLoader, Dataset or function.

        Integer targets that may be labels or counts are labels for a `loss` of labels, and are refused otherwise.

        A function without arguments returns batches (inputs, targets) and is called again for every pass. A Dataset is
        read into memory. Error messages name the arrays with `where`, e.g. ``" of target"``.
        """
        if isinstance(source, cls):
            return source
        first = getattr(source, "batch_first", True) is not False if batch_first is None else bool(batch_first)
        if isinstance(source, Task):
            origin = None if gaussian else getattr(source.recording, "origin", None)
            if origin is None:
                return cls._of_task(source, gaussian)
            listed = not isinstance(origin, EnvironmentTrials) and not is_dataset(origin)
            made = cls._streamed(origin, first) if listed else cls.of(origin, batch_first=batch_first)
            return replace(made, name=source.name, task=source, hash=spec_hash(made.hash, source.hash))
        if is_environment(source) or isinstance(source, EnvironmentTrials):
            environment = source if isinstance(source, EnvironmentTrials) else EnvironmentTrials(source)
            example = [np.asarray(part) for part in environment.draw(2, _stream((0, 0), 0))]
            return cls(environment.name, environment.draw, None, None, spec_hash(environment.name, *example))
        if isinstance(source, torch.utils.data.DataLoader) or _gives_batches(source) or _is_stream(source):
            return cls._streamed(source, first, labels)
        if is_dataset(source):
            where = f"trials of {type(source).__name__}{where}"
            parts = [checked_trials(item, where, labels=labels) for item in batches_of(source)]
            return cls.of(tuple(joined(parts)[:2]), labels=labels, loss=loss)
        if callable(source):
            name = getattr(source, "__qualname__", type(source).__name__)
            probe = [np.asarray(part) for part in source(2, _stream((0, 0), 0))]  # two functions may share a name
            digest = spec_hash(f"{getattr(source, '__module__', '')}.{name}", *probe)
            return cls(name, source, None, None, digest, batch_first=first, labels=labels)
        if isinstance(source, tuple) and len(source) in (2, 3):
            sure = loss is not None and loss.of_labels
            try:
                return cls.recorded(_checked(*source, batch_first=first, labels=labels, complete=not sure, where=where))
            except InvalidSpec as error:
                if error.field != "labels" or loss is None:
                    raise
                text = f"{error} Give training.trials((inputs, targets), labels=...)."
                raise InvalidSpec(text, field="labels") from None
        kinds = "a Task, an environment, arrays, a sampler, a DataLoader, a Dataset or a function that returns batches"
        raise InvalidSpec(f"trials must be {kinds}, got {type(source).__name__}.", field="trials")

    @classmethod
    def recorded(cls, data: Batch) -> Source:
        """Return a source of recorded trials."""
        return cls("recorded", None, data, None, spec_hash(*(part for part in data if part is not None)))

    @classmethod
    def _of_task(cls, task: Task, gaussian: bool) -> Source:
        """Return the recorded trials of a task or, if they are not stored, Gaussian trials with its statistics."""
        kept = None if gaussian else task.recorded_trials
        if kept is None:
            return cls(task.name, task.sample, None, task, task.hash)
        targets = kept.targets[:, 0] if kept.targets.shape[1] == 1 else kept.targets
        data = Batch(kept.inputs, targets, None if kept.counted.all() else kept.counted.astype(float))
        return cls(task.name, None, data, task, task.hash)

    @classmethod
    def _streamed(cls, source: object, batch_first: bool, labels: bool | None = None) -> Source:
        passes = Passes(source, batch_first, labels)
        name = getattr(source, "__qualname__", type(source).__name__)
        parts = [part for part in passes.first(1) if part is not None]
        return cls(name, None, None, None, spec_hash(name, *parts), passes, batch_first=batch_first, labels=labels)

    @property
    def is_sampled(self) -> bool:
        """Whether fresh trials are drawn at every step."""
        return self.draw is not None

    def batch(
        self, trials: int | None, key: tuple[int, int], step: int, dtype: torch.dtype, *, shuffle: bool = False
    ) -> Batch:
        """Return the trials of one step as tensors; None means all recorded trials, or 1,000 fresh ones.

        Recorded trials are drawn independently of each other, or with `shuffle` in epochs (see `Training`).
        """
        if self.passes is not None:
            return self.passes.following().tensors(dtype)
        if self.data is None:
            fresh = self.fresh(FRESH if trials is None else trials, _stream(key, step), check=not self.task)
            return fresh.tensors(dtype)
        recorded = self._recorded(dtype)
        size = len(recorded.inputs)
        if trials is None or trials >= size:
            return recorded
        if not shuffle:
            return recorded.rows(_stream(key, step).integers(size, size=trials))
        epoch, place = divmod(step, math.ceil(size / trials))
        return recorded.rows(_stream(key, epoch).permutation(size)[place * trials : (place + 1) * trials])

    def held_out(self, trials: int, key: tuple[int, int], dtype: torch.dtype) -> Batch:
        """Return trials for evaluation: those set aside, fresh ones, all recorded ones, or the first of a loader."""
        if self.kept is not None:
            return self.kept.tensors(dtype)
        if self.passes is not None:
            return self.passes.first(trials).tensors(dtype)
        if self.data is not None:
            return self._recorded(dtype)
        return self.fresh(trials, _stream(key, _HELD_OUT)).tensors(dtype)

    def fresh(self, trials: int, rng: np.random.Generator, *, check: bool = True) -> Batch:
        """Draw trials."""
        assert self.draw is not None
        parts = self.draw(trials, rng)
        plain = len(parts) == 2 and self.batch_first and not check
        return Batch(*parts) if plain else checked_trials(parts, repr(self.name), self.batch_first, self.labels)

    def _recorded(self, dtype: torch.dtype) -> Batch:
        if dtype not in self._tensors_of:
            assert self.data is not None
            self._tensors_of[dtype] = self.data.tensors(dtype)
        return self._tensors_of[dtype]

    @property
    def sizes(self) -> dict[str, int | bool]:
        """Keywords `inputs`, `outputs` and `every_step` of a network that fits these trials."""
        batch = self.held_out(64, (0, 0), torch.float32)
        if batch.numeric:
            outputs = int(batch.targets.shape[-1])
        else:
            classes = getattr(getattr(self.draw, "__self__", None), "classes", None)
            outputs = int(batch.targets.max()) + 1 if classes is None else len(classes)
        return {"inputs": int(batch.inputs.shape[-1]), "outputs": outputs, "every_step": batch.every_step}

    @property
    def repeats(self) -> bool:
        """Whether this is a loader that gives the same trials at every pass."""
        data = None if self.passes is None else getattr(self.passes.source, "dataset", None)
        return data is not None and is_dataset(data)

    def split(self, held_out: float | int | tuple[object, ...]) -> Source:
        """Set some trials aside for evaluation."""
        if isinstance(held_out, tuple):
            kept = _checked(*held_out, batch_first=self.batch_first, labels=self.labels)
            return replace(self, kept=kept, hash=spec_hash(self.hash, *(p for p in kept if p is not None)))
        if self.data is None:
            raise InvalidSpec(f"held_out must be (inputs, targets) here, got {held_out!r}.", field="held_out")
        size = len(self.data.inputs)
        share = held_out if isinstance(held_out, float) else count("held_out", held_out) / size
        aside = round(size * between("held_out", share, 0.0, 1.0))
        if not 0 < aside < size:
            raise InvalidSpec(f"held_out must leave trials to both, got {held_out!r} of {size}.", field="held_out")
        data, kept = self.data.rows(slice(0, size - aside)), self.data.rows(slice(size - aside, None))
        return replace(self, data=data, kept=kept, hash=spec_hash(self.hash, aside), _tensors_of={})


class Passes:
    """Endless passes through the batches of a loader.

    The first batches are kept for evaluation. They are trained on only when the loader gives them again.
    """

    def __init__(self, source: object, batch_first: bool = True, labels: bool | None = None) -> None:
        self.source, self._given, self._passes, self._layout = source, 0, 1, (batch_first, labels)
        self._batches = batches_of(source)
        self._held: list[Batch] = []

    def following(self) -> Batch:
        """Return the next batch, of a new pass if necessary."""
        batch = self._rest_of_pass()
        if batch is None:
            self._batches, self._passes = batches_of(self.source), self._passes + 1
            batch = self._rest_of_pass()
        if batch is None:
            remedy = "Check batch_size and drop_last; a function must return a new generator each time."
            raise InvalidSpec(f"The loader gave no batch in pass {self._passes}. {remedy}", field="trials")
        return batch

    def first(self, trials: int) -> Batch:
        """Return the first trials, at most those of one pass."""
        while sum(len(one.inputs) for one in self._held) < trials and self._passes == 1:
            batch = self._rest_of_pass() if self._held else self.following()
            if batch is None:
                break
            self._held.append(batch)
        return joined(self._held).rows(slice(0, trials))

    def _rest_of_pass(self) -> Batch | None:
        """Return the next batch of this pass; None at its end."""
        for batch in self._batches:
            self._given += 1
            return checked_trials(batch, f"batch {self._given - 1}", *self._layout)
        return None


def _gives_batches(source: Any) -> bool:
    """Whether this is a function without arguments; one of (trials, rng) is a sampler."""

    def takes(*values: object) -> bool:
        try:
            inspect.signature(source).bind(*values)
        except (TypeError, ValueError):  # some functions written in C have no signature
            return False
        return True

    return callable(source) and takes() and not takes(1, None)


def _stream(key: tuple[int, int], step: int) -> np.random.Generator:
    return np.random.default_rng([*key, step])


def _is_stream(source: object) -> bool:
    """Whether this is an iterator that states its layout, as neurogym's Dataset does."""
    return hasattr(source, "__next__") and hasattr(source, "batch_first")


def joined(batches: list[Batch]) -> Batch:
    """Concatenate batches."""
    return Batch(*(None if parts[0] is None else np.concatenate(parts) for parts in zip(*batches, strict=True)))


def checked_trials(batch: object, where: str, batch_first: bool = True, labels: bool | None = None) -> Batch:
    """Return a checked batch from (inputs, targets), (inputs, targets, mask) or a mapping with these keys."""
    if isinstance(batch, Mapping) and "mask" in batch:
        batch = (*pair_of(batch, where), batch["mask"])
    parts = batch if isinstance(batch, tuple | list) and len(batch) == 3 else pair_of(batch, where)
    return _checked(*parts, batch_first=batch_first, labels=labels, complete=False, where=f" of {where}")


def _raw(name: str, values: object) -> Any:
    return as_numpy(array_like(name, values))


def _checked(
    inputs: object,
    targets: object,
    weights: object = None,
    *,
    batch_first: bool = True,
    lengths: object = None,
    labels: bool | None = None,
    complete: bool = True,
    where: str = "",
) -> Batch:
    """Return trials with matching shapes, trials first; ignored targets may be nan."""
    check_same_trials(inputs=inputs, targets=targets, mask=weights, lengths=lengths)
    named = isinstance(getattr(inputs, "dims", None), tuple)  # an xarray array says which axis is which
    x, y = _raw("inputs", inputs), _raw("targets", targets)
    w = None if weights is None else _raw("mask", weights).astype(float)
    if not batch_first and x.ndim == 3 and not named:
        at_steps = y.ndim == 3 or (y.shape == x.shape[:2] and (y.dtype.kind in "iub" or bool(labels)))
        x = np.ascontiguousarray(x.swapaxes(0, 1))
        y = np.ascontiguousarray(y.swapaxes(0, 1)) if at_steps else y
        w = np.ascontiguousarray(w.swapaxes(0, 1)) if w is not None and w.ndim > 1 else w
    size = (len(x), x.shape[1] if x.ndim == 3 else 1)
    y, are_labels, every_step = Targets.of(y, size, labels, complete=complete, where=where)
    if lengths is not None:
        x, y, w = _cut(x, y, w, real_array("lengths", lengths, ndim=1).astype(int), every_step)
    x = real_array(f"inputs{where}", x, ndim=(2, 3))
    w = None if w is None else real_array(f"mask{where}", w, ndim=(1, 2, 3))
    if are_labels:
        if w is not None and w.shape == y.shape:
            y = np.where(w > 0, y, IGNORED)
        y = class_numbers(y, where)
    else:
        if w is not None and y.ndim in (2, 3):
            counted = w.reshape(w.shape + (1,) * (y.ndim - w.ndim)) if w.ndim <= y.ndim else w
            y = np.where(counted > 0, y, 0.0) if np.broadcast_shapes(counted.shape, y.shape) == y.shape else y
        y = real_array(f"targets{where}", y, ndim=(2, 3))
    if len(x) != len(y) or 0 in x.shape + y.shape or (every_step and (x.ndim != 3 or y.shape[1] != x.shape[1])):
        turned = x.ndim == 3 and y.ndim >= 2 and x.shape[:2] == y.shape[1::-1]
        hint = " If steps come first, use trials(..., batch_first=False)." if turned else ""
        shapes = f"{x.shape} and {y.shape}"
        raise InvalidSpec(f"targets{where} must match the inputs, got shapes {shapes}.{hint}", field="targets")
    return Batch(x, y, None if w is None else _fitting(w, y.shape if are_labels else y.shape[:-1], y, where))


def _fitting(weights: FloatArray, readouts: tuple[int, ...], targets: Any, where: str) -> FloatArray:
    """Return weights of each readout, or of each of its outputs."""
    if weights.shape == readouts[:1] and len(readouts) == 2:
        weights = np.repeat(weights[:, None], readouts[1], axis=1)
    if weights.shape not in (readouts, targets.shape) or (weights < 0).any() or not weights.any():
        got = f"shape {weights.shape} and values from {weights.min():g} to {weights.max():g}"
        raise InvalidSpec(f"mask{where} must be positive or 0 for each readout {readouts}, got {got}.", field="mask")
    return weights


def _cut(x: FloatArray, y: object, weights: Any, lengths: Any, every_step: bool) -> tuple[FloatArray, object, object]:
    """Shorten trials: later targets do not count; a trial with one target at its end is shifted to the array's end."""
    if lengths.shape != (len(x),) or x.ndim != 3 or not ((lengths >= 1) & (lengths <= x.shape[1])).all():
        got = f"shape {lengths.shape} and values from {lengths.min()} to {lengths.max()}"
        raise InvalidSpec(f"lengths must be 1 to {np.shape(x)[1]} for {len(x)} trials, got {got}.", field="lengths")
    present = np.arange(x.shape[1]) < lengths[:, None]
    if every_step:
        x = np.where(present[:, :, None], x, 0.0)
        if weights is None:
            return x, y, present.astype(float)
        return x, y, weights * (present if weights.ndim == 2 else present[:, :, None])
    shifted = np.zeros_like(x)  # without input, a network at rest stays at rest
    for k, length in enumerate(lengths):
        shifted[k, x.shape[1] - length :] = x[k, :length]
    return shifted, y, weights
