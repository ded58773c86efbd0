"""Class labels as one-hot targets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from learncast._core.errors import InvalidSpec, brief
from learncast._core.validation import FloatArray, count

#: Most classes that labels may have.
MOST_CLASSES = 10_000


def are_labels(values: ArrayLike) -> bool:
    """Whether values without an axis of channels are integers or strings, which label classes."""
    return np.ndim(values) == 1 and np.asarray(values).dtype.kind in "iubUS"


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
    if given.dtype.kind == "f" and np.array_equal(given[live], np.round(given[live])):
        given = np.where(live, given, 0.0).astype(np.int64)
    if given.dtype.kind not in "iubUS":
        example = brief(given[live].ravel()[0]) if given[live].size else "none"
        raise InvalidSpec(f"{where} must be integers or strings, got {example}.", field="labels")
    known = _classes(given[live], classes, where)
    positions = {label: k for k, label in enumerate(known)}
    index = np.array([positions.get(label, -1) for label in given.ravel().tolist()]).reshape(given.shape)
    unknown = live & (index < 0)
    if unknown.any():
        place = tuple(int(i) for i in np.argwhere(unknown)[0])
        listed = ", ".join(map(str, known[:12]))
        raise InvalidSpec(
            f"{where} must be among the {len(known)} classes ({listed}), got {given[place]} at index {place}.",
            field="classes",
        )
    return ((index[..., None] == np.arange(len(known))) & live[..., None]).astype(float), known


def _classes(labels: NDArray[np.generic], classes: int | Sequence[object] | None, where: str) -> tuple[object, ...]:
    if isinstance(classes, Sequence) and not isinstance(classes, str):
        if len(set(classes)) < len(classes) or not classes:
            raise InvalidSpec(f"classes must be distinct, got {brief(list(classes))}.", field="classes")
        return tuple(classes)
    if classes is not None:
        return tuple(range(count("classes", classes)))
    known = tuple(np.unique(labels).tolist())
    if not 0 < len(known) <= MOST_CLASSES:
        raise InvalidSpec(f"{where} must have 1 to {MOST_CLASSES} classes, got {len(known)}.", field="labels")
    return known
