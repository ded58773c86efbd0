"""Recorded trials as they are given: arrays or lists, checked, labelled, masked and aligned, but not yet summed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, real_array
from learncast.tasks.recorded.labels import are_labels, one_hot
from learncast.tasks.recorded.masked import Mask

#: What the axes of a bad entry's index stand for.
AXES = ("trial", "step", "channel")


@dataclass(frozen=True, eq=False)
class Trials:
    """Trials whose shapes fit, and which of their steps are there and count.

    Attributes
    ----------
    inputs : array-like (trials, steps, inputs)
        Read in chunks.
    targets : array-like (trials, readouts, outputs)
        One readout at the end, or one at every step.
    numbers : (trials,)
        Number of each trial that counts among those given.
    present : (trials, steps) or None
        Steps that a trial has, where trials differ in length.
    counted : (trials, readouts) or None
        Readouts that count, where some do not.
    classes : tuple or None
        What one-hot targets stand for.
    """

    inputs: Any
    targets: Any
    numbers: NDArray[np.int64]
    present: Mask | None = None
    counted: Mask | None = None
    classes: tuple[Any, ...] | None = None

    @classmethod
    def of(
        cls,
        inputs: Any,
        targets: Any,
        *,
        mask: Any = None,
        lengths: Any = None,
        labels: bool = False,
        classes: int | Sequence[Any] | None = None,
    ) -> Trials:
        """Check trials against each other, turn labels into targets and align trials of different length."""
        listed = _is_list_of_trials(targets, 1) and _by_step(targets)
        inputs, targets, lengths = _padded(inputs, targets, lengths)
        inputs, targets = (_array_like(name, value) for name, value in (("inputs", inputs), ("targets", targets)))
        _check_axes("inputs", inputs, (3,), "(trials, steps, inputs)")
        size = tuple(inputs.shape[:2])
        trials, steps = _mask(mask, size), _lengths(lengths, size)
        numbers = np.arange(size[0]) if trials is None or trials.ndim == 2 else np.flatnonzero(trials)
        counted = trials if trials is not None and trials.ndim == 2 else None
        # Whole numbers at the steps of a list of trials have no axis of channels: they are labels too.
        labelled = labels or are_labels(targets) or (listed and targets.ndim == 2 and targets.shape == size)
        _check_axes("targets", targets, (1, 2) if labelled else (2, 3), "(trials[, steps], outputs)")
        every_step = targets.ndim == (2 if labelled else 3) and targets.shape[1] == size[1]
        if every_step and steps is not None:
            counted = steps if counted is None else counted & steps
        _check_mask(counted, every_step)
        known = None
        if labelled:
            _check_length(inputs, targets)
            live = np.isin(np.arange(len(targets)), numbers).reshape(-1, *[1] * (targets.ndim - 1))
            targets, known = one_hot(targets, classes, live=live if counted is None else live & counted)
        made = cls(inputs, targets if targets.ndim == 3 else targets[:, None, :], numbers, steps, counted, known)
        made._check()
        return made._aligned(every_step)

    def __len__(self) -> int:
        return len(self.numbers)

    def chunk(self, rows: slice) -> tuple[FloatArray, FloatArray]:
        """Inputs and targets of some trials, (trials, steps, channels); zeros where there are none."""
        numbers = self.numbers[rows]
        whole = len(numbers) and numbers[-1] - numbers[0] + 1 == len(numbers)  # a slice of an array is no copy
        at: Any = slice(int(numbers[0]), int(numbers[-1]) + 1) if whole else numbers
        x, y = self.inputs[at], self.targets[at]
        if self.present is not None:
            x = _where(self.present[at], x)
        if self.counted is not None:
            y = _where(self.counted[at], y)
        x = real_array("inputs", x, numbers=numbers, axes=AXES)
        if y.shape[1] > 1:
            return x, real_array("targets", y, numbers=numbers, axes=AXES)
        return x, real_array("targets", y[:, 0], numbers=numbers, axes=(AXES[0], AXES[2]))[:, None]

    def _check(self) -> None:
        _check_length(self.inputs, self.targets)
        if len(self) < 2:
            raise InvalidSpec(
                required="at least two trials are needed",
                got=f"{len(self)}" + ("" if len(self.inputs) < 2 else f" of {len(self.inputs)} that the mask leaves"),
                why="covariances cannot be estimated from one trial",
                remedy="record more trials, or use a task family",
            )
        if min(self.inputs.shape) < 1 or min(self.targets.shape) < 1:
            raise InvalidSpec(
                f"every axis of inputs and targets must have an entry, got shapes {tuple(self.inputs.shape)} and "
                f"{tuple(self.targets.shape)}."
            )
        if self.targets.shape[1] not in (1, self.inputs.shape[1]):
            raise InvalidSpec(
                f"targets at every step must have the inputs' {self.inputs.shape[1]} steps, got "
                f"{self.targets.shape[1]} steps. Align them, or pass (trials, outputs) for a target at the end."
            )

    def _aligned(self, every_step: bool) -> Trials:
        """Trials with a target at their end moved so that they end together; others cut after the last that counts.

        Before a trial come steps without input, over which a network at rest stays at rest.
        """
        if not every_step:
            if self.present is None:
                return self
            x = real_array("inputs", _where(self.present, self.inputs), axes=AXES)
            shift = (np.arange(x.shape[1]) - (~self.present).sum(axis=1)[:, None]) % x.shape[1]
            moved = np.take_along_axis(x, shift[:, :, None], axis=1)
            return replace(self, inputs=moved, present=np.take_along_axis(self.present, shift, axis=1))
        if self.counted is None or self.counted[self.numbers].all():
            return replace(self, counted=None)
        needed = self.counted[self.numbers].any(axis=0)
        last = int(np.flatnonzero(needed)[-1]) + 1 if needed.any() else 0
        if not last:
            raise InvalidSpec(
                "mask must leave a target that counts, got none at any step of any trial. Mask holds 1 (true) "
                "where the target counts and 0 where it does not.",
                field="mask",
            )
        present = None if self.present is None else self.present[:, :last]
        return replace(
            self,
            inputs=self.inputs[:, :last],
            targets=self.targets[:, :last],
            present=None if present is None or present[self.numbers].all() else present,
            counted=self.counted[:, :last],
        )


def _padded(inputs: Any, targets: Any, lengths: Any) -> tuple[Any, Any, Any]:
    """Lists of trials of their own length as arrays with their lengths; arrays as they are."""
    if not _is_list_of_trials(inputs):
        return inputs, targets, lengths
    if lengths is not None:
        raise InvalidSpec(
            "lengths belong to trials in one array, got a list of trials, each of its own length, and "
            "lengths. Leave lengths out."
        )
    found, flat = [len(trial) for trial in inputs], _is_list_of_trials(targets, 1)
    if flat and not _by_step(targets):
        targets = np.stack(list(targets))
    elif flat or _is_list_of_trials(targets):
        given = [len(trial) for trial in targets]
        if given != found:
            raise InvalidSpec(
                f"targets at every step must have the steps of their trial's inputs, got {given[:6]} steps for "
                f"inputs of {found[:6]}."
            )
        targets = _stacked("targets", [trial[:, None] for trial in targets] if flat else targets, max(found))
        targets = targets[:, :, 0] if flat and are_labels(targets[:, 0, 0]) else targets
    return _stacked("inputs", inputs, max(found)), targets, np.array(found)


def _by_step(targets: Sequence[Any]) -> bool:
    """Whether the numbers of a list of trials stand at its steps: channels would be as many in every trial."""
    return len({len(trial) for trial in targets}) > 1


def _is_list_of_trials(value: Any, ndim: int = 2) -> bool:
    # An array of numbers is one array, whatever its rows are.
    listed = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype == object)
    return listed and bool(len(value)) and all(getattr(trial, "ndim", None) == ndim for trial in value)


def _stacked(name: str, trials: Sequence[Any], steps: int) -> Any:
    """Trials one under another, zeros after the end of the shorter ones."""
    channels = trials[0].shape[1]
    made = np.zeros((len(trials), steps, channels), dtype=np.asarray(trials[0]).dtype)
    for k, trial in enumerate(trials):
        if trial.shape[1] != channels or not len(trial):
            raise InvalidSpec(
                f"{name} of trial {k} must have a step and the {channels} channels of trial 0, got shape "
                f"{tuple(trial.shape)}."
            )
        made[k, : len(trial)] = trial
    return made


def _where(live: Mask, values: Any) -> FloatArray:
    """Values where they are live, zeros elsewhere, whatever stands there."""
    values = values.detach().cpu().numpy() if hasattr(values, "detach") else values
    return np.where(live[:, :, None], values, 0.0)


def _array_like(name: str, value: Any) -> Any:
    """Labelled and other array-likes as numpy; arrays, memory maps and tensors as they are, read in chunks."""
    if getattr(value, "ndim", None) is None:
        raise InvalidSpec(
            f"{name} must be a numpy array or torch tensor, got {type(value).__name__}. Pass {name} as an "
            "array, trials first.",
            field=name,
        )
    if hasattr(value, "detach") and not value.is_floating_point():
        return value.detach().cpu().numpy()  # whole numbers may be labels
    if np.ma.is_masked(value):  # what is masked is missing: read only where `mask` says that it does not count
        return value.astype(np.float64).filled(np.nan)
    made = value if isinstance(value, np.ndarray) or hasattr(value, "detach") else np.asarray(value)
    # A pandas column keeps words as objects.
    worded = made.ndim == 1 and getattr(made.dtype, "kind", "") == "O" and all(isinstance(v, str) for v in made)
    return made.astype(str) if worded else made


def _check_axes(name: str, value: Any, allowed: tuple[int, ...], layout: str) -> None:
    if value.ndim not in allowed:
        one = name == "targets" and value.ndim == 1
        raise InvalidSpec(f"{name} must be {layout}, got shape {tuple(value.shape)}.", field=name)


def _check_length(inputs: Any, targets: Any) -> None:
    if len(inputs) != len(targets):
        raise InvalidSpec(
            f"inputs and targets must have the same number of trials, got {len(inputs)} and {len(targets)}."
        )


def _mask(mask: Any, size: tuple[int, int]) -> Mask | None:
    if mask is None:
        return None
    found = real_array("mask", mask)
    found = found[:, :, 0] if found.ndim == 3 and found.shape[2] == 1 else found
    if found.shape not in (size[:1], size) or not np.isin(found, (0.0, 1.0)).all():
        raise InvalidSpec(
            f"mask must hold 0 or 1 (false or true) for each trial ({size[0]},) or each of its steps {size}, "
            f"got {_extent(found)}. Make it boolean, with the trials' own axes.",
            field="mask",
        )
    return found == 1


def _lengths(lengths: Any, size: tuple[int, int]) -> Mask | None:
    """Steps that each trial has, (trials, steps); None where all have all."""
    if lengths is None:
        return None
    found = real_array("lengths", lengths)
    if found.shape != size[:1] or not ((found >= 1) & (found <= size[1]) & (found == np.round(found))).all():
        raise InvalidSpec(
            f"lengths must be whole numbers from 1 to {size[1]}, one for each of the {size[0]} trials, got "
            f"{_extent(found)}. Count each trial's steps.",
            field="lengths",
        )
    present = np.arange(size[1]) < found[:, None]
    return None if present.all() else present


def _extent(values: FloatArray) -> str:
    span = f", values from {values.min():g} to {values.max():g}" if values.size else ""
    return f"shape {values.shape}{span}"


def _check_mask(counted: Mask | None, every_step: bool) -> None:
    if counted is not None and not every_step:
        raise InvalidSpec(
            "a mask of steps needs targets at every step, got targets at the end and a mask (trials, steps). "
            "Give lengths for trials that end sooner, a mask (trials,) to leave trials out, or the targets "
            "of every step."
        )
