"""What recorded arrays mean: which axis is which, and whether targets are class labels or numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from learncast._core.errors import InvalidSpec, brief
from learncast._core.validation import FloatArray, count

#: Most classes that labels may have.
MOST_CLASSES = 10_000
#: Number of classes above which integers could be counts as well.
FEW_CLASSES = 10
#: Size of a number whose twelfth power is still precise, as norms of products of statistics have it.
SMALLEST = 1e-20
#: Names of the dimensions of an xarray array, in the singular, for each axis.
DIMENSIONS = {
    "trial": ("trial", "sequence", "sample", "epoch", "pair"),
    "step": ("step", "time", "bin"),
    "channel": ("channel", "neuron", "unit", "cell", "electrode", "feature", "input", "output", "target"),
}
#: The two keywords that say what targets mean.
CHOICE = "Set labels=True if they are classes, labels=False if they are numbers."


class Targets(NamedTuple):
    """Targets and their meaning, which every function that accepts targets decides here.

    Attributes
    ----------
    values : array-like
        Labels (trials[, steps]) or numbers (trials[, steps], outputs).
    are_labels : bool
    every_step : bool
        Whether there is a target at every step.
    """

    values: Any
    are_labels: bool
    every_step: bool

    @classmethod
    def of(
        cls,
        values: Any,
        size: tuple[int, int],
        labels: bool | None = None,
        *,
        complete: bool = True,
        where: str = "",
    ) -> Targets:
        """Decide the meaning of targets.

        Integers, booleans and strings are labels: (trials,) at the end or (trials, steps) at every step, perhaps with
        a last axis of length 1. A row (1, trials), as MATLAB stores vectors, is (trials,). Integers with several
        channels, and floats, are numbers; floats (trials,) are one output at the end. Integers that could be counts are
        refused: those of more than ten values, and those of three or more of which one occurs only once.

        Parameters
        ----------
        values : array or tensor
            From `array_like`.
        size : (trials, steps)
            First two axes of the inputs.
        labels : bool, optional
            Whether targets are labels, if their type does not say so.
        complete : bool
            False for a batch, whose few labels cannot tell whether they are ambiguous.
        where : str
            Place of the targets, for messages.
        """
        if tuple(values.shape) == (1, size[0]) and size[0] > 1:  # a row vector of MATLAB
            values = values.reshape(-1)
        shape, kind = tuple(values.shape), "f" if hasattr(values, "detach") else values.dtype.kind
        at_steps = shape[:2] == size and size[1] > 1
        single = all(length == 1 for length in shape[2 if at_steps else 1 :])
        if labels or (labels is None and (kind in "US" or (kind in "iub" and single))):
            if not single:
                field = "labels" if labels else "targets"
                raise InvalidSpec(f"labels{where} must be (trials[, steps]), got shape {shape}.", field=field)
            given = values.reshape(shape[: 1 + at_steps])
            if complete and labels is None and (kind in "iu" or (kind in "US" and _are_numbers(given))):
                _refuse_ambiguous(given.astype(float) if kind in "US" else given, at_steps, where)
            return cls(given, True, at_steps)
        if len(shape) == 1:
            return cls(values[:, None], False, False)
        if len(shape) not in (2, 3):
            wanted = "(trials[, steps], outputs)"
            raise InvalidSpec(f"targets{where} must be {wanted}, got shape {shape}.", field="targets")
        at_end = len(shape) == 3 and shape[1] == 1 < size[1]
        return cls(values[:, 0] if at_end else values, False, len(shape) == 3 and not at_end)


def _are_numbers(words: NDArray[np.generic]) -> bool:
    """Whether all strings are numbers written as text."""
    try:
        return bool(np.isfinite(words.astype(float)).all())
    except ValueError:
        return False


def _refuse_ambiguous(labels: NDArray[np.generic], at_steps: bool, where: str) -> None:
    """Refuse integers that look like one-hot rows or like counts as much as like labels."""
    if at_steps and np.isin(labels, (0, 1)).all() and (labels.sum(axis=1) == 1).all():
        got = f"integers of shape {labels.shape} that could be both"
        raise InvalidSpec(f"targets{where} must be labels or one-hot rows, got {got}. {CHOICE}", field="labels")
    values, repeats = np.unique(labels, return_counts=True)
    if len(values) > FEW_CLASSES or (len(values) > 2 and repeats.min() == 1):
        kind = "integers" if labels.dtype.kind in "iu" else "numbers as text"
        got = f"{len(values)} different {kind} among {labels.size}"
        raise InvalidSpec(f"targets{where} must be labels or numbers, got {got}. {CHOICE}", field="labels")


def array_like(name: str, value: Any) -> Any:
    """Return an array, memory map or tensor, to be read in chunks, with axes in the order trial, step, channel.

    The dimensions of an xarray array are identified by their names. Integer tensors become arrays, because they may be
    labels, and masked entries of a masked array become NaN.
    """
    if isinstance(getattr(value, "dims", None), tuple):
        value = _in_order(name, value)
    if isinstance(value, list | tuple):
        try:
            value = np.array(value)
        except ValueError as error:
            raise InvalidSpec(f"{name} must be an array, got a list of unequal parts.", field=name) from error
    if getattr(value, "ndim", None) is None:
        raise InvalidSpec(f"{name} must be a numpy array or torch tensor, got {type(value).__name__}.", field=name)
    if hasattr(value, "detach"):
        return value if value.is_floating_point() else value.detach().cpu().numpy()
    if np.ma.is_masked(value):
        return value.astype(np.float64).filled(np.nan)
    array = value if isinstance(value, np.ndarray) else np.asarray(value)
    return _unboxed(name, array) if array.dtype.kind == "O" else array


def check_same_trials(**given: object) -> None:
    """Refuse xarray and pandas data that label their trials differently: positions would pair different trials.

    The default index of pandas is a count of rows, not labels, unless the other index has the same entries.
    """
    found = {name: index for name, value in given.items() if (index := _trial_index(value)) is not None}
    for (one, first), (other, second) in combinations(found.items(), 2):
        if len(first) != len(second) or first.equals(second):
            continue
        if (first.isin(second).all() and second.isin(first).all()) or not (_counts(first) or _counts(second)):
            remedy = "Align them, or give their values without labels."
            raise InvalidSpec(f"{one} and {other} must label their trials in the same order. {remedy}", field=other)


def _trial_index(value: Any) -> Any:
    """The pandas index that labels the trials of xarray or pandas data; None if there is none."""
    if isinstance(getattr(value, "dims", None), tuple) and hasattr(value, "indexes"):
        return next((index for name, index in value.indexes.items() if axis_of(name) == "trial"), None)
    return value.index if hasattr(value, "iloc") else None


def _counts(index: Any) -> bool:
    """Whether an index only counts rows from 0."""
    return type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1)


def axis_of(name: object) -> str | None:
    """The axis that a name of a dimension stands for."""
    word = str(name).lower().removesuffix("s")
    return next((axis for axis, words in DIMENSIONS.items() if word in words), None)


def squarable(name: str, values: FloatArray) -> FloatArray:
    """Refuse values whose powers are all below or above the range of floats."""
    largest = float(max(values.max(initial=0.0), -values.min(initial=0.0)))  # without another array
    if 0 < largest < SMALLEST or largest > 1 / SMALLEST:
        wanted = f"between {SMALLEST:g} and {1 / SMALLEST:g}"
        raise InvalidSpec(f"{name} must have sizes {wanted}, got {largest:g}. Change their unit.", field=name)
    return values


def as_numpy(value: Any) -> NDArray[np.generic]:
    """Return an array or tensor as a numpy array of its own type, or of float32 for half precision."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if value.is_floating_point() and value.dtype.itemsize < 4 else value
    return np.asarray(value)


def _in_order(name: str, value: Any) -> NDArray[np.generic]:
    """Values of an xarray array (trial[, step], channel), by the names of its dimensions."""
    axes = {axis: [name for name in value.dims if axis_of(name) == axis] for axis in DIMENSIONS}
    numbers = [len(found) for found in axes.values()]
    if numbers[0] != 1 or max(numbers) > 1 or sum(numbers) < value.ndim:
        accepted = "; ".join(f"{axis}: {', '.join(words)}" for axis, words in DIMENSIONS.items())
        got = f"{', '.join(map(str, value.dims))}. Known names are {accepted}"
        raise InvalidSpec(f"{name} must name its dimensions trial, step or channel, each once, got {got}.", field=name)
    values = np.asarray(value.transpose(*(found[0] for found in axes.values() if found)).values)
    if axes["step"] and not axes["channel"]:
        return values[:, :, None]
    return values[:, None] if axes["channel"] and not axes["step"] and name == "targets" else values


def _unboxed(name: str, array: NDArray[np.object_]) -> NDArray[np.generic]:
    """Strings, integers or numbers that are stored as objects, as pandas does."""
    values: list[object] = array.ravel().tolist()
    kinds = {"U" if isinstance(v, str) else "i8" if isinstance(v, int | np.integer) else "f8" for v in values}
    if "U" in kinds and len(kinds) > 1:
        other = next(v for v in values if not isinstance(v, str))
        raise InvalidSpec(f"{name} must be strings or numbers, got strings and {brief(other)}.", field=name)
    try:
        return array.astype(kinds.pop() if len(kinds) == 1 else "f8")
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidSpec(f"{name} must be an array of numbers or strings: {error}.", field=name) from error


def one_hot(
    labels: ArrayLike, classes: int | Sequence[object] | None = None, *, live: ArrayLike = True, where: str = "labels"
) -> tuple[FloatArray, tuple[object, ...]]:
    """Convert labels of any shape to one-hot targets, (..., classes), and return the classes in order.

    Parameters
    ----------
    labels : array of integers or strings
    classes : int or sequence, optional
        Number of classes, numbered from 0, or the classes; by default those that occur, sorted.
    live : bool array
        Labels that count; the others become zeros and may have any value.
    where : str
        Name of the labels in error messages.
    """
    given = np.asarray(labels)
    live = np.broadcast_to(np.asarray(live), given.shape)
    whole = given.dtype.kind == "f" and np.array_equal(given[live], np.round(given[live]))
    if whole and np.abs(given[live]).max(initial=0.0) < 2.0**53:
        given = np.where(live, given, 0.0).astype(np.int64)
    if given.dtype.kind not in "iubUS":
        values = given[live]
        wrong = values[~(values == np.round(values))] if given.dtype.kind == "f" else values
        example = brief([*wrong, *values][0]) if values.size else "none"
        raise InvalidSpec(f"{where} must be integers or strings, got {example}.", field="labels")
    known = _classes(given[live], classes, where)
    positions = {label: k for k, label in enumerate(known)}
    index = np.array([positions.get(label, -1) for label in given.ravel().tolist()]).reshape(given.shape)
    unknown = live & (index < 0)
    if unknown.any():
        place = tuple(int(i) for i in np.argwhere(unknown)[0])
        listed = ", ".join(map(str, known[:12]))
        got = f"{given[place]} at index {place}"
        raise InvalidSpec(f"{where} must be among {len(known)} classes ({listed}), got {got}.", field="classes")
    return ((index[..., None] == np.arange(len(known))) & live[..., None]).astype(float), known


def class_numbers(labels: Any, where: str = "") -> NDArray[np.int64]:
    """Return labels that number the outputs of a network; to which output a string belongs is unknown."""
    if labels.dtype.kind in "US":
        got = f"{str(labels.flat[0])!r}. Number them with numpy.unique(words, return_inverse=True)[1]"
        raise InvalidSpec(f"labels{where} must be integers, got {got}.", field="targets")
    wrong = ~(labels < MOST_CLASSES) | (labels != np.round(labels))  # NaN is wrong too
    if wrong.any():
        value = brief(labels[wrong][0])
        raise InvalidSpec(f"labels{where} must be whole numbers below {MOST_CLASSES:,}, got {value}.", field="labels")
    return labels.astype(np.int64)


def _classes(labels: NDArray[np.generic], classes: int | Sequence[object] | None, where: str) -> tuple[object, ...]:
    if isinstance(classes, Sequence) and not isinstance(classes, str):
        if len(set(classes)) < len(classes) or not classes:
            raise InvalidSpec(f"classes must be distinct, got {brief(list(classes))}.", field="classes")
        return tuple(classes)
    if classes is not None:
        return tuple(range(count("classes", classes)))
    known = tuple(np.unique(labels).tolist())
    if not 1 < len(known) <= MOST_CLASSES:
        raise InvalidSpec(f"{where} must have 2 to {MOST_CLASSES:,} classes, got {len(known)}.", field="labels")
    return known
