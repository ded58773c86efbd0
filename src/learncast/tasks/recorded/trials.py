"""Recorded trials, checked, with labels as one-hot targets, masked and aligned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, real_array
from learncast.tasks.recorded.masked import Mask, MaskedTrials
from learncast.tasks.recorded.targets import Targets, array_like, as_numpy, one_hot, squarable

#: Names of the axes in messages about a bad entry.
AXES = ("trial", "step", "channel")
#: Most bytes of trials that are kept beside their statistics.
KEPT_MEMORY = 2**28


@dataclass(frozen=True, eq=False)
class RecordedTrials:
    """Inputs and targets of recorded trials, and which of their steps exist and count.

    Attributes
    ----------
    inputs : array-like (trials, steps, inputs)
        Array, memory map or tensor, read in chunks.
    targets : array-like (trials, readouts, outputs)
        One readout at the end, or one at every step.
    numbers : (trials,)
        Indices of the trials that count.
    present : (trials, steps) or None
        Steps that exist, if trials differ in length.
    counted : (trials, readouts) or None
        Readouts that count, if some do not.
    classes : tuple or None
        Classes of one-hot targets.
    """

    inputs: Any
    targets: Any
    numbers: NDArray[np.int64]
    present: Mask | None = None
    counted: Mask | None = None
    classes: tuple[object, ...] | None = None

    @classmethod
    def of(
        cls,
        inputs: ArrayLike,
        targets: ArrayLike,
        *,
        mask: ArrayLike | None = None,
        lengths: ArrayLike | None = None,
        labels: bool | None = None,
        classes: int | Sequence[object] | None = None,
    ) -> RecordedTrials:
        """Check trials, convert labels to targets and align trials of different length."""
        labels = True if labels is None and classes is not None else labels
        inputs, targets, lengths, labels = padded(inputs, targets, lengths, labels)
        x, (y, labelled, every_step) = _checked(array_like("inputs", inputs), array_like("targets", targets), labels)
        size = tuple(x.shape[:2])
        counts, present = _mask(mask, size), _present(lengths, size)
        if counts is not None and counts.ndim == 2 and size[1] == 1 and not every_step:
            counts = counts[:, 0]
        numbers = np.arange(size[0]) if counts is None or counts.ndim == 2 else np.flatnonzero(counts)
        counted = counts if counts is not None and counts.ndim == 2 else None
        if counted is not None and not every_step:
            raise InvalidSpec("a mask (trials, steps) needs targets at every step.", field="mask")
        if every_step and present is not None:
            counted = present if counted is None else counted & present
        known = None
        if labelled:
            live = np.isin(np.arange(len(y)), numbers).reshape(-1, *[1] * (y.ndim - 1))
            y, known = one_hot(y, classes, live=live if counted is None else live & counted)
        made = cls(x, y if y.ndim == 3 else y[:, None, :], numbers, present, counted, known)
        made._check()
        return made._cut() if every_step else made._aligned()

    def __len__(self) -> int:
        return len(self.numbers)

    def chunk(self, rows: slice) -> tuple[FloatArray, FloatArray]:
        """Inputs and targets of some trials, (trials, steps, channels), with zeros at steps that do not count."""
        numbers = self.numbers[rows]
        consecutive = len(numbers) and numbers[-1] - numbers[0] + 1 == len(numbers)
        at = slice(int(numbers[0]), int(numbers[-1]) + 1) if consecutive else numbers  # a slice does not copy
        x, y = self.inputs[at], self.targets[at]
        if self.present is not None:
            x = _where(self.present[at], x)
        if self.counted is not None:
            y = _where(self.counted[at], y)
        filling = "Fill gaps with fill='zero' or 'hold', or leave trials out with fill='drop'."
        x = squarable("inputs", real_array("inputs", x, numbers=numbers, axes=AXES, remedy=filling))
        masking = "Leave such targets out with mask, or their trials with fill='drop'."
        if y.shape[1] > 1:
            return x, squarable("targets", real_array("targets", y, numbers=numbers, axes=AXES, remedy=masking))
        y = real_array("targets", y[:, 0], numbers=numbers, axes=(AXES[0], AXES[2]), remedy=masking)
        return x, squarable("targets", y)[:, None]

    def needs_mask(self, prepared: bool) -> bool:
        """Whether statistics depend on which steps count; missing first steps are zeros unless trials are prepared."""
        return self.counted is not None or (self.present is not None and prepared)

    def masked(self, centred: bool, scaled: bool) -> MaskedTrials:
        """All trials in one array, to be centred and scaled."""
        x, y = self.chunk(slice(0, len(self)))
        present = np.ones(x.shape[:2], dtype=bool) if self.present is None else self.present[self.numbers]
        counted = np.ones(y.shape[:2], dtype=bool) if self.counted is None else self.counted[self.numbers]
        return MaskedTrials(x, y, present, counted, centred, scaled)

    @property
    def kept(self) -> RecordedTrials | None:
        """A copy that later changes of the arrays do not reach; memory maps stay on disk. None if it is too large."""
        values = [part.shape[1] * part.shape[2] for part in (self.inputs, self.targets)]
        if 8 * len(self) * sum(values) > KEPT_MEMORY:
            return None
        x, y = (v if isinstance(v, np.memmap) else np.array(as_numpy(v)) for v in (self.inputs, self.targets))
        return replace(self, inputs=x, targets=y)

    def _check(self) -> None:
        x, y = tuple(self.inputs.shape), tuple(self.targets.shape)
        if len(self) < 2:
            raise InvalidSpec(f"at least two trials must count, got {len(self)} of {x[0]}.", field="inputs")
        if 0 in x + y:
            raise InvalidSpec(f"inputs and targets must not be empty, got shapes {x} and {y}.", field="inputs")
        if y[1] not in (1, x[1]):
            raise InvalidSpec(f"targets must have one step or the {x[1]} steps of inputs, got {y[1]}.", field="targets")

    def _aligned(self) -> RecordedTrials:
        """Shift trials with a target at their end so that they end together, after steps of zero input.

        A network at rest stays at rest over steps of zero input.
        """
        if self.present is None:
            return self
        x = real_array("inputs", _where(self.present, self.inputs), axes=AXES)
        shift = (np.arange(x.shape[1]) - (~self.present).sum(axis=1)[:, None]) % x.shape[1]
        shifted = np.take_along_axis(x, shift[:, :, None], axis=1)
        return replace(self, inputs=shifted, present=np.take_along_axis(self.present, shift, axis=1))

    def _cut(self) -> RecordedTrials:
        """Remove steps after the last target that counts."""
        if self.counted is None or self.counted[self.numbers].all():
            return replace(self, counted=None)
        needed = np.flatnonzero(self.counted[self.numbers].any(axis=0))
        if not len(needed):
            raise InvalidSpec("mask must be 1 (true) for at least one target, got none.", field="mask")
        last = int(needed[-1]) + 1
        present = None if self.present is None else self.present[:, :last]
        return replace(
            self,
            inputs=self.inputs[:, :last],
            targets=self.targets[:, :last],
            present=None if present is None or present[self.numbers].all() else present,
            counted=self.counted[:, :last],
        )


def _checked(x: Any, y: Any, labels: bool | None) -> tuple[Any, Targets]:
    if x.ndim != 3:
        raise InvalidSpec(f"inputs must be (trials, steps, inputs), got shape {tuple(x.shape)}.", field="inputs")
    shape = tuple(y.shape)
    read = Targets.of(y, tuple(x.shape[:2]), labels) if shape else None
    if read is None or len(x) != len(read.values):
        order = (
            " If inputs are in another order, name it: axes='time trial channel'." if {*shape[:1]} & {*x.shape} else ""
        )
        raise InvalidSpec(
            f"targets must have the {len(x)} trials of inputs, got shape {shape}.{order}", field="targets"
        )
    return x, read


def padded(inputs: Any, targets: Any, lengths: object, labels: bool | None) -> tuple[Any, Any, Any, bool | None]:
    """Convert lists of trials to padded arrays, and lengths if they differ; return arrays unchanged."""
    if not _is_list_of_trials(inputs):
        return inputs, targets, lengths, labels
    if lengths is not None:
        raise InvalidSpec("lengths must be left out if inputs are a list of trials.", field="lengths")
    steps = [len(trial) for trial in inputs]
    flat = _is_list_of_trials(targets, 1)
    if flat or _is_list_of_trials(targets):
        given = [len(trial) for trial in targets]
        if flat and given != steps and len(set(given)) == 1:
            targets = np.stack([np.asarray(trial) for trial in targets])  # (trials, outputs)
        elif given != steps:
            raise InvalidSpec(f"targets must have the steps {steps[:6]} of inputs, got {given[:6]}.", field="targets")
        else:
            numeric = np.asarray(targets[0]).dtype.kind == "f"
            if flat and labels is None and numeric:
                remedy = "Use labels=True, or trials (steps, 1) for one output at every step."
                raise InvalidSpec(f"targets must have channels or be labels, got floats. {remedy}", field="labels")
            targets = _stacked("targets", [trial[:, None] for trial in targets] if flat else targets, max(steps))
            # Trials of equal length may be one-hot rows as well.
            labels = True if flat and labels is None and len(set(steps)) > 1 else labels
    return _stacked("inputs", inputs, max(steps)), targets, np.array(steps) if len(set(steps)) > 1 else None, labels


def _is_list_of_trials(value: Any, ndim: int = 2) -> bool:
    listed = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype == object)
    return listed and bool(len(value)) and all(getattr(trial, "ndim", None) == ndim for trial in value)


def _stacked(name: str, trials: Sequence[object], steps: int) -> FloatArray:
    """Stack trials in one array, padded with zeros at the end."""
    parts = [as_numpy(array_like(name, trial)) for trial in trials]
    channels = parts[0].shape[1]
    stacked = np.zeros((len(parts), steps, channels), dtype=np.result_type(*parts))
    for k, part in enumerate(parts):
        if part.shape[1] != channels or not len(part):
            raise InvalidSpec(f"{name}[{k}] must have {channels} channels, got shape {part.shape}.", field=name)
        stacked[k, : len(part)] = part
    return stacked


def _where(live: Mask, values: Any) -> FloatArray:
    """Return the values at live steps and zeros elsewhere."""
    values = values.detach().cpu().numpy() if hasattr(values, "detach") else values
    return np.where(live[:, :, None], values, 0.0)


def _mask(mask: ArrayLike | None, size: tuple[int, ...]) -> Mask | None:
    if mask is None:
        return None
    values = real_array("mask", array_like("mask", mask))
    values = values[:, :, 0] if values.ndim == 3 and values.shape[2] == 1 else values
    if values.shape not in (size[:1], size) or not np.isin(values, (0.0, 1.0)).all():
        raise InvalidSpec(f"mask must be 0 or 1 of shape {size[:1]} or {size}, got {_extent(values)}.", field="mask")
    return values == 1


def _present(lengths: ArrayLike | None, size: tuple[int, ...]) -> Mask | None:
    """Steps that each trial has, (trials, steps); None if every trial has all."""
    if lengths is None:
        return None
    steps = real_array("lengths", lengths)
    if steps.shape != size[:1] or not ((steps >= 1) & (steps <= size[1]) & (steps == np.round(steps))).all():
        wanted = f"{size[0]} whole numbers from 1 to {size[1]}"
        raise InvalidSpec(f"lengths must be {wanted}, got {_extent(steps)}.", field="lengths")
    present = np.arange(size[1]) < steps[:, None]
    return None if present.all() else present


def _extent(values: FloatArray) -> str:
    span = f" with values from {values.min():g} to {values.max():g}" if values.size else ""
    return f"shape {values.shape}{span}"
